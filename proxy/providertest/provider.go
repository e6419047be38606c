// Package providertest is a model provider for tests and demonstrations: an
// http.Handler that speaks OpenAI Chat Completions and Responses, Anthropic
// Messages, Ollama's chat and Gemini's generateContent, says what a script tells it, and is as
// strict about requests as the real providers are. A history that a real provider
// would refuse is refused here with the provider's own kind of error, and the
// reason is recorded.
//
// The rules are those of the providers' references and of the errors that they
// are known to answer with; where only an SDK shows a rule, as with the threads
// of Messages, the place says so.
//
// It must not know anything of callgate: what it accepts is the measure of
// what callgate and its clients make of a conversation.
package providertest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// maxBody is the largest request that is read, in bytes after decoding.
const maxBody = 32 << 20

// Provider is a scripted provider. It is safe for concurrent use. Its fields
// are set before the first request.
type Provider struct {
	// Name goes into the ids of answers, so that several providers do not give
	// the same ones.
	Name string
	// Alternate refuses two messages of one role in a row, as servers do whose
	// templates take turns of user and assistant strictly. New sets it.
	// Providers that join such messages, as Anthropic does, are had without.
	Alternate bool
	// MaxHistory is how many bytes of request, with what a thread holds, the
	// model can read; 0 is no bound.
	MaxHistory int

	next func(Asked) (Turn, int, error)

	mu       sync.Mutex
	requests []*Request
	served   int
	// issued are the thinking blocks that were sent, by signature; thought are
	// the signatures of the turns that a call id came from, each in order: two
	// customers, or two conversations, may have calls with one id.
	issued  map[string]thinkingIssued
	thought map[string][][]string
	threads map[string]*thread // by the id of the answer to be continued
	held    *responsesHeld
}

// New returns a provider that takes its next turn by the progress of the
// conversation: the first for a history without an answer, the second for one
// with one answer, and so on. The same request repeated gets the same turn.
//
// Answers that the client has never seen count too, if they stand in the
// history: who asks again with an answer and its results gets the next turn.
func New(script Script) *Provider {
	return newProvider(func(a Asked) (Turn, int, error) {
		t, err := script.turn(a.Answers)
		return t, a.Answers, err
	})
}

func newProvider(next func(Asked) (Turn, int, error)) *Provider {
	return &Provider{
		Alternate: true,
		next:      next,
		issued:    map[string]thinkingIssued{},
		thought:   map[string][][]string{},
		threads:   map[string]*thread{},
		held:      newResponsesHeld(),
	}
}

// NewSequential returns a provider that gives its turns one after the other,
// whatever the history says.
func NewSequential(script Script) *Provider {
	p := New(nil)
	p.next = func(Asked) (Turn, int, error) {
		t, err := script.turn(p.served)
		return t, p.served, err
	}
	return p
}

// NewByContent returns a provider that takes its turn by what the request
// holds, for conversations that fork, shrink or run side by side. A request
// for which next has no turn is refused. The calls of next come one after the
// other; it may not use the Provider.
func NewByContent(next func(Asked) (Turn, bool)) *Provider {
	return newProvider(func(a Asked) (Turn, int, error) {
		t, ok := next(a)
		if !ok {
			return t, -1, badf("the script has no turn behind %.80q and %d answers", a.Words, a.Since)
		}
		return t, a.Answers, nil
	})
}

// Asked is a request that was found to be sound, as a script by content sees
// it.
type Asked struct {
	Header http.Header
	// Body is the request's body after content decoding.
	Body []byte
	// Answers is the number of answers in the history, Since the number of
	// those behind Words: what a user last said, results of calls left out.
	// Messages of the assistant in a row are one answer. What a thread holds
	// counts.
	Answers, Since int
	Words          string
}

// turn gives a turn by its number.
func (s Script) turn(n int) (Turn, error) {
	if n >= len(s) {
		return Turn{}, badf("the script has %d turns and turn %d was asked for", len(s), n+1)
	}
	return s[n], nil
}

// Request is one request and what was answered.
type Request struct {
	Method, Path, Query string
	Header              http.Header
	// Body is the request's body after content decoding.
	Body []byte
	// Turn is the index of the turn that was given, -1 when none was; with a
	// script by content, how many answers stood before it.
	Turn int
	// Status is the answer's status, and Sent the bytes of its body before
	// content coding, as far as they were written.
	Status int
	Sent   []byte
	// Fault says why the request was refused, "" when it was not.
	Fault string
}

// Requests returns what was asked so far, in order. An answer that is still
// being written is there as far as it was written.
func (p *Provider) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Request, len(p.requests))
	for i, r := range p.requests {
		out[i] = *r
		out[i].Sent = bytes.Clone(r.Sent)
	}
	return out
}

