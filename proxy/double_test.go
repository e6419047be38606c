package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"callgate/gate"
	"callgate/inspect"
	"callgate/inspect/digest"
	"callgate/inspect/toolcall"
)

// lines is a dialect small enough to see through: an answer is a list of
// lines, "T text" or "C name arguments", and ends with "E". Faults of real
// wire formats cannot hide faults of the relay here.
//
// A request is the line "ask" and the conversation so far: "U text" of a user,
// "A ids" of an answer with the ids of its calls between commas, "R text" of a
// refusal.
type lines struct {
	// repair leaves nothing in the place of a withheld call, and suspends the
	// turn when none is left.
	repair bool
	// whole tells the words of calls in later requests, too.
	whole bool
}

var _ inspect.Dialect = lines{}

func (lines) Name() string { return "lines" }

func (lines) Classify(h inspect.Head) inspect.Class {
	switch {
	case h.Method == "POST" && (h.Path == "/v1/lines" || h.Path == "/v1/chat/completions" || h.Path == "/v1/messages"):
		return inspect.ClassGated
	case h.Method == "POST" && h.Path == "/v1/lines/count":
		return inspect.ClassAside
	case h.Method == "GET" && h.Path == "/v1/models":
		return inspect.ClassHarmless
	}
	return inspect.ClassUnknown
}

func (d lines) Request(h inspect.Head, b []byte) (inspect.Request, error) {
	if !bytes.HasPrefix(b, []byte("ask")) {
		return nil, fmt.Errorf("lines: the body does not begin with ask: %.20q", b)
	}
	return lineRequest{inspect.Info{Model: "m1", Lanes: 1, Stream: true, Session: h.Header.Get("X-Session")}, d, b}, nil
}

func (lines) Refuse(status int, reason string) (inspect.Head, []byte) {
	return inspect.Head{Status: status, Header: http.Header{"Content-Type": {"application/json"}}}, fmt.Appendf(nil, `{"lines":%q}`, reason)
}

type lineRequest struct {
	info inspect.Info
	d    lines
	body []byte
}

func (r lineRequest) Info() inspect.Info { return r.info }

func (r lineRequest) Open(h inspect.Head) (inspect.Turn, error) {
	if h.Header.Get("X-Unopened") != "" {
		return nil, &inspect.Error{Dialect: "lines", Reason: "it cannot be opened"}
	}
	return &lineTurn{repair: r.d.repair, whole: r.d.whole, json: strings.HasPrefix(h.Header.Get("Content-Type"), "application/json")}, nil
}

func (r lineRequest) Resume(rounds []inspect.Round) ([]byte, error) {
	return append(bytes.Clone(r.body), answers(rounds)...), nil
}

func answers(rounds []inspect.Round) (b []byte) {
	for _, r := range rounds {
		b = fmt.Appendf(b, "A %s\n", strings.Join(r.Calls, ","))
		for _, f := range r.Refusals {
			b = fmt.Appendf(b, "R %s\n", strings.ReplaceAll(f.Text, "\n", " "))
		}
	}
	return b
}

func (r lineRequest) History() (inspect.History, error) {
	if bytes.Contains(r.body, []byte("UNREADABLE")) {
		return nil, &inspect.Error{Dialect: "lines", Reason: "the history cannot be walked"}
	}
	return &lineHistory{bytes.SplitAfter(r.body, []byte("\n"))}, nil
}

// lineHistory knows the answers of a history by their calls, and nothing else.
type lineHistory struct{ lines [][]byte }

func (h *lineHistory) Units() (units []inspect.Unit) {
	for _, l := range h.lines {
		if ids, ok := bytes.CutPrefix(l, []byte("A ")); ok {
			units = append(units, inspect.Unit{Calls: strings.Split(strings.TrimSpace(string(ids)), ",")})
		}
	}
	return units
}

func (h *lineHistory) digest(i int, whole bool) digest.Digest {
	var w digest.Writer
	n := 0
	for _, l := range h.lines {
		if len(l) == 0 {
			break
		}
		if bytes.HasPrefix(l, []byte("A ")) {
			if n == i {
				break
			}
			n++
		}
		if !whole {
			w.Sum()
		}
		w.Plain(string(l))
	}
	return w.Sum()
}

