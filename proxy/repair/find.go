package repair

import (
	"context"
	"fmt"
	"slices"

	"callgate/inspect"
	"callgate/inspect/digest"
)

// Found is what a request's history must be mended with.
type Found struct {
	// Mends are by the index of the unit. What they hold is shared and must not
	// be changed.
	Mends map[int]inspect.Mend
	// Mended counts the units into which rounds are put back, Edited those of
	// them that the client has changed.
	Mended, Edited int
	// Unbound counts the units from which on thinking is taken out.
	Unbound int
	// Lost counts the units whose record has no body any more, and nothing in
	// it was bound: they stay as they are.
	Lost int
	// Ambiguous counts the units for which there was more than one answer.
	Ambiguous int
	// Refused counts the refusals that are put back from the task on that the
	// conversation is at (see inspect.History).
	Refused int
}

// Find finds what the history of a tenant's request must be mended with. It
// asks for digests only where they decide. An error says that the request
// cannot be made right: ErrLost, or a body that cannot be read.
func (b *Book) Find(ctx context.Context, t Tenant, h inspect.History) (Found, error) {
	if t.Key == "" {
		return Found{}, nil
	}
	s := search{b: b, t: t, h: h, units: h.Units()}
	if !s.lookUp() {
		return Found{}, nil
	}
	if err := s.byAnswers(); err != nil {
		return Found{}, err
	}
	s.byCalls()
	s.byDigests()
	b.use(ctx, s.touched)
	if err := s.mend(ctx); err != nil {
		return Found{}, err
	}
	return s.found, nil
}

// search is one Find.
type search struct {
	b     *Book
	t     Tenant
	h     inspect.History
	units []inspect.Unit

	answers, calls []candidates
	loose          []int // units to be looked up by what they say

	matches []match
	taken   map[*record]bool
	touched []*record // of use, or not told from those that are
	found   Found
}

// candidates are the records that may belong to a unit.
type candidates struct {
	unit    int
	records []*record
}

// match is a record that belongs to a unit.
type match struct {
	unit   int
	record *record
	edited bool
	// torn says that other records fit as well: which it is, is not known.
	torn bool
}

// lookUp goes through all units once and looks up their ids. It reports false
// when nothing can be found.
func (s *search) lookUp() bool {
	s.b.mu.RLock()
	defer s.b.mu.RUnlock()
	shelf := s.b.shelves[s.t.Key]
	if shelf == nil {
		return false
	}
	var known []int
	var seen map[string]int // in how many units a known id stands
	for i, u := range s.units {
		if u.Answer != "" {
			if records := s.ofFamily(shelf.answers[u.Answer]); len(records) > 0 {
				s.answers = append(s.answers, candidates{i, records})
			}
			continue
		}
		anyStrong, anyKnown := false, false
		for j, id := range u.Calls {
			if !strong(id) {
				continue
			}
			anyStrong = true
			if len(shelf.calls[id]) == 0 || slices.Contains(u.Calls[:j], id) {
				continue
			}
			anyKnown = true
			if seen == nil {
				seen = map[string]int{}
			}
			seen[id]++
		}
		switch {
		case anyKnown:
			known = append(known, i)
		case !anyStrong && shelf.sizes[len(u.Calls)] > 0:
			s.loose = append(s.loose, i)
		}
	}
	for _, i := range known {
		calls := s.units[i].Calls
		var records []*record
		for _, id := range calls {
			if strong(id) && seen[id] == 1 {
				records = filter(s.ofFamily(shelf.calls[id]), func(r *record) bool { return slices.Equal(r.calls, calls) })
			}
			if len(records) > 0 {
				break // each of them has all of the ids
			}
		}
		if len(records) > 0 {
			s.calls = append(s.calls, candidates{i, records})
		} else {
			s.loose = append(s.loose, i)
		}
	}
	return len(s.answers)+len(s.calls)+len(s.loose) > 0
}

func (s *search) ofFamily(records []*record) []*record {
	return filter(records, func(r *record) bool { return r.family == s.t.Family })
}

// byAnswers finds the records of answers that the provider holds: rule 1.
func (s *search) byAnswers() error {
	for _, c := range s.answers {
		id := s.units[c.unit].Answer
		if !s.t.Stable && !strong(id) {
			continue
		}
		r := s.decide(c.unit, c.records)
		switch {
		case r == nil:
			return fmt.Errorf("repair: the answer %q that the request goes on with: several were altered that have its id; begin a new conversation", id)
		case r.gone.Load():
			return lost(id)
		}
		s.matches = append(s.matches, match{unit: c.unit, record: r})
	}
	return nil
}

