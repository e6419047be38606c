package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"callgate/gate"
	"callgate/inspect/toolcall"
)

// script writes a shell script and gives the command that runs it. sh reads
// it, so no file that is being written is ever executed.
func writeScript(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hook.sh")
	if err := os.WriteFile(path, []byte(body+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return "/bin/sh " + path
}

func newHook(t *testing.T, c Config) *Hook {
	t.Helper()
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// review runs a script once.
func review(t *testing.T, body string) gate.Opinion {
	t.Helper()
	return newHook(t, Config{Command: writeScript(t, body)}).Review(t.Context(), flagged())
}

func flagged() *gate.Request {
	const args = `{"command":"rm -rf \"a <b>\" && echo sk-aaaaaaaaaaaaaaaaaaaa"}`
	const command = `rm -rf "a <b>" && echo sk-aaaaaaaaaaaaaaaaaaaa`
	return &gate.Request{
		Call: toolcall.Call{ID: "call_1", Name: "bash", Args: []byte(args)},
		Actions: []toolcall.Action{
			{Kind: toolcall.KindFile, Tool: "bash", Path: "/tmp/x", Content: []byte("hi")},
			{Kind: toolcall.KindCommand, Tool: "bash", Known: true, Command: command, Language: toolcall.LangShell, Dir: "/srv"},
		},
		Findings: []gate.Finding{{Rule: "fs.recursive-delete", Category: "fs", Severity: gate.Danger, Reason: "deletes a tree", Action: 1, End: 6, Words: "rm -rf", Instead: "move it"}},
		Siblings: []toolcall.Call{{Name: "read", ID: "call_2", Args: []byte(`{"path":"x"}`)}, {Name: "patch", Text: true, Args: []byte("*** Begin")}},
		Agent:    "coder", Principal: "secret-principal", Session: "secret-principal/s1",
		Claimed:  gate.Claims{Session: "s1", User: "ann", Platform: "cli"},
		Upstream: "openai", Dialect: "openai-chat", Model: "gpt", Turn: "t1", Trace: "abc",
	}
}

func TestAnswersThatCount(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		verdict    gate.Verdict
		outcome    gate.Outcome
		reason     string
	}{
		{"approve", `echo '{"decision":"approve","reason":"a test"}'`, gate.Allow, "", "a test"},
		{"approve without a reason", `printf '{"decision":"approve"}'`, gate.Allow, "", ""},
		{"approve with white space around", `printf ' \n {"decision" : "approve" } \n\n'`, gate.Allow, "", ""},
		{"approve and noise on standard error", `echo working >&2; echo '{"decision":"approve"}'`, gate.Allow, "", ""},
		{"approve without reading standard input", `exec <&-; echo '{"decision":"approve"}'`, gate.Allow, "", ""},
		{"approve after reading all", `cat >/dev/null; echo '{"decision":"approve"}'`, gate.Allow, "", ""},
		{"deny", `echo '{"decision":"deny","reason":"no"}'`, gate.Deny, gate.Denied, "no"},
		{"escalate", `echo '{"reason":"unsure","decision":"escalate"}'`, gate.Ask, "", "unsure"},
		{"exit 2 with nothing", `exit 2`, gate.Deny, gate.Denied, ""},
		{"exit 2 with a message", `echo 'not on prod' >&2; exit 2`, gate.Deny, gate.Denied, "not on prod"},
		{"exit 2 with an approve", `echo '{"decision":"approve","reason":"ha"}'; exit 2`, gate.Deny, gate.Denied, "ha"},
		{"exit 2 with JSON and a message", `echo err >&2; echo '{"decision":"deny","reason":"json"}'; exit 2`, gate.Deny, gate.Denied, "json"},
		{"exit 2 with nonsense", `echo nonsense; echo why >&2; exit 2`, gate.Deny, gate.Denied, "why"},
		{"exit 2 with a long message", `i=0; while [ $i -lt 900 ]; do printf ä >&2; i=$((i+1)); done; exit 2`, gate.Deny, gate.Denied, strings.Repeat("ä", 400)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			op := review(t, tt.body)
			if op.Verdict != tt.verdict || op.Outcome != tt.outcome || op.Reason != tt.reason || op.By != "hook" {
				t.Errorf("got %s %q by %s: %q", op.Verdict, op.Outcome, op.By, op.Reason)
			}
			if len(op.Steps) != 1 || op.Steps[0].Name != "hook" || op.Steps[0].End.Before(op.Steps[0].Start) || op.Steps[0].Note == "" {
				t.Errorf("steps %+v", op.Steps)
			}
		})
	}
}

// None of these is an answer. Each is denied as a hook that failed.
func TestAnswersThatDoNotCount(t *testing.T) {
	for _, tt := range []struct{ name, out, reason string }{
		{"nothing", "", "empty"},
		{"white space", " \n\t ", "empty"},
		{"a word", "approve", "no value"},
		{"a string", `"approve"`, "object"},
		{"a number", "1", "object"},
		{"null", "null", "object"},
		{"true", "true", "object"},
		{"an array", `["approve"]`, "object"},
		{"an array around it", `[{"decision":"approve"}]`, "object"},
		{"an empty object", `{}`, "no decision"},
		{"only a reason", `{"reason":"fine"}`, "no decision"},
		{"the decision null", `{"decision":null}`, "not a string"},
		{"the decision true", `{"decision":true}`, "not a string"},
		{"the decision an object", `{"decision":{"approve":true}}`, "not a string"},
		{"the decision an array", `{"decision":["approve"]}`, "not a string"},
		{"the decision empty", `{"decision":""}`, "only approve, deny and escalate"},
		{"the decision allow", `{"decision":"allow"}`, "only approve, deny and escalate"},
		{"the decision block", `{"decision":"block"}`, "only approve, deny and escalate"},
		{"the decision ask", `{"decision":"ask"}`, "only approve, deny and escalate"},
		{"the decision yes", `{"decision":"yes"}`, "only approve, deny and escalate"},
		{"the decision in capitals", `{"decision":"APPROVE"}`, "only approve, deny and escalate"},
		{"the decision with a space behind", `{"decision":"approve "}`, "only approve, deny and escalate"},
		{"the decision with a line break behind", `{"decision":"approve\n"}`, "only approve, deny and escalate"},
		{"the key in capitals", `{"DECISION":"approve"}`, "reads like decision"},
		{"the key with one capital", `{"Decision":"approve"}`, "reads like decision"},
		{"the key with a long s", `{"deci\u017fion":"approve"}`, "reads like decision"},
		{"the key escaped", `{"decisio\u006e":"approve"}`, "reads like decision"},
		{"the key twice", `{"decision":"deny","decision":"approve"}`, "twice"},
		{"the key twice in other case", `{"decision":"approve","DECISION":"deny"}`, "reads like decision"},
		{"two reasons", `{"decision":"approve","reason":"a","reason":"b"}`, "twice"},
		{"the reason a number", `{"decision":"approve","reason":1}`, "not a string"},
		{"the reason null", `{"decision":"approve","reason":null}`, "not a string"},
		{"an unknown key", `{"decision":"approve","scope":"session"}`, `"scope" does not belong`},
		{"an empty key", `{"decision":"approve","":1}`, "does not belong"},
		{"the keys of another contract", `{"hookSpecificOutput":{"permissionDecision":"allow"}}`, "does not belong"},
		{"two contracts at once", `{"decision":"approve","hookSpecificOutput":{"permissionDecision":"deny"}}`, "does not belong"},
		{"the action of another contract", `{"action":"approve","message":"x"}`, "does not belong"},
		{"continue false beside an approve", `{"decision":"approve","continue":false}`, "does not belong"},
		{"two documents", `{"decision":"approve"}{"decision":"approve"}`, "behind the document"},
		{"two lines", "{\"decision\":\"approve\"}\n{\"decision\":\"deny\"}", "behind the document"},
		{"text before", `ok {"decision":"approve"}`, "no value"},
		{"text behind", `{"decision":"approve"} done`, "behind the document"},
		{"a byte order mark", "\xef\xbb\xbf" + `{"decision":"approve"}`, "no value"},
		{"a NUL behind", `{"decision":"approve"}` + "\x00", "behind the document"},
		{"a code block", "```json\n{\"decision\":\"approve\"}\n```", "no value"},
		{"a comment", `{"decision":"approve"} // fine`, "behind the document"},
		{"single quotes", `{'decision':'approve'}`, "a key is wanted"},
		{"a comma too many", `{"decision":"approve",}`, "a key is wanted"},
		{"cut in the key", `{"decis`, "ended"},
		{"cut in the value", `{"decision":"appr`, "ended"},
		{"cut before the brace", `{"decision":"approve"`, "ended"},
		{"not UTF-8", `{"decision":"approve","reason":"` + "\xff" + `"}`, "not UTF-8"},
		{"UTF-16", "{\x00\"\x00d\x00", "a key is wanted"},
		{"half a surrogate pair", `{"decision":"approve","reason":"\ud800"}`, "surrogate"},
		{"a control character", "{\"decision\":\"approve\",\"reason\":\"a\x01\"}", "control"},
		{"deep nesting", strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100), "deep"},
		{"an HTML page", "<html>approve</html>", "no value"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "out")
			if err := os.WriteFile(file, []byte(tt.out), 0o600); err != nil {
				t.Fatal(err)
			}
			op := review(t, "cat "+file)
			if op.Verdict != gate.Deny || op.Outcome != gate.HookFailed || op.Reason != badAnswer || !strings.Contains(op.Detail, tt.reason) {
				t.Errorf("got %s %s: %s (%s)", op.Verdict, op.Outcome, op.Reason, op.Detail)
			}
		})
	}
}

