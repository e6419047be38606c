package anthropic

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"callgate/inspect/frame"
)

// scanner reads JSON piece by piece without building anything.
type scanner struct {
	b []byte
	i int
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// take skips space and then the byte c, if it stands there.
func (s *scanner) take(c byte) bool {
	s.space()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// rawString skips a string and returns what stands between its quotes. Its
// content is not checked.
func (s *scanner) rawString() ([]byte, bool) {
	if !s.take('"') {
		return nil, false
	}
	from := s.i
	for {
		n := bytes.IndexByte(s.b[s.i:], '"')
		if n < 0 {
			s.i = len(s.b)
			return nil, false
		}
		at := s.i + n
		s.i = at + 1
		slashes := 0
		for at-1-slashes >= from && s.b[at-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return s.b[from:at], true
		}
	}
}

// skip skips one value and returns it, empty when none can be made out. Inside
// it only strings and brackets are looked at.
func (s *scanner) skip() []byte {
	s.space()
	from, depth := s.i, 0
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case '"':
			if _, ok := s.rawString(); !ok {
				return nil
			}
			if depth == 0 {
				return s.b[from:s.i]
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return s.b[from:s.i]
			}
			if depth--; depth == 0 {
				s.i++
				return s.b[from:s.i]
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return s.b[from:s.i]
			}
		}
		s.i++
	}
	return nil
}

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
	at, n int // where in the data the index is written
	// value is the text as it is written between its quotes.
	value []byte
	// breaks says that the value holds one of frame.OtherBreaks.
	breaks bool
}

const (
	keyType = 1 << iota
	keyIndex
	keyDelta
	keyValue
	keyTokens
)

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
	seen := 0
	for {
		key, ok := s.plain()
		if !ok || !s.take(':') {
			return d, false
		}
		bit := 0
		switch string(key) {
		case "type":
			bit = keyType
			v, isPlain := s.plain()
			ok = isPlain && string(v) == "content_block_delta"
		case "index":
			bit = keyIndex
			ok = s.index(&d)
		case "delta":
			bit = keyDelta
			ok = s.delta(&d)
		}
		if !ok || bit == 0 || seen&bit != 0 {
			return d, false
		}
		seen |= bit
		if s.take(',') {
			continue
		}
		break
	}
	if !s.take('}') || seen != keyType|keyIndex|keyDelta {
		return d, false
	}
	s.space()
	return d, s.i == len(data)
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

func (s *scanner) index(d *delta) bool {
	s.space()
	from := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		d.index = d.index*10 + int(s.b[s.i]-'0')
		s.i++
	}
	d.at, d.n = from, s.i-from
	return 0 < d.n && d.n < 8 && (d.n == 1 || s.b[from] != '0')
}

func (s *scanner) delta(d *delta) bool {
	if !s.take('{') {
		return false
	}
	seen := 0
	var word deltaKind // the delta type that the text's key belongs to
	for {
		key, ok := s.plain()
		if !ok || !s.take(':') {
			return false
		}
		bit := keyValue
		switch string(key) {
		case "type":
			bit = keyType
			var v []byte
			v, ok = s.plain()
			d.kind = deltaKinds(v)
		case "text":
			word = textDelta
			ok = s.text(d)
		case "thinking":
			word = thinkingDelta
			ok = s.text(d)
		case "signature":
			word = signatureDelta
			ok = s.text(d)
		case "partial_json":
			word = inputDelta
			ok = s.text(d)
		case "estimated_tokens":
			bit = keyTokens
			ok = s.tokens()
		default:
			return false
		}
		if !ok || seen&bit != 0 {
			return false
		}
		seen |= bit
		if s.take(',') {
			continue
		}
		break
	}
	if !s.take('}') || seen&^keyTokens != keyType|keyValue || d.kind != word {
		return false
	}
	return seen&keyTokens == 0 || d.kind == thinkingDelta
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
	s.space()
	if bytes.HasPrefix(s.b[s.i:], []byte("null")) {
		s.i += 4
		return true
	}
	var d delta
	return s.index(&d)
}

// text reads any string that all readers read alike, which leaves out escaped
// surrogates, paired or not: those are looked at elsewhere.
func (s *scanner) text(d *delta) bool {
	if !s.take('"') {
		return false
	}
	from, ascii := s.i, true
	for s.i < len(s.b) {
		c := s.b[s.i]
		switch {
		case c == '"':
			d.value = s.b[from:s.i]
			s.i++
			d.breaks = !ascii && frame.OtherBreaks(d.value)
			return ascii || utf8.Valid(d.value)
		case c == '\\':
			if !s.escape() {
				return false
			}
			continue
		case c < 0x20:
			return false
		case c >= utf8.RuneSelf:
			ascii = false
		}
		s.i++
	}
	return false
}

func (s *scanner) escape() bool {
	if s.i+1 >= len(s.b) {
		return false
	}
	switch s.b[s.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i += 2
		return true
	case 'u':
		r, ok := hex4(s.b[s.i+2:])
		s.i += 6
		return ok && !utf16.IsSurrogate(r)
	}
	return false
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

// appendUnescaped appends what a raw JSON string stands for. The string must
// be valid; half a surrogate pair becomes U+FFFD.
func appendUnescaped(dst, raw []byte) []byte {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 || i+1 >= len(raw) {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:i]...)
		c := raw[i+1]
		raw = raw[i+2:]
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, ok := hex4(raw)
			if !ok {
				continue
			}
			raw = raw[4:]
			if utf16.IsSurrogate(r) {
				low := rune(0)
				if bytes.HasPrefix(raw, []byte(`\u`)) {
					low, _ = hex4(raw[2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					raw = raw[6:]
				}
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, c)
		}
	}
}

func appendInt(dst []byte, n int) []byte { return strconv.AppendInt(dst, int64(n), 10) }
