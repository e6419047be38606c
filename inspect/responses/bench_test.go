package responses

import (
	"fmt"
	"testing"

	"callgate/inspect"
)

// benchmarkStream measures a stream that is fed event by event.
func benchmarkStream(b *testing.B, body string) {
	b.Helper()
	req := asked(b, nil, `{"model":"m","tools":[{"type":"function","name":"bash"}]}`)
	head := inspect.Head{Status: 200, Header: map[string][]string{"Content-Type": {eventStream}}}
	var pieces [][]byte
	for from := 0; from < len(body); from += 200 {
		pieces = append(pieces, []byte(body[from:min(from+200, len(body))]))
	}
	out := make([]byte, 0, 2*len(body))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		turn, err := req.Open(head)
		if err != nil {
			b.Fatal(err)
		}
		out = out[:0]
		rule := func(step inspect.Step, err error) {
			if out = step.Out; err != nil {
				b.Fatal(err)
			}
			for _, c := range step.Calls {
				if step, err = turn.Resolve(out, c.Seq, inspect.Ruling{Release: true}); err != nil {
					b.Fatal(err)
				}
				out = step.Out
			}
		}
		for _, p := range pieces {
			rule(turn.Feed(out, p))
		}
		rule(turn.EndRound(out, inspect.EndClean))
		if len(out) != len(body) {
			b.Fatalf("%d bytes of %d were given out", len(out), len(body))
		}
	}
}

func BenchmarkText(b *testing.B) {
	w := begun()
	w.event("output_item.added", `"output_index":0,"item":{"id":"msg_0","type":"message","status":"in_progress","content":[],"role":"assistant"}`)
	for i := range 500 {
		w.event("output_text.delta", fmt.Sprintf(`"item_id":"msg_0","output_index":0,"content_index":0,"delta":" word%d","logprobs":[]`, i))
	}
	benchmarkStream(b, w.end().String())
}

func BenchmarkCalls(b *testing.B) {
	w := begun()
	for i := range 3 {
		w.call(i, fmt.Sprint("call_", i), `{"command":"go test ./... && git status --short && git diff --stat HEAD~1"}`, 6)
	}
	benchmarkStream(b, w.end().String())
}
