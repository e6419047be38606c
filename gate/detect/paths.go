package detect

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// hole stands in a value for a part that is not known. The parser refuses NUL,
// so it cannot come from the text.
const hole = "\x00"

func itoa(n int) string { return strconv.Itoa(n) }

// kind is where a path lies.
type kind uint8

// The kinds of place. The zero value is the one nothing is known about.
const (
	placeUnknown   kind = iota
	placeRoot           // / and what equals it
	placeSystemTop      // a directory the machine cannot do without: /etc, /usr/bin ...
	placeSystem         // anything else that belongs to the system
	placeHomeTop        // the whole home of the agent, or all homes
	placeHome           // inside a home, outside the workspace
	placeOutside        // elsewhere, outside the workspace
	placeDevice         // a disk, or a part of one
	placeNull           // /dev/null, terminals and the like: nothing is kept
	placeNet            // /dev/tcp and /dev/udp of bash
	placeTempTop        // /tmp as a whole
	placeTemp           // something named in a temporary directory
	placeWorkTop        // the workspace as a whole, or a directory above it
	placeWork           // inside the workspace
)

// place is what is known about one path.
type place struct {
	path string // cleaned and absolute where that is possible
	kind kind
	// all says that the path ended in a pattern for everything in it; path is
	// then the directory.
	all bool
	// regen says that a build or install makes it again.
	regen bool
	// secret, persist and own: it holds secrets, it makes code run later, it
	// belongs to the gate.
	secret, persist, own bool
	// history says that it is a log of what was done.
	history bool
}

// places knows the world's directories.
type places struct {
	home, dir, work, user string
	ownPaths              []string
	ownNames              map[string]bool
	ownAddrs              []string
}

func newPlaces(w World) *places {
	p := &places{user: w.User, home: w.Home, work: w.Workspace, dir: w.Dir, ownNames: map[string]bool{}}
	if p.user == "" {
		p.user = "user"
	}
	if p.home == "" {
		p.home = "/home/" + p.user
	}
	p.home = path.Clean(p.home)
	if p.work != "" {
		p.work = path.Clean(p.work)
	}
	if p.dir == "" {
		p.dir = p.work
	}
	for _, o := range slices.Concat(ownAlwaysThere, w.Own) {
		switch {
		case strings.HasPrefix(o, "~") || strings.Contains(o, "/"):
			p.ownPaths = append(p.ownPaths, path.Clean(p.tilde(o)))
		case strings.Contains(o, ":"):
			p.ownAddrs = append(p.ownAddrs, o)
		case o != "":
			p.ownNames[o] = true
		}
	}
	return p
}

// ownAlwaysThere is what belongs to the gate wherever it runs.
var ownAlwaysThere = []string{"callgate", "~/.config/callgate", "/etc/callgate", "~/.local/state/callgate", "~/.local/share/callgate", "/var/lib/callgate"}

// start gives the directory a command starts in.
func (p *places) start(dir string) string {
	switch {
	case dir == "":
		return p.dir
	case path.IsAbs(dir) || strings.HasPrefix(dir, "~"):
		return path.Clean(p.tilde(dir))
	}
	return path.Join(p.dir, dir)
}

// tilde replaces a leading ~ or ~name.
func (p *places) tilde(s string) string {
	if !strings.HasPrefix(s, "~") {
		return s
	}
	name, rest, slash := strings.Cut(s[1:], "/")
	var home string
	switch name {
	case "", p.user:
		home = p.home
	case "root":
		home = "/root"
	case "+":
		home = p.dir
	case "-":
		home = hole
	default:
		home = "/home/" + name
	}
	if slash {
		return home + "/" + rest
	}
	return home
}

