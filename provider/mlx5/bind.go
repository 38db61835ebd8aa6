package mlx5

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// Binding a memory window and invalidating a key are both updates of the key's context (UMR,
// user-mode memory registration). A UMR consists of a segment that says which fields change, the
// context with the new values, and, for a bind, the range relative to the MR.

// Flags of the UMR control segment.
const (
	umrInline      = 1 << 7
	umrCheckFree   = 1 << 5 // fail unless the key is free
	umrTranslation = 1 << 4
	umrCheckQPN    = 1 << 3 // fail unless the key is bound on this QP
)

// Fields of the context that a UMR changes.
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

// Fields of a key's context.
const (
	keyFree         = 1 << 6
	keyLocalWrite   = 1 << 3
	keyRemoteRead   = 1 << 4
	keyRemoteWrite  = 1 << 5
	keyRemoteAtomic = 1 << 6
	anyQP           = 0xffffff
)

// setUMR writes the segments that follow the control segment of a UMR. It sets a fence on the
// next request, which must wait for the UMR.
func (s *sendQueue) setUMR(b *driver.Bind) {
	r := &s.request
	if r.op.completes() == uverbs.WCBindMW {
		w := s.segment(s.cur, 0)
		w[1] = w[1]&^be(0xffffffff) | be(uint64(b.MWRKey))
	}
	s.setUMRControlSeg(s.cur, ctrlSegments, b)
	s.setUMRMkeySeg(s.cur, ctrlSegments+umrSegments, b)
	r.size = ctrlSegments + umrSegments + mkeySegments
	if b.Length > 0 {
		s.setUMRDataSeg(s.cur, r.size, b)
		r.size += klmSegments
	}
	r.fence = ceSmallFence
}

// setUMRControlSeg writes the segment that says which fields change: set_umr_control_seg.
func (s *sendQueue) setUMRControlSeg(at, k uint32, b *driver.Bind) {
	flags, mask, octowords := uint64(umrInline|umrTranslation), uint64(maskFree|maskKey), uint64(0)
	window := b.Type2
	if window {
		mask |= maskQPN
	}
	switch {
	case b.Length > 0:
		mask |= maskBind
		octowords = klmSegments // the number of inline octowords
		if window {
			flags |= umrCheckFree
		}
	case window:
		flags |= umrCheckQPN
	}
	*s.segment(at, k) = segment{be(flags<<56 | octowords<<16), be(mask)}
	*s.segment(at, k+1) = segment{}
	*s.segment(at, k+2) = segment{}
}

// setUMRDataSeg writes the range, padded to the size that the device reads: set_umr_data_seg.
func (s *sendQueue) setUMRDataSeg(at, k uint32, b *driver.Bind) {
	*s.segment(at, k) = segment{be2(uint32(b.Length), b.LKey), be(b.Addr)}
	for i := range uint32(klmSegments - 1) {
		*s.segment(at, k+1+i) = segment{}
	}
}

// setUMRMkeySeg writes the new context of the key: set_umr_mkey_seg.
func (s *sendQueue) setUMRMkeySeg(at, k uint32, b *driver.Bind) {
	qpn := uint64(anyQP)
	if b.Type2 && b.Length > 0 {
		qpn = s.qpn >> 8
	}
	access := uverbs.Access(b.Access)
	first := qpn<<8 | uint64(b.RKey&0xff)
	second := segment{}
	if b.Length > 0 {
		first |= uint64(keyAccess(access)) << 40
		second[1] = be(b.Length)
		if access&uverbs.ZeroBased == 0 {
			second[0] = be(b.Addr)
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
