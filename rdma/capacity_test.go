package rdma_test

import (
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// TestFullQueues fills the send queue. Package verbstest reports if the completion queue has too few entries.
func TestFullQueues(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{1, 2, 13, 32, 100, 219, 500} {
		p := machines(t)
		p.net.SetTimeouts(verbstest.Timeouts{Ack: 14})
		p.dial(t, &rdma.Options{Depth: depth}, nil)
		ctx := limit(t)
		_, s := p.share(t, 64, rdma.CanWrite)
		b := must(p.client.Alloc(8))(t)
		batch := p.client.NewBatch()
		for range 1000 { // more than any queue has
			batch.Write(b, s.Token(), 0)
		}
		heal := p.net.Partition(p.here, p.there)
		done := background(func() error { return batch.Do(ctx) })
		until(t, "the queue is full", func() bool { return p.client.Stats().Operations > 0 })
		heal()
		check(t, within(t, done, "the batch"))
		b.Release()
		roundTrip(t, p)
	}
}
