package inspecttest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"callgate/inspect"
	"callgate/inspect/toolcall"
)

// lines is a made-up dialect for testing the tests: each line is a call when it
// starts with "call ", the end when it is "end", and text otherwise. Its flaws are
// switched on one by one.
type lines struct {
	flaw   string
	repair bool
}

func (lines) Name() string                                            { return "lines" }
func (lines) Classify(inspect.Head) inspect.Class                     { return inspect.ClassGated }
func (lines) Refuse(int, string) (inspect.Head, []byte)               { return inspect.Head{}, nil }
func (d lines) Request(inspect.Head, []byte) (inspect.Request, error) { return d, nil }
func (lines) Info() inspect.Info                                      { return inspect.Info{Lanes: 1} }
func (d lines) Open(inspect.Head) (inspect.Turn, error) {
	return &linesTurn{flaw: d.flaw, repair: d.repair}, nil
}
func (lines) History() (inspect.History, error) { return nil, os.ErrInvalid }
func (lines) Resume(rounds []inspect.Round) ([]byte, error) {
	if len(rounds) == 0 || len(rounds[len(rounds)-1].Refusals) == 0 {
		return nil, os.ErrInvalid
	}
	return []byte("{}"), nil
}

type linesTurn struct {
	flaw    string
	repair  bool
	rounds  int // that have ended before this one
	begun   int // calls of these
	buf     []byte
	kept    []byte
	queue   [][]byte // lines; those of calls have their number in seqs
	seqs    []int
	calls   []bool // ruled on
	release []bool
	rec     inspect.Record
	ended   bool
	fresh   []toolcall.Call
	over    bool
	asked   int // how often it was asked what to tell
}

func (t *linesTurn) Feed(dst, p []byte) (inspect.Step, error) {
	if t.flaw == "keeps what it is fed" && t.kept == nil {
		t.kept = p
	}
	if t.flaw == "drops what stands before" {
		dst = nil
	}
	if t.flaw == "reads by pieces" {
		p = bytes.ReplaceAll(p, []byte("text"), []byte("TEXT"))
	}
	t.buf = append(t.buf, p...)
	if t.flaw == "leaks" {
		dst = append(dst, p...)
	}
	if t.flaw == "fails without a place" && len(t.buf) > 3 {
		return inspect.Step{Out: dst}, os.ErrInvalid
	}
	for {
		line, rest, ok := bytes.Cut(t.buf, []byte("\n"))
		if !ok {
			return t.step(dst), nil
		}
		line = append(bytes.Clone(line), '\n')
		t.buf = bytes.Clone(rest)
		t.take(line)
	}
}

func (t *linesTurn) take(line []byte) {
	seq := -1
	if args, ok := bytes.CutPrefix(line, []byte("call ")); ok {
		seq = len(t.calls)
		t.calls, t.release = append(t.calls, false), append(t.release, false)
		t.fresh = append(t.fresh, toolcall.Call{Seq: seq, Type: "line", Name: "call", Args: args, Text: true})
		if t.flaw == "numbers wrongly" {
			t.fresh[len(t.fresh)-1].Seq++
		}
	}
	if t.flaw == "keeps what it is fed" && t.kept != nil && seq < 0 {
		line = t.kept[:1]
	}
	t.queue, t.seqs = append(t.queue, line), append(t.seqs, seq)
}

