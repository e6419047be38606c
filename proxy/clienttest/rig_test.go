package clienttest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"callgate/gate"
	"callgate/gate/person"
	"callgate/gate/store"
	"callgate/inspect"
	"callgate/inspect/anthropic"
	"callgate/inspect/gemini"
	"callgate/inspect/ollama"
	"callgate/inspect/openaichat"
	"callgate/inspect/responses"
	"callgate/inspect/toolcall"
	"callgate/proxy"
	"callgate/proxy/providertest"
	"callgate/proxy/repair"
)

// The words in a call's arguments that decide its fate in these tests.
const (
	forbidden = "FORBIDDEN" // nobody can allow it
	dangerous = "DANGEROUS" // somebody is asked
)

// markers is a detector that goes by those words.
type markers struct{}

func (markers) Detect(actions []toolcall.Action) gate.Report {
	var rep gate.Report
	for i, a := range actions {
		add := func(word, rule string, sev gate.Severity) {
			if at := strings.Index(a.Command, word); at >= 0 {
				rep.Findings = append(rep.Findings, gate.Finding{
					Rule: rule, Category: "test", Severity: sev, Reason: "it holds a word of the tests",
					Action: i, Start: at, End: at + len(word), Words: word,
				})
			}
		}
		add(forbidden, "test.forbidden", gate.Hardline)
		add(dangerous, "test.dangerous", gate.Danger)
	}
	return rep
}

// asCommands takes every call for a command with all of its arguments.
func asCommands(c toolcall.Call, _ []toolcall.Tool) []toolcall.Action {
	return []toolcall.Action{{Kind: toolcall.KindCommand, Tool: c.Name, Known: true, Command: string(c.Args), Language: toolcall.LangShell}}
}

// auditBook keeps entries in memory.
type auditBook struct {
	mu      sync.Mutex
	entries []gate.Entry
}

func (b *auditBook) Record(_ context.Context, e gate.Entry, _ bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries = append(b.entries, e)
	return nil
}

// outcomes lists how the decisions ended, in order.
func (b *auditBook) outcomes() []gate.Outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []gate.Outcome
	for _, e := range b.entries {
		out = append(out, e.Outcome)
	}
	return out
}

// setup says what a rig is made of. The zero value asks nobody.
type setup struct {
	script     providertest.Script
	sequential bool
	// model says what the model says, in place of a script.
	model    func(providertest.Asked) (providertest.Turn, bool)
	mode     gate.Mode
	person   gate.Reviewer
	hook     gate.Reviewer
	detector gate.Detector // nil stands for markers
	actions  func(toolcall.Call, []toolcall.Tool) []toolcall.Action
	// principal is the key that tells tenants apart. Nil stands for a new one,
	// or with state for one that is kept.
	principal []byte
	// keepAlive is the interval of signs of life; 0 stands for a short one
	// where a person is asked and for callgate's own elsewhere.
	keepAlive time.Duration
	// reads lets the model read its refusals: what is refused is kept in a
	// state directory, and put back into every later request.
	reads bool
	// asked gets the questions to a person, whose desk is kept in the state
	// directory.
	asked chan<- gate.Approval
	// errors makes an error of an answer in which a call is denied.
	errors bool
	// way is how the client gets here. The zero value is a base URL.
	way way
}

// kept reports whether there is a state directory.
func (s *setup) kept() bool { return s.reads || s.asked != nil }

// rig is callgate between a client and a scripted provider.
type rig struct {
	provider *providertest.Provider
	base     string // what the client takes for the provider
	tap      *tap
	audit    *auditBook
	desk     *person.Desk // where setup.asked is given

	setup setup
	at    *url.URL         // the provider
	there *httptest.Server // where it is
	here  *httptest.Server // where callgate is
	state string           // the directory, "" for none
	front atomic.Pointer[door]
	stop  func()
	spoke legs
}

// door is what callgate's listener serves.
type door struct{ http.Handler }

