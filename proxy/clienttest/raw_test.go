package clienttest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"callgate/gate"
	"callgate/gate/person"
	"callgate/gate/store"
	"callgate/inspect/toolcall"
	"callgate/proxy/providertest"
)

// form is a wire format in one of its two shapes.
type form struct {
	name, path string
	stream     bool
	lanes      int // choices asked for, 0 for those of one who does not say
	way        way
}

var forms = []form{
	{name: "chat JSON", path: "/v1/chat/completions"},
	{name: "chat SSE", path: "/v1/chat/completions", stream: true},
	{name: "messages JSON", path: "/v1/messages"},
	{name: "messages SSE", path: "/v1/messages", stream: true},
}

// everyWay are the forms by base URL and in a tunnel of HTTPS_PROXY.
func everyWay() []form {
	all := slices.Clone(forms)
	for _, f := range forms {
		f.way = proxies[0].to(f.path == "/v1/messages")
		f.name += "/" + f.way.name
		all = append(all, f)
	}
	return all
}

// request is a first request in that form.
func (f form) request() string {
	if f.gemini() {
		return geminiRequest
	}
	msgs := `"messages":[{"role":"user","content":"do it"}]`
	stream := ""
	if f.stream {
		stream = `"stream":true,`
	}
	var tools []string
	if f.path == "/v1/messages" {
		for _, n := range agentTools {
			tools = append(tools, fmt.Sprintf(`{"name":%q,"input_schema":%s}`, n, toolSchema))
		}
		return `{"model":"m","max_tokens":4000,` + stream + `"tools":[` + strings.Join(tools, ",") + `],` + msgs + `}`
	}
	for _, n := range agentTools {
		tools = append(tools, fmt.Sprintf(`{"type":"function","function":{"name":%q,"parameters":%s}}`, n, toolSchema))
	}
	if f.stream {
		stream += `"stream_options":{"include_usage":true},`
	}
	if f.lanes > 0 {
		stream += fmt.Sprintf(`"n":%d,`, f.lanes)
	}
	return `{"model":"m",` + stream + `"tools":[` + strings.Join(tools, ",") + `],` + msgs + `}`
}

// ends tells whether a stream's body has the event that ends the message.
func (f form) ends(body []byte) bool {
	if f.gemini() {
		return bytes.Contains(body, []byte(`"finishReason"`))
	}
	if f.path == "/v1/messages" {
		return bytes.Contains(body, []byte(`"type":"message_stop"`))
	}
	return bytes.Contains(body, []byte(`"finish_reason":"`))
}

// rawConn is a client that keeps every byte of its socket.
type rawConn struct {
	conn net.Conn
	got  *growing
	done chan struct{}
}

// dialRaw sends a request over a socket of its own and reads until it closes.
func dialRaw(t *testing.T, g *rig, f form) *rawConn {
	t.Helper()
	at, err := url.Parse(g.base)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", g.here.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if g.setup.way.proxied() {
		conn = tunnelled(t, conn, at.Host)
	}
	body := f.request()
	_, err = fmt.Fprintf(conn, "POST %s%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Type: application/json\r\n"+
		"Authorization: Bearer k\r\nX-Api-Key: k\r\nAnthropic-Version: 2023-06-01\r\nContent-Length: %d\r\n\r\n%s",
		at.Path, f.path, at.Host, len(body), body)
	if err != nil {
		t.Fatal(err)
	}
	c := &rawConn{conn: conn, got: newGrowing(), done: make(chan struct{})}
	go func() {
		defer close(c.done)
		_, _ = io.Copy(c.got, conn) // a broken connection is one way to end
	}()
	return c
}

// whole waits for the end and gives status, body and whether it was whole.
func (c *rawConn) whole() (int, []byte, bool) {
	<-c.done
	return parseRaw(c.got.bytes())
}

