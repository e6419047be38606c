package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"callgate/gate"
	"callgate/inspect/strictjson"
)

// The bounds of what is read from a hook.
const (
	maxOutput = 1 << 20 // of standard output; more is a failure
	maxErrors = 4 << 10 // of standard error; the rest is not kept
	// maxMessage bounds the message taken from standard error, in runes.
	maxMessage = 400
)

// closeTime is how long standard output may stay open after the hook has
// ended, held by a process that it left behind.
const closeTime = time.Second

// result is how one run ended.
type result struct {
	out, errs []byte
	overflow  bool
	late      bool
	err       error // of exec: how the process ended, or why it did not start
}

// busyTime is how long to wait for a program that somebody is just writing.
const busyTime = 10 * time.Millisecond

// run runs the hook. A program that is being replaced cannot be started for a
// moment; that moment is waited for, within the hook's time.
func (h *Hook) run(ctx context.Context, in []byte) result {
	for {
		res := h.once(ctx, in)
		if !errors.Is(res.err, syscall.ETXTBSY) {
			return res
		}
		select {
		case <-ctx.Done():
			return res
		case <-time.After(busyTime):
		}
	}
}

// once starts the hook, gives it its input and waits for its end. When it
// returns, the hook's process group is gone.
func (h *Hook) once(ctx context.Context, in []byte) result {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	out := capped{limit: maxOutput, full: stop}
	errs := capped{limit: maxErrors, full: func() {}}
	cmd := h.command(ctx)
	// On Linux the hook ends when the thread that started it does, so that the
	// death of callgate is its death. The thread must outlive the hook: it stays
	// with this goroutine until then.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// A hook that does not read its input blocks nobody: exec writes it from
	// a goroutine of its own, which ends with the process.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &errs
	cmd.WaitDelay = closeTime
	ownGroup(cmd)
	err := cmd.Run()
	killGroup(cmd)
	return result{out: out.b, errs: errs.b, overflow: out.over, err: err,
		late: errors.Is(ctx.Err(), context.DeadlineExceeded)}
}

// capped keeps what is written to it up to a limit and drops the rest.
type capped struct {
	b     []byte
	limit int
	over  bool
	full  func() // is called when the limit is passed
}

// Write never fails, so that a hook that talks too much still ends by itself.
func (c *capped) Write(p []byte) (int, error) {
	room := c.limit - len(c.b)
	if len(p) > room {
		c.b = append(c.b, p[:room]...)
		c.over = true
		c.full()
		return len(p), nil
	}
	c.b = append(c.b, p...)
	return len(p), nil
}

// badAnswer is how a hook failed that answered outside the contract.
const badAnswer = "the hook's answer is not one that can be accepted"

// opinion reads the result by the contract.
func (r result) opinion(timeout time.Duration) gate.Opinion {
	ans, parseErr := parse(r.out)
	var exit *exec.ExitError
	switch {
	case r.overflow:
		return failed("the hook printed too much", fmt.Sprintf("more than %d bytes%s", maxOutput, behind(r.errors())))
	case r.late:
		return failed("the hook timed out", fmt.Sprintf("no answer within %s%s", timeout, behind(r.errors())))
	case errors.Is(r.err, exec.ErrWaitDelay):
		return failed("the hook left a process behind", "it ended, and a process that it had started kept its output open"+behind(r.errors()))
	case errors.As(r.err, &exit) && exit.ExitCode() == 2:
		return gate.Opinion{Outcome: gate.Denied, Reason: firstOf(ans.Reason, r.message())}
	case errors.As(r.err, &exit) && exit.ExitCode() > 0:
		return failed(fmt.Sprintf("the hook ended with exit code %d", exit.ExitCode()), r.errors())
	case errors.As(r.err, &exit):
		return failed("the hook crashed", exit.String()+behind(r.errors()))
	case r.err != nil:
		return failed(cannotStart, r.err.Error())
	case parseErr != nil:
		return failed(badAnswer, parseErr.Error()+behind(r.errors()))
	}
	op := gate.Opinion{Reason: ans.Reason}
	switch ans.Decision {
	case "approve":
		op.Verdict = gate.Allow
	case "escalate":
		op.Verdict = gate.Ask
	case "deny":
		op.Outcome = gate.Denied
	default:
		return failed(badAnswer, fmt.Sprintf("its decision is %.40q; only approve, deny and escalate are decisions", ans.Decision))
	}
	return op
}

func firstOf(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func behind(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}

// errors is what was kept of standard error.
func (r result) errors() string {
	return strings.TrimSpace(strings.ToValidUTF8(string(r.errs), ""))
}

// message is the beginning of standard error, as the reason of a denial.
func (r result) message() string {
	s := r.errors()
	if utf8.RuneCountInString(s) <= maxMessage {
		return s
	}
	return string([]rune(s)[:maxMessage])
}

// answer is what a hook prints.
type answer struct {
	Decision string
	Reason   string
}

// known are the keys of an answer.
var known = strictjson.Keys("decision", "reason")

// parse reads an answer: exactly one JSON object with exactly these keys.
func parse(out []byte) (answer, error) {
	var a answer
	if len(bytes.TrimSpace(out)) == 0 {
		return a, errors.New("it is empty")
	}
	if err := strictjson.Object(out, strictjson.Options{Depth: 8, Known: known}); err != nil {
		return a, err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(out, &keys); err != nil {
		return a, err
	}
	for key, raw := range keys {
		var into *string
		switch key {
		case "decision":
			into = &a.Decision
		case "reason":
			into = &a.Reason
		default:
			return answer{}, fmt.Errorf("the key %.40q does not belong there; only decision and reason do", key)
		}
		if raw[0] != '"' {
			return answer{}, fmt.Errorf("%s is not a string", key)
		}
		if err := json.Unmarshal(raw, into); err != nil {
			return answer{}, fmt.Errorf("%s: %w", key, err)
		}
	}
	if _, ok := keys["decision"]; !ok {
		return answer{}, errors.New("it holds no decision")
	}
	return a, nil
}
