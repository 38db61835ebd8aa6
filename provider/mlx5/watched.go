package mlx5

import (
	"errors"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// A watchedQP is the queues of a QP whose device is in memory and must know of posts that ring no
// doorbell.
type watchedQP struct {
	*qp            // what QPs of all types have in common
	sender  sender // not embedded, since qp has its methods, too
	posts   ioctl.Posts
	maxSend int
}

// A sender has the methods that differ between the types of QPs.
type sender interface {
	PostSend(wrs []uverbs.SendWR) (int, error)
	Op(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, imm uint32)
	OpSGE(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, sge uverbs.SGE)
	OpInline(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, data []byte)
	UDAddr(ah *driver.AH, qpn, qkey uint32)
	RemoteSRQ(srqn uint32)
	DCAddr(ah *driver.AH, dctn uint32, key uint64, stream uint16)
}

// A watchedSRQ is an SRQ of such a device.
type watchedSRQ struct {
	*srq
	posts ioctl.Posts
}

// watch returns t, whose queues are q, or what replaces it if the device must know of posts.
func (c *deviceContext) watch(t provider.QP, q *qp, maxSend int) provider.QP {
	if p, ok := c.uars.bell.(ioctl.Posts); ok {
		return &watchedQP{q, t, p, maxSend}
	}
	return t
}

// watchSRQ is watch for an SRQ.
func (c *deviceContext) watchSRQ(s *srq) provider.SRQ {
	if p, ok := c.uars.bell.(ioctl.Posts); ok {
		return &watchedSRQ{s, p}
	}
	return s
}

// unwatched returns what watch or watchSRQ has replaced.
func unwatched(q any) any {
	switch w := q.(type) {
	case *watchedQP:
		return w.sender
	case *watchedSRQ:
		return w.srq
	}
	return q
}

// queuesOf returns what all QPs have in common, or nil if q is not a QP.
func queuesOf(q any) *qp {
	switch g := unwatched(q).(type) {
	case *qp:
		return g
	case *dci:
		return &g.qp
	case *ud:
		return &g.qp
	case *xrcInitiator:
		return &g.qp
	case *dct:
		return &g.qp
	}
	return nil
}

// PostSend implements driver.QP.
func (q *watchedQP) PostSend(wrs []uverbs.SendWR) (int, error) {
	n, err := q.sender.PostSend(wrs)
	q.reportFull(err)
	return n, err
}

// Op implements driver.QP, as do the methods below.
func (q *watchedQP) Op(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, imm uint32) {
	q.sender.Op(op, f, wrID, raddr, rkey, imm)
}

// OpSGE calls the same method.
func (q *watchedQP) OpSGE(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, sge uverbs.SGE) {
	q.sender.OpSGE(op, f, wrID, raddr, rkey, sge)
}

// OpInline calls the same method.
func (q *watchedQP) OpInline(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, data []byte) {
	q.sender.OpInline(op, f, wrID, raddr, rkey, data)
}

// UDAddr calls the same method.
func (q *watchedQP) UDAddr(ah *driver.AH, qpn, qkey uint32) { q.sender.UDAddr(ah, qpn, qkey) }

// RemoteSRQ calls the same method.
func (q *watchedQP) RemoteSRQ(srqn uint32) { q.sender.RemoteSRQ(srqn) }

// DCAddr calls the same method.
func (q *watchedQP) DCAddr(ah *driver.AH, dctn uint32, key uint64, stream uint16) {
	q.sender.DCAddr(ah, dctn, key, stream)
}

// Submit implements driver.QP.
func (q *watchedQP) Submit() error {
	err := q.qp.Submit()
	q.reportFull(err)
	return err
}

// reportFull reports a full send queue after a post that returned err.
func (q *watchedQP) reportFull(err error) {
	if errors.Is(err, uverbs.ErrQueueFull) || q.SendsOutstanding() >= q.maxSend {
		q.posts.Full(uint32(q.sq.qpn >> 8))
	}
}

// PostRecv implements driver.QP.
func (q *watchedQP) PostRecv(wrs []uverbs.RecvWR) (int, error) {
	n, err := q.qp.PostRecv(wrs)
	if n > 0 {
		q.posts.Received(q.record.addr)
	}
	return n, err
}

// PostRecv implements driver.SRQ.
func (s *watchedSRQ) PostRecv(wrs []uverbs.RecvWR) (int, error) {
	n, err := s.srq.PostRecv(wrs)
	if n > 0 {
		s.posts.Received(s.record.addr)
	}
	return n, err
}
