package repair

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

const days = 24 * time.Hour

// aged runs f with a clock that moves only while f sleeps.
func aged(t *testing.T, f func(t *testing.T, m *memory, b *Book)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		f(t, m, opened(t, m, Options{}))
	})
}

func text(says string) *history { return &history{units: []unit{{says: says, last: "l"}}} }

func TestABodyLivesThirtyDaysAndItsAnchorsNinety(t *testing.T) {
	aged(t, func(t *testing.T, m *memory, b *Book) {
		began := time.Now()
		keep(t, b, kept{says: "s", last: "l", put: "A", bound: true}.entry())
		for _, tt := range []struct {
			after           time.Duration
			records, bodies int
		}{{30*days - time.Hour, 1, 1}, {30 * days, 1, 0}, {90*days - time.Hour, 1, 0}, {90 * days, 0, 0}} {
			time.Sleep(tt.after - time.Since(began))
			keep(t, b, kept{tenant: "else", says: "x", put: fmt.Sprint(tt.after)}.entry()) // sweeps
			records, bodies := stored(m, whole.Key)
			if records != tt.records || bodies != tt.bodies || b.Live(whole.Key) != (tt.records > 0) {
				t.Errorf("after %v: %d records, %d bodies, live %v", tt.after, records, bodies, b.Live(whole.Key))
			}
		}
		if len(b.byID) != 4 {
			t.Errorf("%d records are in the book", len(b.byID))
		}
	})
}

// stored counts what a store has of a tenant.
func stored(m *memory, tenant string) (records, bodies int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.rows {
		if r.tenant == tenant {
			records++
			if r.body != nil {
				bodies++
			}
		}
	}
	return records, bodies
}

func TestUseRenewsABodyOnceADay(t *testing.T) {
	aged(t, func(t *testing.T, m *memory, b *Book) {
		keep(t, b, kept{says: "s", last: "l", put: "A"}.entry())
		for day := range 100 {
			for range 4 {
				if got := words(find(t, b, whole, text("s"))); got != "0 put A" {
					t.Fatalf("day %d: %s", day, got)
				}
				time.Sleep(6 * time.Hour)
			}
			keep(t, b, kept{tenant: "else", says: fmt.Sprint(day), put: "x"}.entry())
		}
		if n := m.called("use"); n < 95 || n > 100 {
			t.Errorf("use was written %d times in 100 days", n)
		}
		b = opened(t, m, Options{})
		if got := words(find(t, b, whole, text("s"))); got != "0 put A" {
			t.Errorf("after a restart: %s", got)
		}
	})
}

func TestUseRenewsAnchorsWithoutABody(t *testing.T) {
	aged(t, func(t *testing.T, m *memory, b *Book) {
		keep(t, b, kept{says: "s", last: "l", put: "A", bound: true}.entry())
		time.Sleep(31 * days)
		for range 3 {
			b = opened(t, m, Options{})
			if got := words(find(t, b, whole, text("s"))); got != "0 unbind" {
				t.Fatalf("found %q", got)
			}
			time.Sleep(80 * days)
		}
		time.Sleep(10 * days)
		if b = opened(t, m, Options{}); b.Live(whole.Key) {
			t.Error("it lives on without use")
		}
		if n, _ := m.has(); n != 0 {
			t.Errorf("%d records are stored", n)
		}
	})
}

// Were the records that were not told apart let go one by one, the last would
// be taken for the right one.
func TestRecordsThatCannotBeToldApartLiveOnTogether(t *testing.T) {
	aged(t, func(t *testing.T, m *memory, b *Book) {
		keep(t, b, kept{says: "s", last: "l", all: "a", put: "A"}.entry())
		time.Sleep(20 * days)
		keep(t, b, kept{says: "s", last: "l", all: "b", put: "B"}.entry())
		for range 8 {
			if got := words(find(t, b, whole, text("s"))); got != "1 ambiguous" {
				t.Fatalf("found %q", got)
			}
			time.Sleep(15 * days)
			b = opened(t, m, Options{})
		}
	})
}

func TestOldRecordsAreLookedForOnceAnHourAtMost(t *testing.T) {
	aged(t, func(t *testing.T, m *memory, b *Book) {
		for i := range 12 {
			keep(t, b, kept{says: fmt.Sprint(i), put: "A"}.entry())
			time.Sleep(5 * time.Minute)
		}
		time.Sleep(30*days - 80*time.Minute)
		for i := range 72 {
			keep(t, b, kept{tenant: "else", says: fmt.Sprint(i), put: "A"}.entry())
			time.Sleep(5 * time.Minute)
		}
		if n := m.called("drop"); n == 0 || n > 2 {
			t.Errorf("records were dropped %d times in six hours", n)
		}
		if n := b.cache.order.Len(); n != 72 {
			t.Errorf("%d bodies are held", n)
		}
		if _, bodies := stored(m, whole.Key); bodies != 0 {
			t.Errorf("%d old bodies are stored", bodies)
		}
	})
}

func TestWhatCannotBeDroppedOrRenewedIsReportedAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		var reported []error
		o := Options{Report: func(err error) { reported = append(reported, err) }}
		b := opened(t, m, o)
		keep(t, b, kept{says: "s", last: "l", put: "A", bound: true}.entry())
		time.Sleep(2 * days)
		m.breakWith(errDisk)
		if got := words(find(t, b, whole, text("s"))); got != "0 put A" || len(reported) != 1 {
			t.Errorf("found %q, reported %v", got, reported)
		}
		time.Sleep(40 * days)
		b.sweep(t.Context(), time.Now())
		if got := words(find(t, b, whole, text("s"))); got != "0 put A" || len(reported) != 3 {
			t.Errorf("found %q, reported %v", got, reported)
		}
		m.breakWith(nil)
		time.Sleep(31 * days)
		b.sweep(t.Context(), time.Now())
		if got := words(find(t, b, whole, text("s"))); got != "0 unbind" || len(reported) != 3 {
			t.Errorf("found %q, reported %v", got, reported)
		}
	})
}

func TestTheRecordsOfNoUseForLongestGoWhenThereAreTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		b := opened(t, m, Options{Limit: 3})
		for i := range 3 {
			keep(t, b, kept{says: fmt.Sprint(i), last: "l", put: fmt.Sprint(i)}.entry())
			time.Sleep(days)
		}
		find(t, b, whole, text("0")) // of use again
		keep(t, b, kept{says: "3", last: "l", put: "3"}.entry())
		time.Sleep(days)
		all := &history{}
		for i := range 5 {
			all.units = append(all.units, unit{says: fmt.Sprint(i), last: "l"})
		}
		for range 2 {
			if got := words(find(t, b, whole, all)); got != "0 put 0, 2 put 2, 3 put 3" {
				t.Errorf("found %s", got)
			}
			if n, _ := m.has(); n != 3 {
				t.Errorf("%d records are stored", n)
			}
			b = opened(t, m, Options{Limit: 3})
		}
		// The first record that was kept is the one that was of use last.
		time.Sleep(days)
		find(t, b, whole, text("0"))
		b = opened(t, m, Options{Limit: 1})
		if got := words(find(t, b, whole, all)); got != "0 put 0" {
			t.Errorf("found %s", got)
		}
		if n, _ := m.has(); n != 1 || len(b.byID) != 1 {
			t.Errorf("%d records are stored and %d in the book", n, len(b.byID))
		}
	})
}
