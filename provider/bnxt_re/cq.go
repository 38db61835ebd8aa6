package bnxt_re

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// cq implements driver.CQ.
type cq struct {
	ring     []cqe
	head     uint32 // the next entry
	phase    uint64 // that it has
	epoch    uint32 // changes when head goes back to 0
	taken    uint32 // entries polled, if the doorbell is deferred since the last one
	half     uint32 // of the entries of the ring
	deferred bool   // the doorbell is rung when half of the entries have been polled

	flushed flushList
	kept    []cqe // of a ring that the device has left

	ctx     *deviceContext
	memory  driver.Memory
	mem     *provider.Mapping
	lost    *provider.Mapping // a ring that the device may use, or nil
	toggle  toggle
	number  uint32
	wake    func()                // wakes a goroutine that waits for a completion, or nil
	failure atomic.Pointer[error] // what Poll returns if the queue is empty, or nil
	retired atomic.Bool
	halted  atomic.Bool // retired, or failed
}

// A flushList has the QPs of a CQ for whose requests the device has no completions any more. Poll completes them.
type flushList struct {
	mu    sync.Mutex
	sends []*qp
	recvs []*qp
	any   atomic.Bool
}

// CreateCQ implements driver.Context. A CQ with few entries has twice as many as were asked for, as in C's library, so
// that not each poll needs a doorbell.
func (c *deviceContext) CreateCQ(cfg *driver.CQConfig, create driver.CQCommand) (provider.CQ, driver.Reply, error) {
	const op = "create CQ"
	var reply driver.Reply
	n, most := cfg.Entries, int(c.limits.MaxCqd)
	if n > most {
		return nil, reply, provider.Limit(op, "Entries", n, most)
	}
	q := &cq{ctx: c, memory: cfg.Memory, phase: 1, wake: cfg.Wake}
	if q.deferred = 2*n < most; q.deferred {
		cfg.Entries = 2 * n
	}
	depth := c.depth(cfg.Entries+1, most+1)
	var err error
	if q.mem, err = c.ringMemory(cfg.Memory, op, depth*entrySize); err != nil {
		return nil, reply, err
	}
	q.ring, q.half = entriesOf(q.mem, depth), uint32(depth)/2
	resp := new(uapi.BnxtReCqResp)
	reply, err = create(ioctl.BytesOf(&uapi.BnxtReCqReq{CqVa: addressOf(q.mem)}), ioctl.BytesOf(resp))
	if err != nil {
		return nil, reply, provider.Join(driver.Pinned(err, len(q.mem.Bytes())), q.Retire(false))
	}
	if resp.Phase > 1 || resp.Cqid > numberMask {
		return nil, reply, provider.Join(provider.BadABI(op, "CQ %d with phase %d", resp.Cqid, resp.Phase), q.Retire(false))
	}
	q.number, q.phase = resp.Cqid, uint64(resp.Phase)
	if resp.CompMask&uapi.BNXT_RE_CQ_TOGGLE_PAGE_SUPPORT != 0 {
		if q.toggle, err = c.mapToggle(uapi.BNXT_RE_CQ_TOGGLE_MEM, q.number); err != nil {
			return nil, reply, provider.Join(err, q.Retire(false))
		}
	}
	reply.Entries = q.entries()
	return q, reply, nil
}

// Arm implements driver.CQ.
func (q *cq) Arm(solicitedOnly bool, _ uint32) error {
	if q.retired.Load() {
		return uverbs.ErrClosed
	}
	kind := uint64(armCQ)
	if solicitedOnly {
		kind = armSolicited
	}
	q.ctx.bell.ring(kind, q.number, q.head, q.epoch, q.toggle.value())
	runtime.KeepAlive(q)
	return nil
}

// wakeUp wakes a goroutine that waits for a completion.
func (q *cq) wakeUp() {
	if q != nil && q.wake != nil {
		q.wake()
	}
}

// Fail implements driver.CQ.
func (q *cq) Fail(err error) {
	q.failure.Store(&err)
	q.halted.Store(true)
}

// Retire implements driver.CQ.
func (q *cq) Retire(inUse bool) error {
	q.retired.Store(true)
	q.halted.Store(true)
	return provider.Join(q.mem.Release(inUse), q.lost.Release(inUse), q.toggle.page.Release(inUse))
}

// add adds a queue of a QP.
func (f *flushList) add(list *[]*qp, q *qp) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*list = append(*list, q)
	f.any.Store(true)
}

// remove removes a QP.
func (f *flushList) remove(q *qp) {
	f.mu.Lock()
	defer f.mu.Unlock()
	without := func(list []*qp) []*qp {
		kept := list[:0]
		for _, x := range list {
			if x != q {
				kept = append(kept, x)
			}
		}
		clear(list[len(kept):])
		return kept
	}
	f.sends, f.recvs = without(f.sends), without(f.recvs)
	f.any.Store(len(f.sends)+len(f.recvs) > 0)
}

