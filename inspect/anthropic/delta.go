package anthropic

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"

	"callgate/inspect/frame"
	"callgate/inspect/rawjson"
)

// deltaKind is the type of a delta that the template knows.
type deltaKind uint8

const (
	textDelta deltaKind = iota + 1
	thinkingDelta
	signatureDelta
	inputDelta
)

// delta is what the template of a plain content_block_delta gives.
type delta struct {
	kind  deltaKind
	index int
	at    rawjson.Span // where in the data the index is written
	text  rawjson.Span // and the text, with its quotes
	// value is the text as it is written, with its quotes.
	value []byte
	// breaks says that the value holds one of frame.OtherBreaks.
	breaks bool
}

// scanner reads JSON piece by piece without building anything.
type scanner struct {
	b []byte
	i int
}

// take skips space and then the byte c, if it stands there.
func (s *scanner) take(c byte) bool {
	s.i = rawjson.Space(s.b, s.i)
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// scanDelta matches the data of an event against the template of a plain
// content_block_delta: these keys, each once and written without escapes, one
// of four known delta types with its one text, which must be valid UTF-8 and
// JSON. Anything else is not ok, whatever it may be. What matches reads the
// same everywhere.
func scanDelta(data []byte) (d delta, ok bool) {
	s := scanner{b: data}
	if !s.take('{') {
		return d, false
	}
	var seen keySet
	for {
		raw, ok := s.plain()
		if !ok || !s.take(':') {
			return d, false
		}
		k := keyOf(raw)
		switch k {
		case keyType:
			v, isPlain := s.plain()
			ok = isPlain && string(v) == "content_block_delta"
		case keyIndex:
			d.at, d.index, ok = s.number()
		case keyDelta:
			ok = s.delta(&d)
		default:
			ok = false
		}
		if !ok || seen.has(k) {
			return d, false
		}
		seen |= keys(k)
		if s.take(',') {
			continue
		}
		break
	}
	if !s.take('}') || seen != keys(keyType, keyIndex, keyDelta) {
		return d, false
	}
	return d, rawjson.Space(data, s.i) == len(data)
}

// plain reads a short string without escapes, of printable ASCII.
func (s *scanner) plain() ([]byte, bool) {
	if !s.take('"') {
		return nil, false
	}
	for from := s.i; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return s.b[from : s.i-1], true
		case c == '\\' || c < 0x20 || c >= utf8.RuneSelf:
			return nil, false
		}
	}
	return nil, false
}

// number reads a whole number as JSON writes it.
func (s *scanner) number() (at rawjson.Span, n int, ok bool) {
	s.i = rawjson.Space(s.b, s.i)
	at = rawjson.Span{From: s.i, To: s.i}
	for at.To < len(s.b) && '0' <= s.b[at.To] && s.b[at.To] <= '9' {
		at.To++
	}
	s.i = at.To
	n, ok = rawjson.Whole(s.b, at)
	return at, n, ok && (at.Len() == 1 || s.b[at.From] != '0')
}

func (s *scanner) delta(d *delta) bool {
	if !s.take('{') {
		return false
	}
	var seen keySet
	for {
		raw, ok := s.plain()
		if !ok || !s.take(':') {
			return false
		}
		k := keyOf(raw)
		switch k {
		case keyType:
			var v []byte
			v, ok = s.plain()
			d.kind = deltaKinds(v)
		case keyText, keyThinking, keySignature, keyPartialJSON:
			ok = s.text(d)
		case keyEstimatedTokens:
			ok = s.tokens()
		default:
			return false
		}
		if !ok || seen.has(k) {
			return false
		}
		seen |= keys(k)
		if s.take(',') {
			continue
		}
		break
	}
	if !s.take('}') {
		return false
	}
	switch d.kind {
	case textDelta:
		return seen == keys(keyType, keyText)
	case thinkingDelta:
		return seen&^keys(keyEstimatedTokens) == keys(keyType, keyThinking)
	case signatureDelta:
		return seen == keys(keyType, keySignature)
	case inputDelta:
		return seen == keys(keyType, keyPartialJSON)
	}
	return false
}

