package anthropic

import (
	"strconv"

	"callgate/inspect/rawjson"
)

// tokens are what the provider says of the tokens of a turn, -1 where it has
// not.
type tokens struct {
	in  int64 // of the last round that said it
	out int64 // of this round

	// Of a turn of several rounds:
	later      bool
	counted    bool // this round has said in
	cached     [len(cacheKeys)]int64
	outBefore  int64 // of the rounds before, together
	billBefore int64 // likewise what went in
	unbilled   bool  // one of them did not say
}

var unknownTokens = tokens{in: -1, out: -1, outBefore: -1}

// cacheKeys are the figures that stand beside input_tokens.
var cacheKeys = [...]string{"cache_creation_input_tokens", "cache_read_input_tokens"}

// count notes how many tokens were used so far.
func (t *tokens) count(b []byte, u rawjson.Span) {
	in, out := usage(b, u)
	if in >= 0 {
		t.in, t.counted = in, true
	}
	if out >= 0 {
		t.out = out
	}
	if !t.later {
		return
	}
	for k, key := range cacheKeys {
		if n := count(b, member(b, u, key)); n >= 0 {
			t.cached[k] = n
		}
	}
}

// next begins a further round.
func (t *tokens) next() {
	t.outBefore = t.total()
	t.billBefore += max(t.in, 0)
	t.unbilled = t.unbilled || !t.counted
	t.out, t.counted, t.later = -1, false, true
	for k := range t.cached {
		t.cached[k] = -1
	}
}

// total is what came out in all rounds.
func (t *tokens) total() int64 {
	if t.outBefore < 0 || t.out < 0 {
		return max(t.outBefore, t.out)
	}
	return t.outBefore + t.out
}

// billed is what went in, in all rounds.
func (t *tokens) billed() int64 {
	if t.unbilled || !t.counted {
		return -1
	}
	return t.billBefore + t.in
}

// merged appends the usage of a turn that went on: that of its last round, with
// what all rounds gave out. The figures of what went in stand in it, because
// those that the agent was shown at the start are the first round's.
func (t *tokens) merged(dst, b []byte, u rawjson.Span) []byte {
	if !rawjson.IsObject(b, u) {
		b, u = []byte("{}"), rawjson.Span{To: 2}
	}
	p := patch{b: u.In(b), obj: rawjson.Span{To: u.Len()}}
	add := func(key string, n int64) {
		if n >= 0 && count(p.b, rawjson.Get(p.b, p.obj, key)) < 0 {
			p.set(key, strconv.AppendInt(nil, n, 10))
		}
	}
	add("input_tokens", t.in)
	for k, key := range cacheKeys {
		add(key, t.cached[k])
	}
	p.set("output_tokens", strconv.AppendInt(nil, max(t.total(), 0), 10))
	return p.append(dst)
}
