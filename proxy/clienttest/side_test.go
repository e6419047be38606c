package clienttest

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"callgate/proxy/providertest"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/openai/openai-go/v3"
	"github.com/tidwall/gjson"
)

// Conversations of one tenant go on side by side, in which calls with equal ids
// are denied and allowed.
func TestConversationsSideBySide(t *testing.T) {
	eachWay(t, agentLoops, func(t *testing.T, c agentClient, stream bool) {
		const number = 6
		say := func(s string) providertest.Item { return providertest.Text(s) }
		talks := make([][]talk, number)
		for i := range talks {
			word := []string{forbidden, "echo"}[i%2]
			talks[i] = []talk{
				{words: fmt.Sprintf("do it %d", i), rounds: []round{{say("Now. "), toolCall("call_0", "bash", word)}, {say("Done.")}}},
				{words: fmt.Sprintf("go on %d", i), rounds: []round{{toolCall("call_1", "bash", forbidden), toolCall("call_2", "bash", "echo")}, {say("Done.")}}},
				{words: fmt.Sprintf("and %d?", i), rounds: []round{{say("Done.")}}},
			}
		}
		const conversation = "X-Number"
		g := newRig(t, setup{reads: true, way: c.way, model: func(a providertest.Asked) (providertest.Turn, bool) {
			var i int
			if _, err := fmt.Sscan(a.Header.Get(conversation), &i); err != nil {
				return providertest.Turn{}, false
			}
			return model(talks[i])(a)
		}})
		var over sync.WaitGroup
		for i := range talks {
			over.Go(func() {
				own, number := newTap(g), fmt.Sprint(i)
				defer own.close()
				p := newPlayer(t, g, c, stream, &http.Client{Transport: asking{own, func(h http.Header) { h.Set(conversation, number) }}})
				p.tap, p.mine = own, func(h http.Header) bool { return h.Get(conversation) == number }
				for _, k := range talks[i] {
					p.play(k, nil)
				}
			})
		}
		over.Wait()
	})
}

// A model that has to call something is free to speak once it was refused, and
// has to again when the agent asks next.
func TestAForcedCallIsForcedOnce(t *testing.T) {
	eachClient(t, func(t *testing.T, c agentClient, stream bool) {
		talks := []talk{
			{words: "do it", rounds: []round{{strong("1", "bash", forbidden)}, {providertest.Text("It must not run.")}}},
			{words: "go on", rounds: []round{{providertest.Text("Well.")}}},
		}
		g := newRig(t, setup{reads: true, model: model(talks)})
		p := newPlayer(t, g, c, stream, g.client())
		switch conv := p.conv.(type) {
		case *openAI:
			conv.params.ToolChoice.OfAuto = openai.String("required")
		case *anthropicAgent:
			conv.params.Thinking = anthropic.ThinkingConfigParamUnion{}
			conv.params.ToolChoice.OfAny = &anthropic.ToolChoiceAnyParam{DisableParallelToolUse: anthropic.Bool(true)}
		case *goOpenAI:
			conv.req.ToolChoice = "required"
		}
		for _, k := range talks {
			p.play(k, nil)
		}
		for i, r := range g.provider.Requests() {
			choice := gjson.GetBytes(r.Body, "tool_choice")
			if free := strings.Contains(choice.Raw, `"auto"`); free != (i == 1) {
				t.Errorf("request %d has the tool choice %s", i, choice.Raw)
			}
			if c.messages && !choice.Get("disable_parallel_tool_use").Bool() {
				t.Errorf("request %d allows several calls at once: %s", i, choice.Raw)
			}
		}
	})
}

