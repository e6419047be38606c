package responses

import (
	"strconv"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/toolcall"
)

// document is a turn that comes as one JSON document. It is read when it is
// whole and given out when its calls have their rulings.
type document struct {
	turn
	body    []byte
	plan    []place // its items
	spoiled bool    // the document as a whole is withheld
	taken   bool    // it is read
	done    bool
	ended   bool
}

func newDocument(r *request) *document { return &document{turn: newTurn(r)} }

// Feed takes the next bytes of the document. Nothing is given out.
func (d *document) Feed(dst, p []byte) (inspect.Step, error) {
	switch {
	case d.failed != nil:
		return d.step(dst), d.failed
	case d.ended || d.done:
		return d.step(dst), d.fail("", "fed after its end", false)
	case d.size+len(d.body)+len(p) > d.lim.Answer:
		return d.step(dst), d.fail("", "the answer is longer than the limit of "+strconv.Itoa(d.lim.Answer)+" bytes", true)
	}
	d.body = append(d.body, p...)
	return d.step(dst), nil
}

func (d *document) fail(where, reason string, limit bool) *inspect.Error {
	d.failed = &inspect.Error{Dialect: Name, Where: where, Reason: reason, Limit: limit}
	d.altered = true
	return d.failed
}

func (d *document) step(dst []byte) inspect.Step {
	s := inspect.Step{Out: dst, Held: len(d.body) + d.size + d.weight}
	switch {
	case d.done:
		s.State = inspect.Done
	case d.suspended:
		s.State = inspect.Suspended
	case d.waiting():
		s.State = inspect.Waiting
	}
	return s
}

// EndRound reads the document. One that was cut is not shown at all: half of a
// document is of no use to any client.
func (d *document) EndRound(dst []byte, end inspect.End) (inspect.Step, error) {
	if d.ended || d.done {
		return d.step(dst), nil
	}
	if d.failed != nil {
		return d.step(dst), d.failed
	}
	d.ended = true
	if end == inspect.EndCut {
		d.done, d.altered = true, d.altered || len(d.body) > 0
		return d.step(dst), nil
	}
	hosted, err := d.read()
	if err != nil {
		e, _ := err.(*inspect.Error)
		d.failed, d.altered = e, true
		return d.step(dst), err
	}
	calls := d.issue(nil)
	dst = d.conclude(dst)
	s := d.step(dst)
	s.Calls, s.Hosted = calls, hosted
	return s, nil
}

// read finds the items of the document.
func (d *document) read() (hosted []toolcall.Call, err error) {
	b := d.body
	if e := d.strict(b); e != nil {
		return nil, d.spoil(toolcall.FaultAmbiguous, "the answer cannot be read: "+e.Error())
	}
	root := rawjson.All(b)
	get := func(key string) rawjson.Span { return rawjson.Get(b, root, key) }
	if f := responseLevel.check(b, root); f.reason != "" {
		return nil, d.spoil(f.fault, f.reason)
	}
	if failure := get("error"); !rawjson.Null(b, failure) && !get("output").There() {
		if callShaped(b, failure) && !errorOnly(b, failure) {
			return nil, d.spoil(toolcall.FaultUnknown, looksLikeACall("error").reason)
		}
		d.broke, d.taken = true, true
		return nil, nil
	}
	if object := get("object"); object.There() && rawjson.Text(b, object) != "response" {
		return nil, d.spoil(toolcall.FaultUnknown, "an answer that is a "+string(object.In(b))+" cannot be read")
	}
	output := get("output")
	if !rawjson.Null(b, output) && !rawjson.IsArray(b, output) {
		return nil, d.spoil(toolcall.FaultUnknown, "the output is no list of items")
	}
	d.taken, d.finish, d.round = true, finishOf(b, root), rawjson.Text(b, get("id"))
	if d.rounds == 1 {
		d.id = d.round
		if model := rawjson.Text(b, get("model")); model != "" {
			d.model = model
		}
	}
	d.count(b, get("usage"))
	for w := rawjson.Open(b, output); w.Next(); {
		r := readItem(b, w.Val, d.tools)
		it := &item{index: len(d.plan), typ: r.typ, id: r.id, kind: r.kind}
		d.list = append(d.list, it)
		p := place{at: w.Val, item: it}
		if r.flaw.reason != "" || r.kind.class == callItem {
			if err := d.found(it, &r, b); err != nil {
				return hosted, err
			}
			d.settle(it.call, b, w.Val)
		} else {
			it.closed = true
			if r.kind.class == hostedItem {
				hosted = append(hosted, d.hostedCall(r.typ, r.id, b, w.Val))
			}
		}
		if err := d.keep(it, w.Val.In(b)); err != nil {
			return hosted, err
		}
		d.plan = append(d.plan, p)
		if reason := d.tooMuch(); reason != "" {
			return hosted, d.limit("output", reason)
		}
	}
	return hosted, nil
}

