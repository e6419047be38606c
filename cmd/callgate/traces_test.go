package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// receiver takes traces as a collector does and refuses what is not one.
type receiver struct {
	t     *testing.T
	mu    sync.Mutex
	spans map[string]*tracepb.Span // by name
	from  string                   // service.name
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	var in collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &in)
	}
	if err != nil || q.URL.Path != "/v1/traces" || q.Header.Get("Content-Type") != "application/x-protobuf" {
		r.t.Errorf("%s %s is no export of traces: %v", q.Method, q.URL, err)
		http.Error(w, "bad export", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range in.ResourceSpans {
		for _, a := range rs.Resource.Attributes {
			if a.Key == "service.name" {
				r.from = a.Value.GetStringValue()
			}
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				r.spans[s.Name] = s
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func attribute(s *tracepb.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

func TestARequestIsOneTraceFromTheAgentToThePersonsAnswer(t *testing.T) {
	r := &receiver{t: t, spans: map[string]*tracepb.Span{}}
	ts := httptest.NewServer(r)
	defer ts.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", ts.URL)
	s := startServe(t, t.TempDir(), dangerous(t).URL)
	answer := s.answered(t.Context())
	if out, code := s.people("deny", s.question()); code != exitOK {
		t.Fatalf("deny: exit code %d\n%s", code, out)
	}
	<-answer
	s.stop() // sends what is left

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.from != "callgate" {
		t.Errorf("the service is called %q", r.from)
	}
	for name, parent := range map[string]string{"upstream": "request", "decision": "request", "detect": "decision", "wait": "decision"} {
		child, above := r.spans[name], r.spans[parent]
		if child == nil || above == nil {
			t.Fatalf("there is no span %s or %s: %v", name, parent, r.spans)
		}
		if string(child.ParentSpanId) != string(above.SpanId) || string(child.TraceId) != string(above.TraceId) {
			t.Errorf("span %s is no child of %s", name, parent)
		}
		if child.StartTimeUnixNano < above.StartTimeUnixNano || child.EndTimeUnixNano > above.EndTimeUnixNano {
			t.Errorf("span %s is not within %s", name, parent)
		}
	}
	d := r.spans["decision"]
	for key, want := range map[string]string{"callgate.verdict": "deny", "callgate.outcome": "denied", "callgate.by": "person", "callgate.rule": "fs.recursive-delete", "gen_ai.tool.name": "bash"} {
		if got := attribute(d, key); got != want {
			t.Errorf("the decision's %s is %q, want %q", key, got, want)
		}
	}
	for name, span := range r.spans {
		for _, a := range span.Attributes {
			if v := a.Value.GetStringValue(); strings.Contains(v, "photos") || strings.Contains(v, "Bearer") {
				t.Errorf("span %s tells arguments or credentials: %s=%s", name, a.Key, v)
			}
		}
	}
}

func TestAHookIsASpan(t *testing.T) {
	r := &receiver{t: t, spans: map[string]*tracepb.Span{}}
	ts := httptest.NewServer(r)
	defer ts.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", ts.URL+"/v1/traces")
	t.Setenv("CALLGATE_APPROVALS_MODE", "custom")
	t.Setenv("CALLGATE_APPROVALS_HOOK", "/bin/false")
	s := startServe(t, t.TempDir(), dangerous(t).URL)
	if got := <-s.answered(t.Context()); !strings.Contains(got, "hook") {
		t.Errorf("the refusal does not name the hook: %s", got)
	}
	s.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	h, d := r.spans["hook"], r.spans["decision"]
	if h == nil || d == nil || string(h.ParentSpanId) != string(d.SpanId) {
		t.Fatalf("the hook is no part of the decision: %v", r.spans)
	}
	if got := attribute(d, "callgate.outcome"); got != "hook_failed" {
		t.Errorf("the outcome is %q", got)
	}
}

func TestTracesAreSetUpAsTheVariablesSay(t *testing.T) {
	for _, tc := range []struct {
		name    string
		environ []string
		on      bool
		err     string
	}{
		{"no endpoint", nil, false, ""},
		{"an endpoint", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"}, true, ""},
		{"an endpoint for traces", []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:4318/v1/traces"}, true, ""},
		{"switched off", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318", "OTEL_SDK_DISABLED=true"}, false, ""},
		{"no exporter", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER=none"}, false, ""},
		{"another exporter", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER=zipkin"}, false, "OTEL_TRACES_EXPORTER"},
		{"a protocol that is not spoken", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, false, "4318"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, _, _ := testEnv(tc.environ...)
			tr, err := startTracing(t.Context(), e.Getenv)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("the error is %v, want one that names %s", err, tc.err)
				}
				return
			}
			if err != nil || (tr.tracer != nil) != tc.on {
				t.Fatalf("traces are on: %v (%v), want %v", tr.tracer != nil, err, tc.on)
			}
			if err := tr.close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
