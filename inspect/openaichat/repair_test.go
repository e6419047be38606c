package openaichat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"callgate/inspect"
	"callgate/inspect/inspecttest"
)

const repairCases = "testdata/repair/*.txtar"

var repairing = Dialect{Denial: inspect.DenialRepair}

func TestRepairCases(t *testing.T) {
	inspecttest.RunRepair(t, repairing, repairCases, inspecttest.Form{Ended: endedAnswer, Check: checkAnswer})
}

// endedAnswer reports whether the end of an answer was given out.
func endedAnswer(out []byte) bool {
	if bytes.HasPrefix(bytes.TrimSpace(out), []byte("{")) {
		return true
	}
	return bytes.Contains(out, []byte(`"finish_reason":"`)) || bytes.Contains(out, []byte("data: [DONE]"))
}

// clientAnswer is an answer as a client puts it together.
type clientAnswer struct {
	failed, done   bool
	ids            map[string]bool // id, created and model in one
	roles, finish  int
	usage          int
	shrinks        bool // usage was less than before
	late           bool // something was said behind the finish
	Role           string
	Content        strings.Builder
	refusal        string
	calls          []clientCall
	legacy         *clientFunction
	other          bool // another choice than the first was given
	prompt, output int
	total          int
}

type clientFunction struct {
	Name      string    `json:"name"`
	Arguments arguments `json:"arguments"`
}

// arguments are text, or what some servers give in its place.
type arguments string

func (a *arguments) UnmarshalJSON(b []byte) error {
	*a = arguments(b)
	if b[0] != '"' {
		return nil
	}
	return json.Unmarshal(b, (*string)(a))
}

type clientCustom struct {
	Name  string `json:"name"`
	Input string `json:"input"`
}

type clientCall struct {
	Index    *int            `json:"index,omitempty"`
	ID       string          `json:"id"`
	Type     string          `json:"type"`
	Function *clientFunction `json:"function,omitempty"`
	Custom   *clientCustom   `json:"custom,omitempty"`
}

type clientBody struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Calls   []clientCall    `json:"tool_calls"`
	Legacy  *clientFunction `json:"function_call"`
	Refusal string
}

type clientChunk struct {
	ID      string
	Created json.RawMessage
	Model   string
	Error   json.RawMessage
	Usage   *struct {
		Prompt int `json:"prompt_tokens"`
		Output int `json:"completion_tokens"`
		Total  int `json:"total_tokens"`
	}
	Choices []struct {
		Index   int
		Delta   clientBody
		Message clientBody
		Finish  *string `json:"finish_reason"`
	}
}

func (a *clientAnswer) take(data []byte) error {
	var c clientChunk
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("%s: %w", data, err)
	}
	if c.Error != nil && string(c.Error) != "null" {
		a.failed = true
		return nil
	}
	if a.ids == nil {
		a.ids = map[string]bool{}
	}
	if c.ID != "" {
		a.ids[c.ID+" "+string(c.Created)+" "+c.Model] = true
	}
	if c.Usage != nil {
		a.usage++
		a.shrinks = a.shrinks || c.Usage.Output < a.output
		a.prompt, a.output, a.total = c.Usage.Prompt, c.Usage.Output, c.Usage.Total
	}
	for _, ch := range c.Choices {
		if ch.Index != 0 {
			a.other = true
			continue
		}
		for _, b := range []clientBody{ch.Delta, ch.Message} {
			if b.Role != "" {
				a.roles++
			}
			text := words(b.Content)
			a.late = a.late || a.finish > 0 && (text != "" || len(b.Calls) > 0)
			a.Content.WriteString(text)
			a.refusal += b.Refusal
			for _, call := range b.Calls {
				a.call(call)
			}
			if b.Legacy != nil {
				if a.legacy == nil {
					a.legacy = &clientFunction{}
				}
				a.legacy.Name += b.Legacy.Name
				a.legacy.Arguments += b.Legacy.Arguments
			}
		}
		if ch.Finish != nil {
			a.finish++
		}
	}
	return nil
}

// words gives the text of a content.
func words(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct{ Type, Text string }
	if json.Unmarshal(raw, &parts) == nil {
		for _, p := range parts {
			if p.Type == "text" {
				s += p.Text
			}
		}
	}
	return s
}

func (a *clientAnswer) call(c clientCall) {
	for i := range a.calls {
		old := &a.calls[i]
		if c.Index != nil && old.Index != nil && *c.Index == *old.Index {
			if c.Function != nil {
				old.Function.Arguments += c.Function.Arguments
			}
			if c.Custom != nil {
				old.Custom.Input += c.Custom.Input
			}
			return
		}
	}
	a.calls = append(a.calls, c)
}

