package openaichat

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"callgate/inspect"
	"callgate/inspect/digest"
	"callgate/inspect/rawjson"
	"callgate/inspect/toolcall"
)

// rounds is what a turn keeps of its rounds for later requests. It is filled
// with inspect.DenialRepair alone.
type rounds struct {
	pieces  bool // it comes piece by piece
	repair  bool // calls that can be put back leave nothing in their place
	begun   int
	said    said            // in this round, as far as it was read
	roundID string          // of this round, when it is not the first
	before  []inspect.Round // rounds that have ended
	bound   bool
	// suspended says that a round has ended and the turn may go on with another.
	suspended bool
	// ending is the text of ours that ended a suspended turn, "" for none.
	ending   string
	released bool // a call of the turn was
	silent   bool // a call of this round left nothing in its place
	mend     bool
	void     bool // the agent was shown an error and nothing of the answer
	closed   bool // a later round was the last one, and it has ended well

	// shown is the text that the agent was shown of earlier rounds, and of this
	// one as far as notices stand in it; seen is how much of this round's own
	// text that is.
	shown   []byte
	seen    int
	unseen  int // how much of what was said waits
	mark    int // how much was said before the event that is taken in
	notices []string

	outputs   int64  // tokens of earlier rounds
	billed    int64  // prompt tokens of earlier rounds, -1 when one did not say
	lastUsage []byte // as the provider gave it last
	alone     bool   // it came in an event without choices
}

// kept is how many bytes of what was said are kept for later requests.
func (r *rounds) kept() int {
	n := r.said.weight() + len(r.shown)
	for i := range r.before {
		n += len(r.before[i].Message)
	}
	return n
}

// gathers reports whether what is said is kept. It can be put into a history
// only where one choice was asked for.
func (t *turn) gathers() bool { return t.repair && t.lanesAsked == 1 }

// ends are the finish reasons, beside those of calls, behind which the model can
// be asked again: it has said all that it had to say.
var ends = []string{"", "stop", "end_turn", "eos"}

// fit says which calls of a lane that has ended can be put back into a
// history. All of them are known, and what they are.
func (t *turn) fit(l *lane) {
	if !t.gathers() || len(t.lanes) != 1 || l.n != 0 || !regular(l.reason) {
		return
	}
	older, newer := 0, 0
	for _, c := range l.calls {
		if c.Fault != toolcall.FaultNone {
			continue
		}
		switch {
		case c.Type == typeLegacy:
			older++
		case c.ID == "":
			return // whoever goes on with the history makes up an id of its own
		default:
			newer++
		}
	}
	if older > 1 || older > 0 && newer > 0 {
		return
	}
	for _, c := range l.calls {
		c.fits = c.fits || c.Fault == toolcall.FaultNone && !c.announced
	}
}

// inOrder gives calls as a client puts them together: by their number, where they
// have one.
func inOrder(calls []*call) []*call {
	calls = slices.Clone(calls)
	slices.SortStableFunc(calls, func(x, y *call) int {
		if !x.indexed || !y.indexed {
			return 0
		}
		return x.index - y.index
	})
	return calls
}

// appendCall appends a call as requests have it.
func appendCall(dst []byte, c *call, args []byte) []byte {
	if c.Type == typeLegacy {
		dst = appendQuoted(append(dst, `{"name":`...), c.Name)
		return append(appendQuoted(append(dst, `,"arguments":`...), string(args)), '}')
	}
	key := "arguments"
	if c.Text {
		key = "input"
	}
	dst = append(dst, `{"id":`...)
	dst = appendQuoted(dst, c.ID)
	dst = append(append(append(append(append(dst, `,"type":"`...), c.Type...), `","`...), c.Type...), `":{"name":`...)
	dst = appendQuoted(dst, c.Name)
	dst = append(append(append(dst, `,"`...), key...), `":`...)
	dst = append(appendQuoted(dst, string(args)), '}')
	if len(c.extra) > 0 {
		dst = append(append(dst, `,"extra_content":`...), c.extra...)
	}
	return append(dst, '}')
}

