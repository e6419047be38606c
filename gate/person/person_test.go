package person

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"callgate/gate"
	"callgate/inspect/toolcall"
)

// bench is a Desk with its store and what people were told.
type bench struct {
	t     *testing.T
	desk  *Desk
	store *memory

	mu   sync.Mutex
	told []gate.Approval
	deaf error // Notify's answer
}

func newBench(t *testing.T, c Config) *bench {
	t.Helper()
	b := &bench{t: t, store: &memory{spends: map[string]int{}, complain: t.Errorf, fail: map[string]error{}, before: map[string]func(){}}}
	b.restart(c)
	return b
}

// restart replaces the Desk, as a new process would; the store stays.
func (b *bench) restart(c Config) {
	c.Store = b.store
	c.Mask = func(s string) string { return strings.ReplaceAll(s, "hunter2", "h…[7]") }
	if c.Notify == nil {
		c.Notify = func(_ context.Context, a gate.Approval) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.told = append(b.told, a)
			return b.deaf
		}
	}
	desk, err := New(c)
	if err != nil {
		b.t.Fatal(err)
	}
	b.desk = desk
}

func request(command string) *gate.Request {
	return &gate.Request{
		Call:     toolcall.Call{Name: "bash", Args: fmt.Appendf(nil, `{"command":%q}`, command)},
		Actions:  []toolcall.Action{{Kind: toolcall.KindCommand, Tool: "bash", Command: command}},
		Findings: []gate.Finding{{Rule: "fs.delete", Category: "fs", Reason: "deletes", Severity: gate.Danger, Words: command}},
		Agent:    "default", Principal: "p", Session: "p/s", Claimed: gate.Claims{Session: "s"}, Upstream: "openai", Model: "m", Trace: "tr",
	}
}

// client is one call that waits.
type client struct {
	left func()
	stop context.CancelCauseFunc
	op   chan gate.Opinion
}

func (b *bench) ask(r *gate.Request) *client {
	gone := make(chan struct{})
	ctx, stop := context.WithCancelCause(b.t.Context())
	c := &client{left: func() { close(gone) }, stop: stop, op: make(chan gate.Opinion, 1)}
	desk := b.desk
	go func() { c.op <- desk.Review(gate.WithLeft(ctx, gone), r) }()
	synctest.Wait()
	return c
}

// open is the newest question that people were told of.
func (b *bench) open() gate.Approval {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.told) == 0 {
		b.t.Fatal("nobody was told of a question")
	}
	return b.told[len(b.told)-1]
}

func (b *bench) answer(yes bool) gate.Approval {
	b.t.Helper()
	a, err := b.desk.Answer(b.t.Context(), b.open().ID, gate.Answer{Approve: yes, By: "ann", Reason: "because"})
	if err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
	return a
}

func (b *bench) questions(want int) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.told) != want {
		b.t.Errorf("people were told %d times, want %d", len(b.told), want)
	}
}

// idle checks that the Desk holds nothing any more.
func (b *bench) idle() {
	b.t.Helper()
	b.desk.mu.Lock()
	defer b.desk.mu.Unlock()
	if len(b.desk.open) > 0 || len(b.desk.byID) > 0 {
		b.t.Errorf("the desk still holds %d questions", len(b.desk.open)+len(b.desk.byID))
	}
}

func (b *bench) states(want map[gate.ApprovalState]int) {
	b.t.Helper()
	if got := b.store.states(); !maps.Equal(got, want) {
		b.t.Errorf("the store holds %v, want %v", got, want)
	}
}

// says checks what a client was told.
func (c *client) says(t *testing.T, v gate.Verdict, o gate.Outcome, reason string) gate.Opinion {
	t.Helper()
	synctest.Wait()
	select {
	case op := <-c.op:
		text := op.Reason
		if o == gate.StoreFailed || o == gate.NotifyFailed { // how, is for operators
			if text = op.Detail; op.Reason != "" {
				t.Errorf("the model would be told %q", op.Reason)
			}
		}
		if op.Verdict != v || op.Outcome != o || op.By != "person" || !strings.Contains(text, reason) {
			t.Errorf("got %s %s by %s: %s; want %s %s …%s…", op.Verdict, op.Outcome, op.By, text, v, o, reason)
		}
		if len(op.Steps) != 1 || op.Steps[0].Name != "wait" || op.Steps[0].Note != string(o) {
			t.Errorf("steps %+v", op.Steps)
		}
		return op
	default:
		t.Errorf("the call still waits; want %s %s", v, o)
		return gate.Opinion{}
	}
}

