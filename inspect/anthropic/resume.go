package anthropic

import (
	"github.com/tidwall/gjson"

	"callgate/inspect"
	"callgate/inspect/rawjson"
)

// Resume gives the body that asks again behind the rounds: this request's own
// with each round's message and its refusals at the end. A model that was
// forced to call something is free now, since it would be forced into the
// call that was withheld. Of a thread only the last round's refusals are sent:
// the provider holds all else.
func (r *request) Resume(rounds []inspect.Round) ([]byte, error) {
	h, err := converse(r.body)
	if err != nil {
		return nil, err
	}
	if !rawjson.Null(h.b, h.top.thread) {
		return h.resumeThread(rounds)
	}
	list, _, err := standing("resume", rounds, false)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 || len(list) < len(rounds) {
		return nil, unmended("resume", "nothing of the answer can be sent back, so that the provider cannot be asked again")
	}
	if last := list[len(list)-1]; len(last.calls) == 0 || len(last.refusals) != len(last.calls) {
		return nil, unmended("resume", "calls of the last answer have no result, so that the provider cannot be asked again")
	}
	if len(h.said) == 0 {
		return nil, unmended("resume", "there are no messages that the answer could stand behind")
	}
	edits := h.appendRounds(list)
	if free, forced, err := freed(h.b, h.top.toolChoice); err != nil {
		return nil, err
	} else if forced {
		edits = append(edits, rawjson.Edit{At: h.top.toolChoice, Text: free})
	}
	return rawjson.Apply(make([]byte, 0, len(h.b)+1024), h.b, edits), nil
}

// appendRounds puts rounds behind the last message. Where that is the start of
// an answer, the first round goes on with it in the same message.
func (h *conversation) appendRounds(list []pastRound) (edits []rawjson.Edit) {
	var text []byte
	last := h.said[len(h.said)-1]
	for k, p := range list {
		if k == 0 && h.goesOn() {
			edits = append(edits, h.goOn(last.content, p))
		} else {
			text = p.append(append(text, ','), nil)
		}
		text = append(append(text, ','), p.appendRefused()...)
	}
	return append(edits, rawjson.Insert(last.item.To, text))
}

// goOn puts the blocks of a round behind what the client has begun.
func (h *conversation) goOn(content rawjson.Span, p pastRound) rawjson.Edit {
	blocks := p.appendBlocks(nil)
	switch {
	case rawjson.IsString(h.b, content):
		text := []byte{'['}
		if !blank(h.b, content) {
			text = append(appendTextBlock(text, content.In(h.b)), ',')
		}
		return rawjson.Edit{At: content, Text: append(append(text, blocks...), ']')}
	case rawjson.Nested(h.b, content):
		return rawjson.Insert(content.To-1, append([]byte{','}, blocks...))
	}
	return rawjson.Insert(content.To-1, blocks)
}

// freed gives a tool_choice that forces nothing in place of one that does.
func freed(b []byte, choice rawjson.Span) (free []byte, forced bool, err error) {
	if rawjson.Null(b, choice) {
		return nil, false, nil
	}
	m, reason := fields(b, choice, "type", "disable_parallel_tool_use")
	if reason != "" {
		return nil, false, unmended("tool_choice", reason)
	}
	switch rawjson.Text(b, m[0]) {
	case "auto", "none":
		return nil, false, nil
	}
	free = []byte(`{"type":"auto"`)
	if m[1].There() {
		free = append(append(free, `,"disable_parallel_tool_use":`...), m[1].In(b)...)
	}
	return append(free, '}'), true, nil
}

func (h *conversation) resumeThread(rounds []inspect.Round) ([]byte, error) {
	if len(rounds) == 0 {
		return nil, unmended("resume", "there is no answer to go on from")
	}
	last := rounds[len(rounds)-1]
	switch {
	case last.ID == "":
		return nil, unmended("resume", "the answer has no id that a thread could go on from")
	case len(last.Calls) == 0 || len(last.Refusals) != len(last.Calls):
		return nil, unmended("resume", "calls of the last answer have no result, so that the provider cannot be asked again")
	}
	if err := sound("resume", last); err != nil {
		return nil, err
	}
	thread := gjson.AppendJSONString([]byte(`{"type":"continue","previous_message_id":`), last.ID)
	user := appendResults([]byte{'['}, last.Calls, inOrder(last.Refusals))
	// What the thread was created with holds on and must not be said again.
	top := h.top
	edits, _ := rawjson.Cut(h.b, rawjson.All(h.b), func(item rawjson.Span) bool {
		for _, s := range []rawjson.Span{top.tools, top.toolChoice, top.system} {
			if s.There() && s.Within(item) {
				return true
			}
		}
		return false
	})
	edits = append(edits,
		rawjson.Edit{At: top.messages, Text: append(user, ']')},
		rawjson.Edit{At: top.thread, Text: append(thread, '}')})
	return rawjson.Apply(make([]byte, 0, len(h.b)+1024), h.b, edits), nil
}
