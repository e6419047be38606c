package responses

import (
	"fmt"
	"slices"

	"callgate/inspect"
	"callgate/inspect/rawjson"
)

// Edit changes the units of mends.
func (h *conversation) Edit(dst []byte, mends map[int]inspect.Mend) ([]byte, error) {
	if len(mends) == 0 {
		return append(dst, h.b...), nil
	}
	for i := range mends {
		if i < 0 || i >= len(h.units) {
			return dst, unmended("input", fmt.Sprintf("there is no answer %d among the %d in the history", i, len(h.units)))
		}
	}
	e := mending{h: h}
	for i := range h.units {
		m, ok := mends[i]
		e.unbound = e.unbound || m.Unbind
		if !ok && !e.unbound {
			continue
		}
		if err := e.unit(i, m); err != nil {
			return dst, err
		}
	}
	return rawjson.Apply(dst, h.b, e.edits), nil
}

// mending collects the changes of one Edit.
type mending struct {
	h     *conversation
	edits []rawjson.Edit
	// unbound says that reasoning is taken out of all units from here on.
	unbound bool
}

// keeps reports whether reasoning can stand in the history.
func (e *mending) keeps(b []byte, at rawjson.Span) bool {
	if e.unbound {
		return false
	}
	return e.h.top.stored || rawjson.Text(b, rawjson.Get(b, at, "encrypted_content")) != ""
}

func (e *mending) unit(i int, m inspect.Mend) error {
	h, r := e.h, e.h.runs[i]
	if h.units[i].Answer != "" || h.units[i].Held {
		return e.held(m)
	}
	where := "input." + fmt.Sprint(r.from)
	rounds, err := standing(where, m.Rounds, e.keeps)
	if err != nil {
		return err
	}
	n := len(rounds)
	switch {
	case n == 0 || m.Edited:
		e.own(r, m, rounds)
	default:
		var text []byte
		for _, round := range rounds[:n-1] {
			text = round.appendRefused(round.append(text))
		}
		e.replace(r, rounds[n-1].append(text))
	}
	if n > 0 {
		e.refuse(r.to, &rounds[n-1])
	}
	return nil
}

// replace puts a text in the place of a unit.
func (e *mending) replace(r run, text []byte) {
	said := e.h.said
	e.edits = append(e.edits, rawjson.Edit{At: rawjson.Span{From: said[r.from].at.From, To: said[r.to-1].at.To}, Text: text})
}

// held changes an answer that the provider holds: the request names the last
// round of it, or goes on with the conversation as it is, and its refusals are
// put among the results.
func (e *mending) held(m inspect.Mend) error {
	h := e.h
	for n := len(m.Rounds) - 1; n >= 0; n-- {
		r := m.Rounds[n]
		if r.ID == "" && len(r.Calls) == 0 {
			continue // it was cut off before the provider had an answer to hold
		}
		named := !rawjson.Null(h.b, h.top.previous)
		if named && r.ID == "" {
			return unmended("previous_response_id", "the provider's id of the last answer is not known; the conversation has to be begun anew")
		}
		if err := sound("previous_response_id", r); err != nil {
			return err
		}
		if named {
			e.edits = append(e.edits, rawjson.Edit{At: h.top.previous, Text: appendString(nil, r.ID)})
		}
		e.refuse(0, heldRound(r))
		return nil
	}
	return nil
}

// refuse puts the refusals of a round among the results that begin at item
// from: each before the first result whose call comes later, else behind the
// last.
func (e *mending) refuse(from int, p *pastRound) {
	h := e.h
	if len(p.refusals) == 0 {
		return
	}
	if h.text.There() {
		text := append(p.appendRefused(nil), ',')
		text = userItem(text, h.text.In(h.b))
		e.edits = append(e.edits, rawjson.Edit{At: h.text, Text: append(append([]byte{'['}, text...), ']')})
		return
	}
	place := make(map[string]int, len(p.calls))
	for k, id := range p.calls {
		place[id] = k
	}
	var results []pastItem
	for _, it := range h.said[from:] {
		if it.by != byResult {
			break
		}
		results = append(results, it)
	}
	var front []byte
	k := 0 // the first result whose call comes later: refusals are in order
	later := func(it *pastItem, call int) bool {
		at, ok := place[it.id]
		return ok && at > call
	}
	for _, f := range p.refusals {
		text := p.refusal(f)
		for k < len(results) && !later(&results[k], f.Call) {
			k++
		}
		switch {
		case k < len(results):
			e.edits = append(e.edits, rawjson.Insert(results[k].at.From, append(text, ',')))
		case len(results) > 0:
			e.edits = append(e.edits, rawjson.Insert(results[len(results)-1].at.To, append([]byte{','}, text...)))
		default:
			front = append(comma(front, 0), text...)
		}
	}
	if front == nil {
		return
	}
	switch {
	case from > 0:
		e.edits = append(e.edits, rawjson.Insert(h.said[from-1].at.To, append([]byte{','}, front...)))
	case len(h.said) > 0:
		e.edits = append(e.edits, rawjson.Insert(h.said[0].at.From, append(front, ',')))
	case h.top.input.There():
		e.edits = append(e.edits, rawjson.Insert(h.top.input.From+1, front))
	default:
		p := patch{b: h.b, obj: rawjson.All(h.b)}
		p.set("input", append(append([]byte{'['}, front...), ']'))
		e.edits = append(e.edits, p.all()...)
	}
}

