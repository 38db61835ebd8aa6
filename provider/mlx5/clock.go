package mlx5

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// A clock is the device's free-running counter, from which completions are timestamped. It is
// mapped as two read-only big-endian registers: the high word and the low word. Some kernels and
// CPUs do not provide its page.
type clock struct {
	mem       *provider.Mapping
	high, low *uint32
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
	if noPage(err) {
		return nil
	}
	if err != nil {
		return kernelError("map the clock", dev.Name(), err, "")
	}
	c.mem, c.high, c.low = mem, wordOf(mem.Bytes()[off:]), wordOf(mem.Bytes()[off+4:])
	return nil
}

// noPage reports whether an error of mapping a page means that the page is not available: a
// policy forbids it, or a page of the CPU's size would expose more than the clock.
func noPage(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL)
}

// QueryClock implements driver.Clock. If the low word wraps between the two loads, the
// high word has changed when it is read again.
func (c *deviceContext) QueryClock() (uint64, error) {
	k := &c.clock
	if k.mem == nil {
		return 0, uverbs.ErrNotSupported
	}
	for {
		high, low := mmio.Load32BE(k.high), mmio.Load32BE(k.low)
		if mmio.Load32BE(k.high) == high {
			runtime.KeepAlive(c)
			return uint64(high)<<32 | uint64(low), nil
		}
	}
}

func (c *clock) retire() error {
	if c.mem == nil {
		return nil
	}
	return c.mem.Retire()
}
