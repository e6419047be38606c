package gemini

import (
	"fmt"
	"slices"
	"strings"

	"callgate/inspect"
	"callgate/inspect/rawjson"
)

// pastRound is a round as it is put into a history.
type pastRound struct {
	b        []byte // its message
	parts    []pastPart
	made     []int // the parts that are calls
	refusals []inspect.Refusal
	refused  map[int]bool // calls by their number
	plain    bool         // thoughts without a signature are left out
}

// standing gives those of the rounds of which something can stand in a history.
// All but the last must be answered by refusals alone.
func standing(where string, rounds []inspect.Round, plain bool) (list []pastRound, err error) {
	for n, r := range rounds {
		at := fmt.Sprintf("%s, round %d", where, n+1)
		if len(r.Message) == 0 {
			if len(r.Calls)+len(r.Refusals) > 0 {
				return nil, failure(at, "it has calls and no message", nil)
			}
			continue
		}
		p := pastRound{b: r.Message, refusals: inOrder(r.Refusals), refused: map[int]bool{}, plain: plain}
		c, ids, err := readContent(p.b, rawjson.All(p.b))
		if err != nil {
			return nil, failure(at, "its message cannot be read", err)
		}
		if c.by != byModel || !slices.Equal(ids, r.Calls) {
			return nil, failure(at, "its message is not the one that its calls are from", nil)
		}
		for _, part := range partsOf(p.b, c.parts) {
			if plain && part.kind == pastText && part.thought && rawjson.Null(p.b, part.signature) {
				continue
			}
			if part.kind == pastCall {
				p.made = append(p.made, len(p.parts))
			}
			p.parts = append(p.parts, part)
		}
		for _, f := range p.refusals {
			if f.Call < 0 || f.Call >= len(p.made) || p.refused[f.Call] {
				return nil, failure(at, fmt.Sprintf("a refusal answers call %d of %d, or does so twice", f.Call+1, len(p.made)), nil)
			}
			p.refused[f.Call] = true
		}
		if len(p.parts) > 0 {
			list = append(list, p)
		}
	}
	for n := range list {
		if p := &list[n]; n < len(list)-1 && (len(p.made) == 0 || len(p.refusals) != len(p.made)) {
			return nil, failure(where, fmt.Sprintf("a round with %d calls and %d refusals cannot stand before another", len(p.made), len(p.refusals)), nil)
		}
	}
	return list, nil
}

// inOrder gives the refusals in the order of their calls.
func inOrder(list []inspect.Refusal) []inspect.Refusal {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(x, y inspect.Refusal) int { return x.Call - y.Call })
	return list
}

// call gives the part of call n.
func (p *pastRound) call(n int) *pastPart { return &p.parts[p.made[n]] }

// append adds the round as a content. ids are those that the client has given to
// the calls that it was shown, by their number: a call has the id that its result
// names.
func (p *pastRound) append(dst []byte, ids map[int]string) []byte {
	return append(p.appendParts(append(dst, `{"role":"model","parts":[`...), ids), "]}"...)
}

func (p *pastRound) appendParts(dst []byte, ids map[int]string) []byte {
	n := 0
	for k := range p.parts {
		part := &p.parts[k]
		if k > 0 {
			dst = append(dst, ',')
		}
		id := ""
		if part.kind == pastCall {
			id = ids[n]
			n++
		}
		if id == "" || part.id != "" {
			dst = append(dst, part.at.In(p.b)...)
			continue
		}
		o := object{b: p.b}
		for w := rawjson.Open(p.b, part.at); w.Next(); {
			if w.Val != part.inner {
				o.keep(&w)
				continue
			}
			in := object{b: p.b}
			in.put("id", quoted(id))
			for v := rawjson.Open(p.b, w.Val); v.Next(); {
				if !v.Is("id") {
					in.keep(&v)
				}
			}
			o.put("functionCall", in.done())
		}
		dst = append(dst, o.done()...)
	}
	return dst
}

// appendCalls adds a content with the round's calls alone.
func (p *pastRound) appendCalls(dst []byte) []byte {
	dst = append(dst, `{"role":"model","parts":[`...)
	for k, n := range p.made {
		if k > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, p.parts[n].at.In(p.b)...)
	}
	return append(dst, "]}"...)
}

// appendRefused adds a content with the round's refusals.
func (p *pastRound) appendRefused(dst []byte) []byte {
	dst = append(dst, `{"role":"user","parts":[`...)
	for k, f := range p.refusals {
		if k > 0 {
			dst = append(dst, ',')
		}
		dst = p.appendRefusal(dst, f)
	}
	return append(dst, "]}"...)
}

// appendRefusal adds the result of a call that did not run, under the key that
// the API has for errors. It names the call as the call names itself.
func (p *pastRound) appendRefusal(dst []byte, f inspect.Refusal) []byte {
	text := f.Text
	if strings.TrimSpace(text) == "" {
		text = inspect.NoReason
	}
	k := p.call(f.Call)
	dst = append(dst, `{"functionResponse":{`...)
	if k.id != "" {
		dst = append(append(append(dst, `"id":`...), quoted(k.id)...), ',')
	}
	dst = append(append(dst, `"name":`...), quoted(k.name)...)
	return append(append(append(dst, `,"response":{"error":`...), quoted(text)...), "}}}"...)
}

// matched gives for each of a client's calls or results, by id or by name and
// order, the number of the round's call that it is, -1 for none. Withheld calls
// are nobody's.
func (p *pastRound) matched(theirs []pastPart) []int {
	numbers := make([]int, len(theirs))
	taken := make([]bool, len(p.made))
	find := func(fits func(own *pastPart) bool) int {
		for n := range p.made {
			if !taken[n] && !p.refused[n] && fits(p.call(n)) {
				taken[n] = true
				return n
			}
		}
		return -1
	}
	for k := range theirs {
		their := &theirs[k]
		numbers[k] = -1
		if their.id != "" {
			numbers[k] = find(func(own *pastPart) bool { return own.id == their.id })
		}
	}
	for k := range theirs {
		their := &theirs[k]
		if numbers[k] < 0 {
			numbers[k] = find(func(own *pastPart) bool { return own.name == their.name && (own.id == "" || their.id == "") })
		}
	}
	return numbers
}
