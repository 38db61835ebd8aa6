package transport

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// inject passes packets to a host, in one step.
func (w *world) inject(i int, packets ...*roce.Packet) {
	w.loop.Run(func() {
		for _, p := range packets {
			p.PKey = 0xFFFF
			w.hosts[i].e.Receive(p)
		}
	})
}

func aeth(psn uint32, syndrome uint8) *roce.Packet {
	return &roce.Packet{Opcode: roce.Acknowledge, PSN: psn, AETH: roce.AETH{Syndrome: syndrome}}
}

// follow records the PSNs and opcodes that a host sends.
func (w *world) follow(i int) *[]psnOf {
	var got []psnOf
	fate := w.fate
	w.fate = func(from int, p *roce.Packet) []time.Duration {
		if from == i {
			got = append(got, psnOf{p.PSN, p.Opcode})
		}
		if fate != nil {
			return fate(from, p)
		}
		return []time.Duration{0}
	}
	return &got
}

type psnOf struct {
	psn uint32
	op  roce.Opcode
}

// alone returns a world with one requester that receives only injected packets.
func alone(t *testing.T, change func(c *Config)) (*world, *[]psnOf) {
	w := newWorld(t, RC, func(_ int, c *Config) {
		if c.AckTimeout = 0; change != nil {
			change(c)
		}
	})
	w.fate = func(int, *roce.Packet) []time.Duration { return nil }
	return w, w.follow(0)
}

// TestLostResponse checks that the response of a later request shows that a
// READ response was lost.
func TestLostResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, func(_ int, c *Config) { c.AckTimeout = 25 })
		w.hosts[1].memory[1] = make([]byte, 1000)
		lost := false
		w.fate = func(from int, p *roce.Packet) []time.Duration {
			if from == 1 && p.Opcode == roce.ReadResponseOnly && !lost {
				lost = true
				return nil
			}
			return []time.Duration{0}
		}
		w.post(0, request(Read, 10, 1), request(Write, 10, 1))
		w.pass(time.Millisecond)
		w.ends(0, OK, OK)
	})
}

// TestWaiting checks that a requester ignores NAKs during an RNR time, and
// counts one retry.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := alone(t, func(c *Config) { c.RNRRetry = 1 })
		w.post(0, send(1))
		w.inject(0, aeth(100, roce.RNRNak|12), aeth(100, roce.RNRNak|12), aeth(100, roce.NakSequence))
		w.pass(RNRTime(12) - 1)
		if len(*sent) != 1 {
			t.Errorf("%d packets in the time of waiting", len(*sent))
		}
		w.ends(0)
		w.pass(1)
		if len(*sent) != 2 {
			t.Errorf("%d packets after it", len(*sent))
		}
		w.inject(0, aeth(100, roce.RNRNak|12))
		w.ends(0, RNRRetry)
	})
}

// TestWaitingInVain checks that the following requests are sent at once if an
// earlier attempt of the refused request succeeded.
func TestWaitingInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := alone(t, nil)
		w.post(0, send(1), send(1))
		w.inject(0, aeth(100, roce.RNRNak|1))
		w.inject(0, aeth(100, roce.AckNoCredits))
		if want := []psnOf{{100, roce.SendOnly}, {101, roce.SendOnly}, {101, roce.SendOnly}}; !equal(*sent, want) {
			t.Errorf("sent %v, want %v", *sent, want)
		}
		w.ends(0, OK)
	})
}

// TestRetryOnce checks that a duplicate NAK causes no second retry, but one
// after an RNR time may.
func TestRetryOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := alone(t, func(c *Config) { c.RetryCount = 2 })
		w.post(0, send(1))
		w.inject(0, aeth(100, roce.NakSequence))
		w.inject(0, aeth(100, roce.NakSequence))
		if len(*sent) != 2 {
			t.Errorf("%d packets after a NAK and its copy, want 2", len(*sent))
		}
		w.inject(0, aeth(100, roce.RNRNak|12))
		w.pass(RNRTime(12))
		w.inject(0, aeth(100, roce.NakSequence))
		if len(*sent) != 4 {
			t.Errorf("%d packets, want 4", len(*sent))
		}
		w.ends(0)
	})
}

// TestPartlyDone checks that acknowledged packets are not sent again.
func TestPartlyDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := alone(t, nil)
		w.post(0, send(5*256))
		w.inject(0, aeth(100, roce.NakSequence), aeth(102, roce.AckNoCredits))
		want := []psnOf{{100, 0}, {101, 1}, {102, 1}, {103, 1}, {104, 2}, {103, 1}, {104, 2}}
		if !equal(*sent, want) {
			t.Errorf("sent %v, want %v", *sent, want)
		}
	})
}

// TestSpan checks that outstanding requests use fewer than half of all sequence
// numbers.
func TestSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := alone(t, nil)
		w.post(0, &Request{Op: Read, Length: 1 << 30}, &Request{Op: Read, Length: 1 << 30})
		if len(*sent) != 1 {
			t.Errorf("%d READs of 2²² packets at once", len(*sent))
		}
	})
}

// TestOneNAK checks that packets behind a gap cause one NAK, and that another
// one is sent after the gap was filled.
func TestOneNAK(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, nil)
		w.fate = func(int, *roce.Packet) []time.Duration { return nil }
		sent := w.follow(1)
		w.receive(1, 1)
		for _, psn := range []uint32{101, 102, 105, 100, 102, 103} {
			w.inject(1, &roce.Packet{Opcode: roce.SendOnly, PSN: psn})
		}
		if want := []psnOf{{100, roce.Acknowledge}, {101, roce.Acknowledge}}; !equal(*sent, want) {
			t.Errorf("sent %v, want %v", *sent, want)
		}
	})
}

