package uverbs

import (
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"
)

// header6 returns a GRH, or the IPv6 header of RoCE v2.
func header6(next byte, src, dst string) []byte {
	b := binary.BigEndian.AppendUint32(nil, 6<<28|0x5a<<20|0x12345)
	b = append(b, 0, 44, next, 63)
	for _, a := range []string{src, dst} {
		addr := netip.MustParseAddr(a).As16()
		b = append(b, addr[:]...)
	}
	return b
}

// header4 returns the first bytes of a buffer on RoCE v2 over IPv4: filler, and a header with
// its checksum.
func header4(filler byte, src, dst string) []byte {
	b := make([]byte, GRHLen)
	for i := range ipv4At {
		b[i] = filler
	}
	h := b[ipv4At:]
	h[0], h[1], h[8], h[9] = ipv4Word, 0x5a, 64, nextUDP
	for at, a := range map[int]string{12: src, 16: dst} {
		addr := netip.MustParseAddr(a).As4()
		copy(h[at:], addr[:])
	}
	binary.BigEndian.PutUint16(h[10:], ^onesSum(h))
	return b
}

func TestAHAttrFromWC(t *testing.T) {
	r := newRig(t)
	const local4, local6 = "192.0.2.1", "fe80::1" // GIDs 2, and 0 (v1) and 1 (v2)
	spoiled := header4(0x66, "192.0.2.9", local4)
	spoiled[30]++
	for name, c := range map[string]struct {
		wc    WC
		grh   []byte
		want  AHAttr
		wrong string
	}{
		"IPv4": {WC{Flags: WCGRH}, header4(0, "192.0.2.9", local4),
			AHAttr{SGIDIndex: 2, DGID: gid("192.0.2.9"), TrafficClass: 0x5a}, ""},
		"IPv4, garbage": {WC{Flags: WCGRH}, header4(0xee, "192.0.2.9", local4),
			AHAttr{SGIDIndex: 2, DGID: gid("192.0.2.9"), TrafficClass: 0x5a}, ""},
		"IPv4, like IPv6": {WC{Flags: WCGRH}, header4(0x66, "192.0.2.9", local4),
			AHAttr{SGIDIndex: 2, DGID: gid("192.0.2.9"), TrafficClass: 0x5a}, ""},
		"IPv6": {WC{Flags: WCGRH, SL: 3}, header6(nextUDP, "fe80::9", local6),
			AHAttr{SGIDIndex: 1, DGID: gid("fe80::9"), TrafficClass: 0x5a, FlowLabel: 0x12345, SL: 3}, ""},
		"RoCE v1": {WC{Flags: WCGRH}, header6(nextBTH, "fe80::9", local6),
			AHAttr{SGIDIndex: 0, DGID: gid("fe80::9"), TrafficClass: 0x5a, FlowLabel: 0x12345}, ""},
		"IPv4 multicast": {WC{Flags: WCGRH}, header4(0, "192.0.2.9", "239.1.2.3"),
			AHAttr{SGIDIndex: 2, DGID: gid("192.0.2.9"), TrafficClass: 0x5a}, ""},
		"IPv6 multicast": {WC{Flags: WCGRH}, header6(nextUDP, "fe80::9", "ff12::1"),
			AHAttr{SGIDIndex: 1, DGID: gid("fe80::9"), TrafficClass: 0x5a, FlowLabel: 0x12345}, ""},
		"without GRH":      {WC{SLID: 7, SL: 2, PathBits: 1}, nil, AHAttr{DLID: 7, SL: 2, SrcPathBits: 1}, ""},
		"failed receive":   {WC{Status: WCWRFlushErr}, nil, AHAttr{}, "the receive has failed"},
		"short":            {WC{Flags: WCGRH}, header6(nextUDP, "fe80::9", local6)[:39], AHAttr{}, "39 bytes"},
		"another protocol": {WC{Flags: WCGRH}, header6(6, "fe80::9", local6), AHAttr{}, "next header is 6"},
		"nothing":          {WC{Flags: WCGRH}, make([]byte, GRHLen), AHAttr{}, "neither"},
		"bad checksum":     {WC{Flags: WCGRH}, spoiled, AHAttr{}, "next header"},
		"not ours":         {WC{Flags: WCGRH}, header4(0, "192.0.2.9", "192.0.2.2"), AHAttr{}, "192.0.2.2"},
		"not ours, v1":     {WC{Flags: WCGRH}, header6(nextBTH, "fe80::9", "fe80::2"), AHAttr{}, "fe80::2"},
	} {
		got, err := r.c.AHAttrFromWC(1, &c.wc, c.grh)
		if c.wrong != "" {
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v, want …%s…", name, err, c.wrong)
			}
			continue
		}
		c.want.Port = 1
		if c.grh != nil {
			c.want.IsGlobal, c.want.HopLimit = true, math.MaxUint8
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	if _, err := r.c.AHAttrFromWC(9, &WC{}, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("port 9: %v", err)
	}
	pd := good(r.c.AllocPD())(t)
	good(pd.CreateAHFromWC(1, &WC{Flags: WCGRH}, header4(0, "192.0.2.9", local4)))(t)
	if _, err := pd.CreateAHFromWC(1, &WC{Flags: WCGRH}, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("without a GRH area: %v", err)
	}
}

func gid(a string) GID { return GIDFromAddr(netip.MustParseAddr(a)) }

// FuzzGRH checks that any bytes before a datagram are either decoded as one of the two headers,
// with the addresses that they contain, or refused.
func FuzzGRH(f *testing.F) {
	f.Add(header4(0, "192.0.2.1", "192.0.2.2"))
	f.Add(header4(0x66, "192.0.2.1", "239.0.2.2"))
	f.Add(header6(nextUDP, "fe80::1", "fe80::2"))
	f.Add(header6(nextBTH, "fe80::1", "ff02::2"))
	f.Add(make([]byte, GRHLen-1))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := parseGRH(b)
		if err != nil {
			if g != (grh{}) || !errors.Is(err, ErrInvalid) {
				t.Errorf("%x is refused by %v, and decoded: %+v", b, err, g)
			}
			return
		}
		is4 := g.src.Addr().Is4() && g.dst.Addr().Is4()
		switch {
		case string(g.src[:])+string(g.dst[:]) == string(b[8:40]):
			if b[0]>>4 != 6 || g.roce1 != (b[6] == nextBTH) || g.trafficClass != b[0]<<4|b[1]>>4 || g.flowLabel > 1<<20-1 {
				t.Errorf("%x as IPv6: %+v", b, g)
			}
		case is4 && string(g.src[12:])+string(g.dst[12:]) == string(b[32:40]):
			if b[20]>>4 != 4 || g.roce1 || g.trafficClass != b[21] || g.flowLabel != 0 {
				t.Errorf("%x as IPv4: %+v", b, g)
			}
		default:
			t.Errorf("%x: the addresses are %v and %v", b, g.src, g.dst)
		}
	})
}
