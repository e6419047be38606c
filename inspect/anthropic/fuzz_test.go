package anthropic

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"callgate/inspect"
	"callgate/inspect/inspecttest"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// harmless are the block types that a client only shows or sends back. The
// list is the test's own.
var harmless = strings.Fields(`text thinking redacted_thinking connector_text server_tool_use mcp_tool_use
	web_search_tool_result web_fetch_tool_result code_execution_tool_result bash_code_execution_tool_result
	text_editor_code_execution_tool_result tool_search_tool_result advisor_tool_result mcp_tool_result
	mcp_tool_listing container_upload compaction fallback`)

// findCalls gives the blocks in a document that a client could run, wherever
// one may look for blocks.
func findCalls(doc any) []string {
	m, ok := doc.(map[string]any)
	if !ok {
		return nil
	}
	var all []string
	block := func(v any) {
		b, ok := v.(map[string]any)
		if !ok {
			return
		}
		typ, _ := b["type"].(string)
		name, _ := b["name"].(string)
		hosted := typ == "server_tool_use" || typ == "mcp_tool_use"
		switch {
		case !slices.Contains(harmless, typ):
			all = append(all, fmt.Sprintf("block of type %q", typ))
		case hosted && strings.EqualFold(name, "bash"): // the client has one
			all = append(all, fmt.Sprintf("block of type %q for %s", typ, name))
		}
		for _, k := range []string{"input", "arguments", "partial_json"} {
			if v, ok := b[k]; ok && v != nil && !hosted {
				all = append(all, fmt.Sprintf("%s in a block of type %q", k, typ))
			}
		}
	}
	list := func(v any) {
		a, _ := v.([]any)
		for _, b := range a {
			block(b)
		}
	}
	if v, ok := m["content_block"]; ok {
		block(v)
	}
	list(m["content"])
	for _, k := range []string{"message", "delta"} {
		if in, ok := m[k].(map[string]any); ok {
			list(in["content"])
		}
	}
	if d, ok := m["delta"].(map[string]any); ok && d["type"] != "input_json_delta" {
		if _, ok := d["partial_json"].(string); ok {
			all = append(all, fmt.Sprintf("arguments in a delta of type %v", d["type"]))
		}
	}
	for _, k := range []string{"tool_use", "tool_calls", "function_call"} {
		switch m[k].(type) {
		case string, map[string]any, []any: // nothing else can hold a call
			all = append(all, k)
		}
	}
	return all
}

func TestTheFinderSeesCalls(t *testing.T) {
	for doc, want := range map[string]int{
		`{"content_block":{"type":"tool_use"}}`:                                   1,
		`{"Content_Block":{"TYPE":"tool_use"}}`:                                   1,
		`{"content":[{"type":"text"},{"type":"x"},{}]}`:                           2,
		`{"message":{"content":[{"type":"tool_use"}]}}`:                           1,
		`{"content_block":{"type":"text"}}`:                                       0,
		`{"content":[{"type":"server_tool_use"}]}`:                                0,
		`{"content":[{"type":"server_tool_use","name":"BASH"}]}`:                  1,
		`{"content":[{"type":"text","text":"","input":{}}]}`:                      1,
		`{"delta":{"type":"text_delta","partial_json":"{}"}}`:                     1,
		`{"delta":{"type":"input_json_delta","partial_json":"{}"}}`:               0,
		`{"content":[{"type":"server_tool_use","name":"web_search","input":{}}]}`: 0,
		`{"delta":{"type":"text_delta","text":"tool_use"}}`:                       0,
	} {
		v, _ := inspecttest.Parse([]byte(doc), inspecttest.FoldKeys)
		if got := findCalls(v); len(got) != want {
			t.Errorf("%s: found %q", doc, got)
		}
	}
}

func FuzzStream(f *testing.F) {
	inspecttest.FuzzResponse(f, Dialect{}, "text/event-stream", "testdata/*.txtar", findCalls)
}

func FuzzDocument(f *testing.F) {
	inspecttest.FuzzResponse(f, Dialect{}, "application/json", "testdata/*.txtar", findCalls)
}

// client reads a stream as the libraries do: it appends blocks as they start,
// files deltas by index, and runs the calls whose blocks have ended.
type client struct {
	blocks  []*clientBlock
	started bool
	stopped bool
	stop    string
}

