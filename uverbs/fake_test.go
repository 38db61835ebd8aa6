package uverbs

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/leak"
	"github.com/goverbs/goverbs/internal/sim/errtest"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// fakeDriver is the id of a driver that has no provider.
const fakeDriver = uapi.RDMA_DRIVER_USNIC

// A rig is a context on a fake kernel and a fake device.
type rig struct {
	k *ioctltest.Kernel
	p *fakeProvider
	c *Context
}

// newRig opens a context. At the end of the test it is closed, and checks that no object is
// left.
func newRig(t testing.TB) *rig {
	t.Helper()
	r := bareRig()
	var err error
	if r.c, err = r.open(t); err != nil {
		t.Fatal(err)
	}
	r.k.CloseLater(t, r.c)
	return r
}

func bareRig() *rig {
	k := ioctltest.NewKernel(fakeDriver)
	k.Extended.MaxDmSize = 1 << 16
	k.DriverQP = func(uhwIn []byte) uint8 { return uhwIn[0] }
	return &rig{k: k, p: &fakeProvider{k: k}}
}

func (r *rig) open(t testing.TB) (*Context, error) {
	t.Helper()
	return newContext(r.k.Open(t, "uverbs0"), Device{Name: "fake0", Ports: len(r.k.Ports), DriverID: fakeDriver}, r.p)
}

var check = errtest.Check

func good[T any](v T, err error) func(testing.TB) T { return errtest.Value(v, err) }

// A bundle has the objects that most tests need: PD, memory, CQ, and a QP in RTS.
type bundle struct {
	pd  *PD
	mr  *MR
	cq  *CQ
	qp  *QP
	mw  *MW       // type 2
	mw1 *MW       // type 1
	ud  *meeting  // nil unless a test creates it
	xrc *crossing // the same
}

func (r *rig) bundle(t testing.TB, single bool) *bundle {
	t.Helper()
	b := new(bundle)
	b.pd = good(r.c.AllocPD())(t)
	b.mr = good(b.pd.Alloc(4096, LocalWrite))(t)
	b.cq = good(r.c.CreateCQ(CQConfig{Entries: 256, SingleGoroutine: single}))(t)
	b.qp = good(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: b.cq, MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 2, MaxRecvSGE: 2,
		MaxInline: 64, SingleGoroutine: single}))(t)
	check(t, b.qp.Connect(good(b.qp.Endpoint())(t)))
	return b
}

// fakeProvider is a device in memory. Signaled requests complete at once.
type fakeProvider struct {
	k        *ioctltest.Kernel
	mapError error // makes mapping of queues fail after the kernel has created them
	openFail error // makes the provider's part of opening the context fail

	mu  sync.Mutex
	cqs []*fakeCQ
	qps []*fakeQP

	srqs []*fakeSRQ

	domains int  // number of thread domains
	noNull  bool // the device has no null MR
	pins    int  // bytes that the kernel pins for a queue, or 0
}

func (p *fakeProvider) DriverID() uint32              { return fakeDriver }
func (p *fakeProvider) ABI() (lowest, highest uint64) { return 1, 1 }

func (p *fakeProvider) Open(dev *ioctl.Device, get driver.Command) (providerContext, error) {
	if _, err := get(nil, nil); err != nil {
		return nil, err
	}
	if p.openFail != nil {
		return nil, p.openFail
	}
	return &fakeContext{p, dev, leak.Track("registers of", "fake0")}, nil
}

func (p *fakeProvider) Import(dev *ioctl.Device, query driver.Command) (providerContext, error) {
	if _, err := query(nil, make([]byte, 8)); err != nil {
		return nil, err
	}
	return &fakeContext{p, dev, leak.Track("registers of", "fake0")}, nil
}

// ImportPD succeeds for every handle except 99.
func (c *fakeContext) ImportPD(handle uint32) error {
	if handle == 99 {
		return unix.ENOENT
	}
	return nil
}

type fakeContext struct {
	p      *fakeProvider
	dev    *ioctl.Device
	ticket *leak.Ticket
}

