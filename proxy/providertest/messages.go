package providertest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// messages is Anthropic Messages, and the counting of its tokens.
type messages struct{ count bool }

var messagesKeys = strings.Fields(`cache_control container context_management inference_geo max_tokens mcp_servers
	messages metadata model output_config output_format service_tier speed stop_sequences stream system temperature
	thinking thread tool_choice tools top_k top_p`)

// countKeys are the keys of a request for the number of its tokens.
var countKeys = strings.Fields(`cache_control context_management mcp_servers messages model output_config
	output_format speed system thinking tool_choice tools`)

var typedTool = regexp.MustCompile(`^[a-z_]+_[0-9]{8}$`)

// thinkingIssued is a thinking block that was sent: its text and the history
// that stood before it.
type thinkingIssued struct{ text, prefix string }

// check reads a Messages request.
func (ms messages) check(p *Provider, h http.Header, body []byte) (asked, error) {
	bearer := strings.HasPrefix(h.Get("Authorization"), "Bearer ")
	if h.Get("X-Api-Key") == "" && !bearer {
		return asked{}, &fault{status: http.StatusUnauthorized, kind: "authentication_error", reason: "x-api-key header is required"}
	}
	switch v := h.Get("Anthropic-Version"); v {
	case "2023-06-01", "2023-01-01", "2026-10-21":
	case "":
		return asked{}, badf("anthropic-version: header is required")
	default:
		return asked{}, badf("anthropic-version: %q is not a valid version", v)
	}
	o, err := parse(body)
	if err != nil {
		return asked{}, err
	}
	keys := messagesKeys
	if ms.count {
		keys = countKeys
	}
	if err := known(o, "", keys...); err != nil {
		return asked{}, err
	}
	a := asked{choices: 1, count: ms.count, size: len(body)}
	if a.model, err = str(o, "", "model"); err != nil {
		return a, err
	}
	if a.stream, err = flag(o, "", "stream"); err != nil {
		return a, err
	}
	limit, err := count(o, "", "max_tokens", 1, 0)
	if err != nil {
		return a, err
	}
	switch {
	case ms.count:
		limit = math.MaxInt
	case limit == 0:
		return a, badf("max_tokens: field required")
	}
	if err := p.thread(&a, h, o); err != nil {
		return a, err
	}
	if err := messagesSystem(o["system"]); err != nil {
		return a, err
	}
	tools, err := messagesTools(o, a.continues.tools())
	if err != nil {
		return a, err
	}
	thinks, err := messagesThinking(o, limit)
	if err != nil {
		return a, err
	}
	turns, err := messagesTurns(o, a.continues.history(), p.Alternate)
	if err != nil {
		return a, err
	}
	hist := &history{p: p, turns: turns, tools: len(tools), thinks: thinks, off: noThinking(o)}
	if err := hist.check(); err != nil {
		return a, err
	}
	a.progress = hist.progress
	a.prefix = digest(turns)
	if a.keep != nil {
		a.keep.turns, a.keep.names, a.keep.size = turns, tools, a.size
	}
	return a, nil
}

func messagesSystem(v any) error {
	switch s := v.(type) {
	case nil, string:
		return nil
	case array:
		for i, b := range s {
			block, _ := b.(object)
			if block["type"] != "text" {
				return badf("system.%d.type: input should be 'text'", i)
			}
			if t, _ := block["text"].(string); strings.TrimSpace(t) == "" {
				return badf("system: text content blocks must be non-empty")
			}
		}
		return nil
	}
	return badf("system: a string or an array is expected")
}

