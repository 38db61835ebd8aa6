package fakeirdma

import (
	"fmt"
	"hash/crc32"
)

// The methods below complete requests of a device's newest QP, which only records. raw has the fields of the entry that
// do not depend on the request.

// Scan returns the receives that have been posted, of which no doorbell says so, and a checksum of the ring of sends.
// It then flushes the queues for which a command has asked, if they are not empty.
func (d *Device) Scan() (lines []string) {
	d.fabric.Loop.Run(func() {
		if q := d.newest; q != nil {
			lines = q.posted()
			if b, ok := q.sq.read(0, q.sq.size); ok {
				lines = append(lines, fmt.Sprintf("SQ of %d quanta: %08x", q.sq.size, crc32.ChecksumIEEE(b)))
			}
			sends, recvs := q.asked[0], q.asked[1]
			q.asked = [2]bool{}
			q.end(sends, recvs, flushGeneral, flushGeneral)
		}
	})
	return lines
}

// CompleteSends completes n sends with one entry.
func (d *Device) CompleteSends(n int, raw [4]uint64) {
	d.fabric.Loop.Run(func() {
		q := d.newest
		s := &q.sq
		e := q.sent(s.recorded[n-1])
		s.recorded = s.recorded[n:]
		q.send.complete(e.with(raw), nil)
	})
}

// CompleteReceive completes the oldest receive. imm, if not nil, is a second entry.
func (d *Device) CompleteReceive(raw [4]uint64, imm *[4]uint64) {
	d.fabric.Loop.Run(func() {
		q := d.newest
		e := q.received(q.rq.done)
		q.rq.done++
		q.recv.complete(e.with(raw), (*entry)(imm))
	})
}

// with adds fields.
func (e *entry) with(raw [4]uint64) *entry {
	for i, w := range raw {
		e[i] |= w
	}
	return e
}

// Flush ends the QP, with an entry for each queue that is not empty. The codes are those of the first requests.
func (d *Device) Flush(sendCode, recvCode uint64) {
	d.fabric.Loop.Run(func() {
		d.newest.posted()
		d.newest.end(true, true, sendCode, recvCode)
	})
}

func (q *qp) end(sends, recvs bool, sendCode, recvCode uint64) {
	if sends && len(q.sq.recorded) > 0 {
		q.sq.recorded = nil
		q.send.complete(q.flushEntry(&sendCode, flagSend), nil)
	}
	if recvs && q.rq.done != q.rq.next {
		q.rq.done = q.rq.next
		q.recv.complete(q.flushEntry(&recvCode, 0), nil)
	}
}
