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
	"fmt"
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

type validator struct {
	b []byte
	i int
	o Options
}

func (v *validator) fail(reason string) error {
	return &Error{Offset: v.i, Reason: reason, Early: v.i >= len(v.b)}
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

// fewKeys is how many keys of an object are compared one by one before a map
// takes over, so that many keys cost linear time.
const fewKeys = 8

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
	var (
		few  [fewKeys][]byte
		n    int
		many map[string]struct{}
	)
	for {
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
		var room [48]byte
		folded := appendFold(room[:0], key)
		if exact, ok := v.o.Known[string(folded)]; ok && exact != string(raw) {
			v.i = at
			return v.fail("a key reads like " + exact + " and is not written so")
		}
		twice := false
		switch {
		case many != nil:
			_, twice = many[string(folded)]
			many[string(folded)] = struct{}{}
		default:
			for _, k := range few[:n] {
				if bytes.Equal(k, folded) {
					twice = true
				}
			}
			if n < fewKeys {
				few[n] = bytes.Clone(folded)
				n++
				break
			}
			many = make(map[string]struct{}, 4*fewKeys)
			for _, k := range few[:n] {
				many[string(k)] = struct{}{}
			}
			many[string(folded)] = struct{}{}
		}
		if twice {
			v.i = at
			return v.fail("a key stands twice in one object")
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

// str reads a string. For a key it returns the unescaped text.
func (v *validator) str(key bool) ([]byte, error) {
	v.i++
	from := v.i
	var out []byte // set once a key holds an escape
	for v.i < len(v.b) {
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
	return nil, v.fail("the text ended inside a string")
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
			return 0, v.fail("half a surrogate pair stands alone")
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
