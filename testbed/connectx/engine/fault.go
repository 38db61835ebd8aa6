package engine

import "github.com/goverbs/goverbs/testbed/connectx/transport"

// A Pager is the part of a host that brings pages of memory on demand.
type Pager interface {
	// PageFault asks for the pages that an access needs. When they are there, or
	// cannot be had, HCA.ResumePageFault is called. It returns false if nobody can
	// be asked, and then the access is an error.
	PageFault(f PageFault) bool
}

// A PageFault is an access to pages that are not there. A queue pair has at most
// one of a type at a time.
type PageFault struct {
	Type   uint8  // as an event queue's entry has it
	RDMA   bool   // of a peer's access by a key; else of a WQE
	QPN    uint32 // the queue pair whose work stops
	Length uint32 // bytes of the packet

	// Of a WQE.
	Queue     uint32 // the queue pair or SRQ that has the WQE
	Index     uint16 // of the WQE
	Committed uint32 // bytes of the message before the packet

	// Of a peer's access.
	RKey     uint32
	VA       uint64
	OpLength uint32 // bytes from VA to the end of the operation
}

// Types of page faults. Those of RDMA are bits.
const (
	faultSRQ     = 0 // a WQE of an SRQ
	faultSend    = 1 // a request's payload
	faultReceive = 2 // a WQE of a queue pair's receive queue
	faultRead    = 3 // the memory for the answer of a READ or an atomic
	faultWrite   = 1 << 1
	faultRDMA    = 1 << 2
)

// requester reports whether the fault is of the half that sends requests.
func (f *PageFault) requester() bool { return f.Type == faultSend || f.Type == faultRead }

// A faultKey names a page fault of those that wait for ResumePageFault.
type faultKey struct {
	kind uint8
	qpn  uint32
}

// maxFaults is how many page faults the host is asked for at the same time: an
// event queue must have room for them.
const maxFaults = 1 << 10

// faults are the page faults that wait: those that the host was asked for, and,
// if there are too many, others in their order.
type faults struct {
	asked map[faultKey]bool
	later []PageFault
}

// paged reports whether the queue pair's service has page faults of a type.
func (qp *QP) paged(kind uint8) bool {
	switch qp.Service {
	case ServiceRC, ServiceXRC:
		return true
	case ServiceUD:
		return kind == faultSend || kind == faultSRQ
	}
	return false
}

// fault asks the host for the pages of an access. It returns PageFault, or why the
// access fails if there are no page faults.
func (qp *QP) fault(f PageFault, why transport.Syndrome) transport.Syndrome {
	h := qp.hca
	if h.config.Pager == nil || !qp.paged(f.Type) {
		return why
	}
	f.QPN = qp.Number
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

// faultReceive asks the host for the pages of a receive request. That of an SRQ is
// completed with an error of its own if nothing of the message is in memory yet:
// the host is to post it again, and the message takes another one.
func (qp *QP) faultReceive(w *receiveWQE, off, n uint32) transport.Syndrome {
	f := PageFault{Type: faultReceive, Queue: qp.Number, Index: w.index, Committed: off, Length: n}
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

// vendorPageFault is the vendor's syndrome of a receive request of an SRQ whose
// memory is not there.
const vendorPageFault = 0x93

// ResumePageFault says that the pages of a fault are there, or that they cannot be
// had. A fault that there is not any more is none of the host's errors: its queue
// pair may have been reset meanwhile.
func (h *HCA) ResumePageFault(kind uint8, qpn uint32, failed bool) {
	if key := (faultKey{kind, qpn}); h.faults.asked[key] {
		h.resume(key, failed)
		h.askLater()
	}
}

// resume ends a page fault, and lets its queue pair go on.
func (h *HCA) resume(key faultKey, failed bool) {
	delete(h.faults.asked, key)
	fault := transport.OK
	if failed {
		fault = transport.LocalProtection
	}
	f := PageFault{Type: key.kind}
	if qp := h.qps.objects[key.qpn]; qp != nil {
		h.config.Loop.Post(func() {
			if qp.alive() {
				qp.endpoint.Resume(f.requester(), fault)
			}
		})
	}
}

// askLater asks the host for pages that wait until it has fewer faults.
func (h *HCA) askLater() {
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

// forgetFaults drops the page faults of a queue pair whose work is given up.
func (qp *QP) forgetFaults() {
	f := &qp.hca.faults
	for kind := range uint8(8) {
		delete(f.asked, faultKey{kind, qp.Number})
	}
	kept := f.later[:0]
	for _, x := range f.later {
		if x.QPN != qp.Number {
			kept = append(kept, x)
		}
	}
	f.later = kept
}
