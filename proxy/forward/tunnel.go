package forward

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// writeTime is how long a write to either end may take.
	writeTime = time.Minute
	// lingerTime is how long a tunnel may be silent once one end has said all it
	// had to say.
	lingerTime = time.Minute
	// helloMax is the largest TLS hello that is read; those with keys that
	// withstand quantum computers have about 2 KiB.
	helloMax = 32 << 10
)

// tunnels are the connections to other hosts that are open.
type tunnels struct {
	max   int
	fault func(what string) // hears of a panic; may be nil

	mu     sync.Mutex // guards what is below
	all    map[*tunnel]struct{}
	closed bool
}

// open makes a tunnel, nil when there are too many.
func (ts *tunnels) open(idle time.Duration) *tunnel {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.closed || len(ts.all) >= ts.max {
		return nil
	}
	t := &tunnel{of: ts}
	t.pulse.start(idle)
	if ts.all == nil {
		ts.all = map[*tunnel]struct{}{}
	}
	ts.all[t] = struct{}{}
	return t
}

// count is how many are open.
func (ts *tunnels) count() int {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return len(ts.all)
}

func (ts *tunnels) closeAll() {
	ts.mu.Lock()
	ts.closed = true
	all := make([]*tunnel, 0, len(ts.all))
	for t := range ts.all {
		all = append(all, t)
	}
	ts.mu.Unlock()
	for _, t := range all {
		t.close()
	}
}

// tunnel is one connection to another host: two ends that end together.
type tunnel struct {
	of    *tunnels
	pulse pulse

	mu     sync.Mutex // guards what is below
	ends   []*end
	closed bool
}

var errClosed = errors.New("forward: the tunnel is closed")

func (t *tunnel) add(e *end) (net.Conn, error) {
	t.mu.Lock()
	closed := t.closed
	if !closed {
		t.ends = append(t.ends, e)
	}
	t.mu.Unlock()
	if closed {
		e.Conn.Close()
		return nil, errClosed
	}
	return e, nil
}

// client makes a connection the client's end. What it says in its TLS hello
// must be the host that it asked for.
func (t *tunnel) client(c net.Conn, to endpoint) (net.Conn, error) {
	return t.add(&end{Conn: c, t: t, to: &to})
}

// target makes a connection the other end.
func (t *tunnel) target(c net.Conn) (net.Conn, error) { return t.add(&end{Conn: c, t: t}) }

// close ends both ends. It may be called more than once, and on nil.
func (t *tunnel) close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	ends := t.ends
	t.closed, t.ends = true, nil
	t.mu.Unlock()
	for _, e := range ends {
		e.Conn.Close()
	}
	t.of.mu.Lock()
	delete(t.of.all, t)
	t.of.mu.Unlock()
}

// closeUnused closes a tunnel that nothing was ever added to.
func (t *tunnel) closeUnused() {
	if t == nil {
		return
	}
	t.mu.Lock()
	unused := len(t.ends) == 0
	t.mu.Unlock()
	if unused {
		t.close()
	}
}

// linger shortens the patience with a tunnel of which one end is done.
func (t *tunnel) linger() {
	t.pulse.shorten(lingerTime)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.ends {
		_ = e.Conn.SetReadDeadline(t.pulse.deadline()) // wakes who waits longer
	}
}

// pulse is when something last came through.
type pulse struct{ last, idle atomic.Int64 }

func (p *pulse) start(idle time.Duration) {
	p.idle.Store(int64(idle))
	p.beat()
}

func (p *pulse) beat() { p.last.Store(time.Now().UnixNano()) }

func (p *pulse) shorten(to time.Duration) {
	if p.idle.Load() > int64(to) {
		p.idle.Store(int64(to))
	}
	p.beat()
}

func (p *pulse) deadline() time.Time { return time.Unix(0, p.last.Load()+p.idle.Load()) }

// read reads with a deadline that moves with either direction's traffic.
func (p *pulse) read(c net.Conn, b []byte) (int, error) {
	for {
		till := p.deadline()
		if err := c.SetReadDeadline(till); err != nil {
			return 0, err
		}
		n, err := c.Read(b)
		if n > 0 {
			p.beat()
			return n, err
		}
		ne, ok := errors.AsType[net.Error](err)
		if !ok || !ne.Timeout() || !p.deadline().After(time.Now()) {
			return n, err
		}
	}
}

func (p *pulse) write(c net.Conn, b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return 0, err
	}
	n, err := c.Write(b)
	if n > 0 {
		p.beat()
	}
	return n, err
}

// end is one end of a tunnel. goproxy copies from the one to the other, half
// closes, and closes.
type end struct {
	net.Conn
	t  *tunnel
	to *endpoint // of the client's end
}

func (e *end) Read(b []byte) (int, error)  { return e.t.pulse.read(e.Conn, b) }
func (e *end) Write(b []byte) (int, error) { return e.t.pulse.write(e.Conn, b) }

// Close ends the whole tunnel.
func (e *end) Close() error {
	e.t.close()
	return nil
}

