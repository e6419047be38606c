package anthropic

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"callgate/inspect"
	"callgate/inspect/digest"
)

// asked reads a body, which may be one for counting tokens.
func asked(t testing.TB, body []byte) *request {
	t.Helper()
	req, err := Dialect{}.Request(inspect.Head{Method: "POST", Path: "/v1/messages"}, body)
	if err != nil {
		t.Fatal(err)
	}
	return req.(*request)
}

func walked(t testing.TB, body string) inspect.History {
	t.Helper()
	h, err := asked(t, []byte(body)).History()
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return h
}

// writtenRound is a round as the cases write it.
type writtenRound struct {
	ID       string            `json:"id"`
	Message  json.RawMessage   `json:"message"`
	Calls    []string          `json:"calls"`
	Refusals []inspect.Refusal `json:"refusals"`
}

func readRounds(list []writtenRound) (rounds []inspect.Round) {
	for _, r := range list {
		rounds = append(rounds, inspect.Round{ID: r.ID, Message: r.Message, Calls: r.Calls, Refusals: r.Refusals})
	}
	return rounds
}

// A case of testdata/history is a request, the mends of its units (or the
// rounds to resume with), and the body that it becomes.
func TestHistories(t *testing.T) {
	paths, err := filepath.Glob("testdata/history/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal("no cases", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			sections := map[string]*txtar.File{}
			for i := range ar.Files {
				sections[ar.Files[i].Name] = &ar.Files[i]
			}
			request, want := sections["request"].Data, sections["want"]
			req := asked(t, request)
			var got []byte
			if resume := sections["resume"]; resume != nil {
				var rounds []writtenRound
				if err := json.Unmarshal(resume.Data, &rounds); err != nil {
					t.Fatal(err)
				}
				if got, err = req.Resume(readRounds(rounds)); err != nil {
					t.Fatal(err)
				}
			} else {
				var written map[int]struct {
					Rounds         []writtenRound
					Notices        []string
					Edited, Unbind bool
				}
				if err := json.Unmarshal(sections["mends"].Data, &written); err != nil {
					t.Fatal(err)
				}
				mends := map[int]inspect.Mend{}
				for i, m := range written {
					mends[i] = inspect.Mend{Rounds: readRounds(m.Rounds), Notices: m.Notices, Edited: m.Edited, Unbind: m.Unbind}
				}
				h, err := req.History()
				if err != nil {
					t.Fatal(err)
				}
				if got, err = h.Edit(nil, mends); err != nil {
					t.Fatal(err)
				}
			}
			if err := accepted(got); err != nil {
				t.Errorf("the provider would not take it: %v", err)
			}
			if flag.Lookup("update").Value.String() == "true" {
				want.Data = got
				if err := os.WriteFile(path, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(string(want.Data), string(got)); d != "" {
				t.Errorf("it becomes another body (-want +got):\n%s", d)
			}
		})
	}
}

