package conversation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// standIn does what callgate is to do with denied calls, as plainly as it can
// be done for the agents here: it shows that the assertions can be met, and
// with a fault in it that they notice.
type standIn struct {
	provider *url.URL
	client   *http.Client
	fault    string
	kept     map[string][]object // rounds by what was shown
	asked    int
	// last are the last rounds of answers, by their first id and the tenant.
	last map[string]lastRound
}

// lastRound is what the provider knows of an answer that it holds.
type lastRound struct {
	id      string
	message object
}

// notice ends a turn that had too many refusals.
const notice = "[callgate] That was enough."

type (
	object = map[string]any
	array  = []any
)

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := decode(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.asked++
	fm := chat
	if strings.Contains(r.URL.Path, "/messages") {
		fm = messages
	}
	stream := body["stream"] == true
	tenant := r.Header.Get("X-Api-Key") + r.Header.Get("Authorization")
	if s.fault == "one tenant's records serve all" {
		tenant = ""
	}
	sent := body["messages"].(array) // what an answer is bound to, as the client has it
	if s.fault == "what was sent before is changed" && s.asked%2 == 0 {
		m := sent[0].(object)
		if fm == chat {
			m = sent[1].(object) // behind the system's
		}
		m["content"] = textIn(m["content"]) + " "
	}
	msgs := sent
	thread, _ := body["thread"].(object)
	if thread["type"] == "continue" {
		if was, ok := s.last[fmt.Sprint(tenant, thread["previous_message_id"])]; ok {
			body["thread"] = object{"type": "continue", "previous_message_id": was.id}
			msgs = s.results(fm, was.message, blocks(sent[0].(object)["content"]))
		}
	} else {
		msgs = s.mend(fm, tenant, sent)
	}
	if strings.HasSuffix(r.URL.Path, "/count_tokens") {
		body["messages"] = msgs
		doc, status, err := s.forward(r, body)
		w.WriteHeader(status)
		fmt.Fprint(w, encode(doc), err)
		return
	}
	delete(body, "stream_options")
	body["stream"] = false
	first := ""
	var rounds []object
	var left []object // calls
	for {
		body["messages"] = msgs
		doc, status, err := s.forward(r, body)
		if err != nil || status != http.StatusOK {
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, err, doc)
			return
		}
		m := answerOf(fm, doc)
		rounds = append(rounds, m)
		id := doc["id"].(string)
		if first == "" {
			first = id
		}
		s.last[tenant+first] = lastRound{id, m}
		left = nil
		for _, c := range callsOf(m) {
			if !deniedCall(c) {
				left = append(left, c)
			}
		}
		if len(callsOf(m)) == 0 || len(left) > 0 || len(rounds) > 5 {
			break
		}
		if thread != nil {
			msgs = s.results(fm, m, nil)
			body["thread"] = object{"type": "continue", "previous_message_id": id}
			delete(body, "tools")
			delete(body, "system")
			continue
		}
		msgs = slices.Concat(msgs, array{m}, s.results(fm, m, nil))
	}
	shown := s.shown(fm, rounds, left)
	shown["id"] = first
	if len(rounds) > 1 || len(left) < len(callsOf(rounds[len(rounds)-1])) {
		for _, k := range keys(tenant, shown, sent) {
			s.kept[k] = rounds
		}
	}
	s.write(w, fm, stream, shown)
}

func decode(r io.Reader) (object, error) {
	dec := json.NewDecoder(r)
	dec.UseNumber()
	var o object
	err := dec.Decode(&o)
	return o, err
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // decoded JSON can always be written
	}
	return string(b)
}

func (s *standIn) forward(r *http.Request, body object) (object, int, error) {
	out, err := http.NewRequest(r.Method, s.provider.JoinPath(r.URL.Path).String(), strings.NewReader(encode(body)))
	if err != nil {
		return nil, 0, err
	}
	out.Header = r.Header.Clone()
	res, err := s.client.Do(out)
	if err != nil {
		return nil, 0, err
	}
	defer res.Body.Close()
	doc, err := decode(res.Body)
	return doc, res.StatusCode, err
}

// answerOf makes a message of a history out of an answer.
func answerOf(fm form, doc object) object {
	if fm == messages {
		return object{"role": "assistant", "content": doc["content"]}
	}
	m := doc["choices"].(array)[0].(object)["message"].(object)
	out := object{"role": "assistant", "content": m["content"]}
	for _, k := range []string{"tool_calls", "reasoning_content"} {
		if m[k] != nil {
			out[k] = m[k]
		}
	}
	return out
}

