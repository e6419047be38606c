package repair

import (
	"encoding/binary"

	"callgate/inspect/digest"
)

// writer writes values one behind the other, each with its length.
type writer struct{ b []byte }

func (w *writer) byte(c byte)            { w.b = append(w.b, c) }
func (w *writer) int(n int)              { w.b = binary.AppendVarint(w.b, int64(n)) }
func (w *writer) digest(d digest.Digest) { w.b = append(w.b, d[:]...) }

func (w *writer) bool(v bool) {
	if v {
		w.byte(1)
	} else {
		w.byte(0)
	}
}

func (w *writer) bytes(b []byte) {
	w.int(len(b))
	w.b = append(w.b, b...)
}

func (w *writer) string(s string) {
	w.int(len(s))
	w.b = append(w.b, s...)
}

func (w *writer) strings(list []string) {
	w.int(len(list))
	for _, s := range list {
		w.string(s)
	}
}

// reader reads what writer wrote. After a mistake it gives zero values, and end
// says so.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.b) {
		r.bad = true
		return nil
	}
	part := r.b[:n:n]
	r.b = r.b[n:]
	return part
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) bool() bool {
	c := r.byte()
	r.bad = r.bad || c > 1
	return c == 1
}

func (r *reader) int() int {
	n, size := binary.Varint(r.b)
	if r.bad || size <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[size:]
	return int(n)
}

// count reads how many values follow: each takes a byte at least, so that no
// number makes work that the text does not pay for.
func (r *reader) count() int {
	n := r.int()
	if n < 0 || n > len(r.b) {
		r.bad = true
	}
	if r.bad {
		return 0
	}
	return n
}

func (r *reader) bytes() []byte {
	if n := r.int(); n != 0 {
		return r.take(n)
	}
	return nil
}

func (r *reader) string() string { return string(r.take(r.int())) }

func (r *reader) strings() []string {
	n := r.count()
	if n == 0 {
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, r.string())
	}
	return list
}

func (r *reader) digest() (d digest.Digest) {
	copy(d[:], r.take(len(d)))
	return d
}

// end reports whether all was read, and well.
func (r *reader) end() error {
	if r.bad || len(r.b) > 0 {
		return errDamaged
	}
	return nil
}
