package rdma

import (
	"context"
	"errors"
	"testing"
)

// TestErrorAfterClose checks calls whose errors have arrived, handled by another goroutine, when the connection is
// closed or the context ends before the callers go on.
func TestErrorAfterClose(t *testing.T) {
	for _, how := range []string{"close", "wait", "cancel", "unsent"} {
		t.Run(how, func(t *testing.T) {
			c, h := hostilePair(t, nil, honestHello())
			k, err := c.newCall(h.ctx, nil)
			good(t, k, err)
			if err := c.send(h.ctx, kindCall, k.number, []byte("call"), nil); err != nil {
				t.Fatal(err)
			}
			h.send(kindError, 0, k.number, trailed("no", codeField(105)))
			c.mu.Lock()
			c.look()
			if k.err == nil || k.m != (Message{}) {
				t.Errorf("the error is %v, and the message %v", k.err, k.m)
			}
			owed := c.replies.owed + c.replies.granted
			switch how {
			case "cancel":
				c.abandon(k)
			case "unsent":
				c.unsent(k)
			}
			c.unlock()
			if owed != c.replies.receives {
				t.Errorf("the peer gets %d credits for replies, want %d", owed, c.replies.receives)
			}
			if how == "cancel" || how == "unsent" {
				return
			}
			if how == "close" {
				mayLose(t, c.Close())
			}
			var e *CallError
			if _, err := c.await(context.Background(), k); !errors.As(err, &e) || e.Code != 105 {
				t.Errorf("await returns %v", err)
			}
		})
	}
}
