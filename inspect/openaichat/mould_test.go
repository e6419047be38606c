package openaichat

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"callgate/inspect"
	"callgate/inspect/inspecttest"
	"callgate/inspect/toolcall"
)

// shows drives a stream line by line, releasing and withholding calls in turns,
// and tells all that came of it. forget takes away the forms of earlier events
// before each line.
func shows(t *testing.T, body []byte, forget bool) string {
	t.Helper()
	base := turn{lim: inspect.Limits{Held: 1 << 20, Args: 4 << 10}.Defaults(), lanesAsked: 2}
	s := newStream(base)
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
		n := bytes.IndexByte(body, '\n') + 1
		if n == 0 {
			n = len(body)
		}
		if forget {
			s.plain.mould.usable, s.piece.c = false, nil
		}
		tell(s.Feed(nil, body[:n]))
		body = body[n:]
	}
	tell(s.EndRound(nil, inspect.EndClean))
	fmt.Fprintf(&told, "%+v", s.Record())
	return told.String()
}

// FuzzForms holds what passes by the form of an earlier event against the long
// way: nothing may differ.
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
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if with, without := shows(t, body, false), shows(t, body, true); with != without {
			t.Fatalf("%q gives\n%s\nand without forms\n%s", body, with, without)
		}
	})
}
