package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"callgate/gate"
	"callgate/gate/store"

	"github.com/rogpeppe/go-internal/testscript"
)

// writeDecisions writes a log of five decisions into dir, an hour apart, the
// last of them now. The fourth is a denial.
func writeDecisions(ctx context.Context, dir string) error {
	s, err := store.Open(ctx, dir, store.Options{})
	if err != nil {
		return err
	}
	for i := range 5 {
		e := gate.Entry{
			Time: time.Now().Add(time.Duration(i-4) * time.Hour), Took: 3 * time.Millisecond,
			Agent: "default", Principal: "p", Claimed: gate.Claims{Session: "s", User: "ann", Platform: "cli"}, Upstream: "openai", Dialect: "openai-chat", Model: "m",
			Tool: "bash", Kind: "command", Args: `{"command":"make"}`, Digest: "0a1b", Verdict: "allow", Outcome: gate.Allowed, By: "detector",
		}
		if i == 3 {
			e.Verdict, e.Outcome, e.By, e.Rule, e.Args = "deny", gate.Timeout, "person", "fs.recursive-delete", "{\"command\":\"rm -rf \u202e\x1b[2J\"}"
			e.Reason, e.Detail = "nobody answered", "the terminal was closed"
			e.Findings = []gate.FindingBrief{{Rule: "fs.recursive-delete", Severity: "danger", Category: "fs", Reason: "deletes a folder"}}
		}
		err = errors.Join(err, s.Record(ctx, e, false))
	}
	return errors.Join(err, s.Close())
}

