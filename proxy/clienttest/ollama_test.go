package clienttest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"callgate/gate"
	"callgate/proxy/providertest"

	"github.com/ollama/ollama/api"
	"github.com/tidwall/gjson"
)

// ollamaClients is Ollama's own library.
var ollamaClients = []agentClient{{name: "ollama", open: newOllama}}

// ollamaAgent is a conversation with it. It gives lines as they come; putting them
// together is the agent's work.
type ollamaAgent struct {
	client *api.Client
	req    api.ChatRequest
}

func newOllama(base string, hc *http.Client, stream bool) conversation {
	at, err := url.Parse(base)
	if err != nil {
		panic(err)
	}
	o := &ollamaAgent{client: api.NewClient(at, hc)}
	o.req.Model, o.req.Stream = "model-of-tests", &stream
	for _, name := range agentTools {
		tool := api.Tool{Type: "function", Function: api.ToolFunction{Name: name}}
		if err := json.Unmarshal([]byte(toolSchema), &tool.Function.Parameters); err != nil {
			panic(err)
		}
		o.req.Tools = append(o.req.Tools, tool)
	}
	return o
}

func (o *ollamaAgent) user(text string) {
	o.req.Messages = append(o.req.Messages, api.Message{Role: "user", Content: text})
}

func (o *ollamaAgent) results(a answer) {
	for _, c := range a.Calls {
		o.req.Messages = append(o.req.Messages, api.Message{Role: "tool", ToolName: c.Name, ToolCallID: c.ID, Content: resultOf(c)})
	}
}

func (o *ollamaAgent) next(ctx context.Context) (answer, error) {
	var a answer
	msg := api.Message{Role: "assistant"}
	err := o.client.Chat(ctx, &o.req, func(r api.ChatResponse) error {
		msg.Content += r.Message.Content
		msg.Thinking += r.Message.Thinking
		msg.ToolCalls = append(msg.ToolCalls, r.Message.ToolCalls...)
		if r.Done {
			a.Finish, a.Input, a.Output = r.DoneReason, int64(r.PromptEvalCount), int64(r.EvalCount)
		}
		return nil
	})
	if err != nil {
		return answer{}, err
	}
	if len(msg.ToolCalls) > 0 && a.Finish == "stop" {
		a.Finish = "tool_calls" // the format has no word of its own for it
	}
	o.req.Messages = append(o.req.Messages, msg)
	a.Text = msg.Content
	for _, c := range msg.ToolCalls {
		a.Calls = append(a.Calls, seenCall{c.ID, c.Function.Name, c.Function.Arguments.String()})
	}
	return a, nil
}

// ollamaEnvelope says what is wrong with an answer in lines as one answer.
func ollamaEnvelope(body []byte) error {
	lines := bytes.SplitAfter(body, []byte{'\n'})
	if last := lines[len(lines)-1]; len(last) > 0 {
		return fmt.Errorf("the last line has no end: %q", last)
	}
	lines = lines[:len(lines)-1]
	calls := int64(0)
	for i, line := range lines {
		doc := gjson.ParseBytes(line)
		if !gjson.ValidBytes(line) || doc.Get("done").Bool() != (i == len(lines)-1) || doc.Get("model").Str != "model-of-tests" {
			return fmt.Errorf("line %d of %d is out of place: %s", i+1, len(lines), line)
		}
		for _, c := range doc.Get("message.tool_calls").Array() {
			if c.Get("function.index").Int() != calls {
				return fmt.Errorf("line %d has call %d behind %d calls", i+1, c.Get("function.index").Int(), calls)
			}
			calls++
		}
	}
	return nil
}

// eachOllama runs a test for it, by lines and by document.
func eachOllama(t *testing.T, f func(t *testing.T, c agentClient, stream bool)) {
	eachOf(t, ollamaClients, f)
}

