package providertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// responses is OpenAI Responses. Its answers are kept unless store is false, and
// can be gone on with (previous_response_id, conversation) and fetched.
type responses struct{}

var responsesKeys = strings.Fields(`background context_management conversation include input instructions max_output_tokens max_tool_calls
	metadata model moderation parallel_tool_calls previous_response_id prompt prompt_cache_key prompt_cache_retention reasoning safety_identifier service_tier
	store stream stream_options temperature text tool_choice tools top_logprobs top_p truncation user client_metadata`)

// responsesAsked is what an answer of Responses needs to know of its request.
type responsesAsked struct {
	stored, encrypted bool
	previous          string
	conversation      string
	items             array // the whole history
	tools             json.RawMessage
}

// responsesHeld are answers and items that the provider keeps.
type responsesHeld struct {
	answers       map[string]array           // the history with the answer, by the answer's id
	documents     map[string]json.RawMessage // the answers
	conversations map[string]array
	items         map[string]object // of answers that are kept, by their ids
	needs         map[string]string // the reasoning that an item came with, by the item's id
	sealed        map[string]string // encrypted reasoning, by its item's id
}

func newResponsesHeld() *responsesHeld {
	return &responsesHeld{
		answers: map[string]array{}, documents: map[string]json.RawMessage{}, conversations: map[string]array{},
		items: map[string]object{}, needs: map[string]string{}, sealed: map[string]string{},
	}
}

// check reads a request of Responses.
func (responses) check(p *Provider, h http.Header, body []byte) (asked, error) {
	if token, ok := strings.CutPrefix(h.Get("Authorization"), "Bearer "); !ok || token == "" {
		return asked{}, &fault{status: http.StatusUnauthorized, kind: "invalid_request_error", reason: "you didn't provide an API key"}
	}
	o, err := parse(body)
	if err != nil {
		return asked{}, err
	}
	if err := known(o, "", responsesKeys...); err != nil {
		return asked{}, err
	}
	a := asked{choices: 1, size: len(body)}
	if a.model, err = str(o, "", "model"); err != nil {
		return asked{}, err
	}
	if a.stream, err = flag(o, "", "stream"); err != nil {
		return asked{}, err
	}
	r := &responsesAsked{stored: true}
	a.responses = r
	if v, set := o["store"]; set && v != nil {
		if r.stored, err = flag(o, "", "store"); err != nil {
			return asked{}, err
		}
	}
	if err := r.tooled(o); err != nil {
		return asked{}, err
	}
	include, _ := o["include"].(array)
	r.encrypted = slices.Contains(include, any("reasoning.encrypted_content"))
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.held.begin(r, o); err != nil {
		return asked{}, err
	}
	a.progress, r.items, err = p.held.walk(r.items, o["input"])
	return a, err
}

// tooled checks the tools and the choice among them.
func (r *responsesAsked) tooled(o object) error {
	tools, _ := o["tools"].(array)
	names := map[string]bool{}
	for i, v := range tools {
		t, _ := v.(object)
		at := fmt.Sprintf("tools[%d].", i)
		switch typ, _ := t["type"].(string); typ {
		case "function", "custom":
			keys := []string{"type", "name", "description", "parameters", "strict"}
			if typ == "custom" {
				keys = []string{"type", "name", "description", "format"}
			}
			if err := known(t, at, keys...); err != nil {
				return err
			}
			name, err := str(t, at, "name")
			if err != nil {
				return err
			}
			if params, set := t["parameters"]; set && params.(object)["type"] != "object" {
				return badf("%sparameters: schema must be of type object", at)
			}
			if names[name] || !nameForm.MatchString(name) {
				return badf("%sname: %q is no name, or stands twice", at, name)
			}
			names[name] = true
		case "local_shell", "shell", "apply_patch", "mcp", "web_search", "computer_use_preview", "tool_search", "namespace":
		default:
			return badf("Invalid value: '%s'. Supported values are: 'function', 'custom', ... (%stype)", typ, at)
		}
	}
	r.tools = marshal(tools)
	if tools == nil {
		r.tools = json.RawMessage("[]")
	}
	switch c := o["tool_choice"].(type) {
	case nil:
	case string:
		if !slices.Contains([]string{"none", "auto", "required"}, c) {
			return badf("Invalid value for 'tool_choice': %q", c)
		}
		if c == "required" && len(tools) == 0 {
			return badf("tool_choice 'required' needs 'tools'")
		}
	case object:
		name, _ := c["name"].(string)
		if typ, _ := c["type"].(string); (typ == "function" || typ == "custom") && !names[name] {
			return badf("Tool choice '%s' not found in 'tools' parameter.", name)
		}
	default:
		return badf("tool_choice: a string or an object is expected")
	}
	return nil
}

