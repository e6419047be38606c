package providertest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

func geminiHead() map[string]string {
	return map[string]string{"Content-Type": "application/json", "X-Goog-Api-Key": "k"}
}

const geminiTool = `"tools":[{"functionDeclarations":[{"name":"f","parameters":{"type":"OBJECT"}},{"name":"g"}]}]`

func TestGeminiIsStrict(t *testing.T) {
	const (
		u    = `{"role":"user","parts":[{"text":"go"}]}`
		sign = `,"thoughtSignature":"skip_thought_signature_validator"`
		a    = `{"functionCall":{"id":"a","name":"f","args":{}}` + sign + `}`
		b    = `{"functionCall":{"id":"b","name":"g","args":{}}}`
		bare = `{"functionCall":{"name":"f","args":{}}` + sign + `},{"functionCall":{"name":"f","args":{"x":1}}}`
		ra   = `{"functionResponse":{"id":"a","name":"f","response":{"output":"x"}}}`
		rb   = `{"functionResponse":{"id":"b","name":"g","response":{"error":"x"}}}`
		rf   = `{"functionResponse":{"name":"f","response":{}}}`
	)
	m := func(parts string) string { return `{"role":"model","parts":[` + parts + `]}` }
	r := func(parts string) string { return `{"role":"user","parts":[` + parts + `]}` }
	body := func(contents string) string { return `{` + geminiTool + `,"contents":[` + contents + `]}` }
	for _, c := range []struct{ says, body, fault string }{
		{"a question", body(u), ""},
		{"a content without a role", body(`{"parts":[{"text":"go"}]}`), ""},
		{"calls with their results", body(u + "," + m(`{"text":"so"},`+a+","+b) + "," + r(ra+","+rb)), ""},
		{"results in another order", body(u + "," + m(a+","+b) + "," + r(rb+","+ra)), ""},
		{"calls without ids", body(u + "," + m(bare) + "," + r(rf+","+rf)), ""},
		{"an answer in two contents", body(u + "," + m(a) + "," + m(b) + "," + r(ra+","+rb)), ""},
		{"calls behind results", body(u + "," + m(a) + "," + r(ra) + "," + m(a) + "," + r(ra)), ""},
		{"results with words", body(u + "," + m(a) + "," + r(ra+`,{"text":"be quick"}`)), ""},
		{"a call without a signature in an older answer", body(u + "," + m(b) + "," + r(rb) + "," + m(`{"text":"x"}`) + "," + u), ""},

		{"not JSON", `{"contents"`, "not valid JSON"},
		{"no contents", body(``), "contents is not specified"},
		{"an unknown key", `{"messages":[]}`, "not permitted"},
		{"an unknown role", body(`{"role":"assistant","parts":[{"text":"x"}]}`), "valid role"},
		{"no parts", body(`{"role":"user","parts":[]}`), "must not be empty"},
		{"an empty part", body(`{"role":"user","parts":[{}]}`), "must have one initialized field"},
		{"a part of thought alone", body(`{"role":"user","parts":[{"thought":true}]}`), "must have one initialized field"},
		{"a part of two kinds", body(u + "," + m(`{"text":"x","functionCall":{"name":"f"}}`)), "already set"},
		{"an unknown member of a part", body(`{"role":"user","parts":[{"type":"text","text":"x"}]}`), "not permitted"},
		{"a call of the user's", body(`{"role":"user","parts":[` + a + `]}`), "function call turn comes immediately after"},
		{"a call first", body(m(a) + "," + r(ra)), "function call turn comes immediately after"},
		{"a result of the model's", body(u + "," + m(ra)), "function response turn comes immediately after"},
		{"a result of no call", body(u + "," + r(ra)), "function response turn comes immediately after"},
		{"a result behind words", body(u + "," + m(a) + "," + r(ra) + "," + r(ra)), "function response turn comes immediately after"},
		{"a call without a result", body(u + "," + m(a)), "number of function response parts"},
		{"a call without a result before the user", body(u + "," + m(a) + "," + u), "number of function response parts"},
		{"a result is missing", body(u + "," + m(a+","+b) + "," + r(ra)), "number of function response parts"},
		{"a result too many", body(u + "," + m(a) + "," + r(ra+","+ra)), "number of function response parts"},
		{"a result with another name", body(u + "," + m(a) + "," + r(strings.Replace(ra, `"f"`, `"g"`, 1))), "no call of the function call turn"},
		{"a result without its id", body(u + "," + m(a) + "," + r(rf)), "no call of the function call turn"},
		{"a result without a name", body(u + "," + m(a) + "," + r(`{"functionResponse":{"id":"a","response":{}}}`)), "name"},
		{"a result that is a text", body(u + "," + m(a) + "," + r(strings.Replace(ra, `{"output":"x"}`, `"x"`, 1))), "Struct"},
		{"arguments that are a text", body(u + "," + m(strings.Replace(a, `{}`, `"{}"`, 1)) + "," + r(ra)), "Struct"},
		{"a call without a name", body(u + "," + m(strings.Replace(a, `"name":"f",`, ``, 1)) + "," + r(ra)), "name"},
		{"an id twice", body(u + "," + m(a+","+a) + "," + r(ra+","+ra)), "id of another call"},
		{"a first call without its signature", body(u + "," + m(b+","+a) + "," + r(ra+","+rb)), "missing a thought_signature"},
		{"a first call of a later answer without its signature", body(u + "," + m(a) + "," + r(ra) + "," + m(b) + "," + r(rb)), "missing a thought_signature"},
		{"a signature that nobody issued", body(u + "," + m(strings.Replace(a, "skip_thought_signature_validator", "eA==", 1)) + "," + r(ra)), "not valid"},
		{"nine candidates", `{"generationConfig":{"candidateCount":9},"contents":[` + u + `]}`, "range [1, 8]"},
		{"an unknown setting", `{"generationConfig":{"n":1},"contents":[` + u + `]}`, "not permitted"},
		{"a tool twice", `{"tools":[{"functionDeclarations":[{"name":"f"},{"name":"f"}]}],"contents":[` + u + `]}`, "Duplicate"},
		{"an unknown mode", `{` + geminiTool + `,"toolConfig":{"functionCallingConfig":{"mode":"any"}},"contents":[` + u + `]}`, "Invalid value"},
		{"allowed names beside no mode", `{` + geminiTool + `,"toolConfig":{"functionCallingConfig":{"mode":"AUTO","allowedFunctionNames":["f"]}},"contents":[` + u + `]}`, "allowed_function_names"},
		{"a call is wanted and none is there", `{"toolConfig":{"functionCallingConfig":{"mode":"ANY"}},"contents":[` + u + `]}`, "no function declarations"},
	} {
		t.Run(c.says, func(t *testing.T) {
			checkStrict(t, "/v1beta/models/m:generateContent", geminiHead(), c.body, c.fault)
		})
	}
	t.Run("two contents of the user's where roles take turns", func(t *testing.T) {
		p := New(say())
		if status, answer := ask(t, p, "/v1beta/models/m:generateContent", geminiHead(), body(u+","+u)); status != http.StatusBadRequest || !strings.Contains(answer, "alternate") {
			t.Errorf("%d %s", status, answer)
		}
	})
	t.Run("no key", func(t *testing.T) {
		p := New(say())
		head := geminiHead()
		delete(head, "X-Goog-Api-Key")
		if status, answer := ask(t, p, "/v1beta/models/m:generateContent", head, body(u)); status != http.StatusForbidden || !strings.Contains(answer, `"PERMISSION_DENIED"`) {
			t.Errorf("%d %s", status, answer)
		}
		if status, answer := ask(t, p, "/v1beta/models/m:generateContent?key=k", head, body(u)); status != http.StatusOK {
			t.Errorf("with a key in the query: %d %s", status, answer)
		}
	})
	t.Run("tokens", func(t *testing.T) {
		for _, body := range []string{body(u), `{"generateContentRequest":` + body(u) + `}`} {
			if status, answer := ask(t, New(nil), "/v1beta/models/m:countTokens", geminiHead(), body); status != http.StatusOK || !strings.HasPrefix(answer, `{"totalTokens":`) {
				t.Errorf("%d %s", status, answer)
			}
		}
	})
}

