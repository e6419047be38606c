package responses

import (
	"bytes"
	"strconv"
	"strings"

	"callgate/inspect/frame"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// part says what an event tells of an item.
type part uint8

const (
	otherPart part = iota
	textPart       // a piece of text
	textEnd        // other news of a text
	bodyPart       // a part of a message or of reasoning, as it is added or done
	thoughtPart
	argsPiece
	argsEnd
	inputPiece
	inputEnd
	commandStart // of one of the commands of a shell call
	commandPiece
	commandEnd
	diffPiece
	diffEnd
	serverPart // arguments of a call that the provider runs
)

var partTypes = map[string]part{
	"response.output_text.delta": textPart, "response.refusal.delta": textPart,
	"response.output_text.done": textEnd, "response.refusal.done": textEnd, "response.output_text.annotation.added": textEnd,
	"response.content_part.added": bodyPart, "response.content_part.done": bodyPart,
	"response.reasoning_summary_part.added": bodyPart, "response.reasoning_summary_part.done": bodyPart,
	"response.reasoning_text.delta": thoughtPart, "response.reasoning_text.done": thoughtPart,
	"response.reasoning_summary_text.delta": thoughtPart, "response.reasoning_summary_text.done": thoughtPart,
	"response.reasoning_summary.delta": thoughtPart, "response.reasoning_summary.done": thoughtPart,
	"response.function_call_arguments.delta": argsPiece, "response.function_call_arguments.done": argsEnd,
	"response.custom_tool_call_input.delta": inputPiece, "response.custom_tool_call_input.done": inputEnd,
	"response.shell_call_command.added": commandStart, "response.shell_call_command.delta": commandPiece, "response.shell_call_command.done": commandEnd,
	"response.apply_patch_call_operation_diff.delta": diffPiece, "response.apply_patch_call_operation_diff.done": diffEnd,
	"response.mcp_call_arguments.delta": serverPart, "response.mcp_call_arguments.done": serverPart,
}

// owners are the types of the items that parts are of, and members where such
// a part holds its text.
var owners = [...]string{textPart: "message", textEnd: "message", thoughtPart: "reasoning", argsPiece: "function_call", argsEnd: "function_call",
	inputPiece: "custom_tool_call", inputEnd: "custom_tool_call", commandStart: "shell_call", commandPiece: "shell_call", commandEnd: "shell_call",
	diffPiece: "apply_patch_call", diffEnd: "apply_patch_call", serverPart: "mcp_call"}

var members = [...]string{argsPiece: "delta", argsEnd: "arguments", inputPiece: "delta", inputEnd: "input", commandStart: "command",
	commandPiece: "delta", commandEnd: "command", diffPiece: "delta", diffEnd: "diff", serverPart: ""}

// asides are events that belong to no item and tell nothing of the answer.
var asides = map[string]bool{"keepalive": true, "ping": true, "response.compaction.compacting": true, "response.metadata": true,
	"codex.rate_limits": true, "response.audio.delta": true, "response.audio.done": true,
	"response.audio.transcript.delta": true, "response.audio.transcript.done": true}

// belongs reports whether an event of this type tells of the item.
func (it *item) belongs(p part, typ string) bool {
	switch {
	case p == bodyPart:
		return it.typ == "message" || it.typ == "reasoning"
	case p != otherPart:
		return owners[p] == it.typ
	}
	rest, ok := strings.CutPrefix(typ, "response."+it.typ)
	if !ok {
		rest, ok = strings.CutPrefix(typ, "response."+strings.TrimSuffix(it.typ, "_output"))
	}
	return ok && it.kind.class != otherItem && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "_"))
}

// plain handles a delta that matched the template. It reports false when
// something about it has to be looked at more closely.
func (t *stream) plain(ev *frame.Event, d *delta) bool {
	p := deltaTypes[string(d.typ)]
	it := t.find(ev.Data, d.index)
	if p == otherPart || it == nil || ev.Name != nil && !bytes.Equal(ev.Name, d.typ) || !it.belongs(p, "") {
		return false
	}
	if len(t.open) > 1 || len(t.open) == 1 && t.open[0] != it || !t.named(ev.Data, d.id, it) {
		return false
	}
	piece := d.piece.In(ev.Data)
	if c := it.call; c != nil {
		if c.complete || !simple(piece) || p != argsPiece && p != inputPiece {
			return false
		}
		t.piece(c, 0, piece)
	}
	t.dropped = false
	e := entry{op: opPart, part: p, item: it, base: ev.At, size: len(ev.Data), seq: numberIn(ev.Data, d.seq), idx: numberIn(ev.Data, d.index)}
	if p == textPart {
		e.text = rawjson.Span{From: d.piece.From + 1, To: d.piece.To - 1}
	}
	t.push(e, ev.Raw)
	return true
}

