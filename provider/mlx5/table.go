package mlx5

import (
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/uverbs"
)

// A target is what a completion is about: where its request was noted, and what
// must learn that it is over.
type target struct {
	key uint32 // by which CQEs name it

	sends    []sendNote // by the request's first block
	sendMask uint32
	sendTail *uint32 // requests that are over

	recvs    []uint64 // WRIDs
	recvMask uint32
	recvTail *uint32

	srq *srq // takes the place of recvs; of an XRC SRQ's own target there is nothing else
	rq  *recvQueue

	frames *arrivedFrames // takes the place of recvs in raw Ethernet
	sq     *sendQueue
}

// A sendNote is what a completion of a send request must know.
type sendNote struct {
	wrID uint64
	end  uint32 // requests posted, with this one
	meta uint32 // WCOpcode, above what makes its completion a rare one
}

const (
	metaLength  = 1 << 0 // the CQE tells how much was read
	metaAtomic  = 1 << 1 // 8 bytes were
	metaSilent  = 1 << 2 // none of the program's: it is not told of
	metaRare    = 0xff   // has a byte of its own
	metaOpShift = wcOpcode
)

func (n *sendNote) opcode() uverbs.WCOpcode { return uverbs.WCOpcode(n.meta >> metaOpShift) }

// Numbers of targets have 24 bits: half of them choose a page of the table.
const (
	numberBits = 24
	pageBits   = 12
	pageMask   = 1<<pageBits - 1
	noNumber   = 1 << numberBits
)

type tablePage [1 << pageBits]atomic.Pointer[target]

// A table finds targets by number. Lookups take no lock; the rest does.
type table struct {
	pages [1 << (numberBits - pageBits)]atomic.Pointer[tablePage]

	mu   sync.Mutex
	free []uint32 // numbers given back
	next uint32   // the lowest that was never given
}

// find returns the target of a number, or nil.
func (t *table) find(n uint32) *target {
	p := t.pages[n>>pageBits&pageMask].Load()
	if p == nil {
		return nil
	}
	return p[n&pageMask].Load()
}

// add gives v a number. It is noNumber when there is none left.
func (t *table) add(v *target) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.next
	if last := len(t.free) - 1; last >= 0 {
		n, t.free = t.free[last], t.free[:last]
	} else if t.next < noNumber-1 { // the last is the kernel's own
		t.next++
	} else {
		return noNumber
	}
	v.key = n
	t.store(n, v)
	return n
}

// put enters v under a number of the device's choice.
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

// remove takes out v, unless another has its number by now. The number may be
// given again when it came from add.
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