// callMembers gives the members of a message that hold calls.
func callMembers(calls []*call, args func(*call) []byte) []byte {
	var list, older []byte
	for _, c := range calls {
		if c.Type == typeLegacy {
			older = appendCall(nil, c, args(c))
		} else {
			list = join(list, appendCall(nil, c, args(c)))
		}
	}
	var dst []byte
	if list != nil {
		dst = append(append(append(dst, `,"tool_calls":[`...), list...), ']')
	}
	if older != nil {
		dst = append(append(dst, `,"function_call":`...), older...)
	}
	return dst
}

// round gives the round that is being read as a history has it: its words, and
// the calls that the agent was shown or that were refused.
func (t *turn) round() inspect.Round {
	r := inspect.Round{ID: t.roundID}
	if t.begun == 1 {
		r.ID = t.env.idText
	}
	if len(t.lanes) == 0 || !t.gathers() {
		return r
	}
	var kept []*call
	var told []string
	for _, c := range inOrder(t.lanes[0].calls) {
		switch {
		case c.Fault == toolcall.FaultNone && c.released && c.passed, c.fits && c.resolved && !c.released:
			if !c.released {
				r.Refusals = append(r.Refusals, inspect.Refusal{Call: len(kept), Text: c.refusal})
			}
			kept, r.Calls = append(kept, c), append(r.Calls, c.ID)
		case c.resolved && !c.released:
			told = append(told, c.refusal)
		}
	}
	r.Message = t.said.message(strings.Join(told, "\n\n"), callMembers(kept, func(c *call) []byte { return c.Args }), t.pieces)
	return r
}

func (t *turn) boundNow() bool {
	for _, l := range t.lanes {
		for _, c := range l.calls {
			if len(c.extra) > 0 && c.Fault == toolcall.FaultNone {
				return true
			}
		}
	}
	return t.said.bound()
}

// notice notes a text of ours that the agent is shown. It is part of the text
// where visible says so.
func (t *turn) notice(text string, visible bool) {
	if !t.repair {
		return
	}
	t.notices = append(t.notices, text)
	if visible {
		t.look()
		if len(t.shown) > 0 {
			t.shown = append(t.shown, emptyLine...)
		}
		t.shown = appendEscaped(t.shown, text)
	}
}

// look notes what the agent has been shown of the text of this round.
func (t *turn) look() {
	if to := t.said.size() - t.unseen; to > t.seen {
		if t.seen == 0 && len(t.shown) > 0 {
			t.shown = append(t.shown, emptyLine...)
		}
		t.shown = append(t.shown, t.said.all()[t.seen:to]...)
		t.seen = to
	}
}

// Told is what later requests have to be told.
func (t *turn) Told() inspect.Told {
	told := inspect.Told{Rounds: slices.Clone(t.before), Notices: slices.Clone(t.notices), Bound: t.bound, Mend: !t.void && (t.mend || t.begun > 1)}
	switch {
	case !t.suspended:
		told.Rounds = append(told.Rounds, t.answered(t.round()))
		told.Bound = told.Bound || t.boundNow()
	case t.ending != "":
		// An answer must stand between refusals and what the user says next.
		told.Rounds = append(told.Rounds, inspect.Round{Message: ownMessage(t.ending)})
	}
	var calls []*call
	for _, l := range t.lanes {
		for _, c := range inOrder(l.calls) {
			if c.released && c.passed {
				calls, told.Unit.Calls = append(calls, c), append(told.Unit.Calls, c.ID)
			}
		}
	}
	if told.Mend {
		t.look()
		told.Shown = t.shownDigest(calls)
	}
	return told
}

// shownDigest is what History.Shown gives for the answer as it was shown.
func (t *turn) shownDigest(calls []*call) digest.Digest {
	b := append([]byte(`{"role":"assistant","content":"`), t.shown...)
	b = append(b, '"')
	b = append(b, callMembers(calls, func(c *call) []byte {
		if c.edited != nil {
			return c.edited
		}
		return c.Args
	})...)
	b = append(b, '}')
	m, _, _ := readMessage(b, 0)
	h := history{b: b, messages: []message{m}, units: make([]inspect.Unit, 1), runs: []run{{0, 1}}}
	return h.Shown(0)
}

