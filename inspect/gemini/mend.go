package gemini

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
)

// nothingSaid stands in an answer of which nothing else would be left: the
// provider takes no content without parts, and roles must take turns.
const nothingSaid = `{"text":"(nothing said)"}`

// unsigned stands for a signature that is lost: the API takes this word for one
// that it need not look at.
const unsigned = `"skip_thought_signature_validator"`

// mending collects the changes of one Edit.
type mending struct {
	h     *conversation
	edits []rawjson.Edit
}

// Edit changes the units of mends.
//
// Clients trim thoughts that have no signature. Of a unit that shows none the
// rounds are put back without theirs, too.
func (h *conversation) Edit(dst []byte, mends map[int]inspect.Mend) ([]byte, error) {
	if len(mends) == 0 {
		return append(dst, h.b...), nil
	}
	for i := range mends {
		if i < 0 || i >= len(h.units) {
			return dst, failure("contents", fmt.Sprintf("there is no answer %d among the %d in the history", i, len(h.units)), nil)
		}
	}
	if !rawjson.IsArray(h.b, h.top.contents) {
		return dst, failure("contents", "they are no list", nil)
	}
	e := mending{h: h}
	unbound := false
	for i := range h.units {
		m, ok := mends[i]
		if unbound = unbound || m.Unbind; !ok && !unbound {
			continue
		}
		if err := e.unit(i, m, unbound); err != nil {
			return dst, err
		}
	}
	return rawjson.Apply(dst, h.b, e.edits), nil
}

func (e *mending) unit(i int, m inspect.Mend, unbound bool) error {
	h, r := e.h, e.h.runs[i]
	said := h.said[r.from:r.to]
	plain := true
	for _, c := range said {
		plain = plain && !c.thinks
	}
	list, err := standing("contents."+strconv.Itoa(r.from), m.Rounds, plain || unbound)
	if err != nil {
		return err
	}
	if unbound {
		for k := range list {
			list[k].unbind()
		}
	}
	var own ownWords
	own.read(h.b, said)
	var last *pastRound
	var ids map[int]string
	if n := len(list); n > 0 {
		last = &list[n-1]
		own.numbers = last.matched(own.made())
		ids = own.ids()
	}
	var text []byte
	add := func(content []byte) { text = append(comma(text), content...) }
	switch {
	case last == nil || m.Edited:
		if m.Edited {
			own.cutNotices(m.Notices)
		}
		for k := range max(len(list)-1, 0) {
			add(list[k].appendCalls(nil))
			add(list[k].appendRefused(nil))
		}
		if last != nil {
			own.place(last)
		}
		if unbound {
			own.unbind()
		}
		if len(text) == 0 && !own.changed() {
			break // every byte of it stands as it did
		}
		for _, content := range own.contents() {
			add(content)
		}
	default:
		for k := range list {
			if p := &list[k]; p != last {
				add(p.append(nil, nil))
				add(p.appendRefused(nil))
			}
		}
		add(last.append(nil, ids))
	}
	if text != nil {
		e.edits = append(e.edits, rawjson.Edit{At: rawjson.Span{From: said[0].at.From, To: said[len(said)-1].at.To}, Text: text})
	}
	if last != nil {
		e.refuse(r.to, last, &own)
	}
	return nil
}

// refuse puts refusals among the results that stand behind a unit, each before
// the first result whose call comes later, else behind the last one. Without
// results they get a content of their own.
func (e *mending) refuse(from int, p *pastRound, own *ownWords) {
	if len(p.refusals) == 0 {
		return
	}
	h := e.h
	var results []pastPart
	for k := from; k < len(h.said) && h.said[k].by == byUser && (h.said[k].results || k == from); k++ {
		for _, part := range partsOf(h.b, h.said[k].parts) {
			if part.kind == pastResult {
				results = append(results, part)
			}
		}
	}
	if len(results) == 0 {
		e.edits = append(e.edits, rawjson.Insert(h.said[from-1].at.To, p.appendRefused([]byte{','})))
		return
	}
	numbers := own.answered(p, results)
	k := 0 // the first result whose call comes later: refusals are in order
	for _, f := range p.refusals {
		text := p.appendRefusal(nil, f)
		for k < len(results) && numbers[k] <= f.Call {
			k++
		}
		if k < len(results) {
			e.edits = append(e.edits, rawjson.Insert(results[k].at.From, append(text, ',')))
		} else {
			e.edits = append(e.edits, rawjson.Insert(results[len(results)-1].at.To, append([]byte{','}, text...)))
		}
	}
}

