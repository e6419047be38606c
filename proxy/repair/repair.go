// Package repair keeps the book of answers that later requests must mend: what
// the provider said and what callgate told it of withheld calls, which the
// agent does not know and therefore does not send back. For the history of a
// request it finds what must be put where. It knows no wire format and no HTTP,
// and reads nothing but digests and ids from a request: those are looked up
// under the tenant's own key, and decide nothing else.
//
// # Finding the place
//
// A record and a unit of a history belong together when they are of one tenant
// and one dialect, and
//
//  1. the unit names an answer that the provider holds, and the record is of
//     that answer; or else
//  2. a strong call id stands in this unit of the history and in no other, and
//     the record has it and the same list of call ids. When the unit says
//     something else than was shown, its words are the client's; or else
//  3. the unit says what was shown, the message before it is the same, and so
//     is everything before that; or else the calls of the unit before it, if
//     one of them has a strong id; or else the session that the client claims,
//     with what the unit before it says and the message before that one. Of a
//     unit that is the first one there is nothing to be the same. One session
//     has several conversations, and "go on" is said in many.
//
// A strong call id is one that nobody else makes: its last run of letters and
// digits has eight characters or more, a digit among them, as in call_9fK2xQ7b.
// call_0, list_dir:12 and the names of tools, which some servers give as ids,
// are not. A unit with strong ids of which no record knows any is of an answer
// that was not altered, and is not looked at further.
//
// Of several records for one unit by rule 2, those whose message before it is
// the same are taken, if there are any; by rules 2 and 3, of those the ones
// with everything before it the same, if there are any, and of those the ones
// of the session that the request claims. When records are left that would put
// different things there, nothing is put there; of those that differ in ids
// alone the oldest counts. A record that was found by a rule is no more looked
// for by a later one, and each is put into one unit only: of several units that
// one fallback of rule 3 gives the same records, each gets its own when there
// are as many and they differ in ids alone, the oldest first, and none gets any
// when not. An answer that is named twice is an error.
//
// Where the credential shows no stable identity, several customers may share a
// key. The rules are then for the records of the same credential, to the byte.
// One that was kept for another is found only when the request claims its
// session and what was shown, the message before it, and all before that are
// the same, and by rule 1 when the request claims its session and the answer's
// id is strong.
//
// Where a record has lost its body and only what it is found by is left, or
// several fit, thinking that was bound to what stood there is taken out of the
// history from there on.
package repair

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"callgate/inspect"
	"callgate/inspect/digest"
)

// Tenant says whose records may be used for a request.
type Tenant struct {
	// Key is a keyed hash of agent, upstream and credential: nothing crosses
	// it. An empty one has no records.
	Key string
	// Stable says that the credential shows the same identity for as long as a
	// conversation lasts, and nobody else's. Without it records of another
	// Exact need their session and the whole chain.
	Stable bool
	// Exact is a keyed hash of the credential as it is, to the byte. An empty
	// one is equal to none.
	Exact string
	// Family is the dialect's name.
	Family string
	// Session is the claimed one, "" for none: it only ever decides between
	// records that match otherwise, or is wanted beside what else must match.
	Session string
}

// Entry is what a turn leaves for the requests after it.
type Entry struct {
	Tenant Tenant
	Told   inspect.Told
	// Last and All are the digests of the history of the request that the turn
	// answered, at its end.
	Last, All digest.Digest
	// Before are the ids of the calls of the last answer in that history, and
	// Exchange names it by what it says, as the function of that name does.
	Before   []string
	Exchange digest.Digest
	// Replace is the id of the entry that was kept of the same turn before, 0
	// for none. A turn keeps one entry at a time.
	Replace ID
}

// Exchange names the answer before unit n of a history by what it says and the
// message before it. Where there is none, it names that. It is zero for an
// answer that only the provider holds, and equal to none then.
func Exchange(h inspect.History, n int) digest.Digest {
	if n == 0 {
		return sum(nil)
	}
	if h.Units()[n-1].Answer != "" {
		return digest.Digest{}
	}
	shown, last := h.Shown(n-1), h.Last(n-1)
	return sum(append(shown[:], last[:]...))
}

// ID names an entry for as long as the Book is open.
type ID int64

// Store is where records outlive the process.
type Store interface {
	// Repairs calls each for every record: its id, whose it is, what it is
	// found by, when it was last of use, and whether its body is still there.
	// An error of each ends it and is returned.
	Repairs(ctx context.Context, each func(id int64, tenant string, anchors []byte, used time.Time, body bool) error) error
	// KeepRepair keeps a record durably and returns its id. Where replace is
	// the id of one of that tenant, the record takes its place. With a nil body
	// it is kept as one whose body was dropped.
	KeepRepair(ctx context.Context, replace int64, tenant string, anchors, body []byte, used time.Time) (int64, error)
	// RepairBody gives a body as it was kept; nil when it was dropped.
	RepairBody(ctx context.Context, id int64) ([]byte, error)
	// UseRepairs notes that records were of use at that time.
	UseRepairs(ctx context.Context, ids []int64, at time.Time) error
	// DropRepairs drops the bodies of some records and others altogether.
	DropRepairs(ctx context.Context, bodies, records []int64) error
}

