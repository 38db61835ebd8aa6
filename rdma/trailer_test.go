package rdma

import (
	"context"
	"testing"
	"time"
)

// TestTrailerAllocations checks that a call without metadata allocates nothing for its trailer, and that one with
// metadata sends the pairs as they are encoded.
func TestTrailerAllocations(t *testing.T) {
	c := &Conn{remote: honestHello()}
	plain := context.Background()
	ctx, cancel := context.WithTimeout(plain, time.Hour)
	defer cancel()
	for name, ctx := range map[string]context.Context{
		"plain": plain, "deadline": ctx, "metadata": WithMetadata(plain, "key", "value")} {
		var room [64]byte
		n := testing.AllocsPerRun(100, func() {
			tr, err := c.trailer(ctx, 100, true)
			if err != nil || (tr.size() > 0) == (name == "plain") ||
				tr.size() > 0 && len(tr.appendTo(room[:0])) != tr.size() {
				t.Errorf("%s: %+v, %v", name, tr, err)
			}
		})
		if n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
