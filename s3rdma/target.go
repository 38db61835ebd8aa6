package s3rdma

import (
	"errors"
	"sync"

	"github.com/goverbs/goverbs/uverbs"
)

// A target is what a client's tokens lead to: a DCT, and the PD of the memory that can be reached through it. Requests
// share it. When a server may still use a token whose request has ended, the target is retired: later memory belongs
// to another PD, which the token does not lead to even if the device gives a region the same key again.
type target struct {
	pd    *uverbs.PD
	cq    *uverbs.CQ
	srq   *uverbs.SRQ
	qp    *uverbs.QP
	local uverbs.Endpoint

	users   int
	retired bool
}

func newTarget(d *Device, key uint64) (*target, error) {
	g := &target{}
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

// targets has the target of new requests.
type targets struct {
	creating sync.Mutex // locked before mu, and by no request that has a target
	mu       sync.Mutex
	current  *target
	closed   bool
}

// take returns a target for one request.
func (s *targets) take(d *Device, key uint64) (*target, error) {
	if g, err := s.join(nil); g != nil || err != nil {
		return g, err
	}
	s.creating.Lock()
	defer s.creating.Unlock()
	if g, err := s.join(nil); g != nil || err != nil {
		return g, err
	}
	g, err := newTarget(d, key)
	if err != nil {
		return nil, err
	}
	if _, err := s.join(g); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

// join counts a request as a user of the current target, which g becomes if it is not nil.
func (s *targets) join(g *target) (*target, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if g != nil {
		s.current = g
	}
	if s.current != nil {
		s.current.users++
	}
	return s.current, nil
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
	if retire {
		g.retired = true
	}
	if g.retired && s.current == g {
		s.current = nil
	}
	last := g.retired && g.users == 0
	s.mu.Unlock()
	if last {
		return g.close()
	}
	return nil
}

// close retires the target. Requests in progress go on.
func (s *targets) close() error {
	s.mu.Lock()
	s.closed = true
	g := s.current
	s.current = nil
	if g != nil {
		g.retired = true
	}
	last := g != nil && g.users == 0
	s.mu.Unlock()
	if last {
		return g.close()
	}
	return nil
}

// An offer is memory of a client that one request's token names. The memory is registered for the time of the request,
// with the length and the right that it needs.
type offer struct {
	from *targets
	g    *target
	mr   *uverbs.MR
}

// offer registers b. If right is RemoteWrite, the device may write it.
func (s *targets) offer(d *Device, key uint64, b []byte, right uverbs.Access) (*offer, error) {
	g, err := s.take(d, key)
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