// ran gives the calls that the client runs, in the order of their blocks.
func (c *client) ran() []string {
	var all []string
	for _, b := range c.blocks {
		if b.typ == "tool_use" && b.ended {
			all = append(all, b.id+" "+b.name+" "+b.input)
		}
	}
	return all
}

type clientBlock struct {
	typ, id, name, text, input string
	ended                      bool
}

func (c *client) event(name, data string) error {
	e := gjson.Parse(data)
	if name != e.Get("type").String() && name != "error" {
		return fmt.Errorf("event %q holds %q", name, e.Get("type"))
	}
	if c.stopped {
		return fmt.Errorf("%s behind message_stop", name)
	}
	if !c.started && name != "message_start" && name != "ping" && name != "error" {
		return fmt.Errorf("%s before message_start", name)
	}
	index := int(e.Get("index").Int())
	switch name {
	case "message_start":
		if c.started {
			return fmt.Errorf("two starts")
		}
		c.started = true
	case "content_block_start":
		if index != len(c.blocks) {
			return fmt.Errorf("block %d starts as number %d", index, len(c.blocks))
		}
		b := e.Get("content_block")
		c.blocks = append(c.blocks, &clientBlock{typ: b.Get("type").String(), id: b.Get("id").String(), name: b.Get("name").String(), text: b.Get("text").String()})
		if in := b.Get("input").Raw; in != "{}" {
			c.blocks[index].input = in
		}
	case "content_block_delta", "content_block_stop":
		if index >= len(c.blocks) || c.blocks[index].ended {
			return fmt.Errorf("%s for block %d, which is not open", name, index)
		}
		b := c.blocks[index]
		if name == "content_block_delta" {
			b.text += e.Get("delta.text").String()
			b.input += e.Get("delta.partial_json").String()
			break
		}
		b.ended = true
	case "message_delta":
		if !e.Get("usage").Exists() {
			return fmt.Errorf("message_delta without usage")
		}
		if r := e.Get("delta.stop_reason"); r.Type == gjson.String {
			c.stop = r.String()
		}
	case "message_stop":
		c.stopped = true
	}
	return nil
}

// read takes a whole stream in, by lines.
func (c *client) read(out []byte) error {
	name, data := "", ""
	for line := range strings.SplitSeq(string(out), "\n") {
		line = strings.TrimSuffix(line, "\r")
		switch {
		case strings.HasPrefix(line, "event: "):
			name = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			data = line[len("data: "):]
		case line == "" && name != "":
			if err := c.event(name, data); err != nil {
				return err
			}
			name, data = "", ""
		}
	}
	return nil
}

// plan builds an answer and its rulings out of bytes: what a well-behaved
// provider may send, with texts, thinking, calls, calls of its own, pings and
// keep-alives in any order.
type plan struct {
	events  []string
	rulings []inspect.Ruling
	ids     []string
	faulty  map[int]bool // calls that never go out
	beats   map[int]bool // keep-alives before these events
}

func newPlan(b []byte) *plan {
	p := &plan{events: []string{messageStart()}, beats: map[int]bool{}, faulty: map[int]bool{}}
	index := 0
	for _, c := range b {
		switch c % 8 {
		case 0, 1:
			p.events = append(p.events, textEvents(index, fmt.Sprint("t", c))...)
			index++
		case 2:
			p.events = append(p.events, blockStart(index, `{"type":"thinking","thinking":"","signature":""}`),
				blockDelta(index, `{"type":"thinking_delta","thinking":"hm"}`), blockDelta(index, `{"type":"signature_delta","signature":"s"}`), blockStop(index))
			index++
		case 3, 4, 5:
			id := fmt.Sprint("c", len(p.ids))
			p.events = append(p.events, callEvents(index, id)...)
			p.ids = append(p.ids, id)
			r := inspect.Ruling{Release: c&16 != 0, Refusal: "no to " + id}
			if c&48 == 48 {
				r.Args = []byte(`{"command":"other-` + id + `"}`)
			}
			p.rulings = append(p.rulings, r)
			index++
		case 6:
			if c&64 == 0 {
				p.events = append(p.events, `{"type":"ping"}`)
				break
			}
			// Two calls whose events alternate: neither goes out.
			a, b := callEvents(index, fmt.Sprint("c", len(p.ids))), callEvents(index+1, fmt.Sprint("c", len(p.ids)+1))
			p.events = append(p.events, a[0], b[0], a[1], b[1])
			if c&128 == 0 {
				p.events = append(p.events, a[2], b[2])
			} else {
				p.events = append(p.events, b[2], a[2])
			}
			for bit := byte(16); bit <= 32; bit *= 2 {
				id := fmt.Sprint("c", len(p.ids))
				p.faulty[len(p.ids)] = true
				p.ids, p.rulings = append(p.ids, id), append(p.rulings, inspect.Ruling{Release: c&bit != 0, Refusal: "no to " + id})
			}
			index += 2
		case 7:
			p.beats[len(p.events)] = true
		}
	}
	reason := "end_turn"
	if len(p.ids) > 0 {
		reason = "tool_use"
	}
	p.events = append(p.events, messageEnd(reason)...)
	return p
}

