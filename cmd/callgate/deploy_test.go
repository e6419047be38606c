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