// begin gives what the provider holds of the conversation.
func (s *responsesHeld) begin(r *responsesAsked, o object) error {
	r.previous, _ = o["previous_response_id"].(string)
	switch c := o["conversation"].(type) {
	case string:
		r.conversation = c
	case object:
		r.conversation, _ = c["id"].(string)
	}
	switch {
	case r.previous != "" && r.conversation != "":
		return badf("Mutually exclusive parameters. Ensure you are only providing one of: 'previous_response_id' or 'conversation'.")
	case r.previous != "":
		items, ok := s.answers[r.previous]
		if !ok {
			return &fault{status: http.StatusBadRequest, code: "previous_response_not_found", param: "previous_response_id",
				reason: "Previous response with id '" + r.previous + "' not found."}
		}
		r.items = items
	case r.conversation != "":
		if !strings.HasPrefix(r.conversation, "conv_") {
			return badf("Invalid 'conversation': '%s'. Expected an ID that begins with 'conv'.", r.conversation)
		}
		r.items = s.conversations[r.conversation]
	}
	return nil
}

// responsesCalls are the types of calls that the client answers, with the
// beginning of their ids and the type of their results.
var responsesCalls = map[string]struct{ prefix, output, said string }{
	"function_call":        {"fc", "function_call_output", "function call"},
	"custom_tool_call":     {"ctc", "custom_tool_call_output", "custom tool call"},
	"local_shell_call":     {"lsh", "local_shell_call_output", "local shell call"},
	"shell_call":           {"sh", "shell_call_output", "shell call"},
	"apply_patch_call":     {"apc", "apply_patch_call_output", "apply patch call"},
	"mcp_approval_request": {"mcpr", "mcp_approval_response", "approval request"},
}

// responsesWalk is where a walk through the items stands.
type responsesWalk struct {
	held    *responsesHeld
	open    []object        // calls without a result
	calls   map[string]bool // ids of all calls
	ids     map[string]bool // of items
	thought string          // the reasoning right before, "" for none
	before  string          // who said the item before: user, assistant, result
	progress
}

// walk goes through what the provider holds and what the request adds, and gives
// the whole.
func (s *responsesHeld) walk(held array, input any) (progress, array, error) {
	w := responsesWalk{held: s, calls: map[string]bool{}, ids: map[string]bool{}}
	all := slices.Clone(held)
	switch in := input.(type) {
	case nil:
		if len(held) == 0 {
			return w.progress, nil, badf("Missing required parameter: 'input'.")
		}
	case string:
		all = append(all, object{"type": "message", "role": "user", "content": in})
	case array:
		if len(in) == 0 && len(held) == 0 {
			return w.progress, nil, badf("Invalid 'input': empty array.")
		}
		all = append(all, in...)
	default:
		return w.progress, nil, badf("input: a string or an array is expected")
	}
	for i, v := range all {
		it, ok := v.(object)
		if !ok {
			return w.progress, nil, badf("input[%d]: an object is expected", i)
		}
		at := fmt.Sprintf("input[%d].", i-len(held))
		if i < len(held) {
			at = fmt.Sprintf("item %d of what is held: ", i)
		}
		if _, named := it["role"]; it["type"] == "item_reference" || it["type"] == nil && !named {
			id, _ := it["id"].(string)
			if it, ok = s.items[id]; !ok {
				return w.progress, nil, notPersisted(id)
			}
			all[i] = it
		}
		if err := w.item(it, at, i < len(held)); err != nil {
			return w.progress, nil, err
		}
	}
	if w.thought != "" {
		return w.progress, nil, unfollowed(w.thought)
	}
	return w.progress, all, w.closed()
}

