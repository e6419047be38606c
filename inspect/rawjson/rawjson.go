// Package rawjson reads JSON where it stands, without decoding it, and changes
// it by cutting and putting in bytes, so that what is not changed goes on as it
// was written. It holds no validator: text is meant to have passed strictjson
// before, and the rest of the text is not looked at when a part is. It knows
// nothing of what the documents mean.
package rawjson

import (
	"bytes"

	"callgate/inspect/strictjson"
)

// Span is a part of a document, from its first byte to behind its last. Its
// zero value stands for a value that is not there.
type Span struct{ From, To int }

// There reports whether the part is there.
func (s Span) There() bool { return s.To > s.From }

// Len is the number of its bytes.
func (s Span) Len() int { return s.To - s.From }

// In gives the bytes of the part.
func (s Span) In(b []byte) []byte { return b[s.From:s.To] }

// Within reports whether the part lies in another one.
func (s Span) Within(outer Span) bool { return s.From >= outer.From && s.To <= outer.To }

// All is the whole of a document without the white space before it.
func All(b []byte) Span { return Span{Space(b, 0), len(b)} }

// Space gives the first place from i on where no white space stands.
func Space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// Skip gives the end of the value that starts at i, or -1. Inside it only
// strings and brackets are looked at.
func Skip(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return SkipString(b, i)
	case '{', '[':
		return skipNested(b, i)
	}
	from := i
	for i < len(b) && !ends[b[i]] {
		i++
	}
	if i == from {
		return -1
	}
	return i
}

// ends are the bytes that end a word or a number.
var ends = [256]bool{',': true, ':': true, ']': true, '}': true, '{': true, '[': true, '"': true, ' ': true, '\t': true, '\r': true, '\n': true}

func skipNested(b []byte, i int) int {
	for depth := 0; i < len(b); {
		switch b[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case '"':
			if i = SkipString(b, i); i < 0 {
				return -1
			}
			continue
		}
		i++
	}
	return -1
}

// SkipString gives the end of the string that starts at i, or -1. Long texts
// are most of a request, so it looks for quotes and nothing else.
func SkipString(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; ; {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		at := i + n
		i = at + 1
		k := at
		for b[k-1] == '\\' {
			k--
		}
		// The opening quote stands before the run at the latest.
		if (at-k)%2 == 0 {
			return i
		}
	}
}

// Null reports whether a value is missing or null.
func Null(b []byte, s Span) bool { return !s.There() || b[s.From] == 'n' }

// IsString reports whether a value is a string.
func IsString(b []byte, s Span) bool { return s.There() && b[s.From] == '"' }

// IsObject reports whether a value is an object.
func IsObject(b []byte, s Span) bool { return s.There() && b[s.From] == '{' }

// IsArray reports whether a value is an array.
func IsArray(b []byte, s Span) bool { return s.There() && b[s.From] == '[' }

// Nested reports whether a value is an object or an array with something in it.
func Nested(b []byte, s Span) bool {
	if !s.There() || b[s.From] != '{' && b[s.From] != '[' {
		return false
	}
	i := Space(b, s.From+1)
	return i >= len(b) || b[i] != b[s.From]+2 // ] and } stand two behind [ and {
}

// Text gives what a string stands for, "" for any other value.
func Text(b []byte, s Span) string {
	if !IsString(b, s) {
		return ""
	}
	var room [64]byte
	return string(strictjson.AppendString(room[:0], s.In(b)))
}

// KeyText gives what a key stands for. The span is what is between its quotes,
// as Walk gives it; "" for none.
func KeyText(b []byte, key Span) string {
	if key.From == 0 {
		return ""
	}
	return Text(b, Span{key.From - 1, key.To + 1})
}

// Whole reads a number that is a whole one from 0, in digits alone and not so
// large that readers differ over it.
func Whole(b []byte, s Span) (int, bool) {
	n := 0
	if !s.There() || s.Len() > 9 {
		return 0, false
	}
	for _, c := range s.In(b) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

// Get gives the value of an object's member, the first of that key.
func Get(b []byte, object Span, key string) Span {
	for w := Open(b, object); w.Next(); {
		if w.Is(key) {
			return w.Val
		}
	}
	return Span{}
}
