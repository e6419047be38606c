// Package telemetry turns what happened to a request into OpenTelemetry spans:
// one for the request, one for the provider's part of it, one for each
// decision with its timed steps below. It knows the words of the gate and
// nothing of wire formats; where spans go is the business of the tracer that
// is given in. A nil *Tracer and a nil *Request do nothing and cost nothing.
package telemetry

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"callgate/gate"
)

// Tracer makes the spans of requests. It is safe for concurrent use.
type Tracer struct {
	tracer trace.Tracer
	wire   propagation.TraceContext
}

// New returns a Tracer that starts its spans with t, or nil when t is nil.
func New(t trace.Tracer) *Tracer {
	if t == nil {
		return nil
	}
	return &Tracer{tracer: t}
}

// Start is what is known of a request at its beginning.
type Start struct {
	Method string // HTTP method
	// Path is the path below the upstream's base; it holds no credential.
	Path     string
	Upstream string // name of the upstream
	Agent    string // name of the agent
}

// Request is the span of one request. It is used by one goroutine.
type Request struct {
	t    *Tracer
	span trace.Span
	up   trace.Span
	// joined says that the client sent a trace of its own to be continued.
	joined bool
}

// Request starts the span of a request as a child of the trace its headers
// name (W3C Trace Context), if they name one, and returns a context that holds
// it.
func (t *Tracer) Request(ctx context.Context, h http.Header, s Start) (context.Context, *Request) {
	if t == nil {
		return ctx, nil
	}
	joined := h.Get("Traceparent") != ""
	if joined {
		ctx = t.wire.Extract(ctx, propagation.HeaderCarrier(h))
	}
	ctx, span := t.tracer.Start(ctx, "request", trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("http.request.method", s.Method),
		attribute.String("url.path", s.Path),
		attribute.String("callgate.upstream", s.Upstream),
		attribute.String("callgate.agent", s.Agent),
	))
	return ctx, &Request{t: t, span: span, joined: joined}
}

// TraceID is the trace's id in hex, "" when there is none.
func (r *Request) TraceID() string {
	if r == nil || !r.span.SpanContext().HasTraceID() {
		return ""
	}
	return r.span.SpanContext().TraceID().String()
}

// Asked is what a gated request asks for.
type Asked struct {
	Dialect, Provider, Model string
	Stream                   bool
	// Principal is the tenant's keyed hash, Session what the client claims.
	Principal, Session string
}

// Asked notes what the request asks for.
func (r *Request) Asked(a Asked) {
	if r == nil || !r.span.IsRecording() {
		return
	}
	r.span.SetAttributes(
		attribute.String("gen_ai.operation.name", "chat"),
		attribute.String("gen_ai.provider.name", a.Provider),
		attribute.String("gen_ai.request.model", a.Model),
		attribute.String("callgate.dialect", a.Dialect),
		attribute.Bool("callgate.stream", a.Stream),
		attribute.String("callgate.principal", a.Principal),
	)
	if a.Session != "" {
		r.span.SetAttributes(attribute.String("gen_ai.conversation.id", a.Session))
	}
}

// Upstream starts the span of the provider's part. The trace goes on in h, the
// headers that are sent, only where the client had sent one: providers learn
// of no trace that their customer did not show them.
func (r *Request) Upstream(h http.Header, host string) {
	if r == nil {
		return
	}
	r.asking("upstream", h, attribute.String("server.address", host))
}

// Resume is Upstream for the answer that goes on in the same turn, after its
// calls were refused: round counts the provider's answers, the first one 1.
func (r *Request) Resume(h http.Header, host string, round int) {
	if r == nil {
		return
	}
	r.asking("resume", h, attribute.String("server.address", host), attribute.Int("callgate.round", round))
}

func (r *Request) asking(name string, h http.Header, attrs ...attribute.KeyValue) {
	ctx := trace.ContextWithSpan(context.Background(), r.span)
	ctx, r.up = r.t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	if r.joined {
		r.t.wire.Inject(ctx, propagation.HeaderCarrier(h))
	}
}

// Repaired is what was put back into the history of a request.
type Repaired struct {
	// Mended are the answers in the history that were made whole, Edited those
	// of them that the client had changed; Unbound are answers whose record is
	// gone, Ambiguous those that several records fit.
	Mended, Edited, Unbound, Ambiguous int
}

// Repaired records the repair of the request, which began at start.
func (r *Request) Repaired(n Repaired, start time.Time, err error) {
	if r == nil || !r.span.IsRecording() {
		return
	}
	_, span := r.t.tracer.Start(trace.ContextWithSpan(context.Background(), r.span), "repair", trace.WithTimestamp(start), trace.WithAttributes(
		attribute.Int("callgate.mended", n.Mended),
		attribute.Int("callgate.edited", n.Edited),
		attribute.Int("callgate.unbound", n.Unbound),
		attribute.Int("callgate.ambiguous", n.Ambiguous),
	))
	fail(span, err)
	span.End()
}