// pinned returns the error of a create command in the form that providers return.
func (p *fakeProvider) pinned(err error) error {
	if p.pins == 0 {
		return err
	}
	return driver.Pinned(err, p.pins)
}

func (c *fakeContext) Retire() error {
	c.ticket.Done()
	return nil
}

func (c *fakeContext) CreateCQ(_ *driver.CQConfig, create driver.CQCommand) (providerCQ, driver.Reply, error) {
	r, err := create(nil, nil)
	if err != nil {
		return nil, r, c.p.pinned(err)
	}
	if c.p.mapError != nil {
		return nil, r, c.p.mapError
	}
	q := &fakeCQ{k: c.p.k, p: c.p, handle: r.Handle, ring: make([]WC, r.Entries), ticket: leak.Track("ring of", "CQ")}
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.cqs = append(c.p.cqs, q)
	return q, r, nil
}

func (c *fakeContext) NullKey() (uint32, bool) { return 0x300, !c.p.noNull }

// fakeTD counts thread domains.
type fakeTD struct{ p *fakeProvider }

func (c *fakeContext) AllocTD() (driver.TD, error) {
	if c.p.mapError != nil {
		return nil, c.p.mapError
	}
	c.p.domains++
	return fakeTD{c.p}, nil
}

// fakeDM is device memory in the heap.
type fakeDM struct{ b []byte }

func (c *fakeContext) AllocDM(n, align int) (driver.DM, uint32, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_DM, uapi.UVERBS_METHOD_DM_ALLOC)
	cmd.NewHandle(uapi.UVERBS_ATTR_ALLOC_DM_HANDLE)
	cmd.Uint64(uapi.UVERBS_ATTR_ALLOC_DM_LENGTH, uint64(n))
	cmd.Uint32(uapi.UVERBS_ATTR_ALLOC_DM_ALIGNMENT, uint32(align))
	cmd.Out(uapi.MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, 8)
	cmd.Out(uapi.MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, 2)
	if err := c.dev.Do(cmd); err != nil {
		return nil, 0, err
	}
	return fakeDM{make([]byte, n)}, cmd.Made(uapi.UVERBS_ATTR_ALLOC_DM_HANDLE), nil
}

// ImportDM imports device memory with other contents.
func (c *fakeContext) ImportDM(handle uint32) (driver.DM, int, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_DM, uapi.MLX5_IB_METHOD_DM_QUERY)
	cmd.Handle(uapi.MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE, handle)
	cmd.Out(uapi.MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, 8)
	cmd.Out(uapi.MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX, 2)
	n := ioctl.OutOf[uint64](cmd, uapi.MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH)
	if err := c.dev.Do(cmd); err != nil {
		return nil, 0, err
	}
	return fakeDM{make([]byte, *n)}, int(*n), nil
}

func (d fakeDM) ReadAt(p []byte, off int)  { copy(p, d.b[off:]) }
func (d fakeDM) WriteAt(p []byte, off int) { copy(d.b[off:], p) }
func (d fakeDM) Retire() error             { return nil }

func (d fakeTD) Retire() error {
	d.p.domains--
	return nil
}

func (c *fakeContext) AllocPD(alloc driver.Command) (driver.Reply, error) { return alloc(nil, nil) }

func (c *fakeContext) CreateQP(cfg *QPConfig, env providerQPEnv, create driver.Command) (
	providerQP, driver.Reply, error) {
	var uhw []byte
	if cfg.Type.dc() {
		uhw = []byte{byte(cfg.Type), 15: 0}
	}
	r, err := create(uhw, nil)
	if err != nil {
		return nil, r, c.p.pinned(err)
	}
	if c.p.mapError != nil {
		return nil, r, c.p.mapError
	}
	if cfg.Type == XRCRecv {
		return nil, r, nil
	}
	sends := cfg.SendCQ.impl.(*fakeCQ)
	recvs := sends
	if cfg.RecvCQ != nil {
		recvs = cfg.RecvCQ.impl.(*fakeCQ)
	}
	q := &fakeQP{num: r.Number, cap: QPCap(r.Cap), sends: sends, recvs: recvs, typ: cfg.Type, env: env,
		ticket: leak.Track("ring of", "QP")}
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.qps = append(c.p.qps, q)
	if cfg.Type == DCT {
		return &fakeDCT{fakeQP: q}, r, nil
	}
	return q, r, nil
}

