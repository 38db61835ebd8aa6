package transport

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// sizes are lengths around a path MTU of 256 bytes.
var sizes = []int{0, 1, 255, 256, 257, 512, 1023, 5000, 70000}

// faults has the probabilities of a wire's faults, per 1000.
type faults struct{ drop, repeat, delay int }

// rough returns the fates of packets on a wire with faults.
func rough(f faults, seed uint64) func(int, *roce.Packet) []time.Duration {
	src := rand.New(rand.NewPCG(seed, 1))
	return func(from int, p *roce.Packet) []time.Duration {
		lag := func() time.Duration {
			if src.IntN(1000) < f.delay {
				return time.Duration(1+src.IntN(200)) * time.Microsecond
			}
			return 0
		}
		switch n := src.IntN(1000); {
		case n < f.drop:
			return nil
		case n < f.drop+f.repeat:
			return []time.Duration{lag(), lag()}
		}
		return []time.Duration{lag()}
	}
}

// TestTransfers checks that each operation of the reliable services, with each
// size, is carried out completely and once, over wires with and without faults.
func TestTransfers(t *testing.T) {
	for _, kind := range []Type{RC, XRCInitiator} {
		for name, f := range map[string]faults{
			"good": {}, "loss": {drop: 50}, "repeats": {repeat: 100}, "disorder": {delay: 100}, "all": {30, 50, 50},
		} {
			for _, psn := range []uint32{100, 1<<24 - 7} { // the second PSN wraps in the first messages
				t.Run(fmt.Sprintf("type %d/%s/%d", kind, name, psn), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { transfers(t, kind, f, psn) })
				})
			}
		}
	}
}

func transfers(t *testing.T, kind Type, f faults, psn uint32) {
	w := newWorld(t, kind, func(i int, c *Config) { c.SendPSN, c.RecvPSN = psn, psn })
	w.fate = rough(f, uint64(psn)+uint64(f.drop*1000+f.repeat*100+f.delay))
	a, b := w.hosts[0], w.hosts[1]
	type expect struct {
		m    Message
		data []byte
	}
	var want []expect
	var reads, writes []*Request
	var requests []*Request
	key := uint32(1)
	for round, n := range sizes {
		data := noise(uint64(round), n)
		for _, op := range []Op{Send, Write, Read, SendImm, WriteImm, FetchAdd, SendInval, CompareSwap, MaskedCompareSwap} {
			key++
			r := &Request{Op: op, Length: uint32(n), Imm: key, Solicited: round%2 == 0, RKey: key, RemoteAddr: 8, WQE: data,
				Fence: round%3 == 0, XRCSRQ: 5}
			requests = append(requests, r)
			switch op {
			case Write, WriteImm:
				b.memory[key] = make([]byte, n+16)
				writes = append(writes, r)
			case Read:
				b.memory[key] = noise(uint64(key), n+16)
				r.WQE = make([]byte, n)
				reads = append(reads, r)
			case SendInval:
				b.memory[key] = make([]byte, 1)
			case FetchAdd, CompareSwap, MaskedCompareSwap:
				b.memory[1] = make([]byte, 16)
				r.Length, r.WQE, r.RKey = 8, make([]byte, 8), 1
				r.Operand = [4]uint64{1}
				reads = append(reads, r)
			}
			if op <= SendInval || op == WriteImm {
				m := Message{Op: op, Length: uint32(n), Solicited: round%2 == 0}
				if op != Send {
					m.Imm = key
				}
				e := expect{m, data}
				if op == WriteImm {
					e.data = nil
				}
				want = append(want, e)
				b.recvs = append(b.recvs, &Receive{WQE: make([]byte, n)})
			}
		}
	}
	w.post(0, requests...)
	w.pass(time.Minute)
	w.loop.Run(func() {
		if t.Failed() {
			return
		}
		if len(a.done) != len(requests) {
			w.dump()
			t.Fatalf("%d of %d requests are done; events %v and %v", len(a.done), len(requests), a.events, b.events)
		}
		for i, o := range a.done {
			if o.r != requests[i] || o.s != OK {
				t.Fatalf("request %d (operation %d): syndrome %#x", i, o.r.Op, o.s)
			}
		}
		if len(b.arrived) != len(want) {
			t.Fatalf("%d messages arrived, want %d", len(b.arrived), len(want))
		}
		for i, e := range want {
			got := b.arrived[i]
			got.m.Packet = nil
			if got.m != e.m || e.data != nil && !bytes.Equal(buffer(got.rc.WQE), e.data) {
				t.Errorf("message %d: %+v, want %+v", i, got.m, e.m)
			}
		}
		for _, r := range writes {
			if !bytes.Equal(b.memory[r.RKey][8:8+r.Length], buffer(r.WQE)) {
				t.Errorf("WRITE of %d bytes differs", r.Length)
			}
		}
		sum := uint64(0) // each swap but those of the first round compares with 0 and fails
		for _, r := range reads {
			switch r.Op {
			case Read:
				if !bytes.Equal(b.memory[r.RKey][8:8+r.Length], buffer(r.WQE)) {
					t.Errorf("READ of %d bytes differs", r.Length)
				}
			case FetchAdd:
				if got := binary.BigEndian.Uint64(buffer(r.WQE)); got != sum {
					t.Errorf("fetch and add got %d, want %d", got, sum)
				}
				sum++
			}
		}
		if got := binary.LittleEndian.Uint64(b.memory[1][8:]); got != sum {
			t.Errorf("the sum is %d, want %d", got, sum)
		}
		if a.e.sender.timer.timer != nil || a.e.later != nil {
			t.Error("a timer of an idle endpoint")
		}
		s, _ := a.e.PSN()
		if _, r := b.e.PSN(); s != r {
			t.Errorf("the sender is at %d, the receiver at %d", s, r)
		}
	})
}
