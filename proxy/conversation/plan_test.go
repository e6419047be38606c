package conversation

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"

	"callgate/proxy/providertest"
)

// feature is something that a conversation may hold. Each can be taken out of
// a conversation without changing the others, so that a failing one can be
// made smaller.
type feature uint32

const (
	denials    feature = 1 << iota // calls that the gate denies
	bounds                         // more refusals in a row than a turn may have
	repeats                        // the same call again, right after its refusal
	thinks                         // thinking in the answers
	weakIDs                        // ids such as call_0 in place of long random ones
	customs                        // Chat: calls with free text in place of arguments
	documents                      // answers as one document, now and then
	restarts                       // callgate is started anew on what it has kept
	caching                        // a marker for the cache moves to the newest message
	endTrims                       // the client drops white space at the end of texts
	trims                          // the client drops white space around texts
	forgets                        // the client drops the thinking of former turns
	encodes                        // the client writes arguments anew
	splits                         // the client makes two messages of one answer
	shuffles                       // results stand in another order than the calls
	compacts                       // old history becomes a summary
	forks                          // the client goes back and on in another way
	helpers                        // another conversation of the same tenant goes on in between
	twins                          // the same conversation a second time, same tenant
	neighbours                     // another tenant has the same conversation
	crowds                         // the tenant is that of other conversations too
	counts                         // Messages: the client has its tokens counted
	sessions                       // the client names the conversation in a header
)

var featureNames = strings.Fields(`denials bounds repeats thinks weakIDs customs documents restarts caching endTrims
	trims forgets encodes splits shuffles compacts forks helpers twins neighbours crowds counts sessions`)

func (f feature) has(g feature) bool { return f&g != 0 }

func (f feature) String() string {
	var out []string
	for i, n := range featureNames {
		if f.has(1 << i) {
			out = append(out, n)
		}
	}
	return strings.Join(out, " ")
}

// form is the wire format that a conversation has.
type form string

const (
	chat     form = "chat"
	messages form = "messages"
	threads  form = "threads" // Messages whose history the provider holds
)

var forms = []form{chat, messages, threads}

// plan is a conversation: everything in it follows from the fields.
type plan struct {
	seed  uint64
	form  form
	f     feature
	turns int // of the user
}

// newPlan draws a conversation.
func newPlan(seed uint64, fm form) plan {
	p := plan{seed: seed, form: fm}
	r := p.rand("plan")
	p.turns = 1 + r.IntN(6)
	odds := map[feature]float64{
		denials: 0.9, bounds: 0.3, repeats: 0.3, thinks: 0.6, weakIDs: 0.4, customs: 0.3, documents: 0.7, restarts: 0.5,
		caching: 0.5, endTrims: 0.3, trims: 0.2, forgets: 0.4, encodes: 0.4, splits: 0.25, shuffles: 0.3, compacts: 0.3,
		forks: 0.3, helpers: 0.3, twins: 0.15, neighbours: 0.35, crowds: 0.25, counts: 0.4, sessions: 0.5,
	}
	for i := range featureNames {
		if r.Float64() < odds[1<<i] {
			p.f |= 1 << i
		}
	}
	return p.sound()
}

// sound takes out what no client does, because the provider would refuse it
// with or without anything in between: thinking is bound to what stands before
// it, so who keeps it changes nothing there.
func (p plan) sound() plan {
	if p.f.has(twins) {
		p.f &^= documents // the same answer is written in another way there
	}
	if p.form == chat {
		p.f &^= counts
	} else {
		p.f &^= customs
		if p.form == threads {
			p.f &^= thinks | counts // not supported there
		}
		if p.f.has(thinks) {
			p.f &^= trims | endTrims
		}
	}
	return p
}

// rand gives a source of its own for each part of the conversation, so that
// the parts do not depend on each other.
func (p plan) rand(part string) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, p.form, part)
	return rand.New(rand.NewPCG(p.seed, h.Sum64()))
}

