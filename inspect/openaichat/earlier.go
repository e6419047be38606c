package openaichat

import (
	"bytes"
	"slices"
	"strings"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
)

// earlier is what a document has of the rounds before the one that it gives out,
// beside their text: the thinking in them.
type earlier struct {
	first    int // call of this round
	gathered bool
	strings  [len(saidStrings)][]byte
	lists    [len(saidLists)][]byte
}

const emptyLine = `\n\n`

// gather takes in what a document says, when it is needed.
func (d *document) gather() {
	if d.gathered || d.rd == nil || d.rd.whole != nil || !d.gathers() {
		return
	}
	d.gathered = true
	for i := range d.rd.choices {
		if ch := &d.rd.choices[i]; ch.lane.n == 0 {
			d.said.body(d.body, ch.body)
		}
	}
}

// stop suspends the turn behind a document of which no call is left.
func (d *document) stop() {
	for _, l := range d.lanes {
		if len(l.refusals) > 0 {
			d.notice(strings.Join(l.refusals, "\n\n"), !d.structured)
			l.refusals = nil
		}
		d.rec.Finish = l.reason
	}
	if a := d.said.aside; a != nil {
		for i, raw := range a.strings {
			d.strings[i] = apart(d.strings[i], raw)
		}
		for i, raw := range a.lists {
			if len(raw) > 0 {
				d.lists[i] = join(d.lists[i], raw)
			}
		}
	}
	d.suspend()
}

// apart puts an empty line between two texts as they are written, when both say
// something.
func apart(x, y []byte) []byte {
	if len(x) > 0 && len(y) > 0 {
		x = append(slices.Clone(x), emptyLine...)
	}
	return append(x[:len(x):len(x)], y...)
}

// behind gives a text of ours behind the text of earlier rounds.
func (d *document) behind(text string) string {
	if len(d.shown) == 0 {
		return text
	}
	raw := append(append([]byte{'"'}, d.shown...), '"')
	return string(strictjson.AppendString(nil, raw)) + "\n\n" + text
}

// tell takes the refusals of a choice, which will be shown as one text.
func (d *document) tell(ch *choice) string {
	words := strings.Join(ch.lane.refusals, "\n\n")
	ch.lane.refusals = nil
	if words != "" {
		d.notice(words, ch.lane.n == 0 && !d.structured)
	}
	return words
}

// join puts what earlier rounds said before what the message of the last one
// says.
func (d *document) join(ch *choice, p *patched, edits []rawjson.Edit) []rawjson.Edit {
	b := d.body
	text := d.shown
	words := d.tell(ch)
	var fresh [][]byte // members that the message did not have
	set := func(key string, at rawjson.Span, value []byte) {
		if at.There() {
			edits = append(dropNull(edits, at), rawjson.Edit{At: at, Text: value})
			return
		}
		fresh = append(fresh, slices.Concat([]byte{'"'}, []byte(key), []byte(`":`), value))
	}
	str := func(raw []byte) []byte { return append(append([]byte{'"'}, raw...), '"') }
	own := func(at rawjson.Span) []byte {
		if rawjson.IsString(b, at) {
			return inner(b, at)
		}
		return nil
	}
	if d.structured && words != "" {
		set("refusal", ch.refusal, str(apart(own(ch.refusal), appendEscaped(nil, words))))
		words = ""
	}
	if rawjson.Nested(b, ch.content) && b[ch.content.From] == '[' && !p.emptied {
		part := func(raw []byte) []byte {
			return append(append([]byte(`{"type":"text","text":"`), raw...), `"}`...)
		}
		if len(text) > 0 {
			edits = append(edits, rawjson.Insert(ch.content.From+1, append(part(text), ',')))
		}
		if words != "" {
			edits = append(edits, rawjson.Insert(ch.content.To-1, append([]byte{','}, part(appendEscaped(nil, words))...)))
		}
	} else if all := apart(apart(text, own(ch.content)), appendEscaped(nil, words)); len(text) > 0 || words != "" {
		set("content", ch.content, str(all))
	}
	for i, raw := range d.strings {
		if i == saysRefusal || len(raw) == 0 {
			continue
		}
		at := rawjson.Get(b, ch.body, saidStrings[i])
		set(saidStrings[i], at, str(apart(raw, own(at))))
	}
	for i, raw := range d.lists {
		if len(raw) == 0 {
			continue
		}
		at := rawjson.Get(b, ch.body, saidLists[i])
		if rawjson.IsArray(b, at) && rawjson.Nested(b, at) {
			edits = append(edits, rawjson.Insert(at.From+1, append(slices.Clone(raw), ',')))
			continue
		}
		set(saidLists[i], at, append(append([]byte{'['}, raw...), ']'))
	}
	if len(fresh) > 0 {
		text := bytes.Join(fresh, []byte{','})
		if p.left > 0 {
			text = append(text, ',')
		}
		edits = append(edits, rawjson.Insert(ch.body.From+1, text))
	}
	return edits
}

// speaks reports whether the document has a message of its first choice.
func (d *document) speaks() bool {
	for i := range d.rd.choices {
		if ch := &d.rd.choices[i]; ch.lane.n == 0 && ch.body.There() {
			return true
		}
	}
	return false
}

// tellEarlier gives a whole answer of what earlier rounds said, when the last one
// has no message.
func (d *document) tellEarlier(dst []byte) []byte {
	d.rec.Finish, d.rec.Shown, d.rec.Altered = "", "stop", true
	if !d.texts() {
		d.notice(saidNothing, !d.structured)
		return d.finished(d.completion(dst, saidNothing))
	}
	text := append(append([]byte{'"'}, d.shown...), '"')
	return d.finished(d.completion(dst, string(strictjson.AppendString(nil, text))))
}

// finished adds usage to an answer of ours.
func (d *document) finished(answer []byte) []byte {
	if len(d.lastUsage) == 0 || !d.suspended && d.begun == 1 {
		return answer
	}
	return append(d.appendUsage(append(answer[:len(answer)-1], `,"usage":`...)), '}')
}

// NextRound goes on with a further document.
func (d *document) NextRound(h inspect.Head) error {
	if err := d.takesRound(h, false); err != nil {
		return err
	}
	d.nextRound()
	d.body, d.rd, d.first, d.gathered = nil, nil, len(d.calls), false
	return nil
}

// Fail gives an error in place of an answer, when none was given out.
func (d *document) Fail(dst []byte, text string) []byte {
	if d.over {
		return dst
	}
	d.over, d.open = true, 0
	d.rec.Altered, d.void = true, true
	return appendError(dst, text)
}

// Told is what later requests have to be told.
func (d *document) Told() inspect.Told {
	if !d.suspended {
		d.gather()
	}
	return d.turn.Told()
}
