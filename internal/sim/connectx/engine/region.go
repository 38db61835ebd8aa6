package engine

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// A region is memory of this host that a peer accesses.
type region struct {
	span  span
	qp    *QP
	token uint32 // of the connection, for a DCT
}

// remote returns the right that an access needs, and whether the queue pair
// permits it.
func (qp *QP) remote(a transport.Access) (Rights, bool) {
	switch a {
	case transport.RemoteWrite:
		return RemoteWrite, qp.RemoteWrite
	case transport.RemoteRead, transport.RemoteReadAgain:
		return RemoteRead, qp.RemoteRead
	}
	return RemoteAtomic, qp.RemoteAtomic
}

// Remote returns memory for a peer's access.
func (q *queues) Remote(srq, rkey uint32, va uint64, n uint32, a transport.Access) (transport.Region,
	transport.Syndrome) {
	qp := q.qp
	right, allowed := qp.remote(a)
	if !allowed {
		qp.refusedPeer("the QP does not permit "+right.String()+": set it in the Access of the QP", nil)
		if a == transport.RemoteAtomic {
			return nil, transport.RemoteInvalidRequest
		}
		return nil, transport.RemoteAccess
	}
	as := qp.user()
	as.reserved = false
	if qp.Service == ServiceXRC && srq != 0 {
		s := qp.xrcSRQ(srq)
		if s == nil {
			return nil, transport.RemoteInvalidRequest
		}
		as.pd = s.PD
	}
	if a == transport.RemoteAtomic && va%8 != 0 {
		return nil, transport.RemoteInvalidRequest
	}
	r := &region{qp: qp, token: q.token, span: span{hca: qp.hca, key: rkey, va: va, n: uint64(n), rights: right, as: as,
		again: a == transport.RemoteReadAgain}}
	if rkey == NullMKey || rkey == NoMKey || !r.span.ok() {
		qp.refusedPeer(r.span.refusal("RKey"))
		return nil, transport.RemoteAccess
	}
	return r, transport.OK
}

func (r *region) Write(off uint32, p []byte) transport.Syndrome {
	return r.done(r.span.write(uint64(off), p, newBudget()), off, len(p), true)
}

func (r *region) Read(off uint32, p []byte) transport.Syndrome {
	return r.done(r.span.read(uint64(off), p, newBudget()), off, len(p), false)
}

// done returns the syndrome of an access to n bytes. If pages are missing, it
// requests them.
func (r *region) done(a access, off uint32, n int, write bool) transport.Syndrome {
	s := a.syndrome(transport.RemoteAccess)
	if s != transport.PageFault {
		return s
	}
	f := PageFault{Type: faultRDMA, QPN: r.token, RDMA: true, Length: uint32(n), RKey: r.span.key,
		VA: r.span.va + uint64(off), OpLength: uint32(r.span.n) - off}
	if write {
		f.Type |= faultWrite
	}
	return r.qp.fault(f, transport.RemoteAccess)
}

// Atomic updates eight bytes in the host's byte order, little-endian.
func (r *region) Atomic(op transport.Op, operand [4]uint64) (uint64, transport.Syndrome) {
	var b [8]byte
	if a := r.span.read(0, b[:], newBudget()); a != granted {
		return 0, r.done(a, 0, len(b), true)
	}
	old := binary.LittleEndian.Uint64(b[:])
	v, store := combine(op, old, operand)
	if store {
		binary.LittleEndian.PutUint64(b[:], v)
		if a := r.span.write(0, b[:], newBudget()); a != granted {
			return 0, r.done(a, 0, len(b), true)
		}
	}
	return old, transport.OK
}

// combine returns the new value, and whether it is to be stored.
func combine(op transport.Op, old uint64, operand [4]uint64) (uint64, bool) {
	switch op {
	case transport.CompareSwap:
		return operand[0], old == operand[1]
	case transport.FetchAdd:
		return old + operand[0], true
	case transport.MaskedCompareSwap:
		return old&^operand[2] | operand[0]&operand[2], old&operand[3] == operand[1]&operand[3]
	case transport.MaskedFetchAdd:
		return maskedAdd(old, operand[0], operand[2]), true
	}
	return 0, false
}

// maskedAdd adds fields separately: a bit of the mask is the top bit of a
// field, and the carry out of it is dropped.
func maskedAdd(a, b, mask uint64) uint64 {
	var sum, carry uint64
	for bit := uint64(1); bit != 0; bit <<= 1 {
		x := uint64(0)
		for _, v := range []uint64{a & bit, b & bit, carry & bit} {
			if v != 0 {
				x++
			}
		}
		if x&1 != 0 {
			sum |= bit
		}
		carry = 0
		if x >= 2 && mask&bit == 0 {
			carry = bit << 1
		}
	}
	return sum
}

// Invalidate invalidates a memory key for a peer's SEND.
func (q *queues) Invalidate(srq, rkey uint32) transport.Syndrome {
	qp := q.qp
	as := qp.user()
	if s := qp.xrcSRQ(srq); s != nil {
		as.pd = s.PD
	}
	k := qp.hca.mkeys.objects[rkey>>8]
	if k == nil || k.Variant != uint8(rkey) || k.Free || !k.RemoteInval || k.PD != as.pd || k.QPN != AnyQPN &&
		k.QPN != qp.Number {
		qp.refusedPeer("RKey "+hex(rkey)+" of a SEND with invalidate names no window of the QP's PD", qp.hca.fate(rkey))
		return transport.RemoteAccess
	}
	k.Free = true
	qp.hca.ended(k.Key(), invalidated)
	return transport.OK
}

// invalidate invalidates a memory key for a work request of the queue pair.
func (qp *QP) invalidate(key uint32) transport.Syndrome {
	k := qp.hca.mkeys.objects[key>>8]
	if k == nil || k.Variant != uint8(key) || !k.UMR || k.PD != qp.PD || k.QPN != AnyQPN && k.QPN != qp.Number {
		return transport.BindError
	}
	k.Free = true
	qp.hca.ended(k.Key(), invalidated)
	return transport.OK
}
