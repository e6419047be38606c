package providertest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

func askResponses(t *testing.T, p *Provider, method, path, body string) (int, string) {
	t.Helper()
	srv := httptest.NewServer(p)
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer k")
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestResponsesIsStrict(t *testing.T) {
	const (
		u  = `{"role":"user","content":"go"}`
		a  = `{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}`
		b  = `{"type":"custom_tool_call","call_id":"b","name":"g","input":"x"}`
		l  = `{"type":"local_shell_call","id":"lsh_1","call_id":"l","action":{}}`
		q  = `{"type":"mcp_approval_request","id":"mcpr_q","name":"n","server_label":"s","arguments":"{}"}`
		ra = `{"type":"function_call_output","call_id":"a","output":"x"}`
		rb = `{"type":"custom_tool_call_output","call_id":"b","output":[{"type":"input_text","text":"x"}]}`
		rl = `{"type":"local_shell_call_output","id":"l","output":"x"}`
		rq = `{"type":"mcp_approval_response","approval_request_id":"mcpr_q","approve":false,"reason":"x"}`
		s  = `{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"hi"}]}`
	)
	tools := `"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],`
	for _, c := range []struct{ says, body, want string }{
		{"a text", `"input":"go"`, ""},
		{"items", `"input":[` + u + `]`, ""},
		{"results in any order", `"input":[` + u + `,` + a + `,` + b + `,` + rb + `,` + ra + `]`, ""},
		{"all kinds", `"input":[` + u + `,` + l + `,` + q + `,` + rl + `,` + rq + `]`, ""},
		{"two answers", `"input":[` + u + `,` + a + `,` + ra + `,` + s + `,` + u + `]`, ""},
		{"no input", `"store":true`, "Missing required parameter: 'input'"},
		{"an empty input", `"input":[]`, "empty array"},
		{"an unknown key", `"input":"x","x":1`, "not permitted"},
		{"a key twice", `"input":"x","input":"x"`, "stands twice"},
		{"an item of an unknown type", `"input":[{"type":"x"}]`, "Invalid value: 'x'"},
		{"a part of the other side", `"input":[{"role":"user","content":[{"type":"output_text","text":"x"}]}]`, "Supported values are: input_text"},
		{"an unknown key in an item", `"input":[` + u + `,` + strings.Replace(a, `{`, `{"x":1,`, 1) + `,` + ra + `]`, "not permitted"},
		{"a result is missing", `"input":[` + u + `,` + a + `]`, "No tool output found for function call a."},
		{"one of two is missing", `"input":[` + u + `,` + a + `,` + b + `,` + ra + `]`, "No tool output found for custom tool call b."},
		{"a user speaks before it", `"input":[` + u + `,` + a + `,` + u + `,` + ra + `]`, "No tool output found for function call a."},
		{"a result of no call", `"input":[` + u + `,` + ra + `]`, "No tool call found for function call output with call_id a."},
		{"a result of another type", `"input":[` + u + `,` + strings.Replace(b, `"b"`, `"a"`, 1) + `,` + ra + `]`, "is of another type"},
		{"a result twice", `"input":[` + u + `,` + a + `,` + ra + `,` + ra + `]`, "has its output already"},
		{"an id of a call twice", `"input":[` + u + `,` + a + `,` + a + `,` + ra + `]`, "duplicate value 'a'"},
		{"an id of an item twice", `"input":[` + u + `,` + s + `,` + u + `,` + s + `]`, "Duplicate item found with id msg_1"},
		{"an id of another kind", `"input":[` + strings.Replace(s, "msg_1", "fc_1", 1) + `]`, "Expected an ID that begins with 'msg'"},
		{"an id that is too long", `"input":[` + strings.Replace(s, "msg_1", "msg_"+strings.Repeat("x", 61), 1) + `]`, "at most 64 characters"},
		{"arguments that are no object", `"input":[` + strings.Replace(a, `"{}"`, `"[]"`, 1) + `]`, "not a JSON object"},
		{"reasoning of which nobody knows", `"input":[` + u + `,{"type":"reasoning","id":"rs_1","summary":[]},` + s + `]`, "Items are not persisted"},
		{"sealed reasoning that was never given", `"input":[` + u + `,{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"},` + s + `]`, "could not be verified"},
		{"an answer that is not kept", `"previous_response_id":"resp_x","input":"go"`, "not found"},
		{"both ways of going on", `"previous_response_id":"resp_x","conversation":"conv_1","input":"go"`, "Mutually exclusive"},
		{"a tool of nobody", `"input":"go","tools":[{"type":"x"}]`, "Invalid value: 'x'"},
		{"a choice of no tool", tools + `"tool_choice":{"type":"function","name":"g"},"input":"go"`, "not found in 'tools'"},
	} {
		p := NewSequential(Script{{Say: []Item{Text("yes")}}})
		status, answer := askResponses(t, p, "POST", "/v1/responses", `{"model":"m",`+c.body+`}`)
		if (status == 200) != (c.want == "") || !strings.Contains(answer, c.want) || len(p.Faults()) > 0 != (c.want != "") {
			t.Errorf("%s: %d %s, want %q", c.says, status, answer, c.want)
		}
	}
}

// What was said is held, checked like what is sent, and given to those who ask
// for it.
func TestResponsesHoldsWhatWasSaid(t *testing.T) {
	script := Script{
		{Say: []Item{Thinking("hm"), Text("I do it."), Call{ID: "a", Name: "f", Args: `{"x":1}`}, Call{ID: "b", Name: "p", Args: "text", Form: Custom}}},
		{Say: []Item{Text("Done.")}},
	}
	results := `{"type":"function_call_output","call_id":"a","output":"x"},{"type":"custom_tool_call_output","call_id":"b","output":"y"}`
	for _, way := range []string{"previous", "conversation", "sealed", "stored"} {
		p := New(script)
		more := map[string]string{"conversation": `"conversation":"conv_1",`, "sealed": `"store":false,"include":["reasoning.encrypted_content"],`}[way]
		status, answer := askResponses(t, p, "POST", "/v1/responses", `{"model":"m",`+more+`"input":"go"}`)
		doc := gjson.Parse(answer)
		if n := len(doc.Get("output").Array()); status != 200 || n != 4 || doc.Get("status").Str != "completed" {
			t.Fatalf("%d: %s", status, answer)
		}
		whole := `"input":[{"role":"user","content":"go"},` + strings.Trim(doc.Get("output").Raw, "[]") + `,` + results + `]`
		next := map[string]string{
			"previous":     `"previous_response_id":"` + doc.Get("id").Str + `","input":[` + results + `]`,
			"conversation": `"conversation":"conv_1","input":[` + results + `]`,
			"sealed":       `"store":false,` + whole,
			"stored":       whole,
		}[way]
		if _, answer := askResponses(t, p, "POST", "/v1/responses", `{"model":"m",`+strings.Replace(next, results, results[:strings.Index(results, "},")+1], 1)+`}`); !strings.Contains(answer, "No tool output found for custom tool call b.") {
			t.Errorf("%s: with one result it says %s", way, answer)
		}
		if way == "stored" {
			cut := strings.Replace(next, doc.Get("output.0").Raw+",", "", 1)
			if _, answer := askResponses(t, p, "POST", "/v1/responses", `{"model":"m",`+cut+`}`); !strings.Contains(answer, "without its required 'reasoning' item") {
				t.Errorf("without its reasoning it says %s", answer)
			}
		}
		status, answer = askResponses(t, p, "POST", "/v1/responses", `{"model":"m","stream":true,`+next+`}`)
		if status != 200 || !strings.Contains(answer, `"delta":"Done."`) || !strings.HasSuffix(answer, "}\n\n") || !strings.Contains(answer, "event: response.completed\n") {
			t.Errorf("%s: %d %s", way, status, answer)
		}
		status, answer = askResponses(t, p, "GET", "/v1/responses/"+doc.Get("id").Str, "")
		if kept := way != "sealed"; (status == 200) != kept || strings.Contains(answer, `"call_id":"a"`) != kept {
			t.Errorf("%s: fetched it is %d %s", way, status, answer)
		}
	}
}
