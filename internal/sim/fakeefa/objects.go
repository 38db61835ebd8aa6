package fakeefa

import (
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/devfile"
	"github.com/goverbs/goverbs/internal/uapi"
)

// An ah is the address of another device.
type ah struct {
	number uint16
	pd     uint16
	gid    [16]byte
}

// An mr is a memory region.
type mr struct {
	devfile.Region
	pd  uint16
	key uint32
}

// remote is what an rkey has in addition to the lkey, so that a program that confuses them fails.
const remote = 1 << 30

func (k *Kernel) regMR(c ioctl.Call) error {
	const in, out = uapi.UVERBS_ATTR_CORE_IN, uapi.UVERBS_ATTR_CORE_OUT
	r, resp := call.In[uapi.IbUverbsRegMr](c, in), call.Out[uapi.IbUverbsRegMrResp](c, out)
	if err := k.admit(r); err != nil {
		k.Forget(resp.MrHandle)
		return err
	}
	k.pinned += r.Length
	k.dev.keys++
	m := &mr{devfile.Region{Memory: k.memory, Start: r.Start, IOVA: r.HcaVa, Length: r.Length, Access: r.AccessFlags},
		k.pds[r.PdHandle], k.dev.keys}
	k.mrs[resp.MrHandle], k.dev.mrs[m.key] = m, m
	resp.Lkey, resp.Rkey = m.key, m.key|remote
	call.Reply(c, out, resp)
	return nil
}

// admit checks the rights and the memory of a region.
func (k *Kernel) admit(r *uapi.IbUverbsRegMr) error {
	supported := uint32(uapi.IB_UVERBS_ACCESS_LOCAL_WRITE)
	if k.dev.fabric.cfg.Caps&uapi.EFA_QUERY_DEVICE_CAPS_RDMA_READ != 0 {
		supported |= uapi.IB_UVERBS_ACCESS_REMOTE_READ
	}
	if k.dev.fabric.cfg.Caps&uapi.EFA_QUERY_DEVICE_CAPS_RDMA_WRITE != 0 {
		supported |= uapi.IB_UVERBS_ACCESS_REMOTE_WRITE
	}
	const optional = uapi.IB_UVERBS_ACCESS_OPTIONAL_RANGE
	if r.AccessFlags&^(supported|optional) != 0 {
		return unix.EOPNOTSUPP
	}
	return k.memory.Admit(r.Start, r.Length, k.pinned, r.AccessFlags&uapi.IB_UVERBS_ACCESS_LOCAL_WRITE != 0)
}

func (k *Kernel) destroyMR(h uint32) {
	if m := k.mrs[h]; m != nil {
		k.pinned -= m.Length
		delete(k.mrs, h)
		delete(k.dev.mrs, m.key)
	}
}

func (k *Kernel) createAH(c ioctl.Call) error {
	r := call.In[uapi.IbUverbsCreateAh](c, uapi.UVERBS_ATTR_CORE_IN)
	a := &ah{pd: k.pds[r.PdHandle], gid: r.Attr.Grh.Dgid}
	for k.dev.ahs[a.number] != nil {
		a.number++
	}
	k.ahs[call.Out[uapi.IbUverbsCreateAhResp](c, uapi.UVERBS_ATTR_CORE_OUT).AhHandle], k.dev.ahs[a.number] = a, a
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &uapi.EfaIbvCreateAhResp{EfaAddressHandle: a.number})
	return nil
}

func (k *Kernel) destroyAH(h uint32) {
	if a := k.ahs[h]; a != nil {
		delete(k.ahs, h)
		delete(k.dev.ahs, a.number)
	}
}

// noAH is the number of an address for which the device has no AH.
const noAH = 0xffff

// ahOf returns the number of an AH of a device.
func (d *Device) ahOf(gid [16]byte, pd uint16) uint16 {
	for n, a := range d.ahs {
		if a.gid == gid && a.pd == pd {
			return n
		}
	}
	return noAH
}

