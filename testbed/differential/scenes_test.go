//go:build vm

package differential

import (
	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/uverbs"
)

// A scene is a part of the script. It destroys its objects; the memory remains.
type scene struct {
	name     string
	play     func(*script)
	ethernet bool   // for that link layer only
	needs    string // a feature of the kernel, if not ""
}

// runsOn reports whether a scene can be played with a kernel and a link layer.
func (x scene) runsOn(kernel string, layer connectx.LinkLayer) bool {
	if x.needs != "" {
		if has, _, _ := features.Lookup(kernel, "mlx5", x.needs); !has {
			return false
		}
	}
	return !x.ethernet || layer == connectx.Ethernet
}

var scenes = []scene{
	{name: "RC by list", play: func(s *script) { s.connected(rc, byList, 0) }},
	{name: "RC by builder", play: func(s *script) { s.connected(rc, byBuilder, 0) }},
	{name: "UC by list", play: func(s *script) { s.connected(uc, byList, 0) }},
	{name: "UC by builder", play: func(s *script) { s.connected(uc, byBuilder, 0) }},
	{name: "UD by list", play: func(s *script) { s.datagrams(byList) }},
	{name: "UD by builder", play: func(s *script) { s.datagrams(byBuilder) }},
	{name: "windows by list", play: func(s *script) { s.windows(byList) }},
	{name: "windows by builder", play: func(s *script) { s.windows(byBuilder) }},
	{name: "SRQ", play: (*script).srq},
	{name: "SRQ order of 1 QP", play: func(s *script) { s.srqOrder(1) }},
	{name: "SRQ order of 3 QPs", play: func(s *script) { s.srqOrder(3) }},
	{name: "SRQ order of 8 QPs", play: func(s *script) { s.srqOrder(8) }},
	{name: "responses", play: (*script).responses},
	{name: "CQ", play: (*script).cqs},
	{name: "sizes", play: (*script).sizes},
	{name: "many", play: (*script).many},
	{name: "reset", play: (*script).reset},
	{name: "errors", play: (*script).errors},
	{name: "XRC by list", play: func(s *script) { s.extended(byList) }},
	{name: "XRC by builder", play: func(s *script) { s.extended(byBuilder) }},
	// C posts on DCIs with the builder only: by list, Go writes the same
	{name: "DC by list", play: func(s *script) { s.dynamic(byList, 0) }},
	{name: "DC by builder", play: func(s *script) { s.dynamic(byBuilder, 0) }},
	{name: "DC with streams", play: func(s *script) { s.dynamic(byBuilder, 1) }},
	{name: "no short data in completions", play: func(s *script) { s.connected(rc, byList, noScatter) }},
	{name: "all short data in completions", play: func(s *script) { s.connected(rc, byList, allScatter) }},
	{name: "device memory by list", play: func(s *script) { s.deviceMemory(byList) }},
	{name: "device memory by builder", play: func(s *script) { s.deviceMemory(byBuilder) }},
	{name: "out of order by list", play: func(s *script) { s.connected(rc, byList, outOfOrder) },
		needs: features.OutOfOrder},
	{name: "out of order by builder", play: func(s *script) { s.connected(rc, byBuilder, outOfOrder) },
		needs: features.OutOfOrder},
	// C has no thread domains if the registers do not support bursts
	{name: "thread domain", play: (*script).threadDomain, ethernet: true},
	{name: "raw packets by list", play: func(s *script) { s.frames(byList) }, ethernet: true},
	{name: "raw packets by builder", play: func(s *script) { s.frames(byBuilder) }, ethernet: true},
	{name: "TSO by list", play: func(s *script) { s.streams(byList) }, ethernet: true},
	{name: "TSO by builder", play: func(s *script) { s.streams(byBuilder) }, ethernet: true},
}

func flagsOf(way int) int { return way * forBuilders }

// connected posts every opcode, every form of payload and every flag one by
// one, and then several at once, around the end of the ring.
func (s *script) connected(kind, way, flags int) {
	s.pair(kind, 0, 1, flagsOf(way)|flags)
	ops := []uverbs.Opcode{uverbs.OpSend, uverbs.OpSendImm, uverbs.OpWrite, uverbs.OpWriteImm}
	for i, op := range ops {
		for _, p := range append(gathers, inlines...) {
			s.exchange(0, 1, way, op, signaled, p)
		}
		s.exchange(0, 1, way, op, signaled|solicited, gathers[1+i])
		s.exchange(0, 1, way, op, signaled|fenced, inlines[i])
	}
	if kind == rc {
		for _, p := range gathers {
			s.exchange(0, 1, way, uverbs.OpRead, signaled, p)
		}
		for _, op := range []uverbs.Opcode{uverbs.OpCompareSwap, uverbs.OpFetchAdd} {
			for _, flags := range []int{signaled, signaled | fenced} {
				s.post(0, way, s.atomic(op, flags, 77, 99))
				s.poll(0, 1)
			}
		}
	}
	for i := range 6 {
		s.post(0, way, s.data(uverbs.OpWrite, 0, gathers[1+i%4]), s.data(uverbs.OpWrite, 0, inlines[i%5]),
			s.data(uverbs.OpWrite, signaled, gathers[i%5]))
		s.poll(0, 1)
	}
	s.add("sum")
	s.destroy(0, 1)
}

