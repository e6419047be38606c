package repair

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"callgate/inspect"
	"callgate/inspect/digest"

	"github.com/google/go-cmp/cmp"
)

// filled is an entry of which every field that a body has is set, in case one
// is added and not kept.
func filled(t *testing.T) Entry {
	t.Helper()
	round := inspect.Round{ID: "msg_1", Message: []byte(`{"role":"assistant", "x":"\u00e9<>\u2028"}`), Calls: []string{"a", "", "b"},
		Refusals: []inspect.Refusal{{Call: 0, Text: "no"}, {Call: 2, Text: ""}}}
	r := reflect.ValueOf(round)
	for i := range r.NumField() {
		if r.Field(i).IsZero() {
			t.Fatalf("a round has the new field %s, which this test must set and a body must keep", r.Type().Field(i).Name)
		}
	}
	if n := reflect.TypeFor[inspect.Refusal]().NumField(); n != 2 {
		t.Fatalf("a refusal has %d fields, which a body must keep", n)
	}
	return Entry{Tenant: whole, Last: said("l"), All: said("a"), Told: inspect.Told{
		Rounds: []inspect.Round{round, {Message: []byte("\x00\xff")}, {}}, Notices: []string{"one", ""}, Shown: said("s"),
		Unit: inspect.Unit{Calls: []string{"call_9fK2xQ7b", ""}},
	}}
}

func TestWhatWasKeptComesBackToTheByte(t *testing.T) {
	m := newMemory()
	e := filled(t)
	want := filled(t)
	b := opened(t, m, Options{})
	keep(t, b, e)
	// The turn's memory is its own again.
	copy(e.Told.Rounds[0].Message, "overwritten")
	e.Told.Rounds[0].Calls[0], e.Told.Unit.Calls[0] = "overwritten", "overwritten"
	h := &history{units: []unit{{calls: "call_9fK2xQ7b x", says: "s", last: "l", all: "a"}}}
	for name, b := range map[string]*Book{"the same book": b, "a book opened again": opened(t, m, Options{}), "a book that holds no bodies": opened(t, m, Options{Cache: 1})} {
		for range 2 {
			got := find(t, b, whole, h)
			if d := cmp.Diff(map[int]inspect.Mend{0: {Rounds: want.Told.Rounds}}, got.Mends); d != "" {
				t.Errorf("%s: %s", name, d)
			}
		}
	}
}

