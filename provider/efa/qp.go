package efa

import (
	"math/bits"
	"sync/atomic"

	"golang.org/x/sys/unix"

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
	number  uint16
	retired atomic.Bool
}

// CreateQP implements driver.Context.
func (c *deviceContext) CreateQP(
	cfg *uverbs.QPConfig, env provider.QPEnv, create driver.Command,
) (provider.QP, driver.Reply, error) {
	if err := c.checkQP(cfg, env); err != nil {
		return nil, driver.Reply{}, err
	}
	sends, recvs := c.sizesOf(cfg)
	req := &uapi.EfaIbvCreateQp{SqRingSize: uint32(sends * sendSize), RqRingSize: uint32(recvs * recvSize),
		DriverQpType: uapi.EFA_QP_DRIVER_TYPE_SRD}
	cfg.MaxSendWR, cfg.MaxRecvWR = sends, recvs/cfg.MaxRecvSGE
	resp := new(uapi.EfaIbvCreateQpResp)
	reply, err := create(ioctl.BytesOf(req), ioctl.BytesOf(resp))
	if err != nil {
		return nil, reply, err
	}
	q := &qp{ctx: c, number: uint16(reply.Number)}
	if reply.Number>>16 != 0 {
		return nil, reply, provider.BadABI("create QP", "QPN %d", reply.Number)
	}
	q.configure(cfg, env)
	if err := provider.Join(q.mapSends(sends, resp), q.mapRecvs(recvs, resp)); err != nil {
		return nil, reply, provider.Join(err, q.release(false))
	}
	c.qps.put(q)
	return q, reply, nil
}

// checkQP checks the configuration against the limits of the device.
func (c *deviceContext) checkQP(cfg *uverbs.QPConfig, env provider.QPEnv) error {
	if err := provider.UnknownOptions(cfg.Options); err != nil {
		return err
	}
	refuse := func(detail string) error {
		return &uverbs.Error{Op: "create QP", Kind: uverbs.ErrNotSupported, Errno: unix.EOPNOTSUPP, Detail: detail}
	}
	switch a := &c.attr; {
	case cfg.Type != uverbs.SRD && cfg.Type != uverbs.UD:
		return refuse("an EFA has no QPs of type " + cfg.Type.String() + ": use SRD or UD")
	case env.SRQ != nil:
		return refuse("an EFA has no shared receive queues: leave SRQ out")
	case cfg.MaxSendSGE > int(a.MaxSqSge):
		return limit("MaxSendSGE", cfg.MaxSendSGE, int(a.MaxSqSge), "")
	case cfg.MaxRecvSGE > int(a.MaxRqSge):
		return limit("MaxRecvSGE", cfg.MaxRecvSGE, int(a.MaxRqSge), "")
	case cfg.MaxSendWR > c.maxSends():
		return limit("MaxSendWR", cfg.MaxSendWR, c.maxSends(), "")
	case cfg.MaxRecvWR > int(min(a.MaxRqWr, maxDescriptors))/cfg.MaxRecvSGE:
		return limit("MaxRecvWR", cfg.MaxRecvWR, int(min(a.MaxRqWr, maxDescriptors))/cfg.MaxRecvSGE, " with this MaxRecvSGE")
	case cfg.MaxInline > min(int(c.limits.InlineBufSize), maxInline):
		return limit("MaxInline", cfg.MaxInline, min(int(c.limits.InlineBufSize), maxInline), "")
	}
	return nil
}

// maxDescriptors is how many descriptors a queue of the protocol can have: their counts have 16 bits.
const maxDescriptors = 1 << 15

// maxSends returns how many requests a send queue can have.
func (c *deviceContext) maxSends() int {
	most := min(c.attr.MaxSqWr, c.limits.MaxLlqSize/sendSize, maxDescriptors)
	if most == 0 {
		return 0
	}
	return 1 << (bits.Len32(most) - 1)
}

// sizesOf returns the numbers of descriptors, which are powers of two.
func (c *deviceContext) sizesOf(cfg *uverbs.QPConfig) (sends, recvs int) {
	if n := max(cfg.MaxSendWR, int(c.limits.MinSqWr)); n > 0 { // the limit holds for QPs that only receive too
		sends = powerOfTwo(n)
	}
	if cfg.MaxRecvWR > 0 {
		recvs = powerOfTwo(cfg.MaxRecvWR * cfg.MaxRecvSGE)
	}
	return sends, recvs
}

// powerOfTwo returns the smallest power of two that is not less than n, which is positive.
func powerOfTwo(n int) int { return 1 << bits.Len(uint(n-1)) }

