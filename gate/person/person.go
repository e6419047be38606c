// Package person is the reviewer that asks a person. It holds the open
// questions of this process and everything about waiting for an answer: who
// shares a question, how long it stays open, what happens when the client goes
// away. Approvals themselves are kept in a store; how people are told and how
// they answer are none of its business.
package person

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"callgate/gate"
)

// The times that hold where Config says nothing.
const (
	DefaultTimeout = 300 * time.Second
	DefaultGrace   = 120 * time.Second
)

// notifyTime bounds one Notify.
const notifyTime = 30 * time.Second

// Config holds what a Desk is built from.
type Config struct {
	// Store keeps the approvals.
	Store gate.ApprovalStore
	// Notify tells people of a new question, once. An error means that nobody
	// was told: the question is closed and the call denied.
	Notify func(context.Context, gate.Approval) error
	// Mask hides secrets in what people are shown.
	Mask func(string) string
	// Timeout is how long a question can be answered; 0 means DefaultTimeout. A
	// yes that was not used yet stays good for gate.YesLife after it at least.
	Timeout time.Duration
	// Hold is how long a call waits for the answer; the question outlives it.
	// 0 means as long as the question is open.
	Hold time.Duration
	// Grace is how long a question stays open after the last client that
	// waited for it went away; 0 means DefaultGrace.
	Grace time.Duration
}

// Desk asks people and takes their answers. It is safe for concurrent use.
type Desk struct {
	c Config

	mu   sync.Mutex
	open map[string]*question // by key
	byID map[string]*question
	noes denials
}

var _ gate.Reviewer = (*Desk)(nil)

