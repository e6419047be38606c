package anthropic

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"callgate/inspect"
	"callgate/inspect/toolcall"
)

func TestClassify(t *testing.T) {
	const (
		gated    = inspect.ClassGated
		harmless = inspect.ClassHarmless
		unknown  = inspect.ClassUnknown
	)
	for _, c := range []struct {
		method, path string
		want         inspect.Class
	}{
		{"POST", "/v1/messages", gated},
		{"POST", "/messages", gated},
		{"POST", "/anthropic/v1/messages", gated},
		{"POST", "/v1/messages/count_tokens", inspect.ClassAside},
		{"POST", "/messages/count_tokens", inspect.ClassAside},
		{"GET", "/v1/models", harmless},
		{"GET", "/models", harmless},
		{"GET", "/v1/models/claude-sonnet-4-5", harmless},
		{"GET", "/v1/models/vendor.model-v1:0", harmless},
		{"GET", "/v1/messages", unknown},
		{"PUT", "/v1/messages", unknown},
		{"post", "/v1/messages", unknown},
		{"POST", "/v1/Messages", unknown},
		{"POST", "/v1/messages/", unknown},
		{"POST", "/v1/messages/batches", unknown},
		{"GET", "/v1/messages/batches/b1/results", unknown},
		{"POST", "/v1/threads/t1/messages", unknown},
		{"POST", "/v1/messages/count_tokens/x", unknown},
		{"POST", "/x/v1/messages/count_tokens", unknown},
		{"GET", "/v1/messages/count_tokens", unknown},
		{"GET", "/v1/models/", unknown},
		{"GET", "/v1/models/..", unknown},
		{"GET", "/v1/models/a/b", unknown},
		{"GET", "/v1/models/a%2fb", unknown},
		{"GET", "/v1/modelsx", unknown},
		{"GET", "/v2/models", unknown},
		{"POST", "/v1/models", unknown},
		{"DELETE", "/v1/models/x", unknown},
		{"GET", "/v1/files", unknown},
		{"POST", "/v1/complete", unknown},
		{"POST", "", unknown},
	} {
		if got := (Dialect{}).Classify(inspect.Head{Method: c.method, Path: c.path}); got != c.want {
			t.Errorf("%s %s is of class %d, want %d", c.method, c.path, got, c.want)
		}
	}
}

