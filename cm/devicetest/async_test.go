package devicetest

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestDeviceAsync runs all steps with two ids on one channel, and checks the order and
// the fields of each event.
func TestDeviceAsync(t *testing.T) {
	begin(t)
	for name, ip := range map[string]string{"IPv4": deviceIP, "IPv6": deviceV6} {
		t.Run(name, func(t *testing.T) {
			needV6(t)
			walk(t, netip.MustParseAddr(ip))
		})
	}
}

func walk(t *testing.T, ip netip.Addr) {
	k := newTalk(t)
	server, to := k.listen(t, cm.PSTCP, netip.AddrPortFrom(ip, 0))
	server.Context = "the listener's"
	if to.Addr() != ip || to.Port() == 0 || server.Port() != 1 || server.Verbs() == nil || server.PD() == nil {
		t.Errorf("bound to %v: port %d, %p, %p", to, server.Port(), server.Verbs(), server.PD())
	}

	client := k.id(t, cm.PSTCP)
	if client.Verbs() != nil || client.PD() != nil || client.Port() != 0 || client.LocalAddr().IsValid() {
		t.Error("a new id is bound already")
	}
	check(t, client.ResolveAddr(netip.AddrPort{}, to, 0))
	if e := k.good(t, cm.EventAddrResolved, client); e.Listener != nil || e.PrivateData != nil {
		t.Errorf("%+v", e)
	}
	gid := gidOf(t, client.Verbs(), ip)
	if rnic() {
		gid = uverbs.GID{}
	}
	if client.LocalAddr().Addr() != ip || client.RemoteAddr() != to || client.LocalGID() != gid ||
		client.RemoteGID() != gid || client.Verbs() != server.Verbs() || client.PD() != server.PD() {
		t.Errorf("resolved: %v to %v, %v to %v",
			client.LocalAddr(), client.RemoteAddr(), client.LocalGID(), client.RemoteGID())
	}
	check(t, client.CreateQP(nil, small()))
	check(t, client.ResolveRoute(0))
	k.good(t, cm.EventRouteResolved, client)

	check(t, client.Connect(&cm.ConnParam{PrivateData: []byte("question"), ResponderResources: 3, InitiatorDepth: 2,
		RetryCount: 5, RNRRetryCount: 6, FlowControl: true}))
	e := k.good(t, cm.EventConnectRequest, nil)
	child := e.ID
	closing(t, child)
	// The peer sees depth and resources exchanged.
	want := cm.ConnParam{ResponderResources: 2, InitiatorDepth: 3, RetryCount: 5, RNRRetryCount: 6, FlowControl: true,
		QPN: client.QP().QPN()}
	if rnic() { // MPA carries none of these
		want = cm.ConnParam{ResponderResources: 2, InitiatorDepth: 3}
	}
	got := e.Conn
	if e.Listener != server || string(e.PrivateData[:8]) != "question" || !rnic() && len(e.PrivateData) != connectMax {
		t.Errorf("request of %p with %q", e.Listener, e.PrivateData)
	}
	if got.ResponderResources != want.ResponderResources || got.InitiatorDepth != want.InitiatorDepth ||
		got.RetryCount != want.RetryCount || got.RNRRetryCount != want.RNRRetryCount || got.FlowControl != want.FlowControl ||
		got.SRQ || got.QPN != want.QPN {
		t.Errorf("request %+v, want %+v", got, want)
	}
	if child.Context != "the listener's" || child.RemoteAddr().Addr() != ip || child.LocalAddr() != to ||
		child.LocalGID() != gid || child.RemoteGID() != gid {
		t.Errorf("child %v to %v, context %v", child.LocalAddr(), child.RemoteAddr(), child.Context)
	}
	check(t, child.CreateQP(nil, small()))
	// Accept may lower both values.
	check(t, child.Accept(&cm.ConnParam{PrivateData: []byte("accept"), ResponderResources: 2, InitiatorDepth: 1,
		RNRRetryCount: 4}))
	e = k.established(t, client, child)
	want = cm.ConnParam{QPN: child.QP().QPN(), ResponderResources: 1, InitiatorDepth: 2, RNRRetryCount: 4}
	if rnic() { // siw exchanges both
		want = cm.ConnParam{ResponderResources: 2, InitiatorDepth: 1}
	}
	if got := e.Conn; string(e.PrivateData[:6]) != "accept" || !rnic() && len(e.PrivateData) != acceptMax ||
		got.QPN != want.QPN || got.ResponderResources != want.ResponderResources ||
		got.InitiatorDepth != want.InitiatorDepth || got.RNRRetryCount != want.RNRRetryCount {
		t.Errorf("acceptance %+v with %d bytes: %.6q", got, len(e.PrivateData), e.PrivateData)
	}
	if a, b := rdAtomic(t, client), rdAtomic(t, child); a != [2]uint8{2, 1} || b != [2]uint8{1, 2} {
		t.Errorf("depth and resources of the QPs are %v and %v", a, b)
	}
	carries(t, client, child, "there")
	carries(t, child, client, "and back")
	ending(t, k, client, child)
}

