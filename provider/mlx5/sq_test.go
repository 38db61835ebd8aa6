package mlx5

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/uverbs"
)

// requests returns send requests of every kind and of many sizes.
func requests(maxSGE, maxInline int) (all []uverbs.SendWR) {
	sge := func(i, n int) uverbs.SGE {
		return uverbs.SGE{Addr: 0x1122334455667700 + uint64(i), Length: uint32(n), LKey: 0xaabbcc00 + uint32(i)}
	}
	add := func(wr uverbs.SendWR) {
		wr.WRID = uint64(len(all))
		wr.Flags = uverbs.SendFlags(len(all) & 7)
		wr.RemoteAddr, wr.RKey, wr.Imm, wr.InvalidateRKey = 0x0102030405060708, 0x11121314, 0x21222324, 0x31323334
		all = append(all, wr)
	}
	for _, op := range []uverbs.Opcode{uverbs.OpSend, uverbs.OpSendImm, uverbs.OpSendInv, uverbs.OpWrite,
		uverbs.OpWriteImm, uverbs.OpRead} {
		for n := range maxSGE + 1 {
			var sgl []uverbs.SGE
			for i := range n {
				sgl = append(sgl, sge(i, 100+i))
			}
			add(uverbs.SendWR{Opcode: op, SGL: sgl})
		}
		add(uverbs.SendWR{Opcode: op, SGL: []uverbs.SGE{sge(0, 0), sge(1, 5), sge(2, 0)}})
		add(uverbs.SendWR{Opcode: op, SGL: []uverbs.SGE{sge(0, 1<<31)}})
		add(uverbs.SendWR{Opcode: op, SGL: []uverbs.SGE{sge(0, 0)}})
		if op == uverbs.OpRead {
			continue
		}
		for n := 1; n <= maxInline; n++ {
			data := make([]byte, n)
			for i := range data {
				data[i] = byte(n + i)
			}
			add(uverbs.SendWR{Opcode: op, Inline: data})
		}
	}
	add(uverbs.SendWR{Opcode: uverbs.OpCompareSwap, SGL: []uverbs.SGE{sge(0, 8)}, CompareAdd: 0x4142434445464748,
		Swap: 0x5152535455565758})
	add(uverbs.SendWR{Opcode: uverbs.OpFetchAdd, SGL: []uverbs.SGE{sge(0, 8)}, CompareAdd: 0x4142434445464748,
		Swap: 0x5152535455565758})
	add(uverbs.SendWR{Opcode: uverbs.OpLocalInv})
	add(uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{sge(0, 1)}}) // after the LOCAL_INV
	return all
}

// binds returns binds of memory windows.
func binds() (all []driver.Bind) {
	for _, type2 := range []bool{false, true} {
		for access := range uverbs.Access(16) {
			all = append(all, driver.Bind{Type2: type2, Addr: 0x0102030405060708, Length: 0x1112131415 & (1<<31 - 1),
				LKey: 0x21222324, MWRKey: 0x31323334, RKey: 0x41424344, Access: uint32(access)})
		}
		all = append(all, driver.Bind{Type2: type2, Addr: 7, Length: 1 << 31, RKey: 5,
			Access: uint32(uverbs.ZeroBased | uverbs.RemoteRead)})
	}
	return append(all, driver.Bind{MWRKey: 0x31323334, RKey: 0x41424345})
}

// build adds a request to a batch with the builder's calls.
func build(b *bench, wr *uverbs.SendWR, bind *driver.Bind) {
	ex := wr.Imm
	if wr.Opcode == uverbs.OpSendInv || wr.Opcode == uverbs.OpLocalInv {
		ex = wr.InvalidateRKey
	}
	b.Op(wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, ex)
	buildRest(b, wr, bind)
}

// buildOnce is build with the calls that also pass the data, for requests that have data, and no immediate data or key.
func buildOnce(b *bench, wr *uverbs.SendWR, bind *driver.Bind) {
	rest := *wr
	switch {
	case b.sq.ops[wr.Opcode]&(imm32|key) != 0:
		build(b, wr, bind)
		return
	case wr.Inline != nil:
		b.OpInline(wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, wr.Inline)
		rest.Inline = nil
	case len(wr.SGL) > 0:
		b.OpSGE(wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, wr.SGL[0])
		rest.SGL = wr.SGL[1:]
	default:
		build(b, wr, bind)
		return
	}
	buildRest(b, &rest, bind)
}

