package frame

import "bytes"

// Line is one line of a stream of JSON documents (ndjson.org, jsonlines.org).
type Line struct {
	// Raw is the line exactly as it came, its line feed included.
	Raw []byte
	// Data is the document in it: Raw without the white space around it. At is
	// where in Raw it starts.
	Data []byte
	At   int
	// Odd says why two readers could read this line differently, "" when they
	// would agree. An odd line must not be passed on unread.
	Odd string
}

// Blank reports whether the line holds nothing but white space.
func (l *Line) Blank() bool { return len(l.Data) == 0 }

// NDJSON reads lines that end in LF or CRLF. The zero value is ready and has no
// limit. What is in a line is not looked at, but for a carriage return: white
// space to readers of JSON, it ends a line for some readers of lines, which makes
// the line odd. Of the other characters at which some readers break lines see
// OtherBreaks: in valid JSON they can stand inside of strings alone, where no
// part of a line can become a document of its own.
type NDJSON struct {
	// Max is the longest line it will hold, in bytes; 0 means no limit.
	Max int

	buf  []byte // bytes of a line that has not ended
	n    int    // lines given out
	line Line   // the one given out, kept here so that none is allocated
}

// Count returns how many lines were given out so far.
func (d *NDJSON) Count() int { return d.n }

// Pending returns how many bytes are held of a line that has not ended.
func (d *NDJSON) Pending() int { return len(d.buf) }

// Feed takes the next bytes and calls yield for each line they complete, in
// order. The line and its slices are valid only during that call. An error of
// yield stops the reading and is returned; a line past Max is a *TooLargeError.
// After an error the reader must not be fed again.
//
// A line that lies whole in p is given out without being copied.
func (d *NDJSON) Feed(p []byte, yield func(*Line) error) error {
	for {
		i := bytes.IndexByte(p, '\n')
		n := i + 1
		if i < 0 {
			n = len(p)
		}
		if d.Max > 0 && len(d.buf)+n > d.Max {
			return &TooLargeError{Limit: d.Max}
		}
		if i < 0 {
			d.buf = append(d.buf, p...)
			return nil
		}
		raw := p[:n]
		if len(d.buf) > 0 {
			d.buf = append(d.buf, raw...)
			raw = d.buf
		}
		if err := d.give(raw, yield); err != nil {
			return err
		}
		d.buf, p = d.buf[:0], p[n:]
	}
}

// Close gives out what is left when the stream has ended: a line without its
// line feed, which readers take all the same.
func (d *NDJSON) Close(yield func(*Line) error) error {
	if len(d.buf) == 0 {
		return nil
	}
	raw := d.buf
	d.buf = nil
	return d.give(raw, yield)
}

func (d *NDJSON) give(raw []byte, yield func(*Line) error) error {
	const space = " \t\r\n"
	d.n++
	data := bytes.TrimLeft(raw, space)
	d.line = Line{Raw: raw, Data: bytes.TrimRight(data, space), At: len(raw) - len(data)}
	if bytes.IndexByte(d.line.Data, '\r') >= 0 {
		d.line.Odd = "a carriage return stands inside a line"
	}
	return yield(&d.line)
}
