package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestRegionBuffers sends, reads into and writes from parts of the program's memory, which is registered once.
func TestRegionBuffers(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	r := rdma.NewRegion(1 << 20)
	copy(r.Bytes(), pattern(1<<20, 1))
	remote, s := p.share(t, 1<<20, allRights)
	must(p.client.BufferOf(r, 0, 0))(t).Release()
	for i, n := range []int{0, 1, 128, 129, 4096, 4097, 300000} {
		off := 1000*i + 1
		want := r.Bytes()[off : off+n]
		part := func() rdma.Buffer { return must(p.client.BufferOf(r, off, n))(t) }
		b := part()
		if b.Len() != n || b.Cap() != n || !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%d bytes: Len %d, Cap %d, or other bytes", n, b.Len(), b.Cap())
		}
		check(t, p.client.SendBuffer(ctx, b))
		m := must(p.server.Recv(ctx))(t)
		if !bytes.Equal(m.Bytes(), want) {
			t.Errorf("%d bytes: others have arrived", n)
		}
		m.Release()
		b = part()
		check(t, p.client.WriteBuffer(ctx, b, s.Token(), 7))
		if !bytes.Equal(remote.Bytes()[7:7+n], want) {
			t.Errorf("%d bytes: others were written", n)
		}
		copy(remote.Bytes()[7:], pattern(n, n))
		check(t, p.client.ReadBuffer(ctx, b, s.Token(), 7))
		if !bytes.Equal(want, pattern(n, n)) {
			t.Errorf("%d bytes: others were read", n)
		}
		b.Release()
	}
	check(t, p.client.Flush(ctx))
	check(t, r.Close())
}

// TestRegionRegisteredOnce checks that a region is registered once for the connections of a device, and deregistered by
// its Close, or with the last connection.
func TestRegionRegisteredOnce(t *testing.T) {
	p := connect(t, nil, nil)
	second := &pair{net: p.net, here: p.here, there: p.there}
	second.dial(t, nil, nil)
	ctx := limit(t)
	r := rdma.NewRegion(1 << 16)
	registered := 0
	counted := rdma.RegionFunc(1<<16, func(pd *uverbs.PD, a uverbs.Access) (*uverbs.MR, error) {
		registered++
		return pd.RegMR(r.Bytes(), a)
	})
	copy(r.Bytes(), "of the program")
	for _, c := range []*rdma.Conn{p.client, second.client, p.client} {
		b := must(c.BufferOf(counted, 3, 11))(t)
		if b.Bytes() != nil || counted.Bytes() != nil || b.Len() != 11 || b.Cap() != 11 {
			t.Errorf("%d bytes, Len %d, Cap %d", len(b.Bytes()), b.Len(), b.Cap())
		}
		check(t, c.SendBuffer(ctx, b))
	}
	for _, c := range []*rdma.Conn{p.server, second.server, p.server} {
		m := must(c.Recv(ctx))(t)
		if string(m.Copy()) != "the program" {
			t.Error("other bytes")
		}
	}
	if registered != 1 {
		t.Errorf("registered %d times", registered)
	}
	kept := must(second.client.BufferOf(counted, 0, 10))(t)
	check(t, p.client.Close())
	check(t, kept.SetLen(9)) // another connection is open
	check(t, second.client.Close())
	_, err := second.client.BufferOf(counted, 0, 1)
	isError(t, err, net.ErrClosed)
	third := &pair{net: p.net, here: p.here, there: p.there}
	third.dial(t, nil, nil)
	isError(t, third.client.SendBuffer(ctx, kept), rdma.ErrForeign)
	must(third.client.BufferOf(counted, 0, 10))(t).Release()
	kept.Release()
	if registered != 2 {
		t.Errorf("registered %d times at two openings of the device", registered)
	}
	check(t, counted.Close())
}

// TestRegionCloseInUse checks that a region stays registered while a buffer of it is owned or being sent, also if its
// Close was called, and that no further ones can be had then.
func TestRegionCloseInUse(t *testing.T) {
	ctx := limit(t)
	p := connect(t, nil, nil)
	inUse(ctx, t, p, func() {
		go drain(ctx, p.server)
		check(t, p.client.Flush(ctx))
	})
	p = connect(t, &rdma.Options{Linger: -1}, nil)
	inUse(ctx, t, p, func() { mayLose(t, p.client.Close()) })
}

