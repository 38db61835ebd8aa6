package mlx5

import (
	"errors"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// A watchedQP is the queues of a QP whose device is in memory and must know of posts that ring no
// doorbell.
type watchedQP struct {
	*qp
	posts   ioctl.Posts
	maxSend int
}

// A watchedDCI is a watchedQP for a DCI.
type watchedDCI struct {
	*dci
	posts   ioctl.Posts
	maxSend int
}

// A watchedSRQ is an SRQ of such a device.
type watchedSRQ struct {
	*srq
	posts ioctl.Posts
}

// watch returns q, or what replaces it if the device must know of posts.
func (c *deviceContext) watch(q *qp, maxSend int) provider.QP {
	if p, ok := c.uars.bell.(ioctl.Posts); ok {
		return &watchedQP{q, p, maxSend}
	}
	return q
}

// watchDCI is watch for a DCI.
func (c *deviceContext) watchDCI(q *dci, maxSend int) provider.QP {
	if p, ok := c.uars.bell.(ioctl.Posts); ok {
		return &watchedDCI{q, p, maxSend}
	}
	return q
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
		return w.qp
	case *watchedDCI:
		return w.dci
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
	case *dct:
		return &g.qp
	}
	return nil
}

// PostSend implements driver.QP.
func (q *watchedQP) PostSend(wrs []uverbs.SendWR) (int, error) {
	n, err := q.qp.PostSend(wrs)
	q.checkFull(err)
	return n, err
}

// Submit implements driver.QP.
func (q *watchedQP) Submit() error {
	err := q.qp.Submit()
	q.checkFull(err)
	return err
}

func (q *watchedQP) checkFull(err error) { q.reportFull(q.posts, q.maxSend, err) }

// PostSend implements driver.QP.
func (q *watchedDCI) PostSend(wrs []uverbs.SendWR) (int, error) {
	n, err := q.dci.PostSend(wrs)
	q.reportFull(q.posts, q.maxSend, err)
	return n, err
}

// Submit implements driver.QP.
func (q *watchedDCI) Submit() error {
	err := q.dci.Submit()
	q.reportFull(q.posts, q.maxSend, err)
	return err
}

// reportFull reports a full send queue after a post that returned err.
func (q *qp) reportFull(posts ioctl.Posts, maxSend int, err error) {
	if errors.Is(err, uverbs.ErrQueueFull) || q.SendsOutstanding() >= maxSend {
		posts.Full(uint32(q.sq.qpn >> 8))
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
