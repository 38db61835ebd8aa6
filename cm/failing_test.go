package cm

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/sim/failtest"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

type failures map[string]failtest.Failure

// add adds calls that fail with the same error.
func (all failures) add(want error, calls map[string]error) {
	for name, err := range calls {
		all[name] = failtest.Failure{Err: err, Want: want}
	}
}

// kernel adds a call that returns the kernel's error, here EPERM.
func (all failures) kernel(name string, err error) {
	all[name] = failtest.Failure{Err: err, Want: unix.EPERM, Doc: "what the kernel says"}
}

// TestEveryFunctionFails checks that each exported function that returns an error fails in one of the calls below, and
// that its comment, or the comment of a function that it refers to, lists the error.
func TestEveryFunctionFails(t *testing.T) {
	all := failures{}
	for name, add := range map[string]func(*testing.T, failures){"closed": failClosed, "unbound": failUnbound,
		"memory": failMemory, "options": failOptions, "no QP": failNoQP, "sync": failSync, "dial": failDial, "peer": failPeer,
		"busy": failBusy, "kernel": failKernel, "other": failOther} {
		t.Run(name, func(t *testing.T) { add(t, all) })
	}
	p := &failtest.Package{Failures: all, Names: map[error]string{
		ErrRejected: "[ErrRejected]", ErrUnreachable: "[ErrUnreachable]", ErrTimeout: "[ErrTimeout]",
		ErrDisconnected: "[ErrDisconnected]",
		ErrPrivateData:  "[ErrPrivateData]", ErrNoQP: "[ErrNoQP]", ErrSharedCQ: "[ErrSharedCQ]",
		ErrListenerClosed: "[ErrListenerClosed]", uverbs.ErrClosed: "[uverbs.ErrClosed]", uverbs.ErrBusy: "[uverbs.ErrBusy]",
		uverbs.ErrInvalid: "[uverbs.ErrInvalid]", uverbs.ErrNotSupported: "[uverbs.ErrNotSupported]",
		uverbs.ErrNoDevice: "[uverbs.ErrNoDevice]", uverbs.ErrNoNode: "[uverbs.ErrNoNode]",
		context.Canceled: "the cause of the context's end",
	}}
	p.Check(t)
}

// failClosed calls methods of closed objects.
func failClosed(t *testing.T, all failures) {
	newRig(t)
	k, ctx := newTalk(t), limit(t)
	i, s := k.id(PSTCP), newSyncID(t, PSTCP)
	check(t, i.Bind(at(here, 0)))
	check(t, i.Close())
	check(t, s.Close())
	gone := good(NewEventChannel())(t)
	check(t, gone.Close())
	l, m := good(Listen("192.0.2.1:0", nil))(t), good(Listen("192.0.2.1:0", manual))(t)
	check(t, l.Close())
	check(t, m.Close())
	g := good(JoinMulticast(ctx, group.String(), &Options{LocalAddr: at(here, 0)}))(t)
	check(t, g.Close())
	all.add(uverbs.ErrClosed, map[string]error{
		"EventChannel.Next":     second(gone.Next(ctx)),
		"EventChannel.CreateID": second(gone.CreateID(PSTCP)),
		"ID.Services":           second(i.Services()),
		"ID.Paths":              second(i.Paths()),
		"ID.SetTOS":             i.SetTOS(1),
		"ID.Migrate":            i.Migrate(k.EventChannel),
		"ID.Err":                i.Err(),
		"SyncID.Err":            s.Err(),
	})
	failClosedGroup(all, g)
	failClosedConn(t, all)
	all.add(ErrListenerClosed, map[string]error{
		"SyncID.GetRequest": second(s.GetRequest(ctx)),
		"Listener.Accept":   second(l.Accept(ctx)),
		"Listener.Request":  second(m.Request(ctx)),
	})
}

