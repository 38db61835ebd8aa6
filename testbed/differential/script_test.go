//go:build vm

package differential

import (
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/ether"
)

// A script is the input of the two programs. Package play documents the steps.
type script struct {
	strings.Builder
	id int // of the last request
}

func (s *script) add(format string, args ...any) { fmt.Fprintf(s, format+"\n", args...) }

// Parts of the memory.
const (
	sendArea   = 0
	remoteArea = 0x4000
	atomicArea = 0x8000
	recvArea   = 0xc000
)

// Kinds and flags of queue pairs.
const (
	rc, uc, ud  = 0, 1, 2
	xrcSend     = 3
	rawPacket   = 4
	signalAll   = 1
	forBuilders = 2
	silent      = 4 // its sizes are not printed
	outOfOrder  = 8
	noScatter   = 16
	allScatter  = 32
	tso         = 64
)

// How requests are posted.
const (
	byList    = 0
	byBuilder = 1
	byDCList  = 2 // by builder in C, which has no lists for DC
)

const (
	signaled  = int(uverbs.Signaled)
	fenced    = int(uverbs.Fence)
	solicited = int(uverbs.Solicited)
	checksums = int(ether.IPCsum)
)

// A payload is the data of a request.
type payload string

// inline returns n bytes of inline data.
func inline(n int) payload { return payload(fmt.Sprintf("%d %d 0", sendArea, n)) }

// gather returns n SGEs of size bytes, with gaps of the same size.
func gather(n, size int) payload { return payload("0 0 " + sges(sendArea, n, size)) }

func sges(area, n, size int) string {
	var b strings.Builder
	fmt.Fprint(&b, n)
	for i := range n {
		fmt.Fprintf(&b, " %d %d", area+i*2*size, size)
	}
	return b.String()
}

// Payloads of several forms. Inline payloads are for operations that send.
var (
	gathers = []payload{gather(0, 0), gather(1, 100), gather(2, 33), gather(4, 24), gather(1, 3000)}
	inlines = []payload{inline(1), inline(12), inline(28), inline(60), inline(124)}
)

// A request is a request to be posted with others.
type request string

func (s *script) next() int {
	s.id++
	return s.id
}

// data returns a SEND, a WRITE or a READ.
func (s *script) data(op uverbs.Opcode, flags int, p payload) request {
	id := s.next()
	return request(fmt.Sprintf("wr %d %d %d %d -1 %#x 0 0 %s", op, flags, id, remoteArea, 0xa0b00000+id, p))
}

func (s *script) atomic(op uverbs.Opcode, flags, addOrCompare, swap int) request {
	return request(fmt.Sprintf("wr %d %d %d %d -1 0 %d %d %s", op, flags, s.next(), atomicArea, addOrCompare, swap,
		gather(1, 8)))
}

func (s *script) datagram(op uverbs.Opcode, flags, to int, p payload) request {
	id := s.next()
	return request(fmt.Sprintf("datagram %d %d %d %#x 0 %d %s", op, flags, id, 0xa0b00000+id, to, p))
}

// through returns a WRITE with a window's key.
func (s *script) through(window int) request {
	return request(fmt.Sprintf("wr %d %d %d %d %d 0 0 0 %s", uverbs.OpWrite, signaled, s.next(), remoteArea, window,
		gather(1, 16)))
}

func (s *script) bind(window int, access uverbs.Access) request {
	return request(fmt.Sprintf("bind %d %d %d %d %d 4096 %d", uverbs.OpBindMW, signaled, s.next(), window, remoteArea,
		access))
}

func (s *script) invalidate(op uverbs.Opcode, window int, p payload) request {
	return request(fmt.Sprintf("invalidate %d %d %d %d %s", op, signaled, s.next(), window, p))
}

// post posts requests to a queue pair, with one doorbell.
func (s *script) post(qp, way int, all ...request) {
	s.add("begin %d %d", qp, way)
	for _, r := range all {
		s.add("%s", r)
	}
	s.add("post")
}

// recv posts a receive with n SGEs.
func (s *script) recv(qp, n int) { s.add("recv %d %d %s", qp, s.next(), sges(recvArea, n, 2048)) }

func (s *script) poll(cq, n int) { s.add("poll %d %d", cq, n) }

// pair creates two connected queue pairs, each with a CQ of the same number.
// The rings are small, so that they wrap.
func (s *script) pair(kind, a, b, flags int) {
	for _, q := range []int{a, b} {
		s.add("cq %d 30", q)
		s.add("qp %d %d %d -1 6 5 4 3 124 %d", q, kind, q, flags)
	}
	s.connect(a, b)
}

func (s *script) connect(a, b int) {
	s.add("connect %d %d", a, b)
	s.add("connect %d %d", b, a)
}

// destroy destroys queue pairs with their CQs.
func (s *script) destroy(all ...int) {
	for _, q := range all {
		s.add("unqp %d", q)
	}
	for _, q := range all {
		s.add("uncq %d", q)
	}
}

// takesReceive reports whether an operation also completes at the peer.
func takesReceive(op uverbs.Opcode) bool {
	return op == uverbs.OpSend || op == uverbs.OpSendImm || op == uverbs.OpWriteImm
}

// exchange posts one request of a to b, and waits for its completions.
func (s *script) exchange(a, b, way int, op uverbs.Opcode, flags int, p payload) {
	if takesReceive(op) {
		s.recv(b, 3)
	}
	s.post(a, way, s.data(op, flags, p))
	s.poll(a, 1)
	if takesReceive(op) {
		s.poll(b, 1)
	}
}
