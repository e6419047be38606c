package inspecttest

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"callgate/inspect"
	"callgate/inspect/toolcall"
)

var update = flag.Bool("update", false, "write what the dialect does into the case files")

// When says at what point of a run the rulings are given.
type When int

// The points at which rulings are given.
const (
	AtOnce      When = iota // in the step that made the call complete
	LateInOrder             // behind the end of the round, first call first
	LateReverse             // behind the end of the round, last call first
)

func (w When) String() string {
	return [...]string{"rulings at once", "rulings late", "rulings late and in reverse"}[w]
}

// Run drives the dialect through every case file that glob names: whole and
// byte by byte, each with rulings given at once, late and late in reverse
// order, and split in two at every single byte, with late rulings at every
// lateStride-th (in long cases and under the race detector at fewer). All runs of a case must agree with its sections. A glob
// without files fails the test.
func Run(t *testing.T, d inspect.Dialect, glob string) {
	t.Helper()
	runAll(t, d, glob, nil)
}

// Form is what RunRepair must know of a dialect to judge an answer as a whole.
type Form struct {
	// Ended reports whether the end of an answer was given out: its finish or
	// what stands behind it.
	Ended func(out []byte) bool
	// Check holds all that was given out against what one answer must be, and
	// against what later requests are told of it: it is one envelope, and a
	// history in which it stands as it was shown has the digest and the call ids
	// of it.
	Check func(out []byte, told inspect.Told) error
}

// RunRepair is Run for a dialect with inspect.DenialRepair, and for turns of
// several rounds. Beside what Run holds an answer against, its end must come out
// in no state but inspect.Done once a call was withheld, it must be told of alike
// in every run, and it must have its form. What a turn tells while it is suspended must make a
// request.
func RunRepair(t *testing.T, d inspect.Dialect, glob string, form Form) {
	t.Helper()
	runAll(t, d, glob, &form)
}

func runAll(t *testing.T, d inspect.Dialect, glob string, form *Form) {
	t.Helper()
	for _, path := range files(t, glob) {
		t.Run(caseName(path), func(t *testing.T) {
			t.Parallel()
			c, err := Load(path)
			if err != nil {
				t.Fatal(err)
			}
			c.form = form
			runCase(t, d, c)
		})
	}
}

// longCase is the length from which on the splits lie further apart, so that what
// a case costs grows with its length and not with its square. Byte by byte a long
// answer is cut everywhere all the same.
const longCase = 2048

// lateStride is how far apart the splits are that are tried with late rulings
// too; how an answer is cut and when it is ruled on hardly meet.
const lateStride = 8

func files(tb testing.TB, glob string) []string {
	tb.Helper()
	paths, err := filepath.Glob(glob)
	if err != nil || len(paths) == 0 {
		tb.Fatalf("no case files match %s (%v)", glob, err)
	}
	return paths
}

func runCase(t *testing.T, d inspect.Dialect, c *Case) {
	n := c.size()
	first, err := Drive(d, c, []int{n}, AtOnce)
	if err != nil {
		t.Fatalf("whole, %v: %v", AtOnce, err)
	}
	if c.form != nil {
		// All other runs give the same.
		if err := c.form.Check(first.Out, first.Told); err != nil {
			t.Fatalf("%v\nthe answer is %q\nand told is\n%s", err, first.Out, toldLines(first.Told))
		}
	}
	if *update {
		rewrite(t, c, first)
	}
	compare(t, c, first)
	whens := []When{AtOnce, LateInOrder, LateReverse}
	if c.Abandon != nil || c.Error != "" {
		whens = whens[:1] // what was ruled on before the end decides what is seen
	}
	if len(first.Calls) == 0 {
		whens = whens[:1]
	}
	for _, w := range whens {
		try := func(how string, cuts []int) bool {
			got, err := Drive(d, c, cuts, w)
			if err != nil {
				t.Errorf("%s, %v: %v", how, w, err)
				return false
			}
			if diff := got.diff(first); diff != "" {
				t.Errorf("%s, %v: differs from the whole answer with %v (- whole, + this):\n%s", how, w, AtOnce, diff)
				return false
			}
			return true
		}
		if !try("whole", []int{n}) {
			return
		}
		every := make([]int, n)
		for i := range every {
			every[i] = i + 1
		}
		if !try("byte by byte", every) {
			return
		}
		from, stride := 1, splitStride*(1+n/longCase)
		if w != AtOnce {
			from, stride = int(w), lateStride*stride
		}
		for i := from; i < n; i += stride {
			if !try(fmt.Sprintf("split at byte %d", i), []int{i, n}) {
				return
			}
		}
	}
}

