package inspecttest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"callgate/inspect"
	"callgate/inspect/toolcall"
)

// Finder gives a line for each thing in one document that some client of the
// dialect would take for a call, or for a part of one. With FoldKeys the
// document's keys are in lower case. It must be written without the dialect's
// own code, and be at least as suspicious as the dialect.
type Finder func(doc any) []string

// found gives what a finder makes out in an answer under every reading.
func found(body []byte, find Finder) []string {
	var all []string
	for _, r := range Readings {
		for _, doc := range Documents(body, r) {
			for _, f := range find(doc) {
				all = append(all, fmt.Sprintf("reading %d: %s", r, f))
			}
		}
	}
	return all
}

// FuzzResponse feeds a dialect changed answers of one media type, seeded from
// the case files that glob names (those of that media type; the request comes
// from the case too). Whatever the bytes: nothing panics; how they are cut
// changes nothing of what is given out and of what is told; no call is given out
// before its ruling; a turn that is suspended goes on with the same answer once
// more, and is then abandoned; releasing all calls gives the answer back, but for comments that are left out; after withholding all, or an Abandon at any point,
// find sees no call in what was given out.
func FuzzResponse(f *testing.F, d inspect.Dialect, media, glob string, find Finder) {
	f.Helper()
	var cases []*Case
	for _, path := range files(f, glob) {
		c, err := Load(path)
		if err != nil {
			f.Fatal(err)
		}
		if !strings.HasPrefix(c.Response.Header.Get("Content-Type"), media) {
			continue
		}
		if req, err := d.Request(c.Request, c.RequestBody); err != nil {
			continue
		} else if _, err := req.Open(c.Response); err != nil {
			continue
		}
		f.Add(uint8(len(cases)), uint16(7), c.ResponseBody)
		cases = append(cases, c)
	}
	if len(cases) == 0 {
		f.Fatalf("no case file of %s has an answer of type %s", glob, media)
	}
	f.Fuzz(func(t *testing.T, which uint8, piece uint16, body []byte) {
		c := cases[int(which)%len(cases)]
		z := fuzzed{d: d, c: c, body: body, piece: int(piece)%(len(body)+1) + 1, find: find}
		if err := z.check(); err != nil {
			t.Fatal(err)
		}
	})
}

type fuzzed struct {
	d     inspect.Dialect
	c     *Case
	body  []byte
	piece int
	find  Finder
}

// outcome is what one run gave.
type outcome struct {
	out    []byte
	calls  []toolcall.Call
	faulty bool
	failed bool
	// altered is what the turn's record says.
	altered bool
	told    inspect.Told
}

func (z *fuzzed) check() error {
	whole, err := z.run(len(z.body)+1, false, false)
	if err != nil {
		return err
	}
	cut, err := z.run(z.piece, false, true)
	if err != nil {
		return err
	}
	if callLines(whole.calls) != callLines(cut.calls) || !whole.failed && (!bytes.Equal(whole.out, cut.out) ||
		toldLines(whole.told) != toldLines(cut.told) || whole.told.Shown != cut.told.Shown) {
		return fmt.Errorf("cut into pieces of %d bytes the answer reads otherwise:\n%s%q\n%s\n%s%q\n%s",
			z.piece, callLines(whole.calls), whole.out, toldLines(whole.told), callLines(cut.calls), cut.out, toldLines(cut.told))
	}
	if calls := z.calls(whole.out); len(calls) > 0 {
		return fmt.Errorf("all was withheld and %q was given out: %q", calls, whole.out)
	}
	all, err := z.run(z.piece, true, false)
	if err != nil {
		return err
	}
	if !all.failed && !all.faulty && !passed(all.out, z.body, all.altered) {
		return fmt.Errorf("all was released and the answer differs: %q", all.out)
	}
	return z.abandoned()
}

// passed reports whether an answer was given out as it came, but for comments
// of an event stream that a turn may leave out when it says so.
func passed(out, body []byte, altered bool) bool {
	return bytes.Equal(out, body) || altered && bytes.Equal(uncommented(out), uncommented(body))
}

