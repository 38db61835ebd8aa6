package fakeirdma

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/internal/sim/fakedev"
)

// A recvRing is a ring of receives.
type recvRing struct {
	ring
	busy int    // receives that the device has read and taken back
	done uint32 // the first receive that has not completed, for Record
}

// A receive is what the program has posted for a message.
type receive struct {
	place uint32
	raw   []byte
	sges  []fakedev.SGE
}

// peek reads the receive at a place, or returns nil if there is none.
func (r *recvRing) peek(place uint32) *receive {
	if r.memory.Process != nil {
		r.announce()
	}
	b, ok := r.there(place)
	if !ok {
		return nil
	}
	header := binary.LittleEndian.Uint64(b[headerAt:])
	n := uint32(header >> wqeFragsAt & wqeFragsMask)
	if 1+(n+1)/2 > r.stride {
		return nil
	}
	return &receive{place: place, raw: b, sges: sgesOf(b, int(n)+1, false)}
}

// announce notes the receives that are valid.
func (r *recvRing) announce() {
	for range r.size {
		b, ok := r.read(r.known, 1)
		if !ok || !r.isValid(r.known, b) {
			break
		}
		r.known++
	}
}

// take reads the next receive, or returns nil if there is none.
func (r *recvRing) take() *receive {
	x := r.peek(r.next)
	if x != nil {
		r.next++
	}
	return x
}

// drain reads all receives. It returns how many there are, with those that the device has taken back.
func (r *recvRing) drain() (n int) {
	n, r.busy = r.busy, 0
	for r.take() != nil {
		n++
	}
	return n
}

// Receive implements transport.Queues, as do the methods below.
func (q *qp) Receive(uint32) (*transport.Receive, transport.Syndrome) {
	if x := q.rq.take(); x != nil {
		return &transport.Receive{WQE: x}, transport.OK
	}
	return nil, transport.OK
}

// Posted returns how many receives there are.
func (q *qp) Posted(uint32) (n int) {
	for n < int(q.rq.size) && q.rq.peek(q.rq.next+uint32(n)) != nil {
		n++
	}
	return n
}

// Deliver stores a part of a message.
func (q *qp) Deliver(rc *transport.Receive, off uint32, p []byte) transport.Syndrome {
	return q.dev.Scatter(q.PD, rc.WQE.(*receive).sges, off, p)
}

// Arrived completes a receive.
func (q *qp) Arrived(rc *transport.Receive, m transport.Message) {
	if m.Syndrome != transport.OK {
		q.recvCode, q.rq.busy = flushCodes[m.Syndrome], q.rq.busy+1
		q.Fail()
		return
	}
	e := q.received(rc.WQE.(*receive).place)
	e[0] = uint64(m.Length)
	if m.Solicited {
		e[3] |= flagSolicit
	}
	if m.Packet != nil {
		e[3] |= uint64(m.Packet.Opcode&0x1f) << opAt
	}
	switch {
	case q.UD && m.Packet != nil:
		e[2] |= uint64(m.Packet.DETH.SrcQPN)
		e[3] |= flagIPv4
	case m.Op == transport.SendInval:
		e[2], e[3] = e[2]|uint64(m.Imm), e[3]|flagKey
	}
	if m.Op == transport.SendImm || m.Op == transport.WriteImm {
		q.recv.complete(e, &entry{uint64(m.Imm), 0, 0, flagImm})
		return
	}
	q.recv.complete(e, nil)
}

// received returns the entry of a receive.
func (q *qp) received(place uint32) *entry {
	return q.entry(uint64(place%q.rq.size*q.rq.stride) << indexAt)
}

// posted reads the receives that have been posted, and returns them as text.
func (q *qp) posted() (lines []string) {
	for x := q.rq.take(); x != nil; x = q.rq.take() {
		lines = append(lines, fmt.Sprintf("RQ %d %s", x.place%q.rq.size, hex.EncodeToString(x.raw)))
	}
	return lines
}
