package mlx5

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// qp implements driver.QP. Two goroutines may use the two halves at the same time, so the
// halves do not share a cache line.
type qp struct {
	sq sendQueue
	_  [64]byte
	rq recvQueue
	_  [64]byte

	ctx     *deviceContext
	backing // the rings, and the notes and WRIDs of their requests
	reg     *register
	target  target
	ece     options
	// outOfOrder is QPOptions.OutOfOrder.
	outOfOrder bool
	tis        uint32 // the number of a raw packet QP's TIS, or 0

	withheld uint32 // the receive counter while the device must not see it

	retired atomic.Bool
}

// A layout holds the offsets of the parts of a QP's memory. The receive ring comes first, as the
// device requires, then the send ring, then the parts that the device does not read.
type layout struct {
	send, notes, recvIDs, tails, size int
}

// tailSize separates the words that Poll writes from the cache lines that posts write.
const tailSize = 128

func (s *sizes) layout() (l layout) {
	l.send = s.rqCount << s.rqShift
	if s.split {
		l.send = align(l.send, unix.Getpagesize())
	}
	l.notes = l.send + s.sqBlocks*blockSize
	l.recvIDs = l.notes + s.sqBlocks*16
	l.tails = align(l.recvIDs+s.rqCount*8, tailSize)
	l.size = pages(l.tails + 2*tailSize)
	return l
}

// CreateQP implements driver.Context.
func (c *deviceContext) CreateQP(
	cfg *uverbs.QPConfig, env provider.QPEnv, create driver.Command,
) (provider.QP, driver.Reply, error) {
	var reply driver.Reply
	options, err := optionsOf(cfg)
	if err == nil && options.OutOfOrder {
		err = c.checkOutOfOrder(cfg)
	}
	if err != nil {
		return nil, reply, err
	}
	if cfg.Type == uverbs.XRCRecv {
		return c.createXRCTarget(options.OutOfOrder, create)
	}
	if cfg.Type == uverbs.DCT {
		return c.createDCT(cfg, env, options.OutOfOrder, create)
	}
	if env.RSS != nil {
		reply, err := c.createRSS(env.RSS, create)
		return nil, reply, err
	}
	s, err := c.limits.sizesOf(cfg, options.OutOfOrder)
	if err != nil {
		return nil, reply, err
	}
	maxTSO, err := c.tsoLimit(cfg)
	if err != nil {
		return nil, reply, err
	}
	if cfg.Type == uverbs.RawPacket && !c.indexed {
		return nil, reply, errUnindexed
	}
	t, q := newQP(cfg.Type)
	q.ctx, q.outOfOrder = c, options.OutOfOrder
	if err := q.prepare(&s, env); err != nil {
		return nil, reply, provider.Join(err, q.release(false))
	}
	if env.SRQ != nil {
		q.target.srq = unwatched(env.SRQ).(*srq)
	}
	reply, err = q.create(cfg, options.ScatterToCQE, &s, create)
	if err != nil {
		return nil, reply, provider.Join(err, q.release(false))
	}
	if q.target.frames != nil {
		q.target.frames.number = reply.Number
	}
	q.sq.qpn = uint64(reply.Number) << 8
	q.sq.configure(cfg, env, &s, c.memory, maxTSO)
	reply.Cap = driver.Cap{MaxSendWR: s.maxSend, MaxSendSGE: cfg.MaxSendSGE, MaxInline: s.maxInline}
	if s.rqCount > 0 {
		reply.Cap.MaxRecvWR, reply.Cap.MaxRecvSGE = s.rqRoom, q.rq.maxSGE
	}
	return c.watch(t, q, s.maxSend), reply, nil
}

// A dci, a ud and an xrcInitiator are QPs whose requests name their destination. Their encoders are in
// zencode_unsafe.go. OpSGE and OpInline write a request except its destination and leave it at sendQueue.cur, in the
// state requestUnaddressed. DCAddr, UDAddr or RemoteSRQ writes the destination and completes the request.
type (
	dci          struct{ addressed }
	ud           struct{ addressed }
	xrcInitiator struct{ addressed }
)

// addressed is what they have in common.
type addressed struct{ qp }

// Op implements driver.QP.
func (q *addressed) Op(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, imm uint32) {
	q.opRest(op, f, wrID, raddr, rkey, imm)
}

// newQP returns an empty QP of a type, and what QPs of all types have in common.
func newQP(t uverbs.QPType) (provider.QP, *qp) {
	switch t {
	case uverbs.DCI:
		q := new(dci)
		return q, &q.qp
	case uverbs.UD:
		q := new(ud)
		return q, &q.qp
	case uverbs.XRCSend:
		q := new(xrcInitiator)
		return q, &q.qp
	}
	q := new(qp)
	return q, q
}

// createXRCTarget creates a QP without queues. Unless it has options, there is nothing to do for it later.
func (c *deviceContext) createXRCTarget(
	outOfOrder bool, create driver.Command,
) (provider.QP, driver.Reply, error) {
	req := new(uapi.Mlx5IbCreateQp)
	if !c.indexed {
		req.Uidx = noNumber - 1 // none
	}
	reply, err := create(ioctl.BytesOf(req), ioctl.BytesOf(new(uapi.Mlx5IbCreateQpResp)))
	if err != nil || !outOfOrder {
		return nil, reply, err
	}
	t := &xrcTarget{qp{ctx: c, outOfOrder: true, target: target{key: noNumber}}}
	t.useNothing()
	return t, reply, nil
}

