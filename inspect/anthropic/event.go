package anthropic

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// messageBlocks are the types of blocks that cannot run on a client. All
// others count as calls.
var messageBlocks = set("text", "thinking", "redacted_thinking", "connector_text", "server_tool_use", "mcp_tool_use",
	"web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result", "bash_code_execution_tool_result",
	"text_editor_code_execution_tool_result", "tool_search_tool_result", "advisor_tool_result", "mcp_tool_result",
	"mcp_tool_listing", "container_upload", "compaction", "fallback")

// item is what is read of one block, in a stream of its start. Its words lie in
// the bytes it was read from.
type item struct {
	at   rawjson.Span
	kind blockKind
	typ  []byte // nil when it names no type
	members
	flaw   flaw   // of its keys, and of what stands under them
	isCall bool   // a client could run it
	why    string // it is one that is said to run on the provider
}

// readBlock reads the block at a place.
func (l *ledger) readBlock(b []byte, at rawjson.Span) (r item) {
	r.at = at
	r.typ = word(b, member(b, at, "type"))
	r.kind = kindOf(r.typ)
	quiet := allQuiet
	switch {
	case !rawjson.IsObject(b, at) || !messageBlocks[string(r.typ)]:
		r.kind, r.isCall, quiet = callBlock, true, quietCall
	case r.kind == hostedBlock:
		quiet = quietCall
	case r.kind == textBlock, r.kind == thinkingBlock:
		quiet = quietText
	}
	r.flaw = level(b, at, blockKeys, quiet, &r.members)
	switch r.kind {
	case hostedBlock:
		r.why = notHosted(l.tools, string(r.typ), string(word(b, r.members[keyName])))
		r.isCall = r.why != ""
	case otherBlock:
		if r.flaw.reason == "" {
			r.flaw = resultFlaw(b, at, string(r.typ))
		}
	}
	return r
}

// resultFlaw checks a block of what tools gave back, and the like, which may
// hold anything further down: it must hold nothing that a client could take for
// a call by its keys.
func resultFlaw(b []byte, block rawjson.Span, typ string) flaw {
	for w := rawjson.Open(b, block); w.Next(); {
		switch b[w.Val.From] {
		case '"', '{', '[':
			if name := rawjson.KeyText(b, w.Key); callKeys[strings.ToLower(name)] {
				return flaw{toolcall.FaultUnknown, "the key " + strconv.Quote(name) + " stands in a block of type " + strconv.Quote(typ)}
			}
		}
	}
	return flaw{}
}

// fill takes what a block says of its call. It says what is wrong with the
// block itself, not with its arguments.
func (r *item) fill(c *toolcall.Call, b []byte) flaw {
	// Copied, so that they do not keep all of the event.
	c.Type, c.ID, c.Name = own(r.typ), string(word(b, r.members[keyID])), string(word(b, r.members[keyName]))
	if c.Type == "" {
		c.Type = "block"
	}
	switch {
	case r.typ == nil:
		return flaw{toolcall.FaultUnknown, "a block does not say its type"}
	case r.why != "":
		return flaw{toolcall.FaultUnknown, r.why}
	case c.Type != "tool_use":
		return flaw{toolcall.FaultUnknown, "a block of type " + strconv.Quote(c.Type) + " cannot be read"}
	case c.ID == "":
		return flaw{toolcall.FaultAmbiguous, "the call has no id"}
	case c.Name == "":
		return flaw{toolcall.FaultAmbiguous, "the call has no name"}
	}
	return r.flaw
}

// deltaForm is what a delta of one type looks like: the key it must have, those
// it may have, and the types of the blocks it stands in.
type deltaForm struct {
	key    key
	nested bool // an object or array stands under it, and else a string
	others keySet
	blocks map[string]bool
}

// deltaForms are all there are. A delta of another type is not passed on, nor
// one with a key more: clients that go by the keys would read another delta.
var deltaForms = map[string]deltaForm{
	"text_delta":       {keyText, false, 0, set("text", "connector_text")},
	"citations_delta":  {keyCitation, true, 0, set("text")},
	"thinking_delta":   {keyThinking, false, keys(keyEstimatedTokens, keySignature), set("thinking")},
	"signature_delta":  {keySignature, false, 0, set("thinking", "text", "connector_text", "compaction")},
	"compaction_delta": {keyContent, false, keys(keyEncryptedContent), set("compaction")},
	"input_json_delta": {keyPartialJSON, false, 0, set("server_tool_use", "mcp_tool_use")},
}

