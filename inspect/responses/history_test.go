package responses

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"callgate/inspect"
	"callgate/inspect/digest"
)

func walked(t testing.TB, body string) inspect.History {
	t.Helper()
	h, err := histOf(body)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return h
}

func inputOf(items ...string) string {
	return `{"model":"m","input":[` + strings.Join(items, ",") + `]}`
}

const (
	userGo  = `{"role":"user","content":"go"}`
	callA   = `{"type":"function_call","id":"fc_a","call_id":"a","name":"bash","arguments":"{\"x\":\"one\"}","status":"completed"}`
	callB   = `{"type":"custom_tool_call","id":"ctc_b","call_id":"b","name":"apply_patch","input":"p"}`
	callC   = `{"type":"shell_call","id":"sh_c","call_id":"c","action":{"commands":["ls"],"max_output_length":9}}`
	resultA = `{"type":"function_call_output","call_id":"a","output":"done"}`
	resultB = `{"type":"custom_tool_call_output","call_id":"b","output":[{"type":"input_text","text":"done"}]}`
	resultC = `{"type":"shell_call_output","call_id":"c","output":[]}`
	saysHi  = `{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"Hi.","annotations":[]}]}`
	thinks  = `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"s"}`
)

func TestHistoriesAreDividedIntoAnswers(t *testing.T) {
	unit := func(calls ...string) inspect.Unit { return inspect.Unit{Calls: calls} }
	for _, c := range []struct {
		name, body string
		units      []inspect.Unit
		task       int
	}{
		{"nothing", `{"model":"m"}`, nil, 0},
		{"a text", `{"input":"go"}`, nil, 0},
		{"words alone", inputOf(userGo), nil, 0},
		{"one answer of many items", inputOf(userGo, thinks, saysHi, callA, callB, resultA, resultB), []inspect.Unit{unit("a", "b")}, 0},
		{"two answers", inputOf(userGo, callA, resultA, saysHi, userGo), []inspect.Unit{unit("a"), unit()}, 2},
		{"words right behind results are no new task", inputOf(userGo, callA, resultA, userGo, saysHi), []inspect.Unit{unit("a"), unit()}, 0},
		{"an answer that is prefilled", inputOf(userGo, saysHi), []inspect.Unit{unit()}, 0},
		{"items of the system's do not divide", inputOf(`{"type":"additional_tools","tools":[]}`, userGo, callA, resultA), []inspect.Unit{unit("a")}, 0},
		{"a question of MCP", inputOf(userGo, `{"type":"mcp_approval_request","id":"q","name":"n","server_label":"l","arguments":"{}"}`,
			`{"type":"mcp_approval_response","approval_request_id":"q","approve":true}`), []inspect.Unit{unit("q")}, 0},
		{"a local shell's result has the id of the call", `{"previous_response_id":"r","input":[{"type":"local_shell_call_output","id":"l","output":"x"}]}`, []inspect.Unit{{Answer: "r", Calls: []string{"l"}}}, 0},
		{"an answer that the provider holds", `{"previous_response_id":"r","input":[` + resultA + `,` + resultC + `,` + userGo + `]}`, []inspect.Unit{{Answer: "r", Calls: []string{"a", "c"}}}, 0},
		{"and words alone", `{"previous_response_id":"r","input":"and now?"}`, []inspect.Unit{{Answer: "r"}}, 1},
		{"and nothing", `{"previous_response_id":"r"}`, []inspect.Unit{{Answer: "r"}}, 0},
		{"a conversation that it holds", `{"conversation":{"id":"conv_1"},"input":[` + resultA + `]}`, []inspect.Unit{{Held: true, Calls: []string{"a"}}}, 0},
		{"with more behind", `{"previous_response_id":"r","input":[` + resultA + `,` + saysHi + `,` + userGo + `]}`, []inspect.Unit{{Answer: "r", Calls: []string{"a"}}, unit()}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := walked(t, c.body)
			if d := cmp.Diff(c.units, h.Units()); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
			if h.Task() != c.task {
				t.Errorf("the task begins at %d, want %d", h.Task(), c.task)
			}
		})
	}
}

