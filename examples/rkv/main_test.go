package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
	"golang.org/x/sys/unix"
)

// A service is a server on one machine, and another machine for clients.
type service struct {
	*testing.T
	ctx         context.Context // limits the test
	net         *verbstest.Network
	here, there *verbstest.Machine
	interrupt   context.CancelFunc // of the server
	served      chan error
	benched     atomic.Bool // the workers have ended
}

func newService(t *testing.T) *service {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	s := &service{T: t, ctx: ctx, net: verbstest.NewNetwork(t)}
	s.net.Allow(verbstest.RemoteAccess) // a READ may arrive when the server has closed the region
	s.here, s.there = s.net.Machine(), s.net.Machine()
	s.start()
	return s
}

// start starts the server.
func (s *service) start() { s.startWith(rdma.NewRegion(slots * slotSize)) }

// startWith starts the server with a table.
func (s *service) startWith(table *rdma.Region) {
	var ctx context.Context
	ctx, s.interrupt = context.WithCancel(s.ctx)
	s.served = make(chan error, 1)
	verbstest.IgnoreRaces(s.T, table.Bytes()) // READs meet PUTs; the checksum shows it
	s.there.Run(func() { go func() { s.served <- serve(ctx, s.addr(), table) }() })
}

// stop interrupts the server.
func (s *service) stop() {
	s.Helper()
	s.interrupt()
	s.check(s.wait(s.served))
}

// addr returns the address of the server.
func (s *service) addr() string { return s.there.AddrPort(7471).String() }

// wait returns the error of what ends now.
func (s *service) wait(done <-chan error) error {
	s.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		s.Fatal("it does not end")
		return nil
	}
}

func (s *service) check(err error) {
	s.Helper()
	if err != nil {
		s.Error(err)
	}
}

// command runs a command of the client on a machine.
func (s *service) command(m *verbstest.Machine, args ...string) (out string, err error) {
	var b bytes.Buffer
	m.Run(func() { err = run(s.ctx, args, &b) })
	return b.String(), err
}

// bench runs the workers in the background.
func (s *service) bench(ctx context.Context, rounds int) (done <-chan error, out *bytes.Buffer) {
	ended := make(chan error, 1)
	out = new(bytes.Buffer)
	s.here.Run(func() {
		go func() {
			c := rdma.NewClient(s.addr(), &rdma.ClientOptions[rdma.Token]{Conns: 4, Setup: rdma.RecvToken})
			err := bench(ctx, c, rounds, out)
			if closed := c.Close(); closed != nil {
				s.Error(closed)
			}
			s.benched.Store(true)
			ended <- err
		}()
	})
	return ended, out
}

// untilPut waits until the workers have put more values, or have ended.
func (s *service) untilPut() {
	s.Helper()
	for first := 0; !s.benched.Load(); {
		out, err := s.command(s.here, "get", s.addr(), "common")
		_, text, _ := strings.Cut(out, " (version ")
		version := 0
		_, scanned := fmt.Sscanf(text, "%d)", &version)
		switch {
		case errors.Is(err, errNotFound):
			continue // the first PUT is under way
		case err != nil || scanned != nil:
			s.Fatalf("%q, %v, %v", out, err, scanned)
		case first == 0:
			first = version
		case version > first+10:
			return
		}
	}
}

// unreachable checks that a command of a client on the machine here does not reach the server now.
func (s *service) unreachable(args ...string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, 200*time.Millisecond)
	defer cancel()
	s.here.Run(func() {
		if err := run(ctx, args, nil); !errors.Is(err, context.DeadlineExceeded) {
			s.Errorf("%v, want a deadline", err)
		}
	})
}

func TestCommands(t *testing.T) {
	s := newService(t)
	for _, c := range []struct {
		args []string
		want string // the output, or the end of the error
	}{
		{[]string{"get", s.addr(), "colour"}, "not found"},
		{[]string{"put", s.addr(), "colour", "blue"}, "blue (version 1)\n"},
		{[]string{"put", s.addr(), "colour", "red"}, "red (version 2)\n"},
		{[]string{"get", s.addr(), "colour"}, "red (version 2)\n"},
		{[]string{"put", s.addr(), "\xff", ""}, " (version 1)\n"},
		{[]string{"get", s.addr(), "\xff"}, " (version 1)\n"},
		{[]string{"get", s.addr(), ""}, "not found"},
		{[]string{"put", s.addr(), "", "value"}, "no room for the record"},
		{[]string{"put", s.addr(), "long", strings.Repeat("x", slotSize-header-3)}, "no room for the record"},
		{[]string{"put", s.addr(), "long", strings.Repeat("x", 1<<16)}, "no room for the record"},
		{[]string{"put", s.addr(), "full", strings.Repeat("x", slotSize-header-4)}, "x (version 1)\n"},
		{[]string{"put", s.addr(), "full"}, "rkv bench ADDR"},
		{[]string{}, "rkv bench ADDR"},
	} {
		out, err := s.command(s.here, c.args...)
		if err != nil {
			out += err.Error()
		}
		if !strings.HasSuffix(out, c.want) || err != nil && out != err.Error() {
			t.Errorf("%.80q: %.80q, want %q", c.args, out, c.want)
		}
	}
	s.stop()
}

// TestTable fills the slots for a key.
func TestTable(t *testing.T) {
	table := make([]byte, slots*slotSize)
	var stored, refused int
	for i := 0; refused == 0; i++ {
		r := record{key: fmt.Sprint("key-", i), value: "v"}
		if offset(r.key, 0) != offset("key-0", 0) {
			continue
		}
		if version, err := store(table, r.encode()); version == 1 && err == nil {
			stored++
		} else {
			refused++
		}
	}
	if stored != probes {
		t.Errorf("%d records, want %d", stored, probes)
	}
	for _, request := range [][]byte{nil, {1}, make([]byte, slotSize), bytes.Repeat([]byte{255}, 2*slotSize)} {
		if v, err := store(table, request); v != 0 || err == nil {
			t.Errorf("%d bytes that are not a record have version %d: %v", len(request), v, err)
		}
	}
}

