// Package egress holds the one transport to providers. Its dialer looks at
// each address after the name was resolved and at the moment of connecting, so
// that neither a name nor a redirect nor another spelling of an address leads
// to callgate's own listeners, to a cloud's metadata service or, unless it was
// configured, into a private network. It knows nothing of requests.
package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// Options set up a transport. The zero value reaches public addresses only.
type Options struct {
	// Own are the addresses callgate itself listens on. Their ports are never
	// dialled on any address of this machine.
	Own []netip.AddrPort
	// AllowPrivate says by the host part of a URL whether private and loopback
	// addresses may be dialled for it; nil allows none. Link-local, metadata
	// and own addresses stay refused.
	AllowPrivate func(host string) bool
	// DialTimeout bounds connecting, TLSTimeout the handshake (default 10 s
	// each).
	DialTimeout, TLSTimeout time.Duration
	// Roots are the authorities that provider certificates are checked
	// against; nil stands for the system's.
	Roots *x509.CertPool
	// Resolver resolves names; nil stands for the system's.
	Resolver *net.Resolver
}

// RefusedError reports an address that is never dialled.
type RefusedError struct {
	Host   string     // as it was asked for
	Addr   netip.Addr // as it resolved
	Reason string
}

// Error names the host, the address, the reason and the remedy if there is one.
func (e *RefusedError) Error() string {
	at := e.Host
	if e.Addr.IsValid() && e.Addr.String() != e.Host {
		at += " (" + e.Addr.String() + ")"
	}
	return "address refused: " + at + " is " + e.Reason
}

// Reason puts into words for an agent why a provider was not reached: without
// the addresses of this network and the name servers that were asked, which
// are none of its business.
func Reason(err error) string {
	if de, ok := errors.AsType[*net.DNSError](err); ok {
		switch {
		case de.IsNotFound:
			return "the name " + de.Name + " is not known"
		case de.IsTimeout:
			return "the name " + de.Name + " took too long to look up"
		}
		return "the name " + de.Name + " could not be looked up"
	}
	if oe, ok := errors.AsType[*net.OpError](err); ok {
		return oe.Op + ": " + oe.Err.Error()
	}
	return err.Error()
}

// New returns the transport. Certificates are verified, TLS is at least 1.2,
// HTTP/2 is spoken where the provider offers it, and answers are not decoded.
// Proxy variables of the environment are not read: they could point at
// callgate itself. Timeouts of a whole request belong to its context.
func New(o Options) *http.Transport {
	if o.DialTimeout <= 0 {
		o.DialTimeout = 10 * time.Second
	}
	if o.TLSTimeout <= 0 {
		o.TLSTimeout = 10 * time.Second
	}
	g := &guard{own: o.Own, private: o.AllowPrivate, local: localAddrs}
	dialer := &net.Dialer{
		Timeout:        o.DialTimeout,
		KeepAlive:      30 * time.Second,
		Resolver:       o.Resolver,
		ControlContext: g.control,
	}
	t := &http.Transport{
		Proxy: nil,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return dialer.DialContext(context.WithValue(ctx, hostKey{}, host), network, address)
		},
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.Roots, NextProtos: []string{"h2", "http/1.1"}},
		TLSHandshakeTimeout: o.TLSTimeout,
		ForceAttemptHTTP2:   true,
		DisableCompression:  true,
		MaxIdleConns:        1024,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     90 * time.Second,
		WriteBufferSize:     16 << 10,
		ReadBufferSize:      16 << 10,
	}
	t.DialTLSContext = dialTLS(t)
	return t
}

// Private reports whether a host names a private or loopback address by
// itself: localhost, or a literal address in such a range. Whoever configures
// one means it.
func Private(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	a, _ = inner(a)
	return private(a)
}

type hostKey struct{}

type guard struct {
	own     []netip.AddrPort
	private func(host string) bool
	local   func() []netip.Addr
}

// control is called with the very address that is about to be connected to.
func (g *guard) control(ctx context.Context, network, address string, _ syscall.RawConn) error {
	host, _ := ctx.Value(hostKey{}).(string)
	if !strings.HasPrefix(network, "tcp") {
		return &RefusedError{Host: host, Reason: "not reached over TCP"}
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return &RefusedError{Host: host, Reason: "not an IP address"}
	}
	if reason := g.refuse(host, at); reason != "" {
		return &RefusedError{Host: host, Addr: at.Addr(), Reason: reason}
	}
	return nil
}

