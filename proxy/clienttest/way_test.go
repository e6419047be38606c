package clienttest

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"callgate/proxy/egress"
	"callgate/proxy/forward"
	"callgate/proxy/mitm"
)

// way is how a client reaches its provider through callgate. The zero value is
// a base URL over plain HTTP. All others are HTTPS_PROXY: the client asks for
// the provider by its true name, in a tunnel that it takes for TLS to it.
type way struct {
	name string
	// host is the provider's.
	host string
	// client and provider are the versions of HTTP spoken inside the tunnel and
	// behind callgate.
	client, provider string
}

const (
	http1 = "HTTP/1.1"
	http2 = "HTTP/2.0"
)

// Hosts of known providers, which the tests answer for.
const (
	openAIHost    = "api.openai.com"
	anthropicHost = "api.anthropic.com"
)

// proxies are the ways through HTTPS_PROXY to a provider that speaks HTTP/2, as
// those of the great providers do.
var proxies = []way{
	{name: "HTTPS_PROXY with " + http1, client: http1, provider: http2},
	{name: "HTTPS_PROXY with " + http2, client: http2, provider: http2},
}

// olderProxies are those to a provider that does not.
var olderProxies = []way{
	{name: "HTTPS_PROXY with " + http1 + " throughout", client: http1, provider: http1},
	{name: "HTTPS_PROXY with " + http2 + " to " + http1, client: http2, provider: http1},
}

func (w way) proxied() bool { return w.client != "" }

// to is the way to the provider that a client is made for.
func (w way) to(messages bool) way {
	if w.host = openAIHost; messages {
		w.host = anthropicHost
	}
	return w
}

// eachWay runs a test for each client by base URL and through HTTPS_PROXY. With
// the race detector two clients stand for all in a tunnel, where only the way
// differs.
func eachWay(t *testing.T, clients []agentClient, f func(t *testing.T, c agentClient, stream bool)) {
	eachOf(t, clients, f)
	if raced {
		eachOf(t, through(clients[:1], proxies[0]), f)
		eachOf(t, through(clients[1:2], proxies[1]), f)
		return
	}
	for _, w := range proxies {
		eachOf(t, through(clients, w), f)
	}
}

// through gives clients that go another way.
func through(clients []agentClient, w way) []agentClient {
	clients = slices.Clone(clients)
	for i := range clients {
		clients[i].way = w.to(clients[i].messages)
	}
	return clients
}

// trust are two authorities, made once: the one that the providers' certificates
// are of, and callgate's.
var trust = sync.OnceValue(func() (a struct{ theirs, ours *mitm.CA }) {
	for _, ca := range []**mitm.CA{&a.theirs, &a.ours} {
		var err error
		if *ca, err = mitm.New([]string{openAIHost, anthropicHost}, time.Now()); err != nil {
			panic(err)
		}
	}
	return a
})

func poolOf(ca *mitm.CA) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM())
	return pool
}

// open starts the provider.
func (g *rig) open(t *testing.T) {
	t.Helper()
	w := g.setup.way
	g.there = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		g.spoke.provider(r)
		g.provider.ServeHTTP(rw, r)
	}))
	t.Cleanup(g.there.Close)
	if !w.proxied() {
		g.there.Start()
		var err error
		if g.at, err = url.Parse(g.there.URL); err != nil {
			t.Fatal(err)
		}
		return
	}
	issuer, err := mitm.NewIssuer(trust().theirs, func(host string) bool { return host == w.host })
	if err != nil {
		t.Fatal(err)
	}
	g.there.EnableHTTP2 = w.provider == http2
	g.there.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0) // of connections that were opened and not needed
	g.there.TLS = &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		return issuer.Certificate(hello.ServerName)
	}}
	g.there.StartTLS()
	g.at = &url.URL{Scheme: "https", Host: w.host}
}

// egress is the transport to the provider, whose name leads to this machine.
func (g *rig) egress() *http.Transport {
	if !g.setup.way.proxied() {
		return egress.New(egress.Options{AllowPrivate: func(string) bool { return true }})
	}
	tr := egress.New(egress.Options{
		AllowPrivate: func(string) bool { return true }, Roots: poolOf(trust().theirs),
	})
	dial := tr.DialContext
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr != g.at.Host+":443" {
			return nil, fmt.Errorf("nobody is at %s", addr)
		}
		return dial(ctx, network, g.there.Listener.Addr().String())
	}
	return tr
}

