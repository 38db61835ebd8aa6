package providertest

import (
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/sim/errtest"
	"github.com/goverbs/goverbs/uverbs"
)

// Device returns a Rig that uses the RDMA device of that name through package uverbs, so that the
// suite tests the device's provider.
func Device(t *testing.T, name string) *Rig {
	t.Helper()
	return device(t, openPD(t, name), uverbs.QPConfig{Type: uverbs.RC})
}

// DeviceUC returns a Rig of a device for RunUC.
func DeviceUC(t *testing.T, name string) *Rig {
	t.Helper()
	return device(t, openPD(t, name), uverbs.QPConfig{Type: uverbs.UC})
}

// DeviceSRQ returns a Rig of a device for RunSRQ.
func DeviceSRQ(t *testing.T, name string) *Rig {
	t.Helper()
	pd := openPD(t, name)
	srq := must(pd.CreateSRQ(uverbs.SRQConfig{MaxWR: MaxRecvWR, MaxSGE: MaxSGE}))(t)
	r := On(t, pd, uverbs.QPConfig{Type: uverbs.RC, SRQ: srq})
	r.ResizeSRQ = func(n int) error { return srq.Modify(uverbs.SRQAttr{MaxWR: n}, uverbs.SRQMaskMaxWR) }
	return r
}

// DeviceUD returns a Rig of a device for RunUD.
func DeviceUD(t *testing.T, name string) *Rig {
	t.Helper()
	return OnUD(t, openPD(t, name))
}

func openPD(t *testing.T, name string) *uverbs.PD {
	t.Helper()
	ctx := must(uverbs.Open(name))(t)
	t.Cleanup(func() { check(t, ctx.Close()) })
	return must(ctx.AllocPD())(t)
}

// On returns a Rig with objects of package uverbs on pd. Its QP is of type cfg.Type: RC or UC. If
// cfg.SRQ is set, the Rig is for RunSRQ. A device that does not read the rings by itself must do
// its work during posts and in r.Work.
func On(t *testing.T, pd *uverbs.PD, cfg uverbs.QPConfig) *Rig {
	t.Helper()
	r := device(t, pd, cfg)
	if srq := cfg.SRQ; srq != nil {
		r.SRQ = deviceSRQ{srq}
		r.SRQSize = func() uverbs.SRQAttr { return must(srq.Query())(t) }
	}
	return r
}

// OnUD returns a Rig with objects of package uverbs on pd, for RunUD.
func OnUD(t *testing.T, pd *uverbs.PD) *Rig {
	t.Helper()
	const qkey = 0x1ee7
	r := device(t, pd, uverbs.QPConfig{Type: uverbs.UD, QKey: qkey})
	q := r.QP.(*deviceQP)
	self := must(q.Endpoint())(t)
	attr := must(q.AHAttr(self))(t)
	r.UDAddr = func(ah *uverbs.AH, qpn, qkey uint32) { q.b.UDAddr(ah, qpn, qkey) }
	r.AH, r.QKey, r.MTU, r.NoGRH = must(pd.CreateAH(attr))(t), qkey, self.MTU.Bytes(), !attr.IsGlobal
	return r
}

func device(t *testing.T, pd *uverbs.PD, cfg uverbs.QPConfig) *Rig {
	t.Helper()
	mr := must(pd.Alloc(64<<10, uverbs.LocalWrite|uverbs.RemoteWrite|uverbs.RemoteRead|uverbs.RemoteAtomic))(t)
	t.Cleanup(func() { check(t, mr.Close()) })
	cq := must(pd.Context().CreateCQ(uverbs.CQConfig{Entries: Entries}))(t)
	cfg.SendCQ, cfg.MaxSendWR, cfg.MaxRecvWR, cfg.MaxInline = cq, MaxSendWR, MaxRecvWR, MaxInline
	cfg.MaxSendSGE, cfg.MaxRecvSGE, cfg.Access = MaxSGE, MaxSGE, uverbs.RemoteWrite|uverbs.RemoteRead|uverbs.RemoteAtomic
	qp := must(pd.CreateQP(cfg))(t)
	q := &deviceQP{t: t, QP: qp, ud: cfg.Type == uverbs.UD}
	q.connect()
	return &Rig{QP: q, CQ: deviceCQ{cq}, Cap: qp.Cap(), QPN: qp.QPN(), Resize: cq.Resize,
		Mem: mr.Bytes(), Addr: mr.Addr(), LKey: mr.LKey(), RKey: mr.RKey()}
}

var check = errtest.Check

func must[T any](v T, err error) func(testing.TB) T { return errtest.Value(v, err) }

// A deviceQP implements provider.QP with a uverbs.QP.
type deviceQP struct {
	*uverbs.QP
	t  *testing.T
	b  uverbs.SendBatch
	ud bool

	last uverbs.SendWR // the operation that was added last, or whose operands are still missing
	sgl  [1]uverbs.SGE // its SGL
}

func (q *deviceQP) connect() {
	q.t.Helper()
	if q.ud {
		check(q.t, q.QP.Ready())
		return
	}
	check(q.t, q.QP.Connect(must(q.QP.Endpoint())(q.t)))
}

func (q *deviceQP) PostSend(wrs []uverbs.SendWR) (int, error) { return q.QP.PostSend(wrs...) }
func (q *deviceQP) PostRecv(wrs []uverbs.RecvWR) (int, error) { return q.QP.PostRecv(wrs...) }

func (q *deviceQP) Begin() { q.b = q.QP.StartSend() }
func (q *deviceQP) Atomic(compareAdd, swap uint64) {
	q.last.CompareAdd, q.last.Swap = compareAdd, swap
	q.add()
}

