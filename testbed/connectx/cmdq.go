package connectx

import (
	"math/bits"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

const (
	cmdInterfaceRev = 5
	logCmdqSize     = 5 // entries
	logCmdqStride   = 6 // bytes
	pciTransport    = 7 // the type of an entry

	boxData   = 512
	maxInput  = 8 << 20
	maxOutput = 1 << 20

	// The interface state is set together with the address of the queue.
	nicStateShift = 8
	nicStateMask  = 7
	nicFull       = 0
	nicDisabled   = 1
	nicReset      = 7
)

// A delivery is the transport status of a command. It is independent of the
// command's own status.
type delivery uint8

const (
	delivered           delivery = 0x0
	deliveryToken       delivery = 0x2
	deliveryBlockNumber delivery = 0x3
	deliveryOutputAlign delivery = 0x4
	deliveryInputAlign  delivery = 0x5
	deliveryInputLength delivery = 0x7
	deliveryOutputSize  delivery = 0x8
	deliveryDescriptor  delivery = 0x10
)

// commandQueue is the queue of the driver's commands.
type commandQueue struct {
	addr  uint64
	high  uint32 // upper half of the address, until the lower half is stored
	state uint8  // of the interface: 0 full, 1 disabled, 7 to be reset
	set   bool
}

// setCommandQueue processes the store to the lower half of the command queue's
// address, which also sets the interface state.
func (d *Device) setCommandQueue(low uint32) {
	q := &d.cmdq
	q.state = uint8(low >> nicStateShift & nicStateMask)
	q.addr = uint64(q.high)<<32 | uint64(low&^0xfff)
	q.set = q.state == nicFull
	if q.state == nicReset { // the reset completes at once
		q.state = nicDisabled
	}
	switch {
	case q.state != nicFull: // the driver has released all objects
		d.health = health{}
		d.disable()
	case d.enabled: // the driver starts again after it lost the device
		d.disable()
	}
}

// ringCommands executes the commands of a vector of entries, and reports their
// completion to the driver.
func (d *Device) ringCommands(vector uint32) {
	if !d.cmdq.set || d.health.syndrome != 0 {
		return
	}
	events := d.eqs.command != nil // at the time of the doorbell
	var done uint32
	for ; vector != 0; vector &= vector - 1 {
		i := bits.TrailingZeros32(vector)
		if d.command(i) {
			done |= 1 << i
		}
	}
	if eq := d.eqs.command; events && eq != nil && done != 0 {
		e := newEvent(eventCommand)
		prm.EQECommandVector.Set(e, uint64(done))
		d.post(eq, e)
	}
}

// command executes the command of an entry. It reports false if the entry has
// no command.
func (d *Device) command(i int) bool {
	entry, err := d.view(d.cmdq.addr+uint64(i)<<logCmdqStride, prm.CmdEntry.Size)
	if err != nil {
		d.report("entry %d of the command queue: %w", i, err)
		return false
	}
	if !prm.CmdEntryOwnership.Is(entry) {
		return false
	}
	how := d.deliver(entry)
	if how != delivered {
		d.config.Tracer.Emit("delivery", plain("entry", i), plain("status", int(how)))
		d.report("entry %d of the command queue: delivery status %#x", i, uint8(how))
	}
	var last [4]byte
	copy(last[:], entry[60:])
	last[3] = byte(how) << 1
	engine.StoreLast(entry[60:], last[:])
	return true
}

// deliver reads a command's input, executes it and stores the output.
func (d *Device) deliver(entry []byte) delivery {
	n, m := prm.CmdEntryInputLength.Get(entry), prm.CmdEntryOutputLength.Get(entry)
	switch {
	case prm.CmdEntryType.Get(entry) != pciTransport:
		return deliveryDescriptor
	case n < 8 || n > maxInput:
		return deliveryInputLength
	case m < 8 || m > maxOutput:
		return deliveryOutputSize
	}
	token := prm.CmdEntryToken.Get(entry)
	in := make([]byte, n)
	rest := in[copy(in, prm.CmdEntryInput.Bytes(entry)):]
	how := d.boxes(prm.CmdEntryInputMailbox.Get(entry), token, len(rest), deliveryInputAlign, func(box []byte) {
		rest = rest[copy(rest, prm.MailboxData.Bytes(box)):]
	})
	if how != delivered {
		return how
	}
	out := d.execute(in, int(m))
	rest = out[copy(prm.CmdEntryOutput.Bytes(entry), out):]
	return d.boxes(prm.CmdEntryOutputMailbox.Get(entry), token, len(rest), deliveryOutputAlign, func(box []byte) {
		rest = rest[copy(prm.MailboxData.Bytes(box), rest):]
	})
}

// boxes calls f with each mailbox of a chain with n bytes.
func (d *Device) boxes(addr, token uint64, n int, unaligned delivery, f func(box []byte)) delivery {
	for i := 0; i*boxData < n; i++ {
		if addr == 0 || addr%1024 != 0 {
			return unaligned
		}
		box, err := d.view(addr, prm.Mailbox.Size)
		if err != nil {
			d.report("a mailbox: %w", err)
			return unaligned
		}
		if prm.MailboxToken.Get(box) != token {
			return deliveryToken
		}
		if prm.MailboxBlockNumber.Get(box) != uint64(i) {
			return deliveryBlockNumber
		}
		f(box)
		addr = prm.MailboxNext.Get(box)
	}
	return delivered
}
