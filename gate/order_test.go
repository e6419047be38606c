package gate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"callgate/inspect/toolcall"
)

// marker is a Detector that reads what it finds out of the command itself.
type marker struct{}

func (marker) Detect(actions []toolcall.Action) (rep Report) {
	for i, a := range actions {
		switch {
		case strings.Contains(a.Command, "HARD"):
			rep.Findings = append(rep.Findings, Finding{Rule: "t.hard", Category: "t", Severity: Hardline, Reason: "it destroys the machine", Action: i, Words: "HARD"})
		case strings.Contains(a.Command, "ODD"):
			rep.Findings = append(rep.Findings, Finding{Rule: "t.odd", Severity: 77, Reason: "it has an odd severity", Action: i})
		case strings.Contains(a.Command, "BAD"):
			rep.Findings = append(rep.Findings, Finding{Rule: "t.bad", Category: "t", Severity: Danger, Reason: "it deletes things", Action: i, Words: "BAD", Instead: "move them to the bin"})
		case strings.Contains(a.Command, "DEEP"):
			rep.Limit = "nesting"
		case strings.Contains(a.Command, "PANIC"):
			panic("detector bug")
		}
	}
	return rep
}

// call is a request for a shell command.
func call(command string) *Request {
	return &Request{
		Call:    toolcall.Call{ID: "c1", Name: "bash", Args: fmt.Appendf(nil, `{"command":%q}`, command)},
		Actions: []toolcall.Action{{Kind: toolcall.KindCommand, Tool: "bash", Known: true, Command: command, Language: toolcall.LangShell}},
		Agent:   "default", Principal: "p1", Session: "p1/s1", Claimed: Claims{Session: "s1"}, Upstream: "openai", Dialect: "openai-chat",
	}
}

func with(r *Request, change func(*Request)) *Request {
	change(r)
	return r
}

// says is a reviewer that always says the same.
func says(op Opinion) Reviewer {
	return ReviewerFunc(func(context.Context, *Request) Opinion { return op })
}

func panics() Reviewer {
	return ReviewerFunc(func(context.Context, *Request) Opinion { panic("reviewer bug") })
}

// noOne fails the test when it is asked.
func noOne(t *testing.T, who string) Reviewer {
	return ReviewerFunc(func(context.Context, *Request) Opinion {
		t.Errorf("%s was asked", who)
		return Opinion{Verdict: Allow}
	})
}