// failClosedGroup calls methods of a closed Group.
func failClosedGroup(all failures, g *Group) {
	ctx, b := context.Background(), make([]byte, 8)
	var sge uverbs.SGE
	all.add(uverbs.ErrClosed, map[string]error{
		"Group.Err":       g.Err(),
		"Group.AllocMsgs": second(g.AllocMsgs(8)),
		"Group.RegMsgs":   second(g.RegMsgs(b)),
		"Group.PostRecv":  g.PostRecv(1, sge),
		"Group.PostSend":  g.PostSend(1, 0, sge),
		"Group.SendComp":  second(g.SendComp(ctx)),
		"Group.RecvComp":  second(g.RecvComp(ctx)),
	})
}

// failClosedConn calls methods of a closed Conn.
func failClosedConn(t *testing.T, all failures) {
	ctx, b := limit(t), make([]byte, 8)
	l := closing(t, good(Listen("192.0.2.1:0", manual))(t))
	req, dialed := dialRequest(t, l)
	closing(t, good(req.Accept(ctx, nil))(t))
	c := good(dialed())(t)
	check(t, c.Close())
	var sge uverbs.SGE
	all.add(uverbs.ErrClosed, map[string]error{
		"Conn.Err":             c.Err(),
		"Conn.Disconnect":      c.Disconnect(ctx),
		"Conn.Shutdown":        c.Shutdown(ctx),
		"Conn.AllocMsgs":       second(c.AllocMsgs(8)),
		"Conn.AllocRead":       second(c.AllocRead(8)),
		"Conn.AllocWrite":      second(c.AllocWrite(8)),
		"Conn.RegMsgs":         second(c.RegMsgs(b)),
		"Conn.RegRead":         second(c.RegRead(b)),
		"Conn.RegWrite":        second(c.RegWrite(b)),
		"Conn.PostRecv":        c.PostRecv(1, sge),
		"Conn.PostSend":        c.PostSend(1, 0, sge),
		"Conn.PostSendInline":  c.PostSendInline(1, 0, nil),
		"Conn.PostRead":        c.PostRead(1, 0, 0, 0, sge),
		"Conn.PostWrite":       c.PostWrite(1, 0, 0, 0, sge),
		"Conn.PostWriteInline": c.PostWriteInline(1, 0, 0, 0, nil),
		"Conn.PostWriteImm":    c.PostWriteImm(1, 0, 0, 0, 0, sge),
		"Conn.SendComp":        second(c.SendComp(ctx)),
		"Conn.RecvComp":        second(c.RecvComp(ctx)),
	})
}

// failUnbound calls methods that need a bound id, on an id without a device.
func failUnbound(t *testing.T, all failures) {
	newRig(t)
	k := newTalk(t)
	i, ib := k.id(PSTCP), k.id(PSIB)
	all.add(uverbs.ErrInvalid, map[string]error{
		"EventChannel.CreateIDFor": second(k.CreateIDFor(PSTCP, uverbs.UD)),
		"ID.BindIB":                ib.BindIB(IBAddr{}),
		"ListenIB":                 second(ListenIB(IBAddr{}, nil)),
		"DialIB":                   second(DialIB(limit(t), IBAddr{}, &Options{LocalIB: &IBAddr{}})),
		"SyncID.ResolveIB":         newSyncID(t, PSTCP).ResolveIB(limit(t), &IBAddr{}, IBAddr{}, 0),
		"ID.ResolveIB":             ib.ResolveIB(&IBAddr{}, IBAddr{}, 0),
		"ID.ResolveRoute":          i.ResolveRoute(0),
		"ID.ResolveService":        i.ResolveService(fmt.Sprintf("%064d", 0), 0),
		"ID.Listen":                i.Listen(-1),
		"ID.RejectECE":             i.RejectECE(nil),
		"ID.Disconnect":            i.Disconnect(),
		"ID.Establish":             i.Establish(),
		"ID.Notify":                i.Notify(uverbs.EventCommEst),
		"ID.InitQPAttr":            third(i.InitQPAttr(uverbs.StateInit)),
		"ID.JoinMulticast":         second(i.JoinMulticast(here, JoinFull)),
		"ID.JoinMulticastIB":       second(i.JoinMulticastIB(IBAddr{}, JoinFull)),
		"ID.CreateQP":              i.CreateQP(nil, small),
		"ID.CreateSRQ":             i.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 4}),
	})
	all.add(uverbs.ErrNoDevice, map[string]error{"ID.Bind": k.id(PSTCP).Bind(nowhere)})
	all.add(ErrUnreachable, map[string]error{"ID.ResolveAddr": i.ResolveAddr(netip.AddrPort{}, nowhere, 0)})
	all.add(ErrPrivateData, map[string]error{"ID.Reject": i.Reject(make([]byte, 256))})
}