// parseRaw reads as much of an answer as there is.
func parseRaw(raw []byte) (status int, body []byte, whole bool) {
	res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), nil)
	if err != nil {
		return 0, nil, false
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, body, err == nil
}

// shows reports what of the calls stands in raw bytes or in the body they hold.
func shows(raw []byte, calls ...providertest.Call) []string {
	_, body, _ := parseRaw(raw)
	var out []string
	for _, c := range calls {
		words := []string{c.ID, "args of " + c.ID}
		out = append(append(out, holds(raw, words...)...), holds(body, words...)...)
	}
	return out
}

// sayCalls is an answer of words and calls.
func sayCalls(calls ...providertest.Call) []providertest.Item {
	items := []providertest.Item{providertest.Text("Now then. ")}
	for _, c := range calls {
		items = append(items, c)
	}
	return items
}

// Whatever the pieces in which an answer comes, nothing of an undecided call,
// nor of what stands behind it, and never anything of a denied one is on the
// client's socket.
func TestNothingOfACallIsOnTheSocketBeforeItsDecision(t *testing.T) {
	calls := []providertest.Call{
		toolCall("call_first", "bash", "echo"), toolCall("call_asked", "write", dangerous), toolCall("call_third", "fetch", "echo"),
	}
	for _, f := range append(everyWay(), geminiForms...) {
		for _, chunk := range []int{providertest.PerEvent, 1, 7, providertest.Whole} {
			for _, coding := range []string{"", "gzip", "br", "zstd"} {
				if coding != "" && chunk != 7 {
					continue
				}
				for _, approve := range []bool{true, false} {
					t.Run(fmt.Sprintf("%s/by %d %s/%v", f.name, chunk, coding, approve), func(t *testing.T) {
						t.Parallel()
						asked, answer := make(chan struct{}), make(chan gate.Opinion)
						g := newRig(t, setup{
							way:    f.way,
							script: providertest.Script{{Say: sayCalls(calls...), Chunk: chunk, Coding: coding}},
							person: gate.ReviewerFunc(func(ctx context.Context, _ *gate.Request) gate.Opinion {
								close(asked)
								select {
								case op := <-answer:
									return op
								case <-ctx.Done():
									return gate.Opinion{}
								}
							}),
						})
						c := dialRaw(t, g, f)
						<-asked
						if s := shows(c.got.grow(t.Context(), 6), calls[1:]...); s != nil {
							t.Errorf("undecided, and on the socket: %q", s)
						}
						op := gate.Opinion{Verdict: gate.Deny, Reason: "no"}
						if approve {
							op.Verdict = gate.Allow
						}
						answer <- op
						status, body, whole := c.whole()
						if status != http.StatusOK || !whole {
							t.Fatalf("status %d, whole %v: %s", status, whole, body)
						}
						if s := shows(c.got.bytes(), calls[1]); (s != nil) != approve {
							t.Errorf("approved %v, and the socket has %q of it", approve, s)
						}
						if s := shows(c.got.bytes(), calls[0], calls[2]); len(s) < 4 {
							t.Errorf("of the others the socket has only %q", s)
						}
					})
				}
			}
		}
	}
}

