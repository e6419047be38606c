package hook

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"callgate/gate"
)

// hookOfAChild is the variable by which a test gives the command of a hook to a
// process of its own, which runs that hook and nothing else.
const hookOfAChild = "HOOK_TEST_COMMAND"

func TestMain(m *testing.M) {
	if command := os.Getenv(hookOfAChild); command != "" {
		h, err := New(Config{Command: command})
		if err != nil {
			panic(err)
		}
		h.Review(context.Background(), &gate.Request{})
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// kill -9 gives callgate no time to end its hooks.
func TestTheDeathOfCallgateEndsTheHook(t *testing.T) {
	dir := t.TempDir()
	fifo, pid := filepath.Join(dir, "started"), filepath.Join(dir, "pid")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), hookOfAChild+"="+writeScript(t, `echo $$ >`+pid+`; echo >`+fifo+`; while :; do sleep 1; done`))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(fifo); err != nil { // returns when the hook runs
		t.Error(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it says that the process was killed
	gone(t, pid)
}
