package anthropic

import (
	"fmt"
	"strings"
	"testing"

	"callgate/inspect"
	"callgate/inspect/digest"
)

// longHistory is a body of so many messages of about 5 KB each, and ten mends
// spread over its answers.
func longHistory(messages int) ([]byte, map[int]inspect.Mend) {
	var b strings.Builder
	line := `if err := run(ctx, \"git status\"); err != nil {\n\treturn fmt.Errorf(\"status: %w\", err)\n}\n` + strings.Repeat("plain words of a file that was read, ", 4)
	text := strings.Repeat(line, 5000/len(line))
	b.WriteString(`{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"go on"}`)
	for i := 1; i < messages-1; i += 2 {
		fmt.Fprintf(&b, `,{"role":"assistant","content":[{"type":"text","text":"%s"},{"type":"tool_use","id":"toolu_%d","name":"Read","input":{"file_path":"/tmp/%d"}}]}`, text, i, i)
		fmt.Fprintf(&b, `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_%d","content":"%s"}]}`, i, text)
	}
	b.WriteString(`],"stream":true}`)
	mends := map[int]inspect.Mend{}
	units := (messages - 1) / 2
	for k := range 10 {
		i := k * units / 10
		at := 2*i + 1
		mends[i] = inspect.Mend{Rounds: []inspect.Round{{
			Message: fmt.Appendf(nil, `{"role":"assistant","content":[{"type":"text","text":"%s"},{"type":"tool_use","id":"toolu_%d","name":"Read","input":{"file_path":"/tmp/%d"}},{"type":"tool_use","id":"toolu_x%d","name":"Bash","input":{"command":"rm -rf /"}}]}`, text, at, at, at),
			Calls:   []string{fmt.Sprintf("toolu_%d", at), fmt.Sprintf("toolu_x%d", at)}, Refusals: []inspect.Refusal{{Call: 1, Text: "[callgate] It did not run."}},
		}}}
	}
	return []byte(b.String()), mends
}

func BenchmarkHistory(b *testing.B) {
	for _, n := range []int{100, 200, 400, 800} {
		body, mends := longHistory(n)
		req, err := Dialect{}.Request(inspect.Head{}, body)
		if err != nil {
			b.Fatal(err)
		}
		r := req.(interface {
			History() (inspect.History, error)
		})
		b.Run(fmt.Sprintf("%d messages, walk and edit", n), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			dst := make([]byte, 0, 2*len(body))
			for b.Loop() {
				h, err := r.History()
				if err != nil {
					b.Fatal(err)
				}
				ids := 0
				for _, u := range h.Units() {
					ids += len(u.Calls)
				}
				if dst, err = h.Edit(dst[:0], mends); err != nil || ids == 0 {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("%d messages, all digests", n), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				h, err := r.History()
				if err != nil {
					b.Fatal(err)
				}
				var d digest.Digest
				for i := range h.Units() {
					d = h.All(i)
				}
				_ = d
			}
		})
	}
}
