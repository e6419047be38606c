package anthropic

import (
	"strconv"
	"sync"

	"github.com/tidwall/gjson"

	"callgate/inspect/rawjson"
)

// heard gathers what the provider says in one round, so that it can be put into
// a request. Each piece is copied once, as it is written; what it belongs to is
// put together when somebody asks.
type heard struct {
	said  []byte
	parts []part
	items []saidBlock
	// out is how much of said was shown, while something waits or since the
	// turn was ended early (fixed).
	out   int
	fixed bool
	ours  []aside
	full  bool // too much was said to be told of
}

// hearings is memory that turns use one after the other: nearly all of them end
// with nothing to tell.
var hearings = sync.Pool{New: func() any {
	return &heard{said: make([]byte, 0, 4<<10), parts: make([]part, 0, 32), items: make([]saidBlock, 0, 8)}
}}

// part is a run of said, from the end of the part before.
type part struct {
	block *block
	what  saying
	to    int
}

// saying is the member of a block that a part belongs to.
type saying uint8

const (
	sayStart saying = iota // the block as it starts
	sayText
	sayThinking
	saySignature
	sayCitation
	sayContent
	sayEncrypted
)

// sayings are those of the deltas that the template knows.
var sayings = [...]saying{textDelta: sayText, thinkingDelta: sayThinking, signatureDelta: saySignature, inputDelta: 0}

// runs reports whether further parts of this kind go on with the one before; of
// the others each stands for itself.
func (s saying) runs() bool { return s == sayText || s == sayThinking || s == sayContent }

// aside is a text of ours that was shown behind so much of said.
type aside struct {
	at   int
	text string
}

// forget gives the memory back when the turn is done and nothing is to be told
// of it.
func (t *stream) forget() {
	h := t.heard
	if h == nil || t.silent > 0 || t.noticed || t.rounds > 1 {
		return
	}
	t.heard = nil
	if cap(h.said) <= keptBytes && cap(h.parts) <= keptEntries && cap(h.items) <= keptEntries {
		h.clear()
		hearings.Put(h)
	}
}

// clear makes room for the next round.
func (h *heard) clear() {
	clear(h.parts)
	clear(h.items)
	*h = heard{said: h.said[:0], parts: h.parts[:0], items: h.items[:0]}
}

// hear takes in a piece of a block; text has no quotes.
func (t *stream) hear(b *block, what saying, text []byte) {
	h := t.heard
	if h.full {
		return
	}
	h.said = append(h.said, text...)
	if n := len(h.parts) - 1; n >= 0 && h.parts[n].block == b && h.parts[n].what == what && what.runs() {
		h.parts[n].to = len(h.said)
		return
	}
	h.parts = append(h.parts, part{b, what, len(h.said)})
}

// hearStart takes in the start of a block.
func (t *stream) hearStart(b *block, raw []byte) {
	h := t.heard
	if h.full {
		return
	}
	h.items = append(h.items, saidBlock{block: b, call: b.call})
	if b.call != nil {
		b.call.heard = rawjson.Span{From: len(h.said), To: len(h.said) + len(raw)}
	}
	t.hear(b, sayStart, raw)
}

// deltaSayings are the members of a delta and what they are part of.
var deltaSayings = [...]struct {
	key  key
	what saying
}{{keyText, sayText}, {keyThinking, sayThinking}, {keySignature, saySignature}, {keyContent, sayContent}, {keyEncryptedContent, sayEncrypted}}

// hearDelta takes in a delta that is fit for its block.
func (t *stream) hearDelta(b *block, data []byte, m *members) {
	for _, s := range deltaSayings {
		if v := m[s.key]; rawjson.IsString(data, v) {
			t.hear(b, s.what, data[v.From+1:v.To-1])
		}
	}
	if v := m[keyCitation]; rawjson.IsObject(data, v) {
		t.hear(b, sayCitation, v.In(data))
	}
}

// What keeping a part and an item is charged, beside its text.
const (
	partCost = 24
	itemCost = 40
)

// tooLong bounds what is gathered. What is too long cannot be told of: calls
// are refused in words from then on, and a turn that must be told of ends.
func (t *stream) tooLong() error {
	h := t.heard
	if h == nil || h.full || t.heardSize() <= t.lim.Answer {
		return nil
	}
	h.full = true
	if t.silent > 0 || t.rounds > 1 {
		return t.limit("calls of the answer were withheld, and it is longer than the limit of " + strconv.Itoa(t.lim.Answer) + " bytes")
	}
	return nil
}

