package devicetest

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// An outside is a QP that the program creates and moves itself.
type outside struct {
	qp *uverbs.QP
	cq *uverbs.CQ
	mr *uverbs.MR
}

func newOutside(t *testing.T, pd *uverbs.PD) outside {
	t.Helper()
	var o outside
	o.cq = must(pd.Context().CreateCQ(uverbs.CQConfig{Entries: 16}))(t)
	closing(t, o.cq)
	cfg := small()
	cfg.Type, cfg.SendCQ = uverbs.RC, o.cq
	o.qp = must(pd.CreateQP(cfg))(t)
	closing(t, o.qp)
	o.mr = must(pd.Alloc(128, uverbs.LocalWrite))(t)
	closing(t, o.mr)
	return o
}

// to moves the QP with the attributes of the id.
func (o outside) to(t *testing.T, i *cm.ID, states ...uverbs.QPState) {
	t.Helper()
	for _, s := range states {
		a, m, err := i.InitQPAttr(s)
		check(t, err)
		if a.State != s || m&uverbs.MaskState == 0 {
			t.Fatalf("attributes of %v: %v, mask %#x", s, a.State, m)
		}
		check(t, o.qp.Modify(a, m))
	}
}

// notOutside checks the error of iWARP, whose kernel moves the QPs of connections.
func notOutside(t *testing.T, err error) {
	t.Helper()
	isError(t, err, []error{uverbs.ErrNotSupported}, "iWARP", "CreateQP")
}

// done polls a completion.
func (o outside) done(t *testing.T, wrID uint64) {
	t.Helper()
	var wcs [1]uverbs.WC
	must(o.cq.PollWait(limit(t), wcs[:]))(t)
	if wcs[0].WRID != wrID || wcs[0].Err() != nil {
		t.Fatalf("completion of %d, want %d: %v", wcs[0].WRID, wrID, wcs[0].Err())
	}
}

// TestDeviceExternalQP connects with QPs that the ids have not created: "If a QP has not been created on the
// rdma_cm_id, this function should be called by the active side to complete the connection" (rdma_establish(3)).
func TestDeviceExternalQP(t *testing.T) {
	begin(t)
	k := newTalk(t)
	_, to := k.listen(t, cm.PSTCP, at(deviceIP, 0))
	client := k.id(t, cm.PSTCP)
	_, _, err := client.InitQPAttr(uverbs.StateInit)
	isError(t, err, []error{uverbs.ErrInvalid}, "INIT", "device")
	k.resolve(t, client, to)
	isError(t, client.Connect(nil), []error{cm.ErrNoQP}, "CreateQP")
	a := newOutside(t, client.PD())
	if rnic() {
		notOutside(t, client.Connect(&cm.ConnParam{QPN: a.qp.QPN()}))
		return
	}
	a.to(t, client, uverbs.StateInit)
	attr, mask, err := client.InitQPAttr(uverbs.StateRTR) // the peer is not known yet
	check(t, err)
	isError(t, a.qp.Modify(attr, mask), []error{uverbs.ErrInvalid}, "DestQPN")
	check(t, client.Connect(&cm.ConnParam{QPN: a.qp.QPN(), ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7,
		RNRRetryCount: 7}))
	e := k.good(t, cm.EventConnectRequest, nil)
	child := e.ID
	closing(t, child)
	if e.Conn.QPN != a.qp.QPN() {
		t.Errorf("the request is of QP %d, want %d", e.Conn.QPN, a.qp.QPN())
	}
	b := newOutside(t, child.PD())
	b.to(t, child, uverbs.StateInit, uverbs.StateRTR, uverbs.StateRTS)
	check(t, child.Accept(&cm.ConnParam{QPN: b.qp.QPN(), ResponderResources: 1, InitiatorDepth: 1, RNRRetryCount: 7,
		PrivateData: []byte("come in")}))
	e = k.good(t, cm.EventConnectResponse, client)
	if e.Conn.QPN != b.qp.QPN() || string(e.PrivateData[:7]) != "come in" {
		t.Errorf("the response is of QP %d with %.7q, want %d", e.Conn.QPN, e.PrivateData, b.qp.QPN())
	}
	a.to(t, client, uverbs.StateRTR, uverbs.StateRTS)
	check(t, client.Establish())
	k.good(t, cm.EventEstablished, child)

	must(b.qp.PostRecv(uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{b.mr.SGE(0, 64)}}))(t)
	must(a.qp.PostSend(uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
		Inline: []byte("outside")}))(t)
	a.done(t, 2)
	b.done(t, 1)
	if got := string(b.mr.Bytes()[:7]); got != "outside" {
		t.Errorf("%q arrived", got)
	}
	for _, i := range []*cm.ID{client, child} {
		isError(t, i.PostRecv(1, uverbs.SGE{}), []error{cm.ErrNoQP}, "CreateQP")
		_, err := i.SendComp(k.ctx)
		isError(t, err, []error{cm.ErrNoQP})
	}
	check(t, client.Disconnect())
	k.disconnected(t, child)
	check(t, child.Disconnect())
	k.disconnected(t, client)
}

