package efa

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A sendWQE is struct efa_io_tx_wqe: 32 bytes of metadata, and 32 bytes of data, or up to two SGEs.
// The first SGE of a READ or WRITE is the peer's memory.
type sendWQE [8]uint64

// A recvWQE is struct efa_io_rx_desc, for one SGE.
type recvWQE [2]uint64

const (
	sendSize   = 64
	recvSize   = 16
	maxInline  = 32
	maxRDMASGE = 1
)

// The fields of the first word of a sendWQE.
const (
	imm       = 1 << 20
	inlined   = 1 << 21
	metadata  = 1 << 23
	phaseAt   = 24
	first     = 1 << 26
	last      = 1 << 27
	completes = 1 << 28
	opAt      = 16
	qpnAt     = 32
	countAt   = 48

	common = metadata | first | last | completes
)

// The fields of a recvWQE's second word.
const (
	recvLengthAt = 16
	recvFirst    = 1 << 62
	recvLast     = 1 << 63
	maxRecvSGE   = 1<<16 - 1 // bytes of an SGE
)

const keyMask = 1<<24 - 1

// The operations of the device: enum efa_io_send_op_type.
const (
	hwSend  = 0
	hwRead  = 1
	hwWrite = 2
)

// An operation is what a queue knows of a uverbs.Opcode.
type operation struct {
	there  bool
	traits driver.OpTraits
	base   uint64 // of the first word
}

// operations is a table by opcode.
type operations [driver.Opcodes]operation

// operationsOf returns the operations of a type of QP.
func (c *deviceContext) operationsOf(typ uverbs.QPType) *operations {
	ops := new(operations)
	add := func(op uverbs.Opcode, hw uint64) {
		traits := driver.OperationOf(op).Traits
		base := common | hw<<opAt
		if traits&driver.OpImm != 0 {
			base |= imm
		}
		ops[op] = operation{true, traits, base}
	}
	add(uverbs.OpSend, hwSend)
	add(uverbs.OpSendImm, hwSend)
	if typ == uverbs.SRD && c.has(uapi.EFA_QUERY_DEVICE_CAPS_RDMA_READ) {
		add(uverbs.OpRead, hwRead)
	}
	if typ == uverbs.SRD && c.has(uapi.EFA_QUERY_DEVICE_CAPS_RDMA_WRITE) {
		add(uverbs.OpWrite, hwWrite)
		add(uverbs.OpWriteImm, hwWrite)
	}
	return ops
}

// setSGE writes an SGE to the words at i.
func (w *sendWQE) setSGE(i int, s *uverbs.SGE) {
	w[i&7], w[(i+1)&7] = wordsOf(s)
}

// setRemote writes the peer's memory of n bytes.
func (w *sendWQE) setRemote(n, rkey uint32, addr uint64) {
	w[4], w[5] = uint64(n)|uint64(rkey)<<32, addr
}

// setCount writes the number of SGEs or of bytes of inline data.
func (w *sendWQE) setCount(n int) { w[0] = w[0]&(1<<countAt-1) | uint64(n)<<countAt }

// setDestination writes the address of a peer.
func (w *sendWQE) setDestination(ah uint64, qpn, qkey uint32) {
	w[0] = w[0]&^(0xffff<<qpnAt) | uint64(qpn)<<qpnAt
	w[1] = w[1]&0xffffffff | ah<<32
	w[2] = uint64(qkey)
}
