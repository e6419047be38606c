package ollama

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"callgate/inspect"
	"callgate/inspect/digest"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
)

func request0(t testing.TB, body string) *request {
	t.Helper()
	r, err := Dialect{}.Request(inspect.Head{Path: chatPath}, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return r.(*request)
}

func walk(t testing.TB, body string) inspect.History {
	t.Helper()
	h, err := request0(t, body).History()
	if err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return h
}

// ask puts messages into a request.
func ask(messages ...string) string {
	return `{"model":"m","messages":[` + strings.Join(messages, ",") + `],"stream":true}`
}

func user(text string) string { return `{"role":"user","content":` + string(quoted(text)) + `}` }

// answers is an answer with calls of ids, each with a command of its own. A call
// of a tool alone has none.
func answers(text string, ids ...string) string {
	var calls []string
	for _, id := range ids {
		calls = append(calls, shellCall(id))
	}
	m := `{"role":"assistant","content":` + string(quoted(text))
	if len(calls) > 0 {
		m += `,"tool_calls":[` + strings.Join(calls, ",") + `]`
	}
	return m + "}"
}

// tool gives the tool of a call: that of the id, for one that begins with a dash
// and stands for none.
func tool(id string) string {
	if strings.HasPrefix(id, "-") {
		return "tool" + id[1:]
	}
	return "shell"
}

func shellCall(id string) string {
	head := `{"id":"` + id + `",`
	if strings.HasPrefix(id, "-") {
		head = "{"
	}
	return head + `"function":{"name":"` + tool(id) + `","arguments":{"command":"run ` + id + `"}}}`
}

func gives(id string) string { return resultOf(id, "output of "+id) }

func resultOf(id, text string) string {
	m := `{"role":"tool","tool_name":"` + tool(id) + `"`
	if !strings.HasPrefix(id, "-") {
		m += `,"tool_call_id":"` + id + `"`
	}
	return m + `,"content":` + string(quoted(text)) + `}`
}

// round makes a round of a message, with refusals of the calls of that number.
func round(message string, refused ...int) inspect.Round {
	r := inspect.Round{Message: []byte(message)}
	if message == "" {
		return r
	}
	b := []byte(message)
	m, _, _ := readMessage(b, 0)
	m.eachCall(b, func(e entry) { r.Calls = append(r.Calls, rawjson.Text(b, e.id)) })
	for _, n := range refused {
		r.Refusals = append(r.Refusals, inspect.Refusal{Call: n, Text: fmt.Sprintf("no %d", n)})
	}
	return r
}

func TestUnitsAreRunsOfAnswers(t *testing.T) {
	for _, c := range []struct {
		says, body, units string
		task              int
	}{
		{"a history without messages has none", ask(), "", 0},
		{"a question is no answer", ask(user("a")), "", 0},
		{"an answer without calls has no ids", ask(user("a"), answers("b")), "[]", 0},
		{"ids come in the order of the calls", ask(user("a"), answers("b", "x", "y"), gives("x"), gives("y")), "[x y]", 0},
		{"a call without an id has none", ask(user("a"), answers("", "-x", "y")), `["" y]`, 0},
		{"answers in a row are one", ask(user("a"), answers("b"), answers("", "x"), gives("x"), answers("c")), "[x] []", 0},
		{"a question ends the task before it", ask(user("a"), answers("", "x"), gives("x"), answers("b"), user("c"), answers("", "y"), gives("y")), "[x] [] [y]", 2},
		{"words behind results are no new task", ask(user("a"), answers("", "x"), gives("x"), user("by the way"), answers("b")), "[x] []", 0},
		{"where no user speaks all is one task", ask(answers("b"), `{"role":"system","content":"s"}`, answers("c")), "[] []", 0},
		{"white space and escapes change nothing", "{\"messages\" :\n[ {\"content\" : \"\" , \"tool_calls\" : [ { \"id\" : \"\\u0078\" } ] , \"role\" : \"assist\\u0061nt\" }\t,\r\n{\"role\":\"user\"} ] }", "[x]", 1},
		{"an unknown role is somebody else", ask(answers("a"), `{"role":"latest","content":"x"}`, answers("b")), "[] []", 0},
		{"a null is no call", ask(`{"role":"assistant","content":"a","tool_calls":null}`, `{"role":"assistant","tool_calls":[{"id":null}]}`), `[""]`, 0},
	} {
		h := walk(t, c.body)
		var got []string
		for _, u := range h.Units() {
			ids := []string{}
			for _, id := range u.Calls {
				if id == "" {
					id = `""`
				}
				ids = append(ids, id)
			}
			got = append(got, fmt.Sprint(ids))
		}
		if g := strings.Join(got, " "); g != c.units || h.Task() != c.task {
			t.Errorf("%s: units %s and task %d, want %s and %d", c.says, g, h.Task(), c.units, c.task)
		}
	}
}

func TestWhatTwoReadersReadInTwoWaysIsNotWalked(t *testing.T) {
	for _, c := range []struct{ says, body, want string }{
		{"there are no messages", `{"model":"m"}`, "messages: it is not a list"},
		{"a message is a text", ask(user("a"), `"b"`), "messages.1: it is not an object"},
		{"a message has no role", ask(`{"content":"a"}`), "messages.0: it has no role"},
		{"a role stands twice", ask(`{"role":"user","role":"assistant"}`), "messages.0: the key role stands twice"},
		{"a role is spelled in another case", ask(`{"role":"Assistant"}`), `its role "Assistant" reads like assistant`},
		{"a key is spelled with an escape", ask(`{"role":"user","r\u006fle":"assistant"}`), "reads like role"},
		{"a key is spelled in another case", ask(`{"role":"assistant","Tool_Calls":[]}`), "reads like tool_calls"},
		{"calls are a text", ask(`{"role":"assistant","tool_calls":"[]"}`), "its tool_calls are no list"},
		{"a call is a text", ask(`{"role":"assistant","tool_calls":["x"]}`), "a call in it is not an object"},
		{"an id stands twice", ask(`{"role":"assistant","tool_calls":[{"id":"a","id":"b"}]}`), "the key id stands twice"},
		{"an id is a number", ask(`{"role":"assistant","tool_calls":[{"id":1}]}`), "is no text"},
		{"a comma is missing", `{"messages":[{"role":"user"} {"role":"user"}]}`, "no comma"},
		{"a comma is too much", `{"messages":[{"role":"user"},]}`, "messages.1: it is not an object"},
	} {
		_, err := request0(t, c.body).History()
		if e := (*inspect.Error)(nil); !errors.As(err, &e) || e.Dialect != name || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.says, err, c.want)
		}
	}
}

