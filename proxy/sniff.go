package proxy

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"unicode/utf8"
)

// The words below are compared with what stands between two quotation marks
// after letters are made small and everything in separators is taken out, so
// that function_call, function.call and functionCall are one word.

// callKeys are the keys under which the wire formats keep calls.
var callKeys = words("toolcall toolcalls functioncall functioncalls tooluse tooluses customtoolcall requiredaction " +
	"mcpapprovalrequest toolcallid")

// callTypes are the words that say of a value that it is a call, beside those
// that end in call or hold one of callParts.
var callTypes = words("tooluse tooluses toolcall toolcalls functioncall functioncalls mcpapprovalrequest requiresaction submittooloutputs")

// callParts stand in the types of calls, of the events that build them and in
// the keys of lists of their pieces.
var callParts = bytes.Fields([]byte("toolcall functioncall tooluse toolinput shellcall patchcall computercall mcpapproval"))

// noCalls are words like those of calls that stand for results, for settings,
// or for calls that the provider itself runs.
var noCalls = words("servertooluse mcptooluse websearchcall filesearchcall codeinterpretercall imagegenerationcall " +
	"mcpcall toolresult functioncalloutput customtoolcalloutput maxtoolcalls paralleltoolcalls call recall")

func words(s string) map[string]bool {
	m := make(map[string]bool)
	for w := range strings.FieldsSeq(s) {
		m[w] = true
	}
	return m
}

// maxWord is the longest word that is looked at, separators included: the names
// of event types are shorter.
const maxWord = 80

// media says how a body of some media type is searched.
type media uint8

const (
	noMedia media = iota // not at all: it could hold calls in a form that is not searched
	asText               // as JSON, lines of it, events or plain text, in UTF-8
	asBytes              // as a file that no client takes apart
)

// textual are the media types of text in which calls can stand only in the
// forms that are searched. All that end in +json are too.
var textual = words("application/json text/json application/jsonl application/jsonlines application/x-jsonlines application/x-jsonl " +
	"application/x-ndjson application/ndjson application/json-seq text/event-stream text/plain text/html text/csv " +
	"text/markdown text/vtt text/srt application/x-subrip application/x-amz-json-1.0 application/x-amz-json-1.1 application/openmetrics-text")

// files are the media types of what is kept or shown as a whole, beside audio,
// image and video.
var files = words("application/octet-stream application/pdf application/zip application/ogg")

// readable tells from the headers how a body is searched. ascii says that its
// character set is UTF-8 only as far as it is ASCII; reason says why it cannot
// be searched.
func readable(h http.Header) (how media, ascii bool, reason string) {
	values := h["Content-Type"]
	switch len(values) {
	case 0:
		return asBytes, false, ""
	case 1:
	default:
		return noMedia, false, "has several content types"
	}
	kind, params, _ := strings.Cut(strings.ToLower(values[0]), ";")
	kind = strings.TrimSpace(kind)
	class, _, _ := strings.Cut(kind, "/")
	switch {
	case textual[kind] || strings.HasSuffix(kind, "+json"):
		how = asText
	case strings.HasSuffix(kind, "+xml"):
	case files[kind] || class == "audio" || class == "image" || class == "video":
		how = asBytes
	}
	if how == noMedia {
		return noMedia, false, "has the content type " + printable(kind) + ", which is not searched for calls"
	}
	for set := range charsets(params) {
		switch set {
		case "utf-8", "utf8":
		case "us-ascii", "ascii", "iso-8859-1", "latin1", "windows-1252":
			ascii = true
		default:
			return noMedia, false, "has the character set " + printable(set) + ", which is not searched for calls"
		}
	}
	return how, ascii, ""
}