// messagesTools checks tools and tool_choice and gives the names of the tools,
// with those that a thread has.
func messagesTools(o object, held map[string]bool) (map[string]bool, error) {
	names := map[string]bool{}
	maps.Copy(names, held)
	var tools array
	if v, set := o["tools"]; set {
		list, ok := v.(array)
		if !ok {
			return nil, badf("tools: input should be a valid list")
		}
		tools = list
	}
	for i, v := range tools {
		at := fmt.Sprintf("tools.%d.", i)
		t, _ := v.(object)
		name, err := str(t, at, "name")
		if err != nil {
			return nil, err
		}
		if !nameForm.MatchString(name) {
			return nil, badf("%sname: string should match pattern '%s'", at, nameForm)
		}
		if names[name] {
			return nil, badf("tools: tool names must be unique")
		}
		names[name] = true
		typ, _ := t["type"].(string)
		if typ != "" && typ != "custom" {
			if !typedTool.MatchString(typ) {
				return nil, badf("%stype: input tag %q does not match any of the expected tags", at, typ)
			}
			continue
		}
		if s, ok := t["input_schema"].(object); !ok || s["type"] != "object" {
			return nil, badf("%sinput_schema.type: input should be 'object'", at)
		}
	}
	choice, set := o["tool_choice"]
	if !set {
		return names, nil
	}
	c, _ := choice.(object)
	typ, _ := c["type"].(string)
	if len(names) == 0 && typ != "none" {
		return nil, badf("tool_choice may only be specified while providing tools")
	}
	switch typ {
	case "auto", "any", "none":
		return names, nil
	case "tool":
		if name, _ := c["name"].(string); !names[name] {
			return nil, badf("tool '%v' not found in provided tools", c["name"])
		}
		return names, nil
	}
	return nil, badf("tool_choice.type: %q is not one of auto, any, tool, none", typ)
}

// messagesThinking checks the thinking setting and reports whether answers
// have to start with thinking.
func messagesThinking(o object, limit int) (bool, error) {
	v, set := o["thinking"]
	if !set {
		return false, nil
	}
	t, _ := v.(object)
	switch t["type"] {
	case "disabled":
		return false, nil
	case "adaptive":
	case "enabled":
		budget, err := count(t, "thinking.", "budget_tokens", 1024, 0)
		if err != nil {
			return false, err
		}
		if budget == 0 {
			return false, badf("thinking.enabled.budget_tokens: field required")
		}
		if budget >= limit {
			return false, badf("`max_tokens` must be greater than `thinking.budget_tokens`")
		}
	default:
		return false, badf("thinking.type: input should be 'enabled', 'disabled' or 'adaptive'")
	}
	if c, _ := o["tool_choice"].(object); c["type"] == "any" || c["type"] == "tool" {
		return false, badf("thinking may not be enabled when tool_choice forces tool use")
	}
	return t["type"] == "enabled", nil
}

// noThinking reports whether the request is for answers without thinking.
func noThinking(o object) bool {
	t, _ := o["thinking"].(object)
	return t == nil || t["type"] == "disabled"
}

// turnOf is one or several messages of a role in a row, as one.
type turnOf struct {
	role   string
	at     string
	blocks array
}

// messagesTurns gives what is held and the messages behind it, with a role's
// messages in a row joined, as the provider joins them, or refused.
func messagesTurns(o object, held []turnOf, alternate bool) ([]turnOf, error) {
	list, ok := o["messages"].(array)
	if !ok || len(list) == 0 {
		return nil, badf("messages: at least one message is required")
	}
	turns := slices.Clip(held)
	for i, v := range list {
		at := fmt.Sprintf("messages.%d", i)
		m, _ := v.(object)
		role, _ := m["role"].(string)
		keys := []string{"role", "content"}
		if role == "system" {
			keys = append(keys, "output_config", "clear_at")
		}
		if err := known(m, at+".", keys...); err != nil {
			return nil, err
		}
		if role != "user" && role != "assistant" && role != "system" {
			return nil, badf("%s.role: input should be 'user', 'assistant' or 'system'", at)
		}
		blocks, err := messagesContent(m["content"], at, i == len(list)-1 && role == "assistant")
		if err != nil {
			return nil, err
		}
		if err := systemPlace(turns, role, at); err != nil {
			return nil, err
		}
		if n := len(turns); n > 0 && turns[n-1].role == role {
			if alternate {
				return nil, badf("messages: roles must alternate between \"user\" and \"assistant\", but found multiple %q roles in a row (%s)", role, at)
			}
			turns[n-1].blocks = append(slices.Clip(turns[n-1].blocks), blocks...)
			continue
		}
		turns = append(turns, turnOf{role: role, at: at, blocks: blocks})
	}
	if turns[0].role != "user" {
		return nil, badf("messages: first message must use the \"user\" role")
	}
	return turns, nil
}

