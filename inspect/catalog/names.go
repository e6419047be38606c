package catalog

import (
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"callgate/inspect/toolcall"
)

// The names below are folded: they stand for all ways of writing them.
var (
	commandNames = []string{"script", "shell", "bash", "powershell", "code", "argv", "shellscript", "commandlines"}
	commandEnds  = []string{"command", "commands", "cmd", "cmds", "commandline", "cmdline"}
	programNames = []string{"program", "executable", "binary", "exe"}
	restNames    = []string{"args", "arguments", "argv", "params"}
	dirNames     = []string{"workdir", "cwd", "workingdirectory", "workingdir", "dirpath", "directory"}
	pathNames    = []string{"path", "filepath", "file", "filename", "targetfile", "absolutepath", "destination", "targetpath", "outputpath", "outputfile"}
	contentNames = []string{"content", "contents", "filetext", "filecontent", "text", "data", "body", "newtext", "newstring", "newstr", "newcontent", "newsource"}
	langNames    = []string{"language", "lang", "runtime", "interpreter"}

	deleteWords = []string{"delete", "remove", "unlink", "trash", "erase"}
	readWords   = []string{"read", "view", "cat", "open", "get", "list", "search", "find", "glob", "grep", "show", "head", "tail"}
	sqlWords    = []string{"sql", "db", "database", "postgres", "postgresql", "mysql", "sqlite", "mariadb", "psql"}
	shellWords  = []string{"shell", "bash", "terminal", "command", "cmd", "exec", "zsh", "console"}
)

// namedLikeCommand says that an argument of that folded name may hold a
// command.
func namedLikeCommand(name string) bool {
	if slices.Contains(commandNames, name) {
		return true
	}
	return slices.ContainsFunc(commandEnds, func(end string) bool { return strings.HasSuffix(name, end) })
}

// namedLikeSQL says that an argument of that folded name may hold SQL, given
// the tool's name.
func namedLikeSQL(tool, name string) bool {
	return strings.HasPrefix(name, "sql") || (name == "query" || name == "statement") && saysAny(tool, sqlWords)
}

// mayBeCommand says that a value can hold a command where nothing but the
// argument's name speaks for one: a number or a flag can not.
func mayBeCommand(v gjson.Result) bool {
	return v.Type == gjson.String && v.String() != "" || v.IsArray() || v.IsObject()
}

// restOf gives the list of arguments that stands beside a command.
func restOf(fs []field, command field) gjson.Result {
	for _, f := range fs {
		if f.name != command.name && slices.Contains(restNames, f.name) && (f.value.IsArray() || f.value.Type == gjson.String) {
			return f.value
		}
	}
	return gjson.Result{}
}

// nameWords splits a tool's name into its words, in small letters.
func nameWords(name string) []string {
	var b strings.Builder
	small := false
	for _, r := range name {
		upper := r >= 'A' && r <= 'Z'
		if upper && small {
			b.WriteByte(' ')
		}
		small = r >= 'a' && r <= 'z'
		b.WriteRune(r)
	}
	return strings.FieldsFunc(strings.ToLower(b.String()), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
}

func saysAny(name string, words []string) bool {
	return slices.ContainsFunc(nameWords(name), func(w string) bool { return slices.Contains(words, w) })
}

func saysShell(name string) bool { return saysAny(name, shellWords) }

var languageWords = map[string]string{
	"sh": toolcall.LangShell, "bash": toolcall.LangShell, "shell": toolcall.LangShell, "zsh": toolcall.LangShell,
	"powershell": toolcall.LangPowerShell, "pwsh": toolcall.LangPowerShell, "ps1": toolcall.LangPowerShell,
	"cmd": toolcall.LangCmd, "bat": toolcall.LangCmd, "batch": toolcall.LangCmd,
	"python": toolcall.LangPython, "python3": toolcall.LangPython, "py": toolcall.LangPython, "ipython": toolcall.LangPython, "jupyter": toolcall.LangPython,
	"javascript": toolcall.LangJavaScript, "js": toolcall.LangJavaScript, "node": toolcall.LangJavaScript, "nodejs": toolcall.LangJavaScript,
	"typescript": toolcall.LangJavaScript, "ts": toolcall.LangJavaScript, "deno": toolcall.LangJavaScript, "bun": toolcall.LangJavaScript,
}

// language tells what a command argument is written in. base is what the
// catalogue says of the tool; an argument beside it that names the language
// (or the shell that runs it) goes before, and the name code says that it is
// no shell line unless something else does.
func (r *reader) language(base, tool string, f field, fs []field) string {
	for _, other := range fs {
		if other.name == f.name || other.value.Type != gjson.String {
			continue
		}
		if slices.Contains(langNames, other.name) || other.name == "shell" {
			if l, ok := languageWords[programName(other.value.String())]; ok {
				return l
			}
			if other.name != "shell" {
				return toolcall.LangUnknown
			}
		}
	}
	if f.name == "powershell" {
		return toolcall.LangPowerShell
	}
	if namedLikeSQL(tool, f.name) {
		return toolcall.LangSQL
	}
	if f.name != "code" || base != toolcall.LangShell {
		return base
	}
	for _, w := range nameWords(tool) {
		if l, ok := languageWords[w]; ok {
			return l
		}
	}
	if isWord(f.value.String()) {
		return toolcall.LangShell // a bare word is a program's name or nothing
	}
	return toolcall.LangUnknown
}

// isWord says that a text is one plain word, such as a code of a country.
func isWord(s string) bool {
	return len(s) <= 32 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '.'
	})
}
