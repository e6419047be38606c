package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"callgate/gate"

	"github.com/google/go-cmp/cmp"
)

const dropTriggers = `DROP TRIGGER audit_keeps_entries; DROP TRIGGER audit_loses_nothing`

// day is when the entries of these tests fall; entry n falls n minutes after.
var day = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func entry(n int) gate.Entry {
	return gate.Entry{
		Time: day.Add(time.Duration(n) * time.Minute), Took: 1234 * time.Microsecond,
		Agent: "default", Principal: "p", Claimed: gate.Claims{Session: "s", User: "ann", Platform: "cli"}, Upstream: "openai", Dialect: "openai-chat",
		Tool: fmt.Sprintf("tool-%d", n), Kind: "command", Args: `{"command":"make"}`, Digest: "d",
		Verdict: "allow", Outcome: gate.Allowed, By: "detector",
		Findings: []gate.FindingBrief{{Rule: "fs.recursive-delete", Severity: "danger", Category: "fs", Reason: "deletes a folder"}},
	}
}

func all(t testing.TB, s *Store, q Query) []gate.Entry {
	t.Helper()
	var list []gate.Entry
	for e, err := range s.Entries(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

func verify(t testing.TB, s *Store, expect Head) VerifyResult {
	t.Helper()
	v, err := s.Verify(t.Context(), expect)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func record(t testing.TB, s *Store, from, to int) {
	t.Helper()
	for i := from; i <= to; i++ {
		if err := s.Record(t.Context(), entry(i), i == to); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnEntryComesBackAsItWasRecorded(t *testing.T) {
	s := open(t, t.TempDir())
	want := entry(1)
	want.Reason, want.Args = "line\nbreak \u202e \x1b[31m", `{"a":"\u0000"}`
	if err := s.Record(t.Context(), want, true); err != nil {
		t.Fatal(err)
	}
	got, err := s.Entry(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if got.Seq != 1 || len(got.Writer) != 16 || len(got.Hash) != 64 || len(got.Prev) != 64 {
		t.Errorf("the place in the chain is not set: %+v", got)
	}
	want.Seq, want.Writer, want.Prev, want.Hash = got.Seq, got.Writer, got.Prev, got.Hash
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := s.Entry(t.Context(), 2); !errors.Is(err, ErrNoEntry) {
		t.Errorf("entry 2: got %v", err)
	}
}

func TestAQueryNarrowsByEachOfItsFields(t *testing.T) {
	s := open(t, t.TempDir())
	record(t, s, 1, 6)
	odd := entry(7)
	odd.Agent, odd.Claimed.Session, odd.Tool, odd.Verdict, odd.Outcome = "ci", "t", "rm", "deny", gate.HookFailed
	if err := s.Record(t.Context(), odd, true); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		q    Query
		want []int64
	}{
		{"the zero query wants all, newest first", Query{}, []int64{7, 6, 5, 4, 3, 2, 1}},
		{"a limit keeps the newest", Query{Limit: 2}, []int64{7, 6}},
		{"since includes its moment", Query{Since: day.Add(5 * time.Minute)}, []int64{7, 6, 5}},
		{"until excludes its moment", Query{Until: day.Add(3 * time.Minute)}, []int64{2, 1}},
		{"after excludes its number", Query{After: 5}, []int64{7, 6}},
		{"by session", Query{Session: "t"}, []int64{7}},
		{"by agent", Query{Agent: "ci"}, []int64{7}},
		{"by tool", Query{Tool: "tool-2"}, []int64{2}},
		{"by outcome", Query{Outcome: "hook_failed"}, []int64{7}},
		{"by verdict", Query{Verdict: "allow", Limit: 1}, []int64{6}},
		{"all fields must agree", Query{Verdict: "allow", Tool: "rm"}, nil},
		{"a value is a value and not SQL", Query{Tool: "x' OR '1'='1"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []int64
			for _, e := range all(t, s, tt.q) {
				got = append(got, e.Seq)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestAReaderMayStopEarly(t *testing.T) {
	s := open(t, t.TempDir())
	record(t, s, 1, 3)
	for range 2 * readers { // a connection that was not given back would be missed
		for _, err := range s.Entries(t.Context(), Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
}

func TestAnEntryWithoutATimeIsRefused(t *testing.T) {
	s := open(t, t.TempDir())
	for _, when := range []time.Time{{}, time.Date(1600, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
		e := entry(1)
		e.Time = when
		if err := s.Record(t.Context(), e, false); err == nil {
			t.Errorf("%v was taken", when)
		}
	}
}

func TestAnEntryIsKeptWhenTheClientHasGone(t *testing.T) {
	s := open(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Record(ctx, entry(1), true); err != nil {
		t.Fatal(err)
	}
	if got := all(t, s, Query{}); len(got) != 1 {
		t.Errorf("%d entries are there", len(got))
	}
}

func TestACallerMayChangeItsFindingsAfterwards(t *testing.T) {
	s := open(t, t.TempDir())
	e := entry(1)
	if err := s.Record(t.Context(), e, false); err != nil {
		t.Fatal(err)
	}
	e.Findings[0].Rule = "changed"
	record(t, s, 2, 2)
	if got := all(t, s, Query{})[1].Findings[0].Rule; got != "fs.recursive-delete" {
		t.Errorf("the entry names rule %s", got)
	}
}

func TestABatchedEntryIsOnDiskWithinASecond(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(t.Context(), dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Record(t.Context(), entry(1), false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := all(t, s, Query{}); len(got) != 0 {
			t.Errorf("%d entries are there at once: nothing is batched", len(got))
		}
		<-time.After(time.Second)
		synctest.Wait()
		if got := all(t, s, Query{}); len(got) != 1 {
			t.Errorf("%d entries are there after a second", len(got))
		}
	})
}

func TestADurableEntryTakesTheBatchedOnesAlong(t *testing.T) {
	s := open(t, t.TempDir())
	for i := range 5 {
		if err := s.Record(t.Context(), entry(i+1), i == 4); err != nil {
			t.Fatal(err)
		}
	}
	for i, e := range all(t, s, Query{}) {
		if want := fmt.Sprintf("tool-%d", 5-i); e.Tool != want {
			t.Errorf("entry %d is of %s, want %s", e.Seq, e.Tool, want)
		}
	}
}

func TestAFullBatchIsWrittenWithoutWaiting(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(t.Context(), dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for i := range batchSize {
			if err := s.Record(t.Context(), entry(i+1), false); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if got := all(t, s, Query{}); len(got) != batchSize {
			t.Errorf("%d entries are there", len(got))
		}
	})
}

func TestEntriesBeyondTheQueueAreWrittenAtOnce(t *testing.T) {
	s := open(t, t.TempDir())
	s.write.mu.Lock()
	s.write.bytes = queueBytes // as if that much waited
	s.write.mu.Unlock()
	if err := s.Record(t.Context(), entry(1), false); err != nil {
		t.Fatal(err)
	}
	if got := all(t, s, Query{}); len(got) != 1 {
		t.Errorf("%d entries are there", len(got))
	}
}

func TestCloseWritesWhatIsBatched(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	const n = 3*batchSize + 7
	for i := range n {
		if err := s.Record(t.Context(), entry(i+1), false); err != nil {
			t.Fatal(err)
		}
	}
	closed(t, s)
	s = open(t, dir)
	if v := verify(t, s, Head{}); v.Bad != 0 || v.Entries != n || v.Head.Seq != n {
		t.Errorf("verify: %+v", v)
	}
}

func TestWritersFormOneChain(t *testing.T) {
	dir := t.TempDir()
	var last string
	for run := range 4 {
		s := open(t, dir)
		record(t, s, 2*run+1, 2*run+2)
		got := all(t, s, Query{Limit: 2})
		if last != "" && got[1].Prev != last {
			t.Errorf("run %d does not go on from the run before", run)
		}
		last = got[0].Hash
		closed(t, s)
	}
	v := verify(t, open(t, dir), Head{})
	if v.Bad != 0 || v.Entries != 8 || v.Writers != 4 || v.Head != (Head{8, last}) {
		t.Errorf("verify: %+v", v)
	}
}

func TestManyRecordersKeepTheirOrderAndShareTransactions(t *testing.T) {
	s := open(t, t.TempDir())
	const callers, each = 16, 40
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				e := entry(i)
				e.Claimed.Session = fmt.Sprintf("s%d", c)
				if err := s.Record(context.Background(), e, i%3 == 0 || i == each-1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if v := verify(t, s, Head{}); v.Bad != 0 || v.Entries != callers*each {
		t.Errorf("verify: %+v", v)
	}
	for c := range callers {
		got := all(t, s, Query{Session: fmt.Sprintf("s%d", c)})
		for i, e := range got {
			if want := fmt.Sprintf("tool-%d", each-1-i); e.Tool != want {
				t.Fatalf("caller %d: %s stands where %s must", c, e.Tool, want)
			}
		}
	}
}

// pages bounds the size of the database, as a full disk would. SQLite raises a
// bound below its present size to that.
func pages(t *testing.T, s *Store, bound int) {
	t.Helper()
	var n int
	if err := s.write.conn.QueryRowContext(t.Context(), fmt.Sprintf(`PRAGMA max_page_count = %d`, bound)).Scan(&n); err != nil {
		t.Fatal(err)
	}
}

const plenty = 1_000_000

// bigEntry needs more room than the pages that are there have left.
func bigEntry(n int) gate.Entry {
	e := entry(n)
	e.Args = strings.Repeat("x", 20_000)
	return e
}

func TestAFullDiskRefusesAndLosesNothingThatWasTaken(t *testing.T) {
	s := open(t, t.TempDir())
	record(t, s, 1, 2)
	pages(t, s, 1)
	if err := s.Record(t.Context(), bigEntry(3), false); err != nil {
		t.Fatalf("a batched entry is taken before anything has failed: %v", err)
	}
	err := s.Record(t.Context(), bigEntry(4), true)
	wantError(t, err, "no space", remedySpace)
	if err := s.Record(t.Context(), entry(5), false); err == nil {
		t.Error("a batched entry was taken after a failure")
	}
	if err := s.CreateApproval(t.Context(), approval("a1", time.Now())); err == nil {
		t.Error("an approval was taken although the disk is full")
	}
	if v := verify(t, s, Head{}); v.Bad != 0 || v.Entries != 2 {
		t.Errorf("on disk: %+v", v)
	}
	pages(t, s, plenty)
	record(t, s, 6, 6)
	var tools []string
	for _, e := range all(t, s, Query{}) {
		tools = append(tools, e.Tool)
	}
	if d := cmp.Diff([]string{"tool-6", "tool-3", "tool-2", "tool-1"}, tools); d != "" {
		t.Error(d)
	}
	if v := verify(t, s, Head{}); v.Bad != 0 || v.Entries != 4 {
		t.Errorf("verify: %+v", v)
	}
	if err := s.Record(t.Context(), entry(7), false); err != nil {
		t.Errorf("a batched entry is refused after a success: %v", err)
	}
}

func TestWritingGoesOnByItselfWhenThereIsRoomAgain(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var reports []error
		s, err := Open(t.Context(), dir, Options{Report: func(err error) { reports = append(reports, err) }})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		pages(t, s, 1)
		if err := s.Record(t.Context(), bigEntry(1), false); err != nil {
			t.Fatal(err)
		}
		<-time.After(5 * time.Second) // fails, and fails again
		synctest.Wait()
		if err := s.Record(t.Context(), entry(2), false); err == nil {
			t.Error("a batched entry was taken after a failure")
		}
		pages(t, s, plenty)
		<-time.After(retry)
		synctest.Wait()
		if got := all(t, s, Query{}); len(got) != 1 {
			t.Errorf("%d entries are there", len(got))
		}
		if err := s.Record(t.Context(), entry(3), false); err != nil {
			t.Errorf("refused although writing works: %v", err)
		}
		if len(reports) != 2 || reports[0] == nil || reports[1] != nil {
			t.Errorf("reported %v, want one failure and one recovery", reports)
		}
	})
}

func TestWithNothingQueuedTheWriterStillFindsOutThatThereIsRoom(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(t.Context(), dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		pages(t, s, 1)
		if err := s.Record(t.Context(), bigEntry(1), true); err == nil {
			t.Fatal("taken although the disk is full")
		}
		if err := s.Record(t.Context(), entry(2), false); err == nil {
			t.Error("a batched entry was taken after a failure")
		}
		pages(t, s, plenty)
		<-time.After(retry)
		synctest.Wait()
		if err := s.Record(t.Context(), entry(3), false); err != nil {
			t.Errorf("refused although writing works: %v", err)
		}
	})
}

func TestCloseSaysHowManyEntriesAreLost(t *testing.T) {
	s := open(t, t.TempDir())
	pages(t, s, 1)
	for i := range 3 {
		if err := s.Record(t.Context(), bigEntry(i+1), false); err != nil {
			t.Fatal(err)
		}
	}
	err := s.Close()
	if err == nil || !strings.Contains(err.Error(), "3 audit entries") {
		t.Errorf("got %v", err)
	}
}

func TestCloseTriesOnceMoreAfterAFailure(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	pages(t, s, 1)
	if err := s.Record(t.Context(), bigEntry(1), false); err != nil {
		t.Fatal(err)
	}
	if err := s.Record(t.Context(), bigEntry(2), true); err == nil {
		t.Fatal("taken although the disk is full")
	}
	pages(t, s, plenty)
	closed(t, s)
	if got := all(t, open(t, dir), Query{}); len(got) != 1 {
		t.Errorf("%d entries are there", len(got))
	}
}

func TestAHeadIsReadAsItIsWritten(t *testing.T) {
	want := Head{Seq: 12, Hash: strings.Repeat("0af9", 16)}
	got, err := ParseHead(want.String())
	if err != nil || got != want {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "12", "12:", ":" + want.Hash, "-1:" + want.Hash, "x:" + want.Hash, "12:" + want.Hash[1:], "12:" + want.Hash + "00", "12:" + strings.Repeat("zz", 32)} {
		if h, err := ParseHead(bad); err == nil {
			t.Errorf("%q was read as %v", bad, h)
		}
	}
}

func BenchmarkRecordDurable(b *testing.B) {
	s := open(b, b.TempDir())
	took := make([]time.Duration, 0, 4096)
	for b.Loop() {
		start := time.Now()
		if err := s.Record(b.Context(), entry(1), true); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

func BenchmarkRecordDurableBySixteen(b *testing.B) {
	s := open(b, b.TempDir())
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := s.Record(context.Background(), entry(1), true); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkRecordBatched is what a caller pays for entries that come as they
// do under load: the writer keeps up.
func BenchmarkRecordBatched(b *testing.B) {
	s := open(b, b.TempDir())
	var caller time.Duration
	n := 0
	for b.Loop() {
		start := time.Now()
		if err := s.Record(b.Context(), entry(1), false); err != nil {
			b.Fatal(err)
		}
		caller += time.Since(start)
		if n++; n%1000 == 0 { // let the writer catch up, uncounted
			if err := s.Record(b.Context(), entry(1), true); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(caller.Nanoseconds())/float64(n), "ns/caller")
}
