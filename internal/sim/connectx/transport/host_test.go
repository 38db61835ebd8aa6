package transport

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// A host is a queue pair for tests: memory, receive requests, and a record of
// events.
type host struct {
	t      *testing.T
	loop   *loop.Loop
	e      *Endpoint
	world  *world
	posted []*Request
	recvs  []*Receive
	memory map[uint32][]byte // by key; addresses start at 0
	denied map[uint32]Syndrome

	done     []outcome
	arrived  []arrival
	events   []string
	gone     []uint32 // keys that were invalidated
	executed []*Request

	gatherFault  map[*Request]Syndrome
	scatterFault Syndrome
	receiveFault Syndrome
	localFault   Syndrome
	atomicFault  Syndrome
	reads        int                        // calls of Region.Read
	readFaultAt  int                        // the call that fails, from 1 on
	page         func(what string) Syndrome // called before each access to memory; may be nil
	onEvent      func(string)
	wake         chan struct{} // receives a value when something was recorded; may be nil
}

// notify reports that something was recorded.
func (h *host) notify() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// missing returns PageFault or OK.
func (h *host) missing(what string) Syndrome {
	if h.page == nil {
		return OK
	}
	return h.page(what)
}

// An outcome is the result of a send request.
type outcome struct {
	r  *Request
	s  Syndrome
	at time.Duration
}

// An arrival is the result of a receive request.
type arrival struct {
	m  Message
	rc *Receive
	at time.Duration
}

func buffer(v any) []byte { return v.([]byte) }

func (h *host) Next() *Request {
	if len(h.posted) == 0 {
		return nil
	}
	r := h.posted[0]
	h.posted = h.posted[1:]
	return r
}

func (h *host) Gather(r *Request, off uint32, p []byte) Syndrome {
	if s := h.gatherFault[r]; s != OK {
		return s
	}
	if s := h.missing("gather"); s != OK {
		return s
	}
	copy(p, buffer(r.WQE)[off:])
	return OK
}

func (h *host) Scatter(r *Request, off uint32, p []byte) Syndrome {
	if h.scatterFault != OK {
		return h.scatterFault
	}
	if s := h.missing("scatter"); s != OK {
		return s
	}
	copy(buffer(r.WQE)[off:], p)
	return OK
}

func (h *host) Execute(r *Request) Syndrome {
	h.executed = append(h.executed, r)
	return h.localFault
}

func (h *host) Done(r *Request, s Syndrome) {
	defer h.notify()
	h.done = append(h.done, outcome{r, s, h.world.now()})
	if s != OK {
		state := Err
		if h.e.config.Type == UD || h.e.config.Type == UC {
			state = SQE
		}
		h.flush(state)
	}
}

// flush does what an owner does after an error.
func (h *host) flush(state State) {
	h.e.SetState(state)
	requests, taken := h.e.TakeBack()
	for _, r := range append(requests, h.posted...) {
		h.done = append(h.done, outcome{r, Flushed, h.world.now()})
	}
	h.posted = nil
	if state != Err {
		return
	}
	h.recvs = append(taken, h.recvs...)
	for _, rc := range h.recvs {
		h.arrived = append(h.arrived, arrival{Message{Syndrome: Flushed}, rc, h.world.now()})
	}
	h.recvs = nil
}

func (h *host) Receive(srq uint32) (*Receive, Syndrome) {
	if len(h.recvs) == 0 {
		return nil, h.receiveFault
	}
	rc := h.recvs[0]
	h.recvs = h.recvs[1:]
	return rc, h.receiveFault
}

func (h *host) Posted(srq uint32) int { return len(h.recvs) }

func (h *host) Deliver(rc *Receive, off uint32, p []byte) Syndrome {
	b := buffer(rc.WQE)
	if int(off)+len(p) > len(b) {
		return LocalLength
	}
	if s := h.missing("deliver"); s != OK {
		return s
	}
	copy(b[off:], p)
	return OK
}

