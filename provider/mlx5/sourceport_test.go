package mlx5

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestSourcePort checks that a QP's packets have the port that it was given.
func TestSourcePort(t *testing.T) {
	d := newDesk(t, standard())
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
	qp := d.loop(t, uverbs.QPConfig{SendCQ: cq})
	check(t, ModifyUDPSourcePort(qp, 55555))
	d.s.Set(func() {
		if q := good(d.s.hca.QP(qp.QPN()))(t); q.Primary.UDPSport != 55555 {
			t.Errorf("the port is %d", q.Primary.UDPSport)
		}
	})
}

// TestSourcePortErrors checks the QPs whose UDP source port cannot be changed, and devices that lack this.
func TestSourcePortErrors(t *testing.T) {
	d := newDesk(t, standard())
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
	cfg := uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 1, MaxRecvWR: 1}
	early := good(d.pd.CreateQP(cfg))(t)
	cfg.Type = uverbs.UD
	ud := good(d.pd.CreateQP(cfg))(t)
	connected := d.loop(t, uverbs.QPConfig{SendCQ: cq})
	ib := standard()
	ib.ethernet = false
	without := newDesk(t, standard())
	without.s.Set(func() { without.s.NoDevX = true })
	loopOf := func(d *desk) *uverbs.QP {
		return d.loop(t, uverbs.QPConfig{SendCQ: good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)})
	}
	for name, c := range map[string]struct {
		qp   *uverbs.QP
		want error
	}{
		"nil":        {nil, uverbs.ErrInvalid},
		"not in RTS": {early, uverbs.ErrInvalid},
		"UD":         {ud, uverbs.ErrInvalid},
		"InfiniBand": {loopOf(newDesk(t, ib)), uverbs.ErrNotSupported},
		"no DevX":    {loopOf(without), uverbs.ErrNotSupported},
	} {
		if err := ModifyUDPSourcePort(c.qp, 55555); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	check(t, connected.Close())
	if err := ModifyUDPSourcePort(connected, 55555); !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("a closed QP: %v", err)
	}
}
