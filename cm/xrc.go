package cm

import (
	"errors"
	"os"

	"github.com/goverbs/goverbs/uverbs"
)

// This file is about ids of extended reliable connections (XRC): see
// [uverbs.XRCD]. Those that receive share a domain for each device, as librdmacm
// has it, so that the SRQ of one takes messages of them all.

// domain returns the device's XRC domain, opened for its first user.
func (d *device) domain() (*uverbs.XRCD, error) {
	host.Lock()
	defer host.Unlock()
	if d.xrcd == nil {
		x, err := d.ctx.OpenXRCD(nil, os.O_CREATE)
		if err != nil {
			return nil, err
		}
		d.xrcd = x
	}
	d.xrcdUsers++
	return d.xrcd, nil
}

// leaveDomain gives back what domain gave. The domain is closed with its last
// user; one that the program has objects in is closed with the device.
func (d *device) leaveDomain() error {
	host.Lock()
	d.xrcdUsers--
	x := d.xrcd
	if d.xrcdUsers > 0 {
		x = nil
	} else {
		d.xrcd = nil
	}
	host.Unlock()
	if x == nil {
		return nil
	}
	return x.Close()
}

// joinDomain returns the XRC domain of the id's device, which the id has a share
// of until leaveDomain. The caller holds i.mu.
func (i *ID) joinDomain() (*uverbs.XRCD, error) {
	if i.xrcd != nil {
		return i.xrcd, nil
	}
	x, err := i.dev.domain()
	if err != nil {
		return nil, err
	}
	i.xrcd = x
	return x, nil
}

// leaveDomain ends the id's share, once it has nothing in the domain any more.
// The caller holds i.mu.
func (i *ID) leaveDomain() error {
	if i.xrcd == nil || i.qp.Load() != nil || i.srq.Load() != nil {
		return nil
	}
	i.xrcd = nil
	return i.dev.leaveDomain()
}

// createTarget is CreateQP of an id that receives by XRC: such a QP has no
// queues. The caller holds i.mu.
func (i *ID) createTarget(cfg uverbs.QPConfig) error {
	x, err := i.joinDomain()
	if err != nil {
		return err
	}
	qp, err := x.CreateQP(cfg)
	if err != nil {
		return errors.Join(err, i.leaveDomain())
	}
	i.qp.Store(qp)
	if err := i.initQP(); err != nil {
		return errors.Join(err, i.destroyQP())
	}
	return nil
}

// xrcSRQ fills in what an XRC SRQ needs. The caller holds i.mu.
func (i *ID) xrcSRQ(pd *uverbs.PD, cfg *uverbs.SRQConfig) (err error) {
	if cfg.XRCD == nil {
		if cfg.XRCD, err = i.joinDomain(); err != nil {
			return err
		}
	}
	if cfg.CQ == nil {
		if cfg.CQ, err = pd.Context().CreateCQ(uverbs.CQConfig{Entries: max(cfg.MaxWR, 1)}); err != nil {
			return errors.Join(err, i.leaveDomain())
		}
		i.ownRecvCQ.Store(cfg.CQ)
	}
	return nil
}

// freeSRQ closes what xrcSRQ made. The caller holds i.mu.
func (i *ID) freeSRQ() error {
	if i.qpType != uverbs.XRCRecv {
		return nil
	}
	i.recvCQ.Store(nil)
	return errors.Join(i.destroyCQs(), i.leaveDomain())
}
