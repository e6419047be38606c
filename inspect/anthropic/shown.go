package anthropic

import (
	"slices"
	"strings"
	"sync"

	"callgate/inspect/frame"
	"callgate/inspect/rawjson"
)

// notice is the text of a block that is opened to keep the agent's connection
// alive where no text block stands open. Clients whose clocks count only
// content leave everything else aside, pings too.
const notice = "[callgate] Waiting for a decision on a tool call ..."

// working is such a text for the time in which the provider is asked again.
const working = "[callgate] Working on the answer ..."

// op is what an entry of the queue does to what is shown.
type op uint8

const (
	opPass      op = iota // goes out as it is
	opMessage             // message_start
	opBlock               // content_block_start
	opPart                // content_block_delta
	opBlockStop           // content_block_stop
	opFault               // something withheld that is no block
	opFinish              // message_delta
	opStop                // message_stop
	opError               // error
)

// entry is an event that waits to be shown.
type entry struct {
	op  op
	raw rawjson.Span // the event in held
	// at is where in the event a number or word stands that may have to
	// change: the block's index, or the stop reason.
	at    rawjson.Span
	base  int // where the data starts in the event
	block *block
	call  *call // of opFault
	said  int   // how much of what was heard is shown with it
	last  bool  // the message ends with it
}

// entryCost is what an entry is charged against the bytes that may wait, beside
// its event: events can be shorter than what is kept of them.
const entryCost = 100

// opens gives the call that begins at the entry, nil for most.
func (e *entry) opens() *call {
	switch {
	case e.op == opFault:
		return e.call
	case e.op == opBlock:
		return e.block.call
	}
	return nil
}

// shown is what the agent sees: the events that wait, and the state of the
// message that was given out so far.
type shown struct {
	dst   []byte
	queue []entry
	head  int
	held  []byte // the events of the queue
	room  *room  // that both lie in, nil while nothing waits

	structured  bool     // the answer's text must follow a schema
	started     bool     // message_start was given out
	finishShown bool     // message_delta was
	over        bool     // message_stop or an error was
	closing     bool     // nothing more will come
	place       int      // the index of the next block that is shown
	visible     []*block // the shown blocks that are open
	beating     *block   // the one of them that is our own and holds the notice
	texts       []string // refusals that found no place yet
	reason      string   // the stop reason that was shown
	altered     bool
	noticed     bool // a notice was shown
	// fresh says that nothing of a later round was shown yet: the blocks that
	// the round before has left open still are.
	fresh bool
}

// room is memory for events that wait, which turns use one after the other.
type room struct {
	queue []entry
	held  []byte
}

var rooms = sync.Pool{New: func() any { return &room{make([]entry, 0, 32), make([]byte, 0, 4096)} }}

// The largest room that is kept for other turns.
const (
	keptEntries = 1 << 10
	keptBytes   = 64 << 10
)

// empty ends the waiting: all that waited was given out.
func (s *shown) empty() {
	if r := s.room; r != nil && cap(s.queue) <= keptEntries && cap(s.held) <= keptBytes {
		clear(s.queue)
		r.queue, r.held = s.queue[:0], s.held[:0]
		rooms.Put(r)
	}
	s.room, s.queue, s.held, s.head = nil, nil, nil, 0
}

// pass queues an event that goes out as it is.
func (t *stream) pass(o op, raw []byte) {
	if o == opPass && len(t.queue) == 0 && (t.beating == nil || t.repair) {
		t.dst = append(t.dst, raw...)
		return
	}
	if last := len(t.queue) - 1; o == opPass && last >= t.head && t.queue[last].op == opPass {
		t.held = append(t.held, raw...)
		t.queue[last].raw.To = len(t.held)
		return
	}
	t.push(entry{op: o, last: o == opStop || o == opError}, raw)
}

func (t *stream) push(e entry, raw []byte) {
	if t.heard != nil {
		if len(t.queue) == 0 {
			t.heard.out = len(t.heard.said)
		}
		e.said = len(t.heard.said)
	}
	if len(t.queue) == 0 {
		if e.free() && !e.lingers() && !t.holds(&e) {
			t.emit(&e, raw)
			return
		}
		t.room = rooms.Get().(*room)
		t.queue, t.held = t.room.queue, t.room.held
	}
	from := len(t.held)
	t.held = append(t.held, raw...)
	e.raw = rawjson.Span{From: from, To: len(t.held)}
	t.queue = append(t.queue, e)
}

