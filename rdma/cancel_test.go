package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
)

// canceledCall makes a call that is canceled when the handler has begun.
func canceledCall(t *testing.T, c *rdma.Conn, began <-chan context.Context) (handler context.Context) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(limit(t))
	defer cancel(nil)
	called := background(func() error { _, err := c.Call(ctx, []byte("slow")); return err })
	handler = <-began
	gone := errors.New("gone")
	cancel(gone)
	isError(t, within(t, called, "Call"), gone)
	return handler
}

// isCanceled waits until a context has ended, and checks why.
func isCanceled(t *testing.T, ctx context.Context, cause error, text string) {
	t.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(patience):
		t.Fatal("the context does not end")
	}
	isError(t, ctx.Err(), context.Canceled)
	isError(t, context.Cause(ctx), cause)
	if !strings.Contains(context.Cause(ctx).Error(), text) {
		t.Errorf("the cause is %v, want %q", context.Cause(ctx), text)
	}
}

// TestCancelReachesHandler cancels calls while their handler runs. The only receive for messages of the server is that
// of the call.
func TestCancelReachesHandler(t *testing.T) {
	type key struct{}
	p := connect(t, nil, &rdma.Options{Depth: 1})
	ctx, stop := context.WithCancel(context.WithValue(limit(t), key{}, "value"))
	defer stop()
	began := make(chan context.Context, 1)
	served := background(func() error {
		return p.server.ServeCallsContext(ctx, func(ctx context.Context, request []byte) []byte {
			if string(request) == "slow" {
				began <- ctx
				<-ctx.Done()
			}
			return request
		})
	})
	for range 1100 { // more than there are numbers
		handler := canceledCall(t, p.client, began)
		isCanceled(t, handler, context.Canceled, "canceled by the peer")
		if handler.Value(key{}) != "value" {
			t.Fatal("the context has not the values of that of ServeCallsContext")
		}
	}
	m := must(p.client.Call(ctx, []byte("fast")))(t)
	if string(m.Copy()) != "fast" {
		t.Error("another reply")
	}
	check(t, p.client.Send(ctx, []byte("slow"))) // a message, whose handler ends with ctx
	handler := <-began
	stop()
	<-handler.Done()
	isError(t, within(t, served, "ServeCallsContext"), context.Canceled)
}

// TestCallWithOwnContext passes the context of a call to the connection that it is of.
func TestCallWithOwnContext(t *testing.T) {
	p := connect(t, nil, nil)
	served := background(func() error {
		ctx := limit(t)
		for range 2 {
			m, err := p.server.Recv(ctx)
			if err != nil {
				return err
			}
			own := context.WithValue(m.Context(), p, "value")
			reply := must(p.server.Call(own, []byte("from the server")))(t)
			reply.Release()
			check(t, p.server.Send(own, []byte("message")))
			check(t, m.Reply(own, m.Bytes()))
			m.Release()
		}
		return nil
	})
	answered := background(func() error {
		return p.client.ServeCalls(limit(t), func(request []byte) []byte { return request })
	})
	for range 2 {
		m := must(p.client.Call(limit(t), []byte("x")))(t)
		m.Release()
	}
	check(t, within(t, served, "the server"))
	check(t, p.server.Close())
	check(t, within(t, answered, "the client"))
}

// TestCancelOfMany cancels several calls with one context, after which no call waits on the client.
func TestCancelOfMany(t *testing.T) {
	const calls = 8
	p := connect(t, nil, nil)
	began, ended := make(chan struct{}, calls), make(chan struct{}, calls)
	var handlers sync.WaitGroup
	served := background(func() error {
		defer handlers.Wait()
		for range calls {
			m, err := p.server.Recv(limit(t))
			if err != nil {
				return err
			}
			handlers.Go(func() {
				defer m.Release()
				began <- struct{}{}
				<-m.Context().Done()
				ended <- struct{}{}
				check(t, m.Reply(limit(t), nil))
			})
		}
		return nil
	})
	ctx, cancel := context.WithCancel(limit(t))
	var callers sync.WaitGroup
	for range calls {
		callers.Go(func() {
			_, err := p.client.Call(ctx, []byte("slow"))
			isError(t, err, context.Canceled)
		})
	}
	for range calls {
		<-began
	}
	cancel()
	callers.Wait()
	for range calls {
		<-ended
	}
	check(t, within(t, served, "the server"))
}

// TestServeAfterCancel checks that ServeCallsContext returns nil if the peer has closed the connection before the reply
// to a call that it has canceled.
func TestServeAfterCancel(t *testing.T) {
	p := connect(t, nil, nil)
	began, closed := make(chan context.Context, 1), make(chan struct{})
	served := background(func() error {
		return p.server.ServeCallsContext(limit(t), func(ctx context.Context, request []byte) []byte {
			began <- ctx
			<-closed
			return request
		})
	})
	canceledCall(t, p.client, began)
	check(t, p.client.Close())
	var err error
	for err == nil { // until the server has noticed
		err = p.server.Send(limit(t), nil)
	}
	isError(t, err, io.EOF)
	close(closed)
	check(t, within(t, served, "ServeCallsContext"))
}

