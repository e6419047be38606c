package catalog

import (
	"path"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	"mvdan.cc/sh/v3/syntax"

	"callgate/inspect/toolcall"
)

// reading says how a value that stands for a command is to be read.
type reading struct {
	tool, lang, dir string
	known           bool
	// argv: a list of words is one command line. either: it may be that or a
	// list of commands, so it is read both ways.
	argv, either bool
	// rest is the list of arguments that stands beside the command.
	rest gjson.Result
}

func (r *reader) emit(a reading, text, lang string) {
	r.out = append(r.out, toolcall.Action{
		Kind: toolcall.KindCommand, Tool: a.tool, Known: a.known, Command: text, Language: lang, Dir: a.dir,
	})
}

// command gives out the command or the commands that a value holds. A value
// of a kind that holds none is given out raw, so that somebody is asked.
func (r *reader) command(a reading, v gjson.Result, depth int) {
	switch {
	case !r.spend(v), v.Type == gjson.Null:
	case v.Type == gjson.String:
		line, ok := withRest(v.String(), a.rest)
		if !ok {
			r.unread(a.tool, a.rest)
		}
		r.emit(a, line, a.lang)
	case v.IsArray():
		r.commandList(a, v, depth)
	case v.IsObject():
		r.commandObject(a, v, depth)
	default:
		r.emit(a, v.Raw, toolcall.LangUnknown)
	}
}

// commandList reads a list: words of one command line, or commands.
func (r *reader) commandList(a reading, v gjson.Result, depth int) {
	words, all := stringsOf(v)
	if all && len(words) == 0 {
		return
	}
	if all && (a.argv || a.either) {
		if rest, ok := stringsOf(a.rest); ok {
			words = append(words, rest...)
		}
		r.argv(a, words)
		if a.argv {
			return
		}
	}
	inner := a
	inner.argv, inner.either, inner.rest = true, false, gjson.Result{}
	v.ForEach(func(_, e gjson.Result) bool {
		// Of what may be words, those with white space may be commands.
		if a.either && e.Type == gjson.String && all && !strings.ContainsAny(e.String(), " \t\n;|&$`(<>") {
			return true
		}
		if depth > maxDepth {
			r.unread(a.tool, e)
			return true
		}
		r.command(inner, e, depth+1)
		return true
	})
}

// commandObject reads a command that is an object: {command, args} is one;
// of any other each text is given out and the whole as well.
func (r *reader) commandObject(a reading, v gjson.Result, depth int) {
	fs := fields(v)
	if depth > maxDepth {
		r.unread(a.tool, v)
		return
	}
	before, odd := len(r.out), false
	if dir := firstString(fs, dirNames); dir != "" {
		a.dir = dir
	}
	for _, f := range fs {
		switch {
		case namedLikeCommand(f.name) && mayBeCommand(f.value):
			b := a
			b.argv, b.either, b.rest = true, false, restOf(fs, f)
			r.command(b, f.value, depth+1)
		case slices.Contains(restNames, f.name), slices.Contains(dirNames, f.name), f.value.Type != gjson.String && !f.value.IsObject() && !f.value.IsArray():
		default:
			odd = true
		}
	}
	if len(r.out) > before && !odd {
		return
	}
	for _, text := range allStrings(nil, v, 0) {
		r.emit(a, text, a.lang)
	}
	// Deep within the data of an unknown tool an object of that name is more
	// likely to be data than a command.
	if a.known || depth == 0 {
		r.emit(a, v.Raw, toolcall.LangUnknown)
	}
}

// allStrings appends every text within a value.
func allStrings(out []string, v gjson.Result, depth int) []string {
	if v.Type == gjson.String {
		return append(out, v.String())
	}
	if depth > maxDepth || !v.IsObject() && !v.IsArray() {
		return out
	}
	v.ForEach(func(_, e gjson.Result) bool {
		out = allStrings(out, e, depth+1)
		return true
	})
	return out
}

