package catalog

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"callgate/inspect/toolcall"
)

const marker = "rm -rf /the-marker"

// holds says that one of the actions runs exactly that command.
func holds(as []toolcall.Action, command string) bool {
	return slices.ContainsFunc(as, func(a toolcall.Action) bool {
		return a.Kind == toolcall.KindCommand && a.Command == command
	})
}

func jsonOf(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// byKind lists the catalogue's tools of a kind.
func byKind(c *Catalog, kind toolcall.Kind) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(c.tools)) {
		if c.tools[name].kind == kind {
			names = append(names, name)
		}
	}
	return names
}

func TestEveryCommandArgumentOfEveryCommandToolIsRead(t *testing.T) {
	c := mustNew(t)
	tools := byKind(c, toolcall.KindCommand)
	if len(tools) < 20 {
		t.Fatalf("only %d command tools", len(tools))
	}
	for _, tool := range tools {
		for _, arg := range c.tools[tool].command {
			for form, value := range map[string]any{
				"text":            marker,
				"a list of one":   []any{[]string{"bash", "-c", marker}},
				"an object":       map[string]any{"command": marker},
				"a strange one":   map[string]any{"x": map[string]any{"y": []any{1, marker}}},
				"an object in it": []any{map[string]any{"cmd": marker}},
			} {
				args := jsonOf(t, map[string]any{arg: value})
				if got := c.Actions(toolcall.Call{Name: tool, Args: args}, nil); !holds(got, marker) {
					t.Errorf("%s lost the command in %s (%s): %q", tool, args, form, briefs(got))
				}
			}
			// Of what cannot be taken apart the whole comes out, unreadable.
			for _, value := range []any{1, true, map[string]any{"n": 1}, []any{map[string]any{"n": 1}}} {
				args := jsonOf(t, map[string]any{arg: value})
				got := c.Actions(toolcall.Call{Name: tool, Args: args}, nil)
				if !slices.ContainsFunc(got, func(a toolcall.Action) bool { return a.Language == toolcall.LangUnknown }) {
					t.Errorf("%s takes %s for nothing: %q", tool, args, briefs(got))
				}
			}
		}
	}
}

func TestWordsThatAreOneCommandLineAreQuoted(t *testing.T) {
	c := mustNew(t)
	for _, tool := range byKind(c, toolcall.KindCommand) {
		for _, arg := range c.tools[tool].argv {
			args := jsonOf(t, map[string]any{arg: []string{"rm", "-rf", "/a b", "$(id)"}})
			if got := c.Actions(toolcall.Call{Name: tool, Args: args}, nil); !holds(got, `rm -rf '/a b' '$(id)'`) {
				t.Errorf("%s read %s as %q", tool, args, briefs(got))
			}
		}
	}
}

func TestEveryPathOfEveryFileToolIsRead(t *testing.T) {
	c := mustNew(t)
	tools := byKind(c, toolcall.KindFile)
	if len(tools) < 20 {
		t.Fatalf("only %d file tools", len(tools))
	}
	for _, tool := range tools {
		e := c.tools[tool]
		for _, arg := range e.path {
			for form, value := range map[string]any{
				"text":           "/the/path",
				"a list":         []string{"/the/path"},
				"objects":        []any{map[string]any{arg: "/the/path"}},
				"another letter": nil,
			} {
				key := arg
				if value == nil {
					key, value = strings.ToUpper(arg), "/the/path"
				}
				args := jsonOf(t, map[string]any{key: value})
				got := c.Actions(toolcall.Call{Name: tool, Args: args}, nil)
				if !slices.ContainsFunc(got, func(a toolcall.Action) bool {
					return a.Kind == toolcall.KindFile && a.Path == "/the/path" && a.Op == e.op && a.Known
				}) {
					t.Errorf("%s lost the path in %s (%s): %q", tool, args, form, briefs(got))
				}
			}
		}
		for _, arg := range e.content {
			args := jsonOf(t, map[string]any{e.path[0]: "p", arg: "the content"})
			got := c.Actions(toolcall.Call{Name: tool, Args: args}, nil)
			if !slices.ContainsFunc(got, func(a toolcall.Action) bool { return string(a.Content) == "the content" }) {
				t.Errorf("%s lost the content in %s: %q", tool, args, briefs(got))
			}
		}
	}
}

