//go:build vm

package bnxt_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakebnxt"
	"github.com/goverbs/goverbs/uverbs"
)

// A comparison executes the same steps in C and in Go, and compares what the programs observe, and what their devices
// are given: requests, PSNs, doorbells and create commands, bit by bit, except what the device does not read. It
// avoids what libbnxt_re of the bed does in another way:
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
type comparison struct {
	t      *testing.T
	rand   *rand.Rand
	fabric *fakebnxt.Fabric
	size   qpSize
	exact  bool // the room of the send queue is the same
	names  [2]string
	sides  [2]side

	mu    sync.Mutex
	log   map[string][]string
	sends int // that have not completed
	recvs int
	held  [2]int  // at most so many sends and receives occupy their queues, as completions of some have not been polled
	gone  [2]bool // sends and receives are flushed
	count uint64
	armed bool

	entries int // of the CQ
}

func newComparison(t *testing.T, cfg fakebnxt.Config, size qpSize, seed uint64) *comparison {
	c := &comparison{t: t, rand: rand.New(rand.NewPCG(seed, 1)), size: size, log: map[string][]string{}, entries: 100,
		exact: !cfg.Pow2 && !cfg.Variable}
	cfg.Strict = true
	cfg.Record = func(device, what string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.log[device] = append(c.log[device], what)
	}
	c.fabric = fakebnxt.New(t, 2, cfg)
	c.names = [2]string{c.fabric.Device(0).Name(), c.fabric.Device(1).Name()}
	c.sides = [2]side{newC(t, c.fabric.Device(0)), newGo(t, c.fabric.Device(1))}
	psn := c.psn()
	c.step("create", func(s side) string { return s.create(size, psn) })
	return c
}

// psn returns a first PSN. Some are such that the PSNs soon begin again.
func (c *comparison) psn() uint32 {
	if c.rand.IntN(2) == 0 {
		return 1<<24 - 1 - c.rand.Uint32N(500)
	}
	return c.rand.Uint32N(1 << 24)
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
	}
	if said[0] != said[1] {
		c.t.Fatalf("%s:\nC says  %s\nGo says %s", name, said[0], said[1])
	}
	if !slices.Equal(did[0], did[1]) {
		c.t.Fatalf("%s:\nC:  %s\nGo: %s", name, strings.Join(did[0], "\n    "), strings.Join(did[1], "\n    "))
	}
	return said[0]
}

func (c *comparison) sges(n int, most uint32) (all []uverbs.SGE) {
	for range n {
		all = append(all, uverbs.SGE{Addr: c.rand.Uint64(), Length: c.rand.Uint32N(most + 1), LKey: c.rand.Uint32()})
	}
	return all
}

var operations = map[uverbs.QPType][]uverbs.Opcode{uverbs.UD: {uverbs.OpSend, uverbs.OpSendImm},
	uverbs.RC: {uverbs.OpSend, uverbs.OpSendImm, uverbs.OpWrite, uverbs.OpWriteImm, uverbs.OpRead, uverbs.OpCompareSwap,
		uverbs.OpFetchAdd}}

// request returns a request. Few are such that both sides refuse them.
func (c *comparison) request() (wr uverbs.SendWR, bad bool) {
	c.count++
	ops := operations[c.size.typ]
	wr = uverbs.SendWR{Opcode: ops[c.rand.IntN(len(ops))], WRID: c.count<<32 | uint64(c.rand.Uint32())}
	for _, f := range []uverbs.SendFlags{uverbs.Fence, uverbs.Signaled, uverbs.Signaled, uverbs.Solicited} {
		if c.rand.IntN(3) == 0 {
			wr.Flags |= f
		}
	}
	most := uint32(1 << 14)
	if c.size.typ == uverbs.UD {
		wr.QPN, wr.QKey, most = c.rand.Uint32N(1<<24), c.rand.Uint32(), uint32(4096/c.size.sges)
	} else {
		wr.RemoteAddr, wr.RKey, wr.CompareAdd, wr.Swap = c.rand.Uint64(), c.rand.Uint32(), c.rand.Uint64(), c.rand.Uint64()
	}
	switch wr.Opcode {
	case uverbs.OpSendImm, uverbs.OpWriteImm:
		wr.Imm = c.rand.Uint32()
	case uverbs.OpCompareSwap, uverbs.OpFetchAdd:
		wr.SGL = c.sges(1, 0)
		wr.SGL[0].Length = 8
		return wr, false
	}
	switch bad = c.rand.IntN(200) == 0; {
	case wr.Opcode != uverbs.OpRead && c.size.inline > 0 && c.rand.IntN(3) == 0:
		n := 1 + c.rand.IntN(c.size.inline)
		if bad {
			n = c.size.inline + 1
		}
		wr.Inline = inlineData[:n]
	case bad:
		wr.SGL = c.sges(c.size.sges+1, 10)
	default:
		wr.SGL = c.sges(c.rand.IntN(c.size.sges+1), most)
	}
	return wr, bad
}

