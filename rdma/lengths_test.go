package rdma_test

import (
	"bytes"
	"context"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// thresholds returns lengths around the limits of the kinds of messages of a receiver with the given EagerSize, and
// around those of the pool.
func thresholds(eager int) (all []int) {
	for _, n := range []int{1, 128, 256, eager, 512, 1024, 4096, 64 << 10, 256 << 10, 1 << 20} {
		all = append(all, n-1, n, n+1)
	}
	slices.Sort(all)
	return slices.Compact(append(all, 20<<20))
}

// sendAll sends messages of the lengths by Send and SendBuffer in turn.
func sendAll(ctx context.Context, c *rdma.Conn, lengths []int) error {
	for i, n := range lengths {
		if i%2 == 0 {
			if err := c.Send(ctx, pattern(n, i)); err != nil {
				return err
			}
			continue
		}
		b, err := c.Alloc(n)
		if err != nil {
			return err
		}
		copy(b.Bytes(), pattern(n, i))
		if err := c.SendBuffer(ctx, b); err != nil {
			b.Release()
			return err
		}
	}
	return nil
}

// receiveAll receives what sendAll sends.
func receiveAll(ctx context.Context, t *testing.T, c *rdma.Conn, lengths []int) error {
	for i, n := range lengths {
		m, err := c.Recv(ctx)
		if err != nil {
			return err
		}
		if m.Len() != n || !bytes.Equal(m.Bytes(), pattern(n, i)) {
			t.Errorf("message %d has %d bytes, want %d of a pattern", i, m.Len(), n)
		}
		m.Release()
	}
	return nil
}

// TestThresholds sends messages of all kinds of lengths in both directions at the same time.
func TestThresholds(t *testing.T) {
	t.Parallel()
	for name, o := range map[string][2]*rdma.Options{
		"default":   {nil, nil},
		"short":     {{EagerSize: 256}, {EagerSize: 5000, Depth: 3}},
		"one":       {{Depth: 1, Offers: 1}, {Depth: 1, Offers: 1, EagerSize: 256}},
		"different": {{Depth: 1, Offers: 32}, {Depth: 100, Offers: 2}},
		"long":      {{EagerSize: 1 << 20, Depth: 4}, {Offers: 3, Depth: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := connect(t, o[0], o[1])
			ctx := limit(t)
			lengths := thresholds(5000)
			back := slices.Clone(lengths)
			slices.Reverse(back)
			ends := []<-chan error{
				background(func() error { return sendAll(ctx, p.client, lengths) }),
				background(func() error { return receiveAll(ctx, t, p.server, lengths) }),
				background(func() error { return sendAll(ctx, p.server, back) }),
				background(func() error { return receiveAll(ctx, t, p.client, back) }),
			}
			for _, end := range ends {
				check(t, <-end)
			}
			for _, c := range []*rdma.Conn{p.client, p.server} {
				s, n := c.Stats(), uint64(len(lengths))
				if s.Sent != n || s.Received != n || s.SentBytes != s.ReceivedBytes {
					t.Errorf("%+v after %d messages", s, n)
				}
			}
		})
	}
}

// TestManySides has many goroutines on both sides that send, call and receive, with small limits and packets in
// another order. Each message arrives once.
func TestManySides(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*rdma.Options{
		"one":     {Depth: 1, Offers: 1, EagerSize: 256},
		"two":     {Depth: 2, Offers: 1, EagerSize: 256},
		"three":   {Depth: 3, Offers: 2, EagerSize: 256},
		"default": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &pair{net: verbstest.NewNetwork(t, verbstest.Seed(0))}
			p.here, p.there = p.net.Machine(), p.net.Machine()
			p.dial(t, o, o)
			ctx := limit(t)
			const workers, rounds = 8, 20
			var receivers, senders sync.WaitGroup
			sums := [2]int{}
			var mu sync.Mutex
			for side, c := range []*rdma.Conn{p.client, p.server} {
				for range 3 {
					receivers.Go(func() {
						n := receiveMany(ctx, t, c)
						mu.Lock()
						defer mu.Unlock()
						sums[side] += n
					})
				}
				for k := range workers {
					senders.Go(func() { sendMany(ctx, t, c, k, rounds) })
				}
			}
			senders.Wait()
			for _, c := range []*rdma.Conn{p.client, p.server} { // the last messages, one for each receiver
				for range 3 {
					check(t, c.Send(ctx, []byte("end")))
				}
			}
			receivers.Wait()
			if want := workers * rounds; sums != [2]int{want, want} {
				t.Errorf("%d messages arrived, want %d on each side", sums, want)
			}
		})
	}
}

// receiveMany replies to calls, and counts the other messages before the last one.
func receiveMany(ctx context.Context, t *testing.T, c *rdma.Conn) (n int) {
	var replies sync.WaitGroup
	defer replies.Wait()
	for {
		m, err := c.Recv(ctx)
		if err != nil {
			if err != io.EOF {
				t.Error(err)
			}
			return n
		}
		last := m.Len() == 3
		switch {
		case m.IsCall(): // both sides wait for credits, so receivers must not wait for those of a reply
			b := m.Copy()
			replies.Go(func() {
				if err := m.Reply(ctx, b); err != nil {
					t.Error(err)
				}
			})
			continue
		case !last:
			n++
		}
		m.Release()
		if last {
			return n
		}
	}
}

func sendMany(ctx context.Context, t *testing.T, c *rdma.Conn, k, rounds int) {
	for i := range rounds {
		b := pattern([]int{0, 100, 200, 300, 3000}[(i+k)%5], i)
		if err := c.Send(ctx, b); err != nil {
			t.Error(err)
			return
		}
		m, err := c.Call(ctx, b)
		if err != nil {
			t.Error(err)
			return
		}
		if !bytes.Equal(m.Bytes(), b) {
			t.Error("another reply")
		}
		m.Release()
	}
}
