package openaichat

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
	bytes  []byte
	calls  int // made so far
	broken bool
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
func (p *plan) call(round int) object {
	n := p.calls
	p.calls++
	args := fmt.Sprintf(`{"cmd":"zq%dzq","n":[1,"b"]}`, n)
	c := object{"id": fmt.Sprintf("call_%d", n), "type": "function", "function": object{"name": "f", "arguments": args}}
	switch p.next(12) {
	case 1:
		c["function"] = object{"name": "f", "arguments": args[:len(args)-1]}
	case 2:
		delete(c, "id")
	case 3:
		c["id"] = "call_same"
	case 4:
		c["extra_content"] = object{"google": object{"thought_signature": "sig"}}
	case 5:
		delete(c, "function")
		c["type"], c["custom"] = "custom", object{"name": "f", "input": fmt.Sprintf("free zq%dzq", n)}
	case 6:
		c["function"] = object{"name": "f", "arguments": object{"cmd": fmt.Sprintf("zq%dzq", n)}}
	case 7:
		c["type"] = "unheard_of"
	}
	return c
}

func (p *plan) round(n int) planned {
	env := object{"id": fmt.Sprintf("cc-%d", n), "object": "chat.completion.chunk", "created": 1700000000 + n, "model": fmt.Sprintf("m-%d", n)}
	var s strings.Builder
	with := func(kv ...any) string {
		o := object{}
		for k, v := range env {
			o[k] = v
		}
		for i := 0; i < len(kv); i += 2 {
			o[kv[i].(string)] = kv[i+1]
		}
		return encoded(o)
	}
	send := func(kv ...any) { fmt.Fprintf(&s, "data: %s\n\n", with(kv...)) }
	choice := func(delta object, finish any) []object {
		return []object{{"index": 0, "delta": delta, "finish_reason": finish}}
	}
	message := object{"role": "assistant", "content": nil}
	send("choices", choice(object{"role": "assistant", "content": ""}, nil))
	var text, thought string
	for range p.next(4) {
		w := plannedTexts[p.next(len(plannedTexts))]
		if p.next(3) == 1 {
			thought += w
			send("choices", choice(object{"reasoning_content": w}, nil))
		} else {
			text += w
			send("choices", choice(object{"content": w}, nil))
		}
		if p.next(5) == 1 {
			s.WriteString(": comment\n\n")
		}
	}
	if text != "" {
		message["content"] = text
	}
	if thought != "" {
		message["reasoning_content"] = thought
	}
	var calls []object
	for i := range p.next(4) {
		c := p.call(n)
		calls = append(calls, c)
		entry := object{"index": i}
		for k, v := range c {
			entry[k] = v
		}
		f, _ := c["function"].(object)
		if args, ok := f["arguments"].(string); ok && p.next(2) == 1 {
			cut := len(args) / 2
			entry["function"] = object{"name": "f", "arguments": args[:cut]}
			send("choices", choice(object{"tool_calls": []object{entry}}, nil))
			send("choices", choice(object{"tool_calls": []object{{"index": i, "function": object{"arguments": args[cut:]}}}}, nil))
		} else {
			send("choices", choice(object{"tool_calls": []object{entry}}, nil))
		}
		if p.next(6) == 1 {
			text += "between "
			message["content"] = text
			send("choices", choice(object{"content": "between "}, nil))
		}
	}
	finish := "stop"
	if len(calls) > 0 {
		message["tool_calls"] = calls
		finish = []string{"tool_calls", "tool_calls", "stop", "length"}[p.next(4)]
	}
	usage := object{"prompt_tokens": 10 * n, "completion_tokens": n, "total_tokens": 11 * n}
	doc := object{"choices": []object{{"index": 0, "message": message, "finish_reason": finish}}, "object": "chat.completion"}
	switch p.next(3) {
	case 0:
		send("choices", choice(object{}, finish))
	case 1:
		send("choices", choice(object{}, finish), "usage", usage)
		doc["usage"] = usage
	case 2:
		send("choices", choice(object{}, finish))
		send("choices", []object{}, "usage", usage)
		doc["usage"] = usage
	}
	switch p.next(8) {
	case 1:
		fmt.Fprintf(&s, "data: {\"error\":{\"message\":\"no\"}}\n\n")
		p.broken = true
	case 2:
	default:
		s.WriteString("data: [DONE]\n\n")
	}
	for k, v := range env {
		if k != "object" {
			doc[k] = v
		}
	}
	return planned{s.String(), encoded(doc)}
}

