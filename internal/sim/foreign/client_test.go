package foreign_test

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/errtest"
	"github.com/goverbs/goverbs/internal/sim/foreign"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
	"github.com/goverbs/goverbs/verbstest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var must = errtest.Check

// The operations, as in doc.go.
const (
	opOpen = iota + 1
	opIoctl
	opMmap
	opStore
	opName
	opWrite
	opEvent
)

// A client is the test process as a program: its memory is that of the test.
type client struct {
	t      *testing.T
	conn   *net.UnixConn
	memory []byte // of the commands and what they refer to
}

// start returns a server for a new machine.
func start(t *testing.T) *foreign.Server {
	t.Helper()
	m := verbstest.New(t)
	return foreign.Start(t, m.Run, m.Device())
}

// dial connects to the server.
func dial(t *testing.T, s *foreign.Server) *client {
	t.Helper()
	path := ""
	for _, e := range s.Env() {
		if p, ok := strings.CutPrefix(e, "GOVERBS_SHIM="); ok {
			path = p
		}
	}
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	must(t, err)
	memory, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	must(t, err)
	t.Cleanup(func() { must(t, unix.Munmap(memory)) }) // after the server has ended
	return &client{t, conn, memory}
}

// open connects to the server and opens the device.
func open(t *testing.T, s *foreign.Server) *client {
	t.Helper()
	c := dial(t, s)
	if errno, _ := c.call(opOpen, 0, 0, nil); errno != 0 {
		t.Fatal(errno)
	}
	return c
}

// call sends a request and returns the reply. It closes a descriptor that comes with it.
func (c *client) call(op uint32, a, b uint64, data []byte) (errno unix.Errno, kind uint32) {
	c.t.Helper()
	q := binary.NativeEndian.AppendUint64(nil, uint64(op))
	q = binary.NativeEndian.AppendUint64(q, a)
	q = binary.NativeEndian.AppendUint64(q, b)
	q = binary.NativeEndian.AppendUint64(q, 0)
	_, err := c.conn.Write(append(q, data...))
	must(c.t, err)
	var reply [24]byte
	rights := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := c.conn.ReadMsgUnix(reply[:], rights)
	must(c.t, err)
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	must(c.t, err)
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		must(c.t, err)
		for _, fd := range fds {
			must(c.t, unix.Close(fd))
		}
	}
	return unix.Errno(binary.NativeEndian.Uint32(reply[:])), binary.NativeEndian.Uint32(reply[4:])
}

// idle waits until no node is open.
func idle(t *testing.T, s *foreign.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, s.Await(ctx, func(x foreign.Stats) bool { return x.Nodes == 0 }))
}

// Mistakes of a program end its connection, or have an errno. They do not affect other programs.
func TestMistakes(t *testing.T) {
	s := start(t)
	good := open(t, s)
	for name, send := range map[string]func(c *client) error{
		"short":         func(c *client) error { _, err := c.conn.Write([]byte{1}); return err },
		"empty":         func(c *client) error { _, err := c.conn.Write(nil); return err },
		"not open":      func(c *client) error { _, err := c.conn.Write(make([]byte, 32)); return err },
		"closed":        func(*client) error { return nil },
		"unknown node":  func(c *client) error { errno, _ := c.call(opOpen, 7, 0, nil); return want(errno, unix.ENOENT) },
		"unknown":       opened(99, 0, 0, unix.ENOSYS),
		"null":          opened(opIoctl, 0, 0, unix.EFAULT),
		"kernel memory": opened(opIoctl, 1<<63, 0, unix.EFAULT),
		"store":         opened(opStore, 5, 0, unix.EINVAL),
		"mmap":          opened(opMmap, 0, uint64(os.Getpagesize()), unix.EOPNOTSUPP),
		"open twice":    opened(opOpen, 0, 0, unix.ENOSYS),
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, s)
			must(t, send(c))
			must(t, c.conn.Close())
		})
	}
	if errno, _ := good.call(opEvent, 1, 0, nil); errno != 0 {
		t.Error(errno)
	}
	must(t, good.conn.Close())
	idle(t, s)
}

func want(got, want unix.Errno) error {
	if got != want {
		return got
	}
	return nil
}

// opened returns a function that opens the device and expects an errno.
func opened(op uint32, a, b uint64, errno unix.Errno) func(*client) error {
	return func(c *client) error {
		if e, _ := c.call(opOpen, 0, 0, nil); e != 0 {
			return e
		}
		e, _ := c.call(op, a, b, nil)
		return want(e, errno)
	}
}

// The number of nodes has a limit.
func TestLimit(t *testing.T) {
	s := start(t)
	var all []*client
	for range foreign.MaxNodes {
		all = append(all, open(t, s))
	}
	c := dial(t, s)
	if n, err := c.conn.Read(make([]byte, 8)); n != 0 || err == nil {
		t.Errorf("a connection beyond the limit: %d bytes, %v", n, err)
	}
	for _, c := range append(all, c) {
		must(t, c.conn.Close())
	}
	idle(t, s)
}