// clean makes s absolute against dir and folds it: doubled slashes, dots, the
// other names of the same place.
func (p *places) clean(s, dir string) string {
	s = strings.TrimPrefix(s, "file://")
	s = p.tilde(s)
	if !strings.HasPrefix(s, "/") && !strings.HasPrefix(s, hole) {
		if dir == "" {
			s = path.Clean(s)
			if s == ".." || strings.HasPrefix(s, "../") {
				return hole + "/" + s
			}
			return s
		}
		s = dir + "/" + s
	}
	s = path.Clean(s)
	for _, pre := range [...]string{"/private", "/proc/self/root", "/proc/1/root", "/host", "/System/Volumes/Data"} {
		if s == pre && pre != "/host" && pre != "/private" {
			return "/"
		}
		if under(s, pre) {
			rest := s[len(pre):]
			if pre != "/host" || systemTop["/"+firstPart(rest[1:])] {
				s = rest
			}
		}
	}
	if rest, ok := strings.CutPrefix(s, "/proc/self/cwd"); ok {
		s = path.Clean(dir + rest)
	}
	return s
}

// starts are the bytes that stand behind the slashes of a path, as bits. Most of
// the parts that a path is searched for cannot be in it by these alone.
type starts [4]uint64

func startsOf(q string) (st starts) {
	for i := 1; i < len(q); i++ {
		if q[i-1] == '/' {
			st[q[i]>>6] |= 1 << (q[i] & 63)
		}
	}
	return st
}

// may says whether a path can hold a part that begins with a slash.
func (st *starts) may(part string) bool { return st[part[1]>>6]&(1<<(part[1]&63)) != 0 }

// under says whether q lies below dir.
func under(q, dir string) bool {
	return len(q) > len(dir) && q[len(dir)] == '/' && q[:len(dir)] == dir
}

func firstPart(s string) string {
	f, _, _ := strings.Cut(s, "/")
	return f
}

// wild says whether a path component matches everything.
func wild(s string) bool {
	switch s {
	case "*", "**", ".*", "?*", "*.*", ".[!.]*", "[!.]*", "{*,.*}", ".??*":
		return true
	}
	return false
}

// locate says what is known about s, a path used in directory dir.
func (p *places) locate(s, dir string) place {
	var pl place
	if len(s) > 2 {
		s = strings.TrimSuffix(s, "/.")
	}
	q := p.clean(s, dir)
	if base := path.Base(q); wild(base) {
		pl.all = true
		q = path.Dir(q)
	}
	pl.path = q
	pl.kind = p.kindOf(q)
	pl.own = p.isOwn(q)
	rel, inHome := p.inHome(q)
	pl.secret, pl.history = isSecret(q)
	pl.persist = isPersistent(q, rel, inHome && pl.kind != placeWork)
	pl.regen = p.isRegen(q, pl.kind, rel)
	return pl
}

func (p *places) kindOf(q string) kind {
	switch {
	case strings.HasPrefix(q, hole):
		return placeUnknown
	case q == "/" || q == "//":
		return placeRoot
	case strings.HasPrefix(q, "/dev/"):
		return devKind(q[len("/dev/"):])
	case !strings.HasPrefix(q, "/"):
		// Relative, and the directory is not known: taken as the workspace.
		if q == "." {
			return placeWorkTop
		}
		if strings.HasPrefix(q, "..") {
			return placeOutside
		}
		return placeWork
	}
	switch first := firstPart(q[1:]); {
	case strings.ContainsAny(first, "*?["):
		return placeSystemTop
	case strings.HasPrefix(first, hole):
		return placeSystem
	}
	if q == p.home || q == "/home" || q == "/Users" || q == "/root" {
		return placeHomeTop
	}
	if p.work != "" {
		if q == p.work || strings.HasPrefix(p.work, q+"/") && q != path.Dir(p.home) && len(q) > len(p.home) {
			return placeWorkTop
		}
		if under(q, p.work) {
			return placeWork
		}
	}
	if under(q, p.home) {
		return placeHome // also where the home lies in a temporary directory
	}
	for _, t := range tempDirs {
		if q == t {
			return placeTempTop
		}
		if under(q, t) {
			if strings.Trim(q[len(t)+1:], "*?") == "" {
				return placeTempTop
			}
			return placeTemp
		}
	}
	if _, ok := p.inHome(q); ok {
		return placeHome
	}
	if systemTop[q] {
		return placeSystemTop
	}
	if systemTop["/"+firstPart(q[1:])] {
		if dir, base := path.Split(q); strings.ContainsAny(base, "*?[") && systemTop[path.Clean(dir)] && wild(base) {
			return placeSystemTop
		}
		return placeSystem
	}
	return placeOutside
}

