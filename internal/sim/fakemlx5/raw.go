package fakemlx5

import (
	"encoding/binary"
	"errors"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/ether"
)

// rawObjects has the device's parts of raw packet QPs, WQs, tables and flows, by handle.
type rawObjects struct {
	qps    map[uint32]*rawQP
	wqs    map[uint32]*wq
	tables map[uint32]*engine.RQT
	flows  flows
}

// A rawQP is a QP for raw packets.
type rawQP struct {
	sq    *engine.SQ
	tis   *engine.TIS
	rq    *engine.RQ
	tir   *engine.TIR
	rate  uint16 // its entry of the table of rates, or 0
	spans []span

	creation creation
}

// A wq is a work queue.
type wq struct {
	*engine.RQ
	spans []span
}

// transportDomain is that of all raw packet QPs. They receive each other's frames, as those of several contexts do.
const transportDomain = 1

// rawPackets returns the objects for raw packets. The first call makes the device receive the
// frames that the host sends.
func (k *Kernel) rawPackets() *rawObjects {
	r := &k.raw
	if r.qps == nil {
		*r = rawObjects{qps: map[uint32]*rawQP{}, wqs: map[uint32]*wq{}, tables: map[uint32]*engine.RQT{},
			flows: flows{places: map[uint32]uint32{}, groups: map[uint32]uint32{}}}
		k.adapter.HCA.SetLocalLoopback(true, true)
		k.openFlows()
	}
	return r
}

func (k *Kernel) createRawQP(c ioctl.Call) error {
	q := &rawQP{creation: creationOf(c)}
	k.rawPackets().qps[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_HANDLE)] = q
	var err error
	if t := call.Attr(c, uapi.UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE); t != nil {
		q.tir, err = k.adapter.HCA.CreateTIR(rssTIR(call.In[uapi.Mlx5IbCreateQpRss](c, uapi.UVERBS_ATTR_UHW_IN),
			k.raw.tables[uint32(t.Data)].Number))
		k.check(err)
		call.Reply(c, uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, new(uint32))
		return nil
	}
	u := call.In[uapi.Mlx5IbCreateQp](c, uapi.UVERBS_ATTR_UHW_IN)
	k.locate(&u.BufAddr, &u.SqBufAddr, &u.DbAddr)
	if q.spans, err = k.pin(record(u.DbAddr), pages(u.BufAddr, uint64(u.RqWqeCount)<<u.RqWqeShift),
		pages(u.SqBufAddr, uint64(u.SqWqeCount)*blockSize)); err != nil {
		delete(k.raw.qps, call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_HANDLE))
		return err
	}
	if u.RqWqeCount > 0 {
		k.check(k.createRawReceive(c, q, u))
	}
	if u.SqWqeCount > 0 {
		k.check(k.createRawSend(c, q, u))
	}
	resp := uapi.Mlx5IbCreateQpResp{BfregIndex: ^uint32(0)}
	if q.tis != nil {
		resp.CompMask, resp.Tisn = uapi.MLX5_IB_CREATE_QP_RESP_MASK_TISN, q.tis.Number
	}
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &resp)
	return nil
}

func (k *Kernel) createRawReceive(c ioctl.Call, q *rawQP, u *uapi.Mlx5IbCreateQp) (err error) {
	n := uint64(u.RqWqeCount) << u.RqWqeShift
	strip := uverbs.QPCreateFlags(call.Num(c, uapi.UVERBS_ATTR_CREATE_QP_FLAGS))&ether.QPCVLANStripping != 0
	q.rq, err = k.adapter.HCA.CreateRQ(engine.RQAttr{
		CQ:        k.CQs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE)].Number,
		UserIndex: u.Uidx, PD: k.PDs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE)],
		LogSize: log2(u.RqWqeCount), LogStride: uint8(u.RqWqeShift),
		Buffer: pagesOf(u.BufAddr, n), Record: u.DbAddr, StripVLAN: strip})
	if err != nil {
		return err
	}
	call.Reply(c, uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &q.rq.Number)
	q.tir, err = k.adapter.HCA.CreateTIR(engine.TIRAttr{RQ: q.rq.Number, TransportDomain: transportDomain,
		OwnUnicast: true, OwnMulticast: true})
	return err
}

func (k *Kernel) createRawSend(c ioctl.Call, q *rawQP, u *uapi.Mlx5IbCreateQp) (err error) {
	n := uint64(u.SqWqeCount) * blockSize
	if q.tis, err = k.adapter.HCA.CreateTIS(transportDomain); err != nil {
		return err
	}
	q.sq, err = k.adapter.HCA.CreateSQ(engine.SQAttr{
		CQ:        k.CQs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE)].Number,
		UserIndex: u.Uidx, PD: k.PDs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE)],
		TIS: q.tis.Number, UAR: u.BfregIndex, LogSize: log2(u.SqWqeCount),
		Buffer: pagesOf(u.SqBufAddr, n), Record: u.DbAddr})
	if err != nil {
		return err
	}
	call.Reply(c, uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &q.sq.Number)
	return nil
}

// maxTSO is the number of bytes that the adapter can send as segments.
const maxTSO = 1 << 16

// rssFields are the fields that the adapter can hash.
const rssFields = ether.RSSSrcIPv4 | ether.RSSDstIPv4 | ether.RSSSrcIPv6 | ether.RSSDstIPv6 |
	ether.RSSSrcPortTCP | ether.RSSDstPortTCP | ether.RSSSrcPortUDP | ether.RSSDstPortUDP

