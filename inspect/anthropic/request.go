package anthropic

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// requestKeys are the top-level keys of a request that two readers must not
// read differently.
var requestKeys = strictjson.Keys("model", "stream", "tools", "tool_choice", "mcp_servers", "messages", "system",
	"max_tokens", "metadata", "thread", "output_format", "output_config", "container")

// sessionHeader is where Claude Code names its session.
const sessionHeader = "X-Claude-Code-Session-Id"

// readRequest scans the top level once. Values that do not matter, the history
// above all, are skipped and not descended into.
// threaded says that the provider holds the history.
func readRequest(h inspect.Head, body []byte) (info inspect.Info, threaded bool, err error) {
	info.Lanes = 1
	var seen []string
	var hosted []toolcall.Tool
	err = topLevel(body, func(w *rawjson.Walk) error {
		exact, ok := requestKeys[strictjson.Fold(rawjson.KeyText(body, w.Key))]
		if !ok {
			return nil
		}
		if !w.Is(exact) {
			return fmt.Errorf("the key %q reads like %q and is not written so", w.Key.In(body), exact)
		}
		if slices.Contains(seen, exact) {
			return fmt.Errorf("the key %q stands twice", exact)
		}
		seen = append(seen, exact)
		switch exact {
		case "model":
			info.Model = rawjson.Text(body, w.Val)
		case "stream":
			info.Stream = string(w.Val.In(body)) == "true"
		case "tools":
			info.Tools = readTools(body, w.Val)
		case "mcp_servers":
			hosted = readServers(body, w.Val)
		case "thread":
			threaded = rawjson.IsObject(body, w.Val)
		case "metadata":
			info.Session, info.User = readUser(rawjson.Text(body, member(body, w.Val, "user_id")))
		case "output_format":
			info.Structured = info.Structured || rawjson.IsObject(body, w.Val)
		case "output_config":
			info.Structured = info.Structured || rawjson.IsObject(body, member(body, w.Val, "format"))
		}
		return nil
	})
	if err != nil {
		return inspect.Info{}, false, &inspect.Error{Dialect: Name, Where: "request", Reason: "the body cannot be read one way only", Err: err}
	}
	info.Tools = append(info.Tools, hosted...)
	if s := http.Header(h.Header).Get(sessionHeader); s != "" {
		info.Session = s
	}
	return info, threaded, nil
}

// topLevel calls each for every member of the object that body is. It checks
// the shape of the top level only.
func topLevel(body []byte, each func(w *rawjson.Walk) error) error {
	doc := rawjson.All(body)
	if !rawjson.IsObject(body, doc) {
		return fmt.Errorf("it is not a JSON object")
	}
	w := rawjson.Open(body, doc)
	end, between := doc.From+1, ""
	for w.Next() {
		if !only(body[end:w.Item.From], between) {
			return fmt.Errorf("the object goes on wrongly at byte %d", end)
		}
		if raw := w.Key.In(body); escaped(raw) && strictjson.StringLen(body[w.Key.From-1:]) != len(raw)+2 {
			return fmt.Errorf("a key is not well-formed at byte %d", w.Key.From)
		}
		if err := each(&w); err != nil {
			return err
		}
		end, between = w.Item.To, ","
	}
	switch {
	case w.Bad():
		return fmt.Errorf("it is not well-formed at byte %d", w.At())
	case !only(body[end:w.At()-1], ""):
		return fmt.Errorf("the object goes on wrongly at byte %d", end)
	case rawjson.Space(body, w.At()) != len(body):
		return fmt.Errorf("something stands behind the object at byte %d", w.At())
	}
	return nil
}

// only reports whether b is the given text, with white space around it.
func only(b []byte, text string) bool { return string(bytes.Trim(b, " \t\r\n")) == text }

// hostedTools are the types, without their date, of the tools that the
// provider runs itself. All others run on the client.
var hostedTools = map[string]bool{
	"web_search": true, "web_fetch": true, "code_execution": true, "advisor": true, "mcp_toolset": true,
	"tool_search_tool_regex": true, "tool_search_tool_bm25": true,
}