func notPersisted(id string) error {
	return &fault{status: http.StatusNotFound, reason: "Item with id '" + id + "' not found. Items are not persisted when `store` is set to false. " +
		"Try again with `store` set to true, or remove this item from your input."}
}

func unfollowed(id string) error {
	return badf("Item '%s' of type 'reasoning' was provided without its required following item.", id)
}

// closed refuses calls that were left without a result.
func (w *responsesWalk) closed() error {
	if len(w.open) == 0 {
		return nil
	}
	typ, _ := w.open[0]["type"].(string)
	return badf("No tool output found for %s %s.", responsesCalls[typ].said, callIDOf(w.open[0]))
}

func callIDOf(call object) string {
	key := "call_id"
	if call["type"] == "mcp_approval_request" {
		key = "id"
	}
	id, _ := call[key].(string)
	return id
}

// item checks one item.
func (w *responsesWalk) item(it object, at string, held bool) error {
	typ, _ := it["type"].(string)
	if typ == "" && it["role"] != nil {
		typ = "message"
	}
	role, _ := it["role"].(string)
	call, isCall := responsesCalls[typ]
	by := "result"
	switch {
	case isCall, typ == "reasoning", typ == "message" && role == "assistant":
		by = "assistant"
	case typ == "message" && role == "user":
		by = "user"
	case typ == "message", typ == "additional_tools":
		by = "system"
	}
	if err := w.identity(it, typ, call.prefix, at); err != nil {
		return err
	}
	if w.thought != "" && (by != "assistant" || typ == "reasoning") {
		return unfollowed(w.thought)
	}
	if by == "assistant" && w.before != "assistant" {
		if err := w.closed(); err != nil {
			return err
		}
		w.answer()
	}
	if by == "user" {
		if err := w.closed(); err != nil {
			return err
		}
	}
	w.before = by
	w.thought = ""
	switch {
	case typ == "message":
		return w.message(it, role, at)
	case typ == "additional_tools":
		return knownItem(it, at, "role", "tools")
	case typ == "reasoning":
		return w.reasoning(it, at, held)
	case isCall:
		if err := w.call(it, typ, at); err != nil {
			return err
		}
		w.open = append(w.open, it)
		return nil
	}
	return w.result(it, typ, at)
}

// identity checks an item's id.
func (w *responsesWalk) identity(it object, typ, prefix, at string) error {
	v, set := it["id"]
	if !set || v == nil {
		return nil
	}
	id, ok := v.(string)
	switch typ {
	case "message":
		prefix = "msg"
	case "reasoning":
		prefix = "rs"
	case "local_shell_call_output":
		return nil // it is the call's
	}
	switch {
	case !ok || id == "" || len(id) > 64:
		return badf("Invalid '%sid': a string of at most 64 characters is expected, got %q", at, id)
	case !strings.HasPrefix(id, prefix):
		return badf("Invalid '%sid': '%s'. Expected an ID that begins with '%s'.", at, id, prefix)
	case w.ids[id]:
		return badf("Duplicate item found with id %s. Remove duplicate items from your input and try again.", id)
	}
	w.ids[id] = true
	if rs := w.held.needs[id]; rs != "" && w.thought != rs {
		return badf("Item '%s' of type '%s' was provided without its required 'reasoning' item: '%s'.", id, typ, rs)
	}
	return nil
}

