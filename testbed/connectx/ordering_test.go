package connectx

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// orderedTo returns a function that fills in INIT2RTR_QP with the order of packets.
func orderedTo(qpn uint64, order ordering) func([]byte) {
	return func(in []byte) {
		prm.ModifyQPInQPN.Set(in, qpn)
		c := prm.ModifyQPInQPC.Bytes(in)
		prm.QPCMTU.Set(c, 3)
		qpOrder.set(c, order)
	}
}

// inInit returns a queue pair in state INIT.
func (o *objects) inInit(service engine.Service) uint64 {
	o.t.Helper()
	qpn := uint64(o.createQP(service))
	o.run(0x502, 0, set(prm.ModifyQPInQPN, qpn))
	return qpn
}

// orderOf returns the order of packets from a query, and whether the queue pair is out of order.
func (o *objects) orderOf(qpn uint64) (order ordering, free bool) {
	o.t.Helper()
	order = qpOrder.get(prm.QueryQPOutQPC.Bytes(o.run(0x50b, 0, set(prm.QueryQPInQPN, qpn))))
	qp, err := o.device.hca.QP(uint32(qpn))
	return order, err == nil && qp.OutOfOrder
}

// TestOutOfOrder checks the orders that INIT2RTR_QP requests, which a query returns. UCX requests all levels, by
// default without force. Another transition makes an ordinary queue pair again.
func TestOutOfOrder(t *testing.T) {
	o := newObjects(t, nil)
	qpn := o.inInit(engine.ServiceRC)
	for _, want := range []struct {
		order ordering
		free  bool
	}{
		{orderAll | orderForced, true}, {orderAll, true},
		{orderForced, false}, {1, false}, {1 | orderForced, false}, {0, false},
	} {
		o.run(0x503, 0, orderedTo(qpn, want.order))
		if got, free := o.orderOf(qpn); got != want.order || free != want.free {
			t.Errorf("order %#b: the context has %#b, and out of order is %v", want.order, got, free)
		}
		o.run(0x50a, 0, set(prm.MoveQPInQPN, qpn))
		o.run(0x502, 0, set(prm.ModifyQPInQPN, qpn))
	}
	o.refused(0x503, 0, statusBadParam, reasonCapability, orderedTo(qpn, orderReserved))
	o.refused(0x503, 0, statusBadParam, reasonCapability, orderedTo(qpn, orderReserved|orderForced))
	for _, s := range []engine.Service{engine.ServiceUC, engine.ServiceUD} {
		for _, order := range []ordering{orderAll | orderForced, orderAll, orderForced, 1} {
			o.refused(0x503, 0, statusBadParam, reasonCapability, orderedTo(o.inInit(s), order))
		}
	}
}

// TestDCTOrder checks the orders that CREATE_DCT requests: UCX requests all levels, by default without force.
func TestDCTOrder(t *testing.T) {
	o := newObjects(t, nil)
	fill := o.fillDCT(o.createRMP())
	for order := range orderReserved | orderForced + 1 {
		create := func(in []byte) {
			fill(in)
			dctOrder.set(prm.CreateDCTInDCTC.Bytes(in), order)
		}
		if order&orderLevel == orderReserved {
			o.refused(0x710, 0, statusBadParam, reasonCapability, create)
			continue
		}
		dctn := prm.CreateDCTOutDCTN.Get(o.run(0x710, 0, create))
		c := prm.QueryDCTOutDCTC.Bytes(o.run(0x713, 0, set(prm.DCTInDCTN, dctn)))
		if got := dctOrder.get(c); got != order {
			t.Errorf("order %#b: the context has %#b", order, got)
		}
	}
}

// TestNoOutOfOrder checks devices that lack one of the capabilities: the service's, which permits the levels, or the
// one that permits to override the administrator.
func TestNoOutOfOrder(t *testing.T) {
	for name, c := range map[string]struct {
		lacks   Capability
		refused []ordering
		ok      []ordering
	}{
		"without the service": {Capability{CapGeneral, prm.HCACapDPOrderingOOOAllRC, 0},
			[]ordering{orderAll | orderForced, orderAll, 1}, []ordering{orderForced}},
		"without the choice": {Capability{CapGeneral2, prm.HCACap2DPOrderingForce, 0},
			[]ordering{orderAll | orderForced, orderForced}, []ordering{orderAll, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newObjects(t, func(config *Config) { config.Capabilities = []Capability{c.lacks} })
			for _, order := range c.refused {
				o.refused(0x503, 0, statusBadParam, reasonCapability, orderedTo(o.inInit(engine.ServiceRC), order))
			}
			for _, order := range c.ok {
				o.run(0x503, 0, orderedTo(o.inInit(engine.ServiceRC), order))
			}
		})
	}
}
