//go:build vm

package bnxt_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakebnxt"
	"github.com/goverbs/goverbs/internal/sim/providertest"
	_ "github.com/goverbs/goverbs/provider/bnxt_re"
	"github.com/goverbs/goverbs/testbed/cshim"
	"github.com/goverbs/goverbs/uverbs"
)

// A side is a program that executes steps on a device and says what it observes: one in C, one in Go.
type side interface {
	create(q qpSize, psn uint32) string
	send(list []uverbs.SendWR, batch bool) string
	recv(list []uverbs.RecvWR) string
	poll(n int) string
	arm(solicited bool) string
	event() string
	reset(psn uint32) string
	resize(n int) string
}

type qpSize struct {
	typ                                  uverbs.QPType
	sends, recvs, sges, recvSGEs, inline int
	signalAll                            bool
	shared                               bool // the receives are those of an SRQ
}

// inlineData is what C's program sends.
var inlineData = func() (b [256]byte) {
	for i := range b {
		b[i] = byte(i*7 + 1)
	}
	return b
}()

// cSide is C's program: play/play.c.
type cSide struct {
	*cshim.Script
	ud bool
}

func newC(t *testing.T, d *fakebnxt.Device) *cSide {
	h := cshim.NewBnxt(t, d)
	return &cSide{Script: h.Script(h.Compile("play/play.c"), d.Name())}
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (c *cSide) create(q qpSize, psn uint32) string {
	c.ud = q.typ == uverbs.UD
	return c.Do("qp %s %d %d %d %d %d %d %d %d", strings.ToLower(q.typ.String()), q.sends, q.recvs, q.sges, q.recvSGEs,
		q.inline, number(q.signalAll), psn, number(q.shared)*q.recvs)
}

func sgeText(list []uverbs.SGE) (s string) {
	for _, e := range list {
		s += fmt.Sprintf(" %d %d %d", e.Addr, e.Length, e.LKey)
	}
	return s
}

// flagsOf returns C's flags.
func flagsOf(f uverbs.SendFlags) (v int) {
	for flag, bit := range map[uverbs.SendFlags]int{uverbs.Fence: 1, uverbs.Signaled: 2, uverbs.Solicited: 4} {
		if f&flag != 0 {
			v |= bit
		}
	}
	return v
}

// send posts with ibv_post_send, since ibv_wr_* of the bed's libbnxt_re gives only the last request of a batch flags.
func (c *cSide) send(list []uverbs.SendWR, _ bool) string {
	for _, w := range list {
		n := len(w.SGL)
		if w.Inline != nil {
			n = len(w.Inline)
		}
		c.Write("send %d %d %d %d %d %d %d %d %d %d %d %d%s", w.Opcode, flagsOf(w.Flags), w.WRID, w.Imm, w.RemoteAddr, w.RKey,
			w.CompareAdd, w.Swap, w.QPN, w.QKey, number(w.Inline != nil), n, sgeText(w.SGL))
	}
	return c.Do("post")
}

func (c *cSide) recv(list []uverbs.RecvWR) string {
	for _, r := range list {
		c.Write("recv %d %d%s", r.WRID, len(r.SGL), sgeText(r.SGL))
	}
	return c.Do("postrecv")
}

func (c *cSide) poll(n int) string         { return c.Do("poll %d", n) }
func (c *cSide) arm(solicited bool) string { return c.Do("arm %d", number(solicited)) }
func (c *cSide) event() string             { return c.Do("event") }
func (c *cSide) reset(psn uint32) string   { return c.Do("reset %d", psn) }
func (c *cSide) resize(n int) string       { return c.Do("resize %d", n) }

// goSide is this library.
type goSide struct {
	t   *testing.T
	ctx *uverbs.Context
	pd  *uverbs.PD
	cq  *uverbs.CQ
	qp  *uverbs.QP
	srq *uverbs.SRQ
	ah  *uverbs.AH
	gid uverbs.GID
	ud  bool
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

func newGo(t *testing.T, d *fakebnxt.Device) *goSide {
	ctx := must(uverbs.Open(d.Name()))(t)
	t.Cleanup(func() {
		if err := ctx.Close(); err != nil {
			t.Error(err)
		}
	})
	g := &goSide{t: t, ctx: ctx, pd: must(ctx.AllocPD())(t)}
	channel := must(ctx.CreateCompChannel())(t)
	g.cq = must(ctx.CreateCQ(uverbs.CQConfig{Entries: 100, Channel: channel}))(t)
	g.gid = must(ctx.GIDs(1))(t)[3].GID
	g.ah = must(g.pd.CreateAH(g.address()))(t)
	return g
}

func (g *goSide) address() uverbs.AHAttr {
	return uverbs.AHAttr{IsGlobal: true, DGID: g.gid, SGIDIndex: 3, Port: 1}
}

func (g *goSide) create(q qpSize, psn uint32) string {
	g.ud = q.typ == uverbs.UD
	cfg := uverbs.QPConfig{Type: q.typ, SendCQ: g.cq, MaxSendWR: q.sends, MaxRecvWR: q.recvs, MaxSendSGE: q.sges,
		MaxRecvSGE: q.recvSGEs, MaxInline: q.inline, SignalAll: q.signalAll}
	if q.shared {
		g.srq = must(g.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: q.recvs, MaxSGE: q.recvSGEs}))(g.t)
		cfg.SRQ, cfg.MaxRecvWR, cfg.MaxRecvSGE = g.srq, 0, 0
	}
	g.qp = must(g.pd.CreateQP(cfg))(g.t)
	if c := g.qp.Cap(); c.MaxSendWR != q.sends || !q.shared && c.MaxRecvWR != q.recvs {
		g.t.Errorf("the QP has the sizes %+v, want %+v", c, q)
	}
	g.ready(psn)
	return fmt.Sprintf("QP %d", g.qp.QPN())
}

