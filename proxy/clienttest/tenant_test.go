package clienttest

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"callgate/proxy/providertest"
)

// asking is a transport that says who asks in a way of its own.
type asking struct {
	next http.RoundTripper
	as   func(http.Header)
}

func (a asking) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	a.as(r.Header)
	return a.next.RoundTrip(r)
}

// withKey asks with an API key.
func withKey(g *rig, key string) *http.Client {
	return &http.Client{Transport: asking{g.tap, func(h http.Header) {
		if h.Get("X-Api-Key") != "" {
			h.Set("X-Api-Key", key)
		} else {
			h.Set("Authorization", "Bearer "+key)
		}
	}}}
}

// Two tenants have one conversation, equal byte for byte, in which a call was
// denied to the one that the other never made. What is put back into the
// requests of the one stays out of those of the other.
func TestNothingCrossesTenants(t *testing.T) {
	weak := func(word string) providertest.Item { return toolCall("call_0", "bash", word) }
	say := func(s string) providertest.Item { return providertest.Text(s) }
	tests := []struct {
		name         string
		denied, free []round
	}{
		{"with equal ids beside the denied call", three(1).and(round{say("Two of them ran.")}),
			[]round{slices.DeleteFunc(three(1), isDenied), {say("Two of them ran.")}}},
		{"with equal words and no ids", []round{{weak(forbidden)}, {say("Done.")}}, []round{{say("Done.")}}},
		{"with an equal call behind the denied one", []round{{strong("1", "bash", forbidden)}, {strong("2", "bash", "echo")}, {say("Done.")}},
			[]round{{strong("2", "bash", "echo")}, {say("Done.")}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachWay(t, agentLoops, func(t *testing.T, c agentClient, stream bool) {
				rest := []talk{
					{words: "go on", rounds: []round{{toolCall("call_1", "bash", "echo")}, {say("Well.")}}},
					{words: "and?", rounds: []round{{say("No more.")}}},
				}
				theirs := append([]talk{{words: "do it", rounds: tt.denied}}, rest...)
				others := append([]talk{{words: "do it", rounds: tt.free}}, rest...)
				g := newRig(t, setup{reads: true, way: c.way, model: func(a providertest.Asked) (providertest.Turn, bool) {
					if strings.Contains(a.Header.Get("Authorization")+a.Header.Get("X-Api-Key"), "denied") {
						return model(theirs)(a)
					}
					return model(others)(a)
				}})
				denied := newPlayer(t, g, c, stream, withKey(g, "key-denied"))
				free := newPlayer(t, g, c, stream, withKey(g, "key-free"))
				for i := range theirs {
					denied.play(theirs[i], nil)
					asked, sent := len(g.tap.asked), len(g.provider.Requests())
					free.play(others[i], nil)
					for j, r := range g.provider.Requests()[sent:] {
						if want := g.tap.asked[asked+j]; !bytes.Equal(r.Body, want) {
							t.Errorf("nothing was denied in this conversation, and its request\n%s\nwent out as\n%s", want, r.Body)
						}
					}
				}
			})
		})
	}
}

func (r round) and(more ...round) []round { return append([]round{r}, more...) }

func isDenied(it providertest.Item) bool {
	c, ok := it.(providertest.Call)
	return ok && denied(c)
}

// Who asks stays the same when a token is renewed: one that names its subject,
// and one that says nothing of it, as long as the session is named and the
// conversation is whole.
func TestRepairsOutliveTheRenewalOfAToken(t *testing.T) {
	jwt := func(n int) string {
		part := base64.RawURLEncoding.EncodeToString
		return part([]byte(`{"alg":"RS256"}`)) + "." +
			part(fmt.Appendf(nil, `{"iss":"https://login.test","sub":"user-7","exp":%d}`, 1_795_000_000+3600*n)) + "." +
			part(fmt.Appendf(nil, "signature %d", n))
	}
	tests := []struct {
		name    string
		token   func(n int) string
		session bool
	}{
		{"that names its subject", jwt, false},
		{"that names its subject, in a session", jwt, true},
		{"that names an id", func(n int) string { return fmt.Sprintf("tid=abc123;exp=%d;sku=a:%040d", n, n) }, false},
		{"that says nothing, in a session", func(n int) string { return fmt.Sprintf("sk-ant-oat01-%040d", n) }, true},
	}
	say := func(s string) providertest.Item { return providertest.Text(s) }
	firsts := map[string][]round{
		"denied once":         {{providertest.Thinking("one"), strong("1", "bash", forbidden)}, {providertest.Thinking("two"), say("Done.")}},
		"the middle of three": {three(1), {say("Two of them ran.")}},
		"denied, then not":    {{toolCall("call_0", "bash", forbidden)}, {toolCall("call_1", "bash", "echo")}, {say("Done.")}},
	}
	for _, tt := range tests {
		for name, first := range firsts {
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				eachLoop(t, func(t *testing.T, c agentClient, stream bool) {
					talks := append([]talk{{words: "do it", rounds: first}}, tenMore()[6:]...)
					g := newRig(t, setup{reads: true, model: model(talks)})
					n := 0
					p := newPlayer(t, g, c, stream, &http.Client{Transport: asking{g.tap, func(h http.Header) {
						n++
						h.Del("X-Api-Key")
						h.Set("Authorization", "Bearer "+tt.token(n/2))
						if tt.session {
							h.Set("Session-Id", "a session")
							h.Set("X-Claude-Code-Session-Id", "a session")
						}
					}}})
					for i, k := range talks {
						if i == 2 {
							g.restart(t)
						}
						p.play(k, nil)
					}
				})
			})
		}
	}
}