func TestEndsThatDoNotCount(t *testing.T) {
	const yes = `echo '{"decision":"approve"}'; `
	for _, tt := range []struct{ name, body, reason, detail string }{
		{"exit 1", yes + "exit 1", "the hook ended with exit code 1", ""},
		{"exit 1 with a denial", `echo '{"decision":"deny"}'; exit 1`, "the hook ended with exit code 1", ""},
		{"exit 3", yes + "exit 3", "the hook ended with exit code 3", ""},
		{"exit 127", yes + "exec /does/not/exist", "the hook ended with exit code 127", "not found"},
		{"exit 255", yes + "exit 255", "the hook ended with exit code 255", ""},
		{"a message is for operators", "echo 'Traceback:' >&2; echo ' boom at /srv/hook.py' >&2; exit 1", "the hook ended with exit code 1", "Traceback:\n boom at /srv/hook.py"},
		{"a long message is for operators", "head -c 9000 /dev/zero | tr '\\0' x >&2; exit 1", "the hook ended with exit code 1", strings.Repeat("x", maxErrors)},
		{"a syntax error", "if", "", ""},
		{"SIGKILL", yes + "echo boom >&2; kill -9 $$", "the hook crashed", "signal: killed: boom"},
		{"SIGTERM", yes + "kill -15 $$", "the hook crashed", "signal: terminated"},
		{"too much output", "i=0; while :; do echo '                                                                                '; done", "the hook printed too much", "more than 1048576 bytes"},
		{"an approve and then too much", yes + "head -c 2000000 /dev/zero", "the hook printed too much", "more than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			op := review(t, tt.body)
			if tt.name == "a syntax error" { // sh itself ends with 2, which refuses
				if op.Verdict != gate.Deny || op.Outcome != gate.Denied {
					t.Errorf("got %+v", op)
				}
				return
			}
			if op.Verdict != gate.Deny || op.Outcome != gate.HookFailed || op.Reason != tt.reason || !strings.Contains(op.Detail, tt.detail) {
				t.Errorf("got %s %s: %s (%s)", op.Verdict, op.Outcome, op.Reason, op.Detail)
			}
		})
	}
}

