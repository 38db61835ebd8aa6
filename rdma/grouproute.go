package rdma

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/ctxerr"
	"github.com/goverbs/goverbs/uverbs"
)

// The kernel may ask the network for the address of a datagram's destination when an address handle is created, for up
// to a second. Anyone can send datagrams from addresses that do not exist, so goroutines create the handles, and
// datagrams wait for them in a queue. All numbers are limited.

const (
	maxPeers     = 1024 // in the cache of addresses
	maxResolvers = 16   // goroutines that resolve addresses
	maxWanted    = 256  // addresses that wait for them
	maxWaiting   = 32   // datagrams that wait for an address
	maxAllWait   = 1024 // datagrams that wait for any address
	resolveRetry = time.Second
)

// routing is the part of a group that knows the addresses of members. Its fields belong to Group.mu.
type routing struct {
	peers     map[uverbs.AHKey]*route
	clock     uint64 // counts uses of peers
	wanted    []*route
	waiting   int // datagrams that wait for addresses
	resolvers int
	resolving sync.WaitGroup // resolvers
	unclosed  []*uverbs.AH   // that could not be closed

	ctx  context.Context // ends with Close
	stop context.CancelFunc
}

// A route is the address of a member. Its fields belong to Group.mu.
type route struct {
	key      uverbs.AHKey
	ah       *uverbs.AH // nil until the address is resolved
	replaces *uverbs.AH // of a route that was removed for it: the resolver closes it
	used     uint64     // when it was used last
	busy     int        // calls and datagrams that use it, and the resolver

	resolving bool          // until ah exists and the datagrams that have waited are sent
	resolved  chan struct{} // closed then
	err       error         // why the address could not be resolved
	failed    time.Time     // when that was
	waiting   []waiting
}

// waiting is a datagram that waits for the address of its destination.
type waiting struct {
	b   []byte
	qpn uint32
}

func (g *Group) startRouting() {
	g.peers = map[uverbs.AHKey]*route{}
	g.ctx, g.stop = context.WithCancel(context.Background())
}

// stopRouting closes the address handles. The caller has set g.closed.
func (g *Group) stopRouting() error {
	g.stop()
	g.resolving.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, r := range g.wanted {
		close(r.resolved)
		if r.replaces != nil {
			errs = append(errs, r.replaces.Close())
		}
	}
	for _, r := range g.peers {
		if r.ah != nil {
			errs = append(errs, r.ah.Close())
		}
	}
	for _, ah := range g.unclosed {
		errs = append(errs, ah.Close())
	}
	return errors.Join(errs...)
}

// route returns the route to a member: the caller calls routeDone. If its address is not known yet, route keeps a copy
// of b, which is sent later, and returns nil. If as many datagrams wait for it as may, route waits, too.
func (g *Group) route(ctx context.Context, b []byte, to Peer) (*route, error) {
	for {
		r, full, err := g.tryRoute(b, to)
		if full == nil {
			return r, err
		}
		select {
		case <-full:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %d datagrams wait until the address of this member is resolved", ctxerr.Of(ctx),
				maxWaiting)
		}
	}
}

// tryRoute is route. If as many datagrams wait as may, it returns a channel that is closed when they are sent.
func (g *Group) tryRoute(b []byte, to Peer) (_ *route, full <-chan struct{}, _ error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, nil, net.ErrClosed
	}
	r, err := g.find(to.key)
	if err == nil && r == nil {
		r, err = g.want(to.key)
	}
	if err != nil {
		return nil, nil, err
	}
	g.clock++
	r.used = g.clock
	switch {
	case !r.resolving:
		r.busy++
		return r, nil, nil
	case len(r.waiting) >= maxWaiting:
		return nil, r.resolved, nil
	}
	return nil, nil, g.wait(r, b, to)
}

