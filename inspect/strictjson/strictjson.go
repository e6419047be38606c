// Package strictjson says whether all JSON readers would read a text the same
// way. It holds one validator: readers differ over duplicate keys (some take
// the first, some the last), keys that differ by case or by escapes only,
// invalid UTF-8, lone surrogates, deep nesting and a second document behind
// the first, so each of these is an error here. What passes may be read with
// any parser.
//
// The grammar is RFC 8259; the rules beyond it are those of RFC 7493 (I-JSON),
// section 2, and the case folding of Go's encoding/json.
package strictjson

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// DefaultDepth is how deep values may nest when Options does not say.
const DefaultDepth = 200

// Options set what a document must keep to. The zero value is the strictest.
type Options struct {
	// Depth is how deep arrays and objects may nest; 0 means DefaultDepth.
	Depth int
	// Known holds, by its folded form (Fold), each key that the caller looks
	// for. A key that folds or unescapes to a known one without being it
	// letter for letter is an error. Build it with Keys.
	Known map[string]string
	// Surrogates permits lone surrogate escapes in values; in keys they never
	// are.
	Surrogates bool
}

// Error is a text that is not acceptable, and where.
type Error struct {
	// Offset is the byte at which the fault was found.
	Offset int
	Reason string
	// Early says that the text ended too soon and more of it could mend it.
	Early bool
	// Differ says that the text is JSON all the same, and readers differ over
	// what it says.
	Differ bool
}

// Error gives reason and offset.
func (e *Error) Error() string {
	return fmt.Sprintf("json: %s at byte %d", e.Reason, e.Offset)
}

// Keys builds Options.Known.
func Keys(keys ...string) map[string]string {
	m := make(map[string]string, len(keys))
	for _, k := range keys {
		m[Fold(k)] = k
	}
	return m
}

// Fold gives the form in which two keys that a case-insensitive reader takes
// for one are equal.
func Fold(key string) string { return string(appendFold(nil, []byte(key))) }

