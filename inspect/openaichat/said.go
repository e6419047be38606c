package openaichat

import (
	"bytes"
	"slices"

	"callgate/inspect/rawjson"
)

// said gathers what the provider says in one choice while it streams, in the
// form that requests have it in: strings as they are written, without their
// quotes, so that pieces are put together by appending.
type said struct {
	// text is all that the content says. What came first is in full, which holds
	// so many bytes: nothing is moved while an answer streams.
	text  []byte
	full  [][]byte
	held  int
	aside *aside
}

// aside is what most answers say little of, or nothing.
type aside struct {
	// parts are the content's parts, when it came in parts, the last one at whole:
	// text behind it is not among them yet.
	parts []byte
	whole int
	// The members beside the content.
	strings [len(saidStrings)][]byte
	lists   [len(saidLists)][]byte
	extra   []byte // extra_content
	audio   []byte // the id of what was spoken
}

// The room that text gets at first, and at most, at a time.
const (
	firstText = 512
	maxText   = 4 << 10
)

// size is how many bytes of text there are.
func (s *said) size() int { return s.held + len(s.text) }

// weight is how many bytes there are, with what stands beside the text.
func (s *said) weight() int {
	n := s.size()
	if a := s.aside; a != nil {
		n += len(a.parts) + len(a.extra) + len(a.audio)
		for _, b := range a.strings {
			n += len(b)
		}
		for _, b := range a.lists {
			n += len(b)
		}
	}
	return n
}

// add takes in a piece of text.
func (s *said) add(piece []byte) {
	if cap(s.text)-len(s.text) < len(piece) {
		s.grow(len(piece))
	}
	n := len(s.text)
	s.text = s.text[:n+len(piece)]
	copy(s.text[n:], piece)
}

func (s *said) grow(n int) {
	room := firstText
	if len(s.text) > 0 {
		room = min(2*cap(s.text), maxText)
		s.full, s.held = append(s.full, s.text), s.held+len(s.text)
	}
	s.text = make([]byte, 0, max(room, n))
}

// all gives the text in one.
func (s *said) all() []byte {
	if len(s.full) > 0 {
		s.text = slices.Concat(append(s.full, s.text)...)
		s.full, s.held = nil, 0
	}
	return s.text
}

// beside gives the place for what is said beside the text.
func (s *said) beside() *aside {
	if s.aside == nil {
		s.aside = &aside{}
	}
	return s.aside
}

// The members of an answer that requests have too, beside its content and its
// calls. Those that hold text come in pieces, and those that hold lists in pieces
// of lists.
var (
	saidStrings = [...]string{"refusal", "reasoning", "reasoning_content", "reasoning_text", "reasoning_opaque"}
	saidLists   = [...]string{"reasoning_details", "thinking_blocks"}
)

// The numbers in saidStrings that the templates know.
const (
	saysRefusal = iota
	saysReasoning
	saysReasoningContent
)

// inner gives a string as it is written, without its quotes.
func inner(b []byte, s rawjson.Span) []byte { return b[s.From+1 : s.To-1] }

// body takes in a delta or a message.
func (s *said) body(b []byte, body rawjson.Span) {
	for w := rawjson.Open(b, body); w.Next(); {
		if rawjson.Null(b, w.Val) {
			continue
		}
		key := string(w.Key.In(b))
		switch key {
		case "content":
			s.content(b, w.Val)
			continue
		case "extra_content":
			s.beside().extra = slices.Clone(w.Val.In(b))
			continue
		case "audio":
			if id := rawjson.Get(b, w.Val, "id"); rawjson.IsString(b, id) {
				s.beside().audio = slices.Clone(id.In(b))
			}
			continue
		}
		if i := slices.Index(saidStrings[:], key); i >= 0 && rawjson.IsString(b, w.Val) {
			s.says(i, inner(b, w.Val))
		}
		if i := slices.Index(saidLists[:], key); i >= 0 && rawjson.IsArray(b, w.Val) {
			a := s.beside()
			for e := rawjson.Open(b, w.Val); e.Next(); {
				a.lists[i] = join(a.lists[i], e.Val.In(b))
			}
		}
	}
}

// says takes in a piece of a member that holds text.
func (s *said) says(i int, piece []byte) {
	if len(piece) > 0 {
		a := s.beside()
		a.strings[i] = append(a.strings[i], piece...)
	}
}

// content takes in a content, or a piece of one. Parts that could be calls are
// left out: they are withheld as such.
func (s *said) content(b []byte, v rawjson.Span) {
	if rawjson.IsString(b, v) {
		s.add(inner(b, v))
		return
	}
	if !rawjson.IsArray(b, v) {
		return
	}
	for e := rawjson.Open(b, v); e.Next(); {
		p := readPart(b, e.Val)
		if _, ok := textParts[rawjson.Text(b, rawjson.Get(b, e.Val, "type"))]; !p.text.There() && !(ok && b[e.Val.From] == '{') {
			continue
		}
		if p.text.There() && p.text.Len() == 2 {
			continue // an empty text is refused by providers
		}
		a := s.beside()
		a.settle(s.all())
		a.parts = join(a.parts, e.Val.In(b))
		if p.text.There() {
			s.add(inner(b, p.text))
			a.whole = s.size()
		}
	}
}

