package providertest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

// fetch asks a provider over a real connection and gives the answer and what
// ended its body.
func fetch(t *testing.T, p *Provider, path, body string) (*http.Response, []byte, error) {
	t.Helper()
	srv := httptest.NewServer(p)
	defer srv.Close()
	r, err := http.NewRequest(http.MethodPost, srv.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	head := messagesHead()
	head["Authorization"] = "Bearer k"
	for k, v := range head {
		r.Header.Set(k, v)
	}
	res, err := (&http.Transport{DisableCompression: true}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	return res, got, err
}

const (
	chatStream     = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}`
	messagesStream = `{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"hi"}]}`
)

// dataOf gives the data lines of a stream.
func dataOf(stream []byte) []string {
	var out []string
	for _, l := range strings.Split(string(stream), "\n") {
		if d, ok := strings.CutPrefix(l, "data: "); ok {
			out = append(out, d)
		}
	}
	return out
}

func TestChatStreamLooksLikeTheRealOne(t *testing.T) {
	p := New(Script{{
		Say: []Item{
			Thinking("hm"), Text("So it is"),
			Call{ID: "call_1", Name: "bash", Args: `{"command":"ls <x>"}`},
			Call{ID: "call_2", Name: "patch", Args: "free text", Form: Custom},
		},
		Usage: Usage{Input: 7, Output: 5},
	}})
	res, body, err := fetch(t, p, "/v1/chat/completions", chatStream)
	if err != nil || res.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		t.Fatalf("%v, %v", res.Header, err)
	}
	var got []string
	for _, d := range dataOf(body) {
		var ck struct {
			ID, Object string
			Choices    []struct {
				Delta  json.RawMessage
				Finish *string `json:"finish_reason"`
			}
			Usage json.RawMessage
		}
		if d == "[DONE]" {
			got = append(got, d)
			continue
		}
		if err := json.Unmarshal([]byte(d), &ck); err != nil {
			t.Fatalf("%v in %s", err, d)
		}
		if ck.ID != name("chatcmpl-", "chat", 0) || ck.Object != "chat.completion.chunk" {
			t.Errorf("envelope of %s", d)
		}
		if len(ck.Choices) == 0 {
			got = append(got, string(ck.Usage))
			continue
		}
		if string(ck.Usage) != "null" {
			t.Errorf("usage before the end in %s", d)
		}
		if f := ck.Choices[0].Finish; f != nil {
			got = append(got, *f)
			continue
		}
		got = append(got, string(ck.Choices[0].Delta))
	}
	want := []string{
		`{"role":"assistant","content":"","refusal":null}`,
		`{"reasoning_content":"hm"}`,
		`{"content":"So "}`, `{"content":"it "}`, `{"content":"is"}`,
		`{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"bash","arguments":""}}]}`,
		`{"tool_calls":[{"index":0,"function":{"arguments":"{\"command"}}]}`,
		`{"tool_calls":[{"index":0,"function":{"arguments":"\":\"ls <x>"}}]}`,
		`{"tool_calls":[{"index":0,"function":{"arguments":"\"}"}}]}`,
		`{"tool_calls":[{"index":1,"id":"call_2","type":"custom","custom":{"name":"patch","input":""}}]}`,
		`{"tool_calls":[{"index":1,"custom":{"input":"free text"}}]}`,
		"tool_calls",
		`{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}`,
		"[DONE]",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if sent := p.Requests()[0].Sent; !bytes.Equal(sent, body) {
		t.Error("what was recorded as sent is not what arrived")
	}
}

func TestMessagesStreamLooksLikeTheRealOne(t *testing.T) {
	p := New(Script{{Say: []Item{
		Thinking("hm"), Text("So be it"), Call{ID: "toolu_1", Name: "bash", Args: `{"command":"ls"}`},
	}}})
	_, body, err := fetch(t, p, "/v1/messages", messagesStream)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range strings.Split(string(body), "\n") {
		if n, ok := strings.CutPrefix(l, "event: "); ok {
			names = append(names, n)
		}
	}
	want := slices.Concat(
		[]string{"message_start", "content_block_start", "ping", "content_block_delta", "content_block_delta", "content_block_stop"},
		[]string{"content_block_start", "content_block_delta", "content_block_delta", "content_block_delta", "content_block_stop"},
		[]string{"content_block_start", "content_block_delta", "content_block_delta", "content_block_delta", "content_block_stop"},
		[]string{"message_delta", "message_stop"},
	)
	if d := cmp.Diff(want, names); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	var pieces string
	for i, d := range dataOf(body) {
		var ev struct {
			Type  string
			Delta struct {
				JSON string `json:"partial_json"`
				Stop string `json:"stop_reason"`
			}
		}
		if err := json.Unmarshal([]byte(d), &ev); err != nil || ev.Type != names[i] {
			t.Errorf("event %d (%s) holds %s", i, names[i], d)
		}
		pieces += ev.Delta.JSON + ev.Delta.Stop
	}
	if pieces != `{"command":"ls"}tool_use` {
		t.Errorf("arguments and stop reason came as %s", pieces)
	}
}

func TestDocuments(t *testing.T) {
	turn := Turn{Say: []Item{Text("so"), Call{ID: "c", Name: "bash", Args: `{"a": 1}`}}, Usage: Usage{1, 2}}
	tests := []struct{ name, path, body, want string }{
		{"chat", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
			`{"index":0,"message":{"role":"assistant","content":"so","refusal":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"bash","arguments":"{\"a\": 1}"}}],"annotations":[]},"logprobs":null,"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}`},
		{"messages", "/v1/messages", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`,
			`"content":[{"type":"text","text":"so"},{"type":"tool_use","id":"c","name":"bash","input":{"a":1}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":1,`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res, body, err := fetch(t, New(Script{turn}), tt.path, tt.body)
			if err != nil || res.ContentLength != int64(len(body)) || !json.Valid(body) {
				t.Fatalf("length %d of %d, %v", res.ContentLength, len(body), err)
			}
			if !strings.Contains(string(body), tt.want) {
				t.Errorf("got  %s\nwant %s", body, tt.want)
			}
		})
	}
}

