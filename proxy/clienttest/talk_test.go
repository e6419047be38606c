package clienttest

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode"

	"callgate/proxy/providertest"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
)

// talk is something that a user says and what the model says to it, answer by
// answer, as the provider has it: with the results or refusals of all calls in
// between.
type talk struct {
	words  string
	rounds []round
	// ended says that callgate ends the last answer with a text of its own.
	ended bool
	// fails is what the provider gives when it is asked once more at the end.
	fails *providertest.Answer
}

type round []providertest.Item

// denied tells what becomes of a call in these tests.
func denied(c providertest.Call) bool {
	return strings.Contains(c.Args, forbidden) || strings.Contains(c.Args, dangerous)
}

// model is the model that says it. The user's words tell talks apart.
func model(talks []talk) func(providertest.Asked) (providertest.Turn, bool) {
	return func(a providertest.Asked) (providertest.Turn, bool) {
		for i, k := range talks {
			switch {
			case k.words != a.Words:
			case a.Since < len(k.rounds):
				t := providertest.Turn{Say: k.rounds[a.Since], Chunk: providertest.Whole}
				if i == 0 {
					// No two answers in a row come in like pieces, or in one coding.
					t.Chunk = []int{providertest.PerEvent, 100, providertest.Whole}[a.Since%3]
					t.Coding = []string{"", "gzip"}[a.Since%2]
				}
				return t, true
			case a.Since == len(k.rounds) && k.fails != nil:
				return providertest.Turn{Instead: k.fails}, true
			}
		}
		return providertest.Turn{}, false
	}
}

func (r round) calls() (all, left []seenCall) {
	for _, it := range r {
		if c, ok := it.(providertest.Call); ok {
			k := seenCall{c.ID, c.Name, c.Args}
			if all = append(all, k); !denied(c) {
				left = append(left, k)
			}
		}
	}
	return all, left
}

func (r round) text() string {
	var b strings.Builder
	for _, it := range r {
		if t, ok := it.(providertest.Text); ok {
			b.WriteString(string(t))
		}
	}
	return b.String()
}

func (r round) thinking() string {
	var b strings.Builder
	for _, it := range r {
		if t, ok := it.(providertest.Thinking); ok {
			b.WriteString(string(t))
		}
	}
	return b.String()
}

// turns are the answers as the agent sees them: behind a round of which no call
// is left the same answer goes on.
func (k talk) turns() (out [][]round) {
	begun := 0
	for i, r := range k.rounds {
		all, left := r.calls()
		if i == len(k.rounds)-1 || len(left) > 0 || len(all) == 0 {
			out = append(out, k.rounds[begun:i+1])
			begun = i + 1
		}
	}
	return out
}

// altered reports whether a turn is not shown as the provider gave it.
func altered(turn []round) bool {
	all, left := turn[0].calls()
	return len(turn) > 1 || len(all) > len(left)
}

// entries is what the model reads of the talk before its answer n.
func (k talk) entries(n int) []entry {
	out := []entry{{Kind: byUser, Text: k.words}}
	i := 0
	for _, turn := range k.turns() {
		for _, r := range turn {
			if i++; i > n {
				return out
			}
			all, left := r.calls()
			out = append(out, entry{Kind: byModel, Text: r.text(), Thinking: r.thinking(), Calls: all, trimmed: !altered(turn)})
			for _, c := range all {
				e := entry{Kind: ofCall, Call: c.ID, Refused: !slices.Contains(left, c)}
				if !e.Refused {
					e.Text = resultOf(c)
				}
				out = append(out, e)
			}
		}
	}
	if k.ended {
		out = append(out, entry{Kind: byModel, optional: true})
	}
	return out
}

// player lets an agent have talks, and checks everything that goes by.
type player struct {
	t      *testing.T
	g      *rig
	client agentClient
	stream bool
	conv   conversation
	tap    *tap
	// held says that signs of life may stand as texts in any answer.
	held bool
	// mine tells the player's requests to the provider from others; nil for one
	// who plays alone.
	mine func(http.Header) bool

	before []entry  // what the model has read and said so far
	wire   []string // what the provider's last request was made of
	read   int      // how much of a thread the provider was sent
}

