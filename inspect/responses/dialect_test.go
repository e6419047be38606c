package responses

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
		gated   = inspect.ClassGated
		aside   = inspect.ClassAside
		unknown = inspect.ClassUnknown
	)
	for _, c := range []struct {
		method, path string
		want         inspect.Class
	}{
		{"POST", "/v1/responses", gated},
		{"POST", "/responses", gated},
		{"POST", "/openai/responses", gated},
		{"POST", "/openai/v1/responses", gated},
		{"POST", "/backend-api/codex/responses", gated},
		{"POST", "/v1/responses/input_tokens", aside},
		{"POST", "/responses/compact", aside},
		{"GET", "/v1/responses", unknown},
		{"PUT", "/v1/responses", unknown},
		{"post", "/v1/responses", unknown},
		{"POST", "/v1/Responses", unknown},
		{"POST", "/v1/responses/", unknown},
		{"POST", "/v1/xresponses", unknown},
		{"GET", "/v1/responses/resp_1", unknown},
		{"GET", "/v1/responses/resp_1/input_items", unknown},
		{"POST", "/v1/responses/resp_1/cancel", unknown},
		{"DELETE", "/v1/responses/resp_1", unknown},
		{"GET", "/v1/responses/input_tokens", unknown},
		{"POST", "/x/v1/responses/compact", unknown},
		{"GET", "/v1/conversations/conv_1/items", unknown},
		{"POST", "", unknown},
	} {
		if got := (Dialect{}).Classify(inspect.Head{Method: c.method, Path: c.path}); got != c.want {
			t.Errorf("%s %s is of class %d, want %d", c.method, c.path, got, c.want)
		}
	}
}

