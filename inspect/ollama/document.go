package ollama

import (
	"fmt"
	"slices"
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
	// earlier is what rounds before this one said, texts of ours included.
	earlier saying
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
		d.err = limit("answer", fmt.Sprintf("it is larger than %d bytes", d.lim.Answer))
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
	switch err := strictjson.Validate(d.body, strictjson.Options{Depth: d.lim.Depth, Surrogates: true}); {
	case end == inspect.EndCut:
		d.err = &inspect.Error{Dialect: name, Where: "answer", Reason: "it broke off"}
	case err != nil:
		d.err = &inspect.Error{Dialect: name, Where: "answer", Reason: "clients would not read it alike", Err: err}
	default:
		d.rd, d.err = d.read(d.body)
	}
	if d.err == nil {
		d.drain()
	}
	return d.step(), d.err
}

// Resolve carries out a ruling.
func (d *document) Resolve(dst []byte, seq int, r inspect.Ruling) (inspect.Step, error) {
	d.out = dst
	err := d.rule(seq, r)
	if err == nil && d.rd != nil && d.err == nil {
		d.drain()
	}
	return d.step(), err
}

// drain gives the document out once every call has its ruling.
func (d *document) drain() {
	if d.open > 0 || d.over || d.suspended {
		return
	}
	b, rd := d.body, d.rd
	texts := rd.pass()
	if rd.whole == nil {
		d.introduce(b, rd)
	}
	d.rec.Finish, d.rec.Shown = d.reason, d.reasonShown()
	if d.repair && (d.rec.Withheld > 0 || d.begun > 1) {
		if d.suspends() {
			d.stop(texts)
			return
		}
		texts = append(texts, d.owed(true)...)
	}
	for _, t := range texts {
		d.notice(t)
	}
	d.over, d.began = true, true
	ours := strings.Join(texts, "\n\n")
	if rd.whole != nil {
		d.answer(ours)
		return
	}
	p := d.patch(b, rd, d.earlier, ours)
	p.edits = append(p.edits, d.laterEdits(b, rd)...)
	if rd.end {
		p.edits = append(p.edits, d.endEdits(b, rd)...)
	}
	d.shown = slices.Clone(p.says.words)
	d.out = rawjson.Apply(d.out, b, p.edits)
	d.rec.Altered = d.rec.Altered || len(p.edits) > 0
}

// stop suspends the turn behind a document of which no call is left.
func (d *document) stop(texts []string) {
	says := saying{slices.Clone(d.said.words), slices.Clone(d.said.thinking)}
	if len(texts) > 0 {
		text := strings.Join(texts, "\n\n")
		d.notice(text)
		ours := d.ours(appendEscaped(nil, text))
		says = saying{apart(says.words, ours.words), apart(says.thinking, ours.thinking)}
	}
	d.earlier = saying{apart(d.earlier.words, says.words), apart(d.earlier.thinking, says.thinking)}
	d.shown = slices.Clone(d.earlier.words) // it will be
	d.rec.Altered = true
	d.suspend()
}

// answer gives a whole answer of ours behind what earlier rounds said.
func (d *document) answer(text string) {
	ours := d.ours(appendEscaped(nil, text))
	says := saying{apart(slices.Clone(d.earlier.words), ours.words), apart(slices.Clone(d.earlier.thinking), ours.thinking)}
	d.out = d.appendOwn(d.out, says, true)
	d.shown = says.words
	d.rec.Shown, d.rec.Altered = "stop", true
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
	d.over, d.began, d.open = true, true, 0
	d.notice(text)
	if d.suspended {
		d.ending = text
	}
	d.out = dst
	d.answer(text)
	dst, d.out = d.out, nil
	return dst
}

// Fail gives an error in place of an answer, when none was given out.
func (d *document) Fail(dst []byte, text string) []byte {
	if d.over {
		return dst
	}
	d.over, d.began, d.open = true, true, 0
	d.rec.Altered, d.void = true, true
	return appendError(dst, text)
}

// NextRound goes on with a further document.
func (d *document) NextRound(h inspect.Head) error {
	if err := d.takesRound(h, false); err != nil {
		return err
	}
	d.nextRound()
	d.body, d.rd = nil, nil
	return nil
}
