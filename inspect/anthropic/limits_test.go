package anthropic

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"callgate/inspect"
	"callgate/inspect/toolcall"
)

func limited(t testing.TB, l inspect.Limits, contentType string) inspect.Turn {
	t.Helper()
	return open(t, Dialect{Limits: l}, `{"model":"m","tools":[{"type":"web_search_20250305","name":"web_search"}]}`, contentType)
}

func manyOf(n int, one func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(one(i))
	}
	return b.String()
}

const (
	eventStream = "text/event-stream"
	jsonBody    = "application/json"
)

func TestLimitsEndTheReading(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		name   string
		limits inspect.Limits
		ct     string
		body   string
		reason string
	}{
		{"an event", inspect.Limits{Frame: 200}, eventStream, sse(textEvents(0, long)...), "the event is too large"},
		{"an event without end", inspect.Limits{Frame: 200}, eventStream, "data: " + long, "the event is too large"},
		{"bytes behind a call", inspect.Limits{Held: 700}, eventStream,
			join([]string{messageStart()}, callEvents(0, "c1"), textEvents(1, long)), "wait behind a call"},
		{"calls", inspect.Limits{Calls: 2}, eventStream,
			join([]string{messageStart()}, callEvents(0, "c1"), callEvents(1, "c2"), callEvents(2, "c3")), "more calls than the limit of 2"},
		{"events that cannot be read", inspect.Limits{Calls: 2}, eventStream,
			strings.Repeat("x: y\n\n"+pingOut, 3), "more calls than the limit of 2"},
		{"small events behind a call", inspect.Limits{Held: 30_000}, eventStream,
			sse(messageStart()) + join(callEvents(0, "c1")) + strings.Repeat(sse(`{"type":"message_delta","delta":{},"usage":{}}`), 200), "wait behind a call"},
		{"blank lines behind a call", inspect.Limits{Held: 2000}, eventStream,
			join([]string{messageStart()}, callEvents(0, "c1")) + strings.Repeat("\n", 2000), "wait behind a call"},
		{"the arguments of all calls together", inspect.Limits{Held: 3000, Args: 1000}, eventStream,
			sse(messageStart()) + manyOf(9, func(i int) string {
				return sse(blockStart(i, fmt.Sprintf(`{"type":"tool_use","id":"d%d","name":"Bash","input":{"a":"%s"}}`, i, long+long)), blockStop(i))
			}), "bytes"},
		{"the pieces of calls together", inspect.Limits{Held: 3000, Args: 1000}, eventStream,
			sse(messageStart()) + manyOf(9, func(i int) string {
				return sse(blockStart(i, fmt.Sprintf(`{"type":"tool_use","id":"d%d","name":"Bash","input":{}}`, i)),
					blockDelta(i, `{"type":"input_json_delta","partial_json":"`+long+`"}`), blockDelta(i, `{"type":"input_json_delta","partial_json":"`+long+`"}`), blockStop(i))
			}), "bytes"},
		{"long names of calls", inspect.Limits{Held: 3000}, eventStream,
			sse(messageStart()) + manyOf(9, func(i int) string {
				return sse(blockStart(i, fmt.Sprintf(`{"type":"tool_use","id":"d%d%s","name":"%s","input":{}}`, i, long, long)), blockStop(i))
			}), "bytes"},
		{"unreadable events together", inspect.Limits{Held: 3000}, eventStream,
			strings.Repeat("x: "+long+"\n\n"+pingOut, 12), "the calls of the answer hold more than 3000 bytes"},
		{"what the provider's calls hold", inspect.Limits{Held: 3000}, eventStream,
			sse(messageStart(), blockStart(0, `{"type":"server_tool_use","id":"s","name":"web_search","input":{}}`)) +
				strings.Repeat(sse(blockDelta(0, `{"type":"input_json_delta","partial_json":"`+long+`"}`)), 12), "the calls of the answer hold more than 3000 bytes"},
		{"calls of the provider's own", inspect.Limits{Calls: 2}, eventStream,
			sse(messageStart()) + manyOf(3, func(i int) string {
				return sse(blockStart(i, `{"type":"server_tool_use","id":"s","name":"web_search","input":{}}`), blockStop(i))
			}), "more calls of the provider's own than the limit of 2"},
		{"open blocks", inspect.Limits{}, eventStream,
			sse(messageStart()) + manyOf(101, func(i int) string { return sse(blockStart(i, `{"type":"text","text":""}`)) }), "more than 100 blocks are open at once"},
		{"a document", inspect.Limits{Answer: 200}, jsonBody, `{"type":"message","x":"` + long, "the answer is longer than the limit of 200 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			turn := limited(t, c.limits, c.ct)
			step, err := turn.Feed([]byte("kept"), []byte(c.body))
			e, ok := errors.AsType[*inspect.Error](err)
			if !ok || !e.Limit || e.Dialect != Name || !strings.Contains(err.Error(), c.reason) {
				t.Fatalf("the error is %v", err)
			}
			if !strings.HasPrefix(string(step.Out), "kept") || strings.Contains(string(step.Out), "c1") {
				t.Errorf("given out was %q", step.Out)
			}
			if _, again := turn.Feed(nil, []byte("\n\n")); again == nil {
				t.Error("it could be fed after its error")
			}
			if _, again := turn.EndRound(nil, inspect.EndClean); again == nil {
				t.Error("it could be ended after its error")
			}
			out := string(turn.Abandon(nil, "too much"))
			if !strings.Contains(out, "too much") || strings.Contains(out, "tool_use\"") {
				t.Errorf("abandoned with %q", out)
			}
			if !turn.Record().Altered {
				t.Error("the record does not say that the answer was altered")
			}
		})
	}
}

