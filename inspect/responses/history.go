package responses

import (
	"slices"
	"strconv"
	"strings"

	"callgate/inspect"
	"callgate/inspect/digest"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
)

// conversation is a walk over the input of a request.
type conversation struct {
	b    []byte
	top  outline
	said []pastItem
	// text is the input where it is a string, which is what a user says.
	text rawjson.Span
	// units are the answers, and runs the items that each consists of. The run
	// of an answer that the provider holds is empty: that of an id, or with a
	// conversation, of whose last answer only the results of its calls are there.
	units []inspect.Unit
	runs  []run
	task  int

	w     digest.Writer
	shown map[int]digest.Digest // of units, as far as asked for
	all   []digest.Digest       // of what stands before each unit, likewise
}

var _ inspect.History = (*conversation)(nil)

// pastItem is one item of the input.
type pastItem struct {
	at  rawjson.Span
	by  speaker
	typ string
	id  string // of a call, or of the call that a result is of
	// ours says that it names an item of callgate's own.
	ours bool
}

// speaker says whose an item is.
type speaker uint8

const (
	bySystem speaker = iota // and whatever else is no part of what is said
	byUser
	byAssistant
	byResult
)

// run is a range of items: from its first to behind its last.
type run struct{ from, to int }

// History walks over the input once. What cannot be walked in one way only is
// an error.
func (r *request) History() (inspect.History, error) {
	h, err := r.converse()
	if err != nil {
		return nil, err
	}
	return h, nil
}

func unmended(where, reason string) *inspect.Error {
	return &inspect.Error{Dialect: Name, Where: where, Reason: reason}
}

func (r *request) converse() (*conversation, error) {
	h := &conversation{b: r.body, top: r.top}
	switch input := r.top.input; {
	case rawjson.IsString(h.b, input):
		h.text = input
		if strictjson.StringLen(h.b[input.From:]) != input.Len() {
			return nil, unmended("input", "it is no JSON")
		}
	case rawjson.Null(h.b, input):
		h.top.input = rawjson.Span{}
	case !rawjson.IsArray(h.b, input):
		return nil, unmended("input", "it must be a text or an array of items")
	default:
		w := rawjson.Open(h.b, input)
		for w.Next() {
			it, err := readPast(h.b, w.Val, "input."+strconv.Itoa(len(h.said)))
			if err != nil {
				return nil, err
			}
			h.said = append(h.said, it)
		}
		if w.Bad() || w.At() != input.To {
			return nil, unmended("input", "it is no JSON at byte "+strconv.Itoa(w.At()))
		}
	}
	h.divide()
	return h, nil
}

// divide finds the answers.
func (h *conversation) divide() {
	if h.top.held(h.b) {
		u := inspect.Unit{Answer: rawjson.Text(h.b, h.top.previous)}
		u.Held = u.Answer == ""
		for _, it := range h.said {
			if it.by != byResult {
				break
			}
			u.Calls = append(u.Calls, it.id)
		}
		h.units, h.runs = append(h.units, u), append(h.runs, run{})
	}
	behind := false // results stand right before
	if h.text.There() {
		h.task = len(h.units)
	}
	for n, it := range h.said {
		switch it.by {
		case byAssistant:
			if n == 0 || h.said[n-1].by != byAssistant {
				h.units, h.runs = append(h.units, inspect.Unit{}), append(h.runs, run{n, n})
			}
			last := len(h.units) - 1
			h.runs[last].to = n + 1
			if isCall(it.typ) {
				h.units[last].Calls = append(h.units[last].Calls, it.id)
			}
			behind = false
		case byResult:
			behind = true
		case byUser:
			// Words right behind results are what clients put there: no new task.
			if !behind {
				h.task = len(h.units)
			}
		}
	}
}

// isCall reports whether items of a type are calls that the client answers.
func isCall(typ string) bool { return kinds[typ] != nil && kinds[typ].class == callItem }

var pastKeys = strictjson.Keys("type", "role", "content", "id", "call_id", "name", "namespace", "arguments", "input", "output", "action",
	"actions", "operation", "encrypted_content", "summary", "approval_request_id", "execution", "caller")

