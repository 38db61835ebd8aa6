package perftest

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// pairDriver is the number of a driver without a provider.
const pairDriver = uapi.RDMA_DRIVER_USNIC

// A pair is the devices of a server and of a client, in memory. The first QP of one is
// connected to the first QP of the other, and so on. Requests are executed immediately
// and in order; messages wait for receives. As on real devices, an entry of a queue is
// free again when a completion of it or a later one has been polled.
type pair struct {
	mu    sync.Mutex // one for both devices, because either one accesses the other's queues
	cards [2]*card   // server, client
	log   []posted   // up to its capacity
}

// posted is a request or a receive that was posted.
type posted struct {
	end, qp  int
	recv     bool
	signaled bool
	at, to   uint64 // local and remote address
	n        int
}

// A card is a device: its provider, and its fake kernel.
type card struct {
	*ioctltest.Kernel
	provider.Context // the methods that the tests do not need
	p                *pair
	end              int
	cqs              map[uint64]*pairCQ // by handle
	newQPCQs         [2]uint64          // the CQs of the QP being created
	qps              []*pairQP
	regions          [][2]uint64 // addresses and lengths of regions
	unpolled         int         // completions that were not polled
	rate             uint8       // highest static rate of a QP
	mistakes         []string    // mistakes of the program
}

func newPair() *pair {
	p := &pair{log: make([]posted, 0, 1<<16)}
	for i := range p.cards {
		k := ioctltest.NewKernel(pairDriver)
		k.Device.AtomicCap = 1
		p.cards[i] = &card{Kernel: k, p: p, end: i, cqs: map[uint64]*pairCQ{}}
	}
	return p
}

func (c *card) open(string) (*uverbs.Context, error) {
	fd, err := unix.MemfdCreate("uverbs0", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	info := uverbs.Device{Name: "pair0", Ports: 1, DriverID: pairDriver}
	return newContext(ioctl.NewFake(fd, "uverbs0", pairDriver, c), info, c)
}

// close checks that everything was closed, and that the device was used correctly.
func (c *card) close(t testing.TB) {
	t.Helper()
	c.Kernel.Close(t)
	for _, s := range c.mistakes {
		t.Errorf("end %d: %s", c.end, s)
	}
}

// Ioctl implements ioctl.Kernel. It records regions, rates and the CQs of QPs.
func (c *card) Ioctl(call ioctl.Call) error {
	if err := c.Kernel.Ioctl(call); err != nil {
		return err
	}
	attr := map[uint16]uint64{}
	for _, a := range call.Attrs() {
		attr[a.AttrId] = a.Data
	}
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	h := call.Header()
	switch {
	case h.ObjectId == uapi.UVERBS_OBJECT_QP && h.MethodId == uapi.UVERBS_METHOD_QP_CREATE:
		c.newQPCQs = [2]uint64{attr[uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE],
			attr[uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE]}
	case h.ObjectId == uapi.UVERBS_OBJECT_DEVICE && h.MethodId == uapi.UVERBS_METHOD_INVOKE_WRITE &&
		attr[uapi.UVERBS_ATTR_WRITE_CMD] == uapi.IB_USER_VERBS_CMD_REG_MR:
		var m uapi.IbUverbsRegMr
		copy(ioctl.BytesOf(&m), call.Memory(attr[uapi.UVERBS_ATTR_CORE_IN], ioctl.SizeOf[uapi.IbUverbsRegMr]()))
		c.regions = append(c.regions, [2]uint64{m.Start, m.Length})
	case h.ObjectId == uapi.UVERBS_OBJECT_DEVICE && h.MethodId == uapi.UVERBS_METHOD_INVOKE_WRITE &&
		attr[uapi.UVERBS_ATTR_WRITE_CMD] == uapi.IB_USER_VERBS_CMD_MODIFY_QP:
		var m uapi.IbUverbsModifyQp
		copy(ioctl.BytesOf(&m), call.Memory(attr[uapi.UVERBS_ATTR_CORE_IN], ioctl.SizeOf[uapi.IbUverbsModifyQp]()))
		c.rate = max(c.rate, m.Dest.StaticRate)
	}
	return nil
}

// memory returns registered memory, or nil if it is not registered.
func (c *card) memory(addr uint64, n int) []byte {
	for _, s := range c.regions {
		if off := addr - s[0]; off <= s[1] && uint64(n) <= s[1]-off {
			return bytesAt(addr, n)
		}
	}
	c.mistakes = append(c.mistakes, "memory that is not registered")
	return nil
}

func (c *card) DriverID() uint32              { return pairDriver }
func (c *card) ABI() (lowest, highest uint64) { return 1, 1 }
func (c *card) Retire() error                 { return nil }

func (c *card) Open(_ *ioctl.Device, get driver.Command) (provider.Context, error) {
	_, err := get(nil, nil)
	return c, err
}

func (c *card) AllocPD(alloc driver.Command) (driver.Reply, error) {
	return alloc(nil, nil)
}

func (c *card) CreateCQ(_ *driver.CQConfig, create driver.CQCommand) (provider.CQ, driver.Reply, error) {
	r, err := create(nil, nil)
	if err != nil {
		return nil, r, err
	}
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	q := &pairCQ{c: c, handle: r.Handle, ring: make([]completion, 0, r.Entries)}
	c.cqs[uint64(r.Handle)] = q
	return q, r, nil
}

// A pairCQ returns one completion or two at a time, so that polls end between
// completions.
type pairCQ struct {
	provider.CQ
	c      *card
	handle uint32
	ring   []completion
	armed  bool
	polls  int
}

// A completion frees the entries of its queue up to its own.
type completion struct {
	wc   uverbs.WC
	free *int
	at   int
}

// push adds a completion. The caller holds the pair's lock.
func (q *pairCQ) push(d completion) {
	if len(q.ring) == cap(q.ring) {
		q.c.mistakes = append(q.c.mistakes, "a completion queue has overrun")
		return
	}
	q.ring = append(q.ring, d)
	if q.armed {
		q.armed = false
		_ = q.c.Complete(q.handle) // fails if the CQ was closed meanwhile
	}
}

func (q *pairCQ) Poll(wcs []uverbs.WC) (int, error) {
	q.c.p.mu.Lock()
	n := min(len(wcs), len(q.ring), 1+q.polls%2)
	for i, d := range q.ring[:n] {
		wcs[i], *d.free = d.wc, d.at
	}
	q.ring = slices.Delete(q.ring, 0, n)
	q.c.p.mu.Unlock()
	if n == 0 {
		runtime.Gosched() // let the other end poll
		return 0, nil
	}
	q.polls++
	return n, nil
}

func (q *pairCQ) Ready() bool {
	q.c.p.mu.Lock()
	defer q.c.p.mu.Unlock()
	return len(q.ring) > 0
}

func (q *pairCQ) Arm(bool, uint32) error {
	q.c.p.mu.Lock()
	defer q.c.p.mu.Unlock()
	q.armed = true
	return nil
}

func (q *pairCQ) Retire(bool) error {
	q.c.p.mu.Lock()
	defer q.c.p.mu.Unlock()
	q.c.unpolled += len(q.ring)
	return nil
}
