package ether

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// Ready moves the WQ from RESET to RDY, in which receives can be posted. The errors
// are those of [WQ.Modify].
func (q *WQ) Ready() error { return q.Modify(WQAttr{State: WQStateRdy}, WQMaskState) }

// Modify changes the state or the flags of the WQ: ibv_modify_wq(3). The
// transitions are from RESET to RDY, and from any state to ERR or RESET. In ERR,
// posted receives are flushed. RESET empties the queue and drops its unpolled
// completions. Modify returns uverbs.ErrInvalid for another transition,
// uverbs.ErrNotSupported for a flag that the device cannot change, and uverbs.ErrClosed after
// Close.
func (q *WQ) Modify(a WQAttr, m WQMask) error {
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	if q.gate.Load() == gateClosed {
		return q.life.Explain("modify", uverbs.ErrClosed)
	}
	// No post may come between the kernel's transition and the update of the queue.
	q.lock()
	defer q.unlock()
	err := q.impl.Modify(func(uhwIn, _ []byte) (driver.Reply, error) {
		return driver.Reply{Handle: driver.HandleOf(q.life)}, q.modifyCommand(&a, m, uhwIn)
	})
	if err != nil {
		err = q.life.Explain("modify", err)
		return explained(err, func(err error) string { return q.explainModify(&a, m, err) })
	}
	if m&WQMaskState == 0 {
		return nil
	}
	q.state = a.State
	if a.State != WQStateReset {
		q.setGate(gateOpen)
		return nil
	}
	q.setGate(gateReset)
	driver.Purge(q.cq, q.impl)
	return q.impl.Reset()
}

func (q *WQ) modifyCommand(a *WQAttr, m WQMask, uhwIn []byte) error {
	cmd := ioctl.Get()
	defer cmd.Put()
	ioctl.WriteEx[ioctl.Void](cmd, uapi.IB_USER_VERBS_EX_CMD_MODIFY_WQ, &uapi.IbUverbsExModifyWq{AttrMask: uint32(m),
		WqHandle: driver.HandleOf(q.life), WqState: uint32(a.State), CurrWqState: uint32(a.CurState),
		Flags: uint32(a.Flags), FlagsMask: uint32(a.FlagsMask)})
	cmd.UHW(uhwIn, 0)
	return q.dev.Do(cmd)
}

// explainModify explains why the kernel refused to modify the queue.
func (q *WQ) explainModify(a *WQAttr, m WQMask, err error) string {
	switch {
	case !errors.Is(err, unix.EINVAL):
		if m&WQMaskFlags != 0 && errors.Is(err, uverbs.ErrNotSupported) {
			return "the device does not change this flag of a WQ: give it to CreateWQ"
		}
	case m&^(WQMaskState|WQMaskCurState|WQMaskFlags) != 0 || m == 0:
		return fmt.Sprintf("the mask is %#x: name WQMaskState, WQMaskCurState or WQMaskFlags", uint32(m))
	case m&WQMaskCurState != 0 && a.CurState != q.state:
		return fmt.Sprintf("CurState is %v, the WQ is in state %v", a.CurState, q.state)
	case m&WQMaskState != 0:
		return fmt.Sprintf("a WQ in state %v does not go to %v: move it to RESET first, then to RDY", q.state, a.State)
	}
	return ""
}
