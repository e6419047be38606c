package anthropic

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"callgate/inspect"
	"callgate/inspect/frame"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// stream is a turn that comes as server-sent events. This file reads what the
// provider says; what the agent is shown is the business of shown.
type stream struct {
	ledger
	shown
	sse     frame.SSE
	onEvent func(*frame.Event) error

	step   inspect.Step
	phase  phase
	id     string // of the first round
	model  string
	finish string
	mould  mould
	tokens

	next    int      // the index that the provider's next block must have
	open    []*block // the provider's open blocks
	current *block   // the one that the event before was about
	bare    bool     // the last call that ended had no pieces of arguments
	dropped bool     // the event before was dropped, with a fault of its own
	done    bool
	ended   bool // EndRound was called
	end     inspect.End
	failed  *inspect.Error
	broke   bool // the provider has reported an error

	// Of a turn that is made good in later requests.
	rounds    int // begun so far
	suspended bool
	threaded  bool
	heard     *heard // nil in all others
	past      past

	// Room for what most answers hold.
	callRoom              [4]*call
	openRoom, visibleRoom [2]*block
}

// phase is how far the provider has come.
type phase uint8

const (
	unstarted phase = iota
	running
	finished // message_delta has named a stop reason
	stopped  // message_stop or an error: nothing may follow
)

// block is one content block.
type block struct {
	index int // the provider's
	shown int // the agent's
	kind  blockKind
	begun bool  // a delta of it was shown
	call  *call // of a call block
	// id, name and input are of a call that the provider runs.
	typ, id, name string
	input         []byte
}

type blockKind uint8

const (
	otherBlock blockKind = iota // cannot run on a client and has no plain deltas
	textBlock
	thinkingBlock
	hostedBlock
	callBlock
)

func kindOf(typ []byte) blockKind {
	switch string(typ) {
	case "text":
		return textBlock
	case "thinking":
		return thinkingBlock
	case "server_tool_use", "mcp_tool_use":
		return hostedBlock
	}
	return otherBlock
}

func newStream(r *request) *stream {
	t := &stream{tokens: unknownTokens, model: r.info.Model, rounds: 1, threaded: r.threaded}
	t.lim = r.limits
	if t.repair = r.repair; t.repair {
		t.heard = hearings.Get().(*heard)
	}
	t.tools = r.info.Tools
	t.structured = r.info.Structured
	t.sse.Max = r.limits.Frame
	t.onEvent = t.event
	t.calls, t.open, t.visible = t.callRoom[:0], t.openRoom[:0], t.visibleRoom[:0]
	return t
}

