package devicetest

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// This file has the steps of TestDeviceRDMACM that use event channels.

// parityTimeout is the timeout that pyverbs uses for each resolution.
const parityTimeout = 2 * time.Second

// parityGroup is the multicast group that belongs to the device's address.
var parityGroup = netip.MustParseAddr("230" + deviceIP[strings.IndexByte(deviceIP, '.'):])

// param returns the parameters that pyverbs connects with.
func (p *player) param() *cm.ConnParam {
	c := &cm.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 5, RNRRetryCount: 5}
	if p.external {
		c.QPN = p.qp.QPN()
	}
	return c
}

// create creates an event channel with an id.
func (p *player) create() {
	p.ch = must(cm.NewEventChannel())(p)
	closing(p, p.ch)
	p.id = must(p.ch.CreateID(p.ps))(p)
	closing(p, p.id)
}

// event reads the next event, which must be of this type.
func (p *player) event(want cm.EventType) {
	p.Helper()
	e := must(p.ch.Next(p.ctx))(p)
	if e.Type != want {
		p.Fatal("event", e.Type, "came:", e.Err(), "; want", want)
	}
	switch e.Type {
	case cm.EventConnectRequest:
		p.conn = e.ID
		closing(p, e.ID)
	case cm.EventEstablished, cm.EventMulticastJoin:
		p.ud = e.UD
	case cm.EventRejected:
		if !strings.HasPrefix(string(e.PrivateData), p.reject) {
			p.Fatal("rejected with", strconv.Quote(string(e.PrivateData)), "; want", p.reject)
		}
	}
}

// connect establishes a connection until both sides can send, or until it is rejected.
func (p *player) connect() {
	ai := p.addrInfo()
	p.create()
	if p.passive {
		check(p, p.id.Bind(ai.Src))
		check(p, p.id.Listen(0))
		p.wait()
		p.event(cm.EventConnectRequest)
		p.acceptRequest()
	} else {
		p.conn = p.id
		check(p, p.id.ResolveAddr(ai.Src, ai.Dst, parityTimeout))
		p.event(cm.EventAddrResolved)
		p.wait()
		check(p, p.id.ResolveRoute(parityTimeout))
		p.event(cm.EventRouteResolved)
		p.request()
	}
	if p.reject != "" {
		return
	}
	if p.ackTimeout != 0 && !rnic() { // TCP has its own timers
		if a := must(p.conn.QP().Query(uverbs.MaskTimeout))(p); a.Timeout != p.ackTimeout {
			p.Fatal("the QP's timeout is", a.Timeout)
		}
	}
	if p.passive && p.ps == cm.PSTCP {
		p.event(cm.EventEstablished)
	}
	p.register()
	p.exchangeQPN()
}

// acceptRequest accepts the request of the active side.
func (p *player) acceptRequest() {
	p.createQP()
	if p.ackTimeout != 0 {
		check(p, p.conn.SetAckTimeout(p.ackTimeout))
	}
	if p.external {
		p.externalReady()
	}
	if p.reject != "" {
		check(p, p.conn.Reject([]byte(p.reject)))
		return
	}
	check(p, p.conn.Accept(p.param()))
}

// request requests the connection from the passive side, and handles the reply.
func (p *player) request() {
	p.createQP()
	if p.ackTimeout != 0 {
		check(p, p.conn.SetAckTimeout(p.ackTimeout))
	}
	check(p, p.conn.Connect(p.param()))
	switch {
	case p.external:
		p.event(cm.EventConnectResponse)
		p.externalReady()
		check(p, p.conn.Establish())
	case p.reject != "":
		p.event(cm.EventRejected)
	default:
		p.event(cm.EventEstablished)
	}
}

// createQP creates the QP of the id, or the player's own.
func (p *player) createQP() {
	cfg := uverbs.QPConfig{MaxSendWR: 1, MaxRecvWR: 1, SignalAll: true}
	if !p.external {
		check(p, p.conn.CreateQP(nil, cfg))
		return
	}
	cfg.Type = uverbs.RC
	cfg.SendCQ = must(p.conn.Verbs().CreateCQ(uverbs.CQConfig{Entries: parityMessages}))(p)
	closing(p, cfg.SendCQ)
	p.qp = must(p.conn.PD().CreateQP(cfg))(p)
	closing(p, p.qp)
}

// externalReady moves the player's own QP to RTS. The Python test also sets the vendor's options and continues if the
// device refuses them, as a device without any, such as rxe, does.
func (p *player) externalReady() {
	for _, state := range []uverbs.QPState{uverbs.StateInit, uverbs.StateRTR, uverbs.StateRTS} {
		attr, mask, err := p.conn.InitQPAttr(state)
		check(p, err)
		check(p, p.qp.Modify(attr, mask))
	}
}

// exchangeQPN sends the QP number to the other side.
func (p *player) exchangeQPN() {
	qp := p.qp
	if !p.external {
		qp = p.conn.QP()
	}
	own := note{key: qp.QPN()}
	p.wait()
	if p.passive {
		p.notes <- own
		p.wait()
		p.qpn = p.note().key
		return
	}
	p.qpn = p.note().key
	p.notes <- own
	p.wait()
}

