package mlx5

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// TestWallClock checks that clock counts are converted to time with the kernel's data.
func TestWallClock(t *testing.T) {
	k := standard()
	k.resp = func(r *uapi.Mlx5IbAllocUcontextResp) { r.ClockInfoVersions = 1 }
	d := newDesk(t, k)
	page := d.s.uar[mmapOffset(uapi.MLX5_IB_MMAP_CLOCK_INFO, 0):]
	le := binary.LittleEndian
	le.PutUint64(page[8:], 1_000_000_000_000)
	le.PutUint64(page[16:], 5000)
	le.PutUint32(page[32:], 3<<4) // a tick is 3 ns
	le.PutUint32(page[36:], 4)
	le.PutUint64(page[40:], 1<<48-1)
	for count, ns := range map[uint64]int64{5000: 0, 5001: 3, 15000: 30000, 4999: -3, 0: -15000, 1<<48 | 6000: 3000} {
		if got := good(d.c.WallClock(count))(t); !got.Equal(time.Unix(1000, ns)) {
			t.Errorf("count %d is %v, want %v", count, got.UnixNano(), 1_000_000_000_000+ns)
		}
	}
	le.PutUint32(page, uapi.MLX5_IB_CLOCK_INFO_KERNEL_UPDATING)
	if _, err := d.c.WallClock(1); !errors.Is(err, uverbs.ErrBusy) {
		t.Errorf("a change that does not end: %v", err)
	}
	if _, err := newDesk(t, standard()).c.WallClock(1); !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("without clock: %v", err)
	}
}