func TestChoicesAndForms(t *testing.T) {
	p := New(Script{
		{Say: []Item{Call{ID: "c", Name: "bash", Args: `{}`}}, Other: [][]Item{{Text("no")}}},
		{Say: []Item{Call{Name: "bash", Args: `{}`, Form: Legacy}}},
	})
	_, body, _ := fetch(t, p, "/v1/chat/completions", `{"model":"m","n":3,"messages":[{"role":"user","content":"hi"}]}`)
	var doc struct {
		Choices []struct {
			Index   int
			Finish  string `json:"finish_reason"`
			Message struct {
				Content *string
				Calls   []struct{ ID string } `json:"tool_calls"`
			}
		}
	}
	if err := json.Unmarshal(body, &doc); err != nil || len(doc.Choices) != 3 {
		t.Fatalf("%v in %s", err, body)
	}
	ch := doc.Choices
	if ch[0].Message.Calls[0].ID != "c" || ch[1].Finish != "stop" || ch[2].Message.Calls[0].ID != "c-2" || ch[2].Index != 2 {
		t.Errorf("choices %+v", ch)
	}
	_, body, _ = fetch(t, p, "/v1/chat/completions",
		`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"x"},{"role":"user","content":"y"}]}`)
	if s := string(body); !strings.Contains(s, `"delta":{"function_call":{"name":"bash","arguments":""}}`) ||
		!strings.Contains(s, `"finish_reason":"function_call"`) || strings.Contains(s, `"usage"`) {
		t.Errorf("legacy stream: %s", s)
	}
}

// The turn follows the conversation, or the count of requests.
func TestWhichTurnIsGiven(t *testing.T) {
	script := Script{{Say: []Item{Text("one")}}, {Say: []Item{Text("two")}}}
	first := `{"model":"m","messages":[{"role":"user","content":"a"}]}`
	second := `{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"one"},{"role":"user","content":"b"}]}`
	tests := []struct {
		name     string
		provider *Provider
		bodies   []string
		want     []int
	}{
		{"by progress", New(script), []string{first, first, second, first}, []int{0, 0, 1, 0}},
		{"one after the other", NewSequential(script), []string{first, first, first}, []int{0, 1, -1}},
		{"beyond the script", New(script[:1]), []string{second}, []int{-1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for i, b := range tt.bodies {
				status, out := ask(t, tt.provider, "/v1/chat/completions", chatHead(), b)
				if got := tt.provider.Requests()[i]; got.Turn != tt.want[i] || (status == 200) != (tt.want[i] >= 0) {
					t.Errorf("request %d gave turn %d, status %d: %s", i, got.Turn, status, out)
				}
			}
		})
	}
}

// However an answer is cut into writes and coded, it is the same answer.
func TestPiecesAndCodings(t *testing.T) {
	turn := Turn{Say: []Item{Text("größe is übrig"), Call{ID: "c", Name: "bash", Args: `{"command":"echo ü"}`}}}
	decode := map[string]func([]byte) ([]byte, error){
		"": func(b []byte) ([]byte, error) { return b, nil },
		"gzip": func(b []byte) ([]byte, error) {
			r, err := gzip.NewReader(bytes.NewReader(b))
			if err != nil {
				return nil, err
			}
			return io.ReadAll(r)
		},
		"br": func(b []byte) ([]byte, error) { return io.ReadAll(brotli.NewReader(bytes.NewReader(b))) },
		"zstd": func(b []byte) ([]byte, error) {
			r, err := zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderConcurrency(1))
			if err != nil {
				return nil, err
			}
			defer r.Close()
			return io.ReadAll(r)
		},
	}
	for _, req := range []struct{ path, body string }{
		{"/v1/chat/completions", chatStream}, {"/v1/messages", messagesStream},
		{"/v1/messages", strings.Replace(messagesStream, "true", "false", 1)},
	} {
		_, want, err := fetch(t, New(Script{turn}), req.path, req.body)
		if err != nil {
			t.Fatal(err)
		}
		for coding, dec := range decode {
			for _, chunk := range []int{PerEvent, Whole, 1, 7} {
				turn := turn
				turn.Chunk, turn.Coding = chunk, coding
				res, body, err := fetch(t, New(Script{turn}), req.path, req.body)
				if err != nil || res.Header.Get("Content-Encoding") != coding {
					t.Fatalf("%s by %d: %v, %v", coding, chunk, res.Header, err)
				}
				got, err := dec(body)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%q by %d differs (%v)", coding, chunk, err)
				}
			}
		}
	}
}

