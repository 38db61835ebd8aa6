//go:build vm

package differential

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/goverbs/goverbs/uverbs"
)

// extended sends from an initiator to two XRC SRQs.
func (s *script) extended(way int) {
	s.add("xrcd")
	for q := range 2 {
		s.add("cq %d 30", q)
	}
	s.add("xsrq 0 1 7 2")
	s.add("xsrq 1 1 15 3")
	s.add("qp 0 %d 0 -1 6 0 4 0 124 %d", xrcSend, flagsOf(way))
	s.add("target 1")
	s.connect(0, 1)
	to := 0
	xwr := func(r request) request {
		to = 1 - to
		return request(fmt.Sprintf("xwr %d %s", to, r[len("wr "):]))
	}
	for _, op := range []uverbs.Opcode{uverbs.OpSend, uverbs.OpSendImm, uverbs.OpWrite, uverbs.OpWriteImm, uverbs.OpRead} {
		all := gathers
		if op != uverbs.OpRead {
			all = append(all[:len(all):len(all)], inlines...)
		}
		for _, p := range all {
			r := xwr(s.data(op, signaled, p))
			if takesReceive(op) {
				s.add("srqrecv %d %d %s", to, s.next(), sges(recvArea, 2, 2048))
			}
			s.post(0, way, r)
			s.poll(0, 1)
			if takesReceive(op) {
				s.poll(1, 1)
			}
		}
	}
	for range 3 {
		s.post(0, way, xwr(s.atomic(uverbs.OpCompareSwap, signaled, 77, 99)),
			xwr(s.atomic(uverbs.OpFetchAdd, signaled|fenced, 77, 99)),
			xwr(s.data(uverbs.OpWrite, signaled, inlines[2])))
		s.poll(0, 3)
	}
	s.add("sum")
	s.add("unqp 0")
	s.add("unqp 1")
	s.add("unsrq 0")
	s.add("unsrq 1")
	s.add("uncq 0")
	s.add("uncq 1")
	s.add("unxrcd")
}

// srqOrder uses one SRQ for n queue pairs, whose completions are polled in
// another order than they arrive: the order in which the device uses receives
// next shows how the returned slots are linked.
func (s *script) srqOrder(n int) {
	const room = 15
	s.add("srq 0 %d 2", room)
	for q := range n {
		s.add("cq %d 60", q)
		s.add("cq %d 60", q+n)
		s.add("qp %d %d %d -1 8 1 2 1 64 0", q, rc, q)
		s.add("qp %d %d %d 0 8 1 2 1 64 0", q+n, rc, q+n)
		s.connect(q, q+n)
	}
	random := rand.New(rand.NewPCG(uint64(n), 1))
	free, posted := room, 0
	arrived := make([]int, n) // completions that have not been polled
	for range 40 {
		for range random.IntN(free + 1) {
			s.add("srqrecv 0 %d %s", s.next(), sges(recvArea, 1, 2048))
			free, posted = free-1, posted+1
		}
		for range random.IntN(posted + 1) {
			q := random.IntN(n)
			s.post(q, byList, s.data(uverbs.OpSend, signaled, gathers[1]))
			s.poll(q, 1)
			posted--
			arrived[q]++
		}
		for _, q := range random.Perm(n)[:(n+1)/2] {
			if arrived[q] > 0 {
				s.poll(q+n, arrived[q])
				free, arrived[q] = free+arrived[q], 0
			}
		}
	}
	for q := range n {
		s.poll(q+n, arrived[q])
	}
	for q := range 2 * n {
		s.add("unqp %d", q)
	}
	for q := range 2 * n {
		s.add("uncq %d", q)
	}
	s.add("unsrq 0")
}

// threadDomain creates queue pairs with exclusive registers.
func (s *script) threadDomain() {
	s.add("domain")
	s.pair(rc, 0, 1, 0)
	s.pair(rc, 2, 3, 0)
	for _, p := range []payload{inlines[1], inlines[4], gathers[1], gathers[3]} {
		for q := range 4 {
			s.exchange(q, q^1, byList, uverbs.OpSend, signaled, p)
		}
		s.post(0, byList, s.data(uverbs.OpWrite, 0, p), s.data(uverbs.OpWrite, signaled, p))
		s.poll(0, 1)
	}
	s.add("sum")
	s.destroy(0, 1, 2, 3)
	s.add("undomain")
}

// frames sends frames without a receiver: from SGEs whose first bytes must be
// in the request, and inline.
func (s *script) frames(way int) {
	// A Go request has room for both SGEs and inline data, so the two libraries
	// report different sizes.
	for q, sizes := range []string{"6 5 4 3 0", "6 5 1 3 124"} {
		s.add("cq %d 30", q)
		s.add("qp %d %d %d -1 %s %d", q, rawPacket, q, sizes, flagsOf(way)|silent)
		s.add("raw %d", q)
	}
	for range 6 {
		for q, all := range [][]payload{{gather(1, 18), gather(2, 12), gather(3, 33), gather(4, 7), gather(1, 1200)},
			{gather(1, 64), inline(18), inline(19), inline(60), inline(124)}} {
			for _, p := range all {
				s.post(q, way, s.data(uverbs.OpSend, signaled, p))
				s.poll(q, 1)
			}
		}
	}
	s.destroy(0, 1)
}

