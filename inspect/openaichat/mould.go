package openaichat

import "callgate/inspect/strictjson"

// mould is the form of the last plain event: its bytes, with holes where
// strings stand that change from event to event. An event that differs in
// these strings alone is plain for the same reasons, so it passes without being
// taken apart. Servers send hundreds of one form.
type mould struct {
	fixed  []byte // all bytes but the holes
	holes  [maxHoles]hole
	n      int
	shown  [maxPlain]shown // but for what the holes show
	lanes  int
	usable bool
}

const (
	maxHoles = 8
	maxMould = 4 << 10 // longer events are taken apart each time
)

// hole is a string's place in the fixed bytes of a mould.
type hole struct {
	at     int
	choice int  // that it stands in
	kind   kind // contentKind, refusalKind or varying
}

// cast makes the mould of an event that matched. open are its strings.
func (m *mould) cast(data []byte, open []opening, shown []shown) {
	m.fixed, m.n = m.fixed[:0], 0
	at := 0
	for _, o := range open {
		m.fixed = append(m.fixed, data[at:o.at.from]...)
		m.holes[m.n] = hole{at: len(m.fixed), choice: o.choice, kind: o.kind}
		m.n++
		at = o.at.to
	}
	m.fixed = append(m.fixed, data[at:]...)
	m.lanes = copy(m.shown[:], shown)
	for i := range m.shown[:m.lanes] {
		m.shown[i].text, m.shown[i].refusal = false, false // holes say so, null does not
	}
	m.usable = true
}

// fits reports whether an event has the form of the mould, and notes in to what
// it shows.
func (m *mould) fits(data []byte, to *[maxPlain]shown) bool {
	if !m.usable || len(data) < len(m.fixed)+2*m.n {
		return false
	}
	copy(to[:], m.shown[:m.lanes])
	at := 0
	for i := range m.holes[:m.n] {
		h := &m.holes[i]
		same := h.at - at
		if len(data) < same || string(data[:same]) != string(m.fixed[at:h.at]) {
			return false
		}
		n := strictjson.StringLen(data[same:])
		if n < 0 {
			return false
		}
		if n > 2 && h.kind != varying {
			s := &to[h.choice]
			s.text = s.text || h.kind == contentKind
			s.refusal = s.refusal || h.kind == refusalKind
		}
		data, at = data[same+n:], h.at
	}
	return string(data) == string(m.fixed[at:])
}
