package clienttest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"callgate/proxy/providertest"

	"github.com/anthropics/anthropic-sdk-go/v2"
)

// Anthropic's library has the tokens of a conversation counted, denied calls and
// all.
func TestTheTokensOfRefusalsAreCounted(t *testing.T) {
	say := func(s string) providertest.Item { return providertest.Text(s) }
	for name, rounds := range map[string][]round{
		"resumed":             {{providertest.Thinking("one"), strong("1", "bash", forbidden)}, {providertest.Thinking("two"), say("Done.")}},
		"the middle of three": three(1).and(round{say("Two of them ran.")}),
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream %v", name, stream), func(t *testing.T) {
				talks := []talk{{words: "do it", rounds: rounds}, {words: "go on", rounds: []round{{say("Well.")}}}}
				g := newRig(t, setup{reads: true, model: model(talks)})
				p := newPlayer(t, g, agentClient{name: "anthropic-sdk-go", open: newAnthropic, messages: true}, stream, g.client())
				p.play(talks[0], func() { g.countTokens(t, p) })
				g.restart(t)
				agent := p.conv.(*anthropicAgent)
				agent.user(talks[1].words)
				g.countTokens(t, p)
				asked := g.provider.Requests()
				p.request(talks[1], 0, asked[len(asked)-1].Body)
				agent.params.Messages = agent.params.Messages[:len(agent.params.Messages)-1] // play says it again
				p.play(talks[1], nil)
			})
		}
	}
}

// countTokens has the tokens of the conversation, as the agent has it, counted.
func (g *rig) countTokens(t *testing.T, p *player) {
	t.Helper()
	agent := p.conv.(*anthropicAgent)
	params := anthropic.MessageCountTokensParams{
		Model: agent.params.Model, Messages: agent.params.Messages, Thinking: agent.params.Thinking,
	}
	for _, tool := range agent.params.Tools {
		params.Tools = append(params.Tools, anthropic.MessageCountTokensToolUnionParam{OfTool: tool.OfTool})
	}
	n, err := agent.client.Messages.CountTokens(t.Context(), params)
	if err != nil {
		t.Fatalf("%v; faults %q", err, g.provider.Faults())
	}
	asked := g.provider.Requests()
	r := asked[len(asked)-1]
	if h := holds(r.Body, refusalMark); h == nil || !strings.HasSuffix(r.Path, "/count_tokens") || r.Status != http.StatusOK {
		t.Errorf("counted was %s %d %s", r.Path, r.Status, r.Body)
	}
	if want := int64(len(r.Body)/4 + 1); n.InputTokens != want { // as the provider counts
		t.Errorf("%d tokens, want %d", n.InputTokens, want)
	}
}
