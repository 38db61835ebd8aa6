package uverbs

import (
	"fmt"
	"math"
	"time"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// moderationMask selects count and period: IBV_CQ_ATTR_MODERATE.
const moderationMask = 1 << 0

// Moderate makes the device raise an event only after count completions, or after period has passed
// since the first one: ibv_modify_cq(3). The device counts in microseconds, to which period is
// rounded up. The limits are [DeviceAttr.MaxModerateCount] and MaxModeratePeriod. If count and period
// are 0, moderation ends.
//
// On a single-goroutine CQ, only its owner may call Moderate.
//
// It returns [ErrInvalid] if count is not 0 to 65535 or period not 0 to 65535 microseconds,
// [ErrNotSupported] if the device has no moderation, as on rxe, and [ErrClosed] after Close.
func (q *CQ) Moderate(count int, period time.Duration) error {
	const op, most = "moderate", math.MaxUint16 * time.Microsecond
	if count < 0 || count > math.MaxUint16 || period < 0 || period > most {
		return invalid(op, q.String(),
			fmt.Sprintf("count must be 0 to %d and period 0 to %v: %d, %v", math.MaxUint16, most, count, period))
	}
	q.lock()
	defer q.unlock()
	if q.dead.Load() {
		return named(op, q.String(), ErrClosed)
	}
	cmd := ioctl.Get()
	defer cmd.Put()
	req := uapi.IbUverbsExModifyCq{CqHandle: q.handle, AttrMask: moderationMask}
	req.Attr.CqCount = uint16(count)
	req.Attr.CqPeriod = uint16((period + time.Microsecond - 1) / time.Microsecond)
	ioctl.WriteEx[ioctl.Void](cmd, uapi.IB_USER_VERBS_EX_CMD_MODIFY_CQ, &req)
	if err := q.ctx.dev.Do(cmd); err != nil {
		return q.explainModerate(count, period, err)
	}
	return nil
}

func (q *CQ) explainModerate(count int, period time.Duration, err error) error {
	const op = "moderate"
	a, qerr := q.ctx.QueryDevice()
	switch {
	case notSupported(err):
		return q.ctx.wrap(op, q.String(), err, "the device does not gather completions before it raises an event")
	case qerr == nil && (count > a.MaxModerateCount || period > a.MaxModeratePeriod):
		return q.ctx.wrap(op, q.String(), err,
			fmt.Sprintf("count is %d and period %v, the device supports %d and %v at most",
				count, period, a.MaxModerateCount, a.MaxModeratePeriod))
	}
	return q.ctx.wrap(op, q.String(), err, "")
}
