package detect

import "strings"

// wrapper is a program that runs the command given in its arguments.
type wrapper struct {
	values string // short options that take a value
	long   string // long options that take the next word
	skip   int    // operands that stand before the command
	env    bool   // NAME=value words may stand before the command
	query  string // options with which it only tells something
	code   string // options whose value is shell code
	join   bool   // the words are joined and read by a shell
	dash   bool   // the command stands after a "--" only
}

func wrapperTable() map[string]wrapper {
	return map[string]wrapper{
		"sudo":              {values: "CcghpuUrtRTDa", long: "close-from group host prompt user chdir role type chroot other-user command-timeout", env: true, query: "l list v validate k K V version e edit"},
		"doas":              {values: "uC", query: "C L"},
		"pkexec":            {long: "user"},
		"run0":              {values: "uD", long: "user group unit property chdir setenv"},
		"env":               {values: "aCuSP", long: "argv0 chdir unset split-string", env: true, code: "S split-string"},
		"nice":              {values: "n", long: "adjustment"},
		"nohup":             {},
		"time":              {values: "fo", long: "format output"},
		"gtime":             {values: "fo"},
		"timeout":           {values: "ks", long: "kill-after signal", skip: 1},
		"gtimeout":          {values: "ks", skip: 1},
		"stdbuf":            {values: "eio", long: "error input output"},
		"ionice":            {values: "cnpPu", long: "class classdata pid pgid uid", query: "p pid P pgid u uid"},
		"chrt":              {values: "TPD", skip: 1, query: "p pid m max"},
		"taskset":           {skip: 1, query: "p pid"},
		"setsid":            {},
		"setarch":           {skip: 1},
		"linux32":           {},
		"linux64":           {},
		"numactl":           {values: "imNCpP", long: "interleave membind cpunodebind physcpubind preferred", query: "s show H hardware"},
		"prlimit":           {values: "pcdefilmnqrstuvxy", query: "p pid"},
		"schedtool":         {values: "anp", query: "r"},
		"exec":              {values: "a"},
		"command":           {query: "v V"},
		"builtin":           {},
		"nocorrect":         {},
		"noglob":            {},
		"busybox":           {query: "list list-full help install"},
		"toybox":            {},
		"watch":             {values: "nq", long: "interval equexit", join: true},
		"flock":             {values: "wEc", long: "wait timeout conflict-exit-code command", skip: 1, code: "c command"},
		"unshare":           {values: "RwSG", long: "root wd setuid setgid map-user map-group propagation mount-proc"},
		"nsenter":           {values: "tSGrw", long: "target setuid setgid"},
		"firejail":          {long: "profile"},
		"bwrap":             {long: "chdir uid gid hostname seccomp unsetenv proc dev tmpfs dir"},
		"systemd-run":       {values: "uptHMGSE", long: "unit property description slice on-active on-calendar setenv uid gid nice working-directory service-type"},
		"systemd-inhibit":   {long: "what who why mode"},
		"chroot":            {long: "groups userspec", skip: 1},
		"fakeroot":          {values: "lsifb", long: "lib faked"},
		"proot":             {values: "rbqwv", long: "rootfs bind cwd"},
		"su":                {values: "csgGwT", long: "command shell group supp-group session-command", skip: 1, code: "c command session-command"},
		"runuser":           {values: "cusgGw", long: "command user shell group", code: "c command session-command"},
		"dbus-run-session":  {long: "config-file"},
		"xvfb-run":          {values: "enspfw", long: "server-num server-args"},
		"strace":            {values: "aeEIoOpPsSuUX", query: "p"},
		"ltrace":            {values: "aAeFlnopsuwx"},
		"gdbserver":         {skip: 1},
		"valgrind":          {},
		"catchsegv":         {},
		"perf":              {values: "eoCp", skip: 1},
		"rlwrap":            {values: "abCDefgHlmMOpPqsStwz"},
		"unbuffer":          {},
		"softlimit":         {values: "adfolmrstcn"},
		"setuidgid":         {skip: 1},
		"chpst":             {values: "uUebnlLP/"},
		"gosu":              {skip: 1},
		"su-exec":           {skip: 1},
		"ssh-agent":         {values: "aEtPO", query: "k D d"},
		"aa-exec":           {values: "pn", long: "profile namespace"},
		"choom":             {values: "np", query: "p"},
		"capsh":             {dash: true},
		"tsocks":            {},
		"proxychains":       {values: "f"},
		"proxychains4":      {values: "f"},
		"torsocks":          {},
		"torify":            {},
		"cpulimit":          {values: "lpPe", long: "limit pid exe path"},
		"caffeinate":        {values: "tw"},
		"arch":              {values: "d"},
		"dotenv":            {values: "fe", long: "file env"},
		"direnv":            {skip: 2},
		"aws-vault":         {skip: 2},
		"op":                {dash: true},
		"doppler":           {dash: true},
		"chronic":           {},
		"retry":             {values: "tdmx", long: "times delay"},
		"ssh":               {values: "bcDEeFIiJLlmOopQRSWwBP", skip: 1, join: true, query: "V Q G O"},
		"sshpass":           {values: "pfdPe"},
		"mosh":              {long: "ssh port server", skip: 1},
		"rsh":               {values: "l", skip: 1, join: true},
		"bundle":            {skip: 1},
		"distcc":            {},
		"ccache":            {},
		"sem":               {values: "j", long: "id jobs"},
		"start-stop-daemon": {values: "pxnugsdRcNIP", long: "pidfile exec name user group signal startas chdir chuid", dash: true, query: "K stop"},
		"daemonize":         {values: "acepolu"},
		"newgrp":            {},
		"sg":                {skip: 1, join: true},
		"script":            {values: "cIOBTtEmo", long: "command log-in log-out log-io log-timing echo output-limit", code: "c command", query: "help version"},
		"entr":              {},
		"hyperfine":         {values: "wmMrspcPDLSNiu", long: "warmup runs prepare cleanup setup export-json export-markdown", join: true},
	}
}

