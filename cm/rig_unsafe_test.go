package cm

import (
	"errors"
	_ "unsafe" // for go:linkname

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// newContext is uverbs.newContext: it creates a Context on a kernel in memory, which no program needs.
//
//go:linkname newContext github.com/goverbs/goverbs/uverbs.newContext
func newContext(dev *ioctl.Device, device uverbs.Device, p provider.Provider) (*uverbs.Context, error)

// open opens the device, as openInfo does.
func (l *loop) open(key deviceKey, rnic bool) (*device, error) {
	fd, err := unix.MemfdCreate("uverbs0", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	info := uverbs.Device{Name: "loop0", Index: int(key.index), NodeGUID: key.guid, Ports: len(l.k.Ports),
		DriverID: loopDriver}
	ctx, err := newContext(ioctl.NewFake(fd, "uverbs0", loopDriver, l), info, l)
	if err != nil {
		return nil, err
	}
	attr, err := ctx.QueryDevice()
	if err != nil {
		return nil, errors.Join(err, ctx.Close())
	}
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, errors.Join(err, ctx.Close())
	}
	d := &device{key: key, ctx: ctx, pd: pd, attr: attr, rnic: rnic}
	d.watchIdle()
	return d, nil
}