// streams sends parts of a TCP stream without a receiver, with headers of several lengths. All requests have an even
// number of blocks, so that no headers wrap around the end of the ring: C then writes the SGEs 32 bytes too far.
func (s *script) streams(way int) {
	s.add("cq 0 30")
	s.add("qp 0 %d 0 -1 6 5 8 3 0 %d", rawPacket, flagsOf(way)|silent|tso)
	s.add("raw 0")
	for i := range 12 {
		for options := 0; options <= 40; options += 4 {
			headers := append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0,
				10, 9, 0, 1, 10, 9, 0, 2, 0, 7, 0, 8, 0, 0, 0, 100, 0, 0, 0, 5, byte(20+options) << 2, 0x18, 1, 0, 0, 0, 0, 0},
				make([]byte, options)...)
			s.add("store %d %d %s", remoteArea, len(headers), strings.Trim(fmt.Sprint(headers), "[]"))
			before := 1 + (14+len(headers)+15)/16 // segments
			n := 8 - before
			if n == 0 || i%2 == 0 {
				n = 13 - before + i%4
			}
			request := func(flags int) request {
				return request(fmt.Sprintf("tso %d %d %d %d %d %d %s", uverbs.OpTSO, flags, s.next(), remoteArea, len(headers),
					500+i, sges(sendArea, min(n, 8), 100+i*100)))
			}
			s.post(0, way, request(signaled|i%2*checksums))
			s.poll(0, 1)
			s.post(0, way, request(checksums), request(signaled|solicited))
			s.poll(0, 1)
		}
	}
	s.destroy(0)
}

// dynamic posts every opcode and every form of payload to two DCTs, one by one and several at once, around the end of
// the ring. C's program uses the builder also where Go's uses lists.
func (s *script) dynamic(way, streams int) {
	s.add("ah 0")
	s.add("cq 0 30")
	s.add("dci 0 0 6 4 124 0 %d", streams)
	s.add("dcready 0")
	for q := 1; q <= 2; q++ {
		s.add("cq %d 30", q)
		s.add("srq %d 7 3", q)
		s.add("dct %d %d %d", q, q, q)
	}
	n := 0
	to := func(dct int, r request) request {
		n++
		return request(fmt.Sprintf("dcwr 0 %d %d %s", dct, n*streams%11, strings.TrimPrefix(string(r), "wr ")))
	}
	post := func(all ...request) {
		if way == byList {
			way = byDCList
		}
		s.post(0, way, all...)
	}
	ops := []uverbs.Opcode{uverbs.OpSend, uverbs.OpSendImm, uverbs.OpWrite, uverbs.OpWriteImm, uverbs.OpRead}
	for i, op := range ops {
		payloads := gathers
		if op != uverbs.OpRead {
			payloads = append(gathers[:4:4], inlines...)
		}
		for k, p := range payloads {
			dct := 1 + (i+k)%2
			if takesReceive(op) {
				s.add("srqrecv %d %d %s", dct, s.next(), sges(recvArea, 3, 2048))
			}
			post(to(dct, s.data(op, signaled|k%2*solicited|k%3/2*fenced, p)))
			s.poll(0, 1)
			if takesReceive(op) {
				s.poll(dct, 1)
			}
		}
	}
	for _, op := range []uverbs.Opcode{uverbs.OpCompareSwap, uverbs.OpFetchAdd} {
		for dct := 1; dct <= 2; dct++ {
			post(to(dct, s.atomic(op, signaled, 77, 99)))
			s.poll(0, 1)
		}
	}
	for i := range 8 {
		post(to(1, s.data(uverbs.OpWrite, 0, gathers[1+i%4])), to(2, s.data(uverbs.OpWrite, 0, inlines[i%5])),
			to(2, s.data(uverbs.OpWrite, signaled, gathers[i%5])))
		s.poll(0, 1)
	}
	s.add("sum")
	s.destroy(0, 1, 2)
	s.add("unsrq 1")
	s.add("unsrq 2")
	s.add("unah 0")
}

// deviceMemory copies to and from device memory, reads and writes it with requests as the local and as the remote side,
// and applies the device's operations to it.
func (s *script) deviceMemory(way int) {
	const size = 256
	s.add("dm 0 %d", size)
	s.add("dm 1 64")
	s.pair(rc, 0, 1, flagsOf(way))
	for dm, n := range []int{size, 64} {
		s.add("dmput %d 0 %d %d", dm, sendArea+dm*100, n)
		s.add("dmput %d 4 %d 8", dm, sendArea)
		for local := range 2 {
			for _, op := range []uverbs.Opcode{uverbs.OpWrite, uverbs.OpRead, uverbs.OpFetchAdd} {
				here, there, length := recvArea, 16, n/2
				if local == 1 {
					here, there = 8, atomicArea
				}
				if op == uverbs.OpFetchAdd {
					length = 8
				}
				s.post(0, way, request(fmt.Sprintf("dmwr %d %d %d %d %d %d %d %d", dm, local, op, signaled, s.next(), there, here,
					length)))
				s.poll(0, 1)
			}
		}
		s.add("dmop %d 0", dm)
		s.add("dmop %d 1", dm)
		s.add("dmget %d 0 %d %d", dm, remoteArea, n)
		s.add("sum")
	}
	s.destroy(0, 1)
	s.add("undm 1")
	s.add("undm 0")
}
