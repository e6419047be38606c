package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"callgate/config"
	"callgate/proxy/mitm"
	"callgate/proxy/providertest"
)

const (
	tokenOfPlanner = "cgt_PLANNERPLANNERPLANNER234567"
	tokenOfWorker  = "worker.of-the_tests~0123456789" // one that callgate did not make
	tokenOfNobody  = "cgt_NOBODYNOBODYNOBODYNOBODY2345"
	keyOfProvider  = "provider-key-0123456789-abcdef"
	keyOfAgent     = "own-key-of-the-agent-9876543210"
)

// asks records what a provider is sent, and answers as a model, or with an
// echo of what it was sent.
type asks struct {
	mu      sync.Mutex
	model   http.Handler
	headers []http.Header
	sent    []string // method, URL and headers of each request
}

func (a *asks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.headers = append(a.headers, r.Header.Clone())
	a.sent = append(a.sent, fmt.Sprint(r.Method, " ", r.URL, " ", r.Header))
	a.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "/echo") {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Got", r.Header.Get("Authorization"))
		if r.URL.Query().Has("fail") {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprintf(w, `{"got":%q}`, r.Header.Get("Authorization"))
		return
	}
	a.model.ServeHTTP(w, r)
}

func (a *asks) all() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.sent)
}

// last is the key that the last request showed.
func (a *asks) last() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.headers) == 0 {
		return ""
	}
	return a.headers[len(a.headers)-1].Get("Authorization")
}

func newAsks() *asks {
	return &asks{model: providertest.New(providertest.Script{
		{Say: []providertest.Item{providertest.Call{ID: "call_1", Name: "bash", Args: `{"command":"rm -rf ~/photos"}`}}},
		{Say: []providertest.Item{providertest.Text("Well then.")}},
	})}
}

