package foreign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ctxerr"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
)

// MaxNodes is how many nodes the programs of a machine can have open at the same time.
const MaxNodes = 256

// A Server executes the system calls of programs on a machine.
type Server struct {
	t       testing.TB
	run     func(func())
	machine machine.Machine
	device  string
	dir     string
	listen  *net.UnixListener

	mu     sync.Mutex
	change sync.Cond // of what Await checks
	conns  map[*net.UnixConn]bool
	names  map[cmName]int // keys of rdma_cm's files
	stats  Stats
	done   sync.WaitGroup
}

// Stats are what programs have done.
type Stats struct {
	Nodes    int // that are open now
	Commands int
	Stores   int // to registers
	Listens  int // of rdma_cm
}

// Start starts a server for the machine in memory that run calls functions on. It ends with the test, after the
// programs: connections that remain are closed.
func Start(t testing.TB, run func(func()), device string) *Server {
	t.Helper()
	s := &Server{t: t, run: run, device: device, conns: map[*net.UnixConn]bool{},
		names: map[cmName]int{}}
	s.change.L = &s.mu
	run(func() { s.machine = machine.Current() })
	if s.machine == nil {
		t.Fatal("foreign: no machine in memory")
	}
	var err error
	if s.dir, err = os.MkdirTemp("", "goverbs"); err != nil { // the names of sockets have at most 107 bytes
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(s.dir); err != nil {
			t.Error(err)
		}
	})
	if err := s.writeFiles(); err != nil {
		t.Fatal(err)
	}
	if s.listen, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: s.socket(), Net: "unixpacket"}); err != nil {
		t.Fatal(err)
	}
	s.done.Go(s.accept)
	t.Cleanup(s.stop)
	return s
}

func (s *Server) socket() string { return filepath.Join(s.dir, "socket") }

// Env returns the environment of programs, besides that of the preloaded library.
func (s *Server) Env() []string {
	return []string{"PATH=" + filepath.Join(s.dir, "bin") + ":/usr/bin:/bin", "GOVERBS_SHIM=" + s.socket(),
		"SYSFS_PATH=" + filepath.Join(s.dir, "sys")}
}

// Await waits until ready returns true.
func (s *Server) Await(ctx context.Context, ready func(Stats) bool) error {
	defer context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.change.Broadcast()
	})()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !ready(s.stats) {
		if ctx.Err() != nil {
			return ctxerr.Of(ctx)
		}
		s.change.Wait()
	}
	return nil
}

// note changes the statistics.
func (s *Server) note(change func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.stats)
	s.change.Broadcast()
}

func (s *Server) stop() {
	if err := s.listen.Close(); err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close() // its goroutine reports errors
	}
	s.mu.Unlock()
	s.done.Wait()
}

func (s *Server) accept() {
	for {
		c, err := s.listen.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.t.Errorf("foreign: %v", err)
			return
		}
		s.mu.Lock()
		full := len(s.conns) == MaxNodes
		if !full {
			s.conns[c] = true
		}
		s.mu.Unlock()
		if full {
			_ = c.Close() // the program's open fails
			continue
		}
		s.done.Go(func() { s.serve(c) })
	}
}

// serve executes the requests of a connection.
func (s *Server) serve(c *net.UnixConn) {
	defer func() {
		_ = c.Close() // stop may have closed it
		s.note(func(*Stats) { delete(s.conns, c) })
	}()
	n, err := s.open(c)
	if err != nil {
		s.t.Errorf("foreign: a program cannot open %s: %v", s.device, err)
		return
	}
	if n == nil {
		return
	}
	s.note(func(x *Stats) { x.Nodes++ })
	defer func() {
		if err := n.close(); err != nil {
			s.t.Errorf("foreign: closing a node: %v", err)
		}
		s.note(func(x *Stats) { x.Nodes-- })
	}()
	var b [requestSize + maxStore]byte
	for {
		k, err := c.Read(b[:])
		r, ok := parse(b[:k])
		if err != nil || !ok {
			return // the program has ended, or sends garbage
		}
		reply, ok := s.execute(n, r)
		if !ok || send(c, reply) != nil {
			return
		}
		s.note(func(x *Stats) { x.count(r.op) })
	}
}

// execute executes a request. A panic is a defect of the kernel in memory; it ends the program's node, not the test.
func (s *Server) execute(n openNode, r request) (p reply, ok bool) {
	defer func() {
		if e := recover(); e != nil {
			s.t.Errorf("foreign: operation %d: %v\n%s", r.op, e, debug.Stack())
		}
	}()
	return n.execute(r), true
}

func (x *Stats) count(op uint32) {
	switch op {
	case opIoctl, opWrite:
		x.Commands++
	case opStore:
		x.Stores++
	}
}

// An openNode is an open node of a program.
type openNode interface {
	execute(request) reply
	close() error
}

// open reads the first request. It returns nil if that opens no node.
func (s *Server) open(c *net.UnixConn) (openNode, error) {
	var b [requestSize]byte
	k, err := c.Read(b[:])
	r, ok := parse(b[:k])
	if err != nil || !ok || r.op != opOpen {
		return nil, nil
	}
	p, err := peer(c)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil, nil // it has ended
	}
	if err != nil {
		_ = send(c, reply{errno: unix.EACCES, fd: -1}) // the program may have ended
		return nil, fmt.Errorf("its memory: %w", err)
	}
	n, accepted, err := s.node(p, r.a)
	if err != nil {
		_ = send(c, reply{errno: errnoOf(err, unix.ENODEV), fd: -1})
		return nil, p.close()
	}
	if send(c, accepted) != nil {
		return nil, n.close()
	}
	return n, nil
}

// node opens a node of the machine. On an error, p remains open.
func (s *Server) node(p *process, kind uint64) (openNode, reply, error) {
	switch kind {
	case nodeVerbs:
		n, err := s.verbs(p)
		return n, reply{fd: -1}, err
	case nodeCM:
		n, err := s.cm(p)
		if err != nil {
			return nil, reply{}, err
		}
		return n, reply{fd: n.file.TakeDescriptor()}, nil
	}
	return nil, reply{}, unix.ENOENT
}

// verbs opens the device.
func (s *Server) verbs(p *process) (*node, error) {
	dev, err := s.machine.OpenDevice(s.device)
	if err != nil {
		return nil, err
	}
	k := dev.Doorbells().(kernel)
	if err := k.UseProcess(p); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return &node{process: p, dev: dev, kernel: k, names: map[int32]int{}, pages: map[uint64]page{},
		events: events{users: map[object]uint64{}, counts: map[uint64]*count{}}}, nil
}

// A kernel is that of a file of the machine.
type kernel interface {
	ioctl.Doorbells
	UseProcess(ioctltest.Process) error
	TakeDescriptor(key int) (fd int, ok bool)
}

// peer opens the memory of the program.
func peer(c *net.UnixConn) (p *process, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if other := raw.Control(func(fd uintptr) { p, err = openProcess(int(fd)) }); other != nil {
		return nil, other
	}
	return p, err
}

// send sends a reply, and closes its descriptor.
func send(c *net.UnixConn, r reply) error {
	var rights []byte
	if r.fd >= 0 {
		rights = unix.UnixRights(r.fd)
		defer unix.Close(r.fd)
	}
	b := r.marshal()
	n, _, err := c.WriteMsgUnix(b, rights, nil)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return err
}
