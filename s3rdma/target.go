package s3rdma

import (
	"errors"
	"sync"

	"github.com/goverbs/goverbs/uverbs"
)

// A target is what a client's tokens for a host lead to: a DCT, and the PD of the memory that can be reached through
// it. Requests to the host share it, and no other does: a token does not lead to what is offered to another host, even
// if the device gives a region the same key again. When a server may still use a token whose request has ended, the
// target is retired, and later memory belongs to another PD.
type target struct {
	host string

	pd    *uverbs.PD
	cq    *uverbs.CQ
	srq   *uverbs.SRQ
	qp    *uverbs.QP
	local uverbs.Endpoint

	users   int
	retired bool
}

func newTarget(d *Device, host string, key uint64) (*target, error) {
	g := &target{host: host}
	err := g.create(d, key)
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

func (g *target) create(d *Device, key uint64) (err error) {
	if g.pd, err = d.ctx.AllocPD(); err != nil {
		return err
	}
	if g.cq, err = d.ctx.CreateCQ(uverbs.CQConfig{Entries: 1}); err != nil {
		return err
	}
	if g.srq, err = g.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 1}); err != nil { // a DCT needs one
		return err
	}
	g.qp, err = g.pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCT, RecvCQ: g.cq, SRQ: g.srq, DCKey: key,
		Access: uverbs.RemoteRead | uverbs.RemoteWrite})
	if err != nil {
		return err
	}
	if err := g.qp.Ready(); err != nil {
		return err
	}
	g.local, err = g.qp.Endpoint()
	return err
}

// close closes what was created, in order.
func (g *target) close() error {
	return errors.Join(closeOne(g.qp), closeOne(g.srq), closeOne(g.cq), closeOne(g.pd))
}

// closeOne closes an object that may not have been created.
func closeOne[T any, P interface {
	*T
	Close() error
}](o P) error {
	if o == nil {
		return nil
	}
	return o.Close()
}

// mostTargets limits the targets of new requests. A host beyond it has that of another one, which is retired.
const mostTargets = 64

// targets has the targets of new requests.
type targets struct {
	creating sync.Mutex // locked before mu, and by no request that has a target
	mu       sync.Mutex
	current  map[string]*target // by host
	closed   bool
}

// take returns a target for one request.
func (s *targets) take(d *Device, host string, key uint64) (*target, error) {
	if g, err := s.join(host); g != nil || err != nil {
		return g, err
	}
	s.creating.Lock()
	defer s.creating.Unlock()
	if g, err := s.join(host); g != nil || err != nil {
		return g, err
	}
	if err := s.makeRoom(); err != nil {
		return nil, err
	}
	g, err := newTarget(d, host, key)
	if err != nil {
		return nil, err
	}
	if err := s.add(g); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

// join counts a request as a user of the host's target, if there is one.
func (s *targets) join(host string) (*target, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	g := s.current[host]
	if g != nil {
		g.users++
	}
	return g, nil
}

// add makes a target that of its host, with one user.
func (s *targets) add(g *target) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if s.current == nil {
		s.current = map[string]*target{}
	}
	s.current[g.host] = g
	g.users = 1
	return nil
}

// makeRoom retires a target if there are as many as there may be.
func (s *targets) makeRoom() error {
	s.mu.Lock()
	var unused *target
	if len(s.current) >= mostTargets {
		for _, g := range s.current {
			if s.retire(g) {
				unused = g
			}
			break
		}
	}
	s.mu.Unlock()
	if unused != nil {
		return unused.close()
	}
	return nil
}

// check returns ErrClosed after close.
func (s *targets) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	return nil
}

// put ends the use of a target. It is the last one if retire is set: a later request has another target.
func (s *targets) put(g *target, retire bool) error {
	s.mu.Lock()
	g.users--
	var last bool
	if retire || g.retired {
		last = s.retire(g)
	}
	s.mu.Unlock()
	if last {
		return g.close()
	}
	return nil
}

// retire leaves a target to the requests in progress. It reports whether there are none: then the caller closes it,
// without the lock.
func (s *targets) retire(g *target) (last bool) {
	g.retired = true
	if s.current[g.host] == g {
		delete(s.current, g.host)
	}
	return g.users == 0
}

// close retires the targets. Requests in progress go on.
func (s *targets) close() (err error) {
	s.mu.Lock()
	s.closed = true
	var unused []*target
	for _, g := range s.current {
		if s.retire(g) {
			unused = append(unused, g)
		}
	}
	s.mu.Unlock()
	for _, g := range unused {
		err = errors.Join(err, g.close())
	}
	return err
}

// An offer is memory of a client that one request's token names. The memory is registered for the time of the request,
// with the length and the right that it needs.
type offer struct {
	from *targets
	g    *target
	mr   *uverbs.MR
}

// offer registers b for a host. If right is RemoteWrite, the device may write it.
func (s *targets) offer(d *Device, host string, key uint64, b []byte, right uverbs.Access) (*offer, error) {
	g, err := s.take(d, host, key)
	if err != nil {
		return nil, err
	}
	if right == uverbs.RemoteWrite {
		right |= uverbs.LocalWrite
	}
	mr, err := g.pd.RegMR(b, right)
	if err != nil {
		return nil, errors.Join(err, s.put(g, false))
	}
	return &offer{s, g, mr}, nil
}

// token returns the token of the memory.
func (o *offer) token() Token {
	e := o.g.local
	return Token{Addr: o.mr.Addr(), Size: uint32(o.mr.Len()), RKey: o.mr.RKey(), LID: e.LID, DCTN: e.QPN,
		HasGID: !e.GID.IsZero(), GID: e.GID}
}

// end ends all access to the memory, which the caller may then use. If the server has not replied, the token leads to
// no later memory. After an error the memory must not be used again.
func (o *offer) end(replied bool) error {
	err := o.mr.Close()
	return errors.Join(err, o.from.put(o.g, !replied || err != nil))
}
