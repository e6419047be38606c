package openaichat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
)

// exchange is a turn as the agent has it, and what is to be made of it.
type exchange struct {
	messages []string // what the client sends of it, its question first
	unit     run      // the answer among them
	mend     *inspect.Mend
	refused  []string // texts of the refusals in the mend
	words    string   // of the client in an edited answer
}

// chance makes turns. Each has texts and ids of its own.
type chance struct {
	*rand.Rand
	n int
}

func (c *chance) maybe() bool { return c.IntN(2) == 0 }

func (c *chance) next() int { c.n++; return c.n }

// turn makes a turn whose answer was altered, or was not.
func (c *chance) turn() exchange {
	var t exchange
	t.messages = append(t.messages, user(fmt.Sprintf("question %d", c.next())))
	t.unit.from = 1
	var rounds []inspect.Round
	shown := ""
	var left []string
	for k, n := 0, 1+c.IntN(3); k < n; k++ {
		text, ids := "", []string(nil)
		if c.maybe() || k == n-1 {
			text = fmt.Sprintf("words %d \"é\"\n", c.next())
		}
		for range c.IntN(4) {
			ids = append(ids, fmt.Sprintf("call_%d", c.next()))
		}
		if k < n-1 && len(ids) == 0 {
			continue // a round that is followed by another one has calls
		}
		raw := answers(text, ids...)
		if c.IntN(4) == 0 {
			raw = strings.Replace(raw, `"content"`, `"reasoning_content":"hm","reasoning_details":[{"data":"x"}],"content"`, 1)
		}
		shown += text
		r := inspect.Round{Message: []byte(raw), Calls: ids}
		for i := range ids {
			if k < n-1 || c.maybe() {
				refused := fmt.Sprintf("refusal %d", c.next())
				t.refused = append(t.refused, refused)
				r.Refusals = append(r.Refusals, inspect.Refusal{Call: i, Text: refused})
			} else {
				left = append(left, ids[i])
			}
		}
		rounds = append(rounds, r)
	}
	m := inspect.Mend{Rounds: rounds, Edited: c.IntN(3) == 0, Unbind: c.IntN(4) == 0}
	if m.Edited {
		t.words = fmt.Sprintf("edited %d", c.next())
		shown, m.Notices = t.words+", notice", []string{", notice"}
	}
	if c.IntN(3) > 0 {
		t.mend = &m
	} else {
		t.refused = nil // what the client shows is then all there was
	}
	t.messages = append(t.messages, c.shown(shown, left, t.mend != nil && !m.Edited)...)
	t.unit.to = len(t.messages)
	for _, id := range left {
		t.messages = append(t.messages, gives(id))
	}
	return t
}

// shown writes an answer in one of the ways of clients. In two messages it is
// one for the provider only when it is replaced, or else when both say something.
func (c *chance) shown(text string, ids []string, replaced bool) []string {
	calls := strings.TrimPrefix(answers("", ids...), `{"role":"assistant","content":null`)
	content := string(quoted(text))
	switch c.IntN(4) {
	case 0:
		content = `[{"type":"text","text":` + content + `,"cache_control":{"type":"ephemeral"}}]`
	case 1:
		content = `[ {"text":` + content + `,"type":"text"} ]`
	case 2:
		if replaced || len(ids) > 0 {
			return []string{`{"role":"assistant","content":` + content + `}`, `{"content":"","role":"assistant"` + calls}
		}
	}
	return []string{`{ "role" : "assistant", "reasoning":"hm" ,"content":` + content + calls}
}

// talk puts turns into a request, and their mends by unit.
func talk(turns []exchange, gap string) (body string, mends map[int]inspect.Mend) {
	mends = map[int]inspect.Mend{}
	messages := []string{`{"role":"system","content":"s"}`}
	for i, t := range turns {
		messages = append(messages, t.messages...)
		if t.mend != nil {
			mends[i] = *t.mend
		}
	}
	return `{"messages":[` + strings.Join(messages, gap) + `],"model":"m"}`, mends
}

// list gives the messages of a body as they are written.
func list(t testing.TB, body []byte) (all []string) {
	t.Helper()
	for w := rawjson.Open(body, rawjson.Get(body, rawjson.All(body), "messages")); w.Next(); {
		all = append(all, string(w.Val.In(body)))
	}
	return all
}

// acceptable is what a strict provider asks of a history.
func acceptable(t testing.TB, body []byte) {
	t.Helper()
	if err := strictjson.Object(body, strictjson.Options{}); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	var doc struct {
		Messages []struct {
			Role      string
			Content   any
			ToolCalls []struct{ ID string } `json:"tool_calls"`
			ID        string                `json:"tool_call_id"`
		}
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatal(err)
	}
	var open []string
	for i, m := range doc.Messages {
		if m.Role == "tool" {
			// Results in order: a call has its own before the next one has.
			if len(open) == 0 || open[0] != m.ID {
				t.Fatalf("message %d is a result of %q, %q are open: %s", i, m.ID, open, body)
			}
			open = open[1:]
			continue
		}
		if len(open) > 0 {
			t.Fatalf("message %d stands before the results of %q: %s", i, open, body)
		}
		if m.Role == "assistant" && len(m.ToolCalls) == 0 && (m.Content == nil || len(fmt.Sprint(m.Content)) <= 2) {
			t.Fatalf("message %d says nothing: %s", i, body)
		}
		for _, c := range m.ToolCalls {
			open = append(open, c.ID)
		}
	}
	if len(open) > 0 {
		t.Fatalf("%q have no result: %s", open, body)
	}
}