func appendFold(dst, key []byte) []byte {
	for i := 0; i < len(key); {
		c := key[i]
		if c < utf8.RuneSelf {
			if 'a' <= c && c <= 'z' {
				c -= 'a' - 'A'
			}
			dst = append(dst, c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(key[i:])
		for {
			// The smallest rune of the orbit stands for all of it.
			next := unicode.SimpleFold(r)
			if next <= r {
				r = next
				break
			}
			r = next
		}
		dst = utf8.AppendRune(dst, r)
		i += n
	}
	return dst
}

// Validate reports the first reason why b is not one JSON document that all
// readers read alike, as an *Error, or nil.
func Validate(b []byte, o Options) error {
	if o.Depth <= 0 {
		o.Depth = DefaultDepth
	}
	v := validator{b: b, o: o}
	v.space()
	if err := v.value(0); err != nil {
		return err
	}
	v.space()
	if v.i < len(b) {
		return v.fail("something stands behind the document")
	}
	return nil
}

// Object is Validate for a text that must be an object.
func Object(b []byte, o Options) error {
	if err := Validate(b, o); err != nil {
		return err
	}
	if t := bytes.TrimLeft(b, " \t\r\n"); t[0] != '{' {
		return &Error{Offset: len(b) - len(t), Reason: "an object is wanted"}
	}
	return nil
}

// StringLen returns the length of the string that b starts with, its quotes
// included, or -1 when b starts with none, or with one that Validate would
// refuse. Lone surrogates pass.
func StringLen(b []byte) int {
	if len(b) == 0 || b[0] != '"' {
		return -1
	}
	// Most strings end where the first byte that needs a look stands.
	i := plainEnd(b, 1)
	if i < len(b) && b[i] == '"' {
		return i + 1
	}
	v := validator{b: b, o: Options{Surrogates: true}}
	if _, err := v.str(false); err != nil {
		return -1
	}
	return v.i
}

// AppendString appends what a string that passed Validate stands for. lit is
// the string with its quotes. A lone surrogate becomes U+FFFD.
func AppendString(dst, lit []byte) []byte {
	body := lit[1 : len(lit)-1]
	for {
		i := bytes.IndexByte(body, '\\')
		if i < 0 {
			return append(dst, body...)
		}
		dst = append(dst, body[:i]...)
		v := validator{b: body, i: i, o: Options{Surrogates: true}}
		r, err := v.escape(false)
		if err != nil {
			return append(dst, body[i:]...)
		}
		dst = utf8.AppendRune(dst, r)
		body = body[v.i:]
	}
}

type validator struct {
	b []byte
	i int
	o Options
}

func (v *validator) fail(reason string) error {
	return &Error{Offset: v.i, Reason: reason, Early: v.i >= len(v.b)}
}

func (v *validator) differ(reason string) error {
	return &Error{Offset: v.i, Reason: reason, Differ: true}
}

func (v *validator) space() {
	for v.i < len(v.b) {
		switch v.b[v.i] {
		case ' ', '\t', '\n', '\r':
			v.i++
		default:
			return
		}
	}
}

func (v *validator) value(depth int) error {
	if v.i >= len(v.b) {
		return v.fail("the text ended where a value is wanted")
	}
	switch c := v.b[v.i]; {
	case c == '{':
		return v.object(depth + 1)
	case c == '[':
		return v.array(depth + 1)
	case c == '"':
		_, err := v.str(false)
		return err
	case c == 't':
		return v.word("true")
	case c == 'f':
		return v.word("false")
	case c == 'n':
		return v.word("null")
	case c == '-' || '0' <= c && c <= '9':
		return v.number()
	}
	return v.fail("no value can start here")
}

func (v *validator) word(w string) error {
	if rest := v.b[v.i:]; len(rest) < len(w) && w[:len(rest)] == string(rest) {
		v.i = len(v.b)
		return v.fail("the text ended inside a word")
	} else if len(rest) < len(w) || string(rest[:len(w)]) != w {
		return v.fail("no value can start here")
	}
	v.i += len(w)
	return nil
}

func (v *validator) digits() bool {
	n := v.i
	for v.i < len(v.b) && '0' <= v.b[v.i] && v.b[v.i] <= '9' {
		v.i++
	}
	return v.i > n
}

func (v *validator) number() error {
	if v.b[v.i] == '-' {
		v.i++
	}
	zero := v.i < len(v.b) && v.b[v.i] == '0'
	first := v.i
	if !v.digits() {
		return v.fail("a number lacks its digits")
	}
	if zero && v.i-first > 1 {
		return v.fail("a number has leading zeros")
	}
	if v.i < len(v.b) && v.b[v.i] == '.' {
		v.i++
		if !v.digits() {
			return v.fail("a number lacks digits behind its point")
		}
	}
	if v.i < len(v.b) && (v.b[v.i] == 'e' || v.b[v.i] == 'E') {
		v.i++
		if v.i < len(v.b) && (v.b[v.i] == '+' || v.b[v.i] == '-') {
			v.i++
		}
		if !v.digits() {
			return v.fail("a number lacks digits in its exponent")
		}
	}
	return nil
}

func (v *validator) array(depth int) error {
	if depth > v.o.Depth {
		return v.fail("it nests too deep")
	}
	v.i++
	v.space()
	if v.i < len(v.b) && v.b[v.i] == ']' {
		v.i++
		return nil
	}
	for {
		if err := v.value(depth); err != nil {
			return err
		}
		v.space()
		if v.i >= len(v.b) {
			return v.fail("the text ended inside an array")
		}
		switch v.b[v.i] {
		case ',':
			v.i++
			v.space()
		case ']':
			v.i++
			return nil
		default:
			return v.fail("an array goes on wrongly")
		}
	}
}

// fewKeys is how many keys of an object are compared one by one, without
// memory of their own, before a map takes over, so that many keys cost linear
// time.
const fewKeys = 16

// keySet finds keys of one object that some reader takes for one.
type keySet struct {
	few  [fewKeys][]byte // plain keys, as they stand in the text
	n    int
	seen uint64              // a bit for each few key's mark
	many map[string]struct{} // folded keys, once few is full or a key is not plain
}

// mark gives a bit that keys equal by ASCII folding share.
func mark(key []byte) uint64 {
	h := uint(len(key)) * 7
	if len(key) > 0 {
		h += uint(key[0]&0x1f) + 5*uint(key[len(key)-1]&0x1f)
	}
	return 1 << (h & 63)
}

// addPlain adds a key that is ASCII and holds no escapes. It reports whether the
// key was there.
func (s *keySet) addPlain(key []byte) bool {
	if s.many != nil || s.n == fewKeys {
		return s.addFolded(appendFold(nil, key))
	}
	m := mark(key)
	if s.seen&m != 0 {
		for _, k := range s.few[:s.n] {
			if equalASCII(k, key) {
				return true
			}
		}
	}
	s.seen |= m
	s.few[s.n] = key
	s.n++
	return false
}

// addFolded adds a key by its folded form.
func (s *keySet) addFolded(key []byte) bool {
	if s.many == nil {
		s.many = make(map[string]struct{}, 2*fewKeys)
		for _, k := range s.few[:s.n] {
			s.many[Fold(string(k))] = struct{}{}
		}
	}
	_, twice := s.many[string(key)]
	s.many[string(key)] = struct{}{}
	return twice
}

func equalASCII(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if upper(a[i]) != upper(b[i]) {
			return false
		}
	}
	return true
}

func upper(c byte) byte {
	if 'a' <= c && c <= 'z' {
		return c - ('a' - 'A')
	}
	return c
}

func (v *validator) object(depth int) error {
	if depth > v.o.Depth {
		return v.fail("it nests too deep")
	}
	v.i++
	v.space()
	if v.i < len(v.b) && v.b[v.i] == '}' {
		v.i++
		return nil
	}
	var keys keySet
	for {
		if err := v.key(&keys); err != nil {
			return err
		}
		v.space()
		if v.i >= len(v.b) {
			return v.fail("the text ended inside an object")
		}
		if v.b[v.i] != ':' {
			return v.fail("a key lacks its colon")
		}
		v.i++
		v.space()
		if err := v.value(depth); err != nil {
			return err
		}
		v.space()
		if v.i >= len(v.b) {
			return v.fail("the text ended inside an object")
		}
		switch v.b[v.i] {
		case ',':
			v.i++
			v.space()
		case '}':
			v.i++
			return nil
		default:
			return v.fail("an object goes on wrongly")
		}
	}
}

// key reads a key and holds it against the known keys and those before it.
func (v *validator) key(keys *keySet) error {
	if v.i >= len(v.b) {
		return v.fail("the text ended inside an object")
	}
	if v.b[v.i] != '"' {
		return v.fail("a key is wanted")
	}
	at := v.i
	key, err := v.str(true)
	if err != nil {
		return err
	}
	raw := v.b[at+1 : v.i-1]
	plain := len(key) == len(raw) && ascii(key)
	var room [64]byte
	var folded []byte
	if v.o.Known != nil || !plain {
		folded = appendFold(room[:0], key)
	}
	if exact, ok := v.o.Known[string(folded)]; ok && exact != string(raw) {
		v.i = at
		return v.differ("a key reads like " + exact + " and is not written so")
	}
	twice := false
	if plain {
		twice = keys.addPlain(key)
	} else {
		twice = keys.addFolded(folded)
	}
	if twice {
		v.i = at
		return v.differ("a key stands twice in one object")
	}
	return nil
}

func ascii(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// skipPlain moves over characters of a string that need no look.
func (v *validator) skipPlain() { v.i = plainEnd(v.b, v.i) }

// plainEnd gives the first place from i on of a byte that needs a look when it
// stands in a string, which are all but those of ASCII without quotes,
// backslashes and control characters. It takes eight at a time.
func plainEnd(b []byte, i int) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		// A byte's high bit is set in odd when it is outside ASCII, below a
		// space, or equal to one of the two; the lowest that is set is right,
		// those above it may be by a borrow.
		odd := w | (w - ones*' ') | (quote - ones) | (slash - ones)
		if odd &= high; odd != 0 {
			return i + bits.TrailingZeros64(odd)/8
		}
	}
	for i < len(b) && b[i] >= ' ' && b[i] < utf8.RuneSelf && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// str reads a string. For a key it returns the unescaped text.
func (v *validator) str(key bool) ([]byte, error) {
	v.i++
	from := v.i
	var out []byte // set once a key holds an escape
	for {
		if out == nil {
			v.skipPlain()
		}
		if v.i >= len(v.b) {
			return nil, v.fail("the text ended inside a string")
		}
		c := v.b[v.i]
		switch {
		case c == '"':
			text := v.b[from:v.i]
			v.i++
			if out != nil {
				text = out
			}
			return text, nil
		case c < 0x20:
			return nil, v.fail("a control character stands in a string")
		case c == '\\':
			if key && out == nil {
				out = append(make([]byte, 0, 32), v.b[from:v.i]...)
			}
			r, err := v.escape(key)
			if err != nil {
				return nil, err
			}
			if out != nil {
				out = utf8.AppendRune(out, r)
			}
		case c < utf8.RuneSelf:
			v.i++
			if out != nil {
				out = append(out, c)
			}
		default:
			r, n := utf8.DecodeRune(v.b[v.i:])
			if r == utf8.RuneError && n == 1 {
				if !utf8.FullRune(v.b[v.i:]) {
					v.i = len(v.b)
					return nil, v.fail("the text ended inside a character")
				}
				return nil, v.fail("a string is not UTF-8")
			}
			if out != nil {
				out = append(out, v.b[v.i:v.i+n]...)
			}
			v.i += n
		}
	}
}

func (v *validator) escape(key bool) (rune, error) {
	at := v.i
	v.i++
	if v.i >= len(v.b) {
		return 0, v.fail("the text ended inside an escape")
	}
	c := v.b[v.i]
	v.i++
	switch c {
	case '"', '\\', '/':
		return rune(c), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
		r, err := v.hex()
		if err != nil {
			return 0, err
		}
		if !utf16.IsSurrogate(r) {
			return r, nil
		}
		if r < 0xDC00 && v.i+1 < len(v.b) && v.b[v.i] == '\\' && v.b[v.i+1] == 'u' {
			back := v.i
			v.i += 2
			low, err := v.hex()
			if err != nil {
				return 0, err
			}
			if whole := utf16.DecodeRune(r, low); whole != utf8.RuneError {
				return whole, nil
			}
			v.i = back
		}
		if key || !v.o.Surrogates {
			v.i = at
			return 0, v.differ("half a surrogate pair stands alone")
		}
		return utf8.RuneError, nil
	}
	v.i = at
	return 0, v.fail("an escape is unknown")
}

func (v *validator) hex() (rune, error) {
	var r rune
	for range 4 {
		if v.i >= len(v.b) {
			return 0, v.fail("the text ended inside an escape")
		}
		c := v.b[v.i]
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, v.fail("an escape lacks its digits")
		}
		r = r<<4 | rune(c)
		v.i++
	}
	return r, nil
}
