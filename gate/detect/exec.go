package detect

import (
	"path"
	"strings"

	"callgate/inspect/toolcall"
)

// cmd is one simple command, with its words as the program gets them.
type cmd struct {
	name string  // the program's name without its directory
	prog field   // the word that names it
	args []field // the words after it
	in   stream
	at   span // the whole of it in the action's text
}

// exec runs a simple command: it looks through wrappers, reads nested code, and
// judges the program. It gives what the command prints.
func (s *shell) exec(fields []field, in stream) stream {
	if len(fields) == 0 {
		return in
	}
	s.r.step(1 + len(fields))
	s.r.enter()
	defer s.r.leave()
	if fields[0].alt {
		return s.execEach(fields, in)
	}
	c := &cmd{prog: fields[0], args: fields[1:], in: in, at: fields[0].at}
	if last := fields[len(fields)-1].at; last.end > c.at.end && last.start >= c.at.start {
		c.at.end = last.end
	}
	if !s.programOf(c) {
		return stream{from: fromCode}
	}
	if !strings.Contains(c.prog.text, "/") {
		if a, ok := s.aliases[c.name]; ok {
			delete(s.aliases, c.name) // an alias is not expanded inside itself
			defer func() { s.aliases[c.name] = a }()
			return s.inline(a+" "+quoteAll(c.args), c.at, in)
		}
		if f := s.funcs[c.name]; f != nil {
			return s.callFunc(f, c.args, in)
		}
		if b := builtinOf(c.name); b != nil {
			if out, done := b(s, c); done {
				return out
			}
		}
	}
	s.r.checkOwnProgram(c)
	if w, ok := s.r.d.wrappers[c.name]; ok {
		if out, done := s.peel(c, w); done {
			return out
		}
	}
	if shellNames[c.name] {
		return s.runShell(c)
	}
	if in, ok := interpreters[c.name]; ok {
		return s.interpret(c, in)
	}
	s.runFile(c)
	s.judge(c)
	return s.output(c)
}

// execEach runs a command whose program is one of several.
func (s *shell) execEach(fields []field, in stream) stream {
	n := 0
	for n < len(fields) && fields[n].alt && fields[n].word == fields[0].word {
		n++
	}
	var out stream
	s.maybe++
	for _, f := range fields[:n] {
		f.alt = false
		out = either(out, s.exec(append([]field{f}, fields[n:]...), in))
	}
	s.maybe--
	return out
}

// programOf names the program. One that is not known is a finding.
func (s *shell) programOf(c *cmd) bool {
	t := c.prog.text
	base := t
	if i := strings.LastIndexByte(t, '/'); i >= 0 {
		base = t[i+1:]
	}
	if strings.Contains(base, hole) || base == "" || c.prog.glob && t != "[" {
		rule := "shell.unresolved"
		if c.prog.from&fromNet != 0 {
			rule = "remote.run"
		} else if c.prog.from&fromDecode != 0 {
			rule = "code.encoded"
		}
		s.r.report(rule, c.prog.at, t)
		for _, a := range c.args {
			s.checkWord(a, accessAny)
		}
		return false
	}
	c.name = strings.TrimSuffix(base, ".exe")
	return true
}

// quoteAll writes words so that a shell reads them back unchanged.
func quoteAll(args []field) string {
	var b strings.Builder
	for i, a := range args {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteByte('\'')
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(a.text, hole, "$_unknown_"), "'", `'\''`))
		b.WriteByte('\'')
	}
	return b.String()
}

