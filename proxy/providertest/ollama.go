package providertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// ollama is /api/chat of Ollama. The server itself takes nearly anything and
// writes it out for the model; what is refused here is what its templates make
// nonsense of: calls without results, results without calls or in another order.
type ollama struct{}

var ollamaKeys = strings.Fields(`model messages stream format keep_alive tools options think truncate shift logprobs top_logprobs`)

// streamType is the content type of a stream in a format.
func streamType(wr wire) string {
	switch wr := wr.(type) {
	case ollama:
		return "application/x-ndjson"
	case gemini:
		if !wr.sse {
			return "application/json; charset=UTF-8"
		}
	}
	return "text/event-stream; charset=utf-8"
}

// check reads a request of /api/chat.
func (ollama) check(p *Provider, _ http.Header, body []byte) (asked, error) {
	o, err := parse(body)
	if err != nil {
		return asked{}, err
	}
	if err := known(o, "", ollamaKeys...); err != nil {
		return asked{}, err
	}
	a := asked{choices: 1, stream: true, size: len(body)}
	if a.model, err = str(o, "", "model"); err != nil {
		return asked{}, err
	}
	if v, there := o["stream"]; there && v != nil {
		if a.stream, err = flag(o, "", "stream"); err != nil {
			return asked{}, err
		}
	}
	tools, _ := o["tools"].(array)
	names := map[string]bool{}
	for i, v := range tools {
		name, err := chatTool(v, fmt.Sprintf("tools.%d.", i))
		if err != nil {
			return asked{}, err
		}
		if names[name] {
			return asked{}, badf("tools.%d: tool %q is declared twice", i, name)
		}
		names[name] = true
	}
	a.progress, err = ollamaHistory(o, p.Alternate)
	return a, err
}

// ollamaCall is a call that needs its result.
type ollamaCall struct{ id, name string }

// ollamaHistory walks the messages and counts the answers.
func ollamaHistory(o object, alternate bool) (g progress, err error) {
	list, ok := o["messages"].(array)
	if !ok || len(list) == 0 {
		return g, badf("messages: at least one message is required")
	}
	var open []ollamaCall
	before := ""
	for i, v := range list {
		at := fmt.Sprintf("messages.%d.", i)
		m, ok := v.(object)
		if !ok {
			return g, badf("%san object is expected", at)
		}
		role, _ := m["role"].(string)
		if role != "tool" && len(open) > 0 {
			return g, badf("%s%d calls of the answer before it have no result: %v", at, len(open), open)
		}
		if role == before && alternate && (role == "user" || role == "assistant") {
			return g, badf("%srole: two messages of %s stand in a row", at, role)
		}
		content, ok := m["content"].(string)
		if _, there := m["content"]; there && !ok {
			return g, badf("%scontent: cannot unmarshal into Go struct field Message.content of type string", at)
		}
		switch role {
		case "system", "user":
			if err = known(m, at, "role", "content", "images"); role == "user" {
				g.says(content)
			}
		case "assistant":
			g.answer()
			open, err = ollamaAnswer(m, at, content)
		case "tool":
			open, err = ollamaResult(m, at, open)
		default:
			err = badf("%srole: %q is not one of system, user, assistant, tool", at, role)
		}
		if err != nil {
			return g, err
		}
		before = role
	}
	if len(open) > 0 {
		return g, badf("messages: %d calls of the last answer have no result: %v", len(open), open)
	}
	return g, nil
}

// ollamaAnswer checks an answer in the history and gives its calls.
func ollamaAnswer(m object, at, content string) (open []ollamaCall, err error) {
	if err := known(m, at, "role", "content", "thinking", "images", "tool_calls"); err != nil {
		return nil, err
	}
	if v, there := m["thinking"]; there {
		if s, ok := v.(string); !ok || s == "" {
			return nil, badf("%sthinking: a text is expected", at)
		}
	}
	calls, ok := m["tool_calls"].(array)
	if v, there := m["tool_calls"]; there && (!ok || len(calls) == 0) {
		return nil, badf("%stool_calls: a list of calls is expected, not %v", at, v)
	}
	for i, v := range calls {
		at := fmt.Sprintf("%stool_calls.%d.", at, i)
		c, _ := v.(object)
		if err := known(c, at, "id", "type", "function"); err != nil {
			return nil, err
		}
		fn, _ := c["function"].(object)
		if err := known(fn, at+"function.", "index", "name", "arguments"); err != nil {
			return nil, err
		}
		call := ollamaCall{}
		if call.name, err = str(fn, at+"function.", "name"); err != nil {
			return nil, err
		}
		if _, ok := fn["arguments"].(object); !ok {
			return nil, badf("%sfunction.arguments: an object is expected", at)
		}
		call.id, _ = c["id"].(string)
		if slices.ContainsFunc(open, func(o ollamaCall) bool { return o.id != "" && o.id == call.id }) {
			return nil, badf("%sid: duplicate value %q", at, call.id)
		}
		open = append(open, call)
	}
	if len(open) == 0 && strings.TrimSpace(content) == "" {
		return nil, badf("%san answer that says nothing", at)
	}
	return open, nil
}

