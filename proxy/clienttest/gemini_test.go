package clienttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"testing"
	"time"

	"callgate/gate"
	"callgate/proxy/providertest"

	"github.com/tidwall/gjson"
	"google.golang.org/genai"
)

// geminiClients are Google's own library with a history that the agent keeps, as
// agents do; with the library's chats, which keep each piece of a streamed answer
// as a content of its own; and with a history as Gemini CLI keeps it.
var geminiClients = []agentClient{
	{name: "genai", open: newGemini(plainHistory)},
	{name: "genai chats", open: newGemini(chats)},
	{name: "genai as in Gemini CLI", open: newGemini(likeGeminiCLI), trims: true},
}

type geminiHistory int

const (
	plainHistory geminiHistory = iota
	chats
	// likeGeminiCLI gives ids to calls that have none, leaves thoughts out and joins
	// texts.
	likeGeminiCLI
)

type geminiAgent struct {
	client *genai.Client
	kept   geminiHistory
	chat   *genai.Chat // for chats alone
	config *genai.GenerateContentConfig
	past   []*genai.Content
	says   []*genai.Part // what the next request adds
	stream bool
}

const geminiModel = "model-of-tests"

func newGemini(kept geminiHistory) func(base string, hc *http.Client, stream bool) conversation {
	return func(base string, hc *http.Client, stream bool) conversation {
		client, err := genai.NewClient(context.Background(), &genai.ClientConfig{
			APIKey: "key-of-tests", Backend: genai.BackendGeminiAPI, HTTPClient: hc, HTTPOptions: genai.HTTPOptions{BaseURL: base},
		})
		if err != nil {
			panic(err)
		}
		g := &geminiAgent{client: client, kept: kept, stream: stream, config: &genai.GenerateContentConfig{
			SystemInstruction: genai.NewContentFromText("You are an agent of the tests.", genai.RoleUser),
			ThinkingConfig:    &genai.ThinkingConfig{IncludeThoughts: true},
		}}
		tool := &genai.Tool{}
		for _, name := range agentTools {
			tool.FunctionDeclarations = append(tool.FunctionDeclarations, &genai.FunctionDeclaration{Name: name, ParametersJsonSchema: schemaOf()})
		}
		g.config.Tools = []*genai.Tool{tool}
		if kept == chats {
			if g.chat, err = client.Chats.Create(context.Background(), geminiModel, g.config, nil); err != nil {
				panic(err)
			}
		}
		return g
	}
}

func (g *geminiAgent) user(text string) { g.says = append(g.says, genai.NewPartFromText(text)) }

func (g *geminiAgent) results(a answer) {
	for _, c := range a.Calls {
		part := genai.NewPartFromFunctionResponse(c.Name, map[string]any{"output": resultOf(c)})
		part.FunctionResponse.ID = c.ID
		g.says = append(g.says, part)
	}
}

// ask gives the pieces of the next answer.
func (g *geminiAgent) ask(ctx context.Context, contents []*genai.Content) iter.Seq2[*genai.GenerateContentResponse, error] {
	switch {
	case g.chat != nil && g.stream:
		return g.chat.SendStream(ctx, g.says...)
	case g.stream:
		return g.client.Models.GenerateContentStream(ctx, geminiModel, contents, g.config)
	}
	return func(yield func(*genai.GenerateContentResponse, error) bool) {
		if g.chat != nil {
			yield(g.chat.Send(ctx, g.says...))
			return
		}
		yield(g.client.Models.GenerateContent(ctx, geminiModel, contents, g.config))
	}
}

