package rdma

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// TestCloseTriesAgain has Close fail to release a completion queue, which a QP of the program uses: a further call
// releases it.
func TestCloseTriesAgain(t *testing.T) {
	clients, servers, _ := honestConns(t, 2, nil, nil)
	c, budget := servers[0], servers[0].account.budget
	if err := clients[0].Send(bounded(t), make([]byte, 100000)); err != nil {
		t.Fatal(err)
	}
	m, err := c.Recv(bounded(t))
	good(t, m, err).Release()
	qp, err := c.cm.PD().CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: c.cq, RecvCQ: c.cq, MaxSendWR: 1, MaxRecvWR: 1,
		MaxSendSGE: 1, MaxRecvSGE: 1})
	good(t, qp, err)
	refs := c.pool.refs
	if err := c.Close(); err == nil {
		t.Error("Close returns nil")
	}
	if err := qp.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Errorf("a further call of Close returns %v", err)
		}
	}
	if _, err := c.cq.Poll(make([]uverbs.WC, 1)); !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("Poll of the completion queue returns %v", err)
	}
	if c.pool.refs != refs-1 {
		t.Errorf("the pool has %d connections after Close, %d before", c.pool.refs, refs)
	}
	_, used := budget.used.Used(servers[1].account.peer)
	if used != servers[1].account.fixed {
		t.Errorf("%d bytes are used, %d of them by the other connection", used, servers[1].account.fixed)
	}
}

// TestRevokeTriesAgain has Revoke fail to close the MR of a region, to which another window is bound: each way to end
// the share closes it later.
func TestRevokeTriesAgain(t *testing.T) {
	for name, again := range map[string]func(*Conn, *Region, *Share) error{
		"Revoke":                  func(_ *Conn, _ *Region, s *Share) error { return s.Revoke() },
		"Close of the region":     func(_ *Conn, r *Region, _ *Share) error { return r.Close() },
		"Close of the connection": func(c *Conn, _ *Region, _ *Share) error { return c.Close() },
	} {
		_, servers, _ := honestConns(t, 1, nil, nil)
		c, r := servers[0], NewRegion(64)
		share := func() *Share {
			s, err := c.Share(bounded(t), r, CanRead)
			return good(t, s, err)
		}
		s, other := share(), share()
		mr := s.mr.mr
		s.mr.users-- // s closes the MR
		if err := s.Revoke(); !errors.Is(err, uverbs.ErrBusy) {
			t.Errorf("Revoke returns %v, want ErrBusy", err)
		}
		s.mr.users++
		if err := other.Revoke(); err != nil {
			t.Fatal(err)
		}
		if err := again(c, r, s); err != nil {
			t.Errorf("%s returns %v", name, err)
		}
		if err := mr.Rereg(uverbs.ReregAccess, nil, nil, 0); !errors.Is(err, uverbs.ErrClosed) {
			t.Errorf("after %s, the MR is open: %v", name, err)
		}
		if len(c.shares)+len(r.shares) != 0 {
			t.Errorf("after %s, %d and %d shares are left", name, len(c.shares), len(r.shares))
		}
	}
}

// TestRegionTriesAgain has Close of a region fail to close its MR, to which a window is bound: Close of the region and
// of the connection close it later.
func TestRegionTriesAgain(t *testing.T) {
	for name, again := range map[string]func(*Conn, *Region) error{
		"Close of the region":     func(_ *Conn, r *Region) error { return r.Close() },
		"Close of the connection": func(c *Conn, _ *Region) error { return c.Close() },
	} {
		_, servers, _ := honestConns(t, 1, nil, nil)
		c, r := servers[0], NewRegion(64)
		b, err := c.BufferOf(r, 0, 64)
		good(t, b, err).Release()
		share, err := c.Share(bounded(t), r, CanRead)
		s := good(t, share, err).mr
		s.users-- // forget closes the MR
		if err := r.forget(s); !errors.Is(err, uverbs.ErrBusy) {
			t.Errorf("forget returns %v, want ErrBusy", err)
		}
		s.users++
		mr, kept := s.mr, c.pool.kept
		if err := again(c, r); err != nil {
			t.Errorf("%s returns %v", name, err)
		}
		if err := mr.Rereg(uverbs.ReregAccess, nil, nil, 0); !errors.Is(err, uverbs.ErrClosed) {
			t.Errorf("after %s, the MR is open: %v", name, err)
		}
		if len(r.mrs)+len(kept) != 0 {
			t.Errorf("after %s, the region is kept", name)
		}
	}
}