func TestBodiesAreReadFromTheStoreOnce(t *testing.T) {
	b, m := bookOf(t, kept{says: "s", last: "l", put: "A"}, kept{says: "t", last: "l", put: "B"})
	h := &history{units: []unit{{says: "s", last: "l"}, {says: "t", last: "l"}}}
	for range 3 {
		if got := words(find(t, b, whole, h)); got != "0 put A, 1 put B" {
			t.Fatal(got)
		}
	}
	if n := m.called("body"); n != 2 {
		t.Errorf("bodies were read %d times", n)
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	m := newMemory()
	b := opened(t, m, Options{Cache: 10_000})
	for i := range 100 {
		keep(t, b, kept{says: fmt.Sprint(i), last: "l", put: strings.Repeat("x", 1000)}.entry())
	}
	keep(t, b, kept{says: "large", last: "l", put: strings.Repeat("x", 20_000)}.entry())
	if b.cache.size > b.cache.max || b.cache.order.Len() < 4 || b.cache.order.Len() != len(b.cache.at) {
		t.Errorf("%d bytes in %d bodies are held", b.cache.size, b.cache.order.Len())
	}
	for _, says := range []string{"0", "99", "large"} {
		if f := find(t, b, whole, &history{units: []unit{{says: says, last: "l"}}}); f.Mended != 1 {
			t.Errorf("%s is not found", says)
		}
	}
	if n := m.called("body"); n != 2 {
		t.Errorf("%d bodies were read, want the oldest and the large one", n)
	}
	if b.cache.size > b.cache.max {
		t.Errorf("%d bytes are held after reading", b.cache.size)
	}
}

func TestTheBodiesOfUseLastAreHeld(t *testing.T) {
	m := newMemory()
	b := opened(t, m, Options{Cache: 10_000})
	used := &history{units: []unit{{says: "0", last: "l"}}}
	for i := range 100 {
		keep(t, b, kept{says: fmt.Sprint(i), last: "l", put: strings.Repeat("x", 1000)}.entry())
		find(t, b, whole, used)
	}
	if n := m.called("body"); n != 0 {
		t.Errorf("a body that is of use all the time was read %d times", n)
	}
}

func TestAnEntryTakesThePlaceOfAnEarlierOneOfItsTurn(t *testing.T) {
	m := newMemory()
	b := opened(t, m, Options{})
	first := kept{says: "one", last: "l", calls: "call_1fK2xQ7b", put: "A"}.entry()
	id := keep(t, b, first)
	second := kept{says: "two", last: "l", calls: "call_2fK2xQ7b", put: "B"}.entry()
	second.Replace = id
	if again := keep(t, b, second); again != id {
		t.Errorf("the id %d became %d", id, again)
	}
	h := &history{units: []unit{{says: "one", last: "l"}, {calls: "call_1fK2xQ7b", says: "one", last: "l"}, {calls: "call_2fK2xQ7b", says: "two"}}}
	for range 2 {
		if got := words(find(t, b, whole, h)); got != "2 put B" {
			t.Errorf("found %s", got)
		}
		b = opened(t, m, Options{})
	}
	if n, _ := m.has(); n != 1 {
		t.Errorf("%d records are stored", n)
	}
}

func TestAnEntryNeverTakesThePlaceOfAnotherTenants(t *testing.T) {
	b := opened(t, newMemory(), Options{})
	id := keep(t, b, kept{says: "s", last: "l", put: "A"}.entry())
	e := kept{tenant: "else", says: "s", last: "l", put: "B"}.entry()
	e.Replace = id
	if _, err := b.Keep(t.Context(), e); err == nil || !strings.Contains(err.Error(), "another tenant") {
		t.Errorf("got %v", err)
	}
	if b.Live("else") {
		t.Error("it was kept")
	}
	if got := words(find(t, b, whole, &history{units: []unit{{says: "s", last: "l"}}})); got != "0 put A" {
		t.Errorf("found %s", got)
	}
}

func TestAnEntryWithoutATenantIsNotKeptAndFindsNothing(t *testing.T) {
	b := opened(t, newMemory(), Options{})
	e := kept{says: "s", last: "l", put: "A"}.entry()
	e.Tenant.Key = ""
	if _, err := b.Keep(t.Context(), e); err == nil || b.Live("") {
		t.Errorf("it was kept: %v", err)
	}
	m := newMemory()
	e.Tenant.Family = ""
	r, put := newRecord(e)
	m.rows[1] = row{anchors: r.anchors(), body: put, used: time.Now()}
	if f := find(t, opened(t, m, Options{}), Tenant{Stable: true}, &history{units: []unit{{says: "s", last: "l"}}}); f.Mends != nil {
		t.Errorf("found %+v", f)
	}
}

func TestTwoTenantsWithEqualHistoriesShareNothing(t *testing.T) {
	b := opened(t, newMemory(), Options{})
	tenants := map[string]Tenant{}
	for _, name := range []string{"one", "two", "three"} {
		tenants[name] = Tenant{Key: name, Stable: name != "three", Exact: "equal", Family: "family", Session: "same"}
	}
	h := &history{units: []unit{
		{calls: "call_9fK2xQ7b", says: "s", last: "l", all: "a"}, {calls: "call_0", says: "t", last: "m", all: "b"},
		{says: "Done.", last: "n", all: "c"}, {answer: "msg_9fK2xQ7b"},
	}}
	for name, tenant := range tenants {
		for i, u := range h.units {
			e := kept{calls: u.calls, answer: u.answer, says: u.says, last: u.last, all: u.all, put: fmt.Sprint(name, i), bound: true}.entry()
			e.Tenant = tenant
			keep(t, b, e)
		}
		want := fmt.Sprintf("0 put %[1]s0, 1 put %[1]s1, 2 put %[1]s2, 3 put %[1]s3", name)
		if got := words(find(t, b, tenant, h)); got != want {
			t.Errorf("%s finds %s", name, got)
		}
		for other, tenant := range tenants {
			if got := words(find(t, b, tenant, h)); got != "" && !strings.Contains(got, other) || strings.Contains(got, name) != (other == name) {
				t.Errorf("%s finds %s", other, got)
			}
		}
	}
}

// Customers whose credentials show no name share a key.
func TestTwoCredentialsOfOneClassShareNothingWithoutASession(t *testing.T) {
	h := &history{units: []unit{
		{calls: "call_9fK2xQ7b", says: "s", last: "l", all: "a"}, {calls: "call_0", says: "t", last: "m", all: "b"},
		{says: "Done.", last: "n", all: "c"}, {answer: "msg_9fK2xQ7b"},
	}}
	const all = "0 put A0, 1 put A1, 2 put A2, 3 put A3"
	later := &history{units: []unit{ // all before is another
		{calls: "call_9fK2xQ7b", says: "s", last: "l", all: "x"}, {calls: "call_0", says: "t", last: "m", all: "y"}, {says: "Done.", last: "n", all: "z"},
	}}
	for _, tt := range []struct {
		name                 string
		kept, asked          Tenant
		want, wantOfLaterOne string
	}{
		{"the same token", Tenant{Exact: "1", Session: "x"}, Tenant{Exact: "1", Session: "x"}, all, "0 put A0, 1 put A1, 2 put A2"},
		{"the same token and no session", Tenant{Exact: "1"}, Tenant{Exact: "1"}, all, "0 put A0"},
		{"a renewed token in the same session", Tenant{Exact: "1", Session: "x"}, Tenant{Exact: "2", Session: "x"}, all, ""},
		{"a renewed token in the same long session", Tenant{Exact: "1", Session: strings.Repeat("x", 99)}, Tenant{Exact: "2", Session: strings.Repeat("x", 99)}, all, ""},
		{"a renewed token without a session", Tenant{Exact: "1"}, Tenant{Exact: "2"}, "", ""},
		{"a renewed token that claims a session that was not claimed before", Tenant{Exact: "1"}, Tenant{Exact: "2", Session: "x"}, "", ""},
		{"a renewed token that claims none any more", Tenant{Exact: "1", Session: "x"}, Tenant{Exact: "2"}, "", ""},
		{"another customer in an equal conversation", Tenant{Exact: "1", Session: "x"}, Tenant{Exact: "2", Session: "y"}, "", ""},
		{"another customer with another long session", Tenant{Exact: "1", Session: strings.Repeat("x", 99)}, Tenant{Exact: "2", Session: strings.Repeat("x", 98) + "y"}, "", ""},
		{"no credential at all", Tenant{}, Tenant{}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.kept.Key, tt.kept.Family, tt.asked.Key, tt.asked.Family = "class", "family", "class", "family"
			m := newMemory()
			b := opened(t, m, Options{})
			for i, u := range h.units {
				e := kept{calls: u.calls, answer: u.answer, says: u.says, last: u.last, all: u.all, put: fmt.Sprint("A", i), bound: true}.entry()
				e.Tenant, e.Exchange = tt.kept, Exchange(h, i)
				keep(t, b, e)
			}
			for range 2 {
				if got := words(find(t, b, tt.asked, h)); got != tt.want {
					t.Errorf("found %q, want %q", got, tt.want)
				}
				if got := words(find(t, b, tt.asked, later)); got != tt.wantOfLaterOne {
					t.Errorf("found %q, want %q, where all before is another", got, tt.wantOfLaterOne)
				}
				b = opened(t, m, Options{})
			}
		})
	}
}