// configure sets what depends on the configuration.
func (q *qp) configure(cfg *uverbs.QPConfig, env provider.QPEnv) {
	s := &q.sq
	s.typ, s.ops, s.pd = cfg.Type, q.ctx.operationsOf(cfg.Type), env.PD
	s.maxSGE, s.maxInline = cfg.MaxSendSGE, cfg.MaxInline
	s.maxRDMA, s.maxRDMABytes = q.ctx.rdmaSGE, uint64(min(q.ctx.attr.MaxRdmaSize, uverbs.MaxMessage))
	if !cfg.SignalAll {
		s.required = uverbs.Signaled
	}
	s.simple()
	q.rq.maxSGE = cfg.MaxRecvSGE
	generation := q.ctx.qps.next(q.number)
	s.requests.init(cfg.MaxSendWR, generation)
	q.rq.requests.init(cfg.MaxRecvWR, generation)
}

// mapSends maps the send queue of n descriptors.
func (q *qp) mapSends(n int, resp *uapi.EfaIbvCreateQpResp) (err error) {
	const op = "map the send queue"
	s := &q.sq
	if n == 0 {
		return nil
	}
	if resp.LlqDescOffset%8 != 0 || int(resp.LlqDescOffset) >= unix.Getpagesize() {
		return provider.BadABI(op, "descriptors at %#x of a page", resp.LlqDescOffset)
	}
	size := pages(n*sendSize + int(resp.LlqDescOffset))
	if s.mem, err = provider.Map(q.ctx.dev, int64(resp.LlqDescMmapKey), size); err != nil {
		return provider.KernelError(op, "", err)
	}
	if s.db, err = q.ctx.mapRegister(op, resp.SqDbMmapKey, resp.SqDbOffset); err != nil {
		return err
	}
	s.ring, s.local = sends(s.mem, int(resp.LlqDescOffset), n), make([]sendWQE, n)
	s.mask, s.log, s.burst = uint32(n-1), uint32(bits.Len(uint(n-1))), uint32(n)
	if most := uint32(q.ctx.limits.MaxTxBatch) * 64 / sendSize; most > 0 {
		s.burst = min(s.burst, most)
	}
	if q.ctx.limits.MinSqWr > 0 { // the device does not accept a doorbell for the whole queue
		s.burst = max(min(s.burst, uint32(n-1)), 1)
	}
	return nil
}

// mapRecvs maps the receive queue of n descriptors.
func (q *qp) mapRecvs(n int, resp *uapi.EfaIbvCreateQpResp) (err error) {
	const op = "map the receive queue"
	r := &q.rq
	if n == 0 {
		return nil
	}
	if resp.RqMmapSize < uint64(n*recvSize) || resp.RqMmapSize > uint64(pages(n*recvSize)) {
		return provider.BadABI(op, "%d bytes for %d descriptors", resp.RqMmapSize, n)
	}
	if r.mem, err = provider.Map(q.ctx.dev, int64(resp.RqMmapKey), int(resp.RqMmapSize)); err != nil {
		return provider.KernelError(op, "", err)
	}
	if r.db, err = q.ctx.mapRegister(op, resp.RqDbMmapKey, resp.RqDbOffset); err != nil {
		return err
	}
	r.ring, r.mask = recvs(r.mem, n), uint32(n-1)
	return nil
}

// pages rounds n bytes up to pages.
func pages(n int) int { return (n + unix.Getpagesize() - 1) &^ (unix.Getpagesize() - 1) }

// release unmaps the queues.
func (q *qp) release(inUse bool) error {
	if q.retired.Swap(true) {
		return nil
	}
	var errs []error
	for _, m := range []*provider.Mapping{q.sq.mem, q.sq.db.mem, q.rq.mem, q.rq.db.mem} {
		errs = append(errs, m.Release(inUse))
	}
	return provider.Join(errs...)
}

// Retire implements driver.QP.
func (q *qp) Retire(inUse bool) error {
	q.ctx.qps.remove(q)
	return q.release(inUse)
}

// Reset implements driver.QP.
func (q *qp) Reset() error {
	generation := q.ctx.qps.next(q.number)
	q.sq.reset(generation)
	q.rq.reset(generation)
	return nil
}

// Entered implements driver.Stateful. As libefa, the QP sends in RTS and SQD only, and receives nothing new in ERR.
func (q *qp) Entered(state uint8) {
	q.sq.ended, q.rq.ended = state > uint8(uverbs.StateSQD), state == uint8(uverbs.StateErr)
}

// SendsOutstanding implements driver.QP.
func (q *qp) SendsOutstanding() int { return q.sq.outstanding() }

// RecvsOutstanding implements driver.QP.
func (q *qp) RecvsOutstanding() int { return q.rq.outstanding() }