// pastNames are the same keys by themselves.
var pastNames = func() map[string]string {
	m := make(map[string]string, len(pastKeys))
	for _, k := range pastKeys {
		m[k] = k
	}
	return m
}()

// readPast reads an item of the input.
func readPast(b []byte, at rawjson.Span, where string) (it pastItem, err error) {
	it.at = at
	if !rawjson.IsObject(b, at) {
		return it, unmended(where, "an item must be an object")
	}
	var typ, role, id, callID, request rawjson.Span
	var seen []string
	w := rawjson.Open(b, at)
	for w.Next() {
		raw := w.Key.In(b)
		exact, ok := pastNames[string(raw)]
		if !ok {
			if plainKey(raw) {
				continue
			}
			if exact, ok = pastKeys[strictjson.Fold(rawjson.KeyText(b, w.Key))]; !ok {
				continue
			}
			return it, unmended(where, "the key "+strconv.Quote(string(raw))+" reads like "+strconv.Quote(exact)+" and is not written so")
		}
		if slices.Contains(seen, exact) {
			return it, unmended(where, "the key "+strconv.Quote(exact)+" stands twice, and readers differ over which one holds")
		}
		seen = append(seen, exact)
		switch exact {
		case "type":
			typ = w.Val
		case "role":
			role = w.Val
		case "id":
			id = w.Val
		case "call_id":
			callID = w.Val
		case "approval_request_id":
			request = w.Val
		}
	}
	if w.Bad() || w.At() != at.To {
		return it, unmended(where, "it is no JSON at byte "+strconv.Itoa(w.At()))
	}
	it.typ = rawjson.Text(b, typ)
	switch {
	case it.typ == "" && role.There():
		it.typ = "message"
	case it.typ == "" && id.There():
		it.typ = "item_reference"
	}
	it.ours = it.typ == "item_reference" && strings.HasPrefix(rawjson.Text(b, id), inspect.OwnItem)
	it.by = speakerOf(it.typ, rawjson.Text(b, role))
	switch {
	case it.typ == "mcp_approval_request":
		it.id = rawjson.Text(b, id)
	case it.typ == "mcp_approval_response":
		it.id = rawjson.Text(b, request)
	case isCall(it.typ), it.by == byResult:
		it.id = rawjson.Text(b, callID)
		if it.id == "" && it.by == byResult {
			it.id = rawjson.Text(b, id) // of a local shell's
		}
	}
	return it, nil
}

func speakerOf(typ, role string) speaker {
	switch typ {
	case "message":
		switch role {
		case "user":
			return byUser
		case "assistant":
			return byAssistant
		}
		return bySystem
	case "reasoning", "item_reference", "mcp_approval_request", "mcp_list_tools", "program", "program_output":
		return byAssistant
	case "mcp_approval_response":
		return byResult
	}
	switch {
	case strings.HasSuffix(typ, "_call"):
		return byAssistant
	case strings.HasSuffix(typ, "_output"):
		return byResult
	}
	return bySystem
}

// eachText calls each for the texts of a message's content: a string, or the
// parts of it that hold one.
func eachText(b []byte, content rawjson.Span, each func(rawjson.Span)) {
	if rawjson.IsString(b, content) {
		each(content)
		return
	}
	for w := rawjson.Open(b, content); w.Next(); {
		text := rawjson.Get(b, w.Val, "text")
		if !rawjson.IsString(b, text) {
			text = rawjson.Get(b, w.Val, "refusal")
		}
		if rawjson.IsString(b, text) {
			each(text)
		}
	}
}

// Units gives the answers in the history.
func (h *conversation) Units() []inspect.Unit { return h.units }

// Task is the first unit behind the user's last words.
func (h *conversation) Task() int { return h.task }

// Shown is the digest of an answer. That of an answer which the provider holds
// is not known, and zero.
func (h *conversation) Shown(i int) digest.Digest {
	r := h.runs[i]
	if r.from == r.to {
		return digest.Digest{}
	}
	if d, ok := h.shown[i]; ok {
		return d
	}
	var spans []rawjson.Span
	for _, it := range h.said[r.from:r.to] {
		spans = append(spans, it.at)
	}
	if h.shown == nil {
		h.shown = map[int]digest.Digest{}
	}
	h.shown[i] = shownDigest(&h.w, h.b, spans)
	return h.shown[i]
}

