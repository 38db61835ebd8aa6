package fakeirdma

import "encoding/binary"

// A cq is a completion queue.
type cq struct {
	kernel  *kernel
	handle  uint32
	number  uint32
	memory  *ringMemory
	area    *ringMemory // of the shadow area, or nil if it is behind the ring
	shadow  uint64
	depth   uint32
	next    uint32 // where the next entry goes
	valid   bool   // its valid bit
	resizes uint64

	sequence uint64 // of the doorbell that armed the CQ last
	armed    bool
	solicit  bool // events are for solicited completions only
	asked    bool // a solicited completion, or an error, is among the entries
}

const entrySize = 32

// use makes the CQ use other memory. It returns false if that is too small.
func (q *cq) use(memory *ringMemory, depth uint32) bool {
	if uint64(depth)*entrySize > uint64(memory.CqPages)*pageSize {
		q.kernel.Problem("CQ %d: %d entries in %d pages", q.number, depth, memory.CqPages)
		memory.used = false
		return false
	}
	q.memory, q.depth, q.next, q.valid = memory, depth, 0, true
	return true
}

// The words of the shadow area, in bytes.
const (
	shadowHead = 0
	shadowArm  = 32
)

// The fields of the second one.
const (
	resizesMask = 1<<14 - 1
	armNext     = 1 << 14
	armNextSE   = 1 << 15
	sequenceAt  = 16
)

func (q *cq) word(at uint64) uint64 {
	b := make([]byte, 8)
	q.kernel.Memory.Read(q.shadow+at, b)
	return binary.LittleEndian.Uint64(b)
}

// pending returns how many entries of the ring the program has not polled. The index that it has stored is that of
// another ring until it acknowledges a resize.
func (q *cq) pending() uint32 {
	if q.word(shadowArm)&resizesMask != q.resizes&resizesMask {
		return q.next // none has been polled
	}
	head := uint32(q.word(shadowHead))
	if head >= q.depth {
		q.kernel.Problem("CQ %d of %d entries: index %d in the shadow area", q.number, q.depth, head)
		return 0
	}
	return (q.next + q.depth - head) % q.depth
}

// An entry is a completion as the device writes it.
type entry [4]uint64

// Fields of its last word.
const (
	flagExtended = 1 << 50
	flagKey      = 1 << 53
	flagIPv4     = 1 << 53 // of a datagram
	flagSolicit  = 1 << 54
	flagError    = 1 << 55
	opAt         = 56
	flagSend     = 1 << 62
	flagValid    = 1 << 63
	flagImm      = 1 << 62 // in the second entry
	majorAt      = 16
	majorFlush   = 1
	indexAt      = 32
	indexMask    = 1<<15 - 1
)

// complete writes an entry, and a second one if there is immediate data.
func (q *cq) complete(e *entry, second *entry) {
	n := uint32(1)
	if second != nil {
		n = 2
	}
	if q.pending()+n >= q.depth {
		q.kernel.Problem("CQ %d of %d entries overruns", q.number, q.depth)
		return
	}
	next, valid := q.after(q.next, q.valid)
	if second != nil { // the program must find it when it finds the first one
		q.put(next, valid, second)
		next, valid = q.after(next, valid)
		e[3] |= flagExtended
	}
	q.put(q.next, q.valid, e)
	q.next, q.valid = next, valid
	q.asked = q.asked || e[3]&(flagSolicit|flagError) != 0
	q.notify()
}

func (q *cq) after(at uint32, valid bool) (uint32, bool) {
	if at++; at == q.depth {
		return 0, !valid
	}
	return at, valid
}

func (q *cq) put(at uint32, valid bool, e *entry) {
	e[3] &^= flagValid
	if valid {
		e[3] |= flagValid
	}
	var b []byte
	for _, w := range e {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	q.kernel.Memory.Publish(q.memory.start+uint64(at)*entrySize, b)
}

// arm is called with a doorbell: the shadow area says what it asks for.
func (q *cq) arm() {
	w := q.word(shadowArm)
	q.kernel.dev.Record("arm %#x at %d", w, q.word(shadowHead))
	sequence := w >> sequenceAt & 3
	if sequence != (q.sequence+1)&3 || w&armNextSE == 0 {
		q.kernel.Problem("CQ %d: the word %#x arms it, after number %d", q.number, w, q.sequence)
	}
	if acknowledged := w & resizesMask; acknowledged > q.resizes {
		q.kernel.Problem("CQ %d: the program has left %d rings of %d", q.number, acknowledged, q.resizes)
	}
	q.sequence, q.armed, q.solicit = sequence, true, w&armNext == 0
	q.notify()
}

// notify sends an event if the CQ is armed and has entries that the program has not polled.
func (q *cq) notify() {
	pending := q.pending() > 0
	q.asked = q.asked && pending
	if !q.armed || !pending || q.solicit && !q.asked {
		return
	}
	q.armed = false
	q.kernel.Completed(q.handle)
}
