package mlx5

import (
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// wq implements driver.WQ: a receive queue without a QP.
type wq struct {
	rq recvQueue

	ctx     *deviceContext
	backing // the ring, and the WRIDs of its receives
	target  target

	retired atomic.Bool
}

// CreateWQ implements driver.WQs.
func (c *deviceContext) CreateWQ(cfg *driver.WQConfig, create driver.Command) (provider.WQ, driver.Reply, error) {
	var reply driver.Reply
	var s sizes
	if !c.indexed {
		return nil, reply, errUnindexed
	}
	if err := c.limits.recvSizes("create WQ", "Max", cfg.MaxWR, cfg.MaxSGE, &s); err != nil {
		return nil, reply, err
	}
	q := &wq{ctx: c}
	err := q.prepare(cfg.Memory, &s)
	if err == nil {
		reply, err = q.create(&s, create)
	}
	if err != nil {
		return nil, reply, provider.Join(err, q.Retire())
	}
	q.target.frames.number = reply.Number
	reply.Cap.MaxRecvWR, reply.Cap.MaxRecvSGE = s.rqCount, q.rq.maxSGE
	return q, reply, nil
}

func (q *wq) prepare(rings driver.Memory, s *sizes) (err error) {
	ring := s.rqCount << s.rqShift
	tail := align(ring+8*s.rqCount, tailSize)
	q.target.key = noNumber
	if err = q.alloc(q.ctx, "create WQ", rings, pages(tail+tailSize), q.ctx.set.wqPages); err != nil {
		return err
	}
	b := q.mem.Bytes()
	q.rq.use(b[:ring], uint64sOf(b[ring:][:8*s.rqCount]), wordOf(b[tail:]), s, &q.record.words[recvCounter])
	q.target.frames = q.rq.arrivals()
	if q.ctx.targets.add(&q.target) == noNumber {
		return errAllTargets
	}
	return nil
}

func (q *wq) create(s *sizes, create driver.Command) (driver.Reply, error) {
	req := &uapi.Mlx5IbCreateWq{BufAddr: addressOf(q.mem.Bytes()), DbAddr: q.record.addr, RqWqeCount: uint32(s.rqCount),
		RqWqeShift: uint32(s.rqShift), UserIndex: q.target.key}
	reply, err := create(ioctl.BytesOf(req), ioctl.BytesOf(new(uapi.Mlx5IbCreateWqResp)))
	return reply, pinned(err, q.mem)
}

// PostRecv implements driver.WQ.
func (q *wq) PostRecv(wrs []uverbs.RecvWR) (int, error) {
	n, err := q.rq.post(wrs)
	runtime.KeepAlive(q)
	return n, err
}

// Modify implements driver.WQ. The driver requires its part of the command, although all
// its fields are 0.
func (q *wq) Modify(modify driver.Command) error {
	_, err := modify(ioctl.BytesOf(new(uapi.Mlx5IbModifyWq)), nil)
	return err
}

// Outstanding implements driver.WQ.
func (q *wq) Outstanding() int { return q.rq.outstanding() }

// Reset implements driver.WQ.
func (q *wq) Reset() error {
	q.rq.reset()
	*q.record.words = [2]uint32{}
	return nil
}

// Retire implements driver.WQ.
func (q *wq) Retire() error {
	if q.retired.Swap(true) {
		return nil
	}
	if q.target.key != noNumber {
		q.ctx.targets.remove(&q.target, true)
	}
	return q.free(q.ctx, true)
}

// createRSS creates a QP that spreads packets over WQs. It has no queues.
func (c *deviceContext) createRSS(cfg *driver.RSSConfig, create driver.Command) (driver.Reply, error) {
	req := &uapi.Mlx5IbCreateQpRss{RxHashFieldsMask: cfg.Fields, RxHashFunction: cfg.Function,
		RxKeyLen: uint8(len(cfg.Key))}
	if room := len(req.RxHashKey); len(cfg.Key) > room {
		return driver.Reply{}, invalid("create QP", "Key has %d bytes, and the device accepts %d at most", len(cfg.Key), room)
	}
	copy(req.RxHashKey[:], cfg.Key)
	return create(ioctl.BytesOf(req), ioctl.BytesOf(new(uapi.Mlx5IbCreateQpResp)))
}
