package ollama

import (
	"fmt"
	"strings"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// request is a view of one request body.
type request struct {
	lim      inspect.Limits
	shape    shape
	repair   bool
	info     inspect.Info
	body     []byte
	messages rawjson.Span
}

// requestKeys are the keys of a request that are looked at. Ollama takes them in
// any case, so one that stands twice, by any spelling, says two things to two
// readers.
var requestKeys = strictjson.Keys("model", "stream", "tools", "messages", "format")

// sessionHeaders name the conversation, the first that is there counts.
var sessionHeaders = []string{"Session-Id", "X-Session-Id", "X-Session-Affinity"}

// Request reads the top level of a body once and steps over the history.
func (d Dialect) Request(h inspect.Head, body []byte) (inspect.Request, error) {
	r := &request{lim: d.Limits.Defaults(), shape: chatShape, body: body}
	if strings.HasSuffix(h.Path, generatePath) {
		r.shape = generateShape
	}
	// What /api/generate goes on with are tokens: nothing can be put among them.
	r.repair = d.Denial == inspect.DenialRepair && r.shape.inside
	r.info.Lanes, r.info.Stream = 1, true
	for _, k := range sessionHeaders {
		if v := h.Header.Get(k); v != "" && r.info.Session == "" {
			r.info.Session = v
		}
	}
	doc := rawjson.All(body)
	if !rawjson.IsObject(body, doc) {
		return nil, refused("body", "it is not a JSON object")
	}
	seen := map[string]bool{}
	w := rawjson.Open(body, doc)
	for w.Next() {
		key := rawjson.KeyText(body, w.Key)
		exact, ok := requestKeys[strictjson.Fold(key)]
		if !ok {
			continue
		}
		if raw := string(w.Key.In(body)); raw != exact {
			return nil, refused("body", fmt.Sprintf("the key %q reads like %s and is not written so", raw, exact))
		}
		if seen[exact] {
			return nil, refused("body", fmt.Sprintf("the key %s stands twice", exact))
		}
		seen[exact] = true
		r.member(exact, w.Val)
	}
	if w.Bad() || rawjson.Space(body, w.At()) != len(body) {
		return nil, refused("body", "it is not one JSON object")
	}
	return r, nil
}

func refused(where, reason string) error {
	return &inspect.Error{Dialect: name, Where: where, Reason: reason}
}

func (r *request) member(key string, val rawjson.Span) {
	b := r.body
	switch key {
	case "messages":
		r.messages = val
	case "model":
		r.info.Model = rawjson.Text(b, val)
	case "stream":
		r.info.Stream = string(val.In(b)) != "false" // also when it is null
	case "format":
		r.info.Structured = rawjson.Nested(b, val) || rawjson.Text(b, val) != ""
	case "tools":
		for w := rawjson.Open(b, val); w.Next(); {
			if tool, ok := readTool(b, w.Val); ok {
				r.info.Tools = append(r.info.Tools, tool)
			}
		}
	}
}

func readTool(b []byte, s rawjson.Span) (toolcall.Tool, bool) {
	t := toolcall.Tool{Type: typeFunction}
	var function rawjson.Span
	for w := rawjson.Open(b, s); w.Next(); {
		switch string(w.Key.In(b)) {
		case "type":
			t.Type = rawjson.Text(b, w.Val)
		case "function":
			function = w.Val
		}
	}
	for w := rawjson.Open(b, function); w.Next(); {
		switch string(w.Key.In(b)) {
		case "name":
			t.Name = rawjson.Text(b, w.Val)
		case "parameters":
			if !rawjson.Null(b, w.Val) {
				t.Schema = w.Val.In(b)
			}
		}
	}
	return t, t.Name != ""
}

// Info gives what the body and the headers say.
func (r *request) Info() inspect.Info { return r.info }

// Open starts the turn that answers the request.
func (r *request) Open(response inspect.Head) (inspect.Turn, error) {
	streamed, err := media(response, r.info.Stream)
	if err != nil {
		return nil, err
	}
	t := turn{lim: r.lim, shape: r.shape, structured: r.info.Structured, asked: r.info.Model}
	t.repair, t.begun = r.repair, 1
	t.rec.InputTokens, t.rec.OutputTokens = -1, -1
	if streamed {
		return newStream(t), nil
	}
	return &document{turn: t}, nil
}
