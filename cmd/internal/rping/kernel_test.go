//go:build device

package rping

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cmd/internal/program"
)

// deviceIP is the address of the guests' device.
const deviceIP = "10.9.0.1"

// serving starts a server and returns its port and a channel for its error.
func serving(t *testing.T, ctx context.Context, opt options, out io.Writer) (uint16, <-chan error) {
	t.Helper()
	opt.server, opt.port, opt.host = true, 0, deviceIP
	listener, err := listen(ctx, &opt)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- serveAll(ctx, listener, &opt, out) }()
	return listener.LocalAddr().Port(), served
}

func limit(t *testing.T) (context.Context, context.CancelCauseFunc) {
	timeout, stop := context.WithTimeout(context.Background(), time.Minute)
	ctx, cancel := context.WithCancelCause(timeout)
	t.Cleanup(func() {
		cancel(nil)
		stop()
	})
	return ctx, cancel
}

// clientOf returns the options of a client on the same machine.
func clientOf(opt options, port uint16, count int) *options {
	opt.host, opt.port, opt.count = deviceIP, port, count
	return &opt
}

func TestDevicePings(t *testing.T) {
	for name, opt := range map[string]options{
		"id's QP":  {size: 64, verbose: true, validate: true},
		"own QP":   {size: 64, verbose: true, validate: true, ownQP: true},
		"smallest": {size: minSize, verbose: true, validate: true},
		"largest":  {size: maxSize, verbose: true, validate: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, _ := limit(t)
			var server, client bytes.Buffer
			port, served := serving(t, ctx, opt, &server)
			const pings = 70 // the characters start again at A
			if err := runClient(ctx, clientOf(opt, port, pings), &client); err != nil {
				t.Error(err)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
			var want strings.Builder
			text := make([]byte, opt.size)
			for n := range pings {
				putText(text, n)
				want.WriteString("ping data: " + string(text[:opt.size-1]) + "\n")
			}
			if client.String() != want.String() {
				t.Errorf("the client printed %q", client.String())
			}
			if got := strings.ReplaceAll(server.String(), "server ", ""); got != want.String() {
				t.Errorf("the server printed %q", server.String())
			}
		})
	}
}

// TestDevicePersistent serves several clients until a signal ends them all.
func TestDevicePersistent(t *testing.T) {
	ctx, cancel := limit(t)
	opt := options{size: 64, validate: true, persistent: true}
	port, served := serving(t, ctx, opt, io.Discard)
	var all sync.WaitGroup
	for range backlog { // the kernel rejects more that wait
		all.Go(func() {
			if err := runClient(ctx, clientOf(opt, port, 20), io.Discard); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	endless := make(chan error, 1)
	lines := &firstWrite{done: make(chan struct{})}
	opt.verbose = true
	go func() { endless <- runClient(ctx, clientOf(opt, port, 0), lines) }()
	<-lines.done
	cancel(program.ErrInterrupted)
	for _, end := range []<-chan error{endless, served} {
		if err := <-end; !errors.Is(err, program.ErrInterrupted) && !errors.Is(err, errDisconnected) {
			t.Errorf("ended by %v", err)
		}
	}
}

// A firstWrite signals when the first line has been printed.
type firstWrite struct {
	once sync.Once
	done chan struct{}
}

func (w *firstWrite) Write(b []byte) (int, error) {
	w.once.Do(func() { close(w.done) })
	return len(b), nil
}

// TestDeviceSizes sends a text that is too long for the server's buffer.
func TestDeviceSizes(t *testing.T) {
	ctx, _ := limit(t)
	port, served := serving(t, ctx, options{size: 40}, io.Discard)
	if err := runClient(ctx, clientOf(options{size: 64}, port, 1), io.Discard); !errors.Is(err, errDisconnected) {
		t.Errorf("client: %v", err)
	}
	if err := <-served; err == nil || !strings.Contains(err.Error(), "use the same -S at both ends") {
		t.Errorf("server: %v", err)
	}
}

// TestDevicePingsAllocateNothing compares the allocations of a long run with those of a short one. The difference is
// due to the pings of both sides.
func TestDevicePingsAllocateNothing(t *testing.T) {
	mallocs := func(pings int) uint64 {
		ctx, _ := limit(t)
		opt := options{size: 64, validate: true}
		port, served := serving(t, ctx, opt, io.Discard)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := runClient(ctx, clientOf(opt, port, pings), io.Discard); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	mallocs(1)
	short, long := mallocs(1), mallocs(1001)
	if more := int64(long) - int64(short); more > 100 {
		t.Errorf("1000 pings allocate %d times", more)
	} else {
		t.Logf("1 ping: %d allocations, 1001 pings: %d", short, long)
	}
}