// A solo detects overlapping calls, which the rules of package driver forbid.
type solo struct{ inside atomic.Bool }

func (s *solo) enter() {
	if !s.inside.CompareAndSwap(false, true) {
		panic("two calls on one queue at a time")
	}
}

func (s *solo) leave() { s.inside.Store(false) }

type fakeCQ struct {
	solo
	k      *ioctltest.Kernel
	p      *fakeProvider
	handle uint32
	ticket *leak.Ticket

	mu          sync.Mutex // the device's side runs concurrently with the library's
	ring        []WC
	first, fill int
	armed       bool
	arms        int
	events      uint32 // the argument of the latest Arm
	purged      []providerQP
	unpolled    [2]int // sends and receives with completions that have not been polled
	purgedSRQs  []providerSRQ
	retired     bool
	inUse       bool // the argument of Retire
	failed      error
	beforeArm   func() // called just before the queue is armed
	armError    error  // of Arm
}

// push adds a completion as the device does.
func (q *fakeCQ) push(wc WC) {
	q.mu.Lock()
	if q.retired || q.fill == len(q.ring) { // closed, or overrun
		q.mu.Unlock()
		return
	}
	q.ring[(q.first+q.fill)%len(q.ring)] = wc
	q.fill++
	fire := q.armed
	q.armed = false
	q.mu.Unlock()
	if fire {
		_ = q.k.Complete(q.handle) // the CQ may have been closed meanwhile, and its event dropped
	}
}

func (q *fakeCQ) Poll(wcs []WC) (int, error) {
	q.enter()
	defer q.leave()
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(wcs), q.fill)
	for i := range wcs[:n] {
		wcs[i] = q.ring[q.first]
		q.first = (q.first + 1) % len(q.ring)
	}
	q.fill -= n
	if n == 0 {
		return 0, q.failed
	}
	return n, nil
}

func (q *fakeCQ) Ready() bool {
	q.enter()
	defer q.leave()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.fill > 0 || q.failed != nil
}

func (q *fakeCQ) Fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failed = err
}

func (q *fakeCQ) Arm(_ bool, events uint32) error {
	q.enter()
	defer q.leave()
	if q.beforeArm != nil {
		q.beforeArm()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.armError != nil {
		return q.armError
	}
	q.armed, q.events = true, events
	q.arms++
	return nil
}

func (q *fakeCQ) Purge(gone any) {
	q.enter()
	defer q.leave()
	switch gone := gone.(type) {
	case providerQP:
		q.purged = append(q.purged, gone)
	case providerSRQ:
		q.purgedSRQs = append(q.purgedSRQs, gone)
	}
}

func (q *fakeCQ) Unpolled(any) (sends, recvs int) {
	q.enter()
	defer q.leave()
	return q.unpolled[0], q.unpolled[1]
}

func (q *fakeCQ) armings() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.arms
}

func (q *fakeCQ) Resize(n int, resize driver.ResizeCommand) (driver.Reply, error) {
	q.enter()
	defer q.leave()
	r, err := resize(n, nil, nil)
	if err != nil {
		return r, q.p.pinned(err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fill > r.Entries {
		return r, errors.New("completions would be lost")
	}
	ring := make([]WC, r.Entries)
	for i := range q.fill {
		ring[i] = q.ring[(q.first+i)%len(q.ring)]
	}
	q.ring, q.first = ring, 0
	return r, nil
}

func (q *fakeCQ) Retire(inUse bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.retired, q.inUse, q.fill = true, inUse, 0
	q.ticket.Done()
	return nil
}
