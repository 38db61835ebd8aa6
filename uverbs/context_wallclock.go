package uverbs

import (
	"time"

	"github.com/goverbs/goverbs/internal/driver"
)

// WallClock returns the time at which the device's clock had this count, which is a
// WC.Timestamp or a result of [Context.QueryClock]:
// ibv_wc_read_completion_wallclock_ns(3). The kernel updates the clock's rate every
// few seconds, so convert counts soon.
//
// It returns [ErrNotSupported] if the device has no such clock, as on rxe,
// [ErrClosed] after Close, and [ErrBusy] if the kernel keeps changing the rate
// during the call.
func (c *Context) WallClock(count uint64) (time.Time, error) {
	p, ok := c.impl.(driver.WallClock)
	ns, err := c.readClock(ok, func() (uint64, error) { return p.WallClock(count) })
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(0, int64(ns)), nil
}

// readClock calls read if the device has the clock.
func (c *Context) readClock(has bool, read func() (uint64, error)) (v uint64, err error) {
	if err = ErrNotSupported; has && !c.ending.Load() {
		v, err = read()
	}
	if c.ending.Load() { // the clock's page may have been replaced by a zero page
		v, err = 0, ErrClosed
	}
	return v, c.wrap("read clock", c.name, err, "")
}
