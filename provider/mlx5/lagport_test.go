package mlx5

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// lagQPs returns a QP of each type that has a LAG port, in state RTS.
func (d *desk) lagQPs(t *testing.T) map[string]*uverbs.QP {
	t.Helper()
	d.s.Set(func() { d.s.NetRaw, d.s.Raw = true, true })
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 63}))(t)
	qps := map[string]*uverbs.QP{
		"RC": d.loop(t, uverbs.QPConfig{SendCQ: cq}), "UC": d.loop(t, uverbs.QPConfig{Type: uverbs.UC, SendCQ: cq}),
		"UD":  good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.UD, SendCQ: cq, MaxSendWR: 1}))(t),
		"DCI": good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCI, SendCQ: cq, MaxSendWR: 1}))(t),
		"raw": good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RawPacket, SendCQ: cq, MaxSendWR: 1}))(t),
	}
	for _, name := range []string{"UD", "DCI", "raw"} {
		check(t, qps[name].Ready())
	}
	return qps
}

// TestLAGPort checks that the kernel assigns ports, that a program can choose another one, and that the other port is
// active while one is down.
func TestLAGPort(t *testing.T) {
	d := newDesk(t, standard())
	if n := good(QueryDevice(d.c))(t).LAGPorts; n != 2 {
		t.Errorf("the device says that it has %d ports", n)
	}
	assigned := make(map[int]int)
	for name, qp := range d.lagQPs(t) {
		d.s.Set(func() { d.s.LAGPortDown = 0 })
		first, active, err := QueryLAGPort(qp)
		if err != nil || active != first {
			t.Errorf("%s: port %d, active %d: %v", name, first, active, err)
		}
		assigned[first]++
		for _, port := range []int{3 - first, first, first, 3 - first} {
			check(t, ModifyLAGPort(qp, port))
			for down, want := range map[uint8]int{0: port, uint8(port): 3 - port, uint8(3 - port): port} {
				d.s.Set(func() { d.s.LAGPortDown = down })
				if got, active, err := QueryLAGPort(qp); got != port || active != want || err != nil {
					t.Errorf("%s, port %d is down: port %d, active %d: %v; want %d, %d", name, down, got, active, err, port, want)
				}
			}
		}
	}
	if assigned[1] < 2 || assigned[2] < 2 || assigned[1]+assigned[2] != 5 {
		t.Errorf("the kernel has assigned %v", assigned)
	}
}

// TestLAGPortErrors checks QPs that have no port, and devices that lack this.
func TestLAGPortErrors(t *testing.T) {
	d := newDesk(t, standard())
	d.s.Set(func() { d.s.NetRaw, d.s.Raw = true, true })
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
	rc := d.loop(t, uverbs.QPConfig{SendCQ: cq})
	early := good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 1, MaxRecvWR: 1}))(t)
	inInit := good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 1, MaxRecvWR: 1}))(t)
	check(t, inInit.Modify(uverbs.QPAttr{State: uverbs.StateInit, Port: 1},
		uverbs.MaskState|uverbs.MaskPort|uverbs.MaskPKeyIndex|uverbs.MaskAccess))
	receiver := good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RawPacket, SendCQ: cq, MaxRecvWR: 1}))(t)
	dct := newStar(t, standard(), uverbs.DCIStreams{}).dcts[0]
	closed := d.loop(t, uverbs.QPConfig{SendCQ: cq})
	check(t, closed.Close())
	ib := standard()
	ib.ethernet = false
	loopOf := func(k kit, change func(*soft)) *uverbs.QP {
		d := newDesk(t, k)
		d.s.Set(func() { change(d.s) })
		return d.loop(t, uverbs.QPConfig{SendCQ: good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)})
	}
	for name, c := range map[string]struct {
		qp    *uverbs.QP
		port  int
		query error
		want  error
	}{
		"nil":           {nil, 1, uverbs.ErrInvalid, uverbs.ErrInvalid},
		"DCT":           {dct, 1, uverbs.ErrInvalid, uverbs.ErrInvalid},
		"no send queue": {receiver, 1, uverbs.ErrNotSupported, uverbs.ErrNotSupported},
		"in RESET":      {early, 1, uverbs.ErrNotSupported, uverbs.ErrNotSupported},
		"in INIT":       {inInit, 1, nil, uverbs.ErrInvalid},
		"port 0":        {rc, 0, nil, uverbs.ErrInvalid},
		"port 3":        {rc, 3, nil, uverbs.ErrInvalid},
		"closed":        {closed, 1, uverbs.ErrClosed, uverbs.ErrClosed},
		"InfiniBand":    {loopOf(ib, func(*soft) {}), 1, uverbs.ErrNotSupported, uverbs.ErrNotSupported},
		"no DevX": {loopOf(standard(), func(s *soft) { s.NoDevX = true }), 1, uverbs.ErrNotSupported,
			uverbs.ErrNotSupported},
		"no LAG": {loopOf(standard(), func(s *soft) { s.NoLAG = true }), 1, uverbs.ErrNotSupported,
			uverbs.ErrNotSupported},
	} {
		if _, _, err := QueryLAGPort(c.qp); !errors.Is(err, c.query) {
			t.Errorf("%s: the query returns %v, want %v", name, err, c.query)
		}
		if err := ModifyLAGPort(c.qp, c.port); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
