package fakebnxt

import (
	"encoding/binary"
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/internal/sim/devfile"
	"github.com/goverbs/goverbs/internal/uapi"
)

// An ah is an address.
type ah struct {
	number uint32
	pd     uint32
	path   transport.Path
}

// An mr is a memory region.
type mr struct {
	devfile.Region
	pd  uint32
	key uint32
}

func (k *Kernel) regMR(c ioctl.Call) error {
	const in, out = uapi.UVERBS_ATTR_CORE_IN, uapi.UVERBS_ATTR_CORE_OUT
	r, resp := call.In[uapi.IbUverbsRegMr](c, in), call.Out[uapi.IbUverbsRegMrResp](c, out)
	if err := k.pin(r.Start, r.Length, r.AccessFlags&uapi.IB_UVERBS_ACCESS_LOCAL_WRITE != 0); err != nil {
		k.Forget(resp.MrHandle)
		return err
	}
	m := &mr{devfile.Region{Memory: k.memory, Start: r.Start, IOVA: r.HcaVa, Length: r.Length, Access: r.AccessFlags},
		k.pds[r.PdHandle], k.dev.number("MR") << 8}
	k.mrs[resp.MrHandle], k.dev.mrs[m.key] = m, m
	resp.Lkey, resp.Rkey = m.key, m.key
	call.Reply(c, out, resp)
	return nil
}

// pin admits memory of the program.
func (k *Kernel) pin(addr, n uint64, write bool) error {
	if err := k.memory.Admit(addr, n, k.pinned, write); err != nil {
		return err
	}
	k.pinned += n
	return nil
}

func (k *Kernel) destroyMR(h uint32) {
	if m := k.mrs[h]; m != nil {
		k.pinned -= m.Length
		delete(k.mrs, h)
		delete(k.dev.mrs, m.key)
	}
}

// pathOf returns the path of an address.
func pathOf(sgid uint8, dgid [16]byte, flow uint32, hops, class uint8) transport.Path {
	return transport.Path{GRH: true, SGIDIndex: sgid, DGID: dgid, FlowLabel: flow, HopLimit: hops, TrafficClass: class}
}

// createAH is bnxt_re_create_ah, which writes the AH's number to the shared page.
func (k *Kernel) createAH(c ioctl.Call) {
	r := call.In[uapi.IbUverbsCreateAh](c, uapi.UVERBS_ATTR_CORE_IN)
	g := &r.Attr.Grh
	a := &ah{number: k.dev.number("AH"), pd: k.pds[r.PdHandle],
		path: pathOf(g.SgidIndex, g.Dgid, g.FlowLabel, g.HopLimit, g.TrafficClass)}
	k.ahs[call.Out[uapi.IbUverbsCreateAhResp](c, uapi.UVERBS_ATTR_CORE_OUT).AhHandle], k.dev.ahs[a.number] = a, a
	if k.shared.Bytes != nil {
		binary.LittleEndian.PutUint32(k.shared.Bytes[uapi.BNXT_RE_AVID_OFFT:], a.number)
	}
}

func (k *Kernel) destroyAH(h uint32) {
	if a := k.ahs[h]; a != nil {
		delete(k.ahs, h)
		delete(k.dev.ahs, a.number)
	}
}

