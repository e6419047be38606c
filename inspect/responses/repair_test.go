package responses

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"callgate/inspect"
	"callgate/inspect/inspecttest"
)

func TestRepairCases(t *testing.T) {
	inspecttest.RunRepair(t, repairing, "testdata/repair/*.txtar", inspecttest.Form{Ended: ended, Check: oneAnswer})
}

// ended reports whether the end of an answer was given out.
func ended(out []byte) bool {
	if doc := bytes.TrimSpace(out); len(doc) > 0 && doc[0] == '{' {
		return true
	}
	for line := range strings.Lines(string(out)) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			switch gjson.Get(data, "type").Str {
			case "response.completed", "response.incomplete", "response.failed", "error":
				return true
			}
		}
	}
	return false
}

// shownItems gives the items of an answer as a client keeps them: of one that
// did not end, those that did.
func shownItems(out []byte) (items []string, err error) {
	if doc := bytes.TrimSpace(out); len(doc) > 0 && doc[0] == '{' {
		if !json.Valid(doc) {
			return nil, fmt.Errorf("no JSON")
		}
		for _, item := range gjson.GetBytes(doc, "output").Array() {
			items = append(items, item.Raw)
		}
		return items, nil
	}
	var last gjson.Result
	id, next, numbered := "", int64(0), false
	done := map[int]bool{}
	for line := range strings.Lines(string(out)) {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		e := gjson.Parse(data)
		if !gjson.Valid(data) {
			return nil, fmt.Errorf("no JSON: %s", data)
		}
		if last.Exists() {
			return nil, fmt.Errorf("%s stands behind the end", data)
		}
		if n := e.Get("sequence_number"); next == 0 && n.Exists() || numbered {
			if numbered = true; n.Int() != next {
				return nil, fmt.Errorf("%s has another number than %d", data, next)
			}
			next++
		}
		if r := e.Get("response.id"); r.Exists() {
			if id == "" {
				id = r.Str
			}
			if r.Str != id {
				return nil, fmt.Errorf("%s has another id than %s", data, id)
			}
		}
		index := int(e.Get("output_index").Int())
		switch typ := e.Get("type").Str; typ {
		case "response.output_item.added":
			if index != len(items) {
				return nil, fmt.Errorf("item %d is added behind %d", index, len(items))
			}
			items = append(items, "")
		case "response.output_item.done":
			if index >= len(items) || done[index] {
				return nil, fmt.Errorf("item %d ends out of place", index)
			}
			items[index], done[index] = e.Get("item").Raw, true
		case "response.completed", "response.incomplete", "response.failed":
			last = e
			output := e.Get("response.output").Array()
			if len(output) != len(items) {
				return nil, fmt.Errorf("%d items came, and the end has %d", len(items), len(output))
			}
			for i, item := range output {
				if item.Raw != items[i] {
					return nil, fmt.Errorf("item %d came as %s and is at the end %s", i, items[i], item.Raw)
				}
			}
		case "error":
			last = e
		}
	}
	return slices.DeleteFunc(items, func(s string) bool { return s == "" }), nil
}

// outputOf are the results of calls, by the types of their items.
var outputOf = map[string]string{
	"function_call": `{"type":"function_call_output","call_id":%s,"output":"done"}`, "custom_tool_call": `{"type":"custom_tool_call_output","call_id":%s,"output":"done"}`,
	"local_shell_call": `{"type":"local_shell_call_output","id":%s,"output":"done"}`, "shell_call": `{"type":"shell_call_output","call_id":%s,"output":[]}`,
	"apply_patch_call": `{"type":"apply_patch_call_output","call_id":%s,"status":"completed"}`, "computer_call": `{"type":"computer_call_output","call_id":%s,"output":{}}`,
	"tool_search_call": `{"type":"tool_search_output","call_id":%s,"tools":[]}`, "mcp_approval_request": `{"type":"mcp_approval_response","approval_request_id":%s,"approve":true}`,
}

// resultsFor gives the results of the calls among items.
func resultsFor(items []string) (results []string) {
	for _, item := range items {
		e := gjson.Parse(item)
		if form := outputOf[e.Get("type").Str]; form != "" {
			id := e.Get("call_id")
			if !id.Exists() {
				id = e.Get("id")
			}
			results = append(results, fmt.Sprintf(form, id.Raw))
		}
	}
	return results
}

