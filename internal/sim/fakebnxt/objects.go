package fakebnxt

import (
	"encoding/binary"
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/internal/uapi"
)

// createAH is bnxt_re_create_ah, which writes the AH's number to the shared page.
func (k *kernel) createAH(c ioctl.Call) error {
	a := k.CreateAH(c)
	if k.shared.Bytes != nil {
		binary.LittleEndian.PutUint32(k.shared.Bytes[uapi.BNXT_RE_AVID_OFFT:], a.Number)
	}
	return nil
}

// depth returns the size of a queue for n entries.
func (k *kernel) depth(n, most uint32) uint32 {
	if k.pow2 && n > 0 {
		n = 1 << bits.Len32(n-1)
	}
	return min(n, most)
}

// Sizes of parts of the rings, in bytes.
const (
	slotSize   = 16
	fixedSlots = 8 // of a request with a fixed size
	headSlots  = 2
	reserved   = 128 // requests that a send queue has in addition
)

// createQP is bnxt_re_create_qp.
func (k *kernel) createQP(c ioctl.Call) error {
	u := call.In[uapi.BnxtReQpReq](c, uapi.UVERBS_ATTR_UHW_IN)
	kind := uint64(call.Num(c, uapi.UVERBS_ATTR_CREATE_QP_TYPE))
	size := call.In[uapi.IbUverbsQpCap](c, uapi.UVERBS_ATTR_CREATE_QP_CAP)
	k.dev.Record("create QP type %d, %d sends of %d SGEs, %d receives of %d, %d inline, flags %#x, %d slots", kind,
		size.MaxSendWr, size.MaxSendSge, size.MaxRecvWr, size.MaxRecvSge, size.MaxInlineData,
		call.Num(c, uapi.UVERBS_ATTR_CREATE_QP_FLAGS), k.slots(u))
	switch {
	case kind != uapi.IB_UVERBS_QPT_RC && kind != uapi.IB_UVERBS_QPT_UD:
		return unix.EOPNOTSUPP
	case size.MaxInlineData > maxInline, k.variable && (u.SqSlots == 0 || u.SqSlots > 1<<16),
		k.dev.fabric.cfg.Chip != Stratus && u.QpHandle == 0:
		return unix.EINVAL
	case len(k.dev.qps) == maxQPs:
		return unix.ENOMEM
	}
	q := k.newQP(c, u)
	if err := k.pinQP(q); err != nil {
		return err
	}
	number := q.Number
	k.qps[q.Handle], k.dev.qps[q.Number], k.dev.newest = q, q, q
	call.Reply(c, uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &number)
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &uapi.BnxtReQpResp{Qpid: number})
	return nil
}

// slots returns the size that the program has chosen for the send queue, or 0.
func (k *kernel) slots(u *uapi.BnxtReQpReq) uint32 {
	if k.variable {
		return u.SqSlots
	}
	return 0
}

// pinQP pins the queues.
func (k *kernel) pinQP(q *qp) error {
	if err := k.Pin(q.sq.addr, q.sq.bytes, true); err != nil {
		return err
	}
	if q.srq != nil {
		return nil
	}
	err := k.Pin(q.rq.addr, q.rq.bytes, true)
	if err != nil {
		k.Unpin(q.sq.bytes)
	}
	return err
}

func (k *kernel) destroyQP(q *qp) {
	q.enter(transport.Reset)
	q.Disconnect()
	k.Unpin(q.sq.bytes)
	if q.srq == nil {
		k.Unpin(q.rq.bytes)
	}
	delete(k.dev.qps, q.Number)
}

// createCQ is bnxt_re_create_cq.
func (k *kernel) createCQ(c ioctl.Call) error {
	u := call.In[uapi.BnxtReCqReq](c, uapi.UVERBS_ATTR_UHW_IN)
	n := uint32(call.Num(c, uapi.UVERBS_ATTR_CREATE_CQ_CQE))
	k.dev.Record("create CQ of %d", n)
	q := &cq{kernel: k, handle: call.Handle(c, uapi.UVERBS_ATTR_CREATE_CQ_HANDLE), number: k.dev.Next("CQ"),
		addr: u.CqVa, window: window{depth: k.depth(n+1, maxCQE)}, phase: 1}
	var err error
	if q.toggle, err = k.newToggle(); err != nil {
		return err
	}
	if err := k.Pin(q.addr, q.bytes(), true); err != nil {
		k.FreeRing(q.toggle.page)
		return err
	}
	r := uapi.BnxtReCqResp{Cqid: q.number, Phase: 1}
	if k.dev.fabric.cfg.Toggle {
		r.CompMask = uapi.BNXT_RE_CQ_TOGGLE_PAGE_SUPPORT
	}
	k.cqs[q.handle], k.dev.cqs[q.number] = q, q
	call.Reply(c, uapi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, &q.depth)
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &r)
	return nil
}

