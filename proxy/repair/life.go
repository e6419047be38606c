package repair

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// How long records live after they were last of use, and how often that is
// written and looked at.
const (
	bodyLife   = 30 * 24 * time.Hour
	recordLife = 90 * 24 * time.Hour
	useEvery   = 24 * time.Hour
	sweepEvery = time.Hour
)

// sweep drops the bodies and records whose time is over.
func (b *Book) sweep(ctx context.Context, now time.Time) {
	b.swept.Store(now.UnixNano())
	var bodies, records []*record
	var bodyRows, rows []int64
	b.mu.RLock()
	for _, s := range b.ranks {
		for e := s.order.Back(); e != nil; e = e.Prev() {
			r := e.Value.(*record)
			age := time.Duration(now.UnixNano() - r.used)
			if age < bodyLife {
				break
			}
			if age >= recordLife {
				records = append(records, r)
				rows = appendRow(rows, r)
			} else if !r.gone.Load() {
				bodies = append(bodies, r)
				bodyRows = appendRow(bodyRows, r)
			}
		}
	}
	b.mu.RUnlock()
	if len(bodies)+len(records) == 0 {
		return
	}
	if err := b.store.DropRepairs(ctx, bodyRows, rows); err != nil {
		b.report(fmt.Errorf("repair: old records cannot be dropped: %w", err))
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range bodies {
		b.lose(r)
	}
	for _, r := range records {
		if b.byID[r.id] == r {
			b.remove(r)
		}
	}
}

// dropped are the rows of what had to go.
type dropped struct{ bodies, records []int64 }

// trim takes out of the book what is beyond the bounds of one tenant, its own
// that was of no use for longest: bodies first; mu is held.
func (b *Book) trim(s *shelf, d *dropped) {
	for s.bytes > b.tenantBytes && s.held.Len() > 1 {
		r := s.held.Back().Value.(*record)
		d.bodies = appendRow(d.bodies, r)
		b.lose(r)
	}
	for s.order.Len() > b.tenantLimit {
		r := s.oldest()
		d.records = appendRow(d.records, r)
		b.remove(r)
	}
}

// evict takes out of the book what is beyond its limit, from the tenants with
// the most records, so that none can take the place of others; mu is held.
func (b *Book) evict(d *dropped) {
	for len(b.byID) > b.limit {
		r := b.ranks[0].oldest()
		d.records = appendRow(d.records, r)
		b.remove(r)
	}
}

// thin takes bodies out of the book that are beyond what all may have, from the
// tenants with the most bytes, and a little more than that, so that tenants are
// not looked through each time; mu is held.
func (b *Book) thin(d *dropped) {
	if b.bytes <= b.allBytes {
		return
	}
	largest := slices.SortedFunc(maps.Values(b.shelves), func(x, y *shelf) int {
		return cmp.Or(cmp.Compare(y.bytes, x.bytes), cmp.Compare(x.oldest().id, y.oldest().id))
	})
	goal := b.allBytes - b.allBytes/16
	for n := 1; b.bytes > goal && n <= len(largest); n++ {
		level := 0 // down to what the next one has
		if n < len(largest) {
			level = largest[n].bytes
		}
		for again := true; again && b.bytes > goal; {
			again = false
			for _, s := range largest[:n] {
				if s.held.Len() == 0 || s.bytes <= level || b.bytes <= goal {
					continue
				}
				r := s.held.Back().Value.(*record)
				d.bodies = appendRow(d.bodies, r)
				b.lose(r)
				again = true
			}
		}
	}
}

func appendRow(rows []int64, r *record) []int64 {
	if r.row == 0 {
		return rows
	}
	return append(rows, r.row)
}

// forget drops from the store what is no longer in the book.
func (b *Book) forget(ctx context.Context, d dropped) {
	if len(d.bodies)+len(d.records) == 0 {
		return
	}
	if err := b.store.DropRepairs(ctx, d.bodies, d.records); err != nil {
		b.report(fmt.Errorf("repair: records that were given up cannot be dropped: %w", err))
	}
}

// use notes that records were of use now, once a day for each.
func (b *Book) use(ctx context.Context, records []*record) {
	now := time.Now()
	due := func(r *record) bool { return time.Duration(now.UnixNano()-r.used) >= useEvery }
	any := false
	b.mu.RLock()
	for _, r := range records {
		any = any || due(r)
	}
	b.mu.RUnlock()
	if !any {
		return
	}
	var rows []int64
	b.mu.Lock()
	for _, r := range records {
		if due(r) && b.byID[r.id] == r {
			r.used = now.UnixNano()
			s := b.shelves[r.tenant]
			s.use(r)
			heap.Fix(&b.ranks, s.rank)
			rows = appendRow(rows, r)
		}
	}
	b.mu.Unlock()
	if len(rows) == 0 {
		return
	}
	if err := b.store.UseRepairs(context.WithoutCancel(ctx), rows, now); err != nil {
		b.report(fmt.Errorf("repair: it cannot be noted that records were of use: %w", err))
	}
}
