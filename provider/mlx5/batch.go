package mlx5

import (
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/uverbs"
)

// A batch is written straight into the ring, behind what the device knows of.
// Submit counts it; to drop it, it is enough to forget it. A request of a list
// that encode leaves is a batch of one.
type batch struct {
	cur, head, last uint32 // cur: of an operation that is open, its first block
	// at, if not 0, says that the last operation was begun the short way: its data
	// goes to that byte of the ring, or is there when at is negative. It is closed
	// then: nothing below tells of it, cur lies behind it, and settle opens it.
	at       int32
	fence    uint8 // that the next operation must have
	open     bool  // there is a last operation, and it may take more
	data     bool  // it has inline data
	inlined  bool  // the batch has
	o        operation
	word     uint64 // the first of the last operation, without its size
	size     uint32 // of the last operation, in segments
	sges     int
	total    uint64 // bytes of the last operation's SGEs
	owed     error  // what is wrong when nothing more is said of the last operation
	nameless bool   // it has not named its SRQ
	err      error  // the first thing that was wrong
}

func (s *sendQueue) begin() {
	b := &s.batch
	b.cur, b.head, b.last, b.fence = s.cur, s.head, s.last, s.fence
	if b.fence != 0 {
		s.limit = s.head // whatever was refused meanwhile, the next one may not go the short way
	}
	b.at, b.open, b.inlined = 0, false, false
	b.nameless = false
	b.owed, b.err = nil, nil
}

// segment is the k-th of the operation that begins at block cur. Requests go
// around the end of the ring.
func (s *sendQueue) segment(cur, k uint32) *segment {
	return &s.segments[(cur*perBlock+k)&(s.mask*perBlock+perBlock-1)]
}

// settle turns an operation that was begun the short way into one that the rest
// of the methods know, if there is one, and returns the batch.
func (s *sendQueue) settle() *batch {
	b := &s.batch
	at := b.at
	if at == 0 {
		return b
	}
	taken := at < 0
	if taken {
		at = -at
	}
	b.at = 0
	w := be(s.blocks[uint32(at)/blockSize][0])
	b.word, b.size = w&^0x3f, uint32(w&0x3f)
	b.cur -= (b.size + perBlock - 1) / perBlock
	for _, o := range s.ops {
		if o&simple != 0 && o.hw() == w>>32&0xff {
			b.o = o
		}
	}
	b.open, b.data, b.sges, b.total = true, false, 0, 0
	if taken {
		n := uint32(be(s.firstData(-at)) >> 32)
		if b.data = n&inlineMark != 0; b.data {
			b.inlined = true
		} else {
			b.sges, b.total = 1, uint64(n)
		}
	}
	s.limit = b.head // the next operation must close it
	return b
}

// anyOp begins any operation.
func (s *sendQueue) anyOp(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, ex uint32) {
	b := s.settle()
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
	case o.completes() == uverbs.WCBindMW:
		b.owed = uverbs.ErrNoMW
	}
	b.head++
	note := &s.notes[i]
	note.wrID, note.end, note.meta = wrID, b.head, o.meta()
	b.o, b.open, b.data, b.sges, b.total = o, true, false, 0, 0
	s.limit = b.head // the next operation must close this one
	if o.completes() == uverbs.WCLocalInv {
		s.bind(&invalidation)
	}
}

// firstData is the first word of the data of an operation that batch.at is of.
func (s *sendQueue) firstData(at int32) uint64 { return s.segments[-at/segmentSize][0] }

// finish closes the last operation, if there is one.
func (s *sendQueue) finish() {
	b := s.settle()
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
	if b.err == nil && b.at != 0 {
		b.last = uint32(max(b.at, -b.at)) / blockSize // of the ring, which is enough
		b.inlined = b.inlined || b.at < 0 && s.firstData(b.at)&be(inlineMark<<32) != 0
		b.at = 0
	} else if b.err == nil {
		s.finish()
	}
	if b.err != nil {
		return b.err
	}
	s.cur, s.head, s.last, s.fence = b.cur, b.head, b.last, b.fence
	if s.limit = s.head; s.fence == 0 { // else no short way for the next one
		s.limit = atomic.LoadUint32(s.tail) + s.maxPost
	}
	return nil
}

