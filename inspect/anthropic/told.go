package anthropic

import (
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"callgate/inspect"
	"callgate/inspect/digest"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
)

// saidBlock is one thing of a round, in the provider's order: a block as it stands
// in a request, or a call that is no block.
type saidBlock struct {
	raw   []byte
	block *block
	call  *call
}

// past is what there is to tell of the rounds of a turn that have ended.
type past struct {
	id      string // of the round that is read
	rounds  []inspect.Round
	notices []string
	bound   bool
	speaks  bool   // the provider has said a text in them
	size    int    // of what is kept of them
	spoken  []byte // a stream's text that was shown, as written between quotes
	// ending is the text of ours that ended a suspended turn, "" for none.
	ending string
}

// closing gives what stands behind the refusals of a turn that was ended while
// it was suspended: the words of the user must not follow on results, or they
// would be part of the tool loop, with all the provider wants of one.
func (p *past) closing(rounds []inspect.Round) []inspect.Round {
	if p.ending == "" {
		return rounds
	}
	return append(rounds, inspect.Round{Message: ownMessage(p.ending)})
}

// readable reports whether a call's block can be walked over in one way only.
func readable(raw []byte) bool {
	k, ok := blockOf(raw)
	return ok && k.kind == pastUse
}

// blockOf reads a block as the history of a request is read.
func blockOf(raw []byte) (pastBlock, bool) {
	c := cursor{b: raw}
	k := readBlock(&c, func() string { return "" })
	return k, c.err == nil
}

// round puts a round together, and reports whether thinking is in it. Of one
// that has not said all it had to say stand only what is of use alone: no
// thinking without its signature, no call of the provider's own without its
// result. A refusal that the agent reads as text is told in its place.
func (l *ledger) round(id string, list []saidBlock, whole bool) (r inspect.Round, thinks bool) {
	r.ID = id
	msg := []byte(`{"role":"assistant","content":[`)
	from := len(msg)
	var results, uses map[string]bool
	if !whole {
		results, uses = paths(list)
	}
	end := from // behind the last block that an answer can end with
	for _, b := range list {
		if b.call != nil && !(b.call.sound() && readable(b.raw)) {
			if b.call.said {
				msg = appendTextObject(comma(msg, from), b.call.refusal())
				end = len(msg)
			}
			continue
		}
		if b.call != nil {
			msg = append(comma(msg, from), paired(b.call.block(b.raw))...)
			end = len(msg)
			if !b.call.given {
				r.Refusals = append(r.Refusals, inspect.Refusal{Call: len(r.Calls), Text: b.call.refusal()})
			}
			r.Calls = append(r.Calls, b.call.ID)
			continue
		}
		k, ok := blockOf(b.raw)
		switch {
		case !ok, strictjson.Object(b.raw, strictjson.Options{Depth: l.lim.Depth, Surrogates: true}) != nil:
			continue // what came in pieces is no block
		case k.kind == pastText && blank(b.raw, k.text):
			continue // the provider takes none
		case k.kind == pastThinking && !whole && !signed(b.raw),
			k.kind == pastOther && !whole && (k.id.There() && !results[rawjson.Text(b.raw, k.id)] || k.of.There() && !uses[rawjson.Text(b.raw, k.of)]):
			continue
		}
		msg = append(comma(msg, from), paired(b.raw)...)
		if k.kind == pastThinking {
			thinks = true
			continue
		}
		end = len(msg)
	}
	if end == from {
		return r, false
	}
	r.Message = append(msg[:end], "]}"...)
	return r, thinks
}

// paths gives the ids of the calls that the provider ran itself, and those that
// have results.
func paths(list []saidBlock) (results, uses map[string]bool) {
	results, uses = map[string]bool{}, map[string]bool{}
	for _, b := range list {
		if b.call != nil {
			continue
		}
		if k, ok := blockOf(b.raw); ok && k.kind == pastOther {
			uses[rawjson.Text(b.raw, k.id)] = true
			results[rawjson.Text(b.raw, k.of)] = true
		}
	}
	return results, uses
}

// signed reports whether a block of thinking is one that the provider takes.
func signed(raw []byte) bool {
	root := rawjson.All(raw)
	return rawjson.Text(raw, rawjson.Get(raw, root, "type")) != "thinking" || rawjson.Text(raw, rawjson.Get(raw, root, "signature")) != ""
}

// args are the arguments that a call has in a history: those it ran with.
func (c *call) args() []byte {
	if c.given && c.ruling.Args != nil {
		return c.ruling.Args
	}
	return c.Args
}

