package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	chunkSize = 32 << 10 // what is read of an answer at once
	firstSize = 16 << 10 // the first size of a request's buffer
	stepSize  = 1 << 20  // how far a declared length is believed
	keepSize  = 4 << 20  // larger buffers are left to the collector
)

// codingError reports a content coding that is not read.
type codingError struct{ coding string }

func (e *codingError) Error() string {
	return "content coding " + printable(e.coding) + " is not read; gzip, br, zstd and identity are, one at a time"
}

// tooLargeError reports a body past its limit.
type tooLargeError struct {
	what  string
	limit int64
}

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("%s is larger than the limit of %d bytes", e.what, e.limit)
}

// coding gives the one content coding of a message, "" for none.
func coding(h http.Header) (string, error) {
	values := h["Content-Encoding"]
	if len(values) == 0 {
		return "", nil
	}
	found := ""
	for _, v := range values {
		for c := range strings.SplitSeq(v, ",") {
			c = strings.ToLower(strings.TrimSpace(c))
			if c == "" || c == "identity" {
				continue
			}
			if found != "" {
				return "", &codingError{strings.Join(values, ", ")}
			}
			found = c
		}
	}
	switch found {
	case "", "gzip", "br", "zstd":
		return found, nil
	case "x-gzip": // RFC 9110, section 8.4.1.3
		return "gzip", nil
	}
	return "", &codingError{found}
}

// decode gives a reader of the plain bytes and what frees its memory.
func decode(coding string, r io.Reader, window int64) (io.Reader, func(), error) {
	switch coding {
	case "":
		return r, func() {}, nil
	case "gzip":
		return &lazyGzip{src: r}, func() {}, nil
	case "br":
		return brotli.NewReader(r), func() {}, nil
	case "zstd":
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(8<<20), zstd.WithDecoderMaxMemory(uint64(max(window, 8<<20))))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return nil, nil, &codingError{coding}
}

// lazyGzip reads the gzip header at the first Read, so that opening an answer
// does not wait for its first byte.
type lazyGzip struct {
	src io.Reader
	z   *gzip.Reader
}

func (l *lazyGzip) Read(p []byte) (int, error) {
	if l.z == nil {
		z, err := gzip.NewReader(l.src)
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
		l.z = z
	}
	return l.z.Read(p)
}

// plain gives the bytes of a request body as they are to be read. What it
// unpacks is charged to the lease.
func plain(h http.Header, raw []byte, limit int64, l *lease) ([]byte, error) {
	c, err := coding(h)
	if err != nil || c == "" {
		return raw, err
	}
	r, free, err := decode(c, bytes.NewReader(raw), limit)
	if err != nil {
		return nil, err
	}
	defer free()
	b, err := readAll(r, "the decoded request body", limit, l)
	if err != nil {
		return nil, fmt.Errorf("the body is not %s: %w", c, err)
	}
	return b, nil
}

// readBody reads the request's body whole into dst.
func (x *exchange) readBody(dst []byte) ([]byte, error) {
	limit, declared := x.p.limits.RequestBody, x.r.ContentLength
	if declared > limit {
		return dst, &tooLargeError{"the request body", limit}
	}
	if declared > int64(cap(dst)) {
		dst = make([]byte, 0, min(declared+1, stepSize))
	}
	most := limit + 1
	if declared >= 0 {
		most = declared + 1
	}
	var until time.Time
	idle := x.p.limits.BodyTimeout
	for {
		var full error
		if dst, full = room(dst, most, &x.raw); full != nil {
			return dst, full
		}
		if now := time.Now(); until.Sub(now) < idle/2 {
			until = now.Add(idle)
			x.rc.SetReadDeadline(until) // not every writer can; the server's own limits hold then
		}
		n, err := x.r.Body.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		full = x.raw.cover(dst)
		switch {
		case int64(len(dst)) > limit:
			return dst, &tooLargeError{"the request body", limit}
		case full != nil:
			return dst, full
		case err == io.EOF:
			x.rc.SetReadDeadline(time.Time{})
			return dst, nil
		case err != nil:
			return dst, fmt.Errorf("the request body broke off: %w", err)
		}
	}
}