func (s *script) datagrams(way int) {
	s.add("ah 0")
	for q := range 2 {
		s.add("cq %d 30", q)
		s.add("qp %d %d %d -1 6 5 4 3 124 %d", q, ud, q, flagsOf(way))
		s.add("ready %d", q)
	}
	for _, op := range []uverbs.Opcode{uverbs.OpSend, uverbs.OpSendImm} {
		for _, p := range append(gathers[:4:4], inlines...) {
			for _, flags := range []int{signaled, signaled | solicited} {
				s.recv(1, 3)
				s.post(0, way, s.datagram(op, flags, 1, p))
				s.poll(0, 1)
				s.poll(1, 1)
			}
		}
	}
	for range 4 {
		s.recv(1, 2)
		s.recv(1, 1)
		s.post(0, way, s.datagram(uverbs.OpSend, 0, 1, inlines[4]), s.datagram(uverbs.OpSendImm, signaled, 1, gathers[3]))
		s.poll(0, 1)
		s.poll(1, 2)
	}
	s.add("sum")
	s.destroy(0, 1)
	s.add("unah 0")
}

// windows binds, uses and invalidates memory windows.
func (s *script) windows(way int) {
	const writable = uverbs.RemoteWrite | uverbs.RemoteRead
	s.pair(rc, 0, 1, flagsOf(way))
	s.add("mw 0 2")
	for range 3 {
		s.post(1, way, s.bind(0, writable))
		s.poll(1, 1)
		s.post(0, way, s.through(0))
		s.poll(0, 1)
		s.post(1, way, s.invalidate(uverbs.OpLocalInv, 0, "0 0 0"), s.data(uverbs.OpWrite, signaled, inlines[0]))
		s.poll(1, 2)
		s.post(1, way, s.bind(0, uverbs.RemoteAtomic|writable), s.data(uverbs.OpWrite, signaled, gathers[1]))
		s.poll(1, 2)
		for _, p := range []payload{gathers[0], gathers[2]} {
			s.recv(1, 3)
			s.post(0, way, s.invalidate(uverbs.OpSendInv, 0, p))
			s.poll(0, 1)
			s.poll(1, 1)
			s.post(1, way, s.bind(0, writable))
			s.poll(1, 1)
		}
		s.post(1, way, s.invalidate(uverbs.OpLocalInv, 0, "0 0 0"))
		s.poll(1, 1)
	}
	if way == byList {
		s.add("mw 1 1")
		for i := range 3 {
			s.add("bind1 1 1 %d %d %d %d", s.next(), remoteArea+i*64, 4096, writable)
			s.poll(1, 1)
		}
		s.add("unmw 1")
	}
	s.add("unmw 0")
	s.destroy(0, 1)
}

// srq uses one SRQ for two queue pairs, many times around its ring.
func (s *script) srq() {
	s.add("srq 0 7 2")
	for q := range 4 {
		s.add("cq %d 60", q)
		srq := -1
		if q >= 2 {
			srq = 0
		}
		s.add("qp %d %d %d %d 8 1 2 1 64 0", q, rc, q, srq)
	}
	s.connect(0, 2)
	s.connect(1, 3)
	s.add("limit 0 1")
	for i := range 12 {
		for n := range 3 {
			s.add("srqrecv 0 %d %s", s.next(), sges(recvArea, 1+(i+n)%2, 2048))
		}
		for n := range 3 {
			from := (i + n) % 2
			s.post(from, byList, s.data(uverbs.OpSend, signaled, gathers[1+i%2]))
			s.poll(from, 1)
			s.poll(from+2, 1)
		}
	}
	s.add("sum")
	s.destroy(0, 1, 2, 3)
	s.add("unsrq 0")
}

