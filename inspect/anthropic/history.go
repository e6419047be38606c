package anthropic

import (
	"slices"
	"strconv"

	"callgate/inspect"
	"callgate/inspect/digest"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
)

// conversation is a walk over the messages of a request. It holds places in
// the body and no blocks: those are read again where they are wanted.
type conversation struct {
	b    []byte
	top  outline
	said []pastMessage
	// units are the answers, and runs the messages that each consists of.
	// The run of an answer that the provider holds is empty.
	units []inspect.Unit
	runs  []run

	w     digest.Writer
	shown map[int]digest.Digest // of units, as far as asked for
	all   []digest.Digest       // of what stands before each unit, likewise
}

var _ inspect.History = (*conversation)(nil)

// outline holds where the values of a request's top level stand, as far as
// changing its history has to do with them.
type outline struct {
	messages, system, tools, toolChoice, thinking, context, thread rawjson.Span
	// previous is the id of the answer that the provider holds.
	previous rawjson.Span
}

var outlineKeys = strictjson.Keys("messages", "system", "tools", "tool_choice", "thinking", "context_management", "thread")

// pastMessage is one message of the history.
type pastMessage struct {
	item, content rawjson.Span
	by            speaker
	has           traits
}

// speaker is the role of a message.
type speaker uint8

const (
	bySystem speaker = iota + 1
	byUser
	byAssistant
)

// traits are what is known of a message's blocks.
type traits uint8

const (
	hasThinking    traits = 1 << iota
	hasMark               // a block with cache_control
	hasWords              // a block that is no result of a call
	startsByResult        // the first block is the result of a call
	hasResult             // some block is
)

// run is a range of messages: from its first to behind its last.
type run struct{ from, to int }

// History walks over the messages once. What cannot be walked in one way only
// is an error.
func (r *request) History() (inspect.History, error) {
	h, err := converse(r.body)
	if err != nil {
		return nil, err
	}
	return h, nil
}

func converse(body []byte) (*conversation, error) {
	h := &conversation{b: body}
	c := &cursor{b: body}
	h.topLevel(c)
	if c.err == nil {
		if c.i = rawjson.Space(c.b, c.i); c.i != len(body) {
			c.broken()
		}
	}
	if c.err == nil && rawjson.IsObject(body, h.top.thread) {
		h.held(c)
	}
	if c.err != nil {
		return nil, c.err
	}
	return h, nil
}

func (h *conversation) topLevel(c *cursor) {
	where := func() string { return "request" }
	for c.enter('{'); c.next('}'); {
		switch key := c.key(); string(key) {
		case "messages":
			if h.top.messages.There() {
				c.take(where, "messages", &h.top.messages)
				continue
			}
			from := c.i
			h.messages(c)
			h.top.messages = rawjson.Span{From: from, To: c.i}
		case "system":
			c.take(where, "system", &h.top.system)
		case "tools":
			c.take(where, "tools", &h.top.tools)
		case "tool_choice":
			c.take(where, "tool_choice", &h.top.toolChoice)
		case "thinking":
			c.take(where, "thinking", &h.top.thinking)
		case "context_management":
			c.take(where, "context_management", &h.top.context)
		case "thread":
			c.take(where, "thread", &h.top.thread)
		default:
			c.other(where, key, outlineKeys)
		}
	}
	if !h.top.messages.There() {
		c.fail("messages", "there are none; an array of messages is wanted")
	}
}

// held puts the answer that the provider holds before all others.
func (h *conversation) held(c *cursor) {
	m, reason := fields(h.b, h.top.thread, "type", "previous_message_id")
	if reason != "" {
		c.fail("thread", reason)
		return
	}
	if rawjson.Text(h.b, m[0]) != "continue" {
		return
	}
	answer := rawjson.Text(h.b, m[1])
	if answer == "" {
		c.fail("thread.previous_message_id", "the id of the message to go on from is missing")
		return
	}
	h.top.previous = m[1]
	h.units = slices.Insert(h.units, 0, inspect.Unit{Answer: answer, Calls: h.answered()})
	h.runs = slices.Insert(h.runs, 0, run{})
}

