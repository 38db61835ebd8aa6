package mlx5

import (
	"runtime"

	"github.com/goverbs/goverbs/uverbs"
)

// What follows are operations with their data, made the short way where both can
// be, else by two calls. Each is for one opcode, which leaves the compiler less to
// hold than it has registers.

// WriteSGE implements uverbs.ProviderQP, as the methods below.
//
//go:nosplit
func (q *qp) WriteSGE(f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, sge uverbs.SGE) {
	s := &q.sq
	w, head := s.words[uverbs.OpWrite], s.batch.head
	if int64(w) < 0 || f >= 8 || head == s.limit || sge.Length-1 >= uverbs.MaxMessage-1 {
		q.moreWriteSGE(f, wrID, raddr, rkey, sge)
		return
	}
	cur := s.batch.cur
	i := cur & s.mask
	note, b := s.noteIn(i), s.blockIn(i)
	b[0] = be(w + 1 | uint64(cur&0xffff)<<wordIndex)
	b[1] = s.flags[f]
	b[2] = be(raddr)
	b[3] = be4(rkey)
	b[4] = be2(sge.Length, sge.LKey)
	b[5] = be(sge.Addr)
	note.wrID, note.end, note.meta = wrID, head+1, s.metas[uverbs.OpWrite]
	s.batch.cur, s.batch.head = cur+1, head+1
	s.batch.at = -int32(i*blockSize + dataRemote)
}

//go:noinline
func (q *qp) moreWriteSGE(f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, sge uverbs.SGE) {
	q.Op(uverbs.OpWrite, f, wrID, raddr, rkey, 0)
	q.SGE(sge)
	runtime.KeepAlive(q)
}

// SendSGE is WriteSGE for what has no remote address.
//
//go:nosplit
func (q *qp) SendSGE(f uverbs.SendFlags, wrID uint64, sge uverbs.SGE) {
	s := &q.sq
	w, head := s.words[uverbs.OpSend], s.batch.head
	if w&wordRare != 0 || f >= 8 || head == s.limit || sge.Length-1 >= uverbs.MaxMessage-1 {
		q.moreSendSGE(f, wrID, sge)
		return
	}
	cur := s.batch.cur
	i := cur & s.mask
	note, b := s.noteIn(i), s.blockIn(i)
	b[0] = be(w&wordPlain + 1 | uint64(cur&0xffff)<<wordIndex)
	b[1] = s.flags[f]
	b[2] = be2(sge.Length, sge.LKey)
	b[3] = be(sge.Addr)
	note.wrID, note.end, note.meta = wrID, head+1, s.metas[uverbs.OpSend]
	s.batch.cur, s.batch.head = cur+1, head+1
	s.batch.at = -int32(i*blockSize + dataLocal)
}

//go:noinline
func (q *qp) moreSendSGE(f uverbs.SendFlags, wrID uint64, sge uverbs.SGE) {
	q.Op(uverbs.OpSend, f, wrID, 0, 0, 0)
	q.SGE(sge)
	runtime.KeepAlive(q)
}

func (q *qp) ReadSGE(f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, sge uverbs.SGE) {
	q.Op(uverbs.OpRead, f, wrID, raddr, rkey, 0)
	q.SGE(sge)
}

// WriteInline takes the short way for data that does not go around the ring's end.
//
//go:nosplit
func (q *qp) WriteInline(f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, data []byte) {
	s := &q.sq
	w, head := s.words[uverbs.OpWrite], s.batch.head
	if int64(w) < 0 || f >= 8 || head == s.limit || uint(len(data)-1) >= uint(s.maxInline) {
		q.moreWriteInline(f, wrID, raddr, rkey, data)
		return
	}
	cur := s.batch.cur
	i := cur & s.mask
	note, b := s.noteIn(i), s.blockIn(i)
	b[1] = s.flags[f]
	b[2] = be(raddr)
	b[3] = be4(rkey)
	note.wrID, note.end, note.meta = wrID, head+1, s.metas[uverbs.OpWrite]
	s.batch.head = head + 1
	size := uint32(inlineHeader+len(data)+segmentSize-1) / segmentSize
	blocks := (dataRemote/segmentSize + size + perBlock - 1) / perBlock
	w |= uint64(cur&0xffff) << wordIndex
	if i+blocks > s.mask+1 {
		b[0] = be(w)
		s.batch.cur = cur + 1
		s.batch.at = int32(i*blockSize + dataRemote)
		q.moreInline(data)
		return
	}
	b[0] = be(w + uint64(size))
	s.batch.cur = cur + blocks
	s.batch.at = -int32(i*blockSize + dataRemote)
	g := b.segment(2)
	g.inlineHead(len(data))
	if uint(len(data)-16) <= 16 {
		g.inlineTwo(data)
		return
	}
	g.inlineData(data)
}

//go:noinline
func (q *qp) moreWriteInline(f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, data []byte) {
	q.Op(uverbs.OpWrite, f, wrID, raddr, rkey, 0)
	q.Inline(data)
	runtime.KeepAlive(q)
}

// SendInline is WriteInline for what has no remote address.
//
//go:nosplit
func (q *qp) SendInline(f uverbs.SendFlags, wrID uint64, data []byte) {
	s := &q.sq
	w, head := s.words[uverbs.OpSend], s.batch.head
	if w&wordRare != 0 || f >= 8 || head == s.limit {
		q.moreSendInline(f, wrID, data)
		return
	}
	cur := s.batch.cur
	i := cur & s.mask
	note, b := s.noteIn(i), s.blockIn(i)
	b[1] = s.flags[f]
	w = w&wordPlain | uint64(cur&0xffff)<<wordIndex
	note.wrID, note.end, note.meta = wrID, head+1, s.metas[uverbs.OpSend]
	s.batch.head = head + 1
	n := len(data)
	data = data[:n:n]
	size := uint32(inlineHeader+n+segmentSize-1) / segmentSize
	blocks := (dataLocal/segmentSize + size + perBlock - 1) / perBlock
	if uint(n-1) >= uint(s.maxInline) || i+blocks > s.mask+1 {
		b[0] = be(w)
		s.batch.cur = cur + 1
		s.batch.at = int32(i*blockSize + dataLocal)
		q.moreInline(data)
		return
	}
	b[0] = be(w + uint64(size))
	s.batch.cur = cur + blocks
	s.batch.at = -int32(i*blockSize + dataLocal)
	g := b.segment(1)
	g.inlineHead(n)
	if uint(n-16) <= 16 {
		g.inlineTwo(data)
		return
	}
	g.inlineData(data)
}

//go:noinline
func (q *qp) moreSendInline(f uverbs.SendFlags, wrID uint64, data []byte) {
	q.Op(uverbs.OpSend, f, wrID, 0, 0, 0)
	q.Inline(data)
	runtime.KeepAlive(q)
}
