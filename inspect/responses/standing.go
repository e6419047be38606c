package responses

import (
	"fmt"
	"slices"

	"callgate/inspect"
	"callgate/inspect/rawjson"
)

// pastRound is a round as it is put into a history.
type pastRound struct {
	b        []byte
	items    []pastItem // that stand
	bare     bool       // reasoning was left out, and with it the ids of what it belonged to
	uses     []pastItem // its calls
	calls    []string
	refusals []inspect.Refusal
}

// standing gives those of the rounds of which something can stand in a
// history. All but the last must be answered by refusals alone. Reasoning
// stands where keeps says so.
func standing(where string, rounds []inspect.Round, keeps func(b []byte, at rawjson.Span) bool) (list []pastRound, err error) {
	for n, r := range rounds {
		at := fmt.Sprintf("%s, round %d", where, n+1)
		if err := sound(at, r); err != nil {
			return nil, err
		}
		if len(r.Message) == 0 {
			if len(r.Calls) > 0 {
				return nil, unmended(at, "it has calls and no items")
			}
			continue
		}
		p := pastRound{b: r.Message, calls: r.Calls, refusals: inOrder(r.Refusals)}
		var ids []string
		output := rawjson.Get(p.b, rawjson.All(p.b), "output")
		w := rawjson.Open(p.b, output)
		for w.Next() {
			it, err := readPast(p.b, w.Val, at)
			if err != nil {
				return nil, err
			}
			if it.typ == "reasoning" && !keeps(p.b, it.at) {
				p.bare = true
				continue
			}
			if isCall(it.typ) {
				ids = append(ids, it.id)
				p.uses = append(p.uses, it)
			}
			p.items = append(p.items, it)
		}
		if w.Bad() || rawjson.Space(p.b, w.At()) != len(p.b)-1 {
			return nil, unmended(at, "its items are no JSON")
		}
		if !slices.Equal(ids, r.Calls) {
			return nil, unmended(at, "its items are not those that its calls are from")
		}
		if len(p.items) > 0 {
			list = append(list, p)
		}
	}
	for n, p := range list {
		if n < len(list)-1 && (len(p.calls) == 0 || len(p.refusals) != len(p.calls)) {
			return nil, unmended(where, fmt.Sprintf("a round with %d calls and %d refusals cannot stand before another", len(p.calls), len(p.refusals)))
		}
	}
	return list, nil
}

// sound reports refusals that answer no call of their round, or one twice.
func sound(where string, r inspect.Round) error {
	seen := make(map[int]bool, len(r.Refusals))
	for _, f := range r.Refusals {
		if f.Call < 0 || f.Call >= len(r.Calls) || seen[f.Call] {
			return unmended(where, fmt.Sprintf("a refusal answers call %d of %d, or does so twice", f.Call+1, len(r.Calls)))
		}
		if r.Calls[f.Call] == "" {
			return unmended(where, fmt.Sprintf("call %d has no id that a result could name", f.Call+1))
		}
		seen[f.Call] = true
	}
	return nil
}

// inOrder gives the refusals in the order of their calls.
func inOrder(list []inspect.Refusal) []inspect.Refusal {
	byCall := func(x, y inspect.Refusal) int { return x.Call - y.Call }
	if slices.IsSortedFunc(list, byCall) {
		return list
	}
	list = slices.Clone(list)
	slices.SortFunc(list, byCall)
	return list
}

// one gives an item of the round as it stands.
func (p *pastRound) one(it *pastItem) []byte {
	if p.bare {
		return without(it.at.In(p.b), "id")
	}
	return it.at.In(p.b)
}

// append adds the items of the round to a list.
func (p *pastRound) append(list []byte) []byte {
	for k := range p.items {
		it := &p.items[k]
		raw := p.one(it)
		if p.bare && it.typ == "mcp_approval_request" {
			raw = it.at.In(p.b) // which is named by its id
		}
		list = append(comma(list, 0), raw...)
	}
	return list
}

// appendUses adds the calls of the round alone.
func (p *pastRound) appendUses(list []byte) []byte {
	for k := range p.uses {
		list = append(comma(list, 0), p.use(k)...)
	}
	return list
}

// use gives a call as it stands without the reasoning before it.
func (p *pastRound) use(k int) []byte {
	if p.uses[k].typ == "mcp_approval_request" {
		return p.uses[k].at.In(p.b)
	}
	return without(p.uses[k].at.In(p.b), "id")
}

// appendRefused adds the refusals of the round to a list.
func (p *pastRound) appendRefused(list []byte) []byte {
	for _, f := range p.refusals {
		list = append(comma(list, 0), p.refusal(f)...)
	}
	return list
}

// refusal gives the result of a call that did not run, in the form that its
// kind has.
func (p *pastRound) refusal(f inspect.Refusal) []byte {
	it := &p.uses[f.Call]
	return refusal(it.typ, it.id, f.Text, p.b, it.at)
}

// refusal gives the result of a call of a type; b holds the call's item.
func refusal(typ, id, text string, b []byte, at rawjson.Span) []byte {
	if text == "" {
		text = inspect.NoReason
	}
	k := kinds[typ]
	out := append([]byte(`{"type":"`), k.output...)
	name := "call_id"
	switch k.output {
	case "mcp_approval_response":
		name = "approval_request_id"
	case "local_shell_call_output":
		name = "id" // as the types of OpenAI's library have it
	}
	out = appendString(append(append(append(out, `","`...), name...), `":`...), id)
	switch k.output {
	case "mcp_approval_response":
		out = appendString(append(out, `,"approve":false,"reason":`...), text)
	case "shell_call_output":
		if most := rawjson.Get(b, rawjson.Get(b, at, "action"), "max_output_length"); !rawjson.Null(b, most) {
			out = append(append(out, `,"max_output_length":`...), most.In(b)...) // it is to be given back
		}
		out = appendString(append(out, `,"output":[{"stdout":"","stderr":`...), text)
		out = append(out, `,"outcome":{"type":"exit","exit_code":1}}]`...)
	case "apply_patch_call_output":
		out = appendString(append(out, `,"status":"failed","output":`...), text)
	default:
		out = appendString(append(out, `,"output":`...), text)
	}
	if caller := rawjson.Get(b, at, "caller"); !rawjson.Null(b, caller) && k.output != "mcp_approval_response" {
		out = append(append(out, `,"caller":`...), caller.In(b)...)
	}
	return append(out, '}')
}
