package detect

import (
	"path"
	"strings"

	"callgate/inspect/toolcall"
)

// carrierPrograms run other commands or reach into other systems, in ways of
// their own.
func carrierPrograms() map[string]program {
	return map[string]program{
		"find gfind fd fdfind":            {judge: find, out: outFind},
		"xargs gxargs":                    {judge: xargs},
		"parallel":                        {judge: parallel},
		"git":                             {judge: git, out: outGit},
		"docker podman nerdctl":           {judge: docker},
		"docker-compose podman-compose":   {judge: dockerCompose},
		"kubectl oc microk8s.kubectl k3s": {judge: kubectl},
		"psql mysql mariadb sqlite3 sqlite cockroach clickhouse-client duckdb sqlcmd sqlplus isql usql mssql-cli pgcli mycli snowsql": {judge: sqlClient},
		"mongo mongosh redis-cli valkey-cli": {judge: otherClient},
		"rails rake":                         {judge: rails},
		"rg":                                 {judge: execOption("pre hostname-bin", "ABCgmteTM", "regexp glob type pre hostname-bin", 1)},
		"ag":                                 {judge: execOption("pager", "ABCgmGp", "pager ignore", 1)},
		"ack":                                {judge: execOption("pager", "ABCm", "pager type", 1)},
		"man":                                {judge: execOption("P pager H html", "PHLmMrRSsC", "pager html sections", 99)},

		"make gmake":                {judge: makeProgram},
		"npm pnpm yarn":             {judge: npm},
		"npx pnpx bunx":             {judge: npx},
		"pip pip3 pipx conda mamba": {judge: anyFirst("pkg.remove", "uninstall", "remove")},
		"apt apt-get aptitude dnf yum microdnf zypper brew port snap flatpak gem cargo": {judge: packages},
		"pacman apk dpkg rpm": {judge: oldPackages},
		"gh glab":             {access: accessNone},
		"jq yq":               {access: accessRead, skip: 1, out: outThrough},
		"tmux screen":         {judge: terminal},
		"certbot":             {judge: execOption("pre-hook post-hook deploy-hook renew-hook manual-auth-hook", "dm", "pre-hook post-hook deploy-hook renew-hook manual-auth-hook", 99)},
		"openvpn":             {judge: execOption("up down route-up ipchange", "", "up down route-up ipchange config dev script-security", 99)},
		"vagrant terraform tofu pulumi ansible ansible-playbook helm serverless sls cdk": {access: accessRead},
		"claude codex gemini aider opencode cursor-agent goose amp":                      {judge: otherAgent},
	}
}

// find deletes, runs commands on what it finds, and writes files.
func find(s *shell, c *cmd) {
	args := c.args
	starts, tests := findStarts(args)
	pattern, narrow := findPattern(tests)
	for i := 0; i < len(args); i++ {
		switch t := args[i].text; t {
		case "-name", "-iname", "-path", "-ipath", "-wholename", "-regex", "-iregex", "-newer", "-user", "-group", "-perm", "-size", "-mtime", "-mmin", "-type", "-maxdepth", "-mindepth", "-printf", "-samefile", "-lname":
			i++ // its value
		case "-delete":
			s.found(args[i].at, starts, pattern, narrow, true)
		case "-exec", "-execdir", "-ok", "-okdir", "-x", "--exec", "-X", "--exec-batch":
			j := i + 1
			for j < len(args) && args[j].text != ";" && (args[j].text != "+" || args[j-1].text != "{}") {
				j++
			}
			s.execFound(args[i+1:j], starts, pattern, narrow)
			i = j
		case "-fprint", "-fprintf", "-fls", "-fprint0":
			if i+1 < len(args) {
				s.checkWord(args[i+1], accessWrite)
			}
		default:
			if !args[i].known() && strings.HasPrefix(t, hole) && i > len(starts) && args[i-1].text != "-name" && args[i-1].text != "-path" && !strings.HasPrefix(args[i-1].text, "-") {
				s.r.report("shell.unresolved", args[i].at, "an expression of find")
			}
		}
	}
	for _, f := range starts {
		if pl := s.place(f); pl.secret && !pl.history {
			s.r.readPlace(pl, f.at)
		}
	}
	for _, n := range wantedNames(tests) {
		for _, f := range starts {
			d := f
			d.text = strings.TrimSuffix(f.text, "/") + "/" + strings.Trim(n, "*/")
			if s.place(d).secret {
				s.r.report("secret.search", c.at, n)
			}
		}
	}
}

