package mlx5

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// TestAHWithoutDescriptors checks that CreateAH succeeds if the process may not open a socket: it needs the type of the
// GID, not the name of the GID's network interface, for which it would open one.
func TestAHWithoutDescriptors(t *testing.T) {
	d := newAVDesk(t, true)
	d.s.Set(func() {
		for i := range d.s.GIDs {
			d.s.GIDs[i].NetdevIfindex = 1
		}
	})
	var old unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: old.Max}))
	ah, err := d.pd.CreateAH(uverbs.AHAttr{IsGlobal: true, DGID: avDGID, Port: 1, HopLimit: 1, SGIDIndex: 200})
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	check(t, err)
	check(t, ah.Close())
}

// hwRates are the device's numbers of the rates of enum ibv_rate, from libmlx5.
var hwRates = []uint8{0, 0, 7, 8, 9, 10, 11, 12, 13, 14, 15, 11, 13, 15, 0, 9, 15, 0, 0, 9, 13, 0, 0, 0, 0, 0}

// newAVDesk returns a desk with 256 GIDs. The first half is RoCE v1.
func newAVDesk(t *testing.T, ethernet bool) *desk {
	k := standard()
	k.ethernet = ethernet
	d := newDesk(t, k)
	d.s.Set(func() {
		gid := d.s.GIDs[0]
		d.s.GIDs, d.s.Ports[0].GidTblLen = nil, 256
		for i := range uint32(256) {
			gid.GidIndex, gid.GidType = i, uapi.IB_UVERBS_GID_TYPE_ROCE_V2
			if i < 128 {
				gid.GidType = uapi.IB_UVERBS_GID_TYPE_ROCE_V1
			}
			if !ethernet {
				gid.GidType = uapi.IB_UVERBS_GID_TYPE_IB
			}
			d.s.GIDs = append(d.s.GIDs, gid)
		}
	})
	return d
}

// av creates an address handle and returns the address vector that requests copy.
func (d *desk) av(t *testing.T, a uverbs.AHAttr) (raw [avSize]byte) {
	t.Helper()
	ah := good(d.pd.CreateAH(a))(t)
	av := provider.AHOf(ah).AV()
	for i, w := range av {
		binary.NativeEndian.PutUint64(raw[8*i:], w)
	}
	check(t, ah.Close())
	return raw
}

var avDGID = uverbs.GID{0xfe, 0x80, 2: 1, 14: 0xab, 15: 0xcd}

// addresses calls f with all rates and service levels, and a selection of GID indexes.
func addresses(f func(a uverbs.AHAttr)) {
	a := uverbs.AHAttr{IsGlobal: true, DGID: avDGID, Port: 1, HopLimit: 0x5a, TrafficClass: 0xc3}
	for a.StaticRate = range uverbs.Rate(26) {
		f(a)
	}
	for _, a.StaticRate = range []uverbs.Rate{26, 255} {
		f(a)
	}
	for a.SL = range uint8(16) {
		f(a)
	}
	for _, a.SGIDIndex = range []uint8{0, 1, 63, 64, 127, 128, 200, 255} {
		for _, a.FlowLabel = range []uint32{1, 0x3fff, 0x4000, 0x12345, 0xfffff} {
			f(a)
		}
	}
}

// hwRate returns the device's number of a rate.
func hwRate(r uverbs.Rate) uint8 {
	if int(r) < len(hwRates) {
		return hwRates[r]
	}
	return 0
}

// route writes the part of an address vector after the MAC address.
func route(raw []byte, a *uverbs.AHAttr, mark uint32) {
	raw[26], raw[27] = a.TrafficClass, a.HopLimit
	binary.BigEndian.PutUint32(raw[28:], mark|uint32(a.SGIDIndex)<<20|a.FlowLabel)
	copy(raw[32:], a.DGID[:])
}

// TestEthernetAV checks that address vectors on Ethernet are equal to those of libmlx5, with the MAC address that the
// kernel resolved.
func TestEthernetAV(t *testing.T) {
	d := newAVDesk(t, true)
	addresses(func(a uverbs.AHAttr) {
		got := d.av(t, a)
		var want [avSize]byte
		want[12] = hwRate(a.StaticRate)<<4 | a.SL&7<<1
		if a.SGIDIndex >= 128 {
			binary.BigEndian.PutUint16(want[14:], 0xc000|uint16(a.FlowLabel&0x3fff^a.FlowLabel>>14))
		}
		copy(want[20:26], got[20:26])
		route(want[:], &a, 0)
		if a.FlowLabel == 0 && a.SGIDIndex >= 128 {
			copy(want[14:16], got[14:16])
		}
		if got != want {
			t.Errorf("%+v:\n%x, want\n%x", a, got, want)
		}
		if [6]byte(got[20:26]) != d.s.hca.MAC() {
			t.Errorf("the MAC address is %x", got[20:26])
		}
	})
	// Without a flow label, the port is random within the range that routers use.
	a := uverbs.AHAttr{IsGlobal: true, DGID: avDGID, Port: 1, SGIDIndex: 200}
	ports := make(map[uint16]bool)
	for range 50 {
		raw := d.av(t, a)
		port := binary.BigEndian.Uint16(raw[14:])
		if ports[port] = true; port < 0xc000 {
			t.Errorf("UDP port %#x", port)
		}
	}
	if len(ports) < 10 {
		t.Errorf("%d ports for 50 addresses without a flow label", len(ports))
	}
}

// TestInfiniBandAV checks that address vectors on InfiniBand are equal to those of libmlx5, with and without a GRH.
func TestInfiniBandAV(t *testing.T) {
	d := newAVDesk(t, false)
	addresses(func(a uverbs.AHAttr) {
		for _, a.IsGlobal = range []bool{true, false} {
			for _, a.SrcPathBits = range []uint8{0, 5, 0x7f, 0xff} {
				a.DLID = 0x1234
				var want [avSize]byte
				want[12] = hwRate(a.StaticRate)<<4 | a.SL
				want[13] = a.SrcPathBits & 0x7f
				want[14], want[15] = 0x12, 0x34
				if a.IsGlobal {
					route(want[:], &a, 1<<30)
				}
				if got := d.av(t, a); got != want {
					t.Errorf("%+v:\n%x, want\n%x", a, got, want)
				}
			}
		}
	})
}

// TestRequiredGRH checks that an address without a GRH is rejected if an InfiniBand port requires one, and that an
// address with a GRH has it.
func TestRequiredGRH(t *testing.T) {
	d := newAVDesk(t, false)
	d.s.Set(func() { d.s.Ports[0].Flags |= uapi.IB_UVERBS_QPF_GRH_REQUIRED })
	a := uverbs.AHAttr{DLID: 9, Port: 1, SGIDIndex: 77, DGID: avDGID, HopLimit: 1}
	if ah, err := d.pd.CreateAH(a); !errors.Is(err, unix.EINVAL) {
		t.Errorf("an address without GRH: %v, %v", ah, err)
	}
	a.IsGlobal = true
	if got := d.av(t, a); binary.BigEndian.Uint32(got[28:]) != 1<<30|77<<20 {
		t.Errorf("the address is %x", got)
	}
}