// part queues an event of a block, or gives it out at once when it is a part of
// a block that is shown and nothing waits. at is a place in the data.
func (t *stream) part(o op, ev *frame.Event, b *block, at rawjson.Span) {
	at = rawjson.Span{From: ev.At + at.From, To: ev.At + at.To}
	if o == opPart && len(t.queue) == 0 && t.beating == nil {
		t.dst = appendWith(t.dst, ev.Raw, at, b.index, b.shown)
		b.begun = true
		return
	}
	t.push(entry{op: o, at: at, base: ev.At, block: b, last: o == opFinish && t.phase == finished}, ev.Raw)
}

// appendWith appends raw with the index at the given place changed.
func appendWith(dst, raw []byte, at rawjson.Span, old, index int) []byte {
	if old == index {
		return append(dst, raw...)
	}
	dst = append(dst, raw[:at.From]...)
	dst = appendInt(dst, index)
	return append(dst, raw[at.To:]...)
}

// drain gives out the head of the queue as far as rulings allow.
func (t *stream) drain() {
	if len(t.queue) == 0 {
		return
	}
	for t.head < len(t.queue) {
		if t.repair && t.skip() {
			continue
		}
		if !t.ready() {
			return
		}
		e := t.queue[t.head]
		t.head++
		t.emit(&e, e.raw.In(t.held))
	}
	t.empty()
}

// ready reports whether the head of the queue may go out.
//
// The end of a text block is held until it is known what comes next, and
// longer if that is a call without a ruling: an open text block is the one
// place for a keep-alive that every client counts and none shows.
func (t *stream) ready() bool {
	e := &t.queue[t.head]
	if e.lingers() {
		if t.head+1 == len(t.queue) {
			return t.closing
		}
		e = &t.queue[t.head+1]
	}
	return e.free() && !t.holds(e)
}

// skip goes over an entry that leaves nothing, and reports whether there was
// one. The end of a text before it waits for what is behind it.
func (t *stream) skip() bool {
	e := &t.queue[t.head]
	if e.silent() {
		t.head++
		return true
	}
	if e.lingers() && t.head+1 < len(t.queue) && t.queue[t.head+1].silent() {
		t.queue[t.head+1] = *e
		t.head++
		return true
	}
	return false
}

// silent reports whether the entry is a part of a silent call.
func (e *entry) silent() bool { return e.block != nil && e.block.call != nil && e.block.call.silent }

// holds reports whether the entry ends an answer that later requests will be
// told of. It waits for the end of the round: the agent may send its next
// request at once, and whoever keeps what is told of this one must be first.
// Until all calls have their rulings it is not known whether the turn ends.
func (t *stream) holds(e *entry) bool {
	if !t.repair || !e.last {
		return false
	}
	if t.ended {
		return t.ruled < len(t.calls) || t.suspends()
	}
	_, withheld := t.tally()
	return withheld > 0 || t.noticed || t.rounds > 1
}

// blocked reports whether what waits is a call without a ruling, complete or
// not: writing a long file into its arguments takes a provider minutes.
func (t *stream) blocked() bool {
	if t.head == len(t.queue) {
		return false
	}
	e := &t.queue[t.head]
	if e.lingers() {
		if t.head+1 == len(t.queue) {
			return false
		}
		e = &t.queue[t.head+1]
	}
	return !e.free() || t.waiting()
}

// free reports whether rulings let the entry out. A released call goes out
// whole: it has a ruling only when it is complete, and nothing that needs one
// begins inside of it, or it would not be released.
func (e *entry) free() bool {
	c := e.opens()
	return c == nil || c.ruled
}

// lingers reports whether the entry is the end of a text block.
func (e *entry) lingers() bool { return e.op == opBlockStop && e.block.kind == textBlock }

