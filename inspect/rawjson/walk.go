package rawjson

// Walk goes over the members of an object or the elements of an array. It is
// meant for text that strictjson has passed; on other text it stops with Bad
// where the outermost level is no JSON, and reads nothing outside it.
type Walk struct {
	// Key is the member's key between its quotes, as written; it is empty for
	// elements. Val is the value, Item both with what stands between them.
	Key, Val, Item Span

	b   []byte
	i   int
	end byte // that closes what is walked over, 0 once it was met
	bad bool
}

// Open starts a walk over the object or array that starts at the span.
func Open(b []byte, s Span) Walk {
	w := Walk{b: b, i: s.From}
	switch {
	case s.There() && b[s.From] == '{':
		w.end = '}'
	case s.There() && b[s.From] == '[':
		w.end = ']'
	default:
		w.bad = true
		return w
	}
	w.i++
	return w
}

// Next moves to the next member or element.
func (w *Walk) Next() bool {
	if w.bad || w.end == 0 {
		return false
	}
	w.i = Space(w.b, w.i)
	if w.i < len(w.b) && w.b[w.i] == w.end {
		w.end = 0
		w.i++
		return false
	}
	if w.Val.There() {
		if w.i >= len(w.b) || w.b[w.i] != ',' {
			w.bad = true
			return false
		}
		w.i = Space(w.b, w.i+1)
	}
	from := w.i
	w.Key = Span{}
	if w.end == '}' {
		n := SkipString(w.b, w.i)
		if n < 0 {
			w.bad = true
			return false
		}
		w.Key = Span{w.i + 1, n - 1}
		w.i = Space(w.b, n)
		if w.i >= len(w.b) || w.b[w.i] != ':' {
			w.bad = true
			return false
		}
		w.i = Space(w.b, w.i+1)
	}
	n := Skip(w.b, w.i)
	if n < 0 {
		w.bad = true
		return false
	}
	w.Val, w.Item, w.i = Span{w.i, n}, Span{from, n}, n
	return true
}

// Is reports whether the member's key is written like this, letter for letter.
func (w *Walk) Is(key string) bool { return string(w.Key.In(w.b)) == key }

// Bad reports whether the walk stopped at something that is no JSON.
func (w *Walk) Bad() bool { return w.bad }

// At is where the walk stands: behind the last member or element, and behind
// the closing bracket once Next has given false on good text.
func (w *Walk) At() int { return w.i }