// wantedNames gives the names that find looks for.
func wantedNames(tests []field) []string {
	var out []string
	for i := 0; i+1 < len(tests); i++ {
		switch tests[i].text {
		case "-name", "-iname", "-path", "-ipath", "-wholename":
			if i == 0 || tests[i-1].text != "!" && tests[i-1].text != "-not" {
				out = append(out, tests[i+1].text)
			}
		}
	}
	return out
}

// findStarts splits find's arguments into start points and the expression.
func findStarts(args []field) (starts, expr []field) {
	i := 0
	for i < len(args) && (args[i].text == "-H" || args[i].text == "-L" || args[i].text == "-P" || strings.HasPrefix(args[i].text, "-O")) {
		i++
	}
	j := i
	for j < len(args) && !strings.HasPrefix(args[j].text, "-") && args[j].text != "(" && args[j].text != "!" && args[j].text != "\\(" {
		j++
	}
	starts = args[i:j]
	if len(starts) == 0 {
		starts = []field{{text: ".", kept: true}}
		if len(args) > 0 {
			starts[0].at = args[0].at
		}
	}
	return starts, args[j:]
}

// findPattern gives the name that the found files must have, and whether any
// test narrows the search.
func findPattern(expr []field) (name string, narrow bool) {
	or := false
	for i := 0; i < len(expr); i++ {
		switch t := expr[i].text; t {
		case "-name", "-iname", "-path", "-wholename", "-ipath", "-regex", "-iregex":
			if i+1 < len(expr) {
				n := path.Base(expr[i+1].text)
				if i > 0 && (expr[i-1].text == "!" || expr[i-1].text == "-not") {
					continue
				}
				narrow = narrow || !wild(n)
				switch {
				case name == "":
					name = n
				case isRegenName(name):
					if or {
						name = n
					} else if isRegenName(n) {
						name = n
					}
				}
			}
		case "-o", "-or", ",":
			or = true
		case "-empty":
			return "empty.tmp", true // nothing is lost with it
		case "-size":
			if i+1 < len(expr) && strings.Trim(expr[i+1].text, "0bckMG") == "" {
				return "empty.tmp", true
			}
			narrow = true
		case "-mtime", "-mmin", "-atime", "-ctime", "-newer", "-user", "-group", "-perm", "-inum", "-links", "-amin", "-cmin", "-nouser", "-nogroup", "-uid", "-gid", "-samefile", "-newermt":
			narrow = true
		}
	}
	return name, narrow
}

// found judges deleting what find finds.
func (s *shell) found(at span, starts []field, pattern string, narrow, recursive bool) {
	for _, f := range starts {
		d := f
		if pattern != "" {
			d.text = strings.TrimSuffix(f.text, "/") + "/" + pattern
		}
		pl, base := s.place(d), s.place(f)
		switch {
		case pl.regen && base.kind != placeRoot && base.kind != placeSystemTop:
		case base.kind == placeTemp && !narrow && pattern == "":
			continue
		case pl.own:
			s.r.report("self.change", at, pl.path)
		case !narrow && recursive && (base.kind == placeRoot || base.kind == placeSystemTop || base.kind == placeHomeTop):
			s.r.report("fs.delete-root", at, base.path)
		default:
			s.r.report("fs.delete-many", at, d.text)
		}
	}
}

