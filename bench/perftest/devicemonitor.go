package perftest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// A deviceMonitor reads the asynchronous events of a device during a run. A device that
// has failed completes nothing more, and only its events report it.
type deviceMonitor struct {
	device  string
	down    atomic.Bool // whether the port is down
	cancel  context.CancelCauseFunc
	fatal   chan struct{} // closed when the device is gone
	stopped chan struct{}
}

// An eventSource returns a device's events. *uverbs.Context is one.
type eventSource interface {
	NextEvent(context.Context) (uverbs.AsyncEvent, error)
}

// newDeviceMonitor starts a monitor. The context that it returns ends when the device
// is gone.
func newDeviceMonitor(ctx context.Context, o *Options, events eventSource) (*deviceMonitor, context.Context) {
	g := &deviceMonitor{device: o.device, fatal: make(chan struct{}), stopped: make(chan struct{})}
	ctx, g.cancel = context.WithCancelCause(ctx)
	go g.run(ctx, events, o.IBPort)
	return g, ctx
}

func (g *deviceMonitor) run(ctx context.Context, events eventSource, port int) {
	defer close(g.stopped)
	for {
		e, err := events.NextEvent(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !errors.Is(err, uverbs.ErrDeviceGone):
			g.cancel(&deviceError{fmt.Errorf("events of %s: %w", g.device, err)})
			return
		case err != nil || e.Type == uverbs.EventDeviceFatal:
			g.cancel(g.goneError())
			close(g.fatal)
			return
		case e.Type == uverbs.EventPortErr && e.Port == port:
			g.down.Store(true)
		case e.Type == uverbs.EventPortActive && e.Port == port:
			g.down.Store(false)
		}
	}
}

// goneError returns the error of a device that is gone.
func (g *deviceMonitor) goneError() error {
	return &deviceError{fmt.Errorf("%s has been removed, or has failed (see dmesg): %w", g.device, uverbs.ErrDeviceGone)}
}

// eventDelay is how long the event of a failure may arrive after the first effect of
// the failure.
const eventDelay = 500 * time.Millisecond

// cause returns the error of the device in place of err if the device is gone, and adds
// to err that the port went down.
func (g *deviceMonitor) cause(err error) error {
	if g == nil || err == nil {
		return err
	}
	suspect := errors.Is(err, errPeerClosed) || errors.Is(err, uverbs.WCWRFlushErr)
	if suspect {
		select {
		case <-g.fatal:
		case <-time.After(eventDelay):
		}
	}
	select {
	case <-g.fatal:
		return g.goneError()
	default:
	}
	switch {
	case errors.Is(err, uverbs.ErrDeviceGone):
		return g.goneError()
	case g.down.Load():
		return fmt.Errorf("%w; the port of %s went down during the run", err, g.device)
	}
	return err
}

func (g *deviceMonitor) stop() {
	g.cancel(nil)
	<-g.stopped
}
