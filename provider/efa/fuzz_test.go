package efa

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
	ctx *deviceContext
	qp  *qp
	cq  *cq
	ah  *driver.AH
}

const (
	benchQPN     = 0x102
	benchSends   = 16
	benchRecvs   = 8
	benchEntries = 16
)

func newBench(tb testing.TB, rings int) *bench {
	tb.Helper()
	c := &deviceContext{rdmaSGE: 1}
	c.attr.DeviceCaps = uapi.EFA_QUERY_DEVICE_CAPS_RDMA_READ | uapi.EFA_QUERY_DEVICE_CAPS_RDMA_WRITE
	c.attr.MaxRdmaSize = 1 << 20
	anon := func(n int) *provider.Mapping {
		m, err := provider.Anon(n)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() {
			if err := m.Unmap(); err != nil {
				tb.Error(err)
			}
		})
		return m
	}
	memory := anon(1 << 16)
	b := &bench{ctx: c, qp: &qp{ctx: c, number: benchQPN}, ah: new(driver.AH),
		cq: &cq{ctx: c}}
	pd := new(driver.PD)
	b.ah.Open(pd)
	b.qp.configure(&uverbs.QPConfig{Type: uverbs.SRD, MaxSendWR: benchSends, MaxRecvWR: benchRecvs, MaxSendSGE: 2,
		MaxRecvSGE: 2, MaxInline: 32}, provider.QPEnv{PD: pd})
	s, r := &b.qp.sq, &b.qp.rq
	s.ring, s.local = sends(memory, 0, benchSends), make([]sendWQE, benchSends)
	s.mask, s.log, s.burst = benchSends-1, 4, benchSends
	r.ring, r.mask = recvs(memory, 2*benchRecvs), 2*benchRecvs-1
	s.db, r.db = register{at: wordAt(memory, 4096)}, register{at: wordAt(memory, 4100)}
	b.cq.mem = anon(rings * benchEntries * entrySize)
	b.cq.use(benchEntries, rings)
	c.qps.put(b.qp)
	return b
}

// FuzzPoll polls entries with any content, of a device that is wrong or hostile. Poll must end, and return each
// request at most once.
func FuzzPoll(f *testing.F) {
	f.Add([]byte{}, uint8(1))
	valid := make([]byte, 3*entrySize)
	for i := range 3 { // a send, a receive, and one that is not outstanding
		e := valid[i*entrySize:]
		binary.LittleEndian.PutUint16(e, uint16(i%2+benchSends>>(i%2))) // of generation 1
		e[3] = 1 | byte(1+i%2)<<1
		binary.LittleEndian.PutUint16(e[4:], benchQPN)
	}
	f.Add(valid, uint8(1))
	f.Add(valid, uint8(3))
	f.Add(bytes.Repeat([]byte{0xff}, 2*benchEntries*entrySize), uint8(2))
	f.Fuzz(func(t *testing.T, content []byte, rings uint8) {
		n := int(rings)%3 + 1
		b := newBench(t, n)
		outstanding := map[uint64]bool{}
		for i := range uint64(benchRecvs) {
			outstanding[i], outstanding[100+i] = true, true
			if _, err := b.qp.PostRecv([]uverbs.RecvWR{{WRID: i, SGL: []uverbs.SGE{{Length: 1}}}}); err != nil {
				t.Fatal(err)
			}
			b.qp.OpInline(uverbs.OpSend, uverbs.Signaled, 100+i, 0, 0, []byte("x"))
			b.qp.UDAddr(b.ah, 1, 2)
			if err := b.qp.Submit(); err != nil {
				t.Fatal(err)
			}
		}
		copy(b.cq.mem.Bytes(), content)
		if len(content) > 0 && content[0]%4 == 0 {
			b.cq.Purge(b.qp)
		}
		wcs := make([]uverbs.WC, 5)
		for range 3 * n * benchEntries { // the entries do not change, so that there are up to two laps
			b.cq.Unpolled(b.qp)
			k, err := b.cq.Poll(wcs)
			for _, wc := range wcs[:k] {
				if !outstanding[wc.WRID] || wc.QPNum != benchQPN {
					t.Fatalf("completion %+v", wc)
				}
				delete(outstanding, wc.WRID)
			}
			if k == 0 && err == nil {
				if b.cq.Ready() {
					t.Fatal("Ready, and Poll returns nothing")
				}
				break
			}
		}
		sent, received := b.qp.SendsOutstanding(), b.qp.RecvsOutstanding()
		if sent+received != len(outstanding) {
			t.Fatalf("%d sends and %d receives are outstanding, want %d", sent, received, len(outstanding))
		}
	})
}

// Posts and polls allocate nothing.
func TestNothingAllocated(t *testing.T) {
	b := newBench(t, 1)
	wrs := []uverbs.SendWR{{WRID: 1, Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: []byte("x")}}
	recvs := []uverbs.RecvWR{{WRID: 2, SGL: []uverbs.SGE{{Length: 1}, {Length: 2}}}}
	wcs := make([]uverbs.WC, 4)
	lap := 0
	n := testing.AllocsPerRun(100, func() {
		if k, err := b.qp.PostRecv(recvs); k != 1 || err != nil {
			t.Fatal(err)
		}
		if _, err := b.qp.PostSend(wrs); err != uverbs.ErrNoAH { // the AH of a SendWR is one of uverbs
			t.Fatal(err)
		}
		b.qp.OpSGE(uverbs.OpRead, uverbs.Signaled, 3, 0, 0, uverbs.SGE{Length: 1})
		b.qp.UDAddr(b.ah, 1, 2)
		if err := b.qp.Submit(); err != nil {
			t.Fatal(err)
		}
		for i, flags := range []uint64{ofSend | hwRead<<cqeOpAt, ofReceive} {
			at := 2*lap + i
			id := uint64(b.qp.sq.base.Load()) | uint64(lap%benchSends)
			if i == 1 {
				id = uint64(b.qp.rq.base.Load()) | uint64(lap%benchRecvs)
			}
			v := id | flags | benchQPN<<numberAt
			if at/benchEntries%2 == 0 {
				v |= phase
			}
			b.cq.subs[0].ring[at%benchEntries][0] = v
		}
		lap++
		if k, err := b.cq.Poll(wcs); k != 2 || err != nil {
			t.Fatalf("Poll: %d, %v", k, err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
