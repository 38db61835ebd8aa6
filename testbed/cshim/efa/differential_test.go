//go:build vm

package efa_test

import (
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakeefa"
	_ "github.com/goverbs/goverbs/provider/efa"
	"github.com/goverbs/goverbs/testbed/cshim/compare"
	"github.com/goverbs/goverbs/uverbs"
)

// A recording is the devices of a comparison. Descriptors, stores to registers and create commands are compared bit by
// bit. There are four exceptions. The ids of requests differ, so they are compared by what the completions that have
// them return. Go reports a READ as WCRead, libefa as a SEND. A post of receives of which the first is refused rings no
// doorbell in Go. The register has the number of events as of the last Arm in Go, in C as of the last event.
type recording struct {
	t      *testing.T
	fabric *fakeefa.Fabric
	rings  int
	ids    [2][2][]uint16 // of the requests posted so far, by side and queue, in order
	open   [2][]int       // the requests that have not completed, by queue
}

var program = compare.Program{Driver: "efa", Source: "play/play.c", Libs: []string{"efa"}, Batches: true, Sizes: true,
	Whole: true, As: func(wc *uverbs.WC) {
		if wc.Opcode == uverbs.WCRead {
			wc.Opcode = uverbs.WCSend // libefa does not tell them apart
		}
	}}

var rules = compare.Rules{Ops: map[uverbs.QPType][]uverbs.Opcode{uverbs.UD: {uverbs.OpSend, uverbs.OpSendImm},
	uverbs.SRD: {uverbs.OpSend, uverbs.OpSendImm, uverbs.OpRead, uverbs.OpWrite, uverbs.OpWriteImm}},
	All: uverbs.Signaled, QPNs: 1 << 16, RDMA: true, Bad: 100, List: 24, Exact: true, Rearms: true, Drains: true}

// newStatus is FEATURE_MISMATCH, which libefa of the bed does not know: later versions return what Go does.
const newStatus = 18

const (
	sendQueue = 0
	recvQueue = 1
)

// Seen implements compare.Device, as do the methods below.
func (r *recording) Seen(side int, said string, lines []string) []string {
	for i, line := range lines {
		lines[i] = r.withoutID(side, line)
	}
	if said == "posted 0, failed 1" && len(lines) == 1 && strings.HasPrefix(lines[0], "RQ register") {
		return nil
	}
	return lines
}

// withoutID notes the id in a descriptor and replaces it.
func (r *recording) withoutID(s int, line string) string {
	queue, at := recvQueue, 8
	if strings.HasPrefix(line, "SQ") {
		queue, at = sendQueue, 0
	}
	fields := strings.Fields(line)
	if fields[1] == "register" || queue == recvQueue && fields[0] != "RQ" {
		return line
	}
	b, err := hex.DecodeString(fields[2])
	if err != nil {
		r.t.Fatal(err)
	}
	if const30 := byte(1 << 6); queue == sendQueue || b[15]&const30 != 0 { // the first descriptor of a receive
		r.ids[s][queue] = append(r.ids[s][queue], binary.LittleEndian.Uint16(b[at:]))
		if s == 0 {
			r.open[queue] = append(r.open[queue], len(r.ids[s][queue])-1)
		}
	}
	copy(b[at:], []byte{0, 0})
	return fields[0] + " " + fields[1] + " " + hex.EncodeToString(b)
}

func (r *recording) Reset() { r.open = [2][]int{} }

func (r *recording) CompleteSends(c *compare.Comparison, _ int) (done int, flushed bool) {
	return r.complete(c, sendQueue), false
}

func (r *recording) CompleteRecvs(c *compare.Comparison, _ int) (done int, flushed bool) {
	return r.complete(c, recvQueue), false
}

// complete completes requests, of those that have not completed in any order.
func (r *recording) complete(c *compare.Comparison, queue int) (n int) {
	n = 1 + c.Rand.IntN(min(8, len(r.open[queue])))
	for range n {
		r.completeOne(c, queue)
	}
	return n
}

// completeOne completes a request. What the entry says is random.
func (r *recording) completeOne(c *compare.Comparison, queue int) {
	i := c.Rand.IntN(len(r.open[queue]))
	k := r.open[queue][i]
	r.open[queue] = slices.Delete(r.open[queue], i, i+1)
	var raw [32]byte
	c.Bytes(raw[:])
	if c.Rand.IntN(8) > 0 {
		raw[2] = byte(c.Rand.IntN(20)) // the status
	}
	if raw[2] == newStatus {
		raw[2] = 0
	}
	raw[3] = raw[3]&^(1<<7|3<<1) | byte(queue+1)<<1
	binary.LittleEndian.PutUint16(raw[4:], 1)
	ring := c.Rand.IntN(r.rings)
	for s := range r.ids {
		binary.LittleEndian.PutUint16(raw[:], r.ids[s][queue][k])
		r.fabric.Device(s).Inject(ring, raw)
	}
}

func TestDifferential(t *testing.T) {
	limited := fakeefa.Config{SubCQs: 2, MaxBatch: 5, MinSQ: 32, LLQOffset: 128, Caps: fakeefa.AllCaps}
	plain := fakeefa.Config{SubCQs: 1, Caps: fakeefa.AllCaps}
	for name, c := range map[string]struct {
		cfg  fakeefa.Config
		size compare.Size
	}{
		"SRD": {fakeefa.Default, compare.Size{Type: uverbs.SRD, Sends: 16, Recvs: 16, SGEs: 2, RecvSGEs: 2, Inline: 32}},
		"SRD, odd sizes": {plain, compare.Size{Type: uverbs.SRD, Sends: 33, Recvs: 21, SGEs: 1, RecvSGEs: 3, Inline: 7,
			SignalAll: true}},
		"SRD, limits": {limited, compare.Size{Type: uverbs.SRD, Sends: 20, Recvs: 5, SGEs: 2, RecvSGEs: 1, Inline: 32}},
		"UD": {fakeefa.Default, compare.Size{Type: uverbs.UD, Sends: 16, Recvs: 16, SGEs: 2, RecvSGEs: 2,
			Inline: 32}},
		"UD, no inline": {limited, compare.Size{Type: uverbs.UD, Sends: 8, Recvs: 9, SGEs: 1, RecvSGEs: 2,
			SignalAll: true}},
	} {
		t.Run(name, func(t *testing.T) {
			steps := compare.New(t, c.size, rules, 1)
			c.cfg.Record = steps.Record
			f := fakeefa.New(t, 2, c.cfg)
			steps.Start(program, &recording{t: t, fabric: f, rings: c.cfg.SubCQs}, f.Device(0).Name(), f.Device(1).Name())
			steps.Play(3000)
		})
	}
}
