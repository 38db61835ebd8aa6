package uverbs

import (
	"errors"
	"slices"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// This file is the only place that decides whether the device of a Context is gone, that is,
// was removed or has failed for good. The errno of a single command is not enough: EIO, ENODEV
// and ENOLINK can also result from a command that failed on a working device. The evidence,
// strongest first:
//
//   - The verbs core has detached from the driver: see [Context.removed].
//   - The event file delivered EventDeviceFatal, or reported its end.
//   - A query of a port, which always succeeds on a working device, fails as well.
//
// After the removal the kernel refuses all commands with EIO, except those that destroy an
// object, which succeed. So an object whose destroy command fails still exists in the kernel,
// whatever the errno is.

// mayMeanGone reports whether err is one that commands also return on a device that is gone.
// mlx5 returns ENOLINK after its firmware has failed.
func mayMeanGone(err error) bool {
	switch errnoOf(err) {
	case unix.EIO, unix.ENODEV, unix.ENOLINK:
		return true
	}
	return false
}

// isDeviceGone looks for evidence that the device is gone, after a command returned err. If it
// finds any, all queues of the Context report ErrDeviceGone from then on.
func (c *Context) isDeviceGone(err error) bool {
	switch {
	case c.deviceGone.Load():
		return true
	case !mayMeanGone(err) || c.dev == nil:
		return false
	case c.removed():
	case !errors.Is(err, unix.ENODEV) && c.portsFail(): // ENODEV more likely concerns a network interface
	default:
		return false
	}
	c.markDeviceGone()
	return true
}

// removed asks the kernel whether the device was removed. The verbs core executes QUERY_DEVICE
// from its own memory, without the driver. So the command fails with EIO if and only if the
// core has no driver any more.
func (c *Context) removed() bool {
	cmd := ioctl.Get()
	defer cmd.Put()
	ioctl.Write[uapi.IbUverbsQueryDeviceResp](cmd, uapi.IB_USER_VERBS_CMD_QUERY_DEVICE, &uapi.IbUverbsQueryDevice{})
	return errors.Is(c.dev.Do(cmd), unix.EIO)
}

// portsFail queries the first port, which calls the driver. The query fails if the firmware has
// failed, even if the event that reports this has not been read yet.
func (c *Context) portsFail() bool {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_PORT)
	cmd.Uint64(uapi.UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1)
	ioctl.OutOf[uapi.IbUverbsQueryPortRespEx](cmd, uapi.UVERBS_ATTR_QUERY_PORT_RESP)
	err := c.dev.Do(cmd)
	return errors.Is(err, unix.EIO) || errors.Is(err, unix.ENOLINK)
}

// markDeviceGone makes the queues report that the device is gone. Their memory and registers
// still accept writes after the removal, so without this posts would succeed and polls would
// never find a completion.
func (c *Context) markDeviceGone() {
	if c.deviceGone.Swap(true) {
		return
	}
	c.mu.Lock()
	all := slices.Collect(c.ids.all)
	c.mu.Unlock()
	for _, q := range all {
		q.deviceGone()
	}
}
