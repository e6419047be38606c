package detect

import (
	"strings"

	"callgate/inspect/toolcall"
)

// interpreter is a program that runs code in a language of its own.
type interpreter struct {
	lang   string
	code   []string // options whose value is code
	values string   // other short options that take a value
	long   string   // other long options that take the next word
	// filter are options that make the code a filter of text lines.
	filter string
}

var interpreters = map[string]interpreter{
	"python": pythonProgram, "python2": pythonProgram, "python3": pythonProgram, "pypy": pythonProgram, "pypy3": pythonProgram,
	"python3.8": pythonProgram, "python3.9": pythonProgram, "python3.10": pythonProgram, "python3.11": pythonProgram, "python3.12": pythonProgram, "python3.13": pythonProgram, "python3.14": pythonProgram, "python2.7": pythonProgram, "ipython": pythonProgram, "jython": pythonProgram,
	"node": nodeProgram, "nodejs": nodeProgram, "bun": {lang: toolcall.LangJavaScript, code: []string{"e", "eval", "p", "print"}}, "deno": {lang: toolcall.LangJavaScript}, "tsx": nodeProgram, "ts-node": nodeProgram, "js": {lang: toolcall.LangJavaScript, code: []string{"e"}}, "jjs": {lang: toolcall.LangJavaScript}, "jrunscript": {lang: toolcall.LangJavaScript, code: []string{"e"}, values: "lfc"}, "rhino": {lang: toolcall.LangJavaScript, code: []string{"e"}},
	"perl": perlProgram, "ruby": {lang: "Ruby", code: []string{"e"}, values: "IrCEFKTWx", filter: "np"}, "jruby": {lang: "Ruby", code: []string{"e"}, values: "IrCE"}, "irb": {lang: "Ruby"},
	"php": {lang: "PHP", code: []string{"r", "B", "R", "E"}, values: "dczfSt"}, "lua": {lang: "Lua", code: []string{"e"}, values: "l"}, "luajit": {lang: "Lua", code: []string{"e"}, values: "lj"}, "tclsh": {lang: "Tcl"}, "wish": {lang: "Tcl"}, "expect": {lang: "Tcl", code: []string{"c"}},
	"julia": {lang: "Julia", code: []string{"e", "E", "eval", "print"}, values: "LtpCJ"}, "rscript": {lang: "R", code: []string{"e"}}, "Rscript": {lang: "R", code: []string{"e"}}, "R": {lang: "R", code: []string{"e"}, values: "fg"}, "osascript": {lang: "AppleScript", code: []string{"e"}, values: "ls"}, "groovy": {lang: "Groovy", code: []string{"e"}}, "scala": {lang: "Scala", code: []string{"e"}},
	"elixir": {lang: "Elixir", code: []string{"e", "eval"}}, "erl": {lang: "Erlang", code: []string{"eval"}}, "ghc": {lang: "Haskell", code: []string{"e"}}, "guile": {lang: "Scheme", code: []string{"c"}, values: "lse"}, "racket": {lang: "Racket", code: []string{"e"}}, "octave": octaveProgram, "octave-cli": octaveProgram, "clisp": {lang: "Lisp", code: []string{"x"}}, "sbcl": {lang: "Lisp", code: []string{"eval"}, long: "eval load"}, "emacs": {lang: "Lisp", code: []string{"eval"}, long: "eval load"}, "gdb": {lang: "GDB", code: []string{"ex", "eval-command", "eval"}, values: "p", long: "ex eval-command batch-command"}, "swift": {lang: "Swift", code: []string{"e"}},
	"pwsh": powershellProgram, "powershell": powershellProgram, "cmd": {lang: toolcall.LangCmd, code: []string{"c", "k"}}, "jshell": {lang: "Java"}, "raku": {lang: "Raku", code: []string{"e"}}, "m4": {lang: "m4"}, "dc": {lang: "dc", code: []string{"e", "expression"}}, "gnuplot": {lang: "gnuplot", code: []string{"e"}, values: "dp"},
}

