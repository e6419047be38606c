package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"callgate/inspect"
	"callgate/inspect/inspecttest"
)

func TestRepairCases(t *testing.T) {
	inspecttest.RunRepair(t, Dialect{Denial: inspect.DenialRepair}, "testdata/repair/*.txtar", inspecttest.Form{Ended: ended, Check: oneAnswer})
}

// ended reports whether the end of an answer was given out.
func ended(out []byte) bool {
	if doc := bytes.TrimSpace(out); len(doc) > 0 && doc[0] == '{' {
		return true
	}
	for line := range strings.Lines(string(out)) {
		data, ok := strings.CutPrefix(line, "data: ")
		e := gjson.Parse(data)
		switch typ := e.Get("type").String(); {
		case !ok:
		case typ == "message_stop", typ == "error", typ == "message_delta" && e.Get("delta.stop_reason").Type == gjson.String:
			return true
		}
	}
	return false
}

// shownContent gives the blocks of an answer as a client keeps them. What is
// no whole answer is kept as far as it came.
func shownContent(out []byte) (content string, err error) {
	if doc := bytes.TrimSpace(out); len(doc) > 0 && doc[0] == '{' {
		m := gjson.ParseBytes(doc)
		if !json.Valid(doc) || m.Get("type").String() != "message" && m.Get("type").String() != "error" {
			return "", fmt.Errorf("no message")
		}
		if !m.Get("content").Exists() {
			return "[]", nil
		}
		return m.Get("content").Raw, nil
	}
	var c client
	if err := c.read(out); err != nil {
		return "", err
	}
	var blocks []string
	for i, b := range c.blocks {
		switch {
		case c.stopped && !b.ended:
			return "", fmt.Errorf("block %d (%s) is open", i, b.typ)
		case c.stopped && b.typ == "text" && b.text == "":
			return "", fmt.Errorf("block %d is an empty text", i)
		case b.typ == "text":
			text, _ := json.Marshal(b.text)
			blocks = append(blocks, `{"type":"text","text":`+string(text)+`}`)
		case b.typ == "tool_use" && b.ended:
			if b.input == "" {
				b.input = "{}"
			}
			blocks = append(blocks, `{"type":"tool_use","id":"`+b.id+`","name":"`+b.name+`","input":`+b.input+`}`)
		}
	}
	return "[" + strings.Join(blocks, ",") + "]", nil
}

// oneAnswer checks that what was given out is one answer, that a history in
// which it stands is recognised by what is told, and that the history can be
// mended with it.
func oneAnswer(out []byte, told inspect.Told) error {
	content, err := shownContent(out)
	if err != nil {
		return err
	}
	body := `{"model":"m","messages":[{"role":"user","content":"go"},{"role":"assistant","content":` + content + `}`
	results, results0 := "", `,{"role":"user","content":[`
	for _, b := range gjson.Parse(content).Array() {
		if b.Get("type").String() == "tool_use" {
			results += results0 + `{"type":"tool_result","tool_use_id":` + b.Get("id").Raw + `,"content":"done"}`
			results0 = ","
		}
	}
	if results == "" {
		results = results0 + `{"type":"text","text":"and now?"}`
	}
	h, err := histOf(body + results + `]}]}`)
	if err != nil {
		return err
	}
	if len(told.Rounds) == 0 {
		return nil
	}
	if got := h.Shown(0); got != told.Shown {
		return fmt.Errorf("what was shown has the digest %x and %x is told", got, told.Shown)
	}
	if calls := h.Units()[0].Calls; !slices.Equal(calls, told.Unit.Calls) {
		return fmt.Errorf("the calls %q were shown and %q are told", calls, told.Unit.Calls)
	}
	for _, n := range told.Notices {
		if text, _ := json.Marshal(n); !strings.Contains(content, string(text[1:len(text)-1])) && !bytes.Contains(out, text[1:len(text)-1]) {
			return fmt.Errorf("the notice %q was not shown", n)
		}
	}
	if !told.Mend {
		return nil
	}
	mended, err := h.Edit(nil, map[int]inspect.Mend{0: {Rounds: told.Rounds}})
	if err != nil {
		return fmt.Errorf("it cannot be mended: %w", err)
	}
	return answered(mended)
}

func histOf(body string) (inspect.History, error) {
	req, err := Dialect{}.Request(inspect.Head{Method: "POST", Path: "/v1/messages"}, []byte(body))
	if err != nil {
		return nil, err
	}
	return req.History()
}

// answered checks that roles take turns in a request, and that behind each
// answer stand the results of its calls, in any order.
func answered(body []byte) error {
	if !json.Valid(body) {
		return fmt.Errorf("the mended request is no JSON: %s", body)
	}
	messages := gjson.GetBytes(body, "messages").Array()
	for i, m := range messages {
		if i > 0 && m.Get("role").String() == messages[i-1].Get("role").String() {
			return fmt.Errorf("two messages of one role in %s", body)
		}
		var uses, results []string
		for _, b := range m.Get("content").Array() {
			switch typ := b.Get("type").String(); {
			case typ == "tool_use":
				uses = append(uses, b.Get("id").String())
			case typ == "text" && strings.TrimSpace(b.Get("text").String()) == "":
				return fmt.Errorf("an empty text in %s", body)
			}
		}
		if m.Get("role").String() != "assistant" || i+1 == len(messages) {
			continue
		}
		for _, b := range messages[i+1].Get("content").Array() {
			if b.Get("type").String() == "tool_result" {
				results = append(results, b.Get("tool_use_id").String())
			}
		}
		slices.Sort(uses)
		slices.Sort(results)
		if !slices.Equal(uses, results) {
			return fmt.Errorf("the calls %q have the results %q in %s", uses, results, body)
		}
	}
	return nil
}