// systemPlace checks that a message of the system's stands where one may: behind
// a user's turn, or an answer that ends in a tool of the provider's, and before
// an answer or at the end.
func systemPlace(before []turnOf, role, at string) error {
	if len(before) == 0 {
		if role == "system" {
			return badf("%s: use the top-level 'system' parameter for the initial system prompt", at)
		}
		return nil
	}
	last := before[len(before)-1]
	switch {
	case last.role == "system" && role != "assistant":
		return badf("%s: role 'system' must precede an 'assistant' message or end the array", last.at)
	case role == "system" && last.role == "assistant" && !endsInServerTool(last.blocks):
		return badf("%s: role 'system' must follow a 'user' message or an 'assistant' message that ends in server tool use", at)
	}
	return nil
}

func endsInServerTool(blocks array) bool {
	if len(blocks) == 0 {
		return false
	}
	b, _ := blocks[len(blocks)-1].(object)
	typ, _ := b["type"].(string)
	return typ == "server_tool_use" || typ == "mcp_tool_use" || strings.HasSuffix(typ, "_tool_result")
}

func messagesContent(v any, at string, last bool) (array, error) {
	switch c := v.(type) {
	case string:
		if c == "" && !last {
			return nil, badf("%s: all messages must have non-empty content except for the optional final assistant message", at)
		}
		return array{object{"type": "text", "text": c}}, nil
	case array:
		if len(c) == 0 && !last {
			return nil, badf("%s: all messages must have non-empty content except for the optional final assistant message", at)
		}
		return c, nil
	}
	return nil, badf("%s.content: input should be a valid string or list", at)
}

// history checks the joined turns.
type history struct {
	p     *Provider
	turns []turnOf
	tools int
	// thinks says that answers have to start with thinking, off that no
	// thinking is wanted and none is looked at.
	thinks, off bool

	progress
	ids map[string]bool
}

var messagesBlocks = map[string][]string{
	"system": {"text", "tool_addition", "tool_removal"},
	"user":   {"text", "image", "document", "tool_result", "search_result", "container_upload"},
	"assistant": {"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "mcp_tool_use",
		"mcp_tool_result", "web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result",
		"bash_code_execution_tool_result", "text_editor_code_execution_tool_result", "container_upload"},
}

func (hs *history) check() error {
	hs.ids = map[string]bool{}
	var open []string
	for i, t := range hs.turns {
		if t.role == "system" {
			if err := systemTurn(t); err != nil {
				return err
			}
			continue
		}
		if t.role == "user" {
			if err := userTurn(t, open); err != nil {
				return err
			}
			open = nil
			if words := textOf(t.blocks); words != "" {
				hs.says(words)
			}
			continue
		}
		hs.answer()
		var err error
		if open, err = hs.assistantTurn(i, t); err != nil {
			return err
		}
	}
	if len(open) > 0 {
		return unanswered(hs.turns[len(hs.turns)-1].at, open)
	}
	return hs.lastTurn()
}

func systemTurn(t turnOf) error {
	for j, v := range t.blocks {
		b, _ := v.(object)
		if _, err := block(b, fmt.Sprintf("%s.content.%d", t.at, j), "system"); err != nil {
			return err
		}
	}
	return nil
}

func unanswered(at string, ids []string) error {
	return badf("%s: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message",
		at, strings.Join(ids, ", "))
}

// userTurn checks a user turn that has to answer the open calls.
func userTurn(t turnOf, open []string) error {
	var seen []string
	rest := slices.Clone(open)
	behind := false
	for j, v := range t.blocks {
		at := fmt.Sprintf("%s.content.%d", t.at, j)
		b, _ := v.(object)
		typ, err := block(b, at, t.role)
		if err != nil {
			return err
		}
		if typ != "tool_result" {
			behind = true
			continue
		}
		id, err := toolResult(b, at)
		if err != nil {
			return err
		}
		if slices.Contains(seen, id) {
			return badf("%s: each tool_use must have a single result. Found multiple `tool_result` blocks with id: %s", at, id)
		}
		seen = append(seen, id)
		k := slices.Index(rest, id)
		if k < 0 {
			return badf("%s: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message", at, id)
		}
		if behind {
			return badf("%s: `tool_result` blocks must come first in the message", at)
		}
		rest = slices.Delete(rest, k, k+1)
	}
	if len(rest) > 0 {
		return unanswered(t.at, rest)
	}
	return nil
}

