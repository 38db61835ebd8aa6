package rxe

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

func init() { driver.Register(rxeProvider{}) }

// rxeProvider implements driver.Provider.
type rxeProvider struct{}

func (rxeProvider) DriverID() uint32 { return uapi.RDMA_DRIVER_RXE }

func (rxeProvider) ABI() (lowest, highest uint64) { return 1, 2 }

func (rxeProvider) Open(dev *ioctl.Device, get driver.Command) (provider.Context, error) {
	if _, err := get(nil, nil); err != nil {
		return nil, err
	}
	if err := checkRelease(dev); err != nil {
		return nil, err
	}
	return &deviceContext{dev: dev, byWrite: preferWrite}, nil
}

// deviceContext implements driver.Context.
type deviceContext struct {
	dev     *ioctl.Device
	byWrite bool // ring doorbells with write(2), see doorbell.go
}

func (c *deviceContext) AllocPD(alloc driver.Command) (driver.Reply, error) {
	return alloc(nil, nil)
}

func (c *deviceContext) CreateCQ(_ *driver.CQConfig, create driver.CQCommand) (provider.CQ, driver.Reply, error) {
	q := &cq{ctx: c}
	reply, err := create(nil, ioctl.BytesOf(&q.offer))
	if err != nil {
		return nil, reply, err
	}
	r, err := c.mapRing(&q.first, "completion queue", q.offer.Mi, cqeSize)
	if err != nil {
		return nil, reply, err
	}
	q.use(r)
	q.notify.init(c.dev, c.byWrite, reply.Handle)
	return q, reply, nil
}

func (c *deviceContext) CreateQP(
	cfg *uverbs.QPConfig, env provider.QPEnv, create driver.Command,
) (provider.QP, driver.Reply, error) {
	if err := provider.UnknownOptions(cfg.Options); err != nil {
		return nil, driver.Reply{}, err
	}
	q := new(qp)
	reply, err := create(nil, ioctl.BytesOf(&q.offer))
	if err != nil {
		return nil, reply, err
	}
	sq, err := c.mapRing(&q.rings[0], "send queue", q.offer.SqMi, sendHeader)
	if err != nil {
		return nil, reply, err
	}
	var rq ring
	if q.offer.RqMi.Size != 0 { // 0 if the QP uses an SRQ
		if rq, err = c.mapRing(&q.rings[1], "receive queue", q.offer.RqMi, recvHeader); err != nil {
			return nil, reply, provider.Join(err, sq.retire(false))
		}
	}
	q.bell.Init(c.dev, c.byWrite, reply.Handle)
	q.use(sq, rq, uverbs.QPCap(reply.Cap), &q.bell)
	q.sq.owner = env.Owner
	switch cfg.Type {
	case uverbs.UC:
		q.sq.sendUnacknowledged()
	case uverbs.UD:
		q.sq.sendDatagrams(env.PD, env.Owner.MTU)
	}
	return q, reply, nil
}

func (c *deviceContext) CreateSRQ(_ *driver.SRQConfig, create driver.Command) (provider.SRQ, driver.Reply, error) {
	resp := new(uapi.RxeCreateSrqResp)
	reply, err := create(nil, ioctl.BytesOf(resp))
	if err != nil {
		return nil, reply, err
	}
	r, err := c.mapRing(new(provider.Mapping), "shared receive queue", resp.Mi, recvHeader)
	if err != nil {
		return nil, reply, err
	}
	return newSharedQueue(c, r, reply.SRQ.MaxSGE), reply, nil
}

// CreateAH stores the number of the AH that the kernel assigns. A WQE that contains
// the number needs no address vector.
func (c *deviceContext) CreateAH(
	_ *uverbs.AHAttr, _ *driver.AHEnv, av *driver.AV, create driver.Command,
) (driver.Reply, error) {
	resp := new(uapi.RxeCreateAhResp)
	reply, err := create(nil, ioctl.BytesOf(resp))
	if err == nil && resp.AhNum == 0 {
		err = &uverbs.Error{Op: "create AH", Kind: uverbs.ErrNotSupported,
			Detail: "the kernel's rxe does not number address handles, which UD needs here: " +
				"use a newer kernel, 6.1 for example"}
	}
	av[0] = uint64(resp.AhNum)
	return reply, err
}

// Retire does nothing: rxe has no registers.
func (c *deviceContext) Retire() error { return nil }

// mapRing maps a ring that the kernel offers, with m. Each offer can be mapped once.
func (c *deviceContext) mapRing(m *provider.Mapping, kind string, mi uapi.Mminfo, need int) (ring, error) {
	if err := m.Map(c.dev, int64(mi.Offset), int(mi.Size)); err != nil {
		return ring{}, provider.KernelError("map "+kind, c.dev.Name(), err)
	}
	r, err := newRing(kind, m, need)
	if err != nil {
		return ring{}, provider.Join(err, m.Unmap())
	}
	return r, nil
}
