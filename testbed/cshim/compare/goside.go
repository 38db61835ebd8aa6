package compare

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/providertest"
	"github.com/goverbs/goverbs/uverbs"
)

// A GoSide is this library.
type GoSide struct {
	PD *uverbs.PD
	QP *uverbs.QP
	AH *uverbs.AH

	t       testing.TB
	program *Program
	cq      *uverbs.CQ
	srq     *uverbs.SRQ
	gid     uverbs.GID
	typ     uverbs.QPType
}

// Must returns v, or fails the test.
func Must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// mark is called before and after what Cost measures.
func mark() { unix.Getuid() }

// NewGo opens a device.
func (p *Program) NewGo(t testing.TB, device string) *GoSide {
	ctx := Must(uverbs.Open(device))(t)
	t.Cleanup(func() {
		if err := ctx.Close(); err != nil {
			t.Error(err)
		}
	})
	g := &GoSide{t: t, program: p, PD: Must(ctx.AllocPD())(t)}
	channel := Must(ctx.CreateCompChannel())(t)
	g.cq = Must(ctx.CreateCQ(uverbs.CQConfig{Entries: entries, Channel: channel}))(t)
	g.gid = Must(ctx.GIDs(1))(t)[p.GID].GID
	g.AH = Must(g.PD.CreateAH(g.address()))(t)
	return g
}

func (g *GoSide) address() uverbs.AHAttr {
	return uverbs.AHAttr{IsGlobal: true, DGID: g.gid, SGIDIndex: uint8(g.program.GID), Port: 1}
}

// Create implements Side, as do the methods below.
func (g *GoSide) Create(s Size, psn uint32) string {
	g.typ = s.Type
	cfg := uverbs.QPConfig{Type: s.Type, SendCQ: g.cq, MaxSendWR: s.Sends, MaxRecvWR: s.Recvs, MaxSendSGE: s.SGEs,
		MaxRecvSGE: s.RecvSGEs, MaxInline: s.Inline, SignalAll: s.SignalAll}
	if s.Shared {
		g.srq = Must(g.PD.CreateSRQ(uverbs.SRQConfig{MaxWR: s.Recvs, MaxSGE: s.RecvSGEs}))(g.t)
		cfg.SRQ, cfg.MaxRecvWR, cfg.MaxRecvSGE = g.srq, 0, 0
	}
	g.QP = Must(g.PD.CreateQP(cfg))(g.t)
	g.ready(psn)
	c := g.QP.Cap()
	if g.program.Sizes {
		return fmt.Sprintf("QP %d, %d sends, %d receives", g.QP.QPN(), c.MaxSendWR, c.MaxRecvWR)
	}
	if c.MaxSendWR != s.Sends || !s.Shared && c.MaxRecvWR != s.Recvs {
		g.t.Errorf("the QP has the sizes %+v, want %+v", c, s)
	}
	return fmt.Sprintf("QP %d", g.QP.QPN())
}

func (g *GoSide) modify(a uverbs.QPAttr, m uverbs.QPMask) {
	g.t.Helper()
	if err := g.QP.Modify(a, m|uverbs.MaskState); err != nil {
		g.t.Fatal(err)
	}
}

func (g *GoSide) ready(psn uint32) {
	if g.typ != uverbs.RC {
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

// Send posts.
func (g *GoSide) Send(list []uverbs.SendWR, batch bool) string {
	for i := range list {
		if g.typ != uverbs.RC || !batch {
			list[i].AH = g.AH // which PostSend leaves alone on RC
		}
	}
	if !batch {
		mark()
		n, err := g.QP.PostSend(list...)
		mark()
		return fmt.Sprintf("posted %d, failed %d", n, number(err != nil))
	}
	b := g.QP.StartSend()
	for i := range list {
		if err := providertest.Add(&b, &list[i]); err != nil {
			g.t.Fatal(err)
		}
	}
	if err := b.Submit(); err != nil {
		return "posted 0, failed 1"
	}
	return fmt.Sprintf("posted %d, failed 0", len(list))
}

// Recv posts.
func (g *GoSide) Recv(list []uverbs.RecvWR) string {
	post := g.QP.PostRecv
	if g.srq != nil {
		post = g.srq.PostRecv
	}
	mark()
	n, err := post(list...)
	mark()
	return fmt.Sprintf("posted %d, failed %d", n, number(err != nil))
}

// Poll polls.
func (g *GoSide) Poll(n int) string {
	wcs := make([]uverbs.WC, n)
	mark()
	n, err := g.cq.Poll(wcs)
	mark()
	if err != nil {
		g.t.Fatal(err)
	}
	s := fmt.Sprintf("polled %d", n)
	for i := range wcs[:n] {
		wc := &wcs[i]
		if g.program.As != nil {
			g.program.As(wc)
		}
		s += fmt.Sprintf("; %d %d %d %d", wc.WRID, wc.Status, wc.VendorErr, wc.QPNum)
		if wc.Status == uverbs.WCSuccess || g.program.Whole {
			flags := number(wc.Flags&uverbs.WCGRH != 0) | 2*number(wc.Flags&uverbs.WCWithImm != 0) |
				8*number(wc.Flags&uverbs.WCWithInv != 0)
			s += fmt.Sprintf(" %d %d %d %d %d %d", wc.Opcode, wc.ByteLen, wc.SrcQP, wc.SLID, wc.Imm, flags)
		}
	}
	return s
}

// Arm arms the CQ.
func (g *GoSide) Arm(solicited bool) string {
	if err := g.cq.Arm(solicited); err != nil {
		return err.Error()
	}
	return "armed 0"
}

// Event reads an event.
func (g *GoSide) Event() string {
	if err := g.cq.WaitEvent(g.t.Context()); err != nil {
		return err.Error()
	}
	return "event"
}

// Resize resizes the CQ.
func (g *GoSide) Resize(entries int) string {
	if err := g.cq.Resize(entries); err != nil {
		return err.Error()
	}
	return "resized 0"
}

// Err moves the QP to ERR.
func (g *GoSide) Err() string {
	g.modify(uverbs.QPAttr{State: uverbs.StateErr}, 0)
	return "error"
}

// Close closes the QP.
func (g *GoSide) Close() string {
	if err := g.QP.Close(); err != nil {
		return err.Error()
	}
	return "closed"
}

// Reset moves the QP to RESET and back to RTS.
func (g *GoSide) Reset(psn uint32) string {
	g.modify(uverbs.QPAttr{State: uverbs.StateReset}, 0)
	g.ready(psn)
	return "reset"
}
