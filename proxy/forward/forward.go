// Package forward is the way in by HTTPS_PROXY: an http.Handler that stands
// before the one of the base URLs and takes what clients send to a proxy, that
// is CONNECT and requests for whole URLs.
//
// What goes to a provider that an upstream is configured for is taken out of
// its tunnel (with the authority of package mitm), checked, rewritten to
// /UPSTREAM/PATH and handed to the same handler that base URLs lead to: there is
// no second path to an agent. A provider's host without an upstream is refused,
// because a tunnel to it would lead around the gate. All other hosts are
// refused or tunnelled, as configured, and counted.
//
// goproxy reads proxy requests, tunnels and refuses. Its own reading of what is
// inside a tunnel, its own certificates and its own transports are not used.
//
// It must not know wire formats, policy, or what the handler behind it does.
package forward

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/elazarl/goproxy"

	"callgate/proxy/mitm"
)

// Policy says what is done with requests to hosts that are not gated.
type Policy uint8

// The policies. The zero value is the safe one.
const (
	Refuse Policy = iota
	Tunnel
)

// Upstream is a provider that an upstream is configured for.
type Upstream struct {
	// Name is the first segment of the paths that lead to it in Options.Next.
	Name string
	// URL is its base.
	URL *url.URL
}

// Options set a Handler up.
type Options struct {
	// Next answers requests by their path, /UPSTREAM/... among them.
	Next http.Handler
	// Server makes the server that Next runs in: what comes out of tunnels is
	// served under the same limits and deadlines as what comes straight.
	Server func(http.Handler) *http.Server
	// Upstreams are the gated providers.
	Upstreams []Upstream
	// CA issues the certificates that clients see in the place of the
	// upstreams'.
	CA *mitm.CA
	// Data and Control are callgate's own addresses. What is asked of the first
	// is served here; the second is refused.
	Data, Control []netip.AddrPort
	// Transport dials other hosts; its dialer guards the addresses (package
	// egress makes one). It must know of no proxy.
	Transport *http.Transport
	// Others says what is done with hosts that are no provider's, Providers
	// with those of providers without an upstream. Both must be Tunnel for such
	// a provider to be reached: nothing of it is gated.
	Others, Providers Policy
	// Ports are those that may be tunnelled to (default 443 and 80).
	Ports []uint16
	// Tunnels is how many other hosts' connections there may be at a time
	// (default 1024).
	Tunnels int
	// Idle is how long nothing may come through a tunnel (default 10 minutes).
	Idle time.Duration
	// Agents tells which agent a client is; nil asks nobody.
	Agents Agents
	// Log gets what operators must know; nil discards it.
	Log *slog.Logger
}

// helloTime is how long a client may take for its first byte inside a tunnel,
// and an answer of callgate's own to be written.
const helloTime = 20 * time.Second

// Handler is the http.Handler of the data listener. Close ends what it
// started.
type Handler struct {
	next      http.Handler
	hosts     hostMap
	goproxy   *goproxy.ProxyHttpServer
	transport *http.Transport
	log       *slog.Logger
	agents    Agents

	others, providers Policy
	ports             map[uint16]bool
	idle              time.Duration
	via               string // this proxy in Via headers

	inner    *http.Server
	arrivals *arrivals
	served   chan struct{} // closed when inner has ended

	counts  counter
	tunnels tunnels
}

var _ http.Handler = (*Handler)(nil)

