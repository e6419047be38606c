package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"callgate/gate"
	"callgate/gate/detect"
	"callgate/inspect"
	"callgate/inspect/anthropic"
	"callgate/inspect/catalog"
	"callgate/inspect/openaichat"
	"callgate/proxy/egress"
	"callgate/proxy/repair"
)

// workload is one kind of traffic: what is asked and what is answered.
type workload struct {
	path, ask, kind string
	parts           []string // each written and flushed by itself
}

func workloads() map[string]workload {
	const (
		tools = `"tools":[{"type":"function","function":{"name":"bash","parameters":{"type":"object","properties":{"command":{"type":"string"}}}}}]`
		args  = `{\"command\":\"ls -la src && go test ./... | tail -20\"}`
	)
	chat := func(n int, stream bool) string {
		return fmt.Sprintf(`{"model":"m","stream":%v,"messages":[{"role":"user","content":"%s"}],%s}`, stream, strings.Repeat("some words ", n/11), tools)
	}
	answer := `{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		strings.Repeat("words of an answer ", 50) + `","tool_calls":[{"id":"call_1","type":"function","function":{"name":"bash","arguments":"` + args +
		`"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30}}`
	chunk := func(delta, finish string) string {
		// As long as those of OpenAI: the same members, ids of the same length.
		return `data: {"id":"chatcmpl-BxYq0pTn5Rk3sVw8JmLd2HfGz7CeA","object":"chat.completion.chunk","created":1700000000,"model":"gpt-4o-2024-08-06",` +
			`"service_tier":"default","system_fingerprint":"fp_07871e2ad8","choices":[{"index":0,"delta":` + delta + `,"logprobs":null,"finish_reason":` + finish +
			`}],"usage":null,"obfuscation":"q8Zk2"}` + "\n\n"
	}
	w3 := []string{chunk(`{"role":"assistant","content":""}`, "null")}
	for i := range 200 {
		w3 = append(w3, chunk(fmt.Sprintf(`{"content":"word %d "}`, i), "null"))
	}
	w3 = append(w3, chunk(`{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"bash","arguments":""}}]}`, "null"))
	for i := range 20 {
		part := fmt.Sprintf(" file%d", i)
		switch i {
		case 0:
			part = `{\"command\":\"ls`
		case 19:
			part = ` | tail\"}`
		}
		w3 = append(w3, chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"`+part+`"}}]}`, "null"))
	}
	w3 = append(w3, chunk(`{}`, `"tool_calls"`), "data: [DONE]\n\n")

	event := func(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }
	w6 := []string{event("message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":1}}}`),
		event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)}
	for i := range 60 {
		w6 = append(w6, event("content_block_delta", fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word %d "}}`, i)))
	}
	w6 = append(w6, event("content_block_stop", `{"type":"content_block_stop","index":0}`))
	for b := 1; b <= 2; b++ {
		w6 = append(w6, event("content_block_start", fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":"tool_use","id":"toolu_%d","name":"Bash","input":{}}}`, b, b)))
		for _, p := range []string{`{\"command\"`, `: \"ls -la`, ` src && go`, ` test ./...\"`, `}`} {
			w6 = append(w6, event("content_block_delta", fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":"%s"}}`, b, p)))
		}
		w6 = append(w6, event("content_block_stop", fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, b)))
	}
	w6 = append(w6, event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":50}}`), event("message_stop", `{"type":"message_stop"}`))
	messages := `{"model":"m","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("some words ", 100) + `"}],"tools":[{"name":"Bash","input_schema":{"type":"object","properties":{"command":{"type":"string"}}}}]}`
	return map[string]workload{
		"W1": {"/v1/chat/completions", chat(1000, false), asJSON, []string{answer}},
		"W3": {"/v1/chat/completions", chat(1000, true), sse, w3},
		"W5": {"/v1/chat/completions", chat(200_000, false), asJSON, []string{answer}},
		"W6": {"/v1/messages", messages, sse, w6},
	}
}

func (w workload) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	rw.Header().Set("Content-Type", w.kind)
	if len(w.parts) == 1 {
		io.WriteString(rw, w.parts[0])
		return
	}
	for _, p := range w.parts {
		io.WriteString(rw, p)
		rw.(http.Flusher).Flush()
	}
}

// role names the environment variable that makes a copy of the test program
// one of the parts of the benchmark.
const role = "CALLGATE_BENCH_ROLE"

func TestMain(m *testing.M) {
	if kind := os.Getenv(role); kind != "" {
		if err := part(kind, os.Getenv(role+"_PROVIDER")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// part serves as provider, relay or callgate until its standard input ends,
// and tells the processor time it took at /-/cpu.
func part(kind, provider string) error {
	base, err := url.Parse(provider)
	if err != nil {
		return err
	}
	var h http.Handler
	switch kind {
	case "provider":
		mux := http.NewServeMux()
		for name, w := range workloads() {
			mux.Handle("/"+name+"/", w)
		}
		h = mux
	case "relay":
		h = plainRelay(base)
	case "callgate":
		debug.SetGCPercent(400) // as callgate serve does
		if h, err = benchProxy(base); err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/-/cpu" {
			fmt.Fprint(w, int64(cpu()))
			return
		}
		h.ServeHTTP(w, r)
	}))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// plainRelay is what callgate is measured against: httputil.ReverseProxy with
// callgate's own transport, that reads the request before it sends it. One that
// streams it breaks answers off whose provider is quick.
func plainRelay(base *url.URL) http.Handler {
	relay := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(base) },
		FlushInterval: -1,
		Transport:     egress.New(egress.Options{AllowPrivate: func(string) bool { return true }}),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, r.ContentLength)
		if _, err := io.ReadFull(r.Body, body); err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		relay.ServeHTTP(w, r)
	})
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func benchProxy(provider *url.URL) (*Proxy, error) {
	tools, err := catalog.New()
	if err != nil {
		return nil, err
	}
	g, err := gate.New(gate.Config{Detector: detect.New(detect.World{Home: "/home/u"}), UnauditedForTest: true, UnknownTools: gate.Allow})
	if err != nil {
		return nil, err
	}
	ups := make(map[string]*Upstream)
	for name := range workloads() {
		ups[name] = &Upstream{Name: name, URL: provider.JoinPath(name)}
	}
	ups["main"] = &Upstream{Name: "main", URL: provider}
	book, err := repair.Open(context.Background(), &shelf{}, repair.Options{})
	if err != nil {
		return nil, err
	}
	return &Proxy{
		Upstreams: ups,
		Dialects:  []inspect.Dialect{openaichat.Dialect{Denial: inspect.DenialRepair}, anthropic.Dialect{Denial: inspect.DenialRepair}},
		Actions:   tools.Actions, Gate: g, Repairs: book,
		Transport: egress.New(egress.Options{AllowPrivate: PrivateHosts(ups)}),
		Principal: PrincipalKey([]byte("k")),
	}, nil
}

// start runs a part and returns its base URL.
func start(b *testing.B, kind, provider string) string {
	b.Helper()
	c := exec.Command(os.Args[0], "-test.run=^$")
	c.Env = append(os.Environ(), role+"="+kind, role+"_PROVIDER="+provider)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); c.Wait() })
	var addr string
	if _, err := fmt.Fscanln(out, &addr); err != nil {
		b.Fatal(err)
	}
	return "http://" + addr
}

