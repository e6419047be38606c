package providertest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// gemini is generateContent and streamGenerateContent of Google's Gemini, as the
// Gemini API, Vertex AI and Code Assist have it. Of one that thinks, as all do
// now, the first call of each answer is signed, and behind what the user last said
// the provider wants to see the signature again.
type gemini struct {
	model, method string
	sse           bool // the query asks for events; else a stream is an array
	key           bool // the query holds a key
	login         bool // Code Assist: the request stands under request, the answer under response
}

// The methods of a model that are answered here.
const (
	geminiWhole  = "generateContent"
	geminiStream = "streamGenerateContent"
	geminiCount  = "countTokens"
)

// geminiOf gives the wire of a path that ends in one of the methods.
func geminiOf(u *url.URL) (gemini, bool) {
	last := u.Path[strings.LastIndexByte(u.Path, '/')+1:]
	i := strings.LastIndexByte(last, ':')
	if i < 0 {
		return gemini{}, false
	}
	q := u.Query()
	g := gemini{model: last[:i], method: last[i+1:], sse: q.Get("alt") == "sse", key: q.Get("key") != ""}
	g.login = g.model == "v1internal"
	return g, g.method == geminiWhole || g.method == geminiStream || g.method == geminiCount
}

var (
	geminiKeys = strings.Fields(`contents tools toolConfig safetySettings systemInstruction generationConfig cachedContent
		model labels serviceTier store sessionId`)
	geminiSettings = strings.Fields(`candidateCount stopSequences maxOutputTokens temperature topP topK seed presencePenalty
		frequencyPenalty responseMimeType responseSchema responseJsonSchema responseLogprobs logprobs thinkingConfig
		responseModalities mediaResolution speechConfig routingConfig enableEnhancedCivicAnswers`)
	geminiModes = strings.Fields(`MODE_UNSPECIFIED AUTO ANY NONE VALIDATED`)
	// geminiData are the members of a part of which it has one.
	geminiData = strings.Fields(`text inlineData fileData functionCall functionResponse executableCode codeExecutionResult`)
)

// check reads a request.
func (g gemini) check(p *Provider, h http.Header, body []byte) (asked, error) {
	if h.Get("X-Goog-Api-Key") == "" && !g.key && !strings.HasPrefix(h.Get("Authorization"), "Bearer ") {
		return asked{}, &fault{status: http.StatusForbidden, reason: "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other form of API consumer identity to call this API."}
	}
	o, err := parse(body)
	if err != nil {
		return asked{}, err
	}
	a := asked{choices: 1, model: g.model, stream: g.method == geminiStream, count: g.method == geminiCount, size: len(body)}
	if g.login {
		if err := known(o, "", "model", "project", "user_prompt_id", "request"); err != nil {
			return asked{}, err
		}
		if a.model, err = str(o, "", "model"); err != nil {
			return asked{}, err
		}
		if o, _ = o["request"].(object); o == nil {
			return asked{}, badf("request: an object is expected")
		}
	}
	if in, ok := o["generateContentRequest"].(object); ok && a.count && len(o) == 1 {
		o = in
	}
	if err := known(o, "", geminiKeys...); err != nil {
		return asked{}, err
	}
	if a.choices, err = geminiConfig(o); err != nil {
		return asked{}, err
	}
	if err := geminiTools(o); err != nil {
		return asked{}, err
	}
	a.progress, err = p.geminiHistory(o)
	return a, err
}

// geminiConfig checks the settings, and gives how many candidates are wanted.
func geminiConfig(o object) (candidates int, err error) {
	v, there := o["generationConfig"]
	config, ok := v.(object)
	if there && !ok {
		return 0, badf("generationConfig: an object is expected")
	}
	if err := known(config, "generationConfig.", geminiSettings...); err != nil {
		return 0, err
	}
	if candidates, err = count(config, "generationConfig.", "candidateCount", 1, 1); err == nil && candidates > 8 {
		err = badf("* GenerateContentRequest.generation_config.candidate_count: must be in the range [1, 8]")
	}
	return candidates, err
}