// program reads {program, args}, where only the arguments tell that a program
// is run.
func (r *reader) program(tool, dir string, fs []field) {
	for _, f := range fs {
		if f.value.Type == gjson.String && slices.Contains(programNames, f.name) {
			if rest := restOf(fs, f); rest.Exists() {
				r.command(reading{tool: tool, lang: toolcall.LangShell, dir: dir, rest: rest}, f.value, 0)
			}
		}
	}
}

// argv gives out a list of words as one command line. What an interpreter
// is handed with -c is given out as the script it is.
func (r *reader) argv(a reading, words []string) {
	if script, lang, ok := scriptOf(words); ok {
		r.emit(a, script, lang)
		return
	}
	line, err := quoteAll(words)
	if err != nil {
		r.emit(a, strings.Join(words, " "), toolcall.LangUnknown)
		return
	}
	r.emit(a, line, toolcall.LangShell)
}

// quoteAll writes words as a shell line that splits into them again.
func quoteAll(words []string) (string, error) {
	quoted := make([]string, len(words))
	for i, w := range words {
		q, err := syntax.Quote(w, syntax.LangBash)
		if err != nil {
			return "", err
		}
		quoted[i] = q
	}
	return strings.Join(quoted, " "), nil
}

// withRest appends the arguments that stand beside a command; ok is false when
// they cannot be read as words.
func withRest(line string, rest gjson.Result) (string, bool) {
	switch {
	case !rest.Exists() || rest.Type == gjson.Null:
		return line, true
	case rest.Type == gjson.String:
		return line + " " + rest.String(), true
	}
	words, all := stringsOf(rest)
	if !all {
		return line, false
	}
	tail, err := quoteAll(words)
	if err != nil {
		return line, false
	}
	if tail == "" {
		return line, true
	}
	return line + " " + tail, true
}

// stringsOf gives the texts of a list and whether it holds nothing else.
func stringsOf(v gjson.Result) (words []string, all bool) {
	if !v.IsArray() {
		return nil, false
	}
	all = true
	v.ForEach(func(_, e gjson.Result) bool {
		if e.Type != gjson.String {
			all = false
			return false
		}
		words = append(words, e.String())
		return true
	})
	return words, all
}

var (
	posixShells  = []string{"sh", "bash", "zsh", "dash", "ksh", "ash", "mksh"}
	powerShells  = []string{"powershell", "pwsh"}
	quietPSFlags = []string{"-noprofile", "-nologo", "-noninteractive"}
)

// scriptOf takes the script out of bash -lc SCRIPT and its like.
func scriptOf(words []string) (script, lang string, ok bool) {
	if len(words) < 3 {
		return "", "", false
	}
	prog := programName(words[0])
	last, flag := words[len(words)-1], strings.ToLower(words[len(words)-2])
	switch {
	case slices.Contains(posixShells, prog):
		if len(words) == 3 && isShellC(words[1]) {
			return last, toolcall.LangShell, true
		}
	case slices.Contains(powerShells, prog):
		for _, w := range words[1 : len(words)-2] {
			if !slices.Contains(quietPSFlags, strings.ToLower(w)) {
				return "", "", false
			}
		}
		if flag == "-command" || flag == "-c" {
			return last, toolcall.LangPowerShell, true
		}
	case prog == "cmd":
		if strings.EqualFold(words[1], "/c") || strings.EqualFold(words[1], "/k") {
			return strings.Join(words[2:], " "), toolcall.LangCmd, true
		}
	}
	return "", "", false
}

// programName is the last part of a program's path, without .exe.
func programName(word string) string {
	name := strings.ToLower(path.Base(strings.ReplaceAll(word, `\`, "/")))
	return strings.TrimSuffix(name, ".exe")
}

// isShellC says that a flag is -c with letters that do not change what the
// script means.
func isShellC(flag string) bool {
	letters, ok := strings.CutPrefix(flag, "-")
	return ok && strings.HasSuffix(letters, "c") && strings.Trim(letters, "lieux") == "c"
}