func (t *linesTurn) step(dst []byte) inspect.Step {
	for len(t.queue) > 0 && (t.seqs[0] < 0 || t.calls[t.seqs[0]]) {
		last := string(t.queue[0]) == "end\n" && t.repair && t.rec.Withheld > 0
		if last && (!t.ended && t.flaw != "ends in the middle" || t.suspends() && t.flaw != "ends before it is suspended") {
			break
		}
		switch {
		case t.seqs[0] >= 0 && !t.release[t.seqs[0]] && t.repair && t.flaw != "withholds nothing":
			t.rec.Altered = true
		case t.seqs[0] < 0 || t.release[t.seqs[0]]:
			dst = append(dst, t.queue[0]...)
		case t.flaw == "withholds nothing":
			dst = append(dst, t.queue[0]...)
		default:
			dst = append(dst, "withheld\n"...)
			t.rec.Altered = true
		}
		if t.flaw == "alters" {
			dst = append(dst, ' ')
		}
		t.queue, t.seqs = t.queue[1:], t.seqs[1:]
	}
	s := inspect.Step{Out: dst, Calls: t.fresh}
	t.fresh = nil
	if t.ended && t.suspends() && t.ruled() {
		s.State = inspect.Suspended
	} else if len(t.queue) > 0 && t.flaw != "never waits" {
		s.State = inspect.Waiting
	} else if t.ended && len(t.queue) == 0 && t.flaw != "never ends" {
		s.State = inspect.Done
	}
	if t.flaw == "ends early" {
		s.State = inspect.Done
	}
	return s
}

func (t *linesTurn) Resolve(dst []byte, seq int, r inspect.Ruling) (inspect.Step, error) {
	if seq < 0 || seq >= len(t.calls) || t.calls[seq] && t.flaw != "rules twice" {
		return inspect.Step{Out: dst}, inspect.Unresolvable(seq)
	}
	t.calls[seq], t.release[seq] = true, r.Release
	if !r.Release {
		t.rec.Withheld++
	}
	return t.step(dst), nil
}

func (t *linesTurn) EndRound(dst []byte, _ inspect.End) (inspect.Step, error) {
	t.ended = true
	return t.step(dst), nil
}

// suspends reports whether no call is left and one was withheld in this round.
func (t *linesTurn) suspends() bool {
	return t.repair && len(t.calls) > t.begun && t.rec.Withheld == len(t.calls)
}

func (t *linesTurn) ruled() bool {
	for _, ruled := range t.calls {
		if !ruled {
			return false
		}
	}
	return true
}

func (t *linesTurn) NextRound(inspect.Head) error {
	t.rounds, t.begun, t.ended, t.queue, t.seqs = t.rounds+1, len(t.calls), false, nil, nil
	if t.flaw == "begins no round" {
		return os.ErrInvalid
	}
	return nil
}

func (t *linesTurn) Told() inspect.Told {
	told := inspect.Told{Mend: t.rec.Withheld > 0 && t.flaw != "mends nothing"}
	for i, released := range t.release {
		if t.flaw != "tells nothing" && !released {
			told.Rounds = append(told.Rounds, inspect.Round{Refusals: []inspect.Refusal{{Call: i}}})
		}
	}
	if t.asked++; t.flaw == "tells two things" {
		told.Notices = make([]string, t.asked)
	}
	return told
}

func (t *linesTurn) Fail(dst []byte, text string) []byte { return t.Abandon(dst, "error: "+text) }
func (t *linesTurn) KeepAlive(dst []byte) []byte {
	if t.flaw == "is not kept alive" {
		return dst
	}
	return append(dst, "alive\n"...)
}

func (t *linesTurn) Abandon(dst []byte, text string) []byte {
	if t.over && t.flaw != "ends twice" {
		return dst
	}
	t.over, t.rec.Altered = true, true
	return append(dst, text...)
}

func (t *linesTurn) Record() inspect.Record {
	t.rec.Calls = len(t.calls)
	if t.flaw == "records wrongly" {
		t.rec.Altered = !t.rec.Altered
	}
	return t.rec
}

const linesCase = `Two calls between texts.
-- request --
POST /x?y=1
X-Test: a

{}
-- response --
200

text one
call zqfirst
text two
call zqsecond
-- rulings --
%s
`