func asked(t testing.TB, h http.Header, body string) *request {
	t.Helper()
	req, err := Dialect{}.Request(inspect.Head{Method: "POST", Path: "/v1/responses", Header: h}, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return req.(*request)
}

func TestWhatARequestSays(t *testing.T) {
	got := asked(t, nil, `{
		"input": [
			{"type": "additional_tools", "role": "developer", "tools": [
				{"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]},
				{"type": "namespace", "name": "clock", "tools": [{"type": "function", "name": "now", "parameters": {"type":"object"}}]}
			]},
			{"role": "user", "content": "a \" } ] \\"}, {"model": "inner", "stream": false},
			{"type": "additional_tools", "tools": [{"type": "function", "name": "too late"}]}
		],
		"model": "m-1", "stream" : true, "max_output_tokens": 1e3,
		"tools": [
			{"type": "function", "name": "bash", "parameters": {"type": "object"}},
			{"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}},
			{"type": "local_shell"}, {"type": "apply_patch"},
			{"type": "shell"}, {"type": "shell", "environment": {"type": "local"}}, {"type": "shell", "environment": {"type": "container_auto"}},
			{"type": "computer_use_preview"}, {"type": "tool_search"}, {"type": "tool_search", "execution": "client"},
			{"type": "web_search"}, {"type": "web_search_preview_2025_03_11"}, {"type": "file_search"}, {"type": "code_interpreter"},
			{"type": "image_generation"}, {"type": "mcp", "server_label": "git"}, {"type": "of_tomorrow", "name": "x"}
		],
		"unknown": {"model": 1}
	}`).Info()
	tool := func(name, typ string, hosted bool) toolcall.Tool {
		return toolcall.Tool{Name: name, Type: typ, Hosted: hosted}
	}
	want := inspect.Info{Model: "m-1", Stream: true, Lanes: 1, Tools: []toolcall.Tool{
		tool("exec", "custom", false),
		{Name: "clock.now", Type: "function", Schema: []byte(`{"type":"object"}`)},
		{Name: "bash", Type: "function", Schema: []byte(`{"type": "object"}`)},
		tool("apply_patch", "custom", false),
		tool("local_shell", "local_shell", false), tool("apply_patch", "apply_patch", false),
		tool("shell", "shell", false), tool("shell", "shell", false), tool("shell", "shell", true),
		tool("computer", "computer_use_preview", false), tool("tool_search", "tool_search", true), tool("tool_search", "tool_search", false),
		tool("web_search", "web_search", true), tool("web_search_preview_2025_03_11", "web_search_preview_2025_03_11", true),
		tool("file_search", "file_search", true), tool("code_interpreter", "code_interpreter", true),
		tool("image_generation", "image_generation", true), tool("git", "mcp", true), tool("x", "of_tomorrow", false),
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("- want, + got:\n%s", diff)
	}
}

func TestSessionAndUser(t *testing.T) {
	for _, c := range []struct {
		name, header, value, body, session, user string
	}{
		{"nothing", "", "", `{}`, "", ""},
		{"Codex's header", "Session-Id", "s-1", `{"prompt_cache_key":"k"}`, "s-1", ""},
		{"its older header", "Session_id", "s-1", `{}`, "s-1", ""},
		{"the key of the cache", "", "", `{"prompt_cache_key":"k","safety_identifier":"u","user":"v"}`, "k", "u"},
		{"the user", "", "", `{"user":"v"}`, "", "v"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{}
			if c.header != "" {
				h[c.header] = []string{c.value}
			}
			got := asked(t, h, c.body).Info()
			if got.Session != c.session || got.User != c.user {
				t.Errorf("session %q, user %q; want %q and %q", got.Session, got.User, c.session, c.user)
			}
		})
	}
}

func TestAnswersThatMustFollowASchema(t *testing.T) {
	for body, want := range map[string]bool{
		`{}`:                                  false,
		`{"text":null}`:                       false,
		`{"text":{"verbosity":"low"}}`:        false,
		`{"text":{"format":{"type":"text"}}}`: false,
		`{"text":{"format":{"type":"json_object"}}}`:   true,
		`{"text":{"format":{"type":"json_schema"}}}`:   true,
		`{"input":[{"text":{"format":{"type":"x"}}}]}`: false,
	} {
		if got := asked(t, nil, body).Info(); got.Structured != want {
			t.Errorf("%s: structured is %t", body, got.Structured)
		}
	}
}

func TestAnAnswerInTheBackgroundIsRefusedWhereItCouldHoldCalls(t *testing.T) {
	for body, refused := range map[string]bool{
		`{"background":true,"tools":[{"type":"function","name":"bash"}]}`:                                    true,
		`{"background":true,"stream":true,"tools":[{"type":"web_search"},{"type":"custom","name":"x"}]}`:     true,
		`{"tools":[{"type":"shell"}],"background":true}`:                                                     true,
		`{"background":true,"input":[{"type":"additional_tools","tools":[{"type":"function","name":"x"}]}]}`: true,
		`{"background":true,"tools":[{"type":"of_tomorrow"}]}`:                                               true,
		`{"background":true,"tools":[{"type":"web_search"},{"type":"mcp","server_label":"s"}]}`:              false,
		`{"background":true}`: false,
		`{"background":false,"tools":[{"type":"function","name":"bash"}]}`: false,
		`{"background":null,"tools":[{"type":"function","name":"bash"}]}`:  false,
	} {
		_, err := Dialect{}.Request(inspect.Head{}, []byte(body))
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "openai-responses: request.background: ") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestRequestsThatTwoReadersReadDifferently(t *testing.T) {
	for name, body := range map[string]string{
		"no JSON":                     `hello`,
		"nothing":                     ``,
		"an array":                    `[]`,
		"an object that does not end": `{"model":"a"`,
		"a string that does not end":  `{"model":"a`,
		"a key without a value":       `{"model"}`,
		"a comma at the end":          `{"model":"a",}`,
		"something behind":            `{"model":"a"} {"stream":true}`,
		"brackets left open":          `{"tools":[{"a":1}`,
		"model twice":                 `{"model":"a","model":"b"}`,
		"tools twice":                 `{"tools":[],"x":1,"tools":[{"name":"bash"}]}`,
		"input twice":                 `{"input":"a","input":[]}`,
		"stream in other case":        `{"Stream":true}`,
		"background in other case":    `{"Background":true}`,
		"store with an escape":        `{"st\u006fre":false}`,
		"the long s":                  "{\"tool\u017f\":[]}",
		"previous_response_id folded": `{"Previous_Response_Id":"r"}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := (Dialect{}).Request(inspect.Head{}, []byte(body)); err == nil {
				t.Errorf("%s was read", body)
			} else if !strings.HasPrefix(err.Error(), "openai-responses: request: ") {
				t.Errorf("the error does not name its place: %v", err)
			}
		})
	}
	for _, body := range []string{` { } `, `{"model":"a\\"}`, `{"x":1,"x":2}`, `{"tools":[{"Type":"x"}]}`, `{"x":{"model":1,"model":2},"y":[["]"]]}`} {
		if _, err := (Dialect{}).Request(inspect.Head{}, []byte(body)); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestOpenTakesWhatItCanRead(t *testing.T) {
	req := asked(t, nil, `{}`)
	for ct, want := range map[string]string{
		"application/json":                 "*responses.document",
		"Application/JSON; charset=UTF-8":  "*responses.document",
		"text/event-stream":                "*responses.stream",
		"text/event-stream; charset=utf-8": "*responses.stream",
		"text/event-stream; charset=utf-7": "",
		"application/json; charset=utf-16": "",
		"text/html":                        "",
		"application/x-ndjson":             "",
		"":                                 "",
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
	h, body := (Dialect{}).Refuse(403, `it is "so" <bad>`+"\n")
	var got struct {
		Error struct{ Type, Message, Code string }
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if h.Status != 403 || h.Header.Get("Content-Type") != "application/json" || got.Error.Type != "callgate_refused" ||
		got.Error.Message != "it is \"so\" <bad>\n" || got.Error.Code != "403" {
		t.Errorf("%+v %s", h, body)
	}
}
