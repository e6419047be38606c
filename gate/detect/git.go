package detect

import "strings"

const (
	gitValues = "Cc"
	gitLong   = "git-dir work-tree namespace super-prefix config-env exec-path list-cmds attr-source"
)

// git judges git by its subcommand; names of subcommands are the same after
// any global options.
func git(s *shell, c *cmd) {
	o := parseOptions(c.args, gitValues, gitLong, true)
	for _, f := range o.flags {
		if f.has && (f.name == "c" || f.name == "config-env") {
			s.gitConfig(f.val)
		}
		if f.name == "p" || f.name == "paginate" {
			continue
		}
	}
	if len(o.operands) == 0 {
		return
	}
	sub := o.operands[0]
	args := o.operands[1:]
	if !sub.known() {
		s.r.report("shell.unresolved", sub.at, "a subcommand of git")
		return
	}
	if hasRaw(args, "--help") || hasRaw(args, "-h") && sub.text != "grep" {
		return
	}
	if at, why := gitRule(sub.text, args); at != "" {
		s.r.report(at, c.at, why)
		return
	}
	switch sub.text {
	case "config":
		s.gitSet(args)
	case "bisect":
		if len(args) > 1 && args[0].text == "run" {
			s.exec(args[1:], stream{})
		}
	case "submodule":
		if len(args) > 1 && args[0].text == "foreach" {
			rest := args[1:]
			for len(rest) > 0 && strings.HasPrefix(rest[0].text, "--") {
				rest = rest[1:]
			}
			if len(rest) > 0 {
				f := joinFields(s, rest)
				f.at = spanOf(rest)
				s.runCode(f, stream{}, nil, false)
			}
		}
	case "rebase":
		ro := parseOptions(args, "xsXC", "exec onto strategy", false)
		if f, ok := ro.get("x", "exec"); ok && f.has {
			s.runCode(f.val, stream{}, nil, false)
		}
	case "clone", "fetch", "pull", "push", "ls-remote":
		for _, a := range args {
			if rest, ok := strings.CutPrefix(a.text, "ext::"); ok {
				f := a
				f.text = rest
				s.runCode(f, stream{}, nil, false)
				s.r.report("escape.shell", a.at, "")
			}
			for _, p := range [...]string{"--upload-pack=", "--receive-pack=", "--exec="} {
				if rest, ok := strings.CutPrefix(a.text, p); ok {
					f := a
					f.text = rest
					s.runCode(f, stream{}, nil, false)
				}
			}
		}
	case "show", "cat-file", "archive", "diff", "apply", "blame":
		for _, a := range args {
			if out, ok := strings.CutPrefix(a.text, "--output="); ok {
				f := a
				f.text = out
				s.checkWord(f, accessWrite)
			}
		}
		if sub.text == "diff" && hasRaw(args, "--no-index") {
			for _, a := range args {
				s.checkWord(a, accessRead)
			}
		}
	}
}

// gitRule gives the rule that a subcommand breaks.
func gitRule(sub string, args []field) (rule, why string) {
	o := parseOptions(args, gitOptionValues[sub], "message author date branch conflict inter-hunk-context unified", false)
	first := ""
	if len(o.operands) > 0 {
		first = o.operands[0].text
	}
	dashes := indexRaw(args, "--")
	switch sub {
	case "reset":
		if o.has("hard", "merge") && !o.exact("mixed", "soft") {
			return "git.discard", "reset --hard"
		}
	case "checkout":
		switch {
		case o.has("force") || o.exact("f"):
			return "git.discard", "checkout --force"
		case dashes >= 0 && len(args) > dashes+1, first == "." || len(o.operands) > 1 && !o.exact("b", "B", "orphan", "t", "track") || o.exact("ours", "theirs", "pathspec-from-file"):
			return "git.discard", "checkout of files"
		}
	case "switch":
		if o.has("discard-changes", "force") || o.exact("f") {
			return "git.discard", "switch --discard-changes"
		}
	case "restore":
		staged := o.exact("staged", "S")
		if !staged || o.exact("worktree", "W") {
			return "git.discard", "restore"
		}
	case "clean":
		if (o.exact("f") || o.has("force")) && !(o.exact("n") || o.has("dry-run")) {
			return "git.clean", ""
		}
	case "branch":
		if o.exact("D") || (o.exact("d") || o.has("delete")) && (o.exact("f") || o.has("force")) {
			return "git.branch", "branch -D"
		}
		if o.exact("f", "M", "C") || o.exact("force") {
			return "git.branch", "branch --force"
		}
	case "tag":
		if o.exact("d") || o.has("delete") || o.exact("f", "force") {
			return "git.branch", "tag -d"
		}
	case "stash":
		if first == "drop" || first == "clear" {
			return "git.stash", "stash " + first
		}
	case "push":
		return gitPush(o)
	case "filter-branch", "filter-repo":
		return "git.rewrite", sub
	case "reflog":
		if first == "expire" || first == "delete" {
			return "git.rewrite", "reflog " + first
		}
	case "gc":
		if f, ok := o.get("prune"); ok && f.has && f.val.text != "" && f.val.text != "never" {
			return "git.rewrite", "gc --prune=" + f.val.text
		}
		if o.exact("aggressive") && o.exact("prune") {
			return "git.rewrite", "gc --prune"
		}
	case "prune":
		if !o.exact("n", "dry-run") {
			return "git.rewrite", "prune"
		}
	case "update-ref":
		if o.exact("d") || o.exact("delete") {
			return "git.rewrite", "update-ref -d"
		}
	case "worktree":
		if first == "remove" && (o.exact("f") || o.has("force")) {
			return "git.discard", "worktree remove --force"
		}
	case "rm":
		if (o.exact("f") || o.exact("force") || o.exact("r")) && !o.exact("cached", "n", "dry-run") {
			return "git.discard", "rm -f"
		}
	case "checkout-index":
		if o.exact("f", "force") {
			return "git.discard", sub
		}
	case "read-tree":
		if o.exact("reset") {
			return "git.discard", "read-tree --reset"
		}
	case "remote":
		if first == "remove" || first == "rm" {
			return "git.remote", "remote " + first
		}
	case "submodule":
		if first == "deinit" && (o.exact("f", "force") || o.exact("all")) {
			return "git.discard", "submodule deinit --force"
		}
	case "daemon":
		return "remote.tunnel", "git " + sub
	case "replace":
		return "git.rewrite", sub
	case "lfs":
		if first == "prune" {
			return "git.rewrite", "lfs prune"
		}
	case "svn":
		if first == "reset" {
			return "git.rewrite", "svn reset"
		}
	}
	return "", ""
}

