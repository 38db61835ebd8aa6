package vfiouser_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/connectx/vfiouser"
)

// mapped returns the number of mappings of test memory.
func mapped(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "memfd:guest")
}

// TestServe checks that machines are served one after the other, and that each
// finds the device without state of the previous one.
func TestServe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := vfiouser.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	d := newToy(t, 0x1017)
	var mu sync.Mutex
	run := func(f func()) { mu.Lock(); defer mu.Unlock(); f() }
	reports := make(chan error, 10)
	s := &vfiouser.Server{Device: d, Run: run, Report: func(err error) { reports <- err }}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	dial := func() *client {
		t.Helper()
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: path})
		if err != nil {
			t.Fatal(err)
		}
		return &client{t: t, conn: conn}
	}
	fd, _ := memfd(t, 4096)
	before := mapped(t)
	for i := range 3 {
		c := dial()
		c.must(vfiouser.Version, []byte{0, 0, 1, 0})
		c.must(vfiouser.DMAMap, dmaMap(rw, 0, 0, 4096), fd)
		c.must(vfiouser.SetIRQs, setIRQs(eventFD|triggered, vfiouser.MSIX, 0, 1), eventfd(t))
		c.write(0, toyRing, 0, 0, 0, 0)
		if n := le.Uint32(c.read(0, toyCount, 4)); n != 1 {
			t.Errorf("machine %d: the counter is %d", i, n)
		}
		if i == 1 { // it disconnects within a message
			c.send([]byte{1, 2, 3})
		}
		next := dial() // waits for its turn
		if err := c.conn.Close(); err != nil {
			t.Fatal(err)
		}
		next.must(vfiouser.Version, []byte{0, 0, 1, 0})
		run(func() {
			if _, err := d.host.View(0, 1); !errors.Is(err, vfiouser.ErrNotMapped) {
				t.Errorf("machine %d left its memory: %v", i, err)
			}
			if err := d.host.Interrupt(vfiouser.MSIX, 0); !errors.Is(err, vfiouser.ErrNotEnabled) {
				t.Errorf("machine %d left its interrupts: %v", i, err)
			}
			if d.plugged != 2*i+2 || d.count != 0 {
				t.Errorf("machine %d: plugged in %d times, counter %d", i, d.plugged, d.count)
			}
		})
		if n := mapped(t); n != before {
			t.Errorf("machine %d: %d mappings are left", i, n-before)
		}
		if err := next.conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c := dial() // connected when the server stops
	c.must(vfiouser.Version, []byte{0, 0, 1, 0})
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := c.conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
	if err := c.conn.Close(); err != nil {
		t.Error(err)
	}
	if d.host != nil {
		t.Error("the device was not disconnected")
	}
	if len(reports) != 1 || !errors.Is(<-reports, vfiouser.ErrLost) {
		t.Errorf("%d reports more than one of the broken connection", len(reports))
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket still exists: %v", err)
	}
}

// TestUnplug checks that an unplugged device is disconnected from its machine,
// and can be used by the next.
func TestUnplug(t *testing.T) {
	ours, theirs := pair(t)
	var mu sync.Mutex
	d := newToy(t, 0x1017)
	s := &vfiouser.Server{
		Device: d,
		Run:    func(f func()) { mu.Lock(); defer mu.Unlock(); f() },
		Report: func(err error) { t.Errorf("report: %v", err) },
	}
	if err := s.Unplug(); err != nil {
		t.Errorf("not connected: %v", err)
	}
	for range 2 {
		ended := make(chan error, 1)
		go func() { ended <- s.ServeConn(context.Background(), theirs) }()
		c := &client{t: t, conn: ours}
		c.must(vfiouser.Version, []byte{0, 0, 1, 0})
		if err := errors.Join(s.Unplug(), s.Unplug()); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil || d.host != nil {
			t.Errorf("the device's end: %v, host %v", err, d.host)
		}
		if _, err := ours.Read(make([]byte, 1)); err == nil {
			t.Error("the connection is still open")
		}
		if err := ours.Close(); err != nil {
			t.Error(err)
		}
		ours, theirs = pair(t)
	}
	if err := errors.Join(ours.Close(), theirs.Close()); err != nil {
		t.Error(err)
	}
}

// TestListen checks that the socket of a server that has exited is replaced,
// and that of another server is not.
func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := vfiouser.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := vfiouser.Listen(path); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a second server could listen: %v, %v", l, err)
	}
	first.SetUnlinkOnClose(false) // as if killed
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := vfiouser.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := vfiouser.Listen(file); err == nil {
		t.Error("a file that is not a socket was replaced")
	}
	if _, err := vfiouser.Listen(filepath.Join(t.TempDir(), "no", "s")); err == nil {
		t.Error("no error without a directory")
	}
}