func TestAnEditedHistoryIsAcceptableWholeAndStaysTheSameAsItGrows(t *testing.T) {
	for seed := range uint64(1500) {
		c := &chance{Rand: rand.New(rand.NewPCG(seed, 1))}
		gap := []string{",", ", ", ",\n  ", " , "}[c.IntN(4)]
		var turns []exchange
		for range 1 + c.IntN(5) {
			turns = append(turns, c.turn())
		}
		var before []byte
		for n := 1; n <= len(turns); n++ {
			body, mends := talk(turns[:n], gap)
			h := walk(t, body)
			if len(h.Units()) != n {
				t.Fatalf("seed %d: %d units of %d", seed, len(h.Units()), n)
			}
			out, err := h.Edit(nil, mends)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			acceptable(t, out)
			if again, err := walk(t, body).Edit(nil, mends); err != nil || !bytes.Equal(again, out) {
				t.Fatalf("seed %d: the same again gives other bytes", seed)
			}
			if !bytes.HasPrefix(out, before) {
				t.Fatalf("seed %d: what was sent before has changed\n%s\n%s", seed, before, out)
			}
			before = bytes.TrimSuffix(out, []byte(`],"model":"m"}`))
			keptWhole(t, turns[:n], out)
		}
	}
}

// keptWhole holds a rewritten body against the turns it was made of.
func keptWhole(t *testing.T, turns []exchange, out []byte) {
	t.Helper()
	rest := list(t, out)
	take := func(want string) {
		t.Helper()
		if len(rest) == 0 || rest[0] != want {
			t.Fatalf("%s is not where it was in %s", want, out)
		}
		rest = rest[1:]
	}
	take(`{"role":"system","content":"s"}`)
	unbind := false
	for _, turn := range turns {
		take(turn.messages[0])
		unbind = unbind || turn.mend != nil && turn.mend.Unbind
		refused, results := turn.refused, turn.messages[turn.unit.to:]
		var own, rounds []string
		for len(rest) > 0 && !strings.Contains(rest[0], `"role":"user"`) {
			m := rest[0]
			rest = rest[1:]
			switch {
			case len(refused) > 0 && strings.HasSuffix(m, `"content":"`+refused[0]+`"}`):
				refused = refused[1:]
			case len(results) > 0 && m == results[0]:
				results = results[1:]
			case strings.Contains(m, `"role":"tool"`):
				t.Fatalf("%s comes from nowhere", m)
			default:
				own = append(own, m)
			}
		}
		if len(refused)+len(results) > 0 {
			t.Fatalf("%q and %q are missing in %s", refused, results, out)
		}
		if unbind && strings.Contains(strings.Join(own, ""), `"reasoning`) {
			t.Fatalf("there is thinking in %s", own)
		}
		switch {
		case turn.mend == nil && !unbind:
			rounds = turn.messages[turn.unit.from:turn.unit.to]
		case turn.mend == nil || turn.mend.Edited || unbind || strings.Contains(strings.Join(turn.messages, ""), "cache_control"):
			if said := strings.Join(own, ""); turn.mend != nil && (!strings.Contains(said, turn.words) || strings.Contains(said, ", notice")) {
				t.Fatalf("of the client's words there is %s", said)
			}
			continue
		default:
			for _, r := range turn.mend.Rounds {
				rounds = append(rounds, string(r.Message))
			}
		}
		if !slices.Equal(own, rounds) {
			t.Fatalf("the answer is\n%s\nwant\n%s", own, rounds)
		}
	}
}

