package cm

import (
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

func xrcTarget(t *testing.T, k *talk) *ID {
	t.Helper()
	i := closing(t, good(k.CreateIDFor(PSIB, uverbs.XRCRecv))(t))
	check(t, i.Bind(at(here, 0)))
	return i
}

// TestXRC checks that ids that receive with XRC share a domain, which is closed with the last of them.
func TestXRC(t *testing.T) {
	newRig(t)
	k := newTalk(t)
	a, b := xrcTarget(t, k), xrcTarget(t, k)
	is(t, "queues", a.CreateQP(nil, uverbs.QPConfig{MaxRecvWR: 4}), uverbs.ErrInvalid)
	if a.xrcd != nil {
		t.Error("a QP that was not made has a domain")
	}
	for _, i := range []*ID{a, b} {
		check(t, i.CreateQP(nil, uverbs.QPConfig{}))
		is(t, "a second QP", i.CreateQP(nil, uverbs.QPConfig{}), uverbs.ErrInvalid)
	}
	if a.xrcd != b.xrcd || a.dev.xrcdUsers != 2 {
		t.Errorf("domains %v and %v, %d users", a.xrcd, b.xrcd, a.dev.xrcdUsers)
	}
	check(t, a.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 4}))
	is(t, "a second SRQ", a.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 4}), uverbs.ErrInvalid)
	check(t, a.DestroyQP())
	if a.RecvCQ() == nil || a.SRQ() == nil || a.xrcd == nil {
		t.Error("the SRQ's queue has gone with the QP")
	}
	check(t, a.DestroySRQ())
	if a.RecvCQ() != nil || a.xrcd != nil || a.dev.xrcdUsers != 1 {
		t.Errorf("left: %v, %v, %d users", a.RecvCQ(), a.xrcd, a.dev.xrcdUsers)
	}
	check(t, b.Close())
	if d := a.dev; d.xrcd != nil || d.xrcdUsers != 0 {
		t.Errorf("the domain is still open, with %d users", d.xrcdUsers)
	}
	sender := closing(t, good(k.CreateIDFor(PSIB, uverbs.XRCSend))(t))
	check(t, sender.Bind(at(here, 0)))
	check(t, sender.CreateQP(nil, uverbs.QPConfig{MaxSendWR: 4}))
	if sender.SendCQ() == nil || sender.RecvCQ() != nil {
		t.Errorf("queues of a sender: %v, %v", sender.SendCQ(), sender.RecvCQ())
	}
}

// TestXRCUnsupported checks that no objects remain after the failure if the device has no XRC.
func TestXRCUnsupported(t *testing.T) {
	r := newRig(t)
	r.prepare = func(l *loop) { l.k.XRC = false }
	k := newTalk(t)
	i := xrcTarget(t, k)
	is(t, "QP", i.CreateQP(nil, uverbs.QPConfig{}), uverbs.ErrNotSupported)
	is(t, "SRQ", i.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 4}), uverbs.ErrNotSupported)
	if i.dev.xrcdUsers != 0 || i.QP() != nil || i.SRQ() != nil || i.RecvCQ() != nil {
		t.Errorf("left: %d users, %v, %v, %v", i.dev.xrcdUsers, i.QP(), i.SRQ(), i.RecvCQ())
	}
}

// TestXRCDomainLeft checks that a domain with objects of the program is closed with the device, no matter whether the
// objects or the ids are closed first. Until then, later ids use it.
func TestXRCDomainLeft(t *testing.T) {
	for name, idsFirst := range map[string]bool{"ids first": true, "objects first": false} {
		t.Run(name, func(t *testing.T) {
			newRig(t)
			k := newTalk(t)
			keep := good(NewID(PSTCP))(t)
			check(t, keep.Bind(at(here, 0)))
			i := xrcTarget(t, k)
			check(t, i.CreateQP(nil, uverbs.QPConfig{}))
			cq := good(i.Verbs().CreateCQ(uverbs.CQConfig{Entries: 4}))(t)
			srq := good(i.PD().CreateSRQ(uverbs.SRQConfig{MaxWR: 4, XRCD: i.xrcd, CQ: cq}))(t)
			domain := i.xrcd
			check(t, i.Close())
			second := xrcTarget(t, k)
			check(t, second.CreateQP(nil, uverbs.QPConfig{}))
			if second.xrcd != domain {
				t.Error("a later id has another domain")
			}
			check(t, second.Close())
			if idsFirst {
				check(t, keep.Close())
			}
			check(t, srq.Close())
			check(t, cq.Close())
			check(t, keep.Close())
			host.Lock()
			defer host.Unlock()
			if n := len(host.devices); n != 0 {
				t.Errorf("%d devices are open, although all ids and objects are closed", n)
			}
		})
	}
}
