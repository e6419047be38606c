package proxy

import (
	"bytes"
	"io"
	"maps"
	"net/http"

	"callgate/inspect"
)

// maxAmends is how often a request is made anew by what its provider says of it.
// OpenAI names one call without a result at a time.
const maxAmends = 8

// amend makes a request anew that the provider does not take because something
// is missing of which callgate knows no more, not even that there was something:
// the agent, which changed nothing, could only begin anew. Thinking that was
// bound to what callgate had put back is taken out; calls of an answer that the
// provider holds, and whose results it misses, are refused; names of items that
// are callgate's own go. It reports whether
// the request is to be sent again. Otherwise the answer can be read as if nobody
// had.
func (x *exchange) amend(q *prompt, a *reply) bool {
	if status := a.resp.StatusCode; status != http.StatusBadRequest && status != http.StatusNotFound || signed(x.r.Header) {
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
	if reason != "" || x.rt.up.echoes(text) { // which nobody may read, in a log neither
		return false
	}
	var change func([]inspect.Unit, map[int]inspect.Mend) bool
	switch missing := inspect.MissesResults(text); {
	case inspect.MissesOwnItem(text):
		change = forget
	case x.p.Repairs == nil:
		return false
	case len(missing) > 0:
		change = func(units []inspect.Unit, mends map[int]inspect.Mend) bool { return refuse(missing, units, mends) }
	case inspect.RefusesThinking(text):
		change = unthink
	default:
		return false
	}
	changed, err := q.change(change)
	if err != nil || !changed {
		return false
	}
	x.p.log.Warn("a history lacks what callgate no longer knows of: the request is made anew and sent once more",
		"upstream", x.rt.up.Name, "dialect", q.d.Name(), "answer", visible(raw[:min(len(raw), 300)]))
	x.span.UpstreamEnd(nil)
	return true
}

// failing is the rest of a body that could not be read to its end.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// unthink takes all thinking out.
func unthink(_ []inspect.Unit, mends map[int]inspect.Mend) bool {
	m := mends[0]
	if m.Unbind {
		return false
	}
	m.Unbind = true
	mends[0] = m
	return true
}

// forget takes out what names items of callgate's own, of which the provider knows
// nothing. Dialects do that in every unit that is changed.
func forget(units []inspect.Unit, mends map[int]inspect.Mend) bool {
	for i := range units {
		m := mends[i]
		mends[i] = m // each is changed, if only in this
	}
	return true
}

// unknownFate is the result of a call of which nothing is known any more.
const unknownFate = "[callgate] There is no result of this call: it was withheld, or its result was lost. Do not take it for done."

// refuse answers calls in place of those who know no more what became of them.
// They are calls of an answer that the provider holds: in a history that the
// client sends, the client can see itself what is missing.
func refuse(missing []string, units []inspect.Unit, mends map[int]inspect.Mend) bool {
	held := -1
	for i, u := range units {
		if u.Answer == "" && !u.Held {
			continue
		}
		if held >= 0 {
			return false
		}
		held = i
	}
	if held < 0 {
		return false
	}
	r := inspect.Round{ID: units[held].Answer}
	m := mends[held]
	if n := len(m.Rounds); n > 0 {
		r = m.Rounds[n-1] // shared with others: what is added is added to copies
	}
	known := map[string]bool{}
	for _, id := range units[held].Calls {
		known[id] = true
	}
	for _, f := range r.Refusals {
		known[r.Calls[f.Call]] = true
	}
	r.Calls = append([]string(nil), r.Calls...)
	if len(r.Calls) == 0 {
		r.Calls = append(r.Calls, units[held].Calls...)
	}
	r.Refusals = append([]inspect.Refusal(nil), r.Refusals...)
	added := false
	for _, id := range missing {
		if known[id] {
			continue // there is a result, and the provider does not take it
		}
		known[id], added = true, true
		r.Calls = append(r.Calls, id)
		r.Refusals = append(r.Refusals, inspect.Refusal{Call: len(r.Calls) - 1, Text: unknownFate})
	}
	m.Rounds = append(append([]inspect.Round(nil), m.Rounds[:max(0, len(m.Rounds)-1)]...), r)
	mends[held] = m
	return added
}

// change makes anew what is sent, with other mends. It reports whether it became
// another request.
func (q *prompt) change(change func([]inspect.Unit, map[int]inspect.Mend) bool) (changed bool, err error) {
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
	if !change(h.Units(), mends) {
		return false, nil
	}
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
