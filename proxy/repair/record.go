package repair

import (
	"bytes"
	"container/list"
	"crypto/sha256"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"

	"callgate/inspect"
	"callgate/inspect/digest"
)

// record is what the book knows of an entry: all but its body. Only the last
// block changes once it is in the book.
type record struct {
	tenant, family, session string
	answer                  string
	calls                   []string
	shown, last, all        digest.Digest
	behind                  digest.Digest // the answer before, by its calls; zero for none
	put                     digest.Digest // of the body: what is put back
	does                    digest.Digest // of the same, but for the ids in it
	bound                   bool

	id    ID
	row   int64         // in the store, 0 when it was never there; under Book.mu
	used  int64         // nanoseconds since 1970; under Book.mu
	place *list.Element // in Book.order; under Book.mu
	gone  atomic.Bool   // the body is
}

// body is what a record puts back.
type body struct {
	rounds  []inspect.Round
	notices []string
	size    int // roughly, in memory
}

// newRecord gives the record of e and its body as it is kept.
func newRecord(e Entry) (*record, []byte) {
	put := writeBody(e.Told.Rounds, e.Told.Notices)
	r := &record{
		tenant: e.Tenant.Key, family: e.Tenant.Family, session: e.Tenant.Session,
		answer: e.Told.Unit.Answer, calls: append([]string(nil), e.Told.Unit.Calls...),
		shown: e.Told.Shown, last: e.Last, all: e.All, behind: callsBehind(e.Before), put: sum(put), does: sum(withoutIDs(e.Told)), bound: e.Told.Bound,
	}
	return r, put
}

// callsBehind names the answer that stands before one by its calls: zero when
// none of their ids is strong.
func callsBehind(calls []string) digest.Digest {
	if !slices.ContainsFunc(calls, strong) {
		return digest.Digest{}
	}
	var w digest.Writer
	for _, id := range calls {
		w.Part(digest.Call)
		w.Plain(id)
	}
	return w.Sum()
}

// withoutIDs gives a body in which ids are numbers, to tell whether two do the
// same: of one conversation that is had twice only the ids differ.
func withoutIDs(t inspect.Told) []byte {
	rounds := slices.Clone(t.Rounds)
	for i := range rounds {
		r := &rounds[i]
		r.ID = ""
		for j, id := range r.Calls {
			r.Message = bytes.ReplaceAll(r.Message, strconv.AppendQuote(nil, id), strconv.AppendInt(nil, int64(j), 10))
		}
		r.Calls = make([]string, len(r.Calls))
	}
	return writeBody(rounds, t.Notices)
}

// sum tells bodies apart.
func sum(body []byte) digest.Digest {
	s := sha256.Sum256(body)
	return digest.Digest(s[:len(digest.Digest{})])
}

// The first byte of anchors and bodies as they are kept.
const (
	anchorsVersion = 1
	bodyVersion    = 1
)

// anchors gives what r is found by, as it is kept.
func (r *record) anchors() []byte {
	var w writer
	w.byte(anchorsVersion)
	w.bool(r.bound)
	for _, s := range []string{r.family, r.session, r.answer} {
		w.string(s)
	}
	w.strings(r.calls)
	for _, d := range []digest.Digest{r.shown, r.last, r.all, r.behind, r.put, r.does} {
		w.digest(d)
	}
	return w.b
}

// read sets what anchors gave.
func (r *record) read(anchors []byte) error {
	in := reader{b: anchors}
	if in.byte() != anchorsVersion {
		return errVersion
	}
	r.bound = in.bool()
	for _, s := range []*string{&r.family, &r.session, &r.answer} {
		*s = in.string()
	}
	r.calls = in.strings()
	for _, d := range []*digest.Digest{&r.shown, &r.last, &r.all, &r.behind, &r.put, &r.does} {
		*d = in.digest()
	}
	return in.end()
}

// writeBody gives a body as it is kept: the same for the same rounds, to the
// byte, and sharing no memory with them.
func writeBody(rounds []inspect.Round, notices []string) []byte {
	size := 64
	for _, r := range rounds {
		size += len(r.Message) + 64
	}
	w := writer{b: make([]byte, 0, size)}
	w.byte(bodyVersion)
	w.int(len(rounds))
	for _, r := range rounds {
		w.string(r.ID)
		w.bytes(r.Message)
		w.strings(r.Calls)
		w.int(len(r.Refusals))
		for _, f := range r.Refusals {
			w.int(f.Call)
			w.string(f.Text)
		}
	}
	w.strings(notices)
	return w.b
}

// readBody gives what writeBody was given. Messages share memory with kept.
func readBody(kept []byte) (*body, error) {
	in := reader{b: kept}
	if in.byte() != bodyVersion {
		return nil, errVersion
	}
	out := &body{size: len(kept) + 256}
	for range in.count() {
		r := inspect.Round{ID: in.string(), Message: in.bytes(), Calls: in.strings()}
		for range in.count() {
			r.Refusals = append(r.Refusals, inspect.Refusal{Call: in.int(), Text: in.string()})
		}
		out.rounds = append(out.rounds, r)
	}
	out.notices = in.strings()
	return out, in.end()
}

var (
	errVersion = errors.New("it is of an unknown version")
	errDamaged = errors.New("it does not hold what it should")
)

// strong reports whether id is one that nobody else makes (see the package).
func strong(id string) bool {
	const enough = 8
	i := len(id)
	for i > 0 && !letterOrDigit(id[i-1]) {
		i--
	}
	run, digits := 0, 0
	for ; i > 0 && letterOrDigit(id[i-1]); i-- {
		run++
		if id[i-1] <= '9' {
			digits++
		}
		if run >= enough && digits > 0 {
			return true
		}
	}
	return false
}

func letterOrDigit(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
