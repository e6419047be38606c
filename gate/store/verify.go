package store

import (
	"bytes"
	"context"
	"crypto/hmac"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"callgate/gate"
)

// VerifyResult is what Verify found.
type VerifyResult struct {
	// Entries were read and Writers had written them, up to the first bad one.
	Entries, Writers int
	// Head is the last good entry.
	Head Head
	// Bad is the number of the first entry that is wrong or missing, 0 when
	// the log is whole; Problem then says what is wrong with it.
	Bad     int64
	Problem string
}

// Verify reads the audit log on disk and checks its chain up to the head
// record; the package comment says what it finds. When expect is not zero the
// log must also hold the entry that it names. An error means that the log
// could not be read, not that it is wrong.
func (s *Store) Verify(ctx context.Context, expect Head) (VerifyResult, error) {
	key, err := readKey(s.dir)
	if errors.Is(err, os.ErrNotExist) {
		err = &Error{File: filepath.Join(s.dir, keyName), Reason: "it is missing, and nothing can be checked without it", Remedy: "restore it from a backup", Err: err}
	}
	if err != nil {
		return VerifyResult{}, explainRead(err)
	}
	// One snapshot: the head record and the entries belong together.
	tx, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return VerifyResult{}, s.readError(err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was changed
	v := &verifier{key: key, expect: expect, writers: map[string]bool{}, head: genesis(key)}
	err = v.entries(ctx, tx)
	if err == nil {
		err = v.end(ctx, tx)
	}
	if err := s.readError(err); err != nil {
		return VerifyResult{}, err
	}
	return VerifyResult{Entries: v.count, Writers: len(v.writers), Head: v.head, Bad: v.bad, Problem: v.problem}, nil
}

// verifier walks the chain; head is the last good entry.
type verifier struct {
	key     []byte
	expect  Head
	head    Head
	count   int
	writers map[string]bool
	bad     int64
	problem string
}

func (v *verifier) fail(seq int64, format string, args ...any) bool {
	v.bad, v.problem = seq, fmt.Sprintf(format, args...)
	return false
}

func (v *verifier) entries(ctx context.Context, tx *sql.Tx) error {
	if v.expect != (Head{}) && v.expect.Seq == 0 && v.expect.Hash != v.head.Hash {
		v.fail(1, "the log was begun with another key than the expected head's")
		return nil
	}
	rows, err := tx.QueryContext(ctx, `SELECT seq, writer, time, agent, session, tool, outcome, verdict, body, hash FROM audit ORDER BY seq`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.columns[0], &r.columns[1], &r.columns[2], &r.columns[3], &r.columns[4],
			&r.columns[5], &r.columns[6], &r.columns[7], &r.body, &r.hash); err != nil {
			v.fail(v.head.Seq+1, "the entry cannot be read: %v", err)
			return nil
		}
		if !v.entry(r) {
			return nil
		}
	}
	return rows.Err()
}

// row is an entry as the table holds it. The columns are of any type: who
// changes a table can change the types too.
type row struct {
	columns    [8]any
	body, hash []byte
}

// entry checks the next entry and reports false when it is bad.
func (v *verifier) entry(r row) bool {
	want := v.head.Seq + 1
	seq, ok := r.columns[0].(int64)
	switch {
	case !ok || seq < want:
		return v.fail(want, "an entry has the number %v where %d must follow", r.columns[0], want)
	case seq > want:
		return v.fail(want, "entries %d to %d are missing", want, seq-1)
	case !hmac.Equal(r.hash, sum(v.key, r.body)):
		return v.fail(seq, "the entry was changed: its hash is wrong")
	}
	var e gate.Entry
	if err := json.Unmarshal(r.body, &e); err != nil {
		return v.fail(seq, "the entry cannot be read: %v", err)
	}
	switch {
	case e.Seq != seq:
		return v.fail(seq, "the entry was moved: it was written as entry %d", e.Seq)
	case e.Prev != v.head.Hash:
		return v.fail(seq, "the entry does not follow entry %d: one of them was put in or exchanged", v.head.Seq)
	}
	for i, c := range columns(e) {
		if !sameValue(r.columns[i], c) {
			return v.fail(seq, "the entry is indexed wrongly: a column says %v where the entry says %v", r.columns[i], c)
		}
	}
	hash := hex.EncodeToString(r.hash)
	if v.expect.Seq == seq && v.expect.Hash != hash {
		return v.fail(seq, "the entry is not the expected one: its hash is %s", hash)
	}
	v.head = Head{Seq: seq, Hash: hash}
	v.count++
	v.writers[e.Writer] = true
	return true
}

// sameValue compares a value of a column with what the entry says.
func sameValue(got, want any) bool {
	if b, ok := got.([]byte); ok {
		s, isText := want.(string)
		return isText && bytes.Equal(b, []byte(s))
	}
	return got == want
}

// end compares where the entries end with the head record and the expectation.
func (v *verifier) end(ctx context.Context, tx *sql.Tx) error {
	if v.bad != 0 {
		return nil
	}
	head, mac, err := readHead(ctx, tx)
	next := v.head.Seq + 1
	switch {
	case errors.Is(err, sql.ErrNoRows):
		v.fail(next, "the head record is missing, so entries may be missing at the end")
	case err != nil:
		return err
	case !hmac.Equal(mac, head.mac(v.key)):
		v.fail(next, "the head record was changed, so entries may be missing at the end")
	case head.Seq > v.head.Seq:
		v.fail(next, "entries %d to %d are missing at the end", next, head.Seq)
	case head != v.head:
		v.fail(head.Seq+1, "the head record names entry %d, and the log goes on behind it", head.Seq)
	case v.expect.Seq > v.head.Seq:
		v.fail(next, "entries %d to %d are missing at the end: the expected head names the last of them", next, v.expect.Seq)
	}
	return nil
}
