package forward

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/elazarl/goproxy"
	"golang.org/x/net/http2"
)

// spoken are the ways in which a client may speak inside a tunnel.
var spoken = []struct {
	name, proto string
	client      func(*rig) *http.Client
}{
	{"HTTP/1.1 over TLS", "HTTP/1.1", func(g *rig) *http.Client { return &http.Client{Transport: g.transport()} }},
	{"HTTP/2 over TLS", "HTTP/2.0", func(g *rig) *http.Client {
		t := g.transport()
		t.ForceAttemptHTTP2 = true
		return &http.Client{Transport: t}
	}},
	{"HTTP/2 over TLS, x/net", "HTTP/2.0", func(g *rig) *http.Client {
		t := g.transport()
		//lint:ignore SA1019 many clients are made with it still
		if err := http2.ConfigureTransport(t); err != nil {
			g.t.Fatal(err)
		}
		return &http.Client{Transport: t}
	}},
	{"HTTP/1.1 in clear", "HTTP/1.1", func(g *rig) *http.Client {
		return &http.Client{Transport: clear{&http.Transport{DialContext: g.tunnel}}}
	}},
	{"HTTP/2 in clear", "HTTP/2.0", func(g *rig) *http.Client {
		t := &http.Transport{DialContext: g.tunnel, Protocols: new(http.Protocols)}
		t.Protocols.SetUnencryptedHTTP2(true)
		return &http.Client{Transport: clear{t}}
	}},
	{"a whole URL", "HTTP/1.1", func(g *rig) *http.Client {
		return &http.Client{Transport: wholeURL{g.address()}}
	}},
}

// tunnel dials through CONNECT.
func (g *rig) tunnel(_ context.Context, _, addr string) (net.Conn, error) {
	c, status, head := g.connect(addr)
	if status != 200 {
		return nil, errors.New(head)
	}
	return c, c.SetDeadline(time.Time{})
}

// clear speaks plain HTTP to what has an https URL.
type clear struct{ http.RoundTripper }

func (c clear) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme = "http"
	return c.RoundTripper.RoundTrip(r)
}

// wholeURL sends the whole URL to the proxy, https too.
type wholeURL struct{ proxy string }

func (p wholeURL) RoundTrip(r *http.Request) (*http.Response, error) {
	c, err := net.Dial("tcp", p.proxy)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(r.Context(), func() { c.Close() })
	if err := r.WriteProxy(c); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), r)
	if err != nil {
		c.Close()
		return nil, err
	}
	resp.Body = closing{resp.Body, c, stop}
	return resp, nil
}

type closing struct {
	io.ReadCloser
	c    net.Conn
	stop func() bool
}

func (b closing) Close() error {
	b.stop()
	b.c.Close()
	return b.ReadCloser.Close()
}

func TestAGatedHostIsServedHowEverItIsSpokenTo(t *testing.T) {
	g := newRig(t, nil, nil)
	for _, s := range spoken {
		t.Run(s.name, func(t *testing.T) {
			for range 3 {
				resp, err := s.client(g).Post(g.at("/v1/x?y=%2F"), "text/plain", strings.NewReader("hello"))
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || string(body) != "hello" || resp.Header.Get("X-Reached") != "POST /openai/v1/x?y=%2F" {
					t.Errorf("%d %q %v: %v", resp.StatusCode, body, err, resp.Header)
				}
				if got := resp.Header.Get("X-Proto"); got != s.proto {
					t.Errorf("it was spoken in %s", got)
				}
			}
		})
	}
	if g.h.Tunnels() != 0 || len(g.h.Counts()) != 0 {
		t.Errorf("%d tunnels, %v", g.h.Tunnels(), g.h.Counts())
	}
}

