package gemini

import (
	"callgate/inspect"
	"callgate/inspect/rawjson"
)

// Resume gives the body that asks again behind the rounds: this request's own
// with each round and its refusals at the end of its contents. A model that was
// forced to call something is free now, since it would be forced into the call
// that was withheld.
func (r *request) Resume(rounds []inspect.Round) ([]byte, error) {
	switch {
	case r.info.Lanes > 1:
		return nil, failure("resume", "an answer of several candidates cannot be gone on with", nil)
	case r.continues:
		return nil, failure("resume", "the provider holds the beginning of the answer, so that nothing can be put behind it", nil)
	}
	h, err := converse(r)
	if err != nil {
		return nil, err
	}
	list, err := standing("resume", rounds, false)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 || len(list) < len(rounds) {
		return nil, failure("resume", "nothing of the answer can be sent back, so that the provider cannot be asked again", nil)
	}
	if last := &list[len(list)-1]; len(last.made) == 0 || len(last.refusals) != len(last.made) {
		return nil, failure("resume", "calls of the last answer have no result, so that the provider cannot be asked again", nil)
	}
	if len(h.said) == 0 {
		return nil, failure("resume", "there are no contents that the answer could stand behind", nil)
	}
	edits := h.appendRounds(list)
	more, err := freed(h.b, h.top.toolConfig)
	if err != nil {
		return nil, err
	}
	return rawjson.Apply(make([]byte, 0, len(h.b)+1024), h.b, append(edits, more...)), nil
}

// appendRounds puts rounds behind the last content. Where that is the start of an
// answer, the first round goes on with it in the same content.
func (h *conversation) appendRounds(list []pastRound) (edits []rawjson.Edit) {
	var text []byte
	last := h.said[len(h.said)-1]
	for k := range list {
		p := &list[k]
		if parts := last.parts; k == 0 && h.goesOn() && rawjson.IsArray(h.b, parts) {
			more := p.appendParts(nil, nil)
			if rawjson.Nested(h.b, parts) {
				more = append([]byte{','}, more...)
			}
			edits = append(edits, rawjson.Insert(parts.To-1, more))
		} else {
			text = p.append(append(text, ','), nil)
		}
		text = p.appendRefused(append(text, ','))
	}
	if at := h.top.contents; rawjson.IsObject(h.b, at) {
		return append(edits, rawjson.Insert(at.From, []byte{'['}), rawjson.Insert(at.To, append(text, ']')))
	}
	return append(edits, rawjson.Insert(last.at.To, text))
}

var (
	toolConfigKeys = spelt("functionCallingConfig")
	callingKeys    = spelt("mode", "allowedFunctionNames")
)

// freed gives the edits after which no function must be called, when one must. A
// list of those that may be called goes with it: it is taken beside such a
// setting only.
func freed(b []byte, config rawjson.Span) (edits []rawjson.Edit, err error) {
	if rawjson.Null(b, config) {
		return nil, nil
	}
	m, err := onlyMembers(b, config, toolConfigKeys, false)
	if err != nil {
		return nil, failure("toolConfig", "it cannot be read one way only", err)
	}
	calling := m["functionCallingConfig"]
	if rawjson.Null(b, calling) {
		return nil, nil
	}
	if m, err = onlyMembers(b, calling, callingKeys, false); err != nil {
		return nil, failure("toolConfig.functionCallingConfig", "it cannot be read one way only", err)
	}
	mode, names := m["mode"], m["allowedFunctionNames"]
	switch text := rawjson.Text(b, mode); {
	case text == "ANY", text == "any", string(mode.In(b)) == "2": // the number of the word
	default:
		return nil, nil
	}
	edits, _ = rawjson.Cut(b, calling, func(item rawjson.Span) bool { return names.There() && names.Within(item) })
	return append(edits, rawjson.Edit{At: mode, Text: []byte(`"AUTO"`)}), nil
}
