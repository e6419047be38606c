package anthropic

import (
	"slices"

	"callgate/inspect"
	"callgate/inspect/rawjson"
)

// saidNothing is what an agent reads of a turn of which it would see nothing:
// some agents ask again on an empty answer, some fail, and none says why.
const saidNothing = "[callgate] A call was refused, and the model said nothing more."

// withAnswer puts words into a last round that has none: an answer must stand
// between refusals and what the user says next.
func withAnswer(r inspect.Round) inspect.Round {
	if len(r.Message) == 0 {
		r.Message = ownMessage(saidNothing)
	}
	return r
}

// ownMessage gives a message of a history that holds a text of ours.
func ownMessage(text string) []byte {
	return append(appendTextObject([]byte(`{"role":"assistant","content":[`), text), "]}"...)
}

// unhushed reports whether a call is refused in words.
func unhushed(c *call) bool { return !c.silent }

// closes reports whether a later round was the last one, and has ended well.
func (t *stream) closes() bool {
	return t.rounds > 1 && t.ended && t.end == inspect.EndClean && !t.suspended && !t.waiting() && t.said() && completes(t.finish)
}

// sayNothing is for a turn that ends well and would show nothing.
func (t *stream) sayNothing() {
	if t.closes() && !t.anyShown() && !t.speaks() && !slices.ContainsFunc(t.calls[t.first:], unhushed) {
		t.texts = append(t.texts, saidNothing)
	}
}

// speaks reports whether the turn shows words. Those of a keep-alive are none:
// they promise that something follows.
func (t *stream) speaks() bool {
	counts := func(text string) bool { return text != notice && text != working }
	return t.past.speaks || len(t.texts) > 0 || t.heard.speaks() || slices.ContainsFunc(t.past.notices, counts) ||
		slices.ContainsFunc(t.heard.ours, func(a aside) bool { return counts(a.text) })
}

// schemed reports whether the answer is to follow a schema and has a text: a
// further round would make two of it.
func (t *stream) schemed() bool {
	return t.structured && (t.past.speaks || t.heard.speaks() || slices.ContainsFunc(t.calls, unhushed))
}

// speaks reports whether the provider has said a text of more than white space.
func (h *heard) speaks() bool {
	from := 0
	for _, p := range h.parts {
		text := h.said[from:p.to]
		from = p.to
		switch {
		case p.block.kind != textBlock:
		case p.what == sayText:
			if b := quoted(text); !blank(b, rawjson.All(b)) {
				return true
			}
		case p.what == sayStart && !blank(text, rawjson.Get(text, rawjson.All(text), "text")):
			return true
		}
	}
	return false
}

// schemed reports whether the answer is to follow a schema and has a text.
func (d *document) schemed() bool {
	if !d.structured {
		return false
	}
	own := slices.ContainsFunc(d.blocks(), func(b saidBlock) bool { return b.call == nil && saysText(b.raw) })
	return own || d.speaks(d.content) || slices.ContainsFunc(d.calls[d.ledger.first:], unhushed)
}

// speaks reports whether there is a text of more than white space in blocks
// that stand between brackets.
func (d *document) speaks(blocks []byte) bool {
	list := append(append([]byte{'['}, blocks...), ']')
	for w := rawjson.Open(list, rawjson.All(list)); w.Next(); {
		if saysText(w.Val.In(list)) {
			return true
		}
	}
	return false
}

// saysText reports whether a block is a text of more than white space.
func saysText(raw []byte) bool {
	root := rawjson.All(raw)
	return rawjson.Text(raw, rawjson.Get(raw, root, "type")) == "text" && !blank(raw, rawjson.Get(raw, root, "text"))
}

// sayNothing is for a document that ends well and would show nothing.
func (d *document) sayNothing() {
	if d.rounds == 1 || d.spoiled || d.broke || !completes(d.finish) {
		return
	}
	d.closed = true
	if !d.anyShown() && !d.speaks(d.appendRound(slices.Clone(d.content))) {
		d.mute = true
		d.ours = append(d.ours, saidNothing)
	}
}