// emit gives one entry out.
func (t *stream) emit(e *entry, raw []byte) {
	if t.heard != nil && len(t.queue) > 0 {
		t.heard.out = e.said
	}
	if (t.beating != nil || t.fresh) && !t.quiet(e) {
		t.closeOwn()
	}
	switch e.op {
	case opPass:
		t.dst = append(t.dst, raw...)
	case opMessage:
		if t.started {
			return // the start of a later round
		}
		t.dst = append(t.dst, raw...)
		t.started = true
		t.sayAll()
	case opBlock:
		t.emitStart(e, raw)
	case opPart:
		if c := e.block.call; c == nil || c.released() && c.ruling.Args == nil {
			t.dst = appendWith(t.dst, raw, e.at, e.block.index, e.block.shown)
			e.block.begun = true
		}
	case opBlockStop:
		if c := e.block.call; c != nil && !c.released() {
			return
		}
		t.dst = appendWith(t.dst, raw, e.at, e.block.index, e.block.shown)
		t.hide(e.block)
		if len(t.visible) == 0 {
			t.sayAll()
		}
	case opFault:
		t.refuse(e.call)
	case opFinish:
		if e.last {
			t.sayRefused()
		}
		t.sayAll()
		t.emitFinish(e, raw)
	case opStop:
		t.sayRefused()
		t.sayAll()
		if _, withheld := t.tally(); !t.finishShown && withheld > 0 {
			// The one that should have come was withheld.
			t.appendFinish(t.stopReason())
			t.finishShown, t.reason = true, t.stopReason()
		}
		t.dst = append(t.dst, raw...)
		t.over = true
	case opError:
		t.dst = append(t.dst, raw...)
		t.over = true
	}
}

// quiet reports whether the entry leaves open what stands open: a sign of life
// may stand inside a block, and the start of a later round is not shown.
func (t *stream) quiet(e *entry) bool {
	return t.repair && (e.op == opPass || e.op == opMessage && t.started)
}

// closeOwn ends the block of a notice, and what a round before has left open.
func (t *stream) closeOwn() {
	if t.fresh {
		for _, b := range t.visible {
			t.dst = appendStop(t.dst, b.shown)
		}
		t.visible, t.fresh = t.visible[:0], false
	} else {
		t.dst = appendStop(t.dst, t.beating.shown)
		t.hide(t.beating)
	}
	t.beating = nil
}

// refuse shows the refusal of something withheld that is no block.
func (t *stream) refuse(c *call) {
	t.altered, c.said = true, true
	t.texts = append(t.texts, c.refusal())
	if len(t.visible) == 0 || t.openText() != nil {
		t.sayAll()
	}
}

// sayRefused makes the refusals of silent calls the last words of an answer
// that ends with none of its calls left: its reader would not know why. One that
// says nothing at all gets words as well.
func (t *stream) sayRefused() {
	if t.silent > 0 && t.given == 0 {
		for _, c := range t.calls[t.first:] {
			if c.silent && !c.said {
				c.said = true
				t.texts = append(t.texts, c.refusal())
			}
		}
	}
	t.sayNothing()
}

func (t *stream) emitStart(e *entry, raw []byte) {
	b := e.block
	b.shown = t.place
	t.place++
	c := b.call
	switch {
	case c == nil:
		t.dst = appendWith(t.dst, raw, e.at, b.index, b.shown)
	case !c.released():
		t.altered, c.said = true, true
		t.own(c.refusal())
		t.dst = appendText(t.dst, b.shown, c.refusal())
		return
	case c.ruling.Args != nil:
		t.altered = true
		t.hand(c)
		t.emitEdited(e, raw)
	default:
		t.hand(c)
		t.dst = appendWith(t.dst, raw, e.at, b.index, b.shown)
	}
	if b.index != b.shown {
		t.altered = true
	}
	t.visible = append(t.visible, b)
}

// emitEdited gives out the start of a call with no input in it, and then the
// whole new input as one delta.
func (t *stream) emitEdited(e *entry, raw []byte) {
	c := e.block.call
	edits := []rawjson.Edit{{At: e.at, Text: appendInt(nil, e.block.shown)}}
	if in := c.input; in.There() {
		edits = append(edits, rawjson.Edit{At: rawjson.Span{From: e.base + in.From, To: e.base + in.To}, Text: []byte("{}")})
	}
	t.dst = rawjson.Apply(t.dst, raw, edits)
	t.dst = appendDelta(t.dst, e.block.shown, "input_json_delta", "partial_json", string(c.ruling.Args))
}

