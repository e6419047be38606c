package responses

import (
	"errors"
	"slices"
	"strconv"

	"callgate/inspect"
	"callgate/inspect/frame"
	"callgate/inspect/rawjson"
	"callgate/inspect/toolcall"
)

// stream is a turn that comes as server-sent events. This file drives it; what
// events say is read in events.go, and what the agent is shown is the business
// of shown.
type stream struct {
	turn
	shownStream
	sse     frame.SSE
	onEvent func(*frame.Event) error
	step    inspect.Step
	phase   phase
	items   []*item // of the round, by their index
	names   map[string]*item
	open    []*item // the calls that are under way
	fields  []member
	dropped bool // the event before was dropped, with a fault of its own
	done    bool
	ended   bool // EndRound was called
	end     inspect.End
}

// phase is how far the provider has come.
type phase uint8

const (
	unstarted phase = iota
	running
	stopped // the response has ended: nothing may follow
)

func newStream(r *request) *stream {
	t := &stream{turn: newTurn(r)}
	t.sse.Max = r.limits.Frame
	t.onEvent = t.event
	t.last = -1
	return t
}

// Feed takes the next bytes of the stream.
func (t *stream) Feed(dst, p []byte) (inspect.Step, error) {
	t.dst = dst
	if t.failed != nil {
		return t.give(), t.failed
	}
	if t.ended || t.done {
		return t.give(), t.fail("fed after its end", nil)
	}
	if err := t.sse.Feed(p, t.onEvent); err != nil {
		return t.give(), t.fail("", err)
	}
	return t.give(), nil
}

// give ends a step.
func (t *stream) give() inspect.Step {
	s := t.step
	s.Out, s.Held = t.dst, len(t.held)+len(t.queue)*entryCost+t.size+t.weight+t.texts
	t.dst, t.step = nil, inspect.Step{}
	switch {
	case t.done:
		s.State = inspect.Done
	case t.suspended:
		s.State = inspect.Suspended
	case t.blocked():
		s.State = inspect.Waiting
	}
	return s
}

// fail ends the reading. What was queued stays in.
func (t *stream) fail(reason string, err error) *inspect.Error {
	e, ok := errors.AsType[*inspect.Error](err)
	if !ok {
		e = &inspect.Error{Dialect: Name, Where: "event " + strconv.Itoa(t.sse.Count()+1), Reason: reason, Err: err}
	}
	if _, ok := errors.AsType[*frame.TooLargeError](err); ok {
		e.Reason, e.Limit = "the event is too large", true
	}
	t.failed, t.altered = e, true
	return e
}

// event takes one event in and gives out what has become free.
func (t *stream) event(ev *frame.Event) error {
	if ev.Cut {
		t.altered = true
	}
	if ev.Odd == "" {
		if ev.Empty() {
			t.dropped = false
			t.push(entry{op: opPass}, ev.Raw)
			return t.settleQueue()
		}
		if d, ok := readDelta(ev.Data); ok && t.phase == running && t.plain(ev, &d) {
			return t.settleQueue()
		}
	}
	if err := t.slow(ev); err != nil {
		return err
	}
	return t.settleQueue()
}

// settleQueue gives out what is free and keeps the rest within its bound.
func (t *stream) settleQueue() error {
	t.drain()
	if t.issued < len(t.calls) {
		t.step.Calls = t.issue(t.step.Calls)
	}
	where := "event " + strconv.Itoa(t.sse.Count())
	if len(t.held)+len(t.queue)*entryCost > t.lim.Held {
		return t.limit(where, "more than "+strconv.Itoa(t.lim.Held)+" bytes wait behind a call")
	}
	if reason := t.tooMuch(); reason != "" {
		return t.limit(where, reason)
	}
	return nil
}

