package detect

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// origin says where a value came from. It passes through everything that reads
// the value.
type origin uint8

const (
	fromNet    origin = 1 << iota // fetched from another host
	fromDecode                    // decoded or decrypted from something unknown
	fromFile                      // read from a file of the machine
	fromCode                      // what a command or an inline program printed
	fromSecret                    // holds secrets, or what describes the system
)

// field is one word as the program would get it.
type field struct {
	text string // with a hole for each unknown part
	glob bool   // has unquoted pattern characters
	kept bool   // stands even when empty
	alt  bool   // one of several values that a variable can have
	from origin
	word int // index of the written word it comes from
	at   span
	// body is what can be read from a process substitution.
	body *stream
}

func (f field) known() bool { return strings.IndexByte(f.text, 0) < 0 }

// value is what a variable can hold.
type value struct {
	alts []string // the values it may have; one for a plain constant
	list bool     // an array: the values are its elements
	from origin
}

const maxAlts = 32

// scope holds variables; an inner one sees the outer's.
type scope struct {
	up   *scope
	vars map[string]value
}

func (s *scope) get(name string) (value, bool) {
	for ; s != nil; s = s.up {
		if v, ok := s.vars[name]; ok {
			return v, true
		}
	}
	return value{}, false
}

func (s *scope) set(name string, v value) {
	if s.vars == nil {
		s.vars = map[string]value{}
	}
	s.vars[name] = v
}

// builder collects the parts of one written word into fields.
type builder struct {
	done []field
	cur  []field // the open field, in all its alternatives
}

// expand gives the fields that a word becomes. Every part is evaluated once,
// whatever number of fields it gives.
func (s *shell) expand(w *syntax.Word, index int) []field { return s.appendFields(nil, w, index) }

// appendFields is expand that adds to a list.
func (s *shell) appendFields(to []field, w *syntax.Word, index int) []field {
	s.r.step(1)
	at := s.span(w)
	if len(w.Parts) == 1 {
		if l, ok := w.Parts[0].(*syntax.Lit); ok && !strings.ContainsAny(l.Value, "\\{~*?[") {
			return append(to, field{text: l.Value, kept: true, word: index, at: at})
		}
	}
	if n := braces(w); n > MaxBraces {
		panic(stop{"braces"})
	} else if n > 0 {
		c := *w
		c.Parts = append([]syntax.WordPart(nil), w.Parts...)
		syntax.SplitBraces(&c)
		w = &c
	}
	b := &builder{cur: []field{{}}}
	s.parts(b, w.Parts, true)
	for _, f := range append(b.done, b.cur...) {
		if f.text == "" && !f.kept {
			continue
		}
		f.word, f.at = index, at
		to = append(to, f)
	}
	return to
}

// braces counts the braces that a word may expand.
func braces(w *syntax.Word) int {
	n := 0
	for _, p := range w.Parts {
		if l, ok := p.(*syntax.Lit); ok {
			n += strings.Count(l.Value, "{")
		}
	}
	return n
}

// one gives the value of a word that is not split: an assignment, a redirect
// target, a here-document.
func (s *shell) one(w *syntax.Word) field {
	if w == nil {
		return field{kept: true}
	}
	s.r.step(1)
	b := &builder{cur: []field{{}}}
	s.parts(b, w.Parts, false)
	f := b.cur[0]
	f.at = s.span(w)
	if len(b.cur) > 1 {
		f.text = hole
	}
	return f
}

// add joins alternatives to the open field.
func (s *shell) add(b *builder, alts ...field) {
	if len(b.cur) == 1 && len(alts) == 1 {
		c, a := &b.cur[0], alts[0]
		if len(c.text)+len(a.text) > MaxValue {
			c.text = hole
		} else {
			s.r.bytes(len(a.text))
			c.text += a.text
		}
		c.glob, c.kept, c.alt, c.from = c.glob || a.glob, c.kept || a.kept, c.alt || a.alt, c.from|a.from
		if a.body != nil {
			c.body = a.body
		}
		return
	}
	if len(b.cur)*len(alts)+len(b.done) > MaxFields {
		panic(stop{"words"})
	}
	next := make([]field, 0, len(b.cur)*len(alts))
	for _, c := range b.cur {
		for _, a := range alts {
			n := c
			s.r.bytes(len(c.text) + len(a.text))
			if len(c.text)+len(a.text) > MaxValue {
				n.text = hole
			} else {
				n.text += a.text
			}
			n.glob, n.kept, n.alt, n.from = c.glob || a.glob, c.kept || a.kept, c.alt || a.alt, c.from|a.from
			next = append(next, n)
		}
	}
	b.cur = next
}