func deltaKinds(word []byte) deltaKind {
	switch string(word) {
	case "text_delta":
		return textDelta
	case "thinking_delta":
		return thinkingDelta
	case "signature_delta":
		return signatureDelta
	case "input_json_delta":
		return inputDelta
	}
	return 0
}

// tokens reads the estimate of a thinking delta: null or a short whole number.
func (s *scanner) tokens() bool {
	s.i = rawjson.Space(s.b, s.i)
	if bytes.HasPrefix(s.b[s.i:], []byte("null")) {
		s.i += 4
		return true
	}
	_, _, ok := s.number()
	return ok
}

// text reads any string that all readers read alike, which leaves out escaped
// surrogates, paired or not: those are looked at elsewhere.
func (s *scanner) text(d *delta) bool {
	if !s.take('"') {
		return false
	}
	from, ascii := s.i-1, true
	b, i := s.b, s.i
	for {
		for i < len(b) && plainText[b[i]] {
			i++
		}
		if i == len(b) {
			return false
		}
		switch c := b[i]; {
		case c == '"':
			i++
			s.i = i
			d.text = rawjson.Span{From: from, To: i}
			d.value = d.text.In(b)
			d.breaks = !ascii && frame.OtherBreaks(d.value)
			return ascii || utf8.Valid(d.value)
		case c == '\\':
			n := escape(b[i:])
			if n == 0 {
				return false
			}
			i += n
		case c >= utf8.RuneSelf:
			ascii = false
			i++
		default:
			return false
		}
	}
}

// plainText are the bytes of a string that stand for themselves.
var plainText = func() (t [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// escape gives the length of the escape that b starts with, 0 when it is none
// that all readers read alike.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if r, ok := hex4(b[2:]); ok && !utf16.IsSurrogate(r) {
			return 6
		}
	}
	return 0
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	n := rune(0)
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		n = n<<4 | rune(c)
	}
	return n, true
}

// scanStop matches the data of an event against the template of a
// content_block_stop, and gives the place of its index.
func scanStop(data []byte) (index rawjson.Span, ok bool) {
	const start = `{"type":"content_block_stop","index":`
	if len(data) < len(start) || string(data[:len(start)]) != start {
		return index, false
	}
	s := scanner{b: data, i: len(start)}
	index, _, ok = s.number()
	return index, ok && s.take('}') && rawjson.Space(data, s.i) == len(data)
}

// mould is the form of the last plain delta: what stands before its text. An
// event that begins the same and ends with its text is plain for the same
// reasons, so it is not taken apart. Servers send hundreds of one form.
type mould struct {
	head  [160]byte
	n     int // how much of head is filled, 0 when there is no mould
	delta delta
}

// cast makes the mould of a delta that matched.
func (m *mould) cast(data []byte, d *delta) {
	m.n = 0
	s := scanner{b: data, i: d.text.To}
	if d.text.From <= len(m.head) && s.closed() {
		m.n = copy(m.head[:], data[:d.text.From])
		m.delta = *d
		m.delta.value = nil // it lies in an event that does not last
	}
}

// closed reports whether nothing follows but the ends of the delta and of the
// event. Some servers pad them.
func (s *scanner) closed() bool {
	inner := s.take('}')
	return inner && s.take('}') && rawjson.Space(s.b, s.i) == len(s.b)
}

// read gives a plain delta, by its form when that is the one of the last.
func (m *mould) read(data []byte) (d delta, ok bool) {
	if m.n > 0 && len(data) > m.n && string(data[:m.n]) == string(m.head[:m.n]) {
		d = m.delta
		s := scanner{b: data, i: m.n}
		if s.text(&d) && s.closed() {
			return d, true
		}
	}
	if d, ok = scanDelta(data); ok {
		m.cast(data, &d)
	}
	return d, ok
}
