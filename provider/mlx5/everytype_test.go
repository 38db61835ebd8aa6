package mlx5

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/sim/providertest"
	"github.com/goverbs/goverbs/uverbs"
)

// A place is a queue pair whose requests are compared with the oracle's, byte by byte in the
// ring, and then executed.
type place struct {
	*testing.T
	d    *desk
	q    *uverbs.QP
	sq   *sendQueue
	o    oracle
	fill func(wr *uverbs.SendWR)        // sets the destination of a message
	lead func(wr *uverbs.SendWR) []byte // the segments after the first
	recv func()                         // posts a receive into recvArea
	cq   *uverbs.CQ                     // of the receives
	head int                            // bytes before a message
	laps map[string]map[uint32]bool
	n    int
}

// stand returns the place of a queue pair that receives its own messages.
func stand(t *testing.T, d *desk, q *uverbs.QP) *place {
	p := &place{T: t, d: d, q: q, o: oracle{qpn: q.QPN()}, cq: q.RecvCQ(), laps: map[string]map[uint32]bool{}}
	for i := range uint32(64) {
		if x := d.s.ctx.targets.find(i); x != nil && x.sq != nil && x.sq.qpn == uint64(q.QPN())<<8 {
			p.sq = x.sq
		}
	}
	p.fill, p.lead = func(*uverbs.SendWR) {}, func(*uverbs.SendWR) []byte { return nil }
	p.recv = func() {
		_, err := q.PostRecv(uverbs.RecvWR{WRID: 7, SGL: []uverbs.SGE{d.mr.SGE(recvArea, 0x1000)}})
		check(t, err)
	}
	return p
}

// post posts a request, alternately with a list and with a builder, and compares it.
func (p *place) post(wr uverbs.SendWR, as *uverbs.SendWR, bind *driver.Bind) {
	p.Helper()
	cur := p.sq.cur
	name := wr.Opcode.String()
	if p.laps[name] == nil {
		p.laps[name] = map[uint32]bool{}
	}
	p.laps[name][cur&p.sq.mask] = true
	if p.n++; p.n%3 == 0 {
		b := p.q.StartSend()
		check(p.T, providertest.Add(&b, &wr))
		check(p.T, b.Submit())
	} else {
		_, err := p.q.PostSend(wr)
		check(p.T, err)
	}
	want := p.o.wqe(cur, as, p.lead(&wr), bind)
	got := make([]byte, len(want))
	for i := range got {
		got[i] = p.sq.bytes[(int(cur)*blockSize+i)&(len(p.sq.bytes)-1)]
	}
	if !bytes.Equal(got, want) {
		p.Fatalf("%+v at block %d:\n got %x\nwant %x", wr, cur&p.sq.mask, got, want)
	}
	if wc := one(p.T, p.q.SendCQ()); wc.Err() != nil || wc.WRID != wr.WRID {
		p.Fatalf("%+v completes as %+v", wr, wc)
	}
}

// message posts a request with data and checks what arrives.
func (p *place) message(op uverbs.Opcode, s shape, fill func(wr *uverbs.SendWR)) {
	p.Helper()
	mem := p.d.mr.Bytes()
	for i := range 0x1000 {
		mem[i] = byte(i*7 + p.n)
	}
	clear(mem[remoteArea:])
	x := trial{d: p.d}
	wr := uverbs.SendWR{WRID: uint64(p.n), Opcode: op, Flags: uverbs.Signaled, SGL: x.sges(s),
		RemoteAddr: p.d.mr.Addr() + remoteArea, RKey: p.d.mr.RKey(), Imm: uint32(p.n)}
	if s.inline > 0 {
		wr.Inline = mem[sourceArea:][:s.inline]
	}
	p.fill(&wr)
	if fill != nil {
		fill(&wr)
	}
	arrives := op != uverbs.OpWrite
	if arrives {
		p.recv()
	}
	p.post(wr, &wr, nil)
	at := remoteArea
	if arrives {
		if wc := one(p.T, p.cq); wc.Err() != nil || int(wc.ByteLen) != p.head+s.length() || wc.Flags&uverbs.WCWithImm != 0 &&
			wc.Imm != wr.Imm {
			p.Fatalf("%+v arrives as %+v", wr, wc)
		}
	}
	if op != uverbs.OpWrite && op != uverbs.OpWriteImm {
		at = recvArea + p.head
	}
	p.d.s.loop.Run(func() {}) // on UC, the completion of a WRITE does not mean that the data have arrived
	if got, want := mem[at:][:s.length()], x.gathered(s); !bytes.Equal(got, want) {
		p.Fatalf("%+v arrives as %x, want %x", wr, got, want)
	}
}

