package connectx

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// rate returns a function that sets an entry of the table of rates.
func rate(index, limit uint64) func([]byte) {
	return func(in []byte) {
		prm.SetRateInIndex.Set(in, index)
		c := prm.SetRateInRate.Bytes(in)
		prm.RateLimit.Set(c, limit)
		if limit > 0 {
			prm.RateBurstUpperBound.Set(c, 9000)
			prm.RateTypicalPacketSize.Set(c, 1500)
		}
	}
}

// fillSQ returns a function that fills in CREATE_SQ with a rate. The queue sends nothing.
func (o *objects) fillSQ(index uint64) func([]byte) {
	return func(in []byte) {
		wq := prm.SQCWQ.Within(prm.CreateSQInSQC)
		c := wq.Bytes(in)
		prm.WQWQType.Set(c, wqCyclic)
		prm.WQPD.Set(c, uint64(o.pd))
		prm.WQUARPage.Set(c, uint64(o.uar))
		prm.WQDBRAddr.Set(c, o.record)
		prm.WQLogWQSize.Set(c, 4)
		prm.WQLogWQStride.Set(c, 6)
		prm.WQPAS.Within(wq).Set(in, o.host.alloc(1))
		c = prm.CreateSQInSQC.Bytes(in)
		prm.SQCCQN.Set(c, uint64(o.cqn))
		prm.SQCTISLstSize.Set(c, 1)
		prm.SQCPacketPacingRateLimitIndex.Set(c, index)
	}
}

// rateOf returns the entry that a send queue refers to, by its context.
func (o *objects) rateOf(sqn uint64) uint64 {
	o.t.Helper()
	return prm.SQCPacketPacingRateLimitIndex.Get(prm.QuerySQOutSQC.Bytes(o.run(0x907, 0, set(prm.QuerySQInSQN, sqn))))
}

// TestRates sets entries of the table of rates, of the driver and of users, and gives them to send queues.
func TestRates(t *testing.T) {
	o := onEthernet(t)
	a, b := o.newUser(), o.newUser()
	o.run(0x780, 0, rate(1, 100))
	o.run(0x780, 0, user{o.driver, sharedUser}.as(rate(2, minRate)))
	o.run(0x780, 0, a.as(rate(rates-1, maxRate)))
	if got, want := o.device.hca.Rate(1), (engine.Rate{Limit: 100, Burst: 9000}); got != want {
		t.Errorf("the entry is %+v, want %+v", got, want)
	}
	sqn := prm.CreateSQOutSQN.Get(o.list(0x904, 0, 8, 0, o.fillSQ(1)))
	if got := o.rateOf(sqn); got != 1 {
		t.Errorf("a new queue has the rate %d", got)
	}
	change := func(from, to engine.QueueState, mask, index uint64) func([]byte) {
		return func(in []byte) {
			prm.ModifySQInSQN.Set(in, sqn)
			prm.ModifySQInSQState.Set(in, uint64(from))
			prm.ModifySQInModifyBitmask.Set(in, mask)
			prm.SQCState.Set(prm.ModifySQInSQC.Bytes(in), uint64(to))
			prm.SQCPacketPacingRateLimitIndex.Set(prm.ModifySQInSQC.Bytes(in), index)
		}
	}
	for _, step := range []struct{ mask, index, want uint64 }{
		{0, 2, 1}, {selectRate, 2, 2}, {selectRate, rates - 1, rates - 1}, {selectRate, 0, 0},
	} {
		from := engine.QueueReady
		if step.mask == 0 {
			from = engine.QueueReset
		}
		o.run(0x905, 0, change(from, engine.QueueReady, step.mask, step.index))
		if got := o.rateOf(sqn); got != step.want {
			t.Errorf("after %+v the queue has the rate %d", step, got)
		}
	}
	o.refused(0x905, 0, statusBadResource, reasonIndex, change(engine.QueueReady, engine.QueueReady, selectRate, 3))
	for _, c := range []struct {
		user  user
		index uint64
		want  reason
	}{
		{a, 0, reasonNone}, {a, 2, reasonNone}, {a, rates - 1, reasonNone}, {a, 1, reasonOwner},
		{b, rates - 1, reasonOwner}, {b, 9, reasonIndex},
	} {
		sqc := prm.CreateSQInSQC.Bytes(make([]byte, prm.CreateSQIn.Size))
		prm.SQCPacketPacingRateLimitIndex.Set(sqc, c.index)
		_, err := o.device.rateIndex(uint16(c.user.uid), sqc)
		got := reasonNone
		if r, ok := err.(*refusal); ok {
			got = r.reason
		}
		if got != c.want {
			t.Errorf("user %d, entry %d: reason %d, want %d", c.user.uid, c.index, got, c.want)
		}
	}
	o.refused(0xa06, 0, statusBusy, reasonInUse, set(prm.DestroyUctxInUID, a.uid))
	o.refused(0x780, 0, statusBadResource, reasonOwner, b.as(rate(rates-1, 0)))
	o.run(0x780, 0, a.as(rate(rates-1, 0)))
	o.run(0xa06, 0, set(prm.DestroyUctxInUID, a.uid))
}

// TestBadRates checks entries that cannot be, and devices that lack capabilities.
func TestBadRates(t *testing.T) {
	slow := onEthernet(t, Capability{CapQoS, prm.QoSCapPacketPacingMaxRate, 1000})
	slow.refused(0x780, 0, statusBadParam, reasonSize, rate(1, 1001))
	slow.refused(0x780, 0, statusBadParam, reasonIndex, rate(0, 1))
	slow.refused(0x780, 0, statusBadParam, reasonIndex, rate(rates, 1))
	for _, f := range []prm.Field{prm.QoSCapPacketPacingBurstBound, prm.QoSCapPacketPacingTypicalSize} {
		onEthernet(t, Capability{CapQoS, f, 0}).refused(0x780, 0, statusBadParam, reasonCapability, rate(1, 1))
	}
	for _, c := range []Capability{{CapQoS, prm.QoSCapPacketPacing, 0}, {CapGeneral, prm.HCACapQos, 0}} {
		onEthernet(t, c).refused(0x780, 0, statusBadOpcode, reasonCapability, rate(1, 1))
	}
	newObjects(t, nil).refused(0x780, 0, statusBadOpcode, reasonLink, rate(1, 1))
}
