package person

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"callgate/gate"
)

// memory is a strict ApprovalStore: what a Desk must not do is an error or a
// complaint.
type memory struct {
	mu       sync.Mutex
	list     []gate.Approval // oldest first
	spends   map[string]int  // successful ones, by id
	complain func(string, ...any)
	// fail makes the named method fail; before runs at its start.
	fail   map[string]error
	before map[string]func()
}

var _ gate.ApprovalStore = (*memory)(nil)

func (m *memory) enter(ctx context.Context, method string) error {
	m.mu.Lock()
	f := m.before[method]
	m.mu.Unlock()
	if f != nil {
		f()
	}
	m.mu.Lock()
	if err := ctx.Err(); err != nil {
		return err
	}
	return m.fail[method]
}

// first makes f run at the start of the named method, or nothing.
func (m *memory) first(method string, f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before[method] = f
}

// failing makes the named method fail, or work again.
func (m *memory) failing(method string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail[method] = err
}

// at finds an approval; the caller holds mu.
func (m *memory) at(id string) *gate.Approval {
	for i := range m.list {
		if m.list[i].ID == id {
			return &m.list[i]
		}
	}
	return nil
}

func (m *memory) CreateApproval(ctx context.Context, a gate.Approval) error {
	err := m.enter(ctx, "CreateApproval")
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	switch {
	case m.at(a.ID) != nil:
		return fmt.Errorf("the id %s is taken", a.ID)
	case a.ID == "" || a.Key == "" || a.Digest == "" || a.State != gate.StatePending || !a.Expires.After(a.Created):
		m.complain("created %+v", a)
	}
	for _, o := range m.list {
		if o.Key == a.Key && (o.State == gate.StatePending || o.State == gate.StateApproved) && a.Created.Before(o.UsableUntil()) {
			m.complain("created %s while %s is open", a.ID, o.ID)
		}
	}
	m.list = append(m.list, a)
	return nil
}

func (m *memory) AnswerApproval(ctx context.Context, id string, ans gate.Answer, at time.Time) (gate.Approval, error) {
	err := m.enter(ctx, "AnswerApproval")
	defer m.mu.Unlock()
	if err != nil {
		return gate.Approval{}, err
	}
	a := m.at(id)
	switch {
	case a == nil:
		return gate.Approval{}, gate.ErrNotFound
	case a.State != gate.StatePending:
		return *a, gate.ErrAnswered
	}
	if !at.Before(a.Expires) {
		m.complain("answered %s after its time", id)
	}
	a.State, a.Answered, a.By, a.Reason = gate.StateDenied, at, ans.By, ans.Reason
	if ans.Approve {
		a.State = gate.StateApproved
	}
	return *a, nil
}

func (m *memory) CloseApproval(ctx context.Context, id string, to gate.ApprovalState, _ time.Time) (bool, error) {
	err := m.enter(ctx, "CloseApproval")
	defer m.mu.Unlock()
	if err != nil {
		return false, err
	}
	if to != gate.StateExpired && to != gate.StateWithdrawn {
		return false, errors.New("not a state to close to")
	}
	a := m.at(id)
	if a == nil || a.State != gate.StatePending {
		return false, nil
	}
	a.State = to
	return true, nil
}

func (m *memory) SpendApproval(ctx context.Context, id string, at time.Time) (bool, error) {
	err := m.enter(ctx, "SpendApproval")
	defer m.mu.Unlock()
	if err != nil {
		return false, err
	}
	a := m.at(id)
	if a == nil || a.State != gate.StateApproved || !at.Before(a.UsableUntil()) {
		return false, nil
	}
	a.State = gate.StateSpent
	m.spends[id]++
	return true, nil
}

func (m *memory) OpenApproval(ctx context.Context, key string, at time.Time) (gate.Approval, error) {
	err := m.enter(ctx, "OpenApproval")
	defer m.mu.Unlock()
	if err != nil {
		return gate.Approval{}, err
	}
	for _, a := range slices.Backward(m.list) {
		if a.Key == key && (a.State == gate.StatePending || a.State == gate.StateApproved) && at.Before(a.UsableUntil()) {
			return a, nil
		}
	}
	return gate.Approval{}, gate.ErrNotFound
}

func (m *memory) Approval(ctx context.Context, id string) (gate.Approval, error) {
	err := m.enter(ctx, "Approval")
	defer m.mu.Unlock()
	if err != nil {
		return gate.Approval{}, err
	}
	if a := m.at(id); a != nil {
		return *a, nil
	}
	return gate.Approval{}, gate.ErrNotFound
}

func (m *memory) Approvals(ctx context.Context, state gate.ApprovalState, limit int) ([]gate.Approval, error) {
	err := m.enter(ctx, "Approvals")
	defer m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var out []gate.Approval
	for _, a := range slices.Backward(m.list) {
		if (state == "" || a.State == state) && len(out) < limit {
			out = append(out, a)
		}
	}
	return out, nil
}

// states counts the approvals by state.
func (m *memory) states() map[gate.ApprovalState]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[gate.ApprovalState]int{}
	for _, a := range m.list {
		out[a.State]++
	}
	return out
}
