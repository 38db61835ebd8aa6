package fakeefa

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/goverbs/goverbs/internal/sim/devfile"
	"github.com/goverbs/goverbs/internal/sim/fakedev"
)

// Sizes of descriptors.
const (
	sendSize = 64
	recvSize = 16
)

// A qp is a queue pair.
type qp struct {
	fakedev.QP
	dev    *Device
	srd    bool
	state  uint8
	send   *cq
	recv   *cq
	sq, rq queue
	// waiting are the messages to this QP that wait for a receive.
	waiting []*request
}

// A queue is a ring of descriptors.
type queue struct {
	ring  devfile.Ring
	bytes []byte
	size  int
	bell  uint64
	sub   int    // the CQ's ring
	next  uint16 // the first descriptor that the device has not read
	known uint16 // the first one that the program has not announced
}

func (w *queue) use(b []byte, size int) { w.bytes, w.size = b, size }

// at returns a descriptor.
func (w *queue) at(i uint16) []byte {
	n := len(w.bytes) / w.size
	return w.bytes[int(i)%n*w.size:][:w.size]
}

// never is the number of retries that stands for any number.
const never = 7

// States of a QP.
const (
	stateReset = 0
	stateRTR   = 2
	stateRTS   = 3
	stateErr   = 6
)

// enter changes the state.
func (q *qp) enter(state uint8) {
	q.state = state
	switch state {
	case stateReset:
		q.sq.next, q.sq.known, q.rq.next, q.rq.known = 0, 0, 0, 0
		q.dropWaiting()
	case stateErr:
		q.flush()
	}
}

// dropWaiting ends the messages that wait for a receive of the QP, and those that the QP has sent.
func (q *qp) dropWaiting() {
	for _, r := range q.waiting {
		r.done(badQPN)
	}
	q.waiting = nil
	for _, d := range q.dev.fabric.devices {
		for _, other := range d.qps {
			other.forget(q)
		}
	}
}

// forget removes the messages of a sender.
func (q *qp) forget(from *qp) {
	kept := q.waiting[:0]
	for _, r := range q.waiting {
		if r.from != from {
			kept = append(kept, r)
		} else if from.state == stateErr {
			r.done(flushed)
		}
	}
	q.waiting = kept
}

// flush completes all requests.
func (q *qp) flush() {
	q.dropWaiting()
	for ; q.sq.next != q.sq.known; q.sq.next++ {
		d := q.sq.at(q.sq.next)
		q.send.complete(q.sq.sub, newEntry(q, binary.LittleEndian.Uint16(d), flushed, ofSend, d[ctrlAt]&opMask))
	}
	for r, there := q.receive(); there; r, there = q.receive() {
		q.recv.complete(q.rq.sub, newEntry(q, r.id, flushed, ofReceive, 0))
	}
}

// sendBell is called with the number of sends that the program has posted so far.
func (q *qp) sendBell(v uint32) {
	cfg := &q.dev.fabric.cfg
	n := uint16(v) - q.sq.known
	q.dev.Record("SQ register %d", v)
	for i := q.sq.known; i != uint16(v) && int(n) <= len(q.sq.bytes)/sendSize; i++ {
		q.dev.Record("SQ %d %s", i, hex.EncodeToString(q.sq.at(i)))
	}
	if limit := int(cfg.MaxBatch); v>>16 != 0 || int(n) > len(q.sq.bytes)/sendSize || limit != 0 && int(n) > limit {
		q.Kernel.Problem("QP %d announces %d sends", q.Number, n)
		return
	}
	q.sq.known = uint16(v)
	if q.dev.Recording() {
		return
	}
	if q.state == stateErr {
		q.flush()
	}
	for q.state == stateRTS && q.sq.next != q.sq.known {
		d := [sendSize]byte(q.sq.at(q.sq.next))
		q.sq.next++
		q.execute(&d)
	}
}

// recvBell is called with the number of descriptors that the program has posted so far.
func (q *qp) recvBell(v uint32) {
	n := uint16(v) - q.rq.known
	q.dev.Record("RQ register %d", v)
	for i := q.rq.known; i != uint16(v) && int(n) <= len(q.rq.bytes)/recvSize; i++ {
		q.dev.Record("RQ %d %s", i, hex.EncodeToString(q.rq.at(i)))
	}
	if v>>16 != 0 || int(n) > len(q.rq.bytes)/recvSize {
		q.Kernel.Problem("QP %d announces %d descriptors", q.Number, n)
		return
	}
	q.rq.known = uint16(v)
	switch {
	case q.dev.Recording():
	case q.state == stateErr:
		q.flush()
	default:
		all := q.waiting
		q.waiting = nil
		for _, r := range all {
			r.arrive(q)
		}
	}
}

// A receive is what the program has posted for a message.
type receive struct {
	id    uint16
	parts []fakedev.SGE
}

const (
	firstPart = 1 << 30
	lastPart  = 1 << 31
	keyMask   = 1<<24 - 1
)

// receive takes the next receive. It returns false if there is none.
func (q *qp) receive() (r receive, there bool) {
	for i := q.rq.next; i != q.rq.known; i++ {
		d := q.rq.at(i)
		ctrl := binary.LittleEndian.Uint32(d[12:])
		if ctrl&firstPart != 0 {
			r = receive{id: binary.LittleEndian.Uint16(d[8:])}
		}
		r.parts = append(r.parts, fakedev.SGE{Addr: binary.LittleEndian.Uint64(d), Key: ctrl & keyMask,
			N: uint32(binary.LittleEndian.Uint16(d[10:]))})
		if ctrl&lastPart != 0 {
			q.rq.next = i + 1
			return r, true
		}
	}
	return r, false
}