// peel looks through a wrapper. It says whether that was all there is to the
// command.
func (s *shell) peel(c *cmd, w *wrapper) (stream, bool) {
	o := parseOptions(c.args, w.values, w.long, true)
	s.wrapperFlags(c, o)
	if w.query != "" && o.exact(strings.Fields(w.query)...) && !(c.name == "sudo" && len(o.operands) > 0 && o.exact("k", "K", "v")) {
		return stream{from: fromCode}, true
	}
	rest := o.operands
	if w.code != "" {
		if out, done := s.wrappedCode(c, w, o); done {
			return out, true
		}
	}
	if w.dash {
		i := indexRaw(c.args, "--")
		if i < 0 {
			return stream{}, false
		}
		rest = c.args[i+1:]
	}
	if w.env {
		for len(rest) > 0 && isAssignment(rest[0].text) {
			name, val, _ := strings.Cut(rest[0].text, "=")
			f := rest[0]
			f.text = val
			s.prefixed(name, f, f.at)
			rest = rest[1:]
		}
	}
	if len(rest) > 0 && rest[0].text == "-" && (c.name == "env" || c.name == "su") {
		rest = rest[1:]
		if w.env {
			return s.peel(&cmd{name: c.name, prog: c.prog, args: rest, in: c.in, at: c.at}, w)
		}
	}
	if len(rest) > 0 && c.name == "su" {
		// su [-] [USER [SHELL-ARGS]]
		if len(rest) > 1 {
			sh := rest[0]
			sh.text = "sh"
			return s.exec(append([]field{sh}, rest[1:]...), c.in), true
		}
		return stream{}, true
	}
	if w.skip > len(rest) {
		return stream{}, true
	}
	rest = rest[w.skip:]
	if len(rest) == 0 {
		return stream{}, c.name != "exec"
	}
	if w.join {
		f := joinFields(s, rest)
		f.at = spanOf(rest)
		if c.name == "ssh" {
			s.checkWord(f, accessRead)
		}
		return s.runCode(f, c.in, nil, false), true
	}
	return s.exec(rest, c.in), true
}