func TestGeminiAnswersInEachForm(t *testing.T) {
	script := Script{{Say: []Item{Thinking("hm hm"), Text("I do it."), Call{ID: "a", Name: "f", Args: `{"x":1}`}, Call{Name: "g", Args: `{}`}, Call{Name: "g", Args: `{}`}}}, {Say: []Item{Text("done")}}}
	const asks = `{` + geminiTool + `,"contents":[{"role":"user","parts":[{"text":"go"}]}]}`
	for _, c := range []struct{ path, kind, first string }{
		{"/v1beta/models/m:streamGenerateContent?alt=sse", "text/event-stream", "data: {"},
		{"/v1/models/m:streamGenerateContent", "application/json", "[{"},
		{"/v1/projects/p/locations/l/publishers/google/models/m:generateContent", "application/json", `{"candidates"`},
		{"/v1internal:streamGenerateContent?alt=sse", "text/event-stream", `data: {"response"`},
	} {
		body := asks
		if strings.HasPrefix(c.path, "/v1internal") {
			body = `{"model":"m","project":"p","request":` + asks + `}`
		}
		p := New(script)
		status, answer := ask(t, p, c.path, geminiHead(), body)
		if status != http.StatusOK || !strings.HasPrefix(answer, c.first) {
			t.Errorf("%s: %d %s", c.path, status, answer)
			continue
		}
		var docs []json.RawMessage
		switch answer[0] {
		case '[':
			if err := json.Unmarshal([]byte(answer), &docs); err != nil {
				t.Fatal(err)
			}
		case '{':
			docs = append(docs, json.RawMessage(answer))
		default:
			for _, event := range strings.Split(strings.TrimSuffix(answer, "\r\n\r\n"), "\r\n\r\n") {
				docs = append(docs, json.RawMessage(strings.TrimPrefix(event, "data: ")))
			}
		}
		text, thought, ends := "", "", 0
		var calls []geminiPart
		for i, d := range docs {
			var wrapped struct{ Response json.RawMessage }
			if err := json.Unmarshal(d, &wrapped); err != nil {
				t.Fatal(err)
			}
			if wrapped.Response != nil {
				d = wrapped.Response
			}
			var chunk geminiChunk
			if err := json.Unmarshal(d, &chunk); err != nil || chunk.Model != "m" || len(chunk.Candidates) != 1 {
				t.Fatalf("%v in %s", err, d)
			}
			for _, part := range chunk.Candidates[0].Content.Parts {
				switch {
				case part.Call != nil:
					calls = append(calls, part)
				case part.Thought:
					thought += *part.Text
				default:
					text += *part.Text
				}
			}
			if chunk.Candidates[0].Finish == "STOP" && i == len(docs)-1 && chunk.Usage.Answer > 0 {
				ends++
			}
		}
		if text != "I do it." || thought != "hm hm" || ends != 1 || len(calls) != 3 || calls[0].Sign == "" || calls[1].Sign != "" || calls[0].Call.ID != "a" {
			t.Errorf("%s: %s", c.path, answer)
			continue
		}
		// What it has signed it takes back.
		var history bytes.Buffer
		history.WriteString(`{` + geminiTool + `,"contents":[{"role":"user","parts":[{"text":"go"}]},{"role":"model","parts":`)
		history.Write(marshal(calls))
		history.WriteString(`},{"role":"user","parts":[{"functionResponse":{"id":"a","name":"f","response":{}}},{"functionResponse":{"name":"g","response":{}}},{"functionResponse":{"name":"g","response":{}}}]}]}`)
		if status, answer := ask(t, p, "/v1beta/models/m:generateContent", geminiHead(), history.String()); status != http.StatusOK || !strings.Contains(answer, "done") {
			t.Errorf("%s: asked again it answers %d %s", c.path, status, answer)
		}
	}
}
