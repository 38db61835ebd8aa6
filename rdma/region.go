package rdma

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// A Region is memory of the program that can be shared with peers, and sent, read into and written from without a
// copy: see [Conn.BufferOf]. It does not depend on a device: it is registered at a device while it is shared with peers
// there, or from the first BufferOf on. Its methods may be called concurrently.
type Region struct {
	b        []byte // nil for a RegionFunc
	n        int
	reg      func(*uverbs.PD, uverbs.Access) (*uverbs.MR, error)
	readOnly bool

	mu     sync.Mutex
	closed bool
	mrs    map[*pool]*sharedMR // not by PD, which may have a new pool while the last one is being closed
	shares map[*Share]struct{}
}

// A sharedMR is the MR of a region on the PD of a pool.
type sharedMR struct {
	pool  *pool
	users int // belongs to Region.mu

	mu sync.Mutex // held to register it, and to remove users
	mr *uverbs.MR // users may read it

	whole *memory // of buffers; nil before the first one, and after forget; belongs to Region.mu
}

// NewRegion returns a region of n bytes, which are 0. n must be positive, and a multiple of 8 for CanAtomic.
func NewRegion(n int) *Region { return RegionOf(make([]byte, n)) }

// RegionOf returns a region of the bytes of b. The program must be able to write to b (for other memory, there is
// [ReadOnlyRegion]), and must not unmap it before Close has returned nil.
func RegionOf(b []byte) *Region {
	r := RegionFunc(len(b), func(pd *uverbs.PD, a uverbs.Access) (*uverbs.MR, error) { return pd.RegMR(b, a) })
	r.b = b
	return r
}

// ReadOnlyRegion returns a region of memory that the program cannot write to, for example of a file that it has opened
// for reading and mapped. Parts of it can be sent and written to peers, and it can be shared with [CanRead]. What would
// change it returns [ErrReadOnly], and changes nothing: [Conn.ReadBuffer], [Conn.CallInto], a [Batch] with its Read,
// and [Conn.Share] with other rights.
//
// A memory window needs memory that can be written to, except on ConnectX. On other devices, messages of the region
// that are longer than the peer's Options.EagerSize are copied, and Share returns [uverbs.ErrNotSupported].
//
// Map the file with MAP_SHARED: of a private mapping, the kernel registers a copy of each page. Before Linux 6.2, it
// registers only private ones, and BufferOf and Share return an error that matches EFAULT for others.
func ReadOnlyRegion(b []byte) *Region {
	r := RegionOf(b)
	r.readOnly = true
	return r
}

// RegionFunc returns a region of n bytes, which register registers: for example memory on demand ([uverbs.OnDemand]),
// of a dma-buf ([uverbs.PD.RegDMABuf]) or of a device. The MR must be of pd, have at least n bytes and the access a,
// for a dma-buf without [uverbs.MWBindAccess]; the region closes it. register is called when the region is first used
// at a device, by different goroutines at the same time for different devices. register may be called again, also after
// the device was opened again; it must not use the region. [Region.Bytes] and [Buffer.Bytes] return nil.
func RegionFunc(n int, register func(pd *uverbs.PD, a uverbs.Access) (*uverbs.MR, error)) *Region {
	return &Region{n: n, reg: register, mrs: map[*pool]*sharedMR{}, shares: map[*Share]struct{}{}}
}

// Bytes returns the memory. Peers that have the rights may read and change it at any time. Their accesses are not
// atomic, except CompareAndSwap and FetchAdd among each other.
func (r *Region) Bytes() []byte { return r.b }

// Close revokes all shares of the region, see [Share.Revoke], and deregisters it. When it has returned nil, no device
// accesses the memory. It returns [uverbs.ErrBusy] if buffers of [Conn.BufferOf] are not released, or are being sent,
// or if calls of BufferOf or [Conn.Share] have not returned; further ones fail. After an error it may be called again.
// It is idempotent.
func (r *Region) Close() error {
	r.mu.Lock()
	r.closed = true
	shares := slices.Collect(maps.Keys(r.shares))
	r.mu.Unlock()
	var errs []error
	for _, s := range shares {
		errs = append(errs, s.Revoke())
	}
	errs = append(errs, r.forgetAll())
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := errors.Join(errs...); err != nil || len(r.mrs) == 0 {
		return err
	}
	return fmt.Errorf("%w: a call of BufferOf, Share or Revoke with the region has not ended", uverbs.ErrBusy)
}

// register returns the region's MR on the PD of a pool, for one more user.
func (r *Region) register(p *pool) (*sharedMR, error) {
	s, err := r.use(p)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		if s.mr == nil { // the program's function may have panicked
			_ = r.release(s)
		}
	}()
	if s.mr == nil {
		err = p.retry(func() (err error) {
			s.mr, err = r.registerOn(p.pd)
			return err
		})
	}
	return s, err
}