func (g *geminiAgent) next(ctx context.Context) (answer, error) {
	var a answer
	contents := append(g.past[:len(g.past):len(g.past)], genai.NewContentFromParts(g.says, genai.RoleUser))
	said := &genai.Content{Role: genai.RoleModel}
	for r, err := range g.ask(ctx, contents) {
		if err != nil {
			return answer{}, err
		}
		if len(r.Candidates) != 1 {
			return answer{}, errors.New("a piece without a candidate")
		}
		a.ID = r.ResponseID
		if u := r.UsageMetadata; u != nil {
			a.Input, a.Output = int64(u.PromptTokenCount), int64(u.CandidatesTokenCount)
		}
		a.Finish += string(r.Candidates[0].FinishReason)
		for _, p := range r.Candidates[0].Content.Parts {
			if g.kept == likeGeminiCLI && p.FunctionCall != nil && p.FunctionCall.ID == "" {
				p.FunctionCall.ID = fmt.Sprintf("%s_1796051723731_%d", p.FunctionCall.Name, len(contents)*10+len(a.Calls))
			}
			g.keep(said, p)
			switch {
			case p.FunctionCall != nil:
				a.Calls = append(a.Calls, seenCall{p.FunctionCall.ID, p.FunctionCall.Name, geminiArgs(p.FunctionCall.Args)})
			case !p.Thought:
				a.Text += p.Text
			}
		}
	}
	if len(a.Calls) > 0 && a.Finish == "STOP" {
		a.Finish = "tool_calls" // the format has no word of its own for it
	}
	g.past, g.says = append(contents, said), nil
	return a, nil
}

// keep adds a part to what the agent keeps of an answer.
func (g *geminiAgent) keep(said *genai.Content, p *genai.Part) {
	if p.Text == "" && p.FunctionCall == nil {
		return // it would be sent as an empty object
	}
	n := len(said.Parts) - 1
	switch {
	case g.kept != likeGeminiCLI:
	case p.Thought:
		return
	case n >= 0 && p.FunctionCall == nil && said.Parts[n].FunctionCall == nil:
		joined := *said.Parts[n]
		joined.Text += p.Text
		said.Parts[n] = &joined
		return
	}
	said.Parts = append(said.Parts, p)
}

// geminiArgs are arguments as JSON.
func geminiArgs(args map[string]any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(args); err != nil {
		panic(err)
	}
	return strings.TrimSpace(b.String())
}

// geminiEntries gives what a request to the provider holds.
func geminiEntries(contents gjson.Result) (out []entry) {
	for _, c := range contents.Array() {
		byThem := c.Get("role").Str != "model"
		e := entry{Kind: byModel}
		if n := len(out) - 1; !byThem && n >= 0 && out[n].Kind == byModel {
			e, out = out[n], out[:n] // pieces of one answer
		}
		words := ""
		for _, p := range c.Get("parts").Array() {
			fn, result := p.Get("functionCall"), p.Get("functionResponse")
			switch {
			case fn.Exists():
				e.Calls = append(e.Calls, seenCall{fn.Get("id").Str, fn.Get("name").Str, fn.Get("args").Raw})
			case result.Exists():
				refusal := result.Get("response.error")
				out = append(out, entry{Kind: ofCall, Call: result.Get("id").Str, Text: result.Get("response.output").Str + refusal.Str, Refused: refusal.Exists()})
			case p.Get("thought").Bool():
				e.Thinking += p.Get("text").Str
			case byThem:
				words += p.Get("text").Str
			default:
				e.Text += p.Get("text").Str
			}
		}
		switch {
		case !byThem:
			out = append(out, e)
		case words != "":
			out = append(out, entry{Kind: byUser, Text: words})
		}
	}
	return out
}

// geminiEnvelope says what is wrong with the pieces of an answer as one answer.
func geminiEnvelope(chunks []gjson.Result) error {
	for i, c := range chunks {
		for _, name := range []string{"responseId", "modelVersion"} {
			if got, want := c.Get(name).Raw, chunks[0].Get(name).Raw; got != want || got == "" {
				return fmt.Errorf("piece %d has the %s %s and not %s", i, name, got, want)
			}
		}
		k := c.Get("candidates.0")
		if len(k.Get("content.parts").Array()) == 0 || k.Get("finishReason").Exists() != (i == len(chunks)-1) || c.Get("candidates.1").Exists() {
			return fmt.Errorf("piece %d of %d is out of place: %s", i+1, len(chunks), c.Raw)
		}
	}
	if len(chunks) == 0 || !chunks[len(chunks)-1].Get("usageMetadata").Exists() {
		return errors.New("the answer has no end, or none that tells its tokens")
	}
	return nil
}