// Options set how a Book works. The zero value is a good one.
type Options struct {
	// Limit is how many records are kept at most, those without body included.
	// Beyond it the tenant with the most records loses the one that was of no
	// use for longest. 0 is 200,000.
	Limit int
	// TenantLimit is how many of them are one tenant's at most, and TenantBytes
	// how many bytes of bodies are kept for it; the newest body is, whatever
	// its size. Beyond them the tenant's own go that were of no use for
	// longest: bodies, of which what they are found by stays, and records. 0 is
	// 10,000 and 64 MiB.
	TenantLimit, TenantBytes int
	// Bytes is how many bytes of bodies are kept at most. Beyond it the tenants
	// with the most lose those that were of no use for longest. 0 is 1 GiB.
	Bytes int
	// Cache is how many bytes of bodies are held in memory. 0 is 64 MiB.
	Cache int
	// Report is told of what failed in the store without harm to a request:
	// dropping what is old, noting that a record was of use, writing at last
	// what could not be written before. It must not call the Book. Nil tells
	// nobody.
	Report func(error)
}

const (
	defaultLimit       = 200_000
	defaultTenantLimit = 10_000
	defaultTenantBytes = 64 << 20
	defaultBytes       = 1 << 30
	defaultCache       = 64 << 20
)

// largestBody is how large a body is at most, as it is kept.
const largestBody = 16 << 20

// ErrLost reports a request that goes on with an answer which the provider
// holds, and from which calls were withheld that can no longer be answered: no
// such request can be made right.
var ErrLost = errors.New("what was withheld in it is no longer known; begin a new conversation")

// ErrTooLarge reports an entry of which only what it is found by was kept.
var ErrTooLarge = errors.New("what was withheld is larger than what is kept of a turn (16 MiB)")

// Book holds the records. Its methods may be called side by side.
type Book struct {
	store  Store
	limit  int
	report func(error)

	tenantLimit, tenantBytes, allBytes int

	cache cache
	swept atomic.Int64 // when old records were last looked for

	mu      sync.RWMutex
	shelves map[string]*shelf
	byID    map[ID]*record
	ranks   ranks
	bytes   int // of all bodies
	nextID  ID
	// unkept are the records that the store has failed to keep, with their
	// bodies.
	unkept     map[*record][]byte
	unkeptSize int

	retrying sync.Mutex // held by the one Keep that writes what is unkept
}

// Open reads the records of a store.
func Open(ctx context.Context, s Store, o Options) (*Book, error) {
	b := &Book{store: s, report: o.Report,
		shelves: map[string]*shelf{}, byID: map[ID]*record{}, unkept: map[*record][]byte{}}
	b.limit = orDefault(o.Limit, defaultLimit)
	b.tenantLimit = orDefault(o.TenantLimit, defaultTenantLimit)
	b.tenantBytes = orDefault(o.TenantBytes, defaultTenantBytes)
	b.allBytes = orDefault(o.Bytes, defaultBytes)
	b.cache.max = orDefault(o.Cache, defaultCache)
	if b.report == nil {
		b.report = func(error) {}
	}
	var all []*record
	names := map[string]string{}
	err := s.Repairs(ctx, func(row int64, tenant string, anchors []byte, used time.Time, body bool) error {
		r := &record{tenant: intern(names, tenant), row: row, used: used.UnixNano()}
		if err := r.read(anchors); err != nil {
			return fmt.Errorf("what record %d is found by is damaged: %w; restore the state directory from a backup, or move it away to begin anew", row, err)
		}
		r.family = intern(names, r.family)
		r.gone.Store(!body)
		all = append(all, r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("repair: %w", err)
	}
	slices.SortStableFunc(all, func(a, b *record) int { return cmp.Compare(a.used, b.used) })
	for _, r := range all {
		b.add(r)
	}
	var d dropped
	for _, s := range slices.Clone(b.ranks) {
		b.trim(s, &d)
	}
	b.evict(&d)
	b.thin(&d)
	b.forget(ctx, d)
	b.sweep(ctx, time.Now())
	return b, nil
}

func orDefault(n, otherwise int) int {
	if n <= 0 {
		return otherwise
	}
	return n
}

// intern gives one string for equal ones: tenants and dialects are few.
func intern(names map[string]string, s string) string {
	if known, ok := names[s]; ok {
		return known
	}
	names[s] = s
	return s
}

// Live reports whether the tenant has records at all. Without any, the history
// of its request need not be read.
func (b *Book) Live(tenantKey string) bool {
	b.mu.RLock()
	_, ok := b.shelves[tenantKey]
	b.mu.RUnlock()
	return ok
}

// add puts r into the book as the one that was of use last; mu is held, or
// nobody else has the Book yet.
func (b *Book) add(r *record) {
	if r.id == 0 {
		b.nextID++
		r.id = b.nextID
	}
	b.byID[r.id] = r
	s := b.shelves[r.tenant]
	if s != nil {
		s.add(r)
		heap.Fix(&b.ranks, s.rank)
		return
	}
	s = newShelf(&b.bytes)
	s.add(r)
	b.shelves[r.tenant] = s
	heap.Push(&b.ranks, s)
}

// remove takes r out of the book; mu is held.
func (b *Book) remove(r *record) {
	delete(b.byID, r.id)
	s := b.shelves[r.tenant]
	if s.order.Len() == 1 {
		s.lose(r)
		heap.Remove(&b.ranks, s.rank)
		delete(b.shelves, r.tenant)
	} else {
		s.remove(r)
		heap.Fix(&b.ranks, s.rank)
	}
	b.release(r)
}

// lose leaves of r only what it is found by; mu is held.
func (b *Book) lose(r *record) {
	r.gone.Store(true)
	if b.byID[r.id] == r {
		b.shelves[r.tenant].lose(r)
	}
	b.release(r)
}

// release lets the body of r go; mu is held.
func (b *Book) release(r *record) {
	b.cache.drop(r)
	b.unkeptSize -= len(b.unkept[r])
	delete(b.unkept, r)
}
