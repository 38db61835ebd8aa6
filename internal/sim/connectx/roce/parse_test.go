package roce

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// example returns a packet with all the headers of its opcode.
func example(op Opcode, r Route, n int) *Packet {
	p := &Packet{Route: r, Opcode: op, PKey: 0x8001, DestQPN: 0x445566, PSN: 0xFFFFFF, AckReq: true, FECN: true}
	p.Route.GRH = true
	l := layouts[op]
	if l&withXRC != 0 {
		p.XRCSRQ = 0x998877
	}
	if l&withDETH != 0 {
		p.DETH = DETH{QKey: 0x80010000, SrcQPN: 1}
	}
	if l&withRETH != 0 {
		p.RETH = RETH{VA: 0x1122334455667788, RKey: 0x99AABBCC, Length: 1 << 30}
	}
	if l&(withAtomic|withMasked) != 0 {
		p.Atomic = AtomicETH{VA: 8, RKey: 3, Swap: 1 << 63, Compare: 5}
	}
	if l&withMasked != 0 {
		p.Atomic.SwapMask, p.Atomic.CompareMask = ^uint64(0), 1
	}
	if l&withAETH != 0 {
		p.AETH = AETH{Syndrome: NakRemoteAccess, MSN: 0x123456}
	}
	if l&withAtomicAck != 0 {
		p.AtomicAck = 0x0123456789ABCDEF
	}
	if l&withImm != 0 {
		p.Imm = 77
	}
	if l&withInv != 0 {
		p.InvRKey = 78
	}
	if l&withPayload != 0 && n > 0 {
		p.Payload = make([]byte, n)
		for i := range p.Payload {
			p.Payload[i] = byte(i*7 + n)
		}
	}
	return p
}

var routes = map[string]Route{
	"v1":        {Version: V1, SGID: [16]byte{15: 1}, DGID: [16]byte{15: 2}, FlowLabel: 0xFFFFF},
	"v2 (IPv4)": {Version: V2, SGID: [16]byte{10: 0xFF, 11: 0xFF, 15: 1}, DGID: [16]byte{10: 0xFF, 11: 0xFF, 15: 2}},
	"v2 (IPv6)": {Version: V2, SGID: [16]byte{15: 1}, DGID: [16]byte{15: 2}, HopLimit: 9},
}

// TestAllOpcodes encodes and decodes each opcode, on each route and with each
// padding, and checks that unknown opcodes are refused.
func TestAllOpcodes(t *testing.T) {
	count := 0
	for i := range 256 {
		op := Opcode(i)
		if !op.Known() {
			if _, err := (&Packet{Opcode: op, Route: routes["v1"]}).AppendFrame(nil); !errors.Is(err, ErrOpcode) {
				t.Errorf("%v is sent: %v", op, err)
			}
			continue
		}
		count++
		if op.Service().Of(op.Op()) != op {
			t.Errorf("%v is not its service %v with its operation %v", op, op.Service(), op.Op())
		}
		for name, r := range routes {
			for _, n := range []int{0, 1, 2, 3, 4, 1024, 4095, 4096} {
				if !op.Ends() && n != 1024 && n != 4096 {
					continue
				}
				p := example(op, r, n)
				frame, err := p.AppendFrame(nil)
				if err != nil {
					t.Errorf("%v, %s, %d bytes: %v", op, name, n, err)
					continue
				}
				got, err := Parse(frame)
				if d := cmp.Diff(p, got); err != nil || d != "" {
					t.Errorf("%v, %s, %d bytes: %v\n(-sent +parsed):\n%s", op, name, n, err, d)
				}
			}
		}
	}
	if count != 25+25+23+12+2 {
		t.Errorf("there are %d opcodes", count)
	}
}

