package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// repair is a record as it stands.
type repair struct {
	id              int64
	tenant, anchors string
	used            time.Time
	there           bool
	body            string
}

// repairsOf gives all records with their bodies.
func repairsOf(t testing.TB, s *Store) []repair {
	t.Helper()
	var list []repair
	err := s.Repairs(t.Context(), func(id int64, tenant string, anchors []byte, used time.Time, body bool) error {
		list = append(list, repair{id: id, tenant: tenant, anchors: string(anchors), used: used.UTC(), there: body})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		body, err := s.RepairBody(t.Context(), list[i].id)
		if err != nil {
			t.Fatal(err)
		}
		if (body != nil) != list[i].there {
			t.Errorf("record %d: body there %v, read %q", list[i].id, list[i].there, body)
		}
		list[i].body = string(body)
	}
	return list
}

func keep(t testing.TB, s *Store, replace int64, tenant, anchors, body string, used time.Time) int64 {
	t.Helper()
	id, err := s.KeepRepair(t.Context(), replace, tenant, []byte(anchors), []byte(body), used)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func wantRepairs(t testing.TB, s *Store, want ...repair) {
	t.Helper()
	if d := cmp.Diff(want, repairsOf(t, s), cmp.AllowUnexported(repair{})); d != "" {
		t.Error(d)
	}
}

// noise is text that cannot be packed.
func noise(n int) string {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(b) // never fails
	return string(b)
}

func TestARepairComesBackAsItWasKept(t *testing.T) {
	long := strings.Repeat("the words of an answer; ", 10000)
	for name, body := range map[string]string{
		"short": "x", "empty": "", "long": long, "no text": noise(10000), "zeros": strings.Repeat("\x00", 5000),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			at := now()
			id := keep(t, s, 0, "tenant", "anchors\x00\xff", body, at)
			want := repair{id: id, tenant: "tenant", anchors: "anchors\x00\xff", used: at, there: true, body: body}
			wantRepairs(t, s, want)
			closed(t, s)
			wantRepairs(t, open(t, dir), want)
		})
	}
}

func TestARepairIsStoredPackedWhereThatIsSmaller(t *testing.T) {
	s := open(t, t.TempDir())
	for _, tt := range []struct {
		body   string
		packed bool
	}{{strings.Repeat("the words of an answer; ", 1000), true}, {noise(20000), false}, {"x", false}} {
		id := keep(t, s, 0, "t", "", tt.body, now())
		var size int
		if err := s.read.QueryRowContext(t.Context(), `SELECT length(body) FROM repairs WHERE id = ?`, id).Scan(&size); err != nil {
			t.Fatal(err)
		}
		if size > len(tt.body) || (size < len(tt.body)/2) != tt.packed {
			t.Errorf("%d bytes are stored as %d", len(tt.body), size)
		}
	}
}

func TestARepairTakesThePlaceOfAnEarlierOneOfItsTenant(t *testing.T) {
	s := open(t, t.TempDir())
	at := now()
	a := keep(t, s, 0, "a", "1", "one", at)
	b := keep(t, s, 0, "b", "2", "two", at)
	if again := keep(t, s, a, "a", "3", "three", at.Add(time.Second)); again != a {
		t.Errorf("the id %d became %d", a, again)
	}
	other := keep(t, s, b, "a", "4", "four", at)
	gone := keep(t, s, 99, "a", "5", "five", at)
	if other == b || gone == 99 {
		t.Errorf("ids %d and %d were given to another's record", other, gone)
	}
	wantRepairs(t, s,
		repair{a, "a", "3", at.Add(time.Second), true, "three"},
		repair{b, "b", "2", at, true, "two"},
		repair{other, "a", "4", at, true, "four"},
		repair{gone, "a", "5", at, true, "five"})
}

func TestUseOfARepairNeverMovesBack(t *testing.T) {
	s := open(t, t.TempDir())
	at := now()
	a := keep(t, s, 0, "t", "", "one", at)
	b := keep(t, s, 0, "t", "", "two", at)
	for _, when := range []time.Time{at.Add(time.Hour), at} {
		if err := s.UseRepairs(t.Context(), []int64{b, 99}, when); err != nil {
			t.Fatal(err)
		}
	}
	wantRepairs(t, s, repair{a, "t", "", at, true, "one"}, repair{b, "t", "", at.Add(time.Hour), true, "two"})
}

