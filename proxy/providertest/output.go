package providertest

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// output writes an answer in the pieces, the coding and up to the place that
// its turn asks for.
type output struct {
	w    http.ResponseWriter
	t    Turn
	note func([]byte) // told what was written, before coding

	enc  flusher // nil without a coding
	sent int     // bytes, before coding
}

// flusher is what the three encoders have in common.
type flusher interface {
	io.WriteCloser
	Flush() error
}

// send writes the events. A cut that is not clean breaks the connection.
func (o *output) send(ctx context.Context, status int, events [][]byte) {
	if o.t.Coding == "" && len(events) == 1 && o.t.Cut == nil && o.t.Chunk <= 0 {
		o.w.Header().Set("Content-Length", strconv.Itoa(len(events[0])))
	}
	o.encode()
	if o.t.Before != nil {
		o.t.Before(ctx, 0)
	}
	o.w.WriteHeader(status)
	if o.t.Chunk == Whole {
		events = o.join(events)
	}
	whole := true
	for i, ev := range events {
		if i > 0 && o.t.Before != nil {
			o.flush()
			o.t.Before(ctx, i)
		}
		if ctx.Err() != nil {
			panic(http.ErrAbortHandler)
		}
		if whole = o.event(i, ev); !whole {
			break
		}
	}
	if !whole && !o.t.Cut.Clean {
		o.flush()
		panic(http.ErrAbortHandler)
	}
	if o.enc != nil {
		_ = o.enc.Close()
	}
}

// join makes one write of all events that a cut leaves.
func (o *output) join(events [][]byte) [][]byte {
	if c := o.t.Cut; c != nil && c.Events >= 0 && c.Events < len(events) {
		all := bytes.Join(events[:c.Events], nil)
		cut := *c
		cut.Events = -1
		if cut.Bytes < 0 || cut.Bytes > len(all) {
			cut.Bytes = len(all)
		}
		o.t.Cut = &cut
		// One byte more than the cut leaves, so that the cut is met.
		return [][]byte{append(all, '\n')}
	}
	return [][]byte{bytes.Join(events, nil)}
}

// event writes one event and reports false when the cut was reached.
func (o *output) event(i int, ev []byte) bool {
	whole := true
	if c := o.t.Cut; c != nil {
		if c.Events >= 0 && i >= c.Events {
			return false
		}
		if c.Bytes >= 0 && o.sent+len(ev) > c.Bytes {
			ev, whole = ev[:c.Bytes-o.sent], false
		}
	}
	for len(ev) > 0 {
		n := len(ev)
		if o.t.Chunk > 0 {
			n = min(n, o.t.Chunk)
		}
		o.write(ev[:n])
		ev = ev[n:]
	}
	return whole
}

func (o *output) write(b []byte) {
	o.note(b)
	o.sent += len(b)
	var err error
	if o.enc != nil {
		_, err = o.enc.Write(b)
	} else {
		_, err = o.w.Write(b)
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if o.w.Header().Get("Content-Length") == "" {
		o.flush()
	}
}

func (o *output) flush() {
	if o.enc != nil {
		_ = o.enc.Flush()
	}
	_ = http.NewResponseController(o.w).Flush()
}

func (o *output) encode() {
	switch o.t.Coding {
	case "gzip":
		o.enc = gzip.NewWriter(o.w)
	case "br":
		o.enc = brotli.NewWriter(o.w)
	case "zstd":
		enc, err := zstd.NewWriter(o.w, zstd.WithEncoderConcurrency(1))
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		o.enc = enc
	case "":
		return
	default:
		panic("providertest: turn with unknown coding " + strconv.Quote(o.t.Coding))
	}
	o.w.Header().Set("Content-Encoding", o.t.Coding)
}