// failMemory registers and allocates memory without a device.
func failMemory(t *testing.T, all failures) {
	newRig(t)
	i, b := newTalk(t).id(PSTCP), make([]byte, 8)
	all.add(uverbs.ErrInvalid, map[string]error{
		"ID.RegMsgs":    second(i.RegMsgs(b)),
		"ID.RegRead":    second(i.RegRead(b)),
		"ID.RegWrite":   second(i.RegWrite(b)),
		"ID.AllocMsgs":  second(i.AllocMsgs(8)),
		"ID.AllocRead":  second(i.AllocRead(8)),
		"ID.AllocWrite": second(i.AllocWrite(8)),
	})
}

// failOptions sets options that are out of range, or in a state in which they are refused.
func failOptions(t *testing.T, all failures) {
	newRig(t)
	k := newTalk(t)
	i, l := k.id(PSTCP), k.listen(PSTCP)
	all.add(uverbs.ErrInvalid, map[string]error{
		"ID.SetReuseAddr":  l.SetReuseAddr(true),
		"ID.SetAFOnly":     l.SetAFOnly(true),
		"ID.SetAckTimeout": i.SetAckTimeout(32),
		"ID.SetPaths":      i.SetPaths([]PathRecord{{}}),
		"ID.SetLocalECE":   i.SetLocalECE(ECE{}),
		"ID.Sync":          second(l.Sync()),
	})
}

// failNoQP posts and waits without a QP.
func failNoQP(t *testing.T, all failures) {
	newRig(t)
	k, ctx := newTalk(t), limit(t)
	i := k.id(PSUDP)
	check(t, i.Bind(at(here, 0)))
	var sge uverbs.SGE
	all.add(ErrNoQP, map[string]error{
		"ID.Accept":           i.Accept(nil),
		"ID.PostRecv":         i.PostRecv(1, sge),
		"ID.PostSend":         i.PostSend(1, 0, sge),
		"ID.PostSendInline":   i.PostSendInline(1, 0, nil),
		"ID.PostRead":         i.PostRead(1, 0, 0, 0, sge),
		"ID.PostWrite":        i.PostWrite(1, 0, 0, 0, sge),
		"ID.PostWriteImm":     i.PostWriteImm(1, 0, 0, 0, 0, sge),
		"ID.PostWriteInline":  i.PostWriteInline(1, 0, 0, 0, nil),
		"ID.PostUDSend":       i.PostUDSend(1, 0, nil, 1, sge),
		"ID.PostUDSendInline": i.PostUDSendInline(1, 0, nil, 1, nil),
		"ID.RecvComp":         second(i.RecvComp(ctx)),
	})
	cfg := small
	cfg.SendCQ = closing(t, good(i.Verbs().CreateCQ(uverbs.CQConfig{Entries: 4}))(t))
	check(t, i.CreateQP(nil, cfg))
	all.add(ErrSharedCQ, map[string]error{"ID.SendComp": second(i.SendComp(ctx))})
	check(t, i.DestroyQP())
}

