package telemetry

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"callgate/gate"
	"callgate/inspect/toolcall"
)

func setUp() (*Tracer, *tracetest.SpanRecorder) {
	rec := tracetest.NewSpanRecorder()
	return New(sdk.NewTracerProvider(sdk.WithSpanProcessor(rec)).Tracer("test")), rec
}

func attr(s sdk.ReadOnlySpan, key string) string {
	for _, a := range s.Attributes() {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

func find(t *testing.T, rec *tracetest.SpanRecorder, name string) sdk.ReadOnlySpan {
	t.Helper()
	for _, s := range rec.Ended() {
		if s.Name() == name {
			return s
		}
	}
	t.Fatalf("there is no span %s", name)
	return nil
}

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestOneTraceTellsTheWholeRequest(t *testing.T) {
	tr, rec := setUp()
	_, r := tr.Request(context.Background(), http.Header{}, Start{Method: "POST", Path: "/v1/messages", Upstream: "anthropic"})
	r.Asked(Asked{Dialect: "anthropic", Provider: "anthropic", Model: "m", Stream: true, Principal: "p", Session: "s"})
	out := http.Header{}
	r.Upstream(out, "api.example")
	r.Answered(200)
	t0 := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r.Decided(&gate.Request{Call: toolcall.Call{Name: "Bash", ID: "c1", Args: []byte("SECRET")}}, gate.Decision{
		Verdict: gate.Deny, Outcome: gate.Denied, By: "person", Rule: "fs.x", Approval: "ab12", Reason: "no",
		Steps: []gate.Step{{Name: "detect", Start: t0, End: t0.Add(time.Millisecond)}, {Name: "wait", Start: t0.Add(time.Millisecond), End: t0.Add(time.Second), Note: "denied"}},
	}, t0, t0.Add(time.Second))
	r.UpstreamEnd(nil)
	r.UpstreamEnd(errors.New("twice"))
	r.Shown(Shown{Model: "m-1", ID: "msg", Finish: "tool_use", InputTokens: 5, OutputTokens: -1, Calls: 1, Withheld: 1})
	r.End(200, nil)

	root := find(t, rec, "request")
	for key, want := range map[string]string{
		"http.request.method": "POST", "url.path": "/v1/messages", "callgate.upstream": "anthropic", "gen_ai.operation.name": "chat",
		"gen_ai.provider.name": "anthropic", "gen_ai.request.model": "m", "gen_ai.response.model": "m-1", "gen_ai.response.id": "msg",
		"gen_ai.usage.input_tokens": "5", "gen_ai.usage.output_tokens": "", "callgate.calls": "1", "callgate.withheld": "1",
		"gen_ai.conversation.id": "s", "http.response.status_code": "200",
	} {
		if got := attr(root, key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if root.SpanKind() != trace.SpanKindServer || root.Status().Code == codes.Error || len(rec.Ended()) != 5 {
		t.Errorf("kind %v, status %v, %d spans", root.SpanKind(), root.Status(), len(rec.Ended()))
	}
	up, dec, wait := find(t, rec, "upstream"), find(t, rec, "decision"), find(t, rec, "wait")
	if up.Parent().SpanID() != root.SpanContext().SpanID() || dec.Parent().SpanID() != root.SpanContext().SpanID() || wait.Parent().SpanID() != dec.SpanContext().SpanID() {
		t.Error("a span has the wrong parent")
	}
	if up.SpanKind() != trace.SpanKindClient || attr(up, "http.response.status_code") != "200" || up.Status().Code == codes.Error {
		t.Errorf("upstream: %v %v", up.Attributes(), up.Status())
	}
	if attr(dec, "callgate.verdict") != "deny" || attr(dec, "callgate.outcome") != "denied" || attr(dec, "callgate.by") != "person" ||
		attr(dec, "callgate.rule") != "fs.x" || attr(dec, "callgate.approval") != "ab12" || attr(dec, "gen_ai.tool.name") != "Bash" {
		t.Errorf("decision: %v", dec.Attributes())
	}
	if !wait.StartTime().Equal(t0.Add(time.Millisecond)) || !wait.EndTime().Equal(t0.Add(time.Second)) || attr(wait, "callgate.note") != "denied" {
		t.Errorf("wait: %v %v %v", wait.StartTime(), wait.EndTime(), wait.Attributes())
	}
	if len(out) != 0 {
		t.Errorf("a provider was shown a trace that its customer had not sent: %v", out)
	}
	for _, s := range rec.Ended() {
		for _, a := range s.Attributes() {
			if strings.Contains(a.Value.String(), "SECRET") {
				t.Errorf("%s holds arguments: %v", s.Name(), a)
			}
		}
	}
}

func TestATraceOfTheClientIsContinued(t *testing.T) {
	tr, rec := setUp()
	in := http.Header{"Traceparent": {parent}}
	_, r := tr.Request(context.Background(), in, Start{})
	if r.TraceID() != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("the trace is %s", r.TraceID())
	}
	out := http.Header{"Traceparent": in["Traceparent"]}
	r.Upstream(out, "x")
	r.End(502, errors.New("broken"))
	up := find(t, rec, "upstream")
	if got := out.Get("Traceparent"); !strings.Contains(got, "0af7651916cd43dd8448eb211c80319c-"+up.SpanContext().SpanID().String()) {
		t.Errorf("the provider got %q", got)
	}
	if in.Get("Traceparent") != parent {
		t.Error("the client's headers were changed")
	}
	if s := find(t, rec, "request"); s.Status().Code != codes.Error || s.Parent().SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("%v %v", s.Status(), s.Parent())
	}
	if up.Status().Code != codes.Error {
		t.Error("the provider's span ended well")
	}
}

func TestWhatWasAskedAgainAndRepairedIsThere(t *testing.T) {
	tr, rec := setUp()
	t0 := time.Unix(100, 0)
	_, r := tr.Request(context.Background(), http.Header{"Traceparent": {parent}}, Start{})
	r.Repaired(Repaired{Mended: 3, Edited: 1, Unbound: 2, Ambiguous: 4}, t0, nil)
	r.Upstream(http.Header{}, "api")
	r.UpstreamEnd(nil)
	out := http.Header{}
	r.Resume(out, "api", 2)
	r.Answered(200)
	r.UpstreamEnd(nil)
	r.Shown(Shown{InputTokens: 20, OutputTokens: 5, Rounds: 2, Billed: 30})
	r.End(200, nil)
	root, again, rep := find(t, rec, "request"), find(t, rec, "resume"), find(t, rec, "repair")
	if attr(again, "callgate.round") != "2" || attr(again, "server.address") != "api" || again.Parent().SpanID() != root.SpanContext().SpanID() {
		t.Errorf("resume: %v", again.Attributes())
	}
	if !strings.Contains(out.Get("Traceparent"), again.SpanContext().SpanID().String()) {
		t.Errorf("the trace does not go on in %v", out)
	}
	if attr(rep, "callgate.mended") != "3" || attr(rep, "callgate.edited") != "1" || attr(rep, "callgate.unbound") != "2" || attr(rep, "callgate.ambiguous") != "4" || !rep.StartTime().Equal(t0) {
		t.Errorf("repair: %v", rep.Attributes())
	}
	if attr(root, "callgate.rounds") != "2" || attr(root, "callgate.input_tokens_of_all_rounds") != "30" || attr(root, "gen_ai.usage.input_tokens") != "20" {
		t.Errorf("request: %v", root.Attributes())
	}
}

func TestABrokenTraceIsNotContinued(t *testing.T) {
	tr, _ := setUp()
	for _, h := range []string{"", "00-xyz", "00-00000000000000000000000000000000-b7ad6b7169203331-01", parent + "-extra-"} {
		_, r := tr.Request(context.Background(), http.Header{"Traceparent": {h}}, Start{})
		if id := r.TraceID(); id == "" || strings.Contains(h, id) {
			t.Errorf("%q: trace %q", h, id)
		}
		r.End(200, nil)
	}
}

func TestNoTracerCostsNothing(t *testing.T) {
	tr := New(nil)
	h := http.Header{"Traceparent": {parent}}
	ctx := context.Background()
	n := testing.AllocsPerRun(100, func() {
		c, r := tr.Request(ctx, h, Start{Method: "GET"})
		r.Asked(Asked{})
		r.Upstream(h, "x")
		r.Resume(h, "x", 2)
		r.Repaired(Repaired{}, time.Time{}, nil)
		r.Answered(500)
		r.Decided(nil, gate.Decision{}, time.Time{}, time.Time{})
		r.Shown(Shown{})
		r.UpstreamEnd(nil)
		r.End(0, nil)
		if c != ctx || r.TraceID() != "" {
			t.Error("something was made")
		}
	})
	if n != 0 || h.Get("Traceparent") != parent {
		t.Errorf("%v allocations, header %v", n, h)
	}
}
