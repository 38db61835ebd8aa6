package mlx5

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// A request is the send request that was added last. It is encoded in place, at
// the block sendQueue.cur.
type request struct {
	state requestState
	err   error // of requestFailed

	// Left by the fast path for open.
	named  uverbs.Opcode
	data   uint32 // requestEmpty: where its data goes, in bytes of the ring; requestUnaddressed, -Addressed: its blocks
	length uint32 // requestOneSGE, requestUnaddressed, requestAddressed: of its SGE; or with inline data its segments

	// requestOpen.
	op        operation
	size      uint32 // segments so far
	sges      int
	total     uint64 // bytes of its SGEs
	inlined   bool   // it has inline data
	wantsDest bool   // the destination is still to be named: the peer's SRQ, the DCT or the peer's QP
	wants     error  // the error if the request ends now: its operand or window is missing
	fence     uint8  // flags that the request after it must have
}

// A requestState says what can be added to the last request. The table shows the state after a
// call. Where the fast path does not handle the request, the state is open instead of empty,
// oneSGE or inlined. After an error it is failed.
//
//	state    Op      OpSGE   OpInline  SGE     Inline   others  close
//	closed   empty   oneSGE  inlined   failed  failed   failed  closed
//	empty    empty   oneSGE  inlined   oneSGE  inlined  failed  empty
//	oneSGE   empty   oneSGE  inlined   open    failed   failed  oneSGE
//	inlined  empty   oneSGE  inlined   failed  failed   failed  inlined
//	open     empty   oneSGE  inlined   open    open     open    closed or inlined
//	failed   failed  failed  failed    failed  failed   failed  failed
//
// If requests name their destination, OpSGE and OpInline lead to unaddressed, and DCAddr, UDAddr or RemoteSRQ from
// there to addressed. Both are as oneSGE, or with inline data as inlined, but in unaddressed the other calls and close
// fail until the destination is named.
type requestState uint8

const (
	requestClosed      requestState = iota // nothing can be added, or there is no request
	requestEmpty                           // complete in one block, without data
	requestOneSGE                          // complete in one block; SGEs may follow
	requestInlined                         // complete, with inline data
	requestAddressed                       // complete, with a destination; SGEs may follow, unless it has inline data
	requestOpen                            // not part of the queue until close
	requestUnaddressed                     // complete except for the destination
	requestFailed                          // something was wrong: see err
)

// fail records the first error. Nothing can be added after it.
func (s *sendQueue) fail(err error) {
	if s.request.state != requestFailed {
		s.request.state, s.request.err = requestFailed, err
		s.setLimit()
	}
}

// start begins a request of any kind. The request before it must be closed.
func (s *sendQueue) start(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, imm uint32) {
	r, o := &s.request, s.ops[op&opMask]
	if op >= driver.Opcodes || o == 0 || f&^callerFlags != 0 && !s.frames.takes(f) {
		s.fail(provider.Refusal(s.typ, op, f))
		return
	}
	if s.overflow() {
		s.fail(uverbs.ErrQueueFull)
		return
	}
	note := &s.notes[s.cur&s.mask]
	note.wrID, note.end, note.meta = wrID, s.head+1, o.meta()
	r.state, r.op, r.size, r.sges, r.total = requestOpen, o, ctrlSegments, 0, 0
	r.inlined, r.wantsDest, r.wants, r.fence = false, false, nil, 0
	ce := s.ce[f&callerFlags]
	if f&uverbs.Fence == 0 {
		ce |= s.fence
	}
	last := imm
	if o&(imm32|key) == 0 {
		last = 0
	}
	s.setLimit()
	s.setCtrlFlags(s.cur, ce, last)
	if s.destSegments != 0 && o&bare == 0 {
		r.size += s.destSegments
		r.wantsDest = true
	}
	switch {
	case o&remote != 0:
		s.setRaddrSeg(s.cur, r.size, raddr, rkey)
		r.size += raddrSegments
		if o&operands != 0 {
			r.size += atomicSegments
			r.wants = uverbs.ErrAtomicSize
		}
	case s.frames != nil:
		s.setEthSeg(f, imm)
	case o.completes() == uverbs.WCBindMW:
		r.wants = uverbs.ErrNoMW
	case o.completes() == uverbs.WCLocalInv:
		s.setUMR(&driver.Bind{Type2: true})
	}
}

