// Package frame cuts a byte stream into frames and knows nothing of what they
// hold. Its readers are pure: bytes in, frames out, whatever the pieces in
// which the bytes arrive.
package frame

import (
	"bytes"
	"fmt"
)

// Event is one server-sent event (WHATWG HTML, section 9.2), from its first
// line to the blank line that ends it.
type Event struct {
	// Raw is the event exactly as it came, its blank line included, but for
	// comments that were left out (Cut).
	Raw []byte
	// Cut says that Raw lacks comments that could be taken for more than
	// comments. They carry nothing, so nothing is missed.
	Cut bool
	// Name is the value of the event field, nil when there is none.
	Name []byte
	// Data is the value of the data field; several data lines are joined by
	// a line feed. HasData tells an empty value from none.
	Data    []byte
	HasData bool
	// At is where in Raw the value of the first data field starts.
	At int
	// Odd says why two readers could read this event differently, "" when
	// they would agree. An odd event must not be passed on unread.
	Odd string
}

// Unended is the Odd of an event that the end of the stream cut off before its
// blank line: readers that follow the standard drop it, others do not.
const Unended = "the last event has no blank line behind it"

// Empty reports whether the event has no field at all: a comment, or a blank
// line sent to keep a connection alive.
func (e *Event) Empty() bool { return !e.HasData && e.Name == nil && e.Odd == "" }

// TooLargeError reports a frame longer than the reader's limit.
type TooLargeError struct{ Limit int }

// Error names the limit.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("frame: longer than the limit of %d bytes", e.Limit)
}

// SSE reads server-sent events. The zero value is ready and has no limit.
//
// Lines end in LF or CRLF. The standard also ends a line at a lone CR, which
// readers that split at line feeds do not; an event with one is odd. So is one
// with a byte order mark: it makes the first line no field for such readers.
//
// Others break lines at more than these, as Python's str.splitlines does, and
// find a field behind a line separator that stands inside of another. What is
// not data is therefore kept short and plain: an id, an event name or a retry
// that is not makes its event odd, and a comment that is not is left out.
type SSE struct {
	// Max is the longest event it will hold, in bytes; 0 means no limit.
	Max int

	buf  []byte // bytes of an event that has not ended
	line int    // offset in buf of the line that has not ended
	n    int    // events given out
	ev   Event  // the one given out, kept here so that none is allocated
}

// Count returns how many events were given out so far.
func (s *SSE) Count() int { return s.n }

// Pending returns how many bytes are held of an event that has not ended.
func (s *SSE) Pending() int { return len(s.buf) }

// Feed takes the next bytes and calls yield for each event they complete, in
// order. The event and its slices are valid only during that call. An error of
// yield stops the reading and is returned; an event past Max is a
// *TooLargeError. After an error the reader must not be fed again.
//
// An event that lies whole in p is given out without being copied.
func (s *SSE) Feed(p []byte, yield func(*Event) error) error {
	if len(s.buf) > 0 {
		n, ended := s.complete(p)
		s.buf = append(s.buf, p[:n]...)
		if s.Max > 0 && len(s.buf) > s.Max {
			return &TooLargeError{Limit: s.Max}
		}
		if !ended {
			return nil
		}
		s.read(s.buf)
		if err := s.give(yield); err != nil {
			return err
		}
		s.buf, s.line = s.buf[:0], 0
		p = p[n:]
	}
	start, line := 0, 0
	var ends [2]int // where the event's first lines end
	for lines := 0; ; {
		i := bytes.IndexByte(p[line:], '\n')
		if i < 0 {
			break
		}
		text := p[line : line+i]
		line += i + 1
		if !blank(text) {
			if lines < len(ends) {
				ends[lines] = line - 1 - start
			}
			lines++
			continue
		}
		if s.Max > 0 && line-start > s.Max {
			return &TooLargeError{Limit: s.Max}
		}
		raw := p[start:line]
		if lines > len(ends) || !s.usual(raw, ends[:lines]) {
			s.read(raw)
		}
		if err := s.give(yield); err != nil {
			return err
		}
		start, lines = line, 0
	}
	rest := p[start:]
	if s.Max > 0 && len(rest) > s.Max {
		return &TooLargeError{Limit: s.Max}
	}
	s.buf, s.line = append(s.buf[:0], rest...), line-start
	return nil
}