// failSync calls methods that wait.
func failSync(t *testing.T, all failures) {
	r := newRig(t)
	ctx := limit(t)
	s, u := newSyncID(t, PSTCP), newSyncID(t, PSUDP)
	all.add(uverbs.ErrInvalid, map[string]error{
		"NewID":                second(NewID(7)),
		"NewIDFor":             second(NewIDFor(PSTCP, uverbs.UD)),
		"SyncID.ResolveRoute":  s.ResolveRoute(ctx, 0),
		"SyncID.SetPaths":      s.SetPaths(ctx, []PathRecord{{}}),
		"SyncID.Accept":        s.Accept(ctx, nil),
		"SyncID.Establish":     s.Establish(),
		"SyncID.Disconnect":    s.Disconnect(ctx),
		"SyncID.JoinMulticast": second(u.JoinMulticast(ctx, here, JoinFull)),
	})
	all.add(ErrTimeout, map[string]error{"SyncID.ResolveAddr": s.ResolveAddr(ctx, netip.AddrPort{}, silent, 0)})
	r.Set(func() { r.NoServices, r.Refuse["WRITE_CM_EVENT"] = true, unix.EINVAL })
	all.add(uverbs.ErrNotSupported, map[string]error{
		"SyncID.ResolveService": u.ResolveService(ctx, "storage", 0),
		"ID.WriteEvent":         newTalk(t).id(PSUDP).WriteEvent(0, 1),
	})
	l := syncListener(t, PSTCP)
	a := readyID(t, l)
	check(t, l.Close())
	all.add(ErrRejected, map[string]error{"SyncID.Connect": a.Connect(ctx, nil)})
}

// failDial calls the functions of the highest level.
func failDial(t *testing.T, all failures) {
	newRig(t)
	ctx := limit(t)
	all.add(uverbs.ErrInvalid, map[string]error{
		"GetAddrInfo":   second(GetAddrInfo(ctx, "", "5", nil)),
		"JoinMulticast": second(JoinMulticast(ctx, "192.0.2.1", nil)),
	})
	all.add(uverbs.ErrNoDevice, map[string]error{"Listen": second(Listen(nowhere.String(), nil))})
	all.add(ErrUnreachable, map[string]error{"CreateEP": second(CreateEP(ctx, &AddrInfo{Dst: nowhere}, nil, nil))})
	all.add(ErrRejected, map[string]error{"Dial": second(Dial(ctx, "192.0.2.1:5", nil))})
	all.add(ErrDisconnected, map[string]error{"Event.Err": (&Event{Type: EventDisconnected}).Err()})
}

// dialRequest dials a listener. The function that it returns waits for the connection.
func dialRequest(t *testing.T, l *Listener) (*Request, func() (*Conn, error)) {
	t.Helper()
	ctx := limit(t)
	var c *Conn
	done := make(chan error, 1)
	go func() {
		var err error
		c, err = Dial(ctx, l.Addr().String(), nil)
		done <- err
	}()
	req := good(l.Request(ctx))(t)
	return req, func() (*Conn, error) { err := <-done; return c, err }
}

// failPeer sends too much private data, and calls methods that need a peer on ids without one.
func failPeer(t *testing.T, all failures) {
	newRig(t)
	ctx := limit(t)
	l := closing(t, good(Listen("192.0.2.1:0", manual))(t))
	data := make([]byte, 256)
	first, dialed := dialRequest(t, l)
	all.add(ErrPrivateData, map[string]error{"Request.Accept": second(first.Accept(ctx, &Options{PrivateData: data}))})
	is(t, "a peer that is not accepted", second(dialed()), ErrRejected)
	next, dialed := dialRequest(t, l)
	all.add(ErrPrivateData, map[string]error{"Request.Reject": next.Reject(data)})
	is(t, "a peer that is rejected", second(dialed()), ErrRejected)
	i := newTalk(t).resolved(PSTCP, l.Addr())
	all.add(ErrPrivateData, map[string]error{"ID.Connect": i.Connect(&ConnParam{QPN: 5, PrivateData: data})})
}

