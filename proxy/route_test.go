package proxy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"callgate/inspect"
)

// recorder is a transport that remembers what it was asked to send.
type recorder struct {
	reqs []*http.Request
	body []string
}

func (r *recorder) RoundTrip(q *http.Request) (*http.Response, error) {
	b, _ := io.ReadAll(q.Body)
	r.reqs, r.body = append(r.reqs, q), append(r.body, string(b))
	return &http.Response{
		StatusCode: 418, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: q, ContentLength: 2,
		Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader("ok")),
	}, nil
}

// raw puts a request as it stands on the wire through a proxy.
func raw(t *testing.T, p *Proxy, wire string) (*httptest.ResponseRecorder, bool) {
	t.Helper()
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(wire)))
	if err != nil {
		return nil, false // net/http refuses it before any handler
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, req)
	return w, true
}

func routes(r http.RoundTripper) *Proxy {
	up := func(name, base string) *Upstream {
		u, err := url.Parse(base)
		if err != nil {
			panic(err)
		}
		return &Upstream{Name: name, URL: u}
	}
	return &Proxy{
		Upstreams: map[string]*Upstream{
			"openai": up("openai", "https://api.openai.com"), "anthropic": up("anthropic", "https://api.anthropic.com"),
			"router": up("router", "https://router.example/api/v1"), "slash": up("slash", "https://s.example/base/"),
			"vertex": up("vertex", "https://vertex.example/v1beta"), "azure": up("azure", "https://az.example/a%3Ab"), "local": up("local", "http://127.0.0.1:8000/v1"),
		},
		Defaults:  map[string]string{OpenAI: "openai", Anthropic: "anthropic"},
		Dialects:  []inspect.Dialect{lines{}},
		Transport: r,
	}
}

func TestWhereARequestGoes(t *testing.T) {
	for _, c := range []struct{ path, header, want string }{
		{"/openai/v1/chat/completions", "", "https://api.openai.com/v1/chat/completions"},
		{"/openai/v1/chat/completions?a=b%2Fc&d", "", "https://api.openai.com/v1/chat/completions?a=b%2Fc&d"},
		{"/openai/responses", "", "https://api.openai.com/responses"},
		{"/openai", "", "https://api.openai.com/"},
		{"/openai/", "", "https://api.openai.com/"},
		{"/anthropic/v1/messages?beta=true", "", "https://api.anthropic.com/v1/messages?beta=true"},
		{"/router/v1/chat/completions", "", "https://router.example/api/v1/chat/completions"},
		{"/router/chat/completions", "", "https://router.example/api/v1/chat/completions"},
		{"/router/v1beta/x", "", "https://router.example/api/v1/v1beta/x"},
		{"/vertex/v1beta/models/m:generateContent?alt=sse", "", "https://vertex.example/v1beta/models/m:generateContent?alt=sse"},
		{"/local/v1/models", "", "http://127.0.0.1:8000/v1/models"},
		{"/slash/v1/x", "", "https://s.example/base/v1/x"},
		{"/azure/v1/x", "", "https://az.example/a%3Ab/v1/x"},
		{"/openai/model/ID%3A0/converse-stream", "", "https://api.openai.com/model/ID%3A0/converse-stream"},
		{"/openai/model/ID:0/converse", "", "https://api.openai.com/model/ID:0/converse"},
		{"/openai/deployments/m%C3%A9/x%20y", "", "https://api.openai.com/deployments/m%C3%A9/x%20y"},
		{"/openai/\xc3\xa9", "", "https://api.openai.com/%C3%A9"},
		{"/v1/chat/completions", "", "https://api.openai.com/v1/chat/completions"},
		{"/chat/completions", "", "https://api.openai.com/v1/chat/completions"},
		{"/responses", "", "https://api.openai.com/v1/responses"},
		{"/models", "", "https://api.openai.com/v1/models"},
		{"/v1/models", "", "https://api.openai.com/v1/models"},
		{"/v1/models", "anthropic-version: 2023-06-01", "https://api.anthropic.com/v1/models"},
		{"/v1/messages", "", "https://api.anthropic.com/v1/messages"},
		{"/v1/messages/count_tokens", "", "https://api.anthropic.com/v1/messages/count_tokens"},
		{"/v1/files", "anthropic-version: 2023-06-01", "https://api.anthropic.com/v1/files"},
		{"/v1/threads/t/runs", "", "https://api.openai.com/v1/threads/t/runs"},
		{"/messages", "", "https://api.anthropic.com/v1/messages"},
		{"/messages/count_tokens?beta=true", "", "https://api.anthropic.com/v1/messages/count_tokens?beta=true"},
		{"/models", "anthropic-version: 2023-06-01", "https://api.anthropic.com/v1/models"},
		{"/v1/messagesx", "", "https://api.openai.com/v1/messagesx"},
	} {
		rec := &recorder{}
		w, ok := raw(t, routes(rec), "POST "+c.path+" HTTP/1.1\r\nHost: evil.example\r\n"+orLine(c.header)+"Content-Length: 3\r\n\r\nask")
		if !ok || len(rec.reqs) != 1 {
			t.Errorf("%s: not forwarded: %v", c.path, w)
			continue
		}
		q := rec.reqs[0]
		if got := q.URL.String(); got != c.want || q.Host != q.URL.Host || q.URL.User != nil || rec.body[0] != "ask" {
			t.Errorf("%s %s went to %s (host %s) with %q, want %s", c.path, c.header, got, q.Host, rec.body[0], c.want)
		}
	}
}

