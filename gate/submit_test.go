package gate

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"callgate/inspect/toolcall"
)

type auditFunc func(Entry, bool) error

func (f auditFunc) Record(_ context.Context, e Entry, durable bool) error { return f(e, durable) }

// auditLog keeps entries in memory.
type auditLog struct {
	mu      sync.Mutex
	entries []Entry
	durable []bool
}

func (l *auditLog) Record(ctx context.Context, e Entry, durable bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	l.entries, l.durable = append(l.entries, e), append(l.durable, durable)
	return nil
}

// waits is a reviewer that says what comes from its channel, or Cancelled.
type waits chan Opinion

func (w waits) Review(ctx context.Context, _ *Request) Opinion {
	select {
	case op := <-w:
		return op
	case <-ctx.Done():
		return Opinion{Outcome: Cancelled, Reason: context.Cause(ctx).Error()}
	}
}

func isDone(t *Ticket) bool {
	select {
	case <-t.Done():
		return true
	default:
		return false
	}
}

func TestATicketThatNeedsNobodyIsDoneAtOnce(t *testing.T) {
	g := newGate(t, Config{Detector: marker{}, Person: noOne(t, "the person")})
	for command, want := range map[string]Verdict{"ls": Allow, "HARD": Deny, "DEEP": Deny} {
		tk := g.Submit(t.Context(), call(command))
		if !isDone(tk) || tk.Decision().Verdict != want {
			t.Errorf("%s: done %v, %+v", command, isDone(tk), tk.Decision())
		}
		tk.Leave() // harmless
		tk.Leave()
	}
	if tk := newGate(t, Config{Detector: marker{}}).Submit(t.Context(), call("BAD")); !isDone(tk) || tk.Decision().Outcome != Unattended {
		t.Error("without a person a flagged call was left open")
	}
}

func TestAnOpenTicketDeniesUntilItIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		person := make(waits)
		g := newGate(t, Config{Detector: marker{}, Person: person})
		tk := g.Submit(t.Context(), call("BAD"))
		synctest.Wait()
		if isDone(tk) || tk.Decision().Verdict != Deny {
			t.Fatalf("done %v, %+v", isDone(tk), tk.Decision())
		}
		person <- Opinion{Verdict: Allow}
		<-tk.Done()
		if d := tk.Decision(); d.Verdict != Allow {
			t.Errorf("got %+v", d)
		}
	})
}

func TestTheZeroTicketDenies(t *testing.T) {
	var tk Ticket
	tk.Leave()
	if isDone(&tk) || tk.Decision().Verdict != Deny {
		t.Error("the zero ticket is done or allows")
	}
}

type valueKey struct{}

func TestTheEndOfTheCallersContextDoesNotEndAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		g := newGate(t, Config{Detector: marker{}, Person: ReviewerFunc(func(ctx context.Context, _ *Request) Opinion {
			if ctx.Value(valueKey{}) != "trace" {
				t.Error("the context lost its values")
			}
			select {
			case <-ctx.Done():
				t.Error("the question ended with the caller's context")
			case <-release:
			}
			return Opinion{Verdict: Allow}
		})})
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "trace"))
		tk := g.Submit(ctx, call("BAD"))
		cancel()
		synctest.Wait()
		close(release)
		<-tk.Done()
		if d := tk.Decision(); d.Verdict != Allow {
			t.Errorf("got %+v", d)
		}
	})
}

func TestLeaveReachesTheReviewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &auditLog{}
		g := newGate(t, Config{Detector: marker{}, Audit: log, Person: ReviewerFunc(func(ctx context.Context, _ *Request) Opinion {
			<-Left(ctx)
			return Opinion{Verdict: Allow, Approval: "q1"}
		})})
		tk := g.Submit(t.Context(), call("BAD"))
		synctest.Wait()
		if isDone(tk) {
			t.Fatal("the reviewer was told too early")
		}
		tk.Leave()
		tk.Leave()
		<-tk.Done()
		if d := tk.Decision(); d.Verdict != Deny || d.Outcome != Cancelled || d.Approval != "q1" {
			t.Errorf("a call nobody waits for was decided %+v", d)
		}
		if e := log.entries; len(e) != 1 || e[0].Outcome != Cancelled {
			t.Errorf("recorded %+v", e)
		}
	})
}

