package uverbs

import (
	"errors"
	"math"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// Resize changes the number of completions that the queue can hold, without losing
// any: ibv_resize_cq(3). It refuses a size that is too small for the unpolled
// completions. It returns [ErrInvalid] for a size that the device does not support,
// and [ErrClosed] after Close.
func (q *CQ) Resize(entries int) error {
	if entries < 1 || entries > math.MaxInt32 {
		return invalid("resize", q.String(), "the number of entries must be 1 to 2^31-1: "+sitoa(entries))
	}
	q.lock()
	defer q.unlock()
	if q.dead.Load() {
		return named("resize", q.String(), ErrClosed)
	}
	resized := false
	reply, err := q.impl.Resize(entries, func(n int, uhwIn, uhwOut []byte) (driver.Reply, error) {
		r, err := q.resizeCommand(n, uhwIn, uhwOut)
		resized = err == nil
		return r, err
	})
	if resized && err != nil { // the kernel accepted the size; a later step failed
		q.entries.Store(int64(reply.Entries))
		return q.ctx.wrap("resize", q.String(), err, "the queue has been resized")
	}
	if errors.Is(err, unix.EINVAL) && entries < q.Entries() {
		return q.ctx.wrap("resize", q.String(), err,
			"more than "+sitoa(entries)+" completions may wait in it: poll them first")
	}
	if err != nil {
		return q.ctx.explainLimit("resize CQ", err, "the number of entries", entries,
			func(a *DeviceAttr) int { return a.MaxCQE })
	}
	q.entries.Store(int64(reply.Entries))
	return nil
}

func (q *CQ) resizeCommand(entries int, uhwIn, uhwOut []byte) (driver.Reply, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	resp := ioctl.Write[uapi.IbUverbsResizeCqResp](cmd, uapi.IB_USER_VERBS_CMD_RESIZE_CQ,
		&uapi.IbUverbsResizeCq{CqHandle: q.handle, Cqe: uint32(entries)})
	reply := cmd.UHW(uhwIn, len(uhwOut))
	if err := q.ctx.dev.Do(cmd); err != nil {
		return driver.Reply{}, err
	}
	copy(uhwOut, reply)
	return driver.Reply{Handle: q.handle, Entries: int(resp.Cqe)}, nil
}
