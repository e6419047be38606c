package gemini

import (
	"bytes"
	"slices"

	"callgate/inspect/rawjson"
)

// emit gives a frame out, or what is left of it.
func (t *turn) emit(e *entry, raw []byte) {
	switch e.kind {
	case entryPass:
		t.dst = append(t.dst, raw...)
	case entryEnd:
		if !t.cutting {
			if len(t.owed) > 0 && !t.closed {
				t.say(t.owed, "", false)
				t.owed = nil
			}
			t.passEnd(raw, e.mark)
		}
	case entryFault:
		t.lost++
		e.call.said = true
		env := t.env
		t.env = e.env
		if t.form == formDocument {
			t.say([]string{e.call.refusal()}, "STOP", true)
			t.shown = "STOP"
		} else if !t.closed {
			t.say([]string{e.call.refusal()}, "", false)
		}
		t.env = env
	case entryChunk:
		b := e.at.In(raw)
		t.tail = t.tail || t.cutting && (e.c.finishes || t.form == formDocument)
		if !t.touches(b, e.c) {
			t.show(b, e.c)
			t.pass(raw, e.mark)
			t.closed = t.closed || t.form == formDocument
			return
		}
		data, worth := t.render(b, e.c)
		switch {
		case t.form == formDocument && t.cutting:
			// What it says stands in the document of a later round.
		case worth:
			t.write(data)
		default:
			t.altered = true
		}
	}
}

// touches reports whether a chunk goes out other than it came.
func (t *turn) touches(b []byte, c *chunk) bool {
	if t.rounds > 1 || t.tail || len(c.strays) > 0 || c.logprobs && t.lost > 0 || len(t.owed) > 0 && (c.finishes || t.form == formDocument) {
		return true
	}
	for i := range c.cands {
		k := &c.cands[i]
		for j := range c.parts[k.from:k.to] {
			p := &c.parts[k.from+j]
			switch {
			case p.call == nil:
				if k.lane.gap && p.speaks() {
					return true
				}
			case !p.call.released(), p.call.ruling.Args != nil, k.lane.orphan != nil && !p.signature.There():
				return true
			}
		}
	}
	return false
}

// speaks reports whether the part is a text that a reader sees.
func (p *part) speaks() bool { return !p.thought && p.text.Len() > 2 }

// show notes what the agent sees of a chunk that goes out as it came.
func (t *turn) show(b []byte, c *chunk) {
	for i := range c.cands {
		k := &c.cands[i]
		for j := range c.parts[k.from:k.to] {
			p := &c.parts[k.from+j]
			switch {
			case p.call != nil:
				t.hand(p.call)
			case p.speaks():
				t.saw(k.lane, inner(b, p.text))
			}
		}
		t.shownFinish(b, k)
	}
}

// hand notes that a call is shown.
func (t *turn) hand(k *call) {
	k.given = true
	t.given++
}

func (t *turn) shownFinish(b []byte, k *candidate) {
	if k.lane.n == 0 && !rawjson.Null(b, k.finish) {
		t.shown = word(b, k.finish)
	}
}

