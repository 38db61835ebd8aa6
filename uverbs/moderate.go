package uverbs

import (
	"fmt"
	"math"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// moderationMask selects count and period: IBV_CQ_ATTR_MODERATE.
const moderationMask = 1 << 0

// Moderate makes the device raise an event only after count completions, or period
// microseconds after the first one: ibv_modify_cq(3). The limits are
// [DeviceAttr.MaxModerateCount] and MaxModeratePeriod. If count and period are 0,
// moderation ends.
//
// On a single-goroutine CQ, only its owner may call Moderate.
//
// It returns [ErrNotSupported] if the device has no moderation, as on rxe, and
// [ErrClosed] after Close.
func (q *CQ) Moderate(count, period int) error {
	const op = "moderate"
	if count < 0 || count > math.MaxUint16 || period < 0 || period > math.MaxUint16 {
		return invalid(op, q.String(), fmt.Sprintf("count and period must be 0 to 65535: %d, %d", count, period))
	}
	q.lock()
	defer q.unlock()
	if q.dead.Load() {
		return ErrClosed
	}
	cmd := ioctl.Get()
	defer cmd.Put()
	req := uapi.IbUverbsExModifyCq{CqHandle: q.handle, AttrMask: moderationMask}
	req.Attr.CqCount, req.Attr.CqPeriod = uint16(count), uint16(period)
	ioctl.WriteEx[ioctl.Void](cmd, uapi.IB_USER_VERBS_EX_CMD_MODIFY_CQ, &req)
	if err := q.ctx.dev.Do(cmd); err != nil {
		return q.explainModerate(count, period, err)
	}
	return nil
}

func (q *CQ) explainModerate(count, period int, err error) error {
	const op = "moderate"
	a, qerr := q.ctx.QueryDevice()
	switch {
	case notSupported(err):
		return q.ctx.wrap(op, q.String(), err, "the device does not gather completions before it raises an event")
	case qerr == nil && (count > a.MaxModerateCount || period > a.MaxModeratePeriod):
		return q.ctx.wrap(op, q.String(), err,
			fmt.Sprintf("count is %d and period %d us, the device accepts %d and %d us at most",
				count, period, a.MaxModerateCount, a.MaxModeratePeriod))
	}
	return q.ctx.wrap(op, q.String(), err, "")
}