// answered gives the ids of the calls whose results come first in the request.
func (h *conversation) answered() (ids []string) {
	if len(h.said) == 0 {
		return nil
	}
	for _, k := range blocksOf(h.b, h.said[0].content) {
		if k.kind == pastResult {
			ids = append(ids, rawjson.Text(h.b, k.of))
		}
	}
	return ids
}

// fields gives the values of an object's members with these names, and why it
// cannot be read one way only.
func fields(b []byte, object rawjson.Span, names ...string) (vals []rawjson.Span, reason string) {
	c := cursor{b: b, i: object.From}
	known := strictjson.Keys(names...)
	vals = make([]rawjson.Span, len(names))
	where := func() string { return "" }
	for c.enter('{'); c.next('}'); {
		key := c.key()
		if k := slices.Index(names, string(key)); k >= 0 {
			c.take(where, names[k], &vals[k])
			continue
		}
		c.other(where, key, known)
	}
	if c.err != nil {
		return nil, c.err.Reason
	}
	return vals, ""
}

func (h *conversation) messages(c *cursor) {
	if c.at() != '[' {
		c.fail("messages", "an array of messages is wanted")
		return
	}
	for c.enter('['); c.next(']'); {
		var ids []string
		m := readMessage(c, len(h.said), &ids)
		if c.err != nil {
			return
		}
		n := len(h.said)
		h.said = append(h.said, m)
		if m.by != byAssistant {
			continue
		}
		if n == 0 || h.said[n-1].by != byAssistant {
			h.units = append(h.units, inspect.Unit{})
			h.runs = append(h.runs, run{n, n})
		}
		last := len(h.units) - 1
		h.runs[last].to = n + 1
		h.units[last].Calls = append(h.units[last].Calls, ids...)
	}
}

var pastMessageKeys = strictjson.Keys("role", "content")

// readMessage reads the message that the cursor stands at, and adds the ids of
// its calls.
func readMessage(c *cursor, n int, ids *[]string) (m pastMessage) {
	where := func() string { return "messages." + strconv.Itoa(n) }
	if c.at() != '{' {
		c.fail(where(), "a message must be an object")
		return m
	}
	m.item.From = c.i
	var role rawjson.Span
	for c.enter('{'); c.next('}'); {
		switch key := c.key(); string(key) {
		case "role":
			c.take(where, "role", &role)
		case "content":
			if m.content.There() {
				c.take(where, "content", &m.content)
				continue
			}
			m.content.From = c.i
			readContent(c, n, &m, ids)
			m.content.To = c.i
		default:
			c.other(where, key, pastMessageKeys)
		}
	}
	if c.err != nil {
		return m
	}
	m.item.To = c.i
	switch rawjson.Text(c.b, role) {
	case "user":
		m.by = byUser
	case "assistant":
		m.by = byAssistant
	case "system":
		m.by = bySystem
	default:
		c.fail(where()+".role", "it must be user or assistant")
	}
	if !m.content.There() {
		c.fail(where()+".content", "it must be a text or an array of blocks")
	}
	return m
}

func readContent(c *cursor, n int, m *pastMessage, ids *[]string) {
	switch c.at() {
	case '"':
		m.has |= hasWords
		c.value()
		return
	case '[':
	default:
		c.fail("messages."+strconv.Itoa(n)+".content", "it must be a text or an array of blocks")
		return
	}
	k := 0
	for c.enter('['); c.next(']'); k++ {
		block := readBlock(c, func() string {
			return "messages." + strconv.Itoa(n) + ".content." + strconv.Itoa(k)
		})
		if block.mark.There() {
			m.has |= hasMark
		}
		if block.kind != pastResult {
			m.has |= hasWords
		}
		switch block.kind {
		case pastThinking:
			m.has |= hasThinking
		case pastResult:
			m.has |= hasResult
			if k == 0 {
				m.has |= startsByResult
			}
		case pastUse:
			*ids = append(*ids, rawjson.Text(c.b, block.id))
		}
	}
}

