package responses

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// outline holds where the values of a request's top level stand, as far as
// changing its history has to do with them.
type outline struct {
	input, choice, previous, conversation, reasoning rawjson.Span
	// stored says that the provider keeps the answer, as far as the request says.
	stored bool
}

// held reports whether the provider holds what was said before.
func (o *outline) held(b []byte) bool {
	return !rawjson.Null(b, o.previous) || !rawjson.Null(b, o.conversation)
}

// requestKeys are the top-level keys of a request that two readers must not
// read differently.
var requestKeys = strictjson.Keys("model", "stream", "tools", "tool_choice", "input", "instructions", "previous_response_id",
	"conversation", "store", "text", "background", "prompt_cache_key", "safety_identifier", "user", "include", "reasoning")

// sessionHeaders name the conversation, the first that is there counts.
var sessionHeaders = []string{"Session-Id", "Session_id", "X-Session-Id", "X-Session-Affinity"}

// read scans the top level once. The history is skipped and not descended into.
func (r *request) read(h inspect.Head) error {
	b := r.body
	r.info.Lanes = 1
	r.top.stored = true
	for _, k := range sessionHeaders {
		if len(h.Header[k]) > 0 {
			r.info.Session = cmp.Or(r.info.Session, h.Header[k][0])
		}
	}
	var key, user string
	background := false
	var seen []string
	err := topLevel(b, func(w *rawjson.Walk) error {
		exact, ok := requestKeys[strictjson.Fold(rawjson.KeyText(b, w.Key))]
		if !ok {
			return nil
		}
		if !w.Is(exact) {
			return fmt.Errorf("the key %q reads like %q and is not written so", w.Key.In(b), exact)
		}
		if slices.Contains(seen, exact) {
			return fmt.Errorf("the key %q stands twice", exact)
		}
		seen = append(seen, exact)
		switch exact {
		case "model":
			r.info.Model = rawjson.Text(b, w.Val)
		case "stream":
			r.info.Stream = string(w.Val.In(b)) == "true"
		case "tools":
			r.info.Tools = append(r.info.Tools, readTools(b, w.Val, "")...)
		case "input":
			r.top.input = w.Val
			r.info.Tools = append(r.info.Tools, laterTools(b, w.Val)...)
		case "tool_choice":
			r.top.choice = w.Val
		case "previous_response_id":
			r.top.previous = w.Val
		case "conversation":
			r.top.conversation = w.Val
		case "reasoning":
			r.top.reasoning = w.Val
		case "store":
			r.top.stored = string(w.Val.In(b)) != "false"
		case "text":
			kind := rawjson.Text(b, rawjson.Get(b, rawjson.Get(b, w.Val, "format"), "type"))
			r.info.Structured = kind != "" && kind != "text"
		case "background":
			background = string(w.Val.In(b)) == "true"
		case "prompt_cache_key":
			key = rawjson.Text(b, w.Val)
		case "safety_identifier":
			r.info.User = rawjson.Text(b, w.Val)
		case "user":
			user = rawjson.Text(b, w.Val)
		}
		return nil
	})
	if err != nil {
		return &inspect.Error{Dialect: Name, Where: "request", Reason: "the body cannot be read one way only", Err: err}
	}
	if runs := func(t toolcall.Tool) bool { return !t.Hosted }; background && slices.ContainsFunc(r.info.Tools, runs) {
		// Nobody could decide its calls where it is fetched.
		return &inspect.Error{Dialect: Name, Where: "request.background", Reason: "an answer in the background is fetched later, where its calls cannot be decided: leave background out, or the tools that run on the client"}
	}
	r.info.Session = cmp.Or(r.info.Session, key)
	r.info.User = cmp.Or(r.info.User, user)
	return nil
}

// topLevel calls each for every member of the object that body is. It checks
// the shape of the top level only.
func topLevel(body []byte, each func(w *rawjson.Walk) error) error {
	doc := rawjson.All(body)
	if !rawjson.IsObject(body, doc) {
		return fmt.Errorf("it is not a JSON object")
	}
	w := rawjson.Open(body, doc)
	for w.Next() {
		if raw := w.Key.In(body); bytes.IndexByte(raw, '\\') >= 0 && strictjson.StringLen(body[w.Key.From-1:]) != len(raw)+2 {
			return fmt.Errorf("a key is not well-formed at byte %d", w.Key.From)
		}
		if err := each(&w); err != nil {
			return err
		}
	}
	switch {
	case w.Bad():
		return fmt.Errorf("it is not well-formed at byte %d", w.At())
	case rawjson.Space(body, w.At()) != len(body):
		return fmt.Errorf("something stands behind the object at byte %d", w.At())
	}
	return nil
}

// hostedTools are the types of the tools that the provider runs itself, as far
// as their names begin so. All others run on the client.
var hostedTools = []string{"web_search", "file_search", "code_interpreter", "image_generation", "mcp", "programmatic_tool_calling"}

// plainSpace is the namespace whose tools have their names alone, in the
// catalogue of tools too.
const plainSpace = "functions"

// fullName is a tool's name with its namespace.
func fullName(space, name string) string {
	if space == "" || space == plainSpace {
		return name
	}
	return space + "." + name
}

func readTools(b []byte, list rawjson.Span, space string) []toolcall.Tool {
	var tools []toolcall.Tool
	for w := rawjson.Open(b, list); w.Next(); {
		// Of a key that stands twice the first counts.
		get := func(key string) string { return rawjson.Text(b, rawjson.Get(b, w.Val, key)) }
		tool := toolcall.Tool{Name: get("name"), Type: get("type")}
		if tool.Type == "namespace" && space == "" {
			tools = append(tools, readTools(b, rawjson.Get(b, w.Val, "tools"), tool.Name)...)
			continue
		}
		tool.Name = fullName(space, tool.Name)
		if s := rawjson.Get(b, w.Val, "parameters"); rawjson.IsObject(b, s) {
			tool.Schema = bytes.Clone(s.In(b)) // the body may be let go before it
		}
		switch tool.Type {
		case "function", "custom":
		case "local_shell", "apply_patch":
			tool.Name = tool.Type
		case "shell":
			tool.Name = tool.Type
			where := rawjson.Text(b, rawjson.Get(b, rawjson.Get(b, w.Val, "environment"), "type"))
			tool.Hosted = where != "" && where != "local"
		case "computer", "computer_use_preview":
			tool.Name = computerName
		case "tool_search":
			tool.Name = tool.Type
			tool.Hosted = get("execution") != "client"
		default:
			tool.Hosted = slices.ContainsFunc(hostedTools, func(p string) bool { return strings.HasPrefix(tool.Type, p) })
			tool.Name = cmp.Or(tool.Name, get("server_label"), tool.Type)
		}
		tools = append(tools, tool)
	}
	return tools
}

// laterTools gives the tools that the first items of the input add.
func laterTools(b []byte, input rawjson.Span) (tools []toolcall.Tool) {
	for w := rawjson.Open(b, input); w.Next(); {
		if rawjson.Text(b, rawjson.Get(b, w.Val, "type")) != "additional_tools" {
			break
		}
		tools = append(tools, readTools(b, rawjson.Get(b, w.Val, "tools"), "")...)
	}
	return tools
}