// callsOf gives the calls of a message in either form.
func callsOf(m object) []object {
	var out []object
	list, _ := m["tool_calls"].(array)
	content, _ := m["content"].(array)
	for _, v := range slices.Concat(list, content) {
		if c := v.(object); c["id"] != nil {
			out = append(out, c)
		}
	}
	return out
}

func deniedCall(c object) bool { return strings.Contains(encode(c), marker) }

// textIn gives the text of a content or of a result.
func textIn(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case array:
		var out string
		for _, e := range v {
			o := e.(object)
			text, _ := o["text"].(string)
			out += text
			if o["type"] == "tool_result" {
				out += textIn(o["content"])
			}
		}
		return out
	}
	return ""
}

// keys name an answer by what was shown: by its long ids, or by its text and
// all ids with what stood before it.
func keys(tenant string, shown object, before array) []string {
	var ids []string
	long := false
	for _, c := range callsOf(shown) {
		id := c["id"].(string)
		ids = append(ids, id)
		long = long || len(id) > 15 && !strings.Contains(id, ":")
	}
	last := solid(textIn(before[len(before)-1].(object)["content"]))
	out := []string{fmt.Sprint(tenant, ids, solid(textIn(shown["content"])), last)}
	if long {
		out = append(out, fmt.Sprint(tenant, ids))
	}
	return out
}

// mend puts the rounds in the place of what was shown.
func (s *standIn) mend(fm form, tenant string, msgs array) array {
	var out array
	for i := 0; i < len(msgs); i++ {
		m := msgs[i].(object)
		if m["role"] != "assistant" {
			out = append(out, m)
			continue
		}
		unit := array{m}
		for i+1 < len(msgs) && msgs[i+1].(object)["role"] == "assistant" {
			i++
			unit = append(unit, msgs[i])
		}
		var rounds []object
		for _, k := range keys(tenant, merged(unit), msgs[:i+1-len(unit)]) {
			if r, ok := s.kept[k]; ok {
				rounds = r
			}
		}
		if rounds == nil || s.fault == "denied calls are forgotten" || s.fault == "denied calls are forgotten now and then" && s.asked%3 == 0 {
			out = append(out, unit...)
			continue
		}
		bare := !strings.Contains(encode(unit), "reasoning_content") && !strings.Contains(encode(unit), `"thinking"`)
		for k, rd := range rounds {
			if bare {
				rd = withoutThinking(rd)
			}
			out = append(out, rd)
			if k < len(rounds)-1 {
				out = append(out, s.results(fm, rd, nil)...)
				continue
			}
			var theirs array
			if fm == messages && len(callsOf(merged(unit))) > 0 {
				theirs = blocks(msgs[i+1].(object)["content"])
				i++
			}
			for fm == chat && i+1 < len(msgs) && msgs[i+1].(object)["role"] == "tool" {
				theirs = append(theirs, msgs[i+1])
				i++
			}
			out = append(out, s.results(fm, rd, theirs)...)
			if fm == messages && len(callsOf(rd)) > 0 && len(callsOf(merged(unit))) == 0 {
				// The user's next words begin a new turn, without thinking.
				out = append(out, object{"role": "assistant", "content": notice})
			}
		}
	}
	return out
}

func blocks(content any) array {
	if s, ok := content.(string); ok {
		return array{object{"type": "text", "text": s}}
	}
	return content.(array)
}

// merged is a unit as one message.
func merged(unit array) object {
	out := object{}
	var content, calls array
	for _, v := range unit {
		m := v.(object)
		if m["content"] != nil {
			content = append(content, blocks(m["content"])...)
		}
		list, _ := m["tool_calls"].(array)
		calls = append(calls, list...)
	}
	out["content"], out["tool_calls"] = content, calls
	return out
}

func withoutThinking(m object) object {
	out := object{}
	for k, v := range m {
		if list, ok := v.(array); ok && k == "content" {
			v = slices.DeleteFunc(slices.Clone(list), func(b any) bool { return b.(object)["type"] == "thinking" })
			if len(v.(array)) == 0 {
				continue
			}
		}
		if k != "reasoning_content" {
			out[k] = v
		}
	}
	return out
}

// results gives what stands behind a round: the refusals, then what the client
// has.
func (s *standIn) results(fm form, m object, theirs array) array {
	var out array
	for k, c := range callsOf(m) {
		if !deniedCall(c) {
			continue
		}
		text := "[callgate] no. " + refusalMark
		id := c["id"]
		if s.fault == "a refusal has the words of a result" && k == 0 {
			text = "ran"
		}
		if fm == chat {
			out = append(out, object{"role": "tool", "tool_call_id": id, "content": text})
			continue
		}
		out = append(out, object{"type": "tool_result", "tool_use_id": id, "content": text, "is_error": strings.Contains(text, refusalMark)})
	}
	out = append(out, theirs...)
	if fm == messages && len(out) > 0 {
		return array{object{"role": "user", "content": out}}
	}
	return out
}

