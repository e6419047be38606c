package ollama

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"callgate/inspect"
	"callgate/inspect/rawjson"
)

// Edit appends the body with units changed.
func (h *history) Edit(dst []byte, mends map[int]inspect.Mend) ([]byte, error) {
	e := editor{history: h}
	todo := len(mends)
	for i := 0; i < len(h.units) && (todo > 0 || e.unbind); i++ {
		m, ok := mends[i]
		if ok {
			todo--
		}
		if e.unbind = e.unbind || m.Unbind; !ok && !e.unbind {
			continue
		}
		if k, reason := e.unit(i, m); reason != "" {
			return dst, refused(fmt.Sprintf("answer %d of the history, round %d", i, k), reason)
		}
	}
	if todo > 0 {
		return dst, refused("history", fmt.Sprintf("%d of the answers to be changed are not in it", todo))
	}
	n := len(h.b)
	for _, x := range e.edits {
		n += len(x.Text)
	}
	return rawjson.Apply(slices.Grow(dst, n), h.b, e.edits), nil
}

// editor gathers what is changed in a body.
type editor struct {
	*history
	unbind bool // a unit was met from which on thinking is taken out
	edits  []rawjson.Edit
}

// unit changes one unit. With a reason, it gives the number of the round that
// cannot be put back.
func (e *editor) unit(i int, m inspect.Mend) (round int, reason string) {
	rounds := make([]answer, len(m.Rounds))
	for k, r := range m.Rounds {
		if rounds[k], reason = readRound(r, e.unbind); reason != "" {
			return k, reason
		}
		if a := &rounds[k]; k < len(rounds)-1 && len(a.refusals) < len(a.calls) {
			return k, "a call in it has no result, and another round is behind it"
		}
	}
	at := e.runs[i]
	if len(rounds) > 0 && !m.Edited {
		e.replace(at, rounds)
	} else if reason := e.own(at, rounds, m); reason != "" {
		return len(rounds) - 1, reason
	}
	if k := len(rounds) - 1; k >= 0 {
		return k, e.results(at, &rounds[k])
	}
	return 0, ""
}

func (e *editor) edit(at rawjson.Span, text []byte) {
	e.edits = append(e.edits, rawjson.Edit{At: at, Text: text})
}

// whole is where a unit stands.
func (e *editor) whole(at run) rawjson.Span {
	return rawjson.Span{From: e.messages[at.from].at.From, To: e.messages[at.to-1].at.To}
}

// replace puts rounds in the place of a unit.
func (e *editor) replace(at run, rounds []answer) {
	var text []byte
	for k := range rounds {
		if a := &rounds[k]; a.there() {
			text = join(text, a.raw)
			if k < len(rounds)-1 {
				text = a.answered(text)
			}
		}
	}
	if len(text) > 0 {
		e.edit(e.whole(at), text)
		return
	}
	e.drop(at, e.whole(at))
}

// drop takes messages of a unit out, with one of the commas around them.
func (e *editor) drop(at run, s rawjson.Span) {
	switch {
	case at.from > 0:
		s.From = e.messages[at.from-1].at.To
	case at.to < len(e.messages):
		s.To = e.messages[at.to].at.From
	}
	e.edit(s, nil)
}

// results puts the refusals of a unit's last round among the results that the
// client gives behind it, each before the first result of a later call.
func (e *editor) results(at run, a *answer) (reason string) {
	if len(a.refusals) == 0 {
		return ""
	}
	order := a.order()
	var numbers []int // of the calls that the client gives results for
	for j := at.to; j < len(e.messages) && e.messages[j].role == roleResult; j++ {
		n, reason := order.answer(e.b, &e.messages[j])
		if reason != "" {
			return reason
		}
		numbers = append(numbers, n)
	}
	j := 0
	for _, f := range a.refusals {
		for j < len(numbers) && numbers[j] < f.Call {
			j++
		}
		e.edits = append(e.edits, rawjson.Insert(e.messages[at.to+j-1].at.To, append([]byte{','}, a.refusal(f)...)))
	}
	return ""
}

// order tells the calls of a round apart, by their ids and else by their order.
type order struct {
	ids   map[string]int
	names []string
	// gone says of a call that it was withheld, done that it has its result.
	gone, done []bool
}

func (a *answer) order() *order {
	o := &order{ids: map[string]int{}, gone: make([]bool, len(a.calls)), done: make([]bool, len(a.calls))}
	for i, c := range a.calls {
		o.names = append(o.names, rawjson.Text(a.raw, a.tool(i)))
		if id := rawjson.Text(a.raw, c.id); id != "" {
			o.ids[id] = i
		}
	}
	for _, f := range a.refusals {
		o.gone[f.Call] = true
	}
	return o
}

// answer gives the number of the call that a result is of: that of its id, or the
// first one without a result that is left, of the same tool where there is one.
// It is -1 for a result of no call.
func (o *order) answer(b []byte, m *message) (n int, reason string) {
	if i, ok := o.ids[rawjson.Text(b, m.answers)]; ok {
		if o.gone[i] {
			return i, fmt.Sprintf("its call %d was withheld and has a result all the same", i)
		}
		o.done[i] = true
		return i, ""
	}
	first := -1
	for i, name := range o.names {
		if o.gone[i] || o.done[i] {
			continue
		}
		if name == rawjson.Text(b, m.tool) {
			first = i
			break
		}
		if first < 0 {
			first = i
		}
	}
	if first >= 0 {
		o.done[first] = true
	}
	return first, ""
}

