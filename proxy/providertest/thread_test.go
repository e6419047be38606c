package providertest

import (
	"maps"
	"net/http"
	"strings"
	"testing"
)

func threadHead() map[string]string {
	head := messagesHead()
	head["Anthropic-Beta"] = "fine-grained-2025-01-01, " + threadBeta
	return head
}

// threaded makes a request of a thread; ANSWER in it stands for the id of the
// newest answer.
func threaded(rest string) string { return `{"model":"m","max_tokens":9,` + rest + `}` }

const (
	threadCreate = messagesToolsJSON + `,"thread":{"type":"create"},"messages":[{"role":"user","content":"hi"}]`
	threadGoOn   = `"thread":{"type":"continue","previous_message_id":"ANSWER"},"messages":`
	threadRes    = `{"type":"tool_result","tool_use_id":"a","content":"ok"}`
)

// idOf gives the id in an answer.
func idOf(answer string) string {
	_, rest, _ := strings.Cut(answer, `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

func TestThreads(t *testing.T) {
	script := Script{
		{Say: []Item{Text("so"), Call{ID: "a", Name: "bash", Args: `{}`}, Call{ID: "b", Name: "bash", Args: `{}`}}},
		{Say: []Item{Text("and"), Call{ID: "c", Name: "bash", Args: `{}`}}},
		{Say: []Item{Text("done")}},
		{Say: []Item{Text("yes")}},
	}
	both := threaded(threadGoOn + `[{"role":"user","content":[` + threadRes + `,` + strings.Replace(threadRes, `"a"`, `"b"`, 1) + `]}]`)
	third := threaded(threadGoOn + `[{"role":"user","content":[` + strings.Replace(threadRes, `"a"`, `"c"`, 1) + `]}]`)
	tests := []struct {
		name   string
		bodies []string // all but the last are fine
		status int      // of the last
		code   string   // of the last, "" for none
		fault  string
	}{
		{"created", []string{threaded(threadCreate)}, 200, "", ""},
		{"continued to its end and by a user", []string{threaded(threadCreate), both, third, threaded(threadGoOn + `[{"role":"user","content":"more"}]`)}, 200, "", ""},
		{"continued as a stream", []string{threaded(threadCreate + `,"stream":true`), strings.Replace(both, `{`, `{"stream":true,`, 1), third}, 200, "", ""},
		{"continued with a tool choice", []string{threaded(threadCreate), strings.Replace(both, `{`, `{"tool_choice":{"type":"tool","name":"bash"},`, 1)}, 200, "", ""},
		{"continued with a marker for the cache in a block", []string{threaded(threadCreate), strings.Replace(both, `"content":"ok"`, `"content":"ok","cache_control":{"type":"ephemeral"}`, 1)}, 200, "", ""},

		{"of an unknown kind", []string{threaded(strings.Replace(threadCreate, "create", "fork", 1))}, 400, "", "'create' or 'continue'"},
		{"continued from an answer nobody gave", []string{strings.Replace(both, "ANSWER", "msg_01nothing", 1)}, 404, "thread_not_found", "msg_01nothing"},
		{"continued from an answer without a thread", []string{messagesMessages(`{"role":"user","content":"hi"}`), both}, 404, "thread_not_found", "no thread"},
		{"continued with the tools again", []string{threaded(threadCreate), strings.Replace(both, `{`, `{`+messagesToolsJSON+`,`, 1)}, 400, "thread_fingerprint_mismatch", "`tools`"},
		{"continued with a system prompt", []string{threaded(threadCreate), strings.Replace(both, `{`, `{"system":"x",`, 1)}, 400, "thread_fingerprint_mismatch", "`system`"},
		{"continued with another model", []string{threaded(threadCreate), strings.Replace(both, `"m"`, `"n"`, 1)}, 400, "thread_fingerprint_mismatch", "`model`"},
		{"with a marker for the cache at the top", []string{threaded(threadCreate + `,"cache_control":{"type":"ephemeral"}`)}, 400, "thread_unsupported_request", "`cache_control`"},
		{"with thinking", []string{threaded(threadCreate + `,"thinking":{"type":"adaptive"}`)}, 400, "thread_unsupported_request", "`thinking`"},
		{"continued without an id", []string{threaded(`"thread":{"type":"continue"},"messages":[{"role":"user","content":"x"}]`)}, 400, "", "previous_message_id"},
		{"continued without one of the results", []string{threaded(threadCreate), threaded(threadGoOn + `[{"role":"user","content":[` + threadRes + `]}]`)}, 400, "", "immediately after: b"},
		{"continued with words alone", []string{threaded(threadCreate), threaded(threadGoOn + `[{"role":"user","content":"x"}]`)}, 400, "", "immediately after: a, b"},
		{"continued with a result of an older call", []string{threaded(threadCreate), both, both}, 400, "", "unexpected `tool_use_id`"},
		{"continued with the history again", []string{threaded(threadCreate), strings.Replace(both, `[{"role"`, `[{"role":"assistant","content":"so"},{"role"`, 1)}, 400, "", "alternate"},
		{"continued with nothing", []string{threaded(threadCreate), threaded(threadGoOn + `[]`)}, 400, "", "at least one message"},
		{"with an unknown member", []string{threaded(strings.Replace(threadCreate, `"create"`, `"create","id":"x"`, 1))}, 400, "", "not permitted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := New(script)
			id := "none"
			for i, body := range tt.bodies {
				status, answer := ask(t, p, "/v1/messages", threadHead(), strings.ReplaceAll(body, "ANSWER", id))
				if i < len(tt.bodies)-1 {
					if status != 200 {
						t.Fatalf("request %d: %d %s", i, status, answer)
					}
					id = idOf(answer)
					continue
				}
				if status != tt.status || (tt.fault == "") != (len(p.Faults()) == 0) || tt.fault != "" && !strings.Contains(p.Faults()[0], tt.fault) {
					t.Errorf("got %d, %q: %s", status, p.Faults(), answer)
				}
				if has := strings.Contains(answer, `"details"`); has != (tt.code != "") || has && !strings.Contains(answer, `"details":{"error_code":"`+tt.code+`"}`) {
					t.Errorf("the body names no or another error: %s", answer)
				}
			}
		})
	}
	t.Run("without the beta header", func(t *testing.T) {
		checkStrict(t, "/v1/messages", messagesHead(), threaded(threadCreate), "anthropic-beta")
	})
}

// An answer can be continued once; one that did not come about does not count.
func TestAnAnswerIsContinuedOnce(t *testing.T) {
	script := Script{
		{Say: []Item{Call{ID: "a", Name: "bash", Args: `{}`}}},
		{Instead: &Answer{Status: 529, Message: "busy"}},
	}
	p := NewSequential(append(script, Turn{Say: []Item{Text("fine")}}, Turn{Say: []Item{Text("fine")}}))
	_, first := ask(t, p, "/v1/messages", threadHead(), threaded(threadCreate))
	body := strings.Replace(threaded(threadGoOn+`[{"role":"user","content":[`+threadRes+`]}]`), "ANSWER", idOf(first), 1)
	for i, want := range []int{529, 200, 400, 400} {
		status, answer := ask(t, p, "/v1/messages", threadHead(), body)
		if status != want || want == 400 && !strings.Contains(answer, `"error_code":"thread_already_continued"`) {
			t.Errorf("request %d: %d %s", i, status, answer)
		}
	}
	// The conversation may be told anew as a thread of its own.
	again := threaded(strings.Replace(threadCreate, `"hi"}`, `"hi"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"bash","input":{}}]},{"role":"user","content":[`+threadRes+`]}`, 1))
	if status, answer := ask(t, p, "/v1/messages", threadHead(), again); status != 200 {
		t.Errorf("%d %s", status, answer)
	}
}

// What a thread holds counts when a turn is picked and when the model's room
// is measured.
func TestAThreadsHistoryCounts(t *testing.T) {
	p := New(Script{
		{Say: []Item{Text(strings.Repeat("long ", 100)), Call{ID: "a", Name: "bash", Args: `{}`}}},
		{Say: []Item{Text("second")}},
		{Say: []Item{Text("third")}},
	})
	p.MaxHistory = 1100
	_, first := ask(t, p, "/v1/messages", threadHead(), threaded(threadCreate))
	goOn := strings.Replace(threaded(threadGoOn+`[{"role":"user","content":[`+threadRes+`]}]`), "ANSWER", idOf(first), 1)
	status, second := ask(t, p, "/v1/messages", threadHead(), goOn)
	if status != 200 || !strings.Contains(second, "second") {
		t.Fatalf("%d %s", status, second)
	}
	status, answer := ask(t, p, "/v1/messages", threadHead(),
		strings.Replace(threaded(threadGoOn+`[{"role":"user","content":"`+strings.Repeat("x", 300)+`"}]`), "ANSWER", idOf(second), 1))
	if status != 400 || !strings.Contains(answer, "prompt is too long") {
		t.Errorf("%d %s", status, answer)
	}
}

func TestTokensAreCounted(t *testing.T) {
	const (
		user = `{"role":"user","content":"hi"}`
		call = `{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"bash","input":{}}]}`
		res  = `{"role":"user","content":[` + threadRes + `]}`
	)
	count := func(msgs string) string { return `{"model":"m",` + messagesToolsJSON + `,"messages":[` + msgs + `]}` }
	tests := []struct{ name, body, fault string }{
		{"a history", count(user + "," + call + "," + res), ""},
		{"thinking without a limit on the answer", strings.Replace(count(user), `{`, `{"thinking":{"type":"enabled","budget_tokens":2000},`, 1), ""},
		{"a limit on the answer", messagesMessages(user), "max_tokens: extra inputs"},
		{"a stream", strings.Replace(count(user), `{`, `{"stream":true,`, 1), "stream: extra inputs"},
		{"a thread", strings.Replace(count(user), `{`, `{"thread":{"type":"create"},`, 1), "thread: extra inputs"},
		{"a call without its result", count(user + "," + call), "immediately after: a"},
		{"a result without its call", count(res), "unexpected `tool_use_id`"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := New(Script{})
			status, answer := ask(t, p, "/v1/messages/count_tokens", messagesHead(), tt.body)
			if tt.fault != "" {
				if status != 400 || len(p.Faults()) != 1 || !strings.Contains(p.Faults()[0], tt.fault) {
					t.Errorf("%d, %q: %s", status, p.Faults(), answer)
				}
				return
			}
			if status != 200 || !strings.HasPrefix(answer, `{"input_tokens":`) || p.Requests()[0].Turn != -1 {
				t.Errorf("%d, turn %d: %s", status, p.Requests()[0].Turn, answer)
			}
		})
	}
}

func TestTooLongAHistory(t *testing.T) {
	long := `{"role":"user","content":"` + strings.Repeat("x", 400) + `"}`
	tests := []struct {
		name, path, body string
		want             []string // in the answer; none when it is taken
	}{
		{"messages", "/v1/messages", messagesMessages(long), []string{`"type":"invalid_request_error"`, "prompt is too long: ", " tokens > 76 maximum"}},
		{"chat", "/v1/chat/completions", chatMessages(long), []string{`"code":"context_length_exceeded"`, `"param":"messages"`, "maximum context length is 76 tokens"}},
		{"a short one", "/v1/messages", messagesMessages(`{"role":"user","content":"hi"}`), nil},
		{"the count of a long one", "/v1/messages/count_tokens", `{"model":"m","messages":[` + long + `]}`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := New(say())
			p.MaxHistory = 300
			head := messagesHead()
			maps.Copy(head, chatHead())
			status, answer := ask(t, p, tt.path, head, tt.body)
			if want := map[bool]int{true: 400, false: 200}[tt.want != nil]; status != want {
				t.Fatalf("%d %s", status, answer)
			}
			for _, w := range tt.want {
				if !strings.Contains(answer, w) {
					t.Errorf("no %s in %s", w, answer)
				}
			}
		})
	}
}

func TestRolesTakeTurns(t *testing.T) {
	const (
		user = `{"role":"user","content":"hi"}`
		said = `{"role":"assistant","content":"so"}`
	)
	tests := []struct{ name, path, body, fault string }{
		{"chat with two users", "/v1/chat/completions", chatMessages(user + "," + user), "alternate"},
		{"chat with two answers", "/v1/chat/completions", chatMessages(user + "," + said + "," + said + "," + user), "alternate"},
		{"chat with results in between", "/v1/chat/completions", chatMessages(user +
			`,{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"bash","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"bash","arguments":"{}"}}]}` +
			`,{"role":"tool","tool_call_id":"a","content":"x"},{"role":"tool","tool_call_id":"b","content":"x"},` + said + "," + user), ""},
		{"messages with two users", "/v1/messages", messagesMessages(user + "," + user), "alternate"},
		{"messages with two answers", "/v1/messages", messagesMessages(user + "," + said + "," + said + "," + user), "alternate"},
		{"messages in turns", "/v1/messages", messagesMessages(user + "," + said + "," + user), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := New(say())
			head := messagesHead()
			maps.Copy(head, chatHead())
			_, answer := ask(t, p, tt.path, head, tt.body)
			if f := p.Faults(); (tt.fault == "") != (len(f) == 0) || tt.fault != "" && !strings.Contains(f[0], tt.fault) {
				t.Errorf("%q: %s", f, answer)
			}
			if tt.fault == "" {
				return
			}
			p.Alternate = false
			if status, answer := ask(t, p, tt.path, head, tt.body); status != http.StatusOK {
				t.Errorf("refused although they are joined: %s", answer)
			}
		})
	}
}
