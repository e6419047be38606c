package responses

import (
	"bytes"
	"strconv"

	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
)

// place is an item in the list of all items that a response holds.
type place struct {
	at   rawjson.Span
	item *item // that it is a copy of, nil for none
	// differs says that the copy says something else than was judged, and stub
	// that it cannot be read, so that something else stands there; nil with gone
	// for nothing.
	differs, gone bool
	stub          []byte
}

// copies finds for each item in a response the one that the stream has given.
// It gives the first reason why one cannot be passed.
func (t *turn) copies(b []byte, output rawjson.Span) (plan []place, first flaw) {
	type key struct{ typ, id string }
	calls := map[key][]*item{}
	others := map[key][]*item{} // by their own ids, and by their types alone
	for _, it := range t.current() {
		switch {
		case it.fault || it.own != nil && it.call == nil:
		case it.call != nil && it.call.kind.class == callItem:
			k := key{it.typ, it.call.ID}
			calls[k] = append(calls[k], it)
		default:
			k := key{it.typ, it.id}
			others[k] = append(others[k], it)
			if it.id != "" && it.call == nil {
				k.id = ""
				others[k] = append(others[k], it)
			}
		}
	}
	taken := map[*item]bool{}
	take := func(from map[key][]*item, typ, id string) *item {
		k := key{typ, id}
		for list := from[k]; len(list) > 0; list = list[1:] {
			if from[k] = list[1:]; !taken[list[0]] {
				taken[list[0]] = true
				return list[0]
			}
		}
		return nil
	}
	other := func(typ, id string) *item {
		if it := take(others, typ, id); it != nil || id == "" {
			return it
		}
		return take(others, typ, "")
	}
	blame := func(f flaw) {
		if first.reason == "" {
			first = f
		}
	}
	for w := rawjson.Open(b, output); w.Next(); {
		r := readItem(b, w.Val, t.tools)
		p := place{at: w.Val}
		switch r.kind.class {
		case callItem, otherItem:
			c := &call{kind: r.kind}
			if rawjson.IsObject(b, w.Val) {
				c.identify(b, w.Val)
			}
			if it := take(calls, r.typ, c.ID); it != nil {
				p.item = it
				judged := it.call
				p.differs = judged.sound() && (r.flaw.reason != "" || c.Fault != 0 || !t.same(judged, c, b, w.Val))
			} else if it := other(r.typ, r.id); it != nil && it.call != nil {
				p.item = it // it is withheld
			} else if it != nil {
				// One that went by and says something else now.
				p.item, p.stub, p.gone = it, stub(r.typ, r.id), true
				blame(r.flaw)
			} else {
				p.gone = true
				blame(ambiguous("an item of type " + strconv.Quote(r.typ) + " stands in the response that ends the stream, and nowhere before"))
			}
			if p.differs {
				blame(ambiguous("the response that ends the stream says something else of a call than was said before"))
			}
		default:
			p.item = other(r.typ, r.id)
			if r.flaw.reason != "" && (p.item == nil || p.item.call == nil) {
				blame(r.flaw)
				p.stub, p.gone = stub(r.typ, r.id), true
			}
		}
		plan = append(plan, p)
	}
	return plan, first
}

// same reports whether a further copy of a call says what was judged.
func (t *turn) same(judged, c *call, b []byte, at rawjson.Span) bool {
	args, f := argsOf(b, at, c.kind, t.lim.Depth)
	if f.reason != "" || judged.Name != c.Name || judged.Text != c.Text || judged.member != argMember(b, at, c.kind) {
		return false
	}
	if c.kind.form == jsonText && len(bytes.TrimLeft(args, " \t\r\n")) == 0 {
		args = []byte("{}")
	}
	return bytes.Equal(judged.Args, args)
}

// stub stands in place of an item that went by and cannot be read at its end,
// nil for nothing.
func stub(typ, id string) []byte {
	m := appendString([]byte(`{"type":"`+typ+`","id":`), id)
	switch typ {
	case "message":
		return append(m, `,"status":"completed","role":"assistant","content":[]}`...)
	case "reasoning":
		return append(m, `,"summary":[]}`...)
	}
	return nil
}

