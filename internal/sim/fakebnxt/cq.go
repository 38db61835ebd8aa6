package fakebnxt

import "encoding/binary"

// A cq is a completion queue.
type cq struct {
	kernel   *Kernel
	handle   uint32
	number   uint32
	addr     uint64
	depth    uint32
	phase    byte
	next     uint32 // where the next entry goes
	pending  uint32 // entries that the program has not released
	consumed uint32 // as of the last doorbell
	epoch    uint32 // of the last doorbell
	armed    bool
	solicit  bool // events are for solicited completions only
	toggle   toggle
	asked    bool // a solicited completion, or an error, is among the entries
}

const entrySize = 32

// Types of completions.
const (
	typeSend   = 0
	typeRecvRC = 1
	typeRecvUD = 2
	typeTerm   = 14
)

// Fields of an entry: offsets of bytes. Those of a completion of sends differ.
const (
	handleAt     = 0 // sends and terminals
	consumerAt   = 8
	recvConsAt   = 10 // terminals
	lengthAt     = 0
	immAt        = 4
	recvHandleAt = 8
	sourceAt     = 22 // UD
	phaseAt      = 24
	statusAt     = 25
	flagsAt      = 26
	tagAt        = 28
	sourceHighAt = 31
)

const (
	flagSRQ  = 1 << 0
	flagImm  = 1 << 1
	flagRDMA = 1 << 3
)

// An entry is a completion as the device writes it.
type entry [entrySize]byte

func newEntry(kind, status byte) *entry {
	e := new(entry)
	e[phaseAt], e[statusAt] = kind<<1, status
	return e
}

func (e *entry) put16(at int, v uint16) { binary.LittleEndian.PutUint16(e[at:], v) }
func (e *entry) put32(at int, v uint32) { binary.LittleEndian.PutUint32(e[at:], v) }
func (e *entry) put64(at int, v uint64) { binary.LittleEndian.PutUint64(e[at:], v) }

func (c *cq) bytes() uint64 { return uint64(c.depth) * entrySize }

// complete writes an entry.
func (c *cq) complete(e *entry, solicited bool) {
	if c.pending == c.depth {
		c.kernel.problem("CQ %d of %d entries overruns", c.number, c.depth)
		return
	}
	e[phaseAt] = e[phaseAt]&^1 | c.phase
	c.kernel.memory.Publish(c.addr+uint64(c.next)*entrySize, e[:])
	c.pending++
	if c.next++; c.next == c.depth {
		c.next, c.phase = 0, c.phase^1
	}
	c.asked = c.asked || solicited || e[statusAt] != 0
	c.notify()
}

// bell is called with a doorbell: the program has polled the entries before an index.
func (c *cq) bell(d doorbell) {
	if d.index >= c.depth {
		c.kernel.problem("CQ %d of %d entries: a doorbell with index %d", c.number, c.depth, d.index)
		return
	}
	n := (d.index + c.depth - c.consumed) % c.depth
	if n == 0 && d.epoch != c.epoch {
		n = c.depth
	}
	if wrapped := d.index < c.consumed || n == c.depth; wrapped != (d.epoch != c.epoch) {
		c.kernel.problem("CQ %d: a doorbell with index %d and epoch %d after %d and %d", c.number, d.index, d.epoch,
			c.consumed, c.epoch)
	}
	if n > c.pending {
		c.kernel.problem("CQ %d: a doorbell releases %d of %d entries", c.number, n, c.pending)
		n = c.pending
	}
	c.consumed, c.epoch, c.pending = d.index, d.epoch, c.pending-n
	c.asked = c.asked && c.pending > 0
	if d.kind != bellCQ && d.toggle != c.toggle.count {
		c.kernel.problem("CQ %d: a doorbell that arms after %d events has %d", c.number, c.toggle.count, d.toggle)
	} else if d.kind != bellCQ {
		c.armed, c.solicit = true, d.kind == bellCQArmS
	}
	c.notify()
}

// notify sends an event if the CQ is armed and has entries that the program has not polled.
func (c *cq) notify() {
	if !c.armed || c.pending == 0 || c.solicit && !c.asked {
		return
	}
	c.armed = false
	c.toggle.event()
	handle := c.handle
	c.kernel.dev.fabric.loop.Post(func() { // a command may be running, which holds the fake kernel's lock
		if c.kernel.cqs[handle] == c {
			_ = c.kernel.Complete(handle) // a CQ of a program may have no channel
		}
	})
}
