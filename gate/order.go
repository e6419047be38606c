package gate

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// maxName bounds a tool's name, in bytes.
const maxName = 256

// The rule ids of findings that come from the order and not from a detector.
const (
	// RuleUnknownTool flags a tool of which only name and arguments are known.
	RuleUnknownTool = "tool.unknown"
	// RulePermissions flags an action that asks for more rights.
	RulePermissions = "tool.permissions"
)

// order hears the parties that need no waiting, in this order, and says Allow,
// Deny, or Ask when step 13 must be carried out by review. The first step that
// has something to say ends it; a call that falls through is denied.
//
//  1. Limits, faults and arguments that cannot be read deny.
//  2. A hardline finding denies; nothing below can bypass it.
//  3. Deny rules deny.
//  4. Hooks that are always asked; their no ends it.
//  5. Ask rules: a grant for each, or somebody is asked; not bypassed by mode off.
//  6. An always-hook that wants a person gets one.
//  7. An always-hook's yes allows.
//  8. Mode off allows.
//  9. Allow rules allow.
//  10. Grants that cover every finding allow.
//  11. Requests for rights and unknown tools go by the policy for them.
//  12. A call without a finding is allowed.
//  13. The reviewer of the mode is asked, unless so many calls of the task were
//     denied that nobody is asked any more.
//
// Steps 3 to 7, 9 and 10 have no party in this gate: it holds no rules, grants
// or always-hooks.
func (g *Gate) order(r *Request) Decision {
	// 1, 2
	d, denied := g.floor(r)
	if denied {
		return d
	}
	// 8
	if g.c.Mode == Off {
		return d.ending(Allow, Allowed, "mode", "approvals are off")
	}
	// 11
	switch found := g.unknown(r, d.Findings); {
	case len(found) == 0:
	case found[0].Rule == RuleUnknownTool && g.c.UnknownTools == Deny:
		d.Findings = slices.Concat(d.Findings, found)
		return d.led(found[0]).ending(Deny, RuleHit, "policy", found[0].Reason+", and such tools are denied")
	default:
		d.Findings = slices.Concat(d.Findings, found)
	}
	// 12
	if len(d.Findings) == 0 {
		return d.ending(Allow, Allowed, "detector", "")
	}
	// 13
	d = d.led(d.Findings[0])
	if g.c.Breaker > 0 && r.Denials >= g.c.Breaker {
		return d.ending(Deny, BreakerHit, "breaker", d.Reason)
	}
	return d.ending(Ask, "", "detector", d.Reason)
}

// floor is steps 1 and 2, which nothing bypasses and which run again after
// every wait. When it does not deny, the decision holds the findings.
func (g *Gate) floor(r *Request) (d Decision, denied bool) {
	// 1
	if outcome, reason := g.unreadable(r); reason != "" {
		return d.ending(Deny, outcome, "limits", reason), true
	}
	start := time.Now()
	rep, failed, detail := g.detect(r)
	d.Findings = rep.Findings
	d.Steps = append(make([]Step, 0, 2), Step{Name: "detect", Start: start, End: time.Now()})
	switch {
	case failed != "":
		d.Detail = g.detail(detail)
		return d.ending(Deny, LimitHit, "detector", failed), true
	case rep.Limit != "":
		return d.ending(Deny, LimitHit, "detector", "the call is too large or too deep to be read to its end: "+rep.Limit), true
	}
	// 2
	for _, f := range rep.Findings {
		if f.Severity != Danger { // a severity nobody knows is as hard as the hardest
			return d.led(f).ending(Deny, HardlineHit, "hardline", f.Reason), true
		}
	}
	return d, false
}

