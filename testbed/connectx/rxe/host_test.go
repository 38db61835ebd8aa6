//go:build vm

package rxe_test

import (
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// A host owns an endpoint: it has the queues of a queue pair, whose requests
// and receive requests have buffers as their WQEs, and memory by key.
// Everything but wake is used inside the loop.
type host struct {
	t      *testing.T
	e      *transport.Endpoint
	wake   chan struct{} // receives a value when something was recorded
	posted []*transport.Request
	recvs  []*transport.Receive
	memory map[uint32][]byte // by key; addresses start at 0

	done    []outcome
	arrived []arrival
	broken  []transport.Event
}

// An outcome is the result of a send request.
type outcome struct {
	r *transport.Request
	s transport.Syndrome
}

// An arrival is the result of a receive request.
type arrival struct {
	m  transport.Message
	rc *transport.Receive
}

func newHost(t *testing.T, l *loop.Loop, port transport.Port, c transport.Config) *host {
	h := &host{t: t, wake: make(chan struct{}, 1), memory: map[uint32][]byte{}}
	h.e = transport.New(l, port, h, c)
	return h
}

// notify reports that something was recorded.
func (h *host) notify() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func buffer(wqe any) []byte { return wqe.([]byte) }

func (h *host) Next() *transport.Request {
	if len(h.posted) == 0 {
		return nil
	}
	r := h.posted[0]
	h.posted = h.posted[1:]
	return r
}

func (h *host) Gather(r *transport.Request, off uint32, p []byte) transport.Syndrome {
	copy(p, buffer(r.WQE)[off:])
	return transport.OK
}

func (h *host) Scatter(r *transport.Request, off uint32, p []byte) transport.Syndrome {
	copy(buffer(r.WQE)[off:], p)
	return transport.OK
}

func (h *host) Execute(r *transport.Request) transport.Syndrome {
	h.t.Errorf("a request without packets: operation %d", r.Op)
	return transport.LocalQPOp
}

func (h *host) Done(r *transport.Request, s transport.Syndrome) {
	defer h.notify()
	h.done = append(h.done, outcome{r, s})
	if s == transport.OK {
		return
	}
	if kind := h.e.Config().Type; kind == transport.UD || kind == transport.UC {
		h.flush(transport.SQE)
	} else {
		h.flush(transport.Err)
	}
}

// flush enters an error state and completes what was posted.
func (h *host) flush(state transport.State) {
	h.e.SetState(state)
	requests, taken := h.e.TakeBack()
	for _, r := range append(requests, h.posted...) {
		h.done = append(h.done, outcome{r, transport.Flushed})
	}
	h.posted = nil
	if state != transport.Err {
		return
	}
	h.recvs = append(taken, h.recvs...)
	for _, rc := range h.recvs {
		h.arrived = append(h.arrived, arrival{transport.Message{Syndrome: transport.Flushed}, rc})
	}
	h.recvs = nil
}

func (h *host) Receive(srq uint32) (*transport.Receive, transport.Syndrome) {
	if len(h.recvs) == 0 {
		return nil, transport.OK
	}
	rc := h.recvs[0]
	h.recvs = h.recvs[1:]
	return rc, transport.OK
}

func (h *host) Posted(srq uint32) int { return len(h.recvs) }

func (h *host) Deliver(rc *transport.Receive, off uint32, p []byte) transport.Syndrome {
	b := buffer(rc.WQE)
	if int(off)+len(p) > len(b) {
		return transport.LocalLength
	}
	copy(b[off:], p)
	return transport.OK
}

func (h *host) Arrived(rc *transport.Receive, m transport.Message) {
	h.arrived = append(h.arrived, arrival{m, rc})
	h.notify()
}

func (h *host) Invalidate(srq, key uint32) transport.Syndrome {
	if h.memory[key] == nil {
		return transport.RemoteAccess
	}
	delete(h.memory, key)
	return transport.OK
}

func (h *host) Remote(srq, key uint32, va uint64, n uint32, a transport.Access) (transport.Region, transport.Syndrome) {
	b := h.memory[key]
	if va+uint64(n) > uint64(len(b)) || va+uint64(n) < va {
		return nil, transport.RemoteAccess
	}
	return region(b[va : va+uint64(n)]), transport.OK
}

func (h *host) Broken(e transport.Event) {
	h.broken = append(h.broken, e)
	h.flush(transport.Err)
	h.notify()
}

func (h *host) Established()  {}
func (h *host) SQDrained()    {}
func (h *host) Migrated(bool) {}

// A region is a piece of a host's memory.
type region []byte

func (r region) Write(off uint32, p []byte) transport.Syndrome {
	copy(r[off:], p)
	return transport.OK
}

func (r region) Read(off uint32, p []byte) transport.Syndrome {
	copy(p, r[off:])
	return transport.OK
}

func (r region) Atomic(op transport.Op, operand [4]uint64) (uint64, transport.Syndrome) {
	old := binary.LittleEndian.Uint64(r)
	switch {
	case op == transport.FetchAdd:
		binary.LittleEndian.PutUint64(r, old+operand[0])
	case op == transport.CompareSwap && old == operand[1]:
		binary.LittleEndian.PutUint64(r, operand[0])
	}
	return old, transport.OK
}

// plain returns a common configuration.
func plain(kind transport.Type) transport.Config {
	return transport.Config{Type: kind, PKey: 0xFFFF, QKey: 0x11111111, MTU: 256, SendPSN: 100, RecvPSN: 100,
		RetryCount: 7, RNRRetry: 7, AckTimeout: 10, MinRNRTimer: 12, MaxInitiate: 4, MaxRespond: 4,
		Migration: transport.Migrated}
}
