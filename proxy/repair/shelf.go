package repair

import (
	"slices"

	"callgate/inspect/digest"
)

// shelf holds the records of one tenant by what they are found by. Lists that
// were looked up stay as they are: what is added later is not in them, and what
// is removed still is.
type shelf struct {
	records int
	answers map[string][]*record
	calls   map[string][]*record // by strong ids
	shown   map[digest.Digest][]*record
	sizes   map[int]int // records with so many calls
}

func newShelf() *shelf {
	return &shelf{answers: map[string][]*record{}, calls: map[string][]*record{}, shown: map[digest.Digest][]*record{}, sizes: map[int]int{}}
}

func (s *shelf) add(r *record) {
	s.records++
	s.sizes[len(r.calls)]++
	if r.answer != "" {
		s.answers[r.answer] = append(s.answers[r.answer], r)
	}
	for i, id := range r.calls {
		if strong(id) && !slices.Contains(r.calls[:i], id) {
			s.calls[id] = append(s.calls[id], r)
		}
	}
	s.shown[r.shown] = append(s.shown[r.shown], r)
}

func (s *shelf) remove(r *record) {
	s.records--
	if s.sizes[len(r.calls)]--; s.sizes[len(r.calls)] == 0 {
		delete(s.sizes, len(r.calls))
	}
	if r.answer != "" {
		takeOut(s.answers, r.answer, r)
	}
	for i, id := range r.calls {
		if strong(id) && !slices.Contains(r.calls[:i], id) {
			takeOut(s.calls, id, r)
		}
	}
	takeOut(s.shown, r.shown, r)
}

// takeOut removes r from the list under key without changing what others have
// looked up.
func takeOut[K comparable](index map[K][]*record, key K, r *record) {
	all := index[key]
	i := slices.Index(all, r)
	switch {
	case i < 0:
	case len(all) == 1:
		delete(index, key)
	case i == 0: // the oldest goes first, as a rule: nothing to copy
		index[key] = all[1:]
	default:
		index[key] = slices.Concat(all[:i], all[i+1:])
	}
}
