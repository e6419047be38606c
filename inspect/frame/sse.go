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
	// Raw is the event exactly as it came, its blank line included.
	Raw []byte
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
		if err := s.give(s.buf, yield); err != nil {
			return err
		}
		s.buf, s.line = s.buf[:0], 0
		p = p[n:]
	}
	start, line := 0, 0
	for {
		i := bytes.IndexByte(p[line:], '\n')
		if i < 0 {
			break
		}
		text := p[line : line+i]
		line += i + 1
		if !blank(text) {
			continue
		}
		if s.Max > 0 && line-start > s.Max {
			return &TooLargeError{Limit: s.Max}
		}
		if err := s.give(p[start:line], yield); err != nil {
			return err
		}
		start = line
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

func (s *SSE) give(raw []byte, yield func(*Event) error) error {
	s.n++
	s.ev = Event{}
	parse(raw, &s.ev)
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
	s.n++
	s.ev = Event{}
	parse(raw, &s.ev)
	if s.ev.Odd == "" && !s.ev.Empty() {
		s.ev.Odd = Unended
	}
	return yield(&s.ev)
}

func parse(raw []byte, ev *Event) {
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
			ev.Data = append(append(bytes.Clone(ev.Data), '\n'), value...)
			ev.Odd = "its data stands in several lines"
		case "event":
			if ev.Name != nil {
				ev.Odd = "it has two event names"
			}
			ev.Name = value
			if value == nil {
				ev.Name = []byte{}
			}
		case "id", "retry":
		default:
			ev.Odd = "it has a line that is no field of the standard"
		}
	}
	if ev.Name != nil && !ev.HasData && ev.Odd == "" {
		// The standard drops it; readers of lines may not.
		ev.Odd = "it has a name and no data"
	}
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
