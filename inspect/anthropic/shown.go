package anthropic

import (
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"callgate/inspect/frame"
)

// notice is the text of a block that is opened to keep the agent's connection
// alive where no text block stands open. Clients whose clocks count only
// content leave everything else aside, pings too.
const notice = "[callgate] Waiting for a decision on a tool call ..."

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
	op       op
	from, to int // the raw event in held
	// at and n say where in the raw event a number or word stands that may
	// have to change: the block's index, or the stop reason.
	at, n int
	base  int // where the data starts in the raw event
	block *block
	call  *call // of opFault
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
	held  []byte

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
}

// pass queues an event that goes out as it is.
func (t *stream) pass(o op, raw []byte) {
	if o == opPass && len(t.queue) == 0 && t.beating == nil {
		t.dst = append(t.dst, raw...)
		return
	}
	if last := len(t.queue) - 1; o == opPass && last >= t.head && t.queue[last].op == opPass {
		t.held = append(t.held, raw...)
		t.queue[last].to = len(t.held)
		return
	}
	t.push(entry{op: o}, raw)
}

func (t *stream) push(e entry, raw []byte) {
	if t.queue == nil {
		t.held, t.queue = make([]byte, 0, 4096), make([]entry, 0, 32)
	}
	e.from = len(t.held)
	t.held = append(t.held, raw...)
	e.to = len(t.held)
	t.queue = append(t.queue, e)
}

// part queues an event of a block, or gives it out at once when it is a part of
// a block that is shown and nothing waits. at and n are counted in the data.
func (t *stream) part(o op, ev *frame.Event, b *block, at, n int) {
	if o == opPart && len(t.queue) == 0 && t.beating == nil {
		t.dst = appendWith(t.dst, ev.Raw, ev.At+at, n, b.index, b.shown)
		b.begun = true
		return
	}
	t.push(entry{op: o, at: ev.At + at, n: n, base: ev.At, block: b}, ev.Raw)
}

// appendWith appends raw with the index at the given place changed.
func appendWith(dst, raw []byte, at, n, old, index int) []byte {
	if old == index {
		return append(dst, raw...)
	}
	dst = append(dst, raw[:at]...)
	dst = appendInt(dst, index)
	return append(dst, raw[at+n:]...)
}

// drain gives out the head of the queue as far as rulings allow.
func (t *stream) drain() {
	for t.head < len(t.queue) {
		if !t.ready() {
			return
		}
		e := t.queue[t.head]
		t.head++
		t.emit(&e, t.held[e.from:e.to])
	}
	clear(t.queue)
	t.queue, t.held, t.head = t.queue[:0], t.held[:0], 0
}

// ready reports whether the head of the queue may go out.
//
// The end of a text block is held until it is known what comes next, and
// longer if that is a call without a ruling: an open text block is the one
// place for a keep-alive that every client counts and none shows.
func (t *stream) ready() bool {
	e := &t.queue[t.head]
	if e.op == opBlockStop && e.block.kind == textBlock {
		if t.head+1 == len(t.queue) {
			return t.closing
		}
		return t.free(t.head + 1)
	}
	return t.free(t.head)
}

// blocked reports whether what waits is a call without a ruling, complete or
// not: writing a long file into its arguments takes a provider minutes.
func (t *stream) blocked() bool {
	if t.head == len(t.queue) {
		return false
	}
	e := &t.queue[t.head]
	return e.op != opBlockStop || e.block.kind != textBlock || t.head+1 < len(t.queue)
}

// free reports whether rulings let the entry out. A released call goes out
// whole: it has a ruling only when it is complete, and nothing that needs one
// begins inside of it, or it would not be released.
func (t *stream) free(i int) bool {
	c := t.queue[i].opens()
	return c == nil || c.ruled
}