// geminiForms are the shapes that an answer comes in.
var geminiForms = []form{
	{name: "gemini JSON", path: "/v1beta/models/m:generateContent"},
	{name: "gemini SSE", path: "/v1beta/models/m:streamGenerateContent?alt=sse", stream: true},
	{name: "gemini array", path: "/v1/models/m:streamGenerateContent", stream: true},
}

func (f form) gemini() bool { return strings.Contains(f.path, ":") }

// geminiRequest is a first request.
var geminiRequest = fmt.Sprintf(`{"contents":[{"parts":[{"text":"do it"}]}],"tools":[{"functionDeclarations":[{"name":%q},{"name":%q},{"name":%q}]}]}`,
	agentTools[0], agentTools[1], agentTools[2])

// A streamed answer that breaks off behind any of its pieces gives nothing of a
// denied call, nor of one that had not come, and a cut stays one.
func TestGeminiCutAtEveryPiece(t *testing.T) {
	denied, fine := toolCall("call_denied", "bash", forbidden), toolCall("call_fine", "write", "echo")
	for _, f := range geminiForms[1:] {
		probe := newRig(t, setup{script: providertest.Script{{Say: sayCalls(denied, fine)}}})
		_, body, _ := dialRaw(t, probe, f).whole()
		sent := probe.provider.Requests()[0].Sent
		pieces, before := bytes.Count(sent, []byte(`"candidates"`)), bytes.Count(sent[:bytes.Index(sent, []byte("call_fine"))], []byte(`"candidates"`))
		if shows(body, denied) != nil || shows(body, fine) == nil || pieces < 4 {
			t.Fatalf("of %d pieces the client got %s", pieces, body)
		}
		for _, clean := range []bool{false, true} {
			var script providertest.Script
			for n := range pieces {
				script = append(script, providertest.Turn{Say: sayCalls(denied, fine), Cut: &providertest.Cut{Events: n, Bytes: -1, Clean: clean}})
			}
			g := newRig(t, setup{script: script, sequential: true})
			for n := range pieces {
				c := dialRaw(t, g, f)
				status, body, whole := c.whole()
				at := fmt.Sprintf("%s, clean %v, %d of %d pieces", f.name, clean, n, pieces)
				if s := shows(c.got.bytes(), denied); s != nil {
					t.Errorf("%s: the socket has %q", at, s)
				}
				if s := shows(c.got.bytes(), fine); n < before && s != nil || n >= before && s == nil {
					t.Errorf("%s: the socket has %q of the call that is piece %d", at, s, before)
				}
				if status == http.StatusOK && whole != clean || f.ends(body) {
					t.Errorf("%s: the answer looks whole: %v %s", at, whole, body)
				}
			}
		}
	}
}

// eachGemini runs a test for them, by events and by document.
func eachGemini(t *testing.T, f func(t *testing.T, c agentClient, stream bool)) {
	eachOf(t, geminiClients, f)
}