func TestLeftIsNeverWhereNobodySaidSo(t *testing.T) {
	if Left(t.Context()) != nil || hasLeft(t.Context()) {
		t.Error("a context without a client has lost it")
	}
}

func TestDecideEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan struct{})
		g := newGate(t, Config{Detector: marker{}, Person: ReviewerFunc(func(ctx context.Context, _ *Request) Opinion {
			<-Left(ctx)
			close(told)
			return Opinion{Verdict: Allow}
		})})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		d := g.Decide(ctx, call("BAD"))
		if d.Verdict != Deny || d.Outcome != Cancelled {
			t.Errorf("got %+v", d)
		}
		<-told
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, Config{Detector: marker{}, Person: make(waits)})
		var open []*Ticket
		for range 20 {
			open = append(open, g.Submit(t.Context(), call("BAD")))
		}
		synctest.Wait()
		g.Close()
		for _, tk := range open {
			if !isDone(tk) {
				t.Fatal("Close left a ticket open")
			}
			if d := tk.Decision(); d.Verdict != Deny || d.Outcome != Cancelled || !strings.Contains(d.Reason, "shutting down") {
				t.Errorf("got %+v", d)
			}
		}
		late := g.Submit(t.Context(), call("BAD"))
		if d := late.Decision(); !isDone(late) || d.Verdict != Deny || d.Outcome != Cancelled {
			t.Errorf("after Close: %+v", d)
		}
		g.Close()
	})
}

// The bytes of a request may be used again as soon as Submit returns.
func TestSubmitKeepsNothingOfTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &auditLog{}
		start := make(chan struct{})
		var shown string
		g := newGate(t, Config{Detector: marker{}, Audit: log, Mask: func(s string) string { return s }, Person: ReviewerFunc(func(_ context.Context, r *Request) Opinion {
			<-start
			shown = string(r.Call.Args) + string(r.Actions[0].Content) + string(r.Siblings[0].Args)
			return Opinion{}
		})})
		r := call("BAD")
		r.Actions[0].Content = []byte("content")
		r.Siblings = []toolcall.Call{{Name: "other", Args: []byte("{}")}}
		want := string(r.Call.Args) + "content{}"
		digest := Digest(r.Call.Name, r.Call.Args)
		tk := g.Submit(t.Context(), r)
		clear(r.Call.Args)
		clear(r.Actions[0].Content)
		clear(r.Siblings[0].Args)
		r.Actions[0].Command = "ls"
		close(start)
		<-tk.Done()
		if shown != want {
			t.Errorf("the person was shown %q, want %q", shown, want)
		}
		if log.entries[0].Digest != digest || !strings.Contains(log.entries[0].Args, "BAD") {
			t.Errorf("recorded %+v", log.entries[0])
		}
	})
}

func TestWhatIsRecorded(t *testing.T) {
	log := &auditLog{}
	g := newGate(t, Config{Detector: marker{}, Audit: log, Person: says(Opinion{Verdict: Allow, Approval: "q9"}),
		Mask: func(s string) string { return strings.ReplaceAll(s, "hunter2", "h…[7]") }})
	r := with(call("BAD hunter2"), func(r *Request) { r.Model, r.Turn, r.Trace = "m", "t1", "abc" })
	g.Decide(t.Context(), r)
	g.Decide(t.Context(), call("ls"))
	g.Decide(t.Context(), call("HARD"))
	if len(log.entries) != 3 {
		t.Fatalf("%d entries", len(log.entries))
	}
	e := log.entries[0]
	if e.Verdict != "allow" || e.Outcome != Allowed || e.By != "person" || e.Rule != "t.bad" || e.Approval != "q9" ||
		e.Agent != "default" || e.Principal != "p1" || e.Claimed != (Claims{Session: "s1"}) || e.Upstream != "openai" || e.Dialect != "openai-chat" ||
		e.Model != "m" || e.Turn != "t1" || e.Trace != "abc" || e.CallID != "c1" || e.Tool != "bash" || e.Kind != "command" ||
		e.Digest != Digest("bash", r.Call.Args) || e.Time.IsZero() || len(e.Findings) != 1 || e.Findings[0].Severity != "danger" {
		t.Errorf("recorded %+v", e)
	}
	if strings.Contains(e.Args, "hunter2") || !strings.Contains(e.Args, "h…[7]") {
		t.Errorf("the arguments are not masked: %s", e.Args)
	}
	for i, want := range []bool{true, false, true} {
		if log.durable[i] != want {
			t.Errorf("entry %d (%s) durable: %v", i, log.entries[i].Outcome, log.durable[i])
		}
	}
}