func TestDroppingTakesABodyOrAllAndNoIdComesBack(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	at := now()
	ids := make([]int64, 3*repairBatch)
	for i := range ids {
		ids[i] = keep(t, s, 0, "t", "a", "body", at)
	}
	body, last := ids[:len(ids)-1], ids[len(ids)-1]
	if err := s.DropRepairs(t.Context(), body, append([]int64{last, 1 << 40}, body[1:]...)); err != nil {
		t.Fatal(err)
	}
	wantRepairs(t, s, repair{id: ids[0], tenant: "t", anchors: "a", used: at})
	closed(t, s)
	s = open(t, dir)
	if id := keep(t, s, 0, "t", "b", "", at); id <= last {
		t.Errorf("id %d was given out before", id)
	}
	if err := s.DropRepairs(t.Context(), nil, nil); err != nil {
		t.Error(err)
	}
	if body, err := s.RepairBody(t.Context(), last); body != nil || err != nil {
		t.Errorf("a dropped record has the body %q (%v)", body, err)
	}
}

func TestADamagedBodyIsNamedAndNeverGivenOut(t *testing.T) {
	long := strings.Repeat("the words of an answer; ", 1000)
	for name, damage := range map[string]string{
		"bytes in the middle were changed": `UPDATE repairs SET body = CAST(substr(body, 1, length(body) / 2) || x'ffffffff' || substr(body, length(body) / 2 + 5) AS BLOB)`,
		"the end is missing":               `UPDATE repairs SET body = substr(body, 1, length(body) - 3)`,
		"the length says more":             `UPDATE repairs SET size = size + 1`,
		"the length says less":             `UPDATE repairs SET size = size - 1`,
		"the length says far too much":     `UPDATE repairs SET size = 1 << 50`,
		"the body is longer than said":     `UPDATE repairs SET size = 1`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			id := keep(t, s, 0, "t", "a", long, now())
			raw(t, dir, damage)
			body, err := s.RepairBody(t.Context(), id)
			wantError(t, err, dbName, fmt.Sprintf("record %d", id), "repairs", "damaged", "anew")
			if body != nil {
				t.Errorf("%d bytes were given out", len(body))
			}
		})
	}
}

func TestRepairsStopAtAnErrorOfTheirCaller(t *testing.T) {
	s := open(t, t.TempDir())
	keep(t, s, 0, "t", "", "", now())
	keep(t, s, 0, "t", "", "", now())
	stop, n := errors.New("stop"), 0
	err := s.Repairs(t.Context(), func(int64, string, []byte, time.Time, bool) error {
		n++
		return stop
	})
	if err != stop || n != 1 {
		t.Errorf("got %v after %d records", err, n)
	}
}

func TestAClosedStoreKeepsNoRepair(t *testing.T) {
	s := open(t, t.TempDir())
	closed(t, s)
	if _, err := s.KeepRepair(t.Context(), 0, "t", nil, nil, now()); !errors.Is(err, errClosed) {
		t.Errorf("keep: %v", err)
	}
	if err := s.UseRepairs(t.Context(), []int64{1}, now()); !errors.Is(err, errClosed) {
		t.Errorf("use: %v", err)
	}
	if err := s.Repairs(t.Context(), nil); err == nil {
		t.Error("it reads records")
	}
	if _, err := s.RepairBody(t.Context(), 1); err == nil {
		t.Error("it reads a body")
	}
}

