package rdma

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/verbstest"
)

// TestHandleLong checks that short calls do not wait for a long one before them, for which there is no memory before
// another handler has returned. If there is none in time, the caller gets an error, and the connection goes on.
func TestHandleLong(t *testing.T) {
	for name, patience := range map[string]time.Duration{"memory": time.Minute, "no memory": 10 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			n := verbstest.NewNetwork(t)
			server, client := n.Machine(), n.Machine()
			l, accepted := accepting(t, server, &ListenOptions{MaxMemory: 4 << 20, MaxMemoryPerPeer: -1})
			l.budget.patience = patience
			c, err := dialTo(t, client, server, l)
			good(t, c, err)
			s := <-accepted
			ctx := bounded(t)
			began, release, handled := make(chan int, 2), make(chan struct{}), make(chan error, 1)
			go func() {
				handled <- s.Handle(ctx, func(_ context.Context, r *Request) ([]byte, error) {
					if began <- r.Len(); r.Len() > 1<<20 {
						<-release
					}
					return fmt.Append(nil, r.Len()), nil
				}, nil)
			}()
			call := func(n int) <-chan error {
				done := make(chan error, 1)
				sent := c.Stats().Sent
				go func() {
					m, err := c.Call(ctx, make([]byte, n))
					if err == nil && string(m.Copy()) != fmt.Sprint(n) {
						err = errors.New("another reply")
					}
					done <- err
				}()
				for c.Stats().Sent == sent {
					<-time.After(time.Millisecond)
				}
				return done
			}
			first := call(2 << 20)
			if n := <-began; n != 2<<20 {
				t.Fatal(n)
			}
			second := call(1<<20 + 1)
			for range 100 {
				if err := <-call(10); err != nil {
					t.Fatal(err)
				}
				if n := <-began; n != 10 {
					t.Fatalf("a handler of %d bytes has begun", n)
				}
			}
			if name == "no memory" {
				var e *CallError
				if err := <-second; !errors.As(err, &e) || e.Code != CodeResourceExhausted ||
					!strings.Contains(e.Text, "ListenOptions.MaxMemory") {
					t.Errorf("the second call returns %v", err)
				}
				second = nil
			}
			close(release)
			if err := <-first; err != nil {
				t.Error(err)
			}
			if second != nil {
				if err := <-second; err != nil {
					t.Error(err)
				}
			}
			closeAll(t, c, s)
			if err := <-handled; err != nil && !errors.Is(err, ErrDisconnected) && !strings.Contains(err.Error(), "closed") {
				t.Error(err)
			}
		})
	}
}