// find returns the route to a member if there is one, or why its address could not be resolved a moment ago. The caller
// holds g.mu.
func (g *Group) find(key uverbs.AHKey) (*route, error) {
	r := g.peers[key]
	switch {
	case r == nil || r.err == nil:
		return r, nil
	case time.Since(r.failed) < resolveRetry:
		return nil, fmt.Errorf("%w: the address of this member: %w", cm.ErrUnreachable, r.err)
	}
	delete(g.peers, key)
	return nil, nil
}

// wait keeps a copy of a datagram until the address is resolved. The caller holds g.mu.
func (g *Group) wait(r *route, b []byte, to Peer) error {
	if g.waiting >= maxAllWait {
		return fmt.Errorf("%w: %d datagrams wait until the addresses of members are resolved, and no more may",
			cm.ErrUnreachable, maxAllWait)
	}
	g.waiting++
	r.waiting = append(r.waiting, waiting{append([]byte(nil), b...), to.qpn})
	return nil
}

// want adds a route, and has its address resolved. The caller holds g.mu.
func (g *Group) want(key uverbs.AHKey) (*route, error) {
	if len(g.wanted) >= maxWanted {
		return nil, fmt.Errorf("%w: the addresses of %d members wait to be resolved, and no more may", cm.ErrUnreachable,
			maxWanted)
	}
	r := &route{key: key, busy: 1, resolving: true, resolved: make(chan struct{})}
	if len(g.peers) >= maxPeers {
		r.replaces = g.evict()
	}
	g.peers[key] = r
	g.wanted = append(g.wanted, r)
	if g.resolvers < maxResolvers {
		g.resolvers++
		g.resolving.Go(g.resolve)
	}
	return r, nil
}

// resolve resolves addresses until none is wanted.
func (g *Group) resolve() {
	for {
		g.mu.Lock()
		if len(g.wanted) == 0 || g.closed {
			g.resolvers--
			g.mu.Unlock()
			return
		}
		r := g.wanted[0]
		g.wanted = g.wanted[1:]
		g.mu.Unlock()
		ah, err := g.createAH(r)
		g.mu.Lock()
		r.ah, r.err, r.failed = ah, err, time.Now()
		g.mu.Unlock()
		g.sendWaiting(r)
	}
}

func (g *Group) createAH(r *route) (*uverbs.AH, error) {
	if r.replaces != nil && r.replaces.Close() != nil {
		g.mu.Lock()
		g.unclosed = append(g.unclosed, r.replaces) // Close tries again, and returns the error
		g.mu.Unlock()
	}
	attr, err := g.verbs.AHAttrFromKey(g.port, r.key)
	if err != nil {
		return nil, err
	}
	return g.pd.CreateAH(attr)
}

// sendWaiting sends the datagrams that have waited for an address, in their order. They are lost if it could not be
// resolved, as in the network: SendTo returns the error for the next ones.
func (g *Group) sendWaiting(r *route) {
	for {
		g.mu.Lock()
		if r.err != nil || g.ctx.Err() != nil || g.failure() != nil {
			g.waiting -= len(r.waiting)
			r.waiting = nil
		}
		if len(r.waiting) == 0 {
			r.waiting, r.resolving = nil, false
			r.busy--
			close(r.resolved)
			g.mu.Unlock()
			return
		}
		d := r.waiting[0]
		r.waiting = r.waiting[1:]
		g.waiting--
		g.mu.Unlock()
		// An error means that the group was closed or has failed, which its calls return.
		_ = g.sendOn(g.ctx, r, d.b, d.qpn)
	}
}

// evict removes the route that was not used for the longest time, and returns its address handle, if it has one. The
// caller holds g.mu.
func (g *Group) evict() *uverbs.AH {
	var found *route
	for _, r := range g.peers {
		if r.busy == 0 && (found == nil || r.used < found.used) {
			found = r
		}
	}
	if found == nil {
		return nil // all are in use: there are as many calls
	}
	delete(g.peers, found.key)
	return found.ah
}

func (g *Group) routeDone(r *route) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.busy--
}
