package inspecttest

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Reading is a way in which a client may take JSON that is not strict.
type Reading int

// The readings. All of them take control characters and bad UTF-8 in strings,
// ignore what stands behind the first document, and unescape keys.
const (
	FirstKey Reading = iota // of two equal keys the first counts
	LastKey                 // of two equal keys the last counts
	FoldKeys                // keys are compared by their folded form, the last counts; keys come out in lower case
)

// Readings are all of them.
var Readings = []Reading{FirstKey, LastKey, FoldKeys}

// Parse reads the document at the start of b as a careless client would. It
// gives map[string]any, []any, string, bool, nil, and numbers as their text in
// a Number. It fails only where no value can be made out.
func Parse(b []byte, r Reading) (any, bool) {
	p := parser{b: b, r: r}
	v := p.value(0)
	return v, !p.bad
}

// Number is a number as it is written.
type Number string

// Written gives what Parse gave in one form.
func Written(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var all []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			all = append(all, strconv.Quote(k)+":"+Written(v[k]))
		}
		return "{" + strings.Join(all, ",") + "}"
	case []any:
		var all []string
		for _, e := range v {
			all = append(all, Written(e))
		}
		return "[" + strings.Join(all, ",") + "]"
	case string:
		return strconv.Quote(v)
	}
	return fmt.Sprint(v)
}

type parser struct {
	b   []byte
	i   int
	r   Reading
	bad bool
}

func (p *parser) fail() any {
	p.bad = true
	return nil
}

func (p *parser) peek() byte {
	for p.i < len(p.b) && strings.IndexByte(" \t\r\n", p.b[p.i]) >= 0 {
		p.i++
	}
	if p.i >= len(p.b) {
		return 0
	}
	return p.b[p.i]
}

func (p *parser) value(depth int) any {
	if depth > 10_000 {
		return p.fail()
	}
	switch c := p.peek(); {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"':
		return p.str()
	case c == '-', '0' <= c && c <= '9':
		from := p.i
		for p.i < len(p.b) && strings.IndexByte("+-.eE0123456789", p.b[p.i]) >= 0 {
			p.i++
		}
		return Number(p.b[from:p.i])
	}
	for word, v := range map[string]any{"true": true, "false": false, "null": nil} {
		if bytes.HasPrefix(p.b[p.i:], []byte(word)) {
			p.i += len(word)
			return v
		}
	}
	return p.fail()
}

func (p *parser) object(depth int) any {
	m := map[string]any{}
	p.i++
	for !p.bad {
		switch p.peek() {
		case '}':
			p.i++
			return m
		case ',':
			p.i++
		case '"':
			k := p.str()
			if p.peek() != ':' {
				return p.fail()
			}
			p.i++
			v := p.value(depth + 1)
			if p.bad {
				return nil
			}
			if p.r == FoldKeys {
				k = foldKey(k)
			}
			if _, twice := m[k]; !twice || p.r != FirstKey {
				m[k] = v
			}
		default:
			return p.fail()
		}
	}
	return nil
}

// foldKey lowers a key as clients that ignore case do: the long s and the
// Kelvin sign fold to letters of ASCII.
func foldKey(k string) string {
	return strings.NewReplacer("\u017f", "s", "\u212a", "k").Replace(strings.ToLower(k))
}

func (p *parser) array(depth int) any {
	a := []any{}
	p.i++
	for !p.bad {
		switch p.peek() {
		case ']':
			p.i++
			return a
		case ',':
			p.i++
		default:
			if v := p.value(depth + 1); !p.bad {
				a = append(a, v)
			}
		}
	}
	return nil
}

func (p *parser) str() string {
	p.i++
	var out []byte
	for p.i < len(p.b) {
		c := p.b[p.i]
		p.i++
		switch c {
		case '"':
			return string(out)
		case '\\':
			out = p.escape(out)
		default:
			out = append(out, c)
		}
	}
	p.bad = true
	return ""
}

func (p *parser) escape(out []byte) []byte {
	if p.i >= len(p.b) {
		p.bad = true
		return out
	}
	c := p.b[p.i]
	p.i++
	if c == 'u' {
		r, ok := p.hex()
		if !ok {
			p.bad = true
			return out
		}
		if utf16.IsSurrogate(r) && bytes.HasPrefix(p.b[p.i:], []byte(`\u`)) {
			back := p.i
			p.i += 2
			if low, ok := p.hex(); ok && utf16.DecodeRune(r, low) != utf8.RuneError {
				return utf8.AppendRune(out, utf16.DecodeRune(r, low))
			}
			p.i = back
		}
		return utf8.AppendRune(out, r)
	}
	if i := strings.IndexByte(`bfnrt`, c); i >= 0 {
		return append(out, "\b\f\n\r\t"[i])
	}
	return append(out, c)
}

func (p *parser) hex() (rune, bool) {
	if p.i+4 > len(p.b) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(p.b[p.i:p.i+4]), 16, 32)
	p.i += 4
	return rune(n), err == nil
}

// Documents gives every JSON document that some client could make out in an
// answer's bytes: the whole of it, each line of it, the data of its server-sent
// events as all kinds of readers take it, and what stands in the lines of a
// stream that are no data.
func Documents(body []byte, r Reading) []any {
	var docs []any
	add := func(b []byte) {
		if v, ok := Parse(b, r); ok {
			docs = append(docs, v)
		}
	}
	add(body)
	for line := range bytes.Lines(body) {
		add(bytes.TrimSpace(line))
	}
	for _, line := range splitLines(body) {
		if i := strings.IndexByte(line, '{'); i >= 0 && noData.MatchString(line) {
			add([]byte(line[i:]))
		}
	}
	for _, stream := range Streams(body) {
		for _, data := range stream {
			add(data)
		}
	}
	return docs
}

// noData are the fields of a stream that are not its data.
var noData = regexp.MustCompile(`^(|id|event|retry):`)

// splitLines splits a text as Python's str.splitlines does.
func splitLines(b []byte) []string {
	return strings.Split(lineBreaks.Replace(string(b)), "\n")
}

var lineBreaks = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\v", "\n", "\f", "\n", "\x1c", "\n", "\x1d", "\n", "\x1e", "\n",
	"\u0085", "\n", "\u2028", "\n", "\u2029", "\n")

// Streams gives the data of an answer's server-sent events as readers of lines
// take it, as readers of the standard do, and as readers of lines do that break
// them like Python's str.splitlines.
func Streams(body []byte) [3][][]byte {
	var byLine, byEvent, byText [][]byte
	for _, line := range splitLines(body) {
		if data, ok := strings.CutPrefix(strings.TrimSpace(line), "data:"); ok {
			byText = append(byText, []byte(strings.TrimSpace(data)))
		}
	}
	for line := range bytes.Lines(body) {
		if data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data:")); ok {
			byLine = append(byLine, bytes.TrimSpace(data))
		}
	}
	text := bytes.ReplaceAll(bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
	blocks := bytes.Split(text, []byte("\n\n"))
	for _, block := range blocks[:len(blocks)-1] { // the standard drops what no blank line ends
		var data [][]byte
		for line := range bytes.SplitSeq(block, []byte("\n")) {
			if d, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				data = append(data, bytes.TrimPrefix(d, []byte(" ")))
			}
		}
		if len(data) > 0 {
			byEvent = append(byEvent, bytes.Join(data, []byte("\n")))
		}
	}
	return [3][][]byte{byLine, byEvent, byText}
}