// callShaped says what in an answer looks like a call to some client, or why it
// cannot be searched, as the end of a sentence; "" when nothing is found. It
// reads no structure: every quoted word counts that a JSON reader, at whatever
// place and in whatever frame, could take for a key or a value of a call, after
// escapes are undone, letters folded and the data lines of events joined.
func callShaped(h http.Header, body []byte) string {
	if len(body) == 0 {
		return ""
	}
	how, ascii, reason := readable(h)
	if reason != "" {
		return reason
	}
	if bytes.HasPrefix(body, []byte{0x1f, 0x8b}) || bytes.HasPrefix(body, []byte{0x28, 0xb5, 0x2f, 0xfd}) {
		return "holds compressed content, which is not searched for calls"
	}
	plain := utf8.Valid(body) && bytes.IndexByte(body, 0) < 0
	switch {
	case how == asText && !plain:
		return "is not text in UTF-8, and is not searched for calls"
	case ascii && !isASCII(body):
		return "is not in UTF-8, and is not searched for calls"
	}
	found := search(body)
	if found == "" && !plain {
		found = unquoted(body)
	}
	if found == "" {
		return ""
	}
	return "holds call-shaped content (" + found + ")"
}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// search gives the word by which a text is call-shaped.
func search(body []byte) string {
	text := fold(body)
	if found := quotes(text); found != "" {
		return found
	}
	if bytes.Contains(text, []byte("data")) || bytes.Contains(text, []byte("event:")) {
		if found := events(text); found != "" {
			return found
		}
	}
	// A document that is one string is read twice by some.
	var inner string
	if t := bytes.TrimLeft(body, " \t\r\n\ufeff"); len(t) > 0 && t[0] == '"' && json.Unmarshal(t, &inner) == nil {
		return search([]byte(inner))
	}
	return ""
}

// quotes looks at every quoted word of a folded text.
func quotes(text []byte) string {
	var room [maxWord]byte
	for i := 0; i < len(text); {
		q := bytes.IndexByte(text[i:], '"')
		if q < 0 {
			return ""
		}
		i += q + 1
		word, after, spaced := quoted(room[:0], text[i:])
		if len(word) > 0 && isCall(text[:i-1], word, after, spaced) {
			return printable(string(text[i : len(text)-len(after)-1]))
		}
	}
	return ""
}

