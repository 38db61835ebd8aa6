package connectx

import (
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// TestUARPages checks for each page size that a UAR page is where the driver
// maps it: its doorbells work, and those of a page that is not allocated do
// not.
func TestUARPages(t *testing.T) {
	for name, c := range map[string]struct {
		log, uar4k int    // of the driver's page, in units of 4 KiB
		first      uint32 // Config.FirstUAR
		page       uint32 // the number of the second page that is allocated
		offset     uint64 // in BAR 0
		num        uint64 // num_of_uars_per_page
		bar        uint64
	}{
		"4 KiB":             {page: 17, offset: 17 << 12, num: 1, bar: 32 << 20},
		"4 KiB, uar_4k":     {uar4k: 1, page: 17, offset: 17 << 12, num: 1, bar: 32 << 20},
		"16 KiB":            {log: 2, page: 5, offset: 5 << 14, num: 1, bar: 32 << 20},
		"16 KiB, uar_4k":    {log: 2, uar4k: 1, page: 20, offset: 20 << 12, num: 4, bar: 32 << 20},
		"64 KiB":            {log: 4, page: 2, offset: 2 << 16, num: 1, bar: 32 << 20},
		"64 KiB, uar_4k":    {log: 4, uar4k: 1, page: 32, offset: 32 << 12, num: 16, bar: 32 << 20},
		"more than 16 bits": {first: 65536, page: 65537, offset: 65537 << 12, num: 1, bar: 512 << 20},
		"more than 16 bits, 64 KiB": {log: 4, first: 1 << 18, page: 1<<14 + 1, offset: (1<<14 + 1) << 16, num: 1,
			bar: 2 << 30},
		"more than 16 bits, uar_4k": {log: 4, uar4k: 1, first: 65537, page: 65568, offset: 65568 << 12, num: 16,
			bar: 512 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			v := newDriver(t, func(config *Config) { config.FirstUAR = c.first })
			v.choose = func(page []byte) {
				prm.HCACapUAR4k.Set(page, uint64(c.uar4k))
				prm.HCACapLogUARPageSize.Set(page, uint64(c.log))
			}
			v.boot()
			most, now := v.device.caps.page(CapGeneral, false), v.device.caps.page(CapGeneral, true)
			if bar := uint64(1) << 20 << prm.HCACapUARSize.Get(most); bar != c.bar || v.device.Region(0).Size != c.bar {
				t.Errorf("a BAR of %#x, as a region of %#x, want %#x", bar, v.device.Region(0).Size, c.bar)
			}
			if n := prm.HCACapNumOfUARsPerPage.Get(now); n != c.num {
				t.Errorf("%d UAR pages in a page, want %d", n, c.num)
			}
			v.uar = uint32(prm.AllocUAROutUAR.Get(v.run(0x802, 0, nil)))
			if v.uar != c.page {
				t.Fatalf("page %#x, want %#x", v.uar, c.page)
			}
			eqn, _ := v.createEQ(4, 1<<eventPort, 0)
			arm := func(offset uint64) { v.write(int(offset)+doorbellArm, binary.BigEndian.AppendUint32(nil, eqn<<24)) }
			if arm(c.offset); !v.device.eqs.queues[eqn].armed {
				t.Error("a doorbell did not arm the event queue")
			}
			v.reported(0)
			own := uint64(1) << (uarShift + c.log)
			arm(c.offset + own) // the next page, not allocated
			v.reported(1)
			v.refused(0x803, 0, statusBusy, reasonInUse, func(in []byte) { prm.DeallocUARInUAR.Set(in, uint64(c.page)) })
			v.run(0x302, 0, func(in []byte) { prm.DestroyEQInEQNumber.Set(in, uint64(eqn)) })
			if c.num > 1 {
				v.refused(0x803, 0, statusBadResource, reasonUnknown,
					func(in []byte) { prm.DeallocUARInUAR.Set(in, uint64(c.page)+1) })
			}
			v.run(0x803, 0, func(in []byte) { prm.DeallocUARInUAR.Set(in, uint64(c.page)) })
		})
	}
}

// TestStoresAfterReset checks that stores to pages that a reset has freed are ignored until the driver
// has started the device again, and that others are reported.
func TestStoresAfterReset(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	page := uint32(prm.AllocUAROutUAR.Get(v.run(0x802, 0, nil)))
	store := func(page uint32) { v.write(int(page)<<uarShift+doorbellArm, make([]byte, 4)) }
	v.loop.Run(v.device.disable)
	store(page)
	v.reported(0)
	store(page + 1)
	v.reported(1)
	v.loop.Run(v.device.Reset)
	store(page)
	v.reported(0)
	v.setQueue()
	v.boot()
	store(page)
	v.reported(1)
}

// TestUARLimits checks that page sizes and numbers that are out of range are
// refused.
func TestUARLimits(t *testing.T) {
	v := newDriver(t, nil)
	v.run(0x104, 0, nil)
	v.give(pagesBoot)
	page := prm.QueryHCACapOutCapability.Bytes(v.run(0x100, 1, nil))
	prm.HCACapLogUARPageSize.Set(page, maxLogUARPage+1)
	v.refused(0x109, 0, statusBadParam, reasonCapability,
		func(in []byte) { copy(prm.SetHCACapInCapability.Bytes(in), page) })
	for _, first := range []uint32{1, maxFirstUAR + 1} {
		if _, err := New(Config{Loop: v.loop, GUID: testGUID, FirstUAR: first}); err == nil {
			t.Errorf("FirstUAR %d is no error", first)
		}
	}
}