// ownWords is an answer with the client's own words.
type ownWords struct {
	b       []byte
	said    []pastContent
	slots   [][]slot // of each content
	tail    [][]byte // calls that stand behind all else
	numbers []int    // of the client's calls in the last round
}

// slot is a part of the client's with what becomes of it.
type slot struct {
	pastPart
	before, behind [][]byte // calls that are put in
	raw            []byte   // the part in its place, nil for as it is
	gone           bool
}

func (o *ownWords) read(b []byte, said []pastContent) {
	o.b, o.said = b, said
	for _, c := range said {
		var list []slot
		for _, p := range partsOf(b, c.parts) {
			list = append(list, slot{pastPart: p})
		}
		o.slots = append(o.slots, list)
	}
}

// each calls do for every part.
func (o *ownWords) each(do func(s *slot)) {
	for i := range o.slots {
		for j := range o.slots[i] {
			do(&o.slots[i][j])
		}
	}
}

// made gives the client's calls.
func (o *ownWords) made() (list []pastPart) {
	o.each(func(s *slot) {
		if s.kind == pastCall {
			list = append(list, s.pastPart)
		}
	})
	return list
}

// ids gives the ids that the client has given to the round's calls.
func (o *ownWords) ids() map[int]string {
	ids := map[int]string{}
	for k, p := range o.made() {
		if n := o.numbers[k]; n >= 0 {
			ids[n] = p.id
		}
	}
	return ids
}

// answered gives for results the numbers of their calls in the round: by the id
// that the client has given the call, else by name and order.
func (o *ownWords) answered(p *pastRound, results []pastPart) []int {
	byID := map[string]int{}
	for n, id := range o.ids() {
		if id != "" {
			byID[id] = n
		}
	}
	numbers := p.matched(results)
	for k := range results {
		if n, ok := byID[results[k].id]; ok {
			numbers[k] = n
		}
	}
	return numbers
}

// place gives each withheld call of a round its place among the client's calls.
// A signature that was moved to a later call goes back.
func (o *ownWords) place(p *pastRound) {
	var theirs []*slot
	o.each(func(s *slot) {
		if s.kind == pastCall {
			theirs = append(theirs, s)
		}
	})
	k := 0 // the first call that comes later: refusals are in order
	for _, f := range p.refusals {
		part := p.call(f.Call)
		raw := part.at.In(p.b)
		for k < len(theirs) && o.numbers[k] <= f.Call {
			k++
		}
		switch {
		case k < len(theirs):
			theirs[k].before = append(theirs[k].before, raw)
		case k > 0:
			theirs[k-1].behind = append(theirs[k-1].behind, raw)
		default:
			o.tail = append(o.tail, raw)
		}
		if !part.signature.There() {
			continue
		}
		for n, s := range theirs {
			own := o.numbers[n]
			if own >= 0 && !p.call(own).signature.There() && bytes.Equal(s.signature.In(o.b), part.signature.In(p.b)) {
				s.raw = without(o.b, s.at, s.signature)
			}
		}
	}
}

// without gives an object without the member that has that value.
func without(b []byte, at, value rawjson.Span) []byte {
	o := object{b: b}
	for w := rawjson.Open(b, at); w.Next(); {
		if w.Val != value {
			o.keep(&w)
		}
	}
	return o.done()
}

// unbind takes thoughts and signatures out.
func (o *ownWords) unbind() {
	o.each(func(s *slot) {
		switch {
		case s.kind == pastText && s.thought:
			s.gone = true
		case s.signature.There() && s.raw == nil:
			s.raw = unsign(o.b, &s.pastPart)
		}
	})
}

