package mlx5

import (
	"runtime"

	"github.com/goverbs/goverbs/uverbs"
)

// A batch is written straight into the ring, behind what the device knows of.
// Submit counts it; to drop it, it is enough to forget it. A request of a list
// that encode leaves is a batch of one.
type batch struct {
	cur, head, last uint32
	fence           uint8 // that the next operation must have
	open            bool  // there is a last operation, and it may take more
	data            bool  // it has inline data
	inlined         bool  // the batch has
	o               operation
	word            uint64 // the first of the last operation, without its size
	size            uint32 // of the last operation, in segments
	sges            int
	total           uint64 // bytes of the last operation's SGEs
	owed            error  // what is wrong when nothing more is said of the last operation
	nameless        bool   // it has not named its SRQ
	err             error  // the first thing that was wrong
}

func (s *sendQueue) begin() {
	b := &s.batch
	b.cur, b.head, b.last, b.fence = s.cur, s.head, s.last, s.fence
	b.open, b.inlined = false, false
	b.nameless = false
	b.owed, b.err = nil, nil
}

// segment is the k-th of the operation that begins at block cur. Requests go
// around the end of the ring.
func (s *sendQueue) segment(cur, k uint32) *segment {
	return &s.segments[(cur*perBlock+k)&(s.mask*perBlock+perBlock-1)]
}

// op begins an operation.
func (s *sendQueue) op(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, ex uint32) {
	b := &s.batch
	o := s.ops[op&15]
	if b.err != nil || b.owed != nil || op >= 16 || o&simple == 0 || f > callerFlags || b.fence != 0 || b.head == s.limit {
		s.anyOp(op, f, wrID, raddr, rkey, ex)
		return
	}
	if b.open {
		s.blocks[b.cur&s.mask][0] = be(b.word | uint64(b.size))
		b.cur += (b.size + perBlock - 1) / perBlock
	}
	i := b.cur & s.mask
	w, note := &s.blocks[i], &s.notes[i]
	if o&imm == 0 {
		ex = 0
	}
	b.word = uint64(b.cur&0xffff)<<40 | o.hw()<<32 | s.qpn
	b.size = ctrlSegments
	w[1] = be(uint64(s.ce[f&7])<<32 | uint64(ex))
	if o&remote != 0 {
		w[2] = be(raddr)
		w[3] = be(uint64(rkey) << 32)
		b.size = ctrlSegments + raddrSegments
	}
	b.head++
	note.wrID, note.end, note.meta = wrID, b.head, o.meta()
	b.o, b.open, b.data, b.sges, b.total = o, true, false, 0, 0
}

// anyOp is op for all operations.
func (s *sendQueue) anyOp(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, ex uint32) {
	b := &s.batch
	if b.err != nil {
		return
	}
	o := s.ops[op&15]
	if op >= 16 || o == 0 || f&^callerFlags != 0 && !s.frames.takes(f) {
		b.err = uverbs.ErrOpcode
		return
	}
	if s.finish(); b.err != nil {
		return
	}
	if s.full(b.head) {
		b.err = uverbs.ErrQueueFull
		return
	}
	ce := s.ce[f&7]
	if f&uverbs.Fence == 0 {
		ce |= b.fence
	}
	b.fence = 0
	if o&(imm|key) == 0 {
		ex = 0
	}
	i := b.cur & s.mask
	b.word = uint64(b.cur&0xffff)<<40 | o.hw()<<32 | s.qpn
	s.blocks[i][1] = be(uint64(ce)<<32 | uint64(ex))
	b.size = ctrlSegments
	if s.lead != 0 && o&bare == 0 {
		b.size += srqSegments
		b.nameless = true
	}
	switch {
	case o&remote != 0:
		*s.segment(b.cur, b.size) = segment{be(raddr), be(uint64(rkey) << 32)}
		b.size += raddrSegments
		if o&operands != 0 {
			b.size += atomicSegments
			b.owed = uverbs.ErrAtomicSize
		}
	case s.frames != nil:
		s.frame(f)
	case s.pd != nil:
		b.size += addressSegments
		b.owed = uverbs.ErrNoAH
	case o.meta()&0xff == uint32(uverbs.WCBindMW):
		b.owed = uverbs.ErrNoMW
	}
	b.head++
	note := &s.notes[i]
	note.wrID, note.end, note.meta = wrID, b.head, o.meta()
	b.o, b.open, b.data, b.sges, b.total = o, true, false, 0, 0
	if o.meta()&0xff == uint32(uverbs.WCLocalInv) {
		s.bind(&invalidation)
	}
}

