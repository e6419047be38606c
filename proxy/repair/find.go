package repair

import (
	"cmp"
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
// cannot be made right: ErrLost, or a body that cannot be read, or that ctx has
// ended.
func (b *Book) Find(ctx context.Context, t Tenant, h inspect.History) (Found, error) {
	if t.Key == "" {
		return Found{}, nil
	}
	s := search{b: b, t: t, h: h, units: h.Units(), session: shortSession(t.Session), exact: exactly(t)}
	for _, step := range []func(context.Context) error{s.lookUp, s.byAnswers, s.byCalls, s.byDigests} {
		if err := step(ctx); err != nil {
			return Found{}, err
		}
	}
	b.use(ctx, s.touched)
	if err := s.mend(ctx); err != nil {
		return Found{}, err
	}
	return s.found, nil
}

// ended gives the error of a search that goes on no more.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("repair: the history was not looked through to its end: %w", err)
	}
	return nil
}

// search is one Find. Its work grows with the units and with the records that
// fit them, but not with the product of both.
type search struct {
	b       *Book
	t       Tenant
	h       inspect.History
	units   []inspect.Unit
	session string        // as records hold it
	exact   digest.Digest // as well

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

// sight says in how many units a known id stands.
type sight struct{ units, last int }

// lookUp goes through all units once and looks up their ids.
func (s *search) lookUp(ctx context.Context) error {
	s.b.mu.RLock()
	defer s.b.mu.RUnlock()
	shelf := s.b.shelves[s.t.Key]
	if shelf == nil {
		return nil
	}
	const often = 256 // looking at ctx costs as much as looking up an id
	var known []int
	var seen map[string]sight
	for i, u := range s.units {
		if i%often == 0 {
			if err := ended(ctx); err != nil {
				return err
			}
		}
		if u.Answer != "" {
			if records := shelf.answers[short(u.Answer)]; len(records) > 0 {
				s.answers = append(s.answers, candidates{i, records})
			}
			continue
		}
		anyStrong, anyKnown := false, false
		for _, id := range u.Calls {
			if id = short(id); !strong(id) {
				continue
			}
			anyStrong = true
			if shelf.calls[id] == 0 {
				continue
			}
			anyKnown = true
			if seen == nil {
				seen = map[string]sight{}
			}
			if at, ok := seen[id]; !ok || at.last != i {
				seen[id] = sight{at.units + 1, i}
			}
		}
		switch {
		case anyKnown:
			known = append(known, i)
		case !anyStrong && shelf.sizes[len(u.Calls)] > 0:
			s.loose = append(s.loose, i)
		}
	}
	once := func(id string) bool { return seen[short(id)].units == 1 } // only what is strong is in seen
	for n, i := range known {
		if n%often == 0 {
			if err := ended(ctx); err != nil {
				return err
			}
		}
		var records []*record
		if calls := s.units[i].Calls; slices.ContainsFunc(calls, once) {
			records = shelf.lists[listed(calls)]
		}
		if len(records) > 0 {
			s.calls = append(s.calls, candidates{i, records})
		} else {
			s.loose = append(s.loose, i)
		}
	}
	return nil
}

// byAnswers finds the records of answers that the provider holds: rule 1.
func (s *search) byAnswers(ctx context.Context) error {
	for _, c := range s.answers {
		if err := ended(ctx); err != nil {
			return err
		}
		id := s.units[c.unit].Answer
		records := filter(c.records, func(r *record) bool {
			return r.family == s.t.Family && (s.own(r) || s.claims(r) && strong(short(id)))
		})
		if len(records) == 0 {
			continue
		}
		records = s.ofSession(records)
		if s.taken[records[0]] {
			return fmt.Errorf("repair: the answer %q stands in the history of the request twice; begin a new conversation", id)
		}
		s.touch(records)
		switch r := best(records); {
		case r == nil:
			return fmt.Errorf("repair: the answer %q that the request goes on with: several were altered that have its id; begin a new conversation", id)
		case r.gone.Load():
			return lost(id)
		default:
			s.matches = append(s.matches, match{unit: c.unit, record: r})
		}
	}
	return nil
}

func lost(answer string) error {
	return fmt.Errorf("repair: the answer %q that the request goes on with: %w", answer, ErrLost)
}

// byCalls finds records by strong ids: rule 2. A list of calls with an id that
// stands in one unit is in one unit, so no record is found for two.
func (s *search) byCalls(ctx context.Context) error {
	for _, c := range s.calls {
		if err := ended(ctx); err != nil {
			return err
		}
		i := c.unit
		records := s.usable(i, c.records)
		if len(records) == 0 {
			s.loose = append(s.loose, i)
			continue
		}
		if len(records) > 1 {
			last := s.h.Last(i)
			records = prefer(records, func(r *record) bool { return r.last == last })
		}
		if len(records) > 1 {
			all := s.h.All(i)
			records = prefer(records, func(r *record) bool { return r.all == all })
		}
		records = s.ofSession(records)
		before := len(s.matches)
		s.settle([]int{i}, records)
		if len(s.matches) > before && !s.matches[before].torn {
			shown := s.h.Shown(i)
			s.matches[before].edited = !slices.ContainsFunc(records, func(r *record) bool { return r.shown == shown })
		}
	}
	return nil
}

// usable gives the records that rule 2 may find for unit i: the tenant's own,
// and those of another credential with the same session and all before the
// same.
func (s *search) usable(i int, records []*record) []*record {
	var asked bool
	var shown, last, all digest.Digest
	return filter(records, func(r *record) bool {
		switch {
		case r.family != s.t.Family || s.taken[r]:
			return false
		case s.own(r):
			return true
		case !s.claims(r):
			return false
		}
		if !asked {
			shown, last, all, asked = s.h.Shown(i), s.h.Last(i), s.h.All(i), true
		}
		return r.shown == shown && r.last == last && r.all == all
	})
}

// own reports whether the rules are for r as they are.
func (s *search) own(r *record) bool {
	return s.t.Stable || s.exact != digest.Digest{} && r.exact == s.exact
}

// claims reports whether the request claims the session of r.
func (s *search) claims(r *record) bool { return s.session != "" && r.session == s.session }

// byDigests finds records by what was shown and what stood before it: rule 3.
func (s *search) byDigests(ctx context.Context) error {
	var places []place // in the order of the units
	units := map[place][]int{}
	records := map[place][]*record{}
	for _, i := range s.loose {
		if err := ended(ctx); err != nil {
			return err
		}
		shown := s.h.Shown(i)
		if !s.saying(shown) {
			continue
		}
		at := place{shown, s.h.Last(i)}
		here, looked := records[at]
		if !looked {
			here = s.at(at)
			records[at] = here
		}
		if len(here) == 0 {
			continue
		}
		if units[at] == nil {
			places = append(places, at)
		}
		units[at] = append(units[at], i)
	}
	for _, at := range places {
		if err := s.share(ctx, units[at], records[at]); err != nil {
			return err
		}
	}
	return nil
}

// saying reports whether there are records of answers that say this.
func (s *search) saying(shown digest.Digest) bool {
	s.b.mu.RLock()
	defer s.b.mu.RUnlock()
	shelf := s.b.shelves[s.t.Key]
	return shelf != nil && shelf.shown[shown] > 0
}

// at gives the records of a place that rule 3 may find there.
func (s *search) at(at place) []*record {
	s.b.mu.RLock()
	var records []*record
	if shelf := s.b.shelves[s.t.Key]; shelf != nil {
		records = shelf.places[at]
	}
	s.b.mu.RUnlock()
	return filter(records, func(r *record) bool {
		return r.family == s.t.Family && !s.taken[r] && (s.own(r) || s.claims(r))
	})
}

// share gives units that say the same behind the same message the records of
// such: first by everything that stands before, then by the calls of the unit
// before, then by the session and what that unit says. Records of another
// credential are found by the first alone.
func (s *search) share(ctx context.Context, units []int, here []*record) error {
	rest, err := s.by(ctx, units, here, s.h.All, func(r *record) digest.Digest { return r.all })
	if err != nil || len(rest) == 0 {
		return err
	}
	here = filter(here, func(r *record) bool { return s.own(r) && !s.taken[r] })
	rest, err = s.by(ctx, rest, here, s.behind, func(r *record) digest.Digest { return r.behind })
	if err != nil || len(rest) == 0 {
		return err
	}
	here = filter(here, func(r *record) bool { return s.claims(r) && !s.taken[r] })
	_, err = s.by(ctx, rest, here, s.exchange, func(r *record) digest.Digest { return r.exchange })
	return err
}

// by settles the units for which there are records with the same digest, and
// gives the rest.
func (s *search) by(ctx context.Context, units []int, records []*record, of func(unit int) digest.Digest, has func(*record) digest.Digest) (rest []int, err error) {
	if len(records) == 0 || len(units) == 0 {
		return units, nil
	}
	var order []digest.Digest // of the units
	claimed := map[digest.Digest][]int{}
	for _, i := range units {
		if err := ended(ctx); err != nil {
			return nil, err
		}
		d := of(i)
		if claimed[d] == nil {
			order = append(order, d)
		}
		claimed[d] = append(claimed[d], i)
	}
	index := map[digest.Digest][]*record{}
	for _, r := range records {
		if d := has(r); d != (digest.Digest{}) && claimed[d] != nil {
			index[d] = append(index[d], r)
		}
	}
	for _, d := range order {
		if fit := index[d]; len(fit) > 0 {
			s.settle(claimed[d], fit)
		} else {
			rest = append(rest, claimed[d]...)
		}
	}
	slices.Sort(rest)
	return rest, nil
}

// behind names the unit before unit i by its calls.
func (s *search) behind(i int) digest.Digest {
	if i == 0 {
		return digest.Digest{}
	}
	return listed(s.units[i-1].Calls)
}

// exchange names the unit before unit i by what was said.
func (s *search) exchange(i int) digest.Digest { return Exchange(s.h, i) }

// settle gives units that nothing tells apart the records that fit them, each
// its own. It gives them none when the records are too few, or would do
// different things: what was thought there may be bound to what is not put
// back. No other unit gets any of the records by a later rule.
func (s *search) settle(units []int, records []*record) {
	records = s.ofSession(records)
	s.touch(records)
	first := best(records)
	if first == nil || len(records) < len(units) {
		s.found.Ambiguous += len(units)
		if bound := slices.IndexFunc(records, func(r *record) bool { return r.bound }); bound >= 0 {
			for _, i := range units {
				s.matches = append(s.matches, match{unit: i, record: records[bound], torn: true})
			}
		}
		return
	}
	if len(units) == 1 {
		s.matches = append(s.matches, match{unit: units[0], record: first})
		return
	}
	records = slices.SortedFunc(slices.Values(records), before)
	for n, i := range units {
		s.matches = append(s.matches, match{unit: i, record: records[n]})
	}
}

// before orders records that do the same: those that still can, then the
// oldest, so that the same one is put back each time.
func before(a, b *record) int {
	if gone := a.gone.Load(); gone != b.gone.Load() {
		if gone {
			return 1
		}
		return -1
	}
	return cmp.Compare(a.id, b.id)
}

// best gives the first of records that do the same, nil when they do not: those
// that put the same back, and those that put nothing back and have the same
// effect on thinking.
func best(records []*record) *record {
	first := slices.MinFunc(records, before)
	puts, lacks := true, true
	for _, r := range records {
		puts = puts && r.does == first.does
		lacks = lacks && r.gone.Load() && r.bound == first.bound
	}
	if !puts && !lacks {
		return nil
	}
	return first
}

// touch notes that records were found, or could not be told from those that
// were: were one of these let go, the others would be taken for what they are
// not.
func (s *search) touch(records []*record) {
	if s.taken == nil {
		s.taken = make(map[*record]bool, len(records))
	}
	for _, r := range records {
		if !s.taken[r] {
			s.taken[r] = true
			s.touched = append(s.touched, r)
		}
	}
}

// ofSession gives the records of the session that the request claims, or all
// when there are none.
func (s *search) ofSession(records []*record) []*record { return prefer(records, s.claims) }

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
		if err := ended(ctx); err != nil {
			return err
		}
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
			b.mu.Lock()
			b.lose(r)
			b.mu.Unlock()
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
