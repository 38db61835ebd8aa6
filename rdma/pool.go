package rdma

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/verbs"
	"github.com/goverbs/goverbs/uverbs"
)

// A pool has registered memory of a PD, which all connections on the PD share. The memory is not of the Go heap, and
// stays mapped after the last connection was closed, so that a program which still has a slice of it does not crash. No
// lock is held while memory is registered or deregistered.
type pool struct {
	pd *uverbs.PD

	mu     sync.Mutex
	refs   int // connections; belongs to poolsMu
	closed bool
	slabs  map[*slab]struct{}
	free   [classes]*slab           // those with pieces that nothing uses: a list
	idle   int                      // bytes of slabs that nothing uses
	parts  *memory                  // that nothing uses: a list of up to maxParts
	spare  int                      // length of parts
	kept   map[*memory]func() error // regions, with what deregisters them
	grown  sync.Cond                // a goroutine has registered memory, or has failed to
	grows  [classes]bool            // a goroutine registers memory for pieces that share an MR
	busy   sync.WaitGroup           // goroutines that register or deregister memory

	trimmer *time.Timer // nil before it is needed
	trims   bool        // the trimmer runs: much memory is idle
	every   time.Duration
	period  int // how often it has run
}

// A slab is memory with one MR, which is divided into pieces of one class. A connection has slabs of receives, whose
// used counts the connection, until the MR is closed, and the pieces that the program owns; it belongs to Conn.mu.
type slab struct {
	mr         *uverbs.MR
	class      int
	free       *memory // pieces that nothing uses
	used       int     // other pieces
	period     int     // of the pool, when the last piece was put back
	prev, next *slab   // with free pieces
}

const (
	minClass = 8             // 256 bytes
	classes  = 31 - minClass // the largest is 1 GiB
	slabSize = 256 << 10     // smaller classes share an MR of this size
	maxParts = 1024
	maxIdle  = 64 << 20 // more memory is deregistered when nothing has used it for trimTime
	trimTime = 5 * time.Second
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
		p = &pool{pd: pd, slabs: map[*slab]struct{}{}, kept: map[*memory]func() error{}, every: trimTime}
		p.grown.L = &p.mu
		pools[pd] = p
	}
	p.refs++
	return p
}

