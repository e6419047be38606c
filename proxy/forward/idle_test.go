package forward

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"callgate/proxy/mitm"
)

// wires connects clients to a handler, and the handler to another host. Nobody
// reads what the other host is sent.
type wires struct {
	client func() net.Conn
	dial   dialFunc
	close  func()
}

// sockets are wires over loopback.
func sockets(t *testing.T, front *idleFront) wires {
	var kept sync.Mutex
	var conns []net.Conn
	keep := func(c net.Conn) {
		kept.Lock()
		defer kept.Unlock()
		conns = append(conns, c)
	}
	there := socket(t)
	go func() {
		for {
			c, err := there.Accept()
			if err != nil {
				return
			}
			keep(c)
		}
	}()
	here := socket(t)
	go front.server.Serve(here)
	var d net.Dialer
	return wires{
		client: func() net.Conn {
			c, err := net.Dial("tcp", here.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			keep(c)
			return c
		},
		dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return d.DialContext(ctx, network, there.Addr().String())
		},
		close: func() {
			here.Close()
			there.Close()
			kept.Lock()
			defer kept.Unlock()
			for _, c := range conns {
				c.Close()
			}
		},
	}
}

func socket(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// pipes are wires in memory.
func pipes(front *idleFront) wires {
	l := &pipeListener{next: make(chan net.Conn), done: make(chan struct{})}
	go front.server.Serve(l)
	var kept sync.Mutex
	var conns []net.Conn // that a collection must not take
	return wires{
		client: func() net.Conn {
			ours, theirs := net.Pipe()
			l.next <- theirs
			return ours
		},
		dial: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			kept.Lock()
			defer kept.Unlock()
			conns = append(conns, theirs)
			return taking{ours}, nil
		},
		close: func() { l.Close() },
	}
}

// taking is the way to a host that reads all it is sent and says nothing.
type taking struct{ net.Conn }

func (taking) Write(p []byte) (int, error) { return len(p), nil }

type pipeListener struct {
	next chan net.Conn
	once sync.Once
	done chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.next:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return tunnelAddr{} }

// idleFront is a handler that lets other hosts pass, in a server.
type idleFront struct {
	h      *Handler
	server *http.Server
	wires
}

func newIdleFront(t *testing.T, limit int, idle time.Duration, lay func(*idleFront) wires) *idleFront {
	t.Helper()
	ca, err := mitm.New([]string{openai}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	f := &idleFront{}
	f.h, err = New(Options{
		Next: http.NotFoundHandler(), Server: dataServer, CA: ca, Others: Tunnel, Tunnels: limit, Idle: idle,
		Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) { return f.dial(ctx, network, addr) }},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.server = dataServer(f.h)
	f.wires = lay(f)
	return f
}

func (f *idleFront) end() {
	f.close()
	f.server.Close()
	f.h.Close()
}

// connect asks for a tunnel and sends one byte through it, behind which it is
// silent.
func (f *idleFront) connect(t *testing.T) (c net.Conn, status int, head string) {
	t.Helper()
	c = f.client()
	if _, err := io.WriteString(c, "CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	head = readHead(t, c)
	if _, err := fmt.Sscanf(head, "HTTP/1.1 %d", &status); err != nil {
		t.Fatalf("%v: %q", err, head)
	}
	if status == http.StatusOK {
		if _, err := io.WriteString(c, "x"); err != nil {
			t.Fatal(err)
		}
	}
	return c, status, head
}

// perTunnel is how many goroutines a tunnel has: one for each direction, and one
// of goproxy's that waits for both.
const perTunnel = 3

// perTunnelBytes is how much memory a silent one may take.
const perTunnelBytes = 32 << 10

// descriptors is how many are open, 0 where the system does not tell.
func descriptors() int {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(open)
}

// used is the memory in use, with what is kept for goroutines.
func used() int64 {
	var m runtime.MemStats
	debug.FreeOSMemory()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

const tenThousand = 10_000

// Ten thousand tunnels are as many as forward.tunnels says: one more is refused
// in words, one that closes makes room for one, and when all have been silent
// for too long nothing of them is left. The clock is not the machine's.
func TestTenThousandTunnelsAreAsManyAsTheLimitSays(t *testing.T) {
	if testing.Short() {
		t.Skip("it opens ten thousand tunnels")
	}
	synctest.Test(t, func(t *testing.T) {
		const idle = 10 * time.Minute
		f := newIdleFront(t, tenThousand, idle, pipes)
		defer f.end()
		synctest.Wait()
		before, memory := runtime.NumGoroutine(), used()
		var open []net.Conn
		for range tenThousand {
			c, status, head := f.connect(t)
			if status != http.StatusOK {
				t.Fatalf("tunnel %d: %s", len(open)+1, head)
			}
			open = append(open, c)
		}
		synctest.Wait()
		goroutines, each := runtime.NumGoroutine()-before, (used()-memory)/tenThousand
		t.Logf("in memory a tunnel takes %d bytes and %.2f goroutines", each, float64(goroutines)/tenThousand)
		if each > perTunnelBytes {
			t.Errorf("a silent tunnel takes %d bytes", each)
		}
		if goroutines > perTunnel*tenThousand {
			t.Errorf("%d goroutines for %d tunnels", goroutines, tenThousand)
		}
		if n := f.h.Tunnels(); n != tenThousand {
			t.Errorf("%d tunnels are open", n)
		}
		refused := func() {
			t.Helper()
			c, status, head := f.connect(t)
			defer c.Close()
			for _, want := range []string{"10000 tunnels are open", "forward.tunnels", "Retry-After: "} {
				if status != http.StatusServiceUnavailable || !strings.Contains(head, want) {
					t.Fatalf("one too many: %s", head)
				}
			}
			resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader(head), c)), nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), "try again later") {
				t.Errorf("one too many: %s, %v", body, err)
			}
		}
		refused()
		for _, i := range []int{0, tenThousand / 2, tenThousand - 1} {
			open[i].Close()
			synctest.Wait()
			if n := f.h.Tunnels(); n != tenThousand-1 {
				t.Fatalf("one was closed, and %d are open", n)
			}
			var status int
			var head string
			if open[i], status, head = f.connect(t); status != http.StatusOK {
				t.Fatalf("one was closed, and the next is refused: %s", head)
			}
			refused()
		}
		time.Sleep(idle - time.Second)
		synctest.Wait()
		if n := f.h.Tunnels(); n != tenThousand {
			t.Errorf("before their time %d are left", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := f.h.Tunnels(); n != 0 {
			t.Errorf("after their time %d are left", n)
		}
		for i, c := range open {
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Fatalf("tunnel %d still reads", i)
			}
		}
		open = nil
		time.Sleep(time.Minute) // connections that were kept
		synctest.Wait()
		if n := runtime.NumGoroutine(); n > before {
			t.Errorf("%d goroutines of %d are left", n, before)
		}
	})
}

