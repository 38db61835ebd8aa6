package provider

import (
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// A Table finds the QP that a completion names by its handle: an index, and in the upper half how many QPs have had
// the index. No handle is used twice, so that a completion of a QP that has been closed names none, and none is 0. The
// methods are safe for concurrent use.
type Table[Q any] struct {
	mu    sync.Mutex // of changes
	free  []uint32   // indices
	used  uint32     // indices that have been used
	pages [MaxHandles / pageSlots]atomic.Pointer[tablePage[Q]]
}

// MaxHandles is how many QPs a Table can have at a time.
const MaxHandles = 1 << 18

const pageSlots = 1 << 9

type tablePage[Q any] [pageSlots]tableSlot[Q]

// A tableSlot has its handle before its QP, and readers look at them in the other order.
type tableSlot[Q any] struct {
	q      atomic.Pointer[Q]
	handle atomic.Uint64
}

// Get returns the QP with a handle, or nil.
func (t *Table[Q]) Get(handle uint64) *Q {
	i := uint32(handle)
	if i >= MaxHandles {
		return nil
	}
	p := t.pages[i/pageSlots].Load()
	if p == nil {
		return nil
	}
	s := &p[i%pageSlots]
	if q := s.q.Load(); s.handle.Load() == handle {
		return q
	}
	return nil
}

// Add returns the handle of a QP. It returns false if there are MaxHandles QPs.
func (t *Table[Q]) Add(q *Q) (handle uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var i uint32
	switch n := len(t.free); {
	case n > 0:
		i, t.free = t.free[n-1], t.free[:n-1]
	case t.used == MaxHandles:
		return 0, false
	default:
		i = t.used
		t.used++
	}
	p := &t.pages[i/pageSlots]
	if p.Load() == nil {
		p.Store(new(tablePage[Q]))
	}
	s := &p.Load()[i%pageSlots]
	handle = (s.handle.Load()>>32+1)<<32 | uint64(i)
	s.handle.Store(handle)
	s.q.Store(q)
	return handle, true
}

// Remove removes the QP with a handle, if it is in the table.
func (t *Table[Q]) Remove(handle uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := uint32(handle)
	if t.Get(handle) == nil {
		return
	}
	t.pages[i/pageSlots].Load()[i%pageSlots].q.Store(nil)
	t.free = append(t.free, i)
}

// ErrHandles is returned by a create when no handle is left by which completions can name the QP.
var ErrHandles error = &uverbs.Error{Op: "create QP", Kind: uverbs.ErrInvalid, Errno: unix.ENOMEM,
	Detail: fmt.Sprintf("the Context has %d QPs, which is the limit of this library: close some, or open the device again",
		MaxHandles)}
