package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func TestWhichAddressesAreDialled(t *testing.T) {
	g := &guard{
		own:     []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:4141"), netip.MustParseAddrPort("[::]:4142"), netip.MustParseAddrPort("10.1.1.1:4143")},
		private: func(host string) bool { return host == "inside" },
		local: func() []netip.Addr {
			return []netip.Addr{netip.MustParseAddr("192.168.7.7"), netip.MustParseAddr("2001:db8::7")}
		},
	}
	for _, c := range []struct{ name, at, outside, inside string }{
		// at, and what is said of it for a host that may not and one that may reach private ranges; "" is yes.
		{"a public address", "1.2.3.4:443", "", ""},
		{"a public IPv6 address", "[2606:4700::1]:443", "", ""},
		{"another port of a public address", "1.2.3.4:8080", "", ""},
		{"a public address behind NAT64", "[64:ff9b::102:304]:443", "", ""},
		{"loopback", "127.0.0.1:80", "private range", ""},
		{"another loopback", "127.9.9.9:80", "private range", ""},
		{"loopback over IPv6", "[::1]:80", "private range", ""},
		{"mapped loopback", "[::ffff:127.0.0.1]:80", "private range", ""},
		{"ten", "10.0.0.1:80", "private range", ""},
		{"172.16", "172.31.255.1:80", "private range", ""},
		{"192.168", "192.168.1.1:80", "private range", ""},
		{"carrier NAT", "100.64.0.1:80", "private range", ""},
		{"benchmark", "198.18.0.1:80", "private range", ""},
		{"unique local", "[fd12::1]:80", "private range", ""},
		{"site local", "[fec0::1]:80", "private range", ""},
		{"ten behind NAT64", "[64:ff9b::a00:1]:80", "private range", ""},
		{"mapped ten", "[::ffff:10.0.0.1]:80", "private range", ""},

		{"our own listener", "127.0.0.1:4141", "own listener", "own listener"},
		{"our own listener by another loopback", "127.0.0.2:4141", "own listener", "own listener"},
		{"our own listener over IPv6", "[::1]:4141", "own listener", "own listener"},
		{"our own listener, mapped", "[::ffff:127.0.0.1]:4141", "own listener", "own listener"},
		{"our own listener by the machine's address", "192.168.7.7:4142", "own listener", "own listener"},
		{"our own listener by the machine's IPv6 address", "[2001:db8::7]:4142", "own listener", "own listener"},
		{"our own listener at its address", "10.1.1.1:4143", "own listener", "own listener"},
		{"our port on another machine", "1.2.3.4:4141", "", ""},
		{"another port here", "192.168.7.7:80", "private range", ""},

		{"AWS metadata", "169.254.169.254:80", "metadata", "metadata"},
		{"AWS metadata, mapped", "[::ffff:169.254.169.254]:80", "metadata", "metadata"},
		{"AWS metadata behind NAT64", "[64:ff9b::a9fe:a9fe]:80", "metadata", "metadata"},
		{"AWS metadata over IPv6", "[fd00:ec2::254]:80", "metadata", "metadata"},
		{"AWS container credentials", "169.254.170.2:80", "metadata", "metadata"},
		{"Azure's host", "168.63.129.16:80", "metadata", "metadata"},
		{"Alibaba metadata", "100.100.100.200:80", "metadata", "metadata"},
		{"Google metadata over IPv6", "[fd20:ce::254]:80", "metadata", "metadata"},
		{"link-local", "169.254.1.1:80", "link-local", "link-local"},
		{"link-local over IPv6", "[fe80::1]:80", "link-local", "link-local"},
		{"link-local with a zone", "[fe80::1%eth0]:80", "link-local", "link-local"},
		{"unspecified", "0.0.0.0:80", "not an address", "not an address"},
		{"unspecified over IPv6", "[::]:80", "not an address", "not an address"},
		{"this network", "0.1.2.3:80", "not an address", "not an address"},
		{"multicast", "224.0.0.1:80", "link-local", "link-local"},
		{"wide multicast", "239.1.1.1:80", "not an address", "not an address"},
		{"multicast over IPv6", "[ff05::1]:80", "not an address", "not an address"},
		{"broadcast", "255.255.255.255:80", "not an address", "not an address"},
		{"reserved", "240.0.0.1:80", "not an address", "not an address"},
		{"IPv4-compatible loopback", "[::7f00:1]:80", "inside an IPv6", "inside an IPv6"},
		{"6to4", "[2002:7f00:1::]:80", "inside an IPv6", "inside an IPv6"},
		{"Teredo", "[2001:0:1::1]:80", "inside an IPv6", "inside an IPv6"},
		{"local NAT64", "[64:ff9b:1::1.2.3.4]:80", "inside an IPv6", "inside an IPv6"},
	} {
		for host, want := range map[string]string{"outside": c.outside, "inside": c.inside} {
			ctx := context.WithValue(t.Context(), hostKey{}, host)
			err := g.control(ctx, "tcp4", c.at, nil)
			var refused *RefusedError
			switch {
			case want == "" && err != nil:
				t.Errorf("%s for %s: %v", c.name, host, err)
			case want != "" && (!errors.As(err, &refused) || !strings.Contains(refused.Reason, want) || refused.Host != host):
				t.Errorf("%s for %s: %v, want %q", c.name, host, err, want)
			}
		}
	}
	if err := g.control(t.Context(), "udp", "1.2.3.4:443", nil); err == nil {
		t.Error("UDP was dialled")
	}
	if err := g.control(t.Context(), "tcp", "not an address", nil); err == nil {
		t.Error("something that is no address was dialled")
	}
}