// simple reports whether a string is in ASCII and holds no escape by number.
func simple(lit []byte) bool {
	for _, c := range lit {
		if c >= 0x80 {
			return false
		}
	}
	return !bytes.Contains(lit, []byte(`\u`))
}

// find gives the item of the round with an index.
func (t *stream) find(b []byte, index rawjson.Span) *item {
	n, ok := rawjson.Whole(b, index)
	if !ok || n >= len(t.items) {
		return nil
	}
	return t.items[n]
}

// named reports whether an event that names an item by its id names this one.
// Some servers give each event an id of its own, which is of no item.
func (t *stream) named(b []byte, id rawjson.Span, it *item) bool {
	if !rawjson.IsString(b, id) {
		return true
	}
	inner := b[id.From+1 : id.To-1]
	var other *item
	if bytes.IndexByte(inner, '\\') >= 0 {
		other = t.names[rawjson.Text(b, id)]
	} else {
		other = t.names[string(inner)]
	}
	return other == nil || other == it
}

// slow reads an event that is no plain delta.
func (t *stream) slow(ev *frame.Event) error {
	b := ev.Data
	unended := ev.Odd == frame.Unended
	switch {
	case ev.Odd != "" && !unended:
		return t.fault(ev, toolcall.FaultAmbiguous, ev.Odd)
	case t.phase == stopped && string(b) == "[DONE]" && ev.Name == nil:
		// Some servers end every kind of stream like this.
		t.push(entry{op: opPass}, ev.Raw)
		return nil
	case t.phase == stopped:
		return t.fault(ev, toolcall.FaultAmbiguous, "it stands behind the end of the response")
	}
	if err := t.strict(b); err != nil {
		return t.fault(ev, toolcall.FaultAmbiguous, "its data cannot be read: "+err.Error())
	}
	root := rawjson.All(b)
	t.readFields(b, root)
	at := t.field(b, "type")
	typ := rawjson.Text(b, at)
	if f := eventLevel.check(b, root); f.reason != "" {
		return t.fault(ev, f.fault, f.reason)
	}
	if string(ev.Name) == "error" && !at.There() {
		typ = "error"
	}
	if ev.Name != nil && string(ev.Name) != typ {
		return t.fault(ev, toolcall.FaultAmbiguous, "the event is named "+strconv.Quote(string(ev.Name))+" and its data says "+strconv.Quote(typ))
	}
	e := entry{base: ev.At, size: len(b), seq: numberIn(b, t.field(b, "sequence_number"))}
	if p := partTypes[typ]; p < argsPiece || p == serverPart {
		// What says what to do belongs into events about that.
		for _, key := range [...]string{"arguments", "input", "command", "diff"} {
			if v := t.field(b, key); p != serverPart && !rawjson.Null(b, v) {
				return t.fault(ev, toolcall.FaultUnknown, looksLikeACall(key).reason)
			}
		}
	}
	if item := t.field(b, "item"); !rawjson.Null(b, item) && typ != "response.output_item.added" && typ != "response.output_item.done" {
		return t.fault(ev, toolcall.FaultUnknown, looksLikeACall("item").reason)
	}
	if typ != "error" {
		if f := t.quiet(b, partTypes[typ]); f.reason != "" {
			return t.fault(ev, f.fault, f.reason)
		}
	}
	response := t.field(b, "response")
	switch typ {
	case "response.created", "response.in_progress", "response.queued":
		return t.begins(ev, e, typ, response)
	case "response.completed", "response.incomplete", "response.failed":
		return t.terminal(ev, e, response, unended)
	case "error":
		return t.failure(ev, e)
	}
	if response.There() && callShaped(b, response) {
		return t.fault(ev, toolcall.FaultUnknown, looksLikeACall("response").reason)
	}
	if asides[typ] {
		t.dropped = false
		e.op = opAside
		t.push(e, ev.Raw)
		return nil
	}
	if t.phase == unstarted {
		return t.fault(ev, toolcall.FaultAmbiguous, "it stands before the start of the response")
	}
	index := t.field(b, "output_index")
	e.idx = numberIn(b, index)
	switch typ {
	case "response.output_item.added":
		return t.added(ev, e, t.field(b, "item"), unended)
	case "response.output_item.done":
		return t.doneItem(ev, e, t.field(b, "item"), unended)
	}
	return t.partOf(ev, e, typ, unended)
}

