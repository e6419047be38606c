package anthropic

import (
	"errors"
	"strings"
	"testing"

	"callgate/inspect"
	"callgate/inspect/toolcall"
)

func limited(t *testing.T, l inspect.Limits, contentType string) inspect.Turn {
	t.Helper()
	return open(t, Dialect{Limits: l}, `{"model":"m"}`, contentType)
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
