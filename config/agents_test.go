package config

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const tokenOfTests = "cgt_ABCDEFGHIJKLMNOPQRSTUVWX23"

func TestWhereSecretsComeFrom(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("sk-of-a-file\n\n"), 0o440); err != nil {
		t.Fatal(err)
	}
	text := `
upstreams:
  a:
    url: https://a.example
    credential:
      bearer: ${PROVIDER_KEY}
  b: {url: https://b.example, credential: {x_api_key: "file:` + file + `"}}
  c: {url: https://c.example, credential: {header: X-Gate-Key, value: literal-key}}
agents:
  planner: {token: "${CALLGATE_PLANNER_TOKEN}"}
control: {token: "${CONTROL}"}
`
	c, src := mustLoad(t, text, []string{"PROVIDER_KEY=sk-of-a-variable", "CALLGATE_PLANNER_TOKEN=" + tokenOfTests, "CONTROL=control-control-1"})
	for name, want := range map[string][2]string{
		"a": {"Authorization", "Bearer sk-of-a-variable"}, "b": {"X-Api-Key", "sk-of-a-file"}, "c": {"X-Gate-Key", "literal-key"}, "openai": {},
	} {
		if h, v := c.Upstreams[name].Credential.HeaderValue(); h != want[0] || v != want[1] || c.Upstreams[name].Credential.Set() != (h != "") {
			t.Errorf("upstream %s is shown %s: %s, want %v", name, h, v, want)
		}
	}
	if c.Agents["planner"].Token != tokenOfTests || c.Control.Token != "control-control-1" {
		t.Errorf("the tokens are %+v and %+v", c.Agents, c.Control)
	}
	if got := src.SecretVars(); !slices.Equal(got, []string{"CALLGATE_PLANNER_TOKEN", "CONTROL", "PROVIDER_KEY"}) {
		t.Errorf("the variables with secrets are %v", got)
	}
	for _, s := range Settings(c, src) {
		for _, secret := range []string{"sk-of-a", "literal-key", tokenOfTests, "control-control"} {
			if strings.Contains(s.Value, secret) {
				t.Errorf("%s shows a secret: %s", s.Key, s.Value)
			}
		}
	}
}

// Commands that need no secret are run by people who have none.
func TestSecretsAreLeftWhereTheyAre(t *testing.T) {
	file := filepath.Join(t.TempDir(), "callgate.yaml")
	text := "upstreams:\n  a: {url: https://a.example, credential: {bearer: \"${NOT_HERE}\"}}\nagents:\n  planner: {token: \"file:/not/here\"}\n  worker: {token: \"${NOT_HERE}\"}\ncontrol: {token: \"${X}\"}\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	o := LoadOptions{Path: file, Environ: []string{"HOME=/home/dev"}, Secretless: true}
	c, src, err := Load(o)
	if err != nil || len(c.Agents) != 2 {
		t.Fatalf("%+v, %v", c, err)
	}
	if _, ok := c.Agents["planner"].TokenHash(); !ok {
		t.Error("an agent with a token elsewhere seems to have none")
	}
	if got := src.SecretVars(); len(got) > 0 {
		t.Errorf("variables were asked for: %v", got)
	}
	o.Secretless = false
	if _, _, err := Load(o); err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("with secrets the error is %v", err)
	}
}

func TestSecretsOfAFileThatOthersCanRead(t *testing.T) {
	dir := t.TempDir()
	file, key := filepath.Join(dir, "c.yaml"), filepath.Join(dir, "key")
	for _, p := range []string{file, key} {
		if err := os.WriteFile(p, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name, text string
		mode, key  os.FileMode
		want       string
	}{
		{"a literal token", "agents: {a: {token: " + tokenOfTests + "}}", 0o644, 0o600, "agents.a.token: stands in a file that others"},
		{"a literal credential", "upstreams: {a: {url: https://h, credential: {bearer: k}}}", 0o640, 0o600, "upstreams.a.credential.bearer: stands in a file that others"},
		{"a hash is no secret", "agents: {a: {token_sha256: " + strings.Repeat("ab", 32) + "}}", 0o644, 0o600, ""},
		{"nor is the name of a variable", "agents: {a: {token: '${T}'}}", 0o644, 0o600, ""},
		{"nor that of a file", "upstreams: {a: {url: https://h, credential: {bearer: 'file:" + key + "'}}}", 0o644, 0o440, ""},
		{"a file for everybody", "upstreams: {a: {url: https://h, credential: {bearer: 'file:" + key + "'}}}", 0o600, 0o444, "which everybody can read or change; run chmod o= on it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, tc.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(key, tc.key); err != nil {
				t.Fatal(err)
			}
			_, _, err := Load(LoadOptions{Path: file, Environ: []string{"HOME=/h", "T=" + tokenOfTests}})
			if (tc.want == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), tokenOfTests)) {
				t.Errorf("error is %v, want %q", err, tc.want)
			}
		})
	}
}