// forward puts the way in by HTTPS_PROXY before the handler, and gives what ends
// it.
func (g *rig) forward(t *testing.T, next http.Handler) func() {
	t.Helper()
	h, err := forward.New(forward.Options{
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			g.spoke.client(r.Proto)
			next.ServeHTTP(w, r)
		}),
		Server:    func(h http.Handler) *http.Server { return &http.Server{Handler: h, ReadHeaderTimeout: time.Minute} },
		Upstreams: []forward.Upstream{{Name: "scripted", URL: g.at}},
		CA:        trust().ours,
		Data:      []netip.AddrPort{g.here.Listener.Addr().(*net.TCPAddr).AddrPort()},
		Transport: egress.New(egress.Options{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	g.front.Store(&door{h})
	return func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// through has a client's transport go through HTTPS_PROXY, and trust callgate.
func (g *rig) through(tr *http.Transport) *opened {
	open := &opened{}
	tr.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: g.here.Listener.Addr().String()})
	tr.TLSClientConfig = &tls.Config{RootCAs: poolOf(trust().ours)}
	tr.ForceAttemptHTTP2 = g.setup.way.client == http2
	tr.DialContext = open.dial
	return open
}

// tunnelled makes a connection to callgate one to a provider's host, as a client
// takes it for.
func tunnelled(t *testing.T, conn net.Conn, host string) net.Conn {
	t.Helper()
	if _, err := fmt.Fprintf(conn, "CONNECT %[1]s:443 HTTP/1.1\r\nHost: %[1]s:443\r\n\r\n", host); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	if err != nil || res.StatusCode != http.StatusOK || in.Buffered() > 0 {
		t.Fatalf("no tunnel to %s: %+v, %v", host, res, err)
	}
	return tls.Client(conn, &tls.Config{RootCAs: poolOf(trust().ours), ServerName: host})
}

// opened counts connections that are open.
type opened struct {
	mu sync.Mutex
	n  int
}

func (o *opened) add(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n += n
}

func (o *opened) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	o.add(1)
	return &counted{Conn: c, gone: sync.OnceFunc(func() { o.add(-1) })}, nil
}

type counted struct {
	net.Conn
	gone func()
}

func (c *counted) Close() error {
	defer c.gone()
	return c.Conn.Close()
}

// none waits until no connection is open.
func (o *opened) none(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		o.mu.Lock()
		n := o.n
		o.mu.Unlock()
		if n == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections of a callgate that has ended are open", n)
		}
	}
}

// legs are the versions of HTTP that were spoken, and what else the provider
// was shown of the way.
type legs struct {
	mu       sync.Mutex
	near     []string // as the client has it, and as callgate has it
	far      []string
	hosts    []string
	betrayed []string
}

func (l *legs) client(proto string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.near = append(l.near, proto)
}

func (l *legs) provider(r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.far = append(l.far, r.Proto)
	l.hosts = append(l.hosts, r.Host)
	for _, name := range []string{"Via", "Forwarded", "X-Forwarded-For", "Proxy-Connection", "Proxy-Authorization"} {
		if v := r.Header.Get(name); v != "" {
			l.betrayed = append(l.betrayed, name+": "+v)
		}
	}
}

// check says whether all of it was spoken as it was to be.
func (l *legs) check(t *testing.T, w way) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	near, far := http1, http1
	if w.proxied() {
		near, far = w.client, w.provider
		if slices.ContainsFunc(l.hosts, func(h string) bool { return h != w.host }) {
			t.Errorf("the provider at %s was asked for %q", w.host, l.hosts)
		}
	}
	if slices.ContainsFunc(l.near, func(p string) bool { return p != near }) {
		t.Errorf("the client spoke %q, want %s", l.near, near)
	}
	if slices.ContainsFunc(l.far, func(p string) bool { return p != far }) {
		t.Errorf("the provider was spoken to in %q, want %s", l.far, far)
	}
	if len(l.near) > 0 && len(l.far) == 0 {
		t.Error("the client was answered and the provider never asked")
	}
	if l.betrayed != nil {
		t.Errorf("the provider was shown %q", l.betrayed)
	}
}
