package openaichat

import (
	"bytes"
	"slices"

	"callgate/inspect/strictjson"
)

// mould is the form of the last plain event: its bytes up to its blank line,
// with holes where strings stand that change from event to event. Bytes that
// differ in these strings alone are an event, and a plain one, for the same
// reasons, so they pass without being taken apart. Servers send hundreds of one
// form.
type mould struct {
	fixed  []byte // all bytes but the holes
	holes  [maxHoles]hole
	n      int
	shown  [maxPlain]shown // but for what the holes show
	lanes  int
	usable bool
	only   int                                // the hole of all that is said, when it is text of the first choice
	filled [maxHoles]struct{ from, to int32 } // the holes of the event that fitted last, but for varying ones
}

const (
	maxHoles = 8
	maxMould = 4 << 10 // longer events are taken apart each time
)

// hole is a string's place in the fixed bytes of a mould.
type hole struct {
	at     int
	choice int  // that it stands in
	kind   kind // contentKind, refusalKind, varying or one of thinking
}

// cast makes the mould of an event that matched. open are the strings of its
// data, which starts at from.
func (m *mould) cast(raw []byte, from int, open []opening, shown []shown) {
	m.fixed, m.n = slices.Grow(m.fixed[:0], len(raw)), 0
	at := 0
	for _, o := range open {
		m.fixed = append(m.fixed, raw[at:from+o.at.From]...)
		m.holes[m.n] = hole{at: len(m.fixed), choice: o.choice, kind: o.kind}
		m.n++
		at = from + o.at.To
	}
	m.fixed = append(m.fixed, raw[at:]...)
	m.lanes = copy(m.shown[:], shown)
	for i := range m.shown[:m.lanes] {
		m.shown[i].text, m.shown[i].refusal = false, false // holes say so, null does not
	}
	m.only = -1
	for i := range m.holes[:m.n] {
		if k := m.holes[i].kind; k == varying {
			continue
		} else if k != contentKind || m.only >= 0 || m.shown[m.holes[i].choice].lane != 0 {
			m.only = -1
			break
		}
		m.only = i
	}
	m.usable = true
}

// fits reports whether p starts with an event that has the form of the mould: how
// long it is, and in to what it shows; 0 when it has not.
func (m *mould) fits(p []byte, to *[maxPlain]shown) int {
	if !m.usable || len(p) < len(m.fixed)+2*m.n {
		return 0
	}
	for i := range m.shown[:m.lanes] {
		to[i] = m.shown[i]
	}
	rest, at := p, 0
	for i := range m.holes[:m.n] {
		h := &m.holes[i]
		same := h.at - at
		if len(rest) < same || string(rest[:same]) != string(m.fixed[at:h.at]) {
			return 0
		}
		n := strictjson.StringLen(rest[same:])
		if n < 0 {
			return 0
		}
		if h.kind != varying {
			from := len(p) - len(rest) + same
			m.filled[i].from, m.filled[i].to = int32(from), int32(from+n)
		}
		if n > 2 && h.kind < varying {
			s := &to[h.choice]
			s.text = s.text || h.kind == contentKind
			s.refusal = s.refusal || h.kind == refusalKind
		}
		rest, at = rest[same+n:], h.at
	}
	last := m.fixed[at:]
	if len(rest) < len(last) || string(rest[:len(last)]) != string(last) {
		return 0
	}
	return len(p) - len(rest) + len(last)
}

// ended reports whether an event ends with its blank line.
func ended(raw []byte) bool {
	n := len(raw)
	return n > 1 && raw[n-1] == '\n' && raw[n-2] == '\n' || bytes.HasSuffix(raw, []byte("\n\r\n"))
}
