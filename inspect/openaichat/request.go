package openaichat

import (
	"fmt"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// request is a view of one request body.
type request struct {
	lim    inspect.Limits
	repair bool
	info   inspect.Info
	body   []byte
	// The members that stand for the conversation, and for what must be called.
	messages, choice, function rawjson.Span
}

// requestKeys are the keys of a request that are looked at. One that stands
// twice, by any spelling, says two things to two readers.
var requestKeys = strictjson.Keys("model", "stream", "n", "tools", "functions", "tool_choice",
	"function_call", "messages", "response_format", "prompt_cache_key", "user", "safety_identifier",
	"web_search_options")

// sessionHeaders name the conversation, the first that is there counts.
var sessionHeaders = []string{"Session-Id", "X-Session-Id", "X-Session-Affinity"}

// Request reads the top level of a body once and steps over the history.
func (d Dialect) Request(h inspect.Head, body []byte) (inspect.Request, error) {
	r := &request{lim: d.Limits.Defaults(), repair: d.Denial == inspect.DenialRepair, body: body}
	r.info.Lanes = 1
	for _, k := range sessionHeaders {
		if v := h.Header.Get(k); v != "" && r.info.Session == "" {
			r.info.Session = v
		}
	}
	doc := rawjson.All(body)
	if !rawjson.IsObject(body, doc) {
		return nil, refused("body", "it is not a JSON object")
	}
	var seen []string
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
		for _, s := range seen {
			if s == exact {
				return nil, refused("body", fmt.Sprintf("the key %s stands twice", exact))
			}
		}
		seen = append(seen, exact)
		if err := r.member(body, exact, w.Val); err != nil {
			return nil, err
		}
	}
	if w.Bad() || rawjson.Space(body, w.At()) != len(body) {
		return nil, refused("body", "it is not one JSON object")
	}
	return r, nil
}

func refused(where, reason string) error {
	return &inspect.Error{Dialect: name, Where: where, Reason: reason}
}

func (r *request) member(b []byte, key string, val rawjson.Span) error {
	switch key {
	case "messages":
		r.messages = val
	case "tool_choice":
		r.choice = val
	case "function_call":
		r.function = val
	case "model":
		r.info.Model = rawjson.Text(b, val)
	case "stream":
		r.info.Stream = string(val.In(b)) == "true"
	case "n":
		if rawjson.Null(b, val) {
			return nil
		}
		n, ok := rawjson.Whole(b, val)
		if !ok || n < 1 || n > maxLanes {
			return refused("n", fmt.Sprintf("it must be a whole number from 1 to %d", maxLanes))
		}
		r.info.Lanes = n
	case "tools", "functions":
		for w := rawjson.Open(b, val); w.Next(); {
			if tool, ok := readTool(b, w.Val, key == "functions"); ok {
				r.info.Tools = append(r.info.Tools, tool)
			}
		}
	case "web_search_options":
		if !rawjson.Null(b, val) {
			r.info.Tools = append(r.info.Tools, toolcall.Tool{Name: "web_search", Type: key, Hosted: true})
		}
	case "response_format":
		kind := rawjson.Text(b, rawjson.Get(b, val, "type"))
		r.info.Structured = !rawjson.Null(b, val) && kind != "text"
	case "prompt_cache_key":
		if r.info.Session == "" {
			r.info.Session = rawjson.Text(b, val)
		}
	case "safety_identifier":
		r.info.User = rawjson.Text(b, val)
	case "user":
		if r.info.User == "" {
			r.info.User = rawjson.Text(b, val)
		}
	}
	return nil
}

// readTool reads one entry of tools, or of the older functions. A tool that is
// neither a function nor custom is run by the provider.
func readTool(b []byte, s rawjson.Span, legacy bool) (toolcall.Tool, bool) {
	t := toolcall.Tool{Type: "function"}
	def := s
	if !legacy {
		var inner rawjson.Span
		for w := rawjson.Open(b, s); w.Next(); {
			switch string(w.Key.In(b)) {
			case "type":
				t.Type = rawjson.Text(b, w.Val)
			case "function", "custom":
				inner = w.Val
			}
		}
		t.Hosted = t.Type != "function" && t.Type != "custom"
		if inner.There() {
			def = inner
		}
	}
	for w := rawjson.Open(b, def); w.Next(); {
		switch string(w.Key.In(b)) {
		case "name":
			t.Name = rawjson.Text(b, w.Val)
		case "parameters":
			if !rawjson.Null(b, w.Val) {
				t.Schema = w.Val.In(b)
			}
		}
	}
	if t.Name == "" && t.Hosted {
		t.Name = t.Type
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
	base := turn{lim: r.lim, lanesAsked: r.info.Lanes, structured: r.info.Structured, model: r.info.Model}
	base.repair, base.begun = r.repair, 1
	base.rec.InputTokens, base.rec.OutputTokens = -1, -1
	if streamed {
		return newStream(base), nil
	}
	return &document{turn: base}, nil
}
