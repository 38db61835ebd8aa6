package rdmacm_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/sim/rdmacmtest"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// Open distinguishes the wrong files that it may find.
func TestOpen(t *testing.T) {
	dir := t.TempDir() + "/"
	must(t, os.WriteFile(dir+"file", nil, 0o600))
	node := func(name string, abi uint64) nldev.CharDev {
		return nldev.CharDev{Name: name, ABI: abi, Major: 1, Minor: 3}
	}
	for _, c := range []struct {
		dir  string
		node nldev.CharDev
		want error
	}{
		{dir, node("file", 2), rdmacm.ErrABI},
		{dir, node("file", 5), rdmacm.ErrABI},
		{dir, node("absent", 4), rdmacm.ErrNoNode},
		{dir, node("file", 3), rdmacm.ErrNoNode},
		{"/dev/", node("zero", 4), rdmacm.ErrNoNode},  // another device
		{"/dev/", node("null", 4), os.ErrNoDeadline},  // the device, but it cannot be polled
		{"/dev/null/", node("null", 4), unix.ENOTDIR}, // the error of the system
	} {
		f, err := rdmacm.OpenNode(c.dir, c.node)
		if f != nil || !errors.Is(err, c.want) {
			t.Errorf("%s%s: %v, want %v", c.dir, c.node.Name, err, c.want)
		}
	}
}

// socket returns a File on a socket and the other end of the socket.
func socket(t *testing.T) (*rdmacm.File, *os.File) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	must(t, err)
	other := os.NewFile(uintptr(p[1]), "other end")
	f, err := rdmacm.OnFile(os.NewFile(uintptr(p[0]), "socket"))
	must(t, err)
	t.Cleanup(func() {
		must(t, f.Close())
		must(t, other.Close())
	})
	return f, other
}

func TestWrite(t *testing.T) {
	f, other := socket(t)
	must(t, f.Listen(7, 9))
	b := make([]byte, 64)
	n, err := other.Read(b)
	must(t, err)
	if got := fmt.Sprintf("%x", b[:n]); got != "07000000080000000700000009000000" {
		t.Errorf("written %s", got)
	}
	raw, err := other.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), unix.SHUT_RDWR) }))
	must(t, err)
	if err := f.Listen(7, 9); !errors.Is(err, unix.EPIPE) {
		t.Errorf("writing to nobody: %v", err)
	}
}

// A queue is an event file.
type queue struct {
	mu     sync.Mutex
	events []uint32
	asked  atomic.Int64
}

func (q *queue) command(c rdmacm.Call) unix.Errno {
	if c.Header().Cmd != uapi.RDMA_USER_CM_CMD_GET_EVENT {
		return 0
	}
	q.asked.Add(1)
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) == 0 {
		return unix.EAGAIN
	}
	out := c.Memory(binary.NativeEndian.Uint64(c.Frame()[8:]), 336)
	binary.NativeEndian.PutUint32(out[12:], q.events[0])
	q.events = q.events[1:]
	return 0
}

func (q *queue) put(events ...uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.events = append(q.events, events...)
}

// waiters starts readers, and waits until one has asked without success.
func (q *queue) waiters(f *rdmacm.File, n int) (results chan error) {
	results = make(chan error, n)
	before := q.asked.Load()
	for range n {
		go func() {
			var e uapi.RdmaUcmEventResp
			results <- f.NextEvent(&e)
		}()
	}
	for q.asked.Load() == before {
		runtime.Gosched()
	}
	return results
}

func TestNextEvent(t *testing.T) {
	q := &queue{}
	f, ready := fake(t, q.command)
	q.put(3)
	var e uapi.RdmaUcmEventResp
	must(t, f.NextEvent(&e)) // without the poller
	if e.Event != 3 {
		t.Errorf("event %d", e.Event)
	}
	results := q.waiters(f, 2)
	q.put(4, 5)
	for range 2 {
		_, err := ready.Write([]byte{1})
		must(t, err)
		must(t, <-results)
	}
}

func TestDeadline(t *testing.T) {
	q := &queue{}
	f, _ := fake(t, q.command)
	var e uapi.RdmaUcmEventResp
	must(t, f.SetReadDeadline(time.Unix(1, 0)))
	if err := f.NextEvent(&e); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	must(t, f.SetReadDeadline(time.Time{}))
	results := q.waiters(f, 1)
	must(t, f.SetReadDeadline(time.Unix(1, 0)))
	if err := <-results; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("interrupted: %v", err)
	}
	must(t, f.SetReadDeadline(time.Time{}))
	q.put(1)
	must(t, f.NextEvent(&e))
}

func TestClose(t *testing.T) {
	q := &queue{}
	f, _ := fake(t, q.command)
	results := q.waiters(f, 3)
	must(t, f.Close())
	for range 3 {
		if err := <-results; !errors.Is(err, os.ErrClosed) {
			t.Errorf("waiting: %v", err)
		}
	}
	must(t, f.Close())
	for i, err := range everyCommand(f) {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("command %d after Close: %v", i, err)
		}
	}
	if err := f.SetReadDeadline(time.Time{}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("deadline after Close: %v", err)
	}
	g, _ := fake(t, q.command)
	if _, err := g.MigrateID(0, f); !errors.Is(err, os.ErrClosed) {
		t.Errorf("migrating from a closed file: %v", err)
	}
}