func (t *stream) emitFinish(e *entry, raw []byte) {
	t.finishShown = true
	reason := word(raw, e.at)
	if string(reason) == "tool_use" && t.lost() {
		t.dst = rawjson.Apply(t.dst, raw, []rawjson.Edit{{At: e.at, Text: []byte(`"end_turn"`)}})
		t.reason, t.altered = "end_turn", true
		return
	}
	t.dst = append(t.dst, raw...)
	if reason != nil {
		t.reason = own(reason)
	}
}

// lost reports whether calls were withheld and none was given out.
func (t *stream) lost() bool {
	_, withheld := t.tally()
	return withheld > 0 && !t.anyShown()
}

// hide takes a block off the list of those that are open.
func (t *stream) hide(b *block) {
	if i := slices.Index(t.visible, b); i >= 0 {
		t.visible = slices.Delete(t.visible, i, i+1)
	}
}

// openText gives a shown text block that is open, nil when there is none.
func (t *stream) openText() *block {
	for _, b := range slices.Backward(t.visible) {
		if b.kind == textBlock {
			return b
		}
	}
	return nil
}

// sayAll gives out the refusals that have no place of their own: within the
// text that is open, or as a block.
func (t *stream) sayAll() {
	if len(t.texts) == 0 || !t.started {
		return
	}
	texts := t.texts
	t.texts = nil
	if t.over {
		return // no client reads on
	}
	for _, text := range texts {
		t.own(text)
	}
	text := strings.Join(texts, "\n\n")
	if b := t.openText(); b != nil {
		if b.begun {
			text = "\n\n" + text
		}
		t.dst = appendDelta(t.dst, b.shown, "text_delta", "text", text+"\n\n")
		b.begun = true
		return
	}
	t.dst = appendText(t.dst, t.place, text)
	t.place++
}

// sign gives the notice that a keep-alive may show: while a call blocks, and
// while the provider is asked again. "" for none.
func (t *stream) sign() string {
	switch {
	case t.blocked() && !t.finishShown:
		return notice
	case t.suspended, t.fresh:
		return working
	}
	return ""
}

// beat gives out a keep-alive. With a notice, and where no text block is open,
// one is opened for it, unless words of ours would spoil a structured answer.
func (t *stream) beat(notice string) {
	t.altered = true
	if b := t.openText(); b != nil {
		t.dst = appendDelta(t.dst, b.shown, "text_delta", "text", "")
		return
	}
	if notice == "" || t.structured || len(t.visible) > 0 {
		t.dst = frame.AppendEvent(t.dst, "ping", []byte(`{"type":"ping"}`))
		return
	}
	t.beating = &block{shown: t.place, kind: textBlock, begun: true}
	t.place++
	t.visible = append(t.visible, t.beating)
	t.noticed = true
	t.own(notice)
	t.dst = appendStart(t.dst, t.beating.shown)
	t.dst = appendDelta(t.dst, t.beating.shown, "text_delta", "text", notice)
}

// closeMessage ends the blocks that are open, says what is left to say, and
// ends the message.
func (t *stream) closeMessage() {
	if t.openText() != nil {
		// Within the text, which may be empty so far and must not stay so.
		t.sayAll()
	}
	for _, b := range t.visible {
		t.dst = appendStop(t.dst, b.shown)
	}
	t.visible, t.beating = nil, nil
	t.sayAll()
	t.finishMessage(t.stopReason())
}

// finishMessage gives out what is missing of the end of the message.
func (t *stream) finishMessage(reason string) {
	t.altered = true
	if !t.finishShown {
		t.appendFinish(reason)
		t.finishShown, t.reason = true, reason
	}
	if !t.over {
		t.dst = frame.AppendEvent(t.dst, "message_stop", []byte(`{"type":"message_stop"}`))
		t.over = true
	}
}

// whole gives out a message that holds one text and nothing of the provider's
// but its name.
func (t *stream) whole(text string) {
	data := append([]byte(`{"type":"message_start","message":`), message(t.id, t.model, "", "", t.in, 0)...)
	t.dst = frame.AppendEvent(t.dst, "message_start", append(data, '}'))
	t.started = true
	t.texts = append(t.texts, text)
	t.sayAll()
	t.finishMessage("end_turn")
}
