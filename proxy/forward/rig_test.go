package forward

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"callgate/proxy/egress"
	"callgate/proxy/mitm"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// dns answers for names as a test says, without a network.
type dns struct {
	mu    sync.Mutex
	names map[string][]string // addresses, of which each query takes the next; the last stays
	asked map[string]int
}

func (d *dns) set(name string, addrs ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.names == nil {
		d.names, d.asked = map[string][]string{}, map[string]int{}
	}
	d.names[name] = addrs
}

func (d *dns) times(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked[name]
}

func (d *dns) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go d.serve(there)
		return here, nil
	}}
}

func (d *dns) serve(c net.Conn) {
	defer c.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		b := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(b) != nil || len(m.Questions) != 1 {
			return
		}
		m.Response, m.Additionals = true, nil
		q := m.Questions[0]
		name := strings.TrimSuffix(q.Name.String(), ".")
		d.mu.Lock()
		addrs, known := d.names[name]
		if !known {
			m.RCode = dnsmessage.RCodeNameError
		}
		for i, a := range addrs[:min(1, len(addrs))] {
			at := netip.MustParseAddr(a)
			head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
			switch {
			case at.Is4() && q.Type == dnsmessage.TypeA:
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: at.As4()}})
			case at.Is6() && q.Type == dnsmessage.TypeAAAA:
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: at.As16()}})
			default:
				continue
			}
			d.asked[name]++
			if len(addrs) > 1 {
				d.names[name] = addrs[i+1:]
			}
		}
		d.mu.Unlock()
		out, err := m.Pack()
		if err != nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...)); err != nil {
			return
		}
	}
}

// rig is a data listener with a Handler, the provider behind it, and a client.
type rig struct {
	t     *testing.T
	h     *Handler
	front *httptest.Server // where clients point HTTPS_PROXY
	ca    *mitm.CA
	dns   *dns
	// provider is at https://api.openai.com:PORT, with a certificate of an
	// authority of its own.
	provider *httptest.Server
	port     string
	roots    *x509.CertPool // of the provider
	log      *logBook
}

// logBook keeps what was logged.
type logBook struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

const (
	openai = "api.openai.com"
	claude = "api.anthropic.com"
)

// settings change what a rig is made of.
type settings func(*rig, *Options)

// tunnelling lets other hosts pass, at those names and any port.
func tunnelling(names ...string) settings {
	return func(g *rig, o *Options) {
		o.Others = Tunnel
		for _, n := range names {
			g.dns.set(n, "127.0.0.1")
		}
		o.Transport = egress.New(egress.Options{
			Own: append(o.Data, o.Control...), Resolver: g.dns.resolver(), Roots: g.roots,
			AllowPrivate: func(host string) bool {
				for _, n := range names {
					if n == host {
						return true
					}
				}
				return false
			},
		})
		o.Ports = nil
		for p := 1; p < 1<<16; p++ {
			o.Ports = append(o.Ports, uint16(p))
		}
	}
}

// dataServer is like that of the command.
func dataServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 20 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 128 << 10, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
}

// newRig starts everything. next makes the handler behind the proxy; provider
// may be nil.
func newRig(t *testing.T, provider http.Handler, next func(*rig) http.Handler, change ...settings) *rig {
	t.Helper()
	g := &rig{t: t, dns: &dns{}, log: &logBook{}}
	if provider == nil {
		provider = http.NotFoundHandler()
	}
	g.dns.set(openai, "127.0.0.1")
	g.dns.set(claude, "127.0.0.1")
	theirs, err := mitm.New([]string{openai, claude, "other.test", "127.0.0.1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := mitm.NewIssuer(theirs, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	g.roots = pool(theirs)
	g.provider = httptest.NewUnstartedServer(provider)
	g.provider.EnableHTTP2 = true
	g.provider.TLS = &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if h.ServerName == "" {
			return issuer.Certificate("127.0.0.1")
		}
		return issuer.Certificate(strings.ToLower(h.ServerName))
	}}
	g.provider.StartTLS()
	t.Cleanup(g.provider.Close)
	_, g.port, _ = net.SplitHostPort(g.provider.Listener.Addr().String())

	g.front = httptest.NewUnstartedServer(nil)
	g.ca, err = mitm.New([]string{openai, claude, "127.0.0.1", "localhost"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Server: dataServer, CA: g.ca,
		Upstreams: []Upstream{
			{"openai", parseURL(t, "https://"+openai+":"+g.port)},
			{"anthropic", parseURL(t, "https://"+claude+":"+g.port)},
		},
		Data:    []netip.AddrPort{g.front.Listener.Addr().(*net.TCPAddr).AddrPort()},
		Control: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:4142")},
		Log:     slog.New(slog.NewTextHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	o.Transport = egress.New(egress.Options{Own: append(o.Data, o.Control...), Resolver: g.dns.resolver(), Roots: g.roots})
	if next != nil {
		o.Next = next(g)
	} else {
		o.Next = http.HandlerFunc(echo)
	}
	for _, c := range change {
		c(g, &o)
	}
	g.h, err = New(o)
	if err != nil {
		t.Fatal(err)
	}
	g.front.Config = dataServer(g.h)
	g.front.Start()
	t.Cleanup(func() {
		g.h.Close()
		g.front.Close()
	})
	return g
}

// echo tells what reached the handler behind the proxy.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Reached", r.Method+" "+r.URL.String())
	w.Header().Set("X-Proto", r.Proto)
	w.Write(body)
}

// parseURL reads a URL of a test's own; t may be nil.
func parseURL(t testing.TB, s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil && t != nil {
		t.Helper()
		t.Fatal(err)
	}
	return u
}

func pool(ca *mitm.CA) *x509.CertPool {
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(ca.PEM())
	return p
}

// address is that of the data listener.
func (g *rig) address() string { return g.front.Listener.Addr().String() }

// transport is that of a client behind HTTPS_PROXY that trusts callgate's
// authority.
func (g *rig) transport() *http.Transport {
	t := &http.Transport{
		Proxy:           http.ProxyURL(parseURL(g.t, g.front.URL)),
		TLSClientConfig: &tls.Config{RootCAs: pool(g.ca)},
	}
	g.t.Cleanup(t.CloseIdleConnections)
	return t
}

// at is a URL of the gated provider.
func (g *rig) at(path string) string { return "https://" + openai + ":" + g.port + path }

// dial opens a connection to the data listener and writes what stands there.
func (g *rig) dial(text string) net.Conn {
	g.t.Helper()
	c, err := net.Dial("tcp", g.address())
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		g.t.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		g.t.Fatal(err)
	}
	return c
}

// connect asks for a tunnel and gives it, with the status of the answer.
func (g *rig) connect(authority string) (net.Conn, int, string) {
	g.t.Helper()
	c := g.dial("CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n")
	head := readHead(g.t, c)
	var status int
	if _, rest, ok := strings.Cut(head, " "); ok && len(rest) >= 3 {
		for _, d := range rest[:3] {
			status = status*10 + int(d-'0')
		}
	}
	return c, status, head
}

// readHead reads to the end of a response's header and no further.
func readHead(t testing.TB, c net.Conn) string {
	t.Helper()
	var b []byte
	one := make([]byte, 1)
	for !bytes.HasSuffix(b, []byte("\r\n\r\n")) {
		if _, err := io.ReadFull(c, one); err != nil {
			if errors.Is(err, io.EOF) && len(b) == 0 {
				return ""
			}
			t.Fatalf("the header ends with %v behind %q", err, b)
		}
		b = append(b, one[0])
	}
	return string(b)
}

// eventually waits until something holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
