package gemini

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"callgate/inspect"
	"callgate/inspect/inspecttest"
)

// The members that a client only shows or sends back. The lists are the test's
// own, in lower case for readers that fold keys.
var (
	shownInParts = strings.Fields(strings.ToLower(`text thought thoughtSignature inlineData fileData executableCode codeExecutionResult toolCall toolResponse
		videoMetadata mediaResolution partMetadata audioTranscription mediaProcessing speechMetadata`))
	shownInCandidates = strings.Fields(strings.ToLower(`content finishReason finishMessage index safetyRatings citationMetadata tokenCount groundingMetadata
		groundingAttributions avgLogprobs logprobsResult urlContextMetadata urlRetrievalMetadata continuationToken`))
	shownInChunks = strings.Fields(strings.ToLower(`candidates promptFeedback usageMetadata modelVersion responseId createTime modelStatus error response
		traceId consumedCredits remainingCredits`))
)

// findCalls gives what a client could run in a document, wherever one may look
// for parts.
func findCalls(doc any) (all []string) {
	if list, ok := doc.([]any); ok {
		for _, e := range list {
			all = append(all, findCalls(e)...)
		}
		return all
	}
	m, ok := doc.(map[string]any)
	if !ok {
		return nil
	}
	if in, ok := m["response"]; ok {
		all = append(all, findCalls(in)...)
	}
	all = append(all, others(m, shownInChunks, "an answer")...)
	list, _ := m["candidates"].([]any)
	for _, c := range list {
		c, ok := c.(map[string]any)
		if !ok {
			all = append(all, "a candidate that is none")
			continue
		}
		all = append(all, others(c, shownInCandidates, "a candidate")...)
		content, _ := c["content"].(map[string]any)
		all = append(all, others(content, []string{"parts", "role"}, "a content")...)
		parts, ok := content["parts"].([]any)
		if !ok && content["parts"] != nil {
			all = append(all, "parts that are no list")
		}
		for _, p := range parts {
			p, ok := p.(map[string]any)
			if !ok {
				all = append(all, "a part that is none")
			}
			all = append(all, others(p, shownInParts, "a part")...)
			for k, v := range p {
				if _, text := v.(string); text && v != "" && !slices.Contains(shownInParts, strings.ToLower(k)) {
					all = append(all, fmt.Sprintf("a text under %q in a part", k))
				}
			}
		}
	}
	return all
}

// others gives the members of an object that hold something and are not among
// those that are known.
func others(m map[string]any, known []string, where string) (all []string) {
	for k, v := range m {
		nested := false
		switch v := v.(type) {
		case map[string]any:
			nested = len(v) > 0
		case []any:
			nested = len(v) > 0
		}
		if nested && !slices.Contains(known, strings.ToLower(k)) {
			all = append(all, fmt.Sprintf("%q in %s", k, where))
		}
	}
	return all
}

func TestTheFinderSeesCalls(t *testing.T) {
	for doc, want := range map[string]int{
		`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"x"}}]}}]}`:                 1,
		`{"Candidates":[{"CONTENT":{"parts":[{"FunctionCall":{"name":"x"}}]}}]}`:                 1,
		`[{"response":{"candidates":[{"content":{"parts":[{"function_call":{"a":1}},1]}}]}}]`:    2,
		`{"candidates":[{"content":{"parts":[{"text":"functionCall"},{"executableCode":{}}]}}]}`: 0,
		`{"candidates":[{"content":{"parts":{"functionCall":{}}},"calls":[1]}],"more":{"a":1}}`:  3,
		`{"candidates":[{"content":{"parts":[{"text":"","call":"x"}]}}]}`:                        1,
	} {
		v, _ := inspecttest.Parse([]byte(doc), inspecttest.FoldKeys)
		if got := findCalls(v); len(got) != want {
			t.Errorf("%s: found %q", doc, got)
		}
	}
}

func FuzzStream(f *testing.F) {
	inspecttest.FuzzResponse(f, Dialect{}, "text/event-stream", "testdata/*.txtar", findCalls)
}

func FuzzDocument(f *testing.F) {
	inspecttest.FuzzResponse(f, Dialect{}, "application/json", "testdata/*.txtar", findCalls)
}

func FuzzRepair(f *testing.F) {
	inspecttest.FuzzResponse(f, Dialect{Denial: inspect.DenialRepair}, "", "testdata/repair/*.txtar", findCalls)
}