// accepted holds a body against what the strictest server asks for: roles take
// turns, a user begins, each call has its result directly behind it and before
// all else, no message and no text is empty, and at most four markers.
func accepted(body []byte) error {
	var doc struct {
		Thread *struct {
			Type     string `json:"type"`
			Previous string `json:"previous_message_id"`
		} `json:"thread"`
		Thinking *struct {
			Type string `json:"type"`
		} `json:"thinking"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return err
	}
	held := doc.Thread != nil && doc.Thread.Type == "continue"
	if held && doc.Thread.Previous == "" {
		return errors.New("a thread goes on from nothing")
	}
	var open []string
	ids := map[string]bool{}
	for i, m := range doc.Messages {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want {
			return fmt.Errorf("message %d is of role %q, want %q", i, m.Role, want)
		}
		var blocks []struct {
			Type  string         `json:"type"`
			Text  *string        `json:"text"`
			ID    string         `json:"id"`
			Of    string         `json:"tool_use_id"`
			Input map[string]any `json:"input"`
		}
		var text string
		if json.Unmarshal(m.Content, &text) == nil {
			if strings.TrimSpace(text) == "" {
				return fmt.Errorf("message %d has no content", i)
			}
		} else if err := json.Unmarshal(m.Content, &blocks); err != nil || len(blocks) == 0 {
			return fmt.Errorf("message %d has no content: %v", i, err)
		}
		behind := false
		var calls []string
		for j, k := range blocks {
			switch k.Type {
			case "text":
				if k.Text == nil || strings.TrimSpace(*k.Text) == "" {
					return fmt.Errorf("block %d.%d is an empty text", i, j)
				}
				behind = true
			case "tool_use":
				if m.Role != "assistant" || k.ID == "" || ids[k.ID] || k.Input == nil {
					return fmt.Errorf("block %d.%d is no sound call", i, j)
				}
				ids[k.ID] = true
				calls = append(calls, k.ID)
			case "tool_result":
				n := slices.Index(open, k.Of)
				if held && i == 0 {
					continue
				}
				if m.Role != "user" || n < 0 || behind {
					return fmt.Errorf("block %d.%d is a result out of place", i, j)
				}
				open = slices.Delete(open, n, n+1)
			default:
				behind = true
			}
		}
		if len(open) > 0 {
			return fmt.Errorf("message %d leaves the calls %v without results", i, open)
		}
		open = calls
		if loop := i == len(doc.Messages)-2 && len(calls) > 0; loop && doc.Thinking != nil && doc.Thinking.Type == "enabled" {
			if !strings.Contains(blocks[0].Type, "thinking") {
				return fmt.Errorf("message %d has to begin with thinking", i)
			}
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("the calls %v have no results", open)
	}
	return nil
}

func TestUnitsAreTheAnswersInARow(t *testing.T) {
	for _, c := range []struct {
		says, messages, more string
		want                 []inspect.Unit
		task                 int
	}{
		{says: "no messages", want: nil},
		{says: "a first question", messages: `{"role":"user","content":"Do it."}`},
		{says: "text without calls", messages: `{"role":"user","content":"a"},{"role":"assistant","content":"b"}`, want: []inspect.Unit{{}}},
		{
			says:     "calls in order, those of the provider left out",
			messages: `{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"x","input":{}},{"type":"server_tool_use","id":"s1","name":"web_search","input":{}},{"type":"text","text":"and"},{"input":{},"name":"x","id":"t\u0032","type":"tool_\u0075se"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1"},{"type":"tool_result","tool_use_id":"t2"}]}`,
			want:     []inspect.Unit{{Calls: []string{"t1", "t2"}}},
		},
		{
			says:     "an answer that the client split",
			messages: `{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"x","input":{}}]},{"role":"user","content":"c"},{"role":"assistant","content":[]}`,
			want:     []inspect.Unit{{Calls: []string{"t1"}}, {}}, task: 1,
		},
		{
			says:     "words beside results are no new task",
			messages: `{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"x","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1"},{"type":"text","text":"stop"}]}`,
			want:     []inspect.Unit{{Calls: []string{"t1"}}}, task: 0,
		},
		{
			says:     "a message of the system parts answers and is no task",
			messages: `{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"system","content":"c"},{"role":"assistant","content":"d"}`,
			want:     []inspect.Unit{{}, {}},
		},
		{
			says: "an answer that the provider holds", more: `,"thread":{"type":"continue","previous_message_id":"msg_1"}`,
			messages: `{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"ok"}]}`,
			want:     []inspect.Unit{{Answer: "msg_1", Calls: []string{"t1"}}},
		},
		{
			says: "words of a user behind a held answer", more: `,"thread":{"previous_message_id":"msg_1","type":"continue"}`,
			messages: `{"role":"user","content":"go on"}`,
			want:     []inspect.Unit{{Answer: "msg_1"}}, task: 1,
		},
		{says: "a thread that begins", more: `,"thread":{"type":"create"}`, messages: `{"role":"user","content":"a"}`},
		{says: "no thread", more: `,"thread":null`, messages: `{"role":"user","content":"a"}`},
	} {
		t.Run(c.says, func(t *testing.T) {
			h := walked(t, `{"messages": [`+c.messages+` ] `+c.more+`, "model":"m"}`)
			if d := cmp.Diff(c.want, h.Units()); d != "" || h.Task() != c.task {
				t.Errorf("the task begins at %d, want %d; units (-want +got):\n%s", h.Task(), c.task, d)
			}
		})
	}
}

