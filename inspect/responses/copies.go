package responses

import (
	"bytes"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
)

// piece is a text that a stream gives in pieces and once more as a whole: the
// arguments of a call, or one of its commands.
type piece struct {
	index  int
	came   bool // in pieces
	deltas []byte
	whole  []byte // nil while it has not come
}

// part gives the piece with an index. Pieces come one behind the other.
func (c *call) part(index int) *piece {
	for i := len(c.pieces) - 1; i >= 0; i-- {
		if c.pieces[i].index == index {
			return c.pieces[i]
		}
	}
	if len(c.pieces) == maxPieces {
		return c.pieces[maxPieces-1] // which makes them differ
	}
	p := &piece{index: index}
	c.pieces = append(c.pieces, p)
	return p
}

// maxPieces is how many commands of one call may come in pieces.
const maxPieces = 64

// contradicted says which of the things said of a call before its item was done
// is another than the item says, "" when none is.
func (c *call) contradicted(b []byte, at rawjson.Span, lim *inspect.Limits) string {
	start := rawjson.All(c.start)
	said := rawjson.Get(c.start, start, argMember(b, at, c.kind))
	if len(c.start) > 0 && !begins(c.start, said, b, rawjson.Get(b, at, argMember(b, at, c.kind))) {
		return "its arguments start as others than they end"
	}
	for _, key := range argMembers {
		if v := rawjson.Get(c.start, start, key); key != argMember(b, at, c.kind) && !rawjson.Null(c.start, v) && !begins(c.start, v, b, rawjson.Get(b, at, key)) {
			return "its item starts with the member " + key + " and ends with another"
		}
	}
	for _, p := range c.pieces {
		text, ok := c.textAt(b, at, p.index)
		switch {
		case !ok, p.came && !bytes.Equal(p.deltas, text), p.whole != nil && !bytes.Equal(p.whole, text):
			return "the pieces of its arguments say something else than its item"
		case p.came && len(text) > 0 && c.kind.form != asValue && rawjson.IsString(c.start, said) && said.Len() > len(`""`):
			return "its arguments stand in its start and in pieces"
		}
	}
	return ""
}

// textAt gives the text of a whole item that pieces with an index are of.
func (c *call) textAt(b []byte, at rawjson.Span, index int) ([]byte, bool) {
	v := rawjson.Get(b, at, c.kind.args)
	switch c.kind.output {
	case "shell_call_output":
		list := spansOf(b, rawjson.Get(b, v, "commands"))
		if index >= len(list) {
			return nil, false
		}
		v = list[index]
	case "apply_patch_call_output":
		v = rawjson.Get(b, v, "diff")
	}
	if rawjson.Null(b, v) {
		return nil, true
	}
	if !rawjson.IsString(b, v) {
		return nil, false
	}
	return strictjson.AppendString([]byte{}, v.In(b)), true
}

// begins reports whether a value that was given early says nothing that the
// later one does not: texts and lists may still be empty, and members missing.
func begins(a []byte, early rawjson.Span, b []byte, late rawjson.Span) bool {
	if rawjson.Null(a, early) {
		return true
	}
	switch {
	case rawjson.IsString(a, early):
		return early.Len() == len(`""`) || rawjson.IsString(b, late) && rawjson.Text(a, early) == rawjson.Text(b, late)
	case rawjson.IsArray(a, early):
		if !rawjson.Nested(a, early) {
			return true
		}
		was, is := spansOf(a, early), spansOf(b, late)
		if !rawjson.IsArray(b, late) || len(was) > len(is) {
			return false
		}
		for i := range was {
			if !begins(a, was[i], b, is[i]) {
				return false
			}
		}
		return true
	case rawjson.IsObject(a, early):
		if !rawjson.Nested(a, early) {
			return true
		}
		if !rawjson.IsObject(b, late) {
			return false
		}
		for w := rawjson.Open(a, early); w.Next(); {
			if !begins(a, w.Val, b, rawjson.Get(b, late, rawjson.KeyText(a, w.Key))) {
				return false
			}
		}
		return true
	}
	return bytes.Equal(early.In(a), late.In(b))
}