func TestWhatGenerateIsAskedHasNoHistory(t *testing.T) {
	r, err := repairing.Request(inspect.Head{Path: generatePath}, []byte(`{"prompt":"hi"}`))
	if err != nil {
		t.Fatal(err)
	}
	h, err := r.History()
	if err != nil || len(h.Units()) > 0 || h.Task() != 0 || h.All(0) != h.Last(0) && false {
		t.Fatalf("%v: %v", err, h)
	}
	if out, err := h.Edit([]byte("> "), nil); err != nil || string(out) != `> {"prompt":"hi"}` {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := r.Resume([]inspect.Round{round(answers("", "x"), 0)}); err == nil {
		t.Error("it can be gone on with")
	}
}

func shownOf(t testing.TB, message string) digest.Digest {
	return walk(t, ask(user("a"), message)).Shown(0)
}

func TestWhatClientsChangeOfAnAnswerDoesNotCount(t *testing.T) {
	const want = `{"role":"assistant","content":"Two words.","tool_calls":[{"id":"x","function":{"name":"shell","arguments":{"command":"ls \"a\"","n":1.0}}}]}`
	for _, c := range []struct{ says, message string }{
		{"other white space", "{ \"role\" : \"assistant\" ,\"content\":\" Two\\nwords. \",\n\"tool_calls\" : [ {\"function\":{\"name\":\"shell\",\"arguments\":{ \"command\" : \"ls \\\"a\\\"\", \"n\":1 }}} ] }"},
		{"another id", strings.Replace(want, `"x"`, `"call_2"`, 1)},
		{"an index", strings.Replace(want, `"name"`, `"index":0,"name"`, 1)},
		{"escapes", strings.NewReplacer("Two", `\u0054wo`, "ls ", `\u006cs `, "shell", `sh\u0065ll`).Replace(want)},
		{"thinking", strings.Replace(want, `"content"`, `"thinking":"hm","content"`, 1)},
		{"calls before the text", `{"tool_calls":[{"function":{"arguments":{"command":"ls \"a\""},"name":"shell"},"id":"x"}],"content":"Two words.","role":"assistant"}`},
		{"two messages in place of one", `{"role":"assistant","content":"Two "},{"role":"assistant","content":"words.","tool_calls":[{"id":"x","function":{"name":"shell","arguments":{"command":"ls \"a\""}}}]}`},
		{"arguments as text", strings.Replace(want, `{"command":"ls \"a\"","n":1.0}`, `"{\"command\":\"ls \\\"a\\\"\"}"`, 1)},
	} {
		if shownOf(t, c.message) != shownOf(t, want) {
			t.Errorf("%s makes another digest", c.says)
		}
	}
}

func TestWhatAnAnswerSaysCounts(t *testing.T) {
	seen := map[digest.Digest]string{}
	for _, m := range []string{
		answers("one"), answers("two"), answers(""), answers("one", "x"), answers("one", "x", "x"), answers("one", "x", "y"), answers("one", "y"),
		strings.Replace(answers("one", "x"), "shell", "fetch", 1),
	} {
		d := shownOf(t, m)
		if other, ok := seen[d]; ok {
			t.Errorf("%s and %s have one digest", m, other)
		}
		seen[d] = m
	}
}

func TestAConversationBeyondTheLimitIsNotWalked(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{ask(strings.Repeat(`{"role":"user"},`, maxMessages-1) + `{"role":"user"}`), ""},
		{ask(strings.Repeat(`{"role":"user"},`, maxMessages) + `{"role":"user"}`), "there are more than"},
		{ask(`{"role":"assistant","tool_calls":[` + strings.Repeat(`{},`, maxCalls) + `{}]}`), "there are more than"},
	} {
		_, err := request0(t, c.body).History()
		if e := (*inspect.Error)(nil); (err == nil) != (c.want == "") || err != nil && (!errors.As(err, &e) || !e.Limit || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

func TestDigestsOfWhatStandsBefore(t *testing.T) {
	sys := `{"role":"system","content":"s"}`
	base := []string{user("a"), answers("b", "x"), gives("x"), answers("c"), user("d")}
	all := func(h inspect.History) (d []digest.Digest) {
		for i := range len(h.Units()) + 1 {
			d = append(d, h.All(i), h.Last(i))
		}
		return d
	}
	want := all(walk(t, ask(base...)))
	seen := map[digest.Digest]bool{}
	for _, d := range want {
		seen[d] = true
	}
	if len(seen) != len(want) {
		t.Errorf("only %d of %d digests differ", len(seen), len(want))
	}
	same := func(says string, messages ...string) {
		if got := all(walk(t, ask(messages...))); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s makes other digests", says)
		}
	}
	same("what the system says", sys, base[0], base[1], base[2], base[3], sys, base[4])
	same("other ids", base[0], strings.Replace(base[1], `"x"`, `"x9"`, 1), `{"role":"tool","content":" output of x"}`, base[3], base[4])
	back := walk(t, ask(base...))
	for i := len(back.Units()); i >= 0; i-- {
		if back.All(i) != want[2*i] || back.Last(i) != want[2*i+1] {
			t.Errorf("unit %d has other digests when it is asked for first", i)
		}
	}
	for _, c := range []struct {
		says     string
		messages []string
		last     bool // whether the message before the last unit changed
	}{
		{"another question", []string{user("z"), base[1], base[2], base[3], base[4]}, false},
		{"another answer before", []string{base[0], answers("z", "x"), base[2], base[3], base[4]}, false},
		{"another result", []string{base[0], base[1], resultOf("x", "other"), base[3], base[4]}, true},
		{"one message less", []string{base[0], base[3], base[4]}, true},
	} {
		h := walk(t, ask(c.messages...))
		if u := len(h.Units()) - 1; h.All(u) == want[2] || (h.Last(u) != want[3]) != c.last {
			t.Errorf("%s: all %v, last %v", c.says, h.All(u) == want[2], h.Last(u) == want[3])
		}
	}
	if walk(t, ask(user("output of x"))).Last(0) == walk(t, ask(gives("x"))).Last(0) {
		t.Error("a result is like what a user says")
	}
}

// mendFile and roundFile are how a case writes mends and rounds.
type mendFile struct {
	Rounds  []roundFile
	Edited  bool
	Notices []string
	Unbind  bool
}

type roundFile struct {
	Message  json.RawMessage
	Calls    []string // those of the message when left out
	Refusals []inspect.Refusal
}

func rounded(files []roundFile) (out []inspect.Round) {
	for _, f := range files {
		r := round(string(f.Message))
		if f.Calls != nil {
			r.Calls = f.Calls
		}
		r.Refusals = f.Refusals
		out = append(out, r)
	}
	return out
}

func decode(t testing.TB, b []byte, to any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		t.Fatal(err)
	}
}

const historyCases = "testdata/history/*.txtar"

// TestHistoryCases runs the cases of rewriting. The sections of one: body; mends
// (of Edit, by unit) or rounds (of Resume); and either want, the body that must
// come out, or error, a part of the error that must.
func TestHistoryCases(t *testing.T) {
	paths, err := filepath.Glob(historyCases)
	if err != nil || len(paths) == 0 {
		t.Fatal("there are no cases", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s := map[string][]byte{}
			for _, f := range a.Files {
				s[f.Name] = bytes.TrimSuffix(f.Data, []byte("\n"))
			}
			r := request0(t, string(s["body"]))
			h, err := r.History()
			if err != nil {
				t.Fatal(err)
			}
			var got []byte
			if s["mends"] != nil {
				var file map[int]mendFile
				decode(t, s["mends"], &file)
				mends := map[int]inspect.Mend{}
				for i, f := range file {
					mends[i] = inspect.Mend{Rounds: rounded(f.Rounds), Edited: f.Edited, Notices: f.Notices, Unbind: f.Unbind}
				}
				before := fmt.Sprint(mends)
				got, err = h.Edit([]byte("> "), mends)
				if after := fmt.Sprint(mends); after != before {
					t.Errorf("the mends were changed to %s", after)
				}
				if !bytes.HasPrefix(got, []byte("> ")) || err != nil && len(got) != 2 {
					t.Errorf("what was there is gone: %s", got)
				}
				got = got[2:]
			} else {
				var file []roundFile
				decode(t, s["rounds"], &file)
				got, err = r.Resume(rounded(file))
			}
			if want := s["error"]; want != nil {
				if e := (*inspect.Error)(nil); !errors.As(err, &e) || !strings.Contains(err.Error(), string(want)) {
					t.Errorf("%v, want %s", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if flag.Lookup("update").Value.String() == "true" {
				for i := range a.Files {
					if a.Files[i].Name == "want" {
						a.Files[i].Data = append(bytes.Clone(got), '\n')
					}
				}
				if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if !bytes.Equal(got, s["want"]) {
				t.Errorf("it gives\n%s\nwant\n%s", got, s["want"])
			}
			if err := strictjson.Object(got, strictjson.Options{}); err != nil {
				t.Errorf("it gives %s: %v", got, err)
			}
			if !bytes.Equal(r.body, s["body"]) {
				t.Error("the body was changed")
			}
		})
	}
}

func TestARequestThatNeedsNoHistoryPaysNothingForIt(t *testing.T) {
	small, large := []byte(ask(user("a"))), []byte(ask(strings.Repeat(user("a")+","+answers("b", "x")+",", 1000)+user("c")))
	allocs := func(body []byte) float64 {
		return testing.AllocsPerRun(10, func() {
			if _, err := (Dialect{}).Request(inspect.Head{Path: chatPath}, body); err != nil {
				t.Fatal(err)
			}
		})
	}
	if s, l := allocs(small), allocs(large); s != l {
		t.Errorf("%v allocations for one message, %v for many", s, l)
	}
}
