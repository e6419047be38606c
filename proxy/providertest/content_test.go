package providertest

import (
	"strings"
	"testing"
)

// Who asks again with an answer and a refusal of its calls gets the next turn,
// though the client knows nothing of either.
func TestAResumedRequestGetsTheNextTurn(t *testing.T) {
	script := Script{
		{Say: []Item{Text("one"), Call{ID: "a", Name: "bash", Args: `{}`}}},
		{Say: []Item{Text("two"), Call{ID: "b", Name: "bash", Args: `{}`}}},
		{Say: []Item{Text("three")}},
		{Say: []Item{Text("four")}},
	}
	chatRound := func(id string) string {
		return `,{"role":"assistant","content":"x","tool_calls":[{"id":"` + id + `","type":"function","function":{"name":"bash","arguments":"{}"}}]},` +
			`{"role":"tool","tool_call_id":"` + id + `","content":"refused"}`
	}
	messagesRound := func(id string) string {
		return `,{"role":"assistant","content":[{"type":"text","text":"x"},{"type":"tool_use","id":"` + id + `","name":"bash","input":{}}]},` +
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"` + id + `","content":"refused","is_error":true}]}`
	}
	const user, next = `{"role":"user","content":"hi"}`, `,{"role":"assistant","content":"y"},{"role":"user","content":"go on"}`
	for name, f := range map[string]struct {
		path  string
		body  func(string) string
		round func(string) string
	}{
		"chat":     {"/v1/chat/completions", chatMessages, chatRound},
		"messages": {"/v1/messages", messagesMessages, messagesRound},
	} {
		histories := []string{user, user + f.round("a"), user + f.round("a") + f.round("b"), user + f.round("a") + f.round("b") + next}
		for kind, p := range map[string]*Provider{"by progress": New(script), "in order": NewSequential(script)} {
			t.Run(name+" "+kind, func(t *testing.T) {
				head := messagesHead()
				head["Authorization"] = "Bearer k"
				for i, h := range histories {
					status, answer := ask(t, p, f.path, head, f.body(h))
					if want := string(script[i].Say[0].(Text)); status != 200 || !strings.Contains(answer, want) || p.Requests()[i].Turn != i {
						t.Errorf("request %d: turn %d, status %d: %s", i, p.Requests()[i].Turn, status, answer)
					}
				}
			})
		}
	}
}

// A script by content is told where the conversation stands.
func TestAScriptByContent(t *testing.T) {
	var got Asked
	p := NewByContent(func(a Asked) (Turn, bool) {
		got = a
		return Turn{Say: []Item{Text("fine"), Call{ID: "z", Name: "bash", Args: `{}`}}}, a.Words != "nothing"
	})
	p.Alternate = false
	const (
		chatCall = `{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"bash","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"ok"}`
		use      = `{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"bash","input":{}}]}`
		res      = `{"type":"tool_result","tool_use_id":"a","content":"ok"}`
		said     = `{"role":"assistant","content":"so"}`
	)
	user := func(words string) string { return `{"role":"user","content":"` + words + `"}` }
	tests := []struct {
		name, path, body string
		answers, since   int
		words            string
	}{
		{"chat begins", "/v1/chat/completions", chatMessages(`{"role":"system","content":"x"},` + user("hi")), 0, 0, "hi"},
		{"chat in a loop", "/v1/chat/completions", chatMessages(user("hi") + "," + said + "," + user("go") + "," + chatCall), 2, 1, "go"},
		{"chat with an answer in two messages", "/v1/chat/completions", chatMessages(user("hi") + "," + said + "," + chatCall), 1, 1, "hi"},
		{"chat in parts", "/v1/chat/completions", chatMessages(`{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`), 0, 0, "ab"},
		{"messages in a loop", "/v1/messages", messagesMessages(user("hi") + "," + use + `,{"role":"user","content":[` + res + `]}`), 1, 1, "hi"},
		{"messages with an answer in two messages", "/v1/messages", messagesMessages(user("hi") + "," + said + "," + use + `,{"role":"user","content":[` + res + `]}`), 1, 1, "hi"},
		{"messages with words behind results", "/v1/messages", messagesMessages(user("hi") + "," + use + `,{"role":"user","content":[` + res + `,{"type":"text","text":"stop"}]}`), 1, 0, "stop"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			head := messagesHead()
			head["Authorization"] = "Bearer k"
			if status, answer := ask(t, p, tt.path, head, tt.body); status != 200 {
				t.Fatalf("%d %s", status, answer)
			}
			if got.Answers != tt.answers || got.Since != tt.since || got.Words != tt.words || string(got.Body) != tt.body || got.Header.Get("Authorization") != "Bearer k" {
				t.Errorf("got %d answers, %d since %q", got.Answers, got.Since, got.Words)
			}
		})
	}
	if status, answer := ask(t, p, "/v1/chat/completions", chatHead(), chatMessages(user("nothing"))); status != 400 || !strings.Contains(answer, "no turn") {
		t.Errorf("%d %s", status, answer)
	}
}

// Two customers may have calls of one id, each behind thinking of its own.
func TestThinkingOfTwoCallsWithOneID(t *testing.T) {
	p := New(Script{
		{Say: []Item{Thinking("let me see"), Call{ID: "call_0", Name: "bash", Args: `{}`}}},
		{Say: []Item{Text("done")}},
	})
	signature := map[string]string{}
	for _, words := range []string{"hi", "ho"} {
		_, answer := ask(t, p, "/v1/messages", messagesHead(), messagesMessages(`{"role":"user","content":"`+words+`"}`))
		_, rest, _ := strings.Cut(answer, `"signature":"`)
		signature[words], _, _ = strings.Cut(rest, `"`)
	}
	for _, words := range []string{"hi", "ho"} {
		body := messagesMessages(`{"role":"user","content":"` + words + `"},{"role":"assistant","content":[{"type":"thinking","thinking":"let me see","signature":"` +
			signature[words] + `"},{"type":"tool_use","id":"call_0","name":"bash","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_0","content":"x"}]}`)
		if status, answer := ask(t, p, "/v1/messages", messagesHead(), thinking(body)); status != 200 {
			t.Errorf("%s: %s", words, answer)
		}
		bare := messagesMessages(`{"role":"user","content":"` + words + `"},{"role":"assistant","content":[{"type":"tool_use","id":"call_0","name":"bash","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_0","content":"x"}]}`)
		if status, _ := ask(t, p, "/v1/messages", messagesHead(), thinking(bare)); status != 400 {
			t.Errorf("%s: taken without its thinking", words)
		}
	}
}