// block checks what all blocks have in common and gives the type.
func block(b object, at, role string) (string, error) {
	typ, _ := b["type"].(string)
	if !slices.Contains(messagesBlocks[role], typ) {
		return "", badf("%s: input tag %q found using 'type' does not match any of the expected tags for role %s", at, typ, role)
	}
	if typ != "text" {
		return typ, nil
	}
	if err := known(b, at+".text.", "type", "text", "cache_control", "citations"); err != nil {
		return "", err
	}
	text, ok := b["text"].(string)
	switch {
	case !ok || text == "":
		return "", badf("%s: text content blocks must be non-empty", at)
	case strings.TrimSpace(text) == "":
		return "", badf("%s: text content blocks must contain non-whitespace text", at)
	}
	return typ, nil
}

func toolResult(b object, at string) (string, error) {
	if err := known(b, at+".tool_result.", "type", "tool_use_id", "content", "is_error", "cache_control"); err != nil {
		return "", err
	}
	id, err := str(b, at+".tool_result.", "tool_use_id")
	if err != nil {
		return "", err
	}
	failed, err := flag(b, at+".tool_result.", "is_error")
	if err != nil {
		return "", err
	}
	empty := true
	switch c := b["content"].(type) {
	case nil:
	case string:
		empty = c == ""
	case array:
		empty = len(c) == 0
		for k, v := range c {
			part, _ := v.(object)
			typ, _ := part["type"].(string)
			if !slices.Contains([]string{"text", "image", "document", "search_result", "tool_reference"}, typ) {
				return "", badf("%s.content.%d: input tag %q does not match any of the expected tags", at, k, typ)
			}
			if text, _ := part["text"].(string); typ == "text" && text == "" {
				return "", badf("%s.content.%d: text content blocks must be non-empty", at, k)
			}
		}
	default:
		return "", badf("%s.tool_result.content: input should be a valid string or list", at)
	}
	if failed && empty {
		return "", badf("%s.tool_result: content cannot be empty if `is_error` is true", at)
	}
	return id, nil
}

// assistantTurn checks an answer in the history and gives the ids of its calls.
func (hs *history) assistantTurn(i int, t turnOf) ([]string, error) {
	var open, signs []string
	for j, v := range t.blocks {
		at := fmt.Sprintf("%s.content.%d", t.at, j)
		b, _ := v.(object)
		typ, err := messagesAnswerBlock(b, at, i == len(hs.turns)-1)
		if err != nil {
			return nil, err
		}
		switch typ {
		case "thinking":
			sign, err := hs.thinking(b, at, hs.turns[:i])
			if err != nil {
				return nil, err
			}
			signs = append(signs, sign)
		case "tool_use":
			id, err := toolUse(b, at)
			if err != nil {
				return nil, err
			}
			if hs.ids[id] {
				return nil, badf("%s: `tool_use` ids must be unique", at)
			}
			hs.ids[id] = true
			open = append(open, id)
		}
	}
	if len(open) > 0 && hs.tools == 0 {
		return nil, badf("requests which have `tool_use` or `tool_result` blocks in `messages` must define tools")
	}
	if hs.inLoop(i) {
		if err := hs.thoughtOf(i, t, open, signs); err != nil {
			return nil, err
		}
	}
	return open, nil
}

// messagesAnswerBlock is block, but the last block of a prefilled answer may
// be an empty text.
func messagesAnswerBlock(b object, at string, last bool) (string, error) {
	if last && b["type"] == "text" && b["text"] == "" {
		return "text", nil
	}
	return block(b, at, "assistant")
}

// inLoop tells whether the answer belongs to the tool loop that is going on:
// no user turn without results stands behind it.
func (hs *history) inLoop(i int) bool {
	for _, t := range hs.turns[i+1:] {
		if t.role != "user" {
			continue
		}
		first, _ := t.blocks[0].(object)
		if first["type"] != "tool_result" {
			return false
		}
	}
	return true
}

