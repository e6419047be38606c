package gate

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
)

// Mode says who is asked about a flagged call.
type Mode uint8

// The modes. The zero value asks a person.
const (
	Manual Mode = iota // a person
	Custom             // the hook, which may escalate to a person
	Off                // nobody: flagged calls run, hardline ones never
)

var modeWords = [...]string{"manual", "custom", "off"}

// String gives the mode's word, as the configuration writes it.
func (m Mode) String() string {
	if int(m) < len(modeWords) {
		return modeWords[m]
	}
	return fmt.Sprintf("mode%d", uint8(m))
}

// ParseMode reads a mode's word.
func ParseMode(word string) (Mode, error) {
	for i, w := range modeWords {
		if w == word {
			return Mode(i), nil
		}
	}
	return Manual, fmt.Errorf("gate: there is no mode %q; the modes are %s", word, strings.Join(modeWords[:], ", "))
}

// ParseVerdict reads a verdict's word.
func ParseVerdict(word string) (Verdict, error) {
	for i, w := range verdictWords {
		if w == word {
			return Verdict(i), nil
		}
	}
	return Deny, fmt.Errorf("gate: there is no verdict %q; the verdicts are %s", word, strings.Join(verdictWords[:], ", "))
}

// The limits that hold where Config says nothing.
const (
	// DefaultMaxArgs is the size of one call's arguments, in bytes.
	DefaultMaxArgs = 4 << 20
	// DefaultMaxActions is the number of actions in one call.
	DefaultMaxActions = 256
)

// Config holds what a Gate is built from. What is missing makes the gate
// stricter, never laxer.
type Config struct {
	// Mode says who is asked about a flagged call.
	Mode Mode
	// Detector finds danger; without one every call is denied.
	Detector Detector
	// Person asks a person; without one, a call that needs a person is denied
	// as unattended.
	Person Reviewer
	// Hook is asked in mode custom, where it must be there.
	Hook Reviewer
	// Audit keeps every decision; a decision that cannot be kept is a denial.
	Audit Auditor
	// UnauditedForTest permits a gate without Audit.
	UnauditedForTest bool
	// UnknownTools is what happens to a call of a tool of which only the name
	// and the arguments are known, when nothing else is found: denied, asked
	// about like a flagged call, or allowed.
	UnknownTools Verdict
	// Breaker is after how many denials within one task (Request.Denials) a
	// flagged call is denied without anybody being asked; 0 asks always.
	Breaker int
	// MaxArgs bounds the bytes of a call's arguments, MaxActions the number of
	// its actions; 0 means the default. A call beyond them is denied.
	MaxArgs, MaxActions int
	// Mask hides secrets in what the audit log gets; without it arguments and
	// words are left out of the log and only their digest stands there.
	Mask func(string) string
	// OnDecision hears every decision after it was recorded and before it is
	// carried out. It runs in the decision's way, so it must be quick, and may
	// not change what it is given.
	OnDecision func(*Request, Decision)
}

// Gate decides on calls. It is safe for concurrent use; Close it after the
// last Submit.
type Gate struct {
	c      Config
	closed chan struct{} // is closed: the Done of tickets that were never open

	// Everything that waits runs below life and is counted in running.
	life    context.Context
	end     context.CancelCauseFunc
	mu      sync.Mutex
	ended   bool
	running sync.WaitGroup
}

// New builds a Gate. An error names what is missing.
func New(c Config) (*Gate, error) {
	switch {
	case c.Audit == nil && !c.UnauditedForTest:
		return nil, errors.New("gate: there is no audit log, so no decision could be kept; give one")
	case c.Mode > Off:
		return nil, fmt.Errorf("gate: %s is not a mode; the modes are %s", c.Mode, strings.Join(modeWords[:], ", "))
	case c.Mode == Custom && c.Hook == nil:
		return nil, errors.New("gate: mode custom asks a hook and there is none; name its command or choose mode manual")
	case c.UnknownTools > Allow:
		return nil, fmt.Errorf("gate: %s is no verdict for unknown tools; use allow, ask or deny", c.UnknownTools)
	case c.MaxArgs < 0 || c.MaxActions < 0 || c.Breaker < 0:
		return nil, errors.New("gate: a limit is below zero; use 0 for the default")
	}
	if c.MaxArgs == 0 {
		c.MaxArgs = DefaultMaxArgs
	}
	if c.MaxActions == 0 {
		c.MaxActions = DefaultMaxActions
	}
	g := &Gate{c: c, closed: make(chan struct{})}
	close(g.closed)
	g.life, g.end = context.WithCancelCause(context.Background())
	return g, nil
}

// errClosing is why everything that waits ends when the gate is closed.
var errClosing = errors.New("callgate is shutting down")

// Close ends everything that waits (undecided calls are denied as cancelled)
// and returns when nothing of the gate runs any more. Questions that were put
// to a person stay open in the store.
func (g *Gate) Close() {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	g.end(errClosing)
	g.running.Wait()
}

// begin counts something that is going to wait; false after Close.
func (g *Gate) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return false
	}
	g.running.Add(1)
	return true
}

// caught turns what recover gave into a reason, which anybody may read, and the
// detail for operators with the panic and its place.
func caught(who string, v any) (reason, detail string) {
	return who + " failed from within", fmt.Sprintf("panic: %v%s", v, panicPlace(string(debug.Stack())))
}

// panicPlace finds the first line of a stack below the panic itself.
func panicPlace(stack string) string {
	_, below, ok := strings.Cut(stack, "panic(")
	if !ok {
		return ""
	}
	for i, l := range strings.Split(below, "\n") {
		// Lines 0 and 1 are the panic's own; the next tabbed one is a place.
		if file, ok := strings.CutPrefix(l, "\t"); ok && i > 1 && !strings.Contains(file, "/runtime/") {
			at, _, _ := strings.Cut(file[strings.LastIndexByte(file, '/')+1:], " ")
			return " at " + at
		}
	}
	return ""
}
