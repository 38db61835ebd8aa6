//go:build vm

package irdma_test

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakeirdma"
	"github.com/goverbs/goverbs/testbed/cshim/compare"
	"github.com/goverbs/goverbs/uverbs"
)

// A recording is the devices of a comparison. Registrations and create commands, the requests and receives, the whole
// ring of sends after each step, and the shadow area of the CQ when it is armed are compared bit by bit. It avoids
// what libirdma of the bed does in another way:
//
//   - A QP whose sizes were rounded up has room for as many requests as were asked for in Go; in C for more.
//   - After a LOCAL_INV, C rings the doorbell twice, and once for a post of which all was refused.
//   - In ERR, if the queue was empty, C has each receive of a list flushed with a command, and sends even if all were
//     refused; Go the list, if there is something in it.
//   - A poll that finds an entry that flushes an empty queue ends in C.
//   - A CQ that is armed for all completions and then for solicited ones is armed with the next event in C, and at
//     once, for all of them, in Go.
//   - A request with inline data of 0 bytes has the flag of inline data in C, and none in Go.
//   - The length of an SGE of 2^31 bytes, which Go refuses, is 0 in C: it has 31 bits.
//   - The codes of errors that the device says are harmless for datagrams, and of exceeded RNR retries, are those of a
//     later libirdma in Go.
type recording struct {
	fabric *fakeirdma.Fabric
}

// program makes a completion what C's library reports: the QP's own number as that of the sender, and the GRH of
// datagrams that were sent.
func program(typ uverbs.QPType) *compare.Program {
	return &compare.Program{Driver: "irdma", GID: 3, As: func(wc *uverbs.WC) {
		if typ == uverbs.UD {
			wc.Flags |= uverbs.WCGRH
		} else {
			wc.SrcQP = wc.QPNum
		}
	}}
}

func rules(cfg *fakeirdma.Config) compare.Rules {
	return compare.Rules{Ops: map[uverbs.QPType][]uverbs.Opcode{uverbs.UD: {uverbs.OpSend, uverbs.OpSendImm},
		uverbs.RC: {uverbs.OpSend, uverbs.OpSendImm, uverbs.OpSendInv, uverbs.OpWrite, uverbs.OpWriteImm, uverbs.OpRead,
			uverbs.OpLocalInv}},
		Flags: []uverbs.SendFlags{uverbs.Fence, uverbs.Signaled, uverbs.Signaled, uverbs.Solicited},
		Length: func(s *compare.Size) uint32 {
			if s.Type == uverbs.UD {
				return uint32(4096 / s.SGEs)
			}
			return 1 << 20
		},
		QPNs: 1 << 24, Bad: 200, List: 12, Empty: true, Solicited: true, Resizes: cfg.Resize, Errs: true, Renews: true}
}

// Seen implements compare.Device, as do the methods below. It adds the receives and the ring of sends, and drops
// commands that are repeated, or of a post of which all was refused.
func (r *recording) Seen(side int, said string, lines []string) (seen []string) {
	for i, s := range lines {
		none := strings.HasPrefix(said, "posted 0,") && strings.HasPrefix(s, "modify QP ")
		if !none && (i == 0 || s != lines[i-1]) {
			seen = append(seen, s)
		}
	}
	return append(seen, r.fabric.Device(side).Scan()...)
}

func (*recording) Reset() {}

// The fields of entries.
const (
	failed   = 1 << 55
	majorAt  = 16
	withKey  = 1 << 53
	immThere = 1 << 62
	opAt     = 56
	pushDrop = 1 << 51
	solicit  = 1 << 54
)

// worst is the last code of a flushed request in libirdma of the bed.
const worst = 10

// End flushes what is posted.
func (r *recording) End(c *compare.Comparison) {
	codes := [2]uint64{1 + c.Rand.Uint64N(worst), 1 + c.Rand.Uint64N(worst)}
	for i := range 2 {
		r.fabric.Device(i).Flush(codes[0], codes[1])
	}
}

// entry returns fields that are random, and now and then an error that does not end the QP.
func entry(c *compare.Comparison) (raw [4]uint64, bad bool) {
	raw[0], raw[3] = c.Rand.Uint64(), c.Rand.Uint64()&(solicit|pushDrop)
	if bad = c.Rand.IntN(50) == 0; bad {
		raw[3] |= failed | (2+c.Rand.Uint64N(1000))<<majorAt | c.Rand.Uint64()&(1<<16-1)
	}
	return raw, bad
}

// CompleteSends completes some sends. A failed one is the oldest.
func (r *recording) CompleteSends(c *compare.Comparison, n int) (done int, flushed bool) {
	done = 1 + c.Rand.IntN(n)
	raw, _ := entry(c)
	for i := range 2 {
		r.fabric.Device(i).CompleteSends(done, raw)
	}
	return done, false
}

// CompleteRecvs completes the oldest receive.
func (r *recording) CompleteRecvs(c *compare.Comparison, _ int) (done int, flushed bool) {
	raw, _ := entry(c)
	var second *[4]uint64
	switch c.Rand.IntN(4) {
	case 0:
		second = &[4]uint64{c.Rand.Uint64(), c.Rand.Uint64(), 0, c.Rand.Uint64() & immThere}
	case 1:
		raw[3] |= withKey
	}
	if raw[2] = uint64(c.Rand.Uint32()); c.Size.Type == uverbs.UD {
		raw[2] &= 1<<24 - 1
	}
	raw[3] |= c.Rand.Uint64N(1<<6) << opAt
	for i := range 2 {
		r.fabric.Device(i).CompleteReceive(raw, second)
	}
	return 1, false
}

func TestDifferential(t *testing.T) {
	for name, cfg := range models {
		for kind, size := range map[string]compare.Size{
			"RC":            {Type: uverbs.RC, Sends: 16, Recvs: 16, SGEs: 2, RecvSGEs: 2, Inline: 32},
			"RC, odd sizes": {Type: uverbs.RC, Sends: 33, Recvs: 21, SGEs: 13, RecvSGEs: 13, Inline: 101, SignalAll: true},
			"RC, no inline": {Type: uverbs.RC, Sends: 100, Recvs: 90, SGEs: 5, RecvSGEs: 1},
			"RC, one SGE":   {Type: uverbs.RC, Sends: 20, Recvs: 13, SGEs: 1, RecvSGEs: 4, Inline: 8},
			"UD":            {Type: uverbs.UD, Sends: 16, Recvs: 16, SGEs: 2, RecvSGEs: 2, Inline: 20},
			"UD, odd sizes": {Type: uverbs.UD, Sends: 9, Recvs: 30, SGEs: 7, RecvSGEs: 3, Inline: 96, SignalAll: true},
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				c := compare.New(t, size, rules(&cfg), 1)
				cfg.Strict, cfg.Record = true, c.Record
				f := fakeirdma.New(t, 2, cfg)
				c.Start(*program(size.Type), &recording{f}, f.Device(0).Name(), f.Device(1).Name())
				c.Play(2000)
			})
		}
	}
}
