package proxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"callgate/inspect"
	"callgate/proxy/repair"
	"callgate/proxy/telemetry"
)

// prompt is the body of a gated request: as it came, as it is read, and as it
// is sent on. For as long as the turn may have to ask the provider again, all
// of it can be made anew from what came.
type prompt struct {
	x *exchange
	d inspect.Dialect

	came   *sent   // as it came; nil once it was packed
	pooled *[]byte // the pool's, for came
	packed []byte  // as it came, with the coding that packing gave it
	coding string  // of packed
	// req is of the text as the agent sent it, nil when that was let go.
	req  inspect.Request
	info inspect.Info
	size int64 // of that text

	mends  map[int]inspect.Mend // what was put back into its history
	mended *sent                // the text with it, nil when nothing was
	room   *[]byte              // the pool's, for mended
}

// prompt reads the body of the request. What goes wrong is answered here.
func (x *exchange) prompt(d inspect.Dialect) (*prompt, error) {
	p := x.p
	q := &prompt{x: x, d: d, pooled: p.body()}
	body, err := x.readBody((*q.pooled)[:0])
	q.came = &sent{body: body}
	var large *tooLargeError
	switch {
	case errors.As(err, &large):
		x.refuse(d, http.StatusRequestEntityTooLarge, err.Error()+"; limits.request_body raises it")
		return q, err
	case errors.Is(err, errFull):
		return q, x.full(d)
	case err != nil:
		return q, fmt.Errorf("%w: %w", err, errAbort)
	}
	text, err := plain(x.r.Header, body, p.limits.RequestBody, &x.text)
	var code *codingError
	switch {
	case errors.Is(err, errFull):
		return q, x.full(d)
	case errors.As(err, &code):
		x.refuse(d, http.StatusUnsupportedMediaType, "the request cannot be read: "+err.Error())
		return q, err
	case errors.As(err, &large):
		x.refuse(d, http.StatusRequestEntityTooLarge, err.Error()+"; limits.request_body raises it")
		return q, err
	case err != nil:
		x.refuse(d, http.StatusBadRequest, "the request cannot be read: "+err.Error())
		return q, err
	}
	if q.req, err = d.Request(x.rt.head(x.r), text); err != nil {
		x.refuse(d, http.StatusBadRequest, "the request cannot be read: "+err.Error())
		return q, fmt.Errorf("reading the request: %w", err)
	}
	q.info, q.size = q.req.Info(), int64(len(text))
	q.info.Session, q.info.User = claimed(q.info.Session), claimed(q.info.User)
	return q, nil
}