// Faults returns the reasons of all refusals so far, in order. It is empty
// when every request was one that a real provider would take.
func (p *Provider) Faults() []string {
	var out []string
	for _, r := range p.Requests() {
		if r.Fault != "" {
			out = append(out, r.Fault)
		}
	}
	return out
}

// fault is why a request is refused.
type fault struct {
	status int
	// kind is the error's type in the wire's word, "" for the usual one.
	kind   string
	reason string
	// code is the error's own name, "" for none, and param the member of the
	// request that it concerns (Chat Completions).
	code, param string
}

// Error gives the reason.
func (f *fault) Error() string { return f.reason }

func badf(format string, a ...any) error {
	return &fault{status: http.StatusBadRequest, reason: fmt.Sprintf(format, a...)}
}

// wire is one of the formats.
type wire interface {
	// check reads a request strictly and says what an answer needs to know.
	check(p *Provider, h http.Header, body []byte) (asked, error)
	// events gives the answer as events of a stream, document as one document.
	events(p *Provider, a asked, t Turn) [][]byte
	document(p *Provider, a asked, t Turn) []byte
	// failure is the format's error body.
	failure(f *fault) []byte
	// overflow is the refusal of a request that is longer than the model can
	// read.
	overflow(tokens, limit int) error
}

// asked is what a checked request asks for.
type asked struct {
	model   string
	stream  bool
	usage   bool // Chat Completions: a usage chunk at the end
	choices int
	progress
	number int    // number of the request, from 0
	name   string // Provider.Name
	prefix string // Messages: digest of the history that thinking is bound to
	count  bool   // Messages, Gemini: the tokens of the request are asked for, and no answer
	size   int    // bytes that the model has to read
	// keep is the thread that the answer is kept in, nil for none, and
	// continues the one that it goes on with.
	keep, continues *thread
	responses       *responsesAsked // of that format
}

// progress is where a conversation stands: see Asked.
type progress struct {
	answers, since int
	words          string
}

// says notes words of a user.
func (g *progress) says(words string) {
	g.words, g.since = words, 0
}

// answer notes an answer.
func (g *progress) answer() {
	g.answers++
	g.since++
}

// tokens is about how many tokens n bytes are.
func tokens(n int) int { return n/4 + 1 }

// ServeHTTP answers one request.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := &Request{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Header: r.Header.Clone(), Turn: -1}
	p.mu.Lock()
	number := len(p.requests)
	p.requests = append(p.requests, rec)
	p.mu.Unlock()

	if p.fetch(w, r, rec) {
		return
	}
	wr := wireOf(r.URL)
	a, t, err := p.ask(wr, r, rec, number)
	if err != nil {
		p.refuse(w, wr, rec, err)
		return
	}
	if a.count {
		p.counted(w, wr, rec, a)
		return
	}
	p.answer(w, r, wr, rec, a, t)
}

