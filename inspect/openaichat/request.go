package openaichat

import (
	"fmt"

	"callgate/inspect"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// request is a view of one request body.
type request struct {
	lim  inspect.Limits
	info inspect.Info
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
	r := &request{lim: d.Limits.Defaults()}
	r.info.Lanes = 1
	for _, k := range sessionHeaders {
		if v := h.Header.Get(k); v != "" && r.info.Session == "" {
			r.info.Session = v
		}
	}
	from := space(body, 0)
	w := open(body, span{from, len(body)})
	if w.bad || w.end != '}' {
		return nil, refused("body", "it is not a JSON object")
	}
	var seen []string
	for w.next() {
		key := text(body, span{w.key.from - 1, w.key.to + 1})
		exact, ok := requestKeys[strictjson.Fold(key)]
		if !ok {
			continue
		}
		if raw := string(w.key.in(body)); raw != exact {
			return nil, refused("body", fmt.Sprintf("the key %q reads like %s and is not written so", raw, exact))
		}
		for _, s := range seen {
			if s == exact {
				return nil, refused("body", fmt.Sprintf("the key %s stands twice", exact))
			}
		}
		seen = append(seen, exact)
		if err := r.member(body, exact, w.val); err != nil {
			return nil, err
		}
	}
	if w.bad || space(body, w.i) != len(body) {
		return nil, refused("body", "it is not one JSON object")
	}
	return r, nil
}

func refused(where, reason string) error {
	return &inspect.Error{Dialect: name, Where: where, Reason: reason}
}

func (r *request) member(b []byte, key string, val span) error {
	switch key {
	case "model":
		r.info.Model = text(b, val)
	case "stream":
		r.info.Stream = string(val.in(b)) == "true"
	case "n":
		if null(b, val) {
			return nil
		}
		n, ok := whole(b, val)
		if !ok || n < 1 || n > maxLanes {
			return refused("n", fmt.Sprintf("it must be a whole number from 1 to %d", maxLanes))
		}
		r.info.Lanes = n
	case "tools", "functions":
		for w := open(b, val); w.next(); {
			if tool, ok := readTool(b, w.val, key == "functions"); ok {
				r.info.Tools = append(r.info.Tools, tool)
			}
		}
	case "web_search_options":
		if !null(b, val) {
			r.info.Tools = append(r.info.Tools, toolcall.Tool{Name: "web_search", Type: key, Hosted: true})
		}
	case "response_format":
		kind := text(b, get(b, val, "type"))
		r.info.Structured = !null(b, val) && kind != "text"
	case "prompt_cache_key":
		if r.info.Session == "" {
			r.info.Session = text(b, val)
		}
	case "safety_identifier":
		r.info.User = text(b, val)
	case "user":
		if r.info.User == "" {
			r.info.User = text(b, val)
		}
	}
	return nil
}

// readTool reads one entry of tools, or of the older functions. A tool that is
// neither a function nor custom is run by the provider.
func readTool(b []byte, s span, legacy bool) (toolcall.Tool, bool) {
	t := toolcall.Tool{Type: "function"}
	def := s
	if !legacy {
		var inner span
		for w := open(b, s); w.next(); {
			switch string(w.key.in(b)) {
			case "type":
				t.Type = text(b, w.val)
			case "function", "custom":
				inner = w.val
			}
		}
		t.Hosted = t.Type != "function" && t.Type != "custom"
		if inner.there() {
			def = inner
		}
	}
	for w := open(b, def); w.next(); {
		switch string(w.key.in(b)) {
		case "name":
			t.Name = text(b, w.val)
		case "parameters":
			if !null(b, w.val) {
				t.Schema = w.val.in(b)
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
	base.rec.InputTokens, base.rec.OutputTokens = -1, -1
	if streamed {
		return newStream(base), nil
	}
	return &document{turn: base}, nil
}
