// Package gate decides whether a tool call may run. It holds the words of
// deciding (verdict, finding, request, decision, approval, audit entry), the
// order in which the parties are heard, and the Gate that hears them. It knows
// no wire format; who is asked and where things are kept are small interfaces,
// implemented by the packages below and joined by the command.
//
// Everything fails closed: the zero value of each type here denies, withholds
// or is not answered, and an error anywhere is a Deny that says so.
package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"time"

	"callgate/inspect/toolcall"
)

// Verdict is one of the three words that every part of callgate uses.
type Verdict uint8

// The verdicts. The zero value denies.
const (
	Deny Verdict = iota
	Ask
	Allow
)

var verdictWords = [...]string{"deny", "ask", "allow"}

// String gives the word: deny, ask or allow.
func (v Verdict) String() string {
	if int(v) < len(verdictWords) {
		return verdictWords[v]
	}
	return "verdict" + strconv.Itoa(int(v))
}

// Severity says how far a finding can be overruled.
type Severity uint8

// The severities. The zero value is the one nobody can overrule.
const (
	Hardline Severity = iota // never runs, whoever says yes
	Danger                   // runs only if somebody allows it
)

// String gives the severity's word.
func (s Severity) String() string {
	switch s {
	case Hardline:
		return "hardline"
	case Danger:
		return "danger"
	}
	return "severity" + strconv.Itoa(int(s))
}

// Finding is one reason why an action is dangerous.
type Finding struct {
	Rule     string // stable, documented id: fs.recursive-delete ...
	Category string
	Severity Severity
	Reason   string // a sentence for a person, without a full stop
	// Action is the index of the action in Request.Actions; Start and End
	// are the byte span in its Command (or Path) that the finding concerns,
	// and Words those bytes.
	Action, Start, End int
	Words              string
	// Instead says what would be acceptable, "" when nothing is known.
	Instead string
}

// Report is what a Detector says about the actions of one call.
type Report struct {
	Findings []Finding
	// Limit names the limit that kept the detector from reading an action to
	// its end; such a call is denied.
	Limit string
}

// Detector finds danger. It is pure and never decides.
type Detector interface {
	Detect(actions []toolcall.Action) Report
}

// Claims are what the agent says about itself. They are shown and passed on;
// no permission rests on them.
type Claims struct {
	Session  string `json:"session,omitempty"`
	User     string `json:"user,omitempty"`
	Platform string `json:"platform,omitempty"`
}

// readAlone takes the session from where it stood by itself, before there were
// claims beside it.
func (c *Claims) readAlone(b []byte) error {
	var old struct {
		Session string `json:"session"`
	}
	if c.Session != "" || !bytes.Contains(b, []byte(`"session"`)) {
		return nil
	}
	err := json.Unmarshal(b, &old)
	c.Session = old.Session
	return err
}

// Request asks for a decision on one call.
type Request struct {
	Call    toolcall.Call
	Actions []toolcall.Action
	// Findings are filled in by the gate before anybody is asked.
	Findings []Finding
	// Why is the sentence of whoever wants a person asked, "" when the
	// findings say it all. The gate fills it in.
	Why string
	// Siblings are the other calls of the turn that are known so far.
	Siblings []toolcall.Call
	// Denials is how many calls of the conversation were denied since a user
	// last spoke in it, as far as that is known.
	Denials int

	// Agent is the name of the client's profile; Principal the keyed hash
	// that tells tenants apart; Session is Principal joined with the claimed
	// session, "" when the client claims none.
	Agent, Principal, Session string
	Claimed                   Claims

	Upstream, Dialect, Model string
	// Turn names the turn in logs and audit; Trace is the trace id, "" when
	// there is none.
	Turn, Trace string
}

// Outcome is the machine-readable end of a decision, distinct everywhere.
type Outcome string

// The outcomes.
const (
	Allowed      Outcome = "allowed"
	Denied       Outcome = "denied" // a person, hook or judge said no
	Timeout      Outcome = "timeout"
	Cancelled    Outcome = "cancelled"
	NotifyFailed Outcome = "notify_failed" // nobody could be told of the question
	HookFailed   Outcome = "hook_failed"
	JudgeFailed  Outcome = "judge_failed"
	HardlineHit  Outcome = "hardline"
	RuleHit      Outcome = "rule"
	LimitHit     Outcome = "limit"
	BreakerHit   Outcome = "breaker" // so many were denied that nobody is asked any more
	Malformed    Outcome = "malformed"
	Pending      Outcome = "pending" // still undecided when the hold ended
	StoreFailed  Outcome = "store_failed"
	Unattended   Outcome = "unattended" // a person was wanted and none may be asked
)

// Step is one timed part of a decision, for the audit log and the traces.
type Step struct {
	// Name is what was done: detect, hook, wait ...
	Name       string
	Start, End time.Time
	// Note says how it ended, in a few words.
	Note string
}

// Decision is the final word on a call.
type Decision struct {
	// Verdict is Allow or Deny; only Preview gives Ask.
	Verdict Verdict
	Outcome Outcome
	// By names who decided: limits, hardline, mode, detector, hook, person ...
	By string
	// Rule is the id of the rule that led here, "" when none did.
	Rule string
	// Reason is a sentence for the model and the log, without a full stop. Of
	// something that failed on this side it says no more than that it failed.
	Reason string
	// Detail is what operators need to know beyond it: an error's text, a path,
	// what a hook wrote to standard error. It is for audit log, log and traces;
	// the model never reads it.
	Detail string
	// Instead says what would be acceptable, "" when nothing is known.
	Instead string
	// Approval is the id of the question put to a person, if one was.
	Approval string
	// Args take the place of the call's arguments when not nil.
	Args     []byte
	Findings []Finding
	Steps    []Step
}

// Opinion is what a reviewer says. Its zero value denies.
type Opinion struct {
	// Verdict is Deny, Allow, or Ask to escalate to a person.
	Verdict Verdict
	Outcome Outcome // "" stands for Allowed or Denied by the verdict
	By      string
	// Reason may be shown to the model, Detail never; see Decision.
	Reason, Detail string
	// Approval is the id of the question, when a person was asked.
	Approval string
	Steps    []Step
}

// Reviewer gives an opinion on a flagged call. It returns when it has one or
// when ctx ends, and never leaves anything running. A nil error is not needed:
// what fails is a Deny with its own outcome.
type Reviewer interface {
	Review(ctx context.Context, r *Request) Opinion
}

// ReviewerFunc makes a function a Reviewer.
type ReviewerFunc func(ctx context.Context, r *Request) Opinion

// Review calls f.
func (f ReviewerFunc) Review(ctx context.Context, r *Request) Opinion { return f(ctx, r) }
