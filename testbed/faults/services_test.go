//go:build vm

package faults

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
)

// testServices runs the examples on package rdma with faults: a key-value store whose server is killed, stopped and
// loses its device while clients use it, and a copy of a file.
func (p *pair) testServices(t *testing.T) {
	s := &services{pair: p}
	for _, name := range []string{"rkv", "rcp"} {
		program := vm.BuildProgram(t, "github.com/goverbs/goverbs/examples/"+name, "", "amd64")
		for i, e := range p.ends {
			path, err := e.guest.Install(program)
			if err != nil {
				t.Fatal(err)
			}
			s.paths[i] = append(s.paths[i], path)
		}
	}
	loss := fault{netem: "loss 0.3%"}
	t.Run("loss", func(t *testing.T) {
		p.disturb(t, loss)
		s.bench(t, func(*process) {})
		s.copy(t)
	})
	t.Run("SIGSTOP of the server", func(t *testing.T) {
		s.bench(t, func(server *process) {
			signal(t, server, syscall.SIGSTOP)
			p.nothingFrom(t, 2*time.Second)
			signal(t, server, syscall.SIGCONT)
		})
	})
	t.Run("SIGKILL of the server", func(t *testing.T) {
		s.bench(t, func(server *process) {
			signal(t, server, syscall.SIGKILL)
			_ = server.wait() // it was killed
			s.serve(t)
		})
	})
	t.Run("SIGKILL of a client", func(t *testing.T) {
		s.addr = p.at()
		s.serve(t)
		client := s.client(t)
		p.busy(t)
		signal(t, client, syscall.SIGKILL)
		_ = client.wait() // it was killed
		s.finish(t, s.client(t))
	})
	t.Run("removal of the server's device", func(t *testing.T) {
		s.bench(t, func(server *process) {
			e := p.ends[0]
			e.output(t, "rdma", "link", "del", "rxe0")
			signal(t, server, syscall.SIGTERM)
			_ = server.wait() // it may report the removal
			e.output(t, "rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0")
			e.gid = e.findGID(t)
			s.serve(t)
		})
	})
}

// services are the programs in both guests.
type services struct {
	*pair
	paths  [2][]string // by end: rkv, rcp
	addr   string      // of the store
	server *process
}

// serve starts the store at s.addr.
func (s *services) serve(t *testing.T) {
	t.Helper()
	s.server = s.ends[0].start(t, s.scale.limit, nil, s.paths[0][0], "serve", s.addr)
	if _, ok := s.server.await("serving", 1); !ok {
		t.Fatal(s.server)
	}
}

// client starts 64 workers that put and get, and check what they get.
func (s *services) client(t *testing.T) *process {
	return s.ends[1].start(t, s.scale.limit, nil, s.paths[1][0], "bench", s.addr)
}

// bench runs a client while something happens to the server.
func (s *services) bench(t *testing.T, happen func(server *process)) {
	t.Helper()
	s.addr = s.at()
	s.serve(t)
	client := s.client(t)
	s.busy(t)
	happen(s.server)
	s.finish(t, client)
}

// finish waits for a client, and ends the server.
func (s *services) finish(t *testing.T, client *process) {
	t.Helper()
	if err := client.wait(); err != nil || !strings.Contains(client.String(), " operations in ") {
		t.Errorf("%v\n%v\n%v", err, client, s.server)
	}
	t.Log(client)
	signal(t, s.server, syscall.SIGTERM)
	if err := s.server.wait(); err != nil {
		t.Errorf("%v\n%v", err, s.server)
	}
}

// copy copies a file of 8 MiB.
func (s *services) copy(t *testing.T) {
	t.Helper()
	at := s.at()
	s.ends[1].output(t, "sh", "-c", "head -c 8388608 /dev/urandom > /tmp/source")
	receiver := s.ends[0].start(t, s.scale.limit, nil, s.paths[0][1], "-l", at, "recv", "/tmp/target")
	if _, ok := receiver.await("waiting at", 1); !ok {
		t.Fatal(receiver)
	}
	s.ends[1].output(t, s.paths[1][1], "send", "/tmp/source", at)
	if err := receiver.wait(); err != nil {
		t.Fatalf("%v\n%v", err, receiver)
	}
	var sums [2]string
	for i, name := range []string{"target", "source"} {
		sums[i], _, _ = strings.Cut(s.ends[i].output(t, "sha256sum", "/tmp/"+name), " ")
		s.ends[i].output(t, "rm", "/tmp/"+name)
	}
	if sums[0] != sums[1] {
		t.Errorf("the copy is another file: %v", sums)
	}
}