// fault withholds an event. Inside a call it spoils the call. Elsewhere it
// becomes a call of its own, so that it is seen, counted and answered; what
// follows it at once and is no better belongs to the same one.
func (t *stream) fault(ev *frame.Event, f toolcall.Fault, reason string) error {
	t.altered = true
	t.forgo(ev)
	reason = "event " + strconv.Itoa(t.sse.Count()) + ": " + reason
	if len(t.open) > 0 {
		t.spoil(reason)
		return nil
	}
	if t.dropped {
		return nil
	}
	t.dropped = true
	it, err := t.refused("event", f, reason, ev.Raw)
	if err != nil {
		return err
	}
	t.push(entry{op: opFault, item: it}, nil)
	return nil
}

// forgo closes the gap that an event leaves in the numbers, where it has one.
func (t *stream) forgo(ev *frame.Event) {
	if t.strict(ev.Data) != nil {
		return
	}
	if seq := rawjson.Get(ev.Data, rawjson.All(ev.Data), "sequence_number"); seq.There() {
		t.push(entry{op: opGap, seq: numberIn(ev.Data, seq)}, nil)
	}
}

// spoil makes the calls that are under way faulty.
func (t *stream) spoil(reason string) {
	for _, it := range t.open {
		it.call.blame(toolcall.FaultAmbiguous, reason)
	}
}

// truncate ends the calls that are under way with a fault.
func (t *stream) truncate(reason string) {
	for _, it := range t.open {
		c := it.call
		c.blame(toolcall.FaultTruncated, reason)
		for _, p := range c.pieces {
			c.Args = append(c.Args, p.deltas...)
		}
		if c.Args == nil {
			c.Args = c.start
		}
		c.Args = c.Args[:min(len(c.Args), t.lim.Args)]
		c.complete = true
	}
	t.open = t.open[:0]
}

// Resolve carries out a ruling.
func (t *stream) Resolve(dst []byte, seq int, r inspect.Ruling) (inspect.Step, error) {
	t.dst = dst
	if t.done || !t.rule(seq, r) {
		return t.give(), inspect.Unresolvable(seq)
	}
	t.drain()
	t.conclude()
	return t.give(), nil
}

// EndRound ends the provider's answer.
func (t *stream) EndRound(dst []byte, end inspect.End) (inspect.Step, error) {
	t.dst = dst
	if t.ended || t.done {
		return t.give(), nil
	}
	if t.failed != nil {
		return t.give(), t.failed
	}
	switch {
	case end == inspect.EndCut && t.sse.Pending() > 0:
		t.altered = true // half an event is not passed on
	case end == inspect.EndClean:
		if err := t.sse.Close(t.onEvent); err != nil {
			return t.give(), t.fail("", err)
		}
		if t.rounds > 1 && t.phase != stopped {
			return t.give(), t.fail("the further answer broke off", nil)
		}
	}
	t.truncate("the answer ended inside the call")
	for _, it := range t.items {
		if it.kind.class == hostedItem && !it.done && it.call == nil {
			t.step.Hosted = append(t.step.Hosted, t.hostedCall(it.typ, it.id, it.raw, rawjson.All(it.raw))) // it may have run all the same
		}
	}
	t.ended, t.end = true, end
	if err := t.settleQueue(); err != nil {
		return t.give(), t.fail("", err)
	}
	t.conclude()
	return t.give(), nil
}

// suspends reports whether the turn waits for a further round.
func (t *stream) suspends() bool {
	return t.ended && t.end == inspect.EndClean && t.phase == stopped && !t.broke && !t.over && t.started && t.resumable(t.finish) && !t.schemed()
}

// conclude finishes the turn once everything was given out. Where something
// was withheld and the provider did not end its answer, it is ended here.
func (t *stream) conclude() {
	if !t.ended || t.done {
		return
	}
	if t.suspends() {
		// The end of the round stays in.
		t.suspended = true
		behind := t.queue[t.head:]
		t.empty()
		for _, e := range behind {
			if e.op == opFault {
				t.refuse(e.item)
			}
		}
		return
	}
	if t.head < len(t.queue) {
		return
	}
	t.done = true
	if _, withheld := t.tally(); withheld == 0 || t.end != inspect.EndClean || t.over {
		return
	}
	t.finishStream("completed", nil)
}

