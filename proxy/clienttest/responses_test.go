package clienttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"callgate/gate"
	"callgate/proxy/providertest"

	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/tidwall/gjson"
)

// responsesClients are OpenAI's own library with all that was said in each
// request (the provider keeps nothing, as Codex asks), and with a history that
// the provider holds in two ways.
var responsesClients = []agentClient{
	{name: "openai-go responses", open: openResponses("")},
	{name: "openai-go responses stored", open: openResponses("stored")},
	{name: "openai-go responses previous", open: openResponses("previous"), threads: true},
	{name: "openai-go responses conversation", open: openResponses("conversation"), threads: true},
}

// referring is a client that names the messages of answers by their ids, as
// Vercel's SDK does where the provider keeps them.
var referring = []agentClient{{name: "openai-go responses references", open: openResponses("references")}}

// responsesAgent is a conversation with it.
type responsesAgent struct {
	client openai.Client
	params responses.ResponseNewParams
	input  []responses.ResponseInputItemUnionParam
	stream bool
	held   string
}

func openResponses(held string) func(string, *http.Client, bool) conversation {
	return func(base string, hc *http.Client, stream bool) conversation {
		r := &responsesAgent{held: held, stream: stream, client: openai.NewClient(
			openaioption.WithBaseURL(base+"/v1/"), openaioption.WithAPIKey("key-of-tests"),
			openaioption.WithHTTPClient(hc), openaioption.WithMaxRetries(0),
		)}
		r.params.Model = "model-of-tests"
		r.params.Instructions = openai.String("You are an agent of the tests.")
		switch held {
		case "":
			r.params.Store = openai.Bool(false)
			r.params.Include = []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent}
		case "conversation":
			r.params.Conversation.OfString = openai.String("conv_of_tests")
		}
		for _, name := range agentTools {
			r.params.Tools = append(r.params.Tools, responses.ToolUnionParam{OfFunction: &responses.FunctionToolParam{
				Name: name, Parameters: schemaOf(), Strict: openai.Bool(false),
			}})
		}
		return r
	}
}

func (r *responsesAgent) user(text string) {
	r.input = append(r.input, responses.ResponseInputItemParamOfMessage(text, responses.EasyInputMessageRoleUser))
}

func (r *responsesAgent) results(a answer) {
	for _, c := range a.Calls {
		result := responses.ResponseInputItemParamOfFunctionCallOutput(resultOf(c))
		result.OfFunctionCallOutput.CallID = openai.String(c.ID)
		r.input = append(r.input, result)
	}
}

func (r *responsesAgent) next(ctx context.Context) (answer, error) {
	r.params.Input.OfInputItemList = r.input
	done, err := r.ask(ctx)
	if err != nil {
		return answer{}, err
	}
	if r.held == "" || r.held == "stored" || r.held == "references" {
		for _, item := range done.Output {
			if r.held == "references" && item.Type == "message" {
				r.input = append(r.input, responses.ResponseInputItemParamOfItemReference(item.ID))
				continue
			}
			r.input = append(r.input, param.Override[responses.ResponseInputItemUnionParam](json.RawMessage(item.RawJSON())))
		}
	} else {
		r.input = nil
	}
	if r.held == "previous" {
		r.params.PreviousResponseID = openai.String(done.ID)
	}
	a := answer{ID: done.ID, Text: done.OutputText(), Finish: string(done.Status), Input: done.Usage.InputTokens, Output: done.Usage.OutputTokens}
	for _, item := range done.Output {
		if item.Type == "function_call" {
			a.Calls = append(a.Calls, seenCall{item.CallID, item.Name, item.Arguments.OfString})
		}
	}
	if len(a.Calls) > 0 && a.Finish == "completed" {
		a.Finish = "tool_calls" // the format has no word of its own for it
	}
	return a, nil
}