func newGate(t *testing.T, c Config) *Gate {
	t.Helper()
	if c.Audit == nil {
		c.UnauditedForTest = true
	}
	g, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func TestOrder(t *testing.T) {
	yes, no, ask := Opinion{Verdict: Allow, Approval: "ab12"}, Opinion{Reason: "not today"}, Opinion{Verdict: Ask, Reason: "the hook is unsure"}
	mute := Opinion{}
	unknownTool := func(r *Request) {
		r.Actions = []toolcall.Action{{Kind: toolcall.KindTool, Tool: "frobnicate"}}
		r.Call.Name, r.Call.Args = "frobnicate", []byte(`{"x":1}`)
	}
	rights := func(r *Request) {
		r.Actions = []toolcall.Action{{Kind: toolcall.KindPermissions, Tool: "request_permissions", Known: true}}
	}
	for _, tt := range []struct {
		name         string
		mode         Mode
		person, hook *Opinion // nil: nobody may be asked
		noDetector   bool
		unknown      Verdict
		maxArgs      int
		breaker      int
		r            *Request
		verdict      Verdict
		outcome      Outcome
		by           string
		rule         string
		reason       string // a part of it
		detail       string // a part of it; the reason must not hold it
	}{
		// Step 1.
		{name: "truncated arguments are denied though everybody would allow them", mode: Off, person: &yes,
			r:       with(call("ls"), func(r *Request) { r.Call.Fault, r.Call.Detail = toolcall.FaultTruncated, "cut in the call" }),
			outcome: Malformed, by: "limits", reason: "cut in the call"},
		{name: "a fault without a detail is named by its word", r: with(call("ls"), func(r *Request) { r.Call.Fault = toolcall.FaultAmbiguous }),
			outcome: Malformed, by: "limits", reason: "ambiguous"},
		{name: "a fault nobody knows is a fault", r: with(call("ls"), func(r *Request) { r.Call.Fault = 200 }),
			outcome: Malformed, by: "limits", reason: "fault200"},
		{name: "an oversize call is beyond a limit", r: with(call("ls"), func(r *Request) { r.Call.Fault = toolcall.FaultOversize }),
			outcome: LimitHit, by: "limits", reason: "larger than a limit"},
		{name: "a call without a tool name is denied", r: with(call("ls"), func(r *Request) { r.Call.Name = "" }),
			outcome: Malformed, by: "limits", reason: "names no tool"},
		{name: "a tool name with a line break is denied", r: with(call("ls"), func(r *Request) { r.Call.Name = "ba\nsh" }),
			outcome: Malformed, by: "limits", reason: "not text"},
		{name: "a tool name with a zero-width space is denied", r: with(call("ls"), func(r *Request) { r.Call.Name = "ba\u200bsh" }),
			outcome: Malformed, by: "limits", reason: "not text"},
		{name: "a tool name that is not UTF-8 is denied", r: with(call("ls"), func(r *Request) { r.Call.Name = "ba\xffsh" }),
			outcome: Malformed, by: "limits", reason: "not text"},
		{name: "a tool name without end is denied", r: with(call("ls"), func(r *Request) { r.Call.Name = strings.Repeat("n", 257) }),
			outcome: LimitHit, by: "limits", reason: "257 bytes"},
		{name: "a call of which nothing is known is denied", r: with(call("ls"), func(r *Request) { r.Actions = nil }),
			outcome: Malformed, by: "limits", reason: "nothing is known"},
		{name: "arguments over the limit are denied", maxArgs: 10, r: call("ls -la /tmp"),
			outcome: LimitHit, by: "limits", reason: "10 are allowed"},
		{name: "more actions than the limit are denied", r: with(call("ls"), func(r *Request) {
			r.Actions = make([]toolcall.Action, DefaultMaxActions+1)
		}), outcome: LimitHit, by: "limits", reason: "257 actions"},
		{name: "arguments with a key twice are denied though no dialect said so",
			r:       with(call("ls"), func(r *Request) { r.Call.Args = []byte(`{"command":"ls","command":"rm"}`) }),
			outcome: Malformed, by: "limits", reason: "twice"},
		{name: "arguments cut short are denied though no dialect said so",
			r:       with(call("ls"), func(r *Request) { r.Call.Args = []byte(`{"command":"ls`) }),
			outcome: Malformed, by: "limits", reason: "ended"},
		{name: "free text is not read as JSON", r: with(call("ls"), func(r *Request) { r.Call.Text, r.Call.Args = true, []byte("*** Begin") }),
			verdict: Allow, outcome: Allowed, by: "detector"},
		{name: "arguments that are missing are no fault", r: with(call("ls"), func(r *Request) { r.Call.Args = nil }),
			verdict: Allow, outcome: Allowed, by: "detector"},
		{name: "without a detector a harmless call is denied", noDetector: true, r: call("ls"),
			outcome: LimitHit, by: "detector", reason: "no detector"},
		{name: "without a detector mode off denies too", noDetector: true, mode: Off, r: call("ls"),
			outcome: LimitHit, by: "detector", reason: "no detector"},
		{name: "a call the detector could not read to its end is denied", person: &yes, r: call("DEEP"),
			outcome: LimitHit, by: "detector", reason: "nesting"},
		{name: "a detector that panics is a denial", person: &yes, r: call("PANIC"),
			outcome: LimitHit, by: "detector", reason: "the detector failed from within", detail: "detector bug"},

		// Step 2.
		{name: "a hardline finding is denied in mode manual", person: &yes, r: call("HARD"),
			outcome: HardlineHit, by: "hardline", rule: "t.hard", reason: "destroys"},
		{name: "a hardline finding is denied in mode custom", mode: Custom, hook: &yes, person: &yes, r: call("HARD"),
			outcome: HardlineHit, by: "hardline", rule: "t.hard", reason: "destroys"},
		{name: "a hardline finding is denied in mode off", mode: Off, r: call("HARD"),
			outcome: HardlineHit, by: "hardline", rule: "t.hard", reason: "destroys"},
		{name: "a severity nobody knows is hardline", mode: Off, r: call("ODD"),
			outcome: HardlineHit, by: "hardline", rule: "t.odd", reason: "odd"},
		{name: "a hardline finding behind a dangerous one is found", mode: Off,
			r: with(call("BAD"), func(r *Request) {
				r.Actions = append(r.Actions, toolcall.Action{Kind: toolcall.KindCommand, Command: "HARD"})
			}), outcome: HardlineHit, by: "hardline", rule: "t.hard", reason: "destroys"},

		// Step 8.
		{name: "mode off lets a flagged call run", mode: Off, r: call("BAD"),
			verdict: Allow, outcome: Allowed, by: "mode", reason: "off"},
		{name: "mode off lets an unknown tool run", mode: Off, r: with(call(""), unknownTool),
			verdict: Allow, outcome: Allowed, by: "mode", reason: "off"},

		// Step 11.
		{name: "an unknown tool is denied by the zero value", person: &yes, r: with(call(""), unknownTool),
			outcome: RuleHit, by: "policy", rule: RuleUnknownTool, reason: "frobnicate"},
		{name: "an unknown tool runs where the policy allows it", unknown: Allow, r: with(call(""), unknownTool),
			verdict: Allow, outcome: Allowed, by: "detector"},
		{name: "an unknown tool is asked about where the policy asks, and a yes counts", unknown: Ask, person: &yes, r: with(call(""), unknownTool),
			verdict: Allow, outcome: Allowed, by: "person", rule: RuleUnknownTool},
		{name: "an unknown tool is asked about where the policy asks, and a no counts", unknown: Ask, person: &no, r: with(call(""), unknownTool),
			outcome: Denied, by: "person", rule: RuleUnknownTool, reason: "not today"},
		{name: "an unknown tool next to a request for rights is still denied", person: &yes,
			r: with(with(call(""), rights), func(r *Request) {
				r.Actions = append(r.Actions, toolcall.Action{Kind: toolcall.KindTool, Tool: "frobnicate"})
			}), outcome: RuleHit, by: "policy", rule: RuleUnknownTool, reason: "frobnicate"},
		{name: "a known tool is not an unknown one", r: with(call(""), func(r *Request) {
			r.Actions = []toolcall.Action{{Kind: toolcall.KindTool, Tool: "web_search", Known: true}}
		}), verdict: Allow, outcome: Allowed, by: "detector"},
		{name: "a request for rights is asked about though the detector found nothing", person: &no, unknown: Allow, r: with(call(""), rights),
			outcome: Denied, by: "person", rule: RulePermissions, reason: "not today"},

		// Step 12.
		{name: "a call without a finding is allowed and nobody is asked", r: call("ls"),
			verdict: Allow, outcome: Allowed, by: "detector"},
		{name: "a call without a finding is allowed in mode custom and the hook is not asked", mode: Custom, r: call("ls"),
			verdict: Allow, outcome: Allowed, by: "detector"},

		// Step 13, a person.
		{name: "a person's yes allows", person: &yes, r: call("BAD"), verdict: Allow, outcome: Allowed, by: "person", rule: "t.bad"},
		{name: "a person's no denies with the person's words", person: &no, r: call("BAD"),
			outcome: Denied, by: "person", rule: "t.bad", reason: "not today"},
		{name: "a person who says nothing denies with the finding's words", person: &mute, r: call("BAD"),
			outcome: Denied, by: "person", rule: "t.bad", reason: "deletes things"},
		{name: "without a person a flagged call is denied as unattended", r: call("BAD"),
			outcome: Unattended, by: "gate", rule: "t.bad", reason: "nobody may be asked"},
		{name: "a person cannot escalate", person: &ask, r: call("BAD"), outcome: Unattended, by: "person", rule: "t.bad", reason: "nobody is left"},
		{name: "a timeout keeps its outcome", person: &Opinion{Outcome: Timeout, Reason: "no answer"}, r: call("BAD"),
			outcome: Timeout, by: "person", rule: "t.bad", reason: "no answer"},
		{name: "an allow with the outcome of a denial is a denial", person: &Opinion{Verdict: Allow, Outcome: Timeout}, r: call("BAD"),
			outcome: Unattended, by: "person", rule: "t.bad", reason: "contradicted itself"},
		{name: "a denial with the outcome of an allow is a denial", person: &Opinion{Outcome: Allowed}, r: call("BAD"),
			outcome: Unattended, by: "person", rule: "t.bad", reason: "contradicted itself"},
		{name: "a verdict that does not exist is a denial", person: &Opinion{Verdict: 9}, r: call("BAD"),
			outcome: Unattended, by: "person", rule: "t.bad", reason: "does not exist"},

		// Step 13, the hook.
		{name: "the hook's yes allows and no person is asked", mode: Custom, hook: &yes, r: call("BAD"),
			verdict: Allow, outcome: Allowed, by: "hook", rule: "t.bad"},
		{name: "the hook's no denies and no person is asked", mode: Custom, hook: &no, r: call("BAD"),
			outcome: Denied, by: "hook", rule: "t.bad", reason: "not today"},
		{name: "an escalation that a person allows is allowed", mode: Custom, hook: &ask, person: &yes, r: call("BAD"),
			verdict: Allow, outcome: Allowed, by: "person", rule: "t.bad"},
		{name: "an escalation that a person denies is denied", mode: Custom, hook: &ask, person: &no, r: call("BAD"),
			outcome: Denied, by: "person", rule: "t.bad", reason: "not today"},
		{name: "an escalation to nobody is denied", mode: Custom, hook: &ask, r: call("BAD"),
			outcome: Unattended, by: "gate", rule: "t.bad", reason: "nobody may be asked", detail: "the hook is unsure"},
		{name: "a hook that failed denies and no person is asked", mode: Custom, hook: &Opinion{Outcome: HookFailed, Reason: "exit code 1", Detail: "boom"}, r: call("BAD"),
			outcome: HookFailed, by: "hook", rule: "t.bad", reason: "exit code 1", detail: "boom"},
		{name: "a person's detail stays a detail", person: &Opinion{Outcome: NotifyFailed, Detail: "write /dev/stdout: no space left on device"}, r: call("BAD"),
			outcome: NotifyFailed, by: "person", rule: "t.bad", reason: "deletes things", detail: "/dev/stdout"},
		{name: "what a hook said to the person is not for the model when the person fails", mode: Custom, hook: &ask, person: &Opinion{Outcome: StoreFailed, Detail: "callgate.db is full"}, r: call("BAD"),
			outcome: StoreFailed, by: "person", rule: "t.bad", reason: "deletes things", detail: "callgate.db is full"},
		{name: "nonsense from the hook is a failed hook", mode: Custom, hook: &Opinion{Verdict: 3}, r: call("BAD"),
			outcome: HookFailed, by: "hook", rule: "t.bad", reason: "does not exist"},

		// Step 13, the breaker.
		{name: "after as many denials as the breaker counts nobody is asked about a flagged call", person: &yes, breaker: 3, r: with(call("BAD"), denied(3)),
			outcome: BreakerHit, by: "breaker", rule: "t.bad", reason: "deletes things"},
		{name: "nor is the hook", mode: Custom, person: &yes, breaker: 3, r: with(call("BAD"), denied(7)),
			outcome: BreakerHit, by: "breaker", rule: "t.bad", reason: "deletes things"},
		{name: "before that a person is asked", person: &yes, breaker: 3, r: with(call("BAD"), denied(2)),
			verdict: Allow, outcome: Allowed, by: "person", rule: "t.bad"},
		{name: "without a breaker a person is asked however often", person: &yes, r: with(call("BAD"), denied(1000)),
			verdict: Allow, outcome: Allowed, by: "person", rule: "t.bad"},
		{name: "the breaker does not touch a call without a finding", breaker: 3, r: with(call("ls"), denied(3)),
			verdict: Allow, outcome: Allowed, by: "detector"},
		{name: "the breaker does not touch mode off", mode: Off, breaker: 3, r: with(call("BAD"), denied(3)),
			verdict: Allow, outcome: Allowed, by: "mode", reason: "off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Config{Mode: tt.mode, Detector: marker{}, UnknownTools: tt.unknown, MaxArgs: tt.maxArgs, Breaker: tt.breaker}
			if tt.noDetector {
				c.Detector = nil
			}
			if tt.person != nil {
				c.Person = says(*tt.person)
			}
			if tt.mode == Custom {
				c.Hook = noOne(t, "the hook")
				if tt.hook != nil {
					c.Hook = says(*tt.hook)
				}
			}
			d := newGate(t, c).Decide(t.Context(), tt.r)
			if d.Verdict != tt.verdict || d.Outcome != tt.outcome || d.By != tt.by || d.Rule != tt.rule || !strings.Contains(d.Reason, tt.reason) {
				t.Errorf("got  %s %s by %s rule %q: %s\nwant %s %s by %s rule %q: …%s…",
					d.Verdict, d.Outcome, d.By, d.Rule, d.Reason, tt.verdict, tt.outcome, tt.by, tt.rule, tt.reason)
			}
			if !strings.Contains(d.Detail, tt.detail) || tt.detail == "" && d.Detail != "" {
				t.Errorf("the detail is %q, want …%s…", d.Detail, tt.detail)
			}
			if text := RefusalText(d, tt.r.Call); tt.detail != "" && strings.Contains(text, tt.detail) {
				t.Errorf("the model is told what only operators should read: %s", text)
			}
		})
	}
}

