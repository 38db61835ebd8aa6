package fakeefa

import (
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/fakedev"
	"github.com/goverbs/goverbs/internal/uapi"
)

// noAH is the number of an address for which the device has no AH.
const noAH = 0xffff

// ahOf returns the number of an AH of a device.
func (d *Device) ahOf(gid [16]byte, pd uint32) uint16 {
	for n, a := range d.AHs {
		if a.Path.DGID == gid && a.PD == pd {
			return uint16(n)
		}
	}
	return noAH
}

// createQP is efa_create_qp.
func (k *kernel) createQP(c ioctl.Call) error {
	u := call.In[uapi.EfaIbvCreateQp](c, uapi.UVERBS_ATTR_UHW_IN)
	kind := uint64(call.Num(c, uapi.UVERBS_ATTR_CREATE_QP_TYPE))
	size := call.In[uapi.IbUverbsQpCap](c, uapi.UVERBS_ATTR_CREATE_QP_CAP)
	srd := kind == uapi.IB_UVERBS_QPT_DRIVER
	k.dev.Record("create QP type %d, rings %d %d, type %d, flags %d, sl %d, %d sends of %d SGEs, %d receives of %d, "+
		"%d inline", kind, u.SqRingSize, u.RqRingSize, u.DriverQpType, u.Flags, u.Sl, size.MaxSendWr, size.MaxSendSge,
		size.MaxRecvWr, size.MaxRecvSge, size.MaxInlineData)
	switch {
	case !srd && kind != uapi.IB_UVERBS_QPT_UD || call.Attr(c, uapi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE) != nil:
		return unix.EOPNOTSUPP
	case u.CompMask != 0 || u.Flags != 0 || u.SqRingSize > llqSize || u.RqRingSize > maxWR*maxRecvSGE*2*recvSize,
		size.MaxSendWr > maxWR || size.MaxRecvWr > maxWR || size.MaxSendSge > maxSendSGE || size.MaxRecvSge > maxRecvSGE,
		size.MaxInlineData > maxInline, !powerOfTwo(u.SqRingSize) || !powerOfTwo(u.RqRingSize),
		u.SqRingSize%sendSize != 0 || u.RqRingSize%recvSize != 0, u.SqRingSize < uint32(k.dev.fabric.cfg.MinSQ)*sendSize:
		return unix.EINVAL
	case len(k.dev.qps) == maxQPs:
		return unix.ENOMEM
	}
	q := &qp{QP: k.NewQP(c, fakedev.Free(k.dev.qps, 1)), dev: k.dev, srd: srd,
		send: k.cqs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE)],
		recv: k.cqs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE)]}
	q.Attr.RNRRetry = never
	resp, err := k.mapQP(q, u)
	if err != nil {
		k.freeQP(q)
		return err
	}
	k.qps[q.Handle], k.dev.qps[q.Number] = q, q
	number := q.Number
	call.Reply(c, uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &number)
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, resp)
	return nil
}

// The offsets of registers in their pages.
const (
	sendBell = 0x40
	recvBell = 0x84
	cqBell   = 0x18
)

// mapQP allocates the rings and registers.
func (k *kernel) mapQP(q *qp, u *uapi.EfaIbvCreateQp) (r *uapi.EfaIbvCreateQpResp, err error) {
	cfg := &k.dev.fabric.cfg
	r = &uapi.EfaIbvCreateQpResp{RqDbOffset: recvBell, SqDbOffset: sendBell, LlqDescOffset: cfg.LLQOffset}
	q.sq.sub, q.rq.sub = int(q.Number)%cfg.SubCQs, int(q.Number+1)%cfg.SubCQs
	r.SendSubCqIdx, r.RecvSubCqIdx = uint16(q.sq.sub), uint16(q.rq.sub)
	if n := u.SqRingSize; n > 0 {
		if q.sq.ring, err = k.File.NewRing(uint64(n + cfg.LLQOffset)); err != nil {
			return nil, err
		}
		q.sq.use(q.sq.ring.Bytes[cfg.LLQOffset:][:n], sendSize)
		q.sq.bell = k.NewRegister(sendBell, q.sendBell)
		r.LlqDescMmapKey, r.SqDbMmapKey = q.sq.ring.Key, q.sq.bell
	}
	if n := u.RqRingSize; n > 0 {
		if q.rq.ring, err = k.File.NewRing(uint64(n)); err != nil {
			return nil, err
		}
		q.rq.use(q.rq.ring.Bytes[:n], recvSize)
		q.rq.bell = k.NewRegister(recvBell, q.recvBell)
		r.RqMmapKey, r.RqMmapSize, r.RqDbMmapKey = q.rq.ring.Key, uint64(len(q.rq.ring.Bytes)), q.rq.bell
	}
	return r, nil
}