func info(t *testing.T, h http.Header, body string) inspect.Info {
	t.Helper()
	req, err := Dialect{}.Request(inspect.Head{Method: "POST", Path: "/v1/messages", Header: h}, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return req.Info()
}

func TestWhatARequestSays(t *testing.T) {
	got := info(t, nil, `{
		"messages": [{"role": "user", "content": "a \" } ] \\"}, {"model": "inner", "stream": false}],
		"model": "m-1", "stream" : true, "max_tokens": 1e3,
		"tools": [
			{"name": "Bash", "input_schema": {"type": "object"}},
			{"type": "custom", "name": "Edit", "input_schema": {}},
			{"type": "bash_20250124", "name": "bash"},
			{"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 10},
			{"type": "computer_20251124", "name": "computer", "display_width_px": 1},
			{"type": "memory_20250818", "name": "memory"},
			{"type": "browser_toolset_20260801", "name": "browser"},
			{"type": "web_search_20250305", "name": "web_search", "max_uses": 1},
			{"type": "web_fetch_20260318", "name": "web_fetch"},
			{"type": "code_execution_20260521", "name": "code_execution"},
			{"type": "tool_search_tool_bm25", "name": "tool_search_tool_bm25"},
			{"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"},
			{"type": "advisor_20260301", "name": "advisor"},
			{"type": "mcp_toolset", "mcp_server_name": "files"},
			{"type": "web_search_later", "name": "x"},
			{"type": "web_search_2025030x", "name": "y"}
		],
		"mcp_servers": [{"type": "url", "url": "https://example.org", "name": "files"}],
		"unknown": {"model": 1}
	}`)
	tool := func(name, typ string, hosted bool) toolcall.Tool {
		return toolcall.Tool{Name: name, Type: typ, Hosted: hosted}
	}
	want := inspect.Info{Model: "m-1", Stream: true, Lanes: 1, Tools: []toolcall.Tool{
		{Name: "Bash", Type: "custom", Schema: []byte(`{"type": "object"}`)},
		{Name: "Edit", Type: "custom", Schema: []byte(`{}`)},
		tool("bash", "bash_20250124", false),
		tool("str_replace_based_edit_tool", "text_editor_20250728", false),
		tool("computer", "computer_20251124", false),
		tool("memory", "memory_20250818", false),
		tool("browser", "browser_toolset_20260801", false),
		tool("web_search", "web_search_20250305", true),
		tool("web_fetch", "web_fetch_20260318", true),
		tool("code_execution", "code_execution_20260521", true),
		tool("tool_search_tool_bm25", "tool_search_tool_bm25", true),
		tool("tool_search_tool_regex", "tool_search_tool_regex_20251119", true),
		tool("advisor", "advisor_20260301", true),
		tool("files", "mcp_toolset", true),
		tool("x", "web_search_later", false),
		tool("y", "web_search_2025030x", false),
		tool("files", "mcp_server", true),
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("- want, + got:\n%s", diff)
	}
}

func TestSessionAndUser(t *testing.T) {
	quote := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	for _, c := range []struct{ name, header, userID, session, user string }{
		{"nothing", "", "", "", ""},
		{"the header", "s-1", "", "s-1", ""},
		{"a JSON object in a string", "", `{"device_id":"d","account_uuid":"a","session_id":"s-2"}`, "s-2", "a"},
		{"no account in it", "", `{"device_id":"d","account_uuid":"","session_id":"s-2"}`, "s-2", "d"},
		{"the header before the body", "s-1", `{"device_id":"d","session_id":"s-2"}`, "s-1", "d"},
		{"a name with parts", "", "user_u1_account_a1_session_s3", "s3", "a1"},
		{"a name with parts and no account", "", "user_u1_account__session_s3", "s3", "u1"},
		{"a plain name", "", "somebody", "", "somebody"},
		{"a name like one with parts", "", "my_session_x", "", "my_session_x"},
		{"broken JSON", "", `{"session_id":"x"`, "", `{"session_id":"x"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{}
			if c.header != "" {
				h.Set("x-claude-code-session-id", c.header)
			}
			got := info(t, h, `{"metadata":{"user_id":`+quote(c.userID)+`}}`)
			if got.Session != c.session || got.User != c.user {
				t.Errorf("session %q, user %q; want %q and %q", got.Session, got.User, c.session, c.user)
			}
		})
	}
}

func TestAnswersThatMustFollowASchema(t *testing.T) {
	for body, want := range map[string]bool{
		`{}`: false,
		`{"output_format":{"type":"json_schema"}}`:              true,
		`{"output_format":null}`:                                false,
		`{"output_config":{"effort":"low"}}`:                    false,
		`{"output_config":{"format":{"type":"json_schema"}}}`:   true,
		`{"output_config":{"format":null}}`:                     false,
		`{"messages":[{"output_format":{"type":"x"}}],"x":"y"}`: false,
	} {
		if got := info(t, nil, body); got.Structured != want {
			t.Errorf("%s: structured is %t", body, got.Structured)
		}
	}
}

func TestRequestsThatTwoReadersReadDifferently(t *testing.T) {
	for name, body := range map[string]string{
		"no JSON":                        `hello`,
		"nothing":                        ``,
		"an array":                       `[]`,
		"an object that does not end":    `{"model":"a"`,
		"a string that does not end":     `{"model":"a`,
		"a key without a value":          `{"model"}`,
		"a key without a colon":          `{"model" "a"}`,
		"a key that is no string":        `{model:"a"}`,
		"a comma at the end":             `{"model":"a",}`,
		"a comma at the start":           `{,"model":"a"}`,
		"two commas":                     `{"model":"a",,"stream":true}`,
		"a comma and nothing else":       `{,}`,
		"a key with an unknown escape":   `{"t\ools":[]}`,
		"a value missing":                `{"model":,"stream":true}`,
		"something behind":               `{"model":"a"} {"stream":true}`,
		"a comma missing":                `{"model":"a" "stream":true}`,
		"brackets left open":             `{"tools":[{"a":1}`,
		"model twice":                    `{"model":"a","model":"b"}`,
		"tools twice":                    `{"tools":[],"x":1,"tools":[{"name":"Bash"}]}`,
		"stream in other case":           `{"Stream":true}`,
		"tools in other case":            `{"tools":[],"TOOLS":[]}`,
		"tools with an escape":           `{"t\u006fols":[]}`,
		"tools with the long s":          "{\"tool\u017f\":[]}",
		"the long s, escaped":            `{"tool\u017f":[]}`,
		"messages twice":                 `{"messages":[],"messages":[]}`,
		"an escaped quote at the end":    `{"model":"a\"}`,
		"metadata in other case (first)": `{"Metadata":{"user_id":"x"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := (Dialect{}).Request(inspect.Head{}, []byte(body)); err == nil {
				t.Errorf("%s was read", body)
			} else if !strings.HasPrefix(err.Error(), "anthropic: request: ") {
				t.Errorf("the error does not name its place: %v", err)
			}
		})
	}
}

func TestRequestsThatAreOddAndReadAlike(t *testing.T) {
	for _, body := range []string{
		` { } `,
		`{"model":"a\\"}`,
		`{"model":"a\\\"b","stream":false}`,
		`{"x":1,"x":2}`,
		`{"tools":[{"Type":"x"}]}`,
		`{"x":{"model":1,"model":2},"y":[["]"]]}`,
	} {
		if _, err := (Dialect{}).Request(inspect.Head{}, []byte(body)); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestOpenTakesWhatItCanRead(t *testing.T) {
	req, err := Dialect{}.Request(inspect.Head{}, []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	for ct, want := range map[string]string{
		"application/json":                   "*anthropic.document",
		"Application/JSON; charset=UTF-8":    "*anthropic.document",
		"text/event-stream":                  "*anthropic.stream",
		"text/event-stream; charset=utf-8":   "*anthropic.stream",
		"text/event-stream; charset=utf-7":   "",
		"application/json; charset=utf-16":   "",
		"text/html":                          "",
		"application/x-ndjson":               "",
		"":                                   "",
		"json":                               "",
		"application/vnd.amazon.eventstream": "",
	} {
		turn, err := req.Open(inspect.Head{Status: 200, Header: http.Header{"Content-Type": {ct}}})
		got := ""
		if err == nil {
			got = fmt.Sprintf("%T", turn)
		}
		if got != want {
			t.Errorf("%q opens a %q (%v), want %q", ct, got, err, want)
		}
	}
}

func TestRefuse(t *testing.T) {
	for status, typ := range map[int]string{400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
		404: "not_found_error", 413: "request_too_large", 421: "invalid_request_error", 429: "rate_limit_error", 502: "api_error", 529: "api_error"} {
		h, body := (Dialect{}).Refuse(status, `it is "so" <bad>`+"\n")
		var got struct {
			Type  string
			Error struct{ Type, Message string }
		}
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if h.Status != status || h.Header.Get("Content-Type") != "application/json" || got.Type != "error" ||
			got.Error.Type != typ || got.Error.Message != "it is \"so\" <bad>\n" {
			t.Errorf("%d: %+v %s", status, h, body)
		}
	}
}
