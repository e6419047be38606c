package detect

import (
	"errors"
	"io"
	"runtime"
	"strings"
)

// The limits of one Detect call. All work is counted in steps, so that a
// hostile text costs a bounded time; what goes over a limit is reported as
// Report.Limit and is never taken for harmless.
const (
	// MaxText is the most bytes of one action that are read.
	MaxText = 1 << 20
	// MaxSteps is the most steps all actions of one call may take. A statement,
	// a word, a part of a word and each 64 bytes of produced text are a step.
	MaxSteps = 600_000
	// MaxDepth is how deep commands may stand inside commands: substitutions,
	// wrappers, nested shells and function calls together.
	MaxDepth = 200
	// MaxFrames is how deep the parser may recurse, in Go's call frames. It is
	// looked at for each kilobyte that the parser reads.
	MaxFrames = 6000
	// MaxBraces is the most opening braces of one word outside quotes.
	MaxBraces = 64
	// MaxFields is the most words that one written word may become.
	MaxFields = 4096
	// MaxValue is the most bytes an expanded word may have. A longer one counts
	// as unknown.
	MaxValue = 1 << 20
	// MaxFindings is the most findings of one severity that are kept for one
	// call; the rest would only repeat the picture.
	MaxFindings = 50
)

// stop is thrown by budget.step when a limit is reached and caught by Detect.
type stop struct{ limit string }

// budget counts the work of one Detect call.
type budget struct {
	steps int
}

// step counts n steps and leaves the whole reading when there are too many.
func (b *budget) step(n int) {
	b.steps += n
	if b.steps > MaxSteps {
		panic(stop{"steps"})
	}
}

// enter goes one level deeper and gives the way back.
func (r *run) enter() {
	r.depth++
	if r.depth > MaxDepth {
		panic(stop{"depth"})
	}
}

func (r *run) leave() { r.depth-- }

// bytes counts the steps of producing n bytes of text.
func (b *budget) bytes(n int) { b.step(1 + n/64) }

var errDeep = errors.New("nested too deeply")

// guard hands a text to the parser, and ends it when the parser has recursed
// too deeply: the parser itself sets no limit to that. The first kilobytes
// cannot nest deep enough to matter.
type guard struct {
	strings.Reader
	r     *run
	reads int
}

func (g *guard) Read(p []byte) (int, error) {
	var pc [1]uintptr
	if g.reads++; g.reads > 2 && runtime.Callers(MaxFrames, pc[:]) > 0 {
		g.r.deep = true
		return 0, errDeep
	}
	return g.Reader.Read(p)
}

// reader gives a reader of s for the parser. There is one at a time: the parser
// has read a text to its end before anything in it is looked at.
func (r *run) reader(s string) io.Reader {
	r.guard.r, r.guard.reads = r, 0
	r.guard.Reset(s)
	return &r.guard
}
