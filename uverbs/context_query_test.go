package uverbs

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestQueryGID(t *testing.T) {
	r := newRig(t)
	for _, want := range good(r.c.GIDs(1))(t) {
		if got := good(r.c.QueryGID(1, want.Index))(t); *got != want {
			t.Errorf("index %d: %+v, the table has %+v", want.Index, got, want)
		}
	}
	for _, index := range []int{-1, 3, 16, 1 << 40} {
		if _, err := r.c.QueryGID(1, index); !errors.Is(err, ErrInvalid) {
			t.Errorf("index %d: %v", index, err)
		}
	}
	if _, err := r.c.QueryGID(2, 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("port 2: %v", err)
	}
}

// closingClock is a clock whose page is replaced by a zero page while it is read.
type closingClock struct {
	providerContext
	close func()
}

func (c closingClock) QueryClock() (uint64, error) {
	c.close()
	return 0, nil
}

func TestQueryClockDuringClose(t *testing.T) {
	r := newRig(t)
	r.c.impl = closingClock{r.c.impl, func() { check(t, r.c.Close()) }}
	if v, err := r.c.QueryClock(); !errors.Is(err, ErrClosed) {
		t.Errorf("the clock is %d, %v after Close; want ErrClosed", v, err)
	}
}

func TestQueryPortSpeed(t *testing.T) {
	r := newRig(t)
	if _, err := r.c.QueryPortSpeed(1); !errors.Is(err, ErrNotSupported) {
		t.Errorf("a driver without: %v", err)
	}
	r.k.Set(func() { r.k.Speed = 4000 })
	if v := good(r.c.QueryPortSpeed(1))(t); v != 4000 {
		t.Errorf("%d", v)
	}
	if _, err := r.c.QueryPortSpeed(0); !errors.Is(err, ErrInvalid) {
		t.Errorf("port 0: %v", err)
	}
}

func TestModerate(t *testing.T) {
	r := newRig(t)
	cq := good(r.c.CreateCQ(CQConfig{Entries: 8}))(t)
	if err := cq.Moderate(1, 1); !errors.Is(err, ErrNotSupported) {
		t.Errorf("a driver without: %v", err)
	}
	r.k.Set(func() {
		caps := &r.k.Extended.CqModerationCaps
		caps.MaxCqModerationCount, caps.MaxCqModerationPeriod = 100, 200
	})
	check(t, cq.Moderate(100, 200*time.Microsecond))
	check(t, cq.Moderate(0, 0))
	check(t, cq.Moderate(1, time.Nanosecond)) // rounded up to a microsecond
	for _, v := range []struct {
		count  int
		period time.Duration
	}{{101, 1}, {1, 201 * time.Microsecond}, {-1, 0}, {0, -1}, {1 << 16, 0}, {0, 1 << 16 * time.Microsecond}} {
		if err := cq.Moderate(v.count, v.period); !errors.Is(err, ErrInvalid) {
			t.Errorf("%v: %v", v, err)
		}
	}
	check(t, cq.Close())
	if err := cq.Moderate(1, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed CQ: %v", err)
	}
}

func TestRateLimit(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	limit := func(v uint32) error {
		return b.qp.Modify(QPAttr{State: StateRTS, RateLimit: v}, MaskState|MaskRateLimit)
	}
	if err := limit(9); !errors.Is(err, ErrNotSupported) || !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("a driver without: %v", err)
	}
	r.k.Set(func() { r.k.RateMax = 1000 })
	check(t, limit(1000))
	if err := limit(1001); !errors.Is(err, ErrInvalid) {
		t.Errorf("too much: %v", err)
	}
	if got := (MaskState | MaskRateLimit | 1<<22).String(); got != "State, bit 22, RateLimit" {
		t.Errorf("the mask is %q", got)
	}
}

func TestRegDMABuf(t *testing.T) {
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	reg := func(fd int, off uint64, n int, iova uint64, a Access) error {
		return second(pd.RegDMABuf(fd, off, n, iova, a))
	}
	if err := reg(7, 0, 8, 0, 0); !errors.Is(err, ErrNotSupported) {
		t.Errorf("a driver without: %v", err)
	}
	r.k.Set(func() { r.k.DMABuf = 7 })
	m := good(pd.RegDMABuf(7, 0x10, 0x100, 0x5010, LocalWrite|RelaxedOrdering))(t)
	if m.Bytes() != nil || m.Addr() != 0x5010 || m.Len() != 0x100 {
		t.Errorf("%d bytes, at %#x, length %#x", len(m.Bytes()), m.Addr(), m.Len())
	}
	if s := m.SGE(0xff, 1); s != (SGE{0x510f, 1, m.LKey()}) {
		t.Errorf("the last byte is %+v", s)
	}
	if s := m.SGE(0xff, 2); s.Length != badLength {
		t.Errorf("a range outside is %+v", s)
	}
	if err := pd.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("closing the PD: %v", err)
	}
	check(t, m.Close())
	for name, err := range map[string]error{
		"no descriptor":    reg(-1, 0, 8, 0, 0),
		"another":          reg(8, 0, 8, 0, 0),
		"nothing":          reg(7, 0, 0, 0, 0),
		"outside":          reg(7, 4090, 7, 4090, 0),
		"offset wraps":     reg(7, ^uint64(0), 8, 0, 0),
		"address wraps":    reg(7, 0, 8, ^uint64(0), 0),
		"page offset":      reg(7, 16, 8, 24, 0),
		"RemoteWrite only": reg(7, 0, 8, 0, RemoteWrite),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
