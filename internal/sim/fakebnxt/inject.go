package fakebnxt

import "slices"

// CompleteSends completes n sends of the device's newest QP, which only records, with an entry whose other fields are
// those of raw.
func (d *Device) CompleteSends(n int, raw [entrySize]byte) {
	d.fabric.Loop.Run(func() {
		e, q := entry(raw), d.newest
		s := &q.sq
		last := s.recorded[n-1]
		s.recorded, s.done = s.recorded[n:], (s.done+uint32(n))%s.requests
		e.put64(handleAt, q.cookie)
		e.put32(consumerAt, uint32(s.consumer(last, e[statusAt] != 0)))
		q.send.complete(&e, false)
	})
}

// CompleteReceive completes a receive of the QP, or of its SRQ: number i of those that are outstanding. keep is set if
// the program does not regard it as completed.
func (d *Device) CompleteReceive(i int, keep bool, raw [entrySize]byte) {
	d.fabric.Loop.Run(func() {
		e, q := entry(raw), d.newest
		r := q.receives()
		e.put64(recvHandleAt, q.cookie)
		e.put32(tagAt, r.recorded[i]|uint32(e[sourceHighAt])<<24)
		if !keep {
			r.recorded = slices.Delete(r.recorded, i, i+1)
		}
		q.recv.complete(&e, false)
	})
}

// Terminate completes the QP.
func (d *Device) Terminate() { d.fabric.Loop.Run(func() { d.newest.terminate() }) }
