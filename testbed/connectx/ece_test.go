package connectx

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// createWithECE creates a queue pair with requested options of enhanced
// connection establishment, and returns its number and the options of the
// device.
func (o *objects) createWithECE(options uint32) (qpn, ece uint32) {
	o.t.Helper()
	out := o.list(0x500, 0, 8, 0, func(in []byte) {
		prm.CreateQPInECE.Set(in, uint64(options))
		c := prm.CreateQPInQPC.Bytes(in)
		prm.QPCPD.Set(c, uint64(o.pd))
		prm.QPCUARPage.Set(c, uint64(o.uar))
		prm.QPCCQNSnd.Set(c, uint64(o.cqn))
		prm.QPCCQNRcv.Set(c, uint64(o.cqn))
		prm.QPCRQType.Set(c, uint64(engine.FromNone))
		prm.QPCDBRAddr.Set(c, o.record+64)
		prm.CreateQPInPAS.Set(in, o.host.alloc(1))
	})
	return get32(prm.CreateQPOutQPN, out), get32(prm.CreateQPOutECE, out)
}

// TestECE checks that CREATE_QP returns the device's options, and that INIT2RTR
// returns and sets the requested ones that the device supports.
func TestECE(t *testing.T) {
	const has, wants, both = 0x3000_0006, 0x1000_000c, 0x1000_0004
	o := newObjects(t, func(c *Config) { c.ECE = has })
	if _, got := o.createWithECE(0); got != 0 {
		t.Errorf("a queue pair without requested options has %#x", got)
	}
	qpn, got := o.createWithECE(0x1000_0000)
	if got != has {
		t.Errorf("the device's options are %#x, want %#x", got, has)
	}
	modify := func(opcode uint16, ece uint32) uint32 {
		t.Helper()
		return get32(prm.ModifyQPOutECE, o.run(opcode, 0, func(in []byte) {
			prm.ModifyQPInQPN.Set(in, uint64(qpn))
			prm.ModifyQPInECE.Set(in, uint64(ece))
			prm.QPCMTU.Set(prm.ModifyQPInQPC.Bytes(in), 3)
		}))
	}
	query := func() uint32 {
		return get32(prm.QueryQPOutECE, o.run(0x50b, 0, func(in []byte) { prm.QueryQPInQPN.Set(in, uint64(qpn)) }))
	}
	modify(0x502, 0)
	if got := modify(0x503, wants); got != both || query() != both {
		t.Errorf("INIT2RTR with %#x returns %#x, and QUERY_QP %#x, want %#x", wants, got, query(), both)
	}
	if got := modify(0x504, 0); got != 0 || query() != both {
		t.Errorf("RTR2RTS without options returns %#x, and QUERY_QP %#x, want 0 and %#x", got, query(), both)
	}
	o.run(0x50a, 0, func(in []byte) { prm.MoveQPInQPN.Set(in, uint64(qpn)) })
	if got := query(); got != 0 {
		t.Errorf("after a reset the options are %#x", got)
	}
}

// TestNoECE checks that firmware without the capability refuses the options.
func TestNoECE(t *testing.T) {
	o := newObjects(t, func(c *Config) { c.Capabilities = []Capability{{CapGeneral, prm.HCACapECESupport, 0}} })
	qpn, got := o.createWithECE(0)
	if got != 0 {
		t.Errorf("options %#x", got)
	}
	o.refused(0x502, 0, statusBadParam, reasonCapability, func(in []byte) {
		prm.ModifyQPInQPN.Set(in, uint64(qpn))
		prm.ModifyQPInECE.Set(in, 1)
	})
}