var tempDirs = [...]string{"/tmp", "/var/tmp", "/dev/shm", "/var/folders"}

// systemTop are the directories whose loss ends the machine or all its users'
// work.
var systemTop = map[string]bool{
	"/bin": true, "/boot": true, "/dev": true, "/etc": true, "/lib": true, "/lib32": true, "/lib64": true, "/libx32": true,
	"/opt": true, "/proc": true, "/run": true, "/sbin": true, "/srv": true, "/sys": true, "/usr": true, "/var": true,
	"/usr/bin": true, "/usr/sbin": true, "/usr/lib": true, "/usr/lib64": true, "/usr/libexec": true, "/usr/share": true,
	"/usr/include": true, "/usr/local": true, "/usr/local/bin": true, "/usr/local/lib": true, "/usr/local/sbin": true,
	"/var/lib": true, "/boot/efi": true, "/etc/ssh": false, "/mnt": false, "/media": false,
	"/System": true, "/Library": true, "/Applications": true, "/Volumes": true, "/cores": true, "/private": true,
	"/lost+found": true, "/snap": true, "/nix": true,
}

func devKind(d string) kind {
	for _, n := range [...]string{"null", "zero", "full", "random", "urandom", "stdin", "stdout", "stderr", "tty", "ptmx", "pts/", "fd/", "console", "fuse", "kvm", "net/"} {
		if strings.HasPrefix(d, n) {
			return placeNull
		}
	}
	switch {
	case strings.HasPrefix(d, "tcp/"), strings.HasPrefix(d, "udp/"):
		return placeNet
	case d == "shm":
		return placeTempTop
	case strings.HasPrefix(d, "shm/"):
		return placeTemp
	}
	if d == "" || strings.HasPrefix(d, hole) || strings.ContainsAny(d[:1], "*?[") {
		return placeDevice
	}
	for _, n := range [...]string{"sd", "hd", "vd", "xvd", "nvme", "mmcblk", "md", "dm-", "loop", "nbd", "disk", "rdisk", "mapper/", "sr", "ram", "zd", "da", "ada", "nvd", "mtd", "rbd", "drbd", "bcache", "pmem", "dasd", "ubi", "vg", "mem", "kmem", "port", "cciss/", "sg", "block/", "st0", "nst0"} {
		if strings.HasPrefix(d, n) {
			return placeDevice
		}
	}
	if strings.Contains(d, "/") {
		return placeDevice // /dev/GROUP/VOLUME
	}
	return placeSystem
}

// inHome gives the part of q below a home directory.
func (p *places) inHome(q string) (string, bool) {
	for _, h := range [...]string{p.home, "/root"} {
		if under(q, h) {
			return q[len(h)+1:], true
		}
	}
	for _, h := range [...]string{"/home/", "/Users/"} {
		if rest, ok := strings.CutPrefix(q, h); ok {
			_, rest, _ = strings.Cut(rest, "/")
			return rest, true
		}
	}
	if strings.HasPrefix(q, hole+"/") { // "$SOMEWHERE/.bashrc": most likely a home
		return q[len(hole)+1:], true
	}
	return "", false
}

func (p *places) isOwn(q string) bool {
	for _, o := range p.ownPaths {
		if q == o || under(q, o) {
			return true
		}
	}
	base := path.Base(q)
	if !p.ownNames[base] && !p.ownNames[strings.TrimSuffix(base, ".service")] {
		return false
	}
	dir := path.Dir(q)
	return binDirs[dir] || strings.Contains(dir, "systemd") || dir == p.home+"/.local/bin" || dir == p.home+"/bin" || dir == p.home+"/go/bin"
}

var binDirs = map[string]bool{"/bin": true, "/sbin": true, "/usr/bin": true, "/usr/sbin": true, "/usr/local/bin": true, "/usr/local/sbin": true, "/opt/bin": true, "/opt/callgate": true}

