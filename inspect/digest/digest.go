// Package digest recognises a message that an agent sends back by what it says:
// its text, and the names and words of its calls. What clients change on the
// way does not count: white space, ids, numbers written in another way, escapes,
// the order of members, markers for a cache.
//
// It holds no wire format: a dialect says what the parts of its messages are.
package digest

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"unicode"
	"unicode/utf8"

	"callgate/inspect/strictjson"
)

// Digest tells messages apart: SHA-256, cut to 128 bits. It is no secret and
// no proof of anything: who may be told apart by it is settled before.
type Digest [16]byte

// Part says what follows in a Writer.
type Part byte

// The parts of a message.
const (
	Text   Part = 't' // what an assistant says; its pieces are one text
	Call   Part = 'c' // the name of a call
	Args   Part = 'a' // its arguments
	User   Part = 'u' // what others say to the assistant
	Result Part = 'r' // what a call gave
	Before Part = 'b' // a Digest of what stands before
)

// Writer builds a Digest. Its zero value is ready.
type Writer struct {
	h    hash.Hash
	room [512]byte
	n    int
	long []byte // room for strings with escapes
}

// Part begins a part: the same words in another part make another digest. A
// part with nothing in it counts.
func (w *Writer) Part(p Part) {
	// No text holds a byte 0xFF, so a part can begin nowhere else.
	w.put(0xFF)
	w.put(byte(p))
}

// Digest adds another digest as a part of its own.
func (w *Writer) Digest(d Digest) {
	w.Part(Before)
	for _, c := range d {
		w.put(c)
	}
}

// String adds a JSON string as it is written, with its quotes; anything else
// adds nothing.
func (w *Writer) String(raw []byte) {
	if len(raw) < 2 || raw[0] != '"' {
		return
	}
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
		w.words(inner)
		return
	}
	w.long = strictjson.AppendString(w.long[:0], raw)
	w.words(w.long)
}

// Plain adds text that is not JSON.
func (w *Writer) Plain(text string) { w.words([]byte(text)) }

// Strings adds every string value of a JSON value, in the order of the text,
// each with its end. Keys, numbers, true, false and null add nothing: clients
// that decode and encode write them anew.
func (w *Writer) Strings(raw []byte) {
	for i := 0; i < len(raw); {
		if raw[i] != '"' {
			i++
			continue
		}
		n := stringEnd(raw, i)
		if n < 0 {
			return
		}
		rest := bytes.TrimLeft(raw[n:], " \t\r\n")
		if len(rest) == 0 || rest[0] != ':' {
			w.String(raw[i:n])
			w.put(0xFE)
		}
		i = n
	}
}

// stringEnd gives the end of the string that starts at i, or -1.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// kept are the ASCII characters that count, all but white space and controls.
var kept = func() (k [utf8.RuneSelf]uint8) {
	for c := ' ' + 1; c < 0x7f; c++ {
		k[c] = 1
	}
	return k
}()

// words adds text without its white space. Bytes that are not UTF-8 become
// U+FFFD.
func (w *Writer) words(b []byte) {
	for len(b) > 0 {
		if len(w.room)-w.n < 64 {
			w.flush()
		}
		// Most text is ASCII: each character is written, and the place moves on
		// from those that count.
		room, i, n := w.room[w.n:], 0, 0
		for _, c := range b[:min(len(b), len(room))] {
			if c >= utf8.RuneSelf {
				break
			}
			room[n] = c
			n += int(kept[c])
			i++
		}
		w.n += n
		b = b[i:]
		if len(b) == 0 || b[0] < utf8.RuneSelf {
			continue
		}
		r, size := utf8.DecodeRune(b)
		b = b[size:]
		if unicode.IsSpace(r) {
			continue
		}
		var enc [utf8.UTFMax]byte
		for _, c := range enc[:utf8.EncodeRune(enc[:], r)] {
			w.put(c)
		}
	}
}

func (w *Writer) put(c byte) {
	if w.n == len(w.room) {
		w.flush()
	}
	w.room[w.n] = c
	w.n++
}

func (w *Writer) flush() {
	if w.h == nil {
		w.h = sha256.New()
	}
	w.h.Write(w.room[:w.n])
	w.n = 0
}

// Sum gives the digest of what was added and starts anew.
func (w *Writer) Sum() (d Digest) {
	w.flush()
	var room [sha256.Size]byte
	copy(d[:], w.h.Sum(room[:0]))
	w.h.Reset()
	return d
}
