package openaichat

import (
	"bytes"

	"callgate/inspect/strictjson"
)

// span is a part of a document, from its first byte to behind its last. Its
// zero value stands for a value that is not there.
type span struct{ from, to int }

func (s span) there() bool { return s.to > s.from }

func (s span) in(b []byte) []byte { return b[s.from:s.to] }

// walk goes over the members of an object or the elements of an array without
// decoding them. It is meant for text that strictjson has passed; on other text
// it stops with bad set and reads nothing outside it.
type walk struct {
	b   []byte
	i   int
	end byte
	// key is the member's key between its quotes, as written; it is empty for
	// elements. val is the value, item both with what stands between them.
	key, val, item span
	bad            bool
}

// open starts a walk over the object or array at the span.
func open(b []byte, s span) walk {
	w := walk{b: b, i: s.from}
	switch {
	case s.there() && b[s.from] == '{':
		w.end = '}'
	case s.there() && b[s.from] == '[':
		w.end = ']'
	default:
		w.bad = true
		return w
	}
	w.i++
	return w
}

// next moves to the next member or element.
func (w *walk) next() bool {
	if w.bad || w.end == 0 {
		return false
	}
	w.i = space(w.b, w.i)
	if w.i < len(w.b) && w.b[w.i] == ',' {
		w.i = space(w.b, w.i+1)
	}
	if w.i >= len(w.b) {
		w.bad = true
		return false
	}
	if w.b[w.i] == w.end {
		w.end = 0
		w.i++
		return false
	}
	from := w.i
	w.key = span{}
	if w.end == '}' {
		n := skipString(w.b, w.i)
		if n < 0 {
			w.bad = true
			return false
		}
		w.key = span{w.i + 1, n - 1}
		w.i = space(w.b, n)
		if w.i >= len(w.b) || w.b[w.i] != ':' {
			w.bad = true
			return false
		}
		w.i = space(w.b, w.i+1)
	}
	n := skip(w.b, w.i)
	if n < 0 {
		w.bad = true
		return false
	}
	w.val, w.item, w.i = span{w.i, n}, span{from, n}, n
	return true
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skip gives the end of the value that starts at i, or -1.
func skip(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
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
			if i = skipString(b, i); i < 0 {
				return -1
			}
			continue
		}
		i++
	}
	return -1
}

// skipString gives the end of the string that starts at i, or -1. Long texts
// are most of a request, so it looks for quotes and nothing else.
func skipString(b []byte, i int) int {
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

// null reports whether a value is missing or null.
func null(b []byte, s span) bool { return !s.there() || b[s.from] == 'n' }

// nested reports whether a value is an object or an array with something in it.
func nested(b []byte, s span) bool {
	if !s.there() || b[s.from] != '{' && b[s.from] != '[' {
		return false
	}
	// As walk.next looks for an end, without stepping over what is there.
	i := space(b, s.from+1)
	if i < len(b) && b[i] == ',' {
		i = space(b, i+1)
	}
	return i >= len(b) || b[i] != b[s.from]+2 // ] and } stand two behind [ and {
}

func isString(b []byte, s span) bool { return s.there() && b[s.from] == '"' }

// text gives what a string stands for, "" for any other value.
func text(b []byte, s span) string {
	if !isString(b, s) {
		return ""
	}
	var room [64]byte
	return string(strictjson.AppendString(room[:0], s.in(b)))
}

// whole reads a number that is a whole one from 0, in digits alone and not so
// large that readers differ over it.
func whole(b []byte, s span) (int, bool) {
	n := 0
	if !s.there() || s.to-s.from > 9 {
		return 0, false
	}
	for _, c := range s.in(b) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

// get gives the value of an object's member, the first of that key.
func get(b []byte, object span, key string) span {
	for w := open(b, object); w.next(); {
		if string(w.key.in(b)) == key {
			return w.val
		}
	}
	return span{}
}
