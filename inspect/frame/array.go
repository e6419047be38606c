package frame

import "fmt"

// Element is a piece of a JSON array that comes bit by bit.
type Element struct {
	// Raw is the element as it came, with all that stands between it and the
	// element before. At the end of the array it is the closing bracket, and
	// behind that the white space that follows.
	Raw []byte
	// Mark is where in Raw the opening bracket or the comma stands, -1 where
	// there is none.
	Mark int
	// At is where in Raw the element's own text starts.
	At int
	// End says that it is no element: the array ends here, or has ended.
	End bool
}

// Array cuts a JSON array of objects into its elements. It looks at brackets,
// commas and strings and at nothing else: whether an element is JSON is for
// whoever reads it. The zero value is ready and has no limit.
type Array struct {
	// Max is the longest element it will hold, in bytes; 0 means no limit.
	Max int

	buf    []byte // of an element that has not ended, with what stands before it
	place  place
	depth  int
	escape bool // the byte before was a backslash
	mark   int
	at     int
	n      int
	el     Element
}

// place is where in an array the reading is.
type place uint8

const (
	outside  place = iota // before the array
	first                 // behind the opening bracket
	wanted                // behind a comma
	inside                // in an element
	inString              // in a string of an element
	between               // behind an element
	behind                // behind the array
)

// ArrayError is a text that is no array of objects.
type ArrayError struct {
	// Element is how many elements stand before the place.
	Element int
	Reason  string
}

// Error names the place and the reason.
func (e *ArrayError) Error() string {
	return fmt.Sprintf("frame: behind element %d of an array %s", e.Element, e.Reason)
}

// Count returns how many elements were given out so far.
func (a *Array) Count() int { return a.n }

// Pending returns how many bytes are held of an element that has not ended.
func (a *Array) Pending() int { return len(a.buf) }

// Ended reports whether the closing bracket was read.
func (a *Array) Ended() bool { return a.place == behind }

// Feed takes the next bytes and calls yield for each element they complete and
// for the end, in order. What yield gets is valid only during that call. An
// error of yield stops the reading and is returned; an element past Max is a
// *TooLargeError, and what cannot be an array of objects an *ArrayError. After
// an error the reader must not be fed again.
func (a *Array) Feed(p []byte, yield func(*Element) error) error {
	start := 0 // of what was not given out
	for i, c := range p {
		ended, err := a.step(c, len(a.buf)+i-start)
		if err != nil {
			return err
		}
		if !ended {
			continue
		}
		raw := p[start : i+1]
		if len(a.buf) > 0 {
			a.buf = append(a.buf, raw...)
			raw = a.buf
		}
		if a.Max > 0 && len(raw) > a.Max {
			return &TooLargeError{Limit: a.Max}
		}
		a.el = Element{Raw: raw, Mark: a.mark - 1, At: a.at, End: a.place == behind}
		if !a.el.End {
			a.n++
		}
		if err := yield(&a.el); err != nil {
			return err
		}
		start, a.mark, a.at = i+1, 0, 0
		a.buf = a.buf[:0]
	}
	rest := p[start:]
	if a.place == behind && len(rest) > 0 {
		a.el = Element{Raw: rest, Mark: -1, End: true}
		return yield(&a.el)
	}
	if a.Max > 0 && len(a.buf)+len(rest) > a.Max {
		return &TooLargeError{Limit: a.Max}
	}
	a.buf = append(a.buf, rest...)
	return nil
}

// step takes one byte, which has that place in the element's Raw. It reports
// whether an element or the array ends with it.
func (a *Array) step(c byte, at int) (ended bool, err error) {
	switch a.place {
	case inString:
		switch {
		case a.escape:
			a.escape = false
		case c == '\\':
			a.escape = true
		case c == '"':
			a.place = inside
		}
		return false, nil
	case inside:
		switch c {
		case '"':
			a.place = inString
		case '{', '[':
			a.depth++
		case '}', ']':
			if a.depth--; a.depth == 0 {
				a.place = between
				return true, nil
			}
		}
		return false, nil
	}
	if c == ' ' || c == '\t' || c == '\r' || c == '\n' {
		return false, nil
	}
	switch {
	case a.place == outside && c == '[':
		a.place, a.mark = first, at+1
	case (a.place == first || a.place == wanted) && c == '{':
		a.place, a.depth, a.at = inside, 1, at
	case a.place == between && c == ',':
		a.place, a.mark = wanted, at+1
	case (a.place == first || a.place == between) && c == ']':
		a.place, a.at = behind, at
		return true, nil
	default:
		return false, &ArrayError{Element: a.n, Reason: fmt.Sprintf("stands the byte %q, where %s is wanted", c, wants[a.place])}
	}
	return false, nil
}

var wants = [...]string{outside: "an opening bracket", first: "an object or the closing bracket", wanted: "an object",
	between: "a comma or the closing bracket", behind: "nothing"}