// Events that migrate to a file do not make it readable, but a waiting reader returns
// them. A deadline that was set before is still in effect.
func TestMigrateWakes(t *testing.T) {
	k := rdmacmtest.New(t)
	from, err := k.Open()
	must(t, err)
	to, err := k.Open()
	must(t, err)
	defer func() { must(t, errors.Join(from.Close(), to.Close())) }()
	id, err := from.CreateID(5, uapi.RDMA_PS_TCP, 0)
	must(t, err)
	k.Post(id, rdmacm.EventAddrChange, 0)
	must(t, to.SetReadDeadline(time.Now().Add(time.Hour)))
	var e uapi.RdmaUcmEventResp
	done := make(chan error)
	go func() { done <- to.NextEvent(&e) }()
	if _, err := to.MigrateID(id, from); err != nil {
		t.Fatal(err)
	}
	must(t, <-done)
	if e.Event != rdmacm.EventAddrChange || e.Uid != 5 {
		t.Errorf("event %d of uid %d", e.Event, e.Uid)
	}
	k.Post(id, rdmacm.EventAddrChange, 0)
	must(t, to.NextEvent(&e)) // the past deadline of the kick is reset
	must(t, to.SetReadDeadline(time.Unix(1, 0)))
	if err := to.NextEvent(&e); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	_, err = to.MigrateID(id, to)
	must(t, err)
	if err := to.NextEvent(&e); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline and a wake-up: %v", err)
	}
	_, err = to.DestroyID(id)
	must(t, err)
}

// EACCES of a command differs from EACCES of the file.
func TestCredentials(t *testing.T) {
	k := rdmacmtest.New(t)
	f, err := k.Open()
	must(t, err)
	defer func() { must(t, f.Close()) }()
	k.Set(func() { k.Refuse["LISTEN"] = unix.EACCES })
	if err := f.Listen(0, 0); !errors.Is(err, unix.EACCES) || errors.Is(err, rdmacm.ErrCredentials) {
		t.Errorf("a privileged port: %v", err)
	}
	k.Set(func() { k.Stale = true })
	for i, err := range everyCommand(f) {
		if !errors.Is(err, unix.EACCES) || !errors.Is(err, rdmacm.ErrCredentials) {
			t.Errorf("command %d: %v", i, err)
		}
	}
}

// Every errno of the kernel is returned unchanged.
func TestErrno(t *testing.T) {
	f, _ := fake(t, func(c rdmacm.Call) unix.Errno { return unix.EADDRINUSE })
	for i, err := range everyCommand(f) {
		var errno unix.Errno
		if !errors.As(err, &errno) || errno != unix.EADDRINUSE {
			t.Errorf("command %d: %v", i, err)
		}
	}
	for what, err := range map[string]error{
		"bind":    f.Bind(0, make([]byte, 129)),
		"resolve": f.ResolveAddr(0, nil, make([]byte, 129), 0),
		"reject":  f.Reject(0, 0, make([]byte, 256)),
	} {
		if !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s of too many bytes: %v", what, err)
		}
	}
}

// A table that grows between two queries is queried again. The length that the kernel
// reports is checked.
func TestTables(t *testing.T) {
	num := uint32(9)
	f, _ := fake(t, func(c rdmacm.Call) unix.Errno {
		out := c.Memory(binary.NativeEndian.Uint64(c.Frame()[8:]), int(c.Header().Out))
		binary.NativeEndian.PutUint32(out, num)
		return 0
	})
	for n, want := range map[uint32][2]int{0: {0, 0}, 1: {1, 1}, 9: {6, 9}, ^uint32(0): {6, 372}} {
		num = n
		paths, err := f.QueryPath(0)
		must(t, err)
		services, err := f.QueryIBService(0)
		must(t, err)
		if got := [2]int{len(paths), len(services)}; got != want {
			t.Errorf("%d records: %v, want %v", n, got, want)
		}
	}
	big := make([]byte, 5000)
	f2, _ := fake(t, func(c rdmacm.Call) unix.Errno {
		if c.Memory(binary.NativeEndian.Uint64(c.Frame()[8:]), len(big)) == nil {
			return unix.EFAULT
		}
		return 0
	})
	must(t, f2.SetOption(0, 1, 1, big))
}

// Many goroutines issue commands while the file is closed.
func TestConcurrent(t *testing.T) {
	var open atomic.Bool
	open.Store(true)
	q := &queue{}
	f, _ := fake(t, func(c rdmacm.Call) unix.Errno {
		if !open.Load() {
			t.Error("a command after Close")
		}
		return q.command(c)
	})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				if err := f.Listen(1, 1); err != nil && !errors.Is(err, os.ErrClosed) {
					t.Error(err)
				}
			}
		})
	}
	results := q.waiters(f, 2)
	wg.Go(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		open.Store(false)
	})
	wg.Wait()
	for range 2 {
		if err := <-results; !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	}
}

func TestAllocs(t *testing.T) {
	f, _ := fake(t, func(rdmacm.Call) unix.Errno { return 0 })
	var e uapi.RdmaUcmEventResp
	accept := &uapi.RdmaUcmAccept{}
	for name, call := range map[string]func(){
		"NextEvent": func() { _ = f.NextEvent(&e) },
		"Accept":    func() { _ = f.Accept(accept) },
		"CreateID":  func() { _, _ = f.CreateID(1, 1, 1) },
		"SetOption": func() { _ = f.SetOption(1, 0, 0, []byte{1}) },
	} {
		if n := testing.AllocsPerRun(1000, call); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
