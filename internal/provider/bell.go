package provider

import (
	"time"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A Bell is the doorbell of a QP whose ring the kernel reads: the command POST_SEND
// without work requests. It must be on the heap and must not be copied: the kernel
// writes its reply there.
//
// It is issued with write(2) on the uverbs node, or as INVOKE_WRITE with ioctl(2).
// The kernel refuses write(2) if the process has changed its credentials since it
// opened the node. From then on, ioctl(2) is used.
type Bell struct {
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
// rxe of Linux 6.1 sends up to 1024 packets within the doorbell, and siw writes to
// the TCP connection. Once a doorbell has taken longer than brief, the scheduler is
// notified, until one is brief again.
const brief = 100 * time.Microsecond

var start = time.Now() // time.Since reads one clock, time.Now reads two

// Init sets the QP. byWrite selects write(2).
func (b *Bell) Init(dev *ioctl.Device, byWrite bool, qpHandle uint32) {
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

// Device returns the device of the QP.
func (b *Bell) Device() *ioctl.Device { return b.dev }

// Handle returns the kernel's handle of the QP.
func (b *Bell) Handle() uint32 { return b.handle }

// Ring makes the kernel read the send queue. An errno is returned unchanged.
func (b *Bell) Ring() error {
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
func (b *Bell) write() (ok bool, err error) {
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
