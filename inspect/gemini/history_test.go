package gemini

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"callgate/inspect"
)

const (
	user   = `{"role":"user","parts":[{"text":"go"}]}`
	signed = `{"functionCall":{"name":"rm","args":{"p":"a"}},"thoughtSignature":"c2ln"}`
	listed = `{"functionCall":{"name":"ls","args":{"p":"b"}}}`
)

func model(parts ...string) string {
	return `{"role":"model","parts":[` + strings.Join(parts, ",") + `]}`
}

func results(parts ...string) string {
	return `{"role":"user","parts":[` + strings.Join(parts, ",") + `]}`
}

func result(name, id string) string {
	if id != "" {
		id = `"id":"` + id + `",`
	}
	return `{"functionResponse":{` + id + `"name":"` + name + `","response":{"output":"done"}}}`
}

func refused(name, text string) string {
	return `{"functionResponse":{"name":"` + name + `","response":{"error":"` + text + `"}}}`
}

func bodyOf(contents ...string) string {
	return `{"contents": [` + strings.Join(contents, " , ") + `], "tools":[]}`
}

// round makes a round of parts; refusals are by the number of the call.
func roundOf(refusals map[int]string, parts ...string) inspect.Round {
	r := inspect.Round{Message: []byte(model(parts...))}
	h, err := histOf(bodyOf(string(r.Message)))
	if err != nil {
		panic(err)
	}
	r.Calls = h.Units()[0].Calls
	for n := range r.Calls {
		if text, ok := refusals[n]; ok {
			r.Refusals = append(r.Refusals, inspect.Refusal{Call: n, Text: text})
		}
	}
	return r
}

func TestEditPutsBackWhatWasWithheld(t *testing.T) {
	both := roundOf(map[int]string{0: "no"}, `{"text":"I run."}`, signed, listed)
	last := roundOf(map[int]string{1: "no"}, listed, signed)
	alone := roundOf(map[int]string{0: "no"}, signed)
	spoken := roundOf(nil, `{"text":"Sorry."}`)
	thought := `{"text":"hm","thought":true}`
	moved := strings.TrimSuffix(listed, "}") + `,"thoughtSignature":"c2ln"}`
	for _, c := range []struct {
		says, body, want string
		mend             inspect.Mend
	}{
		{"the first of two calls stands before the other, and its refusal before the other's result",
			bodyOf(user, model(`{"text":"I "}`, `{"text":"run."}`, moved), results(result("ls", ""))),
			bodyOf(user, model(`{"text":"I run."}`, signed, listed), results(refused("rm", "no"), result("ls", ""))), inspect.Mend{Rounds: []inspect.Round{both}}},
		{"the second of two stands behind",
			bodyOf(user, model(listed), results(result("ls", ""))),
			bodyOf(user, model(listed, signed), results(result("ls", ""), refused("rm", "no"))), inspect.Mend{Rounds: []inspect.Round{last}}},
		{"a call keeps the id that the client has given it, since its result names it",
			bodyOf(user, model(`{"functionCall":{"id":"ls_1_0","name":"ls","args":{"p":"b"}}}`), results(result("ls", "ls_1_0"))),
			bodyOf(user, model(`{"functionCall":{"id":"ls_1_0","name":"ls","args":{"p":"b"}}}`, signed), results(result("ls", "ls_1_0"), refused("rm", "no"))), inspect.Mend{Rounds: []inspect.Round{last}}},
		{"rounds of a resumed answer stand one behind the other",
			bodyOf(user, model(`{"text":"Sorry."}`), user),
			bodyOf(user, model(signed)+","+results(refused("rm", "no"))+","+model(`{"text":"Sorry."}`), user), inspect.Mend{Rounds: []inspect.Round{alone, spoken}}},
		{"refusals without results get a content of their own",
			bodyOf(user, model(`{"text":"[callgate] no"}`)),
			bodyOf(user, model(signed)+","+results(refused("rm", "no"))), inspect.Mend{Rounds: []inspect.Round{alone}}},
		{"an answer split into contents is one",
			bodyOf(user, model(`{"text":"I "}`), model(listed), results(result("ls", "")), user),
			bodyOf(user, model(listed, signed), results(result("ls", ""), refused("rm", "no")), user), inspect.Mend{Rounds: []inspect.Round{last}}},
		{"thoughts that the client trims are left out",
			bodyOf(user, model(listed), results(result("ls", ""))),
			bodyOf(user, model(listed, signed), results(result("ls", ""), refused("rm", "no"))), inspect.Mend{Rounds: []inspect.Round{roundOf(map[int]string{1: "no"}, thought, listed, signed)}}},
		{"thoughts that the client keeps are put back",
			bodyOf(user, model(thought, listed), results(result("ls", ""))),
			bodyOf(user, model(thought, listed, signed), results(result("ls", ""), refused("rm", "no"))), inspect.Mend{Rounds: []inspect.Round{roundOf(map[int]string{1: "no"}, thought, listed, signed)}}},
		{"an edited answer keeps its words, and a moved signature goes back",
			bodyOf(user, model(`{"text":"Other words. [callgate] wait"}`, moved), results(result("ls", ""))),
			bodyOf(user, model(`{"text":"Other words. "}`, signed, listed), results(refused("rm", "no"), result("ls", ""))),
			inspect.Mend{Rounds: []inspect.Round{both}, Edited: true, Notices: []string{"[callgate] wait"}}},
		{"rounds before an edited answer stand without their words",
			bodyOf(user, model(`{"text":"My words."}`), user),
			bodyOf(user, model(signed)+","+results(refused("rm", "no"))+","+model(`{"text":"My words."}`), user),
			inspect.Mend{Rounds: []inspect.Round{roundOf(map[int]string{0: "no"}, `{"text":"Mine"}`, signed), spoken}, Edited: true}},
		{"unbound, signatures give way to a word that stands for them",
			bodyOf(user, model(thought, `{"text":"a","thoughtSignature":"eA=="}`, moved), results(result("ls", ""))),
			bodyOf(user, model(`{"text":"a"}`, strings.Replace(moved, "c2ln", "skip_thought_signature_validator", 1)), results(result("ls", ""))), inspect.Mend{Unbind: true}},
		{"both spellings are read",
			strings.NewReplacer("functionCall", "function_call", "functionResponse", "function_response").Replace(bodyOf(user, model(listed), results(result("ls", "")))),
			bodyOf(user, model(listed, signed), strings.Replace(results(result("ls", ""), refused("rm", "no")), "functionResponse", "function_response", 1)), inspect.Mend{Rounds: []inspect.Round{last}}},
	} {
		t.Run(c.says, func(t *testing.T) {
			h, err := histOf(c.body)
			if err != nil {
				t.Fatal(err)
			}
			got, err := h.Edit([]byte("before"), map[int]inspect.Mend{0: c.mend})
			// An answer of several contents becomes one, with what stood between.
			want := "before" + c.want
			if err != nil || string(got) != want {
				t.Errorf("%v\n got %s\nwant %s", err, got, want)
			}
		})
	}
}

