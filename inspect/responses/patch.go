package responses

import (
	"bytes"
	"strings"

	"github.com/tidwall/gjson"

	"callgate/inspect/rawjson"
)

// patch changes members of one object and keeps all its others as they are.
type patch struct {
	b     []byte
	obj   rawjson.Span
	edits []rawjson.Edit
	added []byte
}

// set gives a member its value, a JSON text.
func (p *patch) set(key string, value []byte) {
	if at := rawjson.Get(p.b, p.obj, key); at.There() {
		p.edits = append(p.edits, rawjson.Edit{At: at, Text: value})
		return
	}
	if len(p.added) > 0 {
		p.added = append(p.added, ',')
	}
	p.added = append(append(append(append(p.added, '"'), key...), `":`...), value...)
}

// all gives the changes.
func (p *patch) all() []rawjson.Edit {
	if len(p.added) > 0 {
		if rawjson.Nested(p.b, p.obj) {
			p.added = append([]byte{','}, p.added...)
		}
		p.edits = append(p.edits, rawjson.Insert(rawjson.Skip(p.b, p.obj.From)-1, p.added))
		p.added = nil
	}
	return p.edits
}

// append adds the document with the changes made.
func (p *patch) append(dst []byte) []byte { return rawjson.Apply(dst, p.b, p.all()) }

// without gives an object without one of its members.
func without(raw []byte, key string) []byte {
	at := rawjson.Get(raw, rawjson.All(raw), key)
	if !at.There() {
		return raw
	}
	edits, _ := rawjson.Cut(raw, rawjson.All(raw), func(item rawjson.Span) bool { return at.Within(item) })
	return rawjson.Apply(nil, raw, edits)
}

// appendString adds a text as a JSON string.
func appendString(dst []byte, text string) []byte { return gjson.AppendJSONString(dst, text) }

// paired gives a JSON text in which no half of a surrogate pair stands alone:
// providers take none in a request.
func paired(raw []byte) []byte {
	if !bytes.Contains(raw, []byte(`\u`)) {
		return raw
	}
	var out []byte
	from := 0
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			i++
			continue
		}
		n := escapeLen(raw[i:])
		if n == 6 && (half(raw[i:], "89abAB") || half(raw[i:], "cdefCDEF")) {
			out = append(append(out, raw[from:i]...), `\ufffd`...)
			from = i + n
		}
		i += n
	}
	if from == 0 {
		return raw
	}
	return append(out, raw[from:]...)
}

// escapeLen is the length of the escape that b starts with; both halves of a
// surrogate pair are one.
func escapeLen(b []byte) int {
	if len(b) < 6 || b[1] != 'u' {
		return 2
	}
	if half(b, "89abAB") && len(b) >= 12 && b[6] == '\\' && b[7] == 'u' && half(b[6:], "cdefCDEF") {
		return 12
	}
	return 6
}

// half reports whether an escape is a surrogate whose second digit is one of
// those.
func half(b []byte, second string) bool {
	return (b[2] == 'd' || b[2] == 'D') && strings.IndexByte(second, b[3]) >= 0
}

// nothing reports whether a text says nothing.
func nothing(text string) bool { return strings.TrimSpace(text) == "" }
