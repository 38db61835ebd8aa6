package mlx5

import (
	"math/bits"

	"github.com/goverbs/goverbs/uverbs"
)

const (
	blockSize   = 64
	segmentSize = 16
	blockShift  = 6
	perBlock    = blockSize / segmentSize
)

// Opcodes of send requests.
const (
	hwNop      = 0x00
	hwSendInv  = 0x01
	hwWrite    = 0x08
	hwWriteImm = 0x09
	hwSend     = 0x0a
	hwSendImm  = 0x0b
	hwRead     = 0x10
	hwCAS      = 0x11
	hwFetchAdd = 0x12
	hwUMR      = 0x25
)

// Flags of the control segment.
const (
	ceSignaled   = 0x08
	ceSolicited  = 0x02
	ceFence      = 0x80
	ceSmallFence = 0x20 // waits for a change of memory keys before it
)

const (
	inlineMark  = 1 << 31 // in the length of a data segment
	invalidLKey = 0x100   // ends a list of data segments
	wildMark    = 1 << 31 // an address vector of 48 bytes follows the QPN
)

// An operation is what the encoder must know of an opcode: the device's opcode in
// the low byte, then what a completion is told, then what it has beside its
// data.
type operation uint32

const opMetaShift = 8 // meta of the note: 16 bits

const (
	remote operation = 1 << (24 + iota)
	simple           // nothing but data, and what remote and imm say
	imm
	key      // that it invalidates
	scatter  // writes to its SGEs, so there is no inline form
	operands // of an atomic, and 8 bytes to write to
	bare     // has neither SGEs nor inline data
)

func op(hw uint8, wc uverbs.WCOpcode, traits operation) operation {
	o := operation(hw) | operation(wc)<<(opMetaShift+metaOpShift) | traits
	switch {
	case o&operands != 0:
		o |= metaAtomic << opMetaShift
	case o&scatter != 0:
		o |= metaLength << opMetaShift
	}
	return o
}

func (o operation) hw() uint64                 { return uint64(o & 0xff) }
func (o operation) completes() uverbs.WCOpcode { return uverbs.WCOpcode(o.meta() >> metaOpShift) }
func (o operation) meta() uint32               { return uint32(o>>opMetaShift) & 0xffff }

// operations are those of one type of QP, by uverbs.Opcode.
type operations [16]operation

var connected = operations{
	uverbs.OpWrite:       op(hwWrite, uverbs.WCWrite, remote|simple),
	uverbs.OpWriteImm:    op(hwWriteImm, uverbs.WCWrite, remote|simple|imm),
	uverbs.OpSend:        op(hwSend, uverbs.WCSend, simple),
	uverbs.OpSendImm:     op(hwSendImm, uverbs.WCSend, simple|imm),
	uverbs.OpRead:        op(hwRead, uverbs.WCRead, remote|simple|scatter),
	uverbs.OpCompareSwap: op(hwCAS, uverbs.WCCompareSwap, remote|scatter|operands),
	uverbs.OpFetchAdd:    op(hwFetchAdd, uverbs.WCFetchAdd, remote|scatter|operands),
	uverbs.OpLocalInv:    op(hwUMR, uverbs.WCLocalInv, bare|key),
	uverbs.OpBindMW:      op(hwUMR, uverbs.WCBindMW, bare),
	uverbs.OpSendInv:     op(hwSendInv, uverbs.WCSend, key),
}

// unacknowledged are those of UC.
var unacknowledged = operations{
	uverbs.OpWrite:    connected[uverbs.OpWrite],
	uverbs.OpWriteImm: connected[uverbs.OpWriteImm],
	uverbs.OpSend:     connected[uverbs.OpSend],
	uverbs.OpSendImm:  connected[uverbs.OpSendImm],
	uverbs.OpBindMW:   connected[uverbs.OpBindMW],
	uverbs.OpLocalInv: connected[uverbs.OpLocalInv],
}