// knownItem refuses keys that no item of the kind has. What Codex adds to items of
// its own is taken.
func knownItem(it object, at string, keys ...string) error {
	return known(it, at, append([]string{"type", "id", "status", "internal_chat_message_metadata_passthrough"}, keys...)...)
}

func (w *responsesWalk) message(it object, role, at string) error {
	if err := knownItem(it, at, "role", "content", "phase"); err != nil {
		return err
	}
	types := []string{"input_text", "input_image", "input_file"}
	switch role {
	case "user", "system", "developer":
	case "assistant":
		types = []string{"output_text", "refusal"}
	default:
		return badf("Invalid value: '%s'. Supported values are: 'assistant', 'system', 'developer', and 'user'. (%srole)", role, at)
	}
	var text strings.Builder
	switch c := it["content"].(type) {
	case string:
		text.WriteString(c)
	case array:
		if len(c) == 0 {
			return badf("Invalid '%scontent': empty array.", at)
		}
		for i, v := range c {
			part, _ := v.(object)
			typ, _ := part["type"].(string)
			if !slices.Contains(types, typ) {
				return badf("Invalid value: '%s'. Supported values are: %s. (%scontent[%d])", typ, strings.Join(types, ", "), at, i)
			}
			s, ok := part["text"].(string)
			if typ == "output_text" && !ok {
				return badf("Missing required parameter: '%scontent[%d].text'.", at, i)
			}
			text.WriteString(s)
		}
	default:
		return badf("Missing required parameter: '%scontent'.", at)
	}
	if role == "user" {
		w.says(text.String())
	}
	return nil
}

func (w *responsesWalk) reasoning(it object, at string, held bool) error {
	if err := knownItem(it, at, "summary", "content", "encrypted_content"); err != nil {
		return err
	}
	id, err := str(it, at, "id")
	if err != nil {
		return err
	}
	if _, ok := it["summary"].(array); !ok {
		return badf("Missing required parameter: '%ssummary'.", at)
	}
	sealed, _ := it["encrypted_content"].(string)
	_, kept := w.held.items[id]
	switch {
	case sealed != "" && w.held.sealed[id] != sealed:
		return badf("The encrypted content for item %s could not be verified.", id)
	case sealed == "" && !kept && !held:
		return notPersisted(id)
	}
	w.thought = id
	return nil
}

func (w *responsesWalk) call(it object, typ, at string) error {
	keys := map[string][]string{
		"function_call":        {"name", "namespace", "arguments"},
		"custom_tool_call":     {"name", "namespace", "input"},
		"local_shell_call":     {"action"},
		"shell_call":           {"action", "environment", "max_output_length"},
		"apply_patch_call":     {"operation"},
		"mcp_approval_request": {"name", "server_label", "arguments"},
	}[typ]
	if err := knownItem(it, at, append([]string{"call_id", "caller"}, keys...)...); err != nil {
		return err
	}
	id := callIDOf(it)
	switch {
	case id == "":
		return badf("Missing required parameter: '%scall_id'.", at)
	case w.calls[id]:
		return badf("%scall_id: duplicate value '%s'", at, id)
	}
	w.calls[id] = true
	if slices.Contains(keys, "name") {
		if _, err := str(it, at, "name"); err != nil {
			return err
		}
	}
	for _, key := range keys {
		switch v := it[key]; key {
		case "arguments":
			if s, ok := v.(string); !ok || !validObject(s) {
				return badf("Invalid '%sarguments': not a JSON object", at)
			}
		case "input":
			if _, ok := v.(string); !ok {
				return badf("Missing required parameter: '%sinput'.", at)
			}
		case "action", "operation":
			if _, ok := v.(object); !ok {
				return badf("Missing required parameter: '%s%s'.", at, key)
			}
		}
	}
	return nil
}