func (h *host) Arrived(rc *Receive, m Message) {
	if rc == nil {
		h.t.Error("nothing has arrived")
	}
	h.arrived = append(h.arrived, arrival{m, rc, h.world.now()})
	h.notify()
}

func (h *host) Invalidate(srq, key uint32) Syndrome {
	if h.memory[key] == nil {
		return RemoteAccess
	}
	delete(h.memory, key)
	h.gone = append(h.gone, key)
	return OK
}

func (h *host) Remote(srq, key uint32, va uint64, n uint32, a Access) (Region, Syndrome) {
	if n == 0 {
		h.t.Error("access to no memory")
	}
	b := h.memory[key]
	if s := h.denied[key]; s != OK {
		return nil, s
	}
	if va+uint64(n) > uint64(len(b)) || va+uint64(n) < va {
		return nil, RemoteAccess
	}
	return &region{h, b[va : va+uint64(n)]}, OK
}

func (h *host) event(format string, args ...any) {
	defer h.notify()
	h.events = append(h.events, fmt.Sprintf(format, args...))
	if h.onEvent != nil {
		h.onEvent(h.events[len(h.events)-1])
	}
}

func (h *host) Broken(e Event) {
	h.event("broken %d", e)
	h.flush(Err)
}
func (h *host) Established()     { h.event("established") }
func (h *host) SQDrained()       { h.event("drained") }
func (h *host) Migrated(ok bool) { h.event("migrated %v", ok) }

// A region is a piece of a host's memory.
type region struct {
	h *host
	b []byte
}

func (r *region) Write(off uint32, p []byte) Syndrome {
	if int(off)+len(p) > len(r.b) {
		r.h.t.Errorf("write of %d bytes at %d of %d", len(p), off, len(r.b))
		return RemoteAccess
	}
	if s := r.h.missing("write"); s != OK {
		return s
	}
	copy(r.b[off:], p)
	return OK
}

func (r *region) Read(off uint32, p []byte) Syndrome {
	if r.h.reads++; r.h.reads == r.h.readFaultAt {
		return RemoteAccess
	}
	if int(off)+len(p) > len(r.b) {
		r.h.t.Errorf("read of %d bytes at %d of %d", len(p), off, len(r.b))
		return RemoteAccess
	}
	if s := r.h.missing("read"); s != OK {
		return s
	}
	copy(p, r.b[off:])
	return OK
}

func (r *region) Atomic(op Op, o [4]uint64) (uint64, Syndrome) {
	if r.h.atomicFault != OK {
		return 0, r.h.atomicFault
	}
	if s := r.h.missing("atomic"); s != OK {
		return 0, s
	}
	old := binary.LittleEndian.Uint64(r.b)
	v := old
	switch op {
	case CompareSwap:
		if old == o[1] {
			v = o[0]
		}
	case FetchAdd:
		v += o[0]
	case MaskedCompareSwap:
		if old&o[3] == o[1]&o[3] {
			v = old&^o[2] | o[0]&o[2]
		}
	case MaskedFetchAdd:
		v = (old^o[0])&o[2] ^ (old&^o[2] + o[0]&^o[2]) // the top bit of each field has no carry out
	default:
		r.h.t.Errorf("atomic %d", op)
	}
	binary.LittleEndian.PutUint64(r.b, v)
	return old, OK
}

// A world is two hosts and the wire between them.
type world struct {
	t     *testing.T
	loop  loop.Loop
	hosts [2]*host
	begin time.Time
	fate  func(from int, p *roce.Packet) []time.Duration // nil: every packet arrives at once
	log   []string
	seen  map[string]int // packets by sender and opcode
	quiet bool           // keep no log
	last  [2]*roce.Packet
	under []delivery // way
}

// A wire is a host's port. It encodes packets as frames and decodes them again.
type wire struct {
	w    *world
	from int
}