func TestBarePathsOfOllamaGoToTheUpstreamOfThatName(t *testing.T) {
	rec := &recorder{}
	p := routes(rec)
	const wire = "POST /api/chat HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nask"
	if w, _ := raw(t, p, wire); w.Code != 404 || len(rec.reqs) > 0 {
		t.Errorf("without one: %d %s", w.Code, w.Body)
	}
	p.Upstreams["ollama"] = &Upstream{Name: "ollama", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:11434"}}
	if raw(t, p, wire); len(rec.reqs) != 1 || rec.reqs[0].URL.String() != "http://127.0.0.1:11434/api/chat" {
		t.Errorf("with one: %v", rec.reqs)
	}
}

func TestBarePathsOfGeminiGoToTheUpstreamOfThatName(t *testing.T) {
	for _, c := range []struct{ path, header, host string }{
		{"/v1beta/models/m:generateContent", "", "gemini.example"},
		{"/v1beta/models/m:streamGenerateContent?alt=sse&key=k", "", "gemini.example"},
		{"/v1beta/models", "", "gemini.example"},
		{"/v1/models/m:streamGenerateContent?key=k", "", "gemini.example"},
		{"/v1/models/m:x:generateContent", "", "gemini.example"},
		{"/v1/models/m:countTokens", "", "gemini.example"},
		{"/v1/models", "X-Goog-Api-Key: k", "gemini.example"},
		{"/v1/models", "", "api.openai.com"},
		{"/v1/models/ft:gpt-x:org::generateContents", "", "api.openai.com"},
		{"/v1/chat/x:generateContent", "", "api.openai.com"},
		{"/v1/messages", "X-Goog-Api-Key: k", "api.anthropic.com"},
	} {
		rec := &recorder{}
		p := routes(rec)
		wire := "POST " + c.path + " HTTP/1.1\r\nHost: x\r\n" + orLine(c.header) + "Content-Length: 3\r\n\r\nask"
		if w, _ := raw(t, p, wire); c.host == "gemini.example" && (w.Code != 404 || len(rec.reqs) > 0) {
			t.Errorf("%s without one: %d %s", c.path, w.Code, w.Body)
		}
		p.Upstreams["gemini"] = &Upstream{Name: "gemini", URL: &url.URL{Scheme: "https", Host: "gemini.example"}}
		rec.reqs = nil
		if raw(t, p, wire); len(rec.reqs) != 1 || rec.reqs[0].URL.String() != "https://"+c.host+c.path {
			t.Errorf("%s %s with one: %v", c.path, c.header, rec.reqs)
		}
	}
}

func orLine(h string) string {
	if h == "" {
		return ""
	}
	return h + "\r\n"
}

func TestWhatIsNeverForwarded(t *testing.T) {
	for _, c := range []struct {
		name, wire string
		status     int
		says       string
	}{
		{"an unknown upstream", "GET /nobody/v1/models HTTP/1.1", 404, "anthropic, azure, local, openai, router, slash, vertex"},
		{"a name in other letters", "GET /OpenAI/v1/models HTTP/1.1", 404, "no upstream"},
		{"a host as first segment", "GET /api.openai.com/v1/models HTTP/1.1", 404, "no upstream"},
		{"a bare version", "GET /v1 HTTP/1.1", 404, "no upstream"},
		{"a segment that begins like a bare path", "POST /messagesx HTTP/1.1", 404, "no upstream"},
		{"another version", "GET /v1beta/models HTTP/1.1", 404, "no upstream"},
		{"CONNECT", "CONNECT api.openai.com:443 HTTP/1.1", 400, "not a forward proxy here"},
		{"absolute form", "GET http://api.openai.com/v1/models HTTP/1.1", 400, "not a forward proxy here"},
		{"absolute form of an upstream", "POST https://api.openai.com/openai/v1/chat/completions HTTP/1.1", 400, "not a forward proxy here"},
		{"the asterisk", "OPTIONS * HTTP/1.1", 400, ""},
		{"a WebSocket", "GET /openai/v1/responses HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket", 426, "WebSockets"},
		{"an upgrade without Connection", "GET /openai/v1/responses HTTP/1.1\r\nUpgrade: foo", 426, "upgrades"},
		{"a second upgrade token", "GET /openai/v1/responses HTTP/1.1\r\nUpgrade: h2c, websocket", 426, "upgrades"},
		{"a dot segment", "GET /openai/../control HTTP/1.1", 400, "dot segment"},
		{"a single dot", "GET /openai/./v1/models HTTP/1.1", 400, "dot segment"},
		{"a dot segment at the end", "GET /openai/v1/.. HTTP/1.1", 400, "dot segment"},
		{"a dot segment with a parameter", "GET /openai/..;x/v1 HTTP/1.1", 400, "dot segment"},
		{"an escaped dot segment", "GET /openai/%2e%2e/v1 HTTP/1.1", 400, "needs none"},
		{"a half escaped dot segment", "GET /openai/.%2E/v1 HTTP/1.1", 400, "needs none"},
		{"an empty segment", "GET /openai//v1/models HTTP/1.1", 400, "empty segment"},
		{"an empty segment at the start", "GET //openai/v1/models HTTP/1.1", 400, ""},
		{"a slash at the end", "POST /openai/v1/chat/completions/ HTTP/1.1", 400, "empty segment"},
		{"an escaped slash", "GET /openai/v1%2fmodels HTTP/1.1", 400, "different ways"},
		{"an escaped backslash", "GET /openai/v1%5Cmodels HTTP/1.1", 400, "different ways"},
		{"a backslash", "GET /openai/v1\\models HTTP/1.1", 400, ""},
		{"an escaped zero byte", "GET /openai/v1/models%00 HTTP/1.1", 400, "different ways"},
		{"an escaped line feed", "GET /openai/v1/models%0a HTTP/1.1", 400, "different ways"},
		{"an escaped percent sign", "GET /openai/v1/%252e HTTP/1.1", 400, "different ways"},
		{"an escaped letter", "POST /openai/v1/chat/%63ompletions HTTP/1.1", 400, "needs none"},
		{"an escaped letter in the upstream's name", "POST /%6fpenai/v1/chat/completions HTTP/1.1", 400, "needs none"},
		{"an overlong escape", "GET /openai/%c0%ae HTTP/1.1", 400, "UTF-8"},
		{"PUT on the root", "PUT / HTTP/1.1", 405, "GET and HEAD"},
	} {
		rec := &recorder{}
		w, ok := raw(t, routes(rec), c.wire+"\r\nHost: x\r\n\r\n")
		if len(rec.reqs) != 0 {
			t.Errorf("%s was forwarded to %s", c.name, rec.reqs[0].URL)
		}
		if !ok {
			continue
		}
		var body struct {
			Type  string
			Error struct{ Type, Message string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != c.status || !strings.Contains(body.Error.Message, c.says) {
			t.Errorf("%s: status %d, %s", c.name, w.Code, w.Body)
		}
	}
}

func FuzzWhatWasCheckedIsSent(f *testing.F) {
	for _, s := range []string{"/openai/v1/chat/completions", "/v1/x%3Ay", "/openai/a;b", "/router/v1/..%2f", "/chat/completions", "//", "/openai/%C3%A9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		req, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n")))
		if err != nil {
			return
		}
		rec := &recorder{}
		p := routes(rec)
		w := httptest.NewRecorder()
		p.ServeHTTP(w, req)
		if len(rec.reqs) == 0 {
			return
		}
		u := rec.reqs[0].URL
		known := slices.ContainsFunc([]string{"api.openai.com", "api.anthropic.com", "router.example", "s.example", "vertex.example", "az.example", "127.0.0.1:8000"},
			func(h string) bool { return u.Host == h })
		sent := u.EscapedPath()
		if !known || strings.Contains(sent, "/../") || strings.HasSuffix(sent, "/..") || strings.Contains(sent, "//") || badPath(strings.TrimSuffix(sent, "/")+"/x") != "" {
			t.Errorf("%q was sent as %s", path, u)
		}
		again, err := url.ParseRequestURI(u.RequestURI())
		if err != nil || again.EscapedPath() != sent || again.RawQuery != u.RawQuery {
			t.Errorf("%q: %s reads back as %v, %v", path, u, again, err)
		}
	})
}

