package responses

import (
	"strconv"

	"callgate/inspect/frame"
	"callgate/inspect/rawjson"
)

// op is what an entry of the queue does to what is shown.
type op uint8

const (
	opPass     op = iota // goes out as it is
	opGap                // something that was dropped had a number
	opHead               // the response is under way
	opAside              // tells nothing of the answer
	opAdded              // an item starts
	opPart               // something of an item
	opDone               // an item ends
	opStub               // an item ends in a way that is ours
	opFault              // something withheld that is no item
	opTerminal           // the response has ended
	opError
)

// number is a number in an event that may have to change.
type number struct {
	at    rawjson.Span // in the data
	n     int
	there bool
}

func numberIn(b []byte, at rawjson.Span) number {
	n, ok := rawjson.Whole(b, at)
	return number{at, n, ok}
}

// entry is an event that waits to be shown.
type entry struct {
	op       op
	part     part
	raw      rawjson.Span // the event in held
	base     int          // where the data starts in the event
	size     int          // of the data
	seq, idx number
	item     *item
	text     rawjson.Span // in the data: text of a message
	response rawjson.Span // in the data
	plan     []place
}

// entryCost is what an entry is charged against the bytes that may wait, beside
// its event: events can be shorter than what is kept of them.
const entryCost = 200

// shownStream is what the agent sees: the events that wait, and the state of
// the stream that was given out so far.
type shownStream struct {
	dst     []byte
	queue   []entry
	head    int
	held    []byte // the events of the queue
	started bool   // the start of the response was given out
	over    bool   // the end of it was
	next    int    // the index of the next item that is shown
	last    int    // the last sequence number that was given out, -1 for none
	shift   int    // between the provider's numbers and those given out
	shifted bool   // it is known in this round
	bare    bool   // the provider gives no numbers
	texts   int    // bytes of text of items that have not ended
}

func (s *shownStream) empty() { s.queue, s.held, s.head = nil, nil, 0 }

// push queues an event, or gives it out at once when nothing waits.
func (t *stream) push(e entry, raw []byte) {
	if t.head == len(t.queue) && e.free() && !t.holds(&e) {
		t.emit(&e, raw)
		return
	}
	from := len(t.held)
	t.held = append(t.held, raw...)
	e.raw = rawjson.Span{From: from, To: len(t.held)}
	t.queue = append(t.queue, e)
}

// drain gives out the head of the queue as far as rulings allow.
func (t *stream) drain() {
	if len(t.queue) == 0 {
		return
	}
	for t.head < len(t.queue) {
		e := t.queue[t.head]
		if !e.free() || t.holds(&e) {
			return
		}
		t.head++
		t.emit(&e, e.raw.In(t.held))
	}
	t.empty()
}

// free reports whether rulings let the entry out.
func (e *entry) free() bool {
	return e.item == nil || e.item.call == nil || e.item.call.ruled
}

// holds reports whether the entry ends an answer that later requests will be
// told of. It waits for the end of the round: the agent may send its next
// request at once, and whoever keeps what is told of this one must be first.
// Until all calls have their rulings it is not known whether the turn ends.
func (t *stream) holds(e *entry) bool {
	if !t.repair || e.op != opTerminal && e.op != opError {
		return false
	}
	if t.ended {
		return t.ruled < len(t.calls) || t.suspends()
	}
	_, withheld := t.tally()
	return withheld > 0 || t.rounds > 1
}

// blocked reports whether what waits is a call without a ruling, complete or
// not: writing a long file into its arguments takes a provider minutes.
func (t *stream) blocked() bool {
	if t.head == len(t.queue) {
		return false
	}
	return !t.queue[t.head].free() || t.waiting()
}

// number gives the number under which an event goes out.
func (t *stream) number(n int) int {
	t.align(n)
	want := n + t.shift
	if t.shift != 0 && want <= t.last {
		want = t.last + 1
		t.shift = want - n
	}
	t.last = max(t.last, want)
	return want
}

// align makes the numbers of a later round go on behind those that were shown.
func (t *stream) align(n int) {
	if !t.shifted && t.rounds > 1 {
		t.shift = t.last + 1 - n
	}
	t.shifted = true
}