// createQP is efa_create_qp.
func (k *Kernel) createQP(c ioctl.Call) error {
	u := call.In[uapi.EfaIbvCreateQp](c, uapi.UVERBS_ATTR_UHW_IN)
	kind := uint64(call.Num(c, uapi.UVERBS_ATTR_CREATE_QP_TYPE))
	size := call.In[uapi.IbUverbsQpCap](c, uapi.UVERBS_ATTR_CREATE_QP_CAP)
	srd := kind == uapi.IB_UVERBS_QPT_DRIVER
	k.dev.record("create QP type %d, rings %d %d, type %d, flags %d, sl %d, %d sends of %d SGEs, %d receives of %d, "+
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
	q := &qp{dev: k.dev, kernel: k, srd: srd, handle: call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_HANDLE),
		pd:   k.pds[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE)],
		send: k.cqs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE)],
		recv: k.cqs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE)]}
	q.created(c)
	q.number = 1
	for k.dev.qps[q.number] != nil {
		q.number++
	}
	resp, err := k.mapQP(q, u)
	if err != nil {
		k.freeQP(q)
		return err
	}
	k.qps[q.handle], k.dev.qps[q.number] = q, q
	number := uint32(q.number)
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
func (k *Kernel) mapQP(q *qp, u *uapi.EfaIbvCreateQp) (r *uapi.EfaIbvCreateQpResp, err error) {
	cfg := &k.dev.fabric.cfg
	r = &uapi.EfaIbvCreateQpResp{RqDbOffset: recvBell, SqDbOffset: sendBell, LlqDescOffset: cfg.LLQOffset}
	q.sq.sub, q.rq.sub = int(q.number)%cfg.SubCQs, int(q.number+1)%cfg.SubCQs
	r.SendSubCqIdx, r.RecvSubCqIdx = uint16(q.sq.sub), uint16(q.rq.sub)
	if n := u.SqRingSize; n > 0 {
		if q.sq.ring, err = k.file.NewRing(uint64(n + cfg.LLQOffset)); err != nil {
			return nil, err
		}
		q.sq.use(q.sq.ring.Bytes[cfg.LLQOffset:][:n], sendSize)
		q.sq.bell = k.newBell(sendBell, q.sendBell)
		r.LlqDescMmapKey, r.SqDbMmapKey = q.sq.ring.Key, q.sq.bell
	}
	if n := u.RqRingSize; n > 0 {
		if q.rq.ring, err = k.file.NewRing(uint64(n)); err != nil {
			return nil, err
		}
		q.rq.use(q.rq.ring.Bytes[:n], recvSize)
		q.rq.bell = k.newBell(recvBell, q.recvBell)
		r.RqMmapKey, r.RqMmapSize, r.RqDbMmapKey = q.rq.ring.Key, uint64(len(q.rq.ring.Bytes)), q.rq.bell
	}
	return r, nil
}

func (k *Kernel) freeQP(q *qp) {
	k.freeRing(q.sq.ring)
	k.freeRing(q.rq.ring)
	k.file.FreeBell(q.sq.bell)
	k.file.FreeBell(q.rq.bell)
}

func (k *Kernel) destroyQP(h uint32) {
	q := k.qps[h]
	if q == nil {
		return
	}
	q.enter(stateReset) // nothing refers to the queues any more
	k.freeQP(q)
	delete(k.qps, h)
	delete(k.dev.qps, q.number)
}

// modifyQP notes what the device is to do when the command has succeeded.
func (k *Kernel) modifyQP(r *uapi.IbUverbsModifyQp, _, to uint8) error {
	attr := *r
	k.modified = func() {
		q := k.qps[attr.QpHandle]
		if attr.AttrMask&maskQKey != 0 {
			q.qkey = attr.Qkey
		}
		if attr.AttrMask&maskRNRRetry != 0 {
			q.retries = attr.RnrRetry
		}
		q.enter(to)
	}
	return nil
}

// Bits of the masks of attributes.
const (
	maskQKey     = 1 << 6
	maskRNRRetry = 1 << 11
)

func (k *Kernel) queryQP(h uint32, r *uapi.IbUverbsQueryQpResp) {
	q := k.qps[h]
	r.Qkey, r.PortNum = q.qkey, 1
	r.MaxSendWr, r.MaxRecvWr, r.MaxSendSge, r.MaxRecvSge, r.MaxInlineData = q.cap.MaxSendWr, q.cap.MaxRecvWr,
		q.cap.MaxSendSge, q.cap.MaxRecvSge, q.cap.MaxInlineData
}

// createCQ is efa_create_cq.
func (k *Kernel) createCQ(c ioctl.Call) error {
	cfg := &k.dev.fabric.cfg
	u := call.In[uapi.EfaIbvCreateCq](c, uapi.UVERBS_ATTR_UHW_IN)
	n := uint32(call.Num(c, uapi.UVERBS_ATTR_CREATE_CQ_CQE))
	k.dev.record("create CQ of %d, entries of %d, %d rings, flags %d", n, u.CqEntrySize, u.NumSubCqs, u.Flags)
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
	if q.ring, err = k.file.NewRing(uint64(n) * uint64(u.CqEntrySize) * uint64(cfg.SubCQs)); err != nil {
		return err
	}
	r := &uapi.EfaIbvCreateCqResp{QMmapKey: q.ring.Key, QMmapSize: uint64(len(q.ring.Bytes)), CqIdx: uint16(q.handle)}
	notifies := cfg.Caps&uapi.EFA_QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS != 0
	if u.Flags&uapi.EFA_CREATE_CQ_WITH_COMPLETION_CHANNEL != 0 && notifies {
		q.bell = k.newBell(cqBell, q.ringBell)
		r.CompMask, r.DbOff, r.DbMmapKey = uapi.EFA_CREATE_CQ_RESP_DB_OFF, cqBell, q.bell
	}
	k.cqs[q.handle], k.dev.newest = q, q
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, r)
	return nil
}

func (k *Kernel) destroyCQ(h uint32) {
	if q := k.cqs[h]; q != nil {
		k.freeRing(q.ring)
		k.file.FreeBell(q.bell)
		delete(k.cqs, h)
	}
}

func powerOfTwo(n uint32) bool { return bits.OnesCount32(n) <= 1 }
