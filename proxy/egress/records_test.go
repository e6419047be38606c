package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// wire is one direction of a connection in memory: writes never wait, and a
// read gives what is there up to most bytes.
type wire struct {
	mu    sync.Mutex
	come  *sync.Cond
	data  []byte
	err   error // behind data
	most  func() int
	reads int
}

func newWire() *wire {
	w := &wire{most: func() int { return 1 << 20 }}
	w.come = sync.NewCond(&w.mu)
	return w
}

func (w *wire) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	w.come.Broadcast()
}

func (w *wire) put(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.data = append(w.data, p...)
	w.come.Broadcast()
}

// take gives what is there and has not been read.
func (w *wire) take() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.data
	w.data = nil
	return p
}

// port is one end of two wires.
type port struct {
	net.Conn // nil: nothing else is called
	in, out  *wire
}

func (p port) Read(b []byte) (int, error) {
	w := p.in
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	for len(w.data) == 0 {
		if w.err != nil {
			return 0, w.err
		}
		w.come.Wait()
	}
	n := copy(b[:min(len(b), w.most())], w.data)
	w.data = w.data[n:]
	return n, nil
}

func (p port) Write(b []byte) (int, error) {
	p.out.put(b)
	return len(b), nil
}

func (p port) SetDeadline(time.Time) error      { return nil }
func (p port) SetReadDeadline(time.Time) error  { return nil }
func (p port) SetWriteDeadline(time.Time) error { return nil }

func (p port) Close() error {
	p.in.end(net.ErrClosed)
	p.out.end(io.EOF)
	return nil
}

// certificate is one for example.com and 127.0.0.1, with whom it trusts.
var certificate = sync.OnceValue(func() *httptest.Server {
	s := httptest.NewTLSServer(nil)
	s.Close()
	return s
})

// shake speaks the handshake over two ends of a connection.
func shake(t testing.TB, version uint16, client, server net.Conn, change ...func(*tls.Config)) (there, here *tls.Conn) {
	t.Helper()
	s := certificate()
	config := &tls.Config{Certificates: s.TLS.Certificates, MaxVersion: version, DynamicRecordSizingDisabled: true}
	for _, c := range change {
		c(config)
	}
	there = tls.Server(server, config)
	here = tls.Client(client, &tls.Config{
		RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com", MinVersion: version,
	})
	done := make(chan error, 1)
	go func() { done <- there.Handshake() }()
	if err := here.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return there, here
}

// shakeRecords is shake with what is tested at the client's end.
func shakeRecords(t testing.TB, version uint16, client, server net.Conn, change ...func(*tls.Config)) (*tls.Conn, *records) {
	t.Helper()
	under := &ahead{Conn: client}
	there, here := shake(t, version, under, server, change...)
	return there, &records{Conn: here, under: under}
}

// inMemory is a TLS connection of which in carries what comes to the client.
func inMemory(t testing.TB, version uint16) (there *tls.Conn, here *records, in *wire) {
	t.Helper()
	in, out := newWire(), newWire()
	there, here = shakeRecords(t, version, port{in: in, out: out}, port{in: out, out: in})
	return there, here, in
}

var versions = map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13}

