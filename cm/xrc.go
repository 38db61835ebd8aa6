package cm

import (
	"errors"

	"github.com/goverbs/goverbs/internal/verbs"
	"github.com/goverbs/goverbs/uverbs"
)

// This file is for ids of extended reliable connections (XRC): see [uverbs.XRCD]. As
// in librdmacm, all receiving ids of a device share one domain, so that the SRQ of
// one receives messages of them all.

// acquireXRCD returns the device's XRC domain. It opens the domain for its first user.
func (d *device) acquireXRCD() (*uverbs.XRCD, error) {
	host.Lock()
	defer host.Unlock()
	if d.xrcd == nil {
		x, err := d.ctx.OpenXRCD(nil, uverbs.XRCDCreate)
		if err != nil {
			return nil, err
		}
		d.xrcd = x
		d.watchIdle()
	}
	d.xrcdUsers++
	return d.xrcd, nil
}

// releaseXRCD undoes acquireXRCD. It closes the domain with its last user. If the program
// has objects in the domain, it is closed with the device.
func (d *device) releaseXRCD() error {
	host.Lock()
	defer host.Unlock()
	if d.xrcdUsers--; d.xrcdUsers > 0 {
		return nil
	}
	verbs.OnIdle(d.ctx, nil) // Close would call onIdle, which locks host. The id still uses the device.
	defer d.watchIdle()
	err := d.xrcd.Close()
	if errors.Is(err, uverbs.ErrBusy) {
		return nil
	}
	if err == nil {
		d.xrcd = nil
	}
	return err
}

// joinDomain returns the XRC domain of the id's device. The id uses it until
// leaveDomain. The caller holds id.mu.
func (id *ID) joinDomain() (*uverbs.XRCD, error) {
	if id.xrcd != nil {
		return id.xrcd, nil
	}
	x, err := id.dev.acquireXRCD()
	if err != nil {
		return nil, err
	}
	id.xrcd = x
	return x, nil
}

// leaveDomain ends the id's use of the domain if it has no more objects in it. The
// caller holds id.mu.
func (id *ID) leaveDomain() error {
	if id.xrcd == nil || id.qp.Load() != nil || id.srq.Load() != nil {
		return nil
	}
	id.xrcd = nil
	return id.dev.releaseXRCD()
}
