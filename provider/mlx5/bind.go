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

// setUMR writes the segments that follow the control segment of a UMR: set_umr_control_seg, set_umr_mkey_seg and, for a
// bind, set_umr_data_seg. It sets a fence on the next request, which must wait for the UMR.
func (s *sendQueue) setUMR(b *driver.Bind) {
	r := &s.request
	if r.op.completes() == uverbs.WCBindMW {
		w := &s.blocks[s.cur&s.mask][1]
		*w = *w&^be(0xffffffff) | be(uint64(b.MWRKey))
	}
	var u [bindSegments]segment // most of which is zero
	control, key, size := &u[0], u[umrSegments:], uint32(umrSegments+mkeySegments)
	flags, mask := uint64(umrInline|umrTranslation), uint64(maskFree|maskKey)
	context := uint64(anyQP)<<8 | uint64(b.RKey&0xff)
	if b.Type2 {
		mask |= maskQPN
	}
	if b.Length > 0 {
		mask |= maskBind
		control[0] = be(klmSegments << 16) // the number of inline octowords
		if b.Type2 {
			flags |= umrCheckFree
			context = s.qpn | uint64(b.RKey&0xff)
		}
		context |= keyAccess(uverbs.Access(b.Access)) << 40
		key[1][1] = be(b.Length)
		if uverbs.Access(b.Access)&uverbs.ZeroBased == 0 {
			key[1][0] = be(b.Addr)
		}
		u[size] = segment{be2(uint32(b.Length), b.LKey), be(b.Addr)}
		size += klmSegments
	} else {
		context |= keyFree << 56
		if b.Type2 {
			flags |= umrCheckQPN
		}
	}
	control[0] |= be(flags << 56)
	control[1] = be(mask)
	key[0][0] = be(context)
	s.setSegments(s.cur, ctrlSegments, u[:size])
	r.size, r.fence = ctrlSegments+size, ceSmallFence
}

// keyRights are the rights of a key's context for those of a window.
var keyRights = [...]struct {
	access uverbs.Access
	flag   uint64
}{{uverbs.LocalWrite, keyLocalWrite}, {uverbs.RemoteWrite, keyRemoteWrite}, {uverbs.RemoteRead, keyRemoteRead},
	{uverbs.RemoteAtomic, keyRemoteAtomic}}

func keyAccess(a uverbs.Access) (flags uint64) {
	for i := range keyRights {
		if a&keyRights[i].access != 0 {
			flags |= keyRights[i].flag
		}
	}
	return flags
}
