package openaichat

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"callgate/inspect/rawjson"
)

// envelope is what all chunks of an answer have in common, as the provider
// wrote it.
type envelope struct {
	known              bool
	id, created, model string // raw values, "" where none came
	idText, modelText  string
}

// take notes what a document says of the envelope. Some servers send a first
// event without an id and without choices; it does not settle anything.
func (e *envelope) take(b []byte, id, created, model rawjson.Span, choices bool) {
	if e.known {
		return
	}
	if rawjson.IsString(b, id) && id.Len() > 2 {
		e.id, e.idText = both(b, id)
	}
	if _, ok := rawjson.Whole(b, rawjson.Span{From: created.From, To: min(created.To, created.From+9)}); ok {
		e.created = string(created.In(b))
	}
	if rawjson.IsString(b, model) && model.Len() > 2 {
		e.model, e.modelText = both(b, model)
	}
	e.known = e.id != "" || choices
}

// both gives a string as it is written and what it stands for.
func both(b []byte, s rawjson.Span) (raw, text string) {
	raw = string(s.In(b))
	if strings.IndexByte(raw, '\\') < 0 {
		return raw, raw[1 : len(raw)-1]
	}
	return raw, rawjson.Text(b, s)
}

// defaultID stands for the id of an answer that has none.
const defaultID = `"chatcmpl-callgate"`

// head appends the start of a chunk or an answer, up to its choices.
func (t *turn) head(dst []byte, object string) []byte {
	dst = append(dst, `{"id":`...)
	if t.env.id != "" {
		dst = append(dst, t.env.id...)
	} else {
		dst = append(dst, defaultID...)
	}
	dst = append(append(append(dst, `,"object":"`...), object...), `","created":`...)
	if t.env.created != "" {
		dst = append(dst, t.env.created...)
	} else {
		dst = append(dst, '0')
	}
	dst = append(dst, `,"model":`...)
	if t.env.model != "" {
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

// appendError appends an error in the API's form. Its type tells it from one of
// the provider's.
func appendError(dst []byte, text string) []byte {
	dst = appendQuoted(append(dst, `{"error":{"message":`...), text)
	return append(dst, `,"type":"callgate_refused","param":null,"code":null}}`...)
}