// random is a source that a failure can be repeated with.
func random(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// Whatever the sizes of records, of what the network gives and of what is asked
// for, all bytes come, in order, and then the same end that crypto/tls tells.
func TestRecordsOfAnySizeGiveTheSameBytesAndTheSameEnd(t *testing.T) {
	r := random(t)
	ends := []struct {
		name string
		end  func(there *tls.Conn, in *wire) // behind the last record
		want func(error) bool
	}{
		{"told", func(there *tls.Conn, in *wire) { there.CloseWrite() }, func(err error) bool { return err == io.EOF }},
		{"cut within a record", func(there *tls.Conn, in *wire) {
			in.put([]byte{23, 3, 3, 1, 0, 'c', 'u', 't'})
			in.end(io.EOF)
		}, func(err error) bool { return err == io.ErrUnexpectedEOF }},
		{"reset", func(there *tls.Conn, in *wire) { in.end(errReset) }, func(err error) bool { return errors.Is(err, errReset) }},
		{"a forged record", func(there *tls.Conn, in *wire) { in.put(append([]byte{23, 3, 3, 0, 32}, make([]byte, 32)...)) },
			func(err error) bool {
				return err != nil && err != io.EOF && strings.Contains(err.Error(), "bad record MAC")
			}},
	}
	for name, version := range versions {
		for _, e := range ends {
			for range 20 {
				there, here, in := inMemory(t, version)
				in.most = func() int { return 1 + r.IntN(1+r.IntN(40000)) }
				var want []byte
				for range r.IntN(60) {
					p := make([]byte, r.IntN(1+r.IntN(5000)))
					for i := range p {
						p[i] = byte(r.Uint32())
					}
					want = append(want, p...)
					if _, err := there.Write(p); err != nil {
						t.Fatal(err)
					}
				}
				e.end(there, in)
				var got []byte
				var err error
				for err == nil {
					p := make([]byte, 1+r.IntN(20000))
					var n int
					n, err = here.Read(p)
					if n == 0 && err == nil {
						t.Fatalf("%s, %s: a read of nothing", name, e.name)
					}
					got = append(got, p[:n]...)
				}
				if !bytes.Equal(got, want) {
					t.Fatalf("%s, %s: %d bytes of %d", name, e.name, len(got), len(want))
				}
				if !e.want(err) {
					t.Fatalf("%s, %s: ends with %v", name, e.name, err)
				}
				if n, again := here.Read(make([]byte, 10)); n != 0 || again == nil || again.Error() != err.Error() {
					t.Fatalf("%s, %s: %d, %v behind %v", name, e.name, n, again, err)
				}
				if here.under.buf != nil {
					t.Fatalf("%s, %s: the buffer is kept", name, e.name)
				}
			}
		}
	}
}

var errReset = errors.New("reset by the test")

func TestManySmallRecordsTakeFewReads(t *testing.T) {
	for name, version := range versions {
		t.Run(name, func(t *testing.T) {
			there, here, in := inMemory(t, version)
			const events = 400
			for i := range events {
				fmt.Fprintf(there, "event %03d, and what it says\n", i)
			}
			in.mu.Lock()
			before := in.reads
			in.mu.Unlock()
			p := make([]byte, 32<<10)
			got, reads := 0, 0
			for ; got < events; reads++ {
				n, err := here.Read(p)
				if err != nil {
					t.Fatal(err)
				}
				got += bytes.Count(p[:n], []byte("\n"))
			}
			if took := in.reads - before; reads > 2 || took > 2 {
				t.Errorf("%d reads, %d of the network", reads, took)
			}
			ended := make(chan error)
			go func() {
				_, err := here.Read(p)
				ended <- err
			}()
			for waits := false; !waits; time.Sleep(time.Millisecond) {
				in.mu.Lock()
				if waits = in.reads > before+2; waits && here.under.buf != nil {
					t.Error("a connection on which nothing comes has a buffer")
				}
				in.mu.Unlock()
			}
			there.CloseWrite()
			if err := <-ended; err != io.EOF {
				t.Error(err)
			}
		})
	}
}

func TestAReadDoesNotWaitForASecondRecord(t *testing.T) {
	for name, version := range versions {
		t.Run(name, func(t *testing.T) {
			there, here, in := inMemory(t, version)
			io.WriteString(there, "warm") // with tickets before it
			p := make([]byte, 1000)
			if n, err := here.Read(p); err != nil || string(p[:n]) != "warm" {
				t.Fatalf("%q, %v", p[:n], err)
			}
			// The second is neither waited for nor lost, wherever it is cut.
			again := strings.Repeat("second", 20)
			for cut := 0; ; cut++ {
				io.WriteString(there, "first")
				first := in.take()
				io.WriteString(there, again)
				second := in.take()
				if cut == len(second) {
					break
				}
				in.put(append(first, second[:cut]...))
				if n, err := here.Read(p); err != nil || string(p[:n]) != "first" {
					t.Fatalf("cut at %d: %q, %v", cut, p[:n], err)
				}
				in.put(second[cut:])
				if n, err := here.Read(p); err != nil || string(p[:n]) != again {
					t.Fatalf("cut at %d: %q, %v", cut, p[:n], err)
				}
			}
		})
	}
}

func TestAnEndIsToldWithTheLastBytes(t *testing.T) {
	// The transport would else give the connection to another request.
	there, here, _ := inMemory(t, tls.VersionTLS13)
	io.WriteString(there, "one")
	io.WriteString(there, "two")
	there.CloseWrite()
	p := make([]byte, 1000)
	if n, err := here.Read(p); string(p[:n]) != "onetwo" || err != io.EOF {
		t.Errorf("%q, %v", p[:n], err)
	}
}

// overTCP is a TLS connection over loopback.
func overTCP(t *testing.T) (there *tls.Conn, here *records) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return shakeRecords(t, tls.VersionTLS13, client, server)
}

func TestADeadlineEndsAReadAndTheNextGoesOn(t *testing.T) {
	there, here := overTCP(t)
	p := make([]byte, 100)
	here.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if n, err := here.Read(p); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d, %v", n, err)
	}
	here.SetReadDeadline(time.Time{})
	io.WriteString(there, "later")
	if n, err := here.Read(p); err != nil || string(p[:n]) != "later" {
		t.Fatalf("%q, %v", p[:n], err)
	}
}

func TestCloseEndsAReadThatWaits(t *testing.T) {
	for range 20 {
		there, here := overTCP(t)
		ended := make(chan error)
		go func() {
			p := make([]byte, 100)
			for {
				if _, err := here.Read(p); err != nil {
					ended <- err
					return
				}
			}
		}()
		go io.WriteString(there, strings.Repeat("event\n", 1000))
		time.Sleep(time.Duration(rand.IntN(int(time.Millisecond))))
		here.Close()
		if err := <-ended; err == nil {
			t.Fatal("no error")
		}
	}
}