// run drives a turn by the plan. late says how many events pass between a call
// and its ruling.
func (p *plan) run(t *testing.T, late int) (out []byte, rec inspect.Record) {
	turn := openStream(t)
	var calls []toolcall.Call
	due := []int{}
	rule := func(seq int) {
		step, err := turn.Resolve(out, seq, p.rulings[seq])
		if err != nil {
			t.Fatal(err)
		}
		out = step.Out
	}
	for i, e := range p.events {
		for len(due) > 0 && due[0] <= i {
			rule(len(calls) - len(due))
			due = due[1:]
		}
		if p.beats[i] {
			out = turn.KeepAlive(out)
		}
		step, err := turn.Feed(out, []byte(sse(e)))
		if err != nil {
			t.Fatal(err)
		}
		out = step.Out
		for range step.Calls {
			due = append(due, i+late)
		}
		calls = append(calls, step.Calls...)
	}
	step, err := turn.EndRound(out, inspect.EndClean)
	if err != nil {
		t.Fatal(err)
	}
	out = step.Out
	for range due {
		out = turn.KeepAlive(out)
		rule(len(calls) - len(due))
		due = due[1:]
	}
	if len(calls) != len(p.ids) {
		t.Fatalf("%d calls of %d were found", len(calls), len(p.ids))
	}
	return out, turn.Record()
}

// FuzzClient checks that what is shown is always an answer that a client reads
// to its end, with exactly the released calls in it, in order.
func FuzzClient(f *testing.F) {
	for _, b := range []string{"\x00\x13", "\x03\x00\x14\x07", "\x07\x03\x07\x13\x07\x33\x02", "\x02\x03\x06\x07\x03", "\x33\x03\x13\x00\x07\x03", "\x00\x46\x56\x66\x76\xc6\x07\xe6\xf6"} {
		for late := range uint8(4) {
			f.Add([]byte(b), late)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, late uint8) {
		p := newPlan(b[:min(len(b), 40)])
		out, rec := p.run(t, int(late%12))
		var c client
		if err := c.read(out); err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		var want []string
		for i, r := range p.rulings {
			args := `{"command":"` + p.ids[i] + `"}`
			if r.Args != nil {
				args = string(r.Args)
			}
			if r.Release && !p.faulty[i] {
				want = append(want, p.ids[i]+" Bash "+args)
			} else if !bytes.Contains(out, []byte(r.Refusal)) {
				t.Fatalf("%q is not shown in\n%s", r.Refusal, out)
			}
		}
		if ran := c.ran(); !slices.Equal(ran, want) {
			t.Fatalf("ran %q, want %q in\n%s", ran, want, out)
		}
		for i, bl := range c.blocks {
			if !bl.ended || bl.typ == "text" && bl.text == "" {
				t.Fatalf("block %d (%s) is open or empty in\n%s", i, bl.typ, out)
			}
		}
		reason := "end_turn"
		if len(want) > 0 {
			reason = "tool_use"
		}
		if !c.stopped || c.stop != reason || rec.Shown != reason || rec.Withheld != len(p.ids)-len(want) {
			t.Fatalf("stopped %t with %q, want %q; the record is %+v", c.stopped, c.stop, reason, rec)
		}
	})
}

