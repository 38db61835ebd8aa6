package mlx5

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/ether"
)

// rateDesk returns a device with rates up to 1000 kb/s, and a raw packet QP in RTS.
func rateDesk(t *testing.T) (*desk, *uverbs.QP, *uverbs.CQ) {
	t.Helper()
	d := newDesk(t, standard())
	d.s.Set(func() { d.s.NetRaw, d.s.Raw, d.s.RateMax = true, true, 1000 })
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
	qp := good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RawPacket, SendCQ: cq, MaxSendWR: 1}))(t)
	check(t, qp.Ready())
	return d, qp, cq
}

// TestRateLimit checks the rate that the device has for a QP after each change.
func TestRateLimit(t *testing.T) {
	d, qp, _ := rateDesk(t)
	if got, want := good(QueryDevice(d.c))(t).Rates, (RateLimits{1, 1000, true}); got != want {
		t.Errorf("the device has the rates %+v, want %+v", got, want)
	}
	rate := func(want engine.Rate) {
		t.Helper()
		d.s.Set(func() {
			if got := d.s.hca.Rate(good(d.s.hca.SQ(qp.QPN()))(t).RateIndex); got != want {
				t.Errorf("the rate is %+v, want %+v", got, want)
			}
		})
	}
	rate(engine.Rate{})
	check(t, ModifyRateLimit(qp, RateLimit{Rate: 1000, MaxBurst: 3000, PacketSize: 1500}))
	rate(engine.Rate{Limit: 1000, Burst: 3000})
	check(t, ModifyRateLimit(qp, RateLimit{Rate: 1}))
	rate(engine.Rate{Limit: 1})
	check(t, ModifyRateLimit(qp, RateLimit{}))
	rate(engine.Rate{})
	check(t, qp.Modify(uverbs.QPAttr{State: uverbs.StateRTS, RateLimit: 7}, uverbs.MaskState|uverbs.MaskRateLimit))
	rate(engine.Rate{Limit: 7})
	check(t, qp.Modify(uverbs.QPAttr{State: uverbs.StateErr}, uverbs.MaskState))
	rate(engine.Rate{})
}

// TestDriverAttr checks the attributes that the kernel's driver adds to the reply of QUERY_DEVICE.
func TestDriverAttr(t *testing.T) {
	d, _, _ := rateDesk(t)
	const raw = 1 << uverbs.RawPacket
	got := good(d.c.QueryDevice())(t)
	if want := (uverbs.PacketPacingCaps{MinRate: 1, MaxRate: 1000, SupportedQPTs: raw}); got.PacketPacing != want {
		t.Errorf("the rates are %+v, want %+v", got.PacketPacing, want)
	}
	ethernet := good(ether.QueryDevice(d.c))(t)
	if want := (ether.TSOCaps{MaxSize: 65536, SupportedQPTs: raw}); ethernet.TSO != want {
		t.Errorf("segmentation offload is %+v, want %+v", ethernet.TSO, want)
	}
	if r := ethernet.RSS; r.Functions != ether.RSSToeplitz || r.Fields != 0xff {
		t.Errorf("the hash functions are %#x and the fields %#x, want 0x1 and 0xff", r.Functions, r.Fields)
	}
	d.s.Set(func() { d.s.Raw, d.s.RateMax = false, 0 })
	got, ethernet = good(d.c.QueryDevice())(t), good(ether.QueryDevice(d.c))(t)
	if got.PacketPacing != (uverbs.PacketPacingCaps{}) || ethernet.TSO != (ether.TSOCaps{}) || ethernet.RSS.Fields != 0 {
		t.Errorf("a device without raw packets has %+v, %+v", got.PacketPacing, ethernet)
	}
}

// TestRateLimitErrors checks QPs and devices that have no rates, and rates that the device does not have.
func TestRateLimitErrors(t *testing.T) {
	d, qp, cq := rateDesk(t)
	rc := d.loop(t, uverbs.QPConfig{SendCQ: cq})
	early := good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RawPacket, SendCQ: cq, MaxSendWR: 1}))(t)
	closed := good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RawPacket, SendCQ: cq, MaxSendWR: 1}))(t)
	check(t, closed.Close())
	without, unlimited, _ := rateDesk(t)
	without.s.Set(func() { without.s.RateMax = 0 })
	if got := good(QueryDevice(without.c))(t).Rates; got != (RateLimits{}) {
		t.Errorf("a device without rates has %+v", got)
	}
	for name, c := range map[string]struct {
		qp   *uverbs.QP
		l    RateLimit
		want error
	}{
		"nil":                {nil, RateLimit{Rate: 1}, uverbs.ErrInvalid},
		"RC":                 {rc, RateLimit{Rate: 1}, uverbs.ErrInvalid},
		"not in RTS":         {early, RateLimit{Rate: 1}, uverbs.ErrInvalid},
		"too fast":           {qp, RateLimit{Rate: 1001}, uverbs.ErrInvalid},
		"burst without rate": {qp, RateLimit{MaxBurst: 1}, uverbs.ErrInvalid},
		"size without rate":  {qp, RateLimit{PacketSize: 1}, uverbs.ErrInvalid},
		"closed":             {closed, RateLimit{Rate: 1}, uverbs.ErrClosed},
		"no rates":           {unlimited, RateLimit{Rate: 1}, uverbs.ErrNotSupported},
	} {
		if err := ModifyRateLimit(c.qp, c.l); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if err := (&RateLimits{Max: 9}).check(RateLimit{Rate: 1, MaxBurst: 1}); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("a burst on a device without bursts: %v", err)
	}
}
