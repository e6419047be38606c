package catalog

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

func mustNew(t testing.TB) *Catalog {
	t.Helper()
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// brief writes an action in one line: kind, tool, what it does, and a ? when
// the kind is only a guess.
func brief(a toolcall.Action) string {
	s := a.Kind.String() + " " + a.Tool
	switch a.Kind {
	case toolcall.KindCommand:
		s += " " + a.Language + " " + strconv.Quote(a.Command)
	case toolcall.KindFile:
		s += " " + a.Op.String() + " " + a.Path
		if a.Content != nil {
			s += " " + strconv.Quote(string(a.Content))
		}
	}
	if a.Dir != "" {
		s += " in " + a.Dir
	}
	if !a.Known {
		s += " ?"
	}
	return s
}

func briefs(as []toolcall.Action) []string {
	out := []string{}
	for _, a := range as {
		out = append(out, brief(a))
	}
	return out
}

type actionCase struct {
	name string
	tool string
	args string
	want []string
}

func runCases(t *testing.T, cases []actionCase) {
	t.Helper()
	c := mustNew(t)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if err := strictjson.Validate([]byte(tc.args), strictjson.Options{}); err != nil {
				t.Fatalf("the case's arguments would never get here: %v", err)
			}
			got := c.Actions(toolcall.Call{Name: tc.tool, Args: []byte(tc.args)}, nil)
			if diff := cmp.Diff(tc.want, briefs(got)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestToolsOfKnownAgents(t *testing.T) {
	runCases(t, []actionCase{
		{"claude code runs a command", "Bash", `{"command":"git status","description":"Show state","timeout":5000}`,
			[]string{`command Bash shell "git status"`}},
		{"claude code asks for a command outside its sandbox", "Bash", `{"command":"ls","dangerouslyDisableSandbox":true}`,
			[]string{`command Bash shell "ls"`, `permissions Bash`}},
		{"claude code writes a file", "Write", `{"file_path":"/w/a.txt","content":"hello"}`,
			[]string{`file Write write /w/a.txt "hello"`}},
		{"claude code edits a file", "Edit", `{"file_path":"/w/a.go","old_string":"rm -rf","new_string":"ls"}`,
			[]string{`file Edit write /w/a.go "ls"`}},
		{"claude code edits a file in several places", "MultiEdit", `{"file_path":"/w/a","edits":[{"old_string":"a","new_string":"b"},{"old_string":"c","new_string":"d"}]}`,
			[]string{`file MultiEdit write /w/a "b\nd"`}},
		{"claude code edits a notebook", "NotebookEdit", `{"notebook_path":"/w/n.ipynb","new_source":"print(1)","cell_type":"code"}`,
			[]string{`file NotebookEdit write /w/n.ipynb "print(1)"`}},
		{"claude code reads a file", "Read", `{"file_path":"/home/u/.ssh/id_ed25519"}`,
			[]string{`file Read read /home/u/.ssh/id_ed25519`}},
		{"claude code starts a sub-agent whose prompt is no command", "Task", `{"prompt":"rm -rf /","subagent_type":"x","command":"/review"}`,
			[]string{`tool Task`}},
		{"claude code reads a shell's output", "BashOutput", `{"bash_id":"b1"}`, []string{`tool BashOutput`}},

		{"copilot runs a command", "bash", `{"command":"make","description":"d","shellId":"0","mode":"sync"}`,
			[]string{`command bash shell "make"`}},
		{"copilot types into a shell", "write_bash", `{"shellId":"0","input":"y\n","delay":1}`,
			[]string{`command write_bash shell "y\n"`}},
		{"copilot creates a file", "create", `{"path":"/w/b","file_text":"x"}`, []string{`file create write /w/b "x"`}},
		{"copilot edits a file", "edit", `{"path":"/w/b","old_str":"x","new_str":"y"}`, []string{`file edit write /w/b "y"`}},
		{"copilot reads a shell", "read_bash", `{"shellId":"0","delay":1}`, []string{`tool read_bash`}},

		{"gemini cli runs a command in a directory", "run_shell_command", `{"command":"ls","description":"l","dir_path":"sub"}`,
			[]string{`command run_shell_command shell "ls" in sub`}},
		{"gemini cli replaces text", "replace", `{"file_path":"/w/c","instruction":"run rm -rf /","old_string":"a","new_string":"b"}`,
			[]string{`file replace write /w/c "b"`}},
		{"gemini cli writes a file", "write_file", `{"file_path":"/w/c","content":""}`, []string{`file write_file write /w/c ""`}},
		{"gemini cli reads several files", "read_many_files", `{"paths":["a","b"]}`,
			[]string{`file read_many_files read a`, `file read_many_files read b`}},

		{"qwen code runs a command in a directory", "run_shell_command", `{"command":"ls","is_background":false,"directory":"/w"}`,
			[]string{`command run_shell_command shell "ls" in /w`}},
		{"qwen code calls through its wrapper", "tool_call", `{"name":"run_shell_command","arguments":{"command":"rm -rf ."}}`,
			[]string{`command run_shell_command shell "rm -rf ."`}},
		{"qwen code calls through its wrapper with encoded arguments", "tool_call", `{"name":"run_shell_command","arguments":"{\"command\":\"rm -rf .\"}"}`,
			[]string{`command run_shell_command shell "rm -rf ."`}},
		{"a wrapper within a wrapper is looked through", "tool_call", `{"name":"tool_call","arguments":{"name":"write_file","arguments":{"file_path":"a","content":"b"}}}`,
			[]string{`file write_file write a "b"`}},
		{"a wrapper around an unknown tool is one", "tool_call", `{"name":"weather","arguments":{"city":"Oslo"}}`,
			[]string{`tool weather ?`}},

		{"opencode runs a command", "bash", `{"command":"npm test","workdir":"/w/app"}`, []string{`command bash shell "npm test" in /w/app`}},
		{"opencode writes a file", "write", `{"content":"x","filePath":"/w/d"}`, []string{`file write write /w/d "x"`}},
		{"opencode edits a file", "edit", `{"filePath":"/w/d","oldString":"x","newString":"y","replaceAll":true}`, []string{`file edit write /w/d "y"`}},
		{"opencode starts a task by a command of its own", "task", `{"description":"d","prompt":"p","subagent_type":"g","command":"/init"}`, []string{`tool task`}},
		{"opencode calls several tools at once", "batch", `{"tool_calls":[{"tool":"bash","parameters":{"command":"ls"}},{"tool":"read","parameters":{"filePath":"a"}}]}`,
			[]string{`command bash shell "ls"`, `file read read a`}},

		{"pi edits a file in several places", "edit", `{"path":"p","edits":[{"oldText":"a","newText":"b"},{"oldText":"c","newText":"d"}]}`,
			[]string{`file edit write p "b\nd"`}},

		{"cline runs several commands in one call", "run_commands", `{"commands":["ls","rm -rf build"]}`,
			[]string{`command run_commands shell "ls"`, `command run_commands shell "rm -rf build"`}},
		{"cline's commands may be objects", "run_commands", `{"commands":[{"command":"rm","args":["-rf","a b"]}]}`,
			[]string{`command run_commands shell "rm -rf 'a b'"`}},
		{"cline edits a file", "editor", `{"path":"p","old_text":"a","new_text":"b","insert_line":3}`, []string{`file editor write p "b"`}},
		{"cline runs one command", "execute_command", `{"command":"ls","requires_approval":false}`, []string{`command execute_command shell "ls"`}},
		{"cline reads files by objects", "read_files", `{"files":[{"path":"a","start_line":1},{"path":"b"}]}`,
			[]string{`file read_files read a`, `file read_files read b`}},
		{"cline calls a server's tool", "use_mcp_tool", `{"server_name":"s","tool_name":"bash","arguments":"{\"command\":\"id\"}"}`,
			[]string{`command bash shell "id"`}},

		{"codex runs a command", "exec_command", `{"cmd":"ls","workdir":"/w","shell":"bash","login":true,"sandbox_permissions":"use_default"}`,
			[]string{`command exec_command shell "ls" in /w`}},
		{"codex asks for more rights", "exec_command", `{"cmd":"ls","sandbox_permissions":"require_escalated","justification":"j"}`,
			[]string{`command exec_command shell "ls"`, `permissions exec_command`}},
		{"codex runs words by an interpreter", "shell", `{"command":["bash","-lc","rm -rf x && ls"],"workdir":"/w"}`,
			[]string{`command shell shell "rm -rf x && ls" in /w`}},
		{"codex runs words", "shell", `{"command":["rm","-rf","my dir","$HOME"]}`,
			[]string{`command shell shell "rm -rf 'my dir' '$HOME'"`}},
		{"codex runs words by powershell", "shell", `{"command":["powershell.exe","-NoProfile","-Command","Remove-Item x"]}`,
			[]string{`command shell powershell "Remove-Item x"`}},
		{"codex runs words by cmd.exe", "shell", `{"command":["C:\\Windows\\System32\\cmd.exe","/c","del","x"]}`,
			[]string{`command shell cmd "del x"`}},
		{"codex runs a command by another shell", "exec_command", `{"cmd":"Remove-Item x","shell":"pwsh.exe"}`,
			[]string{`command exec_command powershell "Remove-Item x"`}},
		{"codex types into a command", "write_stdin", `{"session_id":7,"chars":"rm -rf /\n"}`,
			[]string{`command write_stdin shell "rm -rf /\n"`}},
		{"codex interrupts a command", "write_stdin", `{"session_id":7,"chars":"\u0003"}`, []string{`tool write_stdin`}},
		{"codex polls a command", "write_stdin", `{"session_id":7,"chars":""}`, []string{`tool write_stdin`}},
		{"codex interrupts and types a command", "write_stdin", `{"session_id":7,"chars":"\u0003rm -rf /"}`,
			[]string{`command write_stdin shell "\x03rm -rf /"`}},
		{"copilot asks its database", "sql", `{"query":"DROP TABLE t","description":"d"}`, []string{`command sql sql "DROP TABLE t"`}},
		{"codex patches files by json", "apply_patch", `{"input":"*** Begin Patch\n*** Delete File: a\n*** End Patch"}`,
			[]string{`file apply_patch delete a`}},
		{"codex asks for permissions", "request_permissions", `{"permissions":{"network":true}}`, []string{`permissions request_permissions`}},
		{"a namespace of functions is no other tool", "functions.exec_command", `{"cmd":"ls"}`, []string{`command functions.exec_command shell "ls"`}},

		{"hermes runs a command", "terminal", `{"command":"ls","workdir":"/w","background":false}`, []string{`command terminal shell "ls" in /w`}},
		{"hermes runs code", "execute_code", `{"code":"import os"}`, []string{`command execute_code python "import os"`}},
		{"hermes writes a file", "write_file", `{"path":"p","content":"c"}`, []string{`file write_file write p "c"`}},
		{"hermes patches a file by strings", "patch", `{"mode":"replace","path":"p","old_string":"a","new_string":"b"}`, []string{`file patch write p "b"`}},
		{"hermes patches files by a patch", "patch", `{"mode":"patch","patch":"*** Begin Patch\n*** Update File: /etc/hosts\n@@\n-a\n+b\n*** End Patch"}`,
			[]string{`file patch write /etc/hosts "b\n"`}},

		{"the anthropic bash tool restarts", "bash", `{"restart":true}`, []string{`tool bash`}},
		{"the anthropic editor views", "str_replace_based_edit_tool", `{"command":"view","path":"/w/a"}`,
			[]string{`file str_replace_based_edit_tool read /w/a`}},
		{"the anthropic editor creates", "str_replace_based_edit_tool", `{"command":"create","path":"/w/a","file_text":"x"}`,
			[]string{`file str_replace_based_edit_tool write /w/a "x"`}},
		{"the anthropic editor inserts", "str_replace_editor", `{"command":"insert","path":"/w/a","insert_line":1,"insert_text":"x"}`,
			[]string{`file str_replace_editor write /w/a "x"`}},
		{"the anthropic memory deletes", "memory", `{"command":"delete","path":"/memories/a"}`, []string{`file memory delete /memories/a`}},
		{"the anthropic memory renames", "memory", `{"command":"rename","old_path":"/memories/a","new_path":"/memories/b"}`,
			[]string{`file memory write /memories/a`, `file memory write /memories/b`}},
		{"the anthropic computer moves", "computer", `{"action":"left_click","coordinate":[1,2]}`, []string{`tool computer`}},
		{"a program's tool runs a command", "run", `{"command":"ls"}`, []string{`command run shell "ls"`}},

		{"several calls in one of openai's", "multi_tool_use.parallel", `{"tool_uses":[{"recipient_name":"functions.bash","parameters":{"command":"a"}},{"recipient_name":"functions.write_file","parameters":{"path":"p","content":"c"}}]}`,
			[]string{`command functions.bash shell "a"`, `file functions.write_file write p "c"`}},
	})
}

func TestNoCommandIsLost(t *testing.T) {
	runCases(t, []actionCase{
		{"a key of another case", "Bash", `{"COMMAND":"rm -rf /"}`, []string{`command Bash shell "rm -rf /"`}},
		{"a key that folds by unicode", "run_commands", `{"command\u017f":["rm -rf /"]}`, []string{`command run_commands shell "rm -rf /"`}},
		{"a tool's name of another case", "BASH", `{"command":"rm -rf /"}`, []string{`command BASH shell "rm -rf /"`}},
		{"an editor's command that is none of its words", "str_replace_based_edit_tool", `{"command":"rm -rf /","path":"a"}`,
			[]string{`command str_replace_based_edit_tool shell "rm -rf /" ?`, `file str_replace_based_edit_tool write a`}},
		{"a command that is a number", "Bash", `{"command":7}`, []string{`command Bash unknown "7"`}},
		{"a command that is an object", "Bash", `{"command":{"x":"rm -rf /"}}`,
			[]string{`command Bash shell "rm -rf /"`, `command Bash unknown "{\"x\":\"rm -rf /\"}"`}},
		{"a command that is an object with arguments", "Bash", `{"command":{"cmd":"rm","args":["-rf","/"]}}`,
			[]string{`command Bash shell "rm -rf /"`}},
		{"a command that is a list of objects", "Bash", `{"command":[{"run":"rm -rf /"}]}`,
			[]string{`command Bash shell "rm -rf /"`, `command Bash unknown "{\"run\":\"rm -rf /\"}"`}},
		{"commands that are lists of words", "run_commands", `{"commands":[["rm","-rf","/"],"ls"]}`,
			[]string{`command run_commands shell "rm -rf /"`, `command run_commands shell "ls"`}},
		{"words with a number among them", "shell", `{"command":["rm",1]}`,
			[]string{`command shell shell "rm"`, `command shell unknown "1"`}},
		{"words with a nul byte", "shell", `{"command":["rm","\u0000"]}`, []string{`command shell unknown "rm \x00"`}},
		{"a second command argument", "Bash", `{"command":"ls","script":"rm -rf /"}`,
			[]string{`command Bash shell "ls"`, `command Bash shell "rm -rf /"`}},
		{"arguments beside a command", "terminal", `{"command":"rm","args":["-rf","/"]}`,
			[]string{`command terminal shell "rm -rf /"`}},
		{"arguments as text beside a command", "runner", `{"command":"rm","args":"-rf /"}`,
			[]string{`command runner shell "rm -rf /" ?`}},
		{"arguments that are the command", "Bash", `"rm -rf /"`, []string{`command Bash shell "rm -rf /"`}},
		{"arguments that are encoded twice", "Bash", `"{\"command\":\"rm -rf /\"}"`, []string{`command Bash shell "rm -rf /"`}},
		{"arguments that are a list", "shell", `["rm","-rf","/"]`, []string{`command shell shell "rm -rf /"`}},
		{"a server's tool of a known name", "mcp__box__bash", `{"command":"rm -rf /"}`, []string{`command mcp__box__bash shell "rm -rf /" ?`}},

		{"a server's tool of the name of one whose command is none", "mcp__box__task", `{"command":"rm -rf /"}`,
			[]string{`command mcp__box__task shell "rm -rf /" ?`}},
		{"a server's tool of a known name with a command deep within", "mcp__box__bash", `{"in":{"command":"rm -rf /"}}`,
			[]string{`command mcp__box__bash shell "rm -rf /" ?`}},
		{"a server's tool of the name of a wrapper", "mcp__box__batch", `{"tool_calls":[{"tool":"bash","parameters":{"command":"rm -rf /"}}]}`,
			[]string{`command mcp__box__batch shell "rm -rf /" ?`, `command bash shell "rm -rf /"`}},
		{"an unknown tool with a command", "deploy", `{"command":"rm -rf /"}`, []string{`command deploy shell "rm -rf /" ?`}},
		{"an unknown tool with a command of another name", "deploy", `{"preBuildCommand":"rm -rf /"}`, []string{`command deploy shell "rm -rf /" ?`}},
		{"an unknown tool with path, content and command", "save", `{"path":"p","content":"c","cmd":"rm -rf /"}`,
			[]string{`command save shell "rm -rf /" ?`, `file save write p "c" ?`}},
		{"an unknown tool with words", "deploy", `{"cmd":["rm","-rf","/"]}`, []string{`command deploy shell "rm -rf /" ?`}},
		{"an unknown tool with commands", "deploy", `{"commands":["ls -l","rm -rf /"]}`,
			[]string{`command deploy shell "'ls -l' 'rm -rf /'" ?`, `command deploy shell "ls -l" ?`, `command deploy shell "rm -rf /" ?`}},
		{"an unknown tool with a command deep within", "deploy", `{"steps":[{"params":{"command":"rm -rf /"}}]}`,
			[]string{`command deploy shell "rm -rf /" ?`}},
		{"an unknown tool with an encoded object", "deploy", `{"payload":"{\"command\":\"rm -rf /\"}"}`,
			[]string{`command deploy shell "rm -rf /" ?`}},
		{"an unknown tool that calls a known one", "relay", `{"tool":"write_file","input":{"path":"p","content":"c"}}`,
			[]string{`file relay write p "c" ?`, `file write_file write p "c"`}},
		{"an unknown tool that starts a program", "launch", `{"program":"/bin/rm","args":["-rf","/"]}`,
			[]string{`command launch shell "/bin/rm -rf /" ?`}},
		{"an unknown tool with code of a named language", "eval_it", `{"code":"import os","language":"python"}`,
			[]string{`command eval_it python "import os" ?`}},
		{"an unknown tool with code of a strange language", "eval_it", `{"code":"f(x)","language":"brainfuck"}`,
			[]string{`command eval_it unknown "f(x)" ?`}},
		{"an unknown tool with code of no named language", "eval_it", `{"code":"f(x)"}`, []string{`command eval_it unknown "f(x)" ?`}},
		{"an unknown tool whose name tells the language", "evalPython", `{"code":"f(x)"}`, []string{`command evalPython python "f(x)" ?`}},
		{"an unknown tool with sql", "mcp__pg__run", `{"sql":"DROP TABLE t"}`, []string{`command mcp__pg__run sql "DROP TABLE t" ?`}},
		{"an unknown database tool with a query", "mcp__postgres__query", `{"query":"DROP TABLE t"}`,
			[]string{`command mcp__postgres__query sql "DROP TABLE t" ?`}},
		{"an unknown shell whose arguments are text", "my_shell", `"rm -rf /"`, []string{`command my_shell shell "rm -rf /" ?`}},
		{"a wrapper without a name", "tool_call", `{"arguments":{"command":"rm -rf /"}}`, []string{`command tool_call shell "rm -rf /" ?`}},
		{"a wrapper with the arguments beside the name", "tool_call", `{"name":"bash","command":"rm -rf /"}`, []string{`command bash shell "rm -rf /"`}},
		{"a wrapper with two names", "tool_call", `{"name":"Read","tool":"bash","arguments":{"command":"rm -rf /"}}`,
			[]string{`command Read shell "rm -rf /" ?`, `command bash shell "rm -rf /"`}},
		{"a wrapper with a list that is none", "batch", `{"tool_calls":7}`, []string{`command batch unknown "7" ?`}},
	})
}

func TestUnknownTools(t *testing.T) {
	runCases(t, []actionCase{
		{"one that nothing is known of", "weather", `{"city":"Oslo","code":200,"shell":false}`, []string{`tool weather ?`}},
		{"one without arguments", "ping", `{}`, []string{`tool ping ?`}},
		{"one with null for arguments", "ping", `null`, []string{`tool ping ?`}},
		{"one with path and content writes", "save_note", `{"path":"p","content":"c"}`, []string{`file save_note write p "c" ?`}},
		{"one that is named for reading reads", "fetch_read_doc", `{"path":"p"}`, []string{`file fetch_read_doc read p ?`}},
		{"one that is named for deleting deletes", "removeThing", `{"path":"p"}`, []string{`file removeThing delete p ?`}},
		{"one with a path alone is only a tool", "http", `{"path":"/users"}`, []string{`tool http ?`}},
		{"a code that is a plain word is no code", "country", `{"code":"NO"}`, []string{`command country shell "NO" ?`}},
		{"commands in written content are text", "save_note", `{"path":"p","content":"{\"command\":\"rm -rf /\"}"}`,
			[]string{`file save_note write p "{\"command\":\"rm -rf /\"}" ?`}},
	})
}

func TestASchemaMakesAToolKnown(t *testing.T) {
	c := mustNew(t)
	tools := []toolcall.Tool{
		{Name: "box", Schema: []byte(`{"type":"object","properties":{"command":{"type":"string"},"n":{"type":"number"}}}`)},
		{Name: "put", Schema: []byte(`{"properties":{"path":{"type":"string"},"content":{"type":"string"}}}`)},
		{Name: "mcp__s__bash", Schema: []byte(`{"properties":{"command":{"type":"string"}}}`)},
		{Name: "odd", Schema: []byte(`{"properties":`)},
	}
	for _, tc := range []struct{ name, tool, args, want string }{
		{"a declared command", "box", `{"command":"ls"}`, `command box shell "ls"`},
		{"a declared command of a server", "mcp__s__bash", `{"command":"ls"}`, `command mcp__s__bash shell "ls"`},
		{"a declared file", "put", `{"path":"p","content":"c"}`, `file put write p "c"`},
		{"an argument that is not declared", "put", `{"cmd":"ls"}`, `command put shell "ls" ?`},
		{"a schema that is not json", "odd", `{"command":"ls"}`, `command odd shell "ls" ?`},
		{"a tool that was not offered", "other", `{"command":"ls"}`, `command other shell "ls" ?`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := briefs(c.Actions(toolcall.Call{Name: tc.tool, Args: []byte(tc.args)}, tools))
			if diff := cmp.Diff([]string{tc.want}, got); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFreeText(t *testing.T) {
	c := mustNew(t)
	patch := "*** Begin Patch\n*** Add File: new.txt\n+one\n+two\n*** Update File: old.txt\n*** Move to: /etc/cron.d/x\n@@\n-a\n+b\n*** Delete File: gone\n*** End Patch\n"
	diff := "--- a/x.go\n+++ b/x.go\n@@ -1 +1 @@\n-a\n+b\n--- a/y\n+++ /dev/null\n"
	for _, tc := range []struct {
		name, tool, text string
		want             []string
	}{
		{"a patch of codex", "apply_patch", patch, []string{
			`file apply_patch write new.txt "one\ntwo\n"`, `file apply_patch write old.txt`,
			`file apply_patch write /etc/cron.d/x "b\n"`, `file apply_patch delete gone`}},
		{"a unified diff", "apply_patch", diff, []string{`file apply_patch write x.go "b\n"`, `file apply_patch delete y`}},
		{"a patch that names no file", "apply_patch", "@@ what", []string{`file apply_patch write  "@@ what"`}},
		{"a patch of an unknown tool", "fix", patch, []string{
			`file fix write new.txt "one\ntwo\n" ?`, `file fix write old.txt ?`, `file fix write /etc/cron.d/x "b\n" ?`, `file fix delete gone ?`}},
		{"codex in code mode", "exec", `const r = await tools.exec_command({cmd:"rm"})`, []string{`command exec javascript "const r = await tools.exec_command({cmd:\"rm\"})"`}},
		{"a known shell", "shell", "rm -rf /", []string{`command shell shell "rm -rf /"`}},
		{"a known shell without a form of its own", "terminal", "rm -rf /", []string{`command terminal shell "rm -rf /"`}},
		{"an unknown shell", "remote-shell", "rm -rf /", []string{`command remote-shell shell "rm -rf /" ?`}},
		{"unknown python", "py_cell", "import os", []string{`command py_cell python "import os" ?`}},
		{"a tool that nothing is known of", "poem", "roses are red", []string{`tool poem ?`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := briefs(c.Actions(toolcall.Call{Name: tc.tool, Args: []byte(tc.text), Text: true}, nil))
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("actions (-want +got):\n%s", d)
			}
		})
	}
}

func TestOfAFaultyCallOnlyTheToolIsTold(t *testing.T) {
	got := mustNew(t).Actions(toolcall.Call{Name: "Bash", Args: []byte(`{"command":`), Fault: toolcall.FaultArguments}, nil)
	if d := cmp.Diff([]string{"tool Bash ?"}, briefs(got)); d != "" {
		t.Error(d)
	}
}

func TestWhatLiesTooDeepIsAskedFor(t *testing.T) {
	for name, build := range map[string]func(inner string) string{
		"wrappers": func(in string) string { return `{"name":"tool_call","arguments":` + in + `}` },
		"objects":  func(in string) string { return `{"a":` + in + `}` },
		"lists":    func(in string) string { return `{"a":[` + in + `]}` },
		"commands": func(in string) string { return `{"command":[` + in + `]}` },
	} {
		t.Run(name, func(t *testing.T) {
			args := `{"command":"rm -rf /"}`
			for range 60 {
				args = build(args)
			}
			tool := "tool_call"
			if name != "wrappers" {
				tool = "strange"
			}
			for _, a := range mustNew(t).Actions(toolcall.Call{Name: tool, Args: []byte(args)}, nil) {
				if a.Kind == toolcall.KindCommand && a.Language == toolcall.LangUnknown && strings.Contains(a.Command, "rm -rf /") {
					return
				}
			}
			t.Error("no action holds the command")
		})
	}
}

func TestNestingDoesNotMultiplyTheWork(t *testing.T) {
	args := `{"command":"rm -rf /"}`
	for range 14 {
		args = `{"name":"tool_call","tool":"tool_call","arguments":` + args + `,"input":` + args + `}`
		if len(args) > 1<<19 {
			break
		}
	}
	got := mustNew(t).Actions(toolcall.Call{Name: "tool_call", Args: []byte(args)}, nil)
	last := got[len(got)-1]
	if last.Language != toolcall.LangUnknown || last.Command != args {
		t.Errorf("after %d actions the last is not the call as a whole", len(got))
	}
}

func TestABrokenCatalogueIsRefused(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"unknown key":           {"- tools: [a]\n  kind: tool\n  colour: red\n", "unknown field"},
		"unknown kind":          {"- tools: [a]\n  kind: tools\n", `"tools" is no kind`},
		"unknown operation":     {"- tools: [a]\n  kind: file\n  op: eat\n", `"eat" is no operation`},
		"unknown language":      {"- tools: [a]\n  kind: tool\n  language: perl\n", `"perl" is no language`},
		"unknown text":          {"- tools: [a]\n  kind: tool\n  text: perl\n", `"perl" is no form of text`},
		"no tool":               {"- kind: tool\n", "names no tool"},
		"command of nothing":    {"- tools: [a]\n  kind: command\n", "needs an argument"},
		"argv of nothing":       {"- tools: [a]\n  kind: command\n  command: [b]\n  argv: [c]\n", `"c" is none`},
		"switch to nothing":     {"- tools: [a]\n  kind: file\n  switch: {argument: b, ops: {c: d}}\n", `"d" is no operation`},
		"wrapper of nothing":    {"- tools: [a]\n  kind: tool\n  wrapper: {name: [b]}\n", "needs name and arguments"},
		"tool in two entries":   {"- tools: [a_b]\n  kind: tool\n- tools: [AB]\n  kind: tool\n", "AB stands in two entries"},
		"not a list of entries": {"a: b\n", "catalog: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse([]byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestFoldTakesNamesThatTwoReadersCouldConfuseForOne(t *testing.T) {
	for a, b := range map[string]string{
		"file_path": "filePath", "COMMAND": "command", "command\u017f": "commands", "\u212aey": "key", "É": "é", "run-shell command": "runShellCommand",
	} {
		if fold(a) != fold(b) {
			t.Errorf("fold(%q) = %q, fold(%q) = %q", a, fold(a), b, fold(b))
		}
	}
	if fold("command") == fold("comment") {
		t.Error("two names became one")
	}
}

// FuzzActions checks the package's promises on any call.
func FuzzActions(f *testing.F) {
	for _, s := range []string{
		`{"command":"ls"}`, `{"commands":["a",["b"],{"command":"c","args":["d"]}]}`, `{"name":"bash","arguments":"{\"cmd\":\"x\"}"}`,
		`{"tool_uses":[{"recipient_name":"functions.shell","parameters":{"command":["bash","-lc","x"]}}]}`, `"x"`, `null`, `[1,{"code":"f()"}]`,
		`{"path":"a","edits":[{"oldText":"a","newText":"b"}]}`, "*** Begin Patch\n*** Add File: x\n+y\n",
	} {
		for _, tool := range []string{"Bash", "tool_call", "batch", "weather", "apply_patch"} {
			f.Add(tool, s, false)
		}
		f.Add("exec", s, true)
	}
	c := mustNew(f)
	f.Fuzz(func(t *testing.T, tool, args string, text bool) {
		if !text && strictjson.Validate([]byte(args), strictjson.Options{}) != nil {
			return
		}
		call := toolcall.Call{Name: tool, Args: []byte(args), Text: text}
		got := c.Actions(call, nil)
		if len(got) == 0 {
			t.Fatal("no action")
		}
		for _, a := range got {
			if a.Kind == toolcall.KindCommand && a.Language == "" {
				t.Errorf("a command without a language: %s", brief(a))
			}
		}
		if diff := cmp.Diff(got, c.Actions(call, nil)); diff != "" {
			t.Errorf("two readings differ:\n%s", diff)
		}
		if text {
			return
		}
		// Whatever else the arguments are, a command among them comes out.
		const marker = "rm -rf /marker"
		body := fmt.Sprintf(`{"x":%s,"command":%q}`, args, marker)
		for _, name := range []string{"Bash", "weather", "exec_command"} {
			found := false
			for _, a := range c.Actions(toolcall.Call{Name: name, Args: []byte(body)}, nil) {
				found = found || a.Kind == toolcall.KindCommand && a.Command == marker
			}
			if !found {
				t.Errorf("%s lost the command of %s", name, body)
			}
		}
	})
}

func BenchmarkActions(b *testing.B) {
	c := mustNew(b)
	long := `{"file_path":"/w/a.go","content":"` + strings.Repeat("some line of text\\n", 2000) + `"}`
	for _, bc := range []struct{ name, tool, args string }{
		{"bash", "Bash", `{"command":"go test ./...","description":"Run the tests","timeout":120000}`},
		{"words", "shell", `{"command":["bash","-lc","go test ./..."],"workdir":"/w"}`},
		{"write 36 KB", "Write", long},
		{"unknown", "weather", `{"city":"Oslo","days":3,"units":{"temperature":"C"}}`},
	} {
		b.Run(bc.name, func(b *testing.B) {
			call := toolcall.Call{Name: bc.tool, Args: []byte(bc.args)}
			b.ReportAllocs()
			for b.Loop() {
				c.Actions(call, nil)
			}
		})
	}
}
