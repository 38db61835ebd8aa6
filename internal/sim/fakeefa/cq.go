package fakeefa

import (
	"encoding/binary"
	"math/bits"

	"github.com/goverbs/goverbs/internal/sim/devfile"
)

// A cq is a completion queue. Its entries are in several rings, which each QP uses one of.
type cq struct {
	kernel   *kernel
	handle   uint32
	ring     devfile.Ring
	size     int // of an entry
	entries  int // of each ring
	sgid     bool
	bell     uint64
	produced []uint32 // by ring
	total    uint16
	consumed uint16 // as of the last store to the register
	armed    bool
	seen     []byte // the ring as the program of this process sees it, or nil. It is not accessed
}

// entrySize is the size of an extended entry. The first half is a plain one.
const entrySize = 32

// The status of a completion.
const (
	ok              = 0
	flushed         = 1
	badOperation    = 3
	badAH           = 4
	badLocalKey     = 5
	badLocalLength  = 6
	badRemote       = 7
	badQPN          = 9
	notReady        = 10
	badRemoteLength = 11
)

// Flags of an entry.
const (
	phase       = 1 << 0
	ofSend      = 1 << 1
	ofReceive   = 2 << 1
	withImm     = 1 << 3
	opShift     = 4
	lengthAt    = 6
	ahAt        = 8
	sourceAt    = 10
	immAt       = 12
	lengthHiAt  = 16
	srcAddrAt   = 16
	flagsAt     = 3
	statusAt    = 2
	numberAt    = 4
	srcAddrSize = 16
)

// An entry is a completion as the device writes it, without the phase.
type entry [entrySize]byte

func newEntry(q *qp, id uint16, status, flags, op byte) *entry {
	e := new(entry)
	binary.LittleEndian.PutUint16(e[:], id)
	e[statusAt], e[flagsAt] = status, flags|op<<opShift
	binary.LittleEndian.PutUint16(e[numberAt:], uint16(q.Number))
	return e
}

// complete writes an entry.
func (c *cq) complete(sub int, e *entry) {
	if c == nil {
		return // of a program of another process
	}
	if c.bell != 0 && int(c.total-c.consumed) >= c.entries*len(c.produced) && c.kernel.Memory.Process == nil {
		c.kernel.Problem("CQ %d of %d entries overruns", c.handle, c.entries)
		return
	}
	i := c.produced[sub]
	e[flagsAt] &^= phase
	if i>>bits.TrailingZeros(uint(c.entries))&1 == 0 { // the first lap has phase 1
		e[flagsAt] |= phase
	}
	at := (sub*c.entries + int(i)&(c.entries-1)) * c.size
	var seen []byte
	if c.seen != nil {
		seen = c.seen[at:][:c.size]
	}
	devfile.Publish(c.ring.Bytes[at:][:c.size], seen, e[:c.size], 0) // the first word has the phase
	c.produced[sub]++
	c.total++
	c.notify()
}

// The fields of the register.
const (
	armBit   = 1 << 31
	serialAt = 29
)

func (c *cq) ringBell(v uint32) {
	c.kernel.dev.Record("CQ register %#x", v)
	c.consumed = uint16(v)
	c.armed = v&armBit != 0 || c.armed
	c.notify()
}

// notify sends an event if the CQ is armed and has entries that the program has not consumed.
func (c *cq) notify() {
	if c.armed && c.total != c.consumed {
		c.armed = false
		c.kernel.Completed(c.handle)
	}
}

// Inject writes a raw entry to a ring of the device's newest CQ, with the phase that the entry is to have.
func (d *Device) Inject(sub int, raw [entrySize]byte) {
	d.fabric.Loop.Run(func() {
		e := entry(raw)
		d.newest.complete(sub, &e)
	})
}
