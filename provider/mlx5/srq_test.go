package mlx5

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// A listModel is the list of an SRQ by the rules of libmlx5, one slot at a time. A post that finds the list empty
// appends the slot after the last one if that slot is free. Otherwise it appends the first run of free slots above the
// last slot, or below it.
type listModel struct {
	next, free []int // free: 0 or 1
	head, tail int
}

func newListModel(slots int) *listModel {
	m := &listModel{next: make([]int, slots), free: make([]int, slots), tail: slots - 1}
	for i := range m.tail {
		m.next[i] = i + 1
	}
	return m
}

func (m *listModel) append(i int) {
	m.next[m.tail], m.free[i], m.tail = i, 0, i
}

// post returns the slot that the next post fills, or -1 if the queue is full.
func (m *listModel) post() int {
	if m.head == m.tail && !m.extend() {
		return -1
	}
	i := m.head
	m.head = m.next[i]
	return i
}

func (m *listModel) extend() bool {
	if next := (m.tail + 1) % len(m.next); m.free[next] == 1 {
		m.append(next)
		return true
	}
	for _, span := range [2][2]int{{m.head + 1, len(m.next)}, {0, m.head}} {
		for i := span[0]; i < span[1]; i++ {
			if m.free[i] == 0 {
				continue
			}
			for ; i < span[1] && m.free[i] == 1; i++ {
				m.append(i)
			}
			return true
		}
	}
	return false
}

// An srqRig is an SRQ, the slots that its posts have filled, and queue pairs that have received into some of them.
type srqRig struct {
	*srq
	posted []uint32
	taken  [][]uint32 // by queue pair
}

func newSRQRig(t testing.TB, maxWR, qps int) *srqRig { return newSRQRigOf(t, 1<<15, maxWR, qps) }

// newSRQRigOf creates an SRQ on a device that supports SRQs of up to limit slots.
func newSRQRigOf(t testing.TB, limit, maxWR, qps int) *srqRig {
	b := newBench(t, uverbs.QPConfig{MaxSendWR: 1}, func(c *deviceContext) { c.limits.srqWR = limit })
	p, _, err := b.ctx.CreateSRQ(&driver.SRQConfig{MaxWR: maxWR, MaxSGE: 1}, noCommand)
	check(t, err)
	t.Cleanup(func() { check(t, p.Retire()) })
	return &srqRig{srq: p.(*srq), taken: make([][]uint32, qps)}
}

// post posts one receive and returns its slot. It returns false if the queue is full.
func (r *srqRig) post(t testing.TB) (uint32, bool) {
	t.Helper()
	at := r.head
	if n, err := r.PostRecv([]uverbs.RecvWR{{}}); n == 0 {
		if err != uverbs.ErrQueueFull {
			t.Fatal(err)
		}
		return 0, false
	}
	r.posted = append(r.posted, at)
	return at, true
}

// complete completes the oldest receive of a queue pair, and returns its slot.
func (r *srqRig) complete(qp int) (slot uint32) {
	slot, r.taken[qp] = r.taken[qp][0], r.taken[qp][1:]
	r.release(slot)
	return slot
}

// TestSRQOrder checks that posts fill the slots in the order of libmlx5, for all orders in which the receives complete
// and all queue pairs that they complete on.
func TestSRQOrder(t *testing.T) {
	for _, qps := range []int{1, 3, 8} {
		for _, maxWR := range []int{1, 7, 15, 63, 100, 200} {
			t.Run(fmt.Sprintf("%d QPs/%d receives", qps, maxWR), func(t *testing.T) {
				srqOrder(t, newSRQRig(t, maxWR, qps), rand.New(rand.NewPCG(uint64(qps), uint64(maxWR))))
			})
		}
	}
}

