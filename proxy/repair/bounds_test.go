package repair

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"callgate/gate/store"
)

// says gives a history of texts.
func says(words ...string) *history {
	h := &history{}
	for _, w := range words {
		h.units = append(h.units, unit{says: w, last: "l"})
	}
	return h
}

func TestATenantsOldestRecordsGoWhenItHasTooMany(t *testing.T) {
	m := newMemory()
	b := opened(t, m, Options{TenantLimit: 3})
	other := whole
	other.Key = "else"
	keep(t, b, kept{tenant: "else", says: "0", last: "l", put: "else"}.entry())
	for i := range 5 {
		keep(t, b, kept{says: fmt.Sprint(i), last: "l", put: fmt.Sprint("A", i)}.entry())
	}
	for range 2 {
		if got := words(find(t, b, whole, says("0", "1", "2", "3", "4"))); got != "2 put A2, 3 put A3, 4 put A4" {
			t.Errorf("found %s", got)
		}
		if got := words(find(t, b, other, says("0"))); got != "0 put else" {
			t.Errorf("the other tenant finds %s", got)
		}
		b = opened(t, m, Options{TenantLimit: 3})
	}
	b = opened(t, m, Options{TenantLimit: 1})
	if got := words(find(t, b, whole, says("0", "1", "2", "3", "4"))); got != "4 put A4" {
		t.Errorf("with a lower limit: found %s", got)
	}
	if n, _ := m.has(); n != 2 {
		t.Errorf("%d records are stored", n)
	}
}

func TestATenantsOldestBodiesGoWhenTheyAreTooLarge(t *testing.T) {
	m := newMemory()
	o := Options{TenantBytes: 5000}
	b := opened(t, m, o)
	other := whole
	other.Key = "else"
	keep(t, b, kept{tenant: "else", says: "0", last: "l", put: strings.Repeat("y", 4000)}.entry())
	var ids []ID
	for i := range 8 {
		ids = append(ids, keep(t, b, kept{id: "i", says: fmt.Sprint(i), last: "l", put: strings.Repeat("x", 1500), bound: true}.entry()))
	}
	for range 2 {
		f := find(t, b, whole, says("0", "1", "2", "3", "4", "5", "6", "7"))
		if f.Mended != 3 || f.Unbound != 5 || f.Mends[7].Unbind || f.Mends[5].Unbind {
			t.Errorf("found %d bodies and %d records without", f.Mended, f.Unbound)
		}
		if f := find(t, b, other, says("0")); f.Mended != 1 {
			t.Errorf("the other tenant finds %s", words(f))
		}
		if records, bodies := stored(m, whole.Key); records != 8 || bodies != 3 {
			t.Errorf("%d records and %d bodies are stored", records, bodies)
		}
		if s := b.shelves[whole.Key]; s.bytes > o.TenantBytes || s.held.Len() != 3 {
			t.Errorf("%d bytes in %d bodies", s.bytes, s.held.Len())
		}
		checkShelf(t, b, b.shelves[whole.Key])
		if len(ids) > 0 {
			// A turn that takes the place of an earlier state is counted once.
			e := kept{id: "i", says: "7", last: "l", put: strings.Repeat("z", 1500), bound: true}.entry()
			e.Replace, ids = ids[7], nil
			keep(t, b, e)
		}
		b = opened(t, m, o)
	}
	// One that is larger than all is kept alone.
	keep(t, b, kept{says: "large", last: "l", put: strings.Repeat("x", 9000)}.entry())
	if f := find(t, b, whole, says("large", "7")); f.Mended != 1 || f.Unbound != 1 || f.Mends[0].Unbind {
		t.Errorf("the large one: %d mended, %d unbound", f.Mended, f.Unbound)
	}
}