// inUse closes a region while buffers of it are owned and being sent, and calls end, after which they are not.
func inUse(ctx context.Context, t *testing.T, p *pair, end func()) {
	t.Helper()
	r := rdma.NewRegion(100000)
	owned := must(p.client.BufferOf(r, 0, 10))(t)
	part := must(owned.Slice(2, 3))(t)
	check(t, p.client.SendBuffer(ctx, must(p.client.BufferOf(r, 0, 100000))(t)))
	for range 2 {
		isError(t, r.Close(), uverbs.ErrBusy)
	}
	owned.Release()
	isError(t, r.Close(), uverbs.ErrBusy)
	part.Release()
	isError(t, r.Close(), uverbs.ErrBusy) // a message is being sent
	_, err := p.client.BufferOf(r, 0, 1)
	isError(t, err, rdma.ErrReleased)
	_, err = p.client.Share(ctx, r, rdma.CanRead)
	isError(t, err, rdma.ErrReleased)
	end()
	check(t, r.Close())
	check(t, r.Close())
}

// TestRegionFailures makes the registration of a region fail.
func TestRegionFailures(t *testing.T) {
	p := connect(t, nil, nil)
	r := rdma.NewRegion(1 << 16)
	for _, at := range [][2]int{{-1, 1}, {0, -1}, {0, 1<<16 + 1}, {1<<16 + 1, 0}, {1 << 16, 1}, {1 << 62, 1 << 62}} {
		_, err := p.client.BufferOf(r, at[0], at[1])
		isError(t, err, rdma.ErrBounds)
	}
	short := rdma.RegionFunc(1<<16, func(pd *uverbs.PD, a uverbs.Access) (*uverbs.MR, error) {
		return pd.RegMR(make([]byte, 1<<15), a)
	})
	_, err := p.client.BufferOf(short, 0, 1)
	isError(t, err, uverbs.ErrInvalid)
	none := rdma.RegionFunc(1, func(pd *uverbs.PD, a uverbs.Access) (*uverbs.MR, error) {
		return nil, uverbs.ErrNotSupported
	})
	_, err = p.client.BufferOf(none, 0, 1)
	isError(t, err, uverbs.ErrNotSupported)
	check(t, errors.Join(short.Close(), none.Close()))
	p.here.FailCommand(1, unix.EIO)
	_, err = p.client.BufferOf(r, 0, 1)
	isError(t, err, unix.EIO)
	must(p.client.BufferOf(r, 0, 1))(t).Release()
	check(t, r.Close())
	if p.client.Stats().Sent != 0 {
		t.Error("something was sent")
	}
	roundTrip(t, p)
	other := rdma.NewRegion(1 << 16)
	must(p.client.BufferOf(other, 0, 1))(t).Release() // Close of the connection deregisters it
}

// TestRegionFuncMistakes has the program's function return what it must not, or panic.
func TestRegionFuncMistakes(t *testing.T) {
	p := connect(t, nil, nil)
	var mrs []*uverbs.MR
	reg := func(pd *uverbs.PD, a uverbs.Access) (*uverbs.MR, error) {
		mr, err := pd.RegMR(make([]byte, 8), a)
		mrs = append(mrs, mr)
		return mr, err
	}
	foreign := func(pd *uverbs.PD, a uverbs.Access) (*uverbs.MR, error) {
		other := must(pd.Context().AllocPD())(t)
		t.Cleanup(func() { check(t, other.Close()) })
		return reg(other, a)
	}
	failing := func(pd *uverbs.PD, a uverbs.Access) (*uverbs.MR, error) {
		mr, _ := reg(pd, a)
		return mr, uverbs.ErrNotSupported
	}
	none := func(*uverbs.PD, uverbs.Access) (*uverbs.MR, error) { return nil, nil }
	panicking := func(*uverbs.PD, uverbs.Access) (*uverbs.MR, error) { panic("of the program") }
	now := none
	r := rdma.RegionFunc(8, func(pd *uverbs.PD, a uverbs.Access) (*uverbs.MR, error) { return now(pd, a) })
	use := func() (err error) {
		defer func() {
			if x := recover(); x != nil {
				err = fmt.Errorf("panic: %v", x)
			}
		}()
		b, err := p.client.BufferOf(r, 0, 8)
		b.Release()
		return err
	}
	isError(t, use(), uverbs.ErrInvalid)
	now = foreign
	isError(t, use(), uverbs.ErrInvalid)
	now = failing
	isError(t, use(), uverbs.ErrNotSupported)
	now = panicking
	if err := use(); err == nil || err.Error() != "panic: of the program" {
		t.Errorf("BufferOf returns %v", err)
	}
	for _, mr := range mrs {
		isError(t, mr.Rereg(uverbs.ReregAccess, nil, nil, 0), uverbs.ErrClosed)
	}
	now = reg
	check(t, use())
	check(t, r.Close())
}

