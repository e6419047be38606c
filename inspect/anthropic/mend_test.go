package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"callgate/inspect"
)

func TestNoMendsGiveTheBodyBack(t *testing.T) {
	for _, body := range []string{
		"{ \"messages\" : [ {\"role\":\"user\",\"content\":\"a\"} ] ,\n\"model\":\"m\"}\n",
		`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[ {"type":"thinking","thinking":"h","signature":"s"} , {"type":"text","text":"b"}]}, {"role":"assistant","content":"c"} ]}`,
		`{"messages":[{"role":"user","content":"a"}],"thread":{"type":"continue","previous_message_id":"m"}}`,
	} {
		h := walked(t, body)
		for _, mends := range []map[int]inspect.Mend{nil, {}, {0: {}}, {0: {Edited: true}}, {0: {Edited: true, Notices: []string{"", "not there"}}}, {0: {Rounds: []inspect.Round{{}}}}} {
			if len(mends) > 0 && len(h.Units()) == 0 {
				continue
			}
			got, err := h.Edit([]byte("before "), mends)
			if err != nil || string(got) != "before "+body {
				t.Errorf("%v makes of %s\n%s, %v", mends, body, got, err)
			}
		}
	}
}

func TestMendsThatCannotBe(t *testing.T) {
	const body = `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}`
	const held = `{"messages":[{"role":"user","content":"a"}],"thread":{"type":"continue","previous_message_id":"m"}}`
	call := func(ids ...string) []byte {
		var list []string
		for _, id := range ids {
			list = append(list, `{"type":"tool_use","id":"`+id+`","name":"Bash","input":{}}`)
		}
		return []byte(`{"role":"assistant","content":[` + strings.Join(list, ",") + `]}`)
	}
	no := []inspect.Refusal{{Text: "no"}}
	for _, c := range []struct {
		says, body string
		unit       int
		rounds     []inspect.Round
		where      string
	}{
		{"a unit that is not there", body, 1, nil, "messages"},
		{"a refusal of no call", body, 0, []inspect.Round{{Message: call("t1"), Calls: []string{"t1"}, Refusals: []inspect.Refusal{{Call: 1}}}}, "messages.1, round 1"},
		{"a refusal twice", body, 0, []inspect.Round{{Message: call("t1"), Calls: []string{"t1"}, Refusals: []inspect.Refusal{{}, {}}}}, "messages.1, round 1"},
		{"a call without an id", body, 0, []inspect.Round{{Message: call(""), Calls: []string{""}, Refusals: no}}, "messages.1, round 1"},
		{"calls of another message", body, 0, []inspect.Round{{Message: call("t1", "t2"), Calls: []string{"t1"}, Refusals: no}}, "messages.1, round 1"},
		{"calls and no message", body, 0, []inspect.Round{{Calls: []string{"t1"}, Refusals: no}}, "messages.1, round 1"},
		{"a user's message", body, 0, []inspect.Round{{Message: []byte(`{"role":"user","content":"a"}`)}}, "messages.1, round 1"},
		{"a message that is no JSON", body, 0, []inspect.Round{{Message: []byte(`{"role":"assistant","content":"a"`)}}, "messages.1, round 1: request"},
		{"two messages", body, 0, []inspect.Round{{Message: []byte(`{"role":"assistant","content":"a"}{}`)}}, "messages.1, round 1: request"},
		{"a call left open before another round", body, 0, []inspect.Round{{Message: call("t1", "t2"), Calls: []string{"t1", "t2"}, Refusals: no}, {Message: call("t3"), Calls: []string{"t3"}, Refusals: no}}, "messages.1"},
		{"a round of text before another", body, 0, []inspect.Round{{Message: []byte(`{"role":"assistant","content":"a"}`)}, {Message: call("t3"), Calls: []string{"t3"}, Refusals: no}}, "messages.1"},
		{"a held answer whose id is not known", held, 0, []inspect.Round{{Calls: []string{"t1"}, Refusals: no}}, "thread.previous_message_id"},
		{"a held answer's refusal of no call", held, 0, []inspect.Round{{ID: "m", Refusals: no}}, "thread"},
	} {
		t.Run(c.says, func(t *testing.T) {
			got, err := walked(t, c.body).Edit([]byte("before"), map[int]inspect.Mend{c.unit: {Rounds: c.rounds}})
			var e *inspect.Error
			if !errors.As(err, &e) || e.Where != c.where || e.Reason == "" || string(got) != "before" {
				t.Errorf("it gives %q, %v, want an error at %s", got, err, c.where)
			}
		})
	}
}

