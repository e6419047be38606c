package ollama

import (
	"fmt"

	"callgate/inspect"
	"callgate/inspect/rawjson"
)

// Resume gives the body for asking again: the request's own, with rounds and
// their refusals behind its last message. Requests of this format cannot say
// that a tool must be called.
func (r *request) Resume(rounds []inspect.Round) ([]byte, error) {
	b := r.body
	if !r.shape.inside || !rawjson.IsArray(b, r.messages) || !rawjson.Nested(b, r.messages) {
		return nil, refused("messages", "there is none to go on behind")
	}
	if len(rounds) == 0 {
		return nil, refused("messages", "there is no round to put behind them")
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
	end := r.messages.To - 1
	for space[b[end-1]] {
		end--
	}
	return rawjson.Apply(make([]byte, 0, len(b)+len(text)), b, []rawjson.Edit{rawjson.Insert(end, text)}), nil
}

var space = [256]bool{' ': true, '\n': true, '\t': true, '\r': true}