func buildRest(b *bench, wr *uverbs.SendWR, bind *driver.Bind) {
	switch wr.Opcode {
	case uverbs.OpCompareSwap, uverbs.OpFetchAdd:
		b.Atomic(wr.CompareAdd, wr.Swap)
	case uverbs.OpBindMW:
		b.Bind(*bind, nil)
	}
	if b.sq.destSegments > 0 && wr.Opcode != uverbs.OpLocalInv {
		b.RemoteSRQ(wr.RemoteSRQN)
	}
	if wr.Inline != nil {
		b.Inline(wr.Inline)
	}
	for _, s := range wr.SGL {
		b.SGE(s)
	}
}

// TestRequests posts requests of every kind and size, at every place of the ring, with lists and with batches. It
// compares the contents of the ring and of the register with the oracle's.
func TestRequests(t *testing.T) {
	const maxSGE, maxInline = 6, 100
	all := requests(maxSGE, maxInline)
	for _, way := range []string{"list", "batch", "once"} {
		t.Run(way, func(t *testing.T) {
			b := newBench(t, uverbs.QPConfig{MaxSendWR: 4, MaxSendSGE: maxSGE, MaxInline: maxInline}, nil)
			o := oracle{qpn: benchQPN}
			blocks := uint32(len(b.sq.blocks))
			for start := range blocks {
				for i := range all {
					b.sq.cur = b.sq.cur&^(blocks-1) + blocks + start
					clear(b.regs)
					b.post(t, way, &o, &all[i], nil)
				}
			}
		})
	}
}

// post posts wr and compares it.
func (b *bench) post(t *testing.T, way string, o *oracle, wr *uverbs.SendWR, bind *driver.Bind) {
	t.Helper()
	cur, half := b.sq.cur, b.sq.db.Half
	if way == "list" && bind == nil {
		if n, err := b.PostSend([]uverbs.SendWR{*wr}); n != 1 || err != nil {
			t.Fatalf("%+v: %d, %v", wr, n, err)
		}
	} else {
		b.Begin()
		if way == "once" {
			buildOnce(b, wr, bind)
		} else {
			build(b, wr, bind)
		}
		check(t, b.Submit())
	}
	b.posted(t, wr, o.wqe(cur, wr, nil, bind), cur, half)
}

// posted checks that wr was written at block cur as want, and to the half of the register, and completes it.
func (b *bench) posted(t *testing.T, wr *uverbs.SendWR, want []byte, cur uint32, half uint64) {
	t.Helper()
	if got := b.at(cur, len(want)); !bytes.Equal(got, want) {
		t.Fatalf("%+v at block %d:\n got %x\nwant %x", wr, cur, got, want)
	}
	size := align(len(want), blockSize)
	if got := int(b.sq.cur-cur) * blockSize; got != size {
		t.Fatalf("%+v takes %d bytes, want %d", wr, got, size)
	}
	told := want[:8]
	if size <= 256 && len(want) > segmentSize {
		told = b.at(cur, size)
	}
	if got := b.regs[half:][:256]; !bytes.Equal(got[:len(told)], told) || !zero(got[len(told):]) {
		t.Fatalf("%+v: the register has %x, want %x", wr, got, told)
	}
	if got := b.record.words[sendCounter]; got != uint32(be(uint64(b.sq.cur&0xffff)<<32)) {
		t.Fatalf("the record has %#x after block %d", got, b.sq.cur)
	}
	note := b.sq.notes[cur&b.sq.mask]
	if note.wrID != wr.WRID || note.end != b.sq.head {
		t.Fatalf("%+v is noted as %+v, with %d posted", wr, note, b.sq.head)
	}
	b.complete()
}

