package providertest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
)

// messageJSON has the keys of a message in the order in which the provider sends
// them.
type messageJSON struct {
	Model   string            `json:"model"`
	ID      string            `json:"id"`
	Type    string            `json:"type"`
	Role    string            `json:"role"`
	Content []json.RawMessage `json:"content"`
	Stop    *string           `json:"stop_reason"`
	StopSeq *string           `json:"stop_sequence"`
	Usage   messagesUsage     `json:"usage"`
}

type messagesUsage struct {
	Input       int    `json:"input_tokens"`
	CacheWrite  int    `json:"cache_creation_input_tokens"`
	CacheRead   int    `json:"cache_read_input_tokens"`
	Output      int    `json:"output_tokens"`
	ServiceTier string `json:"service_tier,omitempty"`
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type thinkingBlock struct {
	Type      string `json:"type"`
	Thinking  string `json:"thinking"`
	Signature string `json:"signature"`
}

type toolUseBlock struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

func (messages) envelope(a asked, t Turn) messageJSON {
	u := t.counts(a)
	return messageJSON{
		Model: a.model, ID: name("msg_01", "messages", a.name, a.number), Type: "message", Role: "assistant",
		Content: []json.RawMessage{},
		Usage:   messagesUsage{Input: u.Input, Output: 1, ServiceTier: "standard"},
	}
}

func (t Turn) messagesStop() string {
	if t.Finish != "" {
		return t.Finish
	}
	for _, it := range t.Say {
		if _, ok := it.(Call); ok {
			return "tool_use"
		}
	}
	return "end_turn"
}

// sign gives each thinking item its signature and remembers what was signed.
func (p *Provider) sign(a asked, items []Item) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	signs := make([]string, len(items))
	var all []string
	for i, it := range items {
		if th, ok := it.(Thinking); ok {
			raw := name("sig", a.prefix, a.model, i, string(th))
			signs[i] = base64.StdEncoding.EncodeToString([]byte(raw))
			all = append(all, signs[i])
			p.issued[signs[i]] = thinkingIssued{text: string(th), prefix: a.prefix}
		}
	}
	for _, it := range items {
		if c, ok := it.(Call); ok {
			p.thought[c.ID] = append(p.thought[c.ID], all)
		}
	}
	return signs
}

// sse is one event of a Messages stream.
func sse(kind string, v any) []byte {
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", kind, marshal(v))
}

// events gives the answer as a stream of events.
func (ms messages) events(p *Provider, a asked, t Turn) [][]byte {
	signs := p.sign(a, t.Say)
	out := [][]byte{sse("message_start", struct {
		Type    string      `json:"type"`
		Message messageJSON `json:"message"`
	}{"message_start", ms.envelope(a, t)})}
	for i, it := range t.Say {
		out = append(out, messagesBlockEvents(i, it, signs[i])...)
		if i == 0 {
			// The real stream's first ping comes behind the first block's start.
			ping := sse("ping", map[string]string{"type": "ping"})
			out = append(out[:2], append([][]byte{ping}, out[2:]...)...)
		}
	}
	stop := t.messagesStop()
	type delta struct {
		Stop    string  `json:"stop_reason"`
		StopSeq *string `json:"stop_sequence"`
	}
	u := t.counts(a)
	return append(out, sse("message_delta", struct {
		Type  string        `json:"type"`
		Delta delta         `json:"delta"`
		Usage messagesUsage `json:"usage"`
	}{"message_delta", delta{Stop: stop}, messagesUsage{Input: u.Input, Output: u.Output}}),
		sse("message_stop", map[string]string{"type": "message_stop"}))
}

func messagesBlockEvents(index int, it Item, signature string) [][]byte {
	type start struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
		Block any    `json:"content_block"`
	}
	type delta struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
		Delta any    `json:"delta"`
	}
	type m = map[string]string
	var block any
	var deltas []any
	switch it := it.(type) {
	case Text:
		block = textBlock{Type: "text"}
		for _, s := range words(string(it)) {
			deltas = append(deltas, m{"type": "text_delta", "text": s})
		}
	case Thinking:
		block = thinkingBlock{Type: "thinking"}
		for _, s := range words(string(it)) {
			deltas = append(deltas, m{"type": "thinking_delta", "thinking": s})
		}
		deltas = append(deltas, m{"type": "signature_delta", "signature": signature})
	case Call:
		block = toolUseBlock{Type: "tool_use", ID: it.ID, Name: it.Name, Input: json.RawMessage(`{}`)}
		deltas = append(deltas, m{"type": "input_json_delta", "partial_json": ""})
		for _, s := range pieces(it.Args, 9) {
			deltas = append(deltas, m{"type": "input_json_delta", "partial_json": s})
		}
	}
	out := [][]byte{sse("content_block_start", start{"content_block_start", index, block})}
	for _, d := range deltas {
		out = append(out, sse("content_block_delta", delta{"content_block_delta", index, d}))
	}
	return append(out, sse("content_block_stop", struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}{"content_block_stop", index}))
}

// document gives the answer as one JSON document. Arguments that are not JSON
// cannot stand in one: they become an empty object.
func (ms messages) document(p *Provider, a asked, t Turn) []byte {
	signs := p.sign(a, t.Say)
	doc := ms.envelope(a, t)
	doc.Usage.Output = t.counts(a).Output
	doc.Content = messagesBlocksOf(t.Say, signs)
	stop := t.messagesStop()
	doc.Stop = &stop
	return marshal(doc)
}

// messagesBlocksOf gives what is said as the blocks of a message.
func messagesBlocksOf(items []Item, signs []string) []json.RawMessage {
	out := []json.RawMessage{}
	for i, it := range items {
		var block any
		switch it := it.(type) {
		case Text:
			block = textBlock{"text", string(it)}
		case Thinking:
			block = thinkingBlock{"thinking", string(it), signs[i]}
		case Call:
			input := json.RawMessage(it.Args)
			if !json.Valid(input) {
				input = json.RawMessage(`{}`)
			}
			block = toolUseBlock{"tool_use", it.ID, it.Name, input}
		}
		out = append(out, marshal(block))
	}
	return out
}

// failure is an error body of Messages.
func (messages) failure(f *fault) []byte {
	kind := f.kind
	if kind == "" {
		switch f.status {
		case http.StatusUnauthorized:
			kind = "authentication_error"
		case http.StatusNotFound:
			kind = "not_found_error"
		case http.StatusTooManyRequests:
			kind = "rate_limit_error"
		case 529:
			kind = "overloaded_error"
		default:
			kind = "invalid_request_error"
			if f.status >= 500 {
				kind = "api_error"
			}
		}
	}
	type details struct {
		Code string `json:"error_code"`
	}
	type e struct {
		Type    string   `json:"type"`
		Message string   `json:"message"`
		Details *details `json:"details,omitempty"`
	}
	out := e{Type: kind, Message: f.reason}
	if f.code != "" {
		out.Details = &details{f.code}
	}
	return marshal(struct {
		Type  string `json:"type"`
		Error e      `json:"error"`
	}{"error", out})
}

// overflow is what Anthropic answers to a conversation that has grown too
// long.
func (messages) overflow(tokens, limit int) error {
	return badf("prompt is too long: %d tokens > %d maximum", tokens, limit)
}