// ollamaResult checks a result, which is of the first call that has none.
func ollamaResult(m object, at string, open []ollamaCall) ([]ollamaCall, error) {
	if err := known(m, at, "role", "content", "tool_name", "tool_call_id"); err != nil {
		return nil, err
	}
	if _, ok := m["content"].(string); !ok {
		return nil, badf("%scontent: a text is expected", at)
	}
	if len(open) == 0 {
		return nil, badf("%sno call before it waits for a result", at)
	}
	id, _ := m["tool_call_id"].(string)
	name, _ := m["tool_name"].(string)
	if id != open[0].id || name != "" && name != open[0].name {
		return nil, badf("%sit is the result of %q %q, and that of %v is next", at, id, name, open[0])
	}
	return open[1:], nil
}

type ollamaMessage struct {
	Role     string            `json:"role"`
	Content  string            `json:"content"`
	Thinking string            `json:"thinking,omitempty"`
	Calls    []ollamaToolCalls `json:"tool_calls,omitempty"`
}

type ollamaToolCalls struct {
	ID       string `json:"id,omitempty"`
	Function struct {
		Index int             `json:"index"`
		Name  string          `json:"name"`
		Args  json.RawMessage `json:"arguments"`
	} `json:"function"`
}

type ollamaResponse struct {
	Model   string        `json:"model"`
	Created string        `json:"created_at"`
	Message ollamaMessage `json:"message"`
	Done    bool          `json:"done"`
	Reason  string        `json:"done_reason,omitempty"`
	Total   int           `json:"total_duration,omitempty"`
	Load    int           `json:"load_duration,omitempty"`
	Prompt  int           `json:"prompt_eval_count,omitempty"`
	Eval    int           `json:"eval_count,omitempty"`
}

// response is a line of an answer, the n-th.
func (ollama) response(a asked, n int, m ollamaMessage) ollamaResponse {
	m.Role = "assistant"
	at := time.Unix(created+int64(a.number), int64(n)*1000).UTC()
	return ollamaResponse{Model: a.model, Created: at.Format(time.RFC3339Nano), Message: m}
}

// end makes a line the last one.
func (ollama) end(a asked, t Turn, r ollamaResponse) ollamaResponse {
	u := t.counts(a)
	r.Done, r.Reason, r.Total, r.Load, r.Prompt, r.Eval = true, "stop", 900_000, 30_000, u.Input, u.Output
	if t.Finish != "" {
		r.Reason = t.Finish
	}
	return r
}

func ollamaEntry(c Call, index int) (e ollamaToolCalls) {
	e.ID, e.Function.Index, e.Function.Name, e.Function.Args = c.ID, index, c.Name, json.RawMessage(c.Args)
	return e
}

// events gives the answer as lines: a word each, the first call in one of its
// own, and those that follow it together.
func (o ollama) events(_ *Provider, a asked, t Turn) [][]byte {
	var out [][]byte
	send := func(r ollamaResponse) { out = append(out, append(marshal(r), '\n')) }
	say := func(m ollamaMessage) { send(o.response(a, len(out), m)) }
	var more []ollamaToolCalls
	calls := 0
	rest := func() {
		if len(more) > 0 {
			say(ollamaMessage{Calls: more})
		}
		more = nil
	}
	for _, it := range t.Say {
		switch it := it.(type) {
		case Text:
			rest()
			for _, s := range words(string(it)) {
				say(ollamaMessage{Content: s})
			}
		case Thinking:
			rest()
			for _, s := range words(string(it)) {
				say(ollamaMessage{Thinking: s})
			}
		case Call:
			if more = append(more, ollamaEntry(it, calls)); calls == 0 {
				rest()
			}
			calls++
		}
	}
	rest()
	send(o.end(a, t, o.response(a, len(out), ollamaMessage{})))
	return out
}

// document gives the answer as one JSON document.
func (o ollama) document(_ *Provider, a asked, t Turn) []byte {
	var m ollamaMessage
	for _, it := range t.Say {
		switch it := it.(type) {
		case Text:
			m.Content += string(it)
		case Thinking:
			m.Thinking += string(it)
		case Call:
			m.Calls = append(m.Calls, ollamaEntry(it, len(m.Calls)))
		}
	}
	return marshal(o.end(a, t, o.response(a, 0, m)))
}

// failure is an error body of Ollama.
func (ollama) failure(f *fault) []byte { return marshal(map[string]any{"error": f.reason}) }

// overflow is what Ollama answers to a conversation that has grown too long,
// where it must not leave the oldest messages out.
func (ollama) overflow(_, _ int) error {
	return badf("the input length exceeds the context length")
}
