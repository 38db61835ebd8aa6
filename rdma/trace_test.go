package rdma_test

import (
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
)

// TestTraceCallsConn has functions of a Trace that call methods of the connection.
func TestTraceCallsConn(t *testing.T) {
	var mu sync.Mutex
	var events []string
	event := func(name string, c *rdma.Conn) {
		s, err := c.Stats(), c.Err()
		if c.RemoteAddr() != c.CM().RemoteAddr() || !c.LocalAddr().IsValid() || len(c.PrivateData()) > 0 {
			t.Errorf("in %s: %v, %v", name, c.RemoteAddr(), c.PrivateData())
		}
		if (err != nil) != (name == "ended") || name == "stalled" && s.Stalls == 0 {
			t.Errorf("in %s: the statistics are %+v, the error is %v", name, s, err)
		}
		mu.Lock()
		defer mu.Unlock()
		events = append(events, name)
	}
	o := &rdma.Options{Trace: &rdma.Trace{
		Connected: func(c *rdma.Conn) { event("connected", c) },
		Ended:     func(c *rdma.Conn, _ error) { event("ended", c) },
		Stalled:   func(c *rdma.Conn, _ time.Duration) { event("stalled", c) },
	}}
	p := connect(t, o, &rdma.Options{Depth: 1})
	ctx := limit(t)
	const messages = 5
	received := background(func() error {
		for range messages {
			m, err := p.server.Recv(ctx)
			if err != nil {
				return err
			}
			m.Release()
		}
		return nil
	})
	for range messages {
		check(t, p.client.Send(ctx, []byte("x")))
	}
	check(t, within(t, received, "Recv"))
	check(t, within(t, background(p.client.Close), "Close"))
	mu.Lock()
	defer mu.Unlock()
	if n := len(events); n < 3 || events[0] != "connected" || events[1] != "stalled" || events[n-1] != "ended" {
		t.Errorf("the events are %v", events)
	}
}