var (
	pythonProgram     = interpreter{lang: toolcall.LangPython, code: []string{"c"}, values: "WXQm", long: "check-hash-based-pycs"}
	nodeProgram       = interpreter{lang: toolcall.LangJavaScript, code: []string{"e", "eval", "p", "print"}, values: "rC", long: "require import loader conditions experimental-loader env-file title input-type"}
	perlProgram       = interpreter{lang: "Perl", code: []string{"e", "E"}, values: "IMmFCDx", filter: "np"}
	octaveProgram     = interpreter{lang: "Octave", code: []string{"eval"}, long: "eval path"}
	powershellProgram = interpreter{lang: toolcall.LangPowerShell, code: []string{"command", "c", "encodedcommand", "enc", "ec", "e"}}
)

// interpret is an interpreter as a program: with inline code, with a script, or
// with its code on standard input.
func (s *shell) interpret(c *cmd, in interpreter) stream {
	out := stream{from: c.in.from | fromCode}
	if in.lang == toolcall.LangPowerShell || in.lang == toolcall.LangCmd {
		s.windows(c, in)
		return out
	}
	args, code := s.inlineCode(c, in)
	if code {
		return out
	}
	o := parseOptions(args, in.values, in.long, true)
	if c.name == "bun" || c.name == "deno" {
		return s.javascriptTool(c)
	}
	if f, ok := o.get("m"); ok && f.has && in.lang == toolcall.LangPython {
		return s.pythonModule(f.val, o.operands, c)
	}
	if o.has("version", "help") || o.exact("V", "v", "h") && len(o.operands) == 0 {
		return out
	}
	if len(o.operands) > 0 && o.operands[0].text != "-" {
		s.interpretFile(c, in, o.operands)
		return out
	}
	switch {
	case c.in.from&fromNet != 0:
		s.r.report("remote.run", c.at, "")
	case c.in.from&fromDecode != 0:
		s.r.report("code.encoded", c.at, "")
	case c.in.known && c.in.text != "":
		s.codeWords(field{text: c.in.text, at: c.at})
		s.r.read(in.lang, text{s: c.in.text, at: c.at, dir: s.dir})
	case c.in.piped && c.in.from&^fromSecret != fromFile:
		s.r.report("code.unread", c.at, languageName(in.lang)+" from another command")
	case !c.in.piped && in.lang == "Tcl":
		s.r.report("escape.shell", c.at, "")
	}
	return out
}

// inlineCode reads the code in a program's options, if there is any, and gives
// the arguments without bundles that the option parser would misread.
func (s *shell) inlineCode(c *cmd, in interpreter) ([]field, bool) {
	found := false
	o := parseOptions(c.args, in.values+shortOf(in.code), in.long+" "+strings.Join(longOf(in.code), " "), true)
	filter := false
	for _, f := range o.flags {
		filter = filter || in.filter != "" && !f.long && strings.Contains(in.filter, f.name)
		if f.name == "i" && in.filter != "" {
			for _, op := range o.operands {
				s.checkWord(op, accessWrite)
			}
		}
	}
	for _, f := range o.flags {
		for _, name := range in.code {
			if f.name != name || !f.has {
				continue
			}
			found = true
			s.codeWords(f.val)
			switch {
			case f.val.from&fromNet != 0:
				s.r.report("remote.run", f.val.at, "")
			case f.val.from&fromDecode != 0:
				s.r.report("code.encoded", f.val.at, "")
			case filter && f.val.known() && harmlessFilter(f.val.text):
			default:
				s.r.read(in.lang, text{s: f.val.text, at: f.val.at, dir: s.dir})
			}
		}
	}
	if found {
		for _, op := range o.operands {
			s.checkWord(op, accessRead)
		}
	}
	return c.args, found
}

func shortOf(names []string) string {
	out := ""
	for _, n := range names {
		if len(n) == 1 {
			out += n
		}
	}
	return out
}

func longOf(names []string) []string {
	var out []string
	for _, n := range names {
		if len(n) > 1 {
			out = append(out, n)
		}
	}
	return out
}

// codeWords looks for the paths that code in another language names.
func (s *shell) codeWords(f field) {
	s.r.bytes(len(f.text))
	for _, t := range pathsIn(f.text) {
		pl := s.r.d.places.locate(t, s.dir)
		switch {
		case pl.own:
			s.r.report("self.read", f.at, pl.path)
		case pl.secret:
			s.r.readPlace(pl, f.at)
		case pl.persist && pl.kind != placeWork:
			s.r.report("persist.write", f.at, pl.path)
		}
	}
}

