package responses

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"callgate/inspect/inspecttest"
)

func loadAll(tb testing.TB, media string) (all []*inspecttest.Case) {
	tb.Helper()
	paths, _ := filepath.Glob(cases)
	for _, path := range paths {
		c, err := inspecttest.Load(path)
		if err != nil {
			tb.Fatal(err)
		}
		if strings.HasPrefix(c.Response.Header.Get("Content-Type"), media) {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		tb.Fatalf("no case has an answer of type %s", media)
	}
	return all
}

// snippets are what a hostile or broken server could put in.
var snippets = []string{
	`"arguments":"{\"x\":1}"`, `"arguments":""`, `"input":"x"`, `"input":{}`, `"name":"bash"`, `"name":"Bash"`, `"name":null`, `"id":"other"`, `"id":"fc_1"`,
	`"call_id":"call_zq9"`, `"item_id":"fc_1"`, `"item_id":"msg_0"`, `"output_index":0`, `"output_index":1`, `"sequence_number":0`,
	`"type":"function_call"`, `"type":"custom_tool_call"`, `"type":"message"`, `"type":"mcp_call"`, `"type":"shell_call"`, `"type":"output_text"`,
	`"type":"response.output_item.done"`, `"type":"response.output_text.delta"`, `"status":"completed"`, `"status":"in_progress"`,
	`"environment":{"type":"container"}`, `"execution":"server"`, `"namespace":"other"`, `"server_label":"git"`, `"action":{"commands":["x"]}`,
	`"action":{"type":"exec","command":["x"]}`, `"operation":{"type":"delete_file","path":"x"}`, `"actions":[{"type":"wait"}]`,
	`"item":{"type":"function_call","id":"e","call_id":"e","name":"bash","arguments":"{}","status":"completed"}`,
	`"item":{"type":"message","id":"e","role":"assistant","content":[{"type":"tool_use","name":"bash"}]}`,
	`"part":{"type":"tool_use","name":"bash","input":{}}`, `"part":{"type":"output_text","text":"x"}`, `"delta":"x"`,
	`"response":{"output":[{"type":"function_call","id":"e","call_id":"e","name":"bash","arguments":"{}"}]}`,
	`"output":[{"type":"function_call","id":"e","call_id":"e","name":"bash","arguments":"{}"}]`,
	`"content":[{"type":"tool_use","id":"e","name":"bash","input":{}}]`,
	`"tool_calls":[{"function":{"name":"evil","arguments":"{}"}}]`, `"tool_calls":"[]"`, `"function":{"name":"evil","arguments":"{}"}`,
	`"error":{"message":"x"}`, `"x":{"y":[]}`, `{"type":"function_call","id":"e","call_id":"e","name":"bash","arguments":"{}"}`,
	`{"type":"message","role":"assistant","content":[]}`, `{"type":"output_text","text":"x"}`, `null`,
}

// held gives a call of an item as "NAME ARGUMENTS", "" for an item that is none.
func heldCall(item map[string]any, args any) string {
	text := func(key string) string { s, _ := item[key].(string); return s }
	name := text("name")
	if space := text("namespace"); space != "" && space != "functions" {
		name = space + "." + name
	}
	switch item["type"] {
	case "function_call", "custom_tool_call":
	case "mcp_approval_request":
		if label := text("server_label"); label != "" && label != "functions" {
			name = label + "." + name
		}
	case "local_shell_call":
		name = "local_shell"
	case "shell_call":
		if env, _ := item["environment"].(map[string]any); env["type"] != nil && env["type"] != "" && env["type"] != "local" {
			return ""
		}
		name = "shell"
	case "apply_patch_call":
		name = "apply_patch"
	default:
		return ""
	}
	s, ok := args.(string)
	if !ok && args != nil {
		s = inspecttest.Written(args)
	}
	if strings.TrimSpace(s) == "" && item["type"] != "custom_tool_call" {
		s = "{}"
	}
	return name + " " + s
}

func argsOfItem(item map[string]any) any {
	switch item["type"] {
	case "custom_tool_call":
		return item["input"]
	case "local_shell_call", "shell_call":
		return item["action"]
	case "apply_patch_call":
		return item["operation"]
	}
	return item["arguments"]
}

// assembly is how one kind of client puts calls together from events.
type assembly struct {
	copies string // "done": it believes items that have ended, "end": the response that ends the stream, "pieces": the pieces, "arguments": their end
	byID   bool   // files pieces by the id of their item; otherwise by its index
}

func (a assembly) runs(data [][]byte, r inspecttest.Reading) (ran []string) {
	type open struct {
		item map[string]any
		args string
	}
	var order []*open
	filed := map[any]*open{}
	add := func(item map[string]any, args any) {
		if c := heldCall(item, args); c != "" {
			ran = append(ran, c)
		}
	}
	for _, d := range data {
		doc, _ := inspecttest.Parse(d, r)
		ev, _ := doc.(map[string]any)
		item, _ := ev["item"].(map[string]any)
		key := ev["output_index"]
		if a.byID {
			key = ev["item_id"]
		}
		switch typ, _ := ev["type"].(string); typ {
		case "response.output_item.added":
			if a.byID {
				key = item["id"]
			}
			o := &open{item: item}
			o.args, _ = argsOfItem(item).(string)
			filed[key] = o
			if item["type"] == "function_call" || item["type"] == "custom_tool_call" {
				order = append(order, o)
			}
		case "response.function_call_arguments.delta", "response.custom_tool_call_input.delta":
			if o := filed[key]; o != nil {
				piece, _ := ev["delta"].(string)
				o.args += piece
			}
		case "response.function_call_arguments.done", "response.custom_tool_call_input.done":
			if o := filed[key]; o != nil && a.copies == "arguments" {
				args := ev["arguments"]
				if args == nil {
					args = ev["input"]
				}
				add(o.item, args)
			}
		case "response.output_item.done":
			if a.copies == "done" {
				add(item, argsOfItem(item))
			}
		case "response.completed", "response.incomplete", "response.failed":
			response, _ := ev["response"].(map[string]any)
			output, _ := response["output"].([]any)
			for _, one := range output {
				if item, ok := one.(map[string]any); ok && a.copies == "end" {
					add(item, argsOfItem(item))
				}
			}
		}
	}
	if a.copies == "pieces" {
		for _, o := range order {
			if o.item["type"] == "function_call" && o.args != "" && !gjson.Valid(o.args) {
				continue // a call without its pieces, which no client can read
			}
			if o.args == "" {
				continue // it came in no pieces: such a client has nothing to run
			}
			add(o.item, o.args)
		}
	}
	return ran
}

func TestNoChangedStreamLetsACallPastItsJudge(t *testing.T) {
	inspecttest.Mutate(t, Dialect{}, eventStream, cases, 600, clientCalls, snippets, func(out []byte, r inspecttest.Reading) []string {
		var all []string
		for _, data := range inspecttest.Streams(out) {
			for _, copies := range []string{"done", "end", "pieces", "arguments"} {
				for _, byID := range []bool{false, true} {
					all = append(all, assembly{copies, byID}.runs(data, r)...)
				}
			}
		}
		return all
	})
}

func TestNoChangedDocumentLetsACallPastItsJudge(t *testing.T) {
	inspecttest.Mutate(t, Dialect{}, jsonBody, cases, 2000, clientCalls, snippets, func(out []byte, r inspecttest.Reading) (all []string) {
		doc, _ := inspecttest.Parse(out, r)
		top, _ := doc.(map[string]any)
		output, _ := top["output"].([]any)
		for _, one := range output {
			if item, ok := one.(map[string]any); ok {
				if c := heldCall(item, argsOfItem(item)); c != "" {
					all = append(all, c)
				}
			}
		}
		return all
	})
}

// TestTheTestsClientsRunTheCallsOfTheCases holds the clients above against
// answers that were not changed, so that they are not blind.
func TestTheTestsClientsRunTheCallsOfTheCases(t *testing.T) {
	for name, want := range map[string]int{"allowed": 2, "custom": 1, "shell": 1, "apply_patch": 1, "local_shell": 1, "mcp_approval": 1} {
		c, err := inspecttest.Load("testdata/" + name + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		data := inspecttest.Streams(c.ResponseBody)[0]
		for _, copies := range []string{"done", "end", "pieces"} {
			if copies == "pieces" && name != "allowed" && name != "custom" {
				continue
			}
			if ran := (assembly{copies: copies}).runs(data, inspecttest.LastKey); len(ran) != want {
				t.Errorf("%s, %s: %d calls are run: %s", name, copies, len(ran), fmt.Sprint(ran))
			}
		}
	}
}
