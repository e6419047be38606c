package ollama

import (
	"fmt"

	"callgate/inspect"
	"callgate/inspect/digest"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
)

// role is who speaks in a message, as far as it matters.
type role uint8

const (
	roleOther role = iota // one that is not known: somebody who is not the assistant
	roleSystem
	roleUser
	roleAssistant
	roleResult
)

var roles = map[string]role{"system": roleSystem, "user": roleUser, "assistant": roleAssistant, "tool": roleResult}

// roleWords are the roles by their folded form: Ollama makes letters small.
var roleWords = strictjson.Keys("system", "user", "assistant", "tool")

// message is one message of a history, read as far as its members. A value that
// is not there is empty.
type message struct {
	at                       rawjson.Span
	role                     role
	content, thinking, calls rawjson.Span
	answers, tool            rawjson.Span // tool_call_id and tool_name
}

// pastKeys and callKeys are the members of a message and of a call that are
// looked at. One that stands twice, by any spelling, says two things to two
// readers.
var (
	pastKeys = strictjson.Keys("role", "content", "thinking", "tool_calls", "tool_call_id", "tool_name")
	callKeys = strictjson.Keys("id", "function")
)

// readMessage reads the message that starts at a place, and gives its end. The
// reason says what is wrong with it, "" for nothing.
func readMessage(b []byte, at int) (m message, end int, reason string) {
	if at >= len(b) || b[at] != '{' {
		return m, at, "it is not an object"
	}
	var says rawjson.Span
	w := rawjson.Open(b, rawjson.Span{From: at, To: len(b)})
	for w.Next() {
		var slot *rawjson.Span
		switch string(w.Key.In(b)) {
		case "role":
			slot = &says
		case "content":
			slot = &m.content
		case "thinking":
			slot = &m.thinking
		case "tool_calls":
			slot = &m.calls
		case "tool_call_id":
			slot = &m.answers
		case "tool_name":
			slot = &m.tool
		}
		if reason := fill(b, &w, slot, pastKeys); reason != "" {
			return m, at, reason
		}
	}
	if w.Bad() {
		return m, at, "it is not JSON"
	}
	m.at = rawjson.Span{From: at, To: w.At()}
	m.role, reason = readRole(b, says)
	return m, m.at.To, reason
}

// fill puts the value of a member where it belongs; one that belongs nowhere must
// not read like one that is known.
func fill(b []byte, w *rawjson.Walk, slot *rawjson.Span, known map[string]string) (reason string) {
	if slot == nil {
		return disguised(b, w.Key, known)
	}
	if slot.There() {
		return fmt.Sprintf("the key %s stands twice", w.Key.In(b))
	}
	*slot = w.Val
	return ""
}

func readRole(b []byte, s rawjson.Span) (role, string) {
	if !rawjson.IsString(b, s) {
		return roleOther, "it has no role"
	}
	word := rawjson.Text(b, s)
	if r, ok := roles[word]; ok {
		return r, ""
	}
	if like, ok := roleWords[strictjson.Fold(word)]; ok {
		return roleOther, fmt.Sprintf("its role %q reads like %s and is not written so", word, like)
	}
	return roleOther, ""
}

// entry is one call of a message.
type entry struct{ at, id, function rawjson.Span }

func readEntry(b []byte, s rawjson.Span) (e entry, reason string) {
	if !rawjson.IsObject(b, s) {
		return e, "a call in it is not an object"
	}
	e.at = s
	w := rawjson.Open(b, s)
	for w.Next() {
		var slot *rawjson.Span
		switch string(w.Key.In(b)) {
		case "id":
			slot = &e.id
		case "function":
			slot = &e.function
		}
		if reason := fill(b, &w, slot, callKeys); reason != "" {
			return e, "in a call of it: " + reason
		}
	}
	if w.Bad() {
		return e, "a call in it is not JSON"
	}
	if !rawjson.Null(b, e.id) && !rawjson.IsString(b, e.id) {
		return e, "the id of a call in it is no text"
	}
	return e, ""
}

// eachCall gives the calls of an answer in order.
func (m *message) eachCall(b []byte, give func(entry)) (reason string) {
	if rawjson.Null(b, m.calls) {
		return ""
	}
	if !rawjson.IsArray(b, m.calls) {
		return "its tool_calls are no list"
	}
	w := rawjson.Open(b, m.calls)
	for w.Next() {
		e, reason := readEntry(b, w.Val)
		if reason != "" {
			return reason
		}
		give(e)
	}
	if w.Bad() {
		return "its tool_calls are not JSON"
	}
	return ""
}

// history is a walk over the messages of a request.
type history struct {
	b        []byte
	messages []message
	units    []inspect.Unit
	runs     []run // where the units stand
	task     int

	w     digest.Writer
	shown map[int]digest.Digest // of the units, as far as asked for
	all   []digest.Digest       // of what is before each unit, likewise
	chain digest.Digest         // of the messages before at, and whether there are any
	some  bool
	at    int
}

// maxMessages and maxCalls are how much of a conversation is kept track of. No
// model has room for as many.
const (
	maxMessages = 1 << 16
	maxCalls    = 1 << 16
)

// run is a run of messages, the last one excluded.
type run struct{ from, to int }