// output gives the list of all items of the turn, as the agent may see it.
// changed is false when it is the one that the response holds.
func (t *turn) output(b []byte, plan []place) (list []byte, changed bool) {
	list = []byte{'['}
	add := func(raw []byte) { list = append(comma(list, 1), raw...) }
	for _, it := range t.list[:t.begun] {
		if raw := it.shownRaw(); raw != nil {
			add(raw)
		}
	}
	changed = t.begun > 0
	held := map[*item]bool{}
	for _, p := range plan {
		if p.item != nil {
			held[p.item] = true
		}
	}
	cur, next := t.current(), 0
	own := func(upTo int) { // messages of ours before an item
		for ; next < upTo; next++ {
			if it := cur[next]; it.own != nil && !held[it] {
				add(it.own)
				changed = true
			}
		}
	}
	pos := make(map[*item]int, len(cur))
	for i, it := range cur {
		pos[it] = i
	}
	for _, p := range plan {
		if p.item != nil {
			own(pos[p.item])
		}
		raw := p.at.In(b)
		switch it := p.item; {
		case p.gone:
			raw = p.stub
			changed = true
		case it == nil || it.call == nil:
		case it.own != nil:
			raw, changed = it.own, true
		case !it.call.given:
			raw, changed = nil, true
		case p.differs:
			raw, changed = it.shownRaw(), true
		case it.call.edited():
			raw, changed = it.call.withArgs(raw), true
		}
		if raw != nil {
			add(raw)
		}
	}
	own(len(cur))
	return append(list, ']'), changed
}

// response gives the changes to a response that ends the turn, so that it tells
// of all of the turn. The response of a later round becomes that of the first.
func (t *turn) response(b []byte, obj rawjson.Span, plan []place) []rawjson.Edit {
	p := patch{b: b, obj: obj}
	output := rawjson.Get(b, obj, "output")
	list, changed := t.output(b, plan)
	if changed && (t.rounds > 1 || rawjson.IsArray(b, output)) {
		p.set("output", list)
	}
	if t.rounds > 1 {
		for _, key := range [...]string{"id", "created_at", "previous_response_id", "tool_choice"} {
			was := rawjson.Get(t.base, rawjson.All(t.base), key)
			if now := rawjson.Get(b, obj, key); was.There() && !bytes.Equal(now.In(b), was.In(t.base)) {
				p.set(key, was.In(t.base))
			}
		}
		if !rawjson.Null(b, rawjson.Get(b, obj, "usage")) {
			p.set("usage", t.merged())
		}
	}
	return p.all()
}

// ending gives a whole response in place of one that the provider did not
// finish: what was given out, with the status and error.
func (t *turn) ending(status string, failure []byte) []byte {
	base := t.base
	if len(base) == 0 {
		base = []byte(`{"id":"resp_callgate","object":"response","created_at":0,"status":"completed","error":null,"incomplete_details":null,` +
			`"instructions":null,"metadata":{},"model":` + string(appendString(nil, t.model)) + `,"output":[],"parallel_tool_calls":true,` +
			`"temperature":null,"tool_choice":"auto","tools":[],"top_p":null,"usage":null}`)
	}
	p := patch{b: base, obj: rawjson.All(base)}
	p.set("status", []byte(`"`+status+`"`))
	p.set("output", t.visible())
	if status == "failed" || !rawjson.Null(base, rawjson.Get(base, p.obj, "error")) {
		p.set("error", failure)
	}
	if !rawjson.Null(base, rawjson.Get(base, p.obj, "incomplete_details")) {
		p.set("incomplete_details", []byte("null"))
	}
	p.set("usage", t.merged())
	return p.append(nil)
}

// failure is the error of a response that failed by our doing. The code is one
// of those that the API knows and that clients do not try again on.
func failure(text string) []byte {
	e := appendString([]byte(`{"code":"invalid_prompt","message":`), text)
	return append(e, '}')
}

// finishOf gives how a response ended.
func finishOf(b []byte, obj rawjson.Span) string {
	status := rawjson.Text(b, rawjson.Get(b, obj, "status"))
	if status == "incomplete" {
		if reason := rawjson.Text(b, rawjson.Get(b, rawjson.Get(b, obj, "incomplete_details"), "reason")); reason != "" {
			return reason
		}
	}
	if status == "" {
		return "completed"
	}
	return status
}

// strict checks that all readers read a JSON text alike.
func (t *turn) strict(b []byte) error {
	return strictjson.Object(b, strictjson.Options{Depth: t.lim.Depth, Surrogates: true})
}
