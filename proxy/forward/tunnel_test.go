package forward

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// listen runs a TCP server that handles each connection with do.
func listen(t testing.TB, do func(net.Conn)) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				do(c)
			})
		}
	})
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}

func TestOtherHostsAreRefusedUnlessTheyAreAllowed(t *testing.T) {
	for _, c := range []struct {
		name, target string
		others, prov Policy
		want         int
		says         string
	}{
		{"another host by default", "other.test:443", Refuse, Refuse, 403, "forward.others: tunnel"},
		{"another host, providers allowed alone", "other.test:443", Refuse, Tunnel, 403, "forward.others: tunnel"},
		{"another host, allowed", "other.test:443", Tunnel, Refuse, 200, ""},
		{"another host, allowed, another port", "other.test:22", Tunnel, Refuse, 403, "port 22"},
		{"a provider by default", "chatgpt.com:443", Refuse, Refuse, 403, "https://chatgpt.com"},
		{"a provider, others allowed", "cloudcode-pa.googleapis.com:443", Tunnel, Refuse, 403, "around the gate"},
		{"a provider, providers allowed alone", "chatgpt.com:443", Refuse, Tunnel, 403, "around the gate"},
		{"a provider, both allowed", "chatgpt.com:443", Tunnel, Tunnel, 200, ""},
		{"a gated provider at another port", openai + ":80", Tunnel, Refuse, 403, "upstream openai"},
		{"a gated provider at another port, all allowed", openai + ":80", Tunnel, Tunnel, 403, "upstream openai"},
		{"an address, which may be a provider's", "203.0.113.7:443", Tunnel, Tunnel, 403, "ask for the host by its name"},
		{"an address of the newer kind", "[2001:db8::7]:443", Tunnel, Tunnel, 403, "ask for the host by its name"},
		{"an address in the other's spelling", "[::ffff:203.0.113.7]:443", Tunnel, Tunnel, 403, "ask for the host by its name"},
		{"the control listener, all allowed", "127.0.0.1:4142", Tunnel, Tunnel, 403, "through the proxy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			port := listen(t, func(net.Conn) {})
			g := newRig(t, nil, nil, tunnelling("other.test", "chatgpt.com"), func(_ *rig, o *Options) {
				o.Others, o.Providers, o.Ports = c.others, c.prov, nil
				dial := o.Transport.DialContext // every port is that of the server
				o.Transport.DialContext = dialTo(dial, port)
			})
			_, status, head := g.connect(c.target)
			if status != c.want || !strings.Contains(head, c.says) {
				t.Errorf("%s", head)
			}
			counts := g.h.Counts()
			host, _, _ := net.SplitHostPort(c.target)
			host = strings.TrimPrefix(host, "::ffff:")
			switch {
			case host == "127.0.0.1" || host == openai && c.want == 200:
				if len(counts) != 0 {
					t.Errorf("counted: %v", counts)
				}
			case len(counts) != 1 || counts[0].Host != host || (counts[0].Tunnelled == 1) != (c.want == 200) || (counts[0].Refused == 1) != (c.want != 200):
				t.Errorf("counted: %v", counts)
			case !strings.Contains(g.log.String(), "host="+host):
				t.Errorf("not logged: %s", g.log)
			}
		})
	}
}