// unreadable is the part of step 1 that needs no detector. The reason is ""
// when the call can be read.
func (g *Gate) unreadable(r *Request) (Outcome, string) {
	c := &r.Call
	switch {
	case c.Fault == toolcall.FaultOversize:
		return LimitHit, orElse(c.Detail, "the call is larger than a limit allows")
	case c.Fault != toolcall.FaultNone:
		return Malformed, "the call cannot be judged: " + orElse(c.Detail, c.Fault.String())
	case c.Name == "":
		return Malformed, "the call names no tool"
	case len(c.Name) > maxName:
		return LimitHit, fmt.Sprintf("the tool's name has %d bytes; %d are allowed", len(c.Name), maxName)
	case !readable(c.Name):
		return Malformed, "the tool's name holds characters that are not text"
	case len(c.Args) > g.c.MaxArgs:
		return LimitHit, fmt.Sprintf("the arguments have %d bytes; %d are allowed", len(c.Args), g.c.MaxArgs)
	case len(r.Actions) == 0:
		return Malformed, "nothing is known about what the call does"
	case len(r.Actions) > g.c.MaxActions:
		return LimitHit, fmt.Sprintf("the call holds %d actions; %d are allowed", len(r.Actions), g.c.MaxActions)
	}
	// The dialects check this too; not every call comes from one.
	if !c.Text && len(c.Args) > 0 {
		if err := strictjson.Validate(c.Args, strictjson.Options{Surrogates: true}); err != nil {
			return Malformed, "the arguments cannot be read the same way by everybody: " + err.Error()
		}
	}
	return "", ""
}

// readable tells whether a name consists of visible characters.
func readable(name string) bool {
	if !utf8.ValidString(name) {
		return false
	}
	for _, r := range name {
		if !unicode.IsGraphic(r) {
			return false
		}
	}
	return true
}

// detect asks the detector. failed says why it could not, "" when it did, and
// detail what operators read beside it.
func (g *Gate) detect(r *Request) (rep Report, failed, detail string) {
	if g.c.Detector == nil {
		return rep, "there is no detector, so nothing can be said about the call", ""
	}
	defer func() {
		if v := recover(); v != nil {
			rep = Report{}
			failed, detail = caught("the detector", v)
		}
	}()
	return g.c.Detector.Detect(r.Actions), "", ""
}

// unknown gives the findings of step 11: one for the first request for rights
// and one for the first unknown tool, unless something was found for these
// actions already. An unknown tool comes first, and only where the policy does
// not allow such tools.
func (g *Gate) unknown(r *Request, found []Finding) []Finding {
	var out []Finding
	for i, a := range r.Actions {
		if slices.ContainsFunc(found, func(f Finding) bool { return f.Action == i }) {
			continue
		}
		switch {
		case a.Kind == toolcall.KindTool && !a.Known && g.c.UnknownTools != Allow:
			out = append(out, Finding{Rule: RuleUnknownTool, Category: "tool", Severity: Danger, Action: i,
				Reason: "it is not known what the tool " + a.Tool + " does"})
		case a.Kind == toolcall.KindPermissions:
			out = append(out, Finding{Rule: RulePermissions, Category: "tool", Severity: Danger, Action: i,
				Reason: "the call asks for more rights for the agent"})
		}
	}
	slices.SortStableFunc(out, func(a, b Finding) int {
		return rank(a) - rank(b)
	})
	return slices.CompactFunc(out, func(a, b Finding) bool { return a.Rule == b.Rule })
}

func rank(f Finding) int {
	if f.Rule == RuleUnknownTool {
		return 0
	}
	return 1
}

