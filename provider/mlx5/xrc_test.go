package mlx5

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/providertest"
	"github.com/goverbs/goverbs/uverbs"
)

// An xrc has an initiator and a target that are connected to each other, and SRQs of the domain.
type xrc struct {
	*desk
	x         *uverbs.XRCD
	sends     *uverbs.CQ // of the initiator
	initiator *uverbs.QP
	target    *uverbs.QP
}

func newXRC(t *testing.T, k kit) *xrc {
	t.Helper()
	d := &xrc{desk: newDesk(t, k)}
	d.x = good(d.c.OpenXRCD(nil, 0))(t)
	d.sends = good(d.c.CreateCQ(uverbs.CQConfig{Entries: 255}))(t)
	d.initiator = good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.XRCSend, SendCQ: d.sends, MaxSendWR: 16, MaxSendSGE: 3,
		MaxInline: 100}))(t)
	d.target = good(d.x.CreateQP(uverbs.QPConfig{Access: uverbs.RemoteWrite | uverbs.RemoteRead | uverbs.RemoteAtomic}))(t)
	check(t, d.initiator.Connect(good(d.target.Endpoint())(t)))
	check(t, d.target.Connect(good(d.initiator.Endpoint())(t)))
	return d
}

func (d *xrc) srq(t *testing.T, cq *uverbs.CQ) *uverbs.SRQ {
	t.Helper()
	return good(d.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 15, MaxSGE: 2, XRCD: d.x, CQ: cq}))(t)
}

// one returns the next completion of a CQ.
func one(t *testing.T, q *uverbs.CQ) uverbs.WC {
	t.Helper()
	var wcs [1]uverbs.WC
	for deadline := time.Now().Add(10 * time.Second); good(q.Poll(wcs[:]))(t) == 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("no completion")
		}
	}
	return wcs[0]
}

// An xrcPost posts a request with a list or with a builder.
type xrcPost func(t *testing.T, d *xrc, wr uverbs.SendWR)

var xrcPosts = map[string]xrcPost{
	"list": func(t *testing.T, d *xrc, wr uverbs.SendWR) {
		_, err := d.initiator.PostSend(wr)
		check(t, err)
	},
	"builder": func(t *testing.T, d *xrc, wr uverbs.SendWR) {
		b := d.initiator.StartSend()
		defer b.Abort()
		check(t, providertest.Add(&b, &wr))
		check(t, b.Submit())
	},
}

// TestXRCMessages checks that messages go to the SRQ that they name. The completions are in the SRQ's CQ and have the
// number of the target. The test wraps around the end of the ring, with SGEs and inline data.
func TestXRCMessages(t *testing.T) {
	forKits(t, func(t *testing.T, k kit) {
		for name, post := range xrcPosts {
			t.Run(name, func(t *testing.T) { xrcMessages(t, newXRC(t, k), post) })
		}
	})
}

func xrcMessages(t *testing.T, d *xrc, post xrcPost) {
	var cqs [2]*uverbs.CQ
	var srqs [2]*uverbs.SRQ
	for i := range srqs {
		cqs[i] = good(d.c.CreateCQ(uverbs.CQConfig{Entries: 31}))(t)
		srqs[i] = d.srq(t, cqs[i])
	}
	if srqs[0].SRQN() == srqs[1].SRQN() || srqs[0].SRQN() == 0 {
		t.Fatalf("SRQs %d and %d", srqs[0].SRQN(), srqs[1].SRQN())
	}
	for i := range 120 {
		to := i / 2 % 2
		n := i%99 + 1
		for j := range n {
			d.mr.Bytes()[j] = byte(i + j)
		}
		_, err := srqs[to].PostRecv(uverbs.RecvWR{WRID: uint64(1000 + i),
			SGL: []uverbs.SGE{d.mr.SGE(4096, 60), d.mr.SGE(8192, 200)}})
		check(t, err)
		wr := uverbs.SendWR{WRID: uint64(i), Opcode: uverbs.OpSendImm, Flags: uverbs.Signaled, Imm: uint32(i) * 77,
			RemoteSRQN: srqs[to].SRQN()}
		want := uverbs.WC{WRID: uint64(1000 + i), QPNum: d.target.QPN(), SrcQP: d.initiator.QPN(), ByteLen: uint32(n),
			Imm: uint32(i) * 77, Opcode: uverbs.WCRecv, Flags: uverbs.WCWithImm}
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
		post(t, d, wr)
		if wc := one(t, d.sends); wc.WRID != uint64(i) || wc.Err() != nil || wc.QPNum != d.initiator.QPN() ||
			wc.Opcode != uverbs.WCSend {
			t.Fatalf("message %d completes as %+v", i, wc)
		}
		wc := one(t, cqs[to])
		wc.Timestamp = 0
		if want.SrcQP = wc.SrcQP; wc != want {
			t.Fatalf("message %d arrives as\n%+v, want\n%+v", i, wc, want)
		}
		got := append(bytes.Clone(d.mr.Bytes()[4096:][:min(n, 60)]), d.mr.Bytes()[8192:][:max(n-60, 0)]...)
		if !bytes.Equal(got, d.mr.Bytes()[:n]) {
			t.Fatalf("message %d of %d bytes is %x", i, n, got)
		}
	}
}

