//go:build device

package valkey_test

import (
	"testing"

	"github.com/valkey-io/valkey-go"
)

// BenchmarkClient measures what valkey-go does beside the same on TCP.
func BenchmarkClient(b *testing.B) {
	r := start(b)
	rdma := r.dial()
	tcp := r.dial(func(o *valkey.ClientOption) { o.InitAddress, o.DialCtxFn = []string{deviceIP + ":6380"}, nil })
	for _, on := range []struct {
		network string
		client  valkey.Client
	}{{"rdma", rdma}, {"tcp", tcp}} {
		for _, size := range []struct {
			name string
			n    int
		}{{"64B", 64}, {"1MiB", 1 << 20}} {
			b.Run(on.network+"/echo/"+size.name, func(b *testing.B) { echoes(b, on.client, size.n, 1) })
		}
		b.Run(on.network+"/pipeline/64B", func(b *testing.B) { echoes(b, on.client, 64, 64) })
	}
}

// echoes has the server echo messages of n bytes, several at a time.
func echoes(b *testing.B, c valkey.Client, n, atATime int) {
	ctx := b.Context()
	message := valkey.BinaryString(make([]byte, n))
	for b.Loop() {
		cmds := make(valkey.Commands, atATime)
		for i := range cmds {
			cmds[i] = c.B().Echo().Message(message).Build()
		}
		for _, resp := range c.DoMulti(ctx, cmds...) {
			if got, err := resp.AsBytes(); err != nil || len(got) != n {
				b.Fatalf("%d bytes, %v", len(got), err)
			}
		}
	}
}
