package cm

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestSockaddr checks the wire formats of addresses: struct sockaddr_in, sockaddr_in6 and sockaddr_ib.
func TestSockaddr(t *testing.T) {
	v4 := make([]byte, 16)
	binary.NativeEndian.PutUint16(v4, unix.AF_INET)
	copy(v4[2:], []byte{0x1d, 0x2f, 192, 0, 2, 1})
	v6 := make([]byte, 28)
	binary.NativeEndian.PutUint16(v6, unix.AF_INET6)
	copy(v6[2:], []byte{0x1d, 0x2f, 0, 0, 0, 0, 0xfe, 0x80})
	v6[23] = 9
	scoped := bytes.Clone(v6)
	binary.NativeEndian.PutUint32(scoped[24:], 12345)
	lo := bytes.Clone(v6)
	binary.NativeEndian.PutUint32(lo[24:], 1)
	every := make([]byte, 28)
	binary.NativeEndian.PutUint16(every, unix.AF_INET6)
	for _, tc := range []struct {
		addr netip.AddrPort
		want []byte
		back string
	}{
		{netip.MustParseAddrPort("192.0.2.1:7471"), v4, "192.0.2.1:7471"},
		{netip.MustParseAddrPort("[::ffff:192.0.2.1]:7471"), v4, "192.0.2.1:7471"},
		{netip.MustParseAddrPort("[fe80::9]:7471"), v6, "[fe80::9]:7471"},
		{netip.MustParseAddrPort("[fe80::9%12345]:7471"), scoped, "[fe80::9%12345]:7471"},
		{netip.MustParseAddrPort("[fe80::9%lo]:7471"), lo, "[fe80::9%lo]:7471"},
		{netip.MustParseAddrPort("[fe80::9%1]:7471"), lo, "[fe80::9%lo]:7471"},
		{netip.AddrPort{}, every, "[::]:0"},
	} {
		b, err := sockaddr(tc.addr)
		if check(t, err); !bytes.Equal(b, tc.want) {
			t.Errorf("%v is %x, want %x", tc.addr, b, tc.want)
		}
		if got := parseSockaddr(b).String(); got != tc.back {
			t.Errorf("%v comes back as %s, want %s", tc.addr, got, tc.back)
		}
	}
	for n := range v6 { // too short for an address
		if a := parseSockaddr(v6[:n]); a.IsValid() {
			t.Errorf("%d bytes are %v", n, a)
		}
	}
	_, err := sockaddr(netip.MustParseAddrPort("[fe80::9%nosuch0]:1"))
	is(t, "a zone that is not there", err, uverbs.ErrInvalid, unix.EINVAL)
}

func TestIBAddr(t *testing.T) {
	a := IBAddr{PKey: 0x1122, FlowInfo: 0x33445566, GID: uverbs.GID{0: 0xfe, 15: 7}, ServiceID: 0x0106_0000_1d2f,
		ScopeID: 5}
	b := a.sockaddr()
	if len(b) != 48 || binary.NativeEndian.Uint16(b) != 27 || b[2] != 0x11 || b[4] != 0x33 || b[8] != 0xfe || b[23] != 7 {
		t.Errorf("%x", b)
	}
	a.ServiceMask = 1<<64 - 1 // same as 0
	if back, ok := parseIBAddr(b); !ok || back != a {
		t.Errorf("%+v comes back as %+v, %v", a, back, ok)
	}
	for n := range b {
		if _, ok := parseIBAddr(b[:n]); ok {
			t.Errorf("%d bytes are an address", n)
		}
	}
	v4 := good(sockaddr(silent))(t)
	if _, ok := parseIBAddr(append(v4, make([]byte, 48)...)); ok {
		t.Error("an IPv4 address is one of InfiniBand")
	}
	if parseSockaddr(b).IsValid() {
		t.Error("an address of InfiniBand is one of IP")
	}
}

