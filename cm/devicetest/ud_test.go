package devicetest

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// datagram sends a datagram to a UDParam and returns its completion at the receiver and the memory that it was received
// in.
func datagram(t testing.TB, from, to *cm.ID, where cm.UDParam, text string) (uverbs.WC, []byte) {
	t.Helper()
	ctx := limit(t)
	ah := must(from.PD().CreateAH(where.AH))(t)
	defer ah.Close()
	mr := must(to.AllocMsgs(uverbs.GRHLen + 256))(t)
	defer mr.Close()
	check(t, to.PostRecv(3, mr.SGE(0, uverbs.GRHLen+256)))
	check(t, from.PostUDSendInline(4, uverbs.Signaled, ah, where.QPN, []byte(text)))
	if wc := must(from.SendComp(ctx))(t); wc.WRID != 4 {
		t.Errorf("WRID %d", wc.WRID)
	}
	wc := must(to.RecvComp(ctx))(t)
	// IBA vol. 1, 11.4.1.2: the GRH is in "the first 40 bytes", before the data.
	if got := string(mr.Bytes()[uverbs.GRHLen:wc.ByteLen]); got != text || wc.WRID != 3 ||
		(wc.Flags&uverbs.WCGRH != 0) != where.AH.IsGlobal || wc.SrcQP != from.QP().QPN() {
		t.Errorf("%q arrived: %+v", got, wc)
	}
	return wc, append([]byte(nil), mr.Bytes()[:uverbs.GRHLen]...)
}

// TestDeviceUD looks up a peer and exchanges datagrams: "it initiates a lookup of the remote QP providing the datagram
// service" (rdma_connect(3)).
func TestDeviceUD(t *testing.T) {
	begin(t)
	needUD(t)
	needV6(t)
	for name, ip := range map[string]string{"IPv4": deviceIP, "IPv6": deviceV6} {
		t.Run(name, func(t *testing.T) {
			k := newTalk(t)
			_, to := k.listen(t, cm.PSUDP, at(ip, 0))
			client, child := lookUp(t, k, to)
			// "If the QP is unconnected, it will be ready to post sends" (rdma_create_qp(3)).
			for _, i := range []*cm.ID{client, child} {
				if a := must(i.QP().Query(uverbs.MaskState | uverbs.MaskQKey))(t); a.State != uverbs.StateRTS ||
					a.QKey != cm.UDQKey {
					t.Errorf("the QP is in %v with Q_Key %#x", a.State, a.QKey)
				}
			}
			check(t, child.Accept(&cm.ConnParam{PrivateData: []byte("here"), QPN: 77}))
			e := k.good(t, cm.EventEstablished, client)
			carried(t, e.PrivateData, []byte("here"), acceptMaxUD)
			global := !onInfiniBand(t, client.Verbs())
			if e.UD.QPN != child.QP().QPN() || e.UD.QKey != cm.UDQKey || e.UD.AH.Port != 1 ||
				e.UD.AH.IsGlobal != global || global && e.UD.AH.DGID != uverbs.GIDFromAddr(netip.MustParseAddr(ip)) {
				t.Errorf("where to send: %+v", e.UD)
			}
			wc, grh := datagram(t, client, child, e.UD, "question")
			back := must(child.Verbs().AHAttrFromWC(1, &wc, grh))(t)
			datagram(t, child, client, cm.UDParam{AH: back, QPN: wc.SrcQP}, "reply")
		})
	}
}

// lookUp connects to a service and returns before the request is accepted.
func lookUp(t *testing.T, k talk, to netip.AddrPort) (client, child *cm.ID) {
	t.Helper()
	client = k.id(t, cm.PSUDP)
	k.resolve(t, client, to)
	check(t, client.CreateQP(nil, small()))
	tooMuch(t, connectMaxUD, func(b []byte) error { return client.Connect(&cm.ConnParam{PrivateData: b}) })
	ask := data(connectMaxUD)
	check(t, client.Connect(&cm.ConnParam{PrivateData: ask}))
	e := k.good(t, cm.EventConnectRequest, nil)
	closing(t, e.ID)
	carried(t, e.PrivateData, ask, connectMaxUD)
	check(t, e.ID.CreateQP(nil, small()))
	tooMuch(t, rejectMaxUD, e.ID.Reject)
	return client, e.ID
}

