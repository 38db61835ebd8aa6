package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// start starts a server on m. stop ends it, as an interrupt does.
func start(t *testing.T, m *verbstest.Machine) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	m.Run(func() { go func() { served <- run(ctx, []string{"serve", ":7471"}, nil) }() })
	return func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

// command runs a command of the client.
func command(t *testing.T, m *verbstest.Machine, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	m.Run(func() {
		if err := run(ctx, args, &out); err != nil {
			t.Error(err)
		}
	})
	return out.String()
}

// TestCommands puts and gets.
func TestCommands(t *testing.T) {
	n := verbstest.NewNetwork(t)
	here, there := n.Machine(), n.Machine()
	addr := there.AddrPort(7471).String()
	stop := start(t, there)
	for i, want := range []string{"version 1\n", "version 2\n"} {
		if got := command(t, here, "put", addr, "colour", fmt.Sprint("blue", i)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got, want := command(t, here, "get", addr, "colour"), "blue1 (version 2)\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	stop()
}

// TestBench runs the workers while packets are lost, and while the server is restarted: no value is wrong.
func TestBench(t *testing.T) {
	type network = verbstest.Network
	type machine = verbstest.Machine
	for name, trouble := range map[string]func(t *testing.T, n *network, there *machine, stop func()) (again func()){
		"quiet": func(_ *testing.T, _ *network, _ *machine, stop func()) func() { return stop },
		"loss": func(_ *testing.T, n *network, _ *machine, stop func()) func() {
			n.AddFault(verbstest.PacketFault{Action: verbstest.Drop, Probability: 0.0002})
			return stop
		},
		"restart": func(t *testing.T, _ *network, there *machine, stop func()) func() {
			stop()
			return start(t, there)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := verbstest.NewNetwork(t)
			n.Allow(verbstest.RemoteAccess) // a READ may arrive when the server has closed the region
			here, there := n.Machine(), n.Machine()
			addr := there.AddrPort(7471).String()
			stop := start(t, there)
			done := make(chan error, 1)
			here.Run(func() {
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					c := rdma.NewClient(addr, rdma.ClientOptions[rdma.Token]{Conns: 4, Setup: rdma.RecvToken})
					var out bytes.Buffer
					err := bench(ctx, c, 5, &out)
					if !strings.Contains(out.String(), "3200 operations in ") {
						t.Errorf("%q", &out)
					}
					if closed := c.Close(); closed != nil {
						t.Error(closed)
					}
					done <- err
				}()
			})
			stop = trouble(t, n, there, stop)
			if err := <-done; err != nil {
				t.Error(err)
			}
			stop()
		})
	}
}