// New returns a handler that is ready; it must be closed.
func New(o Options) (*Handler, error) {
	switch {
	case o.Next == nil || o.Server == nil || o.Transport == nil:
		return nil, errors.New("forward: a handler, a server and a transport are needed")
	case o.Transport.Proxy != nil || o.Transport.DialContext == nil:
		return nil, errors.New("forward: the transport must dial by itself, with a guard, and ask no proxy")
	case o.Transport.TLSClientConfig != nil && o.Transport.TLSClientConfig.InsecureSkipVerify:
		return nil, errors.New("forward: the transport must verify certificates")
	}
	h := &Handler{
		next: o.Next, log: o.Log, agents: o.Agents, others: o.Others, providers: o.Providers, idle: o.Idle,
		via: "callgate-" + strings.ToLower(rand.Text()[:10]), ports: map[uint16]bool{},
		arrivals: newArrivals(), served: make(chan struct{}),
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	if h.idle <= 0 {
		h.idle = 10 * time.Minute
	}
	if h.tunnels.max = o.Tunnels; h.tunnels.max <= 0 {
		h.tunnels.max = 1024
	}
	h.tunnels.fault = func(what string) { h.log.Error("a tunnel is cut: a fault in callgate", "fault", what) }
	if len(o.Ports) == 0 {
		o.Ports = []uint16{443, 80}
	}
	for _, p := range o.Ports {
		h.ports[p] = true
	}
	var err error
	if h.hosts, err = newHostMap(o.Upstreams, o.Data, o.Control); err != nil {
		return nil, err
	}
	issuer, err := mitm.NewIssuer(o.CA, h.hosts.gatedHost)
	if err != nil {
		return nil, err
	}
	h.transport = o.Transport.Clone()
	h.transport.DialTLSContext = nil // TLS to other hosts is the client's; it would dial past what is set below
	dial := h.transport.DialContext
	h.transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return newIdleConn(c, h.idle), nil
	}
	h.goproxy = h.newGoproxy(dial)
	h.inner = h.newInner(o.Server, issuer)
	go func() {
		defer close(h.served)
		if err := h.inner.Serve(h.arrivals); !errors.Is(err, http.ErrServerClosed) {
			h.log.Error("connections out of tunnels are no longer served", "reason", err.Error())
		}
	}()
	return h, nil
}

// Hosts gives the hosts of upstreams: those that need a certificate, because
// clients speak TLS to them, and the providers' that may get an upstream later.
// They are what mitm.Ensure asks for.
func Hosts(ups []Upstream) (need, later []string, err error) {
	m, err := newHostMap(ups, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	return m.encrypted(), constraints(), nil
}

// plan is what was decided for one proxy request.
type plan struct {
	to   endpoint
	kind kind
	// refusal says why it is refused, "" when it is not.
	refusal string
	status  int
	agent   string  // who asks, "" for nobody known
	tunnel  *tunnel // of other hosts
	length  []string
}

type planKey struct{}

// planOf gives the plan of a request, which the handler put there; without one
// it is refused.
func planOf(r *http.Request) *plan {
	if p, ok := r.Context().Value(planKey{}).(*plan); ok {
		return p
	}
	return &plan{refusal: "nothing is known of it", status: http.StatusForbidden}
}

// ServeHTTP answers one request of a client, be it for a path or for a proxy.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	connect := r.Method == http.MethodConnect
	if !connect && r.URL.Scheme == "" && r.URL.Host == "" && r.URL.Opaque == "" {
		h.next.ServeHTTP(w, r)
		return
	}
	p := h.login(r, h.plan(r))
	if p.refusal == "" && !connect {
		switch p.kind {
		case kindData:
			h.next.ServeHTTP(w, h.hosts.origin(r))
			return
		case kindGated:
			in, reason := h.hosts.rewrite(r, p.to)
			if reason == "" {
				h.next.ServeHTTP(w, in)
				return
			}
			p.refusal, p.status = reason, http.StatusNotFound
		}
	}
	elsewhere := p.to.host != "" && (p.kind == kindOther || p.kind == kindProvider)
	if elsewhere {
		h.count(p)
	}
	if elsewhere && p.refusal == "" {
		if p.tunnel = h.tunnels.open(h.idle); p.tunnel == nil {
			p.refusal, p.status = fmt.Sprintf("%d tunnels are open, as many as forward.tunnels allows: try again later, or raise it", h.tunnels.max), http.StatusServiceUnavailable
		} else if !connect {
			defer p.tunnel.close() // one request is one tunnel
		}
	}
	r = r.WithContext(context.WithValue(r.Context(), planKey{}, p))
	if connect {
		defer p.tunnel.closeUnused()
		h.goproxy.ServeHTTP(&hijacker{ResponseWriter: w, plan: p}, r)
		return
	}
	h.goproxy.ServeHTTP(&flusher{ResponseWriter: w, plan: p}, r)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // the connection may serve more
}

