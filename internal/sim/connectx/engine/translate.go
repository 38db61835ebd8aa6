package engine

import (
	"sort"

	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// A span is memory of a request: the n bytes at va of a key. It is checked at
// each use, because the key may change.
type span struct {
	hca    *HCA
	key    uint32
	va     uint64
	n      uint64
	rights Rights
	as     user
	again  bool // a repeated READ: the requester drops the data if it has the first response
}

// A user is the object on whose behalf memory is accessed.
type user struct {
	pd       uint32
	anyPD    bool // the driver's: any protection domain
	qpn      uint32
	reserved bool // ReservedLKey may be used
}

// Bounds of indirect keys: levels, pieces of a key, and pieces visited per
// packet or frame.
const (
	maxIndirection = 4
	maxPieces      = 1 << 16
	maxEntries     = 1 << 16
)

// A budget is the number of pieces of indirect keys that may still be visited.
type budget int

func newBudget() *budget {
	b := budget(maxEntries)
	return &b
}

// physical is the MKey of the reserved key.
var physical = &MKey{MKeyAttr: MKeyAttr{Mode: Physical, Rights: LocalRead | LocalWrite, QPN: AnyQPN, Length64: true}}

// null is the MKey of the null key.
var null = &MKey{MKeyAttr: MKeyAttr{Rights: LocalRead | LocalWrite, QPN: AnyQPN, Length64: true}}

// missing is the MKey of NoMKey.
var missing = &MKey{MKeyAttr: MKeyAttr{Rights: LocalRead | LocalWrite, QPN: AnyQPN, Length64: true}}

// lookup returns the key of a span if the user has the rights.
func (h *HCA) lookup(key uint32, as user, rights Rights) *MKey {
	switch {
	case key == ReservedLKey && as.reserved:
		return physical
	case key == NullMKey:
		return null
	case key == NoMKey:
		return missing
	}
	k := h.mkeys.objects[key>>8]
	if k == nil || k.Variant != uint8(key) || k.Free || k.PD != as.pd && !as.anyPD || k.Rights&rights != rights {
		return nil
	}
	if k.QPN != AnyQPN && k.QPN != as.qpn {
		return nil
	}
	return k
}

// bounds reports whether n bytes at va are within a key's memory.
func (k *MKey) bounds(va, n uint64) bool {
	if k.Length64 {
		return n == 0 || va+n-1 >= va
	}
	start := k.Start
	if k.Mode == OnDevice {
		start = 0
	}
	return va >= start && n <= k.Length && va-start <= k.Length-n
}

// ok reports whether the user may access all of the memory.
func (s *span) ok() bool {
	k := s.hca.lookup(s.key, s.as, s.rights)
	return k != nil && k.bounds(s.va, s.n)
}

// An access is the result of an access to memory.
type access uint8

const (
	granted access = iota
	denied         // the key, its rights or its bounds are wrong, or the memory does not exist
	absent         // a page of memory on demand is missing
)

// syndrome returns OK if access was granted, PageFault for missing pages, and
// else why.
func (a access) syndrome(why transport.Syndrome) transport.Syndrome {
	switch a {
	case granted:
		return transport.OK
	case absent:
		return transport.PageFault
	}
	return why
}

// each calls f with the pieces of the host's memory of n bytes at off, in
// order, until one is denied or absent.
func (s *span) each(off, n uint64, left *budget, f func(p []byte)) access {
	if off > s.n || n > s.n-off {
		return denied
	}
	w := walker{hca: s.hca, f: f, left: left, write: local(s.rights) == LocalWrite}
	switch {
	case w.walk(s.key, s.va+off, n, s.as, s.rights, 0):
		return granted
	case w.absent:
		return absent
	}
	return denied
}

// read fills p with the memory at off.
func (s *span) read(off uint64, p []byte, left *budget) access {
	return s.each(off, uint64(len(p)), left, func(src []byte) {
		if s.again {
			race.CopyHidden(p, src)
		} else {
			race.Copy(p, src)
		}
		p = p[len(src):]
	})
}

// write stores p at off of the memory.
func (s *span) write(off uint64, p []byte, left *budget) access {
	return s.each(off, uint64(len(p)), left, func(dst []byte) {
		race.Copy(dst, p)
		p = p[len(dst):]
	})
}

// A walker visits memory by its keys.
type walker struct {
	hca    *HCA
	f      func(p []byte)
	left   *budget
	write  bool
	absent bool // a page on demand was missing
}

func (w *walker) walk(key uint32, va, n uint64, as user, rights Rights, depth int) bool {
	k := w.hca.lookup(key, as, rights)
	if k == nil || !k.bounds(va, n) {
		return false
	}
	if n == 0 {
		return true
	}
	switch {
	case k == null:
		return w.zeros(n)
	case k == missing:
		w.absent = depth > 0
		return false
	case k.Mode == Physical:
		return w.host(va, n)
	case k.Mode == MTT:
		return w.pages(k, va, n)
	case k.Mode == OnDevice:
		return w.device(k, va, n)
	}
	if depth == maxIndirection {
		return false
	}
	// An indirect key is used with its own rights, its pieces with the local
	// rights of its creator.
	as.qpn = AnyQPN
	return w.pieces(k, va, n, as, local(rights), depth)
}

// local returns the right that memory of an indirect key must have.
func local(r Rights) Rights {
	if r&(LocalWrite|RemoteWrite|RemoteAtomic) != 0 {
		return LocalWrite
	}
	return LocalRead
}

// zeros visits the null key's memory.
func (w *walker) zeros(n uint64) bool {
	for n > 0 {
		var page [4096]byte
		part := min(n, uint64(len(page)))
		w.f(page[:part])
		n -= part
	}
	return true
}

// host visits memory by the host's addresses, page by page.
func (w *walker) host(addr, n uint64) bool {
	const most = 1 << 16
	for n > 0 {
		part := min(n, most-addr%most)
		p, err := w.hca.config.Memory.View(addr, int(part))
		if err != nil {
			return false
		}
		w.f(p)
		addr += part
		n -= part
	}
	return true
}

// entryMask masks the address in a page's entry.
const entryMask = ^uint64(7)

// entryWrite is the bit of a page's entry that permits writing. It applies to
// memory on demand only.
const entryWrite = 1 << 1

func (w *walker) pages(k *MKey, va, n uint64) bool {
	page := uint64(1) << k.PageShift
	at := va - k.Start + k.Start&(page-1)
	for n > 0 {
		i, in := at>>k.PageShift, at&(page-1)
		if i >= uint64(len(k.Translations)/8) {
			return false
		}
		entry := be64(k.Translations[i*8:])
		if entry == 0 || k.OnDemand && w.write && entry&entryWrite == 0 { // not mapped
			w.absent = k.OnDemand
			return false
		}
		part := min(n, page-in)
		if !w.host(entry&entryMask+in, part) {
			return false
		}
		at += part
		n -= part
	}
	return true
}

func (w *walker) pieces(k *MKey, va, n uint64, as user, rights Rights, depth int) bool {
	at := va - k.Start
	if k.Mode == KSM {
		at += k.Start & (1<<k.PageShift - 1)
	}
	for n > 0 {
		i, in := k.piece(at)
		if *w.left--; i >= len(k.Translations)/16 || *w.left < 0 {
			return false
		}
		e := k.Translations[i*16 : i*16+16]
		size := prm.KLMLength.Get(e)
		if k.Mode == KSM {
			size = 1 << k.PageShift
		}
		part := min(n, size-in)
		if !w.walk(uint32(prm.KLMKey.Get(e)), prm.KLMAddress.Get(e)+in, part, as, rights, depth+1) {
			return false
		}
		at += part
		n -= part
	}
	return true
}

// piece returns the piece of an indirect key at a byte offset, and the offset
// in it.
func (k *MKey) piece(at uint64) (i int, in uint64) {
	if k.Mode == KSM {
		return int(min(at>>k.PageShift, maxPieces<<16)), at & (1<<k.PageShift - 1)
	}
	if k.ends == nil {
		end := uint64(0)
		for list := k.Translations; len(list) >= prm.KLM.Size; list = list[prm.KLM.Size:] {
			end += prm.KLMLength.Get(list)
			k.ends = append(k.ends, end)
		}
	}
	if i = sort.Search(len(k.ends), func(i int) bool { return k.ends[i] > at }); i > 0 {
		at -= k.ends[i-1]
	}
	return i, at
}