func TestHardlineAsksNobody(t *testing.T) {
	g := newGate(t, Config{Mode: Custom, Detector: marker{}, Person: noOne(t, "the person"), Hook: noOne(t, "the hook")})
	if d := g.Decide(t.Context(), call("HARD")); d.Verdict != Deny {
		t.Error("a hardline call was allowed")
	}
}

func TestADeniedCallSaysWhatWouldBeAcceptable(t *testing.T) {
	g := newGate(t, Config{Detector: marker{}, Person: says(Opinion{})})
	if d := g.Decide(t.Context(), call("BAD")); d.Instead != "move them to the bin" {
		t.Errorf("instead is %q", d.Instead)
	}
}

func TestWhatReviewersGet(t *testing.T) {
	var seen, asked *Request
	g := newGate(t, Config{Mode: Custom, Detector: marker{},
		Hook: ReviewerFunc(func(_ context.Context, r *Request) Opinion {
			seen = r
			return Opinion{Verdict: Ask, Reason: "needs\na person\x1b[2J"}
		}),
		Person: ReviewerFunc(func(_ context.Context, r *Request) Opinion {
			asked = r
			return Opinion{Verdict: Allow, Approval: "q1"}
		})})
	r := call("BAD secret=abc")
	d := g.Decide(t.Context(), r)
	switch {
	case d.Verdict != Allow || d.Approval != "q1":
		t.Errorf("got %+v", d)
	case len(seen.Findings) != 1 || len(asked.Findings) != 1:
		t.Error("the findings were not handed on")
	case string(seen.Call.Args) != string(r.Call.Args):
		t.Error("the hook did not get the raw arguments")
	case asked.Why != "needs a person[2J":
		t.Errorf("the person was told %q", asked.Why)
	case r.Findings != nil || r.Why != "":
		t.Error("the caller's request was changed")
	}
}

