package rxe

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/sim/providertest"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// resettable is a QP whose kernel moves to RESET together with it.
type resettable struct {
	*qp
	k *kernel
}

func (r resettable) Reset() error {
	return errors.Join(r.k.reset(), r.qp.Reset())
}

func TestConformanceUD(t *testing.T) {
	providertest.RunUD(t, func(t *testing.T) *providertest.Rig {
		c := testCap(providertest.MaxSendWR, providertest.MaxRecvWR, providertest.MaxSGE, providertest.MaxInline)
		k, q, cq := newDatagramKernel(t, c, providertest.Entries)
		return &providertest.Rig{QP: resettable{q, k}, CQ: cq, Cap: c, QPN: qpn, Mem: k.mem, Addr: base, LKey: lkey,
			RKey: rkey, Work: k.run, AH: testAH(t, ahNum), QKey: qkey, MTU: mtu}
	})
}

func TestConformanceSRQ(t *testing.T) {
	providertest.RunSRQ(t, func(t *testing.T) *providertest.Rig {
		c := testCap(providertest.MaxSendWR, 0, providertest.MaxSGE, providertest.MaxInline)
		k, q, cq := newKernel(t, c, providertest.Entries)
		q.rq = recvQueue{} // a QP with an SRQ has none
		z, ctx := newResizer(t)
		var mi uapi.Mminfo
		k.rq, mi = z.offer(providertest.MaxRecvWR, 40+16*providertest.MaxSGE, false)
		r, err := ctx.mapRing(new(provider.Mapping), "shared receive queue", mi, recvHeader)
		if err != nil {
			t.Fatal(err)
		}
		s := newSharedQueue(ctx, r, providertest.MaxSGE)
		t.Cleanup(func() { s.Retire() })
		return &providertest.Rig{QP: resettable{q, k}, CQ: cq, Cap: c, QPN: qpn, Mem: k.mem, Addr: base, LKey: lkey,
			RKey: rkey, Work: k.run, SRQ: s,
			SRQSize: func() uverbs.SRQAttr { return uverbs.SRQAttr{MaxWR: int(k.rq.mask), MaxSGE: providertest.MaxSGE} },
			ResizeSRQ: func(n int) error {
				next, mi := z.offer(n, 40+16*providertest.MaxSGE, false)
				err := s.Modify(n, z.modified(k.rq, next, mi))
				if err == nil {
					k.rq = next
				}
				return err
			}}
	})
}

func TestConformance(t *testing.T) {
	providertest.Run(t, connectedRig)
}

func TestConformanceUC(t *testing.T) {
	providertest.RunUC(t, func(t *testing.T) *providertest.Rig {
		r := connectedRig(t)
		q := r.QP.(resettable)
		q.sq.sendUnacknowledged()
		q.k.uc = true
		return r
	})
}

func connectedRig(t *testing.T) *providertest.Rig {
	c := testCap(providertest.MaxSendWR, providertest.MaxRecvWR, providertest.MaxSGE, providertest.MaxInline)
	k, q, cq := newKernel(t, c, providertest.Entries)
	z, ctx := newResizer(t)
	cq.ctx = ctx
	t.Cleanup(func() { cq.Retire(true) })
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
}
