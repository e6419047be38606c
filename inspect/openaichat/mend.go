package openaichat

import (
	"fmt"
	"slices"

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
	} else if reason := e.keep(at, rounds, m); reason != "" {
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

// replace puts rounds in the place of a unit.
func (e *editor) replace(at run, rounds []answer) {
	last := len(rounds) - 1
	for last >= 0 && !rounds[last].there() {
		last--
	}
	var text []byte
	for k := range rounds {
		switch a := &rounds[k]; {
		case k == last:
			text = join(text, e.marked(at, a))
		case a.there():
			text = join(text, a.raw)
		default:
			continue
		}
		if k < len(rounds)-1 {
			text = rounds[k].answered(text)
		}
	}
	if len(text) == 0 {
		for j := at.from; j < at.to; j++ {
			e.drop(at, j, true)
		}
		return
	}
	e.edit(e.whole(at), text)
}

// answered appends the refusals of a round to a list of messages.
func (a *answer) answered(list []byte) []byte {
	for _, f := range a.refusals {
		list = join(list, a.refusal(f))
	}
	return list
}

// drop takes message j of a unit out, and one of the commas around it. The
// message before it stays, unless it is said to lead: to stand behind nothing
// but dropped ones of its unit.
func (e *editor) drop(at run, j int, leads bool) {
	s := e.messages[j].at
	switch {
	case j > 0 && (!leads || at.from > 0):
		s.From = e.messages[j-1].at.To
	case j+1 < len(e.messages):
		s.To = e.messages[j+1].at.From
	}
	e.edit(s, nil)
}

// results puts the refusals of a unit's last round among the results that the
// client gives behind it, each before the first result of a later call.
func (e *editor) results(at run, a *answer) (reason string) {
	if len(a.refusals) == 0 {
		return ""
	}
	order, withheld := a.order(), make([]bool, len(a.calls))
	for _, f := range a.refusals {
		withheld[f.Call] = true
	}
	var numbers []int // of the calls that the client gives results for
	for j := at.to; j < len(e.messages) && e.messages[j].role == roleResult; j++ {
		n := order.of(e.b, e.messages[j].answers)
		if n >= 0 && withheld[n] {
			return fmt.Sprintf("its call %d was withheld and has a result all the same", n)
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

// order gives the numbers of a round's calls by their ids.
type order map[string]int

func (a *answer) order() order {
	o := make(order, len(a.calls))
	for i, c := range a.calls {
		if id := rawjson.Text(a.raw, c.id); id != "" {
			o[id] = i
		}
	}
	return o
}

// of gives the number of the call with an id, -1 for a call of no round.
func (o order) of(b []byte, id rawjson.Span) int {
	if i, ok := o[rawjson.Text(b, id)]; ok {
		return i
	}
	return -1
}

// marked gives a round's message with the markers for a cache that the client
// has put on the unit: on the last text where it stood on one, else on the
// message. A marker of a text is left out where the round says nothing.
func (e *editor) marked(at run, a *answer) []byte {
	var onMessage, onText rawjson.Span
	for j := at.from; j < at.to; j++ {
		m := &e.messages[j]
		if mark := rawjson.Get(e.b, m.at, "cache_control"); !rawjson.Null(e.b, mark) {
			onMessage = mark
		}
		if !rawjson.IsArray(e.b, m.content) {
			continue
		}
		for w := rawjson.Open(e.b, m.content); w.Next(); {
			if p := readPart(e.b, w.Val); !rawjson.Null(e.b, p.mark) {
				onText = p.mark
			}
		}
	}
	if !onMessage.There() && !onText.There() {
		return a.raw
	}
	var edits []rawjson.Edit
	if onText.There() {
		member := append([]byte(`,"cache_control":`), onText.In(e.b)...)
		if c := a.m.content; rawjson.IsString(a.raw, c) && c.Len() > 2 {
			text := append([]byte(`[{"type":"text","text":`), c.In(a.raw)...)
			edits = append(edits, rawjson.Edit{At: c, Text: append(append(text, member...), "}]"...)})
		} else if end := lastText(a.raw, c); end > 0 {
			edits = append(edits, rawjson.Insert(end-1, member))
		}
	}
	if onMessage.There() && !rawjson.Get(a.raw, a.m.at, "cache_control").There() {
		edits = append(edits, rawjson.Insert(a.m.at.To-1, append([]byte(`,"cache_control":`), onMessage.In(e.b)...)))
	}
	return rawjson.Apply(nil, a.raw, edits)
}

// lastText gives the end of the last part of a content that is text and has no
// marker, 0 for none.
func lastText(b []byte, content rawjson.Span) (end int) {
	if !rawjson.IsArray(b, content) {
		return 0
	}
	for w := rawjson.Open(b, content); w.Next(); {
		if p := readPart(b, w.Val); rawjson.IsObject(b, w.Val) && p.text.There() {
			if end = w.Val.To; p.mark.There() {
				end = 0
			}
		}
	}
	return end
}

// keep changes a unit whose words stay the client's: notices and thinking are
// taken out of it, withheld calls put in, and rounds before the last one put
// before it without their words.
func (e *editor) keep(at run, rounds []answer, m inspect.Mend) (reason string) {
	var before []byte
	grown := -1 // message that gets calls and had none
	var notes []passage
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
		notes = e.find(at, m.Notices)
	}
	first := -1 // message that stays
	var gone []int
	for j := at.from; j < at.to; j++ {
		msg := &e.messages[j]
		own := 0
		for own < len(notes) && notes[own].message == j {
			own++
		}
		edits, content := e.strip(msg, notes[:own])
		notes = notes[own:]
		if e.unbind {
			edits = append(edits, unbound(e.b, msg)...)
		}
		if len(edits) > 0 {
			calls := rawjson.Nested(e.b, msg.calls) || rawjson.IsObject(e.b, msg.legacy) || grown == j
			if !worth(e.b, msg, content, calls) {
				gone = append(gone, j)
				continue
			}
			e.edits = append(e.edits, edits...)
		}
		if first < 0 {
			first = j
		}
	}
	switch {
	case first >= 0 && len(before) > 0:
		e.edits = append(e.edits, rawjson.Insert(e.messages[first].at.From, append(before, ',')))
	case len(before) > 0:
		e.edit(e.whole(at), before)
		return ""
	}
	for _, j := range gone {
		e.drop(at, j, first < 0 || j < first)
	}
	return ""
}

// whole is where a unit stands.
func (e *editor) whole(at run) rawjson.Span {
	return rawjson.Span{From: e.messages[at.from].at.From, To: e.messages[at.to-1].at.To}
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
	here := make([]bool, len(a.calls))
	for j := at.from; j < at.to; j++ {
		// The walk has read these calls already.
		_ = e.messages[j].eachCall(e.b, func(c entry) {
			n := order.of(e.b, c.id)
			if c.at == e.messages[j].legacy {
				n = slices.IndexFunc(a.calls, func(c entry) bool { return c.at == a.m.legacy })
			} else {
				calls = append(calls, their{c.at, n})
			}
			if n >= 0 {
				here[n] = true
			}
		})
	}
	var list, legacy []byte
	next := 0
	for _, f := range a.refusals {
		c := a.calls[f.Call]
		raw := c.at.In(a.raw)
		if here[f.Call] {
			return -1, fmt.Sprintf("its call %d was withheld and is in the history all the same", f.Call)
		}
		for next < len(calls) && calls[next].n <= f.Call {
			next++
		}
		switch {
		case c.at == a.m.legacy:
			legacy = raw
		case len(calls) == 0:
			list = join(list, raw)
		case next < len(calls):
			e.edits = append(e.edits, rawjson.Insert(calls[next].at.From, append(slices.Clone(raw), ',')))
		default:
			e.edits = append(e.edits, rawjson.Insert(calls[next-1].at.To, append([]byte{','}, raw...)))
		}
	}
	grown = -1
	m := &e.messages[at.to-1]
	if list != nil {
		grown = at.to - 1
		e.member(m, m.calls, "tool_calls", append(append([]byte{'['}, list...), ']'))
	}
	if legacy != nil {
		grown = at.to - 1
		e.member(m, m.legacy, "function_call", legacy)
	}
	return grown, ""
}

// member gives a message a member, in the place of one that is empty or anew.
func (e *editor) member(m *message, old rawjson.Span, key string, value []byte) {
	if old.There() {
		e.edit(old, value)
		return
	}
	text := append([]byte{'"'}, key...)
	text = append(append(append(text, `":`...), value...), ',')
	e.edits = append(e.edits, rawjson.Insert(m.at.From+1, text))
}
