package openaichat

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"callgate/inspect"
	"callgate/inspect/toolcall"
)

// TestWhatWaitsTakesTheRoomItIsChargedFor holds many small events back and
// compares the memory they take with the limit.
func TestWhatWaitsTakesTheRoomItIsChargedFor(t *testing.T) {
	const held = 4 << 20
	call := chunk(0, `{"role":"assistant","content":"a"}`, "null") + chunk(0, callDelta(0, "c", "f", `{}`), "null")
	for _, c := range []struct{ name, event string }{
		{"blank lines", "\n"},
		{"comments", ": keep-alive\n\n"},
		{"empty data", "data:\n\n"},
		{"scalars", "data: 1\n\n"},
		{"empty chunks", `data: {"choices":[]}` + "\n\n"},
		{"text", chunk(0, `{"content":"x"}`, "null")},
		{"pieces of the call", chunk(0, `{"tool_calls":[{"index":0,"function":{"arguments":" "}}]}`, "null")},
		{"many entries", chunk(0, `{"tool_calls":[{"index":0}`+strings.Repeat(`,{"index":0}`, 900)+`]}`, "null")},
		{"many choices", `data: {"choices":[{"index":0}` + func() (s string) {
			for i := range 100 {
				s += fmt.Sprintf(`,{"index":%d}`, i+1)
			}
			return s
		}() + "]}\n\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			turn := openStream(t, inspect.Limits{Held: held})
			feed(t, turn, call)
			batch := []byte(strings.Repeat(c.event, 1+8192/len(c.event)))
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			fed := 0
			for err := error(nil); err == nil; {
				if _, err = turn.Feed(nil, batch); err == nil {
					fed += len(batch)
				}
				if fed > held {
					t.Fatal("more was held than the limit allows")
				}
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			if took := int64(after.HeapAlloc) - int64(before.HeapAlloc); took > held*2 {
				t.Errorf("%d bytes are held of an answer of %d, with a limit of %d", took, fed, held)
			}
			runtime.KeepAlive(turn)
		})
	}
}

func TestCommentsThatWaitGoOutInTheirPlace(t *testing.T) {
	turn := openStream(t, inspect.Limits{})
	answer := chunk(0, `{"role":"assistant","content":"a"}`, "null") + chunk(0, callDelta(0, "c", "f", `{}`), "null") +
		strings.Repeat(": keep-alive\n\n\n", 2000) + chunk(0, `{"content":"x"}`, "null") + ": one\n\n" + chunk(0, `{}`, `"tool_calls"`) + "\n\n: two\n\n"
	var out []byte
	for i := 0; i < len(answer); i += 100 {
		step, err := turn.Feed(out, []byte(answer[i:min(i+100, len(answer))]))
		if err != nil {
			t.Fatal(err)
		}
		out = step.Out
	}
	if n := len(turn.(*stream).queue); n > 30 {
		t.Errorf("%d entries wait", n)
	}
	step, err := turn.Resolve(out, 0, inspect.Ruling{Release: true})
	if err != nil || string(step.Out) != answer {
		t.Errorf("%v: the answer changed: %d bytes of %d", err, len(step.Out), len(answer))
	}
	if left := turn.(*stream).held; left != 0 {
		t.Errorf("%d bytes are counted as held when nothing waits", left)
	}
}

func TestArgumentsOfAllCallsTogetherAreBounded(t *testing.T) {
	lim := inspect.Limits{Args: 1000, Held: 3000}
	turn := openStream(t, lim)
	feed(t, turn, chunk(0, `{"role":"assistant","content":"a"}`, "null"))
	sum, n := 0, 0
	for range 20 {
		step := feed(t, turn, "data: {"+strings.Repeat("x", 900)+"\n\n")
		for _, c := range step.Calls {
			if c.Fault == toolcall.FaultNone {
				t.Fatal("an unreadable event is no fault")
			}
			sum += len(c.Args)
			n++
			if _, err := turn.Resolve(nil, c.Seq, inspect.Ruling{Release: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n != 20 || sum > lim.Held {
		t.Errorf("%d calls keep %d bytes, the limit is %d", n, sum, lim.Held)
	}
	// A call that comes whole behind them must not be judged by a part of it.
	step := feed(t, turn, chunk(1, callDelta(0, "c", "f", `{"a":"`+strings.Repeat("y", 500)+`"}`), `"tool_calls"`))
	if len(step.Calls) != 1 || step.Calls[0].Fault != toolcall.FaultOversize {
		t.Errorf("got %+v", step.Calls)
	}
}

func TestLongNamesAreAFaultAndNotKept(t *testing.T) {
	long := strings.Repeat("n", 100_000)
	for _, c := range []struct{ name, delta string }{
		{"a name", callDelta(0, "c", long, `{}`)},
		{"an id", callDelta(0, long, "f", `{}`)},
		{"a type", `{"tool_calls":[{"index":0,"id":"c","type":"` + long + `","function":{"name":"f","arguments":"{}"}}]}`},
		{"a name of the older form", `{"function_call":{"name":"` + long + `","arguments":"{}"}}`},
		{"a member", `{"` + long + `":{"x":1}}`},
		{"a content part's type", `{"content":[{"type":"` + long + `"}]}`},
		{"a content part's id", `{"content":[{"type":"tool_use","id":"` + long + `"}]}`},
	} {
		for _, late := range []bool{false, true} {
			turn := openStream(t, inspect.Limits{})
			if late {
				feed(t, turn, chunk(0, `{"role":"assistant","content":"a"}`, `"stop"`))
			}
			step := feed(t, turn, chunk(0, c.delta, `"tool_calls"`))
			if len(step.Calls) != 1 {
				t.Fatalf("%s: %d calls", c.name, len(step.Calls))
			}
			got := step.Calls[0]
			if got.Fault == toolcall.FaultNone || len(got.Name)+len(got.ID)+len(got.Type) > 3*maxWord || len(got.Detail) > 1000 {
				t.Errorf("%s, late %t: fault %d, name of %d bytes, id of %d, type of %d, detail of %d", c.name, late,
					got.Fault, len(got.Name), len(got.ID), len(got.Type), len(got.Detail))
			}
		}
	}
}

// BenchmarkDenied is an event of as many parts of one call as may be, withheld.
func BenchmarkDenied(b *testing.B) {
	body := []byte(chunk(0, `{"role":"assistant","content":"a"}`, "null") +
		chunk(0, `{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}`+strings.Repeat(`,{"index":0}`, 999)+`]}`, "null") +
		chunk(0, `{}`, `"tool_calls"`))
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		turn := openStream(b, inspect.Limits{})
		step, err := turn.Feed(nil, body)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := turn.Resolve(step.Out, 0, inspect.Ruling{}); err != nil {
			b.Fatal(err)
		}
	}
}
