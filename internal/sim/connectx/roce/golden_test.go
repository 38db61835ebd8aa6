package roce

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func bytesOf(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGoldenUC parses a UC packet with padding that Mellanox published: 18
// bytes over IPv4, of which the network may change class and checksum.
func TestGoldenUC(t *testing.T) {
	frame := bytesOf(t, `248a07a8fa22 248a07a8fa22 0800
		4501 0040 0478 4000 4011 b4d5 c0a80007 c0a80007
		c000 12b7 002c 0000
		24 60 ffff 000000d3 00cf1710
		4630818be28935d90e9a95505401be885e50 0000
		78f353f3`)
	// The published frame has PSN 13571856 in its lower 24 bits.
	binary.BigEndian.PutUint32(frame[14+20+8+8:], 13571856)
	p, err := Parse(frame)
	if err != nil {
		t.Fatal(err)
	}
	if p.Opcode != UC.Of(SendOnly) || !p.MigReq || p.PKey != 0xFFFF || p.DestQPN != 211 || p.PSN != 13571856 ||
		p.AckReq || p.Solicited {
		t.Errorf("parsed as %+v", p)
	}
	if len(p.Payload) != 18 {
		t.Errorf("payload of %d bytes, want 18", len(p.Payload))
	}
	if got := p.Route; !got.IPv4() || got.HopLimit != 64 || got.TrafficClass != 1 || got.SourcePort != 0xC000 {
		t.Errorf("route is %+v", got)
	}
}

// TestGoldenConnectX checks the ICRC of a packet that a ConnectX-4 sent: a
// congestion notification, whose opcode is not of the transport.
func TestGoldenConnectX(t *testing.T) {
	frame := bytesOf(t, `e41d2dab2bc2 7cfe90643b32 0800
		45c2 003c 718c 4000 4011 9161 0a001101 0a001201
		0000 12b7 0028 0000
		8100 ffff 40000118 00000000 00000000000000000000000000000000
		82fd002a`)
	if got := icrc(V2, frame[14:len(frame)-4]); got != binary.LittleEndian.Uint32(frame[len(frame)-4:]) {
		t.Errorf("ICRC %#08x", got)
	}
	if _, err := Parse(frame); !errors.Is(err, ErrOpcode) {
		t.Errorf("a congestion notification: %v, want %v", err, ErrOpcode)
	}
}

// TestFrames checks the bytes of each encapsulation.
func TestFrames(t *testing.T) {
	p := &Packet{
		Opcode: RC.Of(SendOnlyImm), Solicited: true, AckReq: true, PKey: 0xFFFF, DestQPN: 0x112233, PSN: 0xABCDEF,
		Imm: 0xDEADBEEF, Payload: []byte("hello"),
	}
	const transport = "05b0 ffff 00112233 80abcdef deadbeef 68656c6c6f 000000"
	v4, v6 := [16]byte{10: 0xFF, 11: 0xFF, 12: 10, 13: 8, 15: 1}, [16]byte{0: 0xFE, 1: 0x80, 15: 1}
	for name, c := range map[string]struct {
		route Route
		want  string
	}{
		"v2 over IPv4": {
			Route{Version: V2, SGID: v4, DGID: [16]byte{10: 0xFF, 11: 0xFF, 12: 10, 13: 8, 15: 2}, TrafficClass: 0x68,
				HopLimit: 64, SourcePort: 0xC123},
			`0a0000000002 0a0000000001 0800 4568 0038 0000 4000 4011 263b 0a080001 0a080002 c123 12b7 0024 0000` + transport,
		},
		"v2 over IPv6, tagged": {
			Route{Version: V2, SGID: v6, DGID: [16]byte{0: 0xFE, 1: 0x80, 15: 2}, TrafficClass: 0x12, FlowLabel: 0x34567,
				HopLimit: 255, SourcePort: 0xFFFF, Tagged: true, VLAN: 0x6064},
			`0a0000000002 0a0000000001 8100 6064 86dd 61234567 0024 11 ff ` +
				`fe80000000000000 0000000000000001 fe80000000000000 0000000000000002 ffff 12b7 0024 0000` + transport,
		},
		"v1": {
			Route{Version: V1, SGID: v6, DGID: v4, HopLimit: 1},
			`0a0000000002 0a0000000001 8915 60000000 001c 1b 01 ` +
				`fe80000000000000 0000000000000001 00000000 00000000 0000ffff 0a080001` + transport,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := *p
			p.Route = c.route
			p.Route.GRH, p.Route.SMAC, p.Route.DMAC = true, [6]byte{10, 0, 0, 0, 0, 1}, [6]byte{10, 0, 0, 0, 0, 2}
			frame, err := p.AppendFrame(nil)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(bytesOf(t, c.want), frame[:len(frame)-4]); d != "" {
				t.Errorf("frame without ICRC (-want +got):\n%s", d)
			}
			back, err := Parse(append(frame, make([]byte, 7)...)) // as Ethernet pads short frames
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(&p, back); d != "" {
				t.Errorf("parsed again (-want +got):\n%s", d)
			}
		})
	}
}

