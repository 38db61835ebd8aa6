package mlx5

import (
	"encoding/binary"
	"runtime"

	"github.com/goverbs/goverbs/uverbs"
)

// RawWQE implements driver.RawPoster.
func (q *qp) RawWQE(wrID uint64, wqe []byte) {
	if q.sq.close() {
		q.sq.raw(wrID, wqe)
	}
	runtime.KeepAlive(q)
}

// Offsets in the control segment of a WQE.
const (
	ctrlOpcode = 0  // opmod_idx_opcode
	ctrlQPN    = 4  // qpn_ds
	ctrlFlags  = 11 // the low byte of fm_ce_se
)

const fenceMode = 0xe0 // fm of fm_ce_se

// raw adds a WQE of the program: mlx5_wr_raw_wqe. The request before it must be closed. libmlx5 does not check
// the size, so a WQE that is too long overwrites requests that the device has not read.
func (s *sendQueue) raw(wrID uint64, wqe []byte) {
	if len(wqe) < segmentSize || len(wqe)%segmentSize != 0 || len(wqe) > s.blocksPerRequest()*blockSize {
		s.fail(uverbs.ErrMalformed)
		return
	}
	size := uint32(len(wqe)) / segmentSize
	blocks := (size + perBlock - 1) / perBlock
	if size > maxSegments || uint64(binary.BigEndian.Uint32(wqe[ctrlQPN:])) != s.qpn|uint64(size) {
		s.fail(uverbs.ErrMalformed)
		return
	}
	if s.overflow() {
		s.fail(uverbs.ErrQueueFull)
		return
	}
	s.notes[s.cur&s.mask] = sendNote{wrID: wrID, end: s.head + 1, meta: uint32(uverbs.WCRawWQE) << metaOpShift}
	at := int(s.cur&s.mask) * blockSize
	if done := copy(s.bytes[at:], wqe); done < len(wqe) {
		copy(s.bytes, wqe[done:])
	}
	opcode := binary.BigEndian.Uint32(wqe[ctrlOpcode:])&^(0xffff<<8) | s.cur&0xffff<<8
	binary.BigEndian.PutUint32(s.bytes[at+ctrlOpcode:], opcode)
	if s.bytes[at+ctrlFlags]&fenceMode == 0 {
		s.bytes[at+ctrlFlags] |= s.fence
	}
	s.last = s.cur
	s.cur += blocks
	s.head++
	s.fence = 0
	s.request.state = requestClosed
	s.setLimit()
}

// blocksPerRequest is how many blocks the ring has for each request that it holds.
func (s *sendQueue) blocksPerRequest() int { return len(s.blocks) / int(s.maxPost) }