// TestRegionRegisteredAgain shares a region while its registration for buffers ends.
func TestRegionRegisteredAgain(t *testing.T) {
	_, servers, m := honestConns(t, 1, nil, nil)
	c, r := servers[0], NewRegion(64)
	b, err := c.BufferOf(r, 0, 64)
	good(t, b, err).Release()
	s := r.mrs[c.pool]
	mr := s.mr
	m.SetCommandTime(100 * time.Millisecond)
	forgotten := make(chan error, 1)
	go func() { forgotten <- r.forget(s) }()
	for mr.SGE(0, 64).Length == 64 { // Close has not begun
		runtime.Gosched()
	}
	share, err := c.Share(bounded(t), r, CanRead)
	good(t, share, err)
	m.SetCommandTime(0)
	if err := errors.Join(<-forgotten, r.Close()); err != nil {
		t.Error(err)
	}
}

// TestFlushGivesUp ends the contexts of calls of Flush: nothing is left of them.
func TestFlushGivesUp(t *testing.T) {
	clients, servers, _ := honestConns(t, 1, nil, nil)
	c := clients[0]
	if err := c.Send(bounded(t), make([]byte, 100000)); err != nil {
		t.Fatal(err)
	}
	waiting := func() (n int) {
		c.mu.Lock()
		defer c.unlock()
		for i := range c.windows {
			n += len(c.windows[i].flushes)
		}
		return n
	}
	for range 10 {
		ctx, cancel := context.WithCancel(bounded(t))
		flushed := make(chan error, 1)
		go func() { flushed <- c.Flush(ctx) }()
		for waiting() == 0 {
			runtime.Gosched()
		}
		cancel()
		if err := <-flushed; !errors.Is(err, context.Canceled) || waiting() != 0 {
			t.Fatalf("Flush returns %v, and has left %d ops", err, waiting())
		}
	}
	m, err := servers[0].Recv(bounded(t))
	good(t, m, err).Release()
	done := make(chan struct{})
	go func() { _, _ = servers[0].Recv(bounded(t)); close(done) }() // tells the client what was read
	if err := c.Flush(bounded(t)); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	<-done
}

// TestPartsKept checks that a slice of a slice keeps only what both are parts of, and how many parts a pool keeps.
func TestPartsKept(t *testing.T) {
	clients, _, _ := honestConns(t, 1, nil, nil)
	c := clients[0]
	b, err := c.Alloc(100)
	root := good(t, b, err).m
	for off := range 10 {
		next, err := b.Slice(1, b.Len()-1)
		good(t, next, err)
		b.Release()
		b = next
		if b.m.parent != root || b.m.off != root.off+off+1 || c.pool.spare > 1 {
			t.Errorf("slice %d: at %d, and %d are not used", off, b.m.off-root.off, c.pool.spare)
		}
	}
	parts := make([]Buffer, maxParts+10)
	for i := range parts {
		parts[i], err = b.Slice(0, 1)
		good(t, parts[i], err)
	}
	for _, x := range append(parts, b) {
		x.Release()
	}
	n := 0
	for x := c.pool.parts; x != nil; x = x.next {
		n++
	}
	if n != maxParts || c.pool.spare != n || root.state.Load()&(byProgram|usesMask) != 0 {
		t.Errorf("the pool keeps %d parts, and counts %d", n, c.pool.spare)
	}
}

// TestPartsAllocateNothing checks that buffers of regions, and slices of them, allocate nothing in the steady state.
func TestPartsAllocateNothing(t *testing.T) {
	clients, _, _ := honestConns(t, 1, nil, nil)
	c, r := clients[0], NewRegion(4096)
	c.watcher = nil // watches allocate
	n := testing.AllocsPerRun(100, func() {
		b, err := c.BufferOf(r, 100, 1000)
		if err != nil {
			t.Fatal(err)
		}
		part, err := b.Slice(10, 10)
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
		part.Release()
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// A busyClient is a client whose connection is used and cannot be released: a QP of the program uses its completion
// queue.
type busyClient struct {
	*Client[int]
	slot   *slot[int]
	link   *link[int]
	server *Conn
	qp     *uverbs.QP
}

func newBusyClient(t *testing.T, o *Options) busyClient {
	t.Helper()
	clients, servers, _ := honestConns(t, 1, o, nil)
	c := clients[0]
	qp, err := c.cm.PD().CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: c.cq, MaxSendWR: 1})
	good(t, qp, err)
	cl := NewClient[int]("", nil)
	s := &cl.slots[0]
	l, err := s.set(c, 0, 1)
	return busyClient{cl, s, good(t, l, errors.Join(err, s.add(c))), servers[0], qp}
}

// endServer has the server end the connection. No call of the client has noticed it.
func (cl *busyClient) endServer(t *testing.T) {
	t.Helper()
	if err := cl.server.Close(); err != nil {
		t.Fatal(err)
	}
	<-cl.link.c.cm.Disconnected()
}

// free checks that Close of the client releases the connection when that is possible.
func (cl *busyClient) free(t *testing.T) {
	t.Helper()
	if err := cl.qp.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := cl.Close(); err != nil {
			t.Errorf("a further call of Close returns %v", err)
		}
	}
	if _, err := cl.link.c.cq.Poll(make([]uverbs.WC, 1)); !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("Poll of the completion queue returns %v", err)
	}
	if n := len(cl.slot.conns); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