// New builds a Desk. An error names what is missing.
func New(c Config) (*Desk, error) {
	switch {
	case c.Store == nil:
		return nil, errors.New("person: there is no store for approvals; give one")
	case c.Notify == nil:
		return nil, errors.New("person: there is no way to tell people of a question; give one")
	case c.Mask == nil:
		return nil, errors.New("person: nothing hides secrets from what people are shown; give a mask")
	case c.Timeout < 0 || c.Hold < 0 || c.Grace < 0:
		return nil, errors.New("person: a time is below zero; use 0 for the default")
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Hold == 0 || c.Hold > c.Timeout {
		c.Hold = c.Timeout
	}
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	return &Desk{c: c, open: map[string]*question{}, byID: map[string]*question{}}, nil
}

// Recall brings back from the store the noes that still hold, so that a restart
// makes nobody answer again what was answered.
func (d *Desk) Recall(ctx context.Context) error {
	list, err := d.c.Store.Approvals(ctx, gate.StateDenied, maxDenials)
	if err != nil {
		return fmt.Errorf("person: reading the denials that still hold: %w", err)
	}
	for _, a := range slices.Backward(list) { // the oldest first
		d.remember(a)
	}
	return nil
}

// question is one open question and everybody who waits for its answer.
type question struct {
	key string
	// ready is closed when the question stands in the store and people were
	// told, or when it has ended before.
	ready chan struct{}
	// end is closed once the question has ended; the three fields below it are
	// not written after that.
	end chan struct{}
	// final is the approval: as it was put, until it ends.
	final gate.Approval
	// failed ends the question without an answer, when it could not be put.
	failed *gate.Opinion
	// again sends everybody back to the start: the question was never put.
	again bool

	// Guarded by Desk.mu.
	waiting int  // clients that wait and have not left
	gone    int  // how often one of them left
	kept    bool // a client was told that it stays open
}

// maxTurns bounds how often one call may start over. Each turn means that
// another call of the same key used a yes up, so it is never reached by one
// client alone.
const maxTurns = 64

// Review asks a person, or uses what a person already said about the same call
// of the same session: an unused yes is used up, an open question is shared,
// and a no sticks. A yes allows exactly one call.
func (d *Desk) Review(ctx context.Context, r *gate.Request) gate.Opinion {
	start := time.Now()
	op := d.review(ctx, r)
	op.Steps = append(op.Steps, gate.Step{Name: "wait", Start: start, End: time.Now(), Note: note(op)})
	return op
}

func note(op gate.Opinion) string {
	if op.Outcome != "" {
		return string(op.Outcome)
	}
	if op.Verdict == gate.Allow {
		return string(gate.Allowed)
	}
	return string(gate.Denied)
}

func (d *Desk) review(ctx context.Context, r *gate.Request) gate.Opinion {
	key := gate.ApprovalKey(r)
	for range maxTurns {
		if op, ok := d.refusedBefore(key); ok {
			return op
		}
		q, mine := d.join(key)
		if mine {
			if op := d.put(ctx, q, r); op != nil {
				return *op
			}
		}
		if op, again := d.wait(ctx, q); !again {
			return op
		}
	}
	return deny(gate.Timeout, "", "other calls that are exactly the same used up every yes")
}

// join takes part in the open question with that key. mine tells that there
// was none: the caller must put it.
func (d *Desk) join(key string) (q *question, mine bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q = d.open[key]
	if q == nil {
		q, mine = &question{key: key, ready: make(chan struct{}), end: make(chan struct{})}, true
		d.open[key] = q
	}
	q.waiting++
	return q, mine
}

// leave takes one client away from a question that stays open. When nobody is
// left here, the store alone knows it, until the same call comes again.
func (d *Desk) leave(q *question, kept bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q.waiting--
	q.kept = q.kept || kept
	if q.waiting == 0 {
		d.drop(q)
	}
}

// drop takes a question off the maps; Desk.mu is held.
func (d *Desk) drop(q *question) {
	if d.open[q.key] == q {
		delete(d.open, q.key)
	}
	if d.byID[q.final.ID] == q {
		delete(d.byID, q.final.ID)
	}
}

// put opens a question: it adopts one that the store knows from before, or
// creates a new one and tells people. It gives an opinion when a yes was there
// to be used; everything else ends the question or leaves it to be waited for.
func (d *Desk) put(ctx context.Context, q *question, r *gate.Request) *gate.Opinion {
	// A panic in the store must not leave others waiting.
	whole := false
	defer close(q.ready)
	defer func() {
		if !whole {
			d.fail(q, broken(gate.StoreFailed, "", "putting the question ended in a panic"))
		}
	}()
	op := d.tryPut(ctx, q, r)
	whole = true
	return op
}

func (d *Desk) tryPut(ctx context.Context, q *question, r *gate.Request) *gate.Opinion {
	now := time.Now()
	a, err := d.c.Store.OpenApproval(ctx, q.key, now)
	switch {
	case errors.Is(err, gate.ErrNotFound):
		d.ask(ctx, q, d.approval(r, q.key, now))
	case err != nil:
		d.fail(q, broken(gate.StoreFailed, "", "the store of approvals failed: "+err.Error()))
	case a.Key != q.key:
		d.fail(q, broken(gate.StoreFailed, "", "the store of approvals gave an approval for another call"))
	case a.State == gate.StatePending:
		d.adopt(q, a)
	default:
		op := d.spend(ctx, a, now)
		d.settle(q, func() { q.again = true })
		if op == nil { // somebody else used it: everybody, this call too, starts over
			return nil
		}
		return op
	}
	return nil
}

// adopt makes an approval the one this question waits for.
func (d *Desk) adopt(q *question, a gate.Approval) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q.final = a
	d.byID[a.ID] = q
}

