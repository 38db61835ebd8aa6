package mlx5

import (
	"runtime"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// A wallClock is a page that the kernel updates. It holds a clock count with the time at that
// count, and the length of a tick. It has words of 8 bytes. The first one changes before and
// after each update of the others.
type wallClock struct {
	mem   *provider.Mapping
	words []uint64
}

// The words of struct mlx5_ib_clock_info.
const (
	clockSign = iota
	clockNanoseconds
	clockCycles
	clockFraction
	clockRate // the factor, and the number of bits by which the product is shifted right
	clockMask
	clockWords
)

func (w *wallClock) open(dev *ioctl.Device, r *uapi.Mlx5IbAllocUcontextResp) error {
	if r.ClockInfoVersions>>uapi.MLX5_IB_CLOCK_INFO_V1&1 == 0 {
		return nil
	}
	var err error
	w.mem, err = mapClock(dev, "map the clock's time", uapi.MLX5_IB_MMAP_CLOCK_INFO, uapi.MLX5_IB_CLOCK_INFO_V1)
	if w.mem != nil {
		w.words = uint64sOf(w.mem.Bytes()[:8*clockWords])
	}
	return err
}

// WallClock implements driver.WallClock. A count that is ahead of the kernel's last count
// by more than half the counter's range is treated as an earlier count.
func (c *deviceContext) WallClock(count uint64) (ns uint64, err error) {
	w := &c.wall
	if w.mem == nil {
		return 0, uverbs.ErrNotSupported
	}
	const tries = 1 << 20
	for range tries {
		sign := mmio.Acquire64(&w.words[clockSign])
		var v [clockWords]uint64
		for i := range v {
			v[i] = mmio.Acquire64(&w.words[i])
		}
		if uint32(sign)&uapi.MLX5_IB_CLOCK_INFO_KERNEL_UPDATING == 0 && mmio.Acquire64(&w.words[clockSign]) == sign {
			runtime.KeepAlive(c)
			return wallClockAt(&v, count), nil
		}
	}
	return 0, uverbs.ErrBusy
}

func wallClockAt(v *[clockWords]uint64, count uint64) uint64 {
	factor, shift, mask := v[clockRate]&0xffffffff, v[clockRate]>>32, v[clockMask]
	if ticks := (count - v[clockCycles]) & mask; ticks <= mask/2 {
		return v[clockNanoseconds] + (ticks*factor+v[clockFraction])>>shift
	}
	ticks := (v[clockCycles] - count) & mask
	return v[clockNanoseconds] - (ticks*factor-v[clockFraction])>>shift
}
