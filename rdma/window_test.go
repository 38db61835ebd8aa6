package rdma

import (
	"errors"
	"net"
	"testing"
	"time"
)

// TestWindowAlone checks that calls go on while a window for a long message is allocated, and that Close does not wait
// for it in vain.
func TestWindowAlone(t *testing.T) {
	for attempt := range 6 { // the machine may be slower than the kernel
		clients, servers, m := honestConns(t, 1, nil, nil)
		c, s, ctx := clients[0], servers[0], bounded(t)
		b, err := s.Alloc(100 << 10)
		good(t, b, err)
		m.SetCommandTime(time.Second)
		sent := make(chan error, 1)
		go func() { sent <- s.SendBuffer(ctx, b) }()
		allocates := func() bool {
			s.mu.Lock()
			defer s.unlock()
			return s.windows[0].state == windowAllocating
		}
		soon(t, "a window is allocated", allocates)
		if err := s.Send(ctx, []byte("meanwhile")); err != nil {
			t.Fatal(err)
		}
		r, err := c.Recv(ctx)
		good(t, r, err).Release()
		alone := allocates()
		m.SetCommandTime(0)
		if attempt%2 == 0 {
			if err := s.Close(); err != nil && !errors.Is(err, ErrUndelivered) {
				t.Error(err)
			}
			if err := <-sent; errors.Is(err, net.ErrClosed) {
				b.Release()
			} else if err != nil {
				t.Error(err)
			}
		} else if err := <-sent; err != nil {
			t.Error(err)
		} else {
			r, err := c.Recv(ctx)
			good(t, r, err).Release()
		}
		if alone && attempt > 0 {
			return
		}
	}
	t.Error("no message is sent before a window for another is allocated")
}