func newPlayer(t *testing.T, g *rig, c agentClient, stream bool, hc *http.Client) *player {
	return &player{t: t, g: g, client: c, stream: stream, conv: c.open(g.base, hc, stream), tap: g.tap}
}

// requests gives what the provider was asked in this conversation.
func (p *player) requests() []providertest.Request {
	all := p.g.provider.Requests()
	if p.mine == nil {
		return all
	}
	return slices.DeleteFunc(all, func(r providertest.Request) bool { return !p.mine(r.Header) })
}

// play has one talk to its end. Between two answers of it, between is called.
func (p *player) play(k talk, between func()) {
	p.t.Helper()
	p.conv.user(k.words)
	asked := 0
	for i, turn := range k.turns() {
		if i > 0 && between != nil {
			between()
		}
		served, seen := len(p.requests()), len(p.tap.seen())
		said, err := p.conv.next(p.t.Context())
		if err != nil {
			p.t.Fatalf("%s, answer %d: %v; faults %q", k.words, i+1, err, p.g.provider.Faults())
		}
		rounds, bodies := p.requests()[served:], p.tap.seen()[seen:]
		want, last := len(turn), i == len(k.turns())-1
		if last && k.fails != nil {
			want++
		}
		if len(rounds) != want || len(bodies) != 1 {
			p.t.Fatalf("%s, answer %d: the provider was asked %d times, want %d, and the agent asked %d times; faults %q",
				k.words, i+1, len(rounds), want, len(bodies), p.g.provider.Faults())
		}
		p.shown(turn, said, bodies[0], rounds[:len(turn)], k.ended && last)
		for _, r := range rounds {
			read := p.read
			p.request(k, asked, r.Body)
			if asked++; asked > len(k.rounds) {
				p.read = read // nothing of it was taken
			}
		}
		if len(said.Calls) > 0 {
			p.conv.results(said)
		}
		if p.t.Failed() {
			p.t.Fatalf("in %q", k.words)
		}
	}
	p.before = append(p.before, k.entries(len(k.rounds))...)
	if f := p.g.provider.Faults(); f != nil {
		p.t.Errorf("%s: the provider refused %q", k.words, f)
	}
}

// shown checks an answer as the agent has it.
func (p *player) shown(turn []round, said answer, body []byte, rounds []providertest.Request, ended bool) {
	t := p.t
	t.Helper()
	var texts []string
	for _, r := range turn {
		texts = append(texts, solid(r.text()))
	}
	rest, ok := solid(said.Text), true
	switch {
	case ended:
		rest, ok = strings.CutPrefix(rest, strings.Join(texts, ""))
		ok = ok && strings.Contains(rest, "[callgate]Theanswerendshere")
	case p.held:
		var between string
		for i := 0; ok && i < len(texts); i++ {
			between, rest, ok = strings.Cut(rest, texts[i])
			ok = ok && (between == "" || strings.HasPrefix(between, "[callgate]"))
		}
		ok = ok && (rest == "" || strings.HasPrefix(rest, "[callgate]"))
	default:
		ok = rest == strings.Join(texts, "")
	}
	if !ok {
		t.Errorf("the agent was shown %q, want %q", said.Text, texts)
	}
	_, left := turn[len(turn)-1].calls()
	if d := cmp.Diff(left, said.Calls); d != "" {
		t.Errorf("calls that the agent was shown (-want +got)\n%s", d)
	}
	if want := len(left) > 0; want != slices.Contains([]string{"tool_calls", "tool_use"}, said.Finish) {
		t.Errorf("finish is %q with %d calls", said.Finish, len(said.Calls))
	}
	for _, r := range turn {
		all, left := r.calls()
		for _, c := range all {
			if h := holds(body, c.ID, "args of "+c.ID); h != nil && !slices.Contains(left, c) {
				t.Errorf("the agent was shown %q of a call that was denied", h)
			}
		}
	}
	if h := holds(body, refusalMark, "did not run"); h != nil && !ended {
		t.Errorf("the agent was shown %q of a refusal", h)
	}
	var bill cost
	for i, r := range rounds {
		c := costOf(r.Sent)
		if i == 0 {
			bill.ID = c.ID
		}
		bill.Input, bill.Output = c.Input, bill.Output+c.Output
	}
	if got := (cost{said.ID, said.Input, said.Output}); got != bill {
		t.Errorf("the agent has the id and the tokens %+v, want %+v", got, bill)
	}
	if err := envelope(p.client.messages, p.stream, body); err != nil {
		t.Errorf("%v in\n%s", err, body)
	}
	if !altered(turn) && !p.held && !bytes.Equal(body, rounds[0].Sent) {
		t.Errorf("all was allowed, and is not byte for byte the same\nsent %q\nseen %q", rounds[0].Sent, body)
	}
}

