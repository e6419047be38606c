package anthropic

import (
	"errors"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// The keys that are read at each level of an answer. A key that only looks
// like one of them to a reader that ignores case or undoes escapes makes its
// object ambiguous. The arguments of a call are another level: any key may
// stand there.
var (
	eventKeys = keys("type", "index", "message", "content_block", "delta", "usage", "error", "request_id",
		"context_management", "input_transformations")
	messageKeys = keys("type", "id", "role", "model", "content", "stop_reason", "stop_sequence", "stop_details", "usage",
		"container", "context_management", "input_transformations", "error", "request_id")
	blockKeys = keys("type", "id", "name", "input", "caller", "toolset_name", "text", "citations", "thinking",
		"signature", "data", "content", "tool_use_id", "server_name", "is_error")
	deltaKeys = keys("type", "text", "thinking", "signature", "partial_json", "citation", "estimated_tokens",
		"content", "encrypted_content", "stop_reason", "stop_sequence", "stop_details", "container")
)

// The keys whose values may be objects or arrays that no client runs anything
// from, at each level. Under any other key such a value must not look like a
// call.
var (
	quietEvents = map[string]map[string]bool{
		"message_start":       set("message"),
		"content_block_start": set("content_block"),
		"content_block_delta": set("delta"),
		"message_delta":       set("delta", "usage", "context_management", "input_transformations"),
	}
	quietMessage = set("content", "usage", "container", "context_management", "input_transformations", "stop_details")
	quietDelta   = set("citation", "partial_json")
	quietFinish  = set("stop_details", "container")
	quietText    = set("citations")
	quietCall    = set("input", "caller")
	quietError   = set()
)

// messageBlocks are the types of blocks that cannot run on a client. All
// others count as calls.
var messageBlocks = set("text", "thinking", "redacted_thinking", "connector_text", "server_tool_use", "mcp_tool_use",
	"web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result", "bash_code_execution_tool_result",
	"text_editor_code_execution_tool_result", "tool_search_tool_result", "advisor_tool_result", "mcp_tool_result",
	"mcp_tool_listing", "container_upload", "compaction", "fallback")

// keys are keys by their folded form and by the one they must have, so that one
// look is enough for those that are written right.
func keys(list ...string) map[string]string {
	m := strictjson.Keys(list...)
	for _, k := range list {
		m[k] = k
	}
	return m
}

func set(words ...string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}

// flaw is what keeps an object from being read one way only.
type flaw struct {
	fault  toolcall.Fault
	reason string
}

// level checks one object: its keys are those of known or unlike them, and
// what stands under keys other than quiet ones is no call. With quiet nil only
// the keys are checked.
func level(obj gjson.Result, known map[string]string, quiet map[string]bool) (f flaw) {
	if !obj.IsObject() {
		return flaw{toolcall.FaultAmbiguous, "an object is wanted"}
	}
	obj.ForEach(func(key, value gjson.Result) bool {
		raw := key.Raw[1 : len(key.Raw)-1]
		exact, isKnown := known[raw]
		if !isKnown {
			exact, isKnown = known[strictjson.Fold(key.Str)]
		}
		switch {
		case isKnown && exact != raw:
			f = flaw{toolcall.FaultAmbiguous, "the key " + strconv.Quote(raw) + " reads like " + strconv.Quote(exact) + " and is not written so"}
		case quiet == nil || quiet[raw]:
		case raw != "type" && callUnder(raw, value):
			f = flaw{toolcall.FaultUnknown, "what stands under " + strconv.Quote(raw) + " looks like a call"}
		}
		return f.reason == ""
	})
	return f
}

// blockLevel checks a block that is no call: it must hold nothing that a client
// could take for one by its keys.
func blockLevel(typ string, block gjson.Result) flaw {
	switch kindOf(typ) {
	case textBlock, thinkingBlock:
		return level(block, blockKeys, quietText)
	case hostedBlock:
		return level(block, blockKeys, quietCall)
	}
	// What tools gave back, and the like, may hold anything further down.
	f := level(block, blockKeys, nil)
	block.ForEach(func(key, value gjson.Result) bool {
		if f.reason == "" && callKeys[strings.ToLower(key.Str)] && (value.Type == gjson.String || value.Type == gjson.JSON) {
			f = flaw{toolcall.FaultUnknown, "the key " + strconv.Quote(key.Str) + " stands in a block of type " + strconv.Quote(typ)}
		}
		return f.reason == ""
	})
	return f
}

// deltaForm is what a delta of one type looks like: the key it must have, those
// it may have, and the types of the blocks it stands in.
type deltaForm struct {
	key    string
	is     gjson.Type
	others map[string]bool
	blocks map[string]bool
}

// deltaForms are all there are. A delta of another type is not passed on, nor
// one with a key more: clients that go by the keys would read another delta.
var deltaForms = map[string]deltaForm{
	"text_delta":       {"text", gjson.String, nil, set("text", "connector_text")},
	"citations_delta":  {"citation", gjson.JSON, nil, set("text")},
	"thinking_delta":   {"thinking", gjson.String, set("estimated_tokens", "signature"), set("thinking")},
	"signature_delta":  {"signature", gjson.String, nil, set("thinking", "text", "connector_text", "compaction")},
	"compaction_delta": {"content", gjson.String, set("encrypted_content"), set("compaction")},
	"input_json_delta": {"partial_json", gjson.String, nil, set("server_tool_use", "mcp_tool_use")},
}

// deltaFlaw says what is wrong with a delta for a block.
func deltaFlaw(d gjson.Result, b *block) (f flaw) {
	kind := words(d.Get("type"))
	form, ok := deltaForms[kind]
	switch {
	case b.kind == callBlock && kind != "input_json_delta":
		return flaw{toolcall.FaultUnknown, "a delta of type " + strconv.Quote(kind) + " stands in a call"}
	case !ok:
		return flaw{toolcall.FaultUnknown, "a delta of type " + strconv.Quote(kind) + " cannot be read"}
	case b.kind != callBlock && !form.blocks[b.typ]:
		return flaw{toolcall.FaultAmbiguous, "a delta of type " + strconv.Quote(kind) + " stands in a block of type " + strconv.Quote(b.typ)}
	}
	if v := d.Get(form.key); v.Type != form.is && !(form.key == "content" && v.Type == gjson.Null) {
		return flaw{toolcall.FaultUnknown, "a delta of type " + strconv.Quote(kind) + " lacks its " + form.key}
	}
	d.ForEach(func(key, value gjson.Result) bool {
		switch {
		case key.Str == "type", key.Str == form.key:
		case value.Type == gjson.Null: // adds nothing, for any reader
		case !form.others[key.Str]:
			f = flaw{toolcall.FaultUnknown, "the key " + strconv.Quote(key.Str) + " stands in a delta of type " + strconv.Quote(kind)}
		case value.Type == gjson.JSON:
			f = flaw{toolcall.FaultUnknown, "something other than a text or a number stands under " + strconv.Quote(key.Str)}
		}
		return f.reason == ""
	})
	return f
}

// callKeys are keys under which calls hand over what they do, in this and in
// other providers' formats.
var callKeys = set("input", "arguments", "args", "partial_json", "tool_use", "tool_calls", "tool_call", "function_call",
	"functioncall", "tooluse", "function", "content_block")

// callShaped reports whether a value holds anything that some client could
// take for a call: by its keys, or by the type that an object in it names.
func callShaped(v gjson.Result) bool {
	if !v.IsObject() && !v.IsArray() {
		return false
	}
	found := false
	v.ForEach(func(key, value gjson.Result) bool {
		found = callUnder(key.Str, value)
		return !found
	})
	return found
}

// callUnder is callShaped for a value and the key that it stands under, ""
// for an element of an array.
func callUnder(key string, value gjson.Result) bool {
	if value.Type != gjson.String && value.Type != gjson.JSON {
		return false
	}
	key = strings.ToLower(key)
	if callKeys[key] {
		return true
	}
	if key == "type" {
		word := strings.ToLower(value.Str)
		return strings.Contains(word, "tool") || strings.Contains(word, "call") || strings.Contains(word, "function") || callShaped(value)
	}
	return callShaped(value)
}

// spot is a place in an event or a document.
type spot struct{ at, n int }

// spotOf is where a value is written, counted from the start of what root was
// parsed from.
func spotOf(v gjson.Result) spot { return spot{v.Index, len(v.Raw)} }

// wholeNumber reads an index: plain digits, no sign, fraction or exponent.
func wholeNumber(v gjson.Result) (int, bool) {
	if v.Type != gjson.Number || len(v.Raw) > 7 || strings.Trim(v.Raw, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(v.Raw)
	return n, err == nil
}

// count reads a token count, -1 when there is none.
func count(v gjson.Result) int64 {
	if v.Type != gjson.Number {
		return -1
	}
	return v.Int()
}

// words gives the text of a string, "" for anything else.
func words(v gjson.Result) string {
	if v.Type != gjson.String {
		return ""
	}
	return v.Str
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
func lone(raw string, depth int) bool {
	return strings.Contains(raw, `\u`) && strictjson.Validate([]byte(raw), strictjson.Options{Depth: depth}) != nil
}

// inner is what stands between the quotes of a string.
func inner(v gjson.Result) []byte { return []byte(v.Raw[1 : len(v.Raw)-1]) }

// isCall reports whether a client could run a block.
func (l *ledger) isCall(block gjson.Result) bool {
	typ := words(block.Get("type"))
	if !block.IsObject() || !messageBlocks[typ] {
		return true
	}
	return kindOf(typ) == hostedBlock && notHosted(l.tools, typ, words(block.Get("name"))) != ""
}

// readCall fills a call from its block, in a stream its start. It says what is
// wrong with the block itself, not with its arguments.
func (l *ledger) readCall(c *toolcall.Call, block gjson.Result) flaw {
	typ := block.Get("type")
	// Copied, so that they do not keep all of the event.
	c.Type, c.ID, c.Name = strings.Clone(words(typ)), strings.Clone(words(block.Get("id"))), strings.Clone(words(block.Get("name")))
	if c.Type == "" {
		c.Type = "block"
	}
	switch {
	case !block.IsObject() || typ.Type != gjson.String:
		return flaw{toolcall.FaultUnknown, "a block does not say its type"}
	case kindOf(c.Type) == hostedBlock:
		return flaw{toolcall.FaultUnknown, notHosted(l.tools, c.Type, c.Name)}
	case c.Type != "tool_use":
		return flaw{toolcall.FaultUnknown, "a block of type " + strconv.Quote(c.Type) + " cannot be read"}
	case c.ID == "":
		return flaw{toolcall.FaultAmbiguous, "the call has no id"}
	case c.Name == "":
		return flaw{toolcall.FaultAmbiguous, "the call has no name"}
	}
	return level(block, blockKeys, quietCall)
}
