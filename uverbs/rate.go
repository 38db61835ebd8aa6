package uverbs

// A Rate is a code of a link's data rate: AHAttr.StaticRate on InfiniBand. The
// values are those of ibv_rate; 0 is the port's own rate.
type Rate uint8

// RatePort is the rate of the port.
const RatePort Rate = 0

// rates has what a code stands for. mult, in units of 2.5 Gb/s, is 0 for the
// rates that have no such form.
var rates = [...]struct{ mult, mbps int }{
	2: {1, 2500}, 3: {4, 10000}, 4: {12, 30000}, 5: {2, 5000}, 6: {8, 20000}, 7: {16, 40000}, 8: {24, 60000},
	9: {32, 80000}, 10: {48, 120000}, 11: {0, 14062}, 12: {0, 56250}, 13: {0, 112500}, 14: {0, 168750}, 15: {0, 25781},
	16: {0, 103125}, 17: {0, 206250}, 18: {0, 309375}, 19: {11, 28125}, 20: {20, 53125}, 21: {160, 425000},
	22: {240, 637500}, 23: {320, 850000}, 24: {480, 1275000},
}

// Mbps is the rate in Mb/s, 0 for a code that has none: ibv_rate_to_mbps(3).
func (r Rate) Mbps() int {
	if int(r) < len(rates) {
		return rates[r].mbps
	}
	return 0
}

// Mult is the rate in units of 2.5 Gb/s, 0 for a code that has none:
// ibv_rate_to_mult(3).
func (r Rate) Mult() int {
	if int(r) < len(rates) {
		return rates[r].mult
	}
	return 0
}

// RateOfMbps is the code of a rate in Mb/s, or [RatePort]:
// mbps_to_ibv_rate(3).
func RateOfMbps(mbps int) Rate {
	for code, r := range rates {
		if r.mbps == mbps && mbps != 0 {
			return Rate(code)
		}
	}
	return RatePort
}

// RateOfMult is the code of a rate in units of 2.5 Gb/s, or [RatePort]:
// mult_to_ibv_rate(3).
func RateOfMult(mult int) Rate {
	for code, r := range rates {
		if r.mult == mult && mult != 0 {
			return Rate(code)
		}
	}
	return RatePort
}

// FlowLabelUDPPort is the UDP source port that RoCE v2 packets with a flow label
// of 20 bits carry: ibv_flow_label_to_udp_sport(3).
func FlowLabelUDPPort(label uint32) uint16 {
	const first = 0xc000 // of the dynamic ports
	return first | uint16((label&0x3fff)^(label>>14&0x3f))
}