// shownDigest is the digest of what these items say: all text, and then the
// calls. Reasoning, and what the provider ran itself, is left out: clients
// trim them.
func shownDigest(w *digest.Writer, b []byte, items []rawjson.Span) digest.Digest {
	w.Part(digest.Text)
	var calls []rawjson.Span
	for _, at := range items {
		typ := rawjson.Text(b, rawjson.Get(b, at, "type"))
		switch {
		case typ == "message", typ == "":
			eachText(b, rawjson.Get(b, at, "content"), func(s rawjson.Span) { w.String(s.In(b)) })
		case isCall(typ):
			calls = append(calls, at)
		}
	}
	for _, at := range calls {
		k := kinds[rawjson.Text(b, rawjson.Get(b, at, "type"))]
		w.Part(digest.Call)
		if k.name != "" {
			w.Plain(k.name)
		} else {
			w.String(rawjson.Get(b, at, "name").In(b))
		}
		args := rawjson.Get(b, at, argMember(b, at, k))
		w.Part(digest.Args)
		if !rawjson.IsString(b, args) {
			w.Strings(args.In(b))
			continue
		}
		text := strictjson.AppendString(nil, args.In(b))
		if k.form == jsonText && strictjson.Validate(text, strictjson.Options{Surrogates: true}) == nil {
			w.Strings(text)
			continue
		}
		w.Plain(string(text))
	}
	return w.Sum()
}

// end gives the item that stands behind those before unit i.
func (h *conversation) end(i int) int {
	if i < len(h.runs) {
		return h.runs[i].from
	}
	if n := len(h.said); n > 0 && h.said[n-1].by == byAssistant {
		return h.runs[len(h.runs)-1].from // an answer to this goes on with it
	}
	return len(h.said)
}

// Last is the digest of the last item before unit i that is not the system's.
func (h *conversation) Last(i int) digest.Digest {
	if h.text.There() {
		if i > 0 || len(h.units) == 0 {
			h.words(h.text)
		}
		return h.w.Sum()
	}
	for k := h.end(i) - 1; k >= 0; k-- {
		switch h.said[k].by {
		case bySystem:
			continue
		case byAssistant:
			j := min(i, len(h.runs)) - 1
			for h.runs[j].from > k {
				j--
			}
			return h.Shown(j)
		}
		h.other(&h.said[k])
		break
	}
	return h.w.Sum()
}

// All is the digest of all items before unit i. Each one is built on the one
// before, so that asking for all of them reads the history once.
func (h *conversation) All(i int) digest.Digest {
	for k := len(h.all); k <= i; k++ {
		from, to := 0, h.end(k)
		if k > 0 {
			from = h.runs[k-1].to
			shown := h.Shown(k - 1)
			h.w.Digest(h.all[k-1])
			h.w.Digest(shown)
			h.w.Plain(h.units[k-1].Answer)
		}
		for n := from; n < to; n++ {
			h.other(&h.said[n])
		}
		if h.text.There() && k == len(h.units) {
			h.words(h.text)
		}
		h.all = append(h.all, h.w.Sum())
	}
	return h.all[i]
}

func (h *conversation) words(text rawjson.Span) {
	h.w.Part(digest.User)
	h.w.String(text.In(h.b))
}

// other adds what an item says that is not the assistant's.
func (h *conversation) other(it *pastItem) {
	b := h.b
	switch it.by {
	case byUser:
		h.w.Part(digest.User)
		h.content(rawjson.Get(b, it.at, "content"))
	case byResult:
		h.w.Part(digest.Result)
		if out := rawjson.Get(b, it.at, "output"); out.There() {
			h.content(out)
		} else {
			h.w.Strings(rawjson.Get(b, it.at, "reason").In(b))
		}
	}
}

// content adds a text, or the texts of parts; of other parts their words.
func (h *conversation) content(content rawjson.Span) {
	b := h.b
	if rawjson.IsString(b, content) {
		h.w.String(content.In(b))
		return
	}
	for w := rawjson.Open(b, content); w.Next(); {
		if text := rawjson.Get(b, w.Val, "text"); rawjson.IsString(b, text) {
			h.w.String(text.In(b))
			continue
		}
		h.w.Strings(w.Val.In(b))
	}
}
