package openaichat

import (
	"fmt"
	"slices"
	"strings"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// known are the keys on the way to a call. Written in another case or with
// escapes they would be read by some clients only.
var known = strictjson.Keys("choices", "delta", "message", "index", "finish_reason",
	"tool_calls", "function_call", "function", "custom", "arguments")

// reading is what one document, the data of an event or a whole answer, says.
// All spans lie in the document.
type reading struct {
	whole   *call // set when the document cannot be passed on in part
	choices []choice
	list    rawjson.Span // the array of choices
	top     []mention    // members of the document itself that are withheld
	calls   []*call      // all that are mentioned
	failed  bool         // it tells of an error of the provider
	usage   bool
	outer   *outer // in a round behind the first
}

// outer is where the envelope and the usage of a document stand.
type outer struct{ id, created, model, usage rawjson.Span }

// oneChoice is a reading with room for one choice and one call.
type oneChoice struct {
	reading
	choice  [1]choice
	mention [1]mention
	call    [1]*call
}

// newOneChoice gives the reading of a document with one choice.
func newOneChoice(ch *choice) *reading {
	o := &oneChoice{}
	o.choice[0] = *ch
	o.choice[0].mentions = o.mention[:0]
	o.choices, o.calls = o.choice[:], o.call[:0]
	return &o.reading
}

// choice is one choice of a document.
type choice struct {
	lane    *lane
	at      rawjson.Span
	indexed bool // it says which choice it is
	// body is the delta or the message.
	body     rawjson.Span
	list     rawjson.Span // the array of tool_calls, and
	listItem rawjson.Span // the member that holds it
	content  rawjson.Span
	refusal  rawjson.Span
	finish   rawjson.Span // a string, the finish reason
	role     rawjson.Span // the member, in a round behind the first
	reason   string
	native   rawjson.Span // what some routers put beside it, when it is a string
	logprobs rawjson.Span // when not null
	shows    shown
	mentions []mention
}

// mention is a place where something of a call stands.
type mention struct {
	c *call
	// holder is the array or object, item the element or member in it.
	holder, item rawjson.Span
	// For calls that may be edited: the object with name and arguments, the
	// arguments, the index, and whether it holds nothing but these two.
	inner, args, index rawjson.Span
	key                string // arguments or input
	bare               bool
}

// reader reads one document into the turn.
type reader struct {
	*turn
	b       []byte
	message bool   // choices hold a message and not a delta
	odd     string // why clients may not agree on reading it, "" when they do
	entries int    // of tool_calls, that were read
	rd      *reading
}

// read takes in a document that is strict JSON.
func (r *reader) read() error {
	r.rd = &reading{}
	b := r.b
	doc := rawjson.All(b)
	if b[doc.From] != '{' {
		if speaks(b, doc) {
			return r.refuse(toolcall.FaultUnknown, "the document is a text, which could be read once more")
		}
		if !rawjson.Nested(b, doc) {
			return nil // a lone scalar is no chunk for anyone
		}
		return r.refuse(toolcall.FaultUnknown, "the document is no object")
	}
	var id, created, model, choices, usage rawjson.Span
	for w := rawjson.Open(b, doc); w.Next(); {
		switch key := string(w.Key.In(b)); key {
		case "choices":
			choices = w.Val
		case "id":
			id = w.Val
		case "created":
			created = w.Val
		case "model":
			model = w.Val
		case "error":
			r.rd.failed = r.rd.failed || !rawjson.Null(b, w.Val)
		case "usage":
			r.rd.usage = rawjson.Nested(b, w.Val)
			usage = w.Val
		default:
			if suspicious(b, w.Key, w.Val) {
				if err := r.stray(&r.rd.top, 0, doc, w, toolcall.FaultUnknown); err != nil {
					return err
				}
			}
		}
	}
	r.usage(usage, rawjson.Nested(b, choices))
	r.env.take(b, id, created, model, rawjson.Nested(b, choices))
	if r.begun > 1 {
		r.rd.outer = &outer{id, created, model, usage}
		if r.roundID == "" {
			r.roundID = rawjson.Text(b, id)
		}
	}
	if r.rd.failed {
		if r.begun > 1 {
			// The agent would take it for an error of the whole, and ask for all
			// of it again.
			return &inspect.Error{Dialect: name, Where: "error", Reason: "the further answer ended in an error"}
		}
		r.fail()
	}
	if err := r.survey(choices); err != nil || r.rd.whole != nil {
		return err
	}
	for i := range r.rd.choices {
		if err := r.choice(&r.rd.choices[i]); err != nil {
			return err
		}
	}
	for i := range r.rd.choices {
		r.end(&r.rd.choices[i])
	}
	return nil
}

// fail notes an error of the provider: what was not whole by now never will be.
func (r *reader) fail() {
	if r.failed {
		return
	}
	r.failed = true
	for _, l := range r.lanes {
		r.finish(l, true)
	}
}

// usage takes in figures, which came beside choices or without any.
func (r *reader) usage(s rawjson.Span, beside bool) {
	if r.repair && rawjson.Nested(r.b, s) {
		r.lastUsage, r.alone = append(r.lastUsage[:0], s.In(r.b)...), !beside
	}
	for w := rawjson.Open(r.b, s); w.Next(); {
		n, ok := rawjson.Whole(r.b, w.Val)
		switch string(w.Key.In(r.b)) {
		case "prompt_tokens":
			if ok {
				r.rec.InputTokens = int64(n)
			}
		case "completion_tokens":
			if ok {
				r.rec.OutputTokens = int64(n)
			}
		}
	}
}

// refuse withholds the document as a whole, as one call with that fault. Calls
// that are not whole yet may have gone on in it, so they have the fault too.
func (t *turn) refuseWhole(rd *reading, b []byte, f toolcall.Fault, detail string) error {
	l, err := t.lane(0)
	if err != nil {
		return err
	}
	for _, other := range t.lanes {
		for _, c := range other.calls {
			if !c.announced {
				c.fail(toolcall.FaultAmbiguous, "an event within it was withheld: "+detail)
			}
		}
	}
	c, err := t.add(l, typeEvent)
	if err != nil {
		return err
	}
	c.Text = true
	t.argue(c, b)
	c.Fault, c.Detail = f, detail
	t.announce(c)
	rd.whole = c
	rd.calls = append(rd.calls, c)
	return nil
}

func (r *reader) refuse(f toolcall.Fault, detail string) error {
	return r.refuseWhole(r.rd, r.b, f, detail)
}

// stray withholds a member that no client should take for a call, and some
// might.
func (r *reader) stray(to *[]mention, lane int, holder rawjson.Span, w rawjson.Walk, f toolcall.Fault) error {
	l, err := r.lane(lane)
	if err != nil {
		return err
	}
	c, err := r.add(l, typeMember)
	if err != nil {
		return err
	}
	c.Name = c.word(rawjson.KeyText(r.b, w.Key), "name")
	r.argue(c, w.Val.In(r.b))
	c.fail(f, fmt.Sprintf("the member %.100q could hold a call", c.Name))
	r.announce(c)
	r.rd.calls = append(r.rd.calls, c)
	*to = append(*to, mention{c: c, holder: holder, item: w.Item})
	return nil
}

// survey finds the choices and what could be read in two ways about where they
// belong, before anything is taken from them.
func (r *reader) survey(choices rawjson.Span) error {
	b := r.b
	if speaks(b, choices) {
		return r.refuse(toolcall.FaultUnknown, "choices is text, which could be read once more")
	}
	if !rawjson.Nested(b, choices) {
		return nil
	}
	if b[choices.From] != '[' {
		return r.refuse(toolcall.FaultUnknown, "choices is no list")
	}
	r.rd.list = choices
	for w, pos := rawjson.Open(b, choices), 0; w.Next(); pos++ {
		if speaks(b, w.Val) {
			return r.refuse(toolcall.FaultUnknown, fmt.Sprintf("choice %d is text, which could be read once more", pos))
		}
		if !rawjson.Nested(b, w.Val) {
			continue
		}
		if b[w.Val.From] != '{' {
			return r.refuse(toolcall.FaultUnknown, fmt.Sprintf("choice %d is no object", pos))
		}
		n := pos
		ch := choice{at: w.Val}
		for m := rawjson.Open(b, w.Val); m.Next(); {
			switch string(m.Key.In(b)) {
			case "index":
				var ok bool
				ch.indexed = true
				if n, ok = rawjson.Whole(b, m.Val); !ok {
					return r.refuse(toolcall.FaultAmbiguous, fmt.Sprintf("the index of choice %d is no whole number", pos))
				}
			case "finish_reason":
				if !rawjson.Null(b, m.Val) && !rawjson.IsString(b, m.Val) {
					return r.refuse(toolcall.FaultAmbiguous, fmt.Sprintf("the finish reason of choice %d is no string", pos))
				}
				ch.finish, ch.reason = m.Val, word(b, m.Val)
			case "native_finish_reason":
				if rawjson.IsString(b, m.Val) {
					ch.native = m.Val
				}
			case "logprobs":
				if !rawjson.Null(b, m.Val) {
					ch.logprobs = m.Val
				}
			}
		}
		for _, other := range r.rd.choices {
			if other.lane.n == n {
				return r.refuse(toolcall.FaultAmbiguous, fmt.Sprintf("choice %d stands twice", n))
			}
		}
		l, err := r.lane(n)
		if err != nil {
			return err
		}
		ch.lane, ch.shows.lane = l, n
		r.rd.choices = append(r.rd.choices, ch)
	}
	return nil
}

// word is rawjson.Text without a copy for the words that come with every call.
func word(b []byte, s rawjson.Span) string {
	switch string(s.In(b)) {
	case `"function"`:
		return typeFunction
	case `"tool_calls"`:
		return "tool_calls"
	case `"stop"`:
		return "stop"
	}
	return rawjson.Text(b, s)
}

// choice reads what a choice holds.
func (r *reader) choice(ch *choice) error {
	b := r.b
	own, other := "delta", "message"
	if r.message {
		own, other = other, own
	}
	for w := rawjson.Open(b, ch.at); w.Next(); {
		var err error
		switch key := string(w.Key.In(b)); key {
		case "index", "finish_reason", "native_finish_reason", "logprobs":
		case own:
			switch {
			case rawjson.Null(b, w.Val):
			case b[w.Val.From] == '{':
				ch.body = w.Val
				err = r.body(ch)
			case rawjson.Nested(b, w.Val), speaks(b, w.Val):
				err = r.stray(&ch.mentions, ch.lane.n, ch.at, w, toolcall.FaultUnknown)
			}
		default:
			if key == other && speaks(b, w.Val) || suspicious(b, w.Key, w.Val) {
				fault := toolcall.FaultUnknown
				if key == other {
					fault = toolcall.FaultAmbiguous
				}
				err = r.stray(&ch.mentions, ch.lane.n, ch.at, w, fault)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// end takes in a choice's finish reason, which completes its calls.
func (r *reader) end(ch *choice) {
	if ch.reason == "" || ch.lane.finished {
		return
	}
	ch.lane.finished, ch.lane.reason = true, ch.reason
	r.finish(ch.lane, false)
}

// inert are the members of a delta or a message that cannot run on a client,
// whatever they hold. Of those marked true the inside is looked at all the
// same: servers put their own fields there.
var inert = map[string]bool{
	"reasoning":                false,
	"reasoning_content":        false,
	"reasoning_details":        false,
	"reasoning_text":           false,
	"thinking":                 false,
	"thinking_blocks":          false,
	"annotations":              false,
	"audio":                    false,
	"images":                   false,
	"citations":                false,
	"content_filter_results":   true,
	"context":                  true, // Azure: citations of the data it searched
	"provider_specific_fields": true, // LiteLLM
	"extra_content":            true, // Gemini: signatures of what it thought
	"provider_metadata":        true, // Vercel's gateway
	"copilot_annotations":      true,
	"copilot_references":       true,
	"copilot_confirmation":     true,
	"copilot_errors":           true,
	"reasoning_steps":          true, // Perplexity
	"graph_data":               true, // Writer
	"content_blocks":           true, // Portkey
	"metadata":                 true,
}

// body reads a delta or a message.
func (r *reader) body(ch *choice) error {
	b := r.b
	for w := rawjson.Open(b, ch.body); w.Next(); {
		var err error
		switch key := string(w.Key.In(b)); key {
		case "role":
			ch.shows.role = rawjson.Text(b, w.Val) != ""
			if r.begun > 1 && !r.message {
				ch.role = w.Item
			}
			if rawjson.Nested(b, w.Val) {
				err = r.stray(&ch.mentions, ch.lane.n, ch.body, w, toolcall.FaultUnknown)
			}
		case "refusal":
			ch.refusal = w.Val
			ch.shows.refusal = rawjson.Text(b, w.Val) != ""
			if rawjson.Nested(b, w.Val) {
				err = r.stray(&ch.mentions, ch.lane.n, ch.body, w, toolcall.FaultUnknown)
			}
		case "content":
			err = r.content(ch, w)
		case "tool_calls":
			switch {
			case !rawjson.Nested(b, w.Val) && !speaks(b, w.Val):
			case b[w.Val.From] != '[':
				err = r.stray(&ch.mentions, ch.lane.n, ch.body, w, toolcall.FaultUnknown)
			default:
				ch.list, ch.listItem = w.Val, w.Item
				for e := rawjson.Open(b, w.Val); e.Next() && err == nil; {
					err = r.entry(ch, e)
				}
			}
		case "function_call":
			err = r.legacy(ch, w)
		default:
			look, ok := inert[key]
			if rawjson.Nested(b, w.Val) && !ok || (!ok || look) && suspicious(b, w.Key, w.Val) {
				err = r.stray(&ch.mentions, ch.lane.n, ch.body, w, toolcall.FaultUnknown)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// textParts are the types of content part that cannot run on a client. Those
// marked true are words that the user sees.
var textParts = map[string]bool{
	"text": true, "output_text": true, "refusal": true,
	"thinking": false, "reasoning": false, "redacted_thinking": false, "reference": false, "image_url": false,
	"image": false, "audio": false, "input_audio": false, "video_url": false, "document_url": false, "file": false,
}

// content reads the content: text, or parts in some servers' answers.
func (r *reader) content(ch *choice, w rawjson.Walk) error {
	b := r.b
	ch.content = w.Val
	if rawjson.IsString(b, w.Val) {
		ch.shows.text = w.Val.To-w.Val.From > 2
		return nil
	}
	if !rawjson.Nested(b, w.Val) {
		return nil
	}
	if b[w.Val.From] != '[' {
		return r.stray(&ch.mentions, ch.lane.n, ch.body, w, toolcall.FaultUnknown)
	}
	for e := rawjson.Open(b, w.Val); e.Next(); {
		if !rawjson.Nested(b, e.Val) {
			ch.shows.text = ch.shows.text || rawjson.IsString(b, e.Val)
			continue
		}
		kind := rawjson.Text(b, rawjson.Get(b, e.Val, "type"))
		visible, ok := textParts[kind]
		ch.shows.text = ch.shows.text || visible
		if ok && b[e.Val.From] == '{' {
			continue
		}
		if kind == "" {
			kind = typePart
		}
		c, err := r.add(ch.lane, kind)
		if err != nil {
			return err
		}
		c.once(&c.ID, rawjson.Text(b, rawjson.Get(b, e.Val, "id")), "id")
		c.once(&c.Name, rawjson.Text(b, rawjson.Get(b, e.Val, "name")), "name")
		c.Type = c.word(c.Type, "type")
		if c.Name == "" {
			c.Name = c.Type
		}
		r.argue(c, e.Val.In(b))
		c.fail(toolcall.FaultUnknown, fmt.Sprintf("a content part of type %.100q could be a call", kind))
		r.announce(c)
		r.mention(ch, mention{c: c, holder: w.Val, item: e.Item})
	}
	return nil
}

func (r *reader) mention(ch *choice, m mention) {
	if m.c.mentioned && m.c.numbered != ch.indexed && !m.c.announced {
		m.c.fail(toolcall.FaultAmbiguous, "it stands in choices with and without an index")
	}
	m.c.mentioned, m.c.numbered = true, ch.indexed
	ch.mentions = append(ch.mentions, m)
	if n := len(r.rd.calls); n == 0 || r.rd.calls[n-1] != m.c {
		r.rd.calls = append(r.rd.calls, m.c)
	}
	if r.odd != "" && !m.c.announced {
		m.c.fail(toolcall.FaultAmbiguous, r.odd)
	}
}

// past reports whether a lane can have no more calls, and why.
func (r *reader) past(l *lane) string {
	switch {
	case l.finished:
		return "it stands behind the finish reason of its choice"
	case r.failed:
		return "it stands behind an error of the provider"
	}
	return ""
}

// late takes in a mention behind the end of its lane: a call of its own that
// cannot be released.
func (r *reader) late(c *call, why string) {
	c.Fault, c.Detail = toolcall.FaultAmbiguous, why
	r.announce(c)
}

// callKeys are the keys that other formats use for what a call is, where Chat
// Completions has none. A client may read them.
var callKeys = strictjson.Keys(callNames...)

var callNames = []string{"tool_calls", "tool_call", "function_call", "function_calls", "tool_use", "tool_uses",
	"tooluse", "toolcall", "toolcalls", "functioncall", "functioncalls", "arguments", "partial_json"}

// maxSuspect is how deep a member is looked into. Nothing that servers add of
// their own comes near.
const maxSuspect = 32

// suspicious reports whether a member could be taken for a call by a client
// that reads more than the format says.
func suspicious(b []byte, key, val rawjson.Span) bool { return suspect(b, key, val, maxSuspect) }

func suspect(b []byte, key, val rawjson.Span, depth int) bool {
	if !rawjson.Nested(b, val) && !speaks(b, val) {
		return false
	}
	if callKey(b, key) || depth == 0 {
		return true
	}
	if rawjson.IsString(b, val) {
		return false
	}
	array := b[val.From] == '['
	var named, given bool
	for w := rawjson.Open(b, val); w.Next(); {
		if suspect(b, w.Key, w.Val, depth-1) {
			return true
		}
		if array {
			continue
		}
		folded := foldedKey(b, w.Key)
		if _, ok := callKeys[folded]; ok && !rawjson.Null(b, w.Val) && w.Val.To-w.Val.From > 2 {
			return true
		}
		switch folded {
		case "NAME", "TOOL_NAME", "TOOLNAME":
			named = true
		case "INPUT", "PARAMETERS", "ARGS":
			given = true
		case "TYPE":
			if kind := rawjson.Text(b, w.Val); strings.HasSuffix(kind, "_call") || strings.HasSuffix(kind, "tool_use") {
				return true
			}
		}
	}
	return named && given
}

// callKey reports whether a key is one of callKeys. Most keys are plain, and
// need not be folded.
func callKey(b []byte, key rawjson.Span) bool {
	if !key.There() {
		return false
	}
	if raw := key.In(b); lower(raw) {
		return slices.ContainsFunc(callNames, func(n string) bool { return n == string(raw) })
	}
	_, ok := callKeys[foldedKey(b, key)]
	return ok
}

func foldedKey(b []byte, key rawjson.Span) string {
	if !key.There() {
		return ""
	}
	return strictjson.Fold(rawjson.KeyText(b, key))
}