// rdAtomic returns how many READs a QP may have outstanding, and how many it serves.
func rdAtomic(t *testing.T, i *cm.ID) [2]uint8 {
	t.Helper()
	a := must(i.QP().Query(uverbs.MaskMaxRdAtomic | uverbs.MaskMaxDestRdAtomic | uverbs.MaskState))(t)
	if a.State != uverbs.StateRTS {
		t.Errorf("the QP is in %v", a.State)
	}
	if rnic() { // siw exchanges both
		return [2]uint8{a.MaxDestRdAtomic, a.MaxRdAtomic}
	}
	return [2]uint8{a.MaxRdAtomic, a.MaxDestRdAtomic}
}

// ending disconnects: "After successfully disconnecting, an RDMA_CM_EVENT_DISCONNECTED event will be generated on both
// sides" (rdma_disconnect(3)).
func ending(t *testing.T, k talk, client, child *cm.ID) {
	mr := must(client.AllocMsgs(8))(t)
	defer mr.Close()
	check(t, client.PostRecv(1, mr.SGE(0, 8)))
	check(t, child.PostRecv(2, mr.SGE(0, 8)))
	check(t, client.Disconnect())
	if _, err := client.RecvComp(k.ctx); !errors.Is(err, uverbs.WCWRFlushErr) {
		t.Errorf("the receive in the disconnected QP: %v", err)
	}
	if rnic() {
		endingRNIC(t, k, client, child)
		return
	}
	k.disconnected(t, child)
	check(t, child.Disconnect()) // replies: without it the peer waits for a minute
	// The event has already ended the waits: RecvComp does not wait for the flush.
	check(t, child.QP().Drain(k.ctx))
	if _, err := child.RecvComp(k.ctx); !errors.Is(err, uverbs.WCWRFlushErr) {
		t.Errorf("the receive in the other QP: %v", err)
	}
	k.disconnected(t, client)
	check(t, client.Disconnect()) // again
	left := map[*cm.ID]bool{client: true, child: true}
	for len(left) > 0 {
		e := k.good(t, cm.EventTimewaitExit, nil)
		if !left[e.ID] {
			t.Fatalf("%v of %p, which had it, or is no end of it", e.Type, e.ID)
		}
		delete(left, e.ID)
	}
}

// endingRNIC checks what follows Disconnect on iWARP: both ends are notified in any order, and no more.
func endingRNIC(t *testing.T, k talk, client, child *cm.ID) {
	t.Helper()
	first := k.next(t, cm.EventDisconnected, nil).ID
	second := k.next(t, cm.EventDisconnected, nil).ID
	if first == second || first != client && first != child || second != client && second != child {
		t.Errorf("events of %p and %p, want %p and %p", first, second, client, child)
	}
	if _, err := child.RecvComp(k.ctx); !errors.Is(err, uverbs.WCWRFlushErr) {
		t.Errorf("the receive in the other QP: %v", err)
	}
	check(t, client.Disconnect())
}

// disconnected reads the event that a connection has ended.
func (k talk) disconnected(t testing.TB, id *cm.ID) {
	t.Helper()
	isError(t, k.next(t, cm.EventDisconnected, id).Err(), []error{cm.ErrDisconnected, unix.ECONNRESET})
}