// uncommented gives an event stream without its comments, and with one blank
// line where several stood.
func uncommented(b []byte) []byte {
	var kept []byte
	blank := true
	for line := range bytes.Lines(b) {
		if line[0] == ':' {
			continue
		}
		was := blank
		if blank = len(bytes.TrimRight(line, "\r\n")) == 0; !blank || !was {
			kept = append(kept, line...)
		}
	}
	return kept
}

func (z *fuzzed) calls(out []byte) []string { return found(out, z.find) }

func (z *fuzzed) open() (inspect.Turn, error) {
	req, err := z.d.Request(z.c.Request, z.c.RequestBody)
	if err != nil {
		return nil, err
	}
	return req.Open(z.c.Response)
}

// run reads the answer in pieces and rules on every call the same way: as it
// comes, or behind the end of the round.
func (z *fuzzed) run(piece int, release, late bool) (*outcome, error) {
	turn, err := z.open()
	if err != nil {
		return nil, err
	}
	var o outcome
	done := 0
	var state inspect.State
	after := func(step inspect.Step, err error) bool {
		o.out, o.calls, state = step.Out, append(o.calls, step.Calls...), step.State
		for _, call := range step.Calls {
			o.faulty = o.faulty || call.Fault != toolcall.FaultNone
		}
		if err != nil {
			o.failed = true
			o.out = turn.Abandon(o.out, AbandonText)
		}
		return err == nil
	}
	rule := func() error {
		for ; done < len(o.calls); done++ {
			step, err := turn.Resolve(o.out, done, inspect.Ruling{Release: release && o.calls[done].Fault == toolcall.FaultNone, Refusal: "withheld"})
			if err != nil {
				return fmt.Errorf("resolving call %d: %w", done, err)
			}
			after(step, nil)
		}
		return nil
	}
	for round := 1; ; round++ {
		for b := z.body; len(b) > 0; {
			n := min(piece, len(b))
			if !after(turn.Feed(o.out, b[:n])) {
				return &o, nil
			}
			b = b[n:]
			if !late {
				if err := rule(); err != nil {
					return nil, err
				}
			}
		}
		if !after(turn.EndRound(o.out, inspect.EndClean)) {
			return &o, nil
		}
		if done < len(o.calls) {
			if calls := z.calls(o.out); done == 0 && len(calls) > 0 {
				return nil, fmt.Errorf("no call has a ruling and %q was given out: %q", calls, o.out)
			}
			if err := rule(); err != nil {
				return nil, err
			}
		}
		if state != inspect.Suspended {
			break
		}
		if err := z.resumes(turn); err != nil {
			return nil, err
		}
		if round == 2 {
			o.out = turn.Abandon(o.out, AbandonText)
			break
		}
		if err := turn.NextRound(z.c.Response); err != nil {
			return nil, fmt.Errorf("a suspended turn does not go on: %w", err)
		}
	}
	o.altered, o.told = turn.Record().Altered, turn.Told()
	return &o, nil
}

// resumes checks that what a suspended turn tells makes a request.
func (z *fuzzed) resumes(turn inspect.Turn) error {
	req, err := z.d.Request(z.c.Request, z.c.RequestBody)
	if err != nil {
		return err
	}
	told := turn.Told()
	if _, err := req.Resume(told.Rounds); err != nil {
		return fmt.Errorf("what a suspended turn tells makes no request: %w\n%s", err, toldLines(told))
	}
	return nil
}

// abandoned gives the turn up in the middle, with keep-alives before.
func (z *fuzzed) abandoned() error {
	turn, err := z.open()
	if err != nil {
		return err
	}
	out := turn.KeepAlive(nil)
	step, err := turn.Feed(out, z.body[:min(z.piece, len(z.body))])
	out = step.Out
	if err == nil {
		out = turn.KeepAlive(out)
	}
	before := len(out)
	out = turn.Abandon(out, AbandonText)
	if calls := z.calls(out); len(calls) > 0 {
		return fmt.Errorf("the turn was abandoned and %q was given out: %q", calls, out)
	}
	// An answer whose end was given out takes no more words.
	if (before == 0 || len(out) > before) && !bytes.Contains(out, []byte(AbandonText)) {
		return fmt.Errorf("the turn was abandoned without its text: %q", out)
	}
	if again := turn.Abandon(out, AbandonText); len(again) != len(out) {
		return fmt.Errorf("a turn was abandoned twice: %q", again)
	}
	return nil
}