// complete looks in p for the end of the event that buf holds the start of. It
// returns how many bytes of p belong to it and whether it ends there.
func (s *SSE) complete(p []byte) (n int, ended bool) {
	i := bytes.IndexByte(p, '\n')
	if i < 0 {
		return len(p), false
	}
	// The line under way stands partly in buf.
	begun := s.buf[s.line:]
	switch {
	case len(begun) == 0:
		ended = blank(p[:i])
	case len(begun) == 1 && begun[0] == '\r':
		ended = i == 0
	}
	for n = i + 1; !ended; {
		i = bytes.IndexByte(p[n:], '\n')
		if i < 0 {
			s.line = len(s.buf) + n
			return len(p), false
		}
		ended = blank(p[n : n+i])
		n += i + 1
	}
	return n, true
}

// blank reports whether a line, without its line feed, ends an event.
func blank(line []byte) bool {
	return len(line) == 0 || len(line) == 1 && line[0] == '\r'
}

// give hands out the event that was read.
func (s *SSE) give(yield func(*Event) error) error {
	s.n++
	return yield(&s.ev)
}

// Close gives out what is left when the stream has ended: an event without its
// blank line, which is odd (Unended) unless it is a comment.
func (s *SSE) Close(yield func(*Event) error) error {
	if len(s.buf) == 0 {
		return nil
	}
	raw := s.buf
	s.buf, s.line = nil, 0
	s.read(raw)
	if s.ev.Odd == "" && !s.ev.Empty() {
		s.ev.Odd = Unended
	}
	return s.give(yield)
}

// The starts of the lines that nearly all events have.
const (
	nameStart = "event: "
	dataStart = "data: "
)

// usual reads an event of one line of data, with or without a line with a plain
// name before it, whose lines were found already. It leaves all others to read,
// which reads these alike.
func (s *SSE) usual(raw []byte, ends []int) bool {
	from := 0
	var name []byte
	switch {
	case len(ends) == 1:
	case len(ends) == 2 && bytes.HasPrefix(raw, []byte(nameStart)):
		if name = raw[len(nameStart):ends[0]]; !isName(name) {
			return false
		}
		from = ends[0] + 1
	default:
		return false
	}
	line := raw[from:ends[len(ends)-1]]
	if !bytes.HasPrefix(line, []byte(dataStart)) || bytes.IndexByte(line, '\r') >= 0 {
		return false
	}
	s.ev = Event{Raw: raw, Name: name, Data: line[len(dataStart):], HasData: true, At: from + len(dataStart)}
	return true
}

// read parses an event, once more when comments must be left out of it. One
// that is odd is not passed on, so nothing needs to be left out of it.
func (s *SSE) read(raw []byte) {
	s.ev = Event{}
	if parse(raw, &s.ev) || s.ev.Odd != "" {
		return
	}
	s.ev = Event{Cut: true}
	parse(withoutComments(raw), &s.ev)
}

// withoutComments copies an event without the comments that are not plain.
func withoutComments(raw []byte) []byte {
	kept := make([]byte, 0, len(raw))
	for line := range bytes.Lines(raw) {
		if line[0] != ':' || isComment(bytes.TrimRight(line, "\r\n")) {
			kept = append(kept, line...)
		}
	}
	return kept
}

// maxPlain is the longest value that is taken for plain, in bytes.
const maxPlain = 200

// isComment reports whether a comment is nothing else for any reader: short,
// printable ASCII, and without what JSON needs.
func isComment(line []byte) bool { return len(line) <= maxPlain && all(line, plainByte) }

func isID(value []byte) bool { return len(value) <= maxPlain && all(value, plainByte) }

func isName(value []byte) bool { return len(value) <= maxPlain && all(value, nameByte) }

func isRetry(value []byte) bool { return len(value) <= 20 && all(value, digit) }

func all(b []byte, class byte) bool {
	for _, c := range b {
		if classes[c]&class == 0 {
			return false
		}
	}
	return true
}

