package connectx

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// createRMP creates an SRQ.
func (o *objects) createRMP() uint64 {
	o.t.Helper()
	wq := prm.RMPCWQ.Within(prm.CreateRMPInRMPC)
	return prm.CreateRMPOutRMPN.Get(o.list(0x90c, 0, 8, 0, func(in []byte) {
		c := wq.Bytes(in)
		prm.WQPD.Set(c, uint64(o.pd))
		prm.WQLogWQSize.Set(c, 4)
		prm.WQLogWQStride.Set(c, 6)
		prm.WQDBRAddr.Set(c, o.record+128)
		prm.WQPAS.Within(wq).Set(in, o.host.alloc(1))
	}))
}

// fillDCT fills in CREATE_DCT with a context that has no field without a value, except dp_ordering_0, which excludes
// dp_ordering_1.
func (o *objects) fillDCT(srqn uint64) func(in []byte) {
	return func(in []byte) {
		c := prm.CreateDCTInDCTC.Bytes(in)
		for f, v := range map[prm.Field]uint64{
			prm.DCTCPD: uint64(o.pd), prm.DCTCSRQN: srqn, prm.DCTCCQN: uint64(o.cqn), prm.DCTCUserIndex: 0x123,
			prm.DCTCRRE: 1, prm.DCTCRWE: 1, prm.DCTCRAE: 1, prm.DCTCRLKY: 1, prm.DCTCCSRes: dctScatter64, prm.DCTCMinRNRNak: 12,
			prm.DCTCTclass: 7, prm.DCTCFlowLabel: 0x12345, prm.DCTCAccessKey: 0x1122334455667788, prm.DCTCMTU: 3,
			prm.DCTCPort: 1, prm.DCTCPKeyIndex: 2, prm.DCTCMyAddrIndex: 3, prm.DCTCHopLimit: 64, prm.DCTCEthPrio: 5,
			prm.DCTCDPOrdering1: 1, prm.DCTCDPOrderingForce: 1,
		} {
			f.Set(c, v)
		}
	}
}

// TestDCT checks that a query returns the attributes with which a DCT was created, and that the driver gets the
// event for which it waits before it destroys the DCT.
func TestDCT(t *testing.T) {
	o := newObjects(t, func(c *Config) { c.LinkLayer = Ethernet })
	fill := o.fillDCT(o.createRMP())
	dctn := prm.CreateDCTOutDCTN.Get(o.run(0x710, 0, fill))
	name := func(in []byte) { prm.DCTInDCTN.Set(in, dctn) }
	c := prm.QueryDCTOutDCTC.Bytes(o.run(0x713, 0, name))
	want := make([]byte, prm.CreateDCTIn.Size)
	fill(want)
	for f := range prm.DCTC.Fields {
		if got, want := f.Get(c), f.Get(prm.CreateDCTInDCTC.Bytes(want)); got != want {
			t.Errorf("%s is %#x, want %#x", f.Name, got, want)
		}
	}
	other := o.newUser()
	for _, opcode := range []uint16{0x711, 0x712, 0x713, 0x714} {
		o.refused(opcode, 0, statusBadResource, reasonOwner, other.as(name))
	}
	o.refused(0x710, 0, statusBadParam, reasonCapability, other.as(fill)) // the reserved key
	o.run(0x714, 0, name)
	o.run(0x712, 0, name)
	event := o.event(o.eqRing, 6, 0)
	if event == nil || prm.EQEType.Get(event) != uint64(engine.EventDCTDrained) || prm.EQEQPN.Get(event) != dctn {
		t.Fatalf("event % x", event)
	}
	if s := prm.DCTCState.Get(prm.QueryDCTOutDCTC.Bytes(o.run(0x713, 0, name))); s != uint64(engine.DCTDrained) {
		t.Errorf("state %d", s)
	}
	o.refused(0x712, 0, statusBadResourceState, reasonParam, name)
	o.refused(0x501, 0, statusBadResource, reasonParam, func(in []byte) { prm.DestroyQPInQPN.Set(in, dctn) })
	o.run(0x711, 0, name)
	for _, opcode := range []uint16{0x711, 0x712, 0x713, 0x714} {
		o.refused(opcode, 0, statusBadResource, reasonParam, name)
	}
}

// TestDCTRefusals checks contexts that are refused.
func TestDCTRefusals(t *testing.T) {
	o := newObjects(t, nil)
	fill := o.fillDCT(o.createRMP())
	for f, v := range map[prm.Field]uint64{prm.DCTCPD: 0x777, prm.DCTCSRQN: 0x777, prm.DCTCCQN: 0x777, prm.DCTCMTU: 7,
		prm.DCTCPKeyIndex: 1000} {
		out := o.try(0x710, 0, 0, 0, func(in []byte) {
			fill(in)
			f.Set(prm.CreateDCTInDCTC.Bytes(in), v)
		})
		if !prm.CmdStatus.Is(out) {
			t.Errorf("a DCT with %s = %d", f.Name, v)
		}
	}
}

