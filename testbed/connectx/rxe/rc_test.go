//go:build vm

package rxe_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/testbed/connectx/rxe"
	"github.com/goverbs/goverbs/uverbs"
)

const (
	ipv4 = "10.8.0.1"
	ipv6 = "fe80::ff:fe00:1"
)

// ops are the operations of our requester.
var ops = []transport.Op{transport.Send, transport.SendImm, transport.Write, transport.WriteImm, transport.Read,
	transport.FetchAdd, transport.CompareSwap}

// TestJudge transfers data between our endpoint and the kernel's rxe.
func TestJudge(t *testing.T) {
	j := newJudge(t, "6.12")
	for _, c := range []struct {
		ip                  string
		mtu, loss, disorder int
	}{{ipv4, 256, 0, 0}, {ipv4, 1024, 0, 0}, {ipv4, 4096, 0, 0}, {ipv6, 1024, 0, 0}, {ipv4, 256, 20, 0},
		{ipv4, 4096, 20, 0}, {ipv4, 1024, 10, 10}} {
		j.loss, j.disorder = c.loss, c.disorder
		name := fmt.Sprintf("RC/%s/mtu %d/loss %d/mess %d", c.ip, c.mtu, c.loss, c.disorder)
		t.Run(name+"/ours", func(t *testing.T) { j.ours(t, c.ip, c.mtu) })
		t.Run(name+"/theirs", func(t *testing.T) { j.theirs(t, c.ip, c.mtu) })
	}
	j.t, j.loss, j.disorder = t, 0, 0
	if j.lost == 0 {
		t.Error("nothing was lost")
	}
	t.Run("UC", j.unreliable)
	t.Run("UD", j.datagrams)
	t.Run("RNR", j.notReady)
	t.Run("errors", j.errors)
	j.t = t
	if len(j.refused) > 0 {
		t.Errorf("%d frames of the peer were refused:\n%s", len(j.refused),
			strings.Join(j.refused[:min(5, len(j.refused))], "\n"))
	}
}

// sizes returns the lengths of messages. On a lossy cable there are fewer,
// because rxe is slow to detect losses.
func (j *judge) sizes() []int {
	s := []int{0, 1, 3, 255, 1023, 1024, 1025, 4096, 40000, 1 << 20}
	if j.loss > 0 {
		s = s[:len(s)-1]
	}
	return s
}

// ours tests our requester with rxe as the responder.
func (j *judge) ours(t *testing.T, ip string, mtu int) {
	s := j.open(t, transport.RC, ip, mtu, nil)
	s.call("Fill", rxe.Range{Len: memory, Seed: 9}, nil)
	theirs := make([]byte, memory)
	rxe.Noise(9, theirs)
	type piece struct {
		off, n int
		sum    uint32
	}
	var requests []*transport.Request
	var receives []rxe.Work
	var sums []piece
	at := 64
	for i, n := range j.sizes() {
		for _, op := range ops {
			if op == transport.Read && n == 0 && j.loss > 0 {
				continue // rxe never responds to a repeated one: it compares the key with the 0 that it has kept
			}
			data := noise(uint64(i), n)
			r := &transport.Request{Op: op, Length: uint32(n), Imm: uint32(at), WQE: data, RKey: s.theirs.RKey,
				RemoteAddr: s.theirs.Addr + uint64(at)}
			switch op {
			case transport.Send, transport.SendImm:
				receives = append(receives, rxe.Work{Receive: true, Off: at, Len: n})
			case transport.WriteImm:
				receives = append(receives, rxe.Work{Receive: true})
			case transport.Read:
				r.WQE, r.RemoteAddr = make([]byte, n), s.theirs.Addr+uint64(memory-n)
			case transport.FetchAdd, transport.CompareSwap:
				r.Length, r.WQE, r.RemoteAddr = 8, make([]byte, 8), s.theirs.Addr
				r.Operand = [4]uint64{3, 0}
			}
			requests = append(requests, r)
			if op <= transport.WriteImm {
				sums = append(sums, piece{at, n, crc32.ChecksumIEEE(data)})
				at += (n + 7) &^ 7
			}
		}
	}
	s.call("Post", receives, nil)
	s.post(requests...)
	s.wait("our requests", func() bool { return len(s.h.done) == len(requests) })
	sum := binary.LittleEndian.Uint64(theirs)
	for i, o := range s.h.done {
		r := o.r
		switch {
		case r != requests[i] || o.s != transport.OK:
			s.show()
			t.Fatalf("request %d, operation %d of %d bytes: %#x", i, r.Op, r.Length, o.s)
		case r.Op == transport.Read && !bytes.Equal(buffer(r.WQE), theirs[memory-r.Length:]):
			t.Errorf("READ of %d bytes differs", r.Length)
		case r.Op == transport.FetchAdd:
			if got := binary.BigEndian.Uint64(buffer(r.WQE)); got != sum {
				t.Errorf("fetch and add got %#x, want %#x", got, sum)
			}
			sum += 3
		}
	}
	for i, wc := range s.completions(len(receives)) {
		if wc.Status != 0 {
			t.Errorf("their receive %d: %v", i, wc.Status)
		}
	}
	for _, p := range sums {
		var got uint32
		if s.call("Sum", rxe.Range{Off: p.off, Len: p.n}, &got); got != p.sum {
			t.Errorf("%d bytes at %d differ", p.n, p.off)
		}
	}
}

