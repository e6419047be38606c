package clienttest

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
)

// toolRunners are the agent loop that Anthropic's own library has, with the
// whole history in each request and with one that the provider holds.
var toolRunners = []agentClient{
	{name: "anthropic-sdk-go runner", open: openRunner(false), messages: true},
	{name: "anthropic-sdk-go thread", open: openRunner(true), messages: true, threads: true},
}

// runner is a conversation of that loop, which runs the tools itself. It ends
// with an answer without calls: for the user's next words a new one goes on
// with what it has.
type runner struct {
	service  anthropic.BetaMessageService
	tools    []anthropic.BetaTool
	params   anthropic.BetaMessageNewParams
	threaded bool
	stream   bool

	thread   *anthropic.BetaMessageThread
	document *anthropic.BetaToolRunner
	events   *anthropic.BetaToolRunnerStreaming
}

func openRunner(threaded bool) func(string, *http.Client, bool) conversation {
	return func(base string, hc *http.Client, stream bool) conversation {
		client := anthropic.NewClient(
			anthropicoption.WithBaseURL(base), anthropicoption.WithAPIKey("key-of-tests"),
			anthropicoption.WithHTTPClient(hc), anthropicoption.WithMaxRetries(0),
		)
		r := &runner{service: client.Beta.Messages, threaded: threaded, stream: stream}
		r.params.Model = "model-of-tests"
		r.params.MaxTokens = 4000
		if !threaded { // a thread has no place for the setting
			r.params.Thinking = anthropic.BetaThinkingConfigParamOfEnabled(2000)
		}
		for _, name := range agentTools {
			r.tools = append(r.tools, runnerTool(name))
		}
		return r
	}
}

// runnerTool is a tool of that name.
type runnerTool string

func (n runnerTool) Name() string        { return string(n) }
func (n runnerTool) Description() string { return "the tool " + string(n) }

func (n runnerTool) InputSchema() anthropic.BetaToolInputSchemaParam {
	return anthropic.BetaToolInputSchemaParam{Properties: schemaOf()["properties"]}
}

func (n runnerTool) Execute(_ context.Context, input json.RawMessage) ([]anthropic.BetaToolResultBlockParamContentUnion, error) {
	text := resultOf(seenCall{Args: string(input)})
	return []anthropic.BetaToolResultBlockParamContentUnion{{OfText: &anthropic.BetaTextBlockParam{Text: text}}}, nil
}

func (r *runner) user(text string) {
	words := anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock(text))
	switch {
	case r.threaded && r.thread == nil:
		r.thread = r.service.NewThread(anthropic.BetaMessageThreadCreateParams{
			Model: r.params.Model, MaxTokens: r.params.MaxTokens, Messages: []anthropic.BetaMessageParam{words},
		})
	case r.threaded:
		r.thread.Append(words)
	case r.document != nil:
		r.params.Messages = append(r.document.Messages(), words)
	case r.events != nil:
		r.params.Messages = append(r.events.Messages(), words)
	default:
		r.params.Messages = []anthropic.BetaMessageParam{words}
	}
	whole := anthropic.BetaToolRunnerParams{BetaMessageNewParams: r.params, DisableThread: true}
	switch {
	case r.threaded && r.stream:
		r.events = r.thread.NewToolRunnerStreaming(r.tools)
	case r.threaded:
		r.document = r.thread.NewToolRunner(r.tools)
	case r.stream:
		r.events = r.service.NewToolRunnerStreaming(r.tools, whole)
	default:
		r.document = r.service.NewToolRunner(r.tools, whole)
	}
}

// results does nothing: the loop has its own.
func (r *runner) results(answer) {}

func (r *runner) next(ctx context.Context) (answer, error) {
	var msg *anthropic.BetaMessage
	if r.stream {
		for _, err := range r.events.NextStreaming(ctx) {
			if err != nil {
				return answer{}, err
			}
		}
		msg = r.events.LastMessage()
	} else {
		var err error
		if msg, err = r.document.NextMessage(ctx); err != nil {
			return answer{}, err
		}
	}
	a := answer{ID: msg.ID, Finish: string(msg.StopReason), Input: msg.Usage.InputTokens, Output: msg.Usage.OutputTokens}
	for _, b := range msg.Content {
		switch b.Type {
		case "text":
			a.Text += b.Text
		case "tool_use":
			args, err := json.Marshal(b.Input)
			if err != nil {
				return answer{}, err
			}
			a.Calls = append(a.Calls, seenCall{b.ID, b.Name, string(args)})
		}
	}
	return a, nil
}
