package verbstest_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestMemlock checks that registered memory and rings count against the limit on locked memory, and
// that the error has the machine's numbers.
func TestMemlock(t *testing.T) {
	m := verbstest.New(t)
	c := must(uverbs.Open(m.Device()))(t)
	defer c.Close()
	pd := must(c.AllocPD())(t)
	const limit = 1 << 20
	m.SetLimits(verbstest.Limits{Memlock: limit})
	first := must(pd.Alloc(limit/2, uverbs.LocalWrite))(t)
	explained := func(what string, err error, parts ...string) {
		t.Helper()
		if !errors.Is(err, uverbs.ErrMemlock) || !errors.Is(err, unix.ENOMEM) {
			t.Errorf("%s: %v", what, err)
			return
		}
		for _, part := range append(parts, "RLIMIT_MEMLOCK is 1048576 bytes", "524288 are pinned already") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v: want %q", what, err, part)
			}
		}
	}
	_, err := pd.Alloc(limit/2+1, uverbs.LocalWrite)
	explained("more than the rest", err)
	_, err = c.CreateCQ(uverbs.CQConfig{Entries: limit / 64, NoEvents: true})
	explained("a CQ", err, "for the rings")
	second := must(pd.Alloc(limit/2, uverbs.LocalWrite))(t)
	if _, err := c.CreateCQ(uverbs.CQConfig{Entries: 16, NoEvents: true}); !errors.Is(err, uverbs.ErrMemlock) {
		t.Errorf("a CQ with all memory in use: %v", err)
	}
	if err := errors.Join(first.Close(), second.Close()); err != nil {
		t.Error(err)
	}
	check(t, must(pd.Alloc(limit, uverbs.LocalWrite))(t).Close())
	m.SetLimits(verbstest.Limits{})
	check(t, must(pd.Alloc(2*limit, uverbs.LocalWrite))(t).Close())
}

// TestPinned checks that what queues pin no longer counts when they are closed.
func TestPinned(t *testing.T) {
	m := verbstest.New(t)
	m.SetLimits(verbstest.Limits{Memlock: 1 << 20})
	c := must(uverbs.Open(m.Device()))(t)
	defer c.Close()
	pd := must(c.AllocPD())(t)
	for range 50 { // together they need several times the limit
		cq := must(c.CreateCQ(uverbs.CQConfig{Entries: 100, NoEvents: true}))(t)
		check(t, cq.Resize(1000))
		srq := must(pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 100}))(t)
		q := must(pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, RecvCQ: cq, SRQ: srq, MaxSendWR: 100}))(t)
		mr := must(pd.Alloc(100, uverbs.LocalWrite))(t)
		check(t, errors.Join(q.Close(), srq.Close(), cq.Close(), mr.Close()))
	}
	check(t, must(pd.Alloc(1<<20, uverbs.LocalWrite))(t).Close())
}

// TestObjectLimits checks that a device has as many objects of each kind as the test sets, and that
// programs can query the number.
func TestObjectLimits(t *testing.T) {
	m := verbstest.New(t)
	c := must(uverbs.Open(m.Device()))(t)
	defer c.Close()
	other := must(uverbs.Open(m.Device()))(t) // the limits are those of both
	defer other.Close()
	pd, cq := must(c.AllocPD())(t), must(c.CreateCQ(uverbs.CQConfig{Entries: 16, NoEvents: true}))(t)
	for _, kind := range []struct {
		name   string
		limits verbstest.Limits
		create func() (interface{ Close() error }, error)
		number func(*uverbs.DeviceAttr) int
	}{
		{"PD", verbstest.Limits{PDs: 3},
			func() (interface{ Close() error }, error) { return other.AllocPD() },
			func(a *uverbs.DeviceAttr) int { return a.MaxPD }},
		{"CQ", verbstest.Limits{CQs: 3},
			func() (interface{ Close() error }, error) {
				return other.CreateCQ(uverbs.CQConfig{Entries: 16, NoEvents: true})
			},
			func(a *uverbs.DeviceAttr) int { return a.MaxCQ }},
		{"QP", verbstest.Limits{QPs: 3},
			func() (interface{ Close() error }, error) {
				return pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, RecvCQ: cq, MaxSendWR: 1})
			},
			func(a *uverbs.DeviceAttr) int { return a.MaxQP }},
		{"SRQ", verbstest.Limits{SRQs: 3},
			func() (interface{ Close() error }, error) { return pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 16}) },
			func(a *uverbs.DeviceAttr) int { return a.MaxSRQ }},
		{"MR", verbstest.Limits{MRs: 3},
			func() (interface{ Close() error }, error) { return pd.Alloc(64, uverbs.LocalWrite) },
			func(a *uverbs.DeviceAttr) int { return a.MaxMR }},
		{"MW", verbstest.Limits{MWs: 3},
			func() (interface{ Close() error }, error) { return pd.AllocMW(uverbs.MWType2) }, nil},
	} {
		m.SetLimits(kind.limits)
		if a := must(c.QueryDevice())(t); kind.number != nil && kind.number(a) != 3 {
			t.Errorf("%s: QueryDevice returns %d, want 3", kind.name, kind.number(a))
		}
		var made []interface{ Close() error }
		var err error
		for len(made) < 5 && err == nil {
			var o interface{ Close() error }
			if o, err = kind.create(); err == nil {
				made = append(made, o)
			}
		}
		exist := len(made)
		if kind.name == "PD" || kind.name == "CQ" {
			exist++ // that of c
		}
		if exist != 3 || !errors.Is(err, unix.ENOMEM) || errors.Is(err, uverbs.ErrMemlock) ||
			!strings.Contains(err.Error(), "or the device no object left") && kind.name != "MR" {
			t.Errorf("%s: %d, then %v", kind.name, exist, err)
		}
		for _, o := range made {
			check(t, o.Close())
		}
		check(t, must(kind.create())(t).Close())
	}
}

// TestCgroup checks the limits of the rdma cgroup. The error has the machine's numbers.
func TestCgroup(t *testing.T) {
	m := verbstest.New(t)
	m.SetLimits(verbstest.Limits{Contexts: 1, Objects: 4})
	c := must(uverbs.Open(m.Device()))(t)
	defer c.Close()
	_, err := uverbs.Open(m.Device())
	if !errors.Is(err, unix.EAGAIN) || !strings.Contains(err.Error(), "allows 1 open context(s) on mlx5_0") {
		t.Errorf("another Context: %v", err)
	}
	for err = nil; err == nil; _, err = c.AllocPD() {
	}
	if !errors.Is(err, unix.EAGAIN) || !strings.Contains(err.Error(), "allows 4 object(s) on mlx5_0") {
		t.Errorf("more objects: %v", err)
	}
}
