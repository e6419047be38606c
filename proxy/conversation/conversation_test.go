package conversation

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"callgate/proxy/egress"
	"callgate/proxy/providertest"
)

// stage is a network: a front that callgate is put behind, and a provider.
type stage struct {
	front, back atomic.Pointer[http.Handler]
	url         string
	client      *http.Client
	kept        shelf
	// gate is put in the place of callgate; nil is callgate itself.
	gate http.Handler
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{}
	serve := func(at *atomic.Pointer[http.Handler]) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*at.Load()).ServeHTTP(w, r) }))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	s.url = serve(&s.front)
	back, err := url.Parse(serve(&s.back))
	if err != nil {
		t.Fatal(err)
	}
	out := egress.New(egress.Options{AllowPrivate: func(string) bool { return true }})
	in := &http.Transport{DisableCompression: true}
	t.Cleanup(out.CloseIdleConnections)
	t.Cleanup(in.CloseIdleConnections)
	s.client = &http.Client{Transport: in, Timeout: 20 * time.Second}
	s.kept = shelf{dir: t.TempDir(), provider: back, out: out}
	return s
}

// run is one conversation on a stage, with the agents that take part.
type run struct {
	plan     plan
	stage    *stage
	provider *providertest.Provider
	served   []round // what the model said, in order
	tenants  map[string]string
	log      []string
}

func (c *run) note(format string, a ...any) { c.log = append(c.log, fmt.Sprintf(format, a...)) }

// converse runs a conversation to its end. The lines are what happened, the
// error is what went wrong.
func converse(t *testing.T, s *stage, p plan, truth bool) ([]string, error) {
	c := &run{plan: p, stage: s, tenants: map[string]string{}}
	c.provider = providertest.NewByContent(func(a providertest.Asked) (providertest.Turn, bool) {
		key := a.Header.Get("X-Api-Key") + strings.TrimPrefix(a.Header.Get("Authorization"), "Bearer ")
		rd, ok := p.model(a.Words, a.Since, c.tenants[key])
		if ok {
			c.served = append(c.served, rd)
		}
		t := rd.says()
		// Most answers in one write: the pieces cost more than the rest.
		t.Chunk = []int{providertest.Whole, providertest.Whole, providertest.PerEvent, 100}[len(c.served)%4]
		return t, ok
	})
	c.provider.Name = fmt.Sprint(p.form, p.seed)
	// Who sends one answer as two messages wants them joined.
	c.provider.Alternate = !p.f.has(splits)
	var back http.Handler = c.provider
	s.back.Store(&back)
	stop := c.start(t)
	defer func() { stop() }()

	owner := fmt.Sprintf("sk-%s-%d", p.form, p.seed)
	if p.f.has(crowds) {
		owner = fmt.Sprintf("sk-%s-crowd", p.form)
	}
	agents := []*agent{newAgent(p, "main", "alpha", owner, p.turns)}
	if p.f.has(helpers) {
		agents = append(agents, newAgent(p, "helper", "alpha", owner, 2))
	}
	if p.f.has(twins) {
		agents = append(agents, newAgent(p, "main", "alpha", owner, p.turns))
	}
	if p.f.has(neighbours) {
		agents = append(agents, newAgent(p, "main", []string{"beta", "lean"}[p.seed%2], owner+"-neighbour", p.turns))
	}
	for _, a := range agents {
		c.tenants[a.key] = a.tenant
	}
	r := p.rand("order")
	for {
		// All numbers are drawn, so that fewer agents do not change the rest.
		k, again, document := r.IntN(12), r.Float64() < 0.2, r.Float64() < 0.3
		i := 0
		for ; i < len(agents) && agents[(k+i)%len(agents)].done(); i++ {
		}
		if i == len(agents) {
			return c.log, nil
		}
		if again && p.f.has(restarts) {
			c.note("callgate is started anew")
			stop()
			stop = c.start(t)
		}
		if err := c.step(agents[(k+i)%len(agents)], !document || !p.f.has(documents), truth); err != nil {
			return c.log, err
		}
	}
}

func (c *run) start(t *testing.T) func() {
	if c.stage.gate != nil {
		c.stage.front.Store(&c.stage.gate)
		return func() {}
	}
	h, stop := newGate(t, c.stage.kept)
	c.stage.front.Store(&h)
	return stop
}

