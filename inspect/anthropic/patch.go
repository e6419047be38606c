package anthropic

import (
	"bytes"

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

// extend puts a piece of raw text behind what a string says; a member that is
// no string becomes one.
func (p *patch) extend(key string, piece []byte) {
	if len(piece) == 0 {
		return
	}
	value := []byte{'"'}
	if at := rawjson.Get(p.b, p.obj, key); rawjson.IsString(p.b, at) {
		value = append(value, p.b[at.From+1:at.To-1]...)
	}
	p.set(key, append(append(value, piece...), '"'))
}

// append adds the document with the changes made.
func (p *patch) append(dst []byte) []byte {
	if len(p.added) > 0 {
		if rawjson.Nested(p.b, p.obj) {
			p.added = append([]byte{','}, p.added...)
		}
		p.edits = append(p.edits, rawjson.Insert(rawjson.Skip(p.b, p.obj.From)-1, p.added))
	}
	return rawjson.Apply(dst, p.b, p.edits)
}

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
