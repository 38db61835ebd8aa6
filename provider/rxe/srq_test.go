package rxe

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// newSRQ returns an SRQ for n receives with one SGE each, and the kernel's end of
// it.
func newSRQ(t *testing.T, z *resizer, ctx *deviceContext, n int) (*kernelRing, *srq) {
	t.Helper()
	k, mi := z.offer(n, 40+16, false)
	want := driver.Reply{Handle: 5, SRQ: driver.SRQCap{MaxWR: n, MaxSGE: 1}}
	s, reply, err := ctx.CreateSRQ(&driver.SRQConfig{}, create(t, &uapi.RxeCreateSrqResp{Mi: mi, SrqNum: 3}, want, nil))
	if err != nil || reply != want {
		t.Fatalf("CreateSRQ: %+v, %v", reply, err)
	}
	t.Cleanup(func() { s.Retire() })
	return k, s.(*srq)
}

// modified returns the MODIFY_SRQ command that replaces old by next. It writes the
// offer mi to the address in the command.
func (z *resizer) modified(old, next *kernelRing, mi uapi.Mminfo) driver.Command {
	return func(in, out []byte) (driver.Reply, error) {
		if len(in) != 8 || len(out) != 0 {
			z.t.Errorf("vendor part of %d and %d bytes, want 8 and 0", len(in), len(out))
		}
		for old.count() > 0 {
			copy(next.element(index(next.b, 128).Load()), old.element(old.own))
			index(next.b, 128).Add(1)
			old.advance()
		}
		*offered(in) = mi
		return driver.Reply{}, nil
	}
}