// A provider's answer that breaks off anywhere gives nothing of a denied or
// unfinished call, and looks broken to the client, never whole.
func TestAnswersCutAtEveryEvent(t *testing.T) {
	denied, fine := toolCall("call_denied", "bash", forbidden), toolCall("call_fine", "write", "echo")
	for _, f := range everyWay() {
		if !f.stream {
			continue
		}
		probe := newRig(t, setup{way: f.way, script: providertest.Script{{Say: sayCalls(denied, fine)}}})
		if _, body, _ := dialRaw(t, probe, f).whole(); shows(body, denied) != nil {
			t.Fatal("the denied call is shown")
		}
		events := bytes.Count(probe.provider.Requests()[0].Sent, []byte("\n\n"))
		for _, clean := range []bool{false, true} {
			var script providertest.Script
			for n := range events {
				script = append(script, providertest.Turn{
					Say: sayCalls(denied, fine), Cut: &providertest.Cut{Events: n, Bytes: -1, Clean: clean},
				})
			}
			g := newRig(t, setup{way: f.way, script: script, sequential: true})
			for n := range events {
				c := dialRaw(t, g, f)
				status, body, whole := c.whole()
				at := fmt.Sprintf("%s, clean %v, %d of %d events", f.name, clean, n, events)
				if s := shows(c.got.bytes(), denied); s != nil {
					t.Errorf("%s: the socket has %q", at, s)
				}
				if n < events/2 {
					if s := shows(c.got.bytes(), fine); s != nil {
						t.Errorf("%s: the socket has %q of a call that had not come", at, s)
					}
				}
				switch {
				case !clean && whole && status == http.StatusOK:
					t.Errorf("%s: the answer looks whole: %s", at, body)
				case clean && status == http.StatusOK && !whole:
					t.Errorf("%s: the answer looks broken: %s", at, body)
				case clean && status == http.StatusOK && !f.ends(body) && !bytes.Equal(body, g.provider.Requests()[n].Sent):
					t.Errorf("%s: the answer was changed and has no end: %s", at, body)
				}
			}
		}
	}
}

// The same byte by byte around the call itself.
func TestAnswersCutInsideACall(t *testing.T) {
	fine := toolCall("call_fine", "write", "echo")
	for _, f := range append(everyWay(), geminiForms...) {
		probe := newRig(t, setup{way: f.way, script: providertest.Script{{Say: sayCalls(fine)}}})
		_, sent, _ := dialRaw(t, probe, f).whole()
		from := bytes.Index(sent, []byte("call_fine"))
		if from < 0 {
			t.Fatalf("%s: an allowed call is not shown: %s", f.name, sent)
		}
		var script providertest.Script
		for n := from; n < from+160 && n < len(sent)-80; n += 3 {
			script = append(script, providertest.Turn{Say: sayCalls(fine), Cut: providertest.AfterBytes(n)})
		}
		g := newRig(t, setup{way: f.way, script: script, sequential: true})
		for _, turn := range script {
			c := dialRaw(t, g, f)
			if status, body, whole := c.whole(); status == http.StatusOK && whole {
				t.Errorf("%s: cut after %d bytes, the answer looks whole: %s", f.name, turn.Cut.Bytes, body)
			}
			if s := shows(c.got.bytes(), fine); s != nil {
				t.Errorf("%s: cut after %d bytes, the socket has %q", f.name, turn.Cut.Bytes, s)
			}
		}
	}
}

// Words are seen while the model is still speaking, and before any call.
func TestWordsFlowAtOnce(t *testing.T) {
	for _, f := range everyWay() {
		if !f.stream {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			var c *rawConn
			ready := make(chan struct{})
			first := 1 // the event of the first word
			if f.path == "/v1/messages" {
				first = 3
			}
			words := "one two three four"
			g := newRig(t, setup{way: f.way, script: providertest.Script{{
				Say: []providertest.Item{providertest.Text(words), toolCall("call_x", "bash", "echo")},
				// The provider says its next word when the client has the last.
				Before: func(ctx context.Context, i int) {
					<-ready
					for i > 1 && ctx.Err() == nil {
						got := c.got.bytes()
						_, body, _ := parseRaw(got)
						said := strings.Fields(words)[:max(0, min(i-first, 4))]
						if len(said) == 0 || bytes.Contains(body, []byte(said[len(said)-1])) {
							return
						}
						c.got.beyond(ctx, len(got))
					}
				},
			}}})
			c = dialRaw(t, g, f)
			close(ready)
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
			defer stop()
			select {
			case <-c.done:
			case <-ctx.Done():
				t.Fatalf("the words do not flow; the socket has %s", c.got.bytes())
			}
			if status, body, whole := c.whole(); status != 200 || !whole || !f.ends(body) {
				t.Errorf("status %d, whole %v: %s", status, whole, body)
			}
		})
	}
}

