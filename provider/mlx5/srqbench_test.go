package mlx5

import (
	"math/rand/v2"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// BenchmarkSRQ measures the cost of a receive of an SRQ from its post until its slot is free
// again. Completions arrive in order, or shuffled within 32 receives.
func BenchmarkSRQ(b *testing.B) {
	shuffled := rand.New(rand.NewPCG(1, 2)).Perm(32)
	for _, c := range []struct {
		name string
		n    int // receives per post
		slot func(i int) int
	}{
		{"1", 1, func(i int) int { return i }},
		{"32", 32, func(i int) int { return i }},
		{"32/shuffled", 32, func(i int) int { return shuffled[i] }},
	} {
		b.Run(c.name, func(b *testing.B) {
			q := benchQP(b)
			p, _, err := q.ctx.CreateSRQ(&driver.SRQConfig{MaxWR: 255, MaxSGE: 1}, noCommand)
			check(b, err)
			s := p.(*srq)
			defer s.Retire()
			wrs := make([]uverbs.RecvWR, c.n)
			used := make([]uint32, c.n)
			for i := range wrs {
				wrs[i].SGL = []uverbs.SGE{{Addr: 0x1000, Length: 32, LKey: 7}}
			}
			for b.Loop() {
				at := s.head
				if _, err := s.PostRecv(wrs); err != nil {
					b.Fatal(err)
				}
				for i := range used {
					used[i] = at
					at = uint32(be(s.slot(at)[0][0])>>32) & 0xffff
				}
				for i := range used {
					s.release(used[c.slot(i)])
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.n), "ns/WR")
		})
	}
}
