package openaichat

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"callgate/inspect"
	"callgate/inspect/inspecttest"
	"callgate/inspect/toolcall"
)

// shows drives a stream in pieces of some bytes, 0 for lines, releasing and
// withholding calls in turns, and tells all that came of it. The long way takes
// no notice of the template and of the forms of earlier events.
func shows(t *testing.T, body []byte, size int, long bool) string {
	t.Helper()
	base := turn{lim: inspect.Limits{Held: 1 << 20, Args: 4 << 10}.Defaults(), lanesAsked: 2}
	s := newStream(base)
	s.long = long
	var told strings.Builder
	tell := func(step inspect.Step, err error) {
		for err == nil && len(step.Calls) > 0 {
			var later []toolcall.Call
			for _, c := range step.Calls {
				r := inspect.Ruling{Release: c.Seq%3 != 1, Refusal: "no"}
				if c.Seq%3 == 2 {
					r.Args = []byte(`{"other":1}`)
				}
				fmt.Fprintf(&told, "%+v\n", c)
				next, rerr := s.Resolve(step.Out, c.Seq, r)
				step.Out, err = next.Out, rerr
				later = append(later, next.Calls...)
			}
			step.Calls = later
		}
		fmt.Fprintf(&told, "%q %v %v\n", step.Out, step.State, err)
	}
	for len(body) > 0 {
		n := min(size, len(body))
		if size == 0 {
			if n = bytes.IndexByte(body, '\n') + 1; n == 0 {
				n = len(body)
			}
		}
		tell(s.Feed(nil, body[:n]))
		body = body[n:]
	}
	tell(s.EndRound(nil, inspect.EndClean))
	fmt.Fprintf(&told, "%+v", s.Record())
	return told.String()
}

var usageChunk = strings.TrimSuffix(chunkHead, `{"index":0,"delta":`) +
	`],"usage":{"prompt_tokens":10,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":null}}}` + "\n\n"

// tellAll lists what was taken in of one event.
func tellAll(s *stream) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v %+v failed=%v total=%d out=%q\n", s.env, s.rec, s.failed, s.total, s.out)
	for _, l := range s.lanes {
		fmt.Fprintf(&b, "lane %d: %v %q role=%v text=%v refusal=%v closed=%v waits=%d\n", l.n, l.finished, l.reason, l.role, l.text, l.refusal, l.closed, l.waits)
		for _, c := range l.calls {
			fmt.Fprintf(&b, "%+v indexed=%v %d object=%v mentioned=%v numbered=%v announced=%v newest=%v named=%v\n",
				c.Call, c.indexed, c.index, c.object, c.mentioned, c.numbered, c.announced, l.newest == c, l.named == c)
		}
	}
	for i := range s.queue {
		e := &s.queue[i]
		note := e.note
		if rd := e.rd; rd != nil && rd.untouched() && len(rd.calls) == 0 && !rd.failed {
			// As good as plain, when no choice of it ends.
			note = nil
			for _, ch := range rd.choices {
				note = append(note, ch.shows)
			}
			if !slices.ContainsFunc(rd.choices, func(ch choice) bool { return ch.reason != "" }) {
				e = &event{raw: e.raw}
			}
		}
		fmt.Fprintf(&b, "%q %v %d %v\n", e.raw, e.data, e.kind, note)
		if e.rd == nil {
			continue
		}
		fmt.Fprintf(&b, "whole=%v list=%v top=%d calls=%d failed=%v usage=%v\n", e.rd.whole != nil, e.rd.list, len(e.rd.top), len(e.rd.calls), e.rd.failed, e.rd.usage)
		for _, ch := range e.rd.choices {
			fmt.Fprintf(&b, "choice %d %v %v %v %v %v %v %v %v %q %v %v %+v\n", ch.lane.n, ch.at, ch.indexed, ch.body, ch.list, ch.listItem,
				ch.content, ch.refusal, ch.finish, ch.reason, ch.native, ch.logprobs, ch.shows)
			for _, m := range ch.mentions {
				fmt.Fprintf(&b, "mention %v %v %v %v %v %q %v\n", m.holder, m.item, m.inner, m.args, m.index, m.key, m.bare)
			}
		}
	}
	return b.String()
}

