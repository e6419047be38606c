// Package proxy stands between the agent and the provider: it says where a
// request goes, what may pass unread, and drives one answer from the provider
// through its dialect and the gate to the agent. It is the one place where the
// wire formats (inspect) and the deciding (gate) meet; it knows neither a wire
// format nor a policy of its own.
//
// A request runs on its handler's goroutine. Only when a call waits for
// somebody does one more goroutine read the provider's answer to its end.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"callgate/gate"
	"callgate/inspect"
	"callgate/inspect/toolcall"
	"callgate/proxy/repair"
	"callgate/proxy/telemetry"
)

// The keys of Proxy.Defaults.
const (
	// OpenAI is the dialect whose default upstream serves bare paths such as
	// /v1/chat/completions and every other /v1/ path.
	OpenAI = "openai-chat"
	// Anthropic is the dialect whose default upstream serves /v1/messages, and
	// all /v1/ paths of requests that have an anthropic-version header.
	Anthropic = "anthropic"
)

// Ollama is the upstream that serves bare paths such as /api/chat, where there is
// one of that name.
const Ollama = "ollama"

// Gemini is the upstream that serves bare paths such as
// /v1beta/models/MODEL:generateContent, and those of them below /v1, where there
// is one of that name.
const Gemini = "gemini"

// Gate decides calls. *gate.Gate is one.
type Gate interface {
	// Submit asks for a decision and returns without waiting for anybody.
	Submit(ctx context.Context, r *gate.Request) *gate.Ticket
}

// Upstream is a provider that requests may be sent to.
type Upstream struct {
	// Name is the first segment of the paths that go to it.
	Name string
	// URL is its base: scheme, host and a path that stands before the rest.
	URL *url.URL
	// AllowPrivate permits addresses in private ranges (see PrivateHosts).
	AllowPrivate bool
	// Timeout is how long the provider may take until its response headers
	// are there; 0 stands for Limits.HeaderTimeout.
	Timeout time.Duration
	// Credential is shown in the place of the client's, over TLS or to a
	// private address alone; nil passes the client's on.
	Credential *Credential
}

// UnknownPolicy says what happens at endpoints that no dialect knows.
type UnknownPolicy uint8

// The policies for unknown endpoints.
const (
	Sniff  UnknownPolicy = iota // forward; withhold answers that hold call-shaped content
	Refuse                      // do not forward
)

// Limits bound one request, and Memory all together. A zero field stands for
// its default.
type Limits struct {
	// RequestBody is the largest body of a gated request in bytes, as sent and
	// as decoded (default 64 MiB).
	RequestBody int64
	// Memory is how much the bodies of all requests may take together, in
	// bytes, with answers that are read whole before they are passed on
	// (default 512 MiB). What finds no room is answered with 503.
	Memory int64
	// Answer is the largest answer of an unknown endpoint, in bytes after
	// decoding (default 32 MiB).
	Answer int64
	// Held is how much of an answer may be read while a call waits, in bytes
	// after decoding (default 32 MiB).
	Held int64
	// HeaderTimeout is how long a provider may take until its response headers
	// are there (default 10 minutes: long answers in one piece need it).
	HeaderTimeout time.Duration
	// IdleTimeout is how long a provider's answer may stand still (default 5
	// minutes).
	IdleTimeout time.Duration
	// BodyTimeout is how long a client's request body may stand still (default
	// 1 minute).
	BodyTimeout time.Duration
	// WriteTimeout is how long one write to the client may take (default 1
	// minute).
	WriteTimeout time.Duration
}

func (l Limits) defaults() Limits {
	size := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	span := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	size(&l.RequestBody, 64<<20)
	size(&l.Memory, 512<<20)
	size(&l.Answer, 32<<20)
	size(&l.Held, 32<<20)
	span(&l.HeaderTimeout, 10*time.Minute)
	span(&l.IdleTimeout, 5*time.Minute)
	span(&l.BodyTimeout, time.Minute)
	span(&l.WriteTimeout, time.Minute)
	return l
}