func geminiTools(o object) error {
	tools, ok := o["tools"].(array)
	if v, there := o["tools"]; there && !ok {
		return badf("tools: a list is expected, not %v", v)
	}
	names := map[string]bool{}
	for i, v := range tools {
		at := fmt.Sprintf("tools[%d].", i)
		tool, _ := v.(object)
		if err := known(tool, at, "functionDeclarations", "googleSearch", "codeExecution", "urlContext", "googleMaps", "computerUse"); err != nil {
			return err
		}
		list, _ := tool["functionDeclarations"].(array)
		for k, v := range list {
			at := fmt.Sprintf("%sfunction_declarations[%d].", at, k)
			f, _ := v.(object)
			if err := known(f, at, "name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema", "behavior"); err != nil {
				return err
			}
			name, err := str(f, at, "name")
			if err != nil {
				return err
			}
			if names[name] {
				return badf("Duplicate function declaration found: %s", name)
			}
			names[name] = true
		}
	}
	config, _ := o["toolConfig"].(object)
	if err := known(config, "toolConfig.", "functionCallingConfig", "retrievalConfig"); err != nil {
		return err
	}
	calling, _ := config["functionCallingConfig"].(object)
	mode, set := calling["mode"].(string)
	if set && !slices.Contains(geminiModes, mode) {
		return badf("Invalid value at 'tool_config.function_calling_config.mode' (type.googleapis.com/google.ai.generativelanguage.v1beta.FunctionCallingConfig.Mode), %q", mode)
	}
	allowed, _ := calling["allowedFunctionNames"].(array)
	if len(allowed) > 0 && mode != "ANY" && mode != "VALIDATED" {
		return badf("Function calling config is set without function calling mode ANY or VALIDATED, and allowed_function_names is set")
	}
	if mode == "ANY" && len(names) == 0 {
		return badf("Function calling mode ANY is set and no function declarations are provided")
	}
	return nil
}

// geminiWalk goes through the contents of a request.
type geminiWalk struct {
	p *Provider
	progress
	before string       // whose the content before is: user, model or results
	open   []geminiCall // calls of the answer that has no results yet
	// signs are the first calls of the answers behind the user's last words.
	signs []geminiCall
}

type geminiCall struct{ at, id, name, sign string }

// The errors by which the API says that calls and results do not go together.
const (
	geminiNumber  = "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn."
	geminiResults = "Please ensure that function response turn comes immediately after a function call turn."
	geminiCalls   = "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
)

// geminiHistory walks the contents and counts the answers.
func (p *Provider) geminiHistory(o object) (progress, error) {
	list, ok := o["contents"].(array)
	if !ok || len(list) == 0 {
		return progress{}, badf("* GenerateContentRequest.contents: contents is not specified")
	}
	w := geminiWalk{p: p}
	for i, v := range list {
		at := fmt.Sprintf("contents[%d]", i)
		c, _ := v.(object)
		if err := known(c, at+".", "role", "parts"); err != nil {
			return w.progress, err
		}
		parts, _ := c["parts"].(array)
		if len(parts) == 0 {
			return w.progress, badf("* GenerateContentRequest.%s.parts: contents.parts must not be empty.", at)
		}
		role, _ := c["role"].(string)
		var err error
		switch role {
		case "model":
			err = w.model(at, parts)
		case "user", "function", "":
			err = w.user(at, parts)
		default:
			err = badf("Please use a valid role: user, model.")
		}
		if err != nil {
			return w.progress, err
		}
	}
	if len(w.open) > 0 {
		return w.progress, badf(geminiNumber)
	}
	for _, c := range w.signs {
		if c.sign == "" {
			return w.progress, badf("Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly. "+
				"Additional data, function call `default_api:%s`, position %s.", c.name, c.at)
		}
	}
	return w.progress, nil
}

