package engine

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
)

// Rights are the access rights of a memory key.
type Rights uint8

const (
	LocalRead Rights = 1 << iota
	LocalWrite
	RemoteRead
	RemoteWrite
	RemoteAtomic
)

// An AccessMode is the kind of a memory key's list.
type AccessMode uint8

const (
	Physical AccessMode = 0 // no list: addresses are the host's
	MTT      AccessMode = 1 // pages of one size
	KLM      AccessMode = 2 // pieces of other keys' memory, with individual lengths
	KSM      AccessMode = 3 // pieces of other keys' memory, with one length
	// OnDevice is device memory. Start is its offset in BAR 0, and the key's
	// addresses begin at 0.
	OnDevice AccessMode = 5
)

// AnyQPN in a memory key permits all queue pairs of its protection domain.
const AnyQPN = 0xffffff

// Reserved keys.
const (
	firstMKey = 0x10
	// EndOfList is the key that ends a receive list.
	EndOfList = prm.EndOfReceiveSG
	// ReservedLKey is all of the host's memory, for queue pairs with
	// permission.
	ReservedLKey = 0x200
	// NullMKey reads as zeros and discards writes.
	NullMKey = 0x300
	// NoMKey is missing memory on demand. A piece of an indirect key may have
	// it. The key itself cannot be used.
	NoMKey = 0x400
)

// MKeyAttr is a memory key's context.
type MKeyAttr struct {
	Mode        AccessMode
	Rights      Rights
	Free        bool   // unusable until an update enables it
	UMR         bool   // updates by work requests are allowed
	RemoteInval bool   // SEND with invalidate may invalidate it
	Bind        bool   // windows may be bound to it; this is checked with Config.Program only
	OnDemand    bool   // missing pages are requested from Config.Pager
	QPN         uint32 // the only QP that may use it, or AnyQPN
	Variant     uint8  // the key's low byte
	PD          uint32
	Start       uint64
	Length      uint64
	Length64    bool   // the length is 2^64; Start and Length are ignored
	PageShift   uint8  // log2 of the size of a page (MTT) or piece (KSM)
	Octowords   uint32 // size of the list, in units of 16 bytes
	// Translations is the list as in memory: eight bytes per page, sixteen per
	// piece. The rest up to Octowords is empty.
	Translations []byte
}

// An MKey is a memory key.
type MKey struct {
	MKeyAttr
	Index uint32
	pd    *domain
	part  *memoryPart // of mode OnDevice
	dead  bool
	ends  []uint64 // the ends of the pieces of a KLM list; nil if not computed yet
}

// Key returns the key as in work requests.
func (k *MKey) Key() uint32 { return k.Index<<8 | uint32(k.Variant) }

// CreateMKey creates a memory key. It retains the attributes' list.
func (h *HCA) CreateMKey(a MKeyAttr) (*MKey, error) {
	pd, err := h.pds.get(a.PD)
	if err != nil {
		return nil, err
	}
	if a.Mode > KSM && a.Mode != OnDevice {
		return nil, failf(ErrParam, "access mode %d", a.Mode)
	}
	if (a.Mode == MTT || a.Mode == KSM) && !a.Free && (a.PageShift < 3 || a.PageShift > 62) {
		return nil, failf(ErrParam, "pages of 2^%d bytes", a.PageShift)
	}
	if int64(a.Octowords) > int64(h.limits.Octowords) {
		return nil, failf(ErrLimit, "a list of %d octowords, the limit is %d", a.Octowords, h.limits.Octowords)
	}
	if a.Mode == KLM && a.Octowords > maxPieces {
		return nil, failf(ErrLimit, "%d pieces, the limit is %d", a.Octowords, maxPieces)
	}
	if uint64(len(a.Translations)) > uint64(a.Octowords)*16 {
		return nil, failf(ErrParam, "a list of %d bytes in %d octowords", len(a.Translations), a.Octowords)
	}
	if err := h.roomFor(len(a.Translations)); err != nil {
		return nil, err
	}
	if !a.Length64 && a.Length > 0 && a.Start+a.Length-1 < a.Start {
		return nil, failf(ErrParam, "memory from %#x on, %#x bytes: wraps around", a.Start, a.Length)
	}
	k := &MKey{MKeyAttr: a, pd: pd}
	if a.Mode == OnDevice {
		if a.Length64 || a.Free || len(a.Translations) > 0 {
			return nil, failf(ErrParam, "a key of device memory that is free, or has a list or no length")
		}
		if k.part, err = h.partOf(a.Start, a.Length); err != nil {
			return nil, err
		}
	}
	if k.Index, err = h.mkeys.add(k); err != nil {
		return nil, err
	}
	h.translations += len(a.Translations)
	pd.users++
	if k.part != nil {
		k.part.users++
	}
	return k, nil
}

// QueryMKey returns the memory key with the given index.
func (h *HCA) QueryMKey(index uint32) (*MKey, error) { return h.mkeys.get(index) }

// DestroyMKey destroys the memory key with the given index. Later uses of it
// fail.
func (h *HCA) DestroyMKey(index uint32) error {
	k, err := h.mkeys.get(index)
	if err != nil {
		return err
	}
	k.dead = true
	k.pd.users--
	if k.part != nil {
		k.part.users--
	}
	h.translations -= len(k.Translations)
	k.Translations, k.ends = nil, nil
	h.mkeys.remove(index)
	delete(h.windows, k)
	h.ended(k.Key(), k.closed())
	h.config.Tracer.Forget(trace.ClassKey, uint64(k.Key()))
	return nil
}

// listUnit is the granularity of list updates in bytes: the size of a list is
// rounded up to it.
const listUnit = 64

// updateList stores a part of a key's list, which grows as needed.
func (h *HCA) updateList(k *MKey, off uint64, list []byte) bool {
	end := off + uint64(len(list))
	if end < off || end > (uint64(k.Octowords)*16+listUnit-1)&^(listUnit-1) {
		return false
	}
	if grow := int(end) - len(k.Translations); grow > 0 {
		if h.roomFor(grow) != nil {
			return false
		}
		h.translations += grow
		k.Translations = append(k.Translations, make([]byte, grow)...)
	}
	copy(k.Translations[off:], list)
	k.ends = nil
	return true
}
