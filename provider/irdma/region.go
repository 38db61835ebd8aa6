package irdma

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
)

// pageSize is the device's, whatever the kernel's is.
const pageSize = 4096

// pages rounds n bytes up to pages of the device.
func pages(n int) int { return (n + pageSize - 1) &^ (pageSize - 1) }

// A region is memory of a queue that is registered with the kernel.
type region struct {
	dev    *ioctl.Device
	mem    *provider.Mapping
	handle uint32
	known  bool // to the kernel
}

// newRegion allocates n bytes and registers them.
func (c *deviceContext) newRegion(
	memory driver.Memory, op string, n int, pd uint32, req uapi.IrdmaMemRegReq,
) (*region, error) {
	r := &region{dev: c.dev}
	whole := (n + unix.Getpagesize() - 1) &^ (unix.Getpagesize() - 1)
	b, free, err := memory.Get(op, whole)
	switch {
	case err != nil:
		return nil, err
	case b != nil:
		r.mem = provider.MappingOf(b, free)
	default:
		if r.mem, err = provider.Anon(whole); err != nil {
			return nil, provider.KernelError(op, "", err)
		}
	}
	cmd := ioctl.Get()
	defer cmd.Put()
	at := addressOf(r.mem)
	resp := ioctl.Write[uapi.IbUverbsRegMrResp](cmd, uapi.IB_USER_VERBS_CMD_REG_MR, &uapi.IbUverbsRegMr{
		Start: at, Length: uint64(n), HcaVa: at, PdHandle: pd, AccessFlags: uapi.IB_UVERBS_ACCESS_LOCAL_WRITE})
	cmd.UHW(ioctl.BytesOf(&req), 0)
	if err := c.dev.Do(cmd); err != nil {
		return nil, provider.Join(driver.Pinned(err, n), r.release(false))
	}
	r.handle, r.known = resp.MrHandle, true
	return r, nil
}

// release deregisters the memory and unmaps it. The queue has been destroyed.
func (r *region) release(inUse bool) error {
	if r == nil {
		return nil
	}
	var err error
	if r.known {
		err = r.dev.Destroy(uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_MR_DESTROY, uapi.UVERBS_ATTR_DESTROY_MR_HANDLE,
			r.handle)
		if errors.Is(err, os.ErrClosed) { // the kernel has deregistered it with the descriptor
			err = nil
		}
		if err != nil {
			return provider.KernelError("deregister the memory of a queue", "", err)
		}
		r.known = false
	}
	return r.mem.Release(inUse)
}
