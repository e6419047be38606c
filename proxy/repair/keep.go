package repair

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Keep writes an entry into the book, in the place of an earlier one of the
// same turn where e.Replace names it. When it returns without error the entry
// is on disk; it is found either way, for as long as the process lives. Keep
// goes on when ctx ends: an agent that leaves must not leave a conversation
// that cannot be mended. ErrTooLarge says that only what the entry is found by
// was kept.
func (b *Book) Keep(ctx context.Context, e Entry) (ID, error) {
	ctx = context.WithoutCancel(ctx)
	if e.Tenant.Key == "" {
		return 0, errors.New("repair: an entry without a tenant could be anybody's and is not kept")
	}
	r, kept := newRecord(e)
	now := time.Now()
	r.used = now.UnixNano()
	b.mu.RLock()
	before := b.byID[e.Replace]
	if before != nil {
		r.row = before.row
	}
	b.mu.RUnlock()
	if before != nil && before.tenant != r.tenant {
		return 0, errors.New("repair: an entry of another tenant is not replaced")
	}
	var large error
	if kept == nil {
		large = ErrTooLarge
	}
	row, err := b.store.KeepRepair(ctx, r.row, r.tenant, r.anchors(), kept, now)
	if err == nil {
		r.row = row
	}
	b.forget(ctx, b.enter(r, e.Replace, kept, err != nil))
	if err != nil {
		return r.id, fmt.Errorf("repair: what was withheld is known only until callgate ends: %w", errors.Join(err, large))
	}
	b.retry(ctx)
	if now.UnixNano()-b.swept.Load() >= int64(sweepEvery) {
		b.sweep(ctx, now)
	}
	if large != nil {
		return r.id, fmt.Errorf("repair: %w: later requests of this conversation go without it", large)
	}
	return r.id, nil
}

// enter puts r into the book, in place of the entry with that id, and gives
// what had to go for it.
func (b *Book) enter(r *record, replace ID, kept []byte, unkept bool) (d dropped) {
	var put *body
	if kept != nil {
		var err error
		if put, err = readBody(kept); err != nil {
			panic("repair: a body that was just written cannot be read: " + err.Error())
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if before := b.byID[replace]; before != nil {
		r.id = before.id
		switch {
		case unkept:
			r.row = before.row // retry may have written it meanwhile
		case before.row != r.row && before.row != 0:
			d.records = append(d.records, before.row)
		}
		b.remove(before)
	}
	b.add(r)
	if put != nil {
		b.cache.put(r, put)
	}
	if unkept {
		b.unkept[r] = kept
		b.unkeptSize += len(kept)
		b.boundUnkept()
	}
	b.trim(b.shelves[r.tenant], &d)
	b.evict(&d)
	b.thin(&d)
	return d
}

// boundUnkept lets the oldest bodies go that are nowhere but in memory, down to
// what the cache may hold; mu is held. Their records stay.
func (b *Book) boundUnkept() {
	for b.unkeptSize > b.cache.max && len(b.unkept) > 1 {
		var oldest *record
		for r := range b.unkept {
			if oldest == nil || r.used < oldest.used || r.used == oldest.used && r.id < oldest.id {
				oldest = r
			}
		}
		b.lose(oldest)
	}
}

// retryAtOnce is how many records one Keep writes that could not be written
// before.
const retryAtOnce = 8

// retry writes what could not be written before, a part at a time.
func (b *Book) retry(ctx context.Context) {
	if !b.retrying.TryLock() {
		return
	}
	defer b.retrying.Unlock()
	type attempt struct {
		r    *record
		row  int64
		body []byte
		used int64
	}
	var some []attempt
	b.mu.RLock()
	for r, kept := range b.unkept {
		if some = append(some, attempt{r, r.row, kept, r.used}); len(some) == retryAtOnce {
			break
		}
	}
	b.mu.RUnlock()
	for _, a := range some {
		row, err := b.store.KeepRepair(ctx, a.row, a.r.tenant, a.r.anchors(), a.body, time.Unix(0, a.used))
		if err != nil {
			b.report(fmt.Errorf("repair: what was withheld is still known only until callgate ends: %w", err))
			return
		}
		b.mu.Lock()
		replaced := b.byID[a.r.id] != a.r
		if !replaced {
			a.r.row = row
			b.unkeptSize -= len(b.unkept[a.r])
			delete(b.unkept, a.r)
		}
		b.mu.Unlock()
		switch {
		case replaced && row != a.row:
			b.forget(ctx, dropped{records: []int64{row}})
		case a.body != nil && a.r.gone.Load(): // meanwhile
			b.forget(ctx, dropped{bodies: []int64{row}})
		}
	}
}