// own changes a unit whose words stay the client's: notices and reasoning are
// taken out of it, withheld calls put in, and rounds before the last one put
// before it without their words.
func (e *mending) own(r run, m inspect.Mend, rounds []pastRound) {
	h := e.h
	list := make([]slot, 0, r.to-r.from)
	for _, it := range h.said[r.from:r.to] {
		list = append(list, slot{pastItem: it, raw: it.at.In(h.b), gone: e.unbound && it.typ == "reasoning" || it.ours})
	}
	if e.unbound && slices.ContainsFunc(list, func(s slot) bool { return s.gone && !s.ours }) {
		for k := range list { // ids would ask for the reasoning
			if s := &list[k]; !s.gone && s.typ != "item_reference" && s.typ != "mcp_approval_request" {
				s.raw = without(s.raw, "id")
				s.changed = true
			}
		}
	}
	var before, tail []byte
	if n := len(rounds); n > 0 && m.Edited {
		for _, round := range rounds[:n-1] {
			before = round.appendRefused(round.appendUses(before))
		}
		tail = rounds[n-1].putCalls(list)
	}
	if m.Edited {
		cutNotices(list, m.Notices)
	}
	if m.Edited || slices.ContainsFunc(list, func(s slot) bool { return s.ours }) {
		dropLone(list, len(tail) > 0)
	}
	changed := len(before) > 0 || len(tail) > 0
	text, kept := before, 0
	for k := range list {
		s := &list[k]
		changed = changed || s.gone || s.changed || s.before != nil || s.behind != nil
		for _, raw := range [...][]byte{s.before, s.raw, s.behind} {
			if raw != nil && !(s.gone && &raw[0] == &s.raw[0]) {
				text = append(comma(text, 0), raw...)
				kept++
			}
		}
	}
	if len(tail) > 0 {
		text = append(comma(text, 0), tail...)
	}
	switch {
	case !changed: // every byte of it stands as it did
	case len(text) == 0:
		e.replace(r, []byte(nothingSaid))
	default:
		e.replace(r, text)
	}
}

// dropLone takes out reasoning behind which nothing of the answer is left:
// providers take none. tail says that calls are put in behind the list.
func dropLone(list []slot, tail bool) {
	follows := tail
	for k := len(list) - 1; k >= 0; k-- {
		s := &list[k]
		switch {
		case s.typ == "reasoning" && !follows && s.behind == nil:
			s.gone = true
		case !s.gone && s.typ != "reasoning":
			follows = true
		case !s.gone:
			follows = false // it is another's
		}
		follows = follows || s.before != nil
	}
}

// nothingSaid stands for an answer of which nothing would be left.
const nothingSaid = `{"role":"assistant","content":"(nothing said)"}`

// slot is an item of the client's with what becomes of it.
type slot struct {
	pastItem
	raw            []byte
	before, behind []byte // calls that are put in
	changed, gone  bool
}

// putCalls gives each withheld call its place among the client's calls, and
// returns those that stand behind all else.
func (p *pastRound) putCalls(list []slot) (tail []byte) {
	place := make(map[string]int, len(p.calls))
	for k, id := range p.calls {
		place[id] = k
	}
	var calls []*slot
	for k := range list {
		if isCall(list[k].typ) {
			calls = append(calls, &list[k])
		}
	}
	k := 0 // the first call that comes later: refusals are in order
	for _, f := range p.refusals {
		raw := p.use(f.Call)
		for k < len(calls) {
			if at, ok := place[calls[k].id]; ok && at > f.Call {
				break
			}
			k++
		}
		switch {
		case k < len(calls):
			calls[k].before = append(comma(calls[k].before, 0), raw...)
		case k > 0:
			calls[k-1].behind = append(comma(calls[k-1].behind, 0), raw...)
		default:
			tail = append(comma(tail, 0), raw...)
		}
	}
	return tail
}

// heldRound is a round that the provider holds, of whose calls more may be known
// than its items show: a call that is not among them is taken for one of a
// function.
func heldRound(r inspect.Round) *pastRound {
	p := &pastRound{b: r.Message, calls: r.Calls, refusals: inOrder(r.Refusals)}
	known := map[string]pastItem{}
	for _, at := range spansOf(p.b, rawjson.Get(p.b, rawjson.All(p.b), "output")) {
		if it, err := readPast(p.b, at, ""); err == nil && isCall(it.typ) {
			known[it.id] = it
		}
	}
	for _, id := range r.Calls {
		it, ok := known[id]
		if !ok {
			it = pastItem{typ: "function_call", id: id}
		}
		p.uses = append(p.uses, it)
	}
	return p
}