// metadata are the services that hand out a machine's credentials.
var metadata = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), // AWS, Azure, Google and others
	netip.MustParseAddr("169.254.170.2"),   // AWS containers
	netip.MustParseAddr("169.254.170.23"),  // AWS pod identity
	netip.MustParseAddr("fd00:ec2::254"),   // AWS over IPv6
	netip.MustParseAddr("fd00:ec2::23"),    // AWS pod identity over IPv6
	netip.MustParseAddr("fd20:ce::254"),    // Google over IPv6
	netip.MustParseAddr("168.63.129.16"),   // Azure's host
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("192.0.0.192"),     // Oracle
}

// refuse says why an address is not dialled, "" when it may be.
func (g *guard) refuse(host string, at netip.AddrPort) string {
	a, embedded := inner(at.Addr())
	for _, m := range metadata {
		if a == m {
			return "a cloud metadata service"
		}
	}
	switch {
	case !a.IsValid() || a.IsUnspecified() || in(a, thisNet):
		return "not an address of a machine"
	case a.IsLinkLocalUnicast() || a.IsLinkLocalMulticast():
		return "a link-local address"
	case a.IsMulticast() || in(a, reserved):
		return "not an address of one machine"
	case g.ours(a, at.Port()):
		return "callgate's own listener"
	case embedded:
		// It reaches whatever the translator in between reaches.
		return "an IPv4 address written inside an IPv6 one"
	}
	if private(a) && (g.private == nil || !g.private(host)) {
		return "in a private range: set allow_private for that upstream if it is meant"
	}
	return ""
}

// ours reports a port of our own on any address of this machine.
func (g *guard) ours(a netip.Addr, port uint16) bool {
	for _, own := range g.own {
		if own.Port() != port {
			continue
		}
		o := own.Addr().Unmap()
		if a.IsLoopback() || a == o {
			return true
		}
		for _, l := range g.local() {
			if a == l {
				return true
			}
		}
	}
	return false
}

func localAddrs() []netip.Addr {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil // loopback and the listener's own address are known without it
	}
	var out []netip.Addr
	for _, l := range list {
		if n, ok := l.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(n.IP); ok {
				out = append(out, a.Unmap())
			}
		}
	}
	return out
}

var (
	thisNet   = netip.MustParsePrefix("0.0.0.0/8")
	reserved  = netip.MustParsePrefix("240.0.0.0/4")
	shared    = netip.MustParsePrefix("100.64.0.0/10") // RFC 6598
	benchmark = netip.MustParsePrefix("198.18.0.0/15") // RFC 2544
	siteLocal = netip.MustParsePrefix("fec0::/10")     // RFC 3879

	nat64      = netip.MustParsePrefix("64:ff9b::/96")   // RFC 6052
	nat64local = netip.MustParsePrefix("64:ff9b:1::/48") // RFC 8215
	sixToFour  = netip.MustParsePrefix("2002::/16")      // RFC 3056
	teredo     = netip.MustParsePrefix("2001::/32")      // RFC 4380
	compatible = netip.MustParsePrefix("::/96")          // RFC 4291, section 2.5.5.1
	translated = netip.MustParsePrefix("::ffff:0:0:0/96")
)

func in(a netip.Addr, p netip.Prefix) bool { return p.Contains(a) }

func private(a netip.Addr) bool {
	return a.IsLoopback() || a.IsPrivate() || in(a, shared) || in(a, benchmark) || in(a, siteLocal)
}

// inner gives the address that a is another spelling of. A mapped IPv4 address
// is the IPv4 address, and so is one behind the well-known NAT64 prefix, by
// which networks without IPv4 reach everything; embedded is set for the forms
// that a provider has no reason to use.
func inner(a netip.Addr) (plain netip.Addr, embedded bool) {
	a = a.Unmap().WithZone("")
	if !a.Is6() || a.IsUnspecified() || a.IsLoopback() {
		return a, false
	}
	b := a.As16()
	switch {
	case in(a, nat64):
		return netip.AddrFrom4([4]byte(b[12:16])), false
	case in(a, compatible), in(a, translated), in(a, nat64local):
		return netip.AddrFrom4([4]byte(b[12:16])), true
	case in(a, sixToFour):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case in(a, teredo):
		return a, true
	}
	return a, false
}
