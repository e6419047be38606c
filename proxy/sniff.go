package proxy

import (
	"bytes"
	"net/http"
	"strings"
)

// callKeys are the keys under which the wire formats keep calls, folded.
var callKeys = words("tool_call tool_calls toolcall toolcalls function_call function_calls functioncall functioncalls " +
	"tool_use tool_uses tooluse tooluses custom_tool_call required_action mcp_approval_request")

// callTypes are the words that say of a value that it is a call, beside those
// that end in _call or hold one of callParts.
var callTypes = words("tool_use tooluse tool_uses tool_calls toolcalls functioncall mcp_approval_request requires_action submit_tool_outputs")

// callParts stand in the types of calls and of the events that build them.
var callParts = []string{"tool_call", "function_call", "tool_use", "functioncall", "tooluse", "toolcall"}

// noCalls are words like those of calls that stand for results, for settings,
// or for calls that the provider itself runs.
var noCalls = words("server_tool_use mcp_tool_use web_search_call file_search_call code_interpreter_call image_generation_call " +
	"mcp_call tool_result function_call_output custom_tool_call_output max_tool_calls parallel_tool_calls")

func words(s string) map[string]bool {
	m := make(map[string]bool)
	for w := range strings.FieldsSeq(s) {
		m[w] = true
	}
	return m
}

// maxWord is the longest word that is looked at: the names of event types are
// shorter.
const maxWord = 80

// callShaped says what in an answer looks like a call to some client, "" when
// nothing does. It reads no structure: every quoted word counts that a JSON
// reader, at whatever place and in whatever frame, could take for a key or a
// value of a call, after escapes are undone and letters folded. What is not
// text of that kind cannot be read and counts as found.
func callShaped(h http.Header, body []byte) string {
	if kind := h.Get("Content-Type"); strings.Contains(strings.ToLower(kind), "eventstream") {
		return "binary events, which are not read"
	}
	if bytes.HasPrefix(body, []byte{0x1f, 0x8b}) || bytes.HasPrefix(body, []byte{0x28, 0xb5, 0x2f, 0xfd}) {
		return "compressed content, which is not read"
	}
	text := fold(body)
	for i := 0; i < len(text); {
		q := bytes.IndexByte(text[i:], '"')
		if q < 0 {
			return ""
		}
		i += q + 1
		word, after, ok := quoted(text[i:])
		if ok && isCall(text[:i-1], word, after) {
			return "call-shaped content (" + string(word) + ")"
		}
	}
	return ""
}

// quoted gives the word up to the next quotation mark, and what is behind it.
// A text with anything but the characters of keys and types is no word.
func quoted(b []byte) (word, after []byte, ok bool) {
	for i, c := range b[:min(len(b), maxWord)] {
		switch {
		case c == '"':
			return b[:i], b[i+1:], i > 0
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '_', c == '-', c == '.':
		default:
			return nil, nil, false
		}
	}
	return nil, nil, false
}

// isCall judges a quoted word by what stands around it: a key in front of a
// value that is not empty, or a value behind a colon.
func isCall(before, word, after []byte) bool {
	if !suspect(word) {
		return false
	}
	if after = bytes.TrimLeft(after, " \t\r\n"); len(after) > 0 && after[0] == ':' {
		return callKeys[string(word)] && !empty(after[1:])
	}
	before = bytes.TrimRight(before, " \t\r\n")
	return len(before) > 0 && before[len(before)-1] == ':' && callType(string(word))
}

// suspect is the quick look that lets most words go.
func suspect(word []byte) bool {
	return bytes.Contains(word, []byte("call")) || bytes.Contains(word, []byte("tool")) ||
		bytes.Contains(word, []byte("action")) || bytes.Contains(word, []byte("approval"))
}

// callType judges a word that stands as a value. The plain word function is
// none: it is that of tools on offer, and calls of that type stand under a key
// of callKeys.
func callType(word string) bool {
	if noCalls[word] || strings.HasSuffix(word, "_output") || strings.HasSuffix(word, "_result") {
		return false
	}
	if callTypes[word] || strings.HasSuffix(word, "_call") {
		return true
	}
	for _, p := range callParts {
		if strings.Contains(word, p) {
			return true
		}
	}
	return false
}

// empty reports a value that holds nothing: null, false, "", [] or {}.
func empty(b []byte) bool {
	b = bytes.TrimLeft(b, " \t\r\n")
	for _, lit := range []string{"null", "false", `""`} {
		if bytes.HasPrefix(b, []byte(lit)) {
			return true
		}
	}
	if len(b) == 0 || b[0] != '[' && b[0] != '{' {
		return false
	}
	b = bytes.TrimLeft(b[1:], " \t\r\n")
	return len(b) > 0 && (b[0] == ']' || b[0] == '}')
}

// fold undoes the escapes of JSON that stand for letters and makes all letters
// small, the two that fold to ASCII letters too (U+017F, U+212A); zero bytes of
// wider encodings go. Other escapes stay, so that a quotation mark in a string
// is not taken for its end.
func fold(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch {
		case c == 0:
			continue
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case c == 0xC5 && i+1 < len(b) && b[i+1] == 0xBF:
			c, i = 's', i+1
		case c == 0xE2 && i+2 < len(b) && b[i+1] == 0x84 && b[i+2] == 0xAA:
			c, i = 'k', i+2
		case c == '\\':
			if r, ok := letter(b[i:]); ok {
				c, i = r, i+5
			} else if i+1 < len(b) && b[i+1] != 'u' {
				out = append(out, c)
				i++
				c = b[i] // so that \\u0041 stays what it is
			}
		}
		out = append(out, c)
	}
	return out
}

// letter reads an escape of a character that can stand in a word.
func letter(b []byte) (byte, bool) {
	if len(b) < 6 || b[1] != 'u' {
		return 0, false
	}
	v := 0
	for _, c := range b[2:6] {
		if !ishex(c) {
			return 0, false
		}
		v = v<<4 | int(unhex(c))
	}
	switch {
	case v == 0x17F:
		return 's', true
	case v == 0x212A:
		return 'k', true
	case 'A' <= v && v <= 'Z':
		return byte(v) + 'a' - 'A', true
	case 'a' <= v && v <= 'z', '0' <= v && v <= '9', v == '_', v == '-', v == '.':
		return byte(v), true
	}
	return 0, false
}
