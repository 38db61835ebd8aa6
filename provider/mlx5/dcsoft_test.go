package mlx5

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/sim/providertest"
	"github.com/goverbs/goverbs/uverbs"
)

// A star has a DCI and two DCTs, each with an SRQ and a CQ.
type star struct {
	*desk
	sends *uverbs.CQ // of the DCI
	dci   *uverbs.QP
	dcts  [2]*uverbs.QP
	srqs  [2]*uverbs.SRQ
	cqs   [2]*uverbs.CQ
	ah    *uverbs.AH
}

const starKey = 0xffeeddccbbaa9988

// starKeyOf returns the access key of a DCT.
func starKeyOf(to int) uint64 { return starKey + uint64(to) }

func newStar(t *testing.T, k kit, streams uverbs.DCIStreams) *star {
	t.Helper()
	d := &star{desk: newDesk(t, k)}
	d.sends = good(d.c.CreateCQ(uverbs.CQConfig{Entries: 255}))(t)
	d.dci = good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCI, SendCQ: d.sends, MaxSendWR: 16, MaxSendSGE: 3,
		MaxInline: 100, DCIStreams: streams}))(t)
	check(t, d.dci.Ready())
	for i := range d.dcts {
		d.cqs[i] = good(d.c.CreateCQ(uverbs.CQConfig{Entries: 31}))(t)
		d.srqs[i] = good(d.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 15, MaxSGE: 2}))(t)
		d.dcts[i] = d.dct(t, i)
	}
	d.ah = good(d.pd.CreateAH(good(d.dci.AHAttr(good(d.dcts[0].Endpoint())(t)))(t)))(t)
	return d
}

func (d *star) dct(t *testing.T, i int) *uverbs.QP {
	t.Helper()
	q := good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCT, RecvCQ: d.cqs[i], SRQ: d.srqs[i], DCKey: starKeyOf(i),
		Access: uverbs.RemoteWrite | uverbs.RemoteRead | uverbs.RemoteAtomic}))(t)
	check(t, q.Ready())
	return q
}

// to sets the destination of a request.
func (d *star) to(i int, wr *uverbs.SendWR) {
	wr.AH, wr.QPN, wr.DCKey = d.ah, d.dcts[i].QPN(), starKeyOf(i)
}

// dcPosts post a request with a list or with a builder.
var dcPosts = map[string]func(t *testing.T, q *uverbs.QP, wr uverbs.SendWR){
	"list": func(t *testing.T, q *uverbs.QP, wr uverbs.SendWR) {
		t.Helper()
		_, err := q.PostSend(wr)
		check(t, err)
	},
	"builder": func(t *testing.T, q *uverbs.QP, wr uverbs.SendWR) {
		t.Helper()
		b := q.StartSend()
		defer b.Abort()
		check(t, providertest.Add(&b, &wr))
		check(t, b.Submit())
	},
}

// TestDCMessages checks that messages go to the DCT that they name, and that the completions are in its CQ and have
// its number. The test wraps around the end of the ring, with SGEs and inline data.
func TestDCMessages(t *testing.T) {
	forKits(t, func(t *testing.T, k kit) {
		for name, post := range dcPosts {
			t.Run(name, func(t *testing.T) { dcMessages(t, newStar(t, k, uverbs.DCIStreams{}), post) })
		}
	})
}

func dcMessages(t *testing.T, d *star, post func(*testing.T, *uverbs.QP, uverbs.SendWR)) {
	if d.dcts[0].QPN() == d.dcts[1].QPN() || d.dcts[0].QPN() == 0 {
		t.Fatalf("DCTs %d and %d", d.dcts[0].QPN(), d.dcts[1].QPN())
	}
	for i := range 120 {
		to, n := i/2%2, i%99+1
		for j := range n {
			d.mr.Bytes()[j] = byte(i + j)
		}
		_, err := d.srqs[to].PostRecv(uverbs.RecvWR{WRID: uint64(1000 + i),
			SGL: []uverbs.SGE{d.mr.SGE(4096, 60), d.mr.SGE(8192, 200)}})
		check(t, err)
		wr := uverbs.SendWR{WRID: uint64(i), Opcode: uverbs.OpSendImm, Flags: uverbs.Signaled, Imm: uint32(i) * 77}
		d.to(to, &wr)
		want := uverbs.WC{WRID: uint64(1000 + i), QPNum: d.dcts[to].QPN(), ByteLen: uint32(n), Imm: uint32(i) * 77,
			Opcode: uverbs.WCRecv, Flags: uverbs.WCWithImm}
		if i%3 == 0 {
			wr.Opcode, wr.Imm, want.Imm, want.Flags = uverbs.OpSend, 0, 0, 0
		}
		switch i % 4 {
		case 0:
			wr.Inline = d.mr.Bytes()[:n]
		case 1:
			wr.SGL = []uverbs.SGE{d.mr.SGE(0, n)}
		default:
			wr.SGL = []uverbs.SGE{d.mr.SGE(0, n/2), d.mr.SGE(n/2, n-n/2)}
		}
		post(t, d.dci, wr)
		if wc := one(t, d.sends); wc.WRID != uint64(i) || wc.Err() != nil || wc.QPNum != d.dci.QPN() ||
			wc.Opcode != uverbs.WCSend {
			t.Fatalf("message %d completes as %+v", i, wc)
		}
		wc := one(t, d.cqs[to])
		if wc.SrcQP != d.dci.QPN() {
			t.Fatalf("message %d is from QP %#x, want %#x", i, wc.SrcQP, d.dci.QPN())
		}
		wc.Timestamp, want.SrcQP, want.SLID, want.SL = 0, wc.SrcQP, wc.SLID, wc.SL
		if wc.Flags &^= uverbs.WCGRH; wc != want {
			t.Fatalf("message %d arrives as\n%+v, want\n%+v", i, wc, want)
		}
		got := append(bytes.Clone(d.mr.Bytes()[4096:][:min(n, 60)]), d.mr.Bytes()[8192:][:max(n-60, 0)]...)
		if !bytes.Equal(got, d.mr.Bytes()[:n]) {
			t.Fatalf("message %d of %d bytes is %x", i, n, got)
		}
	}
}