// TestRegionCloseBesideUse checks that Close does not return nil while BufferOf or Share registers the region.
func TestRegionCloseBesideUse(t *testing.T) {
	p := connect(t, nil, nil)
	for name, use := range map[string]func(r *rdma.Region) error{
		"BufferOf": func(r *rdma.Region) error { _, err := p.client.BufferOf(r, 0, 8); return err },
		"Share":    func(r *rdma.Region) error { _, err := p.client.Share(limit(t), r, rdma.CanRead); return err },
	} {
		entered, goOn := make(chan struct{}), make(chan struct{})
		var mr *uverbs.MR
		r := rdma.RegionFunc(8, func(pd *uverbs.PD, a uverbs.Access) (_ *uverbs.MR, err error) {
			close(entered)
			<-goOn
			mr, err = pd.RegMR(make([]byte, 8), a)
			return mr, err
		})
		used := background(func() error { return use(r) })
		<-entered
		err := r.Close()
		close(goOn)
		isError(t, err, uverbs.ErrBusy)
		isError(t, within(t, used, name), rdma.ErrReleased)
		check(t, r.Close())
		isError(t, mr.Rereg(uverbs.ReregAccess, nil, nil, 0), uverbs.ErrClosed)
	}
}

// TestRegionBesideLastClose uses a region on a new connection while the last one of the device before is being closed,
// which waits for a BufferOf. The device stays open.
func TestRegionBesideLastClose(t *testing.T) {
	p := machines(t)
	p.onClient(func() {
		list := must(cm.Devices())(t)
		t.Cleanup(func() { check(t, list.Close()) })
	})
	p.dial(t, nil, nil)
	first := p.client
	r := rdma.NewRegion(64)
	must(first.BufferOf(r, 0, 10))(t).Release()
	entered, wait := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(wait) })
	defer goOn()
	slow := rdma.RegionFunc(8, func(pd *uverbs.PD, a uverbs.Access) (*uverbs.MR, error) {
		close(entered)
		<-wait
		return pd.RegMR(make([]byte, 8), a)
	})
	used := background(func() error { _, err := first.BufferOf(slow, 0, 8); return err })
	<-entered
	closed := background(first.Close)
	until(t, "Close of the last connection", func() bool {
		b, err := first.BufferOf(rdma.NewRegion(8), 0, 8)
		b.Release()
		return errors.Is(err, net.ErrClosed)
	})
	second := &pair{net: p.net, here: p.here, there: p.there}
	second.dial(t, nil, nil)
	b := must(second.client.BufferOf(r, 0, 10))(t)
	check(t, second.client.SendBuffer(limit(t), b))
	goOn()
	isError(t, within(t, used, "BufferOf"), net.ErrClosed)
	check(t, within(t, closed, "Close"))
	m := must(second.server.Recv(limit(t)))(t)
	m.Release()
	check(t, second.client.Flush(limit(t)))
	check(t, errors.Join(r.Close(), slow.Close()))
}

// huge returns n bytes of address space, of which none has a page.
func huge(t *testing.T, n int) []byte {
	t.Helper()
	b := must(unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE))(t)
	t.Cleanup(func() { check(t, unix.Munmap(b)) })
	return b
}