func TestHistoriesThatTwoReadersReadDifferently(t *testing.T) {
	for name, body := range map[string]string{
		"the input is a number":        `{"input":1}`,
		"an item is a text":            inputOf(`"go"`),
		"a key twice":                  inputOf(`{"role":"user","role":"assistant","content":"x"}`),
		"a key in other case":          inputOf(`{"Role":"user","content":"x"}`),
		"a key with an escape":         inputOf(`{"type":"function_call","call_\u0069d":"a"}`),
		"an item that does not end":    `{"input":[{"role":"user"]}`,
		"a comma at the end":           `{"input":[` + userGo + `,]}`,
		"a text with a broken escape":  `{"input":"\x"}`,
		"an object in place of a list": `{"input":{"role":"user"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if h, err := histOf(body); err == nil {
				t.Errorf("%s was read: %+v", body, h.Units())
			} else if !strings.HasPrefix(err.Error(), "openai-responses: ") {
				t.Errorf("the error does not name its place: %v", err)
			}
		})
	}
}

// What clients change of an answer changes no digest, and what they must not
// does.
func TestDigestsSayWhatAnAnswerSays(t *testing.T) {
	of := func(items ...string) digest.Digest {
		return walked(t, inputOf(append([]string{userGo}, items...)...)).Shown(0)
	}
	same := of(saysHi, callA)
	for _, items := range [][]string{
		{thinks, saysHi, callA},
		{`{"role":"assistant","content":"Hi."}`, callA},
		{callA, saysHi},
		{`{"role":"assistant","content":[{"type":"output_text","text":"H"},{"type":"output_text","text":"i."}]}`, callA},
		{saysHi, `{"type":"function_call","call_id":"other","name":"bash","arguments":"{ \"x\" : \"one\" }"}`},
		{saysHi, `{"type":"web_search_call","id":"ws"}`, callA},
	} {
		if of(items...) != same {
			t.Errorf("%s has another digest", items)
		}
	}
	for _, items := range [][]string{
		{callA}, {saysHi}, {saysHi, callA, callA}, {saysHi, callB},
		{`{"role":"assistant","content":"Hi!"}`, callA},
		{saysHi, strings.Replace(callA, "bash", "sh", 1)},
		{saysHi, strings.Replace(callA, `one`, `two`, 1)},
	} {
		if of(items...) == same {
			t.Errorf("%s has the same digest", items)
		}
	}
	if of(callC) == of(strings.Replace(callC, "ls", "rm", 1)) || of(callB) == of(strings.Replace(callB, `"p"`, `"q"`, 1)) {
		t.Error("what a call is to do is not in the digest")
	}
	before := walked(t, inputOf(`{"role":"system","content":"x"}`, userGo, saysHi, userGo))
	after := walked(t, inputOf(`{"role":"system","content":"y"}`, userGo, saysHi, userGo))
	if before.All(1) != after.All(1) || before.Last(1) != after.Last(1) {
		t.Error("the system's words are in the digests")
	}
	if other := walked(t, inputOf(`{"role":"user","content":"stop"}`, saysHi, userGo)); other.All(1) == before.All(1) || other.Last(1) != before.Last(1) {
		t.Error("All must know all that was said, and Last the last of it alone")
	}
}

func round(id string, calls []string, refused []int, items ...string) inspect.Round {
	r := inspect.Round{ID: id, Calls: calls, Message: []byte(`{"output":[` + strings.Join(items, ",") + `]}`)}
	for _, n := range refused {
		r.Refusals = append(r.Refusals, inspect.Refusal{Call: n, Text: "No."})
	}
	return r
}

const (
	refusedA = `{"type":"function_call_output","call_id":"a","output":"No."}`
	refusedB = `{"type":"custom_tool_call_output","call_id":"b","output":"No."}`
	refusedC = `{"type":"shell_call_output","call_id":"c","max_output_length":9,"output":[{"stdout":"","stderr":"No.","outcome":{"type":"exit","exit_code":1}}]}`
)

func TestHistoriesAreMended(t *testing.T) {
	bareA, bareB := strings.Replace(callA, `"id":"fc_a",`, "", 1), strings.Replace(callB, `"id":"ctc_b",`, "", 1)
	abc := func(refused ...int) inspect.Round {
		return round("r1", []string{"a", "b", "c"}, refused, callA, callB, callC)
	}
	notice := `{"type":"message","id":"msg_n","role":"assistant","content":[{"type":"output_text","text":"[callgate] No."}]}`
	for _, c := range []struct {
		name, body string
		mends      map[int]inspect.Mend
		want       string
	}{
		{"nothing", inputOf(userGo, callA, resultA), nil, inputOf(userGo, callA, resultA)},
		{"the first of three", inputOf(userGo, callB, callC, resultB, resultC), map[int]inspect.Mend{0: {Rounds: []inspect.Round{abc(0)}}},
			inputOf(userGo, callA, callB, callC, refusedA, resultB, resultC)},
		{"the middle one", inputOf(userGo, callA, callC, resultA, resultC), map[int]inspect.Mend{0: {Rounds: []inspect.Round{abc(1)}}},
			inputOf(userGo, callA, callB, callC, resultA, refusedB, resultC)},
		{"the last one", inputOf(userGo, callA, callB, resultA, resultB), map[int]inspect.Mend{0: {Rounds: []inspect.Round{abc(2)}}},
			inputOf(userGo, callA, callB, callC, resultA, resultB, refusedC)},
		{"results in another order", inputOf(userGo, callA, callC, resultC, resultA), map[int]inspect.Mend{0: {Rounds: []inspect.Round{abc(1)}}},
			inputOf(userGo, callA, callB, callC, refusedB, resultC, resultA)},
		{"all, and words behind", inputOf(userGo, saysHi, userGo), map[int]inspect.Mend{0: {Rounds: []inspect.Round{round("r1", []string{"a"}, []int{0}, thinks, callA), round("r2", nil, nil, saysHi)}}},
			inputOf(userGo, thinks, callA, refusedA, saysHi, userGo)},
		{"an answer that the client changed", inputOf(userGo, `{"role":"assistant","content":"Mine."}`, callB, resultB),
			map[int]inspect.Mend{0: {Edited: true, Rounds: []inspect.Round{round("r1", []string{"a", "b"}, []int{0}, saysHi, callA, callB)}}},
			inputOf(userGo, `{"role":"assistant","content":"Mine."}`, bareA, callB, refusedA, resultB)},
		{"one with a notice of ours", inputOf(userGo, notice, callA, resultA),
			map[int]inspect.Mend{0: {Edited: true, Notices: []string{"[callgate] No."}, Rounds: []inspect.Round{round("r1", []string{"a", "b"}, []int{1}, callA, callB)}}},
			inputOf(userGo, callA, bareB, resultA, refusedB)},
		{"one whose reasoning has lost what it stood before", inputOf(userGo, thinks, notice, userGo),
			map[int]inspect.Mend{0: {Edited: true, Notices: []string{"[callgate] No."}, Rounds: []inspect.Round{round("r1", []string{"a"}, []int{0}, thinks, callA), round("r2", nil, nil, saysHi)}}},
			inputOf(userGo, bareA, refusedA, userGo)},
		{"a message of ours that is named by its id", inputOf(userGo, `{"type":"item_reference","id":"msg_1"}`, `{"type":"item_reference","id":"msg_callgate_1_0"}`, callA, resultA),
			map[int]inspect.Mend{0: {}}, inputOf(userGo, `{"type":"item_reference","id":"msg_1"}`, callA, resultA)},
		{"and nothing else", inputOf(userGo, `{"type":"item_reference","id":"msg_callgate_1_0"}`, userGo), map[int]inspect.Mend{0: {}}, inputOf(userGo, nothingSaid, userGo)},
		{"thinking that is bound to what is lost", inputOf(userGo, thinks, saysHi, userGo), map[int]inspect.Mend{0: {Unbind: true}},
			inputOf(userGo, strings.Replace(saysHi, `"id":"msg_1",`, "", 1), userGo)},
		{"an answer that the provider holds", `{"previous_response_id":"r1","input":[` + resultB + `]}`, map[int]inspect.Mend{0: {Rounds: []inspect.Round{round("r1", []string{"a", "b"}, []int{0}, callA, callB)}}},
			`{"previous_response_id":"r1","input":[` + refusedA + `,` + resultB + `]}`},
		{"with a further answer behind it", `{"previous_response_id":"r1","input":"and now?"}`,
			map[int]inspect.Mend{0: {Rounds: []inspect.Round{round("r1", []string{"a"}, []int{0}, callA), round("r2", nil, nil, saysHi)}}},
			`{"previous_response_id":"r2","input":"and now?"}`},
		{"whose further answer came to nothing", `{"previous_response_id":"r1","input":"and now?"}`,
			map[int]inspect.Mend{0: {Rounds: []inspect.Round{round("r1", []string{"a"}, []int{0}, callA), {Message: ownRound("Given up.")}}}},
			`{"previous_response_id":"r1","input":[` + refusedA + `,{"role":"user","content":"and now?"}]}`},
		{"of which no more is known than an id", `{"previous_response_id":"r1","input":[` + userGo + `]}`,
			map[int]inspect.Mend{0: {Rounds: []inspect.Round{{ID: "r1", Calls: []string{"a"}, Refusals: []inspect.Refusal{{Text: "No."}}}}}},
			`{"previous_response_id":"r1","input":[` + refusedA + `,` + userGo + `]}`},
		{"a conversation that it holds", `{"conversation":"conv_1","input":[` + resultB + `]}`, map[int]inspect.Mend{0: {Rounds: []inspect.Round{round("r1", []string{"a", "b"}, []int{0}, callA, callB)}}},
			`{"conversation":"conv_1","input":[` + refusedA + `,` + resultB + `]}`},
		{"and no input", `{"conversation":"conv_1"}`, map[int]inspect.Mend{0: {Rounds: []inspect.Round{round("r1", []string{"a"}, []int{0}, callA)}}},
			`{"conversation":"conv_1","input":[` + refusedA + `]}`},
		{"reasoning that nobody keeps is left out, with the ids of what it belonged to", `{"store":false,"input":[` + userGo + `,` + callB + `,` + resultB + `]}`,
			map[int]inspect.Mend{0: {Rounds: []inspect.Round{round("r1", []string{"a", "b"}, []int{0}, `{"type":"reasoning","id":"rs_1","summary":[]}`, callA, callB)}}},
			`{"store":false,"input":[` + userGo + `,` + bareA + `,` + bareB + `,` + refusedA + `,` + resultB + `]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := walked(t, c.body).Edit([]byte("x"), c.mends)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff("x"+c.want, string(got)); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
			if !strings.Contains(c.body, "previous_response_id") && !strings.Contains(c.body, "conversation") {
				if err := answered(got[1:]); err != nil {
					t.Error(err)
				}
			}
			again, err := walked(t, c.body).Edit(nil, c.mends)
			if err != nil || "x"+string(again) != string(got) {
				t.Errorf("the same once more gives %s, %v", again, err)
			}
		})
	}
}