// settle makes a part of the text that is in none.
func (a *aside) settle(text []byte) {
	if a.whole < len(text) {
		a.parts = append(append(join(a.parts, []byte(`{"type":"text","text":"`)), text[a.whole:]...), `"}`...)
		a.whole = len(text)
	}
}

// bound reports whether the members hold thinking that its provider has signed
// or sealed.
func (s *said) bound() bool {
	a := s.aside
	return a != nil && len(a.lists[0])+len(a.lists[1])+len(a.extra)+len(a.strings[len(saidStrings)-1]) > 0
}

// message gives the answer as a message of a history, nil when there is nothing
// to give. told is text of ours that the model has to read, calls are members
// that hold its calls, pieces says that lists came in pieces.
func (s *said) message(told string, calls []byte, pieces bool) []byte {
	text := s.all()
	if told != "" {
		text = apart(text, appendEscaped(nil, told))
	}
	var a aside
	if s.aside != nil {
		a = *s.aside
	}
	if len(a.parts) > 0 {
		a.parts = slices.Clone(a.parts)
		a.settle(text)
	}
	if len(a.parts)+len(a.strings[saysRefusal])+len(a.audio)+len(calls) == 0 && !visible(text) {
		return nil // thinking and white space alone cannot stand in a request
	}
	dst := []byte(`{"role":"assistant","content":`)
	switch {
	case len(a.parts) > 0:
		dst = append(append(append(dst, '['), a.parts...), ']')
	case len(text) > 0:
		dst = append(append(append(dst, '"'), text...), '"')
	default:
		dst = append(dst, "null"...)
	}
	for i, raw := range a.strings {
		if len(raw) > 0 {
			dst = append(append(append(dst, `,"`...), saidStrings[i]...), `":"`...)
			dst = append(append(dst, raw...), '"')
		}
	}
	for i, raw := range a.lists {
		if len(raw) > 0 {
			if pieces {
				raw = whole(raw)
			}
			dst = append(append(append(dst, `,"`...), saidLists[i]...), `":[`...)
			dst = append(append(dst, raw...), ']')
		}
	}
	if len(a.extra) > 0 {
		dst = append(append(dst, `,"extra_content":`...), a.extra...)
	}
	if len(a.audio) > 0 {
		dst = append(append(append(dst, `,"audio":{"id":`...), a.audio...), '}')
	}
	return append(append(dst, calls...), '}')
}

// grows are the types of what comes piece by piece in a list, and the member of
// each that the pieces add to.
var grows = map[string]string{"reasoning.text": "text", "reasoning.summary": "summary", "thinking": "thinking"}

// whole puts pieces of thinking together that follow each other in a list. A
// piece with a signature is the last one of its text.
func whole(list []byte) []byte {
	type member struct{ key, val []byte }
	var dst []byte
	var now []member // of the item that may grow
	var kind, index string
	signed := false
	end := func() {
		for i, m := range now {
			open := `,"`
			if i == 0 {
				if open = `{"`; len(dst) > 0 {
					open = `,{"`
				}
			}
			dst = append(append(append(append(dst, open...), m.key...), `":`...), m.val...)
		}
		if len(now) > 0 {
			dst = append(dst, '}')
		}
		now, signed = nil, false
	}
	b := append(append([]byte{'['}, list...), ']')
	for w := rawjson.Open(b, rawjson.All(b)); w.Next(); {
		k, at := rawjson.Text(b, rawjson.Get(b, w.Val, "type")), string(rawjson.Get(b, w.Val, "index").In(b))
		text, ok := grows[k]
		if !ok {
			end()
			dst = join(dst, w.Val.In(b))
			continue
		}
		if k != kind || at != index || signed {
			end()
		}
		kind, index = k, at
		for m := rawjson.Open(b, w.Val); m.Next(); {
			key, val := m.Key.In(b), m.Val.In(b)
			i := slices.IndexFunc(now, func(o member) bool { return bytes.Equal(o.key, key) })
			switch {
			case i < 0:
				now = append(now, member{key, val})
			case rawjson.Null(b, m.Val):
			case string(key) == text && val[0] == '"' && now[i].val[0] == '"':
				old := now[i].val
				now[i].val = slices.Concat(old[:len(old)-1], val[1:])
			default:
				now[i].val = val
			}
			signed = signed || string(key) == "signature" && m.Val.Len() > 2 && val[0] == '"'
		}
	}
	end()
	return dst
}
