package person

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"callgate/gate"
)

func TestNobodyCanBeTold(t *testing.T) {
	for name, notify := range map[string]func(context.Context, gate.Approval) error{
		"no way":  func(context.Context, gate.Approval) error { return errors.New("the channel is down") },
		"a panic": func(context.Context, gate.Approval) error { panic("the channel is down") },
		"too slow": func(ctx context.Context, _ gate.Approval) error {
			<-ctx.Done()
			return errors.New("the channel is down")
		},
		"too slow for any deadline": func(context.Context, gate.Approval) error { pass(time.Hour); return errors.New("the channel is down") },
	} {
		t.Run(name, func(t *testing.T) {
			scene(t, Config{Notify: notify}, func(t *testing.T, b *bench) {
				c, d := b.ask(request("rm")), b.ask(request("rm"))
				pass(2 * time.Hour)
				c.says(t, gate.Deny, gate.NotifyFailed, "the channel is down")
				if name != "too slow for any deadline" {
					d.says(t, gate.Deny, gate.NotifyFailed, "the channel is down")
				} else { // it does not wait longer than its own hold
					d.says(t, gate.Deny, gate.Timeout, "")
				}
				if strings.HasPrefix(name, "too slow") { // they shared one question
					b.states(map[gate.ApprovalState]int{gate.StateWithdrawn: 1})
				} else {
					b.states(map[gate.ApprovalState]int{gate.StateWithdrawn: 2})
				}
				b.idle()
			})
		})
	}
}

// Somebody saw the question in a list and answered although nobody was told.
func TestAnAnswerInSpiteOfAFailedNotice(t *testing.T) {
	scene(t, Config{}, func(t *testing.T, b *bench) {
		b.restart(Config{Notify: func(ctx context.Context, a gate.Approval) error {
			if _, err := b.desk.Answer(ctx, a.ID, gate.Answer{Approve: true, By: "ann"}); err != nil {
				t.Error(err)
			}
			return errors.New("down")
		}})
		b.ask(request("rm")).says(t, gate.Allow, gate.Allowed, "ann")
		b.idle()
	})
}

func TestTheStoreFails(t *testing.T) {
	full := errors.New("disk full")
	for _, method := range []string{"OpenApproval", "CreateApproval", "SpendApproval", "CloseApproval", "Approval"} {
		t.Run(method, func(t *testing.T) {
			scene(t, Config{Timeout: time.Minute}, func(t *testing.T, b *bench) {
				b.store.failing(method, full)
				c, d := b.ask(request("rm")), b.ask(request("rm"))
				if method == "SpendApproval" {
					b.answer(true)
				}
				pass(time.Minute)
				c.says(t, gate.Deny, gate.StoreFailed, "disk full")
				d.says(t, gate.Deny, gate.StoreFailed, "disk full")
				b.idle()
				if n := len(b.store.spends); n > 0 {
					t.Errorf("%d were used up", n)
				}
			})
		})
	}
	t.Run("an answer that is not durable is none", func(t *testing.T) {
		scene(t, Config{Timeout: time.Minute}, func(t *testing.T, b *bench) {
			b.store.failing("AnswerApproval", full)
			c := b.ask(request("rm"))
			if _, err := b.desk.Answer(t.Context(), b.open().ID, gate.Answer{Approve: true}); !errors.Is(err, full) {
				t.Errorf("got %v", err)
			}
			c.waits(t)
			b.store.failing("AnswerApproval", nil)
			b.answer(true)
			c.says(t, gate.Allow, gate.Allowed, "")
		})
	})
	t.Run("a panic leaves nobody waiting", func(t *testing.T) {
		scene(t, Config{}, func(t *testing.T, b *bench) {
			b.store.first("CreateApproval", func() {
				pass(time.Second)
				panic("store bug")
			})
			op := make(chan any, 1)
			go func() {
				defer func() { op <- recover() }()
				b.desk.Review(t.Context(), request("rm"))
			}()
			synctest.Wait()
			d := b.ask(request("rm"))
			pass(time.Second)
			if got := <-op; got != "store bug" {
				t.Errorf("the panic became %v", got)
			}
			d.says(t, gate.Deny, gate.StoreFailed, "ended in a panic")
			b.idle()
		})
	})
	t.Run("an approval of another call is not taken", func(t *testing.T) {
		scene(t, Config{}, func(t *testing.T, b *bench) {
			b.desk.c.Store = foreign{b.store}
			b.ask(request("rm")).says(t, gate.Deny, gate.StoreFailed, "another call")
		})
	})
	t.Run("a yes that can never be used up ends in a denial", func(t *testing.T) {
		scene(t, Config{}, func(t *testing.T, b *bench) {
			b.desk.c.Store = stuck{b.store}
			b.ask(request("rm")).says(t, gate.Deny, gate.Timeout, "used up every yes")
		})
	})
}

// foreign gives a yes that belongs to another key.
type foreign struct{ *memory }

func (foreign) OpenApproval(context.Context, string, time.Time) (gate.Approval, error) {
	return gate.Approval{ID: "x", Key: "other", State: gate.StateApproved}, nil
}

// stuck shows a yes for ever that nobody can use.
type stuck struct{ *memory }

func (stuck) OpenApproval(_ context.Context, key string, _ time.Time) (gate.Approval, error) {
	return gate.Approval{ID: "x", Key: key, State: gate.StateApproved}, nil
}