// theirs tests rxe as the requester with our responder.
func (j *judge) theirs(t *testing.T, ip string, mtu int) {
	const data, result = 64, 0 // offsets in both memories
	s := j.open(t, transport.RC, ip, mtu, nil)
	s.call("Fill", rxe.Range{Len: memory, Seed: 5}, nil)
	theirs := make([]byte, memory)
	rxe.Noise(5, theirs)
	var works []rxe.Work
	var want []arrival
	most, read := 0, 0
	s.loop.Run(func() {
		ours := s.h.memory[ourKey]
		rxe.Noise(6, ours[memory/2:])
		s.h.memory[77] = []byte{1}
		for _, n := range j.sizes() {
			most = n
			expect := func(m transport.Message) {
				m.Length = uint32(n)
				a := arrival{m: m, rc: &transport.Receive{WQE: make([]byte, n)}}
				s.h.recvs, want = append(s.h.recvs, a.rc), append(want, a)
			}
			// rxe confuses requests of several packets if responses are
			// reordered: a SEND that it retransmits, and a READ with an older
			// ACK between its responses, which it takes for the end of the
			// READ.
			if n <= mtu || j.disorder == 0 {
				expect(transport.Message{Op: transport.Send})
				expect(transport.Message{Op: transport.SendImm, Imm: uint32(n), Solicited: true})
				works = append(works, rxe.Work{Op: uverbs.OpSend, Off: data, Len: n},
					rxe.Work{Op: uverbs.OpSendImm, Off: data, Len: n, Imm: uint32(n), Flags: uverbs.Solicited},
					rxe.Work{Op: uverbs.OpRead, Off: memory - n, Len: n, RKey: ourKey, Addr: uint64(memory - n)})
				read = n
			}
			expect(transport.Message{Op: transport.WriteImm, Imm: 8})
			works = append(works,
				rxe.Work{Op: uverbs.OpWrite, Off: data, Len: n, RKey: ourKey, Addr: data},
				rxe.Work{Op: uverbs.OpWriteImm, Off: data, Len: n, RKey: ourKey, Addr: data, Imm: 8},
				rxe.Work{Op: uverbs.OpFetchAdd, Off: result, Len: 8, RKey: ourKey, Add: 5},
				rxe.Work{Op: uverbs.OpCompareSwap, Off: result, Len: 8, RKey: ourKey, Add: 1}, // never present
			)
		}
		s.h.recvs = append(s.h.recvs, &transport.Receive{WQE: []byte{}})
	})
	works = append(works, rxe.Work{Op: uverbs.OpSendInv, Imm: 77})
	for _, batch := range j.batches(works) {
		s.call("Post", batch, nil)
		for i, wc := range s.completions(len(batch)) {
			if wc.Status != 0 {
				s.show()
				t.Fatalf("their request %+v: %v", batch[i], wc.Status)
			}
		}
	}
	s.wait("their messages", func() bool { return len(s.h.arrived) == len(want)+1 })
	for i, w := range want {
		got := s.h.arrived[i]
		got.m.Packet = nil
		if got.m != w.m || w.m.Op != transport.WriteImm &&
			!bytes.Equal(buffer(got.rc.WQE), theirs[data:][:w.m.Length]) {
			t.Errorf("message %d: %+v, want %+v", i, got.m, w.m)
		}
	}
	ours := s.h.memory[ourKey]
	if !bytes.Equal(ours[data:][:most], theirs[data:][:most]) {
		t.Error("what they have written differs")
	}
	var got uint32
	if s.call("Sum", rxe.Range{Off: memory - read, Len: read}, &got); got != crc32.ChecksumIEEE(ours[memory-read:]) {
		t.Error("what they have read differs")
	}
	if got, want := binary.LittleEndian.Uint64(ours), uint64(5*len(j.sizes())); got != want {
		t.Errorf("their fetch and adds: %d, want %d", got, want)
	}
	if s.h.memory[77] != nil {
		t.Error("the key was not invalidated")
	}
}