// alive tells whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil && !errors.Is(err, os.ErrNotExist)
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return len(rest) > 0 && rest[0] != 'Z'
}

// gone waits until a process has ended; it was killed before, so this is short.
func gone(t *testing.T, pidFile string) {
	t.Helper()
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		if !alive(pid) {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
	t.Errorf("process %d of the hook still runs", pid)
}

func TestATimeoutEndsTheWholeGroup(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	for name, body := range map[string]string{
		"a hook that sleeps":                    `echo '{"decision":"approve"}'; sleep 600 & echo $! >` + pid + `; wait`,
		"a hook that ignores signals":           `trap '' TERM INT HUP; echo $$ >` + pid + `; while :; do sleep 1; done`,
		"a hook that closed its output":         `echo '{"decision":"approve"}'; echo $$ >` + pid + `; exec >&- 2>&-; sleep 600`,
		"a hook that waits for what never came": `echo $$ >` + pid + `; cat; cat <&0; read x </dev/zero; sleep 600`,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHook(t, Config{Command: writeScript(t, body), Timeout: 300 * time.Millisecond})
			start := time.Now()
			op := h.Review(t.Context(), flagged())
			if op.Verdict != gate.Deny || op.Outcome != gate.HookFailed || op.Reason != "the hook timed out" || !strings.Contains(op.Detail, "within 300ms") {
				t.Errorf("got %+v", op)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
			gone(t, pid)
		})
	}
}

