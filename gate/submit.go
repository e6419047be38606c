package gate

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"callgate/inspect/toolcall"
)

// Ticket is a decision that may still be open. The zero Ticket never ends and
// denies.
type Ticket struct {
	done chan struct{}
	d    Decision // written before done is closed, never after
	left chan struct{}
	once sync.Once
}

// Done is closed when the decision has fallen; at once where nobody had to be
// asked.
func (t *Ticket) Done() <-chan struct{} { return t.done }

// Decision is the decision, once Done is closed. Before that it denies.
func (t *Ticket) Decision() Decision {
	select {
	case <-t.done:
		return t.d
	default:
		return Decision{Outcome: Pending, By: "gate", Reason: "the decision has not fallen"}
	}
}

// Leave says that the client has gone away. The question goes on, because a
// client that lost its connection asks again; whoever is asked hears of it
// through Left and may give up after a while.
func (t *Ticket) Leave() {
	if t.left != nil {
		t.once.Do(func() { close(t.left) })
	}
}

type leftKey struct{}

// WithLeft gives ctx a channel that is closed when the client goes away.
func WithLeft(ctx context.Context, left <-chan struct{}) context.Context {
	return context.WithValue(ctx, leftKey{}, left)
}

// Left is closed when the client that waits for the decision has gone away;
// it is nil where that cannot be known. A Reviewer's context holds it.
func Left(ctx context.Context) <-chan struct{} {
	left, _ := ctx.Value(leftKey{}).(<-chan struct{})
	return left
}

// hasLeft tells whether the client is gone.
func hasLeft(ctx context.Context) bool {
	select {
	case <-Left(ctx):
		return true
	default:
		return false
	}
}

// Submit starts deciding. What needs nobody is decided, and recorded, on the
// caller's goroutine and the ticket is done when Submit returns. For the rest
// one goroutine of the gate asks and waits; the end of ctx does not end it
// (Leave tells it of a client that is gone, Close ends it), its values are
// kept. The request and its bytes are not used after Submit returns.
func (g *Gate) Submit(ctx context.Context, r *Request) *Ticket {
	start := time.Now()
	d := g.order(r)
	switch {
	case d.Verdict != Ask:
	case g.c.Mode == Manual && g.c.Person == nil:
		d = d.unattended()
	case !g.begin():
		d = d.ending(Deny, Cancelled, "gate", errClosing.Error())
	}
	if d.Verdict != Ask {
		return &Ticket{done: g.closed, d: g.conclude(ctx, r, d, start)}
	}
	return g.submit(ctx, r, d, start)
}

// submit is the part of Submit where somebody is asked. It stands apart so that
// the other calls, which are nearly all, do not pay for what it needs.
func (g *Gate) submit(ctx context.Context, r *Request, d Decision, start time.Time) *Ticket {
	t := &Ticket{done: make(chan struct{}), left: make(chan struct{})}
	own := r.clone()
	ctx, cancel := context.WithCancelCause(WithLeft(context.WithoutCancel(ctx), t.left))
	stop := context.AfterFunc(g.life, func() { cancel(context.Cause(g.life)) })
	go func() {
		defer g.running.Done()
		defer stop()
		defer cancel(nil)
		defer close(t.done)
		d := g.review(ctx, own, d, true)
		if d.Verdict == Allow && hasLeft(ctx) {
			d = d.ending(Deny, Cancelled, "gate", "the client went away before the decision fell")
		}
		t.d = g.conclude(ctx, own, d, start)
	}()
	return t
}

// Decide decides and waits. The end of ctx is a denial, and counts as the
// client's leaving.
func (g *Gate) Decide(ctx context.Context, r *Request) Decision {
	t := g.Submit(ctx, r)
	select {
	case <-t.Done():
		return t.Decision()
	case <-ctx.Done():
		t.Leave()
		return Decision{Outcome: Cancelled, By: "gate", Reason: "the client went away before the decision fell"}
	}
}

// Preview goes through the whole order, the hook included, as if the call had
// come from an agent, but asks no person and records nothing: where a person
// would be asked the verdict is Ask.
func (g *Gate) Preview(ctx context.Context, r *Request) Decision {
	d := g.order(r)
	if d.Verdict != Ask {
		return d
	}
	return g.review(ctx, r.clone(), d, false)
}

// Classify says what the order gives without anybody being asked: Allow, Deny,
// or Ask where somebody would be. It needs no reviewer.
func (g *Gate) Classify(r *Request) Decision { return g.order(r) }

// clone copies the request and all bytes in it that its owner may use again.
func (r *Request) clone() *Request {
	c := *r
	c.Call.Args = bytes.Clone(r.Call.Args)
	c.Actions = slices.Clone(r.Actions)
	for i := range c.Actions {
		c.Actions[i].Content = bytes.Clone(c.Actions[i].Content)
	}
	c.Findings = slices.Clone(r.Findings)
	c.Siblings = slices.Clone(r.Siblings)
	for i := range c.Siblings {
		c.Siblings[i].Args = bytes.Clone(c.Siblings[i].Args)
	}
	return &c
}

// Concerns is the action that the first finding concerns, or the first one;
// its zero value where the call has none.
func (r *Request) Concerns() toolcall.Action {
	for _, f := range r.Findings {
		if 0 <= f.Action && f.Action < len(r.Actions) {
			return r.Actions[f.Action]
		}
	}
	if len(r.Actions) > 0 {
		return r.Actions[0]
	}
	return toolcall.Action{}
}
