package gemini

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// request is what is kept of a request body.
type request struct {
	info   inspect.Info
	lim    inspect.Limits
	repair bool // withheld calls are told of in later requests
	// wrapped says that the answer stands under the key response.
	wrapped bool
	// continues says that the answer is the rest of one that the provider holds
	// the beginning of: what is withheld of it can neither be put back nor be
	// gone on with.
	continues bool
	body      []byte
	top       outline
}

// outline holds where the values stand that have to do with the conversation.
type outline struct{ contents, toolConfig rawjson.Span }

// The keys of a request that two readers must not read differently. Google's
// readers take both spellings of a name of several words.
var (
	wrapperKeys = spelt("model", "request", "generateContentRequest")
	requestKeys = spelt("model", "contents", "tools", "toolConfig", "systemInstruction", "generationConfig", "cachedContent", "sessionId", "continuationToken")
)

// Request reads the top level of a request.
func (d Dialect) Request(h inspect.Head, body []byte) (inspect.Request, error) {
	r := &request{lim: d.Limits.Defaults(), repair: d.Denial == inspect.DenialRepair, body: body}
	if reason := badQuery(h.Query); reason != "" {
		return nil, failure("query", reason, nil)
	}
	model, method := endpoint(h.Path)
	r.wrapped = model == loginVersion
	r.info.Lanes, r.info.Stream, r.info.Elements = 1, method == methodStream, method == methodStream
	if !r.wrapped {
		r.info.Model = model
	}
	inner := rawjson.All(body)
	switch {
	case r.wrapped:
		m, err := onlyMembers(body, inner, wrapperKeys, true)
		if err != nil {
			return nil, unread(err)
		}
		inner = m["request"]
		r.info.Model = rawjson.Text(body, m["model"])
	case method == methodCount:
		m, err := onlyMembers(body, inner, wrapperKeys, true)
		if err != nil {
			return nil, unread(err)
		}
		if in := m["generateContentRequest"]; !rawjson.Null(body, in) {
			inner = in
		}
	}
	m, err := onlyMembers(body, inner, requestKeys, inner == rawjson.All(body))
	if err != nil {
		return nil, unread(err)
	}
	r.top = outline{contents: m["contents"], toolConfig: m["toolConfig"]}
	r.info.Model = cmp.Or(r.info.Model, rawjson.Text(body, m["model"]))
	r.info.Tools = readTools(body, m["tools"])
	r.info.Session = rawjson.Text(body, m["sessionId"])
	r.continues = !rawjson.Null(body, m["continuationToken"])
	if err := r.settings(m["generationConfig"]); err != nil {
		return nil, err
	}
	return r, nil
}

func unread(err error) *inspect.Error {
	return failure("request", "the body cannot be read one way only", err)
}

// endpoint gives what the last segment of a path says: the model, or the
// version where there is none, and the method.
func endpoint(path string) (model, method string) {
	last := path[strings.LastIndexByte(path, '/')+1:]
	if i := strings.LastIndexByte(last, ':'); i >= 0 {
		return last[:i], last[i+1:]
	}
	return last, ""
}

// spelt gives the names under which keys are found by their folded form, each in
// the spelling with capitals and in the one with underscores.
func spelt(keys ...string) map[string]spelling {
	m := make(map[string]spelling, 2*len(keys))
	for _, k := range keys {
		m[strictjson.Fold(k)] = spelling{k, k}
		m[strictjson.Fold(snake(k))] = spelling{snake(k), k}
	}
	return m
}

// spelling is a key as it must be written, and what it stands for.
type spelling struct{ exact, key string }

// snake writes a name with underscores.
func snake(name string) string {
	var b []byte
	for _, c := range []byte(name) {
		if 'A' <= c && c <= 'Z' {
			b = append(b, '_', c+'a'-'A')
			continue
		}
		b = append(b, c)
	}
	return string(b)
}