func (c *client) waits(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case op := <-c.op:
		t.Errorf("the call does not wait any more: %+v", op)
	default:
	}
}

// pass lets the bubble's time go by.
func pass(d time.Duration) { <-time.After(d) }

// scene runs f in a bubble of its own, on a Desk with the given times.
func scene(t *testing.T, c Config, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newBench(t, c)) })
}

func TestAYesAllowsOneCall(t *testing.T) {
	scene(t, Config{}, func(t *testing.T, b *bench) {
		c := b.ask(request("rm"))
		c.waits(t)
		id := b.answer(true).ID
		if op := c.says(t, gate.Allow, gate.Allowed, "allowed by ann: because"); op.Approval != id {
			t.Errorf("got %+v", op)
		}
		b.states(map[gate.ApprovalState]int{gate.StateSpent: 1})
		b.idle()
		next := b.ask(request("rm"))
		next.waits(t)
		b.questions(2)
		b.answer(false)
		next.says(t, gate.Deny, gate.Denied, "denied by ann: because")
		b.idle()
	})
}

func TestWhatPeopleAreShown(t *testing.T) {
	scene(t, Config{Timeout: time.Minute}, func(t *testing.T, b *bench) {
		r := request("rm hunter2")
		r.Why = "the hook is unsure about hunter2"
		r.Actions = append([]toolcall.Action{{Kind: toolcall.KindFile, Path: "/x"}}, r.Actions...)
		r.Findings[0].Action = 1
		c := b.ask(r)
		a := b.open()
		if a.State != gate.StatePending || a.Key != gate.ApprovalKey(r) || a.Digest != gate.Digest("bash", r.Call.Args) || a.Agent != "default" || a.Claimed != r.Claimed || a.Claimed.Session != "s" ||
			a.Tool != "bash" || a.Kind != "command" || a.Command != "rm h…[7]" || a.Args != `{"command":"rm h…[7]"}` || a.Why != "the hook is unsure about h…[7]" ||
			len(a.Findings) != 1 || a.Findings[0].Words != "rm h…[7]" || a.Upstream != "openai" || a.Model != "m" || a.Trace != "tr" || a.Expires.Sub(a.Created) != time.Minute {
			t.Errorf("shown: %+v", a)
		}
		if len(a.ID) != 8 || strings.Trim(a.ID, idLetters) != "" {
			t.Errorf("the id is %q", a.ID)
		}
		got, err := b.desk.Approval(t.Context(), a.ID)
		if err != nil || got.ID != a.ID {
			t.Errorf("Approval: %+v, %v", got, err)
		}
		b.answer(false)
		c.says(t, gate.Deny, gate.Denied, "")
	})
}

func TestNobodyAnswers(t *testing.T) {
	scene(t, Config{Timeout: time.Minute}, func(t *testing.T, b *bench) {
		c := b.ask(request("rm"))
		pass(time.Minute - 1)
		c.waits(t)
		pass(1)
		c.says(t, gate.Deny, gate.Timeout, "no person answered")
		b.states(map[gate.ApprovalState]int{gate.StateExpired: 1})
		b.idle()
		if a, err := b.desk.Answer(t.Context(), b.open().ID, gate.Answer{Approve: true}); !errors.Is(err, gate.ErrAnswered) || a.State != gate.StateExpired {
			t.Errorf("a late answer: %+v, %v", a, err)
		}
	})
}

// The answer is in the store and the clients are not woken yet when the time
// is over: the answer wins.
func TestAnAnswerJustBeforeTheEndWins(t *testing.T) {
	for _, yes := range []bool{true, false} {
		scene(t, Config{Timeout: time.Minute}, func(t *testing.T, b *bench) {
			c := b.ask(request("rm"))
			pass(time.Minute - 1)
			if _, err := b.store.AnswerApproval(t.Context(), b.open().ID, gate.Answer{Approve: yes, By: "ann"}, time.Now()); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
			if yes {
				c.says(t, gate.Allow, gate.Allowed, "ann")
			} else {
				c.says(t, gate.Deny, gate.Denied, "ann")
			}
			b.idle()
		})
	}
}

