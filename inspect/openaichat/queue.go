package openaichat

import (
	"fmt"
	"slices"
)

// push gives an event out, or puts it behind what waits.
func (s *stream) push(e event) error {
	e.say, s.mark = s.said.size()-s.mark, s.said.size()
	ord := s.first + len(s.queue)
	if e.rd != nil {
		for _, c := range e.rd.calls {
			c.last = ord
		}
		if len(s.queue) == 0 && len(e.rd.calls) == 0 && !s.holds(&e) {
			s.emit(&e)
			return nil
		}
	} else if len(s.queue) == 0 && !s.holds(&e) {
		s.emit(&e)
		return nil
	}
	joins := s.joins(&e)
	if e.cost = len(e.raw); !joins {
		e.cost = s.cost(&e)
	}
	if err := s.hold(e.cost); err != nil {
		return err
	}
	s.unseen += e.say
	e.raw = s.keep(e.raw)
	if joins {
		last := &s.queue[len(s.queue)-1]
		to := len(s.kept)
		last.raw = s.kept[to-len(last.raw)-len(e.raw) : to : to]
		last.cost += e.cost
		last.say += e.say
		return nil
	}
	e.note = slices.Clone(e.note)
	if s.queue == nil {
		s.queue = make([]event, 0, 8)
	}
	s.queue = append(s.queue, e)
	return nil
}

// hold counts what waits.
func (s *stream) hold(cost int) error {
	if s.held += cost; s.held > s.lim.Held {
		return s.limit(fmt.Sprintf("event %d", s.count()), fmt.Sprintf("more than %d bytes wait behind an undecided call", s.lim.Held))
	}
	return nil
}

// joins reports whether an event can share the entry of the one before: both
// are comments or blank lines, and their bytes will stand in one piece of
// memory.
func (s *stream) joins(e *event) bool {
	if len(s.queue) == 0 || !e.idle() || cap(s.kept)-len(s.kept) < len(e.raw) {
		return false
	}
	last := &s.queue[len(s.queue)-1]
	return last.idle() && len(s.kept) > 0 && &last.raw[len(last.raw)-1] == &s.kept[len(s.kept)-1]
}

// idle reports whether an event says nothing to anyone.
func (e *event) idle() bool {
	return e.rd == nil && len(e.note) == 0 && e.kind == eventPlain && len(e.raw) > 0
}

// What an event that waits takes beside its bytes, at most, and what each choice
// and each part of a call that was read from it takes, in bytes.
const (
	entryCost   = 256
	choiceCost  = 384
	mentionCost = 256
)

// cost is what an event takes while it waits. A reading that it shares with the
// one before counts once.
func (s *stream) cost(e *event) int {
	n := len(e.raw) + entryCost
	if e.rd == nil || len(s.queue) > 0 && s.queue[len(s.queue)-1].rd == e.rd {
		return n
	}
	n += len(e.rd.top) * mentionCost
	for i := range e.rd.choices {
		n += choiceCost + len(e.rd.choices[i].mentions)*mentionCost
	}
	return n
}

// keep copies bytes of an event that waits. Events are small and come in rows,
// so several share one piece of memory, which is never moved.
func (s *stream) keep(raw []byte) []byte {
	if cap(s.kept)-len(s.kept) < len(raw) {
		s.kept = make([]byte, 0, max(len(raw), keptSize))
	}
	from := len(s.kept)
	s.kept = append(s.kept, raw...)
	return s.kept[from:len(s.kept):len(s.kept)]
}

const keptSize = 2 << 10

// drain gives out what no longer waits.
func (s *stream) drain() {
	if s.over || s.suspended || s.block != nil && s.block.blocks() {
		return // what came since stands behind
	}
	s.block = nil
	if s.owes() && s.settle() {
		return
	}
	for len(s.queue) > 0 {
		n := s.ready()
		if n == 0 {
			return
		}
		for i := range s.queue[:n] {
			s.held -= s.queue[i].cost
			s.unseen -= s.queue[i].say
			s.emit(&s.queue[i])
			s.queue[i] = event{}
		}
		s.queue = s.queue[n:]
		s.first += n
	}
	s.queue = nil
}

// ready gives how many events at the head of the queue may go. Events that
// share a call go together, so that no call is ever given out in part, and a
// call goes only when those with smaller numbers in its lane have rulings.
func (s *stream) ready() int {
	end := s.first
	for at := s.first; at <= end; at++ {
		if at-s.first >= len(s.queue) {
			return 0 // reading ended before all of it was queued
		}
		if s.holds(&s.queue[at-s.first]) {
			return 0
		}
		rd := s.queue[at-s.first].rd
		if rd == nil {
			continue
		}
		for _, c := range rd.calls {
			if c.blocks() {
				s.block = c
				return 0
			}
			end = max(end, c.last)
		}
	}
	return end - s.first + 1
}
