package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
)

// A drained is a server whose handler of "wait" runs until it may end.
type drained struct {
	*pair
	options *rdma.Options
	l       *rdma.Listener
	began   chan context.Context
	release chan struct{}
	served  <-chan error
}

// draining returns such a server, with the function that calls the handler.
func draining(t *testing.T, serve func(h rdma.Handler) func(context.Context, *rdma.Conn) error) *drained {
	t.Helper()
	d := &drained{pair: machines(t), began: make(chan context.Context, 1), release: make(chan struct{})}
	d.start(t, serve)
	return d
}

func (d *drained) start(t *testing.T, serve func(h rdma.Handler) func(context.Context, *rdma.Conn) error) {
	t.Helper()
	d.l = d.listen(t, d.options)
	ctx := limit(t)
	d.onServer(func() {
		d.served = background(func() error { return d.l.Serve(ctx, serve(d.handle)) })
	})
}

func (d *drained) handle(ctx context.Context, r *rdma.Request) ([]byte, error) {
	if string(r.Bytes()) == "wait" {
		d.began <- ctx
		select {
		case <-d.release:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return r.Bytes(), nil
}

func handleAll(h rdma.Handler) func(context.Context, *rdma.Conn) error { return rdma.Handle(h, nil) }

// echoed makes a call, and checks its reply.
func echoed(ctx context.Context, c *rdma.Conn, request string) error {
	m, err := c.Call(ctx, []byte(request))
	if err == nil && string(m.Copy()) != request {
		err = errors.New("another reply")
	}
	return err
}

// TestListenerShutdown checks that a call in progress has its reply, and that later ones are not begun.
func TestListenerShutdown(t *testing.T) {
	d := draining(t, handleAll)
	ctx := limit(t)
	var c, idle *rdma.Conn
	d.onClient(func() {
		c = must(rdma.Dial(ctx, d.addr(d.l), nil))(t)
		idle = must(rdma.Dial(ctx, d.addr(d.l), nil))(t)
	})
	check(t, echoed(ctx, idle, "served"))
	waits := background(func() error { return echoed(ctx, c, "wait") })
	<-d.began
	down := background(func() error { return d.l.Shutdown(ctx) })
	_, err := idle.Recv(ctx)
	isError(t, err, io.EOF)
	for _, n := range []int{1, 1000, 100000} { // also offered ones
		_, err := c.Call(ctx, make([]byte, n))
		isCallError(t, err, rdma.CodeUnavailable, "the server is shutting down, and has not begun to handle the call")
	}
	d.onClient(func() {
		if c, err := rdma.Dial(ctx, d.addr(d.l), nil); err == nil {
			t.Error("the listener accepts")
			check(t, c.Close())
		}
	})
	select {
	case err := <-down:
		t.Fatalf("Shutdown returns %v before the handler", err)
	default:
	}
	close(d.release)
	check(t, within(t, waits, "Call"))
	check(t, within(t, down, "Shutdown"))
	check(t, within(t, d.served, "Serve"))
	isError(t, echoed(ctx, c, "x"), io.EOF)
	check(t, c.Close())
	check(t, idle.Close())
}

// TestListenerShutdownTime checks that the connection of a handler that does not return in time is closed, of which
// Serve does not warn.
func TestListenerShutdownTime(t *testing.T) {
	var text bytes.Buffer
	d := &drained{pair: machines(t), began: make(chan context.Context, 1), release: make(chan struct{})}
	d.options = &rdma.Options{Logger: slog.New(slog.NewTextHandler(&text, nil))}
	d.start(t, handleAll)
	ctx := limit(t)
	var c *rdma.Conn
	d.onClient(func() { c = must(rdma.Dial(ctx, d.addr(d.l), nil))(t) })
	waits := background(func() error { return echoed(ctx, c, "wait") })
	handler := <-d.began
	soon, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	err := d.l.Shutdown(soon)
	isError(t, err, context.DeadlineExceeded)
	if !strings.Contains(err.Error(), "1 connection had handlers in progress") {
		t.Errorf("Shutdown returns %v", err)
	}
	<-handler.Done()
	isError(t, within(t, waits, "Call"), rdma.ErrDisconnected)
	check(t, within(t, d.served, "Serve"))
	check(t, d.l.Shutdown(ctx))
	mayLose(t, c.Close())
	if strings.Contains(text.String(), net.ErrClosed.Error()) {
		t.Errorf("the log is %s", &text)
	}
}

// TestListenerShutdownIdle checks that connections without calls are no handlers in progress when ctx ends.
func TestListenerShutdownIdle(t *testing.T) {
	d := draining(t, handleAll)
	ctx, cancel := context.WithCancel(limit(t))
	var conns []*rdma.Conn
	d.onClient(func() {
		for range 8 {
			conns = append(conns, must(rdma.Dial(ctx, d.addr(d.l), nil))(t))
		}
	})
	for _, c := range conns {
		check(t, echoed(ctx, c, "x"))
	}
	cancel()
	err := d.l.Shutdown(ctx)
	mayLose(t, err) // it does not wait until the replies are acknowledged
	if err != nil && strings.Contains(err.Error(), "in progress") {
		t.Errorf("Shutdown returns %v", err)
	}
	check(t, within(t, d.served, "Serve"))
	for _, c := range conns {
		mayLose(t, c.Close())
	}
}

// TestListenerShutdownAccepts checks that Shutdown waits for a connection that Accept is about to return to Serve.
func TestListenerShutdownAccepts(t *testing.T) {
	p := machines(t)
	ctx := limit(t)
	accepted, goOn, began := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var returned atomic.Bool
	o := &rdma.Options{Trace: &rdma.Trace{Connected: func(*rdma.Conn) { close(accepted); <-goOn }}}
	l := p.listen(t, o)
	served := background(func() error {
		return l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error {
			close(began)
			_, err := c.Recv(ctx)
			returned.Store(true)
			return err
		})
	})
	var c *rdma.Conn
	p.onClient(func() { c = must(rdma.Dial(ctx, p.addr(l), nil))(t) })
	<-accepted
	closed := background(func() error { _, err := l.Accept(ctx); return err })
	down := background(func() error {
		err := l.Shutdown(ctx)
		if !returned.Load() {
			t.Error("Shutdown returns before the connection is served")
		}
		return err
	})
	isError(t, within(t, closed, "Accept"), net.ErrClosed)
	close(goOn)
	<-began
	check(t, within(t, down, "Shutdown"))
	check(t, within(t, served, "Serve"))
	mayLose(t, c.Close())
}

// TestShutdownOfLoops shuts down servers that receive themselves, or by ServeCalls.
func TestShutdownOfLoops(t *testing.T) {
	for name, serve := range map[string]func(h rdma.Handler) func(context.Context, *rdma.Conn) error{
		"ServeCalls": func(rdma.Handler) func(context.Context, *rdma.Conn) error {
			return func(ctx context.Context, c *rdma.Conn) error {
				return c.ServeCalls(ctx, func(b []byte) []byte { return b })
			}
		},
		"Recv": func(h rdma.Handler) func(context.Context, *rdma.Conn) error {
			return func(ctx context.Context, c *rdma.Conn) error {
				for {
					m, err := c.Recv(ctx)
					if err != nil {
						return err
					}
					reply, err := h(ctx, &rdma.Request{Message: m})
					if err = errors.Join(err, m.Reply(ctx, reply)); err != nil {
						return err
					}
					m.Release()
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := draining(t, serve)
			ctx := limit(t)
			var c *rdma.Conn
			d.onClient(func() { c = must(rdma.Dial(ctx, d.addr(d.l), nil))(t) })
			check(t, echoed(ctx, c, "x"))
			if name == "Recv" {
				waits := background(func() error { return echoed(ctx, c, "wait") })
				<-d.began
				sent := c.Stats().Sent
				next := background(func() error { return echoed(ctx, c, "next") })
				until(t, "the next call is sent", func() bool { return c.Stats().Sent > sent })
				down := background(func() error { return d.l.Shutdown(ctx) })
				close(d.release)
				check(t, within(t, waits, "Call"))
				if err := within(t, next, "the next call"); err != nil && !errors.Is(err, io.EOF) {
					isCallError(t, err, rdma.CodeUnavailable,
						"the server is shutting down, and has not begun to handle the call")
				}
				check(t, within(t, down, "Shutdown"))
			} else {
				check(t, d.l.Shutdown(ctx))
			}
			check(t, within(t, d.served, "Serve"))
			check(t, c.Close())
		})
	}
}

// TestClientAfterShutdown checks that a Client calls the next server when one shuts down, and that Do calls once.
func TestClientAfterShutdown(t *testing.T) {
	d := draining(t, handleAll)
	ctx := limit(t)
	addr := d.addr(d.l)
	var cl *rdma.Client[struct{}]
	d.onClient(func() { cl = rdma.NewClient(addr, &rdma.ClientOptions[struct{}]{MinBackoff: time.Millisecond}) })
	request := func(text string) func(ctx context.Context, c *rdma.Conn, _ struct{}) error {
		return func(ctx context.Context, c *rdma.Conn, _ struct{}) error { return echoed(ctx, c, text) }
	}
	var waits <-chan error
	d.onClient(func() { waits = background(func() error { return cl.Do(ctx, request("wait")) }) })
	<-d.began
	first, release := d.l, d.release
	down := background(func() error { return first.Shutdown(ctx) })
	d.onClient(func() {
		until(t, "calls are refused", func() bool {
			err := cl.Do(ctx, request("x"))
			if err != nil {
				isCallError(t, err, rdma.CodeUnavailable, "the server is shutting down, and has not begun to handle the call")
			}
			return err != nil
		})
	})
	served := d.served
	d.start(t, handleAll)
	d.onClient(func() { check(t, cl.Retry(ctx, request("again"))) })
	close(release)
	check(t, within(t, waits, "Do"))
	check(t, within(t, down, "Shutdown"))
	check(t, within(t, served, "Serve"))
	check(t, cl.Close())
	check(t, d.l.Shutdown(ctx))
	check(t, within(t, d.served, "Serve"))
}
