package main

import (
	"context"
	"encoding/pem"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"callgate/config"
	"callgate/gate"
)

func TestLoopbackIsAddedToTheHostsThatNeedNoProxy(t *testing.T) {
	for _, tc := range []struct{ name, now, want string }{
		{"nothing yet", "", "127.0.0.1,localhost,::1"},
		{"the user's own stay, as they are", "intern.example, .corp", "intern.example, .corp,127.0.0.1,localhost,::1"},
		{"what is there is not added again", "LOCALHOST,127.0.0.1,[::1]", "LOCALHOST,127.0.0.1,[::1]"},
		{"a star covers everything", "*", "*"},
		{"a comma at the end", "a,", "a,127.0.0.1,localhost,::1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := noProxy(tc.now); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestWhatIsCallgatesIsKeptFromTheAgent(t *testing.T) {
	environ := []string{
		"CALLGATE_CONTROL_TOKEN=secret-token", "callgate_state=/x", "COPY=Bearer secret-token", "KEEP=1",
		"OPENAI_BASE_URL=https://old.example", "GONE=1", "OPENAI_API_KEY=sk",
	}
	got := childEnviron(environ, []setting{{Name: "OPENAI_BASE_URL", Value: "http://new"}, {Name: "A", Value: "b"}}, []string{"GONE"}, "secret-token")
	want := []string{"KEEP=1", "OPENAI_API_KEY=sk", "A=b", "OPENAI_BASE_URL=http://new"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	// A token that is not known must not take everything away.
	if got := childEnviron([]string{"KEEP=1"}, nil, nil, ""); len(got) != 1 {
		t.Errorf("without a token the environment is %q", got)
	}
}

// getter looks variables up in a map.
func getter(m map[string]string) func(string) string {
	return func(name string) string { return m[name] }
}

// newLaunch is a launch with callgate's own defaults.
func newLaunch(t *testing.T, vars map[string]string, flags ...config.Flag) *launch {
	t.Helper()
	cfg, src, err := config.Load(config.LoadOptions{Environ: []string{"HOME=" + t.TempDir()}, Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	return &launch{cfg: cfg, src: src, base: "http://127.0.0.1:1", dir: t.TempDir(), getenv: getter(vars)}
}

func (l *launch) value(name string) string {
	i := slices.IndexFunc(l.sets, func(s setting) bool { return s.Name == name })
	if i < 0 {
		return ""
	}
	return l.sets[i].Value
}

func TestTheProviderThatTheUserNamesIsTheOneThatIsSpokenTo(t *testing.T) {
	explicit := config.Flag{Name: "--upstream", Key: "upstreams", Value: "openai=https://chosen.example"}
	for _, tc := range []struct {
		name           string
		vars           map[string]string
		flags          []config.Flag
		openai         string // the URL of the upstream
		base, messages string
		notes          int
	}{
		{"nothing is named", nil, nil, "https://api.openai.com", "http://127.0.0.1:1/v1", "http://127.0.0.1:1", 0},
		{"a base URL with a version", map[string]string{"OPENAI_BASE_URL": "https://r.example/api/v1/"}, nil,
			"https://r.example/api", "http://127.0.0.1:1/v1", "http://127.0.0.1:1", 1},
		{"a base URL without one", map[string]string{"OPENAI_BASE_URL": "https://r.example/openai"}, nil,
			"https://r.example/openai", "http://127.0.0.1:1/openai", "http://127.0.0.1:1", 1},
		{"what callgate was told wins", map[string]string{"OPENAI_BASE_URL": "https://r.example/v1"}, []config.Flag{explicit},
			"https://chosen.example", "http://127.0.0.1:1/v1", "http://127.0.0.1:1", 0},
		{"two variables that differ are noted", map[string]string{"OPENAI_BASE_URL": "https://a.example/v1", "OPENAI_API_BASE": "https://b.example/v1"}, nil,
			"https://a.example", "http://127.0.0.1:1/v1", "http://127.0.0.1:1", 2},
		{"two that agree are not", map[string]string{"OPENAI_BASE_URL": "https://a.example/v1", "OPENAI_API_BASE": "https://a.example/v1"}, nil,
			"https://a.example", "http://127.0.0.1:1/v1", "http://127.0.0.1:1", 1},
		{"the provider's own address changes nothing", map[string]string{"OPENAI_BASE_URL": "https://api.openai.com/v1"}, nil,
			"https://api.openai.com", "http://127.0.0.1:1/v1", "http://127.0.0.1:1", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLaunch(t, tc.vars, tc.flags...)
			if err := l.prepare(nil); err != nil {
				t.Fatal(err)
			}
			if got := l.cfg.Upstreams["openai"].URL; got != tc.openai {
				t.Errorf("upstream openai is %s, want %s", got, tc.openai)
			}
			if got := l.value("OPENAI_BASE_URL"); got != tc.base {
				t.Errorf("OPENAI_BASE_URL is %s, want %s", got, tc.base)
			}
			if got := l.value("ANTHROPIC_BASE_URL"); got != tc.messages {
				t.Errorf("ANTHROPIC_BASE_URL is %s, want %s", got, tc.messages)
			}
			if len(l.notes) != tc.notes {
				t.Errorf("notes are %q, want %d", l.notes, tc.notes)
			}
		})
	}
	l := newLaunch(t, map[string]string{"ANTHROPIC_BASE_URL": "https://user:pw@a.example"})
	if err := l.prepare(nil); err == nil || strings.Contains(err.Error(), "pw") {
		t.Errorf("a base URL with a password gives %v", err)
	}
}

func TestAnAPIWithoutAnUpstreamLeavesNoWayPast(t *testing.T) {
	l := newLaunch(t, map[string]string{"ANTHROPIC_BASE_URL": "https://a.example"})
	l.cfg.DefaultUpstreams.Anthropic = ""
	if err := l.prepare(nil); err != nil {
		t.Fatal(err)
	}
	if got := l.value("ANTHROPIC_BASE_URL"); got != "" || !slices.Contains(l.gone, "ANTHROPIC_BASE_URL") {
		t.Errorf("ANTHROPIC_BASE_URL is %q, and taken away are %q", got, l.gone)
	}
}

// Requests of a program with each base URL that is handed out reach the path
// that the program expected at its provider.
func TestABaseURLLeadsWhereItLed(t *testing.T) {
	var seen string
	provider := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.URL.Path }))
	defer provider.Close()
	for _, path := range []string{"/v1", "", "/api/v1", "/openai", "/openai/v1/"} {
		for _, preset := range []bool{false, true} {
			vars := map[string]string{}
			if preset {
				vars["OPENAI_BASE_URL"] = provider.URL + path
			}
			l := newLaunch(t, vars)
			front := httptest.NewUnstartedServer(nil)
			l.base = "http://" + front.Listener.Addr().String()
			if err := l.prepare(nil); err != nil {
				t.Fatal(err)
			}
			base := l.value("OPENAI_BASE_URL")
			if !preset {
				var err error
				if base, err = l.route("mine", provider.URL+path); err != nil {
					t.Fatal(err)
				}
			}
			l.cfg.State = filepath.Join(t.TempDir(), "state")
			parts, err := assemble(t.Context(), l.cfg, surroundings{
				notify: (&asker{place: askNone}).notify, log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			front.Config.Handler = parts.data
			front.Start()
			res, err := http.Get(strings.TrimSuffix(base, "/") + "/models")
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			want := strings.TrimSuffix(path, "/") + "/models"
			if res.StatusCode != http.StatusOK || seen != want {
				t.Errorf("base URL %q (preset %v): status %d at %s, want %s", path, preset, res.StatusCode, seen, want)
			}
			front.Close()
			if err := parts.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestAnAgentWhoseFormatIsNotReadIsNotStarted(t *testing.T) {
	prepare := func(*launch) error { return nil }
	for _, c := range []struct {
		recipe *recipe
		want   string
	}{
		{&recipe{name: "stranger", apis: []string{"nobodys", "either"}, prepare: prepare}, "stranger speaks nobodys, either, which this version does not read: every call would be withheld"},
		{&recipe{name: "stranger", apis: []string{"nobodys"}}, "stranger speaks nobodys, which this version does not read: nothing of it would be gated"},
		{&recipe{name: "polyglot", apis: []string{"nobodys", "gemini"}, prepare: prepare}, ""},
		{nil, ""},
	} {
		err := c.recipe.unread()
		if _, ok := errors.AsType[ungated](err); ok != (c.want != "") || ok && err.Error() != c.want {
			t.Errorf("%+v: %v, want %q", c.recipe, err, c.want)
		}
	}
}

func TestTheFormatsThatRecipesCountOnAreThoseThatAreRead(t *testing.T) {
	cfg := config.Default()
	cfg.State = filepath.Join(t.TempDir(), "state")
	parts, err := assemble(t.Context(), &cfg, surroundings{notify: (&asker{place: askNone}).notify, log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer parts.Close()
	var names []string
	for _, d := range parts.data.Dialects {
		names = append(names, d.Name())
	}
	slices.Sort(names)
	if d := cmp.Diff(names, readAPIs); d != "" {
		t.Errorf("readAPIs does not name the dialects of the proxy: %s", d)
	}
}

func TestAnAgentIsRecognisedByItsProgram(t *testing.T) {
	for _, tc := range []struct {
		program string
		args    []string
		name    string
		at      int
	}{
		{"claude", nil, "claude", 0},
		{"/usr/local/bin/pi", []string{"-p", "x"}, "pi", 0},
		{"npx", []string{"--yes", "opencode-ai@1.18.33", "run"}, "opencode", 2},
		{"npx", []string{"@mariozechner/pi-coding-agent", "-p"}, "pi", 1},
		{"node", []string{"dist/qwen.js"}, "qwen", 1},
		{"python", []string{"agent.py", "pi"}, "pi", 2},
		{"grep", []string{"claude"}, "", 0},
		{"pip", nil, "", 0},
	} {
		r, at := findRecipe(tc.program, tc.args)
		name := ""
		if r != nil {
			name = r.name
		}
		if name != tc.name || at != tc.at {
			t.Errorf("%s %q: recipe %q at %d, want %q at %d", tc.program, tc.args, name, at, tc.name, tc.at)
		}
	}
}

func TestSettingsWithCommentsAreReadAsTheirAgentReadsThem(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"nothing", "", "{}"},
		{"comments of both kinds", "{// one\n\"a\":1/* two */,\"b\":2}", `{"a":1,"b":2}`},
		{"what looks like a comment in a text", `{"a":"http://x/*y*/","b":"\"//"}`, `{"a":"http://x/*y*/","b":"\"//"}`},
		{"commas before closing brackets", "{\"a\":[1,2,\n],}", `{"a":[1,2]}`},
		{"a comma, a comment and a bracket", "{\"a\":1, // last\n}", `{"a":1}`},
		{"a byte order mark", "\xef\xbb\xbf{}", "{}"},
		{"large numbers stay", `{"a":12345678901234567890}`, `{"a":12345678901234567890}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := parseSettings([]byte(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			b, err := settingsJSON(m, "")
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(string(b)); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	for _, bad := range []string{"null", "[]", "{} {}", "{/*", `{"a":`, "{,}"} {
		if m, err := parseSettings([]byte(bad)); err == nil {
			t.Errorf("%q is read as %v", bad, m)
		}
	}
}

func FuzzSettingsWithComments(f *testing.F) {
	for _, s := range []string{`{"a": 1, /* x */ "b": [1,],}`, `{"a":"\\\"//"}`, "{// x\n}", `{"a":"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := parseSettings([]byte(s))
		if err != nil {
			return
		}
		b, err := settingsJSON(m, "")
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseSettings(b)
		if err != nil || !cmp.Equal(m, again) {
			t.Errorf("%q was read as %v, which is written as %s and read as %v (%v)", s, m, b, again, err)
		}
	})
}

func TestTheProvidersOfCodexAreFound(t *testing.T) {
	write := func(name, text string) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	got, err := codexProviders(write("config.toml", `
model = "x"
openai_base_url = "https://o.example"
# base_url = "no"
[model_providers.one]
name = "One" # base_url
base_url = "https://one.example/v1" # main
[model_providers.one.http_headers]
X = "y"
[ model_providers . "two-2" ]
base_url = 'https://two.example'
[other]
base_url = "https://no.example"
openai_base_url = "https://no.example"
`))
	want := map[string]string{codexBuiltIn: "https://o.example", "one": "https://one.example/v1", "two-2": "https://two.example"}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
	if got, err := codexProviders(write("work.config.toml", "[model_providers.p]\nbase_url=\"https://p.example\"\n")); err != nil || got["p"] != "https://p.example" {
		t.Errorf("a profile gives %v (%v)", got, err)
	}
	for _, bad := range []string{
		`model_providers.x.base_url = "https://a"`,
		"[model_providers]\nx = { base_url = \"https://a\" }",
		"[model_providers.\"a b\"]\nbase_url = \"https://a\"",
		"[model_providers.x.y]\nbase_url = \"https://a\"",
		"[model_providers.x]\nbase_url = \"https:\\u002f/a\"",
		"[[model_providers.x]]\nbase_url = \"https://a\"",
	} {
		if got, err := codexProviders(write("config.toml", bad)); err == nil {
			t.Errorf("%q is passed over: %v", bad, got)
		}
	}
	if got, err := codexProviders(t.TempDir()); err != nil || len(got) > 0 {
		t.Errorf("no file gives %v (%v)", got, err)
	}
}

func TestAnOverlayLooksLikeTheUsersDirectoryAndLeavesItAlone(t *testing.T) {
	user := t.TempDir()
	for name, text := range map[string]string{"models.json": "mine", "auth.json": "key"} {
		if err := os.WriteFile(filepath.Join(user, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := newLaunch(t, nil)
	dir, err := l.overlay("pi", user, map[string][]byte{"models.json": []byte("other")}, "auth.json", "settings.json")
	if err != nil {
		t.Fatal(err)
	}
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := read(filepath.Join(dir, "models.json")); got != "other" {
		t.Errorf("the overlay's own file holds %q", got)
	}
	// What the agent writes to a file that was not there lands with the user.
	if err := os.WriteFile(filepath.Join(dir, "settings.json"), []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := read(filepath.Join(user, "settings.json")); got != "new" {
		t.Errorf("the user's settings hold %q", got)
	}
	if got := read(filepath.Join(user, "models.json")); got != "mine" {
		t.Errorf("the user's models.json was changed to %q", got)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the overlay has mode %v (%v)", info.Mode(), err)
	}
}

func TestTheVariablesOfTheForwardProxyKeepWhatTheUserTrusts(t *testing.T) {
	dir := t.TempDir()
	file := func(name, body string) string {
		path := filepath.Join(dir, name)
		b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(body)})
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca, system, company := file("ca", "ca"), file("system", "system"), file("company", "company")
	f := forwarding{proxy: "http://127.0.0.1:1", ca: ca, dir: t.TempDir(), roots: []string{filepath.Join(dir, "none"), system}}
	certificates := func(path string) (list []string) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for {
			var block *pem.Block
			if block, b = pem.Decode(b); block == nil {
				return list
			}
			list = append(list, string(block.Bytes))
		}
	}
	list, err := f.settings(getter(map[string]string{"REQUESTS_CA_BUNDLE": company, "SSL_CERT_FILE": company, "NODE_EXTRA_CA_CERTS": company}))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, s := range list {
		values[s.Name] = s.Value
	}
	for _, n := range proxyNames {
		if values[n] != f.proxy {
			t.Errorf("%s is %q", n, values[n])
		}
	}
	if values["NODE_USE_ENV_PROXY"] != "1" {
		t.Error("Node is not told to use the proxy")
	}
	for _, n := range bundleNames {
		if d := cmp.Diff([]string{"company", "system", "ca"}, certificates(values[n.Name])); d != "" {
			t.Errorf("%s: %s", n.Name, d)
		}
	}
	for _, n := range extraNames {
		if d := cmp.Diff([]string{"company", "ca"}, certificates(values[n.Name])); d != "" {
			t.Errorf("%s: %s", n.Name, d)
		}
	}
	info, err := os.Stat(values["SSL_CERT_FILE"])
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the bundle has mode %v (%v)", info.Mode(), err)
	}

	f.roots = []string{filepath.Join(dir, "none")}
	if _, err := f.settings(getter(nil)); err == nil {
		t.Error("a bundle without the system's certificates was made")
	}
	if _, err := f.settings(getter(map[string]string{"SSL_CERT_FILE": filepath.Join(dir, "gone")})); err == nil {
		t.Error("a file that is not there was passed over")
	}
	f.ca = filepath.Join(dir, "no-ca")
	if _, err := f.settings(getter(nil)); err == nil || !strings.Contains(err.Error(), "callgate ca init") {
		t.Errorf("a missing authority gives %v", err)
	}
}

func TestOnlyAnUnknownProgramIsToldToUseTheProxyInNode(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, []byte("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	roots := systemRoots
	t.Cleanup(func() { systemRoots = roots })
	systemRoots = []string{ca}
	for known, want := range map[bool]string{true: "", false: "1"} {
		l := newLaunch(t, nil)
		l.known = known
		l.cfg.CA.Dir = filepath.Dir(ca)
		if err := l.forward(); err != nil {
			t.Fatal(err)
		}
		if got := l.value(nodeUsesProxy); got != want || l.value("HTTPS_PROXY") != l.base {
			t.Errorf("with a recipe (%v) %s is %q and HTTPS_PROXY %q", known, nodeUsesProxy, got, l.value("HTTPS_PROXY"))
		}
	}
}

func TestAnAdministratorsSettingsOfClaudeGoBeforeEverything(t *testing.T) {
	managed := claudeManaged
	t.Cleanup(func() { claudeManaged = managed })
	for _, tc := range []struct{ name, file, text, says string }{
		{"no base URL", "managed-settings.json", `{"env":{"X":"y"}}`, ""},
		{"a base URL", "managed-settings.json", `{"env":{"ANTHROPIC_BASE_URL":"https://corp.example"}}`, "name https://corp.example as base URL"},
		{"a base URL in a part", "managed-settings.d/10-corp.json", `{"env":{"ANTHROPIC_BASE_URL":"https://corp.example"}}`, "10-corp.json"},
		{"another provider", "managed-settings.json", `{"env":{"CLAUDE_CODE_USE_VERTEX":"1"}}`, "CLAUDE_CODE_USE_VERTEX is set"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			claudeManaged = []string{t.TempDir()}
			path := filepath.Join(claudeManaged[0], tc.file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			l := newLaunch(t, map[string]string{"HOME": t.TempDir()})
			err := prepareClaude(l)
			if _, is := err.(ungated); is != (tc.says != "") || is && !strings.Contains(err.Error(), tc.says) || !is && err != nil {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}

func TestWithoutHOMETheAgentsSettingsAreWhereTheSystemSays(t *testing.T) {
	u, err := user.Current()
	if err != nil {
		t.Skipf("the system does not know its users: %v", err)
	}
	l := newLaunch(t, nil)
	if got := l.home(); got != u.HomeDir || !filepath.IsAbs(got) {
		t.Errorf("the home directory is %q, want %q", got, u.HomeDir)
	}
	l = newLaunch(t, map[string]string{"HOME": "/home/dev"})
	if got := l.home(); got != "/home/dev" {
		t.Errorf("HOME does not count: %q", got)
	}
}

func TestWhatTheAgentLeavesBehindIsFoundByCallgatesAddress(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no process table")
	}
	start := func(environ ...string) *exec.Cmd {
		c := exec.Command("sleep", "60")
		c.Env = environ
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		})
		return c
	}
	const base = "http://127.0.0.1:41"
	start("OPENAI_BASE_URL=http://127.0.0.1:4141/v1") // another callgate's
	if got := leftBehind("/proc", base, nil); len(got) > 0 {
		t.Errorf("found %v, where nothing is", got)
	}
	stays := start("A=b", "OPENAI_BASE_URL="+base+"/v1")
	hub := start("HTTPS_PROXY="+base, "HUB=/private/1")
	other := start("HTTPS_PROXY="+base, "HUB=/private/12")
	ended := make(chan error, 1)
	go func() { ended <- hub.Wait() }()
	want := []int{stays.Process.Pid, other.Process.Pid}
	slices.Sort(want)
	if d := cmp.Diff(want, leftBehind("/proc", base, []string{"HUB=/private/1"})); d != "" {
		t.Error(d)
	}
	select {
	case err := <-ended:
		if hub.ProcessState.Success() {
			t.Errorf("it ended by itself (%v)", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("what serves the run alone goes on")
	}
	if got := leftBehind(filepath.Join(t.TempDir(), "none"), base, nil); got != nil {
		t.Errorf("without a process table there is %v", got)
	}
}

func TestWhatAnAgentSentToAProviderIsCounted(t *testing.T) {
	cfg := config.Default()
	for _, tc := range []struct {
		method, target string
		counts         bool
	}{
		{"POST", "/v1/messages", true},
		{"GET", "/", false},
		{"CONNECT", "API.openai.com:443", true},
		{"CONNECT", "packages.example:443", false},
		{"GET", "http://api.anthropic.com/v1/models", true},
		{"GET", "http://deb.debian.org/", false},
	} {
		var n tally
		reached := false
		h := n.counted(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }), &cfg)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(tc.method, tc.target, nil))
		if !reached || (n.requests.Load() == 1) != tc.counts {
			t.Errorf("%s %s: counted %d times, want %v", tc.method, tc.target, n.requests.Load(), tc.counts)
		}
	}
}

func TestAnotherUsersPrivateDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := ownedAlone(dir); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("rights of others stay: %v (%v)", info.Mode(), err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := ownedAlone(link); err == nil {
		t.Error("a link was taken for the directory")
	}
}

func TestOnlyAClearYesIsOne(t *testing.T) {
	for s, want := range map[string]bool{"y": true, "YES": true, " yes ": true, "": false, "n": false, "yep": false, "yy": false} {
		if isYes(s) != want {
			t.Errorf("%q counts as %v", s, isYes(s))
		}
	}
	if err := (&asker{place: askNone}).notify(context.Background(), gate.Approval{}); err != errNobody {
		t.Errorf("a question that nobody can be asked gives %v", err)
	}
}
