package gemini

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"callgate/inspect"
	"callgate/inspect/toolcall"
)

func TestClassify(t *testing.T) {
	const (
		gated    = inspect.ClassGated
		aside    = inspect.ClassAside
		harmless = inspect.ClassHarmless
		unknown  = inspect.ClassUnknown
	)
	for _, c := range []struct {
		method, path string
		want         inspect.Class
	}{
		{"POST", "/v1beta/models/gemini-2.5-pro:generateContent", gated},
		{"POST", "/v1/models/gemini-2.5-pro:streamGenerateContent", gated},
		{"POST", "/models/gemini-2.5-pro:streamGenerateContent", gated},
		{"POST", "/v1beta/tunedModels/t:generateContent", gated},
		{"POST", "/v1/projects/p/locations/l/publishers/google/models/m:generateContent", gated},
		{"POST", "/v1beta1/projects/p/locations/l/endpoints/1:streamGenerateContent", gated},
		{"POST", "/v1internal:streamGenerateContent", gated},
		{"POST", "/v1internal:generateContent", gated},
		{"POST", "/v1beta/models/a:b:generateContent", gated},
		{"POST", "/v1beta/models/m:countTokens", aside},
		{"POST", "/v1internal:countTokens", aside},
		{"POST", "/v1internal:loadCodeAssist", harmless},
		{"GET", "/v1internal:getCodeAssistGlobalUserSetting", harmless},
		{"POST", "/v1beta/models/m:embedContent", harmless},
		{"POST", "/v1beta/models/m:batchEmbedContents", harmless},
		{"GET", "/v1beta/models", harmless},
		{"GET", "/models", harmless},
		{"GET", "/v1/models/gemini-2.5-pro", harmless},
		{"GET", "/v1beta/models/m:generateContent", unknown},
		{"PUT", "/v1beta/models/m:generateContent", unknown},
		{"POST", "/v1beta/models/m:GenerateContent", unknown},
		{"POST", "/v1beta/models/m:generateContentX", unknown},
		{"POST", "/v1beta/models/m:batchGenerateContent", unknown},
		{"POST", "/v1beta/models/m:generateAnswer", unknown},
		{"POST", "/v1beta/models/m:predict", unknown},
		{"POST", "/v1beta/interactions", unknown},
		{"POST", "/v1beta/cachedContents", unknown},
		{"GET", "/v1beta/cachedContents/c", unknown},
		{"GET", "/v1beta/models/..", unknown},
		{"GET", "/v1beta/models/a/b", unknown},
		{"GET", "/v2/models", unknown},
		{"POST", "/v1beta/models/m:loadCodeAssist", unknown},
		{"POST", "/generateContent", unknown},
		{"POST", "", unknown},
	} {
		if got := (Dialect{}).Classify(inspect.Head{Method: c.method, Path: c.path}); got != c.want {
			t.Errorf("%s %s is of class %d, want %d", c.method, c.path, got, c.want)
		}
	}
}

func TestAQueryThatChangesTheFormIsRefused(t *testing.T) {
	for query, ok := range map[string]bool{
		"": true, "alt=sse": true, "alt=json": true, "$alt=sse": true, "key=k&alt=sse": true, "prettyPrint=false": true, "beta=true": true, "$.xgafv=2": true,
		"alt=proto": false, "alt=media": false, "alt=SSE": false, "$alt=proto": false, "alt=sse&alt=json": false, "alt=sse&$alt=json": false, "ALT=proto": false,
		"fields=usageMetadata": false, "$fields=x": false, "callback=f": false, "$callback=f": false, "%61lt=proto": false, "$httpMethod=GET": false,
		"$ct=text/plain": false, "a=%zz": false, "a;b": false,
	} {
		_, err := Dialect{}.Request(inspect.Head{Method: "POST", Path: "/v1beta/models/m:generateContent", Query: query}, []byte(`{}`))
		if (err == nil) != ok {
			t.Errorf("%q: %v", query, err)
		}
	}
}