// onlyMembers gives the values of an object's members with known keys. Any of
// them that stands twice, by any spelling, says two things to two readers.
// whole says that nothing may stand behind the object.
func onlyMembers(b []byte, object rawjson.Span, keys map[string]spelling, whole bool) (map[string]rawjson.Span, error) {
	if !rawjson.IsObject(b, object) {
		return nil, fmt.Errorf("an object is wanted")
	}
	m := make(map[string]rawjson.Span, len(keys))
	w := rawjson.Open(b, object)
	for w.Next() {
		known, ok := keys[strictjson.Fold(rawjson.KeyText(b, w.Key))]
		if !ok {
			continue
		}
		if !w.Is(known.exact) {
			return nil, fmt.Errorf("the key %q reads like %q and is not written so", w.Key.In(b), known.exact)
		}
		if _, twice := m[known.key]; twice {
			return nil, fmt.Errorf("the key %q stands twice", known.key)
		}
		m[known.key] = w.Val
	}
	switch {
	case w.Bad():
		return nil, fmt.Errorf("it is not well-formed at byte %d", w.At())
	case whole && rawjson.Space(b, w.At()) != len(b):
		return nil, fmt.Errorf("something stands behind the object at byte %d", w.At())
	}
	return m, nil
}

// maxLanes is how many candidates may be asked for; the API allows 8.
const maxLanes = 128

var settingKeys = spelt("candidateCount", "responseMimeType", "responseSchema", "responseJsonSchema", "responseFormat")

// settings reads what the generation config says of the form of the answer.
func (r *request) settings(config rawjson.Span) error {
	if rawjson.Null(r.body, config) {
		return nil
	}
	m, err := onlyMembers(r.body, config, settingKeys, false)
	if err != nil {
		return failure("generationConfig", "it cannot be read one way only", err)
	}
	if n := m["candidateCount"]; !rawjson.Null(r.body, n) {
		count, ok := rawjson.Whole(r.body, n)
		if !ok || count < 1 || count > maxLanes {
			return failure("generationConfig.candidateCount", fmt.Sprintf("it must be a whole number from 1 to %d", maxLanes), nil)
		}
		r.info.Lanes = count
	}
	media := rawjson.Text(r.body, m["responseMimeType"])
	r.info.Structured = media != "" && media != "text/plain"
	for _, key := range [...]string{"responseSchema", "responseJsonSchema", "responseFormat"} {
		r.info.Structured = r.info.Structured || rawjson.IsObject(r.body, m[key])
	}
	return nil
}

// clientTools are the tools beside declared functions that run on the client:
// the provider adds function declarations of its own for them.
var clientTools = map[string]bool{"computerUse": true, "computer_use": true}

// readTools gives the tools that are offered. All but functions and clientTools
// are run by the provider.
func readTools(b []byte, list rawjson.Span) (tools []toolcall.Tool) {
	each := func(tool rawjson.Span) {
		for w := rawjson.Open(b, tool); w.Next(); {
			switch key := rawjson.KeyText(b, w.Key); {
			case rawjson.Null(b, w.Val):
			case key == "functionDeclarations" || key == "function_declarations":
				eachOf(b, w.Val, func(f rawjson.Span) { tools = append(tools, readFunction(b, f)) })
			default:
				tools = append(tools, toolcall.Tool{Name: key, Type: key, Hosted: !clientTools[key]})
			}
		}
	}
	eachOf(b, list, each)
	return tools
}

// eachOf calls do for the elements of a list. Google's readers take one value in
// the place of a list for a list of it.
func eachOf(b []byte, list rawjson.Span, do func(rawjson.Span)) {
	if rawjson.IsObject(b, list) {
		do(list)
		return
	}
	if !rawjson.IsArray(b, list) {
		return
	}
	for w := rawjson.Open(b, list); w.Next(); {
		do(w.Val)
	}
}

func readFunction(b []byte, f rawjson.Span) toolcall.Tool {
	t := toolcall.Tool{Type: "function"}
	for w := rawjson.Open(b, f); w.Next(); {
		switch rawjson.KeyText(b, w.Key) {
		case "name":
			t.Name = cmp.Or(t.Name, rawjson.Text(b, w.Val))
		case "parameters", "parametersJsonSchema", "parameters_json_schema":
			if t.Schema == nil && rawjson.IsObject(b, w.Val) {
				t.Schema = bytes.Clone(w.Val.In(b)) // the body may be let go before it
			}
		}
	}
	return t
}

// Info gives what the body and the path say.
func (r *request) Info() inspect.Info { return r.info }

// Open starts the turn that answers the request.
func (r *request) Open(response inspect.Head) (inspect.Turn, error) {
	stream, err := streams(response)
	if err != nil {
		return nil, err
	}
	return newTurn(r, stream), nil
}