// deltaFlaw says what is wrong with a delta for a block, when there is nothing
// wrong with its keys.
func deltaFlaw(b []byte, d rawjson.Span, m *members, in *block) flaw {
	kind := string(word(b, m[keyType]))
	form, ok := deltaForms[kind]
	switch {
	case in.kind == callBlock && kind != "input_json_delta":
		return flaw{toolcall.FaultUnknown, "a delta of type " + strconv.Quote(kind) + " stands in a call"}
	case !ok:
		return flaw{toolcall.FaultUnknown, "a delta of type " + strconv.Quote(kind) + " cannot be read"}
	case in.kind != callBlock && !form.blocks[in.typ]:
		return flaw{toolcall.FaultAmbiguous, "a delta of type " + strconv.Quote(kind) + " stands in a block of type " + strconv.Quote(in.typ)}
	}
	v := m[form.key]
	fits := rawjson.IsString(b, v)
	if form.nested {
		fits = isNested(b, v)
	}
	if !fits && !(form.key == keyContent && rawjson.Null(b, v)) {
		return flaw{toolcall.FaultUnknown, "a delta of type " + strconv.Quote(kind) + " lacks its " + keyNames[form.key]}
	}
	for w := rawjson.Open(b, d); w.Next(); {
		switch k := keyOf(w.Key.In(b)); {
		case k == keyType, k == form.key:
		case rawjson.Null(b, w.Val): // adds nothing, for any reader
		case !form.others.has(k):
			return flaw{toolcall.FaultUnknown, "the key " + strconv.Quote(rawjson.KeyText(b, w.Key)) + " stands in a delta of type " + strconv.Quote(kind)}
		case isNested(b, w.Val):
			return flaw{toolcall.FaultUnknown, "something other than a text or a number stands under " + strconv.Quote(keyNames[k])}
		}
	}
	return flaw{}
}

// isNested reports whether a value is an object or an array, empty or not.
func isNested(b []byte, v rawjson.Span) bool { return rawjson.IsObject(b, v) || rawjson.IsArray(b, v) }

// count reads a token count, -1 when there is none.
func count(b []byte, v rawjson.Span) int64 {
	if rawjson.Null(b, v) {
		return -1
	}
	raw := string(v.In(b))
	if n, err := strconv.ParseInt(raw, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(raw, 64); err == nil && math.Abs(f) < 1<<53 {
		return int64(f)
	}
	return -1
}

// usage gives how many tokens went in and came out, -1 where it is not said.
func usage(b []byte, u rawjson.Span) (in, out int64) {
	return count(b, member(b, u, "input_tokens")), count(b, member(b, u, "output_tokens"))
}

// word gives what a string stands for, nil for anything else. It lies in b but
// for a string with escapes.
func word(b []byte, v rawjson.Span) []byte {
	if !rawjson.IsString(b, v) {
		return nil
	}
	raw := b[v.From+1 : v.To-1]
	if escaped(raw) {
		return strictjson.AppendString([]byte{}, v.In(b))
	}
	return raw
}

// escaped reports whether escapes stand in a raw string.
func escaped(raw []byte) bool { return bytes.IndexByte(raw, '\\') >= 0 }

// own copies a word that is kept. The usual ones are not copied.
func own(word []byte) string {
	switch string(word) {
	case "text":
		return "text"
	case "thinking":
		return "thinking"
	case "tool_use":
		return "tool_use"
	case "end_turn":
		return "end_turn"
	}
	return string(word)
}

// checkArgs says what is wrong with the arguments of a call, which must be one
// JSON object that all readers read alike.
func checkArgs(args []byte, depth int) flaw {
	err := strictjson.Object(args, strictjson.Options{Depth: depth})
	if err == nil {
		return flaw{}
	}
	reason := "its arguments cannot be read: " + err.Error()
	if e, ok := errors.AsType[*strictjson.Error](err); ok && e.Early {
		return flaw{toolcall.FaultTruncated, reason}
	}
	if gjson.ValidBytes(args) && gjson.ParseBytes(args).IsObject() {
		return flaw{toolcall.FaultAmbiguous, reason}
	}
	return flaw{toolcall.FaultArguments, reason}
}

// lone reports whether a JSON text holds half of a surrogate pair, which
// readers keep, replace or refuse.
func lone(raw []byte, depth int) bool {
	return bytes.Contains(raw, []byte(`\u`)) && strictjson.Validate(raw, strictjson.Options{Depth: depth}) != nil
}
