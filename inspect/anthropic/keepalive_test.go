package anthropic

import (
	"fmt"
	"strings"
	"testing"

	"callgate/inspect"
)

// sse builds a stream of events from their data.
func sse(datas ...string) string {
	var b strings.Builder
	for _, d := range datas {
		name := strings.SplitN(strings.TrimPrefix(d, `{"type":"`), `"`, 2)[0]
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", name, d)
	}
	return b.String()
}

func messageStart() string {
	return `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":5,"output_tokens":1}}}`
}

func blockStart(i int, block string) string {
	return fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, i, block)
}

func blockDelta(i int, d string) string {
	return fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":%s}`, i, d)
}

func blockStop(i int) string { return fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, i) }

func textEvents(i int, text string) []string {
	return []string{blockStart(i, `{"type":"text","text":""}`), blockDelta(i, `{"type":"text_delta","text":"`+text+`"}`), blockStop(i)}
}

func callEvents(i int, id string) []string {
	return []string{blockStart(i, `{"type":"tool_use","id":"`+id+`","name":"Bash","input":{}}`),
		blockDelta(i, `{"type":"input_json_delta","partial_json":"{\"command\":\"`+id+`\"}"}`), blockStop(i)}
}

func messageEnd(reason string) []string {
	return []string{`{"type":"message_delta","delta":{"stop_reason":"` + reason + `","stop_sequence":null},"usage":{"output_tokens":9}}`, `{"type":"message_stop"}`}
}

func join(parts ...[]string) string {
	var all []string
	for _, p := range parts {
		all = append(all, p...)
	}
	return sse(all...)
}