// The classes of bytes.
const (
	plainByte byte = 1 << iota
	nameByte
	digit
)

var classes = func() (t [256]byte) {
	for c := ' '; c <= '~'; c++ {
		if c != '{' && c != '}' && c != '"' {
			t[c] = plainByte
		}
		switch {
		case '0' <= c && c <= '9':
			t[c] |= nameByte | digit
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_', c == '-', c == '.':
			t[c] |= nameByte
		}
	}
	return t
}()

// OtherBreaks reports whether data holds a character that is no line break here
// and one for readers that break lines as Python's str.splitlines does. Such
// readers lose the event it stands in, which does no harm in text but turns a
// call into another one. Inside JSON, where control characters are escaped,
// these are U+0085, U+2028 and U+2029.
func OtherBreaks(data []byte) bool {
	for i, c := range data {
		switch {
		case c == 0xc2 && i+1 < len(data) && data[i+1] == 0x85,
			c == 0xe2 && i+2 < len(data) && data[i+1] == 0x80 && (data[i+2] == 0xa8 || data[i+2] == 0xa9),
			c == '\v', c == '\f', 0x1c <= c && c <= 0x1e:
			return true
		}
	}
	return false
}

// parse reads an event. It reports false when a comment in it is more than a
// comment for some reader.
func parse(raw []byte, ev *Event) (plain bool) {
	plain = true
	ev.Raw = raw
	datas := 0
	for b := raw; len(b) > 0; {
		line, at := b, len(raw)-len(b)
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line, b = b[:i], b[i+1:]
		} else {
			b = nil
		}
		if n := len(line); n > 0 && line[n-1] == '\r' {
			line = line[:n-1]
		}
		if len(line) == 0 {
			continue
		}
		if bytes.IndexByte(line, '\r') >= 0 {
			ev.Odd = "a carriage return stands inside a line"
		}
		if line[0] == ':' {
			plain = plain && isComment(line)
			continue
		}
		name, value, colon := bytes.Cut(line, []byte{':'})
		if !colon {
			ev.Odd = "it has a line without a colon"
		}
		if len(value) > 0 && value[0] == ' ' {
			value = value[1:]
		}
		switch string(name) {
		case "data":
			if datas++; datas == 1 {
				ev.Data, ev.HasData, ev.At = value, true, at+len(line)-len(value)
				break
			}
			if datas == 2 {
				ev.Data = bytes.Clone(ev.Data) // it lies in the event's own bytes
			}
			ev.Data = append(append(ev.Data, '\n'), value...)
			ev.Odd = "its data stands in several lines"
		case "event":
			if ev.Name != nil {
				ev.Odd = "it has two event names"
			}
			ev.Name = value
			if value == nil {
				ev.Name = []byte{}
			}
			if !isName(value) {
				ev.Odd = "its event name is long or not plain"
			}
		case "id":
			if !isID(value) {
				ev.Odd = "its id is long or not plain"
			}
		case "retry":
			if !isRetry(value) {
				ev.Odd = "its retry is no number"
			}
		default:
			ev.Odd = "it has a line that is no field of the standard"
		}
	}
	if ev.Name != nil && !ev.HasData && ev.Odd == "" {
		// The standard drops it; readers of lines may not.
		ev.Odd = "it has a name and no data"
	}
	return plain
}

// AppendComment appends a comment that says text, as far as it is plain.
func AppendComment(dst []byte, text string) []byte {
	dst = append(dst, ": "...)
	from := len(dst) - 1
	for _, c := range []byte(text) {
		if len(dst)-from == maxPlain-1 {
			break
		}
		switch {
		case classes[c]&plainByte != 0:
			dst = append(dst, c)
		case c == '\n':
			dst = append(dst, ' ')
		}
	}
	return append(dst, '\n', '\n')
}

// AppendEvent appends one event with a name ("" for none) and one line of
// data, which must hold no line break.
func AppendEvent(dst []byte, name string, data []byte) []byte {
	if name != "" {
		dst = append(dst, "event: "...)
		dst = append(dst, name...)
		dst = append(dst, '\n')
	}
	dst = append(dst, "data: "...)
	dst = append(dst, data...)
	return append(dst, '\n', '\n')
}
