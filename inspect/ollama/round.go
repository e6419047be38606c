package ollama

import (
	"bytes"
	"fmt"
	"strings"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
)

// answer is a round whose message was read.
type answer struct {
	raw      []byte // the message, nil where nothing of the round can be put back
	m        message
	calls    []entry
	refusals []inspect.Refusal
}

// readRound reads a round, its thinking left out or not. The message is the
// provider's own, so what does not fit is a fault of the record: nothing of it
// is then put anywhere.
func readRound(r inspect.Round, unbind bool) (a answer, reason string) {
	raw := bytes.TrimSpace(r.Message)
	if len(raw) == 0 {
		if len(r.Calls)+len(r.Refusals) > 0 {
			return a, "it has calls and no message"
		}
		return a, ""
	}
	if err := strictjson.Object(raw, strictjson.Options{Surrogates: true}); err != nil {
		return a, "its message cannot be read: " + err.Error()
	}
	if unbind {
		raw = thoughtless(raw)
	}
	a.raw, a.refusals = raw, r.Refusals
	if a.m, _, reason = readMessage(raw, 0); reason == "" && a.m.role != roleAssistant {
		reason = "it is not of the assistant"
	}
	if reason == "" {
		reason = a.m.eachCall(raw, func(e entry) { a.calls = append(a.calls, e) })
	}
	if reason != "" {
		return a, "its message cannot be used: " + reason
	}
	if len(a.calls) != len(r.Calls) {
		return a, fmt.Sprintf("its message has %d calls and not %d", len(a.calls), len(r.Calls))
	}
	for i, e := range a.calls {
		if id := rawjson.Text(raw, e.id); id != r.Calls[i] {
			return a, fmt.Sprintf("call %d of its message has the id %q and not %q", i, id, r.Calls[i])
		}
	}
	for i, f := range r.Refusals {
		if f.Call < 0 || f.Call >= len(a.calls) || i > 0 && f.Call <= r.Refusals[i-1].Call {
			return a, fmt.Sprintf("refusal %d is of call %d, which is not there or not in order", i, f.Call)
		}
		if a.tool(f.Call).Len() <= 2 {
			return a, fmt.Sprintf("call %d has no name to answer it by", f.Call)
		}
	}
	if unbind && len(a.calls) == 0 && !spoken(raw, a.m.content) {
		return answer{}, "" // it was thinking alone
	}
	return a, ""
}

// thoughtless gives a message without its thinking.
func thoughtless(raw []byte) []byte {
	edits, _ := rawjson.Cut(raw, rawjson.All(raw), thinking(raw, rawjson.All(raw)))
	return rawjson.Apply(nil, raw, edits)
}

// thinking tells the members of a message that hold thinking.
func thinking(b []byte, object rawjson.Span) func(rawjson.Span) bool {
	var gone []rawjson.Span
	for w := rawjson.Open(b, object); w.Next(); {
		if w.Is("thinking") {
			gone = append(gone, w.Item)
		}
	}
	return func(item rawjson.Span) bool { return len(gone) > 0 && gone[0] == item }
}

func (a *answer) there() bool { return a.raw != nil }

// tool is the name of the tool of a call.
func (a *answer) tool(i int) rawjson.Span {
	at := rawjson.Get(a.raw, a.calls[i].function, "name")
	if !rawjson.IsString(a.raw, at) {
		return rawjson.Span{}
	}
	return at
}

// refusal gives the message that answers a withheld call.
func (a *answer) refusal(f inspect.Refusal) []byte {
	dst := []byte(`{"role":"tool","tool_name":`)
	dst = append(dst, a.tool(f.Call).In(a.raw)...)
	if id := a.calls[f.Call].id; rawjson.IsString(a.raw, id) && id.Len() > 2 {
		dst = append(append(dst, `,"tool_call_id":`...), id.In(a.raw)...)
	}
	text := f.Text
	if strings.TrimSpace(text) == "" {
		text = inspect.NoReason
	}
	return append(appendQuoted(append(dst, `,"content":`...), text), '}')
}

// answered appends the refusals of a round to a list of messages.
func (a *answer) answered(list []byte) []byte {
	for _, f := range a.refusals {
		list = join(list, a.refusal(f))
	}
	return list
}

// wordless gives the message with nothing but its calls, nil when it has none.
func (a *answer) wordless() []byte {
	if len(a.calls) == 0 {
		return nil
	}
	dst := append([]byte(`{"role":"assistant","content":"","tool_calls":`), a.m.calls.In(a.raw)...)
	return append(dst, '}')
}

// spoken reports whether a content says anything.
func spoken(b []byte, content rawjson.Span) bool {
	return strings.TrimSpace(rawjson.Text(b, content)) != ""
}

// join appends one more item of a list.
func join(list, item []byte) []byte {
	if len(list) > 0 {
		list = append(list, ',')
	}
	return append(list, item...)
}
