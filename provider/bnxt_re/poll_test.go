package bnxt_re

import (
	"slices"
	"testing"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// sends posts n signaled SENDs, with the WRIDs from 100 on.
func (b *bench) sends(t *testing.T, n uint64) {
	t.Helper()
	for i := range n {
		b.qp.OpInline(uverbs.OpSend, uverbs.Signaled, 100+i, 0, 0, []byte("x"))
		if err := b.qp.Submit(); err != nil {
			t.Fatal(err)
		}
	}
}

// expect polls n completions and an error.
func (b *bench) expect(t *testing.T, n int, want error) []uverbs.WC {
	t.Helper()
	wcs := make([]uverbs.WC, 32)
	k, err := b.cq.Poll(wcs)
	if k != n || err != want {
		t.Fatalf("Poll: %d, %v; want %d, %v", k, err, n, want)
	}
	return wcs[:k]
}

// The index of a completion with an error is the slot of the request that failed, if requests have different sizes.
func TestFailedSlot(t *testing.T) {
	const sends, slots = 12, 3
	for failed := range uint64(sends) {
		for _, most := range []int{1, 32} {
			b := newBench(t, uverbs.RC, true, false)
			b.sends(t, sends)
			b.put(b.entry(typeSend, 7, uint16(failed*slots), 0), 0)
			wcs := make([]uverbs.WC, most)
			for i := uint64(0); i < sends; {
				n, err := b.cq.Poll(wcs)
				if n == 0 || err != nil {
					t.Fatalf("request %d fails: Poll: %d, %v", failed, n, err)
				}
				for _, wc := range wcs[:n] {
					want := uverbs.WC{WRID: 100 + i, QPNum: benchQPN}
					if i == failed {
						want.Status, want.VendorErr = uverbs.WCRemAccessErr, 7
					} else if i > failed {
						want.Status = uverbs.WCWRFlushErr
					}
					if wc != want {
						t.Errorf("request %d fails: completion %+v, want %+v", failed, wc, want)
					}
					i++
				}
			}
			b.qp.ctx.qps.Remove(b.qp.handle)
		}
	}
}

// A slot in which no outstanding request begins completes none.
func TestFailedSlotOfNone(t *testing.T) {
	for _, slot := range []uint16{1, 6, 0xffff} {
		b := newBench(t, uverbs.RC, true, false)
		b.sends(t, 2)
		b.put(b.entry(typeSend, 7, slot, 0), 0)
		b.expect(t, 0, provider.ErrCompletion)
		if n := b.qp.SendsOutstanding(); n != 2 {
			t.Errorf("slot %d: %d sends are outstanding", slot, n)
		}
		b.qp.ctx.qps.Remove(b.qp.handle)
	}
}

// The end of a QP completes the sends before its index as successful.
func TestEndCompletesSends(t *testing.T) {
	for _, index := range []uint16{0, 3, 5, 6, noIndex} {
		for _, variable := range []bool{false, true} {
			b := newBench(t, uverbs.RC, variable, false)
			b.sends(t, 2)
			b.qp.OpInline(uverbs.OpSend, 0, 102, 0, 0, []byte("x"))
			b.qp.OpSGE(uverbs.OpRead, uverbs.Signaled, 103, 0, 0, uverbs.SGE{Length: 7})
			b.qp.OpInline(uverbs.OpSend, 0, 104, 0, 0, []byte("x"))
			if err := b.qp.Submit(); err != nil {
				t.Fatal(err)
			}
			b.put(b.entry(typeTerm, 0, index, 0), 0)
			var want []uverbs.WC
			for i := range uint64(5) {
				wc := uverbs.WC{WRID: 100 + i, QPNum: benchQPN, Status: uverbs.WCWRFlushErr}
				if i == 3 {
					wc.Opcode = uverbs.WCRead
				}
				if index <= 5 && i < uint64(index) {
					if wc.Status = uverbs.WCSuccess; i == 3 {
						wc.ByteLen = 7
					} else if i != 0 && i != 1 {
						continue
					}
				}
				want = append(want, wc)
			}
			if got := b.expect(t, len(want), nil); !slices.Equal(got, want) {
				t.Errorf("index %d: %+v, want %+v", index, got, want)
			}
			b.sends(t, 1) // in ERR
			if wc := b.expect(t, 1, nil)[0]; wc.Status != uverbs.WCWRFlushErr {
				t.Errorf("index %d: completion of a later send: %+v", index, wc)
			}
			b.qp.ctx.qps.Remove(b.qp.handle)
		}
	}
}

// A receive of an SRQ that the device flushes completes.
func TestFlushedReceiveOfSRQ(t *testing.T) {
	for _, typ := range []uverbs.QPType{uverbs.RC, uverbs.UD} {
		kind := byte(typeRecvRC)
		if typ == uverbs.UD {
			kind = typeRecvUD
		}
		b := newBench(t, typ, false, true)
		if _, err := b.srq.PostRecv([]uverbs.RecvWR{{WRID: 7}}); err != nil {
			t.Fatal(err)
		}
		b.put(b.entry(kind, hwFlushed, 0, 0), 0)
		want := uverbs.WC{WRID: 7, QPNum: benchQPN, Opcode: uverbs.WCRecv, Status: uverbs.WCWRFlushErr, VendorErr: hwFlushed}
		if wc := b.expect(t, 1, nil)[0]; wc != want {
			t.Errorf("completion %+v, want %+v", wc, want)
		}
		if n := b.srq.posted(); n != 0 {
			t.Errorf("%d receives are outstanding", n)
		}
		b.qp.ctx.qps.Remove(b.qp.handle)
	}
}

// A completion of RC says which key the peer has invalidated. The same bit has another meaning for UD.
func TestInvalidatedKey(t *testing.T) {
	for _, typ := range []uverbs.QPType{uverbs.RC, uverbs.UD} {
		b := newBench(t, typ, false, false)
		b.post(t)
		kind := byte(typeRecvRC)
		if typ == uverbs.UD {
			kind = typeRecvUD
		}
		e := b.entry(kind, 0, 0, 0)
		e[4], e[5], e[26] = 0x34, 0x12, withInv>>16
		b.put(e, 0)
		wc := b.expect(t, 1, nil)[0]
		if key, ok := wc.InvalidatedRKey(); ok != (typ == uverbs.RC) || ok && key != 0x1234 || wc.Opcode != uverbs.WCRecv {
			t.Errorf("%v: completion %+v", typ, wc)
		}
		b.qp.ctx.qps.Remove(b.qp.handle)
	}
}

// Completions that name no outstanding request, or no QP, are dropped.
func TestCompletionOfNone(t *testing.T) {
	for name, e := range map[string]func(b *bench) [entrySize]byte{
		"index beyond what was posted": func(b *bench) [entrySize]byte { return b.entry(typeSend, 0, benchSends+3, 0) },
		"receive out of order":         func(b *bench) [entrySize]byte { return b.entry(typeRecvRC, 0, 0, 3) },
		"QP whose index is used again": func(b *bench) [entrySize]byte {
			e := b.entry(typeSend, 0, 2, 0)
			old := b.qp.handle
			b.qp.ctx.qps.Remove(old)
			var ok bool
			if b.qp.handle, ok = b.qp.ctx.qps.Add(b.qp); !ok || uint32(b.qp.handle) != uint32(old) || b.qp.handle == old {
				t.Fatalf("handle %#x after %#x", b.qp.handle, old)
			}
			return e
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, uverbs.RC, false, false)
			b.post(t)
			b.put(e(b), 0)
			b.expect(t, 0, provider.ErrCompletion)
			if s, r := b.qp.SendsOutstanding(), b.qp.RecvsOutstanding(); s != benchSends || r != benchRecvs {
				t.Errorf("%d sends and %d receives are outstanding", s, r)
			}
			b.qp.ctx.qps.Remove(b.qp.handle)
		})
	}
}