func (r *Region) registerOn(pd *uverbs.PD) (*uverbs.MR, error) {
	a := access
	if r.readOnly {
		a = 0
	}
	mr, err := r.reg(pd, a)
	switch {
	case r.b != nil && errors.Is(err, unix.EFAULT):
		return nil, r.explainFault(err)
	case mr == nil && err == nil:
		return nil, fmt.Errorf("%w: the function of RegionFunc has returned no MR", uverbs.ErrInvalid)
	case mr == nil:
		return nil, err
	case err != nil:
	case mr.PD() != pd:
		err = fmt.Errorf("%w: the MR of the region is of another PD", uverbs.ErrInvalid)
	case mr.Len() < r.n:
		err = fmt.Errorf("%w: the MR of the region has %d bytes, and not %d", uverbs.ErrInvalid, mr.Len(), r.n)
	default:
		return mr, nil
	}
	return nil, errors.Join(err, mr.Close())
}

// explainFault adds to the error of a registration what memory can be registered.
func (r *Region) explainFault(err error) error {
	if r.readOnly {
		return fmt.Errorf("%w: before Linux 6.2, map a file that is only read with MAP_PRIVATE", err)
	}
	return fmt.Errorf("%w: use ReadOnlyRegion for memory that cannot be written to", err)
}

// use returns what the region has for a pool, for one more user.
func (r *Region) use(p *pool) (*sharedMR, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errRegionClosed
	}
	s := r.mrs[p]
	if s == nil {
		s = &sharedMR{pool: p}
		r.mrs[p] = s
	}
	s.users++
	return s, nil
}

var errRegionClosed = fmt.Errorf("%w: the region is closed", ErrReleased)

// drop removes a user, and closes the MR after the last one. After an error, the user is still one.
func (r *Region) drop(s *sharedMR) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.release(s)
}

// release is drop for a caller that holds s.mu.
func (r *Region) release(s *sharedMR) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.users == 1 && s.mr != nil {
		r.mu.Unlock()
		err := s.mr.Close()
		r.mu.Lock()
		if err != nil {
			return err
		}
		s.mr = nil // a call of register that waits for s.mu registers the region again
	}
	if s.users--; s.users == 0 {
		delete(r.mrs, s.pool)
	}
	return nil
}

// BufferOf returns a buffer of the n bytes at off of a region: the program's memory, which is sent, read into and
// written from without a copy. The first call registers the region at the device of c, and it stays registered until
// Close of the region, or of the last connection of the device. Later calls allocate nothing.
//
// The buffer may be used on any connection through the same device, and belongs to the program until it is released or
// sent, as every [Buffer]. Any number of buffers of a region may exist at the same time. The bytes of a buffer that was
// sent must not be changed before the peer has them: see [Conn.Flush]. After an operation whose context has ended, the
// device may still read or change the bytes, also after Release, until Flush of its connection or Close of the region
// has returned nil.
//
// BufferOf returns [ErrBounds] if the bytes are not within the region, [ErrTooLong] for more than 1 GiB, [ErrReleased]
// after Close of the region, net.ErrClosed after Close of all connections of the device, and the errors of
// [uverbs.PD.RegMR], for example [uverbs.ErrMemlock] if the region exceeds the limit on locked memory. Nothing was sent
// then, and the connection can be used further.
func (c *Conn) BufferOf(r *Region, off, n int) (Buffer, error) {
	whole, err := c.holdRegion(r, off, n)
	if err != nil {
		return Buffer{}, c.opError("use a region for", err)
	}
	return c.takeBuffer(whole.part(off, n), n), nil
}

func (c *Conn) holdRegion(r *Region, off, n int) (*memory, error) {
	switch {
	case off < 0 || n < 0 || off > r.n || n > r.n-off:
		return nil, fmt.Errorf("%w: %d bytes at %d of a region of %d", ErrBounds, n, off, r.n)
	case n > maxMessage:
		return nil, fmt.Errorf("%w: a buffer of %d bytes: the limit is %d: use several", ErrTooLong, n, maxMessage)
	}
	whole, err := r.hold(c.pool)
	if err != nil {
		return nil, c.orEnd(err)
	}
	return whole, nil
}

// hold adds a user to the memory of the region for a pool, which it registers before the first one.
func (r *Region) hold(p *pool) (*memory, error) {
	r.mu.Lock()
	s := r.mrs[p]
	if r.closed || s == nil || s.whole == nil {
		r.mu.Unlock()
		return r.keep(p)
	}
	whole := s.whole
	whole.hold()
	r.mu.Unlock()
	return whole, nil
}

