package openaichat

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"callgate/inspect"
)

const chunkHead = `data: {"id":"chatcmpl-AbCdEfGh","object":"chat.completion.chunk","created":1700000000,"model":"gpt-x-2026","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":`

func textChunk(s string) string {
	return chunkHead + `{"content":` + string(quoted(s)) + `},"logprobs":null,"finish_reason":null}],"obfuscation":"abcd"}` + "\n\n"
}

func callChunk(entry string) string {
	return chunkHead + `{"tool_calls":[` + entry + `]},"logprobs":null,"finish_reason":null}]}` + "\n\n"
}

func streamOf(texts, pieces int) string {
	var b strings.Builder
	b.WriteString(chunkHead + `{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n")
	for i := range texts {
		b.WriteString(textChunk(fmt.Sprintf(" word%d", i)))
	}
	if pieces > 0 {
		b.WriteString(callChunk(`{"index":0,"id":"call_1","type":"function","function":{"name":"shell","arguments":""}}`))
		b.WriteString(callChunk(`{"index":0,"function":{"arguments":"{\"cmd\":\"ls"}}`))
		for range pieces - 3 {
			b.WriteString(callChunk(`{"index":0,"function":{"arguments":" -la"}}`))
		}
		b.WriteString(callChunk(`{"index":0,"function":{"arguments":"\"}"}}`))
		b.WriteString(chunkHead + `{},"finish_reason":"tool_calls"}]}` + "\n\n")
		b.WriteString(strings.TrimSuffix(chunkHead, `{"index":0,"delta":`) + `],"usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}` + "\n\n")
	}
	b.WriteString("data: [DONE]\n\n")
	return b.String()
}

var (
	streamHead   = inspect.Head{Status: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}}
	documentHead = inspect.Head{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}}
)

func drive(tb testing.TB, req inspect.Request, head inspect.Head, body, out []byte, piece int) []byte {
	turn, err := req.Open(head)
	if err != nil {
		tb.Fatal(err)
	}
	for len(body) > 0 {
		n := min(piece, len(body))
		step, err := turn.Feed(out, body[:n])
		if err != nil {
			tb.Fatal(err)
		}
		out, body = resolve(tb, turn, step), body[n:]
	}
	step, err := turn.EndRound(out, inspect.EndClean)
	if err != nil {
		tb.Fatal(err)
	}
	return resolve(tb, turn, step)
}

func resolve(tb testing.TB, turn inspect.Turn, step inspect.Step) []byte {
	out := step.Out
	for _, c := range step.Calls {
		s, err := turn.Resolve(out, c.Seq, inspect.Ruling{Release: true})
		if err != nil {
			tb.Fatal(err)
		}
		out = s.Out
	}
	return out
}

func benchTurn(b *testing.B, head inspect.Head, body string, events int) {
	b.Run("text", func(b *testing.B) { benchDenial(b, inspect.DenialText, head, body, events) })
	b.Run("repair", func(b *testing.B) { benchDenial(b, inspect.DenialRepair, head, body, events) })
}

func benchDenial(b *testing.B, denial inspect.Denial, head inspect.Head, body string, events int) {
	req, err := Dialect{Denial: denial}.Request(inspect.Head{Method: "POST", Path: "/v1/chat/completions"}, []byte(`{"model":"m","messages":[]}`))
	if err != nil {
		b.Fatal(err)
	}
	out := make([]byte, 0, 2*len(body))
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	raw := []byte(body)
	for b.Loop() {
		if got := drive(b, req, head, raw, out[:0], 4096); len(got) != len(body) {
			b.Fatal("the answer changed")
		}
	}
	if events > 0 {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(events), "ns/event")
	}
}

func BenchmarkStreamText(b *testing.B) { benchTurn(b, streamHead, streamOf(1000, 0), 1002) }
func BenchmarkStreamCall(b *testing.B) { benchTurn(b, streamHead, streamOf(200, 20), 224) }

// BenchmarkStreamSlow is a stream of those events alone that no form fits.
func BenchmarkStreamSlow(b *testing.B) { benchTurn(b, streamHead, streamOf(0, 3), 7) }

func BenchmarkDocument(b *testing.B) {
	body := `{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		strings.Repeat("some words ", 70) + `","refusal":null,"annotations":[],"tool_calls":[{"id":"call_1","type":"function","function":{"name":"shell","arguments":"{\"command\":\"ls -la\",\"timeout\":30}"}}]},"logprobs":null,"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}`
	benchTurn(b, documentHead, body, 0)
}

func BenchmarkRequest(b *testing.B) {
	message := `{"role":"user","content":"` + strings.Repeat(`some \"quoted\" words of code;\n`, 60) + `"},`
	body := []byte(`{"model":"m","messages":[` + strings.TrimSuffix(strings.Repeat(message, 200_000/len(message)), ",") +
		`],"tools":[` + strings.TrimSuffix(strings.Repeat(`{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}},`, 20), ",") + `],"stream":true}`)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		r, err := Dialect{}.Request(inspect.Head{}, body)
		if err != nil || len(r.Info().Tools) != 20 {
			b.Fatal(err)
		}
	}
}

func TestPlainEventsNeedNoMemory(t *testing.T) {
	s := newStream(turn{lim: Dialect{}.Limits.Defaults(), lanesAsked: 1})
	out := make([]byte, 0, 1<<16)
	feed := func(p []byte) {
		if step, err := s.Feed(out[:0], p); err != nil || !bytes.Equal(step.Out, p) {
			t.Fatalf("%v: %q", err, step.Out)
		}
	}
	feed([]byte(textChunk("first")))
	event := []byte(strings.Repeat(textChunk("wörd \"x\"\n"), 8))
	if n := testing.AllocsPerRun(100, func() { feed(event) }); n > 1 {
		t.Errorf("%v allocations for eight events", n)
	}
}
