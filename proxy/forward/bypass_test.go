package forward

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"callgate/proxy"
	"callgate/proxy/egress"
)

// dialTo dials the port of a test's server, whatever port was asked for.
func dialTo(dial dialFunc, port string) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		return dial(ctx, network, net.JoinHostPort(host, port))
	}
}

// Every way to an address that is not to be reached, with other hosts and
// providers allowed: the least that there is to stop it.
func TestNoSpellingLeadsToAnAddressThatIsRefused(t *testing.T) {
	reached := make(chan bool, 100)
	port := listen(t, func(c net.Conn) { reached <- true })
	g := newRig(t, nil, nil, tunnelling(), func(_ *rig, o *Options) { o.Providers = Tunnel })
	for _, name := range []string{"loop.test", "meta.test", "ten.test", "link.test", "mapped.test", "loop6.test", "zero.test"} {
		g.dns.set(name, map[string]string{
			"loop.test": "127.0.0.1", "meta.test": "169.254.169.254", "ten.test": "10.0.0.1", "link.test": "fe80::1",
			"mapped.test": "::ffff:127.0.0.1", "loop6.test": "::1", "zero.test": "0.0.0.0",
		}[name])
	}
	for _, host := range []string{
		// loopback
		"127.0.0.1", "127.1.2.3", "[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]",
		"localhost", "localhost.", "LocalHost", "2130706433", "0x7f000001", "017700000001", "0177.0.0.1", "0x7f.0.0.1", "127.1", "127.0.0.1.", "0", "0.0.0.0", "[::]",
		"loop.test", "loop6.test", "mapped.test", "zero.test",
		// metadata, link-local and private networks
		"169.254.169.254", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "[fd00:ec2::254]", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376",
		"169.254.170.2", "168.63.129.16", "100.100.100.200", "[fe80::1]", "meta.test", "link.test",
		"10.0.0.1", "192.168.1.1", "172.16.0.1", "[fd12::1]", "ten.test",
	} {
		for _, p := range []string{port, "443", "80"} {
			c, status, head := g.connect(host + ":" + p)
			if status != 403 && status != 400 {
				t.Errorf("CONNECT %s:%s: %s", host, p, head)
			}
			c.Close()
			c = g.dial("GET http://" + host + ":" + p + "/ HTTP/1.1\r\nHost: " + host + ":" + p + "\r\n\r\n")
			head = readHead(t, c)
			if !strings.HasPrefix(head, "HTTP/1.1 403") && !strings.HasPrefix(head, "HTTP/1.1 400") {
				t.Errorf("GET http://%s:%s/: %s", host, p, head)
			}
			c.Close()
		}
	}
	select {
	case <-reached:
		t.Error("the server on this machine was reached")
	default:
	}
	eventually(t, "every place is free", func() bool { return g.h.Tunnels() == 0 })
}

// A name that is harmless when it is looked at and not when it is dialled.
func TestAnAnswerThatChangesBetweenLookingAndDialling(t *testing.T) {
	reached := make(chan bool, 10)
	port := listen(t, func(c net.Conn) { reached <- true })
	g := newRig(t, nil, nil, tunnelling())
	g.dns.set("rebind.test", "192.0.2.1", "127.0.0.1") // the first is nobody's
	g.dns.set("own.test", "127.0.0.1")
	if addrs, err := g.dns.resolver().LookupHost(t.Context(), "rebind.test"); err != nil || addrs[0] != "192.0.2.1" {
		t.Fatal(addrs, err)
	}
	_, status, head := g.connect("rebind.test:" + port)
	if status != 403 || !strings.Contains(head, "private range") {
		t.Errorf("%s", head)
	}
	if g.dns.times("rebind.test") < 2 {
		t.Error("it was not looked up again")
	}
	_, own, _ := net.SplitHostPort(g.address())
	for _, p := range []string{own, "4142"} {
		if _, status, head = g.connect("own.test:" + p); status != 403 || !strings.Contains(head, "own listener") {
			t.Errorf("callgate by another name: %s", head)
		}
	}
	select {
	case <-reached:
		t.Error("the server on this machine was reached")
	default:
	}
}

