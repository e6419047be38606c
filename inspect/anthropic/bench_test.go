package anthropic

import (
	"fmt"
	"strings"
	"testing"

	"callgate/inspect"
)

func textStream(n int) string {
	events := []string{messageStart(), blockStart(0, `{"type":"text","text":""}`)}
	for i := range n {
		events = append(events, blockDelta(0, fmt.Sprintf(`{"type":"text_delta","text":" word %d"}`, i)))
	}
	return join(append(events, blockStop(0)), messageEnd("end_turn"))
}

func callStream(calls, pieces int) string {
	events := append([]string{messageStart()}, textEvents(0, "Let me look.")...)
	for c := 1; c <= calls; c++ {
		events = append(events, blockStart(c, fmt.Sprintf(`{"type":"tool_use","id":"toolu_%d","name":"Bash","input":{}}`, c)),
			blockDelta(c, `{"type":"input_json_delta","partial_json":"{\"command\":\""}`))
		for i := range pieces {
			events = append(events, blockDelta(c, fmt.Sprintf(`{"type":"input_json_delta","partial_json":" word%d"}`, i)))
		}
		events = append(events, blockDelta(c, `{"type":"input_json_delta","partial_json":"\"}"}`), blockStop(c))
	}
	return join(events, messageEnd("tool_use"))
}

func documentOf(calls int) string {
	text := strings.Repeat("some words of an answer ", 40)
	blocks := []string{`{"type":"text","text":"` + text + `"}`}
	for i := range calls {
		blocks = append(blocks, fmt.Sprintf(`{"type":"tool_use","id":"toolu_%d","name":"Bash","input":{"command":"ls -la /tmp","description":"List"}}`, i))
	}
	return `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[` + strings.Join(blocks, ",") +
		`],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":100,"output_tokens":50}}`
}

// whole runs a turn in reads of 4 KiB and releases all its calls at once.
func whole(b testing.TB, req inspect.Request, ct string, body, dst []byte) []byte {
	turn, err := req.Open(inspect.Head{Status: 200, Header: map[string][]string{"Content-Type": {ct}}})
	if err != nil {
		b.Fatal(err)
	}
	dst = dst[:0]
	after := func(step inspect.Step, err error) {
		if err != nil {
			b.Fatal(err)
		}
		dst = step.Out
		for _, c := range step.Calls {
			s, err := turn.Resolve(dst, c.Seq, inspect.Ruling{Release: true})
			if err != nil {
				b.Fatal(err)
			}
			dst = s.Out
		}
	}
	for rest := body; len(rest) > 0; {
		n := min(4096, len(rest))
		after(turn.Feed(dst, rest[:n]))
		rest = rest[n:]
	}
	after(turn.EndRound(dst, inspect.EndClean))
	return dst
}

func BenchmarkTurn(b *testing.B) { benchmarkTurn(b, Dialect{}) }

// BenchmarkRepairTurn is for what every allowed answer pays for being told of,
// should a call of it be denied.
func BenchmarkRepairTurn(b *testing.B) { benchmarkTurn(b, Dialect{Denial: inspect.DenialRepair}) }

func benchmarkTurn(b *testing.B, d Dialect) {
	for _, c := range []struct{ name, ct, body string }{
		{"stream of 2,000 texts", eventStream, textStream(2000)},
		{"stream of 200 texts", eventStream, textStream(200)},
		{"stream of 2 calls in 20 pieces", eventStream, callStream(2, 20)},
		{"document with 2 calls", jsonBody, documentOf(2)},
	} {
		b.Run(c.name, func(b *testing.B) {
			req, err := d.Request(inspect.Head{}, []byte(`{"model":"m"}`))
			if err != nil {
				b.Fatal(err)
			}
			body := []byte(c.body)
			dst := make([]byte, 0, 2*len(body))
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				dst = whole(b, req, c.ct, body, dst)
			}
			if string(dst) != c.body {
				b.Fatal("the answer was changed")
			}
			if n := strings.Count(c.body, "\n\n"); n > 0 {
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/event")
			}
		})
	}
}

func BenchmarkRequest(b *testing.B) {
	var m strings.Builder
	for m.Len() < 200<<10 {
		m.WriteString(`{"role":"user","content":[{"type":"text","text":"a line of \"words\" and more\n` + strings.Repeat("and more of them ", 20) + `"}]},`)
	}
	body := []byte(`{"model":"m","max_tokens":100,"stream":true,"messages":[` + strings.TrimSuffix(m.String(), ",") +
		`],"tools":[{"name":"Bash","description":"runs","input_schema":{"type":"object"}}]}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (Dialect{}).Request(inspect.Head{}, body); err != nil {
			b.Fatal(err)
		}
	}
}

func TestPlainDeltasAllocateNothing(t *testing.T) {
	turn := openStream(t)
	feed(t, turn, sse(messageStart(), blockStart(0, `{"type":"text","text":""}`)))
	p := []byte(strings.Repeat(sse(blockDelta(0, `{"type":"text_delta","text":" \"word\" é"}`)), 10))
	dst := make([]byte, 0, 2*len(p))
	n := testing.AllocsPerRun(50, func() {
		step, err := turn.Feed(dst, p)
		if err != nil || len(step.Out) != len(p) {
			t.Fatal(err, len(step.Out))
		}
	})
	if n != 0 {
		t.Errorf("%v allocations for 10 deltas", n)
	}
}

func TestAWholeAnswerAllocatesLittle(t *testing.T) {
	req, err := Dialect{}.Request(inspect.Head{}, []byte(`{"model":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(callStream(2, 5))
	dst := make([]byte, 0, 2*len(body))
	// Two allocations of a call are its words, two hold it and its arguments.
	if n := testing.AllocsPerRun(50, func() { dst = whole(t, req, eventStream, body, dst) }); n > 30 {
		t.Errorf("%v allocations for an answer with two calls", n)
	}
}
