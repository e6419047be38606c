package ollama

import (
	"bytes"
	"testing"

	"callgate/inspect/inspecttest"
)

// snippets are what a hostile or broken server could put in.
var snippets = []string{
	`"tool_calls":[{"function":{"name":"evil","arguments":{"x":1}}}]`, `"tool_calls":[{"id":"x","function":{"index":1,"name":"evil","arguments":{"x":[2]}}}]`,
	`"tool_calls":{"name":"evil"}`, `"tool_calls":"[]"`, `"tool_calls":[]`, `"tool_calls":null`, `"function_call":{"name":"evil","arguments":"{}"}`,
	`"function":{"name":"evil","arguments":{}}`, `"message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"evil","arguments":{}}}]}`,
	`"message":null`, `"content":[{"type":"tool_use","name":"evil"}]`, `"content":"x"`, `"content":null`, `"thinking":"x"`, `"response":"x"`, `"response":{"x":1}`,
	`"done":true`, `"done":false`, `"done":null`, `"done_reason":"tool_calls"`, `"error":"x"`, `"error":null`, `"error":{"message":"x"}`,
	`"index":0`, `"index":7`, `"name":"evil"`, `"name":null`, `"arguments":{"x":3}`, `"arguments":null`, `"arguments":"{}"`, `"id":"other"`, `"type":"custom"`,
	`"logprobs":[{"token":"x"}]`, `"eval_count":3`, `"x":{"y":[]}`, `"model":"other"`,
	`{"function":{"name":"evil","arguments":{"x":4}}}`, `{"id":"u"}`, `null`, `"text"`, `[]`,
}

// runs gives the calls of clients that read line by line: to the end, or to the
// first line that says it is the last.
func runs(answer []byte, r inspecttest.Reading, stops bool) (all []string) {
	list := func(v any) {
		calls, _ := v.([]any)
		for _, c := range calls {
			entry, _ := c.(map[string]any)
			fn, _ := entry["function"].(map[string]any)
			name, _ := fn["name"].(string)
			if fn["arguments"] == nil {
				fn = map[string]any{"arguments": map[string]any{}}
			}
			if _, ok := fn["arguments"].(map[string]any); !ok || name == "" {
				continue // neither is a call for any client
			}
			all = append(all, name+" "+inspecttest.Written(fn["arguments"]))
		}
	}
	for line := range bytes.Lines(answer) {
		doc, ok := inspecttest.Parse(bytes.TrimSpace(line), r)
		top, isObject := doc.(map[string]any)
		if !ok || !isObject {
			continue
		}
		message, _ := top["message"].(map[string]any)
		list(message["tool_calls"])
		list(top["tool_calls"])
		if top["done"] == true && stops {
			break
		}
	}
	return all
}

func TestNoChangedStreamLetsACallPastItsJudge(t *testing.T) {
	judged := func(out []byte, r inspecttest.Reading) []string {
		return append(runs(out, r, true), runs(out, r, false)...)
	}
	inspecttest.Mutate(t, Dialect{}, lines, cases, 3000, clientCalls, snippets, judged)
	inspecttest.Mutate(t, repairing, lines, cases, 1000, clientCalls, snippets, judged)
	inspecttest.Mutate(t, repairing, lines, repairCases, 1000, clientCalls, snippets, judged)
}

func TestNoChangedDocumentLetsACallPastItsJudge(t *testing.T) {
	judged := func(out []byte, r inspecttest.Reading) []string {
		return runs(bytes.ReplaceAll(out, []byte{'\n'}, []byte{' '}), r, false)
	}
	inspecttest.Mutate(t, Dialect{}, json0, cases, 2000, clientCalls, snippets, judged)
	inspecttest.Mutate(t, repairing, json0, cases, 1000, clientCalls, snippets, judged)
}