// posted returns how many requests of a post were not refused.
func posted(said string) (n int) {
	fmt.Sscanf(said, "posted %d", &n)
	return n
}

// room returns how many requests to post, of those that a queue has room for or, if both sides refuse the same one,
// of more.
func (c *comparison) room(queue, size int) (n, fit int) {
	n = 1 + c.rand.IntN(12)
	if fit = size - c.held[queue]; n > fit && c.rand.IntN(4) > 0 {
		c.pollAll()
		fit = size - c.held[queue]
	}
	if !c.exact {
		n = min(n, fit)
	}
	return n, fit
}

func (c *comparison) send() {
	n, fit := c.room(0, c.size.sends)
	var list []uverbs.SendWR
	batch := c.rand.IntN(2) == 0 && n <= fit
	for range n {
		wr, bad := c.request()
		list, batch = append(list, wr), batch && !bad
	}
	if n == 0 {
		return
	}
	n = posted(c.step(fmt.Sprintf("send %+v", list), func(s side) string { return s.send(list, batch) }))
	c.sends, c.held[0] = c.sends+n, c.held[0]+n
}

func (c *comparison) recv() {
	n, _ := c.room(1, c.size.recvs)
	var list []uverbs.RecvWR
	for range n {
		c.count++
		n := c.rand.IntN(c.size.recvSGEs + 1)
		if c.rand.IntN(200) == 0 {
			n = c.size.recvSGEs + 1
		}
		list = append(list, uverbs.RecvWR{WRID: c.count<<32 | uint64(c.rand.Uint32()), SGL: c.sges(n, 1<<20)})
	}
	if len(list) == 0 {
		return
	}
	n = posted(c.step(fmt.Sprintf("recv %+v", list), func(s side) string { return s.recv(list) }))
	c.recvs, c.held[1] = c.recvs+n, c.held[1]+n
}

// entry returns an entry whose fields are random, except its type and its status.
func (c *comparison) entry(kind byte, worst int) (raw [32]byte) {
	for i := range raw {
		raw[i] = byte(c.rand.Uint32())
	}
	raw[24], raw[25] = kind<<1, 0
	if worst > 0 && c.rand.IntN(50) == 0 {
		raw[25] = byte(1 + c.rand.IntN(worst))
	}
	return raw
}

// completeSends completes some sends. A failed one is the oldest.
func (c *comparison) completeSends() {
	if c.sends == 0 || c.gone[0] {
		return
	}
	n, raw := 1+c.rand.IntN(c.sends), c.entry(0, 14)
	if raw[25] != 0 {
		n, c.gone[0] = 1, true
	}
	for i := range c.sides {
		c.fabric.Device(i).CompleteSends(n, raw)
	}
	c.sends -= n
}

// completeRecv completes a receive: the oldest one, or any of an SRQ.
func (c *comparison) completeRecv() {
	if c.recvs == 0 || c.gone[1] {
		return
	}
	kind, i := byte(1), 0
	if c.size.typ == uverbs.UD {
		kind = 2
	}
	if c.size.shared {
		i = c.rand.IntN(c.recvs)
	}
	raw := c.entry(kind, 10)
	raw[31] &= 0x18
	const hardware = 8
	keep := raw[25] == hardware
	if keep && c.size.shared {
		return
	}
	c.gone[1] = raw[25] != 0 && !keep && !c.size.shared
	for k := range c.sides {
		c.fabric.Device(k).CompleteReceive(i, keep, raw)
	}
	c.recvs -= number(!keep)
}

func (c *comparison) poll() string {
	n := 1 + c.rand.IntN(8)
	return c.step("poll", func(s side) string { return s.poll(n) })
}

