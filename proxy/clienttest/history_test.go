package clienttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
)

// The kinds of an entry.
const (
	byUser  = "user"
	byModel = "answer"
	ofCall  = "result"
)

// entry is one thing in a history, as the model reads it in either wire format:
// words of the user, an answer, or the result of one call.
type entry struct {
	Kind, Text string
	// Thinking and Calls are those of an answer.
	Thinking string
	Calls    []seenCall
	// Call is the id of the call that a result is of, and Refused says that it
	// did not run.
	Call    string
	Refused bool

	// trimmed says of an answer that the thinking may be missing, optional that
	// all of it may, or be any text of callgate's.
	trimmed, optional bool
}

// readHistory gives what a request to the provider holds.
func readHistory(body []byte) ([]entry, error) {
	type function struct {
		Name      string
		Arguments json.RawMessage // text or, in Ollama's format, an object
	}
	type call struct {
		ID       string
		Function function
	}
	var doc struct {
		Messages []struct {
			Role      string
			Content   json.RawMessage
			Reasoning string `json:"reasoning_content"`
			Thinking  string
			Calls     []call `json:"tool_calls"`
			Call      string `json:"tool_call_id"`
		}
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("%w in %s", err, body)
	}
	if contents := gjson.GetBytes(body, "contents"); contents.Exists() {
		return geminiEntries(contents), nil
	}
	if input := gjson.GetBytes(body, "input"); input.Exists() {
		return responsesEntries(input), nil
	}
	var out []entry
	for _, m := range doc.Messages {
		parts, err := readParts(m.Content)
		if err != nil {
			return nil, err
		}
		switch m.Role {
		case "user":
			for _, p := range parts {
				if p.Type == "tool_result" {
					inner, err := readParts(p.Content)
					if err != nil {
						return nil, err
					}
					out = append(out, entry{Kind: ofCall, Text: joined(inner), Call: p.Call, Refused: p.Failed})
				}
			}
			if text := joined(parts); text != "" {
				out = append(out, entry{Kind: byUser, Text: text})
			}
		case "tool":
			text := joined(parts)
			out = append(out, entry{Kind: ofCall, Text: text, Call: m.Call, Refused: strings.Contains(text, refusalMark)})
		case "assistant":
			e := entry{Kind: byModel, Text: joined(parts), Thinking: m.Reasoning + m.Thinking}
			for _, p := range parts {
				switch p.Type {
				case "thinking":
					e.Thinking += p.Thinking
				case "tool_use":
					e.Calls = append(e.Calls, seenCall{p.ID, p.Name, string(p.Input)})
				}
			}
			for _, c := range m.Calls {
				args := string(c.Function.Arguments)
				if strings.HasPrefix(args, `"`) {
					if err := json.Unmarshal(c.Function.Arguments, &args); err != nil {
						return nil, err
					}
				}
				e.Calls = append(e.Calls, seenCall{c.ID, c.Function.Name, args})
			}
			out = append(out, e)
		case "system":
		default:
			return nil, fmt.Errorf("a message has the role %q", m.Role)
		}
	}
	return out, nil
}

// refusalMark stands in every refusal that a model reads, and in no result.
const refusalMark = "user_consent=false"

// part is a part of a content or a block.
type part struct {
	Type, Text, Thinking, ID, Name string
	Input, Content                 json.RawMessage
	Call                           string `json:"tool_use_id"`
	Failed                         bool   `json:"is_error"`
}

func readParts(raw json.RawMessage) (out []part, err error) {
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, nil
	case raw[0] == '"':
		out = []part{{Type: "text"}}
		return out, json.Unmarshal(raw, &out[0].Text)
	}
	return out, json.Unmarshal(raw, &out)
}

func joined(parts []part) string {
	var b strings.Builder
	for _, p := range parts {
		if p.Type == "text" {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// differ says where a history is not the one that is wanted, "" when it is.
func differ(got, want []entry) string {
	for len(want) > 0 {
		w := want[0]
		var g entry
		if len(got) > 0 {
			g = got[0]
		}
		if w.optional && (g.Kind != byModel || len(g.Calls) > 0 || !strings.Contains(g.Text, "[callgate]")) {
			want = want[1:]
			continue
		}
		if reason := w.not(g); reason != "" {
			return reason
		}
		got, want = got[1:], want[1:]
	}
	if len(got) > 0 {
		return fmt.Sprintf("there is more: %+v", got)
	}
	return ""
}

// not says why g is not what is wanted.
func (w entry) not(g entry) string {
	switch {
	case w.optional:
		return ""
	case w.Kind == ofCall && w.Refused:
		if g.Kind != ofCall || g.Call != w.Call || !g.Refused || !strings.Contains(g.Text, "[callgate]") || !strings.Contains(g.Text, refusalMark) {
			return fmt.Sprintf("want the refusal of %s, got %+v", w.Call, g)
		}
		return ""
	case w.trimmed && g.Thinking == "":
		w.Thinking = ""
	}
	w.trimmed = false
	w.Calls, g.Calls = compact(w.Calls), compact(g.Calls)
	if d := cmp.Diff(w, g, cmp.AllowUnexported(entry{})); d != "" {
		return "(-want +got)\n" + d
	}
	return ""
}

// compact gives calls without white space in their arguments: of a document in
// Messages the provider and its libraries keep none.
func compact(calls []seenCall) (out []seenCall) {
	for _, c := range calls {
		var b bytes.Buffer
		if json.Compact(&b, []byte(c.Args)) == nil {
			c.Args = b.String()
		}
		out = append(out, c)
	}
	return out
}

// oneForm gives what the messages of a request are made of: blocks, and messages
// whose content is a text. Each has its keys in order and no marker for a cache.
func oneForm(body []byte) ([]string, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var doc struct{ Messages, Contents, Input []map[string]any }
	if err := dec.Decode(&doc); err != nil {
		return nil, err
	}
	var out []string
	for _, m := range slices.Concat(doc.Messages, doc.Contents, doc.Input) {
		parts := []any{m}
		if list, ok := m["parts"].([]any); ok {
			parts = list
		}
		if content, ok := m["content"].([]any); ok && m["tool_calls"] == nil {
			parts = content
		}
		for _, v := range parts {
			b, err := json.Marshal(unmarked(v))
			if err != nil {
				return nil, err
			}
			out = append(out, fmt.Sprintf("%v: %s", m["role"], b))
		}
	}
	return out, nil
}

func unmarked(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "cache_control")
		for k := range v {
			v[k] = unmarked(v[k])
		}
	case []any:
		for i := range v {
			v[i] = unmarked(v[i])
		}
	}
	return v
}
