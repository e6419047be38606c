package store

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Error says why a state directory cannot be used.
type Error struct {
	// File is what the trouble is with, Reason what is wrong, and Remedy what
	// can be done.
	File, Reason, Remedy string
	// Err is the cause, nil where Reason says all.
	Err error
}

// Error gives file, reason and remedy.
func (e *Error) Error() string {
	return fmt.Sprintf("state: %s: %s; %s", e.File, e.Reason, e.Remedy)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// explain turns an error of the system or of SQLite into an *Error for that
// file; one that is an *Error already stays.
func explain(file string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := &Error{File: file, Reason: err.Error(), Remedy: "mend that, or name another state directory", Err: err}
	if se, ok := errors.AsType[*sqlite.Error](err); ok {
		explainSQLite(e, se)
		return e
	}
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		e.File, e.Reason = pe.Path, pe.Err.Error()
	}
	switch {
	case errors.Is(err, syscall.EISDIR):
		e.Reason, e.Remedy = "it is a directory where a file is wanted", "move it away"
	case errors.Is(err, syscall.ELOOP):
		e.Remedy = "move the link away and put there what it points to"
	case errors.Is(err, os.ErrNotExist):
		e.Remedy = "name a place where directories can be made"
	case errors.Is(err, syscall.ENAMETOOLONG):
		e.Remedy = "name a shorter path"
	case errors.Is(err, syscall.EIO):
		e.Remedy = remedyDisk
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS):
		e.Remedy = "let the user that runs callgate write there, or name another state directory"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Remedy = remedySpace
	case errors.Is(err, syscall.ENOTDIR):
		e.Remedy = "name a directory as state directory"
	}
	return e
}

const (
	remedySpace   = "make room on that disk"
	remedyDisk    = "look at the disk's health and free space"
	remedyRestore = "restore it from a backup, or move the state directory away to begin anew; callgate deletes nothing itself"
)

// isCode tells whether err comes from SQLite with one of these primary codes.
func isCode(err error, codes ...int) bool {
	se, ok := errors.AsType[*sqlite.Error](err)
	return ok && slices.Contains(codes, se.Code()&0xff) // the rest is the extended code
}

func explainSQLite(e *Error, se *sqlite.Error) {
	switch se.Code() & 0xff { // the rest is the extended code
	case sqlite3.SQLITE_NOTADB:
		e.Reason, e.Remedy = "it is not a database", remedyRestore
	case sqlite3.SQLITE_CORRUPT:
		e.Reason, e.Remedy = "it is damaged: "+se.Error(), remedyRestore
	case sqlite3.SQLITE_FULL:
		e.Reason, e.Remedy = "there is no space left: "+se.Error(), remedySpace
	case sqlite3.SQLITE_IOERR:
		e.Reason, e.Remedy = "it cannot be read or written: "+se.Error(), remedyDisk
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		e.Remedy = "let the user that runs callgate read and write the directory and its files"
	case sqlite3.SQLITE_CONSTRAINT:
		e.Reason, e.Remedy = "another program wrote to it: "+se.Error(), remedyAudit
	case sqlite3.SQLITE_BUSY:
		e.Remedy = "end the other program that has the database open for writing"
	}
}

// explainRead gives an error of reading the remedy for those who only read.
func explainRead(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || !errors.Is(err, os.ErrPermission) {
		return err
	}
	with := *e
	with.Remedy = "run this as the user that callgate serve runs as, or let this user read the state directory and its files"
	return &with
}

// makeDir makes the state directory. One that exists and that others may write
// to, who could then exchange what lies in it, is tightened if it is ours.
func makeDir(dir string, warn func(string)) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return explain(dir, err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return explain(dir, err)
	}
	mode := info.Mode().Perm()
	if mode&0o022 == 0 {
		return nil
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		warn(fmt.Sprintf("others can write to the state directory %s (mode %04o), so they can exchange what lies in it, and it belongs to another user; "+
			"give it to the user that callgate runs as, with mode 0700", dir, mode))
		return nil
	}
	// What holds other things too may be meant for others: /tmp, a project.
	own, err := ownDir(dir)
	if err != nil {
		return explain(dir, err)
	}
	if !own {
		return &Error{File: dir, Reason: fmt.Sprintf("others can write to it (mode %04o), and it holds other things than callgate's", mode),
			Remedy: "name a directory of its own, or take that right away: chmod go-w " + dir}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return explain(dir, err)
	}
	warn(fmt.Sprintf("others could write to the state directory %s (mode %04o); it has mode 0700 now, and callgate audit verify tells whether the audit log is whole", dir, mode))
	return nil
}