// interpretFile is a script in a file.
func (s *shell) interpretFile(c *cmd, in interpreter, ops []field) {
	f := ops[0]
	st := s.fileStream(f)
	switch {
	case f.from&fromNet != 0 || st.from&fromNet != 0:
		s.r.report("remote.run", c.at, "")
	case st.from&fromDecode != 0:
		s.r.report("code.encoded", c.at, "")
	case strings.HasPrefix(f.text, "http://"), strings.HasPrefix(f.text, "https://"):
		s.r.report("remote.run", c.at, f.text)
	}
	a := accessRead
	if c.name == "emacs" {
		a = accessAny
	}
	for _, f := range ops {
		s.checkWord(f, a)
	}
}

// pythonModule is python -m.
func (s *shell) pythonModule(m field, args []field, c *cmd) stream {
	switch m.text {
	case "pip", "pip3", "pipx", "uv", "awscli":
		if m.text == "awscli" {
			m.text = "aws"
		}
		return s.exec(append([]field{m}, args...), c.in)
	}
	for _, a := range args {
		s.checkWord(a, accessRead)
	}
	return stream{from: fromCode}
}

// javascriptTool is bun or deno with a subcommand.
func (s *shell) javascriptTool(c *cmd) stream {
	o := parseOptions(c.args, "", "", false)
	if len(o.operands) == 0 || o.operands[0].text == "-" {
		if c.in.piped {
			s.runStream(c.in, c.at, nil)
		}
		return stream{from: fromCode}
	}
	sub := o.operands[0].text
	rest := o.operands[1:]
	switch {
	case c.name == "deno" && sub == "eval" && len(rest) > 0:
		s.r.read(toolcall.LangJavaScript, text{s: rest[0].text, at: rest[0].at, dir: s.dir})
	case (sub == "x" || sub == "exec") && len(rest) > 0 && c.name == "bun":
		return s.exec(rest, c.in)
	case len(rest) > 0 && sub == "run":
		s.interpretFile(c, interpreters[c.name], rest)
	}
	s.judge(c)
	return stream{from: fromCode}
}

// windows is powershell or cmd started from a shell.
func (s *shell) windows(c *cmd, in interpreter) {
	for i, a := range c.args {
		low := strings.ToLower(strings.TrimLeft(a.text, "-/"))
		if low == "version" || low == "help" || low == "?" {
			return
		}
		if (a.text[:min(1, len(a.text))] == "-" || a.text[:min(1, len(a.text))] == "/") && low != "" && (strings.HasPrefix("encodedcommand", low) || low == "ec" || low == "enc") && low != "c" {
			s.r.report("code.encoded", c.at, "")
			return
		}
		if f := strings.ToLower(a.text); (f == "-file" || f == "-f") && i+1 < len(c.args) {
			s.interpretFile(c, in, c.args[i+1:])
			return
		}
	}
	switch {
	case c.in.from&fromNet != 0:
		s.r.report("remote.run", c.at, "")
	case len(c.args) == 0 && !c.in.piped:
		s.r.report("escape.shell", c.at, "")
	}
	if len(c.args) > 0 || c.in.piped {
		f := joinFields(s, c.args)
		s.r.read(in.lang, text{s: f.text + c.in.text, at: c.at, dir: s.dir})
	}
}

// codeReader stands for a language that has no reader of its own: its code is a
// finding, unless all it does is to print constants.
type codeReader struct{ lang string }

func (c codeReader) read(r *run, t text) {
	if strings.TrimSpace(t.s) == "" || printsOnly(t.s) {
		return
	}
	r.report("code.unread", t.at, languageName(c.lang))
}

func languageName(lang string) string {
	switch lang {
	case toolcall.LangPython:
		return "Python"
	case toolcall.LangJavaScript:
		return "JavaScript"
	case toolcall.LangPowerShell:
		return "PowerShell"
	case toolcall.LangCmd:
		return "cmd.exe"
	}
	return lang
}

// printsOnly says whether code only imports installed modules and prints
// constants and plain names.
func printsOnly(code string) bool {
	for _, st := range strings.FieldsFunc(code, func(r rune) bool { return r == ';' || r == '\n' }) {
		st = strings.TrimSpace(st)
		if st != "" && !strings.HasPrefix(st, "# ") && !isImport(st) && !isPrint(st) {
			return false
		}
	}
	return true
}

