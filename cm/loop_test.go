package cm

import (
	"sync"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/leak"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// loopDriver is the number of a driver without a provider.
const loopDriver = uapi.RDMA_DRIVER_USNIC

// A loop is a fake device whose QPs are connected with each other: a send completes immediately, and on the other side
// if a receive is posted. Memory is not accessed. The loop is also the provider, and inspects the commands to the fake
// kernel: they contain a QP's queues and its peer, and the change of state that flushes the receives.
type loop struct {
	k *ioctltest.Kernel

	mu   sync.Mutex // one for all queues, because every side adds completions
	made map[uint32][2]uint32
	cqs  map[uint32]*loopCQ
	ece  uint32             // the options of enhanced connection establishment that QPs have
	qps  map[uint32]*loopQP // by handle

	failing func() // called when a QP is flushed
}

func newLoop() *loop {
	return &loop{k: ioctltest.NewKernel(loopDriver), made: map[uint32][2]uint32{}, cqs: map[uint32]*loopCQ{},
		qps: map[uint32]*loopQP{}}
}

func (l *loop) DriverID() uint32              { return loopDriver }
func (l *loop) ABI() (lowest, highest uint64) { return 1, 1 }
func (l *loop) Retire() error                 { return nil }

func (l *loop) Open(_ *ioctl.Device, get driver.Command) (provider.Context, error) {
	_, err := get(nil, nil)
	return l, err
}

func (l *loop) Write(frame []byte) error { return l.k.Write(frame) }

// Ioctl implements ioctl.Kernel.
func (l *loop) Ioctl(c ioctl.Call) error {
	err := l.k.Ioctl(c)
	if err != nil {
		return err
	}
	attr := map[uint16]uint64{}
	for _, a := range c.Attrs() {
		attr[a.AttrId] = a.Data
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h := c.Header()
	switch {
	case h.ObjectId == uapi.UVERBS_OBJECT_QP && h.MethodId == uapi.UVERBS_METHOD_QP_CREATE:
		l.made[uint32(attr[uapi.UVERBS_ATTR_CREATE_QP_HANDLE])] = [2]uint32{
			uint32(attr[uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE]), uint32(attr[uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE])}
	case h.ObjectId == uapi.UVERBS_OBJECT_DEVICE && h.MethodId == uapi.UVERBS_METHOD_INVOKE_WRITE &&
		attr[uapi.UVERBS_ATTR_WRITE_CMD] == uapi.IB_USER_VERBS_CMD_MODIFY_QP:
		var m uapi.IbUverbsModifyQp
		copy(ioctl.BytesOf(&m), c.Memory(attr[uapi.UVERBS_ATTR_CORE_IN], ioctl.SizeOf[uapi.IbUverbsModifyQp]()))
		l.moved(&m)
	}
	return nil
}

// moved tracks the state of a QP. The caller holds l.mu.
func (l *loop) moved(m *uapi.IbUverbsModifyQp) {
	q, mask := l.qps[m.QpHandle], uverbs.QPMask(m.AttrMask)
	if q == nil {
		return
	}
	if mask&uverbs.MaskDestQPN != 0 {
		q.dest = m.DestQpNum
	}
	if mask&uverbs.MaskAV != 0 {
		q.av = m.Dest
	}
	if mask&uverbs.MaskState != 0 && uverbs.QPState(m.QpState) == uverbs.StateErr {
		q.failed = true
		if l.failing != nil {
			l.failing()
		}
		for _, wc := range q.unacked {
			wc.Status = uverbs.WCWRFlushErr
			q.sendCQ.push(wc)
		}
		q.unacked = nil
		for _, id := range q.receives {
			q.recvCQ.push(uverbs.WC{WRID: id, Status: uverbs.WCWRFlushErr, QPNum: q.num})
		}
		q.receives = q.receives[:0]
	}
}

func (l *loop) CreateCQ(_ *driver.CQConfig, create driver.CQCommand) (provider.CQ, driver.Reply, error) {
	r, err := create(nil, nil)
	if err != nil {
		return nil, r, err
	}
	q := &loopCQ{l: l, handle: r.Handle, ring: make([]uverbs.WC, 0, 4*r.Entries+16), ticket: leak.Track("ring of", "CQ")}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cqs[r.Handle] = q
	return q, r, nil
}

type loopCQ struct {
	l      *loop
	handle uint32
	ring   []uverbs.WC
	armed  bool
	over   bool
	failed error
	ticket *leak.Ticket
}

// push adds a completion. The caller holds l.mu.
func (q *loopCQ) push(wc uverbs.WC) {
	if q.over || len(q.ring) == cap(q.ring) {
		return
	}
	q.ring = append(q.ring, wc)
	if q.armed {
		q.armed = false
		_ = q.l.k.Complete(q.handle) // the CQ may be closed by now, and its event with it
	}
}

func (q *loopCQ) Poll(wcs []uverbs.WC) (int, error) {
	q.l.mu.Lock()
	defer q.l.mu.Unlock()
	n := copy(wcs, q.ring)
	q.ring = q.ring[:copy(q.ring, q.ring[n:])]
	if n == 0 && !q.over {
		return 0, q.failed
	}
	return n, nil
}

func (q *loopCQ) Fail(err error) {
	q.l.mu.Lock()
	defer q.l.mu.Unlock()
	q.failed = err
}

// Unpolled implements driver.Unpolled, for QPs that hold their sends until
// their completions are polled.
func (q *loopCQ) Unpolled(of any) (sends, recvs int) {
	p := of.(*loopQP)
	q.l.mu.Lock()
	defer q.l.mu.Unlock()
	return p.unpolled(), 0
}

func (q *loopCQ) Ready() bool {
	q.l.mu.Lock()
	defer q.l.mu.Unlock()
	return len(q.ring) > 0 || q.failed != nil
}

func (q *loopCQ) Arm(bool, uint32) error {
	q.l.mu.Lock()
	defer q.l.mu.Unlock()
	q.armed = true
	return nil
}

func (q *loopCQ) Resize(n int, resize driver.ResizeCommand) (driver.Reply, error) {
	return resize(n, nil, nil)
}

func (q *loopCQ) Retire(bool) error {
	q.l.mu.Lock()
	defer q.l.mu.Unlock()
	q.over, q.ring = true, nil
	if q.l.cqs[q.handle] == q {
		delete(q.l.cqs, q.handle)
	}
	q.ticket.Done()
	return nil
}

func (l *loop) AllocPD(alloc driver.Command) (driver.Reply, error) {
	return alloc(nil, nil)
}

func (l *loop) CreateAH(_ *uverbs.AHAttr, _ *driver.AHEnv, av *driver.AV, create driver.Command) (driver.Reply, error) {
	r, err := create(nil, nil)
	av[0] = uint64(r.Handle) + 1
	return r, err
}

func (l *loop) CreateSRQ(_ *driver.SRQConfig, create driver.Command) (provider.SRQ, driver.Reply, error) {
	r, err := create(nil, nil)
	if err != nil {
		return nil, r, err
	}
	return &loopSRQ{max: r.SRQ.MaxWR, ticket: leak.Track("ring of", "SRQ")}, r, nil
}

// loopSRQ counts receives.
type loopSRQ struct {
	max, received int
	ticket        *leak.Ticket
}

func (s *loopSRQ) PostRecv(wrs []uverbs.RecvWR) (int, error) {
	for n := range wrs {
		if s.received == s.max {
			return n, uverbs.ErrQueueFull
		}
		s.received++
	}
	return len(wrs), nil
}

func (s *loopSRQ) Modify(_ int, modify driver.Command) error {
	_, err := modify(nil, nil)
	return err
}

func (s *loopSRQ) Retire() error {
	s.ticket.Done()
	return nil
}