// suspends reports whether a round that has ended well leaves nothing for the
// agent to do, and refusals for the model to read. Where the text must follow a
// schema a further round would make two of one, so that nothing follows a text.
func (t *turn) suspends() bool {
	return t.silent && !t.released && !t.failed && t.err == nil && len(t.lanes) == 1 && !(t.structured && t.texts())
}

// suspend ends a round that another one may follow.
func (t *turn) suspend() {
	t.look()
	t.before = append(t.before, t.round())
	t.bound = t.bound || t.boundNow()
	t.suspended = true
}

// owe makes text of the refusals that have no other place to be seen, because
// the answer ends with the round and no call is left of it.
func (t *turn) owe() {
	if !t.silent || t.released {
		return
	}
	for _, l := range t.lanes {
		var owed []string
		for _, c := range l.calls {
			if c.fits && c.resolved && !c.released {
				owed = append(owed, c.refusal)
			}
		}
		// Before those of others, whether or not their place was reached.
		l.refusals = append(owed, l.refusals...)
	}
}

// nextRound makes the turn ready for a further round.
func (t *turn) nextRound() {
	for _, l := range t.lanes {
		*l = lane{n: l.n, waits: math.MaxInt, role: l.role, text: l.text, refusal: l.refusal, withheld: l.withheld, left: l.left}
	}
	t.begun++
	t.suspended, t.ended, t.silent, t.roundID = false, false, false, ""
	t.said, t.seen, t.unseen, t.mark = said{}, 0, 0, 0
	t.outputs += max(0, t.rec.OutputTokens)
	if t.rec.InputTokens < 0 {
		t.billed = -1
	} else if t.billed >= 0 {
		t.billed += t.rec.InputTokens
	}
	t.rec.InputTokens, t.rec.OutputTokens, t.rec.Altered = -1, -1, true
}

// other is the error for a further answer of another form.
func other(where, reason string) error {
	return &inspect.Error{Dialect: name, Where: where, Reason: reason}
}

// takesRound looks at the head of a further answer.
func (t *turn) takesRound(h inspect.Head, stream bool) error {
	if !t.suspended || t.over {
		return other("round", "the turn is not suspended: nothing can follow what it has read")
	}
	switch streamed, err := media(h, stream); {
	case err != nil:
		return err
	case streamed != stream:
		return other("content type", "the answer that follows has another form than the one before")
	}
	return nil
}

// envelopeEdits puts the first round's envelope into what a later one says.
func (t *turn) envelopeEdits(b []byte, o *outer) (edits []rawjson.Edit) {
	put := func(at rawjson.Span, value string, dst []byte) {
		if !at.There() {
			return
		}
		if value != "" {
			dst = []byte(value)
		}
		if string(at.In(b)) != string(dst) {
			edits = append(edits, rawjson.Edit{At: at, Text: dst})
		}
	}
	put(o.id, t.env.id, []byte(defaultID))
	put(o.created, t.env.created, []byte("0"))
	put(o.model, t.env.model, quoted(t.model))
	return append(edits, t.usageEdits(b, o.usage, -1)...)
}

// usageEdits makes the usage of one round that of the turn: its outputs are
// those of all rounds. With outputs below 0 they are its own and those before.
func (t *turn) usageEdits(b []byte, usage rawjson.Span, outputs int64) (edits []rawjson.Edit) {
	own, ok := rawjson.Whole(b, rawjson.Get(b, usage, "completion_tokens"))
	if !ok {
		return nil
	}
	if outputs < 0 {
		outputs = int64(own) + t.outputs
	}
	put := func(key string, n int64) {
		if at := rawjson.Get(b, usage, key); at.There() {
			edits = append(edits, rawjson.Edit{At: at, Text: strconv.AppendInt(nil, n, 10)})
		}
	}
	put("completion_tokens", outputs)
	if prompt, ok := rawjson.Whole(b, rawjson.Get(b, usage, "prompt_tokens")); ok {
		put("total_tokens", int64(prompt)+outputs)
	}
	return edits
}

// appendUsage appends what the provider said last of usage, as that of the turn.
func (t *turn) appendUsage(dst []byte) []byte {
	edits := t.usageEdits(t.lastUsage, rawjson.All(t.lastUsage), t.Record().OutputTokens)
	return rawjson.Apply(dst, t.lastUsage, edits)
}
