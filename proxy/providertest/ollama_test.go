package providertest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func askOllama(t *testing.T, p *Provider, body string) (status int, kind, answer string) {
	t.Helper()
	srv := httptest.NewServer(p)
	defer srv.Close()
	res, err := http.Post(srv.URL+"/api/chat", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header.Get("Content-Type"), string(b)
}

func TestOllamaRefusesHistoriesThatMakeNoSense(t *testing.T) {
	const (
		u    = `{"role":"user","content":"go"}`
		ab   = `{"role":"assistant","content":"","tool_calls":[{"id":"a","function":{"name":"f","arguments":{}}},{"id":"b","function":{"name":"g","arguments":{}}}]}`
		bare = `{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{}}},{"function":{"name":"g","arguments":{}}}]}`
		ra   = `{"role":"tool","tool_name":"f","tool_call_id":"a","content":"x"}`
		rb   = `{"role":"tool","tool_call_id":"b","content":"x"}`
	)
	for _, c := range []struct{ says, messages, want string }{
		{"a question", u, ""},
		{"results in order", u + "," + ab + "," + ra + "," + rb, ""},
		{"results without ids", u + "," + bare + `,{"role":"tool","content":"x"},{"role":"tool","tool_name":"g","content":"x"}`, ""},
		{"no messages", ``, "at least one message"},
		{"a result is missing", u + "," + ab + "," + ra, "1 calls of the last answer have no result"},
		{"a user speaks before the results", u + "," + ab + "," + ra + "," + u, "1 calls of the answer before it have no result"},
		{"results in another order", u + "," + ab + "," + rb + "," + ra, "that of {a f} is next"},
		{"a result of another tool", u + "," + bare + `,{"role":"tool","tool_name":"g","content":"x"}`, "that of { f} is next"},
		{"a result of no call", u + "," + ra, "no call before it waits"},
		{"one result too many", u + "," + ab + "," + ra + "," + rb + "," + rb, "no call before it waits"},
		{"an id twice", u + "," + strings.Replace(ab, `"b"`, `"a"`, 1), "duplicate value"},
		{"arguments as text", u + "," + strings.Replace(ab, `{}`, `"{}"`, 1), "an object is expected"},
		{"an empty answer", u + `,{"role":"assistant","content":" "}`, "says nothing"},
		{"an empty list of calls", u + `,{"role":"assistant","content":"x","tool_calls":[]}`, "a list of calls is expected"},
		{"two answers in a row", u + `,{"role":"assistant","content":"x"},{"role":"assistant","content":"y"}`, "in a row"},
		{"a role of nobody", `{"role":"developer","content":"x"}`, "is not one of"},
		{"a content of parts", `{"role":"user","content":[]}`, "of type string"},
	} {
		p := New(Script{{Say: []Item{Text("yes")}}, {Say: []Item{Text("yes")}}})
		status, _, answer := askOllama(t, p, `{"model":"m","messages":[`+c.messages+`]}`)
		if (status == 200) != (c.want == "") || !strings.Contains(answer, c.want) || len(p.Faults()) > 0 != (c.want != "") {
			t.Errorf("%s: %d %s, want %q", c.says, status, answer, c.want)
		}
	}
}

func TestOllamaAnswersInBothForms(t *testing.T) {
	script := Script{{Say: []Item{Thinking("hm hm"), Text("I do it."), Call{ID: "a", Name: "f", Args: `{"x":1}`}, Call{Name: "g", Args: `{}`}, Call{Name: "h", Args: `{}`}}}}
	type line struct {
		Message ollamaMessage
		Done    bool
		Reason  string `json:"done_reason"`
		Eval    int    `json:"eval_count"`
	}
	for _, stream := range []bool{true, false} {
		body, kind := `{"model":"m","messages":[{"role":"user","content":"go"}]}`, "application/x-ndjson"
		if !stream {
			body, kind = strings.Replace(body, `{`, `{"stream":false,`, 1), "application/json"
		}
		status, got, answer := askOllama(t, New(script), body)
		var m ollamaMessage
		lines, done := strings.Split(strings.TrimSuffix(answer, "\n"), "\n"), 0
		for _, s := range lines {
			var l line
			if err := json.Unmarshal([]byte(s), &l); err != nil {
				t.Fatal(err)
			}
			m.Content, m.Thinking, m.Calls = m.Content+l.Message.Content, m.Thinking+l.Message.Thinking, append(m.Calls, l.Message.Calls...)
			if l.Done && l.Reason == "stop" && l.Eval > 0 {
				done++
			}
		}
		if status != 200 || got != kind || m.Content != "I do it." || m.Thinking != "hm hm" || len(m.Calls) != 3 || done != 1 || m.Calls[2].Function.Index != 2 || stream == (len(lines) == 1) {
			t.Errorf("%d %s: %s", status, got, answer)
		}
	}
}
