package devicetest

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestDevicePath connects QPs with a PathConfig, and sends messages.
func TestDevicePath(t *testing.T) {
	path := uverbs.PathConfig{TrafficClass: 104, SL: 3, FlowLabel: 0x12345}
	l := newLoop(t, func(c *uverbs.QPConfig) { c.Path = path })
	port := must(l.dev.QueryPort(1))(t)
	for _, e := range []end{l.a, l.b} {
		got := must(e.qp.Query(uverbs.MaskAV))(t).AV
		if port.LinkLayer == uverbs.LinkInfiniBand { // within a subnet packets have no GRH
			if got.SL != path.SL || got.IsGlobal != port.GRHRequired {
				t.Errorf("the address vector is %+v", got)
			}
			continue
		}
		if !got.IsGlobal || got.TrafficClass != path.TrafficClass || got.FlowLabel != path.FlowLabel {
			t.Errorf("the address vector is %+v", got)
		}
	}
	l.a.fill(3)
	check(t, l.write(t, l.a.mr, l.b.mr, 4096))
	same(t, l.b.mr.Bytes()[:4096], l.a.mr.Bytes()[:4096])
}

// TestDeviceConnectECE checks that Connect sets the options that both ends support, and that they
// are the same at both ends.
func TestDeviceConnectECE(t *testing.T) {
	l := newLoop(t, nil)
	fresh := l.newEnd(t, nil)
	offered, err := fresh.qp.QueryECE()
	if err != nil && !errors.Is(err, uverbs.ErrNotSupported) {
		t.Fatal(err)
	}
	if e := endpoint(t, fresh.qp).ECE; e != offered {
		t.Errorf("the Endpoint offers %+v, the QP %+v", e, offered)
	}
	for _, e := range []end{l.a, l.b} {
		if got, err := e.qp.QueryECE(); err == nil && got != offered {
			t.Errorf("connected with %+v, of %+v", got, offered)
		}
	}
}