func TestHistoriesThatTwoReadersReadDifferently(t *testing.T) {
	for _, c := range []struct{ says, body, where string }{
		{"no messages", `{"model":"m"}`, "messages"},
		{"messages that are no array", `{"messages":{}}`, "messages"},
		{"a message that is no object", `{"messages":["a"]}`, "messages.0"},
		{"a role that stands twice", `{"messages":[{"role":"user","role":"assistant","content":"a"}]}`, "messages.0"},
		{"a role in capitals beside", `{"messages":[{"role":"user","Role":"assistant","content":"a"}]}`, "messages.0"},
		{"an escaped role", `{"messages":[{"r\u006fle":"user","content":"a"}]}`, "messages.0"},
		{"an unknown role", `{"messages":[{"role":"tool","content":"a"}]}`, "messages.0.role"},
		{"no role", `{"messages":[{"content":"a"}]}`, "messages.0.role"},
		{"no content", `{"messages":[{"role":"user"}]}`, "messages.0.content"},
		{"content that is nothing", `{"messages":[{"role":"user","content":null}]}`, "messages.0.content"},
		{"content twice", `{"messages":[{"role":"user","content":"a","content":"b"}]}`, "messages.0"},
		{"a block that is no object", `{"messages":[{"role":"user","content":["a"]}]}`, "messages.0.content.0"},
		{"a block without a type", `{"messages":[{"role":"user","content":[{"text":"a"}]}]}`, "messages.0.content.0"},
		{"a block's type that is no text", `{"messages":[{"role":"user","content":[{"type":1}]}]}`, "messages.0.content.0"},
		{"a block's type twice", `{"messages":[{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","type":"tool_use"}]}]}`, "messages.0.content.1"},
		{"a call's id with a long s", `{"messages":[{"role":"user","content":[{"type":"tool_result","tool_u\u017fe_id":"t","tool_use_id":"u"}]}]}`, "messages.0.content.0"},
		{"a second thinking", `{"thinking":{"type":"enabled"},"messages":[],"thinking":{"type":"disabled"}}`, "request"},
		{"thinking in capitals", `{"Thinking":{"type":"enabled"},"messages":[]}`, "request"},
		{"a thread's type twice", `{"messages":[],"thread":{"type":"create","type":"continue","previous_message_id":"a"}}`, "thread"},
		{"a thread that goes on from nothing", `{"messages":[],"thread":{"type":"continue"}}`, "thread.previous_message_id"},
		{"a key without a colon", `{"messages":[{"role" "user"}]}`, "request"},
		{"a key that is no string", `{"messages":[{role:"user"}]}`, "request"},
		{"a body that ends in a value", `{"messages":[{"role":`, "request"},
		{"a body that ends in a text", `{"messages":[{"role":"user","content":"a`, "request"},
		{"a second body", `{"messages":[]}{}`, "request"},
		{"messages twice", `{"messages":[],"messages":[]}`, "request"},
		{"a comma too many", `{"messages":[{"role":"user","content":"a"},]}`, "messages.1"},
		{"no comma", `{"messages":[{"role":"user","content":[{"type":"text","text":"a"}{"type":"text","text":"b"}]}]}`, "request"},
	} {
		t.Run(c.says, func(t *testing.T) {
			_, err := (&request{body: []byte(c.body)}).History()
			var e *inspect.Error
			if !errors.As(err, &e) || e.Where != c.where || e.Reason == "" || e.Dialect != Name {
				t.Errorf("it gives %v, want an error at %s", err, c.where)
			}
		})
	}
}

// digests are all digests of a history.
func digests(h inspect.History) (list []digest.Digest) {
	n := len(h.Units())
	for i := range n {
		list = append(list, h.Shown(i), h.Last(i), h.All(i))
	}
	return append(list, h.Last(n), h.All(n))
}