func lost(answer string) error {
	return fmt.Errorf("repair: the answer %q that the request goes on with: %w", answer, ErrLost)
}

// byCalls finds records by strong ids: rule 2.
func (s *search) byCalls() {
	for _, c := range s.calls {
		i, records := c.unit, c.records
		if !s.t.Stable {
			if records = s.chained(i, records); len(records) == 0 {
				s.loose = append(s.loose, i)
				continue
			}
		}
		if len(records) > 1 {
			records = prefer(records, s.lastIs(s.h.Last(i)))
		}
		if len(records) > 1 {
			records = prefer(records, s.allIs(s.h.All(i)))
		}
		if s.t.Session != "" {
			records = prefer(records, s.inSession)
		}
		if r := s.decide(i, records); r != nil {
			shown := s.h.Shown(i)
			same := func(r *record) bool { return r.shown == shown }
			s.matches = append(s.matches, match{unit: i, record: r, edited: !slices.ContainsFunc(records, same)})
		}
	}
}

// byDigests finds records by what was shown and what stood before it: rule 3.
func (s *search) byDigests() {
	type place struct{ shown, last digest.Digest }
	var places []place // in the order of the units
	units, records := map[place][]int{}, map[place][]*record{}
	for _, i := range s.loose {
		shown := s.h.Shown(i)
		said := filter(s.saying(shown), func(r *record) bool { return !s.taken[r] })
		if len(said) == 0 {
			continue
		}
		if !s.t.Stable {
			if chain := s.chained(i, said); len(chain) > 0 {
				s.settle(i, chain)
			}
			continue
		}
		at := place{shown, s.h.Last(i)}
		if units[at] == nil {
			places = append(places, at)
		}
		units[at], records[at] = append(units[at], i), said
	}
	for _, at := range places {
		s.share(units[at], records[at], at.last)
	}
}

// share gives units that say the same behind the same message the records of
// such: first by everything that stands before, then by the session.
func (s *search) share(units []int, said []*record, last digest.Digest) {
	here := filter(said, s.lastIs(last))
	var rest []int
	switch {
	case len(here) == 0:
		rest = units
	case len(here) == 1 && len(units) == 1 && s.t.Session != "" && s.inSession(here[0]):
		s.settle(units[0], here) // there is no need to know what else stands before
	default:
		for _, i := range units {
			own := filter(here, s.allIs(s.h.All(i)))
			if behind := s.behind(i); len(own) == 0 && behind != (digest.Digest{}) {
				own = filter(here, func(r *record) bool { return r.behind == behind })
			}
			if len(own) > 0 {
				s.settle(i, own)
			} else {
				rest = append(rest, i)
			}
		}
	}
	left := filter(here, func(r *record) bool { return s.t.Session != "" && s.inSession(r) && !s.taken[r] })
	switch {
	case len(left) == 0:
	case len(left) < len(rest):
		s.found.Ambiguous += len(rest)
		s.touch(left)
		for _, i := range rest {
			s.tear(i, left)
		}
	default:
		for _, i := range rest {
			s.settle(i, left)
		}
	}
}

// behind names the unit before unit i by its calls.
func (s *search) behind(i int) digest.Digest {
	if i == 0 {
		return digest.Digest{}
	}
	return callsBehind(s.units[i-1].Calls)
}

// settle decides between records and notes the match.
func (s *search) settle(unit int, records []*record) {
	if r := s.decide(unit, records); r != nil {
		s.matches = append(s.matches, match{unit: unit, record: r})
	}
}

// decide gives the record of a unit, nil when there are several that would do
// different things. No other unit gets any of them by a later rule.
func (s *search) decide(unit int, records []*record) *record {
	if len(records) > 1 && s.t.Session != "" {
		records = prefer(records, s.inSession)
	}
	s.touch(records)
	best := records[0]
	for _, r := range records[1:] {
		// The oldest, so that the same one is put back each time.
		if gone := best.gone.Load(); gone && !r.gone.Load() || gone == r.gone.Load() && r.id < best.id {
			best = r
		}
	}
	for _, r := range records {
		if !alike(best, r) {
			s.found.Ambiguous++
			s.tear(unit, records)
			return nil
		}
	}
	return best
}

// tear notes a unit for which there is more than one answer. What it thought
// may be bound to what is not put back.
func (s *search) tear(unit int, records []*record) {
	for _, r := range records {
		if r.bound {
			s.matches = append(s.matches, match{unit: unit, record: r, torn: true})
			return
		}
	}
}

