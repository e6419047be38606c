package repair

import (
	"context"
	"fmt"
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
	for e := b.order.Back(); e != nil; e = e.Prev() {
		r := e.Value.(*record)
		switch age := time.Duration(now.UnixNano() - r.used); {
		case age >= recordLife:
			records = append(records, r)
			rows = appendRow(rows, r)
		case age >= bodyLife && !r.gone.Load():
			bodies = append(bodies, r)
			bodyRows = appendRow(bodyRows, r)
		}
		if time.Duration(now.UnixNano()-r.used) < bodyLife {
			break
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
		r.gone.Store(true)
		b.release(r)
	}
	for _, r := range records {
		if b.byID[r.id] == r {
			b.remove(r)
		}
	}
}

// evict takes the records out of the book that are beyond its limit, those that
// were of no use for longest, and gives their rows; mu is held.
func (b *Book) evict() (rows []int64) {
	for len(b.byID) > b.limit {
		r := b.order.Back().Value.(*record)
		rows = appendRow(rows, r)
		b.remove(r)
	}
	return rows
}

func appendRow(rows []int64, r *record) []int64 {
	if r.row == 0 {
		return rows
	}
	return append(rows, r.row)
}

// forget drops rows that are no longer in the book.
func (b *Book) forget(ctx context.Context, rows []int64) {
	if len(rows) == 0 {
		return
	}
	if err := b.store.DropRepairs(ctx, nil, rows); err != nil {
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
			b.order.MoveToFront(r.place)
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
