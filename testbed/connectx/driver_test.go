package connectx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// A host is a machine with memory from hostBase on, whose pages a driver
// allocates.
type host struct {
	memory     []byte
	next       uint64
	interrupts []int
}

const (
	hostBase = 0x10000
	hostSize = 8 << 20
)

func newHost() *host { return &host{memory: make([]byte, hostSize), next: hostBase} }

func (h *host) View(addr uint64, n int) ([]byte, error) {
	if addr < hostBase || n < 0 || addr-hostBase > hostSize || uint64(n) > hostSize-(addr-hostBase) {
		return nil, errors.New("no memory there")
	}
	return h.memory[addr-hostBase:][:n:n], nil
}

func (h *host) Interrupt(vector int) error {
	h.interrupts = append(h.interrupts, vector)
	return nil
}

// alloc allocates n contiguous pages.
func (h *host) alloc(n int) uint64 {
	addr := h.next
	h.next += uint64(n) * pageSize
	return addr
}

func (h *host) bytes(addr uint64, n int) []byte {
	b, err := h.View(addr, n)
	if err != nil {
		panic(err)
	}
	return b
}

// A driver does what mlx5_core does, as far as the tests need it.
type driver struct {
	t      *testing.T
	loop   *loop.Loop
	device *Device
	host   *host
	queue  uint64 // the command queue
	boxes  uint64 // mailboxes for input and output
	pages  map[uint64]bool
	uar    uint32
	faults []error
	choose func(page []byte) // changes the general capabilities set by boot; may be nil
}

const testGUID = 0x0002c90300a0b0c1

// newDriver plugs a device into a machine and sets up the command queue.
func newDriver(t *testing.T, change func(*Config)) *driver {
	t.Helper()
	v := &driver{t: t, loop: new(loop.Loop), host: newHost(), pages: make(map[uint64]bool)}
	c := Config{Loop: v.loop, GUID: testGUID, Report: func(err error) { v.faults = append(v.faults, err) }}
	if change != nil {
		change(&c)
	}
	var err error
	if v.device, err = New(c); err != nil {
		t.Fatal(err)
	}
	v.loop.Run(func() { v.device.Plug(v.host) })
	v.queue, v.boxes = v.host.alloc(1), v.host.alloc(64)
	v.setQueue()
	return v
}

func (v *driver) setQueue() {
	v.write(regCmdqHigh, binary.BigEndian.AppendUint32(nil, uint32(v.queue>>32)))
	v.write(regCmdqLow, binary.BigEndian.AppendUint32(nil, uint32(v.queue)))
}

func (v *driver) write(offset int, b []byte) {
	v.loop.Run(func() { v.device.WriteBAR(uint64(offset), b) })
}

func (v *driver) read(offset int) uint32 {
	var b [4]byte
	v.loop.Run(func() { v.device.ReadBAR(uint64(offset), b[:]) })
	return binary.BigEndian.Uint32(b[:])
}

// ring rings the doorbell of the command queue.
func (v *driver) ring(vector uint32) {
	v.write(regCmdqDoorbell, binary.BigEndian.AppendUint32(nil, vector))
}

// chain links mailboxes for the part of n bytes that is not inline, and returns
// the first.
func (v *driver) chain(first uint64, n int, token byte) uint64 {
	n -= 16
	if n <= 0 {
		return 0
	}
	for i := 0; i*boxData < n; i++ {
		addr := first + uint64(i)*1024
		box := v.host.bytes(addr, prm.Mailbox.Size)
		clear(box)
		prm.MailboxToken.Set(box, uint64(token))
		prm.MailboxBlockNumber.Set(box, uint64(i))
		if (i+1)*boxData < n {
			prm.MailboxNext.Set(box, addr+1024)
		}
	}
	return first
}