func TestAnEntryThatCannotBeStoredIsFoundAllTheSame(t *testing.T) {
	m := newMemory()
	var reported []error
	b := opened(t, m, Options{Cache: 1, Report: func(err error) { reported = append(reported, err) }})
	m.breakWith(errDisk)
	e := kept{says: "s", last: "l", put: "A"}.entry()
	id, err := b.Keep(t.Context(), e)
	if !errors.Is(err, errDisk) || id == 0 || !b.Live(whole.Key) {
		t.Fatalf("id %d, %v", id, err)
	}
	h := &history{units: []unit{{says: "s", last: "l"}, {says: "t", last: "l"}, {says: "u", last: "l"}}}
	if got := words(find(t, b, whole, h)); got != "0 put A" {
		t.Errorf("found %s", got)
	}
	// The turn goes on, and fails again.
	e = kept{says: "t", last: "l", put: "B"}.entry()
	e.Replace = id
	if _, err = b.Keep(t.Context(), e); !errors.Is(err, errDisk) {
		t.Fatal(err)
	}
	if got := words(find(t, b, whole, h)); got != "1 put B" {
		t.Errorf("found %s", got)
	}
	// Once it works again, what was missing is written too.
	m.breakWith(nil)
	keep(t, b, kept{says: "u", last: "l", put: "C"}.entry())
	if len(b.unkept) != 0 || b.unkeptSize != 0 || len(reported) != 0 {
		t.Errorf("%d are not stored (%d bytes), reported %v", len(b.unkept), b.unkeptSize, reported)
	}
	for range 2 {
		if got := words(find(t, b, whole, h)); got != "1 put B, 2 put C" {
			t.Errorf("found %s", got)
		}
		b = opened(t, m, Options{})
	}
	if n, _ := m.has(); n != 2 {
		t.Errorf("%d records are stored", n)
	}
}