// isImport says whether a statement is Python's import of whole modules or
// names.
func isImport(st string) bool {
	if rest, ok := strings.CutPrefix(st, "from "); ok {
		mod, names, ok := strings.Cut(rest, " import ")
		return ok && isName(strings.TrimSpace(mod)) && isNames(names)
	}
	rest, ok := strings.CutPrefix(st, "import ")
	return ok && isNames(rest)
}

// isNames says whether t is a list of names, each perhaps with "as NAME".
func isNames(t string) bool {
	for _, n := range strings.Split(t, ",") {
		n, as, ok := strings.Cut(strings.TrimSpace(n), " as ")
		if !isName(n) || ok && !isName(as) {
			return false
		}
	}
	return true
}

// isName says whether t is a dotted name.
func isName(t string) bool {
	for _, p := range strings.Split(t, ".") {
		if p == "" || p[0] >= '0' && p[0] <= '9' {
			return false
		}
		for i := 0; i < len(p); i++ {
			if !wordByte(p[i]) || p[i] == 0 || p[i] == '$' {
				return false
			}
		}
	}
	return true
}

// isPrint says whether a statement prints constants and plain names.
func isPrint(st string) bool {
	for _, p := range [...]string{"print", "puts", "echo", "console.log", "say"} {
		rest, ok := strings.CutPrefix(st, p)
		if !ok || rest == "" {
			continue
		}
		spaced := rest[0] == ' '
		if rest = strings.TrimSpace(rest); strings.HasPrefix(rest, "(") && strings.HasSuffix(rest, ")") {
			rest = strings.TrimSpace(rest[1 : len(rest)-1])
		} else if !spaced {
			continue
		}
		if isValues(rest) {
			return true
		}
	}
	return isLiteral(st) || isName(st) && strings.Contains(st, ".")
}

// isValues says whether t is a list of constants and plain names. A comma
// inside a string would only split it into pieces that are neither.
func isValues(t string) bool {
	if isLiteral(t) {
		return true
	}
	for _, v := range strings.Split(t, ",") {
		if v = strings.TrimSpace(v); !isLiteral(v) && !isName(v) {
			return false
		}
	}
	return true
}

// isLiteral says whether t is one number or one string without anything that a
// language would evaluate inside it.
func isLiteral(t string) bool {
	if t == "" {
		return true
	}
	if strings.Trim(t, "0123456789.+-*/ ") == "" {
		return true
	}
	q := t[0]
	if q != '\'' && q != '"' || len(t) < 2 || t[len(t)-1] != q {
		return false
	}
	return !strings.ContainsAny(t[1:len(t)-1], string(q)+"\\#$@{`\x00")
}

// harmlessFilter says whether a one-line Perl or Ruby text filter only matches
// and replaces: none of its words can start a program, touch a file or evaluate
// text.
func harmlessFilter(code string) bool {
	if strings.ContainsAny(code, "`|\x00&") && strings.ContainsAny(code, "`\x00") || strings.Contains(code, "->") || strings.Contains(code, "&{") || strings.Contains(code, "@{") || strings.Contains(code, "#{") || strings.Contains(code, "?{") || strings.Contains(code, "__") {
		return false
	}
	start := 0
	for i := 0; i <= len(code); i++ {
		if i < len(code) && wordByte(code[i]) && code[i] != '.' && code[i] != '$' {
			continue
		}
		if word := code[start:i]; filterWords[word] || evalFlag(code, i, word) {
			return false
		}
		start = i + 1
	}
	return true
}

// evalFlag says whether word, ending at i, can be the flags of a replacement
// that evaluates its text.
func evalFlag(code string, i int, word string) bool {
	if word == "" || len(word) > 6 || !strings.Contains(word, "e") || strings.Trim(word, "egimsxorn") != "" {
		return false
	}
	before := i - len(word) - 1
	return before >= 0 && strings.IndexByte("/}|,#!)]>~%@;:", code[before]) >= 0
}

// filterWords can do more than filter.
var filterWords = map[string]bool{
	"system": true, "exec": true, "open": true, "eval": true, "unlink": true, "qx": true, "fork": true, "socket": true, "require": true, "use": true, "do": true, "rename": true, "rmdir": true, "chmod": true, "chown": true, "kill": true,
	"sysopen": true, "popen": true, "spawn": true, "File": true, "IO": true, "Kernel": true, "Process": true, "send": true, "instance_eval": true, "syscall": true, "glob": true, "readpipe": true, "symlink": true, "link": true, "truncate": true, "utime": true, "mkdir": true, "Dir": true, "FileUtils": true, "load": true, "ENV": true,
}

