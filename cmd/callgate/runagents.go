package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// This file holds what single agents need. Nothing of the user's own files is
// changed: what has to differ is given by flags, by variables or in files of a
// private directory.

// claudeElsewhere are the variables by which Claude Code leaves the API of its
// base URL: for providers with a form or an address of their own, and for a
// socket.
var claudeElsewhere = []string{
	"ANTHROPIC_UNIX_SOCKET", "CLAUDE_CODE_USE_ANTHROPIC_AWS", "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD", "CLAUDE_CODE_USE_BEDROCK",
	"CLAUDE_CODE_USE_FOUNDRY", "CLAUDE_CODE_USE_MANTLE", "CLAUDE_CODE_USE_VERTEX",
}

// claudeManaged are the directories of the settings that an administrator gives
// Claude Code, on Linux and macOS. They go before flags.
var claudeManaged = []string{"/etc/claude-code", "/Library/Application Support/ClaudeCode"}

// managedSettings are the files of an administrator's, those that count more
// behind the others.
func managedSettings(config string) ([]string, error) {
	// What a server hands out is kept beside the user's own settings.
	files := []string{filepath.Join(config, "remote-settings.json")}
	for _, dir := range claudeManaged {
		parts, err := filepath.Glob(filepath.Join(dir, "managed-settings.d", "*.json"))
		if err != nil {
			return nil, err
		}
		files = append(append(files, filepath.Join(dir, "managed-settings.json")), parts...)
	}
	return files, nil
}