// own changes a unit whose words stay the client's: notices and thinking are
// taken out of it, withheld calls put in, and rounds before the last one put
// before it without their words.
func (e *editor) own(at run, rounds []answer, m inspect.Mend) (reason string) {
	var before []byte
	grown := -1 // message that gets calls and had none
	var notices []string
	if m.Edited {
		for k := range max(len(rounds)-1, 0) {
			if msg := rounds[k].wordless(); msg != nil {
				before = rounds[k].answered(join(before, msg))
			}
		}
		if len(rounds) > 0 {
			if grown, reason = e.place(at, &rounds[len(rounds)-1]); reason != "" {
				return reason
			}
		}
		notices = slices.Clone(m.Notices)
		// Longer ones before those that may be a part of them.
		slices.SortStableFunc(notices, func(x, y string) int { return cmp.Compare(len(y), len(x)) })
	}
	var kept, gone []int
	for j := at.from; j < at.to; j++ {
		if e.strip(&e.messages[j], &notices, rawjson.Nested(e.b, e.messages[j].calls) || grown == j) {
			kept = append(kept, j)
		} else {
			gone = append(gone, j)
		}
	}
	if len(kept) == 0 {
		if len(before) > 0 {
			e.edit(e.whole(at), before)
		} else {
			e.drop(at, e.whole(at))
		}
		return ""
	}
	if len(before) > 0 {
		e.edits = append(e.edits, rawjson.Insert(e.messages[kept[0]].at.From, append(before, ',')))
	}
	for _, j := range gone {
		s := e.messages[j].at
		if j > kept[0] {
			s.From = e.messages[j-1].at.To
		} else {
			s.To = e.messages[j+1].at.From
		}
		e.edit(s, nil)
	}
	return ""
}

// strip takes notices, each where it stands first, and thinking out of a message,
// and reports whether it says anything then, or says as much as before.
func (e *editor) strip(m *message, notices *[]string, calls bool) bool {
	var edits []rawjson.Edit
	content := spoken(e.b, m.content)
	if pieces := without(rawjson.Text(e.b, m.content), notices); len(pieces) > 1 {
		text := strings.Join(pieces, "")
		edits = append(edits, rawjson.Edit{At: m.content, Text: quoted(text)})
		content = strings.TrimSpace(text) != ""
	}
	if e.unbind && m.thinking.There() {
		cut, _ := rawjson.Cut(e.b, m.at, thinking(e.b, m.at))
		edits = append(edits, cut...)
	}
	if len(edits) == 0 {
		return true
	}
	if !content && !calls {
		return false
	}
	e.edits = append(e.edits, edits...)
	return true
}

// without takes notices out of a text, each where it stands first, and those that
// it found out of the list. What is left comes in pieces, so that no notice is
// found where two of them meet.
func without(text string, notices *[]string) []string {
	pieces := []string{text}
	*notices = slices.DeleteFunc(*notices, func(n string) bool {
		for i, p := range pieces {
			if before, after, ok := strings.Cut(p, n); ok && n != "" {
				pieces = slices.Replace(pieces, i, i+1, before, after)
				return true
			}
		}
		return false
	})
	return pieces
}

// place puts the withheld calls of a round among those that the client has of
// it, each before the first later one. It gives the message that had no calls
// and gets them, -1 for none.
func (e *editor) place(at run, a *answer) (grown int, reason string) {
	if len(a.refusals) == 0 {
		return -1, ""
	}
	order := a.order()
	type their struct {
		at rawjson.Span
		n  int
	}
	var calls []their
	for j := at.from; j < at.to; j++ {
		// The walk has read these calls already.
		_ = e.messages[j].eachCall(e.b, func(c entry) {
			n, ok := order.ids[rawjson.Text(e.b, c.id)]
			switch {
			case !ok:
				n = -1
			case order.gone[n]:
				reason = fmt.Sprintf("its call %d was withheld and is in the history all the same", n)
			}
			calls = append(calls, their{c.at, n})
		})
	}
	if reason != "" {
		return -1, reason
	}
	var list []byte
	next := 0
	for _, f := range a.refusals {
		raw := a.calls[f.Call].at.In(a.raw)
		for next < len(calls) && calls[next].n <= f.Call {
			next++
		}
		switch {
		case len(calls) == 0:
			list = join(list, raw)
		case next < len(calls):
			e.edits = append(e.edits, rawjson.Insert(calls[next].at.From, append(slices.Clone(raw), ',')))
		default:
			e.edits = append(e.edits, rawjson.Insert(calls[next-1].at.To, append([]byte{','}, raw...)))
		}
	}
	if list == nil {
		return -1, ""
	}
	m := &e.messages[at.to-1]
	value := append(append([]byte{'['}, list...), ']')
	if m.calls.There() {
		e.edit(m.calls, value)
	} else {
		e.edits = append(e.edits, rawjson.Insert(m.at.From+1, append(append([]byte(`"tool_calls":`), value...), ',')))
	}
	return at.to - 1, ""
}