// keep registers the region until forget, and adds a user to its memory.
func (r *Region) keep(p *pool) (*memory, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, net.ErrClosed
	}
	p.busy.Add(1)
	p.mu.Unlock()
	defer p.busy.Done() // when p.kept is complete: close reads it
	s, err := r.register(p)
	if err != nil {
		return nil, err
	}
	s.mu.Lock() // forget changes s.users and s.whole one after the other
	r.mu.Lock()
	p.mu.Lock()
	if s.whole == nil {
		s.whole = &memory{bytes: r.b, size: r.n, mr: s.mr, pool: p, readOnly: r.readOnly}
		s.whole.hold() // until forget
		p.kept[s.whole] = func() error { return r.forget(s) }
	} else {
		s.users-- // s.whole counts as one
	}
	whole, closed, poolClosed := s.whole, r.closed, p.closed
	if !closed && !poolClosed {
		whole.hold()
	}
	p.mu.Unlock()
	r.mu.Unlock()
	s.mu.Unlock()
	switch {
	case closed: // Close of the region has not found whole
		_ = r.forgetAll() // Close and close of the pool try again
		return nil, errRegionClosed
	case poolClosed: // close waits, and forgets whole
		return nil, net.ErrClosed
	}
	return whole, nil
}

// forget ends the registration for buffers. After an error it may be called again.
func (r *Region) forget(s *sharedMR) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.mu.Lock()
	whole := s.whole
	r.mu.Unlock()
	if whole == nil {
		return nil
	}
	if err := r.release(s); err != nil {
		return err
	}
	r.mu.Lock()
	s.whole = nil
	r.mu.Unlock()
	s.pool.mu.Lock()
	delete(s.pool.kept, whole)
	s.pool.mu.Unlock()
	return nil
}

// forgetAll ends the registrations for buffers. Those of which there are buffers stay.
func (r *Region) forgetAll() error {
	r.mu.Lock()
	var idle []*sharedMR
	inUse := 0
	for _, s := range r.mrs {
		if s.whole == nil {
			continue
		}
		if n := int(s.whole.state.Load()&usesMask) - 1; n > 0 {
			inUse += n
		} else {
			idle = append(idle, s)
		}
	}
	r.mu.Unlock()
	var errs []error
	for _, s := range idle {
		errs = append(errs, r.forget(s))
	}
	if inUse > 0 {
		errs = append(errs, fmt.Errorf("%w: the region has %s: release those that were not sent, and wait with Conn.Flush "+
			"for the others, or close their connections", uverbs.ErrBusy, plural(inUse, "buffer", "buffers")))
	}
	return errors.Join(errs...)
}

// A Share is a part of a [Region] that is shared with the peer of one connection.
type Share struct {
	c     *Conn
	r     *Region
	mr    *sharedMR // it uses; belongs to mu, and nil after close
	mw    *uverbs.MW
	token Token

	binding bool // belongs to c.mu
	ended   bool // belongs to r.mu

	mu sync.Mutex // held to close it
}

// Share shares a region with the peer, and returns when the peer may use its token. The share ends with Revoke, with
// the region, or with the connection. It returns [uverbs.ErrInvalid] without rights, [ErrTooLong] for more than 2 GiB,
// which is the most that adapters support, [ErrMisaligned] for CanAtomic if the memory does not begin at a multiple of
// 8, and the errors of [uverbs.PD.RegMR], [uverbs.PD.AllocMW] and [Conn.Write]. The connection can be used further,
// unless it has ended.
func (c *Conn) Share(ctx context.Context, r *Region, rights Rights) (*Share, error) {
	return c.ShareRange(ctx, r, 0, r.n, rights)
}

// ShareRange is [Conn.Share] for n bytes at off. It returns [ErrBounds] if they are not within the region. A region of
// more than 2 GiB can be shared in several ranges.
func (c *Conn) ShareRange(ctx context.Context, r *Region, off, n int, rights Rights) (*Share, error) {
	s, err := c.share(ctx, r, off, n, rights)
	if err != nil {
		return nil, c.opError("share with", err)
	}
	return s, nil
}

