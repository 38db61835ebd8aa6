// Package rdmaotel traces calls of package rdma by OpenTelemetry. The caller's span and the handler's are parts of one
// trace: its context travels in the metadata of the call.
//
//	err := c.Handle(ctx, rdmaotel.Handler("get", get, nil), nil) // the server
//	reply, err := rdmaotel.Call(ctx, c, "get", request, nil)     // its client
package rdmaotel

import (
	"context"
	"errors"
	"net/netip"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/goverbs/goverbs/rdma"
)

// Options say where spans go and how their context travels. Nil stands for the zero Options, and nil fields for the
// global ones of package otel.
type Options struct {
	Tracer     trace.TracerProvider
	Propagator propagation.TextMapPropagator
}

// scope is the name of the tracer.
const scope = "github.com/goverbs/goverbs/observe/rdmaotel"

// start starts a span for a call from or to a peer.
func (o *Options) start(ctx context.Context, name string, kind trace.SpanKind, peer netip.AddrPort, bytes int) (
	context.Context, trace.Span) {
	provider := otel.GetTracerProvider()
	if o != nil && o.Tracer != nil {
		provider = o.Tracer
	}
	return provider.Tracer(scope).Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(
		semconv.RPCSystemKey.String("goverbs"), semconv.RPCMethod(name),
		semconv.NetworkPeerAddress(peer.Addr().String()), semconv.NetworkPeerPort(int(peer.Port())),
		requestSize.Int(bytes)))
}

const (
	requestSize  = attribute.Key("rpc.request.size")
	responseSize = attribute.Key("rpc.response.size")
	statusCode   = attribute.Key("rpc.response.status_code")
)

func (o *Options) propagator() propagation.TextMapPropagator {
	if o != nil && o.Propagator != nil {
		return o.Propagator
	}
	return otel.GetTextMapPropagator()
}

// end ends the span of a call that has returned an error or a reply of n bytes, which are not known if n is negative.
func end(span trace.Span, n int, err error) {
	defer span.End()
	if err == nil {
		if n >= 0 {
			span.SetAttributes(responseSize.Int(n))
		}
		return
	}
	var refused *rdma.CallError
	if errors.As(err, &refused) {
		span.SetAttributes(statusCode.Int(int(refused.Code)))
	}
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
}

// Call is [rdma.Conn.Call] in a span with a name, such as the operation that the request asks for. The call is made
// without the context of the trace if the peer's version of package rdma accepts no metadata, or if there is no room
// for it beside the request and the metadata of ctx.
func Call(ctx context.Context, c *rdma.Conn, name string, request []byte, o *Options) (rdma.Message, error) {
	ctx, span := o.start(ctx, name, trace.SpanKindClient, c.RemoteAddr(), len(request))
	carrier := propagation.MapCarrier{}
	o.propagator().Inject(ctx, carrier)
	traced := ctx
	for key, value := range carrier {
		traced = rdma.WithMetadata(traced, key, value)
	}
	m, err := c.Call(traced, request)
	if errors.Is(err, rdma.ErrNoMetadata) || errors.Is(err, rdma.ErrTooLong) { // nothing was sent
		m, err = c.Call(ctx, request)
	}
	end(span, m.Len(), err)
	return m, err
}

// Handler returns a handler that calls h in a span with a name, a child of the caller's. The span does not have the
// size of a reply that h sends by [rdma.Message.Reply] or ReplyBuffer.
func Handler(name string, h rdma.Handler, o *Options) rdma.Handler {
	return func(ctx context.Context, r *rdma.Request) (reply []byte, err error) {
		ctx = o.propagator().Extract(ctx, propagation.MapCarrier(r.Metadata()))
		ctx, span := o.start(ctx, name, trace.SpanKindServer, r.Conn().RemoteAddr(), r.Len())
		returned := false
		defer func() {
			if !returned {
				err = errPanic // which Handle reports
			}
			n := len(reply)
			if reply == nil {
				n = -1
			}
			end(span, n, err)
		}()
		reply, err = h(ctx, r)
		returned = true
		return reply, err
	}
}

var errPanic = errors.New("the handler has panicked")