// TestDeviceExternalQPSync checks that Connect of a SyncID without a QP returns after the response.
func TestDeviceExternalQPSync(t *testing.T) {
	begin(t)
	l := listenAt(t, deviceIP+":0", nil)
	ctx := limit(t)
	accepted := async(func() (*cm.Conn, error) { return l.Accept(ctx) })
	c := must(cm.NewID(cm.PSTCP))(t)
	closing(t, c)
	check(t, c.ResolveAddr(ctx, netip.AddrPort{}, l.Addr(), 0))
	check(t, c.ResolveRoute(ctx, 0))
	a := newOutside(t, c.PD())
	if rnic() {
		notOutside(t, c.Connect(ctx, &cm.ConnParam{QPN: a.qp.QPN()}))
		check(t, l.Close())
		return
	}
	a.to(t, c.ID, uverbs.StateInit)
	check(t, c.Connect(ctx, &cm.ConnParam{QPN: a.qp.QPN()}))
	if e := c.Event(); e.Type != cm.EventConnectResponse {
		t.Errorf("the event is %v", e.Type)
	}
	a.to(t, c.ID, uverbs.StateRTR, uverbs.StateRTS)
	check(t, c.Establish())
	s := accepted(t)
	closing(t, s)
	isError(t, s.ID().Establish(), []error{uverbs.ErrInvalid}, "has a QP")
	mr := must(s.AllocMsgs(64))(t)
	closing(t, mr)
	check(t, s.PostRecv(1, mr.SGE(0, 64)))
	must(a.qp.PostSend(uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: []byte("x")}))(t)
	a.done(t, 2)
	must(s.RecvComp(ctx))(t)
}