// pastBlock is one block of a message: where its members stand.
type pastBlock struct {
	item, text, id, of, name, input, content, mark rawjson.Span
	kind                                           pastKind
}

type pastKind uint8

const (
	pastOther pastKind = iota // hosted calls and their results, images, and so on
	pastText
	pastUse
	pastResult
	pastThinking // whether it can be read or not
)

var pastBlockKeys = strictjson.Keys("type", "text", "id", "tool_use_id", "name", "input", "content", "cache_control")

func readBlock(c *cursor, where func() string) (k pastBlock) {
	if c.at() != '{' {
		c.fail(where(), "a block must be an object")
		return k
	}
	k.item.From = c.i
	var typ rawjson.Span
	for c.enter('{'); c.next('}'); {
		switch key := c.key(); string(key) {
		case "type":
			c.take(where, "type", &typ)
		case "text":
			c.take(where, "text", &k.text)
		case "id":
			c.take(where, "id", &k.id)
		case "tool_use_id":
			c.take(where, "tool_use_id", &k.of)
		case "name":
			c.take(where, "name", &k.name)
		case "input":
			c.take(where, "input", &k.input)
		case "content":
			c.take(where, "content", &k.content)
		case "cache_control":
			c.take(where, "cache_control", &k.mark)
		default:
			c.other(where, key, pastBlockKeys)
		}
	}
	if c.err != nil {
		return k
	}
	k.item.To = c.i
	if k.kind = pastKindOf(c.b, typ); !rawjson.IsString(c.b, typ) {
		c.fail(where(), "a block must say its type")
	}
	if rawjson.Null(c.b, k.mark) {
		k.mark = rawjson.Span{}
	}
	return k
}

func pastKindOf(b []byte, typ rawjson.Span) pastKind {
	// Compared without building the text, which hardly ever has escapes.
	switch string(typ.In(b)) {
	case `"text"`:
		return pastText
	case `"tool_use"`:
		return pastUse
	case `"tool_result"`:
		return pastResult
	case `"thinking"`, `"redacted_thinking"`:
		return pastThinking
	}
	switch rawjson.Text(b, typ) {
	case "text":
		return pastText
	case "tool_use":
		return pastUse
	case "tool_result":
		return pastResult
	case "thinking", "redacted_thinking":
		return pastThinking
	}
	return pastOther
}

// blocksOf gives the blocks of a content that has been read before. A content
// that is a text is one block of text, whose item is the text itself.
func blocksOf(b []byte, content rawjson.Span) (list []pastBlock) {
	if rawjson.IsString(b, content) {
		return []pastBlock{{item: content, text: content, kind: pastText}}
	}
	c := cursor{b: b, i: content.From}
	for c.enter('['); c.next(']'); {
		k := readBlock(&c, func() string { return "" })
		if c.err != nil {
			return list
		}
		list = append(list, k)
	}
	return list
}

// Units gives the answers in the history.
func (h *conversation) Units() []inspect.Unit { return h.units }

// Shown is the digest of an answer. That of an answer which the provider holds
// is not known, and zero.
func (h *conversation) Shown(i int) digest.Digest {
	if h.units[i].Answer != "" {
		return digest.Digest{}
	}
	if d, ok := h.shown[i]; ok {
		return d
	}
	contents := make([]rawjson.Span, 0, 1)
	for _, m := range h.said[h.runs[i].from:h.runs[i].to] {
		contents = append(contents, m.content)
	}
	if h.shown == nil {
		h.shown = map[int]digest.Digest{}
	}
	h.shown[i] = shownDigest(&h.w, h.b, contents...)
	return h.shown[i]
}

