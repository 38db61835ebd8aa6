package mlx5

import (
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// take turns the entry e, whose last word is v, into a completion. It returns false if the entry
// has no completion for the caller.
func (q *cq) take(e *block, v uint64, wc *uverbs.WC) (told bool, err error) {
	opcode := uint32(v) >> opcodeShift & 0xf
	if opcode == cqeResize {
		return false, nil
	}
	t := q.last
	if key := uint32(e[4]) & rawIndex; key != q.key || !q.simple {
		if t = q.find(e, v); t == nil {
			return false, unreadable(opcode)
		}
		if q.simple {
			q.last, q.key = t, key
		}
	}
	at := uint32(v>>16) & 0xffff
	if opcode-cqeWriteImm <= cqeSendInv-cqeWriteImm && t.frames == nil {
		return q.takeRecv(t, e, v, at, wc)
	}
	*wc = uverbs.WC{QPNum: uint32(v>>32) & indexMask}
	switch opcode {
	case cqeRequester:
		wc.Timestamp = be(e[6])
		return q.takeSend(t, e, v, at, wc)
	case cqeWriteImm, cqeSend, cqeSendImm, cqeSendInv:
		wc.Timestamp = be(e[6])
		return q.takeFrame(t.frames, e, v, wc)
	case cqeReqError:
		wc.Status, wc.VendorErr = failure(e)
		note, ok := t.sent(at)
		wc.WRID = note.wrID
		return ok && note.meta&metaSilent == 0, strayUnless(ok)
	case cqeRespError:
		if t.srq != nil && pageFault(e) {
			return false, strayUnless(t.srq.fault(at))
		}
		wc.Status, wc.VendorErr = failure(e)
		id, ok := t.received(at)
		wc.WRID = id
		if t.frames != nil {
			wc.QPNum = t.frames.number
		}
		return ok, strayUnless(ok)
	}
	return false, errFormat
}

// unreadable returns the error for an entry that names no known queue. Entries of features that
// this library does not use have other contents in that field, so their error is errFormat.
func unreadable(opcode uint32) error {
	if opcode <= cqeSendInv || opcode == cqeReqError || opcode == cqeRespError {
		return errStray
	}
	return errFormat
}

func strayUnless(ok bool) error {
	if ok {
		return nil
	}
	return errStray
}

// find returns the target of an entry whose last word is v. It looks it up by index, or else by
// the number of the SRQ or the QP. The SRQ number is valid only in entries of receives.
func (q *cq) find(e *block, v uint64) *target {
	key := uint32(be(e[4])>>32) & indexMask
	switch {
	case q.ctx.indexed:
		return q.ctx.targets.find(key)
	case key != 0 && arrival(v):
		return q.ctx.srqs.find(key)
	}
	return q.ctx.targets.find(uint32(v>>32) & indexMask)
}

// sent completes the request that begins at block at, and all requests before it. It returns the
// request's note.
func (t *target) sent(at uint32) (sendNote, bool) {
	if at &= t.sendMask; int(at) >= len(t.sends) {
		return sendNote{}, false
	}
	n := t.sends[at]
	mmio.Release32(t.sendTail, n.end)
	return n, true
}

// received completes a receive and returns its WRID.
func (t *target) received(at uint32) (id uint64, ok bool) {
	if s := t.srq; s != nil {
		if int(at) >= len(s.ids) {
			return 0, false
		}
		id = s.ids[at]
		s.release(at)
		return id, true
	}
	if t.frames != nil {
		return t.frames.complete(at)
	}
	if at &= t.recvMask; int(at) >= len(t.recvs) {
		return 0, false
	}
	id = t.recvs[at]
	mmio.Release32(t.recvTail, *t.recvTail+1)
	return id, true
}

func (q *cq) takeSend(t *target, e *block, v uint64, at uint32, wc *uverbs.WC) (told bool, err error) {
	if v&formatMask != 0 { // the request's slot may be reused after sent
		if wc.Status, err = q.storeSend(t, e, v, at); err != nil {
			return false, err
		}
	}
	note, ok := t.sent(at)
	if !ok {
		return false, errStray
	}
	wc.WRID, wc.Opcode = note.wrID, note.opcode()
	switch {
	case note.meta&metaAtomic != 0:
		wc.ByteLen = atomicSize
	case note.meta&metaLength != 0:
		wc.ByteLen = uint32(be(e[5]))
	}
	return note.meta&metaSilent == 0, nil
}

func (q *cq) takeRecv(t *target, e *block, v uint64, at uint32, wc *uverbs.WC) (told bool, err error) {
	status := uverbs.WCSuccess
	if v&formatMask != 0 { // the receive's slot may be reused afterwards
		if status, err = q.storeRecv(t, e, v, at); err != nil {
			return false, err
		}
	}
	var id uint64
	if i := at & t.recvMask; t.srq == nil && int(i) < len(t.recvs) {
		id = t.recvs[i]
		mmio.Release32(t.recvTail, *t.recvTail+1)
	} else if id, told = t.received(at); !told {
		return false, errStray
	}
	w, a := wordsOfWC(wc), &arrivals[v>>opcodeShift&7]
	w.message(id, e, a)
	if v&formatMask == carries32 { // the message occupies the fields that name the sender
		w[wcNumbers], w[wcVendor], w[wcKind] = v>>32&indexMask, 0, a.kind
	} else {
		w.sender(be(e[3]), be(e[2]), v, a)
	}
	wc.Status = status
	return true, nil
}

// syndromes maps the device's syndromes to completion statuses.
var syndromes = map[uint8]uverbs.WCStatus{
	0x01:            uverbs.WCLocLenErr,
	0x02:            uverbs.WCLocQPOpErr,
	0x04:            uverbs.WCLocProtErr,
	0x05:            uverbs.WCWRFlushErr,
	0x06:            uverbs.WCMWBindErr,
	0x10:            uverbs.WCBadRespErr,
	0x11:            uverbs.WCLocAccessErr,
	0x12:            uverbs.WCRemInvReqErr,
	0x13:            uverbs.WCRemAccessErr,
	0x14:            uverbs.WCRemOpErr,
	0x15:            uverbs.WCRetryExcErr,
	0x16:            uverbs.WCRNRRetryExcErr,
	syndromeAborted: uverbs.WCRemAbortErr,
}

// failure returns the status of an entry of a failed request, and the device's vendor error code.
func failure(e *block) (uverbs.WCStatus, uint32) {
	w := be(e[6])
	s, ok := syndromes[uint8(w)]
	if !ok {
		s = uverbs.WCGeneralErr
	}
	return s, uint32(w>>8) & 0xff
}