func readAnswer(out []byte) (*clientAnswer, error) {
	a := &clientAnswer{}
	if trimmed := bytes.TrimSpace(out); bytes.HasPrefix(trimmed, []byte("{")) {
		a.done = true
		return a, a.take(trimmed)
	}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, "\r\n")
		data, ok := strings.CutPrefix(line, "data: ")
		switch {
		case line == "" || strings.HasPrefix(line, ":"):
		case !ok:
			return nil, fmt.Errorf("line %q is no data", line)
		case a.done:
			return nil, fmt.Errorf("data behind the end: %q", line)
		case data == "[DONE]":
			a.done = true
		default:
			if err := a.take([]byte(data)); err != nil {
				return nil, err
			}
		}
	}
	return a, nil
}

// checkAnswer holds an answer against what one answer must be, puts it into a
// history as a client does, and mends that.
func checkAnswer(out []byte, told inspect.Told) error {
	a, err := readAnswer(out)
	switch {
	case err != nil:
		return err
	case len(a.ids) > 1:
		return fmt.Errorf("it has several envelopes: %v", a.ids)
	case a.roles > 1 && !a.other:
		return fmt.Errorf("its role comes %d times", a.roles)
	case a.late:
		return errors.New("something is said behind its finish")
	case a.finish > 1, a.finish == 0 && a.done && !a.failed && !a.other:
		return fmt.Errorf("it has %d finishes", a.finish)
	case a.shrinks:
		return errors.New("its usage becomes less")
	case a.usage > 0 && a.total != a.prompt+a.output:
		return fmt.Errorf("its usage of %d and %d is not %d", a.prompt, a.output, a.total)
	case a.failed && !told.Mend && a.Content.Len() == 0, a.other:
		return nil
	}
	return checkTold(a, told)
}

func checkTold(a *clientAnswer, told inspect.Told) error {
	message := map[string]any{"role": "assistant", "content": a.Content.String()}
	messages := []any{map[string]any{"role": "user", "content": "go"}, message}
	for i := range a.calls {
		a.calls[i].Index = nil
		messages = append(messages, map[string]any{"role": "tool", "tool_call_id": a.calls[i].ID, "content": "result"})
	}
	if len(a.calls) > 0 {
		message["tool_calls"] = a.calls
	}
	if a.legacy != nil {
		message["function_call"] = a.legacy
		messages = append(messages, map[string]any{"role": "function", "name": a.legacy.Name, "content": "result"})
	}
	body, err := json.Marshal(map[string]any{"model": "m", "messages": messages})
	if err != nil {
		return err
	}
	req, err := repairing.Request(inspect.Head{}, body)
	if err != nil {
		return err
	}
	h, err := req.History()
	if err != nil {
		return fmt.Errorf("%w in %s", err, body)
	}
	if u := h.Units()[0]; !slices.Equal(u.Calls, told.Unit.Calls) {
		return fmt.Errorf("the client has the calls %q, and told are %q", u.Calls, told.Unit.Calls)
	}
	for _, n := range told.Notices {
		if !strings.Contains(a.Content.String()+a.refusal, n) {
			return fmt.Errorf("the notice %q is not in %q", n, a.Content.String())
		}
	}
	if !told.Mend {
		return nil
	}
	if h.Shown(0) != told.Shown {
		return fmt.Errorf("the digest of what the client has is not what is told; it has %s", body)
	}
	mended, err := h.Edit(nil, map[int]inspect.Mend{0: {Rounds: told.Rounds}})
	if err != nil {
		return fmt.Errorf("the history cannot be mended: %w", err)
	}
	return checkHistory(mended)
}

// checkHistory checks that every call of a history has its result right behind
// it, in order, and that no message is empty.
func checkHistory(body []byte) error {
	var doc struct {
		Messages []struct {
			Role    string
			Content json.RawMessage
			Calls   []clientCall    `json:"tool_calls"`
			Legacy  *clientFunction `json:"function_call"`
			Refusal string
			ID      string `json:"tool_call_id"`
			Name    string
		}
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return fmt.Errorf("%s: %w", body, err)
	}
	var owed []string
	for i, m := range doc.Messages {
		switch m.Role {
		case "tool", "function":
			if len(owed) == 0 || owed[0] != m.ID+m.Name {
				return fmt.Errorf("message %d answers %q, and %q are owed, in %s", i, m.ID+m.Name, owed, body)
			}
			owed = owed[1:]
			continue
		case "assistant":
			if words(m.Content) == "" && len(m.Calls) == 0 && m.Legacy == nil && m.Refusal == "" {
				return fmt.Errorf("message %d says nothing, in %s", i, body)
			}
		}
		if len(owed) > 0 {
			return fmt.Errorf("message %d stands before the results of %q, in %s", i, owed, body)
		}
		for _, c := range m.Calls {
			owed = append(owed, c.ID)
		}
		if m.Legacy != nil {
			owed = append(owed, m.Legacy.Name)
		}
	}
	if len(owed) > 0 {
		return fmt.Errorf("the results of %q are missing in %s", owed, body)
	}
	return nil
}
