package providertest

import (
	"encoding/json"
	"fmt"
)

func responsesID(a asked) string { return name("resp_", "responses", a.name, a.number) }

// sealedOf is the encrypted reasoning of item i.
func sealedOf(a asked, i int) string { return name("gAAAA", "sealed", a.name, a.number, i) }

// itemJSON has the keys of an item in the order in which the provider sends
// them.
type itemJSON struct {
	ID      string           `json:"id"`
	Type    string           `json:"type"`
	Status  string           `json:"status,omitempty"`
	Args    *string          `json:"arguments,omitempty"`
	CallID  string           `json:"call_id,omitempty"`
	Name    string           `json:"name,omitempty"`
	Server  string           `json:"server_label,omitempty"`
	Input   *string          `json:"input,omitempty"`
	Action  json.RawMessage  `json:"action,omitempty"`
	Patch   json.RawMessage  `json:"operation,omitempty"`
	Sealed  string           `json:"encrypted_content,omitempty"`
	Summary *[]responsesPart `json:"summary,omitempty"`
	Content *[]responsesPart `json:"content,omitempty"`
	Role    string           `json:"role,omitempty"`
}

type responsesPart struct {
	Type     string `json:"type"`
	Notes    *[]any `json:"annotations,omitempty"`
	Logprobs *[]any `json:"logprobs,omitempty"`
	Text     string `json:"text"`
}

func outputText(s string) responsesPart {
	return responsesPart{Type: "output_text", Notes: &[]any{}, Logprobs: &[]any{}, Text: s}
}

// responsesItem gives item i as it ends.
func responsesItem(a asked, i int, it Item) itemJSON {
	id := func(prefix string) string { return name(prefix, "item", a.name, a.number, i) }
	switch it := it.(type) {
	case Text:
		return itemJSON{ID: id("msg_"), Type: "message", Status: "completed", Content: &[]responsesPart{outputText(string(it))}, Role: "assistant"}
	case Thinking:
		r := itemJSON{ID: id("rs_"), Type: "reasoning", Summary: &[]responsesPart{{Type: "summary_text", Text: string(it)}}}
		if a.responses.encrypted {
			r.Sealed = sealedOf(a, i)
		}
		return r
	case Call:
		c := itemJSON{Status: "completed", CallID: it.ID}
		switch {
		case it.Form == Custom:
			c.ID, c.Type, c.Name, c.Input = id("ctc_"), "custom_tool_call", it.Name, &it.Args
		case it.Form == Native && it.Name == "local_shell":
			c.ID, c.Type, c.Action = id("lsh_"), "local_shell_call", json.RawMessage(it.Args)
		case it.Form == Native && it.Name == "shell":
			c.ID, c.Type, c.Action = id("sh_"), "shell_call", json.RawMessage(it.Args)
		case it.Form == Native && it.Name == "apply_patch":
			c.ID, c.Type, c.Patch = id("apc_"), "apply_patch_call", json.RawMessage(it.Args)
		case it.Form == Native:
			c = itemJSON{ID: it.ID, Type: "mcp_approval_request", Args: &it.Args, Name: it.Name, Server: "files"}
		default:
			c.ID, c.Type, c.Name, c.Args = id("fc_"), "function_call", it.Name, &it.Args
		}
		return c
	}
	panic("providertest: an item of another type")
}

// begun gives an item as it starts.
func (it itemJSON) begun() itemJSON {
	empty := ""
	switch it.Type {
	case "message":
		it.Status, it.Content = "in_progress", &[]responsesPart{}
	case "reasoning":
		it.Summary = &[]responsesPart{}
	case "function_call":
		it.Status, it.Args = "in_progress", &empty
	case "custom_tool_call":
		it.Status, it.Input = "in_progress", &empty
	case "local_shell_call", "shell_call", "apply_patch_call":
		it.Status = "in_progress"
	}
	return it
}

// responsesItems gives what is said as items, and the same as JSON.
func responsesItems(a asked, t Turn) (parsed []object, raw []json.RawMessage) {
	for i, it := range t.Say {
		text := marshal(responsesItem(a, i, it))
		o, err := parse(text)
		if err != nil {
			panic(err) // it was made of the types here
		}
		parsed, raw = append(parsed, o), append(raw, text)
	}
	return parsed, raw
}

