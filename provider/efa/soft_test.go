package efa_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/fakeefa"
	_ "github.com/goverbs/goverbs/provider/efa"
	"github.com/goverbs/goverbs/uverbs"
)

const qkey = 0x11111111

// A peer is a QP of a device of the model, with memory.
type peer struct {
	t   *testing.T
	ctx *uverbs.Context
	pd  *uverbs.PD
	cq  *uverbs.CQ
	qp  *uverbs.QP
	mem []byte
	mr  *uverbs.MR
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// newPeer opens a device and creates a QP that is ready.
func newPeer(t *testing.T, d *fakeefa.Device, cfg uverbs.QPConfig) *peer {
	t.Helper()
	p := &peer{t: t, ctx: must(uverbs.Open(d.Name()))(t), mem: make([]byte, 1<<18)}
	t.Cleanup(func() {
		if err := p.ctx.Close(); err != nil {
			t.Error(err)
		}
	})
	p.pd = must(p.ctx.AllocPD())(t)
	p.cq = must(p.ctx.CreateCQ(uverbs.CQConfig{Entries: 64}))(t)
	p.mr = must(p.pd.RegMR(p.mem, uverbs.LocalWrite|uverbs.RemoteRead|uverbs.RemoteWrite))(t)
	cfg.SendCQ, cfg.QKey = p.cq, qkey
	p.qp = must(p.pd.CreateQP(cfg))(t)
	if err := p.qp.Ready(); err != nil {
		t.Fatal(err)
	}
	return p
}

var srd = uverbs.QPConfig{Type: uverbs.SRD, MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 32}

// pair returns two peers on two devices.
func pair(t *testing.T, cfg fakeefa.Config, qp uverbs.QPConfig) (a, b *peer) {
	t.Helper()
	f := fakeefa.New(t, 2, cfg)
	return newPeer(t, f.Device(0), qp), newPeer(t, f.Device(1), qp)
}

// to returns a request to a peer.
func (p *peer) to(other *peer, wr uverbs.SendWR) uverbs.SendWR {
	p.t.Helper()
	attr := must(p.qp.AHAttr(must(other.qp.Endpoint())(p.t)))(p.t)
	wr.AH = must(p.pd.CreateAH(attr))(p.t)
	wr.QPN, wr.QKey, wr.Flags = other.qp.QPN(), qkey, wr.Flags|uverbs.Signaled
	return wr
}

func (p *peer) send(wrs ...uverbs.SendWR) {
	p.t.Helper()
	if n, err := p.qp.PostSend(wrs...); n != len(wrs) || err != nil {
		p.t.Fatalf("PostSend: %d of %d: %v", n, len(wrs), err)
	}
}

func (p *peer) recv(wrs ...uverbs.RecvWR) {
	p.t.Helper()
	if n, err := p.qp.PostRecv(wrs...); n != len(wrs) || err != nil {
		p.t.Fatalf("PostRecv: %d of %d: %v", n, len(wrs), err)
	}
}

// poll waits for n completions.
func (p *peer) poll(n int) []uverbs.WC {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	wcs, got := make([]uverbs.WC, n), 0
	for got < n {
		k, err := p.cq.PollWait(ctx, wcs[got:])
		if err != nil {
			p.t.Fatalf("%d of %d completions: %v", got, n, err)
		}
		got += k
	}
	return wcs
}

func (p *peer) sge(off, n int) uverbs.SGE { return p.mr.SGE(off, n) }

func TestSRDSend(t *testing.T) {
	for name, cfg := range map[string]fakeefa.Config{"": fakeefa.Default,
		"two rings": {SubCQs: 2, MaxBatch: 4, MinSQ: 32, Caps: fakeefa.AllCaps}} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, cfg, srd)
			copy(a.mem, "a message from two places")
			wr := a.to(b, uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{a.sge(0, 2), a.sge(2, 23)}})
			for id := range uint64(100) { // around the rings
				clear(b.mem)
				b.recv(uverbs.RecvWR{WRID: id, SGL: []uverbs.SGE{b.sge(100, 3), b.sge(1000, 100)}})
				wr.WRID = 1000 + id
				a.send(wr)
				wc := a.poll(1)[0]
				if wc.WRID != 1000+id || wc.Opcode != uverbs.WCSend || wc.Err() != nil || wc.QPNum != a.qp.QPN() {
					t.Fatalf("completion %+v", wc)
				}
				wc = b.poll(1)[0]
				if wc.WRID != id || wc.Opcode != uverbs.WCRecv || wc.ByteLen != 25 || wc.SrcQP != a.qp.QPN() || wc.Err() != nil {
					t.Fatalf("completion %+v", wc)
				}
				if got := string(b.mem[100:103]) + string(b.mem[1000:1022]); got != "a message from two places" {
					t.Fatalf("received %q", got)
				}
			}
		})
	}
}

