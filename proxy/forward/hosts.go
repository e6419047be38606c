package forward

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// endpoint is a host and a port, in the one spelling that is compared.
type endpoint struct {
	host string // a name in small letters without a dot at its end, or an address
	port uint16
}

// String gives HOST:PORT.
func (e endpoint) String() string {
	return net.JoinHostPort(e.host, strconv.Itoa(int(e.port)))
}

// addr gives the host as an address, the zero Addr when it is a name.
func (e endpoint) addr() netip.Addr {
	a, err := netip.ParseAddr(e.host)
	if err != nil {
		return netip.Addr{}
	}
	return a
}

// parseEndpoint reads HOST[:PORT]; reason says what is wrong with it. Spellings
// that resolvers read as an address and others as a name are refused.
func parseEndpoint(s, defaultPort string) (e endpoint, reason string) {
	host, port := s, defaultPort
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') {
		host, port = s[:i], s[i+1:]
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || port[0] == '+' {
		return e, "it has no port"
	}
	e.port = uint16(n)
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		a, err := netip.ParseAddr(inner)
		if !ok || err != nil || !a.Is6() || a.Zone() != "" {
			return e, "it is no address"
		}
		e.host = a.Unmap().String()
		return e, ""
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if !a.Is4() {
			return e, "an IPv6 address stands in brackets"
		}
		e.host = a.String()
		return e, ""
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if reason := badName(host); reason != "" {
		return e, reason
	}
	e.host = host
	return e, ""
}

// badName says why a host is no name, "" when it is one.
func badName(host string) string {
	if host == "" || len(host) > 253 {
		return "it is empty or too long"
	}
	last := ""
	for label := range strings.SplitSeq(host, ".") {
		ok := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' }
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, func(r rune) bool { return !ok(r) }) {
			return "it is no name"
		}
		last = label
	}
	digits := func(r rune) bool { return r < '0' || r > '9' }
	if strings.HasPrefix(last, "0x") || !strings.ContainsFunc(last, digits) {
		return "it is an address in a spelling that is not taken" // 2130706433, 0177.0.0.1, 127.1
	}
	return ""
}

// kind is what a host is to callgate.
type kind uint8

const (
	kindOther    kind = iota // somebody else's
	kindGated                // an upstream's
	kindProvider             // a model provider's, without an upstream
	kindData                 // callgate's own, for agents
	kindControl              // callgate's own, for people
)

// mount is an upstream at the base path of its URL.
type mount struct{ base, name string }

// hostMap tells what hosts are. It is not changed once made.
type hostMap struct {
	gated   map[endpoint][]mount // those with the longest base first
	secure  map[endpoint]bool    // the upstream speaks TLS
	names   map[string]string    // upstreams by host
	data    []netip.AddrPort
	control []netip.AddrPort
	local   func() []netip.Addr // addresses of this machine
}

func newHostMap(ups []Upstream, data, control []netip.AddrPort) (hostMap, error) {
	m := hostMap{
		gated: map[endpoint][]mount{}, secure: map[endpoint]bool{}, names: map[string]string{},
		data: data, control: control, local: localAddrs,
	}
	for _, up := range ups {
		port := map[string]string{"http": "80", "https": "443"}[up.URL.Scheme]
		if p := up.URL.Port(); p != "" {
			port = p
		}
		host := up.URL.Hostname()
		if !strings.Contains(host, ":") {
			ascii, err := idna.Lookup.ToASCII(host)
			if err == nil {
				host = ascii
			} else if badName(strings.ToLower(strings.TrimSuffix(host, "."))) != "" {
				return hostMap{}, fmt.Errorf("forward: upstream %s: %q is no host name: %w", up.Name, host, err)
			}
		}
		to, reason := parseEndpoint(net.JoinHostPort(host, port), "")
		if reason != "" {
			return hostMap{}, fmt.Errorf("forward: upstream %s: the host is refused: %s", up.Name, reason)
		}
		m.gated[to] = append(m.gated[to], mount{strings.TrimSuffix(up.URL.EscapedPath(), "/"), up.Name})
		m.secure[to] = m.secure[to] || up.URL.Scheme == "https"
		if old, ok := m.names[to.host]; !ok || up.Name < old {
			m.names[to.host] = up.Name
		}
	}
	for _, mounts := range m.gated {
		slices.SortFunc(mounts, func(a, b mount) int {
			if len(a.base) != len(b.base) {
				return len(b.base) - len(a.base)
			}
			return strings.Compare(a.name, b.name)
		})
	}
	return m, nil
}

// kind tells what a host is.
func (m *hostMap) kind(to endpoint) kind {
	switch {
	case m.ours(m.control, to):
		return kindControl
	case m.ours(m.data, to):
		return kindData
	case m.gated[to] != nil:
		return kindGated
	case isProvider(to.host):
		return kindProvider
	case m.names[to.host] != "" && !to.addr().IsValid() && to.host != "localhost":
		return kindProvider // another port of a gated provider
	}
	return kindOther
}

// gatedHost reports whether certificates may be issued for a host.
func (m *hostMap) gatedHost(host string) bool { return m.names[host] != "" }

// upstreamAt names an upstream of a host, "" when there is none.
func (m *hostMap) upstreamAt(host string) string { return m.names[host] }

// encrypted lists the hosts whose upstream speaks TLS.
func (m *hostMap) encrypted() []string {
	var out []string
	for to := range m.gated {
		if m.secure[to] {
			out = append(out, to.host)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ours reports whether a host is one of these addresses, by any name that this
// machine has by itself.
func (m *hostMap) ours(own []netip.AddrPort, to endpoint) bool {
	for _, o := range own {
		if o.Port() != to.port {
			continue
		}
		a := to.addr()
		if to.host == "localhost" || strings.HasSuffix(to.host, ".localhost") {
			return true
		}
		if a.IsValid() && (a.IsLoopback() || a.IsUnspecified() || a == o.Addr().Unmap() || slices.Contains(m.local(), a)) {
			return true
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

// origin makes a request for a URL of callgate's own one for its path.
func (m *hostMap) origin(r *http.Request) *http.Request {
	u := &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery}
	if u.Path == "" {
		u.Path = "/"
	}
	return withURL(r, u)
}

// rewrite makes a request for a gated host one for the path of its upstream.
// reason says why no upstream has that path.
func (m *hostMap) rewrite(r *http.Request, to endpoint) (in *http.Request, reason string) {
	raw := r.URL.EscapedPath()
	if raw == "" {
		raw = "/"
	}
	for _, mt := range m.gated[to] {
		rest, ok := strings.CutPrefix(raw, mt.base)
		if !ok || rest != "" && rest[0] != '/' {
			continue
		}
		raw = "/" + mt.name + rest
		path, err := url.PathUnescape(raw)
		if err != nil {
			return nil, "the path has a broken escape"
		}
		return withURL(r, &url.URL{Path: path, RawPath: raw, RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery}), ""
	}
	return nil, "no upstream at " + to.String() + " has this path: its URL in the configuration begins with another"
}

// withURL is a request for another URL. The headers are shared.
func withURL(r *http.Request, u *url.URL) *http.Request {
	in := new(http.Request)
	*in = *r
	in.URL, in.RequestURI = u, u.RequestURI()
	return in
}