// result checks the result of a call.
func (w *responsesWalk) result(it object, typ, at string) error {
	keys := []string{"call_id", "output", "caller"}
	key := "call_id"
	switch typ {
	case "function_call_output", "custom_tool_call_output":
	case "local_shell_call_output":
		key = "id"
	case "shell_call_output":
		keys = append(keys, "max_output_length")
	case "apply_patch_call_output":
		if s := it["status"]; s != "completed" && s != "failed" {
			return badf("Invalid value for '%sstatus'", at)
		}
	case "mcp_approval_response":
		key, keys = "approval_request_id", []string{"approval_request_id", "approve", "reason"}
		if _, ok := it["approve"].(bool); !ok {
			return badf("Missing required parameter: '%sapprove'.", at)
		}
	default:
		return badf("Invalid value: '%s'. (%stype)", typ, at)
	}
	if err := knownItem(it, at, keys...); err != nil {
		return err
	}
	id, err := str(it, at, key)
	if err != nil {
		return err
	}
	switch it["output"].(type) {
	case string:
	case array:
	default:
		if typ != "mcp_approval_response" {
			return badf("Missing required parameter: '%soutput'.", at)
		}
	}
	for i, c := range w.open {
		was, _ := c["type"].(string)
		if callIDOf(c) == id && responsesCalls[was].output == typ {
			w.open = slices.Delete(w.open, i, i+1)
			return nil
		}
	}
	if w.calls[id] {
		return badf("%s%s: '%s' has its output already, or is of another type", at, key, id)
	}
	for _, c := range responsesCalls {
		if c.output == typ {
			return badf("No tool call found for %s output with call_id %s.", c.said, id)
		}
	}
	return nil
}

// keepResponse holds what is said for later requests.
func (p *Provider) keepResponse(a asked, t Turn) {
	items, _ := responsesItems(a, t)
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.held
	thought := ""
	all := slices.Clone(a.responses.items)
	for i, it := range t.Say {
		id, _ := items[i]["id"].(string)
		if _, ok := it.(Thinking); ok {
			thought = id
			h.sealed[id] = sealedOf(a, i)
		} else if thought != "" {
			h.needs[id], thought = thought, ""
		}
		if a.responses.stored {
			h.items[id] = items[i]
		}
		all = append(all, items[i])
	}
	if a.responses.stored {
		id := responsesID(a)
		h.answers[id] = all
		h.documents[id] = responses{}.response(a, t, "completed", items)
	}
	if c := a.responses.conversation; c != "" {
		h.conversations[c] = all
	}
}

// fetch answers a request for an answer that is kept. It reports whether the
// request is one.
func (p *Provider) fetch(w http.ResponseWriter, r *http.Request, rec *Request) bool {
	_, id, ok := strings.Cut(r.URL.Path, "/responses/")
	if !ok || r.Method == http.MethodPost {
		return false
	}
	p.mu.Lock()
	doc, there := p.held.documents[id]
	if there && r.Method == http.MethodDelete {
		delete(p.held.documents, id)
		delete(p.held.answers, id)
		doc = marshal(object{"id": id, "object": "response", "deleted": true})
	}
	p.mu.Unlock()
	if !there {
		p.refuse(w, responses{}, rec, &fault{status: http.StatusNotFound, reason: "Response with id '" + id + "' not found."})
		return true
	}
	p.mu.Lock()
	rec.Status, rec.Sent = http.StatusOK, doc
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(doc)
	return true
}

// failure is an error body of Responses.
func (responses) failure(f *fault) []byte { return chat{}.failure(f) }

// overflow is what OpenAI answers to a conversation that has grown too long.
func (responses) overflow(int, int) error {
	return &fault{status: http.StatusBadRequest, code: "context_length_exceeded", param: "input",
		reason: "Your input exceeds the context window of this model. Please adjust your input and try again."}
}
