package engine

import (
	"bytes"
	"cmp"
	"slices"
)

// An extent is memory of the host that has a message whose completion the host has not polled: see Config.Program.
type extent struct {
	start, end uint64 // addresses of the host
	held       []byte // its bytes, if they are in the completion instead
	origin     Origin // of the receive request
	cq         *CQ
}

// extend records that p, which begins at off of a message, arrives in the memory of the receive request. The bytes of
// another message that are there must be the same. held is set if p goes to the completion instead.
func (w *receiveWQE) extend(qp *QP, off uint64, p []byte, held bool) {
	h := qp.hca
	for i := range w.pieces {
		x := &w.pieces[i]
		if off >= x.n {
			off -= x.n
			continue
		}
		part := min(uint64(len(p)), x.n-off)
		if at, known := x.span.host(off); known && part > 0 {
			e := &extent{start: at, end: at + part, origin: w.origin(qp), cq: qp.recvCQ}
			if held {
				e.held = append(e.held, p[:part]...)
			}
			h.checkOverlap(e, p[:part])
			if last := len(w.extents) - 1; last >= 0 && w.extents[last].end == at && !held {
				w.extents[last].end += part
			} else {
				w.extents = append(w.extents, e)
			}
		}
		if p, off = p[part:], 0; len(p) == 0 {
			return
		}
	}
}

// checkOverlap reports that bytes of a message replace other ones of another message.
func (h *HCA) checkOverlap(x *extent, p []byte) {
	_, other := h.arrived.overlap(x)
	if other == nil || other.cq == nil || !other.cq.poll() { // the host may have polled since
		return
	}
	if _, other = h.arrived.overlap(x); other == nil {
		return
	}
	from, to := max(x.start, other.start), min(x.end, other.end)
	old := other.held
	if old == nil {
		var err error
		if old, err = h.config.Memory.View(other.start, int(other.end-other.start)); err != nil {
			return
		}
	}
	if bytes.Equal(old[from-other.start:to-other.start], p[from-x.start:to-x.start]) {
		return
	}
	h.advise(Violation{Rule: RuleReceiveOverlap, Origin: x.origin, Text: "the message replaces another one, whose " +
		"completion has not been polled, from " + hex(from) + " on: receives must not share memory",
		Places: []Place{{"the other receive was posted", other.origin}}})
}

// host returns the host's address of the byte at off, if the key is one of pages.
func (s *span) host(off uint64) (addr uint64, known bool) {
	k := s.hca.lookup(s.key, s.as, s.rights)
	if k == nil || k.Mode != MTT || !k.bounds(s.va, s.n) {
		return 0, false
	}
	page := uint64(1) << k.PageShift
	at := s.va + off - k.Start + k.Start&(page-1)
	i := at >> k.PageShift
	if i >= uint64(len(k.Translations)/8) {
		return 0, false
	}
	return be64(k.Translations[i*8:])&entryMask + at&(page-1), true
}

// arrivals has the extents of all messages, ordered by their start. They do not overlap.
type arrivals []*extent

// add adds the memory of a message that is complete, but for what another one has, too.
func (a *arrivals) add(extents []*extent) {
	for _, x := range extents {
		if i, other := a.overlap(x); other == nil {
			*a = slices.Insert(*a, i, x)
		}
	}
}

// overlap returns the first extent that overlaps x, or nil and the place of x.
func (a arrivals) overlap(x *extent) (place int, other *extent) {
	i, _ := slices.BinarySearchFunc(a, x.start+1, func(e *extent, at uint64) int { return cmp.Compare(e.end, at) })
	if i < len(a) && a[i].start < x.end {
		return i, a[i]
	}
	return i, nil
}

// polled removes the memory of a message.
func (a *arrivals) polled(extents []*extent) {
	for _, x := range extents {
		i, _ := slices.BinarySearchFunc(*a, x.start, func(e *extent, at uint64) int { return cmp.Compare(e.start, at) })
		if i < len(*a) && (*a)[i] == x {
			*a = slices.Delete(*a, i, i+1)
		}
	}
}
