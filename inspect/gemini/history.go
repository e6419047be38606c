package gemini

import (
	"fmt"
	"strconv"

	"callgate/inspect"
	"callgate/inspect/digest"
	"callgate/inspect/rawjson"
)

// conversation is a walk over the contents of a request. It holds places in the
// body and no parts: those are read again where they are wanted.
type conversation struct {
	b    []byte
	top  outline
	said []pastContent
	// units are the answers, and runs the contents that each consists of.
	units []inspect.Unit
	runs  []run

	w     digest.Writer
	shown map[int]digest.Digest // of units, as far as asked for
	all   []digest.Digest       // of what stands before each unit, likewise
}

var _ inspect.History = (*conversation)(nil)

// pastContent is one content of the history.
type pastContent struct {
	at, parts rawjson.Span
	by        speaker
	thinks    bool // a part holds thoughts as a text
	results   bool // a part is the result of a call
	words     bool // a part is none
}

// speaker is the role of a content.
type speaker uint8

const (
	byUser speaker = iota // and by tools
	byModel
	byOther
)

// run is a range of contents: from its first to behind its last.
type run struct{ from, to int }

// The members that a history is read by. What stands twice, by any spelling, says
// two things to two readers.
var (
	contentKeys = spelt("role", "parts")
	partKeys    = spelt("text", "thought", "thoughtSignature", "functionCall", "functionResponse")
	callKeys    = spelt("id", "name", "args", "response")
)

// History walks over the contents once. What cannot be walked in one way only is
// an error.
func (r *request) History() (inspect.History, error) {
	h, err := converse(r)
	if err != nil {
		return nil, err
	}
	return h, nil
}

func converse(r *request) (*conversation, error) {
	h := &conversation{b: r.body, top: r.top}
	if rawjson.IsObject(h.b, h.top.contents) {
		return h, h.content(h.top.contents)
	}
	if !rawjson.IsArray(h.b, h.top.contents) {
		return nil, failure("contents", "there are none; a list of contents is wanted", nil)
	}
	w := rawjson.Open(h.b, h.top.contents)
	for w.Next() {
		if err := h.content(w.Val); err != nil {
			return nil, err
		}
	}
	if w.Bad() || w.At() != h.top.contents.To {
		return nil, failure("contents", "they are no JSON", nil)
	}
	return h, nil
}

// content takes in the next content.
func (h *conversation) content(at rawjson.Span) error {
	n := len(h.said)
	c, ids, err := readContent(h.b, at)
	if err != nil {
		return failure("contents."+strconv.Itoa(n), "it cannot be read one way only", err)
	}
	h.said = append(h.said, c)
	if c.by != byModel {
		return nil
	}
	if n == 0 || h.said[n-1].by != byModel {
		h.units = append(h.units, inspect.Unit{})
		h.runs = append(h.runs, run{n, n})
	}
	last := len(h.units) - 1
	h.runs[last].to = n + 1
	h.units[last].Calls = append(h.units[last].Calls, ids...)
	return nil
}

// readContent reads one content, and gives the ids of the calls in it.
func readContent(b []byte, at rawjson.Span) (c pastContent, ids []string, err error) {
	m, err := onlyMembers(b, at, contentKeys, false)
	if err != nil {
		return c, nil, err
	}
	c.at, c.parts = at, m["parts"]
	switch role := rawjson.Text(b, m["role"]); role {
	case "user", "function", "tool", "":
	case "model":
		c.by = byModel
	default:
		c.by = byOther
	}
	if !rawjson.Null(b, c.parts) && !rawjson.IsArray(b, c.parts) && !rawjson.IsObject(b, c.parts) {
		return c, nil, fmt.Errorf("its parts are no list")
	}
	parts, err := readParts(b, c.parts)
	for i := range parts {
		p := &parts[i]
		switch p.kind {
		case pastCall:
			ids = append(ids, p.id)
		case pastResult:
			c.results = true
			continue
		case pastText:
			c.thinks = c.thinks || p.thought
		}
		c.words = true
	}
	return c, ids, err
}

// pastPart is one part of a content.
type pastPart struct {
	at, text, signature rawjson.Span
	inner               rawjson.Span // of a call or a result
	args, response      rawjson.Span
	id, name            string
	thought             bool
	kind                pastKind
}

type pastKind uint8

const (
	pastOther pastKind = iota // media, code, and so on
	pastText
	pastCall
	pastResult
)