// request checks what the provider was sent for answer n of a talk.
func (p *player) request(k talk, n int, body []byte) {
	t := p.t
	t.Helper()
	got, err := readHistory(body)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Concat(p.before, k.entries(n))
	if p.client.threads && namesWhatIsHeld(body) {
		p.continued(want, got)
		return
	}
	for i := range want {
		want[i].trimmed = want[i].trimmed || p.client.trims && want[i].Kind == byModel
	}
	if d := differ(got, want); d != "" {
		t.Errorf("%s, answer %d: the model reads something else: %s", k.words, n+1, d)
	}
	for _, e := range want {
		if e.Refused {
			if n := bytes.Count(body, []byte(`"`+e.Call+`"`)); n != 2 {
				t.Errorf("the id of the denied call %s stands %d times in the request, want the call and its refusal: %s", e.Call, n, body)
			}
		}
	}
	p.goesOn(k, n, body)
	p.read = len(slices.DeleteFunc(want, func(e entry) bool { return e.Kind == byModel }))
}

// goesOn checks that a request begins with all that the one before it had.
func (p *player) goesOn(k talk, n int, body []byte) {
	p.t.Helper()
	now, err := oneForm(body)
	if err != nil {
		p.t.Fatal(err)
	}
	if p.client.trims {
		now = slices.DeleteFunc(now, func(part string) bool { return strings.Contains(part, `"thought":true`) })
	}
	for i, m := range p.wire {
		if i >= len(now) || now[i] != m {
			p.t.Errorf("%s, answer %d: part %d was\n%s\nand in the next request is\n%s", k.words, n+1, i, m, strings.Join(now[min(i, len(now)):], "\n"))
			break
		}
	}
	p.wire = now
}

// namesWhatIsHeld reports whether a request leaves what was said before to the
// provider. The first of a conversation with OpenAI does not, nor does one that
// goes on within its answer.
func namesWhatIsHeld(body []byte) bool {
	return !gjson.GetBytes(body, "input").Exists() || gjson.GetBytes(body, "previous_response_id").Exists() || gjson.GetBytes(body, "conversation").Exists()
}

// continued checks a request that holds only what is new: results, refusals and
// words. What the model has said the provider holds.
func (p *player) continued(want, got []entry) {
	p.t.Helper()
	want = slices.DeleteFunc(slices.Clone(want), func(e entry) bool { return e.Kind == byModel })
	if d := differ(got, want[p.read:]); d != "" {
		p.t.Errorf("the model reads something else: %s", d)
	}
	p.read = len(want)
}

// solid is a text without its white space.
func solid(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}

// tenMore are ten talks of all kinds, the eighth with one more denied call.
func tenMore() []talk {
	var out []talk
	for n := range 10 {
		k := talk{words: fmt.Sprintf("go on with step %d", n)}
		done := providertest.Text(fmt.Sprintf("Step %d is done.", n))
		call := func(word string) providertest.Item {
			return toolCall(fmt.Sprintf("call_9fK2xQ7b%02d", n), agentTools[n%3], word)
		}
		switch {
		case n == 7:
			k.rounds = []round{{providertest.Thinking("this one?"), call(forbidden)}, {providertest.Thinking("no"), done}}
		case n%3 == 0:
			k.rounds = []round{{done}}
		case n%3 == 1:
			k.rounds = []round{{providertest.Thinking("a step"), done}}
		default:
			k.rounds = []round{{providertest.Thinking("a step"), providertest.Text("Now "), call("echo")}, {done}}
		}
		out = append(out, k)
	}
	return out
}
