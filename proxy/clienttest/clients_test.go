package clienttest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"callgate/gate"
	"callgate/gate/detect"
	"callgate/gate/hook"
	"callgate/inspect/catalog"
	"callgate/proxy/providertest"

	"github.com/google/go-cmp/cmp"
)

// toolCall is a call of the script whose fate the word decides.
func toolCall(id, name, word string) providertest.Call {
	return providertest.Call{ID: id, Name: name, Args: fmt.Sprintf(`{"command":"%s args of %s — größer"}`, word, id)}
}

func (c call3) seen() []seenCall {
	var out []seenCall
	for i, k := range c.calls {
		if c.stays[i] {
			out = append(out, seenCall{k.ID, k.Name, k.Args})
		}
	}
	return out
}

// call3 is an answer with some calls, and which of them stay.
type call3 struct {
	calls []providertest.Call
	stays []bool
}

// threeCalls makes an answer of three calls; those in gone have the word.
func threeCalls(word string, gone ...int) call3 {
	var c call3
	for i := range 3 {
		w := "echo"
		if slices.Contains(gone, i) {
			w = word
		}
		c.calls = append(c.calls, toolCall(fmt.Sprintf("call_%c%d", 'x'+i, 1000+i), agentTools[i], w))
		c.stays = append(c.stays, w == "echo")
	}
	return c
}

// script is the conversation of these tests: thinking, words and the calls,
// then one harmless call, then the end, and an answer for the user's next words.
func (c call3) script() providertest.Script {
	say := []providertest.Item{providertest.Thinking("let me think of it"), providertest.Text("I will do three things. ")}
	for _, k := range c.calls {
		say = append(say, k)
	}
	return providertest.Script{
		{Say: say},
		{Say: []providertest.Item{toolCall("call_w2000", "bash", "echo")}},
		{Say: []providertest.Item{providertest.Text("All is done.")}},
		{Say: []providertest.Item{providertest.Text("Yes, all of it.")}},
		{Say: []providertest.Item{providertest.Text("And that was that.")}},
	}
}

// eachClient runs a test for every library, streamed and not.
func eachClient(t *testing.T, f func(t *testing.T, c agentClient, stream bool)) {
	eachOf(t, agentClients, f)
}

func eachOf(t *testing.T, clients []agentClient, f func(t *testing.T, c agentClient, stream bool)) {
	for _, c := range clients {
		for _, stream := range []bool{false, true} {
			form := "JSON"
			if stream {
				form = "SSE"
			}
			name := c.name + "/" + form
			if c.way.proxied() {
				name += "/" + c.way.name
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f(t, c, stream)
			})
		}
	}
}

// converse lets an agent work, and the user say one more thing at the end.
func converse(t *testing.T, g *rig, c agentClient, stream bool) []answer {
	t.Helper()
	conv := c.open(g.base, g.client(), stream)
	conv.user("do the three things")
	all := runLoop(t, conv)
	conv.user("is it all done?")
	return append(all, runLoop(t, conv)...)
}

// check says whether the client saw what it should have, and the provider got
// what it takes.
func (c call3) check(t *testing.T, g *rig, all []answer) {
	t.Helper()
	first := all[0]
	if d := cmp.Diff(c.seen(), first.Calls); d != "" {
		t.Errorf("calls that the client saw (-want +got)\n%s", d)
	}
	if !strings.HasPrefix(first.Text, "I will do three things.") {
		t.Errorf("the model's words became %q", first.Text)
	}
	gone := len(c.calls) - len(c.seen())
	if n := strings.Count(first.Text, "did not run:"); n != gone {
		t.Errorf("%d refusals for %d calls in %q", n, gone, first.Text)
	}
	if want := len(c.seen()) > 0; want != slices.Contains([]string{"tool_calls", "tool_use"}, first.Finish) {
		t.Errorf("finish is %q with %d calls", first.Finish, len(first.Calls))
	}
	if last := all[len(all)-1]; last.Text == "" || len(last.Calls) > 0 {
		t.Errorf("the conversation ends with %+v", last)
	}
	for _, f := range g.provider.Faults() {
		t.Errorf("the provider refused a request: %s", f)
	}
	bodies, asked := g.tap.seen(), g.provider.Requests()
	if len(bodies) != len(asked) {
		t.Fatalf("%d answers of %d requests", len(bodies), len(asked))
	}
	for i, k := range c.calls {
		if c.stays[i] {
			continue
		}
		for j := range bodies {
			if h := holds(bodies[j], k.ID, "args of "+k.ID); h != nil {
				t.Errorf("answer %d shows %q of a call that was withheld", j, h)
			}
			if h := holds(asked[j].Body, k.ID, "args of "+k.ID); h != nil {
				t.Errorf("request %d holds %q of a call that the client never saw", j, h)
			}
		}
	}
	for i := range bodies {
		if (i > 0 || gone == 0) && !bytes.Equal(bodies[i], asked[i].Sent) {
			t.Errorf("answer %d was allowed and is not byte for byte the same\nsent %q\nseen %q", i, asked[i].Sent, bodies[i])
		}
	}
}

