package gemini

import (
	"slices"
	"strconv"

	"callgate/inspect/rawjson"
)

// entry is a frame on its way to the agent.
type entry struct {
	kind entryKind
	raw  rawjson.Span // in held, while it waits
	at   rawjson.Span // the data in it
	mark int          // the comma before an element of an array
	c    *chunk
	// call and env are of entryFault: what the answer had said of itself by then.
	call *call
	env  envelope
}

type entryKind uint8

const (
	entryPass  entryKind = iota // holds nothing
	entryChunk                  // was read
	entryFault                  // is withheld as a whole
	entryEnd                    // the end of an array
)

// entryCost is what an entry is charged against the bytes that may wait, beside
// its frame.
const entryCost = 400

// queue holds the frames that wait for a ruling.
type queue struct {
	waiting []entry
	head    int
	held    []byte
}

// empty lets go of all that waits.
func (q *queue) empty() { *q = queue{} }

// push takes in a frame and gives out what has become free. Where nothing waits
// a frame that is free goes out at once.
func (t *turn) push(e entry, raw []byte) error {
	if e.kind == entryChunk {
		e.c = &t.room
	}
	if len(t.waiting) == 0 && t.ready(&e) {
		t.emit(&e, raw)
		return nil
	}
	if e.kind == entryChunk {
		own := t.room
		own.cands, own.parts = slices.Clone(own.cands), slices.Clone(own.parts)
		e.c = &own
	}
	e.raw = rawjson.Span{From: len(t.held), To: len(t.held) + len(raw)}
	t.held = append(t.held, raw...)
	t.waiting = append(t.waiting, e)
	if len(t.held)+len(t.waiting)*entryCost > t.lim.Held && t.form != formDocument {
		return t.limit("more than " + strconv.Itoa(t.lim.Held) + " bytes wait behind a call")
	}
	return nil
}

// drain gives out the head of the queue as far as rulings allow.
func (t *turn) drain() {
	for t.head < len(t.waiting) && t.ready(&t.waiting[t.head]) {
		e := &t.waiting[t.head]
		t.head++
		t.emit(e, e.raw.In(t.held))
	}
	if t.head == len(t.waiting) {
		t.empty()
	}
}

// ready reports whether a frame may go out.
func (t *turn) ready(e *entry) bool {
	switch {
	case e.call != nil && !e.call.ruled:
		return false
	case e.c != nil:
		for i := range e.c.parts {
			if k := e.c.parts[i].call; k != nil && !k.ruled {
				return false
			}
		}
		for _, s := range e.c.strays {
			if !s.call.ruled {
				return false
			}
		}
	}
	return !t.holds(e)
}

// holds reports whether the frame ends an answer that later requests will be
// told of. It waits for the end of the round: the agent may send its next
// request at once, and whoever keeps what is told of this one must be first. A
// document waits for its end in any case.
func (t *turn) holds(e *entry) bool {
	last := e.kind == entryEnd || e.c != nil && (e.c.finishes || e.c.broke)
	switch {
	case t.form == formDocument:
		return !t.ended || t.ruled < len(t.list)
	case !t.repair || !last || t.cutting:
		return false
	case t.ended:
		return t.ruled < len(t.list) || t.suspends()
	}
	return t.denied > 0 || t.rounds > 1
}