// TestRefused checks each kind of invalid frame, with a correct ICRC if the
// error is elsewhere.
func TestRefused(t *testing.T) {
	be := binary.BigEndian
	const v4, v6 = 14 + 28, 14 + 48 // base headers
	for name, c := range map[string]struct {
		route  string
		op     Opcode
		change func(frame []byte) []byte
		want   error
	}{
		"nothing": {"v1", RC.Of(SendOnly), func(b []byte) []byte { return nil }, ErrNotRoCE},
		"half a tag": {"v1", RC.Of(SendOnly), func(b []byte) []byte { b[12], b[13] = 0x81, 0; return b[:16] },
			ErrNotRoCE},
		"ARP":                  {"v1", RC.Of(SendOnly), func(b []byte) []byte { b[12], b[13] = 8, 6; return b }, ErrNotRoCE},
		"TCP":                  {"v2 (IPv4)", RC.Of(SendOnly), func(b []byte) []byte { b[14+9] = 6; return b }, ErrNotRoCE},
		"another UDP port":     {"v2 (IPv4)", RC.Of(SendOnly), func(b []byte) []byte { b[14+23]++; return b }, ErrNotRoCE},
		"another UDP port (6)": {"v2 (IPv6)", RC.Of(SendOnly), func(b []byte) []byte { b[14+43]++; return b }, ErrNotRoCE},
		"a fragment": {"v2 (IPv4)", RC.Of(SendOnly), func(b []byte) []byte { b[14+6] |= 0x20; return b },
			ErrNotRoCE},
		"IPv4 options":        {"v2 (IPv4)", RC.Of(SendOnly), func(b []byte) []byte { b[14] = 0x46; return b }, ErrNotRoCE},
		"IPv4 checksum":       {"v2 (IPv4)", RC.Of(SendOnly), func(b []byte) []byte { b[14+8]--; return b }, ErrChecksum},
		"UDP checksum":        {"v2 (IPv4)", RC.Of(SendOnly), func(b []byte) []byte { b[14+27]++; return b }, ErrChecksum},
		"UDP checksum (6)":    {"v2 (IPv6)", RC.Of(SendOnly), func(b []byte) []byte { b[14+47]++; return b }, ErrChecksum},
		"UDP length":          {"v2 (IPv6)", RC.Of(SendOnly), func(b []byte) []byte { b[14+45]++; return b }, ErrLength},
		"cut (v1)":            {"v1", RC.Of(SendOnly), func(b []byte) []byte { return b[:len(b)-1] }, ErrLength},
		"cut (4)":             {"v2 (IPv4)", RC.Of(SendOnly), func(b []byte) []byte { return b[:len(b)-1] }, ErrLength},
		"cut (6)":             {"v2 (IPv6)", RC.Of(SendOnly), func(b []byte) []byte { return b[:len(b)-1] }, ErrLength},
		"half a GRH":          {"v1", RC.Of(SendOnly), func(b []byte) []byte { return b[:14+39] }, ErrLength},
		"GRH of version 4":    {"v1", RC.Of(SendOnly), func(b []byte) []byte { b[14] = 0x40; return b }, ErrHeader},
		"GRH in front of UDP": {"v1", RC.Of(SendOnly), func(b []byte) []byte { b[14+6] = 17; return b }, ErrHeader},
		"IPv4 address in IPv6": {"v2 (IPv6)", RC.Of(SendOnly),
			func(b []byte) []byte { b[14+18], b[14+19] = 0xFF, 0xFF; return b }, ErrHeader},
		"ICRC":                {"v2 (IPv4)", RC.Of(SendOnly), func(b []byte) []byte { b[len(b)-5]++; return b }, ErrICRC},
		"transport version":   {"v2 (IPv4)", RC.Of(SendOnly), resealed(v4, func(b []byte) { b[v4+1] |= 1 }), ErrHeader},
		"unknown opcode":      {"v2 (IPv4)", RC.Of(SendOnly), resealed(v4, func(b []byte) { b[v4] = 0x1F }), ErrOpcode},
		"no room for headers": {"v2 (IPv6)", RC.Of(SendOnly), resealed(v6, func(b []byte) { b[v6] = 0xD0 }), ErrLength},
		"payload of an ACK": {"v2 (IPv4)", RC.Of(SendOnly), resealed(v4, func(b []byte) { b[v4] = byte(Acknowledge) }),
			ErrLength},
		"pad of a first packet": {"v2 (IPv4)", RC.Of(SendOnly), resealed(v4, func(b []byte) { b[v4], b[v4+1] = 0, 0x10 }),
			ErrLength},
		"empty with pad": {"v2 (IPv4)", RC.Of(Acknowledge), resealed(v4, func(b []byte) { b[v4+1] |= 0x30 }),
			ErrLength},
		"too short for a base header": {"v1", RC.Of(SendOnly), func(b []byte) []byte {
			be.PutUint16(b[14+4:], 15)
			return b
		}, ErrLength},
		"no multiple of four": {"v1", RC.Of(SendOnly), func(b []byte) []byte {
			be.PutUint16(b[14+4:], be.Uint16(b[14+4:])-2)
			n := len(b) - 2
			binary.LittleEndian.PutUint32(b[n-4:], icrc(V1, b[14:n-4]))
			return b[:n]
		}, ErrLength},
	} {
		t.Run(name, func(t *testing.T) {
			frame, err := example(c.op, routes[c.route], 16).AppendFrame(nil)
			if err != nil {
				t.Fatal(err)
			}
			if p, err := Parse(c.change(frame)); !errors.Is(err, c.want) {
				t.Errorf("%v (%+v), want %v", err, p, c.want)
			}
		})
	}
}

// resealed changes a frame of version 2 and updates its ICRC.
func resealed(_ int, change func(b []byte)) func(b []byte) []byte {
	return func(b []byte) []byte {
		change(b)
		binary.LittleEndian.PutUint32(b[len(b)-4:], icrc(V2, b[14:len(b)-4]))
		return b
	}
}