var someShapes = []shape{{0, 0, 0}, {0, 1, 64}, {0, 2, 33}, {12, 0, 0}, {28, 0, 0}}

// around repeats round until every operation was posted at every block.
func (p *place) around(round func()) {
	p.Helper()
	blocks := int(p.sq.mask) + 1
	for range 4 * blocks {
		first := p.sq.cur
		round()
		if (p.sq.cur-first)%2 == 0 {
			p.message(uverbs.OpSend, shape{}, nil)
		}
		done := true
		for _, at := range p.laps {
			done = done && len(at) == blocks
		}
		if done {
			p.d.s.quiet()
			return
		}
	}
	p.Errorf("of %d blocks, requests begin at %v", blocks, p.laps)
}

// TestEveryPlaceConnected posts requests on UC queue pairs, and on RC queue pairs of a thread domain, at every place.
func TestEveryPlaceConnected(t *testing.T) {
	for name, typ := range map[string]uverbs.QPType{"UC": uverbs.UC, "thread domain": uverbs.RC} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, standard())
			own := *d
			cfg := uverbs.CQConfig{Entries: 31}
			if typ == uverbs.RC {
				own.pd = good(d.pd.AllocParentDomain(uverbs.ParentDomainConfig{TD: good(d.c.AllocTD())(t)}))(t)
				cfg.PD = own.pd
			}
			p := stand(t, d, own.loop(t, uverbs.QPConfig{Type: typ, SendCQ: good(d.c.CreateCQ(cfg))(t),
				RecvCQ: good(d.c.CreateCQ(cfg))(t), MaxSendSGE: 2}))
			p.around(func() {
				for _, s := range someShapes {
					for _, op := range []uverbs.Opcode{uverbs.OpSend, uverbs.OpSendImm, uverbs.OpWrite, uverbs.OpWriteImm} {
						p.message(op, s, nil)
					}
				}
			})
		})
	}
}

// TestEveryPlaceWindows binds windows, and invalidates them locally and by a message, at every place. The request that
// follows has the fence.
func TestEveryPlaceWindows(t *testing.T) {
	d := newDesk(t, standard())
	cfg := uverbs.CQConfig{Entries: 31}
	p := stand(t, d, d.loop(t, uverbs.QPConfig{SendCQ: good(d.c.CreateCQ(cfg))(t), RecvCQ: good(d.c.CreateCQ(cfg))(t),
		MaxSendSGE: 2}))
	mw := good(d.pd.AllocMW(uverbs.MWType2))(t)
	const access = uverbs.RemoteWrite | uverbs.RemoteRead
	bind := func() {
		key := uverbs.IncRKey(mw.RKey())
		r := uverbs.MWRange{MR: d.mr, Off: remoteArea, Len: 4096, Access: access}
		wr := uverbs.SendWR{WRID: 1, Opcode: uverbs.OpBindMW, Flags: uverbs.Signaled,
			Bind: &uverbs.MWBind{MW: mw, RKey: key, MWRange: r}}
		p.post(wr, &wr, &driver.Bind{Type2: true, Addr: d.mr.Addr() + remoteArea, Length: 4096, LKey: d.mr.LKey(),
			MWRKey: mw.RKey(), RKey: key, Access: uint32(access)})
		mw.SetRKey(key)
	}
	p.around(func() {
		bind()
		p.message(uverbs.OpWrite, shape{0, 1, 64}, func(wr *uverbs.SendWR) { wr.RKey = mw.RKey() })
		wr := uverbs.SendWR{WRID: 2, Opcode: uverbs.OpLocalInv, Flags: uverbs.Signaled, InvalidateRKey: mw.RKey()}
		p.post(wr, &wr, nil)
		bind()
		for _, s := range someShapes {
			p.message(uverbs.OpSendInv, s, func(wr *uverbs.SendWR) { wr.InvalidateRKey = mw.RKey() })
			bind()
		}
		p.message(uverbs.OpSendInv, shape{28, 0, 0}, func(wr *uverbs.SendWR) { wr.InvalidateRKey = mw.RKey() })
	})
}

