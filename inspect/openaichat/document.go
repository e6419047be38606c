package openaichat

import (
	"bytes"
	"fmt"
	"strings"

	"callgate/inspect"
	"callgate/inspect/strictjson"
)

// document is a turn that comes as one JSON document.
type document struct {
	turn
	body  []byte
	rd    *reading
	began bool // more than white space was given out
}

var _ inspect.Turn = (*document)(nil)

// Feed takes the next bytes of the document. All of it is needed before any of
// it can be shown.
func (d *document) Feed(dst, p []byte) (inspect.Step, error) {
	d.out = dst
	switch {
	case d.err != nil:
	case d.ended:
		d.err = &inspect.Error{Dialect: name, Reason: "more was fed behind the end of the answer"}
	case len(d.body)+len(p) > d.lim.Answer:
		d.err = d.limit("answer", fmt.Sprintf("it is larger than %d bytes", d.lim.Answer))
	default:
		d.body = append(d.body, p...)
	}
	return d.step(), d.err
}

// EndRound reads the document.
func (d *document) EndRound(dst []byte, end inspect.End) (inspect.Step, error) {
	d.out = dst
	if d.err != nil || d.ended {
		return d.step(), d.err
	}
	d.ended = true
	if end == inspect.EndCut {
		d.err = &inspect.Error{Dialect: name, Where: "answer", Reason: "it broke off"}
		return d.step(), d.err
	}
	if d.err = d.read(); d.err == nil {
		d.drain()
	}
	return d.step(), d.err
}

func (d *document) read() error {
	opts := strictjson.Options{Depth: d.lim.Depth, Known: known, Surrogates: true}
	if err := strictjson.Validate(d.body, opts); err != nil {
		return &inspect.Error{Dialect: name, Where: "answer", Reason: "clients would not read it alike", Err: err}
	}
	r := reader{turn: &d.turn, b: d.body, message: true}
	rd, err := r.read()
	if err != nil {
		return err
	}
	for _, l := range d.lanes {
		d.finish(l, rd.failed)
	}
	d.rd = rd
	return nil
}

// Resolve carries out a ruling.
func (d *document) Resolve(dst []byte, seq int, r inspect.Ruling) (inspect.Step, error) {
	d.out = dst
	_, err := d.rule(seq, r)
	if err == nil && d.rd != nil {
		d.drain()
	}
	return d.step(), err
}

// drain gives the document out once every call has its ruling.
func (d *document) drain() {
	if d.open > 0 || d.over {
		return
	}
	d.over = true
	var edits []edit
	lost := false // a refusal has no message to stand in
	for _, c := range d.calls {
		c.lane.pass(c)
	}
	untouched := d.rd.untouched()
	for i := range d.rd.choices {
		ch := &d.rd.choices[i]
		if !untouched {
			edits = append(edits, d.choiceEdits(ch)...)
		}
		if i == 0 {
			d.rec.Finish, d.rec.Shown = ch.reason, ch.lane.finishShown(ch.reason)
		}
	}
	edits = append(edits, d.topEdits(d.body, d.rd)...)
	for _, l := range d.lanes {
		lost = lost || len(l.refusals) > 0
	}
	switch {
	case d.rd.whole != nil || lost:
		d.out = d.completion(d.out, d.refusalText())
		d.rec.Shown, d.rec.Altered = "stop", true
	case len(edits) == 0:
		d.out = append(d.out, d.body...)
	default:
		d.out = apply(d.out, d.body, edits)
		d.rec.Altered = true
	}
	d.began = true
}

// refusalText is what stands in the place of an answer of which nothing can be
// shown.
func (d *document) refusalText() string {
	var all []string
	for _, c := range d.calls {
		if !c.released {
			all = append(all, c.refusal)
		}
	}
	return strings.Join(all, "\n\n")
}

// choiceEdits changes one choice and puts its refusals into its message.
func (d *document) choiceEdits(ch *choice) []edit {
	p := d.patch(d.body, ch)
	edits := append(p.edits, finishEdits(ch, d.body, ch.lane.finishShown(ch.reason))...)
	if len(ch.lane.refusals) == 0 || !ch.body.there() {
		return edits
	}
	words := strings.Join(ch.lane.refusals, "\n\n")
	ch.lane.refusals = nil
	at := ch.content
	if d.structured {
		at = ch.refusal
	}
	return append(dropNull(edits, at), d.put(ch, &p, at, words))
}

// dropNull takes out an edit of a value that is about to be replaced.
func dropNull(edits []edit, at span) []edit {
	kept := edits[:0]
	for _, e := range edits {
		if e.at != at || !at.there() {
			kept = append(kept, e)
		}
	}
	return kept
}

// put is the edit that adds words to a message's content, whatever its form.
func (d *document) put(ch *choice, p *patched, at span, words string) edit {
	b := d.body
	switch {
	case !at.there():
		member := append(append([]byte{'"'}, d.words()...), `":`...)
		member = appendQuoted(member, words)
		if p.left > 0 {
			member = append(member, ',')
		}
		return edit{span{ch.body.from + 1, ch.body.from + 1}, member}
	case isString(b, at) && at.to-at.from > 2:
		return edit{span{at.to - 1, at.to - 1}, appendEscaped(nil, "\n\n"+words)}
	case at == ch.content && p.emptied:
		return edit{at, quoted(words)}
	case nested(b, at) && b[at.from] == '[':
		part := appendQuoted([]byte(`,{"type":"text","text":`), words)
		return edit{span{at.to - 1, at.to - 1}, append(part, '}')}
	}
	return edit{at, quoted(words)}
}

// KeepAlive appends a space, which a JSON reader steps over before the answer.
func (d *document) KeepAlive(dst []byte) []byte {
	if d.began || d.over {
		return dst
	}
	d.rec.Altered = true
	return append(dst, ' ')
}

// Abandon gives a whole answer of ours, when none was given out.
func (d *document) Abandon(dst []byte, text string) []byte {
	if d.over {
		return dst
	}
	d.over, d.open = true, 0
	d.rec.Altered = true
	d.rec.Shown = "stop"
	if d.env.id == nil {
		d.peek()
	}
	return d.completion(dst, text)
}

// peek looks for the envelope of a document that was not read.
func (d *document) peek() {
	doc := span{space(d.body, 0), len(d.body)}
	if bytes.IndexByte(d.body, '{') < 0 || strictjson.Validate(d.body, strictjson.Options{Depth: d.lim.Depth}) != nil {
		return
	}
	d.env.take(d.body, get(d.body, doc, "id"), get(d.body, doc, "created"), get(d.body, doc, "model"), false)
}
