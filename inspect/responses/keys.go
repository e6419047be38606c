package responses

import (
	"strconv"
	"strings"

	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// level is what is known of one level of an answer: its keys, and those whose
// values may be objects or arrays that no client runs anything from. What
// stands under any other key must not look like a call.
type level struct {
	exact map[string]bool
	known map[string]string // by folded form
	quiet map[string]bool
}

// newLevel takes the keys in words; those that end in ! are quiet.
func newLevel(text string) *level {
	l := &level{exact: map[string]bool{}, quiet: map[string]bool{}}
	var names []string
	for w := range strings.FieldsSeq(text) {
		name, quiet := strings.CutSuffix(w, "!")
		names = append(names, name)
		l.exact[name] = true
		if quiet {
			l.quiet[name] = true
		}
	}
	l.known = strictjson.Keys(names...)
	return l
}

// The levels of an answer. The arguments of a call are another one: any key may
// stand there.
var (
	eventLevel = newLevel(`type sequence_number output_index item_id item! content_index summary_index part! delta text refusal
		annotation! annotation_index logprobs! obfuscation response! code message param error! command_index
		arguments input name command diff call_id output! partial_image_b64 partial_image_index metadata! rate_limits! plan_type`)
	responseLevel = newLevel(`id object created_at completed_at status background error! incomplete_details! instructions! model
		output! output_text usage! previous_response_id conversation! tools! tool_choice! text! reasoning! metadata! prompt! input!
		parallel_tool_calls max_tool_calls max_output_tokens temperature top_p top_logprobs truncation store service_tier user
		safety_identifier prompt_cache_key prompt_cache_retention billing! moderation! context_management! tool_usage!`)
	itemLevel = newLevel(`type id status role content! phase summary! encrypted_content call_id name namespace
		arguments! input! action! actions! operation! caller! environment! server_label execution
		pending_safety_checks! code result results! output! outputs! queries! tools! error! logprobs!`)
	partLevel = newLevel(`type text annotations! logprobs! refusal transcript data`)
)

// flaw is what keeps a part of an answer from being read one way only.
type flaw struct {
	fault  toolcall.Fault
	reason string
}

func unknown(reason string) flaw   { return flaw{toolcall.FaultUnknown, reason} }
func ambiguous(reason string) flaw { return flaw{toolcall.FaultAmbiguous, reason} }

// check looks at the members of one object. The text must have passed
// strictjson, so that no two keys of it are equal.
func (l *level) check(b []byte, obj rawjson.Span) flaw {
	if !rawjson.IsObject(b, obj) {
		return ambiguous("an object is wanted")
	}
	for w := rawjson.Open(b, obj); w.Next(); {
		raw := w.Key.In(b)
		known := l.exact[string(raw)]
		if !known && !plainKey(raw) {
			if exact, ok := l.known[strictjson.Fold(rawjson.KeyText(b, w.Key))]; ok {
				return ambiguous("the key " + strconv.Quote(string(raw)) + " reads like " + strconv.Quote(exact) + " and is not written so")
			}
		}
		switch first := b[w.Val.From]; {
		case known && (l.quiet[string(raw)] || first != '{' && first != '['):
		case known && callShaped(b, w.Val), !known && (first == '{' || first == '[' || first == '"') && callUnder(b, rawjson.KeyText(b, w.Key), w.Val):
			return looksLikeACall(rawjson.KeyText(b, w.Key))
		}
	}
	return flaw{}
}

// plainKey reports whether a key has no other way of being written: the keys
// that are looked for are of these letters, too.
func plainKey(key []byte) bool {
	for _, c := range key {
		if (c < 'a' || c > 'z') && c != '_' && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

func looksLikeACall(key string) flaw {
	return unknown("what stands under " + strconv.Quote(key) + " looks like a call")
}

// callKeys are keys under which calls hand over what they do, in this and in
// other providers' formats.
var callKeys = map[string]bool{"input": true, "arguments": true, "args": true, "partial_json": true, "tool_use": true,
	"tool_calls": true, "tool_call": true, "function_call": true, "functioncall": true, "tooluse": true, "function": true,
	"item": true, "content_block": true, "action": true, "operation": true}

// callShaped reports whether a value holds anything that some client could
// take for a call: by its keys, or by the type that an object in it names.
func callShaped(b []byte, v rawjson.Span) bool {
	for w := rawjson.Open(b, v); w.Next(); {
		if callUnder(b, rawjson.KeyText(b, w.Key), w.Val) {
			return true
		}
	}
	return false
}

// callUnder is callShaped for a value and the key that it stands under, ""
// for an element of an array.
func callUnder(b []byte, name string, value rawjson.Span) bool {
	text := rawjson.IsString(b, value)
	if !text && !rawjson.IsObject(b, value) && !rawjson.IsArray(b, value) {
		return false
	}
	name = strings.ToLower(name)
	switch {
	case callKeys[name]:
		return true
	case !text:
		return callShaped(b, value)
	case name == "type":
		word := strings.ToLower(rawjson.Text(b, value))
		return strings.Contains(word, "tool") || strings.Contains(word, "call") || strings.Contains(word, "function")
	}
	return false
}

// foldedName is a tool's name as the most careless client compares it.
func foldedName(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("_-.:/ ", r) {
			return -1
		}
		return r
	}, strictjson.Fold(name))
}
