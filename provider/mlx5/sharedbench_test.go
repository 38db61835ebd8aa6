package mlx5

import (
	"fmt"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// BenchmarkSharedRegister measures goroutines that post at the same time, each to its own QP. The
// QPs are spread over the shared registers of a context, after those that are not shared.
func BenchmarkSharedRegister(b *testing.B) {
	for _, registers := range []int{1, 12} {
		for _, n := range []int{1, 2, 4, 16, 64} {
			for _, kind := range []string{"doorbell", "burst"} {
				b.Run(fmt.Sprintf("%d registers/%d QPs/%s", registers, n, kind), func(b *testing.B) {
					benchShared(b, registers, n, kind == "burst")
				})
			}
		}
	}
}

func benchShared(b *testing.B, registers, n int, burst bool) {
	mem := good(provider.Anon(uarSize * registers))(b)
	q := newBench(b, uverbs.QPConfig{MaxSendWR: 64, MaxSendSGE: 1}, func(c *deviceContext) {
		c.set.preferBF = burst
	})
	c := q.ctx
	c.uars.free, c.uars.shared = nil, nil
	c.uars.set.exclusive, c.uars.set.registers = 0, 0
	for i := range registers {
		c.uars.shared = append(c.uars.shared, &register{reg: registerOf(mem.Bytes()[i*uarSize+uarSend:]), mem: mem,
			toggle: 256, most: 4, shared: true})
	}
	c.uars.plain = &register{users: 1 << 30}
	cfg := uverbs.QPConfig{Type: uverbs.RC, MaxSendWR: 64, MaxSendSGE: 1}
	var all []*bench
	for range n {
		u, _, err := c.CreateQP(&cfg, provider.QPEnv{}, noCommand)
		check(b, err)
		all = append(all, &bench{queues: queues{u.(*qp)}, QP: u})
	}
	wrs := []uverbs.SendWR{{WRID: 1, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{{Addr: 0x1000, Length: 32, LKey: 7}}, RemoteAddr: 0x2000, RKey: 8}}
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, q := range all {
		wg.Go(func() {
			for range (b.N + i) / n {
				if _, err := q.PostSend(wrs); err != nil {
					b.Error(err)
					return
				}
				q.complete()
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	for _, q := range all {
		check(b, q.Retire(true))
	}
	check(b, mem.Retire())
}