// TestDCOperations checks that DC supports all operations of RC, at every place of the ring.
func TestDCOperations(t *testing.T) {
	for name, post := range dcPosts {
		t.Run(name, func(t *testing.T) {
			d := newStar(t, standard(), uverbs.DCIStreams{})
			m, key := d.mr.Bytes(), d.mr.RKey()
			at := func(off int) uint64 { return d.mr.Addr() + uint64(off) }
			for i := range 40 {
				to := i % 2
				copy(m, fmt.Sprintf("message %d of the test", i))
				request := func(op uverbs.Opcode, sgl ...uverbs.SGE) uverbs.SendWR {
					wr := uverbs.SendWR{WRID: 5, Opcode: op, Flags: uverbs.Signaled, SGL: sgl, RemoteAddr: at(1024), RKey: key}
					d.to(to, &wr)
					return wr
				}
				do := func(wr uverbs.SendWR, as uverbs.WCOpcode, n uint32) {
					t.Helper()
					post(t, d.dci, wr)
					if wc := one(t, d.sends); wc.Err() != nil || wc.Opcode != as || wc.ByteLen != n || wc.WRID != 5 {
						t.Fatalf("%d: %v completes as %+v", i, wr.Opcode, wc)
					}
				}
				do(request(uverbs.OpWrite, d.mr.SGE(0, 10), d.mr.SGE(10, 10)), uverbs.WCWrite, 0)
				do(request(uverbs.OpRead, d.mr.SGE(2048, 20)), uverbs.WCRead, 20)
				if !bytes.Equal(m[2048:][:20], m[:20]) {
					t.Fatalf("%d: written and read back: %q", i, m[2048:][:20])
				}
				binary.NativeEndian.PutUint64(m[1024:], uint64(i))
				add := request(uverbs.OpFetchAdd, d.mr.SGE(64, 8))
				add.CompareAdd = 100
				do(add, uverbs.WCFetchAdd, 8)
				swap := request(uverbs.OpCompareSwap, d.mr.SGE(72, 8))
				swap.CompareAdd, swap.Swap = uint64(i+100), 7
				do(swap, uverbs.WCCompareSwap, 8)
				if a, b, c := binary.NativeEndian.Uint64(m[64:]), binary.NativeEndian.Uint64(m[72:]),
					binary.NativeEndian.Uint64(m[1024:]); a != uint64(i) || b != uint64(i+100) || c != 7 {
					t.Fatalf("%d: atomics found %d and %d and left %d", i, a, b, c)
				}
				_, err := d.srqs[to].PostRecv(uverbs.RecvWR{WRID: uint64(i)})
				check(t, err)
				write := request(uverbs.OpWriteImm)
				write.Inline, write.Imm = m[:30], 99
				do(write, uverbs.WCWrite, 0)
				if wc := one(t, d.cqs[to]); wc.Opcode != uverbs.WCRecvRDMAImm || wc.Imm != 99 || wc.WRID != uint64(i) ||
					wc.ByteLen != 30 {
					t.Fatalf("%d: WRITE_IMM arrives as %+v", i, wc)
				}
			}
		})
	}
}

