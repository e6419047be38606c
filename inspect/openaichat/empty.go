package openaichat

import (
	"slices"
	"unicode/utf8"

	"callgate/inspect"
	"callgate/inspect/rawjson"
)

// saidNothing is what an agent reads of a turn of which it would see nothing:
// some agents ask again on an empty answer, some fail, and none says why.
const saidNothing = "[callgate] A call was refused, and the model said nothing more."

// closes notes that the round is the last one and has ended well. It reports
// whether nothing of the turn can be seen.
func (t *turn) closes() bool {
	if !t.repair || t.begun == 1 || t.failed || t.err != nil || len(t.lanes) == 0 || !regular(t.lanes[0].reason) {
		return false
	}
	t.closed = true
	// A call of this round is shown, or its refusal is, though maybe not yet.
	return !t.released && !t.speaking() && !slices.ContainsFunc(t.lanes, func(l *lane) bool { return l.refusal || len(l.calls) > 0 })
}

// regular reports whether a finish reason is that of a model which has said all
// that it had to say.
func regular(reason string) bool {
	return slices.Contains(ends, reason) || slices.Contains(callFinishes, reason)
}

// speaking reports whether the turn shows words: the provider's, or those of
// ours that stand among them.
func (t *turn) speaking() bool {
	if a := t.said.aside; a != nil && len(a.parts)+len(a.strings[saysRefusal])+len(a.audio) > 0 {
		return true
	}
	return t.texts()
}

// texts reports whether the turn shows a content with more than white space.
func (t *turn) texts() bool { return visible(t.shown) || visible(t.said.all()) }

// visible reports whether a text, as it is written between quotes, holds more
// than white space.
func visible(raw []byte) bool {
	if len(raw) == 0 {
		return false
	}
	if c := raw[0]; ' ' < c && c < utf8.RuneSelf && c != '\\' {
		return true
	}
	b := append(append([]byte{'"'}, raw...), '"')
	return spoken(b, rawjson.All(b))
}

// answered puts words into a last round that has none: an answer must stand
// between refusals and what the user says next.
func (t *turn) answered(r inspect.Round) inspect.Round {
	if t.closed && len(r.Message) == 0 {
		r.Message = ownMessage(saidNothing)
	}
	return r
}

// ownMessage gives a message of a history that holds a text of ours.
func ownMessage(text string) []byte {
	return append(appendQuoted([]byte(`{"role":"assistant","content":`), text), '}')
}
