package openaichat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"callgate/inspect"
	"callgate/inspect/inspecttest"
	"callgate/inspect/toolcall"
)

func openTurn(t testing.TB, lim inspect.Limits, body string, head inspect.Head) inspect.Turn {
	t.Helper()
	r, err := Dialect{Limits: lim}.Request(inspect.Head{}, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	turn, err := r.Open(head)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

func openStream(t testing.TB, lim inspect.Limits) inspect.Turn {
	return openTurn(t, lim, `{"model":"asked","n":2}`, streamHead)
}

func feed(t *testing.T, turn inspect.Turn, s string) inspect.Step {
	t.Helper()
	step, err := turn.Feed(nil, []byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return step
}

func chunk(lane int, delta, finish string) string {
	return fmt.Sprintf(`data: {"id":"cc","created":5,"model":"m","choices":[{"index":%d,"delta":%s,"finish_reason":%s}]}`+"\n\n", lane, delta, finish)
}

func callDelta(index int, id, name, args string) string {
	return fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":%q,"type":"function","function":{"name":%q,"arguments":%q}}]}`, index, id, name, args)
}

const alive = `data: {"id":"cc","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":%d,"delta":{"content":""},"finish_reason":null}]}` + "\n\n"

func TestKeepAliveIsAnEmptyDeltaOfAnOpenChoice(t *testing.T) {
	turn := openStream(t, inspect.Limits{})
	if got := turn.KeepAlive(nil); len(got) > 0 {
		t.Fatalf("before the first event: %q", got)
	}
	feed(t, turn, ": hello\n\n")
	if got := turn.KeepAlive(nil); len(got) > 0 {
		t.Fatalf("behind a comment: %q", got)
	}
	feed(t, turn, chunk(0, `{"role":"assistant","content":"a"}`, "null")+chunk(1, `{"role":"assistant","content":"b"}`, "null"))
	if got, want := string(turn.KeepAlive([]byte("x"))), "x"+fmt.Sprintf(alive, 0); got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	feed(t, turn, chunk(0, `{}`, `"stop"`))
	if got, want := string(turn.KeepAlive(nil)), fmt.Sprintf(alive, 1); got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	step := feed(t, turn, chunk(1, callDelta(0, "c", "f", "{}"), `"tool_calls"`)+"data: [DONE]\n\n")
	if len(step.Calls) != 1 || step.State != inspect.Waiting {
		t.Fatalf("got %+v", step)
	}
	// Its finish waits behind the call, so the choice is open to the client.
	if got, want := string(turn.KeepAlive(nil)), fmt.Sprintf(alive, 1); got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	if _, err := turn.Resolve(nil, 0, inspect.Ruling{Release: true}); err != nil {
		t.Fatal(err)
	}
	if got := turn.KeepAlive(nil); len(got) > 0 {
		t.Fatalf("behind the end: %q", got)
	}
	if !turn.Record().Altered {
		t.Error("keep-alives were given out and the record does not say so")
	}
}

func TestKeepAliveOfADocumentIsASpaceBeforeIt(t *testing.T) {
	turn := openTurn(t, inspect.Limits{}, `{}`, documentHead)
	out := turn.KeepAlive(nil)
	step, _ := turn.Feed(out, []byte(`{"choices":[]}`))
	step, err := turn.EndRound(turn.KeepAlive(step.Out), inspect.EndClean)
	if err != nil || string(step.Out) != `  {"choices":[]}` || step.State != inspect.Done {
		t.Fatalf("%v: %q in state %d", err, step.Out, step.State)
	}
	if got := turn.KeepAlive(nil); len(got) > 0 {
		t.Fatalf("behind the document: %q", got)
	}
}

func TestTextFlowsBeforeACallAndWaitsBehindIt(t *testing.T) {
	turn := openStream(t, inspect.Limits{})
	first := chunk(0, `{"role":"assistant","content":"a"}`, "null")
	if step := feed(t, turn, first); string(step.Out) != first {
		t.Fatalf("got %q", step.Out)
	}
	if step := feed(t, turn, chunk(0, callDelta(0, "c", "f", "{}"), "null")); len(step.Out) > 0 || len(step.Calls) > 0 || step.State != inspect.Waiting {
		t.Fatalf("got %+v", step)
	}
	if step := feed(t, turn, chunk(1, `{"content":"behind"}`, "null")); len(step.Out) > 0 {
		t.Fatalf("text went past a call: %q", step.Out)
	}
	step := feed(t, turn, chunk(0, `{}`, `"tool_calls"`))
	if len(step.Out) > 0 || len(step.Calls) != 1 || step.State != inspect.Waiting {
		t.Fatalf("got %+v", step)
	}
	step, err := turn.Resolve(nil, 0, inspect.Ruling{Release: true})
	if err != nil || step.State != inspect.More || !bytes.Contains(step.Out, []byte("behind")) {
		t.Fatalf("%v: %+v", err, step)
	}
	last := chunk(1, `{"content":"x"}`, "null")
	if step := feed(t, turn, last); string(step.Out) != last {
		t.Fatalf("got %q", step.Out)
	}
}

func TestEarlierCallsLeaveBeforeLaterOnesAreDecided(t *testing.T) {
	turn := openStream(t, inspect.Limits{})
	one, two := chunk(0, callDelta(0, "c1", "f", "{}"), "null"), chunk(0, callDelta(1, "c2", "f", "{}"), "null")
	feed(t, turn, one+two+chunk(0, `{}`, `"tool_calls"`))
	if step, _ := turn.Resolve(nil, 0, inspect.Ruling{Release: true}); string(step.Out) != one || step.State != inspect.Waiting {
		t.Fatalf("got %+v", step)
	}
}

func TestACallIsNeverGivenOutInPart(t *testing.T) {
	turn := openStream(t, inspect.Limits{})
	part := func(lane int, args string) string {
		return chunk(lane, fmt.Sprintf(`{"tool_calls":[{"index":0,"function":{"arguments":%q}}]}`, args), "null")
	}
	step := feed(t, turn, chunk(0, callDelta(0, "c1", "f", `{"a"`), "null")+chunk(1, callDelta(0, "c2", "g", `{"b"`), "null")+
		part(0, `:1}`)+part(1, `:2}`)+chunk(0, `{}`, `"tool_calls"`)+chunk(1, `{}`, `"tool_calls"`))
	if len(step.Calls) != 2 || step.Calls[0].Fault != toolcall.FaultNone || step.Calls[1].Fault != toolcall.FaultNone {
		t.Fatalf("got %+v", step.Calls)
	}
	step, _ = turn.Resolve(nil, 0, inspect.Ruling{Release: true})
	if len(step.Out) > 0 {
		t.Fatalf("the first call left while the second stands within it: %q", step.Out)
	}
	out := string(turn.Abandon(nil, "given up"))
	if strings.Contains(out, "tool_calls\":[") || !strings.Contains(out, "given up") {
		t.Fatalf("got %q", out)
	}
}

func TestLimits(t *testing.T) {
	text := chunk(0, `{"role":"assistant","content":"a"}`, "null")
	call := func(i int) string {
		return chunk(0, callDelta(i, fmt.Sprint("c", i), "f", `{"a":"0123456789"}`), "null")
	}
	for _, c := range []struct {
		name string
		lim  inspect.Limits
		feed string
		want string
	}{
		{"an event that is too large", inspect.Limits{Frame: 200}, text + "data: " + strings.Repeat("x", 300), "too large"},
		{"an event with an end that is too large", inspect.Limits{Frame: 200}, text + "data: " + strings.Repeat("x", 300) + "\n\n", "too large"},
		{"too much behind a call", inspect.Limits{Held: 600}, text + call(0) + text + text + text + text, "wait behind"},
		{"too many calls", inspect.Limits{Calls: 3}, call(0) + call(1) + call(2) + call(3), "more than 3 calls"},
		{"too much behind a call in small events", inspect.Limits{Held: 10_000}, text + call(0) + strings.Repeat("data: 1\n\n", 50), "wait behind"},
		{"too many blank lines behind a call", inspect.Limits{Held: 10_000}, text + call(0) + strings.Repeat("\n", 10_000), "wait behind"},
		{"too many parts of calls in one event", inspect.Limits{Calls: 3},
			text + chunk(0, `{"tool_calls":[{"index":0,"id":"c","function":{"name":"f"}},{"index":0},{"index":0},{"index":0}]}`, "null"), "more than 3 entries"},
		{"too many choices", inspect.Limits{}, manyLanes(maxLanes + 1), "more than 128 choices"},
		{"too many choices of plain text", inspect.Limits{}, text + manyPlainLanes(maxLanes+1), "more than 128 choices"},
	} {
		t.Run(c.name, func(t *testing.T) {
			turn := openStream(t, c.lim)
			step, err := turn.Feed(nil, []byte(c.feed))
			var e *inspect.Error
			if !errors.As(err, &e) || !e.Limit || !strings.Contains(e.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if _, again := turn.Feed(nil, []byte(text)); again == nil {
				t.Error("reading goes on behind an error")
			}
			if _, again := turn.EndRound(nil, inspect.EndClean); again == nil {
				t.Error("the round ends well behind an error")
			}
			out := turn.Abandon(step.Out, "given up")
			if calls := clientCallsIn(out); len(calls) > 0 || !bytes.Contains(out, []byte("given up")) || !bytes.HasSuffix(out, []byte("data: [DONE]\n\n")) {
				t.Errorf("got %q", out)
			}
		})
	}
}

func manyLanes(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(chunk(i, `{"role":"assistant"}`, `"stop"`))
	}
	return b.String()
}

func manyPlainLanes(n int) string {
	return strings.ReplaceAll(manyLanes(n), `"stop"`, "null")
}

func clientCallsIn(out []byte) []string {
	var all []string
	for _, r := range inspecttest.Readings {
		for _, doc := range inspecttest.Documents(out, r) {
			all = append(all, clientCalls(doc)...)
		}
	}
	return all
}

func TestArgumentsBeyondTheLimitAreAFault(t *testing.T) {
	turn := openStream(t, inspect.Limits{Args: 20})
	step := feed(t, turn, chunk(0, callDelta(0, "c", "f", `{"a":"0123456789`), "null")+
		chunk(0, `{"tool_calls":[{"index":0,"function":{"arguments":"0123456789\"}"}}]}`, "null")+chunk(0, `{}`, `"tool_calls"`))
	if len(step.Calls) != 1 || step.Calls[0].Fault != toolcall.FaultOversize || len(step.Calls[0].Args) != 20 {
		t.Fatalf("got %+v", step.Calls)
	}
	step, err := turn.Resolve(nil, 0, inspect.Ruling{Release: true})
	if err != nil || len(clientCallsIn(step.Out)) > 0 {
		t.Fatalf("%v: released %q", err, step.Out)
	}
}

func TestDocumentsBeyondTheLimitEnd(t *testing.T) {
	turn := openTurn(t, inspect.Limits{Answer: 10}, `{}`, documentHead)
	if _, err := turn.Feed(nil, []byte(`{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	_, err := turn.Feed(nil, []byte(`     `))
	if e, ok := errors.AsType[*inspect.Error](err); !ok || !e.Limit {
		t.Fatalf("got %v", err)
	}
	var got map[string]any
	if err := json.Unmarshal(turn.Abandon(nil, "given up"), &got); err != nil {
		t.Fatal(err)
	}
}

func TestNothingMoreIsTakenBehindTheEnd(t *testing.T) {
	for _, head := range []inspect.Head{streamHead, documentHead} {
		turn := openTurn(t, inspect.Limits{}, `{}`, head)
		if head.Header.Get("Content-Type") == "application/json" {
			feed(t, turn, `{}`)
		}
		step, err := turn.EndRound(nil, inspect.EndClean)
		if err != nil || step.State != inspect.Done {
			t.Fatalf("%v in state %d", err, step.State)
		}
		if step, err := turn.Feed(nil, []byte(chunk(0, callDelta(0, "c", "f", "{}"), "null"))); err == nil || len(step.Out) > 0 {
			t.Errorf("fed behind the end: %v, %q", err, step.Out)
		}
		if out := turn.Abandon(nil, "given up"); len(out) > 0 {
			t.Errorf("abandoned behind the end: %q", out)
		}
	}
}

func TestAbandonEndsEveryOpenChoice(t *testing.T) {
	turn := openStream(t, inspect.Limits{})
	feed(t, turn, chunk(0, `{"role":"assistant","content":"a"}`, "null")+chunk(1, `{"role":"assistant","content":""}`, "null")+chunk(0, callDelta(0, "c", "f", "{}"), `"tool_calls"`))
	out := string(turn.Abandon(nil, "given up"))
	for _, want := range []string{
		`"index":0,"delta":{"content":"\n\ngiven up"}`, `"index":0,"delta":{},"finish_reason":"stop"`,
		`"index":1,"delta":{"content":"given up"}`, `"index":1,"delta":{},"finish_reason":"stop"`,
	} {
		if strings.Count(out, want) != 1 {
			t.Errorf("%s is not once in %q", want, out)
		}
	}
	if _, err := turn.Resolve(nil, 0, inspect.Ruling{Release: true}); !errors.Is(err, inspect.ErrResolved) {
		t.Errorf("a call was ruled on behind the end: %v", err)
	}
}

// TestCallsKeepTheirOrderAndNumbers is a property of any number of calls, in
// one or two choices, with any rulings given in any order: what is released
// stands in its lane numbered from 0 without gaps, with its own arguments.
func TestCallsKeepTheirOrderAndNumbers(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		n := 1 + rnd.IntN(6)
		var events []string
		for lane := range 2 {
			for i := range n {
				args := fmt.Sprintf(`{"lane":%d,"i":%d}`, lane, i)
				cut := rnd.IntN(len(args))
				events = append(events, chunk(lane, callDelta(i, fmt.Sprintf("c%d-%d", lane, i), "f", args[:cut]), "null"),
					chunk(lane, fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%q}}]}`, i, args[cut:]), "null"))
			}
			events = append(events, chunk(lane, `{}`, `"tool_calls"`))
		}
		turn := openStream(t, inspect.Limits{})
		step := feed(t, turn, strings.Join(events, ""))
		out, calls := step.Out, step.Calls
		if len(calls) != 2*n {
			t.Fatalf("seed %d: %d calls of %d", seed, len(calls), 2*n)
		}
		var want [2][]string
		released := make([]bool, len(calls))
		for i, c := range calls {
			if released[i] = rnd.IntN(2) == 0; released[i] {
				want[c.Lane] = append(want[c.Lane], string(c.Args))
			}
		}
		for _, i := range rnd.Perm(len(calls)) {
			s, err := turn.Resolve(out, i, inspect.Ruling{Release: released[i], Refusal: "no"})
			if err != nil {
				t.Fatal(err)
			}
			out = s.Out
		}
		step, err := turn.EndRound(out, inspect.EndClean)
		if err != nil || step.State != inspect.Done {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got, finish := gather(t, step.Out)
		for lane := range want {
			if strings.Join(got[lane], " ") != strings.Join(want[lane], " ") {
				t.Fatalf("seed %d lane %d: got %q, want %q from\n%s", seed, lane, got[lane], want[lane], step.Out)
			}
			if stopped := finish[lane] == "stop"; stopped != (len(want[lane]) == 0) {
				t.Fatalf("seed %d lane %d: finish %q with %d calls left", seed, lane, finish[lane], len(want[lane]))
			}
		}
	}
}

// gather reads a stream as a plain client does.
func gather(t *testing.T, out []byte) (args [2][]string, finish [2]string) {
	t.Helper()
	for line := range strings.Lines(string(out)) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var ev struct {
			Choices []struct {
				Index int
				Delta struct {
					ToolCalls []struct {
						Index    int
						ID       string
						Function struct{ Arguments string }
					} `json:"tool_calls"`
				}
				Finish string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal([]byte(data), &ev); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		for _, c := range ev.Choices {
			for _, call := range c.Delta.ToolCalls {
				if call.Index == len(args[c.Index]) && call.ID != "" {
					args[c.Index] = append(args[c.Index], "")
				}
				args[c.Index][call.Index] += call.Function.Arguments
			}
			if c.Finish != "" {
				finish[c.Index] = c.Finish
			}
		}
	}
	return args, finish
}
