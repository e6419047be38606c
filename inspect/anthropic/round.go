package anthropic

import (
	"fmt"
	"slices"

	"github.com/tidwall/gjson"

	"callgate/inspect"
	"callgate/inspect/rawjson"
)

// pastRound is a round as it is put into a history.
type pastRound struct {
	b        []byte // its message
	msg      pastMessage
	blocks   []pastBlock // that stand
	uses     [][]byte    // its calls
	calls    []string
	refusals []inspect.Refusal
	thinks   bool
	plain    bool // its thinking is left out
}

// standing gives those of the rounds of which something can stand in a
// history, and whether any of them holds thinking. All but the last must be
// answered by refusals alone.
func standing(where string, rounds []inspect.Round, plain bool) (list []pastRound, thinks bool, err error) {
	for n, r := range rounds {
		at := fmt.Sprintf("%s, round %d", where, n+1)
		if err := sound(at, r); err != nil {
			return nil, false, err
		}
		if len(r.Message) == 0 {
			if len(r.Calls) > 0 {
				return nil, false, unmended(at, "it has calls and no message")
			}
			continue
		}
		p := pastRound{b: r.Message, calls: r.Calls, refusals: inOrder(r.Refusals), plain: plain}
		c := cursor{b: r.Message}
		c.i = rawjson.Space(c.b, 0)
		var ids []string
		p.msg = readMessage(&c, 0, &ids)
		if c.err == nil && rawjson.Space(c.b, c.i) != len(c.b) {
			c.broken()
		}
		if c.err != nil {
			c.err.Where = at + ": " + c.err.Where
			return nil, false, c.err
		}
		if p.msg.by != byAssistant || !slices.Equal(ids, r.Calls) {
			return nil, false, unmended(at, "its message is not the one that its calls are from")
		}
		for _, k := range blocksOf(p.b, p.msg.content) {
			if k.kind == pastThinking {
				p.thinks = true
				if plain {
					continue
				}
			}
			if k.kind == pastUse {
				p.uses = append(p.uses, k.item.In(p.b))
			}
			p.blocks = append(p.blocks, k)
		}
		thinks = thinks || p.thinks
		if len(p.blocks) > 0 {
			list = append(list, p)
		}
	}
	for n, p := range list {
		if n < len(list)-1 && (len(p.calls) == 0 || len(p.refusals) != len(p.calls)) {
			return nil, false, unmended(where, fmt.Sprintf("a round with %d calls and %d refusals cannot stand before another", len(p.calls), len(p.refusals)))
		}
	}
	return list, thinks, nil
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

// append adds the round's message, with the marker for a cache on the last
// block that can have one.
func (p *pastRound) append(dst, mark []byte) []byte {
	item := p.msg.item
	if (!p.thinks || !p.plain) && mark == nil || rawjson.IsString(p.b, p.msg.content) {
		return append(dst, item.In(p.b)...)
	}
	marked := -1
	if mark != nil {
		for k, block := range p.blocks {
			if block.kind != pastThinking {
				marked = k
			}
		}
	}
	dst = append(append(dst, p.b[item.From:p.msg.content.From]...), '[')
	for k, block := range p.blocks {
		if k > 0 {
			dst = append(dst, ',')
		}
		if k != marked || block.mark.There() {
			dst = append(dst, block.item.In(p.b)...)
			continue
		}
		dst = append(dst, p.b[block.item.From:block.item.To-1]...)
		dst = append(append(append(dst, `,"cache_control":`...), mark...), '}')
	}
	return append(append(dst, ']'), p.b[p.msg.content.To:item.To]...)
}

// appendBlocks adds the blocks of the round's message.
func (p *pastRound) appendBlocks(dst []byte) []byte {
	for k, block := range p.blocks {
		if k > 0 {
			dst = append(dst, ',')
		}
		if rawjson.IsString(p.b, p.msg.content) {
			dst = appendTextBlock(dst, block.item.In(p.b))
			continue
		}
		dst = append(dst, block.item.In(p.b)...)
	}
	return dst
}

// appendUses adds a message with the round's calls alone.
func (p *pastRound) appendUses(dst []byte) []byte {
	dst = append(dst, `{"role":"assistant","content":[`...)
	for k, use := range p.uses {
		if k > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, use...)
	}
	return append(dst, "]}"...)
}

// appendRefused gives the message that refuses all calls of the round.
func (p *pastRound) appendRefused() []byte { return appendResults(nil, p.calls, p.refusals) }

// appendResults adds a message with refusals.
func appendResults(dst []byte, calls []string, refusals []inspect.Refusal) []byte {
	dst = append(dst, `{"role":"user","content":[`...)
	for k, r := range refusals {
		if k > 0 {
			dst = append(dst, ',')
		}
		dst = appendRefusal(dst, calls[r.Call], r.Text)
	}
	return append(dst, "]}"...)
}

// appendRefusal adds the result of a call that did not run. The provider takes
// no failed result without words.
func appendRefusal(dst []byte, id, text string) []byte {
	if text == "" {
		text = inspect.NoReason
	}
	dst = gjson.AppendJSONString(append(dst, `{"type":"tool_result","tool_use_id":`...), id)
	dst = gjson.AppendJSONString(append(dst, `,"content":`...), text)
	return append(dst, `,"is_error":true}`...)
}