func TestWhatClientsChangeDoesNotCount(t *testing.T) {
	const plain = `{"system":"one","messages":[{"role":"user","content":"Create it."},` +
		`{"role":"assistant","content":[{"type":"text","text":"I do \"it\" now."},{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"touch a","timeout":10}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"done"},{"type":"text","text":"And on."}]},` +
		`{"role":"assistant","content":"Ready."},{"role":"user","content":"Good."}]}`
	want := digests(walked(t, plain))
	for _, c := range []struct{ says, body string }{
		{"white space", strings.NewReplacer(`":`, "\" :\n", `,{`, " , {", `I do `, `I  do\n`).Replace(plain)},
		{"escapes", strings.NewReplacer(`touch a`, `\u0074ouch a`, `Ready`, `R\u0065ady`, `"role"`, `"role"`).Replace(plain)},
		{"the system's words", strings.Replace(plain, `"one"`, `[{"type":"text","text":"two","cache_control":{"type":"ephemeral"}}]`, 1)},
		{"a message of the system's", strings.Replace(plain, `{"role":"user","content":"Good."}`, `{"role":"user","content":"Good."},{"role":"system","content":"It is late."}`, 1)},
		{"texts as blocks", strings.NewReplacer(`"content":"Create it."`, `"content":[{"type":"text","text":"Create it."}]`, `"content":"Ready."`, `"content":[{"type":"text","text":"Ready."}]`,
			`"content":"done"`, `"content":[{"type":"text","text":"done"}]`).Replace(plain)},
		{"markers for a cache", strings.NewReplacer(`"text":"And on."`, `"text":"And on.","cache_control":{"type":"ephemeral","ttl":"1h"}`, `"content":"done"`, `"content":"done","cache_control":{"type":"ephemeral"}`,
			`"name":"Bash"`, `"cache_control":{"type":"ephemeral"},"name":"Bash"`).Replace(plain)},
		{"ids", strings.ReplaceAll(plain, `"t1"`, `"call_9"`)},
		{"what a result says of itself", strings.Replace(plain, `"content":"done"`, `"is_error":false,"content":"done"`, 1)},
		{"numbers and the order of members", strings.Replace(plain, `{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"touch a","timeout":10}}`,
			`{"name":"Bash","input":{"timeout":1e1,"command":"touch a"},"id":"t1","type":"tool_use"}`, 1)},
		{"thinking", strings.Replace(plain, `[{"type":"text","text":"I do`, `[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"redacted_thinking","data":"x"},{"type":"text","text":"I do`, 1)},
		{"what the provider ran", strings.Replace(plain, `[{"type":"text","text":"I do`, `[{"type":"server_tool_use","id":"s","name":"web_search","input":{"query":"q"}},{"type":"web_search_tool_result","tool_use_id":"s","content":[]},{"type":"text","text":"I do`, 1)},
		{"an answer in two messages", strings.Replace(plain, `now."},{"type":"tool_use"`, `now."}]},{"role":"assistant","content":[{"type":"tool_use"`, 1)},
		{"text in two blocks, one behind the call", strings.NewReplacer(` now."}`, `"}`, `"timeout":10}}`, `"timeout":10}},{"type":"text","text":" now."}`).Replace(plain)},
	} {
		t.Run(c.says, func(t *testing.T) {
			if c.body == plain {
				t.Fatal("nothing was changed")
			}
			if got := digests(walked(t, c.body)); !slices.Equal(got, want) {
				t.Errorf("other digests:\n%x\n%x", got, want)
			}
		})
	}
}

func TestWhatIsSaidCounts(t *testing.T) {
	const plain = `{"messages":[{"role":"user","content":"Create it."},` +
		`{"role":"assistant","content":[{"type":"text","text":"I do it."},{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"touch a"}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"done"}]},{"role":"assistant","content":"Ready."}, {"role":"user","content":[{"type":"image","source":{"data":"AAAA"}}]}]}`
	// The digests in order: Shown, Last, All of both units, and the end's two.
	for _, c := range []struct{ says, old, new, changes string }{
		{"the first words", "Create", "Make", " LA  A A"},
		{"an answer's text", "I do it", "I did it", "S    A A"},
		{"a call's name", "Bash", "Run", "S    A A"},
		{"a call's words", "touch a", "touch b", "S    A A"},
		{"what a call gave", "done", "failed", "    LA A"},
		{"a result that becomes words", `{"type":"tool_result","tool_use_id":"t1","content":"done"}`, `{"type":"text","text":"done"}`, "    LA A"},
		{"an answer behind it", "Ready", "Finished", "   S   A"},
		{"an image", "AAAA", "AAAB", "      LA"},
		{"calls that become text", `{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"touch a"}}`, `{"type":"text","text":"Bashtouch a"}`, "S    A A"},
	} {
		t.Run(c.says, func(t *testing.T) {
			was, is := digests(walked(t, plain)), digests(walked(t, strings.Replace(plain, c.old, c.new, 1)))
			for i := range was {
				if same := was[i] == is[i]; same != (c.changes[i] == ' ') {
					t.Errorf("digest %d stays the same: %v, want the changes %q", i, same, c.changes)
				}
			}
		})
	}
}

