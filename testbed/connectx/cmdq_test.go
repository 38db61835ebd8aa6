package connectx

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// TestManyCommands checks that all entries of a doorbell are executed,
// including the last one, and that entries owned by the driver are not.
func TestManyCommands(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	nop := input(0x80d, 0, prm.NOPIn, 0, nil)
	entries := map[int][]byte{3: v.put(3, nop, 16), 17: v.put(17, nop, 16), 31: v.put(31, nop, 16)}
	idle := v.put(5, nop, 16)
	prm.CmdEntryOwnership.Set(idle, 0)
	prm.CmdEntryOutput.Bytes(idle)[0] = 0xee
	v.ring(1<<3 | 1<<5 | 1<<17 | 1<<31)
	for i, e := range entries {
		if prm.CmdEntryOwnership.Is(e) {
			t.Errorf("entry %d is still owned by the device", i)
		}
	}
	if prm.CmdEntryOutput.Bytes(idle)[0] != 0xee {
		t.Error("an entry owned by the driver was executed")
	}
	v.reported(0)
}

// TestCommandEvents checks that commands have events after their event queue
// was created, that creating it has none, and that commands of one doorbell
// have one event.
func TestCommandEvents(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	const logSize = 2
	eqn, ring := v.createEQ(logSize, 1<<eventCommand, 5)
	if v.event(ring, logSize, 0) != nil {
		t.Fatal("the creation of the event queue has an event")
	}
	v.arm(eqn, 0, true)
	if len(v.host.interrupts) != 0 {
		t.Fatalf("interrupts %v before the first event", v.host.interrupts)
	}
	nop := input(0x80d, 0, prm.NOPIn, 0, nil)
	for i := range 9 { // twice around the ring
		v.put(4, nop, 16)
		v.put(31, nop, 16)
		v.ring(1<<4 | 1<<31)
		e := v.event(ring, logSize, i)
		if e == nil {
			t.Fatalf("event %d does not exist", i)
		}
		if got := prm.EQECommandVector.Get(e); prm.EQEType.Get(e) != eventCommand || got != 1<<4|1<<31 {
			t.Errorf("event %d: type %#x, vector %#x", i, prm.EQEType.Get(e), got)
		}
		if len(v.host.interrupts) != i+1 || v.host.interrupts[i] != 5 {
			t.Fatalf("interrupts %v after event %d", v.host.interrupts, i)
		}
		v.arm(eqn, uint32(i+1), true)
	}
	v.run(0x302, 0, func(in []byte) { prm.DestroyEQInEQNumber.Set(in, uint64(eqn)) })
	if v.event(ring, logSize, 9) != nil {
		t.Error("the destruction of the event queue has an event")
	}
	v.reported(0)
}

// TestDelivery checks that an invalid entry or mailbox is reported by the
// delivery status, and that the command is not executed.
func TestDelivery(t *testing.T) {
	for _, tt := range []struct {
		name   string
		want   delivery
		breaks func(v *driver, entry []byte)
	}{
		{"type", deliveryDescriptor, func(v *driver, e []byte) { prm.CmdEntryType.Set(e, 1) }},
		{"input too short", deliveryInputLength, func(v *driver, e []byte) { prm.CmdEntryInputLength.Set(e, 4) }},
		{"input too long", deliveryInputLength, func(v *driver, e []byte) { prm.CmdEntryInputLength.Set(e, 1<<31) }},
		{"output too short", deliveryOutputSize, func(v *driver, e []byte) { prm.CmdEntryOutputLength.Set(e, 0) }},
		{"output too long", deliveryOutputSize, func(v *driver, e []byte) { prm.CmdEntryOutputLength.Set(e, 1<<30) }},
		{"no input mailbox", deliveryInputAlign, func(v *driver, e []byte) { prm.CmdEntryInputMailbox.Set(e, 0) }},
		{"input mailbox unaligned", deliveryInputAlign,
			func(v *driver, e []byte) { prm.CmdEntryInputMailbox.Set(e, v.boxes+64) }},
		{"missing input mailbox", deliveryInputAlign, func(v *driver, e []byte) { prm.CmdEntryInputMailbox.Set(e, 1<<50) }},
		{"chain too short", deliveryInputAlign, func(v *driver,
			e []byte) {
			prm.MailboxNext.Set(v.host.bytes(v.boxes, 576), 0)
		}},
		{"chain in a circle", deliveryBlockNumber, func(v *driver,
			e []byte) {
			prm.MailboxNext.Set(v.host.bytes(v.boxes, 576), v.boxes)
		}},
		{"token", deliveryToken, func(v *driver, e []byte) { prm.MailboxToken.Set(v.host.bytes(v.boxes+1024, 576), 99) }},
		{"block number", deliveryBlockNumber, func(v *driver,
			e []byte) {
			prm.MailboxBlockNumber.Set(v.host.bytes(v.boxes, 576), 7)
		}},
		{"no output mailbox", deliveryOutputAlign, func(v *driver, e []byte) { prm.CmdEntryOutputMailbox.Set(e, 0) }},
	} {
		v := newDriver(t, nil)
		v.run(0x104, 0, nil)
		entry := v.put(0, input(0x109, 0, prm.SetHCACapIn, 0, nil), 600)
		tt.breaks(v, entry)
		v.ring(1)
		if got := delivery(prm.CmdEntryStatus.Get(entry)); got != tt.want || prm.CmdEntryOwnership.Is(entry) {
			t.Errorf("%s: delivery status %#x, want %#x; the device's: %v", tt.name, got, tt.want,
				prm.CmdEntryOwnership.Is(entry))
		}
	}
}

// TestShortCommands checks that missing bytes of the input are zeros, and that
// a short output is truncated.
func TestShortCommands(t *testing.T) {
	v := newDriver(t, nil)
	v.run(0x104, 0, nil)
	in := make([]byte, 8)
	prm.CmdOpcode.Set(in, 0x107)
	prm.CmdOpMod.Set(in, pagesBoot)
	entry := v.put(0, in, 12)
	prm.CmdEntryOutput.Bytes(entry)[12] = 0xee
	v.ring(1)
	out := prm.CmdEntryOutput.Bytes(entry)
	if prm.CmdStatus.Is(out) || out[12] != 0xee {
		t.Errorf("output % x", out)
	}
}

// TestNoQueue checks that doorbells of a missing queue have no effect.
func TestNoQueue(t *testing.T) {
	v := newDriver(t, nil)
	v.loop.Run(v.device.Reset)
	v.ring(^uint32(0))
	v.queue = 1 << 45
	v.setQueue()
	v.ring(1)
	v.reported(1)
	v.write(regCmdqDoorbell, []byte{1})
	v.loop.Run(func() { v.device.Plug(nil) })
	v.ring(1)
}

// TestDisabledInterface checks that disabling the interface releases all
// resources, and that the driver can start again.
func TestDisabledInterface(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	v.loop.Run(func() { v.device.SetHealth(1) })
	v.write(regCmdqLow, []byte{0, 0, nicReset, 0}) // the reset ends as disabled
	if got := v.read(0x14); got>>nicStateShift&nicStateMask != 1 {
		t.Errorf("the state of the interface is %d", got>>nicStateShift&nicStateMask)
	}
	if got := v.read(0x23c); got != 0 || v.device.PagesHeld() != 0 {
		t.Errorf("health syndrome %#x, %d pages held", got, v.device.PagesHeld())
	}
	for range 2 { // the second time, nothing was released before
		v.pages = make(map[uint64]bool)
		v.setQueue()
		v.boot()
	}
}