// A reviewer that changes what it was shown changes nothing that is decided.
func TestReviewersCannotChangeTheCall(t *testing.T) {
	spoil := ReviewerFunc(func(_ context.Context, r *Request) Opinion {
		r.Call.Args[0] = '['
		r.Call.Name = "harmless"
		r.Actions[0].Command = "ls"
		r.Findings[0].Severity = Danger
		r.Findings = nil
		return Opinion{Verdict: Ask, Reason: "look"}
	})
	r := call("BAD")
	before := string(r.Call.Args)
	g := newGate(t, Config{Mode: Custom, Detector: marker{}, Hook: spoil, Person: ReviewerFunc(func(_ context.Context, got *Request) Opinion {
		if string(got.Call.Args) != before || got.Call.Name != "bash" || got.Actions[0].Command != "BAD" || len(got.Findings) != 1 {
			t.Errorf("the person was shown %+v", got)
		}
		return Opinion{}
	})})
	if d := g.Decide(t.Context(), r); d.Verdict != Deny || len(d.Findings) != 1 {
		t.Errorf("got %+v", d)
	}
	if string(r.Call.Args) != before {
		t.Error("the caller's bytes were changed")
	}
}

// flips finds danger the first time and a hardline the next: what was allowed
// in between does not run.
type flips struct{ n int }

