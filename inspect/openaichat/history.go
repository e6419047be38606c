package openaichat

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

// roles are the roles that are known. A function is one that was called in the
// form before tool_calls.
var roles = map[string]role{"system": roleSystem, "developer": roleSystem, "user": roleUser,
	"assistant": roleAssistant, "tool": roleResult, "function": roleResult}

var roleWords = strictjson.Keys("system", "developer", "user", "assistant", "tool", "function")

// message is one message of a history, read as far as its members.
type message struct {
	at   rawjson.Span
	role role
	// content, calls (tool_calls), legacy (function_call) and answers
	// (tool_call_id) are values; one that is not there is empty.
	content, calls, legacy, answers rawjson.Span
}

// messageKeys and entryKeys are the members of a message and of a call that are
// looked at. One that stands twice, by any spelling, says two things to two
// readers.
var (
	messageKeys = strictjson.Keys("role", "content", "tool_calls", "function_call", "tool_call_id")
	entryKeys   = strictjson.Keys("id", "function", "custom")
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
		case "tool_calls":
			slot = &m.calls
		case "function_call":
			slot = &m.legacy
		case "tool_call_id":
			slot = &m.answers
		default:
			if reason := disguised(b, w.Key, messageKeys); reason != "" {
				return m, at, reason
			}
			continue
		}
		if slot.There() {
			return m, at, fmt.Sprintf("the key %s stands twice", w.Key.In(b))
		}
		*slot = w.Val
	}
	if w.Bad() {
		return m, at, "it is not JSON"
	}
	m.at = rawjson.Span{From: at, To: w.At()}
	m.role, reason = readRole(b, says)
	return m, m.at.To, reason
}

// disguised gives the reason when a key reads like a known one without being it.
func disguised(b []byte, key rawjson.Span, known map[string]string) string {
	for _, c := range key.In(b) {
		if c >= 0x80 || c == '\\' || 'A' <= c && c <= 'Z' {
			if exact, ok := known[strictjson.Fold(rawjson.KeyText(b, key))]; ok {
				return fmt.Sprintf("the key %q reads like %s and is not written so", key.In(b), exact)
			}
			return ""
		}
	}
	return ""
}

func readRole(b []byte, s rawjson.Span) (role, string) {
	if !rawjson.IsString(b, s) {
		return roleOther, "it has no role"
	}
	if r, ok := roles[string(b[s.From+1:s.To-1])]; ok {
		return r, ""
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
type entry struct {
	at, id, function, custom rawjson.Span
}

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
		case "custom":
			slot = &e.custom
		default:
			if reason := disguised(b, w.Key, entryKeys); reason != "" {
				return e, "in a call of it " + reason
			}
			continue
		}
		if slot.There() {
			return e, fmt.Sprintf("in a call of it the key %s stands twice", w.Key.In(b))
		}
		*slot = w.Val
	}
	if w.Bad() {
		return e, "a call in it is not JSON"
	}
	if !rawjson.Null(b, e.id) && !rawjson.IsString(b, e.id) {
		return e, "the id of a call in it is no text"
	}
	return e, ""
}