// client is an HTTP client whose answers the rig's tap sees.
func (g *rig) client() *http.Client { return &http.Client{Transport: g.tap} }

func newRig(t *testing.T, s setup) *rig {
	t.Helper()
	g := &rig{provider: providertest.New(s.script), audit: &auditBook{}}
	switch {
	case s.model != nil:
		g.provider = providertest.NewByContent(s.model)
	case s.sequential:
		g.provider = providertest.NewSequential(s.script)
	}
	g.setup = s
	g.open(t)
	if s.detector == nil {
		s.detector = markers{}
	}
	if s.actions == nil {
		s.actions = asCommands
	}
	if s.keepAlive == 0 && (s.person != nil || s.asked != nil) {
		s.keepAlive = 5 * time.Millisecond
	}
	if s.kept() {
		g.state = t.TempDir()
		if s.principal == nil {
			s.principal = []byte("a key that is kept")
		}
	}
	g.setup = s
	g.here = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.front.Load().ServeHTTP(w, r)
	}))
	g.start(t)
	t.Cleanup(func() { g.stop() })
	g.here.Start()
	t.Cleanup(g.here.Close)
	g.base = g.here.URL + "/scripted"
	if s.way.proxied() {
		g.base = g.at.String()
	}
	g.tap = newTap(g)
	t.Cleanup(g.tap.close)
	t.Cleanup(func() { g.spoke.check(t, s.way) })
	return g
}

