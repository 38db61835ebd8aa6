package connectx

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// offeredOrdering are capabilities of out-of-order queue pairs: dp_ordering_force permits programs to override the
// administrator's choice, the others name the services.
var offeredOrdering = []Capability{
	{CapGeneral2, prm.HCACap2DPOrderingForce, 1},
	{CapGeneral, prm.HCACapDPOrderingOOOAllRC, 1},
	{CapGeneral, prm.HCACapDPOrderingOOOAllXRC, 1},
	{CapGeneral, prm.HCACapDPOrderingOOOAllDC, 1},
}

// orderings has the capability of each service.
var orderings = map[engine.Service]prm.Field{
	engine.ServiceRC: prm.HCACapDPOrderingOOOAllRC, engine.ServiceXRC: prm.HCACapDPOrderingOOOAllXRC,
	engine.ServiceDCI: prm.HCACapDPOrderingOOOAllDC, engine.ServiceDCT: prm.HCACapDPOrderingOOOAllDC,
}

// An ordering is what a context requests of the order of packets: a level, which is the wanted degree of freedom, and
// whether it applies in any case. The levels are a range: a device with a level has the lower ones.
type ordering uint8

const (
	orderLevel    ordering = 3
	orderAll      ordering = 2 // dp_ordering_1: packets of all operations may overtake others
	orderForced   ordering = 4 // dp_ordering_force
	orderReserved          = orderLevel
)

// An orderFields has the fields of an ordering in a context.
type orderFields struct{ level0, level1, force prm.Field }

var (
	qpOrder  = orderFields{prm.QPCDPOrdering0, prm.QPCDPOrdering1, prm.QPCDPOrderingForce}
	dctOrder = orderFields{prm.DCTCDPOrdering0, prm.DCTCDPOrdering1, prm.DCTCDPOrderingForce}
)

func (f *orderFields) get(c []byte) ordering {
	return ordering(f.level0.Get(c) | f.level1.Get(c)<<1 | f.force.Get(c)<<2)
}

func (f *orderFields) set(c []byte, o ordering) {
	f.level0.SetBool(c, o&1 != 0)
	f.level1.SetBool(c, o&orderAll != 0)
	f.force.SetBool(c, o&orderForced != 0)
}

// decodeOrder decodes the order of packets in the context of INIT2RTR_QP, which has no service.
func (d *Device) decodeOrder(in []byte, a *engine.QPAttr) error {
	qp, err := d.hca.QP(get32(prm.ModifyQPInQPN, in))
	if err != nil {
		return err
	}
	return d.order(qp.Service, qpOrder.get(prm.ModifyQPInQPC.Bytes(in)), a)
}

// order sets the order of packets of a service. Adapters have a default of the administrator, which a context
// overrides with dp_ordering_force, for a service with dp_ordering_ooo_all. Here, the default is what the context
// requests. At the middle level only READs and WRITEs may overtake others: the device keeps the order then.
func (d *Device) order(s engine.Service, o ordering, a *engine.QPAttr) error {
	f, ok := orderings[s]
	switch {
	case o&orderLevel == orderReserved,
		o&orderLevel != 0 && (!ok || d.caps.general(f) == 0),
		o&orderForced != 0 && (!ok || !prm.HCACap2DPOrderingForce.Is(d.caps.page(CapGeneral2, true))):
		return refuse(statusBadParam, reasonCapability)
	}
	a.Ordering, a.OutOfOrder = uint8(o), o&orderLevel == orderAll
	return nil
}