// alike reports whether two records do the same.
func alike(a, b *record) bool {
	return a.does == b.does || a.gone.Load() && b.gone.Load() && a.bound == b.bound
}

// touch notes that records were found, or could not be told from those that
// were: were one of these let go, the others would be taken for what they are
// not.
func (s *search) touch(records []*record) {
	if s.taken == nil {
		s.taken = map[*record]bool{}
	}
	for _, r := range records {
		if !s.taken[r] {
			s.taken[r] = true
			s.touched = append(s.touched, r)
		}
	}
}

// saying gives the records of answers that say this.
func (s *search) saying(shown digest.Digest) []*record {
	s.b.mu.RLock()
	defer s.b.mu.RUnlock()
	shelf := s.b.shelves[s.t.Key]
	if shelf == nil {
		return nil
	}
	return s.ofFamily(shelf.shown[shown])
}

// chained gives the records of which all is the same: what was shown and all
// before it.
func (s *search) chained(i int, records []*record) []*record {
	shown := s.h.Shown(i)
	records = filter(records, func(r *record) bool { return r.shown == shown })
	if len(records) > 0 {
		records = filter(records, s.lastIs(s.h.Last(i)))
	}
	if len(records) > 0 {
		records = filter(records, s.allIs(s.h.All(i)))
	}
	return records
}

func (s *search) lastIs(d digest.Digest) func(*record) bool {
	return func(r *record) bool { return r.last == d }
}

func (s *search) allIs(d digest.Digest) func(*record) bool {
	return func(r *record) bool { return r.all == d }
}

func (s *search) inSession(r *record) bool { return r.session == s.t.Session }

// filter gives the records for which keep is true, in order.
func filter(records []*record, keep func(*record) bool) []*record {
	for i, r := range records {
		if keep(r) {
			continue
		}
		kept := slices.Clip(records[:i]) // what was looked up belongs to the book
		for _, r := range records[i+1:] {
			if keep(r) {
				kept = append(kept, r)
			}
		}
		return kept
	}
	return records
}

// prefer is filter, where it leaves any.
func prefer(records []*record, keep func(*record) bool) []*record {
	if kept := filter(records, keep); len(kept) > 0 {
		return kept
	}
	return records
}

// mend makes the mends of the matches and counts them.
func (s *search) mend(ctx context.Context) error {
	if len(s.matches) == 0 {
		return nil
	}
	s.found.Mends = make(map[int]inspect.Mend, len(s.matches))
	task := s.h.Task()
	for _, m := range s.matches {
		var put *body
		if !m.torn {
			var err error
			if put, err = s.b.body(ctx, m.record); err != nil {
				return err
			}
		}
		answer := s.units[m.unit].Answer
		switch {
		case put != nil:
			mend := inspect.Mend{Rounds: put.rounds, Edited: m.edited}
			s.found.Mended++
			if m.edited {
				mend.Notices = put.notices
				s.found.Edited++
			}
			if m.unit >= task {
				for _, r := range put.rounds {
					s.found.Refused += len(r.Refusals)
				}
			}
			s.found.Mends[m.unit] = mend
		case answer != "":
			return lost(answer) // since byAnswers looked
		case m.record.bound:
			s.found.Mends[m.unit] = inspect.Mend{Unbind: true}
			s.found.Unbound++
		default:
			s.found.Lost++
		}
	}
	return nil
}

// body gives what r puts back, nil when that is gone.
func (b *Book) body(ctx context.Context, r *record) (*body, error) {
	if r.gone.Load() {
		return nil, nil
	}
	if put := b.cache.get(r); put != nil {
		return put, nil
	}
	b.mu.RLock()
	kept, row := b.unkept[r], r.row
	b.mu.RUnlock()
	if kept == nil {
		var err error
		if kept, err = b.store.RepairBody(ctx, row); err != nil {
			return nil, fmt.Errorf("repair: what was withheld from an answer of this conversation cannot be read: %w", err)
		}
		if kept == nil {
			r.gone.Store(true)
			return nil, nil
		}
	}
	put, err := readBody(kept)
	if err == nil && sum(kept) != r.put {
		err = errDamaged
	}
	if err != nil {
		return nil, fmt.Errorf("repair: what was withheld from an answer of this conversation (record %d) is damaged: %w; "+
			"begin a new conversation, or restore the state directory from a backup", row, err)
	}
	b.cache.put(r, put)
	return put, nil
}