func TestACallInTheDocumentPastTheLimit(t *testing.T) {
	turn := limited(t, inspect.Limits{Calls: 1}, jsonBody)
	feed(t, turn, `{"type":"message","content":[{"type":"tool_use","id":"a","name":"x","input":{}},{"type":"tool_use","id":"b","name":"x","input":{}}]}`)
	_, err := turn.EndRound(nil, inspect.EndClean)
	if e, ok := errors.AsType[*inspect.Error](err); !ok || !e.Limit {
		t.Fatalf("the error is %v", err)
	}
	if out := string(turn.Abandon(nil, "too many")); strings.Contains(out, "tool_use") || !strings.Contains(out, "too many") {
		t.Errorf("abandoned with %s", out)
	}
}

func TestCallsOfTheProviderInADocumentPastTheLimit(t *testing.T) {
	turn := limited(t, inspect.Limits{Calls: 2}, jsonBody)
	one := `{"type":"server_tool_use","id":"s","name":"web_search","input":{}}`
	feed(t, turn, `{"type":"message","content":[`+one+","+one+","+one+`]}`)
	_, err := turn.EndRound(nil, inspect.EndClean)
	if e, ok := errors.AsType[*inspect.Error](err); !ok || !e.Limit {
		t.Fatalf("the error is %v", err)
	}
	if out := string(turn.Abandon(nil, "too many")); strings.Contains(out, "web_search") || !strings.Contains(out, "too many") {
		t.Errorf("abandoned with %s", out)
	}
}

func TestCallsThatWereGivenOutCountAmongAllArguments(t *testing.T) {
	turn := limited(t, inspect.Limits{Held: 3000}, eventStream)
	feed(t, turn, sse(messageStart()))
	for i := range 20 {
		_, err := turn.Feed(nil, []byte(sse(blockStart(i, fmt.Sprintf(`{"type":"tool_use","id":"d%d","name":"Bash","input":{"a":"%s"}}`, i, strings.Repeat("x", 290))), blockStop(i))))
		if err != nil {
			if !strings.Contains(err.Error(), "event 20: the calls of the answer hold more than 3000 bytes") {
				t.Errorf("the error is %v", err)
			}
			return
		}
		resolve(t, turn, i, inspect.Ruling{Release: true})
	}
	t.Error("no limit was met")
}

func TestBlankLinesBehindACallCostTheirBytesAndNoMore(t *testing.T) {
	const n = 4 << 20
	turn := openStream(t)
	feed(t, turn, join([]string{messageStart()}, callEvents(0, "c1")))
	lines := []byte(strings.Repeat("\n", n))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	feed(t, turn, string(lines))
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 3*n {
		t.Errorf("%d bytes are held of %d", grown, n)
	}
	out := resolve(t, turn, 0, inspect.Ruling{Release: true}).Out
	if !bytes.HasSuffix(out, lines) {
		t.Error("the blank lines did not come out behind the call")
	}
}

