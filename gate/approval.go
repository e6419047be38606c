package gate

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// ApprovalState is where a question stands.
type ApprovalState string

// The states of an approval.
const (
	StatePending   ApprovalState = "pending"
	StateApproved  ApprovalState = "approved" // yes, not yet used
	StateSpent     ApprovalState = "spent"    // yes, and the call was let through
	StateDenied    ApprovalState = "denied"
	StateExpired   ApprovalState = "expired"   // nobody answered in time
	StateWithdrawn ApprovalState = "withdrawn" // the agent went away
)

// Approval is a question put to a person.
type Approval struct {
	ID    string        `json:"id"`
	State ApprovalState `json:"state"`
	// Key is what the yes is bound to: principal, session and digest of the
	// tool and its exact arguments.
	Key     string `json:"-"`
	Digest  string `json:"digest"` // SHA-256 of tool and exact arguments, hex
	Agent   string `json:"agent"`
	Claimed Claims `json:"claimed,omitzero"`
	Tool    string `json:"tool"`
	// Kind, Command, Path are of the action that the first finding concerns,
	// for lists; Args is the whole call. Secrets are masked in all of them.
	Kind     string         `json:"kind"`
	Command  string         `json:"command,omitempty"`
	Path     string         `json:"path,omitempty"`
	Args     string         `json:"args"`
	Findings []FindingBrief `json:"findings"`
	// Why is the sentence of whoever wants a person asked.
	Why      string    `json:"why,omitempty"`
	Upstream string    `json:"upstream,omitempty"`
	Model    string    `json:"model,omitempty"`
	Trace    string    `json:"trace,omitempty"`
	Created  time.Time `json:"created"`
	// Expires is when the question can no longer be answered.
	Expires time.Time `json:"expires"`
	// The answer.
	Answered time.Time `json:"answered,omitzero"`
	By       string    `json:"by,omitempty"`
	Reason   string    `json:"reason,omitempty"`
}

// UnmarshalJSON reads an approval, and those that were written before there were
// claims.
func (a *Approval) UnmarshalJSON(b []byte) error {
	type plain Approval
	if err := json.Unmarshal(b, (*plain)(a)); err != nil {
		return err
	}
	return a.Claimed.readAlone(b)
}

// YesLife is how long a yes stays good at least, counted from the answer: a
// person who answers when the call's hold is long over, and the question's time
// nearly, still lets the agent come back for it.
const YesLife = 10 * time.Minute

// UsableUntil is when the approval can no longer be used: a pending one by an
// answer, an approved one by its call. It is Expires, or for a yes YesLife
// after the answer where that is later.
func (a Approval) UsableUntil() time.Time {
	if yes := a.Answered.Add(YesLife); a.State == StateApproved && yes.After(a.Expires) {
		return yes
	}
	return a.Expires
}

// FindingBrief is a finding as people and logs see it.
type FindingBrief struct {
	Rule     string `json:"rule"`
	Severity string `json:"severity"`
	Category string `json:"category"`
	Reason   string `json:"reason"`
	Words    string `json:"words,omitempty"`
	Instead  string `json:"instead,omitempty"`
}

// Answer is what a person says to a question. The zero value says no.
type Answer struct {
	Approve bool
	By      string
	Reason  string
}

// The errors of approvals that callers act on.
var (
	// ErrNotFound reports an approval that does not exist.
	ErrNotFound = errors.New("there is no such approval")
	// ErrAnswered reports an approval that is no longer pending: the first
	// answer wins.
	ErrAnswered = errors.New("the approval is no longer pending")
)

// ApprovalStore keeps approvals durably: each method returns after the change
// is on disk. Changes of state are compare-and-swap.
type ApprovalStore interface {
	// CreateApproval keeps a new pending approval.
	CreateApproval(ctx context.Context, a Approval) error
	// AnswerApproval moves a pending approval to approved or denied and
	// returns it; ErrAnswered (with the approval as it stands) when another
	// answer was first, ErrNotFound when there is none.
	AnswerApproval(ctx context.Context, id string, ans Answer, at time.Time) (Approval, error)
	// CloseApproval moves a pending approval to expired or withdrawn; it
	// reports false when the approval was no longer pending.
	CloseApproval(ctx context.Context, id string, to ApprovalState, at time.Time) (bool, error)
	// SpendApproval moves an approved one to spent, once for ever; it reports
	// false when it is in any other state or can no longer be used.
	SpendApproval(ctx context.Context, id string, at time.Time) (bool, error)
	// OpenApproval returns the newest approval with that key that is pending
	// or approved and can still be used at that time (UsableUntil); ErrNotFound
	// when there is none.
	OpenApproval(ctx context.Context, key string, at time.Time) (Approval, error)
	// Approval returns one by its id; ErrNotFound when there is none.
	Approval(ctx context.Context, id string) (Approval, error)
	// Approvals lists them, newest first; state "" means all.
	Approvals(ctx context.Context, state ApprovalState, limit int) ([]Approval, error)
}
