package detect

import (
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"
)

// stream is what a command prints or reads.
type stream struct {
	text  string // with holes, when not known
	known bool   // text is all of it
	piped bool   // something is connected at all
	from  origin
	// items are what the lines of an unknown text look like: the paths that
	// find prints, for example.
	items []string
}

// shown gives the text, or a hole where there is none.
func (st stream) shown() string {
	if st.known || st.text != "" {
		return strings.TrimRight(st.text, "\n")
	}
	return hole
}

// stream makes a word the content of a stream.
func (f field) stream() stream {
	return stream{text: f.text, known: f.known(), from: f.from, piped: true}
}

// collector joins what several commands print, one after the other. The text is
// put together once, at the end.
type collector struct {
	parts   []string
	n       int
	unknown bool
	from    origin
	items   []string
}

func (c *collector) add(st stream) {
	c.from |= st.from
	if st.known && st.text == "" {
		return
	}
	if len(st.items) > 0 && len(c.items) <= maxAlts {
		c.items = append(c.items, st.items...)
	}
	c.unknown = c.unknown || !st.known
	t := st.text
	if t == "" {
		t = hole
	}
	c.parts = append(c.parts, t)
	c.n += len(t)
}

// stream gives the whole output.
func (c *collector) stream(s *shell) stream {
	out := stream{known: !c.unknown, from: c.from}
	if c.n > MaxValue {
		out.known = false
		return out
	}
	if len(c.items) > 0 {
		out.items = some(c.items)
	}
	s.r.bytes(c.n)
	switch {
	case len(c.parts) == 1 && c.parts[0] == hole:
	case len(c.parts) == 1:
		out.text = c.parts[0]
	default:
		out.text = strings.Join(c.parts, "")
	}
	return out
}

func some2(a, b []string) []string {
	if len(a)+len(b) == 0 {
		return nil
	}
	return some(append(append([]string(nil), a...), b...))
}

// either gives the output of one of two commands.
func either(a, b stream) stream {
	if a.text == "" && !a.known && a.from == 0 && a.items == nil {
		b.items = some2(b.items, known(b))
		b.known = false
		return b
	}
	out := stream{from: a.from | b.from}
	out.items = some2(append(append([]string(nil), a.items...), known(b)...), b.items)
	return out
}

func known(a stream) []string {
	if a.known && a.text != "" && len(a.text) < 1024 {
		return []string{strings.TrimRight(a.text, "\n")}
	}
	return nil
}

// lines gives what one line of st can be, for read and xargs.
func (st stream) lines() []string {
	switch {
	case st.known:
		return strings.FieldsFunc(st.text, func(r rune) bool { return r == '\n' })
	case len(st.items) > 0:
		return st.items
	}
	return []string{hole}
}

// output models what a program prints, where that can be known. Everything
// else prints something unknown that comes from where its input does.
func (s *shell) output(c *cmd) stream {
	st := c.in
	unknown := stream{from: st.from | c.argsFrom() | fromCode}
	if p, ok := s.r.d.programs[c.name]; ok && p.out != nil {
		return p.out(s, c)
	}
	return unknown
}

func (c *cmd) argsFrom() origin {
	var o origin
	for _, a := range c.args {
		o |= a.from
	}
	return o
}

// outEcho models echo.
func outEcho(s *shell, c *cmd) stream {
	args := c.args
	escapes, newline := false, true
	for len(args) > 0 && len(args[0].text) > 1 && args[0].text[0] == '-' && strings.Trim(args[0].text[1:], "neE") == "" {
		escapes = escapes || strings.Contains(args[0].text, "e")
		newline = newline && !strings.Contains(args[0].text, "n")
		args = args[1:]
	}
	f := joinFields(s, args)
	if escapes {
		f.text = ansiC(f.text)
	}
	if newline {
		f.text += "\n"
	}
	st := f.stream()
	if alts := altTexts(args); alts != nil {
		st.items, st.known, st.text = alts, false, ""
	}
	return st
}