func TestTheRootSaysHello(t *testing.T) {
	for _, method := range []string{"HEAD", "GET"} {
		rec := &recorder{}
		w, _ := raw(t, routes(rec), method+" / HTTP/1.1\r\nHost: x\r\n\r\n")
		if w.Code != 200 || len(rec.reqs) != 0 || (method == "GET") != (w.Body.Len() > 0) {
			t.Errorf("%s: %d %q", method, w.Code, w.Body)
		}
	}
}

func TestHeadersOfARequest(t *testing.T) {
	wire := "POST /openai/v1/lines HTTP/1.1\r\nHost: evil\r\nContent-Length: 3\r\n" +
		"Authorization: Bearer k\r\nX-Keep: a\r\nX-Keep: b\r\nX_Keep: c\r\nAccept: text/event-stream\r\nAccept-Encoding: br, zstd\r\n" +
		"Connection: close, X-Secret-Hop\r\nX-Secret-Hop: 1\r\nKeep-Alive: 5\r\nProxy-Authorization: p\r\nProxy-Connection: x\r\nTe: trailers\r\n" +
		"Upgrade: h2c\r\nHttp2-Settings: AAA\r\nRange: bytes=0-1\r\nIf-Range: x\r\nX-Goog-FieldMask: a\r\nExpect: 100-continue\r\n" +
		"X-Http-Method-Override: GET\r\nX-Original-Url: /admin\r\nX-Rewrite-Url: /admin\r\n" +
		// As some servers read them too.
		"X_HTTP_Method_Override: GET\r\nx-http_method-override: GET\r\nX_Original_URL: /admin\r\nTransfer_Encoding: chunked\r\n" +
		"Content_Length: 1\r\nContent_Encoding: gzip\r\nAccept_Encoding: br\r\nIf_Range: x\r\nX_Secret_Hop: 1\r\nProxy_Authorization: p\r\n\r\nask"
	rec := &recorder{}
	raw(t, routes(rec), wire)
	if len(rec.reqs) != 1 {
		t.Fatal("not forwarded")
	}
	got := rec.reqs[0].Header
	want := http.Header{
		"Authorization": {"Bearer k"}, "X-Keep": {"a", "b"}, "X_keep": {"c"}, "Accept": {"text/event-stream"},
		"Accept-Encoding": {"identity"}, "User-Agent": {""},
	}
	for k, v := range want {
		if !slices.Equal(got[k], v) {
			t.Errorf("%s is %q, want %q", k, got[k], v)
		}
	}
	for k := range got {
		if want[k] == nil {
			t.Errorf("%s: %q was sent on", k, got[k])
		}
	}
	rec = &recorder{}
	raw(t, routes(rec), "GET /openai/v1/models HTTP/1.1\r\nHost: x\r\nAccept-Encoding: br\r\nRange: bytes=0-1\r\nUser-Agent: agent/1\r\nConnection: Authorization\r\nAuthorization: k\r\n\r\n")
	if h := rec.reqs[0].Header; h.Get("Accept-Encoding") != "br" || h.Get("Range") == "" || h.Get("User-Agent") != "agent/1" || h.Get("Authorization") != "" {
		t.Errorf("a harmless request was sent with %v", h)
	}
}

