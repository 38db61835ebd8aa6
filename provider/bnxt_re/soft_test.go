package bnxt_re_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/fakebnxt"
	"github.com/goverbs/goverbs/uverbs"
)

// A peer is a QP of a device of the model, with memory.
type peer struct {
	t        *testing.T
	ctx      *uverbs.Context
	pd       *uverbs.PD
	cq, recv *uverbs.CQ // of sends and of receives
	qp       *uverbs.QP
	mem      []byte
	mr       *uverbs.MR
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

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const access = uverbs.LocalWrite | uverbs.RemoteRead | uverbs.RemoteWrite

// newPeer opens a device and creates a QP.
func newPeer(t *testing.T, d *fakebnxt.Device, cfg uverbs.QPConfig) *peer {
	t.Helper()
	p := &peer{t: t, ctx: must(uverbs.Open(d.Name()))(t), mem: make([]byte, 1<<16)}
	t.Cleanup(func() { check(t, p.ctx.Close()) })
	p.pd = must(p.ctx.AllocPD())(t)
	p.cq = must(p.ctx.CreateCQ(uverbs.CQConfig{Entries: 64}))(t)
	p.recv = must(p.ctx.CreateCQ(uverbs.CQConfig{Entries: 64}))(t)
	p.mr = must(p.pd.RegMR(p.mem, access))(t)
	cfg.SendCQ, cfg.RecvCQ, cfg.Access = p.cq, p.recv, uverbs.RemoteRead|uverbs.RemoteWrite
	p.qp = must(p.pd.CreateQP(cfg))(t)
	return p
}

var rc = uverbs.QPConfig{Type: uverbs.RC, MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 32}

// pair returns two peers on two devices, connected with each other.
func pair(t *testing.T, cfg fakebnxt.Config) (a, b *peer) {
	t.Helper()
	f := fakebnxt.New(t, 2, cfg)
	a, b = newPeer(t, f.Device(0), rc), newPeer(t, f.Device(1), rc)
	connect(t, a, b)
	return a, b
}

func connect(t *testing.T, a, b *peer) {
	t.Helper()
	toA, toB := must(a.qp.Endpoint())(t), must(b.qp.Endpoint())(t)
	check(t, a.qp.Connect(toB))
	check(t, b.qp.Connect(toA))
}

// poll waits for n completions.
func (p *peer) poll(cq *uverbs.CQ, n int) []uverbs.WC {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	wcs, got := make([]uverbs.WC, n), 0
	for got < n {
		k, err := cq.PollWait(ctx, wcs[got:])
		if err != nil {
			p.t.Fatalf("%d of %d completions: %v", got, n, err)
		}
		got += k
	}
	return wcs
}

func (p *peer) send(wrs ...uverbs.SendWR) {
	p.t.Helper()
	if n, err := p.qp.PostSend(wrs...); n != len(wrs) || err != nil {
		p.t.Fatalf("PostSend: %d of %d: %v", n, len(wrs), err)
	}
}

func (p *peer) receive(ids ...uint64) {
	p.t.Helper()
	for _, id := range ids {
		_, err := p.qp.PostRecv(uverbs.RecvWR{WRID: id, SGL: []uverbs.SGE{p.mr.SGE(0, 16)}})
		check(p.t, err)
	}
}

// outcome checks the WRIDs and the statuses of the next completions.
func (p *peer) outcome(cq *uverbs.CQ, want ...uverbs.WC) {
	p.t.Helper()
	for i, wc := range p.poll(cq, len(want)) {
		if wc.WRID != want[i].WRID || wc.Status != want[i].Status || wc.QPNum != p.qp.QPN() {
			p.t.Errorf("completion %+v, want %+v", wc, want[i])
		}
	}
}

func flushed(id uint64) uverbs.WC { return uverbs.WC{WRID: id, Status: uverbs.WCWRFlushErr} }

// A request that fails completes those before it, and flushes the others and the receives, which have another CQ.
func TestFailedRequest(t *testing.T) {
	each(t, func(t *testing.T, cfg fakebnxt.Config) {
		a, b := pair(t, cfg)
		write := uverbs.SendWR{WRID: 1, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, SGL: []uverbs.SGE{a.mr.SGE(0, 8)},
			RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
		quiet, bad, later := write, write, write
		quiet.WRID, quiet.Flags = 2, 0
		bad.WRID, bad.Flags, bad.RKey = 3, 0, b.mr.RKey()+1<<8
		later.WRID = 4
		a.receive(10, 11)
		a.send(write, quiet, bad, later)
		a.outcome(a.cq, uverbs.WC{WRID: 1}, uverbs.WC{WRID: 3, Status: uverbs.WCRemAccessErr}, flushed(4))
		a.outcome(a.recv, flushed(10), flushed(11))
		b.receive(20)
		b.outcome(b.recv, flushed(20)) // the peer has ended too
	})
}

// What is posted in ERR is flushed, and wakes a goroutine that waits for it.
func TestPostInERR(t *testing.T) {
	each(t, func(t *testing.T, cfg fakebnxt.Config) {
		a, _ := pair(t, cfg)
		a.receive(1)
		check(t, a.qp.Drain(t.Context()))
		a.outcome(a.recv, flushed(1))
		for id := range uint64(100) {
			done := make(chan []uverbs.WC)
			cq := a.cq
			if id%2 == 0 {
				cq = a.recv
			}
			go func() { done <- a.poll(cq, 1) }()
			if id%2 == 0 {
				a.receive(id)
			} else {
				a.send(uverbs.SendWR{WRID: id, Opcode: uverbs.OpSend, Inline: []byte("x")})
			}
			if wc := (<-done)[0]; wc.WRID != id || wc.Status != uverbs.WCWRFlushErr {
				t.Fatalf("completion %+v", wc)
			}
		}
		if s, r := a.qp.SendsOutstanding(), a.qp.RecvsOutstanding(); s+r != 0 {
			t.Errorf("%d sends and %d receives are outstanding", s, r)
		}
	})
}

// After RESET, completions of before are not returned, and the QP works again.
func TestReset(t *testing.T) {
	each(t, func(t *testing.T, cfg fakebnxt.Config) {
		a, b := pair(t, cfg)
		for id := range uint64(5) {
			b.receive(id)
			a.send(uverbs.SendWR{WRID: id, Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: []byte("unpolled")})
			b.poll(b.recv, 1)
			b.receive(100 + id)
			if id%2 == 0 { // the ends of the QPs are not polled either
				check(t, a.qp.Drain(t.Context()))
			}
			for _, p := range []*peer{a, b} {
				check(t, p.qp.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState))
			}
			connect(t, a, b)
			b.receive(200 + id)
			a.send(uverbs.SendWR{WRID: 300 + id, Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: []byte("again")})
			a.outcome(a.cq, uverbs.WC{WRID: 300 + id})
			b.outcome(b.recv, uverbs.WC{WRID: 200 + id})
		}
	})
}

// The event of an SRQ's limit, which is set before or after receives are posted, and receives that return to the SRQ
// when a QP is closed whose completions were not polled.
func TestSRQLimit(t *testing.T) {
	each(t, func(t *testing.T, cfg fakebnxt.Config) {
		f := fakebnxt.New(t, 1, cfg)
		a := newPeer(t, f.Device(0), rc)
		srq := must(a.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 7, MaxSGE: 1, Limit: 2}))(t)
		with := rc
		with.SRQ, with.SendCQ, with.MaxRecvWR, with.MaxRecvSGE = srq, a.cq, 0, 0
		wrs := make([]uverbs.RecvWR, 7)
		if n, err := srq.PostRecv(wrs...); n != 7 || err != nil {
			t.Fatalf("PostRecv: %d, %v", n, err)
		}
		for lap := range 3 {
			q := must(a.pd.CreateQP(with))(t)
			check(t, q.Connect(must(q.Endpoint())(t)))
			for range 6 {
				_, err := q.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled})
				check(t, err)
			}
			event := must(a.ctx.NextEvent(t.Context()))(t)
			for event.Type != uverbs.EventSRQLimitReached { // one says that the QP is connected
				event = must(a.ctx.NextEvent(t.Context()))(t)
			}
			if lap == 0 {
				for range 12 {
					a.poll(a.cq, 1)
				}
			}
			check(t, q.Close())
			if n, err := srq.PostRecv(wrs...); n != 6 || !errors.Is(err, uverbs.ErrQueueFull) {
				t.Fatalf("PostRecv: %d, %v", n, err)
			}
			check(t, srq.Modify(uverbs.SRQAttr{Limit: 2}, uverbs.SRQMaskLimit))
		}
	})
}

