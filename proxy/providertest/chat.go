package providertest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// chat is OpenAI Chat Completions.
type chat struct{}

var chatKeys = strings.Fields(`audio frequency_penalty function_call functions logit_bias logprobs
	max_completion_tokens max_tokens messages metadata modalities model moderation n parallel_tool_calls prediction
	presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention reasoning_effort response_format
	safety_identifier seed service_tier stop store stream stream_options temperature tool_choice tools top_logprobs
	top_p user verbosity web_search_options`)

// check reads a Chat Completions request.
func (chat) check(p *Provider, h http.Header, body []byte) (asked, error) {
	if token, ok := strings.CutPrefix(h.Get("Authorization"), "Bearer "); !ok || token == "" {
		return asked{}, &fault{status: http.StatusUnauthorized, kind: "invalid_request_error", reason: "you didn't provide an API key"}
	}
	o, err := parse(body)
	if err != nil {
		return asked{}, err
	}
	if err := known(o, "", chatKeys...); err != nil {
		return asked{}, err
	}
	a, err := chatSettings(o)
	if err != nil {
		return asked{}, err
	}
	if err := chatTools(o); err != nil {
		return asked{}, err
	}
	a.size = len(body)
	a.progress, err = chatHistory(o, p.Alternate)
	return a, err
}

// chatSettings reads the top level without tools and messages.
func chatSettings(o object) (a asked, err error) {
	if a.model, err = str(o, "", "model"); err != nil {
		return a, err
	}
	if a.stream, err = flag(o, "", "stream"); err != nil {
		return a, err
	}
	if a.choices, err = count(o, "", "n", 1, 1); err != nil {
		return a, err
	}
	if a.choices > 128 {
		return a, badf("n: input should be at most 128")
	}
	if v, there := o["stream_options"]; there && v != nil {
		so, ok := v.(object)
		if !ok || !a.stream {
			return a, badf("the 'stream_options' parameter is an object and only allowed when 'stream' is enabled")
		}
		if err := known(so, "stream_options.", "include_usage", "include_obfuscation"); err != nil {
			return a, err
		}
		if a.usage, err = flag(so, "stream_options.", "include_usage"); err != nil {
			return a, err
		}
	}
	return a, nil
}

// chatTools checks the tools and the choice among them.
func chatTools(o object) error {
	names := map[string]bool{}
	tools, there := o["tools"].(array)
	if v, set := o["tools"]; set && v != nil && (!there || len(tools) == 0) {
		return badf("[] is too short - 'tools'")
	}
	for i, v := range tools {
		name, err := chatTool(v, fmt.Sprintf("tools.%d.", i))
		if err != nil {
			return err
		}
		if names[name] {
			return badf("tools.%d: tool %q is declared twice", i, name)
		}
		names[name] = true
	}
	if _, set := o["parallel_tool_calls"]; set && len(tools) == 0 {
		return badf("'parallel_tool_calls' is only allowed when 'tools' are specified")
	}
	return chatChoice(o["tool_choice"], names)
}

func chatTool(v any, at string) (string, error) {
	t, ok := v.(object)
	if !ok {
		return "", badf("%stype: a tool is an object", at)
	}
	typ, _ := t["type"].(string)
	if typ != "function" && typ != "custom" {
		return "", badf("%stype: supported values are 'function' and 'custom'", at)
	}
	if err := known(t, at, "type", typ); err != nil {
		return "", err
	}
	def, ok := t[typ].(object)
	if !ok {
		return "", badf("missing required parameter: '%s%s'", at, typ)
	}
	name, err := str(def, at+typ+".", "name")
	if err != nil {
		return "", err
	}
	if !nameForm.MatchString(name) {
		return "", badf("%s%s.name: %q does not match the pattern of names", at, typ, name)
	}
	if params, set := def["parameters"]; set {
		if s, ok := params.(object); !ok || s["type"] != "object" {
			return "", badf("%s%s.parameters: schema must be of type object", at, typ)
		}
	}
	return name, nil
}

