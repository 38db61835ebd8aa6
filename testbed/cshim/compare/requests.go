package compare

import (
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

func (c *Comparison) sges(n int, most uint32) (all []uverbs.SGE) {
	for range n {
		all = append(all, uverbs.SGE{Addr: c.Rand.Uint64(), Length: c.Rand.Uint32N(most + 1), LKey: c.Rand.Uint32()})
	}
	return all
}

// length returns how long an SGE of a send may be.
func (c *Comparison) length() uint32 {
	if c.rules.Length != nil {
		return c.rules.Length(&c.Size)
	}
	return 1 << 20
}

// request returns a request. Few are such that both sides refuse them.
func (c *Comparison) request() (wr uverbs.SendWR, bad bool) {
	ops := c.rules.Ops[c.Size.Type]
	wr = uverbs.SendWR{Opcode: ops[c.Rand.IntN(len(ops))], WRID: c.id()}
	for _, f := range c.rules.Flags {
		if c.Rand.IntN(3) == 0 {
			wr.Flags |= f
		}
	}
	if c.Size.Type != uverbs.RC {
		wr.QPN, wr.QKey = c.Rand.Uint32N(c.rules.QPNs), c.Rand.Uint32()
	}
	if c.Size.Type != uverbs.UD {
		wr.RemoteAddr, wr.RKey, wr.CompareAdd, wr.Swap = c.Rand.Uint64(), c.Rand.Uint32(), c.Rand.Uint64(), c.Rand.Uint64()
	}
	switch wr.Opcode {
	case uverbs.OpSendImm, uverbs.OpWriteImm:
		wr.Imm = c.Rand.Uint32()
	case uverbs.OpSendInv:
		wr.InvalidateRKey = c.Rand.Uint32()
	case uverbs.OpLocalInv:
		wr.InvalidateRKey = c.Rand.Uint32()
		return wr, false
	case uverbs.OpCompareSwap, uverbs.OpFetchAdd:
		wr.SGL = c.sges(1, 0)
		wr.SGL[0].Length = 8
		return wr, false
	}
	bad = c.data(&wr)
	if wr.Flags |= c.rules.All; c.rules.All != 0 && c.Rand.IntN(c.rules.Bad) == 0 {
		wr.Flags, bad = wr.Flags&^c.rules.All, true
	}
	return wr, bad
}

// id returns the id of a new request.
func (c *Comparison) id() uint64 {
	c.count++
	return c.count<<32 | uint64(c.Rand.Uint32())
}

// rdma reports whether a request is posted in batches only.
func (c *Comparison) rdma(op uverbs.Opcode) bool {
	return c.rules.RDMA && (op == uverbs.OpRead || op == uverbs.OpWrite || op == uverbs.OpWriteImm)
}

// data adds the data of a request.
func (c *Comparison) data(wr *uverbs.SendWR) (bad bool) {
	if c.rdma(wr.Opcode) {
		wr.SGL = c.sges(c.Rand.IntN(2), c.length())
		return false
	}
	switch bad = c.Rand.IntN(c.rules.Bad) == 0; {
	case wr.Opcode != uverbs.OpRead && c.Size.Inline > 0 && c.Rand.IntN(3) == 0:
		n := 1 + c.Rand.IntN(c.Size.Inline)
		if bad {
			n = c.Size.Inline + 1
		}
		wr.Inline = Data[:n]
	case bad:
		wr.SGL = c.sges(c.Size.SGEs+1, 10)
	default:
		wr.SGL = c.sges(c.Rand.IntN(c.Size.SGEs+1), c.length())
	}
	return bad
}

// accepted returns how many requests of a post were not refused.
func accepted(said string) (n int) {
	fmt.Sscanf(said, "posted %d", &n)
	return n
}

// room returns how many requests to post, of those that a queue has room for or, if both sides refuse the same one,
// of more.
func (c *Comparison) room(queue, size int) (n, fit int) {
	n = 1 + c.Rand.IntN(c.rules.List)
	if fit = size - c.held[queue]; n > fit && c.Rand.IntN(4) > 0 {
		c.pollAll()
		fit = size - c.held[queue]
	}
	if !c.rules.Exact {
		n = min(n, fit)
	}
	return n, fit
}

func (c *Comparison) send() {
	n, fit := c.room(sends, c.Size.Sends)
	var list []uverbs.SendWR
	batch, whole := c.Rand.IntN(2) == 0 && n <= fit, false
	for range n {
		wr, bad := c.request()
		list, batch, whole = append(list, wr), batch && !bad, whole || c.rdma(wr.Opcode)
	}
	if n == 0 {
		return
	}
	said := c.step(fmt.Sprintf("send %+v", list), func(s Side) string { return s.Send(list, batch || whole) })
	c.account(sends, accepted(said))
}

func (c *Comparison) account(queue, n int) {
	c.posted[queue], c.held[queue] = c.posted[queue]+n, c.held[queue]+n
}

func (c *Comparison) recv() {
	n, _ := c.room(receives, c.Size.Recvs)
	var list []uverbs.RecvWR
	for range n {
		n := c.Rand.IntN(c.Size.RecvSGEs + 1)
		if !c.rules.Empty {
			n = 1 + c.Rand.IntN(c.Size.RecvSGEs)
		}
		if c.Rand.IntN(c.rules.Bad) == 0 {
			n = c.Size.RecvSGEs + 1
		}
		list = append(list, uverbs.RecvWR{WRID: c.id(), SGL: c.sges(n, 1<<20)})
	}
	if len(list) == 0 {
		return
	}
	said := c.step(fmt.Sprintf("recv %+v", list), func(s Side) string { return s.Recv(list) })
	c.account(receives, accepted(said))
}