// CloseWrite tells the other side that nothing more comes.
func (e *end) CloseWrite() error {
	defer e.t.linger()
	if half, ok := e.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return e.Close()
}

// CloseRead is for what was read to its end: there is nothing to be done.
func (e *end) CloseRead() error { return nil }

// small and large are the buffers of a tunnel that is silent or busy. Most of
// the time most tunnels are silent.
const small, large = 2 << 10, 32 << 10

var largeBuffers = sync.Pool{New: func() any { return new([large]byte) }}

var errFault = errors.New("forward: a fault in a tunnel")

// WriteTo copies to its end. It runs in a goroutine of goproxy's, where a panic
// would end the process.
func (e *end) WriteTo(w io.Writer) (n int64, err error) {
	defer func() {
		if v := recover(); v != nil {
			if err = errFault; e.t.of.fault != nil {
				e.t.of.fault(fmt.Sprintf("%v\n%s", v, debug.Stack()))
			}
		}
	}()
	if e.to != nil {
		first, err := e.hello(*e.to)
		if err != nil {
			return 0, err
		}
		m, err := w.Write(first)
		if n += int64(m); err != nil {
			return n, err
		}
	}
	var little [small]byte
	for {
		m, err := e.pass(w, little[:])
		n += m
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if m == small {
			m, err := e.busy(w)
			n += m
			if err == io.EOF {
				return n, nil
			}
			if err != nil {
				return n, err
			}
		}
	}
}

// busy copies with a large buffer for as long as that is filled.
func (e *end) busy(w io.Writer) (n int64, err error) {
	b := largeBuffers.Get().(*[large]byte)
	defer largeBuffers.Put(b)
	for {
		m, err := e.pass(w, b[:])
		n += m
		if err != nil || m < large {
			return n, err
		}
	}
}

func (e *end) pass(w io.Writer, b []byte) (int64, error) {
	n, err := e.Read(b)
	if n > 0 {
		m, werr := w.Write(b[:n])
		if werr != nil {
			return int64(m), werr
		}
	}
	return int64(n), err
}

var errName = errors.New("forward: the TLS hello names another host than the tunnel")

// hello reads what a client says first and gives it back. If that is a TLS
// hello, it must name the host of the tunnel or none: a tunnel to one host with
// the name of another inside is a way around the gate.
func (e *end) hello(to endpoint) ([]byte, error) {
	first := make([]byte, 1)
	if _, err := io.ReadFull(e, first); err != nil {
		if err == io.EOF {
			return nil, nil // it had nothing to say
		}
		return nil, err
	}
	if first[0] != tlsRecord {
		return first, nil
	}
	r := &recorder{r: e}
	r.seen.Write(first)
	name, ok := serverName(&hearing{Reader: io.MultiReader(bytes.NewReader(first), r)})
	if ok && name == "" {
		return r.seen.Bytes(), nil
	}
	if got, bad := parseEndpoint(name+":443", ""); ok && bad == "" && got.host == to.host && !to.addr().IsValid() {
		return r.seen.Bytes(), nil
	}
	_, _ = e.Write([]byte{0x15, 3, 1, 0, 2, 2, 112}) // a fatal alert: unrecognized_name
	return nil, errName
}

// recorder keeps what is read through it.
type recorder struct {
	r    io.Reader
	seen bytes.Buffer
}

func (r *recorder) Read(p []byte) (int, error) {
	if r.seen.Len() > helloMax {
		return 0, errors.New("forward: a TLS hello without an end")
	}
	n, err := r.r.Read(p)
	r.seen.Write(p[:n])
	return n, err
}

var errHeard = errors.New("forward: the hello was heard")

// serverName reads a TLS hello and gives the name in it.
func serverName(c net.Conn) (name string, ok bool) {
	_ = tls.Server(c, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		name, ok = hello.ServerName, true
		return nil, errHeard
	}}).Handshake()
	return name, ok
}

// hearing is a connection that is only listened to.
type hearing struct {
	net.Conn // nil: nothing else is called
	io.Reader
}

func (h *hearing) Read(p []byte) (int, error)       { return h.Reader.Read(p) }
func (h *hearing) Write(p []byte) (int, error)      { return len(p), nil }
func (h *hearing) Close() error                     { return nil }
func (h *hearing) SetDeadline(time.Time) error      { return nil }
func (h *hearing) SetReadDeadline(time.Time) error  { return nil }
func (h *hearing) SetWriteDeadline(time.Time) error { return nil }

// idleConn is a connection of the transport to another host, which may not be
// silent for ever.
type idleConn struct {
	net.Conn
	pulse pulse
}

func newIdleConn(c net.Conn, idle time.Duration) *idleConn {
	i := &idleConn{Conn: c}
	i.pulse.start(idle)
	return i
}

func (c *idleConn) Read(b []byte) (int, error)  { return c.pulse.read(c.Conn, b) }
func (c *idleConn) Write(b []byte) (int, error) { return c.pulse.write(c.Conn, b) }