// ownAddr says whether s names one of the gate's listeners.
func (p *places) ownAddr(s string) bool {
	for _, a := range p.ownAddrs {
		if i := strings.Index(s, a); i >= 0 {
			end := i + len(a)
			if (end == len(s) || s[end] < '0' || s[end] > '9') && (i == 0 || strings.IndexByte("/@= ", s[i-1]) >= 0) {
				return true
			}
		}
	}
	return false
}

// secretBases are files that hold secrets wherever they lie.
var secretBases = map[string]bool{
	"id_rsa": true, "id_dsa": true, "id_ecdsa": true, "id_ed25519": true, "id_ecdsa_sk": true, "id_ed25519_sk": true,
	".netrc": true, "_netrc": true, ".pgpass": true, ".npmrc": true, ".pypirc": true, ".git-credentials": true, ".htpasswd": true,
	".my.cnf": true, ".vault-token": true, ".s3cfg": true, ".boto": true, ".env": true, ".envrc": true,
	"master.passwd": true, "shadow": true, "gshadow": true, "shadow-": true, "sudoers": true, "opasswd": true, "spwd.db": true,
	"logins.json": true, "key4.db": true, "key3.db": true, "cookies.sqlite": true, "Login Data": true, "Cookies.binarycookies": true,
	"login.keychain": true, "login.keychain-db": true, "credentials.db": true, "access_tokens.db": true, "legacy_credentials": true,
	"application_default_credentials.json": true, "accessTokens.json": true, "msal_token_cache.json": true, "krb5.keytab": true,
	"service-account.json": true, "serviceAccountKey.json": true, "ntds.dit": true, "SAM": true, "wallet.dat": true, "secrets.yml": true, "secrets.yaml": true, "secrets.json": true, "credentials.json": true,
	"rclone.conf": true, ".dockercfg": true, "kubeconfig": true, "tskey": true, "jwt.key": true,
}

// secretParts are directories and files below some directory that hold secrets.
var secretParts = []string{
	"/.aws/credentials", "/.aws/config", "/.aws/sso/", "/.kube/config", "/.docker/config.json", "/.config/gcloud", "/.azure/", "/.gnupg", "/.oci/", "/.password-store",
	"/.config/gh/hosts.yml", "/.cargo/credentials", "/.gem/credentials", "/.terraform.d/credentials", "/.local/share/keyrings", "/Library/Keychains",
	"/Library/Cookies", "/.config/google-chrome/", "/.mozilla/firefox/", "/Application Support/Google/Chrome", "/Application Support/Firefox", "/run/secrets/", "/.config/op/", "/.config/sops/age", "/.config/rclone/",
	"/etc/ssl/private", "/etc/pki/tls/private", "/etc/sudoers.d/", "/etc/wireguard/", "/.config/hub", "/.fly/", "/.netlify/", "/.config/doctl/", "/etc/kubernetes/admin.conf", "/.claude/.credentials", "/.codex/auth.json", "/.config/anthropic/",
}

var historyBases = map[string]bool{
	".bash_history": true, ".zsh_history": true, ".sh_history": true, ".history": true, "fish_history": true, ".python_history": true,
	".mysql_history": true, ".psql_history": true, ".node_repl_history": true, ".zhistory": true, ".sqlite_history": true, ".rediscli_history": true, ".ksh_history": true, ".ash_history": true,
}

