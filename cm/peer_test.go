package cm

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestGoldenPeers checks errors that involve a peer: limits of private data, depths, states, queues.
func TestGoldenPeers(t *testing.T) {
	newRig(t)
	ctx := limit(t)
	k := newTalk(t)
	b := newTable(t)
	l, ul := k.listen(PSTCP), k.listen(PSUDP)
	data := func(n int) *ConnParam {
		p := *foreign
		p.PrivateData = bytes.Repeat([]byte{1}, n)
		return &p
	}
	try := func(name string, limit int, call func(n int) error) {
		for _, n := range []int{limit + 1, 256, 0} {
			b.add(fmt.Sprintf("%s: %d bytes", name, n), call(n))
		}
		b.add(fmt.Sprintf("%s: %d bytes", name, limit), call(limit))
	}
	// Each call that succeeds is tried on a new id.
	connect := func(ps PortSpace, to *ID) func(int) error {
		i := k.resolved(ps, to.LocalAddr())
		return func(n int) error {
			err := i.Connect(data(n))
			if err == nil {
				closing(t, k.next(EventConnectRequest, nil).ID)
				i = k.resolved(ps, to.LocalAddr())
			}
			return err
		}
	}
	reply := func(ps PortSpace, to *ID, call func(*ID, int) error) func(int) error {
		return func(n int) error {
			active := k.resolved(ps, to.LocalAddr())
			child := k.request(active, foreign)
			err := call(child, n)
			good(k.Next(ctx))(t) // the event of the active side
			_ = child.Close()
			return errors.Join(err, active.Close())
		}
	}
	try("connect TCP", 56, connect(PSTCP, l))
	try("connect UDP", 180, connect(PSUDP, ul))
	reject := func(i *ID, n int) error {
		err := i.Reject(make([]byte, n))
		if err != nil {
			check(t, i.Close()) // rejects the peer
		}
		return err
	}
	try("reject TCP", 148, reply(PSTCP, l, reject))
	try("reject UDP", 136, reply(PSUDP, ul, reject))
	accepted := func(i *ID, n int) error {
		err := i.Accept(data(n))
		if n > 255 {
			check(t, i.Close())
		}
		return err
	}
	try("accept TCP", 196, reply(PSTCP, l, accepted))
	try("accept UDP", 136, reply(PSUDP, ul, accepted))

	i := k.resolved(PSTCP, l.LocalAddr())
	for name, p := range map[string]ConnParam{"responder": {ResponderResources: 17}, "initiator": {InitiatorDepth: 17},
		"retry": {RetryCount: 8}, "RNR": {RNRRetryCount: 8}} {
		b.add("connect: "+name, i.Connect(&p))
	}
	b.add("connect: no QP", i.Connect(nil))
	b.add("accept: no request", i.Accept(foreign))
	b.add("resolve: twice", i.ResolveAddr(netip.AddrPort{}, silent, 0))
	b.add("route: twice", i.ResolveRoute(0))
	b.add("QP: type", i.CreateQP(nil, uverbs.QPConfig{Type: uverbs.UD}))
	b.add("init QP: RTR", third(i.InitQPAttr(uverbs.StateRTR)))
	b.add("notify: no handshake", i.Notify(uverbs.EventCommEst))
	b.add("disconnect: not connected", i.Disconnect())
	wrongQueues(t, k, b, i)
	b.golden("peers")
}

// wrongQueues calls functions with wrong QPs, queues and PDs.
func wrongQueues(t *testing.T, k *talk, b *table, i *ID) {
	t.Helper()
	ctx := limit(t)
	cq := closing(t, good(i.Verbs().CreateCQ(uverbs.CQConfig{Entries: 16}))(t))
	own := small
	own.SendCQ, own.RecvCQ = cq, cq
	check(t, i.CreateQP(nil, own))
	b.add("QP: twice", i.CreateQP(nil, small))
	b.add("send comp: shared CQ", second(i.SendComp(ctx)))
	b.add("recv comp: shared CQ", second(i.RecvComp(ctx)))
	b.add("establish: with a QP", i.Establish())
	b.add("post: not connected", i.PostSend(1, 0, uverbs.SGE{}))
	check(t, i.DestroyQP())
	check(t, i.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 4}))
	b.add("SRQ: twice", i.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 4}))
	check(t, i.PostRecv(1, uverbs.SGE{}))
	b.add("post: no QP, but an SRQ", i.PostSend(1, 0, uverbs.SGE{}))
	check(t, i.DestroySRQ())
	other := newLoop()
	d := good(other.open(deviceKey{index: 9, guid: 9}, false))(t)
	defer func() {
		check(t, d.ctx.Close())
		other.k.Close(t)
	}()
	b.add("QP: PD of another device", i.CreateQP(d.pd, small))
	u := k.resolved(PSUDP, at(here, 4))
	b.add("disconnect: datagrams", u.Disconnect())
	check(t, u.CreateQP(nil, small))
	b.add("send: no address", u.PostUDSend(1, 0, nil, 1, uverbs.SGE{}))
}

