package mlx5

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// This file writes the segments of a send WQE, each as the function of that name in libmlx5's
// qp.c does. at is the WQE's first block as the queue counts them, and k is the segment within
// the WQE. A WQE may wrap around the end of the ring.

func (s *sendQueue) segment(at, k uint32) *segment {
	return &s.segments[(at*perBlock+k)&(s.mask*perBlock+perBlock-1)]
}

// setCtrlSeg writes the opcode and the WQE's size in segments, which completes the WQE:
// set_ctrl_seg.
func (s *sendQueue) setCtrlSeg(at uint32, op operation, size uint32) {
	s.blocks[at&s.mask][0] = be(uint64(at&0xffff)<<wordIndex | op.hw()<<32 | s.qpn | uint64(size))
}

// setCtrlFlags writes the rest of the control segment: the flags, and immediate
// data or a key.
func (s *sendQueue) setCtrlFlags(at uint32, ce uint8, imm uint32) {
	s.blocks[at&s.mask][1] = be(uint64(ce)<<32 | uint64(imm))
}

// setXRCSeg writes the number of the peer's SRQ: set_xrc_seg.
func (s *sendQueue) setXRCSeg(at, k, srqn uint32) {
	*s.segment(at, k) = segment{be2(srqn, 0), 0}
}

// setRaddrSeg writes the remote address: set_raddr_seg.
func (s *sendQueue) setRaddrSeg(at, k uint32, raddr uint64, rkey uint32) {
	*s.segment(at, k) = segment{be(raddr), be(uint64(rkey) << 32)}
}

// setAtomicSeg writes the operands: set_atomic_seg. The device ignores the
// second one of a FETCH_ADD.
func (s *sendQueue) setAtomicSeg(at, k uint32, op operation, compareAdd, swap uint64) {
	g := s.segment(at, k)
	if op.hw() == hwFetchAdd {
		*g = segment{be(compareAdd), 0}
		return
	}
	*g = segment{be(swap), be(compareAdd)}
}

// setDatagramSeg writes the address of a datagram: set_datagram_seg. av has the form of the
// segment, without the QPN and QKey of the request.
func (s *sendQueue) setDatagramSeg(at, k uint32, av *driver.AV, qpn, qkey uint32) {
	*s.segment(at, k) = segment{be2(qkey, 0), av[1] | be2(qpn|extendedAV, 0)}
	*s.segment(at, k+1) = segment{av[2], av[3]}
	*s.segment(at, k+2) = segment{av[4], av[5]}
}

// setDCSeg writes the address and the access key of a DCT: mlx5_send_wr_set_dc_addr.
func (s *sendQueue) setDCSeg(at, k uint32, av *driver.AV, dctn uint32, key uint64) {
	*s.segment(at, k) = segment{be(key), av[1] | be2(dctn|extendedAV, 0)}
	*s.segment(at, k+1) = segment{av[2], av[3]}
	*s.segment(at, k+2) = segment{av[4], av[5]}
}

// setStream writes the stream of a request of a DCI to its control segment.
func (s *sendQueue) setStream(at uint32, stream uint16) {
	const mask = 0xffff << wordStream
	w := &s.blocks[at&s.mask][1]
	*w = *w&^be(mask) | be(uint64(stream)<<wordStream)
}

// setDataPtrSeg writes the data segment of a buffer: set_data_ptr_seg.
func (s *sendQueue) setDataPtrSeg(at, k uint32, sge uverbs.SGE) {
	*s.segment(at, k) = segment{be2(sge.Length&^inlineMark, sge.LKey), be(sge.Addr)}
}

// setDataInlSeg writes inline data and returns the number of segments that it occupies:
// set_data_inl_seg. The rest of the last segment is cleared.
func (s *sendQueue) setDataInlSeg(at, k uint32, data []byte) uint32 {
	n := uint32(len(data))
	size := (inlineHeader + n + segmentSize - 1) / segmentSize
	*s.segment(at, k+size-1) = segment{}
	s.segment(at, k)[0] = be2(inlineMark|n, 0)
	s.copyIn(at*blockSize+k*segmentSize+inlineHeader, data)
	return size
}

// setSegments writes segments from segment k on.
func (s *sendQueue) setSegments(at, k uint32, all []segment) {
	first := (at*perBlock + k) & (s.mask*perBlock + perBlock - 1)
	if done := copy(s.segments[first:], all); done < len(all) {
		copy(s.segments, all[done:])
	}
}

// copyIn copies data to byte at of the queue, as the queue counts them. It may wrap around the end of the ring.
func (s *sendQueue) copyIn(at uint32, data []byte) {
	if done := copy(s.bytes[at&(uint32(len(s.bytes))-1):], data); done < len(data) {
		copy(s.bytes, data[done:])
	}
}
