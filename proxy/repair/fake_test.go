package repair

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"callgate/inspect"
	"callgate/inspect/digest"
)

// said is the digest of a word.
func said(word string) digest.Digest {
	s := sha256.Sum256([]byte(word))
	return digest.Digest(s[:16])
}

// row is a record as a store holds it.
type row struct {
	tenant        string
	anchors, body []byte
	used          time.Time
}

// memory is a Store that can be told to fail.
type memory struct {
	mu    sync.Mutex
	rows  map[int64]row
	next  int64
	fail  error
	calls map[string]int // how often each method was called
}

func newMemory() *memory { return &memory{rows: map[int64]row{}, calls: map[string]int{}} }

// call counts a call; mu is held after it.
func (m *memory) call(name string) error {
	m.mu.Lock()
	m.calls[name]++
	return m.fail
}

func (m *memory) called(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[name]
}

func (m *memory) breakWith(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

// has gives the number of records, and of those with a body.
func (m *memory) has() (records, bodies int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.rows {
		if r.body != nil {
			bodies++
		}
	}
	return len(m.rows), bodies
}

func (m *memory) Repairs(_ context.Context, each func(int64, string, []byte, time.Time, bool) error) error {
	err := m.call("repairs")
	defer m.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(m.rows)) {
		if r := m.rows[id]; err == nil {
			err = each(id, r.tenant, r.anchors, r.used, r.body != nil)
		}
	}
	return err
}

func (m *memory) KeepRepair(ctx context.Context, replace int64, tenant string, anchors, body []byte, used time.Time) (int64, error) {
	err := m.call("keep")
	defer m.mu.Unlock()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return 0, err
	}
	id := replace
	if m.rows[replace].tenant != tenant {
		m.next++
		id = m.next
	}
	m.rows[id] = row{tenant, slices.Clone(anchors), bytes.Clone(body), used}
	return id, nil
}

func (m *memory) RepairBody(_ context.Context, id int64) ([]byte, error) {
	err := m.call("body")
	defer m.mu.Unlock()
	return slices.Clone(m.rows[id].body), err
}

func (m *memory) UseRepairs(_ context.Context, ids []int64, at time.Time) error {
	err := m.call("use")
	defer m.mu.Unlock()
	for _, id := range ids {
		if r, ok := m.rows[id]; ok && err == nil {
			r.used = at
			m.rows[id] = r
		}
	}
	return err
}

func (m *memory) DropRepairs(_ context.Context, bodies, records []int64) error {
	err := m.call("drop")
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	for _, id := range bodies {
		if r, ok := m.rows[id]; ok {
			r.body = nil
			m.rows[id] = r
		}
	}
	for _, id := range records {
		delete(m.rows, id)
	}
	return nil
}

var errDisk = errors.New("the disk is on fire")

// unit is one of a fake history: words stand for digests.
type unit struct {
	calls, answer, says, last, all string
}

// history is a History that counts what it is asked for.
type history struct {
	units []unit
	task  int
	asked map[string]int
}

func (h *history) ask(what string, i int) {
	if h.asked == nil {
		h.asked = map[string]int{}
	}
	h.asked[what]++
	h.asked[fmt.Sprint(what, " ", i)]++
}

func (h *history) Units() []inspect.Unit {
	list := make([]inspect.Unit, len(h.units))
	for i, u := range h.units {
		list[i] = inspect.Unit{Answer: u.answer, Calls: strings.Fields(u.calls)}
	}
	return list
}

func (h *history) Shown(i int) digest.Digest { h.ask("shown", i); return said(h.units[i].says) }
func (h *history) Last(i int) digest.Digest  { h.ask("last", i); return said(h.units[i].last) }
func (h *history) All(i int) digest.Digest   { h.ask("all", i); return said(h.units[i].all) }
func (h *history) Task() int                 { return h.task }

func (h *history) Edit(dst []byte, _ map[int]inspect.Mend) ([]byte, error) {
	return dst, errors.New("the book edits nothing")
}

