package detect

import (
	"path"
	"strings"
)

// builtin is a command of the shell itself. It says whether that was all there
// is to the command.
type builtin func(s *shell, c *cmd) (stream, bool)

// builtinOf gives the builtin of that name, nil when there is none.
func builtinOf(name string) builtin {
	switch name {
	case "cd", "pushd", "chdir":
		return cd
	case "popd":
		return func(s *shell, c *cmd) (stream, bool) { s.dir = hole; return stream{known: true}, true }
	case "pwd":
		return func(s *shell, c *cmd) (stream, bool) {
			if s.dir == "" {
				return stream{text: ".", known: true}, true
			}
			f := field{text: s.dir}
			return f.stream(), true
		}
	case "eval":
		return func(s *shell, c *cmd) (stream, bool) {
			if len(c.args) == 0 {
				return stream{known: true}, true
			}
			f := joinFields(s, c.args)
			f.at = spanOf(c.args)
			return s.runCode(f, c.in, nil, true), true
		}
	case "source", ".":
		return source
	case "alias":
		return alias
	case "unalias", "hash", "umask", "ulimit", "getopts", "wait", "jobs", "fg", "bg", "disown", "true", "false", ":", "break", "continue", "return", "exit", "enable", "shopt", "compgen", "complete", "bind", "test", "[", "[[":
		return func(s *shell, c *cmd) (stream, bool) { return stream{known: true}, true }
	case "export", "declare", "typeset", "readonly", "local":
		return declare
	case "unset":
		return func(s *shell, c *cmd) (stream, bool) {
			for _, a := range c.args {
				s.unset(a.text, a.at)
			}
			return stream{known: true}, true
		}
	case "set":
		return set
	case "shift":
		return func(s *shell, c *cmd) (stream, bool) {
			if len(s.params) > 0 {
				s.params = s.params[1:]
			}
			return stream{known: true}, true
		}
	case "trap":
		return func(s *shell, c *cmd) (stream, bool) {
			o := parseOptions(c.args, "", "", true)
			if len(o.operands) > 1 && o.operands[0].text != "" && o.operands[0].text != "-" {
				s.runCode(o.operands[0], stream{}, nil, true)
			}
			return stream{known: true}, true
		}
	case "read", "mapfile", "readarray":
		return read
	case "history", "fc":
		return func(s *shell, c *cmd) (stream, bool) {
			o := parseOptions(c.args, "dpsanrw", "", false)
			if c.name == "history" && o.exact("c", "d", "w") {
				s.r.report("evade.history", c.at, "")
			}
			return stream{}, true
		}
	case "exec":
		return func(s *shell, c *cmd) (stream, bool) { return stream{}, len(c.args) == 0 }
	case "command", "type", "which", "whence":
		return which
	}
	return nil
}

func cd(s *shell, c *cmd) (stream, bool) {
	o := parseOptions(c.args, "", "", false)
	switch {
	case len(o.operands) == 0:
		s.dir = s.r.d.places.home
	case o.operands[0].text == "-":
		s.dir = hole
	default:
		t := o.operands[0].text
		if o.operands[0].glob && strings.ContainsAny(path.Base(strings.TrimSuffix(t, "/")), "*?[") {
			t = path.Join(path.Dir(strings.TrimSuffix(t, "/")), hole)
		}
		s.dir = s.r.d.places.clean(t, s.dir)
		if s.dir == "." {
			s.dir = ""
		}
	}
	return stream{known: true}, true
}

func source(s *shell, c *cmd) (stream, bool) {
	if len(c.args) == 0 {
		return stream{known: true}, true
	}
	f := c.args[0]
	s.checkWord(f, accessRead)
	st := s.fileStream(f)
	switch {
	case f.text == "/dev/stdin":
		return s.runStream(c.in, f.at, nil), true
	case st.known:
		code := field{text: st.text, from: st.from, at: f.at}
		return s.runCode(code, c.in, nil, true), true
	case f.body != nil || st.from&(fromNet|fromDecode) != 0:
		return s.runStream(st, f.at, nil), true
	}
	return stream{from: fromCode}, true
}

func alias(s *shell, c *cmd) (stream, bool) {
	for _, a := range c.args {
		name, val, ok := strings.Cut(a.text, "=")
		if !ok || name == "" {
			continue
		}
		s.aliases[name] = strings.ReplaceAll(val, hole, "${_unknown_}")
	}
	return stream{known: true}, true
}

// declare handles the declaring builtins where the parser saw a plain command.
func declare(s *shell, c *cmd) (stream, bool) {
	for _, a := range c.args {
		if name, val, ok := strings.Cut(a.text, "="); ok && isAssignment(a.text) {
			s.vars.set(name, value{alts: []string{val}, from: a.from})
			s.ownVariable(name, []string{val}, a.at)
		}
	}
	return stream{known: true}, true
}

func set(s *shell, c *cmd) (stream, bool) {
	o := parseOptions(c.args, "o", "", true)
	for i, a := range c.args {
		if (a.text == "+o" || a.text == "-o") && i+1 < len(c.args) && c.args[i+1].text == "history" && a.text == "+o" {
			s.r.report("evade.history", c.at, "")
		}
	}
	if i := indexRaw(c.args, "--"); i >= 0 {
		s.params = append([]field{}, c.args[i+1:]...)
	} else if len(o.flags) == 0 && len(c.args) > 0 && !strings.HasPrefix(c.args[0].text, "+") {
		s.params = c.args
	}
	return stream{known: true}, true
}

func read(s *shell, c *cmd) (stream, bool) {
	o := parseOptions(c.args, "adinNptu", "", false)
	names := o.operands
	if f, ok := o.get("a"); ok && f.has {
		names = append(names, f.val)
	}
	vals := some(c.in.lines())
	for i, n := range names {
		v := value{alts: vals, from: c.in.from, list: c.name != "read"}
		if i > 0 || len(names) > 1 && c.name == "read" {
			v.alts = wordsOf(vals, i)
		}
		s.vars.set(n.text, v)
	}
	return stream{known: true}, true
}

// wordsOf gives the word at place i of each line.
func wordsOf(lines []string, i int) []string {
	var out []string
	for _, l := range lines {
		if f := strings.Fields(l); i < len(f) {
			out = append(out, f[i])
		}
	}
	return some(out)
}

// which answers where a program is; command without -v is a wrapper.
func which(s *shell, c *cmd) (stream, bool) {
	o := parseOptions(c.args, "", "", true)
	if c.name == "command" && !o.exact("v", "V") {
		return stream{}, false
	}
	if len(o.operands) == 1 && o.operands[0].known() {
		return stream{text: o.operands[0].text + "\n", known: true}, true
	}
	return stream{}, true
}
