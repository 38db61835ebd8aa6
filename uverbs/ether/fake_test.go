package ether

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/leak"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/sim/errtest"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// fakeDriver is the id of a driver that has no provider.
const fakeDriver = uapi.RDMA_DRIVER_USNIC

// A rig is a context on a fake kernel and a fake device.
type rig struct {
	k *ioctltest.Kernel
	p *fakeProvider
	c *uverbs.Context
}

// newRig opens a context on a device that supports raw packets. At the end of the test it is closed,
// and checks that no object is left.
func newRig(t testing.TB) *rig {
	t.Helper()
	r := bareRig()
	r.open(t)
	r.k.CloseLater(t, r.c)
	return r
}

func bareRig() *rig {
	k := ioctltest.NewKernel(fakeDriver)
	k.NetRaw, k.Raw = true, true
	return &rig{k: k, p: new(fakeProvider)}
}

func (r *rig) open(t testing.TB) {
	t.Helper()
	r.c = good(newContext(r.k.Open(t, "uverbs0"),
		uverbs.Device{Name: "fake0", Ports: len(r.k.Ports), DriverID: fakeDriver}, r.p))(t)
}

// refuse makes the kernel refuse commands.
func (r *rig) refuse(commands map[string]unix.Errno) { r.k.Set(func() { r.k.Refuse = commands }) }

var check = errtest.Check

func good[T any](v T, err error) func(testing.TB) T { return errtest.Value(v, err) }

func second[T any](_ T, err error) error { return err }

// fakeProvider is a device that receives nothing.
type fakeProvider struct {
	provider.Provider
	mapError error // makes mapping of queues fail after the kernel has created them
	cqs      []*fakeCQ
	wqs      []*fakeWQ
	keys     [][]byte // of the QPs that distribute packets
	noWQs    bool
}

func (*fakeProvider) DriverID() uint32              { return fakeDriver }
func (*fakeProvider) ABI() (lowest, highest uint64) { return 1, 1 }

func (p *fakeProvider) Open(_ *ioctl.Device, get driver.Command) (provider.Context, error) {
	c := &plainContext{p: p}
	_, err := get(nil, nil)
	if p.noWQs {
		return c, err
	}
	return &fakeContext{plainContext: c}, err
}

// A plainContext has no work queues.
type plainContext struct {
	provider.Context
	p *fakeProvider
}

type fakeContext struct{ *plainContext }

func (*plainContext) Retire() error                                      { return nil }
func (*plainContext) AllocPD(alloc driver.Command) (driver.Reply, error) { return alloc(nil, nil) }

func (c *plainContext) CreateCQ(_ *driver.CQConfig, create driver.CQCommand) (provider.CQ, driver.Reply, error) {
	r, err := create(nil, nil)
	q := new(fakeCQ)
	c.p.cqs = append(c.p.cqs, q)
	return q, r, err
}

func (c *plainContext) CreateQP(_ *uverbs.QPConfig, env provider.QPEnv, create driver.Command) (
	provider.QP, driver.Reply, error) {
	r, err := create(nil, nil)
	if err != nil {
		return nil, r, err
	}
	if env.RSS != nil {
		c.p.keys = append(c.p.keys, env.RSS.Key)
		return nil, r, nil
	}
	return new(fakeQP), r, nil
}

// A fakeCQ records the queues that were purged.
type fakeCQ struct {
	provider.CQ
	purged []any
}

func (*fakeCQ) Retire(bool) error             { return nil }
func (*fakeCQ) Fail(error)                    {}
func (q *fakeCQ) Purge(gone any)              { q.purged = append(q.purged, gone) }
func (*fakeCQ) Poll([]uverbs.WC) (int, error) { return 0, nil }

// A fakeQP accepts requests and completes none.
type fakeQP struct{ provider.QP }

func (*fakeQP) Reset() error                                    { return nil }
func (*fakeQP) Retire(bool) error                               { return nil }
func (*fakeQP) PostSend(wrs []uverbs.SendWR) (n int, err error) { return len(wrs), nil }
func (*fakeQP) PostRecv(wrs []uverbs.RecvWR) (n int, err error) { return len(wrs), nil }

// A fakeWQ keeps posted requests.
type fakeWQ struct {
	cap    driver.Cap
	posted []uint64
	resets int
	ticket *leak.Ticket
}

func (c *fakeContext) CreateWQ(_ *driver.WQConfig, create driver.Command) (provider.WQ, driver.Reply, error) {
	r, err := create([]byte("the vendor's part"), nil)
	if err != nil {
		return nil, r, err
	}
	if c.p.mapError != nil {
		return nil, r, c.p.mapError
	}
	q := &fakeWQ{cap: r.Cap, ticket: leak.Track("ring of", "WQ")}
	c.p.wqs = append(c.p.wqs, q)
	return q, r, nil
}

func (q *fakeWQ) PostRecv(wrs []uverbs.RecvWR) (int, error) {
	for n := range wrs {
		switch {
		case len(wrs[n].SGL) > q.cap.MaxRecvSGE:
			return n, uverbs.ErrTooManySGEs
		case len(q.posted) == q.cap.MaxRecvWR:
			return n, uverbs.ErrQueueFull
		}
		q.posted = append(q.posted, wrs[n].WRID)
	}
	return len(wrs), nil
}

func (*fakeWQ) Modify(modify driver.Command) error {
	_, err := modify(make([]byte, 8), nil)
	return err
}

func (q *fakeWQ) Outstanding() int { return len(q.posted) }

func (q *fakeWQ) Reset() error {
	q.posted = nil
	q.resets++
	return nil
}

func (q *fakeWQ) Retire() error {
	q.ticket.Done()
	return nil
}
