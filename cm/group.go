package cm

import (
	"context"
	"errors"
	"net/netip"

	"github.com/goverbs/goverbs/uverbs"
)

// A Group is a member of a multicast group: a UD QP that is attached to the group.
type Group struct {
	*SyncID
	ah   *uverbs.AH
	qpn  uint32
	qkey uint32
}

// JoinMulticast joins a group, an IPv4 or IPv6 address, in PSUDP. Options.LocalAddr
// selects the interface. If it is not set, the routing table does. Of the other
// Options, only QP, PD, Timeout and ResolveTimeout are used.
//
// Receives need room for [uverbs.GRHLen] bytes before the datagram. When the network
// ends the membership, posted requests are flushed, and [SyncID.Disconnected] is
// closed. JoinMulticast returns [uverbs.ErrInvalid] if the address is not a multicast
// address. Otherwise the errors are those of [NewID], [SyncID.ResolveAddr],
// [ID.CreateQP], [SyncID.JoinMulticast] and [uverbs.PD.CreateAH].
func JoinMulticast(ctx context.Context, group string, o *Options) (_ *Group, err error) {
	if o == nil {
		o = &Options{}
	}
	ip, err := groupAddr(group)
	if err != nil {
		return nil, err
	}
	ctx, cancel := o.bound(ctx)
	defer cancel()
	s, err := NewID(PSUDP)
	if err != nil {
		return nil, err
	}
	g := &Group{SyncID: s}
	if err := g.join(ctx, ip, o); err != nil {
		return nil, both(failed("join", group, err), g.Close())
	}
	return g, nil
}

// groupAddr parses the address of a group.
func groupAddr(group string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(group)
	if err == nil && ip.IsMulticast() {
		return ip, nil
	}
	detail := "it is not a multicast address, such as 239.1.2.3"
	if _, err := netip.ParseAddrPort(group); err == nil {
		detail = "groups have no port: give the address alone"
	}
	return netip.Addr{}, invalid("join", group, detail)
}

func (g *Group) join(ctx context.Context, ip netip.Addr, o *Options) error {
	if err := g.ResolveAddr(ctx, o.LocalAddr, netip.AddrPortFrom(ip, 0), o.ResolveTimeout); err != nil {
		return step("resolve address", explainWay(err, o))
	}
	if err := g.CreateQP(o.PD, o.qp(uverbs.UD)); err != nil {
		return err
	}
	if _, err := g.SyncID.JoinMulticast(ctx, ip, JoinFull); err != nil {
		return step("join", err)
	}
	to := g.Event().UD
	g.qpn, g.qkey = to.QPN, to.QKey
	o.QP.Path.Apply(&to.AH)
	ah, err := g.PD().CreateAH(to.AH)
	if err != nil {
		return err
	}
	g.ah = ah
	g.ID.mu.Lock()
	g.ID.ah = ah
	g.ID.mu.Unlock()
	return nil
}

// explainWay adds a hint to an error of ResolveAddr: the routing table rarely has a
// route for groups.
func explainWay(err error, o *Options) error {
	own, ok := err.(*Error)
	if !ok || o.LocalAddr.IsValid() || !errors.Is(err, ErrUnreachable) && !errors.Is(err, uverbs.ErrNoDevice) {
		return err
	}
	e := *own
	e.Detail += "; Options.LocalAddr names the interface, by an address of an RDMA device"
	return &e
}

// PostSend sends a datagram to the group. This member receives it too if the device
// loops it back. The errors are those of [ID.PostSend].
func (g *Group) PostSend(wrID uint64, f uverbs.SendFlags, sge uverbs.SGE) error {
	qp := g.sendQP.Load()
	if qp == nil {
		return g.noSends()
	}
	_, err := qp.PostSend(uverbs.SendWR{WRID: wrID, Opcode: uverbs.OpSend, Flags: f, SGL: []uverbs.SGE{sge},
		AH: g.ah, QPN: g.qpn, QKey: g.qkey})
	return err
}

// Close leaves the group and closes the QP. It is idempotent. The errors are those of
// [ID.Close].
func (g *Group) Close() error { return g.SyncID.Close() }

// destroyAH closes a Group's address handle unless the QP, whose datagrams use it, is
// still open. The caller holds i.mu.
func (i *ID) destroyAH() error {
	if i.ah == nil || i.qp.Load() != nil {
		return nil
	}
	return i.ah.Close()
}
