package siw

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

func init() { driver.Register(siwProvider{}) }

// siwProvider implements driver.Provider.
type siwProvider struct{}

func (siwProvider) DriverID() uint32 { return uapi.RDMA_DRIVER_SIW }

func (siwProvider) ABI() (lowest, highest uint64) { return uapi.SIW_ABI_VERSION, uapi.SIW_ABI_VERSION }

func (siwProvider) Open(dev *ioctl.Device, get driver.Command) (provider.Context, error) {
	if _, err := get(nil, ioctl.BytesOf(new(uapi.SiwUrespAllocCtx))); err != nil {
		return nil, err
	}
	return &deviceContext{dev: dev}, nil
}

// deviceContext implements driver.Context.
type deviceContext struct {
	dev *ioctl.Device
	cqs sync.Map // *cq by the kernel's handle
}

func (c *deviceContext) AllocPD(alloc driver.Command) (driver.Reply, error) { return alloc(nil, nil) }

// RegMRParts implements driver.MRExtender. The input is the lowest byte of the keys, which is 0 as in the C library.
func (c *deviceContext) RegMRParts() (in []byte, out int) {
	return zeroKey[:], ioctl.SizeOf[uapi.SiwUrespRegMr]()
}

var zeroKey = [8]byte{}

func (c *deviceContext) CreateCQ(_ *driver.CQConfig, create driver.CQCommand) (provider.CQ, driver.Reply, error) {
	resp := new(uapi.SiwUrespCreateCq)
	reply, err := create(nil, ioctl.BytesOf(resp))
	if err != nil {
		return nil, reply, err
	}
	q := &cq{ctx: c, handle: reply.Handle}
	words, err := c.mapRing(&q.mem, "completion queue", resp.CqKey, resp.NumCqe, cqeWords, controlWords)
	if err != nil {
		return nil, reply, err
	}
	q.use(words, resp.NumCqe)
	c.cqs.Store(reply.Handle, q)
	return q, reply, nil
}

func (c *deviceContext) CreateQP(
	cfg *uverbs.QPConfig, env provider.QPEnv, create driver.Command,
) (provider.QP, driver.Reply, error) {
	if err := provider.UnknownOptions(cfg.Options); err != nil {
		return nil, driver.Reply{}, err
	}
	resp := new(uapi.SiwUrespCreateQp)
	reply, err := create(nil, ioctl.BytesOf(resp))
	if err != nil {
		return nil, reply, err
	}
	q := &qp{owner: env.Owner}
	words, err := c.mapRing(&q.sq.mem, "send queue", resp.SqKey, resp.NumSqe, sqeWords, 0)
	if err != nil {
		return nil, reply, err
	}
	q.sq.use(words, resp.NumSqe, sqeWords)
	reply.Cap.MaxSendWR = int(resp.NumSqe)
	if env.SRQ == nil && resp.NumRqe > 0 {
		words, err := c.mapRing(&q.rq.mem, "receive queue", resp.RqKey, resp.NumRqe, rqeWords, 0)
		if err != nil {
			return nil, reply, provider.Join(err, q.sq.mem.Unmap())
		}
		q.rq.use(words, resp.NumRqe, rqeWords)
		reply.Cap.MaxRecvWR = int(resp.NumRqe)
	}
	q.bell.Init(c.dev, true, reply.Handle)
	q.ring = q.bell.Ring
	q.configure(uverbs.QPCap(reply.Cap), cfg.SignalAll, reply.Number)
	q.sq.attach(c.cqOf(cfg.SendCQ))
	q.rq.attach(c.cqOf(cfg.RecvCQ))
	return q, reply, nil
}

// cqOf returns the provider's part of a CQ, which tests of the rings alone do not have.
func (c *deviceContext) cqOf(of *uverbs.CQ) (*cq, *uverbs.CQ) {
	if of == nil {
		return nil, nil
	}
	if q, ok := c.cqs.Load(driver.HandleOf(of)); ok {
		return q.(*cq), of
	}
	return nil, of
}

func (c *deviceContext) CreateSRQ(_ *driver.SRQConfig, create driver.Command) (provider.SRQ, driver.Reply, error) {
	resp := new(uapi.SiwUrespCreateSrq)
	reply, err := create(nil, ioctl.BytesOf(resp))
	if err != nil {
		return nil, reply, err
	}
	s := new(srq)
	words, err := c.mapRing(&s.mem, "shared receive queue", resp.SrqKey, resp.NumRqe, rqeWords, 0)
	if err != nil {
		return nil, reply, err
	}
	s.use(words, resp.NumRqe, rqeWords)
	s.maxSGE = min(reply.SRQ.MaxSGE, uapi.SIW_MAX_SGE)
	reply.SRQ.MaxWR = int(resp.NumRqe)
	return s, reply, nil
}

// CreateAH implements driver.Context.
func (c *deviceContext) CreateAH(
	*uverbs.AHAttr, *driver.AHEnv, *driver.AV, driver.Command,
) (driver.Reply, error) {
	return driver.Reply{}, unsupported("create AH", "iWARP has no datagrams: use a QP of type RC")
}

// Retire does nothing: siw has no registers.
func (c *deviceContext) Retire() error { return nil }

// mapRing maps n elements of size words, and the words after them.
func (c *deviceContext) mapRing(
	m *provider.Mapping, kind string, key uint64, n, size, after uint32,
) ([]uint64, error) {
	const most = 1 << 22 // elements of the largest queue of the driver
	// The key SIW_INVAL_UOBJ_KEY is that of a mapping, too: if there is none, the kernel refuses the command.
	if n == 0 || n&(n-1) != 0 || n > most {
		return nil, badRing(kind, n)
	}
	words := int(n)*int(size) + int(after)
	if err := m.Map(c.dev, int64(key), 8*words); err != nil {
		return nil, provider.KernelError("map "+kind, c.dev.Name(), err)
	}
	return wordsOf(m, words), nil
}

func unsupported(op, detail string) error {
	return &uverbs.Error{Op: op, Kind: uverbs.ErrNotSupported, Errno: unix.EOPNOTSUPP, Detail: detail}
}
