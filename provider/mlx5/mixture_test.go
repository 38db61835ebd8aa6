package mlx5

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// TestMixture posts lists and batches, valid, rejected and aborted, in any order and anywhere in the ring. It checks
// that the posted requests are those that the oracle writes.
func TestMixture(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { mix(t, seed) })
	}
}

func mix(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	cfg := uverbs.QPConfig{Type: uverbs.RC, MaxSendWR: 6, MaxSendSGE: 4, MaxInline: 100, SignalAll: seed%3 == 0}
	if seed%5 == 0 {
		cfg.Type = uverbs.XRCSend
	}
	b := newBench(t, cfg, nil)
	b.sq.cur = uint32(r.IntN(1 << 17))
	if seed%2 == 0 { // the request count overflows 32 bits
		b.sq.head, *b.sq.tail = ^uint32(2), ^uint32(2)
		b.sq.limit = b.sq.head + b.sq.maxPost
		b.Begin()
	}
	o := oracle{qpn: benchQPN, signalAll: cfg.SignalAll}
	for step := range 400 {
		wrs := mixture(r)
		cur, posted := b.sq.cur, 0
		switch how := r.IntN(3); how {
		case 0:
			posted, _ = b.PostSend(wrs)
		default:
			b.Begin()
			for i := range wrs {
				if cfg.Type == uverbs.RC && wrs[i].WRID%2 == 0 {
					buildOnce(b, &wrs[i], nil)
				} else {
					build(b, &wrs[i], nil)
				}
			}
			if how == 1 {
				b.Abort()
			} else if b.Submit() == nil {
				posted = len(wrs)
			}
		}
		for i := range wrs[:posted] {
			var av []byte
			if cfg.Type == uverbs.XRCSend && wrs[i].Opcode != uverbs.OpLocalInv {
				av = append(binary.BigEndian.AppendUint32(nil, wrs[i].RemoteSRQN), make([]byte, 12)...)
			}
			want := o.wqe(cur, &wrs[i], av, nil)
			if got := b.at(cur, len(want)); !bytes.Equal(got, want) {
				t.Fatalf("step %d, request %d of %d: %+v\n got %x\nwant %x", step, i, len(wrs), wrs[i], got, want)
			}
			if id := b.sq.notes[cur&b.sq.mask].wrID; id != wrs[i].WRID {
				t.Fatalf("step %d: number %d, want %d", step, id, wrs[i].WRID)
			}
			cur += uint32(align(len(want), blockSize) / blockSize)
		}
		if cur != b.sq.cur {
			t.Fatalf("step %d: the ring is at %d, want %d", step, b.sq.cur, cur)
		}
		if got := b.record.words[sendCounter]; posted > 0 && got != uint32(be(uint64(cur&0xffff)<<32)) {
			t.Fatalf("step %d: the record says %#x at %d", step, got, cur)
		}
		if n := b.sq.outstanding(); n > int(b.sq.maxPost) {
			t.Fatalf("step %d: %d are out", step, n)
		}
		if r.IntN(2) == 0 {
			*b.sq.tail = b.sq.head - uint32(r.IntN(b.sq.outstanding()+1))
		}
	}
}

// mixture returns some requests, most of them valid.
func mixture(r *rand.Rand) (wrs []uverbs.SendWR) {
	for range 1 + r.IntN(4) {
		in := make([]byte, 200)
		for i := range in {
			in[i] = byte(r.Uint32())
		}
		e := eater(in)
		wr := e.wr()
		if r.IntN(3) > 0 {
			wr.Opcode = []uverbs.Opcode{uverbs.OpWrite, uverbs.OpWriteImm, uverbs.OpSend, uverbs.OpSendImm, uverbs.OpRead,
				uverbs.OpLocalInv, uverbs.OpSendInv}[r.IntN(7)]
			wr.Flags &= uverbs.Fence | uverbs.Signaled | uverbs.Solicited
			wr.SGL = wr.SGL[:min(len(wr.SGL), 4)]
			for i := range wr.SGL {
				wr.SGL[i].Length &= 0xffff
			}
			if wr.Opcode == uverbs.OpLocalInv {
				wr.Inline = nil
			}
			if wr.Opcode == uverbs.OpLocalInv || len(wr.Inline) > 0 {
				wr.SGL = nil
			}
		}
		if wr.Opcode == uverbs.OpBindMW || wr.Opcode >= driver.Opcodes {
			wr.Opcode = uverbs.OpSend
		}
		wrs = append(wrs, wr)
	}
	return wrs
}