// spoil withholds the document as a whole.
func (d *document) spoil(f toolcall.Fault, reason string) error {
	d.spoiled, d.taken = true, true
	_, err := d.refused("document", f, reason, d.body)
	return err
}

// Resolve carries out a ruling.
func (d *document) Resolve(dst []byte, seq int, r inspect.Ruling) (inspect.Step, error) {
	if d.done || !d.rule(seq, r) {
		return d.step(dst), inspect.Unresolvable(seq)
	}
	return d.step(d.conclude(dst)), nil
}

// conclude gives the document out once every call has its ruling, or leaves the
// turn suspended.
func (d *document) conclude(dst []byte) []byte {
	if d.waiting() {
		return dst
	}
	if !d.spoiled && !d.broke && d.resumable(d.finish) && !d.schemed() {
		d.suspended = true
		d.mark()
		return dst
	}
	d.done = true
	d.mark()
	switch {
	case d.broke && d.rounds > 1:
		return append(dst, d.body...)
	case d.broke:
		d.shown = "error"
		return append(dst, d.body...)
	}
	for _, text := range d.lastWords() {
		it := &item{kind: unknownKind}
		d.list = append(d.list, it)
		d.say(it, text)
	}
	if d.spoiled {
		d.shown, d.altered = "completed", true
		return append(dst, d.ending("completed", []byte("null"))...)
	}
	d.shown = d.finish
	edits := d.response(d.body, rawjson.All(d.body), d.plan)
	d.altered = d.altered || len(edits) > 0
	return rawjson.Apply(dst, d.body, edits)
}

// mark says of the round's calls which are shown, and which are refused in
// words.
func (d *document) mark() {
	for _, it := range d.current() {
		switch c := it.call; {
		case c == nil || c.given || it.own != nil:
		case c.released():
			d.hand(c)
		case !c.silent:
			c.said = true
			d.say(it, c.refusal())
		}
	}
}

// NextRound goes on with a further document.
func (d *document) NextRound(response inspect.Head) error {
	stream, err := streams(response)
	switch {
	case !d.suspended:
		return notSuspended
	case err != nil:
		return err
	case stream:
		return otherForm
	}
	if d.rounds == 1 {
		d.base = d.body
	}
	d.nextRound()
	d.body, d.plan = nil, nil
	d.spoiled, d.taken, d.ended = false, false, false
	return nil
}

// Told gives the rounds of the document and what was shown of them.
func (d *document) Told() inspect.Told {
	if d.broke {
		return inspect.Told{}
	}
	return d.told(d.taken, d.taken && !d.spoiled && completes(d.finish))
}

// KeepAlive appends a space, which may stand before a JSON document.
func (d *document) KeepAlive(dst []byte) []byte {
	if d.done {
		return dst
	}
	d.altered = true
	return append(dst, ' ')
}

// Abandon gives out a response of its own in place of the document, with the
// rounds that have ended.
func (d *document) Abandon(dst []byte, text string) []byte {
	if d.done {
		return dst
	}
	if nothing(text) {
		text = inspect.NoReason
	}
	if d.suspended {
		d.conclusion(text)
	}
	d.leave()
	it := &item{kind: unknownKind}
	d.list = append(d.list, it)
	d.say(it, text)
	d.shown = "completed"
	return append(dst, d.ending("completed", []byte("null"))...)
}

// leave ends the turn without the document that was under way.
func (d *document) leave() {
	if d.suspended {
		if d.rounds == 1 {
			d.base = d.body
		}
	} else {
		d.list = d.list[:d.begun]
		d.taken = false
	}
	d.done, d.altered, d.suspended = true, true, false
}

// Fail gives out an error in place of the document.
func (d *document) Fail(dst []byte, text string) []byte {
	if d.done {
		return dst
	}
	d.leave()
	_, body := Dialect{}.Refuse(403, text)
	return append(dst, body...)
}

// Record tells what the provider said against what was shown.
func (d *document) Record() inspect.Record { return d.record() }
