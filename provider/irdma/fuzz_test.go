package irdma

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A bench has a QP and a CQ whose memory is not shared with a device.
type bench struct {
	tb testing.TB
	qp *qp
	cq *cq
	ah *driver.AH
}

const (
	benchQPN     = 0x102
	benchSends   = 16
	benchRecvs   = 8
	benchEntries = 32
)

func (b *bench) memory(n int) *provider.Mapping {
	b.tb.Helper()
	m, err := provider.Anon(n)
	if err != nil {
		b.tb.Fatal(err)
	}
	b.tb.Cleanup(func() {
		if err := m.Unmap(); err != nil {
			b.tb.Error(err)
		}
	})
	return m
}

func newBench(tb testing.TB, typ uverbs.QPType) *bench {
	tb.Helper()
	c := &deviceContext{minWQ: minRequests}
	c.limits = uapi.IrdmaAllocUcontextResp{MaxHwWqFrags: 13, MaxHwReadSges: 13, MaxHwInline: 101, MaxHwWqQuanta: 1 << 15,
		MaxHwRqQuanta: 1 << 15, MaxHwSqChunk: 8}
	b := &bench{tb: tb, ah: new(driver.AH), cq: &cq{ctx: c}, qp: &qp{ctx: c, number: benchQPN}}
	registers := b.memory(pageSize)
	c.bell = doorbell{sq: registerAt(registers, 0), cq: registerAt(registers, cqAt)}
	b.cq.shadow = shadowOf(b.memory(pageSize), 0)
	b.addRing()
	pd := new(driver.PD)
	b.ah.Open(pd)
	cfg := &uverbs.QPConfig{Type: typ, MaxSendWR: benchSends, MaxRecvWR: benchRecvs, MaxSendSGE: 2, MaxRecvSGE: 2,
		MaxInline: 32}
	sends, recvs, err := c.sizesOf(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	b.qp.rings = &region{mem: b.memory(sends.bytes() + recvs.bytes() + shadowBytes)}
	b.qp.handle, _ = c.qps.Add(b.qp)
	b.qp.configure(cfg, provider.QPEnv{PD: pd, SendCQ: b.cq, RecvCQ: b.cq}, sends, recvs)
	b.qp.sq.udMTU = 1024
	return b
}

// addRing adds a ring to the CQ, as a resize does.
func (b *bench) addRing() {
	m := b.memory(benchEntries * entrySize)
	b.cq.rings = append(b.cq.rings, &cqRing{entries: entriesOf(m, benchEntries), valid: valid, mem: &region{mem: m}})
}

// post fills both queues. It returns the WRIDs.
func (b *bench) post(t *testing.T) map[uint64]bool {
	outstanding := map[uint64]bool{}
	for i := range uint64(benchSends) {
		outstanding[100+i] = true
		flags := uverbs.SendFlags(0)
		if i%3 != 1 {
			flags = uverbs.Signaled
		}
		b.qp.OpInline(uverbs.OpSend, flags, 100+i, 0, 0, bytes.Repeat([]byte("x"), 1+2*int(i)))
		if b.qp.sq.typ == uverbs.UD {
			b.qp.UDAddr(b.ah, 1, 2)
		}
		if err := b.qp.Submit(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint64(benchRecvs) {
		outstanding[i] = true
		if _, err := b.qp.PostRecv([]uverbs.RecvWR{{WRID: i, SGL: []uverbs.SGE{{Length: 1}}}}); err != nil {
			t.Fatal(err)
		}
	}
	return outstanding
}

// entry returns an entry of the bench's QP.
func (b *bench) entry(flags uint64, index uint32) cqe {
	return cqe{0, b.qp.handle, benchQPN << 32, flags | uint64(index)<<indexAt}
}

// text returns entries of the first round as bytes.
func text(all ...cqe) (s []byte) {
	for _, e := range all {
		e[flagsWord] |= valid
		for _, w := range e {
			s = binary.LittleEndian.AppendUint64(s, w)
		}
	}
	return s
}

// FuzzPoll polls entries with any content, of a device that is wrong or hostile. Poll must end, and return each
// request at most once.
func FuzzPoll(f *testing.F) {
	f.Add([]byte{}, uint8(0))
	f.Add(bytes.Repeat([]byte{0xff}, 2*benchEntries*entrySize), uint8(2))
	b := newBench(f, uverbs.RC)
	const flush = failed | majorFlush<<majorAt | 3
	seeds := [][]byte{
		text(b.entry(ofSend, 0), b.entry(0, 0), b.entry(ofSend, 1), b.entry(extended, 2), cqe{7, 0, 0, immThere}),
		text(b.entry(ofSend, 2), b.entry(ofSend|flush, 0), b.entry(0, 0), b.entry(flush, 0)),
		text(b.entry(flush, 0), b.entry(ofSend|flush, 0), b.entry(ofSend|flush, 0), b.entry(ofSend, 3)),
		text(b.entry(ofSend|failed|2<<majorAt, 0), b.entry(failed|0xe000<<majorAt, 0), b.entry(0, 999)),
		text(b.entry(extended, 0)), // without the second half
	}
	for mode := range uint8(8) {
		for _, s := range seeds {
			f.Add(s, mode)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte, mode uint8) {
		typ := uverbs.RC
		if mode&1 != 0 {
			typ = uverbs.UD
		}
		b := newBench(t, typ)
		outstanding := b.post(t)
		if mode&2 != 0 {
			b.addRing()
		}
		for _, r := range b.cq.rings {
			content = content[copy(r.mem.mem.Bytes()[:benchEntries*entrySize], content):]
		}
		if mode&4 != 0 {
			b.cq.Purge(b.qp)
		}
		wcs := make([]uverbs.WC, 5)
		ready := true
		for range 5 * benchEntries { // the entries do not change, so that there are up to two laps
			b.cq.Unpolled(b.qp)
			k, err := b.cq.Poll(wcs)
			for _, wc := range wcs[:k] {
				if !outstanding[wc.WRID] || wc.QPNum != benchQPN {
					t.Fatalf("completion %+v", wc)
				}
				delete(outstanding, wc.WRID)
			}
			if ready = k > 0 || err != nil || b.cq.Ready(); !ready {
				break
			}
		}
		if ready {
			t.Fatal("Ready, and Poll returns nothing") // a wait would not end
		}
		if sent, received := b.qp.SendsOutstanding(), b.qp.RecvsOutstanding(); sent > benchSends || received > benchRecvs {
			t.Fatalf("%d sends and %d receives are outstanding", sent, received)
		}
	})
}

// Posts and polls allocate nothing.
func TestNothingAllocated(t *testing.T) {
	b := newBench(t, uverbs.RC)
	wrs := []uverbs.SendWR{{WRID: 1, Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: []byte("x")}}
	recvs := []uverbs.RecvWR{{WRID: 2, SGL: []uverbs.SGE{{Length: 1}, {Length: 2}}}}
	wcs := make([]uverbs.WC, 4)
	put := func(flags uint64, place uint32) {
		b.put(b.entry(flags, place))
		if k, err := b.cq.Poll(wcs); k != 1 || err != nil {
			t.Fatalf("Poll: %d, %v", k, err)
		}
	}
	n := testing.AllocsPerRun(2000, func() {
		at := b.qp.sq.at.quanta
		received := b.qp.rq.count
		if k, err := b.qp.PostRecv(recvs); k != 1 || err != nil {
			t.Fatal(err)
		}
		if k, err := b.qp.PostSend(wrs); k != 1 || err != nil {
			t.Fatal(err)
		}
		put(ofSend, at&b.qp.sq.mask())
		at = b.qp.sq.at.quanta
		b.qp.OpSGE(uverbs.OpRead, uverbs.Signaled, 3, 0, 0, uverbs.SGE{Length: 1})
		if err := b.qp.Submit(); err != nil {
			t.Fatal(err)
		}
		put(ofSend, at&b.qp.sq.mask())
		put(0, received&b.qp.rq.mask()*b.qp.rq.stride)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The last address of a datagram counts.
func TestAddressedTwice(t *testing.T) {
	b := newBench(t, uverbs.UD)
	s := &b.qp.sq
	first, second := new(driver.AH), new(driver.AH)
	for i, ah := range []*driver.AH{first, second} {
		ah.AV()[0] = uint64(i + 1)
		ah.Open(s.pd)
	}
	b.qp.Begin()
	b.qp.Op(uverbs.OpSend, 0, 1, 0, 0, 0)
	b.qp.UDAddr(first, 7, 8)
	b.qp.UDAddr(second, 9, 10)
	if err := b.qp.Submit(); err != nil {
		t.Fatal(err)
	}
	if q := s.ring[0]; q[headerWord]&ahMask != 2 || q[2] != 9<<qpnAt|10 {
		t.Errorf("the datagram has AH %d and destination %#x", q[headerWord]&ahMask, q[2])
	}
}

// After a batch is dropped, nothing of it is in the ring that the device could take for a request.
func TestDropped(t *testing.T) {
	b := newBench(t, uverbs.RC)
	s := &b.qp.sq
	for lap := range 3 * len(s.ring) {
		b.qp.Begin()
		for range 3 {
			b.qp.OpInline(uverbs.OpWrite, 0, 1, 2, 3, make([]byte, 32))
		}
		b.qp.SGE(uverbs.SGE{}) // beside inline data
		if err := b.qp.Submit(); err != uverbs.ErrMalformed {
			t.Fatal(err)
		}
		for c := s.at.quanta; c != s.at.quanta+clearQuanta; c++ {
			if s.ring[c&s.mask()][headerWord]&valid == validOf(c, s.shift) {
				t.Fatalf("lap %d: quantum %d is valid", lap, c)
			}
		}
		if n, err := b.qp.PostSend([]uverbs.SendWR{{Opcode: uverbs.OpWrite, SGL: []uverbs.SGE{{Length: 1}}}}); n != 1 {
			t.Fatal(err)
		}
		if x, ok := s.oldest(); !ok || x.quanta != 1 {
			t.Fatalf("the oldest request is %+v", x)
		}
	}
}
