package connectx

import (
	"testing"

	"github.com/goverbs/goverbs/internal/connectx/engine"
	"github.com/goverbs/goverbs/internal/connectx/prm"
)

// orderedTo returns a function that fills in INIT2RTR_QP with the order of packets.
func orderedTo(qpn, order, force uint64) func([]byte) {
	return func(in []byte) {
		prm.ModifyQPInQPN.Set(in, qpn)
		c := prm.ModifyQPInQPC.Bytes(in)
		prm.QPCMTU.Set(c, 3)
		prm.QPCDPOrdering1.Set(c, order)
		prm.QPCDPOrderingForce.Set(c, force)
	}
}

// inInit returns a queue pair in state INIT.
func (o *objects) inInit(service engine.Service) uint64 {
	o.t.Helper()
	qpn := uint64(o.createQP(service))
	o.run(0x502, 0, set(prm.ModifyQPInQPN, qpn))
	return qpn
}

// TestOutOfOrder checks that INIT2RTR_QP makes a queue pair out of order, which a query returns, and that another
// transition makes it an ordinary one again.
func TestOutOfOrder(t *testing.T) {
	o := newObjects(t, nil)
	qpn := o.inInit(engine.ServiceRC)
	ordering := func() [2]uint64 {
		c := prm.QueryQPOutQPC.Bytes(o.run(0x50b, 0, set(prm.QueryQPInQPN, qpn)))
		return [2]uint64{prm.QPCDPOrdering1.Get(c), prm.QPCDPOrderingForce.Get(c)}
	}
	o.run(0x503, 0, orderedTo(qpn, 1, 1))
	if got := ordering(); got != [2]uint64{1, 1} {
		t.Errorf("the context has %v", got)
	}
	o.run(0x50a, 0, set(prm.MoveQPInQPN, qpn))
	o.run(0x502, 0, set(prm.ModifyQPInQPN, qpn))
	o.run(0x503, 0, orderedTo(qpn, 0, 0))
	if got := ordering(); got != [2]uint64{} {
		t.Errorf("after RESET the context has %v", got)
	}
	for _, bits := range [][2]uint64{{1, 0}, {0, 1}} {
		o.refused(0x503, 0, statusBadParam, reasonCapability, orderedTo(o.inInit(engine.ServiceRC), bits[0], bits[1]))
	}
	for _, s := range []engine.Service{engine.ServiceUC, engine.ServiceUD} {
		o.refused(0x503, 0, statusBadParam, reasonCapability, orderedTo(o.inInit(s), 1, 1))
	}
}

// TestNoOutOfOrder checks devices that lack one of the capabilities.
func TestNoOutOfOrder(t *testing.T) {
	for name, c := range map[string]Capability{
		"without the service": {CapGeneral, prm.HCACapDPOrderingOOOAllRC, 0},
		"without the choice":  {CapGeneral2, prm.HCACap2DPOrderingForce, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := newObjects(t, func(config *Config) { config.Capabilities = []Capability{c} })
			o.refused(0x503, 0, statusBadParam, reasonCapability, orderedTo(o.inInit(engine.ServiceRC), 1, 1))
		})
	}
}
