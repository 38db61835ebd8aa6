package connectx

import (
	"github.com/goverbs/goverbs/internal/connectx/engine"
	"github.com/goverbs/goverbs/internal/connectx/prm"
)

// offeredOrdering are capabilities of out-of-order queue pairs: dp_ordering_force permits programs to choose them,
// the others name the services.
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

// decodeOrder decodes the order of packets in the context of INIT2RTR_QP, which has no service.
func (d *Device) decodeOrder(in []byte, a *engine.QPAttr) error {
	qp, err := d.hca.QP(get32(prm.ModifyQPInQPN, in))
	if err != nil {
		return err
	}
	c := prm.ModifyQPInQPC.Bytes(in)
	a.OutOfOrder, err = d.outOfOrder(qp.Service, prm.QPCDPOrdering1.Is(c), prm.QPCDPOrderingForce.Is(c))
	return err
}

// outOfOrder reports whether a context is that of an out-of-order queue pair of a service. Its two bits are valid
// together: one of them alone requests an order that the device does not have.
func (d *Device) outOfOrder(s engine.Service, order, force bool) (bool, error) {
	if !order && !force {
		return false, nil
	}
	f, ok := orderings[s]
	if !ok || !order || !force || d.caps.general(f) == 0 ||
		!prm.HCACap2DPOrderingForce.Is(d.caps.page(CapGeneral2, true)) {
		return false, refuse(statusBadParam, reasonCapability)
	}
	return true, nil
}
