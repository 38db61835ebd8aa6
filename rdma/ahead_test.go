package rdma

import "testing"

// TestReadAhead checks that the next long message is read while the program uses the one before, and no others: the
// pool has memory for none.
func TestReadAhead(t *testing.T) {
	c, h := hostilePair(t, nil, honestHello())
	const length = slabSize + 1 // of a slab of its own
	for i := range 3 {
		if !h.offer(offer{key: h.mr.RKey(), addr: h.mr.Addr(), length: length}, i) {
			t.Fatal("the offer is not sent")
		}
	}
	m, err := c.Recv(h.ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	begun := make([]bool, c.count)
	for i := range begun {
		in := c.arrived[(c.first+i)%len(c.arrived)].large
		begun[i] = in.reading || in.done
	}
	c.unlock()
	if len(begun) != 2 || !begun[0] || begun[1] {
		t.Errorf("the READs of the next messages have begun: %v, want those of the first only", begun)
	}
	m.Release()
}
