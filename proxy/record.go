package proxy

import (
	"context"
	"time"

	"callgate/gate"
	"callgate/inspect"
	"callgate/inspect/toolcall"
)

// recordWithheld keeps in the audit log that a whole answer was withheld
// without the gate being asked.
func (x *exchange) recordWithheld(d inspect.Dialect, reason string) {
	dialect := ""
	if d != nil {
		dialect = d.Name()
	}
	x.record(gate.Entry{
		Principal: x.tenant().Principal,
		Dialect:   dialect, Trace: x.span.TraceID(), Kind: "answer",
		Verdict: gate.Deny.String(), Outcome: gate.Malformed, By: "proxy", Reason: reason,
	}, true)
}

// recordHosted keeps in the audit log that the provider ran a call itself,
// which no gate in the answer's way can stop.
func (x *exchange) recordHosted(q *gate.Request, c toolcall.Call) {
	x.p.log.Info("the provider ran a tool itself", "tool", printable(c.Name), "upstream", q.Upstream, "turn", q.Turn)
	x.record(gate.Entry{
		Principal: q.Principal, Claimed: q.Claimed, Dialect: q.Dialect, Model: q.Model,
		Turn: q.Turn, Trace: q.Trace, CallID: c.ID, Tool: c.Name, Kind: "hosted", Digest: gate.Digest(c.Name, c.Args),
		Verdict: gate.Allow.String(), Outcome: gate.Allowed, By: "provider", Reason: "the provider ran it itself",
	}, false)
}

// recordUnasked keeps in the audit log that a call was withheld because the
// answer had ended before its turn came to be decided.
func (x *exchange) recordUnasked(q *gate.Request, c toolcall.Call) {
	x.record(gate.Entry{
		Principal: q.Principal, Claimed: q.Claimed, Dialect: q.Dialect, Model: q.Model,
		Turn: q.Turn, Trace: q.Trace, CallID: c.ID, Tool: c.Name, Kind: toolcall.KindTool.String(), Digest: gate.Digest(c.Name, c.Args),
		Verdict: gate.Deny.String(), Outcome: gate.Cancelled, By: "proxy", Reason: "the answer ended before anybody could be asked",
	}, true)
}

func (x *exchange) record(e gate.Entry, durable bool) {
	if x.p.Audit == nil {
		return
	}
	e.Time, e.Agent, e.Upstream = time.Now(), x.by.agent.Name, x.rt.up.Name
	e.Took = e.Time.Sub(x.began)
	// The entry is kept also when the client is gone.
	if err := x.p.Audit.Record(context.WithoutCancel(x.r.Context()), e, durable); err != nil {
		x.p.log.Error("the audit log took no entry", "reason", err.Error())
	}
}