func (c *comparison) pollAll() {
	for c.step("poll", func(s side) string { return s.poll(16) }) != "polled 0" {
	}
	if c.gone[0] {
		c.sends = 0
	}
	if c.gone[1] {
		c.recvs = 0
	}
	c.held = [2]int{c.sends, c.recvs}
}

// drain completes and polls everything.
func (c *comparison) drain() {
	for c.sends > 0 && !c.gone[0] {
		c.completeSends()
		if c.rand.IntN(4) == 0 {
			c.poll()
		}
	}
	for c.recvs > 0 && !c.gone[1] {
		c.completeRecv()
		if c.rand.IntN(4) == 0 {
			c.poll()
		}
	}
	c.pollAll()
}

// end ends the QP: the programs flush what is posted, and what they post then.
func (c *comparison) end() {
	for i := range c.sides {
		c.fabric.Device(i).Terminate()
	}
	c.gone = [2]bool{true, true}
	for range c.rand.IntN(4) {
		c.poll()
	}
	c.pollAll()
	c.send()
	c.poll()
	c.recv()
	c.pollAll()
	c.reset()
}

func (c *comparison) reset() {
	psn := c.psn()
	if c.size.shared {
		c.pollAll()
	}
	c.step("reset", func(s side) string { return s.reset(psn) })
	c.sends, c.held[0], c.gone = 0, 0, [2]bool{}
	if !c.size.shared {
		c.recvs, c.held[1] = 0, 0
	}
}

// event completes a send, reads the event, and arms the CQ again.
func (c *comparison) event() {
	if c.sends == 0 || c.gone[0] {
		return
	}
	if c.armed {
		c.completeSends()
		c.step("event", side.event)
	}
	c.armed = true
	c.pollAll() // so that there is no event yet
	c.step("arm for solicited completions", func(s side) string { return s.arm(true) })
	c.step("arm", func(s side) string { return s.arm(false) })
}

// mostDeferred is the size up to which not each poll rings the doorbell.
const mostDeferred = 1<<14 - 1

// resize resizes the CQ. Completions before and after it are polled together.
func (c *comparison) resize() {
	if c.entries > mostDeferred {
		return
	}
	if c.rand.IntN(2) == 0 {
		c.completeSends()
		c.completeRecv()
	}
	c.entries += c.rand.IntN(50)
	if c.rand.IntN(32) == 0 {
		c.pollAll() // C tells the device only of entries with completions
		c.entries = mostDeferred + 1 + c.rand.IntN(1000)
	}
	c.step("resize", func(s side) string { return s.resize(c.entries) })
	for range c.rand.IntN(4) {
		c.completeSends()
		c.completeRecv()
		c.poll()
	}
	c.pollAll() // C does not drop those before it with the QP
}

func (c *comparison) play(steps int) {
	for range steps {
		switch c.rand.IntN(32) {
		case 0, 1, 2, 3, 4, 5, 6:
			c.send()
		case 7, 8, 9, 10, 11:
			c.recv()
		case 12, 13, 14, 15, 16, 17:
			for range c.rand.IntN(4) {
				c.completeSends()
			}
			for range c.rand.IntN(8) {
				c.completeRecv()
			}
		case 18, 19, 20, 21, 22, 23:
			c.poll()
		case 24, 25:
			c.event()
		case 27:
			c.drain()
		case 28:
			if c.size.shared {
				c.reset() // libbnxt_re of the bed crashes when a QP with an SRQ ends
			} else if c.gone != [2]bool{} || c.rand.IntN(8) == 0 {
				c.end()
			}
		case 30:
			c.resize()
		case 29:
			if c.rand.IntN(8) == 0 {
				c.reset()
			}
		}
	}
	c.drain()
	c.sides[0].(*cSide).End()
}

func TestDifferential(t *testing.T) {
	for name, cfg := range models {
		for kind, size := range map[string]qpSize{
			"RC":            {uverbs.RC, 16, 16, 2, 2, 32, false, false},
			"RC, odd sizes": {uverbs.RC, 33, 21, 6, 6, 96, true, false},
			"RC, SRQ":       {uverbs.RC, 20, 13, 3, 4, 0, false, true},
			"UD":            {uverbs.UD, 16, 16, 2, 2, 20, false, false},
			"UD, SRQ":       {uverbs.UD, 9, 30, 1, 3, 96, true, true},
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				newComparison(t, cfg, size, 1).play(2000)
			})
		}
	}
}
