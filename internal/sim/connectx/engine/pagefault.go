package engine

import "github.com/goverbs/goverbs/internal/sim/connectx/transport"

// A Pager provides pages of the host's memory on demand.
type Pager interface {
	// PageFault requests the pages of an access. HCA.ResumePageFault is called
	// when the pages are present or cannot be provided. PageFault returns false
	// if no request is possible; the access then fails.
	PageFault(f PageFault) bool
}

// A PageFault is an access to pages that are not present. A queue pair has at
// most one of each type at a time.
type PageFault struct {
	Type   uint8  // as in an event queue's entry
	RDMA   bool   // a peer's access by a key; else an access of a WQE
	QPN    uint32 // the queue pair that stops, or the token of a DCT's connection that stops
	Length uint32 // bytes of the packet

	// For accesses of a WQE.
	Queue     uint32 // the queue pair or SRQ with the WQE
	Index     uint16 // of the WQE
	Committed uint32 // bytes of the message before the packet

	// For accesses of a peer.
	RKey     uint32
	VA       uint64
	OpLength uint32 // bytes from VA to the end of the operation
}

// Types of page faults. Those of RDMA are bits.
const (
	faultSRQ     = 0 // a WQE of an SRQ
	faultSend    = 1 // a request's payload
	faultReceive = 2 // a WQE of a queue pair's receive queue
	faultRead    = 3 // the memory for the response of a READ or an atomic
	faultWrite   = 1 << 1
	faultRDMA    = 1 << 2
)

// requester reports whether the fault belongs to the requester.
func (f *PageFault) requester() bool { return f.Type == faultSend || f.Type == faultRead }

// A faultKey identifies an outstanding page fault.
type faultKey struct {
	kind uint8
	qpn  uint32
}

// maxFaults is the maximum number of faults reported to the host at a time: an
// event queue must have room for them.
const maxFaults = 1 << 10

// faults are the outstanding page faults: those reported to the host and, if
// there are too many, others in order.
type faults struct {
	asked map[faultKey]bool
	later []PageFault
}

// paged reports whether the queue pair's service supports page faults of a
// type.
func (qp *QP) paged(kind uint8) bool {
	switch qp.Service {
	case ServiceRC, ServiceXRC, ServiceDCI, ServiceDCT:
		return true
	case ServiceUD:
		return kind == faultSend || kind == faultSRQ
	}
	return false
}

// fault requests the pages of an access. It returns PageFault, or why if page
// faults are not supported. If f has no QPN, the queue pair stops.
func (qp *QP) fault(f PageFault, why transport.Syndrome) transport.Syndrome {
	h := qp.hca
	if h.config.Pager == nil || !qp.paged(f.Type) {
		return why
	}
	if f.QPN == 0 {
		f.QPN = qp.Number
	}
	key := faultKey{f.Type, f.QPN}
	if asked, waits := h.faults.asked[key]; asked || waits {
		return transport.PageFault
	}
	h.counters.PageFaults++
	if h.faults.asked == nil {
		h.faults.asked = make(map[faultKey]bool)
	}
	if len(h.faults.asked)-len(h.faults.later) >= maxFaults {
		h.faults.asked[key] = false
		h.faults.later = append(h.faults.later, f)
		return transport.PageFault
	}
	if !h.config.Pager.PageFault(f) {
		return why
	}
	h.faults.asked[key] = true
	return transport.PageFault
}

// faultReceive requests the pages of a receive request. If the request is from
// an SRQ and nothing of the message was stored, it is completed with an error:
// the host posts it again, and the message uses another one.
func (q *queues) faultReceive(w *receiveWQE, off, n uint32) transport.Syndrome {
	qp := q.qp
	f := PageFault{Type: faultReceive, QPN: q.token, Queue: qp.Number, Index: w.index, Committed: off, Length: n}
	if w.srq != nil {
		f.Type, f.Queue = faultSRQ, w.srq.Number
	}
	s := qp.fault(f, transport.LocalProtection)
	if s != transport.PageFault || w.srq == nil || w.begun && !qp.Service.datagram() {
		return s
	}
	qp.hca.counters.SRQPageFaults++
	qp.completeReceiveError(w, transport.RemoteAborted, vendorPageFault)
	return transport.PageFaultLost
}

// vendorPageFault is the vendor syndrome of a receive request of an SRQ that
// had a page fault.
const vendorPageFault = 0x93

// ResumePageFault reports that the pages of a fault are present or, if failed
// is set, cannot be provided. An unknown fault is ignored: its queue pair may
// have been reset meanwhile.
func (h *HCA) ResumePageFault(kind uint8, qpn uint32, failed bool) {
	if key := (faultKey{kind, qpn}); h.faults.asked[key] {
		h.resume(key, failed)
		h.reportWaiting()
	}
}

// resume ends a page fault and resumes its queue pair.
func (h *HCA) resume(key faultKey, failed bool) {
	delete(h.faults.asked, key)
	fault := transport.OK
	if failed {
		fault = transport.LocalProtection
	}
	f := PageFault{Type: key.kind}
	if c := h.incoming.tokens[key.qpn]; c != nil {
		h.config.Loop.Post(func() { c.endpoint.Resume(f.requester(), fault) })
	} else if qp := h.qps.objects[key.qpn]; qp != nil {
		h.config.Loop.Post(func() {
			if qp.alive() {
				qp.endpoint.Resume(f.requester(), fault)
			}
		})
	}
}

// reportWaiting reports waiting faults when the host has fewer outstanding
// ones.
func (h *HCA) reportWaiting() {
	for len(h.faults.later) > 0 && len(h.faults.asked)-len(h.faults.later) < maxFaults {
		f := h.faults.later[0]
		h.faults.later = h.faults.later[1:]
		key := faultKey{f.Type, f.QPN}
		if _, waits := h.faults.asked[key]; !waits {
			continue
		}
		h.faults.asked[key] = true
		if !h.config.Pager.PageFault(f) {
			h.resume(key, true)
		}
	}
}

// dropFaults drops the page faults of a queue pair or a connection whose work
// was abandoned.
func (h *HCA) dropFaults(number uint32) {
	f := &h.faults
	for kind := range uint8(8) {
		delete(f.asked, faultKey{kind, number})
	}
	kept := f.later[:0]
	for _, x := range f.later {
		if x.QPN != number {
			kept = append(kept, x)
		}
	}
	f.later = kept
}