// goproxy ends the process with a panic inside a tunnel.
func TestAPanicEndsItsRequestAndNothingElse(t *testing.T) {
	g := newRig(t, nil, func(*rig) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/panic") {
				panic("a fault")
			}
			echo(w, r)
		})
	})
	for _, s := range spoken {
		t.Run(s.name, func(t *testing.T) {
			if resp, err := s.client(g).Get(g.at("/panic")); err == nil {
				t.Errorf("it was answered with %d", resp.StatusCode)
			}
			resp, err := s.client(g).Get(g.at("/x"))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		})
	}
}

// goproxy does not see that a client hangs up.
func TestAHangUpEndsTheRequest(t *testing.T) {
	began, ended := make(chan bool, 1), make(chan bool, 1)
	g := newRig(t, nil, func(*rig) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(200)
			http.NewResponseController(w).Flush()
			began <- true
			<-r.Context().Done()
			ended <- true
		})
	})
	for _, s := range spoken {
		t.Run(s.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			r, _ := http.NewRequestWithContext(ctx, "GET", g.at("/x"), nil)
			resp, err := s.client(g).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			<-began
			cancel()
			resp.Body.Close()
			select {
			case <-ended:
			case <-time.After(patience):
				t.Error("nobody was told")
			}
		})
	}
}

// goproxy ends an answer that was cut as if it were whole.
func TestAnAnswerThatIsCutIsSeenAsCut(t *testing.T) {
	g := newRig(t, nil, func(*rig) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "half")
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
	})
	for _, s := range spoken {
		t.Run(s.name, func(t *testing.T) {
			resp, err := s.client(g).Get(g.at("/x"))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err == nil || string(body) != "half" {
				t.Errorf("%q, %v", body, err)
			}
		})
	}
}

// goproxy flushes event streams alone.
func TestEveryStreamIsPassedOnPieceByPiece(t *testing.T) {
	more := make(chan bool)
	g := newRig(t, nil, func(*rig) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/x-ndjson")
			for i := range 3 {
				fmt.Fprintf(w, "{\"line\":%d}\n", i)
				http.NewResponseController(w).Flush()
				<-more
			}
		})
	})
	for _, s := range spoken {
		t.Run(s.name, func(t *testing.T) { readsLines(t, s.client(g), g.at("/x"), more) })
	}
}

// readsLines reads three lines, of which each is written once the one before
// was read.
func readsLines(t *testing.T, c *http.Client, url string, more chan<- bool) {
	t.Helper()
	c.Timeout = patience
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		line, err := lines.ReadString('\n')
		if err != nil || line != fmt.Sprintf("{\"line\":%d}\n", i) {
			t.Fatalf("line %d is %q, %v", i, line, err)
		}
		more <- true
	}
	if _, err := lines.ReadString('\n'); err != io.EOF {
		t.Error(err)
	}
}

// goproxy closes the connection where a request fails.
func TestErrorsAreAnswered(t *testing.T) {
	g := newRig(t, nil, func(*rig) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "the provider is not reached", http.StatusBadGateway)
		})
	})
	for _, s := range spoken {
		resp, err := s.client(g).Get(g.at("/x"))
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 502 || !strings.Contains(string(body), "is not reached") {
			t.Errorf("%s: %d %s", s.name, resp.StatusCode, body)
		}
	}
}

// goproxy reads headers of any size, and for as long as they take.
func TestHeadersInsideHaveALimit(t *testing.T) {
	g := newRig(t, nil, nil)
	for _, s := range spoken {
		t.Run(s.name, func(t *testing.T) {
			r, _ := http.NewRequest("GET", g.at("/x"), nil)
			r.Header.Set("X-Large", strings.Repeat("x", 1<<20))
			resp, err := s.client(g).Do(r)
			if err != nil {
				return // HTTP/2 resets the stream or the connection
			}
			resp.Body.Close()
			if resp.StatusCode != 431 {
				t.Errorf("status %d", resp.StatusCode)
			}
		})
	}
}

