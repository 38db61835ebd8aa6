package devicetest

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
)

// member returns an id of PSUDP that is bound to the device and has a QP.
func (k talk) member(t testing.TB, ip string) *cm.ID {
	t.Helper()
	i := k.id(t, cm.PSUDP)
	check(t, i.Bind(at(ip, 0)))
	check(t, i.CreateQP(nil, small()))
	return i
}

// join joins a group and returns the destination for sends.
func (k talk) join(t testing.TB, i *cm.ID, group string, f cm.JoinFlags) (*cm.Membership, cm.UDParam) {
	t.Helper()
	m := must(i.JoinMulticast(netip.MustParseAddr(group), f))(t)
	e := k.good(t, cm.EventMulticastJoin, i)
	if e.Membership != m || m.Group != netip.MustParseAddr(group) || e.UD.QPN != 0xffffff || e.UD.AH.DGID.IsZero() {
		t.Errorf("the event of %v: %+v", group, e)
	}
	return m, e.UD
}

// silent checks that no message arrives before a message of another group.
func silent(t testing.TB, i *cm.ID) {
	t.Helper()
	ctx, cancel := withTimeout(limit(t), 20*time.Millisecond)
	defer cancel()
	if wc, err := i.RecvComp(ctx); !errors.Is(err, errCut) {
		t.Errorf("something arrived: %+v, %v", wc, err)
	}
}

// TestDeviceMulticast checks that "After the join operation completes, if a QP is associated with the rdma_cm_id, it is
// automatically attached to the multicast group" (rdma_join_multicast(3)), and that Leave detaches it.
func TestDeviceMulticast(t *testing.T) {
	begin(t)
	needUD(t)
	throughGroup(t, deviceIP, "239.1.2.3")
}

// TestDeviceMulticast6 checks the same with IPv6.
func TestDeviceMulticast6(t *testing.T) {
	begin(t)
	needUD(t)
	needV6(t)
	const group = "ff0e::9:3"
	g, err := cm.JoinMulticast(limit(t), group, &cm.Options{LocalAddr: at(deviceV6, 0)})
	if err != nil {
		isError(t, err, []error{uverbs.ErrNotSupported}, group, "IPv6")
		features.Missing(t, features.CMMulticast6, err)
	}
	check(t, g.Close())
	throughGroup(t, deviceV6, group)
}

func throughGroup(t *testing.T, ip, group string) {
	k := newTalk(t)
	a, b := k.member(t, ip), k.member(t, ip)
	_, where := k.join(t, a, group, cm.JoinFull)
	m, _ := k.join(t, b, group, cm.JoinFull)
	if where.QKey == 0 {
		t.Errorf("where to send: %+v", where)
	}
	toGroup(t, a, where, "all", b)
	check(t, m.Leave())
	check(t, m.Leave())
	mr := must(b.AllocMsgs(256))(t)
	defer mr.Close()
	check(t, b.PostRecv(9, mr.SGE(0, 256)))
	toGroup(t, a, where, "those who stay")
	silent(t, b)
}

// toGroup sends to a group and checks that from and others receive the message.
func toGroup(t testing.TB, from *cm.ID, where cm.UDParam, text string, others ...*cm.ID) {
	t.Helper()
	ctx := limit(t)
	ah := must(from.PD().CreateAH(where.AH))(t)
	defer ah.Close()
	var mrs []*uverbs.MR
	all := append([]*cm.ID{from}, others...)
	for _, i := range all {
		mr := must(i.AllocMsgs(uverbs.GRHLen + 64))(t)
		defer mr.Close()
		check(t, i.PostRecv(1, mr.SGE(0, uverbs.GRHLen+64)))
		mrs = append(mrs, mr)
	}
	must(from.QP().PostSend(uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: []byte(text),
		AH: ah, QPN: where.QPN, QKey: where.QKey}))(t)
	must(from.SendComp(ctx))(t)
	for n, i := range all {
		wc := must(i.RecvComp(ctx))(t)
		if got := string(mrs[n].Bytes()[uverbs.GRHLen:wc.ByteLen]); got != text || wc.SrcQP != from.QP().QPN() {
			t.Errorf("%q arrived: %+v", got, wc)
		}
	}
}

// TestDeviceMulticastSendOnly checks that "When "Send Only Full Member" is used the QP will not be attached to the MCG"
// (rdma_join_multicast_ex(3)).
func TestDeviceMulticastSendOnly(t *testing.T) {
	begin(t)
	needUD(t)
	const group = "239.1.2.4"
	k := newTalk(t)
	sender, receiver := k.member(t, deviceIP), k.member(t, deviceIP)
	m, where := k.join(t, sender, group, cm.JoinSendOnly)
	k.join(t, receiver, group, cm.JoinFull)
	ah := must(sender.PD().CreateAH(where.AH))(t)
	defer ah.Close()
	mr := must(sender.AllocMsgs(512))(t)
	defer mr.Close()
	check(t, sender.PostRecv(1, mr.SGE(0, 256)))
	check(t, receiver.PostRecv(2, mr.SGE(256, 256)))
	must(sender.QP().PostSend(uverbs.SendWR{WRID: 3, Opcode: uverbs.OpSend, Inline: []byte("out"), AH: ah, QPN: where.QPN,
		QKey: where.QKey}))(t)
	must(receiver.RecvComp(k.ctx))(t)
	silent(t, sender)
	check(t, m.Leave())
}

