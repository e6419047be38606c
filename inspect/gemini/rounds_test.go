package gemini

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"callgate/inspect"
	"callgate/inspect/toolcall"
)

func TestWhatIsToldCanBeReadAgain(t *testing.T) {
	for raw, want := range map[string]string{
		`{"text":"x","thought":true}`: `{"text":"x","thought":true}`,
		`{"te\u0078t":""}`:            `{}`,
		`{"Text":"","functionCall":{"name":"sh","Name":"","args":{"name":1}},"thought_signature":"","thoughtSignature":"c2ln","x":null}`: `{"functionCall":{"name":"sh","args":{"name":1}},"thoughtSignature":"c2ln","x":null}`,
	} {
		if got := string(readable([]byte(raw))); got != want {
			t.Errorf("%s becomes %s, want %s", raw, got, want)
		}
	}
}

// piece is a part of a made-up round.
type piece struct {
	part   string
	word   string // of a call, which no other has
	ruling inspect.Ruling
	faulty bool
	alone  bool // it stands in a chunk of its own
}

// madeRound makes up a round out of bytes: what a provider may send.
func madeRound(b []byte, n *int) (list []piece) {
	for _, c := range b {
		p := piece{alone: c&64 != 0}
		switch c % 8 {
		case 0, 1:
			p.part = fmt.Sprintf(`{"text":"t%d\n\u00e9 "}`, c)
		case 2:
			p.part = `{"text":"thought","thought":true}`
		case 3, 4, 5:
			p.word = fmt.Sprintf("zq%dx", *n)
			*n++
			id, sig := "", ""
			if c&8 != 0 {
				id = `"id":"` + p.word + `",`
			}
			if c%8 == 4 {
				sig = `,"thoughtSignature":"` + fmt.Sprintf("c2ln%d", *n) + `"`
			}
			args := `{"command":"in-` + p.word + `"}`
			if c&128 != 0 && c&16 != 0 {
				args, p.faulty = `["`+p.word+`"]`, true
			}
			p.part = `{"functionCall":{` + id + `"name":"sh","args":` + args + `}` + sig + `}`
			p.ruling = inspect.Ruling{Release: c&48 == 48, Refusal: fmt.Sprint("no to ", *n)}
		case 6:
			p.part = `{"text":""}`
		case 7:
			p.part = `{"text":"","thoughtSignature":"dGV4dA=="}`
		}
		list = append(list, p)
	}
	return list
}

// written writes a round in one of the three forms.
func written(round []piece, n int, form form) (body string, calls []piece) {
	var groups [][]string
	for _, p := range round {
		if len(groups) == 0 || p.alone {
			groups = append(groups, nil)
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], p.part)
		if p.word != "" {
			calls = append(calls, p)
		}
	}
	if len(groups) == 0 {
		groups = [][]string{{`{"text":""}`}}
	}
	if form == formDocument {
		groups = [][]string{slices.Concat(groups...)}
	}
	var all []string
	for i, g := range groups {
		finish := ""
		if i == len(groups)-1 {
			finish = `,"finishReason":"STOP"`
		}
		all = append(all, fmt.Sprintf(`{"candidates":[{"content":{"parts":[%s],"role":"model"}%s,"index":0}],"usageMetadata":{"promptTokenCount":%d,"candidatesTokenCount":2,"totalTokenCount":9},"modelVersion":"m","responseId":"r%d"}`,
			strings.Join(g, ","), finish, 7+n, n))
	}
	switch form {
	case formEvents:
		return sse(all...), calls
	case formArray:
		return "[" + strings.Join(all, ",\n") + "]", calls
	}
	return all[0], calls
}