// TestDCStreams checks that a failed request moves a DCI to ERR, that with streams only so many failed ones do, and
// that RESET and Ready make it usable again.
func TestDCStreams(t *testing.T) {
	for name, x := range map[string]struct {
		streams uverbs.DCIStreams
		fail    int // requests that fail until the DCI is in ERR
	}{
		"none":  {uverbs.DCIStreams{}, 1},
		"four":  {uverbs.DCIStreams{Concurrent: 8, Errored: 4}, 4},
		"eight": {uverbs.DCIStreams{Concurrent: 4, Errored: 8}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			d := newStar(t, standard(), x.streams)
			write := func(stream int, rkey uint32) uverbs.WC {
				wr := uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, SGL: []uverbs.SGE{d.mr.SGE(0, 8)},
					RemoteAddr: d.mr.Addr(), RKey: rkey}
				if x.streams.Concurrent > 0 {
					wr.DCStream = uint16(stream)
				}
				d.to(0, &wr)
				_, err := d.dci.PostSend(wr)
				check(t, err)
				return one(t, d.sends)
			}
			state := func() uverbs.QPState { return good(d.dci.Query(uverbs.MaskState))(t).State }
			for range 2 {
				for i := range x.fail {
					if wc := write(100+i, d.mr.RKey()); wc.Err() != nil || state() != uverbs.StateRTS {
						t.Fatalf("before error %d, the DCI is in %v, and a WRITE completes with %v", i, state(), wc.Err())
					}
					if wc := write(i, d.mr.RKey()^0xff00); wc.Status != uverbs.WCRemAccessErr {
						t.Fatalf("a WRITE with a wrong key: %v", wc.Err())
					}
				}
				if state() != uverbs.StateErr || write(100, d.mr.RKey()).Status != uverbs.WCWRFlushErr {
					t.Errorf("after %d errors the DCI is in %v", x.fail, state())
				}
				check(t, d.dci.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState))
				check(t, d.dci.Ready())
			}
		})
	}
}

// TestDCLife checks that unpolled completions of a DCT disappear with it, that receives that they used can be posted
// again, and that a DCT that is closed ends requests that are for it.
func TestDCLife(t *testing.T) {
	for _, version := range []uint8{0, 1} {
		k := standard()
		k.cqeVersion = version
		d := newStar(t, k, uverbs.DCIStreams{})
		send := func(to int) {
			t.Helper()
			_, err := d.srqs[0].PostRecv(uverbs.RecvWR{WRID: 9})
			check(t, err)
			wr := uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled}
			d.to(to, &wr)
			_, err = d.dci.PostSend(wr)
			check(t, err)
			if wc := one(t, d.sends); wc.Err() != nil {
				t.Fatal(wc.Err())
			}
		}
		d.cqs[1], d.srqs[1] = d.cqs[0], d.srqs[0]
		check(t, d.dcts[1].Close())
		d.dcts[1] = d.dct(t, 1)
		for range 20 {
			send(0)
			send(1)
			check(t, d.dcts[1].Close())
			d.dcts[1] = d.dct(t, 1)
			if wc := one(t, d.cqs[0]); wc.QPNum != d.dcts[0].QPN() {
				t.Fatalf("version %d: a completion of QP %#x, the DCT is %#x", version, wc.QPNum, d.dcts[0].QPN())
			}
			if n := good(d.cqs[0].Poll(make([]uverbs.WC, 4)))(t); n != 0 {
				t.Fatalf("version %d: %d completions of a closed DCT", version, n)
			}
		}
		wr := uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled}
		d.to(1, &wr)
		check(t, d.dcts[1].Close())
		_, err := d.dci.PostSend(wr)
		check(t, err)
		if wc := one(t, d.sends); wc.Status != uverbs.WCRetryExcErr {
			t.Errorf("version %d: a message for a DCT that is gone: %v", version, wc.Err())
		}
		d.s.quiet()
	}
}

// TestEveryPlaceDC posts requests on a DCI at every place of its ring.
func TestEveryPlaceDC(t *testing.T) {
	d := newStar(t, standard(), uverbs.DCIStreams{Concurrent: 2})
	p := stand(t, d.desk, d.dci)
	p.cq = d.cqs[1]
	p.recv = func() {
		_, err := d.srqs[1].PostRecv(uverbs.RecvWR{WRID: 7, SGL: []uverbs.SGE{d.mr.SGE(recvArea, 0x1000)}})
		check(t, err)
	}
	p.lead = func(wr *uverbs.SendWR) []byte { return dcLead(provider.AHOf(wr.AH), wr.QPN, wr.DCKey) }
	p.fill = func(wr *uverbs.SendWR) { d.to(1, wr) }
	p.around(func() {
		for _, s := range someShapes {
			for _, op := range []uverbs.Opcode{uverbs.OpSend, uverbs.OpSendImm, uverbs.OpWrite, uverbs.OpWriteImm} {
				p.message(op, s, nil)
			}
		}
	})
}
