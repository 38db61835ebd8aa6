package uverbs

import "time"

// A ProviderWallClock is a ProviderContext of a device whose clock's time the
// kernel tells.
type ProviderWallClock interface {
	// WallClock is the time, in nanoseconds since 1970, at a count of the clock.
	WallClock(count uint64) (ns uint64, err error)
}

// WallClock is what time it was when the device's clock was at a count, that of
// WC.Timestamp or [Context.QueryClock]: ibv_wc_read_completion_wallclock_ns(3).
// The kernel tells the clock's rate anew every few seconds, so convert counts
// soon. [ErrNotSupported] where there is no such clock, as on rxe; [ErrClosed]
// after Close; [ErrBusy] while the kernel keeps changing the rate.
func (c *Context) WallClock(count uint64) (time.Time, error) {
	if c.ending.Load() {
		return time.Time{}, ErrClosed
	}
	p, ok := c.impl.(ProviderWallClock)
	if !ok {
		return time.Time{}, ErrNotSupported
	}
	ns, err := p.WallClock(count)
	if c.ending.Load() { // the page may have been zero
		return time.Time{}, ErrClosed
	}
	if err != nil {
		return time.Time{}, c.wrap("read clock", c.name, err, "")
	}
	return time.Unix(0, int64(ns)), nil
}
