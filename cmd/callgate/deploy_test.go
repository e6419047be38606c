package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The unit runs as a user that systemd makes up, who must be able to read the
// configuration that its comment has root write.
func TestTheUnitsCommentMakesAConfigurationThatTheUnitCanRead(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "deploy", "callgate.service"))
	if err != nil {
		t.Fatal(err)
	}
	unit, etc := string(raw), filepath.Join(t.TempDir(), "callgate")
	var steps []string
	for line := range strings.Lines(unit) {
		step, isStep := strings.CutPrefix(line, "#   ")
		if isStep && strings.Contains(step, "/etc/callgate") && !strings.Contains(step, "openssl") {
			steps = append(steps, strings.ReplaceAll(step, "/etc/callgate", etc))
		}
	}
	cmd := exec.Command("sh", "-e", "-c", "umask 077\n"+strings.Join(steps, ""))
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for path, want := range map[string]os.FileMode{etc: 0o755, filepath.Join(etc, "callgate.yaml"): 0o644} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v, want mode %o", path, info, err, want)
		}
	}
	if code, _, errs := runCommand(t, map[string]string{"HOME": t.TempDir()}, "config", "validate", filepath.Join(etc, "callgate.yaml")); code != exitOK {
		t.Errorf("exit %d: %s", code, errs)
	}
	if !strings.Contains(unit, "\nRestartPreventExitStatus=64 78\n") {
		t.Error("a wrong configuration is tried again for ever")
	}
}

// The manifest's configuration is one that serve takes, with the secrets that its
// comment creates, and nobody is served without a token.
func TestTheManifestHoldsAConfigurationThatServes(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "deploy", "kubernetes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, dir := string(raw), t.TempDir()
	_, text, ok := strings.Cut(manifest, "\n  callgate.yaml: |\n")
	text, _, end := strings.Cut(text, "\n---\n")
	if !ok || !end {
		t.Fatal("there is no configuration in it")
	}
	text = strings.ReplaceAll(strings.ReplaceAll("\n"+text, "\n    ", "\n"), "/run/secrets/callgate", dir)
	for name, secret := range map[string]string{"anthropic": "sk-ant-of-the-manifest", "coder": newToken()} {
		if !strings.Contains(manifest, "--from-literal="+name+"=") || !strings.Contains(text, "file:"+dir+"/"+name) {
			t.Errorf("the secret %s is not used or not created", name)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(secret), 0o440); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "callgate.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil { // as a ConfigMap is
		t.Fatal(err)
	}
	e, _, _ := testEnv("HOME=" + t.TempDir())
	cfg, _, err := loadConfig(e, file)
	if err != nil {
		t.Fatal(err)
	}
	if tokenless(cfg) || !cfg.Agents["coder"].May("anthropic") || cfg.Agents["coder"].May("openai") || !cfg.Upstreams["anthropic"].Credential.Set() {
		t.Errorf("agents %+v, upstreams %+v", cfg.Agents, cfg.Upstreams)
	}
	for _, want := range []string{"mountPath: /run/secrets/callgate", "secretName: callgate-secrets, defaultMode: 0440", "fsGroup: 65532"} {
		if !strings.Contains(manifest, want) {
			t.Errorf("the manifest lacks %q, by which callgate can read its secrets", want)
		}
	}
}
