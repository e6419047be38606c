package store

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// asNobody runs f with the file system rights of a user who owns nothing. The
// rights are the thread's: it is not given back to other goroutines.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		f() // this user has no rights beyond the modes either
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := syscall.Setfsuid(65534); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

// chmod sets the mode of a file, and lets everybody get to it.
func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	for above := filepath.Dir(path); above != os.TempDir() && len(above) > 1; above = filepath.Dir(above) {
		if info, err := os.Stat(above); err == nil && info.Mode().Perm()&0o055 != 0o055 {
			if err := os.Chmod(above, info.Mode().Perm()|0o055); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// copied gives a copy of the named files of dir, in a directory that everybody
// may read and nobody write to.
func copied(t *testing.T, dir string, names ...string) string {
	t.Helper()
	to := t.TempDir()
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
		chmod(t, filepath.Join(to, name), 0o444)
	}
	chmod(t, to, 0o555)
	return to
}

const walName, shmName = dbName + "-wal", dbName + "-shm"

// Reading must need no right to write, whatever is left in the directory, and
// must not pass over entries.
func TestReadingNeedsNoRightToWrite(t *testing.T) {
	closedDir, liveDir := t.TempDir(), t.TempDir()
	s := open(t, closedDir)
	record(t, s, 1, 4)
	closed(t, s)
	live := open(t, liveDir)
	record(t, live, 1, 3)
	empty := func(t *testing.T, dir, name string) string {
		chmod(t, dir, 0o755)
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o444); err != nil {
			t.Fatal(err)
		}
		chmod(t, dir, 0o555)
		return dir
	}
	for _, tt := range []struct {
		name string
		dir  func(*testing.T) string
		want int
		err  string // a part of it, where it cannot be read
	}{
		{"a log that was closed", func(t *testing.T) string { return copied(t, closedDir, dbName, keyName) }, 4, ""},
		{"with an empty write-ahead log", func(t *testing.T) string { return empty(t, copied(t, closedDir, dbName, keyName), walName) }, 4, ""},
		{"with an index that a reader left", func(t *testing.T) string { return empty(t, copied(t, closedDir, dbName, keyName), shmName) }, 4, ""},
		{"a log whose writer was killed", func(t *testing.T) string { return copied(t, liveDir, dbName, walName, shmName, keyName) }, 3, ""},
		{"the same without its index", func(t *testing.T) string { return copied(t, liveDir, dbName, walName, keyName) }, 0, "copy the whole state directory"},
		{"a log that is being written", func(t *testing.T) string {
			for _, name := range []string{dbName, walName, shmName, keyName} {
				chmod(t, filepath.Join(liveDir, name), 0o644)
			}
			chmod(t, liveDir, 0o555)
			return liveDir
		}, 3, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := tt.dir(t)
			before, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			asNobody(t, func() {
				r, err := OpenReadOnly(t.Context(), dir)
				if tt.err != "" {
					wantError(t, err, tt.err)
					if n := strings.Count(err.Error(), "\n"); n > 0 {
						t.Errorf("the error has %d lines: %v", n+1, err)
					}
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				if got := all(t, r, Query{}); len(got) != tt.want {
					t.Errorf("it reads %d entries", len(got))
				}
				if e, err := r.Entry(t.Context(), 2); err != nil || e.Seq != 2 {
					t.Errorf("got %+v, %v", e, err)
				}
				if v := verify(t, r, Head{}); v.Bad != 0 || v.Entries != tt.want {
					t.Errorf("verify: %+v", v)
				}
				closed(t, r)
			})
			after, err := os.ReadDir(dir)
			if err != nil || len(after) != len(before) {
				t.Errorf("reading left %v, before there was %v (%v)", after, before, err)
			}
		})
	}
}

func TestWhatMayNotBeReadIsSaidOnce(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	record(t, s, 1, 2)
	closed(t, s)
	for _, tt := range []struct {
		name string
		mode os.FileMode
		verb func() error
	}{
		{dbName, 0o600, func() error { _, err := OpenReadOnly(t.Context(), dir); return err }},
		{keyName, 0o600, func() error {
			r, err := OpenReadOnly(t.Context(), dir)
			if err != nil {
				return err
			}
			_, err = r.Verify(t.Context(), Head{})
			return errors.Join(err, r.Close())
		}},
		{".", 0o700, func() error { _, err := OpenReadOnly(t.Context(), dir); return err }},
	} {
		for _, name := range []string{dbName, keyName} {
			chmod(t, filepath.Join(dir, name), 0o644)
		}
		chmod(t, filepath.Join(dir, tt.name), tt.mode)
		asNobody(t, func() {
			err := tt.verb()
			wantError(t, err, "permission denied", "as the user that callgate serve runs as")
			if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "write") {
				t.Errorf("%s: %v", tt.name, err)
			}
		})
	}
}

func TestOpenNamesADirectoryThatCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	chmod(t, dir, 0o555)
	asNobody(t, func() {
		_, err := Open(t.Context(), dir, Options{})
		wantError(t, err, filepath.Join(dir, lockName), "permission denied", "another state directory")
		_, err = Open(t.Context(), filepath.Join(dir, "below"), Options{})
		wantError(t, err, filepath.Join(dir, "below"), "permission denied")
	})
}