// round is one answer of the model.
type round struct {
	thinking string
	text     string
	calls    []call
	// between is text that stands behind the first call (Messages).
	between string
}

// call is one call in it.
type call struct {
	id, name, args string
	custom         bool
	denied         bool
	tag            string // stands in args and in no other call's
}

// marker in the arguments of a call is what the gate denies.
const marker = "FORBIDDEN"

// tagForm finds the tags of calls. The last part is the tenant's whose call
// was denied, any for calls that are allowed.
var tagForm = regexp.MustCompile(`T:[a-z]+[0-9]+\.[0-9]+\.[0-9]+:[a-z]+`)

// keyForm finds the name of a turn in the words of a user.
var keyForm = regexp.MustCompile(`\[([a-z]+)([0-9]+)\]`)

// turnKey is the last name of a turn in a text.
func turnKey(words string) (name string, n int, ok bool) {
	all := keyForm.FindAllStringSubmatch(words, -1)
	if len(all) == 0 {
		return "", 0, false
	}
	last := all[len(all)-1]
	n, err := strconv.Atoi(last[2])
	return last[1], n, err == nil
}

// model is what the model says in a turn: answer number since behind the
// user's words, to that tenant. Its calls are the same for all tenants but for
// the denied ones, of which an agent sees nothing: these name the tenant, and
// a tenant called lean does not get those that stand beside allowed calls.
func (p plan) model(words string, since int, tenant string) (round, bool) {
	name, n, ok := turnKey(words)
	if !ok {
		return round{}, false
	}
	key := name + strconv.Itoa(n)
	rounds := p.turn(key, n)
	if since >= len(rounds) {
		return round{text: fmt.Sprintf("Enough of %s.%d.", key, since)}, true
	}
	rd := rounds[since]
	calls := make([]call, 0, len(rd.calls))
	left := false
	for _, c := range rd.calls {
		left = left || !c.denied
	}
	for _, c := range rd.calls {
		if c.denied {
			if left && tenant == "lean" {
				continue
			}
			c.args, c.tag = strings.ReplaceAll(c.args, "TENANT", tenant), strings.ReplaceAll(c.tag, "TENANT", tenant)
		}
		calls = append(calls, c)
	}
	rd.calls = calls
	return rd, true
}

// turn gives the answers of one turn of the user.
func (p plan) turn(key string, n int) []round {
	r := p.rand("turn " + key)
	count := 1 + r.IntN(5)
	bound := r.Float64() < 0.2 && p.f.has(bounds) && p.f.has(denials)
	if bound {
		count = 7 + r.IntN(3)
	}
	var out []round
	ids := 0
	denied := false // the answer before had no call left
	for i := range count {
		var rd round
		// What is drawn does not depend on the features.
		text, thought, said := phrase(r), phrase(r), r.Float64() < 0.7
		thinking := r.Float64() < 0.6
		calls, fate, again, between := 1+r.IntN(4), r.Float64(), r.Float64() < 0.3, phrase(r)
		inner := r.Float64() < 0.2
		if thinking && p.f.has(thinks) {
			rd.thinking = thought
		}
		if i == count-1 {
			rd.text = text
			out = append(out, rd)
			break
		}
		if said {
			rd.text = text
		}
		all := fate < 0.25 || denied && fate < 0.5 || bound
		if inner && p.form != chat {
			rd.between = between
		}
		some := 0
		for k := range calls {
			c := p.call(r, key, n, &ids, i, k)
			deny := all || fate > 0.55 && r.Float64() < 0.5
			if deny && p.f.has(denials) {
				c.denied = true
				c.tag = strings.Replace(c.tag, ":any", ":TENANT", 1)
				c.args = strings.Replace(strings.Replace(c.args, ":any", ":TENANT", 1), "do", marker, 1)
				some++
			}
			rd.calls = append(rd.calls, c)
		}
		if again && denied && p.f.has(repeats) {
			// Only what was refused is tried again.
			was := out[i-1].calls[0]
			was.id = rd.calls[0].id
			rd.calls, some = []call{was}, 1
		}
		denied = some == len(rd.calls)
		out = append(out, rd)
	}
	return out
}