// shown merges the rounds into what the agent sees.
func (s *standIn) shown(fm form, rounds []object, left []object) object {
	out := object{}
	var content, calls array
	text, thinking := "", ""
	for k, rd := range rounds {
		if fm == chat {
			text += textIn(rd["content"])
			reasoning, _ := rd["reasoning_content"].(string)
			thinking += reasoning
			continue
		}
		for _, b := range rd["content"].(array) {
			if b := b.(object); b["id"] == nil || k == len(rounds)-1 && !deniedCall(b) {
				content = append(content, b)
			}
		}
	}
	for _, c := range left {
		calls = append(calls, c)
	}
	if s.fault == "a denied call is shown" {
		for _, c := range callsOf(rounds[0]) {
			if deniedCall(c) && fm == chat {
				calls = append(calls, c)
			} else if deniedCall(c) {
				content = append(content, c)
			}
		}
	}
	end := ""
	if len(left) == 0 && len(callsOf(rounds[len(rounds)-1])) > 0 {
		end = notice
	}
	if s.fault == "the refusal is shown" && len(rounds) > 1 {
		end += refusalMark
	}
	if fm == chat {
		out["tool_calls"], out["content"], out["reasoning_content"] = calls, text+end, thinking
		return out
	}
	if end != "" {
		content = append(content, object{"type": "text", "text": end})
	}
	out["content"] = content
	return out
}

// write gives the agent its answer.
func (s *standIn) write(w http.ResponseWriter, fm form, stream bool, m object) {
	finish, calls := []string{"stop", "end_turn"}, callsOf(m)
	if len(calls) > 0 {
		finish = []string{"tool_calls", "tool_use"}
	}
	if s.fault == "the finish says there are calls" {
		finish = []string{"tool_calls", "tool_use"}
	}
	var b bytes.Buffer
	event := func(name string, v any) {
		if fm == messages {
			fmt.Fprintf(&b, "event: %s\n", name)
		}
		fmt.Fprintf(&b, "data: %s\n\n", encode(v))
	}
	id := m["id"].(string)
	switch {
	case fm == chat && !stream:
		fmt.Fprint(&b, encode(object{"id": id, "choices": array{object{"index": 0, "finish_reason": finish[0], "message": m}}}))
	case fm == chat:
		chunk := func(delta object, finish any) {
			event("", object{"id": id, "object": "chat.completion.chunk", "choices": array{object{"index": 0, "delta": delta, "finish_reason": finish}}})
			if s.fault == "each chunk has an id of its own" {
				id += "x"
			}
		}
		chunk(object{"content": m["content"], "reasoning_content": m["reasoning_content"]}, nil)
		for i, c := range calls {
			call := object{"index": i}
			if s.fault == "indexes have gaps" {
				call["index"] = i + 1
			}
			for k, v := range c {
				call[k] = v
			}
			chunk(object{"tool_calls": array{call}}, nil)
		}
		chunk(object{}, finish[0])
		fmt.Fprint(&b, "data: [DONE]\n\n")
	case !stream:
		fmt.Fprint(&b, encode(object{"id": id, "type": "message", "role": "assistant", "content": m["content"], "stop_reason": finish[1]}))
	default:
		start := object{"type": "message_start", "message": object{"id": id, "content": array{}}}
		event("message_start", start)
		if s.fault == "each chunk has an id of its own" {
			event("message_start", start)
		}
		for i, v := range m["content"].(array) {
			if s.fault == "indexes have gaps" {
				i++
			}
			blk := v.(object)
			first := object{"type": blk["type"], "id": blk["id"], "name": blk["name"]}
			delta := object{"text": blk["text"], "thinking": blk["thinking"], "signature": blk["signature"]}
			if blk["id"] != nil {
				delta = object{"partial_json": encode(blk["input"])}
			}
			event("content_block_start", object{"type": "content_block_start", "index": i, "content_block": first})
			event("content_block_delta", object{"type": "content_block_delta", "index": i, "delta": delta})
			event("content_block_stop", object{"type": "content_block_stop", "index": i})
		}
		event("message_delta", object{"type": "message_delta", "delta": object{"stop_reason": finish[1]}, "usage": object{"output_tokens": 1}})
		event("message_stop", object{"type": "message_stop"})
	}
	_, _ = w.Write(b.Bytes())
}
