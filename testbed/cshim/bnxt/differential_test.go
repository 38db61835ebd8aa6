//go:build vm

package bnxt_test

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakebnxt"
	"github.com/goverbs/goverbs/testbed/cshim/compare"
	"github.com/goverbs/goverbs/uverbs"
)

// A recording is the devices of a comparison. Requests, PSNs, doorbells and create commands are compared bit by bit,
// except what the device does not read. It avoids what libbnxt_re of the bed does in another way:
//
//   - A failed request completes those before it in Go, as in the kernel's driver; libbnxt_re reports the error of
//     the oldest one.
//   - The end of a QP completes the sends before its index in Go, as in the kernel's driver; in C none.
//   - A QP whose sizes were rounded up has room for as many requests as were asked for in Go; in C for more.
//   - The upper 8 bits of a datagram's source QPN are those of the completion in Go; in C two of them.
//   - The limit that a modify command sets is told to the device by the kernel in Go; in C by the program, too.
//   - A completion has the key that the peer has invalidated in Go, as in the kernel's driver; in C none.
//   - A completion of a datagram has the version of IP as its service level in C.
//   - Receives of an SRQ whose completions are dropped with the QP remain in use in C. One that the device flushes
//     completes in Go, as in the kernel's driver, and vanishes in C.
//   - Completions that were not polled before a resize are returned in C even if the QP has been reset. After one to
//     fewer entries, C may ring the doorbell within an entry that completes several requests.
//   - libbnxt_re crashes when it polls the end of a QP with an SRQ.
type recording struct {
	fabric *fakebnxt.Fabric
}

// program posts with ibv_post_send, since ibv_wr_* of the bed's libbnxt_re gives only the last request of a batch
// flags.
var program = compare.Program{Driver: "bnxt_re", GID: 3, As: func(wc *uverbs.WC) {
	if _, inv := wc.InvalidatedRKey(); inv { // C does not say so
		wc.Imm, wc.Flags = 0, wc.Flags&^uverbs.WCWithInv
	}
}}

func rules(cfg *fakebnxt.Config) compare.Rules {
	return compare.Rules{Ops: map[uverbs.QPType][]uverbs.Opcode{uverbs.UD: {uverbs.OpSend, uverbs.OpSendImm},
		uverbs.RC: {uverbs.OpSend, uverbs.OpSendImm, uverbs.OpWrite, uverbs.OpWriteImm, uverbs.OpRead,
			uverbs.OpCompareSwap, uverbs.OpFetchAdd}},
		Flags: []uverbs.SendFlags{uverbs.Fence, uverbs.Signaled, uverbs.Signaled, uverbs.Solicited},
		Length: func(s *compare.Size) uint32 {
			if s.Type == uverbs.UD {
				return uint32(4096 / s.SGEs)
			}
			return 1 << 14
		},
		QPNs: 1 << 24, Bad: 200, List: 12, Empty: true, Exact: !cfg.Pow2 && !cfg.Variable, Solicited: true, Resizes: true,
		Resets: true}
}

// Seen implements compare.Device, as do the methods below.
func (*recording) Seen(_ int, _ string, lines []string) []string { return lines }

func (*recording) Reset() {}

func (r *recording) End(*compare.Comparison) {
	for i := range 2 {
		r.fabric.Device(i).Terminate()
	}
}

// entry returns an entry whose fields are random, except its type and its status.
func entry(c *compare.Comparison, kind byte, worst int) (raw [32]byte) {
	c.Bytes(raw[:])
	raw[24], raw[25] = kind<<1, 0
	if worst > 0 && c.Rand.IntN(50) == 0 {
		raw[25] = byte(1 + c.Rand.IntN(worst))
	}
	return raw
}

// CompleteSends completes some sends. A failed one is the oldest.
func (r *recording) CompleteSends(c *compare.Comparison, n int) (done int, flushed bool) {
	done = 1 + c.Rand.IntN(n)
	raw := entry(c, 0, 14)
	if raw[25] != 0 {
		done, flushed = 1, true
	}
	for i := range 2 {
		r.fabric.Device(i).CompleteSends(done, raw)
	}
	return done, flushed
}

// CompleteRecvs completes a receive: the oldest one, or any of an SRQ.
func (r *recording) CompleteRecvs(c *compare.Comparison, n int) (done int, flushed bool) {
	kind, i := byte(1), 0
	if c.Size.Type == uverbs.UD {
		kind = 2
	}
	if c.Size.Shared {
		i = c.Rand.IntN(n)
	}
	raw := entry(c, kind, 10)
	raw[31] &= 0x18
	const hardware = 8
	keep := raw[25] == hardware
	if keep && c.Size.Shared {
		return 0, false
	}
	for k := range 2 {
		r.fabric.Device(k).CompleteReceive(i, keep, raw)
	}
	if keep {
		return 0, false
	}
	return 1, raw[25] != 0 && !c.Size.Shared
}

func TestDifferential(t *testing.T) {
	for name, cfg := range models {
		for kind, size := range map[string]compare.Size{
			"RC":            {Type: uverbs.RC, Sends: 16, Recvs: 16, SGEs: 2, RecvSGEs: 2, Inline: 32},
			"RC, odd sizes": {Type: uverbs.RC, Sends: 33, Recvs: 21, SGEs: 6, RecvSGEs: 6, Inline: 96, SignalAll: true},
			"RC, SRQ":       {Type: uverbs.RC, Sends: 20, Recvs: 13, SGEs: 3, RecvSGEs: 4, Shared: true},
			"UD":            {Type: uverbs.UD, Sends: 16, Recvs: 16, SGEs: 2, RecvSGEs: 2, Inline: 20},
			"UD, SRQ": {Type: uverbs.UD, Sends: 9, Recvs: 30, SGEs: 1, RecvSGEs: 3, Inline: 96, SignalAll: true,
				Shared: true},
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				c := compare.New(t, size, rules(&cfg), 1)
				cfg.Strict, cfg.Record = true, c.Record
				f := fakebnxt.New(t, 2, cfg)
				c.Start(program, &recording{f}, f.Device(0).Name(), f.Device(1).Name())
				c.Play(2000)
			})
		}
	}
}