func TestResumesThatCannotBe(t *testing.T) {
	const plain = `{"messages":[{"role":"user","content":"a"}]}`
	const thread = `{"messages":[{"role":"user","content":"a"}],"thread":{"type":"create"}}`
	message := []byte(`{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{}}]}`)
	no := []inspect.Refusal{{Text: "no"}}
	for _, c := range []struct {
		says, body string
		rounds     []inspect.Round
	}{
		{"no rounds", plain, nil},
		{"no rounds of a thread", thread, nil},
		{"a round of which nothing can stand", plain, []inspect.Round{{}}},
		{"a last round of which nothing can stand", plain, []inspect.Round{{Message: message, Calls: []string{"t1"}, Refusals: no}, {}}},
		{"no messages", `{"messages":[]}`, []inspect.Round{{Message: message, Calls: []string{"t1"}, Refusals: no}}},
		{"a call that is not refused", plain, []inspect.Round{{Message: message, Calls: []string{"t1"}}}},
		{"an answer without calls", plain, []inspect.Round{{Message: []byte(`{"role":"assistant","content":"a"}`)}}},
		{"an answer of a thread without an id", thread, []inspect.Round{{Message: message, Calls: []string{"t1"}, Refusals: no}}},
		{"a call of a thread that is not refused", thread, []inspect.Round{{ID: "m", Message: message, Calls: []string{"t1"}}}},
		{"a call of a thread without an id", thread, []inspect.Round{{ID: "m", Calls: []string{""}, Refusals: no}}},
		{"messages that cannot be walked", `{"messages":[1]}`, []inspect.Round{{Message: message, Calls: []string{"t1"}, Refusals: no}}},
		{"a choice that reads two ways", `{"messages":[{"role":"user","content":"a"}],"tool_choice":{"type":"auto","type":"any"}}`, []inspect.Round{{Message: message, Calls: []string{"t1"}, Refusals: no}}},
	} {
		t.Run(c.says, func(t *testing.T) {
			got, err := (&request{body: []byte(c.body)}).Resume(c.rounds)
			var e *inspect.Error
			if !errors.As(err, &e) || e.Reason == "" || got != nil {
				t.Errorf("it gives %s, %v", got, err)
			}
		})
	}
}

func TestRefusalsMayComeInAnyOrderAndStayAsTheyAre(t *testing.T) {
	round := inspect.Round{
		Message:  []byte(`{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"n","input":{}},{"type":"tool_use","id":"t2","name":"n","input":{}}]}`),
		Calls:    []string{"t1", "t2"},
		Refusals: []inspect.Refusal{{Call: 1, Text: "second"}, {Call: 0, Text: "first"}},
	}
	body := `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}`
	got, err := walked(t, body).Edit(nil, map[int]inspect.Mend{0: {Rounds: []inspect.Round{round}}})
	if err != nil || bytes.Index(got, []byte("first")) > bytes.Index(got, []byte("second")) || accepted(got) != nil {
		t.Errorf("it becomes %s, %v", got, err)
	}
	if round.Refusals[0].Text != "second" {
		t.Error("the round was changed, which others may be reading")
	}
}

func TestRefusalsStandDirectlyBehindTheAnswer(t *testing.T) {
	body := `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"system","content":"c"},{"role":"user","content":"d"}]}`
	got, err := walked(t, body).Edit(nil, map[int]inspect.Mend{0: {Rounds: []inspect.Round{{
		Message: []byte(`{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"n","input":{}}]}`), Calls: []string{"t1"}, Refusals: []inspect.Refusal{{Text: "no"}},
	}}}})
	want := `"input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"no","is_error":true}]},{"role":"system","content":"c"},{"role":"user","content":"d"}]}`
	if err != nil || !bytes.HasSuffix(got, []byte(want)) {
		t.Errorf("it becomes %s, %v", got, err)
	}
}

