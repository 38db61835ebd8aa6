//go:build vm

package faults

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
)

// services are examples in two guests: on package rdma a key-value store, a copy of a file, and an echo of datagrams,
// on package rsocket a web server. The servers and the receiver run in the first guest.
type services struct {
	devices devices
	ends    [2]*end
	paths   [2]map[string]string // of the programs, by end and name
	limit   time.Duration        // of one run of a program
	at      func() string        // returns an address in the first guest with an unused port
	repeats string               // where the faults of the network and of processes alone happen in any case, or ""
}

// skipRepeat skips a fault that is the same on every device, unless it happens here only.
func (s *services) skipRepeat(t *testing.T, fault string) {
	t.Helper()
	if s.repeats != "" && (fault == "loss" || strings.HasPrefix(fault, "SIGSTOP")) {
		vm.SkipRepeat(t, s.repeats)
	}
}

// devices are the RDMA devices of two guests.
type devices interface {
	lose(t *testing.T, percent float64) // packets of both ends are lost until the test ends
	busy(t *testing.T)                  // waits until messages flow
	remove(t *testing.T)                // removes the first guest's device
	restore(t *testing.T)               // adds it again
	killing()                           // a process will be killed
}

func testServices(t *testing.T, s *services) {
	for i, e := range s.ends {
		s.paths[i] = map[string]string{}
		for _, name := range []string{"rkv", "rcp", "echo-ud", "http"} {
			path, err := e.guest.Install(vm.BuildProgram(t, "github.com/goverbs/goverbs/examples/"+name, "", "amd64"))
			if err != nil {
				t.Fatal(err)
			}
			s.paths[i][name] = path
		}
	}
	t.Run("rkv", s.testStore)
	t.Run("rcp", s.testCopy)
	t.Run("echo-ud", s.testEcho)
	t.Run("http", s.testWeb)
}

// start starts a program in one of the guests.
func (s *services) start(t *testing.T, end int, name string, args ...string) *process {
	t.Helper()
	return s.ends[end].start(t, s.limit, nil, s.paths[end][name], args...)
}

// stand stops a process for two seconds.
func stand(t *testing.T, p *process) {
	t.Helper()
	signal(t, p, syscall.SIGSTOP)
	lasting(t, 2*time.Second)
	signal(t, p, syscall.SIGCONT)
}

// kill kills a process with SIGKILL.
func (s *services) kill(t *testing.T, p *process) {
	t.Helper()
	s.devices.killing()
	signal(t, p, syscall.SIGKILL)
	_ = p.wait() // it was killed
}

// says checks that a process succeeds, and that a line of it has a text.
func says(t *testing.T, p *process, text string) {
	t.Helper()
	if err := p.wait(); err != nil || !strings.Contains(p.String(), text) {
		t.Errorf("%v, want %q\n%v", err, text, p)
	}
}

// fails checks that a process fails and reports why.
func fails(t *testing.T, p *process, why ...string) {
	t.Helper()
	err := p.wait()
	for _, w := range why {
		if err != nil && strings.Contains(p.String(), w) {
			t.Log(p)
			return
		}
	}
	t.Errorf("%v, want an error with one of %q\n%v", err, why, p)
}

// gone are the texts of uverbs.ErrDeviceGone: of package uverbs, and of the connection manager's event.
var gone = []string{"the device was removed or has failed", "the device has been removed"}

// testStore has a key-value store with 64 workers that put and get, and check what they get.
func (s *services) testStore(t *testing.T) {
	var at string
	serve := func(t *testing.T) *process {
		t.Helper()
		server := s.start(t, 0, "rkv", "serve", at)
		if _, ok := server.await("serving", 1); !ok {
			t.Fatal(server)
		}
		return server
	}
	for _, c := range []struct {
		name   string
		happen func(t *testing.T, server, client *process) (*process, *process) // returns those that take their place
	}{
		{"loss", func(t *testing.T, server, client *process) (*process, *process) { return server, client }},
		{"SIGSTOP of the server", func(t *testing.T, server, client *process) (*process, *process) {
			stand(t, server)
			return server, client
		}},
		{"SIGSTOP of a client", func(t *testing.T, server, client *process) (*process, *process) {
			stand(t, client)
			return server, client
		}},
		{"SIGKILL and restart of the server", func(t *testing.T, server, client *process) (*process, *process) {
			s.kill(t, server)
			return serve(t), client
		}},
		{"SIGKILL of a client", func(t *testing.T, server, client *process) (*process, *process) {
			s.kill(t, client)
			return server, s.start(t, 1, "rkv", "bench", at)
		}},
		{"removal of the server's device", func(t *testing.T, server, client *process) (*process, *process) {
			s.devices.remove(t)
			fails(t, server, gone...)
			s.devices.restore(t)
			return serve(t), client
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.skipRepeat(t, c.name)
			if c.name == "loss" {
				s.devices.lose(t, 0.3)
			}
			at = s.at()
			server, client := serve(t), s.start(t, 1, "rkv", "bench", at)
			s.devices.busy(t)
			server, client = c.happen(t, server, client)
			says(t, client, " operations in ")
			t.Log(client)
			signal(t, server, syscall.SIGTERM)
			says(t, server, "")
		})
	}
}