// block gives the call's block with its arguments in it.
func (c *call) block(raw []byte) []byte {
	p := patch{b: raw, obj: rawjson.All(raw)}
	p.set("input", c.args())
	return p.append(nil)
}

// shownCalls appends the calls that were shown to a list of blocks.
func (l *ledger) shownCalls(dst []byte) []byte {
	for _, c := range l.calls {
		if !c.given {
			continue
		}
		dst = gjson.AppendJSONString(append(comma(dst, 1), `{"type":"tool_use","name":`...), c.Name)
		dst = append(append(append(dst, `,"input":`...), c.args()...), '}')
	}
	return dst
}

// tell completes what is told of a turn whose rounds and notices are in it.
// content is what the agent was shown, as a list of blocks.
func (l *ledger) tell(t *inspect.Told, content []byte, noticed bool) {
	for _, c := range l.calls {
		if c.given {
			t.Unit.Calls = append(t.Unit.Calls, c.ID)
		}
	}
	var w digest.Writer
	t.Shown = shownDigest(&w, content, rawjson.All(content))
	refused := func(r inspect.Round) bool { return len(r.Refusals) > 0 }
	t.Mend = noticed || len(t.Rounds) > 1 || slices.ContainsFunc(t.Rounds, refused)
}

// Told gives the rounds of the stream and what was shown of them. Of a turn
// that ended well with nothing to mend it says nothing.
func (t *stream) Told() inspect.Told {
	h := t.heard
	if h == nil {
		return inspect.Told{} // nothing is told in later requests
	}
	all := inspect.Told{Rounds: slices.Clip(t.past.rounds), Notices: slices.Clip(t.past.notices), Bound: t.past.bound}
	if t.phase != unstarted || len(h.items) > 0 {
		id := t.past.id
		if t.phase < finished || t.broke || t.failed != nil {
			id = "" // the provider may hold more of it than was heard
		}
		r, thinks := t.round(id, h.blocks(), t.said())
		if t.closes() {
			r = withAnswer(r)
		}
		all.Rounds = append(all.Rounds, r)
		all.Bound = all.Bound || thinks
	}
	all.Rounds = t.past.closing(all.Rounds)
	for _, a := range h.ours {
		all.Notices = append(all.Notices, a.text)
	}
	if t.threaded {
		all.Unit.Answer = t.id
	}
	content := append([]byte(`[{"type":"text","text":"`), t.past.spoken...)
	content = append(h.appendSpeech(content, t.shownUpTo()), `"}`...)
	t.tell(&all, append(t.shownCalls(content), ']'), t.noticed)
	if h.full && t.silent == 0 {
		all.Mend = false // it was too long to be told
	}
	return all
}

// said reports whether the round has said all it had to say.
func (t *stream) said() bool {
	return t.phase >= finished && !t.broke && t.failed == nil && !t.heard.full && (completes(t.finish) || t.finish == "pause_turn")
}

// Fail ends the stream with an error event.
func (t *stream) Fail(dst []byte, text string) []byte {
	if t.done {
		return dst
	}
	t.stopHere()
	if t.over {
		return dst
	}
	t.over = true
	return appendError(dst, text)
}

// Told gives the rounds of the document and what was shown of them.
func (d *document) Told() inspect.Told {
	if !d.repair || d.broke {
		return inspect.Told{}
	}
	all := inspect.Told{Rounds: slices.Clip(d.past.rounds), Notices: slices.Clip(d.past.notices), Bound: d.past.bound}
	if d.taken {
		r, thinks := d.round(d.past.id, d.blocks(), completes(d.finish) || d.finish == "pause_turn")
		if d.closed {
			r = withAnswer(r)
		}
		all.Rounds = append(all.Rounds, r)
		all.Bound = all.Bound || thinks
	}
	all.Rounds = d.past.closing(all.Rounds)
	all.Notices = append(all.Notices, d.ours...)
	if d.threaded {
		all.Unit.Answer = d.id
	}
	d.tell(&all, d.whole(), false)
	return all
}

// Fail gives out an error in place of the document.
func (d *document) Fail(dst []byte, text string) []byte {
	if d.done {
		return dst
	}
	d.done, d.altered, d.suspended, d.left = true, true, false, true
	_, body := Dialect{}.Refuse(forbidden, text)
	return append(dst, body...)
}

// nothing reports whether a text says nothing.
func nothing(text string) bool { return strings.TrimSpace(text) == "" }