func chatChoice(v any, names map[string]bool) error {
	if v == nil {
		return nil
	}
	if len(names) == 0 {
		return badf("'tool_choice' is only allowed when 'tools' are specified")
	}
	switch c := v.(type) {
	case string:
		if !slices.Contains([]string{"none", "auto", "required"}, c) {
			return badf("tool_choice: %q is not one of none, auto, required", c)
		}
		return nil
	case object:
		typ, _ := c["type"].(string)
		if typ == "allowed_tools" {
			return nil
		}
		def, ok := c[typ].(object)
		if !ok || typ != "function" && typ != "custom" {
			return badf("tool_choice: an object names a function or a custom tool")
		}
		if name, _ := def["name"].(string); !names[name] {
			return badf("tool choice %q not found in 'tools' parameter", name)
		}
		return nil
	}
	return badf("tool_choice: a string or an object is expected")
}

// chatState is where a walk through the messages stands.
type chatState struct {
	open   []string // ids of calls that still need their result
	legacy string   // name of a function whose result has to come next
	ids    map[string]bool
}

// chatHistory walks the messages and counts the answers. Alternate says that
// user and assistant take turns, with what they are told by others in between.
func chatHistory(o object, alternate bool) (g progress, err error) {
	list, ok := o["messages"].(array)
	if !ok || len(list) == 0 {
		return g, badf("[] is too short - 'messages'")
	}
	var st chatState
	before := ""
	for i, v := range list {
		m, ok := v.(object)
		if !ok {
			return g, badf("messages.%d: an object is expected", i)
		}
		at := fmt.Sprintf("messages.%d.", i)
		role, _ := m["role"].(string)
		if role != "tool" {
			if err := st.closed(at); err != nil {
				return g, err
			}
		}
		if role == before && alternate && (role == "user" || role == "assistant") {
			return g, badf("%srole: after the optional system message, conversation roles must alternate user/assistant/user/assistant/...", at)
		}
		switch role {
		case "system", "developer", "user":
			if err = chatPlain(m, at, role); role == "user" {
				g.says(textOf(m["content"]))
			}
		case "assistant":
			if before != "assistant" {
				g.answer()
			}
			err = st.assistant(m, at)
		case "tool":
			err = st.result(m, at)
		case "function":
			err = st.function(m, at)
		default:
			err = badf("%srole: %q is not one of system, developer, user, assistant, tool, function", at, role)
		}
		if err != nil {
			return g, err
		}
		if role != "function" && role != "assistant" && st.legacy != "" {
			return g, badf("%sfunction_call: that of %q has no function message behind it", at, st.legacy)
		}
		before = role
	}
	if err := st.closed("messages: "); err != nil {
		return g, err
	}
	if st.legacy != "" {
		return g, badf("messages: the function_call of %q has no function message behind it", st.legacy)
	}
	return g, nil
}

// closed refuses calls that were left without a result.
func (st *chatState) closed(at string) error {
	if len(st.open) > 0 {
		return badf("%san assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: %s",
			at, strings.Join(st.open, ", "))
	}
	st.ids = nil
	return nil
}

func chatPlain(m object, at, role string) error {
	if err := known(m, at, "role", "content", "name"); err != nil {
		return err
	}
	types := []string{"text"}
	if role == "user" {
		types = []string{"text", "image_url", "input_audio", "file"}
	}
	_, err := chatContent(m, at, types...)
	return err
}

// chatContent checks a content and reports false where there is none.
func chatContent(m object, at string, types ...string) (bool, error) {
	switch c := m["content"].(type) {
	case nil:
		return false, nil
	case string:
		return true, nil
	case array:
		if len(c) == 0 {
			return false, badf("[] is too short - '%scontent'", at)
		}
		for i, v := range c {
			part, _ := v.(object)
			typ, _ := part["type"].(string)
			if !slices.Contains(types, typ) {
				return false, badf("%scontent.%d.type: invalid value %q; supported values are %s", at, i, typ, strings.Join(types, ", "))
			}
			if typ != "text" && typ != "refusal" {
				continue
			}
			if s, ok := part[typ].(string); !ok || s == "" {
				return false, badf("%scontent.%d.%s: text content blocks must be non-empty", at, i, typ)
			}
		}
		return true, nil
	}
	return false, badf("%scontent: a string or an array is expected", at)
}