// rssTIR returns the attributes of the receive side of a QP with RSS.
func rssTIR(u *uapi.Mlx5IbCreateQpRss, table uint32) engine.TIRAttr {
	a := engine.TIRAttr{Indirect: true, RQT: table, Hash: engine.HashToeplitz, Key: [40]byte(u.RxHashKey[:40]),
		TransportDomain: transportDomain, OwnUnicast: true, OwnMulticast: true}
	f := ether.RSSFields(u.RxHashFieldsMask)
	a.IPv6 = f&(ether.RSSSrcIPv6|ether.RSSDstIPv6) != 0
	a.UDP = f&(ether.RSSSrcPortUDP|ether.RSSDstPortUDP) != 0
	for bits, field := range map[ether.RSSFields]engine.HashFields{
		ether.RSSSrcIPv4 | ether.RSSSrcIPv6:       engine.HashSrcIP,
		ether.RSSDstIPv4 | ether.RSSDstIPv6:       engine.HashDstIP,
		ether.RSSSrcPortTCP | ether.RSSSrcPortUDP: engine.HashSrcPort,
		ether.RSSDstPortTCP | ether.RSSDstPortUDP: engine.HashDstPort,
	} {
		if f&bits != 0 {
			a.Fields |= field
		}
	}
	return a
}

// modifyRawQP changes the state of the queues. The receive queue is ready from INIT on, the send
// queue in RTS.
func (k *Kernel) modifyRawQP(q *rawQP, state uverbs.QPState) {
	recv, send := engine.QueueReady, engine.QueueReset
	switch state {
	case uverbs.StateReset:
		recv = engine.QueueReset
	case uverbs.StateRTS:
		send = engine.QueueReady
	case uverbs.StateErr:
		recv, send = engine.QueueError, engine.QueueError
	}
	if q.rq != nil && q.rq.State() != recv {
		k.check(k.adapter.HCA.ModifyRQ(q.rq.Number, q.rq.State(), recv))
	}
	if q.sq != nil && q.sq.State() != send {
		k.check(k.adapter.HCA.ModifySQ(q.sq.Number, q.sq.State(), send))
	}
}

func (k *Kernel) destroyRawQP(q *rawQP) error {
	k.unpin(q.spans)
	var errs []error
	if q.rate != 0 {
		errs = append(errs, k.adapter.HCA.SetRate(q.rate, engine.Rate{}))
	}
	if q.tir != nil {
		errs = append(errs, k.adapter.HCA.DestroyTIR(q.tir.Number))
	}
	if q.rq != nil {
		errs = append(errs, k.adapter.HCA.DestroyRQ(q.rq.Number))
	}
	if q.sq != nil {
		errs = append(errs, k.adapter.HCA.DestroySQ(q.sq.Number))
	}
	if q.tis != nil {
		errs = append(errs, k.adapter.HCA.DestroyTIS(q.tis.Number))
	}
	return errors.Join(errs...)
}

func (k *Kernel) createWQ(c ioctl.Call) error {
	u := call.In[uapi.Mlx5IbCreateWq](c, uapi.UVERBS_ATTR_UHW_IN)
	n := uint64(u.RqWqeCount) << u.RqWqeShift
	k.locate(&u.BufAddr, &u.DbAddr)
	spans, err := k.pin(pages(u.BufAddr, n), record(u.DbAddr))
	if err != nil {
		return err
	}
	q, err := k.adapter.HCA.CreateRQ(engine.RQAttr{
		CQ:        k.CQs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_WQ_CQ_HANDLE)].Number,
		UserIndex: u.UserIndex, PD: k.PDs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_WQ_PD_HANDLE)],
		LogSize: log2(u.RqWqeCount), LogStride: uint8(u.RqWqeShift), Buffer: pagesOf(u.BufAddr, n), Record: u.DbAddr,
		StripVLAN: ether.WQFlags(call.Num(c, uapi.UVERBS_ATTR_CREATE_WQ_FLAGS))&ether.WQCVLANStripping != 0})
	if err != nil {
		k.unpin(spans)
		return refused
	}
	k.rawPackets().wqs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_WQ_HANDLE)] = &wq{q, spans}
	call.Reply(c, uapi.UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, &q.Number)
	return nil
}

func (k *Kernel) modifyWQ(r *uapi.IbUverbsExModifyWq) {
	q := k.raw.wqs[r.WqHandle]
	if r.AttrMask&uint32(ether.WQMaskState) == 0 {
		return
	}
	states := map[ether.WQState]engine.QueueState{
		ether.WQStateRdy: engine.QueueReady,
		ether.WQStateErr: engine.QueueError,
	}
	k.check(k.adapter.HCA.ModifyRQ(q.Number, q.State(), states[ether.WQState(r.WqState)]))
}

func (k *Kernel) destroyWQ(h uint32) error {
	q := k.raw.wqs[h]
	delete(k.raw.wqs, h)
	k.unpin(q.spans)
	return k.adapter.HCA.DestroyRQ(q.Number)
}

// createTable creates an indirection table.
func (k *Kernel) createTable(c ioctl.Call) {
	const headerSize = 8
	a := call.Attr(c, uapi.UVERBS_ATTR_CORE_IN)
	var rqs []uint32
	for b := c.Memory(a.Data, int(a.Len))[headerSize:]; len(b) > 0; b = b[4:] {
		rqs = append(rqs, k.raw.wqs[binary.LittleEndian.Uint32(b)].Number)
	}
	t, err := k.adapter.HCA.CreateRQT(rqs)
	k.check(err)
	k.raw.tables[call.Out[uapi.IbUverbsExCreateRwqIndTableResp](c, uapi.UVERBS_ATTR_CORE_OUT).IndTblHandle] = t
}

func (k *Kernel) destroyTable(h uint32) error {
	t := k.raw.tables[h]
	delete(k.raw.tables, h)
	return k.adapter.HCA.DestroyRQT(t.Number)
}
