package ollama

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"callgate/inspect"
	"callgate/inspect/toolcall"
)

// long is a call with arguments of that many bytes.
func long(n int) string {
	return strings.Replace(callLine("f"), `"ls"`, `"`+strings.Repeat("x", n)+`"`, 1)
}

func TestTenMebibytesOfArgumentsAreAFaultAndNotKept(t *testing.T) {
	const size = 10 << 20
	for _, d := range []Dialect{{}, repairing} {
		turn := open(t, d, streamHead)
		line := []byte(long(size))
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		step, err := turn.Feed(nil, line)
		if err != nil || len(step.Calls) != 1 || step.Calls[0].Fault != toolcall.FaultOversize || !strings.Contains(step.Calls[0].Detail, "larger than 1048576 bytes") {
			t.Fatalf("%v: %d calls", err, len(step.Calls))
		}
		step, err = turn.Resolve(nil, 0, inspect.Ruling{Release: true})
		if err != nil || strings.Contains(string(step.Out), "xxx") || !strings.Contains(string(step.Out), inspect.NoReason) {
			t.Fatalf("%v: it was given out, or nothing in its place", err)
		}
		step = inspect.Step{}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if took := int64(after.HeapAlloc) - int64(before.HeapAlloc); took > size/2 {
			t.Errorf("%d bytes are kept of a call with %d bytes of arguments", took, size)
		}
		runtime.KeepAlive(turn)
		runtime.KeepAlive(line)
	}
}

func TestTenThousandCallsEndTheAnswer(t *testing.T) {
	for _, d := range []Dialect{{}, repairing} {
		for says, body := range map[string]string{
			"in one line":   callLine(strings.Split(strings.Repeat(" f", 10_000)[1:], " ")...),
			"in many lines": strings.Repeat(callLine("f"), 10_000),
		} {
			turn := open(t, d, streamHead)
			_, err := turn.Feed(nil, []byte(body))
			if e := (*inspect.Error)(nil); !errors.As(err, &e) || !e.Limit || !strings.Contains(err.Error(), "more than 1000 calls") {
				t.Fatalf("%s: %v", says, err)
			}
			out := string(turn.Abandon(nil, "too many calls"))
			if strings.Contains(out, "tool_calls") || !strings.Contains(out, "too many calls") || !strings.Contains(out, `"done":true`) {
				t.Errorf("%s: it ends with %q", says, out)
			}
		}
	}
}

func TestWhatIsDroppedIsNoLongerCharged(t *testing.T) {
	// Each line is withheld whole, with the call that was read of it.
	line := strings.Replace(callLine("f"), `"done":false`, `"done":7`, 1)
	turn := open(t, Dialect{Denial: inspect.DenialRepair}, streamHead).(*stream)
	for range 100 {
		feed(t, turn, line)
	}
	if want := 100 * (len(line) - 1); turn.args != want {
		t.Errorf("%d bytes are charged, want %d", turn.args, want)
	}
}

func TestNothingIsFedBehindTheEnd(t *testing.T) {
	for _, head := range []inspect.Head{streamHead, documentHead} {
		turn := open(t, Dialect{}, head)
		feed(t, turn, doneLine)
		if step, err := turn.EndRound(nil, inspect.EndClean); err != nil || step.State != inspect.Done {
			t.Fatalf("%v: state %d", err, step.State)
		}
		step, err := turn.Feed(nil, []byte(callLine("f")))
		if e := (*inspect.Error)(nil); !errors.As(err, &e) || len(step.Out)+len(step.Calls) > 0 {
			t.Errorf("%v: %+v", err, step)
		}
		if out := turn.Abandon(nil, "x"); len(out) > 0 {
			t.Errorf("behind the end there is %q", out)
		}
	}
}

func TestRecordCountsAllRounds(t *testing.T) {
	for _, c := range []struct {
		head          inspect.Head
		first, second string
	}{
		{streamHead, callLine("f") + doneLine, textLine("words") + doneLine},
		{documentHead, strings.Replace(callLine("f"), `"done":false`, `"done":true,"done_reason":"stop","prompt_eval_count":10,"eval_count":5`, 1), doneLine},
	} {
		turn := open(t, repairing, c.head)
		feed(t, turn, c.first)
		if _, err := turn.EndRound(nil, inspect.EndClean); err != nil {
			t.Fatal(err)
		}
		if _, err := turn.Resolve(nil, 0, inspect.Ruling{Refusal: "no"}); err != nil {
			t.Fatal(err)
		}
		if err := turn.NextRound(c.head); err != nil {
			t.Fatal(err)
		}
		feed(t, turn, c.second)
		step, err := turn.EndRound(nil, inspect.EndClean)
		if err != nil || step.State != inspect.Done || !strings.Contains(string(step.Out), `"eval_count":10}`) || !strings.Contains(string(step.Out), `"prompt_eval_count":10,`) {
			t.Fatalf("%v: state %d, %s", err, step.State, step.Out)
		}
		want := inspect.Record{Model: "m", Finish: "stop", Shown: "stop", InputTokens: 10, OutputTokens: 10, Rounds: 2, Billed: 20, Calls: 1, Withheld: 1, Altered: true}
		if got := turn.Record(); got != want {
			t.Errorf("the record is %+v, want %+v", got, want)
		}
	}
}

func TestTextLeavesNoTurnSuspended(t *testing.T) {
	turn := open(t, Dialect{}, streamHead)
	feed(t, turn, callLine("f")+doneLine)
	if _, err := turn.EndRound(nil, inspect.EndClean); err != nil {
		t.Fatal(err)
	}
	step, err := turn.Resolve(nil, 0, inspect.Ruling{Refusal: "It did not run."})
	if err != nil || step.State != inspect.Done || !strings.Contains(string(step.Out), "It did not run.") {
		t.Fatalf("%v: state %d, %s", err, step.State, step.Out)
	}
	if told := turn.Told(); told.Mend || len(told.Notices) > 0 || len(told.Rounds) > 1 {
		t.Errorf("it tells %+v", told)
	}
}

func TestWhatGenerateIsAskedCannotBeResumed(t *testing.T) {
	r, err := repairing.Request(inspect.Head{Path: generatePath}, []byte(`{"model":"m","prompt":"x","messages":[{"role":"user","content":"x"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	body, err := r.Resume([]inspect.Round{round(answers("", "x"), 0)})
	if e := (*inspect.Error)(nil); !errors.As(err, &e) || body != nil {
		t.Errorf("%v: %s", err, body)
	}
}