func TestSRDInlineAndImmediate(t *testing.T) {
	a, b := pair(t, fakeefa.Default, srd)
	data := []byte("inline data of thirty-two bytes.")
	for n := range len(data) + 1 {
		b.recv(uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{b.sge(0, 40)}})
		clear(b.mem[:40])
		a.send(a.to(b, uverbs.SendWR{Opcode: uverbs.OpSendImm, Imm: 0x01020304, Inline: data[:n]}))
		a.poll(1)
		if wc := b.poll(1)[0]; int(wc.ByteLen) != n || wc.Imm != 0x01020304 || wc.Flags != uverbs.WCWithImm {
			t.Errorf("completion %+v", wc)
		}
		if !bytes.Equal(b.mem[:n+1], append(data[:n:n], 0)) {
			t.Errorf("received %q", b.mem[:40])
		}
	}
}

func TestSRDReadAndWrite(t *testing.T) {
	a, b := pair(t, fakeefa.Default, srd)
	const n = 100000
	for i := range n {
		a.mem[i], b.mem[n+i] = byte(i*7), byte(i*11)
	}
	remote := func(op uverbs.Opcode, off int) uverbs.SendWR {
		return a.to(b, uverbs.SendWR{Opcode: op, RemoteAddr: b.mr.Addr() + uint64(off), RKey: b.mr.RKey()})
	}
	write := remote(uverbs.OpWrite, 0)
	write.SGL = []uverbs.SGE{a.sge(0, n)}
	a.send(write)
	if wc := a.poll(1)[0]; wc.Opcode != uverbs.WCWrite || wc.Err() != nil {
		t.Errorf("completion %+v", wc)
	}
	if !bytes.Equal(b.mem[:n], a.mem[:n]) {
		t.Error("the peer does not have what was written")
	}
	read := remote(uverbs.OpRead, n)
	read.SGL = []uverbs.SGE{a.sge(n, n)}
	a.send(read)
	if wc := a.poll(1)[0]; wc.Opcode != uverbs.WCRead || wc.Err() != nil {
		t.Errorf("completion %+v", wc)
	}
	if !bytes.Equal(b.mem[n:2*n], a.mem[n:2*n]) {
		t.Error("what was read is not the peer's memory")
	}
	b.recv(uverbs.RecvWR{WRID: 5, SGL: []uverbs.SGE{b.sge(0, 1)}})
	with := remote(uverbs.OpWriteImm, 2*n)
	with.SGL, with.Imm = []uverbs.SGE{a.sge(1, 60000)}, 77
	a.send(with)
	a.poll(1)
	if wc := b.poll(1)[0]; wc.WRID != 5 || wc.Opcode != uverbs.WCRecvRDMAImm || wc.Imm != 77 || wc.ByteLen != 60000 {
		t.Errorf("completion %+v", wc)
	}
	if !bytes.Equal(b.mem[2*n:2*n+60000], a.mem[1:60001]) {
		t.Error("the peer does not have what was written")
	}
}

func TestUD(t *testing.T) {
	ud := srd
	ud.Type = uverbs.UD
	a, b := pair(t, fakeefa.Default, ud)
	a.send(a.to(b, uverbs.SendWR{WRID: 1, Opcode: uverbs.OpSend, Inline: []byte("lost")})) // there is no receive
	b.recv(uverbs.RecvWR{WRID: 2, SGL: []uverbs.SGE{b.sge(0, uverbs.GRHLen), b.sge(100, 10)}})
	a.send(a.to(b, uverbs.SendWR{WRID: 3, Opcode: uverbs.OpSendImm, Imm: 5, Inline: []byte("datagram")}))
	for i, wc := range a.poll(2) {
		if wc.WRID != uint64(1+2*i) || wc.Err() != nil {
			t.Errorf("completion %+v", wc)
		}
	}
	if wc := b.poll(1)[0]; wc.WRID != 2 || int(wc.ByteLen) != uverbs.GRHLen+8 || wc.Imm != 5 || wc.SrcQP != a.qp.QPN() {
		t.Errorf("completion %+v", wc)
	}
	if got := string(b.mem[100:108]); got != "datagram" {
		t.Errorf("received %q", got)
	}
}