// plan decides about a proxy request by its target alone.
func (h *Handler) plan(r *http.Request) *plan {
	refuse := func(status int, reason string) *plan { return &plan{refusal: reason, status: status} }
	if r.ProtoMajor != 1 {
		return refuse(http.StatusNotImplemented, "proxy requests are taken over HTTP/1.1 alone")
	}
	for _, v := range r.Header["Via"] {
		if strings.Contains(v, h.via) {
			return refuse(http.StatusLoopDetected, "the request has been here before: two proxies send it to each other")
		}
	}
	authority, port := r.URL.Host, ""
	switch {
	case r.Method == http.MethodConnect:
		if r.URL.Path != "" || r.URL.Opaque != "" || r.URL.RawQuery != "" {
			return refuse(http.StatusBadRequest, "CONNECT takes HOST:PORT")
		}
	case r.URL.Scheme == "http":
		port = "80"
	case r.URL.Scheme == "https":
		port = "443"
	default:
		return refuse(http.StatusBadRequest, "only http and https URLs are taken")
	}
	if r.URL.User != nil {
		return refuse(http.StatusBadRequest, "the URL holds a user name")
	}
	to, reason := parseEndpoint(authority, port)
	if reason != "" {
		return refuse(http.StatusBadRequest, "the host is refused: "+reason)
	}
	p := &plan{to: to, kind: h.hosts.kind(to)}
	say := func(status int, format string, args ...any) {
		p.status, p.refusal = status, fmt.Sprintf(format, args...)
	}
	switch {
	case p.kind == kindControl:
		say(http.StatusForbidden, "%s is where people answer callgate's questions; it is not reached through the proxy", to)
	case p.kind == kindData, p.kind == kindGated:
	case p.kind == kindProvider && h.hosts.upstreamAt(to.host) != "":
		say(http.StatusForbidden, "%s is not where upstream %s is: only its own port and scheme lead through the gate", to, h.hosts.upstreamAt(to.host))
	case p.kind == kindProvider && (h.others != Tunnel || h.providers != Tunnel):
		say(http.StatusForbidden, "%s belongs to a model provider, and a tunnel to it would lead around the gate: "+
			"name it under upstreams (NAME: https://%s) if callgate speaks its API", to.host, to.host)
	case h.others != Tunnel:
		say(http.StatusForbidden, "%s is no provider of the configuration: name it under upstreams, or let other hosts pass with forward.others: tunnel", to.host)
	case to.addr().IsValid():
		say(http.StatusForbidden, "%s is an address, and whose it is cannot be told: a provider of the configuration may be there; ask for the host by its name", to.host)
	case !h.ports[to.port]:
		say(http.StatusForbidden, "port %d is not tunnelled to", to.port)
	case r.Method != http.MethodConnect && r.URL.Scheme != "http":
		say(http.StatusBadRequest, "https URLs of other hosts are taken by CONNECT alone")
	case r.Method != http.MethodConnect && r.Header.Get("Upgrade") != "":
		say(http.StatusNotImplemented, "upgrades to other hosts are taken by CONNECT alone")
	}
	return p
}

// Shutdown lets the requests out of tunnels end, then cuts the tunnels to other
// hosts. When ctx ends first it returns its error and cuts nothing; Close does.
func (h *Handler) Shutdown(ctx context.Context) error {
	if err := h.inner.Shutdown(ctx); err != nil {
		return err
	}
	return h.Close()
}

// Close cuts every connection that came through the proxy way, and logs what
// other hosts were asked for.
func (h *Handler) Close() error {
	err := h.inner.Close()
	h.arrivals.Close()
	h.tunnels.closeAll()
	<-h.served
	h.transport.CloseIdleConnections()
	h.counts.end(h.log)
	return err
}
