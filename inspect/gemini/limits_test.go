package gemini

import (
	"errors"
	"strings"
	"testing"

	"callgate/inspect"
	"callgate/inspect/toolcall"
)

const (
	eventStream = "text/event-stream"
	jsonBody    = "application/json"
)

func headOf(contentType string) inspect.Head {
	return inspect.Head{Status: 200, Header: map[string][]string{"Content-Type": {contentType}}}
}

func openTurn(t testing.TB, d Dialect, contentType string) (inspect.Request, inspect.Turn) {
	t.Helper()
	req, err := d.Request(inspect.Head{Method: "POST", Path: "/v1beta/models/m:streamGenerateContent"}, []byte(`{"contents":[{"role":"user","parts":[{"text":"go"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	turn, err := req.Open(headOf(contentType))
	if err != nil {
		t.Fatal(err)
	}
	return req, turn
}

func chunkOf(parts, finish string) string {
	if finish != "" {
		finish = `,"finishReason":"` + finish + `"`
	}
	return `{"candidates":[{"content":{"parts":[` + parts + `],"role":"model"}` + finish + `,"index":0}],"responseId":"r1"}`
}

func callPart(args string) string { return `{"functionCall":{"name":"sh","args":` + args + `}}` }

func sse(chunks ...string) string {
	var b strings.Builder
	for _, c := range chunks {
		b.WriteString("data: " + c + "\n\n")
	}
	return b.String()
}

func TestLimitsEndTheReading(t *testing.T) {
	long := `{"text":"` + strings.Repeat("x", 300) + `"}`
	call := chunkOf(callPart(`{"a":"`+strings.Repeat("y", 500)+`"}`), "")
	for _, c := range []struct {
		name, ct, body, reason string
		limits                 inspect.Limits
	}{
		{"an event", eventStream, sse(chunkOf(long, "")), "too large", inspect.Limits{Frame: 200}},
		{"an event without end", eventStream, "data: " + long, "too large", inspect.Limits{Frame: 200}},
		{"an element", jsonBody, "[" + chunkOf(long, ""), "too large", inspect.Limits{Frame: 200}},
		{"a document", jsonBody, "{" + long, "longer than the limit of 200", inspect.Limits{Answer: 200}},
		{"white space", jsonBody, strings.Repeat(" ", 300), "longer than the limit of 200", inspect.Limits{Answer: 200}},
		{"calls", eventStream, sse(strings.Split(strings.Repeat(call+"|", 3), "|")[:3]...), "more calls than the limit of 2", inspect.Limits{Calls: 2}},
		{"frames behind a call", eventStream, sse(call) + strings.Repeat(sse(chunkOf(`{"text":"a"}`, "")), 100), "wait behind a call", inspect.Limits{Held: 20_000}},
		{"blank lines behind a call", eventStream, sse(call) + strings.Repeat("\n", 2000), "wait behind a call", inspect.Limits{Held: 20_000}},
		{"arguments of all calls together", eventStream, sse(call, call, call, call), "1700 bytes", inspect.Limits{Held: 1700}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, turn := openTurn(t, Dialect{Limits: c.limits}, c.ct)
			var err error
			for i := 0; i < len(c.body) && err == nil; i += 50 {
				_, err = turn.Feed(nil, []byte(c.body[i:min(i+50, len(c.body))]))
			}
			if e, ok := errors.AsType[*inspect.Error](err); !ok || !e.Limit || !strings.Contains(e.Error(), c.reason) {
				t.Fatalf("the error is %v", err)
			}
			if out := string(turn.Abandon(nil, "over")); !strings.Contains(out, "over") || strings.Contains(out, "yyy") {
				t.Errorf("abandoned it gives %q", out)
			}
		})
	}
}

func TestArgumentsThatAreTooLongAreAFault(t *testing.T) {
	_, turn := openTurn(t, Dialect{Limits: inspect.Limits{Args: 20}}, eventStream)
	step, err := turn.Feed(nil, []byte(sse(chunkOf(callPart(`{"a":"`+strings.Repeat("y", 50)+`"}`), "STOP"))))
	if err != nil || len(step.Calls) != 1 || step.Calls[0].Fault != toolcall.FaultOversize || len(step.Calls[0].Args) != 20 {
		t.Errorf("%+v %v", step.Calls, err)
	}
}

// The sizes that a broken or hostile provider may send, against the limits that
// hold where nobody has set others.
func TestTheDefaultLimitsHold(t *testing.T) {
	huge := `{"a":"` + strings.Repeat("y", 10<<20) + `"}`
	for _, form := range []struct{ name, ct, open, end string }{
		{"events", eventStream, "data: ", "\n\n"}, {"an array", jsonBody, "[", "]"}, {"a document", jsonBody, "", ""},
	} {
		t.Run("10 MiB of arguments in "+form.name, func(t *testing.T) {
			_, turn := openTurn(t, Dialect{}, form.ct)
			step, err := turn.Feed(nil, []byte(form.open+chunkOf(callPart(huge), "STOP")+form.end))
			if err != nil {
				t.Fatal(err)
			}
			calls := step.Calls
			if step, err = turn.EndRound(step.Out, inspect.EndClean); err != nil {
				t.Fatal(err)
			}
			if calls = append(calls, step.Calls...); len(calls) != 1 || calls[0].Fault != toolcall.FaultOversize || len(calls[0].Args) != 1<<20 {
				t.Fatalf("%d calls came", len(calls))
			}
			if step, err = turn.Resolve(step.Out, 0, inspect.Ruling{Release: true}); err != nil || step.State != inspect.Done || strings.Contains(string(step.Out), "yyy") {
				t.Errorf("%v, state %d, shown %.200q", err, step.State, step.Out)
			}
		})
		t.Run("10,000 calls in "+form.name, func(t *testing.T) {
			_, turn := openTurn(t, Dialect{}, form.ct)
			_, err := turn.Feed(nil, []byte(form.open+chunkOf(strings.TrimSuffix(strings.Repeat(callPart(`{}`)+",", 10_000), ","), "STOP")+form.end))
			if err == nil {
				_, err = turn.EndRound(nil, inspect.EndClean)
			}
			if e, ok := errors.AsType[*inspect.Error](err); !ok || !e.Limit || !strings.Contains(e.Reason, "1000") {
				t.Fatalf("the error is %v", err)
			}
			if out := string(turn.Abandon(nil, "too many")); !strings.Contains(out, "too many") || strings.Contains(out, "functionCall") {
				t.Errorf("abandoned it gives %.300q", out)
			}
		})
	}
}

func TestDeepNestingIsWithheld(t *testing.T) {
	_, turn := openTurn(t, Dialect{}, eventStream)
	step, err := turn.Feed(nil, []byte(sse(chunkOf(callPart(`{"a":`+strings.Repeat("[", 300)+strings.Repeat("]", 300)+`}`), "STOP"))))
	if err != nil || len(step.Calls) != 1 || step.Calls[0].Fault != toolcall.FaultAmbiguous {
		t.Errorf("%+v %v", step.Calls, err)
	}
}

func TestWhatIsTooLongCannotBeToldOf(t *testing.T) {
	long := chunkOf(`{"text":"`+strings.Repeat("word ", 100)+`"}`, "")
	d := Dialect{Denial: inspect.DenialRepair, Limits: inspect.Limits{Answer: 300}}
	_, turn := openTurn(t, d, eventStream)
	step, err := turn.Feed(nil, []byte(sse(long, chunkOf(callPart(`{}`), "STOP"))))
	if err != nil {
		t.Fatal(err)
	}
	step, _ = turn.Resolve(step.Out, 0, inspect.Ruling{Refusal: "no to it"})
	step, _ = turn.EndRound(step.Out, inspect.EndClean)
	if step.State != inspect.Done || !strings.Contains(string(step.Out), "no to it") || turn.Told().Mend {
		t.Errorf("state %d, told %+v, shown\n%s", step.State, turn.Told(), step.Out)
	}

	_, turn = openTurn(t, d, eventStream)
	step, err = turn.Feed(nil, []byte(sse(chunkOf(callPart(`{}`), ""))))
	if err != nil {
		t.Fatal(err)
	}
	turn.Resolve(nil, 0, inspect.Ruling{Refusal: "no to it"})
	_, err = turn.Feed(nil, []byte(sse(long)))
	if e, ok := errors.AsType[*inspect.Error](err); !ok || !e.Limit {
		t.Fatalf("the error is %v", err)
	}
	turn.Abandon(nil, "too long")
	if told := turn.Told(); !told.Mend || len(told.Rounds[0].Refusals) != 1 {
		t.Errorf("told %+v", told)
	}
}

func TestATurnSaysHowMuchItKeeps(t *testing.T) {
	const size = 1 << 20
	words := strings.Repeat("0123456789abcdef", 64)
	text := chunkOf(`{"text":"`+words+`"}`, "")
	for _, c := range []struct {
		name, ct, begin, open, piece string
		denial                       inspect.Denial
		least                        int
	}{
		{"text", eventStream, "", "data: ", text, inspect.DenialRepair, size},
		{"text that nobody asks for later", eventStream, "", "data: ", text, inspect.DenialText, 0},
		{"text behind a call", eventStream, sse(chunkOf(callPart(`{}`), "")), "data: ", text, inspect.DenialText, size},
		{"calls in an array", jsonBody, "[" + chunkOf(callPart(`{}`), ""), ",", chunkOf(callPart(`{"a":"`+words+`"}`), ""), inspect.DenialText, size},
		{"an event that does not end", eventStream, "data: ", "", words, inspect.DenialText, size},
		{"a document", jsonBody, "{", "", words, inspect.DenialText, size},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, turn := openTurn(t, Dialect{Denial: c.denial, Limits: inspect.Limits{Calls: 5000}}, c.ct)
			step, err := turn.Feed(nil, []byte(c.begin))
			end := "\n\n"
			if c.open != "data: " {
				end = ""
			}
			for range size / len(words) {
				if err != nil {
					t.Fatal(err)
				}
				step, err = turn.Feed(nil, []byte(c.open+c.piece+end))
			}
			if err != nil || step.Held < c.least || step.Held > 4*c.least+8192 {
				t.Errorf("it keeps %d bytes of %d, %v", step.Held, size, err)
			}
		})
	}
}

func TestAFurtherRoundMustFit(t *testing.T) {
	round := sse(chunkOf(callPart(`{}`), "STOP"))
	_, turn := openTurn(t, Dialect{Denial: inspect.DenialRepair}, eventStream)
	refused := func(what, contentType string) {
		t.Helper()
		if err := turn.NextRound(headOf(contentType)); err == nil {
			t.Errorf("a round of type %q was begun %s", contentType, what)
		} else if _, ok := errors.AsType[*inspect.Error](err); !ok {
			t.Errorf("%v is no *inspect.Error", err)
		}
	}
	refused("before the first has ended", eventStream)
	turn.Feed(nil, []byte(round))
	turn.EndRound(nil, inspect.EndClean)
	if step, _ := turn.Resolve(nil, 0, inspect.Ruling{}); step.State != inspect.Suspended {
		t.Fatalf("the turn is in state %d", step.State)
	}
	refused("in another form", jsonBody)
	refused("without a type", "")
	if _, err := turn.Feed(nil, []byte("x")); err == nil {
		t.Error("bytes were taken between two rounds")
	}
	_, turn = openTurn(t, Dialect{Denial: inspect.DenialRepair}, eventStream)
	turn.Feed(nil, []byte(round))
	turn.EndRound(nil, inspect.EndClean)
	turn.Resolve(nil, 0, inspect.Ruling{})
	if err := turn.NextRound(headOf(eventStream)); err != nil {
		t.Fatal(err)
	}
	refused("a second time", eventStream)
	turn.Abandon(nil, "over")
	refused("behind the end", eventStream)
}
