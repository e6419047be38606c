package store

import (
	"os"
	"path/filepath"
	"runtime"
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

func TestOpenNamesADirectoryThatCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	for path := filepath.Dir(dir); path != os.TempDir() && len(path) > 1; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	asNobody(t, func() {
		_, err := Open(t.Context(), dir, Options{})
		wantError(t, err, filepath.Join(dir, lockName), "permission denied", "another state directory")
		_, err = Open(t.Context(), filepath.Join(dir, "below"), Options{})
		wantError(t, err, filepath.Join(dir, "below"), "permission denied")
	})
}
