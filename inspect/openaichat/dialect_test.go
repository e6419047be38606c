package openaichat

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"callgate/inspect"
	"callgate/inspect/toolcall"
)

func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		method, path string
		want         inspect.Class
	}{
		{"POST", "/v1/chat/completions", inspect.ClassGated},
		{"POST", "/chat/completions", inspect.ClassGated},
		{"POST", "/openai/deployments/gpt-x/chat/completions", inspect.ClassGated},
		{"POST", "/api/v1/chat/completions", inspect.ClassGated},
		{"POST", "/v1/models/chat/completions", inspect.ClassGated},
		{"GET", "/v1/models", inspect.ClassHarmless},
		{"GET", "/models", inspect.ClassHarmless},
		{"GET", "/v1/models/gpt-4o", inspect.ClassHarmless},
		{"GET", "/models/ft:gpt-4o:org::id", inspect.ClassHarmless},
		{"POST", "/v1/embeddings", inspect.ClassHarmless},
		{"POST", "/embeddings", inspect.ClassHarmless},
		{"POST", "/v1/moderations", inspect.ClassHarmless},
		{"POST", "/v1/audio/speech", inspect.ClassHarmless},
		{"POST", "/v1/audio/transcriptions", inspect.ClassHarmless},
		{"POST", "/v1/audio/translations", inspect.ClassHarmless},
		{"POST", "/v1/images/generations", inspect.ClassHarmless},
		{"POST", "/v1/images/edits", inspect.ClassHarmless},
		{"POST", "/v1/images/variations", inspect.ClassHarmless},
		// Anything else may hold a call, a stored answer among it.
		{"GET", "/v1/chat/completions", inspect.ClassUnknown},
		{"GET", "/v1/chat/completions/chatcmpl-1", inspect.ClassUnknown},
		{"GET", "/v1/chat/completions/chatcmpl-1/messages", inspect.ClassUnknown},
		{"POST", "/v1/chat/completions/", inspect.ClassUnknown},
		{"POST", "/v1/Chat/Completions", inspect.ClassUnknown},
		{"post", "/v1/chat/completions", inspect.ClassUnknown},
		{"POST", "/v1/xchat/completions", inspect.ClassUnknown},
		{"POST", "/v1/completions", inspect.ClassUnknown},
		{"POST", "/v1/responses", inspect.ClassUnknown},
		{"GET", "/v1/responses/resp_1", inspect.ClassUnknown},
		{"GET", "/v1/files/file-1/content", inspect.ClassUnknown},
		{"POST", "/v1/batches", inspect.ClassUnknown},
		{"POST", "/v1/threads/t/runs", inspect.ClassUnknown},
		{"GET", "/v1/realtime", inspect.ClassUnknown},
		{"POST", "/v1/models", inspect.ClassUnknown},
		{"DELETE", "/v1/models/ft-1", inspect.ClassUnknown},
		{"GET", "/v1/models/", inspect.ClassUnknown},
		{"GET", "/v1/models/a/b", inspect.ClassUnknown},
		{"GET", "/v1/models/..", inspect.ClassUnknown},
		{"GET", "/v1/models/a%2fb", inspect.ClassUnknown},
		{"GET", "/v1/Models", inspect.ClassUnknown},
		{"GET", "/v1/v1/models", inspect.ClassUnknown},
		{"GET", "/v1/embeddings", inspect.ClassUnknown},
		{"POST", "/v2/embeddings", inspect.ClassUnknown},
		{"GET", "", inspect.ClassUnknown},
	} {
		if got := (Dialect{}).Classify(inspect.Head{Method: c.method, Path: c.path}); got != c.want {
			t.Errorf("%s %s: class %d, want %d", c.method, c.path, got, c.want)
		}
	}
}

