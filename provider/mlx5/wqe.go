package mlx5

import (
	"math/bits"

	"github.com/goverbs/goverbs/internal/driver"
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
	hwTSO      = 0x0e
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
	ceSmallFence = 0x20 // waits for an earlier change of memory keys
)

const (
	inlineMark  = 1 << 31 // in the length of a data segment
	invalidLKey = 0x100   // ends a list of data segments
	extendedAV  = 1 << 31 // an address vector of 48 bytes follows the QPN
)

// An operation is what the encoder needs to know of an opcode: the device's opcode in the low
// byte, then the meta of the note, then the traits below.
type operation uint32

const (
	opMetaShift   = 8 // the meta of a note has 16 bits
	opTraitsShift = 24
)

// The traits are those of package driver, and simple.
const (
	remote   = operation(driver.OpRemote) << opTraitsShift
	imm32    = operation(driver.OpImm) << opTraitsShift
	key      = operation(driver.OpKey) << opTraitsShift
	scatter  = operation(driver.OpScatter) << opTraitsShift
	operands = operation(driver.OpOperands) << opTraitsShift
	bare     = operation(driver.OpBare) << opTraitsShift
	simple   = operation(driver.OpTraitsEnd) << opTraitsShift // has only data, and what remote, imm32 and key add
)

// hwOpcodes are the device's opcodes. 0 stands for an operation that it does not have.
var hwOpcodes = [driver.Opcodes]uint8{
	uverbs.OpWrite:       hwWrite,
	uverbs.OpWriteImm:    hwWriteImm,
	uverbs.OpSend:        hwSend,
	uverbs.OpSendImm:     hwSendImm,
	uverbs.OpRead:        hwRead,
	uverbs.OpCompareSwap: hwCAS,
	uverbs.OpFetchAdd:    hwFetchAdd,
	uverbs.OpLocalInv:    hwUMR,
	uverbs.OpBindMW:      hwUMR,
	uverbs.OpSendInv:     hwSendInv,
	uverbs.OpTSO:         hwTSO,
}

// operations are the operations of one type of QP, by uverbs.Opcode.
type operations [driver.Opcodes]operation

const opMask = driver.Opcodes - 1

var (
	opsRC  = operationsOf(uverbs.RC) // of XRC and DC too
	opsUC  = operationsOf(uverbs.UC)
	opsUD  = operationsOf(uverbs.UD)
	opsRaw = operationsOf(uverbs.RawPacket)
)

func operationsOf(typ uverbs.QPType) (all operations) {
	for op := range uverbs.Opcode(driver.Opcodes) {
		d := driver.OperationOf(op)
		if hwOpcodes[op] == 0 || !d.On(uint8(typ)) {
			continue
		}
		o := operation(hwOpcodes[op]) | operation(d.Completion)<<(opMetaShift+metaOpShift) |
			operation(d.Traits)<<opTraitsShift
		switch {
		case o&operands != 0:
			o |= metaAtomic << opMetaShift
		case o&scatter != 0:
			o |= metaLength << opMetaShift
		}
		if o&(operands|bare) == 0 && typ != uverbs.RawPacket {
			o |= simple
		}
		all[op] = o
	}
	return all
}

func (o operation) hw() uint64                 { return uint64(o & 0xff) }
func (o operation) completes() uverbs.WCOpcode { return uverbs.WCOpcode(o.meta() >> metaOpShift) }
func (o operation) meta() uint32               { return uint32(o>>opMetaShift) & 0xffff }

const callerFlags = uverbs.Fence | uverbs.Signaled | uverbs.Solicited

// ceTable holds the control segment's flags for each combination of callerFlags.
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

// The words of a sendQueue hold, for each opcode, the first word of the control segment without
// the index, including the size of the segments before the data, and on queues with destinations
// of one data segment. The highest byte is not written to the ring: it says how the opcode differs from a WRITE.
const (
	wordIndex     = 40
	wordSize      = 0x3f
	wordPlain     = 1<<56 - 1
	wordImm       = 1 << 56
	wordLocal     = 1 << 57 // has no remote address
	wordNotInline = 1 << 58 // has no inline form, or is rare
	wordKey       = 1 << 59 // with wordImm: has a key instead of immediate data
	wordSlow      = 1 << 60 // with wordRare: the fast path never encodes it
	wordRare      = 1 << 62 // the fast path does not encode it, except for the SendWR of an atomic on RC
	wordUncommon  = 1 << 63 // has one of these flags
)

// wordStream is the place of the stream of a DCI's request in the second word of the control
// segment.
const wordStream = 40

// Offsets of the data in a request with and without a remote address, in bytes.
const (
	dataRemote = segmentSize * (ctrlSegments + raddrSegments)
	dataLocal  = segmentSize * ctrlSegments
)

// sizeByte is the byte of a control segment that contains the request's size.
const sizeByte = 7

// fastTables fills the tables of the fast path.
func (s *sendQueue) fastTables() {
	for i, o := range s.ops {
		s.metas[i] = o.meta()
		s.words[i] = wordUncommon | wordRare | wordNotInline
		if o&simple == 0 {
			continue
		}
		s.words[i] = o.hw()<<32 | s.qpn | uint64(ctrlSegments+s.destSegments+raddrSegments)
		if s.destSegments != 0 {
			s.words[i]++ // all requests of the fast path have data
		}
		if o&remote == 0 {
			s.words[i] -= raddrSegments
		}
		if o&remote == 0 && s.typ != uverbs.UD { // the encoders of UD know no other
			s.words[i] |= wordUncommon | wordLocal
		}
		if o&imm32 != 0 {
			s.words[i] |= wordUncommon | wordImm
		}
		if o&key != 0 {
			s.words[i] |= wordUncommon | wordImm | wordKey
		}
		if o&scatter != 0 {
			s.words[i] |= wordUncommon | wordNotInline
		}
	}
	for f, ce := range s.ce {
		s.flags[f] = be(uint64(ce) << 32)
	}
}

// be returns v in big-endian byte order.
func be(v uint64) uint64 { return bits.ReverseBytes64(v) }

// be2 returns a word with two big-endian fields of 4 bytes.
func be2(first, second uint32) uint64 { return bits.ReverseBytes64(uint64(first)<<32 | uint64(second)) }

// Sizes of the parts of a request, in segments.
const (
	ctrlSegments     = 1
	raddrSegments    = 1
	atomicSegments   = 1
	datagramSegments = 3
	xrcSegments      = 1
	umrSegments      = 3
	mkeySegments     = 4
	klmSegments      = 4
	inlineHeader     = 4 // bytes
	bindSegments     = umrSegments + mkeySegments + klmSegments
	overheadRC       = segmentSize * (ctrlSegments + bindSegments)
	overheadXRC      = overheadRC + segmentSize*xrcSegments
	overheadDC       = overheadRC + segmentSize*datagramSegments
	overheadUD       = segmentSize * (ctrlSegments + datagramSegments)
)
