package clienttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
)

// cost are the id and the tokens of an answer as they are on the wire.
type cost struct {
	ID            string
	Input, Output int64
}

// costOf reads an answer of the provider.
func costOf(sent []byte) cost {
	var c cost
	for _, doc := range documents(sent) {
		if r := doc.Get("response"); r.Exists() { // the usage stands in the last one alone
			c = cost{r.Get("id").Str, r.Get("usage.input_tokens").Int(), r.Get("usage.output_tokens").Int()}
			continue
		}
		if id := doc.Get("message.id"); id.Exists() {
			c.ID = id.Str
			continue
		}
		if id := doc.Get("id"); id.Exists() {
			c.ID = id.Str
		}
		if id := doc.Get("responseId"); id.Exists() {
			u := doc.Get("usageMetadata") // of the answer so far
			c = cost{id.Str, u.Get("promptTokenCount").Int(), u.Get("candidatesTokenCount").Int()}
			continue
		}
		c.Input += doc.Get("prompt_eval_count").Int()
		c.Output += doc.Get("eval_count").Int()
		u := doc.Get("usage")
		for _, name := range []string{"input_tokens", "prompt_tokens"} {
			c.Input += u.Get(name).Int()
		}
		for _, name := range []string{"output_tokens", "completion_tokens"} {
			c.Output += u.Get(name).Int()
		}
	}
	return c
}

// documents gives the data of a stream's events, or the one document.
func documents(body []byte) (out []gjson.Result) {
	if trimmed := bytes.TrimSpace(body); bytes.HasPrefix(trimmed, []byte("{")) {
		gjson.ForEachLine(string(trimmed), func(doc gjson.Result) bool {
			out = append(out, doc)
			return true
		})
		return out
	}
	for line := range strings.Lines(string(body)) {
		if data, ok := strings.CutPrefix(line, "data: {"); ok {
			out = append(out, gjson.Parse("{"+data))
		}
	}
	return out
}

// envelope says what is wrong with an answer as one answer: one id, one start,
// one end, and indexes without gaps.
func envelope(messages, stream bool, body []byte) error {
	switch {
	case !stream:
		dec := json.NewDecoder(bytes.NewReader(body))
		var doc map[string]any
		if err := dec.Decode(&doc); err != nil {
			return err
		}
		if dec.More() {
			return errors.New("there is more behind the document")
		}
		return nil
	case messages:
		return messagesEnvelope(documents(body))
	case bytes.Contains(body, []byte(`"responseId"`)):
		return geminiEnvelope(documents(body))
	case bytes.Contains(body, []byte("event: response.created\n")):
		return responsesEnvelope(documents(body))
	case bytes.HasPrefix(body, []byte("{")):
		return ollamaEnvelope(body)
	}
	if n := strings.Count(string(body), "data: [DONE]\n\n"); n != 1 || !strings.HasSuffix(string(body), "data: [DONE]\n\n") {
		return fmt.Errorf("%d ends, the last of them not at the end: %q", n, body)
	}
	return chatEnvelope(documents(body))
}

func messagesEnvelope(events []gjson.Result) error {
	open, next, ended, stopped := false, int64(0), false, false
	for i, e := range events {
		typ := e.Get("type").Str
		bad := stopped
		switch typ {
		case "message_start":
			bad = bad || i > 0
		case "content_block_start":
			bad = bad || i == 0 || open || ended || e.Get("index").Int() != next
			open = true
		case "content_block_delta":
			bad = bad || !open || e.Get("index").Int() != next
		case "content_block_stop":
			bad = bad || !open || e.Get("index").Int() != next
			open = false
			next++
		case "message_delta":
			bad = bad || open || ended
			ended = true
		case "message_stop":
			bad = bad || !ended
			stopped = true
		case "ping":
		default:
			bad = true
		}
		if bad {
			return fmt.Errorf("event %d is out of place: %s", i, e.Raw)
		}
	}
	if !stopped {
		return errors.New("the answer has no end")
	}
	return nil
}

func chatEnvelope(chunks []gjson.Result) error {
	calls, finished, used := int64(0), false, false
	for i, c := range chunks {
		for _, name := range []string{"id", "created", "model"} {
			if got, want := c.Get(name).Raw, chunks[0].Get(name).Raw; got != want {
				return fmt.Errorf("chunk %d has the %s %s and not %s", i, name, got, want)
			}
		}
		choice := c.Get("choices.0")
		if used || c.Get("choices.1").Exists() || finished && choice.Exists() {
			return fmt.Errorf("chunk %d is out of place: %s", i, c.Raw)
		}
		if i > 0 && choice.Get("delta.role").Exists() {
			return fmt.Errorf("chunk %d begins a message again: %s", i, c.Raw)
		}
		for _, k := range choice.Get("delta.tool_calls").Array() {
			if k.Get("id").Exists() {
				calls++
			}
			if k.Get("index").Int() != calls-1 {
				return fmt.Errorf("chunk %d has call %d behind %d calls", i, k.Get("index").Int(), calls)
			}
		}
		finished = finished || choice.Get("finish_reason").Type == gjson.String
		used = c.Get("usage").IsObject()
	}
	if !finished || !used {
		return fmt.Errorf("finished %v, with usage %v", finished, used)
	}
	return nil
}
