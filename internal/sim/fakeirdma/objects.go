package fakeirdma

import (
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/internal/uapi"
)

const (
	quantumSize   = 32
	reservedSends = 258 // quanta
	reservedRecvs = 1
)

// shift returns the binary logarithm of the quanta of a request: irdma_get_wqe_shift.
func shift(sges, inline uint32) uint32 {
	switch {
	case sges <= 1 && inline <= 8:
		return 0
	case sges < 4 && inline <= 39:
		return 1
	case sges < 8 && inline <= 101:
		return 2
	}
	return 3
}

// depth returns the quanta of a ring for n requests: irdma_get_sqdepth.
func depth(n, shift, reserved uint32) uint32 {
	d := uint32(1) << bits.Len32(n<<shift+reserved-1)
	return max(d, minWQ<<shift)
}

// Capabilities of QPs: enum irdma_qp_caps.
const (
	capWriteImm = 1
	capSendImm  = 2
	capRoCE     = 4
	capPush     = 8 // MODIFY_QP may reply with a push page
)

// createQP is irdma_create_qp.
func (k *kernel) createQP(c ioctl.Call) error {
	u := call.In[uapi.IrdmaCreateQpReq](c, uapi.UVERBS_ATTR_UHW_IN)
	kind := uint64(call.Num(c, uapi.UVERBS_ATTR_CREATE_QP_TYPE))
	size := call.In[uapi.IbUverbsQpCap](c, uapi.UVERBS_ATTR_CREATE_QP_CAP)
	k.dev.Record("create QP type %d, %d sends of %d SGEs, %d receives of %d, %d inline", kind, size.MaxSendWr,
		size.MaxSendSge, size.MaxRecvWr, size.MaxRecvSge, size.MaxInlineData)
	switch {
	case kind != uapi.IB_UVERBS_QPT_RC && kind != uapi.IB_UVERBS_QPT_UD:
		return unix.EOPNOTSUPP
	case size.MaxInlineData > maxInline || size.MaxSendSge > maxSGE || size.MaxRecvSge > maxSGE:
		return unix.EINVAL
	case len(k.dev.qps) == maxQPs:
		return unix.ENOMEM
	}
	sends, recvs := k.sizes(size)
	if sends.quanta > maxQuanta || recvs.quanta > maxQuanta {
		return unix.EINVAL
	}
	m := k.take(u.UserWqeBufs, uapi.IRDMA_MEMREG_TYPE_QP)
	if m == nil {
		return unix.ENODATA
	}
	if sends.bytes() > uint64(m.SqPages)*pageSize || recvs.bytes() > uint64(m.RqPages)*pageSize {
		m.used = false
		k.Problem("rings of %d and %d bytes in %d and %d pages", sends.bytes(), recvs.bytes(), m.SqPages, m.RqPages)
		return unix.EINVAL
	}
	q := k.newQP(c, u, m, sends, recvs)
	number := q.Number
	k.qps[q.Handle], k.dev.qps[q.Number], k.dev.newest = q, q, q
	r := uapi.IrdmaCreateQpResp{QpId: number, ActualSqSize: sends.quanta >> sends.shift,
		ActualRqSize: recvs.quanta >> recvs.shift, QpCaps: capSendImm | capRoCE | capPush}
	if !q.UD {
		r.QpCaps |= capWriteImm
	}
	call.Reply(c, uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &number)
	reply(k, c, &r)
	return nil
}

// A ringSize is the size of a ring of requests of up to 2^shift quanta.
type ringSize struct{ quanta, shift uint32 }

func (s ringSize) bytes() uint64 { return uint64(s.quanta) * quantumSize }

// sizes returns those of the rings of a QP. A program may have computed them.
func (k *kernel) sizes(size *uapi.IbUverbsQpCap) (sends, recvs ringSize) {
	sends.shift, recvs.shift = shift(size.MaxSendSge+1, size.MaxInlineData), shift(size.MaxRecvSge, 0)
	if k.raw {
		sends.quanta = depth(size.MaxSendWr, sends.shift, reservedSends)
		recvs.quanta = depth(size.MaxRecvWr, recvs.shift, reservedRecvs)
		return sends, recvs
	}
	sends.quanta, recvs.quanta = size.MaxSendWr<<sends.shift, size.MaxRecvWr<<recvs.shift
	return sends, recvs
}

func (k *kernel) destroyQP(q *qp) {
	q.Endpoint.SetState(transport.Reset)
	q.Endpoint.TakeBack()
	q.Disconnect()
	q.rings.used = false
	delete(k.dev.qps, q.Number)
	if k.dev.newest == q {
		k.dev.newest = nil
	}
}

// createCQ is irdma_create_cq.
func (k *kernel) createCQ(c ioctl.Call) error {
	u := call.In[uapi.IrdmaCreateCqReq](c, uapi.UVERBS_ATTR_UHW_IN)
	n := uint32(call.Num(c, uapi.UVERBS_ATTR_CREATE_CQ_CQE))
	k.dev.Record("create CQ of %d", n)
	if n > maxEntries {
		return unix.EINVAL
	}
	q := &cq{kernel: k, handle: call.Handle(c, uapi.UVERBS_ATTR_CREATE_CQ_HANDLE), number: k.dev.Next("CQ"),
		shadow: u.UserShadowArea}
	memory := k.take(u.UserCqBuf, uapi.IRDMA_MEMREG_TYPE_CQ)
	if memory == nil {
		return unix.EPROTO
	}
	if k.dev.fabric.cfg.Resize {
		if q.area = k.take(q.shadow, uapi.IRDMA_MEMREG_TYPE_CQ); q.area == nil {
			memory.used = false
			return unix.EPROTO
		}
	} else if q.shadow != memory.start+uint64(memory.CqPages)*pageSize {
		k.Problem("CQ %d: a shadow area at %#x, beside a ring at %#x", q.number, q.shadow, memory.start)
	}
	if !q.use(memory, max(n, 4)) {
		k.destroyCQ(q)
		return unix.EINVAL
	}
	k.cqs[q.handle], k.dev.cqs[q.number] = q, q
	call.Reply(c, uapi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, &q.depth)
	reply(k, c, &uapi.IrdmaCreateCqResp{CqId: q.number, CqSize: q.depth})
	return nil
}

// resizeCQ is irdma_resize_cq.
func (k *kernel) resizeCQ(c ioctl.Call) error {
	r := call.In[uapi.IbUverbsResizeCq](c, uapi.UVERBS_ATTR_CORE_IN)
	u := call.In[uapi.IrdmaResizeCqReq](c, uapi.UVERBS_ATTR_UHW_IN)
	k.dev.Record("resize CQ to %d", r.Cqe)
	if !k.dev.fabric.cfg.Resize {
		return unix.EOPNOTSUPP
	}
	if r.Cqe > maxEntries {
		return unix.EINVAL
	}
	memory := k.take(u.UserCqBuffer, uapi.IRDMA_MEMREG_TYPE_CQ)
	if memory == nil {
		return unix.ENOMEM
	}
	q := k.cqs[r.CqHandle]
	q.memory.used = false // the program may deregister it when it has polled it
	if !q.use(memory, max(r.Cqe, 4)) {
		return unix.EINVAL
	}
	q.resizes++
	call.Reply(c, uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsResizeCqResp{Cqe: q.depth - 1})
	return nil
}

func (k *kernel) destroyCQ(q *cq) {
	if q.memory != nil {
		q.memory.used = false
	}
	if q.area != nil {
		q.area.used = false
	}
	delete(k.dev.cqs, q.number)
}