// FuzzTemplate holds what the template finds in one event against what the long
// way reads in it, place by place. The event comes first, and behind the start
// of a call.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{
		`{"id":"c","object":"o","created":1,"model":"m\"","choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"c2","type":"function","function":{"name":"f","arguments":"{\"a\":1"}}]},"finish_reason":null}]}`,
		` {"id":"","choices" : [ { "delta" : { "tool_calls" : [ {"index":1,"function": {"arguments":"} "} } , {"id":null} ] , "content":"x" } , "index" : 0 } ] } `,
		`{"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls","native_finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"d":{"n":null}}}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]},"finish_reason":"tool_calls"}]}`,
		`{"choices":[],"usage":{"prompt_tokens":0123}}`, `{"choices":[],"usage":{"a":1,"a":2}}`, `{"id":"x","choices":[{}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a"}},{"index":0,"delta":{"content":"b"}}]}`,
		`{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"\ud83d","function":{"name":"\ud83d","arguments":"\ud83d"}}]}}]}`,
		"{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\u2028\",\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\" \"}}]}}]}",
	} {
		f.Add([]byte(s))
	}
	paths, err := filepath.Glob(cases)
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		c, err := inspecttest.Load(path)
		if err != nil {
			f.Fatal(err)
		}
		for line := range bytes.Lines(c.ResponseBody) {
			if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
				f.Add(bytes.TrimRight(data, "\r\n"))
			}
		}
	}
	start := callChunk(`{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{"}}`)
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.ContainsAny(data, "\r\n") {
			return
		}
		for _, before := range []string{"", start, textChunk("a") + start} {
			var ways [2]string
			for i := range ways {
				s := newStream(turn{lim: Dialect{}.Limits.Defaults(), lanesAsked: 2})
				s.long = i == 1
				if step, err := s.Feed(nil, []byte(before)); err != nil {
					t.Fatal(err, step)
				}
				event := append(append([]byte("data: "), data...), "\n\n"...)
				step, err := s.Feed(nil, event)
				ways[i] = fmt.Sprintf("%q %+v %v %v\n%s", step.Out, step.Calls, step.State, err, tellAll(s))
			}
			if ways[0] != ways[1] {
				t.Fatalf("%q behind %q tells\n%s\nand the long way\n%s", data, before, ways[0], ways[1])
			}
		}
	})
}

func TestTwoChoicesOfOneNumberAreNotPlain(t *testing.T) {
	for _, where := range []string{"at the start", "behind text"} {
		turn := openStream(t, inspect.Limits{})
		if where != "at the start" {
			feed(t, turn, textChunk("a"))
		}
		step := feed(t, turn, "data: "+`{"choices":[{"index":0,"delta":{"content":"a"}},{"index":0,"delta":{"content":"b"}}]}`+"\n\n")
		if len(step.Calls) != 1 || step.Calls[0].Fault != toolcall.FaultAmbiguous || len(step.Out) > 0 {
			t.Errorf("%s it gives %q and %+v", where, step.Out, step.Calls)
		}
	}
}

func TestALineThatCameBeforeBelongsToTheEvent(t *testing.T) {
	piece := callChunk(`{"index":0,"function":{"arguments":" "}}`)
	start := textChunk("a") + callChunk(`{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}`)
	end := chunkHead + `{},"finish_reason":"tool_calls"}]}` + "\n\n"
	turn := openStream(t, inspect.Limits{})
	var out strings.Builder
	for _, p := range []string{textChunk("a"), "id: 7\n", textChunk("b"), ": x\n", textChunk("c")} {
		out.Write(feed(t, turn, p).Out)
	}
	if want := textChunk("a") + "id: 7\n" + textChunk("b") + ": x\n" + textChunk("c"); out.String() != want {
		t.Errorf("it gives %q", out.String())
	}
	turn = openStream(t, inspect.Limits{})
	feed(t, turn, start+piece)
	feed(t, turn, "event: other\n")
	feed(t, turn, piece)
	if step := feed(t, turn, end); len(step.Calls) != 1 || step.Calls[0].Fault != toolcall.FaultAmbiguous {
		t.Errorf("a part in a named event gives %+v", step.Calls)
	}
}

func TestAFormIsNoWayAroundTheLimitOfAnEvent(t *testing.T) {
	for _, size := range []int{1, 1 << 20} {
		turn := openStream(t, inspect.Limits{Frame: 1000})
		body := []byte(textChunk("a") + textChunk(strings.Repeat("b", 1000)))
		var err error
		for len(body) > 0 && err == nil {
			n := min(size, len(body))
			_, err = turn.Feed(nil, body[:n])
			body = body[n:]
		}
		if e, ok := errors.AsType[*inspect.Error](err); !ok || !e.Limit || e.Where != "event 1" {
			t.Errorf("by %d it gives %v", size, err)
		}
	}
}

func TestPiecesOfACallShareAnEntry(t *testing.T) {
	turn := openStream(t, inspect.Limits{})
	answer := streamOf(3, 500)
	step := feed(t, turn, answer)
	if n := len(turn.(*stream).queue); n > 6 || len(step.Calls) != 1 {
		t.Fatalf("%d entries wait, %d calls", n, len(step.Calls))
	}
	next, err := turn.Resolve(step.Out, 0, inspect.Ruling{Release: true})
	if err != nil || string(next.Out) != answer {
		t.Errorf("%v: the answer changed: %d bytes of %d", err, len(next.Out), len(answer))
	}
	if s := turn.(*stream); s.held != 0 || s.count() != 507 {
		t.Errorf("%d bytes are counted as held when nothing waits, and %d events", s.held, s.count())
	}
}

