package clienttest

import (
	"slices"
	"sync"
	"testing"

	"callgate/gate"
	"callgate/proxy/providertest"
)

// agentLoops are the clients, with the agent loops of libraries, too.
var agentLoops = slices.Concat(agentClients, toolRunners)

// eachLoop is eachClient with all of them.
func eachLoop(t *testing.T, f func(t *testing.T, c agentClient, stream bool)) {
	eachOf(t, agentLoops, f)
}

// three is a round of three calls with weak ids; those in gone have the word.
func three(gone ...int) round {
	r := round{providertest.Thinking("let me think of it"), providertest.Text("I will do three things. ")}
	for _, k := range threeCalls(forbidden, gone...).calls {
		r = append(r, k)
	}
	return r
}

// strong is a call with an id that nobody else makes.
func strong(n, name, word string) providertest.Call {
	return toolCall("call_Zq81mT4v"+n, name, word)
}

// What the model and the agent see of denied calls, in the answer itself and in
// ten more of the conversation, with a restart of callgate in the middle of a
// turn and one among the ten.
func TestTheModelReadsItsRefusals(t *testing.T) {
	think, say := func(s string) providertest.Item { return providertest.Thinking(s) }, func(s string) providertest.Item { return providertest.Text(s) }
	tests := []struct {
		name   string
		person bool
		talk   talk
	}{
		{"denied once, then text", false, talk{rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", forbidden)},
			{think("two"), say("It must not run.")},
		}}},
		{"denied once without a word, then text", false, talk{rounds: []round{
			{strong("1", "bash", forbidden)},
			{say("It must not run.")},
		}}},
		{"denied once, then an allowed call, then text", false, talk{rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", forbidden)},
			{think("two"), say("Another way, then. "), strong("2", "write", "echo")},
			{think("three"), say("Done.")},
		}}},
		{"denied twice in a row, then text", false, talk{rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", forbidden)},
			{think("two"), strong("2", "write", forbidden)},
			{say("Neither may run.")},
		}}},
		{"all of three denied", false, talk{rounds: []round{three(0, 1, 2), {think("well"), say("None of it may run.")}}}},
		{"the first of three denied", false, talk{rounds: []round{three(0), {say("Two of them ran.")}}}},
		{"the middle of three denied", false, talk{rounds: []round{three(1), {think("well"), say("Two of them ran.")}}}},
		{"the last of three denied, and all of the next", false, talk{rounds: []round{three(2), {strong("1", "bash", forbidden)}, {say("Two of them ran.")}}}},
		{"the same call again", false, talk{ended: true, rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", forbidden)},
			{say("Once more. "), providertest.Call{ID: "call_Zq81mT4v2", Name: "bash", Args: strong("1", "bash", forbidden).Args}},
		}}},
		{"six times in a row, which is once too often", false, talk{ended: true, rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", forbidden)},
			{say("Or so? "), strong("2", "bash", forbidden)},
			{strong("3", "bash", forbidden)},
			{think("four"), strong("4", "bash", forbidden), strong("5", "write", forbidden)},
			{strong("6", "bash", forbidden)},
			{say("Or so? "), strong("7", "bash", forbidden)},
		}}},
		{"denied, and the provider fails", false, talk{ended: true, fails: &providertest.Answer{Status: 401}, rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", forbidden)},
		}}},
		{"denied, and the provider takes no more", false, talk{ended: true, fails: &providertest.Answer{Status: 400}, rounds: []round{
			{toolCall("call_0", "bash", forbidden)}, {toolCall("call_1", "bash", forbidden)},
		}}},
		{"a call of many kinds of letters", false, talk{rounds: []round{
			{think("<1> \"\\ \u2028 😀"), say("\t<b>&amp;</b> \"…\" \\ 😀\n"), providertest.Call{
				ID: "toolu_01A-b_C9", Name: "bash", Args: `{"command":"FORBIDDEN args of toolu_01A-b_C9 <a href=\"x\">&amp;<\/a>\n\u0001 \ud83d\ude00 é","n":[1e3, -0.50,null ,true]}`,
			}},
			{say("  \n so <i>not</i> so.  ")},
		}}},
		{"denied by a person", true, talk{rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", dangerous)},
			{think("two"), say("It must not run.")},
		}}},
		{"denied by a person without a word", true, talk{rounds: []round{
			{strong("1", "bash", dangerous)},
			{strong("2", "write", "echo")},
			{say("That was it.")},
		}}},
		{"the middle of three denied by a person", true, talk{rounds: []round{
			{say("Three things. "), strong("1", "bash", "echo"), strong("2", "write", dangerous), strong("3", "fetch", "echo")},
			{say("Two of them ran.")},
		}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachWay(t, agentLoops, func(t *testing.T, c agentClient, stream bool) {
				first := tt.talk
				first.words = "do it"
				talks := append([]talk{first}, tenMore()...)
				s := setup{reads: true, model: model(talks), way: c.way}
				asked := make(chan gate.Approval)
				if tt.person {
					s.asked = asked
				}
				g := newRig(t, s)
				g.refuseAll(t, asked)
				p := newPlayer(t, g, c, stream, g.client())
				p.held = tt.person
				for i, k := range talks {
					if i == 6 {
						g.restart(t)
					}
					p.play(k, func() {
						if i == 0 {
							g.restart(t)
						}
					})
				}
			})
		})
	}
}

// refuseAll is a person who says no to every question once the agent has seen
// some signs of life, and nothing of the call.
func (g *rig) refuseAll(t *testing.T, asked <-chan gate.Approval) {
	var over sync.WaitGroup
	over.Go(func() {
		for {
			select {
			case a := <-asked:
				held := g.tap.last().grow(t.Context(), 3)
				if h := holds(held, dangerous); h != nil {
					t.Errorf("undecided, and the client has %q", h)
				}
				if _, err := g.desk.Answer(t.Context(), a.ID, gate.Answer{By: "tester"}); err != nil {
					t.Error(err)
				}
			case <-t.Context().Done():
				return
			}
		}
	})
	t.Cleanup(over.Wait)
}