func TestEditRefusesWhatDoesNotFit(t *testing.T) {
	h, err := histOf(bodyOf(user, model(listed), results(result("ls", ""))))
	if err != nil {
		t.Fatal(err)
	}
	bad := func(change func(r *inspect.Round)) inspect.Round {
		r := roundOf(map[int]string{0: "no"}, signed)
		change(&r)
		return r
	}
	for name, rounds := range map[string][]inspect.Round{
		"calls that are not the message's": {bad(func(r *inspect.Round) { r.Calls = []string{"x"} })},
		"a refusal of no call":             {bad(func(r *inspect.Round) { r.Refusals[0].Call = 1 })},
		"two refusals of one call":         {bad(func(r *inspect.Round) { r.Refusals = append(r.Refusals, r.Refusals[0]) })},
		"calls without a message":          {bad(func(r *inspect.Round) { r.Message = nil })},
		"a message of the user's":          {bad(func(r *inspect.Round) { r.Message = []byte(user); r.Calls, r.Refusals = nil, nil })},
		"a message that is no JSON":        {bad(func(r *inspect.Round) { r.Message = []byte(`{`) })},
		"an unanswered round in between":   {bad(func(r *inspect.Round) { r.Refusals = nil }), roundOf(nil, `{"text":"x"}`)},
	} {
		if got, err := h.Edit(nil, map[int]inspect.Mend{0: {Rounds: rounds}}); err == nil {
			t.Errorf("%s is taken: %s", name, got)
		}
	}
	if _, err := h.Edit(nil, map[int]inspect.Mend{1: {}}); err == nil {
		t.Error("a unit that is not there is changed")
	}
	if got, err := h.Edit(nil, nil); err != nil || string(got) != bodyOf(user, model(listed), results(result("ls", ""))) {
		t.Errorf("without mends it gives %s %v", got, err)
	}
}