func compare(t *testing.T, c *Case, got *Result) {
	t.Helper()
	check := func(section, text string) {
		want, _ := c.want(section)
		if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(text, "\n")); diff != "" {
			t.Fatalf("%s (- file, + dialect):\n%s", section, diff)
		}
	}
	check("calls", callLines(got.Calls))
	check("hosted", callLines(got.Hosted))
	check("shown", string(encode(got.Out)))
	if c.form != nil {
		check("told", toldLines(got.Told))
	}
	if _, ok := c.want("record"); ok {
		check("record", recordLine(got.Record))
	}
	switch {
	case c.Error == "" && got.Err != nil:
		t.Fatalf("reading ended with: %v", got.Err)
	case c.Error != "" && got.Err == nil:
		t.Fatalf("reading ended well; want an error with %q", c.Error)
	case c.Error != "" && !strings.Contains(got.Err.Error(), c.Error):
		t.Fatalf("reading ended with %q; want %q in it", got.Err, c.Error)
	}
}

func rewrite(t *testing.T, c *Case, got *Result) {
	t.Helper()
	c.put("calls", callLines(got.Calls))
	if _, ok := c.want("hosted"); ok || len(got.Hosted) > 0 {
		c.put("hosted", callLines(got.Hosted))
	}
	c.put("shown", string(encode(got.Out)))
	if c.form != nil {
		c.put("told", toldLines(got.Told))
	}
	if _, ok := c.want("record"); ok {
		c.put("record", recordLine(got.Record))
	}
	if err := c.save(); err != nil {
		t.Fatal(err)
	}
}

// Result is what one run of a case gave.
type Result struct {
	Out           []byte
	Calls, Hosted []toolcall.Call
	Record        inspect.Record
	// Told is what was told at the end, of cases that are run by RunRepair.
	Told inspect.Told
	// Err is the error that reading ended with.
	Err error
}

func (r *Result) diff(o *Result) string {
	if bytes.Equal(r.Out, o.Out) && slices.EqualFunc(r.Calls, o.Calls, sameCall) && slices.EqualFunc(r.Hosted, o.Hosted, sameCall) &&
		r.Record == o.Record && toldLines(r.Told) == toldLines(o.Told) && r.Told.Shown == o.Told.Shown && (r.Err == nil) == (o.Err == nil) {
		return ""
	}
	lines := func(r *Result) []string {
		all := callLines(r.Calls) + callLines(r.Hosted) + recordLine(r.Record) + toldLines(r.Told) + fmt.Sprintf("%x\n", r.Told.Shown) + string(encode(r.Out)) + fmt.Sprint(r.Err)
		return strings.Split(all, "\n")
	}
	return cmp.Diff(lines(o), lines(r))
}

// Drive runs a case once: the answers are fed in pieces that end at the given
// offsets, counted through all rounds, and at the end of each round, and the
// rulings are given as w says. The error tells which promise
// of inspect.Turn was broken; an error of reading is part of the result.
func Drive(d inspect.Dialect, c *Case, cuts []int, w When) (*Result, error) {
	req, err := d.Request(c.Request, bytes.Clone(c.RequestBody))
	if err != nil {
		return &Result{Err: err}, nil
	}
	turn, err := req.Open(c.Response)
	if err != nil {
		return &Result{Err: err}, nil
	}
	r := &run{c: c, req: req, turn: turn, when: w}
	if err := r.all(cuts); err != nil {
		return nil, err
	}
	return &r.Result, r.final()
}