// member is a member of the event that is read.
type member struct{ key, val rawjson.Span }

// readFields notes the members of an event, whose data has passed strict.
func (t *stream) readFields(b []byte, root rawjson.Span) {
	t.fields = t.fields[:0]
	for w := rawjson.Open(b, root); w.Next(); {
		t.fields = append(t.fields, member{w.Key, w.Val})
	}
}

// field gives a member of it, as rawjson.Get does.
func (t *stream) field(b []byte, key string) rawjson.Span {
	for _, m := range t.fields {
		if string(m.key.In(b)) == key {
			return m.val
		}
	}
	return rawjson.Span{}
}

// begins reads an event that tells that the response is under way.
func (t *stream) begins(ev *frame.Event, e entry, typ string, response rawjson.Span) error {
	b := ev.Data
	if t.phase == running && typ == "response.created" {
		return t.fault(ev, toolcall.FaultAmbiguous, "the response starts a second time")
	}
	if f := responseLevel.check(b, response); f.reason != "" {
		return t.fault(ev, f.fault, f.reason)
	}
	if output := rawjson.Get(b, response, "output"); !rawjson.Null(b, output) && (rawjson.Nested(b, output) || !rawjson.IsArray(b, output)) {
		return t.fault(ev, toolcall.FaultUnknown, "the response starts with items in it")
	}
	t.dropped = false
	if t.phase == unstarted {
		t.phase = running
		t.round = rawjson.Text(b, rawjson.Get(b, response, "id"))
		if t.rounds == 1 {
			t.id = t.round
			t.base = bytes.Clone(response.In(b))
			if model := rawjson.Text(b, rawjson.Get(b, response, "model")); model != "" {
				t.model = model
			}
		}
	}
	e.op = opHead
	t.push(e, ev.Raw)
	return nil
}

// register gives a new item its place.
func (t *stream) register(r *reading) *item {
	it := &item{index: len(t.items), typ: r.typ, id: r.id, kind: r.kind}
	t.items = append(t.items, it)
	t.list = append(t.list, it)
	if r.id != "" {
		if t.names == nil {
			t.names = map[string]*item{}
		}
		if t.names[r.id] == nil {
			t.names[r.id] = it
		}
	}
	return it
}

// added reads the start of an item.
func (t *stream) added(ev *frame.Event, e entry, at rawjson.Span, unended bool) error {
	b := ev.Data
	if !e.idx.there || e.idx.n != len(t.items) {
		return t.fault(ev, toolcall.FaultAmbiguous, "an item starts with another index than "+strconv.Itoa(len(t.items))+", which is next")
	}
	if unended {
		return t.fault(ev, toolcall.FaultAmbiguous, ev.Odd)
	}
	r := readItem(b, at, t.tools)
	it := t.register(&r)
	if err := t.begin(ev, it, &r); err != nil {
		return err
	}
	if c := it.call; c != nil {
		if at.Len() > t.lim.Args+1<<10 {
			c.blame(toolcall.FaultOversize, "its item is longer than "+strconv.Itoa(t.lim.Args)+" bytes")
		}
		c.start = bytes.Clone(at.In(b)[:min(at.Len(), t.lim.Args+1<<10)])
		t.weight += len(c.start)
	} else if it.kind.class == hostedItem {
		it.raw = bytes.Clone(at.In(b)) // until more is known
	}
	e.op, e.item = opAdded, it
	t.push(e, ev.Raw)
	return nil
}

const crossed = "something of another item stands between the parts of the call"

