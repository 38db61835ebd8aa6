package engine_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// The tests drive HCAs as a provider does: they write WQEs and doorbell records
// to memory, ring doorbells, and read CQEs.

const (
	memoryBase = 0x4_0000_0000
	memorySize = 16 << 20
	pageShift  = 12
)

var be = binary.BigEndian

// A world is a set of hosts on a network.
type world struct {
	t     testing.TB
	loop  *loop.Loop
	hosts []*host
	lose  func(p *roce.Packet) bool // nil: nothing is lost

	relaxed bool // violations do not fail the test
	less    int  // halve the memory so often
}

// A host is memory and an HCA.
type host struct {
	*engine.HCA
	w          *world
	mem        []byte
	used       uint64
	completed  []uint32 // CQs that had an event
	events     []engine.AsyncEvent
	violations []engine.Violation
	pd         uint32
}

// run runs a test with n hosts and synthetic time.
func run(t *testing.T, n int, c engine.Config, f func(w *world)) {
	t.Helper()
	runWorld(t, &world{}, n, c, f)
}

func runWorld(t *testing.T, w *world, n int, c engine.Config, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w.t = t
		w.newLoop()
		for range n {
			w.add(c)
		}
		f(w)
		synctest.Wait()
		w.loop.Run(func() {
			for _, h := range w.hosts {
				for _, v := range h.violations {
					t.Errorf("violation of %s: QP %#x CQ %#x index %#x: %s", v.Rule, v.QPN, v.CQN, v.Index, v.Text)
				}
				h.Reset()
			}
		})
	})
}

func (w *world) newLoop() { w.loop = &loop.Loop{} }

func (w *world) add(c engine.Config) *host {
	h := &host{w: w, mem: make([]byte, memorySize>>w.less)}
	c.Loop, c.Memory, c.Events = w.loop, h, h
	c.Strict, c.Violation = !w.relaxed, func(v engine.Violation) { h.violations = append(h.violations, v) }
	h.HCA = engine.New(c)
	number := byte(len(w.hosts) + 1)
	w.hosts = append(w.hosts, h)
	w.loop.Run(func() {
		h.SetLID(uint16(number))
		h.SetMAC([6]byte{2, 0, 0, 0, 0, number})
		h.SetLink(h)
		h.SetUp(true)
		h.events = nil
		version := roce.InfiniBand
		if c.LinkLayer == engine.Ethernet {
			version = roce.V2
		}
		w.must(h.SetGID(0, engine.GIDEntry{GID: gid(number), Version: version, MAC: h.MAC()}))
		h.pd = must(h.CreatePD())
	})
	return h
}

func gid(number byte) [16]byte { return [16]byte{0: 0xfe, 1: 0x80, 15: number} }

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// View is the host's memory.
func (h *host) View(addr uint64, n int) ([]byte, error) {
	if addr < memoryBase || n < 0 || n > len(h.mem) || addr-memoryBase > uint64(len(h.mem)-n) {
		return nil, fmt.Errorf("no memory at %#x", addr)
	}
	return h.mem[addr-memoryBase:][:n], nil
}

func (h *host) Completion(cq *engine.CQ)  { h.completed = append(h.completed, cq.Number) }
func (h *host) Async(e engine.AsyncEvent) { h.events = append(h.events, e) }

// Packet sends to the host with the LID, or to all others.
func (h *host) Packet(p *roce.Packet) {
	if h.w.lose != nil && h.w.lose(p) {
		return
	}
	for _, to := range h.w.hosts {
		if to != h && (to.LID() == p.Route.DLID || p.Route.DLID >= 0xc000) {
			h.w.loop.Post(func() { to.ReceivePacket(p) })
		}
	}
}

// Frame sends to all other hosts.
func (h *host) Frame(b []byte) {
	if p, err := roce.Parse(b); err == nil && h.w.lose != nil && h.w.lose(p) {
		return
	}
	for _, to := range h.w.hosts {
		if to != h {
			h.w.loop.Post(func() { to.ReceiveFrame(slices.Clone(b)) })
		}
	}
}

// alloc allocates page-aligned memory.
func (h *host) alloc(n int) uint64 {
	addr := memoryBase + h.used
	h.used += (uint64(n) + 4095) &^ 4095
	if h.used > uint64(len(h.mem)) {
		h.w.t.Fatal("the host's memory is used up")
	}
	return addr
}

func (h *host) bytes(addr uint64, n int) []byte { return must(h.View(addr, n)) }

// buffer allocates a queue's memory from non-contiguous pages.
func (h *host) buffer(n int) (engine.Buffer, func(off, n uint64) []byte) {
	pages := (n + 4095) / 4096
	b := engine.Buffer{PageShift: pageShift}
	for range pages {
		b.Pages = append(b.Pages, h.alloc(4096))
	}
	slices.Reverse(b.Pages)
	return b, func(off, n uint64) []byte { // does not cross a page
		return h.bytes(b.Pages[off>>pageShift]+off&4095, int(n))
	}
}

const allRights = engine.LocalRead | engine.LocalWrite | engine.RemoteRead | engine.RemoteWrite | engine.RemoteAtomic

// A region is registered memory.
type region struct {
	*engine.MKey
	h    *host
	addr uint64 // the address in work requests
	phys []uint64
}

