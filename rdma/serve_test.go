package rdma_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestServeDeviceRemoved removes the device of a listener that is bound to it.
func TestServeDeviceRemoved(t *testing.T) {
	m := verbstest.New(t)
	l := must(rdma.Listen(m.AddrPort(7471).String(), nil))(t)
	ctx := limit(t)
	served := background(func() error {
		return l.Serve(ctx, func(context.Context, *rdma.Conn) error { return nil })
	})
	m.RemoveDevice()
	isError(t, within(t, served, "Serve"), uverbs.ErrDeviceGone)
}

// TestServeEnds ends Serve by its context and by Close.
func TestServeEnds(t *testing.T) {
	for name, end := range map[string]func(cancel func(), l *rdma.Listener) error{
		"context": func(cancel func(), _ *rdma.Listener) error { cancel(); return nil },
		"Close":   func(_ func(), l *rdma.Listener) error { return l.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			verbstest.New(t)
			l := must(rdma.Listen(":7471", nil))(t)
			ctx, cancel := context.WithCancel(limit(t))
			defer cancel()
			served := background(func() error {
				return l.Serve(ctx, func(context.Context, *rdma.Conn) error { return nil })
			})
			check(t, end(cancel, l))
			check(t, within(t, served, "Serve"))
		})
	}
}

// TestServePanic has handlers that panic. Each ends its connection, and no other one.
func TestServePanic(t *testing.T) {
	var text bytes.Buffer
	p := machines(t)
	ctx, stop := context.WithCancel(limit(t))
	defer stop()
	l := p.listen(t, &rdma.Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
	served := make(chan error, 1)
	p.onServer(func() {
		go func() {
			served <- l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error {
				m, err := c.Recv(ctx)
				if err != nil {
					return err
				}
				switch how := string(m.Copy()); how {
				case "panic":
					panic("in the handler")
				case "exit":
					runtime.Goexit()
				}
				return c.ServeCalls(ctx, func(b []byte) []byte {
					if string(b) == "panic" {
						panic("in a call")
					}
					return b
				})
			})
		}()
	})
	p.onClient(func() {
		good := must(rdma.Dial(ctx, p.addr(l), nil))(t)
		check(t, good.Send(ctx, []byte("serve")))
		for _, how := range []string{"panic", "exit", "serve"} {
			c := must(rdma.Dial(ctx, p.addr(l), nil))(t)
			check(t, c.Send(ctx, []byte(how)))
			_, err := c.Call(ctx, []byte("panic"))
			isError(t, err, rdma.ErrDisconnected)
			isError(t, err, io.ErrUnexpectedEOF)
			mayLose(t, c.Close())
		}
		m := must(good.Call(ctx, []byte("x")))(t)
		if string(m.Copy()) != "x" {
			t.Error("another reply")
		}
		check(t, good.Close())
	})
	stop()
	check(t, <-served)
	for _, want := range []string{"in the handler", "in a call", "serve_test.go"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not logged: %s", want, text.String())
		}
	}
}

// TestListenDialAccept listens, dials, sends and closes before it accepts, in one goroutine. Nothing is lost.
func TestListenDialAccept(t *testing.T) {
	p := machines(t)
	ctx := limit(t)
	l := p.listen(t, nil)
	const conns = 3
	for i := range conns {
		var c *rdma.Conn
		p.onClient(func() { c = must(rdma.Dial(ctx, p.addr(l), nil))(t) })
		check(t, c.Send(ctx, numbered(0, 100+i)))
		check(t, c.Close())
	}
	seen := map[int]bool{}
	for range conns {
		c := must(l.Accept(ctx))(t)
		m := must(c.Recv(ctx))(t)
		seen[m.Len()] = true
		m.Release()
		if n, err := receiveRest(t, c); n != 0 || err != io.EOF {
			t.Errorf("%d further messages, then %v", n, err)
		}
		check(t, c.Close())
	}
	if len(seen) != conns {
		t.Errorf("the messages of %d connections have come, not of %d", len(seen), conns)
	}
	check(t, l.Close())
}
