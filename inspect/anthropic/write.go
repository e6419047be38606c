package anthropic

import (
	"strconv"

	"github.com/tidwall/gjson"

	"callgate/inspect/frame"
	"callgate/inspect/rawjson"
)

// appendText appends a whole text block.
func appendText(dst []byte, index int, text string) []byte {
	dst = appendStart(dst, index)
	dst = appendDelta(dst, index, "text_delta", "text", text)
	return appendStop(dst, index)
}

// appendStart appends the start of a text block.
func appendStart(dst []byte, index int) []byte {
	data := append([]byte(nil), `{"type":"content_block_start","index":`...)
	data = appendInt(data, index)
	data = append(data, `,"content_block":{"type":"text","text":""}}`...)
	return frame.AppendEvent(dst, "content_block_start", data)
}

// appendDelta appends a delta of the given type, with its one text.
func appendDelta(dst []byte, index int, kind, key, text string) []byte {
	data := append([]byte(nil), `{"type":"content_block_delta","index":`...)
	data = appendInt(data, index)
	data = append(data, `,"delta":{"type":"`+kind+`","`+key+`":`...)
	data = gjson.AppendJSONString(data, text)
	return frame.AppendEvent(dst, "content_block_delta", append(data, "}}"...))
}

// appendStop appends the end of a block.
func appendStop(dst []byte, index int) []byte {
	data := append([]byte(nil), `{"type":"content_block_stop","index":`...)
	return frame.AppendEvent(dst, "content_block_stop", append(appendInt(data, index), '}'))
}

// appendFinish appends a message_delta. Clients need its usage.
func (t *stream) appendFinish(reason string) {
	data := append([]byte(nil), `{"type":"message_delta","delta":{"stop_reason":"`+reason+`","stop_sequence":null},"usage":`...)
	if t.rounds > 1 {
		data = append(t.merged(data, []byte("{}"), rawjson.Span{To: 2}), '}')
	} else {
		data = append(data, `{"output_tokens":`...)
		data = append(strconv.AppendInt(data, max(t.out, 0), 10), "}}"...)
	}
	t.dst = frame.AppendEvent(t.dst, "message_delta", data)
}

// message gives a message object. Without a text it is one that starts.
func message(id, model, text, reason string, in, out int64) []byte {
	if id == "" {
		id = "msg_callgate"
	}
	b := gjson.AppendJSONString([]byte(`{"id":`), id)
	b = append(b, `,"type":"message","role":"assistant","model":`...)
	b = gjson.AppendJSONString(b, model)
	b = append(b, `,"content":[`...)
	if text != "" {
		b = append(appendTextObject(b, text), `],"stop_reason":"`+reason+`"`...)
	} else {
		b = append(b, `],"stop_reason":null`...)
	}
	b = append(b, `,"stop_sequence":null,"usage":{"input_tokens":`...)
	b = strconv.AppendInt(b, max(in, 0), 10)
	b = append(b, `,"output_tokens":`...)
	return append(strconv.AppendInt(b, max(out, 0), 10), "}}"...)
}

func appendTextObject(dst []byte, text string) []byte {
	dst = append(dst, `{"type":"text","text":`...)
	return append(gjson.AppendJSONString(dst, text), '}')
}

func appendInt(dst []byte, n int) []byte { return strconv.AppendInt(dst, int64(n), 10) }
