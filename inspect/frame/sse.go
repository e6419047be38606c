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
	// Odd says why two readers could read this event differently, "" when
	// they would agree. An odd event must not be passed on unread.
	Odd string
}

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
type SSE struct {
	// Max is the longest event it will hold, in bytes; 0 means no limit.
	Max int

	buf  []byte // bytes of an event that has not ended
	scan int    // offset in buf up to which line ends were looked for
	line int    // offset in buf of the line that has not ended
	n    int    // events given out
}

// Count returns how many events were given out so far.
func (s *SSE) Count() int { return s.n }

// Pending returns how many bytes are held of an event that has not ended.
func (s *SSE) Pending() int { return len(s.buf) }

// Feed takes the next bytes and calls yield for each event they complete, in
// order. The event's slices are valid only during that call. An error of yield
// stops the reading and is returned; an event past Max is a *TooLargeError.
func (s *SSE) Feed(p []byte, yield func(*Event) error) error {
	b, own := p, false
	if len(s.buf) > 0 {
		s.buf = append(s.buf, p...)
		b, own = s.buf, true
	}
	start, scan, line := 0, s.scan, s.line
	for {
		i := bytes.IndexByte(b[scan:], '\n')
		if i < 0 {
			scan = len(b)
			break
		}
		end := scan + i
		text := b[line:end]
		scan, line = end+1, end+1
		if len(text) > 0 && (len(text) > 1 || text[0] != '\r') {
			continue
		}
		if s.Max > 0 && scan-start > s.Max {
			return &TooLargeError{Limit: s.Max}
		}
		s.n++
		var ev Event
		parse(b[start:scan], &ev)
		start = scan
		if err := yield(&ev); err != nil {
			return err
		}
	}
	rest := b[start:]
	if s.Max > 0 && len(rest) > s.Max {
		return &TooLargeError{Limit: s.Max}
	}
	s.scan, s.line = scan-start, line-start
	if own {
		s.buf = s.buf[:copy(s.buf, rest)]
	} else {
		s.buf = append(s.buf[:0], rest...)
	}
	return nil
}

// Close gives out what is left when the stream has ended: an event without its
// blank line. Readers that follow the standard drop it and others do not, so
// it is always odd.
func (s *SSE) Close(yield func(*Event) error) error {
	if len(s.buf) == 0 {
		return nil
	}
	raw := s.buf
	s.buf, s.scan, s.line = nil, 0, 0
	s.n++
	var ev Event
	parse(raw, &ev)
	if !ev.Empty() {
		ev.Odd = "the last event has no blank line behind it"
	}
	return yield(&ev)
}

func parse(raw []byte, ev *Event) {
	ev.Raw = raw
	lines := 0
	for b := raw; len(b) > 0; {
		line := b
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
			// The standard ends a line here; readers that split at line feeds
			// do not.
			ev.Odd = "a carriage return stands inside a line"
		}
		if line[0] == ':' {
			continue
		}
		name, value, _ := bytes.Cut(line, []byte{':'})
		if len(value) > 0 && value[0] == ' ' {
			value = value[1:]
		}
		switch string(name) {
		case "data":
			lines++
			switch lines {
			case 1:
				ev.Data, ev.HasData = value, true
			default:
				ev.Data = append(append(bytes.Clone(ev.Data), '\n'), value...)
				ev.Odd = "its data stands in several lines"
			}
		case "event":
			if ev.Name != nil {
				ev.Odd = "it has two event names"
			}
			ev.Name = value
		case "id", "retry":
		default:
			ev.Odd = "it has a line that is no field of the standard"
		}
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