// TestInvariant checks that changes the network may make do not affect the
// ICRC, and all others do.
func TestInvariant(t *testing.T) {
	for _, v := range []struct {
		version Version
		gid     [16]byte
		variant []int // offsets of bytes that may change, after the Ethernet header
		first   int   // the first byte not verified by the network's headers
	}{
		{V2, [16]byte{10: 0xFF, 11: 0xFF, 15: 1}, []int{1, 8, 10, 11, 28 + 4}, 28},
		{V2, [16]byte{15: 1}, []int{1, 2, 3, 7, 48 + 4}, 48},
		{V1, [16]byte{15: 1}, []int{1, 2, 3, 7, 40 + 4}, 40},
	} {
		p := &Packet{Opcode: XRC.Of(WriteOnly), XRCSRQ: 5, PKey: 0xFFFF, DestQPN: 7, Payload: make([]byte, 21)}
		p.Route = Route{Version: v.version, SGID: v.gid, DGID: v.gid}
		frame, err := p.AppendFrame(nil)
		if err != nil {
			t.Fatal(err)
		}
		body, end := frame[14:], len(frame)-14-4
		want := icrc(v.version, body[:end])
		if want != binary.LittleEndian.Uint32(body[end:]) {
			t.Fatal("the frame has another ICRC than its bytes")
		}
		for i := range end {
			if v.version == V2 && (i == v.first-2 || i == v.first-1) || i == 0 {
				continue // the UDP checksum is variant; the IP version selects the layout
			}
			body[i] ^= 0x10
			same := icrc(v.version, body[:end]) == want
			varies := false
			for _, at := range v.variant {
				varies = varies || at == i
			}
			if same != varies {
				t.Errorf("version %d: byte %d is changed: same ICRC %v, want %v", v.version, i, same, varies)
			}
			body[i] ^= 0x10
		}
	}
}

// TestSourcePort compares with values of the kernel (rdma_get_udp_sport).
func TestSourcePort(t *testing.T) {
	for _, c := range []struct {
		flow, local, remote uint32
		want                uint16
	}{
		{0x00001, 0, 0, 0xC001},
		{0x03FFF, 0, 0, 0xFFFF},
		{0x04001, 0, 0, 0xC000},
		{0xFC000, 0, 0, 0xC03F},
		{0, 0x11, 0x11, 0xC121},
		{0, 0x123456, 0x654321, 0},
	} {
		got := SourcePort(c.flow, c.local, c.remote)
		if c.want == 0 {
			if got != SourcePort(0, c.remote, c.local) {
				t.Error("the two directions of a connection differ")
			}
			continue
		}
		if got != c.want {
			t.Errorf("SourcePort(%#x, %#x, %#x) = %#x, want %#x", c.flow, c.local, c.remote, got, c.want)
		}
	}
}
