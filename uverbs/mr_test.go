package uverbs

import (
	"errors"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// pageable makes the device support on-demand paging and all changes by Rereg.
func (r *rig) pageable() {
	r.k.Set(func() {
		r.k.Rereg = uint32(reregAll)
		r.k.Extended.OdpCaps.GeneralCaps = uint64(ODPSupport | ODPImplicit)
		r.k.Extended.DeviceCapFlagsEx = uint64(DeviceFlushGlobal | DeviceFlushPersistent)
	})
}

// TestRegMRIOVA checks that the SGEs of an MR with a separate address contain that address.
func TestRegMRIOVA(t *testing.T) {
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	b := good(pd.Alloc(8192, LocalWrite))(t).Bytes()
	for _, iova := range []uint64{0, 1 << 40, 1<<64 - 1<<16} {
		m := good(pd.RegMRIOVA(b, iova, LocalWrite|RemoteRead))(t)
		if m.Addr() != iova || m.Len() != len(b) || &m.Bytes()[0] != &b[0] {
			t.Errorf("at %#x: address %#x, %d bytes", iova, m.Addr(), m.Len())
		}
		if s := m.SGE(100, 8092); s.Addr != iova+100 || s.Length != 8092 || s.LKey != m.LKey() {
			t.Errorf("at %#x: the range is %+v", iova, s)
		}
		if s := m.SGE(100, 8093); s.Length != badLength {
			t.Errorf("at %#x: a range outside is %+v", iova, s)
		}
		check(t, m.Close())
	}
	for name, err := range map[string]error{
		"beyond 64 bits": second(pd.RegMRIOVA(b, ^uint64(0)-4095, 0)),
		"page offset":    second(pd.RegMRIOVA(b, 8, 0)),
		"empty":          second(pd.RegMRIOVA(nil, 0, 0)),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRegImplicit checks that offsets into an implicit MR are addresses.
func TestRegImplicit(t *testing.T) {
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	if _, err := pd.RegImplicit(LocalWrite | OnDemand); !errors.Is(err, ErrNotSupported) {
		t.Errorf("on a device without it: %v", err)
	}
	r.pageable()
	if _, err := pd.RegImplicit(LocalWrite); !errors.Is(err, ErrInvalid) {
		t.Errorf("without OnDemand: %v", err)
	}
	m := good(pd.RegImplicit(LocalWrite | OnDemand))(t)
	if s := m.SGE(1<<40, 77); s != (SGE{1 << 40, 77, m.LKey()}) {
		t.Errorf("the range is %+v", s)
	}
	if m.Addr() != 0 || m.Bytes() != nil {
		t.Errorf("address %#x, %d bytes of Go's", m.Addr(), len(m.Bytes()))
	}
	check(t, m.Close())
	if s := m.SGE(0, 0); s.Length != badLength {
		t.Errorf("after Close: %+v", s)
	}
}

// TestOptionalAccess checks that a flag which is only a hint is omitted if the kernel would refuse
// it.
func TestOptionalAccess(t *testing.T) {
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	for _, c := range []struct {
		support uint64
		want    uint32
	}{{0, 1}, {uapi.IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS, 1 | 1<<20}} {
		r.c.coreSupport = c.support
		var got uint32
		r.k.Set(func() {
			r.k.Before = func(m *ioctltest.Msg) {
				if m.Name == "REG_MR" {
					got = ioctltest.Request[uapi.IbUverbsRegMr](m).AccessFlags
				}
			}
		})
		check(t, good(pd.RegMR(make([]byte, 8), LocalWrite|RelaxedOrdering))(t).Close())
		if got != c.want {
			t.Errorf("support %#x: the kernel is asked for access %#x, want %#x", c.support, got, c.want)
		}
	}
	r.k.Set(func() { r.k.Before = nil })
}

// TestRereg checks that Rereg changes only the attributes that its flags name.
func TestRereg(t *testing.T) {
	r := newRig(t)
	r.pageable()
	pd, other := good(r.c.AllocPD())(t), good(r.c.AllocPD())(t)
	m := good(pd.Alloc(4096, LocalWrite))(t)
	addr, lkey, old := m.Addr(), m.LKey(), m.Bytes()

	check(t, m.Rereg(ReregAccess, nil, nil, LocalWrite|RemoteRead))
	check(t, m.Rereg(ReregPD, other, nil, 0))
	if m.Addr() != addr || m.LKey() != lkey || m.PD() != other {
		t.Errorf("after a change of access and PD: %#x, lkey %#x, of %v", m.Addr(), m.LKey(), m.PD())
	}
	if err := other.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("closing the new PD: %v", err)
	}
	check(t, pd.Close())

	b := make([]byte, 100)
	check(t, m.Rereg(ReregTranslation, nil, b, 0))
	if m.Addr() != addressOf(b) || m.Len() != 100 || m.LKey() == lkey || &m.Bytes()[0] != &b[0] {
		t.Errorf("after a change of memory: %d bytes at %#x, lkey %#x", m.Len(), m.Addr(), m.LKey())
	}
	if s := m.SGE(0, 101); s.Length != badLength {
		t.Errorf("the new memory ends where the old did: %+v", s)
	}
	old[0] = 1 // stays mapped
	third := good(r.c.AllocPD())(t)
	check(t, m.Rereg(reregAll, third, make([]byte, 200), LocalWrite))
	if m.Len() != 200 || m.PD() != third {
		t.Errorf("after a change of all: %d bytes, of %v", m.Len(), m.PD())
	}
	check(t, other.Close())
	check(t, m.Close())
	if s := m.SGE(0, 0); s.Length != badLength {
		t.Errorf("after Close: %+v", s)
	}
	check(t, third.Close())
	if err := m.Rereg(ReregAccess, nil, nil, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("Rereg of a closed MR: %v", err)
	}
}

// TestReregRefused checks that a refused Rereg leaves the MR unchanged. Memory and PDs that a
// partly executed Rereg may have passed to the device are kept until Close.
func TestReregRefused(t *testing.T) {
	r := newRig(t)
	pd, other := good(r.c.AllocPD())(t), good(r.c.AllocPD())(t)
	m := good(pd.Alloc(4096, LocalWrite))(t)
	was := *m.view.Load()
	unchanged := func(name string) {
		t.Helper()
		now := m.view.Load()
		if now.addr != was.addr || now.lkey != was.lkey || now.room != was.room || m.PD() != pd {
			t.Errorf("%s: the MR has changed: %+v", name, now)
		}
	}
	if err := m.Rereg(ReregPD, other, nil, 0); !errors.Is(err, ErrNotSupported) {
		t.Errorf("on a device without it: %v", err)
	}
	unchanged("not supported")
	check(t, other.Close()) // the MR does not refer to it

	other = good(r.c.AllocPD())(t)
	r.k.Set(func() { r.k.Rereg = uint32(ReregPD | ReregAccess) })
	if err := m.Rereg(ReregTranslation, nil, make([]byte, 8), 0); !errors.Is(err, ErrNotSupported) ||
		len(m.reg.backings) != 1 {
		t.Errorf("new memory alone: %v, %d pieces are held", err, len(m.reg.backings))
	}
	if err := m.Rereg(ReregPD|ReregTranslation, other, make([]byte, 8), 0); !errors.Is(err, ErrNotSupported) {
		t.Errorf("new memory: %v", err)
	}
	unchanged("half supported")
	if n := len(m.reg.backings); n != 2 {
		t.Errorf("%d pieces of memory are held, want both", n)
	}
	if err := other.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("closing a PD that the device may use: %v", err)
	}
	check(t, m.Close())
	check(t, other.Close())
	check(t, pd.Close())
}

// TestReregAccessAndPD checks that access and PD are changed with two commands, access first.
func TestReregAccessAndPD(t *testing.T) {
	r := newRig(t)
	r.k.Set(func() { r.k.Rereg = uint32(ReregPD | ReregAccess) })
	pd, other := good(r.c.AllocPD())(t), good(r.c.AllocPD())(t)
	m := good(pd.Alloc(4096, LocalWrite))(t)
	if err := m.Rereg(ReregPD|ReregAccess, other, nil, RemoteWrite); !errors.Is(err, ErrInvalid) || m.PD() != pd {
		t.Errorf("access that is refused: %v, and the PD is %v", err, m.PD())
	}
	if n := r.k.Count("REREG_MR"); n != 1 {
		t.Errorf("%d commands", n)
	}
	check(t, m.Rereg(ReregPD|ReregAccess, other, nil, LocalWrite|RemoteRead))
	if n := r.k.Count("REREG_MR"); n != 3 || m.PD() != other {
		t.Errorf("%d commands, and the PD is %v", n, m.PD())
	}
	check(t, pd.Close())
	r.k.Set(func() { r.k.Rereg = uint32(ReregAccess) })
	third := good(r.c.AllocPD())(t)
	if err := m.Rereg(ReregPD|ReregAccess, third, nil, LocalWrite); !errors.Is(err, ErrNotSupported) ||
		m.view.Load().access != LocalWrite || m.PD() != other {
		t.Errorf("a PD that is refused: %v, access %v, PD %v", err, m.view.Load().access, m.PD())
	}
	check(t, third.Close())
}

// TestReregRace calls Rereg, SGE and Close concurrently.
func TestReregRace(t *testing.T) {
	r := newRig(t)
	r.pageable()
	pd := good(r.c.AllocPD())(t)
	for range 20 {
		m := good(pd.Alloc(4096, LocalWrite))(t)
		var all sync.WaitGroup
		all.Go(func() {
			for i := range 10 {
				if err := m.Rereg(ReregTranslation, nil, make([]byte, 64+i), 0); err != nil && !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			for range 100 {
				m.SGE(0, 64)
			}
		})
		all.Go(func() { check(t, m.Close()) })
		all.Wait()
		if s := m.SGE(0, 0); s.Length != badLength {
			t.Fatalf("after Close: %+v", s)
		}
	}
}

// TestAdviseLong checks that a range of more than 2 GiB, which does not fit an entry of the
// command, is split.
func TestAdviseLong(t *testing.T) {
	r := newRig(t)
	r.pageable()
	pd := good(r.c.AllocPD())(t)
	mr := good(pd.RegImplicit(OnDemand | LocalWrite))(t)
	type chunk struct{ addr, length uint64 }
	var got []chunk
	commands := 0
	r.k.Set(func() {
		r.k.Before = func(m *ioctltest.Msg) {
			if m.Name != "MR.ADVISE" {
				return
			}
			commands++
			for _, s := range ioctl.SliceOf[uapi.IbUverbsSge](m.Table(uapi.UVERBS_ATTR_ADVISE_MR_SGE_LIST)) {
				got = append(got, chunk{s.Addr, uint64(s.Length)})
			}
		}
	})
	const page = 4096
	check(t, pd.AdviseMR(AdvicePrefetch, 0, MRRange{mr, page, 5<<30 + 7}, MRRange{mr, 0, 0}))
	want := []chunk{{page, 2 << 30}, {page + 2<<30, 2 << 30}, {page + 4<<30, 1<<30 + 7}, {0, 0}}
	if !slices.Equal(got, want) || commands != 1 {
		t.Errorf("%d commands advise on %x, want %x", commands, got, want)
	}
	got, commands = nil, 0
	check(t, pd.AdviseMR(AdvicePrefetch, 0, MRRange{mr, 0, (maxAdvised + 1) << 31}))
	if n := len(got); n != maxAdvised+1 || commands != 2 || got[n-1] != (chunk{maxAdvised << 31, 2 << 30}) {
		t.Errorf("%d commands advise on %d chunks, the last is %x", commands, n, got[n-1])
	}
	// The last byte that a range of the region can contain.
	check(t, pd.AdviseMR(AdvicePrefetch, 0, MRRange{mr, math.MaxInt - 1, 1}))
}

func TestAdviseMR(t *testing.T) {
	r := newRig(t)
	pd, other := good(r.c.AllocPD())(t), good(r.c.AllocPD())(t)
	plain := good(pd.Alloc(4096, LocalWrite))(t)
	r.pageable()
	m := good(pd.Alloc(4096, LocalWrite|OnDemand))(t)
	foreign := good(other.Alloc(4096, LocalWrite|OnDemand))(t)
	for _, a := range []Advice{AdvicePrefetch, AdvicePrefetchWrite, AdvicePrefetchNoFault} {
		check(t, pd.AdviseMR(a, AdviseFlush, MRRange{m, 0, 4096}, MRRange{m, 4096, 0}))
	}
	many := make([]MRRange, maxAdvised)
	for i := range many {
		many[i] = MRRange{m, 0, 1}
	}
	check(t, pd.AdviseMR(AdvicePrefetch, 0, many...))
	for _, c := range []struct {
		name string
		err  error
		want error
	}{
		{"no range", pd.AdviseMR(AdvicePrefetch, 0), ErrInvalid},
		{"too many", pd.AdviseMR(AdvicePrefetch, 0, append(many, many[0])...), ErrInvalid},
		{"too long", pd.AdviseMR(AdvicePrefetch, 0, MRRange{m, 0, math.MaxInt}), ErrRange},
		{"before", pd.AdviseMR(AdvicePrefetch, 0, MRRange{m, -1, 1}), ErrRange},
		{"nil MR", pd.AdviseMR(AdvicePrefetch, 0, MRRange{}), ErrRange},
		{"outside", pd.AdviseMR(AdvicePrefetch, 0, MRRange{m, 1, 4096}), ErrRange},
		{"not on demand", pd.AdviseMR(AdvicePrefetch, 0, MRRange{plain, 0, 1}), ErrInvalid},
		{"another PD", pd.AdviseMR(AdvicePrefetch, 0, MRRange{foreign, 0, 1}), ErrInvalid},
		{"unknown advice", pd.AdviseMR(9, 0, many[0]), ErrNotSupported},
		{"unknown flag", pd.AdviseMR(AdvicePrefetch, 8, many[0]), ErrInvalid},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, c.err, c.want)
		}
	}
	check(t, m.Close())
	check(t, plain.Close())
	check(t, pd.Close())
	if err := pd.AdviseMR(AdvicePrefetch, 0, MRRange{foreign, 0, 1}); !errors.Is(err, ErrInvalid) &&
		!errors.Is(err, ErrClosed) {
		t.Errorf("on a closed PD: %v", err)
	}
}

