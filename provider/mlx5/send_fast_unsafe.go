package mlx5

import (
	"math/bits"
	"unsafe"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

//go:generate go run -C gen .

// The fast path handles a request with one SGE or inline data that is a send, a write or a read, and on RC the SendWR
// of an atomic. Its encoders are in zencode_unsafe.go, which gen writes from one template: for SendWRs (PostSend) and
// for arguments (OpSGE, OpInline, and Op with SGE and Inline), and for each way to name a destination. Tests compare
// what they write. A request that the fast path cannot encode goes to encodeAny, opRest, opSGERest and so on with all
// its arguments, before the state of the queue changes. setLimit sends all requests there: it sets the limit to the
// head.
//
// The encoders call no function before the request is written, not even one that the compiler would inline, except for
// address handles and to copy long inline data. They write values in the order in which they arrive. This keeps the
// number of live values small and makes a request a third cheaper. Indices are masked: see views_unsafe.go.

// rareWords completes the words with wordRare: those of atomics that fit into one block, and wordSlow in the others.
func (s *sendQueue) rareWords() {
	for i, o := range s.ops {
		switch {
		case s.words[i]&wordRare == 0:
		case o&operands != 0 && s.destSegments == 0:
			s.words[i] |= o.hw()<<32 | s.qpn | uint64(ctrlSegments+raddrSegments+atomicSegments)
		default:
			s.words[i] |= wordSlow
		}
	}
}

// A wqe is the beginning of a request: two blocks of the ring.
type wqe [16]uint64

// address writes the address of a datagram or a DCT: see setDatagramSeg. key is in the byte order of the ring.
func (b *wqe) address(av *driver.AV, qpn uint32, key uint64) {
	b[3] = av[1] | uint64(bits.ReverseBytes32(qpn|extendedAV))
	b[2] = key
	*(*segment)(unsafe.Pointer(&b[4])) = *(*segment)(unsafe.Pointer(&av[2]))
	*(*segment)(unsafe.Pointer(&b[6])) = *(*segment)(unsafe.Pointer(&av[4]))
}

// SGE implements driver.QP.
//
//go:nosplit
func (q *qp) SGE(sge uverbs.SGE) {
	s := &q.sq
	r := &s.request
	if r.state != requestEmpty || sge.Length-1 >= uverbs.MaxMessage-1 {
		q.sgeRest(sge)
		return
	}
	r.state, r.length = requestOneSGE, sge.Length
	g := s.dataIn(r.data)
	g[0] = bits.ReverseBytes64(uint64(sge.Length)<<32 | uint64(sge.LKey))
	g[1] = bits.ReverseBytes64(sge.Addr)
	s.firstIn(r.data)[sizeByte]++
}

// Inline implements driver.QP.
//
//go:nosplit
func (q *qp) Inline(data []byte) {
	s := &q.sq
	r := &s.request
	at, n := r.data, len(data)
	size := uint32(inlineHeader+n+segmentSize-1) / segmentSize
	end := (at + size*segmentSize - 1) / blockSize
	if r.state != requestEmpty || uint(n-1) >= uint(s.maxInline) || end > s.mask || r.named == uverbs.OpRead {
		q.inlineRest(data)
		return
	}
	r.state = requestInlined
	s.last = s.cur - 1
	s.cur += end - at/blockSize
	s.firstIn(at)[sizeByte] += uint8(size)
	g := s.dataIn(at)
	g.inlineHead(n)
	if uint(n-16) <= 16 {
		g.inlineTwo(data)
		return
	}
	g.inlineData(data)
}
