package detect

import (
	"strings"
	"testing"
)

// agentCommands are of the kind and length that coding agents run most.
var agentCommands = []string{
	"cd /home/dev/app && go test ./... 2>&1 | tail -40",
	"grep -rn 'func main' --include='*.go' . | head -20",
	"sed -n '1,120p' internal/server/handler.go",
	"git add -A && git commit -m 'server: close the body' && git status --short",
	"for f in $(git ls-files '*.go'); do gofmt -l \"$f\"; done",
	"npm install --save-dev typescript && npx tsc --noEmit",
	"cat > notes.md <<'EOF'\n# Notes\nRun make first.\nEOF\ncat notes.md",
	"find . -name '*.py' -not -path './venv/*' | xargs wc -l | sort -n",
	"curl -s http://localhost:8080/health | jq .status",
}

func BenchmarkAgentCommand(b *testing.B) {
	d := New(testWorld())
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		d.Detect(shellAction(agentCommands[i%len(agentCommands)]))
	}
}

func BenchmarkText128K(b *testing.B) {
	d := New(testWorld())
	texts := map[string]string{
		"here-document": "cat > big.txt <<'EOF'\n" + strings.Repeat("some text of a file, with (brackets) and 'quotes'\n", 2600) + "EOF\n",
		"commands":      strings.Repeat("echo one && ls -l src | head -3\n", 4000),
		"one-word":      "echo '" + strings.Repeat("x", 128<<10) + "'",
	}
	for name, c := range texts {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(c)))
			for b.Loop() {
				d.Detect(shellAction(c))
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		New(testWorld())
	}
}