// oneAnswer checks that what was given out is one answer, that a history in
// which it stands is recognised by what is told, and that the history can be
// mended with it.
func oneAnswer(out []byte, told inspect.Told) error {
	items, err := shownItems(out)
	if err != nil {
		return err
	}
	if len(items) == 0 {
		return nil
	}
	results := resultsFor(items)
	if len(results) == 0 {
		results = []string{`{"role":"user","content":"and now?"}`}
	}
	all := slices.Concat([]string{`{"role":"user","content":"go"}`}, items, results)
	h, err := histOf(`{"model":"m","store":false,"input":[` + strings.Join(all, ",") + `]}`)
	if err != nil {
		return err
	}
	if len(told.Rounds) == 0 {
		return nil
	}
	if got := h.Shown(0); got != told.Shown {
		return fmt.Errorf("what was shown has the digest %x and %x is told", got, told.Shown)
	}
	if calls := h.Units()[0].Calls; !slices.Equal(calls, told.Unit.Calls) {
		return fmt.Errorf("the calls %q were shown and %q are told", calls, told.Unit.Calls)
	}
	for _, n := range told.Notices {
		if text, _ := json.Marshal(n); !bytes.Contains(out, text[1:len(text)-1]) {
			return fmt.Errorf("the notice %q was not shown", n)
		}
	}
	if !told.Mend {
		return nil
	}
	for _, m := range []inspect.Mend{{Rounds: told.Rounds}, {Rounds: told.Rounds, Edited: true, Notices: told.Notices}, {Rounds: told.Rounds, Unbind: true}} {
		mended, err := h.Edit(nil, map[int]inspect.Mend{0: m})
		if err != nil {
			return fmt.Errorf("it cannot be mended: %w", err)
		}
		if err := answered(mended); err != nil {
			return err
		}
		for _, n := range told.Notices {
			said := gjson.GetBytes(mended, `input.#(type=="message")#.content`).Raw
			if text, _ := json.Marshal(n); strings.Contains(said, string(text[1:len(text)-1])) && m.Edited {
				return fmt.Errorf("the notice %q is still there in %s", n, mended)
			}
		}
	}
	return nil
}

func histOf(body string) (inspect.History, error) {
	req, err := Dialect{}.Request(inspect.Head{Method: "POST", Path: "/v1/responses"}, []byte(body))
	if err != nil {
		return nil, err
	}
	return req.History()
}

// answered checks that behind each answer in a request stand the results of its
// calls, each of its kind and once, that reasoning stands before something of
// the model's, and that no id stands twice.
func answered(body []byte) error {
	if !json.Valid(body) {
		return fmt.Errorf("the mended request is no JSON: %s", body)
	}
	open := map[string]string{} // the type of the result that a call needs
	ids := map[string]bool{}
	pending := false // reasoning stands right before
	for _, item := range gjson.GetBytes(body, "input").Array() {
		typ := item.Get("type").Str
		if id := item.Get("id"); id.Exists() && typ != "local_shell_call_output" {
			if ids[id.Str] {
				return fmt.Errorf("the id %s stands twice in %s", id.Str, body)
			}
			ids[id.Str] = true
		}
		form, call := outputOf[typ]
		mine := call || typ == "reasoning" || item.Get("role").Str == "assistant" || strings.HasSuffix(typ, "_call")
		if pending && (!mine || typ == "reasoning") {
			return fmt.Errorf("reasoning stands before %s in %s", item.Raw, body)
		}
		pending = typ == "reasoning"
		switch {
		case call:
			id := item.Get("call_id")
			if !id.Exists() {
				id = item.Get("id")
			}
			open[id.Str] = gjson.Get(fmt.Sprintf(form, `""`), "type").Str
		case item.Get("role").Str == "user" && len(open) > 0:
			return fmt.Errorf("the calls %v have no result before %s in %s", open, item.Raw, body)
		case strings.HasSuffix(typ, "_output"), typ == "mcp_approval_response":
			id := item.Get("call_id").Str + item.Get("approval_request_id").Str
			if typ == "local_shell_call_output" {
				id = item.Get("id").Str
			}
			if open[id] != typ {
				return fmt.Errorf("%s answers no call in %s", item.Raw, body)
			}
			delete(open, id)
		}
	}
	if len(open) > 0 || pending {
		return fmt.Errorf("the calls %v have no result in %s", open, body)
	}
	return nil
}
