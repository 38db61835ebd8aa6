package cm

import (
	"context"
	"errors"
	"net/netip"

	"github.com/goverbs/goverbs/uverbs"
)

// A Group is a member of a multicast group: a UD QP that is attached to it.
type Group struct {
	*SyncID
	ah   *uverbs.AH
	qpn  uint32
	qkey uint32
}

// JoinMulticast joins a group in PSUDP: an IP address, IPv4 or IPv6. The
// interface is the one that the routing table, or Options.LocalAddr, names. Of
// the Options QP, PD, LocalAddr and Timeout count.
//
// Receives need room for [uverbs.GRHLen] bytes before the datagram. When the
// network ends the membership, what is posted is flushed, and
// [SyncID.Disconnected] is closed. [uverbs.ErrInvalid] for an address that is
// no group's; else the errors are those of [NewID], [SyncID.ResolveAddr],
// [ID.CreateQP], [SyncID.JoinMulticast] and [uverbs.PD.CreateAH].
func JoinMulticast(ctx context.Context, group string, o *Options) (_ *Group, err error) {
	if o == nil {
		o = &Options{}
	}
	ip, err := netip.ParseAddr(group)
	if err != nil || !ip.IsMulticast() {
		return nil, invalid("join", group, "it is not a multicast address")
	}
	s, err := NewID(PSUDP)
	if err != nil {
		return nil, err
	}
	g := &Group{SyncID: s}
	if err := g.join(ctx, ip, o); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *Group) join(ctx context.Context, ip netip.Addr, o *Options) error {
	if err := g.ResolveAddr(ctx, o.LocalAddr, netip.AddrPortFrom(ip, 0), o.Timeout); err != nil {
		return err
	}
	if err := g.CreateQP(o.PD, o.qp(uverbs.UD)); err != nil {
		return err
	}
	if _, err := g.SyncID.JoinMulticast(ctx, ip, JoinFull); err != nil {
		return err
	}
	to := g.Event().UD
	g.qpn, g.qkey = to.QPN, to.QKey
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

// PostSend sends a datagram to the group, its own member included where the
// device loops it back. The errors are those of [ID.PostSend].
func (g *Group) PostSend(wrID uint64, f uverbs.SendFlags, sge uverbs.SGE) error {
	qp := g.QP()
	if qp == nil {
		return g.noQP("post to")
	}
	_, err := qp.PostSend(uverbs.SendWR{WRID: wrID, Opcode: uverbs.OpSend, Flags: f, SGL: []uverbs.SGE{sge},
		AH: g.ah, QPN: g.qpn, QKey: g.qkey})
	return err
}

// Close leaves the group and closes the QP. It is idempotent. The errors are
// those of [ID.Close].
func (g *Group) Close() error { return g.SyncID.Close() }

// destroyAH closes a Group's address, which datagrams in its QP name. The caller
// holds i.mu.
func (i *ID) destroyAH() error {
	if i.ah == nil || i.qp.Load() != nil {
		return nil
	}
	return i.ah.Close()
}
