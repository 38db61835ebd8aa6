package mlx5

import (
	"runtime"

	"github.com/goverbs/goverbs/uverbs"
)

// sge adds a buffer to the last operation. One of no bytes is left out: to the
// device no bytes would be 2^31, and those are what it has no other way to say.
func (s *sendQueue) sge(sge uverbs.SGE) {
	b := s.settle()
	if b.err != nil {
		return
	}
	total := b.total + uint64(sge.Length)
	switch {
	case !b.open || b.o&bare != 0 || b.data && s.frames == nil:
		b.err = uverbs.ErrOpcode
		return
	case b.sges >= s.maxSGE:
		b.err = uverbs.ErrTooManySGEs
		return
	case total > s.maxMessage:
		if b.err = s.tooLong(total); b.err != nil {
			return
		}
	}
	b.sges++
	b.total = total
	if b.owed == uverbs.ErrFrameHeader && sge.Length != 0 {
		if sge = s.headerFrom(sge); b.err != nil {
			return
		}
	}
	if sge.Length != 0 {
		g := s.segment(b.cur, b.size)
		g[0] = be2(sge.Length&^inlineMark, sge.LKey)
		g[1] = be(sge.Addr)
		b.size++
	}
	if b.o&operands != 0 {
		b.owed = nil
		if one := b.size == ctrlSegments+s.lead+raddrSegments+atomicSegments+1; !one || total != atomicSize {
			b.owed = uverbs.ErrAtomicSize // the device takes them in one piece
		}
	}
}

// atomicSize is what atomics work on, in bytes.
const atomicSize = 8

// tooLong answers for a message over maxMessage. On UD the port's MTU is asked
// for again: it may have grown.
func (s *sendQueue) tooLong(total uint64) error {
	if s.mtu == nil || total > uverbs.MaxMessage {
		return uverbs.ErrRange
	}
	if s.maxMessage = s.mtu(); total > s.maxMessage {
		return uverbs.ErrTooLong
	}
	return nil
}

// inline copies the last operation's data into the ring, once. No data at all is
// a message without data, as it is without the call.
func (s *sendQueue) inline(data []byte) {
	b := s.settle()
	if b.err != nil {
		return
	}
	if s.frames != nil {
		s.inlineFrame(data)
		return
	}
	switch n := len(data); {
	case !b.open || b.o&(scatter|bare) != 0 && n > 0 || b.data || b.sges > 0:
		b.err = uverbs.ErrOpcode
		return
	case n > s.maxInline:
		b.err = uverbs.ErrInlineTooLong
		return
	case n == 0:
		return
	case uint64(n) > s.maxMessage:
		if b.err = s.tooLong(uint64(n)); b.err != nil {
			return
		}
	}
	s.copyInline(b.cur, b.size, data)
	b.size += uint32(inlineHeader+len(data)+segmentSize-1) / segmentSize
	b.data, b.inlined = true, true
}

// copyInline writes an inline segment: 4 bytes of length, then data, around the
// end of the ring. The rest of its last 16 bytes is cleared.
func (s *sendQueue) copyInline(cur, k uint32, data []byte) {
	n := len(data)
	g := s.segment(cur, k+uint32(inlineHeader+n-1)/segmentSize)
	*g = segment{}
	g = s.segment(cur, k)
	g[0] = be2(inlineMark|uint32(n), 0)
	off := int((cur*blockSize+k*segmentSize)&(uint32(len(s.bytes))-1)) + inlineHeader
	if done := copy(s.bytes[off:], data); done < n {
		copy(s.bytes, data[done:])
	}
}

// atomic fills in the operands. For FETCH_ADD the second counts for nothing.
func (s *sendQueue) atomic(compareAdd, swap uint64) {
	b := s.settle()
	if b.err != nil {
		return
	}
	if !b.open || b.o&operands == 0 {
		b.err = uverbs.ErrOpcode
		return
	}
	g := s.segment(b.cur, ctrlSegments+s.lead+raddrSegments)
	if b.o.hw() == hwFetchAdd {
		g[0], g[1] = be(compareAdd), 0
		return
	}
	g[0], g[1] = be(swap), be(compareAdd)
}

// address says where a datagram goes. The vendor's form of an AH is the segment
// as it is on the ring, but for what the request adds.
func (s *sendQueue) address(ah *uverbs.AH, qpn, qkey uint32) {
	b := s.settle()
	if b.err != nil {
		return
	}
	if !b.open || s.pd == nil {
		b.err = uverbs.ErrOpcode
		return
	}
	av, err := uverbs.ProviderAVOf(ah, s.pd)
	if err != nil {
		b.err = err
		return
	}
	g := s.segment(b.cur, ctrlSegments)
	g[0] = be2(qkey, 0)
	g[1] = av[1] | be2(qpn|wildMark, 0)
	*s.segment(b.cur, ctrlSegments+1) = segment{av[2], av[3]}
	*s.segment(b.cur, ctrlSegments+2) = segment{av[4], av[5]}
	b.owed = nil
}

func (q *qp) Atomic(compareAdd, swap uint64) {
	q.sq.atomic(compareAdd, swap)
	runtime.KeepAlive(q)
}

func (q *qp) UDAddr(ah *uverbs.AH, qpn, qkey uint32) {
	q.sq.address(ah, qpn, qkey)
	runtime.KeepAlive(q)
}

// name says which SRQ of the peer an operation is for.
func (s *sendQueue) name(srqn uint32) {
	b := s.settle()
	if b.err != nil {
		return
	}
	if !b.open || s.lead == 0 || b.o&bare != 0 {
		b.err = uverbs.ErrOpcode
		return
	}
	*s.segment(b.cur, ctrlSegments) = segment{be2(srqn, 0), 0}
	b.nameless = false
}

func (q *qp) RemoteSRQ(srqn uint32) {
	q.sq.name(srqn)
	runtime.KeepAlive(q)
}

// Flush is none of the device's operations: Op has said so.
func (q *qp) Flush(uint32, uverbs.Placement, uverbs.Selectivity) {
	if b := q.sq.settle(); b.err == nil {
		b.err = uverbs.ErrOpcode
	}
}
