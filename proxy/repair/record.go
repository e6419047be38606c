package repair

import (
	"bytes"
	"container/list"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"callgate/inspect"
	"callgate/inspect/digest"
)

// record is what the book knows of an entry: all but its body. Only the last
// block changes once it is in the book.
type record struct {
	tenant, family, session string
	answer                  string
	calls                   []string // the first strong ids of its calls
	count                   int      // of its calls
	shown, last, all        digest.Digest
	behind                  digest.Digest // the answer before, by its calls; zero for none
	exchange                digest.Digest // the same, by what was said; zero where it is not known
	list                    digest.Digest // this one, by its calls; zero for none
	exact                   digest.Digest // of Tenant.Exact; zero for none
	put                     digest.Digest // of the body: what is put back
	does                    digest.Digest // of the same, but for the ids in it
	size                    int           // of the body, as it is kept
	bound                   bool

	id   ID
	row  int64         // in the store, 0 when it was never there; under Book.mu
	used int64         // nanoseconds since 1970; under Book.mu
	turn *list.Element // in shelf.order; under Book.mu
	body *list.Element // in shelf.held, nil when the body is gone; under Book.mu
	gone atomic.Bool   // the body is
}

// body is what a record puts back.
type body struct {
	rounds  []inspect.Round
	notices []string
	size    int // roughly, in memory
}

// newRecord gives the record of e and its body as it is kept: nil when it is
// too large to be. Texts are copied: they may share memory with a whole request
// or answer.
func newRecord(e Entry) (*record, []byte) {
	put := writeBody(e.Told.Rounds, e.Told.Notices)
	r := &record{
		tenant: e.Tenant.Key, family: e.Tenant.Family, session: strings.Clone(shortSession(e.Tenant.Session)), exact: exactly(e.Tenant),
		answer: strings.Clone(short(e.Told.Unit.Answer)), shown: e.Told.Shown, last: e.Last, all: e.All,
		behind: listed(e.Before), exchange: e.Exchange, list: listed(e.Told.Unit.Calls), count: len(e.Told.Unit.Calls),
		put: sum(put), does: sum(withoutIDs(e.Told)), size: len(put), bound: e.Told.Bound,
	}
	r.calls = found(e.Told.Unit.Calls)
	if r.size > largestBody {
		r.size, put = 0, nil
		r.gone.Store(true)
	}
	return r, put
}

// mostIDs is how many ids of calls a record is found by. All of them are in its
// list.
const mostIDs = 8

// found gives those of the ids of calls that a record is found by.
func found(ids []string) (list []string) {
	for _, id := range ids {
		if id = short(id); strong(id) && len(list) < mostIDs {
			list = append(list, strings.Clone(id))
		}
	}
	return list
}

// exactly gives what records hold of Tenant.Exact, zero for none.
func exactly(t Tenant) digest.Digest {
	if t.Exact == "" {
		return digest.Digest{}
	}
	return sum([]byte(t.Exact))
}

// listed names an answer by its calls: zero when none of their ids is strong.
func listed(calls []string) digest.Digest {
	if !slices.ContainsFunc(calls, strongShort) {
		return digest.Digest{}
	}
	var w writer
	w.int(len(calls))
	for _, id := range calls {
		w.string(short(id))
	}
	return sum(w.b)
}

// The longest ids of calls and answers, and the longest sessions, that records
// hold as they are. Of longer ones they hold a digest.
const (
	longestID      = 128
	longestSession = 64
)

// short gives what records hold of the id of a call or an answer.
func short(id string) string {
	if len(id) <= longestID {
		return id
	}
	s := hex.EncodeToString(sumOf(id))
	if !strong(id) {
		s += "-x" // which is not strong either
	}
	return s
}

// shortSession gives what records hold of a session.
func shortSession(session string) string {
	if len(session) <= longestSession {
		return session
	}
	return hex.EncodeToString(sumOf(session))
}

// strongShort reports whether id is strong as records hold it.
func strongShort(id string) bool { return strong(short(id)) }

func sumOf(text string) []byte {
	s := sha256.Sum256([]byte(text))
	return s[:]
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
	anchorsVersion = 3
	bodyVersion    = 1
)

// anchors gives what r is found by, as it is kept.
func (r *record) anchors() []byte {
	var w writer
	w.byte(anchorsVersion)
	w.bool(r.bound)
	w.int(r.size)
	for _, s := range []string{r.family, r.session, r.answer} {
		w.string(s)
	}
	w.int(r.count)
	w.strings(r.calls)
	for _, d := range []digest.Digest{r.shown, r.last, r.all, r.behind, r.list, r.exact, r.put, r.does, r.exchange} {
		w.digest(d)
	}
	return w.b
}

// read sets what anchors gave.
func (r *record) read(anchors []byte) error {
	in := reader{b: anchors}
	version := in.byte()
	if version != anchorsVersion && version != 2 {
		return errVersion
	}
	r.bound = in.bool()
	if r.size = in.int(); r.size < 0 {
		return errDamaged
	}
	for _, s := range []*string{&r.family, &r.session, &r.answer} {
		*s = in.string()
	}
	digests := []*digest.Digest{&r.shown, &r.last, &r.all, &r.behind, &r.list, &r.exact, &r.put, &r.does}
	if version == 2 { // all ids, and no exchange
		ids := in.strings()
		r.count, r.calls = len(ids), found(ids)
	} else {
		if r.count = in.int(); r.count < 0 {
			return errDamaged
		}
		r.calls = in.strings()
		digests = append(digests, &r.exchange)
	}
	for _, d := range digests {
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