// TestDeviceUDSync checks the same with synchronous ids. The listener passes its QP by number and Q_Key.
func TestDeviceUDSync(t *testing.T) {
	begin(t)
	needUD(t)
	ctx := limit(t)
	l := must(cm.NewID(cm.PSUDP))(t)
	closing(t, l)
	check(t, l.Bind(at(deviceIP, 0)))
	check(t, l.CreateQP(nil, small())) // one QP serves all clients
	check(t, l.Listen(0))
	answered := async(func() (int, error) {
		r, err := l.GetRequest(ctx)
		if err != nil {
			return 0, err
		}
		return 0, errors.Join(r.Accept(ctx, &cm.ConnParam{QPN: l.QP().QPN()}), r.Close())
	})
	c := must(cm.NewID(cm.PSUDP))(t)
	closing(t, c)
	check(t, c.ResolveAddr(ctx, netip.AddrPort{}, l.LocalAddr(), 0))
	check(t, c.ResolveRoute(ctx, 0))
	check(t, c.CreateQP(nil, small()))
	check(t, c.Connect(ctx, nil))
	answered(t)
	ud := c.Event().UD
	if ud.QPN != l.QP().QPN() || ud.QKey != cm.UDQKey {
		t.Fatalf("where to send: %+v, want QP %d", ud, l.QP().QPN())
	}
	datagram(t, c.ID, l.ID, ud, "to the listener")
}

// TestDeviceUDQKey checks that the kernel uses the program's Q_Key only for ids of the InfiniBand family. Ids with IP
// addresses reply with the usual Q_Key.
func TestDeviceUDQKey(t *testing.T) {
	begin(t)
	needUD(t)
	k := newTalk(t)
	_, to := k.listen(t, cm.PSUDP, at(deviceIP, 0))
	client := k.id(t, cm.PSUDP)
	k.resolve(t, client, to)
	check(t, client.CreateQP(nil, small()))
	check(t, client.Connect(nil))
	child := k.good(t, cm.EventConnectRequest, nil).ID
	closing(t, child)
	check(t, child.Accept(&cm.ConnParam{QPN: 99, QKey: 0x1234}))
	if e := k.good(t, cm.EventEstablished, client); e.UD.QPN != 99 || e.UD.QKey != cm.UDQKey {
		t.Errorf("where to send: %+v", e.UD)
	}
}

// TestDeviceUDRefused checks the errors if no program listens, and if it rejects the request.
func TestDeviceUDRefused(t *testing.T) {
	begin(t)
	needUD(t)
	k := newTalk(t)
	nobody := k.id(t, cm.PSUDP)
	k.resolve(t, nobody, at(deviceIP, 4000))
	check(t, nobody.CreateQP(nil, small()))
	check(t, nobody.Connect(nil))
	// SIDR statuses are not errnos.
	unlikely := func(err error) {
		t.Helper()
		isError(t, err, []error{cm.ErrRejected, unix.ECONNREFUSED}, deviceIP)
		for _, errno := range []unix.Errno{unix.EPERM, unix.ENOENT, unix.ESRCH} {
			if errors.Is(err, errno) {
				t.Errorf("a status of SIDR is taken for %v: %v", errno, err)
			}
		}
	}
	unlikely(k.next(t, cm.EventUnreachable, nobody).Err())

	_, to := k.listen(t, cm.PSUDP, at(deviceIP, 0))
	client, child := lookUp(t, k, to)
	check(t, child.Reject([]byte("not now")))
	e := k.next(t, cm.EventUnreachable, client)
	carried(t, e.PrivateData, []byte("not now"), rejectMaxUD)
	unlikely(e.Err())
	var own *cm.Error
	if !errors.As(e.Err(), &own) || string(own.PrivateData[:min(7, len(own.PrivateData))]) != "not now" {
		t.Errorf("the peer's words are not in %#v", e.Err())
	}
}