// FuzzSockaddr checks that any bytes are either rejected or parsed, and that a parsed address encodes to the same
// bytes.
func FuzzSockaddr(f *testing.F) {
	for _, s := range []string{"192.0.2.1:1", "[::1]:65535", "[fe80::1%3]:9", "[2001:db8::1%77]:0",
		"[::ffff:10.0.0.1]:4"} {
		f.Add(good(sockaddr(netip.MustParseAddrPort(s)))(f))
	}
	f.Add((&IBAddr{GID: uverbs.GID{1}, ServiceID: 3, ServiceMask: 9}).sockaddr())
	f.Add([]byte{2})
	f.Add(append([]byte{10, 0, 0, 7}, make([]byte, 20)...))
	mapped := make([]byte, 28)
	binary.NativeEndian.PutUint16(mapped, unix.AF_INET6)
	copy(mapped[18:], []byte{0xff, 0xff, 1, 2, 3, 4, 9})
	f.Add(mapped)
	f.Fuzz(func(t *testing.T, b []byte) {
		if ib, ok := parseIBAddr(b); ok {
			if again := ib.sockaddr(); ib.ServiceMask != 0 && !bytes.Equal(again, b[:48]) {
				t.Errorf("%x is %+v, which is %x", b, ib, again)
			}
		}
		a := parseSockaddr(b)
		if !a.IsValid() || a.Addr().Is4In6() {
			return
		}
		again := good(sockaddr(a))(t)
		want := bytes.Clone(b[:len(again)])
		if a.Addr().Is4() {
			clear(want[8:]) // padding
		} else {
			clear(want[4:8]) // flow information, which AddrPort does not have
		}
		if !bytes.Equal(again, want) {
			t.Errorf("%x is %v, which is %x", want, a, again)
		}
	})
}

func FuzzSockaddrRoundTrip(f *testing.F) {
	f.Add([]byte{192, 0, 2, 1}, uint16(7471), uint32(0))
	f.Add([]byte("\xfe\x80123456789abcde"), uint16(1), uint32(2))
	f.Add([]byte("\xfe\x80123456789abcde"), uint16(1), uint32(1<<32-1))
	f.Fuzz(func(t *testing.T, ip []byte, port uint16, scope uint32) {
		addr, ok := netip.AddrFromSlice(ip)
		if !ok {
			return
		}
		if addr = addr.Unmap(); addr.Is6() && scope != 0 {
			addr = addr.WithZone(zoneOf(scope))
		}
		want := netip.AddrPortFrom(addr, port)
		if got := parseSockaddr(good(sockaddr(want))(t)); got != want {
			t.Errorf("%v comes back as %v", want, got)
		}
	})
}

func TestPathRecord(t *testing.T) {
	p := PathRecord{Flags: 1, ServiceID: 2, DGID: uverbs.GID{3}, SGID: uverbs.GID{4}, DLID: 5, SLID: 6, RawTraffic: true,
		FlowLabel: 0xabcde, HopLimit: 8, TrafficClass: 9, Reversible: true, NumPaths: 0x7f, PKey: 11, QoSClass: 0xfff, SL: 13,
		MTU: uverbs.MTU2048, Rate: 15, LifeTime: 16, Preference: 17}
	b := p.append(nil)
	if back, ok := parsePath(b); !ok || back != p {
		t.Errorf("%+v\ncomes back as\n%+v, %v", p, back, ok)
	}
	// A value that is too large for its field does not change the next field.
	over := p
	over.FlowLabel, over.NumPaths, over.QoSClass, over.SL, over.MTU, over.Rate, over.LifeTime =
		0xfffabcde, 0xff, 0xffff, 0x5d, 0xc0|uverbs.MTU2048, 0xc0|15, 0xc0|16
	if back, _ := parsePath(over.append(nil)); back != p {
		t.Errorf("%+v\ncomes back as\n%+v", over, back)
	}
	for _, n := range []int{0, 1, 71, 73, 144} {
		if _, ok := parsePath(make([]byte, n)); ok {
			t.Errorf("%d bytes are a path record", n)
		}
	}
}

func FuzzPathRecord(f *testing.F) {
	f.Add((&PathRecord{RawTraffic: true, FlowLabel: 1, HopLimit: 64, MTU: 3, Rate: 2}).append(nil))
	f.Add(bytes.Repeat([]byte{0xff}, 72))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, ok := parsePath(b)
		if ok != (len(b) == 72) {
			t.Fatalf("%d bytes: %v", len(b), ok)
		}
		if !ok {
			return
		}
		again := p.append(nil)
		want := bytes.Clone(b)
		clear(want[4:8])   // reserved
		want[8+44] &= 0x8f // reserved bits of the flow label's word
		for k := range 3 { // the selectors are fixed
			want[8+54+k] = 2<<6 | want[8+54+k]&0x3f
		}
		clear(want[8+58:]) // reserved
		if !bytes.Equal(again, want) {
			t.Errorf("%x\nis read, and written as\n%x", want, again)
		}
		if back, _ := parsePath(again); back != p {
			t.Errorf("%+v comes back as %+v", p, back)
		}
	})
}