// Modify raises one event, at once if fewer receives than the limit are posted.
func TestSRQLimitOnce(t *testing.T) {
	each(t, func(t *testing.T, cfg fakebnxt.Config) {
		a := newPeer(t, fakebnxt.New(t, 1, cfg).Device(0), rc)
		srq := must(a.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 7, MaxSGE: 1, Limit: 3}))(t)
		other := must(a.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 7, MaxSGE: 1}))(t)
		with := rc
		with.SRQ, with.SendCQ, with.MaxRecvWR, with.MaxRecvSGE = srq, a.cq, 0, 0
		q := must(a.pd.CreateQP(with))(t)
		check(t, q.Connect(must(q.Endpoint())(t)))
		for _, n := range []int{1, 5} { // fewer than the limit, and more
			_, err := srq.PostRecv(make([]uverbs.RecvWR, n)...)
			check(t, err)
			if n == 1 {
				check(t, srq.Modify(uverbs.SRQAttr{Limit: 2}, uverbs.SRQMaskLimit))
			}
		}
		for range 6 {
			_, err := q.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled})
			check(t, err)
		}
		for range 12 {
			a.poll(a.cq, 1)
		}
		check(t, other.Modify(uverbs.SRQAttr{Limit: 2}, uverbs.SRQMaskLimit))
		for _, want := range []*uverbs.SRQ{srq, other} {
			e := must(a.ctx.NextEvent(t.Context()))(t)
			if e.Type != uverbs.EventSRQLimitReached || e.SRQ != want {
				t.Errorf("event %+v, want one of %v", e, want)
			}
		}
	})
}