// CONNECT lines that are none.
func TestProxyRequestsThatAreNone(t *testing.T) {
	g := newRig(t, nil, nil, tunnelling("other.test"))
	for _, line := range []string{
		"CONNECT other.test HTTP/1.1", "CONNECT / HTTP/1.1", "CONNECT /x HTTP/1.1", "CONNECT other.test:443/x HTTP/1.1", "CONNECT http://other.test:443 HTTP/1.1",
		"CONNECT other.test:443?x HTTP/1.1", "CONNECT a@other.test:443 HTTP/1.1", "CONNECT :443 HTTP/1.1", "CONNECT * HTTP/1.1", "CONNECT other.test:99999 HTTP/1.1",
		"GET http:///x HTTP/1.1", "GET http:x HTTP/1.1", "GET mailto:a@b HTTP/1.1", "GET file:///etc/passwd HTTP/1.1", "GET http://other.test:x/ HTTP/1.1",
		"GET gopher://other.test/ HTTP/1.1", "GET HTTP://0x7f.1/ HTTP/1.1",
		"GET http://a:b@other.test/ HTTP/1.1", "GET http://a@other.test/ HTTP/1.1",
	} {
		c := g.dial(line + "\r\nHost: other.test\r\n\r\n")
		head := readHead(t, c)
		if !strings.HasPrefix(head, "HTTP/1.1 400") {
			t.Errorf("%s: %s", line, head)
		}
		c.Close()
	}
}

// What a provider's answer names is not followed.
func TestARedirectOfAGatedHostGoesToTheHandlerAlone(t *testing.T) {
	g := newRig(t, nil, func(*rig) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.test/x", http.StatusTemporaryRedirect)
		})
	})
	resp, err := (&http.Client{Transport: g.transport()}).Post(g.at("/v1/x"), "text/plain", strings.NewReader("the prompt"))
	if err == nil {
		b, _ := io.ReadAll(resp.Body)
		t.Errorf("it was followed: %d %s", resp.StatusCode, b)
	} else if !strings.Contains(err.Error(), "evil.test is no provider of the configuration") {
		t.Error(err)
	}
}

// answers is a control listener on every address of this machine. It counts what
// reaches it.
type answers struct {
	port    string
	reached atomic.Int64
}

func newAnswers(t *testing.T) *answers {
	t.Helper()
	a := &answers{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { a.reached.Add(1) }))
	s.Listener.Close()
	var err error
	if s.Listener, err = net.Listen("tcp", ":0"); err != nil {
		t.Fatal(err)
	}
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			a.reached.Add(1) // nothing need be asked
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	_, a.port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return a
}

// open lets everything pass that a configuration can let pass. What is left is
// that nobody's own listeners are dialled.
func (a *answers) open(g *rig, o *Options) {
	tunnelling()(g, o) // every port
	o.Providers = Tunnel
	o.Control = []netip.AddrPort{netip.MustParseAddrPort("[::]:" + a.port)}
	o.Transport = g.unguarded(o.Control...)
}

// unguarded is a transport to every address but those.
func (g *rig) unguarded(own ...netip.AddrPort) *http.Transport {
	return egress.New(egress.Options{Own: own, Resolver: g.dns.resolver(), Roots: g.roots, AllowPrivate: func(string) bool { return true }})
}

// status reads the status of an answer.
func status(t *testing.T, c net.Conn) (code int, text string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.StatusCode, resp.Status // a tunnel has no end
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Status + " " + string(body)
}