// gap notes that an event with a number is not shown.
func (t *stream) gap(n number) {
	t.altered = true
	if n.there {
		t.align(n.n)
		t.shift--
	}
}

// emit gives one entry out.
func (t *stream) emit(e *entry, raw []byte) {
	it := e.item
	switch e.op {
	case opPass:
		t.dst = append(t.dst, raw...)
	case opGap:
		t.gap(e.seq)
	case opHead:
		if t.rounds > 1 {
			t.gap(e.seq) // the start of a later round
			return
		}
		t.bare = !e.seq.there
		t.started = true
		t.pass(e, raw, nil)
	case opAside:
		t.pass(e, raw, nil)
	case opAdded, opPart, opDone:
		t.emitItem(e, raw)
	case opStub:
		if it.placed && !it.closed {
			it.closed = true
			t.own("response.output_item.done", `"output_index":`+strconv.Itoa(it.shown)+`,"item":`+string(it.raw))
		}
	case opFault:
		t.refuse(it)
	case opTerminal:
		for _, text := range t.lastWords() {
			t.speak(text)
		}
		edits := t.response(raw[e.base:e.base+e.size], e.response, e.plan)
		t.pass(e, raw, edits)
		t.over, t.shown = true, t.finish
	case opError:
		t.pass(e, raw, nil)
		t.over, t.shown = true, t.finish
	}
}

// pass gives an event out with its numbers and the changes to its data.
func (t *stream) pass(e *entry, raw []byte, edits []rawjson.Edit) {
	if e.seq.there {
		if n := t.number(e.seq.n); n != e.seq.n {
			edits = append(edits, rawjson.Edit{At: e.seq.at, Text: strconv.AppendInt(nil, int64(n), 10)})
		}
	}
	if e.item != nil && e.idx.there && e.item.shown != e.idx.n {
		edits = append(edits, rawjson.Edit{At: e.idx.at, Text: strconv.AppendInt(nil, int64(e.item.shown), 10)})
	}
	if len(edits) == 0 {
		t.dst = append(t.dst, raw...)
		return
	}
	t.altered = true
	for i := range edits {
		edits[i].At.From += e.base
		edits[i].At.To += e.base
	}
	t.dst = rawjson.Apply(t.dst, raw, edits)
}

// emitItem gives out an event of an item.
func (t *stream) emitItem(e *entry, raw []byte) {
	it, c := e.item, e.item.call
	if c != nil && !c.released() {
		if !it.placed {
			it.placed = true
			if !c.silent {
				t.refuse(it)
			}
		}
		t.gap(e.seq)
		return
	}
	if !it.placed {
		it.placed, it.shown = true, t.next
		t.next++
		if c != nil {
			t.hand(c)
		}
	}
	it.closed = it.closed || e.op == opDone
	if c != nil && c.edited() {
		t.emitEdited(e, raw)
		return
	}
	if e.text.There() && len(it.text) < t.lim.Answer {
		it.text = append(it.text, raw[e.base+e.text.From:e.base+e.text.To]...)
		t.texts += e.text.Len()
	}
	if it.closed && it.raw != nil { // which has all of it
		t.texts -= len(it.text)
		it.text = nil
	}
	t.pass(e, raw, nil)
}

// emitEdited gives out an event of a call that runs with other arguments. All
// copies are made from these; the first piece holds all of them.
func (t *stream) emitEdited(e *entry, raw []byte) {
	c := e.item.call
	data := raw[e.base : e.base+e.size]
	root := rawjson.All(data)
	p := patch{b: data, obj: root}
	switch {
	case e.op != opPart:
		p.obj = rawjson.Get(data, root, "item")
		switch {
		case e.op == opDone || c.kind.form == asValue:
			p.set(c.member, c.argsText())
		default:
			p.set(c.member, []byte(`""`))
		}
	case e.part == argsEnd || e.part == inputEnd:
		p.set(members[e.part], c.argsText())
	case e.part == argsPiece || e.part == inputPiece:
		if c.rewritten {
			t.gap(e.seq)
			return
		}
		c.rewritten = true
		p.set("delta", c.argsText())
	case e.part != otherPart: // the pieces of what stands whole in the item
		t.gap(e.seq)
		return
	}
	t.pass(e, raw, p.all())
	t.altered = true
}

