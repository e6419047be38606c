package clienttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
	goopenai "github.com/sashabaranov/go-openai"
)

// agentClient is one of the client libraries that agents are made of.
type agentClient struct {
	name string
	// open begins a conversation with the provider below base.
	open func(base string, hc *http.Client, stream bool) conversation
	// messages says that it speaks Messages, and not Chat Completions; threads
	// that the provider holds its history.
	messages, threads bool
	// trims says that it leaves thinking out of its history.
	trims bool
	// way is how it gets to callgate.
	way way
}

// conversation is the history of an agent, kept in its library's own types.
type conversation interface {
	// user adds what the user says.
	user(text string)
	// results adds a result for each call of the last answer.
	results(said answer)
	// next asks for the next answer and adds it.
	next(ctx context.Context) (answer, error)
}

// answer is what a library read.
type answer struct {
	ID     string
	Text   string
	Calls  []seenCall
	Finish string
	// Input and Output are the tokens.
	Input, Output int64
}

type seenCall struct{ ID, Name, Args string }

var agentClients = []agentClient{
	{name: "openai-go", open: newOpenAI},
	{name: "anthropic-sdk-go", open: newAnthropic, messages: true},
	{name: "go-openai", open: newGoOpenAI},
}

// The three tools that the agents of these tests have.
var agentTools = []string{"bash", "write", "fetch"}

const toolSchema = `{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}`

func schemaOf() map[string]any {
	var m map[string]any
	if err := json.Unmarshal([]byte(toolSchema), &m); err != nil {
		panic(err)
	}
	return m
}

// runLoop is an agent: it asks, runs every call it sees (here each "runs" by
// giving back its own arguments) and asks again until there are no more calls.
func runLoop(t *testing.T, conv conversation) []answer {
	t.Helper()
	var all []answer
	for range 8 {
		a, err := conv.next(t.Context())
		if err != nil {
			t.Fatalf("round %d: %v", len(all)+1, err)
		}
		all = append(all, a)
		if len(a.Calls) == 0 {
			return all
		}
		conv.results(a)
	}
	t.Fatalf("the loop does not end: %+v", all)
	return nil
}

func resultOf(c seenCall) string { return "ran with " + c.Args }

// openAI is a conversation with OpenAI's own library.
type openAI struct {
	client openai.Client
	params openai.ChatCompletionNewParams
	stream bool
}

func newOpenAI(base string, hc *http.Client, stream bool) conversation {
	o := &openAI{stream: stream, client: openai.NewClient(
		openaioption.WithBaseURL(base+"/v1/"), openaioption.WithAPIKey("key-of-tests"),
		openaioption.WithHTTPClient(hc), openaioption.WithMaxRetries(0),
	)}
	o.params.Model = "model-of-tests"
	o.params.Messages = append(o.params.Messages, openai.SystemMessage("You are an agent of the tests."))
	for _, name := range agentTools {
		o.params.Tools = append(o.params.Tools, openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: name, Parameters: schemaOf(),
		}))
	}
	if stream {
		o.params.StreamOptions.IncludeUsage = openai.Bool(true)
	}
	return o
}

func (o *openAI) user(text string) {
	o.params.Messages = append(o.params.Messages, openai.UserMessage(text))
}

func (o *openAI) results(a answer) {
	for _, c := range a.Calls {
		o.params.Messages = append(o.params.Messages, openai.ToolMessage(resultOf(c), c.ID))
	}
}