// flushSends makes polls of the QP's CQ complete its sends: those before an index as successful.
func (q *qp) flushSends(index uint16) {
	if s := &q.sq; s.cq != nil && !s.flushing.Swap(true) {
		s.final = index
		s.cq.flushed.add(&s.cq.flushed.sends, q)
	}
}

// flushRecvs makes polls of the QP's CQ complete its receives.
func (q *qp) flushRecvs() {
	if r := &q.rq; r.cq != nil && q.srq == nil && !r.flushing.Swap(true) {
		r.cq.flushed.add(&r.cq.flushed.recvs, q)
	}
}

// poll completes requests of the QPs, sends first.
func (f *flushList) poll(wcs []uverbs.WC) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range f.sends {
		n += q.pollSends(wcs[n:])
	}
	for _, q := range f.recvs {
		for r := &q.rq; n < len(wcs) && r.flushing.Load() && r.outstanding() > 0; n++ {
			wcs[n] = uverbs.WC{WRID: r.release(), QPNum: q.number, Status: uverbs.WCWRFlushErr, Opcode: uverbs.WCRecv}
		}
	}
	return n
}

// pollSends completes sends of a QP in the list. Those that have completed precede the others.
func (q *qp) pollSends(wcs []uverbs.WC) (n int) {
	s := &q.sq
	if s.final != noIndex {
		s.good, _ = s.distance(s.last, s.final)
		s.final = noIndex
	}
	for n < len(wcs) && s.flushing.Load() && s.outstanding() > 0 {
		x, good := s.release(), s.good > 0
		switch {
		case !good:
			wcs[n] = q.unsent(&x, uverbs.WCWRFlushErr)
		case x.signaled:
			wcs[n] = q.sent(&x)
		}
		if good {
			s.good--
		}
		if !good || x.signaled {
			n++
		}
	}
	return n
}

// ready reports whether poll would complete a request.
func (f *flushList) ready() bool {
	if !f.any.Load() {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range f.sends {
		if q.sq.flushing.Load() && q.sq.outstanding() > 0 {
			return true
		}
	}
	for _, q := range f.recvs {
		if q.rq.flushing.Load() && q.rq.outstanding() > 0 {
			return true
		}
	}
	return false
}

// Purge implements driver.Purger.
func (q *cq) Purge(gone any) {
	p, ok := gone.(*qp)
	if !ok {
		return
	}
	for i := uint32(0); ; i++ {
		e, v, there := q.peek(i)
		if !there {
			break
		}
		handle := &e[0]
		if kind := v >> typeAt & typeMask; kind == typeRecvRC || kind == typeRecvUD {
			handle = &e[1]
			if *handle == p.handle && p.srq != nil {
				p.srq.drop(uint32(v>>tagAt) & tagMask)
			}
		}
		if *handle == p.handle {
			*handle = 0
		}
	}
	for _, x := range [...]*cq{p.sq.cq, p.rq.cq} {
		if x != nil {
			x.flushed.remove(p)
		}
	}
	runtime.KeepAlive(q)
}

// Unpolled implements driver.Unpolled.
func (q *cq) Unpolled(of any) (sends, recvs int) {
	p, ok := of.(*qp)
	if !ok {
		return 0, 0
	}
	if p.sq.cq == q {
		sends = q.unpolledSends(p)
	}
	if p.rq.cq == q {
		recvs = q.unpolledRecvs(p)
	}
	runtime.KeepAlive(q)
	return sends, recvs
}

// unpolledSends returns how many sends of a QP the unpolled completions will release.
func (q *cq) unpolledSends(p *qp) (n int) {
	s := &p.sq
	all, last := s.flushing.Load(), s.last
	for i := uint32(0); !all; i++ {
		e, v, there := q.peek(i)
		if !there {
			return n
		}
		if kind := v >> typeAt & typeMask; e[0] != p.handle || kind != typeSend && kind != typeTerm {
			continue
		} else if all = kind == typeTerm || uint8(v>>statusAt) != 0; !all {
			k, _ := s.distance(last, uint16(e[1]))
			n, last = n+int(k), (last+k)%s.size
		}
	}
	return int(s.outstanding())
}

// unpolledRecvs is like unpolledSends.
func (q *cq) unpolledRecvs(p *qp) (n int) {
	r := &p.rq
	all := r.flushing.Load()
	for i := uint32(0); !all; i++ {
		e, v, there := q.peek(i)
		if !there {
			return n
		}
		switch kind := v >> typeAt & typeMask; {
		case (kind == typeRecvRC || kind == typeRecvUD) && e[1] == p.handle:
			n++
			all = uint8(v>>statusAt) != 0
		case kind == typeTerm && e[0] == p.handle:
			all = true
		}
	}
	return int(r.outstanding())
}
