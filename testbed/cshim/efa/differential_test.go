//go:build vm

package efa_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakeefa"
	_ "github.com/goverbs/goverbs/provider/efa"
	"github.com/goverbs/goverbs/uverbs"
)

// A comparison executes the same steps in C and in Go, and compares what the programs observe, and what their devices
// do: descriptors, stores to registers and create commands, bit by bit. There are three exceptions. The ids of requests
// differ, so they are compared by what the completions that have them return. Go reports a READ as WCRead, libefa as
// a SEND. A post of receives of which the first is refused rings no doorbell in Go.
type comparison struct {
	t      *testing.T
	rand   *rand.Rand
	fabric *fakeefa.Fabric
	rings  int
	size   qpSize
	names  [2]string
	sides  [2]side

	mu    sync.Mutex
	log   map[string][]string
	ids   [2][2][]uint16 // of the requests posted so far, by side and queue, in order
	open  [2][]int       // the requests that have not completed, by queue
	count uint64
}

// newStatus is FEATURE_MISMATCH, which libefa of the bed does not know: later versions return what Go does.
const newStatus = 18

const (
	sendQueue = 0
	recvQueue = 1
)

func newComparison(t *testing.T, cfg fakeefa.Config, size qpSize, seed uint64) *comparison {
	c := &comparison{t: t, rand: rand.New(rand.NewPCG(seed, 1)), rings: cfg.SubCQs, size: size, log: map[string][]string{}}
	cfg.Record = func(device, what string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.log[device] = append(c.log[device], what)
	}
	c.fabric = fakeefa.New(t, 2, cfg)
	c.names = [2]string{c.fabric.Device(0).Name(), c.fabric.Device(1).Name()}
	c.sides = [2]side{newC(t, c.fabric.Device(0)), newGo(t, c.fabric.Device(1))}
	c.step("create", func(s side) string { return s.create(size) })
	return c
}

// step executes a step on both sides.
func (c *comparison) step(name string, f func(side) string) string {
	c.t.Helper()
	var said [2]string
	var did [2][]string
	for i, s := range c.sides {
		said[i] = f(s)
		c.mu.Lock()
		did[i] = c.log[c.names[i]]
		delete(c.log, c.names[i])
		c.mu.Unlock()
		for k, line := range did[i] {
			did[i][k] = c.withoutID(i, line)
		}
	}
	if said[0] == "posted 0, failed 1" && len(did[0]) == 1 && strings.HasPrefix(did[0][0], "RQ register") {
		did[0] = nil
	}
	if said[0] != said[1] {
		c.t.Fatalf("%s:\nC says  %s\nGo says %s", name, said[0], said[1])
	}
	if !slices.Equal(did[0], did[1]) {
		c.t.Fatalf("%s:\nC:  %s\nGo: %s", name, strings.Join(did[0], "\n    "), strings.Join(did[1], "\n    "))
	}
	return said[0]
}

// withoutID notes the id in a descriptor and replaces it.
func (c *comparison) withoutID(s int, line string) string {
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
		c.t.Fatal(err)
	}
	if const30 := byte(1 << 6); queue == sendQueue || b[15]&const30 != 0 { // the first descriptor of a receive
		c.ids[s][queue] = append(c.ids[s][queue], binary.LittleEndian.Uint16(b[at:]))
		if s == 0 {
			c.open[queue] = append(c.open[queue], len(c.ids[s][queue])-1)
		}
	}
	copy(b[at:], []byte{0, 0})
	return fields[0] + " " + fields[1] + " " + hex.EncodeToString(b)
}

func (c *comparison) sges(n int) (all []uverbs.SGE) {
	for range n {
		all = append(all, uverbs.SGE{Addr: c.rand.Uint64(), Length: c.rand.Uint32N(1 << 20), LKey: c.rand.Uint32()})
	}
	return all
}

// request returns a request. Few are such that both sides refuse them.
func (c *comparison) request() request {
	c.count++
	ops := []uverbs.Opcode{uverbs.OpSend, uverbs.OpSendImm, uverbs.OpRead, uverbs.OpWrite, uverbs.OpWriteImm}
	if c.size.typ == uverbs.UD {
		ops = ops[:2]
	}
	r := request{op: ops[c.rand.IntN(len(ops))], id: c.count<<32 | uint64(c.rand.Uint32()), raddr: c.rand.Uint64(),
		imm: c.rand.Uint32(), rkey: c.rand.Uint32(), qpn: c.rand.Uint32N(1 << 16), qkey: c.rand.Uint32(),
		unsignaled: c.rand.IntN(100) == 0}
	rdma := numbers[r.op] > 1
	if !rdma {
		r.imm *= uint32(numbers[r.op]) // ibv_post_send leaves the field alone
	} else if r.op != uverbs.OpWriteImm {
		r.imm = 0
	}
	switch most := c.size.sges; {
	case !rdma && c.size.inline > 0 && c.rand.IntN(3) == 0:
		r.inline = 1 + c.rand.IntN(c.size.inline)
		if c.rand.IntN(100) == 0 {
			r.inline = c.size.inline + 1
		}
	case rdma:
		r.sges = c.sges(c.rand.IntN(2))
	case c.rand.IntN(100) == 0:
		r.sges = c.sges(most + 1)
	default:
		r.sges = c.sges(c.rand.IntN(most + 1))
	}
	return r
}