// TestNAKStays checks that the ACK of a repeated packet does not replace a NAK.
func TestNAKStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, nil)
		w.inject(1, &roce.Packet{Opcode: roce.SendOnly, PSN: 100}, &roce.Packet{Opcode: roce.SendOnly, PSN: 99, AckReq: true})
		if p := w.last[1]; w.seen["1 RC_ACK"] != 1 || p.PSN != 100 || p.AETH.Kind() != roce.RNRNak {
			t.Errorf("%d responses, the last %+v", w.seen["1 RC_ACK"], p)
		}
	})
}

// readOf returns a READ of n packets with key 1 without its first skip packets.
func readOf(psn uint32, n, skip int) *roce.Packet {
	return &roce.Packet{Opcode: roce.ReadRequest, PSN: psn + uint32(skip),
		RETH: roce.RETH{RKey: 1, VA: uint64(skip) * 256, Length: uint32(n-skip) * 256}}
}

// reader returns a world with one responder whose responses are discarded, and
// records them.
func reader(t *testing.T, limit int) (*world, *[]psnOf) {
	w := newWorld(t, RC, func(_ int, c *Config) { c.MaxRespond = limit })
	w.hosts[1].memory[1] = make([]byte, 1<<20)
	w.fate = func(int, *roce.Packet) []time.Duration { return nil }
	return w, w.follow(1)
}

// TestResponsesInOrder checks that the response of a repeated READ is sent
// before later ones.
func TestResponsesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := reader(t, 4)
		w.receive(1, 1)
		w.inject(1, readOf(100, 1, 0))
		w.inject(1, &roce.Packet{Opcode: roce.SendOnly, PSN: 101, AckReq: true}, readOf(100, 1, 0))
		if want := []psnOf{{100, roce.ReadResponseOnly}, {100, roce.ReadResponseOnly},
			{101, roce.Acknowledge}}; !equal(*sent, want) {
			t.Errorf("sent %v, want %v", *sent, want)
		}
	})
}

// interrupt passes a packet to a host, and others behind the first burst of its
// response.
func (w *world) interrupt(i int, first *roce.Packet, then ...*roce.Packet) {
	w.loop.Run(func() {
		first.PKey = 0xFFFF
		w.hosts[i].e.Receive(first)
		for _, p := range then {
			p.PKey = 0xFFFF
			w.loop.Post(func() { w.hosts[i].e.Receive(p) })
		}
	})
	w.pass(time.Second)
}

// TestInterruptedRead checks that a READ response interrupted by a repeated one
// continues with a First packet.
func TestInterruptedRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := reader(t, 4)
		w.inject(1, readOf(100, 2, 0))
		*sent = nil
		w.interrupt(1, readOf(102, 100, 0), readOf(100, 2, 1))
		if len(*sent) != 101 {
			t.Fatalf("%d packets", len(*sent))
		}
		want := []psnOf{{102 + burst - 1, roce.ReadResponseMid}, {101, roce.ReadResponseOnly},
			{102 + burst, roce.ReadResponseFirst}, {102 + burst + 1, roce.ReadResponseMid}}
		if got := (*sent)[burst-1:][:4]; !equal(got, want) {
			t.Errorf("sent %v, want %v", got, want)
		}
	})
}

// TestRewoundRead checks that a READ that is repeated while its response is
// being sent goes back, but not forward.
func TestRewoundRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := reader(t, 4)
		w.interrupt(1, readOf(100, 100, 0), readOf(100, 100, 90), readOf(100, 100, 10))
		want := []psnOf{{100 + burst - 1, roce.ReadResponseMid}, {110, roce.ReadResponseFirst}, {111, roce.ReadResponseMid}}
		if got := (*sent)[burst-1:][:3]; !equal(got, want) || len(*sent) != burst+90 {
			t.Errorf("sent %v, want %v; %d packets in all", got, want, len(*sent))
		}
	})
}

// TestFailedAtomic checks that a failed atomic does not count as a message and
// uses no resource: after the response of a repeated READ its NAK is sent.
func TestFailedAtomic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := reader(t, 1)
		w.hosts[1].atomicFault = RemoteAccess
		w.inject(1, readOf(100, 1, 0))
		w.inject(1, readOf(100, 1, 0), &roce.Packet{Opcode: roce.FetchAdd, PSN: 101, Atomic: roce.AtomicETH{RKey: 1}})
		w.wantEvents(1, "broken 2")
		if want := []psnOf{{100, roce.ReadResponseOnly}, {100, roce.ReadResponseOnly},
			{101, roce.Acknowledge}}; !equal(*sent, want) {
			t.Errorf("sent %v, want %v", *sent, want)
		}
		if got, want := w.last[1].AETH, (roce.AETH{Syndrome: roce.NakRemoteAccess, MSN: 1}); got != want {
			t.Errorf("the last response is %+v, want %+v", got, want)
		}
	})
}

// TestRepeatedReadGivesWay checks that a queued repetition of a READ does not
// make the next READ exceed the limit.
func TestRepeatedReadGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := reader(t, 1)
		w.inject(1, readOf(100, 1, 0))
		w.inject(1, readOf(100, 1, 0), readOf(101, 1, 0))
		w.wantEvents(1)
		if want := []psnOf{{100, roce.ReadResponseOnly}, {101, roce.ReadResponseOnly}}; !equal(*sent, want) {
			t.Errorf("sent %v, want %v", *sent, want)
		}
	})
}
