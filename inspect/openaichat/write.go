package openaichat

import (
	"strconv"
	"unicode/utf8"
)

// envelope is what all chunks of an answer have in common, as the provider
// wrote it.
type envelope struct {
	known              bool
	id, created, model []byte // raw values, nil where none came
	idText, modelText  string
}

// take notes what a document says of the envelope. Some servers send a first
// event without an id and without choices; it does not settle anything.
func (e *envelope) take(b []byte, id, created, model span, choices bool) {
	if e.known {
		return
	}
	if isString(b, id) && id.to-id.from > 2 {
		e.id, e.idText = append([]byte(nil), id.in(b)...), text(b, id)
	}
	if _, ok := whole(b, span{created.from, min(created.to, created.from+9)}); ok {
		e.created = append([]byte(nil), created.in(b)...)
	}
	if isString(b, model) && model.to-model.from > 2 {
		e.model, e.modelText = append([]byte(nil), model.in(b)...), text(b, model)
	}
	e.known = e.id != nil || choices
}

// head appends the start of a chunk or an answer, up to its choices.
func (t *turn) head(dst []byte, object string) []byte {
	dst = append(dst, `{"id":`...)
	if t.env.id != nil {
		dst = append(dst, t.env.id...)
	} else {
		dst = append(dst, `"chatcmpl-callgate"`...)
	}
	dst = append(append(append(dst, `,"object":"`...), object...), `","created":`...)
	if t.env.created != nil {
		dst = append(dst, t.env.created...)
	} else {
		dst = append(dst, '0')
	}
	dst = append(dst, `,"model":`...)
	if t.env.model != nil {
		dst = append(dst, t.env.model...)
	} else {
		dst = appendQuoted(dst, t.model)
	}
	return append(dst, `,"choices":[`...)
}

// chunk appends one event of ours: a delta of one choice, and its finish reason
// where it has one.
func (t *turn) chunk(dst []byte, lane int, delta func([]byte) []byte, finish string) []byte {
	dst = t.head(append(dst, "data: "...), "chat.completion.chunk")
	dst = strconv.AppendInt(append(dst, `{"index":`...), int64(lane), 10)
	dst = append(dst, `,"delta":{`...)
	if delta != nil {
		dst = delta(dst)
	}
	dst = append(dst, `},"finish_reason":`...)
	if finish == "" {
		dst = append(dst, "null"...)
	} else {
		dst = appendQuoted(dst, finish)
	}
	return append(dst, "}]}\n\n"...)
}

// words is the member that text of ours goes into: content, or the refusal
// where the content must follow a schema.
func (t *turn) words() string {
	if t.structured {
		return "refusal"
	}
	return "content"
}

// completion appends a whole answer of ours.
func (t *turn) completion(dst []byte, text string) []byte {
	dst = t.head(dst, "chat.completion")
	dst = append(dst, `{"index":0,"message":{"role":"assistant",`...)
	if t.structured {
		dst = append(dst, `"content":null,`...)
	}
	dst = append(append(append(dst, '"'), t.words()...), `":`...)
	dst = appendQuoted(dst, text)
	return append(dst, `},"finish_reason":"stop"}]}`...)
}

func quoted(s string) []byte { return appendQuoted(nil, s) }

// appendQuoted appends s as a JSON string, with U+FFFD for what is not UTF-8.
func appendQuoted(dst []byte, s string) []byte {
	return append(appendEscaped(append(dst, '"'), s), '"')
}

// appendEscaped is appendQuoted without the quotes.
func appendEscaped(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
			continue
		}
		i++
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		case c < 0x20 || c == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}