// However an agent spells the place where people answer, and whichever way it
// goes, it is not led there. Without callgate most of the spellings do lead
// there, so that it is callgate that is in the way.
func TestNoSpellingLeadsToWherePeopleAnswer(t *testing.T) {
	type spelling struct {
		name, host string
		addrs      []string // what the name's lookups give, in turn
		leads      bool     // without callgate
	}
	spellings := []spelling{
		{"the address", "127.0.0.1", nil, true},
		{"another of the same network", "127.9.9.9", nil, true},
		{"no address of any machine", "0.0.0.0", nil, true},
		{"a name of the machine", "localhost", nil, true},
		{"the name with a dot", "localhost.", nil, false},
		{"the name in capitals", "LocalHost", nil, true},
		{"a name below it", "x.localhost", nil, false},
		{"IPv6", "[::1]", nil, true},
		{"IPv6 in full", "[0:0:0:0:0:0:0:1]", nil, true},
		{"no address of any machine in IPv6", "[::]", nil, true},
		{"mapped", "[::ffff:127.0.0.1]", nil, true},
		{"mapped, in hexadecimal digits", "[::ffff:7f00:1]", nil, true},
		{"compatible", "[::127.0.0.1]", nil, false},
		{"behind NAT64", "[64:ff9b::7f00:1]", nil, false},
		{"6to4", "[2002:7f00:1::]", nil, false},
		{"decimal", "2130706433", nil, false},
		{"hexadecimal", "0x7f000001", nil, false},
		{"octal", "017700000001", nil, false},
		{"octal parts", "0177.0.0.1", nil, false},
		{"two parts", "127.1", nil, false},
		{"zero", "0", nil, false},
		{"a name of somebody's", "mine.test", []string{"127.0.0.1"}, true},
		{"a name that is mapped", "mapped.test", []string{"::ffff:127.0.0.1"}, true},
		{"a name in IPv6", "six.test", []string{"::1"}, true},
		{"a name of no address", "zero.test", []string{"0.0.0.0"}, true},
		{"a name whose answer changes once it was looked at", "rebind.test", []string{"192.0.2.1", "127.0.0.1"}, true},
		{"a name that looks like a provider's", "api.openai.com.mine.test", []string{"127.0.0.1"}, true},
		{"the name with a dot at its end", "mine.test.", []string{"127.0.0.1"}, true},
	}
	for i, a := range localAddrs() {
		if a.IsLoopback() || a.IsLinkLocalUnicast() {
			continue
		}
		host := a.String()
		if a.Is6() {
			host = "[" + host + "]"
		}
		spellings = append(spellings, spelling{fmt.Sprint("an address of the machine ", i), host, nil, true})
	}
	a := newAnswers(t)
	g := newRig(t, nil, func(g *rig) http.Handler {
		p := gated(g).(*proxy.Proxy)
		for _, s := range spellings {
			p.Upstreams[s.name] = &proxy.Upstream{Name: s.name, URL: parseURL(t, "http://"+s.host+":"+a.port), AllowPrivate: true}
		}
		p.Transport = g.unguarded(netip.MustParseAddrPort("[::]:" + a.port))
		return p
	}, a.open)
	entries := []struct {
		name string
		ask  func(s spelling) string
	}{
		{"CONNECT", func(s spelling) string {
			return "CONNECT " + s.host + ":" + a.port + " HTTP/1.1\r\nHost: " + s.host + "\r\n\r\n"
		}},
		{"a whole URL", func(s spelling) string {
			return "POST http://" + s.host + ":" + a.port + "/api/approvals/1/approve HTTP/1.1\r\nHost: " + s.host + "\r\nContent-Length: 2\r\n\r\n{}"
		}},
		{"a base URL, gated", func(s spelling) string {
			return fmt.Sprintf("POST /%s/v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
				strings.ReplaceAll(s.name, " ", "%20"), s.host, len(bodyOf), bodyOf)
		}},
		{"a base URL of an unknown path", func(s spelling) string {
			return fmt.Sprintf("POST /%s/api/approvals/1/approve HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\n\r\n{}", strings.ReplaceAll(s.name, " ", "%20"), s.host)
		}},
	}
	six, err := net.Listen("tcp", "[::1]:0")
	if err == nil {
		six.Close()
	}
	for _, s := range spellings {
		name := strings.TrimSuffix(s.host, ".")
		ready := func() {
			if s.addrs == nil {
				return
			}
			g.dns.set(name, s.addrs...)
			for range s.addrs[1:] {
				if got, err := g.dns.resolver().LookupHost(t.Context(), name); err != nil || got[0] == s.addrs[len(s.addrs)-1] {
					t.Fatal(got, err)
				}
			}
		}
		if s.leads && (err == nil || !strings.Contains(s.host+fmt.Sprint(s.addrs), "::")) {
			ready()
			d := net.Dialer{Resolver: g.dns.resolver(), Timeout: patience}
			before := a.reached.Load()
			c, err := d.Dial("tcp", net.JoinHostPort(strings.Trim(s.host, "[]"), a.port))
			if err != nil {
				t.Errorf("%s: it leads nowhere, so that nothing can be seen of it: %v", s.name, err)
				continue
			}
			c.Close()
			eventually(t, "it leads there", func() bool { return a.reached.Load() > before })
		}
		for _, e := range entries {
			t.Run(s.name+"/"+e.name, func(t *testing.T) {
				ready()
				before := a.reached.Load()
				c := g.dial(e.ask(s))
				defer c.Close()
				code, text := status(t, c)
				if n := a.reached.Load() - before; n != 0 {
					t.Errorf("it was reached %d times", n)
				}
				if code < 400 || code >= 500 && code != http.StatusBadGateway || !strings.Contains(text, "callgate") {
					t.Errorf("status %d: %s", code, text)
				}
			})
		}
	}
	eventually(t, "every place is free", func() bool { return g.h.Tunnels() == 0 })
}