// isSecret says whether q holds secrets, and whether it is a command history.
func isSecret(q string) (secret, history bool) {
	base := path.Base(q)
	if historyBases[base] {
		return true, true
	}
	if secretBases[base] {
		return true, false
	}
	switch {
	case strings.HasPrefix(base, ".env.") || strings.HasSuffix(base, ".env") && base != ".env" && len(base) > 4 && strings.HasPrefix(base, "."):
		for _, ok := range [...]string{"example", "sample", "template", "dist", "schema", "tmpl", "d.ts", "tpl", "defaults"} {
			if strings.HasSuffix(base, "."+ok) {
				return false, false
			}
		}
		return true, false
	case strings.HasPrefix(base, "id_") && (strings.Trim(base, "id_*?") == "" || base == "id_*"):
		return true, false
	case strings.HasSuffix(base, ".kdbx"), strings.HasSuffix(base, ".keytab"), strings.HasSuffix(base, ".ppk"), strings.HasSuffix(base, ".keychain"), strings.HasSuffix(base, ".keychain-db"),
		strings.HasSuffix(base, "_rsa"), strings.HasPrefix(base, "ssh_host_") && strings.HasSuffix(base, "_key"):
		return true, false
	case strings.HasSuffix(base, ".pub"), strings.HasPrefix(base, "known_hosts"):
		return false, false
	}
	if i := strings.Index(q, "/.ssh"); i >= 0 {
		switch rest := q[i+len("/.ssh"):]; rest {
		case "/config", "/authorized_keys", "/rc", "/environment", "/authorized_keys2":
			return false, false
		default:
			return rest == "" || rest[0] == '/', false
		}
	}
	starts := startsOf(q)
	for _, s := range secretParts {
		if starts.may(s) && strings.Contains(q, s) && (strings.HasSuffix(s, "/") || strings.HasPrefix(q[strings.Index(q, s)+len(s):]+"/", "/") || strings.Contains(s[1:], "cred")) {
			return true, false
		}
	}
	if rest, ok := strings.CutPrefix(q, "/proc/"); ok {
		_, what, _ := strings.Cut(rest, "/")
		return what == "environ" || what == "mem" || what == "maps", false
	}
	return false, false
}

// homeStart are files below a home that run code later, or decide what runs.
var homeStart = map[string]bool{
	".bashrc": true, ".bash_profile": true, ".bash_login": true, ".bash_logout": true, ".bash_aliases": true, ".profile": true,
	".zshrc": true, ".zprofile": true, ".zshenv": true, ".zlogin": true, ".zlogout": true, ".kshrc": true, ".shrc": true, ".cshrc": true, ".tcshrc": true, ".login": true,
	".config/fish/config.fish": true, ".ssh/authorized_keys": true, ".ssh/authorized_keys2": true, ".ssh/config": true, ".ssh/rc": true, ".ssh/environment": true,
	".xinitrc": true, ".xprofile": true, ".xsession": true, ".inputrc": true, ".pam_environment": true, ".gitconfig": true, ".config/git/config": true, ".vimrc": true, ".rhosts": true, ".forward": true, ".shosts": true,
	".claude/settings.json": true, ".codex/config.toml": true, ".launchd.conf": true,
}

var persistParts = []string{
	"/.config/autostart/", "/.config/systemd/user/", "/Library/LaunchAgents", "/Library/LaunchDaemons", "/Library/StartupItems", "/.config/environment.d/", "/.config/fish/conf.d/",
	"/.config/plasma-workspace/", "/.local/share/systemd/user/", "/Library/Preferences/ByHost/com.apple.loginwindow", "/Library/Preferences/com.apple.loginwindow", "/.git/hooks/",
	"/etc/cron", "/var/spool/cron", "/etc/systemd/system", "/lib/systemd/system", "/usr/lib/systemd/", "/etc/init.d/", "/etc/rc", "/etc/profile", "/etc/ld.so.preload", "/etc/ld.so.conf",
	"/etc/sudoers", "/etc/pam.d/", "/etc/passwd", "/etc/shadow", "/etc/group", "/etc/bash.bashrc", "/etc/bashrc", "/etc/zsh", "/etc/environment", "/etc/udev/rules.d", "/etc/update-motd.d", "/etc/ssh/", "/etc/hosts", "/etc/modules", "/etc/xdg/autostart",
	"/usr/local/etc/rc.d", "/usr/local/etc/sudoers", "/var/at/", "/etc/emond.d", "/private/var/db/emond", "/etc/apt/", "/etc/yum.repos.d", "/etc/anacrontab", "/etc/at.", "/var/db/emondClients", "/etc/periodic", "/etc/doas.conf", "/usr/local/etc/doas.conf",
}

