package devicetest

import (
	"context"
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestDeviceGetAddrInfo looks up the cases that rdma_getaddrinfo(3) lists.
func TestDeviceGetAddrInfo(t *testing.T) {
	begin(t)
	hosts(t, deviceIP+" rnode", deviceV6+" rnode")
	four, six := at(deviceIP, 4000), at(deviceV6, 4000)
	rc := func(f cm.Family, dst netip.AddrPort) cm.AddrInfo {
		return cm.AddrInfo{Family: f, QPType: uverbs.RC, PortSpace: cm.PSTCP, Dst: dst}
	}
	for name, test := range map[string]struct {
		node, service string
		hints         *cm.AddrInfo
		want          []cm.AddrInfo
		err           []error
	}{
		"address":    {deviceIP, "4000", nil, []cm.AddrInfo{rc(cm.IPv4, four)}, nil},
		"address 6":  {deviceV6, "4000", nil, []cm.AddrInfo{rc(cm.IPv6, six)}, nil},
		"mapped":     {"::ffff:" + deviceIP, "4000", nil, []cm.AddrInfo{rc(cm.IPv4, four)}, nil},
		"no service": {deviceIP, "", nil, []cm.AddrInfo{rc(cm.IPv4, at(deviceIP, 0))}, nil},
		"UD": {deviceIP, "4000", &cm.AddrInfo{QPType: uverbs.UD},
			[]cm.AddrInfo{{Family: cm.IPv4, QPType: uverbs.UD, PortSpace: cm.PSUDP, Dst: four}}, nil},
		"source": {deviceIP, "4000", &cm.AddrInfo{Src: at(deviceIP, 0)},
			[]cm.AddrInfo{{Family: cm.IPv4, QPType: uverbs.RC, PortSpace: cm.PSTCP, Src: at(deviceIP, 0), Dst: four}}, nil},
		"passive": {deviceIP, "4000", &cm.AddrInfo{Flags: cm.Passive},
			[]cm.AddrInfo{{Flags: cm.Passive, Family: cm.IPv4, QPType: uverbs.RC, PortSpace: cm.PSTCP, Src: four}}, nil},
		"passive, any": {"", "4000", &cm.AddrInfo{Flags: cm.Passive},
			[]cm.AddrInfo{{Flags: cm.Passive, Family: cm.IPv6, QPType: uverbs.RC, PortSpace: cm.PSTCP, Src: at("::", 4000)}},
			nil},
		"passive, any of IPv4": {"", "4000", &cm.AddrInfo{Flags: cm.Passive, Family: cm.IPv4},
			[]cm.AddrInfo{{Flags: cm.Passive, Family: cm.IPv4, QPType: uverbs.RC, PortSpace: cm.PSTCP,
				Src: at("0.0.0.0", 4000)}}, nil},
		"name of IPv4":      {"rnode", "4000", &cm.AddrInfo{Family: cm.IPv4}, []cm.AddrInfo{rc(cm.IPv4, four)}, nil},
		"name of IPv6":      {"rnode", "4000", &cm.AddrInfo{Family: cm.IPv6}, []cm.AddrInfo{rc(cm.IPv6, six)}, nil},
		"nobody":            {"", "4000", nil, nil, []error{uverbs.ErrInvalid}},
		"name for a number": {"rnode", "4000", &cm.AddrInfo{Flags: cm.NumericHost}, nil, []error{uverbs.ErrInvalid}},
		"other family":      {deviceIP, "4000", &cm.AddrInfo{Family: cm.IPv6}, nil, []error{uverbs.ErrInvalid}},
		"unknown family":    {deviceIP, "4000", &cm.AddrInfo{Family: 99}, nil, []error{uverbs.ErrNotSupported}},
		"AF_IB": {deviceIP, "4000", &cm.AddrInfo{Family: cm.IB}, nil,
			[]error{uverbs.ErrNotSupported, unix.EAFNOSUPPORT}},
		"unknown name":     {"nowhere.invalid", "4000", nil, nil, []error{cm.ErrUnreachable}},
		"unknown service":  {deviceIP, "nosuch", nil, nil, []error{uverbs.ErrInvalid}},
		"service too high": {deviceIP, "65536", nil, nil, []error{uverbs.ErrInvalid}},
		// "for example, if hints.ai_qptype and hints.ai_port_space are inconsistent" (rdma_getaddrinfo(3)).
		"UD in TCP": {deviceIP, "4000", &cm.AddrInfo{QPType: uverbs.UD, PortSpace: cm.PSTCP}, nil,
			[]error{uverbs.ErrInvalid}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cm.GetAddrInfo(limit(t), test.node, test.service, test.hints)
			if test.err != nil {
				isError(t, err, test.err)
				return
			}
			check(t, err)
			if len(got) != len(test.want) {
				t.Fatalf("%v, want %v", got, test.want)
			}
			for k, a := range got {
				if w := test.want[k]; a.Flags != w.Flags || a.Family != w.Family || a.QPType != w.QPType ||
					a.PortSpace != w.PortSpace || a.Src != w.Src || a.Dst != w.Dst {
					t.Errorf("%+v, want %+v", a, w)
				}
			}
		})
	}
	if all := must(cm.GetAddrInfo(limit(t), "rnode", "4000", nil))(t); len(all) != 2 {
		t.Errorf("a name of two addresses has %v", all)
	}
	ctx, cancel := context.WithCancelCause(limit(t))
	cancel(errCut)
	_, err := cm.GetAddrInfo(ctx, "nowhere.invalid", "1", nil)
	isError(t, err, []error{errCut})
}

// TestDevicePortSpaceIB checks PSIB: "Provides for any IB services (UD, UC, RC, XRC, etc.)" (rdma_create_id(3)). rxe
// supports it with IP addresses.
func TestDevicePortSpaceIB(t *testing.T) {
	begin(t)
	k := newTalk(t)
	_, to := k.listen(t, cm.PSIB, at(deviceIP, 0))
	client := k.id(t, cm.PSIB)
	k.resolve(t, client, to)
	if client.PortSpace() != cm.PSIB || client.QPType() != uverbs.RC {
		t.Errorf("%v, %v", client.PortSpace(), client.QPType())
	}
	check(t, client.CreateQP(nil, small()))
	check(t, client.Connect(nil))
	child := k.good(t, cm.EventConnectRequest, nil).ID
	closing(t, child)
	check(t, child.CreateQP(nil, small()))
	check(t, child.Accept(nil))
	k.established(t, client, child)
	carries(t, client, child, "any service")

	if rnic() {
		return // it has no datagrams
	}
	ud := must(k.CreateIDFor(cm.PSIB, uverbs.UD))(t)
	closing(t, ud)
	check(t, ud.Bind(at(deviceIP, 0)))
	check(t, ud.CreateQP(nil, small()))
}

// TestDevicePortSpaces checks that IPoIB needs an InfiniBand device, and that unknown port spaces are refused.
func TestDevicePortSpaces(t *testing.T) {
	begin(t)
	k := newTalk(t)
	isError(t, k.id(t, cm.PSIPoIB).Bind(at(deviceIP, 0)), []error{unix.EINVAL})
	_, err := k.CreateID(77)
	isError(t, err, []error{uverbs.ErrInvalid}, "port space 77")
	_, err = cm.NewID(77)
	isError(t, err, []error{uverbs.ErrInvalid}, "port space 77")
	_, err = k.CreateIDFor(cm.PSTCP, uverbs.UD)
	isError(t, err, []error{uverbs.ErrInvalid}, "UD")
}
