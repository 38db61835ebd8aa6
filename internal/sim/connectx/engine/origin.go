package engine

import (
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// An Origin is the call stack of a post, as program counters: see [HCA.From].
type Origin []uintptr

// From runs a step on behalf of a post. Violations in it, in the steps that it
// posts and in its timers have the origin, also those of other HCAs of the loop.
func (h *HCA) From(o Origin, f func()) { h.config.Loop.As(o, f) }

// origin returns the origin of the running step, or nil.
func (h *HCA) origin() Origin {
	o, _ := h.config.Loop.Owner().(Origin)
	return o
}

// origins has the origins of a ring's requests by index.
type origins []Origin

// record records the origin of the requests from one index up to another in a
// ring of size requests.
func (o *origins) record(from, to uint16, size int, at Origin) {
	if at == nil || size == 0 {
		return
	}
	if *o == nil {
		*o = make(origins, size)
	}
	for i := from; i != to; i++ {
		(*o)[int(i)%size] = at
	}
}

// of returns the origin of the request at an index, or nil.
func (o origins) of(index uint16) Origin {
	if len(o) == 0 {
		return nil
	}
	return o[int(index)%len(o)]
}

// Received records the origin of receive requests that were posted. It leaves out requests that the device has fetched
// meanwhile: the program may have their completions, and use their memory again.
func (qp *QP) Received() {
	w, err := qp.hca.record(qp.Record)
	if err != nil || qp.rq.size == 0 {
		return
	}
	qp.postedReceives(int(uint16(w) - qp.rq.counted))
	if fetched := qp.rq.head - qp.rq.counted; int16(fetched) > 0 {
		qp.rq.counted = qp.rq.head
	}
	qp.rq.origins.record(qp.rq.counted, uint16(w), 1<<qp.LogRQSize, qp.hca.origin())
	for ; race.Enabled && qp.rq.counted != uint16(w); qp.rq.counted++ {
		raw := make([]byte, 1<<qp.LogRQStride)
		if qp.hca.load(&qp.Buffer, uint64(qp.rq.counted)<<qp.LogRQStride&(qp.rq.size-1), raw) == nil {
			qp.hca.mayWrite(raw, qp.user())
		}
	}
	qp.rq.counted = uint16(w)
}

// Received is as that of a QP. It follows the list from the last request that it has seen, or that was fetched.
func (s *SRQ) Received() {
	w, err := s.hca.record(s.Record)
	if err != nil {
		return
	}
	if fetched := s.taken - s.counted; int16(fetched) > 0 {
		s.counted, s.walked = s.taken, s.head
	}
	for ; s.counted != uint16(w); s.counted++ {
		s.origins.record(s.walked, s.walked+1, 1<<s.LogSize, s.hca.origin())
		if race.Enabled {
			s.mayWrite(s.walked)
		}
		next, ok := s.next(s.walked)
		if !ok {
			return
		}
		s.walked = next
	}
}

// mayWrite tells the race detector that a message may arrive in the memory of a receive request from now on. raw has
// its data segments.
func (h *HCA) mayWrite(raw []byte, as user) {
	var w receiveWQE
	w.decode(h, raw, as)
	for i := range w.pieces {
		if s := &w.pieces[i].span; s.ok() {
			s.each(0, s.n, newBudget(), race.Write) // what is missing fails when the message arrives
		}
	}
}

// mayWrite is that of the HCA for a request of the SRQ.
func (s *SRQ) mayWrite(index uint16) {
	raw := make([]byte, 1<<s.LogStride)
	if s.hca.load(&s.Buffer, uint64(index)<<s.LogStride, raw) == nil {
		s.hca.mayWrite(raw[prm.WQENext.Size:], s.user())
	}
}

// next returns the index of the request after another in the list.
func (s *SRQ) next(index uint16) (next uint16, ok bool) {
	var b [4]byte
	if s.hca.load(&s.Buffer, uint64(index)<<s.LogStride, b[:]) != nil {
		return 0, false
	}
	next = uint16(b[2])<<8 | uint16(b[3])
	return next, int(next) < 1<<s.LogSize
}

// origin returns where a receive request was posted, or nil.
func (w *receiveWQE) origin(qp *QP) Origin {
	if w.srq != nil {
		return w.srq.origins.of(w.index)
	}
	return qp.rq.origins.of(w.index)
}
