package verbstest_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestInfiniBand checks what a program sees of its port on InfiniBand.
func TestInfiniBand(t *testing.T) {
	n := verbstest.NewNetwork(t, verbstest.InfiniBand())
	lids := map[uint32]bool{}
	for range 2 {
		m := n.Machine()
		m.Run(func() {
			c := must(uverbs.Open(m.Device()))(t)
			defer c.Close()
			p := must(c.QueryPort(1))(t)
			if p.LinkLayer != uverbs.LinkInfiniBand || p.LID == 0 || lids[uint32(p.LID)] || p.SMLID == 0 || p.SMLID == p.LID ||
				p.GRHRequired || p.ActiveMTU != uverbs.MTU4096 {
				t.Errorf("port %+v", p)
			}
			lids[uint32(p.LID)] = true
			gids := must(c.GIDs(1))(t)
			if len(gids) != 1 || gids[0].Type != uverbs.GIDTypeIB {
				t.Errorf("GIDs %+v", gids)
			}
			if keys := must(c.PKeys(1))(t); len(keys) != 1 || keys[0] != 0xffff {
				t.Errorf("P_Keys %x", keys)
			}
		})
	}
}

// TestInfiniBandEcho checks that two machines exchange messages by LID, without and with faults.
func TestInfiniBandEcho(t *testing.T) {
	p := newPair(t, verbstest.InfiniBand())
	for _, f := range []verbstest.PacketFault{
		{Action: verbstest.Delay, Delay: time.Microsecond},
		{Action: verbstest.Drop, Probability: 0.2},
		{Action: verbstest.Duplicate, From: p.server},
	} {
		remove := p.net.AddFault(f)
		if got, err := p.echo(); got != "how much?" || err != nil {
			t.Errorf("%s: reply %q, %v", f.Action, got, err)
		}
		remove()
	}
	p.client.Run(func() {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		c := must(cm.Dial(ctx, p.server.AddrPort(7471).String(), nil))(t)
		defer c.Close()
		if av := must(c.QP().Query(uverbs.MaskAV))(t).AV; av.IsGlobal || av.DLID == 0 {
			t.Errorf("address vector %+v", av)
		}
		if local, peer := c.ID().LocalGID(), c.ID().RemoteGID(); local == peer || local.Addr().Is4() || peer.Addr().Is4() {
			t.Errorf("connected %v to %v", local, peer)
		}
	})
}

// TestInfiniBandPort checks that a port that is down loses packets, which are retransmitted.
func TestInfiniBandPort(t *testing.T) {
	p := newPair(t, verbstest.InfiniBand())
	p.client.Allow(verbstest.ReceiveLate) // it does not read the reply
	p.client.Run(func() {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		c := must(cm.Dial(ctx, p.server.AddrPort(7471).String(), nil))(t)
		defer c.Close()
		p.server.SetPort(false)
		check(t, c.PostSendInline(1, uverbs.Signaled, []byte("how much?")))
		var wcs [1]uverbs.WC
		if n := must(c.QP().SendCQ().Poll(wcs[:]))(t); n != 0 {
			t.Errorf("the server's port is down: %v", wcs[0].Status)
		}
		p.server.SetPort(true)
		if wc := must(c.SendComp(ctx))(t); wc.Err() != nil {
			t.Errorf("the server's port is up again: %v", wc.Err())
		}
	})
}

// TestInfiniBandMulticast checks that a datagram to a group arrives on the other machine.
func TestInfiniBandMulticast(t *testing.T) {
	n := verbstest.NewNetwork(t, verbstest.InfiniBand())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, group := range []string{"239.1.2.3", "ff0e::9:3"} {
		var members [2]*cm.Group
		for i := range members {
			m := n.Machine()
			m.Run(func() {
				local := m.AddrPort(0)
				if netip.MustParseAddr(group).Is6() {
					local = netip.AddrPort{}
				}
				members[i] = must(cm.JoinMulticast(ctx, group, &cm.Options{LocalAddr: local}))(t)
			})
			defer members[i].Close()
		}
		mr := must(members[1].AllocMsgs(uverbs.GRHLen + 64))(t)
		defer mr.Close()
		check(t, members[1].PostRecv(1, mr.SGE(0, uverbs.GRHLen+64)))
		out := must(members[0].AllocMsgs(64))(t)
		defer out.Close()
		text := mr.Bytes()[uverbs.GRHLen:][:copy(out.Bytes(), "to all")]
		check(t, members[0].PostSend(2, uverbs.Signaled, out.SGE(0, len(text))))
		must(members[0].SendComp(ctx))(t)
		wc := must(members[1].RecvComp(ctx))(t)
		if wc.Err() != nil || string(text) != "to all" || wc.Flags&uverbs.WCGRH == 0 {
			t.Errorf("%s: %q arrived: %+v", group, text, wc)
		}
	}
}