// readParts reads the parts of a content. Google's readers take one part in the
// place of a list.
func readParts(b []byte, list rawjson.Span) (parts []pastPart, err error) {
	if rawjson.IsObject(b, list) {
		p, err := readPastPart(b, list)
		return []pastPart{p}, err
	}
	if !rawjson.IsArray(b, list) {
		return nil, nil
	}
	w := rawjson.Open(b, list)
	for w.Next() {
		p, err := readPastPart(b, w.Val)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	if w.Bad() {
		return nil, fmt.Errorf("its parts are no JSON")
	}
	return parts, nil
}

func readPastPart(b []byte, at rawjson.Span) (p pastPart, err error) {
	m, err := onlyMembers(b, at, partKeys, false)
	if err != nil {
		return p, fmt.Errorf("a part in it: %w", err)
	}
	p.at, p.text, p.signature = at, m["text"], m["thoughtSignature"]
	p.thought = string(m["thought"].In(b)) == "true"
	call, result := m["functionCall"], m["functionResponse"]
	switch {
	case !rawjson.Null(b, call) && !rawjson.Null(b, result):
		return p, fmt.Errorf("a part in it is a call and a result at once")
	case !rawjson.Null(b, call):
		p.kind, p.inner = pastCall, call
	case !rawjson.Null(b, result):
		p.kind, p.inner = pastResult, result
	case rawjson.IsString(b, p.text):
		p.kind = pastText
		return p, nil
	default:
		return p, nil
	}
	if m, err = onlyMembers(b, p.inner, callKeys, false); err != nil {
		return p, fmt.Errorf("a call or result in it: %w", err)
	}
	p.id, p.name = rawjson.Text(b, m["id"]), rawjson.Text(b, m["name"])
	p.args, p.response = m["args"], m["response"]
	return p, nil
}

// partsOf gives the parts of a content that has been read before.
func partsOf(b []byte, list rawjson.Span) []pastPart {
	parts, _ := readParts(b, list)
	return parts
}

// Units gives the answers in the history.
func (h *conversation) Units() []inspect.Unit { return h.units }

// Shown is the digest of an answer.
func (h *conversation) Shown(i int) digest.Digest {
	if d, ok := h.shown[i]; ok {
		return d
	}
	lists := make([]rawjson.Span, 0, 1)
	for _, c := range h.said[h.runs[i].from:h.runs[i].to] {
		lists = append(lists, c.parts)
	}
	if h.shown == nil {
		h.shown = map[int]digest.Digest{}
	}
	h.shown[i] = shownDigest(&h.w, h.b, lists...)
	return h.shown[i]
}

// shownDigest is the digest of what an answer with these lists of parts says:
// all its text, and then its calls. Thoughts, signatures and what the provider ran
// itself are left out: clients trim them.
func shownDigest(w *digest.Writer, b []byte, lists ...rawjson.Span) digest.Digest {
	w.Part(digest.Text)
	var made []pastPart
	for _, list := range lists {
		for _, p := range partsOf(b, list) {
			switch {
			case p.kind == pastText && !p.thought:
				w.String(p.text.In(b))
			case p.kind == pastCall:
				made = append(made, p)
			}
		}
	}
	for _, p := range made {
		w.Part(digest.Call)
		w.Plain(p.name)
		w.Part(digest.Args)
		w.Strings(p.args.In(b))
	}
	return w.Sum()
}

// goesOn reports whether an answer to this request goes on with its last unit
// rather than being a unit of its own.
func (h *conversation) goesOn() bool {
	n := len(h.said)
	return n > 0 && h.said[n-1].by == byModel
}

// Last is the digest of the last content before unit i.
func (h *conversation) Last(i int) digest.Digest {
	if i == len(h.units) && h.goesOn() {
		i--
	}
	end := len(h.said)
	if i < len(h.units) {
		end = h.runs[i].from
	}
	for k := end - 1; k >= 0; k-- {
		if h.said[k].by == byUser {
			h.others(run{k, k + 1})
			break
		}
	}
	return h.w.Sum()
}

// All is the digest of all contents before unit i. Each one is built on the one
// before, so that asking for all of them reads the history once.
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
		}
		h.others(between)
		h.all = append(h.all, h.w.Sum())
	}
	return h.all[i]
}

// others adds what those besides the model say in the contents. How their words
// are cut into contents and parts does not count.
func (h *conversation) others(r run) {
	speaks := false
	words := func() {
		if !speaks {
			h.w.Part(digest.User)
		}
		speaks = true
	}
	for _, c := range h.said[r.from:r.to] {
		if c.by != byUser {
			continue
		}
		for _, p := range partsOf(h.b, c.parts) {
			switch p.kind {
			case pastText:
				words()
				h.w.String(p.text.In(h.b))
			case pastResult:
				h.w.Part(digest.Result)
				speaks = false
				h.w.Strings(p.response.In(h.b))
			default:
				words()
				h.w.Strings(p.at.In(h.b))
			}
		}
	}
}

// Task is the first unit behind the user's last words. Where the history holds
// no words of a user, all of it is the task.
func (h *conversation) Task() int {
	behind := false
	task := 0
	for k, unit := 0, 0; k < len(h.said); k++ {
		c := &h.said[k]
		switch {
		case c.by == byModel:
			if behind = false; k == 0 || h.said[k-1].by != byModel {
				unit++
			}
		case c.results:
			behind = true
		case c.by == byUser && c.words && !behind:
			task = unit
		}
	}
	return task
}