// FuzzDelta holds the template of plain deltas against the strict validator
// and a full reading: what it takes must read the same there.
func FuzzDelta(f *testing.F) {
	for _, s := range []string{
		blockDelta(0, `{"type":"text_delta","text":"hi"}`),
		blockDelta(12, `{"text":"\u00e9\n\"","type":"text_delta"}`),
		blockDelta(0, `{"type":"thinking_delta","thinking":"x","estimated_tokens":null}`),
		blockDelta(0, `{"type":"signature_delta","signature":"x=="}`),
		blockDelta(0, `{"type":"input_json_delta","partial_json":"{\"a\":"}`),
		`{"type":"content_block_delta","index":00,"delta":{"type":"text_delta","text":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"","text":"b"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","thinking":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}} {}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + "\xff" + `"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\ud83d"}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, ok := scanDelta(data)
		if !ok {
			return
		}
		if err := strictjson.Object(data, strictjson.Options{Known: strictjson.Keys("type", "index", "delta", "text")}); err != nil {
			t.Fatalf("%v: %q", err, data)
		}
		root := gjson.ParseBytes(data)
		if v := root.Get("index"); v.Type != gjson.Number || v.Raw != strconv.Itoa(d.index) || string(d.at.In(data)) != v.Raw {
			t.Fatalf("index %d of %q", d.index, data)
		}
		key := map[deltaKind]string{textDelta: "text", thinkingDelta: "thinking", signatureDelta: "signature", inputDelta: "partial_json"}[d.kind]
		if root.Get("type").String() != "content_block_delta" || deltaKinds([]byte(root.Get("delta.type").String())) != d.kind {
			t.Fatalf("kind %d of %q", d.kind, data)
		}
		if got, want := string(strictjson.AppendString(nil, d.value)), root.Get("delta").Get(key).String(); got != want {
			t.Fatalf("%q, read as %q, is %q", data, got, want)
		}
	})
}

// FuzzMould holds the reading by the form of the delta before against the
// template: both must say the same, whatever came before.
func FuzzMould(f *testing.F) {
	text := blockDelta(0, `{"type":"text_delta","text":"hi"}`)
	for _, second := range []string{
		text,
		blockDelta(0, `{"type":"text_delta","text":"\u2028 é"}`),
		blockDelta(0, `{"type":"text_delta","text":"a","text":"b"}`),
		blockDelta(0, `{"type":"text_delta","text":"\ud83d"}`),
		blockDelta(0, `{"type":"text_delta","text":"a"}}{`),
		blockDelta(10, `{"type":"text_delta","text":"hi"}`),
		blockDelta(0, `{"type":"input_json_delta","partial_json":"\""}`),
		`{"type":"content_block_delta","delta":{"text":"","type":"text_delta"},"index":1}`,
		`{"type":"content_block_delta","delta":{"text":"long","type":"text_delta"},"index":1}`,
		blockDelta(0, `{"type":"thinking_delta","thinking":"x","estimated_tokens":12}`),
		blockDelta(0, `{"type":"text_delta","text":"hi"}`+strings.Repeat(" ", 200)),
		"{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\xc3\"}}",
	} {
		f.Add([]byte(text), []byte(second))
		f.Add([]byte(second), []byte(text))
		f.Add([]byte(second), []byte(second))
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var m mould
		m.read(bytes.Clone(first))
		got, ok := m.read(second)
		want, wanted := scanDelta(second)
		if ok != wanted || ok && (got.kind != want.kind || got.index != want.index || got.at != want.at || got.text != want.text ||
			string(got.value) != string(want.value) || got.breaks != want.breaks) {
			t.Fatalf("behind %q\n%q reads as %t %+v\nwant %t %+v", first, second, ok, got, wanted, want)
		}
	})
}

// FuzzStop holds the template of a plain end of a block against the strict
// validator and a full reading.
func FuzzStop(f *testing.F) {
	for _, s := range []string{blockStop(0), blockStop(12), `{"type":"content_block_stop","index":0   }`, `{"type":"content_block_stop","index": 3 } `,
		`{"type":"content_block_stop","index":00}`, `{"type":"content_block_stop","index":1e0}`, `{"type":"content_block_stop","index":-1}`,
		`{"type":"content_block_stop","index":0,"index":1}`, `{"type":"content_block_stop","index":0}{}`, `{"type":"content_block_stop","index":}`,
		`{"type":"content_block_stop","index":9999999999}`, `{"type":"content_block_stop","index":0`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		at, ok := scanStop(data)
		if !ok {
			return
		}
		if err := strictjson.Object(data, strictjson.Options{Known: strictjson.Keys("type", "index")}); err != nil {
			t.Fatalf("%v: %q", err, data)
		}
		root := gjson.ParseBytes(data)
		if n := len(root.Map()); n != 2 || root.Get("type").String() != "content_block_stop" || root.Get("index").Raw != string(at.In(data)) {
			t.Fatalf("%q, with %d keys, has its index at %v", data, n, at)
		}
	})
}