// altTexts gives the values of the one word of args that has several.
func altTexts(args []field) []string {
	if len(args) < 2 {
		return nil
	}
	var out []string
	for _, a := range args {
		if !a.alt || a.word != args[0].word {
			return nil
		}
		out = append(out, a.text)
	}
	return out
}

func joinFields(s *shell, args []field) field {
	var f field
	n := 0
	for _, a := range args {
		n += len(a.text) + 1
		f.from |= a.from
	}
	s.r.bytes(n)
	if n > MaxValue {
		f.text = hole
		return f
	}
	parts := make([]string, len(args))
	for i, a := range args {
		parts[i] = a.text
	}
	f.text = strings.Join(parts, " ")
	return f
}

// outPrintf models printf with %s, %b, %d and %%.
func outPrintf(s *shell, c *cmd) stream {
	args := c.args
	if len(args) > 0 && args[0].text == "--" {
		args = args[1:]
	}
	if len(args) > 1 && args[0].text == "-v" {
		name := args[1].text
		st := formatted(s, args[2:])
		s.vars.set(name, value{alts: []string{st.text}, from: st.from})
		return stream{known: true}
	}
	return formatted(s, args)
}

func formatted(s *shell, args []field) stream {
	if len(args) == 0 {
		return stream{known: true}
	}
	format, rest := ansiC(args[0].text), args[1:]
	from := args[0].from
	var b strings.Builder
	for {
		used := 0
		for i := 0; i < len(format); i++ {
			if format[i] != '%' || i+1 == len(format) {
				b.WriteByte(format[i])
				continue
			}
			i++
			flags := i
			for i < len(format) && strings.IndexByte("-+ #0123456789.", format[i]) >= 0 {
				i++
			}
			_, precision, cut := strings.Cut(format[flags:i], ".")
			if i == len(format) {
				break
			}
			if format[i] == '%' {
				b.WriteByte('%')
				continue
			}
			var v field
			if used < len(rest) {
				v = rest[used]
			}
			used++
			from |= v.from
			if n, _ := strconv.Atoi(precision); cut && n < len(v.text) {
				v.text = v.text[:n]
			}
			switch format[i] {
			case 'b':
				b.WriteString(ansiC(v.text))
			case 's', 'd', 'i', 'q', 'u':
				b.WriteString(v.text)
			default:
				b.WriteString(hole)
			}
		}
		s.r.bytes(len(format) + 64)
		if used == 0 || used >= len(rest) || b.Len() > MaxValue {
			break
		}
		rest = rest[used:]
	}
	if b.Len() > MaxValue {
		return stream{from: from}
	}
	f := field{text: b.String(), from: from}
	s.r.bytes(len(f.text))
	return f.stream()
}

// outCat models cat: its input, or the files that this call wrote.
func outCat(s *shell, c *cmd) stream {
	o := parseOptions(c.args, "", "", false)
	if len(o.operands) == 0 {
		return c.in
	}
	var out collector
	for _, f := range o.operands {
		st := c.in
		if f.text != "-" {
			st = s.fileStream(f)
		}
		out.add(st)
	}
	return out.stream(s)
}

// outThrough models a filter that passes on lines it does not change.
func outThrough(s *shell, c *cmd) stream {
	st := stream{from: c.in.from | c.argsFrom(), items: c.in.items}
	if st.items == nil && c.in.known {
		if l := c.in.lines(); len(l) > 0 && len(l) <= maxAlts {
			st.items = l
		}
	}
	return st
}

// outLines models ls and its like: names in a directory.
func outLines(s *shell, c *cmd) stream {
	o := parseOptions(c.args, "", "", false)
	items := make([]string, 0, len(o.operands))
	for _, f := range o.operands {
		items = append(items, f.text)
	}
	return stream{items: some2(items, nil), from: c.argsFrom()}
}

