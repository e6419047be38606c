package ollama

import (
	"bytes"
	"slices"
	"strconv"

	"callgate/inspect/rawjson"
)

// patch is what becomes of a document.
type patch struct {
	edits []rawjson.Edit
	says  saying // all that it says then, as it is written between quotes
	calls bool   // a call is left in it
}

// patch takes the withheld calls of a document out and puts words in: before its
// own what earlier ones said, behind them a text of ours.
func (t *turn) patch(b []byte, rd *reading, earlier saying, text string) (p patch) {
	own := saying{inner(b, rd.words), inner(b, rd.thinking)}
	if len(rd.mentions) == 0 && text == "" && !t.sep && len(earlier.words)+len(earlier.thinking) == 0 {
		return patch{says: own} // nearly all are like this
	}
	var gone []rawjson.Span // in their order
	for _, m := range rd.mentions {
		if !m.c.released {
			gone = append(gone, m.item)
			continue
		}
		p.calls = true
		p.edits = append(p.edits, t.callEdits(b, &m)...)
	}
	cut := func(item rawjson.Span) bool {
		_, found := slices.BinarySearchFunc(gone, item, byPlace)
		return found
	}
	slices.SortFunc(gone, byPlace)
	if len(gone) > 0 {
		if edits, left := rawjson.Cut(b, rd.list, cut); left > 0 {
			p.edits = append(p.edits, edits...)
		} else if len(edits) > 0 {
			gone = append(gone, rd.listItem)
			slices.SortFunc(gone, byPlace)
		}
		for _, holder := range rd.holders() {
			edits, _ := rawjson.Cut(b, holder, cut)
			p.edits = append(p.edits, edits...)
		}
		if rd.logprobs.There() {
			// The tokens of a withheld call may stand among them.
			p.edits = append(p.edits, rawjson.Edit{At: rd.logprobs, Text: []byte("null")})
		}
	}
	ours := t.ours(appendEscaped(nil, text))
	p.says = saying{
		joined(earlier.words, own.words, ours.words, t.spoke, t.sep),
		joined(earlier.thinking, own.thinking, ours.thinking, t.thought, false),
	}
	var fresh []byte // members that there were not
	set := func(key string, at rawjson.Span, was, is []byte) {
		value := slices.Concat([]byte{'"'}, is, []byte{'"'})
		switch {
		case bytes.Equal(was, is):
		case at.There():
			p.edits = append(p.edits, rawjson.Edit{At: at, Text: value})
		default:
			if len(fresh) > 0 {
				fresh = append(fresh, ',')
			}
			fresh = append(append(append(append(fresh, '"'), key...), `":`...), value...)
		}
	}
	set(t.shape.words, rd.words, own.words, p.says.words)
	set("thinking", rd.thinking, own.thinking, p.says.thinking)
	if len(fresh) > 0 {
		p.edits = append(p.edits, rd.insert(b, fresh, cut))
	}
	return p
}

func byPlace(x, y rawjson.Span) int { return x.From - y.From }

// holders are the objects that calls may stand in as members.
func (rd *reading) holders() []rawjson.Span {
	if rd.body == rd.doc || !rd.body.There() {
		return []rawjson.Span{rd.doc}
	}
	return []rawjson.Span{rd.doc, rd.body}
}

// joined puts texts together with an empty line between each two. before says
// that something was shown already, and apart that own must stand apart from it.
func joined(earlier, own, ours []byte, before, apart bool) (dst []byte) {
	dst = slices.Clone(earlier)
	add := func(text []byte, apart bool) {
		if len(text) > 0 && (apart || len(dst) > 0) {
			dst = append(dst, emptyLine...)
		}
		dst = append(dst, text...)
	}
	add(own, apart)
	add(ours, before)
	return dst
}

// insert puts members into what a document says, which may have to be made. gone
// are the members that are taken out.
func (rd *reading) insert(b, members []byte, gone func(rawjson.Span) bool) rawjson.Edit {
	holder := rd.body
	if !holder.There() {
		members = slices.Concat([]byte(`{"role":"assistant",`), members, []byte{'}'})
		holder = rd.doc
		for w := rawjson.Open(b, holder); w.Next(); {
			if w.Val == rd.message && !gone(w.Item) {
				return rawjson.Edit{At: rd.message, Text: members}
			}
		}
		members = append([]byte(`"message":`), members...)
	}
	for w := rawjson.Open(b, holder); w.Next(); {
		if !gone(w.Item) {
			members = append(members, ',')
			break
		}
	}
	return rawjson.Insert(holder.From+1, members)
}

// callEdits closes up the index of a call that is left, and puts edited
// arguments in.
func (t *turn) callEdits(b []byte, m *mention) (edits []rawjson.Edit) {
	if before := t.withheldBefore(m.c); before > 0 {
		edits = append(edits, rawjson.Edit{At: m.index, Text: strconv.AppendInt(nil, int64(m.c.index-before), 10)})
	}
	switch {
	case m.c.edited == nil:
	case m.args.There():
		edits = append(edits, rawjson.Edit{At: m.args, Text: m.c.edited})
	default:
		// A call that can be released has a name, so that a member is there.
		edits = append(edits, rawjson.Insert(m.inner.From+1, append(append([]byte(`"arguments":`), m.c.edited...), ',')))
	}
	return edits
}

// withheldBefore counts the withheld calls that stand before a call and have a
// smaller index.
func (t *turn) withheldBefore(c *call) (n int) {
	if !c.indexed || t.rec.Withheld == 0 {
		return 0
	}
	for _, o := range t.now {
		if o == c {
			break
		}
		if o.indexed && !o.released && o.index < c.index {
			n++
		}
	}
	return n
}

// laterEdits gives a document of a further round the envelope of the answer.
func (t *turn) laterEdits(b []byte, rd *reading) (edits []rawjson.Edit) {
	if t.begun > 1 && t.model != "" && rd.model.There() && string(rd.model.In(b)) != t.model {
		edits = append(edits, rawjson.Edit{At: rd.model, Text: []byte(t.model)})
	}
	return edits
}

// endEdits makes the last document of a round that of the answer.
func (t *turn) endEdits(b []byte, rd *reading) (edits []rawjson.Edit) {
	if shown := t.reasonShown(); shown != t.reason {
		edits = append(edits, rawjson.Edit{At: rd.reason, Text: quoted(shown)})
	}
	if t.outputs > 0 && rd.output.There() {
		edits = append(edits, rawjson.Edit{At: rd.output, Text: strconv.AppendInt(nil, t.outputTokens(), 10)})
	}
	return edits
}