// Answered notes that the provider's response headers are there.
func (r *Request) Answered(status int) {
	if r == nil || r.up == nil || !r.up.IsRecording() {
		return
	}
	r.up.AddEvent("headers")
	r.up.SetAttributes(attribute.Int("http.response.status_code", status))
	if status >= 400 {
		r.up.SetStatus(codes.Error, http.StatusText(status))
	}
}

// UpstreamEnd ends the span of the provider's part; err says why it did not
// end well. It may be called again and does nothing then.
func (r *Request) UpstreamEnd(err error) {
	if r == nil || r.up == nil {
		return
	}
	fail(r.up, err)
	r.up.End()
	r.up = nil
}

// Decided records the decision on one call, which was asked for at start, with
// the decision's steps as its children.
func (r *Request) Decided(q *gate.Request, d gate.Decision, start, end time.Time) {
	if r == nil || !r.span.IsRecording() {
		return
	}
	ctx := trace.ContextWithSpan(context.Background(), r.span)
	ctx, span := r.t.tracer.Start(ctx, "decision", trace.WithTimestamp(start), trace.WithAttributes(
		attribute.String("gen_ai.tool.name", q.Call.Name),
		attribute.String("gen_ai.tool.call.id", q.Call.ID),
		attribute.String("callgate.verdict", d.Verdict.String()),
		attribute.String("callgate.outcome", string(d.Outcome)),
		attribute.String("callgate.by", d.By),
	))
	if d.Rule != "" {
		span.SetAttributes(attribute.String("callgate.rule", d.Rule))
	}
	if d.Approval != "" {
		span.SetAttributes(attribute.String("callgate.approval", d.Approval))
	}
	if d.Verdict != gate.Allow && d.Reason != "" {
		span.SetAttributes(attribute.String("callgate.reason", d.Reason))
	}
	for _, s := range d.Steps {
		_, step := r.t.tracer.Start(ctx, s.Name, trace.WithTimestamp(s.Start))
		if s.Note != "" {
			step.SetAttributes(attribute.String("callgate.note", s.Note))
		}
		step.End(trace.WithTimestamp(s.End))
	}
	span.End(trace.WithTimestamp(end))
}

// Shown is what became of an answer.
type Shown struct {
	Model, ID, Finish         string // as the provider named them
	InputTokens, OutputTokens int64  // -1 when unknown
	Calls, Withheld           int
	// Rounds is how many answers of the provider the turn took, and Billed the
	// prompt tokens of all of them, -1 when unknown.
	Rounds int
	Billed int64
}

// Shown notes what became of the answer.
func (r *Request) Shown(s Shown) {
	if r == nil || !r.span.IsRecording() {
		return
	}
	r.span.SetAttributes(
		attribute.Int("callgate.calls", s.Calls),
		attribute.Int("callgate.withheld", s.Withheld),
	)
	if s.Rounds > 1 {
		r.span.SetAttributes(attribute.Int("callgate.rounds", s.Rounds))
		if s.Billed >= 0 {
			r.span.SetAttributes(attribute.Int64("callgate.input_tokens_of_all_rounds", s.Billed))
		}
	}
	if s.Model != "" {
		r.span.SetAttributes(attribute.String("gen_ai.response.model", s.Model))
	}
	if s.ID != "" {
		r.span.SetAttributes(attribute.String("gen_ai.response.id", s.ID))
	}
	if s.Finish != "" {
		r.span.SetAttributes(attribute.StringSlice("gen_ai.response.finish_reasons", []string{s.Finish}))
	}
	if s.InputTokens >= 0 {
		r.span.SetAttributes(attribute.Int64("gen_ai.usage.input_tokens", s.InputTokens))
	}
	if s.OutputTokens >= 0 {
		r.span.SetAttributes(attribute.Int64("gen_ai.usage.output_tokens", s.OutputTokens))
	}
}

// End ends the request's span, and the provider's if it is still open, with
// the status that the client was shown (0 for none).
func (r *Request) End(status int, err error) {
	if r == nil {
		return
	}
	r.UpstreamEnd(err)
	if status > 0 {
		r.span.SetAttributes(attribute.Int("http.response.status_code", status))
	}
	if err == nil && status >= 500 {
		r.span.SetStatus(codes.Error, http.StatusText(status))
	}
	fail(r.span, err)
	r.span.End()
}

func fail(s trace.Span, err error) {
	if err != nil {
		s.RecordError(err)
		s.SetStatus(codes.Error, err.Error())
	}
}
