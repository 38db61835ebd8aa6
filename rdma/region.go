package rdma

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/goverbs/goverbs/uverbs"
)

// Rights are what a peer may do with memory that is shared with it.
type Rights uint8

// The rights of [Conn.Share].
const (
	CanRead   Rights = 1 << iota // Read
	CanWrite                     // Write, WriteImm
	CanAtomic                    // CompareAndSwap, FetchAdd
	allRights = CanRead | CanWrite | CanAtomic
)

// String returns the names of the rights.
func (r Rights) String() string {
	var names []string
	for i, name := range []string{"CanRead", "CanWrite", "CanAtomic"} {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if other := r &^ allRights; other != 0 || r == 0 {
		names = append(names, fmt.Sprintf("%#x", uint8(other)))
	}
	return strings.Join(names, "|")
}

func (r Rights) access() (a uverbs.Access) {
	for _, x := range []struct {
		right Rights
		a     uverbs.Access
	}{{CanRead, uverbs.RemoteRead}, {CanWrite, uverbs.RemoteWrite}, {CanAtomic, uverbs.RemoteAtomic}} {
		if r&x.right != 0 {
			a |= x.a
		}
	}
	return a
}

// A Token names memory that a peer has shared on a connection. It is valid on this connection only. A peer
// that invents or changes a token cannot reach memory that was not shared with it: its connection
// ends.
type Token struct {
	Addr   uint64
	Len    uint64 // in bytes
	Key    uint32
	Rights Rights
}

// TokenLen is the length of an encoded Token.
const TokenLen = 24

// An encoded token has Addr and Len in 8 bytes each, Key in 4, Rights in 1, the version of this format in 1, and 2
// bytes that are 0, which are for later versions. Numbers are little-endian.
const tokenVersion = 1

// AppendBinary appends the encoded token, which has TokenLen bytes. It never fails.
func (t Token) AppendBinary(b []byte) ([]byte, error) {
	le := binary.LittleEndian
	b = le.AppendUint64(le.AppendUint64(b, t.Addr), t.Len)
	return append(le.AppendUint32(b, t.Key), byte(t.Rights), tokenVersion, 0, 0), nil
}

// MarshalBinary returns the encoded token. It never fails.
func (t Token) MarshalBinary() ([]byte, error) { return t.AppendBinary(nil) }

// UnmarshalBinary decodes a token. It returns [ErrProtocol] if b is not an encoded token, and [ErrVersion] if it has a
// later format. It cannot know whether the peer has shared such memory. It leaves out rights that this version does not
// know.
func (t *Token) UnmarshalBinary(b []byte) error {
	if len(b) != TokenLen {
		return fmt.Errorf("%w: a token of %d bytes: it has %d, as Token.MarshalBinary returns them", ErrProtocol, len(b),
			TokenLen)
	}
	if v := b[21]; v > tokenVersion {
		return fmt.Errorf("%w: a token of version %d: this side decodes version %d: update it", ErrVersion, v, tokenVersion)
	}
	le := binary.LittleEndian
	u := Token{Addr: le.Uint64(b), Len: le.Uint64(b[8:]), Key: le.Uint32(b[16:]), Rights: Rights(b[20]) & allRights}
	if b[21] == 0 || u.Len > 1<<62 || u.Addr+u.Len < u.Addr {
		return fmt.Errorf("%w: no token of version %d: %x", ErrProtocol, tokenVersion, b)
	}
	*t = u
	return nil
}

// check checks an operation on n bytes at off.
func (t *Token) check(off, n int, right Rights) error {
	switch {
	case off < 0 || n < 0 || uint64(off) > t.Len || uint64(n) > t.Len-uint64(off):
		return fmt.Errorf("%w: %d bytes at %d of a token for %d bytes", ErrBounds, n, off, t.Len)
	case t.Rights&right != right:
		return fmt.Errorf("%w: it has the rights %v, and this needs %v", ErrRights, t.Rights, right)
	}
	return nil
}

// A Region is memory that can be shared with peers. It does not depend on a device: it is registered at a device
// while it is shared with peers there. Its methods may be called concurrently.
type Region struct {
	b []byte

	mu     sync.Mutex
	closed bool
	mrs    map[*uverbs.PD]*sharedMR
	shares map[*Share]struct{}
}

// A sharedMR is the MR of a region on a PD.
type sharedMR struct {
	users int // belongs to Region.mu

	mu sync.Mutex // held to register it
	mr *uverbs.MR
}

// NewRegion returns a region of n bytes, which are 0. n must be positive, and a multiple of 8 for CanAtomic.
func NewRegion(n int) *Region { return RegionOf(make([]byte, n)) }

// RegionOf returns a region of the bytes of b. While it is shared, b must not be in memory that the program
// unmaps.
func RegionOf(b []byte) *Region {
	return &Region{b: b, mrs: map[*uverbs.PD]*sharedMR{}, shares: map[*Share]struct{}{}}
}

// Bytes returns the memory. Peers that have the rights may read and change it at any time. Their accesses are not
// atomic, except CompareAndSwap and FetchAdd among each other.
func (r *Region) Bytes() []byte { return r.b }

// Close revokes all shares of the region: see [Share.Revoke]. After an error it may be called again. It is idempotent.
func (r *Region) Close() error {
	r.mu.Lock()
	r.closed = true
	shares := make([]*Share, 0, len(r.shares))
	for s := range r.shares {
		shares = append(shares, s)
	}
	r.mu.Unlock()
	var errs []error
	for _, s := range shares {
		errs = append(errs, s.Revoke())
	}
	return errors.Join(errs...)
}

// register returns the region's MR on the PD of a pool, for one more user.
func (r *Region) register(p *pool) (*uverbs.MR, error) {
	s, err := r.use(p.pd)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mr != nil {
		return s.mr, nil
	}
	if err := p.retry(func() (err error) {
		s.mr, err = p.pd.RegMR(r.b, access)
		return err
	}); err != nil {
		r.drop(p.pd) // there is no MR to close
		return nil, err
	}
	return s.mr, nil
}

// use returns what the region has for a PD, for one more user.
func (r *Region) use(pd *uverbs.PD) (*sharedMR, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errRegionClosed
	}
	s := r.mrs[pd]
	if s == nil {
		s = &sharedMR{}
		r.mrs[pd] = s
	}
	s.users++
	return s, nil
}

