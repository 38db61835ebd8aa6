package efa

import (
	"math"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// cq implements driver.CQ.
type cq struct {
	subs []sub
	size int    // completions of all rings
	next *sub   // the ring that is polled next, so that all have their turn
	cc   uint32 // completions polled so far
	sn   uint32 // events so far, as of Arm: a field of the register

	ctx     *deviceContext
	mem     *provider.Mapping
	db      register              // its mem is nil if the CQ has no events
	failure atomic.Pointer[error] // what Poll returns if the queue is empty, or nil
	retired atomic.Bool
	special atomic.Bool // polls end in pollAny: the CQ has several rings, is retired, or has failed
}

// A sub is a ring of completions.
type sub struct {
	ring []cqe
	mask uint32
	cur  uint32 // completions polled so far
	turn uint64 // the phase that the next one has
	next *sub
}

// CreateCQ implements driver.Context.
func (c *deviceContext) CreateCQ(cfg *driver.CQConfig, create driver.CQCommand) (provider.CQ, driver.Reply, error) {
	const op = "create CQ"
	if cfg.Entries > math.MaxInt32/2 {
		return nil, driver.Reply{}, unix.EINVAL
	}
	cfg.Entries = powerOfTwo(cfg.Entries)
	n := int(c.limits.SubCqsPerCq)
	req := &uapi.EfaIbvCreateCq{CqEntrySize: entrySize, NumSubCqs: uint16(n)}
	if cfg.Events && c.has(uapi.EFA_QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS) {
		req.Flags = uapi.EFA_CREATE_CQ_WITH_COMPLETION_CHANNEL
	}
	resp := new(uapi.EfaIbvCreateCqResp)
	reply, err := create(ioctl.BytesOf(req), ioctl.BytesOf(resp))
	if err != nil {
		return nil, reply, err
	}
	size := uint64(reply.Entries) * uint64(n) * entrySize
	if reply.Entries < 1 || reply.Entries != powerOfTwo(reply.Entries) || resp.QMmapSize < size ||
		resp.QMmapSize > uint64(pages(int(size))) {
		return nil, reply, provider.BadABI(op, "%d bytes for %d rings of %d entries", resp.QMmapSize, n, reply.Entries)
	}
	q := &cq{ctx: c}
	if q.mem, err = provider.MapToRead(c.dev, int64(resp.QMmapKey), int(resp.QMmapSize)); err != nil {
		return nil, reply, provider.KernelError("map the completion queue", "", err)
	}
	q.use(reply.Entries, n)
	if resp.CompMask&uapi.EFA_CREATE_CQ_RESP_DB_OFF != 0 {
		if q.db, err = c.mapRegister(op, resp.DbMmapKey, resp.DbOff); err != nil {
			return nil, reply, provider.Join(err, q.Retire(false))
		}
	}
	return q, reply, nil
}

// use divides the memory into n rings.
func (q *cq) use(size, n int) {
	q.subs, q.size = make([]sub, n), n*size
	for i := range q.subs {
		q.subs[i] = sub{ring: entries(q.mem, i*size*entrySize, size), mask: uint32(size - 1), turn: phase,
			next: &q.subs[(i+1)%n]}
	}
	q.next = &q.subs[0]
	q.special.Store(n > 1)
}

// Ready implements driver.CQ.
func (q *cq) Ready() bool {
	ready := q.failure.Load() != nil
	for i := range q.subs {
		_, there := q.subs[i].peek(0)
		ready = ready || there
	}
	ready = ready && !q.retired.Load()
	runtime.KeepAlive(q)
	return ready
}

// The fields of the register: the completions polled so far, the number of events, and whether to arm.
const (
	serialAt = 29
	serials  = 3
	arm      = 1 << 31
)

// Arm implements driver.CQ. The device has events for all completions only.
func (q *cq) Arm(solicitedOnly bool, events uint32) error {
	switch {
	case q.retired.Load():
		return uverbs.ErrClosed
	case solicitedOnly:
		return q.unsupported("arm CQ", "an EFA has no events for solicited completions only: arm it for all")
	case q.db.mem == nil:
		return q.unsupported("arm CQ", "this EFA has no completion events: poll the CQ")
	}
	q.sn = events & serials << serialAt
	q.ring(arm)
	runtime.KeepAlive(q)
	return nil
}

// ring stores to the register. Stores that do not arm have the number of events too.
func (q *cq) ring(flags uint32) { q.db.store(q.serial(flags)) }

func (q *cq) serial(flags uint32) uint32 { return q.cc&0xffff | q.sn | flags }

func (q *cq) unsupported(op, detail string) error {
	return &uverbs.Error{Op: op, Kind: uverbs.ErrNotSupported, Errno: unix.EOPNOTSUPP, Detail: detail}
}

// Resize implements driver.CQ.
func (q *cq) Resize(int, driver.ResizeCommand) (driver.Reply, error) {
	return driver.Reply{}, q.unsupported("resize CQ", "CQs of an EFA cannot be resized: create another one")
}

// Fail implements driver.CQ.
func (q *cq) Fail(err error) {
	q.failure.Store(&err)
	q.special.Store(true)
}

// Retire implements driver.CQ.
func (q *cq) Retire(inUse bool) error {
	q.retired.Store(true)
	q.special.Store(true)
	return provider.Join(q.mem.Release(inUse), q.db.mem.Release(inUse))
}

// Purge implements driver.Purger. Poll drops the completions of the QP until it has another generation.
func (q *cq) Purge(gone any) {
	if p, ok := gone.(*qp); ok {
		p.sq.base.Store(noBase)
		p.rq.base.Store(noBase)
	}
}

// Unpolled implements driver.Unpolled.
func (q *cq) Unpolled(of any) (sends, recvs int) {
	p, ok := of.(*qp)
	if !ok {
		return 0, 0
	}
	for i := range q.subs {
		s := &q.subs[i]
		n := uint32(0)
		for v, there := s.peek(n); there; v, there = s.peek(n) {
			switch {
			case uint16(v>>numberAt) != p.number:
			case v&queueMask == ofSend && p.sq.current(uint16(v)):
				sends++
			case v&(queueMask|unsolicited) == ofReceive && p.rq.current(uint16(v)):
				recvs++
			}
			n++
		}
	}
	return sends, recvs
}
