package mlx5

import (
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/uverbs"
)

// A target is the queue that a completion belongs to: the notes of its requests, and the counters
// of completed ones.
type target struct {
	key uint32 // the number by which CQEs name the target

	sends    []sendNote // by the first block of the request
	sendMask uint32
	sendTail *uint32 // number of completed sends

	recvs    []uint64 // WRIDs
	recvMask uint32
	recvTail *uint32

	srq *srq // replaces recvs. The target of an XRC SRQ has only key and srq
	rq  *recvQueue

	frames *arrivedFrames // replaces recvs for raw Ethernet
	sq     *sendQueue
}

// A sendNote is what Poll needs to complete a send request.
type sendNote struct {
	wrID uint64
	end  uint32 // number of requests posted, including this one
	meta uint32 // WCOpcode, and in the low byte the flags of rare completions
}

const (
	metaLength  = 1 << 0 // the CQE has the number of bytes read
	metaAtomic  = 1 << 1 // 8 bytes were read
	metaSilent  = 1 << 2 // not posted by the caller, so not returned by Poll
	metaRare    = 0xff   // all flags
	metaOpShift = wcOpcode
)

func (n *sendNote) opcode() uverbs.WCOpcode { return uverbs.WCOpcode(n.meta >> metaOpShift) }

// Numbers of targets have 24 bits. The upper half selects a page of the table.
const (
	numberBits = 24
	pageBits   = 12
	pageMask   = 1<<pageBits - 1
	noNumber   = 1 << numberBits
)

type tablePage [1 << pageBits]atomic.Pointer[target]

// A table finds targets by number. Lookups take no lock.
type table struct {
	pages [1 << (numberBits - pageBits)]atomic.Pointer[tablePage]

	mu   sync.Mutex
	free []uint32 // numbers that were returned
	next uint32   // the lowest number that was never used
}

// find returns the target with number n, or nil.
func (t *table) find(n uint32) *target {
	p := t.pages[n>>pageBits&pageMask].Load()
	if p == nil {
		return nil
	}
	return p[n&pageMask].Load()
}

// add assigns a number to v. It returns noNumber if no number is left.
func (t *table) add(v *target) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.next
	if last := len(t.free) - 1; last >= 0 {
		n, t.free = t.free[last], t.free[:last]
	} else if t.next < noNumber-1 { // the last number is reserved for the kernel
		t.next++
	} else {
		return noNumber
	}
	v.key = n
	t.store(n, v)
	return n
}

// put stores v under a number that the device chose.
func (t *table) put(n uint32, v *target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v.key = n & (noNumber - 1)
	t.store(v.key, v)
}

func (t *table) store(n uint32, v *target) {
	p := &t.pages[n>>pageBits]
	if p.Load() == nil {
		p.Store(new(tablePage))
	}
	p.Load()[n&pageMask].Store(v)
}

// remove removes v, unless its number now belongs to another target. If again is set, add may
// assign the number again.
func (t *table) remove(v *target, again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.find(v.key) != v {
		return
	}
	t.store(v.key, nil)
	if again {
		t.free = append(t.free, v.key)
	}
}
