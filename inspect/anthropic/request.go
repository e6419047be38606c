package anthropic

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"callgate/inspect"
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
func readRequest(h inspect.Head, body []byte) (inspect.Info, error) {
	info := inspect.Info{Lanes: 1}
	seen := make(map[string]bool, len(requestKeys))
	var hosted []toolcall.Tool
	err := topLevel(body, func(key, value []byte) error {
		exact, ok := requestKeys[foldedKey(key)]
		if !ok {
			return nil
		}
		if exact != string(key) {
			return fmt.Errorf("the key %q reads like %q and is not written so", key, exact)
		}
		if seen[exact] {
			return fmt.Errorf("the key %q stands twice", exact)
		}
		seen[exact] = true
		switch exact {
		case "model":
			info.Model = gjson.ParseBytes(value).String()
		case "stream":
			info.Stream = string(value) == "true"
		case "tools":
			info.Tools = readTools(value)
		case "mcp_servers":
			hosted = readServers(value)
		case "metadata":
			info.Session, info.User = readUser(gjson.GetBytes(value, "user_id").String())
		case "output_format":
			info.Structured = info.Structured || value[0] == '{'
		case "output_config":
			info.Structured = info.Structured || gjson.GetBytes(value, "format").IsObject()
		}
		return nil
	})
	if err != nil {
		return inspect.Info{}, &inspect.Error{Dialect: Name, Where: "request", Reason: "the body cannot be read one way only", Err: err}
	}
	info.Tools = append(info.Tools, hosted...)
	if s := http.Header(h.Header).Get(sessionHeader); s != "" {
		info.Session = s
	}
	return info, nil
}

// foldedKey gives the folded form of a raw key, its escapes undone.
func foldedKey(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return strictjson.Fold(string(raw))
	}
	return strictjson.Fold(string(appendUnescaped(nil, raw)))
}

// topLevel calls each for every key of the object in body, with the key as it
// is written between its quotes and the raw value. It checks the shape of the
// top level only.
func topLevel(body []byte, each func(key, value []byte) error) error {
	s := scanner{b: body}
	if !s.take('{') {
		return fmt.Errorf("it is not a JSON object")
	}
	if !s.take('}') {
		for {
			key, ok := s.rawString()
			if !ok || !s.take(':') {
				return fmt.Errorf("a key is not well-formed at byte %d", s.i)
			}
			value := s.skip()
			if len(value) == 0 {
				return fmt.Errorf("a value is not well-formed at byte %d", s.i)
			}
			if err := each(key, value); err != nil {
				return err
			}
			if s.take(',') {
				continue
			}
			if !s.take('}') {
				return fmt.Errorf("the object goes on wrongly at byte %d", s.i)
			}
			break
		}
	}
	if s.space(); s.i != len(body) {
		return fmt.Errorf("something stands behind the object at byte %d", s.i)
	}
	return nil
}

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

func readTools(raw []byte) []toolcall.Tool {
	var tools []toolcall.Tool
	gjson.ParseBytes(raw).ForEach(func(_, t gjson.Result) bool {
		tool := toolcall.Tool{Name: t.Get("name").String(), Type: t.Get("type").String()}
		if tool.Type == "" {
			tool.Type = "custom"
		}
		if schema := t.Get("input_schema"); schema.IsObject() {
			tool.Schema = []byte(schema.Raw)
		}
		if tool.Hosted = isHosted(tool.Type); tool.Hosted && tool.Name == "" {
			tool.Name = t.Get("mcp_server_name").String()
		}
		tools = append(tools, tool)
		return true
	})
	return tools
}

// readServers gives the MCP servers that the provider is to call itself.
func readServers(raw []byte) []toolcall.Tool {
	var tools []toolcall.Tool
	gjson.ParseBytes(raw).ForEach(func(_, s gjson.Result) bool {
		tools = append(tools, toolcall.Tool{Name: s.Get("name").String(), Type: "mcp_server", Hosted: true})
		return true
	})
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