// While the arguments of a call come, nothing of it may be shown, and the
// client must not take the silence for a dead connection.
func TestSignsOfLifeComeWhileTheArgumentsOfACallArrive(t *testing.T) {
	for _, f := range everyWay() {
		if !f.stream {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			var c *rawConn
			ready := make(chan struct{})
			first, seen := 3, 0 // the event by which the call has begun
			if f.path == "/v1/messages" {
				first = 7
			}
			args := strings.Repeat("a long file ", 20)
			g := newRig(t, setup{way: f.way, keepAlive: time.Nanosecond, script: providertest.Script{{
				Say: []providertest.Item{providertest.Text("writing"), toolCall("call_x", "bash", args)},
				// Within the call each event waits until the client has seen
				// something since the one before.
				Before: func(ctx context.Context, i int) {
					<-ready
					if i > first && i <= first+3 {
						seen = c.got.beyond(ctx, seen)
					} else {
						seen = len(c.got.bytes())
					}
				},
			}}})
			c = dialRaw(t, g, f)
			close(ready)
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
			defer stop()
			select {
			case <-c.done:
			case <-ctx.Done():
				t.Fatalf("no sign of life comes; the socket has %s", c.got.bytes())
			}
			if status, body, whole := c.whole(); status != 200 || !whole || !f.ends(body) || !bytes.Contains(body, []byte("call_x")) {
				t.Errorf("status %d, whole %v: %s", status, whole, body)
			}
		})
	}
}

// An agent that gives up while a person thinks and asks again gets the yes
// that came in between, and nobody is asked twice.
func TestARetryFindsTheAnswer(t *testing.T) {
	for _, f := range everyWay() {
		t.Run(f.name, func(t *testing.T) {
			call := toolCall("call_asked", "bash", dangerous)
			asked, gone := make(chan gate.Approval), make(chan struct{}, 3)
			desk := newDesk(t, time.Minute, asked)
			turn := providertest.Turn{Say: sayCalls(call)}
			g := newRig(t, setup{
				way:    f.way,
				script: providertest.Script{turn, turn, turn}, sequential: true,
				person: gate.ReviewerFunc(func(ctx context.Context, r *gate.Request) gate.Opinion {
					go func() {
						select {
						case <-gate.Left(ctx):
							gone <- struct{}{}
						case <-t.Context().Done():
						}
					}()
					return desk.Review(ctx, r)
				}),
			})
			first := dialRaw(t, g, f)
			a := <-asked
			first.conn.Close()
			<-first.done
			<-gone
			if s := shows(first.got.bytes(), call); s != nil {
				t.Errorf("undecided, and on the socket: %q", s)
			}
			if _, err := desk.Answer(t.Context(), a.ID, gate.Answer{Approve: true, By: "tester"}); err != nil {
				t.Fatal(err)
			}
			second := dialRaw(t, g, f)
			select {
			case <-second.done:
			case a := <-asked:
				t.Fatalf("a person was asked again: %s", a.ID)
			}
			if _, body, whole := second.whole(); !whole || shows(body, call) == nil && shows(second.got.bytes(), call) == nil {
				t.Errorf("the call was approved and did not come: %s", body)
			}
			// The yes was for one call.
			third := dialRaw(t, g, f)
			b := <-asked
			if b.ID == a.ID {
				t.Error("the same question was put twice")
			}
			if _, err := desk.Answer(t.Context(), b.ID, gate.Answer{By: "tester"}); err != nil {
				t.Fatal(err)
			}
			if _, body, _ := third.whole(); shows(third.got.bytes(), call) != nil {
				t.Errorf("denied, and the socket has it: %s", body)
			}
		})
	}
}

// allowAll finds nothing: what is withheld below is withheld for its form.
type allowAll struct{}