// sameCall compares all but the detail, which is for people.
func sameCall(a, b toolcall.Call) bool {
	return a.Seq == b.Seq && a.Lane == b.Lane && a.ID == b.ID && a.Type == b.Type && a.Name == b.Name &&
		bytes.Equal(a.Args, b.Args) && a.Text == b.Text && a.Fault == b.Fault
}

type run struct {
	Result
	c     *Case
	req   inspect.Request
	turn  inspect.Turn
	when  When
	state inspect.State

	kept     [][]byte   // copies of the calls' arguments, to see that they stay
	marks    [][]string // of the calls
	resolved int
	released []bool
	any      bool // a call was released
	lost     bool // a call was withheld
	early    bool // the end was given out before one was
	edited   bool
	checked  int // bytes of Out that hold no mark
}

// prefix stands before what a turn appends, to see that it appends only.
const prefix = "\x00before\x00"

func (r *run) all(cuts []int) error {
	rounds := r.c.rounds()
	from := 0 // of the round
	for i, a := range rounds {
		if i > 0 {
			if r.state != inspect.Suspended {
				return fmt.Errorf("the turn is in state %d behind round %d, and another one is there", r.state, i)
			}
			if err := r.turn.NextRound(a.Head); err != nil {
				return fmt.Errorf("round %d cannot be begun: %w", i+1, err)
			}
			r.state = inspect.More
			if err := r.alive(aliveBegun); err != nil {
				return err
			}
		}
		at := 0
		for _, end := range append(cuts[:len(cuts):len(cuts)], from+len(a.Body)) {
			if end = min(end-from, len(a.Body)); end <= at && len(a.Body) > 0 {
				continue
			}
			if stop, err := r.feed(a.Body, at, end); stop || err != nil {
				return err
			}
			at = end
		}
		from += len(a.Body)
		if stop, err := r.endRound(i == len(rounds)-1); stop || err != nil {
			return err
		}
	}
	switch {
	case r.state == inspect.Done:
		return nil
	case r.state != inspect.Suspended:
		return fmt.Errorf("the turn is in state %d after its end and all rulings", r.state)
	case r.c.End == nil:
		return errors.New("the turn is suspended behind its last round")
	case r.c.End.Fail:
		return r.finish(r.turn.Fail, r.c.End.Text)
	}
	return r.finish(r.turn.Abandon, r.c.End.Text)
}

// feed gives a piece of a round's answer to the turn.
func (r *run) feed(body []byte, at, end int) (stop bool, err error) {
	p := bytes.Clone(body[at:end])
	step, failed := r.turn.Feed([]byte(prefix), p)
	for i := range p {
		p[i] = 0xEE // whoever kept p will be seen
	}
	if stop, err := r.after(step, failed); stop || err != nil {
		return true, err
	}
	if r.state == inspect.Done && end < len(body) {
		return true, errors.New("the turn says it is done before it has read all")
	}
	if r.state == inspect.Suspended {
		return true, errors.New("the turn is suspended before its round has ended")
	}
	return false, nil
}

// endRound ends a round and gives the rulings that are still owed.
func (r *run) endRound(last bool) (stop bool, err error) {
	if last && r.c.Abandon != nil {
		return true, r.finish(r.turn.Abandon, *r.c.Abandon)
	}
	end := inspect.EndClean
	if last && r.c.Cut {
		end = inspect.EndCut
	}
	step, failed := r.turn.EndRound([]byte(prefix), end)
	if stop, err := r.after(step, failed); stop || err != nil {
		return true, err
	}
	for first := r.resolved; r.resolved < len(r.Calls); {
		i := r.resolved
		if r.when == LateReverse {
			i = len(r.Calls) - 1 - (r.resolved - first)
		}
		if r.state == inspect.Done || r.state == inspect.Suspended {
			return true, fmt.Errorf("the turn is in state %d while call %d has no ruling", r.state, i)
		}
		if err := r.resolve(i); err != nil {
			return true, err
		}
	}
	if r.state == inspect.Suspended {
		return false, r.suspended()
	}
	return false, nil
}