// disconnect ends the connection: the passive side first, then the active side after it
// was notified.
func (p *player) disconnect() {
	if !p.passive {
		p.event(cm.EventDisconnected)
	}
	check(p, p.conn.Disconnect())
}

// externalTraffic sends messages in both directions with the player's own QP.
func (p *player) externalTraffic() {
	sge := []uverbs.SGE{p.mr.SGE(0, paritySize)}
	receive := func() { must(p.qp.PostRecv(uverbs.RecvWR{SGL: sge}))(p) }
	send := func() {
		p.write(paritySize)
		must(p.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, SGL: sge}))(p)
	}
	completion := func() {
		var wcs [1]uverbs.WC
		must(p.qp.SendCQ().PollWait(p.ctx, wcs[:]))(p)
		check(p, wcs[0].Err())
	}
	if p.passive {
		receive()
	}
	p.wait()
	for range parityMessages {
		if p.passive {
			completion()
			receive()
			p.validate(0)
			send()
			completion()
			continue
		}
		send()
		completion()
		receive()
		completion()
		p.validate(0)
	}
}

// remoteTraffic makes the active side read or write the memory of the passive side.
func (p *player) remoteTraffic(post func(i *cm.ID, wrID uint64, f uverbs.SendFlags,
	raddr uint64, rkey uint32, sges ...uverbs.SGE) error, write bool) {
	p.write(paritySize)
	if p.passive {
		p.notes <- note{p.mr.Addr(), p.mr.RKey()}
		p.wait()
		p.wait()
	} else {
		p.wait()
		peer := p.note()
		for range parityMessages {
			check(p, post(p.conn, 0, uverbs.Signaled, peer.addr, peer.key, p.mr.SGE(0, paritySize)))
			must(p.conn.SendComp(p.ctx))(p)
		}
		p.wait()
	}
	if p.passive == write {
		p.validate(0)
	}
}

// join joins the group.
func (p *player) join() {
	p.ps = cm.PSUDP
	src := netip.AddrPortFrom(netip.MustParseAddr(deviceIP), 0)
	p.create()
	p.conn = p.id
	check(p, p.id.Bind(src))
	check(p, p.id.ResolveAddr(src, netip.AddrPortFrom(parityGroup, 0), parityTimeout))
	p.event(cm.EventAddrResolved)
	p.createQP()
	p.group = must(p.id.JoinMulticast(parityGroup, cm.JoinFull))(p)
	p.event(cm.EventMulticastJoin)
	p.register()
}

func (p *player) leave() { check(p, p.group.Leave()) }

// multicastTraffic makes the active side send to the group and the passive side
// receive.
func (p *player) multicastTraffic() {
	for range parityMessages {
		if p.passive {
			check(p, p.conn.PostRecv(0, p.mr.SGE(0, p.mr.Len())))
			p.wait()
			p.wait()
			must(p.conn.RecvComp(p.ctx))(p)
			p.validate(uverbs.GRHLen)
			continue
		}
		p.write(paritySize + uverbs.GRHLen)
		p.wait()
		p.sendGroup()
		p.wait()
	}
}

func (p *player) sendGroup() {
	p.datagram(must(p.conn.PD().CreateAH(p.ud.AH))(p), 0xffffff)
	must(p.conn.SendComp(p.ctx))(p)
}

// leaveAndSend leaves the group and sends to it again: no message must arrive. The Python test concludes this from
// processes that wait forever. Here a third member of the group shows when the datagram has been delivered to all
// members. It then sends a datagram to the passive side, which must be the first to arrive there.
func (p *player) leaveAndSend() {
	if !p.passive {
		p.leave()
		p.write(paritySize)
		p.wait()
		p.sendGroup()
		return
	}
	witness := &player{TB: p.TB, ctx: p.ctx, cancel: p.cancel, passive: true, alloc: p.alloc}
	witness.join()
	p.leave()
	for _, member := range []*player{p, witness} {
		check(p, member.conn.PostRecv(0, member.mr.SGE(0, member.mr.Len())))
	}
	p.wait()
	wc := must(witness.conn.RecvComp(p.ctx))(p)
	witness.validate(uverbs.GRHLen)
	ah := must(witness.conn.PD().CreateAHFromWC(witness.conn.Port(), &wc, witness.mr.Bytes()[:uverbs.GRHLen]))(p)
	copy(witness.mr.Bytes(), "from the witness")
	witness.datagram(ah, p.conn.QP().QPN())
	must(witness.conn.SendComp(p.ctx))(p)
	must(p.conn.RecvComp(p.ctx))(p)
	if got := string(p.mr.Bytes()[uverbs.GRHLen:][:paritySize]); !strings.HasPrefix(got, "from the witness") {
		p.Fatal("a datagram to the group came, after it was left:", got)
	}
}
