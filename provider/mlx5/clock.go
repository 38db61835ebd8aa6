package mlx5

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/provider"
)

// A clock is the device's free-running counter, by which completions are
// stamped, as two registers that are mapped to be read: the high word and the
// low word, big-endian. Some kernels and CPUs have no page of it.
type clock struct {
	mem *provider.Mapping
	reg []byte
}

func (c *clock) open(dev *ioctl.Device, r *uapi.Mlx5IbAllocUcontextResp) error {
	off := r.HcaCoreClockOffset
	if r.CompMask&uapi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET == 0 {
		return nil
	}
	page := unix.Getpagesize()
	if off%4 != 0 || off > uint64(page-8) {
		return badABI("a clock at %d of its page", off)
	}
	mem, err := provider.MapToRead(dev, mmapOffset(uapi.MLX5_IB_MMAP_CORE_CLOCK, 0), page)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return nil // a policy, or a CPU with large pages: there is none to read
	}
	if err != nil {
		return kernelError("map the clock", dev.Name(), err, "")
	}
	c.mem, c.reg = mem, mem.Bytes()[off:][:8]
	return nil
}

func (c *clock) retire() error {
	if c.mem == nil {
		return nil
	}
	return c.mem.Retire()
}
