package ollama

import (
	"slices"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/toolcall"
)

// turn is what a streamed and a whole answer have in common.
type turn struct {
	lim        inspect.Limits
	shape      shape
	structured bool
	asked      string // the model, as the request names it

	// model and created are what the first document that was given out says, as
	// it is written, "" where it says nothing.
	model, created string

	calls []*call // that were announced, by their number
	now   []*call // of this round, in the order of the wire
	open  int     // announced and without a ruling
	total int     // calls seen
	args  int     // bytes of all that is kept of them
	fresh []toolcall.Call

	behind bool   // this round's last document was read
	reason string // of its end
	failed bool   // an error of the provider was read

	// spoke and thought say that the agent was shown words, and thinking; sep
	// that words of an earlier round were shown, and none of this one.
	spoke, thought, sep bool

	rounds
	rec   inspect.Record
	err   error // that ended the reading
	ended bool  // the round has ended
	over  bool  // the turn has ended
	out   []byte
}

func limit(where, reason string) error {
	return &inspect.Error{Dialect: name, Where: where, Reason: reason, Limit: true}
}

// callReasons are the reasons of an end that promise calls. Ollama itself says
// stop.
var callReasons = []string{"tool_calls", "function_call", "tool_use", "tool_call"}

// regular reports whether the reason of an end is that of a model which has said
// all that it had to say.
func regular(reason string) bool {
	return reason == "" || reason == "stop" || slices.Contains(callReasons, reason)
}

// reasonShown is the reason that the agent is shown: a word that promises calls
// becomes stop when all of them were withheld.
func (t *turn) reasonShown() string {
	if t.rec.Withheld > 0 && !t.released && slices.Contains(callReasons, t.reason) {
		return "stop"
	}
	return t.reason
}

// introduce notes the envelope of a document that is given out.
func (t *turn) introduce(b []byte, rd *reading) {
	if t.model != "" || !rawjson.IsString(b, rd.model) || rd.model.Len() == 2 {
		return
	}
	t.model, t.rec.Model = string(rd.model.In(b)), rawjson.Text(b, rd.model)
	if rawjson.IsString(b, rd.created) {
		t.created = string(rd.created.In(b))
	}
}

// show notes what the agent is shown, as it is written between quotes.
func (t *turn) show(s saying) {
	t.spoke = t.spoke || len(s.words) > 0
	t.thought = t.thought || len(s.thinking) > 0
	t.sep = t.sep && len(s.words) == 0
	if t.repair {
		t.shown = append(t.shown, s.words...)
	}
}

// inner gives a string as it is written, without its quotes; nothing for other
// values.
func inner(b []byte, s rawjson.Span) []byte {
	if !rawjson.IsString(b, s) {
		return nil
	}
	return b[s.From+1 : s.To-1]
}

// step closes a drive of the turn.
func (t *turn) step() inspect.Step {
	s := inspect.Step{Out: t.out, Calls: t.fresh}
	t.out, t.fresh = nil, nil
	switch {
	case t.over && t.open == 0:
		s.State = inspect.Done
	case t.open > 0:
		s.State = inspect.Waiting
	case t.suspended:
		s.State = inspect.Suspended
	}
	return s
}

// outputTokens are those of all rounds, -1 when none was told of.
func (t *turn) outputTokens() int64 {
	if t.outputs > 0 {
		return t.outputs + max(0, t.rec.OutputTokens)
	}
	return t.rec.OutputTokens
}

// Record tells what was said and shown.
func (t *turn) Record() inspect.Record {
	r := t.rec
	r.Calls, r.Rounds, r.Billed = len(t.calls), t.begun, t.billed
	if r.InputTokens < 0 {
		r.Billed = -1
	} else if r.Billed >= 0 {
		r.Billed += r.InputTokens
	}
	r.OutputTokens = t.outputTokens()
	return r
}
