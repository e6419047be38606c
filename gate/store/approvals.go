package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"callgate/gate"
)

// approvalColumns are the columns that scanApproval reads.
const approvalColumns = `state, key, answered, by, reason, body`

// CreateApproval keeps a new pending approval. An id that exists is an error,
// and so is an approval that is not pending.
func (s *Store) CreateApproval(ctx context.Context, a gate.Approval) error {
	if a.ID == "" || a.Key == "" || a.State != gate.StatePending {
		return fmt.Errorf("approval %q: a new one needs an id, a key and the state pending, not %q", a.ID, a.State)
	}
	a.Created, a.Expires = a.Created.UTC(), a.Expires.UTC()
	body, err := json.Marshal(a)
	if err != nil {
		return approvalError(a.ID, err)
	}
	created := false
	err = s.change(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		created, err = changed(ctx, c, `INSERT INTO approvals (id, state, key, created, expires, body) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT DO NOTHING`, a.ID, string(a.State), a.Key, nanos(a.Created), nanos(a.Expires), body)
		return err
	})
	if err == nil && !created {
		err = errors.New("there is an approval with that id already")
	}
	return approvalError(a.ID, err)
}

// AnswerApproval moves a pending approval to approved or denied and returns
// it. When it is no longer pending the error is gate.ErrAnswered and the
// approval is returned as it stands; that holds also for one whose time has
// passed at that time, which is then expired. gate.ErrNotFound when there is
// none.
func (s *Store) AnswerApproval(ctx context.Context, id string, ans gate.Answer, at time.Time) (gate.Approval, error) {
	to := gate.StateDenied
	if ans.Approve {
		to = gate.StateApproved
	}
	var a gate.Approval
	var found, first bool
	err := s.change(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		if err := exec(ctx, c, `UPDATE approvals SET state = 'expired' WHERE id = ? AND state = 'pending' AND expires <= ?`, id, nanos(at)); err != nil {
			return err
		}
		if first, err = changed(ctx, c, `UPDATE approvals SET state = ?, answered = ?, by = ?, reason = ? WHERE id = ? AND state = 'pending'`,
			string(to), nanos(at), ans.By, ans.Reason, id); err != nil {
			return err
		}
		a, found, err = approvalByID(ctx, c, id)
		return err
	})
	switch {
	case err != nil:
	case !found:
		err = gate.ErrNotFound
	case !first:
		err = gate.ErrAnswered
	}
	return a, approvalError(id, err)
}

// CloseApproval moves a pending approval to expired or withdrawn; it reports
// false when the approval was no longer pending or does not exist.
func (s *Store) CloseApproval(ctx context.Context, id string, to gate.ApprovalState, at time.Time) (bool, error) {
	if to != gate.StateExpired && to != gate.StateWithdrawn {
		return false, fmt.Errorf("approval %s: it cannot be closed as %q", id, to)
	}
	return s.move(ctx, id, `UPDATE approvals SET state = ? WHERE id = ? AND state = 'pending'`, string(to), id)
}

// yesIsGood is gate.Approval.UsableUntil for a yes, as a condition on
// gate.YesLife and a time.
const yesIsGood = `state = 'approved' AND max(expires, answered + ?) > ?`

// SpendApproval moves an approved one to spent, once for ever; it reports
// false when it is in any other state, of no use any more at that time, or
// unknown.
func (s *Store) SpendApproval(ctx context.Context, id string, at time.Time) (bool, error) {
	return s.move(ctx, id, `UPDATE approvals SET state = 'spent' WHERE id = ? AND `+yesIsGood, id, int64(gate.YesLife), nanos(at))
}

func (s *Store) move(ctx context.Context, id, query string, args ...any) (moved bool, err error) {
	err = s.change(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		moved, err = changed(ctx, c, query, args...)
		return err
	})
	return moved && err == nil, approvalError(id, err)
}

