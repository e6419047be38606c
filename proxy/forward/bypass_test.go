package forward

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
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