// ask creates the approval durably and then tells people of it.
func (d *Desk) ask(ctx context.Context, q *question, a gate.Approval) {
	// An answer can come as soon as the approval exists.
	d.adopt(q, a)
	if err := d.c.Store.CreateApproval(context.WithoutCancel(ctx), a); err != nil {
		d.fail(q, broken(gate.StoreFailed, "", "the question could not be stored: "+err.Error()))
		return
	}
	err := d.notify(ctx, a)
	if err == nil {
		return
	}
	closed, cerr := d.c.Store.CloseApproval(context.WithoutCancel(ctx), a.ID, gate.StateWithdrawn, time.Now())
	if cerr == nil && !closed { // somebody found the question and answered it
		return
	}
	detail := "no person could be told of the question: " + err.Error()
	if cerr != nil {
		detail += "; and it could not be closed: " + cerr.Error()
	}
	d.fail(q, broken(gate.NotifyFailed, a.ID, detail))
}

func (d *Desk) notify(ctx context.Context, a gate.Approval) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("telling people panicked: %v", v)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, notifyTime)
	defer cancel()
	return d.c.Notify(ctx, a)
}

// approval describes the request for people. Secrets are masked.
func (d *Desk) approval(r *gate.Request, key string, now time.Time) gate.Approval {
	act, mask := r.Concerns(), d.c.Mask
	return gate.Approval{
		ID: d.newID(), State: gate.StatePending, Key: key, Digest: gate.Digest(r.Call.Name, r.Call.Args),
		Agent: r.Agent, Claimed: r.Claimed, Tool: r.Call.Name,
		Kind: act.Kind.String(), Command: mask(act.Command), Path: mask(act.Path), Args: mask(string(r.Call.Args)),
		Findings: gate.Briefs(r.Findings, mask), Why: mask(r.Why),
		Upstream: r.Upstream, Model: r.Model, Trace: r.Trace,
		Created: now, Expires: now.Add(d.c.Timeout),
	}
}

// idLetters are Crockford's base 32 in lower case: none is taken for another.
const idLetters = "0123456789abcdefghjkmnpqrstvwxyz"

// newID gives an id of 40 random bits that a person can type.
func (d *Desk) newID() string {
	for {
		var b [8]byte
		rand.Read(b[:]) // never fails
		for i, c := range b {
			b[i] = idLetters[c%32]
		}
		d.mu.Lock()
		taken := d.byID[string(b[:])] != nil
		d.mu.Unlock()
		if !taken {
			return string(b[:])
		}
	}
}

// settle ends a question once; how it ended is written by f.
func (d *Desk) settle(q *question, f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-q.end:
		return
	default:
	}
	f()
	d.drop(q)
	close(q.end)
}

func (d *Desk) fail(q *question, op gate.Opinion) {
	d.settle(q, func() { q.failed = &op })
}

// spend uses up a yes; nil means that it was no longer there.
func (d *Desk) spend(ctx context.Context, a gate.Approval, at time.Time) *gate.Opinion {
	// Never cut short: a yes that was used up and then forgotten is lost.
	ok, err := d.c.Store.SpendApproval(context.WithoutCancel(ctx), a.ID, at)
	if err != nil {
		op := broken(gate.StoreFailed, a.ID, "the yes could not be marked as used: "+err.Error())
		return &op
	}
	if !ok {
		return nil
	}
	return &gate.Opinion{Verdict: gate.Allow, Outcome: gate.Allowed, By: "person", Approval: a.ID, Reason: said("allowed", a)}
}

func deny(o gate.Outcome, id, reason string) gate.Opinion {
	return gate.Opinion{Verdict: gate.Deny, Outcome: o, By: "person", Approval: id, Reason: reason}
}

// broken is the denial where something failed on this side. Its reason is left
// to what was found in the call; the detail is for operators.
func broken(o gate.Outcome, id, detail string) gate.Opinion {
	return gate.Opinion{Verdict: gate.Deny, Outcome: o, By: "person", Approval: id, Detail: detail}
}

// said tells what a person said, in one sentence without a full stop.
func said(verb string, a gate.Approval) string {
	s := verb + " by " + a.By
	if a.By == "" {
		s = verb + " by a person"
	}
	if a.Reason != "" {
		s += ": " + a.Reason
	}
	return s
}