func TestATurnNeedsLittleMemory(t *testing.T) {
	body, out := []byte(streamOf(200, 20)), make([]byte, 0, 1<<17)
	req, err := Dialect{}.Request(inspect.Head{Method: "POST", Path: "/v1/chat/completions"}, []byte(`{"model":"m","messages":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(20, func() { drive(t, req, streamHead, body, out, 1<<16) }); n > 40 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzForms holds what passes by the template, or by the form of an earlier
// event, against the long way: nothing may differ.
func FuzzForms(f *testing.F) {
	paths, err := filepath.Glob(cases)
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		c, err := inspecttest.Load(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(c.ResponseBody)
	}
	call := func(i int, args string) string {
		return callChunk(fmt.Sprintf(`{"index":%d,"function":{"arguments":%s}}`, i, args))
	}
	begin := func(i int) string {
		return callChunk(fmt.Sprintf(`{"index":%d,"id":"c%d","type":"function","function":{"name":"f","arguments":""}}`, i, i))
	}
	end := chunkHead + `{},"finish_reason":"tool_calls"}]}` + "\n\n" + "data: [DONE]\n\n"
	for _, s := range []string{
		streamOf(5, 8),
		textChunk("a") + textChunk("") + textChunk("b") + strings.ReplaceAll(textChunk("c"), `"c"`, "null") + textChunk("d") + "data: [DONE]\n\n",
		textChunk("a") + strings.ReplaceAll(textChunk("b"), `"content"`, `"refusal"`) + strings.ReplaceAll(textChunk("c"), `"abcd"`, `7`) + textChunk("d"),
		textChunk("a") + strings.ReplaceAll(textChunk("b"), "data:", "event: other\ndata:") + textChunk("c"),
		begin(0) + call(0, `"{\"a\":1"`) + call(0, `", \"b\":"`) + textChunk("between") + call(0, `"2}"`) + end,
		begin(0) + begin(1) + call(0, `"{\"a\":1"`) + call(1, `"{\"b\":"`) + call(1, `"1"`) + call(0, `"}"`) + call(0, `" "`) + call(1, `"}"`) + end,
		begin(0) + begin(1) + begin(2) + call(2, `"{\"a\":1"`) + call(2, `"0"`) + call(2, `"}"`) + call(1, `"{}"`) + call(0, `"{"`) + call(0, `"}"`) + end,
		begin(0) + call(0, `"{\"a\":\""`) + call(0, `"\\u00e9"`) + call(0, `"\ud83d"`) + call(0, `"\ude00\"}"`) + end,
		begin(0) + call(0, `"{}"`) + call(0, `" "`) + strings.ReplaceAll(call(0, `" "`), "\n\n", "\r\n\r\n") + strings.ReplaceAll(call(0, `" "`), "data:", "event: x\ndata:") + end,
		begin(0) + call(0, `"{}"`) + call(0, `{"a":1}`) + call(0, `" "`) + end + call(0, `" "`),
		begin(0) + call(0, `"{}"`) + call(0, `" "`) + "data: {}}\n\n" + call(0, `" "`) + end,
		begin(0) + call(0, `"`+strings.Repeat("x", 3000)+`"`) + call(0, `"`+strings.Repeat("x", 3000)+`"`) + call(0, `"x"`) + end,
		textChunk("a") + textChunk("b") + "data: [DONE]\n\n" + textChunk("c"),
		begin(0) + call(0, `"{\"a\":1"`) + ": a comment\n\n" + call(0, `" "`) + call(0, `"}"`) + usageChunk + end,
		begin(0) + begin(1) + call(1, `"{"`) + call(1, `"}"`) + call(1, `" "`) + begin(2) + call(2, `"{\"a\":"`) + call(2, `"1"`) + call(2, `"}"`) + end + usageChunk,
		begin(0) + strings.ReplaceAll(call(0, `"{}"`), "data: ", "id: 7\ndata:") + strings.ReplaceAll(call(0, `" "`), "data: ", "id: 7\ndata:") + strings.ReplaceAll(end, `"tool_calls"`, `"length"`),
		strings.ReplaceAll(usageChunk, `"choices":[]`, `"choices":[{"index":1,"delta":{"content":null,"tool_calls":[]},"finish_reason":"stop","native_finish_reason":"end"}]`),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, size := range []int{0, 700, len(body) + 1} {
			if with, without := shows(t, body, size, false), shows(t, body, size, true); with != without {
				t.Fatalf("%q by %d gives\n%s\nand the long way\n%s", body, size, with, without)
			}
		}
	})
}