// render puts a chunk together anew from what stays in it. worth says that
// anything does.
func (t *turn) render(b []byte, c *chunk) (data []byte, worth bool) {
	for i := range c.parts {
		if k := c.parts[i].call; k != nil && !k.released() {
			t.lost++
		}
	}
	t.lost += len(c.strays)
	loose := t.strayTexts(c, -1)
	var list []byte
	settled := false // the first candidate was met
	for i := range c.cands {
		k := &c.cands[i]
		first := k.lane.n == 0
		var before []byte
		texts := t.strayTexts(c, i)
		if first {
			settled = true
			before, t.carried = t.carried, nil
			texts = append(loose, texts...)
			if !t.tail && (!rawjson.Null(b, k.finish) || t.form == formDocument) {
				texts, t.owed = append(texts, t.owed...), nil
			}
		}
		one, says := t.candidateOf(b, c, k, before, texts)
		worth = worth || says
		list = append(comma(list), one...)
	}
	if rest := t.carried; !settled && (len(loose) > 0 || t.form == formDocument && len(rest)+len(t.owed) > 0) {
		if t.form == formDocument {
			loose = append(loose, t.owed...)
			t.owed, t.carried = nil, nil
		}
		for _, text := range loose {
			rest = t.own(comma(rest), t.lane(0), text)
		}
		list = append(append(append(comma(list), `{"content":{"parts":[`...), rest...), `],"role":"model"},"index":0}`...)
		if t.tail && t.form == formDocument {
			t.carried = rest
		}
		worth = true
	}
	worth = worth || c.broke || c.blocked || t.form == formDocument || !t.tail && len(c.parts) == 0 && c.usage.There()
	o := object{b: b, skip: func(item rawjson.Span) bool { return strayed(c, item) }}
	for w := rawjson.Open(b, c.root); w.Next(); {
		switch key := string(w.Key.In(b)); {
		case key == "candidates":
			if len(list) > 0 {
				o.put(key, append(append([]byte{'['}, list...), ']'))
				list = nil
			}
		case key == "usageMetadata" && t.tail:
		case key == "usageMetadata" && t.rounds > 1 && rawjson.IsObject(b, w.Val):
			o.put(key, t.usageOfTurn(w.Val.In(b)))
		case key == "responseId" && t.rounds > 1:
			if t.env.id != nil {
				o.put(key, t.env.id)
			}
		case key == "modelVersion" && t.rounds > 1:
			o.put(key, t.env.model)
		default:
			o.keep(&w)
		}
	}
	if len(list) > 0 {
		o.put("candidates", append(append([]byte{'['}, list...), ']'))
	}
	if !t.wrapped {
		return o.done(), worth
	}
	outer, placed := object{b: b}, false
	for w := rawjson.Open(b, rawjson.All(b)); w.Next(); {
		if string(w.Key.In(b)) != "response" || c.broke {
			outer.keep(&w)
			continue
		}
		outer.put("response", o.done())
		placed = true
	}
	if !c.broke && !placed {
		outer.put("response", o.done())
	}
	return outer.done(), worth
}

func strayed(c *chunk, item rawjson.Span) bool {
	return slices.ContainsFunc(c.strays, func(s stray) bool { return s.item == item })
}

// strayTexts gives the refusals of members that are none of the format's.
func (t *turn) strayTexts(c *chunk, cand int) (texts []string) {
	for _, s := range c.strays {
		if s.cand == cand {
			s.call.said = true
			texts = append(texts, s.call.refusal())
		}
	}
	return texts
}

// candidateOf puts a candidate together, with parts before its own and texts of
// ours behind them. says says that it is worth a chunk.
func (t *turn) candidateOf(b []byte, c *chunk, k *candidate, before []byte, texts []string) (one []byte, says bool) {
	list, changed, says := t.partsOf(b, c, k, before, t.tail || len(before)+len(texts) > 0)
	for _, text := range texts {
		list, changed, says = t.own(comma(list), k.lane, text), true, true
	}
	finish := !t.tail && !rawjson.Null(b, k.finish)
	says = says || finish
	if t.tail && t.form == formDocument && k.lane.n == 0 {
		t.carried = list
	}
	if len(list) == 0 {
		list = []byte(emptyPart)
	}
	parts := append(append([]byte{'['}, list...), ']')
	skip := func(item rawjson.Span) bool { return strayed(c, item) }
	o := object{b: b, skip: skip}
	placed := false
	for w := rawjson.Open(b, k.at); w.Next(); {
		switch key := string(w.Key.In(b)); {
		case key == "content" && rawjson.IsObject(b, w.Val):
			in := object{b: b, skip: skip}
			for v := rawjson.Open(b, w.Val); v.Next(); {
				switch {
				case string(v.Key.In(b)) != "parts":
					in.keep(&v)
				case changed:
					in.put("parts", parts)
					placed = true
				default:
					in.keep(&v)
				}
			}
			if changed && !placed {
				in.put("parts", parts)
				placed = true
			}
			o.put(key, in.done())
		case key == "content" && changed:
		case t.tail && (key == "finishReason" || key == "finishMessage"):
		case key == "logprobsResult" && t.lost > 0: // the words of a call may stand in it
		default:
			o.keep(&w)
		}
	}
	if changed && !placed {
		o.put("content", append(append([]byte(`{"parts":`), parts...), `,"role":"model"}`...))
	}
	if finish {
		t.shownFinish(b, k)
	}
	return o.done(), says
}

