package rdma

import (
	"errors"
	"fmt"
	"math/bits"
	"net"
	"sync"

	"github.com/goverbs/goverbs/uverbs"
)

// A pool has registered memory of a PD, which all connections on the PD share. The memory is of the Go
// heap: it goes when the last slice of it has gone, so that no program can crash with it.
type pool struct {
	pd *uverbs.PD

	mu     sync.Mutex
	refs   int // connections
	closed bool
	free   [classes]*memory
	idle   int          // bytes in free that have an MR of their own
	mrs    []*uverbs.MR // of slabs
}

const (
	minClass = 8             // 256 bytes
	classes  = 31 - minClass // the largest is 1 GiB
	slabSize = 256 << 10     // smaller classes share an MR of this size
	maxIdle  = 64 << 20      // more unused memory is deregistered
	access   = uverbs.LocalWrite | uverbs.MWBindAccess
)

var (
	poolsMu sync.Mutex
	pools   = map[*uverbs.PD]*pool{}
)

// openPool returns the pool of a PD. The caller closes it.
func openPool(pd *uverbs.PD) *pool {
	poolsMu.Lock()
	defer poolsMu.Unlock()
	p := pools[pd]
	if p == nil {
		p = &pool{pd: pd}
		pools[pd] = p
	}
	p.refs++
	return p
}

// close drops one reference. The last one deregisters the memory.
func (p *pool) close() error {
	poolsMu.Lock()
	p.refs--
	last := p.refs == 0
	if last {
		delete(pools, p.pd)
	}
	poolsMu.Unlock()
	if !last {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.free = [classes]*memory{}
	var errs []error
	for _, mr := range p.mrs {
		errs = append(errs, mr.Close())
	}
	p.mrs = nil
	return errors.Join(errs...)
}

func classOf(n int) int { return max(bits.Len(uint(n-1))-minClass, 0) }

// get returns memory of at least n bytes, which has no owner yet.
func (p *pool) get(n int) (*memory, error) {
	class := classOf(max(n, 1))
	if class >= classes {
		return nil, fmt.Errorf("%w: a buffer of %d bytes: the limit is %d", ErrTooLong, n, maxMessage)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free[class] == nil {
		if err := p.grow(class); err != nil {
			return nil, err
		}
	}
	m := p.free[class]
	p.free[class], m.next = m.next, nil
	if len(m.bytes) >= slabSize {
		p.idle -= len(m.bytes)
	}
	return m, nil
}

// has reports whether get returns memory of n bytes without registering more.
func (p *pool) has(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free[classOf(n)] != nil
}

// grow adds memory of a class. The caller holds p.mu.
func (p *pool) grow(class int) error {
	if p.closed {
		return net.ErrClosed
	}
	size := 1 << (class + minClass)
	slab := make([]byte, max(size, slabSize))
	mr, err := p.pd.RegMR(slab, access)
	if err != nil {
		return err
	}
	p.mrs = append(p.mrs, mr)
	for off := 0; off < len(slab); off += size {
		m := &memory{bytes: slab[off : off+size : off+size], mr: mr, off: off, pool: p, class: class}
		m.next, p.free[class] = p.free[class], m
	}
	if size >= slabSize {
		p.idle += size
	}
	return nil
}

// put takes back memory that nothing uses.
func (p *pool) put(m *memory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	if len(m.bytes) >= slabSize && p.idle+len(m.bytes) > maxIdle && p.drop(m.mr) {
		return
	}
	m.next, p.free[m.class] = p.free[m.class], m
	if len(m.bytes) >= slabSize {
		p.idle += len(m.bytes)
	}
}

// drop deregisters an MR that nothing uses, and reports whether it has. The caller holds p.mu.
func (p *pool) drop(mr *uverbs.MR) bool {
	if mr.Close() != nil {
		return false // the kernel keeps it: so does the pool
	}
	for i, other := range p.mrs {
		if other == mr {
			p.mrs[i] = p.mrs[len(p.mrs)-1]
			p.mrs = p.mrs[:len(p.mrs)-1]
			break
		}
	}
	return true
}