// TestContextOfHandler checks why the context of a handler of ServeCallsContext ends when the handler has returned.
func TestContextOfHandler(t *testing.T) {
	p := connect(t, nil, nil)
	handlers := make(chan context.Context, 2)
	served := background(func() error {
		return p.server.ServeCallsContext(limit(t), func(ctx context.Context, _ []byte) []byte {
			handlers <- ctx
			return nil
		})
	})
	must(p.client.Call(limit(t), nil))(t).Release()
	check(t, p.client.Send(limit(t), nil))
	for range 2 {
		isCanceled(t, <-handlers, context.Canceled, "the handler has returned")
	}
	check(t, p.client.Close())
	check(t, within(t, served, "ServeCallsContext"))
}

// TestContextEnds checks what ends the context of a call, or of a message, other than a cancel.
func TestContextEnds(t *testing.T) {
	for _, end := range []struct {
		name  string
		f     func(p *pair, m rdma.Message) error
		cause error
		text  string
		call  bool // only the context of a call ends
	}{
		{"reply", func(_ *pair, m rdma.Message) error { return m.Reply(context.Background(), nil) }, context.Canceled,
			"has its reply", true},
		{"Close", func(p *pair, m rdma.Message) error { m.Release(); return p.server.Close() }, net.ErrClosed, "", false},
		{"Close of the peer", func(p *pair, m rdma.Message) error { m.Release(); return p.client.Close() }, io.EOF, "",
			false},
		{"reason of the peer", func(p *pair, m rdma.Message) error {
			return p.client.CloseWithError(7, "reason")
		}, rdma.ErrDisconnected, "reason", false},
	} {
		t.Run(end.name, func(t *testing.T) {
			p := connect(t, nil, nil)
			ctx := limit(t)
			called := background(func() error {
				m, err := p.client.Call(ctx, nil)
				m.Release()
				return err
			})
			call := must(p.server.Recv(ctx))(t)
			check(t, p.client.Send(ctx, nil))
			message := must(p.server.Recv(ctx))(t)
			message.Release()
			ofCall, ofMessage := call.Context(), message.Context()
			if ofCall != call.Context() || ofCall.Err() != nil || ofMessage.Err() != nil {
				t.Fatal("the contexts have ended, or are others")
			}
			check(t, end.f(p, call))
			isCanceled(t, ofCall, end.cause, end.text)
			isCanceled(t, call.Context(), end.cause, end.text)
			if end.call {
				check(t, ofMessage.Err())
			} else {
				isCanceled(t, ofMessage, end.cause, end.text)
			}
			call.Release()
			err := within(t, called, "Call")
			if (err == nil) != end.call {
				t.Errorf("Call returns %v", err)
			}
		})
	}
	if rdma.Message.Context(rdma.Message{}).Err() != nil {
		t.Error("the context of no message has ended")
	}
}

// TestContextErr checks that Err notices a cancel although nothing waits on the connection.
func TestContextErr(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	began := make(chan context.Context, 1)
	received := make(chan rdma.Message, 1)
	go func() {
		m, err := p.server.Recv(ctx)
		if err != nil {
			t.Error(err)
		}
		received <- m
		began <- m.Context()
	}()
	handler := canceledCall(t, p.client, began)
	until(t, "Err notices the cancel", func() bool { return handler.Err() != nil })
	m := <-received
	isCanceled(t, m.Context(), context.Canceled, "by the peer")
	check(t, m.Reply(ctx, nil))
	m.Release()
}

// TestCancelRace has calls whose contexts end about when the reply comes: each returns its own reply or the cause, and
// all numbers can be used again.
func TestCancelRace(t *testing.T) {
	p := connect(t, nil, nil)
	ctx, stop := context.WithCancel(limit(t))
	defer stop()
	served := background(func() error {
		var handlers sync.WaitGroup
		defer handlers.Wait()
		for {
			m, err := p.server.Recv(ctx)
			if err != nil {
				return err
			}
			handlers.Go(func() {
				defer m.Release()
				if m.Bytes()[0]%3 == 0 {
					select {
					case <-m.Context().Done():
					case <-time.After(time.Millisecond):
					}
				}
				if err := m.Reply(ctx, m.Bytes()); err != nil {
					t.Error(err)
				}
			})
		}
	})
	var callers sync.WaitGroup
	for i := range 1500 {
		callers.Go(func() {
			short, cancel := ctx, context.CancelFunc(func() {})
			if i%2 == 1 {
				short, cancel = context.WithTimeout(ctx, time.Duration(i%50)*100*time.Microsecond)
			}
			defer cancel()
			text := fmt.Sprintf("%c%d", i%7, i)
			m, err := p.client.Call(short, []byte(text))
			switch {
			case err == nil && string(m.Copy()) != text:
				t.Error("another reply")
			case err != nil && !errors.Is(err, context.DeadlineExceeded):
				t.Error(err)
			}
		})
	}
	callers.Wait()
	check(t, p.client.Err())
	check(t, p.server.Err())
	stop()
	isError(t, within(t, served, "the server"), context.Canceled)
}