func (o *openAI) next(ctx context.Context) (answer, error) {
	var done *openai.ChatCompletion
	if o.stream {
		var acc openai.ChatCompletionAccumulator
		s := o.client.Chat.Completions.NewStreaming(ctx, o.params)
		defer s.Close()
		for s.Next() {
			if !acc.AddChunk(s.Current()) {
				return answer{}, fmt.Errorf("the accumulator does not take %s", s.Current().RawJSON())
			}
		}
		if err := s.Err(); err != nil {
			return answer{}, withMessage(err)
		}
		done = &acc.ChatCompletion
	} else {
		var err error
		if done, err = o.client.Chat.Completions.New(ctx, o.params); err != nil {
			return answer{}, withMessage(err)
		}
	}
	if len(done.Choices) != 1 {
		return answer{}, fmt.Errorf("%d choices", len(done.Choices))
	}
	ch := done.Choices[0]
	o.params.Messages = append(o.params.Messages, ch.Message.ToParam())
	a := answer{
		ID: done.ID, Text: ch.Message.Content, Finish: ch.FinishReason,
		Input: done.Usage.PromptTokens, Output: done.Usage.CompletionTokens,
	}
	for _, c := range ch.Message.ToolCalls {
		a.Calls = append(a.Calls, seenCall{c.ID, c.Function.Name, c.Function.Arguments})
	}
	return a, nil
}

// withMessage adds the provider's words, which this library keeps beside the
// error's text.
func withMessage(err error) error {
	if e, ok := errors.AsType[*openai.Error](err); ok {
		return fmt.Errorf("%w: %s", err, e.Message)
	}
	return err
}

// anthropicAgent is a conversation with Anthropic's own library.
type anthropicAgent struct {
	client anthropic.Client
	params anthropic.MessageNewParams
	stream bool
}

func newAnthropic(base string, hc *http.Client, stream bool) conversation {
	a := &anthropicAgent{stream: stream, client: anthropic.NewClient(
		anthropicoption.WithBaseURL(base), anthropicoption.WithAPIKey("key-of-tests"),
		anthropicoption.WithHTTPClient(hc), anthropicoption.WithMaxRetries(0),
	)}
	a.params.Model = "model-of-tests"
	a.params.MaxTokens = 4000
	a.params.Thinking = anthropic.ThinkingConfigParamOfEnabled(2000)
	for _, name := range agentTools {
		a.params.Tools = append(a.params.Tools, anthropic.ToolUnionParam{OfTool: &anthropic.ToolParam{
			Name:        name,
			InputSchema: anthropic.ToolInputSchemaParam{Properties: schemaOf()["properties"]},
		}})
	}
	return a
}

func (g *anthropicAgent) user(text string) {
	g.params.Messages = append(g.params.Messages, anthropic.NewUserMessage(anthropic.NewTextBlock(text)))
}

func (g *anthropicAgent) results(a answer) {
	var blocks []anthropic.ContentBlockParamUnion
	for _, c := range a.Calls {
		blocks = append(blocks, anthropic.NewToolResultBlock(c.ID, resultOf(c), false))
	}
	g.params.Messages = append(g.params.Messages, anthropic.NewUserMessage(blocks...))
}

func (g *anthropicAgent) next(ctx context.Context) (answer, error) {
	g.mark()
	var msg anthropic.Message
	if g.stream {
		s := g.client.Messages.NewStreaming(ctx, g.params)
		defer s.Close()
		for s.Next() {
			if err := msg.Accumulate(s.Current()); err != nil {
				return answer{}, err
			}
		}
		if err := s.Err(); err != nil {
			return answer{}, err
		}
	} else {
		m, err := g.client.Messages.New(ctx, g.params)
		if err != nil {
			return answer{}, err
		}
		msg = *m
	}
	g.params.Messages = append(g.params.Messages, msg.ToParam())
	a := answer{ID: msg.ID, Finish: string(msg.StopReason), Input: msg.Usage.InputTokens, Output: msg.Usage.OutputTokens}
	for _, b := range msg.Content {
		switch b.Type {
		case "text":
			a.Text += b.Text
		case "tool_use":
			a.Calls = append(a.Calls, seenCall{b.ID, b.Name, string(b.Input)})
		}
	}
	return a, nil
}

// mark has the conversation cached up to here, as agents do: the marker moves to
// the newest block with each request.
func (g *anthropicAgent) mark() {
	for i, m := range g.params.Messages {
		if m.OfUser == nil {
			continue
		}
		for j, b := range m.OfUser.Content {
			mark := b.GetCacheControl()
			if *mark = (anthropic.CacheControlEphemeralParam{}); i == len(g.params.Messages)-1 && j == len(m.OfUser.Content)-1 {
				*mark = anthropic.NewCacheControlEphemeralParam()
			}
		}
	}
}