func TestCuts(t *testing.T) {
	script := func(c *Cut, chunk int) *Provider {
		return New(Script{{Say: []Item{Text("a b c")}, Cut: c, Chunk: chunk}})
	}
	_, whole, _ := fetch(t, script(nil, PerEvent), "/v1/chat/completions", chatStream)
	events := bytes.SplitAfter(whole, []byte("\n\n"))
	two := len(events[0]) + len(events[1])
	tests := []struct {
		name   string
		cut    *Cut
		want   int
		broken bool
	}{
		{"behind two events", AfterEvents(2), two, true},
		{"before the first", AfterEvents(0), 0, true},
		{"inside an event", AfterBytes(11), 11, true},
		{"between two events by bytes", AfterBytes(two), two, true},
		{"as if whole", &Cut{Events: 2, Bytes: -1, Clean: true}, two, false},
		{"behind the end", AfterBytes(len(whole)), len(whole), false},
	}
	for _, tt := range tests {
		for _, chunk := range []int{PerEvent, Whole, 3} {
			_, got, err := fetch(t, script(tt.cut, chunk), "/v1/chat/completions", chatStream)
			if !bytes.Equal(got, whole[:tt.want]) || (err != nil) != tt.broken {
				t.Errorf("%s by %d: %d bytes of %d, %v", tt.name, chunk, len(got), tt.want, err)
			}
		}
	}
}

func TestInstead(t *testing.T) {
	tests := []struct {
		name, path, body string
		answer           Answer
		status           int
		want             string
	}{
		{"chat's error", "/v1/chat/completions", chatStream, Answer{Status: 429, Message: "slow", Header: http.Header{"Retry-After": {"3"}}}, 429,
			`{"error":{"code":null,"message":"slow","param":null,"type":"rate_limit_exceeded"}}`},
		{"messages' error", "/v1/messages", messagesStream, Answer{Status: 529, Message: "busy"}, 529,
			`{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`},
		{"a body of its own", "/v1/messages", messagesStream, Answer{Header: http.Header{"content-type": {"text/html"}}, Body: "<p>"}, 200, "<p>"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := New(Script{{Instead: &tt.answer}})
			res, body, err := fetch(t, p, tt.path, tt.body)
			if err != nil || res.StatusCode != tt.status || string(body) != tt.want {
				t.Errorf("%d %s, %v", res.StatusCode, body, err)
			}
			for k, v := range tt.answer.Header {
				if res.Header.Get(k) != v[0] {
					t.Errorf("header %s is %q", k, res.Header.Get(k))
				}
			}
			if len(p.Faults()) != 0 {
				t.Errorf("an answer of the script counts as a fault: %q", p.Faults())
			}
		})
	}
}

// A request may come in any of the three codings.
func TestRequestsAreDecoded(t *testing.T) {
	plain := []byte(messagesStream)
	var gz, br, zs bytes.Buffer
	for _, w := range []io.WriteCloser{gzip.NewWriter(&gz), brotli.NewWriter(&br), func() io.WriteCloser {
		w, _ := zstd.NewWriter(&zs, zstd.WithEncoderConcurrency(1))
		return w
	}()} {
		_, _ = w.Write(plain)
		_ = w.Close()
	}
	for coding, body := range map[string]*bytes.Buffer{"gzip": &gz, "br": &br, "zstd": &zs} {
		head := messagesHead()
		head["Content-Encoding"] = coding
		p := New(say())
		if status, out := ask(t, p, "/v1/messages", head, body.String()); status != 200 || !bytes.Equal(p.Requests()[0].Body, plain) {
			t.Errorf("%s: %d %s", coding, status, out)
		}
	}
}

func TestEveryWaitsAndStopsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		Every(time.Second)(t.Context(), 3)
		if d := time.Since(start); d != time.Second {
			t.Errorf("waited %v", d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		Every(time.Hour)(ctx, 3)
		if d := time.Since(start); d != time.Second {
			t.Errorf("waited %v after the end", d)
		}
	})
}

// Before is called before each event, and what stands before is out by then.
func TestBeforeSeesWhatWasSent(t *testing.T) {
	var p *Provider
	var seen []int
	p = New(Script{{Say: []Item{Text("a b")}, Before: func(_ context.Context, i int) {
		if n := bytes.Count(p.Requests()[0].Sent, []byte("\n\n")); n != i {
			t.Errorf("before event %d there were %d", i, n)
		}
		seen = append(seen, i)
	}}})
	if _, _, err := fetch(t, p, "/v1/messages", messagesStream); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(seen, []int{0, 1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("called before %v", seen)
	}
}