// TestRegionLimits checks that a region of 3 GiB can be used everywhere in pieces of up to 1 GiB, and that what the
// device or the system does not support is refused before anything is sent.
func TestRegionLimits(t *testing.T) {
	const tib = 1 << 40
	p := connect(t, nil, nil)
	ctx := limit(t)
	r := rdma.RegionOf(huge(t, 3<<30))
	const off = 5 << 29
	copy(r.Bytes()[off:], "beyond 2 GiB")
	_, err := p.client.BufferOf(r, 0, 1<<30+1)
	isError(t, err, rdma.ErrTooLong)
	long := must(p.client.BufferOf(r, 0, 1<<30))(t)
	isError(t, p.client.SendBuffer(ctx, long), rdma.ErrTooLong) // the peer's MaxMessage
	long.Release()
	check(t, p.client.SendBuffer(ctx, must(p.client.BufferOf(r, off, 12))(t)))
	m := must(p.server.Recv(ctx))(t)
	if string(m.Copy()) != "beyond 2 GiB" {
		t.Error("other bytes")
	}
	check(t, p.client.SendBuffer(ctx, must(p.client.BufferOf(r, off, 50000))(t)))
	m = must(p.server.Recv(ctx))(t)
	if string(m.Bytes()[:12]) != "beyond 2 GiB" || m.Len() != 50000 {
		t.Error("other bytes")
	}
	m.Release()
	_, err = p.client.Share(ctx, r, rdma.CanRead)
	isError(t, err, rdma.ErrTooLong)

	p.here.SetLimits(verbstest.Limits{Memlock: 64 << 30})
	space := huge(t, tib)
	pinned := rdma.RegionOf(space)
	_, err = p.client.BufferOf(pinned, 0, 1)
	isError(t, err, uverbs.ErrMemlock)
	onDemand := rdma.RegionFunc(tib, func(pd *uverbs.PD, a uverbs.Access) (*uverbs.MR, error) {
		return pd.RegMR(space, a|uverbs.OnDemand)
	})
	_, err = p.client.BufferOf(onDemand, tib-10, 10)
	isError(t, err, uverbs.ErrNotSupported)
	roundTrip(t, p)
	check(t, errors.Join(p.client.Flush(ctx), r.Close(), pinned.Close(), onDemand.Close()))
}

// TestRegionRace uses and closes regions from many goroutines, on connections of one device, one of which is closed
// meanwhile.
func TestRegionRace(t *testing.T) {
	for range 10 {
		all := machines(t)
		all.allow(verbstest.BufferUse)
		pairs := make([]*pair, 3)
		for i := range pairs {
			pairs[i] = &pair{net: all.net, here: all.here, there: all.there}
			pairs[i].dial(t, &rdma.Options{Linger: -1}, &rdma.Options{Linger: -1})
		}
		ctx := limit(t)
		r := rdma.NewRegion(100000)
		var users sync.WaitGroup
		for i, p := range pairs {
			users.Go(func() { drain(ctx, p.server) })
			users.Go(func() {
				for k := range 20 {
					b, err := p.client.BufferOf(r, k, 10+(k%3)*30000)
					if err == nil {
						if p.client.SendBuffer(ctx, b) != nil {
							b.Release()
						}
					} else if !errors.Is(err, rdma.ErrReleased) && !errors.Is(err, net.ErrClosed) {
						t.Error(err)
					}
					if i == 0 && k == 10 {
						mayLose(t, p.client.Close())
					}
					if i == 1 && k == 15 {
						if err := r.Close(); err != nil && !errors.Is(err, uverbs.ErrBusy) {
							t.Error(err)
						}
					}
				}
				_ = p.client.Flush(ctx) // it has failed on the connection that was closed
				mayLose(t, p.client.Close())
			})
		}
		users.Wait()
		check(t, r.Close())
	}
}

// drain receives until the connection ends.
func drain(ctx context.Context, c *rdma.Conn) {
	for {
		m, err := c.Recv(ctx)
		if err != nil {
			return
		}
		m.Release()
	}
}