func srqOrder(t *testing.T, r *srqRig, random *rand.Rand) {
	m := newListModel(int(r.slots))
	var got, want []int
	for range 2000 {
		for range random.IntN(20) {
			at, ok := r.post(t)
			if !ok {
				at = ^uint32(0)
			}
			got, want = append(got, int(int32(at))), append(want, m.post())
		}
		for range random.IntN(20) {
			if len(r.posted) > 0 {
				qp := random.IntN(len(r.taken))
				r.taken[qp] = append(r.taken[qp], r.posted[0])
				r.posted = r.posted[1:]
			}
			if qp := random.IntN(len(r.taken)); len(r.taken[qp]) > 0 {
				m.free[r.complete(qp)] = 1
			}
		}
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("post %d fills slot %d, with libmlx5 %d; before: %v", i, got[i], want[i], got[max(i-20, 0):i])
		}
	}
}

// TestSRQInOrder checks that each slot is adjacent to the previous one if receives complete in order.
func TestSRQInOrder(t *testing.T) {
	r := newSRQRig(t, 15, 1)
	var got []uint32
	for range 5 {
		for range 15 {
			r.post(t)
		}
		got = append(got, r.posted...)
		r.taken[0], r.posted = r.posted, nil
		for range 15 {
			r.complete(0)
		}
	}
	for i, at := range got {
		if at != uint32(i%16) {
			t.Fatalf("receive %d is in slot %d: %v", i, at, got)
		}
	}
}

// TestSRQGivesBesidePosts lets several goroutines poll while another posts. It checks that no slot is lost and that
// none is filled before it is free.
func TestSRQGivesBesidePosts(t *testing.T) {
	const pollers, receives = 4, 20000
	r := newSRQRig(t, 100, 1)
	queue := make(chan uint32, 256)
	var out [256]atomic.Bool // slots in use by the device
	var wg sync.WaitGroup
	for range pollers {
		wg.Go(func() {
			for i := range queue {
				r.ids[i]++ // like Poll, which reads it before it frees the slot
				out[i].Store(false)
				r.release(i)
			}
		})
	}
	for n := 0; n < receives; {
		at := r.head
		if k, _ := r.PostRecv([]uverbs.RecvWR{{WRID: 1}}); k == 0 {
			continue
		}
		if out[at].Swap(true) {
			t.Errorf("slot %d is filled twice", at)
		}
		queue <- at
		n++
	}
	close(queue)
	wg.Wait()
	var slots []uint32
	for {
		at, ok := r.post(t)
		if !ok {
			break
		}
		slots = append(slots, at)
	}
	slices.Sort(slots)
	if n := len(slices.Compact(slots)); n != 127 {
		t.Errorf("%d slots are left: %v", n, slots)
	}
}

// TestSRQUnknownSlot checks that a slot number that does not exist has no effect.
func TestSRQUnknownSlot(t *testing.T) {
	r := newSRQRig(t, 3, 1)
	r.release(8)
	r.release(0xffff)
	if r.fault(8) || r.fault(0xffff) {
		t.Error("a slot that does not exist faults")
	}
}

// TestSRQSizes checks that an SRQ has as many resting slots as others if the device supports that many.
func TestSRQSizes(t *testing.T) {
	for _, c := range []struct{ limit, maxWR, slots, total int }{
		{1 << 15, 1, 2, 4}, {1 << 15, 7, 8, 16}, {1 << 15, 8, 16, 32}, {1 << 15, 16, 32, 64}, {1 << 15, 100, 128, 256},
		{1 << 15, 1<<14 - 1, 1 << 14, 1 << 15}, {1 << 15, 1 << 14, 1 << 15, 1 << 15}, {1 << 15, 1<<15 - 1, 1 << 15, 1 << 15},
		{64, 31, 32, 64}, {64, 32, 64, 64},
	} {
		l := limits{rqDesc: 512, srqWR: c.limit}
		s, err := l.srqSizes(&driver.SRQConfig{MaxWR: c.maxWR, MaxSGE: 1})
		if want := (srqSize{c.slots, c.total, 5}); s != want || err != nil {
			t.Errorf("%d receives of %d: %+v, %v; want %+v", c.maxWR, c.limit, s, err, want)
		}
	}
}
