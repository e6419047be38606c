package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"callgate/gate"

	"github.com/google/go-cmp/cmp"
)

// approval is a pending one that is answerable for an hour from at.
func approval(id string, at time.Time) gate.Approval {
	return gate.Approval{
		ID: id, State: gate.StatePending, Key: "key of " + id, Digest: "d", Agent: "default", Claimed: gate.Claims{Session: "s", User: "ann", Platform: "cli"},
		Tool: "bash", Kind: "command", Command: "rm -rf build", Args: `{"command":"rm -rf build"}`,
		Findings: []gate.FindingBrief{{Rule: "fs.recursive-delete", Severity: "danger", Category: "fs", Reason: "deletes a folder"}},
		Why:      "a person is wanted", Upstream: "openai", Model: "m", Trace: "t",
		Created: at, Expires: at.Add(time.Hour),
	}
}

// now is a moment that survives storage as it is.
func now() time.Time { return time.Now().UTC().Round(0) }

func create(t testing.TB, s *Store, a gate.Approval) {
	t.Helper()
	if err := s.CreateApproval(t.Context(), a); err != nil {
		t.Fatal(err)
	}
}

func TestAnApprovalComesBackAsItWasCreated(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	want := approval("a1", now())
	create(t, s, want)
	closed(t, s)
	s = open(t, dir)
	got, err := s.Approval(t.Context(), "a1")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestAnAnswerIsDurableAndReturned(t *testing.T) {
	for _, tt := range []struct {
		name string
		yes  bool
		want gate.ApprovalState
	}{
		{"a yes approves", true, gate.StateApproved},
		{"a no denies", false, gate.StateDenied},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			at := now()
			want := approval("a1", at)
			create(t, s, want)
			want.State, want.Answered, want.By, want.Reason = tt.want, at.Add(time.Second), "kim", "because"
			got, err := s.AnswerApproval(t.Context(), "a1", gate.Answer{Approve: tt.yes, By: "kim", Reason: "because"}, want.Answered)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			closed(t, s)
			got, err = open(t, dir).Approval(t.Context(), "a1")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestWhatAnApprovalStoreRefuses(t *testing.T) {
	at := now()
	yes := gate.Answer{Approve: true, By: "kim"}
	for _, tt := range []struct {
		name string
		do   func(*testing.T, *Store) error
		want error // nil: any
	}{
		{"an id that exists", func(t *testing.T, s *Store) error {
			return s.CreateApproval(t.Context(), approval("a1", at))
		}, nil},
		{"a new one without an id", func(t *testing.T, s *Store) error {
			return s.CreateApproval(t.Context(), approval("", at))
		}, nil},
		{"a new one without a key", func(t *testing.T, s *Store) error {
			a := approval("a2", at)
			a.Key = ""
			return s.CreateApproval(t.Context(), a)
		}, nil},
		{"a new one that is approved already", func(t *testing.T, s *Store) error {
			a := approval("a2", at)
			a.State = gate.StateApproved
			return s.CreateApproval(t.Context(), a)
		}, nil},
		{"an answer to an unknown one", func(t *testing.T, s *Store) error {
			_, err := s.AnswerApproval(t.Context(), "zz", yes, at)
			return err
		}, gate.ErrNotFound},
		{"a second answer", func(t *testing.T, s *Store) error {
			if _, err := s.AnswerApproval(t.Context(), "a1", gate.Answer{By: "lee"}, at); err != nil {
				t.Fatal(err)
			}
			a, err := s.AnswerApproval(t.Context(), "a1", yes, at)
			if a.State != gate.StateDenied || a.By != "lee" {
				t.Errorf("the loser is not told who won: %+v", a)
			}
			return err
		}, gate.ErrAnswered},
		{"an answer after the time has passed", func(t *testing.T, s *Store) error {
			a, err := s.AnswerApproval(t.Context(), "a1", yes, at.Add(time.Hour))
			if a.State != gate.StateExpired || a.By != "" {
				t.Errorf("got %+v", a)
			}
			return err
		}, gate.ErrAnswered},
		{"an answer to a withdrawn one", func(t *testing.T, s *Store) error {
			if ok, err := s.CloseApproval(t.Context(), "a1", gate.StateWithdrawn, at); !ok || err != nil {
				t.Fatal(ok, err)
			}
			_, err := s.AnswerApproval(t.Context(), "a1", yes, at)
			return err
		}, gate.ErrAnswered},
		{"to close one as approved", func(t *testing.T, s *Store) error {
			_, err := s.CloseApproval(t.Context(), "a1", gate.StateApproved, at)
			return err
		}, nil},
		{"to read an unknown one", func(t *testing.T, s *Store) error {
			_, err := s.Approval(t.Context(), "zz")
			return err
		}, gate.ErrNotFound},
		{"an unknown key", func(t *testing.T, s *Store) error {
			_, err := s.OpenApproval(t.Context(), "zz", at)
			return err
		}, gate.ErrNotFound},
		{"a key whose time has passed", func(t *testing.T, s *Store) error {
			_, err := s.OpenApproval(t.Context(), "key of a1", at.Add(time.Hour))
			return err
		}, gate.ErrNotFound},
		{"a key that was denied", func(t *testing.T, s *Store) error {
			if _, err := s.AnswerApproval(t.Context(), "a1", gate.Answer{}, at); err != nil {
				t.Fatal(err)
			}
			_, err := s.OpenApproval(t.Context(), "key of a1", at)
			return err
		}, gate.ErrNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t, t.TempDir())
			create(t, s, approval("a1", at))
			err := tt.do(t, s)
			if err == nil {
				t.Fatal("it was taken")
			}
			if tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestOnlyAnApprovedOneIsSpentAndOnlyOnce(t *testing.T) {
	at := now()
	answered := func(yes bool) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) {
			if _, err := s.AnswerApproval(t.Context(), "a1", gate.Answer{Approve: yes}, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		name   string
		before func(*testing.T, *Store)
		when   time.Time
		want   bool
	}{
		{"approved", answered(true), at.Add(time.Minute), true},
		{"pending", func(*testing.T, *Store) {}, at, false},
		{"denied", answered(false), at, false},
		{"approved and expired since", answered(true), at.Add(time.Hour), false},
		{"approved in the last minute, and the question's time is over", func(t *testing.T, s *Store) {
			if _, err := s.AnswerApproval(t.Context(), "a1", gate.Answer{Approve: true}, at.Add(59*time.Minute)); err != nil {
				t.Fatal(err)
			}
		}, at.Add(59*time.Minute + gate.YesLife - 1), true},
		{"approved in the last minute, and that is too long ago", func(t *testing.T, s *Store) {
			if _, err := s.AnswerApproval(t.Context(), "a1", gate.Answer{Approve: true}, at.Add(59*time.Minute)); err != nil {
				t.Fatal(err)
			}
		}, at.Add(59*time.Minute + gate.YesLife), false},
		{"withdrawn", func(t *testing.T, s *Store) {
			if _, err := s.CloseApproval(t.Context(), "a1", gate.StateWithdrawn, at); err != nil {
				t.Fatal(err)
			}
		}, at, false},
		{"spent", func(t *testing.T, s *Store) {
			answered(true)(t, s)
			if ok, err := s.SpendApproval(t.Context(), "a1", at); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}, at, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			create(t, s, approval("a1", at))
			tt.before(t, s)
			closed(t, s)
			s = open(t, dir) // what was before counts after a restart too
			for i, want := range []bool{tt.want, false} {
				if ok, err := s.SpendApproval(t.Context(), "a1", tt.when); ok != want || err != nil {
					t.Errorf("attempt %d: got %v, %v, want %v", i+1, ok, err, want)
				}
			}
		})
	}
}

func TestAnUnknownApprovalIsNeitherSpentNorClosed(t *testing.T) {
	s := open(t, t.TempDir())
	if ok, err := s.SpendApproval(t.Context(), "zz", now()); ok || err != nil {
		t.Errorf("spend: %v, %v", ok, err)
	}
	if ok, err := s.CloseApproval(t.Context(), "zz", gate.StateExpired, now()); ok || err != nil {
		t.Errorf("close: %v, %v", ok, err)
	}
}

func TestOpenApprovalGivesTheNewestThatCanStillBeUsed(t *testing.T) {
	s := open(t, t.TempDir())
	at := now()
	for i, id := range []string{"a1", "a2", "a3"} {
		a := approval(id, at.Add(time.Duration(i)*time.Second))
		a.Key = "one key"
		create(t, s, a)
	}
	got := func() string {
		a, err := s.OpenApproval(t.Context(), "one key", at)
		if err != nil {
			t.Fatal(err)
		}
		if a.Key != "one key" {
			t.Errorf("its key is %q", a.Key)
		}
		return a.ID
	}
	if id := got(); id != "a3" {
		t.Errorf("got %s", id)
	}
	if _, err := s.AnswerApproval(t.Context(), "a3", gate.Answer{}, at); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AnswerApproval(t.Context(), "a2", gate.Answer{Approve: true}, at); err != nil {
		t.Fatal(err)
	}
	if id := got(); id != "a2" {
		t.Errorf("got %s", id)
	}
	if _, err := s.SpendApproval(t.Context(), "a2", at); err != nil {
		t.Fatal(err)
	}
	if id := got(); id != "a1" {
		t.Errorf("got %s", id)
	}
}

func TestApprovalsAreListedByState(t *testing.T) {
	s := open(t, t.TempDir())
	at := now()
	for i := range 5 {
		create(t, s, approval(fmt.Sprintf("a%d", i), at.Add(time.Duration(i)*time.Second)))
	}
	create(t, s, approval("old", at.Add(-2*time.Hour))) // nobody was there to close it
	if _, err := s.AnswerApproval(t.Context(), "a1", gate.Answer{Approve: true}, at); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		state gate.ApprovalState
		limit int
		want  []string
	}{
		{"", 0, []string{"a4", "a3", "a2", "a1", "a0", "old"}},
		{"", 2, []string{"a4", "a3"}},
		{gate.StatePending, 0, []string{"a4", "a3", "a2", "a0"}},
		{gate.StatePending, 3, []string{"a4", "a3", "a2"}},
		{gate.StateApproved, 0, []string{"a1"}},
		{gate.StateExpired, 0, []string{"old"}},
		{"nonsense", 0, nil},
	} {
		t.Run(fmt.Sprintf("state %q limit %d", tt.state, tt.limit), func(t *testing.T) {
			list, err := s.Approvals(t.Context(), tt.state, tt.limit)
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, a := range list {
				ids = append(ids, a.ID)
				if tt.state != "" && a.State != tt.state {
					t.Errorf("%s is %s", a.ID, a.State)
				}
			}
			if d := cmp.Diff(tt.want, ids); d != "" {
				t.Error(d)
			}
		})
	}
	if a, err := s.Approval(t.Context(), "old"); err != nil || a.State != gate.StateExpired {
		t.Errorf("got %v, %v", a.State, err)
	}
}

func TestOfFiftyRacingAnswersOneWins(t *testing.T) {
	s := open(t, t.TempDir())
	at := now()
	create(t, s, approval("a1", at))
	var won atomic.Int32
	var winner atomic.Value
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			by := fmt.Sprintf("person %d", i)
			_, err := s.AnswerApproval(t.Context(), "a1", gate.Answer{Approve: i%2 == 0, By: by}, at)
			switch {
			case err == nil:
				won.Add(1)
				winner.Store(by)
			case !errors.Is(err, gate.ErrAnswered):
				t.Errorf("%s: %v", by, err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Fatalf("%d answers won", won.Load())
	}
	if a, err := s.Approval(t.Context(), "a1"); err != nil || a.By != winner.Load() {
		t.Errorf("on disk stands the answer of %q (%v), and %v was told to have won", a.By, err, winner.Load())
	}
}

func TestOfFiftyRacingSpendsOneWins(t *testing.T) {
	s := open(t, t.TempDir())
	at := now()
	create(t, s, approval("a1", at))
	if _, err := s.AnswerApproval(t.Context(), "a1", gate.Answer{Approve: true}, at); err != nil {
		t.Fatal(err)
	}
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			ok, err := s.SpendApproval(t.Context(), "a1", at)
			if err != nil {
				t.Error(err)
			}
			if ok {
				won.Add(1)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d spends won", won.Load())
	}
}

// model is what a store of approvals should do, in the plainest form.
type model map[string]*gate.Approval

func (m model) answer(id string, yes bool, at time.Time) error {
	a := m[id]
	switch {
	case a == nil:
		return gate.ErrNotFound
	case a.State == gate.StatePending && !a.Expires.After(at):
		a.State = gate.StateExpired
		return gate.ErrAnswered
	case a.State != gate.StatePending:
		return gate.ErrAnswered
	case yes:
		a.State, a.Answered = gate.StateApproved, at
	default:
		a.State = gate.StateDenied
	}
	return nil
}

func (m model) move(id string, from, to gate.ApprovalState, at time.Time) bool {
	a := m[id]
	if a == nil || a.State != from || from == gate.StateApproved && !a.UsableUntil().After(at) {
		return false
	}
	a.State = to
	return true
}

// FuzzApprovals drives the store and a model with the same random changes; a
// restart is one of them.
func FuzzApprovals(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(seed, uint8(60))
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint8) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		s := open(t, dir)
		m := model{}
		begin := now()
		for range steps {
			id := fmt.Sprintf("a%d", rnd.IntN(5))
			at := begin.Add(time.Duration(rnd.IntN(75)) * time.Minute) // some after the hour
			switch rnd.IntN(6) {
			case 0:
				err := s.CreateApproval(t.Context(), approval(id, begin))
				if (err == nil) != (m[id] == nil) {
					t.Fatalf("create %s: %v, known before: %v", id, err, m[id] != nil)
				}
				if err == nil {
					a := approval(id, begin)
					m[id] = &a
				}
			case 1:
				yes := rnd.IntN(2) == 0
				_, err := s.AnswerApproval(t.Context(), id, gate.Answer{Approve: yes}, at)
				if want := m.answer(id, yes, at); !errors.Is(err, want) {
					t.Fatalf("answer %s: got %v, want %v", id, err, want)
				}
			case 2:
				ok, err := s.SpendApproval(t.Context(), id, at)
				if want := m.move(id, gate.StateApproved, gate.StateSpent, at); ok != want || err != nil {
					t.Fatalf("spend %s: got %v, %v, want %v", id, ok, err, want)
				}
			case 3:
				ok, err := s.CloseApproval(t.Context(), id, gate.StateWithdrawn, at)
				if want := m.move(id, gate.StatePending, gate.StateWithdrawn, at); ok != want || err != nil {
					t.Fatalf("close %s: got %v, %v, want %v", id, ok, err, want)
				}
			case 4:
				a, err := s.OpenApproval(t.Context(), "key of "+id, at)
				usable := m[id] != nil && (m[id].State == gate.StatePending || m[id].State == gate.StateApproved) && m[id].UsableUntil().After(at)
				if usable != (err == nil) || usable && a.State != m[id].State {
					t.Fatalf("open %s: got %v, %v, want usable %v", id, a.State, err, usable)
				}
			case 5:
				closed(t, s)
				s = open(t, dir)
			}
		}
		for id, want := range m {
			if got, err := s.Approval(t.Context(), id); err != nil || got.State != want.State {
				t.Errorf("%s is %s (%v), want %s", id, got.State, err, want.State)
			}
		}
	})
}

func BenchmarkAnswerApproval(b *testing.B) {
	s := open(b, b.TempDir())
	at := now()
	n := 0
	for b.Loop() {
		n++
		id := fmt.Sprintf("a%d", n)
		create(b, s, approval(id, at))
		if _, err := s.AnswerApproval(b.Context(), id, gate.Answer{Approve: true}, at); err != nil {
			b.Fatal(err)
		}
	}
}
