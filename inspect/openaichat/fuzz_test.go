package openaichat

import (
	"bytes"
	"fmt"
	"testing"

	"callgate/inspect/inspecttest"
	"callgate/inspect/rawjson"
)

// clientCalls finds what a client of Chat Completions would take for a call: in
// the delta or message of each choice, and where clients of other formats look.
func clientCalls(doc any) []string {
	if inner, ok := doc.(string); ok {
		// Some clients read text as JSON once more.
		doc, _ = inspecttest.Parse([]byte(inner), inspecttest.Readings[0])
	}
	top, ok := doc.(map[string]any)
	if !ok {
		return nil
	}
	found := bodyCalls("document", top)
	if text, _ := top["choices"].(string); text != "" {
		found = append(found, fmt.Sprintf("choices as text %q", text))
	}
	choices, _ := top["choices"].([]any)
	for i, c := range choices {
		ch, ok := c.(map[string]any)
		if text, _ := c.(string); text != "" {
			found = append(found, fmt.Sprintf("choice as text %q", text))
		}
		if !ok {
			continue
		}
		found = append(found, bodyCalls(fmt.Sprintf("choice %d", i), ch)...)
		for _, k := range []string{"delta", "message"} {
			if body, ok := ch[k].(map[string]any); ok {
				where := fmt.Sprintf("choice %d %s", i, k)
				found = append(append(found, bodyCalls(where, body)...), partCalls(where, body)...)
			}
		}
	}
	return found
}

var cannotRun = map[any]bool{"text": true, "output_text": true, "refusal": true, "thinking": true, "reasoning": true,
	"redacted_thinking": true, "reference": true, "image_url": true, "image": true, "audio": true, "input_audio": true,
	"video_url": true, "document_url": true, "file": true}

func bodyCalls(where string, body map[string]any) []string {
	var found []string
	switch calls := body["tool_calls"].(type) {
	case []any:
		for _, c := range calls {
			found = append(found, fmt.Sprintf("%s: tool call %v", where, c))
		}
	case map[string]any:
		if len(calls) > 0 {
			found = append(found, fmt.Sprintf("%s: tool calls %v", where, calls))
		}
	case string:
		if calls != "" {
			found = append(found, fmt.Sprintf("%s: tool calls as text %q", where, calls))
		}
	}
	if call, _ := body["function_call"].(string); call != "" {
		found = append(found, fmt.Sprintf("%s: function call as text %q", where, call))
	}
	if call, ok := body["function_call"].(map[string]any); ok {
		if name, _ := call["name"].(string); name != "" {
			found = append(found, fmt.Sprintf("%s: function call %v", where, call))
		}
	}
	return found
}

// partCalls finds calls among the parts of a content.
func partCalls(where string, body map[string]any) []string {
	var found []string
	parts, _ := body["content"].([]any)
	for _, p := range parts {
		if part, ok := p.(map[string]any); ok && len(part) > 0 && !cannotRun[part["type"]] {
			found = append(found, fmt.Sprintf("%s: part %v", where, part))
		}
	}
	return found
}

func FuzzStream(f *testing.F) {
	inspecttest.FuzzResponse(f, Dialect{}, "text/event-stream", cases, clientCalls)
}

func FuzzDocument(f *testing.F) {
	inspecttest.FuzzResponse(f, Dialect{}, "application/json", cases, clientCalls)
}

func FuzzStreamRepair(f *testing.F) {
	inspecttest.FuzzResponse(f, repairing, "text/event-stream", cases, clientCalls)
}

func FuzzDocumentRepair(f *testing.F) {
	inspecttest.FuzzResponse(f, repairing, "application/json", cases, clientCalls)
}

// FuzzPlain holds the template against the long way: what it passes unread must
// read as holding nothing of a call.
func FuzzPlain(f *testing.F) {
	for _, s := range []string{
		`{"id":"c","object":"o","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"x"},"finish_reason":null}]}`,
		`{"choices":[{"delta":{"content":"a","tool_calls":[],"function_call":null,"refusal":null,"reasoning":"r"},"logprobs":null},{"index":1,"delta":{}}],"usage":null}`,
		`{"choices":[]}`, `{"choices":[{"index":0,"delta":{"content":"a","content":"b"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a"}},{"index":0,"delta":{"content":"b"}}]}`, `{"choices":[{"delta":{}},{"delta":{}}]}`,
		`{"choices":[],"usage":{"prompt_tokens":1,"details":{"a":null},"details":{}}}`,
		`{"choices":[{"index":0,"delta":{"content":[{"type":"tool_use"}]}}]}`, ` { } `,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var p plain
		if !p.match(data) || !p.isPlain() {
			return
		}
		if bytes.ContainsAny(data, "\r\n") {
			t.Fatalf("%q passes with a line end in it", data)
		}
		s := newStream(turn{lim: Dialect{}.Limits.Defaults(), lanesAsked: maxLanes})
		if err := s.readEvent(data, rawjson.Span{From: 0, To: len(data)}, ""); err != nil {
			t.Fatalf("%q passes and cannot be read: %v", data, err)
		}
		if s.total > 0 || len(s.queue) > 0 || !bytes.Equal(s.out, data) {
			t.Fatalf("%q passes and holds %d calls", data, s.total)
		}
		for _, r := range inspecttest.Readings {
			doc, ok := inspecttest.Parse(data, r)
			if calls := clientCalls(doc); !ok || len(calls) > 0 {
				t.Fatalf("%q passes and reading %d finds %q", data, r, calls)
			}
		}
	})
}
