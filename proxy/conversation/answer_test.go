package conversation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// block is a part of an answer as an agent was shown it.
type block struct {
	kind      string // text, thinking or call
	text      string // of a text or thinking; arguments of a call
	signature string
	id, name  string
	custom    bool
}

// readAnswer reads an answer as strictly as the strictest of the real clients:
// one envelope, one id, one finish, indexes without gaps.
func readAnswer(fm form, stream bool, body []byte) ([]block, error) {
	var blocks []block
	var finish string
	var err error
	switch {
	case fm == chat && stream:
		blocks, finish, err = chatStream(body)
	case fm == chat:
		blocks, finish, err = chatDocument(body)
	case stream:
		blocks, finish, err = messagesStream(body)
	default:
		blocks, finish, err = messagesDocument(body)
	}
	if err != nil {
		return nil, err
	}
	calls := 0
	seen := map[string]bool{}
	for _, b := range blocks {
		if b.kind != "call" {
			continue
		}
		calls++
		switch {
		case b.id == "" || b.name == "":
			return nil, fmt.Errorf("call %d has no id or no name", calls)
		case seen[b.id]:
			return nil, fmt.Errorf("two calls have the id %s", b.id)
		case !b.custom && !json.Valid([]byte(b.text)):
			return nil, fmt.Errorf("the arguments of %s are not JSON: %q", b.id, b.text)
		}
		seen[b.id] = true
	}
	if want := map[bool]string{true: "tool_calls tool_use", false: "stop end_turn"}[calls > 0]; finish == "" || !strings.Contains(want, finish) {
		return nil, fmt.Errorf("an answer with %d calls ends with %q", calls, finish)
	}
	if len(blocks) == 0 {
		return nil, errors.New("the answer is empty")
	}
	return blocks, nil
}

// events cuts a stream into the names and data of its events.
func events(body []byte) (names []string, data [][]byte, err error) {
	for _, ev := range strings.Split(strings.TrimSuffix(string(body), "\n\n"), "\n\n") {
		name, value := "", ""
		for _, l := range strings.Split(ev, "\n") {
			switch {
			case strings.HasPrefix(l, "event: "):
				name = l[len("event: "):]
			case strings.HasPrefix(l, "data: "):
				value += l[len("data: "):]
			case strings.HasPrefix(l, ":"), l == "":
			default:
				return nil, nil, fmt.Errorf("a line of the stream is no field: %q", l)
			}
		}
		if value != "" {
			names, data = append(names, name), append(data, []byte(value))
		}
	}
	return names, data, nil
}

type messagesBlock struct {
	Type, Text, Thinking, Signature, ID, Name string
	Input                                     json.RawMessage
}

func messagesStream(body []byte) (blocks []block, finish string, err error) {
	names, data, err := events(body)
	if err != nil {
		return nil, "", err
	}
	open, started, ended := -1, false, false
	for i, d := range data {
		var ev struct {
			Type    string
			Index   *int
			Message struct {
				ID      string
				Content []any
			}
			Block messagesBlock `json:"content_block"`
			Delta struct {
				Type, Text, Thinking, Signature string
				JSON                            string `json:"partial_json"`
				Stop                            string `json:"stop_reason"`
			}
			Usage map[string]any
		}
		if err := json.Unmarshal(d, &ev); err != nil {
			return nil, "", fmt.Errorf("event %d: %w", i, err)
		}
		switch {
		case ev.Type != names[i]:
			return nil, "", fmt.Errorf("event %d is called %s and holds %s", i, names[i], ev.Type)
		case ended:
			return nil, "", fmt.Errorf("event %d (%s) stands behind the end", i, ev.Type)
		case started == (ev.Type == "message_start") && ev.Type != "ping":
			return nil, "", fmt.Errorf("event %d is %s; the message has started: %v", i, ev.Type, started)
		case finish != "" && ev.Type != "message_stop" && ev.Type != "ping":
			return nil, "", fmt.Errorf("event %d (%s) stands behind the finish", i, ev.Type)
		}
		switch ev.Type {
		case "ping":
		case "message_start":
			if started = true; ev.Message.ID == "" || len(ev.Message.Content) > 0 {
				return nil, "", fmt.Errorf("the message starts as %s", d)
			}
		case "content_block_start":
			if open >= 0 || ev.Index == nil || *ev.Index != len(blocks) {
				return nil, "", fmt.Errorf("event %d starts a block as %s, behind %d blocks", i, d, len(blocks))
			}
			b, err := ev.Block.block()
			if err != nil {
				return nil, "", err
			}
			if b.kind == "call" {
				b.text = ""
			}
			open, blocks = *ev.Index, append(blocks, b)
		case "content_block_delta", "content_block_stop":
			if ev.Index == nil || *ev.Index != open {
				return nil, "", fmt.Errorf("event %d belongs to no open block: %s", i, d)
			}
			b := &blocks[open]
			b.text += ev.Delta.Text + ev.Delta.Thinking + ev.Delta.JSON
			b.signature += ev.Delta.Signature
			if ev.Type == "content_block_stop" {
				open = -1
			}
		case "message_delta":
			if open >= 0 || ev.Usage["output_tokens"] == nil {
				return nil, "", fmt.Errorf("event %d ends the message with a block open or without usage: %s", i, d)
			}
			finish = ev.Delta.Stop
		case "message_stop":
			ended = true
		default:
			return nil, "", fmt.Errorf("event %d is of unknown type %s", i, ev.Type)
		}
	}
	if !ended || finish == "" {
		return nil, "", errors.New("the stream has no end")
	}
	return blocks, finish, nil
}