// failBusy closes objects that are in use.
func failBusy(t *testing.T, all failures) {
	newRig(t)
	k := newTalk(t)
	i, l := k.id(PSUDP), closing(t, good(Listen("192.0.2.1:0", nil))(t))
	check(t, i.Bind(at(here, 0)))
	cfg := small
	for name, s := range map[string]*ID{"ID.Close": i, "Listener.Close": l.ID().ID} {
		check(t, s.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 4}))
		user := k.id(PSUDP)
		check(t, user.Bind(at(here, 0)))
		cfg.SRQ = s.SRQ()
		check(t, user.CreateQP(nil, cfg))
		end := s.Close
		if name == "Listener.Close" {
			end = l.Close
		}
		all.add(uverbs.ErrBusy, map[string]error{name: end(), "ID.DestroySRQ": s.DestroySRQ()})
	}
	all.add(uverbs.ErrBusy, map[string]error{"EventChannel.Close": k.Close()})
}

// failKernel makes the kernel refuse commands.
func failKernel(t *testing.T, all failures) {
	r := newRig(t)
	ctx := limit(t)
	refused := func(close func() error) error {
		dev := r.loop().k
		n := len(dev.Log()) + 1
		dev.Set(func() { dev.FailAt, dev.FailWith = n, unix.EPERM })
		defer dev.Set(func() { dev.FailAt = 0 })
		return close()
	}
	i, u := newTalk(t).id(PSTCP), newSyncID(t, PSUDP)
	check(t, i.Bind(at(here, 0)))
	check(t, i.CreateQP(nil, small))
	all.kernel("ID.DestroyQP", refused(i.DestroyQP))
	g := closing(t, good(JoinMulticast(ctx, group.String(), &Options{LocalAddr: at(here, 0)}))(t))
	all.kernel("Group.Close", refused(g.Close))

	l := closing(t, good(Listen("192.0.2.1:0", manual))(t))
	first, dialed := dialRequest(t, l)
	check(t, first.ID().CreateQP(nil, small))
	all.kernel("Request.Close", refused(first.Close))
	check(t, first.Close())
	is(t, "a peer that is refused", second(dialed()), ErrRejected)
	next, dialed := dialRequest(t, l)
	closing(t, good(next.Accept(ctx, nil))(t))
	c := closing(t, good(dialed())(t))
	all.kernel("Conn.Close", refused(c.Close))

	check(t, u.ResolveAddr(ctx, at(here, 0), netip.AddrPortFrom(group, 0), 0))
	m := good(u.JoinMulticast(ctx, group, JoinFull))(t)
	r.Set(func() { r.Refuse["LEAVE_MCAST"] = unix.EPERM })
	all.kernel("Membership.Leave", m.Leave())
	r.Set(func() { clear(r.Refuse) })
}

// failOther replaces the functions that give access to the machine.
func failOther(t *testing.T, all failures) {
	r := newRig(t)
	r.lenient = true // the list releases a device that cannot be closed
	list := listDevices
	t.Cleanup(func() { listDevices = list })
	listDevices = func() ([]uverbs.Device, error) { return nil, uverbs.ErrNoDevice }
	all.add(uverbs.ErrNoDevice, map[string]error{"Devices": second(Devices())})
	listDevices = func() ([]uverbs.Device, error) { return []uverbs.Device{{Name: "loop0"}}, nil }
	devices := good(Devices())(t)
	dev := r.loop().k
	n := len(dev.Log()) + 1
	dev.Set(func() { dev.FailAt, dev.FailWith = n, unix.EPERM })
	all.kernel("DeviceList.Close", devices.Close())
	openFile = func() (*rdmacm.File, error) { return nil, rdmacm.ErrNoNode } // until the rig ends
	all.add(uverbs.ErrNoNode, map[string]error{"NewEventChannel": second(NewEventChannel())})
}