// A QP that is closed while Poll flushes it has no completions any more.
func TestPurgeOfFlushing(t *testing.T) {
	b := newBench(t, uverbs.RC, false, false)
	b.post(t)
	b.put(b.entry(typeTerm, 0, 0, 0), 0)
	if n, err := b.cq.Poll(make([]uverbs.WC, 1)); n != 1 || err != nil {
		t.Fatalf("Poll: %d, %v", n, err)
	}
	b.cq.Purge(b.qp)
	b.expect(t, 0, nil)
	b.qp.ctx.qps.Remove(b.qp.handle)
}

// The source QPN of a datagram has 24 bits, and its length 14.
func TestUDFields(t *testing.T) {
	b := newBench(t, uverbs.UD, false, false)
	b.post(t)
	e := b.entry(typeRecvUD, 0, 0, 0)
	e[0], e[1], e[2], e[3] = 0x10, 0xff, 0xff, 0xff
	e[22], e[23], e[31] = 0x34, 0x12, 0xa5
	b.put(e, 0)
	if wc := b.expect(t, 1, nil)[0]; wc.SrcQP != 0xa51234 || wc.ByteLen != 0x3f10 {
		t.Errorf("SrcQP %#x, ByteLen %#x", wc.SrcQP, wc.ByteLen)
	}
	b.qp.ctx.qps.Remove(b.qp.handle)
}

// The end of a QP, which may be in one of its CQs only, wakes who waits for the other one, and what is posted later
// wakes who waits for its completion.
func TestEndWakes(t *testing.T) {
	b := newBench(t, uverbs.RC, false, false)
	var sends, recvs int
	b.cq.wake = func() { sends++ }
	b.qp.rq.cq = &cq{ctx: b.ctx, wake: func() { recvs++ }}
	b.put(b.entry(typeTerm, 0, noIndex, 0), 0)
	for i, step := range []func(){
		func() { b.expect(t, 0, nil) },
		func() {
			if _, err := b.qp.PostRecv([]uverbs.RecvWR{{}}); err != nil {
				t.Fatal(err)
			}
		},
		func() { b.sends(t, 1) },
	} {
		sends, recvs = 0, 0
		step()
		if want := [][2]int{{0, 1}, {0, 1}, {1, 0}}[i]; want != [2]int{sends, recvs} {
			t.Errorf("step %d: the CQs of sends and receives were woken %d and %d times, want %v", i, sends, recvs, want)
		}
	}
	b.qp.ctx.qps.Remove(b.qp.handle)
}

// An endless device writes an entry without completions for each that a doorbell releases.
type endless struct {
	cq    *cq
	bells int
}

// Doorbell implements ioctl.Doorbells. It gives up so that the test ends.
func (d *endless) Doorbell(uint32, uint32, []byte) {
	if d.bells++; d.bells > 10 {
		return
	}
	for i := range d.cq.ring {
		phase := d.cq.phase
		if uint32(i) < d.cq.head {
			phase ^= 1
		}
		d.cq.ring[i] = cqe{3: phase}
	}
}

// Poll ends if a device writes entries for ever.
func TestEndlessEntries(t *testing.T) {
	b := newBench(t, uverbs.RC, false, false)
	d := &endless{cq: b.cq}
	b.ctx.bell.bells = d
	for i := range b.cq.ring {
		b.cq.ring[i] = cqe{3: 1}
	}
	b.expect(t, 0, nil)
	if d.bells == 0 || d.bells > 3 {
		t.Errorf("Poll rang the doorbell %d times", d.bells)
	}
	b.qp.ctx.qps.Remove(b.qp.handle)
}