// outDecode models the decoders. A constant is decoded; anything else becomes
// text that nobody has read.
func outDecode(decode func(*cmd, string) (string, bool)) func(*shell, *cmd) stream {
	return func(s *shell, c *cmd) stream {
		in := c.in
		if o := operandsOf(c); len(o) > 0 {
			in = s.fileStream(o[0])
		}
		if in.known {
			if t, ok := decode(c, in.text); ok {
				s.r.bytes(len(t))
				st := stream{text: t, known: true, from: in.from | fromDecode}
				if !utf8.ValidString(t) || strings.Contains(t, hole) {
					st.known, st.text = false, ""
				}
				return st
			}
		}
		return stream{from: in.from | fromDecode}
	}
}

func operandsOf(c *cmd) []field { return parseOptions(c.args, "wk", "", false).operands }

func decodeBase64(c *cmd, t string) (string, bool) {
	o := parseOptions(c.args, "wio", "wrap input output", false)
	if !o.has("d", "D", "decode") {
		return base64.StdEncoding.EncodeToString([]byte(t)) + "\n", true
	}
	t = strings.Join(strings.Fields(t), "")
	b, err := base64.StdEncoding.DecodeString(t)
	if err != nil {
		b, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(t, "="))
	}
	return string(b), err == nil
}

func decodeHex(c *cmd, t string) (string, bool) {
	o := parseOptions(c.args, "clsg", "", false)
	if !o.has("r") || !o.has("p") {
		return "", false
	}
	b, err := hex.DecodeString(strings.Join(strings.Fields(t), ""))
	return string(b), err == nil
}

// outRev models rev.
func outRev(s *shell, c *cmd) stream {
	if !c.in.known {
		return stream{from: c.in.from | fromDecode}
	}
	var b strings.Builder
	for _, l := range strings.SplitAfter(c.in.text, "\n") {
		body, nl := strings.CutSuffix(l, "\n")
		ru := []rune(body)
		for i := len(ru) - 1; i >= 0; i-- {
			b.WriteRune(ru[i])
		}
		if nl {
			b.WriteByte('\n')
		}
	}
	s.r.bytes(b.Len())
	return stream{text: b.String(), known: true, from: c.in.from}
}

// outTr models tr with two plain sets or ranges, or -d with one.
func outTr(s *shell, c *cmd) stream {
	o := parseOptions(c.args, "", "", false)
	if !c.in.known || len(o.operands) == 0 {
		return outThrough(s, c)
	}
	a, ok := trSet(o.operands[0].text)
	s.r.bytes(len(c.in.text))
	switch {
	case ok && o.has("d", "delete") && !o.has("c", "complement") && len(o.operands) == 1:
		return stream{text: strings.Map(func(r rune) rune {
			if strings.ContainsRune(a, r) {
				return -1
			}
			return r
		}, c.in.text), known: true, from: c.in.from}
	case ok && len(o.flags) == 0 && len(o.operands) == 2:
		b, ok := trSet(o.operands[1].text)
		if !ok || b == "" {
			break
		}
		return stream{text: strings.Map(func(r rune) rune {
			i := strings.IndexRune(a, r)
			if i < 0 {
				return r
			}
			return rune(b[min(i, len(b)-1)])
		}, c.in.text), known: true, from: c.in.from}
	}
	return stream{from: c.in.from | fromCode}
}

// trSet writes out the ranges of a tr set. Classes are not worked out.
func trSet(t string) (string, bool) {
	t = ansiC(t)
	if strings.Contains(t, "[:") || strings.Contains(t, hole) || len(t) > 256 {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(t); i++ {
		if t[i] >= utf8.RuneSelf {
			return "", false
		}
		if i+2 < len(t) && t[i+1] == '-' && t[i] <= t[i+2] && t[i+2] < utf8.RuneSelf {
			for c := t[i]; c <= t[i+2]; c++ {
				b.WriteByte(c)
			}
			i += 2
			continue
		}
		b.WriteByte(t[i])
	}
	return b.String(), true
}
