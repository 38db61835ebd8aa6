package connectx

import (
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// objects is a driver with a completion queue and what it requires.
type objects struct {
	*driver
	eqn, pd, cqn uint32
	eqRing       uint64
	record       uint64
}

func newObjects(t *testing.T, change func(*Config)) *objects {
	t.Helper()
	o := &objects{driver: newDriver(t, change)}
	o.boot()
	o.eqn, o.eqRing = o.createEQ(6, 0xfffffffe&^(1<<eventCommand|1<<eventPageRequest), 1)
	o.pd = get32(prm.AllocPDOutPD, o.run(0x800, 0, nil))
	o.record = o.host.alloc(1)
	o.cqn = o.createCQ(5)
	return o
}

// createCQ creates a completion queue whose ring begins in the middle of a
// page.
func (o *objects) createCQ(logSize int) uint32 {
	o.t.Helper()
	out := o.list(0x400, 0, 16, 0, func(in []byte) {
		c := prm.CreateCQInCQC.Bytes(in)
		prm.CQCLogCQSize.Set(c, uint64(logSize))
		prm.CQCPageOffset.Set(c, 32)
		prm.CQCUARPage.Set(c, uint64(o.uar))
		prm.CQCCEQN.Set(c, uint64(o.eqn))
		prm.CQCDBRAddr.Set(c, o.record)
		for i := range 2 {
			page := o.host.alloc(1)
			prm.CreateCQInPAS.At(i).Set(in, page)
			for b, at := o.host.bytes(page, pageSize), 63; at < pageSize; at += 64 {
				b[at] = 0xf1 // without an owner
			}
		}
	})
	return get32(prm.CreateCQOutCQN, out)
}

// createQP creates a queue pair of 16 blocks and 16 receive requests in one
// page.
func (o *objects) createQP(service engine.Service) uint32 {
	o.t.Helper()
	out := o.list(0x500, 0, 8, 0, func(in []byte) {
		c := prm.CreateQPInQPC.Bytes(in)
		prm.QPCST.Set(c, uint64(service))
		prm.QPCPD.Set(c, uint64(o.pd))
		prm.QPCUARPage.Set(c, uint64(o.uar))
		prm.QPCCQNSnd.Set(c, uint64(o.cqn))
		prm.QPCCQNRcv.Set(c, uint64(o.cqn))
		prm.QPCLogSQSize.Set(c, 4)
		prm.QPCLogRQSize.Set(c, 4)
		prm.QPCDBRAddr.Set(c, o.record+64)
		prm.QPCUserIndex.Set(c, 0x123)
		prm.QPCPMState.Set(c, 3)
		prm.CreateQPInPAS.Set(in, o.host.alloc(1))
	})
	return get32(prm.CreateQPOutQPN, out)
}

// TestQueuePair checks that a query returns the attributes with which a queue
// pair was created and modified, and that the objects it uses cannot be
// destroyed.
func TestQueuePair(t *testing.T) {
	o := newObjects(t, nil)
	qpn := o.createQP(engine.ServiceRC)
	modify := func(opcode uint16, set func(c []byte)) {
		t.Helper()
		o.run(opcode, 0, func(in []byte) {
			prm.ModifyQPInQPN.Set(in, uint64(qpn))
			set(prm.ModifyQPInQPC.Bytes(in))
		})
	}
	modify(0x502, func(c []byte) { prm.QPCRRE.Set(c, 1); prm.QPCRWE.Set(c, 1) })
	modify(0x503, func(c []byte) {
		prm.QPCMTU.Set(c, 3)
		prm.QPCRemoteQPN.Set(c, 0x4711)
		prm.QPCNextRcvPSN.Set(c, 0x123456)
		prm.QPCLogRRAMax.Set(c, 4)
		prm.QPCMinRNRNak.Set(c, 12)
		p := prm.QPCPrimary.Bytes(c)
		prm.ADSRLID.Set(p, 9)
		prm.ADSSL.Set(p, 3)
		prm.ADSGRH.Set(p, 1)
		prm.ADSRGID.Bytes(p)[15] = 7
	})
	modify(0x504, func(c []byte) {
		prm.QPCNextSendPSN.Set(c, 0x654321)
		prm.QPCRetryCount.Set(c, 6)
		prm.QPCRNRRetry.Set(c, 5)
		prm.QPCLogSRAMax.Set(c, 2)
		prm.ADSAckTimeout.Set(prm.QPCPrimary.Bytes(c), 14)
	})
	c := prm.QueryQPOutQPC.Bytes(o.run(0x50b, 0, func(in []byte) { prm.QueryQPInQPN.Set(in, uint64(qpn)) }))
	p := prm.QPCPrimary.Bytes(c)
	for _, f := range []struct {
		field prm.Field
		b     []byte
		want  uint64
	}{
		{prm.QPCState, c, uint64(engine.RTS)}, {prm.QPCST, c, 0}, {prm.QPCPD, c, uint64(o.pd)},
		{prm.QPCCQNRcv, c, uint64(o.cqn)},
		{prm.QPCLogSQSize, c, 4}, {prm.QPCLogRQSize, c, 4}, {prm.QPCUserIndex, c, 0x123},
		{prm.QPCRRE, c, 1}, {prm.QPCRWE, c, 1}, {prm.QPCRAE, c, 0}, {prm.QPCPMState, c, 3}, {prm.QPCMTU, c, 3},
		{prm.QPCRemoteQPN, c, 0x4711}, {prm.QPCNextRcvPSN, c, 0x123456}, {prm.QPCNextSendPSN, c, 0x654321},
		{prm.QPCLogRRAMax, c, 4}, {prm.QPCLogSRAMax, c, 2}, {prm.QPCMinRNRNak, c, 12}, {prm.QPCRetryCount, c, 6},
		{prm.QPCRNRRetry, c, 5},
		{prm.ADSRLID, p, 9}, {prm.ADSSL, p, 3}, {prm.ADSGRH, p, 1}, {prm.ADSAckTimeout, p, 14},
	} {
		if got := f.field.Get(f.b); got != f.want {
			t.Errorf("%s is %#x, want %#x", f.field.Name, got, f.want)
		}
	}
	if prm.ADSRGID.Bytes(p)[15] != 7 {
		t.Errorf("the GID is % x", prm.ADSRGID.Bytes(p))
	}
	o.refused(0x401, 0, statusBusy, reasonParam, func(in []byte) { prm.DestroyCQInCQN.Set(in, uint64(o.cqn)) })
	o.refused(0x801, 0, statusBusy, reasonParam, func(in []byte) { prm.DeallocPDInPD.Set(in, uint64(o.pd)) })
	o.refused(0x502, 0, statusBadResourceState, reasonParam, func(in []byte) { prm.ModifyQPInQPN.Set(in, uint64(qpn)) })
	o.run(0x50a, 0, func(in []byte) { prm.MoveQPInQPN.Set(in, uint64(qpn)) })
	o.run(0x501, 0, func(in []byte) { prm.DestroyQPInQPN.Set(in, uint64(qpn)) })
	o.run(0x401, 0, func(in []byte) { prm.DestroyCQInCQN.Set(in, uint64(o.cqn)) })
	o.run(0x801, 0, func(in []byte) { prm.DeallocPDInPD.Set(in, uint64(o.pd)) })
	o.reported(0)
}

// TestQPRefusals checks a page list that is too short, and a UAR page that is
// not allocated.
func TestQPRefusals(t *testing.T) {
	o := newObjects(t, nil)
	fill := func(set func(c []byte)) func(in []byte) {
		return func(in []byte) {
			c := prm.CreateQPInQPC.Bytes(in)
			prm.QPCPD.Set(c, uint64(o.pd))
			prm.QPCUARPage.Set(c, uint64(o.uar))
			prm.QPCCQNSnd.Set(c, uint64(o.cqn))
			prm.QPCCQNRcv.Set(c, uint64(o.cqn))
			set(c)
		}
	}
	o.refused(0x500, 0, statusBadInputLength, reasonBuffer, fill(func(c []byte) {}))
	o.refused(0x500, 0, statusBadResource, reasonUAR, fill(func(c []byte) { prm.QPCUARPage.Set(c, 99) }))
	o.refused(0x500, 0, statusBadParam, reasonParam, fill(func(c []byte) { prm.QPCST.Set(c, uint64(engine.ServiceRaw)) }))
	o.refused(0x50b, 0, statusBadResource, reasonParam, func(in []byte) { prm.QueryQPInQPN.Set(in, 0xabcdef) })
}

// TestMemoryKey checks that a query returns a key's context.
func TestMemoryKey(t *testing.T) {
	o := newObjects(t, nil)
	out := o.list(0x200, 0, 32, 0, func(in []byte) {
		c := prm.CreateMKeyInMKC.Bytes(in)
		prm.MKCAccessMode10.Set(c, 1)
		prm.MKCLR.Set(c, 1)
		prm.MKCRW.Set(c, 1)
		prm.MKCQPN.Set(c, engine.AnyQPN)
		prm.MKCMKey70.Set(c, 0x5a)
		prm.MKCPD.Set(c, uint64(o.pd))
		prm.MKCStartAddr.Set(c, 0x7f0000001234)
		prm.MKCLen.Set(c, 0x2000)
		prm.MKCLogPageSize.Set(c, 12)
		prm.MKCTranslationsOctwordSize.Set(c, 2)
		prm.CreateMKeyInTranslationsOctwordActualSize.Set(in, 2)
	})
	index := prm.CreateMKeyOutMKeyIndex.Get(out)
	c := prm.QueryMKeyOutMKC.Bytes(o.run(0x201, 0, func(in []byte) { prm.QueryMKeyInMKeyIndex.Set(in, index) }))
	for f, want := range map[prm.Field]uint64{
		prm.MKCAccessMode10: 1, prm.MKCLR: 1, prm.MKCRW: 1, prm.MKCLW: 0, prm.MKCA: 0, prm.MKCMKey70: 0x5a,
		prm.MKCStartAddr: 0x7f0000001234, prm.MKCLen: 0x2000, prm.MKCLogPageSize: 12, prm.MKCPD: uint64(o.pd),
	} {
		if got := f.Get(c); got != want {
			t.Errorf("%s is %#x, want %#x", f.Name, got, want)
		}
	}
	o.refused(0x200, 0, statusBadInputLength, reasonLength, func(in []byte) {
		prm.CreateMKeyInTranslationsOctwordActualSize.Set(in, 1)
	})
	o.run(0x202, 0, func(in []byte) { prm.DestroyMKeyInMKeyIndex.Set(in, index) })
	o.refused(0x202, 0, statusBadResource, reasonParam, func(in []byte) { prm.DestroyMKeyInMKeyIndex.Set(in, index) })
}

// TestCQCommands checks a queue's context, its moderation and its resizing.
func TestCQCommands(t *testing.T) {
	o := newObjects(t, nil)
	query := func() []byte {
		return prm.QueryCQOutCQC.Bytes(o.run(0x402, 0, func(in []byte) { prm.QueryCQInCQN.Set(in, uint64(o.cqn)) }))
	}
	c := query()
	if prm.CQCLogCQSize.Get(c) != 5 || prm.CQCPageOffset.Get(c) != 32 || prm.CQCCEQN.Get(c) != uint64(o.eqn) ||
		prm.CQCStatus.Is(c) {
		t.Errorf("size %d, offset %d, EQ %d, status %d", prm.CQCLogCQSize.Get(c), prm.CQCPageOffset.Get(c),
			prm.CQCCEQN.Get(c), prm.CQCStatus.Get(c))
	}
	o.run(0x403, modifyCQ, func(in []byte) {
		prm.ModifyCQInCQN.Set(in, uint64(o.cqn))
		prm.ModifyCQInFieldSelect.Set(in, selectCount)
		prm.CQCCQMaxCount.Set(prm.ModifyCQInCQC.Bytes(in), 7)
		prm.CQCCQPeriod.Set(prm.ModifyCQInCQC.Bytes(in), 9)
	})
	if c = query(); prm.CQCCQMaxCount.Get(c) != 7 || prm.CQCCQPeriod.Get(c) != 0 {
		t.Errorf("count %d, period %d", prm.CQCCQMaxCount.Get(c), prm.CQCCQPeriod.Get(c))
	}
	page := o.host.alloc(1)
	o.list(0x403, resizeCQ, 8, 0, func(in []byte) {
		prm.ModifyCQInCQN.Set(in, uint64(o.cqn))
		prm.CQCLogCQSize.Set(prm.ModifyCQInCQC.Bytes(in), 6)
		prm.ModifyCQInPAS.Set(in, page)
	})
	if c = query(); prm.CQCLogCQSize.Get(c) != 6 || prm.CQCProducerCounter.Get(c) != 1 {
		t.Errorf("after a resize: size %d, producer %d", prm.CQCLogCQSize.Get(c), prm.CQCProducerCounter.Get(c))
	}
	o.refused(0x403, 2, statusBadParam, reasonOpMod, func(in []byte) { prm.ModifyCQInCQN.Set(in, uint64(o.cqn)) })
	o.refused(0x400, 0, statusBadInputLength, reasonBuffer, func(in []byte) {})
}

// TestSharedQueues checks both kinds of SRQs and their limits, and that they
// are distinct.
func TestSharedQueues(t *testing.T) {
	o := newObjects(t, nil)
	wq := prm.RMPCWQ.Within(prm.CreateRMPInRMPC)
	out := o.list(0x90c, 0, 8, 0, func(in []byte) {
		c := wq.Bytes(in)
		prm.WQPD.Set(c, uint64(o.pd))
		prm.WQLogWQSize.Set(c, 4)
		prm.WQLogWQStride.Set(c, 6)
		prm.WQDBRAddr.Set(c, o.record+128)
		prm.WQPAS.Within(wq).Set(in, o.host.alloc(1))
	})
	rmpn := prm.CreateRMPOutRMPN.Get(out)
	o.run(0x90d, 0, func(in []byte) {
		prm.ModifyRMPInRMPN.Set(in, rmpn)
		prm.RMPBitmaskLWM.Set(prm.ModifyRMPInRMPBitmask.Bytes(in), 1)
		prm.WQLWM.Set(prm.RMPCWQ.Bytes(prm.ModifyRMPInRMPC.Bytes(in)), 3)
	})
	// Nothing is posted, so the limit is reached at once and reset.
	c := prm.QueryRMPOutRMPC.Bytes(o.run(0x90f, 0, func(in []byte) { prm.QueryRMPInRMPN.Set(in, rmpn) }))
	if prm.RMPCState.Get(c) != rmpReady || prm.WQLogWQSize.Get(prm.RMPCWQ.Bytes(c)) != 4 {
		t.Errorf("state %d, size %d", prm.RMPCState.Get(c), prm.WQLogWQSize.Get(prm.RMPCWQ.Bytes(c)))
	}
	xrcd := prm.AllocXRCDOutXRCD.Get(o.run(0x80e, 0, nil))
	out = o.list(0x705, 0, 8, 0, func(in []byte) {
		c := prm.CreateXRCSRQInXRCSRQC.Bytes(in)
		prm.XRCSRQCPD.Set(c, uint64(o.pd))
		prm.XRCSRQCXRCD.Set(c, xrcd)
		prm.XRCSRQCCQN.Set(c, uint64(o.cqn))
		prm.XRCSRQCLogXRCSRQSize.Set(c, 4)
		prm.XRCSRQCLogRQStride.Set(c, 2)
		prm.XRCSRQCDBRAddr.Set(c, o.record+192)
		prm.CreateXRCSRQInPAS.Set(in, o.host.alloc(1))
	})
	srqn := prm.CreateXRCSRQOutXRCSRQN.Get(out)
	o.run(0x708, armForLimit, func(in []byte) { prm.ArmXRCSRQInXRCSRQN.Set(in, srqn); prm.ArmXRCSRQInLWM.Set(in, 2) })
	c = prm.QueryXRCSRQOutXRCSRQC.Bytes(o.run(0x707, 0, func(in []byte) { prm.QueryXRCSRQInXRCSRQN.Set(in, srqn) }))
	if prm.XRCSRQCXRCD.Get(c) != xrcd || prm.XRCSRQCLogRQStride.Get(c) != 2 {
		t.Errorf("XRC domain %d, stride %d", prm.XRCSRQCXRCD.Get(c), prm.XRCSRQCLogRQStride.Get(c))
	}
	o.refused(0x90f, 0, statusBadResource, reasonUnknown, func(in []byte) { prm.QueryRMPInRMPN.Set(in, srqn) })
	o.refused(0x706, 0, statusBadResource, reasonUnknown, func(in []byte) { prm.DestroyXRCSRQInXRCSRQN.Set(in, rmpn) })
	o.run(0x706, 0, func(in []byte) { prm.DestroyXRCSRQInXRCSRQN.Set(in, srqn) })
	o.run(0x90e, 0, func(in []byte) { prm.DestroyRMPInRMPN.Set(in, rmpn) })
	o.run(0x80f, 0, func(in []byte) { prm.DeallocXRCDInXRCD.Set(in, xrcd) })
}

// TestFirstInterface checks the SRQs of firmware without interface versions.
func TestFirstInterface(t *testing.T) {
	newer := newObjects(t, nil)
	newer.refused(0x700, 0, statusBadOpcode, reasonISSI, nil)
	o := newObjects(t, func(c *Config) { c.NoISSI = true })
	o.refused(0x10a, 0, statusBadOpcode, reasonISSI, nil)
	o.refused(0x10b, 0, statusBadOpcode, reasonISSI, nil)
	xrcd := prm.AllocXRCDOutXRCD.Get(o.run(0x80e, 0, nil))
	out := o.list(0x700, 0, 8, 0, func(in []byte) {
		c := prm.CreateSRQInSRQC.Bytes(in)
		prm.XRCSRQCPD.Set(c, uint64(o.pd))
		prm.XRCSRQCXRCD.Set(c, xrcd)
		prm.XRCSRQCCQN.Set(c, uint64(o.cqn))
		prm.XRCSRQCLogXRCSRQSize.Set(c, 4)
		prm.XRCSRQCLogRQStride.Set(c, 2)
		prm.XRCSRQCDBRAddr.Set(c, o.record+192)
		prm.CreateSRQInPAS.Set(in, o.host.alloc(1))
	})
	srqn := prm.CreateSRQOutSRQN.Get(out)
	limit := func() uint64 {
		c := prm.QuerySRQOutSRQC.Bytes(o.run(0x702, 0, func(in []byte) { prm.QuerySRQInSRQN.Set(in, srqn) }))
		if prm.XRCSRQCXRCD.Get(c) != xrcd || prm.XRCSRQCLogXRCSRQSize.Get(c) != 4 {
			t.Errorf("XRC domain %d, size %d", prm.XRCSRQCXRCD.Get(c), prm.XRCSRQCLogXRCSRQSize.Get(c))
		}
		return prm.XRCSRQCLWM.Get(c)
	}
	binary.BigEndian.PutUint32(o.host.bytes(o.record+192, 4), 5)
	o.run(0x703, armForLimit, func(in []byte) { prm.ArmRQInSRQNumber.Set(in, srqn); prm.ArmRQInLWM.Set(in, 2) })
	if n := limit(); n != 2 {
		t.Errorf("limit %d", n)
	}
	o.refused(0x703, 2, statusBadParam, reasonOpMod, func(in []byte) { prm.ArmRQInSRQNumber.Set(in, srqn) })
	o.run(0x701, 0, func(in []byte) { prm.DestroySRQInSRQN.Set(in, srqn) })
}

// TestAsyncEvents checks that events of the engine are posted to the event
// queue that has their type in its mask.
func TestAsyncEvents(t *testing.T) {
	o := newObjects(t, nil)
	e := events{o.device}
	for i, a := range []engine.AsyncEvent{
		{Type: engine.EventQPAccess, Number: 0x1234},
		{Type: engine.EventCQError, Number: 0x77, Syndrome: engine.CQOverrun},
		{Type: engine.EventSRQLimit, Number: 0x99},
	} {
		o.loop.Run(func() { e.Async(a) })
		event := o.event(o.eqRing, 6, i)
		if event == nil || prm.EQEType.Get(event) != uint64(a.Type) {
			t.Fatalf("event %d: % x", i, event)
		}
		number := prm.EQEQPN.Get(event)
		if a.Type == engine.EventCQError {
			number = prm.EQEErrorCQN.Get(event)
			if prm.EQEErrorSyndrome.Get(event) != engine.CQOverrun {
				t.Errorf("syndrome %d", prm.EQEErrorSyndrome.Get(event))
			}
		}
		if number != uint64(a.Number) {
			t.Errorf("event %d: number %#x, want %#x", i, number, a.Number)
		}
	}
}
