package mlx5

import (
	"math/bits"
	"runtime"

	"github.com/goverbs/goverbs/uverbs"
)

// An SRQ may have receives into memory that the device pages in on demand. If a message meets an
// absent page, its receive completes with a special error, which Poll hides. Poll posts the
// receive again in another slot, and the sender retries. Meanwhile the kernel driver resolves the
// fault, for which it reads the slot that faulted. So that slot must not be filled again soon: it
// rests.

// A restQueue is a linked list of the resting slots. For each slot that enters it, the slot that
// has rested longest leaves it.
type restQueue struct {
	head, tail uint32
	any        bool // the SRQ has slots to rest
}

// Syndromes of a failed receive. An absent page under a receive of an SRQ has both.
const (
	syndromeAborted   = 0x22
	syndromePageFault = 0x93 // the vendor syndrome
)

// pageFault reports whether the entry e of a failed receive is about an absent page.
func pageFault(e *block) bool { return be(e[6])&0xffff == syndromePageFault<<8|syndromeAborted }

// postBesideFaults is post for contexts where Poll may post to the SRQ as well.
func (s *srq) postBesideFaults(wrs []uverbs.RecvWR) (int, error) {
	s.faults.Lock()
	defer s.faults.Unlock()
	n, err := s.post(wrs)
	runtime.KeepAlive(s)
	return n, err
}

// fault posts the receive in slot i again, which met an absent page, and adds the slot to the
// resting ones. Any goroutine may call it. It returns false if the queue has no such slot.
func (s *srq) fault(i uint32) bool {
	if int(i) >= len(s.ids) {
		return false
	}
	s.faults.Lock()
	defer s.faults.Unlock()
	if s.retired.Load() {
		return true
	}
	s.appendFree() // a longer list delays the reuse of slot i
	s.slots = uint32(len(s.ids))
	next := i
	if q := &s.resting; q.any {
		s.link(q.tail, i)
		q.tail = i
		next = q.head
		q.head = s.next(next)
	}
	s.append(next, next)
	copy(s.slot(s.head)[1:], s.slot(i)[1:])
	s.ids[s.head] = s.ids[i]
	s.head = s.next(s.head)
	s.count++
	s.publish()
	return true
}

// appendFree appends all free slots to the list, in ascending order.
func (s *srq) appendFree() {
	for k := range s.free {
		for w := s.free[k].Swap(0); w != 0; w &= w - 1 {
			i := uint32(64*k + bits.TrailingZeros64(w))
			s.append(i, i)
		}
	}
}
