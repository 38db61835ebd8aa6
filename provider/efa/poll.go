package efa

import (
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// A cqe is struct efa_io_rx_cdesc_ex, or struct efa_io_tx_cdesc at its beginning.
type cqe [4]uint64

const entrySize = 32

// The fields of the first word of a cqe.
const (
	statusAt    = 16
	statusMask  = 0xff << statusAt
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

// pass passes the next entry.
func (s *sub) pass() {
	if s.cur++; s.cur&s.mask == 0 {
		s.turn ^= phase
	}
}

// take returns the next entry, or nil if the device has not written it.
func (s *sub) take() (e *cqe, v uint64) {
	e = &s.ring[s.cur&s.mask]
	if v = mmio.Acquire64(&e[0]); v&phase != s.turn {
		return nil, 0
	}
	s.pass()
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
func (q *cq) take() (e *cqe, v uint64, from *sub) {
	for range q.subs {
		from = q.next
		q.next = from.next
		if e, v = from.take(); e != nil {
			q.cc++
			return e, v, from
		}
	}
	return nil, 0, nil
}

// Poll implements driver.CQ. The loop handles the entries of requests that have succeeded. It leaves the rest of the
// call to pollAny at the first other entry.
//
//go:nosplit
func (q *cq) Poll(wcs []uverbs.WC) (n int, err error) {
	s, v := q.next, uint64(0)
	for ; n < len(wcs); n++ {
		e := s.at(s.cur)
		if v = mmio.Acquire64(&e[0]); v&phase != s.turn {
			break
		}
		page := q.ctx.qps.page(uint8(v >> (numberAt + 8))).Load()
		if page == nil {
			break
		}
		p := page[uint8(v>>numberAt)].qp.Load()
		if p == nil {
			break
		}
		r := &p.sq.requests
		if kind := uint32(v) & (queueMask | statusMask | unsolicited); kind == ofReceive {
			r = &p.rq.requests
		} else if kind != ofSend {
			break
		}
		x := r.find(uint16(v))
		if x == nil || !x.outstanding {
			break
		}
		wc := &wcs[n]
		*wc = uverbs.WC{}
		wc.WRID, wc.QPNum = x.wrID, uint32(uint16(v>>numberAt))
		x.outstanding = false
		r.put(uint16(v))
		if v&(queueMask|opMask<<cqeOpAt) != ofSend {
			complete(wc, e, v)
		}
		s.pass()
		s = s.next
	}
	if n > 0 {
		q.next = s
		q.cc += uint32(n)
	}
	if n < len(wcs) && v&phase == s.turn || q.special.Load() {
		return q.pollAny(wcs, n)
	}
	if n > 0 && q.db.mem != nil {
		if mmio.Store32(q.db.at, q.serial(0)); q.db.bells != nil {
			q.db.simulate(q.serial(0))
		}
	}
	runtime.KeepAlive(q)
	return n, nil
}

// pollAny continues a Poll that has found n completions and has not told the device of them.
//
//go:noinline
func (q *cq) pollAny(wcs []uverbs.WC, n int) (_ int, err error) {
	before := q.cc - uint32(n)
	for left := q.size; n < len(wcs) && left > 0; { // a device may write entries to drop for ever
		e, v, ring := q.take()
		if e == nil {
			break
		}
		got := q.decode(&wcs[n], e, v)
		if got == valid {
			n++
			continue
		}
		if got == stale {
			left--
			continue
		}
		if n == 0 {
			err = provider.ErrCompletion
		} else { // the next call returns the error
			ring.untake()
			q.next, q.cc = ring, q.cc-1
		}
		break
	}
	if q.retired.Load() { // the entries may have been read from zero pages
		return 0, uverbs.ErrClosed
	}
	if q.cc != before && q.db.mem != nil {
		q.ring(0)
	}
	if n == 0 && err == nil {
		if f := q.failure.Load(); f != nil {
			err = *f
		}
	}
	runtime.KeepAlive(q)
	return n, err
}

// What decode finds.
const (
	valid   = iota
	stale   // the entry is of a QP that has been closed or emptied since
	invalid // the entry names no request
)

// requestsOf returns the requests that an entry is one of.
func (q *cq) requestsOf(v uint64) (r *requests, found int) {
	p, used := q.ctx.qps.get(uint16(v >> numberAt))
	switch {
	case p == nil && used:
		return nil, stale
	case p == nil:
		return nil, invalid
	case v&queueMask == ofSend:
		r = &p.sq.requests
	case v&(queueMask|unsolicited) == ofReceive: // no QP is created with unsolicited receives
		r = &p.rq.requests
	default:
		return nil, invalid
	}
	if !r.current(uint16(v)) {
		return nil, stale
	}
	return r, valid
}

// decode fills in wc. Each word is read once: a device that is wrong may change them.
func (q *cq) decode(wc *uverbs.WC, e *cqe, v uint64) (found int) {
	r, found := q.requestsOf(v)
	if found != valid {
		return found
	}
	wrID, ok := r.release(uint16(v))
	if !ok {
		return invalid
	}
	*wc = uverbs.WC{WRID: wrID, QPNum: uint32(uint16(v >> numberAt)), Status: statusOf(v),
		VendorErr: uint32(uint8(v >> statusAt))}
	complete(wc, e, v)
	return valid
}

// sendOpcodes is indexed by the operations of the device.
var sendOpcodes = [opMask + 1]uverbs.WCOpcode{hwRead: uverbs.WCRead, hwWrite: uverbs.WCWrite}

// complete fills in what depends on the operation.
//
//go:nosplit
func complete(wc *uverbs.WC, e *cqe, v uint64) {
	op := v >> cqeOpAt & opMask
	if v&queueMask == ofSend {
		wc.Opcode = sendOpcodes[op]
		return
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
}