func TestBinds(t *testing.T) {
	b := newBench(t, uverbs.QPConfig{MaxSendWR: 4, MaxSendSGE: 1}, nil)
	o := oracle{qpn: benchQPN}
	blocks := uint32(len(b.sq.blocks))
	for start := range blocks {
		for _, bind := range binds() {
			b.sq.cur = b.sq.cur&^(blocks-1) + blocks + start
			clear(b.regs)
			b.post(t, "batch", &o, &uverbs.SendWR{WRID: 5, Opcode: uverbs.OpBindMW, Flags: uverbs.Signaled}, &bind)
			clear(b.regs)
			b.post(t, "batch", &o, &uverbs.SendWR{WRID: 6, Opcode: uverbs.OpWrite,
				SGL: []uverbs.SGE{{Addr: 1, Length: 2, LKey: 3}}}, nil)
		}
	}
}

// TestSeveral checks that lists and batches of several requests ring one doorbell, without a burst.
func TestSeveral(t *testing.T) {
	const maxSGE, maxInline = 4, 60
	all := requests(maxSGE, maxInline)
	b := newBench(t, uverbs.QPConfig{MaxSendWR: 64, MaxSendSGE: maxSGE, MaxInline: maxInline, SignalAll: true}, nil)
	o := oracle{qpn: benchQPN, signalAll: true}
	r := rand.New(rand.NewPCG(1, 2))
	for lap := range 3000 {
		var wrs []uverbs.SendWR
		for range 2 + r.IntN(12) {
			wrs = append(wrs, all[r.IntN(len(all))])
		}
		clear(b.regs)
		cur, half := b.sq.cur, b.sq.db.Half
		if lap%3 == 0 {
			if n, err := b.PostSend(wrs); n != len(wrs) || err != nil {
				t.Fatal(n, err)
			}
		} else {
			b.Begin()
			for i := range wrs {
				if (lap+i)%2 == 0 {
					build(b, &wrs[i], nil)
				} else {
					buildOnce(b, &wrs[i], nil)
				}
			}
			check(t, b.Submit())
		}
		var last []byte
		for i := range wrs {
			last = o.wqe(cur, &wrs[i], nil, nil)
			if got := b.at(cur, len(last)); !bytes.Equal(got, last) {
				t.Fatalf("lap %d: %+v:\n got %x\nwant %x", lap, wrs[i], got, last)
			}
			cur += uint32(align(len(last), blockSize) / blockSize)
		}
		if cur != b.sq.cur || !bytes.Equal(b.regs[half:][:8], last[:8]) || !zero(b.regs[half+8:][:248]) {
			t.Fatalf("lap %d: the queue is at %d, want %d; the register has %x", lap, b.sq.cur, cur, b.regs[half:][:16])
		}
		b.complete()
	}
}

// TestRequestBytes has the bytes of a few requests, for human readers.
func TestRequestBytes(t *testing.T) {
	b := newBench(t, uverbs.QPConfig{MaxSendWR: 4, MaxSendSGE: 3, MaxInline: 40}, nil)
	var out strings.Builder
	show := func(name string, cur uint32) {
		fmt.Fprintln(&out, name)
		for i := cur; i < b.sq.cur; i++ {
			for _, line := range strings.SplitAfter(strings.TrimSuffix(hex.Dump(b.at(i, blockSize)), "\n"), "\n") {
				out.WriteString("  " + line[10:58] + "\n")
			}
		}
		b.complete()
	}
	for _, wr := range requests(3, 40) {
		if n := len(wr.Inline); n != 0 && n != 12 && n != 13 && n != 40 {
			continue
		}
		cur := b.sq.cur
		if _, err := b.PostSend([]uverbs.SendWR{wr}); err != nil {
			t.Fatal(err)
		}
		show(fmt.Sprintf("%v, %d SGEs, %d bytes inline", wr.Opcode, len(wr.SGL), len(wr.Inline)), cur)
	}
	for _, bind := range binds() {
		cur, typ := b.sq.cur, uverbs.MWType1
		if bind.Type2 {
			typ = uverbs.MWType2
		}
		b.Begin()
		b.Op(uverbs.OpBindMW, uverbs.Signaled, 1, 0, 0, 0)
		b.Bind(bind, nil)
		check(t, b.Submit())
		show(fmt.Sprintf("BIND_MW of type %d, access %v, %d bytes", typ, uverbs.Access(bind.Access), bind.Length), cur)
	}
	ioctltest.Golden(t, "requests", out.String())
}