// sent follows a pooled body on its way to the provider: the buffer may be
// used again only when no goroutine of the transport can still read it.
type sent struct {
	body    []byte
	reader  bytes.Reader // that the transport reads the body from
	written atomic.Bool
	again   atomic.Bool // the transport asked for the body a second time
}

// trace gives the context of the request that sends the body: the transport
// says by it when the body was written.
func (s *sent) trace(ctx context.Context) context.Context {
	if len(s.body) == 0 {
		return ctx
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(i httptrace.WroteRequestInfo) {
			if i.Err == nil {
				s.written.Store(true)
			}
		},
	})
}

// attach makes the bytes the body of a request. The transport knows the type
// and sends head and body in as few writes as it can.
func (s *sent) attach(req *http.Request) *http.Request {
	if len(s.body) == 0 {
		req.Body, req.ContentLength = http.NoBody, 0
		s.written.Store(true)
		return req
	}
	req.ContentLength = int64(len(s.body))
	s.reader.Reset(s.body)
	req.Body = io.NopCloser(&s.reader)
	req.GetBody = func() (io.ReadCloser, error) {
		s.again.Store(true)
		return io.NopCloser(bytes.NewReader(s.body)), nil
	}
	return req
}

// done reports whether no goroutine of the transport reads the body any more.
func (s *sent) done() bool { return s.written.Load() && !s.again.Load() }

// free reports whether the buffer may be used again.
func (s *sent) free() bool { return s.done() && cap(s.body) > 0 && cap(s.body) <= keepSize }

// drop lets go of a body that was sent and is too large to be kept as long as
// the answer lasts. It reports whether it did.
func (s *sent) drop() bool {
	if !s.done() || cap(s.body) <= keepSize {
		return false
	}
	s.reader.Reset(nil)
	s.body = nil
	return true
}

// watch ends a request to a provider that stands still. It needs no goroutine,
// and a Read costs it neither a timer nor a look at the clock: its timer fires
// some times within the limit, and when it found the same wait for as many looks
// in a row as fill the limit, the limit has passed.
type watch struct {
	cancel context.CancelFunc
	timer  *time.Timer
	turns  atomic.Int64 // of waiting and not waiting: odd while the provider is waited for
	limit  atomic.Int64 // nanoseconds that may be waited
	ended  atomic.Bool  // the request is over
	fired  atomic.Bool  // the watch ended it

	// Of look alone, which only the timer calls, and of newWatch: a timer may
	// fire before it is known here, and once more when it is set meanwhile.
	mu    sync.Mutex
	found int64 // turns at the look before
	since int   // looks that found the same wait
}

// looks is how often a watch looks within its limit. A wait that begins between
// two looks is ended by up to a looks-th of the limit later.
const looks = 10

// newWatch starts a watch that waits already.
func newWatch(limit time.Duration, cancel context.CancelFunc) *watch {
	w := &watch{cancel: cancel, found: 1}
	w.turns.Store(1)
	w.limit.Store(int64(limit))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(limit/looks, w.look)
	return w
}

func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended.Load() {
		return
	}
	turns := w.turns.Load()
	if turns&1 == 1 && turns == w.found {
		w.since++
	} else {
		w.found, w.since = turns, 0
	}
	if w.since >= looks {
		w.fired.Store(true)
		w.cancel()
		return
	}
	w.timer.Reset(time.Duration(w.limit.Load()) / looks)
}

// pause says that nothing is waited for.
func (w *watch) pause() { w.turns.Add(1) }

// wait says that the provider is waited for from now on.
func (w *watch) wait() { w.turns.Add(1) }

// headed says that the headers are there: from now on each Read may take idle.
func (w *watch) headed(idle time.Duration) {
	w.pause()
	if w.limit.Swap(int64(idle)) > int64(idle) {
		w.timer.Reset(idle / looks)
	}
}

// end stops the watch for good.
func (w *watch) end() {
	w.ended.Store(true)
	w.timer.Stop()
}

// watched reads with the watch running, and says so when the watch ended it.
type watched struct {
	r io.Reader
	w *watch
}

var errIdle = errors.New("nothing came from the provider within the idle timeout")

func (r *watched) Read(p []byte) (int, error) {
	r.w.wait()
	n, err := r.r.Read(p)
	r.w.pause()
	if err != nil && err != io.EOF && r.w.fired.Load() {
		err = errIdle
	}
	return n, err
}