// execFound runs a command on what find finds.
func (s *shell) execFound(words, starts []field, pattern string, narrow bool) {
	if len(words) == 0 {
		return
	}
	if name := path.Base(words[0].text); (name == "rm" || name == "shred" || name == "unlink") && hasBraces(words[1:]) {
		o := parseOptions(words[1:], "", "", false)
		s.found(spanOf(words), starts, pattern, narrow, o.has("r", "R", "recursive") || name == "rm" && !narrow)
		return
	}
	var out []field
	for _, w := range words {
		if !strings.Contains(w.text, "{}") {
			out = append(out, w)
			continue
		}
		for _, st := range starts {
			f := w
			repl := strings.TrimSuffix(st.text, "/")
			switch {
			case pattern != "" && narrow:
				repl += "/" + hole + "/" + pattern
			case narrow:
				repl += "/" + hole
			}
			if repl == "" {
				repl = "/"
			}
			f.text = strings.ReplaceAll(w.text, "{}", repl)
			out = append(out, f)
		}
	}
	s.exec(out, stream{})
}

func hasBraces(ws []field) bool {
	for _, w := range ws {
		if strings.Contains(w.text, "{}") {
			return true
		}
	}
	return false
}

func outFind(s *shell, c *cmd) stream {
	starts, tests := findStarts(c.args)
	pattern, narrow := findPattern(tests)
	st := stream{from: fromFile}
	for _, f := range starts {
		p := strings.TrimSuffix(f.text, "/")
		switch {
		case pattern != "":
			p += "/" + pattern
		case narrow:
			p += "/" + hole
		case p == "":
			p = "/"
		}
		st.items = append(st.items, p)
	}
	st.items = some(st.items)
	return st
}

// xargs runs a command with the words it reads.
func xargs(s *shell, c *cmd) {
	o := parseOptions(c.args, "aEIJdLnPRs", "arg-file delimiter max-lines max-args max-procs max-chars process-slot-var", true)
	rest := o.operands

	if len(rest) == 0 {
		return
	}
	from := c.in.from
	if !c.in.known {
		from |= fromCode
	}
	var words []field
	for _, l := range c.in.lines() {
		if len(words) > maxAlts {
			break
		}
		ws := []string{l}
		if c.in.known && !o.exact("0", "null", "d", "delimiter", "I") {
			ws = strings.Fields(l)
		}
		for _, w := range ws {
			words = append(words, field{text: strings.Trim(w, `"'`), kept: true, from: from, at: c.at})
		}
	}
	repl := ""
	if f, ok := o.get("I", "J"); ok && f.has {
		repl = f.val.text
	} else if o.exact("i", "replace") {
		repl = "{}"
		if f, ok := o.get("replace"); ok && f.has && f.val.text != "" {
			repl = f.val.text
		}
	}
	if shellNames[path.Base(rest[0].text)] && rest[len(rest)-1].text == "-c" {
		words = wholeLines(c) // each line is meant as the code
	}
	if shellNames[path.Base(rest[0].text)] && len(rest) == 1 && len(words) > 0 && c.in.piped {
		s.runScript(words[0], nil, c) // the words are script files
		return
	}
	s.exec(spread(rest, words, repl), stream{})
}

// wholeLines gives the lines that xargs reads as words.
func wholeLines(c *cmd) []field {
	var out []field
	for _, l := range some(c.in.lines()) {
		out = append(out, field{text: l, kept: true, from: c.in.from | fromCode, at: c.at})
	}
	return out
}

// spread puts words where repl stands in rest, or after it.
func spread(rest, words []field, repl string) []field {
	if repl == "" {
		return append(append([]field{}, rest...), words...)
	}
	var out []field
	used := false
	for _, w := range rest {
		if !strings.Contains(w.text, repl) {
			out = append(out, w)
			continue
		}
		used = true
		for _, x := range words {
			f := w
			f.text = strings.ReplaceAll(w.text, repl, x.text)
			f.from |= x.from
			out = append(out, f)
		}
	}
	if !used {
		out = append(out, words...)
	}
	return out
}

