package gemini

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

// chunks gives the chunks of an answer of any form, and what is wrong with it.
// What is no whole array is read as far as it came.
func chunks(out []byte) (list []gjson.Result, err error) {
	add := func(raw string) {
		if !json.Valid([]byte(raw)) {
			err = fmt.Errorf("%q is no JSON", raw)
		}
		e := gjson.Parse(raw)
		if in := e.Get("response"); in.Exists() {
			e = in
		}
		list = append(list, e)
	}
	doc := bytes.TrimSpace(out)
	switch {
	case len(doc) == 0:
	case doc[0] == '[':
		if !json.Valid(doc) {
			doc = append(bytes.Clone(bytes.TrimRight(doc, ", \r\n")), ']')
		}
		if !json.Valid(doc) {
			return nil, fmt.Errorf("%q is no array", doc)
		}
		for _, e := range gjson.ParseBytes(doc).Array() {
			add(e.Raw)
		}
	case doc[0] == '{':
		add(string(doc))
	default:
		for line := range strings.Lines(string(out)) {
			line = strings.TrimRight(line, "\r\n")
			if data, ok := strings.CutPrefix(line, "data: "); ok && data != "[DONE]" {
				add(data)
			} else if !ok && line != "" && !strings.HasPrefix(line, ":") {
				err = fmt.Errorf("a line %q", line)
			}
		}
	}
	return list, err
}

// ended reports whether the end of an answer was given out.
func ended(out []byte) bool {
	list, _ := chunks(out)
	for _, e := range list {
		if e.Get("candidates.#.finishReason|#").Int() > 0 || e.Get("error").Exists() {
			return true
		}
	}
	return bytes.HasSuffix(bytes.TrimSpace(out), []byte("]"))
}

// shownContent gives the content that a client keeps of an answer.
func shownContent(out []byte) (content string, err error) {
	list, err := chunks(out)
	if err != nil {
		return "", err
	}
	var parts []string
	var ids []string
	for i, e := range list {
		if id := e.Get("responseId").String(); id != "" {
			ids = append(ids, id)
		}
		for _, c := range e.Get("candidates").Array() {
			if c.Get("content").Exists() && c.Get("content.parts").Exists() && len(c.Get("content.parts").Array()) == 0 {
				return "", fmt.Errorf("chunk %d has no parts", i)
			}
			if c.Get("index").Int() > 0 {
				continue
			}
			for _, p := range c.Get("content.parts").Array() {
				parts = append(parts, p.Raw)
			}
		}
	}
	if slices.Sort(ids); len(slices.Compact(ids)) > 1 {
		return "", fmt.Errorf("chunks of several answers: %q", ids)
	}
	return `{"role":"model","parts":[` + strings.Join(parts, ",") + `]}`, nil
}

// oneAnswer checks that what was given out is one answer, that a history in
// which it stands is recognised by what is told, and that the history can be
// mended with it.
func oneAnswer(out []byte, told inspect.Told) error {
	content, err := shownContent(out)
	if err != nil {
		return err
	}
	if len(told.Rounds) == 0 {
		return nil
	}
	results := ""
	for _, p := range gjson.Get(content, "parts").Array() {
		if c := p.Get("functionCall"); c.Exists() {
			id := ""
			if v := c.Get("id"); v.Exists() {
				id = `"id":` + v.Raw + `,`
			}
			results += `,{"functionResponse":{` + id + `"name":` + c.Get("name").Raw + `,"response":{"output":"done"}}}`
		}
	}
	if results == "" {
		results = `,{"text":"and now?"}`
	}
	h, err := histOf(`{"contents":[{"role":"user","parts":[{"text":"go"}]},` + content + `,{"role":"user","parts":[` + results[1:] + `]}]}`)
	if err != nil {
		return err
	}
	if got := h.Shown(0); got != told.Shown {
		return fmt.Errorf("what was shown has the digest %x and %x is told", got, told.Shown)
	}
	if calls := h.Units()[0].Calls; !slices.Equal(calls, told.Unit.Calls) {
		return fmt.Errorf("the calls %q were shown and %q are told", calls, told.Unit.Calls)
	}
	for _, n := range told.Notices {
		if text, _ := json.Marshal(n); !bytes.Contains(out, text[1:len(text)-1]) {
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
	if err := answered(mended); err != nil {
		return err
	}
	edited, err := h.Edit(nil, map[int]inspect.Mend{0: {Rounds: told.Rounds, Edited: true, Notices: told.Notices}})
	if err != nil {
		return fmt.Errorf("it cannot be mended when it was edited: %w", err)
	}
	return answered(edited)
}

func reqOf(body string) (inspect.Request, error) {
	return Dialect{Denial: inspect.DenialRepair}.Request(inspect.Head{Method: "POST", Path: "/v1beta/models/m:generateContent"}, []byte(body))
}

func histOf(body string) (inspect.History, error) {
	req, err := reqOf(body)
	if err != nil {
		return nil, err
	}
	return req.History()
}

// answered checks a request as the provider does: behind each content with calls
// stands one with as many results, by their names and ids in order, and no part is
// empty.
func answered(body []byte) error {
	if !json.Valid(body) {
		return fmt.Errorf("the mended request is no JSON: %s", body)
	}
	contents := gjson.GetBytes(body, "contents").Array()
	for i, c := range contents {
		var calls, results []string
		if len(c.Get("parts").Array()) == 0 {
			return fmt.Errorf("content %d has no parts in %s", i, body)
		}
		for _, p := range c.Get("parts").Array() {
			if f := p.Get("functionCall"); f.Exists() {
				calls = append(calls, f.Get("name").String()+f.Get("id").String())
			}
		}
		if len(calls) == 0 {
			continue
		}
		if i+1 == len(contents) {
			return fmt.Errorf("calls without results in %s", body)
		}
		for _, p := range contents[i+1].Get("parts").Array() {
			if f := p.Get("functionResponse"); f.Exists() {
				results = append(results, f.Get("name").String()+f.Get("id").String())
			}
		}
		if !slices.Equal(calls, results) {
			return fmt.Errorf("the calls %q have the results %q in %s", calls, results, body)
		}
	}
	return nil
}