// TestDeviceMulticastGroups joins several groups with one id, and checks that Close leaves them.
func TestDeviceMulticastGroups(t *testing.T) {
	begin(t)
	needUD(t)
	before := kernelObjects(t)
	k := newTalk(t)
	i, sender := k.member(t, deviceIP), k.member(t, deviceIP)
	names := []string{"239.1.2.5", "239.1.2.6", "239.1.2.7"}
	var first *cm.Membership
	for n, name := range names {
		m, _ := k.join(t, i, name, cm.JoinFull)
		if n == 0 {
			first = m
		}
		_, where := k.join(t, sender, name, cm.JoinSendOnly)
		mr := must(i.AllocMsgs(256))(t)
		check(t, i.PostRecv(1, mr.SGE(0, 256)))
		ah := must(sender.PD().CreateAH(where.AH))(t)
		must(sender.QP().PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Inline: []byte(name), AH: ah, QPN: where.QPN,
			QKey: where.QKey}))(t)
		if wc := must(i.RecvComp(k.ctx))(t); string(mr.Bytes()[uverbs.GRHLen:wc.ByteLen]) != name {
			t.Errorf("%q arrived", mr.Bytes()[uverbs.GRHLen:wc.ByteLen])
		}
		check(t, ah.Close())
		check(t, mr.Close())
	}
	check(t, first.Leave())
	check(t, i.Close())
	check(t, first.Leave())
	check(t, sender.Close())
	sameObjects(t, before)
}

// TestDeviceMulticastBad uses addresses that are not groups, and ids that cannot join.
func TestDeviceMulticastBad(t *testing.T) {
	begin(t)
	needUD(t)
	k := newTalk(t)
	i := k.id(t, cm.PSUDP)
	group := netip.MustParseAddr("239.1.2.8")
	isError(t, second(i.JoinMulticast(group, cm.JoinFull)), []error{uverbs.ErrInvalid}, group.String(), "bound")
	check(t, i.Bind(at(deviceIP, 0)))
	isError(t, second(i.JoinMulticast(netip.MustParseAddr(deviceIP), cm.JoinFull)), []error{uverbs.ErrInvalid},
		"not a multicast address")
	isError(t, second(i.JoinMulticast(netip.Addr{}, cm.JoinFull)), []error{uverbs.ErrInvalid})
	isError(t, second(i.JoinMulticast(group, 7)), []error{uverbs.ErrInvalid})
	// Without a QP, the id joins and nothing is attached.
	m, _ := k.join(t, i, group.String(), cm.JoinFull)
	check(t, m.Leave())
	check(t, i.Close())
	isError(t, second(i.JoinMulticast(group, cm.JoinFull)), []error{uverbs.ErrClosed})
}

// TestDeviceGroup joins with one call.
func TestDeviceGroup(t *testing.T) {
	begin(t)
	needUD(t)
	ctx := limit(t)
	o := &cm.Options{LocalAddr: at(deviceIP, 0), QP: small()}
	const group = "239.1.2.10"
	a, b := must(cm.JoinMulticast(ctx, group, o))(t), must(cm.JoinMulticast(ctx, group, o))(t)
	closing(t, a)
	closing(t, b)
	in, out := must(b.AllocMsgs(uverbs.GRHLen+64))(t), must(a.AllocMsgs(64))(t)
	defer in.Close()
	defer out.Close()
	check(t, b.PostRecv(2, in.SGE(0, in.Len())))
	check(t, a.PostSend(1, uverbs.Signaled, out.SGE(0, copy(out.Bytes(), "to the group"))))
	must(a.SendComp(ctx))(t)
	wc := must(b.RecvComp(ctx))(t)
	if got := string(in.Bytes()[uverbs.GRHLen:wc.ByteLen]); got != "to the group" {
		t.Errorf("%q arrived", got)
	}
}

// TestDeviceGroupBad uses a wrong address and a context that has ended.
func TestDeviceGroupBad(t *testing.T) {
	begin(t)
	_, err := cm.JoinMulticast(limit(t), deviceIP, nil)
	isError(t, err, []error{uverbs.ErrInvalid}, "not a multicast address")
	ctx, cancel := context.WithCancelCause(limit(t))
	cancel(errCut)
	_, err = cm.JoinMulticast(ctx, "239.1.2.9", &cm.Options{LocalAddr: at(deviceIP, 0)})
	isError(t, err, []error{errCut})
}
