package ollama

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"callgate/inspect"
	"callgate/inspect/toolcall"
)

var (
	streamHead   = inspect.Head{Status: 200, Header: http.Header{"Content-Type": {"application/x-ndjson"}}}
	documentHead = inspect.Head{Status: 200, Header: http.Header{"Content-Type": {"application/json; charset=utf-8"}}}
)

func open(t testing.TB, d Dialect, head inspect.Head) inspect.Turn {
	t.Helper()
	r, err := d.Request(inspect.Head{Path: chatPath}, []byte(`{"model":"asked","messages":[{"role":"user","content":"go"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	turn, err := r.Open(head)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

func feed(t testing.TB, turn inspect.Turn, s string) inspect.Step {
	t.Helper()
	step, err := turn.Feed(nil, []byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return step
}

const lineStart = `{"model":"m","created_at":"2026-01-02T03:04:05.000006Z","message":{"role":"assistant","content":`

func textLine(s string) string { return lineStart + string(quoted(s)) + `},"done":false}` + "\n" }

func callLine(names ...string) string {
	var all []string
	for _, n := range names {
		all = append(all, `{"function":{"name":"`+n+`","arguments":{"cmd":"ls"}}}`)
	}
	return lineStart + `"","tool_calls":[` + strings.Join(all, ",") + `]},"done":false}` + "\n"
}

const doneLine = lineStart + `""},"done":true,"done_reason":"stop","prompt_eval_count":10,"eval_count":5}` + "\n"

func TestKeepAliveIsALineThatSaysNothing(t *testing.T) {
	turn := open(t, Dialect{}, streamHead)
	if got, want := string(turn.KeepAlive([]byte("x"))), `x{"model":"asked","message":{"role":"assistant","content":""},"done":false}`+"\n"; got != want {
		t.Fatalf("before the first line: %q", got)
	}
	feed(t, turn, textLine("a"))
	if got, want := string(turn.KeepAlive(nil)), textLine(""); got != want {
		t.Fatalf("behind a line: %q, want %q", got, want)
	}
	feed(t, turn, callLine("f")+doneLine)
	if got := string(turn.KeepAlive(nil)); got != textLine("") {
		t.Fatalf("while a call waits: %q", got)
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
	turn := open(t, Dialect{}, documentHead)
	out := turn.KeepAlive(nil)
	step, _ := turn.Feed(out, []byte(`{"done":true}`))
	step, err := turn.EndRound(turn.KeepAlive(step.Out), inspect.EndClean)
	if err != nil || string(step.Out) != `  {"done":true}` || step.State != inspect.Done {
		t.Fatalf("%v: %q in state %d", err, step.Out, step.State)
	}
	if got := turn.KeepAlive(nil); len(got) > 0 {
		t.Fatalf("behind the document: %q", got)
	}
}

func TestWordsFlowBeforeACallAndWaitBehindIt(t *testing.T) {
	turn := open(t, Dialect{}, streamHead)
	if step := feed(t, turn, textLine("a")); string(step.Out) != textLine("a") {
		t.Fatalf("got %q", step.Out)
	}
	call := callLine("f")
	if step := feed(t, turn, call[:len(call)-2]); len(step.Out) > 0 || len(step.Calls) > 0 {
		t.Fatalf("a part of a line came out: %+v", step)
	}
	step := feed(t, turn, call[len(call)-2:]+textLine("behind"))
	if len(step.Out) > 0 || len(step.Calls) != 1 || step.State != inspect.Waiting {
		t.Fatalf("got %+v", step)
	}
	step, err := turn.Resolve(nil, 0, inspect.Ruling{Release: true})
	if err != nil || step.State != inspect.More || string(step.Out) != call+textLine("behind") {
		t.Fatalf("%v: %+v", err, step)
	}
}

func TestTheEndWaitsWhereACallWasWithheld(t *testing.T) {
	turn := open(t, repairing, streamHead)
	feed(t, turn, callLine("f", "g"))
	if _, err := turn.Resolve(nil, 0, inspect.Ruling{}); err != nil {
		t.Fatal(err)
	}
	if _, err := turn.Resolve(nil, 1, inspect.Ruling{Release: true}); err != nil {
		t.Fatal(err)
	}
	if step := feed(t, turn, doneLine); len(step.Out) > 0 || step.State == inspect.Done {
		t.Fatalf("the end came out before the round had ended: %+v", step)
	}
	if step, err := turn.EndRound(nil, inspect.EndClean); err != nil || string(step.Out) != doneLine || step.State != inspect.Done {
		t.Fatalf("%v: %+v", err, step)
	}
}

func TestOnlyASuspendedTurnGoesOn(t *testing.T) {
	for _, head := range []inspect.Head{streamHead, documentHead} {
		turn := open(t, repairing, head)
		body, other := callLine("f")+doneLine, documentHead
		if head.Header.Get("Content-Type") == documentHead.Header.Get("Content-Type") {
			body, other = strings.TrimSuffix(callLine("f"), "false}\n")+"true}", streamHead
		}
		var e *inspect.Error
		if err := turn.NextRound(head); !errors.As(err, &e) {
			t.Errorf("a turn that has not ended goes on: %v", err)
		}
		feed(t, turn, body)
		if _, err := turn.EndRound(nil, inspect.EndClean); err != nil {
			t.Fatal(err)
		}
		step, err := turn.Resolve(nil, 0, inspect.Ruling{})
		if err != nil || step.State != inspect.Suspended {
			t.Fatalf("%v: state %d", err, step.State)
		}
		if err := turn.NextRound(other); !errors.As(err, &e) || !strings.Contains(err.Error(), "another form") {
			t.Errorf("an answer of another form goes on: %v", err)
		}
		if err := turn.NextRound(head); err != nil {
			t.Errorf("it does not go on: %v", err)
		}
	}
}

func TestLimits(t *testing.T) {
	lines := func(n int, s string) string { return strings.Repeat(s, n) }
	for _, c := range []struct {
		says string
		lim  inspect.Limits
		head inspect.Head
		body string
		want string
	}{
		{"a line is too long", inspect.Limits{Frame: 100}, streamHead, textLine(strings.Repeat("x", 100)), "line 1: it is too large"},
		{"too much waits", inspect.Limits{Held: 2000}, streamHead, callLine("f") + lines(20, textLine("x")), "wait behind an undecided call"},
		{"there are too many calls", inspect.Limits{Calls: 2}, streamHead, callLine("f", "g", "h"), "more than 2 calls"},
		{"a document is too large", inspect.Limits{Answer: 50}, documentHead, doneLine, "larger than 50 bytes"},
		{"too much is said", inspect.Limits{Answer: 50}, streamHead, lines(20, textLine("words")), "says more than 50 bytes"},
	} {
		turn := open(t, Dialect{Limits: c.lim, Denial: inspect.DenialRepair}, c.head)
		_, err := turn.Feed(nil, []byte(c.body))
		if e := (*inspect.Error)(nil); !errors.As(err, &e) || !e.Limit || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.says, err, c.want)
		}
	}
	for _, c := range []struct {
		says, line string
		lim        inspect.Limits
		fault      toolcall.Fault
	}{
		{"large arguments", callLine("f"), inspect.Limits{Args: 5}, toolcall.FaultOversize},
		{"large arguments together", callLine("f", "g"), inspect.Limits{Held: 20}, toolcall.FaultOversize},
		{"a long name", callLine(strings.Repeat("f", maxWord+1)), inspect.Limits{}, toolcall.FaultOversize},
		{"deep arguments", strings.Replace(callLine("f"), `"ls"`, strings.Repeat("[", 12)+strings.Repeat("]", 12), 1), inspect.Limits{Depth: 10}, toolcall.FaultAmbiguous},
	} {
		step, _ := open(t, Dialect{Limits: c.lim}, streamHead).Feed(nil, []byte(c.line))
		if n := len(step.Calls); n == 0 || step.Calls[n-1].Fault == toolcall.FaultNone {
			t.Errorf("%s: %+v, want fault %v", c.says, step.Calls, c.fault)
		}
	}
}

// TestWhatWaitsTakesTheRoomItIsChargedFor holds many small lines back and
// compares the memory they take with the limit.
func TestWhatWaitsTakesTheRoomItIsChargedFor(t *testing.T) {
	const held = 4 << 20
	for says, line := range map[string]string{
		"blank lines": "\n", "text": textLine("x"), "empty objects": "{}\n", "probabilities": `{"logprobs":[1]}` + "\n",
	} {
		t.Run(says, func(t *testing.T) {
			turn := open(t, Dialect{Limits: inspect.Limits{Held: held}}, streamHead)
			feed(t, turn, callLine("f"))
			batch := []byte(strings.Repeat(line, 1+8192/len(line)))
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

func drive(tb testing.TB, req inspect.Request, head inspect.Head, body, out []byte, piece int) []byte {
	turn, err := req.Open(head)
	if err != nil {
		tb.Fatal(err)
	}
	release := func(step inspect.Step, err error) {
		if err != nil {
			tb.Fatal(err)
		}
		out = step.Out
		for _, c := range step.Calls {
			s, err := turn.Resolve(out, c.Seq, inspect.Ruling{Release: true})
			if err != nil {
				tb.Fatal(err)
			}
			out = s.Out
		}
	}
	for len(body) > 0 {
		n := min(piece, len(body))
		release(turn.Feed(out, body[:n]))
		body = body[n:]
	}
	release(turn.EndRound(out, inspect.EndClean))
	return out
}

func benchTurn(b *testing.B, head inspect.Head, body string, lines int) {
	for _, d := range []struct {
		name   string
		denial inspect.Denial
	}{{"text", inspect.DenialText}, {"repair", inspect.DenialRepair}} {
		b.Run(d.name, func(b *testing.B) {
			req, err := Dialect{Denial: d.denial}.Request(inspect.Head{Path: chatPath}, []byte(`{"model":"m","messages":[]}`))
			if err != nil {
				b.Fatal(err)
			}
			out, raw := make([]byte, 0, 2*len(body)), []byte(body)
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if got := drive(b, req, head, raw, out[:0], 4096); !bytes.Equal(got, raw) {
					b.Fatal("the answer changed")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(lines), "ns/line")
		})
	}
}

func streamOf(texts, calls int) string {
	var b strings.Builder
	for i := range texts {
		b.WriteString(textLine(fmt.Sprintf(" word%d", i)))
	}
	for i := range calls {
		b.WriteString(callLine(fmt.Sprintf("f%d", i)))
	}
	b.WriteString(doneLine)
	return b.String()
}

func BenchmarkStreamText(b *testing.B) { benchTurn(b, streamHead, streamOf(1000, 0), 1001) }
func BenchmarkStreamCall(b *testing.B) { benchTurn(b, streamHead, streamOf(200, 20), 221) }

func BenchmarkDocument(b *testing.B) {
	benchTurn(b, documentHead, lineStart+string(quoted(strings.Repeat("some words ", 70)))+
		`,"tool_calls":[{"id":"call_1","function":{"name":"shell","arguments":{"command":"ls -la","timeout":30}}}]},"done":true,"done_reason":"stop","eval_count":5}`, 1)
}

func BenchmarkRequest(b *testing.B) {
	message := `{"role":"user","content":"` + strings.Repeat(`some \"quoted\" words of code;\n`, 60) + `"},`
	body := []byte(`{"model":"m","messages":[` + strings.TrimSuffix(strings.Repeat(message, 200_000/len(message)), ",") + `]}`)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := (Dialect{}).Request(inspect.Head{Path: chatPath}, body); err != nil {
			b.Fatal(err)
		}
	}
}