// parallel runs a command line for each argument.
func parallel(s *shell, c *cmd) {
	o := parseOptions(c.args, "jNnLIaSd", "jobs max-args arg-file sshlogin colsep delay retries joblog results timeout tmpdir", true)
	rest := o.operands
	var words []field
	for i, w := range rest {
		if w.text == ":::" || w.text == "::::" || w.text == ":::+" {
			words, rest = rest[i+1:], rest[:i]
			break
		}
	}
	if words == nil {
		for _, l := range some(c.in.lines()) {
			words = append(words, field{text: l, kept: true, at: c.at, from: c.in.from | fromCode})
		}
	}
	if len(rest) == 0 {
		for _, w := range words {
			s.runCode(w, stream{}, nil, false)
		}
		return
	}
	repl := ""
	for _, r := range [...]string{"{}", "{.}", "{/}", "{1}"} {
		for _, w := range rest {
			if strings.Contains(w.text, r) {
				repl = r
			}
		}
	}
	if len(rest) > 1 {
		s.exec(spread(rest, words, repl), stream{})
		return
	}
	f := joinFields(s, spread(rest, words, repl))
	f.at = c.at
	s.runCode(f, stream{}, nil, false)
}

// execOption is for programs that search or show, and run the program that one
// of their options names.
func execOption(names, values, long string, skip int) func(*shell, *cmd) {
	return func(s *shell, c *cmd) {
		o := parseOptions(c.args, values, long, false)
		for _, f := range o.flags {
			if f.has && hasWord(names, f.name) && f.val.text != "" {
				s.runCode(f.val, stream{}, nil, false)
			}
		}
		for i, f := range o.operands {
			if i >= skip {
				s.checkWord(f, accessRead)
			}
		}
	}
}

// makeProgram reads its text from files, except for --eval and variables.
func makeProgram(s *shell, c *cmd) {
	for i, a := range c.args {
		t := strings.TrimPrefix(a.text, "--eval=")
		if (a.text == "--eval" || a.text == "-E") && i+1 < len(c.args) {
			t = c.args[i+1].text
		}
		if j := strings.Index(t, "$(shell "); j >= 0 {
			f := a
			f.text = strings.TrimSuffix(t[j+len("$(shell "):], ")")
			s.runCode(f, stream{}, nil, false)
		} else if t != a.text {
			s.shellArgument(c)
		}
		if v, ok := strings.CutPrefix(a.text, "SHELL="); ok && namesShell(v) {
			s.r.report("escape.shell", a.at, "")
		}
	}
	s.checkArgs(c, &program{access: accessRead, values: "fCIjlo"})
}

// terminal is tmux or screen: what they start runs in a shell.
func terminal(s *shell, c *cmd) {
	if c.name == "tmux" {
		for i, a := range c.args {
			switch a.text {
			case "new", "new-session", "neww", "new-window", "split-window", "run-shell", "run", "send-keys", "send", "splitw", "respawn-pane", "if-shell", "pipe-pane", "new-s":
				o := parseOptions(c.args[i+1:], "sntcxyFeptlT", "", true)
				for _, f := range o.operands {
					s.runCode(f, stream{}, nil, false)
				}
				return
			case "kill-server":
				s.r.report("host.kill", c.at, "")
			}
		}
		s.shellArgument(c)
		return
	}
	o := parseOptions(c.args, "cehpsStTXQ", "Logfile", true)
	for i, a := range c.args {
		if a.text == "-L" && i+1 < len(c.args) || a.text == "-Logfile" && i+1 < len(c.args) {
			s.checkWord(c.args[i+1], accessWrite)
		}
	}
	if len(o.operands) > 0 && !o.exact("r", "ls", "x", "X", "R", "list") {
		s.exec(o.operands, stream{})
	}
}