// Feed takes the next bytes of the stream.
func (t *stream) Feed(dst, p []byte) (inspect.Step, error) {
	t.begin(dst)
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

// begin starts a step that appends to dst.
func (t *stream) begin(dst []byte) { t.dst = dst }

// give ends a step.
func (t *stream) give() inspect.Step {
	s := t.step
	s.Out, s.Held = t.dst, t.kept()
	t.dst = nil
	if s.Calls != nil || s.Hosted != nil {
		t.step = inspect.Step{}
	}
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
			t.pass(opPass, ev.Raw)
			return t.settleQueue()
		}
		if string(ev.Name) == "content_block_delta" && t.phase == running {
			if d, ok := t.mould.read(ev.Data); ok && t.plain(ev, &d) {
				return t.settleQueue()
			}
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
	if len(t.held)+len(t.queue)*entryCost > t.lim.Held {
		return t.limit("more than " + strconv.Itoa(t.lim.Held) + " bytes wait behind a call")
	}
	if reason := t.tooMuch(); reason != "" {
		return t.limit(reason)
	}
	return t.tooLong()
}

func (t *stream) limit(reason string) error {
	return &inspect.Error{Dialect: Name, Where: "event " + strconv.Itoa(t.sse.Count()), Reason: reason, Limit: true}
}

// plain handles a delta that matched the template. It reports false when the
// delta does not belong to the block it names.
func (t *stream) plain(ev *frame.Event, d *delta) bool {
	b := t.find(d.index)
	if b == nil {
		return false
	}
	switch {
	case d.kind == inputDelta && b.kind == callBlock:
		if d.breaks {
			return false
		}
		if t.input(b, d.value); b.call.Fault != toolcall.FaultNone {
			t.dropped = false
			return true
		}
	case d.kind == inputDelta && b.kind == hostedBlock:
		if t.bare && !emptyString(d.value) {
			return false
		}
		t.hostedInput(b, d.value)
	case d.kind == textDelta && b.kind == textBlock,
		(d.kind == thinkingDelta || d.kind == signatureDelta) && b.kind == thinkingBlock:
	default:
		return false
	}
	t.dropped, t.current = false, b
	if t.heard != nil && d.kind != inputDelta {
		t.hear(b, sayings[d.kind], d.value[1:len(d.value)-1])
	}
	t.part(opPart, ev, b, d.at)
	return true
}

// input adds a piece of a call's arguments, a string. The pieces follow the call's start
// with nothing of another block between: clients that do not look at indexes
// would add them to that one.
func (t *stream) input(b *block, lit []byte) {
	c := b.call
	if t.current != b {
		c.blame(toolcall.FaultAmbiguous, "something of another block stands between the pieces of its arguments")
	}
	t.current = b
	if len(c.deltas) > t.lim.Args {
		return
	}
	// Even if all of it were escapes it may be too long.
	if len(c.deltas)+len(lit) <= 6*t.lim.Args+len(`""`) {
		if c.deltas == nil {
			c.deltas = make([]byte, 0, 256)
		}
		n := len(c.deltas)
		c.deltas = strictjson.AppendString(c.deltas, lit)
		t.weight += len(c.deltas) - n
		if len(c.deltas) <= t.lim.Args {
			return
		}
	}
	c.blame(toolcall.FaultOversize, "its arguments are longer than "+strconv.Itoa(t.lim.Args)+" bytes")
}

// hostedInput adds a piece of the arguments of a call that the provider runs.
func (t *stream) hostedInput(b *block, lit []byte) {
	n := len(b.input)
	b.input = strictjson.AppendString(b.input, lit)
	t.weight += len(b.input) - n
}

// find gives the open block with the provider's index.
func (t *stream) find(index int) *block {
	for _, b := range t.open {
		if b.index == index {
			return b
		}
	}
	return nil
}

func (t *stream) close(b *block) {
	for i, o := range t.open {
		if o == b {
			t.open = append(t.open[:i], t.open[i+1:]...)
			return
		}
	}
}

// trailers are the data that may stand behind the end of a message.
var trailers = map[string]bool{"[DONE]": true, `{"type":"ping"}`: true, `{"type": "ping"}`: true}

// slow reads an event that is no plain delta.
func (t *stream) slow(ev *frame.Event) error {
	unended := ev.Odd == frame.Unended
	switch {
	case ev.Odd != "" && !unended:
		return t.fault(ev, toolcall.FaultAmbiguous, ev.Odd)
	case t.phase == stopped && trailers[string(ev.Data)]:
		// Some servers end every kind of stream like this, or go on with signs
		// of life. Neither holds anything, whatever the event is called.
		t.pass(opPass, ev.Raw)
		return nil
	case t.phase == stopped:
		return t.fault(ev, toolcall.FaultAmbiguous, "it stands behind the end of the message")
	}
	if string(ev.Name) == "content_block_stop" {
		if index, ok := scanStop(ev.Data); ok {
			return t.blockStop(ev, index, unended)
		}
	}
	if err := strictjson.Object(ev.Data, strictjson.Options{Depth: t.lim.Depth, Surrogates: true}); err != nil {
		return t.fault(ev, toolcall.FaultAmbiguous, "its data cannot be read: "+err.Error())
	}
	root := rawjson.All(ev.Data)
	at := member(ev.Data, root, "type")
	typ := word(ev.Data, at)
	if string(ev.Name) != string(typ) {
		if string(ev.Name) == "error" && !at.There() && !callShaped(ev.Data, root) {
			return t.failure(ev)
		}
		return t.fault(ev, toolcall.FaultAmbiguous, "the event is named "+strconv.Quote(string(ev.Name))+" and its data says "+strconv.Quote(string(typ)))
	}
	var m members
	if f := level(ev.Data, root, eventKeys, quietIn(typ), &m); f.reason != "" {
		return t.fault(ev, f.fault, f.reason)
	}
	switch string(typ) {
	case "ping":
		t.dropped = false
		t.pass(opPass, ev.Raw)
		return nil
	case "message_start":
		return t.start(ev, m[keyMessage])
	case "content_block_start":
		if unended {
			return t.fault(ev, toolcall.FaultAmbiguous, ev.Odd)
		}
		return t.blockStart(ev, m[keyIndex], m[keyContentBlock])
	case "content_block_delta":
		return t.blockDelta(ev, m[keyIndex], m[keyDelta], unended)
	case "content_block_stop":
		return t.blockStop(ev, m[keyIndex], unended)
	case "message_delta":
		return t.messageDelta(ev, m[keyDelta], m[keyUsage])
	case "message_stop":
		return t.messageStop(ev)
	case "error":
		return t.failure(ev)
	}
	return t.fault(ev, toolcall.FaultUnknown, "an event of type "+strconv.Quote(string(typ))+" cannot be read")
}

// fault withholds an event. Inside a call it spoils the call. Elsewhere it
// becomes a call of its own, so that it is seen, counted and answered; what
// follows it at once and is no better belongs to the same one.
func (t *stream) fault(ev *frame.Event, f toolcall.Fault, reason string) error {
	t.altered = true
	reason = "event " + strconv.Itoa(t.sse.Count()) + ": " + reason
	inside := false
	for _, b := range t.open {
		if b.kind == callBlock {
			b.call.blame(toolcall.FaultAmbiguous, reason)
			inside = true
		}
	}
	if inside || t.dropped {
		return nil
	}
	t.dropped = true
	c := &call{complete: true}
	c.Type = "event"
	c.blame(f, reason)
	c.Args = bytes.Clone(ev.Raw[:min(len(ev.Raw), t.lim.Args)])
	t.weight += len(c.Args)
	if err := t.add(c); err != nil {
		return err
	}
	if t.heard != nil {
		t.heard.items = append(t.heard.items, saidBlock{call: c})
	}
	t.push(entry{op: opFault, call: c}, nil)
	return nil
}

func (t *stream) start(ev *frame.Event, message rawjson.Span) error {
	if t.phase != unstarted {
		return t.fault(ev, toolcall.FaultAmbiguous, "the message starts a second time")
	}
	b := ev.Data
	if !rawjson.IsObject(b, message) {
		return t.fault(ev, toolcall.FaultAmbiguous, "it starts no message")
	}
	var m members
	if f := level(b, message, messageKeys, quietMessage, &m); f.reason != "" {
		return t.fault(ev, f.fault, f.reason)
	}
	if c := m[keyContent]; !rawjson.Null(b, c) && (!rawjson.IsArray(b, c) || rawjson.Nested(b, c)) {
		return t.fault(ev, toolcall.FaultUnknown, "the message starts with content in it")
	}
	t.phase, t.dropped = running, false
	id, model := rawjson.Text(b, m[keyID]), word(b, m[keyModel])
	if t.rounds == 1 {
		t.id = id
		if len(model) > 0 && string(model) != t.model {
			t.model = string(model)
		}
	}
	t.past.id = id
	t.count(b, m[keyUsage])
	t.pass(opMessage, ev.Raw)
	return nil
}

func (t *stream) blockStart(ev *frame.Event, index, content rawjson.Span) error {
	n, ok := rawjson.Whole(ev.Data, index)
	switch {
	case t.phase == unstarted:
		return t.fault(ev, toolcall.FaultAmbiguous, "a block starts before the message")
	case t.phase == finished:
		return t.fault(ev, toolcall.FaultAmbiguous, "a block starts behind the stop reason")
	case !ok || n != t.next:
		return t.fault(ev, toolcall.FaultAmbiguous, "a block starts with index "+strconv.Quote(string(index.In(ev.Data)))+" where "+strconv.Itoa(t.next)+" is next")
	}
	if len(t.open) >= maxOpen {
		return t.limit("more than " + strconv.Itoa(maxOpen) + " blocks are open at once")
	}
	r := t.readBlock(ev.Data, content)
	var b *block
	switch {
	case r.isCall:
		var err error
		if b, err = t.callStart(ev, &r); err != nil {
			return err
		}
	case r.flaw.reason != "":
		return t.fault(ev, r.flaw.fault, r.flaw.reason)
	default:
		b = &block{kind: r.kind, typ: own(r.typ)}
		if b.kind == hostedBlock {
			t.hostedStart(b, ev.Data, &r)
		}
	}
	b.index = n
	if t.heard != nil {
		t.hearStart(b, content.In(ev.Data))
	}
	t.crossed(b)
	t.next++
	t.dropped, t.current = false, b
	t.open = append(t.open, b)
	t.part(opBlock, ev, b, index)
	return nil
}

// maxOpen is how many blocks may be open at once. Servers that follow the
// format have one open, and others no more than an answer has kinds of blocks.
const maxOpen = 100

// callStart takes in the start of a call.
func (t *stream) callStart(ev *frame.Event, r *item) (*block, error) {
	both := &struct {
		block block
		call  call
	}{}
	b, c := &both.block, &both.call
	b.kind, b.call = callBlock, c
	f := r.fill(&c.Call, ev.Data)
	c.blame(f.fault, f.reason)
	switch {
	case lone(r.at.In(ev.Data), t.lim.Depth):
		c.blame(toolcall.FaultAmbiguous, "half a surrogate pair stands in its block")
	case frame.OtherBreaks(ev.Data):
		c.blame(toolcall.FaultAmbiguous, otherBreak)
	}
	c.input = r.members[keyInput]
	start := c.input
	if !start.There() && f.fault == toolcall.FaultUnknown {
		start = r.at
	}
	// One byte past the limit is enough to know that it is too long. An empty
	// object is what settle puts in.
	if raw := start.In(ev.Data); string(raw) != "{}" {
		c.start = bytes.Clone(raw[:min(len(raw), t.lim.Args+1)])
	}
	t.weight += len(c.start)
	return b, t.add(c)
}

// hostedStart takes in the start of a call that the provider runs.
func (t *stream) hostedStart(b *block, data []byte, r *item) {
	b.id, b.name = rawjson.Text(data, r.members[keyID]), rawjson.Text(data, r.members[keyName])
	if in := r.members[keyInput].In(data); string(in) != "{}" {
		b.input = bytes.Clone(in)
	}
	t.weight += len(b.id) + len(b.name) + len(b.input)
}

const otherBreak = "a character that ends a line for some readers stands in it without an escape"

// crossed spoils the calls that are open when another block starts, and a call
// that starts in a call: clients that do not look at indexes mix them up. A
// text that is left open before a call does no harm, and some servers leave it.
func (t *stream) crossed(b *block) {
	for _, o := range t.open {
		if o.kind != callBlock && o.kind != hostedBlock {
			continue
		}
		for _, in := range []*block{o, b} {
			if in.kind == callBlock {
				in.call.blame(toolcall.FaultAmbiguous, "another block starts before the one before it has ended")
			}
		}
	}
}

func (t *stream) blockDelta(ev *frame.Event, index, d rawjson.Span, unended bool) error {
	n, ok := rawjson.Whole(ev.Data, index)
	b := t.find(n)
	if !ok || b == nil {
		return t.fault(ev, toolcall.FaultAmbiguous, "a delta names the block "+strconv.Quote(string(index.In(ev.Data)))+", which is not open")
	}
	if !rawjson.IsObject(ev.Data, d) {
		return t.fault(ev, toolcall.FaultAmbiguous, "a delta holds nothing")
	}
	var m members
	if f := level(ev.Data, d, deltaKeys, quietDelta, &m); f.reason != "" {
		return t.fault(ev, f.fault, f.reason)
	}
	if f := deltaFlaw(ev.Data, d, &m, b); f.reason != "" {
		return t.fault(ev, f.fault, f.reason)
	}
	piece := m[keyPartialJSON].In(ev.Data)
	switch {
	case b.kind == callBlock && (unended || lone(piece, t.lim.Depth)):
		return t.fault(ev, toolcall.FaultAmbiguous, "a piece of its arguments reads differently for different readers")
	case b.kind == callBlock && frame.OtherBreaks(ev.Data):
		return t.fault(ev, toolcall.FaultAmbiguous, otherBreak)
	case b.kind == callBlock:
		if t.input(b, piece); b.call.Fault != toolcall.FaultNone {
			return nil
		}
	case b.kind == hostedBlock && t.bare && !emptyString(piece):
		return t.fault(ev, toolcall.FaultAmbiguous, "clients that do not look at blocks take these arguments for those of the call before, which has none")
	case b.kind == hostedBlock:
		t.hostedInput(b, piece)
	}
	t.dropped, t.current = false, b
	if t.heard != nil {
		t.hearDelta(b, ev.Data, &m)
	}
	t.part(opPart, ev, b, index)
	return nil
}

// emptyString reports whether a string has nothing between its quotes.
func emptyString(lit []byte) bool { return len(lit) == len(`""`) }

func (t *stream) blockStop(ev *frame.Event, index rawjson.Span, unended bool) error {
	n, ok := rawjson.Whole(ev.Data, index)
	b := t.find(n)
	if !ok || b == nil {
		return t.fault(ev, toolcall.FaultAmbiguous, "the block "+strconv.Quote(string(index.In(ev.Data)))+" ends and is not open")
	}
	if unended && b.kind == callBlock {
		return t.fault(ev, toolcall.FaultAmbiguous, ev.Odd)
	}
	if b.kind == callBlock && frame.OtherBreaks(ev.Data) {
		return t.fault(ev, toolcall.FaultAmbiguous, otherBreak)
	}
	t.close(b)
	t.dropped, t.current = false, b
	switch b.kind {
	case callBlock:
		t.bare = len(b.call.deltas) == 0
		t.settle(b.call)
	case hostedBlock:
		t.hostedDone(b)
	}
	t.part(opBlockStop, ev, b, index)
	return nil
}

func (t *stream) hostedDone(b *block) {
	args := b.input
	if len(args) == 0 {
		args = []byte("{}")
	}
	t.step.Hosted = append(t.step.Hosted, t.hostedCall(b.typ, b.id, b.name, args))
}

// truncate ends the calls that are under way with a fault.
func (t *stream) truncate(reason string) {
	keep := t.open[:0]
	for _, b := range t.open {
		if b.kind != callBlock {
			keep = append(keep, b)
			continue
		}
		b.call.blame(toolcall.FaultTruncated, reason)
		t.settle(b.call)
	}
	t.open = keep
}

func (t *stream) messageDelta(ev *frame.Event, d, u rawjson.Span) error {
	if t.phase == unstarted {
		return t.fault(ev, toolcall.FaultAmbiguous, "the message ends before it starts")
	}
	var m members
	if f := level(ev.Data, d, deltaKeys, quietFinish, &m); f.reason != "" && !rawjson.Null(ev.Data, d) {
		return t.fault(ev, f.fault, f.reason)
	}
	if reason := word(ev.Data, m[keyStopReason]); reason != nil {
		t.finish, t.phase = own(reason), finished
		if len(t.open) > 0 {
			t.truncate("the message ended (" + t.finish + ") inside the call")
		}
	}
	t.count(ev.Data, u)
	t.dropped = false
	if t.rounds > 1 {
		t.laterFinish(ev.Data, u)
		return nil
	}
	t.part(opFinish, ev, nil, m[keyStopReason])
	return nil
}

func (t *stream) messageStop(ev *frame.Event) error {
	if t.phase == unstarted {
		return t.fault(ev, toolcall.FaultAmbiguous, "the message stops before it starts")
	}
	t.truncate("the message stopped inside the call")
	t.phase, t.dropped = stopped, false
	t.pass(opStop, ev.Raw)
	return nil
}

// failure passes an error event on. Nothing may follow it.
func (t *stream) failure(ev *frame.Event) error {
	if t.rounds > 1 {
		// The agent would take it for an error of the whole, and ask for all of
		// it again.
		return t.fail("the further answer ended in an error", nil)
	}
	t.truncate("the provider reported an error inside the call")
	t.phase, t.dropped, t.broke = stopped, false, true
	t.pass(opError, ev.Raw)
	return nil
}

// Resolve carries out a ruling.
func (t *stream) Resolve(dst []byte, seq int, r inspect.Ruling) (inspect.Step, error) {
	t.begin(dst)
	if t.done || !t.rule(seq, r) {
		return t.give(), inspect.Unresolvable(seq)
	}
	if t.heard != nil {
		t.hushed(t.calls[seq])
	}
	t.drain()
	t.conclude()
	return t.give(), nil
}

// EndRound ends the provider's answer.
func (t *stream) EndRound(dst []byte, end inspect.End) (inspect.Step, error) {
	t.begin(dst)
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
		if t.rounds > 1 && t.phase < finished {
			return t.give(), t.fail("the further answer broke off", nil)
		}
	}
	t.truncate("the answer ended inside the call")
	for _, b := range t.open {
		if b.kind == hostedBlock {
			t.hostedDone(b) // it may have run all the same
		}
	}
	t.ended, t.end = true, end
	t.closing = true
	if err := t.settleQueue(); err != nil {
		return t.give(), t.fail("", err)
	}
	t.conclude()
	return t.give(), nil
}