// FuzzHistory walks anything and changes all that can be walked.
func FuzzHistory(f *testing.F) {
	paths, _ := filepath.Glob(historyCases)
	for i, path := range paths {
		f.Add(readCase(f, path)["body"], uint8(i))
	}
	for _, s := range []string{`{"messages":[]}`, `{"messages":[{"role":"user"},]}`, `{"messages":[{"role":"assistant","content":["a",{"type":"text","text":"\ud83d\ude00\ud83d"}]}]}`,
		ask(`{"role":"assistant","content":"a notice b","function_call":{"name":"f"}}`), `{"tool_choice":{"type":"x"},"messages":[{"role":"tool","tool_call_id":"a"}]}`} {
		f.Add([]byte(s), uint8(0))
	}
	f.Fuzz(func(t *testing.T, data []byte, n uint8) {
		body := bytes.Clone(data)
		req, err := Dialect{}.Request(inspect.Head{}, body)
		if err != nil {
			return
		}
		r := req.(*request)
		valid := strictjson.Validate(body, strictjson.Options{Surrogates: true}) == nil
		sound := func(what string, out []byte, err error) {
			if err == nil && valid && strictjson.Validate(out, strictjson.Options{Surrogates: true}) != nil {
				t.Fatalf("%s of %q gives %q", what, body, out)
			}
		}
		one := round(answers("words", "za", "zb", "zc"), 0, 2)
		all := round(answers("", "zd"), 0)
		out, err := r.Resume([]inspect.Round{all, all})
		sound("resume", out, err)
		h, err := r.History()
		if err != nil {
			return
		}
		mends := map[int]inspect.Mend{}
		for i := range h.Units() {
			h.Shown(i)
			h.Last(i)
			m := inspect.Mend{Rounds: []inspect.Round{all, one}}
			switch (i + int(n)) % 8 {
			case 0:
				m.Edited, m.Notices = true, []string{"notice", "a", "no"}
			case 1:
				m.Rounds = []inspect.Round{{}}
			case 2:
				m = inspect.Mend{Edited: true, Notices: []string{"\U0001f600", "a", "b", "c", " "}}
			case 3:
				continue
			case 4:
				m.Unbind = true
			case 5:
				m = inspect.Mend{Unbind: true}
			case 6:
				m.Edited, m.Unbind = true, true
				m.Rounds = m.Rounds[1:]
			}
			mends[i] = m
		}
		h.Last(len(h.Units()))
		h.All(len(h.Units()))
		if task := h.Task(); task < 0 || task > len(h.Units()) {
			t.Fatalf("the task begins at %d of %d units", task, len(h.Units()))
		}
		same, err := h.Edit(nil, nil)
		if err != nil || !bytes.Equal(same, body) {
			t.Fatalf("nothing changed gives %q, %v", same, err)
		}
		out, err = h.Edit(nil, mends)
		sound("edit", out, err)
		if !bytes.Equal(body, data) {
			t.Fatal("the body was changed")
		}
		if err == nil && valid {
			again, err := Dialect{}.Request(inspect.Head{}, out)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := again.(*request).History(); err != nil && len(list(t, out)) > 0 {
				t.Fatalf("%q becomes %q: %v", body, out, err)
			}
		}
	})
}

// large makes a history of so many messages and about so many bytes: questions, answers with
// a call, and results that are program text.
func large(messages, size int) []byte {
	const program = "if x != \"y\" {\n\treturn fmt.Errorf(\"the words of a program\")\n}\n"
	text := strings.Repeat(program, 4*size/messages/3/len(quoted(program)))
	var all []string
	for i := 0; len(all) < messages; i++ {
		id := fmt.Sprintf("call_%d", i)
		all = append(all, user(text), answers(text, id), strings.Replace(gives(id), "output of", "output "+strings.Trim(string(quoted(text)), `"`), 1), answers("Done."))
	}
	return []byte(ask(all...))
}

func benchEdit(b *testing.B, messages, size, mended int) {
	body := large(messages, size)
	req, err := Dialect{}.Request(inspect.Head{}, body)
	if err != nil {
		b.Fatal(err)
	}
	r := req.(*request)
	mends := map[int]inspect.Mend{}
	for k := range mended {
		i := 2 * (k * (messages / 4) / mended)
		id := fmt.Sprintf("call_%d", i/2)
		mends[i] = inspect.Mend{Rounds: []inspect.Round{round(answers("I try.", "denied"), 0), round(answers("Words.", "denied", id), 0)}}
	}
	dst := make([]byte, 0, 2*len(body))
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		h, err := r.History()
		if err != nil {
			b.Fatal(err)
		}
		ids := 0
		for _, u := range h.Units() {
			ids += len(u.Calls)
		}
		out, err := h.Edit(dst, mends)
		if err != nil || ids == 0 || len(out) == len(body) && mended > 0 {
			b.Fatal(err)
		}
	}
}

func BenchmarkEdit(b *testing.B) {
	b.Run("100 messages of 500 KB", func(b *testing.B) { benchEdit(b, 100, 500_000, 10) })
	b.Run("400 messages of 2 MB", func(b *testing.B) { benchEdit(b, 400, 2_000_000, 10) })
	b.Run("1600 messages of 8 MB", func(b *testing.B) { benchEdit(b, 1600, 8_000_000, 10) })
	b.Run("400 messages of 2 MB, 100 mends", func(b *testing.B) { benchEdit(b, 400, 2_000_000, 100) })
}

func BenchmarkWalk(b *testing.B) { benchEdit(b, 400, 2_000_000, 0) }

func BenchmarkDigests(b *testing.B) {
	body := large(400, 2_000_000)
	req, err := Dialect{}.Request(inspect.Head{}, body)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		h, err := req.(*request).History()
		if err != nil {
			b.Fatal(err)
		}
		for i := range len(h.Units()) + 1 {
			h.All(i)
		}
	}
}
