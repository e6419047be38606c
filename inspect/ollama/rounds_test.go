package ollama

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"callgate/inspect"
	"callgate/inspect/toolcall"
)

// plan makes up answers of several rounds, and what is ruled on their calls, out
// of bytes. When they are used up, the simplest is taken.
type plan struct {
	bytes   []byte
	calls   int  // made so far
	indexed bool // those of this round are
}

func (p *plan) next(n int) int {
	if len(p.bytes) == 0 {
		return 0
	}
	b := int(p.bytes[0])
	p.bytes = p.bytes[1:]
	return b % n
}

// planned is one made-up round.
type planned struct {
	stream, document string
	broken           bool // it ends in an error, or has no end
}

type object = map[string]any

func encoded(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

var plannedTexts = []string{"a word ", "caf\u00e9 \"q\" \\ \n", "\U0001F600", "x", "<&>\u2028 ", "\t"}

// call makes up a call. Its arguments hold a word of its own.
func (p *plan) call(index int) object {
	n := p.calls
	p.calls++
	fn := object{"name": "f", "arguments": object{"cmd": fmt.Sprintf("zq%dzq", n), "n": []any{1, "b"}}}
	c := object{"id": fmt.Sprintf("call_%d", n), "function": fn}
	if p.indexed {
		fn["index"] = index
	}
	switch p.next(10) {
	case 1:
		fn["arguments"] = fmt.Sprintf("zq%dzq", n)
	case 2:
		delete(c, "id")
	case 3:
		c["id"] = "call_same"
	case 4:
		c["type"] = "unheard_of"
	case 5:
		fn["name"] = "g"
	case 6:
		c["type"] = "function"
	}
	return c
}

func (p *plan) round(n int) planned {
	var s strings.Builder
	text, thinking := "", ""
	p.indexed = p.next(2) == 1
	var calls []object
	line := func(message object, kv ...any) string {
		o := object{"model": fmt.Sprintf("m-%d", n), "created_at": "2026-01-02T03:04:05Z", "done": false}
		if message != nil {
			message["role"] = "assistant"
			if message["content"] == nil && p.next(2) == 0 {
				message["content"] = ""
			}
			o["message"] = message
		}
		for i := 0; i < len(kv); i += 2 {
			o[kv[i].(string)] = kv[i+1]
		}
		return encoded(o)
	}
	send := func(s2 string) {
		s.WriteString(s2 + "\n")
		if p.next(9) == 1 {
			s.WriteString(" \n")
		}
	}
	for range p.next(4) {
		w := plannedTexts[p.next(len(plannedTexts))]
		if p.next(3) == 1 {
			thinking += w
			send(line(object{"thinking": w}))
		} else {
			text += w
			send(line(object{"content": w}))
		}
	}
	for range p.next(4) {
		m := object{}
		list := []object{p.call(len(calls))}
		if p.next(3) == 1 {
			list = append(list, p.call(len(calls)+1))
		}
		if p.next(5) == 1 {
			m["content"] = "beside "
			text += "beside "
		}
		m["tool_calls"] = list
		calls = append(calls, list...)
		switch p.next(6) {
		case 1:
			send(line(object{}, "logprobs", []object{{"token": fmt.Sprintf("zq%dzq", p.calls-1)}}))
			send(line(m, "logprobs", []object{{"token": "x"}}))
		default:
			send(line(m))
		}
		if p.next(6) == 1 {
			text += "between "
			send(line(object{"content": "between "}))
		}
	}
	end := []any{"done", true, "done_reason", []string{"stop", "stop", "tool_calls", "length"}[p.next(4)]}
	if p.next(3) > 0 {
		end = append(end, "prompt_eval_count", 10*n, "eval_count", n)
	}
	last := object{}
	if p.next(5) == 1 {
		last["content"] = "last "
		text += "last "
	}
	broken := false
	switch p.next(12) {
	case 1:
		send(`{"error":"no"}`)
		broken = true
	case 2:
		broken = true
	case 3:
		s.WriteString(line(last, end...))
	default:
		send(line(last, end...))
	}
	message := object{"content": text}
	if thinking != "" {
		message["thinking"] = thinking
	}
	if len(calls) > 0 {
		message["tool_calls"] = calls
	}
	return planned{s.String(), line(message, end...), broken}
}

// ran is what a run gave.
type ran struct {
	out   []byte
	told  inspect.Told
	calls []toolcall.Call
	state inspect.State
	// failed says that reading ended with an error: what was ruled on before it
	// decides what is seen.
	failed bool
}

// run drives a plan. How the bytes are cut and when calls are ruled on must not
// matter.
func (p plan) run(streamed bool, piece int, late bool) (*ran, error) {
	head := streamHead
	if !streamed {
		head = documentHead
	}
	req, err := repairing.Request(inspect.Head{Path: chatPath}, []byte(`{"model":"asked","messages":[{"role":"user","content":"go"}]}`))
	if err != nil {
		return nil, err
	}
	turn, err := req.Open(head)
	if err != nil {
		return nil, err
	}
	r := &ran{}
	ruled := 0
	released := map[int]bool{}
	rulings := slices.Clone(p.bytes)
	rule := func(c toolcall.Call) inspect.Ruling {
		b := byte(0)
		if c.Seq < len(rulings) {
			b = rulings[len(rulings)-1-c.Seq]
		}
		switch {
		case b%4 == 3 && c.Type == typeFunction:
			return inspect.Ruling{Release: true, Args: []byte("{\n\"edited\":\"yes\"}")}
		case b%4 == 2:
			return inspect.Ruling{Release: true}
		}
		return inspect.Ruling{Refusal: fmt.Sprintf("[callgate] refused %d.", c.Seq)}
	}
	take := func(step inspect.Step) {
		r.out, r.calls, r.state = append(r.out, step.Out...), append(r.calls, step.Calls...), step.State
	}
	resolve := func() error {
		for ; ruled < len(r.calls); ruled++ {
			how := rule(r.calls[ruled])
			released[ruled] = how.Release && r.calls[ruled].Fault == toolcall.FaultNone
			step, err := turn.Resolve(nil, ruled, how)
			if err != nil {
				return err
			}
			take(step)
		}
		return nil
	}
	give := func(b string, ends bool) error {
		for len(b) > 0 {
			n := min(piece, len(b))
			step, err := turn.Feed(nil, []byte(b[:n]))
			take(step)
			if err != nil {
				return err
			}
			b = b[n:]
			if !late {
				if err := resolve(); err != nil {
					return err
				}
			}
		}
		if ends {
			step, err := turn.EndRound(nil, inspect.EndClean)
			take(step)
			if err != nil {
				return err
			}
		}
		return resolve()
	}
	q := plan{bytes: slices.Clone(p.bytes)}
	how := q.next(4)
	for n := 1; ; n++ {
		round := q.round(n)
		b := round.document
		if streamed {
			b = round.stream
		}
		if how == 1 && n == 2 {
			if streamed { // given up in the middle
				if err := give(b[:len(b)*2/3], false); err != nil {
					return nil, err
				}
			}
			r.out = turn.Abandon(r.out, "[callgate] given up.")
			break
		}
		if err := give(b, true); err != nil {
			if streamed && round.broken && n > 1 {
				r.out, r.failed = turn.Abandon(r.out, "[callgate] given up."), true
				break
			}
			return nil, err
		}
		if r.state == inspect.Done {
			break
		}
		if r.state != inspect.Suspended {
			return nil, fmt.Errorf("state %d behind round %d", r.state, n)
		}
		if _, err := req.Resume(turn.Told().Rounds); err != nil {
			return nil, err
		}
		if endedAnswer(r.out) {
			return nil, fmt.Errorf("suspended, and the end is out: %q", r.out)
		}
		r.out = turn.KeepAlive(r.out)
		if how == 2 && n == 2 || n == 4 {
			r.out = turn.Abandon(r.out, "[callgate] given up.")
			break
		}
		if how == 3 && n == 2 {
			r.out = turn.Fail(r.out, "[callgate] failed.")
			break
		}
		if err := turn.NextRound(head); err != nil {
			return nil, err
		}
	}
	r.told = turn.Told()
	for i := range r.calls {
		for n := range q.calls {
			mark := []byte(fmt.Sprintf("zq%dzq", n))
			if !released[i] && bytes.Contains(r.calls[i].Args, mark) && bytes.Contains(r.out, mark) {
				return nil, fmt.Errorf("call %d was withheld and is in %q", i, r.out)
			}
		}
	}
	if err := checkAnswer(r.out, r.told); err != nil {
		return nil, fmt.Errorf("%w\nin %s\ntold %s", err, r.out, encoded(r.told))
	}
	return r, nil
}

func (p plan) check() error {
	for _, streamed := range []bool{true, false} {
		want, err := p.run(streamed, 1<<20, false)
		if err != nil {
			return fmt.Errorf("whole: %w", err)
		}
		piece := 1
		if len(p.bytes) > 0 {
			piece += int(p.bytes[len(p.bytes)-1])
		}
		for _, late := range []bool{true, false} {
			got, err := p.run(streamed, piece, late)
			if err != nil {
				return fmt.Errorf("in pieces of %d, late %v: %w", piece, late, err)
			}
			if !want.failed && (!bytes.Equal(got.out, want.out) || !cmp.Equal(got.told, want.told)) {
				return fmt.Errorf("in pieces of %d, late %v, it is\n%s\n%s\nand whole\n%s\n%s", piece, late, got.out, encoded(got.told), want.out, encoded(want.told))
			}
		}
	}
	return nil
}

func plannedBytes(seed, stream uint64) []byte {
	rnd := rand.New(rand.NewPCG(seed, stream))
	b := make([]byte, rnd.IntN(90))
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

// TestRoundsMakeOneAnswer is a property of made-up turns: whatever they say and
// whatever is ruled, they are one answer without a word of a withheld call, and
// what is told of them mends a history.
func TestRoundsMakeOneAnswer(t *testing.T) {
	for seed := range uint64(500) {
		if err := (plan{bytes: plannedBytes(seed, 3)}).check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func FuzzRounds(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(plannedBytes(seed, 9))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 300 {
			return
		}
		if err := (plan{bytes: b}).check(); err != nil {
			t.Fatal(err)
		}
	})
}