var errRegionClosed = fmt.Errorf("%w: the region is closed", ErrReleased)

// drop removes a user of what the region has for a PD, and returns the MR if it is to be closed, or nil.
func (r *Region) drop(pd *uverbs.PD) *uverbs.MR {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.mrs[pd]
	if s.users--; s.users > 0 {
		return nil
	}
	delete(r.mrs, pd)
	return s.mr
}

// A Share is a part of a [Region] that is shared with the peer of one connection.
type Share struct {
	c     *Conn
	r     *Region
	pd    *uverbs.PD
	mw    *uverbs.MW
	token Token

	binding bool // belongs to c.mu
	ended   bool // belongs to r.mu

	mu      sync.Mutex // held to close it
	dropped bool       // it does not use the region's MR any more
	mr      *uverbs.MR // what is left to close: that MR, if s was the last user
}

// Share shares a region with the peer, and returns when the peer may use its token. The share ends with Revoke, with
// the region, or with the connection. It returns [uverbs.ErrInvalid] without rights, [ErrTooLong] for more than 2 GiB,
// which is the most that adapters support, [ErrMisaligned] for CanAtomic if the memory does not begin at a multiple of
// 8, and the errors of [uverbs.PD.RegMR], [uverbs.PD.AllocMW] and [Conn.Write]. The connection can be used further,
// unless it has ended.
func (c *Conn) Share(ctx context.Context, r *Region, rights Rights) (*Share, error) {
	return c.ShareRange(ctx, r, 0, len(r.b), rights)
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
	case off < 0 || n <= 0 || off > len(r.b) || n > len(r.b)-off:
		return nil, fmt.Errorf("%w: %d bytes at %d of a region of %d", ErrBounds, n, off, len(r.b))
	case n > uverbs.MaxMessage:
		return nil, fmt.Errorf("%w: a share of %d bytes: the limit is %d: share ranges with ShareRange", ErrTooLong, n,
			uverbs.MaxMessage)
	case rights == 0 || rights&^allRights != 0:
		return nil, fmt.Errorf("%w: the rights are %v: combine CanRead, CanWrite and CanAtomic", uverbs.ErrInvalid, rights)
	}
	s := &Share{c: c, r: r, pd: c.cm.PD()}
	if s.pd == nil {
		return nil, net.ErrClosed
	}
	mr, err := r.register(c.pool)
	if err != nil {
		return nil, c.orEnd(err)
	}
	if rest := (mr.Addr() + uint64(off)) % 8; rest != 0 && rights&CanAtomic != 0 {
		return nil, s.undo(fmt.Errorf("%w: a share with CanAtomic at %#x, which is %d bytes past a multiple of 8: "+
			"let it begin there, or leave CanAtomic out", ErrMisaligned, mr.Addr()+uint64(off), rest))
	}
	if s.mw, err = s.pd.AllocMW(uverbs.MWType2); err != nil {
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
	o.share, s.binding = s, true
	seq, flags := c.next(true)
	b := c.qp.StartSend()
	b.BindMW(seq, flags, s.mw, s.token.Key, r)
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
	if !s.dropped {
		s.dropped, s.mr = true, s.r.drop(s.pd)
	}
	if s.mr != nil {
		if err := s.mr.Close(); err != nil {
			return err
		}
	}
	s.r.mu.Lock()
	delete(s.r.shares, s)
	s.r.mu.Unlock()
	s.c.mu.Lock()
	delete(s.c.shares, s)
	s.c.mu.Unlock()
	return nil
}