// What an agent says within a request, or has a provider say, leads nowhere else
// than where the request went.
func TestNothingWithinARequestLeadsToWherePeopleAnswer(t *testing.T) {
	a := newAnswers(t)
	place := "http://127.0.0.1:" + a.port + "/api/approvals/1/approve"
	var asked atomic.Pointer[string] // the host that the provider was asked for last
	g := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(&r.Host)
		var code int
		if _, err := fmt.Sscanf(r.URL.Path, "/v1/redirect/%d", &code); err == nil {
			w.Header().Set("Location", place)
			w.Header().Set("Refresh", "0; url="+place)
			w.Header().Set("Alt-Svc", `h2="127.0.0.1:`+a.port+`"`)
			w.WriteHeader(code)
		}
	}), func(g *rig) http.Handler {
		p := gated(g).(*proxy.Proxy)
		p.Transport = g.unguarded() // not even the guard is in the way
		return p
	}, a.open)
	ways := slices.Clone(spoken)
	for i := range ways {
		if ways[i].name == "a whole URL" {
			ways[i].client = func(g *rig) *http.Client { return &http.Client{Transport: byLine{g, ""}} }
		}
	}
	ways = append(ways, ways[0])
	last := &ways[len(ways)-1]
	last.name, last.client = "a base URL", func(g *rig) *http.Client { return &http.Client{Transport: byLine{g, "/openai"}} }
	provider := openai + ":" + g.port
	tests := []struct {
		name, path string
		host       string // of the request, "" for that of its URL
		field      string // a header of the request
		passes     bool
		refused    int
	}{
		{"nothing", "/v1/models", "", "", true, 0},
		{"another Host", "/v1/models", "127.0.0.1:" + a.port, "", false, http.StatusMisdirectedRequest},
		{"the Host of the machine", "/v1/models", "localhost:" + a.port, "", false, http.StatusMisdirectedRequest},
		{"the Host of another provider", "/v1/models", claude + ":" + g.port, "", false, http.StatusMisdirectedRequest},
		{"a forwarded host", "/v1/models", "", "X-Forwarded-Host", true, 0},
		{"a forwarded host in the standard's form", "/v1/models", "", "Forwarded", true, 0},
		{"another URL", "/v1/models", "", "X-Original-Url", true, 0},
		{"another base", "/v1/models", "", "X-Base-Url", true, 0},
		{"moved for good", "/v1/redirect/301", "", "", false, http.StatusBadGateway},
		{"found elsewhere", "/v1/redirect/302", "", "", false, http.StatusBadGateway},
		{"to be seen elsewhere", "/v1/redirect/303", "", "", false, http.StatusBadGateway},
		{"elsewhere for now", "/v1/redirect/307", "", "", false, http.StatusBadGateway},
		{"elsewhere for good", "/v1/redirect/308", "", "", false, http.StatusBadGateway},
	}
	for _, tt := range tests {
		for _, w := range ways {
			t.Run(tt.name+"/"+w.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, "GET", g.at(tt.path), nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Host = tt.host
				if tt.field != "" {
					r.Header.Set(tt.field, place)
				}
				nobody := ""
				asked.Store(&nobody)
				c := w.client(g)
				c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
				resp, err := c.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Error(err)
				}
				// Of a whole URL and of a base URL the Host says nothing.
				passes := tt.passes || tt.host != "" && (w.name == "a whole URL" || w.name == "a base URL")
				if got := *asked.Load(); passes && got != provider || got != "" && got != provider {
					t.Errorf("the provider was asked for %q", got)
				}
				if passes && resp.StatusCode != http.StatusOK || !passes && resp.StatusCode != tt.refused {
					t.Errorf("status %d: %s", resp.StatusCode, body)
				}
				for name, v := range resp.Header {
					if strings.Contains(strings.Join(v, " "), a.port) {
						t.Errorf("the client is told of %s: %q", name, v)
					}
				}
				if n := a.reached.Load(); n != 0 {
					t.Fatalf("it was reached %d times", n)
				}
			})
		}
	}
}

