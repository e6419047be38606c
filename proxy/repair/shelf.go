package repair

import (
	"cmp"
	"container/heap"
	"container/list"
	"slices"

	"callgate/inspect/digest"
)

// shelf holds the records of one tenant by what they are found by. Lists that
// were looked up stay as they are: what is added later is not in them, and what
// is removed still is.
type shelf struct {
	answers map[string][]*record
	lists   map[digest.Digest][]*record // by all ids of calls, one of them strong
	places  map[place][]*record
	calls   map[string]int        // how many records are found by an id
	shown   map[digest.Digest]int // records of answers that say this
	sizes   map[int]int           // records with so many calls

	order list.List // of *record, the one that was of use last in front
	held  list.List // of those with a body, in the same order
	bytes int       // of these bodies, as they are kept
	all   *int      // of those of all shelves
	rank  int       // in Book.ranks
}

// place is where an answer stands by what it says and the message before it.
type place struct{ shown, last digest.Digest }

func newShelf(all *int) *shelf {
	return &shelf{all: all, answers: map[string][]*record{}, lists: map[digest.Digest][]*record{}, places: map[place][]*record{},
		calls: map[string]int{}, shown: map[digest.Digest]int{}, sizes: map[int]int{}}
}

func (s *shelf) add(r *record) {
	r.turn = s.order.PushFront(r)
	if !r.gone.Load() {
		r.body = s.held.PushFront(r)
		s.bytes += r.size
		*s.all += r.size
	}
	s.sizes[r.count]++
	s.shown[r.shown]++
	at := place{r.shown, r.last}
	s.places[at] = append(s.places[at], r)
	if r.answer != "" {
		s.answers[r.answer] = append(s.answers[r.answer], r)
	}
	if r.list != (digest.Digest{}) {
		s.lists[r.list] = append(s.lists[r.list], r)
	}
	for _, id := range r.calls {
		s.calls[id]++
	}
}

func (s *shelf) remove(r *record) {
	s.order.Remove(r.turn)
	s.lose(r)
	countDown(s.sizes, r.count)
	countDown(s.shown, r.shown)
	takeOut(s.places, place{r.shown, r.last}, r)
	if r.answer != "" {
		takeOut(s.answers, r.answer, r)
	}
	if r.list != (digest.Digest{}) {
		takeOut(s.lists, r.list, r)
	}
	for _, id := range r.calls {
		countDown(s.calls, id)
	}
}

// lose notes that the body of r is no longer held.
func (s *shelf) lose(r *record) {
	if r.body != nil {
		s.held.Remove(r.body)
		r.body = nil
		s.bytes -= r.size
		*s.all -= r.size
	}
}

// use notes that r was of use.
func (s *shelf) use(r *record) {
	s.order.MoveToFront(r.turn)
	if r.body != nil {
		s.held.MoveToFront(r.body)
	}
}

// oldest gives the record that was of no use for longest.
func (s *shelf) oldest() *record { return s.order.Back().Value.(*record) }

func countDown[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] <= 0 {
		delete(counts, key)
	}
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

// ranks is a heap of shelves: in front the one with the most records, and of
// several the one whose oldest record was of no use for longest.
type ranks []*shelf

var _ heap.Interface = (*ranks)(nil)

func (h ranks) Len() int { return len(h) }

func (h ranks) Less(i, j int) bool {
	a, b := h[i], h[j]
	if a.order.Len() != b.order.Len() {
		return a.order.Len() > b.order.Len()
	}
	x, y := a.oldest(), b.oldest()
	return cmp.Or(cmp.Compare(x.used, y.used), cmp.Compare(x.id, y.id)) < 0
}

func (h ranks) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].rank, h[j].rank = i, j
}

func (h *ranks) Push(s any) {
	s.(*shelf).rank = len(*h)
	*h = append(*h, s.(*shelf))
}

func (h *ranks) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return s
}