func TestAProcessLeftBehind(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	t.Run("that keeps the output open makes the answer void", func(t *testing.T) {
		start := time.Now()
		op := review(t, `sleep 600 & echo $! >`+pid+`; echo '{"decision":"approve"}'`)
		if op.Verdict != gate.Deny || op.Outcome != gate.HookFailed || op.Reason != "the hook left a process behind" || !strings.Contains(op.Detail, "kept its output open") {
			t.Errorf("got %+v", op)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		gone(t, pid)
	})
	t.Run("that holds nothing is ended, and the answer counts", func(t *testing.T) {
		op := review(t, `sleep 600 >/dev/null 2>&1 </dev/null & echo $! >`+pid+`; echo '{"decision":"approve"}'`)
		if op.Verdict != gate.Allow {
			t.Errorf("got %+v", op)
		}
		gone(t, pid)
	})
}

func TestTheEndOfTheContextEndsTheHook(t *testing.T) {
	dir := t.TempDir()
	fifo, pid := filepath.Join(dir, "started"), filepath.Join(dir, "pid")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	h := newHook(t, Config{Command: writeScript(t, `echo $$ >`+pid+`; echo >`+fifo+`; sleep 600`)})
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		_, _ = os.ReadFile(fifo) // returns when the hook runs
		cancel(errors.New("the gate closes"))
	}()
	op := h.Review(ctx, flagged())
	if op.Verdict != gate.Deny || op.Outcome != gate.Cancelled || !strings.Contains(op.Detail, "the gate closes") {
		t.Errorf("got %+v", op)
	}
	gone(t, pid)
	if op := h.Review(ctx, flagged()); op.Verdict != gate.Deny || op.Outcome != gate.Cancelled {
		t.Errorf("after the end: %+v", op)
	}
}

func TestALargeCallToAHookThatDoesNotRead(t *testing.T) {
	r := flagged()
	r.Call.Text, r.Call.Args = true, bytes.Repeat([]byte("x"), 3<<20)
	h := newHook(t, Config{Command: writeScript(t, `echo '{"decision":"deny","reason":"too long"}'`)})
	if op := h.Review(t.Context(), r); op.Outcome != gate.Denied {
		t.Errorf("got %+v", op)
	}
	h = newHook(t, Config{Command: writeScript(t, `head -c 10 >/dev/null; echo '{"decision":"approve"}'`)})
	if op := h.Review(t.Context(), r); op.Verdict != gate.Allow {
		t.Errorf("got %+v", op)
	}
	h = newHook(t, Config{Command: writeScript(t, `n=$(wc -c); [ $n -gt 3145728 ] && echo '{"decision":"approve"}'`)})
	if op := h.Review(t.Context(), r); op.Verdict != gate.Allow {
		t.Errorf("got %+v", op)
	}
}