// list closes the open field between the elements of l.
func (s *shell) list(b *builder, l []field) {
	for i, f := range l {
		if i > 0 {
			b.done = append(b.done, b.cur...)
			b.cur = []field{{}}
			if len(b.done) > MaxFields {
				panic(stop{"words"})
			}
		}
		s.add(b, f)
	}
}

// parts evaluates the parts of a word outside quotes.
func (s *shell) parts(b *builder, parts []syntax.WordPart, split bool) {
	for i, p := range parts {
		s.r.step(1)
		switch p := p.(type) {
		case *syntax.Lit:
			v := p.Value
			if i == 0 && len(v) > 0 && v[0] == '~' {
				name, rest, slash := strings.Cut(v, "/")
				if strings.IndexByte(name, '\\') < 0 {
					s.add(b, field{text: s.r.d.places.tilde(name), kept: true})
					v = rest
					if slash {
						v = "/" + rest
					}
				}
			}
			t, glob := unescape(v)
			s.add(b, field{text: t, glob: glob && split, kept: t != ""})
		case *syntax.SglQuoted:
			t := p.Value
			if p.Dollar {
				t = ansiC(t)
			}
			s.add(b, field{text: t, kept: true})
		case *syntax.DblQuoted:
			s.add(b, field{kept: true})
			s.quoted(b, p.Parts, split)
		case *syntax.BraceExp:
			s.add(b, s.brace(p)...)
		case *syntax.ExtGlob:
			s.add(b, field{text: "*", glob: true, kept: true})
		case *syntax.ProcSubst:
			st := s.procSubst(p)
			s.add(b, field{text: "/dev/fd/" + hole, kept: true, from: st.from, body: &st})
		default:
			s.dynamic(b, p, split)
		}
	}
}

// quoted evaluates the parts inside double quotes.
func (s *shell) quoted(b *builder, parts []syntax.WordPart, split bool) {
	for _, p := range parts {
		s.r.step(1)
		if l, ok := p.(*syntax.Lit); ok {
			s.add(b, field{text: unescapeQuoted(l.Value), kept: true})
			continue
		}
		vals, list := s.eval(p)
		if list && split {
			s.list(b, vals)
			continue
		}
		s.add(b, joined(vals, list)...)
	}
}

// joined makes an array one value, and leaves alternatives as they are.
func joined(vals []field, list bool) []field {
	if !list || len(vals) == 0 {
		if len(vals) == 0 {
			return []field{{}}
		}
		return vals
	}
	f := vals[0]
	for _, v := range vals[1:] {
		f.text += " " + v.text
		f.from |= v.from
	}
	return []field{f}
}

// dynamic evaluates an expansion outside quotes, with word splitting.
func (s *shell) dynamic(b *builder, p syntax.WordPart, split bool) {
	vals, list := s.eval(p)
	if !split {
		s.add(b, joined(vals, list)...)
		return
	}
	if list {
		s.list(b, vals)
		return
	}
	if len(vals) != 1 {
		s.add(b, vals...)
		return
	}
	v := vals[0]
	t := v.text
	if !strings.ContainsAny(t, " \t\n") {
		v.glob = strings.ContainsAny(t, "*?[")
		v.kept = t != ""
		s.add(b, v)
		return
	}
	words := strings.Fields(t)
	s.r.step(len(words))
	if len(words) > MaxFields {
		panic(stop{"words"})
	}
	lead := strings.IndexByte(" \t\n", t[0]) >= 0
	trail := strings.IndexByte(" \t\n", t[len(t)-1]) >= 0
	var l []field
	if lead {
		l = append(l, field{})
	}
	for _, w := range words {
		l = append(l, field{text: w, kept: true, glob: strings.ContainsAny(w, "*?["), from: v.from})
	}
	if trail {
		l = append(l, field{})
	}
	s.list(b, l)
}