// TestGoldenDial checks the errors of the functions of the highest level.
func TestGoldenDial(t *testing.T) {
	r := newRig(t)
	ctx := limit(t)
	b := newTable(t)
	dialed := func(addr string, o *Options) error { return second(Dial(ctx, addr, o)) }
	b.add("dial: no port", dialed("192.0.2.1", nil))
	b.add("dial: no host", dialed(":5", nil))
	b.add("dial: port", dialed("192.0.2.1:99999", nil))
	b.add("dial: service", dialed("192.0.2.1:no-such-service", nil))
	b.add("dial: nobody", dialed("192.0.2.1:5", nil))
	b.add("dial: silent", dialed(silent.String(), nil))
	b.add("dial: nowhere", dialed(nowhere.String(), nil))
	b.add("dial: local address", dialed("192.0.2.1:5", &Options{LocalAddr: at(nowhere.Addr(), 0)}))
	b.add("dial: other family", dialed("192.0.2.1:5", &Options{LocalAddr: at(here6, 0)}))
	b.add("dial: too much data", dialed("192.0.2.1:5", &Options{PrivateData: make([]byte, 57)}))
	b.add("dial: setup", dialed("192.0.2.1:5", &Options{Setup: func(*Conn) error { return errors.New("not today") }}))
	b.add("dial: QP", dialed("192.0.2.1:5", &Options{QP: uverbs.QPConfig{MaxSendWR: 1 << 20}}))
	r.refuse = &uverbs.Error{Op: "open", Object: "loop0", Kind: uverbs.ErrNoProvider, Detail: "no provider"}
	b.add("dial: no provider", dialed("192.0.2.1:5", nil))
	r.refuse = nil
	b.add("dial: context", second(Dial(endedContext(), "192.0.2.1:5", nil)))
	b.add("listen: no port", second(Listen("192.0.2.1", nil)))
	b.add("listen: foreign", second(Listen(nowhere.String(), nil)))
	b.add("listen: service", second(Listen("192.0.2.1:no-such-service", nil)))
	l := closing(t, good(Listen("192.0.2.1:6", &ListenOptions{Options: Options{ReuseAddr: true}, V6Only: true}))(t))
	b.add("listen: taken", second(Listen("192.0.2.1:6", nil)))
	b.add("accept: context", second(l.Accept(endedContext())))
	b.add("group: name", second(JoinMulticast(ctx, "somewhere", nil)))
	b.add("group: address", second(JoinMulticast(ctx, "192.0.2.1", nil)))
	b.add("group: nowhere", second(JoinMulticast(ctx, "239.9.9.9", nil)))

	info := func(node, service string, h *AddrInfo) error { return second(GetAddrInfo(ctx, node, service, h)) }
	b.add("info: family", info("192.0.2.1", "5", &AddrInfo{Family: IPv6}))
	b.add("info: other family", info("2001:db8::1", "5", &AddrInfo{Family: IPv4}))
	b.add("info: InfiniBand", info("192.0.2.1", "5", &AddrInfo{Family: IB}))
	b.add("info: numeric", info("localhost", "5", &AddrInfo{Flags: NumericHost}))
	b.add("info: no node", info("", "5", nil))
	b.add("EP: QP type", second(CreateEP(ctx, &AddrInfo{PortSpace: PSTCP, QPType: uverbs.UD}, nil, nil)))
	b.add("EP: bind", second(CreateEP(ctx, &AddrInfo{Flags: Passive, Src: nowhere}, nil, nil)))
	b.add("EP: resolve", second(CreateEP(ctx, &AddrInfo{Dst: nowhere}, nil, nil)))
	b.add("EP: paths", second(CreateEP(ctx, &AddrInfo{Dst: at(here, 5), Paths: []PathRecord{{}}}, nil, nil)))
	b.add("EP: QP", second(CreateEP(ctx, &AddrInfo{Dst: at(here, 5)}, nil, &uverbs.QPConfig{MaxSendWR: 1 << 20})))
	b.golden("dial")
}
