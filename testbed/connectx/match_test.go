package connectx

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// groups creates groups of a table that match each field: supported ones are
// accepted, the others refused.
func (o *objects) groups(table uint64) {
	o.t.Helper()
	group := func(f prm.Field, criteria uint64) func(in []byte) {
		return func(in []byte) {
			prm.CreateFlowGroupInTableID.Set(in, table)
			prm.CreateFlowGroupInStartFlowIndex.Set(in, 8)
			prm.CreateFlowGroupInEndFlowIndex.Set(in, 8)
			prm.CreateFlowGroupInMatchCriteriaEnable.Set(in, criteria)
			f.Width = min(f.Width, 64)
			f.Set(prm.CreateFlowGroupInFlowMatch.Bytes(in), 1)
		}
	}
	for _, m := range matched {
		for _, f := range m.fields {
			n := prm.CreateFlowGroupOutGroupID.Get(o.run(0x933, 0, group(f, 3)))
			o.run(0x934, 0, func(in []byte) {
				prm.DestroyFlowGroupInTableID.Set(in, table)
				prm.DestroyFlowGroupInGroupID.Set(in, n)
			})
		}
	}
	vni := prm.FlowMiscVxlanVNI.Within(prm.FlowMatchMisc)
	for _, f := range []prm.Field{vni, prm.FlowHeadersL4Type.Within(prm.FlowMatchOuter),
		prm.FlowHeadersDMAC.Within(prm.FlowMatchInner)} {
		o.refused(0x933, 0, statusBadParam, reasonCapability, group(f, 7))
	}
	n := prm.CreateFlowGroupOutGroupID.Get(o.run(0x933, 0, group(vni, 1))) // criteria without the part
	o.run(0x934, 0, func(in []byte) {
		prm.DestroyFlowGroupInTableID.Set(in, table)
		prm.DestroyFlowGroupInGroupID.Set(in, n)
	})
}

// TestClaims checks that unimplemented capabilities are not claimed: match
// fields that are not filled in, counters that do not count, waits between
// queues.
func TestClaims(t *testing.T) {
	for _, link := range []LinkLayer{InfiniBand, Ethernet} {
		c, err := newCapabilities(&Config{LinkLayer: link})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []prm.Field{prm.HCACapCD, prm.HCACapPKV, prm.HCACapQKV, prm.HCACapVportCounters} {
			if f.Is(c.most[CapGeneral]) {
				t.Errorf("link layer %d: %s is claimed", link, f.Name)
			}
		}
		if link == InfiniBand {
			continue
		}
		table := prm.FlowTableNICCapReceive.Bytes(c.most[CapFlowTable])
		for _, f := range []prm.Field{prm.FlowTableCapFtFieldSupport, prm.FlowTableCapFtFieldBitmaskSupport} {
			if got, want := [16]byte(f.Bytes(table)), [16]byte{0xff, 0x0f, 0xfe}; got != want {
				t.Errorf("%s is %x, want %x", f.Name, got, want)
			}
		}
	}
}
