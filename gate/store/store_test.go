package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"callgate/gate"
)

// open opens dir and closes it when the test ends.
func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func closed(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// raw changes the database behind the store's back.
func raw(t testing.TB, dir string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, dbName))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, q := range statements {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

// wantError checks that err is an *Error that names all of the words.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("got %v, want an *Error", err)
	}
	if e.File == "" || e.Reason == "" || e.Remedy == "" {
		t.Errorf("an error must name file, reason and remedy: %+v", e)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

func TestOpenMakesADirectoryThatOnlyItsOwnerCanRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "state")
	s := open(t, dir)
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o700 {
		t.Errorf("the directory has mode %o", got)
	}
	if err := s.Record(t.Context(), entry(1), true); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != 0o600 {
			t.Errorf("%s has mode %o", f.Name(), got)
		}
	}
	if got, want := strings.Join(names, " "), "audit.key callgate.db callgate.db-shm callgate.db-wal lock"; got != want {
		t.Errorf("the directory holds %s, want %s", got, want)
	}
}

func TestOpenTakesBackRightsThatOthersGotAndSaysSo(t *testing.T) {
	for _, tt := range []struct {
		name       string
		mode, want os.FileMode
		says       string // "" for nothing
	}{
		{dbName, 0o644, 0o600, "others could read"},
		{dbName, 0o660, 0o600, "others could write to"},
		{keyName, 0o640, 0o600, "who has read it can write a log that verifies"},
		{keyName, 0o602, 0o600, "audit verify"},
		{lockName, 0o666, 0o600, "others could write to"},
		{lockName, 0o611, 0o600, "others could run"},
		{dbName + "-wal", 0o606, 0o600, "others could write to"},
		{dbName + "-shm", 0o604, 0o600, "others could read"},
		{".", 0o777, 0o700, "others could write to the state directory"},
		{".", 0o1770, 0o700, "(mode 0770)"},
		{".", 0o755, 0o755, ""},
		{keyName, 0o400, 0o400, ""},
	} {
		t.Run(fmt.Sprintf("%s with mode %o", tt.name, tt.mode), func(t *testing.T) {
			dir := t.TempDir()
			closed(t, open(t, dir))
			for _, name := range caNames { // a local authority lies there, too
				if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(dir, tt.name)
			if strings.HasPrefix(tt.name, dbName+"-") {
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(path, tt.mode); err != nil {
				t.Fatal(err)
			}
			var said []string
			s, err := Open(t.Context(), dir, Options{Warn: func(text string) { said = append(said, text) }})
			if err != nil {
				t.Fatal(err)
			}
			defer closed(t, s)
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != tt.want {
				t.Errorf("it has mode %o", got)
			}
			switch {
			case tt.says == "" && len(said) > 0:
				t.Errorf("said %q", said)
			case tt.says != "" && (len(said) != 1 || !strings.Contains(said[0], tt.says) || !strings.Contains(said[0], filepath.Clean(path))):
				t.Errorf("said %q, want …%s…", said, tt.says)
			}
		})
	}
}

// A directory that is not callgate's alone is not shut for others without
// being asked.
func TestOpenRefusesASharedDirectoryThatOthersCanWriteTo(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), dir, Options{})
	wantError(t, err, dir, "mode 0777", "holds other things", "chmod go-w")
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("it was changed: %v, %v", info, err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
}

func TestErrorsOfTheStateDirectoryNameARemedyThatHelps(t *testing.T) {
	lockIsDir := t.TempDir()
	if err := os.Mkdir(filepath.Join(lockIsDir, lockName), 0o700); err != nil {
		t.Fatal(err)
	}
	lockIsLink := t.TempDir()
	if err := os.Symlink("elsewhere", filepath.Join(lockIsLink, lockName)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		dir   string
		words []string
	}{
		{lockIsDir, []string{filepath.Join(lockIsDir, lockName), "it is a directory", "move it away"}},
		{lockIsLink, []string{filepath.Join(lockIsLink, lockName), "symbolic links", "move the link away"}},
		{"/proc/x/y", []string{"/proc/x", "name a place where directories can be made"}},
		{filepath.Join(t.TempDir(), strings.Repeat("x", 300)), []string{"too long", "shorter"}},
		{"/dev/null", []string{"/dev/null", "not a directory", "name a directory"}},
	} {
		_, err := Open(t.Context(), tt.dir, Options{})
		wantError(t, err, tt.words...)
		if err != nil && strings.Contains(err.Error(), "see the reason") {
			t.Errorf("no remedy: %v", err)
		}
	}
}

func TestASecondStoreIsRefusedAndNamesTheHolder(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	_, err := Open(t.Context(), dir, Options{})
	wantError(t, err, dir, "process "+strconv.Itoa(os.Getpid()), "stop that callgate")
	closed(t, s)
	open(t, dir) // free again
}

func TestAFailedOpenGivesTheDirectoryFree(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, dbName)
	if err := os.WriteFile(path, bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := Open(t.Context(), dir, Options{})
		wantError(t, err, "not a database")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
}

func TestWhatOpenRefuses(t *testing.T) {
	overwrite := func(at int64, with string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			f, err := os.OpenFile(filepath.Join(dir, dbName), os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte(with), at); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	truncate := func(size int64) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, dbName), size); err != nil {
				t.Fatal(err)
			}
		}
	}
	statements := func(q ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { raw(t, dir, q...) }
	}
	for _, tt := range []struct {
		name   string
		damage func(*testing.T, string)
		words  []string
	}{
		{"the first bytes are garbage", overwrite(0, "garbage garbage garbage"), []string{dbName, "not a database", "backup"}},
		{"pages in the middle are garbage", overwrite(3*4096, strings.Repeat("garbage.", 4096)), []string{dbName, "damaged", "backup"}},
		{"the file was cut in the middle", truncate(5 * 4096), []string{dbName, "damaged", "backup"}},
		{"the file was emptied", truncate(0), []string{dbName, "missing or empty", keyName, "move the state directory away"}},
		{"the database is gone and its key is not", remove(dbName), []string{dbName, "missing or empty", keyName, "backup"}},
		{"the key is gone", remove(keyName), []string{keyName, "missing", "backup"}},
		{"the key is of another log", func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, keyName), bytes.Repeat([]byte("ab"), keySize), 0o600); err != nil {
				t.Fatal(err)
			}
		}, []string{"another log", "audit verify"}},
		{"the key is cut", func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, keyName), 10); err != nil {
				t.Fatal(err)
			}
		}, []string{keyName, "64 hexadecimal digits"}},
		{"the key is a link", func(t *testing.T, dir string) {
			path := filepath.Join(dir, keyName)
			if err := os.Rename(path, path+".moved"); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(path+".moved", path); err != nil {
				t.Fatal(err)
			}
		}, []string{keyName, "symbolic links"}},
		{"the database is a directory", func(t *testing.T, dir string) {
			remove(dbName)(t, dir)
			if err := os.Mkdir(filepath.Join(dir, dbName), 0o700); err != nil {
				t.Fatal(err)
			}
		}, []string{dbName, "not a plain file"}},
		{"a later version wrote it", statements(`PRAGMA user_version = 99`), []string{"version 99", "newer callgate"}},
		{"another program wrote it", statements(`PRAGMA application_id = 12345`), []string{"another program", "another state directory"}},
		{"the last audit entry was changed", statements(dropTriggers, `UPDATE audit SET body = CAST(replace(body, 'tool-3', 'tool-9') AS BLOB) WHERE seq = 3`), []string{"entry 3", "wrong hash", "audit verify"}},
		{"the last audit entry was removed", statements(dropTriggers, `DELETE FROM audit WHERE seq = 3`), []string{"ends with entry 2", "names entry 3"}},
		{"all audit entries were removed", statements(dropTriggers, `DELETE FROM audit`), []string{"no entries", "entry 3"}},
		{"the head record was removed", statements(`DELETE FROM audit_head`), []string{"head record"}},
		{"the head record was changed", statements(`UPDATE audit_head SET seq = 2`), []string{"head record"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			for i := range 3 {
				if err := s.Record(t.Context(), entry(i+1), true); err != nil {
					t.Fatal(err)
				}
			}
			closed(t, s)
			tt.damage(t, dir)
			before := listing(t, dir)
			_, err := Open(t.Context(), dir, Options{})
			wantError(t, err, tt.words...)
			if after := listing(t, dir); after != before {
				t.Errorf("a refused open changed the directory:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

// listing names the files of dir that last, with their sizes.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	for _, name := range []string{keyName, dbName, lockName} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
			fmt.Fprintf(&b, "%s %d\n", name, info.Size())
		}
	}
	return b.String()
}

func TestOpenRefusesAFileInPlaceOfADirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), filepath.Join(file, "state"), Options{})
	wantError(t, err, file, "not a directory")
}