// NextRound goes on with a further stream.
func (t *stream) NextRound(response inspect.Head) error {
	stream, err := streams(response)
	switch {
	case !t.suspended:
		return notSuspended
	case err != nil:
		return err
	case !stream:
		return otherForm
	}
	t.nextRound()
	t.sse = frame.SSE{Max: t.lim.Frame}
	t.phase, t.items, t.names, t.open = unstarted, nil, nil, nil
	t.dropped, t.ended, t.shifted = false, false, false
	return nil
}

var (
	notSuspended = &inspect.Error{Dialect: Name, Where: "next round", Reason: "the turn does not wait for one"}
	otherForm    = &inspect.Error{Dialect: Name, Where: "content-type", Reason: "the further answer has another form than the first, so that it cannot go on with it"}
)

// Told gives the rounds of the stream and what was shown of them.
func (t *stream) Told() inspect.Told {
	whole := t.phase == stopped && t.failed == nil && !t.broke && completes(t.finish)
	return t.told(t.phase != unstarted || len(t.current()) > 0, whole)
}

// KeepAlive repeats that the response is in progress: the one event that says
// nothing new and that every client counts as a sign of life. It holds the items
// so far, since some clients take the newest response for all there is.
func (t *stream) KeepAlive(dst []byte) []byte {
	if t.done || !t.started || t.over {
		return dst
	}
	t.altered = true
	t.dst = dst
	t.own("response.in_progress", `"response":`+string(t.soFar()))
	dst, t.dst = t.dst, nil
	return dst
}

// maxRepeated is how many bytes of items a sign of life repeats.
const maxRepeated = 64 << 10

// soFar is the response as it stands: as it began where the items are too many.
func (t *stream) soFar() []byte {
	if t.next == 0 || t.full {
		return t.base
	}
	list := []byte{'['}
	items := slices.DeleteFunc(slices.Clone(t.list), func(it *item) bool { return !it.placed || it.call != nil && it.own == nil && !it.call.given })
	slices.SortStableFunc(items, func(a, b *item) int { return a.shown - b.shown })
	for _, it := range items {
		raw := it.shownRaw()
		if !it.closed && it.own == nil {
			raw = it.open()
		}
		if raw == nil || len(list)+len(raw) > maxRepeated {
			return t.base
		}
		list = append(comma(list, 1), raw...)
	}
	p := patch{b: t.base, obj: rawjson.All(t.base)}
	p.set("output", append(list, ']'))
	return p.append(nil)
}

// open gives an item that was shown in part as one that is under way, nil where
// nothing is known of it.
func (it *item) open() []byte {
	raw := stub(it.typ, it.id)
	if it.typ != "message" {
		return raw
	}
	p := patch{b: raw, obj: rawjson.All(raw)}
	p.set("status", []byte(`"in_progress"`))
	if len(it.text) > 0 {
		p.set("content", []byte(`[{"type":"output_text","annotations":[],"logprobs":[],"text":"`+string(it.text)+`"}]`))
	}
	return p.append(nil)
}

// stopHere ends the turn where it stands.
func (t *stream) stopHere() {
	t.done, t.altered, t.suspended = true, true, false
	t.empty()
}

// Abandon ends the answer with a text.
func (t *stream) Abandon(dst []byte, text string) []byte {
	if t.done {
		return dst
	}
	if nothing(text) {
		text = inspect.NoReason
	}
	if t.suspended {
		t.conclusion(text)
	}
	t.stopHere()
	t.dst = dst
	if t.over {
		// No event may follow. The comment is for who reads the raw bytes.
		t.dst = frame.AppendComment(t.dst, text)
	} else {
		t.closeItems()
		t.speak(text)
		t.finishStream("completed", nil)
	}
	dst, t.dst = t.dst, nil
	return dst
}

// Fail ends the stream with a response that has failed.
func (t *stream) Fail(dst []byte, text string) []byte {
	if t.done {
		return dst
	}
	t.stopHere()
	if t.over {
		return dst
	}
	t.dst = dst
	t.closeItems()
	t.finishStream("failed", failure(text))
	dst, t.dst = t.dst, nil
	return dst
}

// Record tells what the provider said against what was shown.
func (t *stream) Record() inspect.Record { return t.record() }