// prepareClaude overrules base URLs in Claude Code's settings, which go before
// the environment.
func prepareClaude(l *launch) error {
	dir := firstOf(l.getenv("CLAUDE_CONFIG_DIR"), filepath.Join(l.home(), ".claude"))
	elsewhere := map[string]string{}
	for _, name := range claudeElsewhere {
		elsewhere[name] = l.getenv(name)
	}
	managed, err := managedSettings(dir)
	if err != nil {
		return err
	}
	own := ""
	for _, file := range append([]string{
		filepath.Join(dir, "settings.json"), filepath.Join(".claude", "settings.json"), filepath.Join(".claude", "settings.local.json"),
	}, managed...) {
		m, err := readSettings(file)
		if err != nil {
			return err
		}
		raw := text(m, "env", "ANTHROPIC_BASE_URL")
		if raw != "" && slices.Contains(managed, file) {
			return ungated{"claude's managed settings name " + shown(raw) + " as base URL, and nothing goes before them (" + file +
				"): its administrator can name callgate there, with " + shown(raw) + " as callgate's upstream"}
		}
		own = firstOf(raw, own)
		for name := range elsewhere {
			elsewhere[name] = firstOf(text(m, "env", name), elsewhere[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(elsewhere)) {
		if v := elsewhere[name]; v != "" && v != "0" && v != "false" {
			return ungated{name + " is set: claude would speak to another provider, or in another way, than by its base URL"}
		}
	}
	if own == "" {
		return nil
	}
	base, err := l.route("anthropic", own)
	if err != nil {
		return err
	}
	if l.has("--settings") {
		return ungated{"claude's settings name " + shown(own) + " as base URL, and --settings is among its arguments; take one of them away"}
	}
	b, err := settingsJSON(map[string]any{"env": map[string]string{"ANTHROPIC_BASE_URL": base}}, "")
	if err != nil {
		return err
	}
	l.set("ANTHROPIC_BASE_URL", base, "Claude Code")
	l.insert("--settings", strings.TrimSpace(string(b)))
	return nil
}

// prepareCodex gives flags, which go before everything in config.toml.
func prepareCodex(l *launch) error {
	own, err := codexProviders(firstOf(l.getenv("CODEX_HOME"), filepath.Join(l.home(), ".codex")))
	if err != nil {
		return err
	}
	base, err := l.route("openai", own[codexBuiltIn])
	if err != nil {
		return err
	}
	flags := []string{"-c", fmt.Sprintf("openai_base_url=%q", strings.TrimSuffix(base, "/v1")+"/v1")}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if name == codexBuiltIn {
			continue
		}
		to, err := l.route(name, own[name])
		if err != nil {
			return err
		}
		flags = append(flags, "-c", fmt.Sprintf("model_providers.%s.base_url=%q", name, to))
	}
	l.insert(flags...)
	return nil
}

// codexBuiltIn stands for the provider that Codex has without being told of it.
const codexBuiltIn = ""

// Of the TOML that Codex reads only these kinds of line matter: the headings of
// providers, their base URLs, and the one of the provider that is built in.
var (
	codexTable = regexp.MustCompile(`^\s*\[\s*model_providers\s*\.\s*("?)([A-Za-z0-9_-]+)"?\s*\]\s*$`)
	codexURL   = regexp.MustCompile(`^\s*base_url\s*=\s*(?:"([^"\\]*)"|'([^']*)')\s*$`)
	codexOwn   = regexp.MustCompile(`^\s*openai_base_url\s*=\s*(?:"([^"\\]*)"|'([^']*)')\s*$`)
)

// codexProviders gives the base URLs of the providers in the configuration
// files of Codex, by name. A base URL of a provider that stands there in
// another form is an error: that provider would not be gated.
func codexProviders(home string) (map[string]string, error) {
	own := map[string]string{}
	files, err := filepath.Glob(filepath.Join(home, "*config.toml"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("the agent's settings: %w", err)
		}
		provider, among, top := "", false, true // whose table it is, whether of providers at all, and whether of none
		for i, line := range strings.Split(string(b), "\n") {
			line = strings.TrimSpace(withoutComment(line))
			switch m := codexURL.FindStringSubmatch(line); {
			case codexTable.MatchString(line):
				provider, among, top = codexTable.FindStringSubmatch(line)[2], true, false
			case strings.HasPrefix(line, "["):
				provider, among, top = "", strings.Contains(line, "model_providers"), false
			case top && codexOwn.MatchString(line):
				m = codexOwn.FindStringSubmatch(line)
				own[codexBuiltIn] = firstOf(m[1], m[2])
			case provider != "" && m != nil:
				own[provider] = firstOf(m[1], m[2])
			case strings.Contains(line, "base_url") && (among || strings.Contains(line, "model_providers")):
				return nil, fmt.Errorf("the agent's settings: %s:%d: this base_url is not understood; write it on a line of its own below [model_providers.NAME]", file, i+1)
			}
		}
	}
	return own, nil
}

// withoutComment cuts a line of TOML where its comment begins.
func withoutComment(line string) string {
	var quote rune
	for i, r := range line {
		switch {
		case quote == 0 && r == '#':
			return line[:i]
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
		case quote == r:
			quote = 0
		}
	}
	return line
}

// prepareCopilot points Copilot CLI to callgate: to the provider of the user's
// own key, or to GitHub's models.
func prepareCopilot(l *launch) error {
	own := l.getenv("COPILOT_PROVIDER_BASE_URL")
	key := anySet(l.getenv, []string{"COPILOT_PROVIDER_API_KEY", "COPILOT_PROVIDER_API_KEY_COMMAND", "COPILOT_PROVIDER_BEARER_TOKEN"})
	if own == "" && key == "" {
		return copilotLogin(l)
	}
	name, path := "openai", "/v1"
	switch kind := l.getenv("COPILOT_PROVIDER_TYPE"); kind {
	case "", "openai":
	case "anthropic":
		name, path = "anthropic", ""
	default:
		return ungated{"COPILOT_PROVIDER_TYPE is " + kind + ", which cannot be sent to callgate"}
	}
	base := l.base + path
	if own != "" {
		u, err := providerURL(own)
		if err != nil {
			return failf(exitConfig, "COPILOT_PROVIDER_BASE_URL %w; correct or unset it", err)
		}
		if base, err = l.route(name, u.String()); err != nil {
			return err
		}
	}
	l.set("COPILOT_PROVIDER_BASE_URL", base, "Copilot CLI")
	l.unset("COPILOT_PROVIDER_TRANSPORT") // WebSockets are not passed
	return nil
}

// copilotHost is where GitHub serves models to those who are logged in.
const copilotHost = "https://api.githubcopilot.com"

// copilotLogin sends Copilot CLI to callgate for the models that come with a
// login at GitHub. The login itself stays with GitHub.
func copilotLogin(l *launch) error {
	own := l.getenv("COPILOT_API_URL")
	known := own != "" || l.src.Of("upstreams.copilot").Kind != "default"
	if host := firstOf(l.getenv("COPILOT_GH_HOST"), l.getenv("GH_HOST")); !known && host != "" && host != "github.com" {
		return ungated{"copilot is logged in at " + host + ", whose models are at an address that is not known; name it with --upstream copilot=URL"}
	}
	base, err := l.route("copilot", firstOf(own, copilotHost))
	if err != nil {
		return err
	}
	l.set("COPILOT_API_URL", base, "Copilot CLI, with a login")
	return nil
}

// prepareGemini sends Gemini CLI to callgate where the user has sent it
// elsewhere. Where not, it asks for Google's hosts by the proxy variables; a
// base URL would make it choose another kind of login. The host behind a login
// at Google is gated like that of the API.
func prepareGemini(l *launch) error {
	if l.getenv("CODE_ASSIST_ENDPOINT") == "" {
		if _, err := l.route("google-code-assist", codeAssistHost); err != nil {
			return err
		}
	}
	for _, v := range []struct{ name, upstream string }{
		{"GOOGLE_GEMINI_BASE_URL", "google"}, {"GOOGLE_VERTEX_BASE_URL", "google-vertex"}, {"CODE_ASSIST_ENDPOINT", "google-code-assist"},
	} {
		own := l.getenv(v.name)
		if own == "" {
			continue
		}
		u, err := providerURL(own)
		if err != nil {
			return failf(exitConfig, "%s %w; correct or unset it", v.name, err)
		}
		base, err := l.route(v.upstream, u.String())
		if err != nil {
			return err
		}
		l.set(v.name, base, "Gemini CLI")
	}
	return nil
}

// codeAssistHost is whom Gemini CLI asks for models behind a login at Google.
const codeAssistHost = "https://cloudcode-pa.googleapis.com"

// prepareQwen overrules base URLs in qwen-code's settings, which go before the
// environment, by settings of the system, which go before all others.
func prepareQwen(l *launch) error {
	system := firstOf(l.getenv("QWEN_CODE_SYSTEM_SETTINGS_PATH"), "/etc/qwen-code/settings.json")
	all := map[string]any{}
	home := firstOf(l.getenv("QWEN_HOME"), filepath.Join(l.home(), ".qwen"))
	for _, file := range []string{filepath.Join(home, "settings.json"), filepath.Join(".qwen", "settings.json"), system} {
		m, err := readSettings(file)
		if err != nil {
			return err
		}
		merge(all, m)
	}
	over := map[string]any{}
	for _, key := range []string{"modelProviders", "security"} {
		if v, ok := all[key]; ok {
			over[key] = v
		}
	}
	n, err := l.reroute("qwen", over, "baseUrl", "baseURL")
	if err != nil || n == 0 {
		return err
	}
	top, err := readSettings(system)
	if err != nil {
		return err
	}
	merge(top, over)
	b, err := settingsJSON(top, "  ")
	if err != nil {
		return err
	}
	path, err := l.write("qwen-settings.json", b, "base URLs of the user's settings, sent to callgate")
	if err != nil {
		return err
	}
	l.set("QWEN_CODE_SYSTEM_SETTINGS_PATH", path, "qwen-code")
	return nil
}

// preparePi gives pi a directory that is its own but for models.json.
func preparePi(l *launch) error {
	user := firstOf(l.getenv("PI_CODING_AGENT_DIR"), filepath.Join(l.home(), ".pi", "agent"))
	if rest, ok := strings.CutPrefix(user, "~/"); ok {
		user = filepath.Join(l.home(), rest)
	}
	models, err := readSettings(filepath.Join(user, "models.json"))
	if err != nil {
		return err
	}
	providers := object(models, "providers")
	for _, name := range slices.Sorted(maps.Keys(providers)) {
		if _, err := l.reroute(name, providers[name], "baseUrl"); err != nil {
			return err
		}
	}
	known := map[string]bool{}
	for _, p := range knownProviders {
		name, url := p.in("pi")
		if name == "" {
			continue
		}
		known[name] = true
		if text(providers, name, "baseUrl") != "" {
			continue
		}
		base, err := l.route(p.name, l.urlOf(p.name, url))
		if err != nil {
			return err
		}
		object(providers, name)["baseUrl"] = base
	}
	for _, name := range slices.Sorted(maps.Keys(providers)) {
		if !known[name] && text(providers, name, "baseUrl") == "" {
			l.note("pi's provider %s has no base URL and is not gated", name)
		}
	}
	chosen, err := piProvider(user, l.args[l.at:])
	if err != nil {
		return err
	}
	if chosen != "" && text(providers, chosen, "baseUrl") == "" {
		return ungated{"pi's provider " + chosen + " cannot be sent to callgate; choose another one with --provider"}
	}
	b, err := settingsJSON(models, "  ")
	if err != nil {
		return err
	}
	dir, err := l.overlay("pi", user, map[string][]byte{"models.json": b}, "auth.json", "settings.json")
	if err != nil {
		return err
	}
	l.set("PI_CODING_AGENT_DIR", dir, "pi")
	return nil
}

// urlOf is where callgate finds a provider that it has a default for, else raw.
func (l *launch) urlOf(name, raw string) string {
	if up, ok := l.cfg.Upstreams[name]; ok {
		base := strings.TrimSuffix(strings.TrimRight(up.URL, "/"), "/v1")
		return base + pathOf(raw)
	}
	return raw
}

// piElsewhere are the providers of pi that have no base URL which could be
// another one.
var piElsewhere = []string{
	"amazon-bedrock", "azure", "azure-openai-responses", "cloudflare-ai-gateway", "cloudflare-workers-ai", "github-copilot",
	"google-antigravity", "google-gemini-cli", "google-vertex", "openai-codex", "opencode", "opencode-go", "radius", "typesafe",
}

// piProvider is the provider that the arguments choose by name, alone or before
// a model's, or else the settings, those of the project before the user's; ""
// for none.
func piProvider(user string, args []string) (string, error) {
	if name := flagValue(args, "--provider"); name != "" {
		return name, nil
	}
	if model := flagValue(args, "--model"); model != "" {
		// What stands before a slash may also be a part of the model's name.
		name, _, _ := strings.Cut(model, "/")
		if slices.Contains(piElsewhere, name) {
			return name, nil
		}
		return "", nil
	}
	for _, file := range []string{filepath.Join(".pi", "settings.json"), filepath.Join(user, "settings.json")} {
		m, err := readSettings(file)
		if err != nil {
			return "", err
		}
		if name := text(m, "defaultProvider"); name != "" {
			return name, nil
		}
	}
	return "", nil
}

// flagValue is what stands behind a flag, "" where it is not among args.
func flagValue(args []string, flag string) string {
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, flag+"="); ok {
			return v
		}
		if a == flag && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// prepareOpencode lays base URLs over all of opencode's configuration, and
// leaves only those providers on that were sent to callgate.
func prepareOpencode(l *launch) error {
	all := map[string]any{}
	files, err := opencodeFiles(l)
	if err != nil {
		return err
	}
	for _, file := range files {
		m, err := readSettings(file)
		if err != nil {
			return err
		}
		merge(all, m)
	}
	inline, err := parseSettings([]byte(l.getenv("OPENCODE_CONFIG_CONTENT")))
	if err != nil {
		return failf(exitConfig, "OPENCODE_CONFIG_CONTENT: %w; correct or unset it", err)
	}
	merge(all, inline)

	own := object(all, "provider")
	routed := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		raw := firstOf(text(own, name, "options", "baseURL"), text(own, name, "api"))
		if raw == "" {
			continue
		}
		base, err := l.route(name, expandBraces(raw, l.getenv))
		if err != nil {
			return err
		}
		routed[name] = base
	}
	logins, err := opencodeLogins(l)
	if err != nil {
		return err
	}
	for _, p := range knownProviders {
		name, url := p.in("opencode")
		_, named := own[name]
		_, loggedIn := logins[name]
		if name == "" || routed[name] != "" {
			continue
		}
		// A base URL alone would make opencode offer a provider for which the
		// user has no key.
		if p.key != "" && l.getenv(p.key) == "" && !named && !loggedIn {
			continue
		}
		base, err := l.route(p.name, l.urlOf(p.name, url))
		if err != nil {
			return err
		}
		routed[name] = base
	}
	if logins["openai"] == "oauth" {
		// Such a login is for another host, whatever the base URL says.
		delete(routed, "openai")
		l.note("opencode's login for openai goes past callgate; the provider is off")
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if routed[name] == "" && name != "openai" {
			l.note("opencode's provider %s has no base URL; it is off", name)
		}
	}
	for name, base := range routed {
		object(inline, "provider", name, "options")["baseURL"] = base
	}
	inline["enabled_providers"] = enabledProviders(all["enabled_providers"], routed)
	b, err := settingsJSON(inline, "")
	if err != nil {
		return err
	}
	l.set("OPENCODE_CONFIG_CONTENT", strings.TrimSpace(string(b)), "opencode")
	return nil
}

// enabledProviders are those that the user has on and that are sent to
// callgate.
func enabledProviders(user any, routed map[string]string) []string {
	names := slices.Sorted(maps.Keys(routed))
	list, ok := user.([]any)
	if !ok {
		return names
	}
	return slices.DeleteFunc(names, func(n string) bool { return !slices.Contains(list, any(n)) })
}

// opencodeFiles are the files that opencode makes its configuration of, those
// that count more behind the others.
func opencodeFiles(l *launch) ([]string, error) {
	global := filepath.Join(firstOf(l.getenv("XDG_CONFIG_HOME"), filepath.Join(l.home(), ".config")), "opencode")
	list := []string{filepath.Join(global, "config.json"), filepath.Join(global, "opencode.json"), filepath.Join(global, "opencode.jsonc")}
	if f := l.getenv("OPENCODE_CONFIG"); f != "" {
		list = append(list, f)
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	var up []string
	for {
		up = append(up, dir)
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil || filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	for _, d := range slices.Backward(up) {
		list = append(list, filepath.Join(d, "opencode.json"), filepath.Join(d, "opencode.jsonc"))
	}
	dirs := []string{filepath.Join(l.home(), ".opencode")}
	for _, d := range slices.Backward(up) {
		dirs = append(dirs, filepath.Join(d, ".opencode"))
	}
	if d := l.getenv("OPENCODE_CONFIG_DIR"); d != "" {
		dirs = append(dirs, d)
	}
	for _, d := range dirs {
		list = append(list, filepath.Join(d, "opencode.json"), filepath.Join(d, "opencode.jsonc"))
	}
	return list, nil
}

// opencodeLogins are the providers for which opencode keeps a key or a login,
// with the kind of it.
func opencodeLogins(l *launch) (map[string]string, error) {
	data := firstOf(l.getenv("XDG_DATA_HOME"), filepath.Join(l.home(), ".local", "share"))
	m, err := readSettings(filepath.Join(data, "opencode", "auth.json"))
	if err != nil {
		return nil, err
	}
	kinds := map[string]string{}
	for name := range m {
		kinds[name] = text(m, name, "type")
	}
	return kinds, nil
}

var braces = regexp.MustCompile(`\{env:([^}]+)\}`)

// expandBraces puts the values of variables in, as opencode writes them.
func expandBraces(s string, getenv func(string) string) string {
	return braces.ReplaceAllStringFunc(s, func(m string) string { return getenv(braces.FindStringSubmatch(m)[1]) })
}

// prepareCline gives cline its own list of providers with other base URLs.
func prepareCline(l *launch) error {
	data := firstOf(l.getenv("CLINE_DATA_DIR"), filepath.Join(firstOf(l.getenv("CLINE_DIR"), filepath.Join(l.home(), ".cline")), "data"))
	user := firstOf(l.getenv("CLINE_PROVIDER_SETTINGS_PATH"), filepath.Join(data, "settings", "providers.json"))
	if _, err := os.Stat(user); errors.Is(err, fs.ErrNotExist) {
		return ungated{"cline has no provider yet that could be sent to callgate; set one up with cline auth openai -k KEY -m MODEL -b URL"}
	}
	m, err := readSettings(user)
	if err != nil {
		return err
	}
	providers := object(m, "providers")
	var routed int
	for _, name := range slices.Sorted(maps.Keys(providers)) {
		n, err := l.reroute(name, providers[name], "baseUrl")
		if err != nil {
			return err
		}
		if n == 0 {
			l.note("cline's provider %s has no base URL and is not gated", name)
		}
		routed += n
	}
	if routed == 0 {
		return ungated{"none of cline's providers has a base URL that could be sent to callgate"}
	}
	b, err := settingsJSON(m, "  ")
	if err != nil {
		return err
	}
	path, err := l.write("cline-providers.json", b, "made of "+user)
	if err != nil {
		return err
	}
	l.set("CLINE_PROVIDER_SETTINGS_PATH", path, "cline")
	// The agent proper is cline's hub, a daemon that outlives cline and keeps
	// the base URLs that it started with: it gets one of its own, which is
	// ended with it.
	hub, err := l.place("cline-hub.json", "where cline finds a hub of its own")
	if err != nil {
		return err
	}
	port := "PORT"
	if l.dir != "" {
		if port, err = freePort(); err != nil {
			return err
		}
	}
	l.set("CLINE_HUB_DISCOVERY_PATH", hub, "cline")
	l.mine = append(l.mine, "CLINE_HUB_DISCOVERY_PATH="+hub)
	l.set("CLINE_HUB_PORT", port, "cline")
	return nil
}

// freePort gives a port of this machine that nobody listens on.
func freePort() (string, error) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("a port for the agent: %w", err)
	}
	_, port, err := net.SplitHostPort(ln.Addr().String())
	return port, errors.Join(err, ln.Close())
}