func (c *comparison) send() {
	var list []request
	for range 1 + c.rand.IntN(24) {
		list = append(list, c.request())
	}
	batch := c.rand.IntN(2) == 0
	for _, r := range list { // so that a list that both refuse has the same effect
		batch = batch || numbers[r.op] > 1
	}
	c.step(fmt.Sprintf("send %+v", list), func(s side) string { return s.send(list, batch) })
}

func (c *comparison) recv() {
	var list []receive
	for range 1 + c.rand.IntN(24) {
		c.count++
		n := 1 + c.rand.IntN(c.size.recvSGEs)
		if c.rand.IntN(100) == 0 && len(list) > 0 {
			n = c.size.recvSGEs + 1
		}
		list = append(list, receive{id: c.count<<32 | uint64(c.rand.Uint32()), sges: c.sges(n)})
	}
	c.step(fmt.Sprintf("recv %+v", list), func(s side) string { return s.recv(list) })
}

// complete completes a request, of those that have not completed in any order. What the entry says is random.
func (c *comparison) complete(queue int) {
	if len(c.open[queue]) == 0 {
		return
	}
	i := c.rand.IntN(len(c.open[queue]))
	k := c.open[queue][i]
	c.open[queue] = slices.Delete(c.open[queue], i, i+1)
	var raw [32]byte
	for j := range raw {
		raw[j] = byte(c.rand.Uint32())
	}
	raw[2] = byte(c.rand.IntN(20)) // the status
	if c.rand.IntN(8) == 0 {
		raw[2] = byte(c.rand.Uint32())
	}
	if raw[2] == newStatus {
		raw[2] = 0
	}
	raw[3] = raw[3]&^(1<<7|3<<1) | byte(queue+1)<<1
	binary.LittleEndian.PutUint16(raw[4:], 1)
	ring := c.rand.IntN(c.rings)
	for s := range c.sides {
		binary.LittleEndian.PutUint16(raw[:], c.ids[s][queue][k])
		c.fabric.Device(s).Inject(ring, raw)
	}
}

func (c *comparison) poll() {
	n := 1 + c.rand.IntN(8)
	c.step("poll", func(s side) string { return s.poll(n) })
}

// drain completes and polls everything.
func (c *comparison) drain() {
	for queue := range c.open {
		for len(c.open[queue]) > 0 {
			c.complete(queue)
			if c.rand.IntN(8) == 0 {
				c.poll()
			}
		}
	}
	for c.step("poll", func(s side) string { return s.poll(16) }) != "polled 0" {
	}
}

func (c *comparison) play(steps int) {
	c.step("arm", side.arm)
	for range steps {
		switch c.rand.IntN(16) {
		case 0, 1, 2:
			c.send()
		case 3, 4:
			c.recv()
		case 5, 6, 7, 8:
			for range c.rand.IntN(8) {
				c.complete(sendQueue)
				c.complete(recvQueue)
			}
		case 9, 10, 11:
			c.poll()
		case 12:
			if len(c.open[sendQueue]) > 0 { // the CQ is armed, so there is an event
				c.complete(sendQueue)
				c.step("event", side.event)
			}
		case 13:
			c.drain()
		case 14:
			if c.rand.IntN(8) == 0 {
				c.drain()
				c.send()
				c.step("reset", side.reset)
				c.open = [2][]int{}
			}
		}
	}
	c.drain()
	c.sides[0].(*cSide).End()
}

func TestDifferential(t *testing.T) {
	limited := fakeefa.Config{SubCQs: 2, MaxBatch: 5, MinSQ: 32, LLQOffset: 128, Caps: fakeefa.AllCaps}
	plain := fakeefa.Config{SubCQs: 1, Caps: fakeefa.AllCaps}
	for name, c := range map[string]struct {
		cfg  fakeefa.Config
		size qpSize
	}{
		"SRD":            {fakeefa.Default, qpSize{uverbs.SRD, 16, 16, 2, 2, 32, false}},
		"SRD, odd sizes": {plain, qpSize{uverbs.SRD, 33, 21, 1, 3, 7, true}},
		"SRD, limits":    {limited, qpSize{uverbs.SRD, 20, 5, 2, 1, 32, false}},
		"UD":             {fakeefa.Default, qpSize{uverbs.UD, 16, 16, 2, 2, 32, false}},
		"UD, no inline":  {limited, qpSize{uverbs.UD, 8, 9, 1, 2, 0, true}},
	} {
		t.Run(name, func(t *testing.T) {
			newComparison(t, c.cfg, c.size, 1).play(3000)
		})
	}
}
