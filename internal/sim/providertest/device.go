package providertest

import (
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
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

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A deviceQP implements provider.QP with a uverbs.QP.
type deviceQP struct {
	*uverbs.QP
	t  *testing.T
	b  uverbs.SendBatch
	ud bool

	pending pending
}

// pending is an operation whose attributes a provider gets in two calls.
type pending struct {
	op    uverbs.Opcode
	f     uverbs.SendFlags
	wrID  uint64
	raddr uint64
	rkey  uint32
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
	switch op := q.pending; op.op {
	case uverbs.OpCompareSwap:
		q.b.CompareSwap(op.wrID, op.f, op.raddr, op.rkey, compareAdd, swap)
	case uverbs.OpFetchAdd:
		q.b.FetchAdd(op.wrID, op.f, op.raddr, op.rkey, compareAdd)
	case uverbs.OpAtomicWrite:
		q.b.AtomicWrite(op.wrID, op.f, op.raddr, op.rkey, swap)
	}
}

func (q *deviceQP) Flush(n uint32, placement, selectivity uint8) {
	q.b.Flush(q.pending.wrID, q.pending.f, q.pending.raddr, q.pending.rkey, n, uverbs.Placement(placement),
		uverbs.Selectivity(selectivity))
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
	switch op {
	case uverbs.OpSend:
		q.b.SendSGE(wrID, f, s)
	case uverbs.OpWrite:
		q.b.WriteSGE(wrID, f, raddr, rkey, s)
	case uverbs.OpRead:
		q.b.ReadSGE(wrID, f, raddr, rkey, s)
	default:
		q.Op(op, f, wrID, raddr, rkey, 0)
		q.SGE(s)
	}
}

func (q *deviceQP) OpInline(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, data []byte) {
	switch op {
	case uverbs.OpSend:
		q.b.SendInline(wrID, f, data)
	case uverbs.OpWrite:
		q.b.WriteInline(wrID, f, raddr, rkey, data)
	default:
		q.Op(op, f, wrID, raddr, rkey, 0)
		q.Inline(data)
	}
}

func (q *deviceQP) RemoteSRQ(srqn uint32) { q.b.RemoteSRQ(srqn) }
func (q *deviceQP) Submit() error         { return q.b.Submit() }
func (q *deviceQP) Abort()                { q.b.Abort() }

func (q *deviceQP) Op(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, imm uint32) {
	switch op {
	case uverbs.OpSend:
		q.b.Send(wrID, f)
	case uverbs.OpSendImm:
		q.b.SendImm(wrID, f, imm)
	case uverbs.OpWrite:
		q.b.Write(wrID, f, raddr, rkey)
	case uverbs.OpWriteImm:
		q.b.WriteImm(wrID, f, raddr, rkey, imm)
	case uverbs.OpRead:
		q.b.Read(wrID, f, raddr, rkey)
	case uverbs.OpSendInv:
		q.b.SendInv(wrID, f, imm)
	case uverbs.OpLocalInv:
		q.b.LocalInv(wrID, f, imm)
	case uverbs.OpCompareSwap, uverbs.OpFetchAdd, uverbs.OpFlush, uverbs.OpAtomicWrite:
		q.pending = pending{op, f, wrID, raddr, rkey}
	default: // the batch has no such method: add another operation that is refused
		q.b.Send(wrID, 1<<7)
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

func (q deviceCQ) Resize(entries int, _ driver.Command) (driver.Reply, error) {
	err := q.CQ.Resize(entries)
	return driver.Reply{Entries: q.Entries()}, err
}

// Fail does nothing: uverbs fails the queue when the device is removed.
func (q deviceCQ) Fail(error) {}

func (q deviceCQ) Retire(bool) error { return q.Close() }
