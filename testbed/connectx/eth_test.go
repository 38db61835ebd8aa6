package connectx

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// TestEthernetQueues creates what a network driver creates, from a send queue
// to the flow for a receive queue, and destroys it in order.
func TestEthernetQueues(t *testing.T) {
	o := newObjects(t, func(c *Config) { c.LinkLayer = Ethernet })
	td := prm.AllocTransportDomainOutTransportDomain.Get(o.run(0x816, 0, nil))
	tis := prm.CreateTISOutTISN.Get(o.run(0x912, 0, func(in []byte) {
		prm.TISCTransportDomain.Set(prm.CreateTISInTISC.Bytes(in), td)
	}))
	fillWQ := func(in []byte, wq prm.Field, stride uint64) {
		c := wq.Bytes(in)
		prm.WQWQType.Set(c, wqCyclic)
		prm.WQPD.Set(c, uint64(o.pd))
		prm.WQUARPage.Set(c, uint64(o.uar))
		prm.WQDBRAddr.Set(c, o.record+256)
		prm.WQLogWQSize.Set(c, 4)
		prm.WQLogWQStride.Set(c, stride)
		prm.WQPAS.Within(wq).Set(in, o.host.alloc(1))
	}
	sqn := prm.CreateSQOutSQN.Get(o.list(0x904, 0, 8, 0, func(in []byte) {
		fillWQ(in, prm.SQCWQ.Within(prm.CreateSQInSQC), 6)
		c := prm.CreateSQInSQC.Bytes(in)
		prm.SQCCQN.Set(c, uint64(o.cqn))
		prm.SQCTISLstSize.Set(c, 1)
		prm.SQCTISNum0.Set(c, tis)
	}))
	rqn := prm.CreateRQOutRQN.Get(o.list(0x908, 0, 8, 0, func(in []byte) {
		fillWQ(in, prm.RQCWQ.Within(prm.CreateRQInRQC), 5)
		prm.RQCCQN.Set(prm.CreateRQInRQC.Bytes(in), uint64(o.cqn))
	}))
	o.run(0x905, 0, func(in []byte) {
		prm.ModifySQInSQN.Set(in, sqn)
		prm.SQCState.Set(prm.ModifySQInSQC.Bytes(in), uint64(engine.QueueReady))
	})
	o.run(0x909, 0, func(in []byte) {
		prm.ModifyRQInRQN.Set(in, rqn)
		prm.ModifyRQInModifyBitmask.Set(in, selectVSD)
		c := prm.ModifyRQInRQC.Bytes(in)
		prm.RQCState.Set(c, uint64(engine.QueueReady))
		prm.RQCVSD.Set(c, 1)
	})
	c := prm.QuerySQOutSQC.Bytes(o.run(0x907, 0, func(in []byte) { prm.QuerySQInSQN.Set(in, sqn) }))
	if prm.SQCState.Get(c) != uint64(engine.QueueReady) || prm.SQCTISNum0.Get(c) != tis {
		t.Errorf("SQ: state %d, TIS %d", prm.SQCState.Get(c), prm.SQCTISNum0.Get(c))
	}
	c = prm.QueryRQOutRQC.Bytes(o.run(0x90b, 0, func(in []byte) { prm.QueryRQInRQN.Set(in, rqn) }))
	if prm.RQCState.Get(c) != uint64(engine.QueueReady) || !prm.RQCVSD.Is(c) ||
		prm.WQLogWQStride.Get(prm.RQCWQ.Bytes(c)) != 5 {
		t.Errorf("RQ: state %d, VSD %d", prm.RQCState.Get(c), prm.RQCVSD.Get(c))
	}
	rqt := prm.CreateRQTOutRQTN.Get(o.list(0x916, 0, 8, 0, func(in []byte) {
		prm.RQTCRQTActualSize.Set(prm.CreateRQTInRQTC.Bytes(in), 2)
		list := prm.RQTCRQNum.Within(prm.CreateRQTInRQTC)
		list.Set(in, rqn)
		list.At(1).Set(in, rqn)
	}))
	tir := prm.CreateTIROutTIRN.Get(o.run(0x900, 0, func(in []byte) {
		c := prm.CreateTIRInTIRC.Bytes(in)
		prm.TIRCDispType.Set(c, dispIndirect)
		prm.TIRCIndirectTable.Set(c, rqt)
		prm.TIRCRXHashFn.Set(c, uint64(engine.HashToeplitz))
		prm.TIRCTransportDomain.Set(c, td)
	}))
	o.run(0x901, 0, func(in []byte) {
		prm.ModifyTIRInTIRN.Set(in, tir)
		prm.ModifyTIRInBitmaskSelfLBEn.Set(in, 1)
		prm.TIRCSelfLBBlock.Set(prm.ModifyTIRInTIRC.Bytes(in), ownUnicast)
	})
	if x, err := o.device.hca.TIR(uint32(tir)); err != nil || !x.OwnUnicast || x.OwnMulticast ||
		x.Hash != engine.HashToeplitz {
		t.Errorf("TIR %+v, %v", x, err)
	}
	o.flow(uint32(tir))
	o.refused(0x90a, 0, statusBusy, reasonParam, func(in []byte) { prm.DestroyRQInRQN.Set(in, rqn) })
	o.run(0x902, 0, func(in []byte) { prm.DestroyTIRInTIRN.Set(in, tir) })
	o.run(0x918, 0, func(in []byte) { prm.DestroyRQTInRQTN.Set(in, rqt) })
	o.run(0x90a, 0, func(in []byte) { prm.DestroyRQInRQN.Set(in, rqn) })
	o.run(0x906, 0, func(in []byte) { prm.DestroySQInSQN.Set(in, sqn) })
	o.run(0x914, 0, func(in []byte) { prm.DestroyTISInTISN.Set(in, tis) })
	o.run(0x817, 0, func(in []byte) { prm.DeallocTransportDomainInTransportDomain.Set(in, td) })
	o.reported(0)
}

