package responses

import (
	"bytes"
	"strconv"

	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// item is one item of the turn's output, in the provider's order: one of the
// provider's, something withheld that is none (fault), or a text of ours.
type item struct {
	index int // the provider's, in its round
	typ   string
	id    string
	kind  *kind
	call  *call
	fault bool

	raw  []byte // as it ended, nil while it has not
	done bool   // it has

	placed bool   // something of it was given out
	shown  int    // the agent's index of it
	closed bool   // its end was given out
	text   []byte // of a message: what was given out of its text, between quotes
	own    []byte // the message of ours that stands there
}

// reading is what an item of an answer says of itself.
type reading struct {
	at   rawjson.Span
	typ  string
	id   string
	kind *kind
	flaw flaw
}

// readItem reads an item and checks that all readers read it alike.
func readItem(b []byte, at rawjson.Span, tools []toolcall.Tool) (r reading) {
	r.at, r.kind = at, unknownKind
	if !rawjson.IsObject(b, at) {
		r.flaw = unknown("an item that is no object cannot be read")
		return r
	}
	get := func(key string) rawjson.Span { return rawjson.Get(b, at, key) }
	r.typ, r.id = rawjson.Text(b, get("type")), rawjson.Text(b, get("id"))
	r.kind = kindOf(b, at, r.typ, tools)
	if r.flaw = itemLevel.check(b, at); r.flaw.reason != "" {
		if r.kind.class == callItem || r.kind.class == otherItem {
			return r
		}
		r.kind = unknownKind
		return r
	}
	switch {
	case r.kind.class == otherItem:
		r.flaw = unknown("an item of type " + strconv.Quote(r.typ) + " cannot be read")
	case r.kind.class == callItem:
		r.flaw = foreign(b, at, r.kind, toolcall.FaultAmbiguous)
	case r.typ == "mcp_call":
		if reason := notHosted(tools, rawjson.Text(b, get("name"))); reason != "" {
			r.flaw = unknown(reason)
		} else {
			r.flaw = foreign(b, at, r.kind, toolcall.FaultUnknown)
		}
	case r.typ == "message":
		if r.flaw = foreign(b, at, r.kind, toolcall.FaultUnknown); r.flaw.reason == "" {
			r.flaw = checkParts(b, get("content"), messageParts)
		}
	case r.typ == "reasoning":
		r.flaw = foreign(b, at, r.kind, toolcall.FaultUnknown)
		for _, key := range []string{"content", "summary"} {
			if r.flaw.reason == "" {
				r.flaw = checkParts(b, get(key), reasoningParts)
			}
		}
	default:
		r.flaw = foreign(b, at, r.kind, toolcall.FaultUnknown)
	}
	return r
}

// argMembers are the members in which calls say what they are to do.
var argMembers = []string{"arguments", "input", "action", "actions", "operation"}

// foreign reports a member that says what to do in a call of another type.
func foreign(b []byte, at rawjson.Span, k *kind, f toolcall.Fault) flaw {
	for _, key := range argMembers {
		switch v := rawjson.Get(b, at, key); {
		case rawjson.Null(b, v), key == k.args, k.name == computerName && key == "action":
		case k.class == hostedItem && k.args == "" && key == "action": // what was searched for
		default:
			return flaw{f, "it has the member " + strconv.Quote(key) + ", which is of calls of another type"}
		}
	}
	return flaw{}
}

// The parts that messages and reasoning are made of.
var (
	messageParts   = map[string]bool{"output_text": true, "refusal": true, "text": true, "output_audio": true, "summary_text": true, "reasoning_text": true}
	reasoningParts = map[string]bool{"summary_text": true, "reasoning_text": true, "text": true}
)

// checkParts looks at the parts of an item.
func checkParts(b []byte, list rawjson.Span, may map[string]bool) flaw {
	if !rawjson.IsArray(b, list) {
		if rawjson.IsObject(b, list) {
			return unknown("its content is neither text nor a list")
		}
		return flaw{}
	}
	for w := rawjson.Open(b, list); w.Next(); {
		if f := checkPart(b, w.Val, may); f.reason != "" {
			return f
		}
	}
	return flaw{}
}

func checkPart(b []byte, part rawjson.Span, may map[string]bool) flaw {
	if f := partLevel.check(b, part); f.reason != "" {
		return f
	}
	if typ := rawjson.Text(b, rawjson.Get(b, part, "type")); !may[typ] {
		return unknown("a part of type " + strconv.Quote(typ) + " cannot be read")
	}
	return flaw{}
}

// argMember gives the member that says what a call is to do.
func argMember(b []byte, at rawjson.Span, k *kind) string {
	if k.name == computerName && rawjson.Null(b, rawjson.Get(b, at, "actions")) {
		return "action"
	}
	return k.args
}

// argsOf gives the arguments of a call's item, as a client reads them.
func argsOf(b []byte, at rawjson.Span, k *kind, depth int) (args []byte, f flaw) {
	v := rawjson.Get(b, at, argMember(b, at, k))
	switch k.form {
	case jsonText, freeText:
		if rawjson.Null(b, v) {
			return nil, flaw{}
		}
		if !rawjson.IsString(b, v) {
			return bytes.Clone(v.In(b)), flaw{toolcall.FaultArguments, "its arguments are no text"}
		}
		if lone(v.In(b), depth) {
			f = ambiguous("half a surrogate pair stands in its arguments")
		}
		return strictjson.AppendString([]byte{}, v.In(b)), f
	}
	if k.name == computerName && !rawjson.Null(b, rawjson.Get(b, at, "actions")) {
		if one := rawjson.Get(b, at, "action"); !rawjson.Null(b, one) {
			// Clients take the one or the other.
			args = append([]byte(`{"action":`), one.In(b)...)
			args = append(append(args, `,"actions":`...), v.In(b)...)
			return append(args, '}'), flaw{}
		}
		args = append([]byte(`{"actions":`), v.In(b)...)
		return append(args, '}'), flaw{}
	}
	if !rawjson.IsObject(b, v) {
		f = flaw{toolcall.FaultArguments, "it does not say what to do"}
	}
	if lone(v.In(b), depth) {
		f = ambiguous("half a surrogate pair stands in its arguments")
	}
	return bytes.Clone(v.In(b)), f
}

// lone reports whether a JSON text holds half of a surrogate pair, which
// readers keep, replace or refuse.
func lone(raw []byte, depth int) bool {
	return bytes.Contains(raw, []byte(`\u`)) && strictjson.Validate(raw, strictjson.Options{Depth: depth}) != nil
}

// identify takes in who a call is. Its item has passed readItem.
func (c *call) identify(b []byte, at rawjson.Span) {
	get := func(key string) rawjson.Span { return rawjson.Get(b, at, key) }
	text := func(key string) string {
		v := get(key)
		if !rawjson.Null(b, v) && !rawjson.IsString(b, v) || lone(v.In(b), 0) {
			c.blame(toolcall.FaultAmbiguous, "its "+key+" is no plain text")
		}
		return rawjson.Text(b, v)
	}
	c.Text = c.kind.form == freeText
	c.ID = text("call_id")
	switch {
	case c.kind.name != "":
		c.Name = c.kind.name
	case c.kind.output == "mcp_approval_response":
		c.ID = text("id")
		c.Name = fullName(text("server_label"), text("name"))
	default:
		c.Name = fullName(text("namespace"), text("name"))
	}
	if c.kind.class == callItem && c.Name == "" {
		c.blame(toolcall.FaultAmbiguous, "it has no name")
	}
}

// hostedArgs gives what a call of the provider's own was to do, as one object.
func hostedArgs(b []byte, at rawjson.Span, most int) []byte {
	if v := rawjson.Get(b, at, "arguments"); rawjson.IsString(b, v) {
		return strictjson.AppendString(nil, v.In(b))
	}
	args := []byte{'{'}
	for _, key := range []string{"action", "arguments", "queries", "code"} {
		v := rawjson.Get(b, at, key)
		if rawjson.Null(b, v) || len(args)+v.Len() > most {
			continue
		}
		args = append(append(comma(args, 1), `"`+key+`":`...), v.In(b)...)
	}
	return append(args, '}')
}

// comma adds a comma unless nothing stands behind from.
func comma(dst []byte, from int) []byte {
	if len(dst) > from {
		return append(dst, ',')
	}
	return dst
}
