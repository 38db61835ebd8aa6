package bnxt_re

import (
	"math/bits"
	"sort"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// qp implements driver.QP. Two goroutines may use the two halves concurrently, so they do not share a
// cache line.
type qp struct {
	sq sendQueue
	_  [64]byte
	rq recvQueue

	ctx     *deviceContext
	handle  uint64 // by which completions name the QP
	number  uint32
	srq     *srq
	mem     [2]*provider.Mapping // of the send and receive queue
	retired atomic.Bool
}

// CreateQP implements driver.Context.
func (c *deviceContext) CreateQP(
	cfg *uverbs.QPConfig, env provider.QPEnv, create driver.Command,
) (provider.QP, driver.Reply, error) {
	var reply driver.Reply
	if err := c.checkQP(cfg); err != nil {
		return nil, reply, err
	}
	q := &qp{ctx: c}
	q.srq, _ = env.SRQ.(*srq)
	err := q.allocate(cfg, env.Memory)
	if err == nil {
		var ok bool
		if q.handle, ok = c.qps.Add(q); !ok {
			err = provider.ErrHandles
		}
	}
	if err != nil {
		return nil, reply, provider.Join(err, q.release(false))
	}
	q.configure(cfg, env)
	if reply, err = q.create(create); err != nil {
		return nil, reply, provider.Join(err, q.Retire(false))
	}
	q.number, q.sq.number, q.rq.qpn = reply.Number, reply.Number, reply.Number
	reply.Cap = driver.Cap{MaxSendWR: int(q.sq.room), MaxSendSGE: q.sq.maxSGE, MaxInline: q.sq.maxInline}
	if q.srq == nil {
		reply.Cap.MaxRecvWR, reply.Cap.MaxRecvSGE = int(q.rq.room), q.rq.maxSGE
	}
	return q, reply, nil
}

// create creates the kernel's QP.
func (q *qp) create(create driver.Command) (driver.Reply, error) {
	req := &uapi.BnxtReQpReq{Qpsva: addressOf(q.mem[0]), QpHandle: q.handle}
	total := len(q.mem[0].Bytes())
	if q.mem[1] != nil {
		req.Qprva = addressOf(q.mem[1])
		total += len(q.mem[1].Bytes())
	}
	if !q.sq.fixed {
		req.SqSlots = uint32(len(q.sq.ring))
	}
	resp := new(uapi.BnxtReQpResp)
	reply, err := create(ioctl.BytesOf(req), ioctl.BytesOf(resp))
	if err != nil {
		return reply, driver.Pinned(err, total)
	}
	if resp.Qpid != reply.Number || resp.Qpid > numberMask {
		return reply, provider.BadABI("create QP", "QPN %d and %d", reply.Number, resp.Qpid)
	}
	return reply, nil
}

// checkQP checks the configuration against the limits of the device.
func (c *deviceContext) checkQP(cfg *uverbs.QPConfig) error {
	const op = "create QP"
	if err := provider.UnknownOptions(cfg.Options); err != nil {
		return err
	}
	if cfg.Type != uverbs.RC && cfg.Type != uverbs.UD {
		return provider.NotSupported(op, "the device has no QPs of type "+cfg.Type.String()+": use RC or UD")
	}
	for _, x := range []struct {
		field       string
		asked, most int
	}{{"MaxSendWR", cfg.MaxSendWR, int(c.attr.MaxQpWr)}, {"MaxRecvWR", cfg.MaxRecvWR, int(c.attr.MaxQpWr)},
		{"MaxSendSGE", cfg.MaxSendSGE, c.maxSGE()}, {"MaxRecvSGE", cfg.MaxRecvSGE, c.maxSGE()},
		{"MaxInline", cfg.MaxInline, maxInline}} {
		if x.asked > x.most {
			return provider.Limit(op, x.field, x.asked, x.most)
		}
	}
	return nil
}

// maxSGE returns how many SGEs a request can have.
func (c *deviceContext) maxSGE() int {
	if !c.variable {
		return min(int(c.attr.MaxSge), fixedSGEs)
	}
	return min(int(c.attr.MaxSge), 255-headSlots) // a request says how many slots it has, in 8 bits
}

// depth returns the size of a queue for n entries, as the kernel computes it.
func (c *deviceContext) depth(n, most int) int {
	if c.pow2 {
		n = powerOfTwo(n)
	}
	return min(n, most)
}

// powerOfTwo returns the smallest power of two that is not less than n, which is positive.
func powerOfTwo(n int) int { return 1 << bits.Len(uint(n-1)) }

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// slotsOfSQ returns the slots of a send queue of n requests.
func (c *deviceContext) slotsOfSQ(cfg *uverbs.QPConfig, n int) int {
	if !c.variable {
		return n * fixedSlots
	}
	const head = headSlots * slotSize
	bytes := head + cfg.MaxSendSGE*slotSize
	if cfg.MaxInline > 0 {
		bytes = roundUp(max(bytes, head+roundUp(cfg.MaxInline, slotSize)), head)
	}
	return roundUp(n*bytes/slotSize, 256)
}

// maxRequests bounds the numbers of requests, of which completions have 16 bits.
const maxRequests = 1 << 16

// sizeOfSQ returns the modulus of the numbers of requests, and the slots, of a send queue with room for n.
func (c *deviceContext) sizeOfSQ(cfg *uverbs.QPConfig, n int) (size, slots int) {
	size = c.depth(n+1+reserved, int(c.attr.MaxQpWr)+1+reserved)
	slots = c.slotsOfSQ(cfg, size)
	if c.variable {
		size = slots
	}
	return size, slots
}

// tooManySends returns the error of a send queue whose size exceeds maxRequests.
func (c *deviceContext) tooManySends(op string, cfg *uverbs.QPConfig) error {
	most := sort.Search(cfg.MaxSendWR, func(n int) bool {
		size, _ := c.sizeOfSQ(cfg, n+1)
		return size > maxRequests
	})
	field := "MaxSendWR"
	if c.variable {
		field = "with this MaxSendSGE and MaxInline, MaxSendWR"
	}
	return provider.Limit(op, field, cfg.MaxSendWR, most)
}

// allocate allocates the memory of the queues. The kernel pins as much for the table of PSNs as a table by request
// needs, even if it is by message.
func (q *qp) allocate(cfg *uverbs.QPConfig, memory driver.Memory) (err error) {
	const op = "create QP"
	c, s, r := q.ctx, &q.sq, &q.rq
	size, slots := c.sizeOfSQ(cfg, cfg.MaxSendWR)
	s.fixed, s.room, r.room = !c.variable, uint32(cfg.MaxSendWR), uint32(cfg.MaxRecvWR)
	if size > maxRequests {
		return c.tooManySends(op, cfg)
	}
	entries := size
	if c.msn {
		entries = powerOfTwo(size)
		if s.messages = uint32(entries); c.variable {
			s.messages /= 2
		}
	}
	const entrySize = 16
	if q.mem[0], err = c.ringMemory(memory, op, slots*slotSize+entries*entrySize); err != nil {
		return err
	}
	s.size, s.ring = uint32(size), slotsOf(q.mem[0], slots)
	s.table = wordsOf(q.mem[0], slots*slotSize, 2*entries)
	s.notes = make([]note, powerOfTwo(max(int(s.room), 1)))
	if q.srq != nil {
		return nil
	}
	r.size, r.stride = uint32(c.depth(cfg.MaxRecvWR+1, int(c.attr.MaxQpWr)+1)), fixedSlots
	if c.variable {
		r.stride = headSlots + uint32(max(cfg.MaxRecvSGE, 1))
	}
	n := int(r.size * r.stride)
	if q.mem[1], err = c.ringMemory(memory, op, n*slotSize); err != nil {
		return err
	}
	r.ring, r.wrIDs = slotsOf(q.mem[1], n), make([]uint64, r.size)
	return nil
}

// configure sets what depends on the configuration.
func (q *qp) configure(cfg *uverbs.QPConfig, env provider.QPEnv) {
	s, r := &q.sq, &q.rq
	s.typ, s.ops, s.pd, s.owner = cfg.Type, q.ctx.operationsOf(cfg.Type), env.PD, env.Owner
	s.maxSGE, s.maxInline, s.signalAll = cfg.MaxSendSGE, cfg.MaxInline, cfg.SignalAll
	s.setSimple()
	s.cq, _ = env.SendCQ.(*cq)
	s.bell, r.bell = &q.ctx.bell, &q.ctx.bell
	s.mtu = 256 // until Modify sets that of the path
	r.cq, _ = env.RecvCQ.(*cq)
	r.maxSGE = cfg.MaxRecvSGE
}

// SetMTU implements driver.Numbered.
func (q *qp) SetMTU(n int) { q.sq.mtu = uint32(max(n, 256)) }

// SetSendPSN implements driver.Numbered.
func (q *qp) SetSendPSN(psn uint32) { q.sq.at.psn, q.sq.next.psn = psn, psn }

// release unmaps the queues.
func (q *qp) release(inUse bool) error {
	if q.retired.Swap(true) {
		return nil
	}
	return provider.Join(q.mem[0].Release(inUse), q.mem[1].Release(inUse))
}

// Retire implements driver.QP.
func (q *qp) Retire(inUse bool) error {
	q.ctx.qps.Remove(q.handle)
	return q.release(inUse)
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
