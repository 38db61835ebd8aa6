package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/rdma"
)

// TestMetadataAfterReply checks that an interceptor has the metadata of a call whose handler has replied itself.
func TestMetadataAfterReply(t *testing.T) {
	after := make(chan string, 1)
	p, served := handled(t, nil, func(ctx context.Context, r *rdma.Request) ([]byte, error) {
		err := r.Reply(ctx, nil)
		after <- fmt.Sprint(r.Metadata(), r.Message.Metadata())
		return nil, err
	}, nil)
	for want, ctx := range map[string]context.Context{
		"map[] map[]":         limit(t),
		"map[tenant:a] map[]": rdma.WithMetadata(limit(t), "tenant", "a"),
	} {
		m := must(p.client.Call(ctx, nil))(t)
		m.Release()
		if got := <-after; got != want {
			t.Errorf("the metadata is %s, want %s", got, want)
		}
	}
	check(t, p.client.Close())
	check(t, within(t, served, "Handle"))
}

// TestCodePassedOn checks that the code of another server is not that of a handler which has called it, unless the
// handler returns the CallError itself.
func TestCodePassedOn(t *testing.T) {
	of := &rdma.Error{Op: "call", Err: &rdma.CallError{Code: rdma.CodeUnavailable, Text: "backend"}}
	errs := map[string]error{
		"returned": of,
		"joined":   errors.Join(errors.New("ask"), of),
		"own":      fmt.Errorf("%w: %w", &rdma.CallError{Code: rdma.CodeNotFound, Text: "x"}, of),
		"itself":   of.Err,
	}
	p, served := handled(t, nil, func(_ context.Context, r *rdma.Request) ([]byte, error) {
		return nil, errs[string(r.Bytes())]
	}, nil)
	for name, want := range map[string]rdma.Code{"returned": rdma.CodeUnknown, "joined": rdma.CodeUnknown,
		"own": rdma.CodeNotFound, "itself": rdma.CodeUnavailable} {
		_, err := p.client.Call(limit(t), []byte(name))
		var got *rdma.CallError
		if !errors.As(err, &got) || got.Code != want {
			t.Errorf("%s: the error is %v, want code %d", name, err, want)
		}
	}
	check(t, p.client.Close())
	check(t, within(t, served, "Handle"))
}

// TestCallBufferOwner checks to whom the buffer of a call that returns an error belongs.
func TestCallBufferOwner(t *testing.T) {
	p, served := handled(t, nil, func(context.Context, *rdma.Request) ([]byte, error) {
		return nil, &rdma.CallError{Code: rdma.CodeNotFound, Text: "no"}
	}, nil)
	for _, n := range []int{0, 10, 5000} {
		b := must(p.client.Alloc(n))(t)
		_, err := p.client.CallBuffer(limit(t), b)
		isCallError(t, err, rdma.CodeNotFound, "no")
		if b.Cap() != 0 {
			t.Errorf("%d bytes: the buffer of a call that was sent is not released", n)
		}
	}
	b := must(p.client.Alloc(10))(t)
	ctx, cancel := context.WithCancel(limit(t))
	cancel()
	_, err := p.client.CallBuffer(ctx, b)
	isError(t, err, context.Canceled)
	if b.Cap() == 0 {
		t.Error("the buffer of a call that was not sent is released")
	}
	b.Release()
	check(t, p.client.Close())
	check(t, within(t, served, "Handle"))
}
