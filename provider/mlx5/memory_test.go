package mlx5

import (
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/ether"
)

// An arena provides the memory of rings, as a program does with Alloc.
type arena struct {
	t      *testing.T
	given  [][]byte
	back   atomic.Int32
	broken error
}

func (a *arena) alloc(n, align int) ([]byte, error) {
	if a.broken != nil {
		return nil, a.broken
	}
	b := good(unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))(a.t)
	if addressOf(b)%uint64(align) != 0 || n%align != 0 {
		a.t.Errorf("asked for %d bytes at a multiple of %d", n, align)
	}
	for i := range b {
		b[i] = 0xa5
	}
	a.given = append(a.given, b)
	return b, nil
}

func (a *arena) free(b []byte) {
	a.back.Add(1)
	if err := unix.Munmap(b); err != nil {
		a.t.Error(err)
	}
}

// TestQueueMemory checks that the rings of all kinds of queues are in the memory that the parent domain's Alloc
// returns, also after a resize, and work there. The library keeps the memory until no goroutine can be using the
// queues.
func TestQueueMemory(t *testing.T) {
	a := &arena{t: t}
	useArena(t, a)
	for range 1000 {
		runtime.GC()
		if int(a.back.Load()) == len(a.given) {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%d of %d rings came back", a.back.Load(), len(a.given))
}

func useArena(t *testing.T, a *arena) {
	d := newWire(t, inlineKit(1), uverbs.QPConfig{}).desk
	d.pd = good(d.pd.AllocParentDomain(uverbs.ParentDomainConfig{Alloc: a.alloc, Free: a.free}))(t)
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 63, PD: d.pd}))(t)
	srq := good(d.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 8}))(t)
	wq := good(ether.CreateWQ(d.pd, ether.WQConfig{CQ: cq, MaxWR: 8}))(t)
	plain, shared := d.loop(t, uverbs.QPConfig{SendCQ: cq}), d.loop(t, uverbs.QPConfig{SendCQ: cq, SRQ: srq})
	used := func() {
		t.Helper()
		for i := range uint64(20) {
			for _, q := range []*uverbs.QP{plain, shared} {
				d.write(t, q, i)
				poll(t, cq, i)
			}
		}
	}
	used()
	check(t, cq.Resize(255))
	used()
	if len(a.given) != 6 {
		t.Errorf("Alloc was called %d times, for 5 queues and a resize", len(a.given))
	}
	a.broken = errors.New("none left")
	for name, err := range map[string]error{
		"CQ":     second(d.c.CreateCQ(uverbs.CQConfig{Entries: 1, PD: d.pd})),
		"QP":     second(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 1})),
		"SRQ":    second(d.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 1})),
		"WQ":     second(ether.CreateWQ(d.pd, ether.WQConfig{CQ: cq, MaxWR: 1})),
		"resize": cq.Resize(1000),
	} {
		if !errors.Is(err, a.broken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	used()
	runtime.GC()
	// Only the ring that the resize replaced may have been freed.
	if n := a.back.Load(); n > 1 {
		t.Errorf("%d rings came back while they were in use", n)
	}
	for _, close := range []func() error{plain.Close, shared.Close, srq.Close, wq.Close, cq.Close} {
		check(t, close())
	}
}

// TestHugePages checks that rings are in huge pages if the environment requests them and the system has any.
func TestHugePages(t *testing.T) {
	probe, err := provider.Huge(1)
	if err == nil {
		check(t, probe.Retire())
	} else if !errors.Is(err, unix.ENOMEM) {
		t.Fatal(err)
	}
	for _, kind := range []pageKind{hugeOrSmallPages, hugePages} {
		d := newDesk(t, standard())
		set := &d.s.ctx.set
		set.qpPages, set.cqPages, set.srqPages = kind, kind, kind
		for name, got := range map[string]error{
			"CQ":  second(d.c.CreateCQ(uverbs.CQConfig{Entries: 7})),
			"SRQ": second(d.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 8})),
		} {
			if wrong := got != nil; wrong != (kind == hugePages && err != nil) || wrong &&
				(!errors.Is(got, unix.ENOMEM) || !strings.Contains(got.Error(), "vm.nr_hugepages")) {
				t.Errorf("%s, kind %d, huge pages: %v: %v", name, kind, err, got)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }
