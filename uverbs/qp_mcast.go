package uverbs

import (
	"errors"
	"slices"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

const (
	opAttach = "attach to group"
	opDetach = "detach from group"
)

// AttachMcast attaches a UD QP to a multicast group, so that it receives the
// group's packets: ibv_attach_mcast(3). lid is the group's LID on InfiniBand and is
// ignored on RoCE. Attaching a QP again to the same group has no effect.
//
// AttachMcast does not join the group: the network interface and the switches must
// already deliver its packets. Package cm joins groups, and so does a socket on the
// same interface (IGMP, MLD).
//
// It returns [ErrInvalid] if the QP is not UD or gid is not a multicast address,
// and [ErrClosed] after Close.
func (q *QP) AttachMcast(gid GID, lid uint16) error {
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	if q.sendGate.Load() == gateClosed {
		return named(opAttach, q.String(), ErrClosed)
	}
	g := mcastGroup{gid, lid}
	if err := q.mcast(uapi.IB_USER_VERBS_CMD_ATTACH_MCAST, g); err != nil {
		return q.explainMcast(opAttach, g, err)
	}
	if !slices.Contains(q.groups, g) {
		q.groups = append(q.groups, g)
	}
	return nil
}

// DetachMcast detaches the QP from a group that it was attached to with
// [QP.AttachMcast]: ibv_detach_mcast(3). Close detaches the QP from all its groups.
// DetachMcast returns [ErrInvalid] if the QP is not attached to the group, and
// [ErrClosed] after Close.
func (q *QP) DetachMcast(gid GID, lid uint16) error {
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	if q.sendGate.Load() == gateClosed {
		return named(opDetach, q.String(), ErrClosed)
	}
	return q.detach(mcastGroup{gid, lid})
}

func (q *QP) detach(g mcastGroup) error {
	err := q.mcast(uapi.IB_USER_VERBS_CMD_DETACH_MCAST, g)
	if err != nil && !q.ctx.isDeviceGone(err) { // a removed device no longer has groups
		return q.explainMcast(opDetach, g, err)
	}
	q.groups = slices.DeleteFunc(q.groups, func(have mcastGroup) bool { return have == g })
	return nil
}

// detachAll detaches the QP from all groups. The kernel does not destroy a QP that
// is attached to one.
func (q *QP) detachAll() error {
	for len(q.groups) > 0 {
		if err := q.detach(q.groups[0]); err != nil {
			return err
		}
	}
	return nil
}

// mcast issues ATTACH_MCAST or DETACH_MCAST, whose requests are the same.
func (q *QP) mcast(command uint64, g mcastGroup) error {
	cmd := ioctl.Get()
	defer cmd.Put()
	ioctl.Write[ioctl.Void](cmd, command, &uapi.IbUverbsAttachMcast{Gid: g.gid, QpHandle: q.handle, Mlid: g.lid})
	return q.ctx.dev.Do(cmd)
}

func (q *QP) explainMcast(op string, g mcastGroup, err error) error {
	detail := ""
	switch {
	case errors.Is(err, unix.ENOMEM):
		detail = "the kernel has no memory for it, or the device no group or attachment left"
	case !errors.Is(err, unix.EINVAL):
	case q.cfg.Type != UD:
		detail = "multicast is for UD QPs, this one is " + q.cfg.Type.String()
	case !g.gid.Addr().IsMulticast():
		detail = g.gid.String() + " is not a multicast address"
	case op == opDetach:
		detail = "the QP is not attached to " + g.gid.String() + " with LID " + sitoa(int(g.lid))
	default:
		detail = "the device does not accept " + g.gid.String() +
			"; on InfiniBand the LID must be the group's, 0xc000 to 0xfffe"
	}
	return q.ctx.wrap(op, q.String(), err, detail)
}
