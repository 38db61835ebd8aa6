package mlx5

import (
	"runtime"

	"github.com/goverbs/goverbs/uverbs"
)

// A memory window is bound, and a key invalidated, by a change of the key's
// context: UMR. Its segments are one that says what changes, the context with
// the new values, and for a bind the range in the terms of the MR.

// Of the control segment of a UMR.
const (
	umrInline      = 1 << 7
	umrCheckFree   = 1 << 5 // fails unless the key is free
	umrTranslation = 1 << 4
	umrCheckQPN    = 1 << 3 // fails unless it is bound on this QP
)

// What a UMR changes.
const (
	maskLength       = 1 << 0
	maskStart        = 1 << 6
	maskKey          = 1 << 13
	maskQPN          = 1 << 14
	maskLocalWrite   = 1 << 18
	maskRemoteRead   = 1 << 19
	maskRemoteWrite  = 1 << 20
	maskRemoteAtomic = 1 << 21
	maskFree         = 1 << 29

	maskBind = maskLength | maskStart | maskLocalWrite | maskRemoteRead | maskRemoteWrite | maskRemoteAtomic
)

// Of the context of a key.
const (
	keyFree         = 1 << 6
	keyLocalWrite   = 1 << 3
	keyRemoteRead   = 1 << 4
	keyRemoteWrite  = 1 << 5
	keyRemoteAtomic = 1 << 6
	anyQP           = 0xffffff
)

// A change is what a UMR does.
type change struct {
	uverbs.ProviderBind
}

var invalidation = change{uverbs.ProviderBind{Type: uverbs.MWType2}}

// bindWindow is a BIND_MW.
func (s *sendQueue) bindWindow(p *uverbs.ProviderBind) {
	b := s.settle()
	if b.err != nil {
		return
	}
	if p.Length > uverbs.MaxMessage {
		b.err = uverbs.ErrRange // a range in one piece has no more
		return
	}
	w := s.segment(b.cur, 0)
	w[1] = w[1]&^be(0xffffffff) | be(uint64(p.MWRKey))
	s.bind(&change{*p})
	b.owed = nil
}

// bind writes the segments after the control segment, and has the next request
// wait for it.
func (s *sendQueue) bind(c *change) {
	b := s.settle()
	flags, mask, octowords := uint64(umrInline|umrTranslation), uint64(maskFree|maskKey), uint64(0)
	window := c.Type == uverbs.MWType2
	if window {
		mask |= maskQPN
	}
	switch {
	case c.Length > 0:
		mask |= maskBind
		octowords = klmSegments // that is how many are inline
		if window {
			flags |= umrCheckFree
		}
	case window:
		flags |= umrCheckQPN
	}
	at := b.cur
	*s.segment(at, 1) = segment{be(flags<<56 | octowords<<16), be(mask)}
	*s.segment(at, 2) = segment{}
	*s.segment(at, 3) = segment{}
	s.keyContext(at, 4, c)
	b.size = ctrlSegments + umrSegments + mkeySegments
	if c.Length > 0 {
		*s.segment(at, 8) = segment{be2(uint32(c.Length), c.LKey), be(c.Addr)}
		for k := range uint32(klmSegments - 1) {
			*s.segment(at, 9+k) = segment{}
		}
		b.size += klmSegments
	}
	b.fence = ceSmallFence
}

// keyContext writes the new context, from the k-th segment on.
func (s *sendQueue) keyContext(at, k uint32, c *change) {
	qpn := uint64(anyQP)
	if c.Type == uverbs.MWType2 && c.Length > 0 {
		qpn = s.qpn >> 8
	}
	first := qpn<<8 | uint64(c.RKey&0xff)
	second := segment{}
	if c.Length > 0 {
		first |= uint64(keyAccess(c.Access)) << 40
		second[1] = be(c.Length)
		if c.Access&uverbs.ZeroBased == 0 {
			second[0] = be(c.Addr)
		}
	} else {
		first |= keyFree << 56
	}
	*s.segment(at, k) = segment{be(first), 0}
	*s.segment(at, k+1) = second
	*s.segment(at, k+2) = segment{}
	*s.segment(at, k+3) = segment{}
}

func keyAccess(a uverbs.Access) (flags uint8) {
	for _, x := range []struct {
		a    uverbs.Access
		flag uint8
	}{{uverbs.LocalWrite, keyLocalWrite}, {uverbs.RemoteWrite, keyRemoteWrite},
		{uverbs.RemoteRead, keyRemoteRead}, {uverbs.RemoteAtomic, keyRemoteAtomic}} {
		if a&x.a != 0 {
			flags |= x.flag
		}
	}
	return flags
}

// Bind implements uverbs.ProviderQP.
func (q *qp) Bind(p uverbs.ProviderBind, err error) {
	s := &q.sq
	b := s.settle()
	switch {
	case b.err != nil:
	case !b.open || b.owed != uverbs.ErrNoMW:
		b.err = uverbs.ErrOpcode
	case err != nil:
		b.err = err
	default:
		s.bindWindow(&p)
	}
	runtime.KeepAlive(q)
}