// What a gate that asks nobody makes of three calls at once.
func TestAgentsLoopThroughTheGate(t *testing.T) {
	tests := []struct {
		name string
		gone []int
	}{
		{"all are allowed", nil},
		{"the first is denied", []int{0}},
		{"the middle one is denied", []int{1}},
		{"the last is denied", []int{2}},
		{"two are denied", []int{0, 2}},
		{"all are denied", []int{0, 1, 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			loop := func(t *testing.T, c agentClient, stream bool) {
				three := threeCalls(forbidden, tt.gone...)
				g := newRig(t, setup{script: three.script(), way: c.way})
				three.check(t, g, converse(t, g, c, stream))
			}
			eachWay(t, agentClients, loop)
			for _, w := range olderProxies {
				eachOf(t, through(agentClients, w), loop)
			}
		})
	}
}

// A person answers while the agent's connection is held.
func TestAgentsWaitForAPerson(t *testing.T) {
	tests := []struct {
		name    string
		approve bool
	}{
		{"and are allowed", true},
		{"and are denied", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachWay(t, agentClients, func(t *testing.T, c agentClient, stream bool) {
				three := threeCalls(dangerous, 1)
				three.stays[1] = tt.approve
				asked := make(chan gate.Approval)
				desk := newDesk(t, time.Minute, asked)
				g := newRig(t, setup{script: three.script(), person: desk, way: c.way})
				watched := make(chan struct{})
				go func() {
					defer close(watched)
					a := <-asked
					// Signs of life come while nobody has answered, and nothing
					// of the call or of what stands behind it.
					held := g.tap.last().grow(t.Context(), 8)
					for _, k := range three.calls[1:] {
						if h := holds(held, k.ID, "args of "+k.ID); h != nil {
							t.Errorf("undecided, and the client has %q", h)
						}
					}
					if _, err := desk.Answer(t.Context(), a.ID, gate.Answer{Approve: tt.approve, By: "tester"}); err != nil {
						t.Error(err)
					}
				}()
				all := converse(t, g, c, stream)
				<-watched
				if tt.approve {
					// Keep-alives stand in the first answer; all else is as it came.
					checkHeld(t, three, all)
					return
				}
				three.check(t, g, all)
			})
		})
	}
}

// checkHeld checks an answer that was held and let go.
func checkHeld(t *testing.T, c call3, all []answer) {
	t.Helper()
	if d := cmp.Diff(c.seen(), all[0].Calls); d != "" {
		t.Errorf("calls that the client saw (-want +got)\n%s", d)
	}
	if !strings.Contains(all[0].Text, "I will do three things.") {
		t.Errorf("the model's words became %q", all[0].Text)
	}
	if len(all) != 4 || all[2].Text != "All is done." {
		t.Errorf("the conversation went %+v", all)
	}
}

// Nobody answers.
func TestAgentsWaitForNobody(t *testing.T) {
	eachWay(t, agentClients, func(t *testing.T, c agentClient, stream bool) {
		three := threeCalls(dangerous, 0, 1, 2)
		desk := newDesk(t, 40*time.Millisecond, make(chan gate.Approval, 3))
		g := newRig(t, setup{script: three.script(), person: desk, way: c.way})
		all := converse(t, g, c, stream)
		three.check(t, g, all)
		if n := strings.Count(all[0].Text, "outcome=timeout"); n != 3 {
			t.Errorf("the refusals do not say that time ran out: %q", all[0].Text)
		}
	})
}

