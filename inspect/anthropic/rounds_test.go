package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"callgate/inspect"
	"callgate/inspect/inspecttest"
	"callgate/inspect/toolcall"
)

func openRepair(t testing.TB, lim inspect.Limits, contentType string) (inspect.Request, inspect.Turn) {
	t.Helper()
	req, err := Dialect{Limits: lim, Denial: inspect.DenialRepair}.Request(inspect.Head{Method: "POST", Path: "/v1/messages"},
		[]byte(`{"model":"m","messages":[{"role":"user","content":"go"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	turn, err := req.Open(headOf(contentType))
	if err != nil {
		t.Fatal(err)
	}
	return req, turn
}

func headOf(contentType string) inspect.Head {
	return inspect.Head{Status: 200, Header: map[string][]string{"Content-Type": {contentType}}}
}

// denied feeds a round with one call and denies it, so that the turn waits for
// the next one.
func denied(t *testing.T, turn inspect.Turn, round string) (out string) {
	t.Helper()
	step := feed(t, turn, round)
	out, calls := string(step.Out), step.Calls
	step = end(t, turn, inspect.EndClean)
	out, calls = out+string(step.Out), append(calls, step.Calls...)
	for _, c := range calls {
		step = resolve(t, turn, c.Seq, inspect.Ruling{Refusal: "no"})
		out += string(step.Out)
	}
	if step.State != inspect.Suspended {
		t.Fatalf("the turn is in state %d", step.State)
	}
	return out
}

func TestAFurtherRoundMustFit(t *testing.T) {
	rounds := map[string]string{eventStream: join([]string{messageStart()}, callEvents(0, "c0"), messageEnd("tool_use")), jsonBody: documentOf(1)}
	for _, ct := range []string{eventStream, jsonBody} {
		other := jsonBody
		if ct == jsonBody {
			other = eventStream
		}
		_, turn := openRepair(t, inspect.Limits{}, ct)
		refused := func(what, contentType string) {
			t.Helper()
			if err := turn.NextRound(headOf(contentType)); err == nil {
				t.Errorf("%s: a round of type %q was begun %s", ct, contentType, what)
			} else if _, ok := errors.AsType[*inspect.Error](err); !ok {
				t.Errorf("%s: %v is no *inspect.Error", ct, err)
			}
		}
		refused("before the first has ended", ct)
		denied(t, turn, rounds[ct])
		refused("in another form", other)
		refused("of which nothing is known", "text/html")
		refused("without a type", "")
		before := fmt.Sprint(turn.Told())
		if _, err := turn.Feed(nil, []byte("x")); err == nil {
			t.Errorf("%s: bytes were taken between two rounds", ct)
		}
		_, turn = openRepair(t, inspect.Limits{}, ct)
		denied(t, turn, rounds[ct])
		if got := fmt.Sprint(turn.Told()); got != before {
			t.Errorf("%s: refused rounds have changed what is told:\n%s\n%s", ct, got, before)
		}
		if err := turn.NextRound(headOf(ct)); err != nil {
			t.Fatal(err)
		}
		refused("a second time", ct)
		turn.Abandon(nil, "over")
		refused("behind the end", ct)
	}
}

func TestTextDenialTellsNothing(t *testing.T) {
	turn := openStream(t)
	feed(t, turn, join([]string{messageStart()}, callEvents(0, "c0"), messageEnd("tool_use")))
	if step := resolve(t, turn, 0, inspect.Ruling{Refusal: "no"}); step.State == inspect.Suspended {
		t.Error("the turn is suspended")
	}
	if step := end(t, turn, inspect.EndClean); step.State != inspect.Done || turn.Told().Mend {
		t.Errorf("state %d, told %+v", step.State, turn.Told())
	}
}

func TestANoticeMakesAnAllowedAnswerOneToMend(t *testing.T) {
	_, turn := openRepair(t, inspect.Limits{}, eventStream)
	call := callEvents(0, "c0")
	out := string(feed(t, turn, sse(append([]string{messageStart()}, call...)...)).Out)
	out += string(turn.KeepAlive(nil))
	out += string(resolve(t, turn, 0, inspect.Ruling{Release: true}).Out)
	step := feed(t, turn, join(messageEnd("tool_use")))
	if strings.Contains(out+string(step.Out), "message_delta") {
		t.Error("the end came out before the end of the round")
	}
	step = end(t, turn, inspect.EndClean)
	out += string(step.Out)
	told := turn.Told()
	if !told.Mend || len(told.Notices) != 1 || told.Notices[0] != notice || len(told.Rounds) != 1 || len(told.Rounds[0].Refusals) != 0 || step.State != inspect.Done {
		t.Errorf("told %+v of\n%s", told, out)
	}
	if err := oneAnswer([]byte(out), told); err != nil {
		t.Error(err)
	}
}

func TestTheEndOfAnAllowedAnswerFlows(t *testing.T) {
	_, turn := openRepair(t, inspect.Limits{}, eventStream)
	feed(t, turn, join([]string{messageStart()}, callEvents(0, "c0")))
	resolve(t, turn, 0, inspect.Ruling{Release: true})
	want(t, "the end", string(feed(t, turn, join(messageEnd("tool_use"))).Out), join(messageEnd("tool_use")))
	if turn.Told().Mend {
		t.Error("an allowed answer is to be mended")
	}
}

func TestWhatIsTooLongCannotBeToldOf(t *testing.T) {
	long := textEvents(0, strings.Repeat("word ", 100))
	start := append([]string{messageStart()}, long...)

	_, turn := openRepair(t, inspect.Limits{Answer: 300}, eventStream)
	out := string(feed(t, turn, sse(start...)).Out)
	out += string(feed(t, turn, join(callEvents(1, "c0"), messageEnd("tool_use"))).Out)
	out += string(resolve(t, turn, 0, inspect.Ruling{Refusal: "no to it"}).Out)
	step := end(t, turn, inspect.EndClean)
	out += string(step.Out)
	if step.State != inspect.Done || !strings.Contains(out, "no to it") || turn.Told().Mend {
		t.Errorf("state %d, told %+v, shown\n%s", step.State, turn.Told(), out)
	}

	_, turn = openRepair(t, inspect.Limits{Answer: 300}, eventStream)
	feed(t, turn, join([]string{messageStart()}, callEvents(0, "c0")))
	resolve(t, turn, 0, inspect.Ruling{Refusal: "no to it"})
	long = textEvents(1, strings.Repeat("word ", 100))
	_, err := turn.Feed(nil, []byte(sse(long...)))
	if e, ok := errors.AsType[*inspect.Error](err); !ok || !e.Limit {
		t.Fatalf("the error is %v", err)
	}
	turn.Abandon(nil, "too long")
	told := turn.Told()
	if !told.Mend || len(told.Rounds) != 1 || len(told.Rounds[0].Refusals) != 1 {
		t.Errorf("told %+v", told)
	}
}

func TestCallsThatWaitAreToldAsWithheldWhenTheTurnEnds(t *testing.T) {
	for _, ct := range []string{eventStream, jsonBody} {
		body := documentOf(1)
		if ct == eventStream {
			body = join([]string{messageStart()}, callEvents(0, "toolu_0"), textEvents(1, "behind"), messageEnd("tool_use"))
		}
		_, turn := openRepair(t, inspect.Limits{}, ct)
		out := feed(t, turn, body).Out
		end(t, turn, inspect.EndClean)
		out = turn.Abandon(out, "nobody decides")
		told := turn.Told()
		if len(told.Rounds) != 1 || len(told.Rounds[0].Refusals) != 1 || told.Rounds[0].Refusals[0].Text != inspect.NoReason || !told.Mend {
			t.Errorf("%s: told %+v", ct, told)
		}
		if err := oneAnswer(out, told); err != nil {
			t.Errorf("%s: %v", ct, err)
		}
	}
}

func TestFailEndsAnAnswerInItsOwnForm(t *testing.T) {
	body := `{"type":"error","error":{"type":"permission_error","message":"no \"way\""}}`
	for _, denial := range []inspect.Denial{inspect.DenialText, inspect.DenialRepair} {
		for ct, want := range map[string]string{eventStream: "event: error\ndata: " + body + "\n\n", jsonBody: body} {
			turn := open(t, Dialect{Denial: denial}, `{"model":"m"}`, ct)
			if got := string(turn.Fail(nil, `no "way"`)); got != want {
				t.Errorf("%s: %q", ct, got)
			}
			if got := turn.Fail(turn.Abandon(nil, "x"), "y"); len(got) > 0 {
				t.Errorf("%s: ended again with %q", ct, got)
			}
		}
		turn := open(t, Dialect{Denial: denial}, `{"model":"m"}`, eventStream)
		feed(t, turn, join([]string{messageStart()}, callEvents(0, "zqc0")))
		if got := string(turn.Fail(nil, `no "way"`)); got != "event: error\ndata: "+body+"\n\n" {
			t.Errorf("with a call that waits: %q", got)
		}
	}
}

func TestRecordCountsAllRounds(t *testing.T) {
	_, turn := openRepair(t, inspect.Limits{}, eventStream)
	denied(t, turn, join([]string{messageStart()}, callEvents(0, "c0"), messageEnd("tool_use")))
	if err := turn.NextRound(headOf(eventStream)); err != nil {
		t.Fatal(err)
	}
	if r := turn.Record(); r.Rounds != 2 || r.Billed != -1 || r.OutputTokens != 9 {
		t.Errorf("a round that has said nothing: %+v", r)
	}
	second := strings.NewReplacer(`"msg_1"`, `"msg_2"`, `"model":"m"`, `"model":"n"`, `"input_tokens":5`, `"input_tokens":70`).Replace(messageStart())
	feed(t, turn, join([]string{second}, textEvents(0, "ok"), messageEnd("end_turn")))
	end(t, turn, inspect.EndClean)
	r := turn.Record()
	if r.ID != "msg_1" || r.Model != "m" || r.Rounds != 2 || r.Billed != 75 || r.InputTokens != 70 || r.OutputTokens != 18 || r.Finish != "end_turn" || r.Shown != "end_turn" || r.Calls != 1 || r.Withheld != 1 || !r.Altered {
		t.Errorf("the record is %+v", r)
	}
}

func TestHalfPairsAreMadeWhole(t *testing.T) {
	for in, want := range map[string]string{
		`"a"`:                     `"a"`,
		`"\ud83d"`:                `"\ufffd"`,
		`"\ud83d\ude00"`:          `"\ud83d\ude00"`,
		`"\ude00\ud83d"`:          `"\ufffd\ufffd"`,
		`"\\ud83d"`:               `"\\ud83d"`,
		`"\\\ud83dx"`:             `"\\\ufffdx"`,
		`"\ud83d\ud83d\ude00é"`:   `"\ufffd\ud83d\ude00é"`,
		`{"\uD83D":["\uDE00\n"]}`: `{"\ufffd":["\ufffd\n"]}`,
	} {
		if got := string(paired([]byte(in))); got != want {
			t.Errorf("%s becomes %s, want %s", in, got, want)
		}
	}
}

// piece is a part of a made-up round.
type piece struct {
	events []string // of a stream; %d is the block's index
	block  string   // of a document
	call   string   // its id
	ruling inspect.Ruling
	faulty bool
}

// roundsOf makes rounds out of bytes: what a provider may send, with ids that
// are new or were there before.
func roundsOf(b []byte) (rounds [][]piece) {
	n := 0
	for len(b) > 0 && len(rounds) < 4 {
		k := min(len(b), 2+int(b[0]%6))
		rounds = append(rounds, roundOf(b[:k], &n))
		b = b[k:]
	}
	return rounds
}

func roundOf(b []byte, n *int) (list []piece) {
	block := func(start, delta, whole string) piece {
		return piece{events: []string{`{"type":"content_block_start","index":%d,"content_block":` + start + `}`,
			`{"type":"content_block_delta","index":%d,"delta":` + delta + `}`, `{"type":"content_block_stop","index":%d}`}, block: whole}
	}
	for _, c := range b {
		switch c % 8 {
		case 0, 1:
			text := fmt.Sprintf("t%d\\n\\u00e9 ", c)
			list = append(list, block(`{"type":"text","text":""}`, `{"type":"text_delta","text":"`+text+`"}`, `{"type":"text","text":"`+text+`"}`))
		case 2:
			list = append(list, block(`{"type":"thinking","thinking":"","signature":""}`, `{"type":"signature_delta","signature":"s"}`, `{"type":"thinking","thinking":"","signature":"s"}`))
		case 3, 4, 5:
			id := fmt.Sprintf("zq%dx", *n)
			if c&64 != 0 && *n > 0 {
				id = "zq0x" // once more
			}
			*n++
			input := `{"command":"in-` + id + `"}`
			quoted, _ := json.Marshal(input)
			p := block(`{"type":"tool_use","id":"`+id+`","name":"Bash","input":{}}`, `{"type":"input_json_delta","partial_json":`+string(quoted)+`}`,
				`{"type":"tool_use","id":"`+id+`","name":"Bash","input":`+input+`}`)
			if c&128 != 0 && c&8 != 0 {
				p = block(`{"type":"tool_use","id":"`+id+`","name":"Bash","input":{}}`, `{"type":"input_json_delta","partial_json":"{\"`+id+`\":"}`,
					`{"type":"tool_use","id":"","name":"Bash","input":{"`+id+`":1}}`)
				p.faulty = true
			}
			p.call = id
			p.ruling = inspect.Ruling{Release: c&48 == 48, Refusal: fmt.Sprint("no to ", *n)}
			list = append(list, p)
		case 6:
			list = append(list, piece{events: []string{`{"type":"ping"}`}})
		case 7: // a sign of life is asked for
			list = append(list, piece{})
		}
	}
	return list
}

// body writes a round.
func body(round []piece, n int, stream bool) (body string, calls []piece) {
	reason := `"end_turn"`
	index := 0
	var events, blocks []string
	for _, p := range round {
		for _, e := range p.events {
			if strings.Contains(e, "%d") {
				e = fmt.Sprintf(strings.ReplaceAll(e, "%d", "%[1]d"), index)
			}
			events = append(events, e)
		}
		if p.block != "" {
			index++
			blocks = append(blocks, p.block)
		}
		if p.call != "" {
			calls, reason = append(calls, p), `"tool_use"`
		}
	}
	id := fmt.Sprintf(`"msg_%d"`, n)
	if stream {
		start := strings.Replace(messageStart(), `"msg_1"`, id, 1)
		return sse(slices.Concat([]string{start}, events, messageEnd(strings.Trim(reason, `"`)))...), calls
	}
	return `{"id":` + id + `,"type":"message","role":"assistant","model":"m","content":[` + strings.Join(blocks, ",") + `],"stop_reason":` + reason +
		`,"stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2}}`, calls
}

// FuzzRounds drives turns of several rounds, with rulings at once or late and
// signs of life anywhere: what is shown is one answer that holds the released
// calls and no word of the others, what is told makes a request, and the
// history that the agent keeps can be mended with it.
func FuzzRounds(f *testing.F) {
	for _, b := range []string{"\x00\x03", "\x01\x03\x00\x03\x01", "\x03\x03\x00\x33\x00", "\x02\x03\x04\x07\x03\x03\x03\x00", "\x00\x8b\x03\x01\x00\x43\x07", "\x03\x02\x00\x05\x00\x35\x03\x02\x03\x02\x03"} {
		for how := range uint8(32) {
			f.Add([]byte(b), how)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, how uint8) {
		stream, late, size := how&1 == 0, how&2 != 0, 1+int(how>>4)*7
		ct := jsonBody
		if stream {
			ct = eventStream
		}
		req, turn := openRepair(t, inspect.Limits{}, ct)
		var out []byte
		var all []piece
		var want []string
		state, ruled := inspect.More, 0
		found := 0
		take := func(step inspect.Step, err error) {
			if err != nil {
				t.Fatal(err)
			}
			out, state = step.Out, step.State
			found += len(step.Calls)
			for _, c := range step.Calls {
				if all[c.Seq].faulty {
					c.Fault = toolcall.FaultArguments
				}
				all[c.Seq].faulty = c.Fault != toolcall.FaultNone
			}
		}
		rule := func() {
			for ruled < found {
				p := all[ruled]
				if p.ruling.Release && !p.faulty {
					want = append(want, p.call)
				}
				ruled++
				take(turn.Resolve(out, ruled-1, p.ruling))
			}
		}
		for i, round := range roundsOf(b[:min(len(b), 40)]) {
			if i > 0 {
				if state != inspect.Suspended {
					break
				}
				told := turn.Told()
				again, err := req.Resume(told.Rounds)
				if err != nil {
					t.Fatalf("%v in\n%+v", err, told)
				}
				if err := answered(again); err != nil {
					t.Fatal(err)
				}
				if how&8 != 0 {
					out = turn.KeepAlive(out)
				}
				if err := turn.NextRound(headOf(ct)); err != nil {
					t.Fatal(err)
				}
				if how&4 != 0 {
					out = turn.KeepAlive(out)
				}
			}
			text, calls := body(round, i+1, stream)
			all = append(all, calls...)
			for rest := text; len(rest) > 0; {
				k := min(size, len(rest))
				take(turn.Feed(out, []byte(rest[:k])))
				rest = rest[k:]
				if !late {
					rule()
				}
				if how&12 == 12 && len(rest)%5 == 0 {
					out = turn.KeepAlive(out)
				}
			}
			take(turn.EndRound(out, inspect.EndClean))
			rule()
		}
		if state == inspect.Suspended {
			switch {
			case bytes.Contains(out, []byte("message_stop")):
				t.Fatalf("the end came out of a turn that goes on:\n%s", out)
			case ended(out):
				t.Fatalf("an end came out of a turn that goes on:\n%s", out)
			}
			out = turn.Abandon(out, "the end")
		} else if len(all) > 0 && state != inspect.Done {
			t.Fatalf("the turn is in state %d", state)
		}
		if len(all) == 0 && len(out) == 0 {
			return
		}
		told := turn.Told()
		if err := oneAnswer(out, told); err != nil {
			t.Fatalf("%v\nin\n%s\ntold %+v", err, out, told)
		}
		if len(told.Rounds) > 0 && !slices.Equal(told.Unit.Calls, want) {
			t.Fatalf("the calls %q are told, want %q", told.Unit.Calls, want)
		}
		for _, p := range all {
			if !slices.Contains(want, p.call) && (bytes.Contains(out, []byte(p.call))) {
				t.Fatalf("%q is shown in\n%s", p.call, out)
			}
		}
		shown, _ := shownContent(out)
		var ran []string
		for _, bl := range gjson.Parse(shown).Array() {
			if bl.Get("type").String() == "tool_use" {
				ran = append(ran, bl.Get("id").String())
			}
		}
		if !slices.Equal(ran, want) {
			t.Fatalf("%q are shown, want %q in\n%s", ran, want, out)
		}
		if stream && !bytes.HasSuffix(out, []byte("data: {\"type\":\"message_stop\"}\n\n")) {
			t.Fatalf("the answer does not end in\n%s", out)
		}
	})
}

// FuzzRoundsSwapped feeds rounds whose values and keys are not what they should
// be and withholds every call: no call is shown, and what is told makes a
// request.
func FuzzRoundsSwapped(f *testing.F) {
	for v := range byte(len(swaps)) {
		for e := range byte(8) {
			f.Add([]byte{e, v, v, 4, 3, v}, []byte{v, e, v, e, v, e}, e%2 == 0)
		}
	}
	f.Fuzz(func(t *testing.T, first, second []byte, stream bool) {
		ct := jsonBody
		if stream {
			ct = eventStream
		}
		req, turn := openRepair(t, inspect.Limits{}, ct)
		var out []byte
		state := inspect.More
		for i, how := range [][]byte{first, second} {
			text := ""
			if how = how[:min(len(how), 12)]; stream {
				text = sse(swap(swapped(), how)...)
			} else {
				text = swap([]string{documentOf(2)}, how)[0]
			}
			text = strings.ReplaceAll(text, "toolu_", fmt.Sprintf("toolu_%d", i))
			if i > 0 {
				if state != inspect.Suspended {
					break
				}
				again, err := req.Resume(turn.Told().Rounds)
				if err != nil {
					t.Fatalf("%v in\n%+v", err, turn.Told())
				}
				if err := answered(again); err != nil {
					t.Fatal(err)
				}
				if err := turn.NextRound(headOf(ct)); err != nil {
					t.Fatal(err)
				}
			}
			step, err := turn.Feed(out, []byte(text))
			if i > 0 && endsEarly(err) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			calls := step.Calls
			step, err = turn.EndRound(step.Out, inspect.EndClean)
			if i > 0 && endsEarly(err) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range append(calls, step.Calls...) {
				if step, err = turn.Resolve(step.Out, c.Seq, inspect.Ruling{Refusal: "no"}); err != nil {
					t.Fatal(err)
				}
			}
			out, state = step.Out, step.State
		}
		if state == inspect.Suspended {
			out = turn.Abandon(out, "the end")
		} else if state != inspect.Done {
			t.Fatalf("the turn is in state %d", state)
		}
		for _, r := range inspecttest.Readings {
			for _, doc := range inspecttest.Documents(out, r) {
				if all := findCalls(doc); len(all) > 0 {
					t.Fatalf("all was withheld and %q is shown in\n%s", all, out)
				}
			}
		}
		told := turn.Told()
		if !told.Mend {
			return
		}
		h, err := histOf(`{"model":"m","messages":[{"role":"user","content":"go"},{"role":"assistant","content":"x"},{"role":"user","content":"on"}]}`)
		if err != nil {
			t.Fatal(err)
		}
		mended, err := h.Edit(nil, map[int]inspect.Mend{0: {Rounds: told.Rounds}})
		if err != nil {
			t.Fatalf("%v in\n%+v", err, told)
		}
		if err := answered(mended); err != nil {
			t.Fatal(err)
		}
	})
}

// endsEarly reports whether reading ended because a further answer is not
// whole: the turn is abandoned then, which the cases show.
func endsEarly(err error) bool {
	return err != nil && strings.Contains(err.Error(), "the further answer")
}

func TestATurnSaysHowMuchItKeeps(t *testing.T) {
	const size = 1 << 20
	words := strings.Repeat("0123456789abcdef", 64)
	for _, tt := range []struct {
		name, block, delta string
		repair             bool
		least              int
	}{
		{"text", `{"type":"text","text":""}`, `{"type":"text_delta","text":"` + words + `"}`, true, size},
		{"thinking", `{"type":"thinking","thinking":"","signature":""}`, `{"type":"thinking_delta","thinking":"` + words + `"}`, true, size},
		{"text that nobody asks for later", `{"type":"text","text":""}`, `{"type":"text_delta","text":"` + words + `"}`, false, 0},
		{"arguments", `{"type":"tool_use","id":"toolu_1","name":"bash","input":{}}`, `{"type":"input_json_delta","partial_json":"` + words + `"}`, false, size},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lim := inspect.Limits{Args: 2 * size}
			turn := limited(t, lim, eventStream)
			if tt.repair {
				_, turn = openRepair(t, lim, eventStream)
			}
			feed(t, turn, sse(messageStart(), blockStart(0, tt.block)))
			held := 0
			for range size / len(words) {
				held = feed(t, turn, sse(blockDelta(0, tt.delta))).Held
			}
			if held < tt.least || held > 4*tt.least+8192 {
				t.Errorf("it keeps %d bytes of %d", held, size)
			}
		})
	}
	_, d := openRepair(t, inspect.Limits{}, jsonBody)
	if step := feed(t, d, `{"x":"`+strings.Repeat("x", size)); step.Held < size {
		t.Errorf("a document keeps %d bytes", step.Held)
	}
}