// unbind takes the signatures out of a round.
func (p *pastRound) unbind() {
	o := object{b: p.b}
	var parts []byte
	for k := range p.parts {
		part := &p.parts[k]
		raw := part.at.In(p.b)
		if part.signature.There() {
			raw = unsign(p.b, part)
		}
		parts = append(comma(parts), raw...)
	}
	o.put("role", []byte(`"model"`))
	o.put("parts", append(append([]byte{'['}, parts...), ']'))
	p.b = o.done()
	p.parts, p.made = partsOf(p.b, rawjson.Get(p.b, rawjson.All(p.b), "parts")), nil
	for k := range p.parts {
		if p.parts[k].kind == pastCall {
			p.made = append(p.made, k)
		}
	}
}

// unsign gives a part without its signature. A call keeps a word in its place.
func unsign(b []byte, p *pastPart) []byte {
	if p.kind != pastCall {
		raw := without(b, p.at, p.signature)
		if string(raw) == "{}" {
			return []byte(emptyPart)
		}
		return raw
	}
	return slices.Concat(b[p.at.From:p.signature.From], []byte(unsigned), b[p.signature.To:p.at.To])
}

func (s *slot) altered() bool {
	return s.gone || s.raw != nil || len(s.before)+len(s.behind) > 0
}

func (o *ownWords) changed() bool {
	changed := len(o.tail) > 0
	o.each(func(s *slot) { changed = changed || s.altered() })
	return changed
}

// contents gives the contents of the answer as they are now.
func (o *ownWords) contents() (list [][]byte) {
	for i, c := range o.said {
		last := i == len(o.said)-1
		touched := last && len(o.tail) > 0
		for j := range o.slots[i] {
			touched = touched || o.slots[i][j].altered()
		}
		if !touched {
			list = append(list, c.at.In(o.b))
			continue
		}
		var parts []byte
		add := func(raws ...[]byte) {
			for _, raw := range raws {
				parts = append(comma(parts), raw...)
			}
		}
		for j := range o.slots[i] {
			s := &o.slots[i][j]
			add(s.before...)
			switch {
			case s.gone:
			case s.raw != nil:
				add(s.raw)
			default:
				add(s.at.In(o.b))
			}
			add(s.behind...)
		}
		if last {
			add(o.tail...)
		}
		if len(parts) == 0 {
			if !last || len(list) > 0 {
				continue // another content of the answer is left, or may be
			}
			parts = []byte(nothingSaid)
		}
		in := object{b: o.b}
		placed := false
		for w := rawjson.Open(o.b, c.at); w.Next(); {
			if !w.Is("parts") {
				in.keep(&w)
				continue
			}
			in.put("parts", append(append([]byte{'['}, parts...), ']'))
			placed = true
		}
		if !placed {
			in.put("parts", append(append([]byte{'['}, parts...), ']'))
		}
		list = append(list, in.done())
	}
	return list
}

// cutNotices takes out each notice once, in the order in which they were shown.
func (o *ownWords) cutNotices(notices []string) {
	var texts []*slot
	var plain [][]byte
	o.each(func(s *slot) {
		if s.kind == pastText && !s.thought {
			texts = append(texts, s)
			plain = append(plain, strictjson.AppendString(nil, s.text.In(o.b)))
		}
	})
	at, from := 0, 0 // the text looked into, and where in it
	for _, notice := range notices {
		start := from
		for k := at; k < len(texts) && notice != ""; k, start = k+1, 0 {
			n := bytes.Index(plain[k][start:], []byte(notice))
			if n < 0 {
				continue
			}
			// Cut right away: the next one is looked for where this one stood.
			plain[k] = append(plain[k][:start+n], plain[k][start+n+len(notice):]...)
			at, from = k, start+n
			s := texts[k]
			if s.gone = len(bytes.TrimSpace(plain[k])) == 0 && !s.signature.There(); !s.gone {
				s.raw = slices.Concat(o.b[s.at.From:s.text.From], quoted(string(plain[k])), o.b[s.text.To:s.at.To])
			}
			break
		}
	}
}