// What a hook or a store says of itself is kept for operators, without secrets
// and not without end.
func TestTheDetailIsRecordedMaskedAndBounded(t *testing.T) {
	log := &auditLog{}
	g := newGate(t, Config{Mode: Custom, Detector: marker{}, Audit: log,
		Mask: func(s string) string { return strings.ReplaceAll(s, "hunter2", "h…[7]") },
		Hook: says(Opinion{Outcome: HookFailed, Reason: "the hook ended with exit code 1", Steps: []Step{{Name: "hook"}},
			Detail: "Traceback\n  password hunter2 \xff\n" + strings.Repeat("ä", maxDetail)})})
	d := g.Decide(t.Context(), call("BAD"))
	e := log.entries[0]
	if e.Detail != d.Detail || e.Reason != "the hook ended with exit code 1" || !strings.HasPrefix(e.Detail, "Traceback\n  password h…[7] \ufffd\nä") ||
		!strings.HasSuffix(e.Detail, "ä…") || len(e.Detail) > maxDetail+len("…") {
		t.Errorf("recorded %d bytes: %.200q, the decision says %.200q", len(e.Detail), e.Detail, d.Detail)
	}
	if note := d.Steps[len(d.Steps)-1].Note; note != "hook_failed: "+d.Detail {
		t.Errorf("the step notes %.200q", note)
	}
}

func TestWithoutAMaskNothingOfTheCallIsRecorded(t *testing.T) {
	log := &auditLog{}
	newGate(t, Config{Detector: marker{}, Audit: log}).Decide(t.Context(), call("HARD topsecret"))
	for _, e := range log.entries {
		if strings.Contains(e.Args+e.Reason+e.Findings[0].Words+e.Findings[0].Reason, "topsecret") || e.Digest == "" {
			t.Errorf("recorded %+v", e)
		}
	}
	bad := newGate(t, Config{Detector: marker{}, Audit: log, Mask: func(string) string { panic("mask bug") }})
	if d := bad.Decide(t.Context(), call("ls topsecret")); d.Verdict != Allow || strings.Contains(log.entries[1].Args, "topsecret") {
		t.Errorf("%+v, recorded %+v", d, log.entries[1])
	}
}

func TestLongArgumentsAreCutInTheLog(t *testing.T) {
	log := &auditLog{}
	g := newGate(t, Config{Detector: marker{}, Audit: log, Mask: func(s string) string { return s }})
	for _, unit := range []string{"a", "ä", "word "} {
		r := call(strings.Repeat(unit, maxAuditArgs))
		g.Decide(t.Context(), r)
		e := log.entries[len(log.entries)-1]
		if len(e.Args) > maxAuditArgs+40 || !strings.HasSuffix(e.Args, " bytes]") || strings.ContainsRune(e.Args, '\ufffd') || e.Digest != Digest("bash", r.Call.Args) {
			t.Errorf("%q: %d bytes kept, …%s", unit, len(e.Args), e.Args[len(e.Args)-30:])
		}
	}
}

func TestWhatCannotBeRecordedIsDenied(t *testing.T) {
	full := auditFunc(func(Entry, bool) error {
		return errors.New("state: /srv/st/callgate.db: there is no space left; make room on that disk")
	})
	for name, tt := range map[string]struct {
		command string
		mode    Mode
		reason  string
	}{
		"an unflagged call":         {"ls", Manual, "the audit log could not be written"},
		"a call allowed by a yes":   {"BAD", Manual, "the audit log could not be written"},
		"a call allowed by mode":    {"BAD", Off, "the audit log could not be written"},
		"a denial keeps its reason": {"HARD", Manual, "it destroys the machine"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, Config{Mode: tt.mode, Detector: marker{}, Audit: full, Person: says(Opinion{Verdict: Allow})})
			d := g.Decide(t.Context(), call(tt.command))
			if d.Verdict != Deny || d.Outcome != StoreFailed || !strings.Contains(d.Reason, tt.reason) ||
				!strings.Contains(d.Detail, "/srv/st/callgate.db: there is no space left") {
				t.Errorf("got %+v", d)
			}
			if last := d.Steps[len(d.Steps)-1]; last.Name != "audit" || !strings.Contains(last.Note, "callgate.db") {
				t.Errorf("the last step is %+v", last)
			}
			text := RefusalText(d, call(tt.command).Call)
			for _, not := range []string{"/srv", "callgate.db", "space", "disk"} {
				if strings.Contains(text, not) {
					t.Errorf("the model is told %q: %s", not, text)
				}
			}
		})
	}
}