// suspended looks at a turn that is: what it tells must make a request, nothing
// of its end may be out, and it takes no more of the round that has ended.
func (r *run) suspended() error {
	told := r.turn.Told()
	if again := r.turn.Told(); toldLines(told) != toldLines(again) {
		return fmt.Errorf("asked twice, a suspended turn tells two things:\n%s\n%s", toldLines(told), toldLines(again))
	}
	if !told.Mend {
		return errors.New("the turn is suspended and nothing is to be mended")
	}
	if _, err := r.req.Resume(told.Rounds); err != nil {
		return fmt.Errorf("what is told of a suspended turn makes no request: %w", err)
	}
	if f := r.c.form; f != nil && f.Ended(r.Out) {
		return fmt.Errorf("the turn is suspended and its end was given out: %q", r.Out)
	}
	return r.alive(aliveSuspended)
}

// alive asks for a keep-alive where the case says so.
func (r *run) alive(point string) error {
	if !r.c.Alive[point] {
		return nil
	}
	out, ok := bytes.CutPrefix(r.turn.KeepAlive([]byte(prefix)), []byte(prefix))
	if !ok {
		return errors.New("a keep-alive does not append to what it was given")
	}
	if len(out) == 0 {
		return fmt.Errorf("there is no keep-alive at the point %q", point)
	}
	r.Out = append(r.Out, out...)
	return r.leaks()
}

// after takes a step in. It reports whether the run is over.
func (r *run) after(step inspect.Step, failed error) (bool, error) {
	if err := r.take(step); err != nil {
		return true, err
	}
	if failed != nil {
		if _, ok := errors.AsType[*inspect.Error](failed); !ok {
			return true, fmt.Errorf("reading ended with an error that is no *inspect.Error: %w", failed)
		}
		r.Err = failed
		return true, r.finish(r.turn.Abandon, AbandonText)
	}
	if r.when != AtOnce {
		return false, nil
	}
	for r.resolved < len(r.Calls) {
		if err := r.resolve(r.resolved); err != nil {
			return true, err
		}
	}
	return false, nil
}

func (r *run) take(step inspect.Step) error {
	out, ok := bytes.CutPrefix(step.Out, []byte(prefix))
	if !ok {
		return fmt.Errorf("the step's output does not start with what it was to append to: %q", step.Out)
	}
	r.Out = append(r.Out, out...)
	r.state = step.State
	if f := r.c.form; f != nil {
		// What is to be told of a turn is stored before its end is sent on.
		ended := f.Ended(r.Out)
		if r.lost && ended && !r.early && r.state != inspect.Done {
			return fmt.Errorf("a call was withheld and the end of the answer came out in state %d: %q", r.state, out)
		}
		r.early = r.early || !r.lost && ended
	}
	r.Hosted = append(r.Hosted, step.Hosted...)
	for _, call := range step.Calls {
		if call.Seq != len(r.Calls) {
			return fmt.Errorf("call %d came out as number %d", len(r.Calls), call.Seq)
		}
		r.Calls = append(r.Calls, call)
		r.kept = append(r.kept, bytes.Clone(call.Args))
		r.marks = append(r.marks, marks(call))
		r.released = append(r.released, false)
	}
	if r.resolved < len(r.Calls) && r.state != inspect.Waiting {
		return fmt.Errorf("calls wait for rulings and the turn is in state %d", r.state)
	}
	return r.leaks()
}

