package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

const group = "239.1.2.3"

// A rig has a server on one machine, and another machine for clients.
type rig struct {
	*testing.T
	ctx         context.Context // limits the test
	net         *verbstest.Network
	here, there *verbstest.Machine
	interrupt   context.CancelFunc // of the server
	served      chan error
}

func newRig(t *testing.T) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	r := &rig{T: t, ctx: ctx, net: verbstest.NewNetwork(t)}
	r.here = r.net.Machine()
	r.start(r.net.Machine())
	return r
}

// start starts the server on a machine.
func (r *rig) start(m *verbstest.Machine) {
	var ctx context.Context
	ctx, r.interrupt = context.WithCancel(r.ctx)
	served := make(chan error, 1)
	r.there, r.served = m, served
	m.Run(func() { go func() { served <- run(ctx, "serve", group, &rdma.GroupOptions{}, 0, 0, nil) }() })
}

// stop interrupts the server.
func (r *rig) stop() {
	r.Helper()
	r.interrupt()
	if err := <-r.served; err != nil {
		r.Error(err)
	}
}

// ping starts a client. Its lines arrive at printed, and its error at the end at ended.
func (r *rig) ping(ctx context.Context, count int) (printed lines, ended chan error) {
	printed, ended = make(lines, count+10), make(chan error, 1)
	r.here.Run(func() {
		go func() { ended <- run(ctx, "ping", group, &rdma.GroupOptions{}, count, 64, printed) }()
	})
	return printed, ended
}

// lines receives what a client prints, a line at a time.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// finds waits until the client has found a server.
func (r *rig) finds(printed lines, ended chan error) {
	r.Helper()
	select {
	case l := <-printed:
		if !strings.HasPrefix(l, "found a server: QP 0x") {
			r.Fatalf("the client prints %q", l)
		}
	case err := <-ended:
		r.Fatal(err)
	}
}

// TestEcho checks that a client finds the server and gets its datagrams back, also if some are lost.
func TestEcho(t *testing.T) {
	for name, fault := range map[string]verbstest.PacketFault{
		"quiet": {},
		"loss":  {Action: verbstest.Drop, Skip: 6, Count: 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if fault.Count > 0 {
				r.net.AddFault(fault)
			}
			var out bytes.Buffer
			r.here.Run(func() {
				if err := run(r.ctx, "ping", group, &rdma.GroupOptions{}, 20, 64, &out); err != nil {
					t.Error(err)
				}
			})
			r.stop()
			none := strings.Contains(out.String(), "20 pings, 0 lost;")
			if !strings.Contains(out.String(), "20 pings, ") || none && fault.Count > 0 {
				t.Errorf("the client printed %q", &out)
			}
		})
	}
}

// TestServerGone has a server that ends or that nobody hears any more: the client finds the one that takes its place.
func TestServerGone(t *testing.T) {
	for name, replace := range map[string]func(r *rig){
		"restart": func(r *rig) {
			r.stop()
			r.start(r.there)
		},
		"killed": func(r *rig) {
			r.there.Kill()
			served := r.served
			r.start(r.net.Machine())
			r.Cleanup(func() { <-served }) // it does not run any more, and ends with the test
		},
		"device is removed": func(r *rig) {
			r.there.RemoveDevice()
			if err := <-r.served; !errors.Is(err, uverbs.ErrDeviceGone) {
				r.Errorf("the server returns %v, want that the device was removed", err)
			}
			r.start(r.net.Machine())
		},
		"silence": func(r *rig) {
			heal := r.net.Partition(r.here, r.there)
			time.AfterFunc(1500*time.Millisecond, heal) // longer than a client waits
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			ctx, cancel := context.WithCancel(r.ctx)
			printed, ended := r.ping(ctx, 1<<20)
			r.finds(printed, ended)
			replace(r)
			r.finds(printed, ended)
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the client returns %v, want that it was interrupted", err)
			}
			r.stop()
		})
	}
}

// TestClientGone removes the client's device: the client reports it, and the server serves others.
func TestClientGone(t *testing.T) {
	r := newRig(t)
	printed, ended := r.ping(r.ctx, 1<<20)
	r.finds(printed, ended)
	r.here.RemoveDevice()
	if err := <-ended; !errors.Is(err, uverbs.ErrDeviceGone) {
		t.Errorf("the client returns %v, want that the device was removed", err)
	}
	r.here = r.net.Machine()
	printed, ended = r.ping(r.ctx, 10)
	r.finds(printed, ended)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if l := <-printed; !strings.Contains(l, "10 pings, 0 lost;") {
		t.Errorf("the client prints %q", l)
	}
	r.stop()
}