// TestBench runs the workers while something happens that is not the end of the server's memory: no value is wrong, and
// none is lost.
func TestBench(t *testing.T) {
	for name, happen := range map[string]func(s *service){
		"nothing": func(*service) {},
		"loss": func(s *service) {
			s.net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, Probability: 0.0003})
		},
		"reorder": func(s *service) {
			s.net.AddFault(verbstest.PacketFault{Action: verbstest.Reorder, Probability: 0.001})
		},
		"partition": func(s *service) {
			s.untilPut()
			heal := s.net.Partition(s.here, s.there)
			s.unreachable("get", s.addr(), "common")
			heal()
		},
		"long partition": func(s *service) { // the connections end
			s.untilPut()
			heal := s.net.Partition(s.here, s.there)
			for range 5 {
				s.unreachable("get", s.addr(), "common")
			}
			heal()
		},
		"server stands still": func(s *service) { // as after SIGSTOP: it carries out no calls, and its device works
			s.untilPut()
			storing.Lock()
			s.unreachable("put", s.addr(), "common", "")
			if _, err := s.command(s.here, "get", s.addr(), "common"); err != nil {
				s.Error(err)
			}
			storing.Unlock()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			if name == "long partition" {
				s.net.SetTimeouts(verbstest.Timeouts{Ack: 13}) // 33 ms
			}
			done, out := s.bench(s.ctx, 10)
			happen(s)
			s.check(s.wait(done))
			if !strings.Contains(out.String(), "6400 operations in ") || !strings.Contains(out.String(), " 0 values lost") {
				t.Errorf("%q", out)
			}
			s.stop()
		})
	}
}

// TestRestart restarts the server while the workers run: they connect again, and values may be lost, but none is wrong.
func TestRestart(t *testing.T) {
	s := newService(t)
	done, out := s.bench(s.ctx, 10)
	for range 3 {
		s.untilPut()
		s.stop()
		s.start()
	}
	s.check(s.wait(done))
	if !strings.Contains(out.String(), "6400 operations in ") {
		t.Errorf("%q", out)
	}
	s.stop()
}

// TestServerGone has a server that does not come back: the workers try until their context ends.
func TestServerGone(t *testing.T) {
	for name, happen := range map[string]func(s *service){
		"killed":            func(s *service) { s.there.Kill() },
		"device is removed": func(s *service) { s.there.RemoveDevice() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			s.net.SetTimeouts(verbstest.Timeouts{Ack: 13, Reply: 50 * time.Millisecond})
			ctx, cancel := context.WithCancel(s.ctx)
			defer cancel()
			done, _ := s.bench(ctx, 1<<30)
			s.untilPut()
			happen(s)
			s.unreachable("get", s.addr(), "common")
			cancel()
			if err := s.wait(done); !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want that the context was canceled", err)
			}
			if err := s.wait(s.served); name == "killed" {
				t.Log(err) // of a program that did not run any more
			} else if !errors.Is(err, uverbs.ErrDeviceGone) {
				t.Errorf("the server returns %v, want that the device was removed", err)
			}
		})
	}
}

// TestClientGone has workers whose machine fails. The server goes on.
func TestClientGone(t *testing.T) {
	for name, happen := range map[string]func(s *service){
		"killed":            func(s *service) { s.here.Kill() },
		"device is removed": func(s *service) { s.here.RemoveDevice() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			s.net.SetTimeouts(verbstest.Timeouts{Ack: 13, Reply: 50 * time.Millisecond})
			done, _ := s.bench(s.ctx, 1<<30)
			s.untilPut()
			happen(s)
			if err := s.wait(done); err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, want that the device is gone", err)
			}
			m := s.net.Machine()
			for i := range 3 {
				want := fmt.Sprintf("%d (version %d)\n", i, i+1)
				if out, err := s.command(m, "put", s.addr(), "key", fmt.Sprint(i)); err != nil || out != want {
					t.Errorf("%q, %v, want %q", out, err, want)
				}
			}
			s.stop()
		})
	}
}

// TestDamagedSlot gets a key whose slot has a checksum that stays wrong.
func TestDamagedSlot(t *testing.T) {
	s := newService(t)
	s.stop()
	table := rdma.NewRegion(slots * slotSize)
	r := record{key: "key", value: "value"}
	copy(table.Bytes()[offset("key", 0):], r.encode())
	table.Bytes()[offset("key", 0)]++
	s.startWith(table)
	if _, err := s.command(s.here, "get", s.addr(), "key"); !errors.Is(err, errTorn) {
		t.Errorf("get returns %v", err)
	}
	s.stop()
}

// TestCommandsFail has each command of the client's kernel fail, in turn.
func TestCommandsFail(t *testing.T) {
	s := newService(t)
	before := s.here.Commands()
	if _, err := s.command(s.here, "put", s.addr(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	failed := 0
	for n := range s.here.Commands() - before {
		s.here.FailCommand(n+1, unix.ENOMEM)
		if _, err := s.command(s.here, "put", s.addr(), "key", "value"); err != nil {
			failed++
		}
	}
	if failed == 0 {
		t.Error("no command has failed")
	}
	if _, err := s.command(s.net.Machine(), "get", s.addr(), "key"); err != nil {
		t.Error(err)
	}
	s.stop()
}