func (h *lineHistory) Last(i int) digest.Digest { return h.digest(i, false) }
func (h *lineHistory) All(i int) digest.Digest  { return h.digest(i, true) }
func (h *lineHistory) Task() int                { return 0 }

func (h *lineHistory) Shown(i int) digest.Digest { return shownLines(h.Units()[i].Calls) }

func shownLines(calls []string) digest.Digest {
	var w digest.Writer
	w.Plain(strings.Join(calls, ","))
	return w.Sum()
}

func (h *lineHistory) Edit(dst []byte, mends map[int]inspect.Mend) ([]byte, error) {
	n := 0
	for _, l := range h.lines {
		if bytes.HasPrefix(l, []byte("A ")) {
			m, ok := mends[n]
			n++
			if ok {
				dst = append(dst, answers(m.Rounds)...)
				continue
			}
		}
		dst = append(dst, l...)
	}
	return dst, nil
}

type lineTurn struct {
	json   bool
	repair bool
	whole  bool
	// told is what the rounds before held; begun is where this one's calls
	// begin.
	told      []inspect.Round
	begun     int
	all       []*item // the calls of the turn
	suspended bool
	abandoned bool
	buf       []byte  // bytes of no whole line, or of the whole document
	queue     []*item // not shown yet
	calls     int
	ended     bool
	done      bool
}

type item struct {
	raw      []byte
	call     *toolcall.Call
	ruled    bool
	released bool
	refusal  string
	end      bool // the last line of an answer
}

// note keeps the call that was queued last.
func (t *lineTurn) note() { t.all = append(t.all, t.queue[len(t.queue)-1]) }

// lost reports whether the round had calls and none of the turn is left.
func (t *lineTurn) lost() bool {
	for _, c := range t.all {
		if c.released {
			return false
		}
	}
	return t.repair && !t.abandoned && len(t.all) > t.begun
}

func (t *lineTurn) NextRound(h inspect.Head) error {
	if t.json != strings.HasPrefix(h.Header.Get("Content-Type"), "application/json") || h.Header.Get("X-Unopened") != "" {
		return &inspect.Error{Dialect: "lines", Reason: "it is another form"}
	}
	t.told, t.begun = t.Told().Rounds, len(t.all)
	t.queue, t.suspended, t.ended = nil, false, false
	return nil
}

func (t *lineTurn) Told() inspect.Told {
	told := inspect.Told{Rounds: slices.Clone(t.told)}
	var r inspect.Round
	for i, c := range t.all[t.begun:] {
		r.Calls = append(r.Calls, c.call.ID)
		if t.whole {
			r.Message = append(r.Message, c.call.Args...)
		}
		if c.released {
			told.Unit.Calls = append(told.Unit.Calls, c.call.ID)
			continue
		}
		r.Refusals = append(r.Refusals, inspect.Refusal{Call: i, Text: c.refusal})
		told.Mend = t.repair
	}
	told.Rounds = append(told.Rounds, r)
	told.Mend = told.Mend || len(told.Rounds) > 1
	told.Shown = shownLines(told.Unit.Calls)
	return told
}

func (t *lineTurn) Fail(dst []byte, text string) []byte {
	t.done = true
	return append(dst, "F "+strings.ReplaceAll(text, "\n", " ")+"\n"...)
}

func (t *lineTurn) Feed(dst, p []byte) (inspect.Step, error) {
	t.buf = append(t.buf, p...)
	if t.json {
		return inspect.Step{Out: dst}, nil
	}
	return t.advance(dst)
}

func (t *lineTurn) advance(dst []byte) (inspect.Step, error) {
	var calls, hosted []toolcall.Call
	for {
		i := bytes.IndexByte(t.buf, '\n')
		if i < 0 {
			break
		}
		line := bytes.Clone(t.buf[:i+1])
		t.buf = t.buf[i+1:]
		switch line[0] {
		case 'C':
			f := strings.SplitN(strings.TrimSuffix(string(line), "\n"), " ", 3)
			c := toolcall.Call{Seq: t.calls, ID: fmt.Sprint("id", t.calls), Type: "function", Name: f[1], Args: []byte(f[2]), Text: true}
			t.calls++
			calls = append(calls, c)
			t.queue = append(t.queue, &item{raw: line, call: &c})
			t.note()
		case 'H':
			hosted = append(hosted, toolcall.Call{Name: "web_search", Args: []byte(`{}`)})
			t.queue = append(t.queue, &item{raw: line})
		case 'X':
			s := t.step(dst, calls)
			return s, &inspect.Error{Dialect: "lines", Where: "line X", Reason: "it is broken"}
		case 'P':
			panic("a fault in the dialect")
		default:
			t.queue = append(t.queue, &item{raw: line, end: line[0] == 'E'})
		}
	}
	s := t.step(dst, calls)
	s.Hosted = hosted
	return s, nil
}