// office is a callgate serve for several agents, with a provider whose key it
// holds, one whose it does not, and everything that it writes.
type office struct {
	*served
	t          *testing.T
	dir        string
	held, free *asks
	heldURL    string
	desk       string       // base URL of the agent desk's own
	authority  string       // file of the CA that clients of the proxy trust
	said       bytes.Buffer // standard output
	traces     lockedBuffer
	seen       []string // what clients were told
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) add(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

const officeFile = `
listen: 127.0.0.1:0
control: {listen: "127.0.0.1:0"}
state: DIR/state
log: {level: debug, format: FORMAT}
default_upstreams: {openai-chat: held}
forward: {others: tunnel}
upstreams:
  held: {url: "HELD/v1", credential: {bearer: "file:DIR/provider.key"}}
  free: {url: "FREE/v1"}
agents:
  planner: {token_sha256: PLANNER}
  worker: {token: "file:DIR/worker.token", upstreams: [free]}
  desk: {listen: "127.0.0.1:0"}
approvals:
  mode: custom
  hook: /bin/sh DIR/hook.sh
`

// openOffice starts it; form is --json, or nothing.
func openOffice(t *testing.T, form string) *office {
	o := &office{t: t, dir: t.TempDir(), held: newAsks(), free: newAsks()}
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(o.dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}

	// A provider by TLS, whose authority callgate is told to trust.
	held := httptest.NewUnstartedServer(o.held)
	ca, err := mitm.New([]string{"localhost"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := mitm.NewIssuer(ca, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	cert, err := issuer.Certificate("localhost")
	if err != nil {
		t.Fatal(err)
	}
	held.TLS = &tls.Config{Certificates: []tls.Certificate{*cert}}
	held.StartTLS()
	t.Cleanup(held.Close)
	o.heldURL = strings.Replace(held.URL, "127.0.0.1", "localhost", 1)
	free := httptest.NewServer(o.free)
	t.Cleanup(free.Close)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // a part of it is looked at just so
		o.traces.add(b)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(collector.Close)

	write("provider.key", keyOfProvider+"\n")
	write("worker.token", tokenOfWorker+"\n")
	write("hook.sh", "cat >> '"+o.dir+"/hook.log'; env >> '"+o.dir+"/hook.log'; echo '{\"decision\":\"escalate\",\"reason\":\"a person should look\"}'\n")
	format := "text"
	if form != "" {
		format = "json"
	}
	config := write("callgate.yaml", strings.NewReplacer("DIR", o.dir, "FORMAT", format, "HELD", o.heldURL, "FREE", free.URL, "PLANNER", fmt.Sprintf("%x", sha256.Sum256([]byte(tokenOfPlanner)))).Replace(officeFile))

	args := []string{"serve", "--config", config}
	if form != "" {
		args = append(args, form)
	}
	o.served = newServed(t)
	o.launch(args, "SSL_CERT_FILE="+write("provider-ca.pem", string(ca.PEM())), "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL)
	if form != "" {
		o.greetedJSON()
	} else {
		o.greeted()
	}
	o.authority = filepath.Join(o.dir, "state", mitm.CertFile)
	return o
}

// line waits for a line of standard output and keeps it.
func (o *office) line() string {
	o.t.Helper()
	l := o.served.line()
	o.said.WriteString(l + "\n")
	return l
}

func (o *office) greetedJSON() {
	var g struct {
		Token, Control string
		BaseURL        string `json:"base_url"`
		Agents         []agentShown
	}
	if err := json.Unmarshal([]byte(o.line()), &g); err != nil {
		o.t.Fatal(err)
	}
	o.base, o.control, o.token = g.BaseURL, g.Control, g.Token
	for _, a := range g.Agents {
		if a.Name == "desk" {
			o.desk = a.BaseURL
		}
	}
	if len(g.Agents) != 3 || o.desk == "" {
		o.t.Fatalf("the agents are %+v", g.Agents)
	}
}

func (o *office) greeted() {
	for o.control == "" {
		line := o.line()
		if at, ok := strings.CutPrefix(line, "callgate serves agents at "); ok {
			o.base = at
		}
		if _, at, ok := strings.Cut(line, "agent desk"); ok {
			o.desk = strings.TrimPrefix(strings.TrimSpace(at), "at ")
		}
		if _, token, ok := strings.Cut(line, "export CALLGATE_CONTROL_TOKEN="); ok {
			o.token = token
		}
		if _, at, ok := strings.Cut(line, "approvals list --control "); ok {
			o.control = at
		}
	}
	wantIn(o.t, o.said.String(), "ANTHROPIC_BASE_URL", o.base+"/~TOKEN", "HTTPS_PROXY=http://agent:TOKEN@", "agent planner        by its token", "agent worker         by its token, to free alone")
}

// asked waits for the question about a call and answers it. An agent that has
// its answer without one is an error.
func (o *office) asked(answer string, done <-chan heard) error {
	o.t.Helper()
	id := ""
	for id == "" {
		var line string
		select {
		case got := <-done:
			return fmt.Errorf("the agent got %+v", got)
		case line = <-o.lines:
		}
		o.said.WriteString(line + "\n")
		if m := questionLine.FindStringSubmatch(line); m != nil {
			id = m[1]
		} else if strings.HasPrefix(line, `{"event":"question"`) {
			var q struct{ Approval struct{ ID string } }
			if err := json.Unmarshal([]byte(line), &q); err != nil {
				o.t.Fatal(err)
			}
			id = q.Approval.ID
		}
	}
	for _, args := range [][]string{{"list"}, {"list", "--json"}, {"show", id}, {"show", id, "--json"}, {answer, id}} {
		out, code := o.people(args...)
		if code != exitOK {
			o.t.Fatalf("approvals %q: exit code %d\n%s", args, code, out)
		}
		o.seen = append(o.seen, out)
	}
	return nil
}

// proxied is a client that shows a user and a password at callgate as its proxy.
func (o *office) proxied(user *url.Userinfo) *http.Client {
	o.t.Helper()
	pem, err := os.ReadFile(o.authority)
	if err != nil {
		o.t.Fatal(err)
	}
	at, err := url.Parse(o.base)
	if err != nil {
		o.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	at.User = user
	tr := &http.Transport{Proxy: http.ProxyURL(at), TLSClientConfig: &tls.Config{RootCAs: roots}}
	o.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

// heard is what an agent got of an answer.
type heard struct {
	calls, text string
	err         error
}

// sdk asks the model by OpenAI's own client.
func (o *office) sdk(stream bool, opts ...option.RequestOption) (s heard) {
	opts = append([]option.RequestOption{option.WithMaxRetries(0), option.WithAPIKey(keyOfAgent)}, opts...)
	c := openai.NewClient(opts...)
	ask := openai.ChatCompletionNewParams{
		Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Clean up.")},
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: "bash", Parameters: shared.FunctionParameters{"type": "object", "properties": map[string]any{"command": map[string]any{"type": "string"}}},
		})},
	}
	ctx, cancel := context.WithTimeout(o.t.Context(), patience)
	defer cancel()
	done := &openai.ChatCompletion{}
	if stream {
		chunks := c.Chat.Completions.NewStreaming(ctx, ask)
		var acc openai.ChatCompletionAccumulator
		for chunks.Next() {
			acc.AddChunk(chunks.Current())
		}
		done, s.err = &acc.ChatCompletion, chunks.Err()
	} else {
		done, s.err = c.Chat.Completions.New(ctx, ask)
	}
	if s.err != nil || len(done.Choices) == 0 {
		return s
	}
	for _, call := range done.Choices[0].Message.ToolCalls {
		s.calls += call.Function.Name + " " + call.Function.Arguments
	}
	s.text = done.Choices[0].Message.Content
	return s
}

// told is what a client is told of a request.
func (o *office) told(c *http.Client, method, target string, header ...string) (int, string) {
	o.t.Helper()
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader(`{"model":"m","messages":[` + clean + `]}`)
	}
	r, err := http.NewRequestWithContext(o.t.Context(), method, target, body)
	if err != nil {
		o.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		// The client knows its own URL; what callgate said stands behind it.
		text := err.Error()
		if e, ok := errors.AsType[*url.Error](err); ok {
			text = e.Err.Error()
		}
		o.seen = append(o.seen, text)
		return 0, text
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	o.seen = append(o.seen, fmt.Sprint(resp.Status, resp.Header), string(text))
	return resp.StatusCode, string(text)
}

func TestAgentsAreToldApartAndNoSecretIsTold(t *testing.T) {
	for name, form := range map[string]string{"for people": "", "for machines": "--json"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := openOffice(t, form)
			o.work()
			o.refusals()
			o.echoes()
			o.others()
			o.stop()
			for l := range o.lines {
				o.said.WriteString(l + "\n")
			}
			o.audited()
			o.nothingTold()
		})
	}
}

// work lets real clients ask in each way that they have.
func (o *office) work() {
	t := o.t
	proxied := o.proxied(url.UserPassword("agent", tokenOfPlanner))
	claims := []option.RequestOption{option.WithHeader("X-Callgate-User", "ann"), option.WithHeader("X-Callgate-Platform", "telegram")}
	for _, c := range []struct {
		name, answer string
		stream       bool
		opts         []option.RequestOption
		key          string // that the provider is shown
		of           *asks
	}{
		{"by a base URL", "approve", true, append(claims, option.WithBaseURL(o.base+"/~"+tokenOfPlanner+"/held/v1"), option.WithHeader("X-Api-Key", keyOfAgent)), keyOfProvider, o.held},
		{"by a bare path", "approve", false, []option.RequestOption{option.WithBaseURL(o.base + "/~" + tokenOfPlanner + "/v1"), option.WithHeader("X-Callgate-User", "bob")}, keyOfProvider, o.held},
		{"by its key", "approve", true, []option.RequestOption{option.WithBaseURL(o.base + "/v1"), option.WithAPIKey(tokenOfPlanner)}, keyOfProvider, o.held},
		{"by its proxy", "approve", true, []option.RequestOption{option.WithBaseURL(o.heldURL + "/v1"), option.WithHTTPClient(proxied)}, keyOfProvider, o.held},
		{"by its proxy, told no", "deny", false, []option.RequestOption{option.WithBaseURL(o.heldURL + "/v1"), option.WithHTTPClient(proxied)}, keyOfProvider, o.held},
		{"by a base URL, after a no by its proxy", "", true, []option.RequestOption{option.WithBaseURL(o.base + "/~" + tokenOfPlanner + "/held/v1")}, keyOfProvider, o.held},
		{"another agent by an address of its own", "approve", false, []option.RequestOption{option.WithBaseURL(o.desk + "/v1")}, keyOfProvider, o.held},
		{"another agent, told no", "deny", true, []option.RequestOption{option.WithBaseURL(o.desk + "/held/v1")}, keyOfProvider, o.held},
		{"to a provider whose key the agent has", "approve", false, []option.RequestOption{option.WithBaseURL(o.base + "/~" + tokenOfWorker + "/free/v1")}, keyOfAgent, o.free},
	} {
		done := make(chan heard, 1)
		go func() { done <- o.sdk(c.stream, c.opts...) }()
		if c.answer != "" { // else the no of before holds, however the agent comes
			if err := o.asked(c.answer, done); err != nil {
				t.Errorf("%s: nobody was asked: %v", c.name, err)
				continue
			}
		}
		got := <-done
		yes := c.answer == "approve"
		if got.err != nil || (got.calls != "") != yes || !yes && !strings.Contains(got.text, "Well then.") {
			t.Errorf("%s: the agent got the calls %q and %q, %v", c.name, got.calls, got.text, got.err)
		}
		if key := c.of.last(); key != "Bearer "+c.key {
			t.Errorf("%s: the provider was shown %q", c.name, key)
		}
		o.seen = append(o.seen, got.calls+got.text)
	}
}

// refusals asks in ways that must not work, and looks whether anything reached
// a provider.
func (o *office) refusals() {
	before := len(o.held.all()) + len(o.free.all())
	plain := &http.Client{Timeout: patience}
	const path = "/v1/chat/completions"
	for _, c := range []struct {
		name   string
		client *http.Client
		target string
		header []string
		status int // 0 for no answer at all
		says   string
	}{
		{"no token", plain, o.base + "/held" + path, []string{"Authorization", "Bearer " + keyOfAgent}, 401, "this one has no token"},
		{"a wrong token in the path", plain, o.base + "/~" + tokenOfNobody + "/held" + path, nil, 401, "it stands in the path"},
		{"a wrong token of another kind in the path", plain, o.base + "/~" + strings.ToUpper(tokenOfWorker) + "/held" + path, nil, 401, "it stands in the path"},
		{"a wrong token as key", plain, o.base + path, []string{"X-Api-Key", tokenOfNobody}, 401, "it stands in X-Api-Key"},
		{"a token in a header that is none for it", plain, o.base + "/held" + path, []string{"X-Note", tokenOfPlanner}, 401, "where none is taken"},
		{"an upstream that is not for it", plain, o.base + "/~" + tokenOfWorker + "/held" + path, nil, 403, "may not use the upstream held"},
		{"an upstream that is not for it, by a bare path", plain, o.base + "/~" + tokenOfWorker + path, nil, 403, "may not use the upstream held"},
		{"another agent's token at an agent's address", plain, o.desk + "/~" + tokenOfPlanner + "/held" + path, nil, 401, "two agents: desk and planner"},
		{"a wrong token for the proxy", o.proxied(url.UserPassword("agent", tokenOfNobody)), o.heldURL + path, nil, 0, "no agent's of this callgate: it stands in Proxy-Authorization"},
		{"no token for the proxy", o.proxied(nil), o.heldURL + path, nil, 0, "must show which agent it is of"},
		{"no token for the proxy, to anywhere", o.proxied(nil), "http://example.invalid/", nil, 407, "must show which agent"},
		{"an upstream that is not for it, by the proxy", o.proxied(url.UserPassword("worker", tokenOfWorker)), o.heldURL + path, nil, 403, "may not use the upstream held"},
		{"another's token in a tunnel", o.proxied(url.UserPassword("agent", tokenOfPlanner)), o.heldURL + path, []string{"X-Api-Key", tokenOfWorker}, 401, "two agents"},
		{"another agent's name beside a token", o.proxied(url.UserPassword("worker", tokenOfPlanner)), o.heldURL + path, nil, 0, "not that of the agent worker"},
	} {
		status, text := o.told(c.client, "POST", c.target, c.header...)
		if status != c.status || !strings.Contains(text, c.says) {
			o.t.Errorf("%s: status %d, %s; want %d, %q", c.name, status, text, c.status, c.says)
		}
	}
	if now := len(o.held.all()) + len(o.free.all()); now != before {
		o.t.Errorf("%d requests of nobody reached a provider", now-before)
	}
	for _, c := range []struct{ target, want string }{{o.base + "/", "callgate"}, {o.base + "/~" + tokenOfPlanner, "callgate"}} {
		if status, text := o.told(plain, "GET", c.target); status != 200 || !strings.Contains(text, c.want) {
			o.t.Errorf("GET %s: %d %s", c.target, status, text)
		}
	}
}

// echoes asks a provider that repeats what it is sent.
func (o *office) echoes() {
	plain := &http.Client{Timeout: patience}
	for target, want := range map[string]int{"/held/v1/echo": 502, "/held/v1/echo?fail=1": 401, "/v1/echo": 502} {
		status, text := o.told(plain, "GET", o.base+"/~"+tokenOfPlanner+target)
		if status != want || !strings.Contains(text, "repeats the credential") {
			o.t.Errorf("%s: status %d, %s", target, status, text)
		}
	}
}

// others asks for a host that is no provider's, and may not be reached from
// here; and as curl does.
func (o *office) others() {
	other := newAsks()
	elsewhere := httptest.NewServer(other)
	defer elsewhere.Close()
	status, text := o.told(o.proxied(url.UserPassword("agent", tokenOfPlanner)), "GET", elsewhere.URL+"/v1/echo")
	if status != 403 || len(other.all()) > 0 {
		o.t.Errorf("another host on this machine: status %d, %s", status, text)
	}
	if curl, err := exec.LookPath("curl"); err == nil {
		at := strings.Replace(o.base, "://", "://agent:"+tokenOfPlanner+"@", 1)
		cmd := exec.Command(curl, "-sS", "--cacert", o.authority, "-x", at, o.heldURL+"/v1/echo")
		cmd.Env = []string{"HOME=" + o.t.TempDir()}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "repeats the credential") {
			o.t.Errorf("curl: %v %s", err, out)
		}
		o.seen = append(o.seen, string(out))
	}
}

// audited looks at what the log says of whom.
func (o *office) audited() {
	environ := map[string]string{"HOME": o.dir, "CALLGATE_CONFIG": filepath.Join(o.dir, "callgate.yaml")}
	var list string
	for _, args := range [][]string{
		{"audit", "list", "--json"}, {"audit", "list"}, {"audit", "show", "1"}, {"audit", "verify"}, {"agents", "list"}, {"agents", "list", "--json"},
		{"config", "show"}, {"config", "show", "--json"}, {"config", "validate"}, {"config", "validate", filepath.Join(o.dir, "callgate.yaml")},
	} {
		code, out, errs := runCommand(o.t, environ, args...)
		if code != exitOK {
			o.t.Errorf("%q: exit code %d\n%s", args, code, errs)
		}
		o.seen = append(o.seen, out, errs)
		if list == "" {
			list = out
		}
	}
	for _, want := range []string{
		`"agent":"planner"`, `"agent":"desk"`, `"agent":"worker"`, `"claimed":{"user":"ann","platform":"telegram"}`, `"claimed":{"user":"bob"}`,
	} {
		if !strings.Contains(list, want) {
			o.t.Errorf("the audit log has no %s:\n%s", want, list)
		}
	}
	hook, err := os.ReadFile(filepath.Join(o.dir, "hook.log"))
	if err != nil {
		o.t.Fatal(err)
	}
	wantIn(o.t, string(hook), `"claimed":{"session":"","user":"ann","platform":"telegram"}`, `"user_id":"ann"`, `"agent":"planner"`, `"agent":"desk"`)
	wantIn(o.t, strings.Join(o.seen, "\n"), `"claimed": {`, "user ann", "platform telegram")
	wantIn(o.t, o.traces.String(), "callgate.agent", "planner", "desk", "worker")
}

// nothingTold looks for secrets in everything that was written.
func (o *office) nothingTold() {
	all := map[string]string{
		"standard output": o.said.String(), "log": o.stderr.String(), "traces": o.traces.String(), "what was told": strings.Join(o.seen, "\n"),
		"what the one provider was sent": strings.Join(o.held.all(), "\n"), "what the other provider was sent": strings.Join(o.free.all(), "\n"),
	}
	err := filepath.WalkDir(o.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || slices.Contains([]string{"worker.token", "provider.key"}, d.Name()) {
			return err
		}
		b, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, o.dir)] = string(b)
		return err
	})
	if err != nil {
		o.t.Fatal(err)
	}
	if !strings.Contains(all["/state/callgate.db"], "planner") {
		o.t.Error("there is no state to look at")
	}
	secrets := map[string]string{
		"the provider's key": keyOfProvider, "the planner's token": tokenOfPlanner, "the worker's token": tokenOfWorker, "a lost token": tokenOfNobody,
		"a lost token in capitals": strings.ToUpper(tokenOfWorker), "the agent's own key": keyOfAgent,
	}
	for _, user := range []string{"agent", "worker"} {
		for _, token := range []string{tokenOfPlanner, tokenOfWorker, tokenOfNobody} {
			secrets["a proxy's credentials, "+user+token[:4]] = base64.StdEncoding.EncodeToString([]byte(user + ":" + token))
		}
	}
	for where, text := range all {
		for what, s := range secrets {
			sent := what == "the provider's key" && strings.Contains(where, "the one provider") || what == "the agent's own key" && strings.Contains(where, "the other provider")
			if strings.Contains(text, s) != sent {
				at := max(0, strings.Index(text, s)-200)
				o.t.Errorf("%s holds %s: %v, want %v: %.400q", where, what, !sent, sent, text[at:])
			}
		}
	}
}

func TestTheGreetingNamesEachDoorThatStandsOpen(t *testing.T) {
	cfg := config.Default()
	cfg.Agents = config.Agents{
		"desk": {Listen: "127.0.0.1:4150"}, "lab": {Listen: "0.0.0.0:4151"}, "planner": {TokenSHA256: strings.Repeat("ab", 32)}, "default": {},
	}
	var got []string
	for _, line := range openDefaults(&cfg) {
		if strings.HasPrefix(line, "agents.") {
			got = append(got, line)
		}
	}
	want := []string{
		"agents.lab.listen 0.0.0.0:4151: whoever reaches it, from other machines too, is lab",
		"agents.default: requests without a token are taken",
	}
	if !slices.Equal(got, want) {
		t.Errorf("it names %q, want %q", got, want)
	}
	if !tokenless(&cfg) {
		t.Error("a default agent needs a token")
	}
	delete(cfg.Agents, "default")
	if tokenless(&cfg) || slices.Contains(openDefaults(&cfg), want[1]) {
		t.Error("without a default agent requests without a token are taken")
	}
}
