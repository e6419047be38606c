package responses

import (
	"callgate/inspect"
	"callgate/inspect/rawjson"
)

// Resume gives the body that asks again behind the rounds. A model that was
// forced to call something is free now, since it would be forced into the call
// that was withheld.
//
// It goes on in the way that the request itself goes: where that leaves the
// history to the provider (previous_response_id, conversation) only the
// refusals of the last round are sent, behind that round's own id; where it
// holds its history, the rounds' items are sent behind it, since many servers
// keep no answers whatever store says, and nothing shows that this one does.
func (r *request) Resume(rounds []inspect.Round) ([]byte, error) {
	h, err := r.converse()
	if err != nil {
		return nil, err
	}
	if len(rounds) == 0 {
		return nil, unmended("resume", "there is no answer to go on from")
	}
	list, err := standing("resume", rounds, r.keeps)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 || len(list) < len(rounds) {
		return nil, unmended("resume", "nothing of the answer can be sent back, so that the provider cannot be asked again")
	}
	last := list[len(list)-1]
	if len(last.calls) == 0 || len(last.refusals) != len(last.calls) {
		return nil, unmended("resume", "calls of the last answer have no result, so that the provider cannot be asked again")
	}
	if !h.top.input.There() && !h.top.held(h.b) {
		return nil, unmended("resume", "there is no input that the answer could stand behind")
	}
	edits, err := h.goOn(list, rounds[len(rounds)-1].ID)
	if err != nil {
		return nil, err
	}
	if e, forced := freed(h.b, h.top.choice); forced {
		edits = append(edits, e)
	}
	return rawjson.Apply(make([]byte, 0, len(h.b)+1024), h.b, edits), nil
}

// keeps reports whether reasoning can be sent back: the provider must hold it,
// or it must come with all that is in it.
func (r *request) keeps(b []byte, at rawjson.Span) bool {
	return r.top.stored || rawjson.Text(b, rawjson.Get(b, at, "encrypted_content")) != ""
}

// goOn puts rounds behind the input, or what the provider lacks of them in its
// place.
func (h *conversation) goOn(list []pastRound, id string) ([]rawjson.Edit, error) {
	p := patch{b: h.b, obj: rawjson.All(h.b)}
	if h.top.held(h.b) {
		last := list[len(list)-1]
		if !rawjson.Null(h.b, h.top.previous) {
			if id == "" {
				return nil, unmended("resume", "the answer has no id that the provider could go on from")
			}
			p.set("previous_response_id", appendString(nil, id))
		}
		input := append([]byte{'['}, last.appendRefused(nil)...)
		p.set("input", append(input, ']'))
		return p.all(), nil
	}
	var behind []byte
	for _, round := range list {
		behind = round.appendRefused(round.append(behind))
	}
	return append(p.all(), h.appendItems(behind)), nil
}

// appendItems puts items behind the input.
func (h *conversation) appendItems(items []byte) rawjson.Edit {
	if h.text.There() {
		text := append(userItem([]byte{'['}, h.text.In(h.b)), ',')
		return rawjson.Edit{At: h.text, Text: append(append(text, items...), ']')}
	}
	if n := len(h.said); n > 0 {
		return rawjson.Insert(h.said[n-1].at.To, append([]byte{','}, items...))
	}
	return rawjson.Insert(h.top.input.From+1, items)
}

// userItem adds the item that an input which is a text stands for.
func userItem(dst, lit []byte) []byte {
	return append(append(append(dst, `{"role":"user","content":`...), lit...), '}')
}

// freed gives the change after which no tool must be called, when one must.
// Which tools may be called is not changed.
func freed(b []byte, choice rawjson.Span) (rawjson.Edit, bool) {
	if rawjson.Null(b, choice) {
		return rawjson.Edit{}, false
	}
	at, word := choice, rawjson.Text(b, choice)
	if rawjson.IsObject(b, choice) {
		if word = rawjson.Text(b, rawjson.Get(b, choice, "type")); word == "allowed_tools" {
			at = rawjson.Get(b, choice, "mode")
			word = rawjson.Text(b, at)
		}
	}
	if word == "auto" || word == "none" || !at.There() {
		return rawjson.Edit{}, false
	}
	return rawjson.Edit{At: at, Text: []byte(`"auto"`)}, true
}
