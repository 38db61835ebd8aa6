package transport

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// paging makes accesses of a host to memory page faults, and resumes after d
// each time. After a fault all accesses succeed until the first one is
// repeated.
func (w *world) paging(i int, d time.Duration, result Syndrome, which func(what string) Syndrome) (faults *int) {
	h, n := w.hosts[i], 0
	h.page = func(what string) Syndrome {
		s := which(what)
		if s != OK {
			n++
			requester := what == "gather" || what == "scatter"
			h.loop.After(d, func() { h.e.Resume(requester, result) })
		}
		return s
	}
	return &n
}

// everySecond returns a page fault for every second access, beginning with the first.
func everySecond() func(string) Syndrome {
	seen := map[string]int{}
	return func(what string) Syndrome {
		if seen[what]++; seen[what]%2 == 1 {
			return PageFault
		}
		return OK
	}
}

// TestPageFaults checks that all operations transfer their data, once, if every
// page of both hosts has a fault first, with delays shorter and longer than the
// peer's timeouts.
func TestPageFaults(t *testing.T) {
	for _, d := range []time.Duration{0, 100 * time.Microsecond, 10 * time.Millisecond} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, RC, nil)
				var faults [2]*int
				for i := range w.hosts {
					faults[i] = w.paging(i, d, OK, everySecond())
				}
				memory := make([]byte, 2000)
				w.hosts[1].memory[1] = memory
				w.receive(1, 1000, 1000)
				send, write, read := request(Send, 900, 0), request(Write, 1000, 1), request(Read, 1000, 1)
				imm, add := request(WriteImm, 300, 1), request(FetchAdd, 8, 1)
				for seed, r := range []*Request{send, write, imm} {
					copy(buffer(r.WQE), noise(uint64(seed), len(buffer(r.WQE))))
				}
				imm.RemoteAddr, add.RemoteAddr, add.Operand[0] = 1000, 1992, 5
				read.Fence = true
				w.post(0, send, write, add, imm, read)
				w.pass(20 * time.Second)
				w.ends(0, OK, OK, OK, OK, OK)
				if a := w.hosts[1].arrived; len(a) != 2 || !bytes.Equal(buffer(a[0].rc.WQE)[:900], buffer(send.WQE)) ||
					a[0].m.Length != 900 {
					t.Errorf("arrived: %+v", a)
				}
				if !bytes.Equal(memory[:1000], buffer(write.WQE)) || !bytes.Equal(memory[1000:1300], buffer(imm.WQE)) {
					t.Error("what was written differs")
				}
				if !bytes.Equal(buffer(read.WQE), memory[:1000]) {
					t.Error("what was read differs")
				}
				if memory[1992] != 5 {
					t.Errorf("the atomic was done %d times in fives", memory[1992])
				}
				if *faults[0] < 8 || *faults[1] < 8 {
					t.Errorf("%d and %d page faults", *faults[0], *faults[1])
				}
			})
		})
	}
}

// TestSlowPages checks that a host that takes longer to provide a page than the
// peer's retries last does not break the connection.
func TestSlowPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, nil)
		faults := w.paging(1, 2*time.Second, OK, everySecond())
		memory := make([]byte, 1000)
		w.hosts[1].memory[1] = memory
		w.receive(1, 1000)
		send, write := request(Send, 900, 0), request(Write, 1000, 1)
		for seed, r := range []*Request{send, write} {
			copy(buffer(r.WQE), noise(uint64(seed), len(buffer(r.WQE))))
		}
		w.post(0, send, write)
		w.pass(20 * time.Second)
		w.ends(0, OK, OK)
		if a := w.hosts[1].arrived; len(a) != 1 || !bytes.Equal(buffer(a[0].rc.WQE)[:900], buffer(send.WQE)) {
			t.Errorf("arrived: %+v", a)
		}
		if !bytes.Equal(memory, buffer(write.WQE)) {
			t.Error("what was written differs")
		}
		if *faults == 0 {
			t.Error("no page fault")
		}
	})
}