// part checks one part and gives the member that it is of.
func (w *geminiWalk) part(at string, v any) (part object, kind string, err error) {
	part, _ = v.(object)
	if err := known(part, at+".", append([]string{"thought", "thoughtSignature", "videoMetadata", "mediaResolution"}, geminiData...)...); err != nil {
		return nil, "", err
	}
	for _, key := range geminiData {
		if _, there := part[key]; !there {
			continue
		}
		if kind != "" {
			return nil, "", badf("Invalid value at '%s' (oneof), oneof field 'data' is already set. Cannot set '%s'", at, key)
		}
		kind = key
	}
	if kind == "" {
		return nil, "", badf("* GenerateContentRequest.%s.data: required oneof field 'data' must have one initialized field", at)
	}
	if v, there := part["thoughtSignature"]; there {
		sign, _ := v.(string)
		w.p.mu.Lock()
		_, ours := w.p.issued[sign]
		w.p.mu.Unlock()
		if !ours && sign != "skip_thought_signature_validator" {
			return nil, "", badf("Thought signature is not valid at '%s'", at)
		}
	}
	return part, kind, nil
}

// model takes in a content of the model's. Several in a row are one answer.
func (w *geminiWalk) model(at string, parts array) error {
	if w.before != "model" {
		w.answer()
	}
	for i, v := range parts {
		at := fmt.Sprintf("%s.parts[%d]", at, i)
		part, kind, err := w.part(at, v)
		if err != nil {
			return err
		}
		switch kind {
		case "functionResponse":
			return badf(geminiResults)
		case "functionCall":
		default:
			continue
		}
		if w.before == "" {
			return badf(geminiCalls)
		}
		fn, _ := part["functionCall"].(object)
		if err := known(fn, at+".function_call.", "id", "name", "args"); err != nil {
			return err
		}
		c := geminiCall{at: at}
		if c.name, err = str(fn, at+".function_call.", "name"); err != nil {
			return err
		}
		if v, there := fn["args"]; there {
			if _, ok := v.(object); !ok {
				return badf("Invalid value at '%s.function_call.args' (type.googleapis.com/google.protobuf.Struct)", at)
			}
		}
		c.id, _ = fn["id"].(string)
		c.sign, _ = part["thoughtSignature"].(string)
		if slices.ContainsFunc(w.open, func(o geminiCall) bool { return o.id != "" && o.id == c.id }) {
			return badf("%s.function_call.id: %q is the id of another call", at, c.id)
		}
		if len(w.open) == 0 {
			w.signs = append(w.signs, c)
		}
		w.open = append(w.open, c)
	}
	w.before = "model"
	return nil
}

// user takes in a content of the user's: words, or the results of all calls of the
// answer before it.
func (w *geminiWalk) user(at string, parts array) error {
	var results []geminiCall
	var words strings.Builder
	for i, v := range parts {
		at := fmt.Sprintf("%s.parts[%d]", at, i)
		part, kind, err := w.part(at, v)
		if err != nil {
			return err
		}
		switch kind {
		case "functionCall":
			return badf(geminiCalls)
		case "text":
			text, ok := part["text"].(string)
			if !ok {
				return badf("Invalid value at '%s.text' (TYPE_STRING)", at)
			}
			words.WriteString(text)
		case "functionResponse":
			fn, _ := part["functionResponse"].(object)
			if err := known(fn, at+".function_response.", "id", "name", "response", "willContinue", "scheduling", "parts"); err != nil {
				return err
			}
			c := geminiCall{at: at}
			if c.name, err = str(fn, at+".function_response.", "name"); err != nil {
				return err
			}
			if _, ok := fn["response"].(object); !ok {
				return badf("Invalid value at '%s.function_response.response' (type.googleapis.com/google.protobuf.Struct)", at)
			}
			c.id, _ = fn["id"].(string)
			results = append(results, c)
		}
	}
	switch {
	case len(results) > 0:
		w.before = "results"
		return w.results(results)
	case len(w.open) > 0:
		return badf(geminiNumber)
	case w.before == "user" && w.p.Alternate:
		return badf("Please ensure that multiturn requests alternate between user and model.")
	}
	w.before, w.signs = "user", nil
	w.says(words.String())
	return nil
}

