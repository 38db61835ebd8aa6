// Package quota limits what the peers of a listener use: all of them together, and
// those of one address.
package quota

import (
	"fmt"
	"math"
	"net/netip"
	"sync"
)

// A Limit counts what peers use, in units of the caller, such as connections or bytes.
// Its methods may be called concurrently. A nil Limit permits everything.
type Limit struct {
	total, perPeer int64

	mu    sync.Mutex
	used  int64
	peers map[netip.Addr]int64 // only peers that use something
}

// New returns a Limit for all peers together and for each address. A limit of 0 or less
// stands for none. If there is neither limit, New returns nil.
func New(total, perPeer int64) *Limit {
	if total <= 0 && perPeer <= 0 {
		return nil
	}
	return &Limit{total: orUnlimited(total), perPeer: orUnlimited(perPeer), peers: map[netip.Addr]int64{}}
}

func orUnlimited(n int64) int64 {
	if n <= 0 {
		return math.MaxInt64
	}
	return n
}

// Exceeded is the error of Acquire.
type Exceeded struct {
	Peer    netip.Addr // without a zone; IPv4 if it was mapped to IPv6
	Want    int64      // what Acquire was called for
	Used    int64      // what is in use: by the peer if PerPeer, else by all
	Max     int64
	PerPeer bool // whether the limit is that of one address
}

func (e *Exceeded) Error() string {
	if e.PerPeer {
		return fmt.Sprintf("%s uses %d of at most %d for one address and wants %d more", e.Peer, e.Used, e.Max, e.Want)
	}
	return fmt.Sprintf("%d of at most %d are in use and %s wants %d more", e.Used, e.Max, e.Peer, e.Want)
}

// normalize returns the address by which a peer is counted: a host that is reached as
// IPv4 and as IPv4-mapped IPv6, or through several interfaces, is one peer.
func normalize(peer netip.Addr) netip.Addr { return peer.Unmap().WithZone("") }

// Acquire adds n to what the peer uses. If a limit is exceeded, it returns an *Exceeded
// and adds nothing. The caller must call Release with the same values.
func (l *Limit) Acquire(peer netip.Addr, n int64) error {
	if l == nil {
		return nil
	}
	if n < 0 {
		panic(fmt.Sprintf("quota: Acquire of %d", n))
	}
	peer = normalize(peer)
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.peers[peer]
	switch {
	case n > l.perPeer-own:
		return &Exceeded{Peer: peer, Want: n, Used: own, Max: l.perPeer, PerPeer: true}
	case n > l.total-l.used:
		return &Exceeded{Peer: peer, Want: n, Used: l.used, Max: l.total}
	}
	l.set(peer, own+n, l.used+n)
	return nil
}

// Release subtracts n, which Acquire has added. It panics if the peer does not use n.
func (l *Limit) Release(peer netip.Addr, n int64) {
	if l == nil {
		return
	}
	peer = normalize(peer)
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.peers[peer]
	if n < 0 || n > own {
		panic(fmt.Sprintf("quota: Release of %d: %s uses %d", n, peer, own))
	}
	l.set(peer, own-n, l.used-n)
}

// Reserve adds n to what all use, for no peer. If the limit in total is exceeded, it returns an *Exceeded and adds
// nothing. Unreserve subtracts n again.
func (l *Limit) Reserve(n int64) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > l.total-l.used {
		return &Exceeded{Want: n, Used: l.used, Max: l.total}
	}
	l.used += n
	return nil
}

// Unreserve undoes Reserve.
func (l *Limit) Unreserve(n int64) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used -= n
}

// set records what a peer and what all use. The caller holds l.mu.
func (l *Limit) set(peer netip.Addr, own, all int64) {
	l.used = all
	if own == 0 {
		delete(l.peers, peer)
	} else {
		l.peers[peer] = own
	}
}

// Used returns what the peer and what all peers use.
func (l *Limit) Used(peer netip.Addr) (own, all int64) {
	if l == nil {
		return 0, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peers[normalize(peer)], l.used
}
