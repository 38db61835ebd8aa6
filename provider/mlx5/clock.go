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
	if off%4 != 0 || off > uint64(unix.Getpagesize()-8) {
		return badABI("a clock at %d of its page", off)
	}
	var err error
	if c.mem, err = mapClock(dev, "map the clock", uapi.MLX5_IB_MMAP_CORE_CLOCK, 0); c.mem != nil {
		c.high, c.low = wordOf(c.mem.Bytes()[off:]), wordOf(c.mem.Bytes()[off+4:])
	}
	return err
}

// mapClock maps the page of a command and an index. It returns nil if the page is not available.
func mapClock(dev *ioctl.Device, op string, command, index int) (*provider.Mapping, error) {
	mem, err := provider.MapToRead(dev, mmapOffset(command, index), unix.Getpagesize())
	if err != nil && !noPage(err) {
		return nil, kernelError(op, dev.Name(), err, "")
	}
	return mem, nil
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