// results checks that each call has its result: the one with its id, or, without
// ids, the next of its name.
func (w *geminiWalk) results(list []geminiCall) error {
	if len(w.open) == 0 {
		return badf(geminiResults)
	}
	if len(list) != len(w.open) {
		return badf(geminiNumber)
	}
	for _, r := range list {
		i := slices.IndexFunc(w.open, func(c geminiCall) bool { return c.id == r.id && c.name == r.name })
		if i < 0 {
			return badf("%s.function_response: no call of the function call turn has the name %q and the id %q", r.at, r.name, r.id)
		}
		w.open = slices.Delete(w.open, i, i+1)
	}
	w.open = nil
	return nil
}

type geminiContent struct {
	Parts []geminiPart `json:"parts"`
	Role  string       `json:"role"`
}

type geminiPart struct {
	Text    *string           `json:"text,omitempty"`
	Thought bool              `json:"thought,omitempty"`
	Call    *geminiCallOfPart `json:"functionCall,omitempty"`
	Sign    string            `json:"thoughtSignature,omitempty"`
}

type geminiCallOfPart struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
	ID   string          `json:"id,omitempty"`
}

type geminiCandidate struct {
	Content geminiContent `json:"content"`
	Finish  string        `json:"finishReason,omitempty"`
	Index   int           `json:"index"`
}

type geminiUsage struct {
	Prompt  int `json:"promptTokenCount"`
	Answer  int `json:"candidatesTokenCount,omitempty"`
	Total   int `json:"totalTokenCount"`
	Details []struct {
		Modality string `json:"modality"`
		Tokens   int    `json:"tokenCount"`
	} `json:"promptTokensDetails"`
}

type geminiChunk struct {
	Candidates []geminiCandidate `json:"candidates"`
	Usage      geminiUsage       `json:"usageMetadata"`
	Model      string            `json:"modelVersion"`
	ID         string            `json:"responseId"`
}

// chunk is a chunk of an answer, the last one with its end.
func (g gemini) chunk(a asked, t Turn, list []geminiCandidate, last bool) []byte {
	u := t.counts(a)
	c := geminiChunk{Candidates: list, Model: a.model, ID: name("", "gemini", a.name, a.number)}
	c.Usage.Prompt, c.Usage.Total = u.Input, u.Input
	c.Usage.Details = append(c.Usage.Details, struct {
		Modality string `json:"modality"`
		Tokens   int    `json:"tokenCount"`
	}{"TEXT", u.Input})
	if last {
		c.Usage.Answer, c.Usage.Total = u.Output, u.Input+u.Output
	}
	if g.login {
		return marshal(map[string]any{"response": c, "traceId": c.ID})
	}
	return marshal(c)
}

// parts gives what a candidate says, grouped into chunks: a word each, the first
// call in one of its own, and those that follow it together.
func (g gemini) parts(p *Provider, a asked, candidate int, items []Item) (groups [][]geminiPart) {
	calls := 0
	add := func(parts ...geminiPart) { groups = append(groups, parts) }
	for _, it := range items {
		switch it := it.(type) {
		case Text:
			for _, s := range words(string(it)) {
				add(geminiPart{Text: &s})
			}
		case Thinking:
			for _, s := range words(string(it)) {
				add(geminiPart{Text: &s, Thought: true})
			}
		case Call:
			part := geminiPart{Call: &geminiCallOfPart{it.Name, json.RawMessage(it.Args), it.ID}}
			if calls++; calls == 1 {
				part.Sign = p.geminiSign(a, candidate)
			}
			if calls < 3 {
				add(part)
			} else {
				groups[len(groups)-1] = append(groups[len(groups)-1], part)
			}
		}
	}
	return groups
}

