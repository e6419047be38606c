// Package store keeps what must outlive the process: approvals, the audit log,
// secrets and what later requests must be mended with, in one SQLite file of a
// state directory. It meets the small interfaces that its users declare, and
// knows nothing of how a decision is reached or shown.
//
// A state directory holds:
//
//	lock          held by the one process that may write
//	callgate.db   the database (beside it -wal and -shm while it is open)
//	audit.key     the key of the audit log's hash chain
//
// # Durability
//
// The database runs in WAL mode with synchronous=FULL: what a method reports
// as done has been synced to disk. One goroutine owns the only connection that
// writes; what waits for it at the same moment shares one transaction, so many
// durable writes cost one sync. Audit entries that need not be durable are
// batched for at most half a second; killing the process loses those, and
// nothing else.
//
// # The audit log
//
// Entries are numbered from 1 without gaps. Each is stored as JSON that holds
// its number, the id of the process run that wrote it (its writer) and the
// hash of the entry before it; its own hash is HMAC-SHA256 over that JSON with
// the key of the directory. A writer's first entry follows the last one of the
// writer before it, so the writers' chains are one chain. In the transaction
// that adds entries the head record is set: number and hash of the last entry,
// under the same key.
//
// Verify therefore finds an entry that was changed, removed, inserted, moved
// or repeated anywhere; the removal of all entries of a writer; entries cut
// off at the end, because the head record then names one that is missing;
// and columns that no longer say what the entry says. Open checks the end of
// the chain in the same way and refuses to go on from a wrong one.
//
// Not found is what leaves no trace in the directory: the whole database, or
// its write-ahead log, replaced by an earlier copy of itself. Keep a head
// (callgate audit verify prints it) somewhere else and compare with it; an old
// head stays good, as it names an entry that every later log must still hold.
// Whoever can read audit.key can also write a new log that verifies, so the
// directory must belong to a user that the agent is not.
package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"callgate/gate"
)

// Options set how a Store works. The zero value is a good one.
type Options struct {
	// Report is told, from the store's own goroutine, when batched audit
	// entries can no longer be written, and with nil when they can again. It
	// must not call the store. Nil means that only the callers of Record learn of it.
	Report func(error)
	// Warn is told by Open, in one sentence, of what it found and mended or could
	// not mend, without reason to refuse: rights that others had. Nil tells nobody.
	Warn func(string)
}

// Store is an open state directory. Its methods may be called side by side.
type Store struct {
	dir   string
	lock  *os.File // nil when read-only
	read  *sql.DB
	write *writer   // nil when read-only
	quiet *snapshot // nil unless the database is read as one that nobody writes
	pack  packer
	close func() error
}

var (
	_ gate.ApprovalStore = (*Store)(nil)
	_ gate.Auditor       = (*Store)(nil)
)

var (
	errClosed   = errors.New("state: the store is closed")
	errReadOnly = errors.New("state: the store was opened for reading only")
)

// The names in a state directory.
const (
	lockName = "lock"
	dbName   = "callgate.db"
	keyName  = "audit.key"
)

// readers is how many connections read at the same time.
const readers = 4

// Open opens the state directory dir for reading and writing, and makes it
// when it does not exist (mode 0700, its files 0600). Only one process may
// have it open this way. It checks the database, which it reads whole for that,
// and the end of the audit log; what it cannot accept it reports as an *Error
// that names the file, the reason and the remedy, and leaves as it is.
//
// Rights of others it takes away and says so by Options.Warn: a volume mount, a
// copy or a careless umask may have given them, and no run should end for that.
// Files that it cannot tighten are an error. A directory that others may write
// to and that is another user's, as volumes of containers often are, is only
// warned of.
func Open(ctx context.Context, dir string, o Options) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	if err := makeDir(dir, o.Warn); err != nil {
		return nil, err
	}
	lock, err := takeLock(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir, lock: lock}
	s.close = sync.OnceValue(s.shut)
	err = tighten(lock.Name(), o.Warn)
	if err == nil {
		err = s.open(ctx, o)
	}
	if err != nil {
		_ = s.Close() // err says what matters
		return nil, err
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, o Options) error {
	path := filepath.Join(s.dir, dbName)
	if err := makeDatabase(s.dir, o.Warn); err != nil {
		return err
	}
	db, err := openDatabase(ctx, path)
	if err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return errors.Join(explain(path, err), db.Close())
	}
	w := &writer{path: path, db: db, conn: conn, report: o.Report}
	if err := prepareDatabase(ctx, conn, path); err != nil {
		return errors.Join(err, w.release())
	}
	if w.key, w.head, err = openChain(ctx, conn, s.dir, o.Warn); err != nil {
		return errors.Join(err, w.release())
	}
	if err := w.start(ctx); err != nil {
		return errors.Join(explain(path, err), w.release())
	}
	s.write = w
	s.read, err = openReaders(ctx, path, beside)
	return err
}

// Close writes what is batched, closes the database and gives the directory
// free. The error says if entries were lost. Later calls return the same.
func (s *Store) Close() error { return s.close() }

func (s *Store) shut() error {
	var errs []error
	if s.write != nil {
		errs = append(errs, s.write.stop())
	}
	if s.read != nil {
		errs = append(errs, s.read.Close())
	}
	if s.write != nil {
		errs = append(errs, s.write.release())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// secretSize is the length of a secret in bytes.
const secretSize = 32

// Secret returns the secret of that name: 32 random bytes, made on first use
// and the same ever after. A store that is open for reading only makes none.
func (s *Store) Secret(ctx context.Context, name string) ([]byte, error) {
	const query = `SELECT value FROM secrets WHERE name = ?`
	var value []byte
	err := s.read.QueryRowContext(ctx, query, name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		err = s.change(ctx, func(ctx context.Context, c *sql.Conn) error {
			if err := exec(ctx, c, `INSERT INTO secrets (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING`, name, randomBytes(secretSize)); err != nil {
				return err
			}
			return c.QueryRowContext(ctx, query, name).Scan(&value)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("state: secret %s: %w", name, err)
	}
	if len(value) != secretSize {
		return nil, fmt.Errorf("state: secret %s: it has %d bytes instead of %d", name, len(value), secretSize)
	}
	return value, nil
}

// change carries out f in the writer's next transaction and returns when that
// is on disk. ctx counts only until f waits for its turn: who leaves later
// would not know what stands on disk.
func (s *Store) change(ctx context.Context, f func(context.Context, *sql.Conn) error) error {
	if s.write == nil {
		return errReadOnly
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.write.do(op{apply: f})
}

func exec(ctx context.Context, c *sql.Conn, query string, args ...any) error {
	_, err := c.ExecContext(ctx, query, args...)
	return err
}

// changed is exec for a statement that changes one row or none.
func changed(ctx context.Context, c *sql.Conn, query string, args ...any) (bool, error) {
	res, err := c.ExecContext(ctx, query, args...)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails: crypto/rand
	return b
}

// newWriterID names one run of a process in the audit log.
func newWriterID() string { return hex.EncodeToString(randomBytes(8)) }