func TestHeadersInsideHaveADeadline(t *testing.T) {
	const limit = 200 * time.Millisecond
	g := newRig(t, nil, nil, func(_ *rig, o *Options) {
		o.Server = func(h http.Handler) *http.Server {
			s := dataServer(h)
			s.ReadHeaderTimeout, s.IdleTimeout = limit, limit
			return s
		}
	})
	in := openai + ":" + g.port
	for _, c := range []struct{ name, text string }{
		{"half a request", "GET / HTTP/1.1\r\nHost: " + in + "\r\nX-A"},
		{"half a TLS hello", "\x16\x03\x01\x02\x00\x01"},
		{"a request, then nothing", "GET / HTTP/1.1\r\nHost: " + in + "\r\n\r\n"},
		{"half a preface", "PRI * HTTP/2.0\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, status, _ := g.connect(in)
			if status != 200 {
				t.Fatal(status)
			}
			io.WriteString(conn, c.text)
			if _, err := io.Copy(io.Discard, conn); err != nil {
				if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
					t.Error("the connection stays")
				}
			}
		})
	}
}

func TestWhatDoesNotBelongToItsTunnelIsRefused(t *testing.T) {
	g := newRig(t, nil, nil)
	in := openai + ":" + g.port
	for _, c := range []struct {
		name, sni, head string
		want            int
	}{
		{"what belongs", openai, "GET /x HTTP/1.1\r\nHost: " + in, 200},
		{"in capitals", "API.openai.COM", "GET /x HTTP/1.1\r\nHost: API.OpenAI.com:" + g.port, 200},
		{"another host", openai, "GET /x HTTP/1.1\r\nHost: api.anthropic.com:" + g.port, 421},
		{"the control listener", openai, "GET /x HTTP/1.1\r\nHost: 127.0.0.1:4142", 421},
		{"callgate itself", openai, "GET /x HTTP/1.1\r\nHost: " + g.address(), 421},
		{"another port", openai, "GET /x HTTP/1.1\r\nHost: " + openai + ":444", 421},
		{"the port of the scheme", openai, "GET /x HTTP/1.1\r\nHost: " + openai, 421},
		{"a name below", openai, "GET /x HTTP/1.1\r\nHost: eu." + in, 421},
		{"an empty host", openai, "GET /x HTTP/1.1\r\nHost: ", 421},
		{"a whole URL", openai, "GET https://" + in + "/x HTTP/1.1\r\nHost: " + in, 421},
		{"a whole URL of another host", openai, "GET http://127.0.0.1:4142/ HTTP/1.1\r\nHost: " + in, 421},
		{"two hosts", openai, "GET /x HTTP/1.1\r\nHost: " + in + "\r\nHost: evil.test", 400},
		{"a tunnel in a tunnel", openai, "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443", 400},
		{"a star", openai, "OPTIONS * HTTP/1.1\r\nHost: " + in, 404},
		{"another name in the hello", "api.anthropic.com", "GET /x HTTP/1.1\r\nHost: " + in, 421},
		{"another name in the hello and the request", "evil.test", "GET /x HTTP/1.1\r\nHost: evil.test:" + g.port, 421},
		{"no name in the hello", "", "GET /x HTTP/1.1\r\nHost: " + in, 421},
		{"in clear", "-", "GET /x HTTP/1.1\r\nHost: " + in, 200},
		{"in clear, another host", "-", "GET /x HTTP/1.1\r\nHost: evil.test", 421},
		{"in clear, no host", "-", "GET /x HTTP/1.0", 421},
		{"in clear, a whole URL", "-", "GET http://evil.test/ HTTP/1.1\r\nHost: " + in, 421},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, status, _ := g.connect(in)
			if status != 200 {
				t.Fatal(status)
			}
			if c.sni != "-" {
				tc := tls.Client(conn, &tls.Config{ServerName: c.sni, InsecureSkipVerify: true})
				if err := tc.Handshake(); err != nil {
					t.Fatal(err)
				}
				if names := tc.ConnectionState().PeerCertificates[0].DNSNames; len(names) != 1 || names[0] != openai {
					t.Errorf("the certificate is for %v", names)
				}
				conn = tc
			}
			io.WriteString(conn, c.head+"\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != c.want {
				t.Errorf("status %d, want %d: %s", resp.StatusCode, c.want, body)
			}
			if reached := resp.Header.Get("X-Reached"); (reached != "") != (c.want == 200) {
				t.Errorf("the handler got %q", reached)
			}
		})
	}
}