// eval gives the values of an expansion. list says that they are elements
// beside each other and not alternatives.
func (s *shell) eval(p syntax.WordPart) (vals []field, list bool) {
	switch p := p.(type) {
	case *syntax.ParamExp:
		return s.param(p)
	case *syntax.CmdSubst:
		st := s.substitute(p)
		if st.known {
			return []field{{text: strings.TrimRight(st.text, "\n"), from: st.from}}, false
		}
		return s.unknown(st), false
	case *syntax.ArithmExp:
		s.arith(p.X)
		if w, ok := p.X.(*syntax.Word); ok {
			if _, err := strconv.Atoi(w.Lit()); err == nil {
				return []field{{text: w.Lit()}}, false
			}
		}
	case *syntax.SglQuoted:
		return []field{{text: p.Value}}, false
	case *syntax.DblQuoted:
		b := &builder{cur: []field{{}}}
		s.quoted(b, p.Parts, false)
		return b.cur, false
	case *syntax.ProcSubst:
		st := s.procSubst(p)
		return []field{{text: hole, from: st.from, body: &st}}, false
	}
	return []field{{text: hole}}, false
}

// unknown gives the fields that stand for an unknown output.
func (s *shell) unknown(st stream) []field {
	if len(st.items) > 0 && len(st.items) <= maxAlts {
		out := make([]field, len(st.items))
		for i, it := range st.items {
			out[i] = field{text: it, alt: true, from: st.from}
		}
		return out
	}
	return []field{{text: st.shown(), from: st.from}}
}

// assign sets a variable. In code that may be skipped, the former value stays
// possible.
func (s *shell) assign(a *syntax.Assign) {
	if a.Name == nil {
		if a.Value != nil {
			s.one(a.Value)
		}
		return
	}
	if a.Index != nil {
		s.arith(a.Index)
	}
	name := a.Name.Value
	old, had := s.vars.get(name)
	var v value
	switch {
	case a.Array != nil:
		v.list = true
		for i, e := range a.Array.Elems {
			if e.Index != nil {
				s.arith(e.Index)
			}
			if e.Value == nil {
				continue
			}
			for _, f := range s.expand(e.Value, i) {
				v.alts, v.from = append(v.alts, f.text), v.from|f.from
			}
		}
		if a.Append && had {
			v.alts = append(append([]string(nil), old.alts...), v.alts...)
		}
	case a.Naked:
		return
	default:
		f := s.one(a.Value)
		v = value{alts: []string{f.text}, from: f.from}
		switch {
		case a.Index != nil:
			v.list = true
			if had {
				v.alts = append(append([]string(nil), old.alts...), v.alts...)
			}
		case a.Append && had && len(old.alts) == 1 && len(old.alts[0])+len(f.text) < MaxValue:
			v.alts[0] = old.alts[0] + f.text
			v.from |= old.from
			s.r.bytes(len(v.alts[0]))
		case a.Append:
			v.alts[0] = hole
		case s.maybe > 0 && had && !old.list && len(old.alts) < maxAlts && (len(old.alts) != 1 || old.alts[0] != f.text):
			v.alts = append(append([]string(nil), old.alts...), f.text)
			v.from |= old.from
		}
	}
	s.r.step(1 + len(v.alts))
	s.vars.set(name, v)
	s.ownVariable(name, v.alts, s.span(a))
}

// brace gives the values of a brace expansion.
func (s *shell) brace(p *syntax.BraceExp) []field {
	if p.Sequence {
		return s.sequence(p)
	}
	var out []field
	for _, e := range p.Elems {
		b := &builder{cur: []field{{}}}
		s.parts(b, e.Parts, true)
		out = append(append(out, b.done...), b.cur...)
		if len(out) > MaxFields {
			panic(stop{"words"})
		}
	}
	return out
}

