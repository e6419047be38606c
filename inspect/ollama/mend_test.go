package ollama

import (
	"bytes"
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

// chance makes turns. Each has texts and tools of its own.
type chance struct {
	*rand.Rand
	n int
}

func (c *chance) maybe() bool { return c.IntN(2) == 0 }

func (c *chance) next() int { c.n++; return c.n }

// turn makes a turn whose answer was altered, or was not.
func (c *chance) turn() exchange {
	t := exchange{messages: []string{user(fmt.Sprintf("question %d", c.next()))}, unit: run{from: 1}}
	edited := c.IntN(3) == 0
	bare := !edited && c.IntN(3) == 0 // calls have no ids
	var rounds []inspect.Round
	shown := ""
	var left []string
	for k, n := 0, 1+c.IntN(3); k < n; k++ {
		text, ids := "", []string(nil)
		if c.maybe() || k == n-1 {
			text = fmt.Sprintf("words %d \"é\"\n", c.next())
		}
		for range c.IntN(4) {
			id := fmt.Sprintf("call_%d", c.next())
			if bare {
				id = fmt.Sprintf("-%d", c.next())
			}
			ids = append(ids, id)
		}
		if k < n-1 && len(ids) == 0 {
			continue // a round that is followed by another one has calls
		}
		raw := answers(text, ids...)
		if c.IntN(4) == 0 {
			raw = strings.Replace(raw, `"content"`, `"thinking":"hm","content"`, 1)
		}
		shown += text
		r := round(raw)
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
	m := inspect.Mend{Rounds: rounds, Edited: edited, Unbind: c.IntN(4) == 0}
	if m.Edited {
		t.words = fmt.Sprintf("edited %d", c.next())
		shown, m.Notices = t.words+", notice", []string{", notice"}
	}
	if c.IntN(3) > 0 {
		t.mend = &m
	} else {
		t.refused = nil // what the client shows is then all there was
	}
	t.messages = append(t.messages, c.shown(shown, left)...)
	t.unit.to = len(t.messages)
	for _, id := range left {
		t.messages = append(t.messages, gives(id))
	}
	return t
}

// shown writes an answer in one of the ways of clients.
func (c *chance) shown(text string, ids []string) []string {
	calls := strings.TrimPrefix(answers("", ids...), `{"role":"assistant","content":""`)
	content := string(quoted(text))
	if len(ids) > 0 && c.IntN(3) == 0 {
		return []string{`{"role":"assistant","content":` + content + `}`, `{"content":"","role":"assistant"` + calls}
	}
	return []string{`{ "role" : "assistant", "thinking":"hm" ,"content":` + content + calls}
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
func list(body []byte) (all []string) {
	for w := rawjson.Open(body, rawjson.Get(body, rawjson.All(body), "messages")); w.Next(); {
		all = append(all, string(w.Val.In(body)))
	}
	return all
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
			if err := strictjson.Object(out, strictjson.Options{}); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if err := checkHistory(out); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
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
	rest := list(out)
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
		if unbind && strings.Contains(strings.Join(own, ""), `"thinking`) {
			t.Fatalf("there is thinking in %s", own)
		}
		switch {
		case turn.mend == nil && !unbind:
			rounds = turn.messages[turn.unit.from:turn.unit.to]
		case turn.mend == nil || turn.mend.Edited || unbind:
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
	for i := range paths {
		c := &chance{Rand: rand.New(rand.NewPCG(uint64(i), 5))}
		body, _ := talk([]exchange{c.turn(), c.turn()}, ", ")
		f.Add([]byte(body), uint8(i))
	}
	for _, s := range []string{`{"messages":[]}`, `{"messages":[{"role":"user"},]}`, `{"messages":[{"role":"assistant","content":["a"]}]}`,
		ask(`{"role":"assistant","content":"a notice b\ud83d","tool_calls":[{"function":{"name":"f"}}]}`), `{"messages":[{"role":"tool","tool_call_id":"a"}]}`} {
		f.Add([]byte(s), uint8(0))
	}
	f.Fuzz(func(t *testing.T, data []byte, n uint8) {
		body := bytes.Clone(data)
		req, err := Dialect{}.Request(inspect.Head{Path: chatPath}, body)
		if err != nil {
			return
		}
		valid := strictjson.Validate(body, strictjson.Options{Surrogates: true}) == nil
		sound := func(what string, out []byte, err error) {
			if err == nil && valid && strictjson.Validate(out, strictjson.Options{Surrogates: true}) != nil {
				t.Fatalf("%s of %q gives %q", what, body, out)
			}
		}
		one := round(answers("words", "za", "-b", "zc"), 0, 2)
		all := round(answers("", "zd", "-e"), 0, 1)
		out, err := req.Resume([]inspect.Round{all, all})
		sound("resume", out, err)
		h, err := req.History()
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
			again, err := Dialect{}.Request(inspect.Head{Path: chatPath}, out)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := again.History(); err != nil && len(list(out)) > 0 {
				t.Fatalf("%q becomes %q: %v", body, out, err)
			}
		}
	})
}

func BenchmarkEdit(b *testing.B) {
	const messages, mended = 400, 10
	text := strings.Repeat("if x != \"y\" {\n\treturn fmt.Errorf(\"the words of a program\")\n}\n", 90)
	var all []string
	for i := 0; len(all) < messages; i++ {
		id := fmt.Sprintf("call_%d", i)
		all = append(all, user(text), answers(text, id), resultOf(id, text), answers("Done."))
	}
	body := []byte(ask(all...))
	mends := map[int]inspect.Mend{}
	for k := range mended {
		i := 2 * (k * (messages / 4) / mended)
		mends[i] = inspect.Mend{Rounds: []inspect.Round{round(answers("I try.", "denied"), 0), round(answers("Words.", "denied", fmt.Sprintf("call_%d", i/2)), 0)}}
	}
	dst := make([]byte, 0, 2*len(body))
	for name, m := range map[string]map[int]inspect.Mend{"mends": mends, "walk": nil} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				r, err := Dialect{}.Request(inspect.Head{Path: chatPath}, body)
				if err != nil {
					b.Fatal(err)
				}
				h, err := r.History()
				if err != nil {
					b.Fatal(err)
				}
				out, err := h.Edit(dst, m)
				if err != nil || bytes.Equal(out, body) != (m == nil) {
					b.Fatal(err)
				}
			}
		})
	}
}
