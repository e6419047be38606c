package openaichat

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
	a.raw, a.refusals = raw, r.Refusals
	if reason := a.read(); reason != "" {
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
		e, by := a.calls[f.Call], "id"
		key := e.id
		if e.at == a.m.legacy {
			key, by = rawjson.Get(raw, e.function, "name"), "name"
		}
		if !rawjson.IsString(raw, key) || key.Len() == 2 {
			return a, fmt.Sprintf("call %d has no %s to answer it by", f.Call, by)
		}
	}
	if !unbind {
		return a, ""
	}
	if edits := unbound(raw, &a.m); len(edits) > 0 {
		if !worth(raw, &a.m, spoken(raw, a.m.content), len(a.calls) > 0) {
			return answer{}, ""
		}
		a.raw = rawjson.Apply(nil, raw, edits)
		if reason := a.read(); reason != "" {
			return a, reason
		}
	}
	return a, ""
}

func (a *answer) read() (reason string) {
	a.calls = a.calls[:0]
	if a.m, _, reason = readMessage(a.raw, 0); reason != "" {
		return reason
	}
	if a.m.role != roleAssistant {
		return "it is not of the assistant"
	}
	return a.m.eachCall(a.raw, func(e entry) { a.calls = append(a.calls, e) })
}

func (a *answer) there() bool { return a.raw != nil }

// refusal gives the message that answers a withheld call.
func (a *answer) refusal(f inspect.Refusal) []byte {
	e := a.calls[f.Call]
	dst := []byte(`{"role":"tool","tool_call_id":`)
	key := e.id
	if e.at == a.m.legacy {
		dst = []byte(`{"role":"function","name":`)
		key = rawjson.Get(a.raw, e.function, "name")
	}
	text := f.Text
	if strings.TrimSpace(text) == "" {
		text = inspect.NoReason
	}
	dst = append(append(dst, key.In(a.raw)...), `,"content":`...)
	return append(appendQuoted(dst, text), '}')
}

// wordless gives the message with nothing but its calls, nil when it has none.
func (a *answer) wordless() []byte {
	if len(a.calls) == 0 {
		return nil
	}
	dst := []byte(`{"role":"assistant","content":null`)
	if rawjson.Nested(a.raw, a.m.calls) {
		dst = append(append(dst, `,"tool_calls":`...), a.m.calls.In(a.raw)...)
	}
	if rawjson.IsObject(a.raw, a.m.legacy) {
		dst = append(append(dst, `,"function_call":`...), a.m.legacy.In(a.raw)...)
	}
	return append(dst, '}')
}

// thoughts are the members of an answer that hold thinking, some of it signed
// or sealed by the provider and bound to what stands before it.
var thoughts = map[string]bool{"reasoning": true, "reasoning_content": true, "reasoning_details": true,
	"reasoning_text": true, "reasoning_opaque": true, "thinking_blocks": true}

// unbound gives the edits that take thinking out of an answer, and what binds
// its calls to it.
func unbound(b []byte, m *message) []rawjson.Edit {
	edits := cutMembers(b, m.at, func(key string) bool { return thoughts[key] })
	if rawjson.IsArray(b, m.calls) {
		for w := rawjson.Open(b, m.calls); w.Next(); {
			edits = append(edits, cutMembers(b, w.Val, func(key string) bool { return key == "extra_content" })...)
		}
	}
	return edits
}

// cutMembers gives the edits that take members out of an object.
func cutMembers(b []byte, object rawjson.Span, gone func(key string) bool) []rawjson.Edit {
	var out []rawjson.Span
	for w := rawjson.Open(b, object); w.Next(); {
		if gone(rawjson.KeyText(b, w.Key)) {
			out = append(out, w.Item)
		}
	}
	if len(out) == 0 {
		return nil
	}
	edits, _ := cut(b, object, out)
	return edits
}

// cut takes items out of an object or array. They are in the order in which
// they stand there.
func cut(b []byte, holder rawjson.Span, out []rawjson.Span) (edits []rawjson.Edit, left int) {
	return rawjson.Cut(b, holder, func(item rawjson.Span) bool {
		if len(out) == 0 || out[0] != item {
			return false
		}
		out = out[1:]
		return true
	})
}

// spoken reports whether a content says anything.
func spoken(b []byte, content rawjson.Span) bool {
	if rawjson.IsString(b, content) {
		return strings.TrimSpace(rawjson.Text(b, content)) != ""
	}
	return rawjson.Nested(b, content)
}

// worth reports whether anything is left of an answer that a provider would
// take. Of its content and its calls the caller knows.
func worth(b []byte, m *message, content, calls bool) bool {
	return content || calls || !rawjson.Null(b, rawjson.Get(b, m.at, "audio")) ||
		spoken(b, rawjson.Get(b, m.at, "refusal"))
}

// join appends one more item of a list.
func join(list, item []byte) []byte {
	if len(list) > 0 {
		list = append(list, ',')
	}
	return append(list, item...)
}
