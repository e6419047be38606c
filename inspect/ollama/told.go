package ollama

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"callgate/inspect"
	"callgate/inspect/digest"
	"callgate/inspect/rawjson"
)

// rounds is what a turn keeps of its rounds for later requests. It is filled
// with inspect.DenialRepair alone.
type rounds struct {
	repair bool // calls that can be put back leave nothing in their place
	begun  int
	said   saying          // in this round, as far as it was read
	before []inspect.Round // rounds that have ended
	// suspended says that a round has ended and the turn may go on with another.
	suspended bool
	// ending is the text of ours that ended a suspended turn, "" for none.
	ending   string
	released bool // a call of the turn was
	silent   bool // a call of this round left nothing in its place
	mend     bool
	void     bool // the agent was shown an error and nothing of the answer
	closed   bool // a later round was the last one, and it has ended well

	shown   []byte // the words that the agent was shown, as they are written
	notices []string

	outputs int64 // tokens of earlier rounds
	billed  int64 // prompt tokens of earlier rounds, -1 when one did not say
}

// gather takes in what a document says.
func (t *turn) gather(b []byte, rd *reading) error {
	if !t.repair || rd.whole != nil {
		return nil
	}
	t.said.words = append(t.said.words, inner(b, rd.words)...)
	t.said.thinking = append(t.said.thinking, inner(b, rd.thinking)...)
	if len(t.said.words)+len(t.said.thinking) > t.lim.Answer {
		return limit("answer", fmt.Sprintf("it says more than %d bytes", t.lim.Answer))
	}
	return nil
}

// appendMessage appends an answer as requests have it. calls are the entries of
// its calls.
func appendMessage(dst []byte, s saying, calls [][]byte) []byte {
	dst = append(dst, `{"role":"assistant","content":"`...)
	dst = append(append(dst, s.words...), '"')
	if len(s.thinking) > 0 {
		dst = append(append(append(dst, `,"thinking":"`...), s.thinking...), '"')
	}
	if len(calls) > 0 {
		dst = append(append(append(dst, `,"tool_calls":[`...), bytes.Join(calls, []byte{','})...), ']')
	}
	return append(dst, '}')
}

// round gives the round that is being read as a history has it: its words, and
// the calls that the agent was shown or that were refused.
func (t *turn) round() (r inspect.Round) {
	if !t.repair {
		return r
	}
	var entries [][]byte
	var told []string
	for _, c := range t.now {
		switch {
		case c.released && c.passed, c.fits && c.resolved && !c.released:
			if !c.released {
				r.Refusals = append(r.Refusals, inspect.Refusal{Call: len(entries), Text: c.refusal})
			}
			entries, r.Calls = append(entries, c.raw), append(r.Calls, c.ID)
		case c.resolved && !c.released:
			told = append(told, c.refusal)
		}
	}
	s := t.said
	if len(told) > 0 {
		s.words = apart(slices.Clone(s.words), appendEscaped(nil, strings.Join(told, "\n\n")))
	}
	if len(entries) > 0 || visible(s.words) {
		r.Message = appendMessage(nil, s, entries)
	}
	return r
}

// notice notes a text of ours that the agent is shown.
func (t *turn) notice(text string) {
	if t.repair {
		t.notices = append(t.notices, text)
	}
}

// Told is what later requests have to be told.
func (t *turn) Told() inspect.Told {
	told := inspect.Told{Rounds: slices.Clone(t.before), Notices: slices.Clone(t.notices), Mend: !t.void && (t.mend || t.begun > 1)}
	switch {
	case !t.suspended:
		r := t.round()
		if t.closed && len(r.Message) == 0 {
			r.Message = ownMessage(saidNothing)
		}
		told.Rounds = append(told.Rounds, r)
	case t.ending != "":
		// An answer must stand between refusals and what the user says next.
		told.Rounds = append(told.Rounds, inspect.Round{Message: ownMessage(t.ending)})
	}
	var entries [][]byte
	for _, c := range t.calls {
		if c.released && c.passed {
			told.Unit.Calls = append(told.Unit.Calls, c.ID)
			entry := quoted(c.Name)
			args := c.Args
			if c.edited != nil {
				args = c.edited
			}
			entry = append(append(append([]byte(`{"function":{"name":`), entry...), `,"arguments":`...), args...)
			entries = append(entries, append(entry, "}}"...))
		}
	}
	if told.Mend {
		told.Shown = shownDigest(appendMessage(nil, saying{words: t.shown}, entries))
	}
	return told
}

// shownDigest is what History.Shown gives for an answer.
func shownDigest(b []byte) digest.Digest {
	m, _, _ := readMessage(b, 0)
	h := history{b: b, messages: []message{m}, units: make([]inspect.Unit, 1), runs: []run{{0, 1}}}
	return h.Shown(0)
}

// ownMessage gives a message of a history that holds a text of ours.
func ownMessage(text string) []byte {
	return appendMessage(nil, saying{words: appendEscaped(nil, text)}, nil)
}

// suspends reports whether a round that has ended well leaves nothing for the
// agent to do, and refusals for the model to read. Where the text must follow a
// schema a further round would make two of one, so that nothing follows a text.
func (t *turn) suspends() bool {
	return t.silent && !t.released && !t.failed && t.err == nil && t.behind && regular(t.reason) &&
		!(t.structured && (visible(t.shown) || visible(t.said.words)))
}

// suspend ends a round that another one may follow.
func (t *turn) suspend() {
	t.before = append(t.before, t.round())
	t.suspended = true
}

// saidNothing is what an agent reads of a turn of which it would see nothing:
// some agents ask again on an empty answer, some fail, and none says why.
const saidNothing = "[callgate] A call was refused, and the model said nothing more."

// owed gives the refusals that have no other place to be seen because the answer
// ends with this round and no call is left of it, and what is said of a turn that
// would show nothing. clean says that the round has ended well.
func (t *turn) owed(clean bool) (texts []string) {
	if t.silent && !t.released {
		for _, c := range t.now {
			if c.fits && c.resolved && !c.released {
				texts = append(texts, c.refusal)
			}
		}
	}
	if !clean || t.begun == 1 || t.failed || t.err != nil || !t.behind || !regular(t.reason) {
		return texts
	}
	t.closed = true
	if !t.released && len(t.now) == 0 && !visible(t.shown) && !visible(t.said.words) {
		texts = append(texts, saidNothing)
	}
	return texts
}

// visible reports whether a text, as it is written between quotes, holds more
// than white space.
func visible(raw []byte) bool {
	b := append(append([]byte{'"'}, raw...), '"')
	return strings.TrimSpace(rawjson.Text(b, rawjson.All(b))) != ""
}

// nextRound makes the turn ready for a further round.
func (t *turn) nextRound() {
	t.begun++
	t.now, t.said = nil, saying{}
	t.suspended, t.ended, t.silent, t.behind, t.reason = false, false, false, false, ""
	t.outputs += max(0, t.rec.OutputTokens)
	if t.rec.InputTokens < 0 {
		t.billed = -1
	} else if t.billed >= 0 {
		t.billed += t.rec.InputTokens
	}
	t.rec.InputTokens, t.rec.OutputTokens, t.rec.Altered = -1, -1, true
}

// takesRound looks at the head of a further answer.
func (t *turn) takesRound(h inspect.Head, stream bool) error {
	if !t.suspended || t.over {
		return refused("round", "the turn is not suspended: nothing can follow what it has read")
	}
	switch streamed, err := media(h, stream); {
	case err != nil:
		return err
	case streamed != stream:
		return refused("content type", "the answer that follows has another form than the one before")
	}
	return nil
}
