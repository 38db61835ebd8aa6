package cm

import (
	"context"
	"errors"
	"net/netip"

	"github.com/goverbs/goverbs/uverbs"
)

// A Group is a member of a multicast group: a UD QP that is attached to the group.
// Its methods may be called concurrently. Everything else that rdma_cm offers, such
// as datagrams to a single member, is reached through [Group.ID].
type Group struct {
	id   *SyncID
	ah   *uverbs.AH
	qpn  uint32
	qkey uint32
}

// JoinMulticast joins a group, an IPv4 or IPv6 address, in PSUDP. Options.LocalAddr
// selects the interface. If it is not set, the routing table does. The other
// Options that are used are QP, PD, Timeout and ResolveTimeout.
//
// Receives need room for [uverbs.GRHLen] bytes before the datagram. When the network
// ends the membership, posted requests are flushed, and [Group.Disconnected] is
// closed. JoinMulticast returns [uverbs.ErrInvalid] if the address is not a multicast
// address. Otherwise the errors are those of [NewID], [SyncID.ResolveAddr],
// [ID.CreateQP], [SyncID.JoinMulticast] and [uverbs.PD.CreateAH].
func JoinMulticast(ctx context.Context, group string, o *Options) (*Group, error) {
	if o == nil {
		o = &Options{}
	}
	ip, err := groupAddr(group)
	if err != nil {
		return nil, err
	}
	ctx, cancel := o.withDeadline(ctx)
	defer cancel()
	s, err := NewID(PSUDP)
	if err != nil {
		return nil, err
	}
	g := &Group{id: s}
	if err := g.joinGroup(ctx, ip, o); err != nil {
		return nil, joinErrors(operationError("join", group, err), g.Close())
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

func (g *Group) joinGroup(ctx context.Context, ip netip.Addr, o *Options) error {
	if err := g.id.ResolveAddr(ctx, o.LocalAddr, netip.AddrPortFrom(ip, 0), o.ResolveTimeout); err != nil {
		return withStep("resolve address", explainResolve(err, o))
	}
	if err := g.id.CreateQP(o.PD, o.qp(uverbs.UD)); err != nil {
		return err
	}
	if _, err := g.id.JoinMulticast(ctx, ip, JoinFull); err != nil {
		return withStep("join", err)
	}
	to := g.id.Event().UD
	g.qpn, g.qkey = to.QPN, to.QKey
	o.QP.Path.Apply(&to.AH)
	ah, err := g.PD().CreateAH(to.AH)
	if err != nil {
		return err
	}
	g.ah = ah
	g.id.mu.Lock()
	g.id.ah = ah
	g.id.mu.Unlock()
	return nil
}

// explainResolve adds a hint to an error of ResolveAddr: the routing table rarely
// has a route for groups.
func explainResolve(err error, o *Options) error {
	own, ok := err.(*Error)
	if !ok || o.LocalAddr.IsValid() || !errors.Is(err, ErrUnreachable) && !errors.Is(err, uverbs.ErrNoDevice) {
		return err
	}
	e := *own
	e.Detail += "; Options.LocalAddr names the interface, by an address of an RDMA device"
	return &e
}

// PostSend sends a datagram, the memory of sges in order, to the group. This member
// receives it too if the device loops it back. The errors are those of
// [ID.PostSend].
func (g *Group) PostSend(wrID uint64, f uverbs.SendFlags, sges ...uverbs.SGE) error {
	qp := g.id.sendQP.Load()
	if qp == nil {
		return g.id.sendError()
	}
	_, err := qp.PostSend(uverbs.SendWR{WRID: wrID, Opcode: uverbs.OpSend, Flags: f, SGL: sges,
		AH: g.ah, QPN: g.qpn, QKey: g.qkey})
	return err
}

// ID returns the id of the member. To leave the group, use [Group.Close] instead of
// the id's Close.
func (g *Group) ID() *SyncID { return g.id }

// LocalAddr returns the local address from which datagrams are sent.
func (g *Group) LocalAddr() netip.AddrPort { return g.id.LocalAddr() }

// QP returns the member's queue pair, for requests that Group has no method for.
func (g *Group) QP() *uverbs.QP { return g.id.QP() }

// PD returns the PD of the queue pair. MRs of other PDs cannot be used in the group.
func (g *Group) PD() *uverbs.PD { return g.id.PD() }

// Verbs returns the open device of the member, or nil after Close. Other ids share
// it, and the library closes it.
func (g *Group) Verbs() *uverbs.Context { return g.id.Verbs() }

// Err returns why the membership has ended, or nil if it has not: the error of
// EventMulticastError if the network has ended it, [uverbs.ErrDeviceGone] if the
// device was removed, and [uverbs.ErrClosed] if neither happened before Close.
func (g *Group) Err() error { return g.id.Err() }

// Disconnected returns a channel that is closed when the membership has ended, for
// any reason. [Group.Err] returns the reason.
func (g *Group) Disconnected() <-chan struct{} { return g.id.Disconnected() }

// AllocMsgs allocates n bytes outside of the Go heap and registers them for sends and
// receives. The caller closes the MR. The errors are those of [ID.AllocMsgs].
func (g *Group) AllocMsgs(n int) (*uverbs.MR, error) { return g.id.AllocMsgs(n) }

// RegMsgs registers b for sends and receives. The memory stays pinned until the
// caller closes the MR. The errors are those of [ID.RegMsgs].
func (g *Group) RegMsgs(b []byte) (*uverbs.MR, error) { return g.id.RegMsgs(b) }

// PostRecv posts a receive for the next datagram. The first [uverbs.GRHLen] bytes of
// its memory are for the GRH, and the datagram follows them. The errors are those of
// [ID.PostRecv].
func (g *Group) PostRecv(wrID uint64, sges ...uverbs.SGE) error {
	return g.id.PostRecv(wrID, sges...)
}

// SendComp waits for the completion of a send and returns it. The errors are those of
// [ID.SendComp].
func (g *Group) SendComp(ctx context.Context) (uverbs.WC, error) { return g.id.SendComp(ctx) }

// RecvComp waits for the next datagram and returns the completion of its receive.
// WC.ByteLen includes the GRH. The errors are those of [ID.SendComp].
func (g *Group) RecvComp(ctx context.Context) (uverbs.WC, error) { return g.id.RecvComp(ctx) }

// Close leaves the group and closes the QP. It is idempotent. The errors are those of
// [ID.Close].
func (g *Group) Close() error { return g.id.Close() }