func (g *goSide) modify(a uverbs.QPAttr, m uverbs.QPMask) {
	g.t.Helper()
	if err := g.qp.Modify(a, m|uverbs.MaskState); err != nil {
		g.t.Fatal(err)
	}
}

func (g *goSide) ready(psn uint32) {
	if g.ud {
		g.modify(uverbs.QPAttr{State: uverbs.StateInit, Port: 1, QKey: 17},
			uverbs.MaskPKeyIndex|uverbs.MaskPort|uverbs.MaskQKey)
		g.modify(uverbs.QPAttr{State: uverbs.StateRTR}, 0)
		g.modify(uverbs.QPAttr{State: uverbs.StateRTS, SQPSN: psn}, uverbs.MaskSQPSN)
		return
	}
	g.modify(uverbs.QPAttr{State: uverbs.StateInit, Port: 1}, uverbs.MaskPKeyIndex|uverbs.MaskPort|uverbs.MaskAccess)
	g.modify(uverbs.QPAttr{State: uverbs.StateRTR, PathMTU: uverbs.MTU1024, DestQPN: 99, MaxDestRdAtomic: 1,
		AV: g.address()}, uverbs.MaskAV|uverbs.MaskPathMTU|uverbs.MaskDestQPN|uverbs.MaskRQPSN|
		uverbs.MaskMaxDestRdAtomic|uverbs.MaskMinRNRTimer)
	g.modify(uverbs.QPAttr{State: uverbs.StateRTS, SQPSN: psn, MaxRdAtomic: 1}, uverbs.MaskSQPSN|uverbs.MaskTimeout|
		uverbs.MaskRetryCount|uverbs.MaskRNRRetryCount|uverbs.MaskMaxRdAtomic)
}

func (g *goSide) send(list []uverbs.SendWR, batch bool) string {
	for i := range list {
		list[i].AH = g.ah
	}
	if !batch {
		n, err := g.qp.PostSend(list...)
		return fmt.Sprintf("posted %d, failed %d", n, number(err != nil))
	}
	b := g.qp.StartSend()
	for i := range list {
		if !g.ud {
			list[i].AH = nil
		}
		if err := providertest.Add(&b, &list[i]); err != nil {
			g.t.Fatal(err)
		}
	}
	if err := b.Submit(); err != nil {
		g.t.Fatal(err)
	}
	return fmt.Sprintf("posted %d, failed 0", len(list))
}

func (g *goSide) recv(list []uverbs.RecvWR) string {
	post := g.qp.PostRecv
	if g.srq != nil {
		post = g.srq.PostRecv
	}
	n, err := post(list...)
	return fmt.Sprintf("posted %d, failed %d", n, number(err != nil))
}

func (g *goSide) poll(n int) string {
	wcs := make([]uverbs.WC, n)
	n, err := g.cq.Poll(wcs)
	if err != nil {
		g.t.Fatal(err)
	}
	s := fmt.Sprintf("polled %d", n)
	for _, wc := range wcs[:n] {
		s += fmt.Sprintf("; %d %d %d %d", wc.WRID, wc.Status, wc.VendorErr, wc.QPNum)
		if wc.Status == uverbs.WCSuccess {
			if _, inv := wc.InvalidatedRKey(); inv { // C does not say so
				wc.Imm = 0
			}
			flags := number(wc.Flags&uverbs.WCGRH != 0) | 2*number(wc.Flags&uverbs.WCWithImm != 0)
			s += fmt.Sprintf(" %d %d %d %d %d", wc.Opcode, wc.ByteLen, wc.SrcQP, wc.Imm, flags)
		}
	}
	return s
}

func (g *goSide) arm(solicited bool) string {
	if err := g.cq.Arm(solicited); err != nil {
		return err.Error()
	}
	return "armed 0"
}

// event reads an event.
func (g *goSide) event() string {
	if err := g.cq.WaitEvent(g.t.Context()); err != nil {
		return err.Error()
	}
	return "event"
}

func (g *goSide) resize(n int) string {
	if err := g.cq.Resize(n); err != nil {
		return err.Error()
	}
	return "resized 0"
}

func (g *goSide) reset(psn uint32) string {
	g.modify(uverbs.QPAttr{State: uverbs.StateReset}, 0)
	g.ready(psn)
	return "reset"
}