func (f *flips) Detect([]toolcall.Action) Report {
	f.n++
	sev := Danger
	if f.n > 1 {
		sev = Hardline
	}
	return Report{Findings: []Finding{{Rule: "t.flip", Severity: sev, Reason: "changed"}}}
}

func TestTheFloorHoldsAfterTheWait(t *testing.T) {
	for name, c := range map[string]Config{
		"a person's yes": {Person: says(Opinion{Verdict: Allow, Approval: "q7"})},
		"a hook's yes":   {Mode: Custom, Hook: says(Opinion{Verdict: Allow, Approval: "q7"})},
	} {
		t.Run(name, func(t *testing.T) {
			c.Detector = &flips{}
			d := newGate(t, c).Decide(t.Context(), call("x"))
			if d.Verdict != Deny || d.Outcome != HardlineHit || d.By != "hardline" || d.Approval != "q7" {
				t.Errorf("got %+v", d)
			}
		})
	}
}

func TestPanicsAreDenials(t *testing.T) {
	for name, tt := range map[string]struct {
		c       Config
		outcome Outcome
	}{
		"in the person":                     {Config{Person: panics()}, Unattended},
		"in the hook":                       {Config{Mode: Custom, Hook: panics()}, HookFailed},
		"in the person behind the hook":     {Config{Mode: Custom, Hook: says(Opinion{Verdict: Ask}), Person: panics()}, Unattended},
		"in the audit log":                  {Config{Person: says(Opinion{Verdict: Allow}), Audit: auditFunc(func(Entry, bool) error { panic("audit bug") })}, StoreFailed},
		"in a reviewer that is a nil value": {Config{Person: (*nilReviewer)(nil)}, Unattended},
	} {
		t.Run(name, func(t *testing.T) {
			tt.c.Detector = marker{}
			d := newGate(t, tt.c).Decide(t.Context(), call("BAD"))
			if d.Verdict != Deny || d.Outcome != tt.outcome || !strings.Contains(d.Detail, "panic") {
				t.Errorf("got %+v", d)
			}
			if !strings.Contains(d.Detail, "order_test.go:") {
				t.Errorf("the detail does not say where: %s", d.Detail)
			}
			if text := RefusalText(d, call("BAD").Call); strings.Contains(text, "panic") || strings.Contains(text, "bug") || strings.Contains(text, ".go") {
				t.Errorf("the model is told how callgate failed: %s", text)
			}
			if last := d.Steps[len(d.Steps)-1]; !strings.Contains(last.Note, "panic") {
				t.Errorf("the last step notes %q", last.Note)
			}
		})
	}
}