// begin takes in an item that has just been met. What cannot be read is a call.
func (t *stream) begin(ev *frame.Event, it *item, r *reading) error {
	if len(t.open) > 0 {
		t.spoil(crossed)
	}
	if r.flaw.reason == "" && r.kind.class != callItem {
		t.dropped = false
		return nil
	}
	if err := t.found(it, r, ev.Data); err != nil {
		return err
	}
	c := it.call
	if len(t.open) > 0 {
		c.blame(toolcall.FaultAmbiguous, crossed)
	}
	if frame.OtherBreaks(ev.Data) {
		c.blame(toolcall.FaultAmbiguous, otherBreak)
	}
	t.dropped = false
	t.open = append(t.open, it)
	return nil
}

const otherBreak = "a character that ends a line for some readers stands in it without an escape"

// doneItem reads the end of an item, which may be the first that is heard of it.
func (t *stream) doneItem(ev *frame.Event, e entry, at rawjson.Span, unended bool) error {
	b := ev.Data
	it := t.find(b, t.field(b, "output_index"))
	r := readItem(b, at, t.tools)
	e.op, e.item = opDone, it
	switch {
	case it == nil && e.idx.there && e.idx.n == len(t.items) && !unended:
		it = t.register(&r)
		e.item = it
		if err := t.begin(ev, it, &r); err != nil {
			return err
		}
	case it == nil:
		return t.fault(ev, toolcall.FaultAmbiguous, "an item ends that has not started")
	case it.done:
		return t.fault(ev, toolcall.FaultAmbiguous, "an item ends a second time")
	case it.call == nil && (it.typ != r.typ || it.kind.class != r.kind.class):
		if err := t.fault(ev, toolcall.FaultAmbiguous, "an item of type "+strconv.Quote(it.typ)+" ends as one of type "+strconv.Quote(r.typ)); err != nil {
			return err
		}
		return t.stubbed(it, e.seq.there)
	case it.call == nil && r.flaw.reason != "":
		if err := t.fault(ev, r.flaw.fault, r.flaw.reason); err != nil {
			return err
		}
		return t.stubbed(it, e.seq.there)
	case !t.named(b, rawjson.Get(b, at, "id"), it):
		return t.fault(ev, toolcall.FaultAmbiguous, "an item ends with the id of another one")
	}
	if len(t.open) > 0 && (len(t.open) > 1 || t.open[0] != it) {
		t.spoil(crossed)
	}
	t.dropped = false
	if c := it.call; c != nil {
		t.callDone(c, ev, &r, unended)
		for i, o := range t.open {
			if o == it {
				t.open = append(t.open[:i], t.open[i+1:]...)
				break
			}
		}
	} else if it.kind.class == hostedItem {
		t.step.Hosted = append(t.step.Hosted, t.hostedCall(it.typ, r.id, b, at))
	}
	if err := t.keep(it, at.In(b)); err != nil {
		return err
	}
	t.push(e, ev.Raw)
	return nil
}

// stubbed ends an item whose end cannot be read with one of ours.
func (t *stream) stubbed(it *item, numbered bool) error {
	raw := stub(it.typ, it.id)
	if raw == nil {
		it.done = true
		return nil
	}
	if err := t.keep(it, raw); err != nil {
		return err
	}
	t.push(entry{op: opStub, item: it}, nil)
	return nil
}

// callDone takes in the whole item of a call, and holds all that was said of it
// before against it.
func (t *stream) callDone(c *call, ev *frame.Event, r *reading, unended bool) {
	b := ev.Data
	c.blame(r.flaw.fault, r.flaw.reason)
	last := &call{kind: r.kind}
	last.Type = r.typ
	if rawjson.IsObject(b, r.at) {
		last.identify(b, r.at)
	}
	c.blame(last.Fault, last.Detail)
	if r.kind != c.kind || r.typ != c.Type || last.ID != c.ID || last.Name != c.Name {
		c.blame(toolcall.FaultAmbiguous, "its item ends as another call than it started")
	}
	switch {
	case unended:
		c.blame(toolcall.FaultAmbiguous, ev.Odd)
	case frame.OtherBreaks(b):
		c.blame(toolcall.FaultAmbiguous, otherBreak)
	}
	if c.kind.class == callItem && c.Fault == toolcall.FaultNone {
		if reason := c.contradicted(b, r.at, &t.lim); reason != "" {
			c.blame(toolcall.FaultAmbiguous, reason)
		}
	}
	if r.kind != c.kind {
		c.complete, c.Args = true, bytes.Clone(r.at.In(b)[:min(r.at.Len(), t.lim.Args)])
		return
	}
	t.settle(c, b, r.at)
}