// useNothing gives the queues no memory, and so no room for requests.
func (q *qp) useNothing() {
	q.sq.use(nil, nil, new(uint32))
	q.rq.use(nil, nil, new(uint32), &sizes{}, new(uint32))
}

// prepare allocates the resources that the kernel's create command needs.
func (q *qp) prepare(s *sizes, env provider.QPEnv) (err error) {
	c, l := q.ctx, s.layout()
	if err = q.alloc(c, "create QP", env.Memory, l.size, c.set.qpPages); err != nil {
		return err
	}
	b := q.mem.Bytes()
	sendTail, recvTail := wordOf(b[l.tails:]), wordOf(b[l.tails+tailSize:])
	q.sq.use(b[l.send:l.notes], notesOf(b[l.notes:l.recvIDs]), sendTail)
	q.rq.use(b[:s.rqCount<<s.rqShift], uint64sOf(b[l.recvIDs:][:8*s.rqCount]), recvTail, s, &q.record.words[recvCounter])
	q.target = target{sends: q.sq.notes, sendMask: q.sq.mask, sendTail: sendTail,
		recvs: q.rq.ids, recvMask: q.rq.mask, recvTail: recvTail, sq: &q.sq, rq: &q.rq, key: noNumber}
	if s.split {
		q.target.frames = q.rq.arrivals()
		q.target.recvs, q.target.recvMask = nil, 0
		q.rq.counter = &q.withheld
	}
	if c.indexed && c.targets.add(&q.target) == noNumber {
		return errAllTargets
	}
	if td, ok := env.TD.(*threadDomain); ok {
		q.setRegister(td.reg)
	} else if c.dynamic {
		q.setRegister(c.uars.get())
	}
	return nil
}

func (q *qp) setRegister(r *register) {
	q.reg = r
	s := &q.sq
	s.db = mmio.Doorbell{Record: &q.record.words[sendCounter], Reg: r.reg, Toggle: r.toggle}
	if n := len(s.blocks); n > 0 {
		s.db.Ring, s.db.End = bytesOf(&s.blocks[0]), endOf(s.blocks)
	}
	s.burst = r.most
	s.burstSGE = 0
	if q.ctx.set.preferBF {
		s.burstSGE = r.most
	}
	if r.shared || r.domain || r.bell != nil {
		s.shared = r // ring sets the half, which other QPs change
	} else {
		s.db.Half = r.half
	}
}

func (q *qp) create(
	cfg *uverbs.QPConfig, scatter ScatterToCQE, s *sizes, create driver.Command,
) (driver.Reply, error) {
	c := q.ctx
	req := &uapi.Mlx5IbCreateQp{BufAddr: addressOf(q.mem.Bytes()), DbAddr: q.record.addr,
		SqWqeCount: uint32(s.sqBlocks), RqWqeCount: uint32(s.rqCount), RqWqeShift: uint32(s.rqShift), Uidx: q.target.key,
		Flags: c.scatterFlags(cfg.Type, scatter)}
	if cfg.Type == uverbs.DCI {
		setDCI(req, cfg.DCIStreams)
	}
	if s.split {
		req.SqBufAddr = req.BufAddr + uint64(s.layout().send)
	}
	if !c.indexed {
		req.Uidx = noNumber - 1 // none
	}
	if c.dynamic {
		req.Flags |= uapi.MLX5_QP_FLAG_UAR_PAGE_INDEX
		req.BfregIndex = q.reg.uar
	}
	if q.ece.supported = c.ece; c.ece {
		req.EceOptions = eceVersion
	}
	resp := new(uapi.Mlx5IbCreateQpResp)
	reply, err := create(ioctl.BytesOf(req), ioctl.BytesOf(resp))
	if err != nil {
		return reply, pinned(err, q.mem)
	}
	q.ece.enabled = resp.EceOptions
	if resp.CompMask&uapi.MLX5_IB_CREATE_QP_RESP_MASK_TISN != 0 {
		q.tis = resp.Tisn
	}
	if !c.dynamic {
		if int(resp.BfregIndex) >= len(c.uars.fixed) {
			return reply, badABI("register %d", resp.BfregIndex)
		}
		q.setRegister(c.uars.fixed[resp.BfregIndex])
	}
	if !c.indexed {
		c.targets.put(reply.Number, &q.target)
	}
	return reply, nil
}

// release frees what prepare allocated, once. The kernel must not use it any more. Memory that
// posts in progress use stays reachable through q.
func (q *qp) release(inUse bool) error {
	if q.retired.Swap(true) {
		return nil
	}
	c := q.ctx
	if q.target.key != noNumber && q.mem != nil {
		c.targets.remove(&q.target, c.indexed)
	}
	c.uars.put(q.reg, q.sq.db.Half)
	if q.sq.frames != nil {
		q.sq.frames.memory.Leave()
	}
	return q.free(c, inUse)
}

// Reset implements driver.QP.
func (q *qp) Reset() error {
	q.sq.reset()
	q.rq.reset()
	*q.record.words = [2]uint32{}
	return nil
}

// SendsOutstanding implements driver.QP.
func (q *qp) SendsOutstanding() int { return q.sq.outstanding() }

// RecvsOutstanding implements driver.QP.
func (q *qp) RecvsOutstanding() int { return q.rq.outstanding() }

// Retire implements driver.QP.
// The memory is not unmapped at once even if no call is in progress: a
// completion that names the QP may be in any CQ, if the device is wrong, and Poll then reads the QP's notes.
func (q *qp) Retire(bool) error { return q.release(true) }