// TestDeviceUDTooMuchDataToAccept checks that the kernel rejects the request then.
func TestDeviceUDTooMuchDataToAccept(t *testing.T) {
	begin(t)
	needUD(t)
	k := newTalk(t)
	_, to := k.listen(t, cm.PSUDP, at(deviceIP, 0))
	client, child := k.request(t, cm.PSUDP, to, nil)
	isError(t, child.Accept(&cm.ConnParam{PrivateData: data(acceptMaxUD + 1)}), []error{cm.ErrPrivateData}, "137 bytes",
		"room for 136")
	k.next(t, cm.EventUnreachable, client)
}

// TestDeviceWriteEvent writes an event: "This call allows an application to write a user-defined event to the event
// channel" (rdma_write_cm_event(3)).
func TestDeviceWriteEvent(t *testing.T) {
	begin(t)
	k := newTalk(t)
	i := k.id(t, cm.PSTCP)
	if err := i.WriteEvent(-7, 1<<40|5); err != nil {
		isError(t, err, []error{uverbs.ErrNotSupported, unix.ENOSYS})
		features.Missing(t, features.CMWriteEvent, err)
	}
	e := k.next(t, cm.EventUser, i)
	if e.Status != -7 || e.Arg != 1<<40|5 {
		t.Errorf("status %d, argument %#x", e.Status, e.Arg)
	}
	// It wakes a waiting Next: "such as waking a thread blocked on the event channel"
	// (rdma_write_cm_event(3)).
	woken := async(func() (*cm.Event, error) { return k.Next(k.ctx) })
	check(t, i.WriteEvent(0, 6))
	if e := woken(t); e.Type != cm.EventUser || e.Arg != 6 || e.Err() != nil {
		t.Errorf("%v with %d: %v", e.Type, e.Arg, e.Err())
	}
}

// TestDeviceResolveService checks the causes of a refused query, for which kernels return EINVAL: the id is not bound,
// or the kernel does not know the command.
func TestDeviceResolveService(t *testing.T) {
	begin(t)
	k := newTalk(t)
	i := k.id(t, cm.PSTCP)
	err := i.ResolveService("storage", 0)
	if errors.Is(err, uverbs.ErrNotSupported) {
		isError(t, err, []error{unix.ENOSYS}, "Linux 6.18")
		_, queryErr := i.Services()
		isError(t, queryErr, []error{uverbs.ErrNotSupported, unix.ENOSYS}, "Linux 6.18")
		features.Missing(t, features.CMServices, err)
	}
	isError(t, err, []error{uverbs.ErrInvalid, unix.EINVAL}, "not bound to a device")
	_, err = i.Services()
	isError(t, err, []error{unix.ENODATA}, "call ResolveService")

	l := k.id(t, cm.PSTCP)
	check(t, l.Bind(at(deviceIP, 0)))
	check(t, l.Listen(0))
	isError(t, l.ResolveService("storage", 0), []error{uverbs.ErrInvalid, unix.EINVAL}, "between Bind and ResolveAddr")
	check(t, i.Bind(at(deviceIP, 0)))
	if port := must(i.Verbs().QueryPort(1))(t); port.LinkLayer == uverbs.LinkEthernet {
		isError(t, i.ResolveService("storage", 0), []error{uverbs.ErrNotSupported, unix.EOPNOTSUPP}, "InfiniBand fabric")
	}
}

// TestDeviceNotify checks that the connection manager accepts "IB_EVENT_COMM_EST", and "If errno is set to EISCONN",
// that it already knew (rdma_notify(3)).
func TestDeviceNotify(t *testing.T) {
	begin(t)
	k := newTalk(t)
	client, child := k.pair(t)
	isError(t, child.Notify(uverbs.EventCommEst), []error{unix.EISCONN})
	isError(t, client.Notify(uverbs.EventPortErr), []error{unix.EINVAL})
	ctx, cancel := context.WithCancel(k.ctx)
	cancel()
	if _, err := k.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Next with an ended context: %v", err)
	}
}
