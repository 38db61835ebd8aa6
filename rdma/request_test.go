package rdma_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/rdma"
)

// TestMetadataAfterReply checks that an interceptor has the metadata of a call whose handler has replied itself.
func TestMetadataAfterReply(t *testing.T) {
	after := make(chan string, 1)
	p, served := handled(t, nil, func(ctx context.Context, r *rdma.Request) ([]byte, error) {
		err := r.Reply(ctx, nil)
		after <- fmt.Sprint(r.Metadata(), r.Message.Metadata())
		return nil, err
	}, nil)
	for want, ctx := range map[string]context.Context{
		"map[] map[]":         limit(t),
		"map[tenant:a] map[]": rdma.WithMetadata(limit(t), "tenant", "a"),
	} {
		m := must(p.client.Call(ctx, nil))(t)
		m.Release()
		if got := <-after; got != want {
			t.Errorf("the metadata is %s, want %s", got, want)
		}
	}
	check(t, p.client.Close())
	check(t, within(t, served, "Handle"))
}