func (c *Conn) share(ctx context.Context, r *Region, off, n int, rights Rights) (*Share, error) {
	switch {
	case off < 0 || n <= 0 || off > r.n || n > r.n-off:
		return nil, fmt.Errorf("%w: %d bytes at %d of a region of %d", ErrBounds, n, off, r.n)
	case n > uverbs.MaxMessage:
		return nil, fmt.Errorf("%w: a share of %d bytes: the limit is %d: share ranges with ShareRange", ErrTooLong, n,
			uverbs.MaxMessage)
	case rights == 0 || rights&^allRights != 0:
		return nil, fmt.Errorf("%w: the rights are %v: combine CanRead, CanWrite and CanAtomic", uverbs.ErrInvalid, rights)
	case r.readOnly && rights != CanRead:
		return nil, fmt.Errorf("%w: the rights are %v", ErrReadOnly, rights)
	case r.readOnly && !c.binds:
		return nil, fmt.Errorf("%w: %v binds no memory window to memory that cannot be written to: use RegionOf, or "+
			"send the memory", uverbs.ErrNotSupported, c.qp.Context().Device().Name)
	}
	pd := c.cm.PD()
	if pd == nil {
		return nil, net.ErrClosed
	}
	shared, err := r.register(c.pool)
	if err != nil {
		return nil, c.orEnd(err)
	}
	s, mr := &Share{c: c, r: r, mr: shared}, shared.mr
	if rest := (mr.Addr() + uint64(off)) % 8; rest != 0 && rights&CanAtomic != 0 {
		return nil, s.undo(fmt.Errorf("%w: a share with CanAtomic at %#x, which is %d bytes past a multiple of 8: "+
			"let it begin there, or leave CanAtomic out", ErrMisaligned, mr.Addr()+uint64(off), rest))
	}
	if s.mw, err = pd.AllocMW(uverbs.MWType2); err != nil {
		return nil, s.undo(c.orEnd(err))
	}
	s.token = Token{Addr: mr.Addr() + uint64(off), Len: uint64(n), Key: uverbs.IncRKey(s.mw.RKey()), Rights: rights}
	if err := c.addShare(s); err != nil {
		return nil, s.undo(err)
	}
	err = c.bind(ctx, s, uverbs.MWRange{MR: mr, Off: off, Len: n, Access: rights.access()})
	if err == nil {
		err = s.publish()
	} else if s.pending() {
		return nil, err
	}
	if err != nil {
		return nil, s.undo(err)
	}
	return s, nil
}

// bind binds the window of a share, and waits until the peer can use it.
func (c *Conn) bind(ctx context.Context, s *Share, r uverbs.MWRange) error {
	o, err := c.lockToPost(ctx)
	if err != nil {
		return err
	}
	fence, err := c.fenceBind()
	if err != nil {
		defer c.unlock()
		c.freeOp(o)
		return c.unposted(err)
	}
	o.share, s.binding = s, true
	seq, flags := c.next(true)
	b := c.qp.StartSend()
	b.BindMW(seq, flags|fence, s.mw, s.token.Key, r)
	return c.submit(ctx, &b, o, nil)
}

// addShare makes the end of the connection end the share.
func (c *Conn) addShare(s *Share) error {
	c.mu.Lock()
	defer c.unlock()
	err := c.usable()
	if err == nil {
		c.shares[s] = struct{}{}
	}
	return err
}

// publish makes the end of the region end the share.
func (s *Share) publish() error {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	switch {
	case s.ended:
		return net.ErrClosed
	case s.r.closed:
		return errRegionClosed
	}
	s.r.shares[s] = struct{}{}
	return nil
}

// pending reports whether the request that binds the window is still to be executed. An invalid window would make it
// fail, so bound revokes the share.
func (s *Share) pending() bool {
	s.c.mu.Lock()
	defer s.c.unlock()
	return s.binding && s.c.err == nil
}

// bound handles the completion of the request that binds the window. The caller holds c.mu.
func (s *Share) bound(abandoned bool) {
	s.binding = false
	if abandoned { // no caller has the share
		s.c.later(func() { _ = s.close() }) // Close of the connection tries again, and returns the error
	}
}

// Token returns what the peer needs to use the memory.
func (s *Share) Token() Token { return s.token }

// Revoke ends the share, and returns when the peer cannot access the memory any more. An access that it tries
// later ends the connection. After an error, Revoke may be called again; Close of the region or of the connection also
// tries again. Revoke is idempotent.
func (s *Share) Revoke() error { return s.close() }

// undo ends a share that Share does not return because of err. If that fails, Close of the connection tries again.
func (s *Share) undo(err error) error {
	closing := s.close()
	if closing != nil {
		s.c.mu.Lock()
		s.c.shares[s] = struct{}{}
		s.c.mu.Unlock()
	}
	return errors.Join(err, closing)
}

// close closes the window, and the region's MR after its last user. After an error it may be called again.
func (s *Share) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.r.mu.Lock()
	s.ended = true
	s.r.mu.Unlock()
	if s.mw != nil {
		// The kernel's command returns when the device does not use the window any more. If the QP no
		// longer exists, neither does the window.
		if err := s.mw.Close(); err != nil {
			return err
		}
	}
	if s.mr != nil {
		if err := s.r.drop(s.mr); err != nil {
			return err
		}
		s.mr = nil
	}
	s.r.mu.Lock()
	delete(s.r.shares, s)
	s.r.mu.Unlock()
	s.c.mu.Lock()
	delete(s.c.shares, s)
	s.c.mu.Unlock()
	return nil
}
