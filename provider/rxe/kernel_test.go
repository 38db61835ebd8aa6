package rxe

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

var le = binary.LittleEndian

// roundup is the kernel's roundup_pow_of_two.
func roundup(n int) int { return 1 << bits.Len(uint(n-1)) }

// kernelRing is the kernel's end of a ring. It does not use the code under test:
// its offsets are numbers, and it has its own copy of the kernel's index.
type kernelRing struct {
	b        []byte
	elem     int
	mask     uint32
	own      uint32 // the kernel's index
	producer bool   // whether that is the producer index
}

// newKernelRing allocates a queue for n elements of size bytes, with the kernel's
// layout.
func newKernelRing(t testing.TB, n, size int, producer bool) (*kernelRing, *provider.Mapping) {
	t.Helper()
	elem, slots := roundup(max(size, 64)), roundup(n+1)
	m, err := provider.Anon(384 + slots*elem)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Retire() })
	b := m.Bytes()
	le.PutUint32(b[0:], uint32(bits.Len(uint(elem-1))))
	le.PutUint32(b[4:], uint32(slots-1))
	return &kernelRing{b: b, elem: elem, mask: uint32(slots - 1), producer: producer}, m
}

func (k *kernelRing) element(i uint32) []byte {
	at := 384 + int(i&k.mask)*k.elem
	return k.b[at : at+k.elem : at+k.elem]
}

func (k *kernelRing) users() *atomic.Uint32 {
	if k.producer {
		return index(k.b, 256)
	}
	return index(k.b, 128)
}

// count returns the number of elements in the ring.
func (k *kernelRing) count() int {
	if k.producer {
		return int((k.own - k.users().Load()) & k.mask)
	}
	return int((k.users().Load() - k.own) & k.mask)
}

// advance increments the kernel's index.
func (k *kernelRing) advance() {
	k.own = (k.own + 1) & k.mask
	if k.producer {
		index(k.b, 128).Store(k.own)
	} else {
		index(k.b, 256).Store(k.own)
	}
}

// A kernel is an rxe device that executes the requests of a QP that is connected to
// itself. Its memory region begins at address base.
type kernel struct {
	sq, rq, cq *kernelRing
	mem        []byte
	rung       int // number of doorbells
	resets     int // number of moves to RESET
	refuse     error
	ud         bool
	uc         bool // messages that find no receive are dropped
}

const (
	base = 0x7f0000001000
	lkey = 0x1234
	rkey = 0x5678
	qpn  = 17

	// The number of the AH, and the parameters of UD.
	ahNum = 0x77
	qkey  = 0x1ee7
	mtu   = 1024
)

// ring implements doorbell.
func (k *kernel) ring() error {
	k.rung++
	return k.refuse
}

// run executes the requests in the send queue.
func (k *kernel) run() {
	for k.sq.count() > 0 {
		if !k.execute(k.sq.element(k.sq.own)) {
			return
		}
		k.sq.advance()
	}
}

// complete adds an entry to the CQ.
func (k *kernel) complete(wrID uint64, status, opcode, length, flags, ex uint32) {
	if k.cq.count() == int(k.cq.mask) {
		panic("test: CQ overrun")
	}
	e := k.cq.element(k.cq.own)
	clear(e)
	le.PutUint64(e[0:], wrID)
	le.PutUint32(e[8:], status)
	le.PutUint32(e[28:], qpn)
	if status == 0 {
		le.PutUint32(e[12:], opcode)
		le.PutUint32(e[20:], length)
		le.PutUint32(e[24:], ex)
		le.PutUint32(e[36:], flags)
		if k.ud && opcode == 128 {
			le.PutUint32(e[32:], qpn)
		}
	}
	k.cq.advance()
}