// emptyPart is what the API itself ends streams with. Without any part some
// clients leave the whole answer out of their history.
const emptyPart = `{"text":""}`

// partsOf gives the parts of a candidate that are shown, behind those that stand
// before them. changed says that they are not those that came, says that there
// is more in them than an empty text. With trim those that say nothing go, too:
// some clients take no such part beside others.
func (t *turn) partsOf(b []byte, c *chunk, k *candidate, before []byte, trim bool) (list []byte, changed, says bool) {
	list, changed, says = before, len(before) > 0, len(before) > 0
	l := k.lane
	for j := range c.parts[k.from:k.to] {
		p := &c.parts[k.from+j]
		raw := p.at.In(b)
		switch {
		case p.call == nil && p.speaks():
			at := p.text
			if l.gap {
				raw = slices.Concat(b[p.at.From:at.From+1], []byte(`\n\n`), b[at.From+1:p.at.To])
				l.gap, changed = false, true
			}
			t.saw(l, inner(b, at))
		case p.call == nil && p.plain && p.text.Len() <= 2:
			if trim {
				changed = true
			} else {
				list = append(comma(list), raw...)
			}
			continue
		case p.call == nil:
		case p.call.released():
			one := t.released(b, p, l)
			changed = changed || !bytes.Equal(one, raw)
			raw = one
		default:
			changed = true
			if l.orphan == nil && p.signature.There() {
				l.orphan = bytes.Clone(p.signature.In(b))
			}
			if p.call.silent {
				continue
			}
			p.call.said = true
			list, says = t.own(comma(list), l, p.call.refusal()), true
			continue
		}
		list, says = append(comma(list), raw...), true
	}
	return list, changed, says
}

// released gives the part of a call that is shown, with its new arguments if it
// has any. The signature of a withheld call goes to the next one that has none:
// the provider wants it on the first call of an answer that it gets back.
func (t *turn) released(b []byte, p *part, l *lane) []byte {
	t.hand(p.call)
	args := p.call.ruling.Args
	moved := l.orphan != nil && !p.signature.There()
	if args == nil && !moved {
		return p.at.In(b)
	}
	o := object{b: b}
	for w := rawjson.Open(b, p.at); w.Next(); {
		if args == nil || w.Val != p.inner {
			o.keep(&w)
			continue
		}
		in := object{b: b}
		for v := rawjson.Open(b, w.Val); v.Next(); {
			if string(v.Key.In(b)) != "args" {
				in.keep(&v)
			}
		}
		in.put("args", args)
		o.put("functionCall", in.done())
	}
	if moved {
		o.put("thoughtSignature", l.orphan)
		l.orphan = nil
	}
	return o.done()
}

// object puts an object together from members of another one and new ones.
type object struct {
	b    []byte
	skip func(item rawjson.Span) bool
	out  []byte
}

// keep adds a member as it is written.
func (o *object) keep(w *rawjson.Walk) {
	if o.skip == nil || !o.skip(w.Item) {
		o.out = append(comma(o.out), w.Item.In(o.b)...)
	}
}

// put adds a member with a value of its own.
func (o *object) put(key string, value []byte) {
	o.out = append(append(append(comma(o.out), '"'), key...), `":`...)
	o.out = append(o.out, value...)
}

func (o *object) done() []byte { return append(append([]byte{'{'}, o.out...), '}') }