// TestWrappingACallChangesNothing puts calls into every wrapper, in every way
// of naming its parts.
func TestWrappingACallChangesNothing(t *testing.T) {
	c := mustNew(t)
	calls := []struct {
		tool string
		args map[string]any
	}{
		{"bash", map[string]any{"command": marker}},
		{"write_file", map[string]any{"path": "/p", "content": "c"}},
		{"weather", map[string]any{"city": "Oslo"}},
		{"deploy", map[string]any{"preBuildCommand": marker}},
	}
	for _, call := range calls {
		plain := briefs(c.Actions(toolcall.Call{Name: call.tool, Args: jsonOf(t, call.args)}, nil))
		for name, e := range c.tools {
			if e.wrapper == nil {
				continue
			}
			for _, nameKey := range e.wrapper.name {
				for _, argsKey := range e.wrapper.arguments {
					for _, encoded := range []bool{false, true} {
						var inner any = call.args
						if encoded {
							inner = string(jsonOf(t, call.args))
						}
						one := map[string]any{nameKey: call.tool, argsKey: inner}
						outer := one
						if len(e.wrapper.list) > 0 {
							outer = map[string]any{e.wrapper.list[0]: []any{one}}
						}
						got := briefs(c.Actions(toolcall.Call{Name: name, Args: jsonOf(t, outer)}, nil))
						if !slices.Equal(got, plain) {
							t.Errorf("%s with %s became %q, want %q", name, jsonOf(t, outer), got, plain)
						}
					}
				}
			}
		}
	}
}

// TestACommandBesideAnythingComesOut adds a command to the arguments of every
// tool of the catalogue that does not say the name is no command.
func TestACommandBesideAnythingComesOut(t *testing.T) {
	c := mustNew(t)
	for name, e := range c.tools {
		for _, arg := range []string{"command", "cmd", "shell_command", "script", "runCommands"} {
			f := fold(arg)
			if slices.Contains(e.plain, f) {
				continue
			}
			args := jsonOf(t, map[string]any{"path": "/p", "content": "c", "name": "x", arg: marker})
			if got := c.Actions(toolcall.Call{Name: name, Args: args}, nil); !holds(got, marker) {
				t.Errorf("%s lost %s of %s: %q", name, arg, args, briefs(got))
			}
		}
	}
}

func TestOddForms(t *testing.T) {
	runCases(t, []actionCase{
		{"null for a command", "Bash", `{"command":null}`, []string{`tool Bash`}},
		{"an empty list of commands", "run_commands", `{"commands":[]}`, []string{`tool run_commands`}},
		{"arguments beside a command that are no words", "terminal", `{"command":"rm","args":["-rf",{"x":1}]}`,
			[]string{`command terminal unknown "[\"-rf\",{\"x\":1}]" ?`, `command terminal shell "rm"`}},
		{"an empty list of arguments beside a command", "terminal", `{"command":"ls","args":[]}`, []string{`command terminal shell "ls"`}},
		{"words and arguments beside them", "shell", `{"command":["rm","-rf"],"args":["/"]}`, []string{`command shell shell "rm -rf /"`}},
		{"an interpreter with more than a script", "shell", `{"command":["bash","-c","$0","rm"]}`, []string{`command shell shell "bash -c '$0' rm"`}},
		{"an interpreter with another option", "shell", `{"command":["bash","--norc","-c"]}`, []string{`command shell shell "bash --norc -c"`}},
		{"powershell with an option that matters", "shell", `{"command":["pwsh","-File","x.ps1","-Command","y"]}`,
			[]string{`command shell shell "pwsh -File x.ps1 -Command y"`}},
		{"a notebook's language is no word", "run", `{"command":"f()","language":7}`, []string{`command run shell "f()"`}},
		{"an argument named powershell", "remote", `{"powershell":"Get-Item x"}`, []string{`command remote powershell "Get-Item x" ?`}},
		{"a list of encoded calls", "batch", `{"tool_calls":["{\"tool\":\"bash\",\"parameters\":{\"command\":\"ls\"}}",5]}`,
			[]string{`command bash shell "ls"`, `command batch unknown "5" ?`}},
		{"an encoded list of calls", "batch", `{"tool_calls":"[{\"tool\":\"bash\",\"parameters\":{\"command\":\"ls\"}}]"}`,
			[]string{`command bash shell "ls"`}},
		{"a directory beside a list of commands", "run_commands", `{"commands":["ls"],"cwd":"/w"}`, []string{`command run_commands shell "ls" in /w`}},
		{"a directory within a command", "run_commands", `{"commands":[{"command":"ls","cwd":"/w"}]}`, []string{`command run_commands shell "ls" in /w`}},
		{"a file tool without a path", "Write", `{"content":"x"}`, []string{`file Write write  "{\"content\":\"x\"}"`}},
		{"a reading tool without a path", "grep", `{"pattern":"x"}`, []string{`tool grep`}},
		{"a list for an unknown tool", "deploy", `[{"command":"ls"}]`, []string{`command deploy shell "ls" ?`}},
		{"a server's editor", "mcp__fs__move_file", `{"source":"a","destination":"b"}`,
			[]string{`file mcp__fs__move_file write a ?`, `file mcp__fs__move_file write b ?`}},
	})
}