// datagrams are those of UD.
var datagrams = operations{
	uverbs.OpSend:    connected[uverbs.OpSend] &^ simple,
	uverbs.OpSendImm: connected[uverbs.OpSendImm] &^ simple,
}

// extended are those of XRC: every request that leaves the device names an SRQ.
var extended = func() operations {
	all := connected
	for i := range all {
		all[i] &^= simple
	}
	return all
}()

// raw are those of raw packets.
var raw = operations{uverbs.OpSend: connected[uverbs.OpSend] &^ simple}

const callerFlags = uverbs.Fence | uverbs.Signaled | uverbs.Solicited

// ceTable has the control segment's flags for each combination of callerFlags.
type ceTable [8]uint8

func newCETable(signalAll bool) (t ceTable) {
	for f := range t {
		flags := uverbs.SendFlags(f)
		if flags&uverbs.Fence != 0 {
			t[f] |= ceFence
		}
		if flags&uverbs.Signaled != 0 || signalAll {
			t[f] |= ceSignaled
		}
		if flags&uverbs.Solicited != 0 {
			t[f] |= ceSolicited
		}
	}
	return t
}

// A word of an opcode, for requests of the common kinds, is the first of the
// control segment without the index, and with the size that the segments before
// the data have. Its highest byte says what is uncommon about it.
const (
	wordIndex    = 40
	wordSize     = 0x3f
	wordPlain    = 1<<56 - 1
	wordImm      = 1 << 56
	wordLocal    = 1 << 57 // has no remote address
	wordScatter  = 1 << 58 // has no inline form
	wordRare     = 1 << 62 // is not made the short way
	wordUncommon = 1 << 63 // is one of these
)

// Bytes of the first word of a control segment.
const (
	opcodeByte = 3
	sizeByte   = 7
)

// Where the data of a request with a remote address begins, and without, in bytes.
const (
	dataRemote = segmentSize * (ctrlSegments + raddrSegments)
	dataLocal  = segmentSize * ctrlSegments
)

// shortcuts fills in what the short ways look up.
func (s *sendQueue) shortcuts() {
	for i, o := range s.ops {
		s.metas[i] = o.meta()
		s.words[i] = wordUncommon | wordRare
		if o&simple == 0 || s.maxSGE == 0 {
			continue
		}
		s.words[i] = o.hw()<<32 | s.qpn | (ctrlSegments + raddrSegments)
		if o&remote == 0 {
			s.words[i] += wordUncommon | wordLocal - raddrSegments
		}
		if o&imm != 0 {
			s.words[i] |= wordUncommon | wordImm
		}
		if o&scatter != 0 {
			s.words[i] |= wordUncommon | wordScatter
		}
	}
	for f, ce := range s.ce {
		s.flags[f] = be(uint64(ce) << 32)
	}
}

// be is the word that holds v big-endian.
func be(v uint64) uint64 { return bits.ReverseBytes64(v) }

// be4 is the word of one such field of 4 bytes, and of zeros.
func be4(v uint32) uint64 { return uint64(bits.ReverseBytes32(v)) }

// be2 is the word of two big-endian fields of 4 bytes.
func be2(first, second uint32) uint64 { return bits.ReverseBytes64(uint64(first)<<32 | uint64(second)) }

// Sizes of the parts of a request, in segments.
const (
	ctrlSegments    = 1
	raddrSegments   = 1
	atomicSegments  = 1
	addressSegments = 3
	srqSegments     = 1
	umrSegments     = 3
	mkeySegments    = 4
	klmSegments     = 4
	inlineHeader    = 4 // bytes
	bindSegments    = umrSegments + mkeySegments + klmSegments
	overheadRC      = segmentSize * (ctrlSegments + bindSegments)
	overheadXRC     = overheadRC + segmentSize*srqSegments
	overheadUD      = segmentSize * (ctrlSegments + addressSegments)
)
