package responses

import (
	"strings"

	"callgate/inspect/rawjson"
	"callgate/inspect/toolcall"
)

// class says what can become of an item.
type class uint8

const (
	otherItem  class = iota // not known: withheld like a call
	flowItem                // no client runs anything for it
	hostedItem              // the provider ran it
	callItem                // the client runs it
)

// form says how a call's arguments are written.
type form uint8

const (
	noArgs   form = iota
	jsonText      // a string that holds JSON
	freeText      // a string
	asValue       // an object
)

// kind is what is known of a type of item.
type kind struct {
	class class
	// name is the name of calls whose items have none, and args the member that
	// says what they are to do.
	name, args string
	form       form
	// output is the type of the item that answers such a call, "" where no text
	// can.
	output string
}

const computerName = "computer"

// kinds are the types of items. Of what is not listed nobody knows whether a
// client runs it.
var kinds = map[string]*kind{
	"message": {class: flowItem}, "reasoning": {class: flowItem},
	"compaction": {class: flowItem}, "compaction_summary": {class: flowItem}, "additional_tools": {class: flowItem},
	"function_call_output": {class: flowItem}, "custom_tool_call_output": {class: flowItem},
	"computer_call_output": {class: flowItem}, "local_shell_call_output": {class: flowItem},
	"shell_call_output": {class: flowItem}, "apply_patch_call_output": {class: flowItem},
	"tool_search_output": {class: flowItem}, "program_output": {class: flowItem}, "mcp_approval_response": {class: flowItem},

	"web_search_call": {class: hostedItem}, "file_search_call": {class: hostedItem}, "code_interpreter_call": {class: hostedItem},
	"image_generation_call": {class: hostedItem}, "program": {class: hostedItem}, "mcp_list_tools": {class: hostedItem},
	"mcp_call": {class: hostedItem, args: "arguments"},

	"function_call":        {class: callItem, args: "arguments", form: jsonText, output: "function_call_output"},
	"custom_tool_call":     {class: callItem, args: "input", form: freeText, output: "custom_tool_call_output"},
	"local_shell_call":     {class: callItem, name: "local_shell", args: "action", form: asValue, output: "local_shell_call_output"},
	"shell_call":           shellKind,
	"apply_patch_call":     {class: callItem, name: "apply_patch", args: "operation", form: asValue, output: "apply_patch_call_output"},
	"mcp_approval_request": {class: callItem, args: "arguments", form: jsonText, output: "mcp_approval_response"},
	"computer_call":        {class: callItem, name: computerName, args: "actions", form: asValue},
	"tool_search_call":     searchKind,
}

var (
	unknownKind = &kind{}
	// shellKind and searchKind are of the calls that some requests leave to the
	// provider.
	shellKind    = &kind{class: callItem, name: "shell", args: "action", form: asValue, output: "shell_call_output"}
	searchKind   = &kind{class: callItem, name: "tool_search", args: "arguments", form: asValue}
	hostedShell  = &kind{class: hostedItem, args: "action"}
	hostedSearch = &kind{class: hostedItem, args: "arguments"}
)

// kindOf gives the kind of an item of the answer. tools are what the request
// offered: a call runs where both the request and the item say so, and on the
// client in case of doubt.
func kindOf(b []byte, item rawjson.Span, typ string, tools []toolcall.Tool) *kind {
	k := kinds[typ]
	switch k {
	case nil:
		return unknownKind
	case shellKind:
		where := rawjson.Text(b, rawjson.Get(b, rawjson.Get(b, item, "environment"), "type"))
		if where != "" && where != "local" && onlyHosted(tools, "shell") {
			return hostedShell
		}
	case searchKind:
		if rawjson.Text(b, rawjson.Get(b, item, "execution")) == "server" && onlyHosted(tools, "tool_search") {
			return hostedSearch
		}
	}
	return k
}

// onlyHosted reports whether a tool of that name was offered, and none that the
// client runs.
func onlyHosted(tools []toolcall.Tool, name string) bool {
	offered := false
	for i := range tools {
		if strings.EqualFold(tools[i].Name, name) {
			if !tools[i].Hosted {
				return false
			}
			offered = true
		}
	}
	return offered
}

// notHosted says why an MCP call that is said to have run at the provider may
// yet run on the client, "" when it cannot: translators on the way turn such
// calls into plain ones.
func notHosted(tools []toolcall.Tool, name string) string {
	for i := range tools {
		if t := &tools[i]; !t.Hosted && foldedName(t.Name) == foldedName(name) {
			return "an item of type \"mcp_call\" names a tool of the client's"
		}
	}
	return ""
}
