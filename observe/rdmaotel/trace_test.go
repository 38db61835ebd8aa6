package rdmaotel_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/goverbs/goverbs/observe/rdmaotel"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// TestTrace has a handler that replies, one that fails and one that panics, and compares the spans of both sides.
func TestTrace(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	o := &rdmaotel.Options{Tracer: sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)),
		Propagator: propagation.TraceContext{}}
	c := connect(t, rdmaotel.Handler("op", handle, o))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ctx, outer := o.Tracer.Tracer("test").Start(ctx, "outer")
	ctx = rdma.WithMetadata(ctx, "tenant", "a")
	for _, request := range []string{"hello", "fail", "panic"} {
		m, err := rdmaotel.Call(ctx, c, "op", []byte(request), o)
		if (err != nil) != (request != "hello") {
			t.Errorf("%s: %v", request, err)
		}
		m.Release()
	}
	outer.End()
	byKind := map[trace.SpanKind][]sdk.ReadOnlySpan{}
	for _, s := range spans.Ended() {
		byKind[s.SpanKind()] = append(byKind[s.SpanKind()], s)
	}
	clients, servers := byKind[trace.SpanKindClient], byKind[trace.SpanKindServer]
	if len(clients) != 3 || len(servers) != 3 {
		t.Fatalf("%d spans of the caller and %d of the handler", len(clients), len(servers))
	}
	for i, want := range []struct {
		code   codes.Code
		status int64 // of the call's error
		reply  int64
	}{{codes.Unset, 0, 5}, {codes.Error, int64(rdma.CodeNotFound), 0}, {codes.Error, int64(rdma.CodeInternal), 0}} {
		s, h := clients[i], servers[i]
		if s.Parent().SpanID() != outer.SpanContext().SpanID() || h.Parent().SpanID() != s.SpanContext().SpanID() ||
			h.SpanContext().TraceID() != outer.SpanContext().TraceID() || !h.Parent().IsRemote() {
			t.Errorf("call %d: the spans are not one trace", i)
		}
		if s.Status().Code != want.code || h.Status().Code != want.code {
			t.Errorf("call %d: status %v and %v, want %v", i, s.Status(), h.Status(), want.code)
		}
		if v := attributeOf(s, "rpc.response.status_code"); v != want.status {
			t.Errorf("call %d: the code is %v, want %v", i, v, want.status)
		}
		if v, w := attributeOf(s, "rpc.response.size"), attributeOf(h, "rpc.response.size"); v != want.reply || w != v {
			t.Errorf("call %d: the reply has %v and %v bytes, want %v", i, v, w, want.reply)
		}
		if attributeOf(s, "network.peer.port") != int64(c.RemoteAddr().Port()) || s.Name() != "op" || h.Name() != "op" {
			t.Errorf("call %d: %v, %v", i, s.Name(), s.Attributes())
		}
	}
}

// handle expects metadata beside that of the trace.
func handle(ctx context.Context, r *rdma.Request) ([]byte, error) {
	if r.Metadata()["tenant"] != "a" || !trace.SpanContextFromContext(ctx).IsValid() {
		return nil, errors.New("the metadata or the span is missing")
	}
	switch string(r.Bytes()) {
	case "fail":
		return nil, &rdma.CallError{Code: rdma.CodeNotFound, Text: "no such thing"}
	case "panic":
		panic("as the caller asks")
	}
	return r.Bytes(), nil
}

func attributeOf(s sdk.ReadOnlySpan, key string) int64 {
	for _, a := range s.Attributes() {
		if a.Key == attribute.Key(key) {
			return a.Value.AsInt64()
		}
	}
	return 0
}

// TestNoRoom has metadata that leave no room for the context of the trace.
func TestNoRoom(t *testing.T) {
	o := &rdmaotel.Options{Tracer: sdk.NewTracerProvider(), Propagator: propagation.TraceContext{}}
	c := connect(t, rdmaotel.Handler("op", func(ctx context.Context, r *rdma.Request) ([]byte, error) {
		return []byte(r.Metadata()["big"]), nil
	}, o))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	big := strings.Repeat("x", 1000)
	m, err := rdmaotel.Call(rdma.WithMetadata(ctx, "big", big), c, "op", []byte("hello"), o)
	if err != nil || string(m.Bytes()) != big {
		t.Errorf("%d bytes, %v", m.Len(), err)
	}
	m.Release()
}

// connect returns a connection to a server with a handler, both on one machine in memory.
func connect(t *testing.T, h rdma.Handler) *rdma.Conn {
	t.Helper()
	machine := verbstest.New(t)
	silent := rdma.Options{Logger: slog.New(slog.DiscardHandler)}
	l, err := rdma.Listen(machine.Addr().String()+":0", &rdma.ListenOptions{Options: silent})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- l.Serve(t.Context(), rdma.Handle(h, nil)) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := rdma.Dial(ctx, l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), l.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	return c
}