func TestNoticesAreCutAtEveryKindOfEscape(t *testing.T) {
	pieces := []string{"a", "\"", "\\", "/", "\n", "\t", "\b", "é", "😀", "\u2028", "<&>", "\u007f"}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		pick := func(n int) (s string) {
			for range n {
				s += pieces[rnd.IntN(len(pieces))]
			}
			return s
		}
		before, notice, after := pick(rnd.IntN(4)), "["+pick(1+rnd.IntN(4))+"]", pick(rnd.IntN(4))
		lit := escapedAtRandom(rnd, before+notice+after)
		start := strings.Index(before+notice+after, notice)
		body := `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"text","text":` + lit + `},{"type":"text","text":"z"}]}]}`
		got, err := walked(t, body).Edit(nil, map[int]inspect.Mend{0: {Edited: true, Notices: []string{notice}}})
		if err != nil {
			t.Fatal(err)
		}
		var doc struct{ Messages [2]struct{ Content any } }
		if err := json.Unmarshal(got, &doc); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		blocks := doc.Messages[1].Content.([]any)
		want := (before + notice + after)[:start] + (before + notice + after)[start+len(notice):]
		text := blocks[0].(map[string]any)["text"]
		if strings.TrimSpace(want) == "" {
			want = "z"
		}
		if text != want || len(blocks) > 2 {
			t.Fatalf("%s without %q is %q, want %q", lit, notice, text, want)
		}
	}
}