// wrappedCode runs the code that an option of a wrapper holds.
func (s *shell) wrappedCode(c *cmd, w *wrapper, o options) (stream, bool) {
	f, ok := o.get(strings.Fields(w.code)...)
	if !ok {
		// The option may stand after the operands: su USER -c CODE.
		if all := parseOptions(c.args, w.values, w.long, false); c.name != "env" {
			f, ok = all.get(strings.Fields(w.code)...)
		}
	}
	if !ok || !f.has {
		return stream{}, false
	}
	code := f.val
	if c.name == "env" && len(o.operands) > 0 {
		code.text += " " + quoteAll(o.operands)
	}
	return s.runCode(code, c.in, nil, false), true
}

func isAssignment(t string) bool {
	i := strings.IndexByte(t, '=')
	if i <= 0 {
		return false
	}
	for j := 0; j < i; j++ {
		ch := t[j]
		if !(ch == '_' || ch >= 'a' && ch <= 'z' || ch >= 'A' && ch <= 'Z' || j > 0 && ch >= '0' && ch <= '9') {
			return false
		}
	}
	return true
}

func indexRaw(args []field, w string) int {
	for i, a := range args {
		if a.text == w {
			return i
		}
	}
	return -1
}

// spanOf gives the place of several words.
func spanOf(fs []field) span {
	at := fs[0].at
	if last := fs[len(fs)-1].at; last.end > at.end && last.start >= at.start {
		at.end = last.end
	}
	return at
}

// wrapperFlags judges what a wrapper's own options do.
func (s *shell) wrapperFlags(c *cmd, o options) {
	if c.name != "ssh" && c.name != "mosh" && c.name != "rsh" && c.name != "sudo" {
		for _, f := range o.flags {
			if f.has {
				s.checkWord(f.val, accessAny)
			}
		}
	}
	switch c.name {
	case "script":
		for _, f := range parseOptions(c.args, "cIOBTtEmo", "command", false).operands {
			s.checkWord(f, accessWrite)
		}
	case "sudo":
		if o.exact("S", "A", "stdin", "askpass") {
			s.r.report("privilege.password", c.at, "")
		}
		if o.exact("e", "edit") {
			for _, f := range o.operands {
				s.checkWord(f, accessWrite)
			}
		}
	case "ssh":
		if f, ok := o.get("o"); ok && f.has {
			s.sshOption(f.val)
		}
		if f, ok := o.get("R"); ok && f.has {
			s.r.report("remote.tunnel", c.at, "")
		}
	case "env":
		for _, f := range o.flags {
			if (f.name == "u" || f.name == "unset") && f.has {
				s.unset(f.val.text, f.val.at)
			}
		}
	case "systemd-run":
		if o.exact("on-calendar", "on-boot", "on-startup", "on-active", "on-unit-active", "timer-property", "path-property") {
			s.r.report("persist.schedule", c.at, "")
		}
	case "sshpass":
		s.r.report("privilege.password", c.at, "")
	}
}

// sshOption runs the command in an ssh -o option.
func (s *shell) sshOption(f field) {
	k, v, ok := strings.Cut(f.text, "=")
	if !ok {
		k, v, _ = strings.Cut(f.text, " ")
	}
	switch strings.ToLower(strings.TrimSpace(k)) {
	case "proxycommand", "localcommand", "knownhostscommand":
		code := f
		code.text = strings.TrimPrefix(strings.TrimLeft(v, " ;"), "exec ")
		s.runCode(code, stream{}, nil, false)
	}
}