// heardSize is how much is gathered, in bytes.
func (t *stream) heardSize() int {
	h := t.heard
	return t.past.size + len(h.said) + len(h.parts)*partCost + len(h.items)*itemCost
}

// kept is heardSize and what waits behind calls.
func (t *stream) kept() int {
	n := len(t.held) + len(t.queue)*entryCost
	if t.heard != nil {
		n += t.heardSize()
	}
	return n
}

// shownUpTo is how much of what was heard was shown.
func (t *stream) shownUpTo() int {
	if h := t.heard; !h.fixed && len(t.queue) == 0 {
		return len(h.said)
	}
	return t.heard.out
}

// own notes a text of ours that is shown now.
func (t *stream) own(text string) {
	if t.heard != nil {
		t.heard.ours = append(t.heard.ours, aside{t.shownUpTo(), text})
	}
}

// pieces are the parts of one block.
type pieces struct {
	start, text, thinking, signature, content, encrypted, citations []byte
}

// blocks gives the blocks of the round as they stand in a request.
func (h *heard) blocks() []saidBlock {
	all := make(map[*block]*pieces, len(h.items))
	from := 0
	for _, p := range h.parts {
		text := h.said[from:p.to]
		from = p.to
		b := all[p.block]
		if b == nil {
			b = &pieces{}
			all[p.block] = b
		}
		switch p.what {
		case sayStart:
			b.start = text
		case sayText:
			b.text = append(b.text, text...)
		case sayThinking:
			b.thinking = append(b.thinking, text...)
		case saySignature:
			b.signature = text // the last one holds
		case sayContent:
			b.content = append(b.content, text...)
		case sayEncrypted:
			b.encrypted = text
		case sayCitation:
			if len(b.citations) > 0 {
				b.citations = append(b.citations, ',')
			}
			b.citations = append(b.citations, text...)
		}
	}
	list := make([]saidBlock, 0, len(h.items))
	for _, item := range h.items {
		if b := all[item.block]; item.block != nil && b != nil {
			item.raw = b.whole(item.block)
		}
		list = append(list, item)
	}
	return list
}

// whole puts a block together.
func (p *pieces) whole(b *block) []byte {
	c := patch{b: p.start, obj: rawjson.Span{To: len(p.start)}}
	c.extend("text", p.text)
	c.extend("thinking", p.thinking)
	c.extend("content", p.content)
	if p.signature != nil {
		c.set("signature", quoted(p.signature))
	}
	if p.encrypted != nil {
		c.set("encrypted_content", quoted(p.encrypted))
	}
	if len(p.citations) > 0 {
		list := []byte{'['}
		if at := rawjson.Get(c.b, c.obj, "citations"); rawjson.IsArray(c.b, at) && rawjson.Nested(c.b, at) {
			list = append(append(list, c.b[at.From+1:at.To-1]...), ',')
		}
		c.set("citations", append(append(list, p.citations...), ']'))
	}
	if b.kind == hostedBlock && len(b.input) > 0 {
		c.set("input", b.input)
	}
	return c.append(nil)
}

func quoted(inner []byte) []byte { return append(append([]byte{'"'}, inner...), '"') }

// appendSpeech adds all text that was shown up to a place, ours among it, as it
// stands between the quotes of one string.
func (h *heard) appendSpeech(dst []byte, upTo int) []byte {
	ours := h.ours
	say := func(at int) {
		for len(ours) > 0 && ours[0].at <= at {
			lit := gjson.AppendJSONString(nil, ours[0].text)
			dst = append(dst, lit[1:len(lit)-1]...)
			ours = ours[1:]
		}
	}
	from := 0
	for _, p := range h.parts {
		at := from
		from = p.to
		if p.block.kind != textBlock {
			continue
		}
		say(at)
		switch p.what {
		case sayStart:
			if start := h.said[at:p.to]; p.to <= upTo {
				if v := rawjson.Get(start, rawjson.All(start), "text"); rawjson.IsString(start, v) {
					dst = append(dst, start[v.From+1:v.To-1]...)
				}
			}
		case sayText:
			for to := min(p.to, upTo); at < to; {
				end := to
				if len(ours) > 0 {
					end = min(end, ours[0].at)
				}
				dst = append(dst, h.said[at:end]...)
				at = end
				say(at)
			}
		}
	}
	say(upTo)
	return dst
}
