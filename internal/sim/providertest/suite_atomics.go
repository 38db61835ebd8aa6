package providertest

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// target is the offset of the word that the tests of atomics change, and previous that of the
// previous values.
const target, previous = 4096, 8192

// atomicWR returns a signaled atomic on the word at target, which stores the previous value at
// previous + 8*id.
func (r *Rig) atomicWR(id uint64, op uverbs.Opcode, compareAdd, swap uint64) uverbs.SendWR {
	return uverbs.SendWR{WRID: id, Opcode: op, Flags: uverbs.Signaled, SGL: []uverbs.SGE{r.sge(previous+8*int(id), 8)},
		RemoteAddr: r.Addr + target, RKey: r.RKey, CompareAdd: compareAdd, Swap: swap}
}

func (r *Rig) word(off int) uint64 { return binary.NativeEndian.Uint64(r.Mem[off:]) }

func (r *Rig) setWord(off int, v uint64) { binary.NativeEndian.PutUint64(r.Mem[off:], v) }

// wantWord checks the word at off.
func (r *Rig) wantWord(t *testing.T, off int, v uint64) {
	t.Helper()
	if got := r.word(off); got != v {
		t.Errorf("the word at %d is %#x, want %#x", off, got, v)
	}
}

// refusesAtomics reports whether the device has no atomics, and checks that it refuses them then.
func (r *Rig) refusesAtomics(t *testing.T) bool {
	t.Helper()
	for _, op := range []uverbs.Opcode{uverbs.OpCompareSwap, uverbs.OpFetchAdd} {
		if !r.NoAtomics {
			break
		}
		n, err := r.QP.PostSend([]uverbs.SendWR{r.atomicWR(0, op, 1, 2)})
		if n != 0 || !errors.Is(err, uverbs.ErrOpNotSupported) {
			t.Errorf("PostSend: %d, %v; want 0, %v", n, err, uverbs.ErrOpNotSupported)
		}
	}
	return r.NoAtomics
}

func atomics(t *testing.T, r *Rig) {
	if r.refusesAtomics(t) {
		return
	}
	const first, second = 0x1122334455667788, 0x99aabbccddeeff00
	r.setWord(target, first)
	r.send(t, r.atomicWR(0, uverbs.OpCompareSwap, first, second), // swaps the values
		r.atomicWR(1, uverbs.OpCompareSwap, first, 1), // does not swap
		r.atomicWR(2, uverbs.OpFetchAdd, 5, 77),
		r.atomicWR(3, uverbs.OpFetchAdd, ^uint64(0), 0)) // adds -1
	for i, wc := range r.done(t, 4) {
		op := uverbs.WCCompareSwap
		if i >= 2 {
			op = uverbs.WCFetchAdd
		}
		if wc.WRID != uint64(i) || wc.Opcode != op || wc.ByteLen != 8 {
			t.Errorf("completion %+v, want %d with opcode %d", wc, i, op)
		}
	}
	for i, was := range []uint64{first, second, second, second + 5} {
		r.wantWord(t, previous+8*i, was)
	}
	r.wantWord(t, target, second+4)
}

func atomicsBatch(t *testing.T, r *Rig) {
	if r.refusesAtomics(t) {
		return
	}
	r.setWord(target, 0)
	for lap := range uint64(3 * r.Cap.MaxSendWR) { // around the ring
		q := r.QP
		q.Begin()
		q.Op(uverbs.OpFetchAdd, 0, 1, r.Addr+target, r.RKey, 0)
		q.Atomic(10, 0)
		q.SGE(r.sge(previous, 8))
		q.Op(uverbs.OpCompareSwap, 0, 2, r.Addr+target, r.RKey, 0)
		q.Atomic(10*lap+10, 10*lap+1)
		q.SGE(r.sge(previous+8, 8))
		q.Op(uverbs.OpFetchAdd, uverbs.Signaled, lap, r.Addr+target, r.RKey, 0)
		q.Atomic(9, 0)
		q.SGE(r.sge(previous+16, 8))
		if err := q.Submit(); err != nil {
			t.Fatal(err)
		}
		if wc := r.done(t, 1)[0]; wc.WRID != lap || wc.Opcode != uverbs.WCFetchAdd {
			t.Errorf("completion %+v", wc)
		}
		r.wantWord(t, previous, 10*lap)
		r.wantWord(t, previous+8, 10*lap+10)
		r.wantWord(t, previous+16, 10*lap+1)
		r.wantWord(t, target, 10*lap+10)
	}
}

// atomicsBad posts atomics that are refused, each after a valid one.
func atomicsBad(t *testing.T, r *Rig) {
	if r.refusesAtomics(t) {
		return
	}
	r.setWord(target, 0)
	good := r.atomicWR(1, uverbs.OpFetchAdd, 1, 0)
	for name, sgl := range map[string][]uverbs.SGE{
		"nothing": nil, "7 bytes": {r.sge(0, 7)}, "9 bytes": {r.sge(0, 8), r.sge(8, 1)}, "a page": {r.sge(0, 4096)},
	} {
		bad := good
		bad.SGL = sgl
		if n, err := r.QP.PostSend([]uverbs.SendWR{good, bad, good}); n != 1 || !errors.Is(err, uverbs.ErrAtomicSize) {
			t.Errorf("%s: PostSend: %d, %v; want 1, %v", name, n, err, uverbs.ErrAtomicSize)
		}
		r.done(t, 1)
		if n, err := r.QP.PostSend([]uverbs.SendWR{bad}); n != 0 || !errors.Is(err, uverbs.ErrAtomicSize) {
			t.Errorf("%s alone: PostSend: %d, %v; want 0, %v", name, n, err, uverbs.ErrAtomicSize)
		}
		for _, last := range []bool{false, true} {
			r.QP.Begin()
			r.QP.Op(uverbs.OpFetchAdd, uverbs.Signaled, 2, r.Addr+target, r.RKey, 0)
			r.QP.Atomic(1, 0)
			for _, s := range sgl {
				r.QP.SGE(s)
			}
			if !last {
				r.QP.Op(uverbs.OpSend, uverbs.Signaled, 3, 0, 0, 0)
			}
			if err := r.QP.Submit(); !errors.Is(err, uverbs.ErrAtomicSize) {
				t.Errorf("%s: Submit: %v, want %v", name, err, uverbs.ErrAtomicSize)
			}
		}
	}
	r.done(t, 0)
	r.wantWord(t, target, 4)
}