func (k *kernel) freeQP(q *qp) {
	k.FreeRing(q.sq.ring)
	k.FreeRing(q.rq.ring)
	k.File.FreeBell(q.sq.bell)
	k.File.FreeBell(q.rq.bell)
}

func (k *kernel) destroyQP(q *qp) {
	q.enter(stateReset) // nothing refers to the queues any more
	k.freeQP(q)
	delete(k.dev.qps, q.Number)
}

// modifyQP changes the device's QP.
func (k *kernel) modifyQP(r *uapi.IbUverbsModifyQp, _, to uint8) {
	q := k.qps[r.QpHandle]
	q.Set(r)
	q.enter(to)
}

// createCQ is efa_create_cq.
func (k *kernel) createCQ(c ioctl.Call) error {
	cfg := &k.dev.fabric.cfg
	u := call.In[uapi.EfaIbvCreateCq](c, uapi.UVERBS_ATTR_UHW_IN)
	n := uint32(call.Num(c, uapi.UVERBS_ATTR_CREATE_CQ_CQE))
	k.dev.Record("create CQ of %d, entries of %d, %d rings, flags %d", n, u.CqEntrySize, u.NumSubCqs, u.Flags)
	const flags = uapi.EFA_CREATE_CQ_WITH_COMPLETION_CHANNEL | uapi.EFA_CREATE_CQ_WITH_SGID
	switch {
	case u.CompMask != 0 || u.Flags&^flags != 0 || int(u.NumSubCqs) != cfg.SubCQs || !powerOfTwo(n):
		return unix.EINVAL
	case u.CqEntrySize != entrySize && (u.CqEntrySize != entrySize/2 || u.Flags&uapi.EFA_CREATE_CQ_WITH_SGID != 0):
		return unix.EINVAL
	}
	q := &cq{kernel: k, handle: call.Handle(c, uapi.UVERBS_ATTR_CREATE_CQ_HANDLE), size: int(u.CqEntrySize),
		entries: int(n), sgid: u.Flags&uapi.EFA_CREATE_CQ_WITH_SGID != 0, produced: make([]uint32, cfg.SubCQs)}
	var err error
	if q.ring, err = k.File.NewRing(uint64(n) * uint64(u.CqEntrySize) * uint64(cfg.SubCQs)); err != nil {
		return err
	}
	r := &uapi.EfaIbvCreateCqResp{QMmapKey: q.ring.Key, QMmapSize: uint64(len(q.ring.Bytes)), CqIdx: uint16(q.handle)}
	notifies := cfg.Caps&uapi.EFA_QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS != 0
	if u.Flags&uapi.EFA_CREATE_CQ_WITH_COMPLETION_CHANNEL != 0 && notifies {
		q.bell = k.NewRegister(cqBell, q.ringBell)
		r.CompMask, r.DbOff, r.DbMmapKey = uapi.EFA_CREATE_CQ_RESP_DB_OFF, cqBell, q.bell
	}
	k.cqs[q.handle], k.dev.newest = q, q
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, r)
	return nil
}

func (k *kernel) destroyCQ(q *cq) {
	k.FreeRing(q.ring)
	k.File.FreeBell(q.bell)
}

func powerOfTwo(n uint32) bool { return bits.OnesCount32(n) <= 1 }