func TestTheFirstAnswerWins(t *testing.T) {
	scene(t, Config{}, func(t *testing.T, b *bench) {
		c := b.ask(request("rm"))
		b.answer(false)
		a, err := b.desk.Answer(t.Context(), b.open().ID, gate.Answer{Approve: true, By: "bob"})
		if !errors.Is(err, gate.ErrAnswered) || a.By != "ann" || a.State != gate.StateDenied {
			t.Errorf("got %+v, %v", a, err)
		}
		c.says(t, gate.Deny, gate.Denied, "ann")
		if _, err := b.desk.Answer(t.Context(), "none", gate.Answer{Approve: true}); !errors.Is(err, gate.ErrNotFound) {
			t.Errorf("an unknown id: %v", err)
		}
	})
}

func TestManyAnswersAtOnce(t *testing.T) {
	scene(t, Config{}, func(t *testing.T, b *bench) {
		c := b.ask(request("rm"))
		id := b.open().ID
		var wins, late int
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				_, err := b.desk.Answer(t.Context(), id, gate.Answer{Approve: i%2 == 0, By: fmt.Sprint(i)})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					wins++
				case errors.Is(err, gate.ErrAnswered):
					late++
				}
			})
		}
		all.Wait()
		if wins != 1 || late != 49 {
			t.Errorf("%d answers won, %d were late", wins, late)
		}
		synctest.Wait()
		if op := <-c.op; op.Verdict == gate.Allow != (b.store.states()[gate.StateSpent] == 1) {
			t.Errorf("got %+v with %v", op, b.store.states())
		}
	})
}

