package uverbs

import "testing"

// TestRate checks that a rate is found in each of its forms, and that other values are not rates.
func TestRate(t *testing.T) {
	n := 0
	for code := range 256 {
		r := Rate(code)
		if m := r.Mbps(); m != 0 {
			n++
			if got := RateOfMbps(m); got != r {
				t.Errorf("%d Mb/s is code %d, want %d", m, got, r)
			}
		}
		if m := r.Mult(); m != 0 {
			if got := RateOfMult(m); got != r {
				t.Errorf("%d times 2.5 Gb/s is code %d, want %d", m, got, r)
			}
			if low, high := m*2500, m*2700; r.Mbps() < low || r.Mbps() > high {
				t.Errorf("code %d: %d Mb/s, %d times 2500", r, r.Mbps(), m)
			}
		}
	}
	if n != 23 {
		t.Errorf("%d rates", n)
	}
	for _, v := range []int{0, -1, 1, 2501, 1 << 40} {
		if RateOfMbps(v) != RatePort || v != 1 && RateOfMult(v) != RatePort {
			t.Errorf("%d is a rate", v)
		}
	}
}

func TestFlowLabelUDPPort(t *testing.T) {
	for label, want := range map[uint32]uint16{
		0: 0xc000, 1: 0xc001, 0x3fff: 0xffff, 0x4000: 0xc001, 0xfffff: 0xffc0, 0x12345: 0xe341} {
		if got := FlowLabelUDPPort(label); got != want {
			t.Errorf("label %#x: port %#x, want %#x", label, got, want)
		}
	}
}

func TestNodeTypeString(t *testing.T) {
	for n, want := range map[NodeType]string{
		NodeCA: "InfiniBand channel adapter", NodeSwitch: "InfiniBand switch", NodeRouter: "InfiniBand router",
		NodeRNIC: "iWARP NIC", NodeUSNIC: "usNIC", NodeUSNICUDP: "usNIC UDP", NodeUnspecified: "unspecified", 0: "unknown",
		99: "unknown"} {
		if got := n.String(); got != want {
			t.Errorf("node type %d is %q, want %q", n, got, want)
		}
	}
}