var _ inspect.History = (*history)(nil)

// History walks the conversation in the body.
func (r *request) History() (inspect.History, error) {
	b := r.body
	h := &history{b: b}
	if !r.shape.inside {
		return h, nil // it holds none that could be mended
	}
	if !rawjson.IsArray(b, r.messages) {
		return nil, refused("messages", "it is not a list")
	}
	calls, open := 0, false
	behind := false // results stand since the last answer: what a client puts behind them is no new task
	i := rawjson.Space(b, r.messages.From+1)
	for n := 0; i < len(b) && (n > 0 || b[i] != ']'); n++ {
		m, end, reason := readMessage(b, i)
		if reason == "" && m.role == roleAssistant {
			if !open {
				h.units, h.runs = append(h.units, inspect.Unit{}), append(h.runs, run{from: n})
			}
			last := len(h.units) - 1
			h.runs[last].to = n + 1
			reason = m.eachCall(b, func(e entry) {
				calls++
				h.units[last].Calls = append(h.units[last].Calls, rawjson.Text(b, e.id))
			})
		}
		if reason != "" {
			return nil, refused(fmt.Sprintf("messages.%d", n), reason)
		}
		if n == maxMessages || calls > maxCalls {
			return nil, limit("messages", fmt.Sprintf("there are more than %d of them, or more than %d calls in them", maxMessages, maxCalls))
		}
		open = m.role == roleAssistant
		switch {
		case open:
			behind = false
		case m.role == roleResult:
			behind = true
		case m.role == roleUser && !behind:
			h.task = len(h.units)
		}
		h.messages = append(h.messages, m)
		if i = rawjson.Space(b, end); i < len(b) && b[i] == ']' {
			break
		}
		if i >= len(b) || b[i] != ',' {
			return nil, refused(fmt.Sprintf("messages.%d", n), "no comma and no end is behind it")
		}
		i = rawjson.Space(b, i+1)
	}
	if i+1 != r.messages.To {
		return nil, refused("messages", "it is not JSON")
	}
	return h, nil
}

// Units are the answers in the history.
func (h *history) Units() []inspect.Unit { return h.units }

// Task is the first unit behind the last message of a user, and the first of
// all where no user speaks.
func (h *history) Task() int { return h.task }

// Shown is the digest of what a unit says. Thinking is left out.
func (h *history) Shown(i int) digest.Digest {
	if d, ok := h.shown[i]; ok {
		return d
	}
	unit := h.messages[h.runs[i].from:h.runs[i].to]
	h.w.Part(digest.Text)
	for j := range unit {
		h.w.String(unit[j].content.In(h.b))
	}
	for j := range unit {
		// The walk has read these calls already.
		_ = unit[j].eachCall(h.b, h.call)
	}
	if h.shown == nil {
		h.shown = map[int]digest.Digest{}
	}
	h.shown[i] = h.w.Sum()
	return h.shown[i]
}

// call adds a call to a digest. Arguments are an object; where a client has them
// as text, that of one.
func (h *history) call(e entry) {
	h.w.Part(digest.Call)
	h.w.String(rawjson.Get(h.b, e.function, "name").In(h.b))
	h.w.Part(digest.Args)
	args := rawjson.Get(h.b, e.function, "arguments")
	raw := args.In(h.b)
	if rawjson.IsString(h.b, args) {
		raw = strictjson.AppendString(nil, raw)
	}
	h.w.Strings(raw)
}

// Last is the digest of the message before a unit. Those of the system do not
// count: clients put them in and take them out.
func (h *history) Last(i int) digest.Digest {
	j := h.begin(i) - 1
	for j >= 0 && h.messages[j].role == roleSystem {
		j--
	}
	if j < 0 {
		return h.w.Sum()
	}
	if h.messages[j].role == roleAssistant {
		for i--; h.runs[i].from > j; i-- {
		}
		return h.Shown(i)
	}
	h.say(&h.messages[j])
	return h.w.Sum()
}

// begin is the number of the message that a unit begins with.
func (h *history) begin(i int) int {
	if i < len(h.runs) {
		return h.runs[i].from
	}
	return len(h.messages)
}

// say adds what others than the assistant say.
func (h *history) say(m *message) {
	kind := digest.User
	if m.role == roleResult {
		kind = digest.Result
	}
	h.w.Part(kind)
	h.w.String(m.content.In(h.b))
}

// All is the digest of all messages before a unit, the answers among them as
// Shown has them. Each message is looked at once, however often it is asked for.
func (h *history) All(i int) digest.Digest {
	for len(h.all) <= i {
		u := len(h.all)
		if u > 0 {
			h.link(h.Shown(u - 1))
			h.at = h.runs[u-1].to
		}
		for end := h.begin(u); h.at < end; h.at++ {
			if m := &h.messages[h.at]; m.role != roleSystem {
				h.say(m)
				h.link(h.w.Sum())
			}
		}
		h.all = append(h.all, h.chain)
	}
	return h.all[i]
}

func (h *history) link(d digest.Digest) {
	if h.some {
		h.w.Digest(h.chain)
	}
	h.w.Digest(d)
	h.chain, h.some = h.w.Sum(), true
}
