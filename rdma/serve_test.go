package rdma_test

import (
	"context"
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
