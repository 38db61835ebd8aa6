//go:build device

package main

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// deviceIP is the address of the guests' device.
const deviceIP = "10.9.0.1"

func limit(t *testing.T) (context.Context, context.CancelCauseFunc) {
	timeout, stop := context.WithTimeout(context.Background(), time.Minute)
	ctx, cancel := context.WithCancelCause(timeout)
	t.Cleanup(func() {
		cancel(nil)
		stop()
	})
	return ctx, cancel
}

// serving starts a server and returns its port and a channel for its error.
func serving(t *testing.T, ctx context.Context, opt options, out io.Writer) (string, <-chan error) {
	t.Helper()
	opt.bind, opt.port = deviceIP, "0"
	s, err := newTest(ctx, &opt, out)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.listen(); err != nil {
		t.Fatal(errors.Join(err, s.close()))
	}
	served := make(chan error, 1)
	port := strconv.Itoa(int(s.listener.LocalAddr().Port()))
	go func() { served <- errors.Join(s.serve(), s.close()) }()
	return port, served
}

// client runs a client against a server on the same machine.
func client(t *testing.T, ctx context.Context, opt options, port string, out io.Writer) error {
	t.Helper()
	opt.server, opt.port = deviceIP, port
	c, err := newTest(ctx, &opt, out)
	if err != nil {
		return err
	}
	return errors.Join(c.connect(), c.close())
}

func TestDeviceConnections(t *testing.T) {
	tos, timeout := uint8(32), uint8(17)
	for name, change := range map[string]func(*options){
		"one":     func(*options) {},
		"many":    func(o *options) { o.connections, o.count, o.size = 20, 7, 333 },
		"none":    func(o *options) { o.connections, o.count = 3, 0 },
		"ib":      func(o *options) { o.portSpace = cm.PSIB },
		"options": func(o *options) { o.tos, o.ackTimeout, o.format = &tos, &timeout, cm.NumericHost },
		"migrate": func(o *options) { o.connections, o.migrate = 3, true },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, _ := limit(t)
			opt := defaults()
			change(opt)
			var server strings.Builder
			port, served := serving(t, ctx, *opt, &server)
			if err := client(t, ctx, *opt, port, io.Discard); err != nil {
				t.Error(err)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
			if !strings.HasSuffix(server.String(), "cmatose: disconnecting\ndisconnected\n") {
				t.Errorf("the server printed %q", server.String())
			}
		})
	}
}

// TestDeviceSizes lets the server send messages larger than the client's buffers.
func TestDeviceSizes(t *testing.T) {
	ctx, _ := limit(t)
	opt := defaults()
	opt.size = 200
	port, served := serving(t, ctx, *opt, io.Discard)
	opt.size = 100
	if err := client(t, ctx, *opt, port, io.Discard); err == nil {
		t.Error("the client accepted a message that is too long")
	}
	if err := <-served; err == nil {
		t.Error("the server sent a message that is too long")
	}
}

// TestDeviceInterrupted interrupts a server that waits for a second client, and checks that the first client is
// disconnected.
func TestDeviceInterrupted(t *testing.T) {
	server, interrupt := limit(t)
	ctx, _ := limit(t)
	opt := defaults()
	opt.connections = 2
	port, served := serving(t, server, *opt, io.Discard)
	opt.connections = 1
	lines := &watcher{line: "receiving data transfers\n", seen: make(chan struct{})}
	left := make(chan error, 1)
	go func() { left <- client(t, ctx, *opt, port, lines) }()
	<-lines.seen
	interrupt(program.ErrInterrupted)
	if err := <-served; !errors.Is(err, program.ErrInterrupted) {
		t.Errorf("server: %v", err)
	}
	if err := <-left; err == nil || !strings.Contains(err.Error(), "the peer has disconnected") {
		t.Errorf("client: %v", err)
	}
}

// A watcher signals when a line has been printed.
type watcher struct {
	line string
	seen chan struct{}
}

func (w *watcher) Write(b []byte) (int, error) {
	if string(b) == w.line {
		close(w.seen)
	}
	return len(b), nil
}
