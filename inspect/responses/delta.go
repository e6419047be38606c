package responses

import (
	"bytes"

	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
)

// delta is an event of which nothing but scalars was found: where its members
// stand.
type delta struct {
	typ            []byte
	id, seq, index rawjson.Span
	piece          rawjson.Span // the text, with its quotes
}

// The deltas that the template knows, and what they are pieces of.
var deltaTypes = map[string]part{
	"response.output_text.delta":             textPart,
	"response.refusal.delta":                 textPart,
	"response.reasoning_text.delta":          thoughtPart,
	"response.reasoning_summary_text.delta":  thoughtPart,
	"response.function_call_arguments.delta": argsPiece,
	"response.custom_tool_call_input.delta":  inputPiece,
}

// readDelta matches data against the template of a delta: one object with
// members of a short list, each once, written in the one plain way, whose values
// are strings and numbers. Whatever is not so is read in full elsewhere.
func readDelta(b []byte) (d delta, ok bool) {
	i := rawjson.Space(b, 0)
	if i >= len(b) || b[i] != '{' {
		return d, false
	}
	var seen uint
	for sep := byte('{'); ; sep = ',' {
		if i >= len(b) || b[i] != sep {
			return d, false
		}
		i = rawjson.Space(b, i+1)
		end := bytes.IndexByte(b[min(i+1, len(b)):], '"')
		if i >= len(b) || b[i] != '"' || end < 0 {
			return d, false
		}
		key := b[i+1 : i+1+end]
		i = rawjson.Space(b, i+end+2)
		if i >= len(b) || b[i] != ':' {
			return d, false
		}
		i = rawjson.Space(b, i+1)
		from := i
		if i < len(b) && b[i] == '"' {
			n := strictjson.StringLen(b[i:])
			if n < 0 {
				return d, false
			}
			i += n
		} else {
			for i < len(b) && '0' <= b[i] && b[i] <= '9' {
				i++
			}
			if n := i - from; n == 0 || n > 9 || n > 1 && b[from] == '0' {
				if !bytes.HasPrefix(b[from:], []byte("[]")) || string(key) != "logprobs" {
					return d, false
				}
				i = from + 2
			}
		}
		v := rawjson.Span{From: from, To: i}
		bit := d.take(b, key, v)
		if bit == 0 || seen&bit != 0 {
			return d, false
		}
		seen |= bit
		if i = rawjson.Space(b, i); i < len(b) && b[i] == '}' {
			break
		}
	}
	return d, rawjson.Space(b, i+1) == len(b) && d.index.There() && d.piece.There()
}

// take notes a member, and gives a bit for its key, 0 where its value is not
// what it must be.
func (d *delta) take(b, key []byte, v rawjson.Span) uint {
	text := b[v.From] == '"'
	switch string(key) {
	case "type":
		if text {
			d.typ = b[v.From+1 : v.To-1]
			return 1
		}
	case "sequence_number":
		if !text {
			d.seq = v
			return 2
		}
	case "output_index":
		if !text {
			d.index = v
			return 4
		}
	case "content_index", "summary_index":
		if !text {
			return 8
		}
	case "delta":
		if text {
			d.piece = v
			return 16
		}
	case "item_id":
		if text {
			d.id = v
			return 32
		}
	case "obfuscation":
		if text {
			return 64
		}
	case "logprobs":
		if b[v.From] == '[' {
			return 128
		}
	}
	return 0
}
