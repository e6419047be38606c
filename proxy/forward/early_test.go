package forward

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// early is a client's connection that does not wait for the answer to CONNECT:
// the first that is written goes with it, in pieces that end at the given places
// behind its beginning.
type early struct {
	net.Conn
	t    *testing.T
	ask  string
	cuts []int
	said bool
	read bool
}

func (e *early) Write(p []byte) (int, error) {
	if e.said {
		return e.Conn.Write(p)
	}
	e.said = true
	all := append([]byte(e.ask), p...)
	from := 0
	for _, n := range e.cuts {
		to := min(len(e.ask)+n, len(all))
		if _, err := e.Conn.Write(all[from:to]); err != nil {
			return 0, err
		}
		from = to
		time.Sleep(20 * time.Millisecond) // what is in one packet is the network's to say
	}
	if _, err := e.Conn.Write(all[from:]); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (e *early) Read(p []byte) (int, error) {
	if !e.read {
		e.read = true
		if head := readHead(e.t, e.Conn); !strings.HasPrefix(head, "HTTP/1.1 200") {
			return 0, fmt.Errorf("no tunnel: %s", head)
		}
	}
	return e.Conn.Read(p)
}

// earlyTo dials the data listener; CONNECT goes with the first that is written.
func (g *rig) earlyTo(authority string, cuts ...int) *early {
	return &early{Conn: g.dial(""), t: g.t, ask: "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n", cuts: cuts}
}

// Clients need not wait for the answer to CONNECT: a hello that comes with it in
// one packet, or in part, is served as one that comes later.
func TestAHelloThatComesWithConnect(t *testing.T) {
	const other = "other.test"
	var many []string // a hello larger than the buffers of servers
	for i := range 60 {
		many = append(many, fmt.Sprintf("%0200d", i))
	}
	hosts := []struct {
		name, host string
	}{{"a gated host", openai}, {"another host", other}}
	hellos := []struct {
		name   string
		protos []string
		cuts   []int
	}{
		{"in one packet", nil, nil},
		{"in one packet, of many KiB", append(many, "http/1.1"), nil},
		{"with HTTP/2", []string{"h2"}, nil},
		{"behind CONNECT, in a packet of its own", nil, []int{0}},
		{"one byte with it", nil, []int{1}},
		{"the header of its record with it", nil, []int{5}},
		{"one half with it", nil, []int{100}},
		{"one half with it, of many KiB", append(many, "http/1.1"), []int{6000}},
		{"CONNECT in two packets", nil, []int{-20}},
		{"in three packets", nil, []int{-2, 3, 40}},
	}
	g := newRig(t, http.HandlerFunc(echo), nil, tunnelling(other))
	for _, at := range hosts {
		for _, h := range hellos {
			t.Run(at.name+"/"+h.name, func(t *testing.T) {
				conn := g.earlyTo(at.host+":"+g.port, h.cuts...)
				roots := g.roots
				want := "GET /x"
				if at.host == openai {
					roots, want = pool(g.ca), "GET /openai/x"
				}
				secure := tls.Client(conn, &tls.Config{ServerName: at.host, RootCAs: roots, NextProtos: h.protos})
				if err := secure.Handshake(); err != nil {
					t.Fatal(err)
				}
				rt := http.RoundTripper(&http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return secure, nil }})
				if len(h.protos) == 1 {
					tr := rt.(*http.Transport)
					tr.ForceAttemptHTTP2 = true
				}
				resp, err := rt.RoundTrip(request(t, "https://"+at.host+":"+g.port+"/x"))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if got := resp.Header.Get("X-Reached"); got != want {
					t.Errorf("status %d, reached %q", resp.StatusCode, got)
				}
				if wants := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[len(h.protos) == 1]; resp.Proto != wants {
					t.Errorf("it was spoken in %s", resp.Proto)
				}
			})
		}
	}
}

// The name in a hello that comes with CONNECT is looked at like any other.
func TestAnEarlyHelloForAnotherHost(t *testing.T) {
	const other = "other.test"
	g := newRig(t, http.HandlerFunc(echo), nil, tunnelling(other))
	for _, cuts := range [][]int{nil, {1}, {100}} {
		err := tls.Client(g.earlyTo(other+":"+g.port, cuts...), &tls.Config{ServerName: openai, InsecureSkipVerify: true}).Handshake()
		if err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("another host, cut at %d: %v", cuts, err)
		}
		secure := tls.Client(g.earlyTo(openai+":"+g.port, cuts...), &tls.Config{ServerName: claude, InsecureSkipVerify: true})
		fmt.Fprintf(secure, "GET /x HTTP/1.1\r\nHost: %s:%s\r\n\r\n", claude, g.port)
		resp, err := http.ReadResponse(bufio.NewReader(secure), nil)
		if err != nil || resp.StatusCode != http.StatusMisdirectedRequest {
			t.Errorf("a gated host, cut at %d: %v, %v", cuts, resp, err)
		}
	}
}

// A refused tunnel's early bytes are nobody's request.
func TestEarlyBytesOfARefusedTunnelAreNotServed(t *testing.T) {
	g := newRig(t, nil, nil)
	c := g.dial("CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\nGET /openai/v1/x HTTP/1.1\r\nHost: " + g.address() + "\r\n\r\n")
	all, err := io.ReadAll(c)
	if err != nil || !bytes.HasPrefix(all, []byte("HTTP/1.1 403")) || bytes.Count(all, []byte("HTTP/1.1")) != 1 || bytes.Contains(all, []byte("X-Reached")) {
		t.Errorf("%q, %v", all, err)
	}
}

// Requests in clear that come with CONNECT are served whole: several of them,
// and bodies larger than any buffer.
func TestRequestsInClearThatComeWithConnect(t *testing.T) {
	g := newRig(t, nil, nil)
	in := openai + ":" + g.port
	body := strings.Repeat("a long prompt ", 5000)
	one := fmt.Sprintf("POST /one HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", in, len(body), body)
	for name, cuts := range map[string][]int{"in one write": nil, "with part of it": {50}, "with part of its body": {3000, 20_000}} {
		c := g.earlyTo(in, cuts...)
		go func() {
			if _, err := io.WriteString(c, one+strings.Replace(one, "/one", "/two", 1)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}()
		from := bufio.NewReader(c)
		for _, path := range []string{"/one", "/two"} {
			resp, err := http.ReadResponse(from, nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got, err := io.ReadAll(resp.Body)
			if err != nil || string(got) != body || resp.Header.Get("X-Reached") != "POST /openai"+path {
				t.Errorf("%s: %d bytes, %v, reached %q", name, len(got), err, resp.Header.Get("X-Reached"))
			}
		}
	}
}
