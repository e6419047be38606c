package openaichat

import (
	"fmt"

	"callgate/inspect"
	"callgate/inspect/rawjson"
)

// Resume gives the body for asking again: the request's own, with rounds and
// their refusals behind its last message. What must be called is left to the
// model, which would have to make the refused call again.
func (r *request) Resume(rounds []inspect.Round) ([]byte, error) {
	b := r.body
	if r.info.Lanes > 1 {
		return nil, refused("n", "an answer of several choices cannot be gone on with")
	}
	if !rawjson.Nested(b, r.messages) || !rawjson.IsArray(b, r.messages) {
		return nil, refused("messages", "there is none to go on behind")
	}
	if len(rounds) == 0 {
		return nil, refused("messages", "there is no round to put behind them")
	}
	end := r.messages.To - 1
	for space[b[end-1]] {
		end--
	}
	var text []byte
	for k, round := range rounds {
		a, reason := readRound(round, false)
		switch {
		case reason != "":
		case len(a.calls) == 0:
			reason = "it holds no call"
		case len(a.refusals) != len(a.calls):
			reason = "a call in it has no result"
		default:
			text = a.answered(append(append(text, ','), a.raw...))
			continue
		}
		return nil, refused(fmt.Sprintf("round %d", k), reason)
	}
	edits := []rawjson.Edit{rawjson.Insert(end, text)}
	if e, ok := r.auto(); ok {
		edits = append(edits, e)
	}
	if rawjson.IsObject(b, r.function) {
		edits = append(edits, rawjson.Edit{At: r.function, Text: []byte(`"auto"`)})
	}
	return rawjson.Apply(make([]byte, 0, len(b)+len(text)+len(`"auto"`)), b, edits), nil
}

var space = [256]bool{' ': true, '\n': true, '\t': true, '\r': true}

// auto gives the edit after which no tool must be called, when one must. Which
// tools may be called is not changed.
func (r *request) auto() (rawjson.Edit, bool) {
	at := r.choice
	if rawjson.Null(r.body, at) {
		return rawjson.Edit{}, false
	}
	word := rawjson.Text(r.body, at)
	if rawjson.IsObject(r.body, at) {
		word = rawjson.Text(r.body, rawjson.Get(r.body, at, "type"))
		if allowed := rawjson.Get(r.body, at, word); word == "allowed_tools" && rawjson.IsObject(r.body, allowed) {
			at = rawjson.Get(r.body, allowed, "mode")
			word = rawjson.Text(r.body, at)
		}
	}
	if word == "auto" || word == "none" || !at.There() {
		return rawjson.Edit{}, false
	}
	return rawjson.Edit{At: at, Text: []byte(`"auto"`)}, true
}