// eachCall gives the calls of an answer in order. In the form before tool_calls
// there is one, and nothing of it but its function.
func (m *message) eachCall(b []byte, give func(entry)) (reason string) {
	if !rawjson.Null(b, m.calls) {
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
	}
	if !rawjson.Null(b, m.legacy) {
		if !rawjson.IsObject(b, m.legacy) {
			return "its function_call is not an object"
		}
		give(entry{at: m.legacy, function: m.legacy})
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
	args  []byte
	shown []digest.Digest // of the units, as far as said tells
	said  []bool
	all   []digest.Digest // what is before each unit, as far as asked for
	chain digest.Digest   // of the messages before at, and whether there are any
	some  bool
	at    int
}

// maxMessages and maxCalls are how much of a conversation is kept track of. No
// model has room for as many; a body of nothing else would need many times its
// size.
const (
	maxMessages = 1 << 16
	maxCalls    = 1 << 16
)

// run is a run of messages or bytes, the last one excluded.
type run struct{ from, to int }

var _ inspect.History = (*history)(nil)

// History walks the conversation in the body.
func (r *request) History() (inspect.History, error) {
	b := r.body
	if !rawjson.IsArray(b, r.messages) {
		return nil, refused("messages", "it is not a list")
	}
	h := &history{b: b}
	var ids []string
	first, open := 0, false // first id of the unit that the walk is in
	behind := false         // results stand since the last answer: what a client puts behind them is no new task
	shut := func() {
		if u := &h.units[len(h.units)-1]; len(ids) > first {
			u.Calls = ids[first:len(ids):len(ids)]
		}
		open = false
	}
	give := func(e entry) { ids = append(ids, rawjson.Text(b, e.id)) }
	i := rawjson.Space(b, r.messages.From+1)
	for n := 0; i < len(b) && (n > 0 || b[i] != ']'); n++ {
		m, end, reason := readMessage(b, i)
		if reason == "" && m.role == roleAssistant {
			if !open {
				h.units, h.runs = append(h.units, inspect.Unit{}), append(h.runs, run{from: n})
				first, open = len(ids), true
			}
			h.runs[len(h.runs)-1].to = n + 1
			reason = m.eachCall(b, give)
		} else if open {
			shut()
		}
		if reason != "" {
			return nil, refused(fmt.Sprintf("messages.%d", n), reason)
		}
		if n == maxMessages || len(ids) > maxCalls {
			return nil, &inspect.Error{Dialect: name, Where: "messages", Limit: true,
				Reason: fmt.Sprintf("there are more than %d of them, or more than %d calls in them", maxMessages, maxCalls)}
		}
		switch {
		case m.role == roleAssistant:
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
	if open {
		shut()
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

// Shown is the digest of what a unit says.
func (h *history) Shown(i int) digest.Digest {
	if h.said == nil {
		h.said, h.shown = make([]bool, len(h.units)), make([]digest.Digest, len(h.units))
	}
	if !h.said[i] {
		unit := h.messages[h.runs[i].from:h.runs[i].to]
		h.w.Part(digest.Text)
		for j := range unit {
			h.text(unit[j].content)
		}
		for j := range unit {
			// The walk has read these calls already.
			_ = unit[j].eachCall(h.b, h.call)
		}
		h.shown[i], h.said[i] = h.w.Sum(), true
	}
	return h.shown[i]
}

// text adds a content to a digest: a text, or the parts of it that are text.
// What refuses and what thinks stands in other members.
func (h *history) text(content rawjson.Span) {
	if !rawjson.IsArray(h.b, content) {
		h.w.String(content.In(h.b))
		return
	}
	for w := rawjson.Open(h.b, content); w.Next(); {
		if p := readPart(h.b, w.Val); p.text.There() {
			h.w.String(p.text.In(h.b))
		}
	}
}

// segment is one part of a content.
type segment struct {
	text  rawjson.Span // of a part that is text
	cache rawjson.Span // the whole member that marks it for a cache
	mark  rawjson.Span // the marker in it
}

func readPart(b []byte, s rawjson.Span) (p segment) {
	if rawjson.IsString(b, s) {
		p.text = s
		return p
	}
	var text rawjson.Span
	var is bool
	for w := rawjson.Open(b, s); w.Next(); {
		switch string(w.Key.In(b)) {
		case "type":
			is = rawjson.Text(b, w.Val) == "text"
		case "text":
			text = w.Val
		case "cache_control":
			p.cache, p.mark = w.Item, w.Val
		}
	}
	if is && rawjson.IsString(b, text) {
		p.text = text
	}
	return p
}

// call adds a call to a digest.
func (h *history) call(e entry) {
	def, input, free := e.function, "arguments", false
	if rawjson.Null(h.b, def) {
		def, input, free = e.custom, "input", true
	}
	h.w.Part(digest.Call)
	h.w.String(rawjson.Get(h.b, def, "name").In(h.b))
	args := rawjson.Get(h.b, def, input)
	if !rawjson.IsString(h.b, args) {
		// Some servers give arguments as they are.
		addArgs(&h.w, args.In(h.b), false)
		return
	}
	h.args = strictjson.AppendString(h.args[:0], args.In(h.b))
	addArgs(&h.w, h.args, free)
}

// addArgs adds the arguments of a call to a digest: the words in them, or all
// of it where they are free text or not JSON.
func addArgs(w *digest.Writer, args []byte, free bool) {
	w.Part(digest.Args)
	if !free && strictjson.Validate(args, strictjson.Options{Surrogates: true}) == nil {
		w.Strings(args)
		return
	}
	w.Plain(string(args))
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
		return h.Shown(h.unitOf(i, j))
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

// unitOf finds the unit before unit i that message j belongs to.
func (h *history) unitOf(i, j int) int {
	for i--; h.runs[i].from > j; i-- {
	}
	return i
}

// say adds what others than the assistant say.
func (h *history) say(m *message) {
	kind := digest.User
	if m.role == roleResult {
		kind = digest.Result
	}
	h.w.Part(kind)
	h.text(m.content)
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