// otherAgent starts another agent; with its approvals off that is a way round
// every gate.
func otherAgent(s *shell, c *cmd) {
	for _, a := range c.args {
		switch a.text {
		case "--dangerously-skip-permissions", "--dangerously-bypass-approvals-and-sandbox", "--yolo", "--full-auto", "--yes-always", "-y", "danger-full-access", "bypassPermissions", "--permission-mode=bypassPermissions", "--allow-dangerously-skip-permissions", "--dangerously-allow-all", "--force":
			s.r.report("agent.unguarded", c.at, a.text)
			return
		}
	}
	s.shellArgument(c)
}

// rails runs Ruby inside an application.
func rails(s *shell, c *cmd) {
	for i, a := range c.args {
		switch {
		case a.text == "runner" && i+1 < len(c.args) || a.text == "r" && i == 0 && len(c.args) > 1:
			s.r.report("code.unread", c.at, "Ruby")
			return
		case a.text == "db:drop" || a.text == "db:reset" || a.text == "db:drop:all" || a.text == "db:purge" || a.text == "db:schema:load" || a.text == "db:migrate:reset" || a.text == "db:truncate_all":
			s.r.report("db.drop", c.at, a.text)
			return
		}
	}
}

// sqlClient reads the statements that a database client is given.
func sqlClient(s *shell, c *cmd) {
	values, long := "cdfhpUvPRTFLo", "command dbname file host port username set variable output"
	switch c.name {
	case "mysql", "mariadb", "mycli":
		values, long = "ehuPDS", "execute host user port database socket"
	case "sqlite3", "sqlite", "duckdb":
		values, long = "", "cmd init separator"
	case "clickhouse-client":
		values, long = "qhud", "query host user database password"
	}
	o := parseOptions(c.args, values, long, false)
	for _, f := range o.flags {
		if !f.has {
			continue
		}
		switch f.name {
		case "c", "command", "e", "execute", "q", "query", "cmd":
			s.sqlText(f.val)
		case "f", "file", "init", "o", "output":
			s.checkWord(f.val, accessRead)
		}
	}
	if c.name == "sqlite3" || c.name == "sqlite" || c.name == "duckdb" {
		for i, f := range o.operands {
			if i == 0 {
				s.checkWord(f, accessRead)
				continue
			}
			s.sqlText(f)
		}
	}
	if c.in.known && c.in.text != "" {
		s.sqlText(field{text: c.in.text, at: c.at})
	} else if c.in.from&(fromNet|fromDecode) != 0 {
		s.r.report("remote.run", c.at, "")
	}
	s.shellArgument(c)
}

func (s *shell) sqlText(f field) {
	t := strings.TrimSpace(f.text)
	for _, p := range [...]string{".shell", ".system", "system ", `\!`, "\\! "} {
		if rest, ok := strings.CutPrefix(t, p); ok {
			code := f
			code.text = strings.TrimSpace(rest)
			s.r.report("db.shell", f.at, "")
			s.runCode(code, stream{}, nil, false)
			return
		}
	}
	for _, p := range [...]string{".output ", ".once ", ".save ", ".backup "} {
		if rest, ok := strings.CutPrefix(t, p); ok {
			w := f
			w.text = strings.TrimSpace(rest)
			s.checkWord(w, accessWrite)
			return
		}
	}
	s.r.read(toolcall.LangSQL, text{s: f.text, at: f.at, dir: s.dir})
}

// otherClient is a client of a database without SQL.
func otherClient(s *shell, c *cmd) {
	for _, a := range append(append([]field{}, c.args...), field{text: c.in.text, at: c.at}) {
		low := strings.ToLower(a.text)
		for _, w := range [...]string{"flushall", "flushdb", ".drop(", "dropdatabase", "deletemany({})", "remove({})", ".drop_", "config set dir", "shutdown", "debug sleep", "script flush", "eval \"return", "dropindexes", ".dropuser("} {
			if strings.Contains(low, w) {
				s.r.report("db.drop", a.at, "")
				return
			}
		}
		if low == "config" && strings.HasPrefix(c.name, "redis") && hasRaw(c.args, "set", "SET") {
			s.r.report("db.shell", c.at, "")
			return
		}
	}
	s.shellArgument(c)
}