// caNames are the files of the local authority (callgate ca), which lie in the
// state directory too unless they are told to lie elsewhere.
var caNames = []string{"ca.pem", "ca-key.pem"}

// ownDir tells whether nothing lies in a directory but callgate's files.
func ownDir(dir string) (bool, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, f := range list {
		name := f.Name()
		if name != lockName && !slices.Contains(caNames, name) && !strings.HasPrefix(name, dbName) && !strings.HasPrefix(name, keyName) {
			return false, nil
		}
	}
	return true, nil
}

// makeDatabase makes the database's file, empty, where there is none. SQLite
// gives its mode to the files beside it. An audit key without a database is the
// rest of a state directory that was lost, and no new one.
func makeDatabase(dir string, warn func(string)) error {
	path := filepath.Join(dir, dbName)
	info, err := os.Lstat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return explain(path, err)
	}
	if err != nil || info.Size() == 0 {
		if err := notLost(dir); err != nil {
			return err
		}
	}
	if err == nil {
		return tightenDatabase(path, warn)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return explain(path, err)
	}
	return explain(path, f.Close())
}

// notLost is for a directory whose database is missing or empty: an audit key
// beside it means that there was one.
func notLost(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, keyName)); err != nil {
		return nil
	}
	return &Error{File: filepath.Join(dir, dbName), Reason: "it is missing or empty although there is an " + keyName, Remedy: remedyRestore}
}

// tightenDatabase does as tighten for the database and the files that SQLite
// left beside it.
func tightenDatabase(path string, warn func(string)) error {
	if err := tighten(path, warn); err != nil {
		return err
	}
	for _, beside := range []string{path + "-wal", path + "-shm"} {
		if _, err := os.Lstat(beside); err == nil {
			if err := tighten(beside, warn); err != nil {
				return err
			}
		}
	}
	return nil
}

// tighten takes the rights of others away from a file of ours and says so: a
// copy or a volume mount may have widened them. It refuses what is not a plain
// file.
func tighten(path string, warn func(string)) error {
	info, err := os.Lstat(path)
	if err != nil {
		return explain(path, err)
	}
	if !info.Mode().IsRegular() {
		return &Error{File: path, Reason: "it is not a plain file", Remedy: "move it away"}
	}
	mode := info.Mode().Perm()
	if mode&0o077 == 0 {
		return nil
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return explain(path, err)
	}
	could, then := "read", "what stands in it may be known"
	switch {
	case mode&0o022 != 0:
		could, then = "write to", "callgate audit verify tells whether the audit log is whole"
	case mode&0o044 == 0:
		could, then = "run", "nobody could read it"
	case filepath.Base(path) == keyName:
		then = "who has read it can write a log that verifies"
	}
	warn(fmt.Sprintf("others could %s %s (mode %04o); it has mode 0600 now, and %s", could, path, mode, then))
	return nil
}

// takeLock holds the directory's lock until the file is closed. The lock is on
// the open file, so it ends with the process however that ends; the file
// itself stays.
func takeLock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, explain(path, err)
	}
	if err := holdLock(f); err != nil {
		return nil, errors.Join(explainLock(dir, f, err), f.Close())
	}
	return f, nil
}

func holdLock(f *os.File) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func explainLock(dir string, f *os.File, err error) error {
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return explain(f.Name(), err)
	}
	holder := "another process"
	text, readErr := io.ReadAll(io.LimitReader(f, 32))
	if pid, numErr := strconv.Atoi(strings.TrimSpace(string(text))); readErr == nil && numErr == nil {
		holder = "process " + strconv.Itoa(pid)
	}
	return &Error{
		File:   dir,
		Reason: "the state directory is in use by " + holder,
		Remedy: "stop that callgate, or give this one another state directory",
		Err:    err,
	}
}

// keySize is the length of the audit key in bytes; the file holds it as hex.
const keySize = 32

// readKey reads the audit key. A missing file is an os.ErrNotExist.
func readKey(dir string) ([]byte, error) {
	path := filepath.Join(dir, keyName)
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, explain(path, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4*keySize))
	if err != nil {
		return nil, explain(path, err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != keySize {
		return nil, &Error{File: path, Reason: "it is not an audit key: 64 hexadecimal digits are wanted", Remedy: remedyRestore}
	}
	return key, nil
}

// makeKey makes a new audit key. The file appears whole or not at all.
func makeKey(dir string) ([]byte, error) {
	path := filepath.Join(dir, keyName)
	key := randomBytes(keySize)
	if err := writeWhole(path, hex.EncodeToString(key)+"\n"); err != nil {
		return nil, explain(path, err)
	}
	return key, nil
}

func writeWhole(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