// register registers memory of non-contiguous pages with virtual addresses.
func (h *host) register(n int, rights engine.Rights) *region {
	r := &region{h: h, addr: 0x7f00_0000_0000 + uint64(len(h.mem)) + h.used*2 + 0x123}
	start := r.addr
	pages := (int(start&4095) + n + 4095) / 4096
	for range pages {
		r.phys = append(r.phys, h.alloc(4096))
	}
	slices.Reverse(r.phys)
	var list []byte
	for _, p := range r.phys {
		list = be.AppendUint64(list, p|3)
	}
	r.MKey = must(h.CreateMKey(engine.MKeyAttr{Mode: engine.MTT, Rights: rights, QPN: engine.AnyQPN, Variant: 0x5a,
		PD:    h.pd,
		Start: start, Length: uint64(n), PageShift: pageShift, Octowords: uint32((pages + 1) / 2), Translations: list}))
	return r
}

// get and put copy registered memory.
func (r *region) get(off, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		at := int(r.Start&4095) + off + i
		out[i] = r.h.bytes(r.phys[at>>12]+uint64(at&4095), 1)[0]
	}
	return out
}

func (r *region) put(off int, b []byte) {
	for i, x := range b {
		at := int(r.Start&4095) + off + i
		r.h.bytes(r.phys[at>>12]+uint64(at&4095), 1)[0] = x
	}
}

// pattern returns bytes that depend on their offset.
func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
	return b
}

// A cq is a completion queue from the user's side.
type cq struct {
	*engine.CQ
	h        *host
	at       func(off, n uint64) []byte
	record   uint64
	consumer uint32
	size     uint32
	stride   uint64
	sn       uint32
}

func (h *host) fresh(log uint8, stride uint64) (engine.Buffer, func(off, n uint64) []byte) {
	b, at := h.buffer(int(stride) << log)
	for i := range uint64(1) << log {
		at(i*stride, stride)[stride-1] = prm.CQEInvalid << 4
	}
	return b, at
}

func (h *host) newCQ(a engine.CQAttr) *cq {
	c := &cq{h: h, size: 1 << a.LogSize, stride: 64}
	if a.Wide {
		c.stride = 128
	}
	a.Buffer, c.at = h.fresh(a.LogSize, c.stride)
	c.record = h.alloc(8)
	a.Record, a.UAR = c.record, 16
	c.CQ = must(h.CreateCQ(a))
	return c
}

// A cqe is a completion that was polled.
type cqe struct {
	op, syndrome uint8
	qpn, user    uint32
	index        uint16
	bytes        uint32
	imm          uint32
	sendOp       uint8
	raw          []byte
	data         []byte // in the completion
}

// poll returns the completions that have been written.
func (c *cq) poll() (all []cqe) {
	for {
		e, ok := c.pollOne()
		if !ok {
			return all
		}
		all = append(all, e)
	}
}

func (c *cq) pollOne() (e cqe, ok bool) {
	slot := c.at(uint64(c.consumer&(c.size-1))*c.stride, c.stride)
	b := slot[c.stride-64:]
	if prm.CQEOpcode.Get(b) == prm.CQEInvalid || uint32(prm.CQEOwner.Get(b)) != c.consumer/c.size&1 {
		return e, false
	}
	e = cqe{op: uint8(prm.CQEOpcode.Get(b)), qpn: uint32(prm.CQEQPN.Get(b)), user: uint32(prm.CQEUserIndex.Get(b)),
		index: uint16(prm.CQEWQECounter.Get(b)), bytes: uint32(prm.CQEByteCount.Get(b)), imm: uint32(prm.CQEImm.Get(b)),
		sendOp: uint8(prm.CQESendOpcode.Get(b)), raw: slices.Clone(b)}
	if e.op == prm.CQEReqErr || e.op == prm.CQERespErr {
		e.syndrome = uint8(prm.CQESyndrome.Get(b))
	}
	switch prm.CQEFormat.Get(b) {
	case prm.CQEFormatInline32:
		e.data = slices.Clone(b[:min(e.bytes, 32)])
	case prm.CQEFormatInline64:
		e.data = slices.Clone(slot[:min(e.bytes, 64)])
	}
	c.consumer++
	be.PutUint32(c.h.bytes(c.record, 4), c.consumer&0xffffff)
	return e, true
}

// arm arms the CQ.
func (c *cq) arm(any bool) {
	word := c.sn<<28 | c.consumer&0xffffff
	if !any {
		word |= 1 << 24
	}
	be.PutUint32(c.h.bytes(c.record+4, 4), word)
	c.h.Store(16, 0x20, be.AppendUint32(be.AppendUint32(nil, word), c.Number))
}

// expect compares completions with opcodes or syndromes.
func (c *cq) expect(what string, want ...cqe) {
	c.h.w.t.Helper()
	got := c.poll()
	if len(got) != len(want) {
		c.h.w.t.Fatalf("%s: %d completions, want %d: %+v", what, len(got), len(want), got)
	}
	for i, g := range got {
		w := want[i]
		if g.op != w.op || g.syndrome != w.syndrome || w.bytes != 0 && g.bytes != w.bytes || w.imm != 0 && g.imm != w.imm {
			c.h.w.t.Errorf("%s: completion %d is %+v, want %+v", what, i, g, w)
		}
	}
}

var (
	sent    = cqe{op: prm.CQEReq}
	flushed = cqe{op: prm.CQEReqErr, syndrome: uint8(transport.Flushed)}
	unused  = cqe{op: prm.CQERespErr, syndrome: uint8(transport.Flushed)}
)

func sendError(s transport.Syndrome) cqe { return cqe{op: prm.CQEReqErr, syndrome: uint8(s)} }
func recvError(s transport.Syndrome) cqe { return cqe{op: prm.CQERespErr, syndrome: uint8(s)} }
func received(n int) cqe                 { return cqe{op: prm.CQERespSend, bytes: uint32(n)} }
