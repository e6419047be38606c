package anthropic

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"callgate/inspect/inspecttest"
)

// snippets are what a hostile or broken server could put in.
var snippets = []string{
	`"partial_json":"{\"x\":1}"`, `"partial_json":""`, `"input":{"x":1}`, `"input":{}`, `"name":"Bash"`, `"name":"bash"`, `"name":null`, `"id":"other"`,
	`"index":0`, `"index":1`, `"type":"tool_use"`, `"type":"text"`, `"type":"input_json_delta"`, `"type":"text_delta"`, `"type":"server_tool_use"`, `"x":{"y":[]}`,
	`"content_block":{"type":"tool_use","id":"e","name":"Bash","input":{}}`,
	`"content_block":{"type":"server_tool_use","id":"e","name":"bash","input":{}}`,
	`"delta":{"type":"input_json_delta","partial_json":"{\"x\":2}"}`,
	`"delta":{"type":"text_delta","text":"x"}`,
	`"content":[{"type":"tool_use","id":"e","name":"Bash","input":{}}]`,
	`"message":{"content":[{"type":"tool_use","id":"e","name":"Bash","input":{}}]}`,
	`"tool_calls":[{"function":{"name":"evil","arguments":"{}"}}]`, `"tool_calls":"[]"`, `"function":{"name":"evil","arguments":"{}"}`,
	`"stop_reason":"tool_use"`, `"stop_reason":"end_turn"`, `"error":{"message":"x"}`,
	`{"type":"tool_use","id":"e","name":"Bash","input":{}}`, `{"type":"text","text":"x"}`, `null`,
}

// assembly is how one kind of client puts calls together from events.
type assembly struct {
	byIndex bool // files pieces by their index; otherwise they go to the last call that started
	keeps   bool // does not let go of that call at the end of its block
	byKey   bool // takes any delta with partial_json for a piece, whatever its type
}

type assembled struct{ name, args string }

// runs gives the calls that such a client runs. It takes calls of the
// provider's for its own when they have the name of one of its tools.
func (a assembly) runs(data [][]byte, r inspecttest.Reading) []string {
	var all []*assembled
	var last *assembled
	blocks := map[any]*assembled{}
	for _, d := range data {
		doc, _ := inspecttest.Parse(d, r)
		ev, _ := doc.(map[string]any)
		switch ev["type"] {
		case "content_block_start":
			b, _ := ev["content_block"].(map[string]any)
			name, _ := b["name"].(string)
			delete(blocks, ev["index"])
			if b["type"] != "tool_use" && (b["type"] != "server_tool_use" && b["type"] != "mcp_tool_use" || !strings.EqualFold(name, "bash")) {
				continue
			}
			last = &assembled{name: name}
			if in, _ := b["input"].(map[string]any); len(in) > 0 {
				return nil // the arguments are not put together from pieces
			}
			all = append(all, last)
			blocks[ev["index"]] = last
		case "content_block_delta":
			body, _ := ev["delta"].(map[string]any)
			piece, _ := body["partial_json"].(string)
			c := last
			if a.byIndex {
				c = blocks[ev["index"]]
			}
			if c != nil && (a.byKey || body["type"] == "input_json_delta") {
				c.args += piece
			}
		case "content_block_stop":
			if !a.byIndex && !a.keeps {
				last = nil
			}
		}
	}
	var ran []string
	for _, c := range all {
		if c.args == "" {
			c.args = "{}"
		}
		if a.keeps && !gjson.Valid(c.args) {
			continue // two arguments in a row, which no client can read
		}
		ran = append(ran, c.name+" "+c.args)
	}
	return ran
}

func TestNoChangedStreamLetsACallPastItsJudge(t *testing.T) {
	inspecttest.Mutate(t, Dialect{}, eventStream, "testdata/*.txtar", 3000, findCalls, snippets, func(out []byte, r inspecttest.Reading) []string {
		var all []string
		for _, data := range inspecttest.Streams(out) {
			for _, a := range []assembly{{}, {byKey: true}, {keeps: true}, {keeps: true, byKey: true}, {byIndex: true}, {byIndex: true, byKey: true}} {
				all = append(all, a.runs(data, r)...)
			}
		}
		return all
	})
}

func TestNoChangedDocumentLetsACallPastItsJudge(t *testing.T) {
	inspecttest.Mutate(t, Dialect{}, jsonBody, "testdata/*.txtar", 2000, findCalls, snippets, nil)
}