// OpenApproval returns the newest approval with that key that is pending or
// approved and can still be used at that time; gate.ErrNotFound when there is
// none.
func (s *Store) OpenApproval(ctx context.Context, key string, at time.Time) (gate.Approval, error) {
	row := s.read.QueryRowContext(ctx, `SELECT `+approvalColumns+` FROM approvals
		WHERE key = ? AND (state = 'pending' AND expires > ? OR `+yesIsGood+`) ORDER BY created DESC, rowid DESC LIMIT 1`,
		key, nanos(at), int64(gate.YesLife), nanos(at))
	a, err := scanApproval(row)
	if errors.Is(err, sql.ErrNoRows) {
		return gate.Approval{}, gate.ErrNotFound
	}
	return a, err
}

// Approval returns one by its id; gate.ErrNotFound when there is none. Here
// and in Approvals a pending one whose time has passed counts as expired, also
// when nobody was there to close it.
func (s *Store) Approval(ctx context.Context, id string) (gate.Approval, error) {
	a, found, err := approvalByID(ctx, s.read, id)
	if err == nil && !found {
		err = gate.ErrNotFound
	}
	return settled(a, time.Now()), approvalError(id, err)
}

// Approvals lists them, newest first: those in that state, or all when it is
// "", and at most limit when that is not 0.
func (s *Store) Approvals(ctx context.Context, state gate.ApprovalState, limit int) ([]gate.Approval, error) {
	now := time.Now()
	if limit <= 0 {
		limit = -1 // SQLite's word for no limit
	}
	where, args := inState(state, now)
	rows, err := s.read.QueryContext(ctx, `SELECT `+approvalColumns+` FROM approvals
		WHERE `+where+` ORDER BY created DESC, rowid DESC LIMIT ?`, append(args, limit)...)
	if err != nil {
		return nil, fmt.Errorf("approvals: %w", err)
	}
	defer rows.Close()
	var list []gate.Approval
	for rows.Next() {
		a, err := scanApproval(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, settled(a, now))
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("approvals: %w", err)
	}
	return list, nil
}

// inState is the condition for approvals in that state, as settled gives it.
func inState(state gate.ApprovalState, now time.Time) (string, []any) {
	switch state {
	case "":
		return `1`, nil
	case gate.StatePending:
		return `state = 'pending' AND expires > ?`, []any{nanos(now)}
	case gate.StateExpired:
		return `(state = 'expired' OR state = 'pending' AND expires <= ?)`, []any{nanos(now)}
	}
	return `state = ?`, []any{string(state)}
}

func approvalByID(ctx context.Context, q querier, id string) (gate.Approval, bool, error) {
	a, err := scanApproval(q.QueryRowContext(ctx, `SELECT `+approvalColumns+` FROM approvals WHERE id = ?`, id))
	if errors.Is(err, sql.ErrNoRows) {
		return gate.Approval{}, false, nil
	}
	return a, err == nil, err
}

func scanApproval(row scanner) (gate.Approval, error) {
	var state, key, by, reason string
	var answered sql.NullInt64
	var body []byte
	if err := row.Scan(&state, &key, &answered, &by, &reason, &body); err != nil {
		return gate.Approval{}, fmt.Errorf("approvals: %w", err)
	}
	var a gate.Approval
	if err := json.Unmarshal(body, &a); err != nil {
		return gate.Approval{}, fmt.Errorf("approvals: %w", err)
	}
	a.State, a.Key, a.By, a.Reason = gate.ApprovalState(state), key, by, reason
	if answered.Valid {
		a.Answered = time.Unix(0, answered.Int64).UTC()
	}
	return a, nil
}

// settled gives a pending approval whose time has passed as expired.
func settled(a gate.Approval, now time.Time) gate.Approval {
	if a.State == gate.StatePending && !a.Expires.After(now) {
		a.State = gate.StateExpired
	}
	return a
}

func approvalError(id string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("approval %s: %w", id, err)
}