// byLine sends a request as it is, for a whole URL or for the path of an upstream.
type byLine struct {
	g    *rig
	base string // of the path, "" for the whole URL
}

func (b byLine) RoundTrip(r *http.Request) (*http.Response, error) {
	target, host := b.base+r.URL.Path, b.g.address()
	if b.base == "" {
		target, host = r.URL.String(), r.URL.Host
	}
	if r.Host != "" {
		host = r.Host
	}
	var fields strings.Builder
	if err := r.Header.Write(&fields); err != nil {
		return nil, err
	}
	c := b.g.dial("GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n" + fields.String() + "Connection: close\r\n\r\n")
	return http.ReadResponse(bufio.NewReader(c), r)
}

// A provider's address is nobody's name: in a tunnel to it, or in a whole URL,
// the host of the request could say whose it is.
func TestNoUpstreamIsReachedByItsAddressOrAtAnotherPort(t *testing.T) {
	reached := make(chan bool, 10)
	port := listen(t, func(c net.Conn) { reached <- true })
	g := newRig(t, nil, nil, tunnelling("203.0.113.7"), func(_ *rig, o *Options) {
		o.Providers, o.Ports = Tunnel, nil
		o.Transport.DialContext = dialTo(o.Transport.DialContext, port)
	})
	for _, at := range []string{"203.0.113.7:80", "203.0.113.7:443", "[::ffff:203.0.113.7]:80", "[::ffff:cb00:7107]:443", openai + ":80"} {
		for _, head := range []string{
			"CONNECT " + at + " HTTP/1.1\r\nHost: " + openai + "\r\n\r\n",
			"POST http://" + at + "/v1/chat/completions HTTP/1.1\r\nHost: " + openai + "\r\nContent-Length: 0\r\n\r\n",
		} {
			c := g.dial(head)
			if got := readHead(t, c); !strings.HasPrefix(got, "HTTP/1.1 403") && !strings.HasPrefix(got, "HTTP/1.1 400") {
				t.Errorf("%.40q: %s", head, got)
			}
			c.Close()
		}
	}
	select {
	case <-reached:
		t.Error("the provider was reached")
	default:
	}
}