// put writes a command to an entry of the queue.
func (v *driver) put(i int, in []byte, outLength int) []byte {
	token := byte(i + 1)
	entry := v.host.bytes(v.queue+uint64(i)*64, 64)
	clear(entry)
	prm.CmdEntryType.Set(entry, 7)
	prm.CmdEntryToken.Set(entry, uint64(token))
	prm.CmdEntryInputLength.Set(entry, uint64(len(in)))
	prm.CmdEntryOutputLength.Set(entry, uint64(outLength))
	inBoxes, outBoxes := v.boxes, v.boxes+128<<10
	prm.CmdEntryInputMailbox.Set(entry, v.chain(inBoxes, len(in), token))
	prm.CmdEntryOutputMailbox.Set(entry, v.chain(outBoxes, outLength, token))
	rest := in[copy(prm.CmdEntryInput.Bytes(entry), in):]
	for box := inBoxes; len(rest) > 0; box += 1024 {
		rest = rest[copy(v.host.bytes(box, boxData), rest):]
	}
	prm.CmdEntryOwnership.Set(entry, 1)
	return entry
}

// get reads the output of the command in an entry.
func (v *driver) get(entry []byte) []byte {
	out := make([]byte, prm.CmdEntryOutputLength.Get(entry))
	rest := out[copy(out, prm.CmdEntryOutput.Bytes(entry)):]
	for box := prm.CmdEntryOutputMailbox.Get(entry); len(rest) > 0; {
		b := v.host.bytes(box, prm.Mailbox.Size)
		rest = rest[copy(rest, b[:boxData]):]
		box = prm.MailboxNext.Get(b)
	}
	return out
}

// input returns the input of a command, n bytes longer than its layout.
func input(opcode uint16, opMod int, l *prm.Layout, n int, fill func(in []byte)) []byte {
	in := make([]byte, l.Size+n)
	prm.CmdOpcode.Set(in, uint64(opcode))
	prm.CmdOpMod.Set(in, uint64(opMod))
	if fill != nil {
		fill(in)
	}
	return in
}

// try executes a command and returns its output, which may have any status.
func (v *driver) try(opcode uint16, opMod, extraIn, extraOut int, fill func(in []byte)) []byte {
	v.t.Helper()
	in, out := prm.NOPIn, prm.NOPOut
	if c := commandOf(opcode); c != nil {
		in, out = c.in, c.out
	}
	entry := v.put(0, input(opcode, opMod, in, extraIn, fill), out.Size+extraOut)
	v.ring(1)
	if prm.CmdEntryOwnership.Is(entry) {
		v.t.Fatalf("opcode %#x: the entry is still owned by the device", opcode)
	}
	if s := prm.CmdEntryStatus.Get(entry); s != 0 {
		v.t.Fatalf("opcode %#x: delivery status %#x", opcode, s)
	}
	return v.get(entry)
}

// list executes a command that must succeed, with n extra bytes of input or
// output.
func (v *driver) list(opcode uint16, opMod, extraIn, extraOut int, fill func(in []byte)) []byte {
	v.t.Helper()
	out := v.try(opcode, opMod, extraIn, extraOut, fill)
	if prm.CmdStatus.Is(out) {
		v.t.Fatalf("%#x: %s", opcode, hexStatus(out))
	}
	return out
}

// run executes a command that must succeed.
func (v *driver) run(opcode uint16, opMod int, fill func(in []byte)) []byte {
	v.t.Helper()
	return v.list(opcode, opMod, 0, 0, fill)
}

// refused executes a command that must fail with a status.
func (v *driver) refused(opcode uint16, opMod int, want status, why reason, fill func(in []byte)) {
	v.t.Helper()
	out := v.try(opcode, opMod, 0, 0, fill)
	s, syndrome := status(prm.CmdStatus.Get(out)), prm.CmdSyndrome.Get(out)
	if s != want || syndrome != uint64(opcode)<<16|uint64(why) {
		v.t.Errorf("%#x: %s; want %#x, %#x", opcode, hexStatus(out), want, uint64(opcode)<<16|uint64(why))
	}
}

func hexStatus(out []byte) string {
	return fmt.Sprintf("status %#x, syndrome %#x", prm.CmdStatus.Get(out), prm.CmdSyndrome.Get(out))
}