func (t *lineTurn) step(dst []byte, calls []toolcall.Call) inspect.Step {
	for len(t.queue) > 0 && (t.queue[0].call == nil || t.queue[0].ruled) && !(t.queue[0].end && t.lost()) {
		dst = append(dst, t.queue[0].raw...)
		t.queue = t.queue[1:]
	}
	s := inspect.Step{Out: dst, Calls: calls, Held: len(t.buf)}
	for _, q := range t.queue {
		s.Held += len(q.raw)
	}
	switch {
	case t.ended && len(t.queue) > 0 && t.queue[0].end:
		s.State, t.suspended = inspect.Suspended, true
	case len(t.queue) > 0:
		s.State = inspect.Waiting
	case t.ended:
		s.State, t.done = inspect.Done, true
	}
	return s
}

func (t *lineTurn) Resolve(dst []byte, seq int, r inspect.Ruling) (inspect.Step, error) {
	for i := range t.queue {
		q := t.queue[i]
		if q.call == nil || q.call.Seq != seq || q.ruled {
			continue
		}
		q.ruled, q.released, q.refusal = true, r.Release, r.Refusal
		switch {
		case !r.Release && t.repair:
			q.raw = nil
		case !r.Release:
			q.raw = []byte("R " + strings.ReplaceAll(r.Refusal, "\n", " ") + "\n")
		case r.Args != nil:
			q.raw = fmt.Appendf(nil, "C %s %s\n", q.call.Name, r.Args)
		}
		return t.step(dst, nil), nil
	}
	return inspect.Step{Out: dst}, inspect.Unresolvable(seq)
}

func (t *lineTurn) EndRound(dst []byte, end inspect.End) (inspect.Step, error) {
	t.ended = true
	s := inspect.Step{Out: dst}
	if t.json {
		var err error
		if s, err = t.advance(dst); err != nil {
			return s, err
		}
	}
	if len(t.buf) > 0 {
		c := toolcall.Call{Seq: t.calls, Name: "unfinished", Fault: toolcall.FaultTruncated}
		t.calls++
		t.queue = append(t.queue, &item{call: &c})
		t.note()
		t.buf = nil
		return t.step(s.Out, append(s.Calls, c)), nil
	}
	return t.step(s.Out, s.Calls), nil
}

func (t *lineTurn) KeepAlive(dst []byte) []byte {
	if t.json {
		return append(dst, ' ')
	}
	return append(dst, "K\n"...)
}

func (t *lineTurn) Abandon(dst []byte, text string) []byte {
	t.done, t.abandoned = true, true
	return append(dst, "A "+strings.ReplaceAll(text, "\n", " ")+"\n"...)
}

func (t *lineTurn) Record() inspect.Record {
	return inspect.Record{ID: "turn", Model: "m1", Calls: t.calls, Withheld: t.withheld(), InputTokens: -1, OutputTokens: -1, Rounds: len(t.told) + 1, Billed: -1}
}

func (t *lineTurn) withheld() (n int) {
	for _, c := range t.all {
		if !c.released {
			n++
		}
	}
	return n
}

// flagger finds danger where a command says so.
type flagger struct{}

func (flagger) Detect(actions []toolcall.Action) gate.Report {
	var r gate.Report
	for i, a := range actions {
		if strings.Contains(a.Command, "danger") {
			r.Findings = append(r.Findings, gate.Finding{Rule: "test.danger", Severity: gate.Danger, Reason: "it says danger", Action: i})
		}
		if strings.Contains(a.Command, "never") {
			r.Findings = append(r.Findings, gate.Finding{Rule: "test.never", Severity: gate.Hardline, Reason: "it says never", Action: i})
		}
	}
	return r
}

func commands(c toolcall.Call, _ []toolcall.Tool) []toolcall.Action {
	return []toolcall.Action{{Kind: toolcall.KindCommand, Tool: c.Name, Known: true, Command: string(c.Args), Language: toolcall.LangShell}}
}

