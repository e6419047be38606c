package openaichat

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"callgate/inspect/rawjson"
)

// passage is a text in an answer, with the parts of it that are to go.
type passage struct {
	message int
	at      rawjson.Span // the string
	item    rawjson.Span // the part of a content that it is in, if it is in one
	text    string       // what it stands for
	cuts    []run        // parts of the text, apart from each other
}

// find looks for notices in a unit. Each is taken once, where it stands first,
// longer ones before those that may be a part of them: what somebody else has
// written in the words of a notice stays.
func (e *editor) find(at run, notices []string) (all []passage) {
	if len(notices) == 0 {
		return nil
	}
	for j := at.from; j < at.to; j++ {
		content := e.messages[j].content
		if rawjson.IsString(e.b, content) {
			all = append(all, passage{message: j, at: content, text: rawjson.Text(e.b, content)})
			continue
		}
		if !rawjson.IsArray(e.b, content) {
			continue
		}
		for w := rawjson.Open(e.b, content); w.Next(); {
			if p := readPart(e.b, w.Val); p.text.There() {
				all = append(all, passage{message: j, at: p.text, item: w.Item, text: rawjson.Text(e.b, p.text)})
			}
		}
	}
	notices = slices.Clone(notices)
	slices.SortStableFunc(notices, func(x, y string) int { return cmp.Compare(len(y), len(x)) })
	for _, n := range notices {
		for i := range all {
			if n == "" || all[i].take(n) {
				break
			}
		}
	}
	return all
}

// take notes the first place of a notice that is not taken yet.
func (p *passage) take(notice string) bool {
	for from := 0; ; {
		i := strings.Index(p.text[from:], notice)
		if i < 0 {
			return false
		}
		cut := run{from + i, from + i + len(notice)}
		n := slices.IndexFunc(p.cuts, func(c run) bool { return cut.from < c.to && c.from < cut.to })
		if n < 0 {
			p.cuts = append(p.cuts, cut)
			return true
		}
		from = p.cuts[n].to
	}
}

// blank reports whether nothing but white space is left.
func (p *passage) blank() bool {
	at := 0
	for _, c := range p.cuts {
		if strings.TrimSpace(p.text[at:c.from]) != "" {
			return false
		}
		at = c.to
	}
	return strings.TrimSpace(p.text[at:]) == ""
}

// edits takes the cuts out of the string as it is written.
func (p *passage) edits(b []byte) (edits []rawjson.Edit) {
	raw := p.at.In(b)
	at, pos := 1, 0 // in what is written and in what it stands for
	reach := func(to int) bool {
		for pos < to && at < len(raw)-1 {
			n, width := letter(raw[at : len(raw)-1])
			at, pos = at+n, pos+width
		}
		return pos == to
	}
	for _, c := range p.cuts {
		if !reach(c.from) {
			return edits
		}
		from := at
		if !reach(c.to) {
			return edits
		}
		edits = append(edits, rawjson.Edit{At: rawjson.Span{From: p.at.From + from, To: p.at.From + at}})
	}
	return edits
}

// letter gives the length of the escape or the byte that a string goes on with,
// and of what it stands for.
func letter(raw []byte) (n, width int) {
	if raw[0] != '\\' || len(raw) < 2 {
		return 1, 1
	}
	if raw[1] != 'u' {
		return 2, 1
	}
	r := escaped(raw)
	if utf16.IsSurrogate(r) {
		if len(raw) > 7 && utf16.DecodeRune(r, escaped(raw[6:])) != utf8.RuneError {
			return 12, utf8.UTFMax
		}
		r = utf8.RuneError
	}
	return 6, utf8.RuneLen(r)
}

// escaped reads an escape of four hex digits.
func escaped(raw []byte) rune {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return utf8.RuneError
	}
	n, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	if err != nil {
		return utf8.RuneError
	}
	return rune(n)
}

// strip gives the edits that take notices out of a message, and reports whether
// its content says anything without them. The passages are those of the message.
func (e *editor) strip(m *message, own []passage) (edits []rawjson.Edit, content bool) {
	var gone []rawjson.Span
	for i := range own {
		p := &own[i]
		if len(p.cuts) == 0 {
			continue
		}
		slices.SortFunc(p.cuts, func(x, y run) int { return cmp.Compare(x.from, y.from) })
		switch {
		case !p.blank():
			edits = append(edits, p.edits(e.b)...)
		case p.item.There():
			gone = append(gone, p.item)
		default:
			return []rawjson.Edit{{At: m.content, Text: []byte("null")}}, false
		}
	}
	if len(gone) > 0 {
		out, left := cut(e.b, m.content, gone)
		if left == 0 {
			return []rawjson.Edit{{At: m.content, Text: []byte("null")}}, false
		}
		edits = append(edits, out...)
	}
	return edits, spoken(e.b, m.content)
}
