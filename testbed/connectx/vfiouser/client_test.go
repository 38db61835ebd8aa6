package vfiouser_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
	"github.com/goverbs/goverbs/testbed/connectx/vfiouser"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var le = binary.LittleEndian

// A client is the other end of a server's connection.
type client struct {
	t       testing.TB
	conn    *net.UnixConn
	run     func(func())
	ended   chan error // of ServeConn
	mu      sync.Mutex
	reports []error
}

// pair returns both ends of a connection.
func pair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socketpair")
		c, err := net.FileConn(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// connect returns a client of a server for a device.
func connect(t testing.TB, d vfiouser.Device) *client {
	t.Helper()
	ours, theirs := pair(t)
	l := &loop.Loop{OnPanic: func(_, v any, _ []byte) { t.Errorf("the server panicked: %v", v) }}
	c := &client{t: t, conn: ours, ended: make(chan error, 1), run: l.Run}
	s := &vfiouser.Server{Device: d, Run: c.run, Report: c.report}
	go func() { c.ended <- s.ServeConn(context.Background(), theirs) }()
	t.Cleanup(func() {
		c.conn.Close()
		c.end()
	})
	return c
}

// plug returns a client that has negotiated the version.
func plug(t testing.TB, d vfiouser.Device) *client {
	t.Helper()
	c := connect(t, d)
	c.must(vfiouser.Version, []byte("\x00\x00\x01\x00{\"capabilities\":{\"max_msg_fds\":8}}\x00"))
	return c
}

func (c *client) report(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports = append(c.reports, err)
}

// reported returns what the server has reported since the last call.
func (c *client) reported() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.reports
	c.reports = nil
	return r
}

// limit bounds every wait.
const limit = 20 * time.Second

// end waits for the server to end.
func (c *client) end() error {
	c.t.Helper()
	select {
	case err := <-c.ended:
		c.ended <- err
		return err
	case <-time.After(limit):
		c.t.Fatal("the server does not end")
		return nil
	}
}

// send sends bytes, with descriptors.
func (c *client) send(b []byte, fds ...int) {
	c.t.Helper()
	if !c.try(b, fds...) {
		c.t.Fatal("the server has closed the connection")
	}
}

// try sends bytes, and reports whether the connection is open.
func (c *client) try(b []byte, fds ...int) bool {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	_, _, err := c.conn.WriteMsgUnix(b, oob, nil)
	return err == nil
}

// request returns a message.
func request(id uint16, command vfiouser.Command, flags uint32, body []byte) []byte {
	b := le.AppendUint16(nil, id)
	b = le.AppendUint16(b, uint16(command))
	b = le.AppendUint32(b, uint32(16+len(body)))
	b = le.AppendUint32(b, flags)
	b = le.AppendUint32(b, 0)
	return append(b, body...)
}

// receive reads one message.
func (c *client) receive() []byte {
	c.t.Helper()
	if err := c.conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		c.t.Fatal(err)
	}
	b := make([]byte, 16)
	if _, err := io.ReadFull(c.conn, b); err != nil {
		c.t.Fatalf("reading a reply: %v", err)
	}
	b = append(b, make([]byte, le.Uint32(b[4:])-16)...)
	if _, err := io.ReadFull(c.conn, b[16:]); err != nil {
		c.t.Fatalf("reading a reply: %v", err)
	}
	return b
}

// call sends a command, and returns the errno and the body of the reply.
func (c *client) call(command vfiouser.Command, body []byte, fds ...int) (unix.Errno, []byte) {
	c.t.Helper()
	const id = 0x77
	c.send(request(id, command, 0, body), fds...)
	b := c.receive()
	flags := le.Uint32(b[8:])
	if le.Uint16(b) != id || vfiouser.Command(le.Uint16(b[2:])) != command || flags&^0x20 != 1 {
		c.t.Fatalf("%v got the reply % x", command, b)
	}
	errno := unix.Errno(le.Uint32(b[12:]))
	if failed := flags&0x20 != 0; failed != (errno != 0) || failed && len(b) > 16 {
		c.t.Fatalf("%v got the reply % x", command, b)
	}
	return errno, b[16:]
}

// must is call for a command that must succeed.
func (c *client) must(command vfiouser.Command, body []byte, fds ...int) []byte {
	c.t.Helper()
	errno, reply := c.call(command, body, fds...)
	if errno != 0 {
		c.t.Fatalf("%v: %v, reports %v", command, errno, c.reported())
	}
	return reply
}

// refused is call for a command that must fail, with a report of a kind.
func (c *client) refused(want unix.Errno, kind error, command vfiouser.Command, body []byte, fds ...int) {
	c.t.Helper()
	errno, _ := c.call(command, body, fds...)
	c.ping() // the report follows the reply
	r := c.reported()
	if errno != want || len(r) != 1 || !errors.Is(r[0], kind) || !errors.Is(r[0], want) {
		c.t.Errorf("%v % x: %v, reports %v, want %v and %v", command, body, errno, r, want, kind)
	}
	var e *vfiouser.Error
	if len(r) == 1 && (!errors.As(r[0], &e) || e.Command != command) {
		c.t.Errorf("%v: the report is %v", command, r[0])
	}
}

// ping waits until the server has processed what was sent before.
func (c *client) ping() {
	c.t.Helper()
	c.must(vfiouser.GetInfo, numbers(16, 0, 0, 0))
}

// numbers returns a body of 32-bit numbers.
func numbers(values ...uint32) []byte {
	var b []byte
	for _, v := range values {
		b = le.AppendUint32(b, v)
	}
	return b
}

// access returns the body of a REGION_READ or REGION_WRITE.
func access(offset uint64, region, count uint32, data ...byte) []byte {
	return append(append(le.AppendUint64(nil, offset), numbers(region, count)...), data...)
}

func (c *client) read(region uint32, offset uint64, n uint32) []byte {
	c.t.Helper()
	return c.must(vfiouser.RegionRead, access(offset, region, n))[16:]
}

func (c *client) write(region uint32, offset uint64, data ...byte) {
	c.t.Helper()
	c.must(vfiouser.RegionWrite, access(offset, region, uint32(len(data)), data...))
}

// dmaMap returns the body of DMA_MAP.
func dmaMap(flags uint32, offset, addr, size uint64) []byte {
	b := numbers(32, flags)
	for _, v := range []uint64{offset, addr, size} {
		b = le.AppendUint64(b, v)
	}
	return b
}

// dmaUnmap returns the body of DMA_UNMAP.
func dmaUnmap(flags uint32, addr, size uint64) []byte {
	return le.AppendUint64(le.AppendUint64(numbers(24, flags), addr), size)
}

// setIRQs returns the body of DEVICE_SET_IRQS.
func setIRQs(flags uint32, kind vfiouser.IRQ, start, count uint32, data ...byte) []byte {
	return append(numbers(uint32(20+len(data)), flags, uint32(kind), start, count), data...)
}

// memfd creates a file in memory.
func memfd(t testing.TB, size int64) (fd int, contents []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(unix.Munmap(b), unix.Close(fd)); err != nil {
			t.Error(err)
		}
	})
	return fd, b
}

// eventfd creates the eventfd of an interrupt.
func eventfd(t testing.TB) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	})
	return fd
}

// signals returns the number of interrupts since the last call.
func signals(t testing.TB, fd int) uint64 {
	t.Helper()
	var b [8]byte
	switch _, err := unix.Read(fd, b[:]); err {
	case nil:
	case unix.EAGAIN:
		return 0
	default:
		t.Fatal(err)
	}
	return le.Uint64(b[:])
}