// TestCloseMRWithWindow checks that Close of an MR with bound windows returns ErrBusy for either
// errno that the kernel may return.
func TestCloseMRWithWindow(t *testing.T) {
	r := newRig(t)
	m := good(good(r.c.AllocPD())(t).Alloc(4096, LocalWrite|MWBindAccess))(t)
	for _, errno := range []unix.Errno{unix.EINVAL, unix.EBUSY} {
		r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"MR.DESTROY": errno} })
		if err := m.Close(); !errors.Is(err, ErrBusy) || !errors.Is(err, errno) {
			t.Errorf("%v: %v", errno, err)
		}
		if s := m.SGE(0, 4096); s.Length != 4096 {
			t.Errorf("the MR that stayed open yields %+v", s)
		}
	}
	r.k.Set(func() { r.k.Refuse = nil })
	check(t, m.Close())
}

// TestReregOnDemand checks that memory stays pinned or on-demand, as it was registered, whatever
// access it gets later: advice on pinned memory would do damage in rxe of Linux 7.2.
func TestReregOnDemand(t *testing.T) {
	r := newRig(t)
	r.pageable()
	pd := good(r.c.AllocPD())(t)
	plain, paged := good(pd.Alloc(4096, LocalWrite))(t), good(pd.Alloc(4096, LocalWrite|OnDemand))(t)
	advise := func(m *MR) error { return pd.AdviseMR(AdvicePrefetch, AdviseFlush, MRRange{m, 0, 64}) }

	if err := plain.Rereg(ReregAccess, nil, nil, LocalWrite|OnDemand); !errors.Is(err, ErrInvalid) ||
		r.k.Count("REREG_MR") != 0 {
		t.Errorf("pinned memory takes OnDemand: %v, %d commands", err, r.k.Count("REREG_MR"))
	}
	if err := advise(plain); !errors.Is(err, ErrInvalid) {
		t.Errorf("advice on pinned memory: %v", err)
	}
	check(t, paged.Rereg(ReregAccess, nil, nil, LocalWrite|RemoteRead))
	check(t, advise(paged))
	check(t, paged.Rereg(ReregAccess, nil, nil, LocalWrite|OnDemand))
	check(t, advise(paged))

	check(t, plain.Rereg(ReregTranslation|ReregAccess, nil, make([]byte, 64), LocalWrite|OnDemand))
	check(t, advise(plain))
	check(t, paged.Rereg(ReregTranslation|ReregAccess, nil, make([]byte, 64), LocalWrite))
	if err := advise(paged); !errors.Is(err, ErrInvalid) {
		t.Errorf("advice on memory that is pinned now: %v", err)
	}
}

// TestReregAfterFailure checks that after a Rereg that failed half way the MR refers to both PDs,
// and that the next successful Rereg releases both.
func TestReregAfterFailure(t *testing.T) {
	r := newRig(t)
	r.pageable()
	p1, p2, p3 := good(r.c.AllocPD())(t), good(r.c.AllocPD())(t), good(r.c.AllocPD())(t)
	m := good(p1.Alloc(4096, LocalWrite))(t)
	r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"REREG_MR": unix.ENOMEM} })
	if err := m.Rereg(ReregPD|ReregTranslation, p2, make([]byte, 64), 0); !errors.Is(err, unix.ENOMEM) {
		t.Error(err)
	}
	r.k.Set(func() { r.k.Refuse = nil })
	check(t, m.Rereg(ReregPD|ReregTranslation, p3, make([]byte, 64), 0))
	check(t, p1.Close())
	check(t, p2.Close())
	check(t, m.Close())
	check(t, p3.Close())
}
