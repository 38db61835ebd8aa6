package rdma

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/memlock"
	"github.com/goverbs/goverbs/internal/quota"
	"github.com/goverbs/goverbs/uverbs"
)

// This file limits the memory that peers make a listener's side register: ListenOptions.MaxMemory. A connection counts
// with its receives and queues, and with the messages that the peer has offered, from the beginning of their READs
// until the program has released them.

// A budget has the limits of a listener. A nil budget permits everything.
type budget struct {
	used     *quota.Limit
	total    int64         // 0 or less for no limit
	each     int64         // of a peer, likewise
	patience time.Duration // how long a message may wait for memory

	mu     sync.Mutex
	claims []*claim // that wait, in their order
	full   bool     // the first of them that waits for the limit of all: others wait for it, too
}

// A claim is a call that waits until memory may be used. Its last fields belong to budget.mu.
type claim struct {
	peer    netip.Addr
	n       int64
	notify  func()
	ofPeer  bool // it waits for memory of its peer, not of all
	granted bool
}

// An account is what a connection uses of a budget.
type account struct {
	budget *budget
	peer   netip.Addr
	fixed  int64  // for receives and queues
	proven uint64 // length of the longest message that the peer has offered and that could be read
}

// memoryPatience is how long a message may wait until others are released.
const memoryPatience = 30 * time.Second

// newBudget returns the limits of a listener, and reduces o.MaxMessage to the longest message that fits.
func newBudget(o *ListenOptions) (*budget, error) {
	shared, need := o.sharedMemory(), o.connMemory()
	total, each := quota.MemoryLimits(o.MaxMemory, o.MaxMemoryPerPeer, memlock.Default(), shared+need)
	if room := smallestLimit(total, each, shared) - need; room < 0 {
		return nil, fmt.Errorf("%w: a connection needs %d bytes for its receives and queues, and SharedReceives %d: set "+
			"ListenOptions.MaxMemory and MaxMemoryPerPeer, which are %d and %d, to more, or Depth and EagerSize to less",
			uverbs.ErrInvalid, need, shared, total, each)
	} else if room < int64(classSize(classOf(o.MaxMessage))) {
		// Memory is allocated in powers of two.
		o.MaxMessage = max(1<<(bits.Len64(uint64(max(room, 1)))-1), o.EagerSize)
	}
	used := quota.New(total, each)
	if used == nil {
		return nil, nil
	}
	return &budget{used: used, total: total, each: each, patience: memoryPatience}, nil
}

// smallestLimit returns how much one connection may use beside what all share: the smaller of the limits in total and
// for each peer, of which those that are not positive stand for none.
func smallestLimit(total, each, shared int64) int64 {
	most := int64(math.MaxInt64)
	if total > 0 {
		most = total - shared
	}
	if each > 0 {
		most = min(most, each)
	}
	return most
}

// connMemory returns how much memory a connection needs.
func (o *ListenOptions) connMemory() int64 {
	if o.SharedReceives == 0 {
		return o.Options.connMemory()
	}
	return o.Options.sharingMemory()
}

// connMemory returns about how many bytes are registered for a connection on which no long message is on its way. The
// rings of adapters are pinned, too.
func (o *Options) connMemory() int64 {
	c := &Conn{options: o}
	sends, _ := c.sends()
	receives := o.Depth + c.extraReceives() + replyDepth(o.Depth)
	return memlock.Queues(sends, receives, sends+receives) + int64(receives)*int64(o.receiveLen())
}

// sharedMemory returns how many bytes are registered for shared receives at a device.
func (o *ListenOptions) sharedMemory() int64 {
	n := o.SharedReceives
	if n == 0 {
		return 0
	}
	return int64(n)*int64(o.receiveLen()) + memlock.SharedQueue(n)
}

// sharingMemory returns about how many bytes a connection with shared receives needs beside them.
func (o *Options) sharingMemory() int64 {
	c := &Conn{options: o}
	c.shared = &shared{}
	sends, _ := c.sends()
	completions := sends + o.Depth + c.extraReceives() + replyDepth(o.Depth)
	return memlock.Queues(sends, 0, completions) + int64(guaranteed(o.Depth)*o.receiveLen())
}

// extraReceives returns how many receives are for SENDs without a credit for messages or replies: one for each offer
// that the peer has read, up to two for credits of each of the two flows, one for each cancel and for its credit,
// one for the end, and one to spare.
func (c *Conn) extraReceives() int { return 2*c.options.Offers + 8 }

// try uses n bytes unless they exceed a limit or others wait for memory, in all or of the same peer.
func (a *account) try(n int64) error {
	b := a.budget
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.full || slices.ContainsFunc(b.claims, func(c *claim) bool { return c.peer == a.peer }) {
		return errMemoryQueue
	}
	return b.used.Acquire(a.peer, n)
}