// finish closes the last operation, if there is one.
func (s *sendQueue) finish() {
	b := &s.batch
	if !b.open {
		return
	}
	if b.owed != nil {
		b.err = b.owed
		return
	}
	if b.nameless {
		b.err = uverbs.ErrNoSRQN
		return
	}
	s.blocks[b.cur&s.mask][0] = be(b.word | uint64(b.size))
	b.last = b.cur
	b.cur += (b.size + perBlock - 1) / perBlock
	b.open = false
}

// commit makes the batch part of the queue, or returns what is wrong with it.
func (s *sendQueue) commit() error {
	b := &s.batch
	if b.err == nil {
		s.finish()
	}
	if b.err != nil {
		return b.err
	}
	s.cur, s.head, s.last, s.fence = b.cur, b.head, b.last, b.fence
	return nil
}

// encodeAny writes any request.
func (s *sendQueue) encodeAny(wr *uverbs.SendWR) error {
	s.begin()
	ex := wr.Imm
	if wr.Opcode == uverbs.OpSendInv || wr.Opcode == uverbs.OpLocalInv {
		ex = wr.InvalidateRKey
	}
	s.op(wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, ex)
	b := &s.batch
	if b.err != nil {
		return b.err
	}
	if b.nameless {
		s.name(wr.RemoteSRQN)
	}
	switch {
	case b.o&operands != 0:
		s.atomic(wr.CompareAdd, wr.Swap)
	case wr.Opcode == uverbs.OpBindMW:
		if len(wr.SGL) > 0 || len(wr.Inline) > 0 {
			return uverbs.ErrOpcode
		}
		bind, err := s.bindOf(wr.Bind)
		if err != nil {
			return err
		}
		s.bindWindow(&bind)
	case s.pd != nil:
		s.address(wr.AH, wr.QPN, wr.QKey)
	}
	if len(wr.Inline) > 0 {
		if len(wr.SGL) > 0 && s.frames == nil {
			return uverbs.ErrOpcode
		}
		s.inline(wr.Inline)
	}
	for i := range wr.SGL {
		s.sge(wr.SGL[i])
	}
	return s.commit()
}

// Begin implements uverbs.ProviderQP, as the methods below.
func (q *qp) Begin() { q.sq.begin() }

func (q *qp) Op(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, imm uint32) {
	q.sq.op(op, f, wrID, raddr, rkey, imm)
	runtime.KeepAlive(q)
}

func (q *qp) SGE(sge uverbs.SGE) {
	q.sq.sge(sge)
	runtime.KeepAlive(q)
}

func (q *qp) Inline(data []byte) {
	q.sq.inline(data)
	runtime.KeepAlive(q)
}

// Submit implements uverbs.ProviderQP.
func (q *qp) Submit() error {
	s := &q.sq
	first, requests := s.cur, s.head
	err := s.commit()
	inlined := s.batch.inlined
	s.begin()
	if err != nil {
		return err
	}
	if s.cur != first {
		burst := uint64(0)
		if s.head == requests+1 {
			n := 0
			if inlined {
				n = 1
			}
			burst = s.burstOf(s.cur-first, n)
		}
		s.tell(burst)
	}
	runtime.KeepAlive(q)
	return nil
}

func (q *qp) Abort() { q.sq.begin() }