func TestAnEndedContextKeepsNoRepair(t *testing.T) {
	s := open(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.KeepRepair(ctx, 0, "t", nil, nil, now()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	wantRepairs(t, s)
}

func TestRepairsAreKeptAndReadSideBySide(t *testing.T) {
	s := open(t, t.TempDir())
	var all sync.WaitGroup
	for c := range 8 {
		all.Go(func() {
			tenant := fmt.Sprint("t", c)
			body := []byte(strings.Repeat(tenant+" said something long; ", 200))
			id := int64(0)
			for i := range 20 {
				var err error
				if id, err = s.KeepRepair(t.Context(), id*int64(i%2), tenant, []byte(tenant), body, now()); err != nil {
					t.Error(err)
					return
				}
				if got, err := s.RepairBody(t.Context(), id); err != nil || !bytes.Equal(got, body) {
					t.Errorf("%s: %d bytes came back (%v)", tenant, len(got), err)
				}
				if i%5 == 0 {
					if err := s.DropRepairs(t.Context(), []int64{id}, nil); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	list := repairsOf(t, s)
	for _, r := range list {
		if r.anchors != r.tenant || r.there && !strings.HasPrefix(r.body, r.tenant+" ") {
			t.Errorf("a record of %s holds %q", r.tenant, r.anchors)
		}
	}
	if len(list) != 8*10 {
		t.Errorf("there are %d records, want 80", len(list))
	}
}

// earlier takes a directory back to version 1 of the schema.
func earlier(t *testing.T, dir string) {
	t.Helper()
	raw(t, dir, `DROP TABLE repairs`, `PRAGMA user_version = 1`)
}

// schema gives the statements that made a database.
func schema(t *testing.T, dir string) string {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, dbName))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var version int
	var all string
	err = db.QueryRowContext(t.Context(), `SELECT (SELECT user_version FROM pragma_user_version),
		(SELECT group_concat(sql, char(10)) FROM (SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name))`).Scan(&version, &all)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("version %d\n%s", version, all)
}

func TestADatabaseOfVersionOneIsBroughtUpToDateAndLosesNothing(t *testing.T) {
	fresh, dir := t.TempDir(), t.TempDir()
	closed(t, open(t, fresh))
	s := open(t, dir)
	record(t, s, 1, 3)
	create(t, s, approval("a1", now()))
	closed(t, s)
	earlier(t, dir)
	s = open(t, dir)
	if v := verify(t, s, Head{}); v.Bad != 0 || v.Entries != 3 {
		t.Errorf("verify: %+v", v)
	}
	if _, err := s.Approval(t.Context(), "a1"); err != nil {
		t.Error(err)
	}
	at := now()
	wantRepairs(t, s)
	id := keep(t, s, 0, "t", "a", "b", at)
	wantRepairs(t, s, repair{id, "t", "a", at, true, "b"})
	closed(t, s)
	if d := cmp.Diff(schema(t, fresh), schema(t, dir)); d != "" {
		t.Errorf("a migrated schema is not a fresh one:\n%s", d)
	}
}

// A version's script is never changed once it was released: a database that
// has run it does not run it again.
func TestAMigrationStartsFromWhatTheVersionBeforeLeft(t *testing.T) {
	fresh, dir := t.TempDir(), t.TempDir()
	closed(t, open(t, fresh))
	raw(t, dir, migrations[0], fmt.Sprintf(`PRAGMA application_id = %d`, applicationID), `PRAGMA user_version = 1`)
	closed(t, open(t, dir))
	if d := cmp.Diff(schema(t, fresh), schema(t, dir)); d != "" {
		t.Error(d)
	}
}

func TestAReadOnlyStoreReadsBothVersions(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			record(t, s, 1, 2)
			create(t, s, approval("a1", now()))
			closed(t, s)
			if version == 1 {
				earlier(t, dir)
			}
			r, err := OpenReadOnly(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if v := verify(t, r, Head{}); v.Bad != 0 || v.Entries != 2 {
				t.Errorf("verify: %+v", v)
			}
			if got := all(t, r, Query{}); len(got) != 2 {
				t.Errorf("it reads %d entries", len(got))
			}
			if _, err := r.Approval(t.Context(), "a1"); err != nil {
				t.Error(err)
			}
		})
	}
}

func BenchmarkKeepRepair(b *testing.B) {
	s := open(b, b.TempDir())
	body := []byte(strings.Repeat(`{"type":"text","text":"the words of an answer"},`, 200))
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := s.KeepRepair(b.Context(), 0, "t", []byte("anchors"), body, time.Now()); err != nil {
			b.Fatal(err)
		}
	}
}
