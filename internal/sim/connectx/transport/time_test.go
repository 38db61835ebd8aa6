package transport

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// drop loses the packets of a host.
func drop(who int) func(int, *roce.Packet) []time.Duration {
	return func(from int, p *roce.Packet) []time.Duration {
		if from == who {
			return nil
		}
		return []time.Duration{0}
	}
}

// send returns a SEND of n bytes.
func send(n int) *Request { return &Request{Op: Send, Length: uint32(n), WQE: noise(1, n)} }

// ends checks the results of a host's requests.
func (w *world) ends(i int, want ...Syndrome) {
	w.t.Helper()
	w.loop.Run(func() {
		var got []Syndrome
		for _, o := range w.hosts[i].done {
			got = append(got, o.s)
		}
		if !equal(got, want) {
			w.t.Errorf("requests of host %d ended with %#x, want %#x", i, got, want)
		}
	})
}

// wantEvents checks the events of a host.
func (w *world) wantEvents(i int, want ...string) {
	w.t.Helper()
	w.loop.Run(func() {
		if got := w.hosts[i].events; !equal(got, want) {
			w.t.Errorf("events of host %d: %q, want %q", i, got, want)
		}
	})
}

// idle checks that no endpoint waits for anything.
func (w *world) idle() {
	w.t.Helper()
	w.loop.Run(func() {
		for i, h := range w.hosts {
			if h.e.sender.timer.timer != nil || h.e.later != nil || h.e.posted || len(h.e.responder.responses) > 0 {
				w.t.Errorf("host %d waits for something: %+v, %+v", i, h.e.sender, h.e.responder)
			}
		}
	})
}

func equal[T comparable](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// TestAckTimeout checks that a request without a response fails after all
// retries, each with the full timeout, and that later requests are returned by
// TakeBack.
func TestAckTimeout(t *testing.T) {
	for _, retries := range []uint8{0, 1, 7} {
		for _, code := range []uint8{1, 8, 14, 31} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, RC, func(_ int, c *Config) { c.RetryCount, c.AckTimeout = retries, code })
				w.fate = drop(1)
				w.receive(1, 10, 10)
				w.post(0, send(5), send(6))
				limit := time.Duration(retries+1) * 4096 * time.Nanosecond << code
				w.pass(limit - 1)
				w.ends(0)
				w.pass(1)
				w.ends(0, TransportRetry, Flushed)
				if n := w.seen["0 RC_SEND_ONLY"]; n != 2*int(retries+1) {
					t.Errorf("%d packets, want %d", n, 2*(retries+1))
				}
				w.idle()
				w.loop.Run(func() {
					if n := len(w.hosts[1].arrived); n != 2 {
						t.Errorf("%d messages arrived, want each once", n)
					}
				})
			})
		}
	}
}

// TestNoAckTimeout checks that code 0 waits without limit and without a timer.
func TestNoAckTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, func(_ int, c *Config) { c.AckTimeout = 0 })
		w.fate = drop(0)
		w.post(0, send(5))
		w.pass(24 * time.Hour)
		w.ends(0)
		w.idle()
	})
}

// TestRetriesAreRefilled checks a peer that responds only to the last attempt,
// repeatedly.
func TestRetriesAreRefilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, func(_ int, c *Config) { c.RetryCount = 2 })
		n := 0
		w.fate = func(from int, p *roce.Packet) []time.Duration {
			if from == 0 {
				if n++; n%3 != 0 {
					return nil
				}
			}
			return []time.Duration{0}
		}
		w.receive(1, 1, 1, 1, 1)
		for range 4 {
			w.post(0, send(1))
			w.pass(time.Second)
		}
		w.ends(0, OK, OK, OK, OK)
	})
}

// TestRNRTimes checks the exact time of each code, and that the request fails
// after the last retry.
func TestRNRTimes(t *testing.T) {
	for code := range uint8(32) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, RC, func(_ int, c *Config) { c.MinRNRTimer, c.RNRRetry, c.AckTimeout = code, 3, 31 })
			w.post(0, send(300), send(1)) // the first has two packets
			w.pass(3*RNRTime(code) - 1)
			w.ends(0)
			w.pass(1)
			w.ends(0, RNRRetry, Flushed)
			if n := w.seen["1 RC_ACK"]; n != 4 {
				t.Errorf("%d responses, want 4", n)
			}
			w.idle()
		})
	}
	if RNRTime(0) != 655360*time.Microsecond || RNRTime(1) != 10*time.Microsecond ||
		RNRTime(12) != 640*time.Microsecond || RNRTime(31) != 491520*time.Microsecond {
		t.Error("the table differs from the standard's")
	}
}

// TestRNRForEver checks that 7 means unlimited retries, until a receive request
// is posted.
func TestRNRForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, nil)
		w.hosts[1].memory[1] = make([]byte, 600)
		w.post(0, &Request{Op: WriteImm, Length: 600, WQE: noise(1, 600), RKey: 1}, send(10))
		w.pass(time.Second)
		w.ends(0)
		if n := w.seen["1 RC_ACK"]; n != 1+int(time.Second/RNRTime(12)) {
			t.Errorf("%d responses in a second", n)
		}
		w.receive(1, 0, 10)
		w.pass(time.Second)
		w.ends(0, OK, OK)
		w.idle()
	})
}

// TestRNROfALostPacket checks that losses while the receiver is not ready end
// nothing.
func TestRNROfALostPacket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, func(_ int, c *Config) { c.RetryCount = 2 })
		n := 0
		w.fate = func(from int, p *roce.Packet) []time.Duration {
			if n++; n%3 == 0 {
				return nil
			}
			return []time.Duration{0}
		}
		w.post(0, send(10))
		w.pass(time.Second)
		w.ends(0)
		w.receive(1, 10)
		w.pass(time.Second)
		w.ends(0, OK)
	})
}