// TestNoDC checks that a device without DC has neither DCTs nor DCIs.
func TestNoDC(t *testing.T) {
	o := newObjects(t, func(c *Config) { c.Capabilities = []Capability{{CapGeneral, prm.HCACapDCT, 0}} })
	o.refused(0x710, 0, statusBadOpcode, reasonOpcode, o.fillDCT(o.createRMP()))
	for _, opcode := range []uint16{0x711, 0x712, 0x713, 0x714} {
		o.refused(opcode, 0, statusBadOpcode, reasonOpcode, nil)
	}
	o.refused(0x500, 0, statusBadParam, reasonCapability, o.dci(0, 0))
}

// dci fills in CREATE_QP for a DCI with streams.
func (o *objects) dci(logStreams, logErrored uint64) func(in []byte) {
	return func(in []byte) {
		c := prm.CreateQPInQPC.Bytes(in)
		prm.QPCST.Set(c, uint64(engine.ServiceDCI))
		prm.QPCRQType.Set(c, uint64(engine.FromSRQ))
		prm.QPCPD.Set(c, uint64(o.pd))
		prm.QPCUARPage.Set(c, uint64(o.uar))
		prm.QPCCQNSnd.Set(c, uint64(o.cqn))
		prm.QPCLogSQSize.Set(c, 4)
		prm.QPCDBRAddr.Set(c, o.record+64)
		prm.QPCLogNumDCIStreamChannels.Set(c, logStreams)
		prm.QPCLogNumDCIErroredStreams.Set(c, logErrored)
		if len(in) > prm.CreateQPIn.Size {
			prm.CreateQPInPAS.Set(in, o.host.alloc(1))
		}
	}
}

// TestDCIStreams checks the limits of streams, and the command that resets one.
func TestDCIStreams(t *testing.T) {
	o := newObjects(t, nil)
	o.refused(0x500, 0, statusBadParam, reasonCapability, o.dci(logDCIStreams+1, 0))
	o.refused(0x500, 0, statusBadParam, reasonCapability, o.dci(1, logDCIStreams+1))
	qpn := prm.CreateQPOutQPN.Get(o.list(0x500, 0, 8, 0, o.dci(3, 2)))
	c := prm.QueryQPOutQPC.Bytes(o.run(0x50b, 0, func(in []byte) { prm.QueryQPInQPN.Set(in, qpn) }))
	if s, e := prm.QPCLogNumDCIStreamChannels.Get(c), prm.QPCLogNumDCIErroredStreams.Get(c); s != 3 || e != 2 {
		t.Errorf("2^%d streams, fails with 2^%d", s, e)
	}
	reset := func(in []byte) {
		prm.ModifyQPInQPN.Set(in, qpn)
		prm.ModifyQPInQPCExt.Set(in, 1)
		prm.ModifyQPInOptMask9532.Set(in, resetStreamParam)
	}
	try := func(opcode uint16, extra int, fill func(in []byte)) status {
		return status(prm.CmdStatus.Get(o.try(opcode, 0, extra, 0, fill)))
	}
	for what, c := range map[string]struct {
		opcode uint16
		extra  int
		fill   func(in []byte)
		want   status
	}{
		"no stream has failed": {0x505, prm.QPCExt.Size, reset, statusBadResourceState},
		"too short":            {0x505, 0, reset, statusBadInputLength},
		"another transition":   {0x504, prm.QPCExt.Size, reset, statusBadParam},
		"another parameter": {0x505, prm.QPCExt.Size, func(in []byte) {
			reset(in)
			prm.ModifyQPInOptMask9532.Set(in, 4)
		}, statusBadParam},
	} {
		if got := try(c.opcode, c.extra, c.fill); got != c.want {
			t.Errorf("%s: status %#x, want %#x", what, got, c.want)
		}
	}
	without := newObjects(t, func(c *Config) {
		c.Capabilities = []Capability{{CapGeneral, prm.HCACapLogMaxDCIErroredStreams, 0},
			{CapGeneral, prm.HCACapQPCExtension, 0}}
	})
	without.refused(0x500, 0, statusBadParam, reasonCapability, without.dci(1, 1))
	qpn = prm.CreateQPOutQPN.Get(without.list(0x500, 0, 8, 0, without.dci(1, 0)))
	if got := status(prm.CmdStatus.Get(without.try(0x505, 0, prm.QPCExt.Size, 0, reset))); got != statusBadParam {
		t.Errorf("without extensions: status %#x", got)
	}
}
