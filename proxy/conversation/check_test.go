package conversation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// refusalMark stands in every refusal that the model is to read, and in
// nothing that an agent may be shown.
const refusalMark = "user_consent=false"

// said is what one side says until the other one does: an answer, or results
// and words. It is what a request comes down to in either wire format.
type said struct {
	answer bool
	text   string // of an answer, or words of a user; without white space
	tags   []string
	ids    []string
	// results are those of the answer before, by the id of the call.
	results []resultSaid
	// anything lets an answer without calls have any text.
	anything bool
}

type resultSaid struct {
	id, text string
	refusal  bool
}

func (s said) String() string {
	if s.answer {
		return fmt.Sprintf("answer %.20q %s", s.text, strings.Join(s.tags, " "))
	}
	var out []string
	for _, r := range s.results {
		word := "result of "
		if r.refusal {
			word = "REFUSAL of "
		}
		out = append(out, word+r.id)
	}
	return fmt.Sprintf("user %.20q %s", s.text, strings.Join(out, ", "))
}

// solid is a text without its white space: clients drop some of it.
func solid(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}

type wireMessage struct {
	Role      string
	Content   json.RawMessage
	Calls     []chatCall `json:"tool_calls"`
	ForCall   string     `json:"tool_call_id"`
	Reasoning string     `json:"reasoning_content"`
}

type wirePart struct {
	Type, Text, ID, Name string
	Input                json.RawMessage
	ForCall              string `json:"tool_use_id"`
	Content              json.RawMessage
	Failed               bool `json:"is_error"`
}

// parts gives a content as parts.
func parts(raw json.RawMessage) ([]wirePart, error) {
	var text string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, nil
	case raw[0] == '"':
		err := json.Unmarshal(raw, &text)
		return []wirePart{{Type: "text", Text: text}}, err
	}
	var out []wirePart
	err := json.Unmarshal(raw, &out)
	return out, err
}

func joined(ps []wirePart) string {
	var b strings.Builder
	for _, p := range ps {
		if p.Type == "text" {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// readRequest gives what a request to the provider says, in order.
func readRequest(fm form, body []byte) ([]said, error) {
	var doc struct{ Messages []wireMessage }
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, err
	}
	var out []said
	last := func(answer bool) *said {
		if len(out) == 0 || out[len(out)-1].answer != answer {
			out = append(out, said{answer: answer})
		}
		return &out[len(out)-1]
	}
	for i, m := range doc.Messages {
		ps, err := parts(m.Content)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		switch m.Role {
		case "system":
			continue
		case "tool":
			s := last(false)
			if s.text != "" {
				return nil, fmt.Errorf("message %d: a result stands behind words of the user", i)
			}
			text := joined(ps)
			s.results = append(s.results, resultSaid{m.ForCall, text, strings.Contains(text, refusalMark)})
			continue
		}
		s := last(m.Role == "assistant")
		for _, c := range m.Calls {
			b, err := c.add(nil, 0)
			if err != nil {
				return nil, err
			}
			s.call(b[0].id, b[0].text)
		}
		for _, p := range ps {
			switch p.Type {
			case "text":
				s.text += solid(p.Text)
			case "tool_use":
				s.call(p.ID, string(p.Input))
			case "tool_result":
				inner, err := parts(p.Content)
				if err != nil {
					return nil, err
				}
				text := joined(inner)
				refusal := strings.Contains(text, refusalMark)
				if refusal != p.Failed {
					return nil, fmt.Errorf("message %d: a result with is_error %v says %q", i, p.Failed, text)
				}
				s.results = append(s.results, resultSaid{p.ForCall, text, refusal})
			}
		}
	}
	if fm == messages && len(out) > 0 && out[0].answer {
		return nil, fmt.Errorf("the history begins with an answer")
	}
	return out, nil
}

func (s *said) call(id, args string) {
	s.ids = append(s.ids, id)
	s.tags = append(s.tags, tagForm.FindString(args))
}

// expect is a history as the provider should get it: of each unit the rounds
// as the model said them, with a refusal for each denied call, or what the
// agent was shown.
type expect struct{ list []said }

func (x *expect) user(words string) {
	if n := len(x.list); n > 0 && !x.list[n-1].answer {
		x.list[n-1].text += solid(words)
		return
	}
	x.list = append(x.list, said{text: solid(words)})
}

// round adds a round with its refusals; ran are the results that the agent has.
func (x *expect) round(rd round, ran map[string]string) {
	a, u := said{answer: true, text: solid(rd.text + rd.between)}, said{}
	for _, c := range rd.calls {
		a.call(c.id, c.tag)
		r := resultSaid{id: c.id, refusal: c.denied}
		if !c.denied {
			r.text = ran[c.id]
		}
		u.results = append(u.results, r)
	}
	x.list = append(x.list, a)
	if len(u.results) > 0 {
		x.list = append(x.list, u)
	}
}

// asShown adds a unit as the agent has it.
func (x *expect) asShown(u *unit) {
	a, res := said{answer: true}, said{}
	for _, b := range u.blocks {
		switch b.kind {
		case "text":
			a.text += solid(b.text)
		case "call":
			a.call(b.id, b.text)
			res.results = append(res.results, resultSaid{id: b.id, text: u.result(b)})
		}
	}
	x.list = append(x.list, a)
	if len(res.results) > 0 {
		x.list = append(x.list, res)
	}
}

// unit adds a unit. The end of one that was broken off behind refusals may
// stand as an answer of its own: what the agent was shown in place of one more
// answer, so that the user's next words begin a new turn.
func (x *expect) unit(u *unit, truth, ended bool) {
	if !truth {
		x.asShown(u)
		return
	}
	ran := map[string]string{}
	for _, c := range u.calls() {
		ran[c.id] = u.result(c)
	}
	for i, rd := range u.rounds {
		if i < len(u.rounds)-1 {
			x.round(rd, nil)
			continue
		}
		x.round(rd, ran)
		if ended && u.brokenOff() {
			x.list = append(x.list, said{answer: true, anything: true})
		}
	}
}

// brokenOff tells whether no call of the last answer was left.
func (u *unit) brokenOff() bool {
	last := u.rounds[len(u.rounds)-1]
	return len(last.calls) > 0 && !slices.ContainsFunc(last.calls, func(c call) bool { return !c.denied })
}

// expected gives what the provider's request may say: the history that the
// agent sent and the rounds of this answer so far. Units that nothing binds to
// their place any more may stand either way.
func (a *agent) expected(history []entry, rounds []round, truth bool) [][]said {
	var loose int
	for _, e := range history {
		if e.unit != nil && e.unit.loose {
			loose++
		}
	}
	var out [][]said
	for ways := range 2 << min(loose, 8) {
		var x expect
		k := 1 // bit 0 is for the ends
		for _, e := range history {
			if e.unit == nil {
				x.user(e.words)
				continue
			}
			as := truth
			if e.unit.loose {
				as = as && ways>>k&1 == 0
				k++
			}
			x.unit(e.unit, as, ways&1 == 1)
		}
		for _, rd := range rounds {
			x.round(rd, nil)
		}
		out = append(out, x.list)
	}
	return out
}

// differ says where a request is not what was expected, "" when it is.
func differ(got, want []said) string {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Sprintf("part %d is missing: want %v", i, want[i])
		case i >= len(want):
			return fmt.Sprintf("part %d is too many: %v", i, got[i])
		}
		g, w := got[i], want[i]
		switch {
		case g.answer != w.answer, g.text != w.text && !w.anything, !slices.Equal(g.tags, w.tags), !slices.Equal(g.ids, w.ids):
			return fmt.Sprintf("part %d is\n    %v, not\n    %v", i, g, w)
		case len(g.results) != len(w.results):
			return fmt.Sprintf("part %d has other results:\n    %v, not\n    %v", i, g, w)
		}
		for _, r := range w.results {
			var has []resultSaid
			for _, o := range g.results {
				if o.id == r.id {
					has = append(has, o)
				}
			}
			switch {
			case len(has) != 1:
				return fmt.Sprintf("part %d has %d results of %s", i, len(has), r.id)
			case has[0].refusal != r.refusal || !r.refusal && has[0].text != r.text:
				return fmt.Sprintf("part %d has as the result of %s %.60q; refused: %v", i, r.id, has[0].text, r.refusal)
			}
		}
	}
	return ""
}

