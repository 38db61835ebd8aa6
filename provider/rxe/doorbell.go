package rxe

import (
	"time"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// preferWrite selects how commands are issued: with write(2) on the uverbs node, or
// as INVOKE_WRITE with ioctl(2). The kernel refuses write(2) if the process has
// changed its credentials since it opened the node. From then on, ioctl(2) is used.
//
// BenchmarkDeviceDoorbell compared the two in one guest, on Linux 6.1, 6.12 and
// 7.2. With ioctl(2), the command alone, as issued by Arm, needs 1.53 to 1.55 times
// the instructions and 1.34 to 1.52 times the time. A post of one WRITE, including
// the kernel's work for it, needs 1.04 to 1.07 times the instructions.
var preferWrite = true

// A doorbell is the set of commands that a QP issues, besides using its rings.
type doorbell interface {
	// ring makes the kernel read the send queue.
	ring() error
	// reset moves the QP to RESET.
	reset() error
	// fail moves the QP to ERR.
	fail() error
}

// A bell issues POST_SEND without work requests. It must be on the heap and must
// not be copied: the kernel writes its reply there.
type bell struct {
	dev     *ioctl.Device
	byWrite bool
	handle  uint32
	frame   bellFrame
	rings   uint32
	long    bool       // the last timed call took longer than brief
	cmd     *ioctl.Cmd // created when first needed
}

// bellFrame is the argument of write(2), and the memory for the reply, which the
// kernel does not allow to be omitted.
type bellFrame struct {
	hdr   uapi.IbUverbsCmdHdr
	req   uapi.IbUverbsPostSend
	reply uapi.IbUverbsPostSendResp
}

// brief is how long a doorbell may take without notifying Go's scheduler. On most
// kernels a worker does the sending, and the doorbell takes a few microseconds.
// Linux 6.1 sends up to 1024 packets within the doorbell. Once a doorbell has taken
// longer than brief, the scheduler is notified, until one is brief again.
const brief = 100 * time.Microsecond

var start = time.Now() // time.Since reads one clock, time.Now reads two

func (b *bell) init(dev *ioctl.Device, byWrite bool, qpHandle uint32) {
	b.dev, b.byWrite, b.handle = dev, byWrite, qpHandle
	b.frame.req = uapi.IbUverbsPostSend{
		Response: b.frame.replyAddr(),
		QpHandle: qpHandle,
		// The kernel checks this size although there are no work requests.
		WqeSize: uint32(ioctl.SizeOf[uapi.IbUverbsSendWr]()),
	}
	b.frame.hdr = uapi.IbUverbsCmdHdr{
		Command:  uapi.IB_USER_VERBS_CMD_POST_SEND,
		InWords:  uint16(len(b.frame.bytes()) / 4),
		OutWords: uint16(ioctl.SizeOf[uapi.IbUverbsPostSendResp]() / 4),
	}
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
	// The kernel marks the reply's attribute as written, but ignores that mark in its
	// input. So the command can be issued again unchanged.
	return b.dev.Do(b.cmd)
}

// write issues the command with write(2). While doorbells are brief, it times only
// every 16th of them, because reading the clock costs about 200 instructions.
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

// A notify arms a completion queue with REQ_NOTIFY_CQ, which has no reply. It must
// not be copied.
type notify struct {
	dev     *ioctl.Device
	byWrite bool
	frame   notifyFrame
	cmd     *ioctl.Cmd // created when first needed
}

type notifyFrame struct {
	hdr uapi.IbUverbsCmdHdr
	req uapi.IbUverbsReqNotifyCq
}

func (n *notify) init(dev *ioctl.Device, byWrite bool, cqHandle uint32) {
	n.dev, n.byWrite = dev, byWrite
	n.frame.req.CqHandle = cqHandle
	n.frame.hdr = uapi.IbUverbsCmdHdr{
		Command: uapi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ,
		InWords: uint16(len(n.frame.bytes()) / 4),
	}
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