func TestCreateSRQ(t *testing.T) {
	z, ctx := newResizer(t)
	k, s := newSRQ(t, z, ctx, 7)
	n, err := s.PostRecv([]uverbs.RecvWR{{WRID: 0x1122, SGL: []uverbs.SGE{{Addr: 0xa1, Length: 0x10, LKey: 0xb1}}}})
	if n != 1 || err != nil || k.count() != 1 {
		t.Fatalf("PostRecv: %d, %v, %d published", n, err, k.count())
	}
	want := make([]byte, 56)
	fill(want, []field{{0, 8, 0x1122}, {16, 4, 0x10}, {20, 4, 0x10}, {28, 4, 1}, {40, 8, 0xa1}, {48, 4, 0x10},
		{52, 4, 0xb1}})
	if got := k.element(0)[:56]; !bytes.Equal(got, want) {
		t.Errorf("WQE is\n%x, want\n%x", got, want)
	}
	if n, err := s.PostRecv([]uverbs.RecvWR{{SGL: make([]uverbs.SGE, 2)}}); n != 0 ||
		!errors.Is(err, uverbs.ErrTooManySGEs) {
		t.Errorf("PostRecv of 2 SGEs: %d, %v", n, err)
	}
	for name, c := range map[string]struct {
		mi   uapi.Mminfo
		err  error
		want error
	}{
		"refused":      {uapi.Mminfo{}, unix.ENOMEM, unix.ENOMEM},
		"out of reach": {uapi.Mminfo{Offset: 1, Size: 4096}, nil, unix.EINVAL},
	} {
		_, _, err := ctx.CreateSRQ(&driver.SRQConfig{}, create(t, &uapi.RxeCreateSrqResp{Mi: c.mi}, driver.Reply{}, c.err))
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestModifySRQ(t *testing.T) {
	z, ctx := newResizer(t)
	k, s := newSRQ(t, z, ctx, 7)
	resize := func(n int, c driver.Command) error {
		return s.Modify(n, c)
	}
	id, next := uint64(0), uint64(0)
	post := func(n int) {
		t.Helper()
		for range n {
			if n, err := s.PostRecv([]uverbs.RecvWR{{WRID: id}}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			id++
		}
	}
	take := func(n int) {
		t.Helper()
		for range n {
			if got := le.Uint64(k.element(k.own)); k.count() == 0 || got != next {
				t.Fatalf("%d receives, the next is %d, want %d", k.count(), got, next)
			}
			k.advance()
			next++
		}
	}
	post(5)
	take(3)
	post(4) // the ring wraps
	never := func(_, _ []byte) (driver.Reply, error) {
		t.Error("the kernel was asked")
		return driver.Reply{}, nil
	}
	if err := resize(3, never); !errors.Is(err, uverbs.ErrInvalid) || !errors.Is(err, unix.EINVAL) {
		t.Errorf("6 receives into a queue of 3: %v", err)
	}
	refused := func(_, _ []byte) (driver.Reply, error) { return driver.Reply{}, unix.ENOMEM }
	if err := resize(100, refused); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("refused: %v", err)
	}
	take(1)
	grown, mi := z.offer(4, 56, false) // has room for 7
	before := s.ring
	if err := resize(4, z.modified(k, grown, mi)); err != nil {
		t.Fatal(err)
	}
	if load32(before.mem.Bytes(), offMask) != 0 {
		t.Error("the old ring is still mapped")
	}
	k = grown
	take(2)
	post(4)
	if n, err := s.PostRecv([]uverbs.RecvWR{{}}); n != 0 || !errors.Is(err, uverbs.ErrQueueFull) {
		t.Errorf("PostRecv on the full queue: %d, %v", n, err)
	}
	limit := func(in, _ []byte) (driver.Reply, error) {
		if len(in) != 8 {
			t.Errorf("a limit comes with %d bytes of the vendor's", len(in))
		}
		return driver.Reply{}, nil
	}
	if err := s.Modify(0, limit); err != nil {
		t.Error(err)
	}
	take(7)
}

// TestLostSRQ checks that every post returns the error if a resized ring cannot be mapped, until another resize
// restores all receives.
func TestLostSRQ(t *testing.T) {
	z, ctx := newResizer(t)
	k, s := newSRQ(t, z, ctx, 7)
	resize := func(n int, c driver.Command) error {
		return s.Modify(n, c)
	}
	if n, err := s.PostRecv(make([]uverbs.RecvWR, 4)); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	lost, mi := z.offer(15, 56, false)
	mi.Offset++
	if err := resize(15, z.modified(k, lost, mi)); !errors.Is(err, unix.EINVAL) {
		t.Fatalf("Modify: %v, want mmap's EINVAL", err)
	}
	if n, err := s.PostRecv(make([]uverbs.RecvWR, 1)); n != 0 || !errors.Is(err, unix.EINVAL) {
		t.Errorf("PostRecv to the lost ring: %d, %v", n, err)
	}
	if err := resize(3, nil); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("4 receives into a queue of 3: %v", err)
	}
	found, mi := z.offer(31, 56, false)
	if err := resize(31, z.modified(lost, found, mi)); err != nil {
		t.Fatal(err)
	}
	if n, err := s.PostRecv(make([]uverbs.RecvWR, 1)); n != 1 || err != nil || found.count() != 5 {
		t.Errorf("PostRecv: %d, %v, %d in the ring", n, err, found.count())
	}
}

// TestRetireSRQUnderPost checks that posts that run concurrently with Retire do not fault.
func TestRetireSRQUnderPost(t *testing.T) {
	z, ctx := newResizer(t)
	for range 20 {
		_, s := newSRQ(t, z, ctx, 7)
		var stop atomic.Bool
		var started, done sync.WaitGroup
		started.Add(1)
		done.Go(func() {
			for i := 0; !stop.Load(); i++ {
				s.PostRecv([]uverbs.RecvWR{{WRID: 1, SGL: []uverbs.SGE{sge(0, 8)}}})
				if i == 0 {
					started.Done()
				}
			}
		})
		started.Wait()
		if err := s.Retire(); err != nil {
			t.Fatal(err)
		}
		stop.Store(true)
		done.Wait()
	}
}

func TestCreateAH(t *testing.T) {
	_, ctx := newResizer(t)
	want := driver.Reply{Handle: 5}
	var av driver.AV
	reply, err := ctx.CreateAH(&uverbs.AHAttr{}, nil, &av, create(t, &uapi.RxeCreateAhResp{AhNum: 0x77}, want, nil))
	if err != nil || reply != want || av != (driver.AV{0x77}) {
		t.Errorf("CreateAH: %+v, %v, AV %x", reply, err, av)
	}
	// A kernel that does not number AHs needs the whole address in each WQE.
	if _, err = ctx.CreateAH(&uverbs.AHAttr{}, nil, &av, create(t, &uapi.RxeCreateAhResp{}, want,
		nil)); !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("an AH without a number: %v", err)
	}
	if _, err = ctx.CreateAH(&uverbs.AHAttr{}, nil, &av, create(t, &uapi.RxeCreateAhResp{}, want,
		unix.ETIMEDOUT)); !errors.Is(err, unix.ETIMEDOUT) {
		t.Errorf("refused: %v", err)
	}
}
