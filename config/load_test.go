package config

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// load reads a text as a configuration file, in an environment of its own.
func load(t testing.TB, text string, environ []string, flags ...Flag) (*Config, Sources, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "callgate.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(LoadOptions{Path: file, Environ: append([]string{"HOME=/home/dev"}, environ...), Flags: flags})
}

func mustLoad(t testing.TB, text string, environ []string, flags ...Flag) (*Config, Sources) {
	t.Helper()
	c, src, err := load(t, text, environ, flags...)
	if err != nil {
		t.Fatal(err)
	}
	return c, src
}

func TestBrokenFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/broken/*.yaml")
	if err != nil || len(files) < 40 {
		t.Fatalf("found %d broken files, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for line := range strings.Lines(string(text)) {
				if w, ok := strings.CutPrefix(line, "# want: "); ok {
					want = append(want, strings.ReplaceAll(strings.TrimSpace(w), "FILE", file))
				}
			}
			_, _, err = Load(LoadOptions{Path: file, Environ: []string{"HOME=/home/dev"}})
			faults, ok := errors.AsType[Faults](err)
			if !ok {
				t.Fatalf("error is %v, want faults", err)
			}
			for _, w := range want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("no fault says\n%s\nthe faults are\n%v", w, err)
				}
			}
			// A token in a file that everybody can read is one more.
			if n := len(faults) - strings.Count(err.Error(), "others than its owner"); n != len(want) {
				t.Errorf("%d faults, want %d:\n%v", n, len(want), err)
			}
			for _, f := range faults {
				if !strings.HasPrefix(f.Error(), file) && !strings.Contains(f.Reason, "is not set") {
					t.Errorf("a fault has no place: %v", f)
				}
			}
		})
	}
}

func TestGoodFiles(t *testing.T) {
	get := func(name string) *Config {
		c, _, err := Load(LoadOptions{Path: "testdata/good/" + name + ".yaml", Environ: []string{"HOME=/home/dev"}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return c
	}
	want := defaults()
	want.Approvals.Mode = ModeCustom
	want.Approvals.Hook = "/opt/data/scripts/approval_hook.py"
	want.Approvals.Context = "This agent manages a Home Assistant instance.\n"
	if diff := cmp.Diff(want, *get("hermes-block")); diff != "" {
		t.Errorf("hermes-block (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(defaults(), *get("empty-sections")); diff != "" {
		t.Errorf("empty-sections (-want +got):\n%s", diff)
	}
	want = defaults()
	want.Approvals.Mode = ModeOff
	if diff := cmp.Diff(want, *get("bare-off")); diff != "" {
		t.Errorf("bare-off (-want +got):\n%s", diff)
	}
	if got := get("one-document-with-marker").Listen; got != "127.0.0.1:9" {
		t.Errorf("listen is %q", got)
	}
	want = defaults()
	want.Upstreams["local"] = Upstream{URL: "http://127.0.0.1:8000/v1"}
	want.Upstreams["lab"] = Upstream{URL: "http://gpu.example:8000", Insecure: true, AllowPrivate: true, Timeout: Duration(90 * time.Second)}
	want.DefaultUpstreams = DefaultUpstreams{OpenAIChat: "local"}
	if diff := cmp.Diff(want, *get("upstreams")); diff != "" {
		t.Errorf("upstreams (-want +got):\n%s", diff)
	}
}

// defaults are the settings of nobody, with HOME as load has it.
func defaults() Config {
	c := Default()
	c.State = "/home/dev/.local/state/callgate"
	c.World.Home = "/home/dev"
	return c
}

func TestTheDefaultsAreValidAndClosed(t *testing.T) {
	c, src := mustLoad(t, "", nil)
	if diff := cmp.Diff(defaults(), *c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, s := range Settings(c, src) {
		if s.Source.Kind != "default" {
			t.Errorf("%s comes from %v", s.Key, s.Source)
		}
	}
	if !isLoopback("127.0.0.1") || !strings.HasPrefix(c.Listen, "127.0.0.1:") || !strings.HasPrefix(c.Control.Listen, "127.0.0.1:") {
		t.Error("a listener is not on loopback")
	}
}

func TestTheSampleSetsNothingButDefaults(t *testing.T) {
	c, _ := mustLoad(t, Sample, nil)
	if diff := cmp.Diff(defaults(), *c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTheSampleIsValidWithEverythingUncommented(t *testing.T) {
	names := []string{"local", "credential", "agents", "planner", "worker", "default"}
	for _, key := range Keys() {
		names = append(names, key[strings.LastIndexByte(key, '.')+1:])
	}
	var b strings.Builder
	for line := range strings.Lines(Sample) {
		indent, body, ok := strings.Cut(line, "# ")
		key, _, isKey := strings.Cut(strings.TrimSpace(body), ":")
		if ok && isKey && strings.TrimSpace(indent) == "" && slices.Contains(names, key) {
			line = indent + body
		}
		b.WriteString(line)
	}
	text := strings.Replace(b.String(), `  token_sha256: ""`, `  token_sha256: "`+strings.Repeat("ab", 32)+`"`, 1)
	c, _ := mustLoad(t, text, []string{"LOCAL_API_KEY=sk-local"})
	if c.Upstreams["local"].Credential.Bearer != "sk-local" || len(c.Agents) != 3 || !c.Agents["planner"].May("anthropic") || c.Agents["planner"].May("openai") {
		t.Errorf("the commented agents and credentials were not read: %+v, %+v", c.Upstreams, c.Agents)
	}
	if c.World.Workspace != "/home/dev/app" || c.Upstreams["local"].URL != "http://127.0.0.1:8000/v1" || c.State != "/var/lib/callgate" || c.Approvals.Hook == "" {
		t.Errorf("the commented settings were not read: %+v", c)
	}
}

func TestFlagsGoBeforeEnvironmentBeforeFileBeforeDefault(t *testing.T) {
	text := "listen: 127.0.0.1:1\nunknown_tools: ask\nlog: {level: warn}\n"
	environ := []string{"CALLGATE_LISTEN=127.0.0.1:2", "CALLGATE_UNKNOWN_TOOLS=deny"}
	c, src := mustLoad(t, text, environ, Flag{"--listen", "listen", "127.0.0.1:3"})
	for _, tc := range []struct{ key, value, kind, place string }{
		{"listen", "127.0.0.1:3", "flag", "--listen"},
		{"unknown_tools", "deny", "environment", "CALLGATE_UNKNOWN_TOOLS"},
		{"log.level", "warn", "file", src.File + ":3:14"},
		{"log.format", "text", "default", ""},
		{"state", "/home/dev/.local/state/callgate", "default", "from HOME"},
	} {
		for _, s := range Settings(c, src) {
			if s.Key == tc.key && (s.Value != tc.value || s.Source != Source{tc.kind, tc.place}) {
				t.Errorf("%s is %q from %v, want %q from %s %s", s.Key, s.Value, s.Source, tc.value, tc.kind, tc.place)
			}
		}
	}
}

func TestUpstreamsAreMergedByName(t *testing.T) {
	text := "upstreams:\n  lab: {url: https://lab.example, allow_private: true}\n  gpu: http://10.0.0.7:8000\n"
	c, src := mustLoad(t, text, []string{"CALLGATE_UPSTREAMS=lab=https://other.example, eu=https://eu.example"},
		Flag{"--upstream", "upstreams", "openai=https://proxy.example/v1"}, Flag{"--upstream", "upstreams", "us=https://us.example"})
	want := Upstreams{
		"anthropic": {URL: "https://api.anthropic.com"},
		"gemini":    {URL: "https://generativelanguage.googleapis.com"},
		"openai":    {URL: "https://proxy.example/v1"},
		"lab":       {URL: "https://other.example"}, // without the permission of the file's URL
		"gpu":       {URL: "http://10.0.0.7:8000"},
		"eu":        {URL: "https://eu.example"},
		"us":        {URL: "https://us.example"},
	}
	if diff := cmp.Diff(want, c.Upstreams); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for key, kind := range map[string]string{
		"upstreams.lab.url": "environment", "upstreams.lab.allow_private": "environment", "upstreams.gpu.url": "file",
		"upstreams.us.url": "flag", "upstreams.anthropic.url": "default",
	} {
		if got := src.Of(key).Kind; got != kind {
			t.Errorf("%s comes from %s, want %s", key, got, kind)
		}
	}
}

func TestThePersonsTimeInModeManual(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       time.Duration
	}{
		{"timeout is the person's where nothing else is said", "approvals: {timeout: 60}", time.Minute},
		{"human_timeout goes before timeout", "approvals: {timeout: 60, human_timeout: 90s}", 90 * time.Second},
		{"in mode custom timeout is the hook's", "approvals: {mode: custom, hook: x, timeout: 60}", 5 * time.Minute},
		{"the default stays when neither is set", "", 5 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, _ := mustLoad(t, tc.text, nil)
			if got := c.Approvals.HumanTimeout.Std(); got != tc.want {
				t.Errorf("human_timeout is %v, want %v", got, tc.want)
			}
		})
	}
}

func TestModeTakesWhatYAMLMakesOfOnAndOff(t *testing.T) {
	for text, want := range map[string]Mode{
		"off": ModeOff, "false": ModeOff, `"off"`: ModeOff, "true": ModeManual, "manual": ModeManual,
	} {
		c, _ := mustLoad(t, "approvals: {mode: "+text+"}", nil)
		if c.Approvals.Mode != want {
			t.Errorf("mode %s is %s, want %s", text, c.Approvals.Mode, want)
		}
	}
	for _, text := range []string{"0", "no", "OFF", "yes", "null", `""`} {
		if _, _, err := load(t, "approvals: {mode: "+text+"}", nil); err == nil {
			t.Errorf("mode %s is taken", text)
		}
	}
}

func TestFaultsOfEnvironmentAndFlags(t *testing.T) {
	for _, tc := range []struct {
		name    string
		environ []string
		flags   []Flag
		want    string
	}{
		{"a duration", []string{"CALLGATE_APPROVALS_TIMEOUT=soon"}, nil, `CALLGATE_APPROVALS_TIMEOUT: approvals.timeout: "soon" is not a length of time`},
		{"a boolean", []string{"CALLGATE_APPROVALS_ON_DENY_NOTIFY_GATEWAY=maybe"}, nil, `approvals.on_deny_notify_gateway: "maybe" is not true or false`},
		{"a number", []string{"CALLGATE_LIMITS_CALLS=ten"}, nil, `CALLGATE_LIMITS_CALLS: limits.calls: "ten" is not a whole number`},
		{"a mode", []string{"CALLGATE_APPROVALS_MODE=smart"}, nil, `CALLGATE_APPROVALS_MODE: approvals.mode: "smart" is no mode of this version`},
		{"upstreams", []string{"CALLGATE_UPSTREAMS=https://h"}, nil, `CALLGATE_UPSTREAMS: upstreams: "https://h" is not NAME=URL`},
		{"an upstream of a flag that is none", nil, []Flag{{"--upstream", "upstreams", "foo"}}, `--upstream: "foo" is not NAME=URL`},
		{"a value that is read but makes no sense", []string{"CALLGATE_LISTEN=here"}, nil, `CALLGATE_LISTEN: listen: "here" is not HOST:PORT`},
		{"an upstream of a flag", nil, []Flag{{"--upstream", "upstreams", "x=ftp://h"}}, `--upstream: upstreams.x: "ftp://h" is neither https nor http`},
		{"a flag's value", nil, []Flag{{"--hold", "approvals.hold", "x"}}, `--hold: "x" is not a length of time`},
		{"a flag of no setting", nil, []Flag{{"--x", "nothing", "x"}}, `--x: nothing: is not a setting`},
		{"a variable that is misspelt", []string{"CALLGATE_APROVALS_MODE=off"}, nil, `CALLGATE_APROVALS_MODE: is not a variable of callgate; did you mean CALLGATE_APPROVALS_MODE?`},
		{"the nearest variable is named", []string{"CALLGATE_APPROVALS_MOD=off"}, nil, `CALLGATE_APPROVALS_MOD: is not a variable of callgate; did you mean CALLGATE_APPROVALS_MODE?`},
		{"a flag that is empty", nil, []Flag{{"--home", "world.home", ""}}, `--home: is empty; give it a value or leave it out`},
		{"the flag of another name", nil, []Flag{{"--control", "control.listen", "here"}}, `--control: control.listen: "here" is not HOST:PORT`},
		{"a named file that is not there", []string{"CALLGATE_CONFIG=/does/not/exist.yaml"}, nil, `/does/not/exist.yaml: cannot be read: no such file`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := Load(LoadOptions{Environ: append([]string{"XDG_CONFIG_HOME=" + t.TempDir(), "HOME=/home/dev"}, tc.environ...), Flags: tc.flags})
			faults, _ := errors.AsType[Faults](err)
			if len(faults) != 1 || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is\n%v\nwant one with\n%s", err, tc.want)
			}
		})
	}
}

func TestFaultsOfAllSourcesComeAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none.yaml")
	for _, tc := range []struct {
		name, text string
		environ    []string
		flags      []Flag
		want       []string
	}{
		{"values and names of the environment",
			"", []string{"CALLGATE_APPROVALS_MOD=x", "CALLGATE_APPROVALS_MODE=nonsense", "CALLGATE_LIMITS_CALLS=0", "CALLGATE_LISTEN=nope"}, nil,
			[]string{`"nonsense" is no mode`, `CALLGATE_APPROVALS_MOD: is not`, `CALLGATE_LISTEN: listen: "nope"`, `CALLGATE_LIMITS_CALLS: limits.calls: "0" is out of range`}},
		{"file, environment and flags",
			"lisen: x\nlimits: {depth: 0}\n", []string{"CALLGATE_LOG_LEVEL=loud"}, []Flag{{"--state", "state", ""}, {"--listen", "listen", "x"}},
			[]string{":1:1: lisen: is not", ":2:17: limits.depth: ", "CALLGATE_LOG_LEVEL: log.level: ", "--state: is empty", `--listen: "x" is not HOST:PORT`}},
		{"each item of a list",
			"", []string{"CALLGATE_UPSTREAMS=foo,a=https://h,=x"}, nil,
			[]string{`upstreams: "foo" is not NAME=URL`, `upstreams: "=x" is not NAME=URL`}},
		{"a file that cannot be read takes no other fault along",
			"", []string{"CALLGATE_CONFIG=" + file, "CALLGATE_LOG_LEVEL=loud", "CALLGATE_APPROVALS_MODE=custom", "CALLGATE_CONTROL_LISTEN=0.0.0.0:1", "CALLGATE_DEFAULT_UPSTREAM_ANTHROPIC=lab"}, nil,
			[]string{"none.yaml: cannot be read", "CALLGATE_LOG_LEVEL: log.level: "}},
		{"a file that is no YAML",
			"a: [\n", []string{"CALLGATE_LOG_LEVEL=loud", "CALLGATE_APPROVALS_MODE=custom"}, nil,
			[]string{"callgate.yaml:", "CALLGATE_LOG_LEVEL: log.level: "}},
		{"a section that is none does not set what stands in it",
			"approvals: manual\n", []string{"CALLGATE_APPROVALS_MODE=custom", "CALLGATE_APPROVALS_TIMEOUT=0"}, nil,
			[]string{"approvals: must be a mapping", "CALLGATE_APPROVALS_TIMEOUT: approvals.timeout: "}},
		{"a misspelt section does not either",
			"aprovals: {hook: x}\n", []string{"CALLGATE_APPROVALS_MODE=custom"}, nil,
			[]string{"aprovals: is not a setting; did you mean approvals?"}},
		{"a list of upstreams that is wrong does not hide those of the file",
			"upstreams: {lab: 'ftp://h'}\n", []string{"CALLGATE_UPSTREAMS=foo", "CALLGATE_DEFAULT_UPSTREAM_ANTHROPIC=foo"}, nil,
			[]string{`upstreams: "foo" is not NAME=URL`, `upstreams.lab: "ftp://h" is neither`}},
		{"a misspelt variable for what is missing",
			"approvals: {mode: custom}\n", []string{"CALLGATE_HOOK=x"}, nil,
			[]string{"CALLGATE_HOOK: is not a variable of callgate; did you mean CALLGATE_APPROVALS_HOOK?"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			environ := append([]string{"HOME=/home/dev"}, tc.environ...)
			o := LoadOptions{Environ: environ, Flags: tc.flags}
			if !slices.ContainsFunc(environ, func(s string) bool { return strings.HasPrefix(s, "CALLGATE_CONFIG=") }) {
				o.Path = filepath.Join(t.TempDir(), "callgate.yaml")
				if err := os.WriteFile(o.Path, []byte(tc.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, _, err := Load(o)
			faults, _ := errors.AsType[Faults](err)
			if len(faults) != len(tc.want) {
				t.Errorf("%d faults, want %d:\n%v", len(faults), len(tc.want), err)
			}
			for _, w := range tc.want {
				if !strings.Contains(faults.Error(), w) {
					t.Errorf("no fault says\n%s\nthe faults are\n%v", w, err)
				}
			}
		})
	}
}

func TestWhatTheLoaderChecks(t *testing.T) {
	check := func(c *Config) Faults {
		return Faults{{Key: "approvals.hook", Value: c.Approvals.Hook, Reason: "cannot be run"}, {Key: "state", Reason: "is full"}}
	}
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"with the place of the setting", "approvals: {mode: custom, hook: x}\n", []string{`:1:33: approvals.hook: "x" cannot be run`, "state: is full"}},
		{"beside other faults", "approvals: {mode: custom, hook: x}\nlisten: nope\n", []string{`listen: "nope"`, `approvals.hook: "x" cannot be run`, "state: is full"}},
		{"not where the same setting is wrong", "approvals: {mode: custom, hook: 'https://h'}\n", []string{"is a URL", "state: is full"}},
		{"not where the same setting could not be read", "approvals: {mode: custom, hook: []}\nstate: []\n", []string{"hook: must be a single value", "state: must be a single value"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "callgate.yaml")
			if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, _, err := Load(LoadOptions{Path: file, Environ: []string{"HOME=/home/dev"}, Check: check})
			faults, _ := errors.AsType[Faults](err)
			if len(faults) != len(tc.want) {
				t.Errorf("%d faults, want %d:\n%v", len(faults), len(tc.want), err)
			}
			for _, w := range tc.want {
				if !strings.Contains(faults.Error(), w) {
					t.Errorf("no fault says\n%s\nthe faults are\n%v", w, err)
				}
			}
		})
	}
}

func TestNoStateDirectoryIsNoFaultOfTheSettings(t *testing.T) {
	c, _, err := Load(LoadOptions{Environ: []string{"HOME=", "XDG_CONFIG_HOME=" + t.TempDir()}})
	if err != nil || c.State != "" {
		t.Errorf("state is %q, error %v", c.State, err)
	}
}

func TestAByteOrderMarkIsNoPartOfTheFirstKey(t *testing.T) {
	c, src := mustLoad(t, "\ufefflisten: 127.0.0.1:9\n", nil)
	if c.Listen != "127.0.0.1:9" || src.Of("listen").Place != src.File+":1:9" {
		t.Errorf("listen is %s from %v", c.Listen, src.Of("listen"))
	}
	if c, _ := mustLoad(t, "\ufeff", nil); c.Listen != Default().Listen {
		t.Errorf("listen is %s", c.Listen)
	}
	if _, _, err := load(t, "log:\n  \ufefflevel: info\n", nil); err == nil {
		t.Error("a mark in the midst of the file is taken")
	}
}

func TestVariablesThatMustHaveBeenMeantForASetting(t *testing.T) {
	vars := slices.Collect(maps.Values(EnvVars()))
	for name, want := range map[string]string{
		"CALLGATE_MODE":                    "CALLGATE_DENIAL_MODE CALLGATE_APPROVALS_MODE",
		"CALLGATE_HOOK":                    "CALLGATE_APPROVALS_HOOK",
		"CALLGATE_TOKEN":                   "CALLGATE_CONTROL_TOKEN",
		"CALLGATE_STATEDIR":                "CALLGATE_STATE",
		"CALLGATE_STATE_DIR":               "CALLGATE_STATE",
		"CALLGATE_HOME":                    "CALLGATE_WORLD_HOME",
		"CALLGATE_LOGLEVEL":                "CALLGATE_LOG_LEVEL",
		"CALLGATE_LISTEN_ADDR":             "CALLGATE_LISTEN",
		"CALLGATE_CONTROL_TOKEN_FILE":      "CALLGATE_CONTROL_TOKEN",
		"CALLGATE_APPROVALS_MOD":           "CALLGATE_APPROVALS_MODE",
		"CALLGATE_UPSTREAM":                "CALLGATE_UPSTREAMS",
		"CALLGATE_LISTEN":                  "",
		"CALLGATE_CONFIG":                  "",
		"CALLGATE_CONTROL":                 "",
		"CALLGATE_VERSION":                 "",
		"CALLGATE_IMAGE_TAG":               "",
		"CALLGATE_SERVICE_HOST":            "",
		"CALLGATE_SERVICE_PORT_HTTP":       "",
		"CALLGATE_PORT":                    "",
		"CALLGATE_PORT_4141_TCP":           "",
		"CALLGATE_PORT_4141_TCP_PROTO":     "",
		"CALLGATE_CONTROL_SERVICE_HOST":    "",
		"CALLGATE_CONTROL_SERVICE_PORT":    "",
		"CALLGATE_CONTROL_PORT":            "",
		"CALLGATE_CONTROL_PORT_4142_TCP":   "",
		"CALLGATE_LISTEN_PORT_53_UDP_ADDR": "",
		"MODE":                             "",
		"MYCALLGATE_MODE":                  "",
	} {
		if got := strings.Join(meantVars(name, vars), " "); got != want {
			t.Errorf("%s was meant for %q, want %q", name, got, want)
		}
	}
	if _, _, err := load(t, "", []string{"CALLGATE_HOOK_TIMEOUT=5"}); err == nil {
		t.Error("a variable of words of settings is passed over")
	}
}

func TestVariablesOfOthersAreLeftAlone(t *testing.T) {
	mustLoad(t, "", []string{
		"CALLGATE_SERVICE_HOST=10.0.0.1", "CALLGATE_SERVICE_PORT=4141", "CALLGATE_PORT=tcp://10.0.0.1:4141",
		"CALLGATE_PORT_4141_TCP_ADDR=10.0.0.1", "CALLGATE_CONTROL=127.0.0.1:4142", "CALLGATE_LISTEN=", "not a pair", "CALLGATE_VERSION=1.2", "CALLGATE_MODE=",
	})
}

func TestATokenIsNeverShown(t *testing.T) {
	const token = "s3cret-s3cret-s3cret"
	c, src := mustLoad(t, "", []string{"CALLGATE_CONTROL_TOKEN=" + token})
	if c.Control.Token != token {
		t.Fatal("the token was not read")
	}
	for _, s := range Settings(c, src) {
		if strings.Contains(s.Value, token) {
			t.Errorf("%s shows the token", s.Key)
		}
	}
	for _, text := range []string{
		"control: {token: \"" + token + " with spaces\"}", "control: {token: [" + token + "]}",
		"control: {token_sha256: " + token + "}", "control: {token: " + token + ", token_sha256: " + token + "}",
	} {
		if _, _, err := load(t, text, nil); err == nil || strings.Contains(err.Error(), token) {
			t.Errorf("the error of %s is: %v", text, err)
		}
	}
}

func TestATokenInAFileThatOthersCanRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("control:\n  token: 0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o640: false, 0o604: false, 0o660: false} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		_, _, err := Load(LoadOptions{Path: file, Environ: []string{"HOME=/home/dev"}})
		if (err == nil) != ok {
			t.Errorf("mode %o: error is %v", mode, err)
		}
		if err != nil && !strings.Contains(err.Error(), file+":2:10: control.token: stands in a file that others") {
			t.Errorf("mode %o: error is %v", mode, err)
		}
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(LoadOptions{Path: file, Environ: []string{"HOME=/h", "CALLGATE_CONTROL_TOKEN=fedcba9876543210"}}); err != nil {
		t.Errorf("the token of the environment takes the place of that of the file, and yet: %v", err)
	}
}

func TestWhereAFileIsLookedFor(t *testing.T) {
	dir := t.TempDir()
	write := func(path, listen string) string {
		full := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte("listen: "+listen+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return full
	}
	flag := write("flag.yaml", "127.0.0.1:1")
	env := write("env.yaml", "127.0.0.1:2")
	write("xdg/callgate/callgate.yaml", "127.0.0.1:3")
	write("home/.config/callgate/callgate.yaml", "127.0.0.1:4")
	home, xdg := "HOME="+filepath.Join(dir, "home"), "XDG_CONFIG_HOME="+filepath.Join(dir, "xdg")
	for _, tc := range []struct {
		name, path string
		environ    []string
		want       string
	}{
		{"the flag goes before all", flag, []string{home, xdg, "CALLGATE_CONFIG=" + env}, "127.0.0.1:1"},
		{"then the variable", "", []string{home, xdg, "CALLGATE_CONFIG=" + env}, "127.0.0.1:2"},
		{"then the user's directory", "", []string{home, xdg}, "127.0.0.1:3"},
		{"which is below HOME by default", "", []string{home}, "127.0.0.1:4"},
		{"and none is fine", "", []string{"HOME=" + dir}, "127.0.0.1:4141"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, _, err := Load(LoadOptions{Path: tc.path, Environ: tc.environ})
			if err != nil || c.Listen != tc.want {
				t.Errorf("listen is %v, error %v, want %s", c, err, tc.want)
			}
		})
	}
	for name, path := range map[string]string{"a directory": dir, "nothing": filepath.Join(dir, "none")} {
		if _, _, err := Load(LoadOptions{Path: path, Environ: []string{home}}); err == nil {
			t.Errorf("%s was read as a file", name)
		}
	}
}

func TestPathsMayBeginWithTheHomeDirectory(t *testing.T) {
	c, _ := mustLoad(t, "state: ~/s\nworld: {workspace: ~/app, cwd: \"~\"}\n", nil)
	if c.State != "/home/dev/s" || c.World.Workspace != "/home/dev/app" || c.World.Cwd != "/home/dev" {
		t.Errorf("state %s, workspace %s, cwd %s", c.State, c.World.Workspace, c.World.Cwd)
	}
}

func TestEverySettingCanBeSetFromItsOwnText(t *testing.T) {
	text := "control: {token_sha256: " + strings.Repeat("ab", 32) + "}\napprovals: {mode: custom, hook: /x y, context: c, hold: 90s}\n" +
		"world: {home: /h, cwd: /h/c, workspace: /h/w, user: u}\nstate: /s\n"
	want, src := mustLoad(t, text, nil)
	var environ []string
	for _, s := range Settings(want, src) {
		if !strings.HasPrefix(s.Key, "upstreams.") {
			environ = append(environ, s.Env+"="+s.Value)
		}
	}
	got, _ := mustLoad(t, "", environ)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEverySettingIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	vars := EnvVars()
	for _, key := range Keys() {
		last := key[strings.LastIndexByte(key, '.')+1:]
		if !strings.Contains(Sample, last+":") {
			t.Errorf("the sample lacks %s", key)
		}
		if !strings.Contains(string(doc), "`"+key+"`") {
			t.Errorf("docs/configuration.md lacks %s", key)
		}
		if v := vars[key]; v != "" {
			for name, text := range map[string]string{"the sample": Sample, "docs/configuration.md": string(doc)} {
				if !strings.Contains(text, v) {
					t.Errorf("%s lacks %s", name, v)
				}
			}
		}
		if !strings.HasPrefix(key, "upstreams.") && !strings.HasPrefix(key, "agents.") && vars[key] == "" {
			t.Errorf("%s has no environment variable", key)
		}
	}
}

func TestDurationsAndSizesReadWhatTheyWrite(t *testing.T) {
	for text, want := range map[string]string{"30": "30s", "90": "1m30s", "5m": "5m", "3600": "1h", "0": "0s", "1.5": "1.5s", "100ms": "100ms"} {
		var d Duration
		if err := d.UnmarshalText([]byte(text)); err != nil || d.String() != want {
			t.Errorf("duration %s is %s, error %v, want %s", text, d, err, want)
		}
		var again Duration
		if err := again.UnmarshalText([]byte(d.String())); err != nil || again != d {
			t.Errorf("duration %s reads its own text as %s", d, again)
		}
	}
	for text, want := range map[string]Size{"0": 0, "7": 7, "64KiB": 65536, "32 MiB": 32 << 20, "1GiB": 1 << 30, "5MB": 5e6, "9B": 9, "2kB": 2000} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err != nil || s != want {
			t.Errorf("size %s is %d, error %v, want %d", text, s, err, want)
		}
		var again Size
		if err := again.UnmarshalText([]byte(s.String())); err != nil || again != s {
			t.Errorf("size %s reads its own text as %s", s, again)
		}
	}
	for _, text := range []string{"", "x", "NaN", "Inf", "-Inf", "1e300", "5 m", "5x"} {
		var d Duration
		if d.UnmarshalText([]byte(text)) == nil {
			t.Errorf("duration %q is read as %s", text, d)
		}
	}
	for _, text := range []string{"", "MiB", "1.5MiB", "1e3", "0x10", "99999999999999999999", "9223372036854775807KiB", "1 MiB more"} {
		var s Size
		if s.UnmarshalText([]byte(text)) == nil {
			t.Errorf("size %q is read as %s", text, s)
		}
	}
}

// FuzzLoad checks that any file is either refused with a place or gives valid
// settings.
func FuzzLoad(f *testing.F) {
	for _, glob := range []string{"testdata/broken/*.yaml", "testdata/good/*.yaml"} {
		files, err := filepath.Glob(glob)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Add([]byte(Sample))
	file := filepath.Join(f.TempDir(), "callgate.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c, _, err := Load(LoadOptions{Path: file, Environ: []string{"HOME=/home/dev"}})
		if err != nil {
			if faults, ok := errors.AsType[Faults](err); !ok || len(faults) == 0 {
				t.Errorf("an error that is no fault: %v", err)
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Errorf("loaded and yet: %v", err)
		}
	})
}

func TestEditDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"json", "jsn", 1}, {"JSON", "json", 4}, {"kitten", "sitting", 3}} {
		if got := EditDistance(tc.a, tc.b); got != tc.want {
			t.Errorf("EditDistance(%q, %q) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}
