package rxe

import (
	"time"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// preferWrite says which of the two ways a command takes: write(2) on the
// uverbs node, or INVOKE_WRITE by ioctl(2). The kernel refuses the first when
// the process has changed its credentials since it opened the node, and then
// the second is taken from that time on.
//
// BenchmarkDeviceDoorbell measured the two in turn in one guest, under Linux
// 6.1, 6.12 and 7.2. The bare command, as Arm issues it, takes 1.53 to 1.55
// times the instructions by ioctl and 1.34 to 1.52 times the time; a post of
// one WRITE with all that the kernel does for it, 1.04 to 1.07 times the
// instructions.
var preferWrite = true

// A doorbell is what a QP says to the kernel beside its rings.
type doorbell interface {
	// ring tells the kernel to look at the send queue.
	ring() error
	// reset moves the QP to RESET.
	reset() error
	// fail moves the QP to ERR.
	fail() error
}

// A bell issues POST_SEND with no work request in it. It must not be copied,
// and lies on the heap: the kernel writes its reply there.
type bell struct {
	dev     *ioctl.Device
	byWrite bool
	handle  uint32
	frame   bellFrame
	rings   uint32
	long    bool       // the last call that was timed was: see brief
	cmd     *ioctl.Cmd // made when first needed
}

// bellFrame is what write(2) takes, and room for the reply, which the kernel
// does not let one leave out.
type bellFrame struct {
	hdr   uapi.IbUverbsCmdHdr
	req   uapi.IbUverbsPostSend
	reply uapi.IbUverbsPostSendResp
}

// brief is how long a doorbell may take without Go's scheduler being told of it.
// Most kernels leave the sending to a worker, and the doorbell is a matter of a
// few microseconds. Linux 6.1 sends within it, up to 1024 packets: once one has
// taken longer than this the scheduler is told, until one is brief.
const brief = 100 * time.Microsecond

var start = time.Now() // time.Since reads one clock, time.Now two

func newBell(dev *ioctl.Device, byWrite bool, qpHandle uint32) *bell {
	b := &bell{dev: dev, byWrite: byWrite, handle: qpHandle}
	b.frame.req = uapi.IbUverbsPostSend{
		Response: b.frame.replyAddr(),
		QpHandle: qpHandle,
		// The size of a work request is checked although there is none.
		WqeSize: uint32(ioctl.SizeOf[uapi.IbUverbsSendWr]()),
	}
	b.frame.hdr = uapi.IbUverbsCmdHdr{
		Command:  uapi.IB_USER_VERBS_CMD_POST_SEND,
		InWords:  uint16(len(b.frame.bytes()) / 4),
		OutWords: uint16(ioctl.SizeOf[uapi.IbUverbsPostSendResp]() / 4),
	}
	return b
}

func (b *bell) ring() error {
	if b.byWrite {
		if ok, err := b.write(); ok {
			return err
		}
	}
	if b.cmd == nil {
		b.cmd = new(ioctl.Cmd)
		ioctl.Write[uapi.IbUverbsPostSendResp](b.cmd, uapi.IB_USER_VERBS_CMD_POST_SEND, &b.frame.req)
	}
	// The kernel marks the reply's attribute as written and looks at that mark
	// on no way in, so the command can be issued as it stands.
	return b.dev.Do(b.cmd)
}

// write looks at the clock now and then alone, while doorbells are brief: it
// costs some 200 instructions.
func (b *bell) write() (ok bool, err error) {
	timed := b.long || b.rings%16 == 0
	b.rings++
	if !timed {
		return b.dev.Write(b.frame.bytes(), true)
	}
	began := time.Since(start)
	ok, err = b.dev.Write(b.frame.bytes(), !b.long)
	b.long = time.Since(start)-began > brief
	return ok, err
}

func (b *bell) reset() error { return b.enter(uverbs.StateReset) }

func (b *bell) fail() error { return b.enter(uverbs.StateErr) }

func (b *bell) enter(s uverbs.QPState) error {
	c := ioctl.Get()
	defer c.Put()
	ioctl.Write[ioctl.Void](c, uapi.IB_USER_VERBS_CMD_MODIFY_QP, &uapi.IbUverbsModifyQp{
		QpHandle: b.handle, AttrMask: uint32(uverbs.MaskState), QpState: uint8(s)})
	return b.dev.Do(c)
}

// A notify arms a completion queue by REQ_NOTIFY_CQ, which has no reply. It
// must not be copied.
type notify struct {
	dev     *ioctl.Device
	byWrite bool
	frame   notifyFrame
	cmd     *ioctl.Cmd // made when first needed
}

type notifyFrame struct {
	hdr uapi.IbUverbsCmdHdr
	req uapi.IbUverbsReqNotifyCq
}

func newNotify(dev *ioctl.Device, byWrite bool, cqHandle uint32) *notify {
	n := &notify{dev: dev, byWrite: byWrite}
	n.frame.req.CqHandle = cqHandle
	n.frame.hdr = uapi.IbUverbsCmdHdr{
		Command: uapi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ,
		InWords: uint16(len(n.frame.bytes()) / 4),
	}
	return n
}

func (n *notify) arm(solicitedOnly bool) error {
	n.frame.req.SolicitedOnly = 0
	if solicitedOnly {
		n.frame.req.SolicitedOnly = 1
	}
	if n.byWrite {
		if ok, err := n.dev.Write(n.frame.bytes(), true); ok {
			return err
		}
	}
	if n.cmd == nil {
		n.cmd = new(ioctl.Cmd)
	}
	ioctl.Write[ioctl.Void](n.cmd, uapi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, &n.frame.req)
	return n.dev.Do(n.cmd)
}
