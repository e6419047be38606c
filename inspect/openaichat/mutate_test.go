package openaichat

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"callgate/inspect/inspecttest"
)

// snippets are what a hostile or broken server could put in.
var snippets = []string{
	`"tool_calls":[{"index":0,"id":"x","type":"function","function":{"name":"evil","arguments":"{\"x\":1}"}}]`,
	`"tool_calls":[{"id":"y","function":{"name":"evil","arguments":{"x":2}}}]`,
	`"tool_calls":{"name":"evil"}`,
	`"function_call":{"name":"evil","arguments":"{}"}`,
	`"function":{"name":"evil","arguments":"{}"}`,
	`"custom":{"name":"evil","input":"rm"}`,
	`"content":[{"type":"tool_use","id":"z","name":"evil","input":{}}]`,
	`"message":{"role":"assistant","tool_calls":[{"function":{"name":"evil","arguments":"{}"}}]}`,
	`"delta":{"tool_calls":[{"index":0,"function":{"name":"evil","arguments":"{}"}}]}`,
	`"choices":[{"delta":{"tool_calls":[{"index":1,"function":{"name":"evil","arguments":"{}"}}]}}]`,
	`"index":1`, `"index":0`, `"finish_reason":"tool_calls"`, `"finish_reason":"stop"`, `"name":"evil"`, `"arguments":"{}"`,
	`"arguments":{"x":3}`, `"id":"other"`, `"type":"custom"`, `"error":{"message":"x"}`, `"name":null`, `"x":{"y":[]}`,
	`{"index":0,"id":"w","type":"function","function":{"name":"evil","arguments":""}}`,
	`{"index":1,"id":"v","type":"function","function":{"name":"evil","arguments":"{}"}}`, `{"index":0,"function":{"arguments":"{\"x\":1}"}}`,
	`{"index":0,"id":"u"}`, `{"index":1,"function":{"name":"evil"}}`, `{"index":1,"function":{"arguments":"x"}}`, `{"index":0,"delta":{"content":"x"}}`, `null`, `"text"`, `{"type":"text","text":"x"}`,
}

// runs puts calls together as clients that go by the number of a call do. They
// read what stands in a choice by its own number, add arguments up and take the
// last name that is not empty.
func runs(data [][]byte, r inspecttest.Reading) []string {
	type assembled struct {
		name, args string
		text       bool
	}
	var order []string
	calls := map[string]*assembled{}
	at := func(key string) *assembled {
		if calls[key] == nil {
			calls[key] = &assembled{}
			order = append(order, key)
		}
		return calls[key]
	}
	for n, d := range data {
		if string(d) == doneData {
			break
		}
		doc, ok := inspecttest.Parse(d, r)
		top, isObject := doc.(map[string]any)
		if !ok || !isObject {
			continue
		}
		choices, _ := top["choices"].([]any)
		for _, c := range choices {
			ch, _ := c.(map[string]any)
			for _, k := range []string{"delta", "message"} {
				body, _ := ch[k].(map[string]any)
				list, _ := body["tool_calls"].([]any)
				for i, e := range list {
					entry, _ := e.(map[string]any)
					key := fmt.Sprintf("%v/%v", ch["index"], entry["index"])
					if entry["index"] == nil || k == "message" {
						key = fmt.Sprintf("%v/new %d.%d", ch["index"], n, i)
					}
					a := at(key)
					for _, inner := range []string{"function", "custom"} {
						fn, ok := entry[inner].(map[string]any)
						if !ok {
							continue
						}
						a.text = a.text || inner == "custom"
						name, _ := fn["name"].(string)
						args, _ := fn["arguments"].(string)
						input, _ := fn["input"].(string)
						if name != "" {
							a.name = name
						}
						a.args += args + input
					}
				}
			}
		}
	}
	var all []string
	for _, key := range order {
		a := calls[key]
		if !a.text && strings.TrimLeft(a.args, " \t\r\n") == "" {
			a.args = "{}"
		}
		all = append(all, a.name+" "+a.args)
	}
	return all
}

// runsInOrder puts calls together as clients do that look at no number: a call
// begins at an entry that begins accepts, and all else goes to the one that began
// last. Names that come in pieces are put together too.
func runsInOrder(data [][]byte, r inspecttest.Reading, begins func(id, name string) bool) []string {
	type assembled struct{ name, args string }
	var order []*assembled
	last := map[any]*assembled{}
	for _, d := range data {
		if string(d) == doneData {
			break
		}
		doc, _ := inspecttest.Parse(d, r)
		top, _ := doc.(map[string]any)
		choices, _ := top["choices"].([]any)
		for _, c := range choices {
			ch, _ := c.(map[string]any)
			body, _ := ch["delta"].(map[string]any)
			list, _ := body["tool_calls"].([]any)
			for _, e := range list {
				entry, _ := e.(map[string]any)
				fn, ok := entry["function"].(map[string]any)
				if !ok {
					continue
				}
				id, _ := entry["id"].(string)
				name, _ := fn["name"].(string)
				args, _ := fn["arguments"].(string)
				if begins(id, name) {
					last[ch["index"]] = &assembled{}
					order = append(order, last[ch["index"]])
				}
				if a := last[ch["index"]]; a != nil {
					a.name += name
					a.args += args
				}
			}
		}
	}
	var all []string
	for _, a := range order {
		if strings.TrimLeft(a.args, " \t\r\n") == "" {
			a.args = "{}"
		}
		if a.name != "" { // clients have no tool without a name
			all = append(all, a.name+" "+a.args)
		}
	}
	return all
}

// objectArgs reports whether an answer gives arguments as objects, which the
// client above does not put together.
func objectArgs(data [][]byte) bool {
	return slices.ContainsFunc(data, func(d []byte) bool {
		return strings.Contains(strings.ReplaceAll(string(d), " ", ""), `"arguments":{`)
	})
}

func TestNoChangedStreamLetsACallPastItsJudge(t *testing.T) {
	judged := func(out []byte, r inspecttest.Reading) []string {
		var all []string
		for _, data := range inspecttest.Streams(out) {
			if objectArgs(data) {
				continue
			}
			all = append(all, runs(data, r)...)
			all = append(all, runsInOrder(data, r, func(id, _ string) bool { return id != "" })...)
			all = append(all, runsInOrder(data, r, func(_, name string) bool { return name != "" })...)
		}
		return all
	}
	inspecttest.Mutate(t, Dialect{}, "text/event-stream", cases, 3000, clientCalls, snippets, judged)
	inspecttest.Mutate(t, repairing, "text/event-stream", cases, 1000, clientCalls, snippets, judged)
}

func TestNoChangedDocumentLetsACallPastItsJudge(t *testing.T) {
	judged := func(out []byte, r inspecttest.Reading) []string {
		if data := [][]byte{out}; !objectArgs(data) {
			return runs(data, r)
		}
		return nil
	}
	inspecttest.Mutate(t, Dialect{}, "application/json", cases, 2000, clientCalls, snippets, judged)
	inspecttest.Mutate(t, repairing, "application/json", cases, 1000, clientCalls, snippets, judged)
}
