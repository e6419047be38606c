package openaichat

import (
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
)

// plain is the template of the events that servers send, which all readers read
// alike. An event matches only when every key is known, none twice, none
// escaped, and every value of a kind that is known; whatever else it is goes the
// long way.
//
// What matches is plain when it can hold nothing of a call: a chunk of text,
// reasoning or a role, or one that says nothing. It passes without further
// reading. Otherwise the template has found what there is to be taken in.
type plain struct {
	b []byte
	i int

	n     int
	shown [maxPlain]shown
	told
	// open are the strings of the event that may change within its form, opens
	// how many; wide says that there are more than a mould has holes.
	open  [maxHoles]opening
	opens int
	wide  bool
	mould mould
}

// told is what an event tells beside what it shows.
type told struct {
	id, created, model rawjson.Span
	usage              rawjson.Span // an object
	choices            rawjson.Span // the list
	// Of the choice that was read last:
	choice choice
	// more says that a choice tells of a call or of its end.
	more bool
}

// opening is such a string.
type opening struct {
	at     rawjson.Span
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
	choicesKind                 // the list of choices
	deltaKind                   // a delta
	contentKind                 // a string or null, of which notice is taken
	refusalKind
	roleKind
	indexKind
	varying // a scalar that differs from event to event
	// The same, with thinking in it.
	reasoningKind
	reasoningContentKind
	// Scalars that make the envelope.
	idKind
	createdKind
	modelKind
	usageKind    // null or an object of numbers
	finishKind   // a string or null
	nativeKind   // the same
	callsKind    // null or a list of calls
	functionKind // null or an object with name and arguments
	wordKind     // a string or null
)

// field is a key of the template. The order of the lists below is the order of
// bits that tell a key's second standing.
type field struct {
	key  string
	kind kind
}

var eventFields = []field{
	{"id", idKind}, {"object", scalar}, {"created", createdKind}, {"model", modelKind}, {"choices", choicesKind},
	{"system_fingerprint", scalar}, {"service_tier", scalar}, {"usage", usageKind}, {"obfuscation", varying}, {"provider", scalar},
}

var choiceFields = []field{
	{"index", indexKind}, {"delta", deltaKind}, {"finish_reason", finishKind}, {"logprobs", nothing},
	{"native_finish_reason", nativeKind}, {"stop_reason", nothing}, {"token_ids", nothing}, {"matched_stop", nothing},
}

var deltaFields = []field{
	{"content", contentKind}, {"role", roleKind}, {"reasoning_content", reasoningContentKind}, {"reasoning", reasoningKind}, {"refusal", refusalKind},
	{"tool_calls", callsKind}, {"function_call", nothing}, {"name", scalar},
}

var entryFields = []field{{"index", scalar}, {"id", wordKind}, {"type", wordKind}, {"function", functionKind}}

var functionFields = []field{{"name", wordKind}, {"arguments", wordKind}}

// match reports whether data is an event of the template, and notes what it
// shows and tells. Of one that tells more, only a single choice is taken in.
func (p *plain) match(data []byte) bool {
	p.b, p.i, p.n = data, 0, 0
	p.told = told{}
	p.opens, p.wide = 0, false
	p.blank()
	if !p.object(eventFields) {
		return false
	}
	p.blank()
	return p.i == len(p.b) && (!p.more || p.n == 1)
}

// isPlain reports whether the event that matched last holds nothing of a call
// and of its end. Figures of usage may stand in it.
func (p *plain) isPlain() bool { return !p.more }

