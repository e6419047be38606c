package person

import (
	"context"
	"time"

	"callgate/gate"
)

// Answer gives a person's answer to a question. It is durable before anybody
// who waits hears of it, and the first one wins: a later one, or one after the
// question's time, gets ErrAnswered with the approval as it stands; an unknown
// id gets ErrNotFound.
func (d *Desk) Answer(ctx context.Context, id string, ans gate.Answer) (gate.Approval, error) {
	now := time.Now()
	a, err := d.c.Store.Approval(ctx, id)
	if err != nil {
		return gate.Approval{}, err
	}
	if a, err = d.sweep(ctx, a, now); err != nil {
		return a, err
	}
	if a.State != gate.StatePending {
		return a, gate.ErrAnswered
	}
	a, err = d.c.Store.AnswerApproval(ctx, id, ans, now)
	if err != nil {
		return a, err
	}
	if a.State == gate.StateDenied {
		d.remember(a)
	}
	d.mu.Lock()
	q := d.byID[id]
	d.mu.Unlock()
	if q != nil {
		d.settle(q, func() { q.final = a })
	}
	return a, nil
}

// Approval returns one approval by its id; ErrNotFound when there is none.
func (d *Desk) Approval(ctx context.Context, id string) (gate.Approval, error) {
	a, err := d.c.Store.Approval(ctx, id)
	if err != nil {
		return a, err
	}
	return d.sweep(ctx, a, time.Now())
}

// Approvals lists approvals, newest first; state "" means all. What is listed
// as pending can be answered.
func (d *Desk) Approvals(ctx context.Context, state gate.ApprovalState, limit int) ([]gate.Approval, error) {
	list, err := d.c.Store.Approvals(ctx, state, limit)
	if err != nil {
		return nil, err
	}
	now, kept := time.Now(), list[:0]
	for _, a := range list {
		if a, err = d.sweep(ctx, a, now); err != nil {
			return nil, err
		}
		if state == "" || a.State == state {
			kept = append(kept, a)
		}
	}
	return kept, nil
}

// sweep closes an approval whose time passed while nobody waited for it: the
// call's hold had ended, or the process that asked is gone.
func (d *Desk) sweep(ctx context.Context, a gate.Approval, now time.Time) (gate.Approval, error) {
	if a.State != gate.StatePending || now.Before(a.Expires) {
		return a, nil
	}
	if _, err := d.c.Store.CloseApproval(ctx, a.ID, gate.StateExpired, now); err != nil {
		return a, err
	}
	a, err := d.c.Store.Approval(ctx, a.ID)
	if err != nil {
		return a, err
	}
	d.mu.Lock()
	q := d.byID[a.ID]
	d.mu.Unlock()
	if q != nil && a.State != gate.StatePending {
		d.settle(q, func() { q.final = a })
	}
	return a, nil
}

// The span for which a no sticks, and how many are remembered.
const (
	stickyNo   = 24 * time.Hour
	maxDenials = 4096
)

// denials remembers noes by the key of their call, newest last.
type denials struct {
	byKey map[string]denial
	order []string
}

type denial struct {
	a     gate.Approval
	until time.Time
}

// remember keeps a no, so that a model that tries the same call again does not
// wear the person down. Within a claimed session it holds for stickyNo; where
// the client claims none, one key can belong to several conversations, and it
// holds only as long as a question does.
func (d *Desk) remember(a gate.Approval) {
	span := stickyNo
	if a.Claimed.Session == "" {
		span = d.c.Timeout
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.noes.byKey == nil {
		d.noes.byKey = map[string]denial{}
	}
	if _, known := d.noes.byKey[a.Key]; !known {
		d.noes.order = append(d.noes.order, a.Key)
	}
	d.noes.byKey[a.Key] = denial{a: a, until: a.Answered.Add(span)}
	if len(d.noes.order) > maxDenials {
		delete(d.noes.byKey, d.noes.order[0])
		d.noes.order = d.noes.order[1:]
	}
}

// refusedBefore gives the no that a person said to the same call before.
func (d *Desk) refusedBefore(key string) (gate.Opinion, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	no, ok := d.noes.byKey[key]
	if !ok || !time.Now().Before(no.until) {
		return gate.Opinion{}, false
	}
	return deny(gate.Denied, no.a.ID, "exactly this call was already "+said("denied", no.a)), true
}