// asked is a question to the person of a test.
type asked struct {
	req    *gate.Request
	left   <-chan struct{}
	answer chan gate.Opinion
}

func (a asked) say(v gate.Verdict) {
	a.answer <- gate.Opinion{Verdict: v, By: "person", Reason: "so said the test"}
}

// journal is an auditor that remembers.
type journal struct {
	mu      sync.Mutex
	entries []gate.Entry
}

func (j *journal) Record(_ context.Context, e gate.Entry, _ bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, e)
	return nil
}

func (j *journal) by(who string) []gate.Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []gate.Entry
	for _, e := range j.entries {
		if e.By == who {
			out = append(out, e)
		}
	}
	return out
}

// rig is a provider, a proxy in front of it and an agent's client, joined by
// pipes in place of a network, so that it runs in a synctest bubble too.
type rig struct {
	p       *Proxy
	gate    *gate.Gate
	person  chan asked
	journal *journal
	client  *http.Client
	proxyL  *pipes
	provL   *pipes
	close   []func()
}

func newRig(t testing.TB, provider http.HandlerFunc, change ...func(*Proxy)) *rig {
	t.Helper()
	r := &rig{person: make(chan asked, 16), journal: &journal{}, proxyL: newPipes(), provL: newPipes()}
	var err error
	r.gate, err = gate.New(gate.Config{
		Detector: flagger{}, Audit: r.journal, UnknownTools: gate.Allow,
		Person: gate.ReviewerFunc(func(ctx context.Context, q *gate.Request) gate.Opinion {
			a := asked{req: q, left: gate.Left(ctx), answer: make(chan gate.Opinion, 1)}
			r.person <- a
			select {
			case o := <-a.answer:
				return o
			case <-a.left:
				return gate.Opinion{Outcome: gate.Cancelled, By: "person", Reason: "the client left"}
			case <-ctx.Done():
				return gate.Opinion{Outcome: gate.Cancelled, By: "person", Reason: "closing"}
			}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	base, _ := url.Parse("http://provider.test")
	out := &http.Transport{DialContext: r.provL.dial, DisableCompression: true}
	r.p = &Proxy{
		Upstreams: map[string]*Upstream{"main": {Name: "main", URL: base}},
		Defaults:  map[string]string{OpenAI: "main", Anthropic: "main"},
		Dialects:  []inspect.Dialect{lines{}},
		Actions:   commands, Gate: r.gate, Transport: out, Audit: r.journal,
		Principal: PrincipalKey([]byte("key")),
	}
	for _, c := range change {
		c(r.p)
	}
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	prov := &http.Server{Handler: provider, ErrorLog: quiet}
	front := &http.Server{Handler: r.p, ErrorLog: quiet}
	go prov.Serve(r.provL)
	go front.Serve(r.proxyL)
	in := &http.Transport{DialContext: r.proxyL.dial, DisableCompression: true}
	r.client = &http.Client{Transport: in, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	r.close = append(r.close, in.CloseIdleConnections, func() { front.Close() }, out.CloseIdleConnections, func() { prov.Close() }, r.gate.Close)
	return r
}

func (r *rig) end() {
	for _, f := range r.close {
		f()
	}
}

// post sends a gated request and returns the response unread.
func (r *rig) post(t testing.TB, path, body string, header ...string) *http.Response {
	t.Helper()
	return r.do(t, "POST", path, strings.NewReader(body), header...)
}

func (r *rig) do(t testing.TB, method, path string, body io.Reader, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(method, "http://gate.test"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func text(t testing.TB, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("reading the answer: %v (so far %q)", err, b)
	}
	return string(b)
}

// say answers with lines, each flushed by itself.
func say(kind string, parts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", kind)
		for _, p := range parts {
			io.WriteString(w, p)
			w.(http.Flusher).Flush()
		}
	}
}

const (
	sse    = "text/event-stream"
	asJSON = "application/json"
)

// pipes is a listener whose connections are net.Pipes.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	ended chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), ended: make(chan struct{})} }

func (l *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	a, b := net.Pipe()
	select {
	case l.conns <- b:
		return a, nil
	case <-l.ended:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	l.once.Do(func() { close(l.ended) })
	return nil
}

func (l *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
