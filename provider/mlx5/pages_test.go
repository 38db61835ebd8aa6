package mlx5

import (
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// BenchmarkPages posts lists of 32 requests. Their data is a cache line of each 4 KiB of 64 MiB in random order, on
// huge or on small pages. With inline data it measures how long the CPU needs to read the data. With SGEs the CPU does
// not read the data, and the pages make no difference.
func BenchmarkPages(b *testing.B) {
	const size, each, line, data = 64 << 20, 4096, 64, 32
	for _, c := range []struct {
		name   string
		advice int
	}{{"huge", unix.MADV_HUGEPAGE}, {"small", unix.MADV_NOHUGEPAGE}} {
		b.Run(c.name, func(b *testing.B) {
			memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				if err := unix.Munmap(memory); err != nil {
					b.Error(err)
				}
			}()
			if err := unix.Madvise(memory, c.advice); err != nil {
				b.Fatal(err)
			}
			clear(memory)
			q := benchQP(b)
			list := repeat(uverbs.SendWR{WRID: 1, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, RemoteAddr: 0x2000, RKey: 8},
				32)
			places := rand.New(rand.NewPCG(1, 2)).Perm(size / each)
			at := 0
			for b.Loop() {
				for i := range list {
					page := places[at%len(places)]
					from := page*each + page%(each/line)*line
					list[i].Inline = memory[from : from+data]
					at++
				}
				if _, err := q.PostSend(list); err != nil {
					b.Fatal(err)
				}
				q.complete()
			}
			perWR(b, 32)
		})
	}
}
