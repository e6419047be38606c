package person

import (
	"testing"
	"testing/synctest"
	"time"

	"callgate/gate"
	"callgate/inspect/toolcall"
)

// flagAll finds danger in everything.
type flagAll struct{}

func (flagAll) Detect([]toolcall.Action) gate.Report {
	return gate.Report{Findings: []gate.Finding{{Rule: "t.bad", Severity: gate.Danger, Reason: "bad"}}}
}

// The Desk behind a real gate: what the proxy sees of a question.
func TestThroughTheGate(t *testing.T) {
	behind := func(t *testing.T, c Config, f func(t *testing.T, b *bench, g *gate.Gate)) {
		scene(t, c, func(t *testing.T, b *bench) {
			g, err := gate.New(gate.Config{Detector: flagAll{}, Person: b.desk, UnauditedForTest: true})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			f(t, b, g)
		})
	}
	done := func(tk *gate.Ticket) bool {
		synctest.Wait()
		select {
		case <-tk.Done():
			return true
		default:
			return false
		}
	}
	behind(t, Config{}, func(t *testing.T, b *bench, g *gate.Gate) {
		tk := g.Submit(t.Context(), request("rm"))
		if done(tk) {
			t.Fatal("nobody was asked")
		}
		id := b.answer(true).ID
		if over, d := done(tk), tk.Decision(); !over || d.Verdict != gate.Allow || d.By != "person" || d.Approval != id || d.Rule != "t.bad" {
			t.Errorf("got %+v", d)
		}
	})
	behind(t, Config{Grace: time.Minute}, func(t *testing.T, b *bench, g *gate.Gate) {
		tk := g.Submit(t.Context(), request("rm"))
		synctest.Wait()
		tk.Leave()
		if done(tk) {
			t.Fatal("the question ended when the client left")
		}
		b.answer(true)
		if over, d := done(tk), tk.Decision(); !over || d.Verdict != gate.Deny || d.Outcome != gate.Cancelled {
			t.Errorf("a call nobody waits for: %+v", d)
		}
		if again := g.Submit(t.Context(), request("rm")); !done(again) || again.Decision().Verdict != gate.Allow {
			t.Errorf("the client came back: %+v", again.Decision())
		}
		b.questions(1)
	})
	behind(t, Config{Grace: time.Minute}, func(t *testing.T, b *bench, g *gate.Gate) {
		tk := g.Submit(t.Context(), request("rm"))
		synctest.Wait()
		tk.Leave()
		pass(time.Minute)
		if over, d := done(tk), tk.Decision(); !over || d.Outcome != gate.Cancelled {
			t.Errorf("got %+v", d)
		}
		b.states(map[gate.ApprovalState]int{gate.StateWithdrawn: 1})
	})
	behind(t, Config{}, func(t *testing.T, b *bench, g *gate.Gate) {
		tk := g.Submit(t.Context(), request("rm"))
		synctest.Wait()
		g.Close()
		if over, d := done(tk), tk.Decision(); !over || d.Outcome != gate.Cancelled {
			t.Errorf("got %+v", d)
		}
		b.states(map[gate.ApprovalState]int{gate.StatePending: 1})
	})
}
