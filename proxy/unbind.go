package proxy

import (
	"bytes"
	"io"
	"maps"
	"net/http"

	"callgate/inspect"
)

// unbind makes a request anew whose thinking the provider does not take, once:
// without it. Thinking is bound to what stood before it. Where that was put
// back by callgate and is known no more, not even that there was something, the
// provider's error is the first that is heard of it; the agent, which changed
// nothing, could only begin anew. It reports whether the request is to be sent
// again. Otherwise the answer can be read as if nobody had.
func (x *exchange) unbind(q *prompt, a *reply) bool {
	if a.resp.StatusCode != http.StatusBadRequest || x.p.Repairs == nil || signed(x.r.Header) || q.mends[0].Unbind {
		return false
	}
	mem := lease{from: &x.p.memory}
	defer mem.end()
	body := a.resp.Body
	raw, err := readAll(&watched{body, a.watch}, "it", maxError, &mem)
	rest := io.Reader(body)
	if err != nil {
		rest = failing{err}
	}
	a.resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(raw), rest), body}
	if err != nil {
		return false
	}
	own := lease{from: &x.p.memory}
	defer own.end()
	text, reason := errorText(a.resp.Header, raw, &own)
	if reason != "" || !inspect.RefusesThinking(text) {
		return false
	}
	changed, err := q.unthink()
	if err != nil || !changed {
		return false
	}
	x.p.log.Warn("the provider does not take the thinking in a history: it is asked again without", "upstream", x.rt.up.Name, "dialect", q.d.Name(), "answer", visible(raw[:min(len(raw), 300)]))
	x.span.UpstreamEnd(nil)
	return true
}

// failing is the rest of a body that could not be read to its end.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// unthink takes all thinking out of what is sent, beside what was put back into
// it. It reports whether there was any.
func (q *prompt) unthink() (changed bool, err error) {
	req, err := q.original()
	if err != nil {
		return false, err
	}
	h, err := req.History()
	if err != nil || len(h.Units()) == 0 {
		return false, err
	}
	mends := map[int]inspect.Mend{}
	maps.Copy(mends, q.mends)
	first := mends[0]
	first.Unbind = true
	mends[0] = first
	size := q.size + growth(mends)
	if limit := q.x.p.limits.RequestBody; size > limit {
		return false, &tooLargeError{"the request body, with the refused calls put back,", limit}
	}
	if err := q.x.spare.set(size); err != nil {
		return false, err
	}
	// The buffer of what was sent may still be read.
	body, err := h.Edit(nil, mends)
	if err != nil {
		return false, err
	}
	before, err := h.Edit(nil, q.mends)
	if err != nil || bytes.Equal(before, body) {
		return false, err
	}
	q.mends, q.mended, q.room = mends, &sent{body: body}, nil
	return true, nil
}