// flow creates a table with a flow to a TIR, and destroys it.
func (o *objects) flow(tir uint32) {
	o.t.Helper()
	table := prm.CreateFlowTableOutTableID.Get(o.run(0x930, 0, func(in []byte) {
		prm.FlowTableLogSize.Set(prm.CreateFlowTableInFlowTable.Bytes(in), 4)
	}))
	o.run(0x92f, 0, func(in []byte) { prm.SetFlowTableRootInTableID.Set(in, table) })
	group := prm.CreateFlowGroupOutGroupID.Get(o.run(0x933, 0, func(in []byte) {
		prm.CreateFlowGroupInTableID.Set(in, table)
		prm.CreateFlowGroupInEndFlowIndex.Set(in, 7)
	}))
	o.groups(table)
	set := func(in []byte) {
		prm.SetFTEInTableID.Set(in, table)
		prm.SetFTEInFlowIndex.Set(in, 3)
		c := prm.SetFTEInFlowContext.Bytes(in)
		prm.FlowContextGroupID.Set(c, group)
		prm.FlowContextAction.Set(c, flowForward)
		prm.FlowContextDestinationListSize.Set(c, 1)
	}
	o.refused(0x936, 0, statusBadInputLength, reasonLength, set)
	o.list(0x936, 0, 8, 0, func(in []byte) {
		set(in)
		dest := prm.FlowContextDestination.Within(prm.SetFTEInFlowContext).Bytes(in)
		prm.FlowDestDestinationType.Set(dest, uint64(engine.FlowToTIR))
		prm.FlowDestDestinationID.Set(dest, uint64(tir))
	})
	f, err := o.device.hca.Flow(uint32(table), 3)
	if err != nil || !f.Forward || len(f.Dests) != 1 ||
		f.Dests[0] != (engine.FlowDest{Type: engine.FlowToTIR, Number: tir}) {
		o.t.Errorf("flow %+v, %v", f, err)
	}
	o.refused(0x902, 0, statusBusy, reasonParam, func(in []byte) { prm.DestroyTIRInTIRN.Set(in, uint64(tir)) })
	o.refused(0x930, 0, statusBadParam, reasonPort, func(in []byte) { prm.CreateFlowTableInTableType.Set(in, 4) })
	o.run(0x938, 0, func(in []byte) { prm.DeleteFTEInTableID.Set(in, table); prm.DeleteFTEInFlowIndex.Set(in, 3) })
	o.run(0x934, 0, func(in []byte) {
		prm.DestroyFlowGroupInTableID.Set(in, table)
		prm.DestroyFlowGroupInGroupID.Set(in, group)
	})
	o.run(0x92f, rootDisconnect, func(in []byte) { prm.SetFlowTableRootInTableID.Set(in, table) })
	o.run(0x931, 0, func(in []byte) { prm.DestroyFlowTableInTableID.Set(in, table) })
}