func TestATunnelCarriesBothWaysAndHalfCloses(t *testing.T) {
	var got bytes.Buffer
	port := listen(t, func(c net.Conn) {
		io.WriteString(c, "first") // servers may speak first
		io.Copy(&got, c)           // to the client's end
		io.Copy(c, bytes.NewReader(bytes.Repeat([]byte("answer "), 100_000)))
	})
	g := newRig(t, nil, nil, tunnelling("other.test"))
	c, status, head := g.connect("other.test:" + port)
	if status != 200 || !strings.HasPrefix(head, "HTTP/1.1 200") {
		t.Fatal(head)
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "first" {
		t.Fatalf("%q %v", b, err)
	}
	sent := bytes.Repeat([]byte("question"), 100_000)
	if _, err := c.Write(sent); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	back, err := io.ReadAll(c)
	if err != nil || len(back) != 700_000 {
		t.Errorf("%d bytes came back, %v", len(back), err)
	}
	if !bytes.Equal(got.Bytes(), sent) {
		t.Errorf("%d bytes of %d arrived", got.Len(), len(sent))
	}
	c.Close()
	eventually(t, "the tunnel is gone", func() bool { return g.h.Tunnels() == 0 })
}

// What came in one write with CONNECT goes on too.
func TestBytesThatCameWithConnectGoThroughATunnel(t *testing.T) {
	port := listen(t, func(c net.Conn) { io.CopyN(c, c, 5) })
	g := newRig(t, nil, nil, tunnelling("other.test"))
	c := g.dial("CONNECT other.test:" + port + " HTTP/1.1\r\n\r\nearly")
	readHead(t, c)
	b := make([]byte, 5)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "early" {
		t.Errorf("%q %v", b, err)
	}
}

func TestAHangUpOfOneSideEndsTheOther(t *testing.T) {
	conns := make(chan net.Conn, 1)
	hold := make(chan bool)
	port := listen(t, func(c net.Conn) {
		conns <- c
		<-hold
	})
	t.Cleanup(func() { close(hold) })
	g := newRig(t, nil, nil, tunnelling("other.test"))
	reset := func(c net.Conn) {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	for name, leave := range map[string]func(client, target net.Conn) (stays net.Conn){
		"the client is gone": func(client, target net.Conn) net.Conn { reset(client); return target },
		"the server is gone": func(client, target net.Conn) net.Conn { reset(target); return client },
		"the server is done": func(client, target net.Conn) net.Conn { target.Close(); return client },
		"the client is done": func(client, target net.Conn) net.Conn { client.Close(); return target },
	} {
		c, _, _ := g.connect("other.test:" + port)
		io.WriteString(c, "x")
		target := <-conns
		target.SetDeadline(time.Now().Add(patience))
		io.ReadFull(target, make([]byte, 1))
		stays := leave(c, target)
		if _, err := stays.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: the other side still reads", name)
		} else if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
			t.Errorf("%s: the other side is not told", name)
		}
		stays.Close()
		eventually(t, name, func() bool { return g.h.Tunnels() == 0 })
	}
}

func TestATunnelThatIsSilentEnds(t *testing.T) {
	const idle = 300 * time.Millisecond
	stop := make(chan bool)
	port := listen(t, func(c net.Conn) {
		one := make([]byte, 1)
		if io.ReadFull(c, one); one[0] == 'b' {
			for range 12 { // busy in one direction for longer than the limit
				time.Sleep(idle / 6)
				if _, err := c.Write(one); err != nil {
					return
				}
			}
			return
		}
		<-stop
	})
	t.Cleanup(func() { close(stop) })
	g := newRig(t, nil, nil, tunnelling("other.test"), func(_ *rig, o *Options) { o.Idle = idle })
	busy, _, _ := g.connect("other.test:" + port)
	io.WriteString(busy, "b")
	silent, _, _ := g.connect("other.test:" + port)
	began := time.Now()
	io.WriteString(silent, "s")
	if b, err := io.ReadAll(silent); len(b) > 0 {
		t.Errorf("%q, %v", b, err)
	}
	if took := time.Since(began); took < idle/2 || took > patience/2 {
		t.Errorf("it ended after %v", took)
	}
	if b, err := io.ReadAll(busy); len(b) != 12 || err != nil {
		t.Errorf("one that is busy ended after %q, %v", b, err)
	}
	busy.Close()
	eventually(t, "the tunnels are gone", func() bool { return g.h.Tunnels() == 0 })
}

func TestThereAreOnlySoManyTunnels(t *testing.T) {
	port := listen(t, func(c net.Conn) { io.Copy(c, c) })
	g := newRig(t, nil, nil, tunnelling("other.test"), func(_ *rig, o *Options) { o.Tunnels = 3 })
	var open []net.Conn
	for range 3 {
		c, status, head := g.connect("other.test:" + port)
		if status != 200 {
			t.Fatal(head)
		}
		open = append(open, c)
	}
	for range 3 {
		if _, status, head := g.connect("other.test:" + port); status != 503 || !strings.Contains(head, "forward.tunnels") || !strings.Contains(head, "Retry-After") {
			t.Fatalf("one too many: %s", head)
		}
		resp, err := wholeURL{g.address()}.RoundTrip(request(t, "http://other.test:"+port+"/"))
		if err != nil || resp.StatusCode != 503 {
			t.Fatalf("one request too many: %v %v", resp, err)
		}
	}
	// Those that lead to the gate are none.
	if _, status, _ := g.connect(openai + ":" + g.port); status != 200 {
		t.Errorf("a gated host is refused: %d", status)
	}
	open[0].Close()
	eventually(t, "one is free", func() bool {
		c, status, _ := g.connect("other.test:" + port)
		if status != 200 {
			c.Close()
		}
		return status == 200
	})
	// A host that is not reached takes none for good.
	g.h.Close()
	if n := g.h.Tunnels(); n != 0 {
		t.Errorf("%d are left", n)
	}
}