// call draws one call.
func (p plan) call(r *rand.Rand, key string, n int, ids *int, round, k int) call {
	c := call{name: []string{"bash", "write_file"}[r.IntN(2)], tag: fmt.Sprintf("T:%s.%d.%d:any", key, round, k)}
	long := strconv.FormatUint(r.Uint64(), 36) + strconv.FormatUint(r.Uint64(), 36)
	custom := r.Float64() < 0.3 && p.f.has(customs)
	c.args = arguments(r, c.tag)
	if free := phrase(r); custom {
		c.custom, c.name, c.args = true, "patch", "do "+c.tag+"\n"+free
	}
	switch {
	case p.form != chat && p.f.has(weakIDs):
		// Ids are unique in a conversation there, and the same in the next one.
		c.id = fmt.Sprintf("call_%d", 50*n+*ids)
	case p.form != chat:
		c.id = "toolu_01" + long
	case p.f.has(weakIDs) && p.seed%2 == 0:
		c.id = fmt.Sprintf("call_%d", k)
	case p.f.has(weakIDs):
		c.id = fmt.Sprintf("functions.%s:%d", c.name, k)
	default:
		c.id = "call_" + long
	}
	*ids++
	return c
}

var vocabulary = []string{"look", "at", "the", "größe", "of", "\"src\"", "a\\b", "<tag>", "and", "then", "日本", "🙂", "`ls`", "#", "it's", "done.", "/tmp/x", "&"}

// phrase draws a text that no other text is likely to equal.
func phrase(r *rand.Rand) string {
	var b strings.Builder
	if r.Float64() < 0.1 {
		b.WriteString("\n\n")
	}
	fmt.Fprintf(&b, "%x", r.Uint32())
	for range r.IntN(8) {
		b.WriteString([]string{" ", "  ", "\n", " "}[r.IntN(4)] + vocabulary[r.IntN(len(vocabulary))])
	}
	b.WriteString([]string{"", "", ".", "\n", " "}[r.IntN(5)])
	return b.String()
}

// arguments draws a JSON object that holds the tag, with numbers in forms that
// decoders write anew.
func arguments(r *rand.Rand, tag string) string {
	members := []string{`"command":` + quote("do "+tag+" "+vocabulary[r.IntN(len(vocabulary))])}
	for _, m := range []string{`"n":1.50`, `"big":1e3`, `"flag":true`, `"path":"\/a\/\u00fc"`, `"opts":{"b":[1,2.0,null,"x y"],"a":{}}`, `"":""`} {
		if r.Float64() < 0.3 {
			members = append(members, m)
		}
	}
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	sep := []string{",", ", ", ",\n  "}[r.IntN(3)]
	return "{" + strings.Join(members, sep) + "}"
}

// says gives the round as a turn of the provider.
func (rd round) says() providertest.Turn {
	var t providertest.Turn
	if rd.thinking != "" {
		t.Say = append(t.Say, providertest.Thinking(rd.thinking))
	}
	if rd.text != "" {
		t.Say = append(t.Say, providertest.Text(rd.text))
	}
	for i, c := range rd.calls {
		fm := providertest.Function
		if c.custom {
			fm = providertest.Custom
		}
		t.Say = append(t.Say, providertest.Call{ID: c.id, Name: c.name, Args: c.args, Form: fm})
		if i == 0 && rd.between != "" {
			t.Say = append(t.Say, providertest.Text(rd.between))
		}
	}
	return t
}

// String is the round in a transcript.
func (rd round) String() string {
	var out []string
	if rd.thinking != "" {
		out = append(out, "thinking")
	}
	if rd.text+rd.between != "" {
		out = append(out, "text")
	}
	for _, c := range rd.calls {
		word := "call "
		if c.denied {
			word = "DENIED "
		}
		out = append(out, word+c.tag+" ("+c.id+")")
	}
	return strings.Join(out, ", ")
}