// The bytes that come in one write with CONNECT belong to the tunnel.
func TestBytesThatCameWithConnectAreNotLost(t *testing.T) {
	g := newRig(t, nil, nil)
	in := openai + ":" + g.port
	c := g.dial("CONNECT " + in + " HTTP/1.1\r\nHost: " + in + "\r\n\r\nGET /early HTTP/1.1\r\nHost: " + in + "\r\nConnection: close\r\n\r\n")
	readHead(t, c)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.Header.Get("X-Reached") != "GET /openai/early" {
		t.Errorf("%v %v", resp, err)
	}
}

func TestCallgateItselfIsServedAndNotDialled(t *testing.T) {
	g := newRig(t, nil, nil)
	c := &http.Client{Transport: g.transport()}
	for _, u := range []string{
		g.front.URL + "/openai/v1/x",
		"http://localhost:" + g.front.URL[strings.LastIndex(g.front.URL, ":")+1:] + "/openai/v1/x",
	} {
		resp, err := wholeURL{g.address()}.RoundTrip(request(t, u))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("X-Reached"); got != "GET /openai/v1/x" {
			t.Errorf("%s: %d, reached %q", u, resp.StatusCode, got)
		}
	}
	conn, status, _ := g.connect(g.address())
	if status != 200 {
		t.Fatal(status)
	}
	io.WriteString(conn, "GET /anthropic/v1/messages HTTP/1.1\r\nHost: "+g.address()+"\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.Header.Get("X-Reached") != "GET /anthropic/v1/messages" {
		t.Errorf("through CONNECT: %v %v", resp, err)
	}
	// TLS is not spoken there.
	conn, _, _ = g.connect(g.address())
	if err := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake(); err == nil {
		t.Error("there is a certificate for callgate itself")
	}
	for _, host := range []string{"127.0.0.1:4142", "localhost:4142", "[::1]:4142", "0.0.0.0:4142", "[::ffff:127.0.0.1]:4142"} {
		if _, status, head := g.connect(host); status != 403 || !strings.Contains(head, "not reached through the proxy") {
			t.Errorf("CONNECT %s: %s", host, head)
		}
		resp, err := wholeURL{g.address()}.RoundTrip(request(t, "http://"+host+"/approvals"))
		if err != nil || resp.StatusCode != 403 {
			t.Errorf("GET http://%s: %v %v", host, resp, err)
		}
	}
	c.CloseIdleConnections()
}