func TestTheFormOfAnAnswer(t *testing.T) {
	for _, c := range []struct {
		types  []string
		stream bool
		says   string
	}{
		{[]string{"application/json"}, false, ""},
		{[]string{"Application/JSON ; Charset=\"UTF-8\""}, false, ""},
		{[]string{"text/event-stream"}, true, ""},
		{[]string{"text/event-stream; charset=utf8"}, true, ""},
		{nil, false, "no content type"},
		{[]string{"application/json", "application/json"}, false, "several"},
		{[]string{""}, false, "empty"},
		{[]string{"application/json; charset=utf-16"}, false, "utf-16"},
		{[]string{"text/event-stream; charset=utf-7"}, false, "utf-7"},
		{[]string{"application/json; charset=utf-8; charset=utf-16"}, false, "utf-16"},
		{[]string{"application/javascript"}, false, "javascript"},
		{[]string{"text/html"}, false, "text/html"},
		{[]string{"application/jsonl"}, false, "jsonl"},
		{[]string{"application/x-ndjson"}, true, ""},
		{[]string{"Application/X-NDJSON; charset=utf-8"}, true, ""},
		{[]string{"application/ndjson"}, false, "ndjson"},
		{[]string{"application/problem+json"}, false, "problem"},
		{[]string{"application/vnd.amazon.eventstream"}, false, "amazon"},
		{[]string{"application/json, text/event-stream"}, false, "content type"},
	} {
		stream, reason := form(http.Header{"Content-Type": c.types})
		if stream != c.stream || (reason == "") != (c.says == "") || !strings.Contains(reason, c.says) {
			t.Errorf("%q: stream %v, %q", c.types, stream, reason)
		}
	}
}

func TestPrivateHosts(t *testing.T) {
	p := routes(nil)
	p.Upstreams["router"].AllowPrivate = true
	f := PrivateHosts(p.Upstreams)
	for host, want := range map[string]bool{"127.0.0.1": true, "router.example": true, "Router.Example": true, "api.openai.com": false, "10.0.0.1": false, "localhost": false} {
		if f(host) != want {
			t.Errorf("%s: %v", host, !want)
		}
	}
}

func TestARequestTooLargeIsRefusedInTheFormOfTheDialect(t *testing.T) {
	for name, wire := range map[string]string{
		"declared": "Content-Length: 11\r\n\r\nask45678901",
		"chunked":  "Transfer-Encoding: chunked\r\n\r\n3\r\nask\r\n8\r\n45678901\r\n0\r\n\r\n",
	} {
		rec := &recorder{}
		p := routes(rec)
		p.Limits.RequestBody = 10
		w, _ := raw(t, p, "POST /openai/v1/lines HTTP/1.1\r\nHost: x\r\n"+wire)
		if w.Code != 413 || !bytes.Contains(w.Body.Bytes(), []byte(`{"lines":"callgate: the request body is larger`)) || len(rec.reqs) > 0 {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}
