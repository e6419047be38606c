package anthropic

import (
	"bytes"
	"strconv"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// document is a turn that comes as one JSON document. It is read when it is
// whole and given out when its calls have their rulings.
type document struct {
	ledger
	body    []byte
	sites   []site
	reason  rawjson.Span // where the stop reason is written
	spoiled bool         // the document as a whole is withheld
	done    bool
	ended   bool
	altered bool
	failed  *inspect.Error

	id, model, finish, shown string
	tokens

	// Of a turn that is made good in later requests.
	rounds    int // begun so far
	suspended bool
	threaded  bool
	// structured says that the answer's text must follow a schema.
	structured bool
	closed     bool   // a later round was the last one, and has ended well
	mute       bool   // nothing of the turn could be seen
	taken      bool   // the round's document is read
	broke      bool   // it is an error
	left       bool   // the turn was ended without it
	first      []byte // the first round's document
	usage      []byte // of the last one that was read
	past       past
	content    []byte   // what is shown of the rounds before, between brackets
	ours       []string // our texts in this round, in order
}

// site is where in the document a call stands.
type site struct {
	call         *call
	block, input rawjson.Span
}

func newDocument(r *request) *document {
	d := &document{tokens: unknownTokens, model: r.info.Model, rounds: 1, threaded: r.threaded, structured: r.info.Structured}
	d.lim, d.tools, d.repair = r.limits, r.info.Tools, r.repair
	return d
}

// Feed takes the next bytes of the document. Nothing is given out.
func (d *document) Feed(dst, p []byte) (inspect.Step, error) {
	switch {
	case d.failed != nil:
		return d.step(dst), d.failed
	case d.ended || d.done:
		return d.step(dst), d.fail("", "fed after its end", false)
	case len(d.content)+len(d.body)+len(p) > d.lim.Answer:
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
	s := inspect.Step{Out: dst, Held: len(d.content) + len(d.body)}
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
		return d.step(dst), err
	}
	calls := d.issue(nil)
	dst = d.conclude(dst)
	s := d.step(dst)
	s.Calls, s.Hosted = calls, hosted
	return s, nil
}

// read finds the calls of the document.
func (d *document) read() (hosted []toolcall.Call, err error) {
	if e := strictjson.Object(d.body, strictjson.Options{Depth: d.lim.Depth, Surrogates: true}); e != nil {
		return nil, d.spoil(toolcall.FaultAmbiguous, "the answer cannot be read: "+e.Error())
	}
	root := rawjson.All(d.body)
	var m members
	if string(word(d.body, member(d.body, root, "type"))) == "error" {
		if f := level(d.body, root, messageKeys, quietError, &m); f.reason != "" {
			return nil, d.spoil(f.fault, f.reason)
		}
		d.broke = true
		return nil, nil
	}
	if f := level(d.body, root, messageKeys, quietMessage, &m); f.reason != "" {
		return nil, d.spoil(f.fault, f.reason)
	}
	if typ := m[keyType]; typ.There() && string(word(d.body, typ)) != "message" {
		return nil, d.spoil(toolcall.FaultUnknown, "an answer of type "+string(typ.In(d.body))+" cannot be read")
	}
	d.past.id, d.finish = rawjson.Text(d.body, m[keyID]), own(word(d.body, m[keyStopReason]))
	if d.rounds == 1 {
		d.id = d.past.id
		if model := word(d.body, m[keyModel]); len(model) > 0 && string(model) != d.model {
			d.model = string(model)
		}
	}
	d.count(d.body, m[keyUsage])
	d.taken, d.usage = true, m[keyUsage].In(d.body)
	d.reason = m[keyStopReason]
	content := m[keyContent]
	if !rawjson.Null(d.body, content) && !rawjson.IsArray(d.body, content) {
		return nil, d.spoil(toolcall.FaultUnknown, "the content is no list of blocks")
	}
	for w := rawjson.Open(d.body, content); w.Next(); {
		r := d.readBlock(d.body, w.Val)
		switch {
		case r.isCall:
			if err := d.found(&r); err != nil {
				return hosted, err
			}
			continue
		case r.flaw.reason != "":
			err = d.faulty(&r)
		case r.kind == hostedBlock:
			id, name := rawjson.Text(d.body, r.members[keyID]), rawjson.Text(d.body, r.members[keyName])
			hosted = append(hosted, d.hostedCall(string(r.typ), id, name, bytes.Clone(r.members[keyInput].In(d.body))))
		}
		if err != nil {
			return hosted, err
		}
		if reason := d.tooMuch(); reason != "" {
			return hosted, d.fail("content", reason, true)
		}
	}
	return hosted, nil
}

// found takes in the call that a block is.
func (d *document) found(r *item) error {
	c := &call{}
	f := r.fill(&c.Call, d.body)
	c.blame(f.fault, f.reason)
	if lone(r.at.In(d.body), d.lim.Depth) {
		c.blame(toolcall.FaultAmbiguous, "half a surrogate pair stands in its block")
	}
	in := r.members[keyInput]
	start := in
	if !in.There() && f.fault == toolcall.FaultUnknown {
		start = r.at
	}
	c.start = bytes.Clone(start.In(d.body))
	d.settle(c)
	d.sites = append(d.sites, site{c, r.at, in})
	return d.take(c)
}

// faulty withholds a block that is no call, as one with a fault.
func (d *document) faulty(r *item) error {
	c := &call{complete: true}
	c.Type, c.ID, c.Name = string(r.typ), rawjson.Text(d.body, r.members[keyID]), rawjson.Text(d.body, r.members[keyName])
	c.Args = bytes.Clone(r.at.In(d.body)[:min(r.at.Len(), d.lim.Args)])
	c.blame(r.flaw.fault, r.flaw.reason)
	d.sites = append(d.sites, site{call: c, block: r.at})
	return d.take(c)
}

// spoil withholds the document as a whole.
func (d *document) spoil(f toolcall.Fault, reason string) error {
	c := &call{complete: true}
	c.Type = "document"
	c.blame(f, reason)
	c.Args = bytes.Clone(d.body[:min(len(d.body), d.lim.Args)])
	d.spoiled, d.taken = true, true
	return d.take(c)
}

func (d *document) take(c *call) error {
	if err := d.add(c); err != nil {
		d.failed, _ = err.(*inspect.Error)
		d.altered = true
		return err
	}
	return nil
}

// Resolve carries out a ruling.
func (d *document) Resolve(dst []byte, seq int, r inspect.Ruling) (inspect.Step, error) {
	if d.done || !d.rule(seq, r) {
		return d.step(dst), inspect.Unresolvable(seq)
	}
	if c := d.calls[seq]; d.repair && !d.spoiled {
		d.hush(c, d.sites[seq-d.ledger.first].block.In(d.body))
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
	d.sayNothing()
	switch {
	case d.broke && d.rounds > 1:
		return append(dst, d.body...)
	case d.rounds > 1:
		return d.joined(dst)
	case d.spoiled:
		d.altered, d.shown = true, "end_turn"
		return append(dst, message(d.id, d.model, d.calls[0].refusal(), "end_turn", d.in, d.out)...)
	}
	var edits []rawjson.Edit
	var silent map[int]bool // where blocks start that leave nothing
	for _, s := range d.sites {
		switch {
		case s.call.given:
			edits = s.edited(edits)
		case s.call.said:
			edits = append(edits, rawjson.Edit{At: s.block, Text: appendTextObject(nil, s.call.refusal())})
		default:
			if silent == nil {
				silent = map[int]bool{}
			}
			silent[s.block.From] = true
		}
	}
	if len(silent) > 0 {
		content := member(d.body, rawjson.All(d.body), "content")
		cuts, _ := rawjson.Cut(d.body, content, func(item rawjson.Span) bool { return silent[item.From] })
		edits = append(edits, cuts...)
	}
	d.shown = d.finish
	if d.lost() {
		edits = append(edits, rawjson.Edit{At: d.reason, Text: []byte(`"end_turn"`)})
		d.shown = "end_turn"
	}
	d.altered = d.altered || len(edits) > 0
	return rawjson.Apply(dst, d.body, edits)
}

// lost reports whether the document ends for calls of which none is left.
func (d *document) lost() bool {
	return d.finish == "tool_use" && len(d.calls) > 0 && !d.anyShown()
}

// edited adds the changes that give a call its new arguments, if it has any.
func (s *site) edited(edits []rawjson.Edit) []rawjson.Edit {
	args := s.call.ruling.Args
	switch {
	case args == nil:
		return edits
	case s.input.There():
		return append(edits, rawjson.Edit{At: s.input, Text: args})
	}
	in := append([]byte(`"input":`), args...)
	return append(edits, rawjson.Insert(s.block.From+1, append(in, ',')))
}

// mark says of the round's calls which are shown, and which are refused in
// words: those that no later request tells of, and all when the answer ends
// with none left, since its reader would not know why.
func (d *document) mark() {
	for _, s := range d.sites {
		if s.call.released() {
			d.hand(s.call)
		}
	}
	for _, c := range d.calls[d.ledger.first:] {
		if c.released() || c.silent && (d.suspended || d.anyShown()) {
			continue
		}
		c.said = true
		d.ours = append(d.ours, c.refusal())
	}
}

// KeepAlive appends a space, which may stand before a JSON document.
func (d *document) KeepAlive(dst []byte) []byte {
	if d.done {
		return dst
	}
	d.altered = true
	return append(dst, ' ')
}

// Abandon gives out a message of its own in place of the document.
func (d *document) Abandon(dst []byte, text string) []byte {
	if d.done {
		return dst
	}
	d.done, d.altered, d.shown = true, true, "end_turn"
	if nothing(text) {
		text = inspect.NoReason
	}
	if d.suspended {
		d.past.ending = text
	}
	if d.first != nil || d.suspended {
		return d.endedBy(dst, text)
	}
	d.left, d.ours = true, []string{text}
	return append(dst, message(d.id, d.model, text, "end_turn", d.in, d.out)...)
}

// Record tells what the provider said against what was shown.
func (d *document) Record() inspect.Record {
	r := inspect.Record{ID: d.id, Model: d.model, Finish: d.finish, Shown: d.shown, Rounds: d.rounds, Altered: d.altered}
	r.InputTokens, r.OutputTokens, r.Billed = d.in, d.total(), d.billed()
	r.Calls, r.Withheld = d.tally()
	return r
}