// response gives the whole answer at some point.
func (responses) response(a asked, t Turn, status string, items []object) json.RawMessage {
	output := []json.RawMessage{}
	var usage any
	if items != nil {
		_, output = responsesItems(a, t)
		if output == nil {
			output = []json.RawMessage{}
		}
		u := t.counts(a)
		usage = json.RawMessage(fmt.Sprintf(`{"input_tokens":%d,"input_tokens_details":{"cached_tokens":0},"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":%d}`,
			u.Input, u.Output, u.Input+u.Output))
	}
	var details any
	if status == "incomplete" {
		details = map[string]string{"reason": t.Finish}
	}
	return marshal(struct {
		ID         string            `json:"id"`
		Object     string            `json:"object"`
		Created    int               `json:"created_at"`
		Status     string            `json:"status"`
		Background bool              `json:"background"`
		Error      any               `json:"error"`
		Incomplete any               `json:"incomplete_details"`
		Instr      any               `json:"instructions"`
		Model      string            `json:"model"`
		Output     []json.RawMessage `json:"output"`
		Parallel   bool              `json:"parallel_tool_calls"`
		Previous   any               `json:"previous_response_id"`
		Store      bool              `json:"store"`
		Choice     string            `json:"tool_choice"`
		Tools      json.RawMessage   `json:"tools"`
		Usage      any               `json:"usage"`
		Metadata   object            `json:"metadata"`
	}{
		ID: responsesID(a), Object: "response", Created: created + a.number, Status: status, Incomplete: details, Model: a.model, Output: output,
		Parallel: true, Previous: orNull(a.responses.previous), Store: a.responses.stored, Choice: "auto", Tools: a.responses.tools, Usage: usage, Metadata: object{},
	})
}

// status gives how the answer ends: Finish is the reason of one that is cut
// short.
func (responses) status(t Turn) string {
	if t.Finish != "" {
		return "incomplete"
	}
	return "completed"
}

// document gives the answer as one JSON document.
func (r responses) document(_ *Provider, a asked, t Turn) []byte {
	return r.response(a, t, r.status(t), []object{})
}

// events gives the answer as a stream of events.
func (r responses) events(_ *Provider, a asked, t Turn) (out [][]byte) {
	type m = map[string]any
	emit := func(typ string, members any) {
		body := marshal(members)
		head := fmt.Sprintf(`{"type":"response.%s","sequence_number":%d,`, typ, len(out))
		out = append(out, fmt.Appendf(nil, "event: response.%s\ndata: %s%s\n\n", typ, head, body[1:]))
	}
	emit("created", m{"response": r.response(a, t, "in_progress", nil)})
	emit("in_progress", m{"response": r.response(a, t, "in_progress", nil)})
	for i, said := range t.Say {
		it := responsesItem(a, i, said)
		emit("output_item.added", m{"output_index": i, "item": it.begun()})
		at := func(more m) m {
			more["item_id"], more["output_index"] = it.ID, i
			return more
		}
		switch said := said.(type) {
		case Text:
			emit("content_part.added", at(m{"content_index": 0, "part": outputText("")}))
			for _, s := range words(string(said)) {
				emit("output_text.delta", at(m{"content_index": 0, "delta": s, "logprobs": []any{}}))
			}
			emit("output_text.done", at(m{"content_index": 0, "text": said, "logprobs": []any{}}))
			emit("content_part.done", at(m{"content_index": 0, "part": outputText(string(said))}))
		case Thinking:
			emit("reasoning_summary_part.added", at(m{"summary_index": 0, "part": responsesPart{Type: "summary_text"}}))
			for _, s := range words(string(said)) {
				emit("reasoning_summary_text.delta", at(m{"summary_index": 0, "delta": s}))
			}
			emit("reasoning_summary_text.done", at(m{"summary_index": 0, "text": said}))
			emit("reasoning_summary_part.done", at(m{"summary_index": 0, "part": responsesPart{Type: "summary_text", Text: string(said)}}))
		case Call:
			event, key := "function_call_arguments", "arguments"
			if it.Type == "custom_tool_call" {
				event, key = "custom_tool_call_input", "input"
			} else if it.Type != "function_call" {
				break // it comes whole
			}
			for _, s := range pieces(said.Args, 9) {
				emit(event+".delta", at(m{"delta": s}))
			}
			emit(event+".done", at(m{key: said.Args}))
		}
		emit("output_item.done", m{"output_index": i, "item": it})
	}
	status := r.status(t)
	emit(status, m{"response": r.response(a, t, status, []object{})})
	return out
}
