package gemini

import (
	"slices"

	"callgate/inspect"
	"callgate/inspect/digest"
	"callgate/inspect/frame"
	"callgate/inspect/rawjson"
)

// saidNothing is what an agent reads of a turn of which it would see nothing:
// some agents ask again on an empty answer, some fail, and none says why.
const saidNothing = "[callgate] A call was refused, and the model said nothing more."

// ownMessage gives a content of a history that holds a text of ours.
func ownMessage(text string) []byte {
	return append(appendText([]byte(`{"role":"model","parts":[`), quoted(text)), "]}"...)
}

// NextRound goes on with a further answer.
func (t *turn) NextRound(response inspect.Head) error {
	events, err := streams(response)
	switch {
	case !t.suspended:
		return failure("next round", "the turn does not wait for one", nil)
	case err != nil:
		return err
	case events != t.events:
		return failure("content-type", "the further answer has another form than the first, so that it cannot go on with it", nil)
	}
	g := t.told
	r := t.round(true)
	g.before = append(g.before, r)
	g.size += len(r.Message)
	g.spoke = g.spoke || g.speaks()
	g.buf, g.items, g.id = g.buf[:0], nil, ""

	t.sse, t.array = frame.SSE{Max: t.lim.Frame}, frame.Array{Max: t.lim.Frame}
	t.body, t.now = nil, formUnknown
	t.finish, t.ended, t.suspended, t.dropped = "", false, false, false
	for _, l := range t.lanes {
		l.finish, l.orphan = "", nil
		l.gap = l.gap || l.spoke
	}
	t.calls.first, t.silent, t.ids = len(t.list), 0, nil
	t.rounds++
	t.tokens.next()
	t.altered = true
	return nil
}

// Told is what later requests have to be told of the turn.
func (t *turn) Told() inspect.Told {
	g := t.told
	if g == nil || t.broke && t.form == formDocument {
		return inspect.Told{}
	}
	all := inspect.Told{Rounds: slices.Clone(g.before), Notices: slices.Clone(g.notices)}
	if len(g.items) > 0 || t.finish != "" {
		r := t.round(t.failed == nil && !t.broke && !g.full && completes(t.finish))
		if t.closes() && len(r.Message) == 0 {
			// An answer must stand between refusals and what the user says next.
			r.Message = ownMessage(saidNothing)
		}
		all.Rounds = append(all.Rounds, r)
	}
	if g.ending != "" {
		all.Rounds = append(all.Rounds, inspect.Round{Message: ownMessage(g.ending)})
	}
	content := append(append([]byte(`{"role":"model","parts":[{"text":"`), g.seen...), `"}`...)
	for _, k := range t.list {
		if !k.given {
			continue
		}
		all.Unit.Calls = append(all.Unit.Calls, k.ID)
		content = append(append(content, `,{"functionCall":{"name":`...), quoted(k.Name)...)
		content = append(append(append(content, `,"args":`...), k.ranWith()...), "}}"...)
	}
	content = append(content, "]}"...)
	var w digest.Writer
	all.Shown = shownDigest(&w, content, rawjson.Get(content, rawjson.All(content), "parts"))
	refused := func(r inspect.Round) bool { return len(r.Refusals) > 0 }
	all.Mend = len(all.Rounds) > 1 || slices.ContainsFunc(all.Rounds, refused)
	if g.full && t.silent == 0 {
		all.Mend = false // it was too long to be told
	}
	return all
}