// give gives the firmware the pages that it requests.
func (v *driver) give(kind int) int {
	v.t.Helper()
	n := int(prm.QueryPagesOutNumPages.Get(v.run(0x107, kind, nil)))
	v.list(0x108, pagesGive, 8*n, 0, func(in []byte) {
		prm.ManagePagesInInputNumEntries.Set(in, uint64(n))
		for i := range n {
			addr := v.host.alloc(1)
			v.pages[addr] = true
			prm.ManagePagesInPAS.At(i).Set(in, addr)
		}
	})
	return n
}

// take takes back pages until there are no more.
func (v *driver) take() {
	v.t.Helper()
	for {
		out := v.list(0x108, pagesTake, 0, 8*30, func(in []byte) { prm.ManagePagesInInputNumEntries.Set(in, 30) })
		n := int(prm.ManagePagesOutOutputNumEntries.Get(out))
		if n == 0 {
			return
		}
		for i := range n {
			addr := prm.ManagePagesOutPAS.At(i).Get(out)
			if !v.pages[addr] {
				v.t.Fatalf("page %#x was not given", addr)
			}
			delete(v.pages, addr)
		}
	}
}

// boot does what a driver does up to INIT_HCA and ALLOC_UAR.
func (v *driver) boot() {
	v.t.Helper()
	v.run(0x104, 0, nil)
	if !v.device.config.NoISSI {
		if s := prm.QueryISSIOutSupportedISSIDW0.Get(v.run(0x10a, 0, nil)); s&2 == 0 {
			v.t.Fatalf("supported ISSIs %#x", s)
		}
		v.run(0x10b, 0, func(in []byte) { prm.SetISSIInCurrentISSI.Set(in, 1) })
	}
	v.give(pagesBoot)
	page := prm.QueryHCACapOutCapability.Bytes(v.run(0x100, 1, nil))
	if v.choose != nil {
		v.choose(page)
	}
	v.run(0x109, 0, func(in []byte) { copy(prm.SetHCACapInCapability.Bytes(in), page) })
	v.give(pagesInit)
	v.run(0x102, 0, nil)
	v.uar = uint32(prm.AllocUAROutUAR.Get(v.run(0x802, 0, nil)))
}

// createEQ creates an event queue of 1<<logSize entries and returns its number
// and its first page.
func (v *driver) createEQ(logSize int, mask uint64, vector int) (uint32, uint64) {
	v.t.Helper()
	pages := max(1, 64<<logSize/pageSize)
	ring := v.host.alloc(pages)
	for i := range 1 << logSize {
		prm.EQEOwner.Set(v.host.bytes(ring+uint64(i)*64, 64), 1)
	}
	out := v.list(0x301, 0, 8*pages, 0, func(in []byte) {
		context := prm.CreateEQInEQC.Bytes(in)
		prm.EQCLogEQSize.Set(context, uint64(logSize))
		prm.EQCUARPage.Set(context, uint64(v.uar))
		prm.EQCIntr.Set(context, uint64(vector))
		prm.CreateEQInEventBitmask.Set(in, mask)
		for i := range pages {
			prm.CreateEQInPAS.At(i).Set(in, ring+uint64(i)*pageSize)
		}
	})
	return uint32(prm.CreateEQOutEQNumber.Get(out)), ring
}

// arm stores to the doorbell of an event queue.
func (v *driver) arm(eqn, index uint32, arm bool) {
	offset := int(v.uar)<<uarShift + doorbellNoArm
	if arm {
		offset = int(v.uar)<<uarShift + doorbellArm
	}
	v.write(offset, binary.BigEndian.AppendUint32(nil, eqn<<24|index&indexMask))
}

// event returns the i-th event since the queue was created, or nil.
func (v *driver) event(ring uint64, logSize, i int) []byte {
	e := v.host.bytes(ring+uint64(i&(1<<logSize-1))*64, 64)
	if prm.EQEOwner.Get(e) != uint64(i>>logSize&1) {
		return nil
	}
	return e
}

// reported checks that the device reported n mistakes of its driver.
func (v *driver) reported(n int) {
	v.t.Helper()
	if len(v.faults) != n {
		v.t.Errorf("%d faults were reported, want %d: %v", len(v.faults), n, v.faults)
	}
	v.faults = nil
}
