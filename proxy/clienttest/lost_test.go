package clienttest

import (
	"slices"
	"strings"
	"testing"

	"callgate/proxy/providertest"
)

// What is left of a conversation whose state directory is gone: the agent goes
// on with what it was shown, and the provider takes that.
func TestAConversationOutlivesTheLossOfItsRecords(t *testing.T) {
	say := func(s string) providertest.Item { return providertest.Text(s) }
	tests := []struct {
		name   string
		rounds []round
		// held says that a provider which holds the history misses a result, and
		// says so once.
		held bool
	}{
		{"behind a text", []round{{say("I will run it. "), strong("1", "bash", forbidden)}, {say("It must not run.")}}, false},
		{"behind an allowed call", []round{
			{say("I will run it. "), strong("1", "bash", forbidden)}, {say("Another way, then. "), strong("2", "write", "echo")}, {say("Done.")},
		}, false},
		{"behind two calls of three", three(1).and(round{say("Two of them ran.")}), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachWay(t, agentLoops, func(t *testing.T, c agentClient, stream bool) {
				var script providertest.Script
				for _, r := range append(tt.rounds, round{say("Well.")}, round{say("No more.")}) {
					script = append(script, providertest.Turn{Say: r})
				}
				g := newRig(t, setup{reads: true, sequential: true, script: script, way: c.way})
				conv := c.open(g.base, g.client(), stream)
				conv.user("do it")
				for i := range (talk{rounds: tt.rounds}).turns() {
					if i == 1 {
						g.lose(t)
					}
					a, err := conv.next(t.Context())
					if err != nil {
						t.Fatalf("answer %d: %v; faults %q", i+1, err, g.provider.Faults())
					}
					if len(a.Calls) > 0 {
						conv.results(a)
					}
				}
				g.lose(t)
				conv.user("go on")
				a, err := conv.next(t.Context())
				if err != nil || a.Text != "Well." {
					t.Fatalf("%+v, %v; faults %q", a, err, g.provider.Faults())
				}
				for _, f := range g.provider.Faults() {
					// The library itself begins a new thread then.
					if !c.threads || !strings.HasPrefix(f, "thread_already_continued") && !(tt.held && strings.Contains(f, "without `tool_result` blocks")) {
						t.Errorf("the provider refused a request: %s", f)
					}
				}
				asked := g.provider.Requests()
				for _, r := range tt.rounds {
					all, left := r.calls()
					for _, k := range all {
						if h := holds(asked[len(asked)-1].Body, k.ID); h != nil && !slices.Contains(left, k) {
							t.Errorf("the request holds %q, which nobody knows any more", h)
						}
					}
				}
			})
		})
	}
}

// Thinking of a later round is bound to the refusal before it. When nothing is
// known of that any more, not even that there was something, the provider says
// no to it, and is asked again without thinking: the agent goes on, and does not
// think any more.
func TestThinkingThatIsBoundToLostRecordsIsTakenOut(t *testing.T) {
	for _, stream := range []bool{false, true} {
		say := func(s string) providertest.Item { return providertest.Text(s) }
		g := newRig(t, setup{reads: true, sequential: true, script: providertest.Script{
			{Say: round{providertest.Thinking("one"), say("I will run it. "), strong("1", "bash", forbidden)}},
			{Say: round{providertest.Thinking("two"), say("It must not run.")}},
			{Say: round{say("Well. "), strong("2", "bash", forbidden)}},
			{Say: round{say("It must not either.")}},
			{Say: round{say("Bye.")}},
		}})
		conv := newAnthropic(g.base, g.client(), stream)
		conv.user("do it")
		if _, err := conv.next(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.lose(t)
		for i, want := range []string{"Well. It must not either.", "Bye."} {
			conv.user("go on")
			a, err := conv.next(t.Context())
			if err != nil || a.Text != want || len(a.Calls) > 0 {
				t.Fatalf("answer %d: %+v, %v; faults %q", i+2, a, err, g.provider.Faults())
			}
		}
		faults := g.provider.Faults()
		if len(faults) == 0 || slices.ContainsFunc(faults, func(f string) bool { return !strings.Contains(f, "prefix_binding_mismatch") }) {
			t.Errorf("the provider refused %q", faults)
		}
		asked := g.provider.Requests()
		last := string(asked[len(asked)-1].Body)
		if strings.Contains(last, `"thinking"`) || strings.Count(last, `"tool_use_id":"`+strong("2", "bash", forbidden).ID+`"`) != 1 {
			t.Errorf("the last request is %s", last)
		}
	}
}
