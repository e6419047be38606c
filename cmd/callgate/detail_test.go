package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"callgate/config"
	"callgate/gate"
	"callgate/gate/store"
	"callgate/inspect/toolcall"
)

// What a hook that failed wrote to standard error is for operators: it stands
// in log, audit log and steps, and not in what the model reads.
func TestTheDetailOfAFailureGoesToOperatorsAlone(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "hook.sh")
	token := "cg_" + strings.Repeat("QX7", 8) + "AB"
	if err := os.WriteFile(script, []byte("echo 'boom at /srv/gate/hook.py, "+token+"' >&2; exit 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := wired(t)
	cfg.Approvals.Mode, cfg.Approvals.Hook = config.ModeCustom, "/bin/sh "+script
	state, err := store.Open(t.Context(), cfg.State, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	var told gate.Decision
	g, err := buildGate(cfg, surroundings{
		log:     slog.New(slog.NewTextHandler(&log, nil)),
		decided: func(_ *gate.Request, d gate.Decision) { told = d },
	}, nil, state)
	if err != nil {
		t.Fatal(err)
	}
	call := toolcall.Call{ID: "c1", Name: "bash", Args: []byte(`{"command":"rm -rf /srv/data"}`)}
	d := g.Decide(t.Context(), &gate.Request{Call: call, Actions: []toolcall.Action{
		{Kind: toolcall.KindCommand, Tool: "bash", Known: true, Command: "rm -rf /srv/data", Language: toolcall.LangShell},
	}})
	g.Close()
	if d.Outcome != gate.HookFailed || told.Detail != d.Detail {
		t.Errorf("got %+v, told %+v", d, told)
	}
	text := gate.RefusalText(d, call)
	wantIn(t, text, "the approval hook failed", "exit code 7", "outcome=hook_failed")
	for _, not := range []string{"boom", "hook.py", "cg_"} {
		if strings.Contains(text, not) {
			t.Errorf("the model is told %q: %s", not, text)
		}
	}
	if err := state.Close(); err != nil {
		t.Fatal(err)
	}
	code, entry, errs := runCommand(t, nil, "audit", "show", "1", "--state", cfg.State)
	if code != exitOK {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for where, text := range map[string]string{"log": log.String(), "audit log": entry, "steps": d.Steps[len(d.Steps)-1].Note} {
		if !strings.Contains(text, "boom at /srv/gate/hook.py, cg_Q…[29]") || strings.Contains(text, token) {
			t.Errorf("the %s says: %s", where, text)
		}
	}
}

// Rights that others had in the state directory are named in the log.
func TestServeSaysThatOthersCouldReadItsKey(t *testing.T) {
	cfg := wired(t)
	s := quiet()
	var log bytes.Buffer
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	for range 2 {
		p, err := assemble(t.Context(), cfg, s)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(cfg.State, "audit.key"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	wantIn(t, log.String(), "level=WARN", "others could read "+filepath.Join(cfg.State, "audit.key"))
}