func TestTheEndOfAHistoryIsWhatStandsBeforeTheNextAnswer(t *testing.T) {
	messages := `{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}`
	before := walked(t, `{"messages":[`+messages+`]}`)
	after := walked(t, `{"messages":[`+messages+`,{"role":"assistant","content":"d"},{"role":"user","content":"e"}]}`)
	if before.Last(1) != after.Last(1) || before.All(1) != after.All(1) || before.Last(1) == after.Last(2) || before.All(1) == after.All(2) {
		t.Error("an answer that was added stands behind another history")
	}
	// What the client has begun and what the answer adds will be one unit.
	begun := walked(t, `{"messages":[`+messages+`,{"role":"assistant","content":"d"}]}`)
	if begun.Last(2) != after.Last(1) || begun.All(2) != after.All(1) {
		t.Error("an answer that the client began is taken for what stands before it")
	}
	cut := walked(t, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"},{"role":"user","content":"x"}]}`)
	joined := walked(t, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"cx"}]}`)
	if cut.All(1) != joined.All(1) {
		t.Error("how a user's words are cut into messages counts")
	}
}

func TestMarkersDoNotCountOnBlocksOfAnyKind(t *testing.T) {
	body := `{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"AAAA"}},{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"data":"BBBB"}}]}]}]}`
	marked := strings.NewReplacer(`{"type":"image",`, `{"cache_control":{"type":"ephemeral","ttl":"5m"},"type":"image",`).Replace(body)
	plain, with := walked(t, body), walked(t, marked)
	if plain.All(0) != with.All(0) {
		t.Error("a marker makes another digest")
	}
	for _, data := range []string{"AAAA", "BBBB"} {
		if other := walked(t, strings.Replace(body, data, "CCCC", 1)); other.All(0) == plain.All(0) {
			t.Errorf("%s does not count", data)
		}
	}
}

func TestWordsBehindAResultAreNotTheResults(t *testing.T) {
	body := `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"tool_result","tool_use_id":"t","content":"b"},{"type":"text","text":"c"}]}]}`
	joined := `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"tool_result","tool_use_id":"t","content":"bc"}]}]}`
	if walked(t, body).All(0) == walked(t, joined).All(0) {
		t.Error("they have one digest")
	}
}

func TestTheDigestsOfAHeldAnswerAreUnknown(t *testing.T) {
	body := `{"messages":[{"role":"user","content":"a"}],"thread":{"type":"continue","previous_message_id":"%s"}}`
	one, two := walked(t, fmt.Sprintf(body, "msg_1")), walked(t, fmt.Sprintf(body, "msg_2"))
	if one.Shown(0) != (digest.Digest{}) {
		t.Error("an answer that nobody has seen has a digest")
	}
	if one.All(1) == two.All(1) || one.All(0) != two.All(0) || one.Last(1) != two.Last(1) {
		t.Error("the id of the held answer is not what tells the two apart")
	}
}

func TestBodiesForCountingTokensAreRead(t *testing.T) {
	body := `{"model":"m","tools":[{"name":"Bash","input_schema":{"type":"object"}}],"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}`
	req, err := Dialect{}.Request(inspect.Head{Method: "POST", Path: "/v1/messages/count_tokens"}, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	h, err := req.(*request).History()
	if err != nil || len(h.Units()) != 1 || req.Info().Model != "m" {
		t.Errorf("it is read as %v, %v", h, err)
	}
}

func TestARequestIsNotWalkedBeforeItsHistoryIsAskedFor(t *testing.T) {
	// A fault in the messages shows only when they are walked.
	body := []byte(`{"model":"m","messages":[{"role":"user","role":"user"}]}`)
	req := asked(t, body)
	if _, err := req.History(); err == nil {
		t.Error("the fault was not found")
	}
}