// partOf reads an event about a part of an item.
func (t *stream) partOf(ev *frame.Event, e entry, typ string, unended bool) error {
	b := ev.Data
	it := t.find(b, t.field(b, "output_index"))
	p := partTypes[typ]
	if it == nil {
		if p == otherPart {
			return t.fault(ev, toolcall.FaultUnknown, "an event of type "+strconv.Quote(typ)+" cannot be read")
		}
		return t.fault(ev, toolcall.FaultAmbiguous, "it tells of an item that has not started")
	}
	if len(t.open) > 0 && (len(t.open) > 1 || t.open[0] != it) {
		t.spoil(crossed)
	}
	e.op, e.part, e.item = opPart, p, it
	withheld := it.call != nil && it.call.kind.class != callItem && !it.done
	switch {
	case withheld: // no part of it is ever shown
	case !it.belongs(p, typ):
		if p == otherPart {
			return t.fault(ev, toolcall.FaultUnknown, "an event of type "+strconv.Quote(typ)+" cannot be read")
		}
		return t.fault(ev, toolcall.FaultAmbiguous, "it tells of an item of another type")
	case !t.named(b, t.field(b, "item_id"), it):
		return t.fault(ev, toolcall.FaultAmbiguous, "it names one item by its index and another by its id")
	case it.call != nil && it.done:
		return t.fault(ev, toolcall.FaultAmbiguous, "it tells of a call that has ended")
	case it.call != nil && (unended || frame.OtherBreaks(b)):
		return t.fault(ev, toolcall.FaultAmbiguous, otherBreak)
	case it.call != nil:
		t.callPart(it.call, p, b)
	case p == bodyPart:
		may := messageParts
		if it.typ == "reasoning" {
			may = reasoningParts
		}
		if v := t.field(b, "part"); v.There() {
			if f := checkPart(b, v, may); f.reason != "" {
				return t.fault(ev, f.fault, f.reason)
			}
		}
	case p == textPart:
		if v := t.field(b, "delta"); rawjson.IsString(b, v) {
			e.text = rawjson.Span{From: v.From + 1, To: v.To - 1}
		}
	}
	t.dropped = false
	t.push(e, ev.Raw)
	return nil
}

// quiet reports a member beside what the event is about that looks like a call.
func (t *stream) quiet(b []byte, p part) flaw {
	for _, key := range [...]string{"annotation", "error", "logprobs", "metadata", "output", "part", "rate_limits"} {
		v := t.field(b, key)
		switch {
		case key == "part" && p == bodyPart:
		case key == "error" && errorOnly(b, v):
		case callShaped(b, v):
			return looksLikeACall(key)
		}
	}
	return flaw{}
}

// callPart takes in a piece of what a call is to do, or a copy of it.
func (t *stream) callPart(c *call, p part, b []byte) {
	if p == otherPart {
		return // news of its state
	}
	v := t.field(b, members[p])
	if !rawjson.IsString(b, v) || lone(v.In(b), t.lim.Depth) {
		c.blame(toolcall.FaultAmbiguous, "a piece of its arguments reads differently for different readers")
		return
	}
	n := 0
	if p >= commandStart && p <= commandEnd {
		var ok bool
		if n, ok = rawjson.Whole(b, t.field(b, "command_index")); !ok {
			c.blame(toolcall.FaultAmbiguous, "a piece of a command does not say of which")
			return
		}
	}
	switch p {
	case argsPiece, inputPiece, commandPiece, diffPiece:
		t.piece(c, n, v.In(b))
	case commandStart:
		if v.Len() > len(`""`) {
			t.copy(c, n, v.In(b))
		}
	default:
		if name := t.field(b, "name"); p == argsEnd && !rawjson.Null(b, name) {
			if said := rawjson.Text(b, name); said != c.Name && !strings.HasSuffix(c.Name, "."+said) {
				c.blame(toolcall.FaultAmbiguous, "its arguments end under another name")
			}
		}
		t.copy(c, n, v.In(b))
	}
}

