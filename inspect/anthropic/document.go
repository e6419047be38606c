package anthropic

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"callgate/inspect"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// document is a turn that comes as one JSON document. It is read when it is
// whole and given out when its calls have their rulings.
type document struct {
	ledger
	body    []byte
	sites   []site
	reason  spot // where the stop reason is written
	spoiled bool // the document as a whole is withheld
	done    bool
	ended   bool
	altered bool
	failed  *inspect.Error

	id, model, finish, shown string
	in, out                  int64
}

// site is where in the document a call stands.
type site struct {
	call         *call
	block, input spot
}

func newDocument(r *request) *document {
	d := &document{in: -1, out: -1, model: r.info.Model}
	d.lim, d.tools = r.limits, r.info.Tools
	return d
}

// Feed takes the next bytes of the document. Nothing is given out.
func (d *document) Feed(dst, p []byte) (inspect.Step, error) {
	switch {
	case d.failed != nil:
		return d.step(dst), d.failed
	case d.ended || d.done:
		return d.step(dst), d.fail("", "fed after its end", false)
	case len(d.body)+len(p) > d.lim.Answer:
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
	s := inspect.Step{Out: dst}
	switch {
	case d.done:
		s.State = inspect.Done
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
	root := gjson.ParseBytes(d.body)
	if words(root.Get("type")) == "error" {
		if f := level(root, messageKeys, quietError); f.reason != "" {
			return nil, d.spoil(f.fault, f.reason)
		}
		return nil, nil
	}
	if f := level(root, messageKeys, quietMessage); f.reason != "" {
		return nil, d.spoil(f.fault, f.reason)
	}
	if typ := root.Get("type"); typ.Exists() && words(typ) != "message" {
		return nil, d.spoil(toolcall.FaultUnknown, "an answer of type "+typ.Raw+" cannot be read")
	}
	d.id, d.finish = words(root.Get("id")), words(root.Get("stop_reason"))
	if model := words(root.Get("model")); model != "" {
		d.model = model
	}
	d.in, d.out = count(root.Get("usage.input_tokens")), count(root.Get("usage.output_tokens"))
	d.reason = spotOf(root.Get("stop_reason"))
	content := root.Get("content")
	if content.Exists() && content.Type != gjson.Null && !content.IsArray() {
		return nil, d.spoil(toolcall.FaultUnknown, "the content is no list of blocks")
	}
	content.ForEach(func(_, block gjson.Result) bool {
		if d.isCall(block) {
			err = d.found(block)
			return err == nil
		}
		typ := words(block.Get("type"))
		if f := blockLevel(typ, block); f.reason != "" {
			err = d.faulty(block, f)
		} else if kindOf(typ) == hostedBlock {
			hosted = append(hosted, d.hostedCall(typ, words(block.Get("id")), words(block.Get("name")), []byte(block.Get("input").Raw)))
		}
		if reason := d.tooMuch(); reason != "" && err == nil {
			err = d.fail("content", reason, true)
		}
		return err == nil
	})
	return hosted, err
}

// found takes in the call that a block is.
func (d *document) found(block gjson.Result) error {
	c := &call{}
	f := d.readCall(&c.Call, block)
	c.blame(f.fault, f.reason)
	if lone(block.Raw, d.lim.Depth) {
		c.blame(toolcall.FaultAmbiguous, "half a surrogate pair stands in its block")
	}
	in := block.Get("input")
	c.start = []byte(in.Raw)
	if !in.Exists() && f.fault == toolcall.FaultUnknown {
		c.start = []byte(block.Raw)
	}
	d.settle(c)
	d.sites = append(d.sites, site{c, spotOf(block), spotOf(in)})
	return d.take(c)
}

// faulty withholds a block that is no call, as one with a fault.
func (d *document) faulty(block gjson.Result, f flaw) error {
	c := &call{complete: true}
	c.Type, c.ID, c.Name = words(block.Get("type")), words(block.Get("id")), words(block.Get("name"))
	c.Args = []byte(block.Raw[:min(len(block.Raw), d.lim.Args)])
	c.blame(f.fault, f.reason)
	d.sites = append(d.sites, site{call: c, block: spotOf(block)})
	return d.take(c)
}

// spoil withholds the document as a whole.
func (d *document) spoil(f toolcall.Fault, reason string) error {
	c := &call{complete: true}
	c.Type = "document"
	c.blame(f, reason)
	c.Args = bytes.Clone(d.body[:min(len(d.body), d.lim.Args)])
	d.spoiled = true
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
	return d.step(d.conclude(dst)), nil
}

// conclude gives the document out once every call has its ruling.
func (d *document) conclude(dst []byte) []byte {
	if d.waiting() {
		return dst
	}
	d.done = true
	if d.spoiled {
		d.altered, d.shown = true, "end_turn"
		return append(dst, message(d.id, d.model, d.calls[0].refusal(), "end_turn", d.in, d.out)...)
	}
	var edits []edit
	for _, s := range d.sites {
		switch {
		case !s.call.released():
			edits = append(edits, edit{s.block.at, s.block.n, appendTextObject(nil, s.call.refusal())})
			continue
		case s.call.ruling.Args != nil && s.input.n > 0:
			edits = append(edits, edit{s.input.at, s.input.n, s.call.ruling.Args})
		case s.call.ruling.Args != nil:
			in := append([]byte(`"input":`), s.call.ruling.Args...)
			edits = append(edits, edit{s.block.at + 1, 0, append(in, ',')})
		}
		d.given++
	}
	d.shown = d.finish
	if d.finish == "tool_use" && len(d.calls) > 0 && !d.anyShown() {
		edits = append(edits, edit{d.reason.at, d.reason.n, []byte(`"end_turn"`)})
		d.shown = "end_turn"
	}
	d.altered = d.altered || len(edits) > 0
	return patch(dst, d.body, edits...)
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
	if strings.TrimSpace(text) == "" {
		text = inspect.NoReason
	}
	return append(dst, message(d.id, d.model, text, "end_turn", d.in, d.out)...)
}

// Record tells what the provider said against what was shown.
func (d *document) Record() inspect.Record {
	r := inspect.Record{ID: d.id, Model: d.model, Finish: d.finish, Shown: d.shown, InputTokens: d.in, OutputTokens: d.out, Altered: d.altered}
	r.Calls, r.Withheld = d.count()
	return r
}