// isHosted tells whether a tool of this type is run by the provider:
// web_search_20250305 and the like.
func isHosted(typ string) bool {
	if hostedTools[typ] {
		return true
	}
	i := strings.LastIndexByte(typ, '_')
	return i > 0 && len(typ)-i == len("_20250305") && strings.Trim(typ[i+1:], "0123456789") == "" && hostedTools[typ[:i]]
}

// hostedNames are the names under which the provider reports what it runs for
// the tools that are hosted. Some tools use others that were not asked for.
var hostedNames = set("web_search", "web_fetch", "code_execution", "bash_code_execution", "text_editor_code_execution", "advisor",
	"tool_search_tool_regex", "tool_search_tool_bm25")

// notHosted says why a call that is said to run on the provider may yet run on
// the client, "" when it cannot. Translators on the way turn such calls into
// plain ones.
func notHosted(tools []toolcall.Tool, typ, name string) string {
	offered := false
	for i := range tools {
		t := &tools[i]
		server := t.Type == "mcp_server" || t.Type == "mcp_toolset"
		switch {
		case !t.Hosted && foldedName(t.Name) == foldedName(name):
			return "a block of type " + strconv.Quote(typ) + " names a tool of the client's, " + strconv.Quote(t.Name)
		case !t.Hosted:
		case typ == "mcp_tool_use":
			offered = offered || server && name != ""
		default:
			offered = offered || !server && (hostedNames[name] || name != "" && name == t.Name)
		}
	}
	if offered {
		return ""
	}
	return "a block of type " + strconv.Quote(typ) + " names the tool " + strconv.Quote(name) + ", and the request offered none that the provider runs under that name"
}

// foldedName is a tool's name as the most careless client compares it.
func foldedName(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("_-.:/ ", r) {
			return -1
		}
		return r
	}, strictjson.Fold(name))
}

func readTools(b []byte, list rawjson.Span) []toolcall.Tool {
	var tools []toolcall.Tool
	for w := rawjson.Open(b, list); w.Next(); {
		var tool toolcall.Tool
		server := ""
		for t := rawjson.Open(b, w.Val); t.Next(); {
			key := t.Key.In(b)
			if escaped(key) {
				key = []byte(rawjson.KeyText(b, t.Key))
			}
			// Of a key that stands twice the first counts.
			switch string(key) {
			case "name":
				tool.Name = cmp.Or(tool.Name, rawjson.Text(b, t.Val))
			case "type":
				tool.Type = cmp.Or(tool.Type, rawjson.Text(b, t.Val))
			case "input_schema":
				if tool.Schema == nil && rawjson.IsObject(b, t.Val) {
					tool.Schema = bytes.Clone(t.Val.In(b)) // the body may be let go before it
				}
			case "mcp_server_name":
				server = cmp.Or(server, rawjson.Text(b, t.Val))
			}
		}
		tool.Type = cmp.Or(tool.Type, "custom")
		if tool.Hosted = isHosted(tool.Type); tool.Hosted {
			tool.Name = cmp.Or(tool.Name, server)
		}
		tools = append(tools, tool)
	}
	return tools
}

// readServers gives the MCP servers that the provider is to call itself.
func readServers(b []byte, list rawjson.Span) []toolcall.Tool {
	var tools []toolcall.Tool
	for w := rawjson.Open(b, list); w.Next(); {
		tools = append(tools, toolcall.Tool{Name: rawjson.Text(b, member(b, w.Val, "name")), Type: "mcp_server", Hosted: true})
	}
	return tools
}

// readUser takes metadata.user_id apart. Clients put a plain name there, a
// JSON object in a string, or user_U_account_A_session_S.
func readUser(id string) (session, user string) {
	if strings.HasPrefix(id, "{") && gjson.Valid(id) {
		user = gjson.Get(id, "account_uuid").String()
		if user == "" {
			user = gjson.Get(id, "device_id").String()
		}
		return gjson.Get(id, "session_id").String(), user
	}
	if rest, s, ok := strings.Cut(id, "_session_"); ok && strings.HasPrefix(rest, "user_") {
		user, account, _ := strings.Cut(strings.TrimPrefix(rest, "user_"), "_account_")
		if account != "" {
			user = account
		}
		return s, strings.TrimSuffix(user, "_account_")
	}
	return "", id
}
