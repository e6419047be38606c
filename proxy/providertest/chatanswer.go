package providertest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
)

// created is the time stamp of the first answer; each further one counts on.
const created = 1_795_000_000

// chatChunk has the keys of a chunk in the order in which the provider sends
// them.
type chatChunk struct {
	ID          string       `json:"id"`
	Object      string       `json:"object"`
	Created     int          `json:"created"`
	Model       string       `json:"model"`
	ServiceTier string       `json:"service_tier"`
	Fingerprint string       `json:"system_fingerprint"`
	Choices     []choiceJSON `json:"choices"`
	Usage       *chatUsage   `json:"usage,omitempty"`
}

type choiceJSON struct {
	Index    int             `json:"index"`
	Message  json.RawMessage `json:"message,omitempty"`
	Delta    json.RawMessage `json:"delta,omitempty"`
	Logprobs any             `json:"logprobs"`
	Finish   *string         `json:"finish_reason"`
}

type chatUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

// marshal is JSON as the providers write it: <, > and & stand for themselves.
func marshal(v any) json.RawMessage {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // the types here can always be written
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// name makes an id that is the same in each run.
func name(prefix string, parts ...any) string {
	sum := sha256.Sum256(fmt.Append(nil, parts...))
	return prefix + hex.EncodeToString(sum[:12])
}

func (chat) envelope(a asked, object string) chatChunk {
	return chatChunk{
		ID:          name("chatcmpl-", "chat", a.name, a.number),
		Object:      object,
		Created:     created + a.number,
		Model:       a.model,
		ServiceTier: "default",
		Fingerprint: "fp_5f1c0a7be2",
	}
}

// choice gives what choice i says.
func (t Turn) choice(i int) []Item {
	switch {
	case i == 0:
		return t.Say
	case i-1 < len(t.Other):
		return t.Other[i-1]
	}
	items := make([]Item, len(t.Say))
	for k, it := range t.Say {
		if c, ok := it.(Call); ok && c.ID != "" {
			c.ID = fmt.Sprintf("%s-%d", c.ID, i)
			it = c
		}
		items[k] = it
	}
	return items
}

func (t Turn) chatFinish(items []Item) string {
	if t.Finish != "" {
		return t.Finish
	}
	finish := "stop"
	for _, it := range items {
		if c, ok := it.(Call); ok {
			finish = "tool_calls"
			if c.Form == Legacy {
				finish = "function_call"
			}
		}
	}
	return finish
}

func (t Turn) chatUsage(a asked) *chatUsage {
	u := t.counts(a)
	return &chatUsage{u.Input, u.Output, u.Input + u.Output}
}

// counts gives the token counts of the turn.
func (t Turn) counts(a asked) Usage {
	u := t.Usage
	if u != (Usage{}) {
		return u
	}
	u.Input = 20 + 10*a.answers
	for i := range a.choices {
		for _, it := range t.choice(i) {
			switch it := it.(type) {
			case Text:
				u.Output += 1 + len(it)/4
			case Thinking:
				u.Output += 1 + len(it)/4
			case Call:
				u.Output += 8 + len(it.Args)/4
			}
		}
	}
	return u
}

// events gives the answer as a stream of chunks.
func (c chat) events(_ *Provider, a asked, t Turn) [][]byte {
	env := c.envelope(a, "chat.completion.chunk")
	var lanes [][]choiceJSON
	for i := range a.choices {
		items := t.choice(i)
		lanes = append(lanes, chatDeltas(i, items, t.chatFinish(items)))
	}
	var out [][]byte
	emit := func(ck chatChunk) {
		body := marshal(ck)
		if a.usage && ck.Usage == nil {
			body = append(body[:len(body)-1], `,"usage":null}`...)
		}
		out = append(out, fmt.Appendf(nil, "data: %s\n\n", body))
	}
	// The choices of a real stream come side by side.
	for step := 0; ; step++ {
		some := false
		for _, deltas := range lanes {
			if step < len(deltas) {
				some = true
				ck := env
				ck.Choices = deltas[step : step+1]
				emit(ck)
			}
		}
		if !some {
			break
		}
	}
	if a.usage {
		ck := env
		ck.Choices = []choiceJSON{}
		ck.Usage = t.chatUsage(a)
		emit(ck)
	}
	return append(out, []byte("data: [DONE]\n\n"))
}

// chatDeltas gives the chunks of one choice.
func chatDeltas(index int, items []Item, finish string) []choiceJSON {
	var out []choiceJSON
	add := func(delta any) {
		out = append(out, choiceJSON{Index: index, Delta: marshal(delta)})
	}
	type m = map[string]any
	first := json.RawMessage(`{"role":"assistant","content":"","refusal":null}`)
	if len(items) > 0 {
		if _, call := items[0].(Call); call {
			first = json.RawMessage(`{"role":"assistant","content":null}`)
		}
	}
	add(first)
	calls := 0
	for _, it := range items {
		switch it := it.(type) {
		case Text:
			for _, s := range words(string(it)) {
				add(m{"content": s})
			}
		case Thinking:
			for _, s := range words(string(it)) {
				add(m{"reasoning_content": s})
			}
		case Call:
			chatCallDeltas(it, calls, add)
			if it.Form != Legacy {
				calls++
			}
		}
	}
	return append(out, choiceJSON{Index: index, Delta: json.RawMessage(`{}`), Finish: &finish})
}

func chatCallDeltas(c Call, index int, add func(any)) {
	type fn struct {
		Name string `json:"name,omitempty"`
		Args string `json:"arguments"`
	}
	type custom struct {
		Name  string `json:"name,omitempty"`
		Input string `json:"input"`
	}
	type entry struct {
		Index    int     `json:"index"`
		ID       string  `json:"id,omitempty"`
		Type     string  `json:"type,omitempty"`
		Function *fn     `json:"function,omitempty"`
		Custom   *custom `json:"custom,omitempty"`
	}
	call := func(e entry) { add(map[string]any{"tool_calls": []entry{e}}) }
	parts := pieces(c.Args, 9)
	switch c.Form {
	case Legacy:
		add(map[string]any{"function_call": fn{Name: c.Name}})
		for _, p := range parts {
			add(map[string]any{"function_call": fn{Args: p}})
		}
	case Custom:
		call(entry{Index: index, ID: c.ID, Type: "custom", Custom: &custom{Name: c.Name}})
		for _, p := range parts {
			call(entry{Index: index, Custom: &custom{Input: p}})
		}
	default:
		call(entry{Index: index, ID: c.ID, Type: "function", Function: &fn{Name: c.Name}})
		for _, p := range parts {
			call(entry{Index: index, Function: &fn{Args: p}})
		}
	}
}

// document gives the answer as one JSON document.
func (c chat) document(_ *Provider, a asked, t Turn) []byte {
	doc := c.envelope(a, "chat.completion")
	for i := range a.choices {
		items := t.choice(i)
		finish := t.chatFinish(items)
		doc.Choices = append(doc.Choices, choiceJSON{Index: i, Message: chatMessage(items), Finish: &finish})
	}
	doc.Usage = t.chatUsage(a)
	return append(marshal(doc), '\n')
}

func chatMessage(items []Item) json.RawMessage {
	type fn struct {
		Name string `json:"name"`
		Args string `json:"arguments"`
	}
	type custom struct {
		Name  string `json:"name"`
		Input string `json:"input"`
	}
	type entry struct {
		ID       string  `json:"id,omitempty"`
		Type     string  `json:"type"`
		Function *fn     `json:"function,omitempty"`
		Custom   *custom `json:"custom,omitempty"`
	}
	msg := struct {
		Role      string  `json:"role"`
		Content   *string `json:"content"`
		Refusal   *string `json:"refusal"`
		Reasoning string  `json:"reasoning_content,omitempty"`
		Calls     []entry `json:"tool_calls,omitempty"`
		Function  *fn     `json:"function_call,omitempty"`
		Notes     []any   `json:"annotations"`
	}{Role: "assistant", Notes: []any{}}
	var text strings.Builder
	for _, it := range items {
		switch it := it.(type) {
		case Text:
			text.WriteString(string(it))
		case Thinking:
			msg.Reasoning += string(it)
		case Call:
			switch it.Form {
			case Legacy:
				msg.Function = &fn{it.Name, it.Args}
			case Custom:
				msg.Calls = append(msg.Calls, entry{ID: it.ID, Type: "custom", Custom: &custom{it.Name, it.Args}})
			default:
				msg.Calls = append(msg.Calls, entry{ID: it.ID, Type: "function", Function: &fn{it.Name, it.Args}})
			}
		}
	}
	if text.Len() > 0 || len(msg.Calls) == 0 && msg.Function == nil {
		s := text.String()
		msg.Content = &s
	}
	return marshal(msg)
}

// failure is an error body of Chat Completions.
func (chat) failure(f *fault) []byte {
	kind := f.kind
	if kind == "" {
		kind = "invalid_request_error"
		switch {
		case f.status == http.StatusTooManyRequests:
			kind = "rate_limit_exceeded"
		case f.status >= 500:
			kind = "server_error"
		}
	}
	return marshal(map[string]any{"error": map[string]any{
		"message": f.reason, "type": kind, "param": orNull(f.param), "code": orNull(f.code),
	}})
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// overflow is what OpenAI answers to a conversation that has grown too long.
func (chat) overflow(tokens, limit int) error {
	return &fault{
		status: http.StatusBadRequest, code: "context_length_exceeded", param: "messages",
		reason: fmt.Sprintf("This model's maximum context length is %d tokens. However, your messages resulted in %d tokens. Please reduce the length of the messages.", limit, tokens),
	}
}

// words cuts a text behind each space, as tokens are cut.
func words(s string) []string { return strings.SplitAfter(s, " ") }

// pieces cuts s into pieces of about n bytes, never inside a character.
func pieces(s string, n int) []string {
	var out []string
	for len(s) > n {
		k := n
		for k < len(s) && !utf8.RuneStart(s[k]) {
			k++
		}
		out = append(out, s[:k])
		s = s[k:]
	}
	if s != "" {
		out = append(out, s)
	}
	return out
}
