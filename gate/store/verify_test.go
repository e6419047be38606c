package store

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// log makes a directory with a log of twelve entries by three writers, four
// each, and gives its heads by number.
func log(t *testing.T) (dir string, heads map[int64]Head) {
	t.Helper()
	dir = t.TempDir()
	heads = map[int64]Head{}
	for run := range 3 {
		s := open(t, dir)
		record(t, s, 4*run+1, 4*run+4)
		for _, e := range all(t, s, Query{}) {
			heads[e.Seq] = Head{e.Seq, e.Hash}
		}
		closed(t, s)
	}
	return dir, heads
}

func verifyDir(t *testing.T, dir string, expect Head) VerifyResult {
	t.Helper()
	s, err := OpenReadOnly(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return verify(t, s, expect)
}

func TestAWholeLogVerifies(t *testing.T) {
	dir, heads := log(t)
	want := VerifyResult{Entries: 12, Writers: 3, Head: heads[12]}
	if got := verifyDir(t, dir, Head{}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for seq, h := range heads { // each head that ever was stays good
		if got := verifyDir(t, dir, h); got != want {
			t.Errorf("with head %d: got %+v", seq, got)
		}
	}
}

func TestAnEmptyLogVerifies(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	got := verify(t, s, Head{})
	if got.Bad != 0 || got.Entries != 0 || got.Head.Seq != 0 {
		t.Fatalf("got %+v", got)
	}
	start := got.Head
	if got := verify(t, s, start); got.Bad != 0 {
		t.Errorf("the head of the empty log is not found again: %+v", got)
	}
	record(t, s, 1, 3)
	if got := verify(t, s, start); got.Bad != 0 {
		t.Errorf("the head of the empty log is no longer good: %+v", got)
	}
	if got := verify(t, open(t, t.TempDir()), start); got.Bad != 1 {
		t.Errorf("it is found in another log: %+v", got)
	}
}

func TestHostileNamesVerify(t *testing.T) {
	s := open(t, t.TempDir())
	names := []string{"a\x00b", "\xff\xfe", "a\xffb", "\u2028<&>", "'; DROP TABLE audit; --", strings.Repeat("x", 1<<16), ""}
	for _, name := range names {
		e := entry(1)
		e.Tool, e.Claimed.Session, e.Agent, e.Reason, e.Model = name, name, name, name, name
		if err := s.Record(t.Context(), e, true); err != nil {
			t.Fatal(err)
		}
	}
	if v := verify(t, s, Head{}); v.Bad != 0 || v.Entries != len(names) {
		t.Errorf("verify: %+v", v)
	}
	if got := all(t, s, Query{Tool: "a\x00b", Session: "a\x00b", Agent: "a\x00b"}); len(got) != 1 || got[0].Tool != "a\x00b" {
		t.Errorf("got %d entries", len(got))
	}
}

// shift moves entries from a number on by some places. Going through negative
// numbers keeps the numbers unique on the way.
func shift(from, by int) string {
	return fmt.Sprintf(`UPDATE audit SET seq = -(seq + %d) WHERE seq >= %d; UPDATE audit SET seq = -seq WHERE seq < 0`, by, from)
}

func TestVerifyFindsEachKindOfTampering(t *testing.T) {
	for _, tt := range []struct {
		name    string
		tamper  string
		bad     int64
		problem string
	}{
		{"an entry's text was changed", `UPDATE audit SET body = CAST(replace(body, 'tool-6', 'tool-x') AS BLOB) WHERE seq = 6`, 6, "changed"},
		{"an entry's verdict was turned", `UPDATE audit SET body = CAST(replace(body, '"verdict":"allow"', '"verdict":"deny"') AS BLOB), verdict = 'deny' WHERE seq = 1`, 1, "changed"},
		{"an entry's hash was changed", `UPDATE audit SET hash = zeroblob(32) WHERE seq = 6`, 6, "changed"},
		{"an entry got the hash of another", `UPDATE audit SET hash = (SELECT hash FROM audit WHERE seq = 5) WHERE seq = 6`, 6, "changed"},
		{"an entry was emptied", `UPDATE audit SET body = x'' WHERE seq = 6`, 6, "changed"},
		{"the first entry was removed", `DELETE FROM audit WHERE seq = 1`, 1, "entries 1 to 1 are missing"},
		{"an entry in the middle was removed", `DELETE FROM audit WHERE seq = 6`, 6, "entries 6 to 6 are missing"},
		{"an entry was removed and the gap closed", `DELETE FROM audit WHERE seq = 6; ` + shift(7, -1), 6, "moved"},
		{"the second writer's chain was removed", `DELETE FROM audit WHERE seq BETWEEN 5 AND 8`, 5, "entries 5 to 8 are missing"},
		{"the second writer's chain was removed and the gap closed", `DELETE FROM audit WHERE seq BETWEEN 5 AND 8; ` + shift(9, -4), 5, "moved"},
		{"the first writer's chain was removed and the gap closed", `DELETE FROM audit WHERE seq < 5; ` + shift(5, -4), 1, "moved"},
		{"two entries changed places", `UPDATE audit SET seq = 99 WHERE seq = 6; UPDATE audit SET seq = 6 WHERE seq = 7; UPDATE audit SET seq = 7 WHERE seq = 99`, 6, "moved"},
		{"an entry was repeated in the middle", shift(7, 1) + `; INSERT INTO audit SELECT 7, writer, time, agent, session, tool, outcome, verdict, body, hash FROM audit WHERE seq = 6`, 7, "moved"},
		{"an entry was put before the first", `INSERT INTO audit SELECT 0, writer, time, agent, session, tool, outcome, verdict, body, hash FROM audit WHERE seq = 1`, 1, "number 0"},
		{"an entry was put behind the last", `INSERT INTO audit SELECT 13, writer, time, agent, session, tool, outcome, verdict, body, hash FROM audit WHERE seq = 12`, 13, "moved"},
		{"the last entry was removed", `DELETE FROM audit WHERE seq = 12`, 12, "entries 12 to 12 are missing at the end"},
		{"the last writer's chain was removed", `DELETE FROM audit WHERE seq > 8`, 9, "entries 9 to 12 are missing at the end"},
		{"all entries were removed", `DELETE FROM audit`, 1, "entries 1 to 12 are missing at the end"},
		{"the end was removed and the head record set back", `DELETE FROM audit WHERE seq > 8; UPDATE audit_head SET seq = 8, hash = (SELECT hash FROM audit WHERE seq = 8)`, 9, "head record was changed"},
		{"the end and the head record were removed", `DELETE FROM audit WHERE seq > 8; DELETE FROM audit_head`, 9, "head record is missing"},
		{"an entry hides from queries by its tool", `UPDATE audit SET tool = 'other' WHERE seq = 6`, 6, "indexed wrongly"},
		{"an entry hides from queries by its time", `UPDATE audit SET time = 0 WHERE seq = 6`, 6, "indexed wrongly"},
		{"an entry hides from queries by its verdict", `UPDATE audit SET verdict = 'deny' WHERE seq = 6`, 6, "indexed wrongly"},
		{"an entry was given to another writer", `UPDATE audit SET writer = (SELECT writer FROM audit WHERE seq = 1) WHERE seq = 6`, 6, "indexed wrongly"},
		{"the table was made anew with other types", `CREATE TABLE x AS SELECT * FROM audit; DROP TABLE audit; ALTER TABLE x RENAME TO audit; UPDATE audit SET seq = 'six' WHERE seq = 6`, 6, "missing"},
		{"a hash was removed from a table made anew", `CREATE TABLE x AS SELECT * FROM audit; DROP TABLE audit; ALTER TABLE x RENAME TO audit; UPDATE audit SET hash = NULL WHERE seq = 6`, 6, "changed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, heads := log(t)
			raw(t, dir, dropTriggers, tt.tamper)
			got := verifyDir(t, dir, Head{})
			if got.Bad != tt.bad || !strings.Contains(got.Problem, tt.problem) {
				t.Errorf("got entry %d: %q, want entry %d: %q", got.Bad, got.Problem, tt.bad, tt.problem)
			}
			if got.Head.Seq != tt.bad-1 || got.Head.Seq > 0 && got.Head != heads[got.Head.Seq] {
				t.Errorf("the last good entry is %v", got.Head)
			}
		})
	}
}

func TestAnEntryWrittenWithAnotherKeyIsFound(t *testing.T) {
	dir, heads := log(t)
	body := fmt.Sprintf(`{"seq":13,"writer":"w","prev":"%s","hash":""}`, heads[12].Hash)
	hash := hex.EncodeToString(sum([]byte("a guess"), []byte(body)))
	raw(t, dir, fmt.Sprintf(`INSERT INTO audit VALUES (13, 'w', 0, '', '', '', '', '', CAST('%s' AS BLOB), x'%s')`, body, hash))
	if got := verifyDir(t, dir, Head{}); got.Bad != 13 || !strings.Contains(got.Problem, "hash") {
		t.Errorf("got %+v", got)
	}
}

// An entry that was truly written, but is not the one that was: another run of
// the log from the same point, with the same key.
func TestAnExchangedButProperlyHashedEntryIsFound(t *testing.T) {
	dir, _ := log(t)
	copyDir := t.TempDir()
	for _, name := range []string{dbName, keyName} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copyDir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{dir, copyDir} {
		s := open(t, d)
		record(t, s, 13, 15)
		closed(t, s)
	}
	raw(t, dir, dropTriggers, fmt.Sprintf(`ATTACH '%s' AS other; DELETE FROM main.audit WHERE seq = 14;
		INSERT INTO main.audit SELECT * FROM other.audit WHERE seq = 14`, filepath.Join(copyDir, dbName)))
	if got := verifyDir(t, dir, Head{}); got.Bad != 14 || !strings.Contains(got.Problem, "does not follow") {
		t.Errorf("got %+v", got)
	}
}

func TestAnEarlierCopyIsFoundAgainstAHeadKeptElsewhere(t *testing.T) {
	dir, _ := log(t)
	path := filepath.Join(dir, dbName)
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	record(t, s, 13, 14)
	head := verify(t, s, Head{}).Head
	closed(t, s)
	if err := os.WriteFile(path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := verifyDir(t, dir, Head{}); got.Bad != 0 {
		t.Errorf("an earlier copy is whole in itself: %+v", got)
	}
	got := verifyDir(t, dir, head)
	if got.Bad != 13 || !strings.Contains(got.Problem, "entries 13 to 14 are missing at the end") {
		t.Errorf("got %+v", got)
	}
	// The log goes on from the earlier copy: same numbers, other entries.
	s = open(t, dir)
	record(t, s, 23, 29)
	got = verify(t, s, head)
	if got.Bad != 14 || !strings.Contains(got.Problem, "not the expected one") {
		t.Errorf("got %+v", got)
	}
}

func TestVerifyNeedsTheKey(t *testing.T) {
	dir, _ := log(t)
	if err := os.Remove(filepath.Join(dir, keyName)); err != nil {
		t.Fatal(err)
	}
	s, err := OpenReadOnly(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Verify(t.Context(), Head{})
	wantError(t, err, keyName, "missing")
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestTamperingWhileTheStoreIsOpenIsFound(t *testing.T) {
	for _, tt := range []struct {
		name, tamper string
		refused      bool // the next entry is
		bad          int64
	}{
		{"the last entry is removed", `DELETE FROM audit WHERE seq = 2`, false, 2},
		{"the log is emptied, with its head record", `DELETE FROM audit; DELETE FROM audit_head`, false, 1},
		{"an entry is forged behind the last", `INSERT INTO audit SELECT 3, writer, time, agent, session, tool, outcome, verdict, body, hash FROM audit WHERE seq = 2`, true, 3},
		{"the table is gone", `DROP TABLE audit`, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			record(t, s, 1, 2)
			raw(t, dir, dropTriggers, tt.tamper)
			err := s.Record(t.Context(), entry(3), true)
			if (err != nil) != tt.refused {
				t.Errorf("the next entry: %v", err)
			}
			if tt.bad == 0 {
				if _, err := s.Verify(t.Context(), Head{}); err == nil {
					t.Error("verify reads a log that is gone")
				}
				return
			}
			if got := verify(t, s, Head{}); got.Bad != tt.bad {
				t.Errorf("verify: %+v", got)
			}
			if tt.refused {
				wantError(t, err, "another program wrote to it", "audit verify")
			}
		})
	}
}

func TestTheTablesThemselvesRefuseChanges(t *testing.T) {
	s := open(t, t.TempDir())
	record(t, s, 1, 2)
	for _, q := range []string{`DELETE FROM audit`, `UPDATE audit SET tool = 'x'`} {
		if err := exec(t.Context(), s.write.conn, q); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: got %v", q, err)
		}
	}
	if _, err := s.read.ExecContext(t.Context(), `DELETE FROM approvals`); err == nil {
		t.Error("a reading connection writes")
	}
}

// FuzzTampering changes one byte of one entry as stored; whatever it is,
// verify names that entry.
func FuzzTampering(f *testing.F) {
	f.Add(uint8(0), uint16(0), uint8(1))
	f.Add(uint8(5), uint16(100), uint8(0x80))
	f.Fuzz(func(t *testing.T, which uint8, at uint16, flip uint8) {
		if flip == 0 {
			return
		}
		dir := t.TempDir()
		s := open(t, dir)
		record(t, s, 1, 6)
		closed(t, s)
		seq := int64(which%6) + 1
		r, err := OpenReadOnly(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		var body []byte
		if err := r.read.QueryRowContext(t.Context(), `SELECT body FROM audit WHERE seq = ?`, seq).Scan(&body); err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		body[int(at)%len(body)] ^= flip
		raw(t, dir, dropTriggers, fmt.Sprintf(`UPDATE audit SET body = x'%x' WHERE seq = %d`, body, seq))
		if got := verifyDir(t, dir, Head{}); got.Bad != seq {
			t.Errorf("entry %d was changed, and verify says %+v", seq, got)
		}
	})
}
