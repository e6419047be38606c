package gemini

import (
	"fmt"
	"strings"
	"testing"

	"callgate/inspect"
)

func textChunk(text string) string {
	return `{"candidates": [{"content": {"parts": [{"text": "` + text + `"}],"role": "model"},"index": 0}],"usageMetadata": {"promptTokenCount": 4,"candidatesTokenCount": 1,` +
		`"totalTokenCount": 5,"promptTokensDetails": [{"modality": "TEXT","tokenCount": 4}]},"modelVersion": "gemini-x","responseId": "abcDEF"}`
}

func textStream(n int) []byte {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "data: %s\r\n\r\n", textChunk(fmt.Sprintf(" word %d", i)))
	}
	return []byte(b.String())
}

func callStream(n int) []byte {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "data: %s\r\n\r\n", `{"candidates":[{"content":{"parts":[{"functionCall":{"name":"run_shell_command","args":{"command":"ls -la /tmp/`+fmt.Sprint(i)+`"}},"thoughtSignature":"`+
			strings.Repeat("QUJD", 100)+`"}],"role":"model"},"finishReason":"STOP","index":0}],"modelVersion":"gemini-x","responseId":"abcDEF"}`)
	}
	return []byte(b.String())
}

func benchmark(b *testing.B, body []byte) {
	for _, d := range []struct {
		name   string
		denial inspect.Denial
	}{{"text", inspect.DenialText}, {"repair", inspect.DenialRepair}} {
		b.Run(d.name, func(b *testing.B) {
			req, err := Dialect{Denial: d.denial}.Request(inspect.Head{Method: "POST", Path: "/v1beta/models/m:streamGenerateContent"}, []byte(`{"contents":[]}`))
			if err != nil {
				b.Fatal(err)
			}
			var dst []byte
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				turn, err := req.Open(inspect.Head{Status: 200, Header: map[string][]string{"Content-Type": {"text/event-stream"}}})
				if err != nil {
					b.Fatal(err)
				}
				for rest := body; len(rest) > 0; {
					n := min(4096, len(rest))
					step, err := turn.Feed(dst[:0], rest[:n])
					if err != nil {
						b.Fatal(err)
					}
					dst = step.Out
					for _, c := range step.Calls {
						if step, err = turn.Resolve(dst, c.Seq, inspect.Ruling{Release: true}); err != nil {
							b.Fatal(err)
						}
						dst = step.Out
					}
					rest = rest[n:]
				}
				if _, err := turn.EndRound(dst[:0], inspect.EndClean); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkTextEvents(b *testing.B) { benchmark(b, textStream(1000)) }

func BenchmarkCallEvents(b *testing.B) { benchmark(b, callStream(10)) }