// execute executes one send WQE. It returns false if the WQE needs a receive and none is posted.
func (k *kernel) execute(w []byte) bool {
	op, flags, imm := le.Uint32(w[12:]), le.Uint32(w[16:]), le.Uint32(w[20:])
	raddr, rk := le.Uint64(w[24:]), le.Uint32(w[32:])
	if k.ud {
		k.send(w)
		return true
	}
	if op >= 2 && op <= 3 || op == 1 {
		if k.rq.count() == 0 {
			if k.uc && flags&2 != 0 {
				k.complete(le.Uint64(w[0:]), 0, 0, le.Uint32(w[184:]), 0, 0)
			}
			return k.uc
		}
	}
	status := uint32(0)
	var data []byte
	length := le.Uint32(w[184:])
	switch {
	case le.Uint32(w[188:]) != length || le.Uint32(w[192:]) != 0 || le.Uint32(w[200:]) != 0 || le.Uint64(w[144:]) != 0:
		panic("test: send WQE with leftovers")
	case flags&8 != 0:
		data = w[208 : 208+length]
	case op < 4:
		var ok bool
		if data, ok = k.gather(w[208:], le.Uint32(w[196:])); !ok {
			status = 4 // local protection error
		}
	}
	if status == 0 && (op == 0 || op == 1 || op == 4) && !k.inside(raddr, uint64(length), rk, rkey) {
		status = 10 // remote access error
	}
	if status == 0 {
		switch op {
		case 0:
			copy(k.at(raddr, len(data)), data)
		case 1:
			copy(k.at(raddr, len(data)), data)
			k.receive(nil, uint32(len(data)), 129, 1|2, imm)
		case 2:
			k.receive(data, uint32(len(data)), 128, 1, 0)
		case 3:
			k.receive(data, uint32(len(data)), 128, 1|2, imm)
		case 4:
			if !k.scatter(w[208:], le.Uint32(w[196:]), k.at(raddr, int(length))) {
				status = 4
			}
		case 5, 6:
			status = k.atomic(op, w)
		}
	}
	if flags&2 != 0 || status != 0 {
		k.complete(le.Uint64(w[0:]), status, uint32(driver.Operations[op].Completion), length, 0, 0)
	}
	return true
}

// send executes the send WQE of a datagram, which is dropped if no receive is posted for it.
func (k *kernel) send(w []byte) {
	op, flags, imm := le.Uint32(w[12:]), le.Uint32(w[16:]), le.Uint32(w[20:])
	length := le.Uint32(w[184:])
	if op != 2 && op != 3 || le.Uint64(w[144:]) != 0 || le.Uint64(w[152:]) != 0 || le.Uint32(w[32:]) != 0 {
		panic("test: no WQE of a datagram")
	}
	var data []byte
	status, ok := uint32(0), true
	if flags&8 != 0 {
		data = w[208 : 208+length]
	} else if data, ok = k.gather(w[208:], le.Uint32(w[196:])); !ok {
		status = 4 // local protection error
	}
	switch {
	case le.Uint32(w[36:]) != ahNum:
		status = 2 // local QP operation error
	case status == 0 && length <= mtu && le.Uint32(w[24:]) == qpn && le.Uint32(w[28:]) == qkey && k.rq.count() > 0:
		k.receive(append(make([]byte, 40), data...), 40+length, 128, 1|2*(op&1), imm)
	}
	if flags&2 != 0 || status != 0 {
		k.complete(le.Uint64(w[0:]), status, 0, length, 0, 0)
	}
}

// receive uses the next receive WQE for a message.
func (k *kernel) receive(data []byte, length, opcode, flags, imm uint32) {
	w := k.rq.element(k.rq.own)
	status := uint32(0)
	if le.Uint32(w[16:]) != le.Uint32(w[20:]) || le.Uint32(w[24:]) != 0 || le.Uint32(w[32:]) != 0 {
		panic("test: receive WQE with leftovers")
	}
	switch {
	case len(data) > int(le.Uint32(w[16:])):
		status = 1 // local length error
	case !k.scatter(w[40:], le.Uint32(w[28:]), data):
		status = 4
	}
	wrID := le.Uint64(w[0:])
	k.rq.advance()
	k.complete(wrID, status, opcode, length, flags, imm)
}

// at returns n bytes of memory at addr. If n is 0, addr may have any value.
func (k *kernel) at(addr uint64, n int) []byte {
	if n == 0 {
		return nil
	}
	return k.mem[addr-base:][:n]
}

func (k *kernel) inside(addr, length uint64, key, want uint32) bool {
	return length == 0 || key == want && addr >= base && addr-base <= uint64(len(k.mem)) &&
		length <= uint64(len(k.mem))-(addr-base)
}