// TestPageFaultLost checks that a message whose receive request was completed by
// its owner takes the next one.
func TestPageFaultLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, nil)
		left := 2
		w.paging(1, 10*time.Microsecond, OK, func(string) Syndrome {
			if left--; left >= 0 {
				return PageFaultLost
			}
			return OK
		})
		w.receive(1, 1000, 1000, 1000)
		third := w.hosts[1].recvs[2]
		w.post(0, request(Send, 900, 0))
		w.pass(time.Second)
		w.ends(0, OK)
		if a := w.hosts[1].arrived; len(a) != 1 || a[0].rc != third {
			t.Errorf("arrived: %+v", a)
		}
	})
}

// TestPageFaultFails checks the result of each operation whose memory is not
// available.
func TestPageFaultFails(t *testing.T) {
	for what, c := range map[string]struct {
		host  int
		op    Op
		end   Syndrome
		event string
	}{
		"gather":  {0, Send, LocalProtection, ""},
		"scatter": {0, Read, LocalProtection, ""},
		"deliver": {1, Send, RemoteOp, fmt.Sprint("broken ", NoEvent)},
		"write":   {1, Write, RemoteAccess, fmt.Sprint("broken ", AccessError)},
		"read":    {1, Read, RemoteAccess, fmt.Sprint("broken ", AccessError)},
		"atomic":  {1, FetchAdd, RemoteAccess, fmt.Sprint("broken ", AccessError)},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, RC, nil)
				w.hosts[1].memory[1] = make([]byte, 1000)
				w.paging(c.host, time.Millisecond, LocalProtection, func(is string) Syndrome {
					if is == what {
						return PageFault
					}
					return OK
				})
				n := 600
				if c.op == FetchAdd {
					n = 8
				}
				w.receive(1, 1000)
				w.post(0, request(Write, 10, 1), request(c.op, n, 1))
				w.pass(time.Second)
				if what == "write" || what == "gather" { // the first request fails
					w.ends(0, c.end, Flushed)
				} else {
					w.ends(0, OK, c.end)
				}
				if c.event != "" {
					w.wantEvents(1, c.event)
				}
				if what == "deliver" && (len(w.hosts[1].arrived) == 0 || w.hosts[1].arrived[0].m.Syndrome != LocalProtection) {
					t.Errorf("arrived: %+v", w.hosts[1].arrived)
				}
			})
		})
	}
}

// TestPageFaultDatagram checks that a page fault loses a datagram at the
// receiver and delays it at the sender.
func TestPageFaultDatagram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, UD, nil)
		w.paging(0, time.Millisecond, OK, everySecond())
		lost := true
		w.paging(1, time.Millisecond, OK, func(string) Syndrome {
			if lost {
				lost = false
				return PageFaultLost
			}
			return OK
		})
		w.receive(1, 300, 300, 300)
		for range 2 {
			r := request(Send, 100, 0)
			r.Dest = &Dest{QPN: 0x101, QKey: 0x11111111}
			w.post(0, r)
		}
		w.pass(time.Second)
		w.ends(0, OK, OK)
		if n := len(w.hosts[1].arrived); n != 1 {
			t.Errorf("%d datagrams arrived, want 1", n)
		}
	})
}

// TestResumeInVain checks that Resume does nothing for work that was abandoned.
func TestResumeInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, nil)
		w.paging(0, time.Hour, OK, func(string) Syndrome { return PageFault })
		w.paging(1, time.Hour, OK, func(string) Syndrome { return PageFault })
		w.hosts[1].memory[1] = make([]byte, 1000)
		w.post(0, request(Read, 1000, 1))
		w.pass(time.Millisecond)
		w.loop.Run(func() {
			for _, h := range w.hosts {
				h.e.Resume(true, LocalProtection)
				h.flush(Err)
				h.e.Resume(false, OK)
				h.e.Resume(false, LocalProtection)
			}
		})
		w.pass(2 * time.Hour)
		w.ends(0, Flushed)
	})
}