func open(t testing.TB, d Dialect, body, contentType string) inspect.Turn {
	t.Helper()
	req, err := d.Request(inspect.Head{Method: "POST", Path: "/v1/messages"}, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	turn, err := req.Open(inspect.Head{Status: 200, Header: map[string][]string{"Content-Type": {contentType}}})
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

func openStream(t testing.TB) inspect.Turn {
	return open(t, Dialect{}, `{"model":"m","stream":true}`, "text/event-stream")
}

func feed(t testing.TB, turn inspect.Turn, body string) inspect.Step {
	t.Helper()
	step, err := turn.Feed(nil, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return step
}

func resolve(t testing.TB, turn inspect.Turn, seq int, r inspect.Ruling) inspect.Step {
	t.Helper()
	step, err := turn.Resolve(nil, seq, r)
	if err != nil {
		t.Fatal(err)
	}
	return step
}

func end(t testing.TB, turn inspect.Turn, e inspect.End) inspect.Step {
	t.Helper()
	step, err := turn.EndRound(nil, e)
	if err != nil {
		t.Fatal(err)
	}
	return step
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

const (
	pingOut = "event: ping\ndata: {\"type\":\"ping\"}\n\n"
)

func beat(i int) string { return sse(blockDelta(i, `{"type":"text_delta","text":""}`)) }

func TestTheEndOfATextIsHeldBackUntilTheNextEvent(t *testing.T) {
	turn := openStream(t)
	text := textEvents(0, "hi")
	got := feed(t, turn, sse(append([]string{messageStart()}, text...)...))
	want(t, "a text block", string(got.Out), sse(messageStart(), text[0], text[1]))
	want(t, "an event that is no call", string(feed(t, turn, pingOut).Out), sse(text[2])+pingOut)
}

func TestTheEndOfATextGoesOutAtTheEndOfTheAnswer(t *testing.T) {
	for _, e := range []inspect.End{inspect.EndClean, inspect.EndCut} {
		turn := openStream(t)
		text := textEvents(0, "hi")
		feed(t, turn, sse(append([]string{messageStart()}, text...)...))
		step := end(t, turn, e)
		want(t, "the end", string(step.Out), sse(text[2]))
		if step.State != inspect.Done {
			t.Errorf("the state is %d", step.State)
		}
	}
}

func TestKeepAlivesGoIntoTheTextBeforeTheCall(t *testing.T) {
	turn := openStream(t)
	text, call := textEvents(0, "hi"), callEvents(1, "c1")
	out := string(feed(t, turn, join([]string{messageStart()}, text, call, messageEnd("tool_use"))).Out)
	want(t, "before the ruling", out, sse(messageStart(), text[0], text[1]))
	for range 3 {
		want(t, "a keep-alive", string(turn.KeepAlive(nil)), beat(0))
	}
	got := resolve(t, turn, 0, inspect.Ruling{Release: true})
	want(t, "after the ruling", string(got.Out), join(text[2:], call, messageEnd("tool_use")))
	end(t, turn, inspect.EndClean)
	if r := turn.Record(); !r.Altered || r.Withheld != 0 {
		t.Errorf("the record is %+v", r)
	}
}

func TestWithoutATextANoticeIsOpenedAndLaterBlocksMoveUp(t *testing.T) {
	turn := openStream(t)
	call, text := callEvents(0, "c1"), textEvents(1, "bye")
	feed(t, turn, join([]string{messageStart()}, call, text, messageEnd("tool_use")))
	want(t, "the first keep-alive", string(turn.KeepAlive(nil)),
		sse(blockStart(0, `{"type":"text","text":""}`), blockDelta(0, `{"type":"text_delta","text":"`+notice+`"}`)))
	want(t, "the second", string(turn.KeepAlive(nil)), beat(0))
	got := resolve(t, turn, 0, inspect.Ruling{Release: true})
	want(t, "after the ruling", string(got.Out), join([]string{blockStop(0)}, callEvents(1, "c1"), textEvents(2, "bye"), messageEnd("tool_use")))
	end(t, turn, inspect.EndClean)
	if !turn.Record().Altered {
		t.Error("the record does not say that the answer was altered")
	}
}

func TestDeltasThatComeAfterANoticeMoveUpToo(t *testing.T) {
	turn := openStream(t)
	feed(t, turn, join([]string{messageStart()}, callEvents(0, "c1")))
	turn.KeepAlive(nil)
	resolve(t, turn, 0, inspect.Ruling{Refusal: "no"})
	text := textEvents(1, "more")
	want(t, "a delta in its own read", string(feed(t, turn, sse(text[:2]...)).Out), sse(textEvents(2, "more")[:2]...))
	want(t, "a keep-alive in it", string(turn.KeepAlive(nil)), beat(2))
}

func TestEachWaitHasItsOwnNotice(t *testing.T) {
	turn := openStream(t)
	feed(t, turn, join([]string{messageStart()}, callEvents(0, "c1"), callEvents(1, "c2"), messageEnd("tool_use")))
	turn.KeepAlive(nil)
	got := resolve(t, turn, 0, inspect.Ruling{Refusal: "no"})
	want(t, "the refusal", string(got.Out), join([]string{blockStop(0)}, textEvents(1, "no")))
	want(t, "the next notice", string(turn.KeepAlive(nil)),
		sse(blockStart(2, `{"type":"text","text":""}`), blockDelta(2, `{"type":"text_delta","text":"`+notice+`"}`)))
	got = resolve(t, turn, 1, inspect.Ruling{Release: true})
	want(t, "the call", string(got.Out), join([]string{blockStop(2)}, callEvents(3, "c2"), messageEnd("tool_use")))
}

func TestNoNoticeSpoilsAStructuredAnswer(t *testing.T) {
	for _, body := range []string{
		`{"model":"m","stream":true,"output_format":{"type":"json_schema","schema":{}}}`,
		`{"model":"m","stream":true,"output_config":{"format":{"type":"json_schema","schema":{}}}}`,
	} {
		turn := open(t, Dialect{}, body, "text/event-stream")
		feed(t, turn, join([]string{messageStart()}, callEvents(0, "c1")))
		want(t, "a keep-alive", string(turn.KeepAlive(nil)), pingOut)
	}
}

func TestKeepAlivesOutsideOfAWait(t *testing.T) {
	turn := openStream(t)
	want(t, "before the start", string(turn.KeepAlive(nil)), "")
	feed(t, turn, sse(messageStart()))
	want(t, "behind the start", string(turn.KeepAlive(nil)), pingOut)
	feed(t, turn, sse(textEvents(0, "hi")[:2]...))
	want(t, "inside a text", string(turn.KeepAlive(nil)), beat(0))
	feed(t, turn, sse(blockStop(0), blockStart(1, `{"type":"thinking","thinking":"","signature":""}`)))
	want(t, "inside of thinking", string(turn.KeepAlive(nil)), pingOut)
	feed(t, turn, join([]string{blockStop(1)}, callEvents(2, "c1")[:1]))
	turn.KeepAlive(nil)
	want(t, "inside of a call that is not whole", string(turn.KeepAlive(nil)), beat(2))
	feed(t, turn, join(callEvents(2, "c1")[1:], messageEnd("tool_use")))
	resolve(t, turn, 0, inspect.Ruling{Release: true})
	want(t, "behind the end", string(turn.KeepAlive(nil)), "")
	end(t, turn, inspect.EndClean)
	want(t, "when done", string(turn.KeepAlive(nil)), "")
}

func TestAbandonClosesANotice(t *testing.T) {
	turn := openStream(t)
	feed(t, turn, join([]string{messageStart()}, callEvents(0, "c1")))
	turn.KeepAlive(nil)
	want(t, "the end", string(turn.Abandon(nil, "gone")),
		sse(blockDelta(0, `{"type":"text_delta","text":"\n\ngone\n\n"}`), blockStop(0),
			`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":1}}`, `{"type":"message_stop"}`))
	if _, err := turn.Resolve(nil, 0, inspect.Ruling{Release: true}); err == nil {
		t.Error("a call of an abandoned turn was resolved")
	}
}

func TestKeepAlivesBeforeADocumentAreSpaces(t *testing.T) {
	turn := open(t, Dialect{}, `{"model":"m"}`, "application/json")
	want(t, "before", string(turn.KeepAlive(turn.KeepAlive(nil))), "  ")
	feed(t, turn, `{"type":"message","content":[]}`)
	want(t, "between", string(turn.KeepAlive(nil)), " ")
	want(t, "the document", string(end(t, turn, inspect.EndClean).Out), `{"type":"message","content":[]}`)
	want(t, "behind", string(turn.KeepAlive(nil)), "")
	if !turn.Record().Altered {
		t.Error("the record does not tell of the spaces")
	}
}