// TestClientCloseTriesAgain has the end of a client's connection fail, in Close or before: a further call of Close
// releases it.
func TestClientCloseTriesAgain(t *testing.T) {
	for _, before := range []bool{false, true} {
		cl := newBusyClient(t, nil)
		end := cl.Close
		if before {
			cl.endServer(t)
			end = func() error { return cl.slot.release(cl.link, nil) }
		}
		if err := end(); !errors.Is(err, uverbs.ErrBusy) {
			t.Errorf("the connection has ended before: %v: its Close returns %v, want ErrBusy", before, err)
		}
		cl.free(t)
	}
}

// TestClientCloseDuringRelease closes a client while a call is closing the connection, which then fails: Close waits,
// and returns the error too.
func TestClientCloseDuringRelease(t *testing.T) {
	cl := newBusyClient(t, nil)
	c := cl.link.c
	if err := c.Send(bounded(t), make([]byte, 100000)); err != nil {
		t.Fatal(err)
	}
	if !cl.slot.drop(cl.link, errAborted) {
		t.Fatal("the connection has other users")
	}
	errs := make(chan error, 2)
	go func() { errs <- cl.slot.end(c) }() // waits until the server has received the message
	await(func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.closing })
	go func() { errs <- cl.Close() }()
	await(func() bool { _, err := cl.slot.current(); return err != nil })
	m, err := cl.server.Recv(bounded(t))
	good(t, m, err).Release()
	for range 2 {
		if err := <-errs; !errors.Is(err, uverbs.ErrBusy) {
			t.Errorf("the error is %v, want ErrBusy", err)
		}
	}
	cl.free(t)
}

func await(happened func() bool) {
	for !happened() {
		runtime.Gosched()
	}
}

// TestClientReleasesFirst checks that a client does not connect again before it has released a connection whose Close
// has failed.
func TestClientReleasesFirst(t *testing.T) {
	cl := newBusyClient(t, nil)
	cl.endServer(t)
	do := func() error { return cl.Do(bounded(t), nil) }
	if err := cl.slot.release(cl.link, nil); !errors.Is(err, uverbs.ErrBusy) {
		t.Errorf("Close of the connection returns %v, want ErrBusy", err)
	}
	for range 2 {
		if err := do(); !errors.Is(err, uverbs.ErrBusy) || len(cl.slot.conns) != 1 {
			t.Errorf("Do returns %v, want ErrBusy; %d connections", err, len(cl.slot.conns))
		}
	}
	if err := cl.qp.Close(); err != nil {
		t.Fatal(err)
	}
	if err := do(); err == nil || errors.Is(err, uverbs.ErrBusy) || len(cl.slot.conns) != 0 {
		t.Errorf("Do returns %v, want that of an address; %d connections", err, len(cl.slot.conns))
	}
}

// TestUnreply checks that a reply that could not be sent makes its call wait again, unless the peer has called with the
// same number since.
func TestUnreply(t *testing.T) {
	clients, servers, _ := honestConns(t, 1, nil, nil)
	c := servers[0]
	go func() { _, _ = clients[0].Call(bounded(t), []byte("x")) }() // it ends with the connection
	m, err := c.Recv(bounded(t))
	defer good(t, m, err).Release()
	for _, again := range []bool{false, true} {
		ctx := m.Context()
		x, err := c.reply(m)
		good(t, x, err)
		serial := m.serial
		c.mu.Lock()
		if again {
			serial, err = c.ask(m.number)
		}
		c.unlock()
		good(t, serial, err)
		c.unreply(m, x)
		if a := c.calls.asked[m.number]; a.serial != serial || again != (a.ctx == nil) || again != (ctx.Err() != nil) {
			t.Errorf("called again: %v: the call is %+v, want serial %d; its context has ended: %v", again, a, serial, ctx.Err())
		}
	}
	if err := m.Reply(bounded(t), nil); !errors.Is(err, ErrNotCall) {
		t.Errorf("Reply returns %v, want ErrNotCall", err)
	}
}