// goOpenAI is a conversation with the most used library that is not OpenAI's.
// It gives chunks as they come; putting them together is the agent's work.
type goOpenAI struct {
	client *goopenai.Client
	req    goopenai.ChatCompletionRequest
}

func newGoOpenAI(base string, hc *http.Client, stream bool) conversation {
	cfg := goopenai.DefaultConfig("key-of-tests")
	cfg.BaseURL = base + "/v1"
	cfg.HTTPClient = hc
	g := &goOpenAI{client: goopenai.NewClientWithConfig(cfg)}
	g.req.Model = "model-of-tests"
	if g.req.Stream = stream; stream {
		g.req.StreamOptions = &goopenai.StreamOptions{IncludeUsage: true}
	}
	for _, name := range agentTools {
		g.req.Tools = append(g.req.Tools, goopenai.Tool{
			Type:     goopenai.ToolTypeFunction,
			Function: &goopenai.FunctionDefinition{Name: name, Parameters: json.RawMessage(toolSchema)},
		})
	}
	return g
}

func (g *goOpenAI) user(text string) {
	g.req.Messages = append(g.req.Messages, goopenai.ChatCompletionMessage{Role: goopenai.ChatMessageRoleUser, Content: text})
}

func (g *goOpenAI) results(a answer) {
	for _, c := range a.Calls {
		g.req.Messages = append(g.req.Messages, goopenai.ChatCompletionMessage{
			Role: goopenai.ChatMessageRoleTool, ToolCallID: c.ID, Content: resultOf(c),
		})
	}
}

func (g *goOpenAI) next(ctx context.Context) (answer, error) {
	var res goopenai.ChatCompletionResponse
	var err error
	if g.req.Stream {
		res, err = g.collect(ctx)
	} else {
		res, err = g.client.CreateChatCompletion(ctx, g.req)
	}
	if err != nil {
		return answer{}, err
	}
	msg := res.Choices[0].Message
	g.req.Messages = append(g.req.Messages, msg)
	a := answer{
		ID: res.ID, Text: msg.Content, Finish: string(res.Choices[0].FinishReason),
		Input: int64(res.Usage.PromptTokens), Output: int64(res.Usage.CompletionTokens),
	}
	for _, c := range msg.ToolCalls {
		a.Calls = append(a.Calls, seenCall{c.ID, c.Function.Name, c.Function.Arguments})
	}
	return a, nil
}

// collect makes one answer of the chunks of a stream.
func (g *goOpenAI) collect(ctx context.Context) (res goopenai.ChatCompletionResponse, err error) {
	choice := goopenai.ChatCompletionChoice{Message: goopenai.ChatCompletionMessage{Role: goopenai.ChatMessageRoleAssistant}}
	msg := &choice.Message
	s, err := g.client.CreateChatCompletionStream(ctx, g.req)
	if err != nil {
		return res, err
	}
	defer s.Close()
	for {
		ck, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return res, err
		}
		if res.ID != "" && res.ID != ck.ID {
			return res, fmt.Errorf("a chunk has the id %q behind others with %q", ck.ID, res.ID)
		}
		res.ID = ck.ID
		if ck.Usage != nil {
			res.Usage = *ck.Usage
		}
		for _, ch := range ck.Choices {
			msg.Content += ch.Delta.Content
			msg.ReasoningContent += ch.Delta.ReasoningContent
			if ch.FinishReason != "" {
				choice.FinishReason = ch.FinishReason
			}
			for _, d := range ch.Delta.ToolCalls {
				switch {
				case d.Index == nil || *d.Index > len(msg.ToolCalls):
					return res, fmt.Errorf("call %+v comes behind %d others", d, len(msg.ToolCalls))
				case *d.Index == len(msg.ToolCalls):
					d.Index = nil
					msg.ToolCalls = append(msg.ToolCalls, d)
				default:
					msg.ToolCalls[*d.Index].Function.Arguments += d.Function.Arguments
				}
			}
		}
	}
	res.Choices = []goopenai.ChatCompletionChoice{choice}
	return res, nil
}
