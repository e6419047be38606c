package person

import (
	"context"
	"errors"
	"time"

	"callgate/gate"
)

// wait stays until the question ends, the hold passes, the gate closes or the
// client has been gone for too long. again means: start over.
func (d *Desk) wait(ctx context.Context, q *question) (op gate.Opinion, again bool) {
	hold := time.NewTimer(d.c.Hold)
	defer hold.Stop()
	// Somebody else may still be putting the question.
	select {
	case <-q.ready:
	case <-hold.C:
		d.leave(q, false)
		return deny(gate.Timeout, "", "the question could not be put in time"), false
	case <-gate.Left(ctx):
		return d.away(ctx, q)
	case <-ctx.Done():
		return d.cancelled(ctx, q)
	}
	expiry, stop := d.expiry(q)
	defer stop()
	select {
	case <-q.end:
		return d.ended(ctx, q)
	case <-expiry:
		d.shut(ctx, q, gate.StateExpired)
		return d.ended(ctx, q)
	case <-hold.C:
		if a := d.asked(q); time.Now().Before(a.Expires) {
			d.leave(q, true)
			return deny(gate.Pending, a.ID, "no person has answered so far"), false
		}
		d.shut(ctx, q, gate.StateExpired)
		return d.ended(ctx, q)
	case <-gate.Left(ctx):
		return d.away(ctx, q)
	case <-ctx.Done():
		return d.cancelled(ctx, q)
	}
}

// asked is the approval of a question as it stands.
func (d *Desk) asked(q *question) gate.Approval {
	d.mu.Lock()
	defer d.mu.Unlock()
	return q.final
}

// expiry fires when the question's time is over.
func (d *Desk) expiry(q *question) (<-chan time.Time, func() bool) {
	t := time.NewTimer(time.Until(d.asked(q).Expires))
	return t.C, t.Stop
}

// cancelled is the opinion when the wait is ended from outside; the question
// stays open in the store.
func (d *Desk) cancelled(ctx context.Context, q *question) (gate.Opinion, bool) {
	d.leave(q, true)
	op := deny(gate.Cancelled, d.asked(q).ID, "the wait for a person was ended")
	op.Detail = context.Cause(ctx).Error()
	return op, false
}

// away goes on for a client that is gone. While others wait for the same
// question nothing is left to do; the last one stays for the grace period and
// withdraws the question when nobody came back.
func (d *Desk) away(ctx context.Context, q *question) (gate.Opinion, bool) {
	d.mu.Lock()
	q.waiting--
	q.gone++
	turn, last := q.gone, q.waiting == 0
	d.mu.Unlock()
	if !last {
		return left(d.asked(q)), false
	}
	grace := time.NewTimer(d.c.Grace)
	defer grace.Stop()
	select {
	case <-q.ready:
	case <-ctx.Done():
	}
	expiry, stop := d.expiry(q)
	defer stop()
	select {
	case <-q.end:
	case <-expiry:
		d.shut(ctx, q, gate.StateExpired)
	case <-ctx.Done():
	case <-grace.C:
		if d.deserted(q, turn) {
			d.shut(ctx, q, gate.StateWithdrawn)
		}
	}
	select {
	case <-q.end:
		return afterLeaving(q), false
	default: // it stays open: somebody came back for it, or the gate closes
		return left(d.asked(q)), false
	}
}

// deserted tells whether nobody has come for the question since that leaving,
// and nobody was told that it stays open.
func (d *Desk) deserted(q *question, turn int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return q.waiting == 0 && q.gone == turn && !q.kept
}

// left is the opinion for a client that has gone away.
func left(a gate.Approval) gate.Opinion {
	return deny(gate.Cancelled, a.ID, "the client went away before a person answered")
}

// afterLeaving is the opinion for a client that saw the end of its question
// only after it had gone. A yes is not used up: it waits for the client's next
// try.
func afterLeaving(q *question) gate.Opinion {
	switch {
	case q.failed != nil:
		return *q.failed
	case q.again:
		return left(q.final)
	case q.final.State == gate.StateApproved:
		return deny(gate.Cancelled, q.final.ID, "the client went away before the answer; the yes is kept for the same call")
	case q.final.State == gate.StateWithdrawn:
		return deny(gate.Cancelled, q.final.ID, "the client went away and did not come back, so the question was withdrawn")
	}
	return closed(q.final)
}

// shut closes an approval in the store, if it is still pending, and ends its
// question by what the store then says: an answer that was committed just
// before wins.
func (d *Desk) shut(ctx context.Context, q *question, to gate.ApprovalState) {
	ctx = context.WithoutCancel(ctx)
	id := d.asked(q).ID
	_, err := d.c.Store.CloseApproval(ctx, id, to, time.Now())
	if err == nil {
		var a gate.Approval
		if a, err = d.c.Store.Approval(ctx, id); err == nil && a.State != gate.StatePending {
			d.settle(q, func() { q.final = a })
			return
		}
	}
	if err == nil {
		err = errors.New("it is still pending after it was closed")
	}
	d.fail(q, broken(gate.StoreFailed, id, "the question could not be closed: "+err.Error()))
}

// ended gives the opinion for a client that saw its question end. A yes is
// used up by one of those who waited; the others start over.
func (d *Desk) ended(ctx context.Context, q *question) (op gate.Opinion, again bool) {
	switch {
	case q.failed != nil:
		return *q.failed, false
	case q.again:
		return op, true
	}
	switch q.final.State {
	case gate.StateApproved:
		select {
		case <-gate.Left(ctx):
			return afterLeaving(q), false
		default:
		}
		// The answer came in time, so its own time counts, not that of waking.
		if op := d.spend(ctx, q.final, q.final.Answered); op != nil {
			return *op, false
		}
		return op, true
	case gate.StateSpent, gate.StateWithdrawn:
		// Used up by another call, or withdrawn for those who had left.
		return op, true
	}
	return closed(q.final), false
}

// closed is the opinion on an approval that ended without a yes.
func closed(a gate.Approval) gate.Opinion {
	switch a.State {
	case gate.StateDenied:
		return deny(gate.Denied, a.ID, said("denied", a))
	case gate.StateExpired:
		return deny(gate.Timeout, a.ID, "no person answered in time")
	}
	return broken(gate.StoreFailed, a.ID, "the question ended as "+string(a.State))
}
