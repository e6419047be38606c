package providertest

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// say is a script that answers whatever is asked.
func say() Script {
	var s Script
	for range 6 {
		s = append(s, Turn{Say: []Item{Text("fine")}})
	}
	return s
}

// ask sends one request and returns the answer's status and body.
func ask(t *testing.T, p *Provider, path string, head map[string]string, body string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	for k, v := range head {
		if v != "" {
			r.Header.Set(k, v)
		}
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func chatHead() map[string]string {
	return map[string]string{"Content-Type": "application/json", "Authorization": "Bearer k"}
}

func messagesHead() map[string]string {
	return map[string]string{"Content-Type": "application/json", "X-Api-Key": "k", "Anthropic-Version": "2023-06-01"}
}

const (
	chatToolsJSON     = `"tools":[{"type":"function","function":{"name":"bash","parameters":{"type":"object"}}}]`
	messagesToolsJSON = `"tools":[{"name":"bash","input_schema":{"type":"object"}}]`
)

// chatMessages makes a request with tools around the messages.
func chatMessages(msgs string) string {
	return `{"model":"m",` + chatToolsJSON + `,"messages":[` + msgs + `]}`
}

// messagesMessages is the same for Messages.
func messagesMessages(msgs string) string {
	return `{"model":"m","max_tokens":9,` + messagesToolsJSON + `,"messages":[` + msgs + `]}`
}

func TestChatIsStrict(t *testing.T) {
	const (
		user = `{"role":"user","content":"hi"}`
		call = `{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"bash","arguments":"{}"}}]}`
		two  = `{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"bash","arguments":"{}"}},{"id":"b","type":"custom","custom":{"name":"sh","input":"ls"}}]}`
		resA = `{"role":"tool","tool_call_id":"a","content":"ok"}`
		resB = `{"role":"tool","tool_call_id":"b","content":[{"type":"text","text":"ok"}]}`
		old  = `{"role":"assistant","content":null,"function_call":{"name":"bash","arguments":"{}"}}`
	)
	tests := []struct {
		name, body string
		fault      string // "" when the request is fine
	}{
		{"a first message", chatMessages(user), ""},
		{"a call with its result", chatMessages(user + "," + call + "," + resA), ""},
		{"two calls answered in the other order", chatMessages(user + "," + two + "," + resB + "," + resA), ""},
		{"an id used again in a later turn", chatMessages(user + "," + call + "," + resA + "," + call + "," + resA), ""},
		{"a legacy call with its result", chatMessages(user + "," + old + `,{"role":"function","name":"bash","content":"ok"}`), ""},
		{"a named tool choice", `{"model":"m",` + chatToolsJSON + `,"tool_choice":{"type":"function","function":{"name":"bash"}},"messages":[` + user + `]}`, ""},
		{"usage in a stream", `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[` + user + `]}`, ""},

		{"not JSON", `{"model":"m"`, "not valid JSON"},
		{"two documents", chatMessages(user) + `{}`, "behind the JSON body"},
		{"an array", `[]`, "not a JSON object"},
		{"bad UTF-8", "{\"model\":\"\xff\"}", "not valid UTF-8"},
		{"a key twice", `{"model":"m","model":"n","messages":[` + user + `]}`, "stands twice"},
		{"an unknown key", `{"model":"m","mesages":[],"messages":[` + user + `]}`, "not permitted"},
		{"no model", `{"messages":[` + user + `]}`, "model"},
		{"no messages", `{"model":"m","messages":[]}`, "too short - 'messages'"},
		{"stream as a word", `{"model":"m","stream":"yes","messages":[` + user + `]}`, "valid boolean"},
		{"usage wanted without a stream", `{"model":"m","stream_options":{"include_usage":true},"messages":[` + user + `]}`, "only allowed when 'stream'"},
		{"no choice at all", `{"model":"m","n":0,"messages":[` + user + `]}`, "at least 1"},
		{"too many choices", `{"model":"m","n":129,"messages":[` + user + `]}`, "at most 128"},
		{"an empty list of tools", `{"model":"m","tools":[],"messages":[` + user + `]}`, "too short - 'tools'"},
		{"a tool of an unknown type", `{"model":"m","tools":[{"type":"shell"}],"messages":[` + user + `]}`, "supported values"},
		{"a tool without a name", `{"model":"m","tools":[{"type":"function","function":{}}],"messages":[` + user + `]}`, "name"},
		{"a tool with a name with spaces", `{"model":"m","tools":[{"type":"function","function":{"name":"a b"}}],"messages":[` + user + `]}`, "pattern"},
		{"a tool with a schema that is no object", `{"model":"m","tools":[{"type":"function","function":{"name":"a","parameters":{"type":"array"}}}],"messages":[` + user + `]}`, "type object"},
		{"the same tool twice", `{"model":"m","tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"a"}}],"messages":[` + user + `]}`, "declared twice"},
		{"parallel calls without tools", `{"model":"m","parallel_tool_calls":true,"messages":[` + user + `]}`, "only allowed when 'tools'"},
		{"a tool choice without tools", `{"model":"m","tool_choice":"auto","messages":[` + user + `]}`, "only allowed when 'tools'"},
		{"a tool choice of an unknown word", `{"model":"m",` + chatToolsJSON + `,"tool_choice":"any","messages":[` + user + `]}`, "not one of"},
		{"a tool choice that names no tool", `{"model":"m",` + chatToolsJSON + `,"tool_choice":{"type":"function","function":{"name":"zsh"}},"messages":[` + user + `]}`, "not found"},
		{"an unknown role", chatMessages(`{"role":"model","content":"x"}`), "role"},
		{"a call without a result at the end", chatMessages(user + "," + call), "did not have response messages: a"},
		{"a call without a result before the user", chatMessages(user + "," + call + "," + user), "did not have response messages: a"},
		{"one of two calls without a result", chatMessages(user + "," + two + "," + resB + "," + user), "did not have response messages: a"},
		{"a result behind the user's next message", chatMessages(user + "," + call + "," + user + "," + resA), "did not have response messages"},
		{"a result without a call", chatMessages(user + "," + resA), "preceding message"},
		{"a result of an older call", chatMessages(user + "," + call + "," + resA + `,{"role":"assistant","content":"x"},` + resA), "preceding message"},
		{"a result with another id", chatMessages(user + "," + call + "," + resB), "not found in 'tool_calls'"},
		{"a second result", chatMessages(user + "," + call + "," + resA + "," + resA), "its result already"},
		{"a result without content", chatMessages(user + "," + call + `,{"role":"tool","tool_call_id":"a"}`), "content"},
		{"a result without an id", chatMessages(user + "," + call + `,{"role":"tool","content":"x"}`), "tool_call_id"},
		{"an id twice in a turn", chatMessages(user + "," + strings.ReplaceAll(two, `"id":"b"`, `"id":"a"`) + "," + resA), "duplicate value"},
		{"a call without an id", chatMessages(user + "," + strings.Replace(call, `"id":"a",`, ``, 1) + "," + resA), "id"},
		{"a call with an empty id", chatMessages(user + "," + strings.Replace(call, `"id":"a"`, `"id":""`, 1) + "," + resA), "id"},
		{"a call of an unknown type", chatMessages(user + "," + strings.Replace(call, `"type":"function"`, `"type":"shell"`, 1) + "," + resA), "not permitted"},
		{"a call without a name", chatMessages(user + "," + strings.Replace(call, `"name":"bash",`, ``, 1) + "," + resA), "name"},
		{"a call with an index in the history", chatMessages(user + "," + strings.Replace(call, `"id":"a"`, `"index":0,"id":"a"`, 1) + "," + resA), "not permitted"},
		{"arguments that are an object", chatMessages(user + "," + strings.Replace(call, `"{}"`, `{}`, 1) + "," + resA), "arguments"},
		{"arguments that are no JSON", chatMessages(user + "," + strings.Replace(call, `"{}"`, `"{"`, 1) + "," + resA), "not a JSON object"},
		{"an empty list of calls", chatMessages(user + `,{"role":"assistant","content":"x","tool_calls":[]}`), "too short"},
		{"an answer with nothing in it", chatMessages(user + `,{"role":"assistant","content":null}`), "got null"},
		{"an empty list of parts", chatMessages(`{"role":"user","content":[]}`), "too short"},
		{"an empty text part", chatMessages(`{"role":"user","content":[{"type":"text","text":""}]}`), "non-empty"},
		{"an unknown part", chatMessages(`{"role":"user","content":[{"type":"tool_use"}]}`), "invalid value"},
		{"a part of the other wire in an answer", chatMessages(user + `,{"role":"assistant","content":[{"type":"tool_use","id":"a"}]}`), "invalid value"},
		{"a legacy call without its result", chatMessages(user + "," + old), "no function message"},
		{"a legacy call before the user", chatMessages(user + "," + old + "," + user), "no function message"},
		{"a legacy result with another name", chatMessages(user + "," + old + `,{"role":"function","name":"zsh","content":"ok"}`), "same name"},
		{"a legacy result without a call", chatMessages(user + `,{"role":"function","name":"bash","content":"ok"}`), "preceding message"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checkStrict(t, "/v1/chat/completions", chatHead(), tt.body, tt.fault)
		})
	}
}

func checkStrict(t *testing.T, path string, head map[string]string, body, fault string) {
	t.Helper()
	p := New(say())
	p.Alternate = false
	status, answer := ask(t, p, path, head, body)
	if fault == "" {
		if status != http.StatusOK || len(p.Faults()) != 0 {
			t.Fatalf("refused with %d: %s", status, answer)
		}
		return
	}
	if status/100 != 4 {
		t.Fatalf("got status %d, want a refusal", status)
	}
	if f := p.Faults(); len(f) != 1 || !strings.Contains(f[0], fault) {
		t.Errorf("the recorded reason %q does not hold %q", f, fault)
	}
	if !strings.Contains(answer, `"error"`) {
		t.Errorf("the body is not an error: %s", answer)
	}
}

func TestMessagesIsStrict(t *testing.T) {
	const (
		user = `{"role":"user","content":"hi"}`
		sys  = `{"role":"system","content":"be brief"}`
		call = `{"role":"assistant","content":[{"type":"text","text":"so"},{"type":"tool_use","id":"a","name":"bash","input":{}}]}`
		two  = `{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"bash","input":{}},{"type":"tool_use","id":"b","name":"bash","input":{}}]}`
		resA = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"ok","is_error":false,"cache_control":{"type":"ephemeral"}}]}`
		resB = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"b"}]}`
		both = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"b"},{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"ok"}]},{"type":"text","text":"and"}]}`
	)
	tests := []struct{ name, body, fault string }{
		{"a first message", messagesMessages(user), ""},
		{"a call with its result", messagesMessages(user + "," + call + "," + resA), ""},
		{"two calls with results and text behind them", messagesMessages(user + "," + two + "," + both), ""},
		{"results in two user messages in a row", messagesMessages(user + "," + two + "," + resA + "," + resB), ""},
		{"a message of the system's at the end", messagesMessages(user + "," + sys), ""},
		{"a message of the system's with settings and tools", messagesMessages(user + `,{"role":"system","output_config":{"effort":"low"},"content":[{"type":"tool_removal","tool":{"type":"tool_reference","name":"bash"}},{"type":"text","text":"x"}]}`), ""},
		{"messages of the system's before answers", messagesMessages(user + "," + sys + "," + call + "," + resA + "," + sys + `,{"role":"assistant","content":"x"},` + user), ""},
		{"one behind a tool of the provider's", messagesMessages(user + `,{"role":"assistant","content":[{"type":"server_tool_use"},{"type":"web_search_tool_result"}]},` + sys), ""},
		{"an answer to go on with", messagesMessages(user + `,{"role":"assistant","content":"so"}`), ""},
		{"a typed tool", `{"model":"m","max_tokens":9,"tools":[{"type":"bash_20250124","name":"bash"}],"tool_choice":{"type":"tool","name":"bash"},"messages":[` + user + `]}`, ""},
		{"thinking", `{"model":"m","max_tokens":3000,"thinking":{"type":"enabled","budget_tokens":2000},"messages":[` + user + `]}`, ""},

		{"not JSON", `{`, "not valid JSON"},
		{"a key twice", `{"model":"m","max_tokens":9,"max_tokens":8,"messages":[` + user + `]}`, "stands twice"},
		{"an unknown key", `{"model":"m","max_tokens":9,"n":2,"messages":[` + user + `]}`, "not permitted"},
		{"no max_tokens", `{"model":"m","messages":[` + user + `]}`, "max_tokens: field required"},
		{"max_tokens of nothing", `{"model":"m","max_tokens":0,"messages":[` + user + `]}`, "at least 1"},
		{"no model", `{"max_tokens":9,"messages":[` + user + `]}`, "model"},
		{"no messages", messagesMessages(``), "at least one message"},
		{"an answer first", messagesMessages(`{"role":"assistant","content":"x"},` + user), "first message"},
		{"settings in a message of the user's", messagesMessages(`{"role":"user","output_config":{"effort":"low"},"content":"x"}`), "not permitted"},
		{"an unknown role", messagesMessages(`{"role":"developer","content":"x"},` + user), "'user', 'assistant' or 'system'"},
		{"a message of the system's first", messagesMessages(sys + "," + user), "initial system prompt"},
		{"a message of the system's before the user", messagesMessages(user + "," + sys + "," + user), "messages.1: role 'system' must precede"},
		{"two messages of the system's in a row", messagesMessages(user + "," + sys + "," + sys), "messages.1: role 'system' must precede"},
		{"a message of the system's behind an answer", messagesMessages(user + `,{"role":"assistant","content":"x"},` + sys), "messages.2: role 'system' must follow"},
		{"a message of the system's between a call and its result", messagesMessages(user + "," + call + "," + sys + "," + resA), "must follow"},
		{"a result in a message of the system's", messagesMessages(user + `,{"role":"system","content":[{"type":"tool_result","tool_use_id":"a"}]}`), "does not match any"},
		{"a message with a name", messagesMessages(`{"role":"user","name":"u","content":"x"}`), "not permitted"},
		{"an empty content", messagesMessages(`{"role":"user","content":""}`), "non-empty content"},
		{"an empty list of blocks", messagesMessages(`{"role":"user","content":[]}`), "non-empty content"},
		{"a content that is a number", messagesMessages(`{"role":"user","content":1}`), "valid string or list"},
		{"an empty text block", messagesMessages(`{"role":"user","content":[{"type":"text","text":""}]}`), "must be non-empty"},
		{"a text block of white space", messagesMessages(`{"role":"user","content":[{"type":"text","text":" \n"}]}`), "non-whitespace"},
		{"an empty text block in an answer", messagesMessages(user + `,{"role":"assistant","content":[{"type":"text","text":""}]},` + user), "must be non-empty"},
		{"a text block of white space at the end of an answer", messagesMessages(user + `,{"role":"assistant","content":[{"type":"text","text":"x"},{"type":"text","text":"\n\n"}]},` + user), "non-whitespace"},
		{"white space at the end of what to go on with", messagesMessages(user + `,{"role":"assistant","content":"so "}`), "trailing whitespace"},
		{"an unknown block", messagesMessages(`{"role":"user","content":[{"type":"function"}]}`), "does not match any"},
		{"a call in a user message", messagesMessages(`{"role":"user","content":[{"type":"tool_use","id":"a","name":"bash","input":{}}]}`), "does not match any"},
		{"a result in an answer", messagesMessages(user + `,{"role":"assistant","content":[{"type":"tool_result","tool_use_id":"a"}]}`), "does not match any"},
		{"an empty system block", `{"model":"m","max_tokens":9,"system":[{"type":"text","text":""}],"messages":[` + user + `]}`, "must be non-empty"},
		{"a call without a result at the end", messagesMessages(user + "," + call), "without `tool_result` blocks immediately after: a"},
		{"a call without a result before the user", messagesMessages(user + "," + call + "," + user), "immediately after: a"},
		{"one of two calls without a result", messagesMessages(user + "," + two + "," + resB), "immediately after: a"},
		{"a result without a call", messagesMessages(resA), "unexpected `tool_use_id`"},
		{"a result of an older call", messagesMessages(user + "," + call + "," + resA + `,{"role":"assistant","content":"x"},` + resA), "unexpected `tool_use_id`"},
		{"a result with another id", messagesMessages(user + "," + call + "," + resB), "unexpected `tool_use_id`"},
		{"a second result", messagesMessages(user + "," + call + "," + resA + "," + resA), "single result"},
		{"text before a result", messagesMessages(user + "," + call + `,{"role":"user","content":[{"type":"text","text":"x"},{"type":"tool_result","tool_use_id":"a"}]}`), "must come first"},
		{"a result without an id", messagesMessages(user + "," + call + `,{"role":"user","content":[{"type":"tool_result"}]}`), "tool_use_id"},
		{"a failed result without words", messagesMessages(user + "," + call + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","is_error":true}]}`), "cannot be empty"},
		{"an empty text in a result", messagesMessages(user + "," + call + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":""}]}]}`), "must be non-empty"},
		{"an unknown part in a result", messagesMessages(user + "," + call + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"tool_use"}]}]}`), "does not match any"},
		{"an id twice in a turn", messagesMessages(user + "," + strings.ReplaceAll(two, `"id":"b"`, `"id":"a"`) + "," + resA), "must be unique"},
		{"an id twice in a conversation", messagesMessages(user + "," + call + "," + resA + "," + call + "," + resA), "must be unique"},
		{"an id with a colon", messagesMessages(user + "," + strings.Replace(call, `"id":"a"`, `"id":"a:0"`, 1) + "," + resA), "pattern"},
		{"a call without a name", messagesMessages(user + "," + strings.Replace(call, `"name":"bash",`, ``, 1) + "," + resA), "name"},
		{"an input that is a string", messagesMessages(user + "," + strings.Replace(call, `"input":{}`, `"input":"{}"`, 1) + "," + resA), "valid dictionary"},
		{"an input that is an array", messagesMessages(user + "," + strings.Replace(call, `"input":{}`, `"input":[]`, 1) + "," + resA), "valid dictionary"},
		{"a call without an input", messagesMessages(user + "," + strings.Replace(call, `,"input":{}`, ``, 1) + "," + resA), "valid dictionary"},
		{"calls without tools", `{"model":"m","max_tokens":9,"messages":[` + user + "," + call + "," + resA + `]}`, "must define tools"},
		{"a tool without a schema", `{"model":"m","max_tokens":9,"tools":[{"name":"a"}],"messages":[` + user + `]}`, "input_schema"},
		{"a tool of an unknown type", `{"model":"m","max_tokens":9,"tools":[{"type":"function","name":"a"}],"messages":[` + user + `]}`, "does not match any"},
		{"the same tool twice", `{"model":"m","max_tokens":9,"tools":[{"name":"a","input_schema":{"type":"object"}},{"name":"a","input_schema":{"type":"object"}}],"messages":[` + user + `]}`, "must be unique"},
		{"a tool choice without tools", `{"model":"m","max_tokens":9,"tool_choice":{"type":"auto"},"messages":[` + user + `]}`, "while providing tools"},
		{"a tool choice of an unknown word", `{"model":"m","max_tokens":9,` + messagesToolsJSON + `,"tool_choice":{"type":"required"},"messages":[` + user + `]}`, "not one of"},
		{"a tool choice that names no tool", `{"model":"m","max_tokens":9,` + messagesToolsJSON + `,"tool_choice":{"type":"tool","name":"zsh"},"messages":[` + user + `]}`, "not found"},
		{"a thinking budget above the limit", `{"model":"m","max_tokens":1500,"thinking":{"type":"enabled","budget_tokens":2000},"messages":[` + user + `]}`, "must be greater"},
		{"thinking and a forced tool", `{"model":"m","max_tokens":1500,` + messagesToolsJSON + `,"tool_choice":{"type":"any"},"thinking":{"type":"adaptive"},"messages":[` + user + `]}`, "forces tool use"},
		{"thinking that nobody issued", messagesMessages(user + `,{"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"eA=="},{"type":"text","text":"y"}]},` + user), "invalid `signature`"},
		{"thinking without a signature", messagesMessages(user + `,{"role":"assistant","content":[{"type":"thinking","thinking":"x"}]},` + user), "signature"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checkStrict(t, "/v1/messages", messagesHead(), tt.body, tt.fault)
		})
	}
}