func TestAStoredEntryWhoseNextStateCannotBeStored(t *testing.T) {
	m := newMemory()
	b := opened(t, m, Options{Cache: 1})
	id := keep(t, b, kept{says: "s", last: "l", put: "A"}.entry())
	m.breakWith(errDisk)
	e := kept{says: "t", last: "l", put: "B"}.entry()
	e.Replace = id
	if _, err := b.Keep(t.Context(), e); !errors.Is(err, errDisk) {
		t.Fatal(err)
	}
	h := &history{units: []unit{{says: "s", last: "l"}, {says: "t", last: "l"}}}
	if got := words(find(t, b, whole, h)); got != "1 put B" {
		t.Errorf("found %s", got)
	}
	m.breakWith(nil)
	if got := words(find(t, opened(t, m, Options{}), whole, h)); got != "0 put A" {
		t.Errorf("after a restart: %s", got)
	}
	keep(t, b, kept{says: "x", put: "C"}.entry())
	if got := words(find(t, opened(t, m, Options{}), whole, h)); got != "1 put B" {
		t.Errorf("after it was written: %s", got)
	}
	if n, _ := m.has(); n != 2 {
		t.Errorf("%d records are stored", n)
	}
}

func TestWhatCannotBeStoredIsBounded(t *testing.T) {
	m := newMemory()
	b := opened(t, m, Options{Cache: 10_000})
	m.breakWith(errDisk)
	for i := range 100 {
		e := kept{says: fmt.Sprint(i), last: "l", put: strings.Repeat("x", 1000), bound: true}.entry()
		if _, err := b.Keep(t.Context(), e); err == nil {
			t.Fatal("it was stored")
		}
	}
	if b.unkeptSize > 10_000 || len(b.unkept) < 4 {
		t.Errorf("%d bytes in %d bodies are held", b.unkeptSize, len(b.unkept))
	}
	if got := words(find(t, b, whole, &history{units: []unit{{says: "0", last: "l"}}})); got != "0 unbind" {
		t.Errorf("the oldest: %s", got)
	}
	if got := find(t, b, whole, &history{units: []unit{{says: "99", last: "l"}}}); got.Mended != 1 {
		t.Errorf("the newest: %+v", got)
	}
}

func TestKeepGoesOnWhenItsContextEnds(t *testing.T) {
	m := newMemory()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := opened(t, m, Options{}).Keep(ctx, kept{says: "s", put: "A"}.entry()); err != nil {
		t.Error(err)
	}
	if n, _ := m.has(); n != 1 {
		t.Errorf("%d records are stored", n)
	}
}

func TestABodyThatCannotBeReadIsAnErrorAndNotPutBack(t *testing.T) {
	for name, tt := range map[string]struct {
		damage func(*memory)
		want   string
	}{
		"the store fails":           {func(m *memory) { m.breakWith(errDisk) }, errDisk.Error()},
		"it is cut":                 {func(m *memory) { r := m.rows[1]; r.body = r.body[:len(r.body)-1]; m.rows[1] = r }, "damaged"},
		"it has another text":       {func(m *memory) { m.rows[1].body[len(m.rows[1].body)-2] ^= 1 }, "damaged"},
		"it is of a later callgate": {func(m *memory) { m.rows[1].body[0] = 99 }, "unknown version"},
		"it is another record's":    {func(m *memory) { r := m.rows[1]; r.body = m.rows[2].body; m.rows[1] = r }, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			b, m := bookOf(t, kept{says: "s", last: "l", put: "A"}, kept{says: "t", last: "l", put: "B"})
			tt.damage(m)
			f, err := b.Find(t.Context(), whole, &history{units: []unit{{says: "s", last: "l"}}})
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "repair: what was withheld") || f.Mends != nil {
				t.Errorf("found %+v, %v", f, err)
			}
		})
	}
}

func TestABodyThatTheStoreHasDroppedIsGone(t *testing.T) {
	b, m := bookOf(t, kept{says: "s", last: "l", put: "A", bound: true}, kept{answer: "msg_01", put: "B"})
	if err := m.DropRepairs(t.Context(), []int64{1, 2}, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := words(find(t, b, whole, &history{units: []unit{{says: "s", last: "l"}}})); got != "0 unbind" {
			t.Errorf("found %s", got)
		}
		if _, err := b.Find(t.Context(), whole, &history{units: []unit{{answer: "msg_01"}}}); !errors.Is(err, ErrLost) {
			t.Errorf("got %v", err)
		}
	}
}

