package openaichat

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"

	"callgate/inspect"
)

func openRepair(t testing.TB, lim inspect.Limits, head inspect.Head) inspect.Turn {
	t.Helper()
	r, err := Dialect{Limits: lim, Denial: inspect.DenialRepair}.Request(inspect.Head{}, []byte(`{"model":"asked","stream":true,"messages":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	turn, err := r.Open(head)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

var refusedRound = chunk(0, `{"role":"assistant","content":"a"}`, "null") + chunk(0, callDelta(0, "zqc", "zqf", "{}"), "null") +
	chunk(0, `{}`, `"tool_calls"`) + "data: [DONE]\n\n"

const refusedDocument = `{"id":"cc","created":5,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a",` +
	`"tool_calls":[{"id":"zqc","type":"function","function":{"name":"zqf","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`

// suspendTurn gives a turn that is suspended and what it has shown.
func suspendTurn(t testing.TB, head inspect.Head) (inspect.Turn, string) {
	t.Helper()
	turn := openRepair(t, inspect.Limits{}, head)
	body := refusedRound
	if head.Header.Get("Content-Type") == "application/json" {
		body = refusedDocument
	}
	step, err := turn.Feed(nil, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	out := string(step.Out)
	if step, err = turn.EndRound(nil, inspect.EndClean); err != nil || step.State != inspect.Waiting {
		t.Fatalf("%v in state %d", err, step.State)
	}
	out += string(step.Out)
	if step, err = turn.Resolve(nil, 0, inspect.Ruling{Refusal: "no"}); err != nil || step.State != inspect.Suspended {
		t.Fatalf("%v in state %d", err, step.State)
	}
	return turn, out + string(step.Out)
}

func TestAFurtherRoundMustHaveTheSameForm(t *testing.T) {
	for _, head := range []inspect.Head{streamHead, documentHead} {
		other := streamHead
		if head.Header.Get("Content-Type") == "text/event-stream" {
			other = documentHead
		}
		turn, _ := suspendTurn(t, head)
		for _, h := range []inspect.Head{other, {Status: 200, Header: map[string][]string{"Content-Type": {"text/html"}}}} {
			err := turn.NextRound(h)
			if _, ok := errors.AsType[*inspect.Error](err); !ok {
				t.Errorf("%v goes on with %v: %v", head.Header, h.Header, err)
			}
		}
		if step, err := turn.EndRound(nil, inspect.EndClean); err != nil || step.State != inspect.Suspended || len(step.Out) > 0 {
			t.Errorf("the error has changed the turn: %v, %+v", err, step)
		}
		if err := turn.NextRound(head); err != nil {
			t.Errorf("it does not go on: %v", err)
		}
		if err := turn.NextRound(head); err == nil {
			t.Error("a round was begun within another one")
		}
		if r := turn.Record(); r.Rounds != 2 {
			t.Errorf("the record has %d rounds", r.Rounds)
		}
	}
}

func TestOnlyASuspendedTurnGoesOn(t *testing.T) {
	turn := openRepair(t, inspect.Limits{}, streamHead)
	if err := turn.NextRound(streamHead); err == nil {
		t.Error("a turn that has just begun goes on")
	}
	turn, _ = suspendTurn(t, streamHead)
	turn.Abandon(nil, "given up")
	if err := turn.NextRound(streamHead); err == nil {
		t.Error("a turn that was abandoned goes on")
	}
}

// TestTextLeavesNoTurnSuspended: without repair a turn ends as it ever did.
func TestTextLeavesNoTurnSuspended(t *testing.T) {
	turn := openTurn(t, inspect.Limits{}, `{"stream":true}`, streamHead)
	step := feed(t, turn, refusedRound)
	if step, err := turn.Resolve(step.Out, 0, inspect.Ruling{Refusal: "no"}); err != nil || !bytes.Contains(step.Out, []byte(doneData)) {
		t.Fatalf("%v: %q", err, step.Out)
	}
	if step, err := turn.EndRound(nil, inspect.EndClean); err != nil || step.State != inspect.Done || turn.Told().Mend {
		t.Errorf("%v in state %d: %+v", err, step.State, turn.Told())
	}
}

func TestFailEndsAnAnswerAsAnError(t *testing.T) {
	const want = `{"error":{"message":"not \"so\"","type":"callgate_refused","param":null,"code":null}}`
	turn := openRepair(t, inspect.Limits{}, streamHead)
	feed(t, turn, refusedRound)
	if got := string(turn.Fail([]byte("x"), `not "so"`)); got != "xdata: "+want+"\n\ndata: [DONE]\n\n" {
		t.Errorf("a stream that waits ends as %q", got)
	}
	if _, err := turn.Resolve(nil, 0, inspect.Ruling{Release: true}); !errors.Is(err, inspect.ErrResolved) {
		t.Errorf("a call was ruled on behind the end: %v", err)
	}
	turn = openRepair(t, inspect.Limits{}, documentHead)
	feed(t, turn, refusedDocument)
	if got := string(turn.Fail([]byte("x"), `not "so"`)); got != "x"+want {
		t.Errorf("a document ends as %q", got)
	}
	if turn.Told().Mend {
		t.Error("an answer that was never shown is to be mended")
	}
	done := openRepair(t, inspect.Limits{}, streamHead)
	feed(t, done, chunk(0, `{"content":"a"}`, `"stop"`)+"data: [DONE]\n\n")
	if _, err := done.EndRound(nil, inspect.EndClean); err != nil {
		t.Fatal(err)
	}
	if got := done.Fail(nil, "late"); len(got) > 0 {
		t.Errorf("an answer that has ended ends once more: %q", got)
	}
}

func TestASuspendedTurnTakesNoMoreOfItsRound(t *testing.T) {
	turn, shown := suspendTurn(t, streamHead)
	if strings.Contains(shown, "zq") || strings.Contains(shown, `"finish_reason":"`) {
		t.Fatalf("shown was %q", shown)
	}
	if _, err := turn.Feed(nil, []byte(refusedRound)); err == nil {
		t.Error("it was fed more")
	}
	if out := string(turn.Abandon(nil, "given up")); !strings.Contains(out, "given up") || strings.Contains(out, "zq") || !strings.HasSuffix(out, "data: [DONE]\n\n") {
		t.Errorf("it ends as %q", out)
	}
}

func TestKeepAliveGoesOnBetweenRounds(t *testing.T) {
	turn, _ := suspendTurn(t, streamHead)
	if got := string(turn.KeepAlive(nil)); !strings.Contains(got, `"delta":{"content":""}`) || !strings.Contains(got, `"id":"cc"`) {
		t.Errorf("suspended: %q", got)
	}
	if err := turn.NextRound(streamHead); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"", ": x\n\n", chunk(0, `{"role":"assistant","content":""}`, "null"), chunk(0, `{"content":"b"}`, "null"), chunk(0, callDelta(0, "c2", "f", "{}"), "null"), chunk(0, `{}`, `"tool_calls"`)} {
		if s != "" {
			feed(t, turn, s)
		}
		if got := string(turn.KeepAlive(nil)); !strings.Contains(got, `"delta":{"content":""}`) {
			t.Errorf("behind %q: %q", s, got)
		}
	}
	turn, _ = suspendTurn(t, documentHead)
	if got := string(turn.KeepAlive(nil)); got != " " {
		t.Errorf("a document: %q", got)
	}
}

func TestTheLimitsAreThoseOfAllRoundsTogether(t *testing.T) {
	turn := openRepair(t, inspect.Limits{Calls: 2}, streamHead)
	for n := range 3 {
		round := strings.ReplaceAll(refusedRound, "zqc", "zqc"+string(rune('0'+n)))
		step, err := turn.Feed(nil, []byte(round))
		if n == 2 {
			if e, ok := errors.AsType[*inspect.Error](err); !ok || !e.Limit {
				t.Fatalf("round %d: %v", n, err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err = turn.Resolve(nil, step.Calls[0].Seq, inspect.Ruling{}); err != nil || step.Calls[0].Seq != n {
			t.Fatalf("call %d: %v", step.Calls[0].Seq, err)
		}
		if step, err = turn.EndRound(nil, inspect.EndClean); err != nil || step.State != inspect.Suspended {
			t.Fatalf("%v in state %d", err, step.State)
		}
		if err := turn.NextRound(streamHead); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPiecesOfThinkingAreJoined(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"pieces of one text", `{"type":"reasoning.text","text":"a","index":0},{"type":"reasoning.text","text":"b","index":0}`, `{"type":"reasoning.text","text":"ab","index":0}`},
		{"texts of other numbers", `{"type":"reasoning.text","text":"a","index":0},{"type":"reasoning.text","text":"b","index":1}`,
			`{"type":"reasoning.text","text":"a","index":0},{"type":"reasoning.text","text":"b","index":1}`},
		{"a signature ends a text", `{"type":"thinking","thinking":"a","signature":"s"},{"type":"thinking","thinking":"b"}`,
			`{"type":"thinking","thinking":"a","signature":"s"},{"type":"thinking","thinking":"b"}`},
		{"null takes nothing away", `{"type":"reasoning.summary","summary":"a","format":"f"},{"type":"reasoning.summary","summary":"b","format":null}`,
			`{"type":"reasoning.summary","summary":"ab","format":"f"}`},
		{"sealed ones stay apart", `{"type":"reasoning.encrypted","data":"a"},{"type":"reasoning.encrypted","data":"b"}`,
			`{"type":"reasoning.encrypted","data":"a"},{"type":"reasoning.encrypted","data":"b"}`},
		{"another kind ends a text", `{"type":"thinking","thinking":"a"},{"type":"redacted"},{"type":"thinking","thinking":"b"}`,
			`{"type":"thinking","thinking":"a"},{"type":"redacted"},{"type":"thinking","thinking":"b"}`},
		{"half a pair of each", `{"type":"thinking","thinking":"\ud83d"},{"type":"thinking","thinking":"\ude00"}`, `{"type":"thinking","thinking":"\ud83d\ude00"}`},
		{"what is no object", `1,"x",{}`, `1,"x",{}`},
	} {
		if got := string(whole([]byte(c.in))); got != c.want {
			t.Errorf("%s: %s\ngive %s\nwant %s", c.name, c.in, got, c.want)
		}
	}
}

func TestPlainEventsNeedLittleMemoryWhenTheyAreKept(t *testing.T) {
	s := openRepair(t, inspect.Limits{}, streamHead)
	out := make([]byte, 0, 1<<16)
	event := []byte(strings.Repeat(textChunk("word"), 8))
	n := testing.AllocsPerRun(200, func() {
		if step, err := s.Feed(out[:0], event); err != nil || !bytes.Equal(step.Out, event) {
			t.Fatalf("%v: %q", err, step.Out)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations for eight events", n)
	}
}

func TestATurnSaysHowMuchItKeeps(t *testing.T) {
	const size = 1 << 20
	words := strings.Repeat("0123456789abcdef", 64)
	begin := chunk(0, `{"role":"assistant","content":"a"}`, "null")
	call := chunk(0, callDelta(0, "c", "f", ``), "null")
	for _, tt := range []struct {
		name, begin, event string
		repair             bool
		least              int
	}{
		{"text", begin, chunk(0, `{"content":"`+words+`"}`, "null"), true, size},
		{"reasoning", begin, chunk(0, `{"reasoning_content":"`+words+`"}`, "null"), true, size},
		{"text that nobody asks for later", begin, chunk(0, `{"content":"`+words+`"}`, "null"), false, 0},
		{"text behind a call", begin + chunk(0, callDelta(0, "c", "f", `{}`), "null"), chunk(0, `{"content":"`+words+`"}`, "null"), false, size},
		{"arguments", begin + call, chunk(0, `{"tool_calls":[{"index":0,"function":{"arguments":"`+words+`"}}]}`, "null"), false, size},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lim := inspect.Limits{Args: 2 * size}
			turn := openStream(t, lim)
			if tt.repair {
				turn = openRepair(t, lim, inspect.Head{Status: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}})
			}
			feed(t, turn, tt.begin)
			held := 0
			for range size / len(words) {
				step, err := turn.Feed(nil, []byte(tt.event))
				if err != nil {
					t.Fatal(err)
				}
				held = step.Held
			}
			if held < tt.least || held > 4*tt.least+8192 {
				t.Errorf("it keeps %d bytes of %d", held, size)
			}
		})
	}
	d := openRepair(t, inspect.Limits{}, inspect.Head{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}})
	if step, err := d.Feed(nil, []byte(`{"x":"`+strings.Repeat("x", size))); err != nil || step.Held < size {
		t.Errorf("a document keeps %d bytes, %v", step.Held, err)
	}
}
