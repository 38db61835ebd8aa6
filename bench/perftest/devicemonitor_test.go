package perftest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// A fakeDevice returns the events sent to the channel. If the channel is closed, the
// device is gone.
type fakeDevice chan uverbs.AsyncEvent

func (f fakeDevice) NextEvent(ctx context.Context) (uverbs.AsyncEvent, error) {
	select {
	case e, ok := <-f:
		if !ok {
			return e, uverbs.ErrDeviceGone
		}
		return e, nil
	case <-ctx.Done():
		return uverbs.AsyncEvent{}, context.Cause(ctx)
	}
}

// A device that fails or is removed ends the run's context, and is reported in place of
// the errors that follow from it.
func TestMonitorGone(t *testing.T) {
	for _, name := range []string{"fails", "is removed"} {
		f := make(fakeDevice)
		o := &Options{device: "mlx5_0", IBPort: 1}
		g, ctx := newDeviceMonitor(t.Context(), o, f)
		if name == "fails" {
			f <- uverbs.AsyncEvent{Type: uverbs.EventDeviceFatal}
		} else {
			close(f)
		}
		<-ctx.Done()
		v := &watchdog{parent: ctx, wire: &stateWire{gone: errPeerClosed}}
		for _, err := range []error{v.checkProgress(7), errPeerClosed, uverbs.WCWRFlushErr, uverbs.ErrDeviceGone,
			errors.New("status 5")} {
			if err := g.cause(err); !errors.Is(err, uverbs.ErrDeviceGone) ||
				!strings.HasPrefix(err.Error(), "mlx5_0 has been removed, or has failed") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := v.checkProgress(7); !figuresValid(err) || errors.Is(err, ErrInterrupted) {
			t.Errorf("%s: %v has no figures", name, err)
		}
		g.stop()
	}
}

// Errors mention a port that went down, until it is up again. Another port is not
// mentioned.
func TestMonitorPort(t *testing.T) {
	f := make(fakeDevice)
	g, ctx := newDeviceMonitor(t.Context(), &Options{device: "mlx5_0", IBPort: 1}, f)
	defer g.stop()
	silent := atPeer("", "the peer does not reply")
	for _, c := range []struct {
		e    uverbs.AsyncEvent
		down bool
	}{
		{uverbs.AsyncEvent{Type: uverbs.EventPortErr, Port: 2}, false},
		{uverbs.AsyncEvent{Type: uverbs.EventPortErr, Port: 1}, true},
		{uverbs.AsyncEvent{Type: uverbs.EventPortActive, Port: 1}, false},
	} {
		f <- c.e
		f <- uverbs.AsyncEvent{Type: uverbs.EventGIDChange} // now the event before it has been processed
		if err := g.cause(silent); strings.Contains(err.Error(), "the port of mlx5_0 went down") != c.down ||
			!errors.Is(err, silent) {
			t.Errorf("%+v: %v", c.e, err)
		}
	}
	if err := g.cause(nil); err != nil || ctx.Err() != nil {
		t.Errorf("%v, %v", err, ctx.Err())
	}
}

// If the device is not gone, errors remain as they are.
func TestMonitorOtherErrors(t *testing.T) {
	g, _ := newDeviceMonitor(t.Context(), &Options{device: "mlx5_0"}, make(fakeDevice))
	defer g.stop()
	if err := g.cause(errPeerClosed); err != errPeerClosed {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ended(ctx); err != ErrInterrupted {
		t.Error(err)
	}
}