// body takes a buffer for a request's body from the pool.
func (p *Proxy) body() *[]byte {
	if b, ok := p.bodies.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

// mend puts back into the history what the agent does not know and therefore
// did not send: calls that were withheld from it and their refusals. What makes
// the request one that cannot be sent is answered here.
func (q *prompt) mend(ctx context.Context, t Tenant) (found repair.Found, err error) {
	x := q.x
	book := x.p.Repairs
	if book == nil || !book.Live(t.Repairs) {
		return found, nil
	}
	start := time.Now()
	defer func() {
		x.span.Repaired(telemetry.Repaired{Mended: found.Mended, Edited: found.Edited, Unbound: found.Unbound, Ambiguous: found.Ambiguous}, start, err)
	}()
	as := func(reason string) { // the provider may take it as it is, and the agent's words are in it
		x.p.log.Warn("the history of a request is not repaired", "upstream", x.rt.up.Name, "dialect", q.d.Name(), "reason", reason)
	}
	h, err := q.req.History()
	if err != nil {
		as(err.Error())
		found.Refused = untold
		return found, nil
	}
	found, err = book.Find(ctx, q.tenant(t), h)
	switch {
	case errors.Is(err, repair.ErrLost):
		x.refuse(q.d, http.StatusBadRequest, "the request goes on with an answer of the provider's, and "+err.Error())
		return found, err
	case err != nil:
		x.refuse(q.d, http.StatusServiceUnavailable, "what was withheld in this conversation cannot be read; see callgate's log")
		return found, err
	case found.Ambiguous > 0:
		x.p.log.Warn("an answer in a history fits several records and is not repaired", "upstream", x.rt.up.Name, "answers", found.Ambiguous)
	}
	if len(found.Mends) == 0 {
		return found, nil
	}
	if signed(x.r.Header) {
		as("the request is signed, and a changed one would be refused")
		return found, nil
	}
	// What it will take is known before it is made.
	size := q.size + growth(found.Mends)
	if limit := x.p.limits.RequestBody; size > limit {
		err := &tooLargeError{"the request body, with the refused calls put back,", limit}
		x.refuse(q.d, http.StatusRequestEntityTooLarge, err.Error()+"; limits.request_body raises it, or begin a new conversation")
		return found, err
	}
	if err := x.spare.set(size); err != nil {
		return found, x.full(q.d)
	}
	q.room = x.p.body()
	body, err := h.Edit((*q.room)[:0], found.Mends)
	if err != nil {
		as(err.Error())
		return found, nil
	}
	q.mends, q.mended = found.Mends, &sent{body: body}
	q.came.written.Store(true) // it is not sent, so nobody reads it
	return found, nil
}

// untold stands for the number of denials in a history that cannot be read: as
// many as any breaker counts to.
const untold = 1 << 30

// growth is how much longer mends make a body at most.
func growth(mends map[int]inspect.Mend) (n int64) {
	const each = 256 // what stands around a refusal in any dialect
	for _, m := range mends {
		for _, r := range m.Rounds {
			n += int64(len(r.Message)) + each
			for _, f := range r.Refusals {
				n += 2*int64(len(f.Text)) + each // escapes make it longer
			}
			for _, id := range r.Calls {
				n += int64(len(id))
			}
		}
	}
	return n
}

// tenant says whose records may be used.
func (q *prompt) tenant(t Tenant) repair.Tenant {
	return repair.Tenant{Key: t.Repairs, Exact: t.Principal, Stable: t.Stable, Family: q.d.Name(), Session: q.info.Session}
}

// maxClaim is how many bytes of what a client calls its conversation or its
// user are kept: they stand in records, approvals and the audit log.
const maxClaim = 128

// claimed bounds what a client claims. A longer name stands for itself by its
// digest.
func claimed(name string) string {
	if len(name) <= maxClaim {
		return strings.Clone(name)
	}
	sum := sha256.Sum256([]byte(name))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// signed reports whether the request's signature covers its body (AWS
// Signature Version 4), so that no other body can be sent with it.
func signed(h http.Header) bool { return strings.HasPrefix(h.Get("Authorization"), "AWS4-") }

// outgoing gives the request for the provider with the body that is sent.
func (q *prompt) outgoing(ctx context.Context) *http.Request {
	s := q.came
	if q.mended != nil {
		s = q.mended
	}
	req := q.x.request(s.trace(ctx), true)
	if q.mended != nil {
		delete(req.Header, "Content-Encoding")
	}
	return s.attach(req)
}

// unload lets go of what of the body is large and has served its turn. With
// again it is kept, packed, so that the provider can be asked again.
func (q *prompt) unload(again bool) {
	x := q.x
	if q.mended != nil && q.mended.done() && cap(q.mended.body) > keepSize {
		q.mended, q.room = &sent{}, nil
		x.spare.end()
	}
	if x.text.size == 0 && (q.came == nil || cap(q.came.body) <= keepSize) {
		return
	}
	q.detach()
	x.text.end()
	switch {
	case q.came == nil:
	case again:
		q.pack()
	case q.came.drop():
		x.raw.end()
	}
}

// detach copies what is still read of the request out of its body and lets go
// of the rest.
func (q *prompt) detach() {
	if q.req == nil {
		return
	}
	q.req = nil
	tools := slices.Clone(q.info.Tools)
	for i := range tools {
		t := &tools[i]
		t.Name, t.Type, t.Schema = strings.Clone(t.Name), strings.Clone(t.Type), bytes.Clone(t.Schema)
	}
	q.info.Tools = tools
	q.info.Model = strings.Clone(q.info.Model)
}

// packSize is from how many bytes on a body is packed for a long wait.
const packSize = 16 << 10

// pack keeps a body that was sent in as little memory as it takes, for an
// answer that takes long.
func (q *prompt) pack() {
	s := q.came
	if s == nil || !s.done() || len(s.body) < packSize {
		return
	}
	q.detach()
	c, err := coding(q.x.r.Header)
	if q.packed, q.coding = s.body, c; err == nil && c == "" {
		q.packed, q.coding = q.x.p.packer().EncodeAll(s.body, nil), "zstd"
	}
	q.packed = bytes.Clone(q.packed)
	q.release()
	q.x.text.end()
	if q.x.raw.cover(q.packed) != nil { // it is less than what was charged, or has no room at all
		q.packed = nil
		q.x.raw.end()
	}
}

// release gives the buffer of what came back to the pool.
func (q *prompt) release() {
	if q.came == nil {
		return
	}
	if q.came.free() {
		*q.pooled = q.came.body
		q.x.p.bodies.Put(q.pooled)
	}
	q.came = nil
}

// packer packs bodies; one for all, it packs several at once.
func (p *Proxy) packer() *zstd.Encoder {
	p.packing.Do(func() {
		// Its options are right: it cannot fail.
		p.zstd, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(1<<20))
	})
	return p.zstd
}

var errDropped = errors.New("the request is no longer there")

// original gives the request as the agent sent it.
func (q *prompt) original() (inspect.Request, error) {
	if q.req != nil {
		return q.req, nil
	}
	x := q.x
	body, header := q.packed, http.Header{"Content-Encoding": {q.coding}}
	if body == nil && q.came != nil {
		body, header = q.came.body, x.r.Header
	}
	if len(body) == 0 {
		return nil, errDropped
	}
	text, err := plain(header, body, x.p.limits.RequestBody, &x.text)
	if err != nil {
		return nil, err
	}
	q.req, err = q.d.Request(x.rt.head(x.r), text)
	return q.req, err
}

// resume gives the body that asks the provider again.
func (q *prompt) resume(rounds []inspect.Round) ([]byte, error) {
	req, err := q.original()
	if err != nil {
		return nil, err
	}
	if len(q.mends) > 0 {
		h, err := req.History()
		if err != nil {
			return nil, err
		}
		body, err := h.Edit(nil, q.mends)
		if err != nil {
			return nil, err
		}
		if req, err = q.d.Request(q.x.rt.head(q.x.r), body); err != nil {
			return nil, err
		}
	}
	return req.Resume(rounds)
}

// entry gives what a record holds of the history that the agent sent.
func (q *prompt) entry(t Tenant) (e repair.Entry, err error) {
	req, err := q.original()
	if err != nil {
		return e, err
	}
	h, err := req.History()
	if err != nil {
		return e, err
	}
	units := h.Units()
	n := len(units)
	e = repair.Entry{Tenant: q.tenant(t), Last: h.Last(n), All: h.All(n), Exchange: repair.Exchange(h, n)}
	if n > 0 {
		e.Before = units[n-1].Calls
	}
	return e, nil
}

// close gives all memory back.
func (q *prompt) close() {
	q.release()
	if q.mended != nil && q.room != nil && q.mended.free() {
		*q.room = q.mended.body
		q.x.p.bodies.Put(q.room)
	}
	q.x.raw.end()
	q.x.text.end()
	q.x.spare.end()
}
