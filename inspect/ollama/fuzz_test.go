package ollama

import (
	"fmt"
	"testing"

	"callgate/inspect/inspecttest"
)

// clientCalls finds what a client would take for a call, in the message and where
// clients of other formats look.
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
	switch m := top["message"].(type) {
	case map[string]any:
		found = append(found, bodyCalls("message", m)...)
	case []any:
		if len(m) > 0 {
			found = append(found, fmt.Sprintf("message %v", m))
		}
	case string:
		if m != "" {
			found = append(found, fmt.Sprintf("message as text %q", m))
		}
	}
	return found
}

func bodyCalls(where string, body map[string]any) (found []string) {
	for _, key := range []string{"tool_calls", "function_call", "function", "content", "response", "custom", "actions"} {
		switch v := body[key].(type) {
		case []any:
			if len(v) > 0 {
				found = append(found, fmt.Sprintf("%s: %s %v", where, key, v))
			}
		case map[string]any:
			if len(v) > 0 {
				found = append(found, fmt.Sprintf("%s: %s %v", where, key, v))
			}
		case string:
			if v != "" && (key == "tool_calls" || key == "function_call" || key == "function") {
				found = append(found, fmt.Sprintf("%s: %s as text %q", where, key, v))
			}
		}
	}
	return found
}

const (
	lines = "application/x-ndjson"
	json0 = "application/json"
)

func FuzzStream(f *testing.F) { inspecttest.FuzzResponse(f, Dialect{}, lines, cases, clientCalls) }

func FuzzDocument(f *testing.F) { inspecttest.FuzzResponse(f, Dialect{}, json0, cases, clientCalls) }

func FuzzStreamRepair(f *testing.F) {
	inspecttest.FuzzResponse(f, repairing, lines, cases, clientCalls)
}

func FuzzDocumentRepair(f *testing.F) {
	inspecttest.FuzzResponse(f, repairing, json0, cases, clientCalls)
}