// start makes callgate anew: everything but the listener, the provider and what
// is in the state directory.
func (g *rig) start(t *testing.T) {
	t.Helper()
	s := g.setup
	transport := g.egress()
	data := &proxy.Proxy{
		Upstreams: map[string]*proxy.Upstream{"scripted": {Name: "scripted", URL: g.at, AllowPrivate: true}},
		Dialects:  []inspect.Dialect{openaichat.Dialect{}, anthropic.Dialect{}, ollama.Dialect{}, gemini.Dialect{}, responses.Dialect{}},
		Actions:   s.actions,
		Denial:    proxy.Denial{Error: s.errors},
		Transport: transport,
		KeepAlive: s.keepAlive,
		Audit:     g.audit,
	}
	if s.principal != nil {
		data.Principal = proxy.PrincipalKey(s.principal)
	}
	var st *store.Store
	if g.state != "" {
		var err error
		if st, err = store.Open(t.Context(), g.state, store.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if s.asked != nil {
		g.desk = deskOn(t, st, time.Minute, s.asked)
		if err := g.desk.Recall(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.person = g.desk
	}
	if s.reads {
		book, err := repair.Open(t.Context(), st, repair.Options{Report: func(err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		data.Repairs = book
		data.Dialects = []inspect.Dialect{
			openaichat.Dialect{Denial: inspect.DenialRepair}, anthropic.Dialect{Denial: inspect.DenialRepair},
			ollama.Dialect{Denial: inspect.DenialRepair}, gemini.Dialect{Denial: inspect.DenialRepair},
			responses.Dialect{Denial: inspect.DenialRepair},
		}
	}
	decider, err := gate.New(gate.Config{
		Mode: s.mode, Detector: s.detector, Person: s.person, Hook: s.hook, Audit: g.audit, UnknownTools: gate.Allow,
	})
	if err != nil {
		t.Fatal(err)
	}
	data.Gate = decider
	g.front.Store(&door{data})
	leave := func() {}
	if s.way.proxied() {
		leave = g.forward(t, data)
	}
	g.stop = func() {
		decider.Close()
		leave()
		transport.CloseIdleConnections()
		if st == nil {
			return
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
}

// restart ends callgate and starts it again on the same state. The client must
// have all of its answers.
func (g *rig) restart(t *testing.T) {
	t.Helper()
	g.stop()
	g.tap.cut(t)
	g.start(t)
}

// lose is a restart without the state there was.
func (g *rig) lose(t *testing.T) {
	t.Helper()
	g.stop()
	g.tap.cut(t)
	g.state = t.TempDir()
	g.start(t)
}

// growing is a buffer whose growth can be waited for.
type growing struct {
	mu    sync.Mutex
	grown sync.Cond
	buf   bytes.Buffer
}

func newGrowing() *growing {
	g := &growing{}
	g.grown.L = &g.mu
	return g
}

func (g *growing) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.grown.Broadcast()
	return g.buf.Write(p)
}

func (g *growing) bytes() []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	return bytes.Clone(g.buf.Bytes())
}

// grow waits until something was added the given number of times, and gives
// what there is then. It gives what there is when the test ends first.
func (g *growing) grow(ctx context.Context, times int) []byte {
	n := len(g.bytes())
	for range times {
		n = g.beyond(ctx, n)
	}
	return g.bytes()
}

// beyond waits until there are more than n bytes, and gives how many there
// are. It gives what there is when the test ends first.
func (g *growing) beyond(ctx context.Context, n int) int {
	stop := context.AfterFunc(ctx, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.grown.Broadcast()
	})
	defer stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for ctx.Err() == nil && g.buf.Len() <= n {
		g.grown.Wait()
	}
	return g.buf.Len()
}

// tap is a transport that keeps the bodies of requests, and those of answers as
// they are read.
type tap struct {
	next   *http.Transport
	spoke  *legs
	open   *opened // nil for a base URL
	mu     sync.Mutex
	asked  [][]byte
	bodies []*growing
}

func newTap(g *rig) *tap {
	tp := &tap{next: &http.Transport{DisableCompression: true}, spoke: &g.spoke}
	if g.setup.way.proxied() {
		tp.open = g.through(tp.next)
	}
	return tp
}

func (tp *tap) close() { tp.next.CloseIdleConnections() }

// cut waits until the client has seen that its connections are gone.
func (tp *tap) cut(t *testing.T) {
	t.Helper()
	if tp.open != nil {
		tp.open.none(t)
	}
}

// RoundTrip gives the next answer a body of its own before it asks, so that
// the body of an answer that has not begun can be waited for.
func (tp *tap) RoundTrip(r *http.Request) (*http.Response, error) {
	asked, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(asked))
	seen := newGrowing()
	tp.mu.Lock()
	tp.asked = append(tp.asked, asked)
	tp.bodies = append(tp.bodies, seen)
	tp.mu.Unlock()
	res, err := tp.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	tp.spoke.client(res.Proto)
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(res.Body, seen), res.Body}
	return res, nil
}

// last is the body of the newest answer; there is one once a client has asked.
func (tp *tap) last() *growing {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return tp.bodies[len(tp.bodies)-1]
}

// seen gives the bodies of answers so far.
func (tp *tap) seen() [][]byte {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	var out [][]byte
	for _, b := range tp.bodies {
		out = append(out, b.bytes())
	}
	return out
}

// holds reports which of the words the bytes hold.
func holds(b []byte, words ...string) []string {
	var out []string
	for _, w := range words {
		if bytes.Contains(b, []byte(w)) {
			out = append(out, w)
		}
	}
	return out
}

// newDesk is a desk with a store of its own, whose questions go to asked.
func newDesk(t *testing.T, timeout time.Duration, asked chan<- gate.Approval) *person.Desk {
	t.Helper()
	st, err := store.Open(t.Context(), t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return deskOn(t, st, timeout, asked)
}

// deskOn is a desk on a store that there is.
func deskOn(t *testing.T, st *store.Store, timeout time.Duration, asked chan<- gate.Approval) *person.Desk {
	t.Helper()
	desk, err := person.New(person.Config{
		Store:   st,
		Mask:    func(s string) string { return s },
		Timeout: timeout,
		Notify: func(ctx context.Context, a gate.Approval) error {
			select {
			case asked <- a:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return desk
}