// isPersistent says whether writing q makes code run later or changes who may
// do what. rel is its path below a home.
func isPersistent(q, rel string, inHome bool) bool {
	if inHome && homeStart[rel] || path.Base(q) == "authorized_keys" {
		return true
	}
	starts := startsOf(q)
	for _, s := range persistParts {
		if starts.may(s) && strings.Contains(q, s) && !strings.HasSuffix(q, ".sample") {
			if strings.HasPrefix(s, "/etc") || strings.HasPrefix(s, "/var") || strings.HasPrefix(s, "/usr") || strings.HasPrefix(s, "/lib") {
				if !strings.HasPrefix(q, s) {
					continue
				}
			}
			return true
		}
	}
	return false
}

// regenNames are directories and files that a build, an install or a run makes
// again.
var regenNames = map[string]bool{
	"node_modules": true, "bower_components": true, "jspm_packages": true, "build": true, "dist": true, "target": true, "out": true, "output": true,
	"__pycache__": true, ".cache": true, ".pytest_cache": true, ".mypy_cache": true, ".ruff_cache": true, ".tox": true, ".nox": true, ".hypothesis": true, ".ipynb_checkpoints": true,
	".next": true, ".nuxt": true, ".svelte-kit": true, ".turbo": true, ".parcel-cache": true, ".vite": true, ".output": true, ".angular": true, ".expo": true, ".vercel": true, ".docusaurus": true,
	"coverage": true, "htmlcov": true, ".nyc_output": true, ".coverage": true, ".gradle": true, ".venv": true, "venv": true, ".eggs": true, "CMakeFiles": true, ".terraform": true, ".dart_tool": true,
	"DerivedData": true, "Pods": true, "_build": true, "zig-cache": true, ".zig-cache": true, "zig-out": true, ".stack-work": true, "dist-newstyle": true, "elm-stuff": true, "obj": true, "Debug": true, "Release": true,
	"tmp": true, "temp": true, "core": true, ".tmp": true, ".DS_Store": true, "CMakeCache.txt": true, ".sass-cache": true, ".eslintcache": true, "test-results": true, "playwright-report": true, "bazel-out": true, "bazel-bin": true, ".serverless": true, ".aws-sam": true, "_site": true, ".jekyll-cache": true, ".bundle": true, "cache": true, "lib-cov": true, ".swc": true, "storybook-static": true,
}

var regenSuffixes = [...]string{".pyc", ".pyo", ".tmp", ".temp", ".o", ".obj", ".class", ".swp", ".swo", "~", ".egg-info", ".cache", ".aux", ".toc", ".gcda", ".gcno", ".pid", ".tsbuildinfo", ".bak", ".log", ".orig", ".out"}

// isRegenName says whether a file or directory of that name can be made again.
func isRegenName(s string) bool {
	if i := strings.IndexByte(s, '['); i >= 0 && i+1 < len(s) { // *.py[co]
		if j := strings.IndexByte(s[i:], ']'); j > 1 {
			s = s[:i] + s[i+1:i+2] + s[i+j+1:]
		}
	}
	if regenNames[s] || strings.HasPrefix(s, "cmake-build-") || strings.HasPrefix(s, ".fuse_hidden") {
		return true
	}
	for _, x := range regenSuffixes {
		if strings.HasSuffix(s, x) && len(s) > len(x) {
			return true
		}
	}
	return false
}

// isRegen says whether q lies in something that can be made again.
func (p *places) isRegen(q string, k kind, rel string) bool {
	switch k {
	case placeWork:
		q = strings.TrimPrefix(q, p.work+"/")
	case placeHome:
		f := firstPart(rel)
		if (f == ".cache" || f == ".npm" || f == ".gradle" || f == ".m2" || f == ".ccache") && len(rel) > len(f) {
			return true
		}
		return regenParts(rel)
	case placeTemp:
	case placeUnknown:
		q = strings.TrimPrefix(q, hole)
	case placeOutside:
		if p.work != "" {
			return regenNames[path.Base(q)] && strings.Count(q, "/") > 2
		}
	default:
		return false
	}
	return regenParts(q)
}

func regenParts(q string) bool {
	for q != "" {
		f, rest, _ := strings.Cut(q, "/")
		if f == ".git" {
			return false
		}
		if isRegenName(f) {
			return true
		}
		q = rest
	}
	return false
}