func request(t *testing.T, u string) *http.Request {
	t.Helper()
	r, err := http.NewRequest("GET", u, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Everybody has the key of the authority that goproxy comes with.
func TestNothingIsSignedByTheAuthorityThatGoproxyComesWith(t *testing.T) {
	g := newRig(t, nil, nil)
	theirs := x509.NewCertPool()
	for _, der := range goproxy.GoproxyCa.Certificate {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		theirs.AddCert(cert)
	}
	for _, s := range []struct {
		name  string
		roots *x509.CertPool
		good  bool
	}{{"goproxy's", theirs, false}, {"callgate's", pool(g.ca), true}, {"the provider's", g.roots, false}} {
		conn, _, _ := g.connect(openai + ":" + g.port)
		err := tls.Client(conn, &tls.Config{ServerName: openai, RootCAs: s.roots}).Handshake()
		if (err == nil) != s.good {
			t.Errorf("a client that trusts %s authority: %v", s.name, err)
		}
	}
}

// goproxy's defaults skip verification, ask the environment for a proxy, and
// tunnel.
func TestGoproxyHasNothingOfItsOwn(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	g := newRig(t, nil, nil)
	p := g.h.goproxy
	if p.Tr != g.h.transport || p.Tr.Proxy != nil || p.Tr.DialTLSContext != nil || p.Tr.TLSClientConfig.InsecureSkipVerify {
		t.Error("goproxy has a transport of its own, or one that does not verify")
	}
	if p.ConnectDial != nil || p.CertStore != nil || p.AllowHTTP2 || p.Verbose {
		t.Error("goproxy has a dialer, certificates or HTTP/2 of its own")
	}
	// Whatever comes to goproxy without a decision is refused.
	for _, text := range []string{"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n", "GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n"} {
		srv := httptest.NewServer(p)
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, text)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != 403 {
			t.Errorf("%q: %v, %v", text, resp, err)
		}
		c.Close()
		srv.Close()
	}
	// Gated and tunnelled hosts are reached although the environment names a
	// proxy that is not there.
	g = newRig(t, http.HandlerFunc(echo), nil, tunnelling("other.test"))
	resp, err := (&http.Client{Transport: g.transportFor(g.roots)}).Get("https://other.test:" + g.port + "/x")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := resp.Header.Get("X-Reached"); got != "GET /x" {
		t.Errorf("reached %q", got)
	}
}

// transportFor is transport for a client that trusts others.
func (g *rig) transportFor(roots *x509.CertPool) *http.Transport {
	t := g.transport()
	t.TLSClientConfig = &tls.Config{RootCAs: roots}
	return t
}

func TestTransportsThatAreNotTaken(t *testing.T) {
	g := newRig(t, nil, nil)
	good := func() Options {
		return Options{Next: http.HandlerFunc(echo), Server: dataServer, CA: g.ca, Transport: g.h.transport.Clone()}
	}
	for name, change := range map[string]func(*Options){
		"one that asks a proxy":    func(o *Options) { o.Transport.Proxy = http.ProxyFromEnvironment },
		"one without a dialer":     func(o *Options) { o.Transport.DialContext = nil },
		"one that does not verify": func(o *Options) { o.Transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} },
		"none":                     func(o *Options) { o.Transport = nil },
		"no handler":               func(o *Options) { o.Next = nil },
		"no server":                func(o *Options) { o.Server = nil },
		"no authority":             func(o *Options) { o.CA = nil },
		"a host that is no host":   func(o *Options) { o.Upstreams = []Upstream{{"x", &url.URL{Scheme: "https", Host: "0x7f.1"}}} },
	} {
		o := good()
		change(&o)
		if h, err := New(o); err == nil {
			h.Close()
			t.Errorf("%s was taken", name)
		}
	}
	h, err := New(good())
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
}

func TestAPlainRequestGoesStraightToTheHandler(t *testing.T) {
	g := newRig(t, nil, nil)
	resp, err := http.Get(g.front.URL + "/openai/v1/x")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := resp.Header.Get("X-Reached"); got != "GET /openai/v1/x" {
		t.Errorf("reached %q", got)
	}
}

func TestShutdownWaitsForWhatIsInsideTunnels(t *testing.T) {
	began, end := make(chan bool), make(chan bool)
	g := newRig(t, nil, func(*rig) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(began)
			<-end
			io.WriteString(w, "whole")
		})
	})
	got := make(chan string)
	go func() {
		resp, err := (&http.Client{Transport: g.transport()}).Get(g.at("/x"))
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		got <- fmt.Sprint(string(b), err)
	}()
	<-began
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if err := g.h.Shutdown(ctx); err == nil {
		t.Error("it did not wait")
	}
	close(end)
	if s := <-got; s != "whole<nil>" {
		t.Errorf("the client got %q", s)
	}
	if err := g.h.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}