// resizeCQ is bnxt_re_resize_cq.
func (k *kernel) resizeCQ(c ioctl.Call) error {
	r := call.In[uapi.IbUverbsResizeCq](c, uapi.UVERBS_ATTR_CORE_IN)
	q, addr := k.cqs[r.CqHandle], call.In[uapi.BnxtReResizeCqReq](c, uapi.UVERBS_ATTR_UHW_IN).CqVa
	k.dev.Record("resize CQ to %d", r.Cqe)
	if q.left != nil {
		return unix.EBUSY
	}
	w := window{depth: k.depth(r.Cqe+1, maxCQE)}
	if err := k.Pin(addr, w.bytes(), true); err != nil {
		return err
	}
	q.resize(addr, w.depth)
	call.Reply(c, uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsResizeCqResp{Cqe: w.depth})
	return nil
}

// pollCQ is bnxt_re_poll_cq for the CQ of a program: the ring before a resize is released.
func (k *kernel) pollCQ(c ioctl.Call) error {
	if q := k.cqs[call.In[uapi.IbUverbsPollCq](c, uapi.UVERBS_ATTR_CORE_IN).CqHandle]; q != nil {
		k.release(q)
	}
	return nil
}

// release ends the use of the ring before a resize.
func (k *kernel) release(q *cq) {
	if q.left != nil && !q.left.polled {
		q.left.polled = true
		k.Unpin(q.left.bytes())
	}
}

func (k *kernel) destroyCQ(q *cq) {
	k.release(q)
	k.Unpin(q.bytes())
	k.FreeRing(q.toggle.page)
	delete(k.dev.cqs, q.number)
}

// createSRQ is bnxt_re_create_srq.
func (k *kernel) createSRQ(c ioctl.Call) error {
	u := call.In[uapi.BnxtReSrqReq](c, uapi.UVERBS_ATTR_UHW_IN)
	n := uint32(call.Num(c, uapi.UVERBS_ATTR_CREATE_SRQ_MAX_WR))
	k.dev.Record("create SRQ of %d receives of %d SGEs, limit %d", n, call.Num(c, uapi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE),
		call.Num(c, uapi.UVERBS_ATTR_CREATE_SRQ_LIMIT))
	if n >= maxWR {
		return unix.EINVAL
	}
	s := &srq{kernel: k, handle: call.Handle(c, uapi.UVERBS_ATTR_CREATE_SRQ_HANDLE), number: k.dev.Next("SRQ"),
		pd: k.PDs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_SRQ_PD_HANDLE)]}
	s.ring = recvRing{memory: k.Memory, addr: u.Srqva, depth: k.depth(n+1, maxWR+1), slots: headSlots + maxSRQSGE}
	s.ring.bytes = uint64(s.ring.depth) * uint64(s.ring.slots) * slotSize
	var err error
	if s.toggle, err = k.newToggle(); err != nil {
		return err
	}
	if err := k.Pin(s.ring.addr, s.ring.bytes, true); err != nil {
		k.FreeRing(s.toggle.page)
		return err
	}
	r := uapi.BnxtReSrqResp{Srqid: s.number}
	if k.dev.fabric.cfg.Toggle {
		r.CompMask = uapi.BNXT_RE_SRQ_TOGGLE_PAGE_SUPPORT
	}
	k.srqs[s.handle], k.dev.srqs[s.number] = s, s
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &r)
	return nil
}

func (k *kernel) destroySRQ(s *srq) {
	k.Unpin(s.ring.bytes)
	k.FreeRing(s.toggle.page)
	delete(k.dev.srqs, s.number)
}
