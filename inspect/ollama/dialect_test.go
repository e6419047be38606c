package ollama

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"callgate/inspect"
)

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		method, path string
		want         inspect.Class
	}{
		{"POST", "/api/chat", inspect.ClassGated},
		{"POST", "/api/generate", inspect.ClassGated},
		{"POST", "/some/base/api/chat", inspect.ClassGated},
		{"GET", "/api/chat", inspect.ClassUnknown},
		{"POST", "/api/chat/", inspect.ClassUnknown},
		{"GET", "/api/tags", inspect.ClassHarmless},
		{"GET", "/api/ps", inspect.ClassHarmless},
		{"GET", "/api/version", inspect.ClassHarmless},
		{"POST", "/api/show", inspect.ClassHarmless},
		{"POST", "/api/embed", inspect.ClassHarmless},
		{"POST", "/api/embeddings", inspect.ClassHarmless},
		{"POST", "/base/api/show", inspect.ClassUnknown},
		{"POST", "/api/tags", inspect.ClassUnknown},
		{"POST", "/api/pull", inspect.ClassUnknown},
		{"POST", "/api/push", inspect.ClassUnknown},
		{"POST", "/api/create", inspect.ClassUnknown},
		{"POST", "/api/copy", inspect.ClassUnknown},
		{"DELETE", "/api/delete", inspect.ClassUnknown},
		{"POST", "/api/blobs/sha256:0", inspect.ClassUnknown},
		{"POST", "/api/me", inspect.ClassUnknown},
		{"POST", "/v1/chat/completions", inspect.ClassUnknown},
	} {
		if got := (Dialect{}).Classify(inspect.Head{Method: c.method, Path: c.path}); got != c.want {
			t.Errorf("%s %s is of class %d, want %d", c.method, c.path, got, c.want)
		}
	}
}

func TestRefuseIsAnErrorOfOllama(t *testing.T) {
	head, body := Dialect{}.Refuse(403, "callgate: no \"x\"\n")
	var doc struct{ Error string }
	if err := json.Unmarshal(body, &doc); err != nil || doc.Error != "callgate: no \"x\"\n" || head.Status != 403 ||
		!strings.HasPrefix(head.Header.Get("Content-Type"), "application/json") {
		t.Errorf("%v: %d %v %s", err, head.Status, head.Header, body)
	}
}

func TestInfo(t *testing.T) {
	tool := `{"type":"function","function":{"name":"shell","description":"d","parameters":{"type":"object"}}}`
	for _, c := range []struct {
		says, path, body, want string
		header                 http.Header
	}{
		{"a stream is the default", chatPath, `{"model":"m","messages":[]}`, "model m, stream true, lanes 1, tools [], structured false, session", nil},
		{"null is the default too", chatPath, `{"stream":null}`, "model , stream true, lanes 1, tools [], structured false, session", nil},
		{"one document", chatPath, `{"model":"m","stream":false,"tools":[` + tool + `]}`, `model m, stream false, lanes 1, tools [shell function {"type":"object"}], structured false, session`, nil},
		{"a tool without a name is none", chatPath, `{"tools":[{},{"type":"function","function":{"parameters":{}}},{"type":"function","function":{"name":"f","parameters":null}}]}`, "model , stream true, lanes 1, tools [f function ], structured false, session", nil},
		{"JSON is asked for", chatPath, `{"format":"json"}`, "model , stream true, lanes 1, tools [], structured true, session", nil},
		{"a schema is asked for", generatePath, `{"format":{"type":"object"}}`, "model , stream true, lanes 1, tools [], structured true, session", nil},
		{"no form is asked for", chatPath, `{"format":""}`, "model , stream true, lanes 1, tools [], structured false, session", nil},
		{"a session is claimed", chatPath, `{}`, "model , stream true, lanes 1, tools [], structured false, session s", http.Header{"X-Session-Id": {"s"}}},
	} {
		r, err := Dialect{}.Request(inspect.Head{Path: c.path, Header: c.header}, []byte(c.body))
		if err != nil {
			t.Errorf("%s: %v", c.says, err)
			continue
		}
		i := r.Info()
		var tools []string
		for _, tl := range i.Tools {
			tools = append(tools, fmt.Sprintf("%s %s %s", tl.Name, tl.Type, tl.Schema))
		}
		got := strings.TrimSpace(fmt.Sprintf("model %s, stream %v, lanes %d, tools %v, structured %v, session %s", i.Model, i.Stream, i.Lanes, tools, i.Structured, i.Session))
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.says, got, c.want)
		}
	}
}

func TestARequestThatSaysTwoThingsIsRefused(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{``, "not a JSON object"}, {`[]`, "not a JSON object"}, {`{`, "not one JSON object"}, {`{}{}`, "not one JSON object"},
		{`{"model":"a","model":"b"}`, "stands twice"}, {`{"model":"a","Model":"b"}`, "reads like model"},
		{`{"me\u0073sages":[]}`, "reads like messages"}, {`{"tool\u017f":[]}`, "reads like tools"},
	} {
		_, err := Dialect{}.Request(inspect.Head{Path: chatPath}, []byte(c.body))
		if e := (*inspect.Error)(nil); !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.body, err, c.want)
		}
	}
}

func TestOpenTakesJSONAndLines(t *testing.T) {
	r, err := Dialect{}.Request(inspect.Head{Path: chatPath}, []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ kind, want string }{
		{"application/x-ndjson", ""}, {"application/x-ndjson; charset=utf-8", ""}, {"application/json; charset=utf-8", ""},
		{"application/x-ndjson; charset=utf-16", "not UTF-8"}, {"text/event-stream", "neither"}, {";", "cannot be read"},
	} {
		_, err := r.Open(inspect.Head{Status: 200, Header: http.Header{"Content-Type": {c.kind}}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.kind, err, c.want)
		}
	}
}

// FuzzRequest looks for a body that is read otherwise than encoding/json reads it,
// as Ollama's server does.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","stream":true,"messages":[{"content":"a\"b\\\\"}],"tools":[{"type":"function","function":{"name":"f"}}]}`,
		`{"model":"m\u00e9","stream":false}`, `{"a":[{}],"model":"x","stream":null}`, `{"format":{},"model":"a\\"}`, `{`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := Dialect{}.Request(inspect.Head{Path: chatPath}, body)
		var want struct {
			Model  string
			Stream *bool
		}
		if err != nil || json.Unmarshal(body, &want) != nil {
			return
		}
		if i := r.Info(); i.Model != want.Model && !strings.Contains(want.Model, "\ufffd") || i.Stream != (want.Stream == nil || *want.Stream) {
			t.Fatalf("%q: model %q, stream %t", body, i.Model, i.Stream)
		}
	})
}