// emit gives one entry out.
func (t *stream) emit(e *entry, raw []byte) {
	if t.beating != nil {
		t.dst = appendStop(t.dst, t.beating.shown)
		t.hide(t.beating)
		t.beating = nil
	}
	switch e.op {
	case opPass:
		t.dst = append(t.dst, raw...)
	case opMessage:
		t.dst = append(t.dst, raw...)
		t.started = true
		t.sayAll()
	case opBlock:
		t.emitStart(e, raw)
	case opPart:
		if c := e.block.call; c == nil || c.released() && c.ruling.Args == nil {
			t.dst = appendWith(t.dst, raw, e.at, e.n, e.block.index, e.block.shown)
			e.block.begun = true
		}
	case opBlockStop:
		if c := e.block.call; c != nil && !c.released() {
			return
		}
		t.dst = appendWith(t.dst, raw, e.at, e.n, e.block.index, e.block.shown)
		t.hide(e.block)
		if len(t.visible) == 0 {
			t.sayAll()
		}
	case opFault:
		t.altered = true
		t.texts = append(t.texts, e.call.refusal())
		if len(t.visible) == 0 || t.openText() != nil {
			t.sayAll()
		}
	case opFinish:
		t.sayAll()
		t.emitFinish(e, raw)
	case opStop:
		t.sayAll()
		if _, withheld := t.count(); !t.finishShown && withheld > 0 {
			// The one that should have come was withheld.
			t.dst = appendFinish(t.dst, t.stopReason(), max(t.out, 0))
			t.finishShown, t.reason = true, t.stopReason()
		}
		t.dst = append(t.dst, raw...)
		t.over = true
	case opError:
		t.dst = append(t.dst, raw...)
		t.over = true
	}
}

func (t *stream) emitStart(e *entry, raw []byte) {
	b := e.block
	b.shown = t.place
	t.place++
	c := b.call
	switch {
	case c == nil:
		t.dst = appendWith(t.dst, raw, e.at, e.n, b.index, b.shown)
	case !c.released():
		t.altered = true
		t.dst = appendText(t.dst, b.shown, c.refusal())
		return
	case c.ruling.Args != nil:
		t.altered = true
		t.given++
		t.emitEdited(e, raw)
	default:
		t.given++
		t.dst = appendWith(t.dst, raw, e.at, e.n, b.index, b.shown)
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
	edits := []edit{{e.at, e.n, appendInt(nil, e.block.shown)}}
	if c.input.n > 0 {
		edits = append(edits, edit{e.base + c.input.at, c.input.n, []byte("{}")})
	}
	t.dst = patch(t.dst, raw, edits...)
	t.dst = appendDelta(t.dst, e.block.shown, "input_json_delta", "partial_json", string(c.ruling.Args))
}

func (t *stream) emitFinish(e *entry, raw []byte) {
	t.finishShown = true
	reason := gjson.ParseBytes(raw[e.at : e.at+e.n])
	if words(reason) == "tool_use" && t.lost() {
		t.dst = patch(t.dst, raw, edit{e.at, e.n, []byte(`"end_turn"`)})
		t.reason, t.altered = "end_turn", true
		return
	}
	t.dst = append(t.dst, raw...)
	if reason.Type == gjson.String {
		t.reason = reason.Str
	}
}

// lost reports whether calls were withheld and none was given out.
func (t *stream) lost() bool {
	_, withheld := t.count()
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
	text := strings.Join(t.texts, "\n\n")
	t.texts = nil
	if t.over {
		return // no client reads on
	}
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

// beat gives out a keep-alive. While a call blocks and no text block is open,
// one is opened for it, unless words of ours would spoil a structured answer.
func (t *stream) beat(blocked bool) {
	t.altered = true
	if b := t.openText(); b != nil {
		t.dst = appendDelta(t.dst, b.shown, "text_delta", "text", "")
		return
	}
	if !blocked || t.structured || len(t.visible) > 0 {
		t.dst = frame.AppendEvent(t.dst, "ping", []byte(`{"type":"ping"}`))
		return
	}
	t.beating = &block{shown: t.place, kind: textBlock, begun: true}
	t.place++
	t.visible = append(t.visible, t.beating)
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
		t.dst = appendFinish(t.dst, reason, max(t.out, 0))
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