// ask asks once. Of a stream, what the library's accumulator makes of the pieces
// must be what the response at its end says.
func (r *responsesAgent) ask(ctx context.Context) (*responses.Response, error) {
	if !r.stream {
		done, err := r.client.Responses.New(ctx, r.params)
		return done, withMessage(err)
	}
	s := r.client.Responses.NewStreaming(ctx, r.params)
	defer s.Close()
	var acc responses.ResponseAccumulator
	var done *responses.Response
	var pieces responses.ResponseAccumulatorSnapshot
	for s.Next() {
		ev := s.Current()
		if ev.Type == "response.completed" || ev.Type == "response.incomplete" {
			done, pieces = &ev.Response, acc.Snapshot()
		}
		if ev.Type == "error" || ev.Type == "response.failed" {
			return nil, fmt.Errorf("the stream says %s", ev.RawJSON())
		}
		var over responses.ResponsesServerEventUnion
		if err := json.Unmarshal([]byte(ev.RawJSON()), &over); err != nil {
			return nil, err
		}
		if err := acc.AddEvent(over); err != nil {
			return nil, fmt.Errorf("the accumulator does not take %s: %w", ev.RawJSON(), err)
		}
	}
	if err := s.Err(); err != nil {
		return nil, withMessage(err)
	}
	if done == nil {
		return nil, errors.New("the stream ended without a response")
	}
	if err := agree(pieces, done); err != nil {
		return nil, err
	}
	return done, nil
}

// agree holds what was put together of a stream's pieces against the response at
// its end.
func agree(pieces responses.ResponseAccumulatorSnapshot, done *responses.Response) error {
	if len(pieces.Output) != len(done.Output) || pieces.ResponseID != done.ID {
		return fmt.Errorf("the stream gave %d items of %s, and its end %d of %s", len(pieces.Output), pieces.ResponseID, len(done.Output), done.ID)
	}
	for i, item := range done.Output {
		was := pieces.Output[i]
		if was.ItemID != item.ID || was.Type != item.Type || was.CallID != item.CallID || was.Name != item.Name || was.Arguments != item.Arguments.OfString {
			return fmt.Errorf("item %d came as %+v and ends as %s", i, was, item.RawJSON())
		}
	}
	if pieces.OutputText() != done.OutputText() {
		return fmt.Errorf("the stream said %q and its end says %q", pieces.OutputText(), done.OutputText())
	}
	return nil
}

// responsesEntries gives what the input of a request holds.
func responsesEntries(input gjson.Result) (out []entry) {
	if input.Type == gjson.String {
		return []entry{{Kind: byUser, Text: input.Str}}
	}
	var e *entry // the answer under way
	for _, item := range input.Array() {
		typ := item.Get("type").Str
		text := item.Get("content")
		if text.IsArray() {
			var b strings.Builder
			for _, p := range text.Array() {
				b.WriteString(p.Get("text").Str)
			}
			text = gjson.Result{Type: gjson.String, Str: b.String()}
		}
		switch {
		case typ == "function_call_output":
			said := item.Get("output").Str
			out = append(out, entry{Kind: ofCall, Text: said, Call: item.Get("call_id").Str, Refused: strings.Contains(said, refusalMark)})
			e = nil
			continue
		case item.Get("role").Str == "user":
			out = append(out, entry{Kind: byUser, Text: text.Str})
			e = nil
			continue
		}
		if e == nil {
			out = append(out, entry{Kind: byModel})
			e = &out[len(out)-1]
		}
		switch typ {
		case "reasoning":
			for _, p := range item.Get("summary").Array() {
				e.Thinking += p.Get("text").Str
			}
		case "function_call":
			e.Calls = append(e.Calls, seenCall{item.Get("call_id").Str, item.Get("name").Str, item.Get("arguments").Str})
		default:
			e.Text += text.Str
		}
	}
	return out
}

// responsesEnvelope says what is wrong with a stream of Responses as one answer:
// one start and one end with one id, numbers and indexes without gaps, no item
// open at the end, and the same items in it.
func responsesEnvelope(events []gjson.Result) error {
	var items []string // as they ended, by index
	open := map[int64]string{}
	id := events[0].Get("response.id").Str
	for i, ev := range events {
		bad := ev.Get("sequence_number").Int() != int64(i)
		index := ev.Get("output_index")
		_, isOpen := open[index.Int()]
		switch typ := ev.Get("type").Str; typ {
		case "response.created":
			bad = bad || i > 0
		case "response.in_progress":
			bad = bad || i == 0 || ev.Get("response.id").Str != id
		case "response.output_item.added":
			bad = bad || index.Int() != int64(len(items))
			open[index.Int()] = ev.Get("item.id").Str
			items = append(items, "")
		case "response.output_item.done":
			bad = bad || !isOpen || open[index.Int()] != ev.Get("item.id").Str
			if !bad {
				items[index.Int()] = ev.Get("item").Raw
				delete(open, index.Int())
			}
		case "response.completed", "response.incomplete":
			bad = bad || i != len(events)-1 || len(open) > 0 || ev.Get("response.id").Str != id
			output := ev.Get("response.output").Array()
			if len(output) != len(items) {
				return fmt.Errorf("the end has %d items, and %d came", len(output), len(items))
			}
			for k, item := range output {
				if item.Raw != items[k] {
					return fmt.Errorf("item %d came as %s and is at the end %s", k, items[k], item.Raw)
				}
			}
		default:
			bad = bad || !isOpen || ev.Get("item_id").Str != open[index.Int()]
		}
		if bad {
			return fmt.Errorf("event %d is out of place: %s", i, ev.Raw)
		}
	}
	if last := events[len(events)-1].Get("type").Str; last != "response.completed" && last != "response.incomplete" {
		return fmt.Errorf("the last event is a %s", last)
	}
	return nil
}