func (x wire) Send(path *Path, p *roce.Packet) {
	w := x.w
	p.Route = roce.Route{Version: roce.V2, GRH: true, SGID: [16]byte{10: 0xFF, 11: 0xFF, 15: byte(1 + x.from)},
		DGID: [16]byte{10: 0xFF, 11: 0xFF, 15: byte(2 - x.from)}}
	frame, err := p.AppendFrame(nil)
	if err != nil {
		w.t.Errorf("%+v cannot be sent: %v", p, err)
		return
	}
	w.seen[fmt.Sprintf("%d %v", x.from, p.Opcode)]++
	w.last[x.from] = p
	fates := []time.Duration{0}
	if w.fate != nil {
		fates = w.fate(x.from, p)
	}
	if !w.quiet {
		w.log = append(w.log, fmt.Sprintf("%v %d: %v psn %d ackreq %v aeth %+v %d bytes, fate %v", w.now(), x.from, p.Opcode,
			p.PSN, p.AckReq, p.AETH, len(p.Payload), fates))
	}
	for _, d := range fates {
		got, err := roce.Parse(bytes.Clone(frame))
		if err != nil {
			w.t.Errorf("%+v cannot be parsed: %v", p, err)
			return
		}
		deliver := func() { w.hosts[1-x.from].e.Receive(got) }
		if d == 0 {
			w.loop.Post(deliver)
			continue
		}
		w.under = append(w.under, delivery{time.Now().Add(d), deliver})
		w.loop.After(d, w.arrive)
	}
}

// A delivery is a packet in transit.
type delivery struct {
	due time.Time
	f   func()
}

// arrive delivers the packets that are due, in the order in which they were
// sent.
func (w *world) arrive() {
	due := w.under
	w.under = nil
	for _, d := range due {
		if time.Now().Before(d.due) {
			w.under = append(w.under, d)
		} else {
			w.loop.Post(d.f)
		}
	}
}

func (w *world) now() time.Duration { return time.Since(w.begin) }

// plain returns a common configuration.
func plain(t Type) Config {
	return Config{Type: t, PKey: 0xFFFF, QKey: 0x11111111, MTU: 256, SendPSN: 100, RecvPSN: 100,
		RetryCount: 7, RNRRetry: 7, AckTimeout: 10, MinRNRTimer: 12, MaxInitiate: 4, MaxRespond: 4, Migration: Migrated}
}

func newHost(w *world, port Port, c Config) *host {
	h := &host{t: w.t, loop: &w.loop, world: w, memory: map[uint32][]byte{}, denied: map[uint32]Syndrome{},
		gatherFault: map[*Request]Syndrome{}}
	h.e = New(&w.loop, port, h, c)
	return h
}

// newWorld connects two hosts; change may alter their configurations.
func newWorld(t *testing.T, kind Type, change func(i int, c *Config)) *world {
	w := &world{t: t, begin: time.Now(), seen: map[string]int{}}
	for i := range w.hosts {
		c := plain(kind)
		c.QPN, c.DestQPN = uint32(0x100+i), uint32(0x101-i)
		if kind == XRCInitiator && i == 1 {
			c.Type = XRCTarget
		}
		if change != nil {
			change(i, &c)
		}
		w.hosts[i] = newHost(w, wire{w, i}, c)
	}
	w.loop.Run(func() {
		for _, h := range w.hosts {
			h.e.SetState(Init)
			h.e.SetState(RTR)
			h.e.SetState(RTS)
		}
	})
	return w
}

// pass advances the time.
func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// post posts requests at a host.
func (w *world) post(i int, requests ...*Request) {
	w.loop.Run(func() {
		w.hosts[i].posted = append(w.hosts[i].posted, requests...)
		w.hosts[i].e.Kick()
	})
}

// receive posts receive requests of n bytes.
func (w *world) receive(i int, sizes ...int) {
	w.loop.Run(func() {
		for _, n := range sizes {
			w.hosts[i].recvs = append(w.hosts[i].recvs, &Receive{WQE: make([]byte, n)})
		}
	})
}

// dump logs the packets on the wire.
func (w *world) dump() {
	for _, l := range w.log {
		w.t.Log(l)
	}
}

// noise returns n bytes derived from a seed.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	src := rand.New(rand.NewPCG(seed, 0))
	for i := range b {
		b[i] = byte(src.Uint32())
	}
	return b
}
