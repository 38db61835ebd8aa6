package siw

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
	"github.com/goverbs/goverbs/uverbs"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var le = binary.LittleEndian

const (
	base = 0x7f0000001000
	lkey = 0x1234
	rkey = 0x5678
	qpn  = 17
)

// A kernelRing is the kernel's end of a ring. It does not use the code under test: its offsets are numbers.
type kernelRing struct {
	b    []byte
	size uint32 // of an element
	mask uint32
	own  uint32 // the element that the kernel reads or writes next
}

func newKernelRing(t testing.TB, m *provider.Mapping, n, size, after int) (*kernelRing, []uint64) {
	t.Helper()
	anon, err := provider.Anon(n*size + after)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := anon.Retire(); err != nil {
			t.Error(err)
		}
	})
	return &kernelRing{b: anon.Bytes(), size: uint32(size), mask: uint32(n - 1)}, wordsOf(anon, (n*size+after)/8)
}

// next returns the next element, and its flags.
func (k *kernelRing) next() ([]byte, *uint64) {
	at := (k.own & k.mask) * k.size
	e := k.b[at : at+k.size : at+k.size]
	words := bytesAsWords(e)
	return e, &words[1]
}

// take copies the next element and releases it, if there is one.
func (k *kernelRing) take() (e []byte, ok bool) {
	live, flags := k.next()
	if atomic.LoadUint64(flags)&1 == 0 {
		return nil, false
	}
	e = append(e, live...)
	atomic.StoreUint64(flags, atomic.LoadUint64(flags)&^0xffff)
	k.own++
	return e, true
}

// A kernel is a siw device that executes the requests of a QP that is connected to itself. Its memory region begins at
// address base.
type kernel struct {
	sq, rq, cq *kernelRing
	mem        []byte
	rung       int
	refuse     error
	waiting    []byte // a SEND that has found no receive
}

// newKernel returns a QP and a CQ with queues of n elements, and the kernel's end of them.
func newKernel(t testing.TB, n int, c uverbs.QPCap, entries int) (*kernel, *qp, *cq) {
	t.Helper()
	k := &kernel{mem: make([]byte, 64<<10)}
	q, comp := new(qp), new(cq)
	var words []uint64
	k.sq, words = newKernelRing(t, &q.sq.mem, n, 120, 0)
	q.sq.use(words, uint32(n), sqeWords)
	k.rq, words = newKernelRing(t, &q.rq.mem, n, 112, 0)
	q.rq.use(words, uint32(n), rqeWords)
	k.cq, words = newKernelRing(t, &comp.mem, entries, 32, 8)
	comp.use(words, uint32(entries))
	q.configure(c, false, qpn)
	q.ring = func() error { k.rung++; return k.refuse }
	q.sq.attach(comp, nil)
	q.rq.attach(comp, nil)
	q.Begin()
	return k, q, comp
}

// complete adds an entry to the CQ.
func (k *kernel) complete(wrID uint64, op uint8, status uint16, length uint32) {
	e, flags := k.cq.next()
	if atomic.LoadUint64(flags) != 0 {
		panic("test: CQ overrun")
	}
	le.PutUint64(e[0:], wrID)
	le.PutUint64(e[24:], qpn)
	atomic.StoreUint64(flags, 1|uint64(op)<<8|uint64(status)<<16|uint64(length)<<32)
	k.cq.own++
}

// run executes the requests in the send queue.
func (k *kernel) run() {
	for {
		w := k.waiting
		if w == nil {
			var ok bool
			if w, ok = k.sq.take(); !ok {
				return
			}
		}
		if k.waiting = nil; !k.execute(w) {
			k.waiting = w
			return
		}
	}
}

// execute executes a send. It returns false if it needs a receive and none is posted.
func (k *kernel) execute(w []byte) bool {
	flags, n, op := le.Uint16(w[8:]), int(w[10]), w[11]
	raddr, rk := le.Uint64(w[16:]), le.Uint32(w[12:])
	var data []byte
	status := uint16(0)
	length := uint64(le.Uint32(w[32:]))
	switch ok := true; {
	case flags&2 != 0: // inline
		if n != 1 || op != 3 && op != 0 {
			panic("test: inline data of another operation")
		}
		data = w[40 : 40+length]
	case op == 1:
		if n != 1 || flags&16 != 0 {
			panic("test: a READ without its SGE, or with a fence")
		}
		if data, ok = k.at(raddr, length, rk, rkey); !ok {
			status = 7 // remote access error
		} else if to, ok := k.at(le.Uint64(w[24:]), length, le.Uint32(w[36:]), lkey); ok {
			copy(to, data)
		} else {
			status = 2
		}
	default:
		if data, ok = k.gather(w[24:], n); !ok {
			status = 2
		}
	}
	if op == 0 && status == 0 {
		if to, ok := k.at(raddr, uint64(len(data)), rk, rkey); ok {
			copy(to, data)
		} else {
			status = 7
		}
	}
	if op == 3 || op == 5 {
		r, ok := k.rq.take()
		if !ok {
			return false
		}
		k.receive(r, data)
	}
	if flags&4 != 0 || status != 0 {
		k.complete(le.Uint64(w), op, status, uint32(len(data)))
	}
	return true
}

// receive completes a receive with data.
func (k *kernel) receive(r, data []byte) {
	rest, status := data, uint16(0)
	for i := 0; i < int(r[10]) && len(rest) > 0; i++ {
		s := r[16+16*i:]
		to, ok := k.at(le.Uint64(s), uint64(le.Uint32(s[8:])), le.Uint32(s[12:]), lkey)
		if !ok {
			status = 2
			break
		}
		rest = rest[copy(to, rest):]
	}
	if len(rest) > 0 && status == 0 {
		status = 1
	}
	k.complete(le.Uint64(r), 8, status, uint32(len(data)))
}

func (k *kernel) gather(sges []byte, n int) (data []byte, ok bool) {
	for i := range n {
		s := sges[16*i:]
		if le.Uint32(s[8:]) == 0 {
			panic("test: an SGE that crashes Linux 6.12")
		}
		from, ok := k.at(le.Uint64(s), uint64(le.Uint32(s[8:])), le.Uint32(s[12:]), lkey)
		if !ok {
			return nil, false
		}
		data = append(data, from...)
	}
	return data, true
}

// at returns n bytes of memory at addr. If n is 0, addr and key may have any value.
func (k *kernel) at(addr, n uint64, key, want uint32) ([]byte, bool) {
	if n == 0 {
		return nil, true
	}
	if key != want || addr < base || addr-base > uint64(len(k.mem)) || n > uint64(len(k.mem))-(addr-base) {
		return nil, false
	}
	return k.mem[addr-base:][:n], true
}
