package uverbs

import (
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
)

// watchPaths returns a slice to which the address vector of each later MODIFY_QP is appended.
func watchPaths(r *rig) *[]uapi.IbUverbsQpDest {
	var paths []uapi.IbUverbsQpDest
	r.k.Set(func() {
		r.k.Before = func(m *ioctltest.Msg) {
			if m.Name != "MODIFY_QP" {
				return
			}
			if req := ioctltest.Request[uapi.IbUverbsModifyQp](m); QPMask(req.AttrMask)&MaskAV != 0 {
				paths = append(paths, req.Dest)
			}
		}
	})
	return &paths
}

// TestPathConfig checks that QPConfig.Path is applied to connections and to the attributes of
// address handles.
func TestPathConfig(t *testing.T) {
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	cq := good(r.c.CreateCQ(CQConfig{Entries: 1}))(t)
	paths := watchPaths(r)
	path := PathConfig{TrafficClass: 106, SL: 3, FlowLabel: 0x12345, HopLimit: 7, StaticRate: 5}
	for _, c := range []struct {
		path PathConfig
		want uapi.IbUverbsQpDest
	}{
		{path, uapi.IbUverbsQpDest{TrafficClass: 106, Sl: 3, FlowLabel: 0x12345, HopLimit: 7, StaticRate: 5}},
		{PathConfig{}, uapi.IbUverbsQpDest{HopLimit: defaultHopLimit}},
	} {
		qp := good(pd.CreateQP(QPConfig{Type: RC, SendCQ: cq, MaxSendWR: 1, Path: c.path}))(t)
		self := good(qp.Endpoint())(t)
		check(t, qp.Connect(self))
		c.want.Dgid, c.want.SgidIndex, c.want.IsGlobal, c.want.PortNum = self.GID, 2, 1, 1
		if got := (*paths)[len(*paths)-1]; got != c.want {
			t.Errorf("%+v: connected by %+v, want %+v", c.path, got, c.want)
		}
		var want AHAttr
		want.decode(&c.want)
		if got := good(qp.AHAttr(self))(t); got != want {
			t.Errorf("%+v: AHAttr is %+v, want %+v", c.path, got, want)
		}
	}
	a := AHAttr{SL: 1, TrafficClass: 2, FlowLabel: 3, HopLimit: 4, StaticRate: 5, DLID: 6}
	PathConfig{SL: 9}.Apply(&a)
	if want := (AHAttr{SL: 9, TrafficClass: 2, FlowLabel: 3, HopLimit: 4, StaticRate: 5, DLID: 6}); a != want {
		t.Errorf("SL alone applied: %+v, want %+v", a, want)
	}
	for _, bad := range []PathConfig{{SL: 16}, {FlowLabel: 1 << 20}} {
		if err := second(pd.CreateQP(QPConfig{Type: RC, SendCQ: cq, Path: bad})); !errors.Is(err, ErrInvalid) {
			t.Errorf("CreateQP with %+v: %v", bad, err)
		}
		if err := bad.check("check path", pathName); !errors.Is(err, ErrInvalid) {
			t.Errorf("Validate of %+v: %v", bad, err)
		}
	}
	check(t, path.check("check path", pathName))
}

// TestConnectGRH checks that on InfiniBand packets have a GRH only if the peer is in another subnet
// or one of the ports requires it.
func TestConnectGRH(t *testing.T) {
	near, far := GID{0: 0xfe, 1: 0x80, 15: 9}, GID{0: 0xfe, 1: 0x80, 7: 1, 15: 9}
	for name, c := range map[string]struct {
		remote   Endpoint
		required bool
		want     bool
	}{
		"same subnet":             {Endpoint{LID: 7, GID: near}, false, false},
		"another subnet":          {Endpoint{LID: 7, GID: far}, false, true},
		"required here":           {Endpoint{LID: 7, GID: near}, true, true},
		"required at the peer":    {Endpoint{LID: 7, GID: near, GRHRequired: true}, false, true},
		"the peer told no LID":    {Endpoint{GID: near}, false, true},
		"the peer told no GID":    {Endpoint{LID: 7}, false, false},
		"no GID, required by it":  {Endpoint{LID: 7, GRHRequired: true}, false, false},
		"another subnet, no LIDs": {Endpoint{GID: far}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.k.Set(func() {
				r.k.Ports[0].LinkLayer, r.k.Ports[0].Lid, r.k.Ports[0].Flags = uint8(LinkInfiniBand), 5, 0
				if c.required {
					r.k.Ports[0].Flags = uapi.IB_UVERBS_QPF_GRH_REQUIRED
				}
				r.k.GIDs = []uapi.IbUverbsGidEntry{{Gid: [16]byte{0: 0xfe, 1: 0x80, 15: 1}, PortNum: 1}}
			})
			pd := good(r.c.AllocPD())(t)
			cq := good(r.c.CreateCQ(CQConfig{Entries: 1}))(t)
			qp := good(pd.CreateQP(QPConfig{Type: RC, SendCQ: cq, MaxSendWR: 1, Path: PathConfig{SL: 4, TrafficClass: 8}}))(t)
			paths := watchPaths(r)
			c.remote.MTU = MTU1024
			check(t, qp.Connect(c.remote))
			want := uapi.IbUverbsQpDest{Dlid: c.remote.LID, Sl: 4, PortNum: 1}
			if c.want {
				want.IsGlobal, want.Dgid, want.HopLimit, want.TrafficClass = 1, c.remote.GID, defaultHopLimit, 8
			}
			if got := (*paths)[0]; got != want {
				t.Errorf("connected by %+v, want %+v", got, want)
			}
			if e := good(qp.Endpoint())(t); e.GRHRequired != c.required || e.LID != 5 {
				t.Errorf("Endpoint is %v", e)
			}
		})
	}
}