// batches groups the requests that rxe may have outstanding at the same time.
// If responses can get lost, a READ or an atomic is alone: rxe takes a NAK
// behind it for its response and does not write its memory. (A fence does not
// help: rxe waits for ever if it has to retransmit a fenced request.)
func (j *judge) batches(works []rxe.Work) [][]rxe.Work {
	if j.loss+j.disorder == 0 {
		return [][]rxe.Work{works}
	}
	var all [][]rxe.Work
	alone := true
	for _, w := range works {
		before := alone
		alone = w.Op == uverbs.OpRead || w.Op == uverbs.OpFetchAdd || w.Op == uverbs.OpCompareSwap
		if alone || before {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], w)
	}
	return all
}

// unreliable tests UC in both directions.
func (j *judge) unreliable(t *testing.T) {
	s := j.open(t, transport.UC, ipv4, 1024, nil)
	const n = 5000
	data := noise(1, n)
	s.call("Post", []rxe.Work{{Receive: true, Off: 0, Len: n}, {Receive: true, Off: n, Len: n}}, nil)
	s.loop.Run(func() { s.h.recvs = []*transport.Receive{{WQE: make([]byte, n)}, {WQE: make([]byte, n)}} })
	s.post(&transport.Request{Op: transport.Send, Length: n, WQE: data},
		&transport.Request{Op: transport.WriteImm, Length: n, Imm: 9, WQE: data, RKey: s.theirs.RKey,
			RemoteAddr: s.theirs.Addr + 2*n})
	s.wait("our requests", func() bool { return len(s.h.done) == 2 })
	if wcs := s.completions(2); wcs[0].Status != 0 || wcs[0].ByteLen != n || wcs[1].Status != 0 || wcs[1].Imm != 9 {
		t.Errorf("they got %+v", wcs)
	}
	var theirs []byte
	s.call("Read", rxe.Range{Len: 3 * n}, &theirs)
	if !bytes.Equal(theirs[:n], data) || !bytes.Equal(theirs[2*n:], data) {
		t.Error("what they got differs")
	}
	s.call("Post", []rxe.Work{{Op: uverbs.OpSend, Len: n},
		{Op: uverbs.OpWriteImm, Len: n, Imm: 7, RKey: ourKey, Addr: 3}}, nil)
	s.wait("their messages", func() bool { return len(s.h.arrived) == 2 })
	if a := s.h.arrived; a[0].m.Length != n || a[1].m.Imm != 7 || a[1].m.Length != n ||
		!bytes.Equal(buffer(a[0].rc.WQE), data) || !bytes.Equal(s.h.memory[ourKey][3:][:n], data) {
		t.Errorf("we got %+v and %+v, or other bytes", a[0].m, a[1].m)
	}
}

// datagrams tests UD in both directions over both versions of IP.
func (j *judge) datagrams(t *testing.T) {
	for _, ip := range []string{ipv4, ipv6} {
		s := j.open(t, transport.UD, ip, 4096, nil)
		data := noise(2, 1001)
		s.call("Post", []rxe.Work{{Receive: true, Len: 2000}}, nil)
		s.loop.Run(func() { s.h.recvs = []*transport.Receive{{WQE: make([]byte, 2000)}} })
		s.post(&transport.Request{Op: transport.SendImm, Imm: 5, Length: 1001, WQE: data,
			Dest: &transport.Dest{QPN: s.theirs.QPN, QKey: 0x11111111}})
		wc := s.completions(1)[0]
		if wc.Status != 0 || wc.ByteLen != 1041 || wc.Imm != 5 || wc.SrcQP != ourQPN {
			t.Errorf("they got %+v", wc)
		}
		var got []byte
		if s.call("Read", rxe.Range{Len: 1041}, &got); !bytes.Equal(got[40:], data) {
			t.Error("what they got differs")
		}
		s.call("Post", []rxe.Work{{Op: uverbs.OpSend, Off: 0, Len: 1041, QPN: ourQPN, QKey: 0x11111111}}, nil)
		s.wait("their datagram", func() bool { return len(s.h.arrived) == 1 })
		a := s.h.arrived[0]
		if a.m.Length != 1081 || a.m.Packet.DETH.SrcQPN != s.theirs.QPN || !bytes.Equal(buffer(a.rc.WQE)[40:1081], got) {
			t.Errorf("we got %+v", a.m)
		}
		route := &a.m.Packet.Route
		if route.SGID != s.theirs.GID || route.IPv4() != (ip == ipv4) {
			t.Errorf("it came on %+v", route)
		}
	}
}

