package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"callgate/gate"
	"callgate/gate/console"
	"callgate/gate/person"
	"callgate/gate/redact"
	"callgate/gate/store"
	"callgate/inspect/toolcall"

	"github.com/rogpeppe/go-internal/testscript"
)

const testToken = "a long and random token"

// storeDesk answers straight from a store, as nobody waits in these tests.
type storeDesk struct{ *store.Store }

func (d storeDesk) Answer(ctx context.Context, id string, ans gate.Answer) (gate.Approval, error) {
	return d.AnswerApproval(ctx, id, ans, time.Now())
}

// serveControl serves the API over approvals that are kept in dir.
func serveControl(ctx context.Context, dir string, approvals ...gate.Approval) (*httptest.Server, *store.Store, error) {
	s, err := store.Open(ctx, dir, store.Options{})
	if err != nil {
		return nil, nil, err
	}
	for _, a := range approvals {
		if err := s.CreateApproval(ctx, a); err != nil {
			return nil, nil, errors.Join(err, s.Close())
		}
	}
	c := console.Config{Desk: storeDesk{s}, TokenHash: sha256.Sum256([]byte(testToken))}
	return httptest.NewServer(console.New(c)), s, nil
}

// control serves the API over approvals and gives its address and the store.
func control(t *testing.T, approvals ...gate.Approval) (string, *store.Store) {
	t.Helper()
	server, s, err := serveControl(t.Context(), t.TempDir(), approvals...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return strings.TrimPrefix(server.URL, "http://"), s
}

// scriptControl is a script's command: it serves two questions, aaaa1111 and
// bbbb2222, from the state directory given, and sets what the command needs to
// find them.
func scriptControl(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: control DIR")
	}
	server, s, err := serveControl(context.Background(), ts.MkAbs(args[0]), question("aaaa1111", "rm -rf build"), question("bbbb2222", "rm -rf dist"))
	ts.Check(err)
	ts.Defer(func() {
		server.Close()
		ts.Check(s.Close())
	})
	ts.Setenv("CALLGATE_CONTROL", strings.TrimPrefix(server.URL, "http://"))
	ts.Setenv("CALLGATE_CONTROL_TOKEN", testToken)
}

func question(id, command string) gate.Approval {
	args, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		panic(err) // a map of texts can always be written
	}
	return gate.Approval{
		ID: id, State: gate.StatePending, Key: "k" + id, Digest: "0a1b", Agent: "default", Claimed: gate.Claims{Session: "s1", User: "ann", Platform: "cli"}, Tool: "bash", Kind: "command",
		Command: command, Args: string(args), Why: "the hook wants a person", Upstream: "openai", Model: "m",
		Findings: []gate.FindingBrief{{Rule: "fs.recursive-delete", Severity: "danger", Category: "fs", Reason: "deletes a folder with all it holds", Words: "rm -rf build", Instead: "delete single files"}},
		Created:  time.Now().Add(-90 * time.Second), Expires: time.Now().Add(200 * time.Second),
	}
}

// runCommand runs one command line in an environment and gives its exit code,
// standard output and standard error.
func runCommand(t *testing.T, environ map[string]string, args ...string) (int, string, string) {
	t.Helper()
	var out, errs bytes.Buffer
	e := &env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(k string) string { return environ[k] }}
	for k, v := range environ {
		e.Environ = append(e.Environ, k+"="+v)
	}
	code := run(t.Context(), e, args)
	return code, out.String(), errs.String()
}

// wantIn checks that a text holds each of the words.
func wantIn(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("there is no %q in:\n%s", w, text)
		}
	}
}