// TestBusy checks that a device serves one machine at a time.
func TestBusy(t *testing.T) {
	ours, theirs := pair(t)
	var mu sync.Mutex
	s := &vfiouser.Server{
		Device: newToy(t, 0x1017),
		Run:    func(f func()) { mu.Lock(); defer mu.Unlock(); f() },
		Report: func(err error) { t.Errorf("report: %v", err) },
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.ServeConn(ctx, theirs) }()
	c := &client{t: t, conn: ours}
	c.must(vfiouser.Version, []byte{0, 0, 1, 0})
	again, other := pair(t)
	if err := s.ServeConn(ctx, other); !errors.Is(err, unix.EBUSY) || !errors.Is(err, vfiouser.ErrRefused) {
		t.Errorf("a second machine: %v", err)
	}
	if _, err := again.Read(make([]byte, 1)); err == nil {
		t.Error("the second machine's connection is still open")
	}
	c.ping()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := errors.Join(again.Close(), ours.Close()); err != nil {
		t.Error(err)
	}
}

// TestSlowClient checks that a client that does not read its replies delays
// only itself.
func TestSlowClient(t *testing.T) {
	c := plug(t, newToy(t, 0x1017))
	if err := c.conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var err error
	for b := request(1, vfiouser.RegionRead, 0, access(0, 0, 1<<20)); err == nil; {
		_, err = c.conn.Write(b)
	}
	done := make(chan bool)
	go c.run(func() { close(done) })
	select {
	case <-done:
	case <-time.After(limit):
		t.Error("the device is blocked")
	}
}

// TestUnreadReplies checks a machine that disconnects without reading its
// replies.
func TestUnreadReplies(t *testing.T) {
	d := newToy(t, 0x1017)
	c := plug(t, d)
	c.send(request(1, vfiouser.RegionWrite, 0, access(toyScratch, 0, 1, 7)))
	if b, err := unix.Poll([]unix.PollFd{{Fd: descriptor(t, c.conn), Events: unix.POLLIN}},
		int(limit.Milliseconds())); b != 1 || err != nil {
		t.Fatalf("no reply: %v", err)
	}
	if err := errors.Join(c.conn.Close(), c.end()); err != nil {
		t.Error(err)
	}
}

func descriptor(t *testing.T, c *net.UnixConn) (fd int32) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(n uintptr) { fd = int32(n) }); err != nil {
		t.Fatal(err)
	}
	return fd
}

// badToy has too many interrupts.
type badToy struct{ *toy }

func (badToy) IRQs(vfiouser.IRQ) int { return 1 }

func TestBadDevice(t *testing.T) {
	c := connect(t, badToy{newToy(t, 0x1017)})
	if errno, _ := c.call(vfiouser.Version, []byte{0, 0, 1, 0}); errno != unix.EIO {
		t.Errorf("%v", errno)
	}
	c.conn.Close()
	if err := c.end(); err != nil {
		t.Error(err)
	}
	if r := c.reported(); len(r) != 1 || !errors.Is(r[0], vfiouser.ErrDevice) {
		t.Errorf("reports %v", r)
	}
}

// TestRemovable checks that a removed device reads as ones, and is reset when
// it is inserted again.
func TestRemovable(t *testing.T) {
	d := newToy(t, 0x1017)
	r := &vfiouser.Removable{Device: d}
	c := plug(t, r)
	c.write(0, toyScratch, 1, 2, 3, 4)
	if b := c.read(0, toyScratch, 4); le.Uint32(b) != 0x04030201 {
		t.Errorf("read % x", b)
	}
	for range 2 { // the second call has no effect
		c.run(r.Pull)
		c.write(0, toyScratch, 5)
		c.must(vfiouser.DeviceReset, nil)
		if b := append(c.read(0, toyScratch, 2), c.read(vfiouser.Config, 0, 2)...); le.Uint32(b) != 1<<32-1 {
			t.Errorf("the removed device reads % x", b)
		}
		c.run(func() {
			if d.host != nil || d.resets != 1 || !r.Out() {
				t.Errorf("host %v, %d resets", d.host, d.resets)
			}
		})
	}
	for range 2 {
		c.run(r.Plug)
		if b := c.read(0, toyScratch, 4); le.Uint32(b) != 0 {
			t.Errorf("the inserted device reads % x", b)
		}
		c.run(func() {
			if d.host == nil || d.resets != 2 || d.plugged != 2 || r.Out() {
				t.Errorf("host %v, %d resets, plugged %d times", d.host, d.resets, d.plugged)
			}
		})
	}
	c.must(vfiouser.DeviceReset, nil)
	c.run(r.Pull)
	if err := errors.Join(c.conn.Close(), c.end()); err != nil {
		t.Error(err)
	}
	if d.resets != 4 { // not again when the machine disconnects
		t.Errorf("%d resets", d.resets)
	}
	r.Plug()
	if d.host != nil || d.plugged != 2 {
		t.Error("inserted without a machine, but connected")
	}
}
