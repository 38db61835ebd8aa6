//go:build vm

package efa_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakeefa"
	"github.com/goverbs/goverbs/testbed/cshim"
	"github.com/goverbs/goverbs/uverbs"
)

// A side is a program that executes steps on a device and says what it observes: one in C, one in Go.
type side interface {
	create(q qpSize) string
	send(list []request, batch bool) string
	recv(list []receive) string
	poll(n int) string
	arm() string
	event() string
	reset() string
}

type qpSize struct {
	typ                                  uverbs.QPType
	sends, recvs, sges, recvSGEs, inline int
	signalAll                            bool
}

type request struct {
	op             uverbs.Opcode
	unsignaled     bool
	id, raddr      uint64
	imm, rkey, qpn uint32
	qkey           uint32
	inline         int // bytes; 0: SGEs
	sges           []uverbs.SGE
}

type receive struct {
	id   uint64
	sges []uverbs.SGE
}

// inlineData is what C's program sends.
var inlineData = func() (b [256]byte) {
	for i := range b {
		b[i] = byte(i*7 + 1)
	}
	return b
}()

// cSide is C's program: play/play.c.
type cSide struct{ *cshim.Script }

func newC(t *testing.T, d *fakeefa.Device) *cSide {
	h := cshim.NewEFA(t, d)
	return &cSide{h.Script(h.Compile("play/play.c", "efa"), d.Name())}
}

