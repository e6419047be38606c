package responses

import (
	"slices"
	"strconv"
	"strings"

	"callgate/inspect"
	"callgate/inspect/digest"
	"callgate/inspect/rawjson"
	"callgate/inspect/toolcall"
)

// turn is what both forms of an answer have in common: its items, and what is
// told of them.
type turn struct {
	ledger
	tokens
	list  []*item // of all rounds
	begun int     // the first item of the round in it
	size  int     // bytes of raw in it

	id      string // of the first round, which the agent knows
	round   string // of this one
	model   string
	finish  string
	shown   string // the finish that was shown
	rounds  int    // begun so far
	base    []byte // the first round's response, as it began
	answers bool   // the agent may name the answer instead of sending it
	altered bool
	// structured says that the answer's text must follow a schema.
	structured bool
	suspended  bool
	broke      bool // the provider has reported an error
	failed     *inspect.Error
	ours       int // how many messages of ours there are

	past past
}

// past is what there is to tell of the rounds that have ended.
type past struct {
	rounds []inspect.Round
	// ending is the text of ours that ended a suspended turn, "" for none.
	ending string
}

func newTurn(r *request) turn {
	t := turn{tokens: unknownTokens, model: r.info.Model, rounds: 1, structured: r.info.Structured}
	t.lim, t.tools, t.repair = r.limits, r.info.Tools, r.repair
	t.answers = r.top.stored && rawjson.Null(r.body, r.top.conversation)
	return t
}

func (t *turn) limit(where, reason string) *inspect.Error {
	return &inspect.Error{Dialect: Name, Where: where, Reason: reason, Limit: true}
}

// current are the items of the round.
func (t *turn) current() []*item { return t.list[t.begun:] }

// found makes the call that an item is.
func (t *turn) found(it *item, r *reading, b []byte) error {
	c := &call{kind: r.kind}
	c.Type = r.typ
	c.blame(r.flaw.fault, r.flaw.reason)
	if rawjson.IsObject(b, r.at) {
		c.identify(b, r.at)
	}
	it.call = c
	return t.add(c)
}

// refused makes a call of something that is none and is withheld.
func (t *turn) refused(typ string, f toolcall.Fault, reason string, raw []byte) (*item, error) {
	c := &call{complete: true, kind: unknownKind}
	c.Type = typ
	c.blame(f, reason)
	c.Args = slices.Clone(raw[:min(len(raw), t.lim.Args)])
	t.weight += len(c.Args)
	it := &item{call: c, fault: true, kind: unknownKind}
	t.list = append(t.list, it)
	return it, t.add(c)
}

// keep takes in the whole item.
func (t *turn) keep(it *item, raw []byte) error {
	it.done = true
	if t.full {
		return nil
	}
	it.raw = slices.Clone(raw)
	t.size += len(raw)
	if t.size <= t.lim.Answer {
		return nil
	}
	t.full = true
	if t.silent > 0 || t.rounds > 1 {
		return t.limit("output", "calls of the answer were withheld, and it is longer than the limit of "+strconv.Itoa(t.lim.Answer)+" bytes")
	}
	return nil
}

// say makes an item a message of ours.
func (t *turn) say(it *item, text string) {
	t.altered = true
	it.own = ownMessage(inspect.OwnItem+t.mark()+strconv.Itoa(t.ours), text)
	t.ours++
}

// mark tells messages of ours apart from those of other answers: providers take
// no two items with one id in a request, nor an id of more than 64 characters.
func (t *turn) mark() string {
	mark := strings.Map(func(r rune) rune {
		if r == '-' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' {
			return r
		}
		return -1
	}, strings.TrimPrefix(t.id, "resp_"))
	if mark == "" {
		return ""
	}
	return mark[max(0, len(mark)-maxMark):] + "_"
}

const maxMark = 40

// ownMessage is a message that holds a text of ours.
func ownMessage(id, text string) []byte {
	m := appendString([]byte(`{"type":"message","id":`), id)
	m = append(m, `,"status":"completed","role":"assistant","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":`...)
	return append(appendString(m, text), "}]}"...)
}