// snippets are what a hostile or broken server could put in.
var snippets = []string{
	`"functionCall":{"name":"sh","args":{"x":1}}`, `"function_call":{"name":"sh"}`, `"functioncall":{"name":"sh"}`, `"functionCall":null`, `"functionCall":"sh"`,
	`"name":"sh"`, `"name":null`, `"args":{"x":1}`, `"args":[]`, `"args":null`, `"arguments":{"x":1}`, `"id":"other"`, `"partialArgs":[{"jsonPath":"$.x"}]`, `"willContinue":true`,
	`"text":"x"`, `"text":{}`, `"thought":true`, `"thoughtSignature":"c2ln"`, `"executableCode":{"code":"x"}`, `"toolCall":{"toolType":"SH"}`, `"functionResponse":{"name":"sh"}`,
	`"index":1`, `"index":0`, `"index":"0"`, `"finishReason":"STOP"`, `"finishReason":{}`, `"role":"user"`, `"x":{"y":[]}`, `"x":{"y":1}`, `"error":{"message":"x"}`, `"logprobsResult":{"a":["zq"]}`,
	`"parts":[{"functionCall":{"name":"sh"}}]`, `"content":{"parts":[{"functionCall":{"name":"sh"}}]}`, `"candidates":[{"content":{"parts":[{"functionCall":{"name":"sh"}}]}}]`,
	`"response":{"candidates":[{"content":{"parts":[{"functionCall":{"name":"sh"}}]}}]}`, `"automaticFunctionCallingHistory":[{"parts":[{"functionCall":{"name":"sh"}}]}]`,
	`{"functionCall":{"name":"sh"}}`, `{"text":"x"}`, `{"content":{"parts":[{"functionCall":{"name":"sh"}}]}}`, `{"content":{"parts":[{"text":"x"}]},"index":1}`, `null`, `7`,
}

// runs gives the calls that a client runs of a chunk, or of an array of them, in
// either spelling of the names.
func runs(doc any) (all []string) {
	if list, ok := doc.([]any); ok {
		for _, e := range list {
			all = append(all, runs(e)...)
		}
		return all
	}
	get := func(v any, key string) any {
		m, _ := v.(map[string]any)
		for _, k := range []string{key, strings.ToLower(key), snake(key)} {
			if v, ok := m[k]; ok {
				return v
			}
		}
		return nil
	}
	if in := get(doc, "response"); in != nil {
		all = runs(in)
	}
	list, _ := get(doc, "candidates").([]any)
	for _, c := range list {
		parts, _ := get(get(c, "content"), "parts").([]any)
		for _, p := range parts {
			call, ok := get(p, "functionCall").(map[string]any)
			if !ok {
				continue
			}
			name, _ := get(call, "name").(string)
			args := get(call, "args")
			if args == nil {
				args = map[string]any{}
			}
			all = append(all, name+" "+inspecttest.Written(args))
		}
	}
	return all
}

func TestNoChangedAnswerLetsACallPastItsJudge(t *testing.T) {
	lines := func(out []byte, r inspecttest.Reading) (all []string) {
		for line := range bytes.FieldsFuncSeq(out, func(c rune) bool { return c == '\n' || c == '\r' }) {
			if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				doc, _ := inspecttest.Parse(bytes.TrimSpace(data), r)
				all = append(all, runs(doc)...)
			}
		}
		return all
	}
	whole := func(out []byte, r inspecttest.Reading) []string {
		doc, _ := inspecttest.Parse(bytes.TrimSpace(out), r)
		return runs(doc)
	}
	for media, client := range map[string]inspecttest.Client{eventStream: lines, jsonBody: whole} {
		inspecttest.Mutate(t, Dialect{}, media, "testdata/*.txtar", 2000, findCalls, snippets, client)
		for _, cases := range []string{"testdata/*.txtar", "testdata/repair/*.txtar"} {
			inspecttest.Mutate(t, Dialect{Denial: inspect.DenialRepair}, media, cases, 1000, findCalls, snippets, client)
		}
	}
}

func TestTheClientRunsCalls(t *testing.T) {
	for doc, want := range map[string]string{
		`{"candidates":[{"content":{"parts":[{"text":"x"},{"functionCall":{"name":"a","args":{"x":1}}}]}}]}`:                                 `a {"x":1}`,
		`[{"response":{"candidates":[{"content":{"parts":[{"function_call":{"name":"a"}}]}},{"content":{"parts":[{"functionCall":{}}]}}]}}]`: `a {},` + ` {}`,
	} {
		v, _ := inspecttest.Parse([]byte(doc), inspecttest.LastKey)
		if got := strings.Join(runs(v), ","); got != want {
			t.Errorf("%s runs %q", doc, got)
		}
	}
}
