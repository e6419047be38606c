package responses

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"callgate/inspect"
	"callgate/inspect/frame"
	"callgate/inspect/inspecttest"
)

const (
	cases       = "testdata/*.txtar"
	eventStream = "text/event-stream"
	jsonBody    = "application/json"
)

var repairing = Dialect{Denial: inspect.DenialRepair}

// cannotRun are the types of items that no client runs anything for.
var cannotRun = map[any]bool{"message": true, "reasoning": true, "compaction": true, "compaction_summary": true, "additional_tools": true,
	"function_call_output": true, "custom_tool_call_output": true, "computer_call_output": true, "local_shell_call_output": true,
	"shell_call_output": true, "apply_patch_call_output": true, "tool_search_output": true, "program_output": true, "mcp_approval_response": true,
	"web_search_call": true, "file_search_call": true, "code_interpreter_call": true, "image_generation_call": true, "program": true,
	"mcp_list_tools": true, "mcp_call": true}

// quietParts are the types of the parts of messages and of reasoning.
var quietTypes = map[any]bool{"output_text": true, "refusal": true, "text": true, "output_audio": true, "summary_text": true, "reasoning_text": true}

// callEvents begin the types of events that are about calls. Commands of a shell
// are not among them: they say nothing of who runs it, and their item does.
var callEvents = []string{"response.function_call", "response.custom_tool_call",
	"response.apply_patch_call_operation", "response.mcp_approval", "response.computer_call", "response.local_shell_call"}

// clientCalls finds what a client of Responses would take for a call, in an
// event or in a whole answer, and what clients of other formats would.
func clientCalls(doc any) []string {
	if inner, ok := doc.(string); ok {
		// Some clients read text as JSON once more.
		doc, _ = inspecttest.Parse([]byte(inner), inspecttest.Readings[0])
	}
	top, ok := doc.(map[string]any)
	if !ok {
		return nil
	}
	found := foreignCalls("document", top)
	if typ, _ := top["type"].(string); typ != "" {
		for _, p := range callEvents {
			if strings.HasPrefix(strings.ToLower(typ), p) && !strings.Contains(typ, "_output") {
				found = append(found, "an event of type "+typ)
			}
		}
	}
	if item, ok := top["item"]; ok {
		found = append(found, itemCalls("item", item)...)
	}
	if part, ok := top["part"]; ok {
		found = append(found, partCalls("part", part)...)
	}
	for _, from := range []any{top, top["response"]} {
		r, _ := from.(map[string]any)
		switch output := r["output"].(type) {
		case []any:
			for i, item := range output {
				found = append(found, itemCalls(fmt.Sprint("output ", i), item)...)
			}
		case map[string]any:
			found = append(found, itemCalls("output", output)...)
		}
	}
	return found
}

func itemCalls(where string, item any) []string {
	if text, _ := item.(string); text != "" {
		return []string{where + " as text " + text}
	}
	m, ok := item.(map[string]any)
	if !ok {
		return nil
	}
	found := foreignCalls(where, m)
	hosted := cannotRun[m["type"]]
	switch m["type"] {
	case "shell_call":
		env, _ := m["environment"].(map[string]any)
		typ, _ := env["type"].(string)
		hosted = typ != "" && typ != "local"
	case "tool_search_call":
		hosted = m["execution"] == "server"
	case "mcp_call":
		name, _ := m["name"].(string)
		hosted = !strings.EqualFold(name, "bash")
	}
	if !hosted && len(m) > 0 {
		found = append(found, fmt.Sprintf("%s: %v", where, m))
	}
	if m["type"] == "message" || m["type"] == "reasoning" {
		for _, key := range []string{"content", "summary"} {
			parts, _ := m[key].([]any)
			for _, p := range parts {
				found = append(found, partCalls(where+" "+key, p)...)
			}
		}
	}
	return found
}

func partCalls(where string, part any) []string {
	if p, ok := part.(map[string]any); ok && len(p) > 0 && !quietTypes[p["type"]] {
		return []string{fmt.Sprintf("%s: part %v", where, p)}
	}
	return nil
}

