package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strconv"
)

// applicationID marks a database as callgate's (PRAGMA application_id).
const applicationID = 0x63676174 // "cgat"

// migrations bring a database from version i to i+1 (PRAGMA user_version).
// One that was released is never changed.
//
// In approvals, body holds what never changes of an approval, as JSON; the
// columns hold the rest and what is searched. Times are nanoseconds since
// 1970. In audit, body is what the hash is over and the columns repeat parts
// of it for the queries. In repairs, anchors and body belong to those who keep
// them; size is the length of the body, and a body that is shorter is packed
// (zstd). It stands last, so that the other columns are read without it. An id
// is never given out twice: somebody may still name it.
var migrations = []string{`
CREATE TABLE approvals (
	id       TEXT NOT NULL PRIMARY KEY,
	state    TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'spent', 'denied', 'expired', 'withdrawn')),
	key      TEXT NOT NULL,
	created  INTEGER NOT NULL,
	expires  INTEGER NOT NULL,
	answered INTEGER,
	by       TEXT NOT NULL DEFAULT '',
	reason   TEXT NOT NULL DEFAULT '',
	body     BLOB NOT NULL
) STRICT;
CREATE INDEX approvals_key ON approvals (key, created);
CREATE INDEX approvals_state ON approvals (state, created);

CREATE TABLE audit (
	seq     INTEGER PRIMARY KEY,
	writer  TEXT NOT NULL,
	time    INTEGER NOT NULL,
	agent   TEXT NOT NULL,
	session TEXT NOT NULL,
	tool    TEXT NOT NULL,
	outcome TEXT NOT NULL,
	verdict TEXT NOT NULL,
	body    BLOB NOT NULL,
	hash    BLOB NOT NULL
) STRICT;
CREATE INDEX audit_time ON audit (time);
CREATE INDEX audit_session ON audit (session, time) WHERE session <> '';
CREATE TRIGGER audit_keeps_entries BEFORE UPDATE ON audit
	BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_loses_nothing BEFORE DELETE ON audit
	BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;

CREATE TABLE audit_head (
	id   INTEGER PRIMARY KEY CHECK (id = 1),
	seq  INTEGER NOT NULL,
	hash BLOB NOT NULL,
	mac  BLOB NOT NULL
) STRICT;

CREATE TABLE secrets (
	name  TEXT NOT NULL PRIMARY KEY,
	value BLOB NOT NULL
) STRICT;
`, `
CREATE TABLE repairs (
	id      INTEGER PRIMARY KEY AUTOINCREMENT,
	tenant  TEXT NOT NULL,
	created INTEGER NOT NULL,
	used    INTEGER NOT NULL,
	anchors BLOB NOT NULL,
	size    INTEGER NOT NULL,
	body    BLOB
) STRICT;
`}

// oldestRead is the oldest version that is read as it stands: what is shown of
// a state directory that nobody writes to has been there since.
const oldestRead = 1

// dataSource is the name by which the driver opens path, with pragmas for each
// connection.
func dataSource(path string, params url.Values, pragmas ...string) string {
	params["_pragma"] = append(pragmas, "busy_timeout(5000)", "foreign_keys(1)", "trusted_schema(0)", "cell_size_check(1)")
	return (&url.URL{Scheme: "file", Path: path, RawQuery: params.Encode()}).String()
}

// openDatabase opens the database for the writer's one connection.
func openDatabase(ctx context.Context, path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", dataSource(path, url.Values{},
		"journal_mode(wal)", "synchronous(full)", "journal_size_limit(67108864)"))
	if err != nil {
		return nil, explain(path, err)
	}
	db.SetMaxOpenConns(1)
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(explain(path, err), db.Close())
	}
	return db, nil
}

// access is how openReaders may touch the files.
type access uint8

const (
	// beside a writer of this process, which has checked the version.
	beside access = iota
	// alone in this process: another one may be writing.
	alone
	// still: nobody has the database open, and its file is all there is. SQLite
	// then makes no files beside it, which a directory that cannot be written
	// would not let it.
	still
)

// openReaders opens connections that cannot write.
func openReaders(ctx context.Context, path string, how access) (*sql.DB, error) {
	params := url.Values{}
	if how != beside {
		params.Set("mode", "ro")
	}
	if how == still {
		params.Set("immutable", "1")
	}
	db, err := sql.Open("sqlite", dataSource(path, params, "query_only(1)"))
	if err != nil {
		return nil, explain(path, err)
	}
	db.SetMaxOpenConns(readers)
	db.SetMaxIdleConns(readers)
	version, err := schemaVersion(ctx, db, path)
	if err == nil && how != beside && version < oldestRead {
		err = &Error{File: path, Reason: fmt.Sprintf("its schema has version %d and this callgate reads %d to %d", version, oldestRead, len(migrations)),
			Remedy: "start callgate serve once with this state directory, which brings it up to date"}
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// querier is what a connection and a pool of them have in common.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// schemaVersion tells the version of the schema and refuses a database that is
// not callgate's, or of a later callgate.
func schemaVersion(ctx context.Context, q querier, path string) (int, error) {
	var version, app, tables int
	for _, ask := range []struct {
		query string
		into  *int
	}{
		{`PRAGMA user_version`, &version},
		{`PRAGMA application_id`, &app},
		{`SELECT count(*) FROM sqlite_schema`, &tables},
	} {
		if err := q.QueryRowContext(ctx, ask.query).Scan(ask.into); err != nil {
			return 0, explain(path, err)
		}
	}
	switch {
	case app != applicationID && (app != 0 || version != 0 || tables != 0):
		return 0, &Error{File: path, Reason: "it is a database of another program", Remedy: "name another state directory"}
	case version > len(migrations):
		return 0, &Error{File: path, Reason: fmt.Sprintf("its schema has version %d and this callgate knows %d", version, len(migrations)),
			Remedy: "use the newer callgate that wrote it"}
	}
	return version, nil
}

// prepareDatabase checks the database and brings its schema up to date, each
// version in a transaction of its own.
func prepareDatabase(ctx context.Context, c *sql.Conn, path string) error {
	version, err := schemaVersion(ctx, c, path)
	if err != nil {
		return err
	}
	if version > 0 {
		if err := quickCheck(ctx, c, path); err != nil {
			return err
		}
	}
	for ; version < len(migrations); version++ {
		script := "BEGIN IMMEDIATE;" + migrations[version] +
			"PRAGMA application_id = " + strconv.Itoa(applicationID) + ";" +
			"PRAGMA user_version = " + strconv.Itoa(version+1) + "; COMMIT"
		if err := exec(ctx, c, script); err != nil {
			rollback(ctx, c)
			return explain(path, err)
		}
	}
	return nil
}

// quickCheck reads the whole database and looks for damage.
func quickCheck(ctx context.Context, c *sql.Conn, path string) error {
	var said string
	if err := c.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&said); err != nil {
		return explain(path, err)
	}
	if said != "ok" {
		return &Error{File: path, Reason: "it is damaged: " + said, Remedy: remedyRestore}
	}
	return nil
}

// rollback ends a transaction that failed. Its own error says only that SQLite
// has ended it already; were it still open, the next BEGIN would fail.
func rollback(ctx context.Context, c *sql.Conn) {
	_ = exec(ctx, c, "ROLLBACK")
}