// auditLog makes a state directory with the log of writeDecisions.
func auditLog(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := writeDecisions(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// scriptDecisions is a script's command: it makes the state directory given,
// with the log of writeDecisions, or adds to it.
func scriptDecisions(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: decisions DIR")
	}
	ts.Check(writeDecisions(context.Background(), ts.MkAbs(args[0])))
}

func TestAuditListFilters(t *testing.T) {
	dir := auditLog(t)
	for _, tt := range []struct {
		args string
		want []int64
	}{
		{"", []int64{5, 4, 3, 2, 1}},
		{"--limit 2", []int64{5, 4}},
		{"--limit 0 --after 3", []int64{5, 4}},
		{"--since 90m", []int64{5, 4}},
		{"--since 1d --until 150m", []int64{2, 1}},
		{"--verdict deny", []int64{4}},
		{"--outcome timeout", []int64{4}},
		{"--agent other", nil},
		{"--session s --tool bash --limit 1", []int64{5}},
	} {
		t.Run(tt.args, func(t *testing.T) {
			code, out, errs := runCommand(t, nil, append(strings.Fields("audit list --json --state "+dir), strings.Fields(tt.args)...)...)
			if code != 0 {
				t.Fatalf("exit %d: %s", code, errs)
			}
			var got []int64
			for line := range strings.Lines(out) {
				var e gate.Entry
				if err := json.Unmarshal([]byte(line), &e); err != nil || e.Hash == "" {
					t.Fatalf("%v: %s", err, line)
				}
				got = append(got, e.Seq)
			}
			if len(got) != len(tt.want) {
				t.Fatalf("got %v, want %v", got, tt.want)
			}
			for i := range got {
				if got[i] != tt.want[i] {
					t.Fatalf("got %v, want %v", got, tt.want)
				}
			}
		})
	}
}

func TestAuditListAndShowForPeople(t *testing.T) {
	dir := auditLog(t)
	code, out, _ := runCommand(t, map[string]string{"CALLGATE_STATE": dir, "HOME": t.TempDir()}, "audit", "list")
	if code != 0 || strings.Count(out, "\n") != 6 || strings.ContainsAny(out, "\x1b\u202e") {
		t.Errorf("exit %d:\n%q", code, out)
	}
	wantIn(t, out, "VERDICT", "deny", "timeout", "person", "fs.recursive-delete", `rm -rf <U+202E>␛[2J`)

	code, out, _ = runCommand(t, nil, "audit", "show", "4", "--state", dir)
	if code != 0 || strings.ContainsAny(out, "\x1b\u202e") {
		t.Errorf("exit %d:\n%q", code, out)
	}
	wantIn(t, out, "entry 4", "claims     session s", "user ann", "platform cli", "deny (timeout)", "nobody answered", "after 3ms", "bash (command)", "0a1b", "openai openai-chat m", "deletes a folder", "hash", "follows")

	code, out, _ = runCommand(t, nil, "audit", "show", "4", "--json", "--state", dir)
	var e gate.Entry
	if err := json.Unmarshal([]byte(out), &e); code != 0 || err != nil || e.Seq != 4 || e.Claimed.User != "ann" || !strings.Contains(out, `"claimed": {`) {
		t.Errorf("exit %d, %v:\n%s", code, err, out)
	}

	code, out, errs := runCommand(t, nil, "audit", "list", "--agent", "nobody", "--state", dir)
	if code != 0 || out != "" || !strings.Contains(errs, "no such entries") {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
}

func TestAuditRefuses(t *testing.T) {
	dir := auditLog(t)
	for _, tt := range []struct {
		name  string
		args  []string
		code  int
		words string
	}{
		{"a misspelt verdict", []string{"list", "--verdict", "denied"}, exitUsage, "allow or deny"},
		{"a misspelt outcome", []string{"list", "--outcome", "time-out"}, exitUsage, "timeout"},
		{"a time that is none", []string{"list", "--since", "yesterday"}, exitUsage, "how long ago"},
		{"a time in the future", []string{"list", "--until", "-1h"}, exitUsage, "--until"},
		{"a limit below zero", []string{"list", "--limit", "-1"}, exitUsage, "below 0"},
		{"an entry that is no number", []string{"show", "last"}, exitUsage, "number"},
		{"entry zero", []string{"show", "0"}, exitUsage, "number"},
		{"an entry that does not exist", []string{"show", "6"}, exitFailed, "no such entry"},
		{"a head that is none", []string{"verify", "--expect", "5"}, exitUsage, "NUMBER:HASH"},
		{"a state directory that is missing", []string{"list", "--state", filepath.Join(dir, "not")}, exitFailed, "no such file"},
		{"a configuration that is missing", []string{"list", "--state", "", "--config", filepath.Join(dir, "not.yaml")}, exitConfig, "not.yaml"},
		{"words behind list", []string{"list", "all"}, exitUsage, "takes flags alone"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, _, errs := runCommand(t, nil, append([]string{"audit", "--state", dir}, tt.args...)...)
			if code != tt.code || !strings.Contains(errs, tt.words) {
				t.Errorf("exit %d, want %d with %q:\n%s", code, tt.code, tt.words, errs)
			}
		})
	}
}

func TestAuditVerify(t *testing.T) {
	dir := auditLog(t)
	var v struct {
		Whole            bool
		Entries, Writers int
		Head, Problem    string
		Bad              int64 `json:"bad_entry"`
	}
	verify := func(args ...string) (int, string, string) {
		return runCommand(t, nil, append([]string{"audit", "verify", "--state", dir}, args...)...)
	}
	code, out, _ := verify("--json")
	if err := json.Unmarshal([]byte(out), &v); code != 0 || err != nil || !v.Whole || v.Entries != 5 || v.Writers != 1 || v.Bad != 0 {
		t.Fatalf("exit %d, %v:\n%s", code, err, out)
	}
	code, out, _ = verify("--expect", v.Head)
	if code != 0 {
		t.Errorf("exit %d", code)
	}
	wantIn(t, out, "is whole", "entries 5", "writers 1", v.Head)
	code, _, errs := verify("--expect", "9"+v.Head[1:])
	if code != exitFailed {
		t.Errorf("exit %d", code)
	}
	wantIn(t, errs, "entries 6 to 9 are missing")

	db, err := sql.Open("sqlite", filepath.Join(dir, "callgate.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `DROP TRIGGER audit_loses_nothing; DELETE FROM audit WHERE seq = 4`); err != nil {
		t.Fatal(err)
	}
	code, out, errs = verify()
	if code != exitFailed {
		t.Errorf("exit %d", code)
	}
	wantIn(t, out, "not whole", "entries 3")
	wantIn(t, errs, "entry 4", "missing")
	code, out, _ = verify("--json")
	if err := json.Unmarshal([]byte(out), &v); code != exitFailed || err != nil || v.Whole || v.Bad != 4 || v.Problem == "" {
		t.Errorf("exit %d, %v:\n%s", code, err, out)
	}
}

func TestAuditListTakesEachOutcomeThatTheGateKnows(t *testing.T) {
	src, err := os.ReadFile(filepath.Join("..", "..", "gate", "gate.go"))
	if err != nil {
		t.Fatal(err)
	}
	known := regexp.MustCompile(`Outcome\s+= "(\w+)"`).FindAllStringSubmatch(string(src), -1)
	if len(known) < 10 {
		t.Fatalf("only %d outcomes stand in the gate", len(known))
	}
	for _, m := range known {
		f := auditFilter{q: store.Query{Outcome: m[1]}}
		if _, err := f.query(time.Now()); err != nil {
			t.Error(err)
		}
	}
}

func TestTimesAreTakenInEachForm(t *testing.T) {
	now := time.Date(2026, 3, 8, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Time{
		"":                          {},
		"2026-03-01T12:00:00Z":      now.AddDate(0, 0, -7),
		"2026-03-01T14:00:00+02:00": now.AddDate(0, 0, -7),
		"2026-03-01":                time.Date(2026, 3, 1, 0, 0, 0, 0, time.Local),
		"90s":                       now.Add(-90 * time.Second),
		"7d":                        now.AddDate(0, 0, -7),
	} {
		if got, err := parseWhen("--since", in, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: got %v, %v, want %v", in, got, err, want)
		}
	}
}