// depth returns the size of a queue for n entries.
func (k *Kernel) depth(n, most uint32) uint32 {
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
func (k *Kernel) createQP(c ioctl.Call) error {
	u := call.In[uapi.BnxtReQpReq](c, uapi.UVERBS_ATTR_UHW_IN)
	kind := uint64(call.Num(c, uapi.UVERBS_ATTR_CREATE_QP_TYPE))
	size := call.In[uapi.IbUverbsQpCap](c, uapi.UVERBS_ATTR_CREATE_QP_CAP)
	k.dev.record("create QP type %d, %d sends of %d SGEs, %d receives of %d, %d inline, flags %#x, %d slots", kind,
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
	q := k.newQP(c, u, size)
	if err := k.pinQP(q); err != nil {
		return err
	}
	number := q.number
	k.qps[q.handle], k.dev.qps[q.number], k.dev.newest = q, q, q
	call.Reply(c, uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &number)
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &uapi.BnxtReQpResp{Qpid: number})
	return nil
}

// slots returns the size that the program has chosen for the send queue, or 0.
func (k *Kernel) slots(u *uapi.BnxtReQpReq) uint32 {
	if k.variable {
		return u.SqSlots
	}
	return 0
}

// pinQP pins the queues.
func (k *Kernel) pinQP(q *qp) error {
	if err := k.pin(q.sq.addr, q.sq.bytes, true); err != nil {
		return err
	}
	if q.srq != nil {
		return nil
	}
	err := k.pin(q.rq.addr, q.rq.bytes, true)
	if err != nil {
		k.pinned -= q.sq.bytes
	}
	return err
}

func (k *Kernel) destroyQP(h uint32) {
	q := k.qps[h]
	if q == nil {
		return
	}
	q.enter(transport.Reset)
	k.pinned -= q.sq.bytes
	if q.srq == nil {
		k.pinned -= q.rq.bytes
	}
	delete(k.qps, h)
	delete(k.dev.qps, q.number)
}

// createCQ is bnxt_re_create_cq.
func (k *Kernel) createCQ(c ioctl.Call) error {
	u := call.In[uapi.BnxtReCqReq](c, uapi.UVERBS_ATTR_UHW_IN)
	n := uint32(call.Num(c, uapi.UVERBS_ATTR_CREATE_CQ_CQE))
	k.dev.record("create CQ of %d", n)
	q := &cq{kernel: k, handle: call.Handle(c, uapi.UVERBS_ATTR_CREATE_CQ_HANDLE), number: k.dev.number("CQ"),
		addr: u.CqVa, window: window{depth: k.depth(n+1, maxCQE)}, phase: 1}
	var err error
	if q.toggle, err = k.newToggle(); err != nil {
		return err
	}
	if err := k.pin(q.addr, q.bytes(), true); err != nil {
		k.check(k.file.FreeRing(q.toggle.page))
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
func (k *Kernel) resizeCQ(c ioctl.Call) error {
	r := call.In[uapi.IbUverbsResizeCq](c, uapi.UVERBS_ATTR_CORE_IN)
	q, addr := k.cqs[r.CqHandle], call.In[uapi.BnxtReResizeCqReq](c, uapi.UVERBS_ATTR_UHW_IN).CqVa
	k.dev.record("resize CQ to %d", r.Cqe)
	if q.left != nil {
		return unix.EBUSY
	}
	w := window{depth: k.depth(r.Cqe+1, maxCQE)}
	if err := k.pin(addr, w.bytes(), true); err != nil {
		return err
	}
	q.resize(addr, w.depth)
	call.Reply(c, uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsResizeCqResp{Cqe: w.depth})
	return nil
}

// pollCQ is bnxt_re_poll_cq for the CQ of a program: the ring before a resize is released.
func (k *Kernel) pollCQ(h uint32) {
	if q := k.cqs[h]; q != nil && q.left != nil && !q.left.polled {
		q.left.polled = true
		k.pinned -= q.left.bytes()
	}
}

func (k *Kernel) destroyCQ(h uint32) {
	if q := k.cqs[h]; q != nil {
		k.pollCQ(h)
		k.pinned -= q.bytes()
		k.check(k.file.FreeRing(q.toggle.page))
		delete(k.cqs, h)
		delete(k.dev.cqs, q.number)
	}
}

// createSRQ is bnxt_re_create_srq.
func (k *Kernel) createSRQ(c ioctl.Call) error {
	u := call.In[uapi.BnxtReSrqReq](c, uapi.UVERBS_ATTR_UHW_IN)
	n := uint32(call.Num(c, uapi.UVERBS_ATTR_CREATE_SRQ_MAX_WR))
	k.dev.record("create SRQ of %d receives of %d SGEs, limit %d", n, call.Num(c, uapi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE),
		call.Num(c, uapi.UVERBS_ATTR_CREATE_SRQ_LIMIT))
	if n >= maxWR {
		return unix.EINVAL
	}
	s := &srq{kernel: k, handle: call.Handle(c, uapi.UVERBS_ATTR_CREATE_SRQ_HANDLE), number: k.dev.number("SRQ"),
		pd: k.pds[call.Handle(c, uapi.UVERBS_ATTR_CREATE_SRQ_PD_HANDLE)]}
	s.ring = recvRing{memory: k.memory, addr: u.Srqva, depth: k.depth(n+1, maxWR+1), slots: headSlots + maxSRQSGE}
	s.ring.bytes = uint64(s.ring.depth) * uint64(s.ring.slots) * slotSize
	var err error
	if s.toggle, err = k.newToggle(); err != nil {
		return err
	}
	if err := k.pin(s.ring.addr, s.ring.bytes, true); err != nil {
		k.check(k.file.FreeRing(s.toggle.page))
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

func (k *Kernel) destroySRQ(h uint32) {
	if s := k.srqs[h]; s != nil {
		k.pinned -= s.ring.bytes
		k.check(k.file.FreeRing(s.toggle.page))
		delete(k.srqs, h)
		delete(k.dev.srqs, s.number)
	}
}
