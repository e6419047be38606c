package responses

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"callgate/inspect"
	"callgate/inspect/toolcall"
)

func opened(t testing.TB, d Dialect, body, contentType string) inspect.Turn {
	t.Helper()
	req, err := d.Request(inspect.Head{Method: "POST", Path: "/v1/responses"}, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	turn, err := req.Open(inspect.Head{Status: 200, Header: http.Header{"Content-Type": {contentType}}})
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

func limited(t testing.TB, l inspect.Limits, contentType string) inspect.Turn {
	t.Helper()
	return opened(t, Dialect{Limits: l}, `{"model":"m","tools":[{"type":"web_search"}]}`, contentType)
}

// wire writes the events of a stream, with their numbers.
type wire struct {
	strings.Builder
	n int
}

func (w *wire) event(typ, members string) *wire {
	fmt.Fprintf(w, "event: response.%s\ndata: {\"type\":\"response.%s\",\"sequence_number\":%d,%s}\n\n", typ, typ, w.n, members)
	w.n++
	return w
}

func begun() *wire {
	return new(wire).event("created", `"response":{"id":"resp_1","object":"response","status":"in_progress","output":[]}`)
}

func (w *wire) text(i int, s string) *wire {
	at := fmt.Sprintf(`"item_id":"msg_%d","output_index":%d`, i, i)
	w.event("output_item.added", fmt.Sprintf(`"output_index":%d,"item":{"id":"msg_%d","type":"message","status":"in_progress","content":[],"role":"assistant"}`, i, i))
	w.event("output_text.delta", at+`,"content_index":0,"delta":"`+s+`"`)
	return w.event("output_item.done", fmt.Sprintf(`"output_index":%d,"item":{"id":"msg_%d","type":"message","status":"completed","content":[{"type":"output_text","annotations":[],"text":"%s"}],"role":"assistant"}`, i, i, s))
}

// call writes a call whose arguments come in pieces of at most so many bytes.
func (w *wire) call(i int, id, args string, piece int) *wire {
	item := func(status, args string) string {
		return fmt.Sprintf(`"output_index":%d,"item":{"id":"fc_%d","type":"function_call","status":"%s","arguments":%s,"call_id":"%s","name":"bash"}`, i, i, status, strconv.Quote(args), id)
	}
	w.event("output_item.added", item("in_progress", ""))
	for rest := args; rest != "" && piece > 0; {
		n := min(piece, len(rest))
		w.event("function_call_arguments.delta", fmt.Sprintf(`"item_id":"fc_%d","output_index":%d,"delta":%s`, i, i, strconv.Quote(rest[:n])))
		rest = rest[n:]
	}
	return w.event("output_item.done", item("completed", args))
}

func (w *wire) end() *wire {
	return w.event("completed", `"response":{"id":"resp_1","object":"response","status":"completed","output":[]}`)
}

func many(n int, one func(w *wire, i int)) string {
	w := begun()
	for i := range n {
		one(w, i)
	}
	return w.String()
}

func TestLimitsEndTheReading(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		name   string
		limits inspect.Limits
		ct     string
		body   string
		reason string
	}{
		{"an event", inspect.Limits{Frame: 200}, eventStream, begun().text(0, long).String(), "the event is too large"},
		{"an event without end", inspect.Limits{Frame: 200}, eventStream, "data: " + long, "the event is too large"},
		{"bytes behind a call", inspect.Limits{Held: 1500}, eventStream, begun().call(0, "c1", "{}", 9).text(1, long).text(2, long).String(), "wait behind a call"},
		{"calls", inspect.Limits{Calls: 2}, eventStream, begun().call(0, "c1", "{}", 9).call(1, "c2", "{}", 9).call(2, "c3", "{}", 9).String(), "more calls than the limit of 2"},
		{"events that cannot be read", inspect.Limits{Calls: 2}, eventStream,
			strings.Repeat("x: y\n\ndata: {\"type\":\"ping\"}\n\n", 3), "more calls than the limit of 2"},
		{"small events behind a call", inspect.Limits{Held: 30_000}, eventStream,
			begun().call(0, "c1", "{}", 9).String() + strings.Repeat("data: {\"type\":\"ping\"}\n\n", 200), "wait behind a call"},
		{"blank lines behind a call", inspect.Limits{Held: 3000}, eventStream, begun().call(0, "c1", "{}", 9).String() + strings.Repeat("\n", 3000), "wait behind a call"},
		{"the arguments of all calls together", inspect.Limits{Held: 3000, Args: 1000}, eventStream,
			many(9, func(w *wire, i int) { w.call(i, fmt.Sprint("d", i), `{"a":"`+long+long+`"}`, 0) }), "bytes"},
		{"the pieces of calls together", inspect.Limits{Held: 3000, Args: 1000}, eventStream,
			many(9, func(w *wire, i int) { w.call(i, fmt.Sprint("d", i), `{"a":"`+long+long+`"}`, 300) }), "bytes"},
		{"long ids of calls", inspect.Limits{Held: 3000}, eventStream, many(9, func(w *wire, i int) { w.call(i, fmt.Sprint("d", i, long, long), `{}`, 0) }), "bytes"},
		{"unreadable events together", inspect.Limits{Held: 3000}, eventStream,
			strings.Repeat("x: "+long+"\n\ndata: {\"type\":\"ping\"}\n\n", 12), "bytes"},
		{"calls of the provider's own", inspect.Limits{Calls: 2}, eventStream,
			many(3, func(w *wire, i int) {
				w.event("output_item.done", fmt.Sprintf(`"output_index":%d,"item":{"id":"ws_%d","type":"web_search_call","status":"completed"}`, i, i))
			}), "more calls of the provider's own than the limit of 2"},
		{"a document", inspect.Limits{Answer: 200}, jsonBody, `{"object":"response","x":"` + long, "the answer is longer than the limit of 200 bytes"},
		{"calls of a document", inspect.Limits{Calls: 1}, jsonBody,
			`{"object":"response","output":[{"type":"function_call","call_id":"a","name":"x","arguments":"{}"},{"type":"function_call","call_id":"b","name":"x","arguments":"{}"}]}`, "more calls than the limit of 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			turn := limited(t, c.limits, c.ct)
			step, err := turn.Feed([]byte("kept"), []byte(c.body))
			if err == nil {
				_, err = turn.EndRound(nil, inspect.EndClean)
			}
			e, ok := errors.AsType[*inspect.Error](err)
			if !ok || !e.Limit || e.Dialect != Name || !strings.Contains(err.Error(), c.reason) {
				t.Fatalf("reading ended with %v", err)
			}
			if !strings.HasPrefix(string(step.Out), "kept") {
				t.Errorf("the step gave out %q", step.Out)
			}
			if _, again := turn.Feed(nil, []byte("x")); again == nil {
				t.Error("it could be fed behind its end")
			}
			out := string(turn.Abandon(nil, "Given up."))
			if !strings.Contains(out, "Given up.") || strings.Contains(out, "c1") || strings.Contains(out, "xxx") {
				t.Errorf("given up it shows %s", out)
			}
		})
	}
}