func TestRefusalIsTheFormatsOwnError(t *testing.T) {
	h, body := Dialect{}.Refuse(400, "not \"here\"\n\xff")
	var got struct {
		Error struct {
			Message, Type, Code string
			Param               any
		}
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if e := got.Error; e.Message != "not \"here\"\n\ufffd" || e.Type != "callgate_refused" || e.Code != "400" || e.Param != nil {
		t.Errorf("got %+v", e)
	}
	if h.Status != 400 || h.Header.Get("Content-Type") != "application/json" {
		t.Errorf("got %+v", h)
	}
}

func readRequest(t *testing.T, body string, header ...string) inspect.Request {
	t.Helper()
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	r, err := Dialect{}.Request(inspect.Head{Method: "POST", Path: "/v1/chat/completions", Header: h}, []byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

func TestRequestsSayWhatTheyAskFor(t *testing.T) {
	for _, c := range []struct {
		name, body string
		header     []string
		want       inspect.Info
	}{
		{"nothing but an object", ` {} `, nil, inspect.Info{Lanes: 1}},
		{"model, stream and choices", `{"model":"m\u00e9","messages":[{"role":"user","content":"{\"n\":9}"}],"stream":true,"n":3}`, nil,
			inspect.Info{Model: "mé", Stream: true, Lanes: 3}},
		{"nulls", `{"model":null,"stream":null,"n":null,"tools":null,"response_format":null,"user":null}`, nil, inspect.Info{Lanes: 1}},
		{"what stands in the history says nothing", `{"messages":[{"stream":true,"n":4,"model":"x","tools":[{"type":"function","function":{"name":"f"}}]}]}`, nil,
			inspect.Info{Lanes: 1}},
		{"keys that are not looked at may stand twice", `{"seed":1,"seed":2,"Temperature":0,"temperature":1}`, nil, inspect.Info{Lanes: 1}},
		{"tools of all kinds", `{"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}},{"type":"custom","custom":{"name":"c"}},` +
			`{"type":"web_search"},{"function":{"name":"g","parameters":null}},{"type":"function"},null,7],"functions":[{"name":"old","parameters":{}}],"web_search_options":{}}`, nil,
			inspect.Info{Lanes: 1, Tools: []toolcall.Tool{
				{Name: "f", Type: "function", Schema: []byte(`{"type":"object"}`)},
				{Name: "c", Type: "custom"},
				{Name: "web_search", Type: "web_search", Hosted: true},
				{Name: "g", Type: "function"},
				{Name: "old", Type: "function", Schema: []byte(`{}`)},
				{Name: "web_search", Type: "web_search_options", Hosted: true},
			}}},
		{"text is no structure", `{"response_format":{"type":"text"}}`, nil, inspect.Info{Lanes: 1}},
		{"a schema is", `{"response_format":{"json_schema":{},"type":"json_schema"}}`, nil, inspect.Info{Lanes: 1, Structured: true}},
		{"any JSON is", `{"response_format":{"type":"json_object"}}`, nil, inspect.Info{Lanes: 1, Structured: true}},
		{"a format without a type counts as one", `{"response_format":{}}`, nil, inspect.Info{Lanes: 1, Structured: true}},
		{"the session's header goes before the cache key", `{"prompt_cache_key":"k"}`, []string{"X-Session-Affinity", "b", "X-Session-Id", "a"},
			inspect.Info{Lanes: 1, Session: "a"}},
		{"the cache key stands for a session", `{"prompt_cache_key":"k"}`, []string{"X-Client-Request-Id", "r"}, inspect.Info{Lanes: 1, Session: "k"}},
		{"a request id is no session", `{}`, []string{"X-Client-Request-Id", "r"}, inspect.Info{Lanes: 1}},
		{"a user", `{"user":"u"}`, nil, inspect.Info{Lanes: 1, User: "u"}},
		{"the safety identifier goes before the user", `{"safety_identifier":"s","user":"u"}`, nil, inspect.Info{Lanes: 1, User: "s"}},
		{"in either order", `{"user":"u","safety_identifier":"s"}`, nil, inspect.Info{Lanes: 1, User: "s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, readRequest(t, c.body, c.header...).Info()); diff != "" {
				t.Errorf("- want + got:\n%s", diff)
			}
		})
	}
}

func TestRequestsThatSayTwoThingsAreRefused(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"nothing", ``, "not a JSON object"},
		{"a list", `[]`, "not a JSON object"},
		{"words", `hello`, "not a JSON object"},
		{"an object that ends early", `{"model":"m"`, "not one JSON object"},
		{"a string that ends early", `{"model":"m`, "not one JSON object"},
		{"a key without a value", `{"model"}`, "not one JSON object"},
		{"something behind", `{"model":"m"}{"stream":true}`, "not one JSON object"},
		{"the model twice", `{"model":"a","model":"b"}`, "model stands twice"},
		{"the stream twice", `{"stream":false,"x":1,"stream":true}`, "stream stands twice"},
		{"the history twice", `{"messages":[],"messages":[]}`, "messages stands twice"},
		{"a key in capitals", `{"Model":"a"}`, "reads like model"},
		{"a key by an escape", `{"str\u0065am":true}`, "reads like stream"},
		{"a key by the long s", `{"ſtream":true}`, "reads like stream"},
		{"no choices", `{"n":0}`, "whole number"},
		{"choices as text", `{"n":"2"}`, "whole number"},
		{"choices beyond the limit", `{"n":129}`, "whole number"},
		{"choices with a fraction", `{"n":1.5}`, "whole number"},
		{"fewer than no choices", `{"n":-1}`, "whole number"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Dialect{}.Request(inspect.Head{}, []byte(c.body))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestContentTypes(t *testing.T) {
	req := readRequest(t, `{"stream":true}`)
	for _, c := range []struct {
		value string
		want  string // stream, document, or a part of the error
	}{
		{"text/event-stream", "stream"},
		{"text/event-stream; charset=utf-8", "stream"},
		{"Text/Event-Stream;charset=\"UTF-8\"", "stream"},
		{"application/json", "document"},
		{"application/json; charset=utf-8", "document"},
		{"", "stream"},
		{"application/x-ndjson", "neither JSON nor an event stream"},
		{"text/html", "neither JSON nor an event stream"},
		{"application/json; charset=utf-16", "not UTF-8"},
		{"text/event-stream; charset", "cannot be read"},
	} {
		h := inspect.Head{Status: 200, Header: http.Header{}}
		if c.value != "" {
			h.Header.Set("Content-Type", c.value)
		}
		turn, err := req.Open(h)
		got := ""
		switch turn.(type) {
		case *stream:
			got = "stream"
		case *document:
			got = "document"
		default:
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%q: got %s, want %s", c.value, got, c.want)
		}
	}
}

// FuzzRequest looks for a body that the scan reads otherwise than encoding/json.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","stream":true,"n":2,"messages":[{"content":"a\"b\\"}],"tools":[{"type":"function","function":{"name":"f"}}]}`,
		`{"model":"m\u00e9"}`, `{"a":[{}],"model":"x"}`, `{"model":"a\\","user":"u"}`, `{`, `{"n":1e1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := Dialect{}.Request(inspect.Head{}, body)
		if err != nil || !json.Valid(body) {
			return
		}
		var want map[string]any
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("%q passes as an object: %v", body, err)
		}
		if m, ok := want["model"].(string); ok && m != r.Info().Model && !strings.Contains(m, "\ufffd") {
			t.Fatalf("%q: model %q, want %q", body, r.Info().Model, m)
		}
		if s := want["stream"] == true; s != r.Info().Stream {
			t.Fatalf("%q: stream %t", body, r.Info().Stream)
		}
	})
}