// responses signals all requests, so that data of READs and atomics can be in
// completions.
func (s *script) responses() {
	s.pair(rc, 0, 1, signalAll)
	for range 5 {
		for _, p := range []payload{gather(0, 0), gather(1, 1), gather(1, 32), gather(4, 8), gather(3, 11)} {
			s.exchange(0, 1, byList, uverbs.OpRead, 0, p)
			s.exchange(0, 1, byList, uverbs.OpSend, 0, p)
		}
		s.post(0, byList, s.atomic(uverbs.OpCompareSwap, 0, 77, 99), s.atomic(uverbs.OpFetchAdd, 0, 5, 0))
		s.poll(0, 2) // before the next READ, because the memory changes now
		s.exchange(0, 1, byList, uverbs.OpRead, 0, gathers[3])
		s.add("sum")
	}
	s.destroy(0, 1)
}

// cqs arms and resizes CQs, with completions in the queue and around its end.
func (s *script) cqs() {
	s.pair(rc, 0, 1, 0)
	for _, only := range []int{0, 1} {
		for range 2 {
			s.recv(1, 3)
			s.add("arm 1 %d", only)
			s.post(0, byList, s.data(uverbs.OpSend, signaled|solicited, gathers[1]))
			s.add("event 1")
			s.poll(0, 1)
			s.poll(1, 1)
		}
	}
	for _, n := range []int{10, 62, 5, 30} {
		write := func() request { return s.data(uverbs.OpWrite, signaled, inlines[1]) }
		s.post(0, byList, write(), write(), write(), write())
		s.add("sync 0")
		s.add("resize 0 %d", n)
		s.poll(0, 4)
		s.add("arm 0 0")
		s.post(0, byList, s.data(uverbs.OpWrite, signaled, inlines[1]))
		s.add("event 0")
		s.poll(0, 1)
	}
	s.destroy(0, 1)
}

// sizes creates queues with sizes that must be rounded.
func (s *script) sizes() {
	entries := []int{1, 3, 63, 64, 1000, 4095}
	for i, n := range entries {
		s.add("cq %d %d", i, n)
	}
	qps := []string{
		"0 0 -1 1 1 1 1 0 0", "0 0 -1 16 16 1 1 32 0", "0 0 -1 5 100 3 5 200 0", "0 0 -1 100 1 30 32 0 1",
		"0 0 -1 64 64 1 1 812 0",
		"0 0 -1 10 0 1 1 0 0", "0 0 -1 4 4 52 1 828 0", "1 0 -1 7 7 2 2 76 0", "1 0 -1 33 3 1 1 500 2",
		"2 0 -1 1 1 1 1 0 0", "2 0 -1 100 50 5 4 100 2", "2 0 -1 2 1 30 4 700 0",
	}
	for i, c := range qps {
		s.add("qp %d %s", i, c)
	}
	srqs := []string{"1 1", "7 3", "16 4", "100 1", "500 15"}
	for i, c := range srqs {
		s.add("srq %d %s", i, c)
	}
	for i := range qps {
		s.add("unqp %d", i)
	}
	for i := range srqs {
		s.add("unsrq %d", i)
	}
	for i := range entries {
		s.add("uncq %d", i)
	}
}

// many creates more queue pairs than there are exclusive registers.
func (s *script) many() {
	const n = 18
	s.add("cq 0 60")
	for q := range n {
		s.add("qp %d %d 0 -1 4 4 2 2 124 0", q, rc)
	}
	for q := 0; q < n; q += 2 {
		s.connect(q, q+1)
	}
	for _, p := range []payload{inlines[1], inlines[4], gathers[1], gathers[2]} {
		for q := range n {
			s.post(q, byList, s.data(uverbs.OpWrite, signaled, p))
			s.poll(0, 1)
		}
	}
	for q := range n {
		s.add("unqp %d", q)
	}
	s.add("uncq 0")
}

// reset uses queues again after a reset.
func (s *script) reset() {
	s.pair(rc, 0, 1, 0)
	for range 3 {
		for range 3 {
			s.exchange(0, 1, byList, uverbs.OpSend, signaled, inlines[3])
		}
		s.recv(1, 2)
		s.add("reset 0")
		s.add("reset 1")
		s.connect(0, 1)
	}
	s.destroy(0, 1)
}

// errors makes requests fail, and later requests and receives be flushed.
func (s *script) errors() {
	s.pair(rc, 0, 1, 0)
	s.recv(0, 1)
	s.post(0, byList, request("wr 4 2 9001 0x10000 -1 0 0 0 0 0 1 0 64"), s.data(uverbs.OpWrite, 0, inlines[0]),
		s.data(uverbs.OpWrite, signaled, gathers[1]))
	s.poll(0, 4)
	s.add("error 1")
	s.post(1, byList, s.data(uverbs.OpWrite, signaled, gathers[1]))
	s.poll(1, 1)
	s.destroy(0, 1)
}
