package detect

import (
	"path"
	"strings"
)

// program is what is known of a program.
type program struct {
	values string // short options that take a value
	long   string // long options that take the next word
	// access is what it does with the paths in its operands, skip the number
	// of operands before them and text the options whose value is no path.
	access access
	skip   int
	text   string
	// rule is found whenever the program runs, unless an option of quiet is
	// given.
	rule, quiet string
	// judge judges one command; out models what it prints.
	judge func(s *shell, c *cmd)
	out   func(s *shell, c *cmd) stream
}

// programTable is the table of all programs.
func programTable() map[string]*program {
	t := map[string]*program{}
	for _, part := range []map[string]program{textPrograms(), filePrograms(), hostPrograms(), netPrograms(), carrierPrograms()} {
		for n, p := range part {
			for _, name := range strings.Fields(n) {
				t[name] = &p
			}
		}
	}
	return t
}

// judge looks up the program of c and applies what is known of it. Of a program
// that is not known, each word may be a path that it changes.
func (s *shell) judge(c *cmd) {
	s.judgeVerbs(c)
	p, ok := s.r.d.programs[c.name]
	if !ok {
		if strings.HasPrefix(c.name, "mkfs") || strings.HasPrefix(c.name, "newfs") || strings.HasPrefix(c.name, "fsck") {
			makeFileSystem(s, c)
			return
		}
		s.checkArgs(c, &program{})
		s.shellArgument(c)
		return
	}
	if p.rule != "" {
		o := parseOptions(c.args, p.values, p.long, false)
		if p.quiet == "" || !o.exact(strings.Fields(p.quiet)...) && !hasRaw(c.args, strings.Fields(p.quiet)...) {
			s.r.report(p.rule, c.at, "")
		}
	}
	if p.judge != nil {
		p.judge(s, c)
		return
	}
	s.checkArgs(c, p)
	for _, a := range c.args {
		if p.access != accessNone && strings.HasPrefix(a.text, "-") && namesShell(a.text) {
			s.r.report("escape.shell", a.at, a.text)
		}
	}
}

// checkArgs checks the operands and the values of options as paths.
func (s *shell) checkArgs(c *cmd, p *program) {
	if p.access == accessNone {
		return
	}
	o := parseOptions(c.args, p.values, p.long, false)
	for _, f := range o.flags {
		if f.has && !hasWord(p.text, f.name) {
			s.checkWord(f.val, p.access)
		} else if !f.has && !f.long && p.access == accessAny && f.name == c.args[0].text {
			s.checkWord(f.val, p.access)
		}
	}
	if p.access == accessAny {
		for _, a := range c.args {
			if strings.HasPrefix(a.text, "-") && len(a.text) > 3 {
				s.checkWord(a, accessAny)
			}
		}
	}
	skip := p.skip
	if skip > 0 && p.text != "" && o.exact(strings.Fields(p.text)...) && (c.name == "grep" || c.name == "sed" || c.name == "rg" || c.name == "egrep" || c.name == "fgrep" || c.name == "zgrep" || c.name == "ag") {
		if o.exact("e", "f", "regexp", "file", "expression") {
			skip = 0
		}
	}
	for i, f := range o.operands {
		if i >= skip {
			s.checkWord(f, p.access)
		}
	}
}