// textOf is the text of a message of ours.
func textOf(own []byte) string {
	return rawjson.Text(own, rawjson.Get(own, firstPart(own), "text"))
}

func firstPart(own []byte) rawjson.Span {
	w := rawjson.Open(own, rawjson.Get(own, rawjson.All(own), "content"))
	w.Next()
	return w.Val
}

// shownRaw gives what the agent was shown of an item, nil for nothing.
func (it *item) shownRaw() []byte {
	switch {
	case it.own != nil:
		return it.own
	case it.call != nil:
		if it.call.given && it.raw != nil {
			return it.call.withArgs(it.raw)
		}
		return nil
	case it.closed && it.raw != nil:
		return it.raw
	case it.typ == "message" && len(it.text) > 0:
		return it.sofar()
	}
	return nil
}

// sofar is a message that was shown in part.
func (it *item) sofar() []byte {
	m := append([]byte(`{"type":"message","role":"assistant","content":[{"type":"output_text","annotations":[],"text":"`), it.text...)
	return append(m, `"}]}`...)
}

// visible gives what was shown of the whole turn, as a list.
func (t *turn) visible() []byte {
	list := []byte{'['}
	items := slices.Clone(t.list)
	slices.SortStableFunc(items, func(a, b *item) int { return a.shown - b.shown })
	for _, it := range items {
		if raw := it.shownRaw(); raw != nil {
			list = append(comma(list, 1), raw...)
		}
	}
	return append(list, ']')
}

// saidNothing is what an agent reads of a turn of which it would see nothing:
// some agents ask again on an empty answer, some fail, and none says why.
const saidNothing = "[callgate] A call was refused, and the model said nothing more."

// speaks reports whether the turn shows words, or with ours false the
// provider's alone.
func (t *turn) speaks(ours bool) bool {
	for _, it := range t.list {
		switch {
		case it.own != nil:
			if ours {
				return true
			}
		case it.typ == "message" && it.raw != nil && saysText(it.raw), it.raw == nil && len(it.text) > 0 && !blankText(it.text):
			return true
		}
	}
	return false
}

func blankText(inner []byte) bool {
	lit := append(append([]byte{'"'}, inner...), '"')
	return nothing(rawjson.Text(lit, rawjson.All(lit)))
}

// saysText reports whether a message holds a text of more than white space.
func saysText(raw []byte) bool {
	found := false
	eachText(raw, rawjson.Get(raw, rawjson.All(raw), "content"), func(s rawjson.Span) {
		found = found || !nothing(rawjson.Text(raw, s))
	})
	return found
}

// schemed reports whether the answer is to follow a schema and has a text: a
// further round would make two of it.
func (t *turn) schemed() bool {
	return t.structured && (t.speaks(true) || slices.ContainsFunc(t.calls, func(c *call) bool { return !c.silent }))
}

// lastWords gives the texts of ours that an answer must end with: the refusals
// of silent calls where none of the round is left, since its reader would not
// know why, and something where nothing at all would be seen.
func (t *turn) lastWords() (texts []string) {
	if t.silent > 0 && t.given == 0 {
		for _, c := range t.calls[t.first:] {
			if c.silent && !c.said {
				c.said = true
				texts = append(texts, c.refusal())
			}
		}
	}
	if len(texts) == 0 && t.rounds > 1 && completes(t.finish) && t.given == 0 && !t.speaks(true) {
		texts = append(texts, saidNothing)
	}
	return texts
}

// conclusion notes the text that ends a turn which is suspended: it tells of the
// refusals, too.
func (t *turn) conclusion(text string) {
	t.past.ending = text
	for _, c := range t.calls[t.first:] {
		c.said = true
	}
}

// nextRound makes the turn ready for a further answer.
func (t *turn) nextRound() {
	t.past.rounds = append(t.past.rounds, t.tell())
	t.begun = len(t.list)
	t.round, t.finish = "", ""
	t.suspended, t.altered = false, true
	t.rounds++
	t.tokens.next()
	t.ledger.next()
}