func TestTheBytesOfAllAreTakenFromTheTenantsWithTheMost(t *testing.T) {
	const all = 32_000
	m := newMemory()
	b := opened(t, m, Options{Bytes: all})
	one := func(tenant string, i, size int) {
		e := kept{says: fmt.Sprint(i), last: "l", put: strings.Repeat("x", size)}.entry()
		e.Tenant.Key = tenant
		keep(t, b, e)
	}
	for i := range 3 {
		one("small", i, 500)
	}
	for i := range 40 {
		one("large", i, 1000)
	}
	for i := range 100 { // as many as somebody gives himself names
		one(fmt.Sprint("one of many ", i), 0, 1000)
	}
	bodies := func() (n int) {
		sum := 0
		for key, s := range b.shelves {
			checkShelf(t, b, s)
			sum += s.bytes
			if strings.HasPrefix(key, "one of many") {
				n += s.held.Len()
			}
		}
		if sum != b.bytes || sum > all {
			t.Errorf("%d bytes of bodies, counted as %d, and no more than %d may be", sum, b.bytes, all)
		}
		return n
	}
	for range 2 {
		small := whole
		small.Key = "small"
		if n := bodies(); n < 10 || n > 30 {
			t.Errorf("%d of many have a body", n)
		}
		if _, n := stored(m, "small"); n == 0 {
			t.Error("the small tenant has lost all it had")
		}
		b = opened(t, m, Options{Bytes: all})
	}
	b = opened(t, m, Options{Bytes: 2000})
	if bodies(); b.bytes > 2000 {
		t.Errorf("with a lower limit: %d bytes", b.bytes)
	}
}

func TestTheLimitOfAllTakesFromTheTenantWithTheMostRecords(t *testing.T) {
	m := newMemory()
	b := opened(t, m, Options{Limit: 12})
	small := whole
	small.Key = "small"
	for i := range 2 {
		keep(t, b, kept{tenant: "small", says: fmt.Sprint(i), last: "l", put: fmt.Sprint("small", i)}.entry())
	}
	for i := range 50 {
		keep(t, b, kept{says: fmt.Sprint(i), last: "l", put: "A"}.entry())
	}
	for i := range 6 { // as many as are left to the large one
		keep(t, b, kept{tenant: fmt.Sprint("one of many ", i), says: "s", last: "l", put: "B"}.entry())
	}
	for range 2 {
		if got := words(find(t, b, small, says("0", "1"))); got != "0 put small0, 1 put small1" {
			t.Errorf("the small tenant finds %s", got)
		}
		if n := b.shelves[whole.Key].order.Len(); n != 4 || len(b.byID) != 12 {
			t.Errorf("%d records of %d are the large tenant's", n, len(b.byID))
		}
		if f := find(t, b, whole, says("45", "46", "47", "48", "49")); f.Mended != 4 || f.Mends[0].Rounds != nil {
			t.Errorf("the large tenant's newest: %d are found", f.Mended)
		}
		b = opened(t, m, Options{Limit: 12})
	}
}

