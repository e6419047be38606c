package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// tracing is where spans go. Its zero value records nothing.
type tracing struct {
	tracer trace.Tracer // nil when nothing is exported
	to     string       // where spans are sent, for the start-up lines
	stop   func(context.Context) error
}

// startTracing sets up the export of traces over OTLP/HTTP as the OTEL_*
// variables of the OpenTelemetry specification say. Nothing is exported unless
// an endpoint is named, so that no connection is made that nobody asked for.
func startTracing(ctx context.Context, getenv func(string) string) (*tracing, error) {
	to := getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if to == "" {
		to = getenv("OTEL_EXPORTER_OTLP_ENDPOINT")
	}
	off := strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == "none"
	if to == "" || off {
		return &tracing{}, nil
	}
	if e := getenv("OTEL_TRACES_EXPORTER"); e != "" && e != "otlp" {
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER is %q: callgate exports otlp or none", e)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if p := getenv(name); p != "" && !strings.HasPrefix(p, "http/") {
			return nil, fmt.Errorf("%s is %q: callgate speaks http/protobuf and http/json; collectors take them on port 4318", name, p)
		}
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("set up the export of traces to %s: %w", to, err)
	}
	// What the environment says (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES)
	// comes last and wins. A part of it that cannot be read is no reason not
	// to trace.
	res, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName("callgate"), semconv.ServiceVersion(buildVersion().Version)),
		resource.WithFromEnv(),
	)
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("describe this process for traces: %w", err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter, sdktrace.WithBatchTimeout(time.Second)),
		sdktrace.WithResource(res),
	)
	return &tracing{tracer: provider.Tracer("callgate"), to: to, stop: provider.Shutdown}, nil
}

// close sends what is still waiting, within ctx.
func (t *tracing) close(ctx context.Context) error {
	if t.stop == nil {
		return nil
	}
	if err := t.stop(ctx); err != nil {
		return fmt.Errorf("send the last traces to %s: %w", t.to, err)
	}
	return nil
}