// cast makes the event that matched last the form of those to come. Its data
// starts at from.
func (p *plain) cast(raw []byte, from int) {
	if p.mould.usable = !p.wide && !p.usage.There() && len(raw) <= maxMould && ended(raw); p.mould.usable {
		p.mould.cast(raw, from, p.open[:p.opens], p.shown[:p.n])
	}
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
		from := p.i
		f := p.key(fields)
		if f < 0 || seen&(1<<f) != 0 || !p.take(':') || !p.value(fields[f].kind, from) {
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

// value reads a value of that kind. from is where its member starts.
func (p *plain) value(k kind, from int) bool {
	at := p.i
	switch k {
	case scalar:
		_, ok := p.scalar()
		return ok
	case idKind, createdKind, modelKind:
		_, ok := p.scalar()
		switch s := p.since(at); k {
		case idKind:
			p.id = s
		case createdKind:
			p.created = s
		case modelKind:
			p.model = s
		}
		return ok
	case nothing:
		return p.word("null")
	case wordKind:
		if p.word("null") {
			return true
		}
		_, ok := p.str()
		return ok
	case choicesKind:
		ok := p.list(p.element)
		p.choices = p.since(at)
		return ok
	case deltaKind:
		ok := p.object(deltaFields)
		p.choice.body = p.since(at)
		return ok
	case indexKind:
		p.choice.indexed = true
		return p.index()
	case contentKind, refusalKind, roleKind:
		return p.notice(k)
	case varying, reasoningKind, reasoningContentKind:
		n, ok := p.scalar()
		if n > 0 {
			p.opened(at, k)
		}
		return ok
	case usageKind:
		if p.word("null") {
			return true
		}
		ok := p.figures(1)
		p.usage = p.since(at)
		return ok
	case finishKind, nativeKind:
		return p.end(k)
	case callsKind:
		if p.word("null") {
			return true
		}
		ok := p.list(p.entry)
		if s := p.since(at); ok && rawjson.Nested(p.b, s) {
			p.choice.list, p.choice.listItem, p.more = s, p.since(from), true
		}
		return ok
	case functionKind:
		return p.word("null") || p.object(functionFields)
	}
	return false
}

// since gives the value that was read last, without the blanks behind it.
func (p *plain) since(from int) rawjson.Span {
	to := p.i
	for to > from && (p.b[to-1] == ' ' || p.b[to-1] == '\t') {
		to--
	}
	return rawjson.Span{From: from, To: to}
}

// end reads what says why a choice has ended, null while it goes on.
func (p *plain) end(k kind) bool {
	at := p.i
	ok := p.word("null")
	if !ok {
		_, ok = p.str()
		p.more = true
	}
	switch s := p.since(at); {
	case k == finishKind:
		p.choice.finish = s
	case rawjson.IsString(p.b, s):
		p.choice.native = s
	}
	return ok
}

// The bounds of what figures of usage may be.
const (
	maxFigures      = 16
	maxFiguresDepth = 3
)

// figures reads an object of whole numbers and of such objects, as usage is. Its
// keys are of lower-case letters.
func (p *plain) figures(depth int) bool {
	if depth > maxFiguresDepth || !p.take('{') {
		return false
	}
	if p.take('}') {
		return true
	}
	var keys [maxFigures][]byte
	for n := 0; ; n++ {
		key := p.figure()
		if n == maxFigures || key == nil || !p.take(':') {
			return false
		}
		for _, k := range keys[:n] {
			if string(k) == string(key) {
				return false
			}
		}
		keys[n] = key
		if !p.word("null") && !p.number() && !p.figures(depth+1) {
			return false
		}
		if !p.take(',') {
			return p.take('}')
		}
	}
}

// figure reads the key of a figure, nil when there is none.
func (p *plain) figure() []byte {
	if p.i >= len(p.b) || p.b[p.i] != '"' {
		return nil
	}
	for i := p.i + 1; i < len(p.b); i++ {
		switch c := p.b[i]; {
		case c == '"':
			key := p.b[p.i+1 : i]
			p.i = i + 1
			return key
		case !('a' <= c && c <= 'z' || c == '_'):
			return nil
		}
	}
	return nil
}

// opened notes a string that may change within a form.
func (p *plain) opened(from int, k kind) {
	if p.wide = p.wide || p.opens == maxHoles; p.wide {
		return
	}
	p.open[p.opens] = opening{p.since(from), p.n, k}
	p.opens++
}

// notice reads a string or null that the client sees.
func (p *plain) notice(k kind) bool {
	from := p.i
	n, ok := 0, p.word("null")
	if !ok {
		n, ok = p.str()
	}
	switch k {
	case contentKind:
		p.choice.content = p.since(from)
	case refusalKind:
		p.choice.refusal = p.since(from)
	}
	if ok && n > 0 && k != roleKind {
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
	lane, ok := rawjson.Whole(p.b, rawjson.Span{From: from, To: p.i})
	p.shown[p.n].lane = lane
	return ok
}

// list reads a list, its elements by one.
func (p *plain) list(one func() bool) bool {
	if !p.take('[') {
		return false
	}
	if p.take(']') {
		return true
	}
	for one() {
		if !p.take(',') {
			return p.take(']')
		}
	}
	return false
}

func (p *plain) element() bool {
	if p.n == maxPlain {
		return false
	}
	at := p.i
	p.shown[p.n], p.choice = shown{lane: p.n}, choice{}
	if !p.object(choiceFields) {
		return false
	}
	p.choice.at = p.since(at)
	if !rawjson.Nested(p.b, p.choice.at) {
		return false // whose number nobody looks at
	}
	for i := range p.n {
		if p.shown[i].lane == p.shown[p.n].lane {
			return false
		}
	}
	p.n++
	return true
}

func (p *plain) entry() bool { return p.object(entryFields) }