func TestWhatARequestSays(t *testing.T) {
	req, err := Dialect{}.Request(inspect.Head{Method: "POST", Path: "/v1beta/models/gemini-x:streamGenerateContent"}, []byte(`{
		"contents": [{"parts": [{"text": "\"tools\": {"}]}],
		"tools": [{"functionDeclarations": [{"name": "sh", "parameters": {"type": "OBJECT"}}, {"name": "ls", "parametersJsonSchema": {"type": "object"}}]},
			{"function_declarations": {"name": "one"}}, {"googleSearch": {}}, {"code_execution": {}}, {"computerUse": {"environment": "ENVIRONMENT_BROWSER"}}, {"urlContext": null}],
		"generation_config": {"candidate_count": 2, "response_mime_type": "application/json"}}`))
	if err != nil {
		t.Fatal(err)
	}
	got := req.Info()
	if got.Model != "gemini-x" || !got.Stream || got.Lanes != 2 || !got.Structured || got.Session != "" {
		t.Errorf("it says %+v", got)
	}
	want := []toolcall.Tool{{Name: "sh", Type: "function", Schema: []byte(`{"type": "OBJECT"}`)}, {Name: "ls", Type: "function", Schema: []byte(`{"type": "object"}`)},
		{Name: "one", Type: "function"}, {Name: "googleSearch", Type: "googleSearch", Hosted: true}, {Name: "code_execution", Type: "code_execution", Hosted: true}, {Name: "computerUse", Type: "computerUse"}}
	a, _ := json.Marshal(got.Tools)
	b, _ := json.Marshal(want)
	if string(a) != string(b) {
		t.Errorf("it offers %s, want %s", a, b)
	}
	req, err = Dialect{}.Request(inspect.Head{Method: "POST", Path: "/v1internal:generateContent"},
		[]byte(`{"model":"gemini-y","project":"p","request":{"contents":[],"session_id":"s-1","generationConfig":{"responseMimeType":"text/plain"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := req.Info(); got.Model != "gemini-y" || got.Stream || got.Lanes != 1 || got.Structured || got.Session != "s-1" {
		t.Errorf("behind a login it says %+v", got)
	}
}

func TestARequestThatSaysTwoThingsIsRefused(t *testing.T) {
	for _, body := range []string{``, `[]`, `{"contents":[]`, `{} {}`, `{"contents":[],"contents":[]}`, `{"Contents":[]}`, `{"tools":[],"tool\u0073":[]}`,
		`{"toolConfig":{},"tool_config":{}}`, `{"generationConfig":{"candidateCount":0}}`, `{"generationConfig":{"candidateCount":1,"candidate_count":2}}`, `{"generationConfig":[1]}`} {
		if _, err := (Dialect{}).Request(inspect.Head{Method: "POST", Path: "/v1beta/models/m:generateContent"}, []byte(body)); err == nil {
			t.Errorf("%s is taken", body)
		} else if !strings.HasPrefix(err.Error(), "gemini: ") {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, body := range []string{`{"request":{},"request":{}}`, `{"contents":[]}`, `{"request":[]}`} {
		if _, err := (Dialect{}).Request(inspect.Head{Method: "POST", Path: "/v1internal:generateContent"}, []byte(body)); err == nil {
			t.Errorf("behind a login %s is taken", body)
		}
	}
}

func TestARefusalIsAnErrorOfGoogles(t *testing.T) {
	for status, word := range map[int]string{400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 429: "RESOURCE_EXHAUSTED", 502: "UNAVAILABLE", 500: "INTERNAL"} {
		head, body := Dialect{}.Refuse(status, `callgate: no "way"`)
		var e struct {
			Error struct {
				Code            int
				Message, Status string
			}
		}
		if err := json.Unmarshal(body, &e); err != nil || head.Status != status || head.Header.Get("Content-Type") != "application/json" ||
			e.Error.Code != status || e.Error.Message != `callgate: no "way"` || e.Error.Status != word {
			t.Errorf("%d: %s %v", status, body, err)
		}
	}
}

func TestAnAnswerOfAnotherTypeIsNotRead(t *testing.T) {
	req, err := reqOf(`{"contents":[]}`)
	if err != nil {
		t.Fatal(err)
	}
	for kind, ok := range map[string]bool{"application/json": true, "application/json; charset=UTF-8": true, "text/event-stream": true, "text/event-stream;charset=utf-8": true,
		"": false, "text/plain": false, "application/x-protobuf": false, "application/json; charset=utf-16": false, "application/json+protobuf": false} {
		if _, err := req.Open(inspect.Head{Status: 200, Header: http.Header{"Content-Type": {kind}}}); (err == nil) != ok {
			t.Errorf("%q: %v", kind, err)
		}
	}
}