// notReady tests receives that are posted after the message was sent, in both
// directions.
func (j *judge) notReady(t *testing.T) {
	s := j.open(t, transport.RC, ipv4, 1024, func(c *transport.Config, o *rxe.Options) {
		c.MinRNRTimer, o.RNRTimer = 14, 14
	})
	s.post(&transport.Request{Op: transport.Send, Length: 3, WQE: []byte("abc")})
	s.wait("their RNR NAK", func() bool { return s.rnrs[0] > 0 })
	s.call("Post", []rxe.Work{{Receive: true, Len: 3}}, nil)
	s.wait("our request", func() bool { return len(s.h.done) == 1 })
	if s.h.done[0].s != transport.OK || s.completions(1)[0].Status != 0 {
		t.Error("it has failed")
	}
	s.call("Post", []rxe.Work{{Op: uverbs.OpSend, Len: 3}}, nil)
	s.wait("our RNR NAK", func() bool { return s.rnrs[1] > 0 })
	s.receive(&transport.Receive{WQE: make([]byte, 3)})
	s.wait("their message", func() bool { return len(s.h.arrived) == 1 })
	if wc := s.completions(1)[0]; wc.Status != 0 {
		t.Errorf("their request: %v", wc.Status)
	}
}

// errors checks that each end reports what the other one refuses.
func (j *judge) errors(t *testing.T) {
	for name, c := range map[string]struct {
		r     transport.Request
		want  transport.Syndrome
		w     rxe.Work
		their uverbs.WCStatus
	}{
		"bad key": {
			transport.Request{Op: transport.Write, Length: 4, WQE: []byte("abcd"), RKey: 1 << 31},
			transport.RemoteAccess, rxe.Work{Op: uverbs.OpWrite, Len: 4, RKey: 0x4321}, uverbs.WCRemAccessErr},
		"bad READ": {
			transport.Request{Op: transport.Read, Length: 4, WQE: make([]byte, 4), RKey: 1 << 31},
			transport.RemoteAccess, rxe.Work{Op: uverbs.OpRead, Len: 4, RKey: 0x4321}, uverbs.WCRemAccessErr},
		"uneven atomic": {
			transport.Request{Op: transport.FetchAdd, Length: 8, WQE: make([]byte, 8), RKey: 0, RemoteAddr: 4},
			transport.RemoteInvalidRequest, rxe.Work{Op: uverbs.OpFetchAdd, Len: 8, RKey: ourKey, Addr: 4},
			uverbs.WCRemInvReqErr},
		// IBA requires an invalid request NAK; rxe sends another one if a
		// buffer is too small.
		"too long": {
			transport.Request{Op: transport.Send, Length: 4, WQE: []byte("abcd")},
			transport.RemoteOp, rxe.Work{Op: uverbs.OpSend, Len: 4}, uverbs.WCRemInvReqErr},
	} {
		t.Run(name, func(t *testing.T) {
			s := j.open(t, transport.RC, ipv4, 1024, nil)
			if c.r.RKey == 0 {
				c.r.RKey, c.r.RemoteAddr = s.theirs.RKey, c.r.RemoteAddr+s.theirs.Addr
			}
			s.call("Post", []rxe.Work{{Receive: true, Len: 3}}, nil)
			s.post(&c.r)
			s.wait("our request", func() bool { return len(s.h.done) == 1 })
			if got := s.h.done[0].s; got != c.want {
				t.Errorf("our request: %#x, want %#x", got, c.want)
			}
			s = j.open(t, transport.RC, ipv4, 1024, nil)
			s.receive(&transport.Receive{WQE: make([]byte, 3)})
			s.call("Post", []rxe.Work{c.w}, nil)
			if wc := s.completions(1)[0]; wc.Status != c.their {
				t.Errorf("their request: %v, want %v", wc.Status, c.their)
			}
		})
	}
	t.Run("no peer", func(t *testing.T) {
		s := j.open(t, transport.RC, ipv4, 1024, func(c *transport.Config, o *rxe.Options) {
			c.RetryCount, c.AckTimeout = 2, 13
		})
		s.call("Close", rxe.None{}, nil)
		begin := time.Now()
		s.post(&transport.Request{Op: transport.Send})
		s.wait("the last retry", func() bool { return len(s.h.done) == 1 })
		if d, want := time.Since(begin), 3*transport.AckTime(13); s.h.done[0].s != transport.TransportRetry || d < want {
			t.Errorf("%#x after %v, want %#x after %v", s.h.done[0].s, d, transport.TransportRetry, want)
		}
	})
}

// noise returns n bytes derived from a seed.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	rxe.Noise(seed, b)
	return b
}