func TestPrivateNames(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST.": true, "x.localhost": true, "127.0.0.1": true, "10.0.0.1": true, "::1": true, "[::1]": true,
		"::ffff:192.168.0.1": true, "fd00::1": true,
		"example.com": false, "1.2.3.4": false, "localhost.example.com": false, "notlocalhost": false, "": false,
		"2130706433": false, "0x7f.1": false, "169.254.169.254": false,
	} {
		if Private(host) != want {
			t.Errorf("%q: %v", host, !want)
		}
	}
}

// serve runs a server on loopback and returns its port.
func serve(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "reached") }))
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// resolver answers every name with one address.
func resolver(t *testing.T, a netip.Addr) *net.Resolver {
	t.Helper()
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		c, s := net.Pipe()
		go answer(s, a)
		return c, nil
	}}
}

// answer is a name server for one question over TCP framing.
func answer(c net.Conn, a netip.Addr) {
	defer c.Close()
	head := make([]byte, 2)
	for {
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		msg := make([]byte, int(head[0])<<8|int(head[1]))
		if _, err := io.ReadFull(c, msg); err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(msg) != nil || len(m.Questions) != 1 {
			return
		}
		m.Response, m.Additionals = true, nil
		q := m.Questions[0]
		if q.Type == dnsmessage.TypeA && a.Is4() {
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
				Body:   &dnsmessage.AResource{A: a.As4()},
			}}
		}
		out, err := m.Pack()
		if err != nil {
			return
		}
		c.Write(append([]byte{byte(len(out) >> 8), byte(len(out))}, out...))
	}
}

func get(o Options, url string) (string, error) {
	tr := New(o)
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func TestAddressesAreCheckedAfterNamesAreResolved(t *testing.T) {
	port := serve(t)
	loop := netip.MustParseAddr("127.0.0.1")
	all := func(string) bool { return true }
	var refused *RefusedError
	for _, c := range []struct {
		name, url string
		o         Options
		ok        bool
	}{
		{"a literal address that is not allowed", "http://127.0.0.1:" + port, Options{}, false},
		{"a literal address that is allowed", "http://127.0.0.1:" + port, Options{AllowPrivate: all}, true},
		{"a name that leads to loopback", "http://rebind.example:" + port, Options{Resolver: resolver(t, loop)}, false},
		{"a name that leads to loopback and is allowed", "http://inside.example:" + port, Options{Resolver: resolver(t, loop), AllowPrivate: func(h string) bool { return h == "inside.example" }}, true},
		{"another name that leads there", "http://rebind.example:" + port, Options{Resolver: resolver(t, loop), AllowPrivate: func(h string) bool { return h == "inside.example" }}, false},
		{"a name that leads to metadata", "http://meta.example", Options{Resolver: resolver(t, netip.MustParseAddr("169.254.169.254")), AllowPrivate: all}, false},
		{"our own listener", "http://127.0.0.1:" + port, Options{AllowPrivate: all, Own: []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:" + port)}}, false},
		{"our own listener by a name", "http://self.example:" + port, Options{AllowPrivate: all, Resolver: resolver(t, loop), Own: []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:" + port)}}, false},
		{"our own listener in mapped form", "http://[::ffff:127.0.0.1]:" + port, Options{AllowPrivate: all, Own: []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:" + port)}}, false},
	} {
		got, err := get(c.o, c.url)
		if c.ok && (err != nil || got != "reached") {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
		if !c.ok && !errors.As(err, &refused) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

// A proxy variable must not lead requests to callgate itself or elsewhere.
func TestProxyVariablesAreNotRead(t *testing.T) {
	port := serve(t)
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	tr := New(Options{AllowPrivate: func(string) bool { return true }})
	if tr.Proxy != nil {
		t.Error("the transport has a proxy")
	}
	if got, err := get(Options{AllowPrivate: func(string) bool { return true }}, "http://127.0.0.1:"+port); err != nil || got != "reached" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestCertificatesAreVerified(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	s.Config.ErrorLog = nil
	if _, err := get(Options{AllowPrivate: Private}, s.URL); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an unknown authority was accepted: %v", err)
	}
	c := New(Options{}).TLSClientConfig
	if c.InsecureSkipVerify || c.MinVersion < 0x0303 {
		t.Errorf("%+v", c)
	}
}

func TestWhatAnAgentIsToldOfAProviderThatIsNotReached(t *testing.T) {
	lookup := func(e net.DNSError) error {
		e.Name, e.Server = "api.provider.test", "10.0.0.53:53"
		return &net.OpError{Op: "dial", Net: "tcp", Err: &e}
	}
	for _, c := range []struct {
		name, want string
		err        error
	}{
		{"a name that is not known", "the name api.provider.test is not known", lookup(net.DNSError{Err: "no such host", IsNotFound: true})},
		{"a name server that is silent", "the name api.provider.test took too long to look up", lookup(net.DNSError{Err: "i/o timeout", IsTimeout: true})},
		{"a name server that fails", "the name api.provider.test could not be looked up", lookup(net.DNSError{Err: "server misbehaving", IsTemporary: true})},
		{"a closed port", "dial: connect: connection refused", &net.OpError{
			Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 443}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}},
		{"anything else", "tls: no certificate", errors.New("tls: no certificate")},
	} {
		if got := Reason(fmt.Errorf("asking: %w", c.err)); got != c.want && got != "asking: "+c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}