// eachResponses runs a test for each of the ways, streamed and not.
func eachResponses(t *testing.T, f func(t *testing.T, c agentClient, stream bool)) {
	eachOf(t, responsesClients, f)
}

// What a gate makes of three calls at once, when it asks nobody, when it asks
// somebody who says yes or no, and when nobody answers.
func TestResponsesLoopsThroughTheGate(t *testing.T) {
	for _, tt := range []struct {
		name string
		gone []int
	}{{"all are allowed", nil}, {"the first is denied", []int{0}}, {"the middle one is denied", []int{1}}, {"two are denied", []int{0, 2}}, {"all are denied", []int{0, 1, 2}}} {
		t.Run(tt.name, func(t *testing.T) {
			eachResponses(t, func(t *testing.T, c agentClient, stream bool) {
				if c.threads && len(tt.gone) > 0 {
					t.Skip("what the provider holds needs a state directory: TestTheModelBehindResponsesReadsItsRefusals")
				}
				three := threeCalls(forbidden, tt.gone...)
				g := newRig(t, setup{script: three.script()})
				three.check(t, g, converse(t, g, c, stream))
			})
		})
	}
	for _, approve := range []bool{true, false} {
		t.Run(fmt.Sprintf("a person answers %v", approve), func(t *testing.T) {
			eachOf(t, responsesClients[:2], func(t *testing.T, c agentClient, stream bool) {
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
	t.Run("without the gate", func(t *testing.T) {
		eachResponses(t, func(t *testing.T, c agentClient, stream bool) {
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
func TestResponsesIsToldOfErrors(t *testing.T) {
	for _, status := range []int{400, 404, 500} {
		eachResponses(t, func(t *testing.T, c agentClient, stream bool) {
			g := newRig(t, setup{script: providertest.Script{{Instead: &providertest.Answer{Status: status, Message: "the provider's own words"}}}})
			conv := c.open(g.base, g.client(), stream)
			conv.user("go")
			if _, err := conv.next(t.Context()); err == nil || !strings.Contains(err.Error(), "the provider's own words") {
				t.Errorf("the agent got %v", err)
			}
		})
	}
	eachResponses(t, func(t *testing.T, c agentClient, stream bool) {
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
func TestTheModelBehindResponsesReadsItsRefusals(t *testing.T) {
	think, say := func(s string) providertest.Item { return providertest.Thinking(s) }, func(s string) providertest.Item { return providertest.Text(s) }
	for _, tt := range []struct {
		name   string
		person bool
		// late says that refusals reach the model with the agent's next request,
		// and that nothing in that request names the answer they belong to.
		late bool
		talk talk
	}{
		{"denied once, then text", false, false, talk{rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", forbidden)}, {think("two"), say("It must not run.")}}}},
		{"denied once without a word, then an allowed call", false, false, talk{rounds: []round{
			{strong("1", "bash", forbidden)}, {think("two"), strong("2", "write", "echo")}, {say("Done.")}}}},
		{"denied twice in a row, then text", false, false, talk{rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", forbidden)}, {think("two"), strong("2", "write", forbidden)}, {say("Neither may run.")}}}},
		{"all of three denied", false, false, talk{rounds: []round{three(0, 1, 2), {think("well"), say("None of it may run.")}}}},
		{"the first of three denied", false, true, talk{rounds: []round{three(0), {say("Two of them ran.")}}}},
		{"the middle of three denied", false, true, talk{rounds: []round{three(1), {think("well"), say("Two of them ran.")}}}},
		{"the last of three denied, and all of the next", false, true, talk{rounds: []round{three(2), {strong("1", "bash", forbidden)}, {say("Two of them ran.")}}}},
		{"the same call again", false, true, talk{ended: true, rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", forbidden)},
			{say("Once more. "), providertest.Call{ID: "call_Zq81mT4v2", Name: "bash", Args: strong("1", "bash", forbidden).Args}}}}},
		{"denied, and the provider fails", false, true, talk{ended: true, fails: &providertest.Answer{Status: 401}, rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", forbidden)}}}},
		{"denied by a person", true, false, talk{rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", dangerous)}, {think("two"), say("It must not run.")}}}},
		{"the middle of three denied by a person", true, false, talk{rounds: []round{
			{say("Three things. "), strong("1", "bash", "echo"), strong("2", "write", dangerous), strong("3", "fetch", "echo")}, {say("Two of them ran.")}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clients := responsesClients
			if tt.late {
				clients = clients[:3] // TestAConversationThatTheProviderHoldsGoesOn has the last
			}
			eachOf(t, clients, func(t *testing.T, c agentClient, stream bool) {
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

// Of a conversation that the provider holds a request names no answer: what was
// refused in the last one is found by the ids of its other calls, and else the
// provider says what it misses, and gets it.
func TestAConversationThatTheProviderHoldsGoesOn(t *testing.T) {
	say := func(s string) providertest.Item { return providertest.Text(s) }
	for _, tt := range []struct {
		name    string
		rounds  []round
		fails   *providertest.Answer
		refused []string
		// known says that the model reads the refusal itself.
		known bool
	}{
		{"with the ids of other calls", []round{{strong("Kp71", "bash", "echo"), strong("Kp72", "write", forbidden)}, {say("One of them ran.")}}, nil, []string{"call_Zq81mT4vKp72"}, true},
		{"with ids that anybody could make", []round{three(1), {say("Two of them ran.")}}, nil, []string{"call_y1001"}, false},
		{"with three calls of which one is left", []round{three(0, 2), {say("One of them ran.")}}, nil, []string{"call_x1000", "call_z1002"}, false},
		{"when the provider could not be told at once", []round{{strong("1", "bash", forbidden)}}, &providertest.Answer{Status: 401}, []string{"call_Zq81mT4v1"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachOf(t, responsesClients[3:], func(t *testing.T, c agentClient, stream bool) {
				talks := []talk{{words: "do it", rounds: tt.rounds, fails: tt.fails}, {words: "and now?", rounds: []round{{say("That was all.")}}}}
				g := newRig(t, setup{reads: true, model: model(talks)})
				conv := c.open(g.base, g.client(), stream)
				for _, k := range talks {
					conv.user(k.words)
					said := runLoop(t, conv)
					if last := said[len(said)-1]; last.Text == "" {
						t.Errorf("%s ends with %+v", k.words, last)
					}
				}
				for _, f := range g.provider.Faults() {
					if tt.known || !strings.HasPrefix(f, "No tool output found for function call") {
						t.Errorf("the provider refused: %s", f)
					}
				}
				for _, id := range tt.refused {
					told := 0
					for _, r := range g.provider.Requests() {
						for _, e := range responsesEntries(gjson.GetBytes(r.Body, "input")) {
							if e.Call != id || r.Fault != "" {
								continue
							}
							if told++; !strings.Contains(e.Text, "[callgate]") || e.Refused != tt.known && tt.fails == nil {
								t.Errorf("the model reads of %s: %q", id, e.Text)
							}
						}
					}
					for _, seen := range g.tap.seen() {
						if h := holds(seen, id); h != nil {
							t.Errorf("the agent was shown %q", h)
						}
					}
					// A request that the provider fails on takes nothing.
					if want := 1; told != want && (tt.fails == nil || told != 2) {
						t.Errorf("the model was told of %s %d times", id, told)
					}
				}
			})
		})
	}
}

// An agent that names callgate's own messages by their ids, of which the provider
// knows nothing, goes on all the same.
func TestMessagesOfOursAreNamedByTheirIDs(t *testing.T) {
	say := func(s string) providertest.Item { return providertest.Text(s) }
	for _, reads := range []bool{true, false} {
		t.Run(fmt.Sprintf("with a state directory %v", reads), func(t *testing.T) {
			eachOf(t, referring, func(t *testing.T, c agentClient, stream bool) {
				g := newRig(t, setup{reads: reads, sequential: true, script: providertest.Script{
					{Say: []providertest.Item{say("I will. "), providertest.Call{ID: "call_x1", Name: "bash", Args: `{"command":`}}},
					{Say: []providertest.Item{say("Well. "), strong("1", "bash", "echo")}},
					{Say: []providertest.Item{say("Done.")}},
				}})
				conv := c.open(g.base, g.client(), stream)
				conv.user("do it")
				said, err := conv.next(t.Context())
				if err != nil || !strings.Contains(said.Text, "[callgate]") || len(said.Calls) > 0 {
					t.Fatalf("%+v, %v", said, err)
				}
				conv.user("go on")
				if all := runLoop(t, conv); len(all) != 2 || all[1].Text != "Done." {
					t.Errorf("the agent saw %+v", all)
				}
				for _, f := range g.provider.Faults() {
					if !strings.HasPrefix(f, "Item with id 'msg_callgate_") {
						t.Errorf("the provider refused: %s", f)
					}
				}
			})
		})
	}
}

// An answer that the provider keeps can be fetched again, past the gate: what
// holds a call does not come out, whatever became of the call.
func TestAStoredAnswerWithACallIsNotFetched(t *testing.T) {
	for _, tt := range []struct {
		name  string
		say   []providertest.Item
		comes bool
	}{
		{"words", []providertest.Item{providertest.Text("Done.")}, true},
		{"a call that was allowed", []providertest.Item{toolCall("call_x1", "bash", "echo")}, false},
		{"a call that was denied", []providertest.Item{toolCall("call_x1", "bash", forbidden)}, false},
		{"a call of free text", []providertest.Item{providertest.Call{ID: "call_x1", Name: "apply_patch", Args: "args of call_x1", Form: providertest.Custom}}, false},
		{"a call of the shell", []providertest.Item{providertest.Call{ID: "call_x1", Name: "shell", Args: `{"commands":["args of call_x1"]}`, Form: providertest.Native}}, false},
		{"a call of the local shell", []providertest.Item{providertest.Call{ID: "call_x1", Name: "local_shell", Args: `{"type":"exec","command":["args of call_x1"],"env":{}}`, Form: providertest.Native}}, false},
		{"a patch", []providertest.Item{providertest.Call{ID: "call_x1", Name: "apply_patch", Args: `{"type":"delete_file","path":"args of call_x1"}`, Form: providertest.Native}}, false},
		{"a question of MCP", []providertest.Item{providertest.Call{ID: "mcpr_call_x1", Name: "create", Args: `{"title":"args of call_x1"}`, Form: providertest.Native}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t, setup{sequential: true, script: providertest.Script{{Say: tt.say}}})
			ask := openResponses("stored")(g.base, g.client(), false)
			ask.user("go")
			a, err := ask.next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, query := range []string{"", "?stream=true&starting_after=0", "?include[]=reasoning.encrypted_content"} {
				res, err := http.Get(g.base + "/v1/responses/" + a.ID + query)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil {
					t.Fatal(err)
				}
				if tt.comes {
					if res.StatusCode != http.StatusOK || !bytes.Contains(body, []byte("Done.")) {
						t.Errorf("%d %s", res.StatusCode, body)
					}
					continue
				}
				if res.StatusCode == http.StatusOK || bytes.Contains(body, []byte("args of")) || bytes.Contains(body, []byte("call_x1")) {
					t.Errorf("%d %s", res.StatusCode, body)
				}
				if !bytes.Contains(body, []byte("callgate")) || !bytes.Contains(body, []byte("call-shaped")) {
					t.Errorf("the reason is not said: %s", body)
				}
			}
		})
	}
	t.Run("one in the background is not begun", func(t *testing.T) {
		g := newRig(t, setup{script: providertest.Script{{Say: []providertest.Item{toolCall("call_x1", "bash", "echo")}}}})
		conv := openResponses("stored")(g.base, g.client(), false).(*responsesAgent)
		conv.params.Background = openai.Bool(true)
		conv.user("go")
		if _, err := conv.next(t.Context()); err == nil || !strings.Contains(err.Error(), "400") || !strings.Contains(err.Error(), "background") {
			t.Errorf("the agent got %v", err)
		}
		conv.params.Background = openai.Bool(false)
		if _, err := conv.next(t.Context()); err != nil {
			t.Error(err)
		}
		if n := len(g.provider.Requests()); n != 1 {
			t.Errorf("the provider was asked %d times", n)
		}
	})
}