// counted tells how many tokens a request has.
func (p *Provider) counted(w http.ResponseWriter, wr wire, rec *Request, a asked) {
	key := "input_tokens"
	if _, ok := wr.(gemini); ok {
		key = "totalTokens"
	}
	body := fmt.Appendf(nil, `{%q:%d}`, key, tokens(a.size))
	p.mu.Lock()
	rec.Status, rec.Sent = http.StatusOK, body
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

// wireOf tells the format by the path, nil for a path that has none.
func wireOf(u *url.URL) wire {
	path := u.Path
	if g, ok := geminiOf(u); ok {
		return g
	}
	switch {
	case strings.HasSuffix(path, "/messages"):
		return messages{}
	case strings.HasSuffix(path, "/messages/count_tokens"):
		return messages{count: true}
	case strings.HasSuffix(path, "/chat/completions"):
		return chat{}
	case strings.HasSuffix(path, "/responses"):
		return responses{}
	case strings.HasSuffix(path, "/api/chat"):
		return ollama{}
	}
	return nil
}

// ask reads and checks the request and picks its turn.
func (p *Provider) ask(wr wire, r *http.Request, rec *Request, number int) (asked, Turn, error) {
	if wr == nil {
		return asked{}, Turn{}, &fault{status: http.StatusNotFound, kind: "not_found_error", reason: "unknown path " + r.URL.Path}
	}
	if r.Method != http.MethodPost {
		return asked{}, Turn{}, &fault{status: http.StatusMethodNotAllowed, reason: "method " + r.Method + " is not allowed here"}
	}
	body, err := readBody(r)
	p.mu.Lock()
	rec.Body = body
	p.mu.Unlock()
	if err != nil {
		return asked{}, Turn{}, err
	}
	a, err := wr.check(p, r.Header, body)
	if err != nil {
		return asked{}, Turn{}, err
	}
	a.number, a.name = number, p.Name
	if a.count {
		return a, Turn{}, nil
	}
	if p.MaxHistory > 0 && a.size > p.MaxHistory {
		return asked{}, Turn{}, wr.overflow(tokens(a.size), tokens(p.MaxHistory))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t, turn, err := p.next(Asked{
		Header: rec.Header, Body: body, Answers: a.answers, Since: a.since, Words: a.words,
	})
	if err != nil {
		return asked{}, Turn{}, err
	}
	if t.Instead == nil {
		if err := a.continues.use(); err != nil {
			return asked{}, Turn{}, err
		}
	}
	p.served++
	rec.Turn = turn
	return a, t, nil
}

// readBody reads a JSON request body and undoes its content coding.
func readBody(r *http.Request) ([]byte, error) {
	if ct := r.Header.Get("Content-Type"); !isJSON(ct) {
		return nil, badf("content type %q is not application/json", ct)
	}
	var src io.Reader = r.Body
	switch coding := r.Header.Get("Content-Encoding"); coding {
	case "", "identity":
	case "gzip":
		zr, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, badf("the body is not gzip: %v", err)
		}
		src = zr
	case "br":
		src = brotli.NewReader(r.Body)
	case "zstd":
		zr, err := zstd.NewReader(r.Body)
		if err != nil {
			return nil, badf("the body is not zstd: %v", err)
		}
		defer zr.Close()
		src = zr
	default:
		return nil, &fault{status: http.StatusUnsupportedMediaType, reason: fmt.Sprintf("content encoding %q is not known", coding)}
	}
	body, err := io.ReadAll(io.LimitReader(src, maxBody+1))
	if err != nil {
		return body, badf("the body could not be read: %v", err)
	}
	if len(body) > maxBody {
		return nil, &fault{status: http.StatusRequestEntityTooLarge, kind: "request_too_large", reason: "the body is too large"}
	}
	return body, nil
}

func isJSON(contentType string) bool {
	media, rest, _ := strings.Cut(contentType, ";")
	if !strings.EqualFold(strings.TrimSpace(media), "application/json") {
		return false
	}
	rest = strings.TrimSpace(rest)
	return rest == "" || strings.EqualFold(rest, "charset=utf-8")
}

// refuse answers a request that is not taken, and records why.
func (p *Provider) refuse(w http.ResponseWriter, wr wire, rec *Request, err error) {
	var f *fault
	if !errors.As(err, &f) {
		f = &fault{status: http.StatusBadRequest, reason: err.Error()}
	}
	if wr == nil {
		wr = chat{}
	}
	body := wr.failure(f)
	p.mu.Lock()
	rec.Fault, rec.Status, rec.Sent = f.reason, f.status, body
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	_, _ = w.Write(body)
}

// answer gives the turn.
func (p *Provider) answer(w http.ResponseWriter, r *http.Request, wr wire, rec *Request, a asked, t Turn) {
	h := w.Header()
	h.Set("X-Request-Id", fmt.Sprintf("req_%06d", a.number))
	status := http.StatusOK
	var events [][]byte
	switch {
	case t.Instead != nil:
		status, events = instead(h, wr, t.Instead)
	case a.stream:
		h.Set("Content-Type", streamType(wr))
		h.Set("Cache-Control", "no-cache")
		events = wr.events(p, a, t)
	default:
		h.Set("Content-Type", "application/json")
		events = [][]byte{wr.document(p, a, t)}
	}
	if t.Instead == nil {
		p.keep(a, t)
	}
	if t.Instead == nil && a.responses != nil {
		p.keepResponse(a, t)
	}
	p.mu.Lock()
	rec.Status = status
	p.mu.Unlock()
	out := &output{w: w, t: t, note: func(b []byte) {
		p.mu.Lock()
		rec.Sent = append(rec.Sent, b...)
		p.mu.Unlock()
	}}
	out.send(r.Context(), status, events)
}

// instead sets the headers of an answer that is given as it stands and
// returns its status and body.
func instead(h http.Header, wr wire, ans *Answer) (int, [][]byte) {
	status := ans.Status
	if status == 0 {
		status = http.StatusOK
	}
	h.Set("Content-Type", "application/json")
	for k, v := range ans.Header {
		h[http.CanonicalHeaderKey(k)] = slices.Clone(v)
	}
	body := []byte(ans.Body)
	if len(body) == 0 && status/100 != 2 {
		body = wr.failure(&fault{status: status, reason: ans.Message})
	}
	return status, [][]byte{body}
}