// open reports whether more can be added to the last request, and if so sets its state to open.
// Otherwise it fails the batch.
func (s *sendQueue) open() bool {
	r := &s.request
	blocks := uint32(1) // of a complete request, to which the queue returns
	switch r.state {
	case requestOpen:
		return true
	case requestEmpty:
		r.inlined, r.length = false, 0
	case requestOneSGE:
		r.inlined = false
	case requestUnaddressed:
		blocks = 0
	case requestAddressed:
		blocks = r.data
	default:
		s.fail(uverbs.ErrMalformed)
		return false
	}
	if blocks > 0 {
		s.cur -= blocks
		s.head--
	}
	r.wantsDest = r.state == requestUnaddressed
	r.state, r.op, r.wants, r.fence = requestOpen, s.ops[r.named&opMask], nil, 0
	r.size, r.sges, r.total = r.length, 0, 0
	if !r.inlined {
		r.size, r.total = ctrlSegments+s.destSegments, uint64(r.length)
		if r.op&remote != 0 {
			r.size += raddrSegments
		}
		if r.length > 0 {
			r.sges = 1
			r.size++
		}
	}
	s.setLimit()
	return true
}

// close completes the last request, and reports whether it and those before it are valid.
func (s *sendQueue) close() bool {
	r := &s.request
	switch {
	case r.state == requestEmpty, r.state == requestOneSGE:
		s.last = s.cur - 1
		return true
	case r.state < requestOpen:
		return true
	case r.state == requestFailed:
		return false
	case r.state == requestOpen && r.wants != nil:
		s.fail(r.wants)
		return false
	case r.state == requestUnaddressed, r.wantsDest:
		s.fail(s.noDest())
		return false
	}
	s.setCtrlSeg(s.cur, r.op, r.size)
	s.last = s.cur
	s.cur += (r.size + perBlock - 1) / perBlock
	s.head++
	s.fence = r.fence
	r.state = requestClosed
	if r.inlined {
		r.state = requestInlined
	}
	s.setLimit()
	return true
}

// noDest returns the error for a request without a destination.
func (s *sendQueue) noDest() error {
	if s.typ == uverbs.XRCSend {
		return uverbs.ErrNoSRQN
	}
	return uverbs.ErrNoAH
}

// sge adds a buffer. Empty buffers are omitted: on the ring, a length of 0 means 2^31 bytes,
// which cannot be written in another way.
func (s *sendQueue) sge(sge uverbs.SGE) {
	if !s.open() {
		return
	}
	r := &s.request
	total := r.total + uint64(sge.Length)
	var err error
	switch {
	case r.op&bare != 0 || r.inlined && s.frames == nil:
		err = uverbs.ErrMalformed
	case r.sges >= s.maxSGE:
		err = uverbs.ErrTooManySGEs
	case total > s.maxMessage: // or the SGE is invalid
		err = s.tooLong(total)
	case r.op.hw() == hwTSO && total > s.frames.maxTSO:
		err = uverbs.ErrTSO
	}
	if err != nil {
		s.fail(err)
		return
	}
	r.sges++
	r.total = total
	if r.wants == uverbs.ErrFrameHeader && sge.Length != 0 {
		if sge = s.headerFrom(sge); r.state == requestFailed {
			return
		}
	}
	if sge.Length != 0 {
		s.setDataPtrSeg(s.cur, r.size, sge)
		r.size++
	}
	if r.op&operands != 0 {
		r.wants = nil
		// The device does not split the 8 bytes over several SGEs.
		if one := r.size == ctrlSegments+s.destSegments+raddrSegments+atomicSegments+1; !one || total != atomicSize {
			r.wants = uverbs.ErrAtomicSize
		}
	}
}