// runCode runs text as shell code, or reports that it cannot be read.
func (s *shell) runCode(f field, in stream, args []field, inline bool) stream {
	switch {
	case f.known():
		if f.from&fromNet != 0 {
			s.r.report("remote.run", f.at, "")
		} else if f.from&fromDecode != 0 {
			s.r.report("code.encoded", f.at, "")
		}
		if inline {
			return s.inline(f.text, f.at, in)
		}
		return s.nested(f.text, f.at, in, args)
	case f.from&fromNet != 0:
		s.r.report("remote.run", f.at, "")
	case f.from&fromDecode != 0:
		s.r.report("code.encoded", f.at, "")
	case strings.Trim(f.text, hole+" ") == "":
		s.r.report("shell.unresolved", f.at, "")
	default:
		// Parts are unknown: read it with variables in their place, so that
		// only what depends on them is in doubt.
		code := strings.ReplaceAll(f.text, hole, "${_unknown_}")
		if inline {
			return s.inline(code, f.at, in)
		}
		return s.nested(code, f.at, in, args)
	}
	return stream{from: f.from | fromCode}
}

// runShell is a shell as a program: with -c, with a script, or with its code on
// standard input.
func (s *shell) runShell(c *cmd) stream {
	o := parseOptions(c.args, "oO", "rcfile init-file init-command", true)
	if o.has("version", "help") {
		return stream{}
	}
	if f, ok := o.get("rcfile", "init-file", "init-command"); ok && f.has {
		s.checkWord(f.val, accessRead)
	}
	if o.exact("c", "command") {
		if len(o.operands) == 0 {
			if f, ok := o.get("command"); ok && f.has {
				return s.runCode(f.val, c.in, nil, false)
			}
			if len(c.in.lines()) > 0 && c.in.piped {
				f := field{text: c.in.shown(), from: c.in.from, at: c.at}
				return s.runCode(f, stream{}, nil, false)
			}
			return stream{}
		}
		args := o.operands[1:]
		if len(args) > 0 {
			args = args[1:] // the first one is $0
		}
		return s.runCode(o.operands[0], c.in, args, false)
	}
	if len(o.operands) > 0 && !o.exact("s") {
		return s.runScript(o.operands[0], o.operands[1:], c)
	}
	args := o.operands
	switch {
	case c.in.known && c.in.text != "":
		f := field{text: c.in.text, from: c.in.from, at: c.at}
		return s.runCode(f, stream{}, args, false)
	case c.in.piped || c.in.from != 0:
		return s.runStream(c.in, c.at, args)
	case o.exact("n"):
		return stream{}
	}
	s.r.report("escape.shell", c.at, "")
	return stream{from: fromCode}
}

// runStream is code that comes from a pipe and is not known as a whole.
func (s *shell) runStream(in stream, at span, args []field) stream {
	switch {
	case in.from&fromNet != 0:
		s.r.report("remote.run", at, "")
	case in.from&fromDecode != 0:
		s.r.report("code.encoded", at, "")
	case strings.Trim(in.text, hole+" \n") != "":
		return s.runCode(field{text: in.text, from: in.from, at: at}, stream{}, args, false)
	case in.from&^fromSecret == fromFile:
	default:
		for _, it := range in.items {
			if !strings.Contains(it, hole) {
				s.nested(it, at, stream{}, nil)
			}
		}
		s.r.report("shell.unresolved", at, "its code comes from another command")
	}
	return stream{from: in.from | fromCode}
}

// runScript runs a script file: one this call made is read, one it fetched is a
// finding, any other stands as it is.
func (s *shell) runScript(f field, args []field, c *cmd) stream {
	if f.body != nil {
		if f.body.known && f.body.from&(fromNet|fromDecode) == 0 {
			return s.nested(f.body.text, f.at, c.in, args)
		}
		return s.runStream(*f.body, f.at, args)
	}
	pl := s.place(f)
	if pl.kind == placeNull && strings.HasPrefix(pl.path, "/dev/std") || pl.path == "/dev/fd/0" {
		return s.runStream(c.in, f.at, args)
	}
	s.checkWord(f, accessRead)
	fl, ok := s.r.files[pl.path]
	switch {
	case f.from&fromNet != 0 || ok && fl.from&fromNet != 0:
		s.r.report("remote.run", c.at, "")
	case ok && fl.from&fromDecode != 0:
		s.r.report("code.encoded", c.at, "")
	case ok && fl.known:
		return s.nested(fl.text, c.at, c.in, args)
	}
	return stream{from: fromCode}
}