// tell puts the round together as it stands in a history. Reasoning stands
// right before what it belongs to, or not at all.
func (t *turn) tell() inspect.Round {
	r := inspect.Round{ID: t.round}
	msg := []byte(`{"output":[`)
	from := len(msg)
	var thoughts [][]byte
	for _, it := range t.current() {
		var raw []byte
		switch c := it.call; {
		case it.typ == "reasoning" && it.raw != nil:
			thoughts = append(thoughts, it.raw)
			continue
		case c != nil && c.stands() && it.raw != nil:
			raw = c.withArgs(it.raw)
			if !c.given {
				r.Refusals = append(r.Refusals, inspect.Refusal{Call: len(r.Calls), Text: c.refusal()})
			}
			r.Calls = append(r.Calls, c.ID)
		case it.own != nil && c == nil:
			continue // it is told apart
		case c != nil:
			if it.own != nil {
				msg = append(comma(msg, from), without(it.own, "id")...)
			}
			thoughts = nil
			continue
		case it.raw != nil && it.done:
			raw = it.raw
		case len(it.text) > 0:
			msg = append(comma(msg, from), paired(it.sofar())...)
			thoughts = nil
			continue
		default:
			thoughts = nil
			continue
		}
		for _, thought := range thoughts {
			msg = append(comma(msg, from), paired(thought)...)
		}
		thoughts = nil
		msg = append(comma(msg, from), paired(raw)...)
	}
	if len(msg) > from {
		r.Message = append(msg, "]}"...)
	}
	return r
}

// told is what later requests have to be told. whole says that the round has
// come to its end; begun that there is one.
func (t *turn) told(begun, whole bool) inspect.Told {
	if !t.repair || t.broke && t.rounds == 1 {
		return inspect.Told{}
	}
	all := inspect.Told{Rounds: slices.Clip(t.past.rounds)}
	if begun {
		r := t.tell()
		if !whole {
			r.ID = "" // the provider may hold more of it than was heard
		}
		if whole && t.rounds > 1 && !t.suspended && len(r.Message) == 0 {
			r.Message = ownRound(saidNothing) // an answer must stand before what the user says next
		}
		all.Rounds = append(all.Rounds, r)
	}
	if t.past.ending != "" {
		all.Rounds = append(all.Rounds, inspect.Round{Message: ownRound(t.past.ending)})
	}
	for _, it := range t.list {
		if it.own != nil {
			all.Notices = append(all.Notices, textOf(it.own))
		}
		if it.call != nil && it.call.given {
			all.Unit.Calls = append(all.Unit.Calls, it.call.ID)
		}
	}
	if t.answers {
		all.Unit.Answer = t.id
	}
	list := t.visible()
	var w digest.Writer
	all.Shown = shownDigest(&w, list, spansOf(list, rawjson.All(list)))
	refused := func(r inspect.Round) bool { return len(r.Refusals) > 0 }
	all.Mend = (len(all.Rounds) > 1 || slices.ContainsFunc(all.Rounds, refused)) && !(t.full && t.silent == 0)
	return all
}

// ownRound gives a round of a history that holds a text of ours.
func ownRound(text string) []byte {
	return append(append([]byte(`{"output":[`), without(ownMessage("", text), "id")...), "]}"...)
}

// record is the account of the turn.
func (t *turn) record() inspect.Record {
	r := inspect.Record{ID: t.id, Model: t.model, Finish: t.finish, Shown: t.shown, Rounds: t.rounds, Altered: t.altered}
	r.InputTokens, r.OutputTokens, r.Billed = t.in, t.total(), t.billed()
	r.Calls, r.Withheld = t.tally()
	return r
}

// spansOf gives the elements of a list.
func spansOf(b []byte, list rawjson.Span) (all []rawjson.Span) {
	for w := rawjson.Open(b, list); w.Next(); {
		all = append(all, w.Val)
	}
	return all
}