// provider runs a server with TLS and gives its URL and the options to reach
// it.
func provider(t *testing.T, h2 bool, h http.HandlerFunc) (string, Options) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2, s.Config.ErrorLog = h2, slog.NewLogLogger(slog.DiscardHandler, 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL, Options{AllowPrivate: Private, Roots: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
}

// transport is one that a test ends.
func transport(t *testing.T, o Options) *http.Transport {
	tr := New(o)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func TestHTTP2IsSpokenWhereItIsOffered(t *testing.T) {
	for _, h2 := range []bool{true, false} {
		t.Run(fmt.Sprint(h2), func(t *testing.T) {
			var mu sync.Mutex
			from := map[string]int{}
			url, o := provider(t, h2, func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				from[r.RemoteAddr]++
				mu.Unlock()
				for i := range 50 {
					fmt.Fprintf(w, "event %d\n", i)
					w.(http.Flusher).Flush()
				}
			})
			tr := transport(t, o)
			for range 3 {
				resp, err := (&http.Client{Transport: tr}).Get(url)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if n := bytes.Count(got, []byte("\n")); n != 50 || err != nil {
					t.Errorf("%d events, %v", n, err)
				}
				if (resp.ProtoMajor == 2) != h2 || resp.TLS == nil || len(resp.TLS.VerifiedChains) == 0 {
					t.Errorf("%s, %+v", resp.Proto, resp.TLS)
				}
			}
			if len(from) != 1 {
				t.Errorf("%d connections for three requests", len(from))
			}
			c, err := tr.DialTLSContext(t.Context(), "tcp", strings.TrimPrefix(url, "https://"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, gathers := c.(*records); gathers == h2 {
				t.Errorf("a connection is a %T", c)
			}
		})
	}
}

func TestTheCertificateMustBeThatOfTheHost(t *testing.T) {
	url, o := provider(t, true, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.TLS.ServerName) })
	o.Resolver = resolver(t, netip.MustParseAddr("127.0.0.1"))
	o.AllowPrivate = func(string) bool { return true }
	_, at, _ := strings.Cut(url, "127.0.0.1")
	if got, err := get(o, "https://example.com"+at); err != nil || got != "example.com" {
		t.Errorf("%q, %v", got, err)
	}
	tr := transport(t, o)
	dial, closed := tr.DialContext, 0
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return &closing{c, &closed}, err
	}
	req, err := http.NewRequest("GET", "https://example.org"+at, nil)
	if err != nil {
		t.Fatal(err)
	}
	var wrong *tls.CertificateVerificationError
	if _, err := tr.RoundTrip(req); !errors.As(err, &wrong) {
		t.Error(err)
	}
	if closed != 1 {
		t.Errorf("the connection was closed %d times", closed)
	}
}

// closing counts how often it is closed.
type closing struct {
	net.Conn
	times *int
}

func (c *closing) Close() error {
	*c.times++
	return c.Conn.Close()
}

func TestAnAnswerThatBreaksOffIsAnError(t *testing.T) {
	for name, answer := range map[string]string{
		"a body without its last chunk": "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"half a chunk":                  "Transfer-Encoding: chunked\r\n\r\n50\r\nhello",
		"a body shorter than it said":   "Content-Length: 50\r\n\r\nhello",
	} {
		for _, told := range []bool{false, true} {
			url, o := provider(t, false, func(w http.ResponseWriter, r *http.Request) {
				c, rw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					panic(err)
				}
				rw.WriteString("HTTP/1.1 200 OK\r\n" + answer)
				rw.Flush()
				if told {
					c.Close()
				} else {
					c.(*tls.Conn).NetConn().Close()
				}
			})
			if got, err := get(o, url); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.HasPrefix(got, "hello") && name != "half a chunk" {
				t.Errorf("%s, told %v: %q, %v", name, told, got, err)
			}
		}
	}
}

func TestACancelledRequestEndsItsRead(t *testing.T) {
	gone := make(chan struct{})
	url, o := provider(t, false, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "begun\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(gone)
		panic(http.ErrAbortHandler) // an end could be read before the connection is closed
	})
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport(t, o).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body := bufio.NewReader(resp.Body)
	if line, err := body.ReadString('\n'); line != "begun\n" || err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	cancel()
	if _, err := body.ReadByte(); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	<-gone
}

func TestAHandshakeIsNotWaitedForForEver(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	closed := make(chan struct{})
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		io.Copy(io.Discard, c)
		c.Close()
		close(closed)
	}()
	req, err := http.NewRequest("GET", "https://"+l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = transport(t, Options{AllowPrivate: Private, TLSTimeout: 20 * time.Millisecond}).RoundTrip(req)
	var ne net.Error
	if !errors.As(err, &ne) || !ne.Timeout() || !strings.Contains(err.Error(), "handshake with 127.0.0.1 takes longer than 20ms") {
		t.Errorf("%v", err)
	}
	<-closed
}