// What a silent tunnel costs, over loopback: with both of its peers in this
// process, less what as many connections cost without callgate in between.
func TestWhatASilentTunnelCosts(t *testing.T) {
	if testing.Short() {
		t.Skip("it opens thousands of tunnels")
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	const (
		socketsEach = 4  // of the client, of the other host, and two of callgate's
		slack       = 20 // descriptors that are nobody's here
	)
	n := int(min(tenThousand, (limit.Cur-min(limit.Cur, 400))/socketsEach))
	if n < 100 {
		t.Skipf("%d descriptors are too few", limit.Cur)
	}
	f := newIdleFront(t, n, time.Hour, func(f *idleFront) wires { return sockets(t, f) })
	defer f.end()

	l := socket(t)
	start := used()
	var bare []net.Conn
	for range 2 * min(n, 1000) { // a tunnel is two
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		other, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		bare = append(bare, c, other)
	}
	peers := (used() - start) / int64(min(n, 1000))
	for _, c := range bare {
		c.Close()
	}
	l.Close()
	bare = nil

	goroutines, memory, files := runtime.NumGoroutine(), used(), descriptors()
	for i := range n {
		if _, status, head := f.connect(t); status != http.StatusOK {
			t.Fatalf("tunnel %d: %s", i+1, head)
		}
	}
	if _, status, head := f.connect(t); status != http.StatusServiceUnavailable || !strings.Contains(head, fmt.Sprint(n, " tunnels are open")) {
		t.Errorf("one too many: %s", head)
	}
	eventually(t, "nothing but the tunnels runs", func() bool { return runtime.NumGoroutine() <= goroutines+perTunnel*n })
	each := (used()-memory)/int64(n) - peers
	t.Logf("%d tunnels: each takes %d bytes (its four sockets %d more) and %.2f goroutines", n, each, peers, float64(runtime.NumGoroutine()-goroutines)/float64(n))
	if each > perTunnelBytes {
		t.Errorf("a silent tunnel takes %d bytes", each)
	}
	if open := descriptors() - files; open > socketsEach*n+slack {
		t.Errorf("%d descriptors for %d tunnels", open, n)
	}
	f.close() // what the peers have
	eventually(t, "the tunnels end", func() bool { return f.h.Tunnels() == 0 })
	eventually(t, "nothing runs for them", func() bool { return runtime.NumGoroutine() <= goroutines })
	eventually(t, "their descriptors are closed", func() bool { return descriptors() <= files+slack })
	if left := used() - memory; left > int64(n)*each/10 && left > 4<<20 {
		t.Errorf("%d bytes of %d are left", left, int64(n)*each)
	}
}