// TestUnsendable checks packets that cannot be encoded.
func TestUnsendable(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *Packet)
		want   error
	}{
		"InfiniBand":    {func(p *Packet) { p.Route.Version = InfiniBand }, ErrHeader},
		"IPv4 to IPv6":  {func(p *Packet) { p.Route.DGID = [16]byte{15: 2} }, ErrHeader},
		"too much":      {func(p *Packet) { p.Payload = make([]byte, 4097) }, ErrLength},
		"first, uneven": {func(p *Packet) { p.Opcode, p.Payload = SendFirst, make([]byte, 255) }, ErrLength},
		"ACK of bytes":  {func(p *Packet) { p.Opcode = Acknowledge }, ErrLength},
		"PSN":           {func(p *Packet) { p.PSN = 1 << 24 }, ErrHeader},
		"QPN":           {func(p *Packet) { p.DestQPN = 1 << 24 }, ErrHeader},
	} {
		p := example(SendOnly, routes["v2 (IPv4)"], 4)
		c.change(p)
		if b, err := p.AppendFrame([]byte{1}); !errors.Is(err, c.want) || len(b) != 1 {
			t.Errorf("%s: %v (%d bytes), want %v", name, err, len(b), c.want)
		}
	}
}

// TestUDPChecksum checks frames with a UDP checksum.
func TestUDPChecksum(t *testing.T) {
	for name, at := range map[string]int{"v2 (IPv4)": 20, "v2 (IPv6)": 40} {
		frame, err := example(SendOnly, routes[name], 7).AppendFrame(nil)
		if err != nil {
			t.Fatal(err)
		}
		udp, addresses := frame[14+at:], frame[14+at-32:14+at]
		if at == 20 {
			addresses = addresses[24:]
		}
		binary.BigEndian.PutUint16(udp[6:], ^Sum(uint32(Sum(uint32(17+len(udp)), addresses)), udp))
		if _, err := Parse(frame); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNetworkHeader checks the bytes in front of a datagram.
func TestNetworkHeader(t *testing.T) {
	p := example(UD.Of(SendOnly), routes["v2 (IPv4)"], 4)
	h, ok := p.NetworkHeader()
	if !ok || [20]byte(h[:20]) != [20]byte{} || h[20] != 0x45 || Sum(0, h[20:]) != 0xFFFF || h[39] != 2 {
		t.Errorf("IPv4: % x, %v", h, ok)
	}
	for _, name := range []string{"v1", "v2 (IPv6)"} {
		p.Route = routes[name]
		frame, err := p.AppendFrame(nil)
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := p.NetworkHeader(); !ok || h != [40]byte(frame[14:]) {
			t.Errorf("%s: % x, %v", name, h, ok)
		}
	}
	p.Route = Route{SLID: 3, SGID: [16]byte{15: 1}}
	if h, ok := p.NetworkHeader(); ok || h != [40]byte{} {
		t.Errorf("a packet without GRH has % x, %v", h, ok)
	}
	p.Route.GRH = true
	if h, ok := p.NetworkHeader(); !ok || h[0] != 0x60 || h[6] != 27 || h[23] != 1 || h[5] != 12+8+4+4 {
		t.Errorf("GRH: % x, %v", h, ok)
	}
}

// TestNames checks the names of opcodes.
func TestNames(t *testing.T) {
	for op, want := range map[Opcode]string{
		0: "RC_SEND_FIRST", 0x11: "RC_ACK", 0x2A: "UC_WRITE_ONLY", 0x64: "UD_SEND_ONLY", 0xB7: "XRC_SEND_ONLY_INV",
		0xC1: "RC_MASKED_FETCH_ADD", 0xD0: "XRC_MASKED_COMPARE_SWAP", 0x1F: "opcode(0x1f)", 0x44: "opcode(0x44)",
	} {
		if got := op.String(); got != want {
			t.Errorf("%#02x is %s, want %s", uint8(op), got, want)
		}
	}
}

// FuzzParse checks that any frame is refused, or can be decoded and encoded
// again.
func FuzzParse(f *testing.F) {
	for i := range 256 {
		for _, r := range routes {
			if frame, err := example(Opcode(i), r, 256).AppendFrame(nil); err == nil {
				f.Add(frame, false)
				f.Add(frame, true)
			}
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte, seal bool) {
		if seal { // passes the ICRC check
			if n := len(frame) - 4; n > 14+48+12 {
				v := V2
				if frame[12] == 0x89 {
					v = V1
				}
				binary.LittleEndian.PutUint32(frame[n:], icrc(v, frame[14:n]))
			}
		}
		p, err := Parse(frame)
		if err != nil {
			if p != nil {
				t.Error("a packet and an error")
			}
			return
		}
		again, err := p.AppendFrame(nil)
		if err != nil {
			t.Fatalf("%+v is parsed, but not sent: %v", p, err)
		}
		back, err := Parse(again)
		if d := cmp.Diff(p, back); err != nil || d != "" {
			t.Errorf("%v (-first +second):\n%s", err, d)
		}
	})
}