// ran is what a run gave.
type ran struct {
	out   []byte
	told  inspect.Told
	calls []toolcall.Call
	state inspect.State
}

// run drives a plan. How the bytes are cut, when calls are ruled on, and whether
// templates are used must not matter.
func (p plan) run(streamed bool, piece int, late, long bool) (*ran, error) {
	body, head := `{"model":"asked","stream":true,"messages":[{"role":"user","content":"go"}]}`, streamHead
	if !streamed {
		head = documentHead
	}
	req, err := repairing.Request(inspect.Head{}, []byte(body))
	if err != nil {
		return nil, err
	}
	turn, err := req.Open(head)
	if err != nil {
		return nil, err
	}
	if s, ok := turn.(*stream); ok {
		s.long = long
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
		case b%4 == 3 && c.Fault == toolcall.FaultNone && c.Type == "function":
			return inspect.Ruling{Release: true, Args: []byte(`{"edited":"yes"}`)}
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
	give := func(b string) error {
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
		step, err := turn.EndRound(nil, inspect.EndClean)
		take(step)
		if err != nil {
			return err
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
				step, err := turn.Feed(nil, []byte(b[:len(b)*2/3]))
				take(step)
				if err != nil {
					return nil, err
				}
				if err := resolve(); err != nil {
					return nil, err
				}
			}
			r.out = turn.Abandon(r.out, "[callgate] given up.")
			break
		}
		if err := give(b); err != nil {
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
		mark := fmt.Sprintf("zq%dzq", i)
		if !released[i] && bytes.Contains(r.out, []byte(mark)) && !slices.ContainsFunc(r.calls, func(c toolcall.Call) bool {
			return released[c.Seq] && bytes.Contains(c.Args, []byte(mark))
		}) && bytes.Contains(r.calls[i].Args, []byte(mark)) {
			return nil, fmt.Errorf("call %d was withheld and is in %q", i, r.out)
		}
	}
	if err := checkAnswer(r.out, r.told); err != nil {
		return nil, fmt.Errorf("%w\nin %s\ntold %s", err, r.out, encoded(r.told))
	}
	return r, nil
}

func (p plan) check() error {
	for _, streamed := range []bool{true, false} {
		want, err := p.run(streamed, 1<<20, false, false)
		if err != nil {
			if strings.Contains(err.Error(), "the further answer ended in an error") {
				return nil // the turn is abandoned then: the cases show it
			}
			return fmt.Errorf("whole: %w", err)
		}
		piece := 1
		if len(p.bytes) > 0 {
			piece += int(p.bytes[len(p.bytes)-1])
		}
		for _, how := range []struct{ late, long bool }{{true, false}, {false, true}, {false, false}} {
			got, err := p.run(streamed, piece, how.late, how.long)
			if err != nil {
				return fmt.Errorf("in pieces of %d, %+v: %w", piece, how, err)
			}
			if !bytes.Equal(got.out, want.out) || !cmp.Equal(got.told, want.told) {
				return fmt.Errorf("in pieces of %d, %+v, it is\n%s\n%s\nand whole\n%s\n%s", piece, how, got.out, encoded(got.told), want.out, encoded(want.told))
			}
		}
	}
	return nil
}

// TestRoundsMakeOneAnswer is a property of made-up turns: whatever they say and
// whatever is ruled, they are one answer without a word of a withheld call, and
// what is told of them mends a history.
func TestRoundsMakeOneAnswer(t *testing.T) {
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		b := make([]byte, rnd.IntN(90))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		if err := (plan{bytes: b}).check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func FuzzRounds(f *testing.F) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		b := make([]byte, rnd.IntN(90))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		f.Add(b)
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