// runFile looks at a program given by a path: perhaps this call made it.
func (s *shell) runFile(c *cmd) {
	if !strings.Contains(c.prog.text, "/") {
		return
	}
	pl := s.place(c.prog)
	fl, ok := s.r.files[pl.path]
	switch {
	case !ok:
	case fl.from&fromNet != 0:
		s.r.report("remote.run", c.at, "")
	case fl.from&fromDecode != 0:
		s.r.report("code.encoded", c.at, "")
	case fl.known && fl.text != "":
		lang := scriptLanguage(fl.text)
		if lang == toolcall.LangShell {
			s.nested(fl.text, c.at, c.in, c.args)
		} else if lang != "" {
			s.r.read(lang, text{s: fl.text, at: c.at, dir: s.dir})
		}
	}
}

// scriptLanguage tells the language of a script by its first line; without one
// a shell runs it.
func scriptLanguage(t string) string {
	line, _, _ := strings.Cut(t, "\n")
	if !strings.HasPrefix(line, "#!") {
		return toolcall.LangShell
	}
	for _, w := range strings.Fields(line[2:]) {
		b := path.Base(w)
		if shellNames[b] {
			return toolcall.LangShell
		}
		if in, ok := interpreters[b]; ok {
			return in.lang
		}
	}
	return ""
}

// place locates a word used as a path.
func (s *shell) place(f field) place { return s.r.d.places.locate(f.text, s.dir) }

// fileStream gives what reading a file would give.
func (s *shell) fileStream(f field) stream {
	if f.body != nil {
		st := *f.body
		st.piped = true
		return st
	}
	pl := s.place(f)
	if pl.path == "/dev/null" {
		return stream{known: true, piped: true}
	}
	if fl, ok := s.r.files[pl.path]; ok {
		return stream{text: fl.text, known: fl.known, from: fl.from, piped: true}
	}
	switch {
	case pl.kind == placeNull && strings.HasPrefix(pl.path, "/dev/tty"):
		return stream{}
	case pl.secret || strings.HasPrefix(pl.path, "/etc/"):
		return stream{from: fromFile | fromSecret | f.from, piped: true}
	}
	return stream{from: fromFile | f.from, piped: true}
}

// readFrom reads a file for a redirect.
func (s *shell) readFrom(f field) stream {
	s.checkWord(f, accessRead)
	return s.fileStream(f)
}

// writeTo writes what a command prints into a file.
func (s *shell) writeTo(o redirect, st stream) {
	pl := s.place(o.to)
	if !o.append && pl.kind == placeWork && !pl.regen && st.known && st.text == "" && o.stdout && !pl.secret && o.to.known() {
		if _, made := s.r.files[pl.path]; !made {
			s.r.emptied(pl, o.to.at)
		}
	}
	s.r.writePlace(pl, o.to.at)
	f := file{text: st.text, known: st.known, from: st.from}
	if o.append {
		old, ok := s.r.files[pl.path]
		f.from |= old.from
		if ok && old.known && f.known && len(old.text)+len(f.text) <= MaxValue {
			f.text = old.text + f.text
			s.r.bytes(len(f.text))
		}
	}
	s.made(pl, f)
}

// made notes a file that the script writes.
func (s *shell) made(pl place, f file) {
	if strings.Contains(pl.path, hole) || pl.kind == placeNull {
		return
	}
	s.r.note(pl.path, f)
	if f.known && pl.persist && isShellFile(pl.path, f.text) && f.text != "" {
		s.r.step(1)
	}
}

// netRedirect reports bash's network redirects.
func (s *shell) netRedirect(f field) bool {
	if s.place(f).kind != placeNet {
		return false
	}
	s.r.report("remote.shell", f.at, f.text)
	return true
}