// DefaultKeepAlive is how often a held answer shows a sign of life.
const DefaultKeepAlive = 10 * time.Second

// Proxy is the http.Handler of the data listener. Its fields are set before
// the first request and not changed afterwards. The server that runs it must
// set no read or write timeout of its own (a header timeout is welcome):
// answers last as long as a person thinks.
type Proxy struct {
	// Upstreams are the providers by name; nothing else is ever dialled.
	Upstreams map[string]*Upstream
	// Defaults names the upstream of bare well-known paths by dialect (OpenAI,
	// Anthropic). A dialect without a row has none: such paths are 404.
	Defaults map[string]string
	// Agents tells clients apart. Nil knows DefaultAgent alone.
	Agents *Agents
	// Dialects are asked in order what an endpoint is. Without any, every
	// endpoint is unknown.
	Dialects []inspect.Dialect
	// Actions tells what a call does, given the tools of its request. Without
	// it no call has an action, which the gate denies.
	Actions func(toolcall.Call, []toolcall.Tool) []toolcall.Action
	// Gate decides calls; without it every call is withheld.
	Gate Gate
	// Transport carries requests to providers (package egress makes one);
	// without it nothing is forwarded.
	Transport http.RoundTripper
	// Principal tells tenants apart (PrincipalKey makes one). Nil stands for
	// PrincipalKey with a key of this Proxy alone, which does not outlive it.
	Principal func(agent, upstream string, h http.Header) Tenant
	// Denial says what a denied call becomes.
	Denial Denial
	// Repairs keeps what later requests of a conversation must mend. Nil keeps
	// nothing: a dialect that leaves calls to be mended then ends the answer
	// with a text.
	Repairs *repair.Book
	// Unknown says what happens at endpoints that no dialect knows.
	Unknown UnknownPolicy
	// Limits bound each request.
	Limits Limits
	// KeepAlive is how often a held answer shows a sign of life; 0 stands for
	// DefaultKeepAlive.
	KeepAlive time.Duration
	// Audit records what is withheld without a decision and what a provider
	// ran itself; nil records neither. Decisions are recorded by the gate.
	Audit gate.Auditor
	// Log gets what operators must know; nil discards it. Neither credentials
	// nor arguments are logged.
	Log *slog.Logger
	// Telemetry traces requests; nil does not.
	Telemetry *telemetry.Tracer

	once      sync.Once
	limits    Limits
	principal func(agent, upstream string, h http.Header) Tenant
	log       *slog.Logger
	known     string // names of the upstreams, for the 404
	memory    budget // of bodies

	packing sync.Once
	zstd    *zstd.Encoder

	bodies, chunks, outs sync.Pool // *[]byte: request bodies, read buffers, bytes to be shown
}

// keepAlive is how often a held answer shows a sign of life.
func (p *Proxy) keepAlive() time.Duration {
	if p.KeepAlive > 0 {
		return p.KeepAlive
	}
	return DefaultKeepAlive
}

func (p *Proxy) start() {
	p.limits = p.Limits.defaults()
	p.memory.limit = p.limits.Memory
	p.principal = p.Principal
	if p.principal == nil {
		p.principal = PrincipalKey(randomKey())
	}
	p.log = p.Log
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	p.known = names(p.Upstreams)
}

// ServeHTTP answers one request of an agent.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.once.Do(p.start)
	from := r.RemoteAddr
	r, by, f := p.Agents.introduce(r)
	if f != nil {
		p.log.Warn("a request is refused", "from", from, "reason", f.reason)
		f.write(w)
		return
	}
	if f := admit(r); f != nil {
		f.write(w)
		return
	}
	if r.URL.Path == "/" {
		hello(w, r)
		return
	}
	if by.agent == nil {
		f = missing()
		p.log.Warn("a request is refused", "from", from, "reason", f.reason)
		f.write(w)
		return
	}
	rt, f := p.route(r, by.agent)
	if f != nil {
		f.write(w)
		return
	}
	r = rt.keep(r)
	now := time.Now()
	x := &exchange{p: p, w: w, rc: *http.NewResponseController(w), r: r, by: by, rt: rt, began: now}
	x.raw.from, x.text.from, x.spare.from = &p.memory, &p.memory, &p.memory
	x.serve()
}

