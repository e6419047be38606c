package ollama

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

func TestRepairCases(t *testing.T) {
	inspecttest.RunRepair(t, repairing, repairCases, inspecttest.Form{Ended: endedAnswer, Check: checkAnswer})
}

// endedAnswer reports whether the end of an answer was given out.
func endedAnswer(out []byte) bool {
	return bytes.Contains(out, []byte(`"done":true`)) || bytes.Contains(out, []byte(`"done": true`)) || bytes.Contains(out, []byte(`"error"`))
}

// clientCall and clientMessage are what Ollama's own clients read.
type clientCall struct {
	ID       string `json:"id,omitempty"`
	Function struct {
		Index     *int            `json:"index,omitempty"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments,omitempty"`
	} `json:"function"`
}

type clientMessage struct {
	Role     string       `json:"role"`
	Content  string       `json:"content"`
	Thinking string       `json:"thinking,omitempty"`
	Calls    []clientCall `json:"tool_calls,omitempty"`
	ToolName string       `json:"tool_name,omitempty"`
	CallID   string       `json:"tool_call_id,omitempty"`
}

// clientAnswer is an answer as a client puts it together.
type clientAnswer struct {
	clientMessage
	models         map[string]bool
	dones          int
	failed, late   bool
	prompt, output int
}

func readAnswer(out []byte) (*clientAnswer, error) {
	a := &clientAnswer{models: map[string]bool{}}
	lines := bytes.Split(out, []byte{'\n'})
	if json.Valid(out) {
		lines = [][]byte{out} // a document may stand in several lines
	}
	for _, line := range lines {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var c struct {
			Model   string
			Message clientMessage
			Done    bool
			Reason  string `json:"done_reason"`
			Error   json.RawMessage
			Prompt  int `json:"prompt_eval_count"`
			Output  int `json:"eval_count"`
		}
		if err := json.Unmarshal(line, &c); err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		a.late = a.late || a.dones > 0
		if len(c.Error) > 0 {
			a.failed = true
			continue
		}
		if c.Model != "" {
			a.models[c.Model] = true
		}
		a.Content += c.Message.Content
		a.Thinking += c.Message.Thinking
		a.Calls = append(a.Calls, c.Message.Calls...)
		if c.Done {
			a.dones++
			a.prompt, a.output = c.Prompt, c.Output
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
	case len(a.models) > 1:
		return fmt.Errorf("it has several envelopes: %v", a.models)
	case a.late:
		return errors.New("something stands behind its end")
	case a.dones > 1:
		return fmt.Errorf("it has %d ends", a.dones)
	case a.failed && !told.Mend && a.Content == "":
		return nil
	}
	for i, c := range a.Calls {
		if c.Function.Index != nil && *c.Function.Index > i {
			return fmt.Errorf("call %d has the index %d", i, *c.Function.Index)
		}
	}
	return checkTold(a, told)
}

func checkTold(a *clientAnswer, told inspect.Told) error {
	shown := a.clientMessage
	shown.Role = "assistant"
	messages := []clientMessage{{Role: "user", Content: "go"}, shown}
	for _, c := range a.Calls {
		messages = append(messages, clientMessage{Role: "tool", Content: "result", ToolName: c.Function.Name, CallID: c.ID})
	}
	body, err := json.Marshal(map[string]any{"model": "m", "messages": messages})
	if err != nil {
		return err
	}
	req, err := repairing.Request(inspect.Head{Path: chatPath}, body)
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
		if !strings.Contains(a.Content+a.Thinking, n) {
			return fmt.Errorf("the notice %q is not in %q", n, a.Content)
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
	var doc struct{ Messages []clientMessage }
	if err := json.Unmarshal(body, &doc); err != nil {
		return fmt.Errorf("%s: %w", body, err)
	}
	var owed []clientCall
	for i, m := range doc.Messages {
		if m.Role == "tool" {
			if len(owed) == 0 || owed[0].ID != m.CallID || owed[0].Function.Name != m.ToolName {
				return fmt.Errorf("message %d answers %q, and %+v are owed, in %s", i, m.CallID+m.ToolName, owed, body)
			}
			owed = owed[1:]
			continue
		}
		if len(owed) > 0 {
			return fmt.Errorf("message %d stands before the results of %+v, in %s", i, owed, body)
		}
		if m.Role == "assistant" && strings.TrimSpace(m.Content) == "" && len(m.Calls) == 0 {
			return fmt.Errorf("message %d says nothing, in %s", i, body)
		}
		owed = m.Calls
	}
	if len(owed) > 0 {
		return fmt.Errorf("the results of %+v are missing in %s", owed, body)
	}
	return nil
}
