package openaichat

import (
	"bytes"
	"fmt"
	"strings"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
)

// document is a turn that comes as one JSON document.
type document struct {
	turn
	body  []byte
	rd    *reading
	began bool // more than white space was given out
	earlier
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
	step := d.step()
	step.Held += len(d.body)
	return step, d.err
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
	if err := r.read(); err != nil {
		return err
	}
	for _, l := range d.lanes {
		d.finish(l, r.rd.failed)
	}
	d.rd = r.rd
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
	if d.open > 0 || d.over || d.suspended {
		return
	}
	var edits []rawjson.Edit
	lost := false // a refusal has no message to stand in
	for _, c := range d.calls {
		c.lane.pass(c)
	}
	if d.repair && (d.rec.Withheld > 0 || d.begun > 1) {
		d.gather()
		if d.suspends() {
			d.stop()
			return
		}
		d.owe()
		if d.rd.whole == nil && d.closes() && d.speaks() {
			d.lanes[0].refusals = append(d.lanes[0].refusals, saidNothing)
		}
	}
	d.over = true
	untouched := d.begun == 1 && d.rd.untouched()
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
	if d.rd.outer != nil {
		edits = append(edits, d.envelopeEdits(d.body, d.rd.outer)...)
	}
	for _, l := range d.lanes {
		lost = lost || len(l.refusals) > 0
	}
	d.void = d.begun > 1 && d.rd.failed
	switch {
	case d.begun > 1 && !lost && d.rd.whole == nil && !d.rd.failed && !d.speaks():
		d.out = d.tellEarlier(d.out)
	case d.rd.whole != nil || lost:
		d.unseen = d.said.size() - d.seen
		words := d.refusalText()
		d.notice(words, !d.structured)
		d.out = d.finished(d.completion(d.out, d.behind(words)))
		d.rec.Shown, d.rec.Altered = "stop", true
	case len(edits) == 0:
		d.out = append(d.out, d.body...)
	default:
		d.out = rawjson.Apply(d.out, d.body, edits)
		d.rec.Altered = true
	}
	d.began = true
}

// refusalText is what stands in the place of an answer of which nothing can be
// shown.
func (d *document) refusalText() string {
	var all []string
	for _, c := range d.calls[d.first:] {
		if !c.released && !c.fits {
			all = append(all, c.refusal)
		}
	}
	return strings.Join(all, "\n\n")
}

// choiceEdits changes one choice and puts its refusals into its message.
func (d *document) choiceEdits(ch *choice) []rawjson.Edit {
	p := d.patch(d.body, ch)
	edits := append(p.edits, finishEdits(ch, d.body, ch.lane.finishShown(ch.reason))...)
	if d.begun > 1 && ch.lane.n == 0 && ch.body.There() {
		return d.join(ch, &p, edits)
	}
	if len(ch.lane.refusals) == 0 || !ch.body.There() {
		return edits
	}
	words := d.tell(ch)
	at := ch.content
	if d.structured {
		at = ch.refusal
	}
	return append(dropNull(edits, at), d.put(ch, &p, at, words))
}

// dropNull takes out an edit of a value that is about to be replaced.
func dropNull(edits []rawjson.Edit, at rawjson.Span) []rawjson.Edit {
	kept := edits[:0]
	for _, e := range edits {
		if e.At != at || !at.There() {
			kept = append(kept, e)
		}
	}
	return kept
}

// put is the edit that adds words to a message's content, whatever its form.
func (d *document) put(ch *choice, p *patched, at rawjson.Span, words string) rawjson.Edit {
	b := d.body
	switch {
	case !at.There():
		member := append(append([]byte{'"'}, d.words()...), `":`...)
		member = appendQuoted(member, words)
		if p.left > 0 {
			member = append(member, ',')
		}
		return rawjson.Insert(ch.body.From+1, member)
	case rawjson.IsString(b, at) && at.To-at.From > 2:
		return rawjson.Insert(at.To-1, appendEscaped(nil, "\n\n"+words))
	case at == ch.content && p.emptied:
		return rawjson.Edit{At: at, Text: quoted(words)}
	case rawjson.Nested(b, at) && b[at.From] == '[':
		part := appendQuoted([]byte(`,{"type":"text","text":`), words)
		return rawjson.Insert(at.To-1, append(part, '}'))
	}
	return rawjson.Edit{At: at, Text: quoted(words)}
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
	if d.env.id == "" {
		d.peek()
	}
	if !d.suspended {
		d.gather()
		d.unseen = d.said.size()
	}
	words := d.behind(text)
	d.notice(text, !d.structured)
	if d.suspended {
		d.ending = text
	}
	return d.finished(d.completion(dst, words))
}

// peek looks for the envelope of a document that was not read.
func (d *document) peek() {
	doc := rawjson.All(d.body)
	if bytes.IndexByte(d.body, '{') < 0 || strictjson.Validate(d.body, strictjson.Options{Depth: d.lim.Depth}) != nil {
		return
	}
	d.env.take(d.body, rawjson.Get(d.body, doc, "id"), rawjson.Get(d.body, doc, "created"), rawjson.Get(d.body, doc, "model"), false)
}