// swaps are the values that take the place of others in FuzzSwapped.
var swaps = []string{`null`, `1`, `-1`, `0`, `true`, `"x"`, `""`, `[]`, `{}`, `[1]`, `{"a":{}}`, `"tool_use"`, `"text"`, `"frob_use"`, `"text_delta"`,
	`"input_json_delta"`, `"message_stop"`, `"content_block_start"`, `{"type":"tool_use","id":"toolu_9","name":"Bash","input":{"command":"x"}}`,
	`[{"type":"tool_use","id":"toolu_9","name":"Bash","input":{}}]`, `{"type":"text","text":"x"}`, `{"type":"text","type":"tool_use"}`, `"{\"command\":1}"`, `"\ud800"`, `1e2`, `01`}

// spot is a place in a JSON text.
type spot struct{ at, n int }

// spots gives the places of all values and keys in a JSON text.
func spots(data string) []spot {
	var all []spot
	var walk func(v gjson.Result, at int)
	walk = func(v gjson.Result, at int) {
		all = append(all, spot{at, len(v.Raw)})
		if !v.IsObject() && !v.IsArray() {
			return
		}
		v.ForEach(func(key, in gjson.Result) bool {
			if v.IsObject() {
				all = append(all, spot{key.Index, len(key.Raw)})
			}
			walk(in, in.Index)
			return true
		})
	}
	walk(gjson.Parse(data), 0)
	return all
}

// swap puts values in the place of others: three bytes for one swap, which
// choose the event, the place and the value.
func swap(datas []string, how []byte) []string {
	datas = slices.Clone(datas)
	for ; len(how) >= 3; how = how[3:] {
		e := int(how[0]) % len(datas)
		if !gjson.Valid(datas[e]) {
			continue
		}
		all := spots(datas[e])
		at := all[int(how[1])%len(all)]
		datas[e] = datas[e][:at.at] + swaps[int(how[2])%len(swaps)] + datas[e][at.at+at.n:]
	}
	return datas
}

// swapped are the answers that FuzzSwapped starts from.
func swapped() []string {
	return slices.Concat([]string{messageStart()}, textEvents(0, "a"), callEvents(1, "toolu_1"),
		[]string{blockStart(2, `{"type":"server_tool_use","id":"s","name":"web_search","input":{}}`), blockDelta(2, `{"type":"input_json_delta","partial_json":"{}"}`), blockStop(2)},
		callEvents(3, "toolu_2"), messageEnd("tool_use"))
}

// FuzzSwapped feeds streams and documents whose JSON is sound and whose values
// and keys are not what they should be.
func FuzzSwapped(f *testing.F) {
	for v := range byte(len(swaps)) {
		f.Add([]byte{4, 3, v, 0, 8, v}, true)
		f.Add([]byte{0, 14, v, 0, 9, v}, false)
	}
	for e := range byte(16) {
		f.Add([]byte{e, 1, 0, e, 2, 18}, true)
		f.Add([]byte{e, 4, 18}, true)
		f.Add([]byte{e, 6, 5, e, 5, 11}, true)
		f.Add([]byte{e, e, e}, false)
	}
	f.Fuzz(func(t *testing.T, how []byte, stream bool) {
		how = how[:min(len(how), 12)]
		ct, body := jsonBody, swap([]string{documentOf(2)}, how)[0]
		if stream {
			ct, body = eventStream, sse(swap(swapped(), how)...)
		}
		for _, release := range []bool{false, true} {
			turn := limited(t, inspect.Limits{}, ct)
			step := feed(t, turn, body)
			calls, out := step.Calls, step.Out
			step = end(t, turn, inspect.EndClean)
			calls, out = append(calls, step.Calls...), append(out, step.Out...)
			clean := true
			for i, c := range calls {
				clean = clean && c.Fault == toolcall.FaultNone
				out = append(out, resolve(t, turn, i, inspect.Ruling{Release: release, Refusal: "no"}).Out...)
			}
			switch {
			case release && clean && string(out) != body:
				t.Fatalf("all was released and\n%s\nwas shown as\n%s", body, out)
			case release && !clean && string(out) == body:
				t.Fatalf("with a fault in it all was shown of\n%s", body)
			case release:
				continue
			}
			for _, r := range inspecttest.Readings {
				for _, doc := range inspecttest.Documents(out, r) {
					if all := findCalls(doc); len(all) > 0 {
						t.Fatalf("all was withheld and %q is shown in\n%s", all, out)
					}
				}
			}
		}
	})
}
