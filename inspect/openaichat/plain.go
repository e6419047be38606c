package openaichat

import "callgate/inspect/strictjson"

// plain is the template of an event that can hold nothing of a call: a chunk of
// text, reasoning or a role, or one that says nothing. An event passes without
// further reading only when match finds every key known, none twice, none
// escaped, and every value of a kind that is known; whatever else it is goes
// the long way.
type plain struct {
	b []byte
	i int

	n     int
	shown [maxPlain]shown
	// open are the strings of the event that may change within its form, opens
	// how many; wide says that there are more than a mould has holes.
	open  [maxHoles]opening
	opens int
	wide  bool
	mould mould
}

// opening is such a string.
type opening struct {
	at     span
	choice int
	kind   kind
}

// maxPlain is how many choices a plain event may have.
const maxPlain = 4

// shown is what a choice of an event lets the client see.
type shown struct {
	lane          int
	role          bool
	text, refusal bool
}

// The kinds of value that the template allows for a key.
type kind uint8

const (
	scalar      kind = iota + 1 // a string, a number or null
	nothing                     // null
	none                        // null or []
	choicesKind                 // the list of choices
	deltaKind                   // a delta
	contentKind                 // a string or null, of which notice is taken
	refusalKind
	roleKind
	indexKind
	varying // a scalar that differs from event to event
)

// field is a key of the template. The order of the lists below is the order of
// bits that tell a key's second standing.
type field struct {
	key  string
	kind kind
}

var eventFields = []field{
	{"id", scalar}, {"object", scalar}, {"created", scalar}, {"model", scalar}, {"choices", choicesKind},
	{"system_fingerprint", scalar}, {"service_tier", scalar}, {"usage", nothing}, {"obfuscation", varying}, {"provider", scalar},
}

var choiceFields = []field{
	{"index", indexKind}, {"delta", deltaKind}, {"finish_reason", nothing}, {"logprobs", nothing},
	{"native_finish_reason", nothing}, {"stop_reason", nothing}, {"token_ids", nothing}, {"matched_stop", nothing},
}

var deltaFields = []field{
	{"content", contentKind}, {"role", roleKind}, {"reasoning_content", varying}, {"reasoning", varying}, {"refusal", refusalKind},
	{"tool_calls", none}, {"function_call", nothing}, {"name", scalar},
}

// match reports whether data is a plain event, and notes what it shows.
func (p *plain) match(data []byte) bool {
	if p.mould.fits(data, &p.shown) {
		p.n = p.mould.lanes
		return true
	}
	if !p.whole(data) {
		return false
	}
	if p.mould.usable = !p.wide && len(data) <= maxMould; p.mould.usable {
		p.mould.cast(data, p.open[:p.opens], p.shown[:p.n])
	}
	return true
}

// whole is match without the mould.
func (p *plain) whole(data []byte) bool {
	p.b, p.i, p.n = data, 0, 0
	p.opens, p.wide = 0, false
	p.blank()
	if !p.object(eventFields) {
		return false
	}
	p.blank()
	return p.i == len(p.b)
}

// blank steps over spaces and tabs; no other white space is in the template.
func (p *plain) blank() {
	for p.i < len(p.b) && (p.b[p.i] == ' ' || p.b[p.i] == '\t') {
		p.i++
	}
}

// take steps over c and the blanks on both sides.
func (p *plain) take(c byte) bool {
	p.blank()
	if p.i >= len(p.b) || p.b[p.i] != c {
		return false
	}
	p.i++
	p.blank()
	return true
}

func (p *plain) object(fields []field) bool {
	if !p.take('{') {
		return false
	}
	if p.take('}') {
		return true
	}
	for seen := uint32(0); ; {
		f := p.key(fields)
		if f < 0 || seen&(1<<f) != 0 || !p.take(':') || !p.value(fields[f].kind) {
			return false
		}
		seen |= 1 << f
		if !p.take(',') {
			return p.take('}')
		}
	}
}

// key reads a key and gives its place among the fields, or -1. A key with an
// escape equals none of them.
func (p *plain) key(fields []field) int {
	if p.i >= len(p.b) || p.b[p.i] != '"' {
		return -1
	}
	rest := p.b[p.i+1:]
	for i := range fields {
		k := fields[i].key
		if len(rest) > len(k) && rest[len(k)] == '"' && string(rest[:len(k)]) == k {
			p.i += len(k) + 2
			return i
		}
	}
	return -1
}

func (p *plain) value(k kind) bool {
	switch k {
	case scalar:
		_, ok := p.scalar()
		return ok
	case nothing:
		return p.word("null")
	case none:
		return p.word("null") || p.take('[') && p.take(']')
	case choicesKind:
		return p.choices()
	case deltaKind:
		return p.object(deltaFields)
	case indexKind:
		return p.index()
	case contentKind, refusalKind, roleKind:
		return p.notice(k)
	case varying:
		from := p.i
		n, ok := p.scalar()
		if n > 0 {
			p.opened(from, k)
		}
		return ok
	}
	return false
}

// opened notes a string that may change within a form.
func (p *plain) opened(from int, k kind) {
	if p.wide = p.wide || p.opens == maxHoles; p.wide {
		return
	}
	p.open[p.opens] = opening{span{from, p.i}, p.n, k}
	p.opens++
}

// notice reads a string or null that the client sees.
func (p *plain) notice(k kind) bool {
	if p.word("null") {
		return true
	}
	from := p.i
	n, ok := p.str()
	if ok && k != roleKind {
		p.opened(from, k)
	}
	if s := &p.shown[p.n]; n > 2 && ok {
		s.text = s.text || k == contentKind
		s.refusal = s.refusal || k == refusalKind
		s.role = s.role || k == roleKind
	}
	return ok
}

func (p *plain) word(w string) bool {
	if rest := p.b[p.i:]; len(rest) < len(w) || string(rest[:len(w)]) != w {
		return false
	}
	p.i += len(w)
	return true
}

func (p *plain) str() (int, bool) {
	n := strictjson.StringLen(p.b[p.i:])
	if n < 0 {
		return 0, false
	}
	p.i += n
	return n, true
}

func (p *plain) scalar() (int, bool) {
	if p.i >= len(p.b) {
		return 0, false
	}
	switch c := p.b[p.i]; {
	case c == '"':
		return p.str()
	case '0' <= c && c <= '9':
		return 0, p.number()
	}
	return 0, p.word("null")
}

// number reads a whole number from 0.
func (p *plain) number() bool {
	from := p.i
	for p.i < len(p.b) && '0' <= p.b[p.i] && p.b[p.i] <= '9' {
		p.i++
	}
	return p.i-from == 1 || p.i > from && p.b[from] != '0'
}

func (p *plain) index() bool {
	from := p.i
	if !p.number() {
		return false
	}
	lane, ok := whole(p.b, span{from, p.i})
	p.shown[p.n].lane = lane
	return ok
}

func (p *plain) choices() bool {
	if !p.take('[') {
		return false
	}
	if p.take(']') {
		return true
	}
	for {
		if p.n == maxPlain {
			return false
		}
		p.shown[p.n] = shown{}
		if !p.object(choiceFields) {
			return false
		}
		p.n++
		if !p.take(',') {
			return p.take(']')
		}
	}
}
