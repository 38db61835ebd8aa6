package efa

import (
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// A cqe is struct efa_io_rx_cdesc_ex, or struct efa_io_tx_cdesc at its beginning.
type cqe [4]uint64

const entrySize = 32

// The fields of the first word of a cqe.
const (
	statusAt    = 16
	phase       = 1 << 24
	queueMask   = 3 << 25
	ofSend      = 1 << 25
	ofReceive   = 2 << 25
	withImm     = 1 << 27
	opMask      = 7
	cqeOpAt     = 28
	unsolicited = 1 << 31
	numberAt    = 32
	lengthAt    = 48
)

// statuses is indexed by enum efa_io_comp_status. Others are WCGeneralErr.
var statuses = [...]uverbs.WCStatus{
	0:  uverbs.WCSuccess,
	1:  uverbs.WCWRFlushErr,
	2:  uverbs.WCLocQPOpErr, // QP_INTERNAL_ERROR
	3:  uverbs.WCLocQPOpErr, // UNSUPPORTED_OP
	4:  uverbs.WCLocQPOpErr, // INVALID_AH
	5:  uverbs.WCLocProtErr,
	6:  uverbs.WCLocLenErr,
	7:  uverbs.WCRemAccessErr,
	8:  uverbs.WCRemAbortErr,
	9:  uverbs.WCRemInvRDReqErr, // BAD_DEST_QPN
	10: uverbs.WCRNRRetryExcErr,
	11: uverbs.WCRemInvReqErr, // BAD_LENGTH
	12: uverbs.WCBadRespErr,
	13: uverbs.WCRespTimeoutErr, // UNRESP_REMOTE
	14: uverbs.WCRemOpErr,       // UNKNOWN_PEER
	15: uverbs.WCRespTimeoutErr, // UNREACH_REMOTE
	18: uverbs.WCRemInvReqErr,   // FEATURE_MISMATCH
}

// statusOf returns the status of a completion.
func statusOf(v uint64) uverbs.WCStatus {
	s := uint8(v >> statusAt)
	if int(s) < len(statuses) && (statuses[s] != 0 || s == 0) {
		return statuses[s]
	}
	return uverbs.WCGeneralErr
}

// peek returns the first word of the entry that is ahead of the next one, if the device has written it.
func (s *sub) peek(ahead uint32) (v uint64, there bool) {
	if ahead > s.mask {
		return 0, false
	}
	v = atomic.LoadUint64(&s.ring[(s.cur+ahead)&s.mask][0])
	turn := s.turn
	if s.cur&s.mask+ahead > s.mask {
		turn ^= phase
	}
	return v, v&phase == turn
}

// take returns the next entry, or nil if the device has not written it.
func (s *sub) take() (e *cqe, v uint64) {
	e = &s.ring[s.cur&s.mask]
	if v = mmio.Acquire64(&e[0]); v&phase != s.turn {
		return nil, 0
	}
	if s.cur++; s.cur&s.mask == 0 {
		s.turn ^= phase
	}
	return e, v
}

// untake takes back take.
func (s *sub) untake() {
	if s.cur&s.mask == 0 {
		s.turn ^= phase
	}
	s.cur--
}

// take returns the next completion of any ring, and the ring.
func (q *cq) take() (e *cqe, v uint64, from int) {
	for range q.subs {
		from = q.next
		if q.next++; q.next == len(q.subs) {
			q.next = 0
		}
		if e, v = q.subs[from].take(); e != nil {
			q.cc++
			return e, v, from
		}
	}
	return nil, 0, 0
}

// dropped reports whether an entry belongs to a QP that has been closed or emptied since.
func (q *cq) dropped(ring int, index uint32, number uint16) bool {
	ends := q.stale[number]
	return ends != nil && int32(index-ends[ring]) < 0
}

// Poll implements driver.CQ.
func (q *cq) Poll(wcs []uverbs.WC) (n int, err error) {
	before := q.cc
	for n < len(wcs) {
		e, v, ring := q.take()
		if e == nil {
			clear(q.stale) // all that was there has been polled
			break
		}
		if len(q.stale) > 0 && q.dropped(ring, q.subs[ring].cur-1, uint16(v>>numberAt)) {
			continue
		}
		if q.decode(&wcs[n], e, v) {
			n++
			continue
		}
		if n == 0 {
			err = errCompletion
		} else { // the next call returns the error
			q.subs[ring].untake()
			q.next, q.cc = ring, q.cc-1
		}
		break
	}
	if q.retired.Load() { // the entries may have been read from zero pages
		return 0, uverbs.ErrClosed
	}
	if q.cc != before && q.db.mem != nil {
		q.db.store(q.cc & 0xffff)
	}
	if n == 0 && err == nil {
		if f := q.failure.Load(); f != nil {
			err = *f
		}
	}
	runtime.KeepAlive(q)
	return n, err
}

// decode fills in wc. It reports false if the entry names no request. Each word is read once: a
// device that is wrong may change them.
func (q *cq) decode(wc *uverbs.WC, e *cqe, v uint64) bool {
	number := uint16(v >> numberAt)
	p := q.ctx.qps.get(number)
	if p == nil {
		return false
	}
	*wc = uverbs.WC{QPNum: uint32(number), Status: statusOf(v), VendorErr: uint32(uint8(v >> statusAt))}
	op := v >> cqeOpAt & opMask
	var ok bool
	if v&queueMask == ofSend {
		switch op {
		case hwWrite:
			wc.Opcode = uverbs.WCWrite
		case hwRead:
			wc.Opcode = uverbs.WCRead
		default:
			wc.Opcode = uverbs.WCSend
		}
		wc.WRID, ok = p.sq.release(uint16(v))
		return ok
	}
	if v&queueMask != ofReceive || v&unsolicited != 0 { // no QP is created with unsolicited receives
		return false
	}
	if wc.WRID, ok = p.rq.release(uint16(v)); !ok {
		return false
	}
	rest := e[1]
	wc.Opcode, wc.ByteLen = uverbs.WCRecv, uint32(v>>lengthAt)
	if op == hwWrite {
		wc.Opcode = uverbs.WCRecvRDMAImm
		wc.ByteLen |= uint32(uint16(e[2])) << 16
	}
	wc.SLID, wc.SrcQP = uint16(rest), uint32(uint16(rest>>16))
	if v&withImm != 0 {
		wc.Flags, wc.Imm = uverbs.WCWithImm, uint32(rest>>32)
	}
	return true
}