func TestAHangUpDoesNotKeepADecisionFromBeingRecorded(t *testing.T) {
	log := &auditLog{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g := newGate(t, Config{Detector: marker{}, Audit: log})
	if d := g.Submit(ctx, call("ls")).Decision(); d.Verdict != Allow || len(log.entries) != 1 {
		t.Errorf("%+v, recorded %+v", d, log.entries)
	}
}

func TestOnDecisionHearsWhatWasRecorded(t *testing.T) {
	var heard []Decision
	down := errors.New("down")
	var fail error
	g := newGate(t, Config{Detector: marker{}, Audit: auditFunc(func(Entry, bool) error { return fail }),
		OnDecision: func(_ *Request, d Decision) {
			heard = append(heard, d)
			panic("listener bug")
		}})
	if d := g.Decide(t.Context(), call("ls")); d.Verdict != Allow {
		t.Errorf("a listener's panic changed the decision: %+v", d)
	}
	fail = down
	g.Decide(t.Context(), call("ls"))
	if len(heard) != 2 || heard[0].Verdict != Allow || heard[1].Outcome != StoreFailed {
		t.Errorf("heard %+v", heard)
	}
}

func TestStepsAreTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, Config{Mode: Custom, Detector: marker{}, Hook: ReviewerFunc(func(context.Context, *Request) Opinion {
			start := time.Now()
			<-time.After(3 * time.Second)
			return Opinion{Verdict: Allow, Steps: []Step{{Name: "hook", Start: start, End: time.Now()}}}
		})})
		d := g.Decide(t.Context(), call("BAD"))
		if len(d.Steps) != 2 || d.Steps[0].Name != "detect" || d.Steps[1].Name != "hook" || d.Steps[1].End.Sub(d.Steps[1].Start) != 3*time.Second {
			t.Errorf("got %+v", d.Steps)
		}
	})
}

func TestDigestAndKeyTellPartsApart(t *testing.T) {
	if Digest("ab", []byte("c")) == Digest("a", []byte("bc")) || Digest("a", nil) == Digest("b", nil) || len(Digest("", nil)) != 64 {
		t.Error("different calls have one digest")
	}
	base := call("BAD")
	for name, change := range map[string]func(*Request){
		"principal": func(r *Request) { r.Principal = "p2" },
		"session":   func(r *Request) { r.Session = "p1/s2" },
		"tool":      func(r *Request) { r.Call.Name = "Bash" },
		"arguments": func(r *Request) { r.Call.Args = append(r.Call.Args, ' ') },
		"borders":   func(r *Request) { r.Principal, r.Session = "p1p", "1/s1" },
	} {
		if ApprovalKey(with(call("BAD"), change)) == ApprovalKey(base) {
			t.Errorf("another %s has the same key", name)
		}
	}
	if ApprovalKey(with(call("BAD"), func(r *Request) { r.Turn, r.Call.ID = "t2", "c2" })) != ApprovalKey(base) {
		t.Error("the same call in another turn has another key")
	}
}

func BenchmarkSubmitUnflagged(b *testing.B) {
	g, err := New(Config{Detector: marker{}, Audit: auditFunc(func(Entry, bool) error { return nil }), Mask: func(s string) string { return s }})
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	r := call("go test ./internal/parser/ -run TestRoundTrip -count=1")
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if g.Submit(ctx, r).Decision().Verdict != Allow {
			b.Fatal("not allowed")
		}
	}
}

func BenchmarkSubmitDenied(b *testing.B) {
	g, err := New(Config{Detector: marker{}, Audit: auditFunc(func(Entry, bool) error { return nil }), Mask: func(s string) string { return s }})
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	r := call("HARD")
	b.ReportAllocs()
	for b.Loop() {
		g.Submit(b.Context(), r)
	}
}
