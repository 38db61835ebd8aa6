package bnxt_re

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
	srq *srq // nil: the QP has a receive queue
	ah  *driver.AH
}

const (
	benchQPN     = 0x102
	benchSends   = 16
	benchRecvs   = 8
	benchEntries = 32
)

func newBench(tb testing.TB, typ uverbs.QPType, variable, shared bool) *bench {
	tb.Helper()
	c := &deviceContext{variable: variable, msn: variable}
	c.attr = uapi.IbUverbsQueryDeviceResp{MaxQpWr: 64, MaxSge: 6, MaxSrqWr: 64, MaxSrqSge: 6, AtomicCap: 1}
	c.limits.MaxCqd = 1 << 10
	release := func(m *provider.Mapping) {
		tb.Cleanup(func() {
			if err := m.Unmap(); err != nil {
				tb.Error(err)
			}
		})
	}
	registers, err := provider.Anon(4096)
	if err != nil {
		tb.Fatal(err)
	}
	release(registers)
	c.bell.at = &wordsOf(registers, 0, 1)[0]
	b := &bench{ctx: c, ah: new(driver.AH)}
	q, _, err := c.CreateCQ(&driver.CQConfig{Entries: benchEntries / 2},
		func(_, out []byte, _ ...driver.Attr) (driver.Reply, error) {
			copy(out[8:], []byte{1}) // the phase
			return driver.Reply{}, nil
		})
	if err != nil {
		tb.Fatal(err)
	}
	b.cq = q.(*cq)
	release(b.cq.mem)
	pd := new(driver.PD)
	b.ah.Open(pd)
	env := provider.QPEnv{PD: pd, SendCQ: b.cq, RecvCQ: b.cq}
	if shared {
		s, _, err := c.CreateSRQ(&driver.SRQConfig{MaxWR: benchRecvs, MaxSGE: 2},
			func(_, _ []byte) (driver.Reply, error) { return driver.Reply{}, nil })
		if err != nil {
			tb.Fatal(err)
		}
		b.srq = s.(*srq)
		release(b.srq.mem)
		env.SRQ = s
	}
	p, _, err := c.CreateQP(&uverbs.QPConfig{Type: typ, MaxSendWR: benchSends, MaxRecvWR: benchRecvs, MaxSendSGE: 2,
		MaxRecvSGE: 2, MaxInline: 32}, env, func(_, out []byte) (driver.Reply, error) {
		binary.LittleEndian.PutUint32(out, benchQPN)
		return driver.Reply{Number: benchQPN}, nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	b.qp = p.(*qp)
	release(b.qp.mem[0])
	if !shared {
		release(b.qp.mem[1])
	}
	return b
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
		b.qp.OpInline(uverbs.OpSend, flags, 100+i, 0, 0, []byte("x"))
		if b.qp.sq.typ == uverbs.UD {
			b.qp.sq.udMTU = 1024
			b.qp.UDAddr(b.ah, 1, 2)
		}
		if err := b.qp.Submit(); err != nil {
			t.Fatal(err)
		}
	}
	post := b.qp.PostRecv
	if b.srq != nil {
		post = b.srq.PostRecv
	}
	for i := range uint64(benchRecvs) {
		outstanding[i] = true
		if _, err := post([]uverbs.RecvWR{{WRID: i, SGL: []uverbs.SGE{{Length: 1}}}}); err != nil {
			t.Fatal(err)
		}
	}
	return outstanding
}

// entry returns an entry of the bench's QP.
func (b *bench) entry(kind, status byte, index uint16, tag uint32) (e [entrySize]byte) {
	at := 0
	if kind == typeRecvRC || kind == typeRecvUD {
		at = 8
	} else {
		binary.LittleEndian.PutUint16(e[8:], index)
	}
	binary.LittleEndian.PutUint64(e[at:], b.qp.handle)
	e[24], e[25] = 1|kind<<1, status
	binary.LittleEndian.PutUint32(e[28:], tag)
	return e
}

// FuzzPoll polls entries with any content, of a device that is wrong or hostile. Poll must end, and return each
// request at most once.
func FuzzPoll(f *testing.F) {
	f.Add([]byte{}, uint8(0))
	f.Add(bytes.Repeat([]byte{0xff}, 2*benchEntries*entrySize), uint8(2))
	b := newBench(f, uverbs.RC, false, false)
	var ok, failed, ended []byte
	for i := range uint16(4) {
		s, r := b.entry(typeSend, 0, 2*i+2, 0), b.entry(typeRecvRC, 0, 0, uint32(i))
		ok = append(append(ok, s[:]...), r[:]...)
		s, r = b.entry(typeSend, byte(i), 3*i+3, 0), b.entry(typeRecvRC, byte(2*i), 0, uint32(3-i))
		failed = append(append(failed, s[:]...), r[:]...)
		s, r = b.entry(typeTerm, 0, i, 0), b.entry(typeSend, 0, 2, 0)
		ended = append(append(ended, s[:]...), r[:]...)
	}
	for mode := range uint8(16) {
		f.Add(ok, mode)
		f.Add(failed, mode)
		f.Add(ended, mode)
	}
	f.Fuzz(func(t *testing.T, content []byte, mode uint8) {
		typ := uverbs.RC
		if mode&1 != 0 {
			typ = uverbs.UD
		}
		b := newBench(t, typ, mode&2 != 0, mode&4 != 0)
		outstanding := b.post(t)
		copy(b.cq.mem.Bytes()[:len(b.cq.ring)*entrySize], content)
		if mode&8 != 0 {
			b.cq.Purge(b.qp)
		}
		wcs := make([]uverbs.WC, 5)
		for range 3 * benchEntries { // the entries do not change, so that there are up to two laps
			b.cq.Unpolled(b.qp)
			k, err := b.cq.Poll(wcs)
			for _, wc := range wcs[:k] {
				if !outstanding[wc.WRID] || wc.QPNum != benchQPN {
					t.Fatalf("completion %+v", wc)
				}
				delete(outstanding, wc.WRID)
			}
			if k == 0 && err == nil && !b.cq.Ready() {
				break
			}
		}
		if sent, received := b.qp.SendsOutstanding(), b.qp.RecvsOutstanding(); sent > benchSends || received > benchRecvs {
			t.Fatalf("%d sends and %d receives are outstanding", sent, received)
		}
		b.qp.ctx.qps.Remove(b.qp.handle)
	})
}

// Posts and polls allocate nothing.
func TestNothingAllocated(t *testing.T) {
	b := newBench(t, uverbs.RC, false, false)
	wrs := []uverbs.SendWR{{WRID: 1, Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: []byte("x")}}
	recvs := []uverbs.RecvWR{{WRID: 2, SGL: []uverbs.SGE{{Length: 1}, {Length: 2}}}}
	wcs := make([]uverbs.WC, 4)
	lap := 0
	n := testing.AllocsPerRun(100, func() {
		if k, err := b.qp.PostRecv(recvs); k != 1 || err != nil {
			t.Fatal(err)
		}
		if k, err := b.qp.PostSend(wrs); k != 1 || err != nil {
			t.Fatal(err)
		}
		b.qp.OpSGE(uverbs.OpRead, uverbs.Signaled, 3, 0, 0, uverbs.SGE{Length: 1})
		if err := b.qp.Submit(); err != nil {
			t.Fatal(err)
		}
		size := b.qp.sq.size
		b.put(b.entry(typeSend, 0, uint16(uint32(2*lap+2)%size), 0), 2*lap)
		b.put(b.entry(typeRecvRC, 0, 0, uint32(lap)%b.qp.rq.size), 2*lap+1)
		lap++
		if k, err := b.cq.Poll(wcs); k != 3 || err != nil {
			t.Fatalf("Poll: %d, %v", k, err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// put writes entry number i.
func (b *bench) put(e [entrySize]byte, i int) {
	n := len(b.cq.ring)
	if i/n%2 == 1 {
		e[24] &^= 1
	}
	copy(b.cq.mem.Bytes()[i%n*entrySize:], e[:])
}