func spent(b *testing.B, base string) time.Duration {
	b.Helper()
	resp, err := http.Get(base + "/-/cpu")
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	var n int64
	if _, err := fmt.Fscan(resp.Body, &n); err != nil {
		b.Fatal(err)
	}
	return time.Duration(n)
}

// BenchmarkAgainstReverseProxy sends the same traffic to a provider through
// httputil.ReverseProxy and through callgate with the gate on, 16 requests at
// a time and in turns, each in a process of its own, and tells the processor
// time (user and system) that each takes per request.
func BenchmarkAgainstReverseProxy(b *testing.B) {
	provider := start(b, "provider", "")
	relay, gated := start(b, "relay", provider), start(b, "callgate", provider)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}
	for _, name := range []string{"W1", "W3", "W5", "W6"} {
		w := workloads()[name]
		b.Run(name, func(b *testing.B) {
			want := strings.Join(w.parts, "")
			const side, each = 16, 8
			var took [2]time.Duration
			for b.Loop() {
				for i, to := range []string{relay, gated} {
					before := spent(b, to)
					var wg sync.WaitGroup
					for range side {
						wg.Go(func() {
							for range each {
								ask(b, client, to+"/"+name+w.path, w.ask, want)
							}
						})
					}
					wg.Wait()
					took[i] += spent(b, to) - before
				}
			}
			per := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(b.N*side*each) }
			b.ReportMetric(per(took[0]), "relay-µs")
			b.ReportMetric(per(took[1]), "callgate-µs")
			b.ReportMetric(per(took[1])/per(took[0]), "ratio")
		})
	}
}

// ask sends one request and checks that the answer is the provider's.
func ask(b *testing.B, client *http.Client, url, body, want string) {
	resp, err := client.Post(url, asJSON, strings.NewReader(body))
	if err != nil {
		b.Error(err)
		return
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || string(got) != want {
		b.Errorf("%s: %v, %d bytes of %d: %.300s", url, err, len(got), len(want), got)
	}
}

// canned is a transport that answers without a network, a part a Read.
type canned struct{ w workload }

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	io.Copy(io.Discard, r.Body)
	return &http.Response{
		StatusCode: 200, ContentLength: -1, Header: http.Header{"Content-Type": {c.w.kind}},
		Body: io.NopCloser(&parts{left: c.w.parts}),
	}, nil
}

type parts struct {
	cur  string
	left []string
}

func (p *parts) Read(b []byte) (int, error) {
	if p.cur == "" {
		if len(p.left) == 0 {
			return 0, io.EOF
		}
		p.cur, p.left = p.left[0], p.left[1:]
	}
	n := copy(b, p.cur)
	p.cur = p.cur[n:]
	return n, nil
}

// sink is a client that takes everything.
type sink struct {
	h      http.Header
	status int
	n      int
}

func (s *sink) Header() http.Header              { return s.h }
func (s *sink) WriteHeader(status int)           { s.status = status }
func (s *sink) Write(b []byte) (int, error)      { s.n += len(b); return len(b), nil }
func (s *sink) FlushError() error                { return nil }
func (s *sink) SetReadDeadline(time.Time) error  { return nil }
func (s *sink) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkServe is what a request costs in callgate alone, without a network.
func BenchmarkServe(b *testing.B) {
	for _, name := range []string{"W1", "W3", "W5", "W6"} {
		w := workloads()[name]
		b.Run(name, func(b *testing.B) {
			p, err := benchProxy(&url.URL{Scheme: "http", Host: "provider.test"})
			if err != nil {
				b.Fatal(err)
			}
			p.Transport = canned{w}
			want := len(strings.Join(w.parts, ""))
			b.ReportAllocs()
			for b.Loop() {
				r, _ := http.NewRequest("POST", "/"+name+w.path, strings.NewReader(w.ask))
				out := &sink{h: make(http.Header)}
				if p.ServeHTTP(out, r); out.status != 200 || out.n != want {
					b.Fatalf("status %d, %d bytes of %d", out.status, out.n, want)
				}
			}
		})
	}
}
