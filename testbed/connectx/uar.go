package connectx

import (
	"math/bits"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

const (
	maxLogUARPage = 4  // host pages of 64 KiB
	logMaxBAR     = 31 // log2 of the maximum size of BAR 0, with maxFirstUAR
)

// barSize returns the size of BAR 0: a power of two with room for the UAR
// pages.
func (c *Config) barSize() uint64 {
	return 1 << (uarShift + bits.Len32(c.FirstUAR-minFirstUAR+uarPages-1))
}

// setBAR stores the size of BAR 0 in the capabilities, as its logarithm in MiB, and where the
// device memory begins.
func (c *capabilities) setBAR(config *Config) {
	prm.HCACapUARSize.Set(c.most[CapGeneral], uint64(bits.Len64(config.barSize()>>20)-1))
	prm.DeviceMemCapMEMICBARStartAddr.Set(c.most[CapDevMem], config.deviceMemoryStart())
}

// The last pages of BAR 0 are the windows of operations on device memory, and device memory.
const deviceMemory = 256 << 10

// deviceMemoryStart returns the offset of device memory in BAR 0.
func (c *Config) deviceMemoryStart() uint64 { return c.barSize() - deviceMemory }

// memoryOpsStart returns the offset of the windows of operations in BAR 0.
func (c *Config) memoryOpsStart() uint64 {
	return c.deviceMemoryStart() - deviceMemory*uint64(engine.MemoryOps)
}

// uars are the UAR pages. The driver selects their numbering: pages of its own
// size, with one number each, or (uar_4k) pages of 4 KiB, allocated in groups
// of the size of its own pages.
type uars struct {
	numbers
	shift uint   // log2 of the size of a numbered page
	run   uint32 // pages that are allocated together
}

func newUARs(c *Config, caps *capabilities) uars {
	u := uars{shift: uarShift, run: 1}
	log := uint(caps.general(prm.HCACapLogUARPageSize))
	if caps.general(prm.HCACapUAR4k) != 0 {
		u.run = 1 << log
	} else {
		u.shift += log
	}
	own := uint(uarShift) + log // of the driver's page
	first := uint32((uint64(c.FirstUAR)<<uarShift + 1<<own - 1) >> own)
	u.numbers = newNumbers("UAR page", first, uint32(c.memoryOpsStart()>>own)-first)
	return u
}

// add allocates pages and returns the number of the first.
func (u *uars) add() (uint32, error) {
	n, err := u.numbers.add()
	return n * u.run, err
}

// first returns the number of the first page of a group.
func (u *uars) first(page uint32) uint32 { return page &^ (u.run - 1) }

// has reports whether a page is allocated.
func (u *uars) has(page uint32) bool { return u.numbers.has(page / u.run) }

// remove frees pages by the number of the first.
func (u *uars) remove(page uint32) error {
	if page != u.first(page) {
		return refuse(statusBadResource, reasonUnknown)
	}
	return u.numbers.remove(page / u.run)
}

// at returns the page of an offset of BAR 0, and the offset in it.
func (u *uars) at(offset uint64) (page, in uint32) {
	return uint32(offset >> u.shift), uint32(offset & (1<<u.shift - 1))
}