// What one call may hold is bounded apart from all else: the call is withheld
// and the answer goes on.
func TestLongArgumentsAreAFault(t *testing.T) {
	long := strings.Repeat("x", 10<<20)
	for _, c := range []struct{ name, ct, body string }{
		{"in pieces", eventStream, begun().call(0, "c1", `{"a":"`+long+`"}`, 1000).text(1, "Then.").end().String()},
		{"in the item", eventStream, begun().call(0, "c1", `{"a":"`+long+`"}`, 0).text(1, "Then.").end().String()},
		{"in a document", jsonBody, `{"object":"response","output":[{"type":"function_call","id":"f","call_id":"c1","name":"bash","arguments":"{\"a\":\"` + long + `\"}"}]}`},
		{"as a value", jsonBody, `{"object":"response","output":[{"type":"shell_call","id":"f","call_id":"c1","action":{"commands":["` + long + `"]}}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			turn := limited(t, inspect.Limits{}, c.ct)
			var m1, m2 runtime.MemStats
			runtime.ReadMemStats(&m1)
			step, err := turn.Feed(nil, []byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			calls, out := step.Calls, string(step.Out)
			end, err := turn.EndRound(nil, inspect.EndClean)
			if err != nil {
				t.Fatal(err)
			}
			calls, out = append(calls, end.Calls...), out+string(end.Out)
			runtime.ReadMemStats(&m2)
			if len(calls) != 1 || calls[0].Fault != toolcall.FaultOversize || len(calls[0].Args) > 1<<20+600 {
				t.Fatalf("%d calls", len(calls))
			}
			if took := m2.TotalAlloc - m1.TotalAlloc; took > 400<<20 {
				t.Errorf("it took %d MiB", took>>20)
			}
			last, err := turn.Resolve(nil, 0, inspect.Ruling{Release: true})
			if err != nil || last.State != inspect.Done {
				t.Fatalf("state %d, %v", last.State, err)
			}
			if out += string(last.Out); strings.Contains(out, "xxx") || !strings.Contains(out, inspect.NoReason) {
				t.Errorf("shown was %.300s", out)
			}
		})
	}
}

func TestTenThousandCallsEndTheReading(t *testing.T) {
	body := many(10_000, func(w *wire, i int) { w.call(i, fmt.Sprint("call_", i), `{}`, 0) })
	turn := limited(t, inspect.Limits{}, eventStream)
	step, err := turn.Feed(nil, []byte(body))
	if e, ok := errors.AsType[*inspect.Error](err); !ok || !e.Limit || !strings.Contains(e.Reason, "more calls than the limit of 1000") {
		t.Fatal(err)
	}
	if len(step.Calls) != 1000 || strings.Contains(string(step.Out), "call_") {
		t.Errorf("%d calls, and shown was %.300s", len(step.Calls), step.Out)
	}
}

func TestDeepArgumentsAreAFault(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 250) + "1" + strings.Repeat("}", 250)
	turn := limited(t, inspect.Limits{}, eventStream)
	step, err := turn.Feed(nil, []byte(begun().call(0, "c1", deep, 100).String()))
	if err != nil || len(step.Calls) != 1 || step.Calls[0].Fault == toolcall.FaultNone || !strings.Contains(step.Calls[0].Detail, "deep") {
		t.Errorf("the calls are %+v, %v", step.Calls, err)
	}
}

func TestAFaultDoesNotQuoteAllOfALongWord(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	for _, w := range []*wire{
		begun().event("output_item.added", `"output_index":0,"item":{"type":"`+long+`"}`).event("output_item.done", `"output_index":0,"item":{"type":"`+long+`"}`),
		begun().event(long, `"x":1`),
		begun().event("output_text.delta", `"output_index":0,"`+long+`":{"input":{}}`),
	} {
		turn := limited(t, inspect.Limits{}, eventStream)
		step, err := turn.Feed(nil, []byte(w.String()))
		if err != nil || len(step.Calls) != 1 || step.Calls[0].Fault == toolcall.FaultNone || len(step.Calls[0].Detail) > 600 || !utf8.ValidString(step.Calls[0].Detail) {
			t.Errorf("%d calls, %v", len(step.Calls), err)
		}
	}
}

func TestNothingIsFedBehindTheEnd(t *testing.T) {
	for _, ct := range []string{eventStream, jsonBody} {
		turn := limited(t, inspect.Limits{}, ct)
		if _, err := turn.EndRound(nil, inspect.EndCut); err != nil {
			t.Fatal(err)
		}
		if _, err := turn.Feed(nil, []byte("x")); err == nil {
			t.Errorf("%s: it could be fed behind its end", ct)
		}
		if step, err := turn.EndRound([]byte("a"), inspect.EndClean); err != nil || string(step.Out) != "a" || len(step.Calls) > 0 {
			t.Errorf("%s: a second end gave %+v, %v", ct, step, err)
		}
	}
}

func TestAFaultyCallIsNeverReleased(t *testing.T) {
	turn := limited(t, inspect.Limits{}, eventStream)
	step, err := turn.Feed(nil, []byte(begun().call(0, "c1", `{"a":1,"a":2}`, 4).end().String()))
	if err != nil || len(step.Calls) != 1 {
		t.Fatal(step.Calls, err)
	}
	step, err = turn.Resolve(nil, 0, inspect.Ruling{Release: true, Args: []byte(`{}`)})
	if out := string(step.Out); err != nil || strings.Contains(out, "fc_0") || !strings.Contains(out, inspect.NoReason) {
		t.Errorf("shown was %s, %v", out, err)
	}
}

func TestTheRulingsArgumentsAreCopied(t *testing.T) {
	turn := limited(t, inspect.Limits{}, eventStream)
	if _, err := turn.Feed(nil, []byte(begun().call(0, "c1", `{}`, 4).call(1, "c2", `{}`, 4).end().String())); err != nil {
		t.Fatal(err)
	}
	args := []byte(`{"command":"mine"}`)
	one, err1 := turn.Resolve(nil, 1, inspect.Ruling{Release: true, Args: args})
	clear(args)
	two, err2 := turn.Resolve(nil, 0, inspect.Ruling{Release: true})
	if out := string(one.Out) + string(two.Out); !strings.Contains(out, `{\"command\":\"mine\"}`) || err1 != nil || err2 != nil {
		t.Errorf("shown was %s, %v, %v", out, err1, err2)
	}
}

// What a turn keeps is said with each step, so that it can be charged.
func TestAStepSaysWhatIsKept(t *testing.T) {
	const size = 100_000
	long := strings.Repeat("x", size)
	open := begun()
	open.event("output_item.added", `"output_index":0,"item":{"id":"msg_0","type":"message","status":"in_progress","content":[],"role":"assistant"}`)
	open.event("output_text.delta", `"item_id":"msg_0","output_index":0,"content_index":0,"delta":"`+long+`"`)
	for _, c := range []struct{ name, ct, body string }{
		{"a text under way", eventStream, open.String()},
		{"a text that has ended", eventStream, begun().text(0, long).String()},
		{"a call", eventStream, begun().call(0, "c1", `{"a":"`+long+`"}`, 1000).String()},
		{"what waits behind a call", eventStream, begun().call(0, "c1", `{}`, 9).text(1, long).String()},
		{"a document", jsonBody, `{"x":"` + long},
	} {
		step, err := limited(t, inspect.Limits{}, c.ct).Feed(nil, []byte(c.body))
		if err != nil || step.Held < size || step.Held > 8*size {
			t.Errorf("%s: it keeps %d bytes, %v", c.name, step.Held, err)
		}
	}
}

// A sign of life holds the items so far where they are few, and never too many.
func TestASignOfLifeIsBounded(t *testing.T) {
	turn := limited(t, inspect.Limits{}, eventStream)
	if out := turn.KeepAlive(nil); len(out) > 0 {
		t.Errorf("before the start there is %s", out)
	}
	feed := func(w *wire) {
		if _, err := turn.Feed(nil, []byte(w.String())); err != nil {
			t.Fatal(err)
		}
	}
	w := begun().text(0, "One.")
	feed(w)
	if out := string(turn.KeepAlive(nil)); !strings.Contains(out, "response.in_progress") || !strings.Contains(out, "One.") {
		t.Errorf("there is %s", out)
	}
	w.Reset()
	feed(w.text(1, strings.Repeat("x", maxRepeated)))
	if out := string(turn.KeepAlive(nil)); len(out) > 1000 || !strings.Contains(out, `"output":[]`) {
		t.Errorf("there is %.1000s", out)
	}
	if _, err := turn.EndRound(nil, inspect.EndCut); err != nil {
		t.Fatal(err)
	}
	if out := turn.KeepAlive(nil); len(out) > 0 {
		t.Errorf("behind the end there is %s", out)
	}
}
