package cm

import (
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestECE checks that both sides of a connection set the options that both support, without calls by the program, and
// fewer after SetLocalECE.
func TestECE(t *testing.T) {
	for name, tc := range map[string]struct {
		device        uint32
		active, child *ECE
		want          uint32
	}{
		"by itself":            {device: 0xf, want: 0x7},
		"the active side less": {device: 0xf, active: &ECE{loopVendor, 0x3}, want: 0x3},
		"the passive side":     {device: 0xf, child: &ECE{loopVendor, 0x5}, want: 0x5},
		"more than there is":   {device: 0xf, active: &ECE{loopVendor, 0xff}, want: 0x7},
		"another vendor":       {device: 0xf, active: &ECE{0x99, 0xff}, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.prepare = func(l *loop) { l.ece = tc.device }
			ctx := limit(t)
			l := syncListener(t, PSTCP)
			a := readyID(t, l)
			if tc.active != nil {
				check(t, a.SetLocalECE(*tc.active))
			}
			connected := make(chan error, 1)
			go func() { connected <- a.Connect(ctx, nil) }()
			p := closing(t, good(l.GetRequest(ctx))(t))
			if tc.child != nil {
				check(t, p.SetLocalECE(*tc.child))
			}
			check(t, p.CreateQP(nil, small))
			check(t, p.Accept(ctx, nil))
			check(t, <-connected)
			if got := good(p.QP().QueryECE())(t); got.Options != tc.want {
				t.Errorf("the passive side has %#x, want %#x", got.Options, tc.want)
			}
			if tc.active != nil && tc.active.VendorID != loopVendor {
				return // the program has to handle this
			}
			if got := good(a.QP().QueryECE())(t); got != (uverbs.ECE{VendorID: loopVendor, Options: tc.want}) {
				t.Errorf("the active side has %+v, want %#x", got, tc.want)
			}
		})
	}
}

// TestECEPeerWithout checks that a peer without options can connect. Then neither side sets any.
func TestECEPeerWithout(t *testing.T) {
	r := newRig(t)
	r.prepare = func(l *loop) { l.ece = 0xf }
	k := newTalk(t)
	l := k.listen(PSTCP)
	a := k.resolved(PSTCP, l.LocalAddr())
	check(t, a.CreateQP(nil, small))
	p := k.request(a, nil)
	p.remoteECE = ECE{} // as in a request of a peer without ECE
	check(t, p.CreateQP(nil, small))
	check(t, p.Accept(nil))
	k.next(EventEstablished, a)
	k.next(EventEstablished, p)
	for _, i := range []*ID{a, p} {
		if got := good(i.QP().QueryECE())(t); got.Options != 0 {
			t.Errorf("options %#x", got.Options)
		}
	}
}

// TestConnectPath checks that QPConfig.Path sets the headers of a connection's packets.
func TestConnectPath(t *testing.T) {
	r := newRig(t)
	l := syncListener(t, PSTCP)
	s := newSyncID(t, PSTCP)
	check(t, s.ResolveAddr(limit(t), at(here, 0), l.LocalAddr(), 0))
	check(t, s.ResolveRoute(limit(t), 0))
	cfg := small
	cfg.Path = uverbs.PathConfig{TrafficClass: 104, SL: 3, FlowLabel: 0x12345}
	check(t, s.CreateQP(nil, cfg))
	connectTo(t, l, s)
	r.loop().mu.Lock()
	av := r.loop().qpOf(s.QP().QPN()).av
	r.loop().mu.Unlock()
	if av.TrafficClass != 104 || av.Sl != 3 || av.FlowLabel != 0x12345 {
		t.Errorf("%+v", av)
	}
}