// atomicSize is the size of the operands of atomics, in bytes.
const atomicSize = 8

// tooLong returns the error for a message longer than maxMessage. On a UD QP it first queries the
// port's MTU again, because it may have been raised.
func (s *sendQueue) tooLong(total uint64) error {
	if s.mtu == nil || total > uverbs.MaxMessage {
		return uverbs.ErrRange
	}
	if s.maxMessage = s.mtu(); total > s.maxMessage {
		return uverbs.ErrTooLong
	}
	return nil
}

// inline copies the request's data into the ring. It can be called once per request. Empty inline
// data is ignored.
func (s *sendQueue) inline(data []byte) {
	if !s.open() {
		return
	}
	if s.frames != nil {
		s.inlineFrame(data)
		return
	}
	r := &s.request
	var err error
	switch n := len(data); {
	case r.op&(scatter|bare) != 0 && n > 0 || r.inlined || r.sges > 0:
		err = uverbs.ErrMalformed
	case n > s.maxInline:
		err = uverbs.ErrInlineTooLong
	case n == 0:
		return
	case uint64(n) > s.maxMessage:
		err = s.tooLong(uint64(n))
	}
	if err != nil {
		s.fail(err)
		return
	}
	r.size += s.setDataInlSeg(s.cur, r.size, data)
	r.inlined = true
}

// atomic sets the operands.
func (s *sendQueue) atomic(compareAdd, swap uint64) {
	switch {
	case !s.open():
		return
	case s.request.op&operands == 0:
		s.fail(uverbs.ErrMalformed)
		return
	}
	s.setAtomicSeg(s.cur, ctrlSegments+s.destSegments+raddrSegments, s.request.op, compareAdd, swap)
}

// openDest is open for a call that names the destination of a request of a QP of type t.
func (s *sendQueue) openDest(t uverbs.QPType) bool {
	switch {
	case !s.open():
		return false
	case s.typ != t:
		s.fail(uverbs.ErrQPType)
		return false
	case s.request.op&bare != 0:
		s.fail(uverbs.ErrMalformed)
		return false
	}
	s.request.wantsDest = false
	return true
}

// udAddr sets the destination of a datagram.
func (s *sendQueue) udAddr(ah *driver.AH, qpn, qkey uint32) {
	if !s.openDest(uverbs.UD) {
		return
	}
	av, err := ah.For(s.pd)
	if err != nil {
		s.fail(err)
		return
	}
	s.setDatagramSeg(s.cur, ctrlSegments, av, qpn, qkey)
}

// remoteSRQ sets the SRQ of the peer that the request is for.
func (s *sendQueue) remoteSRQ(srqn uint32) {
	if s.openDest(uverbs.XRCSend) {
		s.setXRCSeg(s.cur, ctrlSegments, srqn)
	}
}

// dcAddr sets the DCT that the request is for, and its stream.
func (s *sendQueue) dcAddr(ah *driver.AH, dctn uint32, key uint64, stream uint16) {
	if !s.openDest(uverbs.DCI) {
		return
	}
	av, err := ah.For(s.pd)
	if err == nil && stream != 0 && !s.streams {
		err = uverbs.ErrNoStreams
	}
	if err != nil {
		s.fail(err)
		return
	}
	s.setDCSeg(s.cur, ctrlSegments, av, dctn, key)
	s.setStream(s.cur, stream)
}

// bind sets the window and range of a BIND_MW. err is the error of resolving them, if any.
func (s *sendQueue) bind(b driver.Bind, err error) {
	if !s.open() {
		return
	}
	switch {
	case s.request.wants != uverbs.ErrNoMW:
		err = uverbs.ErrMalformed
	case err == nil && b.Length > uverbs.MaxMessage:
		err = uverbs.ErrRange // a data segment cannot hold a larger length
	}
	if err != nil {
		s.fail(err)
		return
	}
	s.setUMR(&b)
	s.request.wants = nil
}
