package responses

import (
	"strconv"

	"callgate/inspect/rawjson"
)

// tokens are what the provider says of the tokens of a turn, -1 where it has
// not.
type tokens struct {
	in, out, thought int64 // of this round, in of the last that said it

	counted                  bool // this round has said in
	outBefore, thoughtBefore int64
	billBefore               int64
	unbilled                 bool // a round before did not say in
	usage                    []byte
}

var unknownTokens = tokens{in: -1, out: -1, thought: -1, outBefore: -1, thoughtBefore: -1}

func count(b []byte, s rawjson.Span) int64 {
	n, err := strconv.ParseInt(string(s.In(b)), 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// count notes how many tokens were used so far.
func (t *tokens) count(b []byte, u rawjson.Span) {
	if !rawjson.IsObject(b, u) {
		return
	}
	t.usage = append(t.usage[:0], u.In(b)...)
	if n := count(b, rawjson.Get(b, u, "input_tokens")); n >= 0 {
		t.in, t.counted = n, true
	}
	if n := count(b, rawjson.Get(b, u, "output_tokens")); n >= 0 {
		t.out = n
	}
	if n := count(b, rawjson.Get(b, rawjson.Get(b, u, "output_tokens_details"), "reasoning_tokens")); n >= 0 {
		t.thought = n
	}
}

// next begins a further round.
func (t *tokens) next() {
	t.outBefore, t.thoughtBefore = t.total(), sum(t.thoughtBefore, t.thought)
	t.billBefore += max(t.in, 0)
	t.unbilled = t.unbilled || !t.counted
	t.out, t.thought, t.counted, t.usage = -1, -1, false, nil
}

func sum(a, b int64) int64 {
	if a < 0 || b < 0 {
		return max(a, b)
	}
	return a + b
}

// total is what came out in all rounds.
func (t *tokens) total() int64 { return sum(t.outBefore, t.out) }

// billed is what went in, in all rounds.
func (t *tokens) billed() int64 {
	if t.unbilled || !t.counted {
		return -1
	}
	return t.billBefore + t.in
}

// merged gives the usage of the whole turn: that of its last round, with what
// all rounds gave out.
func (t *tokens) merged() []byte {
	u := t.usage
	if len(u) == 0 {
		u = []byte(`{"input_tokens":0,"input_tokens_details":{"cached_tokens":0},"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0}`)
	}
	num := func(n int64) []byte { return strconv.AppendInt(nil, max(n, 0), 10) }
	p := patch{b: u, obj: rawjson.All(u)}
	p.set("input_tokens", num(t.in))
	p.set("output_tokens", num(t.total()))
	p.set("total_tokens", num(max(t.in, 0)+max(t.total(), 0)))
	if details := rawjson.Get(u, p.obj, "output_tokens_details"); rawjson.IsObject(u, details) {
		if at := rawjson.Get(u, details, "reasoning_tokens"); at.There() {
			p.edits = append(p.edits, rawjson.Edit{At: at, Text: num(sum(t.thoughtBefore, t.thought))})
		}
	}
	return p.append(nil)
}