// TestDeviceOwnEverything uses a Context, a PD and CQs of the program.
func TestDeviceOwnEverything(t *testing.T) {
	begin(t)
	dev := must(uverbs.Open(rdmaDevice()))(t)
	closing(t, dev)
	pd := must(dev.AllocPD())(t)
	closing(t, pd)
	cq := must(dev.CreateCQ(uverbs.CQConfig{Entries: 16}))(t)
	closing(t, cq)
	l := listenAt(t, deviceIP+":0", &cm.ListenOptions{Options: cm.Options{QP: small()}})
	cfg := small()
	cfg.SendCQ, cfg.RecvCQ = cq, cq
	client, server := connect(t, l, &cm.Options{PD: pd, QP: cfg})
	if client.PD() != pd || client.QP().PD() != pd || client.QP().SendCQ() != cq || client.QP().RecvCQ() != cq ||
		client.Verbs() == dev {
		t.Error("the connection is not made of what it was given")
	}
	// "This call should only be used on rdma_cm_id's that do not share CQs"
	// (rdma_get_recv_comp(3)).
	for _, comp := range []error{second(client.SendComp(limit(t))), second(client.RecvComp(limit(t)))} {
		isError(t, comp, []error{cm.ErrSharedCQ, unix.EINVAL})
	}
	o := outside{cq: cq}
	mr := must(server.AllocMsgs(64))(t)
	closing(t, mr)
	check(t, server.PostRecv(1, mr.SGE(0, 64)))
	check(t, client.PostSendInline(5, uverbs.Signaled, []byte("own")))
	o.done(t, 5)
	must(server.RecvComp(limit(t)))(t)

	own := must(client.RegMsgs(make([]byte, 64)))(t) // in the PD of the QP
	closing(t, own)
	check(t, client.PostRecv(6, own.SGE(0, 64)))
	check(t, server.PostSendInline(2, uverbs.Signaled, []byte("back")))
	o.done(t, 6)
	// The program's objects stay open.
	check(t, client.Close())
	must(cq.Poll(make([]uverbs.WC, 1)))(t)
	if client.QP() != nil || client.ID().SendCQ() != nil {
		t.Error("the closed id has a QP")
	}
}

func second[T any](_ T, err error) error { return err }

// TestDeviceOneOwnCQ uses one CQ of the program. The id creates the other.
func TestDeviceOneOwnCQ(t *testing.T) {
	begin(t)
	k := newTalk(t)
	_, to := k.listen(t, cm.PSTCP, at(deviceIP, 0))
	client := k.id(t, cm.PSTCP)
	k.resolve(t, client, to)
	cq := must(client.Verbs().CreateCQ(uverbs.CQConfig{Entries: 16}))(t)
	closing(t, cq)
	cfg := small()
	cfg.SendCQ = cq
	check(t, client.CreateQP(nil, cfg))
	if client.RecvCQ() == cq || client.RecvCQ() == nil {
		t.Error("the queue of receives is not the id's own")
	}
	check(t, client.Connect(nil))
	child := k.good(t, cm.EventConnectRequest, nil).ID
	closing(t, child)
	check(t, child.CreateQP(nil, small()))
	check(t, child.Accept(nil))
	k.established(t, client, child)
	carries(t, child, client, "into the own queue")
	isError(t, second(client.SendComp(k.ctx)), []error{cm.ErrSharedCQ})
	check(t, client.DestroyQP())
	check(t, client.DestroyQP())
	check(t, cq.Close())
}

// TestDeviceBadQPs checks that configurations that do not fit the id or the device leave no objects.
func TestDeviceBadQPs(t *testing.T) {
	begin(t)
	k := newTalk(t)
	i := k.id(t, cm.PSTCP)
	isError(t, i.CreateQP(nil, small()), []error{uverbs.ErrInvalid}, "not bound to a device", "Bind")
	isError(t, i.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 1}), []error{uverbs.ErrInvalid}, "not bound")
	isError(t, second(i.AllocMsgs(1)), []error{uverbs.ErrInvalid}, "not bound")
	check(t, i.Bind(at(deviceIP, 0)))
	before := kernelObjects(t)
	cfg := small()
	cfg.Type = uverbs.UD
	isError(t, i.CreateQP(nil, cfg), []error{uverbs.ErrInvalid}, "UD", "RC")
	cfg = small()
	cfg.MaxSendWR = 1 << 30
	isError(t, i.CreateQP(nil, cfg), []error{uverbs.ErrInvalid}, itoa(1<<30))
	cfg = small()
	cfg.MaxInline = 1 << 20
	isError(t, i.CreateQP(nil, cfg), []error{uverbs.ErrInvalid}, "MaxInline")
	sameObjects(t, before)
	check(t, i.CreateQP(nil, small()))
	// "An rdma_cm_id may only be associated with a single QP" (rdma_create_qp(3)).
	if err := i.CreateQP(nil, small()); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("a second QP: %v", err)
	}
	check(t, i.DestroyQP())
	sameObjects(t, before)
}
