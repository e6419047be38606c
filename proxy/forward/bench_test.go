package forward

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/elazarl/goproxy"

	"callgate/gate"
	"callgate/gate/detect"
	"callgate/inspect"
	"callgate/inspect/catalog"
	"callgate/inspect/openaichat"
	"callgate/proxy"
	"callgate/proxy/egress"
	"callgate/proxy/mitm"
)

// load is one kind of traffic: what is asked and what is answered, each part
// written and flushed by itself.
type load struct {
	ask, kind string
	parts     []string
}

// loads are an answer in one piece with a call, and a stream of 200 words and
// a call in 20 pieces.
func loads() map[string]load {
	ask := func(stream bool) string {
		return fmt.Sprintf(`{"model":"m","stream":%v,"messages":[{"role":"user","content":"%s"}],"tools":[{"type":"function","function":{"name":"bash","parameters":{"type":"object","properties":{"command":{"type":"string"}}}}}]}`, stream, strings.Repeat("some words ", 90))
	}
	whole := `{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		strings.Repeat("words of an answer ", 50) + `","tool_calls":[{"id":"call_1","type":"function","function":{"name":"bash","arguments":"{\"command\":\"ls -la src\"}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30}}`
	chunk := func(delta, finish string) string {
		return `data: {"id":"chatcmpl-BxYq0pTn5Rk3sVw8JmLd2HfGz7CeA","object":"chat.completion.chunk","created":1700000000,"model":"gpt-4o-2024-08-06","service_tier":"default","system_fingerprint":"fp_07871e2ad8","choices":[{"index":0,"delta":` +
			delta + `,"logprobs":null,"finish_reason":` + finish + `}],"usage":null,"obfuscation":"q8Zk2"}` + "\n\n"
	}
	stream := []string{chunk(`{"role":"assistant","content":""}`, "null")}
	for i := range 200 {
		stream = append(stream, chunk(fmt.Sprintf(`{"content":"word %d "}`, i), "null"))
	}
	stream = append(stream, chunk(`{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"bash","arguments":""}}]}`, "null"))
	for i := range 20 {
		part := fmt.Sprintf(" file%d", i)
		switch i {
		case 0:
			part = `{\"command\":\"ls`
		case 19:
			part = ` | tail\"}`
		}
		stream = append(stream, chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"`+part+`"}}]}`, "null"))
	}
	stream = append(stream, chunk(`{}`, `"tool_calls"`), "data: [DONE]\n\n")
	return map[string]load{"W1": {ask(false), "application/json", []string{whole}}, "W3": {ask(true), "text/event-stream", stream}}
}

// The variables that make a copy of the test program a part of the benchmark.
const (
	role         = "CALLGATE_FORWARD_BENCH_ROLE"
	roleProvider = "CALLGATE_FORWARD_BENCH_PROVIDER"
	roleDir      = "CALLGATE_FORWARD_BENCH_DIR"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(role); kind != "" {
		if err := part(kind, os.Getenv(roleProvider), os.Getenv(roleDir)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// part serves as provider, goproxy or callgate until its standard input ends.
func part(kind, provider, dir string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	theirs, err := mitm.Load(dir + "/provider")
	if err != nil {
		return err
	}
	mine, err := mitm.Load(dir + "/proxy")
	if err != nil {
		return err
	}
	var h http.Handler
	serving := l
	switch kind {
	case "provider":
		issuer, err := mitm.NewIssuer(theirs, func(string) bool { return true })
		if err != nil {
			return err
		}
		serving = tls.NewListener(l, &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return issuer.Certificate("127.0.0.1") }})
		h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			answer := loads()["W1"]
			if r.Header.Get("X-Load") != "" {
				answer = loads()[r.Header.Get("X-Load")]
			}
			w.Header().Set("Content-Type", answer.kind)
			for _, p := range answer.parts {
				io.WriteString(w, p)
				if len(answer.parts) > 1 {
					w.(http.Flusher).Flush()
				}
			}
		})
	case "goproxy":
		if h, err = plainMITM(theirs, dir+"/proxy"); err != nil {
			return err
		}
	case "callgate":
		debug.SetGCPercent(400) // as callgate serve does
		if h, err = benchHandler(provider, theirs, mine, l.Addr()); err != nil {
			return err
		}
	}
	fmt.Println(l.Addr())
	go http.Serve(serving, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Host == "" && r.URL.Path == "/-/cpu" {
			var u syscall.Rusage
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
				panic(err)
			}
			fmt.Fprint(w, u.Utime.Nano()+u.Stime.Nano())
			return
		}
		h.ServeHTTP(w, r)
	}))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// kept keeps certificates for goproxy.
type kept struct{ all sync.Map }

func (k *kept) Fetch(host string, make func() (*tls.Certificate, error)) (*tls.Certificate, error) {
	if c, ok := k.all.Load(host); ok {
		return c.(*tls.Certificate), nil
	}
	c, err := make()
	k.all.Store(host, c)
	return c, err
}

// plainMITM is what callgate is measured against: goproxy's own reading of what
// is inside a tunnel, which decides on nothing.
func plainMITM(theirs *mitm.CA, dir string) (http.Handler, error) {
	ca, err := tls.LoadX509KeyPair(dir+"/"+mitm.CertFile, dir+"/"+mitm.KeyFile)
	if err != nil {
		return nil, err
	}
	g := goproxy.NewProxyHttpServer()
	g.CertStore = &kept{}
	g.ConnectDial = nil
	// callgate's settings, and Go's own way to speak TLS: goproxy's default keeps
	// two connections to a host and would pay for a handshake with each request.
	g.Tr = egress.New(egress.Options{Roots: pool(theirs), AllowPrivate: func(string) bool { return true }})
	g.Tr.DialTLSContext = nil
	g.OnRequest().HandleConnectFunc(func(host string, _ *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
		return &goproxy.ConnectAction{Action: goproxy.ConnectMitm, TLSConfig: goproxy.TLSConfigFromCA(&ca)}, host
	})
	return g, nil
}

func benchHandler(provider string, theirs, mine *mitm.CA, own net.Addr) (http.Handler, error) {
	tools, err := catalog.New()
	if err != nil {
		return nil, err
	}
	decide, err := gate.New(gate.Config{Detector: detect.New(detect.World{Home: "/home/u"}), UnauditedForTest: true, UnknownTools: gate.Allow})
	if err != nil {
		return nil, err
	}
	at := parseURL(nil, provider)
	return New(Options{
		Next: &proxy.Proxy{
			Upstreams: map[string]*proxy.Upstream{"main": {Name: "main", URL: at}},
			Dialects:  []inspect.Dialect{openaichat.Dialect{}}, Actions: tools.Actions, Gate: decide,
			Transport: egress.New(egress.Options{Roots: pool(theirs), AllowPrivate: func(string) bool { return true }}),
		},
		Server: dataServer, Upstreams: []Upstream{{"main", at}}, CA: mine,
		Data:      []netip.AddrPort{own.(*net.TCPAddr).AddrPort()},
		Transport: egress.New(egress.Options{}),
	})
}

// launch runs a part and returns its address.
func launch(b *testing.B, kind, provider, dir string) string {
	b.Helper()
	c := exec.Command(os.Args[0], "-test.run=^$")
	c.Env = append(os.Environ(), role+"="+kind, roleProvider+"="+provider, roleDir+"="+dir)
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
	return addr
}

// BenchmarkAgainstGoproxy sends the same traffic through goproxy's own reading
// of tunnels and through callgate with the gate on, 16 requests at a time and
// in turns, each in a process of its own, and tells the processor time that
// each takes per request, over connections that are open already. TLS 1.3 and
// HTTP/1.1 are spoken on both sides of both. goproxy's process has Go's own
// setting of the collector, callgate's that of serve.
func BenchmarkAgainstGoproxy(b *testing.B) {
	dir := b.TempDir()
	mine := map[string]*mitm.CA{}
	for _, name := range []string{"provider", "proxy"} {
		ca, err := mitm.New([]string{"127.0.0.1"}, time.Now())
		if err != nil {
			b.Fatal(err)
		}
		if err := mitm.Save(dir+"/"+name, ca); err != nil {
			b.Fatal(err)
		}
		mine[name] = ca
	}
	provider := "https://" + launch(b, "provider", "", dir)
	sides := []string{launch(b, "goproxy", provider, dir), launch(b, "callgate", provider, dir)}
	var clients []*http.Client
	for _, at := range sides {
		t := &http.Transport{
			Proxy: http.ProxyURL(parseURL(b, "http://"+at)), MaxIdleConnsPerHost: 64, DisableCompression: true,
			TLSClientConfig: &tls.Config{RootCAs: pool(mine["proxy"])},
		}
		defer t.CloseIdleConnections()
		clients = append(clients, &http.Client{Transport: t})
	}
	spent := func(at string) time.Duration {
		resp, err := http.Get("http://" + at + "/-/cpu")
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
	for _, name := range []string{"W1", "W3"} {
		l := loads()[name]
		b.Run(name, func(b *testing.B) {
			want := strings.Join(l.parts, "")
			ask := func(c *http.Client) {
				r, _ := http.NewRequest("POST", provider+"/v1/chat/completions", strings.NewReader(l.ask))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("X-Load", name)
				resp, err := c.Do(r)
				if err != nil {
					b.Error(err)
					return
				}
				defer resp.Body.Close()
				if got, err := io.ReadAll(resp.Body); err != nil || string(got) != want {
					b.Errorf("%v, %d bytes of %d: %.300s", err, len(got), len(want), got)
				}
			}
			const side, each = 16, 8
			var took [2]time.Duration
			round := func() {
				for i, at := range sides {
					before := spent(at)
					var wg sync.WaitGroup
					for range side {
						wg.Go(func() {
							for range each {
								ask(clients[i])
							}
						})
					}
					wg.Wait()
					took[i] += spent(at) - before
				}
			}
			round() // connections are opened and certificates made
			took = [2]time.Duration{}
			for b.Loop() {
				round()
			}
			per := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(b.N*side*each) }
			b.ReportMetric(per(took[0]), "goproxy-µs")
			b.ReportMetric(per(took[1]), "callgate-µs")
			b.ReportMetric(per(took[1])/per(took[0]), "ratio")
		})
	}
}