func (r *run) resolve(i int) error {
	ruling := r.c.rulingOn(r.Calls[i])
	r.resolved++
	if ruling.Release && r.Calls[i].Fault == toolcall.FaultNone {
		r.released[i], r.any = true, true
		r.edited = r.edited || ruling.Args != nil
	} else {
		r.lost = true
	}
	step, err := r.turn.Resolve([]byte(prefix), i, ruling)
	if err != nil {
		return fmt.Errorf("resolving call %d: %w", i, err)
	}
	waiting := r.resolved
	r.resolved = len(r.Calls) // the state may be Waiting or More: others may be open
	err = r.take(step)
	r.resolved = waiting
	if err != nil {
		return err
	}
	for _, seq := range []int{i, len(r.Calls) + 7, -1} {
		again, err := r.turn.Resolve([]byte(prefix), seq, inspect.Ruling{Release: true})
		if !errors.Is(err, inspect.ErrResolved) {
			return fmt.Errorf("resolving call %d a second time gave the error %v", seq, err)
		}
		if string(again.Out) != prefix || len(again.Calls) > 0 {
			return fmt.Errorf("resolving call %d a second time gave out %q", seq, again.Out)
		}
	}
	return nil
}

// finish ends the turn with Abandon or Fail.
func (r *run) finish(how func([]byte, string) []byte, text string) error {
	out, ok := bytes.CutPrefix(how([]byte(prefix), text), []byte(prefix))
	if !ok {
		return errors.New("the end of ours does not append to what it was given")
	}
	r.Out = append(r.Out, out...)
	for _, again := range []func([]byte, string) []byte{r.turn.Abandon, r.turn.Fail} {
		if out := again([]byte(prefix), text); string(out) != prefix {
			return fmt.Errorf("a turn that is done was ended once more: %q", out)
		}
	}
	return r.leaks()
}

// leaks reports a mark of a call that was given out without a release.
func (r *run) leaks() error {
	if !r.any {
		if i := bytes.Index(r.Out[r.checked:], []byte(Mark)); i >= 0 {
			return fmt.Errorf("a part of a call was given out before any was released: %q", r.Out)
		}
		r.checked = max(0, len(r.Out)-len(Mark)+1) // one may have begun
		return nil
	}
	if r.checked == len(r.Out) {
		return nil
	}
	r.checked = len(r.Out)
	for i := range r.Calls {
		if r.released[i] {
			continue
		}
		for _, w := range r.marks[i] {
			if !r.free(w) && bytes.Contains(r.Out, []byte(w)) {
				return fmt.Errorf("call %d is not released and %q of it was given out: %q", i, w, r.Out)
			}
		}
	}
	return nil
}

// free reports whether a released call has the word too.
func (r *run) free(word string) bool {
	for i, words := range r.marks {
		if r.released[i] && slices.Contains(words, word) {
			return true
		}
	}
	return false
}

func (r *run) final() error {
	r.Record = r.turn.Record()
	if r.c.form != nil {
		r.Told = r.turn.Told()
	}
	all := len(r.c.More) == 0
	for i, call := range r.Calls {
		if !bytes.Equal(call.Args, r.kept[i]) {
			return fmt.Errorf("the arguments of call %d changed after it was handed over", i)
		}
		if len(r.marks[i]) == 0 {
			return fmt.Errorf("call %d has no word with %q in its id, name or arguments", i, Mark)
		}
		all = all && r.released[i]
	}
	same := bytes.Equal(r.Out, r.c.ResponseBody)
	if all && !r.edited && r.Err == nil && r.c.Abandon == nil && !r.c.Cut && !passed(r.Out, r.c.ResponseBody, r.Record.Altered) {
		return fmt.Errorf("every call was released and the answer differs (- provider, + agent):\n%s",
			cmp.Diff(string(r.c.ResponseBody), string(r.Out)))
	}
	if r.Record.Altered == same {
		return fmt.Errorf("the record says altered=%t; the bytes say %t", r.Record.Altered, !same)
	}
	if r.Record.Calls != len(r.Calls) {
		return fmt.Errorf("the record counts %d calls of %d", r.Record.Calls, len(r.Calls))
	}
	return nil
}