// FuzzRounds drives turns of several rounds in all forms, with rulings at once or
// late and signs of life anywhere: what is shown is one answer that holds the
// released calls and no word of the others, what is told makes a request, and the
// history that the agent keeps can be mended with it.
func FuzzRounds(f *testing.F) {
	for _, b := range []string{"\x00\x03", "\x01\x03\x00\x43\x01", "\x03\x03\x00\x33\x00", "\x02\x03\x04\x47\x03\x03\x03\x00", "\x00\x93\x03\x01\x00\x43\x07", "\x0b\x02\x00\x4d\x00\x35\x03\x02\x03\x02\x03"} {
		for how := range uint8(48) {
			f.Add([]byte(b), how)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, how uint8) {
		form, late, size := formEvents+form(how%3), how&4 != 0, 1+int(how>>5)*7
		ct := jsonBody
		if form == formEvents {
			ct = eventStream
		}
		req, turn := openTurn(t, Dialect{Denial: inspect.DenialRepair}, ct)
		var out []byte
		var all []piece
		var want []string
		state, ruled, found, made := inspect.More, 0, 0, 0
		take := func(step inspect.Step, err error) {
			if err != nil {
				t.Fatal(err)
			}
			out, state = step.Out, step.State
			for _, c := range step.Calls {
				if (c.Fault != toolcall.FaultNone) != all[c.Seq].faulty {
					t.Fatalf("call %d has the fault %v: %s", c.Seq, c.Fault, c.Detail)
				}
			}
			found += len(step.Calls)
		}
		rule := func() {
			for ruled < found {
				p := all[ruled]
				if p.ruling.Release && !p.faulty {
					want = append(want, p.word)
				}
				ruled++
				take(turn.Resolve(out, ruled-1, p.ruling))
			}
		}
		b = b[:min(len(b), 40)]
		for i := 0; i < 4 && (len(b) > 0 || i == 0); i++ {
			if i > 0 {
				if state != inspect.Suspended {
					break
				}
				told := turn.Told()
				again, err := req.Resume(told.Rounds)
				if err != nil {
					t.Fatalf("%v in\n%+v", err, told)
				}
				if err := answered(again); err != nil {
					t.Fatal(err)
				}
				if how&8 != 0 {
					out = turn.KeepAlive(out)
				}
				if err := turn.NextRound(headOf(ct)); err != nil {
					t.Fatal(err)
				}
				if how&16 != 0 {
					out = turn.KeepAlive(out)
				}
			}
			k := 0
			if len(b) > 0 {
				k = min(len(b), 2+int(b[0]%6))
			}
			text, calls := written(madeRound(b[:k], &made), i+1, form)
			b = b[k:]
			all = append(all, calls...)
			for rest := text; len(rest) > 0; {
				k := min(size, len(rest))
				take(turn.Feed(out, []byte(rest[:k])))
				rest = rest[k:]
				if !late {
					rule()
				}
				if how&24 == 24 && len(rest)%5 == 0 {
					out = turn.KeepAlive(out)
				}
			}
			take(turn.EndRound(out, inspect.EndClean))
			rule()
		}
		if state == inspect.Suspended {
			if ended(out) {
				t.Fatalf("an end came out of a turn that goes on:\n%s", out)
			}
			out = turn.Abandon(out, "the end")
		} else if state != inspect.Done {
			t.Fatalf("the turn is in state %d", state)
		}
		told := turn.Told()
		if err := oneAnswer(out, told); err != nil {
			t.Fatalf("%v\nin\n%s\ntold %+v", err, out, told)
		}
		for _, p := range all {
			if !slices.Contains(want, p.word) && bytes.Contains(out, []byte(p.word)) {
				t.Fatalf("%q is shown in\n%s", p.word, out)
			}
		}
		content, err := shownContent(out)
		if err != nil {
			t.Fatal(err)
		}
		var ran []string
		for _, p := range gjson.Get(content, "parts").Array() {
			if c := p.Get("functionCall.args.command").String(); c != "" {
				ran = append(ran, strings.TrimPrefix(c, "in-"))
			}
		}
		if !slices.Equal(ran, want) {
			t.Fatalf("%q are shown, want %q in\n%s", ran, want, out)
		}
		list, err := chunks(out)
		if err != nil {
			t.Fatal(err)
		}
		finishes := 0
		for _, e := range list {
			finishes += int(e.Get("candidates.#.finishReason|#").Int())
		}
		if len(list) == 0 || finishes != 1 || !list[len(list)-1].Get("candidates.0.finishReason").Exists() {
			t.Fatalf("the answer has %d ends in\n%s", finishes, out)
		}
	})
}