// oneForm gives each message of a request in one form: keys in order, strings
// as parts, and no markers for a cache.
func oneForm(body []byte) ([]string, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var doc struct{ Messages []map[string]any }
	if err := dec.Decode(&doc); err != nil {
		return nil, err
	}
	var out []string
	for _, m := range doc.Messages {
		b, err := json.Marshal(unmarked(m))
		if err != nil {
			return nil, err
		}
		out = append(out, string(b))
	}
	return out, nil
}

func unmarked(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if k == "cache_control" {
				continue
			}
			if s, ok := e.(string); ok && k == "content" {
				e = []any{map[string]any{"type": "text", "text": s}}
			}
			out[k] = unmarked(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = unmarked(e)
		}
		return out
	}
	return v
}

// thoughtless takes the thinking out of messages in one form, and messages
// that hold nothing else.
func thoughtless(list []string) []string {
	var out []string
	for _, s := range list {
		var m map[string]any
		dec := json.NewDecoder(strings.NewReader(s))
		dec.UseNumber()
		if err := dec.Decode(&m); err != nil {
			panic(err) // oneForm has written it
		}
		delete(m, "reasoning_content")
		if c, ok := m["content"].([]any); ok {
			c = slices.DeleteFunc(c, func(b any) bool {
				o, ok := b.(map[string]any)
				return ok && o["type"] == "thinking"
			})
			if len(c) == 0 {
				continue
			}
			m["content"] = c
		}
		b, err := json.Marshal(m)
		if err != nil {
			panic(err)
		}
		out = append(out, string(b))
	}
	return out
}

// prefix says where a request does not go on from the one before it.
func prefix(before, now []string) string {
	for i, m := range before {
		if i >= len(now) || now[i] != m {
			has := "nothing"
			if i < len(now) {
				has = now[i]
			}
			return fmt.Sprintf("message %d was\n    %.300s\nand is\n    %.300s", i, m, has)
		}
	}
	return ""
}