func TestAHistoryThatSaysTwoThingsIsRefused(t *testing.T) {
	for _, contents := range []string{`{"role":"user","role":"model"}`, `{"Role":"user"}`, `{"parts":1}`, `{"parts":[1]}`, `7`,
		`{"parts":[{"functionCall":{},"function_call":{}}]}`, `{"parts":[{"functionCall":{"name":"a","Name":"b"}}]}`,
		`{"parts":[{"functionCall":{},"functionResponse":{}}]}`, `{"parts":[{"text":"a","Text":"b"}]}`} {
		if h, err := histOf(bodyOf(contents)); err == nil {
			t.Errorf("%s is taken: %v", contents, h.Units())
		}
	}
}

func TestTheTaskIsWhatTheUserAskedLast(t *testing.T) {
	for _, c := range []struct {
		contents []string
		want     int
	}{
		{nil, 0},
		{[]string{user}, 0},
		{[]string{user, model(listed), results(result("ls", ""))}, 0},
		{[]string{user, model(listed), results(result("ls", ""), `{"text":"reminder"}`)}, 0},
		{[]string{user, model(listed), results(result("ls", "")), user}, 0},
		{[]string{user, model(`{"text":"a"}`), user}, 1},
		{[]string{user, model(`{"text":"a"}`), user, model(listed), results(result("ls", ""))}, 1},
		{[]string{model(`{"text":"a"}`), model(`{"text":"b"}`), `{"parts":[{"text":"role is left out"}]}`, model(listed)}, 1},
	} {
		h, err := histOf(bodyOf(c.contents...))
		if err != nil {
			t.Fatal(err)
		}
		if got := h.Task(); got != c.want {
			t.Errorf("%s: the task begins at %d, want %d", c.contents, got, c.want)
		}
	}
}

func TestDigestsLeaveOutWhatClientsChange(t *testing.T) {
	digests := func(body string) string {
		h, err := histOf(body)
		if err != nil {
			t.Fatal(err)
		}
		var all []any
		for i := range h.Units() {
			all = append(all, h.Shown(i), h.Last(i), h.All(i))
		}
		n := len(h.Units())
		return fmt.Sprint(all, h.Last(n), h.All(n))
	}
	base := digests(bodyOf(user, model(`{"text":"a b"}`, `{"functionCall":{"name":"ls","args":{"p":"b","q":"c"}}}`), results(result("ls", ""))))
	for name, body := range map[string]string{
		"pieces of text":        bodyOf(user, model(`{"text":"a"}`, `{"text":" b"}`, `{"functionCall":{"name":"ls","args":{"p":"b","q":"c"}}}`), results(result("ls", ""))),
		"pieces of contents":    bodyOf(user, model(`{"text":"a"}`), model(`{"text":"b"}`, `{"functionCall":{"name":"ls","args":{"p":"b","q":"c"}}}`), results(result("ls", ""))),
		"ids and signatures":    bodyOf(user, model(`{"text":"a b"}`, `{"functionCall":{"id":"i","name":"ls","args":{"p":"b","q":"c"}},"thoughtSignature":"x"}`), results(result("ls", "i"))),
		"thoughts":              bodyOf(user, model(`{"text":"t","thought":true}`, `{"text":"a b"}`, `{"functionCall":{"name":"ls","args":{"p":"b","q":"c"}}}`), results(result("ls", ""))),
		"escapes and spelling":  strings.ReplaceAll(bodyOf(user, model(`{"text":"\u0061 b"}`, `{"function_call":{"name":"ls","args":{"p": "b","q":"c"}}}`), results(result("ls", ""))), "functionResponse", "function_response"),
		"the role of a content": bodyOf(`{"parts":{"text":"go"}}`, model(`{"text":"a b"}`, `{"functionCall":{"name":"ls","args":{"p":"b","q":"c"}}}`), strings.Replace(results(result("ls", "")), "user", "function", 1)),
	} {
		if digests(body) != base {
			t.Errorf("%s count", name)
		}
	}
	for name, body := range map[string]string{
		"another argument": bodyOf(user, model(`{"text":"a b"}`, `{"functionCall":{"name":"ls","args":{"p":"x","q":"c"}}}`), results(result("ls", ""))),
		"another name":     bodyOf(user, model(`{"text":"a b"}`, `{"functionCall":{"name":"rm","args":{"p":"b","q":"c"}}}`), results(result("ls", ""))),
		"another text":     bodyOf(user, model(`{"text":"a c"}`, `{"functionCall":{"name":"ls","args":{"p":"b","q":"c"}}}`), results(result("ls", ""))),
		"another result":   bodyOf(user, model(`{"text":"a b"}`, `{"functionCall":{"name":"ls","args":{"p":"b","q":"c"}}}`), results(strings.Replace(result("ls", ""), "done", "else", 1))),
	} {
		if digests(body) == base {
			t.Errorf("%s does not count", name)
		}
	}
}