// A thread that the provider no longer has is begun anew by Anthropic's library,
// with the whole history as the agent was shown it.
func TestAThreadBegunAnewHoldsTheRefusals(t *testing.T) {
	for name, rounds := range map[string][]round{
		"denied once":         {{providertest.Text("Now. "), strong("1", "bash", forbidden)}, {providertest.Text("It must not run.")}},
		"denied, then not":    {{strong("1", "bash", forbidden)}, {strong("2", "bash", "echo")}, {providertest.Text("Done.")}},
		"the middle of three": three(1).and(round{providertest.Text("Two of them ran.")}),
	} {
		for _, stream := range []bool{false, true} {
			for _, early := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/stream %v, early %v", name, stream, early), func(t *testing.T) {
					talks := []talk{{words: "do it", rounds: rounds}, {words: "go on", rounds: []round{{providertest.Text("Well.")}}}}
					if early && len(talks[0].turns()) == 1 {
						t.Skip("there is nothing before the end")
					}
					g := newRig(t, setup{reads: true, model: model(talks)})
					gone := &forgetful{next: g.tap}
					p := newPlayer(t, g, toolRunners[1], stream, &http.Client{Transport: gone})
					forget := func() {
						gone.now = true
						p.client.threads = false // the next request holds all
					}
					if early {
						p.play(talks[0], forget)
					} else {
						p.play(talks[0], nil)
						forget()
						p.play(talks[1], nil)
					}
					asked := g.provider.Requests()
					if body := asked[len(asked)-1].Body; gjson.GetBytes(body, "thread.type").Str != "create" {
						t.Errorf("no thread was begun: %s", body)
					}
				})
			}
		}
	}
}

// forgetful answers one request itself: the thread in it is not known.
type forgetful struct {
	next http.RoundTripper
	now  bool
}

func (f *forgetful) RoundTrip(r *http.Request) (*http.Response, error) {
	if !f.now {
		return f.next.RoundTrip(r)
	}
	f.now = false
	const body = `{"type":"error","error":{"type":"not_found_error","message":"no such thread","details":{"error_code":"thread_not_found"}}}`
	return &http.Response{
		StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}, nil
}

// A further answer that breaks off is no broken answer for the agent, and what
// was refused before it stays known.
func TestAFurtherAnswerBreaksOff(t *testing.T) {
	tests := []struct {
		name string
		cut  providertest.Cut
	}{
		{"at its beginning", providertest.Cut{Events: -1, Bytes: 300}},
		{"at its beginning, as if it were whole", providertest.Cut{Events: -1, Bytes: 300, Clean: true}},
		{"in its words", providertest.Cut{Events: 6, Bytes: 460}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachWay(t, agentLoops, func(t *testing.T, c agentClient, stream bool) {
				talks := []talk{
					{words: "do it", rounds: []round{{providertest.Text("Now. "), strong("1", "bash", forbidden)}}},
					{words: "go on", rounds: []round{{providertest.Text("Well.")}}},
				}
				g := newRig(t, setup{reads: true, way: c.way, model: func(a providertest.Asked) (providertest.Turn, bool) {
					if a.Words == "do it" && a.Since == 1 {
						return providertest.Turn{
							Say: round{providertest.Text("Another way of doing it would be "), strong("2", "bash", "echo")}, Cut: &tt.cut,
						}, true
					}
					return model(talks)(a)
				}})
				conv := c.open(g.base, g.client(), stream)
				conv.user("do it")
				a, err := conv.next(t.Context())
				if err != nil || !strings.HasPrefix(a.Text, "Now. ") || !strings.Contains(a.Text, "[callgate]") || len(a.Calls) > 0 {
					t.Fatalf("the agent got %+v, %v", a, err)
				}
				if err := envelope(c.messages, stream, g.tap.seen()[0]); err != nil {
					t.Error(err)
				}
				conv.user("go on")
				if a, err = conv.next(t.Context()); err != nil || a.Text != "Well." {
					t.Fatalf("the agent got %+v, %v; faults %q", a, err, g.provider.Faults())
				}
				for _, f := range g.provider.Faults() {
					// The library itself begins a new thread then.
					if !c.threads || !strings.HasPrefix(f, "thread_already_continued") {
						t.Errorf("the provider refused a request: %s", f)
					}
				}
				asked := g.provider.Requests()
				got, err := readHistory(asked[len(asked)-1].Body)
				if err != nil {
					t.Fatal(err)
				}
				// What there was of the further answer may stand or not.
				got = slices.DeleteFunc(got, func(e entry) bool { return e.Kind == byModel && len(e.Calls) == 0 })
				if d := differ(got, append(talks[0].entries(1), entry{Kind: byUser, Text: "go on"})); d != "" {
					t.Errorf("the model reads something else: %s", d)
				}
			})
		})
	}
}
