package ollama

import (
	"fmt"
	"slices"

	"callgate/inspect"
	"callgate/inspect/frame"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// reading is what one document, a line or a whole answer, says. All spans lie in
// the document.
type reading struct {
	whole *call // set when the document cannot be passed on in part
	doc   rawjson.Span
	// body is the object that holds what is said, and message the value that
	// should hold it; both are the document itself where there is no message.
	body, message   rawjson.Span
	words, thinking rawjson.Span // strings or null
	list, listItem  rawjson.Span // the array of tool_calls, and the member that holds it
	model, created  rawjson.Span
	done, reason    rawjson.Span
	prompt, output  rawjson.Span // token counts
	logprobs        rawjson.Span // when there are any
	end             bool         // it says that it is the last one
	failed          bool         // it tells of an error of the provider
	mentions        []mention
}

// mention is a place where a call stands.
type mention struct {
	c *call
	// holder is the array or object, item the element or member in it.
	holder, item rawjson.Span
	// The object with name and arguments, the arguments and the index in it.
	inner, args, index rawjson.Span
}

// The keys of each level that are looked at. Written in another case or with
// escapes they would be read by some clients only.
var (
	docKeys = strictjson.Keys("model", "created_at", "message", "response", "thinking", "tool_calls", "done", "done_reason",
		"error", "prompt_eval_count", "eval_count", "logprobs")
	messageKeys  = strictjson.Keys("role", "content", "thinking", "images", "tool_calls", "tool_name", "tool_call_id")
	entryKeys    = strictjson.Keys("id", "type", "function")
	functionKeys = strictjson.Keys("name", "arguments", "index")
)

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

// reader reads one document into the turn.
type reader struct {
	*turn
	b  []byte
	rd *reading
	// odd says why clients may not agree on reading it, "" when they do.
	odd string
}

// read takes in a document that is strict JSON. Its calls are announced.
func (t *turn) read(b []byte) (*reading, error) {
	r := reader{turn: t, b: b, rd: &reading{}}
	if frame.OtherBreaks(b) {
		r.odd = "it came in a line with a character that breaks lines for some clients"
	}
	if err := r.document(); err != nil {
		return nil, err
	}
	rd := r.rd
	if rd.whole != nil {
		return rd, nil
	}
	if rd.failed {
		if t.begun > 1 {
			// The agent would take it for an error of the whole, and ask for all
			// of it again.
			return nil, &inspect.Error{Dialect: name, Where: "error", Reason: "the further answer ended in an error"}
		}
		t.failed = true
		for _, m := range rd.mentions {
			m.c.fail(toolcall.FaultAmbiguous, "it stands in an error of the provider")
		}
	}
	if rd.end {
		t.behind, t.reason = true, rawjson.Text(b, rd.reason)
	}
	if n, ok := rawjson.Whole(b, rd.prompt); ok {
		t.rec.InputTokens = int64(n)
	}
	if n, ok := rawjson.Whole(b, rd.output); ok {
		t.rec.OutputTokens = int64(n)
	}
	for _, m := range rd.mentions {
		t.announce(m.c)
	}
	return rd, t.gather(b, rd)
}

// refuseWhole withholds a document as a whole, as one call with that fault.
func (t *turn) refuseWhole(b []byte, f toolcall.Fault, detail string) (*reading, error) {
	c, err := t.add(typeDocument)
	if err != nil {
		return nil, err
	}
	c.Text = true
	t.argue(c, b)
	c.Fault, c.Detail = f, detail
	t.announce(c)
	return &reading{whole: c}, nil
}

// refuse is refuseWhole for a document of which parts may have been read: their
// calls go with it.
func (r *reader) refuse(f toolcall.Fault, detail string) (err error) {
	for _, m := range r.rd.mentions {
		r.drop(m.c)
	}
	r.rd, err = r.refuseWhole(r.b, f, detail)
	return err
}

func (r *reader) document() error {
	b, rd := r.b, r.rd
	rd.doc = rawjson.All(b)
	if b[rd.doc.From] != '{' {
		return r.refuse(toolcall.FaultUnknown, "the document is no object")
	}
	if !r.shape.inside {
		rd.message, rd.body = rd.doc, rd.doc
	}
	for w := rawjson.Open(b, rd.doc); w.Next(); {
		var err error
		switch key := string(w.Key.In(b)); key {
		case "model":
			rd.model = w.Val
		case "created_at":
			rd.created = w.Val
		case "done":
			rd.done = w.Val
			if rd.end = b[w.Val.From] == 't'; !rd.end && b[w.Val.From] != 'f' && !rawjson.Null(b, w.Val) {
				return r.refuse(toolcall.FaultAmbiguous, "done is neither true nor false")
			}
		case "done_reason":
			if rd.reason = w.Val; !rawjson.Null(b, w.Val) && !rawjson.IsString(b, w.Val) {
				return r.refuse(toolcall.FaultAmbiguous, "the reason of its end is no text")
			}
		case "error":
			rd.failed = !rawjson.Null(b, w.Val)
		case "prompt_eval_count":
			rd.prompt = w.Val
		case "eval_count":
			rd.output = w.Val
		case "logprobs":
			if rawjson.Nested(b, w.Val) {
				rd.logprobs = w.Val
			}
		case "_debug_info", "context":
			// A prompt as it was written out, and tokens.
			if !flat(b, w.Val) {
				err = r.other(rd.doc, w)
			}
		default:
			if reason := disguised(b, w.Key, docKeys); reason != "" {
				return r.refuse(toolcall.FaultAmbiguous, reason)
			}
			switch {
			case r.shape.inside && key == "message":
				err = r.message(w)
			case r.shape.inside:
				err = r.other(rd.doc, w)
			default:
				err = r.says(rd.doc, w)
			}
		}
		if err != nil || r.rd.whole != nil {
			return err
		}
	}
	return nil
}

// message reads the member that holds what is said.
func (r *reader) message(w rawjson.Walk) error {
	b := r.b
	r.rd.message = w.Val
	if !rawjson.IsObject(b, w.Val) {
		return r.other(r.rd.doc, w)
	}
	r.rd.body = w.Val
	for m := rawjson.Open(b, w.Val); m.Next(); {
		if reason := disguised(b, m.Key, messageKeys); reason != "" {
			return r.refuse(toolcall.FaultAmbiguous, reason)
		}
		if err := r.says(w.Val, m); err != nil {
			return err
		}
	}
	return nil
}

// says reads one member of what is said.
func (r *reader) says(holder rawjson.Span, w rawjson.Walk) error {
	b, rd := r.b, r.rd
	plain := rawjson.IsString(b, w.Val) || rawjson.Null(b, w.Val)
	switch key := string(w.Key.In(b)); {
	case key == r.shape.words && plain:
		rd.words = w.Val
	case key == "thinking" && plain:
		rd.thinking = w.Val
	case key == "images" && texts(b, w.Val):
	case key == "tool_calls" && rawjson.IsArray(b, w.Val):
		rd.list, rd.listItem = w.Val, w.Item
		for e := rawjson.Open(b, w.Val); e.Next(); {
			if err := r.entry(e); err != nil {
				return err
			}
		}
	default:
		return r.other(holder, w)
	}
	return nil
}

// texts reports whether a value is a list of nothing but texts.
func texts(b []byte, v rawjson.Span) bool {
	if !rawjson.IsArray(b, v) {
		return false
	}
	for w := rawjson.Open(b, v); w.Next(); {
		if !rawjson.IsString(b, w.Val) {
			return false
		}
	}
	return true
}

// flat reports whether a value holds no list and no object that hold anything.
func flat(b []byte, v rawjson.Span) bool {
	for w := rawjson.Open(b, v); w.Next(); {
		if rawjson.Nested(b, w.Val) {
			return false
		}
	}
	return true
}

// callNames are the keys under which formats keep calls, those of other formats
// too. A client may read text behind them once more.
var callNames = strictjson.Keys("message", "function", "arguments", "tool_calls", "tool_call", "function_call",
	"function_calls", "tool_use", "tool_uses", "toolcalls", "toolcall", "functioncall", "functioncalls")

// partNames are the keys under which formats keep parts of a call.
var partNames = strictjson.Keys("name", "tool_name", "input", "parameters", "args")

// other withholds a member that is not known and holds enough for a call.
func (r *reader) other(holder rawjson.Span, w rawjson.Walk) error {
	if !couldCall(r.b, w.Key, w.Val) {
		return nil
	}
	c, err := r.add(typeMember)
	if err != nil {
		return err
	}
	c.Name = c.word(rawjson.KeyText(r.b, w.Key), "name")
	r.argue(c, w.Val.In(r.b))
	c.fail(toolcall.FaultUnknown, fmt.Sprintf("the member %.100q could hold a call", c.Name))
	r.rd.mentions = append(r.rd.mentions, mention{c: c, holder: holder, item: w.Item})
	return nil
}

// couldCall reports whether a member that is not known holds enough for a call:
// a list or an object that is not empty, or a text where others keep calls.
func couldCall(b []byte, key, val rawjson.Span) bool {
	if !rawjson.IsString(b, val) {
		return rawjson.Nested(b, val)
	}
	_, ok := callNames[strictjson.Fold(rawjson.KeyText(b, key))]
	return ok && val.Len() > 2
}

// entry reads one entry of tool_calls.
func (r *reader) entry(w rawjson.Walk) error {
	b := r.b
	c, err := r.add(typeFunction)
	if err != nil {
		return err
	}
	m := mention{c: c, holder: r.rd.list, item: w.Item}
	if !rawjson.IsObject(b, w.Val) {
		r.argue(c, w.Val.In(b))
		c.fail(toolcall.FaultUnknown, "it is no object")
	}
	for e := rawjson.Open(b, w.Val); e.Next(); {
		switch string(e.Key.In(b)) {
		case "id":
			if c.ID = c.word(rawjson.Text(b, e.Val), "id"); !rawjson.Null(b, e.Val) && !rawjson.IsString(b, e.Val) {
				c.fail(toolcall.FaultAmbiguous, "its id is no text")
			}
		case "type":
			if kind := rawjson.Text(b, e.Val); kind != "" {
				c.Type = c.word(kind, "type")
			}
			if c.Type != typeFunction {
				c.fail(toolcall.FaultUnknown, fmt.Sprintf("it is of the type %.100q", c.Type))
			}
		case "function":
			if m.inner = e.Val; rawjson.IsObject(b, e.Val) {
				r.function(&m)
			}
		default:
			r.within(c, e, entryKeys)
		}
	}
	r.judge(c)
	if r.repair && c.Fault == toolcall.FaultNone {
		r.keep(c, w.Val.In(b))
	}
	r.rd.mentions = append(r.rd.mentions, m)
	return nil
}

func (r *reader) function(m *mention) {
	b, c := r.b, m.c
	for w := rawjson.Open(b, m.inner); w.Next(); {
		switch string(w.Key.In(b)) {
		case "name":
			if c.Name = c.word(rawjson.Text(b, w.Val), "name"); !rawjson.Null(b, w.Val) && !rawjson.IsString(b, w.Val) {
				c.fail(toolcall.FaultAmbiguous, "its name is no text")
			}
		case "arguments":
			if m.args = w.Val; !rawjson.Null(b, w.Val) {
				r.argue(c, w.Val.In(b))
			}
		case "index":
			m.index = w.Val
			if c.index, c.indexed = rawjson.Whole(b, w.Val); !c.indexed && !rawjson.Null(b, w.Val) {
				c.fail(toolcall.FaultAmbiguous, "its index is no whole number")
			}
		default:
			r.within(c, w, functionKeys)
		}
	}
}

// within looks at a member of a call that is not known: the call cannot be
// released when a client could read something else in it.
func (r *reader) within(c *call, w rawjson.Walk, known map[string]string) {
	if reason := disguised(r.b, w.Key, known); reason != "" {
		c.fail(toolcall.FaultAmbiguous, reason)
	}
	_, part := partNames[strictjson.Fold(rawjson.KeyText(r.b, w.Key))]
	if couldCall(r.b, w.Key, w.Val) || part && rawjson.Text(r.b, w.Val) != "" {
		c.fail(toolcall.FaultUnknown, fmt.Sprintf("its member %.100q could hold another call", rawjson.KeyText(r.b, w.Key)))
	}
}

// judge marks a call that cannot be judged.
func (r *reader) judge(c *call) {
	if c.Name == "" {
		c.fail(toolcall.FaultAmbiguous, "it has no name")
	}
	if r.odd != "" {
		c.fail(toolcall.FaultAmbiguous, r.odd)
	}
	if c.ID != "" && slices.ContainsFunc(r.now, func(o *call) bool { return o != c && o.ID == c.ID }) {
		c.fail(toolcall.FaultAmbiguous, "it has the id of another call")
	}
	if len(c.Args) == 0 {
		c.Args = []byte("{}") // what clients read where there are none
		return
	}
	if fault, detail := unsound(c.Args, r.lim.Depth); fault != toolcall.FaultNone {
		c.fail(fault, detail)
	}
}