func TestABodyThatIsTooLargeLeavesWhatItIsFoundBy(t *testing.T) {
	huge := strings.Repeat("x", largestBody)
	dir := t.TempDir()
	s, err := store.Open(t.Context(), dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m := newMemory()
	for name, s := range map[string]Store{"in memory": m, "on disk": s} {
		t.Run(name, func(t *testing.T) {
			b := opened(t, s, Options{})
			first := keep(t, b, kept{says: "s", last: "l", put: "A"}.entry())
			for _, e := range []Entry{kept{says: "s", last: "l", put: huge, bound: true}.entry(), kept{says: "t", last: "l", put: huge}.entry()} {
				e.Replace, first = first, 0
				if id, err := b.Keep(t.Context(), e); !errors.Is(err, ErrTooLarge) || id == 0 {
					t.Fatalf("id %d, %v", id, err)
				}
			}
			for range 2 {
				if got := words(find(t, b, whole, says("s", "t"))); got != "0 unbind, 1 lost" {
					t.Errorf("found %s", got)
				}
				b = opened(t, s, Options{})
			}
		})
	}
	// The store fails as well.
	b := opened(t, m, Options{})
	m.breakWith(errDisk)
	if _, err := b.Keep(t.Context(), kept{says: "u", last: "l", put: huge, bound: true}.entry()); !errors.Is(err, ErrTooLarge) || !errors.Is(err, errDisk) {
		t.Errorf("got %v", err)
	}
	m.breakWith(nil)
	keep(t, b, kept{says: "v", last: "l", put: "A"}.entry())
	for range 2 {
		if got := words(find(t, b, whole, says("u"))); got != "0 unbind" {
			t.Errorf("found %s", got)
		}
		b = opened(t, m, Options{})
	}
}

func TestASearchEndsWithItsContext(t *testing.T) {
	b, _ := bookOf(t, kept{says: "s", last: "l", put: "A"}, kept{calls: "call_9fK2xQ7b", says: "t", put: "B"}, kept{answer: "msg_01", says: "u", put: "C"})
	for name, units := range map[string][]unit{
		"while ids are looked up": {{says: "s", last: "l"}},
		"without units":           nil,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if f, err := b.Find(ctx, whole, &history{units: units}); len(units) > 0 && !errors.Is(err, context.Canceled) || f.Mends != nil {
			t.Errorf("%s: found %+v, %v", name, f, err)
		}
	}
	for name, tt := range map[string]struct {
		units []unit
		what  string // the digest that is asked for when the agent leaves
	}{
		"while what was shown is looked up":       {[]unit{{says: "s", last: "l", all: "1"}, {says: "s", last: "l", all: "2"}}, "shown 0"},
		"while what stands before is looked up":   {[]unit{{says: "s", last: "l", all: "1"}, {says: "s", last: "l", all: "2"}}, "all 0"},
		"while bodies are read":                   {[]unit{{says: "s", last: "l"}}, "last 0"},
		"while the rest is looked up by what ids": {[]unit{{calls: "call_9fK2xQ7b", says: "t"}, {says: "s"}}, "shown 0"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		h := &leaving{history{units: tt.units}, tt.what, cancel}
		if f, err := b.Find(ctx, whole, h); !errors.Is(err, context.Canceled) || f.Mends != nil {
			t.Errorf("%s: found %+v, %v", name, f, err)
		}
		cancel()
	}
}

func TestLongSessionsAndIdsAreKeptShort(t *testing.T) {
	long := strings.Repeat("x", 1000)
	e := kept{calls: longStrong + " " + longWeak, answer: long, session: long, says: "s", put: "A"}.entry()
	r, _ := newRecord(e)
	for _, s := range append(r.calls, r.answer) {
		if len(s) > longestID {
			t.Errorf("an id of %d bytes is kept", len(s))
		}
	}
	if len(r.session) > longestSession || len(r.calls) != 1 || !strong(r.calls[0]) {
		t.Errorf("session %q, calls %q", r.session, r.calls)
	}
	if a := len(r.anchors()); a > 500 {
		t.Errorf("anchors of %d bytes", a)
	}
	if fits := strings.Repeat("x", longestID); short(fits) != fits || short(fits+"x") == short(fits+"y") {
		t.Error("an id that fits is not kept as it is, or two that do not are one")
	}
}

// A record of any number of calls costs no more to keep than one of a few.
func TestARecordIsFoundByAFewOfItsIds(t *testing.T) {
	ids := make([]string, 1000)
	for i := range ids {
		ids[i] = fmt.Sprintf("call_%08d", i)
	}
	k := kept{calls: strings.Join(ids, " "), says: "s", put: "A"}
	r, _ := newRecord(k.entry())
	if len(r.calls) != mostIDs || r.count != len(ids) {
		t.Errorf("found by %d of %d calls", len(r.calls), r.count)
	}
	b, _ := bookOf(t, k)
	if got := words(find(t, b, whole, &history{units: []unit{{calls: k.calls, says: "other"}}})); got != "0 put A edited" {
		t.Errorf("found %q", got)
	}
	fewer := strings.Join(ids[:len(ids)-1], " ")
	if got := words(find(t, b, whole, &history{units: []unit{{calls: fewer, says: "other"}}})); got != "" {
		t.Errorf("found %q for another list", got)
	}
}
