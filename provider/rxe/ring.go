package rxe

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// The layout of struct rxe_queue_buf. Each index has its own cache line.
const (
	offLog2Size = 0
	offMask     = 4
	offProducer = 128
	offConsumer = 256
	offElements = 384

	maxLog2Size = 16 // 64 KiB for an element; rxe's largest has 1 KiB
)

// A ring is one mapped queue. Its geometry is copied from the header when it is
// mapped, so that later changes of the header have no effect.
type ring struct {
	mem   *provider.Mapping // keeps the pages mapped while the pointers below are used
	data  []byte            // the elements
	prod  *atomic.Uint32    // producer index, in the header
	cons  *atomic.Uint32    // consumer index, in the header
	shift uint32            // log2 of the element size
	mask  uint32            // number of elements - 1
}

// newRing checks the header of a mapped ring. Its elements must have at least need
// bytes.
func newRing(kind string, m *provider.Mapping, need int) (ring, error) {
	b := m.Bytes()
	if len(b) < offElements {
		return ring{}, badRing(kind, "%d bytes are less than its header", len(b))
	}
	shift, mask := load32(b, offLog2Size), load32(b, offMask)
	slots := uint64(mask) + 1
	switch {
	case shift > maxLog2Size || 1<<shift < need:
		return ring{}, badRing(kind, "elements of 2^%d bytes, %d needed", shift, need)
	case bits.OnesCount64(slots) != 1:
		return ring{}, badRing(kind, "index mask %#x", mask)
	case slots<<shift > uint64(len(b)-offElements):
		return ring{}, badRing(kind, "%d elements of 2^%d bytes do not fit its %d bytes", slots, shift, len(b))
	}
	return ring{
		mem:   m,
		data:  b[offElements:],
		prod:  index(b, offProducer),
		cons:  index(b, offConsumer),
		shift: shift,
		mask:  mask,
	}, nil
}

// size returns the size of an element in bytes.
func (r *ring) size() int { return 1 << r.shift }

// retire does nothing for the zero ring of a QP without a receive queue.
func (r *ring) retire(inUse bool) error {
	if r.mem == nil {
		return nil
	}
	return r.mem.Release(inUse)
}

// A producer is the writer of a ring: of a send or receive queue.
type producer struct {
	ring
	cur   uint32 // our producer index
	limit uint32 // the index that must not be reached, when the kernel's index was last read
}

func newProducer(r ring) producer {
	p := producer{ring: r}
	if r.mem != nil {
		p.cur = r.prod.Load() & r.mask
		p.refresh()
	}
	return p
}

// refresh reads the kernel's index.
func (p *producer) refresh() { p.limit = (p.cons.Load() + p.mask) & p.mask }

// full reports whether there is no room for an element at index i. It reads the
// kernel's index only if the ring appears to be full.
func (p *producer) full(i uint32) bool {
	if i != p.limit {
		return false
	}
	p.refresh()
	return i == p.limit
}

// used returns the number of elements that the kernel has not consumed.
func (p *producer) used() int { return int((p.cur - p.cons.Load()) & p.mask) }

func (p *producer) next(i uint32) uint32 { return (i + 1) & p.mask }

// publish makes the elements before i visible to the kernel.
func (p *producer) publish(i uint32) {
	p.cur = i
	p.prod.Store(i)
}

func badRing(kind, format string, args ...any) error {
	return &uverbs.Error{Op: "map " + kind, Kind: uverbs.ErrABI,
		Detail: "the kernel's ring is none that this library knows: " + fmt.Sprintf(format, args...)}
}

// errIndex reports that the kernel's index in a ring is out of range.
var errIndex error = &uverbs.Error{Op: "poll CQ", Kind: uverbs.ErrABI, Detail: "the kernel's index is outside the ring"}
