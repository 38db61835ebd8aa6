package perftest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// A guard listens to what a device tells of itself, from the beginning of a run
// to its end: a device that has failed completes nothing more, and only its
// events say so.
type guard struct {
	device string
	down   atomic.Bool // the port
	cancel context.CancelCauseFunc
	gone   chan struct{} // closed when the device is
	ended  chan struct{}
}

// An eventSource is a device's events.
type eventSource interface {
	NextEvent(context.Context) (uverbs.AsyncEvent, error)
}

// newGuard ends ctx, which it returns, when the device is gone.
func newGuard(ctx context.Context, o *Options, events eventSource) (*guard, context.Context) {
	g := &guard{device: o.device, gone: make(chan struct{}), ended: make(chan struct{})}
	ctx, g.cancel = context.WithCancelCause(ctx)
	go g.run(ctx, events, o.IBPort)
	return g, ctx
}

func (g *guard) run(ctx context.Context, events eventSource, port int) {
	defer close(g.ended)
	for {
		e, err := events.NextEvent(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !errors.Is(err, uverbs.ErrDeviceGone):
			g.cancel(&deviceError{fmt.Errorf("events of %s: %w", g.device, err)})
			return
		case err != nil || e.Type == uverbs.EventDeviceFatal:
			g.cancel(g.lost())
			close(g.gone)
			return
		case e.Type == uverbs.EventPortErr && e.Port == port:
			g.down.Store(true)
		case e.Type == uverbs.EventPortActive && e.Port == port:
			g.down.Store(false)
		}
	}
}

// lost is the error of a device that is gone.
func (g *guard) lost() error {
	return &deviceError{fmt.Errorf("%s has been removed, or has failed (dmesg tells which): %w", g.device, uverbs.ErrDeviceGone)}
}

// tellTime is how long the event of a failure may take after its first effect.
const tellTime = 500 * time.Millisecond

// cause puts the device's end in the place of what came of it, and says of a
// port that is down what it may explain.
func (g *guard) cause(err error) error {
	if g == nil || err == nil {
		return err
	}
	suspect := errors.Is(err, errGone) || errors.Is(err, uverbs.WCWRFlushErr)
	if suspect {
		select {
		case <-g.gone:
		case <-time.After(tellTime):
		}
	}
	select {
	case <-g.gone:
		return g.lost()
	default:
	}
	switch {
	case errors.Is(err, uverbs.ErrDeviceGone):
		return g.lost()
	case g.down.Load():
		return fmt.Errorf("%w; the port of %s has gone down meanwhile", err, g.device)
	}
	return err
}

func (g *guard) stop() {
	g.cancel(nil)
	<-g.ended
}