func TestManyOpenBlocksTakeNoLongTime(t *testing.T) {
	// Were blocks that are open, or calls, looked through for each event, this
	// would be a matter of minutes.
	var b strings.Builder
	b.WriteString(sse(messageStart()))
	for i := range 90 {
		b.WriteString(sse(blockStart(i, `{"type":"thinking","thinking":"","signature":""}`)))
	}
	for range 40_000 {
		b.WriteString(sse(blockDelta(0, `{"type":"thinking_delta","thinking":"x"}`)))
	}
	turn := openStream(t)
	if got := feed(t, turn, b.String()); len(got.Out) != b.Len() {
		t.Errorf("%d bytes of %d came out", len(got.Out), b.Len())
	}
}

func TestArgumentsPastTheLimitAreAFault(t *testing.T) {
	long := strings.Repeat("x", 100)
	start := blockStart(0, `{"type":"tool_use","id":"c1","name":"Bash","input":{}}`)
	piece := blockDelta(0, `{"type":"input_json_delta","partial_json":"`+long+`"}`)
	for _, c := range []struct {
		name, ct, body string
	}{
		{"in one delta", eventStream, sse(messageStart(), start, piece, blockStop(0))},
		{"in many deltas", eventStream, sse(messageStart(), start) + strings.Repeat(sse(blockDelta(0, `{"type":"input_json_delta","partial_json":"123456789"}`)), 20) + sse(blockStop(0))},
		{"in escapes", eventStream, sse(messageStart(), start, blockDelta(0, `{"type":"input_json_delta","partial_json":"`+strings.Repeat(`\u0041`, 200)+`"}`), blockStop(0))},
		{"in the start", eventStream, sse(messageStart(), blockStart(0, `{"type":"tool_use","id":"c1","name":"Bash","input":{"a":"`+long+`"}}`), blockStop(0))},
		{"in a document", jsonBody, `{"type":"message","content":[{"type":"tool_use","id":"c1","name":"Bash","input":{"a":"` + long + `"}}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			turn := limited(t, inspect.Limits{Args: 64}, c.ct)
			step := feed(t, turn, c.body)
			calls := step.Calls
			out := string(step.Out)
			step = end(t, turn, inspect.EndClean)
			calls = append(calls, step.Calls...)
			if len(calls) != 1 || calls[0].Fault != toolcall.FaultOversize || len(calls[0].Args) > 600 {
				t.Fatalf("the calls are %+v", calls)
			}
			out += string(step.Out) + string(resolve(t, turn, 0, inspect.Ruling{Release: true}).Out)
			if strings.Contains(out, "xxx") || !strings.Contains(out, inspect.NoReason) {
				t.Errorf("shown was %s", out)
			}
		})
	}
}

func TestDeepArgumentsAreAFault(t *testing.T) {
	turn := limited(t, inspect.Limits{Depth: 10}, eventStream)
	deep := strings.Repeat(`{\"a\":`, 11) + "1" + strings.Repeat("}", 11)
	step := feed(t, turn, sse(messageStart(), blockStart(0, `{"type":"tool_use","id":"c1","name":"Bash","input":{}}`),
		blockDelta(0, `{"type":"input_json_delta","partial_json":"`+deep+`"}`), blockStop(0)))
	if len(step.Calls) != 1 || step.Calls[0].Fault == toolcall.FaultNone || !strings.Contains(step.Calls[0].Detail, "deep") {
		t.Errorf("the calls are %+v", step.Calls)
	}
}

func TestAFaultSaysWhereAndWhy(t *testing.T) {
	turn := openStream(t)
	step := feed(t, turn, sse(messageStart())+"event: ping\ndata: {\"type\":\"pong\"}\n\n")
	want(t, "detail", step.Calls[0].Detail, `event 2: the event is named "ping" and its data says "pong"`)
}

func TestAFaultDoesNotQuoteAllOfALongWord(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	for _, body := range []string{
		sse(messageStart()) + "event: ping\ndata: {\"type\":\"" + long + "\"}\n\n",
		sse(messageStart(), blockStart(0, `{"type":"`+long+`"}`), blockStop(0)),
		sse(messageStart(), blockStart(0, `{"type":"server_tool_use","name":"`+long+`","id":"s"}`), blockStop(0)),
		sse(messageStart(), blockStart(0, `{"type":"text","`+long+`":{"input":{}}}`)),
	} {
		turn := openStream(t)
		step := feed(t, turn, body)
		if len(step.Calls) != 1 || step.Calls[0].Fault == toolcall.FaultNone || len(step.Calls[0].Detail) > 600 || !utf8.ValidString(step.Calls[0].Detail) {
			t.Errorf("%d calls of %.40q", len(step.Calls), body[len(sse(messageStart())):])
		}
	}
}

func TestNothingIsFedBehindTheEnd(t *testing.T) {
	for _, ct := range []string{eventStream, jsonBody} {
		turn := limited(t, inspect.Limits{}, ct)
		end(t, turn, inspect.EndCut)
		if _, err := turn.Feed(nil, []byte("x")); err == nil {
			t.Errorf("%s: it could be fed behind its end", ct)
		}
		if step, err := turn.EndRound([]byte("a"), inspect.EndClean); err != nil || string(step.Out) != "a" || len(step.Calls) > 0 {
			t.Errorf("%s: a second end gave %+v, %v", ct, step, err)
		}
	}
}

func TestAFaultyCallIsNeverReleased(t *testing.T) {
	turn := openStream(t)
	feed(t, turn, join([]string{messageStart(), blockStart(0, `{"type":"frob_use","id":"f1","input":{}}`), blockStop(0)}, messageEnd("tool_use")))
	out := string(resolve(t, turn, 0, inspect.Ruling{Release: true, Args: []byte(`{}`)}).Out)
	if strings.Contains(out, "frob") || !strings.Contains(out, inspect.NoReason) {
		t.Errorf("shown was %s", out)
	}
}

func TestTheRulingsArgumentsAreCopied(t *testing.T) {
	turn := openStream(t)
	feed(t, turn, join([]string{messageStart()}, callEvents(0, "c1"), callEvents(1, "c2"), messageEnd("tool_use")))
	args := []byte(`{"command":"mine"}`)
	out := string(resolve(t, turn, 1, inspect.Ruling{Release: true, Args: args}).Out)
	clear(args)
	out += string(resolve(t, turn, 0, inspect.Ruling{Release: true}).Out)
	if !strings.Contains(out, `{\"command\":\"mine\"}`) {
		t.Errorf("shown was %s", out)
	}
}

func TestAnIdThatComesTwiceAmongManyCalls(t *testing.T) {
	for _, n := range []int{2, fewCalls, fewCalls + 1, 3 * fewCalls} {
		turn := openStream(t)
		events := []string{messageStart()}
		for i := range n {
			events = append(events, callEvents(i, fmt.Sprint("c", i))...)
		}
		events = append(events, callEvents(n, "c0")...)
		events = append(events, callEvents(n+1, fmt.Sprint("c", n-1))...)
		for i, c := range feed(t, turn, sse(events...)).Calls {
			if twice := i >= n; (c.Fault == toolcall.FaultAmbiguous) != twice {
				t.Errorf("of %d calls number %d has the fault %v", n, i, c.Fault)
			}
		}
	}
}

func TestTurnsThatWaitAtOnceDoNotMix(t *testing.T) {
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			for round := range 50 {
				turn := openStream(t)
				text := strings.Repeat(fmt.Sprint(i), 1000*(round%100))
				body := join([]string{messageStart()}, textEvents(0, "a"), callEvents(1, "c1"), textEvents(2, text), callEvents(3, "c2"), messageEnd("tool_use"))
				out := feed(t, turn, body).Out
				for seq := range 2 {
					out = append(out, resolve(t, turn, seq, inspect.Ruling{Release: true}).Out...)
				}
				if out = append(out, end(t, turn, inspect.EndClean).Out...); string(out) != body {
					t.Fatalf("shown was\n%s", out)
				}
			}
		})
	}
}

func TestADocumentWithoutContentHoldsNothing(t *testing.T) {
	for _, body := range []string{`{"type":"message","content":null,"usage":{}}`, `{"type":"message"}`, `{"type":"message","content":[ ]}`} {
		turn := limited(t, inspect.Limits{}, jsonBody)
		feed(t, turn, body)
		if step := end(t, turn, inspect.EndClean); string(step.Out) != body || step.State != inspect.Done {
			t.Errorf("%s is shown as %s, in state %d", body, step.Out, step.State)
		}
	}
}