// review carries out step 13. With person unset nobody is asked who would have
// to wait, and such a need is given back as Ask. r is the gate's own copy.
func (g *Gate) review(ctx context.Context, r *Request, d Decision, person bool) Decision {
	r.Findings = d.Findings
	if g.c.Mode == Custom {
		op := g.ask(ctx, g.c.Hook, r, "hook", HookFailed)
		d.Steps = append(d.Steps, op.Steps...)
		if op.Verdict != Ask {
			return g.settle(r, d, op)
		}
		// What the hook wants a person to know is for the person; should nobody
		// be asked in the end, the model reads what the finding says.
		r.Why, d.By = op.Reason, op.By
	}
	switch {
	case !person:
		d.Reason = orElse(r.Why, d.Reason)
		return d
	case g.c.Person == nil:
		d.Detail = r.Why
		return d.unattended()
	}
	op := g.ask(ctx, g.c.Person, r, "person", Unattended)
	d.Steps = append(d.Steps, op.Steps...)
	if op.Verdict == Ask {
		op = Opinion{Outcome: Unattended, By: op.By, Approval: op.Approval, Reason: "nobody is left to be asked"}
	}
	return g.settle(r, d, op)
}

// settle makes an opinion the decision. An allow counts only when the floor
// still holds.
func (g *Gate) settle(r *Request, d Decision, op Opinion) Decision {
	d.Approval, d.Detail = op.Approval, op.Detail
	if op.Verdict == Allow {
		if again, denied := g.floor(r); denied {
			again.Approval, again.Steps = op.Approval, append(d.Steps, again.Steps...)
			return again
		}
	}
	reason := op.Reason
	if reason == "" && op.Verdict == Deny {
		reason = d.Reason
	}
	return d.ending(op.Verdict, op.Outcome, op.By, reason)
}

// ask hears one reviewer on a copy of its own, so that nothing it does to the
// request reaches the decision. What it says comes back in order: known
// verdict, matching outcome, one line of reason. Nonsense and panics are
// denials with the outcome failed.
func (g *Gate) ask(ctx context.Context, rev Reviewer, r *Request, who string, failed Outcome) (op Opinion) {
	start := time.Now()
	defer func() {
		if v := recover(); v != nil {
			op = Opinion{Outcome: failed, By: who, Steps: []Step{{Name: who, Start: start, End: time.Now(), Note: string(failed)}}}
			op.Reason, op.Detail = caught("the "+who, v)
		}
		op.Detail = g.detail(op.Detail)
		op.explainLast()
	}()
	op = rev.Review(ctx, r.clone())
	op.By = orElse(line(op.By, maxName), who)
	if g.c.Mask != nil { // the reason goes to the model and the log
		op.Reason = g.masked(op.Reason)
	}
	op.Reason = line(op.Reason, maxReason)
	switch {
	case op.Verdict > Allow:
		op.Verdict, op.Outcome, op.Reason = Deny, failed, "the "+who+" gave a verdict that does not exist"
	case op.Verdict == Allow && op.Outcome != "" && op.Outcome != Allowed,
		op.Verdict == Deny && op.Outcome == Allowed:
		op.Verdict, op.Outcome, op.Reason = Deny, failed, "the "+who+" contradicted itself"
	case op.Outcome != "":
	case op.Verdict == Allow:
		op.Outcome = Allowed
	case op.Verdict == Deny:
		op.Outcome = Denied
	}
	return op
}

// explainLast puts the detail into the note of the last step, by which it gets
// into the traces.
func (op *Opinion) explainLast() {
	if op.Detail == "" || len(op.Steps) == 0 {
		return
	}
	op.Steps = slices.Clone(op.Steps)
	last := &op.Steps[len(op.Steps)-1]
	last.Note = orElse(last.Note, string(op.Outcome)) + ": " + op.Detail
}

// unattended is the denial where a person is wanted and there is none.
func (d Decision) unattended() Decision {
	return d.ending(Deny, Unattended, "gate", line(d.Reason+"; a person would have to allow it and nobody may be asked", maxReason))
}

// led says which finding led to the decision.
func (d Decision) led(f Finding) Decision {
	d.Rule, d.Reason, d.Instead = f.Rule, f.Reason, f.Instead
	return d
}

// ending says how the decision ends.
func (d Decision) ending(v Verdict, o Outcome, by, reason string) Decision {
	d.Verdict, d.Outcome, d.By, d.Reason = v, o, by, reason
	return d
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