// step is one request of an agent, and all that is asserted of it.
func (c *run) step(a *agent, stream, truth bool) error {
	name := a.name + " of " + a.tenant
	a.prompt(func(f string, v ...any) { c.note(name+": "+f, v...) })
	if a.asked++; a.asked > 16 {
		return fmt.Errorf("%s: the turn does not end", name)
	}
	count := a.rand.Float64() < 0.2
	path, body, head := a.request(stream)
	if count && a.plan.f.has(counts) {
		if err := c.count(a, path, body, head.Clone(), truth); err != nil {
			return fmt.Errorf("%s has its tokens counted: %w", name, err)
		}
	}
	c.note("%s asks (stream %v), %d entries, last: %s", name, stream, len(a.history), a.newest())
	served, reqs := len(c.served), len(c.provider.Requests())
	answer, err := c.ask(path, body, head)
	rounds := c.served[served:]
	for _, rd := range rounds {
		c.note("  the model says: %v", rd)
	}
	for i, r := range c.provider.Requests()[reqs:] {
		if err := c.request(a, r, i, rounds, truth); err != nil {
			return fmt.Errorf("%s, request %d of this answer: %w", name, i, err)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	blocks, err := readAnswer(a.plan.form, stream, answer)
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, answer)
	}
	var shown []string
	for _, b := range blocks {
		shown = append(shown, b.kind+" "+tagForm.FindString(b.text))
		leak := strings.Contains(b.text, marker) || truth && strings.Contains(b.text, refusalMark)
		for _, tag := range tagForm.FindAllString(b.text, -1) {
			leak = leak || !strings.HasSuffix(tag, ":any")
		}
		if leak {
			return fmt.Errorf("%s was shown a denied call or its refusal: %s", name, b.text)
		}
	}
	c.note("  shown: %s", strings.Join(shown, ", "))
	if len(rounds) == 0 {
		return fmt.Errorf("%s got an answer that the model did not give", name)
	}
	a.shown(blocks, rounds)
	if a.plan.form == threads {
		a.thread = answerID.FindStringSubmatch(string(answer))[1]
	}
	return nil
}

// count has the tokens of a request counted: its history has to be as sound.
func (c *run) count(a *agent, path, body string, head http.Header, truth bool) error {
	c.note("  its tokens are counted first")
	reqs := len(c.provider.Requests())
	body = beyondCount.ReplaceAllString(body, "")
	answer, err := c.ask(path+"/count_tokens", body, head)
	for _, r := range c.provider.Requests()[reqs:] {
		if err := c.request(a, r, 0, nil, truth); err != nil {
			return err
		}
	}
	if err == nil && !bytes.Contains(answer, []byte(`"input_tokens"`)) {
		return fmt.Errorf("the answer is %s", answer)
	}
	return err
}

// beyondCount are the members that a request for a count must not have.
var beyondCount = regexp.MustCompile(`"max_tokens":3000,"stream":(true|false),`)

// answerID finds the id of an answer of Messages: readAnswer has seen that
// there is one, and only results of calls have others.
var answerID = regexp.MustCompile(`"id": ?"(msg_[^"]+)"`)

// newest says what the agent's request ends with.
func (a *agent) newest() string {
	e := a.history[len(a.history)-1]
	if e.unit == nil {
		return fmt.Sprintf("%.30q", e.words)
	}
	return fmt.Sprintf("%d results", len(e.unit.order))
}

// request asserts what the provider got.
func (c *run) request(a *agent, r providertest.Request, i int, rounds []round, truth bool) error {
	if r.Fault != "" {
		return fmt.Errorf("the provider refuses it: %s\n%.3000s", r.Fault, r.Body)
	}
	for key, tenant := range c.tenants {
		if key != a.key && bytes.Contains(r.Body, []byte(":"+tenant)) {
			return fmt.Errorf("it holds something of tenant %s\n%.3000s", tenant, r.Body)
		}
	}
	got, err := readRequest(a.plan.form, r.Body)
	if err != nil {
		return fmt.Errorf("%w\n%.3000s", err, r.Body)
	}
	goesOn := bytes.Contains(r.Body, []byte(`"previous_message_id"`))
	// The words stand in the history by now, their answer does not.
	why := ""
	for _, want := range a.expected(a.history, rounds[:min(i, len(rounds))], truth) {
		if goesOn { // the provider has all up to the last answer
			want = want[lastAnswer(want)+1:]
		}
		w := differ(got, want)
		if w == "" {
			why = ""
			break
		}
		if why == "" {
			why = w
		}
	}
	if why != "" {
		return fmt.Errorf("%s\n%s", why, outline(got))
	}
	now, err := oneForm(r.Body)
	if err != nil {
		return err
	}
	before := a.before
	a.before = now
	switch broke, forgot := a.broke, a.forgot; {
	case broke:
		before = nil
	case forgot:
		before, now = thoughtless(before), thoughtless(now)
	}
	a.broke, a.forgot = false, false
	if a.plan.form == threads {
		return nil // what is held cannot be changed
	}
	if why := prefix(before, now); why != "" {
		return fmt.Errorf("it does not go on from the request before it: %s", why)
	}
	return nil
}