func TestApprovalsListShowsOpenQuestions(t *testing.T) {
	addr, s := control(t, question("aaaa1111", "rm -rf build"), question("bbbb2222", "rm -rf \u202e\x1b[2J dist\nwhoami"))
	if _, err := s.AnswerApproval(t.Context(), "aaaa1111", gate.Answer{By: "kim"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	environ := map[string]string{"CALLGATE_CONTROL": addr, "CALLGATE_CONTROL_TOKEN": testToken}

	code, out, _ := runCommand(t, environ, "approvals", "list")
	if code != 0 || strings.Contains(out, "aaaa1111") || strings.ContainsAny(out, "\x1b\u202e") || strings.Count(out, "\n") != 2 {
		t.Errorf("exit %d:\n%q", code, out)
	}
	wantIn(t, out, "ID", "LEFT", "bbbb2222", "pending", "1m30s ago", "3m", "bash", "fs.recursive-delete", `rm -rf <U+202E>␛[2J dist␊whoami`)

	code, out, _ = runCommand(t, environ, "approvals", "list", "--all")
	if code != 0 {
		t.Errorf("exit %d", code)
	}
	wantIn(t, out, "aaaa1111", "denied", "bbbb2222")

	code, out, _ = runCommand(t, environ, "approvals", "list", "--all", "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || len(lines) != 2 {
		t.Fatalf("exit %d:\n%s", code, out)
	}
	var a gate.Approval
	if err := json.Unmarshal([]byte(lines[0]), &a); err != nil || a.ID != "bbbb2222" && a.ID != "aaaa1111" {
		t.Errorf("%v: %s", err, lines[0])
	}
}

func TestApprovalsListSaysWhenThereIsNothing(t *testing.T) {
	addr, _ := control(t)
	environ := map[string]string{"CALLGATE_CONTROL": addr, "CALLGATE_CONTROL_TOKEN": testToken}
	code, out, errs := runCommand(t, environ, "approvals", "list")
	if code != 0 || out != "" || !strings.Contains(errs, "no questions") {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
}

func TestApprovalsShowPrintsTheWholeCall(t *testing.T) {
	long := "rm -rf " + strings.Repeat("very-long-name/", 40) + "\necho \u200bdone"
	addr, _ := control(t, question("cccc3333", long))
	environ := map[string]string{"CALLGATE_CONTROL": addr, "CALLGATE_CONTROL_TOKEN": testToken}
	code, out, _ := runCommand(t, environ, "approvals", "show", "CCCC")
	if code != 0 {
		t.Fatalf("exit %d", code)
	}
	wantIn(t, out, "cccc3333", "pending", strings.Repeat("very-long-name/", 40), `echo <U+200B>done`, "fs.recursive-delete (danger)",
		"claims     session s1", "user ann", "platform cli", "in: rm -rf build", "instead: delete single files", "the hook wants a person", "0a1b", "(in 3m")
	code, out, _ = runCommand(t, environ, "approvals", "show", "cccc3333", "--json")
	var a gate.Approval
	if err := json.Unmarshal([]byte(out), &a); code != 0 || err != nil || a.Command != long || !strings.Contains(out, `"claimed": {`) || a.Claimed != (gate.Claims{Session: "s1", User: "ann", Platform: "cli"}) {
		t.Errorf("exit %d, %v:\n%s", code, err, out)
	}
}

func TestApproveAndDenyPrintWhatWasAnswered(t *testing.T) {
	for _, tt := range []struct {
		verb, done string
		state      gate.ApprovalState
	}{
		{"approve", "approved", gate.StateApproved},
		{"deny", "denied", gate.StateDenied},
	} {
		t.Run(tt.verb, func(t *testing.T) {
			addr, s := control(t, question("dddd4444", "rm -rf build"), question("dddd5555", "rm -rf dist"), question("eeee6666", "x"))
			environ := map[string]string{"CALLGATE_CONTROL": "http://" + addr, "CALLGATE_CONTROL_TOKEN": testToken, "USER": "kim"}
			code, out, errs := runCommand(t, environ, "approvals", tt.verb, "dddd4", "--reason", "as discussed")
			if code != 0 {
				t.Fatalf("exit %d: %s", code, errs)
			}
			wantIn(t, out, tt.done+" dddd4444", "bash", "rm -rf build", "fs.recursive-delete", "as discussed")
			a, err := s.Approval(t.Context(), "dddd4444")
			if err != nil || a.State != tt.state || a.By != "kim" || a.Reason != "as discussed" {
				t.Errorf("%+v, %v", a, err)
			}
			for _, other := range []string{"dddd5555", "eeee6666"} {
				if a, err := s.Approval(t.Context(), other); err != nil || a.State != gate.StatePending {
					t.Errorf("%s is %s (%v)", other, a.State, err)
				}
			}
		})
	}
}

func TestApprovalsRefuse(t *testing.T) {
	addr, s := control(t, question("dddd4444", "x"), question("dddd5555", "y"), question("eeee6666", "z"))
	if _, err := s.AnswerApproval(t.Context(), "eeee6666", gate.Answer{By: "lee"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	free := httptest.NewServer(nil)
	nobody := strings.TrimPrefix(free.URL, "http://")
	free.Close()
	for _, tt := range []struct {
		name  string
		token string
		args  []string
		code  int
		words string
	}{
		{"nobody listens", testToken, []string{"list", "--control", nobody}, exitUnavailable, "is callgate serve running"},
		{"no token", "", []string{"list"}, exitPermission, "CALLGATE_CONTROL_TOKEN"},
		{"a wrong token", "wrong", []string{"approve", "dddd4444"}, exitPermission, "CALLGATE_CONTROL_TOKEN"},
		{"a token file that is missing", testToken, []string{"list", "--token-file", token + ".not"}, exitPermission, "no such file"},
		{"a token file without a token", testToken, []string{"list", "--token-file", token}, exitPermission, "one line"},
		{"an unknown id", testToken, []string{"approve", "zzzz9999"}, exitFailed, "no open question"},
		{"an unknown id to show", testToken, []string{"show", "zzzz9999"}, exitFailed, "list --all"},
		{"a beginning of two ids", testToken, []string{"approve", "dddd"}, exitUsage, "dddd5555"},
		{"too short a beginning", testToken, []string{"approve", "d"}, exitUsage, "first 4"},
		{"an answered one by its whole id", testToken, []string{"approve", "eeee6666"}, exitFailed, "already denied by lee"},
		{"an answered one by its beginning", testToken, []string{"approve", "eeee"}, exitFailed, "no open question"},
		{"no id", testToken, []string{"approve"}, exitUsage, "1 arg"},
		{"two ids", testToken, []string{"approve", "dddd4444", "dddd5555"}, exitUsage, "1 arg"},
		{"a token as a flag", testToken, []string{"list", "--token", testToken}, exitUsage, "unknown flag"},
		{"an address without a port", testToken, []string{"list", "--control", "localhost"}, exitUsage, "HOST:PORT"},
		{"an address of another scheme", testToken, []string{"list", "--control", "ftp://localhost"}, exitUsage, "http"},
		{"an address with a user", testToken, []string{"list", "--control", "http://a:b@localhost:1"}, exitUsage, "user"},
		{"an address with a query", testToken, []string{"list", "--control", "http://localhost:1/?x=y"}, exitUsage, "query"},
		{"a command that does not exist", testToken, []string{"aprove", "dddd4444"}, exitUsage, "unknown command"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			environ := map[string]string{"CALLGATE_CONTROL": addr, "CALLGATE_CONTROL_TOKEN": tt.token}
			code, out, errs := runCommand(t, environ, append([]string{"approvals"}, tt.args...)...)
			if code != tt.code || !strings.Contains(errs, tt.words) {
				t.Errorf("exit %d, want %d with %q:\n%s", code, tt.code, tt.words, errs)
			}
			if strings.Contains(out+errs, testToken) && tt.args[len(tt.args)-1] != testToken {
				t.Errorf("the token is shown: %s%s", out, errs)
			}
			for _, id := range []string{"dddd4444", "dddd5555"} {
				if a, err := s.Approval(t.Context(), id); err != nil || a.State != gate.StatePending {
					t.Errorf("%s is %s (%v)", id, a.State, err)
				}
			}
		})
	}
}

// A list that another program answers is no empty list.
func TestAnotherProgramAtTheControlAddress(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"status":"ok"}`)
	}))
	defer server.Close()
	environ := map[string]string{"CALLGATE_CONTROL": server.URL, "CALLGATE_CONTROL_TOKEN": testToken}
	for _, args := range [][]string{{"list"}, {"list", "--all", "--json"}, {"show", "dddd4444"}, {"approve", "dddd4444"}, {"deny", "dddd4444"}} {
		code, out, errs := runCommand(t, environ, append([]string{"approvals"}, args...)...)
		if code != exitUnavailable || out != "" || !strings.Contains(errs, "not callgate's control listener") {
			t.Errorf("%q: exit %d, %q, %q", args, code, out, errs)
		}
	}
}

func TestAnAnswerThatComesTooLateNamesItsQuestion(t *testing.T) {
	late := question("ffff7777", "rm -rf build")
	late.Expires = time.Now().Add(-time.Second)
	addr, _ := control(t, late)
	environ := map[string]string{"CALLGATE_CONTROL": addr, "CALLGATE_CONTROL_TOKEN": testToken}
	for _, verb := range []string{"approve", "deny"} {
		code, _, errs := runCommand(t, environ, "approvals", verb, "FFFF7777")
		if code != exitFailed || !strings.Contains(errs, "approval ffff7777: nobody answered it until") {
			t.Errorf("%s: exit %d: %s", verb, code, errs)
		}
	}
}

func TestATokenFileGoesBeforeTheEnvironment(t *testing.T) {
	addr, _ := control(t, question("dddd4444", "x"))
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(testToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := map[string]string{"CALLGATE_CONTROL_TOKEN": "wrong"}
	if code, _, errs := runCommand(t, environ, "approvals", "list", "--control", addr, "--token-file", token); code != 0 {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestColourIsForTerminals(t *testing.T) {
	a := question("dddd4444", "rm")
	for _, tt := range []struct {
		name    string
		tty     bool
		environ map[string]string
		want    bool
	}{
		{"no terminal", false, nil, false},
		{"a terminal", true, nil, true},
		{"a terminal with NO_COLOR", true, map[string]string{"NO_COLOR": "1"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			e := &env{Stdout: &out, StdoutTTY: tt.tty, Getenv: func(k string) string { return tt.environ[k] }}
			if err := printApproval(e, a, time.Now()); err != nil {
				t.Fatal(err)
			}
			if err := printAnswered(e, "approved", a); err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(out.String(), "\x1b["); got != tt.want {
				t.Errorf("colour: %v:\n%q", got, out.String())
			}
		})
	}
}

func TestControlBase(t *testing.T) {
	for in, want := range map[string]string{
		"127.0.0.1:4142":             "http://127.0.0.1:4142",
		":4142":                      "http://127.0.0.1:4142",
		"[::1]:4142":                 "http://[::1]:4142",
		"gate.example:80":            "http://gate.example:80",
		"https://gate.example":       "https://gate.example",
		"https://gate.example/gate/": "https://gate.example/gate",
	} {
		if got, err := controlBase(in); got != want || err != nil {
			t.Errorf("%s: got %s, %v", in, got, err)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59*time.Second + 900*time.Millisecond: "59s", 61 * time.Second: "1m01s",
		3*time.Hour + 2*time.Minute: "3h02m", 72 * time.Hour: "3d",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

// The whole way of an answer: a call waits at the desk, the question stands in
// the store, a person answers it from another process by the API, and the call
// goes on or not.
func TestAnAnswerFromTheCommandLineReachesTheCallThatWaits(t *testing.T) {
	for _, tt := range []struct {
		verb    string
		verdict gate.Verdict
		state   gate.ApprovalState
	}{
		{"approve", gate.Allow, gate.StateSpent},
		{"deny", gate.Deny, gate.StateDenied},
	} {
		t.Run(tt.verb, func(t *testing.T) {
			s, err := store.Open(t.Context(), t.TempDir(), store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			asked := make(chan gate.Approval, 1)
			desk, err := person.New(person.Config{Store: s, Mask: redact.Secrets, Notify: func(_ context.Context, a gate.Approval) error {
				asked <- a
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(console.New(console.Config{Desk: desk, TokenHash: sha256.Sum256([]byte(testToken))}))
			defer server.Close()
			environ := map[string]string{"CALLGATE_CONTROL": server.URL, "CALLGATE_CONTROL_TOKEN": testToken, "USER": "kim"}

			said := make(chan gate.Opinion, 1)
			go func() {
				said <- desk.Review(t.Context(), &gate.Request{
					Call:    toolcall.Call{Name: "bash", Args: []byte(`{"command":"rm -rf build"}`)},
					Actions: []toolcall.Action{{Kind: toolcall.KindCommand, Tool: "bash", Command: "rm -rf build"}},
					Agent:   "default", Principal: "p",
				})
			}()
			a := <-asked
			code, out, errs := runCommand(t, environ, "approvals", tt.verb, a.ID, "--reason", "as discussed")
			if code != 0 {
				t.Fatalf("exit %d: %s", code, errs)
			}
			wantIn(t, out, a.ID, "rm -rf build")
			op := <-said
			if op.Verdict != tt.verdict || op.Approval != a.ID || !strings.Contains(op.Reason, "kim") {
				t.Errorf("the call got %+v", op)
			}
			if a, err := s.Approval(t.Context(), a.ID); err != nil || a.State != tt.state || a.By != "kim" {
				t.Errorf("on disk: %+v, %v", a, err)
			}
			code, _, errs = runCommand(t, environ, "approvals", "approve", a.ID)
			if code != exitFailed || !strings.Contains(errs, "already") {
				t.Errorf("a second answer: exit %d: %s", code, errs)
			}
		})
	}
}
