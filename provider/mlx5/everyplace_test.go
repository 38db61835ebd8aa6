package mlx5

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/providertest"
	"github.com/goverbs/goverbs/uverbs"
)

// These are areas of a desk's memory.
const (
	sourceArea = 0
	remoteArea = 0x4000
	recvArea   = 0x8000
	wordArea   = 0xc000
)

// A shape is the data of a request: inline, or in n SGEs of size bytes.
type shape struct{ inline, n, size int }

var shapes = []shape{{0, 0, 0}, {0, 1, 1}, {0, 1, 64}, {0, 2, 33}, {0, 4, 100}, {0, 1, 5000}, {1, 0, 0}, {12, 0, 0},
	{28, 0, 0}, {60, 0, 0}}

func (s shape) length() int { return s.inline + s.n*s.size }

// A trial posts requests of all kinds to a queue pair that is its own peer.
type trial struct {
	*testing.T
	d    *desk
	q    *uverbs.QP
	cur  int // block of the next request
	seen map[string]map[int]bool
}

// sges returns the SGEs of the source, with gaps between them.
func (x *trial) sges(s shape) (all []uverbs.SGE) {
	for i := range s.n {
		all = append(all, x.d.mr.SGE(sourceArea+2*i*s.size, s.size))
	}
	return all
}

// gathered returns the source data.
func (x *trial) gathered(s shape) (b []byte) {
	mem := x.d.mr.Bytes()
	b = append(b, mem[sourceArea:][:s.inline]...)
	for i := range s.n {
		b = append(b, mem[sourceArea+2*i*s.size:][:s.size]...)
	}
	return b
}

// one posts a request, waits for it, and checks its effect on memory.
func (x *trial) one(op uverbs.Opcode, s shape, builder bool) {
	x.Helper()
	mem := x.d.mr.Bytes()
	for i := range sourceArea + 0x3000 {
		mem[i] = byte(i*7 + x.cur)
	}
	clear(mem[remoteArea:])
	wr := uverbs.SendWR{WRID: 7, Opcode: op, Flags: uverbs.Signaled, RemoteAddr: x.d.mr.Addr() + remoteArea,
		RKey: x.d.mr.RKey(), Imm: 0xa1b2c3d4, SGL: x.sges(s), CompareAdd: 5, Swap: 9}
	if s.inline > 0 {
		wr.Inline = mem[sourceArea:][:s.inline]
	}
	if op == uverbs.OpRead {
		for i := range s.length() {
			mem[remoteArea+i] = byte(i*5 + 1)
		}
	}
	if op == uverbs.OpCompareSwap || op == uverbs.OpFetchAdd {
		wr.RemoteAddr += wordArea - remoteArea
		binary.NativeEndian.PutUint64(mem[wordArea:], 5)
	}
	completions := []uint64{7}
	received := op == uverbs.OpSend || op == uverbs.OpSendImm || op == uverbs.OpWriteImm
	if received {
		_, err := x.q.PostRecv(uverbs.RecvWR{WRID: 7, SGL: []uverbs.SGE{x.d.mr.SGE(recvArea, 0x2000)}})
		check(x.T, err)
		completions = append(completions, 7)
	}
	name := fmt.Sprint(op, s, builder)
	if x.seen[name] == nil {
		x.seen[name] = map[int]bool{}
	}
	x.seen[name][x.cur%ringBlocks] = true
	if builder {
		b := x.q.StartSend()
		check(x.T, providertest.Add(&b, &wr))
		check(x.T, b.Submit())
	} else {
		_, err := x.q.PostSend(wr)
		check(x.T, err)
	}
	x.cur += blocks(op, s)
	poll(x.T, x.q.SendCQ(), completions...)
	x.look(op, s, wr.Inline)
}

// look checks the effect of a request on memory.
func (x *trial) look(op uverbs.Opcode, s shape, inline []byte) {
	x.Helper()
	mem := x.d.mr.Bytes()
	var got, want []byte
	switch op {
	case uverbs.OpSend, uverbs.OpSendImm:
		got, want = mem[recvArea:][:s.length()], x.gathered(s)
	case uverbs.OpWrite, uverbs.OpWriteImm:
		got, want = mem[remoteArea:][:s.length()], x.gathered(s)
	case uverbs.OpRead:
		got, want = x.gathered(s), mem[remoteArea:][:s.length()]
	case uverbs.OpCompareSwap:
		got, want = mem[wordArea:][:8], binary.NativeEndian.AppendUint64(nil, 9)
	case uverbs.OpFetchAdd:
		got, want = mem[wordArea:][:8], binary.NativeEndian.AppendUint64(nil, 10)
	}
	if !bytes.Equal(got, want) {
		x.Fatalf("%v of %+v at block %d: the memory has %x, want %x", op, s, x.cur%ringBlocks, got, want)
	}
}

// ringBlocks is the size of a desk's send queues.
const ringBlocks = 64

// blocks returns the size of a request in blocks.
func blocks(op uverbs.Opcode, s shape) int {
	segments := 1
	switch op {
	case uverbs.OpWrite, uverbs.OpWriteImm, uverbs.OpRead:
		segments++
	case uverbs.OpCompareSwap, uverbs.OpFetchAdd:
		segments += 2
	}
	if s.inline > 0 {
		segments += (4 + s.inline + 15) / 16
	}
	return (segments + s.n + 3) / 4
}

// TestEveryPlace posts every operation that moves data, with data of every shape, with lists and with builders at every
// block of the ring. It checks that each has the right effect and violates no rule.
func TestEveryPlace(t *testing.T) {
	d := newDesk(t, standard())
	x := &trial{T: t, d: d, seen: map[string]map[int]bool{}}
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 31}))(t)
	x.q = d.loop(t, uverbs.QPConfig{SendCQ: cq, MaxSendSGE: 4})
	for range ringBlocks {
		first := x.cur
		for _, builder := range []bool{false, true} {
			for _, s := range shapes {
				if s.inline > x.q.Cap().MaxInline {
					t.Fatalf("%d bytes inline do not fit", s.inline)
				}
				for _, op := range []uverbs.Opcode{uverbs.OpSend, uverbs.OpSendImm, uverbs.OpWrite, uverbs.OpWriteImm} {
					x.one(op, s, builder)
				}
				if s.inline == 0 {
					x.one(uverbs.OpRead, s, builder)
				}
			}
			x.one(uverbs.OpCompareSwap, shape{0, 1, 8}, builder)
			x.one(uverbs.OpFetchAdd, shape{0, 1, 8}, builder)
		}
		if (x.cur-first)%2 == 0 { // an odd number of blocks reaches every block of the ring
			x.one(uverbs.OpWrite, shape{0, 1, 8}, false)
		}
	}
	for name, places := range x.seen {
		if len(places) != ringBlocks && name != fmt.Sprint(uverbs.OpWrite, shape{0, 1, 8}, false) {
			t.Errorf("%s was posted at %d places of %d", name, len(places), ringBlocks)
		}
	}
	d.s.quiet()
}