// refuse shows the refusal of something withheld as a message.
func (t *stream) refuse(it *item) {
	it.call.said = true
	t.tellOwn(it, it.call.refusal())
}

// speak shows a text of ours.
func (t *stream) speak(text string) {
	it := &item{kind: unknownKind}
	t.list = append(t.list, it)
	t.tellOwn(it, text)
}

// tellOwn gives out a message of ours with all its events. The text of a
// response that is over is given to no client.
func (t *stream) tellOwn(it *item, text string) {
	t.altered = true
	if t.over {
		return
	}
	t.start()
	t.say(it, text)
	it.placed, it.closed, it.shown = true, true, t.next
	t.next++
	own := it.own
	root := rawjson.All(own)
	id := `"item_id":` + string(rawjson.Get(own, root, "id").In(own)) + `,`
	index := `"output_index":` + strconv.Itoa(it.shown) + `,`
	part := firstPart(own)
	lit := string(rawjson.Get(own, part, "text").In(own))
	content := id + index + `"content_index":0,`
	t.own("response.output_item.added", index+`"item":{"type":"message",`+`"id":`+string(rawjson.Get(own, root, "id").In(own))+`,"status":"in_progress","role":"assistant","content":[]}`)
	t.own("response.content_part.added", content+`"part":{"type":"output_text","annotations":[],"logprobs":[],"text":""}`)
	t.own("response.output_text.delta", content+`"delta":`+lit+`,"logprobs":[]`)
	t.own("response.output_text.done", content+`"text":`+lit+`,"logprobs":[]`)
	t.own("response.content_part.done", content+`"part":`+string(part.In(own)))
	t.own("response.output_item.done", index+`"item":`+string(own))
}

// own gives out an event of ours.
func (t *stream) own(typ, members string) {
	t.altered = true
	data := append([]byte(`{"type":"`), typ...)
	data = append(data, `",`...)
	if !t.bare {
		t.last++
		t.shift++
		data = append(strconv.AppendInt(append(data, `"sequence_number":`...), int64(t.last), 10), ',')
	}
	data = append(append(data, members...), '}')
	t.dst = frame.AppendEvent(t.dst, typ, data)
}

// start gives out the start of a response that the provider has not started.
func (t *stream) start() {
	if t.started {
		return
	}
	t.started = true
	begun := t.ending("in_progress", []byte("null"))
	p := patch{b: begun, obj: rawjson.All(begun)}
	p.set("output", []byte("[]"))
	p.set("usage", []byte("null"))
	begun = p.append(nil)
	if len(t.base) == 0 {
		t.base = begun
	}
	t.own("response.created", `"response":`+string(begun))
}

// closeItems ends the items that were shown in part.
func (t *stream) closeItems() {
	for _, it := range t.list {
		if !it.placed || it.closed || it.call != nil {
			continue
		}
		raw := stub(it.typ, it.id)
		if it.typ == "message" {
			p := patch{b: raw, obj: rawjson.All(raw)}
			p.set("content", []byte(`[{"type":"output_text","annotations":[],"logprobs":[],"text":"`+string(it.text)+`"}]`))
			raw = p.append(nil)
		}
		if raw == nil {
			continue
		}
		it.raw, it.closed = raw, true
		t.own("response.output_item.done", `"output_index":`+strconv.Itoa(it.shown)+`,"item":`+string(raw))
	}
}

// finishStream ends the response with what is missing of its end.
func (t *stream) finishStream(status string, failure []byte) {
	t.start()
	if status == "completed" {
		for _, text := range t.lastWords() {
			t.speak(text)
		}
	}
	if failure == nil {
		failure = []byte("null")
	}
	t.own("response."+status, `"response":`+string(t.ending(status, failure)))
	t.over, t.shown = true, status
}