// encodeAny writes any request.
func (s *sendQueue) encodeAny(wr *uverbs.SendWR) error {
	s.begin()
	ex := wr.Imm
	if wr.Opcode == uverbs.OpSendInv || wr.Opcode == uverbs.OpLocalInv {
		ex = wr.InvalidateRKey
	}
	s.anyOp(wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, ex)
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

// Op takes the short way for what encode takes it for. op is one of the
// constants.
//
//go:nosplit
func (q *qp) Op(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, imm uint32) {
	s := &q.sq
	w, head := s.words[op&15], s.batch.head
	if int64(w) < 0 || f >= 8 || head == s.limit {
		q.moreOp(op, f, wrID, raddr, rkey, imm)
		return
	}
	cur := s.batch.cur
	i := cur & s.mask
	head++
	note, meta := s.noteIn(i), s.metas[op&15]
	note.wrID, note.end, note.meta = wrID, head, meta
	s.batch.at = int32(i*blockSize + dataRemote)
	s.batch.cur, s.batch.head = cur+1, head
	b, ctrl := s.blockIn(i), s.flags[f&7]
	b[0] = be(w | uint64(cur&0xffff)<<wordIndex)
	b[1] = ctrl
	b[2] = be(raddr)
	b[3] = be4(rkey)
}

// moreOp is Op for what is not quite so common.
//
//go:noinline
func (q *qp) moreOp(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, imm uint32) {
	s := &q.sq
	w := s.words[op&15]
	if op >= 16 || f > callerFlags || w&wordRare != 0 || !s.clear() {
		s.anyOp(op, f, wrID, raddr, rkey, imm)
		runtime.KeepAlive(q)
		return
	}
	cur, at := s.batch.cur, uint32(dataLocal)
	i := cur & s.mask
	b := s.blockIn(i)
	b[0] = be(w&wordPlain | uint64(cur&0xffff)<<wordIndex)
	b[1] = s.flags[f&7]
	if w&wordImm != 0 {
		b[1] |= be(uint64(imm))
	}
	if w&wordLocal == 0 {
		b[2] = be(raddr)
		b[3] = be4(rkey)
		at = dataRemote
	}
	s.batch.head++
	note := s.noteIn(i)
	note.wrID, note.end, note.meta = wrID, s.batch.head, s.metas[op&15]
	s.batch.at = int32(i*blockSize + at)
	s.batch.cur = cur + 1
	runtime.KeepAlive(q)
}

// clear closes the last operation and reports whether the next one can be made
// the short way, as far as the queue goes.
func (s *sendQueue) clear() bool {
	b := &s.batch
	if b.err != nil {
		return false
	}
	if b.open {
		if s.finish(); b.err != nil {
			return false
		}
	}
	return b.fence == 0 && !s.full(b.head)
}

// SGE takes the short way for the first buffer of an operation.
//
//go:nosplit
func (q *qp) SGE(sge uverbs.SGE) {
	s := &q.sq
	at := s.batch.at
	if at <= 0 || sge.Length-1 >= uverbs.MaxMessage-1 {
		q.moreSGE(sge)
		return
	}
	s.batch.at = -at
	g := s.dataIn(uint32(at))
	g[0] = be2(sge.Length, sge.LKey)
	g[1] = be(sge.Addr)
	s.firstIn(uint32(at))[sizeByte]++
}

//go:noinline
func (q *qp) moreSGE(sge uverbs.SGE) {
	q.sq.sge(sge)
	runtime.KeepAlive(q)
}

// Inline takes the short way for data that does not go around the ring's end.
//
//go:nosplit
func (q *qp) Inline(data []byte) {
	s := &q.sq
	at, n := uint32(s.batch.at), len(data)
	size := uint32(inlineHeader+n+segmentSize-1) / segmentSize
	end := (at + size*segmentSize - 1) / blockSize
	if int32(at) <= 0 || uint(n-1) >= uint(s.maxInline) || end > s.mask || s.firstIn(at)[opcodeByte] == hwRead {
		q.moreInline(data)
		return
	}
	s.batch.at = -int32(at)
	s.batch.cur += end - at/blockSize
	s.firstIn(at)[sizeByte] += uint8(size)
	g := s.dataIn(at)
	g.inlineHead(n)
	if uint(n-16) <= 16 {
		g.inlineTwo(data)
		return
	}
	g.inlineData(data)
}

//go:noinline
func (q *qp) moreInline(data []byte) {
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
