package clienttest

import (
	"slices"
	"strings"
	"testing"

	"callgate/proxy/providertest"
)

// With denial as an error the agent gets one that says by whom and why.
func TestADeniedCallIsAnError(t *testing.T) {
	for name, say := range map[string]round{
		"alone":               {strong("1", "bash", forbidden)},
		"behind words":        {providertest.Thinking("one"), providertest.Text("I will run it. "), strong("1", "bash", forbidden)},
		"the middle of three": three(1),
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, agentLoops, func(t *testing.T, c agentClient, stream bool) {
				g := newRig(t, setup{errors: true, way: c.way, script: providertest.Script{{Say: say}}})
				conv := c.open(g.base, g.client(), stream)
				conv.user("do it")
				a, err := conv.next(t.Context())
				if err == nil || !strings.Contains(err.Error(), "callgate") || !strings.Contains(err.Error(), "did not run") {
					t.Errorf("the agent got %+v, %v", a, err)
				}
				all, left := say.calls()
				for _, k := range all {
					if h := holds(g.tap.seen()[0], k.ID, "args of "+k.ID); h != nil && !slices.Contains(left, k) {
						t.Errorf("the agent has %q of a denied call", h)
					}
				}
				if n := len(g.provider.Requests()); n != 1 {
					t.Errorf("the provider was asked %d times", n)
				}
			})
		})
	}
}
