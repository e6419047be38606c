package ollama

import (
	"strconv"
	"unicode/utf8"
)

// saying is what a document of ours says, as it stands between quotes.
type saying struct{ words, thinking []byte }

// appendOwn appends a document of ours that says this, without a line feed. With
// end it is the last one of the answer.
func (t *turn) appendOwn(dst []byte, s saying, end bool) []byte {
	dst = append(dst, `{"model":`...)
	if t.model != "" {
		dst = append(dst, t.model...)
	} else {
		dst = appendQuoted(dst, t.asked)
	}
	if t.created != "" {
		dst = append(append(dst, `,"created_at":`...), t.created...)
	}
	if t.shape.inside {
		dst = append(dst, `,"message":{"role":"assistant"`...)
	}
	dst = append(append(append(dst, `,"`...), t.shape.words...), `":"`...)
	dst = append(append(dst, s.words...), '"')
	if len(s.thinking) > 0 {
		dst = append(append(append(dst, `,"thinking":"`...), s.thinking...), '"')
	}
	if t.shape.inside {
		dst = append(dst, '}')
	}
	if !end {
		return append(dst, `,"done":false}`...)
	}
	dst = append(dst, `,"done":true,"done_reason":"stop"`...)
	figure := func(key string, n int64) {
		if n >= 0 {
			dst = strconv.AppendInt(append(append(append(dst, `,"`...), key...), `":`...), n, 10)
		}
	}
	figure("prompt_eval_count", t.rec.InputTokens)
	figure("eval_count", t.outputTokens())
	return append(dst, '}')
}

// ours is a text of ours in its place: among the words, or where these must
// follow a schema beside them.
func (t *turn) ours(text []byte) saying {
	if t.structured {
		return saying{thinking: text}
	}
	return saying{words: text}
}

func quoted(s string) []byte { return appendQuoted(nil, s) }

// appendQuoted appends s as a JSON string, with U+FFFD for what is not UTF-8.
func appendQuoted(dst []byte, s string) []byte {
	return append(appendEscaped(append(dst, '"'), s), '"')
}

// appendEscaped is appendQuoted without the quotes. Nothing in it ends a line
// for any reader of lines.
func appendEscaped(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		i += n
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\r':
			dst = append(dst, `\r`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		case r < 0x20 || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029:
			dst = append(dst, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return dst
}

// appendError appends an error as Ollama writes it.
func appendError(dst []byte, text string) []byte {
	return append(appendQuoted(append(dst, `{"error":`...), text), '}')
}

// emptyLine stands between two texts, as it is written.
const emptyLine = `\n\n`

// apart puts an empty line between two texts as they are written, when both say
// something. It may change what is behind x.
func apart(x, y []byte) []byte {
	if len(x) > 0 && len(y) > 0 {
		x = append(x, emptyLine...)
	}
	return append(x, y...)
}