// conclude finishes the turn once everything was given out. Where something
// was withheld and the provider did not end its answer, it is ended here.
func (t *stream) conclude() {
	if !t.ended || t.done {
		return
	}
	if t.suspends() {
		t.suspend()
		return
	}
	if len(t.queue) > 0 {
		return
	}
	t.done = true
	defer t.forget()
	if _, withheld := t.tally(); withheld == 0 || t.end != inspect.EndClean || t.over {
		return
	}
	t.sayRefused()
	if !t.started {
		text := strings.Join(t.texts, "\n\n")
		t.texts = nil
		t.whole(text)
		return
	}
	t.closeMessage()
}

// stopReason is the one for an end of our own making.
func (t *stream) stopReason() string {
	if t.anyShown() {
		return "tool_use"
	}
	return "end_turn"
}

// KeepAlive appends what keeps the agent's clocks running.
func (t *stream) KeepAlive(dst []byte) []byte {
	if t.done || !t.started || t.over {
		return dst
	}
	t.dst = dst
	t.beat(t.sign())
	dst, t.dst = t.dst, nil
	return dst
}

// Abandon ends the answer with a text.
func (t *stream) Abandon(dst []byte, text string) []byte {
	if t.done {
		return dst
	}
	if t.suspended {
		t.past.ending = text
	}
	t.stopHere()
	t.dst = dst
	switch {
	case t.over:
		// No event may follow. The comment is for who reads the raw bytes.
		t.dst = frame.AppendComment(t.dst, text)
	case !t.started:
		t.whole(text)
	default:
		t.texts = append(t.texts, text)
		t.closeMessage()
	}
	dst, t.dst = t.dst, nil
	return dst
}

// Record tells what the provider said against what was shown.
func (t *stream) Record() inspect.Record {
	r := inspect.Record{ID: t.id, Model: t.model, Finish: t.finish, Shown: t.reason, Rounds: t.rounds, Altered: t.altered}
	r.InputTokens, r.OutputTokens, r.Billed = t.in, t.total(), t.billed()
	r.Calls, r.Withheld = t.tally()
	return r
}