// The headers are looked at before anything else.
func TestHeadersAreChecked(t *testing.T) {
	const user = `{"role":"user","content":"hi"}`
	tests := []struct {
		name, path, header, value string
		status                    int
		fault                     string
	}{
		{"chat without a key", "/v1/chat/completions", "Authorization", "", 401, "API key"},
		{"chat with another scheme", "/v1/chat/completions", "Authorization", "Basic eDp5", 401, "API key"},
		{"chat without a content type", "/v1/chat/completions", "Content-Type", "", 400, "content type"},
		{"chat as text", "/v1/chat/completions", "Content-Type", "text/plain", 400, "content type"},
		{"chat in another charset", "/v1/chat/completions", "Content-Type", "application/json; charset=utf-16", 400, "content type"},
		{"chat with an unknown coding", "/v1/chat/completions", "Content-Encoding", "compress", 415, "not known"},
		{"chat that is not the gzip it says", "/v1/chat/completions", "Content-Encoding", "gzip", 400, "not gzip"},
		{"messages without a key", "/v1/messages", "X-Api-Key", "", 401, "x-api-key"},
		{"messages without a version", "/v1/messages", "Anthropic-Version", "", 400, "header is required"},
		{"messages of another version", "/v1/messages", "Anthropic-Version", "2024-01-01", 400, "not a valid version"},
		{"another path", "/v1/complete", "X-Api-Key", "k", 404, "unknown path"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			head, body := chatHead(), chatMessages(user)
			if strings.HasSuffix(tt.path, "/messages") {
				head, body = messagesHead(), messagesMessages(user)
			}
			head[tt.header] = tt.value
			p := New(say())
			status, answer := ask(t, p, tt.path, head, body)
			if status != tt.status || len(p.Faults()) != 1 || !strings.Contains(p.Faults()[0], tt.fault) {
				t.Errorf("got %d, %q: %s", status, p.Faults(), answer)
			}
		})
	}
	p := New(say())
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/messages", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET gave %d", w.Code)
	}
}

