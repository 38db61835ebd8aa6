package uverbs

import (
	"errors"
	"slices"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// A mcastGroup is what a QP can be attached to. The LID counts on InfiniBand.
type mcastGroup struct {
	gid GID
	lid uint16
}

const (
	opAttach = "attach to group"
	opDetach = "detach from group"
)

// AttachMcast lets a UD QP receive what is sent to a multicast group:
// ibv_attach_mcast(3). lid is the group's LID on InfiniBand, and not used on
// RoCE. Attaching twice to the same group is one attachment.
//
// It does not join the group: network interface and switches must carry its
// packets. Package cm joins, as does a socket of the group (IGMP, MLD) on the
// same interface. [ErrInvalid] for a QP that is not UD, or a GID that is no
// group's; [ErrClosed] after Close.
func (q *QP) AttachMcast(gid GID, lid uint16) error {
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	if q.sendGate.Load() == gateClosed {
		return ErrClosed
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

// DetachMcast ends what [QP.AttachMcast] began: ibv_detach_mcast(3). Close
// does it for groups that are left. [ErrInvalid] for a group that the QP is not
// attached to, [ErrClosed] after Close.
func (q *QP) DetachMcast(gid GID, lid uint16) error {
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	if q.sendGate.Load() == gateClosed {
		return ErrClosed
	}
	return q.detach(mcastGroup{gid, lid})
}

func (q *QP) detach(g mcastGroup) error {
	err := q.mcast(uapi.IB_USER_VERBS_CMD_DETACH_MCAST, g)
	if err != nil && !errors.Is(err, unix.EIO) { // a device that was removed has taken its groups along
		return q.explainMcast(opDetach, g, err)
	}
	q.groups = slices.DeleteFunc(q.groups, func(have mcastGroup) bool { return have == g })
	return nil
}

// detachAll leaves all groups: the kernel does not destroy a QP that is in one.
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
		detail = g.gid.String() + " is no multicast address"
	case op == opDetach:
		detail = "the QP is not attached to " + g.gid.String() + " with LID " + sitoa(int(g.lid))
	default:
		detail = "the device does not take " + g.gid.String() + "; on InfiniBand the LID must be the group's, 0xc000 to 0xfffe"
	}
	return q.ctx.wrap(op, q.String(), err, detail)
}
