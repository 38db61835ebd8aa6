package connectx

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

func withODP(c *Config) { c.ODP = true }

// TestPageFaultEvents checks the event queue entries of page faults, and that
// PAGE_FAULT_RESUME requires memory on demand.
func TestPageFaultEvents(t *testing.T) {
	v := newDriver(t, withODP)
	v.boot()
	fault := func(f engine.PageFault) (asked bool) {
		v.loop.Run(func() { asked = pager{v.device}.PageFault(f) })
		return asked
	}
	if fault(engine.PageFault{}) {
		t.Error("a fault was reported without an event queue for it")
	}
	_, ring := v.createEQ(4, 1<<eventPageFault, 1)
	if !fault(engine.PageFault{Type: 2, QPN: 0x123, Length: 1024, Queue: 0x456, Index: 7, Committed: 9}) ||
		!fault(engine.PageFault{Type: 6, RDMA: true, QPN: 0x123, Length: 1024, RKey: 0x105a, VA: 1 << 40, OpLength: 77}) {
		t.Fatal("a fault was not reported")
	}
	check := func(i int, want map[prm.Field]uint64) {
		t.Helper()
		e := v.event(ring, 4, i)
		for f, n := range want {
			if e == nil || f.Get(e) != n {
				t.Errorf("event %d: %s, want %#x: % x", i, f.Name, n, e)
			}
		}
	}
	check(0, map[prm.Field]uint64{prm.EQEType: 0xc, prm.EQESubType: 0, prm.EQEFaultType: 2, prm.EQEFaultNumber: 0x456,
		prm.EQEFaultWQEToken: 0x123, prm.EQEFaultWQEIndex: 7, prm.EQEFaultCommitted: 9, prm.EQEFaultLength: 1024})
	check(1, map[prm.Field]uint64{prm.EQEType: 0xc, prm.EQESubType: 1, prm.EQEFaultType: 6, prm.EQEFaultNumber: 0x123,
		prm.EQEFaultRKey: 0x105a, prm.EQEFaultVA: 1 << 40, prm.EQEFaultOpLength: 77, prm.EQEFaultLength: 1024})
	resume := func(in []byte) {
		prm.PageFaultResumeInType.Set(in, 2)
		prm.PageFaultResumeInWQNumber.Set(in, 0x456)
		prm.PageFaultResumeInToken.Set(in, 0x123)
	}
	v.run(0x204, 0, resume) // of an unknown queue pair
	out := v.run(0x203, 0, nil)
	if k := prm.QuerySpecialContextsOutNullMKey.Get(out); k != engine.NoMKey {
		t.Errorf("null_mkey is %#x", k)
	}
	v = newDriver(t, nil)
	v.boot()
	v.refused(0x204, 0, statusBadOpcode, reasonOpcode, resume)
}

// TestODPCapabilities checks that the driver can enable SRQs and XRC for memory
// on demand, within the maximum, and that other devices have no such page.
func TestODPCapabilities(t *testing.T) {
	v := newDriver(t, withODP)
	v.run(0x104, 0, nil)
	v.give(pagesBoot)
	const mod = int(CapODP) << 1
	query := func(current int) []byte { return prm.QueryHCACapOutCapability.Bytes(v.run(0x100, mod|current, nil)) }
	most, now := query(0), query(1)
	if rc, xrc, dc := prm.ODPCapRC.Get(now), prm.ODPCapXRC.Get(now), prm.ODPCapDC.Get(now); rc != 0x3e || xrc|dc != 0 {
		t.Errorf("at first, RC has %#x, XRC %#x, and DC %#x", rc, xrc, dc)
	}
	v.run(0x109, mod, func(in []byte) { copy(prm.SetHCACapInCapability.Bytes(in), most) })
	now = query(1)
	if rc, ud, xrc := prm.ODPCapRC.Get(now), prm.ODPCapUD.Get(now), prm.ODPCapXRC.Get(now); rc != 0x3f || ud != 0x21 ||
		xrc != 0x3f {
		t.Errorf("then, RC has %#x, UD %#x, and XRC %#x", rc, ud, xrc)
	}
	if dc := prm.ODPCapDC.Get(now); dc != 0x3f {
		t.Errorf("then, DC has %#x", dc)
	}
	prm.ODPCapUC.Set(most, 1)
	v.refused(0x109, mod, statusBadParam, reasonCapability,
		func(in []byte) { copy(prm.SetHCACapInCapability.Bytes(in), most) })
	v = newDriver(t, nil)
	v.run(0x104, 0, nil)
	v.refused(0x100, mod, statusBadParam, reasonOpMod, nil)
	for _, odp := range []bool{false, true} {
		v := newDriver(t, func(c *Config) { c.ODP = odp })
		page := v.device.caps.page(CapGeneral, false)
		if prm.HCACapPG.Is(page) != odp || prm.HCACapUMRModifyEntitySizeDisabled.Is(page) {
			t.Errorf("with ODP %v: pg %v, umr_modify_entity_size_disabled %v", odp, prm.HCACapPG.Is(page),
				prm.HCACapUMRModifyEntitySizeDisabled.Is(page))
		}
	}
}
