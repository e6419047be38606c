package gemini

import (
	"bytes"

	"github.com/tidwall/gjson"

	"callgate/inspect/rawjson"
)

// form is how an answer comes.
type form uint8

const (
	formUnknown form = iota // JSON of which nothing was read
	formEvents
	formArray
	formDocument
)

// output is what the agent has got of the answer as a text.
type output struct {
	form   form
	now    form   // of this round, as far as it is JSON
	nl     string // how lines of events end, "" before the first
	opened bool   // the bracket of an array was given out
	closed bool   // nothing can stand behind what was
}

// lineEnd notes how the lines of events end. Some readers find the end of an
// event by two equal ones.
func (o *output) lineEnd(event []byte) {
	if i := bytes.IndexByte(event, '\n'); o.nl == "" && i >= 0 {
		if o.nl = "\n"; i > 0 && event[i-1] == '\r' {
			o.nl = "\r\n"
		}
	}
}

func (o *output) newline() string {
	if o.nl == "" {
		return "\n"
	}
	return o.nl
}

// pass gives out a frame as it came.
func (t *turn) pass(raw []byte, mark int) {
	if t.form != formArray {
		t.dst = append(t.dst, raw...)
		return
	}
	from := len(t.dst)
	t.dst = append(t.dst, raw...)
	// An element may have become the first, or one behind others.
	want := byte('[')
	if t.opened {
		want = ','
	}
	if raw[mark] != want {
		t.dst[from+mark] = want
		t.altered = true
	}
	t.opened = true
}

// passEnd gives out the end of an array as it came.
func (t *turn) passEnd(raw []byte, mark int) {
	t.closed = true
	switch bracket := mark >= 0 && raw[mark] == '['; {
	case bracket && t.opened:
		t.dst = append(append(t.dst, raw[:mark]...), raw[mark+1:]...)
		t.altered = true
	case !bracket && !t.opened:
		t.dst = append(append(t.dst, '['), raw...)
		t.altered = true
	default:
		t.dst = append(t.dst, raw...)
	}
	t.opened = true
}

// write gives out a chunk of our making.
func (t *turn) write(data []byte) {
	t.altered = true
	switch t.settled() {
	case formEvents:
		t.dst = append(append(t.dst, "data: "...), data...)
		t.dst = append(append(t.dst, t.newline()...), t.newline()...)
	case formArray:
		if t.opened {
			t.dst = append(t.dst, ",\n"...)
		} else {
			t.dst = append(t.dst, '[')
		}
		t.opened = true
		t.dst = append(t.dst, data...)
	default:
		t.dst = append(t.dst, data...)
		t.closed = true
	}
}

// settled is the form of the answer. Where nothing has come it is that which
// the request asked for.
func (t *turn) settled() form {
	if t.form == formUnknown {
		if t.form = formDocument; t.stream {
			t.form = formArray
		}
	}
	return t.form
}

// shut ends what was given out.
func (t *turn) shut() {
	if t.settled() == formArray && !t.closed {
		if !t.opened {
			t.dst = append(t.dst, '[')
		}
		t.dst = append(t.dst, ']')
	}
	t.closed = true
}

// say gives out a chunk with texts of ours, and with a reason for the end if
// there is one. counted says that it tells the usage.
func (t *turn) say(texts []string, finish string, counted bool) {
	l := t.lane(0)
	list := t.carried
	for _, text := range texts {
		list = t.own(comma(list), l, text)
	}
	t.carried = nil
	data := []byte(`{"candidates":[{"content":{"parts":[`)
	data = append(append(data, list...), `],"role":"model"}`...)
	if finish != "" {
		data = append(append(append(data, `,"finishReason":"`...), finish...), '"')
	}
	data = append(data, `,"index":0}]`...)
	if counted {
		data = t.appendUsage(data)
	}
	data = t.appendEnvelope(data)
	t.write(t.wrap(append(data, '}')))
}

// appendEnvelope adds the members that all chunks have.
func (t *turn) appendEnvelope(dst []byte) []byte {
	if string(t.env.model) != `""` {
		dst = append(append(dst, `,"modelVersion":`...), t.env.model...)
	}
	if t.env.id != nil {
		dst = append(append(dst, `,"responseId":`...), t.env.id...)
	}
	return dst
}

// wrap puts a chunk where Code Assist has it.
func (t *turn) wrap(data []byte) []byte {
	if !t.wrapped {
		return data
	}
	return append(append([]byte(`{"response":`), data...), '}')
}

// own adds a part with a text of ours, set apart from the text before. Behind a
// text that must follow a schema it is a thought, which is no part of that text.
func (t *turn) own(dst []byte, l *lane, text string) []byte {
	if t.told != nil && l.n == 0 {
		t.told.notices = append(t.told.notices, text)
	}
	if t.structured && l.spoke {
		return append(gjson.AppendJSONString(append(dst, `{"text":`...), text), `,"thought":true}`...)
	}
	if l.spoke || l.gap {
		text = "\n\n" + text
	}
	dst = append(dst, `{"text":`...)
	from := len(dst)
	dst = gjson.AppendJSONString(dst, text)
	t.saw(l, dst[from+1:len(dst)-1])
	l.spoke, l.gap = true, true
	return append(dst, '}')
}

// saw notes a text that is shown, as it is written between its quotes.
func (t *turn) saw(l *lane, inner []byte) {
	if len(inner) == 0 {
		return
	}
	l.spoke = true
	if t.told != nil && l.n == 0 {
		t.told.seen = append(t.told.seen, inner...)
	}
}

// comma adds a comma unless nothing stands before it.
func comma(dst []byte) []byte {
	if len(dst) > 0 {
		return append(dst, ',')
	}
	return dst
}

// inner gives a string as it is written, without its quotes; nothing for any
// other value.
func inner(b []byte, v rawjson.Span) []byte {
	if !rawjson.IsString(b, v) {
		return nil
	}
	return b[v.From+1 : v.To-1]
}

func quoted(s string) []byte { return gjson.AppendJSONString(nil, s) }