func TestResumeAsksAgainBehindTheRounds(t *testing.T) {
	alone := roundOf(map[int]string{0: "no"}, signed)
	added := model(signed) + "," + results(refused("rm", "no"))
	for _, c := range []struct{ body, want string }{
		{`{"contents":[` + user + ` ],"tools":[]}`, `{"contents":[` + user + `,` + added + ` ],"tools":[]}`},
		{`{"contents":` + user + `}`, `{"contents":[` + user + `,` + added + `]}`},
		{`{"contents":[` + user + `,` + model(`{"text":"Well"}`) + `]}`, `{"contents":[` + user + `,` + model(`{"text":"Well"}`, signed) + `,` + results(refused("rm", "no")) + `]}`},
		{`{"contents":[` + user + `],"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["rm"]}}}`,
			`{"contents":[` + user + `,` + added + `],"toolConfig":{"functionCallingConfig":{"mode":"AUTO"}}}`},
		{`{"contents":[` + user + `],"tool_config":{"function_calling_config":{"allowed_function_names":["rm"],"mode":"ANY"}}}`,
			`{"contents":[` + user + `,` + added + `],"tool_config":{"function_calling_config":{"mode":"AUTO"}}}`},
		{`{"contents":[` + user + `],"toolConfig":{"functionCallingConfig":{"mode":"VALIDATED","allowedFunctionNames":["rm"]}}}`,
			`{"contents":[` + user + `,` + added + `],"toolConfig":{"functionCallingConfig":{"mode":"VALIDATED","allowedFunctionNames":["rm"]}}}`},
	} {
		req, err := reqOf(c.body)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := req.Resume([]inspect.Round{alone}); err != nil || string(got) != c.want {
			t.Errorf("%v\n got %s\nwant %s", err, got, c.want)
		}
	}
	login, err := Dialect{}.Request(inspect.Head{Method: "POST", Path: "/v1internal:generateContent"}, []byte(`{"model":"m","request":{"contents":[`+user+`],"x":1},"y":2}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := login.Resume([]inspect.Round{alone, alone}); err != nil || string(got) != `{"model":"m","request":{"contents":[`+user+`,`+added+`,`+added+`],"x":1},"y":2}` {
		t.Errorf("%s %v", got, err)
	}
	for _, body := range []string{`{"contents":[` + user + `],"continuationToken":"dG9rZW4="}`, `{"contents":[` + user + `],"generationConfig":{"candidateCount":2}}`, `{"contents":[]}`} {
		req, err := reqOf(body)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := req.Resume([]inspect.Round{alone}); err == nil {
			t.Errorf("behind %s it asks again with %s", body, got)
		}
	}
	for name, rounds := range map[string][]inspect.Round{"none": nil, "one without calls": {roundOf(nil, `{"text":"x"}`)}, "an open call": {roundOf(nil, signed)}, "an empty one": {{}}} {
		req, _ := reqOf(bodyOf(user))
		if got, err := req.Resume(rounds); err == nil {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestGeneratedConversationsAreMended makes up conversations as a client keeps
// them, and mends any of their answers: each withheld call stands there once with
// its refusal, the rest is as it was, and the same answer gets the same bytes
// however long the conversation has become.
func TestGeneratedConversationsAreMended(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var contents []string
		mends := map[int]inspect.Mend{}
		withheld := 0
		for unit := range 1 + rnd.IntN(6) {
			if rnd.IntN(3) == 0 || unit == 0 {
				contents = append(contents, user)
			}
			ids := rnd.IntN(3) // none, the provider's, the client's own
			var truth, shown, back []string
			refusals := map[int]string{}
			if rnd.IntN(2) == 0 {
				text := fmt.Sprintf(`{"text":"words %d"}`, unit)
				truth, shown = append(truth, text), append(shown, text)
			}
			for n := range 1 + rnd.IntN(4) {
				name := []string{"rm", "ls"}[rnd.IntN(2)]
				call := func(id string) string {
					if id != "" {
						id = `"id":"` + id + `",`
					}
					return fmt.Sprintf(`{"functionCall":{%s"name":"%s","args":{"p":"u%dn%d"}}}`, id, name, unit, n)
				}
				id := fmt.Sprintf("%s_%d_%d", name, unit, n)
				own := id
				if ids != 1 {
					own = ""
				}
				truth = append(truth, call(own))
				if rnd.IntN(2) == 0 {
					refusals[n] = fmt.Sprintf("no to u%dn%d", unit, n)
					withheld++
					continue
				}
				if ids == 0 {
					id = ""
				}
				shown, back = append(shown, call(id)), append(back, result(name, id))
			}
			round := roundOf(refusals, truth...)
			m := inspect.Mend{Rounds: []inspect.Round{round}, Edited: rnd.IntN(3) == 0}
			if len(refusals) == len(round.Calls) {
				m.Rounds = append(m.Rounds, roundOf(nil, `{"text":"well"}`))
				shown = append(shown, `{"text":"well"}`)
			}
			contents = append(contents, model(shown...))
			if len(back) > 0 {
				contents = append(contents, results(back...))
			}
			mends[unit] = m
		}
		if !strings.Contains(contents[len(contents)-1], `"role":"user"`) {
			contents = append(contents, user)
		}
		// Two answers in a row are one unit.
		for i := 1; i < len(contents); i++ {
			if strings.HasPrefix(contents[i-1], `{"role":"model"`) && strings.HasPrefix(contents[i], `{"role":"model"`) {
				contents = slices.Insert(contents, i, user)
			}
		}
		h, err := histOf(bodyOf(contents...))
		if err != nil {
			t.Fatal(err)
		}
		if len(h.Units()) != len(mends) {
			t.Fatalf("seed %d: %d units, want %d in %s", seed, len(h.Units()), len(mends), bodyOf(contents...))
		}
		got, err := h.Edit(nil, mends)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := answered(got); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if n := strings.Count(string(got), "no to u"); n != withheld {
			t.Fatalf("seed %d: %d of %d refusals in %s", seed, n, withheld, got)
		}
		for unit, m := range mends {
			for n := range m.Rounds[0].Calls {
				if k := strings.Count(string(got), fmt.Sprintf(`"p":"u%dn%d"`, unit, n)); k != 1 {
					t.Fatalf("seed %d: call %d of answer %d stands %d times in %s", seed, n, unit, k, got)
				}
			}
		}
		long, err := histOf(bodyOf(append(slices.Clone(contents), model(`{"text":"more"}`), user)...))
		if err != nil {
			t.Fatal(err)
		}
		again, err := long.Edit(nil, mends)
		if err != nil || !strings.HasPrefix(string(again), strings.TrimSuffix(string(got), `], "tools":[]}`)) {
			t.Fatalf("seed %d: in a longer conversation it is\n%s\nand was\n%s (%v)", seed, again, got, err)
		}
	}
}

// FuzzHistory reads any request: nothing panics, and what can be read can be
// mended into what can be read again.
func FuzzHistory(f *testing.F) {
	f.Add([]byte(bodyOf(user, model(`{"text":"I run."}`, listed), results(result("ls", "")))), true)
	f.Add([]byte(bodyOf(user, model(`{"text":"no"}`), user)), false)
	f.Add([]byte(`{"contents":{"parts":{"text":"x"}},"toolConfig":{"functionCallingConfig":{"mode":"ANY"}}}`), false)
	f.Fuzz(func(t *testing.T, body []byte, edited bool) {
		req, err := reqOf(string(body))
		if err != nil {
			return
		}
		round := roundOf(map[int]string{0: "no"}, signed)
		h, err := req.History()
		if err != nil {
			return
		}
		for i := range h.Units() {
			h.Shown(i)
			h.Last(i)
			h.All(i)
			got, err := h.Edit(nil, map[int]inspect.Mend{i: {Rounds: []inspect.Round{round}, Edited: edited, Notices: []string{"no"}, Unbind: edited}})
			if err != nil {
				continue
			}
			if _, err := histOf(string(got)); err != nil {
				t.Fatalf("%v in %s", err, got)
			}
		}
		h.Task()
		if got, err := req.Resume([]inspect.Round{round}); err == nil {
			if _, err := histOf(string(got)); err != nil {
				t.Fatalf("%v in %s", err, got)
			}
		}
	})
}