// Thinking has to come back as it was issued, and behind what it was issued for.
func TestThinkingIsRemembered(t *testing.T) {
	script := Script{
		{Say: []Item{Thinking("let me see"), Call{ID: "a", Name: "bash", Args: `{"command":"ls"}`}}},
		{Say: []Item{Text("done")}},
		{Say: []Item{Text("yes")}},
	}
	const (
		user  = `{"role":"user","content":"hi"}`
		think = `{"type":"thinking","thinking":"let me see","signature":"SIGN"}`
		use   = `{"type":"tool_use","id":"a","name":"bash","input":{"command":"ls"}}`
		res   = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"x"}]}`
	)
	answer := func(blocks string) string { return `{"role":"assistant","content":[` + blocks + `]}` }
	tests := []struct{ name, msgs, fault string }{
		{"as it was", user + "," + answer(think+","+use) + "," + res, ""},
		{"marked for the cache around it", `{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]},` + answer(think+","+use) + "," + res, ""},
		{"left out of a finished turn", user + "," + answer(use) + "," + res + `,{"role":"assistant","content":"done"},` + user, ""},
		{"left out", user + "," + answer(use) + "," + res, "cannot be modified"},
		{"left out and words in its place", user + "," + answer(`{"type":"text","text":"x"},`+use) + "," + res, "cannot be modified"},
		{"changed", user + "," + answer(strings.Replace(think, "see", "be", 1)+","+use) + "," + res, "invalid `signature`"},
		{"with a changed signature", user + "," + answer(strings.Replace(think, "SIGN", "eA==", 1)+","+use) + "," + res, "invalid `signature`"},
		{"twice", user + "," + answer(think+","+think+","+use) + "," + res, "cannot be modified"},
		{"behind another history", `{"role":"user","content":"ho"},` + answer(think+","+use) + "," + res, "prefix_binding_mismatch"},
		{"marked for the cache", user + "," + answer(strings.Replace(think, `"type"`, `"cache_control":{"type":"ephemeral"},"type"`, 1)+","+use) + "," + res, "not permitted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := New(script)
			status, first := ask(t, p, "/v1/messages", messagesHead(), messagesMessages(user))
			if status != http.StatusOK {
				t.Fatal(first)
			}
			_, rest, _ := strings.Cut(first, `"signature":"`)
			sign, _, _ := strings.Cut(rest, `"`)
			_, body := ask(t, p, "/v1/messages", messagesHead(), thinking(messagesMessages(strings.ReplaceAll(tt.msgs, "SIGN", sign))))
			switch f := p.Faults(); {
			case tt.fault == "" && len(f) > 0:
				t.Errorf("refused: %s", body)
			case tt.fault != "" && (len(f) != 1 || !strings.Contains(f[0], tt.fault)):
				t.Errorf("got %q, want %q", f, tt.fault)
			}
		})
	}
	t.Run("left out where no thinking is wanted", func(t *testing.T) {
		p := New(script)
		if status, first := ask(t, p, "/v1/messages", messagesHead(), messagesMessages(user)); status != http.StatusOK {
			t.Fatal(first)
		}
		if status, body := ask(t, p, "/v1/messages", messagesHead(), messagesMessages(user+","+answer(use)+","+res)); status != http.StatusOK {
			t.Errorf("refused: %s", body)
		}
	})
	t.Run("left out where thinking is on", func(t *testing.T) {
		p := New(script)
		body := `{"model":"m","max_tokens":3000,"thinking":{"type":"enabled","budget_tokens":2000},` + messagesToolsJSON +
			`,"messages":[` + user + "," + answer(strings.Replace(use, `"a"`, `"z"`, 1)) + "," + strings.Replace(res, `"a"`, `"z"`, 1) + `]}`
		if _, out := ask(t, p, "/v1/messages", messagesHead(), body); len(p.Faults()) != 1 || !strings.Contains(p.Faults()[0], "must start with a thinking block") {
			t.Errorf("got %q: %s", p.Faults(), out)
		}
	})
}

