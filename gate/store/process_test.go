package store

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	execute "os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"callgate/gate"
)

// childEnv tells this test binary to act as another process in the directory
// that it names.
const childEnv = "CALLGATE_STORE_TEST_CHILD"

func TestMain(m *testing.M) {
	if role, dir, ok := strings.Cut(os.Getenv(childEnv), ":"); ok {
		if err := child(role, dir); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child writes what it is told to, and prints a line for what was acknowledged.
func child(role, dir string) error {
	ctx := context.Background()
	if role == "small-disk" {
		// A write beyond the limit fails instead of ending the process.
		signal.Ignore(syscall.SIGXFSZ)
	}
	s, err := Open(ctx, dir, Options{})
	if err != nil {
		return err
	}
	switch role {
	case "write":
		return writeForEver(ctx, s)
	case "small-disk":
		return writeUntilFull(ctx, s)
	}
	return fmt.Errorf("no role %s", role)
}

// writeForEver acknowledges entries, approvals and repairs from several callers
// until the process is killed.
func writeForEver(ctx context.Context, s *Store) error {
	var out sync.Mutex
	say := func(format string, args ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	failed := make(chan error)
	for c := range 4 {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d", c, i)
				a := approval(id, time.Now())
				e := entry(i)
				e.Tool = id
				if err := s.Record(ctx, entry(i), false); err != nil {
					failed <- err
				}
				if err := s.Record(ctx, e, true); err != nil {
					failed <- err
				}
				say("entry %s", id)
				if err := s.CreateApproval(ctx, a); err != nil {
					failed <- err
				}
				say("created %s", id)
				if _, err := s.AnswerApproval(ctx, id, gate.Answer{Approve: true}, time.Now()); err != nil {
					failed <- err
				}
				say("approved %s", id)
				if _, err := s.SpendApproval(ctx, id, time.Now()); err != nil {
					failed <- err
				}
				say("spent %s", id)
				n, err := s.KeepRepair(ctx, 0, id, []byte("first"), []byte("first"), time.Now())
				if err != nil {
					failed <- err
				}
				if _, err := s.KeepRepair(ctx, n, id, []byte(id), []byte(id), time.Now()); err != nil {
					failed <- err
				}
				say("kept %s", id)
			}
		}()
	}
	return <-failed
}

// writeUntilFull writes until the limit on the size of files stops it, and
// prints what was acknowledged and why it ended.
func writeUntilFull(ctx context.Context, s *Store) error {
	const limit = 512 << 10
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		return err
	}
	for i := range limit / 1000 {
		e := entry(i)
		e.Tool, e.Args = strconv.Itoa(i), strings.Repeat("x", 1000)
		if err := s.Record(ctx, e, true); err != nil {
			fmt.Println("stopped", err)
			if err := s.Record(ctx, entry(0), false); err == nil {
				fmt.Println("error: a batched entry was taken after a failure")
			}
			return nil
		}
		fmt.Println("entry", i)
	}
	return fmt.Errorf("nothing stopped it")
}

func command(t *testing.T, role, dir string) *execute.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := execute.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+role+":"+dir)
	return cmd
}

// killed runs a writer in dir, kills it after so many acknowledgements, and
// gives them by kind.
func killed(t *testing.T, dir string, after int) map[string][]string {
	t.Helper()
	cmd := command(t, "write", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acks, n := map[string][]string{}, 0
	for lines := bufio.NewScanner(out); lines.Scan(); n++ {
		kind, id, _ := strings.Cut(lines.Text(), " ")
		acks[kind] = append(acks[kind], id)
		if n == after {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the writer ended by itself")
	}
	if n < after || len(acks["error"]) > 0 {
		t.Fatalf("the writer stopped after %d lines: %v", n, acks["error"])
	}
	return acks
}

func TestWhatWasAcknowledgedSurvivesAKill(t *testing.T) {
	dir := t.TempDir()
	var acked int
	for round := range 3 {
		dir := dir
		if round == 2 {
			dir = t.TempDir() // a first start that is killed, too
		}
		acks := killed(t, dir, 100+150*round)
		acked += len(acks["entry"])
		// A reader comes first: it must see all without repairing anything.
		r, err := OpenReadOnly(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		checkSurvivors(t, r, acks)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		s := open(t, dir)
		checkSurvivors(t, s, acks)
		raw(t, dir, `DELETE FROM approvals; DELETE FROM repairs`) // the next round uses the ids again
		closed(t, s)
	}
	if acked == 0 {
		t.Error("nothing was acknowledged")
	}
}

func checkSurvivors(t *testing.T, s *Store, acks map[string][]string) {
	t.Helper()
	if v := verify(t, s, Head{}); v.Bad != 0 {
		t.Errorf("verify: %+v", v)
	}
	there := map[string]bool{}
	for _, e := range all(t, s, Query{}) {
		there[e.Tool] = true
	}
	for _, id := range acks["entry"] {
		if !there[id] {
			t.Errorf("entry %s is lost", id)
		}
	}
	kept := map[string]bool{}
	for _, r := range repairsOf(t, s) {
		kept[r.tenant] = kept[r.tenant] || r.anchors == r.tenant && r.body == r.tenant
	}
	for _, id := range acks["kept"] {
		if !kept[id] {
			t.Errorf("repair %s is lost", id)
		}
	}
	rank := map[gate.ApprovalState]int{gate.StatePending: 1, gate.StateApproved: 2, gate.StateSpent: 3}
	for kind, least := range map[string]int{"created": 1, "approved": 2, "spent": 3} {
		for _, id := range acks[kind] {
			if a, err := s.Approval(t.Context(), id); err != nil || rank[a.State] < least {
				t.Errorf("%s was acknowledged as %s and is %q (%v)", id, kind, a.State, err)
			}
		}
	}
}

func TestALockEndsWithItsProcess(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	out, err := command(t, "write", dir).Output()
	if err == nil || !bytes.Contains(out, []byte("in use by process "+strconv.Itoa(os.Getpid()))) {
		t.Errorf("another process got: %s (%v)", out, err)
	}
	closed(t, s)
	killed(t, dir, 5)
	open(t, dir)
}

func TestAFullDiskKeepsWhatWasAcknowledged(t *testing.T) {
	dir := t.TempDir()
	out, err := command(t, "small-disk", dir).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	acks := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		acks[kind] = append(acks[kind], rest)
	}
	if len(acks["stopped"]) != 1 || len(acks["entry"]) == 0 || len(acks["error:"]) > 0 {
		t.Fatalf("got: %s", out)
	}
	if !strings.Contains(acks["stopped"][0], "state: ") || !strings.Contains(acks["stopped"][0], dbName) {
		t.Errorf("the failure does not name its place: %s", acks["stopped"][0])
	}
	checkSurvivors(t, open(t, dir), acks)
}