// TestEveryPlaceXRC posts requests on XRC queue pairs, which name an SRQ, at every place.
func TestEveryPlaceXRC(t *testing.T) {
	d := newXRC(t, standard())
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 31}))(t)
	srq := d.srq(t, cq)
	p := stand(t, d.desk, d.initiator)
	p.cq = cq
	p.recv = func() {
		_, err := srq.PostRecv(uverbs.RecvWR{WRID: 7, SGL: []uverbs.SGE{d.mr.SGE(recvArea, 0x1000)}})
		check(t, err)
	}
	p.lead = func(wr *uverbs.SendWR) []byte {
		return append(binary.BigEndian.AppendUint32(nil, wr.RemoteSRQN), make([]byte, 12)...)
	}
	p.fill = func(wr *uverbs.SendWR) { wr.RemoteSRQN = srq.SRQN() }
	p.around(func() {
		for _, s := range someShapes {
			for _, op := range []uverbs.Opcode{uverbs.OpSend, uverbs.OpSendImm, uverbs.OpWrite, uverbs.OpWriteImm} {
				p.message(op, s, nil)
			}
		}
	})
}

// TestEveryPlaceDatagrams posts datagrams, which have an address, at every place.
func TestEveryPlaceDatagrams(t *testing.T) {
	d := newDesk(t, standard())
	cq, recvs := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 31}))(t), good(d.c.CreateCQ(uverbs.CQConfig{Entries: 31}))(t)
	const qkey = 0x11223344
	q := good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.UD, SendCQ: cq, RecvCQ: recvs, QKey: qkey, MaxSendWR: 16,
		MaxRecvWR: 16, MaxSendSGE: 2, MaxRecvSGE: 1, MaxInline: 28}))(t)
	check(t, q.Ready())
	gid := good(d.c.QueryGID(1, 2))(t).GID
	ah := good(d.pd.CreateAH(uverbs.AHAttr{Port: 1, IsGlobal: true, DGID: gid, SGIDIndex: 2, FlowLabel: 0x12345,
		HopLimit: 9, TrafficClass: 12, SL: 3}))(t)
	p := stand(t, d, q)
	p.head = 40
	p.fill = func(wr *uverbs.SendWR) { wr.AH, wr.QPN, wr.QKey = ah, q.QPN(), qkey }
	p.lead = func(*uverbs.SendWR) []byte {
		be := binary.BigEndian
		w := be.AppendUint32(be.AppendUint32(nil, qkey), 0)
		w = append(be.AppendUint32(w, 1<<31|q.QPN()), 3<<1, 0, 0xe3, 0x41, 0, 0, 0, 0) // the port is a hash of the flow label
		w = append(append(w, softMAC[:]...), 12, 9)
		return append(be.AppendUint32(w, 2<<20|0x12345), gid[:]...)
	}
	p.around(func() {
		for _, s := range someShapes {
			p.message(uverbs.OpSend, s, nil)
			p.message(uverbs.OpSendImm, s, nil)
		}
	})
}