// A hook decides: a real script, run for each flagged call.
func TestAgentsAndAHook(t *testing.T) {
	tests := []struct {
		name, script string
		stays        bool
		outcome      gate.Outcome
	}{
		{"that approves", `cat >/dev/null; echo '{"decision":"approve","reason":"it is fine"}'`, true, gate.Allowed},
		{"that denies", `cat >/dev/null; echo '{"decision":"deny","reason":"it is not"}'`, false, gate.Denied},
		{"that crashes", `kill -9 $$`, false, gate.HookFailed},
		{"that says nothing", `exit 0`, false, gate.HookFailed},
		{"that approves and fails", `echo '{"decision":"approve"}'; exit 1`, false, gate.HookFailed},
		{"that passes it on to nobody", `cat >/dev/null; echo '{"decision":"escalate"}'`, false, gate.Unattended},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "hook.sh")
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"+tt.script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			asked, err := hook.New(hook.Config{Command: path, Timeout: 20 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			eachClient(t, func(t *testing.T, c agentClient, stream bool) {
				three := threeCalls(dangerous, 0, 2)
				three.stays[0], three.stays[2] = tt.stays, tt.stays
				g := newRig(t, setup{script: three.script(), mode: gate.Custom, hook: asked})
				all := converse(t, g, c, stream)
				if tt.stays {
					checkHeld(t, three, all)
				} else {
					three.check(t, g, all)
				}
				n := 0
				for _, o := range g.audit.outcomes() {
					if o == tt.outcome {
						n++
					}
				}
				if n < 2 {
					t.Errorf("the audit log has %v, want two of %s", g.audit.outcomes(), tt.outcome)
				}
			})
		})
	}
}

// The real detector and the real catalogue, in place of the tests' own.
func TestAgentsAndTheRealDetector(t *testing.T) {
	cat, err := catalog.New()
	if err != nil {
		t.Fatal(err)
	}
	eachWay(t, agentClients, func(t *testing.T, c agentClient, stream bool) {
		three := call3{
			calls: []providertest.Call{
				{ID: "call_a1", Name: "bash", Args: `{"command":"ls -la src"}`},
				{ID: "call_b1", Name: "bash", Args: `{"command":"rm -rf --no-preserve-root / # args of call_b1"}`},
				{ID: "call_c1", Name: "bash", Args: `{"command":"git status"}`},
			},
			stays: []bool{true, false, true},
		}
		g := newRig(t, setup{
			script:   three.script(),
			detector: detect.New(detect.World{Home: "/home/u", Dir: "/home/u/w", Workspace: "/home/u/w", User: "u"}),
			actions:  cat.Actions,
			way:      c.way,
		})
		three.check(t, g, converse(t, g, c, stream))
		if got := g.audit.outcomes(); !slices.Contains(got, gate.HardlineHit) {
			t.Errorf("the audit log has %v", got)
		}
	})
}

// The tests' agents and the strict provider, without callgate between them: if
// this fails, the failure is theirs.
func TestAgentsLoopWithoutTheGate(t *testing.T) {
	eachClient(t, func(t *testing.T, c agentClient, stream bool) {
		three := threeCalls(forbidden)
		g := newRig(t, setup{script: three.script()})
		direct := g.there.URL
		conv := c.open(direct, g.client(), stream)
		conv.user("do the three things")
		all := runLoop(t, conv)
		conv.user("is it all done?")
		three.check(t, g, append(all, runLoop(t, conv)...))
	})
}

// What a provider says no to reaches the agent as the provider said it.
func TestProvidersErrorsReachTheAgent(t *testing.T) {
	for _, status := range []int{400, 401, 403, 429, 500, 529} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			eachWay(t, agentClients, func(t *testing.T, c agentClient, stream bool) {
				g := newRig(t, setup{way: c.way, script: providertest.Script{{Instead: &providertest.Answer{
					Status: status, Message: "the provider's own words",
				}}}})
				conv := c.open(g.base, g.client(), stream)
				conv.user("go")
				_, err := conv.next(t.Context())
				if err == nil || !strings.Contains(err.Error(), fmt.Sprint(status)) || !strings.Contains(err.Error(), "the provider's own words") {
					t.Errorf("the agent got %v", err)
				}
				if seen, sent := g.tap.seen()[0], g.provider.Requests()[0].Sent; !bytes.Equal(seen, sent) {
					t.Errorf("sent %s\nseen %s", sent, seen)
				}
			})
		})
	}
}