// Any body is answered with a status, and only a sound one with 200.
func FuzzCheck(f *testing.F) {
	f.Add("/v1/chat/completions", []byte(chatMessages(`{"role":"user","content":"hi"}`)))
	f.Add("/v1/messages", []byte(messagesMessages(`{"role":"user","content":"hi"}`)))
	f.Add("/v1/messages", []byte(messagesMessages(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}]}`)))
	f.Add("/v1/chat/completions", []byte(`{"model":"m","messages":[{"role":"assistant","tool_calls":[null]}]}`))
	f.Add("/v1/messages", []byte(`{"model":"m","max_tokens":9,"thread":{"type":"continue","previous_message_id":"x"},"messages":[]}`))
	f.Add("/v1/messages/count_tokens", []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`))
	f.Add("/v1beta/models/m:generateContent", []byte(`{"contents":[{"role":"user","parts":[{"text":"go"}]},{"role":"model","parts":[{"functionCall":{"name":"f"}}]},{"parts":[{"functionResponse":{"name":"f","response":{}}}]}]}`))
	f.Add("/v1internal:streamGenerateContent", []byte(`{"model":"m","request":{"contents":[{"parts":[null]}]}}`))
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		head := messagesHead()
		head["Authorization"] = "Bearer k"
		head["Anthropic-Beta"] = threadBeta
		if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " ?#%") || len(path) > 60 {
			path = "/v1/messages"
		}
		for _, c := range path {
			if c < '!' || c > '~' {
				path = "/v1/messages"
			}
		}
		p := New(say())
		status, _ := ask(t, p, path, head, string(body))
		if (status == http.StatusOK) != (len(p.Faults()) == 0) {
			t.Errorf("status %d with faults %q", status, p.Faults())
		}
		if got := p.Requests(); len(got) != 1 || status == http.StatusOK && !bytes.Equal(got[0].Body, body) {
			t.Errorf("the request was not recorded as it came")
		}
	})
}

// thinking turns thinking on in a request.
func thinking(body string) string {
	return strings.Replace(body, "{", `{"thinking":{"type":"adaptive"},`, 1)
}