func (c *cSide) create(q qpSize) string {
	return c.Do("qp %s %d %d %d %d %d %d", strings.ToLower(q.typ.String()), q.sends, q.recvs, q.sges, q.recvSGEs, q.inline,
		number(q.signalAll))
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// numbers are the operations in C's program.
var numbers = map[uverbs.Opcode]int{uverbs.OpSend: 0, uverbs.OpSendImm: 1, uverbs.OpRead: 2, uverbs.OpWrite: 3,
	uverbs.OpWriteImm: 4}

func sgeText(list []uverbs.SGE) (s string) {
	for _, e := range list {
		s += fmt.Sprintf(" %d %d %d", e.Addr, e.Length, e.LKey)
	}
	return s
}

// send posts with ibv_post_send, which libefa has for SENDs only, or with ibv_wr_*.
func (c *cSide) send(list []request, batch bool) string {
	step := "post"
	if batch {
		step = "batch"
	}
	for _, r := range list {
		n := len(r.sges)
		if r.inline > 0 {
			n = r.inline
		}
		if numbers[r.op] > 1 {
			step = "batch"
		}
		c.Write("send %d %d %d %d %d %d %d %d %d %d%s", numbers[r.op], number(r.unsignaled), r.id, r.imm, r.raddr, r.rkey,
			r.qpn, r.qkey, number(r.inline > 0), n, sgeText(r.sges))
	}
	return c.Do(step)
}

func (c *cSide) recv(list []receive) string {
	for _, r := range list {
		c.Write("recv %d %d%s", r.id, len(r.sges), sgeText(r.sges))
	}
	return c.Do("postrecv")
}

func (c *cSide) poll(n int) string { return c.Do("poll %d", n) }
func (c *cSide) arm() string       { return c.Do("arm") }
func (c *cSide) event() string     { return c.Do("event") }
func (c *cSide) reset() string     { return c.Do("reset") }

// goSide is this library.
type goSide struct {
	t  *testing.T
	pd *uverbs.PD
	cq *uverbs.CQ
	qp *uverbs.QP
	ah *uverbs.AH
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

func newGo(t *testing.T, d *fakeefa.Device) *goSide {
	ctx := must(uverbs.Open(d.Name()))(t)
	t.Cleanup(func() {
		if err := ctx.Close(); err != nil {
			t.Error(err)
		}
	})
	g := &goSide{t: t, pd: must(ctx.AllocPD())(t)}
	channel := must(ctx.CreateCompChannel())(t)
	g.cq = must(ctx.CreateCQ(uverbs.CQConfig{Entries: 100, Channel: channel}))(t)
	gid := must(ctx.GIDs(1))(t)[0].GID
	g.ah = must(g.pd.CreateAH(uverbs.AHAttr{IsGlobal: true, DGID: gid, Port: 1}))(t)
	return g
}

func (g *goSide) create(q qpSize) string {
	g.qp = must(g.pd.CreateQP(uverbs.QPConfig{Type: q.typ, SendCQ: g.cq, MaxSendWR: q.sends, MaxRecvWR: q.recvs,
		MaxSendSGE: q.sges, MaxRecvSGE: q.recvSGEs, MaxInline: q.inline, SignalAll: q.signalAll, QKey: 17}))(g.t)
	if err := g.qp.Ready(); err != nil {
		g.t.Fatal(err)
	}
	c := g.qp.Cap()
	return fmt.Sprintf("QP %d, %d sends, %d receives", g.qp.QPN(), c.MaxSendWR, c.MaxRecvWR)
}

func (g *goSide) wr(r *request) uverbs.SendWR {
	wr := uverbs.SendWR{WRID: r.id, Opcode: r.op, Flags: uverbs.Signaled, Imm: r.imm, RemoteAddr: r.raddr, RKey: r.rkey,
		AH: g.ah, QPN: r.qpn, QKey: r.qkey, SGL: r.sges}
	if r.unsignaled {
		wr.Flags = 0
	}
	if r.inline > 0 {
		wr.Inline, wr.SGL = inlineData[:r.inline], nil
	}
	return wr
}

func (g *goSide) send(list []request, batch bool) string {
	if batch {
		return g.batch(list)
	}
	var wrs []uverbs.SendWR
	for i := range list {
		wrs = append(wrs, g.wr(&list[i]))
	}
	n, err := g.qp.PostSend(wrs...)
	return fmt.Sprintf("posted %d, failed %d", n, number(err != nil))
}

func (g *goSide) batch(list []request) string {
	b := g.qp.StartSend()
	for i := range list {
		wr := g.wr(&list[i])
		switch wr.Opcode {
		case uverbs.OpSend:
			b.Send(wr.WRID, wr.Flags)
		case uverbs.OpSendImm:
			b.SendImm(wr.WRID, wr.Flags, wr.Imm)
		case uverbs.OpRead:
			b.Read(wr.WRID, wr.Flags, wr.RemoteAddr, wr.RKey)
		case uverbs.OpWrite:
			b.Write(wr.WRID, wr.Flags, wr.RemoteAddr, wr.RKey)
		case uverbs.OpWriteImm:
			b.WriteImm(wr.WRID, wr.Flags, wr.RemoteAddr, wr.RKey, wr.Imm)
		}
		b.UDAddr(wr.AH, wr.QPN, wr.QKey)
		if wr.Inline != nil {
			b.Inline(wr.Inline)
		}
		for _, s := range wr.SGL {
			b.SGE(s)
		}
	}
	if err := b.Submit(); err != nil {
		return "posted 0, failed 1"
	}
	return fmt.Sprintf("posted %d, failed 0", len(list))
}

func (g *goSide) recv(list []receive) string {
	var wrs []uverbs.RecvWR
	for _, r := range list {
		wrs = append(wrs, uverbs.RecvWR{WRID: r.id, SGL: r.sges})
	}
	n, err := g.qp.PostRecv(wrs...)
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
		if wc.Opcode == uverbs.WCRead {
			wc.Opcode = uverbs.WCSend // libefa does not tell them apart
		}
		flags := uint32(0)
		if wc.Flags&uverbs.WCWithImm != 0 {
			flags = 2 // IBV_WC_WITH_IMM
		}
		s += fmt.Sprintf("; %d %d %d %d %d %d %d %d %d %d", wc.WRID, wc.Status, opcodes[wc.Opcode], wc.VendorErr, wc.QPNum,
			wc.ByteLen, wc.SrcQP, wc.SLID, wc.Imm, flags)
	}
	return s
}

// opcodes are the values of C.
var opcodes = map[uverbs.WCOpcode]int{uverbs.WCSend: 0, uverbs.WCWrite: 1, uverbs.WCRecv: 128,
	uverbs.WCRecvRDMAImm: 129}

func (g *goSide) arm() string {
	if err := g.cq.Arm(false); err != nil {
		return err.Error()
	}
	return "armed 0"
}

// event reads an event and arms the CQ again.
func (g *goSide) event() string {
	if err := g.cq.WaitEvent(g.t.Context()); err != nil {
		return err.Error()
	}
	return g.arm()
}

func (g *goSide) reset() string {
	if err := g.qp.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState); err != nil {
		g.t.Fatal(err)
	}
	if err := g.qp.Ready(); err != nil {
		g.t.Fatal(err)
	}
	return "reset"
}