// separator reports a byte that writers put between the parts of a word.
func separator(c byte) bool {
	switch c {
	case '_', '-', '.', ':', '/', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}

// quoted gives the word up to the next quotation mark without its separators,
// and what is behind it. A text with anything but the characters of keys and
// types is no word. spaced says that it has white space between its letters.
func quoted(dst, b []byte) (word, after []byte, spaced bool) {
	gap := false
	for i, c := range b[:min(len(b), maxWord)] {
		switch {
		case c == '"':
			return dst, b[i+1:], spaced
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			spaced = spaced || gap && len(dst) > 0
			gap = false
			dst = append(dst, c)
		case separator(c):
			gap = gap || c == ' '
		default:
			return nil, nil, false
		}
	}
	return nil, nil, false
}

// isCall judges a quoted word by what stands around it: a key in front of a
// value that is not empty, or a value behind a colon.
func isCall(before, word, after []byte, spaced bool) bool {
	if !suspect(word) {
		return false
	}
	if after = bytes.TrimLeft(after, " \t\r\n"); len(after) > 0 && after[0] == ':' {
		value := bytes.TrimLeft(after[1:], " \t\r\n")
		if empty(value) {
			return false
		}
		return callKeys[string(word)] ||
			!spaced && !settled(word) && hasPart(word) && len(value) > 0 && (value[0] == '[' || value[0] == '{')
	}
	before = bytes.TrimRight(before, " \t\r\n")
	if len(before) == 0 || before[len(before)-1] != ':' || !callType(word, spaced) {
		return false
	}
	// An error may name a field or its own code with such a word.
	key := bytes.TrimRight(before[:len(before)-1], " \t\r\n")
	return !bytes.HasSuffix(key, []byte(`"param"`)) && !bytes.HasSuffix(key, []byte(`"code"`))
}

// suspect is the quick look that lets most words go.
func suspect(word []byte) bool {
	return bytes.Contains(word, []byte("call")) || bytes.Contains(word, []byte("tool")) ||
		bytes.Contains(word, []byte("action")) || bytes.Contains(word, []byte("approval"))
}

// settled reports a word that stands for no call although it reads like one.
func settled(word []byte) bool {
	return noCalls[string(word)] || bytes.HasSuffix(word, []byte("output")) || bytes.HasSuffix(word, []byte("result")) ||
		bytes.HasSuffix(word, []byte("calling"))
}

func hasPart(word []byte) bool {
	for _, p := range callParts {
		if bytes.Contains(word, p) {
			return true
		}
	}
	return false
}

// callType judges a word that stands as a value. The plain word function is
// none: it is that of tools on offer, and calls of that type stand under a key
// of callKeys. Several words are a sentence, unless they are a type as a whole.
func callType(word []byte, spaced bool) bool {
	switch {
	case settled(word):
		return false
	case callTypes[string(word)]:
		return true
	}
	return !spaced && (bytes.HasSuffix(word, []byte("call")) || hasPart(word))
}

// unquoted looks for words of calls in a body that is no text: binary forms of
// JSON write them without quotation marks.
func unquoted(body []byte) string {
	text := fold(body)
	for _, w := range []string{"tool_call", "tool_use", "function_call", "toolcall", "tooluse", "functioncall", "tool-call", "function.call"} {
		if bytes.Contains(text, []byte(w)) {
			return w
		}
	}
	return ""
}

// events reads a folded text as server-sent events: it looks at the names of
// events, and at their data with the lines joined as a client would join them,
// whatever stands between.
func events(text []byte) string {
	odd := oddBreak(text) >= 0
	if odd && hiddenField(text) {
		return oddEvents
	}
	data := make([]byte, 0, len(text))
	begin := 0 // of the event's data
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	for len(text) > 0 {
		line := text
		if i := bytes.IndexAny(text, "\r\n"); i >= 0 {
			line, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		name, value, _ := bytes.Cut(bytes.TrimLeft(line, " \t"), []byte(":"))
		switch string(bytes.TrimRight(name, " \t")) {
		case "data":
			data = append(append(data, bytes.TrimPrefix(value, []byte(" "))...), '\n')
		case "event":
			var room [maxWord]byte
			word, _, spaced := quoted(room[:0], append(bytes.Clone(value[:min(len(value), maxWord)]), '"'))
			if len(word) > 0 && suspect(word) && callType(word, spaced) {
				return printable(string(value))
			}
		}
		if odd && (len(text) == 0 || text[0] == '\r' || text[0] == '\n') {
			if event := data[begin:]; oddBreak(event) >= 0 && !json.Valid(event) {
				return oddEvents
			}
			begin = len(data)
		}
	}
	return quotes(data)
}

// oddEvents names events that readers take apart in different ways.
const oddEvents = "events with characters at which some readers break lines"

// oddBreak finds the first character at which some readers break lines and
// others do not, as Python's str.splitlines does at more than CR and LF.
func oddBreak(b []byte) int {
	for i, c := range b {
		switch c {
		case '\v', '\f', 0x1c, 0x1d, 0x1e:
			return i
		case 0xC2: // U+0085
			if i+1 < len(b) && b[i+1] == 0x85 {
				return i
			}
		case 0xE2: // U+2028 and U+2029
			if i+2 < len(b) && b[i+1] == 0x80 && (b[i+2] == 0xA8 || b[i+2] == 0xA9) {
				return i
			}
		}
	}
	return -1
}

// hiddenField reports a line of data, or the name of an event, that begins at
// a break which only some readers see. A break that all see as text, within the
// strings of valid JSON, leaves nobody a call that search does not find.
func hiddenField(text []byte) bool {
	for {
		i := oddBreak(text)
		if i < 0 {
			return false
		}
		_, size := utf8.DecodeRune(text[i:])
		text = text[i+size:]
		line := bytes.TrimLeft(text, " \t")
		if bytes.HasPrefix(line, []byte("data")) || bytes.HasPrefix(line, []byte("event")) {
			return true
		}
	}
}

// empty reports a value that holds no call: null, a truth value (as lists of
// models have them), "", [] or {}.
func empty(b []byte) bool {
	b = bytes.TrimLeft(b, " \t\r\n")
	for _, lit := range []string{"null", "false", "true", `""`} {
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
			} else if i+1 < len(b) && b[i+1] == '/' {
				c, i = '/', i+1
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
	case v == '\t', v == '\r', v == '\n':
		return ' ', true // a real one would end a line
	case 'a' <= v && v <= 'z', '0' <= v && v <= '9', v < 0x80 && separator(byte(v)):
		return byte(v), true
	}
	return 0, false
}