// An eceQP is a QP whose device supports the options in grants.
type eceQP struct {
	*fakeQP
	grants uint32
	now    ECE
	asked  []ECE
}

func (q *eceQP) QueryECE() (vendorID, options uint32) { return q.now.VendorID, q.now.Options }

func (q *eceQP) SetECE(vendorID, options uint32) error {
	e := ECE{vendorID, options}
	q.asked = append(q.asked, e)
	q.now.Options = e.Options & q.grants
	return nil
}

func (q *eceQP) ModifyECE(bool) ([]byte, int) { return nil, 0 }
func (q *eceQP) ModifiedECE([]byte)           {}

// withECE makes the device of an unconnected QP support the options e.
func withECE(q *QP, e ECE) *eceQP {
	p := &eceQP{fakeQP: q.impl.(*fakeQP), grants: e.Options, now: e}
	q.impl = p
	return p
}

// TestConnectECE checks that Connect sets the options that both QPs support, and that an Endpoint
// contains them.
func TestConnectECE(t *testing.T) {
	const vendor = 0x15b3
	for name, c := range map[string]struct{ here, there, want ECE }{
		"both":           {ECE{vendor, 0b0111}, ECE{vendor, 0b1110}, ECE{vendor, 0b0110}},
		"none in common": {ECE{vendor, 0b0001}, ECE{vendor, 0b1110}, ECE{}},
		"another vendor": {ECE{vendor, 0b0111}, ECE{9, 0b1110}, ECE{}},
		"none there":     {ECE{vendor, 0b0111}, ECE{}, ECE{}},
		"none here":      {ECE{vendor, 0}, ECE{vendor, 0b1110}, ECE{}},
	} {
		_, qp := raw(t, "10.1.1.1")
		p := withECE(qp, c.here)
		var remote Endpoint
		there := Endpoint{QPN: 1, MTU: MTU1024, GID: gid("10.1.1.2"), ECE: c.there}
		check(t, remote.UnmarshalText([]byte(there.String())))
		check(t, qp.Connect(remote))
		switch {
		case c.want == ECE{}:
			if len(p.asked) != 0 {
				t.Errorf("%s: the device was asked for %+v", name, p.asked)
			}
		case len(p.asked) != 1 || p.asked[0] != c.want:
			t.Errorf("%s: the device was asked for %+v, want %+v", name, p.asked, c.want)
		}
	}
}

// TestEndpointText checks the text of an Endpoint, and that attributes of later versions are
// ignored.
func TestEndpointText(t *testing.T) {
	e := Endpoint{QPN: 0x11, PSN: 0xabcdef, LID: 7, GID: gid("192.0.2.1"), MTU: MTU1024, RdAtomic: 16}
	const text = "0007:000011:abcdef:00000000000000000000ffffc0000201:3:16"
	if e.String() != text {
		t.Errorf("%q, want %q", e, text)
	}
	e.GRHRequired, e.ECE = true, ECE{VendorID: 0x15b3, Options: 0x10000003}
	if want := text + ":grh:ece=15b3.10000003"; e.String() != want {
		t.Errorf("%q, want %q", e, want)
	}
	var got Endpoint
	if err := got.UnmarshalText([]byte(e.String() + ":later=5")); err != nil || got != e {
		t.Errorf("with an attribute of a later version: %+v, %v", got, err)
	}
	for _, bad := range []string{text + ":", text + ":ece=", text + ":ece=1", text + ":ece=1.2 ", text + ":a\nb",
		strings.ToUpper(text) + ":ece=1.100000000"} {
		if err := got.UnmarshalText([]byte(bad)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func pathName() string { return "path" }
