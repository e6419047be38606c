package gemini

import (
	"strconv"

	"callgate/inspect/rawjson"
)

// tokens are what the provider says of the tokens of a turn, -1 where it has
// not. Each chunk tells them anew, and the last one counts.
type tokens struct {
	prompt, tool    int64 // of this round
	answer, thought int64 // likewise

	answerBefore, thoughtBefore int64 // of the rounds before, together
	billBefore                  int64 // likewise what went in
	unbilled                    bool  // one of them did not say
}

var unknownTokens = tokens{prompt: -1, tool: -1, answer: -1, thought: -1}

// The figures of a usage that are read.
const (
	keyPrompt  = "promptTokenCount"
	keyAnswer  = "candidatesTokenCount"
	keyThought = "thoughtsTokenCount"
	keyTool    = "toolUsePromptTokenCount"
	keyTotal   = "totalTokenCount"
)

// count reads a usage.
func (t *tokens) count(b []byte, usage rawjson.Span) {
	if !rawjson.IsObject(b, usage) {
		return
	}
	for w := rawjson.Open(b, usage); w.Next(); {
		n, ok := rawjson.Whole(b, w.Val)
		if !ok {
			continue
		}
		switch string(w.Key.In(b)) {
		case keyPrompt:
			t.prompt = int64(n)
		case keyAnswer:
			t.answer = int64(n)
		case keyThought:
			t.thought = int64(n)
		case keyTool:
			t.tool = int64(n)
		}
	}
}

// next begins a further round.
func (t *tokens) next() {
	t.answerBefore += max(t.answer, 0)
	t.thoughtBefore += max(t.thought, 0)
	t.billBefore += max(t.prompt, 0)
	t.unbilled = t.unbilled || t.prompt < 0
	t.prompt, t.tool, t.answer, t.thought = -1, -1, -1, -1
}

// outputs is what came out in all rounds.
func (t *tokens) outputs() int64 {
	if t.answer < 0 && t.thought < 0 && t.answerBefore+t.thoughtBefore == 0 {
		return -1
	}
	return t.answerBefore + t.thoughtBefore + max(t.answer, 0) + max(t.thought, 0)
}

// billed is what went in, in all rounds.
func (t *tokens) billed() int64 {
	if t.unbilled || t.prompt < 0 {
		return -1
	}
	return t.billBefore + t.prompt
}

// usageOfTurn makes the usage of one round that of the turn: what went in is that
// of the round, what came out that of all.
func (t *tokens) usageOfTurn(usage []byte) []byte {
	var own tokens
	own.count(usage, rawjson.All(usage))
	answer, thought := own.answer+t.answerBefore, own.thought+t.thoughtBefore
	o := object{b: usage}
	for w := rawjson.Open(usage, rawjson.All(usage)); w.Next(); {
		switch string(w.Key.In(usage)) {
		case keyAnswer, keyThought, keyTotal:
		default:
			o.keep(&w)
		}
	}
	if answer > 0 {
		o.put(keyAnswer, strconv.AppendInt(nil, answer, 10))
	}
	if thought > 0 {
		o.put(keyThought, strconv.AppendInt(nil, thought, 10))
	}
	o.put(keyTotal, strconv.AppendInt(nil, own.prompt+own.tool+answer+thought, 10))
	return o.done()
}

// appendUsage adds the usage of the turn so far as a member, if there is any.
func (t *tokens) appendUsage(dst []byte) []byte {
	if t.prompt < 0 && t.outputs() < 0 {
		return dst
	}
	u := object{}
	put := func(key string, n int64) {
		if n > 0 {
			u.put(key, strconv.AppendInt(nil, n, 10))
		}
	}
	answer, thought := t.answerBefore+max(t.answer, 0), t.thoughtBefore+max(t.thought, 0)
	put(keyPrompt, t.prompt)
	put(keyAnswer, answer)
	put(keyThought, thought)
	u.put(keyTotal, strconv.AppendInt(nil, max(t.prompt, 0)+max(t.tool, 0)+answer+thought, 10))
	return append(append(dst, `,"usageMetadata":`...), u.done()...)
}