// assistant checks an answer in the history and notes its calls.
func (st *chatState) assistant(m object, at string) error {
	if st.legacy != "" {
		return badf("%sfunction_call: that of %q has no function message behind it", at, st.legacy)
	}
	if err := known(m, at, "role", "content", "name", "refusal", "audio", "tool_calls", "function_call",
		"annotations", "reasoning_content"); err != nil {
		return err
	}
	some, err := chatContent(m, at, "text", "refusal")
	if err != nil {
		return err
	}
	if v, set := m["tool_calls"]; set && v != nil {
		calls, ok := v.(array)
		if !ok || len(calls) == 0 {
			return badf("[] is too short - '%stool_calls'", at)
		}
		some = true
		st.ids = map[string]bool{}
		for i, c := range calls {
			if err := st.call(c, fmt.Sprintf("%stool_calls.%d.", at, i)); err != nil {
				return err
			}
		}
	}
	if v, set := m["function_call"]; set && v != nil {
		call, _ := v.(object)
		if st.legacy, err = chatFunction(call, at+"function_call."); err != nil {
			return err
		}
		some = true
	}
	refusal, _ := m["refusal"].(string)
	if !some && refusal == "" && m["audio"] == nil {
		return badf("invalid value for 'content': expected a string, got null (%s)", strings.TrimSuffix(at, "."))
	}
	return nil
}

// call checks one entry of tool_calls.
func (st *chatState) call(v any, at string) error {
	c, ok := v.(object)
	if !ok {
		return badf("%san object is expected", at)
	}
	id, err := str(c, at, "id")
	if err != nil {
		return err
	}
	if st.ids[id] {
		return badf("%sid: duplicate value %q", at, id)
	}
	typ, _ := c["type"].(string)
	if err := known(c, at, "id", "type", typ); err != nil {
		return err
	}
	def, _ := c[typ].(object)
	switch typ {
	case "function":
		_, err = chatFunction(def, at+"function.")
	case "custom":
		if _, err = str(def, at+"custom.", "name"); err == nil {
			if _, ok := def["input"].(string); !ok {
				err = badf("missing required parameter: '%scustom.input'", at)
			}
		}
	default:
		err = badf("%stype: %q is not one of function, custom", at, typ)
	}
	if err != nil {
		return err
	}
	st.ids[id] = true
	st.open = append(st.open, id)
	return nil
}

// chatFunction checks name and arguments of a function call.
func chatFunction(def object, at string) (string, error) {
	if err := known(def, at, "name", "arguments"); err != nil {
		return "", err
	}
	name, err := str(def, at, "name")
	if err != nil {
		return "", err
	}
	if !nameForm.MatchString(name) {
		return "", badf("%sname: %q does not match the pattern of names", at, name)
	}
	args, ok := def["arguments"].(string)
	if !ok {
		return "", badf("missing required parameter: '%sarguments'", at)
	}
	if !validObject(args) {
		return "", badf("%sarguments: not a JSON object", at)
	}
	return name, nil
}

// result checks a tool message.
func (st *chatState) result(m object, at string) error {
	if err := known(m, at, "role", "content", "tool_call_id", "name"); err != nil {
		return err
	}
	id, err := str(m, at, "tool_call_id")
	if err != nil {
		return err
	}
	i := slices.Index(st.open, id)
	switch {
	case i < 0 && st.ids[id]:
		return badf("%stool_call_id: %q has its result already", at, id)
	case i < 0 && len(st.ids) > 0:
		return badf("%stool_call_id: %q is not found in 'tool_calls' of the previous message", at, id)
	case i < 0:
		return badf("%smessages with role 'tool' must be a response to a preceding message with 'tool_calls'", at)
	}
	some, err := chatContent(m, at, "text")
	if err != nil {
		return err
	}
	if !some {
		return badf("missing required parameter: '%scontent'", at)
	}
	st.open = slices.Delete(st.open, i, i+1)
	return nil
}

// function checks a message of the legacy form.
func (st *chatState) function(m object, at string) error {
	name, err := str(m, at, "name")
	if err != nil {
		return err
	}
	if st.legacy == "" || st.legacy != name {
		return badf("%smessages with role 'function' must be a response to a preceding message with 'function_call' of the same name", at)
	}
	st.legacy = ""
	return known(m, at, "role", "content", "name")
}
