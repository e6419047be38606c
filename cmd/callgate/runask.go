package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"callgate/gate"
	"callgate/gate/redact"
)

// The places where questions can be answered.
const (
	askOther = "other" // another terminal
	askTTY   = "tty"   // the agent's own terminal, taken over for the moment
	askNone  = "none"  // nowhere
)

// errNobody closes a question at once.
var errNobody = errors.New("nobody is there to be asked (callgate run --ask none)")

// asker puts questions to people while an agent runs.
type asker struct {
	place string
	tty   *terminal // nil where there is none
	child *child    // set before start
	log   *slog.Logger
	// people writes questions and decisions to the log.
	people *people
	// answer records a person's word, and look reads a question again.
	answer func(ctx context.Context, id string, a gate.Answer) (gate.Approval, error)
	look   func(ctx context.Context, id string) (gate.Approval, error)
	style  style
	// by is who answers at the terminal.
	by string

	queue chan gate.Approval
	// closed says that the terminal is not to be used any more.
	closed atomic.Bool
}

// questionQueue is how many questions may wait for the terminal.
const questionQueue = 64

// start begins to put questions; the function it returns ends that.
func (a *asker) start(ctx context.Context) (stop func()) {
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case q := <-a.queue:
				a.atTerminal(ctx, q)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// notify is told of a new question.
func (a *asker) notify(ctx context.Context, q gate.Approval) error {
	if a.place == askNone {
		return errNobody
	}
	if err := a.people.ask(ctx, q); err != nil {
		a.log.Warn("the question could not be logged", "reason", err.Error())
	}
	if a.place != askTTY {
		a.bell()
		return nil
	}
	select {
	case a.queue <- q:
		return nil
	default:
		return errors.New("too many questions wait for the terminal")
	}
}

// bell rings on the terminal, which leaves the agent's screen as it is.
func (a *asker) bell() {
	if a.tty != nil {
		_, _ = a.tty.f.WriteString("\a") // a bell that nobody hears is no loss
	}
}

// atTerminal asks one question where the agent runs. Where the terminal cannot
// be had the question stays open for another one.
func (a *asker) atTerminal(ctx context.Context, q gate.Approval) {
	if now, err := a.look(ctx, q.ID); err == nil && now.State != gate.StatePending {
		return // it was answered or has run out while others were asked
	}
	if a.closed.Load() {
		return
	}
	undo, err := a.child.pause()
	if err != nil {
		a.log.Warn("a question cannot be asked at this terminal; answer it from another one", "approval", q.ID, "reason", err.Error())
		a.bell()
		return
	}
	ans, interrupted := a.ask(ctx, q)
	undo()
	if interrupted {
		a.child.pass(syscall.SIGINT)
	}
	if ans == nil {
		return
	}
	if _, err := a.answer(context.WithoutCancel(ctx), q.ID, *ans); err != nil {
		a.log.Warn("an answer came too late", "approval", q.ID, "reason", err.Error())
	}
}

// terminalLines is how much of a call is shown at the terminal; what is longer
// must be read elsewhere before a yes.
const terminalLines = 200

// ask shows a question at the terminal and reads the answer. It gives no answer
// where the question ended in another way, and tells of a Ctrl-C.
func (a *asker) ask(ctx context.Context, q gate.Approval) (ans *gate.Answer, interrupted bool) {
	restore, err := a.tty.keys()
	if err != nil {
		a.log.Warn("the terminal cannot be read; answer the question from another one", "approval", q.ID, "reason", err.Error())
		return nil, false
	}
	defer restore()
	wide := a.tty.columns()
	whole, word := a.print(q, wide), answerWord()
	var line []byte
	next := time.Now()
	for {
		if !time.Now().Before(next) {
			if ctx.Err() != nil || a.closed.Load() {
				a.say("callgate is ending")
				return nil, false
			}
			now, err := a.look(ctx, q.ID)
			if err == nil && now.State != gate.StatePending {
				a.say(ended(now))
				return nil, false
			}
			if !time.Now().Before(q.Expires) {
				a.say("no answer in time: denied")
				return nil, false
			}
			a.prompt(q, whole, word, line)
			next = time.Now().Add(time.Second)
		}
		b, err := a.tty.key()
		if err != nil {
			a.say("the terminal is gone")
			return nil, false
		}
		for _, c := range b {
			switch c {
			case 3: // Ctrl-C
				a.say("interrupted: denied")
				return &gate.Answer{By: a.by, Reason: "interrupted at the question"}, true
			case 4: // Ctrl-D
				line = nil
				fallthrough
			case '\r', '\n':
				if whole && isYes(string(line)) { // who means it sees what to type
					line, next = nil, time.Now()
					continue
				}
				yes := whole && strings.EqualFold(strings.TrimSpace(string(line)), word)
				a.say(map[bool]string{true: "allowed, once", false: "denied"}[yes])
				return &gate.Answer{Approve: yes, By: a.by}, false
			case 8, 127:
				if len(line) > 0 {
					line = line[:len(line)-1]
				}
				next = time.Now()
			default:
				if c >= ' ' && c < 127 && len(line) < 16 {
					line = append(line, c)
					next = time.Now()
				}
			}
		}
	}
}

// answerWord is what a yes to one question must be. A program can put keys into
// the terminal that it runs at (TIOCSTI), but not read what is written there:
// what stands on the screen is known to whoever sees it alone.
func answerWord() string {
	const letters = "abcdefghjkmnpqrstuvwxyz" // none that looks like a digit
	var b [5]byte
	rand.Read(b[:]) // never fails: it ends the process instead
	for i, c := range b {
		b[i] = letters[int(c)%len(letters)]
	}
	return string(b[:])
}

// isYes tells that somebody types what is a yes elsewhere.
func isYes(s string) bool {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "y", "yes":
		return true
	}
	return false
}

