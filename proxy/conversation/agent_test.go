package conversation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode"
)

// agent is a client with a history of its own.
type agent struct {
	plan   plan
	name   string // of its turns
	tenant string // as the model knows it
	key    string // its credential
	// session is what the conversation is called in headers.
	session string
	rand    *rand.Rand

	history []entry
	turn    int  // next turn of the user, by name
	left    int  // turns of the user still to come
	loop    bool // results are to be sent
	asked   int  // requests in this turn

	thread string // id of the answer that a thread goes on behind, "" to begin one

	before []string // messages of the provider's last request, in one form
	broke  bool     // the client itself has changed what it sent before
	forgot bool     // the client has dropped thinking that it sent before
}

// entry is one part of a history: words of a user, or an answer with the
// results of its calls.
type entry struct {
	words string
	unit  *unit
}

// unit is an answer as the agent was shown it, and how the agent sends it back.
type unit struct {
	blocks []block
	rounds []round // what the model said
	split  int     // 0 for one message
	order  []int   // of the results
	bare   bool    // without thinking
	salt   string  // tells the results of conversations apart
	// loose says that what stood before it was replaced and that no long id
	// of a call shows where it belongs: it may stand as it was shown.
	loose bool
}

func (u *unit) calls() []block {
	var out []block
	for _, b := range u.blocks {
		if b.kind == "call" {
			out = append(out, b)
		}
	}
	return out
}

// agents counts all agents, so that each has a session of its own.
var agents atomic.Int64

func newAgent(p plan, name, tenant, key string, turns int) *agent {
	return &agent{plan: p, name: name, tenant: tenant, key: key, left: turns, rand: p.rand("agent " + name),
		session: fmt.Sprintf("%s-%s-%d-%d", name, tenant, p.seed, agents.Add(1))}
}

func (a *agent) done() bool { return a.left == 0 && !a.loop }

// prompt goes on with the user's next turn, if results are not due.
func (a *agent) prompt(note func(string, ...any)) {
	// What is drawn does not depend on the features.
	r := a.rand
	compact, fork, cut, words := r.Float64() < 0.4, r.Float64() < 0.4, r.Float64(), phrase(r)
	if a.loop {
		return
	}
	f := a.plan.f
	a.left--
	a.asked = 0
	switch {
	case f.has(forks) && fork && len(a.history) > 0:
		var starts []int
		for i, e := range a.history {
			if e.unit == nil && i > 0 {
				starts = append(starts, i)
			}
		}
		if len(starts) > 0 {
			at := starts[int(cut*float64(len(starts)))]
			note("the client goes back to entry %d of %d", at, len(a.history))
			a.history, a.broke = slices.Clone(a.history[:at]), true
			if a.plan.form == threads {
				a.replay()
			}
		}
	case f.has(compacts) && compact && len(a.history) > 2:
		a.compact(cut, note)
	}
	if a.broke {
		a.thread = ""
	}
	if f.has(forgets) {
		for _, e := range a.history {
			if e.unit != nil && !e.unit.bare {
				e.unit.bare, a.forgot = true, true
			}
		}
	}
	words = fmt.Sprintf("[%s%d] %s", a.name, a.turn, words)
	a.turn++
	if n := len(a.history); n > 0 && a.history[n-1].unit == nil {
		a.history[n-1].words += "\n" + words // nothing but the summary was kept
		return
	}
	a.history = append(a.history, entry{words: words})
}

// replay marks what the provider has not got as one history before: nothing
// but the calls before it binds an answer to its place then.
func (a *agent) replay() {
	var before *unit
	for i := range a.history {
		if e := &a.history[i]; e.unit != nil {
			u := *e.unit
			bound := before != nil && before.anchored()
			u.loose = u.loose || !u.anchored() && !bound
			e.unit, before = &u, &u
		}
	}
}

// compact puts a summary in the place of the history up to some answer. No
// client keeps thinking whose ground is gone.
func (a *agent) compact(cut float64, note func(string, ...any)) {
	var units []int
	for i, e := range a.history {
		if e.unit != nil {
			units = append(units, i)
		}
	}
	if len(units) == 0 {
		return
	}
	keep := len(a.history)
	if k := int(cut * float64(len(units)+1)); k < len(units) {
		keep = units[k]
	}
	note("the client replaces entries 0 to %d of %d with a summary", keep-1, len(a.history))
	kept := []entry{{words: fmt.Sprintf("Summary of what was: %d entries.", keep)}}
	var before *unit
	after := 0
	for _, e := range a.history[keep:] {
		if e.unit != nil {
			u := *e.unit
			u.bare = true
			// What binds a unit to its place, if no call of its own: what stands
			// before it, the calls before it, or the session with the exchange
			// before it, whose message is the summary for the second unit. In a
			// thread nobody but the provider saw that.
			exchange := after > 1 && a.plan.form != threads && a.plan.f.has(sessions)
			bound := before != nil && (exchange || before.anchored())
			u.loose = u.loose || !u.anchored() && !bound
			e.unit, before = &u, &u
			after++
		}
		kept = append(kept, e)
	}
	a.history, a.broke = kept, true
}