// A batch has the same effect as a post, whatever its length.
func TestBatch(t *testing.T) {
	a, b := pair(t, fakeefa.Config{SubCQs: 1, MaxBatch: 3, Caps: fakeefa.AllCaps}, srd)
	copy(a.mem, "a batch")
	wr := a.to(b, uverbs.SendWR{})
	for n := 1; n <= 16; n++ {
		for i := range n {
			b.recv(uverbs.RecvWR{WRID: uint64(i), SGL: []uverbs.SGE{b.sge(8*i, 8)}})
		}
		s := a.qp.StartSend()
		for i := range n {
			s.Send(uint64(i), uverbs.Signaled)
			s.UDAddr(wr.AH, wr.QPN, wr.QKey)
			s.SGE(a.sge(0, 3))
			s.SGE(a.sge(3, 4))
		}
		if err := s.Submit(); err != nil {
			t.Fatal(err)
		}
		for i, wc := range b.poll(n) {
			if wc.WRID != uint64(i) || wc.ByteLen != 7 || string(b.mem[8*i:8*i+7]) != "a batch" {
				t.Errorf("completion %+v, %q", wc, b.mem[8*i:8*i+7])
			}
		}
		for i, wc := range a.poll(n) {
			if wc.WRID != uint64(i) || wc.Err() != nil {
				t.Errorf("completion %+v", wc)
			}
		}
	}
}

// A message waits for a receive, and its request is flushed with the QP.
func TestWaitsForReceive(t *testing.T) {
	a, b := pair(t, fakeefa.Default, srd)
	wr := a.to(b, uverbs.SendWR{WRID: 1, Opcode: uverbs.OpSend, Inline: []byte("patient")})
	a.send(wr)
	if n := a.qp.SendsOutstanding(); n != 1 {
		t.Errorf("%d sends are outstanding", n)
	}
	b.recv(uverbs.RecvWR{WRID: 2, SGL: []uverbs.SGE{b.sge(0, 10)}})
	a.poll(1)
	if b.poll(1); string(b.mem[:7]) != "patient" {
		t.Errorf("received %q", b.mem[:7])
	}
	a.send(wr)
	a.recv(uverbs.RecvWR{WRID: 3, SGL: []uverbs.SGE{a.sge(0, 10)}})
	if err := a.qp.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, wc := range a.poll(2) {
		if wc.Status != uverbs.WCWRFlushErr {
			t.Errorf("completion %+v", wc)
		}
	}
}

// Completions of an earlier life of a QP, or of a QP that is gone, are not returned.
func TestReset(t *testing.T) {
	a, b := pair(t, fakeefa.Config{SubCQs: 2, Caps: fakeefa.AllCaps}, srd)
	for lap := range 5 {
		b.recv(uverbs.RecvWR{SGL: []uverbs.SGE{b.sge(0, 10)}}, uverbs.RecvWR{SGL: []uverbs.SGE{b.sge(0, 10)}})
		wr := a.to(b, uverbs.SendWR{WRID: 1, Opcode: uverbs.OpSend})
		a.send(wr)
		if err := a.qp.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState); err != nil {
			t.Fatal(err)
		}
		if lap == 2 { // another QP, which gets the number of the old one
			number := a.qp.QPN()
			if err := a.qp.Close(); err != nil {
				t.Fatal(err)
			}
			cfg := srd
			cfg.SendCQ, cfg.QKey = a.cq, qkey
			if a.qp = must(a.pd.CreateQP(cfg))(t); a.qp.QPN() != number {
				t.Fatalf("QPN %d, want %d", a.qp.QPN(), number)
			}
		}
		if err := a.qp.Ready(); err != nil {
			t.Fatal(err)
		}
		wr.WRID = 2
		a.send(wr)
		if wc := a.poll(1)[0]; wc.WRID != 2 || wc.Err() != nil {
			t.Errorf("completion %+v", wc)
		}
		b.poll(2)
	}
}

