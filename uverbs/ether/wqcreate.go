package ether

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// create creates the queue in the kernel and its ring.
func (q *WQ) create(p *uverbs.PD, cfg *WQConfig) error {
	q.setGate(gateReset)
	err := driver.WithContext(q.ctx, opCreateWQ, func(dev *ioctl.Device, impl any) error {
		wqs, ok := impl.(driver.WQs[uverbs.RecvWR])
		if !ok {
			return &uverbs.Error{Op: opCreateWQ, Kind: uverbs.ErrNotSupported, Errno: unix.EOPNOTSUPP,
				Detail: "the device has no work queues"}
		}
		q.dev = dev
		create := func(uhwIn, uhwOut []byte) (driver.Reply, error) {
			return q.createCommand(p, cfg, uhwIn, uhwOut)
		}
		ring, reply, err := wqs.CreateWQ(
			&driver.WQConfig{MaxWR: cfg.MaxWR, MaxSGE: cfg.MaxSGE, Memory: driver.MemoryOf(p)}, create)
		if err != nil {
			return err
		}
		q.impl, q.number = ring, reply.Number
		q.maxWR, q.maxSGE = reply.Cap.MaxRecvWR, reply.Cap.MaxRecvSGE
		return nil
	})
	return explained(err, func(err error) string { return q.explainCreate(err, cfg) })
}

func (q *WQ) createCommand(p *uverbs.PD, cfg *WQConfig, uhwIn, uhwOut []byte) (driver.Reply, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_WQ, uapi.UVERBS_METHOD_WQ_CREATE)
	cmd.NewHandle(uapi.UVERBS_ATTR_CREATE_WQ_HANDLE)
	cmd.Handle(uapi.UVERBS_ATTR_CREATE_WQ_PD_HANDLE, driver.HandleOf(p))
	cmd.Handle(uapi.UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, driver.HandleOf(cfg.CQ))
	q.life.NameEvents(cmd, uapi.UVERBS_ATTR_CREATE_WQ_USER_HANDLE, uapi.UVERBS_ATTR_CREATE_WQ_EVENT_FD)
	cmd.Uint64(uapi.UVERBS_ATTR_CREATE_WQ_TYPE, uapi.IB_UVERBS_WQT_RQ)
	cmd.Uint32(uapi.UVERBS_ATTR_CREATE_WQ_MAX_WR, uint32(cfg.MaxWR))
	cmd.Uint32(uapi.UVERBS_ATTR_CREATE_WQ_MAX_SGE, uint32(cfg.MaxSGE))
	cmd.Uint32(uapi.UVERBS_ATTR_CREATE_WQ_FLAGS, uint32(cfg.Flags))
	wr := ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR)
	sge := ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE)
	wqn := ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM)
	reply := cmd.UHW(uhwIn, len(uhwOut))
	if err := q.dev.Do(cmd); err != nil {
		return driver.Reply{}, err
	}
	copy(uhwOut, reply)
	r := driver.Reply{Handle: cmd.Made(uapi.UVERBS_ATTR_CREATE_WQ_HANDLE), Number: *wqn,
		Cap: driver.Cap{MaxRecvWR: int(*wr), MaxRecvSGE: int(*sge)}}
	q.life.Created(r.Handle, r.Number)
	return r, nil
}

// explainCreate explains what in cfg the device does not support.
func (q *WQ) explainCreate(err error, cfg *WQConfig) string {
	if a, qerr := q.ctx.QueryDevice(); qerr == nil {
		if text := tooMuch(request{"MaxWR", cfg.MaxWR, a.MaxQPWR}, request{"MaxSGE", cfg.MaxSGE, a.MaxSGE}); text != "" {
			return text
		}
	}
	switch {
	case errors.Is(err, unix.EPERM) && cfg.Flags&WQDelayDrop != 0:
		return "the flag WQDelayDrop needs CAP_SYS_RAWIO"
	case errors.Is(err, uverbs.ErrNotSupported):
		return driver.ExplainRaw(err)
	}
	return ""
}

// destroy destroys the kernel's queue. It waits for posts that are under way.
func (q *WQ) destroy() error {
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	q.lock()
	defer q.unlock()
	gate := q.gate.Swap(gateClosed)
	err := q.destroyCommand()
	if err != nil { // the queue stays open
		q.setGate(gate)
	}
	return err
}

func (q *WQ) destroyCommand() error {
	const reply = 4
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_WQ, uapi.UVERBS_METHOD_WQ_DESTROY)
	cmd.Handle(uapi.UVERBS_ATTR_DESTROY_WQ_HANDLE, driver.HandleOf(q.life))
	cmd.Out(uapi.UVERBS_ATTR_DESTROY_WQ_RESP, reply)
	return q.life.DestroyCommand(cmd)
}

func (q *WQ) retire() error {
	q.lock()
	defer q.unlock()
	q.gate.Store(gateClosed)
	driver.Purge(q.cq, q.impl)
	return q.impl.Retire()
}