// shownDigest is the digest of what an answer with these contents says: all
// its text, and then its calls. Thinking, and what the provider ran itself, is
// left out: clients trim them.
func shownDigest(w *digest.Writer, b []byte, contents ...rawjson.Span) digest.Digest {
	w.Part(digest.Text)
	var uses []pastBlock
	for _, content := range contents {
		for _, k := range blocksOf(b, content) {
			switch k.kind {
			case pastText:
				w.String(k.text.In(b))
			case pastUse:
				uses = append(uses, k)
			}
		}
	}
	for _, k := range uses {
		w.Part(digest.Call)
		w.String(k.name.In(b))
		w.Part(digest.Args)
		w.Strings(k.input.In(b))
	}
	return w.Sum()
}

// goesOn reports whether an answer to this request goes on with its last unit
// rather than being a unit of its own.
func (h *conversation) goesOn() bool {
	n := len(h.said)
	return n > 0 && h.said[n-1].by == byAssistant
}

// Last is the digest of the last message before unit i that is not the
// system's.
func (h *conversation) Last(i int) digest.Digest {
	if i == len(h.units) && h.goesOn() {
		i--
	}
	end := len(h.said)
	if i < len(h.units) {
		end = h.runs[i].from
	}
	for k := end - 1; k >= 0; k-- {
		if h.said[k].by != bySystem {
			h.others(run{k, k + 1})
			break
		}
	}
	return h.w.Sum()
}

// All is the digest of all messages before unit i. Each one is built on the
// one before, so that asking for all of them reads the history once.
func (h *conversation) All(i int) digest.Digest {
	if i == len(h.units) && h.goesOn() {
		i--
	}
	for k := len(h.all); k <= i; k++ {
		between := run{0, len(h.said)}
		if k < len(h.units) {
			between.to = h.runs[k].from
		}
		if k > 0 {
			between.from = h.runs[k-1].to
			shown := h.Shown(k - 1)
			h.w.Digest(h.all[k-1])
			h.w.Digest(shown)
			h.w.Plain(h.units[k-1].Answer)
		}
		h.others(between)
		h.all = append(h.all, h.w.Sum())
	}
	return h.all[i]
}

// others adds what those besides the assistant say in the messages. How their
// words are cut into messages and blocks does not count.
func (h *conversation) others(r run) {
	speaks := false
	words := func() {
		if !speaks {
			h.w.Part(digest.User)
		}
		speaks = true
	}
	for _, m := range h.said[r.from:r.to] {
		if m.by == bySystem {
			continue
		}
		for _, k := range blocksOf(h.b, m.content) {
			switch k.kind {
			case pastText:
				words()
				h.w.String(k.text.In(h.b))
			case pastResult:
				h.w.Part(digest.Result)
				speaks = false
				h.result(k.content)
			default:
				words()
				h.unmarked(k.item)
			}
		}
	}
}

// result adds what a call gave: a text, or blocks.
func (h *conversation) result(content rawjson.Span) {
	if rawjson.IsString(h.b, content) {
		h.w.String(content.In(h.b))
		return
	}
	for w := rawjson.Open(h.b, content); w.Next(); {
		if text := rawjson.Get(h.b, w.Val, "text"); rawjson.IsString(h.b, text) {
			h.w.String(text.In(h.b))
			continue
		}
		h.unmarked(w.Val)
	}
}

// unmarked adds the words of a block of another kind without its marker for a
// cache.
func (h *conversation) unmarked(block rawjson.Span) {
	for w := rawjson.Open(h.b, block); w.Next(); {
		if !w.Is("cache_control") {
			h.w.Strings(w.Val.In(h.b))
		}
	}
}

// Task is the first unit behind the user's last words. Where the history holds
// no words of a user, all of it is the task.
func (h *conversation) Task() int {
	for k := len(h.said) - 1; k >= 0; k-- {
		if m := h.said[k]; m.by != byUser || m.has&hasWords == 0 || m.has&hasResult != 0 {
			continue // what clients put beside results is no new task
		}
		for i, r := range h.runs {
			if r.from > k {
				return i
			}
		}
		return len(h.units)
	}
	return 0
}