func TestOpenNamesWhatIsWrong(t *testing.T) {
	for name, tt := range map[string]struct {
		damage func(*memory)
		want   string
	}{
		"the store fails":               {func(m *memory) { m.fail = errDisk }, errDisk.Error()},
		"anchors are cut":               {func(m *memory) { m.rows[1] = row{tenant: "t", anchors: m.rows[1].anchors[:9]} }, "record 1"},
		"anchors are empty":             {func(m *memory) { m.rows[1] = row{tenant: "t"} }, "record 1"},
		"anchors are of a later one":    {func(m *memory) { m.rows[1].anchors[0] = 99 }, "unknown version"},
		"anchors have something behind": {func(m *memory) { m.rows[1] = row{tenant: "t", anchors: append(m.rows[1].anchors, 0)} }, "backup"},
	} {
		t.Run(name, func(t *testing.T) {
			_, m := bookOf(t, kept{says: "s", put: "A"})
			tt.damage(m)
			if _, err := Open(t.Context(), m, Options{}); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "repair: ") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// checkShelf counts again what a shelf has counted.
func checkShelf(t *testing.T, b *Book, s *shelf) {
	t.Helper()
	places, lists, held, bytes := 0, 0, 0, 0
	calls, shown, sizes := map[string]int{}, map[digest.Digest]int{}, map[int]int{}
	for _, list := range s.places {
		places += len(list)
		for _, r := range list {
			if b.byID[r.id] != r {
				t.Errorf("a place leads to a record that is not in the book: %+v", r)
			}
			if r.body != nil {
				held, bytes = held+1, bytes+r.size
			}
			if (r.body == nil) != r.gone.Load() {
				t.Errorf("record %d is held as though its body were not gone, or the other way", r.id)
			}
			sizes[r.count]++
			shown[r.shown]++
			for _, id := range r.calls {
				calls[id]++
			}
		}
	}
	for _, list := range s.lists {
		lists += len(list)
	}
	if n := s.order.Len(); places != n || lists > n || s.held.Len() != held || s.bytes != bytes {
		t.Errorf("%d records: %d in places, %d by lists; %d of %d held, %d of %d bytes", n, places, lists, s.held.Len(), held, s.bytes, bytes)
	}
	if !maps.Equal(calls, s.calls) || !maps.Equal(shown, s.shown) || !maps.Equal(sizes, s.sizes) {
		t.Errorf("counted %v, %v and %v, want %v, %v and %v", s.calls, s.shown, s.sizes, calls, shown, sizes)
	}
}

func TestManyAtOnce(t *testing.T) {
	m := newMemory()
	b := opened(t, m, Options{Limit: 60, TenantLimit: 17, TenantBytes: 1000, Cache: 2000, Report: func(err error) {
		if !errors.Is(err, errDisk) {
			t.Error(err)
		}
	}})
	var all sync.WaitGroup
	for c := range 8 {
		all.Go(func() {
			tenant := whole
			tenant.Key = fmt.Sprint("tenant ", c%4)
			var id ID
			for i := range 200 {
				e := kept{calls: fmt.Sprintf("call_%d_%08d", c, i), says: fmt.Sprint(i % 7), last: fmt.Sprint(i % 3), put: fmt.Sprint(tenant.Key, i)}.entry()
				e.Tenant = tenant
				e.Replace = id * ID(i%2)
				var err error
				if id, err = b.Keep(t.Context(), e); err != nil && !errors.Is(err, errDisk) {
					t.Error(err)
				}
				b.Live(tenant.Key)
				f, err := b.Find(t.Context(), tenant, &history{units: []unit{{calls: fmt.Sprintf("call_%d_%08d", c, i), says: fmt.Sprint(i % 7)}, {says: fmt.Sprint(i % 7), last: fmt.Sprint(i % 3), all: "?"}}})
				if err != nil && !errors.Is(err, errDisk) {
					t.Error(err)
				}
				for _, mend := range f.Mends {
					if !mend.Unbind && !strings.HasPrefix(string(mend.Rounds[0].Message), tenant.Key) {
						t.Errorf("%s finds %s", tenant.Key, mend.Rounds[0].Message)
					}
				}
				if i%50 == c {
					m.breakWith(errDisk)
					_, _ = b.Keep(t.Context(), kept{says: "unkept", put: "x"}.entry())
					m.breakWith(nil)
				}
			}
		})
	}
	all.Wait()
	keep(t, b, kept{says: "last", put: "x"}.entry())
	if len(b.byID) > 60 || len(b.ranks) != len(b.shelves) {
		t.Errorf("%d records, %d shelves of %d", len(b.byID), len(b.ranks), len(b.shelves))
	}
	n := 0
	for _, s := range b.shelves {
		n += s.order.Len()
		checkShelf(t, b, s)
	}
	if n != len(b.byID) {
		t.Errorf("the shelves hold %d records of %d", n, len(b.byID))
	}
}