func (q *deviceQP) Flush(n uint32, placement, selectivity uint8) {
	q.last.FlushLength, q.last.Placement = n, uverbs.Placement(placement)
	q.last.Selectivity = uverbs.Selectivity(selectivity)
	q.add()
}

// Bind fails the test: the suite binds no window.
func (q *deviceQP) Bind(driver.Bind, error) { q.t.Fatal("the suite binds a window") }

// UDAddr fails the test. A uverbs.SendBatch needs the uverbs.AH: see Rig.UDAddr.
func (q *deviceQP) UDAddr(*driver.AH, uint32, uint32) {
	q.t.Fatal("a batch of uverbs needs the whole AH")
}

// DCAddr fails the test likewise.
func (q *deviceQP) DCAddr(*driver.AH, uint32, uint64, uint16) {
	q.t.Fatal("a batch of uverbs needs the whole AH")
}

func (q *deviceQP) SGE(s uverbs.SGE)   { q.b.SGE(s) }
func (q *deviceQP) Inline(data []byte) { q.b.Inline(data) }

func (q *deviceQP) OpSGE(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, s uverbs.SGE) {
	q.sgl[0] = s
	q.last = uverbs.SendWR{WRID: wrID, Opcode: op, Flags: f, RemoteAddr: raddr, RKey: rkey, SGL: q.sgl[:]}
	if !addOnce(&q.b, &q.last) {
		q.Op(op, f, wrID, raddr, rkey, 0)
		q.SGE(s)
	}
}

func (q *deviceQP) OpInline(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, data []byte) {
	q.last = uverbs.SendWR{WRID: wrID, Opcode: op, Flags: f, RemoteAddr: raddr, RKey: rkey, Inline: data}
	if !addOnce(&q.b, &q.last) {
		q.Op(op, f, wrID, raddr, rkey, 0)
		q.Inline(data)
	}
}

func (q *deviceQP) RemoteSRQ(srqn uint32) { q.b.RemoteSRQ(srqn) }
func (q *deviceQP) Submit() error         { return q.b.Submit() }
func (q *deviceQP) Abort()                { q.b.Abort() }

// Op adds an operation, or leaves that to Atomic or Flush.
func (q *deviceQP) Op(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, imm uint32) {
	q.last = uverbs.SendWR{WRID: wrID, Opcode: op, Flags: f, RemoteAddr: raddr, RKey: rkey, Imm: imm, InvalidateRKey: imm}
	switch op {
	case uverbs.OpCompareSwap, uverbs.OpFetchAdd, uverbs.OpFlush, uverbs.OpAtomicWrite:
	default:
		q.add()
	}
}

func (q *deviceQP) add() {
	if addOperation(&q.b, &q.last) != nil { // the batch has no such method: add another operation that is refused
		q.b.Send(q.last.WRID, 1<<7)
	}
}

// Reset moves the QP through RESET to RTS.
func (q *deviceQP) Reset() error {
	q.t.Helper()
	if err := q.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState); err != nil {
		return err
	}
	q.connect()
	return nil
}

func (q *deviceQP) Retire(bool) error { return q.Close() }

// Between returns a Rig without memory whose QP sends with a client's QP and receives with that of the server: the two
// ends of a connection, with one CQ.
func Between(t *testing.T, client, server *uverbs.QP, cq *uverbs.CQ) *Rig {
	q := &betweenQP{deviceQP: deviceQP{t: t, QP: client}, server: server}
	return &Rig{QP: q, CQ: betweenCQ{deviceCQ{cq}, q}, Cap: client.Cap(), QPN: client.QPN()}
}

type betweenQP struct {
	deviceQP
	server *uverbs.QP
}

func (q *betweenQP) PostRecv(wrs []uverbs.RecvWR) (int, error) { return q.server.PostRecv(wrs...) }

// A betweenCQ returns the completions of both QPs as those of the client's.
type betweenCQ struct {
	deviceCQ
	q *betweenQP
}

func (c betweenCQ) Poll(wcs []uverbs.WC) (int, error) {
	n, err := c.deviceCQ.Poll(wcs)
	for i := range wcs[:n] {
		if wcs[i].QPNum == c.q.server.QPN() {
			wcs[i].QPNum = c.q.QPN()
		}
	}
	return n, err
}

// A deviceSRQ implements provider.SRQ with a uverbs.SRQ.
type deviceSRQ struct{ *uverbs.SRQ }

func (s deviceSRQ) PostRecv(wrs []uverbs.RecvWR) (int, error) { return s.SRQ.PostRecv(wrs...) }

func (s deviceSRQ) Modify(maxWR int, _ driver.Command) error {
	return s.SRQ.Modify(uverbs.SRQAttr{MaxWR: maxWR}, uverbs.SRQMaskMaxWR)
}

func (s deviceSRQ) Retire() error { return s.Close() }

// A deviceCQ implements provider.CQ with a uverbs.CQ.
type deviceCQ struct{ *uverbs.CQ }

func (q deviceCQ) Arm(solicitedOnly bool, _ uint32) error { return q.CQ.Arm(solicitedOnly) }

// Ready is not used by the suite. Package uverbs has no such method.
func (q deviceCQ) Ready() bool { return false }

func (q deviceCQ) Resize(entries int, _ driver.ResizeCommand) (driver.Reply, error) {
	err := q.CQ.Resize(entries)
	return driver.Reply{Entries: q.Entries()}, err
}

// Fail does nothing: uverbs fails the queue when the device is removed.
func (q deviceCQ) Fail(error) {}

func (q deviceCQ) Retire(bool) error { return q.Close() }