var errMemoryQueue = errors.New("others wait for memory")

// tryWiden is try for credits, which leave half of the limits to others.
func (a *account) tryWiden(n int64) bool {
	if a.try(n) != nil {
		return false
	}
	b := a.budget
	if b == nil {
		return true
	}
	own, all := b.used.Used(a.peer)
	if b.total > 0 && all > b.total/2 || b.each > 0 && own > b.each/2 {
		a.release(n)
		return false
	}
	return true
}

// tryFixed is try for receives and queues, which do not wait for offered messages.
func (a *account) tryFixed(n int64) error {
	if a.budget == nil {
		return nil
	}
	if err := a.budget.used.Acquire(a.peer, n); err != nil {
		return memoryLimit(cm.ErrServerLimit, err)
	}
	a.fixed += n
	return nil
}

// memoryLimit returns the error of a limit.
func memoryLimit(kind, err error) error { return quota.MemoryError(kind, err, "ListenOptions") }

// release releases n bytes and grants memory to claims that wait.
func (a *account) release(n int64) {
	b := a.budget
	if b == nil {
		return
	}
	b.used.Release(a.peer, n)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.grant(a.peer)
}

// unreserve ends the use of n bytes that count for no peer, and grants memory to claims that wait.
func (b *budget) unreserve(n int64) {
	b.used.Unreserve(n)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.grant(netip.Addr{})
}

// makeRoom deregisters memory of the pool that nothing uses, as far as it would exceed the listener's limit together
// with what is used. The caller does not hold c.mu.
func (c *Conn) makeRoom() {
	b := c.account.budget
	if b == nil || b.total <= 0 {
		return
	}
	_, used := b.used.Used(c.account.peer)
	c.pool.shrink(b.total - used)
}

// untry undoes tryFixed.
func (a *account) untry(n int64) {
	if a.budget != nil {
		a.fixed -= n
		a.release(n)
	}
}

// releaseFixed ends the use of memory for receives and queues.
func (a *account) releaseFixed() {
	n := a.fixed
	a.fixed = 0
	a.release(n)
}

// grant grants claims in order. A claim that exceeds its peer's limit delays those of the same peer only, and is tried
// again when this peer, the one that has released memory, is its own. The caller holds b.mu.
func (b *budget) grant(peer netip.Addr) {
	b.full = false
	var wait []netip.Addr // peers with claims that exceed their limits
	b.claims = slices.DeleteFunc(b.claims, func(c *claim) bool {
		switch {
		case b.full || slices.Contains(wait, c.peer):
			return false
		case c.ofPeer && c.peer != peer:
			wait = append(wait, c.peer)
			return false
		}
		err := b.used.Acquire(c.peer, c.n)
		if err == nil {
			c.granted = true
			c.notify()
			return true
		}
		var e *quota.Exceeded
		c.ofPeer = errors.As(err, &e) && e.PerPeer
		b.full = !c.ofPeer
		wait = append(wait, c.peer)
		return false
	})
}

// claim adds a claim. The caller calls end.
func (b *budget) claim(c *claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claims = append(b.claims, c)
	b.grant(netip.Addr{})
}

// end ends the wait of a claim. It reports whether the memory is granted.
func (b *budget) end(c *claim) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.granted {
		return true
	}
	b.claims = slices.DeleteFunc(b.claims, func(other *claim) bool { return other == c })
	b.grant(netip.Addr{})
	return false
}

var (
	errGranted  = errors.New("the memory is granted")
	errPatience = errors.New("the program has not released messages in time")
)

// waitForMemory waits until n bytes more may be used for messages. It returns [ErrMemoryLimit] if that takes too long,
// and does not use them if the connection ends. The caller holds c.mu, and n bytes are within the limits if all
// messages are released.
func (c *Conn) waitForMemory(ctx context.Context, n int64) (ok bool, _ error) {
	exceeded := c.account.try(n)
	if exceeded == nil {
		return true, nil
	}
	b := c.account.budget
	ctx, stop := context.WithTimeoutCause(ctx, b.patience, errPatience)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	k := &claim{peer: c.account.peer, n: n, notify: func() { cancel(errGranted) }}
	b.claim(k)
	var err error
	for err == nil && c.err == nil && !c.closing {
		err = c.step(ctx, needOwn, nil)
	}
	switch {
	case b.end(k):
		return true, nil
	case errors.Is(err, errPatience):
		return false, fmt.Errorf("%w; for %v, no message was released that leaves enough room", memoryLimit(ErrMemoryLimit,
			exceeded), b.patience)
	}
	return false, err
}