// TestXRCOperations checks that XRC supports all operations of RC, with the segment that names an SRQ before the
// others, at every place of the ring.
func TestXRCOperations(t *testing.T) {
	for name, post := range xrcPosts {
		t.Run(name, func(t *testing.T) {
			d := newXRC(t, standard())
			cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 31}))(t)
			srq := d.srq(t, cq)
			m, key := d.mr.Bytes(), d.mr.RKey()
			at := func(off int) uint64 { return d.mr.Addr() + uint64(off) }
			for i := range 40 {
				copy(m, fmt.Sprintf("message %d of the test", i))
				request := func(op uverbs.Opcode, sgl ...uverbs.SGE) uverbs.SendWR {
					return uverbs.SendWR{WRID: 5, Opcode: op, Flags: uverbs.Signaled, SGL: sgl, RemoteAddr: at(1024), RKey: key,
						RemoteSRQN: srq.SRQN()}
				}
				do := func(wr uverbs.SendWR, as uverbs.WCOpcode, n uint32) {
					t.Helper()
					post(t, d, wr)
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
				_, err := srq.PostRecv(uverbs.RecvWR{WRID: uint64(i)})
				check(t, err)
				write := request(uverbs.OpWriteImm)
				write.Inline, write.Imm = m[:30], 99
				do(write, uverbs.WCWrite, 0)
				if wc := one(t, cq); wc.Opcode != uverbs.WCRecvRDMAImm || wc.Imm != 99 || wc.WRID != uint64(i) || wc.ByteLen != 30 {
					t.Fatalf("%d: WRITE_IMM arrives as %+v", i, wc)
				}
			}
		})
	}
}

// TestXRCRefusals checks that invalid requests are errors, and that no part of them is posted.
func TestXRCRefusals(t *testing.T) {
	d := newXRC(t, standard())
	refused := func(want error, build func(b *uverbs.SendBatch)) {
		t.Helper()
		b := d.initiator.StartSend()
		build(&b)
		if err := b.Submit(); err != want {
			t.Errorf("Submit: %v, want %v", err, want)
		}
	}
	refused(uverbs.ErrNoSRQN, func(b *uverbs.SendBatch) { b.Send(1, 0) })
	refused(uverbs.ErrNoSRQN, func(b *uverbs.SendBatch) { b.Send(1, 0); b.Send(2, 0); b.RemoteSRQ(3) })
	refused(uverbs.ErrNoSRQN, func(b *uverbs.SendBatch) { b.FetchAdd(1, 0, 0, 0, 1); b.SGE(d.mr.SGE(0, 8)) })
	refused(uverbs.ErrAtomicSize, func(b *uverbs.SendBatch) { b.FetchAdd(1, 0, 0, 0, 1); b.RemoteSRQ(3) })
	refused(uverbs.ErrMalformed, func(b *uverbs.SendBatch) { b.RemoteSRQ(3) })
	refused(uverbs.ErrMalformed, func(b *uverbs.SendBatch) { b.LocalInv(1, 0, 5); b.RemoteSRQ(3) })
	refused(uverbs.ErrOpNotSupported, func(b *uverbs.SendBatch) { b.Flush(1, 0, 0, 0, 0, 0, 0) })
	refused(uverbs.ErrQueueFull, func(b *uverbs.SendBatch) {
		for range d.initiator.Cap().MaxSendWR + 1 {
			b.Send(1, 0)
			b.RemoteSRQ(3)
		}
	})
	if n := d.initiator.SendsOutstanding(); n != 0 {
		t.Errorf("%d requests were posted", n)
	}
	if _, err := d.target.PostSend(uverbs.SendWR{}); err != uverbs.ErrNoQueue {
		t.Errorf("PostSend of a target: %v", err)
	}
}

// TestXRCPurge checks that the completions of a closed XRC SRQ are removed from its CQ. A message for an SRQ that does
// not exist fails at its sender.
func TestXRCPurge(t *testing.T) {
	forKits(t, func(t *testing.T, k kit) {
		d := newXRC(t, k)
		cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 31}))(t)
		stays := d.srq(t, cq)
		for lap := range 10 {
			goes := d.srq(t, cq)
			for i, s := range []*uverbs.SRQ{goes, stays, goes, goes, stays} {
				_, err := s.PostRecv(uverbs.RecvWR{WRID: uint64(i)})
				check(t, err)
				_, err = d.initiator.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, RemoteSRQN: s.SRQN()})
				check(t, err)
				one(t, d.sends)
			}
			if lap%2 == 0 { // one of them has been polled
				if wc := one(t, cq); wc.WRID != 0 {
					t.Fatalf("%+v", wc)
				}
			}
			check(t, goes.Close())
			poll(t, cq, 1, 4)
		}
		gone := d.srq(t, cq)
		n := gone.SRQN()
		check(t, gone.Close())
		_, err := d.initiator.PostSend(uverbs.SendWR{WRID: 9, Opcode: uverbs.OpSend, RemoteSRQN: n})
		check(t, err)
		if wc := one(t, d.sends); wc.Err() != uverbs.WCRemOpErr || wc.WRID != 9 {
			t.Errorf("a message for an SRQ that is gone completes as %+v", wc)
		}
	})
}

// TestXRCInitiatorPurge checks that closing an initiator removes its completions and no others.
func TestXRCInitiatorPurge(t *testing.T) {
	d := newXRC(t, standard())
	srq := d.srq(t, d.sends)
	_, err := srq.PostRecv(uverbs.RecvWR{WRID: 1})
	check(t, err)
	_, err = d.initiator.PostSend(uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
		RemoteSRQN: srq.SRQN()})
	check(t, err)
	check(t, d.initiator.Close())
	check(t, d.target.Close())
	poll(t, d.sends, 1)
}