// anchored tells whether a call that the agent was shown has a long id.
func (u *unit) anchored() bool {
	for _, c := range u.calls() {
		end := strings.LastIndexFunc(c.id, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		if len(c.id)-end-1 >= 8 {
			return true
		}
	}
	return false
}

// shown takes an answer into the history.
func (a *agent) shown(blocks []block, rounds []round) {
	r := a.rand
	split, style, perm := r.IntN(8), r.IntN(4), r.Perm(16)
	u := &unit{blocks: blocks, rounds: rounds, salt: strconv.FormatUint(a.plan.seed, 36)}
	f := a.plan.f
	for i := range u.blocks {
		b := &u.blocks[i]
		switch {
		case b.kind == "text" && f.has(trims):
			b.text = strings.TrimSpace(b.text)
		case b.kind == "text" && f.has(endTrims):
			b.text = strings.TrimRightFunc(b.text, unicode.IsSpace)
		case b.kind == "call" && !b.custom && f.has(encodes):
			b.text = reencode(b.text, style, a.plan.form == chat || !f.has(thinks))
		}
	}
	if f.has(splits) && len(u.blocks) > 1 {
		u.split = 1 + split%(len(u.blocks)-1)
		if a.plan.form == chat { // results stand behind one message with all calls
			u.split = slices.IndexFunc(u.blocks, func(b block) bool { return b.kind == "call" })
			if u.split < 0 || !slices.ContainsFunc(u.blocks[:u.split], func(b block) bool { return b.kind == "text" }) {
				u.split = 0 // thinking alone is no message
			}
		}
	}
	calls := u.calls()
	u.order = make([]int, len(calls))
	for i := range u.order {
		u.order[i] = i
	}
	if f.has(shuffles) {
		u.order = u.order[:0]
		for _, i := range perm {
			if i < len(calls) {
				u.order = append(u.order, i)
			}
		}
	}
	a.history = append(a.history, entry{unit: u})
	a.loop = len(calls) > 0
}

// result is what a call gave. No other conversation has the same.
func (u *unit) result(c block) string {
	return u.salt + " ran " + strings.Join(tagForm.FindAllString(c.text, 1), "") + "\n" + strconv.Itoa(len(c.name)) + " lines"
}

// reencode writes JSON anew: the order of keys stays, spacing, escapes and, if
// numbers is set, the form of numbers change.
func reencode(raw string, style int, numbers bool) string {
	dec := json.NewDecoder(strings.NewReader(raw))
	dec.UseNumber()
	var b strings.Builder
	var value func(tok json.Token)
	next := func() json.Token {
		tok, err := dec.Token()
		if err != nil {
			panic(err) // readAnswer has found it to be valid
		}
		return tok
	}
	comma, colon := ",", ":"
	if style&1 > 0 {
		comma, colon = ", ", ": "
	}
	value = func(tok json.Token) {
		switch tok := tok.(type) {
		case json.Delim:
			b.WriteString(tok.String())
			for i := 0; dec.More(); i++ {
				if i > 0 {
					b.WriteString(comma)
				}
				if tok == '{' {
					value(next())
					b.WriteString(colon)
				}
				value(next())
			}
			b.WriteString(next().(json.Delim).String())
		case string:
			s := quote(tok)
			if style&2 > 0 {
				s = strconv.QuoteToASCII(tok)
				if strings.Contains(s, `\x`) || strings.Contains(s, `\U`) || strings.Contains(s, `\a`) {
					s = quote(tok)
				}
			}
			b.WriteString(s)
		case json.Number:
			f, err := tok.Float64()
			if s := strconv.FormatFloat(f, 'f', -1, 64); err == nil && numbers {
				b.WriteString(s)
				return
			}
			b.WriteString(tok.String())
		case nil:
			b.WriteString("null")
		default:
			fmt.Fprint(&b, tok)
		}
	}
	value(next())
	return b.String()
}

// quote is a JSON string without escapes that are not needed.
func quote(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // strings can always be written
	}
	return strings.TrimSuffix(b.String(), "\n")
}