// What a gate makes of three calls at once, when it asks nobody, when it asks
// somebody who says yes or no, and when nobody answers.
func TestOllamaLoopsThroughTheGate(t *testing.T) {
	for _, tt := range []struct {
		name string
		gone []int
	}{{"all are allowed", nil}, {"the first is denied", []int{0}}, {"the middle one is denied", []int{1}}, {"two are denied", []int{0, 2}}, {"all are denied", []int{0, 1, 2}}} {
		t.Run(tt.name, func(t *testing.T) {
			eachOllama(t, func(t *testing.T, c agentClient, stream bool) {
				three := threeCalls(forbidden, tt.gone...)
				g := newRig(t, setup{script: three.script()})
				three.check(t, g, converse(t, g, c, stream))
			})
		})
	}
	for _, approve := range []bool{true, false} {
		t.Run(fmt.Sprintf("a person answers %v", approve), func(t *testing.T) {
			eachOllama(t, func(t *testing.T, c agentClient, stream bool) {
				three := threeCalls(dangerous, 1)
				three.stays[1] = approve
				asked := make(chan gate.Approval)
				desk := newDesk(t, time.Minute, asked)
				g := newRig(t, setup{script: three.script(), person: desk})
				watched := make(chan struct{})
				go func() {
					defer close(watched)
					a := <-asked
					held := g.tap.last().grow(t.Context(), 8)
					for _, k := range three.calls[1:] {
						if h := holds(held, k.ID, "args of "+k.ID); h != nil {
							t.Errorf("undecided, and the client has %q", h)
						}
					}
					if _, err := desk.Answer(t.Context(), a.ID, gate.Answer{Approve: approve, By: "tester"}); err != nil {
						t.Error(err)
					}
				}()
				all := converse(t, g, c, stream)
				<-watched
				if approve {
					checkHeld(t, three, all)
					return
				}
				three.check(t, g, all)
			})
		})
	}
	t.Run("nobody answers", func(t *testing.T) {
		eachOllama(t, func(t *testing.T, c agentClient, stream bool) {
			three := threeCalls(dangerous, 0, 1, 2)
			desk := newDesk(t, 40*time.Millisecond, make(chan gate.Approval, 3))
			g := newRig(t, setup{script: three.script(), person: desk})
			three.check(t, g, converse(t, g, c, stream))
		})
	})
	t.Run("without the gate", func(t *testing.T) {
		eachOllama(t, func(t *testing.T, c agentClient, stream bool) {
			three := threeCalls(forbidden)
			g := newRig(t, setup{script: three.script()})
			conv := c.open(g.at.String(), g.client(), stream)
			conv.user("do the three things")
			all := runLoop(t, conv)
			conv.user("is it all done?")
			three.check(t, g, append(all, runLoop(t, conv)...))
		})
	})
}

// What the provider says no to, and what callgate does, reaches the agent.
func TestOllamaIsToldOfErrors(t *testing.T) {
	for _, status := range []int{400, 404, 500} {
		eachOllama(t, func(t *testing.T, c agentClient, stream bool) {
			g := newRig(t, setup{script: providertest.Script{{Instead: &providertest.Answer{Status: status, Message: "the provider's own words"}}}})
			conv := c.open(g.base, g.client(), stream)
			conv.user("go")
			if _, err := conv.next(t.Context()); err == nil || !strings.Contains(err.Error(), "the provider's own words") {
				t.Errorf("the agent got %v", err)
			}
		})
	}
	eachOllama(t, func(t *testing.T, c agentClient, stream bool) {
		three := threeCalls(forbidden, 1)
		g := newRig(t, setup{script: three.script(), errors: true})
		conv := c.open(g.base, g.client(), stream)
		conv.user("go")
		if _, err := conv.next(t.Context()); err == nil || !strings.Contains(err.Error(), "did not run") {
			t.Errorf("a call was denied, and the agent got %v", err)
		}
	})
}