func loadLines(t *testing.T, rulings string) *Case {
	t.Helper()
	path := filepath.Join(t.TempDir(), "case.txtar")
	if err := os.WriteFile(path, []byte(strings.Replace(linesCase, "%s", rulings, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func driveAll(d inspect.Dialect, c *Case) error {
	n := len(c.ResponseBody)
	first, err := Drive(d, c, []int{n}, AtOnce)
	if err != nil {
		return err
	}
	for _, w := range []When{AtOnce, LateInOrder, LateReverse} {
		for i := 1; i < n; i++ {
			got, err := Drive(d, c, []int{i, n}, w)
			if err != nil {
				return err
			}
			if diff := got.diff(first); diff != "" {
				return errDiffers
			}
		}
	}
	return nil
}

type errText string

func (e errText) Error() string { return string(e) }

const errDiffers = errText("runs differ")

func TestASoundDialectPasses(t *testing.T) {
	for _, rulings := range []string{"", "0 withhold no", "1 withhold no", "0 withhold\n1 withhold \"a b\""} {
		if err := driveAll(lines{}, loadLines(t, rulings)); err != nil {
			t.Errorf("%q: %v", rulings, err)
		}
	}
}

func TestEveryFlawIsFound(t *testing.T) {
	for _, c := range []struct{ flaw, rulings, want string }{
		{"leaks", "", "before any was released"},
		{"withholds nothing", "1 withhold no", "of it was given out"},
		{"withholds nothing", "0 withhold no\n1 withhold no", "before any was released"},
		{"alters", "", "the answer differs"},
		{"drops what stands before", "", "does not start with what it was to append to"},
		{"keeps what it is fed", "", "the answer differs"},
		{"reads by pieces", "0 withhold no", "runs differ"},
		{"numbers wrongly", "", "came out as number"},
		{"never waits", "", "wait for rulings and the turn is in state 0"},
		{"never ends", "", "in state 0 after its end"},
		{"ends early", "", "state 3"},
		{"rules twice", "", "a second time gave the error <nil>"},
		{"fails without a place", "", "no *inspect.Error"},
		{"records wrongly", "", "the record says altered"},
	} {
		t.Run(c.flaw, func(t *testing.T) {
			err := driveAll(lines{flaw: c.flaw}, loadLines(t, c.rulings))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

const roundsCase = `A call is withheld, the next one too, and the third round says something.
-- request --
POST /x

{}
-- response --
200

text one
call zqfirst
text behind
end
-- response 2 --
200

call zqsecond
end
-- response 3 --
200

text three
end
-- rulings --
0 withhold no
1 withhold no
-- alive --
suspended begun
`

func loadRounds(t *testing.T, text string) *Case {
	t.Helper()
	path := filepath.Join(t.TempDir(), "case.txtar")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	c.form = &Form{
		Ended: func(out []byte) bool { return bytes.Contains(out, []byte("end\n")) },
		Check: func(out []byte, told inspect.Told) error {
			if bytes.Count(out, []byte("end\n")) > 1 {
				return errText("it ends twice")
			}
			return nil
		},
	}
	return c
}

func driveRounds(flaw string, c *Case) error {
	d := lines{flaw: flaw, repair: true}
	n := c.size()
	first, err := Drive(d, c, []int{n}, AtOnce)
	if err != nil {
		return err
	}
	for _, w := range []When{AtOnce, LateInOrder, LateReverse} {
		for i := 1; i < n; i++ {
			got, err := Drive(d, c, []int{i, n}, w)
			if err != nil {
				return err
			}
			if diff := got.diff(first); diff != "" {
				return errText("runs differ: " + diff)
			}
		}
	}
	return nil
}

func TestTurnsOfSeveralRoundsAreDriven(t *testing.T) {
	c := loadRounds(t, roundsCase)
	got, err := Drive(lines{repair: true}, c, []int{1}, AtOnce)
	const want = "text one\ntext behind\nalive\nalive\nalive\nalive\ntext three\nend\n"
	if err != nil || string(got.Out) != want {
		t.Fatalf("%v: %q, want %q", err, got.Out, want)
	}
	if err := driveRounds("", c); err != nil {
		t.Error(err)
	}
	for _, word := range []string{"abandon", "fail"} {
		c := loadRounds(t, strings.Replace(roundsCase, "-- response 3 --\n200\n\ntext three\nend\n", "-- end --\n"+word+" given up\n", 1))
		if err := driveRounds("", c); err != nil {
			t.Errorf("%s: %v", word, err)
		}
	}
}

func TestEveryFlawOfRoundsIsFound(t *testing.T) {
	for _, c := range []struct{ flaw, want string }{
		{"ends in the middle", "the end of the answer came out in state"},
		{"ends before it is suspended", "the end of the answer came out in state"},
		{"withholds nothing", "before any was released"},
		{"begins no round", "round 2 cannot be begun"},
		{"mends nothing", "nothing is to be mended"},
		{"tells nothing", "makes no request"},
		{"tells two things", "tells two things"},
		{"is not kept alive", "no keep-alive"},
	} {
		if err := driveRounds(c.flaw, loadRounds(t, roundsCase)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.flaw, err, c.want)
		}
	}
	missing := strings.Replace(roundsCase, "-- response 3 --\n200\n\ntext three\nend\n", "", 1)
	for _, c := range []struct{ name, flaw, text, want string }{
		{"a round is missing", "", missing, "suspended behind its last round"},
		{"it is ended twice", "ends twice", missing + "-- end --\nabandon it\n", "ended once more"},
		{"a round too many", "", strings.Replace(roundsCase, "0 withhold no\n", "", 1), "and another one is there"},
	} {
		if err := driveRounds(c.flaw, loadRounds(t, c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func TestACallWithoutAMarkIsRefused(t *testing.T) {
	c := loadLines(t, "")
	c.ResponseBody = []byte("call plain\n")
	if _, err := Drive(lines{}, c, []int{11}, AtOnce); err == nil || !strings.Contains(err.Error(), "has no word with") {
		t.Errorf("got %v", err)
	}
}

func TestBytesAreSeenAndReadBack(t *testing.T) {
	for _, s := range []string{
		"", "a", "a\n", "a\r\n\r\nb", "\n\n", "\x00\x1f\t\x7f", "caf\u00e9\n", "bad \xff\xc3 utf8", "-- shown --\nx\n", "signs \u240d \u2403 \u241b\n", "end\u2403\n",
	} {
		text := encode([]byte(s))
		if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
			t.Errorf("%q becomes %q, which does not end a section", s, text)
		}
		got, err := decode(text)
		if err != nil || string(got) != s {
			t.Errorf("%q becomes %q and is read back as %q (%v)", s, text, got, err)
		}
	}
}

func TestFaultyCaseFilesAreRefused(t *testing.T) {
	const head = "c\n-- request --\nPOST /x\n\n{}\n-- response --\n200\n\nx\n"
	for _, c := range []struct{ name, file, want string }{
		{"no response", "-- request --\nPOST /x\n\n{}\n", "needs a request and a response"},
		{"an unknown section", head + "-- calz --\n", "no section has this name"},
		{"no method", "-- request --\n/x\n\n{}\n", "METHOD PATH"},
		{"no blank line", "-- request --\nPOST /x\n", "must end in a blank line"},
		{"no status", "-- response --\nOK\n\n\n", "must be a status"},
		{"a header without a colon", "-- response --\n200\nX\n\n", "has no colon"},
		{"an unknown ruling", head + "-- rulings --\n0 maybe\n", "neither release nor withhold"},
		{"a ruling without a number", head + "-- rulings --\nx release\n", "does not start with a number"},
		{"a round out of order", head + "-- response 3 --\n200\n\nx\n", "no section has this name in this place"},
		{"a faulty round", head + "-- response 2 --\nOK\n\nx\n", "must be a status"},
		{"an unknown end", head + "-- end --\nleave it\n", "abandon TEXT or fail TEXT"},
		{"an unknown keep-alive", head + "-- alive --\nsometimes\n", "neither suspended nor begun"},
		{"an unfinished byte", "-- response --\n200\n\n\u241b4", "two hex digits"},
		{"an error without words", head + "-- error --\n", "must hold a part of the error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.txtar")
			if err := os.WriteFile(path, []byte(c.file), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(path); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestCarelessReadings(t *testing.T) {
	for _, c := range []struct {
		in   string
		want [3]any // first key, last key, folded keys
	}{
		{`{"a":1,"a":2}`, [3]any{map[string]any{"a": Number("1")}, map[string]any{"a": Number("2")}, map[string]any{"a": Number("2")}}},
		{`{"A":1,"a":2}`, [3]any{map[string]any{"A": Number("1"), "a": Number("2")}, map[string]any{"A": Number("1"), "a": Number("2")}, map[string]any{"a": Number("2")}}},
		{`{"\u0061":true}`, [3]any{map[string]any{"a": true}, map[string]any{"a": true}, map[string]any{"a": true}}},
		{`{"tool_call\u017f":null}`, [3]any{map[string]any{"tool_call\u017f": nil}, map[string]any{"tool_call\u017f": nil}, map[string]any{"tool_calls": nil}}},
		{`[1,"\ud83d\ude00\ud83d",] rest`, [3]any{[]any{Number("1"), "😀\ufffd"}, []any{Number("1"), "😀\ufffd"}, []any{Number("1"), "😀\ufffd"}}},
	} {
		for i, r := range Readings {
			got, ok := Parse([]byte(c.in), r)
			if diff := cmp.Diff(c.want[i], got); !ok || diff != "" {
				t.Errorf("%s, reading %d: %t\n%s", c.in, r, ok, diff)
			}
		}
	}
	for _, s := range []string{``, `{`, `{"a"}`, `[1`, `"a`, `x`, `{1:2}`, strings.Repeat("[", 20_000)} {
		if got, ok := Parse([]byte(s), LastKey); ok {
			t.Errorf("%.20q reads as %v", s, got)
		}
	}
}

func TestStreamsAreReadInThreeWays(t *testing.T) {
	in := "data: a\u2028data: b\ndata:c\n\n:x\vdata: d\r\n\r\ndata: e"
	want := [3][]string{{"a\u2028data: b", "c", "e"}, {"a\u2028data: b\nc"}, {"a", "b", "c", "d", "e"}}
	for i, stream := range Streams([]byte(in)) {
		var got []string
		for _, d := range stream {
			got = append(got, string(d))
		}
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Errorf("reader %d (- want, + got):\n%s", i, diff)
		}
	}
}

func TestEveryDocumentOfAnAnswerIsFound(t *testing.T) {
	for _, c := range []struct {
		in   string
		want string
	}{
		{`{"zq":1}`, "zq"},
		{"data: {\"zq\":1}\n\n", "zq"},
		{"data:{\"zq\":1}\r\n\r\n", "zq"},
		{": x\rdata: {\"zq\":1}\r\r", "zq"},
		{"data: {\"a\":\ndata: {\"zq\":1}}\n\n", "a"},
		{"{\"a\":1}\n{\"zq\":2}\n", "zq"},
		{": {\"zq\":1}\n\n", "zq"},
		{"retry:{\"zq\":1}\n\n", "zq"},
		{"id: x {\"zq\":1}\n\n", "zq"},
		{": x\u2028data: {\"zq\":1}\u2028\u2028\n\n", "zq"},
		{"event: x\u0085data: {\"zq\":1}\n\n", "zq"},
		{"id: x\x1edata: {\"zq\":1}\n\n", "zq"},
	} {
		found := false
		for _, d := range Documents([]byte(c.in), LastKey) {
			m, _ := d.(map[string]any)
			_, ok := m[c.want]
			found = found || ok
		}
		if !found {
			t.Errorf("%q: no document with %s", c.in, c.want)
		}
	}
}