// ended says how a question ended without this terminal.
func ended(a gate.Approval) string {
	switch a.State {
	case gate.StateApproved, gate.StateDenied:
		return fmt.Sprintf("%s by %s", a.State, redact.Visible(a.By))
	}
	return string(a.State) + ": denied"
}

// print shows the call in a frame of callgate's own and reports whether all of
// it could be seen.
func (a *asker) print(q gate.Approval, wide int) (whole bool) {
	var b strings.Builder
	rule := strings.Repeat("─", max(min(wide, questionWidth)-utf8.RuneCountInString("── callgate "), 1))
	fmt.Fprintf(&b, "\r\n%s\n", a.style.yellow("── callgate "+rule))
	fmt.Fprintf(&b, "%s %s: agent %s wants to use %s\n", a.style.yellow("question"), a.style.bold(q.ID), redact.Visible(q.Agent), redact.Visible(q.Tool))
	call, more := framed(callText(q), wide, terminalLines)
	for _, l := range call {
		b.WriteString(l + "\n")
	}
	line := func(name, text string) { fmt.Fprintf(&b, "  %s %s\n", a.style.dim(fmt.Sprintf("%-6s", name)), text) }
	var said []string
	for _, f := range q.Findings {
		why := fmt.Sprintf("%s (%s)", f.Reason, f.Rule)
		if !slices.Contains(said, why) { // the same command may stand in two arguments
			line("why", hanging(why, wide))
			said = append(said, why)
		}
	}
	if q.Why != "" {
		line("asks", hanging(q.Why, wide))
	}
	if more > 0 {
		line("more", fmt.Sprintf("%d lines are not shown; a yes needs all of it:", more))
		line("", a.people.command("show", q.ID))
	}
	a.write(b.String())
	return more == 0
}

// prompt draws the line of the answer anew.
func (a *asker) prompt(q gate.Approval, whole bool, word string, line []byte) {
	ask := "type " + word + " to allow it once, Enter to deny it"
	if !whole {
		ask = "press Enter to deny it"
	}
	a.write(fmt.Sprintf("\r\x1b[K  %s %s  %s", a.style.bold(ask), a.style.dim("("+span(time.Until(q.Expires))+" left)"), line))
}

// say ends the frame with what became of the question.
func (a *asker) say(what string) {
	rule := strings.Repeat("─", 20)
	a.write(fmt.Sprintf("\r\x1b[K  %s\n%s\n", what, a.style.yellow("── callgate "+rule)))
}

// write puts text on the terminal. A terminal that does not take it takes no
// answer either.
func (a *asker) write(s string) {
	_, _ = a.tty.f.WriteString(strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n"))
}

// columns is the width of the terminal.
func (t *terminal) columns() int {
	if ws, err := unix.IoctlGetWinsize(int(t.f.Fd()), unix.TIOCGWINSZ); err == nil && ws.Col > 0 {
		return int(ws.Col)
	}
	return questionWidth
}

// keys makes the terminal give every key at once, without an echo and without
// signals, and forgets what was typed before: that was not meant as an answer.
func (t *terminal) keys() (restore func(), err error) {
	fd := int(t.f.Fd())
	was, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return nil, err
	}
	set := *was
	set.Lflag &^= unix.ICANON | unix.ECHO | unix.ISIG | unix.IEXTEN
	set.Iflag &^= unix.IXON
	set.Cc[unix.VMIN], set.Cc[unix.VTIME] = 0, 2 // a read ends after 0.2 s
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	if err := unix.IoctlSetTermios(fd, setTermios, &set); err != nil {
		return nil, err
	}
	flushInput(fd)
	return func() {
		flushInput(fd)
		_ = unix.IoctlSetTermios(fd, setTermios, was) // nobody could be told
	}, nil
}

// key reads what was typed, nothing after a moment of silence.
func (t *terminal) key() ([]byte, error) {
	var b [64]byte
	start := time.Now()
	n, err := unix.Read(int(t.f.Fd()), b[:])
	if n == 0 && time.Since(start) < 50*time.Millisecond {
		time.Sleep(100 * time.Millisecond) // a terminal that was hung up never waits
	}
	if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return b[:n], nil
}
