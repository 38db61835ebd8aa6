package verbstest

import (
	"os"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/uapi"
)

// describe sets the attributes of the device and the rights of the process that programs query or use.
func (f *file) describe() {
	c := f.core
	c.NetRaw, c.Raw = true, true
	c.Rereg = 7            // memory, PD and access
	c.Speed = 1000         // of 100 Mb/s
	c.RateMax = 100e6      // kb/s
	c.DMABuf = -1          // supported; no descriptor is a dma-buf
	c.Device.AtomicCap = 1 // IB_ATOMIC_HCA
	c.Device.PageSizeCap, c.Device.MaxPkeys = -uint64(os.Getpagesize()), 1
	c.Extended.MaxDmSize = deviceMemory
	c.Extended.CqModerationCaps.MaxCqModerationCount = 1<<16 - 1
	c.Extended.CqModerationCaps.MaxCqModerationPeriod = 1<<16 - 1
	f.Reply.CompMask |= uapi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY
	f.Reply.DumpFillMkey = engine.NullMKey
}