type nilReviewer struct{ op Opinion }

func (n *nilReviewer) Review(context.Context, *Request) Opinion { return n.op }

// Whatever hook, person and audit do, an allow of a flagged call needs an
// allow of the one who decides, in order, and nothing else gives one.
func TestNoPathAllowsByAccident(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	outcomes := []Outcome{"", Allowed, Denied, Timeout, HookFailed, Pending, "nonsense"}
	opinion := func() (Reviewer, Opinion, bool) {
		op := Opinion{Verdict: Verdict(rng.IntN(5)), Outcome: outcomes[rng.IntN(len(outcomes))]}
		if rng.IntN(4) == 0 {
			return panics(), op, false
		}
		return says(op), op, op.Verdict == Allow && (op.Outcome == "" || op.Outcome == Allowed)
	}
	for range 20_000 {
		hook, hookOp, hookYes := opinion()
		person, _, personYes := opinion()
		auditOK := rng.IntN(3) > 0
		c := Config{Mode: Mode(rng.IntN(2)), Detector: marker{}, Hook: hook, Person: person, UnknownTools: Verdict(rng.IntN(3)),
			Audit: auditFunc(func(Entry, bool) error {
				if auditOK {
					return nil
				}
				return errors.New("disk full")
			})}
		if rng.IntN(5) == 0 {
			c.Person, personYes = nil, false
		}
		command := []string{"BAD", "HARD", "DEEP", "PANIC", "ODD"}[rng.IntN(5)]
		g := newGate(t, c)
		d := g.Decide(t.Context(), call(command))
		escalated := false
		if _, bug := hook.(ReviewerFunc); bug {
			escalated = hookOp.Verdict == Ask
		}
		may := command == "BAD" && auditOK
		if c.Mode == Manual {
			may = may && personYes
		} else {
			may = may && (hookYes || escalated && personYes)
		}
		if d.Verdict != Deny && !may {
			t.Fatalf("%s in mode %s was decided %s: %+v", command, c.Mode, d.Verdict, d)
		}
		if d.Verdict == Deny && (d.Outcome == "" || d.Outcome == Allowed || d.Reason == "" || d.By == "") {
			t.Fatalf("a denial does not say why: %+v", d)
		}
	}
}