// TestGIDs checks that a query returns the entry that was set.
func TestGIDs(t *testing.T) {
	v := newDriver(t, func(c *Config) { c.LinkLayer = Ethernet })
	v.boot()
	v.run(0x761, 0, func(in []byte) {
		prm.SetRoCEAddressInRoCEAddressIndex.Set(in, 3)
		a := prm.SetRoCEAddressInRoCEAddr.Bytes(in)
		prm.RoCEAddrSourceL3Address.Bytes(a)[0] = 0xfe
		prm.RoCEAddrSourceMAC.Set(a, 0x0002c9a0b0c1)
		prm.RoCEAddrRoCEVersion.Set(a, roceV2)
		prm.RoCEAddrVLANValid.Set(a, 1)
		prm.RoCEAddrVLANID.Set(a, 5)
	})
	a := prm.QueryRoCEAddressOutRoCEAddr.Bytes(v.run(0x760, 0,
		func(in []byte) { prm.QueryRoCEAddressInRoCEAddressIndex.Set(in, 3) }))
	for f, want := range map[prm.Field]uint64{
		prm.RoCEAddrSourceMAC: 0x0002c9a0b0c1, prm.RoCEAddrRoCEVersion: roceV2, prm.RoCEAddrVLANValid: 1,
		prm.RoCEAddrVLANID: 5,
	} {
		if got := f.Get(a); got != want {
			t.Errorf("%s is %#x, want %#x", f.Name, got, want)
		}
	}
	if prm.RoCEAddrSourceL3Address.Bytes(a)[0] != 0xfe {
		t.Errorf("the GID is % x", prm.RoCEAddrSourceL3Address.Bytes(a))
	}
	v.refused(0x760, 0, statusBadParam, reasonIndex,
		func(in []byte) { prm.QueryRoCEAddressInRoCEAddressIndex.Set(in, 64) })
}

// TestNICPort checks the attributes that a driver sets for its port, and the
// lists of addresses.
func TestNICPort(t *testing.T) {
	v := newDriver(t, func(c *Config) { c.LinkLayer = Ethernet; c.MAC = [6]byte{2, 1, 2, 3, 4, 5} })
	v.boot()
	c := prm.QueryNICVportContextOutNICVport.Bytes(v.run(0x754, 0, nil))
	if got := prm.NICVportPermanentAddress.Get(c); got != 0x020102030405 {
		t.Errorf("MAC %#x", got)
	}
	v.list(0x755, 0, 16, 0, func(in []byte) {
		s, c := prm.ModifyNICVportContextInNICVportSelect.Bytes(in), prm.ModifyNICVportContextInNICVport.Bytes(in)
		prm.NICVportSelectRoCEEn.Set(s, 1)
		prm.NICVportRoCEEn.Set(c, 1)
		prm.NICVportSelectAddressesList.Set(s, 1)
		prm.NICVportAllowedListType.Set(c, listMulticast)
		prm.NICVportAllowedListSize.Set(c, 2)
		prm.NICVportPromiscAll.Set(c, 1) // not selected
		list := prm.NICVportCurrentUCMACAddress.Within(prm.ModifyNICVportContextInNICVport)
		list.Set(in, 0x333300000001)
		list.At(1).Set(in, 0x333300000002)
	})
	out := v.list(0x754, 0, 0, 16, func(in []byte) { prm.QueryNICVportContextInAllowedListType.Set(in, listMulticast) })
	c = prm.QueryNICVportContextOutNICVport.Bytes(out)
	list := prm.NICVportCurrentUCMACAddress.Within(prm.QueryNICVportContextOutNICVport)
	if !prm.NICVportRoCEEn.Is(c) || prm.NICVportPromiscAll.Is(c) || prm.NICVportAllowedListSize.Get(c) != 2 ||
		list.At(1).Get(out) != 0x333300000002 {
		t.Errorf("RoCE %d, promiscuous %d, list of %d", prm.NICVportRoCEEn.Get(c), prm.NICVportPromiscAll.Get(c),
			prm.NICVportAllowedListSize.Get(c))
	}
	checkLoopback := func(unicast, multicast bool) {
		t.Helper()
		if uc, mc := v.device.hca.LocalLoopback(); uc != unicast || mc != multicast {
			t.Errorf("local loopback: unicast %v, multicast %v, want %v, %v", uc, mc, unicast, multicast)
		}
	}
	checkLoopback(true, true)
	v.run(0x755, 0, func(in []byte) {
		s, c := prm.ModifyNICVportContextInNICVportSelect.Bytes(in), prm.ModifyNICVportContextInNICVport.Bytes(in)
		prm.NICVportSelectDisableUCLocalLB.Set(s, 1)
		prm.NICVportDisableUCLocalLB.Set(c, 1)
		prm.NICVportDisableMCLocalLB.Set(c, 1) // not selected
	})
	checkLoopback(false, true)
	v.refused(0x755, 0, statusLimit, reasonSize, func(in []byte) {
		prm.NICVportSelectAddressesList.Set(prm.ModifyNICVportContextInNICVportSelect.Bytes(in), 1)
		prm.NICVportAllowedListSize.Set(prm.ModifyNICVportContextInNICVport.Bytes(in), 4000)
	})
}