// piece adds a piece of arguments, a string.
func (t *stream) piece(c *call, n int, lit []byte) {
	p := c.part(n)
	p.came = true
	if len(p.deltas) > t.lim.Args || c.Fault == toolcall.FaultOversize {
		return
	}
	was := len(p.deltas)
	p.deltas = strictjson.AppendString(p.deltas, lit)
	t.weight += len(p.deltas) - was
	if len(p.deltas) > t.lim.Args {
		c.blame(toolcall.FaultOversize, "its arguments are longer than "+strconv.Itoa(t.lim.Args)+" bytes")
	}
}

// copy takes in a further copy of what a call is to do.
func (t *stream) copy(c *call, n int, lit []byte) {
	p := c.part(n)
	text := strictjson.AppendString([]byte{}, lit)
	switch {
	case p.whole != nil && !bytes.Equal(p.whole, text):
		c.blame(toolcall.FaultAmbiguous, "two copies of its arguments differ")
	case len(text) > t.lim.Args:
		c.blame(toolcall.FaultOversize, "its arguments are longer than "+strconv.Itoa(t.lim.Args)+" bytes")
	case p.whole == nil:
		p.whole = text
		t.weight += len(text)
	}
}

// terminal reads the event that ends the response.
func (t *stream) terminal(ev *frame.Event, e entry, response rawjson.Span, unended bool) error {
	b := ev.Data
	if t.phase == unstarted {
		return t.fault(ev, toolcall.FaultAmbiguous, "the response ends before it starts")
	}
	if unended {
		return t.fault(ev, toolcall.FaultAmbiguous, ev.Odd)
	}
	if f := responseLevel.check(b, response); f.reason != "" {
		return t.fault(ev, f.fault, f.reason)
	}
	finish := finishOf(b, response)
	if t.rounds > 1 && finish == "failed" {
		// The agent would take it for an error of the whole, and ask for all of
		// it again.
		return t.fail("the further answer ended in an error", nil)
	}
	t.truncate("the response ended (" + finish + ") inside the call")
	output := rawjson.Get(b, response, "output")
	if !rawjson.Null(b, output) && !rawjson.IsArray(b, output) {
		return t.fault(ev, toolcall.FaultUnknown, "the output is no list of items")
	}
	plan, f := t.copies(b, output)
	if f.reason != "" {
		t.altered = true
		it, err := t.refused("event", f.fault, "event "+strconv.Itoa(t.sse.Count())+": "+f.reason, output.In(b))
		if err != nil {
			return err
		}
		t.push(entry{op: opFault, item: it}, nil)
	} else if frame.OtherBreaks(b) && len(t.calls) > t.first {
		return t.fault(ev, toolcall.FaultAmbiguous, otherBreak)
	}
	t.phase, t.dropped, t.finish = stopped, false, finish
	t.broke = finish == "failed"
	t.count(b, rawjson.Get(b, response, "usage"))
	e.op, e.response, e.plan = opTerminal, response, plan
	t.push(e, ev.Raw)
	return nil
}

// failure passes an error event on. Nothing may follow it.
func (t *stream) failure(ev *frame.Event, e entry) error {
	for _, key := range [...]string{"error", "response", "part", "metadata", "output"} {
		if callShaped(ev.Data, t.field(ev.Data, key)) && !(key == "error" && errorOnly(ev.Data, t.field(ev.Data, key))) {
			return t.fault(ev, toolcall.FaultUnknown, looksLikeACall(key).reason)
		}
	}
	if t.rounds > 1 {
		return t.fail("the further answer ended in an error", nil)
	}
	t.truncate("the provider reported an error inside the call")
	t.phase, t.dropped, t.broke, t.finish = stopped, false, true, "error"
	e.op = opError
	t.push(e, ev.Raw)
	return nil
}

// errorOnly reports whether an error holds scalars alone, whose type may be any
// word.
func errorOnly(b []byte, v rawjson.Span) bool {
	for w := rawjson.Open(b, v); w.Next(); {
		if rawjson.IsObject(b, w.Val) || rawjson.IsArray(b, w.Val) || !w.Is("type") && callUnder(b, rawjson.KeyText(b, w.Key), w.Val) {
			return false
		}
	}
	return rawjson.IsObject(b, v)
}
