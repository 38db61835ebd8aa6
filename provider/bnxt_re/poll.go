package bnxt_re

import (
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// A cqe is struct bnxt_re_req_cqe, bnxt_re_rc_cqe, bnxt_re_ud_cqe or bnxt_re_term_cqe, and then bnxt_re_bcqe.
type cqe [4]uint64

const entrySize = 32

// The fields of the last word of a cqe.
const (
	phaseMask = 1
	typeAt    = 1
	typeMask  = 15
	statusAt  = 8

	statusMask = 0xff << statusAt
	withImm    = 1 << 17
	withInv    = 1 << 18 // RC only
	ofWrite    = 1 << 19
	tagAt      = 32
	tagMask    = 1<<20 - 1
	sourceAt   = 56
)

// Types of entries: enum bnxt_re_wc_type.
const (
	typeSend   = 0
	typeRecvRC = 1
	typeRecvUD = 2
	typeTerm   = 14
)

const udLengthMask = 1<<14 - 1

// sendStatuses is indexed by enum bnxt_re_req_wc_status. Others are WCGeneralErr.
var sendStatuses = [...]uverbs.WCStatus{uverbs.WCSuccess, uverbs.WCBadRespErr, uverbs.WCLocLenErr, uverbs.WCLocQPOpErr,
	uverbs.WCLocProtErr, uverbs.WCMWBindErr, uverbs.WCRemInvReqErr, uverbs.WCRemAccessErr, uverbs.WCRemOpErr,
	uverbs.WCRNRRetryExcErr, uverbs.WCRetryExcErr, uverbs.WCWRFlushErr}

// recvStatuses is indexed by enum bnxt_re_rsp_wc_status. Others are WCGeneralErr.
var recvStatuses = [...]uverbs.WCStatus{uverbs.WCSuccess, uverbs.WCLocAccessErr, uverbs.WCLocLenErr,
	uverbs.WCLocProtErr, uverbs.WCLocQPOpErr, uverbs.WCMWBindErr, uverbs.WCRemInvReqErr, uverbs.WCWRFlushErr,
	uverbs.WCWRFlushErr}

// hwFlushed is the status of receives that the device flushes. Poll flushes them too, except those of an SRQ.
const hwFlushed = 8

// statusOf returns the status of a completion.
func statusOf(statuses []uverbs.WCStatus, v uint8) uverbs.WCStatus {
	if int(v) < len(statuses) {
		return statuses[v]
	}
	return uverbs.WCGeneralErr
}

// peek returns the entry that is ahead of the next one, and its last word, if the device has written it.
func (q *cq) peek(ahead uint32) (e *cqe, v uint64, there bool) {
	if ahead < uint32(len(q.kept)) {
		e = &q.kept[ahead]
		return e, e[3], true
	}
	return q.next(ahead - uint32(len(q.kept)))
}

// next is peek for the ring alone.
func (q *cq) next(ahead uint32) (e *cqe, v uint64, there bool) {
	n := uint32(len(q.ring))
	if ahead >= n {
		return nil, 0, false
	}
	at, phase := q.head+ahead, q.phase
	if at >= n {
		at, phase = at-n, phase^1
	}
	e = &q.ring[at]
	v = mmio.Acquire64(&e[3])
	return e, v, v&phaseMask == phase
}

// Ready implements driver.CQ.
func (q *cq) Ready() bool {
	ready := len(q.kept) > 0 || q.failure.Load() != nil || q.flushed.ready()
	if !ready {
		v := atomic.LoadUint64(&q.ring[q.head][3])
		ready = v&phaseMask == q.phase
	}
	ready = ready && !q.retired.Load()
	runtime.KeepAlive(q)
	return ready
}

// advance consumes the next entry. It reports whether that is one of the ring.
func (q *cq) advance() bool {
	if len(q.kept) > 0 {
		q.kept = q.kept[1:]
		return false
	}
	q.consume()
	return true
}

// consume consumes an entry of the ring.
func (q *cq) consume() {
	q.taken++
	if q.head++; q.head == uint32(len(q.ring)) {
		q.head, q.phase, q.epoch = 0, q.phase^1, q.epoch^1
	}
}

// release tells the device of the entries that were polled: if that is deferred, when they are many.
func (q *cq) release() {
	if q.deferred {
		if q.taken < q.half {
			return
		}
		q.taken = 0
	}
	q.ctx.bell.ring(ringCQ, q.number, q.head, q.epoch, 0)
}

// What decode finds.
const (
	consumed = iota // the entry has been read
	more            // the entry has further completions
	invalid         // the entry names no request
)

// Poll implements driver.CQ. The loop handles the entries of one request of RC that has succeeded. It leaves the rest
// of the call to pollAny at the first other entry.
//
//go:nosplit
func (q *cq) Poll(wcs []uverbs.WC) (n int, err error) {
	if len(q.kept) > 0 {
		return q.pollAny(wcs, 0)
	}
	v := uint64(0)
	for ; n < len(wcs); n++ {
		e := q.entry()
		if v = mmio.Acquire64(&e[3]); v&phaseMask != q.phase {
			break
		}
		wc, done := &wcs[n], false
		switch uint32(v) & (typeMask<<typeAt | statusMask) {
		case typeSend << typeAt:
			if p := q.ctx.qps.Get(e[0]); p != nil && p.sq.cq == q {
				done = p.completeSend(wc, uint16(e[1]))
			}
		case typeRecvRC << typeAt:
			if p := q.ctx.qps.Get(e[1]); p != nil && p.rq.cq == q && p.srq == nil {
				done = p.completeOne(wc, e, v)
			}
		}
		if !done {
			break
		}
		q.consume()
		if q.deferred && q.taken >= q.half {
			q.release()
		}
	}
	if n < len(wcs) && (v&phaseMask == q.phase || q.flushed.any.Load()) || q.halted.Load() {
		return q.pollAny(wcs, n)
	}
	if n > 0 && !q.deferred {
		q.release()
	}
	runtime.KeepAlive(q)
	return n, nil
}

// pollAny continues a Poll that has found n completions.
//
//go:noinline
func (q *cq) pollAny(wcs []uverbs.WC, n int) (_ int, err error) {
	polled := n > 0
	// The loop ends: a device may write entries without completions for ever.
	for left := len(q.ring) + len(q.kept); n < len(wcs) && left > 0; left-- {
		e, v, there := q.peek(0)
		if !there {
			break
		}
		k, found := q.decode(wcs[n:], e, v)
		n += k
		if found == invalid && n > 0 {
			break // the next call returns the error
		}
		if found == more {
			break // wcs is full
		}
		if q.advance() {
			polled = true
			if q.deferred {
				q.release()
			}
		}
		if found == invalid {
			err = provider.ErrCompletion
			break
		}
	}
	if n < len(wcs) && err == nil && q.flushed.any.Load() {
		n += q.flushed.poll(wcs[n:])
	}
	if q.retired.Load() { // the entries may have been read from zero pages
		return 0, uverbs.ErrClosed
	}
	if polled && !q.deferred {
		q.release()
	}
	if n == 0 && err == nil {
		if f := q.failure.Load(); f != nil {
			err = *f
		}
	}
	runtime.KeepAlive(q)
	return n, err
}

// decode fills in completions. Each word is read once: a device that is wrong may change them.
func (q *cq) decode(wcs []uverbs.WC, e *cqe, v uint64) (n, found int) {
	kind := v >> typeAt & typeMask
	recv := kind == typeRecvRC || kind == typeRecvUD
	handle := e[0]
	if recv {
		handle = e[1]
	}
	p := q.ctx.qps.Get(handle)
	switch {
	case handle == 0: // the QP has been closed or emptied
		return 0, consumed
	case p == nil:
		return 0, invalid
	case kind == typeSend && p.sq.cq == q:
		return p.completeSends(wcs, uint16(e[1]), uint8(v>>statusAt))
	case recv && p.rq.cq == q:
		return p.completeRecv(wcs, e, v)
	case kind == typeTerm && (p.sq.cq == q || p.rq.cq == q):
		p.terminated(q, uint16(e[1]))
		return 0, consumed
	}
	return 0, invalid
}

// noIndex is the index of an end of a QP that completes no sends.
const noIndex = 1<<16 - 1

// terminated handles the end of a QP: the device completes nothing any more, except the sends before an index.
func (p *qp) terminated(by *cq, index uint16) {
	p.flushSends(index)
	p.flushRecvs()
	for _, other := range [...]*cq{p.sq.cq, p.rq.cq} {
		if other != by { // the device may have no entry for it
			other.wakeUp()
		}
	}
}

// distance returns how many requests, from number last on, a completion with a consumer index completes. It returns
// false if they are not outstanding.
func (s *sendQueue) distance(last uint32, index uint16) (n uint32, ok bool) {
	n = (uint32(index)%s.size + s.size - last) % s.size
	if n == 0 || n > s.outstanding() {
		return 0, false
	}
	return n, true
}

// failure returns how many requests a completion with an error completes: those up to the one that failed. Its index
// is that of the next request, or if requests have different sizes, the slot in which the failed one begins.
func (s *sendQueue) failure(index uint16) (n uint32, ok bool) {
	if s.fixed {
		return s.distance(s.last, index)
	}
	done, most := s.completed.Load(), s.outstanding()
	for n < most {
		x := &s.notes[(done+n)&uint32(len(s.notes)-1)]
		if n++; x.slot == index {
			return n, true
		}
	}
	return 0, false
}

// release releases the oldest request, and returns what is known of it.
func (s *sendQueue) release() note {
	done := s.completed.Load()
	x := s.notes[done&uint32(len(s.notes)-1)] // a post may use the note again once the request is released
	if s.last++; s.last == s.size {
		s.last = 0
	}
	s.completed.Store(done + 1)
	return x
}

// completeSends completes the requests up to the one that an index names. If there is an error, it is that of the last
// one.
func (p *qp) completeSends(wcs []uverbs.WC, index uint16, status uint8) (n, found int) {
	s := &p.sq
	left, ok := s.distance(s.last, index)
	if status != 0 {
		left, ok = s.failure(index)
	}
	if !ok && s.flushing.Load() { // Poll has flushed them
		return 0, consumed
	}
	if !ok {
		return 0, invalid
	}
	for ; left > 0 && n < len(wcs); left-- {
		failed := status != 0 && left == 1
		x := s.release()
		if !x.signaled && !failed {
			continue
		}
		if failed {
			wcs[n] = p.unsent(&x, statusOf(sendStatuses[:], status))
			wcs[n].VendorErr = uint32(status)
			p.flushSends(noIndex)
		} else {
			wcs[n] = p.sent(&x)
		}
		n++
	}
	if left > 0 {
		return n, more
	}
	return n, consumed
}

// completeSend completes a signaled request. It returns false if the index names more than one request, or none.
//
//go:nosplit
func (p *qp) completeSend(wc *uverbs.WC, index uint16) bool {
	s := &p.sq
	done := s.completed.Load()
	last := s.last + 1
	if last == s.size {
		last = 0
	}
	x := s.note(done)
	if uint32(index) != last || s.announced.Load() == done || !x.signaled {
		return false
	}
	*wc = uverbs.WC{}
	wc.WRID, wc.QPNum, wc.Opcode = x.wrID, p.number, x.op
	if x.op >= uverbs.WCRead {
		wc.ByteLen = x.bytes
	}
	s.last = last
	s.completed.Store(done + 1)
	return true
}

// completeOne completes a receive of an RC queue pair. It returns false if it is not the oldest one.
//
//go:nosplit
func (p *qp) completeOne(wc *uverbs.WC, e *cqe, v uint64) bool {
	r := &p.rq
	done := r.completed.Load()
	if r.announced.Load() == done || uint32(v>>tagAt)&tagMask != r.last || p.sq.typ != uverbs.RC {
		return false
	}
	*wc = uverbs.WC{}
	wc.WRID, wc.QPNum, wc.Opcode = *r.wrID(r.last), p.number, uverbs.WCRecv
	if v&(withImm|withInv) == 0 {
		wc.ByteLen = uint32(e[0])
	} else {
		p.decodeRecv(wc, e, v)
	}
	if r.last++; r.last == r.size {
		r.last = 0
	}
	r.completed.Store(done + 1)
	return true
}

// sent returns the completion of a request that has succeeded.
func (p *qp) sent(x *note) uverbs.WC {
	wc := p.unsent(x, uverbs.WCSuccess)
	if x.op >= uverbs.WCRead {
		wc.ByteLen = x.bytes
	}
	return wc
}

// unsent returns the completion of a request that has not.
func (p *qp) unsent(x *note, status uverbs.WCStatus) uverbs.WC {
	return uverbs.WC{WRID: x.wrID, QPNum: p.number, Status: status, Opcode: x.op}
}

// completeRecv completes a receive.
func (p *qp) completeRecv(wcs []uverbs.WC, e *cqe, v uint64) (n, found int) {
	r, status, tag := &p.rq, uint8(v>>statusAt), uint32(v>>tagAt)&tagMask
	wc := uverbs.WC{QPNum: p.number, Opcode: uverbs.WCRecv}
	switch {
	case p.srq != nil:
		var ok bool
		if wc.WRID, ok = p.srq.release(tag); !ok {
			return 0, invalid
		}
	case r.outstanding() == 0 && r.flushing.Load(), status == hwFlushed: // Poll flushes them
		return 0, consumed
	case r.outstanding() == 0 || tag != r.last:
		return 0, invalid
	default:
		wc.WRID = r.release()
	}
	if status == 0 {
		p.decodeRecv(&wc, e, v)
	} else {
		wc.Status, wc.VendorErr = statusOf(recvStatuses[:], status), uint32(status)
		p.flushRecvs()
	}
	wcs[0] = wc
	return 1, consumed
}

// decodeRecv fills in the completion of a message.
func (p *qp) decodeRecv(wc *uverbs.WC, e *cqe, v uint64) {
	first := e[0]
	wc.ByteLen = uint32(first)
	switch {
	case v&withImm != 0:
		wc.Flags, wc.Imm = uverbs.WCWithImm, uint32(first>>32)
		if v&ofWrite != 0 {
			wc.Opcode = uverbs.WCRecvRDMAImm
		}
	case v&withInv != 0 && p.sq.typ == uverbs.RC:
		wc.Flags, wc.Imm = uverbs.WCWithInv, uint32(first>>32)
	}
	if p.sq.typ == uverbs.UD {
		wc.ByteLen &= udLengthMask
		wc.Flags |= uverbs.WCGRH
		wc.SrcQP = uint32(e[2]>>48) | uint32(v>>sourceAt)<<16
	}
}
