package conversation

import (
	"fmt"
	"net/http"
	"strings"
)

// cacheMark is the marker for a cache, put behind the members of a block.
const cacheMark = `,"cache_control":{"type":"ephemeral"}`

// request gives path, body and headers of the agent's next request.
func (a *agent) request(stream bool) (string, string, http.Header) {
	h := http.Header{"Content-Type": {"application/json"}}
	if a.plan.f.has(sessions) {
		h.Set("Session-Id", a.session)
		h.Set("X-Claude-Code-Session-Id", a.session)
	}
	if a.plan.form == chat {
		h.Set("Authorization", "Bearer "+a.key)
		return "/v1/chat/completions", a.chatBody(stream), h
	}
	h.Set("X-Api-Key", a.key)
	h.Set("Anthropic-Version", "2023-06-01")
	if a.plan.form == threads {
		h.Set("Anthropic-Beta", "message-threads-2026-08-12")
	}
	return "/v1/messages", a.messagesBody(stream), h
}

func (a *agent) chatBody(stream bool) string {
	msgs := []string{`{"role":"system","content":"Be useful."}`}
	for i, e := range a.history {
		mark := a.plan.f.has(caching) && i == len(a.history)-1
		if e.unit == nil {
			msgs = append(msgs, `{"role":"user","content":`+chatText(e.words, mark)+`}`)
			continue
		}
		msgs = append(msgs, e.unit.chat(mark, a.plan.f.has(thinks))...)
	}
	options := ""
	if stream {
		options = `"stream_options":{"include_usage":true},`
	}
	return fmt.Sprintf(`{"model":"m","stream":%v,%s"tools":[{"type":"function","function":{"name":"bash","parameters":{"type":"object"}}},`+
		`{"type":"function","function":{"name":"write_file","parameters":{"type":"object"}}},{"type":"custom","custom":{"name":"patch"}}],"messages":[%s]}`,
		stream, options, strings.Join(msgs, ","))
}

// chatText is a content: a string, or a part with a marker.
func chatText(s string, mark bool) string {
	if !mark {
		return quote(s)
	}
	return `[{"type":"text","text":` + quote(s) + cacheMark + `}]`
}

// chat gives the messages of an answer and its results.
func (u *unit) chat(mark, reasoning bool) []string {
	var out []string
	for i, part := range u.parts() {
		var text, thinking string
		var calls []string
		for _, b := range part {
			switch b.kind {
			case "text":
				text += b.text
			case "thinking":
				thinking += b.text
			case "call":
				form := `"type":"function","function":{"name":%s,"arguments":%s}`
				if b.custom {
					form = `"type":"custom","custom":{"name":%s,"input":%s}`
				}
				calls = append(calls, fmt.Sprintf(`{"id":%s,`+form+`}`, quote(b.id), quote(b.name), quote(b.text)))
			}
		}
		if text == "" && len(calls) == 0 {
			continue // thinking alone is no message
		}
		m := `{"role":"assistant","content":`
		if text == "" {
			m += "null"
		} else {
			m += quote(text)
		}
		if thinking != "" && reasoning && !u.bare && i == 0 {
			m += `,"reasoning_content":` + quote(thinking)
		}
		if len(calls) > 0 {
			m += `,"tool_calls":[` + strings.Join(calls, ",") + `]`
		}
		out = append(out, m+"}")
	}
	calls := u.calls()
	for i, k := range u.order {
		out = append(out, `{"role":"tool","tool_call_id":`+quote(calls[k].id)+`,"content":`+chatText(u.result(calls[k]), mark && i == len(u.order)-1)+`}`)
	}
	return out
}

// parts gives the blocks as the messages that the client makes of them.
func (u *unit) parts() [][]block {
	if u.split == 0 {
		return [][]block{u.blocks}
	}
	return [][]block{u.blocks[:u.split], u.blocks[u.split:]}
}

func (a *agent) messagesBody(stream bool) string {
	var msgs []string
	for i, e := range a.history {
		mark := a.plan.f.has(caching) && i == len(a.history)-1
		if e.unit == nil {
			content := quote(e.words)
			if mark {
				content = `[{"type":"text","text":` + content + cacheMark + `}]`
			}
			msgs = append(msgs, `{"role":"user","content":`+content+`}`)
			continue
		}
		msgs = append(msgs, e.unit.messages(mark)...)
	}
	more := ""
	switch {
	case a.plan.form != threads:
	case a.thread != "":
		more = `"thread":{"type":"continue","previous_message_id":` + quote(a.thread) + `},`
		// What the provider lacks stands behind the last answer.
		return fmt.Sprintf(`{"model":"m","max_tokens":3000,"stream":%v,%s"messages":[%s]}`, stream, more, msgs[len(msgs)-1])
	default:
		more = `"thread":{"type":"create"},`
	}
	if a.plan.f.has(thinks) {
		more = []string{`"thinking":{"type":"adaptive"},`, `"thinking":{"type":"enabled","budget_tokens":2000},`}[a.plan.seed%2]
	}
	system := `"Be useful."`
	if a.plan.f.has(caching) {
		system = `[{"type":"text","text":"Be useful."` + cacheMark + `}]`
	}
	return fmt.Sprintf(`{"model":"m","max_tokens":3000,"stream":%v,%s"system":%s,"tools":[{"name":"bash","input_schema":{"type":"object"}},`+
		`{"name":"write_file","input_schema":{"type":"object"}}],"messages":[%s]}`, stream, more, system, strings.Join(msgs, ","))
}

// messages gives the messages of an answer and its results. The newest answer
// and the newest result have the marker for the cache.
func (u *unit) messages(mark bool) []string {
	var out []string
	for _, part := range u.parts() {
		var blocks []string
		for _, b := range part {
			last := ""
			if mark && b.kind != "thinking" && b.id == u.blocks[len(u.blocks)-1].id && b.text == u.blocks[len(u.blocks)-1].text {
				last = cacheMark
			}
			switch {
			case b.kind == "text" && strings.TrimSpace(b.text) != "":
				blocks = append(blocks, `{"type":"text","text":`+quote(b.text)+last+`}`)
			case b.kind == "thinking" && !u.bare:
				blocks = append(blocks, `{"type":"thinking","thinking":`+quote(b.text)+`,"signature":`+quote(b.signature)+`}`)
			case b.kind == "call":
				blocks = append(blocks, `{"type":"tool_use","id":`+quote(b.id)+`,"name":`+quote(b.name)+`,"input":`+b.text+last+`}`)
			}
		}
		if len(blocks) > 0 {
			out = append(out, `{"role":"assistant","content":[`+strings.Join(blocks, ",")+`]}`)
		}
	}
	var results []string
	calls := u.calls()
	for i, k := range u.order {
		last := ""
		if mark && i == len(u.order)-1 {
			last = cacheMark
		}
		results = append(results, `{"type":"tool_result","tool_use_id":`+quote(calls[k].id)+`,"content":`+quote(u.result(calls[k]))+`,"is_error":false`+last+`}`)
	}
	if len(results) > 0 {
		out = append(out, `{"role":"user","content":[`+strings.Join(results, ",")+`]}`)
	}
	return out
}
