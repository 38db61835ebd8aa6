package bnxt_re

import (
	"time"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// The last entry of a ring that the device leaves.
const (
	typeCutOff    = 15
	cutToggleAt   = 5
	cutToggleMask = 3
)

// Resize waits at most so long for the last entry, and looks as often as this.
const (
	cutOffTime = 2 * time.Second
	cutOffStep = time.Millisecond
)

// Resize implements driver.CQ. The device leaves the old ring with an entry that says so, and goes on in the new one.
// Entries that have not been polled by then are kept. The kernel releases the old ring when the CQ is polled by a
// command, and the device waits for a doorbell.
func (q *cq) Resize(n int, resize driver.ResizeCommand) (driver.Reply, error) {
	const op = "resize CQ"
	var reply driver.Reply
	most := int(q.ctx.limits.MaxCqd)
	if n > most {
		return reply, provider.Limit(op, "Entries", n, most)
	}
	deferred := 2*n <= most
	if deferred {
		n *= 2
	}
	depth := q.ctx.depth(n+1, most+1)
	if depth == len(q.ring) {
		q.deferred = deferred
		return driver.Reply{Entries: q.entries()}, nil
	}
	mem, err := q.ctx.ringMemory(q.memory, op, depth*entrySize)
	if err != nil {
		return reply, err
	}
	reply, err = resize(n, ioctl.BytesOf(&uapi.BnxtReResizeCqReq{CqVa: addressOf(mem)}), nil)
	if err != nil {
		return reply, provider.Join(driver.Pinned(err, len(mem.Bytes())), mem.Retire())
	}
	q.deferred = deferred
	toggle, ok := q.keep()
	if !ok { // the device may write to either ring
		q.lost = mem
		q.Fail(errNoCutOff)
		reply.Entries = q.entries()
		return reply, errNoCutOff
	}
	err = q.ctx.pollCQ(reply.Handle)
	old := q.mem
	if q.head > 0 { // the device takes an index below the last one for one of the next round
		q.epoch ^= 1
	}
	q.mem, q.ring, q.half, q.head, q.phase = mem, entriesOf(mem, depth), uint32(depth)/2, 0, 1
	q.ctx.bell.ring(ackCutOff, q.number, q.head, q.epoch, toggle)
	reply.Entries = q.entries()
	return reply, provider.Join(err, old.Retire())
}

// keep copies the entries before the last one, whose toggle it returns.
func (q *cq) keep() (toggle uint32, ok bool) {
	most := len(q.kept) + len(q.ring)
	for end := time.Now().Add(cutOffTime); len(q.kept) < most; {
		e, v, there := q.next(0)
		switch {
		case !there && time.Now().After(end):
			return 0, false
		case !there:
			time.Sleep(cutOffStep)
		case v>>typeAt&typeMask == typeCutOff:
			return uint32(v>>cutToggleAt) & cutToggleMask, true
		default:
			q.kept = append(q.kept, cqe{e[0], e[1], e[2], v})
			q.consume()
			q.release()
		}
	}
	return 0, false
}

// errNoCutOff is returned by Poll when completions may have been lost.
var errNoCutOff error = &uverbs.Error{Op: "resize", Kind: uverbs.ErrABI,
	Detail: "the device has not said where the old queue ends: completions may be lost, close the CQ"}

// pollCQ issues the command after which the kernel releases the old ring. It returns no completion, but the kernel
// requires that one is asked for, and could write it.
func (c *deviceContext) pollCQ(handle uint32) error {
	cmd := ioctl.Get()
	defer cmd.Put()
	ioctl.Write[struct {
		uapi.IbUverbsPollCqResp
		_ uapi.IbUverbsWc
	}](cmd, uapi.IB_USER_VERBS_CMD_POLL_CQ,
		&uapi.IbUverbsPollCq{CqHandle: handle, Ne: 1})
	if err := c.dev.Do(cmd); err != nil {
		return provider.KernelError("poll the resized CQ", "", err)
	}
	return nil
}

// entries returns how many completions fit. If the doorbell is deferred, the device may not know yet that half of the
// entries were polled.
func (q *cq) entries() int {
	if q.deferred {
		return len(q.ring) / 2
	}
	return len(q.ring) - 1
}