// awk judges awk programs: text filters, except where they start a command or
// use the network.
func awk(s *shell, c *cmd) {
	o := parseOptions(c.args, "fFviElLbm", "file field-separator assign include", true)
	ops := o.operands
	if f, ok := o.get("f", "file", "E"); ok && f.has {
		s.checkWord(f.val, accessRead)
	} else if len(ops) > 0 {
		s.awkProgram(ops[0])
		ops = ops[1:]
	}
	inPlace := false
	for _, f := range o.flags {
		inPlace = inPlace || f.name == "i" && f.has && f.val.text == "inplace"
	}
	for _, f := range ops {
		if inPlace {
			s.checkWord(f, accessWrite)
		} else {
			s.checkWord(f, accessRead)
		}
	}
}

// awkProgram looks in an awk text for system(), pipes and output to files.
func (s *shell) awkProgram(f field) {
	t := f.text
	s.r.bytes(len(t))
	prev := byte(0)
	for i := 0; i < len(t); i++ {
		ch := t[i]
		switch {
		case ch == '"':
			end := stringEnd(t, i)
			if strings.Contains(t[i:end], "/inet/") {
				s.r.report("remote.shell", f.at, "")
			}
			i = end - 1
		case ch == '/' && strings.IndexByte("\x00({,;!~&|\n}", prev) >= 0:
			i = regexEnd(t, i) - 1
		case ch == '#':
			if nl := strings.IndexByte(t[i:], '\n'); nl >= 0 {
				i += nl
			} else {
				return
			}
		case ch == '@' && i+1 < len(t) && t[i+1] != '"':
			s.r.report("code.unread", f.at, "awk calls a function by a variable's name")
		case ch == '|' && i+1 < len(t) && t[i+1] == '|':
			i++
		case ch == '|':
			s.awkCommand(f, t[i+1:])
		case ch == '>' && i+1 < len(t):
			rest := strings.TrimLeft(t[i+1:], "> ")
			if strings.HasPrefix(rest, `"`) {
				p := f
				p.text = ansiC(rest[1 : stringEnd(rest, 0)-1])
				s.checkWord(p, accessWrite)
			}
		case strings.HasPrefix(t[i:], "system") && strings.HasPrefix(strings.TrimLeft(t[i+6:], " \t"), "("):
			rest := strings.TrimLeft(t[i+6:], " \t")
			s.awkCommand(f, rest[1:])
			i += 5
		}
		if ch > ' ' {
			prev = ch
		}
		if i < len(t) && t[i] > ' ' {
			prev = t[i]
		}
	}
}

// awkCommand reads the command that stands as a constant at the start of t.
func (s *shell) awkCommand(f field, t string) {
	t = strings.TrimLeft(t, "& \t")
	if strings.HasPrefix(t, "getline") {
		s.r.report("code.unread", f.at, "awk reads from a command")
		return
	}
	if !strings.HasPrefix(t, `"`) {
		s.r.report("code.unread", f.at, "awk runs a command that is not a constant")
		return
	}
	end := stringEnd(t, 0)
	code := f
	code.text = ansiC(t[1:max(end-1, 1)])
	rest := strings.TrimLeft(t[end:], " \t")
	if rest != "" && strings.IndexByte(");}\n|", rest[0]) < 0 && !strings.HasPrefix(rest, "}") {
		code.text += " " + hole
	}
	s.runCode(code, stream{piped: true, from: fromCode, text: ""}, nil, false)
}

// stringEnd gives the index after the string that starts at i.
func stringEnd(t string, i int) int {
	for j := i + 1; j < len(t); j++ {
		switch t[j] {
		case '\\':
			j++
		case '"':
			return j + 1
		}
	}
	return len(t)
}

func regexEnd(t string, i int) int {
	for j := i + 1; j < len(t); j++ {
		switch t[j] {
		case '\\':
			j++
		case '[':
			if k := strings.IndexByte(t[min(j+2, len(t)):], ']'); k >= 0 {
				j += 2 + k
			}
		case '/', '\n':
			return j + 1
		}
	}
	return len(t)
}