// What a gate makes of three calls at once, when it asks nobody, when it asks
// somebody who says yes or no, and when nobody answers.
func TestGeminiLoopsThroughTheGate(t *testing.T) {
	for _, tt := range []struct {
		name string
		gone []int
	}{{"all are allowed", nil}, {"the first is denied", []int{0}}, {"the middle one is denied", []int{1}}, {"the last is denied", []int{2}}, {"two are denied", []int{0, 2}}, {"all are denied", []int{0, 1, 2}}} {
		t.Run(tt.name, func(t *testing.T) {
			eachGemini(t, func(t *testing.T, c agentClient, stream bool) {
				three := threeCalls(forbidden, tt.gone...)
				g := newRig(t, setup{script: three.script()})
				three.check(t, g, converse(t, g, c, stream))
			})
		})
	}
	for _, approve := range []bool{true, false} {
		t.Run(fmt.Sprintf("a person answers %v", approve), func(t *testing.T) {
			eachGemini(t, func(t *testing.T, c agentClient, stream bool) {
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
		eachGemini(t, func(t *testing.T, c agentClient, stream bool) {
			three := threeCalls(dangerous, 0, 1, 2)
			desk := newDesk(t, 40*time.Millisecond, make(chan gate.Approval, 3))
			g := newRig(t, setup{script: three.script(), person: desk})
			three.check(t, g, converse(t, g, c, stream))
		})
	})
	t.Run("without the gate", func(t *testing.T) {
		eachGemini(t, func(t *testing.T, c agentClient, stream bool) {
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
func TestGeminiIsToldOfErrors(t *testing.T) {
	for _, status := range []int{400, 403, 429, 500} {
		eachGemini(t, func(t *testing.T, c agentClient, stream bool) {
			g := newRig(t, setup{script: providertest.Script{{Instead: &providertest.Answer{Status: status, Message: "the provider's own words"}}}})
			conv := c.open(g.base, g.client(), stream)
			conv.user("go")
			if _, err := conv.next(t.Context()); err == nil || !strings.Contains(err.Error(), "the provider's own words") || !strings.Contains(err.Error(), fmt.Sprint(status)) {
				t.Errorf("the agent got %v", err)
			}
		})
	}
	for _, gone := range [][]int{{0}, {1}, {0, 1, 2}} {
		eachGemini(t, func(t *testing.T, c agentClient, stream bool) {
			three := threeCalls(forbidden, gone...)
			g := newRig(t, setup{script: three.script(), errors: true})
			conv := c.open(g.base, g.client(), stream)
			conv.user("go")
			if _, err := conv.next(t.Context()); err == nil || !strings.Contains(err.Error(), "did not run") {
				t.Errorf("a call was denied, and the agent got %v", err)
			}
		})
	}
}

// What the model and the agent see of denied calls, in the answer itself and in
// ten more of the conversation, with restarts of callgate among them.
func TestTheModelBehindGeminiReadsItsRefusals(t *testing.T) {
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
		{"the first of three denied", false, talk{rounds: []round{three(0), {say("Two of them ran.")}}}},
		{"the middle of three denied", false, talk{rounds: []round{three(1), {think("well"), say("Two of them ran.")}}}},
		{"the last of three denied, and all of the next", false, talk{rounds: []round{three(2), {strong("1", "bash", forbidden)}, {say("Two of them ran.")}}}},
		{"the same call again", false, talk{ended: true, rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", forbidden)},
			{say("Once more. "), providertest.Call{ID: "call_Zq81mT4v2", Name: "bash", Args: strong("1", "bash", forbidden).Args}}}}},
		{"six times in a row, which is once too often", false, talk{ended: true, rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", forbidden)}, {say("Or so? "), strong("2", "bash", forbidden)}, {strong("3", "bash", forbidden)},
			{think("four"), strong("4", "bash", forbidden), strong("5", "write", forbidden)}, {strong("6", "bash", forbidden)}, {say("Or so? "), strong("7", "bash", forbidden)}}}},
		{"denied, and the provider fails", false, talk{ended: true, fails: &providertest.Answer{Status: 401}, rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", forbidden)}}}},
		{"a call of many kinds of letters", false, talk{rounds: []round{
			{think("<1> \"\\ \u2028 😀"), say("\t<b>&amp;</b> \"…\" \\ 😀\n"), providertest.Call{
				ID: "toolu_01A-b_C9", Name: "bash", Args: `{"command":"FORBIDDEN args of toolu_01A-b_C9 <a href=\"x\">&amp;<\/a>\n\u0001 \ud83d\ude00 é","n":[1e3, -0.50,null ,true]}`}},
			{say("  \n so <i>not</i> so.  ")}}}},
		{"denied by a person", true, talk{rounds: []round{
			{think("one"), say("I will run it. "), strong("1", "bash", dangerous)}, {think("two"), say("It must not run.")}}}},
		{"the middle of three denied by a person", true, talk{rounds: []round{
			{say("Three things. "), strong("1", "bash", "echo"), strong("2", "write", dangerous), strong("3", "fetch", "echo")}, {say("Two of them ran.")}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachGemini(t, func(t *testing.T, c agentClient, stream bool) {
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

// The API need not give ids: results, and refusals among them, are told apart by
// name and order, and answers in a history by what they say. The signature that
// stood on a denied call is on the first call that the agent sees, and back in its
// place when the provider gets its answer again.
func TestGeminiWithoutIDs(t *testing.T) {
	call := func(tool, word string) providertest.Call {
		c := toolCall("none", tool, word)
		c.ID = ""
		return c
	}
	eachGemini(t, func(t *testing.T, c agentClient, stream bool) {
		g := newRig(t, setup{reads: true, script: providertest.Script{
			{Say: []providertest.Item{providertest.Text("Three things. "), call("bash", forbidden), call("write", "echo 2"), call("fetch", "echo 3")}},
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
		if first := g.tap.seen()[0]; bytes.Count(first, []byte("thoughtSignature")) != 1 {
			t.Errorf("the agent got not one signature: %s", first)
		}
		asked := g.provider.Requests()
		if len(asked) != 4 {
			t.Fatalf("the provider was asked %d times", len(asked))
		}
		last := gjson.GetBytes(asked[3].Body, "contents")
		var kinds []string
		for _, e := range geminiEntries(last) {
			kinds = append(kinds, e.Kind)
		}
		if got := strings.Join(kinds, " "); got != "user answer result result result answer result answer user" {
			t.Errorf("the last request has %s", got)
		}
		if refused := last.Get("2.parts.0.functionResponse"); refused.Get("name").Str != "bash" || !strings.Contains(refused.Get("response.error").Str, refusalMark) || refused.Get("id").Exists() != last.Get("1.parts.#(functionCall)").Get("functionCall.id").Exists() {
			t.Errorf("the refusal is %s", refused.Raw)
		}
		var signed []int
		for i, p := range last.Get("1.parts.#(functionCall)#").Array() {
			if p.Get("thoughtSignature").Exists() {
				signed = append(signed, i)
			}
		}
		if fmt.Sprint(signed) != "[0]" {
			t.Errorf("the calls %v are signed in %s", signed, last.Get("1"))
		}
	})
}

// A conversation goes on when callgate has lost its records of it.
func TestGeminiOutlivesTheLossOfTheRecords(t *testing.T) {
	say := func(s string) providertest.Item { return providertest.Text(s) }
	for _, rounds := range [][]round{
		{{say("I will run it. "), strong("1", "bash", forbidden)}, {say("It must not run.")}},
		{{strong("1", "bash", forbidden)}, {strong("2", "write", "echo")}, {say("Done.")}},
		{three(0), {say("Two of them ran.")}},
		{three(1), {say("Two of them ran.")}},
	} {
		eachGemini(t, func(t *testing.T, c agentClient, stream bool) {
			var script providertest.Script
			for _, r := range append(rounds[:len(rounds):len(rounds)], round{say("Well.")}) {
				script = append(script, providertest.Turn{Say: r})
			}
			g := newRig(t, setup{reads: true, sequential: true, script: script})
			conv := c.open(g.base, g.client(), stream)
			conv.user("do it")
			for range (talk{rounds: rounds}).turns() {
				a, err := conv.next(t.Context())
				if err != nil {
					t.Fatalf("%v; faults %q", err, g.provider.Faults())
				}
				if len(a.Calls) > 0 {
					conv.results(a)
				}
				g.lose(t)
			}
			conv.user("go on")
			if a, err := conv.next(t.Context()); err != nil || a.Text != "Well." {
				t.Errorf("%+v %v; faults %q", a, err, g.provider.Faults())
			}
		})
	}
}

// A signature that the provider does not take, because the records of what it
// stood on are lost, is replaced by the word for one that is, and the request is
// sent once more.
func TestGeminiTakesAHistoryWithoutItsSignatures(t *testing.T) {
	eachGemini(t, func(t *testing.T, c agentClient, stream bool) {
		g := newRig(t, setup{reads: true, sequential: true, script: providertest.Script{
			{Say: three(0)},
			{Instead: &providertest.Answer{Status: 400, Message: "Thought signature is not valid"}},
			{Say: []providertest.Item{providertest.Text("Well.")}},
		}})
		conv := c.open(g.base, g.client(), stream)
		conv.user("do it")
		a, err := conv.next(t.Context())
		if err != nil || len(a.Calls) != 2 {
			t.Fatalf("%+v %v", a, err)
		}
		conv.results(a)
		g.lose(t)
		if a, err = conv.next(t.Context()); err != nil || a.Text != "Well." {
			t.Errorf("%+v %v; faults %q", a, err, g.provider.Faults())
		}
		asked := g.provider.Requests()
		if len(asked) != 3 || bytes.Count(asked[1].Body, []byte("thoughtSignature")) != 1 || holds(asked[1].Body, "skip_thought") != nil ||
			holds(asked[2].Body, `"thoughtSignature":"skip_thought_signature_validator"`) == nil || bytes.Count(asked[2].Body, []byte("thoughtSignature")) != 1 {
			t.Errorf("the provider was asked %d times, at last with %s", len(asked), asked[len(asked)-1].Body)
		}
	})
}

// The tokens of a conversation are counted with what was put back into it.
func TestTheTokensOfRefusalsAreCountedForGemini(t *testing.T) {
	say := func(s string) providertest.Item { return providertest.Text(s) }
	talks := []talk{{words: "do it", rounds: three(1).and(round{say("Two of them ran.")})}}
	g := newRig(t, setup{reads: true, model: model(talks)})
	p := newPlayer(t, g, geminiClients[0], true, g.client())
	p.play(talks[0], nil)
	agent := p.conv.(*geminiAgent)
	contents := append(agent.past, genai.NewContentFromText("go on", genai.RoleUser))
	n, err := agent.client.Models.CountTokens(t.Context(), geminiModel, contents, nil)
	if err != nil {
		t.Fatalf("%v; faults %q", err, g.provider.Faults())
	}
	asked := g.provider.Requests()
	r := asked[len(asked)-1]
	if h := holds(r.Body, refusalMark); h == nil || !strings.HasSuffix(r.Path, ":countTokens") || int(n.TotalTokens) != len(r.Body)/4+1 { // as the provider counts
		t.Errorf("%d tokens are in %s %s", n.TotalTokens, r.Path, r.Body)
	}
}

// Words are seen while the model is still speaking, in an array, too, and signs of
// life while a call waits. Nothing of the call is seen before.
func TestPiecesFlowAtOnce(t *testing.T) {
	for _, query := range []string{"?alt=sse", ""} {
		t.Run("query "+query, func(t *testing.T) {
			said, asked, answer := make(chan struct{}, 8), make(chan struct{}), make(chan gate.Opinion)
			g := newRig(t, setup{
				script: providertest.Script{{
					Say: []providertest.Item{providertest.Text("one two three four"), toolCall("call_x", "bash", dangerous)},
					Before: func(ctx context.Context, i int) {
						if i > 0 && i <= 4 {
							select {
							case <-said: // what it said before has arrived
							case <-ctx.Done():
							}
						}
					},
				}},
				person: gate.ReviewerFunc(func(context.Context, *gate.Request) gate.Opinion {
					close(asked)
					return <-answer
				}),
			})
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
			defer stop()
			req, err := http.NewRequestWithContext(ctx, "POST", g.base+"/v1/models/m:streamGenerateContent"+query,
				strings.NewReader(`{"contents":[{"parts":[{"text":"go"}]}],"tools":[{"functionDeclarations":[{"name":"bash"}]}]}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header = http.Header{"Content-Type": {"application/json"}, "X-Goog-Api-Key": {"key-of-tests"}}
			done := make(chan struct{})
			var body []byte
			go func() {
				defer close(done)
				res, err := g.client().Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				defer res.Body.Close()
				buf := make([]byte, 4096)
				for n := 0; err == nil; {
					n, err = res.Body.Read(buf)
					body = append(body, buf[:n]...)
					for range strings.Count(string(buf[:n]), `"text":`) {
						said <- struct{}{}
					}
				}
				if err != io.EOF {
					t.Error(err)
				}
			}()
			<-asked
			if held := g.tap.last().grow(ctx, 4); holds(held, "call_x", dangerous) != nil || holds(held, `"four"`) == nil {
				t.Errorf("undecided, and the client has %q", held)
			}
			answer <- gate.Opinion{Verdict: gate.Allow}
			<-done
			if query == "" && !json.Valid(body) || holds(body, "call_x", dangerous) == nil || !strings.Contains(string(body), `"finishReason":"STOP"`) {
				t.Errorf("the client got %s", body)
			}
		})
	}
}

// An array is gone on with as one array, and so are several candidates withheld
// one by one.
func TestGeminiAsAnArrayAndInCandidates(t *testing.T) {
	post := func(t *testing.T, g *rig, method, settings string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "POST", g.base+"/v1beta/models/m:"+method,
			strings.NewReader(`{"contents":[{"parts":[{"text":"go"}]}],"tools":[{"functionDeclarations":[{"name":"bash"},{"name":"write"},{"name":"fetch"}]}]`+settings+`}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Content-Type": {"application/json"}, "X-Goog-Api-Key": {"key-of-tests"}}
		res, err := g.client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK || !json.Valid(body) {
			t.Fatalf("%d %v: %s", res.StatusCode, err, body)
		}
		return string(body)
	}
	t.Run("an array", func(t *testing.T) {
		g := newRig(t, setup{reads: true, script: providertest.Script{
			{Say: []providertest.Item{providertest.Text("I will. "), strong("1", "bash", forbidden)}},
			{Say: []providertest.Item{providertest.Text("Not so, then.")}},
		}})
		body := post(t, g, "streamGenerateContent", "")
		if err := geminiEnvelope(gjson.Parse(body).Array()); err != nil || !strings.Contains(body, "Not ") || strings.Contains(body, forbidden) {
			t.Errorf("%v in %s", err, body)
		}
		if f := g.provider.Faults(); f != nil || len(g.provider.Requests()) != 2 {
			t.Errorf("the provider was asked %d times and refused %q", len(g.provider.Requests()), f)
		}
	})
	for _, method := range []string{"generateContent", "streamGenerateContent"} {
		t.Run("candidates of "+method, func(t *testing.T) {
			fine := func(id string) providertest.Item { return toolCall("call_fine"+id, "bash", "echo") }
			no := func(id string) providertest.Item { return toolCall("call_no"+id, "write", forbidden) }
			g := newRig(t, setup{reads: true, script: providertest.Script{{
				Say: []providertest.Item{fine("1")}, Other: [][]providertest.Item{{no("2")}, {providertest.Text("words"), no("3"), fine("4")}},
			}}})
			body := post(t, g, method, `,"generationConfig":{"candidateCount":3}`)
			if strings.Contains(body, forbidden) || strings.Count(body, "args of call_fine") != 2 || strings.Count(body, "did not run") != 2 {
				t.Errorf("the client got %s", body)
			}
		})
	}
}
