package store

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"callgate/gate"
)

const (
	insertEntry = `INSERT INTO audit (seq, writer, time, agent, session, tool, outcome, verdict, body, hash)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	setHead = `INSERT INTO audit_head (id, seq, hash, mac) VALUES (1, ?, ?, ?)
		ON CONFLICT DO UPDATE SET seq = excluded.seq, hash = excluded.hash, mac = excluded.mac`
)

// ErrNoEntry reports an audit entry that does not exist.
var ErrNoEntry = errors.New("there is no such entry")

// Head names the last entry of an audit log, and by it all entries before: its
// number, and its hash in hex. The zero value names none.
type Head struct {
	Seq  int64
	Hash string
}

// String gives the form that ParseHead reads: NUMBER:HASH.
func (h Head) String() string { return strconv.FormatInt(h.Seq, 10) + ":" + h.Hash }

// ParseHead reads what String wrote.
func ParseHead(s string) (Head, error) {
	num, hash, _ := strings.Cut(s, ":")
	seq, err := strconv.ParseUint(num, 10, 63)
	sum, hexErr := hex.DecodeString(hash)
	if err != nil || hexErr != nil || len(sum) != sha256.Size {
		return Head{}, fmt.Errorf("%q is no head of an audit log: NUMBER:HASH is wanted, as audit verify prints it", s)
	}
	return Head{Seq: int64(seq), Hash: hex.EncodeToString(sum)}, nil
}

// sum is the keyed hash of the chain.
func sum(key []byte, parts ...[]byte) []byte {
	m := hmac.New(sha256.New, key)
	for _, p := range parts {
		m.Write(p)
	}
	return m.Sum(nil)
}

// genesis is the head of a log without entries. Neither its text nor that of
// mac can be mistaken for an entry, which begins with a brace.
func genesis(key []byte) Head {
	return Head{Hash: hex.EncodeToString(sum(key, []byte("callgate audit log 1\n")))}
}

// mac is the keyed hash of the head record.
func (h Head) mac(key []byte) []byte {
	return sum(key, []byte("callgate audit head 1\n"+h.String()))
}

// openChain reads the key and the head record and checks the log's end, so
// that nothing is added to a log that was cut off. In a fresh directory it
// begins a log.
func openChain(ctx context.Context, c *sql.Conn, dir string, warn func(string)) ([]byte, Head, error) {
	path := filepath.Join(dir, dbName)
	key, err := readKey(dir)
	missing := errors.Is(err, os.ErrNotExist)
	if err != nil && !missing {
		return nil, Head{}, err
	}
	head, mac, err := readHead(ctx, c)
	begun := !errors.Is(err, sql.ErrNoRows)
	if err != nil && begun {
		return nil, Head{}, explain(path, err)
	}
	switch {
	case missing && !begun:
		return beginChain(ctx, c, dir)
	case missing:
		return nil, Head{}, &Error{File: filepath.Join(dir, keyName), Reason: "it is missing, and with it the key of the audit log", Remedy: remedyRestore}
	case !begun:
		return nil, Head{}, &Error{File: path, Reason: "its audit log has lost its head record", Remedy: remedyAudit}
	}
	if err := tighten(filepath.Join(dir, keyName), warn); err != nil {
		return nil, Head{}, err
	}
	if problem, err := checkEnd(ctx, c, key, head, mac); err != nil {
		return nil, Head{}, explain(path, err)
	} else if problem != "" {
		return nil, Head{}, &Error{File: path, Reason: "its audit log was changed: " + problem, Remedy: remedyAudit}
	}
	return key, head, nil
}

const remedyAudit = "look at it with callgate audit verify, then restore it from a backup or move the state directory away to begin anew"

func beginChain(ctx context.Context, c *sql.Conn, dir string) ([]byte, Head, error) {
	key, err := makeKey(dir)
	if err != nil {
		return nil, Head{}, err
	}
	head := genesis(key)
	if err := exec(ctx, c, setHead, head.args(key)...); err != nil {
		return nil, Head{}, explain(filepath.Join(dir, dbName), err)
	}
	return key, head, nil
}

// args are the values that setHead wants.
func (h Head) args(key []byte) []any {
	hash, _ := hex.DecodeString(h.Hash) // of our own making
	return []any{h.Seq, hash, h.mac(key)}
}

func (w *writer) setHead(ctx context.Context, h Head) error {
	_, err := w.set.ExecContext(ctx, h.args(w.key)...)
	return err
}

// readHead reads the head record; sql.ErrNoRows when there is none.
func readHead(ctx context.Context, q querier) (Head, []byte, error) {
	var h Head
	var hash, mac []byte
	err := q.QueryRowContext(ctx, `SELECT seq, hash, mac FROM audit_head WHERE id = 1`).Scan(&h.Seq, &hash, &mac)
	h.Hash = hex.EncodeToString(hash)
	return h, mac, err
}

// checkEnd compares the last entry with the head record and says what is
// wrong, "" when nothing is.
func checkEnd(ctx context.Context, c *sql.Conn, key []byte, head Head, mac []byte) (string, error) {
	if !hmac.Equal(mac, head.mac(key)) {
		return "the head record has a wrong hash, or " + keyName + " is of another log", nil
	}
	var seq int64
	var body, hash []byte
	err := c.QueryRowContext(ctx, `SELECT seq, body, hash FROM audit ORDER BY seq DESC LIMIT 1`).Scan(&seq, &body, &hash)
	if errors.Is(err, sql.ErrNoRows) {
		if head == genesis(key) {
			return "", nil
		}
		return fmt.Sprintf("it has no entries, and the head record names entry %d", head.Seq), nil
	}
	switch {
	case err != nil:
		return "", err
	case seq != head.Seq:
		return fmt.Sprintf("it ends with entry %d, and the head record names entry %d", seq, head.Seq), nil
	case !hmac.Equal(hash, sum(key, body)) || hex.EncodeToString(hash) != head.Hash:
		return fmt.Sprintf("entry %d has a wrong hash", seq), nil
	}
	return "", nil
}

// append writes e behind head and gives the new head.
func (w *writer) append(ctx context.Context, e gate.Entry, head Head) (Head, error) {
	e.Seq, e.Writer, e.Prev, e.Hash = head.Seq+1, w.id, head.Hash, ""
	body, err := json.Marshal(e)
	if err != nil {
		return Head{}, fmt.Errorf("audit entry %d: %w", e.Seq, err)
	}
	hash := sum(w.key, body)
	_, err = w.insert.ExecContext(ctx, append(columns(e), body, hash)...)
	return Head{Seq: e.Seq, Hash: hex.EncodeToString(hash)}, err
}

// columns are the values of an entry that stand beside its body.
func columns(e gate.Entry) []any {
	return []any{e.Seq, e.Writer, nanos(e.Time), e.Agent, e.Claimed.Session, e.Tool, string(e.Outcome), e.Verdict}
}

// The years whose nanoseconds since 1970 an int64 holds.
const firstYear, lastYear = 1678, 2261

// nanos is t as nanoseconds since 1970; times out of range, the zero time
// among them, become the least or greatest one.
func nanos(t time.Time) int64 {
	switch y := t.UTC().Year(); {
	case y < firstYear:
		return time.Date(firstYear, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	case y > lastYear:
		return time.Date(lastYear, 12, 31, 0, 0, 0, 0, time.UTC).UnixNano()
	}
	return t.UnixNano()
}

// Record keeps an entry; Seq, Writer, Prev and Hash are the store's to set.
// Entries are kept in the order of the calls. A durable one is on disk when
// Record returns; another is batched for half a second at most, or written at
// once while the batch is full. After a failed write Record returns its error
// for each batched entry until a write succeeds again; what was batched before
// is written then. It does not heed ctx: a client that leaves must not tear
// holes into the log.
func (s *Store) Record(_ context.Context, e gate.Entry, durable bool) error {
	if s.write == nil {
		return errReadOnly
	}
	if y := e.Time.UTC().Year(); y < firstYear || y > lastYear {
		return fmt.Errorf("audit: the entry's time %v is out of range", e.Time)
	}
	e.Time = e.Time.UTC().Round(0)
	e.Findings = slices.Clone(e.Findings)
	// JSON cannot hold other bytes, and the columns must say what it says.
	for _, p := range []*string{&e.Agent, &e.Claimed.Session, &e.Tool, (*string)(&e.Outcome), &e.Verdict} {
		*p = strings.ToValidUTF8(*p, "\ufffd")
	}
	size := len(e.Args) + len(e.Reason) + len(e.Detail) + 1024
	if !durable {
		if queued, err := s.write.batch(&e, size); queued || err != nil {
			return auditError(err)
		}
	}
	return auditError(s.write.do(op{entry: &e, size: size}))
}

func auditError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("audit: the entry cannot be kept: %w", err)
}

// Query says which audit entries are wanted. The zero value wants all; each
// field that is set narrows it, and texts must be equal.
type Query struct {
	Since, Until time.Time // Since ≤ time < Until
	// Session is the claimed one.
	Session, Agent, Tool, Outcome, Verdict string
	// After wants entries with a greater number only.
	After int64
	// Limit is how many are wanted at most, 0 for all.
	Limit int
}

// where gives the condition and its values.
func (q Query) where() (string, []any) {
	conds, args := []string{"1"}, []any(nil)
	add := func(cond string, arg any) {
		conds, args = append(conds, cond), append(args, arg)
	}
	if !q.Since.IsZero() {
		add("time >= ?", nanos(q.Since))
	}
	if !q.Until.IsZero() {
		add("time < ?", nanos(q.Until))
	}
	if q.After > 0 {
		add("seq > ?", q.After)
	}
	for _, f := range []struct{ column, value string }{
		{"session", q.Session}, {"agent", q.Agent}, {"tool", q.Tool}, {"outcome", q.Outcome}, {"verdict", q.Verdict},
	} {
		if f.value != "" {
			add(f.column+" = ?", f.value)
		}
	}
	return strings.Join(conds, " AND "), args
}

// Entries gives the entries that q wants, newest first, as they stand on disk:
// not what is still batched, and without a check of the chain (see Verify).
// An error is the last thing it gives.
func (s *Store) Entries(ctx context.Context, q Query) iter.Seq2[gate.Entry, error] {
	return func(yield func(gate.Entry, error) bool) {
		where, args := q.where()
		query := `SELECT seq, body, hash FROM audit WHERE ` + where + ` ORDER BY seq DESC`
		if q.Limit > 0 {
			query, args = query+` LIMIT ?`, append(args, q.Limit)
		}
		rows, err := s.read.QueryContext(ctx, query, args...)
		if err != nil {
			yield(gate.Entry{}, s.readError(err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			e, err := scanEntry(rows)
			if err != nil {
				err = s.readError(err)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
		if err := s.readError(rows.Err()); err != nil {
			yield(gate.Entry{}, err)
		}
	}
}

// Entry gives the entry with that number; ErrNoEntry when there is none.
func (s *Store) Entry(ctx context.Context, seq int64) (gate.Entry, error) {
	row := s.read.QueryRowContext(ctx, `SELECT seq, body, hash FROM audit WHERE seq = ?`, seq)
	e, err := scanEntry(row)
	if errors.Is(err, sql.ErrNoRows) {
		if err = s.readError(nil); err == nil {
			err = fmt.Errorf("audit: entry %d: %w", seq, ErrNoEntry)
		}
		return gate.Entry{}, err
	}
	return e, s.readError(err)
}

// scanner is what a row and the rows of a query have in common.
type scanner interface{ Scan(dest ...any) error }

func scanEntry(row scanner) (gate.Entry, error) {
	var seq int64
	var body, hash []byte
	if err := row.Scan(&seq, &body, &hash); err != nil {
		return gate.Entry{}, err
	}
	var e gate.Entry
	if err := json.Unmarshal(body, &e); err != nil {
		return gate.Entry{}, fmt.Errorf("entry %d: %w", seq, err)
	}
	e.Hash = hex.EncodeToString(hash)
	return e, nil
}
