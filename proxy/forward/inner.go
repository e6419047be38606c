package forward

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/elazarl/goproxy"

	"callgate/proxy/mitm"
)

// maxStreams is how many requests one HTTP/2 connection may have open: each
// may be held for as long as a person thinks.
const maxStreams = 1000

// errNotServed reports a connection of another kind, which does not come here.
var errNotServed = errors.New("forward: a connection without a target")

// tlsRecord is the first byte of a TLS handshake.
const tlsRecord = 0x16

// inside is a connection that a client opened through CONNECT, to be served
// here.
type inside struct {
	net.Conn
	to    endpoint
	kind  kind
	agent string // that opened it, "" for nobody known
	// first are bytes that were read already. Only Read, which one goroutine
	// calls at a time, touches it.
	first []byte
}

func (c *inside) Read(p []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(p, c.first)
		if c.first = c.first[n:]; len(c.first) == 0 {
			c.first = nil
		}
		return n, nil
	}
	return c.Conn.Read(p)
}

// CloseWrite lets the server end an answer that the client does not read to its
// end.
func (c *inside) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Conn.Close()
}

// take answers CONNECT to a host that is served here, looks whether TLS or
// plain HTTP is spoken inside, and hands the connection to the inner server.
func (h *Handler) take(r *http.Request, client net.Conn, _ *goproxy.ProxyCtx) {
	p := planOf(r)
	if p.kind != kindGated && p.kind != kindData {
		client.Close()
		return
	}
	in := &inside{Conn: client, to: p.to, kind: p.kind, agent: p.agent}
	err := client.SetDeadline(time.Now().Add(helloTime))
	if err == nil {
		_, err = client.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n"))
	}
	buf := make([]byte, 1024) // a hello, most often
	n := 0
	if err == nil {
		n, err = client.Read(buf)
	}
	if n == 0 {
		h.log.Debug("a tunnel ended before anything was asked", "host", p.to.host, "reason", errText(err))
		client.Close()
		return
	}
	in.first = buf[:n]
	if err := client.SetDeadline(time.Time{}); err != nil {
		client.Close()
		return
	}
	h.arrivals.put(in)
}

func errText(err error) string {
	if err == nil {
		return "nothing was read"
	}
	return err.Error()
}

// arrivals is the listener of the inner server: connections come out of
// tunnels.
type arrivals struct {
	tls  *tls.Config
	next chan *inside
	once sync.Once
	done chan struct{}
}

var _ net.Listener = (*arrivals)(nil)

func newArrivals() *arrivals {
	return &arrivals{next: make(chan *inside), done: make(chan struct{})}
}

func (a *arrivals) put(c *inside) {
	select {
	case a.next <- c:
	case <-a.done:
		c.Close()
	}
}

// Accept gives the next connection, with TLS where the client speaks it.
func (a *arrivals) Accept() (net.Conn, error) {
	select {
	case c := <-a.next:
		if c.first[0] == tlsRecord {
			return tls.Server(c, a.tls), nil
		}
		return c, nil
	case <-a.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (a *arrivals) Close() error {
	a.once.Do(func() { close(a.done) })
	return nil
}

// Addr is nobody's.
func (a *arrivals) Addr() net.Addr { return tunnelAddr{} }

type tunnelAddr struct{}

func (tunnelAddr) Network() string { return "tunnel" }
func (tunnelAddr) String() string  { return "tunnel" }

type insideKey struct{}

// newInner makes the server of what is inside tunnels.
func (h *Handler) newInner(server func(http.Handler) *http.Server, issuer *mitm.Issuer) *http.Server {
	h.arrivals.tls = &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		// The certificate is always that of the host of CONNECT: whoever asks
		// for another in the hello finds out by it, and by the answer.
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			in, ok := hello.Conn.(*inside)
			if !ok || in.kind != kindGated {
				return nil, errNotServed
			}
			return issuer.Certificate(in.to.host)
		},
	}
	s := server(http.HandlerFunc(h.serveInside))
	s.DisableGeneralOptionsHandler = true // it would answer OPTIONS * for whatever host
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	s.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: maxStreams,
		SendPingTimeout:      time.Minute, // a client that is gone without a word
		WriteByteTimeout:     time.Minute,
	}
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if t, ok := c.(*tls.Conn); ok {
			c = t.NetConn()
		}
		in, _ := c.(*inside)
		return context.WithValue(h.as(ctx, in), insideKey{}, in)
	}
	return s
}

// serveInside answers one request out of a tunnel. Host of CONNECT, name in the
// TLS hello and host of the request must be one, or what was checked would not
// be what is asked.
func (h *Handler) serveInside(w http.ResponseWriter, r *http.Request) {
	in, _ := r.Context().Value(insideKey{}).(*inside)
	if in == nil {
		refuse(w, http.StatusMisdirectedRequest, "nothing is known of this connection")
		return
	}
	if status, reason := in.check(r); reason != "" {
		h.log.Warn("a request in a tunnel is refused", "host", in.to.host, "reason", reason)
		refuse(w, status, reason)
		return
	}
	if in.kind == kindData {
		h.next.ServeHTTP(w, h.hosts.origin(r))
		return
	}
	to, reason := h.hosts.rewrite(r, in.to)
	if reason != "" {
		refuse(w, http.StatusNotFound, reason)
		return
	}
	h.next.ServeHTTP(w, to)
}

// check says why a request does not belong to its tunnel.
func (c *inside) check(r *http.Request) (status int, reason string) {
	if r.Method == http.MethodConnect {
		return http.StatusBadRequest, "a tunnel inside a tunnel is not taken"
	}
	if r.URL.Scheme != "" || r.URL.Host != "" || r.URL.Opaque != "" {
		return http.StatusMisdirectedRequest, "a whole URL inside a tunnel is not taken: ask for a path"
	}
	port := "80"
	if r.TLS != nil {
		port = "443"
		// An address is never named in a hello (RFC 6066, section 3).
		name := r.TLS.ServerName
		if c.to.addr().IsValid() {
			if name != "" {
				return http.StatusMisdirectedRequest, "the TLS hello names " + printable(name) + " in a tunnel to " + c.to.host
			}
		} else if to, bad := parseEndpoint(name+":443", ""); bad != "" || to.host != c.to.host {
			return http.StatusMisdirectedRequest, "the TLS hello names " + printable(name) + " in a tunnel to " + c.to.host
		}
	}
	if to, bad := parseEndpoint(r.Host, port); bad != "" || to != c.to {
		return http.StatusMisdirectedRequest, "the request is for " + printable(r.Host) + " in a tunnel to " + c.to.String()
	}
	return 0, ""
}
