package egress

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// dialTLS gives the function by which a transport opens connections that speak
// TLS. It sets them up as the transport does by itself, from the same fields,
// and reads them in larger pieces: a provider sends each event in a record of
// its own, and crypto/tls asks the kernel for little more than one and gives no
// more than one.
func dialTLS(t *http.Transport) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		plain, err := t.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		under := &ahead{Conn: plain}
		config := t.TLSClientConfig.Clone()
		config.ServerName = host
		secure := tls.Client(under, config)
		shaking, cancel := context.WithTimeout(ctx, t.TLSHandshakeTimeout)
		defer cancel()
		if err := secure.HandshakeContext(shaking); err != nil {
			plain.Close()
			if ctx.Err() == nil && shaking.Err() != nil {
				err = fmt.Errorf("the TLS handshake with %s takes longer than %s: %w", host, t.TLSHandshakeTimeout, err)
			}
			return nil, err
		}
		if secure.ConnectionState().NegotiatedProtocol == "h2" {
			return secure, nil // its frames are gathered behind it
		}
		return &records{Conn: secure, under: under}, nil
	}
}

// records is a TLS connection whose Read gives all records that were read from
// the network, and not the first alone.
type records struct {
	*tls.Conn
	mu    sync.Mutex // guards what Read does with under
	under *ahead
}

// Read waits for the first record and for no other.
func (r *records) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, err := r.Conn.Read(p)
	if n == 0 || err != nil {
		return n, err
	}
	r.under.still = true
	for n < len(p) && err == nil {
		var more int
		more, err = r.Conn.Read(p[n:])
		n += more
	}
	r.under.still = false
	if err == errStill {
		err = nil
	}
	return n, err
}

// errStill says that a read would have to wait. crypto/tls goes on after an
// error that is temporary, in the midst of a record too, as it does after a
// deadline has passed.
var errStill error = stillError{}

type stillError struct{}

func (stillError) Error() string   { return "egress: nothing more has come" }
func (stillError) Timeout() bool   { return true }
func (stillError) Temporary() bool { return true }

// aheadSize is how much is read ahead of TLS.
const aheadSize = 32 << 10

var aheadBuffers = sync.Pool{New: func() any { return new([aheadSize]byte) }}

// ahead is the connection below TLS. While much comes it takes all there is at
// once; while little comes it has no buffer.
type ahead struct {
	net.Conn
	still bool // Read gives what was read ahead and does not wait
	full  bool // the last read took all it had room for, so that there may be more
	buf   *[aheadSize]byte
	have  []byte // of buf, not given yet
}

func (a *ahead) Read(p []byte) (int, error) {
	if len(a.have) > 0 {
		return a.give(p), nil
	}
	if a.still {
		return 0, errStill
	}
	if !a.full || len(p) >= aheadSize {
		n, err := a.Conn.Read(p)
		a.full = n > 0 && n == len(p)
		return n, err
	}
	a.buf = aheadBuffers.Get().(*[aheadSize]byte)
	n, err := a.Conn.Read(a.buf[:])
	a.full = n == aheadSize
	a.have = a.buf[:n]
	if n == 0 {
		a.free()
		return 0, err
	}
	return a.give(p), nil // the next read meets an error again
}

func (a *ahead) give(p []byte) int {
	n := copy(p, a.have)
	if a.have = a.have[n:]; len(a.have) == 0 {
		a.free()
	}
	return n
}

func (a *ahead) free() {
	aheadBuffers.Put(a.buf)
	a.buf, a.have = nil, nil
}
