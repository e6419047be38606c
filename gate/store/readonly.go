package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// OpenReadOnly opens the state directory dir for reading, whether or not
// another process has it open for writing. It changes nothing and needs no
// right to write; the methods that would write return an error.
//
// A database that nobody has open is read as a file that does not change, and
// nothing is made beside it. Should somebody begin to write to it meanwhile,
// what was read is worth nothing, and the error of the method says so.
func OpenReadOnly(ctx context.Context, dir string) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	path := filepath.Join(dir, dbName)
	quiet, err := lookAt(dir)
	if err != nil {
		return nil, explainRead(err)
	}
	how := alone
	if quiet != nil {
		how = still
	}
	db, err := openReaders(ctx, path, how)
	if how == alone && isCode(err, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY) {
		if quiet, err = leftBehind(dir, err); err == nil {
			db, err = openReaders(ctx, path, still)
		}
	}
	if err != nil {
		return nil, explainRead(err)
	}
	s := &Store{dir: dir, read: db, quiet: quiet}
	s.close = sync.OnceValue(s.shut)
	return s, nil
}

// leftBehind is for a database whose write-ahead log cannot be opened, because
// a file beside it is missing and cannot be made here. When nothing stands in
// the log, the database can be read without it.
func leftBehind(dir string, err error) (*snapshot, error) {
	q, still, lookErr := snapshotOf(dir)
	switch {
	case lookErr != nil:
		return nil, lookErr
	case !still:
		return nil, &Error{File: filepath.Join(dir, dbName+"-wal"),
			Reason: "entries stand in this write-ahead log, which was left behind when callgate serve was killed, and it cannot be read where nothing can be written",
			Remedy: "copy the whole state directory to where you can write, and read the copy", Err: err}
	}
	return q, nil
}

// snapshot is how the database's files were found when nobody had them open.
type snapshot struct {
	dir     string
	size    int64
	changed time.Time
}

// snapshotOf looks at the database's file. It reports false when entries stand
// in the write-ahead log beside it, so that the file is not all there is.
func snapshotOf(dir string) (*snapshot, bool, error) {
	path := filepath.Join(dir, dbName)
	info, err := os.Stat(path)
	if err != nil {
		return nil, false, explain(path, err)
	}
	log, err := fileSize(path + "-wal")
	return &snapshot{dir: dir, size: info.Size(), changed: info.ModTime()}, log <= 0, err
}

// lookAt looks for a database that can be read. The snapshot is nil where
// another process has it open, or had it open and did not close it.
func lookAt(dir string) (*snapshot, error) {
	path := filepath.Join(dir, dbName)
	info, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, explain(path, err)
	}
	if err != nil || info.Size() == 0 {
		if err := notLost(dir); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, &Error{File: path, Reason: "there is no such file", Remedy: "name the state directory that callgate serve uses", Err: err}
	}
	f, err := os.Open(path) // SQLite would not say why it cannot
	if err != nil {
		return nil, explain(path, err)
	}
	if err := f.Close(); err != nil {
		return nil, explain(path, err)
	}
	index, err := fileSize(path + "-shm")
	if err != nil {
		return nil, err
	}
	q, still, err := snapshotOf(dir)
	if err != nil || !still || index >= 0 {
		return nil, err
	}
	return q, nil
}

// stands reports whether the files are still as they were found.
func (q *snapshot) stands() bool {
	now, still, err := snapshotOf(q.dir)
	return err == nil && still && now.size == q.size && now.changed.Equal(q.changed)
}

// readError is the error of reading the audit log, where err says how that
// ended: what was read of a database that changed meanwhile is worth nothing.
func (s *Store) readError(err error) error {
	if s.quiet != nil && !s.quiet.stands() {
		return &Error{File: filepath.Join(s.dir, dbName), Reason: "callgate serve began to write to it while it was read", Remedy: "run this again", Err: err}
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("audit: %w", err)
}

// fileSize is the size of a file, -1 when there is none.
func fileSize(path string) (int64, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return -1, nil
	case err != nil:
		return 0, explain(path, err)
	}
	return info.Size(), nil
}