// Requests that an EFA does not have, and those that exceed its limits, are refused with a typed error.
func TestRefused(t *testing.T) {
	a, b := pair(t, fakeefa.Default, srd)
	data := make([]byte, 1)
	for name, c := range map[string]struct {
		change func(*uverbs.SendWR)
		want   error
	}{
		"unsignaled": {func(w *uverbs.SendWR) { w.Flags = 0 }, uverbs.ErrUnsignaled},
		"fence":      {func(w *uverbs.SendWR) { w.Flags |= uverbs.Fence }, uverbs.ErrOpNotSupported},
		"atomic":     {func(w *uverbs.SendWR) { w.Opcode = uverbs.OpFetchAdd }, uverbs.ErrQPType},
		"invalidate": {func(w *uverbs.SendWR) { w.Opcode = uverbs.OpSendInv }, uverbs.ErrQPType},
		"unknown":    {func(w *uverbs.SendWR) { w.Opcode = 200 }, uverbs.ErrOpcode},
		"three SGEs": {func(w *uverbs.SendWR) { w.SGL = make([]uverbs.SGE, 3) }, uverbs.ErrTooManySGEs},
		"two to read": {func(w *uverbs.SendWR) { w.Opcode, w.SGL = uverbs.OpRead, make([]uverbs.SGE, 2) },
			uverbs.ErrTooManySGEs},
		"long read": {func(w *uverbs.SendWR) { w.Opcode, w.SGL = uverbs.OpRead, []uverbs.SGE{{Length: 1<<30 + 1}} },
			uverbs.ErrRange},
		"range":        {func(w *uverbs.SendWR) { w.SGL = []uverbs.SGE{{Length: ^uint32(0)}} }, uverbs.ErrRange},
		"inline":       {func(w *uverbs.SendWR) { w.Inline = make([]byte, 33) }, uverbs.ErrInlineTooLong},
		"inline, SGL":  {func(w *uverbs.SendWR) { w.Inline, w.SGL = data, make([]uverbs.SGE, 1) }, uverbs.ErrMalformed},
		"inline read":  {func(w *uverbs.SendWR) { w.Opcode, w.Inline = uverbs.OpRead, data }, uverbs.ErrMalformed},
		"inline write": {func(w *uverbs.SendWR) { w.Opcode, w.Inline = uverbs.OpWrite, data }, uverbs.ErrOpNotSupported},
		"no AH":        {func(w *uverbs.SendWR) { w.AH = nil }, uverbs.ErrNoAH},
		"QPN":          {func(w *uverbs.SendWR) { w.QPN = 1 << 16 }, uverbs.ErrMalformed},
	} {
		good := a.to(b, uverbs.SendWR{WRID: 1, Opcode: uverbs.OpSend})
		bad := good
		c.change(&bad)
		b.recv(uverbs.RecvWR{SGL: []uverbs.SGE{b.sge(0, 10)}})
		if n, err := a.qp.PostSend(good, bad, good); n != 1 || !errors.Is(err, c.want) {
			t.Errorf("%s: PostSend: %d, %v; want 1, %v", name, n, err, c.want)
		}
		a.poll(1)
		b.poll(1)
	}
	if _, err := b.qp.PostRecv(uverbs.RecvWR{}); !errors.Is(err, uverbs.ErrMalformed) {
		t.Errorf("a receive without SGEs: %v", err)
	}
	if _, err := a.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 1}); !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("CreateSRQ: %v", err)
	}
	if err := a.cq.Resize(128); !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("Resize: %v", err)
	}
	if err := a.qp.Connect(uverbs.Endpoint{}); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("Connect: %v", err)
	}
	for want, change := range map[error]func(*uverbs.QPConfig){
		uverbs.ErrNotSupported: func(c *uverbs.QPConfig) { c.Type = uverbs.RC },
		uverbs.ErrInvalid:      func(c *uverbs.QPConfig) { c.MaxInline = 33 },
	} {
		cfg := srd
		cfg.SendCQ = a.cq
		change(&cfg)
		if _, err := a.pd.CreateQP(cfg); !errors.Is(err, want) || !strings.Contains(err.Error(), "create QP on efa_0: ") {
			t.Errorf("CreateQP: %v, want %v", err, want)
		}
	}
	_, err := a.pd.CreateAH(uverbs.AHAttr{Port: 1, DLID: 3})
	if !errors.Is(err, uverbs.ErrInvalid) || !strings.Contains(err.Error(), "needs a GID") {
		t.Errorf("CreateAH: %v", err)
	}
}