func TestASecretIsTheSameEverAfter(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	a := secret(t, s, "principals")
	if len(a) != 32 || bytes.Equal(a, make([]byte, 32)) {
		t.Errorf("the secret is %x", a)
	}
	if b := secret(t, s, "principals"); !bytes.Equal(a, b) {
		t.Error("the second call gives another secret")
	}
	if b := secret(t, s, "other"); bytes.Equal(a, b) {
		t.Error("two names share a secret")
	}
	closed(t, s)
	if b := secret(t, open(t, dir), "principals"); !bytes.Equal(a, b) {
		t.Error("the secret changed with a restart")
	}
}

func secret(t *testing.T, s *Store, name string) []byte {
	t.Helper()
	b, err := s.Secret(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestASecretOfTheWrongLengthIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	raw(t, dir, `INSERT INTO secrets (name, value) VALUES ('short', x'00')`)
	if b, err := s.Secret(t.Context(), "short"); err == nil {
		t.Errorf("got %x", b)
	}
}

func TestAReadOnlyStoreReadsBesideAWriterAndWritesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.Record(t.Context(), entry(1), true); err != nil {
		t.Fatal(err)
	}
	r, err := OpenReadOnly(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := s.Record(t.Context(), entry(2), true); err != nil {
		t.Fatal(err)
	}
	if got := all(t, r, Query{}); len(got) != 2 {
		t.Errorf("it reads %d entries", len(got))
	}
	refusals := map[string]error{
		"record":  r.Record(t.Context(), entry(3), false),
		"durable": r.Record(t.Context(), entry(3), true),
		"create":  r.CreateApproval(t.Context(), approval("a1", time.Now())),
	}
	refusals["use"] = r.UseRepairs(t.Context(), []int64{1}, time.Now())
	refusals["drop"] = r.DropRepairs(t.Context(), nil, []int64{1})
	_, refusals["keep"] = r.KeepRepair(t.Context(), 0, "t", nil, nil, time.Now())
	_, refusals["secret"] = r.Secret(t.Context(), "x")
	_, refusals["answer"] = r.AnswerApproval(t.Context(), "a1", gate.Answer{}, time.Now())
	_, refusals["spend"] = r.SpendApproval(t.Context(), "a1", time.Now())
	_, refusals["close"] = r.CloseApproval(t.Context(), "a1", gate.StateExpired, time.Now())
	for name, err := range refusals {
		if !errors.Is(err, errReadOnly) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestAReadOnlyStoreNeedsNoWriter(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.Record(t.Context(), entry(1), true); err != nil {
		t.Fatal(err)
	}
	closed(t, s)
	r, err := OpenReadOnly(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got := all(t, r, Query{}); len(got) != 1 {
		t.Errorf("it reads %d entries", len(got))
	}
	if v := verify(t, r, Head{}); v.Bad != 0 || v.Entries != 1 {
		t.Errorf("verify: %+v", v)
	}
}

// A database that nobody had open is read without locks: should somebody write
// to it meanwhile, nothing of what was read may pass as the log.
func TestAWriterThatComesWhileAQuietLogIsRead(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	record(t, s, 1, 3)
	closed(t, s)
	r, err := OpenReadOnly(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if e, err := r.Entry(t.Context(), 3); err != nil || e.Seq != 3 {
		t.Fatalf("got %+v, %v", e, err)
	}
	s = open(t, dir)
	record(t, s, 4, 4)
	for _, when := range []string{"while it is written", "after it was closed again"} {
		_, entryErr := r.Entry(t.Context(), 3)
		_, missingErr := r.Entry(t.Context(), 4)
		_, verifyErr := r.Verify(t.Context(), Head{})
		var listErr error
		for _, listErr = range r.Entries(t.Context(), Query{}) {
		}
		for _, err := range []error{entryErr, missingErr, verifyErr, listErr} {
			if err == nil {
				t.Fatalf("%s: something of an old log was given out", when)
			}
			wantError(t, err, "began to write", "run this again")
		}
		closed(t, s)
	}
	again, err := OpenReadOnly(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if v := verify(t, again, Head{}); v.Bad != 0 || v.Entries != 4 {
		t.Errorf("verify: %+v", v)
	}
}

func TestOpenReadOnlyRefuses(t *testing.T) {
	empty := t.TempDir()
	_, err := OpenReadOnly(t.Context(), empty)
	wantError(t, err, empty, "no such file", "callgate serve")
	if files, _ := os.ReadDir(empty); len(files) != 0 {
		t.Errorf("it made %v", files)
	}

	fresh := t.TempDir()
	if err := os.WriteFile(filepath.Join(fresh, dbName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = OpenReadOnly(t.Context(), fresh)
	wantError(t, err, "version 0", "callgate serve")

	for _, lose := range []func(string) error{os.Remove, func(path string) error { return os.Truncate(path, 0) }} {
		lost := t.TempDir()
		closed(t, open(t, lost))
		if err := lose(filepath.Join(lost, dbName)); err != nil {
			t.Fatal(err)
		}
		_, err = OpenReadOnly(t.Context(), lost)
		wantError(t, err, dbName, "missing or empty although there is an "+keyName, "backup")
		if strings.Contains(err.Error(), "callgate serve once") {
			t.Errorf("a remedy that does not help: %v", err)
		}
	}

	newer := t.TempDir()
	closed(t, open(t, newer))
	raw(t, newer, `PRAGMA user_version = 99`)
	_, err = OpenReadOnly(t.Context(), newer)
	wantError(t, err, "version 99")
}

func TestAClosedStoreRefusesToWrite(t *testing.T) {
	s := open(t, t.TempDir())
	closed(t, s)
	closed(t, s) // again is no error
	for _, durable := range []bool{false, true} {
		if err := s.Record(t.Context(), entry(1), durable); !errors.Is(err, errClosed) {
			t.Errorf("record, durable %v: got %v", durable, err)
		}
	}
	if err := s.CreateApproval(t.Context(), approval("a1", time.Now())); !errors.Is(err, errClosed) {
		t.Errorf("create: got %v", err)
	}
}

func TestAnEndedContextChangesNothing(t *testing.T) {
	s := open(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.CreateApproval(ctx, approval("a1", time.Now())); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Approval(t.Context(), "a1"); !errors.Is(err, gate.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