// gitOptionValues are the short options of subcommands that take a value.
var gitOptionValues = map[string]string{
	"checkout": "bB", "switch": "cC", "clean": "e", "branch": "u", "tag": "mFu", "push": "o", "restore": "s", "reset": "", "stash": "m", "commit": "mFCct", "clone": "bouj", "rm": "",
}

// gitPush judges a push that loses what the other side holds.
func gitPush(o options) (string, string) {
	if o.exact("n", "dry-run") {
		return "", ""
	}
	for _, f := range o.flags {
		switch {
		case f.name == "f", f.long && strings.HasPrefix("force", f.name) && len(f.name) > 2:
			return "git.force-push", ""
		case f.name == "mirror", f.name == "prune":
			return "git.force-push", "push --" + f.name
		case f.name == "d", f.name == "delete":
			return "git.remote-delete", ""
		case f.long && strings.HasPrefix(f.name, "force-with") || f.name == "force-if-includes":
			if protectedBranch(o.operands) {
				return "git.force-push", "to a shared branch"
			}
		}
	}
	for i, f := range o.operands {
		if i == 0 {
			continue
		}
		if strings.HasPrefix(f.text, "+") {
			return "git.force-push", f.text
		}
		if strings.HasPrefix(f.text, ":") && len(f.text) > 1 {
			return "git.remote-delete", f.text
		}
	}
	return "", ""
}

// protectedBranch says whether a push goes to a branch that others work on.
func protectedBranch(ops []field) bool {
	for i, f := range ops {
		if i == 0 {
			continue
		}
		t := f.text
		if j := strings.LastIndexByte(t, ':'); j >= 0 {
			t = t[j+1:]
		}
		switch strings.TrimPrefix(t, "refs/heads/") {
		case "main", "master", "trunk", "develop", "production", "release", "stable":
			return true
		}
	}
	return false
}

// gitConfig judges a setting given for one command: many name a program.
func (s *shell) gitConfig(f field) {
	k, v, _ := strings.Cut(f.text, "=")
	low := strings.ToLower(k)
	val := f
	val.text = v
	switch {
	case strings.HasPrefix(low, "alias."):
		if code, ok := strings.CutPrefix(v, "!"); ok {
			val.text = code
			s.runCode(val, stream{}, nil, false)
		} else if v != "" {
			val.text = "git " + v
			s.runCode(val, stream{}, nil, false)
		}
	case low == "core.pager" || low == "core.editor" || low == "core.sshcommand" || low == "core.fsmonitor" || low == "diff.external" || low == "sequence.editor" || low == "credential.helper" || low == "core.askpass" || low == "core.gitproxy" || strings.HasSuffix(low, ".textconv") || strings.HasPrefix(low, "pager.") || strings.HasSuffix(low, ".cmd") || strings.HasPrefix(low, "filter.") || low == "gpg.program":
		val.text = strings.TrimPrefix(v, "!")
		if val.text != "" && val.text != "true" && val.text != "false" {
			s.runCode(val, stream{}, nil, false)
		}
	case low == "core.hookspath":
		s.r.report("git.settings", f.at, k)
	}
}

// gitSet judges git config: global settings outlive the task, and some name a
// program.
func (s *shell) gitSet(args []field) {
	o := parseOptions(args, "f", "file default type", false)
	if o.exact("get", "get-all", "list", "l", "get-regexp", "show-origin") || len(o.operands) < 2 {
		return
	}
	f := o.operands[0]
	f.text += "=" + o.operands[1].text
	s.gitConfig(f)
	k := strings.ToLower(o.operands[0].text)
	if o.exact("system") || o.exact("global") && (strings.HasPrefix(k, "core.") && k != "core.editor" && k != "core.autocrlf" && k != "core.pager" || strings.HasPrefix(k, "url.") || strings.HasPrefix(k, "credential.") || strings.Contains(k, "sslverify")) {
		s.r.report("git.settings", f.at, o.operands[0].text)
	}
}

// outGit is what git prints: text of the repository.
func outGit(s *shell, c *cmd) stream {
	return stream{from: c.in.from | fromCode}
}