// foreignCalls finds calls in the forms of other providers.
func foreignCalls(where string, m map[string]any) (found []string) {
	for _, key := range []string{"tool_calls", "tool_use", "function_call", "functioncall", "functionCall", "content_block"} {
		switch v := m[key].(type) {
		case []any:
			for _, c := range v {
				found = append(found, fmt.Sprintf("%s: %s %v", where, key, c))
			}
		case map[string]any:
			if len(v) > 0 {
				found = append(found, fmt.Sprintf("%s: %s %v", where, key, v))
			}
		case string:
			if v != "" {
				found = append(found, fmt.Sprintf("%s: %s %q", where, key, v))
			}
		}
	}
	return found
}

func FuzzStream(f *testing.F) {
	inspecttest.FuzzResponse(f, Dialect{}, eventStream, cases, clientCalls)
}

func FuzzDocument(f *testing.F) {
	inspecttest.FuzzResponse(f, Dialect{}, jsonBody, cases, clientCalls)
}

func FuzzStreamRepair(f *testing.F) {
	inspecttest.FuzzResponse(f, repairing, eventStream, cases, clientCalls)
}

func FuzzDocumentRepair(f *testing.F) {
	inspecttest.FuzzResponse(f, repairing, jsonBody, cases, clientCalls)
}

// FuzzDelta holds the template against the long way: what it matches must read
// as a plain delta, of the same item and the same words, to every reader.
func FuzzDelta(f *testing.F) {
	for _, s := range []string{
		`{"type":"response.output_text.delta","sequence_number":3,"item_id":"msg_0","output_index":0,"content_index":0,"delta":"A"}`,
		`{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":0,"delta":"{\"a\"","obfuscation":"xx"}`,
		`{"delta":"x","output_index":0,"logprobs":[]}`, `{"delta":"x","delta":"y","output_index":0}`, `{"output_index":00,"delta":""}`,
		`{"output_index":-1,"delta":"x"}`, `{"output_index":0,"delta":"\ud800"}`, ` { "output_index" : 0 , "delta" : "x" } `, `{"output_index":0,"delta":"x"}{}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, ok := readDelta(data)
		if !ok {
			return
		}
		s := newStream(&request{limits: inspect.Limits{}.Defaults()})
		if err := s.strict(data); err != nil {
			t.Fatalf("%q matches and cannot be read: %v", data, err)
		}
		for _, r := range inspecttest.Readings {
			doc, ok := inspecttest.Parse(data, r)
			m, _ := doc.(map[string]any)
			if !ok || m["type"] != nil && m["type"] != string(d.typ) && !bytes.ContainsRune(d.typ, '\\') || m["item"] != nil || m["response"] != nil || m["part"] != nil {
				t.Fatalf("%q matches and reading %d finds %v", data, r, doc)
			}
			if n, _ := m["output_index"].(inspecttest.Number); string(n) != string(d.index.In(data)) {
				t.Fatalf("%q matches with the index %q and reading %d finds %q", data, d.index.In(data), r, n)
			}
		}
	})
}

// TestPlainDeltasReadAsTheLongWayReadsThem feeds each delta of the cases to
// both ways.
func TestPlainDeltasReadAsTheLongWayReadsThem(t *testing.T) {
	matched := 0
	for _, c := range loadAll(t, eventStream) {
		var in frame.SSE
		in.Max = 1 << 20
		in.Feed(c.ResponseBody, func(ev *frame.Event) error {
			d, ok := readDelta(ev.Data)
			if !ok || deltaTypes[string(d.typ)] == otherPart {
				return nil
			}
			matched++
			doc, _ := inspecttest.Parse(ev.Data, inspecttest.Readings[0])
			m := doc.(map[string]any)
			lit, _ := inspecttest.Parse(d.piece.In(ev.Data), inspecttest.Readings[0])
			if m["type"] != string(d.typ) || m["delta"] != lit {
				t.Errorf("%s: %s is read as a %s of %v", c.Name, ev.Data, d.typ, lit)
			}
			return nil
		})
	}
	if matched < 50 {
		t.Errorf("only %d deltas of the cases match the template", matched)
	}
}