func (k *kernel) gather(sges []byte, n uint32) ([]byte, bool) {
	var data []byte
	for i := range int(n) {
		addr, length, key := le.Uint64(sges[16*i:]), le.Uint32(sges[16*i+8:]), le.Uint32(sges[16*i+12:])
		if !k.inside(addr, uint64(length), key, lkey) {
			return nil, false
		}
		data = append(data, k.at(addr, int(length))...)
	}
	return data, true
}

func (k *kernel) scatter(sges []byte, n uint32, data []byte) bool {
	for i := 0; i < int(n) && len(data) > 0; i++ {
		addr, length, key := le.Uint64(sges[16*i:]), le.Uint32(sges[16*i+8:]), le.Uint32(sges[16*i+12:])
		if !k.inside(addr, uint64(length), key, lkey) {
			return false
		}
		data = data[copy(k.at(addr, int(length)), data):]
	}
	return true
}

// reset empties the rings as the kernel does when a QP moves to RESET.
func (k *kernel) reset() error {
	k.resets++
	for _, r := range []*kernelRing{k.sq, k.rq} {
		for r.count() > 0 {
			r.advance()
		}
		clear(r.b[384:])
	}
	return nil
}

// fail moves the QP to ERR.
func (k *kernel) fail() error {
	k.flush()
	return nil
}

// flush completes all requests with WR_FLUSH_ERR, as in state ERR.
func (k *kernel) flush() {
	for ; k.sq.count() > 0; k.sq.advance() {
		k.complete(le.Uint64(k.sq.element(k.sq.own)), 5, 0, 0, 0, 0)
	}
	for ; k.rq.count() > 0; k.rq.advance() {
		k.complete(le.Uint64(k.rq.element(k.rq.own)), 5, 0, 0, 0, 0)
	}
}

// testCap returns the sizes with which the kernel would create a QP.
func testCap(sendWR, recvWR, sge, inline int) uverbs.QPCap {
	payload := max(sge*16, inline)
	return uverbs.QPCap{
		MaxSendWR: roundup(sendWR+1) - 1, MaxRecvWR: roundup(recvWR+1) - 1,
		MaxSendSGE: payload / 16, MaxRecvSGE: sge, MaxInline: payload,
	}
}

// newKernel returns a device with one QP, and one CQ for both its queues.
func newKernel(t testing.TB, c uverbs.QPCap, cqe int) (*kernel, *qp, *cq) {
	t.Helper()
	k := &kernel{mem: make([]byte, 64<<10)}
	open := func(kind string, n, size int, producer bool) (*kernelRing, ring) {
		kr, m := newKernelRing(t, n, size, producer)
		r, err := newRing(kind, m, 1)
		if err != nil {
			t.Fatal(err)
		}
		return kr, r
	}
	var sq, rq, cr ring
	k.sq, sq = open("send queue", c.MaxSendWR, 208+c.MaxInline, false)
	k.rq, rq = open("receive queue", c.MaxRecvWR, 40+16*c.MaxRecvSGE, false)
	k.cq, cr = open("completion queue", cqe, 64, true)
	q := newQP(sq, rq, c, k)
	q.sq.owner = testOwner{}
	return k, q, newCQ(nil, cr)
}

// poll returns all completions.
func poll(t testing.TB, c *cq) []uverbs.WC {
	t.Helper()
	var all []uverbs.WC
	for {
		wcs := make([]uverbs.WC, 3)
		n, err := c.Poll(wcs)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, wcs[:n]...)
		if n < len(wcs) {
			return all
		}
	}
}

// sge returns an SGE of n bytes of the kernel's memory at off.
func sge(off, n int) uverbs.SGE {
	return uverbs.SGE{Addr: base + uint64(off), Length: uint32(n), LKey: lkey}
}

// newQP returns a QP with these rings.
func newQP(sq, rq ring, c uverbs.QPCap, bell doorbell) *qp {
	q := new(qp)
	q.use(sq, rq, c, bell)
	return q
}

// newCQ returns a CQ with this ring.
func newCQ(ctx *deviceContext, r ring) *cq {
	c := &cq{ctx: ctx}
	c.use(r)
	return c
}

func newBell(dev *ioctl.Device, byWrite bool, qpHandle uint32) *bell {
	b := new(bell)
	b.Init(dev, byWrite, qpHandle)
	return b
}

func newNotify(dev *ioctl.Device, byWrite bool, cqHandle uint32) *notify {
	n := new(notify)
	n.init(dev, byWrite, cqHandle)
	return n
}