func (m messagesBlock) block() (block, error) {
	switch m.Type {
	case "text":
		return block{kind: "text", text: m.Text}, nil
	case "thinking":
		return block{kind: "thinking", text: m.Thinking, signature: m.Signature}, nil
	case "tool_use":
		return block{kind: "call", id: m.ID, name: m.Name, text: string(m.Input)}, nil
	}
	return block{}, fmt.Errorf("a block has the unknown type %q", m.Type)
}

func messagesDocument(body []byte) (blocks []block, finish string, err error) {
	var doc struct {
		ID, Type, Role string
		Content        []messagesBlock
		Stop           string `json:"stop_reason"`
	}
	if err := json.Unmarshal(body, &doc); err != nil || doc.ID == "" || doc.Type != "message" || doc.Role != "assistant" {
		return nil, "", fmt.Errorf("this is no message (%v): %.200s", err, body)
	}
	for _, m := range doc.Content {
		b, err := m.block()
		if err != nil {
			return nil, "", err
		}
		blocks = append(blocks, b)
	}
	return blocks, doc.Stop, nil
}

type chatCall struct {
	Index    *int
	ID, Type string
	Function *struct{ Name, Arguments string }
	Custom   *struct{ Name, Input string }
}

// add puts a piece of a call into the calls so far.
func (c chatCall) add(calls []block, i int) ([]block, error) {
	if i == len(calls) {
		calls = append(calls, block{kind: "call", custom: c.Type == "custom"})
	}
	if i < 0 || i >= len(calls) {
		return nil, fmt.Errorf("call %d stands behind %d calls", i, len(calls))
	}
	b := &calls[i]
	b.id += c.ID
	if c.Function != nil {
		b.name += c.Function.Name
		b.text += c.Function.Arguments
	}
	if c.Custom != nil {
		b.name += c.Custom.Name
		b.text += c.Custom.Input
	}
	return calls, nil
}

func chatStream(body []byte) (blocks []block, finish string, err error) {
	_, data, err := events(body)
	if err != nil {
		return nil, "", err
	}
	var id, text, thinking string
	var calls []block
	done := false
	for i, d := range data {
		if done {
			return nil, "", fmt.Errorf("event %d stands behind the end", i)
		}
		if done = string(d) == "[DONE]"; done {
			continue
		}
		var ck struct {
			ID      string
			Object  string
			Choices []struct {
				Index int
				Delta struct {
					Content   *string
					Reasoning string     `json:"reasoning_content"`
					Calls     []chatCall `json:"tool_calls"`
				}
				Finish *string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal(d, &ck); err != nil {
			return nil, "", fmt.Errorf("event %d: %w", i, err)
		}
		if id == "" {
			id = ck.ID
		}
		if ck.ID == "" || ck.ID != id || ck.Object != "chat.completion.chunk" {
			return nil, "", fmt.Errorf("event %d has the id %q behind %q: %s", i, ck.ID, id, d)
		}
		for _, ch := range ck.Choices {
			if ch.Index != 0 || finish != "" {
				return nil, "", fmt.Errorf("event %d is of choice %d, with finish %q before it", i, ch.Index, finish)
			}
			if ch.Delta.Content != nil {
				text += *ch.Delta.Content
			}
			thinking += ch.Delta.Reasoning
			for _, c := range ch.Delta.Calls {
				if c.Index == nil {
					return nil, "", fmt.Errorf("event %d holds a call without index", i)
				}
				if calls, err = c.add(calls, *c.Index); err != nil {
					return nil, "", fmt.Errorf("event %d: %w", i, err)
				}
			}
			if ch.Finish != nil {
				finish = *ch.Finish
			}
		}
	}
	if !done {
		return nil, "", errors.New("the stream has no end")
	}
	return chatBlocks(thinking, text, calls), finish, nil
}

func chatBlocks(thinking, text string, calls []block) []block {
	var out []block
	if thinking != "" {
		out = append(out, block{kind: "thinking", text: thinking})
	}
	if text != "" {
		out = append(out, block{kind: "text", text: text})
	}
	return append(out, calls...)
}

func chatDocument(body []byte) (blocks []block, finish string, err error) {
	var doc struct {
		ID      string
		Choices []struct {
			Index   int
			Message struct {
				Content   *string
				Reasoning string     `json:"reasoning_content"`
				Calls     []chatCall `json:"tool_calls"`
			}
			Finish string `json:"finish_reason"`
		}
	}
	if err := json.Unmarshal(bytes.TrimSpace(body), &doc); err != nil || doc.ID == "" || len(doc.Choices) != 1 || doc.Choices[0].Index != 0 {
		return nil, "", fmt.Errorf("this is no completion (%v): %.200s", err, body)
	}
	m := doc.Choices[0].Message
	var calls []block
	for i, c := range m.Calls {
		if calls, err = c.add(calls, i); err != nil {
			return nil, "", err
		}
	}
	text := ""
	if m.Content != nil {
		text = *m.Content
	}
	return chatBlocks(m.Reasoning, text, calls), doc.Choices[0].Finish, nil
}