// textPrograms take words as text, or only look at the names of files.
func textPrograms() map[string]program {
	none := program{access: accessNone}
	read := program{access: accessRead}
	filter := program{access: accessRead, out: outThrough}
	grep := program{values: "ABCDdefm", long: "after-context before-context context regexp file max-count include exclude exclude-dir color colour label type glob type-not", access: accessRead, skip: 1, text: "e regexp A B C m include exclude exclude-dir color colour g glob t type", out: outThrough}
	return map[string]program{
		"echo":                          {access: accessNone, out: outEcho},
		"printf":                        {access: accessNone, out: outPrintf},
		"print":                         {access: accessNone, out: outEcho},
		"cat tac bat batcat zcat":       {access: accessRead, out: outCat},
		"ls exa eza lsd dir tree":       {access: accessNone, out: outLines},
		"mktemp":                        {access: accessNone, out: outMktemp},
		"basename":                      {access: accessNone, out: outPath(path.Base)},
		"dirname":                       {access: accessNone, out: outPath(path.Dir)},
		"realpath readlink":             {access: accessNone, out: outPath(func(t string) string { return t })},
		"base64 gbase64":                {access: accessRead, out: outDecode(decodeBase64)},
		"xxd":                           {access: accessRead, judge: xxd, out: outDecode(decodeHex)},
		"base32 base16 basenc uudecode": {access: accessRead, out: outDecode(func(*cmd, string) (string, bool) { return "", false })},
		"rev":                           {access: accessRead, out: outRev},
		"tr":                            {access: accessNone, out: outTr},
		"seq expr sleep stat file du df which whereis help apropos whatis info tput clear cal uname arch whoami id groups uptime free lscpu lsblk lsof ps top htop pgrep pidof logger figlet cowsay toilet notify-send yes tty stty locale printenv getconf nproc getent tset ping ping6 dig nslookup host traceroute mtr whois test [ true false type logname users who w last lastlog lsmod lspci lsusb blkid namei pathchk numfmt factor units say espeak xdg-open open pushd sum": none,
		"grep egrep fgrep zgrep rgrep pcregrep pcre2grep ugrep": grep,
		"head tail cut uniq wc nl fold fmt column comm join paste expand unexpand strings od hexdump hd md5sum sha1sum sha224sum sha256sum sha384sum sha512sum shasum md5 cksum b2sum diff sdiff colordiff cmp look tsort pr csplit jq yq xmllint xq csvcut mdcat glow pg ccze nm objdump readelf size ldd sha3sum cksfv crc32": filter,
		"git-lfs": read,
	}
}

// outMktemp models mktemp: a name nobody knows in the temporary directory.
func outMktemp(s *shell, c *cmd) stream { return stream{text: "/tmp/tmp." + hole, from: 0} }

// outPath models the programs that print a path made of another.
func outPath(f func(string) string) func(*shell, *cmd) stream {
	return func(s *shell, c *cmd) stream {
		o := parseOptions(c.args, "s", "", false)
		if len(o.operands) == 0 {
			return stream{}
		}
		t := o.operands[0].text
		if len(o.operands) == 2 && c.name == "basename" {
			return stream{text: strings.TrimSuffix(path.Base(t), o.operands[1].text), from: o.operands[0].from}
		}
		r := field{text: f(t) + "\n", from: o.operands[0].from}
		return r.stream()
	}
}

// xxd can write its output to a second operand.
func xxd(s *shell, c *cmd) {
	o := parseOptions(c.args, "clsgo", "", false)
	for i, f := range o.operands {
		if i == 0 {
			s.checkWord(f, accessRead)
		} else {
			s.checkWord(f, accessWrite)
		}
	}
}

// shellArgument reports a program that is given a shell to run, as its own
// argument or inside one.
func (s *shell) shellArgument(c *cmd) {
	for _, a := range c.args {
		if namesShell(a.text) {
			s.r.report("escape.shell", a.at, a.text)
			return
		}
		if len(s.r.files) == 0 {
			continue
		}
		f := a
		if _, v, ok := strings.Cut(a.text, "="); ok {
			f.text = v
		}
		if fl, ok := s.r.files[s.place(f).path]; ok && fl.known && namesShell(fl.text) {
			s.r.report("escape.shell", a.at, "by a file that names one")
			return
		}
	}
}

// namesShell says whether a word is the path of a shell, or holds one where a
// program would run it.
func namesShell(t string) bool {
	for _, p := range [...]string{"/bin/sh", "/bin/bash", "/bin/zsh", "/bin/dash"} {
		i := strings.Index(t, p)
		if i < 0 {
			continue
		}
		end := i + len(p)
		if end < len(t) && (wordByte(t[end]) && t[end] != '.' || t[end] == '/' || t[end] == '-') {
			continue
		}
		if i > 0 && strings.HasSuffix(t[:i], "#!") {
			continue
		}
		return true
	}
	return false
}