func TestMendsThatCannotStand(t *testing.T) {
	for _, c := range []struct {
		name, body string
		mends      map[int]inspect.Mend
	}{
		{"of a unit that is not there", inputOf(userGo), map[int]inspect.Mend{0: {}}},
		{"a refusal of no call", inputOf(userGo, saysHi), map[int]inspect.Mend{0: {Rounds: []inspect.Round{round("r", []string{"a"}, []int{1}, callA)}}}},
		{"a refusal twice", inputOf(userGo, saysHi), map[int]inspect.Mend{0: {Rounds: []inspect.Round{round("r", []string{"a"}, []int{0, 0}, callA)}}}},
		{"calls that the items do not have", inputOf(userGo, saysHi), map[int]inspect.Mend{0: {Rounds: []inspect.Round{round("r", []string{"b"}, []int{0}, callA)}}}},
		{"a round before another that is not all refused", inputOf(userGo, saysHi), map[int]inspect.Mend{0: {Rounds: []inspect.Round{round("r", []string{"a"}, nil, callA), round("r2", nil, nil, saysHi)}}}},
		{"a held answer whose id is not known", `{"previous_response_id":"r"}`, map[int]inspect.Mend{0: {Rounds: []inspect.Round{round("", []string{"a"}, []int{0}, callA)}}}},
		{"items that are no JSON", inputOf(userGo, saysHi), map[int]inspect.Mend{0: {Rounds: []inspect.Round{{Message: []byte(`{"output":[{]}`)}}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := walked(t, c.body).Edit(nil, c.mends); err == nil {
				t.Errorf("it was taken: %s", got)
			} else if !strings.HasPrefix(err.Error(), "openai-responses: ") {
				t.Errorf("the error does not name its place: %v", err)
			}
		})
	}
}

func TestTheProviderIsAskedAgain(t *testing.T) {
	first := round("r1", []string{"a"}, []int{0}, thinks, callA)
	second := round("r2", []string{"b"}, []int{0}, callB)
	for _, c := range []struct {
		name, body string
		rounds     []inspect.Round
		want       string // "" where it cannot be
	}{
		{"behind a text", `{"input":"go"}`, []inspect.Round{first}, `{"input":[{"role":"user","content":"go"},` + thinks + `,` + callA + `,` + refusedA + `]}`},
		{"behind items", inputOf(userGo), []inspect.Round{first, second}, inputOf(userGo, thinks, callA, refusedA, callB, refusedB)},
		{"behind an answer that is held", `{"previous_response_id":"r0","input":[` + userGo + `]}`, []inspect.Round{first, second}, `{"previous_response_id":"r2","input":[` + refusedB + `]}`},
		{"in a conversation", `{"conversation":"c","input":"go"}`, []inspect.Round{first}, `{"conversation":"c","input":[` + refusedA + `]}`},
		{"where a tool had to be called", `{"input":[` + userGo + `],"tool_choice":"required"}`, []inspect.Round{first}, `{"input":[` + userGo + `,` + thinks + `,` + callA + `,` + refusedA + `],"tool_choice":"auto"}`},
		{"where one was named", `{"tool_choice":{"type":"function","name":"bash"},"input":[` + userGo + `]}`, []inspect.Round{second}, `{"tool_choice":"auto","input":[` + userGo + `,` + callB + `,` + refusedB + `]}`},
		{"where some are allowed", `{"tool_choice":{"type":"allowed_tools","mode":"required","tools":[]},"input":[` + userGo + `]}`, []inspect.Round{second}, `{"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[]},"input":[` + userGo + `,` + callB + `,` + refusedB + `]}`},
		{"where none may be", `{"tool_choice":"none","input":[` + userGo + `]}`, []inspect.Round{second}, `{"tool_choice":"none","input":[` + userGo + `,` + callB + `,` + refusedB + `]}`},
		{"without a round", inputOf(userGo), nil, ""},
		{"with a call that has no refusal", inputOf(userGo), []inspect.Round{round("r", []string{"a"}, nil, callA)}, ""},
		{"without an input", `{"model":"m"}`, []inspect.Round{first}, ""},
		{"behind a held answer that gave no id", `{"previous_response_id":"r0","input":"go"}`, []inspect.Round{round("", []string{"a"}, []int{0}, callA)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := asked(t, nil, c.body).Resume(c.rounds)
			if c.want == "" {
				if err == nil {
					t.Errorf("it becomes %s", got)
				}
				return
			}
			if d := cmp.Diff(c.want, string(got)); d != "" || err != nil {
				t.Errorf("%v, -want +got\n%s", err, d)
			}
		})
	}
}

// TestMadeUpHistoriesAreMended mends histories made by chance: what comes out
// must be one that a provider takes, in which all else stands as it did.
func TestMadeUpHistoriesAreMended(t *testing.T) {
	forms := []string{
		`{"type":"function_call","id":"fc_%[1]d","call_id":"c%[1]d","name":"bash","arguments":"{}"}`,
		`{"type":"custom_tool_call","id":"ctc_%[1]d","call_id":"c%[1]d","name":"exec","input":"x"}`,
		`{"type":"local_shell_call","id":"lsh_%[1]d","call_id":"c%[1]d","action":{"type":"exec","command":["x"]}}`,
		`{"type":"shell_call","id":"sh_%[1]d","call_id":"c%[1]d","action":{"commands":["x"]}}`,
		`{"type":"apply_patch_call","id":"apc_%[1]d","call_id":"c%[1]d","operation":{"type":"delete_file","path":"x"}}`,
		`{"type":"mcp_approval_request","id":"c%[1]d","name":"n","server_label":"l","arguments":"{}"}`,
	}
	for seed := range 2000 {
		rnd := rand.New(rand.NewPCG(uint64(seed), 3))
		n := 0
		next := func() int { n++; return n }
		say := func() string {
			return fmt.Sprintf(`{"type":"message","id":"msg_%d","role":"assistant","content":[{"type":"output_text","text":"t%d"}]}`, next(), n)
		}
		var input []string
		mends := map[int]inspect.Mend{}
		var refused []string
		for unit := range 1 + rnd.IntN(4) {
			input = append(input, fmt.Sprintf(`{"role":"user","content":"u%d"}`, next()))
			var rounds []inspect.Round
			last := rnd.IntN(3)
			var seen []string // by the agent
			for k := 0; k <= last; k++ {
				var items, calls []string
				var gone []int
				if rnd.IntN(2) == 0 {
					items = append(items, fmt.Sprintf(`{"type":"reasoning","id":"rs_%d","summary":[],"encrypted_content":"s"}`, next()))
				}
				if len(items) > 0 || k == last || rnd.IntN(2) == 0 {
					items = append(items, say())
				}
				seen = append(seen, items...)
				count := rnd.IntN(4)
				if k < last {
					count++
				}
				for range count {
					item := fmt.Sprintf(forms[rnd.IntN(len(forms))], next())
					id := fmt.Sprint("c", n)
					if k < last || rnd.IntN(2) == 0 {
						gone = append(gone, len(calls))
						refused = append(refused, id)
					} else {
						seen = append(seen, item)
					}
					items, calls = append(items, item), append(calls, id)
				}
				rounds = append(rounds, round(fmt.Sprint("r", next()), calls, gone, items...))
			}
			input = append(input, seen...)
			input = append(input, resultsFor(seen)...)
			if m := (inspect.Mend{Rounds: rounds, Edited: rnd.IntN(3) == 0, Unbind: rnd.IntN(5) == 0}); slices.ContainsFunc(rounds, func(r inspect.Round) bool { return len(r.Refusals) > 0 }) {
				mends[unit] = m
			}
		}
		input = append(input, `{"role":"user","content":"end"}`)
		body := `{"model":"m","store":false,"input":[` + strings.Join(input, ",") + `],"more":1}`
		got, err := walked(t, body).Edit(nil, mends)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := answered(got); err != nil {
			t.Fatalf("seed %d: %v\nfrom %s", seed, err, body)
		}
		for _, id := range refused {
			if n := strings.Count(string(got), `"`+id+`"`); n != 2 {
				t.Fatalf("seed %d: %s stands %d times in %s", seed, id, n, got)
			}
		}
		var was, is []string
		for _, it := range gjson.Get(body, `input.#(role=="user")#`).Array() {
			was = append(was, it.Raw)
		}
		for _, it := range gjson.GetBytes(got, `input.#(role=="user")#`).Array() {
			is = append(is, it.Raw)
		}
		if !slices.Equal(was, is) || gjson.GetBytes(got, "more").Raw != "1" {
			t.Fatalf("seed %d: the user's words became %s", seed, got)
		}
	}
}

func FuzzHistory(f *testing.F) {
	for _, body := range []string{inputOf(userGo, thinks, saysHi, callA, callB, resultA, resultB), `{"input":"go"}`, `{"previous_response_id":"r","input":[` + resultA + `]}`,
		`{"conversation":"c"}`, inputOf(userGo, callC, resultC, userGo)} {
		f.Add([]byte(body))
	}
	mend := inspect.Mend{Rounds: []inspect.Round{round("r1", []string{"x"}, []int{0}, `{"type":"function_call","call_id":"x","name":"n","arguments":"{}"}`), round("r2", nil, nil, `{"role":"assistant","content":"t"}`)}}
	f.Fuzz(func(t *testing.T, body []byte) {
		h, err := histOf(string(body))
		if err != nil {
			return
		}
		units := h.Units()
		for i := range units {
			h.Shown(i)
			h.All(i)
			h.Last(i)
		}
		h.All(len(units))
		if same, err := h.Edit(nil, nil); err != nil || string(same) != string(body) {
			t.Fatalf("with nothing to mend it becomes %q, %v", same, err)
		}
		for i := range units {
			for _, edited := range []bool{false, true} {
				m := mend
				m.Edited = edited
				got, err := h.Edit(nil, map[int]inspect.Mend{i: m})
				if err == nil && json.Valid(body) && !json.Valid(got) {
					t.Fatalf("%q becomes %q", body, got)
				}
			}
		}
	})
}