func TestWhatTheHookReads(t *testing.T) {
	file := filepath.Join(t.TempDir(), "in")
	h := newHook(t, Config{Command: writeScript(t, `cat >`+file+`; echo '{"decision":"approve"}'`), Context: "home <automation>"})
	r := flagged()
	if op := h.Review(t.Context(), r); op.Verdict != gate.Allow {
		t.Fatalf("got %+v", op)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Count(raw, []byte("\n")) != 1 || !bytes.HasSuffix(raw, []byte("\n")) {
		t.Errorf("not one line: %s", raw)
	}
	if !bytes.Contains(raw, append([]byte(`"args":`), r.Call.Args...)) {
		t.Errorf("the arguments are not as they came: %s", raw)
	}
	if bytes.Contains(raw, []byte("secret-principal")) {
		t.Error("the hook is told the principal")
	}
	var got map[string]any
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	const command = `rm -rf "a <b>" && echo sk-aaaaaaaaaaaaaaaaaaaa`
	want := map[string]any{
		"tool": "bash", "kind": "command", "command": command, "path": "", "cwd": "/srv",
		"reason": "deletes a tree", "rule": "fs.recursive-delete", "severity": "danger", "category": "fs",
		"findings": []any{map[string]any{"rule": "fs.recursive-delete", "severity": "danger", "category": "fs", "reason": "deletes a tree", "action": 1.0, "words": "rm -rf", "instead": "move it"}},
		"args":     map[string]any{"command": command},
		"actions": []any{
			map[string]any{"kind": "file", "tool": "bash", "path": "/tmp/x", "op": "write", "content": "hi"},
			map[string]any{"kind": "command", "tool": "bash", "command": command, "language": "shell", "cwd": "/srv"},
		},
		"siblings": []any{
			map[string]any{"tool": "read", "call_id": "call_2", "args": map[string]any{"path": "x"}},
			map[string]any{"tool": "patch", "call_id": "", "args": "*** Begin"},
		},
		"claimed":    map[string]any{"session": "s1", "user": "ann", "platform": "cli"},
		"session_id": "s1", "platform": "cli", "user_id": "ann", "agent": "coder", "upstream": "openai", "dialect": "openai-chat",
		"model": "gpt", "call_id": "call_1", "turn_id": "t1", "trace_id": "abc", "digest": gate.Digest("bash", r.Call.Args),
		"context": "home <automation>",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestACallThatIsNotTextIsNotShown(t *testing.T) {
	for name, change := range map[string]func(*gate.Request){
		"arguments": func(r *gate.Request) { r.Call.Text, r.Call.Args = true, []byte("rm \xff") },
		"command":   func(r *gate.Request) { r.Actions[1].Command = "rm \xff" },
		"path":      func(r *gate.Request) { r.Actions[0].Path = "\xff" },
		"content":   func(r *gate.Request) { r.Actions[0].Content = []byte{0xff} },
	} {
		t.Run(name, func(t *testing.T) {
			r := flagged()
			change(r)
			op := newHook(t, Config{Command: writeScript(t, `echo '{"decision":"approve"}'`)}).Review(t.Context(), r)
			if op.Verdict != gate.Deny || op.Outcome != gate.HookFailed || !strings.Contains(op.Reason, "not text") {
				t.Errorf("got %+v", op)
			}
		})
	}
}

func TestTheEnvironmentIsClean(t *testing.T) {
	t.Setenv("CALLGATE_CONTROL_TOKEN", "topsecret")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "topsecret")
	t.Setenv("HA_URL", "http://ha")
	t.Setenv("LANG", "C.UTF-8")
	file := filepath.Join(t.TempDir(), "env")
	h := newHook(t, Config{Command: writeScript(t, `env >`+file+`; pwd >>`+file+`; echo '{"decision":"approve"}'`), Env: []string{"HA_URL", "MODE=strict", "ABSENT"}, Dir: "/"})
	if op := h.Review(t.Context(), flagged()); op.Verdict != gate.Allow {
		t.Fatalf("got %+v", op)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := "\n" + string(raw)
	for _, want := range []string{"\nHA_URL=http://ha\n", "\nMODE=strict\n", "\nLANG=C.UTF-8\n", "\nPATH=", "\n/\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %s", want, got)
		}
	}
	for _, not := range []string{"topsecret", "CALLGATE", "ABSENT"} {
		if strings.Contains(got, not) {
			t.Errorf("%q stands in %s", not, got)
		}
	}
}

func TestNew(t *testing.T) {
	dir := t.TempDir()
	write := func(name, first string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(first+"\n"), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain, program := write("plain.py", "#!/bin/sh", 0o600), write("with space.sh", "#!/bin/sh", 0o700)
	windows := write("windows.sh", "#!/usr/bin/env python3\r", 0o700)
	lost := write("lost.sh", "#! /does/not/exist -x", 0o700)
	write("binary", "\x00\x01\r", 0o700)
	write("env.sh", "#!relative -x", 0o700)
	write("python3", "#!/bin/sh", 0o700)
	write("bare.sh", "#!", 0o700)
	for name, tt := range map[string]struct {
		c    Config
		want string
	}{
		"no command":                   {Config{}, "no command"},
		"white space":                  {Config{Command: "  "}, "no command"},
		"an empty word":                {Config{Command: "''"}, "no command"},
		"a file that does not exist":   {Config{Command: dir + "/none"}, "does not exist; create it"},
		"a file without the bit":       {Config{Command: plain}, "chmod +x"},
		"a directory":                  {Config{Command: dir}, "is a directory"},
		"a program not in PATH":        {Config{Command: "no-such-program-here"}, "not in PATH"},
		"an unclosed quote":            {Config{Command: "sh 'x"}, "split into words"},
		"a pipe":                       {Config{Command: "sh x | cat"}, "split into words"},
		"a redirection":                {Config{Command: "sh x > y"}, "split into words"},
		"two commands":                 {Config{Command: "sh x; sh y"}, "split into words"},
		"a substitution":               {Config{Command: "sh $(echo x)"}, "split into words"},
		"lines as Windows writes them": {Config{Command: windows}, "windows.sh ends in a carriage return, as Windows writes it, and no interpreter takes that; run sed -i 's/\\r$//' on it"},
		"such lines given to a shell":  {Config{Command: "bash " + windows}, "carriage return"},
		"an interpreter that is lost":  {Config{Command: lost}, "names the interpreter /does/not/exist, which does not exist"},
		"a missing script":             {Config{Command: "sh " + dir + "/none.sh"}, "script cannot be read"},
		"a missing script by its dir":  {Config{Command: "sh none.sh", Dir: dir}, "script cannot be read"},
		"a negative timeout":           {Config{Command: "sh -c x", Timeout: -1}, "below zero"},
		"a directory that is missing":  {Config{Command: "sh -c x", Dir: dir + "/none"}, "does not exist"},
		"callgate's own variable":      {Config{Command: "sh -c x", Env: []string{"CALLGATE_CONTROL_TOKEN"}}, "CALLGATE_CONTROL_TOKEN"},
		"callgate's own, small":        {Config{Command: "sh -c x", Env: []string{"callgate_x=1"}}, "callgate_x"},
		"a variable without a name":    {Config{Command: "sh -c x", Env: []string{"=1"}}, "usable name"},
	} {
		t.Run(name, func(t *testing.T) {
			if h, err := New(tt.c); err == nil || h != nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, %v", h, err)
			}
		})
	}
	t.Setenv("HOOK_DIR", dir)
	t.Setenv("HOME", dir)
	for name, tt := range map[string]struct {
		c    Config
		want []string
	}{
		"quotes":            {Config{Command: `sh -c 'echo "a b"' c\ d`}, []string{"/bin/sh", "-c", `echo "a b"`, "c d"}},
		"a quoted path":     {Config{Command: `"` + program + `" x`}, []string{program, "x"}},
		"a variable":        {Config{Command: `"$HOOK_DIR/with space.sh"`, Env: []string{"HOOK_DIR"}}, []string{program}},
		"the home":          {Config{Command: `~/with\ space.sh`}, []string{program}},
		"relative to a dir": {Config{Command: `"./with space.sh"`, Dir: dir}, []string{program}},
		"such lines given to a program that takes them": {Config{Command: "./python3 windows.sh", Dir: dir}, []string{dir + "/python3", "windows.sh"}},
		"a binary":                          {Config{Command: dir + "/binary"}, []string{dir + "/binary"}},
		"an interpreter by a relative path": {Config{Command: dir + "/env.sh"}, []string{dir + "/env.sh"}},
		"an interpreter without a name":     {Config{Command: dir + "/bare.sh"}, []string{dir + "/bare.sh"}},
		"an interpreter":                    {Config{Command: "sh plain.py", Dir: dir}, []string{"/bin/sh", "plain.py"}},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := New(tt.c)
			if err != nil {
				t.Fatal(err)
			}
			if base := filepath.Base(h.argv[0]); base == "sh" {
				h.argv[0] = "/bin/sh" // wherever PATH has it
			}
			if diff := cmp.Diff(tt.want, h.argv); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A script that went missing is a failure of the hook, though the interpreter
// would end with the exit code that refuses.
func TestAScriptThatIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hook.sh")
	if err := os.WriteFile(path, []byte("echo '{\"decision\":\"approve\"}'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := newHook(t, Config{Command: "sh " + path})
	if op := h.Review(t.Context(), flagged()); op.Verdict != gate.Allow {
		t.Fatalf("got %+v", op)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if op := h.Review(t.Context(), flagged()); op.Outcome != gate.HookFailed || op.Reason != cannotStart || !strings.Contains(op.Detail, "script cannot be read") {
		t.Errorf("got %+v", op)
	}
}

func TestAProgramThatCannotStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hook")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("#!/bin/sh\n")
	h := newHook(t, Config{Command: path})
	for name, tt := range map[string]struct{ text, detail string }{
		"no format that the system knows": {"\x7fELF, it says", "exec format error"},
		"no interpreter":                  {"#!/does/not/exist\n", "interpreter /does/not/exist, which does not exist"},
		"lines as Windows writes them":    {"#!/bin/sh\r\necho\r\n", "carriage return"},
	} {
		write(tt.text)
		op := h.Review(t.Context(), flagged())
		if op.Verdict != gate.Deny || op.Outcome != gate.HookFailed || op.Reason != cannotStart || !strings.Contains(op.Detail, tt.detail) {
			t.Errorf("%s: got %+v", name, op)
		}
	}
}

// A program that is being written is started as soon as that is done.
func TestAProgramThatIsBeingReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hook")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("#!/bin/sh\necho '{\"decision\":\"approve\"}'\n"); err != nil {
		t.Fatal(err)
	}
	h := newHook(t, Config{Command: path, Timeout: 200 * time.Millisecond})
	if op := h.Review(t.Context(), flagged()); op.Verdict != gate.Deny || op.Outcome != gate.HookFailed {
		t.Errorf("while it is written: %+v", op)
	}
	h.timeout = DefaultTimeout
	time.AfterFunc(30*time.Millisecond, func() { f.Close() })
	if op := h.Review(t.Context(), flagged()); op.Verdict != gate.Allow {
		t.Errorf("afterwards: %+v", op)
	}
}

func TestOnlySoManyHooksRunAtOnce(t *testing.T) {
	h := newHook(t, Config{Command: writeScript(t, `echo '{"decision":"approve"}'`), Timeout: 100 * time.Millisecond})
	for range maxRunning {
		h.running <- struct{}{}
	}
	if op := h.Review(t.Context(), flagged()); op.Outcome != gate.HookFailed || op.Reason != "the hook could not be started in time" || !strings.Contains(op.Detail, "too many") {
		t.Errorf("got %+v", op)
	}
	h.timeout = DefaultTimeout
	<-h.running
	if op := h.Review(t.Context(), flagged()); op.Verdict != gate.Allow {
		t.Errorf("got %+v", op)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"decision":"approve"}`, `{"decision":"deny","reason":"x"}`, `{"Decision":"approve"}`, "", "[]", `{"decision":"approve","decision":"deny"}`, `{"decision":"\u0061pprove"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parse(b)
		if op := (result{out: b}).opinion(0); err != nil {
			if op.Verdict != gate.Deny || op.Outcome != gate.HookFailed {
				t.Fatalf("%q failed (%v) and gave %+v", b, err, op)
			}
			return
		}
		// What counts, counts for any reader: as a map it has these keys only.
		var m map[string]string
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if m["decision"] != a.Decision || m["reason"] != a.Reason || len(m) > 2 {
			t.Fatalf("%q was read as %+v", b, a)
		}
		want := map[string]gate.Verdict{"approve": gate.Allow, "escalate": gate.Ask}[a.Decision]
		if got := (result{out: b}).opinion(0).Verdict; got != want {
			t.Fatalf("%q gives %s", b, got)
		}
	})
}

func BenchmarkEvent(b *testing.B) {
	h := &Hook{}
	r := flagged()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h.event(r); err != nil {
			b.Fatal(err)
		}
	}
}