// escapedAtRandom writes a string as some encoder might.
func escapedAtRandom(rnd *rand.Rand, s string) string {
	out := `"`
	for _, r := range s {
		plain, _ := json.Marshal(string(r))
		short := string(plain[1 : len(plain)-1])
		switch {
		case rnd.IntN(2) == 0 && r > 0xffff:
			r -= 0x10000
			out += fmt.Sprintf(`\u%04x\u%04X`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		case rnd.IntN(2) == 0 && r <= 0xffff:
			out += fmt.Sprintf(`\u%04x`, r)
		case r == '/' && rnd.IntN(2) == 0:
			out += `\/`
		default:
			out += short
		}
	}
	return out + `"`
}

// told is a conversation made at random: what the client holds, and the mends
// that give back what the provider said.
type told struct {
	messages []string // as the client sends them
	unit     []int    // the unit that a message is of, -1 for a user's
	mends    map[int]inspect.Mend
	refusals []string
	thinks   bool // the request asks for thinking, and answers begin with it
	unbound  int  // the first unit whose thinking is lost
}

type teller struct {
	*rand.Rand
	n int
}

func (r *teller) name(what string) string {
	r.n++
	return fmt.Sprintf("%s%d.", what, r.n)
}

func (r *teller) one(in int) bool { return r.IntN(in) == 0 }

// mark is a marker for a cache, now and then.
func (r *teller) mark() string {
	if r.one(6) {
		return `,"cache_control":{"type":"ephemeral"}`
	}
	return ""
}

func (r *teller) space(items []string) string {
	return strings.Join(items, []string{",", ", ", "\n,"}[r.IntN(3)])
}

func (r *teller) tell(answers int) *told {
	c := &told{mends: map[int]inspect.Mend{}, thinks: r.one(3), unbound: answers}
	if r.one(3) {
		c.unbound = r.IntN(answers)
	}
	c.say(-1, `{"role":"user","content":"`+r.name("start")+`"}`)
	for i := range answers {
		r.answer(c, i)
	}
	return c
}

func (c *told) say(unit int, message string) {
	c.messages, c.unit = append(c.messages, message), append(c.unit, unit)
}

func (r *teller) answer(c *told, unit int) {
	rounds := 1
	if r.one(3) {
		rounds += 1 + r.IntN(2)
	}
	edited, trims := r.one(4), !c.thinks && r.one(2)
	var mend inspect.Mend
	var shown, results []string
	for k := range rounds {
		last := k == rounds-1
		var blocks []string
		if c.thinks || r.one(3) {
			block := `{"type":"thinking","thinking":"` + r.name("think") + `","signature":"` + r.name("sig") + `"}`
			blocks = append(blocks, block)
			if !trims {
				shown = append(shown, block)
			}
		}
		calls := r.IntN(4)
		if !last {
			calls = max(calls, 1)
		}
		if calls == 0 || r.one(2) {
			text := r.name("text")
			blocks = append(blocks, `{"type":"text","text":"`+text+`"}`)
			if edited && r.one(2) {
				text = r.name("edited")
			}
			shown = append(shown, `{"type":"text","text":"`+text+`"`+r.mark()+`}`)
		}
		round := inspect.Round{}
		for j := range calls {
			id := r.name("toolu")
			call := `{"type":"tool_use","id":"` + id + `","name":"Bash","input":{"command":"` + r.name("run") + `"}`
			blocks = append(blocks, call+"}")
			round.Calls = append(round.Calls, id)
			if !last || r.one(2) {
				text := r.name("refused")
				round.Refusals = append(round.Refusals, inspect.Refusal{Call: j, Text: text})
				c.refusals = append(c.refusals, text)
				continue
			}
			shown = append(shown, call+r.mark()+"}")
			results = append(results, `{"type":"tool_result","tool_use_id":"`+id+`", "content":"`+r.name("result")+`"`+r.mark()+`}`)
		}
		round.Message = []byte(`{"role":"assistant","content":[` + r.space(blocks) + `]}`)
		mend.Rounds = append(mend.Rounds, round)
	}
	if !slices.ContainsFunc(shown, func(s string) bool { return !strings.Contains(s, `"thinking"`) }) {
		shown = append(shown, `{"type":"text","text":"`+r.name("notice")+`"}`)
	}
	if len(mend.Rounds) > 1 || len(mend.Rounds[0].Refusals) > 0 {
		mend.Edited = edited
		c.mends[unit] = mend
	}
	if unit == c.unbound {
		m := c.mends[unit]
		m.Unbind = true
		c.mends[unit] = m
	}
	_, mended := c.mends[unit]
	if cut := r.IntN(len(shown)); mended && !mend.Edited && len(mend.Rounds) > 0 && unit != c.unbound && cut > 0 && r.one(4) {
		c.say(unit, `{"role":"assistant","content":[`+r.space(shown[:cut])+`]}`)
		shown = shown[cut:]
	}
	c.say(unit, `{"content":[`+r.space(shown)+`],"role":"assistant"}`)
	if r.one(5) {
		slices.Reverse(results)
	}
	switch {
	case len(results) == 0 && r.one(2):
		c.say(-1, `{"role":"user", "content":"`+r.name("user")+`"}`)
		return
	case len(results) == 0, r.one(4):
		results = append(results, `{"type":"text","text":"`+r.name("user")+`"`+r.mark()+`}`)
	}
	c.say(-1, `{"role":"user","content": [`+r.space(results)+`] }`)
}

// body is the request that ends with the first n messages.
func (c *told) body(n int) []byte {
	thinking := ""
	if c.thinks {
		thinking = `,"thinking":{"type":"enabled","budget_tokens":1024}`
	}
	return []byte(`{"model":"m","messages":[` + strings.Join(c.messages[:n], ", ") + `],"stream":true` + thinking + `}`)
}

// mended is the body of the first n messages, mended as far as it goes.
func (c *told) mended(t *testing.T, n int) []byte {
	t.Helper()
	h := walked(t, string(c.body(n)))
	mends := map[int]inspect.Mend{}
	for i, m := range c.mends {
		if i < len(h.Units()) {
			mends[i] = m
		}
	}
	out, err := h.Edit(nil, mends)
	if err != nil {
		t.Fatalf("%s: %v", c.body(n), err)
	}
	again, err := walked(t, string(c.body(n))).Edit(nil, mends)
	if err != nil || !bytes.Equal(out, again) {
		t.Fatal("the second time gives other bytes")
	}
	return out
}

func TestMendedHistoriesAreTakenAndGrowBehindWhatStands(t *testing.T) {
	for seed := range uint64(3000) {
		r := &teller{Rand: rand.New(rand.NewPCG(seed, 1))}
		c := r.tell(1 + r.IntN(5))
		out := c.mended(t, len(c.messages))
		if err := accepted(out); err != nil {
			t.Fatalf("seed %d: %v\n%s\n%s", seed, err, c.body(len(c.messages)), out)
		}
		for _, text := range c.refusals {
			if bytes.Count(out, []byte(text)) != 1 {
				t.Fatalf("seed %d: the refusal %s is not there once\n%s", seed, text, out)
			}
		}
		rest := out
		for k, m := range c.messages {
			// What was not to change stands byte for byte and in order; of a
			// user's messages at least every block does.
			parts := []string{m}
			if unit := c.unit[k]; unit >= 0 {
				if _, mended := c.mends[unit]; mended || unit >= c.unbound {
					continue
				}
			} else if mend, ok := c.mends[c.unit[max(k-1, 0)]]; k > 0 && ok && len(mend.Rounds) > 0 {
				parts = nil
				b := []byte(m)
				var ids []string
				msg := readMessage(&cursor{b: b}, 0, &ids)
				for _, block := range blocksOf(b, msg.content) {
					parts = append(parts, string(block.item.In(b)))
				}
			}
			for _, part := range parts {
				at := bytes.Index(rest, []byte(part))
				if at < 0 {
					t.Fatalf("seed %d: %s does not stand in\n%s", seed, part, out)
				}
				rest = rest[at+len(part):]
			}
		}
		for n := 1; n < len(c.messages); n++ {
			if c.unit[n-1] >= 0 {
				continue
			}
			// The end of the array and what stands behind it is left out.
			begun := c.mended(t, n)
			if begun = begun[:bytes.LastIndex(begun, []byte(`],"stream"`))]; !bytes.HasPrefix(out, begun) {
				t.Fatalf("seed %d: with %d messages it begins\n%s\nand later\n%s", seed, n, begun, out)
			}
		}
	}
}

func TestResumedHistoriesAreTaken(t *testing.T) {
	for seed := range uint64(1000) {
		r := &teller{Rand: rand.New(rand.NewPCG(seed, 2))}
		c := r.tell(1 + r.IntN(3))
		if c.unbound < len(c.unit) {
			c.mends = nil // the rounds alone
		}
		body := []byte(`{"model":"m","messages":[{"role":"user","content":"a"}],"stream":true}`)
		var rounds []inspect.Round
		for i := range c.mends {
			for _, round := range c.mends[i].Rounds {
				if len(round.Refusals) == len(round.Calls) && len(round.Calls) > 0 {
					rounds = append(rounds, round)
				}
			}
		}
		if len(rounds) == 0 {
			continue
		}
		out, err := asked(t, body).Resume(rounds)
		if err != nil {
			t.Fatal(err)
		}
		if err := accepted(out); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, out)
		}
		for _, round := range rounds {
			if !bytes.Contains(out, round.Message) || bytes.Count(out, []byte(round.Refusals[0].Text)) != 1 {
				t.Fatalf("seed %d: a round is not there once\n%s", seed, out)
			}
		}
	}
}

