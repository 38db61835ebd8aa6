package uverbs

// A Rate is the code of a data rate, for AHAttr.StaticRate on InfiniBand. The
// values are those of ibv_rate. 0 is the port's rate.
type Rate uint8

// RatePort is the rate of the port.
const RatePort Rate = 0

// rates contains the rates by code. mult is in units of 2.5 Gb/s; it is 0 for rates
// that the C library does not express in this unit.
var rates = [...]struct{ mult, mbps int }{
	2: {1, 2500}, 3: {4, 10000}, 4: {12, 30000}, 5: {2, 5000}, 6: {8, 20000}, 7: {16, 40000}, 8: {24, 60000},
	9: {32, 80000}, 10: {48, 120000}, 11: {0, 14062}, 12: {0, 56250}, 13: {0, 112500}, 14: {0, 168750}, 15: {0, 25781},
	16: {0, 103125}, 17: {0, 206250}, 18: {0, 309375}, 19: {11, 28125}, 20: {20, 53125}, 21: {160, 425000},
	22: {240, 637500}, 23: {320, 850000}, 24: {480, 1275000},
}

// Mbps returns the rate in Mb/s, or 0 for an unknown code: ibv_rate_to_mbps(3).
func (r Rate) Mbps() int {
	if int(r) < len(rates) {
		return rates[r].mbps
	}
	return 0
}

// Mult returns the rate in units of 2.5 Gb/s, or 0 for a code that has no such
// value: ibv_rate_to_mult(3).
func (r Rate) Mult() int {
	if int(r) < len(rates) {
		return rates[r].mult
	}
	return 0
}

// RateOfMbps returns the code of a rate in Mb/s, or [RatePort] if there is none:
// mbps_to_ibv_rate(3).
func RateOfMbps(mbps int) Rate {
	for code, r := range rates {
		if r.mbps == mbps && mbps != 0 {
			return Rate(code)
		}
	}
	return RatePort
}

// RateOfMult returns the code of a rate in units of 2.5 Gb/s, or [RatePort] if
// there is none: mult_to_ibv_rate(3).
func RateOfMult(mult int) Rate {
	for code, r := range rates {
		if r.mult == mult && mult != 0 {
			return Rate(code)
		}
	}
	return RatePort
}

// FlowLabelUDPPort returns the UDP source port of RoCE v2 packets with this flow
// label, of which 20 bits count: ibv_flow_label_to_udp_sport(3).
func FlowLabelUDPPort(label uint32) uint16 {
	const first = 0xc000 // of the dynamic ports
	return first | uint16((label&0x3fff)^(label>>14&0x3f))
}