// close drops one reference. The last one deregisters the memory. A call after one that has failed tries again.
func (p *pool) close() error {
	poolsMu.Lock()
	if p.refs > 0 {
		p.refs--
	}
	last := p.refs == 0
	if last && pools[p.pd] == p {
		delete(pools, p.pd)
	}
	poolsMu.Unlock()
	if !last {
		return nil
	}
	p.mu.Lock()
	p.closed = true
	p.free = [classes]*slab{}
	if p.trimmer != nil {
		p.trimmer.Stop()
	}
	p.mu.Unlock()
	p.busy.Wait()
	p.mu.Lock()
	kept := slices.Collect(maps.Values(p.kept))
	p.mu.Unlock()
	var errs []error
	for _, deregister := range kept {
		errs = append(errs, deregister())
	}
	for s := range p.slabs {
		err := s.mr.Close()
		if err == nil {
			delete(p.slabs, s)
			p.mu.Lock()
			if s.used == 0 {
				verbs.FreeReused(s.mr)
			}
			p.mu.Unlock()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func classOf(n int) int { return max(bits.Len(uint(n-1))-minClass, 0) }

// classSize returns the length of the pieces of a class.
func classSize(class int) int { return 1 << (class + minClass) }

// get returns memory of at least n bytes, which has no owner yet. It registers memory if necessary.
func (p *pool) get(n int) (*memory, error) {
	class := classOf(max(n, 1))
	if class >= classes {
		return nil, fmt.Errorf("%w: a buffer of %d bytes: the limit is %d", ErrTooLong, n, maxMessage)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if m := p.take(class); m != nil {
			return m, nil
		}
		if classSize(class) < slabSize && p.grows[class] {
			p.grown.Wait() // a slab has pieces for several callers
			continue
		}
		s, err := p.grow(class)
		if err != nil {
			return nil, err
		}
		p.link(s)
	}
}

// ready returns memory of at least n bytes if there is some that is registered, or nil.
func (p *pool) ready(n int) *memory {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.take(classOf(n))
}

// take returns a piece of a class that nothing uses, or nil. The caller holds p.mu.
func (p *pool) take(class int) *memory {
	s := p.free[class]
	if s == nil {
		return nil
	}
	m := s.free
	s.free, m.next = m.next, nil
	if s.used++; s.used == 1 {
		p.idle -= s.mr.Len()
	}
	if s.free == nil {
		p.unlink(s)
	}
	return m
}

// grow registers memory for a class. The caller holds p.mu, which grow releases meanwhile.
func (p *pool) grow(class int) (*slab, error) {
	if p.closed {
		return nil, net.ErrClosed
	}
	p.busy.Add(1)
	defer p.busy.Done() // when p.slabs is complete: close reads it without p.mu
	p.grows[class] = true
	p.mu.Unlock()
	var s *slab
	err := p.retry(func() (err error) {
		s, err = p.register(class)
		return err
	})
	p.mu.Lock()
	p.grows[class] = false
	p.grown.Broadcast()
	if err != nil {
		return nil, err
	}
	p.slabs[s] = struct{}{}
	if p.closed { // close waits, and deregisters it
		return nil, net.ErrClosed
	}
	p.idle += s.mr.Len()
	return s, nil
}

func (p *pool) register(class int) (*slab, error) {
	size := classSize(class)
	mr, err := alloc(p.pd, max(size, slabSize), access)
	if errors.Is(err, uverbs.ErrClosed) { // the last connection is being closed, and with it the device
		return nil, net.ErrClosed
	}
	if err != nil {
		return nil, err
	}
	s, b := &slab{mr: mr, class: class}, mr.Bytes()
	pieces := make([]memory, len(b)/size)
	for i := range pieces {
		m, off := &pieces[i], i*size
		m.bytes, m.size, m.mr, m.off, m.pool, m.slab = b[off:off+size:off+size], size, mr, off, p, s
		m.next, s.free = s.free, m
	}
	return s, nil
}

// alloc registers n bytes that stay mapped after Close, and are used again.
func alloc(pd *uverbs.PD, n int, a uverbs.Access) (*uverbs.MR, error) {
	mr, err := verbs.AllocReused(pd, n, uint32(a))
	if err != nil {
		return nil, err
	}
	return mr.(*uverbs.MR), nil
}

// unuse removes a user of a slab that will not be used again. After the last one, and when the MR is closed, its memory
// is.
func (s *slab) unuse() {
	if s.used--; s.used == 0 {
		verbs.FreeReused(s.mr)
	}
}

// put takes back memory that nothing uses.
func (p *pool) put(m *memory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		m.slab.unuse() // close has deregistered it, or will
		return
	}
	s := m.slab
	if s.free == nil {
		p.link(s)
	}
	m.next, s.free = s.free, m
	if s.used--; s.used > 0 {
		return
	}
	s.period = p.period
	if p.idle += s.mr.Len(); p.idle > maxIdle && !p.trims {
		p.startTrimmer()
	}
}

// part returns a part that nothing uses.
func (p *pool) part() *memory {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.parts
	if x == nil {
		return &memory{pool: p}
	}
	p.parts, x.next = x.next, nil
	p.spare--
	return x
}

func (p *pool) putPart(x *memory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x.bytes, x.parent, x.mr = nil, nil, nil
	x.released.Store(nil)
	if p.spare < maxParts {
		x.next, p.parts = p.parts, x
		p.spare++
	}
}

// link adds a slab to those with free pieces. The caller holds p.mu.
func (p *pool) link(s *slab) {
	first := p.free[s.class]
	if s.next = first; first != nil {
		first.prev = s
	}
	p.free[s.class] = s
}

func (p *pool) unlink(s *slab) {
	if s.prev == nil {
		p.free[s.class] = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	s.prev, s.next = nil, nil
}

// startTrimmer has idle memory deregistered when nothing has used it for a while: what a program needs again and again
// stays registered. The caller holds p.mu.
func (p *pool) startTrimmer() {
	p.trims = true
	if p.trimmer == nil {
		p.trimmer = time.AfterFunc(p.every, p.trimIdle)
	} else {
		p.trimmer.Reset(p.every)
	}
}

func (p *pool) trimIdle() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.busy.Add(1)
	defer p.busy.Done()
	p.period++
	p.mu.Unlock()
	p.trim(maxIdle, false)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trims = p.idle > maxIdle && !p.closed; p.trims {
		p.startTrimmer()
	}
}

// retry calls f, which registers memory. If f fails because no more memory may be locked, retry deregisters what
// nothing uses and calls f again.
func (p *pool) retry(f func() error) error {
	err := f()
	if errors.Is(err, unix.ENOMEM) && p.shrink(0) {
		err = f()
	}
	return err
}

// shrink deregisters slabs that nothing uses, until no more than most bytes of such slabs are left. It reports whether
// it has deregistered any.
func (p *pool) shrink(most int64) bool {
	p.mu.Lock()
	if p.closed || int64(p.idle) <= max(most, 0) {
		p.mu.Unlock()
		return false
	}
	p.busy.Add(1)
	defer p.busy.Done()
	p.mu.Unlock()
	return p.trim(int(max(most, 0)), true)
}

// trim deregisters slabs that nothing uses, until no more than most bytes of such slabs are left. Unless all is set, it
// leaves those that were used in this period or the one before. It reports whether it has deregistered any. The caller
// has added to p.busy.
func (p *pool) trim(most int, all bool) bool {
	p.mu.Lock()
	var drop []*slab
	for class := classes - 1; class >= 0 && !p.closed; class-- {
		for s, next := p.free[class], (*slab)(nil); s != nil && p.idle > most; s = next {
			next = s.next
			if s.used > 0 || !all && s.period+1 >= p.period {
				continue
			}
			p.unlink(s)
			p.idle -= s.mr.Len()
			delete(p.slabs, s)
			drop = append(drop, s)
		}
	}
	p.mu.Unlock()
	dropped := false
	for _, s := range drop {
		if s.mr.Close() == nil {
			verbs.FreeReused(s.mr)
			dropped = true
			continue
		}
		p.mu.Lock() // the kernel keeps it: so does the pool
		p.slabs[s] = struct{}{}
		if !p.closed {
			p.idle += s.mr.Len()
			p.link(s)
		}
		p.mu.Unlock()
	}
	return dropped
}

// registered returns how many bytes of memory the pool has.
func (p *pool) registered() (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0
	}
	for s := range p.slabs {
		n += int64(s.mr.Len())
	}
	return n
}