// What the model and the agent see of denied calls, in the answer itself and in
// ten more of the conversation, with restarts of callgate among them.
func TestTheModelBehindOllamaReadsItsRefusals(t *testing.T) {
	think, say := func(s string) providertest.Item { return providertest.Thinking(s) }, func(s string) providertest.Item { return providertest.Text(s) }
	for _, tt := range []struct {
		name   string
		person bool
		talk   talk
	}{
		{"denied once, then text", false, talk{rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", forbidden)}, {think("two"), say("It must not run.")}}}},
		{"denied once without a word, then an allowed call", false, talk{rounds: []round{
			{strong("1", "bash", forbidden)}, {think("two"), strong("2", "write", "echo")}, {say("Done.")}}}},
		{"denied twice in a row, then text", false, talk{rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", forbidden)}, {think("two"), strong("2", "write", forbidden)}, {say("Neither may run.")}}}},
		{"all of three denied", false, talk{rounds: []round{three(0, 1, 2), {think("well"), say("None of it may run.")}}}},
		{"the middle of three denied", false, talk{rounds: []round{three(1), {think("well"), say("Two of them ran.")}}}},
		{"the last of three denied, and all of the next", false, talk{rounds: []round{three(2), {strong("1", "bash", forbidden)}, {say("Two of them ran.")}}}},
		{"the same call again", false, talk{ended: true, rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", forbidden)},
			{say("Once more. "), providertest.Call{ID: "call_Zq81mT4v2", Name: "bash", Args: strong("1", "bash", forbidden).Args}}}}},
		{"denied, and the provider fails", false, talk{ended: true, fails: &providertest.Answer{Status: 401}, rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", forbidden)}}}},
		{"denied by a person", true, talk{rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", dangerous)}, {think("two"), say("It must not run.")}}}},
		{"the middle of three denied by a person", true, talk{rounds: []round{
			{say("Three things. "), strong("1", "bash", "echo"), strong("2", "write", dangerous), strong("3", "fetch", "echo")}, {say("Two of them ran.")}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachOllama(t, func(t *testing.T, c agentClient, stream bool) {
				first := tt.talk
				first.words = "do it"
				talks := append([]talk{first}, tenMore()...)
				s := setup{reads: true, model: model(talks)}
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

// Older servers give no ids: results, and refusals among them, are told apart by
// their order, and answers in a history by what they say.
func TestOllamaWithoutIDs(t *testing.T) {
	call := func(tool, word string) providertest.Call {
		c := toolCall("none", tool, word)
		c.ID = ""
		return c
	}
	eachOllama(t, func(t *testing.T, c agentClient, stream bool) {
		g := newRig(t, setup{reads: true, script: providertest.Script{
			{Say: []providertest.Item{providertest.Text("Three things. "), call("bash", "echo 1"), call("write", forbidden), call("fetch", "echo 3")}},
			{Say: []providertest.Item{providertest.Text("One more. "), call("bash", forbidden+" 4")}},
			{Say: []providertest.Item{providertest.Text("All is done.")}},
			{Say: []providertest.Item{providertest.Text("Yes.")}},
		}})
		all := converse(t, g, c, stream)
		if len(all) != 3 || len(all[0].Calls) != 2 || !strings.HasPrefix(all[1].Text, "One more.") || !strings.HasSuffix(all[1].Text, "All is done.") {
			t.Errorf("the agent saw %+v", all)
		}
		if f := g.provider.Faults(); f != nil {
			t.Errorf("the provider refused %q", f)
		}
		asked := g.provider.Requests()
		if len(asked) != 4 {
			t.Fatalf("the provider was asked %d times", len(asked))
		}
		last := gjson.GetBytes(asked[3].Body, "messages")
		var roles []string
		for _, m := range last.Array() {
			roles = append(roles, m.Get("role").Str)
		}
		if got := strings.Join(roles, " "); got != "user assistant tool tool tool assistant tool assistant user" {
			t.Errorf("the last request has %s", got)
		}
		if refused := last.Get("3"); refused.Get("tool_name").Str != "write" || !strings.Contains(refused.Get("content").Str, refusalMark) || refused.Get("tool_call_id").Exists() {
			t.Errorf("the refusal is %s", refused.Raw)
		}
	})
}

// Words are seen while the model is still speaking.
func TestLinesFlowAtOnce(t *testing.T) {
	seen := make(chan string, 8)
	g := newRig(t, setup{script: providertest.Script{{
		Say: []providertest.Item{providertest.Text("one two three four"), toolCall("call_x", "bash", "echo")},
		// The provider says its next word when the client has the last.
		Before: func(ctx context.Context, i int) {
			if i > 0 && i <= 4 {
				select {
				case <-seen:
				case <-ctx.Done():
				}
			}
		},
	}}})
	at, err := url.Parse(g.base)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	req := newOllama(g.base, g.client(), true).(*ollamaAgent).req
	req.Messages = []api.Message{{Role: "user", Content: "go"}}
	calls := 0
	err = api.NewClient(at, g.client()).Chat(ctx, &req, func(r api.ChatResponse) error {
		if r.Message.Content != "" {
			seen <- r.Message.Content
		}
		calls += len(r.Message.ToolCalls)
		return nil
	})
	if err != nil || calls != 1 {
		t.Errorf("%v, %d calls", err, calls)
	}
}
