package irdma

import (
	"math/bits"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// qp implements driver.QP. Two goroutines may use the two halves concurrently, so they do not share a cache line.
type qp struct {
	provider.Batch // of sq
	sq             sendQueue
	_              [64]byte
	rq             recvQueue

	ctx     *deviceContext
	handle  uint64 // by which completions name the QP
	kernel  uint32 // the kernel's handle
	number  uint32
	rings   *region
	retired atomic.Bool
}

// A ringSize is the size of a ring.
type ringSize struct {
	shift  uint32 // binary logarithm of the quanta of a request
	quanta int
}

func (s ringSize) requests() int { return s.quanta >> s.shift }
func (s ringSize) bytes() int    { return pages(s.quanta * quantumSize) }

// shadowBytes is how many bytes for the device follow the rings.
const shadowBytes = 64

// CreateQP implements driver.Context.
func (c *deviceContext) CreateQP(
	cfg *uverbs.QPConfig, env provider.QPEnv, create driver.Command,
) (provider.QP, driver.Reply, error) {
	const op = "create QP"
	var reply driver.Reply
	if err := c.checkQP(cfg, env); err != nil {
		return nil, reply, err
	}
	q := &qp{ctx: c}
	sends, recvs, err := c.sizesOf(cfg)
	if err != nil {
		return nil, reply, err
	}
	q.rings, err = c.newRegion(env.Memory, op, sends.bytes()+recvs.bytes()+shadowBytes, env.PD.Handle,
		uapi.IrdmaMemRegReq{RegType: uapi.IRDMA_MEMREG_TYPE_QP, SqPages: uint16(sends.bytes() / pageSize),
			RqPages: uint16(recvs.bytes() / pageSize)})
	if err != nil {
		return nil, reply, err
	}
	var ok bool
	if q.handle, ok = c.qps.Add(q); !ok {
		return nil, reply, provider.Join(provider.ErrHandles, q.rings.release(false))
	}
	q.configure(cfg, env, sends, recvs)
	if !c.raw {
		cfg.MaxSendWR, cfg.MaxRecvWR = sends.requests(), recvs.requests()
	}
	if reply, err = q.create(create, sends, recvs); err != nil {
		return q, reply, err // the rings are released after the kernel's QP
	}
	reply.Cap = driver.Cap{MaxSendWR: int(q.sq.room), MaxRecvWR: int(q.rq.room), MaxSendSGE: q.sq.maxSGE,
		MaxRecvSGE: q.rq.maxSGE, MaxInline: q.sq.maxInline}
	return q, reply, nil
}

// capRoCE is the capability of a QP of a device in RoCE mode. It is not in the kernel's header.
const capRoCE = 4

// create creates the kernel's QP.
func (q *qp) create(create driver.Command, sends, recvs ringSize) (driver.Reply, error) {
	const op = "create QP"
	req := &uapi.IrdmaCreateQpReq{UserWqeBufs: addressOf(q.rings.mem), UserComplCtx: q.handle}
	resp := new(uapi.IrdmaCreateQpResp)
	reply, err := create(ioctl.BytesOf(req), ioctl.BytesOf(resp))
	switch {
	case err != nil:
		return reply, err
	case resp.QpCaps&capRoCE == 0:
		return reply, errIWARP(op)
	case resp.QpId != reply.Number || resp.QpId > numberMask:
		return reply, provider.BadABI(op, "QPN %d and %d", reply.Number, resp.QpId)
	case resp.Lsmm != 0: // the requests that set up a connection of iWARP
		return reply, provider.BadABI(op, "a send queue whose first requests are the kernel's")
	case int(resp.ActualSqSize) != sends.requests() || int(resp.ActualRqSize) != recvs.requests():
		return reply, provider.BadABI(op, "queues of %d and %d requests instead of %d and %d", resp.ActualSqSize,
			resp.ActualRqSize, sends.requests(), recvs.requests())
	}
	q.kernel, q.number, q.sq.number = reply.Handle, reply.Number, reply.Number
	return reply, nil
}

// checkQP checks the configuration against the limits of the device.
func (c *deviceContext) checkQP(cfg *uverbs.QPConfig, env provider.QPEnv) error {
	const op = "create QP"
	if err := provider.UnknownOptions(cfg.Options); err != nil {
		return err
	}
	switch {
	case cfg.Type != uverbs.RC && cfg.Type != uverbs.UD:
		return provider.NotSupported(op, "the device has no QPs of type "+cfg.Type.String()+": use RC or UD")
	case env.SRQ != nil:
		return provider.NotSupported(op, "the device has no shared receive queues: leave SRQ out")
	}
	l := &c.limits
	for _, x := range []struct {
		field       string
		asked, most int
	}{{"MaxSendSGE", cfg.MaxSendSGE, int(l.MaxHwWqFrags)}, {"MaxRecvSGE", cfg.MaxRecvSGE, int(l.MaxHwWqFrags)},
		{"MaxInline", cfg.MaxInline, int(l.MaxHwInline)}} {
		if x.asked > x.most {
			return provider.Limit(op, x.field, x.asked, x.most)
		}
	}
	return nil
}

// sizesOf returns the sizes of the rings. A request may have immediate data, which occupies the place of an SGE.
func (c *deviceContext) sizesOf(cfg *uverbs.QPConfig) (sends, recvs ringSize, err error) {
	size := func(field string, n int, shift, reserved, most uint32) (s ringSize, err error) {
		if fit := (1<<(bits.Len32(most)-1) - int(reserved)) >> shift; n > fit {
			return s, provider.Limit("create QP", field, n, fit)
		}
		return ringSize{shift, c.depthOf(n, shift, reserved)}, nil
	}
	l := &c.limits
	sends, err = size("with this MaxSendSGE and MaxInline, MaxSendWR", cfg.MaxSendWR,
		shiftOf(cfg.MaxSendSGE+1, cfg.MaxInline), reservedQuanta, l.MaxHwWqQuanta)
	if err == nil {
		recvs, err = size("with this MaxRecvSGE, MaxRecvWR", cfg.MaxRecvWR, shiftOf(cfg.MaxRecvSGE, 0), 1, l.MaxHwRqQuanta)
	}
	return sends, recvs, err
}

// configure sets up the queues.
func (q *qp) configure(cfg *uverbs.QPConfig, env provider.QPEnv, sends, recvs ringSize) {
	s, r := &q.sq, &q.rq
	s.ring = quantaOf(q.rings.mem, 0, sends.quanta)
	s.shift, s.notes = uint32(bits.Len(uint(sends.quanta-1))), make([]note, sends.quanta)
	s.qp, s.bell, s.chunk, s.room = q, &q.ctx.bell, uint32(q.ctx.limits.MaxHwSqChunk), uint32(cfg.MaxSendWR)
	s.typ, s.ops, s.pd, s.owner = cfg.Type, operationsOf(cfg.Type), env.PD, env.Owner
	s.maxSGE, s.maxInline, s.signalAll = cfg.MaxSendSGE, cfg.MaxInline, cfg.SignalAll
	s.maxRead = min(cfg.MaxSendSGE, int(q.ctx.limits.MaxHwReadSges))
	s.cq, _ = env.SendCQ.(*cq)
	r.ring, r.stride = quantaOf(q.rings.mem, sends.bytes(), recvs.quanta), 1<<recvs.shift
	r.shift, r.wrIDs = uint32(bits.Len(uint(recvs.requests()-1))), make([]uint64, recvs.requests())
	r.address = addressOf(q.rings.mem) + uint64(sends.bytes())
	r.room, r.maxSGE = uint32(cfg.MaxRecvWR), cfg.MaxRecvSGE
	r.cq, _ = env.RecvCQ.(*cq)
	q.Batch.Use(s)
}

// flush has the device flush the queues of a QP in ERR. Nothing of them has been flushed since they were empty.
func (q *qp) flush(sends, recvs bool) error {
	req := uapi.IrdmaModifyQpReq{}
	if sends {
		req.SqFlush = 1
	}
	if recvs {
		req.RqFlush = 1
	}
	cmd := ioctl.Get()
	defer cmd.Put()
	ioctl.WriteEx[uapi.IbUverbsExModifyQpResp](cmd, uapi.IB_USER_VERBS_EX_CMD_MODIFY_QP, &uapi.IbUverbsExModifyQp{
		Base: uapi.IbUverbsModifyQp{QpHandle: q.kernel, AttrMask: uint32(uverbs.MaskState), QpState: uint8(uverbs.StateErr)}})
	cmd.UHW(ioctl.BytesOf(&req), 0)
	if err := q.ctx.dev.Do(cmd); err != nil {
		return provider.KernelError("flush requests", "", err)
	}
	return nil
}

// Entered implements driver.Stateful.
func (q *qp) Entered(state uint8) {
	if state == uint8(uverbs.StateErr) {
		q.end()
	}
}

// end notes that the queues are flushed.
func (q *qp) end() {
	q.sq.ended.Store(true)
	q.rq.ended.Store(true)
}

// Retire implements driver.QP.
func (q *qp) Retire(inUse bool) error {
	q.ctx.qps.Remove(q.handle)
	if q.retired.Swap(true) {
		return nil
	}
	return q.rings.release(inUse)
}

// Reset implements driver.QP.
func (q *qp) Reset() error {
	q.sq.reset()
	q.rq.reset()
	return nil
}

// SendsOutstanding implements driver.QP.
func (q *qp) SendsOutstanding() int { return int(q.sq.outstanding()) }

// RecvsOutstanding implements driver.QP.
func (q *qp) RecvsOutstanding() int { return int(q.rq.outstanding()) }
