package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"modernc.org/sqlite"
)

// repairBatch is how many records one transaction drops: what others write
// meanwhile waits for it.
const repairBatch = 256

// Repairs calls each for every record of what later requests must be mended
// with: its id, whose it is, what it is found by, when it was last of use, and
// whether its body is still there. An error of each ends it and is returned.
func (s *Store) Repairs(ctx context.Context, each func(id int64, tenant string, anchors []byte, used time.Time, body bool) error) error {
	rows, err := s.read.QueryContext(ctx, `SELECT id, tenant, used, anchors, body IS NOT NULL FROM repairs ORDER BY id`)
	if err != nil {
		return s.repairError(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, used int64
		var tenant string
		var anchors []byte
		var body bool
		if err := rows.Scan(&id, &tenant, &used, &anchors, &body); err != nil {
			return s.repairError(err)
		}
		if err := each(id, tenant, anchors, time.Unix(0, used), body); err != nil {
			return err
		}
	}
	return s.repairError(rows.Err())
}

// KeepRepair keeps a record that was last of use at that time and returns its
// id, which no other record ever had. Where replace is the id of a record of
// that tenant, the new one takes its place and its id. With a nil body it is
// kept as one whose body was dropped.
func (s *Store) KeepRepair(ctx context.Context, replace int64, tenant string, anchors, body []byte, used time.Time) (int64, error) {
	var stored any // NULL
	if body != nil {
		packed, err := s.pack.pack(body)
		if err != nil {
			return 0, s.repairError(err)
		}
		stored = blob(packed)
	}
	id := replace
	err := s.change(ctx, func(ctx context.Context, c *sql.Conn) error {
		if replace != 0 {
			there, err := changed(ctx, c, `UPDATE repairs SET used = ?, anchors = ?, size = ?, body = ? WHERE id = ? AND tenant = ?`,
				nanos(used), blob(anchors), len(body), stored, replace, tenant)
			if err != nil || there {
				return err
			}
		}
		res, err := c.ExecContext(ctx, `INSERT INTO repairs (tenant, created, used, anchors, size, body) VALUES (?, ?, ?, ?, ?, ?)`,
			tenant, nanos(used), nanos(used), blob(anchors), len(body), stored)
		if err != nil {
			return err
		}
		id, err = res.LastInsertId()
		return err
	})
	if err != nil {
		return 0, s.repairError(err)
	}
	return id, nil
}

// blob keeps SQLite from taking no bytes for NULL.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// RepairBody returns the body of a record, nil when the record or its body was
// dropped.
func (s *Store) RepairBody(ctx context.Context, id int64) ([]byte, error) {
	var size int
	var stored []byte
	err := s.read.QueryRowContext(ctx, `SELECT size, body FROM repairs WHERE id = ? AND body IS NOT NULL`, id).Scan(&size, &stored)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, s.repairError(err)
	}
	body, err := s.pack.unpack(stored, size)
	if err != nil {
		return nil, s.repairError(&Error{
			File:   filepath.Join(s.dir, dbName),
			Reason: "the body of record " + strconv.FormatInt(id, 10) + " in its table repairs is damaged: " + err.Error(),
			Remedy: "begin the conversation that it belongs to anew, or restore the state directory from a backup", Err: err,
		})
	}
	return blob(body), nil
}

// UseRepairs notes that these records were of use at that time.
func (s *Store) UseRepairs(ctx context.Context, ids []int64, at time.Time) error {
	return s.eachBatch(ctx, ids, `UPDATE repairs SET used = max(used, ?2) WHERE id IN (SELECT value FROM json_each(?1))`, nanos(at))
}

// DropRepairs drops the bodies of some records and others altogether.
func (s *Store) DropRepairs(ctx context.Context, bodies, records []int64) error {
	if err := s.eachBatch(ctx, bodies, `UPDATE repairs SET body = NULL WHERE id IN (SELECT value FROM json_each(?1))`); err != nil {
		return err
	}
	return s.eachBatch(ctx, records, `DELETE FROM repairs WHERE id IN (SELECT value FROM json_each(?1))`)
}

// eachBatch carries out query for all ids, its first argument, some in each
// transaction.
func (s *Store) eachBatch(ctx context.Context, ids []int64, query string, args ...any) error {
	for some := range slices.Chunk(ids, repairBatch) {
		list, err := json.Marshal(some)
		if err != nil {
			return s.repairError(err)
		}
		err = s.change(ctx, func(ctx context.Context, c *sql.Conn) error {
			return exec(ctx, c, query, append([]any{string(list)}, args...)...)
		})
		if err != nil {
			return s.repairError(err)
		}
	}
	return nil
}

func (s *Store) repairError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*sqlite.Error](err); ok {
		err = explain(filepath.Join(s.dir, dbName), err)
	}
	return fmt.Errorf("repairs: %w", err)
}
