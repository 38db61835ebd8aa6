package devicetest

import (
	"context"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestDeviceReuseAddr checks SetReuseAddr: "This will allow other users to bind to that same address"
// (rdma_set_option(3)). Without it the port is in use. With it, a second id still cannot listen on the same address.
func TestDeviceReuseAddr(t *testing.T) {
	begin(t)
	needV6(t)
	l := listenAt(t, deviceIP+":0", nil)
	_, err := cm.Listen(l.Addr().String(), nil)
	isError(t, err, []error{unix.EADDRINUSE}, l.Addr().String(), "another id has that address and port", "SetReuseAddr")
	_, err = cm.Listen(l.Addr().String(), &cm.ListenOptions{Options: cm.Options{ReuseAddr: true}})
	isError(t, err, []error{unix.EADDRINUSE}) // the first did not set it
	check(t, l.Close())

	first := listenAt(t, deviceIP+":0", &cm.ListenOptions{Options: cm.Options{ReuseAddr: true}})
	port := itoa(int(first.Addr().Port()))
	// One port, two listeners, different addresses.
	second := listenAt(t, "["+deviceV6+"]:"+port, &cm.ListenOptions{Options: cm.Options{ReuseAddr: true}})
	for _, l := range []*cm.Listener{first, second} {
		client, server := connect(t, l, &cm.Options{QP: small()})
		if server.LocalAddr() != l.Addr() {
			t.Errorf("%v took what was for %v", l.Addr(), server.LocalAddr())
		}
		carries(t, client.ID().ID, server.ID().ID, "shared port")
	}
	// On one address it works as long as none of them listens.
	k := newTalk(t)
	var both [2]*cm.ID
	for n := range both {
		both[n] = k.id(t, cm.PSTCP)
		check(t, both[n].SetReuseAddr(true))
		check(t, both[n].Bind(at(deviceIP, both[0].LocalAddr().Port())))
	}
	isError(t, both[1].Listen(0), []error{unix.EADDRINUSE}, both[0].LocalAddr().String(),
		"another id is bound to that address and port")
	check(t, both[0].Close())
	check(t, both[1].Listen(0))
}

// TestDeviceAFOnly checks that one port can have a listener of each family: "Set IPV6_V6ONLY socket"
// (rdma_set_option(3)).
func TestDeviceAFOnly(t *testing.T) {
	begin(t)
	needV6(t)
	six := listenAt(t, "[::]:0", &cm.ListenOptions{V6Only: true})
	port := six.Addr().Port()
	four := listenAt(t, "0.0.0.0:"+itoa(int(port)), nil)
	for ip, l := range map[string]*cm.Listener{deviceV6: six, deviceIP: four} {
		ctx := limit(t)
		accepted := async(func() (*cm.Conn, error) { return l.Accept(ctx) })
		c := must(cm.Dial(ctx, at(ip, port).String(), nil))(t)
		closing(t, c)
		closing(t, accepted(t))
	}
}

// TestDeviceTOS checks that the type of service becomes the traffic class in the QP's address vector: "Specify the
// quality of service provided by a connection" (rdma_set_option(3)).
func TestDeviceTOS(t *testing.T) {
	begin(t)
	const tos = 0x48
	client, server := connect(t, listenAt(t, deviceIP+":0", nil), &cm.Options{TOS: tos})
	for name, c := range map[string]*cm.Conn{"client": client, "server": server} {
		if a := must(c.QP().Query(uverbs.MaskAV))(t); a.AV.TrafficClass != tos {
			t.Errorf("the traffic class of the %s is %#x", name, a.AV.TrafficClass)
		}
	}
	for _, p := range must(client.ID().Paths())(t) {
		if p.TrafficClass != tos {
			t.Errorf("the path's is %#x", p.TrafficClass)
		}
	}
}

// TestDeviceAckTimeout checks the QP's timeout: "The value calculated according to the formula 4.096 * 2^(ack_timeout)
// usec" (rdma_set_option(3)).
func TestDeviceAckTimeout(t *testing.T) {
	begin(t)
	k := newTalk(t)
	_, to := k.listen(t, cm.PSTCP, at(deviceIP, 0))
	client := k.id(t, cm.PSTCP)
	isError(t, client.SetAckTimeout(32), []error{uverbs.ErrInvalid}, "31")
	check(t, client.SetAckTimeout(19))
	k.resolve(t, client, to)
	check(t, client.CreateQP(nil, small()))
	check(t, client.Connect(nil))
	child := k.good(t, cm.EventConnectRequest, nil).ID
	closing(t, child)
	check(t, child.SetAckTimeout(18))
	check(t, child.CreateQP(nil, small()))
	check(t, child.Accept(nil))
	k.established(t, client, child)
	for id, want := range map[*cm.ID]uint8{client: 19, child: 18} {
		if a := must(id.QP().Query(uverbs.MaskTimeout))(t); a.Timeout != want {
			t.Errorf("the timeout is %d, want %d", a.Timeout, want)
		}
	}
}

// TestDeviceOptionsTooLate sets options in a state in which they are refused.
func TestDeviceOptionsTooLate(t *testing.T) {
	begin(t)
	k := newTalk(t)
	i, _ := k.listen(t, cm.PSTCP, at(deviceIP, 0))
	isError(t, i.SetAFOnly(true), []error{uverbs.ErrInvalid}, "before Bind")
	check(t, i.Close())
	for name, err := range map[string]error{"TOS": i.SetTOS(1), "reuse": i.SetReuseAddr(true), "AF": i.SetAFOnly(true),
		"ack": i.SetAckTimeout(1), "paths": i.SetPaths(nil)} {
		t.Run(name, func(t *testing.T) { isError(t, err, []error{uverbs.ErrClosed}) })
	}
	fresh := k.id(t, cm.PSTCP)
	if p := must(fresh.Paths())(t); len(p) != 0 {
		t.Errorf("a new id has the paths %+v", p)
	}
	isError(t, fresh.SetPaths(nil), []error{uverbs.ErrInvalid})
}

// TestDeviceSetPaths sets the result of Paths of one id as the route of another: "Set IB path record data"
// (rdma_set_option(3)).
func TestDeviceSetPaths(t *testing.T) {
	begin(t)
	k := newTalk(t)
	_, to := k.listen(t, cm.PSTCP, at(deviceIP, 0))
	known := k.id(t, cm.PSTCP)
	k.resolve(t, known, to)
	paths := must(known.Paths())(t)
	gid, mtu := known.LocalGID(), uverbs.MTU1024
	if port := must(known.Verbs().QueryPort(1))(t); port.LinkLayer == uverbs.LinkInfiniBand {
		mtu = port.ActiveMTU
	}
	if len(paths) != 1 || paths[0].SGID != gid || paths[0].DGID != gid || paths[0].MTU != mtu {
		t.Fatalf("paths %+v", paths)
	}
	client := k.id(t, cm.PSTCP)
	check(t, client.ResolveAddr(at(deviceIP, 0), to, 0))
	k.good(t, cm.EventAddrResolved, client)
	check(t, client.SetPaths(paths))
	k.good(t, cm.EventRouteResolved, client)
	if got := must(client.Paths())(t); len(got) != 1 || got[0] != paths[0] {
		t.Errorf("the paths are %+v, want %+v", got, paths)
	}
	check(t, client.CreateQP(nil, small()))
	check(t, client.Connect(nil))
	child := k.good(t, cm.EventConnectRequest, nil).ID
	closing(t, child)
	check(t, child.CreateQP(nil, small()))
	check(t, child.Accept(nil))
	k.established(t, client, child)
	carries(t, client, child, "by a path of another id")
	isError(t, client.SetPaths(paths), []error{uverbs.ErrInvalid}, "past the state")
}

// TestDeviceBacklog checks that the kernel queues as many requests as the backlog allows. It drops others, and their
// senders retry after some seconds.
func TestDeviceBacklog(t *testing.T) {
	begin(t)
	k := newTalk(t)
	l := k.id(t, cm.PSTCP)
	check(t, l.Bind(at(deviceIP, 0)))
	check(t, l.Listen(2))
	waiting(t, l.LocalAddr(), 2, func(ctx context.Context) (*cm.ID, error) {
		e, err := k.Next(ctx)
		if err != nil {
			return nil, err
		}
		return e.ID, nil
	})
}

// TestDeviceBacklogSync checks that a Listener also limits requests that are not accepted.
func TestDeviceBacklogSync(t *testing.T) {
	begin(t)
	l := listenAt(t, deviceIP+":0", &cm.ListenOptions{Backlog: 2, ManualAccept: true})
	waiting(t, l.Addr(), 2, func(ctx context.Context) (*cm.ID, error) {
		r, err := l.Request(ctx)
		if err != nil {
			return nil, err
		}
		return r.ID().ID, nil
	})
}

// waiting sends more requests than the backlog allows, and checks that no more than the backlog can be read.
func waiting(t *testing.T, to netip.AddrPort, backlog int, take func(context.Context) (*cm.ID, error)) {
	t.Helper()
	k := newTalk(t)
	before := messages(t, "req")
	for range backlog + 2 {
		own := newTalk(t) // a rejection would arrive here
		i := own.id(t, cm.PSTCP)
		own.resolve(t, i, to)
		check(t, i.CreateQP(nil, small()))
		check(t, i.Connect(nil))
	}
	eventually(t, "the arrival", func() bool { return messages(t, "req") >= before+backlog+2 })
	nobody(t, k) // it replies after the requests have arrived
	for range backlog {
		closing(t, must(take(k.ctx))(t))
	}
	ctx, cancel := withTimeout(k.ctx, 200*time.Millisecond) // much less than the time until a request is repeated
	defer cancel()
	if i, err := take(ctx); err == nil {
		t.Errorf("there are more than %d requests", backlog)
		check(t, i.Close())
	} else {
		isError(t, err, []error{errCut})
	}
}

// messages returns the number of received messages of a kind, as the connection manager counts them.
func messages(t *testing.T, kind string) int {
	t.Helper()
	if inMemory {
		return memory().Messages(kind)
	}
	b := must(os.ReadFile("/sys/class/infiniband/" + rdmaDevice() + "/ports/1/cm_rx_msgs/" + kind))(t)
	return must(strconv.Atoi(strings.TrimSpace(string(b))))(t)
}

// nobody connects to a port that no program listens on, and checks that this fails.
func nobody(t *testing.T, k talk) {
	t.Helper()
	i := must(cm.NewID(cm.PSTCP))(t)
	defer i.Close()
	check(t, i.ResolveAddr(k.ctx, netip.AddrPort{}, at(deviceIP, 1), 0))
	check(t, i.ResolveRoute(k.ctx, 0))
	check(t, i.CreateQP(nil, small()))
	isError(t, i.Connect(k.ctx, nil), []error{cm.ErrRejected}, "no program listens")
}