// thoughtOf checks that the thinking of a turn with calls came back whole.
// Of a turn that somebody else answered, only the start of a loop is known to
// begin with thinking.
func (hs *history) thoughtOf(i int, t turnOf, ids, signs []string) error {
	if len(ids) == 0 {
		return nil
	}
	first, _ := t.blocks[0].(object)
	hs.p.mu.Lock()
	defer hs.p.mu.Unlock()
	for _, id := range ids {
		want, ours := hs.p.thought[id]
		same := func(w []string) bool { return slices.Equal(w, signs) }
		switch {
		case ours && !hs.off && !slices.ContainsFunc(want, same):
			return badf("%s: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response", t.at)
		case !ours && hs.thinks && hs.startsLoop(i) && first["type"] != "thinking" && first["type"] != "redacted_thinking":
			return badf("%s.content.0.type: expected `thinking` or `redacted_thinking`, but found `%v`. When `thinking` is enabled, a final `assistant` message must start with a thinking block", t.at, first["type"])
		}
	}
	return nil
}

// startsLoop tells whether the answer is the first behind the user's words.
func (hs *history) startsLoop(i int) bool {
	i--
	if hs.turns[i].role == "system" {
		i--
	}
	first, _ := hs.turns[i].blocks[0].(object)
	return first["type"] != "tool_result"
}

// thinking checks that a thinking block is one that was issued, unchanged and
// behind the history it was issued for. It gives the signature.
func (hs *history) thinking(b object, at string, before []turnOf) (string, error) {
	if err := known(b, at+".thinking.", "type", "thinking", "signature", "cache_control"); err != nil {
		return "", err
	}
	if _, set := b["cache_control"]; set {
		return "", badf("%s.thinking.cache_control: extra inputs are not permitted", at)
	}
	sign, err := str(b, at+".thinking.", "signature")
	if err != nil {
		return "", err
	}
	hs.p.mu.Lock()
	was, ours := hs.p.issued[sign]
	hs.p.mu.Unlock()
	switch {
	case !ours || b["thinking"] != was.text:
		return "", badf("%s: invalid `signature` in `thinking` block", at)
	case was.prefix != digest(before):
		return "", badf("%s: the `thinking` block is bound to other messages than stand before it (prefix_binding_mismatch)", at)
	}
	return sign, nil
}

func toolUse(b object, at string) (string, error) {
	if err := known(b, at+".tool_use.", "type", "id", "name", "input", "cache_control", "caller"); err != nil {
		return "", err
	}
	id, err := str(b, at+".tool_use.", "id")
	if err != nil {
		return "", err
	}
	if !nameForm.MatchString(id) {
		return "", badf("%s.tool_use.id: string should match pattern '^[a-zA-Z0-9_-]+$'", at)
	}
	name, err := str(b, at+".tool_use.", "name")
	if err != nil {
		return "", err
	}
	if !nameForm.MatchString(name) {
		return "", badf("%s.tool_use.name: string should match pattern '%s'", at, nameForm)
	}
	if _, ok := b["input"].(object); !ok {
		return "", badf("%s.tool_use.input: input should be a valid dictionary", at)
	}
	return id, nil
}

// lastTurn checks an answer that the request wants to be continued.
func (hs *history) lastTurn() error {
	t := hs.turns[len(hs.turns)-1]
	if t.role != "assistant" || len(t.blocks) == 0 {
		return nil
	}
	if hs.thinks {
		return badf("%s: when `thinking` is enabled the final message must not be an assistant message", t.at)
	}
	b, _ := t.blocks[len(t.blocks)-1].(object)
	if text, _ := b["text"].(string); b["type"] == "text" && strings.TrimRight(text, " \t\r\n") != text {
		return badf("messages: final assistant content cannot end with trailing whitespace")
	}
	return nil
}

// digest names a history: what stands in it without the marks for caching.
func digest(turns []turnOf) string {
	list := make(array, len(turns))
	for i, t := range turns {
		list[i] = array{t.role, plain(t.blocks)}
	}
	b, err := json.Marshal(list)
	if err != nil {
		panic(err) // parsed JSON can always be written
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// plain gives a value without cache_control, and texts given as a string as
// the one block that they stand for.
func plain(v any) any {
	switch v := v.(type) {
	case object:
		out := object{}
		for k, e := range v {
			if k == "cache_control" {
				continue
			}
			if s, ok := e.(string); ok && k == "content" {
				e = array{object{"type": "text", "text": s}}
			}
			out[k] = plain(e)
		}
		return out
	case array:
		out := make(array, len(v))
		for i, e := range v {
			out[i] = plain(e)
		}
		return out
	}
	return v
}