// geminiSign gives a signature for an answer, and remembers it.
func (p *Provider) geminiSign(a asked, candidate int) string {
	sign := base64.StdEncoding.EncodeToString([]byte(name("thought", a.name, a.number, candidate)))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.issued[sign] = thinkingIssued{}
	return sign
}

func (t Turn) geminiFinish() string {
	if t.Finish != "" {
		return t.Finish
	}
	return "STOP" // with calls, too
}

// events gives the answer as a stream. Its end comes behind all that is said.
func (g gemini) events(p *Provider, a asked, t Turn) [][]byte {
	var chunks [][]byte
	var lanes [][][]geminiPart
	longest := 0
	for i := range a.choices {
		lanes = append(lanes, g.parts(p, a, i, t.choice(i)))
		longest = max(longest, len(lanes[i]))
	}
	for step := range longest {
		for i, groups := range lanes { // the candidates of a real stream come side by side
			if step < len(groups) {
				chunks = append(chunks, g.chunk(a, t, []geminiCandidate{{Content: geminiContent{groups[step], "model"}, Index: i}}, false))
			}
		}
	}
	var ends []geminiCandidate
	for i := range a.choices {
		empty := ""
		ends = append(ends, geminiCandidate{Content: geminiContent{[]geminiPart{{Text: &empty}}, "model"}, Finish: t.geminiFinish(), Index: i})
	}
	chunks = append(chunks, g.chunk(a, t, ends, true))
	for i, c := range chunks {
		switch {
		case g.sse:
			chunks[i] = fmt.Appendf(nil, "data: %s\r\n\r\n", c)
		case i == 0:
			chunks[i] = append([]byte("["), c...)
		default:
			chunks[i] = append([]byte(",\r\n"), c...)
		}
	}
	if !g.sse {
		chunks[len(chunks)-1] = append(chunks[len(chunks)-1], "]\n"...)
	}
	return chunks
}

// document gives the answer as one JSON document. Words are one part there.
func (g gemini) document(p *Provider, a asked, t Turn) []byte {
	var list []geminiCandidate
	for i := range a.choices {
		k := geminiCandidate{Content: geminiContent{Parts: []geminiPart{}, Role: "model"}, Finish: t.geminiFinish(), Index: i}
		for _, group := range g.parts(p, a, i, t.choice(i)) {
			for _, part := range group {
				n := len(k.Content.Parts) - 1
				if n >= 0 && part.Text != nil && k.Content.Parts[n].Text != nil && part.Thought == k.Content.Parts[n].Thought {
					joined := *k.Content.Parts[n].Text + *part.Text
					k.Content.Parts[n].Text = &joined
					continue
				}
				k.Content.Parts = append(k.Content.Parts, part)
			}
		}
		list = append(list, k)
	}
	return append(g.chunk(a, t, list, true), '\n')
}

// failure is an error body of Google's APIs.
func (gemini) failure(f *fault) []byte {
	status := "INVALID_ARGUMENT"
	switch {
	case f.status == http.StatusUnauthorized:
		status = "UNAUTHENTICATED"
	case f.status == http.StatusForbidden:
		status = "PERMISSION_DENIED"
	case f.status == http.StatusTooManyRequests:
		status = "RESOURCE_EXHAUSTED"
	case f.status >= 500:
		status = "INTERNAL"
	}
	return marshal(map[string]any{"error": map[string]any{"code": f.status, "message": f.reason, "status": status}})
}

// overflow is what the API answers to a conversation that has grown too long.
func (gemini) overflow(tokens, limit int) error {
	return badf("The input token count (%d) exceeds the maximum number of tokens allowed (%d).", tokens, limit)
}
