package roce

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGoldenRXE parses frames that soft-RoCE of Linux 6.12 sent, from 10.8.0.2
// to 10.8.0.1, and from fe80::ff:fe00:2 to fe80::ff:fe00:1. Encoding the packet
// again returns the same frame, except for fields of IPv4 that the sender
// chooses.
func TestGoldenRXE(t *testing.T) {
	const (
		v4 = "020000000001 020000000002 0800 "
		v6 = "020000000001 020000000002 86dd "
	)
	var (
		four = Route{Version: V2, GRH: true, HopLimit: 64, SMAC: [6]byte{2, 5: 2}, DMAC: [6]byte{2, 5: 1},
			SGID: [16]byte{10: 0xFF, 11: 0xFF, 12: 10, 13: 8, 15: 2}, DGID: [16]byte{10: 0xFF, 11: 0xFF, 12: 10, 13: 8, 15: 1}}
		six = four
	)
	six.SGID = [16]byte(bytesOf(t, "fe80000000000000 000000fffe000002"))
	six.DGID = [16]byte(bytesOf(t, "fe80000000000000 000000fffe000001"))
	for _, c := range []struct {
		frame string
		route *Route
		port  uint16
		want  Packet
	}{
		{v4 + "45000030fb81400040112b290a0800020a080001 c7e712b7001c0000 " +
			"1100ffff0000007700ffffec 1f000001 55b9ebdb",
			&four, 0xC7E7, Packet{Opcode: Acknowledge, PSN: 0xFFFFEC, AETH: AETH{AckNoCredits, 1}}},
		{v4 + "45000030fb89400040112b210a0800020a080001 c7e712b7001c0000 " +
			"1000ffff0000007700fffff0 1f000005 d5c125ce",
			&four, 0xC7E7, Packet{Opcode: ReadResponseOnly, PSN: 0xFFFFF0, AETH: AETH{AckNoCredits, 5}}},
		{v4 + "45000038fb8c400040112b160a0800020a080001 c7e712b700240000 " +
			"1200ffff0000007700fffff1 1f000006 76e5093eafd29a90 d4e1d809",
			&four, 0xC7E7,
			Packet{Opcode: AtomicAcknowledge, PSN: 0xFFFFF1, AETH: AETH{AckNoCredits, 6}, AtomicAck: 0x76E5093EAFD29A90}},
		{v4 + "45000034fbd5400040112ad10a0800020a080001 c7e712b700200000 " +
			"0f30ffff000000770000004c 1f00002f 9e000000 862eb503",
			&four, 0xC7E7, Packet{Opcode: ReadResponseLast, PSN: 0x4C, AETH: AETH{AckNoCredits, 0x2F}, Payload: []byte{0x9E}}},
		{v4 + "4500002c11d44000401114db0a0800020a080001 c85e12b700180000 " +
			"0400ffff0000007780000005 1f34aef1",
			&four, 0xC85E, Packet{Opcode: SendOnly, PSN: 5, AckReq: true}},
		{v4 + "4500003011d54000401114d60a0800020a080001 c85e12b7001c0000 " +
			"0580ffff0000007780000006 00000000 d771f991",
			&four, 0xC85E, Packet{Opcode: SendOnlyImm, PSN: 6, AckReq: true, Solicited: true}},
		{v4 + "4500003c11d64000401114c90a0800020a080001 c85e12b700280000 " +
			"0a00ffff0000007780000007 00000000000000400000123400000000 5d319abe",
			&four, 0xC85E, Packet{Opcode: WriteOnly, PSN: 7, AckReq: true, RETH: RETH{VA: 0x40, RKey: 0x1234}}},
		{v4 + "4500004011d74000401114c40a0800020a080001 c85e12b7002c0000 " +
			"0b00ffff0000007780000008 00000000000000400000123400000000 00000008 2da5e84a",
			&four, 0xC85E, Packet{Opcode: WriteOnlyImm, PSN: 8, AckReq: true, RETH: RETH{VA: 0x40, RKey: 0x1234}, Imm: 8}},
		{v4 + "4500003c11d84000401114c70a0800020a080001 c85e12b700280000 " +
			"0c00ffff0000007780000009 00000000008000000000123400000000 69512665",
			&four, 0xC85E, Packet{Opcode: ReadRequest, PSN: 9, AckReq: true, RETH: RETH{VA: 0x800000, RKey: 0x1234}}},
		{v4 + "4500004811d94000401114ba0a0800020a080001 c85e12b700340000 " +
			"1400ffff000000778000000a 00000000000000000000123400000000000000050000000000000000 a9852dbe",
			&four, 0xC85E, Packet{Opcode: FetchAdd, PSN: 10, AckReq: true, Atomic: AtomicETH{RKey: 0x1234, Swap: 5}}},
		{v4 + "4500004811da4000401114b90a0800020a080001 c85e12b700340000 " +
			"1300ffff000000778000000b 00000000000000000000123400000000000000000000000000000001 676552eb",
			&four, 0xC85E, Packet{Opcode: CompareSwap, PSN: 11, AckReq: true, Atomic: AtomicETH{RKey: 0x1234, Compare: 1}}},
		{v4 + "45000030550040004011d1aa0a0800020a080001 c85e12b7001c0000 " +
			"1700ffff00000077800053cf 0000004d 19590079",
			&four, 0xC85E, Packet{Opcode: SendOnlyInv, PSN: 0x53CF, AckReq: true, InvRKey: 77}},
		{v6 + "6000000000181140fe80000000000000000000fffe000002fe80000000000000000000fffe000001 c8d512b700180000 " +
			"0400ffff0000007780000005 0a905ab5",
			&six, 0xC8D5, Packet{Opcode: SendOnly, PSN: 5, AckReq: true}},
		{v6 + "60000000001c1140fe80000000000000000000fffe000002fe80000000000000000000fffe000001 c8d512b7001c0000 " +
			"0230ffff0000007780000051 e7000000 8db191c6",
			&six, 0xC8D5, Packet{Opcode: SendLast, PSN: 0x51, AckReq: true, Payload: []byte{0xE7}}},
		{v6 + "6000000000201140fe80000000000000000000fffe000002fe80000000000000000000fffe000001 c8d512b700200000 " +
			"03b0ffff0000007780000056 00000401 e7000000 f9128970",
			&six, 0xC8D5,
			Packet{Opcode: SendLastImm, PSN: 0x56, AckReq: true, Solicited: true, Imm: 0x401, Payload: []byte{0xE7}}},
		{v6 + "6000000000201140fe80000000000000000000fffe000002fe80000000000000000000fffe000001 c8d512b700200000 " +
			"0930ffff0000007780000060 00000008 e7000000 a8f32776",
			&six, 0xC8D5, Packet{Opcode: WriteLastImm, PSN: 0x60, AckReq: true, Imm: 8, Payload: []byte{0xE7}}},
	} {
		frame := bytesOf(t, c.frame)
		want := c.want
		want.Route, want.PKey, want.DestQPN = *c.route, 0xFFFF, 0x77
		want.Route.SourcePort = c.port
		got, err := Parse(frame)
		if d := cmp.Diff(&want, got); err != nil || d != "" {
			t.Errorf("%v: %v (-want +got):\n%s", want.Opcode, err, d)
			continue
		}
		if c.route == &four { // identification, checksum and ICRC
			continue
		}
		if again, err := got.AppendFrame(nil); err != nil || !bytes.Equal(again, frame) {
			t.Errorf("%v: encoded again: % x, %v, want\n% x", want.Opcode, again, err, frame)
		}
	}
}