func TestATunnelThatCannotBeMadeTakesNoPlace(t *testing.T) {
	g := newRig(t, nil, nil, tunnelling("other.test"), func(_ *rig, o *Options) { o.Tunnels = 1 })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().(*net.TCPAddr).Port
	l.Close()
	for range 4 {
		_, status, head := g.connect(fmt.Sprintf("other.test:%d", nobody))
		eventually(t, "the place is free", func() bool { return g.h.Tunnels() == 0 })
		if status != 502 || !strings.Contains(head, "is not reached") {
			t.Fatal(head)
		}
		resp, err := wholeURL{g.address()}.RoundTrip(request(t, fmt.Sprintf("http://other.test:%d/", nobody)))
		if err != nil || resp.StatusCode != 502 {
			t.Fatal(resp, err)
		}
		resp.Body.Close()
		eventually(t, "the place is free", func() bool { return g.h.Tunnels() == 0 })
	}
	eventually(t, "every place is free", func() bool { return g.h.Tunnels() == 0 })
}

func TestCloseCutsTunnels(t *testing.T) {
	port := listen(t, func(c net.Conn) { io.Copy(c, c) })
	g := newRig(t, nil, nil, tunnelling("other.test"))
	c, _, _ := g.connect("other.test:" + port)
	g.h.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("it is still there")
	}
	if _, status, _ := g.connect("other.test:" + port); status != 503 {
		t.Errorf("a new one after the end: %d", status)
	}
}

// The name in the hello must be the one that was asked for: the address may be
// that of many hosts.
func TestAHelloForAnotherHostEndsATunnel(t *testing.T) {
	g := newRig(t, http.HandlerFunc(echo), nil, tunnelling("other.test"))
	for _, c := range []struct {
		name, target, sni string
		good              bool
	}{
		{"the same name", "other.test", "other.test", true},
		{"the same in capitals", "other.test", "OTHER.test", true},
		{"no name", "other.test", "", true},
		{"a provider", "other.test", openai, false},
		{"another name", "other.test", "evil.test", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, status, head := g.connect(c.target + ":" + g.port)
			if status != 200 {
				t.Fatal(head)
			}
			err := tls.Client(conn, &tls.Config{ServerName: c.sni, InsecureSkipVerify: true}).Handshake()
			if (err == nil) != c.good {
				t.Errorf("the handshake: %v", err)
			}
			if !c.good && !strings.Contains(err.Error(), "unrecognized name") {
				t.Errorf("the client is told %v", err)
			}
		})
	}
}

// A hello may come in pieces, and what only looks like one is no way through.
func TestAHelloInPieces(t *testing.T) {
	g := newRig(t, http.HandlerFunc(echo), nil, tunnelling("other.test"))
	conn, _, _ := g.connect("other.test:" + g.port)
	if err := tls.Client(pieces{conn}, &tls.Config{ServerName: "other.test", RootCAs: g.roots}).Handshake(); err != nil {
		t.Errorf("byte by byte: %v", err)
	}
	got := make(chan int, 1)
	port := listen(t, func(c net.Conn) {
		n, _ := io.Copy(io.Discard, c)
		got <- int(n)
	})
	for _, text := range []string{"\x16\x03\x01\x00\x05hello", "\x16GET / HTTP/1.1\r\nHost: api.openai.com\r\n\r\n", "\x16\x03\x01\xff\xff" + strings.Repeat("x", 70_000)} {
		conn, _, _ := g.connect("other.test:" + port)
		go func() {
			io.WriteString(conn, text)
			conn.(*net.TCPConn).CloseWrite()
		}()
		io.Copy(io.Discard, conn)
		if n := <-got; n != 0 {
			t.Errorf("%d bytes of %.20q went through", n, text)
		}
	}
}

type pieces struct{ net.Conn }