// classify asks the dialects what the endpoint is. Gated wins over aside, and
// that over harmless.
func (p *Proxy) classify(h inspect.Head) (inspect.Class, inspect.Dialect) {
	if h.Method == http.MethodHead {
		return inspect.ClassHarmless, nil // its answers have no body
	}
	class := inspect.ClassUnknown
	var aside inspect.Dialect
	for _, d := range p.Dialects {
		switch d.Classify(h) {
		case inspect.ClassGated:
			return inspect.ClassGated, d
		case inspect.ClassAside:
			class, aside = inspect.ClassAside, d
		case inspect.ClassHarmless:
			if aside == nil {
				class = inspect.ClassHarmless
			}
		}
	}
	return class, aside
}

// ruling maps a decision to what is done with its call. It is the only place
// where the gate's words become the dialect's.
func ruling(d gate.Decision, c toolcall.Call) inspect.Ruling {
	if d.Verdict == gate.Allow && c.Fault == toolcall.FaultNone {
		return inspect.Ruling{Release: true, Args: d.Args}
	}
	return inspect.Ruling{Refusal: gate.RefusalText(d, c)}
}

// exchange is one request and its answer.
type exchange struct {
	p     *Proxy
	w     http.ResponseWriter
	rc    http.ResponseController
	r     *http.Request
	by    who
	rt    route
	began time.Time
	spoke time.Duration // after it, when the client last got something: one clock is read faster than two
	span  *telemetry.Request

	raw, text, spare lease // the request's body as it came, unpacked, and with repairs

	wrote    bool          // the header is out or about to be
	deadline time.Duration // the write deadline that is set, from began
	status   int           // shown to the client
}

// serve dispatches by class. Whatever panics below withholds the answer.
func (x *exchange) serve() {
	p := x.p
	ctx, span := p.Telemetry.Request(x.r.Context(), x.r.Header, telemetry.Start{
		Method: x.r.Method, Path: x.rt.path, Upstream: x.rt.up.Name, Agent: x.by.agent.Name,
	})
	x.span = span
	var err error
	defer func() {
		v := recover()
		if v != nil && v != http.ErrAbortHandler {
			err = fmt.Errorf("proxy: %v", v)
			p.log.Error("the answer is withheld: a fault in callgate", "upstream", x.rt.up.Name, "path", x.rt.path, "fault", fmt.Sprint(v), "stack", stack())
		}
		span.End(x.status, err)
		if v == nil {
			return
		}
		if v == http.ErrAbortHandler || x.wrote {
			panic(http.ErrAbortHandler)
		}
		x.refuse(nil, http.StatusBadGateway, "callgate met a fault of its own and withheld the answer; see its log")
	}()
	class, dialect := p.classify(x.rt.head(x.r))
	switch class {
	case inspect.ClassGated:
		err = x.gated(ctx, dialect)
	case inspect.ClassAside:
		err = x.aside(ctx, dialect)
	case inspect.ClassHarmless:
		err = x.pass(ctx)
	default:
		err = x.unknown(ctx)
	}
	if errors.Is(err, errGone) {
		p.log.Debug("the client is gone", "upstream", x.rt.up.Name, "path", x.rt.path)
	} else if err != nil {
		p.log.Warn("request failed", "upstream", x.rt.up.Name, "path", x.rt.path, "status", x.status, "reason", err.Error())
	}
	if errors.Is(err, errAbort) {
		panic(http.ErrAbortHandler)
	}
	x.arm() // the server has the end of the answer still to write
	x.disarm()
}