// The environment and the command line replace an upstream as a whole: the key
// is for the URL that it stands beside.
func TestACredentialNeverGoesOverToAnotherURL(t *testing.T) {
	text := "upstreams: {lab: {url: https://lab.example, credential: {bearer: k}}, gpu: {url: https://gpu.example, credential: {bearer: k}}}\n"
	c, _ := mustLoad(t, text, []string{"CALLGATE_UPSTREAMS=lab=https://other.example"}, Flag{"--upstream", "upstreams", "gpu=https://third.example"})
	for _, name := range []string{"lab", "gpu"} {
		if c.Upstreams[name].Credential.Set() {
			t.Errorf("%s keeps the credential of another URL: %+v", name, c.Upstreams[name])
		}
	}
}

func TestAgentsAndWhatTheyMayUse(t *testing.T) {
	sum := sha256.Sum256([]byte(tokenOfTests))
	c, src := mustLoad(t, "agents:\n  planner:\n    token_sha256: "+strings.ToUpper(hex.EncodeToString(sum[:]))+"\n    upstreams: [openai]\n  default:\n    upstreams: [openai]\n  worker:\n    listen: 127.0.0.1:4150\n", nil)
	if got, ok := c.Agents["planner"].TokenHash(); !ok || got != sum {
		t.Errorf("the hash is %x, %v", got, ok)
	}
	if a := c.Agents["planner"]; !a.May("openai") || a.May("anthropic") || !c.Agents["worker"].May("anthropic") || c.Agents["default"].May("anthropic") {
		t.Errorf("the agents may use other upstreams than they should: %+v", c.Agents)
	}
	var got []string
	for _, s := range Settings(c, src) {
		if strings.HasPrefix(s.Key, "agents.") {
			got = append(got, s.Key+"="+s.Value)
		}
	}
	want := []string{"agents.default.upstreams=openai", "agents.planner.token_sha256=" + c.Agents["planner"].TokenSHA256, "agents.planner.upstreams=openai", "agents.worker.listen=127.0.0.1:4150"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c, src = mustLoad(t, "agents:\n  default: {}\n", nil)
	if !slices.ContainsFunc(Settings(c, src), func(s Setting) bool { return s.Key == "agents.default" && s.Value == "" }) {
		t.Error("an agent of which nothing is set is not shown")
	}
	if c, _ := mustLoad(t, "agents:\n  # planner:\n", nil); len(c.Agents) != 0 {
		t.Errorf("an empty section has agents: %+v", c.Agents)
	}
}

func TestCredentialsThatOnlyKnownAgentsCanSpend(t *testing.T) {
	const up = "upstreams: {anthropic: {url: https://api.anthropic.com, credential: {x_api_key: k}}}\n"
	for _, text := range []string{
		up,
		up + "listen: localhost:4141\nagents: {default: {}}\n",
		up + "listen: 0.0.0.0:4141\nagents: {a: {token: " + tokenOfTests + "}}\n",
		up + "listen: 0.0.0.0:4141\nagents: {a: {token: " + tokenOfTests + "}, default: {upstreams: [openai]}}\n",
		up + "agents: {a: {listen: '127.0.0.1:4150'}, b: {listen: '0.0.0.0:4151', upstreams: [openai]}}\n",
	} {
		mustLoad(t, text, nil)
	}
}
