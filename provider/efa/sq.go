package efa

import (
	"runtime"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// A sendQueue is the send half of a QP.
type sendQueue struct {
	requests
	ring  []sendWQE // memory of the device, which is never read
	mem   *provider.Mapping
	db    register
	cur   uint32 // descriptors written so far
	rung  uint32 // those announced
	mask  uint32
	log   uint32 // log2 of the descriptors
	lap   uint32 // 0 or 1: the phase. As in libefa, RESET does not change it
	burst uint32 // descriptors that one doorbell may announce

	typ       uverbs.QPType
	ops       *operations
	words     [driver.Opcodes]uint64 // the first word of a request with one SGE, and simpleRemote; 0: see post
	implied   uverbs.SendFlags       // those that a request need not have
	pd        *driver.PD
	maxSGE    int
	maxInline int
	required  uverbs.SendFlags // the flags that a request must have
	ended     bool             // posts are refused

	// Limits of a READ or WRITE.
	maxRDMA      int // SGEs
	maxRDMABytes uint64

	scratch sendWQE // the request that PostSend encodes
	local   []sendWQE
	batch   batch
}

// reset empties the queue.
func (s *sendQueue) reset(generation uint32) {
	s.requests.reset(generation)
	s.cur, s.rung = 0, 0
	s.batch = batch{}
}

// operation returns what is known of an opcode. The flags are Signaled or, on a QP with SignalAll, none.
func (s *sendQueue) operation(op uverbs.Opcode, f uverbs.SendFlags) (*operation, error) {
	if op >= driver.Opcodes || !s.ops[op].there || f&^uverbs.Signaled != 0 {
		return nil, provider.Refusal(s.typ, op, f)
	}
	if f&s.required != s.required {
		return nil, uverbs.ErrUnsignaled
	}
	return &s.ops[op], nil
}

// start writes the first words of a request that is number ahead after cur.
func (s *sendQueue) start(w *sendWQE, o *operation, ahead, imm uint32) {
	*w = sendWQE{}
	w[0] = o.base | uint64((s.lap+(s.cur&s.mask+ahead)>>s.log)&1)<<phaseAt
	if o.traits&driver.OpImm != 0 {
		w[1] = uint64(imm)
	}
}

// encode writes a request to w, except its number.
func (s *sendQueue) encode(w *sendWQE, wr *uverbs.SendWR) error {
	o, err := s.operation(wr.Opcode, wr.Flags)
	if err != nil {
		return err
	}
	s.start(w, o, 0, wr.Imm)
	if len(wr.Inline) > 0 {
		if len(wr.SGL) > 0 {
			return uverbs.ErrMalformed
		}
		if err := s.setInline(w, o, wr.Inline); err != nil {
			return err
		}
	} else if err := s.setSGL(w, o, wr); err != nil {
		return err
	}
	return s.address(w, provider.AHOf(wr.AH), wr.QPN, wr.QKey)
}

func (s *sendQueue) setInline(w *sendWQE, o *operation, data []byte) error {
	switch {
	case o.traits&driver.OpScatter != 0:
		return uverbs.ErrMalformed
	case o.traits&driver.OpRemote != 0:
		return uverbs.ErrOpNotSupported
	case len(data) > s.maxInline:
		return uverbs.ErrInlineTooLong
	}
	copy(w.inline(), data)
	w[0] |= inlined
	w.setCount(len(data))
	return nil
}

// limits returns the word of an operation's first SGE, how many SGEs it can have, and how many bytes.
func (s *sendQueue) limits(o *operation) (at, most int, bytes uint64) {
	if o.traits&driver.OpRemote != 0 {
		return 6, s.maxRDMA, s.maxRDMABytes
	}
	return 4, s.maxSGE, uverbs.MaxMessage
}

func (s *sendQueue) setSGL(w *sendWQE, o *operation, wr *uverbs.SendWR) error {
	sgl := wr.SGL
	at, most, bytes := s.limits(o)
	if len(sgl) > most {
		return uverbs.ErrTooManySGEs
	}
	var total uint64
	for i := range sgl {
		w.setSGE(at+2*i, &sgl[i])
		total += uint64(sgl[i].Length)
	}
	if total > bytes {
		return uverbs.ErrRange
	}
	if o.traits&driver.OpRemote != 0 {
		w.setRemote(uint32(total), wr.RKey, wr.RemoteAddr)
	}
	w.setCount(len(sgl))
	return nil
}

// address writes the destination. QPNs have 16 bits.
func (s *sendQueue) address(w *sendWQE, ah *driver.AH, qpn, qkey uint32) error {
	av, err := ah.For(s.pd)
	if err != nil {
		return err
	}
	if qpn>>16 != 0 {
		return uverbs.ErrMalformed
	}
	w.setDestination(av[0], qpn, qkey)
	return nil
}

// write copies a request to the device. It rings the doorbell if it announces no more requests.
//
//go:nosplit
func (s *sendQueue) write(w *sendWQE) {
	mmio.Copy64(bytesOf(s.at(s.cur)), bytesOf(w))
	if s.cur++; s.cur&s.mask == 0 {
		s.lap ^= 1
	}
	if s.cur-s.rung == s.burst {
		s.announce()
		mmio.WCStart()
	}
}

// announce announces what has been written.
//
//go:nosplit
func (s *sendQueue) announce() {
	if s.rung != s.cur {
		s.rung = s.cur
		s.publish()
		mmio.FlushWrites()
		mmio.Store32(s.db.at, s.cur&0xffff)
		if s.db.bells != nil {
			s.db.simulate(s.cur & 0xffff)
		}
	}
}

// postAny continues a PostSend that has written n requests and has not announced all of them.
//
//go:noinline
func (q *qp) postAny(wrs []uverbs.SendWR, n int) (_ int, err error) {
	s := &q.sq
	for ; n < len(wrs); n++ {
		if s.full(0) {
			err = uverbs.ErrQueueFull
			break
		}
		if err = s.encode(&s.scratch, &wrs[n]); err != nil {
			break
		}
		s.scratch[0] |= uint64(s.id(0, wrs[n].WRID))
		s.take()
		s.write(&s.scratch)
	}
	s.announce()
	runtime.KeepAlive(q)
	return n, err
}

// simpleRemote is a bit of sendQueue.words: the request is a READ or WRITE.
const simpleRemote = 1 << 63

// simple fills in the words of the requests that PostSend writes itself.
func (s *sendQueue) simple() {
	s.implied = uverbs.Signaled &^ s.required
	for i, o := range s.ops {
		w := o.base | 1<<countAt
		if o.traits&driver.OpRemote != 0 {
			w |= simpleRemote
		}
		if _, most, _ := s.limits(&o); o.there && most > 0 {
			s.words[i] = w
		}
	}
}

// PostSend implements driver.QP. The loop writes requests with one SGE, and SENDs with inline data. It calls no
// function before a request is written, so that its variables stay in registers. It leaves the rest of the list to
// postAny at the first other request.
//
//go:nosplit
func (q *qp) PostSend(wrs []uverbs.SendWR) (int, error) {
	s := &q.sq
	if s.ended {
		return 0, errEnded
	}
	mmio.WCStart()
	for n := range wrs {
		wr, ah := &wrs[n], provider.AHOf(wrs[n].AH)
		if wr.Opcode >= driver.Opcodes || wr.Flags|s.implied != uverbs.Signaled || wr.QPN > 0xffff || ah == nil {
			return q.postAny(wrs, n)
		}
		pd, freed, first, w := ah.PD(), s.polled(), s.words[wr.Opcode%driver.Opcodes], &s.scratch
		if pd != s.pd || s.next == freed || first == 0 {
			return q.postAny(wrs, n)
		}
		if size := len(wr.Inline); size > 0 {
			if size > s.maxInline || len(wr.SGL) > 0 || first&simpleRemote != 0 {
				return q.postAny(wrs, n)
			}
			if w.clearData(); size < partSize {
				copy(w.inline(), wr.Inline)
			} else {
				w.copyParts(wr.Inline)
			}
			first += inlined + uint64(size-1)<<countAt
		} else if len(wr.SGL) != 1 || wr.SGL[0].Length > uverbs.MaxMessage {
			return q.postAny(wrs, n)
		} else if first&simpleRemote == 0 {
			w.setSGE(4, &wr.SGL[0])
			w[6], w[7] = 0, 0
		} else if uint64(wr.SGL[0].Length) > s.maxRDMABytes {
			return q.postAny(wrs, n)
		} else {
			first ^= simpleRemote
			w.setRemote(wr.SGL[0].Length, wr.RKey, wr.RemoteAddr)
			w.setSGE(6, &wr.SGL[0])
		}
		w[1] = ah.AV()[0] << 32
		if first&imm != 0 {
			w[1] |= uint64(wr.Imm)
		}
		w[2] = uint64(wr.QKey)
		number := *s.number(s.next)
		*s.note(number) = note{wr.WRID, true}
		s.next++
		w[0] = first | uint64(uint16(s.base.Load())) | uint64(number) | uint64(wr.QPN)<<qpnAt | uint64(s.lap)<<phaseAt
		mmio.Copy64(bytesOf(s.at(s.cur)), bytesOf(w))
		if s.cur++; s.cur&s.mask == 0 {
			s.lap ^= 1
		}
		if s.cur-s.rung == s.burst {
			s.announce()
			mmio.WCStart()
		}
	}
	s.announce()
	runtime.KeepAlive(q)
	return len(wrs), nil
}