// A doorbell waits while the device's queue of doorbells is full, and the kernel is notified before it overflows. A
// doorbell does not wait for ever.
func TestPacing(t *testing.T) {
	f := fakebnxt.New(t, 1, fakebnxt.P5)
	d := f.Device(0)
	a := newPeer(t, d, rc)
	check(t, a.qp.Connect(must(a.qp.Endpoint())(t)))
	for _, c := range []struct {
		waiting uint32
		notify  int
	}{{0, 0}, {0x300, 1}, {0x180, 0}} {
		before := d.Notified()
		d.SetDoorbells(c.waiting)
		a.receive(1)
		if n := d.Notified() - before; n != c.notify {
			t.Errorf("%#x doorbells wait: the kernel was notified %d times, want %d", c.waiting, n, c.notify)
		}
	}
}

// Adapters and objects that this package does not support are refused with a typed error.
func TestRefused(t *testing.T) {
	for _, chip := range []uint32{fakebnxt.Stratus, fakebnxt.Stingray} {
		cfg := fakebnxt.P5
		cfg.Chip = chip
		if _, err := uverbs.Open(fakebnxt.New(t, 1, cfg).Device(0).Name()); !errors.Is(err, uverbs.ErrNotSupported) ||
			!strings.Contains(err.Error(), "P5 and P7 (BCM57502, BCM57504, BCM57508, BCM57608, BCM58818)") {
			t.Errorf("Open of chip %#x of another generation: %v", chip, err)
		}
	}
	noBell := fakebnxt.P5
	noBell.NoBell = true
	if _, err := uverbs.Open(fakebnxt.New(t, 1, noBell).Device(0).Name()); !errors.Is(err, uverbs.ErrABI) {
		t.Errorf("Open without a doorbell page: %v", err)
	}
	a := newPeer(t, fakebnxt.New(t, 1, fakebnxt.P5).Device(0), rc)
	for name, c := range map[string]struct {
		change func(*uverbs.QPConfig)
		want   error
	}{
		"UC":     {func(c *uverbs.QPConfig) { c.Type = uverbs.UC }, uverbs.ErrNotSupported},
		"inline": {func(c *uverbs.QPConfig) { c.MaxInline = 97 }, uverbs.ErrInvalid},
		"SGEs":   {func(c *uverbs.QPConfig) { c.MaxSendSGE = 7 }, uverbs.ErrInvalid},
		"sends":  {func(c *uverbs.QPConfig) { c.MaxSendWR = 4097 }, uverbs.ErrInvalid},
	} {
		cfg := rc
		cfg.SendCQ = a.cq
		c.change(&cfg)
		if _, err := a.pd.CreateQP(cfg); !errors.Is(err, c.want) {
			t.Errorf("%s: CreateQP: %v, want %v", name, err, c.want)
		}
	}
	if _, err := a.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 4096}); !errors.Is(err, uverbs.ErrInvalid) ||
		!strings.Contains(err.Error(), "the device supports up to 4095") {
		t.Errorf("CreateSRQ: %v", err)
	}
	check(t, must(a.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 4095}))(t).Close())
	srq := must(a.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 1}))(t)
	if err := srq.Modify(uverbs.SRQAttr{MaxWR: 7}, uverbs.SRQMaskMaxWR); !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("resize an SRQ: %v", err)
	}
	check(t, a.qp.Connect(must(a.qp.Endpoint())(t)))
	if _, err := a.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSendInv}); !errors.Is(err, uverbs.ErrOpNotSupported) {
		t.Errorf("SEND_INV: %v", err)
	}
}
