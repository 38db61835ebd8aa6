package irdma

import (
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// A cqe is an entry: length, the QP's handle, its number, and a word with flags. A second entry has immediate data.
type cqe [4]uint64

const entrySize = 32

// The words of a cqe.
const (
	lengthWord = 0
	handleWord = 1
	numberWord = 2 // and the sender's number, or the key that the peer has invalidated
	flagsWord  = 3
	immWord    = 0 // of the second entry
)

// The fields of the last word.
const (
	minorMask    = 1<<16 - 1
	majorAt      = 16
	indexAt      = 32
	indexMask    = 1<<15 - 1
	extended     = 1 << 50 // there is a second entry
	withKey      = 1 << 53 // RC only
	failed       = 1 << 55
	hwOpAt       = 56
	hwOpMask     = 1<<6 - 1
	ofSend       = 1 << 62
	immThere     = 1 << 62 // in the second entry
	majorFlush   = 1
	datagramBits = 0xe // the upper bits of a major code that is no error of a datagram
)

// Opcodes on the wire of a WRITE with immediate data, without the transport.
const (
	lastWithImm = 0x09
	onlyWithImm = 0x0b
)

// flushGeneral is the code of requests that are flushed after the first one.
const flushGeneral = 1

// flushStatuses is indexed by enum irdma_flush_opcode. Others are WCFatalErr.
var flushStatuses = [...]uverbs.WCStatus{uverbs.WCFatalErr, uverbs.WCWRFlushErr, uverbs.WCLocProtErr,
	uverbs.WCRemAccessErr, uverbs.WCLocQPOpErr, uverbs.WCRemOpErr, uverbs.WCLocLenErr, uverbs.WCFatalErr,
	uverbs.WCRetryExcErr, uverbs.WCMWBindErr, uverbs.WCRemInvReqErr, uverbs.WCRNRRetryExcErr}

// An entry is a cqe whose words have been read once: a device that is wrong may change them.
type entry struct {
	cqe
	at   *cqe
	imm  uint64 // and immThere
	size uint32 // entries
}

// peek returns the entry at an index, if the device has written it, and the index and valid bit of the next one.
func (r *cqRing) peek(head uint32, v uint64) (e entry, next uint32, nextValid uint64, there bool) {
	at := &r.entries[head]
	flags := mmio.Acquire64(&at[flagsWord])
	if flags&valid != v {
		return e, head, v, false
	}
	e = entry{cqe: cqe{at[0], at[1], at[2], flags}, at: at, size: 1}
	head, v = r.after(head, v)
	if flags&extended != 0 {
		second := &r.entries[head]
		w := mmio.Acquire64(&second[flagsWord])
		if w&valid != v {
			return e, head, v, false
		}
		e.imm, e.size = w&immThere|second[immWord]&(1<<32-1), 2
		head, v = r.after(head, v)
	}
	return e, head, v, true
}

// after returns the index after another one, and its valid bit.
func (r *cqRing) after(head uint32, v uint64) (uint32, uint64) {
	if head++; head == uint32(len(r.entries)) {
		return 0, v ^ valid
	}
	return head, v
}

// Ready implements driver.CQ.
func (q *cq) Ready() bool {
	ready := q.failure.Load() != nil
	for _, r := range q.rings {
		_, _, _, there := r.peek(r.head, r.valid) // Poll leaves an entry whose second half is not there
		ready = ready || there
	}
	ready = ready && !q.retired.Load()
	runtime.KeepAlive(q)
	return ready
}

// What decode finds.
const (
	consumed = iota // the entry has been read
	parked          // it has further completions
	invalid         // it names no request
)

// Poll implements driver.CQ.
func (q *cq) Poll(wcs []uverbs.WC) (n int, err error) {
	empty := 0 // rings without further entries
	for i, r := range q.rings {
		k, any, failure := q.pollRing(r, wcs[n:])
		n += k
		if any {
			empty = i
		}
		if err = failure; err != nil || n == len(wcs) {
			break
		}
	}
	if q.retired.Load() { // the entries may have been read from zero pages
		return 0, uverbs.ErrClosed
	}
	if empty > 0 {
		q.leave(empty)
	}
	if n > 0 {
		err = nil // the next call returns it
	} else if f := q.failure.Load(); f != nil && err == nil {
		err = *f
	}
	runtime.KeepAlive(q)
	return n, err
}

// pollRing polls entries of a ring, and reports whether there were any.
func (q *cq) pollRing(r *cqRing, wcs []uverbs.WC) (n int, any bool, err error) {
	// The loop ends: a device may write entries without completions for ever.
	for left := len(r.entries); n < len(wcs) && left > 0; left-- {
		e, next, v, there := r.peek(r.head, r.valid)
		if !there {
			break
		}
		k, found := q.decode(&wcs[n], &e)
		if found == invalid && n > 0 {
			break // the next call returns the error
		}
		n, any = n+k, true
		if found == parked {
			continue
		}
		r.head, r.valid = next, v
		if found == invalid {
			err = provider.ErrCompletion
			break
		}
	}
	if any {
		mmio.Store64(&q.shadow[headAt], uint64(r.head))
	}
	return n, any, err
}

// decode fills in a completion, if the entry has one.
func (q *cq) decode(wc *uverbs.WC, e *entry) (n, found int) {
	handle := e.cqe[handleWord]
	if handle == 0 { // the QP has been closed or emptied
		return 0, consumed
	}
	p := q.ctx.qps.Get(handle)
	sends := e.cqe[flagsWord]&ofSend != 0
	switch {
	case p == nil, sends && p.sq.cq != q, !sends && p.rq.cq != q:
		return 0, invalid
	case sends:
		return p.completeSend(wc, e)
	}
	return p.completeRecv(wc, e)
}

// flushed reports whether an entry flushes its queue.
func (e *entry) flushed() bool {
	f := e.cqe[flagsWord]
	return f&failed != 0 && f>>majorAt&minorMask == majorFlush
}

// fail sets the status of a completion with an error.
func (e *entry) fail(wc *uverbs.WC) {
	f := e.cqe[flagsWord]
	major, minor := uint32(f>>majorAt&minorMask), uint32(f&minorMask)
	wc.Status, wc.VendorErr = uverbs.WCGeneralErr, major<<16|minor
	if major == majorFlush {
		wc.Status = uverbs.WCFatalErr
		if minor < uint32(len(flushStatuses)) {
			wc.Status = flushStatuses[minor]
		}
	}
}

// park keeps the entry for the requests after the first one. It reports what decode has found.
func (e *entry) park(outstanding uint32) (found int) {
	if outstanding == 0 {
		return consumed
	}
	atomic.StoreUint64(&e.at[flagsWord], e.cqe[flagsWord]&^minorMask|flushGeneral)
	return parked
}

// completeSend completes a send and, without an entry, those before it.
func (p *qp) completeSend(wc *uverbs.WC, e *entry) (n, found int) {
	s := &p.sq
	if e.flushed() {
		p.end()
		x, ok := s.oldest()
		if !ok {
			return 0, consumed
		}
		*wc = p.sent(x)
		e.fail(wc)
		return 1, e.park(s.outstanding())
	}
	x, ok := s.release(uint32(e.cqe[flagsWord]>>indexAt) & indexMask)
	if !ok {
		return 0, invalid
	}
	*wc = p.sent(x)
	f := e.cqe[flagsWord]
	if harmless := s.typ == uverbs.UD && f>>(majorAt+12)&0xf == datagramBits; f&failed != 0 && !harmless {
		e.fail(wc)
	}
	return 1, consumed
}

// sent returns the completion of a send.
func (p *qp) sent(x *note) uverbs.WC {
	return uverbs.WC{WRID: x.wrID, QPNum: p.number, Opcode: x.op, ByteLen: x.bytes}
}

// find returns the outstanding request that begins at an index.
func (s *sendQueue) find(index uint32) (x *note, ok bool) {
	tail, end := s.tail.Load(), s.announcedEnd.Load()
	at := tail + (index-tail)&s.mask()
	if at-tail >= end-tail {
		return nil, false
	}
	x = &s.notes[at&s.mask()]
	return x, !x.padding && x.at.quanta == at
}

// release releases the request that begins at an index, and those before it. It returns false if there is none.
func (s *sendQueue) release(index uint32) (x *note, ok bool) {
	if x, ok = s.find(index); ok {
		s.take(x)
	}
	return x, ok
}

// oldest releases the oldest request, which NOPs may precede.
func (s *sendQueue) oldest() (x *note, ok bool) {
	if s.outstanding() == 0 {
		return nil, false
	}
	tail := s.tail.Load()
	if x = &s.notes[tail&s.mask()]; x.padding {
		x = &s.notes[(tail+uint32(x.quanta))&s.mask()]
	}
	s.take(x)
	return x, true
}

// take releases the requests up to one.
func (s *sendQueue) take(x *note) {
	s.tail.Store(x.at.quanta + uint32(x.quanta))
	s.completed.Store(x.at.requests + 1)
}

// completeRecv completes the oldest receive.
func (p *qp) completeRecv(wc *uverbs.WC, e *entry) (n, found int) {
	r, f := &p.rq, e.cqe[flagsWord]
	flushed := e.flushed()
	if flushed {
		p.end()
	}
	switch next := r.completed.Load() & r.mask() * r.stride; {
	case r.outstanding() == 0 && flushed:
		return 0, consumed
	case r.outstanding() == 0, f&failed == 0 && uint32(f>>indexAt)&indexMask != next:
		return 0, invalid
	}
	*wc = uverbs.WC{WRID: r.release(), QPNum: p.number, Opcode: uverbs.WCRecv}
	if f&failed != 0 {
		e.fail(wc)
		if flushed {
			found = e.park(r.outstanding())
		}
		return 1, found
	}
	p.decodeRecv(wc, e)
	return 1, consumed
}

// decodeRecv fills in the completion of a message.
func (p *qp) decodeRecv(wc *uverbs.WC, e *entry) {
	f, number := e.cqe[flagsWord], e.cqe[numberWord]
	wc.ByteLen = uint32(e.cqe[lengthWord])
	if op := f >> hwOpAt & hwOpMask; op == lastWithImm || op == onlyWithImm {
		wc.Opcode = uverbs.WCRecvRDMAImm
	}
	switch {
	case p.sq.typ == uverbs.UD:
		wc.Flags, wc.SrcQP = uverbs.WCGRH, uint32(number)&numberMask
	case f&withKey != 0:
		wc.Flags, wc.Imm = uverbs.WCWithInv, uint32(number)
	}
	if e.imm&immThere != 0 {
		wc.Flags, wc.Imm = wc.Flags&^uverbs.WCWithInv|uverbs.WCWithImm, uint32(e.imm)
	}
}

// Purge implements driver.Purger.
func (q *cq) Purge(gone any) {
	if p, ok := gone.(*qp); ok {
		q.each(p, func(e *entry) bool {
			e.at[handleWord] = 0
			return true
		})
	}
	runtime.KeepAlive(q)
}

// each calls f with the unpolled entries of a QP until it returns false.
func (q *cq) each(p *qp, f func(*entry) bool) {
	for _, r := range q.rings {
		head, v := r.head, r.valid
		for left := len(r.entries); left > 0; left-- {
			e, next, nextValid, there := r.peek(head, v)
			if !there {
				break
			}
			if e.cqe[handleWord] == p.handle && !f(&e) {
				return
			}
			head, v = next, nextValid
		}
	}
}

// Unpolled implements driver.Unpolled.
func (q *cq) Unpolled(of any) (sends, recvs int) {
	p, ok := of.(*qp)
	if !ok {
		return 0, 0
	}
	s, r := &p.sq, &p.rq
	q.each(p, func(e *entry) bool {
		send, flushed := e.cqe[flagsWord]&ofSend != 0, e.flushed()
		switch {
		case send && flushed:
			sends = int(s.outstanding())
		case send:
			sends = max(sends, s.distance(uint32(e.cqe[flagsWord]>>indexAt)&indexMask))
		case flushed:
			recvs = int(r.outstanding())
		default:
			recvs = min(recvs+1, int(r.outstanding()))
		}
		return true
	})
	runtime.KeepAlive(q)
	return sends, recvs
}

// distance returns how many requests an entry with an index releases.
func (s *sendQueue) distance(index uint32) int {
	if x, ok := s.find(index); ok {
		return int(x.at.requests + 1 - s.completed.Load())
	}
	return 0
}