func (allowAll) Detect([]toolcall.Action) gate.Report { return gate.Report{} }

// What two readers could read differently gives no call, though the gate
// allows everything.
func TestAnswersInBadFormGiveNoCall(t *testing.T) {
	const (
		bad     = "BADCALL"
		sse     = "text/event-stream"
		js      = "application/json"
		fn      = `{"index":0,"id":"BADCALL","type":"function","function":{"name":"bash","arguments":"{\"command\":\"BADCALL\"}"}}`
		chunk   = `{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":null,%s},"finish_reason":null}]}`
		finish  = `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}` + "\n\ndata: [DONE]\n\n"
		doc     = `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":null,%s},"finish_reason":"tool_calls"}]}`
		start   = "event: message_start\ndata: " + `{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}}` + "\n\n"
		use     = `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"BADCALL","name":"bash","input":{}}}`
		delta   = "event: content_block_delta\ndata: " + `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"command\":\"BADCALL\"}"}}` + "\n\n"
		stop    = "event: content_block_stop\ndata: " + `{"type":"content_block_stop","index":0}` + "\n\n"
		end     = "event: message_delta\ndata: " + `{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":9}}` + "\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
		message = `{"id":"m","type":"message","role":"assistant","model":"m","content":[%s],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}`
		block   = `{"type":"tool_use","id":"BADCALL","name":"bash","input":{"command":"BADCALL"}}`
	)
	data := func(s string) string { return "data: " + s + "\n\n" }
	with := func(format, s string) string { return strings.Replace(format, "%s", s, 1) }
	named := func(name, s string) string { return "event: " + name + "\ndata: " + s + "\n\n" }
	chat, msgs := "/v1/chat/completions", "/v1/messages"
	tests := []struct {
		name, path, kind, body string
	}{
		{"chat: a key twice", chat, sse, data(with(chunk, `"tool_calls":[],"tool_calls":[`+fn+`]`)) + finish},
		{"chat: a key twice, the call first", chat, sse, data(with(chunk, `"tool_calls":[`+fn+`],"tool_calls":[]`)) + finish},
		{"chat: an escape in a key", chat, sse, data(with(chunk, `"tool\u005fcalls":[`+fn+`]`)) + finish},
		{"chat: a key in capitals", chat, sse, data(with(chunk, `"Tool_Calls":[`+fn+`]`)) + finish},
		{"chat: a key with a letter that folds", chat, sse, data(with(chunk, `"tool_call\u017f":[`+fn+`]`)) + finish},
		{"chat: the call behind the end", chat, sse, finish + data(with(chunk, `"tool_calls":[`+fn+`]`)) + finish},
		{"chat: no stream at all", chat, sse, with(doc, `"tool_calls":[`+fn+`]`)},
		{"chat: an event of two data lines", chat, sse, strings.Replace(data(with(chunk, `"tool_calls":[`+fn+`]`)), `"choices"`, "\ndata: \"choices\"", 1) + finish},
		{"chat: no blank line at the end", chat, sse, "data: " + with(chunk, `"tool_calls":[`+fn+`]`)},
		{"chat: a call of an unknown type", chat, sse, data(with(chunk, `"tool_calls":[{"index":0,"id":"x","type":"shell","shell":{"command":"BADCALL"}}]`)) + finish},
		{"chat: arguments that are no JSON", chat, sse, data(with(chunk, `"tool_calls":[{"index":0,"id":"BADCALL","type":"function","function":{"name":"bash","arguments":"{\"command\":BADCALL"}}]`)) + finish},
		{"chat: arguments with a key twice", chat, sse, data(with(chunk, `"tool_calls":[{"index":0,"id":"BADCALL","type":"function","function":{"name":"bash","arguments":"{\"command\":\"ls\",\"command\":\"BADCALL\"}"}}]`)) + finish},
		{"chat: an unknown key that holds a call", chat, sse, data(with(chunk, `"actions":[`+fn+`]`)) + finish},
		{"chat: not UTF-8", chat, sse, data(with(chunk, `"x":"`+"\xff"+`","tool_calls":[`+fn+`]`)) + finish},
		{"chat: a document with a key twice", chat, js, with(doc, `"tool_calls":[],"tool_calls":[`+fn+`]`)},
		{"chat: two documents", chat, js, with(doc, `"refusal":null`) + with(doc, `"tool_calls":[`+fn+`]`)},
		{"chat: a document cut short", chat, js, strings.TrimSuffix(with(doc, `"tool_calls":[`+fn+`]`), "}")},
		{"chat: a stream called JSON", chat, js, data(with(chunk, `"tool_calls":[`+fn+`]`)) + finish},
		{"chat: another charset", chat, js + "; charset=utf-16", with(doc, `"tool_calls":[`+fn+`]`)},
		{"chat: a web page", chat, "text/html", with(doc, `"tool_calls":[`+fn+`]`)},
		{"chat: no content type", chat, "", with(doc, `"tool_calls":[`+fn+`]`)},
		{"messages: another event's name", msgs, sse, start + named("ping", use) + delta + stop + end},
		{"messages: no event name", msgs, sse, start + data(use) + delta + stop + end},
		{"messages: an unknown block", msgs, sse, start + named("content_block_start", strings.Replace(use, "tool_use", "shell_use", 1)) + delta + stop + end},
		{"messages: input at the start and behind it", msgs, sse, start + named("content_block_start", strings.Replace(use, `"input":{}`, `"input":{"command":"ls"}`, 1)) + delta + stop + end},
		{"messages: the call behind the end", msgs, sse, start + end + named("content_block_start", use) + delta + stop + end},
		{"messages: an index twice", msgs, sse, start + named("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`) + named("content_block_start", use) + delta + stop + end},
		{"messages: an escape in a key", msgs, sse, start + named("content_block_start", strings.Replace(use, `"content_block":`, `"content\u005fblock":`, 1)) + delta + stop + end},
		{"messages: a block that does not end", msgs, sse, start + named("content_block_start", use) + delta + end},
		{"messages: a document with a key twice", msgs, js, strings.Replace(with(message, block), `"content":`, `"content":[],"content":`, 1)},
		{"messages: an input that is a string", msgs, js, with(message, strings.Replace(block, `{"command":"BADCALL"}`, `"BADCALL"`, 1))},
		{"messages: an unknown block in a document", msgs, js, with(message, strings.Replace(block, `"tool_use"`, `"shell_use"`, 1))},
		{"messages: two documents", msgs, js, with(message, "") + with(message, block)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			head := http.Header{"Content-Type": {tt.kind}}
			g := newRig(t, setup{
				script:   providertest.Script{{Instead: &providertest.Answer{Header: head, Body: tt.body}}},
				detector: allowAll{},
			})
			c := dialRaw(t, g, form{path: tt.path, stream: tt.kind == sse})
			status, body, _ := c.whole()
			if h := append(holds(c.got.bytes(), bad), holds(body, bad)...); h != nil {
				t.Errorf("the socket has the call: %d %s", status, body)
			}
			if f := g.provider.Faults(); f != nil {
				t.Errorf("the case never came to be: %q", f)
			}
		})
	}
	t.Run("and in good form they give it", func(t *testing.T) {
		for _, tt := range []struct{ path, kind, body string }{
			{chat, sse, data(with(chunk, `"tool_calls":[`+fn+`]`)) + finish},
			{chat, js, with(doc, `"tool_calls":[`+fn+`]`)},
			{msgs, sse, start + named("content_block_start", use) + delta + stop + end},
			{msgs, js, with(message, block)},
		} {
			g := newRig(t, setup{
				script:   providertest.Script{{Instead: &providertest.Answer{Header: http.Header{"Content-Type": {tt.kind}}, Body: tt.body}}},
				detector: allowAll{},
			})
			if _, body, _ := dialRaw(t, g, form{path: tt.path, stream: tt.kind == sse}).whole(); string(body) != tt.body {
				t.Errorf("got  %s\nwant %s", body, tt.body)
			}
		}
	})
}

// A restart between the question and the answer loses neither: the question
// is answered afterwards, and the retried call goes through once.
func TestARestartKeepsTheQuestion(t *testing.T) {
	dir := t.TempDir()
	call := toolCall("call_asked", "bash", dangerous)
	script := providertest.Script{{Say: sayCalls(call)}}
	asked := make(chan gate.Approval, 4)
	var id string
	for round := range 2 {
		st, err := store.Open(t.Context(), dir, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		desk, err := person.New(person.Config{
			Store: st, Mask: func(s string) string { return s }, Timeout: time.Minute,
			Notify: func(_ context.Context, a gate.Approval) error { asked <- a; return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Run(fmt.Sprintf("run %d", round+1), func(t *testing.T) {
			g := newRig(t, setup{script: script, person: desk, principal: []byte("the key that is kept")})
			if round == 0 {
				c := dialRaw(t, g, forms[1])
				id = (<-asked).ID
				c.conn.Close()
				<-c.done
				return
			}
			if _, err := desk.Answer(t.Context(), id, gate.Answer{Approve: true, By: "tester"}); err != nil {
				t.Fatal(err)
			}
			c := dialRaw(t, g, forms[1])
			select {
			case <-c.done:
			case a := <-asked:
				t.Fatalf("a person was asked again: %s", a.ID)
			}
			if shows(c.got.bytes(), call) == nil {
				t.Errorf("the call was approved and did not come: %s", c.got.bytes())
			}
		})
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Chat Completions carries calls in other forms and in several choices too.
func TestOtherFormsOfCalls(t *testing.T) {
	sse := forms[1]
	allowed := toolCall("call_fine", "bash", "echo")
	tests := []struct {
		name  string
		form  providertest.Form
		lanes int
	}{
		{"a custom call", providertest.Custom, 1},
		{"a legacy call", providertest.Legacy, 1},
		{"two choices", providertest.Function, 2},
		{"three choices of custom calls", providertest.Custom, 3},
	}
	for _, f := range forms {
		if f.path != sse.path {
			continue
		}
		for _, tt := range tests {
			for _, word := range []string{"echo", forbidden} {
				t.Run(fmt.Sprintf("%s/%s/%s", f.name, tt.name, word), func(t *testing.T) {
					call := toolCall("call_other", "bash", word)
					call.Form = tt.form
					turn := providertest.Turn{Say: sayCalls(call)}
					if tt.lanes > 1 {
						turn.Other = [][]providertest.Item{sayCalls(allowed)}
					}
					g := newRig(t, setup{script: providertest.Script{turn}})
					f := f
					f.lanes = tt.lanes
					c := dialRaw(t, g, f)
					status, body, whole := c.whole()
					if status != http.StatusOK || !whole || f.stream && !f.ends(body) {
						t.Fatalf("status %d, whole %v: %s", status, whole, body)
					}
					if word == "echo" {
						if sent := g.provider.Requests()[0].Sent; !bytes.Equal(body, sent) {
							t.Errorf("allowed, and not the same\nsent %s\nseen %s", sent, body)
						}
						return
					}
					if s := shows(c.got.bytes(), call); s != nil {
						t.Errorf("denied, and the socket has %q", s)
					}
					// The third choice says what the first does.
					if n, want := bytes.Count(body, []byte("[callgate]")), max(1, tt.lanes-1); n != want {
						t.Errorf("%d refusals, want %d: %s", n, want, body)
					}
					if s := shows(c.got.bytes(), allowed); tt.lanes > 1 && s == nil {
						t.Errorf("the other choice lost its call: %s", body)
					}
				})
			}
		}
	}
}