// FuzzHistory walks any bytes, and edits what can be walked: a body that the
// strictest server takes stays one.
func FuzzHistory(f *testing.F) {
	r := &teller{Rand: rand.New(rand.NewPCG(7, 7))}
	for range 20 {
		c := r.tell(1 + r.IntN(3))
		f.Add(c.body(len(c.messages)), uint8(r.IntN(256)))
	}
	for _, s := range []string{``, `{`, `{"messages":[`, `{"messages":[{"role":"user","content":[{"type":"text","text":"\ud83d`,
		`{"messages":[{"role":"assistant","content":"\ud83d\ud83d\u"}]}`, `{"messages":[],"thread":{"type":"continue","previous_message_id":"a"}}`,
		`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"text","text":"a[n]\u005bn]b"}]}]}`,
		`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking"}]}],"thinking":{"type":"enabled"},"context_management":{"edits":[{"type":"clear_thinking_1"}]}}`} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, how uint8) {
		body := bytes.Clone(data)
		req := &request{body: body}
		h, err := req.History()
		if err != nil {
			return
		}
		units := len(h.Units())
		digests(h)
		h.Task()
		mends := map[int]inspect.Mend{}
		message := []byte(`{"role":"assistant","content":[{"type":"thinking","thinking":"h","signature":"s"},{"type":"text","text":"x"},{"type":"tool_use","id":"fuzz_1","name":"n","input":{}}]}`)
		round := inspect.Round{ID: "msg_f", Message: message, Calls: []string{"fuzz_1"}, Refusals: []inspect.Refusal{{Text: "[callgate] no"}}}
		for i := range units {
			m := inspect.Mend{Edited: how&1 != 0, Unbind: how&2 != 0, Notices: []string{"[n]", "a"}}
			if how&4 == 0 {
				m.Edited = true
			} else if i == int(how>>4) {
				m.Rounds = []inspect.Round{round}
			}
			mends[i] = m
		}
		out, err := h.Edit(nil, mends)
		if err != nil {
			t.Fatal(err)
		}
		resumed, rerr := req.Resume([]inspect.Round{round})
		if !bytes.Equal(body, data) {
			t.Fatal("the body was changed")
		}
		if !json.Valid(data) {
			return
		}
		if !json.Valid(out) || rerr == nil && !json.Valid(resumed) {
			t.Fatalf("%s\nbecomes\n%s\nand\n%s", data, out, resumed)
		}
		if how&4 != 0 && units > int(how>>4) && !bytes.Contains(out, []byte("[callgate] no")) {
			t.Fatalf("%s\nlost its refusal:\n%s", data, out)
		}
		// With rounds, calls that the client shows would be gone from before
		// their results.
		if how&4 == 0 && accepted(data) == nil {
			if err := accepted(out); err != nil {
				t.Fatalf("%s\nbecomes\n%s: %v", data, out, err)
			}
		}
		if _, err := (&request{body: out}).History(); err != nil {
			t.Fatalf("%s\ncannot be walked again: %v", out, err)
		}
	})
}