// lastAnswer is the index of the last answer, -1 without any.
func lastAnswer(list []said) int {
	i := len(list) - 1
	for i >= 0 && !list[i].answer {
		i--
	}
	return i
}

func outline(list []said) string {
	var b strings.Builder
	for i, s := range list {
		fmt.Fprintf(&b, "    %d %v\n", i, s)
	}
	return b.String()
}

func (c *run) ask(path, body string, head http.Header) ([]byte, error) {
	r, err := http.NewRequest(http.MethodPost, c.stage.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = head
	res, err := c.stage.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("the answer ends too early: %w (so far %q)", err, answer)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d: %s", res.StatusCode, answer)
	}
	return answer, nil
}

// smaller takes out of a failing conversation what it fails without.
func smaller(t *testing.T, p plan, truth bool) (plan, []string, error) {
	run := func(p plan) ([]string, error) {
		// On a stage of its own: nothing of other conversations counts.
		return converse(t, newStage(t), p, truth)
	}
	log, err := run(p)
	if err == nil {
		return p, nil, nil
	}
	for again := true; again; {
		again = false
		for _, q := range p.less() {
			if l, e := run(q); e != nil {
				p, log, err, again = q, l, e, true
				break
			}
		}
	}
	return p, log, err
}

// less gives the conversations that have one thing less.
func (p plan) less() []plan {
	var out []plan
	for n := 1; n < p.turns; n++ {
		q := p
		q.turns = n
		out = append(out, q)
	}
	for i := range featureNames {
		q := p
		q.f &^= 1 << i
		if q = q.sound(); p.f.has(1<<i) && q.f != p.f {
			out = append(out, q)
		}
	}
	return out
}

// check runs one conversation and tells of a failing one what is needed to see
// why.
func check(t *testing.T, s *stage, p plan, truth bool) bool {
	t.Helper()
	log, err := converse(t, s, p, truth)
	if err == nil {
		return true
	}
	if q, l, e := smaller(t, p, truth); e != nil {
		p, log, err = q, l, e
	} else {
		log = append([]string{"(it passes without the conversations before it)"}, log...)
	}
	t.Errorf("seed %d, %s, %d turns, with %s:\n%s\n=> %v", p.seed, p.form, p.turns, p.f, strings.Join(log, "\n"), err)
	return false
}

// oneSeed runs one conversation alone, in each form: go test -args -seed=N.
var oneSeed = flag.Uint64("seed", 0, "run the conversation of this seed alone")

func TestConversations(t *testing.T) {
	fixed := 200
	if raced {
		fixed = 20
	}
	if testing.Short() {
		fixed = 20
	}
	free := rand.Uint64()
	for _, fm := range forms {
		t.Run(string(fm), func(t *testing.T) {
			t.Parallel()
			t.Logf("the free seed is %d", free)
			s := newStage(t)
			if *oneSeed != 0 {
				check(t, s, draw(*oneSeed, fm), repaired)
				return
			}
			failed := 0
			for seed := range uint64(fixed + 1) {
				if seed == uint64(fixed) {
					seed = free
				}
				if !check(t, s, draw(seed, fm), repaired) {
					if failed++; failed == 3 {
						t.Fatal("there may be more")
					}
				}
			}
		})
	}
}

// draw is a plan that can be kept: a thread's provider holds the calls that an
// agent was not shown, and wants their results.
func draw(seed uint64, fm form) plan {
	p := newPlan(seed, fm)
	if fm == threads && !repaired {
		p.f &^= denials
	}
	return p
}