// kept is a record of a test: words stand for digests, put is what it puts back.
type kept struct {
	calls, answer, says, last, all string
	before                         string // the calls of the answer before
	behind                         string // what that says and the message before it; "" where there is none
	put                            string
	bound, gone                    bool
	tenant, family, session, exact string // "" for those of whole
	id                             string // of its round, "" for one by put
	refusals                       int
	notice                         string
}

// whole is a tenant with all there is to say.
var whole = Tenant{Key: "tenant", Stable: true, Exact: "exact", Family: "family", Session: "session"}

func (k kept) entry() Entry {
	h := &history{}
	if says, last, ok := strings.Cut(k.behind, " "); ok {
		h.units = []unit{{says: says, last: last}}
	}
	e := Entry{Tenant: whole, Last: said(k.last), All: said(k.all), Before: strings.Fields(k.before), Exchange: Exchange(h, len(h.units))}
	if k.tenant != "" {
		e.Tenant.Key = k.tenant
	}
	if k.family != "" {
		e.Tenant.Family = k.family
	}
	if k.session != "" {
		e.Tenant.Session = k.session
	}
	if k.exact != "" {
		e.Tenant.Exact = k.exact
	}
	round := inspect.Round{ID: cmp.Or(k.id, "id of "+k.put), Message: []byte(k.put), Calls: strings.Fields(k.calls)}
	for i := range k.refusals {
		round.Refusals = append(round.Refusals, inspect.Refusal{Call: i, Text: "no"})
	}
	e.Told = inspect.Told{Mend: true, Bound: k.bound, Rounds: []inspect.Round{round}, Shown: said(k.says),
		Unit: inspect.Unit{Answer: k.answer, Calls: strings.Fields(k.calls)}}
	if k.notice != "" {
		e.Told.Notices = []string{k.notice}
	}
	return e
}

func opened(t testing.TB, s Store, o Options) *Book {
	t.Helper()
	if o.Report == nil {
		o.Report = func(err error) { t.Errorf("reported: %v", err) }
	}
	b, err := Open(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func keep(t testing.TB, b *Book, e Entry) ID {
	t.Helper()
	id, err := b.Keep(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// bookOf gives a book with these records, read from a store.
func bookOf(t testing.TB, records ...kept) (*Book, *memory) {
	t.Helper()
	m := newMemory()
	b := opened(t, m, Options{})
	for _, k := range records {
		keep(t, b, k.entry())
		if k.gone {
			if err := m.DropRepairs(t.Context(), []int64{m.next}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	return opened(t, m, Options{}), m
}

func find(t testing.TB, b *Book, tenant Tenant, h inspect.History) Found {
	t.Helper()
	f, err := b.Find(t.Context(), tenant, h)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// words says what was found in a line.
func words(f Found) string {
	var list []string
	for _, i := range slices.Sorted(maps.Keys(f.Mends)) {
		m := f.Mends[i]
		if m.Unbind {
			list = append(list, fmt.Sprintf("%d unbind", i))
			continue
		}
		text := fmt.Sprintf("%d put %s", i, m.Rounds[0].Message)
		if m.Edited {
			text += " edited"
		}
		if len(m.Notices) > 0 {
			text += " without " + strings.Join(m.Notices, "+")
		}
		list = append(list, text)
	}
	if f.Lost > 0 {
		list = append(list, fmt.Sprintf("%d lost", f.Lost))
	}
	if f.Ambiguous > 0 {
		list = append(list, fmt.Sprintf("%d ambiguous", f.Ambiguous))
	}
	return strings.Join(list, ", ")
}

// leaving is a history during which its request ends, when a digest is asked
// for.
type leaving struct {
	history
	what   string
	cancel func()
}

func (h *leaving) left() {
	if h.asked[h.what] > 0 {
		h.cancel()
	}
}

func (h *leaving) Shown(i int) digest.Digest { defer h.left(); return h.history.Shown(i) }
func (h *leaving) Last(i int) digest.Digest  { defer h.left(); return h.history.Last(i) }
func (h *leaving) All(i int) digest.Digest   { defer h.left(); return h.history.All(i) }
