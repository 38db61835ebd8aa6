package transport

import "time"

// psnMask has the 24 bits of a packet sequence number.
const psnMask = 1<<24 - 1

// distance returns how far PSN a is ahead of b, modulo 2²⁴: from -2²³ to 2²³-1.
func distance(a, b uint32) int { return int(int32((a-b)<<8) >> 8) }

// forward returns the PSN that is n after a.
func forward(a uint32, n int) uint32 { return (a + uint32(n)) & psnMask }

// packets returns the number of packets of a message: one if it is empty.
func packets(length uint32, mtu int) int {
	return max(1, int((uint64(length)+uint64(mtu)-1)/uint64(mtu)))
}

// rnrTimers has the time for each code of an RNR NAK, in units of 10 µs.
var rnrTimers = [32]time.Duration{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// RNRTime returns the time that a requester waits after an RNR NAK with the
// code.
func RNRTime(code uint8) time.Duration { return rnrTimers[code&31] * 10 * time.Microsecond }

// AckTime returns the time that a requester waits for a response: 4.096 µs
// times two to the power of the code's lower five bits; 0, without limit, for
// code 0.
func AckTime(code uint8) time.Duration {
	if code &= 31; code == 0 {
		return 0
	}
	return 4096 << code * time.Nanosecond
}