func TestTheSameCallSharesItsQuestion(t *testing.T) {
	scene(t, Config{}, func(t *testing.T, b *bench) {
		a, c := b.ask(request("rm")), b.ask(request("rm"))
		other := request("rm")
		other.Session = "p/s2"
		d := b.ask(other)
		b.questions(2) // one for each session
		id := b.store.list[0].ID
		if _, err := b.desk.Answer(t.Context(), id, gate.Answer{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*client{a, c} {
			if op := c.says(t, gate.Deny, gate.Denied, "ann"); op.Approval != id {
				t.Errorf("got %+v", op)
			}
		}
		d.waits(t)
	})
}

// One yes covers one call; each of the others needs its own.
func TestAYesCoversOneOfManyCalls(t *testing.T) {
	scene(t, Config{}, func(t *testing.T, b *bench) {
		const n = 20
		var all []*client
		for range n {
			all = append(all, b.ask(request("rm")))
		}
		for i := range n {
			b.questions(i + 1)
			b.answer(true)
			if got := b.store.states()[gate.StateSpent]; got != i+1 {
				t.Fatalf("after %d answers %d are used", i+1, got)
			}
		}
		for _, c := range all {
			c.says(t, gate.Allow, gate.Allowed, "ann")
		}
		for id, n := range b.store.spends {
			if n != 1 {
				t.Errorf("%s was used %d times", id, n)
			}
		}
		b.idle()
	})
}

func TestANoSticks(t *testing.T) {
	scene(t, Config{}, func(t *testing.T, b *bench) {
		c := b.ask(request("rm"))
		b.answer(false)
		c.says(t, gate.Deny, gate.Denied, "denied by ann")
		for range 3 {
			b.ask(request("rm")).says(t, gate.Deny, gate.Denied, "exactly this call was already denied by ann: because")
		}
		b.questions(1)
		for name, change := range map[string]func(*gate.Request){
			"other arguments": func(r *gate.Request) { r.Call.Args = []byte(`{"command":"rm -i"}`) },
			"other session":   func(r *gate.Request) { r.Session = "p/s2" },
			"other principal": func(r *gate.Request) { r.Principal = "q" },
		} {
			r := request("rm")
			change(r)
			if c := b.ask(r); len(c.op) > 0 {
				t.Errorf("%s: the no sticks to it", name)
			}
		}
		pass(stickyNo)
		b.ask(request("rm")).waits(t)
	})
}

func TestANoSticksAcrossARestart(t *testing.T) {
	scene(t, Config{}, func(t *testing.T, b *bench) {
		b.ask(request("rm"))
		b.answer(false)
		b.restart(Config{})
		if err := b.desk.Recall(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.ask(request("rm")).says(t, gate.Deny, gate.Denied, "exactly this call was already denied by ann: because")
		b.ask(request("mv")).waits(t)
		pass(stickyNo)
		b.restart(Config{})
		if err := b.desk.Recall(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.ask(request("rm")).waits(t)
	})
}

func TestNoesThatCannotBeReadBackAreAnError(t *testing.T) {
	b := newBench(t, Config{})
	b.store.fail["Approvals"] = errors.New("the disk is gone")
	if err := b.desk.Recall(t.Context()); err == nil || !strings.Contains(err.Error(), "denials that still hold: the disk is gone") {
		t.Errorf("got %v", err)
	}
}

func TestWithoutASessionANoSticksForAsLongAsAQuestion(t *testing.T) {
	scene(t, Config{Timeout: time.Minute}, func(t *testing.T, b *bench) {
		r := request("rm")
		r.Session, r.Claimed.Session = "", ""
		c := b.ask(r)
		b.answer(false)
		c.says(t, gate.Deny, gate.Denied, "")
		pass(time.Minute - 1)
		b.ask(r).says(t, gate.Deny, gate.Denied, "already")
		pass(1)
		b.ask(r).waits(t)
		b.questions(2)
	})
}

func TestRememberedNoesAreBounded(t *testing.T) {
	b := newBench(t, Config{})
	for i := range maxDenials + 10 {
		b.desk.remember(gate.Approval{Key: fmt.Sprint(i), Claimed: gate.Claims{Session: "s"}, Answered: time.Now()})
	}
	if n := len(b.desk.noes.byKey); n != maxDenials || len(b.desk.noes.order) != n {
		t.Errorf("%d noes are remembered", n)
	}
	if _, ok := b.desk.refusedBefore("3"); ok {
		t.Error("the oldest no was kept")
	}
	if _, ok := b.desk.refusedBefore(fmt.Sprint(maxDenials)); !ok {
		t.Error("a new no was forgotten")
	}
}

func TestTheHoldPasses(t *testing.T) {
	times := Config{Timeout: 10 * time.Minute, Hold: time.Minute}
	scene(t, times, func(t *testing.T, b *bench) {
		c := b.ask(request("rm"))
		pass(time.Minute)
		id := b.open().ID
		if op := c.says(t, gate.Deny, gate.Pending, "no person has answered"); op.Approval != id {
			t.Errorf("got %+v", op)
		}
		b.idle()
		b.states(map[gate.ApprovalState]int{gate.StatePending: 1})

		again := b.ask(request("rm")) // shares the question
		again.waits(t)
		b.questions(1)
		pass(time.Minute)
		again.says(t, gate.Deny, gate.Pending, "")

		b.answer(true)
		b.states(map[gate.ApprovalState]int{gate.StateApproved: 1})
		other := request("rm -i")
		c = b.ask(other) // the yes is for the other call
		c.waits(t)
		if op := b.ask(request("rm")).says(t, gate.Allow, gate.Allowed, "ann"); op.Approval != id {
			t.Errorf("got %+v", op)
		}
		b.ask(request("rm")).waits(t) // used up
	})
	scene(t, times, func(t *testing.T, b *bench) {
		c := b.ask(request("rm"))
		pass(9 * time.Minute)
		c.says(t, gate.Deny, gate.Pending, "")
		c = b.ask(request("rm"))
		pass(time.Minute) // the hold and the question end together
		c.says(t, gate.Deny, gate.Timeout, "")
		b.states(map[gate.ApprovalState]int{gate.StateExpired: 1})
	})
	scene(t, times, func(t *testing.T, b *bench) {
		b.ask(request("rm"))
		pass(9 * time.Minute)
		b.answer(true)
		pass(gate.YesLife) // the yes is too old
		b.ask(request("rm")).waits(t)
		b.questions(2)
	})
	scene(t, times, func(t *testing.T, b *bench) { // a yes in the last second has a life of its own
		c := b.ask(request("rm"))
		pass(10*time.Minute - time.Second)
		c.says(t, gate.Deny, gate.Pending, "")
		b.answer(true)
		pass(gate.YesLife - time.Second)
		b.ask(request("rm")).says(t, gate.Allow, gate.Allowed, "ann")
		b.ask(request("rm")).waits(t) // used up
	})
	scene(t, Config{Timeout: time.Hour, Hold: time.Minute}, func(t *testing.T, b *bench) { // an early one lasts as long as its question
		b.ask(request("rm"))
		pass(2 * time.Minute)
		b.answer(true)
		pass(57 * time.Minute)
		b.ask(request("rm")).says(t, gate.Allow, gate.Allowed, "ann")
	})
}

func TestTheClientLeaves(t *testing.T) {
	times := Config{Timeout: 10 * time.Minute, Grace: 2 * time.Minute}
	scene(t, times, func(t *testing.T, b *bench) { // and stays away
		c := b.ask(request("rm"))
		c.left()
		pass(2*time.Minute - 1)
		c.waits(t)
		b.states(map[gate.ApprovalState]int{gate.StatePending: 1})
		pass(1)
		c.says(t, gate.Deny, gate.Cancelled, "withdrawn")
		b.states(map[gate.ApprovalState]int{gate.StateWithdrawn: 1})
		b.idle()
		if a, err := b.desk.Answer(t.Context(), b.open().ID, gate.Answer{Approve: true}); !errors.Is(err, gate.ErrAnswered) || a.State != gate.StateWithdrawn {
			t.Errorf("a late answer: %+v, %v", a, err)
		}
	})
	scene(t, times, func(t *testing.T, b *bench) { // and comes back
		c := b.ask(request("rm"))
		c.left()
		pass(time.Minute)
		back := b.ask(request("rm"))
		b.questions(1)
		pass(5 * time.Minute)
		c.says(t, gate.Deny, gate.Cancelled, "went away")
		back.waits(t)
		b.questions(1)
		b.answer(true)
		back.says(t, gate.Allow, gate.Allowed, "ann")
		b.idle()
	})
	scene(t, times, func(t *testing.T, b *bench) { // and comes back after the yes
		c := b.ask(request("rm"))
		c.left()
		pass(time.Minute)
		b.answer(true)
		c.says(t, gate.Deny, gate.Cancelled, "the yes is kept")
		b.states(map[gate.ApprovalState]int{gate.StateApproved: 1})
		pass(time.Minute)
		b.ask(request("rm")).says(t, gate.Allow, gate.Allowed, "ann")
		b.questions(1)
	})
	scene(t, times, func(t *testing.T, b *bench) { // and a no comes meanwhile
		c := b.ask(request("rm"))
		c.left()
		b.answer(false)
		c.says(t, gate.Deny, gate.Denied, "ann")
	})
	scene(t, times, func(t *testing.T, b *bench) { // one of two
		a, c := b.ask(request("rm")), b.ask(request("rm"))
		a.left()
		a.says(t, gate.Deny, gate.Cancelled, "went away")
		pass(5 * time.Minute)
		c.waits(t)
		c.left()
		pass(2 * time.Minute)
		c.says(t, gate.Deny, gate.Cancelled, "withdrawn")
	})
	scene(t, times, func(t *testing.T, b *bench) { // comes back and leaves again: the grace starts anew
		a := b.ask(request("rm"))
		a.left()
		pass(90 * time.Second)
		c := b.ask(request("rm"))
		c.left()
		pass(90 * time.Second)
		a.says(t, gate.Deny, gate.Cancelled, "went away before")
		c.waits(t)
		b.states(map[gate.ApprovalState]int{gate.StatePending: 1})
		pass(time.Minute)
		c.says(t, gate.Deny, gate.Cancelled, "withdrawn")
	})
	scene(t, Config{Timeout: time.Minute, Grace: 2 * time.Minute}, func(t *testing.T, b *bench) { // the question ends before the grace
		c := b.ask(request("rm"))
		pass(30 * time.Second)
		c.left()
		pass(30 * time.Second)
		c.says(t, gate.Deny, gate.Timeout, "")
		b.states(map[gate.ApprovalState]int{gate.StateExpired: 1})
		b.idle()
	})
	scene(t, Config{Timeout: 10 * time.Minute, Hold: time.Minute, Grace: 2 * time.Minute}, func(t *testing.T, b *bench) { // another was told that it stays open
		a, c := b.ask(request("rm")), b.ask(request("rm"))
		pass(30 * time.Second)
		c.left()
		c.says(t, gate.Deny, gate.Cancelled, "")
		pass(30 * time.Second)
		a.says(t, gate.Deny, gate.Pending, "")
		pass(5 * time.Minute)
		b.states(map[gate.ApprovalState]int{gate.StatePending: 1})
		d := b.ask(request("rm"))
		d.left()
		pass(3 * time.Minute)
		d.says(t, gate.Deny, gate.Cancelled, "withdrawn")
	})
	scene(t, Config{Timeout: 10 * time.Minute, Hold: time.Minute, Grace: time.Minute}, func(t *testing.T, b *bench) { // another was told so before
		a := b.ask(request("rm"))
		pass(30 * time.Second)
		c := b.ask(request("rm"))
		pass(30 * time.Second)
		a.says(t, gate.Deny, gate.Pending, "")
		c.left()
		pass(5 * time.Minute)
		c.says(t, gate.Deny, gate.Cancelled, "went away before")
		b.states(map[gate.ApprovalState]int{gate.StatePending: 1})
	})
}

// A yes that comes while the client is leaving is not used up.
func TestAYesForAClientThatIsGone(t *testing.T) {
	scene(t, Config{}, func(t *testing.T, b *bench) {
		c := b.ask(request("rm"))
		b.store.first("AnswerApproval", c.left)
		b.answer(true)
		c.says(t, gate.Deny, gate.Cancelled, "")
		b.store.first("AnswerApproval", nil)
		b.ask(request("rm")).says(t, gate.Allow, gate.Allowed, "")
	})
	scene(t, Config{}, func(t *testing.T, b *bench) { // both at once
		c := b.ask(request("rm"))
		c.stop(nil)
		a := b.answer(true)
		end, gone := make(chan struct{}), make(chan struct{})
		close(end)
		close(gone)
		op, again := b.desk.ended(gate.WithLeft(t.Context(), gone), &question{end: end, final: a})
		if op.Outcome != gate.Cancelled || again || len(b.store.spends) > 0 {
			t.Errorf("got %+v, used %v", op, b.store.spends)
		}
	})
}

// A client that comes while a question is being withdrawn gets a new one.
func TestAClientThatComesDuringTheWithdrawal(t *testing.T) {
	scene(t, Config{Timeout: 10 * time.Minute, Grace: time.Minute}, func(t *testing.T, b *bench) {
		c := b.ask(request("rm"))
		c.left()
		late := &client{op: make(chan gate.Opinion, 1)}
		var once sync.Once
		b.store.first("CloseApproval", func() {
			once.Do(func() {
				go func() { late.op <- b.desk.Review(t.Context(), request("rm")) }()
				pass(1) // it joins meanwhile
			})
		})
		pass(time.Minute + 2)
		c.says(t, gate.Deny, gate.Cancelled, "withdrawn")
		late.waits(t)
		b.questions(2)
		b.answer(true)
		late.says(t, gate.Allow, gate.Allowed, "ann")
		b.idle()
	})
}

func TestARestart(t *testing.T) {
	scene(t, Config{}, func(t *testing.T, b *bench) {
		c := b.ask(request("rm"))
		c.stop(errors.New("closing"))
		if op := c.says(t, gate.Deny, gate.Cancelled, "was ended"); op.Detail != "closing" {
			t.Errorf("got %+v", op)
		}
		b.states(map[gate.ApprovalState]int{gate.StatePending: 1})
		b.idle()

		b.restart(Config{})
		c = b.ask(request("rm")) // finds its question again
		b.questions(1)
		c.stop(nil)
		c.says(t, gate.Deny, gate.Cancelled, "")
		b.answer(true) // without anybody waiting

		b.restart(Config{})
		c = b.ask(request("rm"))
		c.says(t, gate.Allow, gate.Allowed, "ann")
		b.restart(Config{})
		b.ask(request("rm")).waits(t)
		b.questions(2)
	})
	scene(t, Config{Timeout: time.Minute}, func(t *testing.T, b *bench) {
		b.ask(request("rm")).stop(nil)
		b.restart(Config{Timeout: time.Minute})
		pass(30 * time.Second)
		c := b.ask(request("rm"))
		pass(30 * time.Second) // the old question's time counts
		c.says(t, gate.Deny, gate.Timeout, "")
		b.states(map[gate.ApprovalState]int{gate.StateExpired: 1})
	})
	scene(t, Config{Timeout: time.Minute}, func(t *testing.T, b *bench) { // nobody waits, and the answer is late
		b.ask(request("rm")).stop(nil)
		pass(time.Minute)
		if a, err := b.desk.Answer(t.Context(), b.open().ID, gate.Answer{Approve: true}); !errors.Is(err, gate.ErrAnswered) || a.State != gate.StateExpired {
			t.Errorf("a late answer: %+v, %v", a, err)
		}
	})
}

func TestListsShowOnlyWhatCanBeAnswered(t *testing.T) {
	scene(t, Config{Timeout: time.Minute}, func(t *testing.T, b *bench) {
		b.ask(request("rm")).stop(nil)
		pass(30 * time.Second)
		b.ask(request("mv")).stop(nil)
		pass(30 * time.Second)
		list, err := b.desk.Approvals(t.Context(), gate.StatePending, 10)
		if err != nil || len(list) != 1 || list[0].Command != "mv" {
			t.Errorf("pending: %+v, %v", list, err)
		}
		list, err = b.desk.Approvals(t.Context(), "", 10)
		if err != nil || len(list) != 2 || list[0].Command != "mv" || list[1].State != gate.StateExpired {
			t.Errorf("all: %+v, %v", list, err)
		}
		b.states(map[gate.ApprovalState]int{gate.StateExpired: 1, gate.StatePending: 1})
		if _, err := b.desk.Approval(t.Context(), "none"); !errors.Is(err, gate.ErrNotFound) {
			t.Errorf("an unknown id: %v", err)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	whole := Config{Store: &memory{}, Notify: func(context.Context, gate.Approval) error { return nil }, Mask: func(s string) string { return s }}
	for name, change := range map[string]func(*Config){
		"no store":         func(c *Config) { c.Store = nil },
		"no notice":        func(c *Config) { c.Notify = nil },
		"no mask":          func(c *Config) { c.Mask = nil },
		"negative timeout": func(c *Config) { c.Timeout = -1 },
		"negative hold":    func(c *Config) { c.Hold = -1 },
		"negative grace":   func(c *Config) { c.Grace = -1 },
	} {
		c := whole
		change(&c)
		if d, err := New(c); err == nil || d != nil {
			t.Errorf("%s: got %v, %v", name, d, err)
		}
	}
	d, err := New(whole)
	if err != nil || d.c.Timeout != DefaultTimeout || d.c.Hold != DefaultTimeout || d.c.Grace != DefaultGrace {
		t.Errorf("got %+v, %v", d.c, err)
	}
}

// Whatever happens in whatever order: every call ends, each yes lets at most
// one call through, and no call runs without one.
func TestNoYesIsUsedTwice(t *testing.T) {
	for seed := range uint64(150) {
		scene(t, Config{Timeout: time.Minute, Hold: 40 * time.Second, Grace: 20 * time.Second}, func(t *testing.T, b *bench) {
			rng := rand.New(rand.NewPCG(seed, 7))
			var clients []*client
			leavers := map[*client]bool{}
			for range 60 {
				switch rng.IntN(6) {
				case 0, 1:
					r := request([]string{"rm", "mv"}[rng.IntN(2)])
					clients = append(clients, b.ask(r))
				case 2:
					if len(clients) > 0 {
						if c := clients[rng.IntN(len(clients))]; !leavers[c] {
							leavers[c] = true
							c.left()
						}
					}
				case 3, 4:
					list, err := b.desk.Approvals(t.Context(), gate.StatePending, 5)
					if err != nil {
						t.Fatal(err)
					}
					for _, a := range list {
						if _, err := b.desk.Answer(t.Context(), a.ID, gate.Answer{Approve: rng.IntN(8) > 0}); err != nil && !errors.Is(err, gate.ErrAnswered) {
							t.Fatal(err)
						}
					}
				case 5:
					pass(time.Duration(rng.IntN(30)) * time.Second)
				}
			}
			pass(3 * time.Minute)
			synctest.Wait()
			allowed := map[string]int{}
			for _, c := range clients {
				select {
				case op := <-c.op:
					if op.Verdict == gate.Allow {
						allowed[op.Approval]++
					}
				default:
					t.Fatalf("seed %d: a call never ended", seed)
				}
			}
			for id, n := range allowed {
				if n > 1 || b.store.spends[id] != 1 {
					t.Errorf("seed %d: %s let %d calls through and was used %d times", seed, id, n, b.store.spends[id])
				}
			}
			if len(allowed) != len(b.store.spends) {
				t.Errorf("seed %d: %d calls ran, %d yeses were used", seed, len(allowed), len(b.store.spends))
			}
			b.idle()
		})
	}
}
