package fakebnxt

import "encoding/binary"

// A cq is a completion queue.
type cq struct {
	kernel  *kernel
	handle  uint32
	number  uint32
	addr    uint64
	phase   byte
	next    uint32 // where the next entry goes
	window         // entries that the program has not released
	left    *left  // the ring before this one, until the program acknowledges its end
	cuts    uint32 // rings that were left
	armed   bool
	solicit bool // events are for solicited completions only
	toggle  toggle
	asked   bool // a solicited completion, or an error, is among the entries
}

// A window is what the device knows of the entries that the program has not released.
type window struct {
	depth    uint32
	pending  uint32
	consumed uint32 // as of the last doorbell
	epoch    uint32 // of the last doorbell
}

// A left is a ring that the device has left.
type left struct {
	window
	toggle uint32
	polled bool // by a command
}

const entrySize = 32

// Types of completions.
const (
	typeSend   = 0
	typeRecvRC = 1
	typeRecvUD = 2
	typeTerm   = 14
	typeCutOff = 15
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

func (w *window) bytes() uint64 { return uint64(w.depth) * entrySize }

// complete writes an entry.
func (c *cq) complete(e *entry, solicited bool) {
	if c.pending == c.depth {
		c.kernel.Problem("CQ %d of %d entries overruns", c.number, c.depth)
		return
	}
	c.put(e)
	c.pending++
	if c.next++; c.next == c.depth {
		c.next, c.phase = 0, c.phase^1
	}
	c.asked = c.asked || solicited || e[statusAt] != 0
	c.notify()
}

func (c *cq) put(e *entry) {
	e[phaseAt] = e[phaseAt]&^1 | c.phase
	c.kernel.Memory.Publish(c.addr+uint64(c.next)*entrySize, e[:])
}

// resize leaves the ring for another one.
func (c *cq) resize(addr uint64, depth uint32) {
	if c.pending == c.depth {
		c.kernel.Problem("CQ %d has no room for the entry that ends its ring", c.number)
		return
	}
	c.cuts++
	c.left = &left{window: c.window, toggle: c.cuts & 3}
	if !c.kernel.dev.fabric.cfg.NoCutOff {
		e := newEntry(typeCutOff, 0)
		e[phaseAt] |= byte(c.left.toggle << 5)
		c.put(e)
	}
	c.addr, c.next, c.phase, c.window = addr, 0, 1, window{depth: depth}
}

// acknowledge is called with the doorbell that says that the program has seen the end of the ring before.
func (c *cq) acknowledge(d doorbell) {
	if c.left == nil || !c.left.polled || d.index != 0 || d.toggle != c.left.toggle {
		c.kernel.Problem("CQ %d: a doorbell %+v says that the program has seen the end of %+v", c.number, d, c.left)
		return
	}
	c.epoch, c.left = d.epoch, nil
	c.notify()
}

// bell is called with a doorbell: the program has polled the entries before an index.
func (c *cq) bell(d doorbell) {
	if d.kind == bellCutAck {
		c.acknowledge(d)
		return
	}
	w := &c.window
	if c.left != nil {
		w = &c.left.window
	}
	if d.index >= w.depth {
		c.kernel.Problem("CQ %d of %d entries: a doorbell with index %d", c.number, w.depth, d.index)
		return
	}
	n := (d.index + w.depth - w.consumed) % w.depth
	if n == 0 && d.epoch != w.epoch {
		n = w.depth
	}
	if wrapped := d.index < w.consumed || n == w.depth; wrapped != (d.epoch != w.epoch) {
		c.kernel.Problem("CQ %d: a doorbell with index %d and epoch %d after %d and %d", c.number, d.index, d.epoch,
			w.consumed, w.epoch)
	}
	if n > w.pending {
		c.kernel.Problem("CQ %d: a doorbell releases %d of %d entries", c.number, n, w.pending)
		n = w.pending
	}
	w.consumed, w.epoch, w.pending = d.index, d.epoch, w.pending-n
	c.asked = c.asked && c.pending > 0
	if d.kind != bellCQ && d.toggle != c.toggle.count {
		c.kernel.Problem("CQ %d: a doorbell that arms after %d events has %d", c.number, c.toggle.count, d.toggle)
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
	c.kernel.Completed(c.handle)
}