// A device whose send queues have a least size creates QPs that only receive, or only send.
func TestOneQueue(t *testing.T) {
	cfg := fakeefa.Default
	cfg.MinSQ = 32
	a := newPeer(t, fakeefa.New(t, 1, cfg).Device(0), srd)
	for _, c := range []uverbs.QPConfig{{MaxRecvWR: 4}, {MaxSendWR: 4}} {
		c.Type, c.SendCQ = uverbs.SRD, a.cq
		if _, err := a.pd.CreateQP(c); err != nil {
			t.Errorf("CreateQP of %d sends and %d receives: %v", c.MaxSendWR, c.MaxRecvWR, err)
		}
	}
}

// Posts in ERR are refused, until the QP is ready again.
func TestPostInERR(t *testing.T) {
	a, b := pair(t, fakeefa.Default, srd)
	wr := a.to(b, uverbs.SendWR{Opcode: uverbs.OpSend})
	recv := uverbs.RecvWR{SGL: []uverbs.SGE{a.sge(0, 10)}}
	if err := a.qp.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := a.qp.PostSend(wr); n != 0 || !errors.Is(err, uverbs.ErrState) {
		t.Errorf("PostSend: %d, %v", n, err)
	}
	s := a.qp.StartSend()
	s.Send(1, uverbs.Signaled)
	s.UDAddr(wr.AH, wr.QPN, wr.QKey)
	if err := s.Submit(); !errors.Is(err, uverbs.ErrState) {
		t.Errorf("Submit: %v", err)
	}
	if n, err := a.qp.PostRecv(recv); n != 0 || !errors.Is(err, uverbs.ErrState) {
		t.Errorf("PostRecv: %d, %v", n, err)
	}
	err := errors.Join(a.qp.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState), a.qp.Ready())
	if err != nil {
		t.Fatal(err)
	}
	a.send(wr)
	a.recv(recv)
}

// The statuses of requests that fail at the device.
func TestStatus(t *testing.T) {
	a, b := pair(t, fakeefa.Default, srd)
	for name, c := range map[string]struct {
		change func(*uverbs.SendWR)
		want   uverbs.WCStatus
	}{
		"lkey":     {func(w *uverbs.SendWR) { w.SGL = []uverbs.SGE{{Addr: 1, Length: 1, LKey: 99}} }, uverbs.WCLocProtErr},
		"too long": {func(w *uverbs.SendWR) { w.SGL = []uverbs.SGE{a.sge(0, 10000)} }, uverbs.WCLocLenErr},
		"QPN":      {func(w *uverbs.SendWR) { w.QPN = 200 }, uverbs.WCRemInvRDReqErr},
		"QKey":     {func(w *uverbs.SendWR) { w.QKey++ }, uverbs.WCRemInvRDReqErr},
		"rkey": {func(w *uverbs.SendWR) { w.Opcode, w.SGL, w.RKey = uverbs.OpRead, []uverbs.SGE{a.sge(0, 1)}, 1 },
			uverbs.WCRemAccessErr},
	} {
		wr := a.to(b, uverbs.SendWR{WRID: 9, Opcode: uverbs.OpSend})
		c.change(&wr)
		a.send(wr)
		if wc := a.poll(1)[0]; wc.Status != c.want || wc.WRID != 9 || wc.VendorErr == 0 {
			t.Errorf("%s: completion %+v, want %v", name, wc, c.want)
		}
	}
	b.recv(uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{b.sge(0, 3)}})
	a.send(a.to(b, uverbs.SendWR{Opcode: uverbs.OpSend, Inline: []byte("long")}))
	if wc := a.poll(1)[0]; wc.Status != uverbs.WCRemInvReqErr {
		t.Errorf("completion %+v", wc)
	}
	if wc := b.poll(1)[0]; wc.Status != uverbs.WCLocLenErr {
		t.Errorf("completion %+v", wc)
	}
}

// A driver that does not number AHs is refused.
func TestOldDriver(t *testing.T) {
	cfg := fakeefa.Default
	cfg.NoAHNumber = true
	if _, err := uverbs.Open(fakeefa.New(t, 1, cfg).Device(0).Name()); !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("Open: %v", err)
	}
}

// The example's message arrives.
func TestExample(t *testing.T) {
	f := fakeefa.New(t, 2, fakeefa.Default)
	b := newPeer(t, f.Device(1), srd)
	b.recv(uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{b.sge(0, 32)}})
	remote := must(b.qp.Endpoint())(t)
	if err := sendTo(t.Context(), f.Device(0).Name(), remote, qkey, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if b.poll(1); string(b.mem[:5]) != "hello" {
		t.Errorf("received %q", b.mem[:5])
	}
}
