package rxe

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/provider/providertest"
)

// resettable is a QP whose kernel goes to RESET with it.
type resettable struct {
	*qp
	k *kernel
}

func (r resettable) Reset() error {
	return errors.Join(r.k.reset(), r.qp.Reset())
}

func TestConformance(t *testing.T) {
	providertest.Run(t, func(t *testing.T) *providertest.Rig {
		c := testCap(providertest.MaxSendWR, providertest.MaxRecvWR, providertest.MaxSGE, providertest.MaxInline)
		k, q, cq := newKernel(t, c, providertest.Entries)
		z, ctx := newResizer(t)
		cq.ctx = ctx
		t.Cleanup(func() { cq.Retire() })
		return &providertest.Rig{
			QP: resettable{q, k}, CQ: cq, Cap: c, QPN: qpn,
			Mem: k.mem, Addr: base, LKey: lkey, RKey: rkey,
			Work: k.run,
			Resize: func(entries int) error {
				next, mi := z.ring(entries)
				_, err := cq.Resize(entries, z.command(k.cq, next, mi))
				k.cq = next
				return err
			},
		}
	})
}