func TestPreviewAndClassify(t *testing.T) {
	log := &auditLog{}
	asked := 0
	g := newGate(t, Config{Mode: Custom, Detector: marker{}, Audit: log, Person: noOne(t, "the person"), Hook: ReviewerFunc(func(_ context.Context, r *Request) Opinion {
		asked++
		if strings.Contains(r.Actions[0].Command, "yes") {
			return Opinion{Verdict: Allow}
		}
		if strings.Contains(r.Actions[0].Command, "no") {
			return Opinion{Reason: "never"}
		}
		return Opinion{Verdict: Ask, Reason: "a person must see it"}
	})})
	for command, want := range map[string][2]Verdict{ // classify, preview
		"ls": {Allow, Allow}, "HARD": {Deny, Deny}, "BAD": {Ask, Ask}, "BAD yes": {Ask, Allow}, "BAD no": {Ask, Deny},
	} {
		if d := g.Classify(call(command)); d.Verdict != want[0] {
			t.Errorf("Classify(%s) = %s, want %s", command, d.Verdict, want[0])
		}
		before := asked
		d := g.Preview(t.Context(), call(command))
		if d.Verdict != want[1] {
			t.Errorf("Preview(%s) = %s, want %s", command, d.Verdict, want[1])
		}
		if flagged := want[0] == Ask; flagged != (asked > before) {
			t.Errorf("Preview(%s) asked the hook: %v", command, asked > before)
		}
		if d.Verdict == Ask && (d.Rule != "t.bad" || d.Reason != "a person must see it" || len(d.Findings) != 1) {
			t.Errorf("Preview(%s) = %+v", command, d)
		}
	}
	if len(log.entries) > 0 {
		t.Errorf("something was recorded: %+v", log.entries)
	}
	for _, person := range []Reviewer{noOne(t, "the person"), nil} {
		manual := newGate(t, Config{Detector: marker{}, Person: person})
		for what, d := range map[string]Decision{"Preview": manual.Preview(t.Context(), call("BAD")), "Classify": manual.Classify(call("BAD"))} {
			if d.Verdict != Ask || d.Rule != "t.bad" || d.By != "detector" || d.Reason != "it deletes things" || d.Instead == "" {
				t.Errorf("%s in mode manual = %+v", what, d)
			}
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		c    Config
		want string
	}{
		"no audit log":          {Config{Detector: marker{}}, "audit"},
		"custom without a hook": {Config{UnauditedForTest: true, Mode: Custom}, "hook"},
		"an unknown mode":       {Config{UnauditedForTest: true, Mode: 9}, "mode9"},
		"an unknown verdict":    {Config{UnauditedForTest: true, UnknownTools: 9}, "verdict9"},
		"a negative limit":      {Config{UnauditedForTest: true, MaxArgs: -1}, "below zero"},
	} {
		t.Run(name, func(t *testing.T) {
			if g, err := New(tt.c); err == nil || g != nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, %v", g, err)
			}
		})
	}
}

func TestWords(t *testing.T) {
	for _, m := range []Mode{Manual, Custom, Off} {
		if got, err := ParseMode(m.String()); got != m || err != nil {
			t.Errorf("ParseMode(%s) = %v, %v", m, got, err)
		}
	}
	for _, v := range []Verdict{Deny, Ask, Allow} {
		if got, err := ParseVerdict(v.String()); got != v || err != nil {
			t.Errorf("ParseVerdict(%s) = %v, %v", v, got, err)
		}
	}
	for _, word := range []string{"", "smart", "Manual", "allow "} {
		if m, err := ParseMode(word); err == nil || m != Manual {
			t.Errorf("ParseMode(%q) = %v, %v", word, m, err)
		}
	}
	for _, word := range []string{"", "yes", "Allow"} {
		if v, err := ParseVerdict(word); err == nil || v != Deny {
			t.Errorf("ParseVerdict(%q) = %v, %v", word, v, err)
		}
	}
}

// denied says that so many calls of the task were denied before.
func denied(n int) func(*Request) {
	return func(r *Request) { r.Denials = n }
}