func (s *shell) sequence(p *syntax.BraceExp) []field {
	lo, hi := p.Elems[0].Lit(), p.Elems[1].Lit()
	a, errA := strconv.Atoi(lo)
	z, errZ := strconv.Atoi(hi)
	char := false
	if errA != nil || errZ != nil {
		if len(lo) != 1 || len(hi) != 1 {
			return []field{{text: hole, kept: true}}
		}
		a, z, char = int(lo[0]), int(hi[0]), true
	}
	step := 1
	if len(p.Elems) > 2 {
		if n, err := strconv.Atoi(p.Elems[2].Lit()); err == nil && n != 0 {
			step = max(n, -n)
		}
	}
	if d := max(a-z, z-a) / step; d > 128 || d < 0 {
		return []field{{text: hole, kept: true}}
	}
	var out []field
	for i := a; ; {
		t := strconv.Itoa(i)
		if char {
			t = string(rune(i))
		}
		out = append(out, field{text: t, kept: true})
		if a <= z {
			i += step
		} else {
			i -= step
		}
		if a <= z && i > z || a > z && i < z {
			break
		}
	}
	s.r.step(len(out))
	return out
}

// unescape removes backslashes outside quotes and says whether pattern
// characters stand without one.
func unescape(v string) (string, bool) {
	if strings.IndexByte(v, '\\') < 0 {
		return v, strings.ContainsAny(v, "*?[")
	}
	var b strings.Builder
	glob := false
	for i := 0; i < len(v); i++ {
		c := v[i]
		if c == '\\' && i+1 < len(v) {
			i++
			if v[i] != '\n' {
				b.WriteByte(v[i])
			}
			continue
		}
		glob = glob || c == '*' || c == '?' || c == '['
		b.WriteByte(c)
	}
	return b.String(), glob
}

// unescapeQuoted removes the backslashes that double quotes heed.
func unescapeQuoted(v string) string {
	if strings.IndexByte(v, '\\') < 0 {
		return v
	}
	var b strings.Builder
	for i := 0; i < len(v); i++ {
		if v[i] == '\\' && i+1 < len(v) {
			switch v[i+1] {
			case '$', '`', '"', '\\':
				i++
			case '\n':
				i++
				continue
			}
		}
		b.WriteByte(v[i])
	}
	return b.String()
}

// ansiC decodes the escapes of $'...' and of echo -e and printf.
func ansiC(v string) string {
	if strings.IndexByte(v, '\\') < 0 {
		return v
	}
	var b strings.Builder
	for i := 0; i < len(v); i++ {
		if v[i] != '\\' || i+1 == len(v) {
			b.WriteByte(v[i])
			continue
		}
		i++
		switch c := v[i]; c {
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'r':
			b.WriteByte('\r')
		case 'a', 'b', 'f', 'v':
			b.WriteByte(' ')
		case 'e', 'E':
			b.WriteByte(0x1b)
		case 'x':
			i += number(&b, v[i+1:], 16, 2)
		case 'u':
			i += number(&b, v[i+1:], 16, 4)
		case 'U':
			i += number(&b, v[i+1:], 16, 8)
		case '0', '1', '2', '3', '4', '5', '6', '7':
			most := 3
			if c == '0' {
				most = 4
			}
			i += number(&b, v[i:], 8, most) - 1
		case 'c':
			if i+1 < len(v) {
				i++
				b.WriteByte(v[i] & 0x1f)
			}
		case '\\', '\'', '"', '?':
			b.WriteByte(c)
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return strings.ReplaceAll(b.String(), "\x00", "")
}

// number writes the character whose code stands at the start of v and says how
// many bytes the code took.
func number(b *strings.Builder, v string, base, most int) int {
	n := 0
	for n < len(v) && n < most && digit(v[n]) < base {
		n++
	}
	c, err := strconv.ParseUint(v[:n], base, 32)
	switch {
	case err != nil:
	case c < utf8.RuneSelf || most > 2 && base == 16:
		b.WriteRune(rune(c))
	default:
		b.WriteByte(byte(c))
	}
	return n
}

func digit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return 99
}