func (p pieces) Write(b []byte) (int, error) {
	for i := range b {
		if _, err := p.Conn.Write(b[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

func TestAWholeURLOfAnotherHost(t *testing.T) {
	var asked http.Header
	more := make(chan bool)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/lines":
			w.Header().Set("Content-Type", "application/x-ndjson")
			for i := range 3 {
				fmt.Fprintf(w, "{\"line\":%d}\n", i)
				http.NewResponseController(w).Flush()
				<-more
			}
		case "/cut":
			io.WriteString(w, "half")
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "/redirect":
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
		case "/h":
			asked = r.Header.Clone()
			w.Header().Set("Alt-Svc", `h3=":443"`)
			w.Header().Set("Connection", "X-Theirs")
			w.Header().Set("X-Theirs", "1")
			fallthrough
		default:
			w.Header().Set("Content-Length", "5")
			io.WriteString(w, "12345")
		}
	}))
	defer other.Close()
	_, port, _ := net.SplitHostPort(other.Listener.Addr().String())
	g := newRig(t, nil, nil, tunnelling("other.test"))
	c := &http.Client{Transport: g.transport(), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	base := "http://other.test:" + port

	readsLines(t, &http.Client{Transport: g.transport()}, base+"/lines", more)

	resp, err := c.Get(base + "/cut")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("an answer that was cut ends well: %q", b)
	}

	r := request(t, base+"/h")
	r.Header.Set("Accept-Encoding", "x-theirs")
	r.Header.Set("Proxy-Authorization", "Basic secret")
	r.Header.Set("Te", "trailers")
	r.Header.Set("Connection", "X-Mine")
	r.Header.Set("X-Mine", "1")
	resp, err = c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	if string(body) != "12345" || resp.ContentLength != 5 || resp.Header.Get("Alt-Svc") != "" || resp.Header.Get("X-Theirs") != "" {
		t.Errorf("%q of %d, %v", body, resp.ContentLength, resp.Header)
	}
	for _, name := range []string{"Proxy-Authorization", "Te", "X-Mine", "X-Forwarded-For", "Proxy-Connection"} {
		if asked.Get(name) != "" {
			t.Errorf("%s went on: %q", name, asked.Get(name))
		}
	}
	if asked.Get("Accept-Encoding") != "x-theirs" || !strings.Contains(asked.Get("Via"), g.h.via) {
		t.Errorf("what went on: %v", asked)
	}

	// The client may follow, and is refused then.
	resp, err = c.Get(base + "/redirect")
	if err != nil || resp.StatusCode != 302 {
		t.Fatal(resp, err)
	}
	to, _ := resp.Location()
	if resp, err = c.Get(to.String()); err != nil || resp.StatusCode != 403 {
		t.Errorf("metadata behind a redirect: %v %v", resp, err)
	}

	for _, r := range []struct {
		name   string
		change func(*http.Request)
		want   int
	}{
		{"what was here before", func(r *http.Request) { r.Header.Set("Via", "1.1 x, 1.1 "+g.h.via) }, 508},
		{"what went through another proxy", func(r *http.Request) { r.Header.Set("Via", "1.1 squid") }, 200},
		{"an upgrade", func(r *http.Request) { r.Header.Set("Connection", "Upgrade"); r.Header.Set("Upgrade", "websocket") }, 501},
		{"https", func(r *http.Request) { r.URL.Scheme = "https" }, 400},
		{"ftp", func(r *http.Request) { r.URL.Scheme = "ftp" }, 400},
	} {
		req := request(t, base+"/x")
		r.change(req)
		resp, err := wholeURL{g.address()}.RoundTrip(req)
		if err != nil || resp.StatusCode != r.want {
			t.Errorf("%s: %v %v", r.name, resp, err)
		}
	}
	eventually(t, "every place is free", func() bool { return g.h.Tunnels() == 0 })
}

func TestHostsAreCountedWithinABound(t *testing.T) {
	var c counter
	for i := range 3 * maxCounted {
		c.add(fmt.Sprintf("h%d.test", i), i%2 == 0)
	}
	c.add("h1.test", false)
	list := c.list()
	if len(list) != maxCounted+1 || list[0].Host != rest {
		t.Fatalf("%d hosts, first %v", len(list), list[0])
	}
	var sum int64
	for _, n := range list {
		sum += n.Tunnelled + n.Refused
	}
	if sum != 3*maxCounted+1 || !slices.Contains(list, HostCount{"h1.test", 2, 0}) {
		t.Errorf("%d were counted", sum)
	}
}

type panics struct{ net.Conn }

func (panics) Read([]byte) (int, error) { panic("a fault") }

// goproxy copies in goroutines of its own, where a panic would end the process.
func TestAPanicInATunnelEndsTheTunnelAlone(t *testing.T) {
	heard := ""
	ts := tunnels{max: 1, fault: func(what string) { heard = what }}
	tun := ts.open(time.Minute)
	here, there := net.Pipe()
	defer there.Close()
	e, err := tun.target(panics{here})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.(io.WriterTo).WriteTo(io.Discard); !errors.Is(err, errFault) || !strings.HasPrefix(heard, "a fault\n") {
		t.Errorf("%v, heard %.80q", err, heard)
	}
	e.Close()
	if ts.count() != 0 {
		t.Error("it is still there")
	}
}
